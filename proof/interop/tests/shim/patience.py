"""How long a program waits for a peer whose program has stopped: TCP_USER_TIMEOUT and keepalive, set before the text and while it waits."""
import errno, os, select, signal, socket, sys

HOST = sys.argv[1]
TCP = socket.IPPROTO_TCP


def told(call, *arguments):
    try:
        return call(*arguments)
    except OSError as error:
        return errno.errorcode[error.errno]


class Peer:
    """A connection with another program, which reads all that comes."""

    def __init__(self):
        reader, writer = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            listener = socket.create_server((HOST, 0))
            os.write(writer, b"%d" % listener.getsockname()[1])
            one, _ = listener.accept()
            while (text := told(one.recv, 1 << 20)) and isinstance(text, bytes):
                if text.endswith(b"?"):
                    one.sendall(b"!")
            os._exit(0)
        self.sock = socket.create_connection((HOST, int(os.read(reader, 9))))
        self.asks()

    def asks(self):
        """The peer has read all: after some turns the two may be fused."""
        for _ in range(100):
            self.sock.sendall(b"?")
            assert self.sock.recv(9) == b"!"

    def stop(self):
        os.kill(self.pid, signal.SIGSTOP)
        self.fill()

    def fill(self):
        self.sock.setblocking(False)
        # There may be room for more a moment later.
        while self.waits(0.2) != []:
            told(self.sock.send, bytes(65536))

    def waits(self, seconds, events=select.POLLOUT):
        poll = select.poll()
        poll.register(self.sock, events)
        return [hex(events) for _, events in poll.poll(seconds * 1000)]

    def set(self, name, value):
        self.sock.setsockopt(TCP, name, value)

    def end(self):
        os.kill(self.pid, signal.SIGCONT)
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        self.sock.close()


def keeps_alive(peer):
    for name, value in ((socket.TCP_KEEPIDLE, 1), (socket.TCP_KEEPINTVL, 1), (socket.TCP_KEEPCNT, 1)):
        peer.set(name, value)
    peer.sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)


def is_told(when):
    peer = Peer()
    if when == "before":
        peer.set(socket.TCP_USER_TIMEOUT, 1000)
        peer.asks()
    peer.stop()
    if when != "before":
        peer.set(socket.TCP_USER_TIMEOUT, 1000)
        # Text may go another way from here on, where there is room.
        peer.fill()
    print(when, peer.waits(10), told(peer.sock.send, b"x"), told(peer.sock.recv, 1))
    peer.end()


def has_taken_it_back():
    peer = Peer()
    peer.set(socket.TCP_USER_TIMEOUT, 1000)
    peer.asks()
    peer.set(socket.TCP_USER_TIMEOUT, 0)
    peer.asks()
    peer.stop()
    print("not any more", peer.waits(3))
    peer.end()


def is_alive():
    peer = Peer()
    keeps_alive(peer)
    os.kill(peer.pid, signal.SIGSTOP)
    print("silent", peer.waits(3, select.POLLIN))
    os.kill(peer.pid, signal.SIGCONT)
    peer.stop()
    print("full", peer.waits(3))
    os.kill(peer.pid, signal.SIGCONT)
    print("goes on", peer.waits(3))
    peer.sock.setblocking(True)
    peer.asks()
    peer.end()


# All wait at once, each in a process of its own.
waiting = []
for case in (lambda: is_told("before"), lambda: is_told("while it waits"), has_taken_it_back, is_alive):
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.dup2(writer, 1)
        case()
        sys.stdout.flush()
        os._exit(0)
    os.close(writer)
    waiting.append((pid, reader))
for pid, reader in waiting:
    with os.fdopen(reader) as said:
        print(said.read(), end="")
    assert os.waitpid(pid, 0)[1] == 0
