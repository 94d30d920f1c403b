"""Sockets that are used again after a connection that failed or was dissolved, and what many sets of epoll and listeners hand on."""
import errno
import fcntl
import select
import socket
import struct
import sys
import termios
import time

HOST = sys.argv[1]
listener = socket.create_server((HOST, 0), backlog=64)
GOOD = listener.getsockname()
closed = socket.socket()
closed.bind((HOST, 0))
BAD = closed.getsockname()
libc_connect = __import__("ctypes").CDLL(None, use_errno=True)


def told(call, *arguments):
    try:
        return call(*arguments)
    except OSError as error:
        return errno.errorcode[error.errno]


def ready(one):
    poll = select.poll()
    poll.register(one, select.POLLIN | select.POLLOUT)
    return [hex(events) for _, events in poll.poll(0)]


def settle(one):
    """Waits until the attempt to connect has ended, which others' work may keep from it."""
    poll = select.poll()
    poll.register(one, select.POLLIN | select.POLLOUT)
    poll.poll(5000)


def arrive(one, count):
    """Waits until so much is there, and who waits for it would have been told."""
    deadline = time.monotonic() + 5
    while struct.unpack("i", fcntl.ioctl(one, termios.FIONREAD, bytes(4)))[0] < count and time.monotonic() < deadline:
        time.sleep(0.005)
    time.sleep(0.02)


def dissolve(one):
    address = struct.pack("H14x", socket.AF_UNSPEC)
    result = libc_connect.connect(one.fileno(), address, len(address))
    return result if result == 0 else errno.errorcode[__import__("ctypes").get_errno()]


def served(one):
    """A byte each way, by the newest connection."""
    other = listener.accept()[0]
    one.setblocking(True)
    one.sendall(b"x")
    other.sendall(other.recv(1))
    return one.recv(1), other


def close_rest():
    listener.setblocking(False)
    while isinstance(told(listener.accept), tuple):
        pass
    listener.setblocking(True)


for blocks in (True, False):
    for then in ("nothing", "poll", "recv", "error", "bind", "listen"):
        one = socket.socket()
        one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        one.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        one.setblocking(blocks)
        said = [told(one.connect, BAD)]
        settle(one)
        one.setblocking(False)
        if then == "poll" and blocks:
            said.append(ready(one))
        elif then == "recv" and blocks:
            said.append(told(one.recv, 1))
        elif then == "error":
            said += [one.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) for _ in range(2)]
        elif then == "bind" and blocks:
            said += [one.getsockname()[0], told(one.bind, (HOST, 0))]
        elif then == "listen" and blocks:
            said += [told(one.listen), one.getsockname()[1] > 0]
            print(blocks, then, *said)
            continue
        one.setblocking(blocks)
        said.append(told(one.connect, GOOD))
        if said[-1] not in (None, "EINPROGRESS"):
            said.append(told(one.connect, GOOD))
        settle(one)
        said += [ready(one), one.getpeername() == GOOD, served(one)[0]]
        said += [one.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY), one.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)]
        print(blocks, then, *said)
one = socket.socket()
print("again and again", [told(one.connect, BAD) for _ in range(20)], told(one.connect, GOOD), served(one)[0])
one = socket.socket()
one.bind((HOST, 0))
name = one.getsockname()
print("keeps its name", told(one.connect, BAD), one.getsockname() == name, told(one.connect, GOOD), served(one)[0])
one = socket.create_connection(GOOD)
_, other = served(one)
print("dissolved", dissolve(one), told(one.getpeername), told(other.recv, 1), told(one.connect, GOOD), served(one)[0])
one = socket.socket()
print("nothing to dissolve", dissolve(one), told(one.connect, GOOD), served(one)[0])
print("port 0", told(socket.socket().connect, (HOST, 0)))

limit = struct.pack("ll", 3, 500_000)
listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, limit)
client = socket.create_connection(GOOD)
server = listener.accept()[0]
print("inherits", server.getsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, 16) == limit)
client.close()
server.close()

sets = [select.epoll() for _ in range(600)]
one, other = socket.create_connection(GOOD), listener.accept()[0]
sets[-1].register(one, select.EPOLLIN)
other.send(b"x")
print("the last of many", sets[-1].poll(2) == [(one.fileno(), select.EPOLLIN)])
for said in sets:
    said.close()
one_set = select.epoll()
EXCLUSIVE = select.EPOLLEXCLUSIVE
print("exclusive", told(one_set.register, one, EXCLUSIVE | select.EPOLLIN | select.EPOLLONESHOT), told(one_set.register, one, EXCLUSIVE | select.EPOLLIN),
      told(one_set.modify, one, select.EPOLLIN), told(one_set.register, other, select.EPOLLIN), told(one_set.modify, other, EXCLUSIVE | select.EPOLLIN))


def reusing(port=0):
    one = socket.socket()
    one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    return one, told(one.bind, (HOST, port))


(first, _), alone = reusing(), socket.socket()
second, said = reusing(first.getsockname()[1])
print("two of one port", said, told(alone.bind, first.getsockname()), told(first.connect, GOOD), served(first)[0], told(second.listen), told(reusing(first.getsockname()[1])[0].listen))
(first, _) = reusing()
second, said = reusing(first.getsockname()[1])
print("one listens", told(first.listen), told(second.listen), reusing(first.getsockname()[1])[1])

client, server = socket.create_connection(GOOD), listener.accept()[0]
client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, 5)
given = select.epoll()
given.register(client, select.EPOLLIN)
said = []
for text, count in ((b"abc", 3), (b"de", 5), (b"f", 6)):
    server.send(text)
    arrive(client, count)
    said.append((len(given.poll(0.05)), select.select([client], [], [], 0)[0] == [client]))
said.append(client.recv(4))
said.append((len(given.poll(0)), client.recv(2)))
server.send(b"x")
arrive(client, 1)
said.append(len(given.poll(0)))
server.shutdown(socket.SHUT_WR)
said.append((len(given.poll(1)), client.recv(9)))
print("so much at least", said)
one = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
one.bind(("::1", 0))
for option in (socket.IPV6_RECVTCLASS, socket.IPV6_RECVHOPLIMIT, socket.IPV6_RECVPKTINFO):
    one.setsockopt(socket.IPPROTO_IPV6, option, 1)
one.sendto(b"x", one.getsockname())
print("beside a datagram", [kind for _, kind, _ in one.recvmsg(9, 999)[1]])
