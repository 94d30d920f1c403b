"""Two programs whose connection is fused: what a stream is, though its bytes go past the daemon."""
import array, errno, fcntl, os, select, signal, socket, struct, sys, termios, threading, time

HOST = sys.argv[1]


def segments():
    with open("/proc/self/maps") as maps:
        return sum("memfd:firelane" in line for line in maps)


def until(what, seconds=10):
    deadline = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < deadline, "in vain"
        time.sleep(0.001)


def number(sock, request):
    value = array.array("i", [0])
    fcntl.ioctl(sock, request, value)
    return value[0]


def info(sock):
    """Bytes acknowledged and received, and segments sent."""
    words = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256)
    return struct.unpack_from("QQI", words, 120)


class Peer:
    """A connection with another program, which does what it is told: lines of Python, by a pipe."""

    def __init__(self):
        self.told, self.tell = os.pipe()
        self.said, self.say = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            try:
                self.obey()
            except BaseException as error:
                import traceback

                traceback.print_exc()
                os._exit(1)
            os._exit(0)
        os.close(self.told), os.close(self.say)
        address = eval(os.read(self.said, 99))
        self.sock = socket.create_connection(address)
        self.meet()

    def obey(self):
        os.close(self.tell), os.close(self.said)
        listener = socket.create_server((HOST, 0))
        os.write(self.say, repr(listener.getsockname()).encode())
        s, _ = listener.accept()
        listener.close()
        known = {"s": s, **globals()}
        for line in os.fdopen(self.told):
            exec(line, known)
            os.write(self.say, b".")

    def do(self, line):
        os.write(self.tell, line.encode() + b"\n")

    def done(self):
        assert os.read(self.said, 1) == b".", "the peer has failed"

    def does(self, line):
        self.do(line)
        self.done()

    def meet(self):
        """The connection is fused in both directions: TCP has nothing more to send."""
        for _ in range(500):
            before = info(self.sock)
            self.do("s.sendall(s.recv(1))")
            self.sock.sendall(b"!")
            assert self.sock.recv(1) == b"!"
            self.done()
            after = info(self.sock)
            if after == (before[0] + 1, before[1] + 1, before[2]):
                return
            time.sleep(0.001)
        raise AssertionError(f"segments are sent: {before} {after}")

    def end(self):
        self.do("os._exit(0)")
        os.close(self.tell)
        os.close(self.said)
        assert os.waitpid(self.pid, 0)[1] == 0
        self.sock.close()


def test_bytes_both_ways():
    peer = Peer()
    data = os.urandom(1 << 20) * 8
    peer.do("s.sendall(b''.join(iter(lambda: s.recv(70000), b'')))")
    got = []
    reader = threading.Thread(target=lambda: got.extend(iter(lambda: peer.sock.recv(99999), b"")))
    reader.start()
    segments = info(peer.sock)[2]
    peer.sock.sendall(data)
    peer.sock.shutdown(socket.SHUT_WR)
    peer.done()
    assert info(peer.sock)[2] - segments < 20, "it went through the lane"
    peer.does("s.shutdown(socket.SHUT_WR)")
    reader.join()
    assert b"".join(got) == data
    peer.end()


def test_buffers_and_counts():
    peer = Peer()
    sock = peer.sock
    sock.setblocking(False)
    total = 0
    try:
        while True:
            total += sock.send(bytes(100_000))
    except BlockingIOError:
        pass
    sizes = sock.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) + sock.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF)
    assert 100_000 < total <= sizes, (total, sizes)
    assert 0 < number(sock, termios.TIOCOUTQ) < total
    assert select.select([], [sock], [], 0) == ([], [], [])
    peer.does(f"assert number(s, termios.FIONREAD) == {total}")
    peer.does("assert len(s.recv(100000, socket.MSG_WAITALL)) == 100000")
    assert select.select([], [sock], [], 0.05) == ([], [], []), "it is little"
    peer.do(f"time.sleep(0.05), s.recv({total - 100_000}, socket.MSG_WAITALL)")
    assert select.select([], [sock], [], 10)[1] == [sock]
    peer.done()
    assert number(sock, termios.TIOCOUTQ) == 0
    peer.end()


def test_poll_and_epoll():
    peer = Peer()
    sock = peer.sock
    for flags in (0, select.EPOLLET, select.EPOLLONESHOT):
        ready = select.epoll()
        ready.register(sock, select.EPOLLIN | flags)
        assert ready.poll(0) == []
        for text in (b"one", b"two"):
            peer.do(f"time.sleep(0.02), s.sendall({text!r})")
            assert ready.poll(10) == [(sock.fileno(), select.EPOLLIN)]
            assert ready.poll(0) == ([] if flags else [(sock.fileno(), select.EPOLLIN)])
            assert sock.recv(9) == text and ready.poll(0) == []
            peer.done()
            if flags == select.EPOLLONESHOT:
                ready.modify(sock, select.EPOLLIN | flags)
        ready.close()
    poll = select.poll()
    poll.register(sock, select.POLLIN)
    assert poll.poll(0) == []
    peer.do("time.sleep(0.02), s.sendall(b'x')")
    assert poll.poll(10_000) == [(sock.fileno(), select.POLLIN)]
    peer.done()
    assert sock.recv(9) == b"x"
    # Writable by edges: full, and then not.
    edges = select.epoll()
    sock.setblocking(False)
    edges.register(sock, select.EPOLLOUT | select.EPOLLET)
    assert edges.poll(0) == [(sock.fileno(), select.EPOLLOUT)] and edges.poll(0) == []
    sent = 0
    try:
        while True:
            sent += sock.send(bytes(50_000))
    except BlockingIOError:
        pass
    peer.do(f"time.sleep(0.02), s.recv({sent}, socket.MSG_WAITALL)")
    assert edges.poll(10) == [(sock.fileno(), select.EPOLLOUT)]
    peer.done()
    peer.do("time.sleep(0.02), s.shutdown(socket.SHUT_WR)")
    both = select.epoll()
    both.register(sock, select.EPOLLIN | select.EPOLLRDHUP)
    assert both.poll(10) == [(sock.fileno(), select.EPOLLIN | select.EPOLLRDHUP)]
    peer.done()
    peer.end()


def test_times_and_flags():
    peer = Peer()
    sock = peer.sock
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", 0, 30_000))
    try:
        sock.recv(1)
        raise AssertionError("nothing comes")
    except BlockingIOError:
        pass
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", 0, 0))
    peer.does("s.sendall(b'hello')")
    assert sock.recv(2, socket.MSG_PEEK) == b"he" and sock.recv(9, socket.MSG_PEEK) == b"hello"
    peer.do("time.sleep(0.02), s.sendall(b'world')")
    assert sock.recv(10, socket.MSG_WAITALL) == b"helloworld"
    peer.done()
    peer.end()


def test_what_takes_segments():
    peer = Peer()
    sock = peer.sock

    def goes_by_the_lane():
        before = info(sock)[2]
        peer.do("[s.sendall(s.recv(1)) for _ in range(20)]")
        for _ in range(20):
            sock.sendall(b"!")
            assert sock.recv(1) == b"!"
        peer.done()
        return info(sock)[2] - before >= 20

    flags = fcntl.fcntl(sock, fcntl.F_GETFL)
    signal.signal(signal.SIGIO, signal.SIG_IGN)
    fcntl.fcntl(sock, fcntl.F_SETOWN, os.getpid())
    patience = lambda millis: sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, millis)
    signalled = lambda also: fcntl.fcntl(sock, fcntl.F_SETFL, flags | also)
    for set_to, on, off in ((patience, 60_000, 0), (signalled, os.O_ASYNC, 0)):
        for _ in range(3):
            set_to(on)
            until(goes_by_the_lane)
            set_to(off)
            until(lambda: not goes_by_the_lane())
    peer.end()


def test_last_words_and_the_end():
    peer = Peer()
    peer.does("s.sendall(b'last words'), s.close()")
    time.sleep(0.05)
    assert peer.sock.recv(4) == b"last" and peer.sock.recv(99) == b" words" and peer.sock.recv(9) == b""
    peer.end()


def pair(listener):
    """A connection of this program with itself, fused both ways."""
    one = socket.create_connection(listener.getsockname())
    two, _ = listener.accept()
    for _ in range(500):
        before = info(one)
        one.sendall(b"!"), two.sendall(two.recv(1)), one.recv(1)
        if info(one) == (before[0] + 1, before[1] + 1, before[2]):
            return one, two
        time.sleep(0.001)
    raise AssertionError("segments are sent")


def test_the_end_is_there_when_the_call_has_returned():
    listener = socket.create_server((HOST, 0))
    for end in (lambda one: one.shutdown(socket.SHUT_WR), lambda one: one.close()):
        for _ in range(50):
            one, two = pair(listener)
            edges = select.epoll()
            edges.register(two, select.EPOLLIN | select.EPOLLRDHUP | select.EPOLLET)
            one.sendall(b"bye"), end(one)
            assert edges.poll(0) == [(two.fileno(), select.EPOLLIN | select.EPOLLRDHUP)]
            assert [two.recv(9, socket.MSG_DONTWAIT) for _ in range(2)] == [b"bye", b""]
            time.sleep(0.001)
            assert edges.poll(0) == [], "TCP's end is no other one"
            edges.close(), one.close(), two.close()
    # Behind an end there is nobody who could be reset.
    for _ in range(50):
        one, two = pair(listener)
        one.close()
        assert two.recv(9) == b""
        try:
            for _ in range(500):
                two.send(b"x", socket.MSG_NOSIGNAL)
                time.sleep(0.001)
            raise AssertionError("nobody is there")
        except BrokenPipeError:
            two.close()
    listener.close()


def test_unread_text_makes_a_reset():
    peer = Peer()
    peer.sock.sendall(b"unheard")
    peer.does("s.sendall(b'said'), until(lambda: number(s, termios.FIONREAD) == 7), s.close()")
    time.sleep(0.05)
    assert peer.sock.recv(9) == b"said"
    try:
        peer.sock.recv(9)
        raise AssertionError("a reset was expected")
    except ConnectionResetError:
        pass
    peer.end()


def test_text_for_one_who_has_left():
    peer = Peer()
    peer.does("s.close()")
    assert peer.sock.recv(9) == b""
    try:
        for _ in range(500):
            peer.sock.send(b"x", socket.MSG_NOSIGNAL)
            time.sleep(0.001)
        raise AssertionError("nobody is there")
    except BrokenPipeError:
        pass
    peer.end()


def test_halves():
    peer = Peer()
    peer.sock.sendall(b"all")
    peer.sock.shutdown(socket.SHUT_WR)
    peer.does("assert s.recv(9, socket.MSG_WAITALL) == b'all' and s.recv(9) == b''")
    peer.do("time.sleep(0.02), s.sendall(b'still')")
    assert peer.sock.recv(9) == b"still"
    peer.done()
    try:
        peer.sock.send(b"x", socket.MSG_NOSIGNAL)
        raise AssertionError("it is shut")
    except BrokenPipeError:
        pass
    peer.end()


def test_a_child_goes_on():
    peer = Peer()
    child = os.fork()
    if child == 0:
        assert peer.sock.recv(9) == b"to child"
        ready = select.epoll()
        ready.register(peer.sock, select.EPOLLIN)
        peer.sock.sendall(b"from child")
        assert ready.poll(10) and peer.sock.recv(9) == b"again"
        os._exit(0)
    peer.do("s.sendall(b'to child'), s.recv(10, socket.MSG_WAITALL), time.sleep(0.05), s.sendall(b'again')")
    assert os.waitpid(child, 0)[1] == 0
    peer.done()
    peer.do("time.sleep(0.02), s.sendall(b'to parent')")
    assert peer.sock.recv(9) == b"to parent"
    peer.done()
    peer.end()


def test_a_child_waits_for_what_its_parent_has_fused():
    class Later(Peer):
        def meet(self):
            pass

    peer = Later()
    told, tell = os.pipe()
    child = os.fork()
    if child == 0:
        os.read(told, 1)
        ready = select.epoll()
        ready.register(peer.sock, select.EPOLLIN)
        assert ready.poll(10) and peer.sock.recv(9) == b"to child"
        os._exit(0)
    Peer.meet(peer)
    os.write(tell, b".")
    peer.do("time.sleep(0.1), s.sendall(b'to child')")
    assert os.waitpid(child, 0)[1] == 0
    peer.done()
    peer.end()


def test_another_program_gets_the_descriptor():
    peer = Peer()
    code = (
        "import os, select, socket\n"
        "s = socket.socket(fileno=50)\n"
        "s.sendall(b'here')\n"
        "assert s.recv(9) == b'there'\n"
        "e = select.epoll()\n"
        "e.register(s, select.EPOLLIN)\n"
        "s.sendall(b'now')\n"
        "assert e.poll(10) and s.recv(9) == b'end'\n"
    )
    child = os.fork()
    if child == 0:
        os.dup2(peer.sock.fileno(), 50)
        os.execv(sys.executable, [sys.executable, "-c", code])
    peer.do("assert s.recv(4, socket.MSG_WAITALL) == b'here'; s.sendall(b'there'); s.recv(3, socket.MSG_WAITALL); "
            "time.sleep(0.05); s.sendall(b'end')")
    assert os.waitpid(child, 0)[1] == 0
    peer.done()
    peer.end()


def test_many_at_once():
    peers = [Peer() for _ in range(3)]
    ready = select.epoll()
    for peer in peers:
        ready.register(peer.sock, select.EPOLLIN)
        peer.do("[s.sendall(s.recv(100)) for _ in range(300)]")
        peer.sock.sendall(b"x" * 50)
    left = {peer.sock.fileno(): [peer.sock, 300] for peer in peers}
    while left:
        events = ready.poll(10)
        assert events, "everybody sleeps"
        for fd, _ in events:
            sock, rounds = left[fd]
            assert sock.recv(100) == b"x" * 50
            if rounds == 1:
                del left[fd]
            else:
                left[fd][1] -= 1
                sock.sendall(b"x" * 50)
    [peer.done() for peer in peers]
    [peer.end() for peer in peers]


def steal():
    """Takes back whatever is rung on a bell that this process has, its peers' too."""
    for fd in map(int, os.listdir("/proc/self/fd")):
        if os.path.exists(f"/proc/self/fd/{fd}") and os.readlink(f"/proc/self/fd/{fd}") == "anon_inode:[timerfd]":
            fcntl.fcntl(fd, fcntl.F_SETFL, 0)
            threading.Thread(target=lambda fd=fd: all(os.read(fd, 8) for _ in iter(int, 1)), daemon=True).start()


def test_nobody_takes_anothers_wake_ups():
    thief, honest = Peer(), Peer()
    by_set, by_list = select.epoll(), select.poll()
    for ready in (by_set, by_list):
        ready.register(thief.sock, select.POLLIN), ready.register(honest.sock, select.POLLIN)
    waits = (lambda: by_set.poll(9), lambda: by_list.poll(9000))

    def is_told(peer):
        for wait in waits:
            peer.do("time.sleep(0.02), s.sendall(b'!')")
            begun = time.monotonic()
            assert wait() == [(peer.sock.fileno(), select.POLLIN)]
            assert time.monotonic() - begun < 8, "the ring was taken"
            assert peer.sock.recv(1) == b"!"
            peer.done()

    # Who rings asks for the bell.
    is_told(thief)
    thief.does("steal()")
    for _ in range(10):
        is_told(honest)
    thief.end(), honest.end()


for name, test in list(globals().items()):
    if name.startswith("test_"):
        test()
        print(name, "good", flush=True)
