# A forked child closes its parent's epoll set, looks at it, or goes on with it before it has waited there: the parent is told of all
# that comes as before, and so is the child. Prints what both see; the kernel's is to be the same.
import errno
import os
import select
import socket
import subprocess
import sys
import time

HOST = sys.argv[1]
server = socket.create_server((HOST, 0))


def told(call):
    try:
        return repr(call())
    except OSError as error:
        return errno.errorcode.get(error.errno, str(error))


def pair():
    return socket.create_connection(server.getsockname()), server.accept()[0]


def in_child(name, work):
    """Does it in a child, and prints what it says."""
    child = os.fork()
    if child == 0:
        print(name, "child", work(), flush=True)
        os._exit(0)
    os.waitpid(child, 0)


def parent_hears(name, work):
    """The parent waits at its set behind what the child has done, for a connection and for datagrams."""
    (near, far), datagrams = pair(), socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    datagrams.bind((HOST, 0))
    given = select.epoll()
    names = {near.fileno(): "connection", datagrams.fileno(): "datagrams"}
    for fd in names:
        given.register(fd, select.EPOLLIN)
    work(given)
    far.send(b"text")
    print(name, told(lambda: [(names[fd], event) for fd, event in given.poll(2)]))
    near.recv(9)
    datagrams.sendto(b"one", datagrams.getsockname())
    print(name, told(lambda: [(names[fd], event) for fd, event in given.poll(2)]), flush=True)
    given.close()


def closed_in_child(given):
    in_child("closed", given.close)


def all_closed_in_child(_given):
    child = os.fork()
    if child == 0:
        os.closerange(3, 1000)
        os._exit(0)
    os.waitpid(child, 0)


def looked_at_in_child(given):
    looks = select.poll()
    looks.register(given.fileno(), select.POLLIN)
    in_child("looked at", lambda: looks.poll(0))


def helped(_given):
    subprocess.run(["true"], preexec_fn=lambda: None, check=True)


def goes_on(fresh):
    """A child connects and puts that into a set that it has of its parent, in which a listener is."""
    given = select.epoll()
    given.register(server.fileno(), select.EPOLLIN)

    def work():
        one = socket.socket()
        if fresh:
            given.register(one, select.EPOLLOUT)
            one.connect(server.getsockname())
        else:
            one.connect(server.getsockname())
            given.register(one, select.EPOLLOUT)
        # Who has the listener of another hears of it by a message.
        events, until = {}, time.monotonic() + 2
        while len(events) < 2 and time.monotonic() < until:
            events |= dict(given.poll(0.1))
        return [events.get(it.fileno()) for it in (one, server)]

    in_child("fresh" if fresh else "connected", lambda: told(work))
    server.accept()
    given.close()


def moved():
    """A child puts what lies in that set into one of its own, and takes it out there."""
    near, far = pair()
    given = select.epoll()
    given.register(near, select.EPOLLIN)

    def work():
        own = select.epoll()
        own.register(near, select.EPOLLIN)
        before = own.poll(0)
        given.unregister(near)
        far.send(b"text")
        return before, told(lambda: [(fd == near.fileno(), event) for fd, event in own.poll(2)])

    in_child("moved", work)
    given.close()


parent_hears("closed", closed_in_child)
parent_hears("all closed", all_closed_in_child)
parent_hears("looked at", looked_at_in_child)
parent_hears("a helper runs", helped)
goes_on(False)
goes_on(True)
moved()
