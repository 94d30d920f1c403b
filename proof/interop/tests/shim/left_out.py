# poll(2) of one connection in an array with entries that are left out: those say nothing. Prints what each entry says.
import ctypes
import socket
import sys
import threading

HOST = sys.argv[1]
LIBC = ctypes.CDLL(None, use_errno=True)
POLLIN = 1


class Entry(ctypes.Structure):
    _fields_ = [("fd", ctypes.c_int), ("events", ctypes.c_short), ("revents", ctypes.c_short)]


class Time(ctypes.Structure):
    _fields_ = [("seconds", ctypes.c_long), ("nanos", ctypes.c_long)]


server = socket.create_server((HOST, 0))
one = socket.create_connection(server.getsockname())
other, _ = server.accept()


def poll(entries, milliseconds):
    return LIBC.poll(entries, len(entries), milliseconds)


def ppoll(entries, milliseconds):
    return LIBC.ppoll(entries, len(entries), ctypes.byref(Time(0, milliseconds * 1_000_000)), None)


def waits(name, call, milliseconds, sends):
    entries = (Entry * 4)(*[Entry(fd, POLLIN, 0x7FFF) for fd in [-1, one.fileno(), -5, -1]])
    sender = threading.Timer(0.05, other.send, [b"x"])
    if sends:
        sender.start()
    count = call(entries, milliseconds)
    print(name, count, [entry.revents for entry in entries])
    if sends:
        sender.join()
        one.recv(1)


for name, call in [("poll", poll), ("ppoll", ppoll)]:
    waits(f"{name} in time", call, 900, True)
    waits(f"{name} in vain", call, 50, False)
    waits(f"{name} a look", call, 0, False)
