"""poll(2) takes as many entries as RLIMIT_NOFILE says, most of which may say nothing, and waits."""
import ctypes
import errno
import os
import resource
import select
import socket
import sys
import threading
import time

HOST, MOST = sys.argv[1], 64
LIBC = ctypes.CDLL(None, use_errno=True)


class Entry(ctypes.Structure):
    _fields_ = [("fd", ctypes.c_int), ("events", ctypes.c_short), ("revents", ctypes.c_short)]


def poll(entries, limit):
    count = LIBC.poll(entries, len(entries), limit)
    return count if count >= 0 else errno.errorcode[ctypes.get_errno()]


listener = socket.create_server((HOST, 0))
pairs = []
for _ in range(3):
    client = socket.create_connection(listener.getsockname())
    pairs.append((client, listener.accept()[0]))
pipe = os.pipe()
resource.setrlimit(resource.RLIMIT_NOFILE, (MOST, MOST))
wanted = [*(client.fileno() for client, _ in pairs), listener.fileno(), pipe[0]]
for length in MOST - 2, MOST - 1, MOST, MOST + 1:
    entries = (Entry * length)()
    for at, entry in enumerate(entries):
        entry.fd, entry.events = (at if at in wanted else -1), select.POLLIN
    print(length, "in vain", poll(entries, 100), flush=True)
    if length <= MOST:
        for name, write, fd in (("stream", lambda: pairs[2][1].send(b"x"), pairs[2][0].fileno()), ("pipe", lambda: os.write(pipe[1], b"x"), pipe[0])):
            threading.Timer(0.2, write).start()
            print(length, name, poll(entries, 60000), [(wanted.index(entry.fd), entry.revents) for entry in entries if entry.revents], flush=True)
            os.read(fd, 1) if fd == pipe[0] else pairs[2][0].recv(1)
entries = (Entry * MOST)()
for at, entry in enumerate(entries):
    entry.fd, entry.events = wanted[at % len(wanted)], select.POLLIN
print("all asked", poll(entries, 100), flush=True)
