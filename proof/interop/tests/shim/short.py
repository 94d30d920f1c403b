"""Programs whose first socket comes when hardly a descriptor is left have it, or EMFILE, and are served when there are some again.

short.py HOST
"""
import errno
import os
import resource
import socket
import sys

HOST = sys.argv[1]


def served():
    """Connections enough for every lane, each with a text and its answer."""
    listener = socket.create_server((HOST, 0))
    for _ in range(16):
        client = socket.create_connection(listener.getsockname())
        server = listener.accept()[0]
        for one, other in ((client, server), (server, client)):
            other.settimeout(10)
            one.sendall(b"text")
            assert other.recv(4) == b"text"
        client.close()
        server.close()
    return "served"


for free in range(1, 9):
    sys.stdout.flush()
    if os.fork():
        os.wait()
        continue
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
    fillers = []
    try:
        while True:
            fillers.append(os.dup(1))
    except OSError:
        pass
    for filler in fillers[:free]:
        os.close(filler)
    try:
        socket.socket().close()
    except OSError as error:
        assert error.errno == errno.EMFILE, error
    for filler in fillers[free:]:
        os.close(filler)
    print(free, served(), flush=True)
    os._exit(0)
