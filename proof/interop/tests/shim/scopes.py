"""Names of sockets at an address of one link tell the interface of that (sin6_scope_id of ipv6(7)).

scopes.py ADDRESS INTERFACE
"""
import fcntl
import socket
import struct
import sys

SIOCGIFINDEX = 0x8933
ADDRESS, NAME = sys.argv[1:]
asked = fcntl.ioctl(socket.socket(), SIOCGIFINDEX, struct.pack("16s24x", NAME.encode()))
INDEX = struct.unpack("16xi20x", asked)[0]
print("named", [socket.if_nametoindex(NAME) - INDEX, socket.if_indextoname(INDEX) == NAME, (INDEX, NAME) in socket.if_nameindex()])


def told(what, *names):
    print(what, [name[3] - INDEX for name in names])


def fresh(kind=socket.SOCK_STREAM):
    return socket.socket(socket.AF_INET6, kind)


listener = fresh()
listener.bind((ADDRESS, 0, 0, INDEX))
told("bound", listener.getsockname())
listener.listen()
told("listening", listener.getsockname())
name = listener.getsockname()
for waits in (True, False):
    client = fresh()
    client.connect(name)
    if not waits:
        listener.setblocking(False)
    server, peer = listener.accept()
    told("accepted", peer, server.getsockname(), server.getpeername())
    told("connected", client.getsockname(), client.getpeername())
    # What is told is a name that can be used.
    back = fresh(socket.SOCK_DGRAM)
    back.connect(peer)
    told("back", back.getsockname(), back.getpeername())
hears = fresh(socket.SOCK_DGRAM)
hears.bind((ADDRESS, 0, 0, INDEX))
told("datagrams", hears.getsockname())
back.connect(hears.getsockname())
back.send(b"x")
told("from", hears.recvfrom(9)[1])
