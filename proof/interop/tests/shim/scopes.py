"""Names of sockets at an address of one link tell the interface of that (sin6_scope_id of ipv6(7)).

scopes.py INTERFACE
"""
import ctypes
import fcntl
import socket
import struct
import sys
import time

SIOCGIFINDEX = 0x8933
NAME = sys.argv[1]
asked = fcntl.ioctl(socket.socket(), SIOCGIFINDEX, struct.pack("16s24x", NAME.encode()))
INDEX = struct.unpack("16xi20x", asked)[0]
print("named", [socket.if_nametoindex(NAME) - INDEX, socket.if_indextoname(INDEX) == NAME, (INDEX, NAME) in socket.if_nameindex()])


def told(what, *names):
    print(what, [name[3] - INDEX for name in names])


def fresh(kind=socket.SOCK_STREAM):
    return socket.socket(socket.AF_INET6, kind)


class Entry(ctypes.Structure):
    """`struct ifaddrs`."""


Entry._fields_ = [("next", ctypes.POINTER(Entry)), ("name", ctypes.c_char_p), ("flags", ctypes.c_uint), ("address", ctypes.c_void_p)]


def of_link():
    """The interface's addresses of one link, as getifaddrs(3) tells them, with their scopes."""
    first, found = ctypes.POINTER(Entry)(), []
    assert ctypes.CDLL(None).getifaddrs(ctypes.byref(first)) == 0
    entry = first
    while entry:
        it, entry = entry.contents, entry.contents.next
        if it.address and it.name == NAME.encode():
            family, = struct.unpack("H", ctypes.string_at(it.address, 2))
            if family == socket.AF_INET6:
                ip, scope = struct.unpack("8x16sI", ctypes.string_at(it.address, 28))
                found.append((socket.inet_ntop(family, ip), 0, 0, scope))
    return [name for name in found if name[0].startswith("fe80:")]


# Nobody is bound to an address before it is found that no other station has it.
deadline = time.monotonic() + 30
while True:
    try:
        listener = fresh()
        ADDRESS = of_link()[0][0]
        listener.bind((ADDRESS, 0, 0, INDEX))
        break
    except (IndexError, OSError):
        assert time.monotonic() < deadline, "the interface makes itself no address"
        time.sleep(0.05)
told("getifaddrs", *of_link())
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
