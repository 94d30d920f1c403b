"""Who may be bound to the same port, and who gets what arrives there. The kernel's own sockets pass it, too. Argument: the
address."""
import errno, os, signal, socket, sys, time

HOST = sys.argv[1]
STREAM, DATAGRAM = socket.SOCK_STREAM, socket.SOCK_DGRAM


def made(kind, host, *options):
    one = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, kind)
    for level, name in options:
        one.setsockopt(level, name, 1)
    return one


SPREADS = (socket.SOL_SOCKET, socket.SO_REUSEPORT)
SHARES = (socket.SOL_SOCKET, socket.SO_REUSEADDR)
V6ONLY = (socket.IPPROTO_IPV6, socket.IPV6_V6ONLY)


def bind(kind, host, port, *options):
    """The bound socket, which listens if it can; or why not."""
    one = made(kind, host, *options)
    try:
        one.bind((host, port))
    except OSError as error:
        return error.errno
    if kind == STREAM:
        one.listen()
    one.settimeout(10)
    return one


def test_who_may():
    everybody = ("0.0.0.0", "::", HOST)
    for kind in (STREAM, DATAGRAM):
        for first in [(), (SPREADS,), (SHARES,), (SHARES, SPREADS)]:
            for second in [(), (SPREADS,), (SHARES,), (SHARES, SPREADS)]:
                for here in everybody:
                    for there in everybody:
                        one = bind(kind, here, 0, *first)
                        two = bind(kind, there, one.getsockname()[1], *second)
                        share = SPREADS in first and SPREADS in second
                        share |= kind == DATAGRAM and SHARES in first and SHARES in second
                        case = (kind, first, second, here, there, two)
                        assert share == (two != errno.EADDRINUSE), case
                        one.close(), share and two.close()
        # As nginx does by itself: each family has its own.
        one = bind(kind, "0.0.0.0", 0)
        two = bind(kind, "::", one.getsockname()[1], V6ONLY)
        assert two != errno.EADDRINUSE
        assert bind(kind, "::", one.getsockname()[1], V6ONLY) == errno.EADDRINUSE


def test_options_are_told():
    for kind in (STREAM, DATAGRAM):
        one = made(kind, HOST)
        assert one.getsockopt(*SPREADS) == 0
        one.setsockopt(*SPREADS, 1)
        assert one.getsockopt(*SPREADS) == 1


def children(port, serve):
    """Two processes, each with a socket of its own at the port."""
    pids = []
    for _ in range(2):
        ready, say = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                serve(port, lambda: os.write(say, b"1"))
            finally:
                os._exit(1)
        os.close(say)
        assert os.read(ready, 1) == b"1"
        pids.append(child)
    return pids


def kill(pid):
    os.kill(pid, signal.SIGKILL), os.waitpid(pid, 0)
    time.sleep(0.2)


def test_connections_are_spread():
    first = bind(STREAM, HOST, 0, SPREADS)
    address = first.getsockname()

    def serve(port, ready):
        own = bind(STREAM, HOST, port, SPREADS)
        own.settimeout(None)
        first.close()
        ready()
        while True:
            s, _ = own.accept()
            s.send(str(os.getpid()).encode())
            s.close()

    pids = children(address[1], serve)
    first.close()
    time.sleep(0.1)

    def ask():
        c = socket.create_connection(address)
        answer = c.makefile("rb").read()
        c.close()
        return int(answer)

    assert {ask() for _ in range(60)} == set(pids), "connections are spread"
    kill(pids[0])
    assert {ask() for _ in range(20)} == {pids[1]}, "who is left gets all"
    kill(pids[1])
    try:
        socket.create_connection(address)
        raise AssertionError("nobody is left")
    except ConnectionRefusedError:
        pass
    bind(STREAM, HOST, address[1], SPREADS).close()


def accepted(listener):
    """All that wait for a listener which does not block."""
    while True:
        try:
            yield listener.accept()[0]
        except BlockingIOError:
            return


def test_one_program_has_many():
    listeners = [bind(STREAM, HOST, 0, SPREADS)]
    address = listeners[0].getsockname()
    listeners += [bind(STREAM, HOST, address[1], SPREADS) for _ in range(3)]
    for one in listeners:
        one.setblocking(False)
    clients = [socket.create_connection(address) for _ in range(80)]
    time.sleep(0.3)
    counts = []
    for one in listeners:
        served = list(accepted(one))
        counts.append(len(served))
        for s in served:
            s.close()
    assert sum(counts) == len(clients) and min(counts) > 0, counts
    # What waits for one that closes is reset, and nobody else's.
    clients = [socket.create_connection(address) for _ in range(40)]
    time.sleep(0.3)
    listeners.pop().close()
    time.sleep(0.2)
    for one in listeners:
        for s in accepted(one):
            s.send(b"served"), s.close()
    ends = []
    for c in clients:
        c.settimeout(10)
        try:
            ends.append(c.recv(99))
        except ConnectionResetError:
            ends.append("reset")
    assert set(ends) == {b"served", "reset"}, ends


def test_datagrams_are_spread():
    first = bind(DATAGRAM, HOST, 0, SPREADS)
    address = first.getsockname()

    def serve(port, ready):
        own = bind(DATAGRAM, HOST, port, SPREADS)
        own.settimeout(None)
        first.close()
        ready()
        while True:
            _, peer = own.recvfrom(99)
            own.sendto(str(os.getpid()).encode(), peer)

    pids = children(address[1], serve)
    first.close()
    time.sleep(0.1)
    askers = [bind(DATAGRAM, HOST, 0) for _ in range(40)]

    def ask(asker):
        asker.sendto(b"?", address)
        return int(asker.recv(99))

    answers = [ask(asker) for asker in askers]
    assert set(answers) == set(pids), "datagrams are spread"
    assert answers == [ask(asker) for asker in askers], "a peer stays with one"
    kill(pids[0])
    again = [ask(asker) for asker in askers]
    assert set(again) == {pids[1]}
    kill(pids[1])


if __name__ == "__main__":
    for name, test in list(globals().items()):
        if name.startswith("test_"):
            test()
            print(name, "good", flush=True)
