"""A thread sleeps in epoll_wait while another adds a socket that is ready already, arms one again, or asks for something else."""
import os
import select
import socket
import sys
import threading
import time

HOST = sys.argv[1]
listener = socket.create_server((HOST, 0))


def stream():
    one = socket.create_connection(listener.getsockname())
    return one, listener.accept()[0]


def datagrams():
    one = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    one.bind((HOST, 0))
    other = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    other.connect(one.getsockname())
    return one, other


def hears(name, given, change):
    told = []
    thread = threading.Thread(target=lambda: told.append(given.poll(5)), daemon=True)
    thread.start()
    time.sleep(0.04)
    begun = time.monotonic()
    change()
    thread.join(6)
    print(name, len(told[0]) if told else None, "at once" if time.monotonic() - begun < 1 else "late", flush=True)


ONCE = select.EPOLLIN | select.EPOLLONESHOT
for kind, make in (("stream", stream), ("datagrams", datagrams)):
    for others in (False, True):
        given, (reads, writes) = select.epoll(), os.pipe()
        given.register(reads, select.EPOLLIN)
        if others:
            silent = make()
            given.register(silent[0], select.EPOLLIN)
        one, other = make()
        other.send(b"x")
        time.sleep(0.05)
        hears(f"{kind} {others} added", given, lambda: given.register(one, ONCE))
        hears(f"{kind} {others} armed again", given, lambda: given.modify(one, ONCE))
        one.recv(1)
        given.modify(one, select.EPOLLIN)
        hears(f"{kind} {others} to write", given, lambda: given.modify(one, select.EPOLLOUT))
        given.unregister(one)
        two, other = make()
        hears(f"{kind} {others} ready later", given, lambda: (given.register(two, select.EPOLLIN), time.sleep(0.05), other.send(b"x")))
given = select.epoll()
given.register(os.pipe()[0], select.EPOLLIN)
hears("a listener", given, lambda: (given.register(listener, select.EPOLLIN), time.sleep(0.05), socket.create_connection(listener.getsockname())))
