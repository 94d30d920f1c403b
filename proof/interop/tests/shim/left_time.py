"""select(2) and pselect6(2) leave in the timeout what was not waited, also when a signal ends them."""
import ctypes
import errno
import signal
import socket
import sys
import time

HOST = sys.argv[1]
LIBC = ctypes.CDLL(None, use_errno=True)
PSELECT6 = {"x86_64": 270, "aarch64": 72}[__import__("platform").machine()]


class Time(ctypes.Structure):
    _fields_ = [("seconds", ctypes.c_long), ("part", ctypes.c_long)]


def select(sock, left):
    return LIBC.select(sock.fileno() + 1, one(sock), None, None, ctypes.byref(left))


def pselect6(sock, left):
    return LIBC.syscall(PSELECT6, sock.fileno() + 1, one(sock), None, None, ctypes.byref(left), None)


def one(sock):
    sets = (ctypes.c_ulong * 16)()
    sets[sock.fileno() // 64] |= 1 << sock.fileno() % 64
    return sets


listener = socket.create_server((HOST, 0))
client = socket.create_connection(listener.getsockname())
server = listener.accept()[0]
datagrams = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
datagrams.bind((HOST, 0))
signal.signal(signal.SIGALRM, lambda *_: None)
for call in select, pselect6:
    for name, sock in (("stream", client), ("listener", listener), ("datagrams", datagrams)):
        signal.setitimer(signal.ITIMER_REAL, 0.05, 0.05)
        left = Time(1, 0)
        begun, ends = time.monotonic(), 0
        # The usual loop of programs for Linux.
        while (count := call(sock, left)) < 0 and ctypes.get_errno() == errno.EINTR and time.monotonic() < begun + 30:
            ends += 1
        signal.setitimer(signal.ITIMER_REAL, 0)
        print(call.__name__, name, count, ends > 0, left.seconds, left.part, time.monotonic() < begun + 30, flush=True)
