"""What is seldom asked: reads of nothing, sets of epoll three deep, copies of what a set has, and how long `recvmmsg` has left."""
import ctypes, errno, os, select, socket, struct, sys, threading, time

HOST = sys.argv[1]
LIBC = ctypes.CDLL(None, use_errno=True)
listener = socket.create_server((HOST, 0), backlog=64)
GOOD = listener.getsockname()


def told(call, *arguments):
    try:
        return call(*arguments)
    except OSError as error:
        return errno.errorcode[error.errno]


def pair():
    one = socket.create_connection(GOOD)
    return one, listener.accept()[0]


def counts(*sets):
    return [len(one.poll(0)) for one in sets]


def nothing():
    one, _ = pair()
    udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    udp.bind((HOST, 0))
    udp.sendto(b"", udp.getsockname())
    for what, it in [("stream", one), ("listener", listener), ("fresh", socket.socket()), ("datagrams", udp)]:
        fd = it.fileno()
        print("nothing of", what, told(os.read, fd, 0), told(os.readv, fd, []), told(os.readv, fd, [bytearray()]), told(os.writev, fd, []))
    print("left", udp.recvfrom(9)[0])


def many(count, flags, limit, later):
    """recvmmsg of `count`, while `later` datagrams come one each 0.2 seconds."""
    one, other = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(2)]
    one.bind((HOST, 0))
    room = ctypes.create_string_buffer(64)
    piece = struct.pack("QQ", ctypes.addressof(room), 64)
    pieces = ctypes.create_string_buffer(piece)
    header = struct.pack("QIIQQQQiiIi", 0, 0, 0, ctypes.addressof(pieces), 1, 0, 0, 0, 0, 0, 0)
    messages = ctypes.create_string_buffer(header * count)
    time_left = ctypes.create_string_buffer(struct.pack("qq", *limit))

    def send():
        for _ in range(later):
            other.sendto(b"x", one.getsockname())
            time.sleep(0.2)

    thread = threading.Thread(target=send)
    thread.start()
    time.sleep(0.1)
    ctypes.set_errno(0)
    got = LIBC.recvmmsg(one.fileno(), messages, count, flags, time_left)
    left = struct.unpack("qq", time_left.raw[:16])
    thread.join()
    return got, errno.errorcode.get(ctypes.get_errno()), "all" if left == limit else "none" if left == (0, 0) else "some"


def deep():
    for how in (0, select.EPOLLET):
        one, other = pair()
        inner, outer, top = [select.epoll() for _ in range(3)]
        inner.register(one, select.EPOLLIN | how)
        outer.register(inner, select.EPOLLIN)
        top.register(outer, select.EPOLLIN)
        poll = select.poll()
        poll.register(top, select.POLLIN)
        said = [counts(top, outer), len(poll.poll(0))]
        other.send(b"x")
        said += [len(top.poll(2)), len(poll.poll(0)), counts(top, outer, inner), one.recv(1), counts(inner, top), len(poll.poll(0))]
        reader, writer = os.pipe()
        inner.register(reader, select.EPOLLIN)
        os.write(writer, b"x")
        said += [counts(top, outer, inner), len(poll.poll(0)), os.read(reader, 1), counts(top, outer)]
        print("deep", how, *said)


def copies():
    one = socket.socket()
    copy = one.dup()
    given = select.epoll()
    given.register(copy, select.EPOLLIN | select.EPOLLOUT)
    said = [counts(given)]
    one.connect(GOOD)
    other = listener.accept()[0]
    said += [len(given.poll(1)), given.unregister(copy), counts(given)]
    print("connected by a copy", *said)
    one = socket.socket()
    one.bind((HOST, 0))
    given.register(one, select.EPOLLIN)
    copy = one.dup()
    copy.listen()
    client = socket.create_connection(one.getsockname())
    print("listens by a copy", [events for _, events in given.poll(1)], given.unregister(one), counts(given))
    given.register(client, select.EPOLLIN | select.EPOLLOUT)
    copy = client.dup()
    print("copied later", len(given.poll(1)), given.modify(client, select.EPOLLOUT), len(given.poll(1)), given.unregister(client), counts(given))


nothing()
for case in [
    (4, 0, (0, 250_000_000), 5), (2, 0, (5, 0), 2), (4, socket.MSG_DONTWAIT, (3, 0), 1), (4, 0x10000, (2, 0), 1), (4, socket.MSG_DONTWAIT, (1, 0), 0),
    (1, 0, (0, 1_000_000_000), 0), (1, 0, (-1, 0), 0), (1, 0, (0, 0), 1),
]:
    print("many", case, *many(*case))
deep()
copies()
