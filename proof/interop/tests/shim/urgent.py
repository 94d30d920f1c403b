"""Urgent data (MSG_OOB): a line for each case, which is the kernel's too, and streams that must be whole."""
import array, ctypes, errno, fcntl, os, random, select, socket, sys, termios, threading, time

HOST = sys.argv[1]
OOB, PEEK, ALL, NOW, TRUNC = (
    socket.MSG_OOB, socket.MSG_PEEK, socket.MSG_WAITALL, socket.MSG_DONTWAIT, socket.MSG_TRUNC)
SIOCATMARK = 0x8905
LIBC = ctypes.CDLL(None, use_errno=True)


def pair(inline=False):
    """Two ends that have talked for a while: they are fused if they may be."""
    listener = socket.create_server((HOST, 0))
    if inline:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_OOBINLINE, 1)
    client = socket.create_connection(listener.getsockname())
    server, _ = listener.accept()
    listener.close()
    for _ in range(20):
        for one, other in ((client, server), (server, client)):
            one.sendall(b"?")
            assert other.recv(1) == b"?"
        time.sleep(0.001)
    return client, server


def tried(call, *arguments):
    try:
        return call(*arguments)
    except OSError as error:
        return errno.errorcode[error.errno]


def events(sock, wanted=select.POLLIN | select.POLLPRI | select.POLLRDHUP):
    poll = select.poll()
    poll.register(sock, wanted)
    return dict(poll.poll(0)).get(sock.fileno(), 0)


def number(sock, request):
    value = array.array("i", [-1])
    fcntl.ioctl(sock, request, value)
    return value[0]


def until(what):
    deadline = time.monotonic() + 10
    while not what():
        assert time.monotonic() < deadline, "in vain"
        time.sleep(0.001)


def urgent(sender, receiver, text):
    """Sends it, and waits until all of it is there."""
    sender.send(text, OOB)
    until(lambda: events(receiver) & select.POLLPRI)


def there(receiver, text):
    """Waits until this is the end of what can be read."""
    until(lambda: (got := tried(receiver.recv, 99, PEEK | NOW)) != "EAGAIN" and got.endswith(text))


def state(sock):
    """What can be asked of it."""
    return events(sock), number(sock, SIOCATMARK), LIBC.sockatmark(sock.fileno()), number(sock, termios.FIONREAD)


def part(sock):
    """What is read up to the mark, in as many calls as it takes, or to the end of what is there."""
    parts = []
    while True:
        got = tried(sock.recv, 99, NOW)
        if not isinstance(got, bytes):
            return b"".join(parts) or got
        parts.append(got)
        if got == b"" or number(sock, SIOCATMARK):
            return b"".join(parts)


def apart():
    a, b = pair()
    yield "none", tried(a.recv, 1, OOB), state(a)
    urgent(b, a, b"abcD")
    yield "there", state(a)
    yield "before", part(a), state(a), tried(a.recv, 9, NOW)
    yield "passed by that", state(a), tried(a.recv, 1, OOB)
    urgent(b, a, b"efG")
    yield "ahead of the text", tried(a.recv, 1, OOB), state(a), tried(a.recv, 1, OOB)
    yield "text", part(a), state(a)
    b.send(b"hij")
    there(a, b"hij")
    yield "behind it", state(a), part(a), state(a)
    urgent(b, a, b"K")
    yield "alone", state(a), tried(a.recv, 1, OOB), state(a), tried(a.recv, 1, NOW), state(a)


def passed():
    a, b = pair()
    urgent(b, a, b"abcD")
    b.send(b"efg")
    until(lambda: number(a, termios.FIONREAD) == 3)
    yield "before", part(a)
    there(a, b"efg")
    yield "at the mark", state(a)
    yield "behind", part(a), state(a), tried(a.recv, 1, OOB)
    b.close()
    until(lambda: events(a) & select.POLLRDHUP)
    yield "end", tried(a.recv, 1, OOB), a.recv(1)


def inline():
    a, b = pair(inline=True)
    a.setsockopt(socket.SOL_SOCKET, socket.SO_OOBINLINE, 1)
    urgent(b, a, b"abcD")
    yield "there", state(a), tried(a.recv, 1, OOB)
    yield "before", part(a), state(a)
    b.send(b"efg")
    there(a, b"efg")
    yield "behind", state(a), part(a), state(a)
    urgent(a, b, b"xY")
    yield "inherited", state(b), [b.getsockopt(socket.SOL_SOCKET, socket.SO_OOBINLINE) for b in (a, b)]
    a, b = pair()
    urgent(b, a, b"abcD")
    a.setsockopt(socket.SOL_SOCKET, socket.SO_OOBINLINE, 1)
    yield "later", state(a), part(a), tried(a.recv, 1, OOB), part(a), state(a)
    urgent(b, a, b"E")
    a.setsockopt(socket.SOL_SOCKET, socket.SO_OOBINLINE, 0)
    yield "and not", state(a), tried(a.recv, 1, OOB), state(a), tried(a.recv, 1, NOW)


def several():
    a, b = pair()
    urgent(b, a, b"aB")
    b.send(b"cD", OOB)
    until(lambda: a.recv(1, OOB | PEEK) == b"D")
    yield "the last counts", state(a), part(a), tried(a.recv, 1, OOB), state(a)
    a, b = pair()
    urgent(b, a, b"aB")
    yield "taken", a.recv(1, OOB)
    b.send(b"cD", OOB)
    until(lambda: events(a) & select.POLLPRI)
    yield "text again", part(a), tried(a.recv, 1, OOB)
    a, b = pair()
    urgent(b, a, b"aB")
    yield "at the first", a.recv(1), state(a)
    b.send(b"cD", OOB)
    until(lambda: tried(a.recv, 1, OOB | PEEK) == b"D")
    yield "left out", state(a), part(a), tried(a.recv, 1, OOB), tried(a.recv, 1, NOW), state(a)


def flags():
    a, b = pair()
    urgent(b, a, b"abcD")
    yield "peek", a.recv(9, OOB | PEEK), a.recv(1, OOB | PEEK), a.recv(9, PEEK), state(a)
    yield "nothing", a.recv(0, OOB), tried(a.recv, 1, OOB)
    yield "all", a.recv(9, ALL), state(a)
    b.send(b"efg")
    there(a, b"efg")
    yield "peek over it", a.recv(9, PEEK), state(a)
    yield "all behind", a.recv(3, ALL), state(a)
    urgent(b, a, b"hI")
    yield "message", a.recvmsg(9, 0, OOB | NOW)[0::2], a.recvmsg(9, 0, NOW)[0::2]
    urgent(b, a, b"J")
    yield "cut", a.recvmsg(0, 0, OOB)[0::2], tried(a.recv, 1, OOB)
    urgent(b, a, b"K")
    yield "unseen", len(a.recv(9, OOB | TRUNC)), state(a)
    yield "empty", b.send(b"", OOB)
    time.sleep(0.05)
    yield "no mark of it", tried(a.recv, 1, OOB)
    a.shutdown(socket.SHUT_RD)
    yield "shut", tried(a.recv, 1, OOB), tried(a.send, b"x", OOB)
    b.shutdown(socket.SHUT_WR)
    yield "closed", tried(b.send, b"x", OOB | socket.MSG_NOSIGNAL)
    fresh, datagrams = socket.socket(), socket.socket(type=socket.SOCK_DGRAM)
    listener = socket.create_server((HOST, 0))
    for sock in fresh, listener, datagrams:
        sock.setblocking(False)
        yield "others", tried(sock.recv, 1, OOB), tried(sock.send, b"x", OOB | socket.MSG_NOSIGNAL)
        yield "others", tried(number, sock, SIOCATMARK), LIBC.sockatmark(sock.fileno())


def waiting():
    a, b = pair()
    later = lambda text: threading.Timer(0.1, lambda: b.send(text, OOB)).start()
    later(b"A")
    yield "select", [len(it) for it in select.select([a], [], [a], 5)], a.recv(1, OOB)
    yield "select again", [len(it) for it in select.select([a], [], [a], 0.05)]
    poll = select.poll()
    poll.register(a, select.POLLPRI)
    later(b"B")
    yield "poll", [event for _, event in poll.poll(5000)], a.recv(1, OOB)
    for edge in 0, select.EPOLLET:
        epoll = select.epoll()
        epoll.register(a, select.EPOLLPRI | edge)
        yield "nothing", epoll.poll(0.05)
        later(b"C")
        yield "epoll", [event for _, event in epoll.poll(5)], [event for _, event in epoll.poll(0.05)]
        yield "left there", a.recv(1, OOB | PEEK)
        later(b"D")
        until(lambda: a.recv(1, OOB | PEEK) == b"D")
        yield "anew", [event for _, event in epoll.poll(5)], a.recv(1, OOB), epoll.poll(0.05)
        epoll.close()
    later(b"xyzE")
    yield "read", a.recv(99, ALL), tried(a.recv,1, OOB), state(a)


def far_apart():
    """The mark lies where it was set, however much is before and behind it."""
    a, b = pair()
    before, behind = os.urandom(20_000), os.urandom(20_000)
    b.sendall(before), b.send(b"!", OOB), b.sendall(behind)
    until(lambda: events(a) & select.POLLPRI)
    yield "near", part(a) == before
    until(lambda: events(a) & select.POLLIN)
    yield "near", state(a), a.recv(1, OOB)
    b.close()
    yield "near", b"".join(iter(lambda: a.recv(99_999), b"")) == behind
    a, b = pair()
    before, behind = os.urandom(300_000), os.urandom(300_000)
    sender = threading.Thread(target=lambda: (b.sendall(before), b.send(b"!", OOB), b.sendall(behind), b.close()))
    sender.start()
    got, marks = bytearray(), []
    while True:
        text = a.recv(70_000)
        got += text
        if number(a, SIOCATMARK):
            marks.append(len(got))
            until(lambda: events(a) & select.POLLPRI)
            marks.append(a.recv(1, OOB))
        if not text:
            break
    sender.join()
    # Who stands at the mark before that is announced reads on without noticing.
    yield "far apart", bytes(got) == before + behind, marks in ([], [300_000, b"!"])


def whole():
    """Text and urgent text by turns: inline, nothing is lost or moved."""
    a, b = pair(inline=True)
    a.setsockopt(socket.SOL_SOCKET, socket.SO_OOBINLINE, 1)
    chance = random.Random(7)
    texts = {}

    def send(sock):
        pieces = []
        for _ in range(400):
            text = os.urandom(chance.choice([1, 2, 100, 5000]))
            done = 0
            while done < len(text):
                done += sock.send(text[done:], chance.choice([0, 0, 0, OOB]))
            pieces.append(text)
            if chance.random() < 0.1:
                time.sleep(0.002)
        texts[sock] = b"".join(pieces)
        sock.shutdown(socket.SHUT_WR)

    def receive(sock):
        texts[sock, "got"] = b"".join(iter(lambda: sock.recv(chance.choice([1, 50, 9999])), b""))

    threads = [threading.Thread(target=act, args=(sock,)) for sock in (a, b) for act in (send, receive)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    yield "whole", texts[a] == texts[b, "got"], texts[b] == texts[a, "got"]


for case in apart, passed, inline, several, flags, waiting, far_apart, whole:
    if len(sys.argv) > 2 and case.__name__ not in sys.argv[2:]:
        continue
    for line in case():
        print(case.__name__, *line, flush=True)
