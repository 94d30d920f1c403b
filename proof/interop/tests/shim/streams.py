"""Bytes in and out: flags, times, signals, sizes, shutdown, names, files."""
import array, errno, fcntl, os, select, signal, socket, struct, sys, tempfile, termios, threading, time

HOST = sys.argv[1]


def pair():
    listener = socket.create_server((HOST, 0))
    one = socket.create_connection(listener.getsockname())
    two, _ = listener.accept()
    listener.close()
    return one, two


def later(seconds, what):
    threading.Timer(seconds, what).start()


def expect(number, call):
    try:
        call()
    except OSError as error:
        assert error.errno == number, (errno.errorcode[number], error)
        return
    raise AssertionError(f"{errno.errorcode[number]} was expected")


def test_flags():
    a, b = pair()
    expect(errno.EAGAIN, lambda: a.recv(1, socket.MSG_DONTWAIT))
    b.send(b"hello")
    assert a.recv(2, socket.MSG_PEEK) == b"he" and a.recv(9, socket.MSG_PEEK) == b"hello"
    assert a.recv(2) == b"he"
    later(0.05, lambda: b.send(b"world"))
    assert a.recv(8, socket.MSG_WAITALL) == b"lloworld"
    b.send(b"12")
    later(0.05, lambda: b.send(b"34"))
    assert a.recv(4, socket.MSG_WAITALL | socket.MSG_PEEK) == b"1234" and a.recv(9) == b"1234"
    expect(errno.EINVAL, lambda: a.recv(1, socket.MSG_OOB))
    b.send(b"end")
    b.close()
    assert a.recv(9, socket.MSG_WAITALL) == b"end" and a.recv(9) == b""


def test_times():
    a, b = pair()
    a.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", 0, 50_000))
    assert struct.unpack("ll", a.getsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, 16))[1] >= 50_000
    began = time.monotonic()
    expect(errno.EAGAIN, lambda: os.read(a.fileno(), 1))
    assert 0.04 < time.monotonic() - began < 2
    a.settimeout(0.05)
    try:
        a.recv(1)
        raise AssertionError("nothing comes")
    except TimeoutError:
        pass
    listener = socket.create_server((HOST, 0))
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", 0, 50_000))
    expect(errno.EAGAIN, lambda: listener.accept())


def test_large():
    a, b = pair()
    data = os.urandom(3_000_000)
    sender = threading.Thread(target=lambda: (a.sendall(data), a.shutdown(socket.SHUT_WR)))
    sender.start()
    got = b"".join(iter(lambda: b.recv(70_000), b""))
    sender.join()
    assert got == data


def test_both_ways_at_once():
    a, b = pair()
    data = os.urandom(1_000_000)
    got = {}

    def read(s):
        got[s] = b"".join(iter(lambda: s.recv(9999), b""))

    def write(s):
        s.sendall(data)
        s.shutdown(socket.SHUT_WR)

    threads = [threading.Thread(target=f, args=(s,)) for f in (read, write) for s in (a, b)]
    [t.start() for t in threads]
    [t.join(20) for t in threads]
    assert got == {a: data, b: data}


def test_pieces():
    a, b = pair()
    pieces = [bytes([n]) * n for n in range(60)]
    assert a.sendmsg(pieces) == sum(range(60))
    a.shutdown(socket.SHUT_WR)
    buffers = [bytearray(n + 1) for n in range(60)]
    got, room = 0, sum(map(len, buffers))
    count, control, flags, address = b.recvmsg_into(buffers, 100)
    assert b"".join(buffers)[:count] == b"".join(pieces)[:count] and not control
    assert os.readv(b.fileno(), [bytearray(9)]) == 0
    assert os.writev(b.fileno(), [b"ab", b"", b"c"]) == 3
    first, second = bytearray(1), bytearray(9)
    time.sleep(0.05)
    assert os.readv(a.fileno(), [first, second]) == 3 and bytes(first + second[:2]) == b"abc"


def test_shutdown():
    a, b = pair()
    a.shutdown(socket.SHUT_WR)
    assert b.recv(9) == b""
    expect(errno.EPIPE, lambda: a.send(b"x", socket.MSG_NOSIGNAL))
    b.send(b"still")
    assert a.recv(9) == b"still"
    b.shutdown(socket.SHUT_RDWR)
    assert a.recv(9) == b""
    a, b = pair()
    later(0.05, lambda: a.shutdown(socket.SHUT_RD))
    assert a.recv(9) == b"", "who waits is let go"
    # Who has waited for so long that he sleeps on more than one word, too, and who waits in a set or for several.
    a, b = pair()
    later(0.4, lambda: a.shutdown(socket.SHUT_RD))
    assert a.recv(9) == b""
    a, b = pair()
    e = select.epoll()
    e.register(a, select.EPOLLIN | select.EPOLLRDHUP)
    assert e.poll(0) == []
    a.shutdown(socket.SHUT_RD)
    assert e.poll(2) == [(a.fileno(), select.EPOLLIN | select.EPOLLRDHUP)]
    a, b = pair()
    later(0.4, lambda: a.shutdown(socket.SHUT_RD))
    assert select.select([a, b], [], [], 5)[0] == [a]
    u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    u.bind((a.getsockname()[0], 0))
    u.connect(u.getsockname())
    later(0.4, lambda: u.shutdown(socket.SHUT_RD))
    assert u.recv(9) == b""


def test_pipe_signal():
    a, b = pair()
    a.shutdown(socket.SHUT_WR)
    child = os.fork()
    if child == 0:
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
        os.write(a.fileno(), b"x")
        os._exit(0)
    assert os.WTERMSIG(os.waitpid(child, 0)[1]) == signal.SIGPIPE


def test_refused():
    listener = socket.create_server((HOST, 0))
    address = listener.getsockname()
    listener.close()
    time.sleep(0.05)
    s = socket.socket()
    expect(errno.ECONNREFUSED, lambda: s.connect(address))
    s = socket.socket()
    s.setblocking(False)
    assert s.connect_ex(address) == errno.EINPROGRESS
    select.select([], [s], [], 2)
    assert s.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == errno.ECONNREFUSED
    assert s.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == 0


def test_names():
    listener = socket.create_server((HOST, 0))
    c = socket.create_connection(listener.getsockname())
    s, peer = listener.accept()
    assert c.getpeername() == listener.getsockname() == s.getsockname()
    assert c.getsockname() == s.getpeername() == peer
    six = socket.socket(socket.AF_INET6)
    assert six.getsockname()[:2] == ("::", 0)
    expect(errno.EADDRINUSE, lambda: socket.socket().bind(listener.getsockname()))


def test_ioctls():
    a, b = pair()
    b.send(b"12345")
    select.select([a], [], [], 2)
    count = array.array("i", [0])
    fcntl.ioctl(a, termios.FIONREAD, count)
    assert count[0] == 5
    fcntl.ioctl(a, 0x5421, array.array("i", [1]))
    assert fcntl.fcntl(a, fcntl.F_GETFL) & os.O_NONBLOCK
    a.recv(9)
    expect(errno.EAGAIN, lambda: os.read(a.fileno(), 1))
    fcntl.fcntl(a, fcntl.F_SETFL, 0)
    later(0.05, lambda: b.send(b"x"))
    assert os.read(a.fileno(), 1) == b"x"


def test_files():
    a, b = pair()
    with tempfile.TemporaryFile() as file:
        data = os.urandom(500_000)
        file.write(data), file.flush()
        reader = threading.Thread(target=lambda: results.append(b.recv(500_000, socket.MSG_WAITALL)))
        results = []
        reader.start()
        sent = 0
        while sent < len(data):
            sent += os.sendfile(a.fileno(), file.fileno(), sent, len(data) - sent)
        reader.join(20)
        assert results == [data]
        file.seek(0)
        assert os.sendfile(a.fileno(), file.fileno(), None, 10) == 10 and file.tell() == 10
        assert b.recv(10, socket.MSG_WAITALL) == data[:10]


def test_sendfile_reads_no_more_than_there_is_room_for():
    a, b = pair()
    a.setblocking(False)

    def read_so_far():
        with open("/proc/self/io") as io:
            return int(io.readline().split()[1])

    in_vain = []
    with tempfile.NamedTemporaryFile() as file:
        file.write(bytes(100_000)), file.flush()
        while len(in_vain) < 5:
            before = read_so_far()
            try:
                os.sendfile(a.fileno(), file.fileno(), 0, 100_000)
            except BlockingIOError:
                in_vain.append(read_so_far() - before)
    assert max(in_vain) < 8192, in_vain


def test_signals():
    a, b = pair()
    ticks = []
    signal.signal(signal.SIGALRM, lambda *_: ticks.append(1))
    # Python's own handlers run between two calls: once only behind one that goes on. Its handler of SIGINT has no SA_RESTART.
    for interrupts in (True, False):
        ticks.clear()
        signal.siginterrupt(signal.SIGALRM, interrupts)
        signal.setitimer(signal.ITIMER_REAL, 0.02, 0.02)
        later(0.2, lambda: b.send(b"x"))
        assert a.recv(1) == b"x"
        signal.setitimer(signal.ITIMER_REAL, 0)
        assert len(ticks) > 2 if interrupts else 1 <= len(ticks) <= 2, ticks


if __name__ == "__main__":
    for name, test in list(globals().items()):
        if name.startswith("test_"):
            test()
            print(name, "good", flush=True)
