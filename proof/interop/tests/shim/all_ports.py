"""A program that connects to two peers by turns has all local ports to each of them, and is told then. Arguments: the address, and how
many ports there are."""
import errno
import socket
import sys

HOST, PORTS = sys.argv[1], int(sys.argv[2])
listeners = [socket.create_server((HOST, port), backlog=4 * PORTS) for port in (7001, 7002)]
peers = [it.getsockname() for it in listeners]


def connect(peer):
    """The connection, or why there is none."""
    one = socket.socket()
    try:
        one.connect(peer)
    except OSError as error:
        one.close()
        return error.errno
    return one


def told_later(peer):
    """What a program that does not wait is told by the time its socket may be written to."""
    one = socket.socket()
    one.setblocking(False)
    told = one.connect_ex(peer)
    if told == errno.EINPROGRESS:
        one.setblocking(True)
        try:
            one.send(b"x")
        except OSError as error:
            told = one.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) or error.errno
    one.close()
    return told


held = [[connect(peer) for peer in peers] for _ in range(PORTS)]
for at, peer in enumerate(peers):
    failed = [it[at] for it in held if isinstance(it[at], int)]
    ports = {it[at].getsockname()[1] for it in held if not isinstance(it[at], int)}
    print(len(ports), "ports", failed)
    print("then", {errno.errorcode[connect(peer)] for _ in range(20)}, errno.errorcode[told_later(peer)])
# Each is a connection like any other, wherever its lane is.
for at, listener in enumerate(listeners):
    for pair in held:
        far, _ = listener.accept()
        far.sendall(b"text")
        far.close()
    print(sum(pair[at].recv(10) == b"text" and pair[at].recv(10) == b"" for pair in held), "answers")
for pair in held:
    for one in pair:
        one.close()
