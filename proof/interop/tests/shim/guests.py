"""A server that is fused with many programs, one after the other: it maps what it shares with them again and again."""
import select
import socket
import subprocess
import sys
import time

CLIENT = """
import socket, sys, time

def is_fused():
    with open("/proc/self/maps") as maps:
        return sum("memfd:firelane" in line for line in maps) == 2

client = socket.create_connection((sys.argv[1], int(sys.argv[2])))
deadline = time.monotonic() + 10
while not is_fused():
    assert time.monotonic() < deadline, "it is not fused"
    client.sendall(b"knock")
    assert client.recv(5, socket.MSG_WAITALL) == b"knock"
for n in range(50):
    text = b"%d of %d" % (n, n * n)
    client.sendall(text)
    assert client.recv(len(text), socket.MSG_WAITALL) == text
"""


def segments():
    with open("/proc/self/maps") as maps:
        return sum("memfd:firelane" in line for line in maps) - 1


host, count = sys.argv[1], int(sys.argv[2])
listener = socket.create_server((host, 0))
port = listener.getsockname()[1]
waiter = select.epoll()
for n in range(count):
    client = subprocess.Popen([sys.executable, "-S", "-E", "-c", CLIENT, host, str(port)])
    server, _ = listener.accept()
    # Who waits by a set is woken through what they share, and so is who waits in a call.
    if n % 2:
        waiter.register(server, select.EPOLLIN)
    while True:
        if n % 2:
            waiter.poll()
        text = server.recv(1000)
        if not text:
            break
        server.sendall(text)
    server.close()
    assert client.wait() == 0, n
print(segments(), file=sys.stderr)
assert segments() < 10, segments()
