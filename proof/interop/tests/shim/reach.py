"""What a program is told of interfaces whose packets nobody hears but the other end of a tunnel, or whom they name (6to4)."""
import ctypes
import fcntl
import socket
import struct

FLAGS, DSTADDR, BRDADDR, HWADDR = 0x8913, 0x8917, 0x8919, 0x8927
NAMES = [(1 << 1, "broadcast"), (1 << 4, "point to point"), (1 << 7, "no ARP"), (1 << 12, "multicast")]


class Entry(ctypes.Structure):
    pass


Entry._fields_ = [("next", ctypes.POINTER(Entry)), ("name", ctypes.c_char_p), ("flags", ctypes.c_uint), ("address", ctypes.c_void_p),
                  ("mask", ctypes.c_void_p), ("other", ctypes.c_void_p), ("data", ctypes.c_void_p)]


def ask(what, name):
    with socket.socket() as sock:
        return fcntl.ioctl(sock, what, struct.pack("16s24s", name, bytes(24)))[16:]


def named(flags):
    return ", ".join(name for bit, name in NAMES if flags & bit)


def entries():
    libc, first = ctypes.CDLL(None), ctypes.POINTER(Entry)()
    assert libc.getifaddrs(ctypes.byref(first)) == 0
    at = first
    while at:
        it = at.contents
        address = ctypes.string_at(it.address, 28)
        family, = struct.unpack_from("H", address)
        other = ctypes.string_at(it.other, 8)[4:] if it.other and family == socket.AF_INET else None
        yield it.name, it.flags, family, address, other
        at = it.next
    libc.freeifaddrs(first)


for name in (b"web0", b"tun0", b"tun1"):
    kind, = struct.unpack_from("H", ask(HWADDR, name))
    print(name.decode(), named(struct.unpack_from("H", ask(FLAGS, name))[0]), hex(kind), "address" if any(ask(HWADDR, name)[2:8]) else "no address")
for name in (b"web0", b"tun0"):
    print(name.decode(), *[socket.inet_ntoa(ask(what, name)[4:8]) for what in (DSTADDR, BRDADDR)])
for name, flags, family, address, other in entries():
    if family == socket.AF_INET and name != b"lo":
        print(name.decode(), named(flags), socket.inet_ntoa(other))
    if family == socket.AF_PACKET and name != b"lo":
        print(name.decode(), named(flags), "of", address[11], "bytes")
