"""Accepting while no descriptor is left: EMFILE, whether connections wait or not, and none of them is lost."""
import errno
import os
import resource
import socket
import sys

HOST = sys.argv[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))


def accepted(listener):
    try:
        return listener.accept()[0]
    except OSError as error:
        return errno.errorcode[error.errno]


for blocks in (False, True):
    listener = socket.create_server((HOST, 0), backlog=8)
    clients = [socket.create_connection(listener.getsockname()) for _ in range(3)]
    listener.setblocking(blocks)
    fillers = []
    try:
        while True:
            fillers.append(os.dup(1))
    except OSError as error:
        print(errno.errorcode[error.errno], end=" ")
    print([accepted(listener) for _ in range(5)], end=" ")
    for filler in fillers:
        os.close(filler)
    got = [accepted(listener) for _ in clients]
    for client in clients:
        client.sendall(b"x")
    print([one.recv(1) for one in got])
    listener.setblocking(False)
    print(accepted(listener))
    for one in got + clients:
        one.close()
    listener.close()
