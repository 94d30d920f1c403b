# close_range(2) that the kernel refuses: what is in the range is the program's still. Prints what its connection does.
import ctypes
import errno
import socket
import sys

HOST = sys.argv[1]
LIBC = ctypes.CDLL(None, use_errno=True)
server = socket.create_server((HOST, 0))
one = socket.create_connection(server.getsockname())
other, _ = server.accept()
other.settimeout(5)
number = one.fileno()


def refused(name, first, last, flags):
    answer = LIBC.close_range(first, last, ctypes.c_uint(flags))
    said = errno.errorcode[ctypes.get_errno()] if answer < 0 else answer
    one.send(b"still")
    print(name, said, other.recv(9))


for flags in [1, 8, 1 << 30, 1 << 31]:
    refused(f"flags {flags}", number, number, flags)
    refused(f"flags {flags} with CLOEXEC", number, number, flags | 4)
refused("the wrong way round", number + 1, number, 0)
refused("CLOEXEC", number, number, 4)
