"""Who shuts a socket down that is still connecting gives the attempt up: what calls say of it, and who wait for it, and the next attempt."""
import errno, os, select, socket, sys, threading, time

HOST = sys.argv[1]
# Nobody has these addresses, so an attempt lasts for seconds; each is asked for once.
NOBODIES = ((f"10.0.0.{last}", 9) for last in range(100, 250))
WAYS = (socket.SHUT_RD, socket.SHUT_WR, socket.SHUT_RDWR)
listener = socket.create_server((HOST, 0), backlog=64)
GOOD = listener.getsockname()


def told(call, *arguments):
    try:
        return call(*arguments)
    except OSError as error:
        return errno.errorcode[error.errno]


def ready(one, limit=0):
    poll = select.poll()
    poll.register(one, select.POLLIN | select.POLLOUT | select.POLLRDHUP)
    return [hex(events) for _, events in poll.poll(limit)]


def error_of(one):
    return told(one.getsockopt, socket.SOL_SOCKET, socket.SO_ERROR)


def connecting():
    one = socket.socket()
    one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    one.setblocking(False)
    assert told(one.connect, next(NOBODIES)) == "EINPROGRESS"
    return one


def serves(one):
    one.setblocking(True)
    said = told(one.connect, GOOD)
    other = listener.accept()[0]
    one.sendall(b"x")
    other.sendall(other.recv(1))
    return said, one.recv(1), one.getpeername() == GOOD, one.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def first(one, call, *arguments):
    return [told(call, *arguments) for _ in range(2)] + [error_of(one), ready(one)]


for how in WAYS:
    one = connecting()
    print(how, "before", ready(one), error_of(one), told(one.shutdown, how))
    print(how, "after", ready(one), error_of(one), error_of(one), ready(one))
    print(how, "names", one.getsockname()[0], told(one.getpeername), *serves(one))
for what, call in [
    ("recv", lambda it: it.recv(1)), ("peek", lambda it: it.recv(1, socket.MSG_PEEK)), ("send", lambda it: it.send(b"x", socket.MSG_NOSIGNAL)),
    ("read", lambda it: os.read(it.fileno(), 1)), ("nothing", lambda it: None),
    ("names", lambda it: it.getpeername()), ("bind", lambda it: it.bind((HOST, 0))), ("urgent", lambda it: it.recv(1, socket.MSG_OOB)),
]:
    one = connecting()
    print("then", what, told(one.shutdown, socket.SHUT_RDWR), first(one, call, one))
    print("and again", what, *serves(one))
one = connecting()
print("then listens", told(one.shutdown, socket.SHUT_RDWR), told(one.listen))
one = socket.socket()
one.bind((HOST, 0))
one.setblocking(False)
name = one.getsockname()
print("bound", told(one.connect, next(NOBODIES)), told(one.shutdown, socket.SHUT_WR), one.getsockname() == name, *serves(one))
one = connecting()
copy = one.dup()
print("by a copy", told(copy.shutdown, socket.SHUT_WR), ready(one), error_of(one), error_of(copy), *serves(one), copy.getpeername() == GOOD)


def sleeper(call, *arguments):
    """A thread that sleeps in a call, and the list that is given what the call says."""
    said = []
    thread = threading.Thread(target=lambda: said.append(told(call, *arguments)))
    thread.start()
    # Who waits for the interpreter or for the daemon's word sleeps, too, but not for long.
    times = 0
    while times < 3:
        time.sleep(0.01)
        with open(f"/proc/self/task/{thread.native_id}/stat") as stat:
            times = times + 1 if stat.read().rpartition(")")[2].split()[0] == "S" else 0
    return thread, said


def is_at_once(begun):
    """The calls wait for three seconds, and the machine may be busy."""
    return time.monotonic() - begun < 1.5


def beside(call, one, pause):
    """What a call that sleeps says when the socket is shut down, and whether it was at once."""
    thread, said = sleeper(call, one)
    time.sleep(pause)
    begun = time.monotonic()
    said.append(told(one.shutdown, socket.SHUT_RDWR))
    thread.join()
    return said[::-1] if said[0] is None else said, is_at_once(begun)


def blocking(one):
    one.setblocking(True)
    return one.connect(next(NOBODIES))


def in_epoll(flags):
    def wait(one):
        given = select.epoll()
        given.register(one, select.EPOLLIN | select.EPOLLOUT | flags)
        assert given.poll(0) == []
        return [hex(events) for _, events in given.poll(3)]

    return wait


for pause in (0, 0.4):
    one = socket.socket()
    print("connect", *beside(blocking, one, pause), error_of(one), ready(one), *serves(one)[:2])
    for what, call in [
        ("poll", lambda it: ready(it, 3000)), ("select", lambda it: [len(some) for some in select.select([it], [it], [it], 3)]),
        ("epoll", in_epoll(0)), ("edge", in_epoll(select.EPOLLET)),
    ]:
        one = connecting()
        print(what, *beside(call, one, pause), error_of(one), error_of(one), *serves(one)[:2])
    one = connecting()
    one.setblocking(True)
    print("read", *beside(lambda it: it.recv(1), one, pause), error_of(one))
    one = connecting()
    one.setblocking(True)
    print("write", *beside(lambda it: it.send(b"x"), one, pause), error_of(one))
given = select.epoll()
one = connecting()
given.register(one, select.EPOLLIN | select.EPOLLOUT | select.EPOLLET)
said = [given.poll(0), told(one.shutdown, socket.SHUT_RD)]
said += [[hex(events) for _, events in given.poll(limit)] for limit in (1, 0)]
print("an edge", *said, error_of(one))
for how in WAYS:
    one, other = socket.create_connection(GOOD), listener.accept()[0]
    poll = lambda it: [hex(events) for _, events in polled(it)]

    def polled(it):
        given = select.poll()
        given.register(it, select.POLLIN | select.POLLRDHUP)
        return given.poll(3000)

    thread, said = sleeper(poll, one)
    begun = time.monotonic()
    one.shutdown(how)
    if how == socket.SHUT_WR:
        other.close()
    thread.join()
    print("connected", how, *said, is_at_once(begun))
