"""Sockets that were closed make the next ones: who has a copy keeps the connection, and a new one has nothing of the old."""
import array, os, select, signal, socket, subprocess, sys, threading, time

HOST = sys.argv[1]
FAMILY = socket.AF_INET6 if ":" in HOST else socket.AF_INET
listener = socket.create_server((HOST, 0), family=FAMILY, backlog=128)
ADDRESS = listener.getsockname()


def pair():
    one = socket.socket(FAMILY)
    one.connect(ADDRESS)
    return one, listener.accept()[0]


def is_open(peer):
    return select.select([peer], [], [], 0.1)[0] == []


# The first sockets of a program are made one by one.
for _ in range(40):
    one, two = pair()
    one.close(), two.close()


def test_numbers_are_the_lowest():
    one, two = pair()
    number = one.fileno()
    one.close()
    again = socket.socket(FAMILY)
    assert again.fileno() == number
    again.close(), two.close()


def test_what_was_written_arrives_and_then_the_end():
    for bytes_ in (1, 100, 100_000):
        one, two = pair()
        got = []
        reader = threading.Thread(target=lambda: got.append(b"".join(iter(lambda: two.recv(1 << 16), b""))))
        reader.start()
        one.sendall(b"w" * bytes_)
        one.close()
        reader.join()
        assert got == [b"w" * bytes_]
        two.close()


def test_what_is_unread_resets():
    for _ in range(3):
        one, two = pair()
        two.send(b"unread")
        assert select.select([one], [], [], 9)[0] == [one]
        one.close()
        try:
            while two.recv(9):
                pass
            raise AssertionError("a reset was expected")
        except ConnectionResetError:
            pass
        two.close()


def test_a_new_one_has_nothing_of_the_old():
    usual = {}
    asked = [(socket.SOL_SOCKET, socket.SO_KEEPALIVE), (socket.IPPROTO_TCP, socket.TCP_NODELAY), (socket.SOL_SOCKET, socket.SO_RCVBUF),
             (socket.SOL_SOCKET, socket.SO_REUSEADDR), (socket.IPPROTO_TCP, socket.TCP_MAXSEG), (socket.SOL_SOCKET, socket.SO_LINGER)]
    fresh = socket.socket(FAMILY)
    usual = [fresh.getsockopt(*it) for it in asked]
    fresh.close()
    for way in range(40):
        one = socket.socket(FAMILY)
        assert [one.getsockopt(*it) for it in asked] == usual
        assert os.get_blocking(one.fileno()) and one.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == 0
        try:
            one.send(b"x")
            raise AssertionError("it is not connected")
        except BrokenPipeError:
            pass
        one.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 9000)
        one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if way % 3 == 1:
            one.setblocking(False)
        if way % 3 == 2:
            one.connect(ADDRESS)
            two = listener.accept()[0]
            one.settimeout(1)
            two.close()
            assert one.recv(1) == b""
        one.close()


def test_a_connection_that_fails_leaves_a_good_socket():
    spot = socket.create_server((HOST, 0), family=FAMILY)
    gone = spot.getsockname()
    spot.close()
    for _ in range(20):
        one = socket.socket(FAMILY)
        try:
            one.connect(gone)
            raise AssertionError("nobody listens")
        except ConnectionRefusedError:
            pass
        one.close()
        one, two = pair()
        one.send(b"good")
        assert two.recv(9) == b"good"
        one.close(), two.close()


def test_a_listener_of_one_that_was_closed():
    for _ in range(10):
        spot = socket.create_server((HOST, 0), family=FAMILY)
        one = socket.create_connection(spot.getsockname()[:2])
        two = spot.accept()[0]
        port = spot.getsockname()[1]
        spot.close()
        try:
            socket.create_connection((HOST, port))
            raise AssertionError("nobody listens")
        except ConnectionRefusedError:
            pass
        one.send(b"x")
        assert two.recv(9) == b"x"
        one.close(), two.close()


def holds(way, fd_of_one):
    """Somebody has a copy by `way` until what that returns is called."""
    os.set_inheritable(fd_of_one, True)
    return way(fd_of_one)


def by_popen(_):
    child = subprocess.Popen(["/bin/cat"], stdin=subprocess.PIPE, close_fds=False)
    return lambda: (child.stdin.close(), child.wait())


def by_spawn(_):
    read, write = os.pipe()
    child = os.posix_spawn("/bin/cat", ["cat"], os.environ, file_actions=[(os.POSIX_SPAWN_DUP2, read, 0)])
    os.close(read)
    return lambda: (os.close(write), os.waitpid(child, 0))


def forked(child_does):
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(write)
        child_does(read)
        os._exit(0)
    os.close(read)
    return lambda: (os.close(write), os.waitpid(child, 0))


def by_fork(_):
    return forked(lambda read: os.read(read, 1))


def by_fork_and_exec(_):
    return forked(lambda read: (os.dup2(read, 0), os.execv("/bin/cat", ["cat"])))


def by_system(_):
    read, write = os.pipe()
    shell = threading.Thread(target=lambda: os.system(f"exec cat </proc/{os.getpid()}/fd/{read}"))
    shell.start()
    time.sleep(0.2)
    os.close(read)
    return lambda: (os.close(write), shell.join())


def by_message(fd):
    near, far = socket.socketpair()
    socket.send_fds(near, [b"x"], [fd])
    def end():
        _, fds, _, _ = socket.recv_fds(far, 9, 4)
        passed = socket.socket(fileno=fds[0])
        passed.send(b"passed on")
        passed.close(), near.close(), far.close()
    return end


def by_dup(fd):
    copy = os.dup(fd)
    return lambda: os.close(copy)


def test_who_has_a_copy_keeps_the_connection():
    for way in (by_popen, by_spawn, by_fork, by_fork_and_exec, by_system, by_message, by_dup):
        for _ in range(3):
            some = [pair() for _ in range(3)]
            end = holds(way, some[1][0].fileno())
            for one, _ in some:
                one.close()
            # Those that the copies do not keep are new sockets by now.
            others = [pair() for _ in range(6)]
            assert is_open(some[1][1]), way
            end()
            left = some[1][1].recv(99)
            assert left in (b"", b"passed on"), (way, left)
            assert left == b"" or some[1][1].recv(9) == b"", way
            for one, two in others:
                one.send(b"a"), two.send(b"b")
                assert (two.recv(9), one.recv(9)) == (b"a", b"b")
                one.close(), two.close()
            for _, two in some:
                two.close()


def test_children_that_come_and_go_meanwhile():
    stop, done, failures = threading.Event(), threading.Event(), []

    def connect():
        while not stop.is_set():
            try:
                one = socket.create_connection(ADDRESS[:2])
                one.send(b"ping")
                assert one.recv(9) == b"pong"
                assert one.recv(9) == b""
                one.close()
            except Exception as error:
                failures.append(error)
                return

    def serve():
        while not done.is_set():
            if select.select([listener], [], [], 0.1)[0]:
                two = listener.accept()[0]
                assert two.recv(9) == b"ping"
                two.send(b"pong")
                two.close()

    server = threading.Thread(target=serve)
    threads = [threading.Thread(target=connect) for _ in range(3)]
    for it in (server, *threads):
        it.start()
    for n in range(30):
        if n % 3 == 0:
            subprocess.run(["/bin/true"], close_fds=False)
        elif n % 3 == 1:
            os.waitpid(os.posix_spawn("/bin/true", ["true"], os.environ), 0)
        else:
            child = os.fork()
            if child == 0:
                os._exit(0)
            os.waitpid(child, 0)
    stop.set()
    for it in threads:
        it.join()
    done.set()
    server.join()
    assert failures == [], failures


def test_a_number_that_another_takes_over():
    for _ in range(5):
        one, two = pair()
        number = one.detach()
        os.dup2(listener.fileno(), number)
        assert two.recv(9) == b"", "the number is another's"
        os.close(number), two.close()


def test_descriptors_are_used_again():
    seen = set()
    for _ in range(200):
        one, two = pair()
        seen.add(os.fstat(one.fileno()).st_ino)
        one.close(), two.close()
    print("distinct", len(seen))


for name, test in list(globals().items()):
    if name.startswith("test_"):
        test()
        print(name, flush=True)
