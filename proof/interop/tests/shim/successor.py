"""The daemon dies and another one follows, twice: what a program had stays dead, and what it makes from then on is the new one's."""
import errno, os, select, socket, sys, threading, time

HOST, FOLDER = sys.argv[1:]
GONE = (errno.ENETDOWN, errno.ECONNRESET, errno.EPIPE)


def wait_for(name):
    while not os.path.exists(os.path.join(FOLDER, name)):
        time.sleep(0.005)


def is_told(call):
    try:
        call()
    except OSError as error:
        return error.errno in GONE or print(error, file=sys.stderr)
    print("it went on", file=sys.stderr)


def pair():
    listener = socket.create_server((HOST, 0))
    one = socket.create_connection(listener.getsockname())
    two, _ = listener.accept()
    return one, two, listener


def speak(one, two, text):
    one.sendall(text)
    assert two.recv(len(text), socket.MSG_WAITALL) == text


def hangs_up(events, sockets):
    told = dict(events)
    return all(told.get(it.fileno(), 0) & select.EPOLLHUP for it in sockets)


# A supervisor looks at nothing itself: its children find out that the daemon they have of it is gone. Another waits for sockets that it is given.
lines = [socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET) for _ in range(2)]
of_supervisor = pair()
of_supervisor[1].sendall(b"unread")
supervisor = os.fork()
if supervisor == 0:
    while line := lines[0][1].recv(9):
        child = os.fork()
        if child == 0:
            try:
                one, two, _ = pair()
                speak(one, two, b"a child")
                one.settimeout(2), of_supervisor[1].settimeout(2)
                right = is_told(lambda: of_supervisor[1].recv(1)) and is_told(lambda: of_supervisor[0].send(b"x"))
            except OSError as error:
                right = print("a supervisor's child:", error, file=sys.stderr)
            os._exit(0 if right else 1)
        lines[0][1].send(b"%d" % os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    os._exit(0)
receiver = os.fork()
if receiver == 0:
    mine = pair()
    lines[1][1].send(b"ready")
    while True:
        text, fds, _, _ = socket.recv_fds(lines[1][1], 9, 1)
        if not text:
            os._exit(0)
        given = socket.socket(fileno=fds[0])
        given.sendall(b"given")
        given.close()
assert lines[1][0].recv(9) == b"ready"
everything = select.epoll()
counts = []
for round in range(3):
    a, b, listener = pair()
    speak(a, b, b"x" * 100_000)
    blocked, silent, blocked_listener = pair()
    unread, sender, unread_listener = pair()
    sender.sendall(b"unread")
    bound = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    bound.bind((HOST, 0))
    bound.sendto(b"to itself", bound.getsockname())
    assert bound.recv(20) == b"to itself"
    fresh, unbound = socket.socket(), socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    # It waits to be told to the daemon.
    fresh.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for it in (b, unread):
        everything.register(it, select.EPOLLIN)
    told = []

    def read():
        told.append(is_told(lambda: blocked.recv(1)))

    def wait():
        # It waits through the death, and for what comes behind it.
        while not (events := everything.poll(20)) or any(event & select.EPOLLHUP for _, event in events):
            time.sleep(0.05)
        told.append(events)

    reader = threading.Thread(target=read)
    reader.start()
    open(os.path.join(FOLDER, f"ready{round}"), "w").close()
    if round == 2:
        for ours, _ in lines:
            ours.shutdown(socket.SHUT_RDWR)
        assert [os.waitpid(it, 0)[1] for it in (supervisor, receiver)] == [0, 0]
        blocked.shutdown(socket.SHUT_RDWR)
        silent.close()
        reader.join()
        break
    while True:
        try:
            socket.socket().close()
        except OSError as error:
            assert error.errno == errno.ENETDOWN, error
            break
        time.sleep(0.005)
    # One that is made while there is none finds the next, too.
    child = os.fork()
    if child == 0:
        wait_for(f"followed{round + 1}")
        try:
            one, two, _ = pair()
            speak(one, two, b"a child")
            right = is_told(lambda: a.send(b"x")) and is_told(lambda: fresh.connect((HOST, 9)))
        except OSError as error:
            right = print("child:", error, file=sys.stderr)
        os._exit(0 if right else 1)
    wait_for(f"followed{round + 1}")
    c, d, next_listener = pair()
    speak(c, d, b"y" * 100_000)
    everything.register(d, select.EPOLLIN)
    c.sendall(b"new")
    # They come in as many looks as it takes where others use the CPUs.
    events, end = [], time.monotonic() + 10
    all_are_told = lambda: hangs_up(events, (b, unread)) and (d.fileno(), select.EPOLLIN) in events
    while not all_are_told() and time.monotonic() < end:
        events += everything.poll(2)
    assert all_are_told(), events
    assert d.recv(9) == b"new"
    reader.join(2)
    assert told == [True], told
    there = ("127.0.0.1", 9)
    for call in (
        lambda: a.send(b"x"),
        lambda: a.recv(1),
        lambda: b.send(b"x"),
        lambda: bound.sendto(b"x", bound_to),
        lambda: bound.recv(1),
        lambda: unbound.sendto(b"x", (HOST, 9)),
        lambda: fresh.connect((HOST, 9)),
        lambda: fresh.listen(),
        lambda: fresh.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 0) or fresh.bind((HOST, 0)),
        lambda: listener.accept(),
    ):
        bound_to = (HOST, 9)
        assert is_told(call)
    ready = select.poll()
    for it in (a, bound):
        ready.register(it, select.POLLIN)
    # Of the datagram socket that has been told.
    assert [fd for fd, _ in ready.poll(0)] == [a.fileno()]
    another = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    another.bind((HOST, 0))
    another.sendto(b"datagram", another.getsockname())
    assert another.recv(20) == b"datagram"
    for it in (b, unread, d):
        everything.unregister(it)
    # What was is closed, and what is goes on.
    old = (a, b, listener, blocked, silent, blocked_listener, unread, sender, unread_listener)
    for it in (*old, bound, fresh, unbound):
        it.close()
    speak(d, c, b"z" * 100_000)
    lines[0][0].send(b"go")
    assert lines[0][0].recv(9) == b"0"
    socket.send_fds(lines[1][0], [b"one"], [c.fileno()])
    assert d.recv(5, socket.MSG_WAITALL) == b"given"
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    for it in (c, d, next_listener, another):
        it.close()
    # Sockets that are closed leave nothing behind, and neither does a daemon.
    counts.append(len(os.listdir("/proc/self/fd")))
assert max(counts) - min(counts) < 8, counts
