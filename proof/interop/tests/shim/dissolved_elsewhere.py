"""A process ends the connection of a socket that another one has, too (AF_UNSPEC, shutdown(2) of one that connects): the other one is told, and what
further connections carry does not come to it, nor does it write there. Prints what it sees; the kernel's is to be the same."""
import ctypes
import errno
import os
import select
import socket
import struct
import sys
import time

HOST, NOBODY = sys.argv[1], sys.argv[1].rsplit(".", 1)[0] + ".99"
LIBC = ctypes.CDLL(None, use_errno=True)
server = socket.create_server((HOST, 0), backlog=50)


def told(call):
    try:
        return call()
    except OSError as error:
        return errno.errorcode[error.errno]


def connection():
    near = socket.create_connection(server.getsockname())
    return near, server.accept()[0]


def dissolve(it):
    return LIBC.connect(it.fileno(), struct.pack("=H14x", socket.AF_UNSPEC), 16)


def looked_at(it):
    """What calls tell that must not be another connection's. All have been made before one is shown: each may be the first to be told of the end."""
    poll = select.poll()
    poll.register(it, select.POLLIN)
    has_ended = bool(poll.poll(1000) and dict(poll.poll(0))[it.fileno()] & select.POLLHUP)
    first = told(lambda: it.recv(99, socket.MSG_DONTWAIT))
    return has_ended, first, told(it.getpeername), told(lambda: it.send(b"stray", socket.MSG_NOSIGNAL | socket.MSG_DONTWAIT))


def others():
    """Further connections, each with a text on its way."""
    made = [connection() for _ in range(6)]
    for _, far in made:
        far.send(b"another's")
    time.sleep(0.05)
    return made


def untouched(made):
    return [(told(lambda: near.recv(99, socket.MSG_DONTWAIT)), told(lambda: far.recv(99, socket.MSG_DONTWAIT))) for near, far in made]


def in_child(work):
    child = os.fork()
    if not child:
        try:
            work()
        finally:
            os._exit(0)
    return child


def ended_by_a_child():
    both, _far = connection()
    os.waitpid(in_child(lambda: print("child:", dissolve(both), flush=True)), 0)
    made = others()
    print("ended by a child:", looked_at(both), untouched(made), flush=True)


def ended_by_the_parent(is_last_of_many):
    both, _far = connection()
    go, tell = os.pipe()

    def looks():
        os.read(go, 1)
        print("ended by the parent: child", looked_at(both), flush=True)

    child = in_child(looks)
    for _ in range(3 if is_last_of_many else 0):
        dissolve(both)
        both.connect(server.getsockname())
        server.accept()
    print("parent:", dissolve(both), flush=True)
    made = others()
    os.write(tell, b".")
    os.waitpid(child, 0)
    print("ended by the parent:", untouched(made), told(lambda: both.connect(server.getsockname())), flush=True)
    server.accept()


def given_up():
    """It connects in a child, which waits, and the parent ends that."""
    both, (hears, says) = socket.socket(), os.pipe()
    child = in_child(lambda: os.write(says, repr(told(lambda: both.connect((NOBODY, 9)))).encode()))
    time.sleep(0.1)
    print("given up:", told(lambda: both.shutdown(socket.SHUT_RDWR)), flush=True)
    poll = select.poll()
    poll.register(hears, select.POLLIN)
    print("who connects:", os.read(hears, 99) if poll.poll(2000) else "waits on", flush=True)
    os.kill(child, 9)
    os.waitpid(child, 0)


ended_by_a_child()
ended_by_the_parent(False)
ended_by_the_parent(True)
given_up()
