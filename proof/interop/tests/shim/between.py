"""recvmmsg of two messages that come one after the other, and a handler that runs before the first or between them. Argument: the address."""
import ctypes
import os
import signal
import socket
import sys
import threading
import time

sys.dont_write_bytecode = True
from conversing import LIBC, many

HOST = sys.argv[1]
STEP = 0.4
SA_RESTART, MSG_WAITFORONE = 0x10000000, 0x10000
HANDLER = ctypes.CFUNCTYPE(None, ctypes.c_int)
nothing = HANDLER(lambda _: None)


class Action(ctypes.Structure):
    _fields_ = [("handler", HANDLER), ("mask", ctypes.c_ulong * 16), ("flags", ctypes.c_int), ("restorer", ctypes.c_void_p)]


def waits(kind, flags, at):
    if kind == socket.SOCK_STREAM:
        listener = socket.create_server((HOST, 0))
        two = socket.create_connection(listener.getsockname())
        one = listener.accept()[0]
    else:
        one, two = socket.socket(type=kind), socket.socket(type=kind)
        one.bind((HOST, 0))
        two.connect(one.getsockname())

    def send():
        for text in (b"abc", b"def"):
            time.sleep(2 * STEP)
            two.send(text)

    sender = threading.Thread(target=send)
    # The handler is this thread's.
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGALRM])
    sender.start()
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGALRM])
    messages, kept = many([bytes(3)] * 2)
    signal.setitimer(signal.ITIMER_REAL, at)
    count = LIBC.recvmmsg(one.fileno(), messages, 2, flags, None)
    sender.join()
    return count


# All at once, each in a process of its own, which says how many it got.
cases = [(restarts, kind, flags, at) for restarts in (SA_RESTART, 0) for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM)
         for flags in (0, MSG_WAITFORONE) for at in (0, 1, 3)]
numbers = []
for restarts, kind, flags, at in cases:
    number = os.fork()
    if not number:
        LIBC.sigaction(signal.SIGALRM, ctypes.byref(Action(nothing, flags=restarts)), None)
        os._exit(1 + waits(kind, flags, at * STEP))
    numbers.append(number)
for (restarts, kind, flags, at), number in zip(cases, numbers):
    print("restarts" if restarts else "ends", kind.name, "for one" if flags else "for all", "at step", at, os.waitstatus_to_exitcode(os.waitpid(number, 0)[1]) - 1)
