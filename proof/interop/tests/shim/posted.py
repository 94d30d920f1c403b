"""Options that programs set before they connect and that nothing refuses: nobody waits for the daemon, who is stopped meanwhile, and all hold.

posted.py HOST PID
"""
import os
import signal
import socket
import sys
import time

HOST, DAEMON = sys.argv[1], int(sys.argv[2])
NODELAY, KEEPALIVE = (socket.IPPROTO_TCP, socket.TCP_NODELAY), (socket.SOL_SOCKET, socket.SO_KEEPALIVE)
READ, WRITE = os.pipe()
# Before there are sockets, of which it would have copies.
if not os.fork():
    os.read(READ, 1)
    time.sleep(4)
    os.kill(DAEMON, signal.SIGCONT)
    os._exit(0)
listener = socket.create_server((HOST, 0))


def values(it):
    return [it.getsockopt(*name) for name in (NODELAY, KEEPALIVE)]


# The first are made one by one, and of others some are on their way for a while.
earlier = [socket.socket() for _ in range(8)]
sockets = [socket.socket() for _ in range(4)]
os.kill(DAEMON, signal.SIGSTOP)
os.write(WRITE, b"x")
begun = time.monotonic()
for it in sockets:
    it.setsockopt(*NODELAY, 1)
    it.setsockopt(*KEEPALIVE, 1)
print("did not wait", time.monotonic() - begun < 3)
os.wait()
print([values(it) for it in sockets])
for it in sockets:
    it.connect(listener.getsockname())
    peer = listener.accept()[0]
    it.sendall(b"text")
    print(values(it), values(peer), peer.recv(4))
# More than there are answers that may lie unread; what was said last holds.
for it in earlier:
    for nth in range(40):
        it.setsockopt(*(NODELAY if nth % 3 else KEEPALIVE), nth % 2)
    print(values(it))
# A child, which may change them beside its parent.
it = socket.socket()
it.setsockopt(*NODELAY, 1)
sys.stdout.flush()
if not os.fork():
    print("child", values(it))
    it.setsockopt(*KEEPALIVE, 1)
    sys.stdout.flush()
    os._exit(0)
os.wait()
it.setsockopt(*NODELAY, 0)
print("parent", values(it))
# The next socket of the same descriptor has none of them.
sockets[0].close()
it.close()
print([values(socket.socket()) for _ in range(2)])
