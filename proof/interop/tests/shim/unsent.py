"""TCP_NOTSENT_LOWAT: how much is taken and when more may be written, a line for each case, which is the kernel's too."""
import errno, select, socket, sys, threading

HOST = sys.argv[1]
TCP, LOWAT = socket.IPPROTO_TCP, 25
LIMIT = 16_384
MUCH = 3_000_000


def pair(limit=None, by="client"):
    passive = socket.socket()
    passive.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65_536)
    passive.bind((HOST, 0))
    passive.listen()
    active = socket.socket()
    active.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65_536)
    if limit is not None:
        (active if by == "client" else passive).setsockopt(TCP, LOWAT, limit)
    active.connect(passive.getsockname())
    accepted = passive.accept()[0]
    return (active, accepted) if by == "client" else (accepted, active)


def fill(sock):
    """How much it takes until it takes no more for a while."""
    sock.setblocking(False)
    poll, taken = select.poll(), 0
    poll.register(sock, select.POLLOUT)
    while poll.poll(300):
        try:
            taken += sock.send(bytes(50_000))
        except OSError as error:
            assert error.errno == errno.EAGAIN, error
    return taken


def empty(sock, count):
    while count:
        got = len(sock.recv(min(count, 100_000)))
        assert got, "it ended"
        count -= got


def limited():
    (without, _reader), taken = pair(), {}
    usual = fill(without)
    for by in ("client", "listener"):
        writer, reader = pair(LIMIT, by)
        taken[by] = fill(writer)
        edge = select.epoll()
        edge.register(writer, select.EPOLLOUT | select.EPOLLET)
        print(by, writer.getsockopt(TCP, LOWAT), taken[by] < usual / 2, taken[by] > LIMIT, edge.poll(0))
        empty(reader, taken[by])
        print("room again", [events for _, events in edge.poll(5)] == [select.EPOLLOUT])
        again = fill(writer)
        empty(reader, again)
        print("and again", again > LIMIT)


def all_arrives():
    for limit in (1, 100, LIMIT, 1_000_000):
        writer, reader = pair(limit)
        text = bytes(i * 7 % 251 for i in range(MUCH // (100 if limit < LIMIT else 1)))
        thread = threading.Thread(target=lambda: (writer.sendall(text), writer.shutdown(socket.SHUT_WR)))
        thread.start()
        got = bytearray()
        while piece := reader.recv(100_000):
            got += piece
        thread.join()
        print("all", limit, got == text)


def changed():
    writer, reader = pair(LIMIT)
    first = fill(writer)
    writer.setsockopt(TCP, LOWAT, 0)
    more = fill(writer)
    print("lifted", writer.getsockopt(TCP, LOWAT), more > LIMIT)
    writer.setsockopt(TCP, LOWAT, LIMIT)
    print("anew", fill(writer))
    empty(reader, first + more)
    print("and again", fill(writer) > LIMIT)


def bounds():
    fresh = socket.socket()
    print("usual", fresh.getsockopt(TCP, LOWAT))
    for value in (1, 2**31 - 1, -1, 0):
        fresh.setsockopt(TCP, LOWAT, value)
        print("bounds", value, fresh.getsockopt(TCP, LOWAT))


limited()
all_arrives()
changed()
bounds()
