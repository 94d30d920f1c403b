"""A signal that was chosen for a socket (F_SETSIG) is that socket's, and not the next one's, which may have its descriptor."""
import fcntl
import os
import signal
import socket
import sys

HOST = sys.argv[1]
F_SETSIG, F_GETSIG = 10, 11
listener = socket.create_server((HOST, 0))
heard = []
signal.signal(signal.SIGIO, lambda *_: heard.append("IO"))
signal.signal(signal.SIGRTMIN, lambda *_: heard.append("real-time"))
for _ in range(3):
    for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
        one = socket.socket(socket.AF_INET, kind)
        if kind == socket.SOCK_STREAM:
            one.connect(listener.getsockname())
            listener.accept()[0].close()
        fcntl.fcntl(one, F_SETSIG, signal.SIGRTMIN)
        print(kind.name, fcntl.fcntl(one, F_GETSIG) == signal.SIGRTMIN, end=" ")
        one.close()
        print([fcntl.fcntl(socket.socket(socket.AF_INET, other), F_GETSIG) for other in (socket.SOCK_STREAM, socket.SOCK_DGRAM) * 4], flush=True)
client = socket.create_connection(listener.getsockname())
server = listener.accept()[0]
fcntl.fcntl(client, fcntl.F_SETOWN, os.getpid())
fcntl.fcntl(client, fcntl.F_SETFL, fcntl.fcntl(client, fcntl.F_GETFL) | os.O_ASYNC)
server.send(b"x")
print(client.recv(1), flush=True)
while not heard:
    signal.sigtimedwait([], 0.05)
print(set(heard), flush=True)
