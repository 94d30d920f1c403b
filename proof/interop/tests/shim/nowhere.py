"""Calls whose memory is not there (a page that nobody may touch, and none at all), or may not be written.

nowhere.py HOST
"""
import ctypes
import mmap
import os
import socket
import sys
import time

HOST = sys.argv[1]
LIBC = ctypes.CDLL(None, use_errno=True)
LIBC.mmap.restype = ctypes.c_void_p
POINTER = ctypes.c_void_p
NO_TIME = (ctypes.c_long * 2)()
PRIVATE = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS


def pages(access):
    # In the midst of a megabyte that is like it, so that nothing else is near.
    return LIBC.mmap(None, ctypes.c_size_t(1 << 20), access, PRIVATE, -1, ctypes.c_long(0)) + (1 << 19)


untouchable, constant = pages(0), pages(mmap.PROT_READ)
# Neither a program nor its memory begins there.
nowhere = 1 << 40
listener = socket.create_server((HOST, 0))
listener.setblocking(False)
one = socket.create_connection(listener.getsockname())
time.sleep(0.1)
other = listener.accept()[0]
other.send(b"hello")
datagrams = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
datagrams.bind((HOST, 0))
datagrams.connect(datagrams.getsockname())
datagrams.send(b"hello")
time.sleep(0.1)
fd, set_, fresh = one.fileno(), LIBC.epoll_create1(0), [socket.socket() for _ in range(2)]
LIBC.epoll_ctl(set_, 1, datagrams.fileno(), (ctypes.c_char * 12)(1))
len16 = ctypes.byref(ctypes.c_int(16))


def reads(at):
    """What a call would read there."""
    at = POINTER(at)
    return {
        "send": lambda: LIBC.send(fd, at, 5, 0),
        "write": lambda: LIBC.write(fd, at, 5),
        "writev": lambda: LIBC.writev(fd, at, 1),
        "sendto": lambda: LIBC.sendto(datagrams.fileno(), at, 5, 0, None, 0),
        "sendto whom": lambda: LIBC.sendto(datagrams.fileno(), b"x", 1, 0, at, 16),
        "sendmsg": lambda: LIBC.sendmsg(fd, at, 0),
        "bind": lambda: LIBC.bind(fresh[0].fileno(), at, 16),
        "connect": lambda: LIBC.connect(fresh[1].fileno(), at, 16),
        "setsockopt": lambda: LIBC.setsockopt(fd, socket.SOL_SOCKET, socket.SO_KEEPALIVE, at, 4),
        "epoll_ctl": lambda: LIBC.epoll_ctl(set_, 1, fd, at),
    }


def writes(at):
    """What a call would write there."""
    at = POINTER(at)
    return {
        "poll": lambda: LIBC.poll(at, 1, 0),
        "select": lambda: LIBC.select(fd + 1, at, None, None, NO_TIME),
        "epoll_wait": lambda: LIBC.epoll_wait(set_, at, 1, 1000),
        "getsockname": lambda: LIBC.getsockname(fd, at, len16),
        "getpeername": lambda: LIBC.getpeername(fd, len16, at),
        "getsockopt": lambda: LIBC.getsockopt(fd, socket.SOL_SOCKET, socket.SO_TYPE, at, len16),
        "ioctl": lambda: LIBC.ioctl(fd, 0x541B, at),
        "ioctl that reads": lambda: LIBC.ioctl(fd, 0x5421, at),
    }


def fills(at):
    at = POINTER(at)
    return {
        "recvmsg": lambda: LIBC.recvmsg(fd, at, 0),
        "recv": lambda: LIBC.recv(fd, at, 5, 0),
        "read": lambda: LIBC.read(fd, at, 5),
        "readv": lambda: LIBC.readv(fd, at, 1),
        "recvfrom": lambda: LIBC.recvfrom(datagrams.fileno(), at, 5, socket.MSG_DONTWAIT, None, None),
    }


for name, at, kinds in (
    ("untouchable", untouchable, (reads, writes, fills)), ("nowhere", nowhere, (reads, writes, fills)), ("constant", constant, (writes,)),
):
    for kind in kinds:
        for call, ask in kind(at).items():
            # The kernel's is gone when it was not to be told.
            datagrams.send(b"hello")
            heard, says = os.pipe()
            child = os.fork()
            if not child:
                result = ask()
                os.write(says, (os.strerror(ctypes.get_errno()) if result < 0 else str(result)).encode())
                os._exit(0)
            os.close(says)
            status = os.waitpid(child, 0)[1]
            print(name, call, os.read(heard, 99).decode() or status, flush=True)
            os.close(heard)
