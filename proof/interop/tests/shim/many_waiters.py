"""More threads and epoll sets wait than an arena has slots, or a process had waiters: none gets an error, and each hears its own."""
import errno, os, resource, select, socket, sys, threading, time

HOST = sys.argv[1]
THREADS = 1200
SETS = 1100
CROWD = 120
ALONE = 70
PATIENCE = 60


def pairs(count):
    listener = socket.create_server((HOST, 0), backlog=64)
    for _ in range(count):
        one = socket.create_connection(listener.getsockname())
        yield one, listener.accept()[0]
    listener.close()


def start(work, items):
    failed = []

    def guarded(*item):
        try:
            work(*item)
        except OSError as error:
            failed.append(error)

    threads = [threading.Thread(target=guarded, args=item, daemon=True) for item in items]
    for thread in threads:
        thread.start()
    return threads, failed


def test_no_descriptor_is_left():
    """To wait takes none. Before the others, whose threads leave what they have waited by."""
    made, pipe, filled = list(pairs(ALONE)), os.pipe(), []
    for client, served in made:
        client.sendall(b"x")
        served.recv(1)
    most, limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (1 + pipe[1], limit))
    try:
        while True:
            filled.append(os.open("/dev/null", os.O_RDONLY))
    except OSError as error:
        print("no descriptor", errno.errorcode[error.errno])
    silent, told = [], []

    def work(sock):
        both = select.poll()
        both.register(sock, select.POLLIN)
        both.register(pipe[0], select.POLLIN)
        was_silent = both.poll(100) == []
        silent.append(was_silent)
        told.append(was_silent and both.poll(1000 * PATIENCE) == [(sock.fileno(), select.POLLIN)])

    threads, failed = start(work, [(served,) for _, served in made])
    # Where others use the CPUs a thread may begin late.
    end = time.monotonic() + PATIENCE
    while len(silent) + len(failed) < ALONE and time.monotonic() < end:
        time.sleep(0.01)
    time.sleep(0.1)
    for client, _ in made:
        client.sendall(b"x")
    for thread in threads:
        thread.join(PATIENCE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, limit))
    print("no descriptor", told.count(True), "told", [str(error) for error in failed])
    for fd in filled:
        os.close(fd)


def test_threads_with_two_sockets():
    """Each passes on what comes by either; a ping goes through each in turn."""
    made = [(next(it), next(it)) for it in [pairs(2 * THREADS)] for _ in range(THREADS)]

    def work(*own):
        both = select.poll()
        for sock in own:
            both.register(sock, select.POLLIN)
        known = {sock.fileno(): sock for sock in own}
        while True:
            for fd, _ in both.poll():
                data = known[fd].recv(100)
                if not data:
                    return
                known[fd].sendall(data)

    threads, failed = start(work, [(one[1], two[1]) for one, two in made])
    answered = 0
    for turn in range(2):
        for n, ends in enumerate(made):
            client = ends[(n + turn) % 2][0]
            client.settimeout(PATIENCE)
            client.sendall(b"%d" % n)
            answered += client.recv(100) == b"%d" % n
    for one, _ in made:
        one[0].close()
    for thread in threads:
        thread.join(PATIENCE)
    print("threads", answered, "answered", len(failed), "failed", sum(it.is_alive() for it in threads), "left")


def test_sets():
    kept, told = [], 0
    for client, served in pairs(SETS):
        own = select.epoll()
        own.register(served, select.EPOLLIN)
        kept.append((client, served, own))
    for client, served, own in kept:
        client.sendall(b"x")
        told += own.poll(PATIENCE) == [(served.fileno(), select.EPOLLIN)]
    (one, two), (three, four) = pairs(2)
    both = select.poll()
    both.register(one, select.POLLIN)
    both.register(three, select.POLLIN)
    threading.Timer(0.1, four.sendall, (b"x",)).start()
    print("sets", told, "told", both.poll(1000 * PATIENCE) == [(three.fileno(), select.POLLIN)])
    for it in kept:
        for closed in it:
            closed.close()


def test_a_crowd_at_one_socket():
    """All wait for the same one, and something else; nobody takes what arrives until all have seen it."""
    shared = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    shared.bind((HOST, 0))
    saw = []

    def work(other):
        both = select.poll()
        both.register(shared, select.POLLIN)
        both.register(other, select.POLLIN)
        saw.append(both.poll(1000 * PATIENCE) == [(shared.fileno(), select.POLLIN)])

    others = list(pairs(CROWD))
    threads, failed = start(work, [(served,) for _, served in others])
    # Who comes late sees what is there, so all are to be asleep.
    time.sleep(0.5)
    socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"x", shared.getsockname())
    for thread in threads:
        thread.join(PATIENCE)
    print("crowd", saw.count(True), "saw it", len(failed), "failed")


if __name__ == "__main__":
    threading.stack_size(256 << 10)
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
    for name, test in list(globals().items()):
        if name.startswith("test_"):
            test()
