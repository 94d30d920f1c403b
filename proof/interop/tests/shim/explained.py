"""A program with a socket of each kind, which says its number and waits."""

import os
import socket
import sys
import time

host, kernel, port, ready = sys.argv[1:]
listener = socket.create_server((host, 5001))
listener.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
# Sockets that the library keeps make the next ones.
for _ in range(3):
    one = socket.create_connection((host, 5001))
    other, _ = listener.accept()
    one.close(), other.close()
client = socket.create_connection((kernel, int(port)))
client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
client.sendall(b"x" * 1000)
assert client.recv(1) == b"y"
datagrams = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
datagrams.bind(("127.0.0.1", 0))
datagrams.sendto(b"x" * 77, datagrams.getsockname())
assert len(datagrams.recv(100)) == 77
fresh = socket.socket()
others = [socket.socket(socket.AF_UNIX) for _ in range(2)]
with open(ready + ".new", "w") as file:
    file.write(f"{os.getpid()} {listener.fileno()} {client.fileno()} {datagrams.fileno()} {fresh.fileno()}")
os.rename(ready + ".new", ready)
time.sleep(60)
