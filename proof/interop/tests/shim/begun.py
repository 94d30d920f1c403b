"""Connections of a program that has made some before: what `connect` says, and what the connection is then."""
import ctypes, errno, os, select, socket, sys, threading

HOST = sys.argv[1]
LIBC = ctypes.CDLL(None, use_errno=True)


def told(error):
    return errno.errorcode.get(error, error)


def connected(listener):
    one = socket.create_connection(listener.getsockname())
    return one, listener.accept()[0]


def fresh():
    return socket.create_server((HOST, 0), backlog=64)


def refused_by_who_has_closed():
    """Each way of closing, and the next connection finds nobody."""
    ways = [lambda it: it.close(), lambda it: it.shutdown(socket.SHUT_RDWR), lambda it: os.dup2(0, it.fileno())]
    for cycle in range(30):
        listener = fresh()
        address = listener.getsockname()
        [end.close() for end in connected(listener)]
        ways[cycle % 3](listener)
        with socket.socket() as late:
            print("refused", cycle, told(late.connect_ex(address)))
        listener.close()


def found_at_once():
    """Who is connected, and listens there too, does not wait for the connection."""
    with fresh() as listener:
        listener.setblocking(False)
        for _ in range(300):
            one = socket.create_connection(listener.getsockname())
            two, whence = listener.accept()
            assert whence == one.getsockname() == two.getpeername(), (whence, one, two)
            assert one.getpeername() == two.getsockname() == listener.getsockname()
            one.close()
            assert two.recv(1) == b""
            two.close()
    print("found at once")


def closed_before_it_is_there():
    with fresh() as listener:
        for _ in range(60):
            one = socket.socket()
            one.setblocking(False)
            assert one.connect_ex(listener.getsockname()) == errno.EINPROGRESS
            one.close()
            two, _ = listener.accept()
            assert two.recv(1) == b""
            two.close()
    print("closed before it is there")


def outcomes_are_told():
    listener = fresh()
    address = listener.getsockname()
    [end.close() for end in connected(listener)]
    waiting = socket.socket()
    waiting.setblocking(False)
    print("begins", told(waiting.connect_ex(address)))
    print("writable", select.select([], [waiting], [], 10)[1] == [waiting])
    print("outcome", waiting.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR), told(waiting.connect_ex(address)))
    print("once more", told(waiting.connect_ex(address)))
    waiting.close()
    listener.close()
    for _ in range(3):
        waiting = socket.socket()
        waiting.setblocking(False)
        print("begins", told(waiting.connect_ex(address)))
        select.select([], [waiting], [], 10)
        print("outcome", told(waiting.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)))
        waiting.close()


def what_was_set_before_is_there():
    with fresh() as listener:
        for n in range(20):
            one = socket.socket()
            if n % 4 == 0:
                one.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            if n % 4 == 1:
                one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if n % 4 == 2:
                one.bind((HOST, 0))
            bound = one.getsockname()
            one.settimeout(5)
            one.connect(listener.getsockname())
            two, whence = listener.accept()
            one.sendall(b"text")
            assert two.recv(4) == b"text"
            option = lambda level, name: one.getsockopt(level, name) != 0
            print(
                "set", n, option(socket.SOL_SOCKET, socket.SO_KEEPALIVE),
                option(socket.IPPROTO_TCP, socket.TCP_NODELAY), bound == whence,
            )
            one.close()
            two.close()


def urgent_text_is_where_it_is():
    with fresh() as listener:
        for _ in range(10):
            one, two = connected(listener)
            two.sendall(b"ab")
            two.send(b"!", socket.MSG_OOB)
            assert select.select([], [], [one], 10)[2] == [one]
            got = one.recv(10), one.recv(1, socket.MSG_OOB)
            assert got == (b"ab", b"!"), got
            one.close()
            two.close()
    print("urgent")


def other_families_are_refused():
    with fresh() as listener:
        for _ in range(6):
            [end.close() for end in connected(listener)]
        with socket.socket() as one:
            address = socket.AF_INET6.to_bytes(2, "little") + listener.getsockname()[1].to_bytes(2, "big") + bytes(24)
            print("family", LIBC.connect(one.fileno(), address, len(address)), told(ctypes.get_errno()))


def many_at_a_time():
    with fresh() as listener:
        def clients():
            for n in range(40):
                with socket.create_connection(listener.getsockname()) as one:
                    one.sendall(b"%d" % n)
                    assert one.recv(10) == b"%d" % n

        def serve():
            for _ in range(8 * 40):
                two, _ = listener.accept()
                two.sendall(two.recv(10))
                two.close()

        threads = [threading.Thread(target=clients) for _ in range(8)] + [threading.Thread(target=serve)]
        [thread.start() for thread in threads]
        [thread.join() for thread in threads]
    print("many at a time")


def children_begin_their_own():
    with fresh() as listener:
        kept = [connected(listener) for _ in range(10)]
        child = os.fork()
        for n in range(20):
            one, two = connected(listener) if child else (socket.create_connection(listener.getsockname()), None)
            if two:
                two.close()
            one.close()
        if not child:
            os._exit(0)
        for _ in range(20):
            listener.accept()[0].close()
        print("child", os.waitpid(child, 0)[1])
        for one, two in kept:
            one.sendall(b"kept")
            assert two.recv(4) == b"kept"


for case in [
    refused_by_who_has_closed, found_at_once, closed_before_it_is_there, outcomes_are_told,
    what_was_set_before_is_there, urgent_text_is_where_it_is, other_families_are_refused, many_at_a_time,
    children_begin_their_own,
]:
    case()
