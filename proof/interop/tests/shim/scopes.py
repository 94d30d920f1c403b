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


def resolved(*asked, flags=0, family=0):
    """The scopes of an address that is named with its interface, and whether the name is told as it was asked for."""
    try:
        found = socket.getaddrinfo("%".join(asked), "9", family, socket.SOCK_STREAM, flags=flags)
    except socket.gaierror as error:
        return error.args[1]
    return [(name[3] - INDEX, canon in ("", "%".join(asked)), canon != "") for *_, canon, name in found]


for asked in ((ADDRESS, NAME), (ADDRESS, str(INDEX)), (ADDRESS, "none"), ("ff02::1", NAME), ("ff01::1", NAME), ("2001:db8::1", NAME), ("name", NAME)):
    flags = (0, socket.AI_NUMERICHOST, socket.AI_NUMERICHOST | socket.AI_CANONNAME)
    print("resolved", [resolved(*asked, flags=flag | socket.AI_NUMERICHOST) for flag in flags])
print("resolved", resolved(ADDRESS, NAME, flags=socket.AI_ADDRCONFIG), resolved(ADDRESS, NAME, family=socket.AF_INET))
bound = fresh()
bound.bind(socket.getaddrinfo(f"{ADDRESS}%{NAME}", 0, type=socket.SOCK_STREAM)[0][4])
told("bound by name", bound.getsockname())


def shown(address, scope):
    """What getnameinfo(3) says, with the interface's name and number put by words."""
    text = socket.getnameinfo((address, 9, 0, scope), socket.NI_NUMERICHOST | socket.NI_NUMERICSERV)[0]
    return text.replace(address, "ADDRESS").replace(NAME, "NAME").replace(str(INDEX), "INDEX")


print("shown", [shown(ADDRESS, INDEX), shown(ADDRESS, 0)], [shown(it, INDEX) for it in ("ff02::a", "ff01::a", "ff05::a", "fd00::a")])
sockaddr = struct.pack("=HHI16sI", socket.AF_INET6, 0, 0, socket.inet_pton(socket.AF_INET6, ADDRESS), INDEX)
whole = len(f"{ADDRESS}%{NAME}")
for more in (-whole, -1, 0, 1, 1000):
    room = ctypes.create_string_buffer(whole + more + 1)
    result = ctypes.CDLL(None).getnameinfo(sockaddr, len(sockaddr), room, whole + more, None, 0, socket.NI_NUMERICHOST)
    print("room for it", result == 0, room.value.decode() == f"{ADDRESS}%{NAME}", result in (0, socket.EAI_OVERFLOW, socket.EAI_NONAME))
