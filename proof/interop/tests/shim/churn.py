"""Connections that come and go, as many as the second argument says; either end is the first to close."""
import os, socket, sys

# As many as the library has made ahead of a family, and as many on their way.
AHEAD = 48
HOST, COUNT = sys.argv[1], int(sys.argv[2])
listener = socket.create_server((HOST, 0))
address = listener.getsockname()
before = len(os.listdir("/proc/self/fd"))
for n in range(COUNT):
    client = socket.create_connection(address)
    server, _ = listener.accept()
    client.send(b"x")
    assert server.recv(9) == b"x"
    for end in (client, server) if n % 2 else (server, client):
        end.close()
after = len(os.listdir("/proc/self/fd"))
assert before <= after <= before + AHEAD, (before, after)
