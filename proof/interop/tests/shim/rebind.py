"""A port is free as soon as its listener is closed, as a server that begins anew needs it. Argument: the address."""
import socket, sys

first = socket.create_server((sys.argv[1], 0))
address = first.getsockname()
first.close()
for _ in range(300):
    socket.create_server(address).close()
