# A forked child waits at its parent's epoll set, in which a connection is that is closed by then: the others are told of, and the child goes
# on. Prints what it sees; the kernel's is to be the same.
import errno
import os
import select
import socket
import sys

HOST = sys.argv[1]
server = socket.create_server((HOST, 0))


def told(call):
    try:
        return repr(call())
    except OSError as error:
        return errno.errorcode.get(error.errno, str(error))


def pair():
    return socket.create_connection(server.getsockname()), server.accept()[0]


def at_its_number(file):
    """Another file comes in the place of a closed connection."""
    number = file.detach()
    os.close(number)
    null = os.open("/dev/null", os.O_RDONLY)
    if null != number:
        os.dup2(null, number)
        os.close(null)


def another(file):
    """A connection of the child's own does."""
    number = file.detach()
    os.close(number)
    new = socket.socket()
    if new.fileno() != number:
        os.dup2(new.fileno(), number)
        new.close()
    else:
        new.detach()


def inherited(name, before, after):
    (low, _far), (high, far) = pair(), pair()
    assert low.fileno() < high.fileno()
    given = select.epoll()
    for it in [low, high]:
        given.register(it, select.EPOLLIN)
    before(low)
    ends = os.pipe()
    child = os.fork()
    if child == 0:
        after(low)
        os.read(ends[0], 1)
        print(name, told(lambda: [(fd == high.fileno(), event) for fd, event in given.poll(2)]), told(lambda: high.recv(9)))
        print(name, "goes on", told(lambda: high.send(b"answer")), told(lambda: socket.socket().close()))
        sys.stdout.flush()
        os._exit(0)
    far.send(b"x")
    os.write(ends[1], b"x")
    os.waitpid(child, 0)
    far.settimeout(2)
    print(name, told(lambda: far.recv(9)), flush=True)
    given.close()


def nothing(_):
    pass


inherited("nothing is closed", nothing, nothing)
inherited("closed by the child", nothing, lambda low: low.close())
inherited("closed by the parent", lambda low: low.close(), nothing)
inherited("a file at its number", nothing, at_its_number)
inherited("a file at its number before", at_its_number, nothing)
inherited("another connection at its number", nothing, another)
