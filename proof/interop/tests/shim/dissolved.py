# A thread sleeps in a call on a connection that another thread ends (connect(2) with AF_UNSPEC) or closes: it hears of the one at once, and
# the connections that come after find nobody of it. Prints what is told; the kernel's is to be the same.
import ctypes
import errno
import os
import socket
import struct
import sys
import threading
import time

HOST = sys.argv[1]
libc = ctypes.CDLL(None, use_errno=True)
server = socket.create_server((HOST, 0), backlog=64)


def pair():
    ours = socket.create_connection(server.getsockname())
    far, _ = server.accept()
    return ours, far


def dissolve(one):
    address = struct.pack("H14x", socket.AF_UNSPEC)
    return libc.connect(one.fileno(), address, len(address))


class Call(threading.Thread):
    def __init__(self, what):
        super().__init__()
        self.what, self.told = what, None
        self.start()

    def run(self):
        try:
            self.told = repr(self.what())
        except OSError as error:
            self.told = errno.errorcode.get(error.errno, "over")
        self.end = time.monotonic()


# It has slept a little, and for long.
for wait in [0.05, 0.6]:
    for name in ["recv", "send"]:
        ours, far = pair()
        call = Call(lambda: ours.recv(9) if name == "recv" else ours.sendall(bytes(64 << 20)))
        time.sleep(wait)
        begun = time.monotonic()
        print("dissolved in", name, dissolve(ours), end=" ")
        call.join()
        # What was sent before decides which of the two a write is told.
        told = "ended" if name == "send" and call.told in ["EPIPE", "ECONNRESET"] else call.told
        print(told, "at once:", call.end - begun < 0.1)
        # The socket is as good as new.
        ours.connect(server.getsockname())
        other, _ = server.accept()
        ours.send(b"again")
        print("and then", other.recv(9))
        for it in [ours, far, other]:
            it.close()

# Where somebody polls whose descriptor is closed: whoever sleeps on one of the next connections is woken.
for round in range(3):
    ours, far = pair()
    ours.settimeout(1)
    call = Call(lambda: ours.recv(9))
    time.sleep(0.02)
    os.close(ours.detach())
    far.close()
    time.sleep(0.1)
    pairs = [pair() for _ in range(6)]
    call.join()
    slow = 0
    for one, other in pairs:
        one.settimeout(5)
        took = []
        # One may be late because the machine is busy.
        for _ in range(4):
            echo = threading.Timer(0.03, lambda: other.send(b"x"))
            echo.start()
            begun = time.monotonic()
            one.recv(1)
            took.append(time.monotonic() - begun)
            echo.join()
        slow += min(took) > 0.12
    print("closed under poll, and then slow:", slow)
    for it in [it for both in pairs for it in both]:
        it.close()
server.close()
