"""Sockets that are set up and begin to connect while the daemon is stopped: nobody waits for it, and all holds when it goes on.

unasked.py HOST PID
"""
import errno
import os
import select
import signal
import socket
import sys
import time

HOST, DAEMON = sys.argv[1], int(sys.argv[2])
SOL, TCP, IP = socket.SOL_SOCKET, socket.IPPROTO_TCP, socket.IPPROTO_IP
OPTIONS = [
    (SOL, socket.SO_REUSEADDR, 1), (SOL, socket.SO_KEEPALIVE, 1), (TCP, socket.TCP_NODELAY, 1), (SOL, socket.SO_SNDBUF, 30_000),
    (SOL, socket.SO_RCVBUF, 20_000), (TCP, socket.TCP_KEEPIDLE, 60), (TCP, socket.TCP_KEEPINTVL, 10), (TCP, socket.TCP_KEEPCNT, 3),
    (TCP, socket.TCP_USER_TIMEOUT, 9_000), (IP, socket.IP_TOS, 16),
]
READ, WRITE = os.pipe()
# Before there are sockets, of which it would have copies.
if not os.fork():
    os.read(READ, 1)
    time.sleep(4)
    os.kill(DAEMON, signal.SIGCONT)
    os._exit(0)
listener = socket.create_server((HOST, 0))
# The first are made one by one, and asked for.
for _ in range(20):
    with socket.create_connection(listener.getsockname()):
        listener.accept()[0].close()
sockets = [socket.socket() for _ in range(4)]
[it.setblocking(False) for it in sockets]
os.kill(DAEMON, signal.SIGSTOP)
os.write(WRITE, b"x")
begun = time.monotonic()
said = []
for nth, it in enumerate(sockets):
    for level, name, value in OPTIONS:
        it.setsockopt(level, name, value)
    if nth % 2:
        it.bind(("0.0.0.0", 0))
    else:
        said.append(it.getsockname())
    said.append(it.getsockopt(TCP, socket.TCP_NODELAY))
    said.append(errno.errorcode[it.connect_ex(listener.getsockname())])
print("did not wait", time.monotonic() - begun < 3)
os.wait()
print(said)
# They come in any order.
peers = {whence: peer for peer, whence in (listener.accept() for _ in sockets)}
for it in sockets:
    select.select([], [it], [], 10)
    it.send(b"text")
    print([it.getsockopt(*option[:2]) for option in OPTIONS], peers[it.getsockname()].recv(4))
