"""Waiting for many: poll, select and epoll, level, edge and one-shot, mixed with pipes, nested, and across threads."""
import os, select, selectors, signal, socket, sys, threading, time

HOST = sys.argv[1]


def pair():
    listener = socket.create_server((HOST, 0))
    one = socket.create_connection(listener.getsockname())
    two, _ = listener.accept()
    listener.close()
    return one, two


def later(seconds, what):
    thread = threading.Timer(seconds, what)
    thread.start()
    return thread


def test_poll():
    a, b = pair()
    read, write = os.pipe()
    p = select.poll()
    p.register(a, select.POLLIN)
    p.register(read, select.POLLIN)
    assert p.poll(0) == []
    began = time.monotonic()
    assert p.poll(50) == [] and time.monotonic() - began >= 0.05
    b.send(b"x")
    assert p.poll(1000) == [(a.fileno(), select.POLLIN)]
    os.write(write, b"y")
    assert sorted(p.poll(1000)) == sorted([(a.fileno(), select.POLLIN), (read, select.POLLIN)])
    a.recv(1), os.read(read, 1)
    later(0.05, lambda: b.send(b"z"))
    assert p.poll(2000) == [(a.fileno(), select.POLLIN)]
    a.recv(1)
    later(0.05, lambda: os.write(write, b"z"))
    assert p.poll(2000) == [(read, select.POLLIN)]
    os.read(read, 1)
    b.shutdown(socket.SHUT_WR)
    p.modify(a, select.POLLIN | select.POLLRDHUP)
    assert (a.fileno(), select.POLLIN | select.POLLRDHUP) in p.poll(2000)
    one = select.poll()
    one.register(b, select.POLLOUT)
    assert one.poll(1000) == [(b.fileno(), select.POLLOUT)]
    fresh = socket.socket()
    one = select.poll()
    one.register(fresh, select.POLLIN | select.POLLOUT)
    assert one.poll(0) == [(fresh.fileno(), select.POLLOUT | select.POLLHUP)]


def test_threads_of_one_set():
    """Who was told of one socket and is busy with it leaves the others to the threads that wait still."""
    pairs = [pair() for _ in range(2)]
    set_of_both = select.epoll()
    by_number = {a.fileno(): a for a, _ in pairs}
    for number in by_number:
        set_of_both.register(number, select.EPOLLIN)
    told, is_over = [], threading.Event()

    def serve():
        while not is_over.is_set():
            for number, _ in set_of_both.poll(20, 1):
                try:
                    told.append(by_number[number].recv(9, socket.MSG_DONTWAIT))
                    return is_over.wait(20)
                except BlockingIOError:
                    # Of a level that was not read as yet both may be told.
                    pass

    threads = [threading.Thread(target=serve) for _ in pairs]
    for thread in threads:
        thread.start()
    for nth, (_, b) in enumerate(pairs):
        time.sleep(0.1)
        b.send(b"%d" % nth)
    began = time.monotonic()
    while len(told) < 2 and time.monotonic() - began < 10:
        time.sleep(0.01)
    is_over.set()
    for thread in threads:
        thread.join()
    assert told == [b"0", b"1"] and time.monotonic() - began < 10, told


def test_many():
    pairs = [pair() for _ in range(100)]
    p = select.poll()
    for a, _ in pairs:
        p.register(a, select.POLLIN)
    later(0.05, lambda: pairs[77][1].send(b"x"))
    assert p.poll(2000) == [(pairs[77][0].fileno(), select.POLLIN)]


def test_select():
    a, b = pair()
    read, write = os.pipe()
    assert select.select([a, read], [a, b], [], 0) == ([], [a, b], [])
    later(0.05, lambda: b.send(b"x"))
    assert select.select([a, read], [], [], 2) == ([a], [], [])
    os.write(write, b"x")
    assert select.select([a, read], [], [a], 2) == ([a, read], [], [])
    a.recv(1)
    began = time.monotonic()
    assert select.select([a], [], [], 0.05) == ([], [], []) and time.monotonic() - began >= 0.05


def test_level():
    a, b = pair()
    e = select.epoll()
    e.register(a, select.EPOLLIN)
    assert e.poll(0) == []
    b.send(b"xx")
    for _ in range(3):
        assert e.poll(1) == [(a.fileno(), select.EPOLLIN)]
    a.recv(1)
    assert e.poll(1) == [(a.fileno(), select.EPOLLIN)]
    a.recv(1)
    assert e.poll(0) == []
    e.modify(a, select.EPOLLIN | select.EPOLLOUT)
    assert e.poll(1) == [(a.fileno(), select.EPOLLOUT)]
    e.modify(a, select.EPOLLIN)
    later(0.05, lambda: b.send(b"x"))
    assert e.poll(2) == [(a.fileno(), select.EPOLLIN)]
    e.unregister(a)
    assert e.poll(0) == []
    for call in (lambda: e.unregister(a), lambda: e.modify(a, 1)):
        try:
            call()
            raise AssertionError("it is not there")
        except FileNotFoundError:
            pass


def test_edge():
    a, b = pair()
    e = select.epoll()
    e.register(a, select.EPOLLIN | select.EPOLLET)
    b.send(b"x")
    assert e.poll(1) == [(a.fileno(), select.EPOLLIN)]
    assert e.poll(0.02) == []
    b.send(b"y")
    assert e.poll(1) == [(a.fileno(), select.EPOLLIN)]
    assert a.recv(10) == b"xy"
    e.modify(a, select.EPOLLOUT | select.EPOLLET)
    assert e.poll(1) == [(a.fileno(), select.EPOLLOUT)]
    a.setblocking(False)
    sent = 0
    try:
        while True:
            sent += a.send(b"z" * 65536)
    except BlockingIOError:
        pass
    e.poll(0)
    got = 0
    while got < sent:
        got += len(b.recv(1 << 20))
    assert e.poll(2) == [(a.fileno(), select.EPOLLOUT)]


def test_edges_come_once():
    """What becomes of a connection without its program, as that it is fused, is no edge."""
    for _ in range(100):
        a, b = pair()
        e = select.epoll()
        e.register(a, select.EPOLLIN | select.EPOLLET)
        b.send(b"x")
        assert e.poll(1) == [(a.fileno(), select.EPOLLIN)]
        assert e.poll(0.002) == []
        b.send(b"y")
        assert e.poll(1) == [(a.fileno(), select.EPOLLIN)]
        a.close(), b.close(), e.close()


def test_one_shot():
    a, b = pair()
    e = select.epoll()
    e.register(a, select.EPOLLIN | select.EPOLLONESHOT)
    b.send(b"x")
    assert e.poll(1) == [(a.fileno(), select.EPOLLIN)]
    b.send(b"y")
    assert e.poll(0.02) == []
    e.modify(a, select.EPOLLIN | select.EPOLLONESHOT)
    assert e.poll(1) == [(a.fileno(), select.EPOLLIN)]


def test_mixed():
    a, b = pair()
    read, write = os.pipe()
    listener = socket.create_server((HOST, 0))
    e = select.epoll()
    for fd in (a, read, listener):
        e.register(fd, select.EPOLLIN)
    assert e.poll(0) == []
    later(0.02, lambda: os.write(write, b"x"))
    assert e.poll(2) == [(read, select.EPOLLIN)]
    os.read(read, 1)
    client = socket.create_connection(listener.getsockname())
    assert e.poll(2) == [(listener.fileno(), select.EPOLLIN)]
    b.send(b"x"), os.write(write, b"x")
    time.sleep(0.05)
    seen = set()
    for _ in range(30):
        seen |= {fd for fd, _ in e.poll(1)}
    assert seen == {a.fileno(), read, listener.fileno()}
    client.close()


def test_nested():
    a, b = pair()
    inner, outer = select.epoll(), select.epoll()
    inner.register(a, select.EPOLLIN)
    outer.register(inner.fileno(), select.EPOLLIN)
    assert outer.poll(0) == []
    later(0.05, lambda: b.send(b"x"))
    assert outer.poll(2) == [(inner.fileno(), select.EPOLLIN)]
    assert inner.poll(0) == [(a.fileno(), select.EPOLLIN)]
    assert outer.poll(1) == [(inner.fileno(), select.EPOLLIN)], "level"
    a.recv(1)
    inner.poll(0)
    assert outer.poll(0.02) == []
    p = select.poll()
    p.register(inner.fileno(), select.POLLIN)
    assert p.poll(20) == []
    later(0.05, lambda: b.send(b"x"))
    assert p.poll(2000) == [(inner.fileno(), select.POLLIN)]


def test_nested_in_vain():
    # A connection that is made, fuses or has room to write is no news to who waits for something to read.
    listener = socket.create_server((HOST, 0))
    for _ in range(20):
        inner, outer, once = select.epoll(), select.epoll(), select.epoll()
        outer.register(inner.fileno(), select.EPOLLIN)
        once.register(inner.fileno(), select.EPOLLIN | select.EPOLLONESHOT)
        p = select.poll()
        p.register(inner.fileno(), select.POLLIN)
        a = socket.create_connection(listener.getsockname())
        inner.register(a, select.EPOLLIN)
        assert outer.poll(0.005) == [] and p.poll(5) == []
        b, _ = listener.accept()
        assert once.poll(0.005) == [] and outer.poll(0.005) == [] and p.poll(5) == []
        a.send(bytes(100_000))
        b.recv(100_000, socket.MSG_WAITALL)
        assert once.poll(0.005) == [] and p.poll(5) == [] and outer.poll(0.005) == []
        b.send(b"x")
        for waits in (once, outer):
            assert waits.poll(2) == [(inner.fileno(), select.EPOLLIN)]
        assert inner.poll(0) == [(a.fileno(), select.EPOLLIN)]
        assert once.poll(0.005) == []


def test_before_connect():
    listener = socket.create_server((HOST, 0))
    e = select.epoll()
    s = socket.socket()
    s.setblocking(False)
    e.register(s, select.EPOLLIN | select.EPOLLOUT)
    assert e.poll(1) == [(s.fileno(), select.EPOLLOUT | select.EPOLLHUP)]
    s.connect_ex(listener.getsockname())
    assert e.poll(1) == [(s.fileno(), select.EPOLLOUT)]
    a, _ = listener.accept()
    a.send(b"x")
    e.modify(s, select.EPOLLIN)
    assert e.poll(1) == [(s.fileno(), select.EPOLLIN)]


def test_numbers_used_again():
    e = select.epoll()
    for _ in range(20):
        a, b = pair()
        e.register(a, select.EPOLLIN)
        b.send(b"x")
        assert e.poll(1) == [(a.fileno(), select.EPOLLIN)]
        a.close(), b.close()
        assert e.poll(0) == []


def test_a_copy_of_a_set():
    """As Rust's mio has it: what is watched is put into a copy."""
    import fcntl
    copies = [lambda e: fcntl.fcntl(e.fileno(), fcntl.F_DUPFD_CLOEXEC, 0), lambda e: os.dup(e.fileno())]
    for copy in copies:
        a, b = pair()
        e = select.epoll()
        c = select.epoll.fromfd(copy(e))
        c.register(a, select.EPOLLIN)
        b.send(b"x")
        assert e.poll(2) == c.poll(2) == [(a.fileno(), select.EPOLLIN)]
        e.close()
        assert c.poll(2) == [(a.fileno(), select.EPOLLIN)]
        assert a.recv(9) == b"x" and c.poll(0) == []
        d, other = pair()
        c.register(d, select.EPOLLIN)
        later(0.3, lambda: other.send(b"y"))
        assert c.poll(5) == [(d.fileno(), select.EPOLLIN)]
        c.close()


def test_closed_elsewhere():
    a, b = pair()
    e = select.epoll()
    e.register(a, select.EPOLLIN | select.EPOLLRDHUP)
    later(0.05, b.close)
    (fd, events), = e.poll(2)
    assert fd == a.fileno() and events & select.EPOLLRDHUP and events & select.EPOLLIN


def test_threads():
    a, b = pair()
    e = select.epoll()
    e.register(a, select.EPOLLIN | select.EPOLLONESHOT)
    got, lock = [], threading.Lock()

    def work():
        while True:
            for fd, _ in e.poll(0.5):
                data = a.recv(1)
                with lock:
                    got.append(data)
                e.modify(a, select.EPOLLIN | select.EPOLLONESHOT)
            if len(got) >= 50:
                return

    threads = [threading.Thread(target=work) for _ in range(4)]
    for t in threads:
        t.start()
    for n in range(50):
        b.send(bytes([n]))
    for t in threads:
        t.join(10)
    assert b"".join(got) == bytes(range(50))


def test_signals():
    signal.signal(signal.SIGALRM, lambda *_: None)
    a, b = pair()
    e = select.epoll()
    e.register(a, select.EPOLLIN)
    for wait in (lambda: e.poll(0.3), lambda: select.select([a], [], [], 0.3)):
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        began = time.monotonic()
        assert not any(wait()) and time.monotonic() - began >= 0.29, "Python goes on after a signal"

    class Stop(Exception):
        pass

    def stop(*_):
        raise Stop

    signal.signal(signal.SIGALRM, stop)
    for wait in (lambda: a.recv(1), lambda: e.poll(5), lambda: select.select([a], [], [], 5)):
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        try:
            wait()
            raise AssertionError("nothing comes")
        except Stop:
            pass


if __name__ == "__main__":
    for name, test in list(globals().items()):
        if name.startswith("test_"):
            test()
            print(name, "good", flush=True)
