"""Addresses whose family the program has not said (`sin_family` is zero), as old ones leave it: what `bind` and `sendto` make of them."""
import ctypes
import errno
import socket
import struct
import sys

HOST = sys.argv[1]
LIBC = ctypes.CDLL(None, use_errno=True)
V4, V6, STREAM, DATAGRAM = socket.AF_INET, socket.AF_INET6, socket.SOCK_STREAM, socket.SOCK_DGRAM


def address(host, port, family=0):
    return struct.pack("=H", family) + struct.pack("!H", port) + socket.inet_aton(host) + bytes(8)


def done(name, sock, *arguments):
    count = getattr(LIBC, name)(sock.fileno(), *arguments)
    return count if count >= 0 else errno.errorcode[ctypes.get_errno()]


def to(sock, where, length=16):
    return done("sendto", sock, b"text", 4, 0, where, length)


for kind in (STREAM, DATAGRAM):
    for host in ("0.0.0.0", HOST):
        for length in (16, 28, 8, 2):
            sock = socket.socket(V4, kind)
            answer = done("bind", sock, address(host, 0), length)
            print("bind", kind.name, host.replace(HOST, "host"), length, answer, sock.getsockname()[0], sock.getsockname()[1] > 0, flush=True)
    sock = socket.socket(V6, kind)
    print("bind IPv6", kind.name, done("bind", sock, address("0.0.0.0", 0) + bytes(12), 28), flush=True)

hears = socket.socket(type=DATAGRAM)
hears.bind((HOST, 0))
hears.settimeout(5)
port = hears.getsockname()[1]
for is_connected in (False, True):
    sock = socket.socket(type=DATAGRAM)
    if is_connected:
        sock.connect((HOST, 9))
    print("sendto", is_connected, to(sock, address(HOST, port)), hears.recv(10), flush=True)
    print([to(sock, address(HOST, 0)), to(sock, bytes(16)), *(to(sock, address(HOST, port), length) for length in (15, 8, 2))], flush=True)
    print([to(sock, address(HOST, port, family)) for family in (1, 99)], flush=True)
sock = socket.socket(V6, DATAGRAM)
print("sendto IPv6", [to(sock, address(HOST, port) + bytes(12), length) for length in (16, 28)], flush=True)
sock.close()
