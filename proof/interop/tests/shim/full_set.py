"""A set takes sockets, and tells of them, where descriptors have run out since it was made: epoll_ctl(2) makes none.

full_set.py HOST
"""
import errno
import os
import resource
import select
import socket
import sys
import time

HOST = sys.argv[1]


def told(what, act):
    try:
        print(what, act(), flush=True)
    except OSError as error:
        print(what, errno.errorcode[error.errno], flush=True)


def tells(a_set, wanted):
    """What it tells, which may come one by one."""
    seen, deadline = {}, time.monotonic() + 10
    while seen != wanted and time.monotonic() < deadline:
        seen |= dict(a_set.poll(1))
    return [seen.get(one.fileno(), 0) for one in (listener, client)]


resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
# One before the first socket, and others.
sets = [select.epoll()]
listener = socket.create_server((HOST, 0))
client = socket.socket()
client.setblocking(False)
sets += [select.epoll() for _ in range(2)]
fillers = []
try:
    while True:
        fillers.append(os.dup(1))
except OSError as error:
    print(errno.errorcode[error.errno])
for a_set in sets:
    told("listener", lambda: a_set.register(listener, select.EPOLLIN))
told("connect", lambda: client.connect(listener.getsockname()))
for a_set in sets:
    told("tells", lambda: tells(a_set, {listener.fileno(): select.EPOLLIN}))
for a_set in sets:
    told("client", lambda: a_set.register(client, select.EPOLLIN | select.EPOLLOUT))
    told("tells", lambda: tells(a_set, {listener.fileno(): select.EPOLLIN, client.fileno(): select.EPOLLOUT}))
for filler in fillers:
    os.close(filler)
server = listener.accept()[0]
server.sendall(b"text")
for a_set in sets:
    told("tells", lambda: tells(a_set, {client.fileno(): select.EPOLLIN | select.EPOLLOUT}))
