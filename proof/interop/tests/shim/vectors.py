# preadv2(2) and pwritev2(2) of a socket, and pselect6(2) by its number. Prints what the calls say.
import ctypes
import errno
import os
import select
import socket
import sys

HOST = sys.argv[1]
LIBC = ctypes.CDLL(None, use_errno=True)
ARM = os.uname().machine == "aarch64"
SYS_PSELECT6, SYS_PREADV2, SYS_PWRITEV2 = (72, 286, 287) if ARM else (270, 327, 328)
NOWAIT = 8
server = socket.create_server((HOST, 0))
one = socket.create_connection(server.getsockname())
other, _ = server.accept()
other.settimeout(5)


class Piece(ctypes.Structure):
    _fields_ = [("base", ctypes.c_char_p), ("len", ctypes.c_size_t)]


def pieces(*texts):
    return (Piece * len(texts))(*[Piece(text, len(text)) for text in texts])


def told(call, *arguments):
    ctypes.set_errno(0)
    answer = call(*arguments)
    return answer if answer >= 0 else errno.errorcode.get(ctypes.get_errno(), ctypes.get_errno())


def by_number(number):
    def call(fd, vector, count, offset, flags):
        arguments = [ctypes.c_long(it) for it in [number, fd]]
        rest = [ctypes.c_long(it) for it in [count, offset, 0, flags]]
        return LIBC.syscall(*arguments, vector, *rest)

    return call


def by_name(name):
    function = getattr(LIBC, name)
    function.restype = ctypes.c_ssize_t
    return lambda fd, vector, count, offset, flags: function(fd, vector, count, ctypes.c_long(offset), flags)


for name, read, write in [
    ("by name", by_name("preadv2"), by_name("pwritev2")),
    ("of 64 bits", by_name("preadv64v2"), by_name("pwritev64v2")),
    ("by number", by_number(SYS_PREADV2), by_number(SYS_PWRITEV2)),
]:
    for flags in [0, 1, 2, 4, NOWAIT, 16, 1 << 30]:
        for offset in [-1, 0, 7, -2]:
            said = told(write, one.fileno(), pieces(b"ab", b"cde"), 2, offset, flags)
            print(name, "writes", flags, offset, said, other.recv(9) if said == 5 else None)
            other.send(b"there")
            select.select([one], [], [])
            room = [ctypes.create_string_buffer(2), ctypes.create_string_buffer(3)]
            vector = (Piece * 2)(*[Piece(ctypes.cast(it, ctypes.c_char_p), len(it)) for it in room])
            said = told(read, one.fileno(), vector, 2, offset, flags)
            print(name, "reads", flags, offset, said, [it.raw for it in room])
            if said != 5:
                one.recv(9)
    print(name, "nothing to read", told(read, one.fileno(), pieces(b"ab"), 1, -1, NOWAIT))
    print(name, "no pieces", told(read, one.fileno(), None, 0, -1, 0), told(write, one.fileno(), None, 0, -1, 0))
    print(name, "too many", told(read, one.fileno(), pieces(b"a"), 5000, -1, 0))


class Time(ctypes.Structure):
    _fields_ = [("seconds", ctypes.c_long), ("nanos", ctypes.c_long)]


class Mask(ctypes.Structure):
    _fields_ = [("set", ctypes.c_void_p), ("len", ctypes.c_size_t)]


def pselect(name, time, mask):
    ready = (ctypes.c_ulong * 16)()
    number = one.fileno()
    ready[number // 64] |= 1 << number % 64
    said = told(LIBC.syscall, ctypes.c_long(SYS_PSELECT6), ctypes.c_long(number + 1), ready, None, None, time, mask)
    print("pselect6", name, said, ready[number // 64] >> number % 64 & 1)


held = ctypes.create_string_buffer(8)
pselect("in vain", ctypes.byref(Time(0, 1_000_000)), None)
other.send(b"x")
one.recv(1, socket.MSG_PEEK)
for name, mask in [
    ("without a mask", None),
    ("with none in it", ctypes.byref(Mask(None, 8))),
    ("with one", ctypes.byref(Mask(ctypes.addressof(held), 8))),
    ("with one that is too long", ctypes.byref(Mask(ctypes.addressof(held), 16))),
]:
    left = Time(5, 0)
    pselect(name, ctypes.byref(left), mask)
    print("left", left.seconds in (4, 5))
pselect("without end", None, None)
pselect("no time", ctypes.byref(Time(0, 1 << 40)), None)
one.recv(1)
