"""Sockets that are bound to the loopback device hear and reach what has the loopback's addresses, and nobody else."""
import errno, socket, sys

HOST = sys.argv[1]
DEVICE, INDEX = (socket.SOL_SOCKET, 25), (socket.SOL_SOCKET, 62)
STREAM, DATAGRAM = socket.SOCK_STREAM, socket.SOCK_DGRAM


def tried(call, *arguments):
    try:
        return call(*arguments)
    except TimeoutError:
        return "nothing"
    except OSError as error:
        return errno.errorcode[error.errno]


def made(family, kind, bound):
    sock = socket.socket(family, kind)
    sock.settimeout(1)
    if bound:
        sock.setsockopt(*DEVICE, b"lo\0")
    return sock


for kind in STREAM, DATAGRAM:
    sock = made(socket.AF_INET, kind, False)
    print(kind.name, sock.getsockopt(*DEVICE, 16), tried(sock.setsockopt, *DEVICE, b"lo"), sock.getsockopt(*DEVICE, 16), sock.getsockopt(*INDEX))
    print(tried(sock.setsockopt, *INDEX, 0), sock.getsockopt(*DEVICE, 16), tried(sock.setsockopt, *INDEX, 1), sock.getsockopt(*DEVICE, 16))
for family, near, everybody in [(socket.AF_INET, "127.0.0.1", "0.0.0.0"), (socket.AF_INET6, "::1", "::")]:
    for passive_bound, active_bound in [(True, False), (True, True), (False, True)]:
        passive = made(family, STREAM, passive_bound)
        passive.bind((everybody, 0))
        passive.listen()
        port = passive.getsockname()[1]
        client = made(family, STREAM, active_bound)
        told = tried(client.connect, (near, port))
        server = passive.accept()[0]
        server.sendall(b"near")
        print(family.name, passive_bound, active_bound, told, client.recv(9), [it.getsockopt(*DEVICE, 16) for it in (client, server)])
        receiver = made(family, DATAGRAM, passive_bound)
        receiver.bind((everybody, 0))
        sender = made(family, DATAGRAM, active_bound)
        sender.sendto(b"datagram", (near, receiver.getsockname()[1]))
        text, peer = receiver.recvfrom(99)
        print(text, peer[0], tried(receiver.sendto, b"answer", peer), tried(sender.recv, 99))
# Its own address is another device's.
passive = made(socket.AF_INET, STREAM, True)
passive.bind(("0.0.0.0", 0))
passive.listen()
print("by the other device", tried(made(socket.AF_INET, STREAM, False).connect, (HOST, passive.getsockname()[1])))
receiver = made(socket.AF_INET, DATAGRAM, True)
receiver.bind(("0.0.0.0", 0))
sender = made(socket.AF_INET, DATAGRAM, False)
sender.connect((HOST, receiver.getsockname()[1]))
print(tried(sender.send, b"nobody"), tried(sender.recv, 9))
