"""Many threads and processes that wait at once: more than a stream's words have room to name."""
import os, resource, select, signal, socket, sys, threading, time

HOST = sys.argv[1]
# More than there are slots, and more than a process once had waiters.
MANY = 150
PATIENCE = 20


def pairs(count):
    listener = socket.create_server((HOST, 0), backlog=count)
    made = []
    for _ in range(count):
        one = socket.create_connection(listener.getsockname())
        made.append((one, listener.accept()[0]))
    listener.close()
    return made


def run_all(work, items):
    failed = []

    def guarded(item):
        try:
            work(item)
        except BaseException as error:
            failed.append(repr(error))

    threads = [threading.Thread(target=guarded, args=(item,)) for item in items]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed, (len(failed), failed[:3])


def test_threads_with_limits():
    """Each waits in `poll` for its only socket."""
    made = pairs(MANY)

    def work(item):
        one, serves = item
        one.settimeout(PATIENCE)
        for n in range(20):
            if serves:
                assert one.recv(100) == b"%d" % n
                one.sendall(b"+%d" % n)
            else:
                one.sendall(b"%d" % n)
                assert one.recv(100) == b"+%d" % n
        one.settimeout(0.05)
        if serves:
            try:
                one.recv(1)
                raise AssertionError("nothing comes")
            except socket.timeout:
                pass

    run_all(work, [(sock, serves) for pair in made for serves, sock in enumerate(pair)])


def test_threads_that_connect():
    """All at once, each several times."""
    listener = socket.create_server((HOST, 0), backlog=2 * MANY)

    def serve(accepted):
        with accepted:
            while data := accepted.recv(100):
                accepted.sendall(data)

    def accept():
        for _ in range(3 * MANY):
            threading.Thread(target=serve, args=(listener.accept()[0],)).start()

    accepts = threading.Thread(target=accept)
    accepts.start()

    def work(number):
        for n in range(3):
            with socket.create_connection(listener.getsockname(), PATIENCE) as one:
                text = b"%d %d" % (number, n)
                one.sendall(text)
                assert one.recv(100) == text

    run_all(work, range(MANY))
    accepts.join()
    listener.close()


def test_threads_with_pipes():
    """Each waits for two descriptors."""
    made = pairs(MANY)
    read, write = os.pipe()

    def work(item):
        one, serves = item
        both = select.poll()
        both.register(one, select.POLLIN)
        both.register(read, select.POLLIN)
        for n in range(10):
            if not serves:
                one.sendall(b"%d" % n)
            ready = both.poll(1000 * PATIENCE)
            assert ready == [(one.fileno(), select.POLLIN)], ready
            one.recv(100)
            if serves:
                one.sendall(b"+")

    run_all(work, [(sock, serves) for pair in made for serves, sock in enumerate(pair)])


def serve(one, flags):
    """A process with a set of its own; `flags` is by level, by edge, or by edge for room, too. What its waits cost."""
    signal.alarm(3 * PATIENCE)
    one.setblocking(False)
    own = select.epoll()
    own.register(one, select.EPOLLIN | select.EPOLLRDHUP | flags)
    waits = 0
    while True:
        waits += 1
        for _, events in own.poll(PATIENCE):
            try:
                while True:
                    data = one.recv(100)
                    if not data:
                        return waits
                    one.sendall(data)
            except BlockingIOError:
                pass


def forked(count, flags):
    """Processes with a socket each; how to end them."""
    listener = socket.create_server((HOST, 0), backlog=count)
    clients, children = [], []
    for _ in range(count):
        clients.append(socket.create_connection(listener.getsockname()))
        accepted, _ = listener.accept()
        child = os.fork()
        if child == 0:
            code = 1
            try:
                for other in clients:
                    other.close()
                code = 0 if serve(accepted, flags) < 2000 else 2
            finally:
                os._exit(code)
        accepted.close()
        children.append(child)
    listener.close()
    return clients, children


def test_processes():
    """Their sockets lie in one arena, of whoever has accepted them all."""
    for flags in (0, select.EPOLLET, select.EPOLLET | select.EPOLLOUT):
        clients, children = forked(MANY // 2, flags)
        for n in range(5):
            for client in clients:
                client.settimeout(PATIENCE)
                client.sendall(b"%d" % n)
            for client in clients:
                assert client.recv(100) == b"%d" % n, flags
        # Nobody goes round for nothing.
        before = [cpu(child) for child in children]
        time.sleep(0.5)
        idle = sum(cpu(child) - then for child, then in zip(children, before))
        assert idle < 0.2, (flags, idle)
        for client in clients:
            client.close()
        for child in children:
            assert os.waitpid(child, 0)[1] == 0, flags


def cpu(process):
    with open("/proc/%d/stat" % process) as stat:
        fields = stat.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def test_other_names():
    """POLLRDNORM and POLLWRNORM are other names of a stream's bytes and room."""
    (one, two), = pairs(1)
    own = select.poll()
    own.register(one, select.POLLRDNORM)
    assert own.poll(0) == []
    two.sendall(b"x")
    assert own.poll(1000 * PATIENCE) == [(one.fileno(), select.POLLRDNORM)]
    own.modify(one, select.POLLWRNORM | select.POLLOUT)
    assert own.poll(0) == [(one.fileno(), select.POLLWRNORM | select.POLLOUT)]


def test_signals():
    """A wait for a single socket ends with a handler, whatever its flags; Python goes on."""
    (one, two), = pairs(1)
    seen = []
    signal.signal(signal.SIGALRM, lambda *_: seen.append(1))
    one.settimeout(0.5)
    signal.setitimer(signal.ITIMER_REAL, 0.1, 0.1)
    began = time.monotonic()
    try:
        one.recv(1)
        raise AssertionError("nothing comes")
    except socket.timeout:
        assert 0.4 < time.monotonic() - began < 5 and seen
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
    threading.Timer(0.05, two.close).start()
    one.settimeout(PATIENCE)
    assert one.recv(1) == b""


if __name__ == "__main__":
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
    for name, test in list(globals().items()):
        if name.startswith("test_"):
            test()
            print(name, "good", flush=True)
