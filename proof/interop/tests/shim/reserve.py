"""A server that has used up its descriptors gives one up that it has kept back, takes a connection, closes it, and has the one that it kept back
again (libuv, Twisted), however many sockets it has made before.

reserve.py HOST
"""
import errno
import itertools
import os
import resource
import socket
import sys
import time

HOST = sys.argv[1]
# Enough for sockets that are made ahead.
resource.setrlimit(resource.RLIMIT_NOFILE, (1024, 1024))


def told(act):
    try:
        return act() or "done"
    except OSError as error:
        return errno.errorcode[error.errno]


def case(waiting, made):
    listeners = [socket.create_server((HOST, 0)) for _ in range(2)]
    listener = listeners[0]
    listener.setblocking(False)
    others = [socket.socket() for _ in range(made)]
    clients = [socket.create_connection(listener.getsockname()) for _ in range(waiting)]
    time.sleep(0.05)
    reserve = os.open("/dev/null", 0)
    fillers = []
    try:
        while True:
            fillers.append(os.dup(0))
    except OSError:
        pass
    tries = []
    for client in clients:
        tries.append(told(lambda: listener.accept()[0].close()))
        os.close(reserve)
        tries.append(told(lambda: listener.accept()[0].close()))
        try:
            reserve = os.open("/dev/null", 0)
        except OSError as error:
            return f"{tries}, the reserve is gone: {errno.errorcode[error.errno]}"
    os.close(reserve)
    # There is room again, and sockets are made as before.
    for filler in fillers:
        os.close(filler)
    after = [socket.socket() for _ in range(40)]
    client = socket.create_connection(listener.getsockname())
    listener.setblocking(True)
    listener.accept()[0].sendall(b"text")
    return tries, len(after) + len(others) - made, client.recv(4)


for waiting, made in itertools.product((1, 2, 3), (*range(8), 20)):
    sys.stdout.flush()
    if not os.fork():
        print(waiting, made, case(waiting, made), flush=True)
        os._exit(0)
    os.wait()
