"""splice(2) between pipes and TCP sockets: a line for each case, which is the kernel's too, and bytes that must be whole."""
import ctypes, errno, fcntl, hashlib, os, signal, socket, struct, sys, threading, time

HOST = sys.argv[1]
NONBLOCK, MOVE, MORE = 2, 1, 4
signal.signal(signal.SIGPIPE, signal.SIG_IGN)


def pair():
    listener = socket.create_server((HOST, 0))
    client = socket.create_connection(listener.getsockname())
    server, _ = listener.accept()
    listener.close()
    return client, server


def tried(*arguments, **named):
    try:
        return os.splice(*arguments, **named)
    except OSError as error:
        return errno.errorcode[error.errno]


def soon(what):
    time.sleep(0.1)
    return what()


def later(act):
    thread = threading.Thread(target=lambda: soon(act), daemon=True)
    thread.start()
    return thread


def wrong_calls():
    client, server = pair()
    read, write = os.pipe()
    client.sendall(b"text")
    time.sleep(0.1)
    file = os.memfd_create("file")
    fresh = socket.socket()
    listener = socket.create_server((HOST, 0))
    s = server.fileno()
    os.write(write, b"piped")
    yield "nothing", tried(s, write, 0), tried(s, -1, 0, flags=64)
    yield "flags", tried(s, write, 9, flags=64)
    yield "two sockets", tried(s, client.fileno(), 9)
    yield "a file", tried(s, file, 9), tried(file, s, 9)
    yield "nobody", tried(s, 999, 9), tried(999, s, 9)
    yield "the wrong end", tried(s, read, 9), tried(write, s, 9)
    yield "offsets", tried(s, write, 9, offset_src=0), tried(s, write, 9, offset_dst=0)
    yield "offsets", tried(read, s, 9, offset_src=0), tried(read, s, 9, offset_dst=0)
    yield "offsets", tried(s, read, 9, offset_dst=0), tried(s, file, 9, offset_dst=0)
    yield "fresh", tried(fresh.fileno(), write, 9), tried(read, fresh.fileno(), 9)
    yield "listening", tried(listener.fileno(), write, 9), tried(read, listener.fileno(), 9)
    libc = ctypes.CDLL(None, use_errno=True)
    piece = ctypes.create_string_buffer(struct.pack("PN", ctypes.addressof(ctypes.create_string_buffer(b"text")), 4))

    def called(name, *arguments):
        return libc[name](*arguments) if libc[name](*arguments) >= 0 else errno.errorcode[ctypes.get_errno()]

    yield "tee", called("tee", s, write, 9, 0), called("tee", read, s, 9, 0), called("tee", s, client.fileno(), 9, 0)
    yield "tee", called("tee", fresh.fileno(), write, 9, 0), called("tee", read, listener.fileno(), 9, 0)
    yield "vmsplice", called("vmsplice", s, piece, 1, 0), called("vmsplice", fresh.fileno(), piece, 1, 0)
    yield "still there", server.recv(9), os.read(read, 9)


def what_is_there():
    client, server = pair()
    read, write = os.pipe()
    s = server.fileno()
    client.sendall(b"hello")
    time.sleep(0.1)
    yield "part", tried(s, write, 2), os.read(read, 9)
    yield "all", tried(s, write, 1 << 20, flags=MOVE | MORE), os.read(read, 9)
    server.setblocking(False)
    yield "nothing there", tried(s, write, 9)
    server.setblocking(True)
    later(lambda: client.sendall(b"late"))
    # SPLICE_F_NONBLOCK is about the pipe.
    yield "waits for text", tried(s, write, 9, flags=NONBLOCK), os.read(read, 9)
    server.settimeout(None)
    server.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", 0, 100_000))
    yield "as long as it may", tried(s, write, 9)
    client.shutdown(socket.SHUT_WR)
    time.sleep(0.1)
    yield "the end", tried(s, write, 9)
    os.write(write, b"answer")
    yield "into it", tried(read, s, 3), tried(read, s, 99), client.recv(6, socket.MSG_WAITALL)
    yield "an empty pipe", tried(read, s, 9, flags=NONBLOCK)
    later(lambda: os.write(write, b"x"))
    yield "waits for the pipe", tried(read, s, 9), client.recv(9)
    os.close(write)
    yield "nobody writes", tried(read, s, 9)


def full_ones():
    client, server = pair()
    read, write = os.pipe()
    size = fcntl.fcntl(write, 1032)
    os.write(write, bytes(size))
    client.sendall(b"text")
    time.sleep(0.1)
    s = server.fileno()
    yield "a full pipe", tried(s, write, 9, flags=NONBLOCK)
    fcntl.fcntl(write, fcntl.F_SETFL, os.O_NONBLOCK)
    yield "and one that does not block", tried(s, write, 9)
    fcntl.fcntl(write, fcntl.F_SETFL, 0)
    later(lambda: os.read(read, size))
    yield "waits for room", tried(s, write, 9), os.read(read, 9)
    os.close(read)
    client.sendall(b"more")
    time.sleep(0.1)
    yield "nobody reads", tried(s, write, 9), server.recv(9)
    # A socket that is full takes nothing from the pipe.
    read, write = os.pipe()
    server.setblocking(False)
    try:
        while True:
            server.send(bytes(10_000))
    except BlockingIOError:
        pass
    os.write(write, b"kept")
    yield "a full socket", tried(read, s, 9), os.read(read, 9)


def gone_ones():
    client, server = pair()
    read, write = os.pipe()
    os.write(write, b"kept")
    server.shutdown(socket.SHUT_WR)
    yield "shut", tried(read, server.fileno(), 9), os.read(read, 9)
    os.write(write, b"kept")
    client, server = pair()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    client.close()
    time.sleep(0.1)
    yield "reset", tried(server.fileno(), write, 9), tried(read, server.fileno(), 9), os.read(read, 9)


def a_relay():
    """Megabytes from a socket by a pipe to a socket, in whatever pieces they come."""
    (a, b), (c, d) = pair(), pair()
    data = os.urandom(1 << 16) * 64
    read, write = os.pipe()
    got = hashlib.sha256()

    def sends():
        a.sendall(data)
        a.shutdown(socket.SHUT_WR)

    def relays():
        while count := os.splice(b.fileno(), write, 1 << 20):
            while count:
                count -= os.splice(read, c.fileno(), count)
        c.shutdown(socket.SHUT_WR)

    threads = [threading.Thread(target=act) for act in (sends, relays)]
    [thread.start() for thread in threads]
    while piece := d.recv(1 << 16):
        got.update(piece)
    [thread.join() for thread in threads]
    yield "whole", got.digest() == hashlib.sha256(data).digest()


def datagrams():
    one, other, lone = (socket.socket(type=socket.SOCK_DGRAM) for _ in range(3))
    read, write = os.pipe()
    os.write(write, b"kept")
    yield "to nobody", tried(read, lone.fileno(), 9), os.read(read, 9)
    one.bind((HOST, 0))
    other.bind((HOST, 0))
    one.connect(other.getsockname())
    for text in b"one", b"second", b"", bytes(9000):
        one.send(text)
    s = other.fileno()
    yield "each by itself", [(tried(s, write, most), os.read(read, 10000) == text) for most, text in ((99, b"one"), (2, b"se"))]
    yield "nothing", tried(s, write, 9)
    yield "a long one", tried(s, write, 1 << 16), os.read(read, 10000) == bytes(9000)
    other.setblocking(False)
    yield "none is there", tried(s, write, 9)
    other.setblocking(True)
    later(lambda: one.send(b"late"))
    yield "waits", tried(s, write, 9), os.read(read, 9)
    for text in b"ab", b"cd":
        os.write(write, text)
    yield "what is there", tried(read, one.fileno(), 3), other.recv(9), tried(read, one.fileno(), 9), other.recv(9)
    os.write(write, bytes(20000))
    yield "a long one", tried(read, one.fileno(), 1 << 16), other.recv(1 << 16) == bytes(20000)
    os.write(write, b"one ")
    yield "a part", tried(read, one.fileno(), 9, flags=MORE), one.send(b"whole"), other.recv(99)
    os.set_blocking(read, False)
    stream, _peer = pair()
    yield "an empty pipe", tried(read, one.fileno(), 9), tried(read, stream.fileno(), 9)
    os.close(write)
    yield "nobody writes", tried(read, one.fileno(), 9)
    read, write = os.pipe()
    os.close(read)
    one.send(b"kept")
    yield "nobody reads", tried(s, write, 9), other.recv(9)


for case in (wrong_calls, what_is_there, full_ones, gone_ones, a_relay, datagrams):
    for line in case():
        print(case.__name__, *line, flush=True)
