"""Who wants hops to be left of what comes (RFC 5082) hears of nothing else: connections, listeners, and what is set of both."""
import errno, socket, sys, time

HOST = sys.argv[1]
FAMILIES = {socket.AF_INET: (HOST, 0, 2, 21), socket.AF_INET6: ("::1", 41, 16, 73)}


def tried(call, *arguments):
    try:
        return call(*arguments)
    except TimeoutError:
        return "nothing"
    except OSError as error:
        return errno.errorcode[error.errno]


def client_of(passive, hops, least=0):
    family = passive.family
    _, level, to_send, to_come = FAMILIES[family]
    client = socket.socket(family)
    client.settimeout(0.6)
    client.setsockopt(level, to_send, hops)
    client.setsockopt(level, to_come, least)
    return client, tried(client.connect, passive.getsockname())


for family, (host, level, to_send, to_come) in FAMILIES.items():
    for kind in socket.SOCK_STREAM, socket.SOCK_DGRAM:
        sock = socket.socket(family, kind)
        values = 0, 1, 255, 256, -1, 9
        print(family.name, kind.name, [(tried(sock.setsockopt, level, to_come, it), sock.getsockopt(level, to_come)) for it in values])
    passive = socket.create_server((host, 0), family=family)
    print("all may come", client_of(passive, 3)[1], passive.accept()[0].getsockopt(level, to_come))
    # Of the listener's answers more hops are left than the client wants, or fewer.
    passive.setsockopt(level, to_send, 9)
    print("answers", [client_of(passive, 64, least)[1] for least in (9, 10)])
    passive.close()
    passive = socket.create_server((host, 0), family=family)
    passive.setsockopt(level, to_come, 200)
    passive.setsockopt(level, to_send, 255)
    print("near and far", [client_of(passive, hops)[1] for hops in (199, 255, 64, 200)])
    passive.settimeout(0.3)
    accepted = []
    while not isinstance(one := tried(passive.accept), str):
        accepted.append(one[0])
    print("accepted", len(accepted), [it.getsockopt(level, to_come) for it in accepted])
    client, told = client_of(passive, 255)
    server = passive.accept()[0]
    server.settimeout(0.6)
    client.sendall(b"near")
    print(told, server.recv(99))
    client.setsockopt(level, to_send, 64)
    client.sendall(b"far")
    print("from afar", tried(server.recv, 99))
    server.setsockopt(level, to_come, 64)
    server.settimeout(10)
    print("again", tried(server.recv, 99))
    # What is between two programs of one host has hops as well.
    server.setsockopt(level, to_come, 100)
    server.settimeout(0.6)
    client.sendall(b"more")
    print("at once", tried(server.recv, 99))
    client.setsockopt(level, to_send, 100)
    server.settimeout(10)
    print("enough", tried(server.recv, 99))
    # Datagrams are not judged.
    receiver = socket.socket(family, socket.SOCK_DGRAM)
    receiver.bind((host, 0))
    receiver.setsockopt(level, to_come, 255)
    receiver.settimeout(5)
    sender = socket.socket(family, socket.SOCK_DGRAM)
    sender.setsockopt(level, to_send, 5)
    sender.sendto(b"datagram", receiver.getsockname())
    print(receiver.recv(99))
# A listener of both families.
passive = socket.create_server(("::", 0), family=socket.AF_INET6, dualstack_ipv6=True)
passive.setsockopt(0, 21, 100)
for hops in 99, 100:
    client = socket.socket()
    client.settimeout(0.6)
    client.setsockopt(0, 2, hops)
    print("mapped", hops, tried(client.connect, (HOST, passive.getsockname()[1])))
