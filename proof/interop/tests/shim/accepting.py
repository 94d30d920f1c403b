"""Every way to wait for a listener and to take its connections, a line for each case, which is the kernel's too."""
import array, errno, os, select, signal, socket, sys, threading, time

HOST = sys.argv[1]
IN, ET, ONCE, EXCLUSIVE = select.EPOLLIN, select.EPOLLET, select.EPOLLONESHOT, select.EPOLLEXCLUSIVE


def listener(blocking=True):
    made = socket.socket()
    made.bind((HOST, 0))
    made.listen(128)
    made.setblocking(blocking)
    return made


def connect(to, count=1):
    return [socket.create_connection(to.getsockname(), timeout=20) for _ in range(count)]


def taken(passive, clients, what):
    """All are taken, in their order, with their names, and are connections."""
    for client in clients:
        made, name = passive.accept()
        assert name == client.getsockname(), (name, client.getsockname())
        made.setblocking(True)
        made.sendall(b"hello")
        assert client.recv(5, socket.MSG_WAITALL) == b"hello"
        made.close()
        client.close()
    print(what, len(clients))


def attempt(call, what):
    try:
        print(what, call() is not None)
    except OSError as error:
        print(what, errno.errorcode[error.errno])


def later(passive, count=1):
    """Connects from another thread, when this one is asleep."""
    made = []
    thread = threading.Thread(target=lambda: (time.sleep(0.05), made.extend(connect(passive, count))))
    thread.start()
    return thread, made


def plain():
    with listener() as passive:
        taken(passive, connect(passive, 3), "before accept")
        thread, made = later(passive)
        peer = passive.accept()[0]
        thread.join()
        print("while it waits", peer.getpeername() == made[0].getsockname())
        # More than there is room for in memory.
        taken(passive, connect(passive, 100), "many")
        taken(passive, connect(passive, 40), "and again")
        passive.setblocking(False)
        attempt(passive.accept, "none is left")
        passive.settimeout(0.05)
        try:
            passive.accept()
        except TimeoutError:
            print("none in time")
        passive.settimeout(20)
        thread, made = later(passive)
        peer = passive.accept()[0]
        thread.join()
        print("in time", peer.getpeername() == made[0].getsockname())


def looked_at():
    with listener(False) as passive:
        poll = select.poll()
        poll.register(passive, select.POLLIN | select.POLLOUT)
        print("poll", poll.poll(0), select.select([passive], [passive], [], 0))
        clients = connect(passive, 2)
        print("poll", [events for _, events in poll.poll(20_000)], len(select.select([passive], [], [], 20)[0]))
        taken(passive, clients, "polled")
        print("poll", poll.poll(0), select.select([passive], [], [], 0))
        thread, made = later(passive)
        print("asleep", [events for _, events in poll.poll(20_000)])
        thread.join()
        taken(passive, made, "after the sleep")
        thread, made = later(passive)
        print("asleep", len(select.select([passive], [], [], 20)[0]))
        thread.join()
        taken(passive, made, "after the sleep")


def sets():
    for what, asked in (("level", IN), ("exclusive", IN | EXCLUSIVE), ("edge", IN | ET), ("once", IN | ONCE)):
        with listener(False) as passive, select.epoll() as epoll:
            early = connect(passive, 2)
            epoll.register(passive, asked)
            print(what, [events for _, events in epoll.poll(20)], len(epoll.poll(0)))
            taken(passive, early, what)
            print(what, epoll.poll(0))
            thread, made = later(passive)
            if asked & ONCE:
                epoll.modify(passive, asked)
            print(what, [events for _, events in epoll.poll(20)])
            thread.join()
            taken(passive, made, what)
            if not asked & EXCLUSIVE:
                epoll.modify(passive, 0)
                made = connect(passive)
                print(what, epoll.poll(0.05))
                epoll.modify(passive, IN)
                print(what, [events for _, events in epoll.poll(20)])
                taken(passive, made, what)
            epoll.unregister(passive)
            made = connect(passive)
            print(what, epoll.poll(0.05))
            taken(passive, made, what)


def sets_in_sets():
    with listener(False) as passive, select.epoll() as inner, select.epoll() as outer:
        inner.register(passive, IN)
        taken(passive, connect(passive), "before")
        outer.register(inner.fileno(), IN)
        for _ in range(2):
            made = connect(passive)
            print("outer", len(outer.poll(20)), "inner", len(inner.poll(20)))
            taken(passive, made, "nested")
        print(len(select.select([inner], [], [], 0)[0]))
        made = connect(passive)
        print(len(select.select([inner], [], [], 20)[0]))
        taken(passive, made, "in a select")


def one_at_a_time():
    """A listener where connections always wait keeps nobody else from being told."""
    with listener(False) as passive, select.epoll() as epoll:
        clients = connect(passive, 2)
        made = passive.accept()[0]
        epoll.register(passive, IN)
        epoll.register(made, IN)
        clients[0].sendall(b"x")
        seen = {fd for _ in range(40) for fd, _ in epoll.poll(20, 1)}
        print("told", seen == {passive.fileno(), made.fileno()})


def threads():
    with listener() as passive:
        got, lock = [], threading.Lock()

        def serve():
            while True:
                made, name = passive.accept()
                with lock:
                    got.append(name)
                made.close()
                if name[1] == quits.getsockname()[1]:
                    return

        quits = socket.socket()
        quits.bind((HOST, 0))
        servers = [threading.Thread(target=serve, daemon=True) for _ in range(4)]
        for server in servers:
            server.start()
        names = []
        for _ in range(200):
            client = connect(passive)[0]
            names.append(client.getsockname())
            client.close()
        deadline = time.monotonic() + 20
        while len(got) < 200 and time.monotonic() < deadline:
            time.sleep(0.001)
        print("each is had by one thread", sorted(got) == sorted(names))
        quits.connect(passive.getsockname())


def children():
    """Children take what waits for their parent, and whoever is killed while he waits keeps nobody else's connections."""
    with listener() as passive:
        waiting = connect(passive, 3)
        made, name = passive.accept()
        print("parent", name == waiting[0].getsockname())
        out = socket.socketpair(type=socket.SOCK_SEQPACKET)
        child = os.fork()
        if child == 0:
            made, name = passive.accept()
            out[1].sendall(repr(name).encode())
            passive.accept()
            out[1].sendall(b"second")
            passive.accept()
            os._exit(1)
        print("child", out[0].recv(100).decode() == repr(waiting[1].getsockname()), out[0].recv(6))
        time.sleep(0.05)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        taken(passive, connect(passive, 3), "after the child's end")


def children_in_a_set():
    """What a child does with its copy of a set and a listener changes nothing for its parent, who waits for edges."""
    with listener(False) as passive, select.epoll() as epoll:
        epoll.register(passive, IN | ET)
        taken(passive, connect(passive), "parent")
        child = os.fork()
        if child == 0:
            epoll.poll(0.01)
            passive.close()
            os._exit(0)
        os.waitpid(child, 0)
        epoll.poll(0)
        for _ in range(2):
            made = connect(passive)
            print("edge", [events for _, events in epoll.poll(5)])
            taken(passive, made, "told")


def children_with_sets():
    """Processes that wait for one listener, each in a set of its own, are all told; whoever is killed meanwhile leaves it to the others."""
    with listener(False) as passive:
        out = socket.socketpair(type=socket.SOCK_SEQPACKET)
        children = []
        for nth in range(2):
            child = os.fork()
            if child == 0:
                with select.epoll() as epoll:
                    epoll.register(passive, IN)
                    out[1].sendall(b"ready")
                    while epoll.poll(20):
                        try:
                            made = passive.accept()[0]
                        except BlockingIOError:
                            continue
                        out[1].sendall(b"%d" % os.getpid())
                        made.setblocking(True)
                        made.sendall(b"hello")
                        made.close()
                os._exit(0)
            children.append(child)
        print("both", [out[0].recv(5) for _ in children])

        def served(count):
            clients = [client for _ in range(count) for client in connect(passive)]
            hellos = [client.recv(5, socket.MSG_WAITALL) for client in clients]
            [client.close() for client in clients]
            return hellos.count(b"hello"), {int(out[0].recv(20)) for _ in clients}

        def stop(child):
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)

        count, by = served(60)
        print("served", count, by <= set(children))
        time.sleep(0.05)
        stop(children[0])
        print("by the other", served(20) == (20, {children[1]}))
        # What arrives while he does not run waits for whoever comes.
        os.kill(children[1], signal.SIGSTOP)
        os.waitpid(children[1], os.WUNTRACED)
        waiting = connect(passive, 3)
        stop(children[1])
        taken(passive, waiting, "by the parent")


def child_in_the_set():
    """A child waits in its parent's set, while the parent does, too."""
    with listener(False) as passive, select.epoll() as epoll:
        epoll.register(passive, IN)
        taken(passive, connect(passive), "parent")
        out = socket.socketpair()
        child = os.fork()
        if child == 0:
            for _ in range(3):
                epoll.poll(0.02)
            out[1].sendall(b"x")
            out[1].recv(1)
            os._exit(0)
        thread, made = later(passive)
        print("level", [events for _, events in epoll.poll(20)])
        thread.join()
        taken(passive, made, "told")
        out[0].recv(1)
        for _ in range(2):
            made = connect(passive)
            print("level", [events for _, events in epoll.poll(20)])
            taken(passive, made, "told")
        out[0].sendall(b"x")
        os.waitpid(child, 0)


def threads_in_a_set():
    """Two threads wait in one set, of which each is told of a connection while the other does not come back."""
    with listener(False) as passive, select.epoll() as epoll:
        epoll.register(passive, IN)
        told, goes_on = threading.Semaphore(0), threading.Event()

        def serve():
            while epoll.poll(20):
                told.release()
                goes_on.wait(20)
                try:
                    passive.accept()[0].close()
                except BlockingIOError:
                    pass
                return

        servers = [threading.Thread(target=serve, daemon=True) for _ in range(2)]
        [server.start() for server in servers]
        time.sleep(0.05)
        clients = connect(passive)
        print("one", told.acquire(timeout=20))
        clients += connect(passive)
        print("the other", told.acquire(timeout=20))
        goes_on.set()
        [server.join() for server in servers]
        print("both ended", [client.recv(1) for client in clients])


def copies_in_a_set():
    """Of two copies of a listener in a set one is taken out: the other is still told of."""
    with listener(False) as passive, select.epoll() as epoll:
        copy = passive.dup()
        copy.setblocking(False)
        for fd in passive, copy:
            epoll.register(fd, IN)
        made = connect(passive)
        print("copies", len(epoll.poll(20)) > 0)
        taken(passive, made, "a copy")
        epoll.unregister(copy)
        for _ in range(2):
            thread, made = later(passive)
            print("left", [fd == passive.fileno() for fd, _ in epoll.poll(20)])
            thread.join()
            taken(passive, made, "left")
        copy.close()
        thread, made = later(passive)
        print("alone", [fd == passive.fileno() for fd, _ in epoll.poll(20)])
        thread.join()
        taken(passive, made, "alone")


def passed_on():
    """A process that gets the listener by a message, before and after connections wait."""
    ours, theirs = socket.socketpair()
    child = os.fork()
    if child == 0:
        _, ancillary, _, _ = theirs.recvmsg(1, socket.CMSG_SPACE(4))
        fds = array.array("i")
        fds.frombytes(ancillary[0][2][:4])
        passive = socket.socket(fileno=fds[0])
        for _ in range(3):
            made = passive.accept()[0]
            made.sendall(b"child")
        theirs.recv(1)
        os._exit(0)
    with listener() as passive:
        clients = connect(passive)
        socket.send_fds(ours, [b"x"], [passive.fileno()])
        clients += connect(passive, 2)
        print("passed on", [client.recv(5, socket.MSG_WAITALL) for client in clients])
        clients = connect(passive)
        taken(passive, clients, "and the sender")
        ours.sendall(b"x")
        os.waitpid(child, 0)


def ends():
    passive = listener()
    clients = connect(passive, 2)
    copy = passive.dup()
    passive.close()
    taken(copy, clients, "a copy")
    clients = connect(copy, 2)
    copy.shutdown(socket.SHUT_RDWR)
    attempt(copy.accept, "shut")
    copy.close()
    # A listener that is closed has no connections, and the next one with its number has none of its.
    for _ in range(3):
        passive = listener(False)
        epoll = select.epoll()
        epoll.register(passive, IN)
        clients = connect(passive, 2)
        print("closed", len(epoll.poll(20)))
        number = passive.fileno()
        passive.close()
        other = listener(False)
        print("its number", other.fileno() == number, epoll.poll(0))
        attempt(other.accept, "another listener")
        made = connect(other)
        print("not in the set", epoll.poll(0.05))
        taken(other, made, "the other")
        for client in clients:
            client.settimeout(20)
            attempt(lambda: client.recv(1), "its client")
        epoll.close()
        other.close()


def read_as_a_stream():
    with listener(False) as passive:
        made = connect(passive)
        attempt(lambda: passive.recv(1), "recv")
        attempt(lambda: passive.send(b"x"), "send")
        attempt(lambda: passive.connect((HOST, 1)), "connect")
        taken(passive, made, "still there")


signal.alarm(120)
for case in (plain, looked_at, sets, sets_in_sets, one_at_a_time, children_in_a_set, threads, threads_in_a_set, copies_in_a_set, children, children_with_sets, child_in_the_set, passed_on, ends, read_as_a_stream):
    print(case.__name__, flush=True)
    case()
