"""What a program does to a socket before it connects and that asks nobody: it is as it was set, for whoever has the socket by now."""
import array, errno, os, socket, subprocess, sys

HOST = sys.argv[1]
SOL, TCP, IP = socket.SOL_SOCKET, socket.IPPROTO_TCP, socket.IPPROTO_IP
FLAGS = [(SOL, socket.SO_REUSEADDR), (SOL, socket.SO_KEEPALIVE), (TCP, socket.TCP_NODELAY), (SOL, socket.SO_OOBINLINE)]
NUMBERS = [
    (SOL, socket.SO_SNDBUF, 40_000), (SOL, socket.SO_RCVBUF, 50_000), (TCP, socket.TCP_KEEPIDLE, 60), (TCP, socket.TCP_KEEPINTVL, 7),
    (TCP, socket.TCP_KEEPCNT, 3), (TCP, socket.TCP_USER_TIMEOUT, 30_000), (TCP, socket.TCP_SYNCNT, 4), (IP, socket.IP_TOS, 16),
    (IP, socket.IP_TTL, 33),
]
NO_PORT = 24


def set_all(it):
    for name in FLAGS:
        it.setsockopt(*name, 5)
    for *name, value in NUMBERS:
        it.setsockopt(*name, value)
    return it


def values(it):
    return [it.getsockopt(*name) for name in FLAGS], [it.getsockopt(*name) for *name, _ in NUMBERS]


def tried(call, *arguments):
    try:
        return call(*arguments)
    except OSError as error:
        return errno.errorcode[error.errno]


def fresh():
    return set_all(socket.socket())


listener = socket.create_server((HOST, 0), backlog=64)
# From then on connections are begun by words of blocks that are offered.
for _ in range(8):
    with socket.create_connection(listener.getsockname()) as one:
        listener.accept()[0].close()


def talks(it):
    it.connect(listener.getsockname())
    peer, whence = listener.accept()
    with peer:
        it.sendall(b"text")
        return peer.recv(4), whence == it.getsockname()


for nth in range(4):
    with fresh() as it:
        if nth % 2:
            print("flags", [it.getsockopt(*name) for name in FLAGS])
        print("connected", talks(it), values(it))
with socket.socket() as it:
    print("the next", [it.getsockopt(*name) for name in FLAGS], talks(it), [it.getsockopt(*name) for name in FLAGS])
with fresh() as it:
    it.setsockopt(TCP, socket.TCP_NODELAY, 0)
    it.setsockopt(IP, socket.IP_TOS, 8)
    print("the last word", talks(it), values(it))
for level, name, value in [(TCP, socket.TCP_KEEPIDLE, 0), (TCP, socket.TCP_KEEPCNT, 128), (IP, socket.IP_TTL, 256), (TCP, socket.TCP_USER_TIMEOUT, -1)]:
    with fresh() as it:
        print("refused", tried(it.setsockopt, level, name, value), talks(it), values(it))
with fresh() as it, socket.socket() as nobody:
    nobody.bind((HOST, 0))
    print("nobody there", tried(it.connect, nobody.getsockname()), talks(it), values(it))
with fresh() as it, it.dup() as copy:
    copy.setsockopt(TCP, socket.TCP_KEEPIDLE, 61)
    print("a copy", values(copy), values(it), talks(copy))
with fresh() as it:
    sys.stdout.flush()
    if not os.fork():
        print("a child", values(it))
        it.setsockopt(TCP, socket.TCP_KEEPIDLE, 62)
        sys.stdout.flush()
        os._exit(0)
    os.wait()
    print("its parent", values(it), talks(it))
one, two = socket.socketpair(socket.AF_UNIX)
with fresh() as it:
    one.sendmsg([b"x"], [(SOL, socket.SCM_RIGHTS, array.array("i", [it.fileno()]))])
    with socket.socket(fileno=socket.recv_fds(two, 1, 1)[1][0]) as given:
        print("given away", values(given), talks(given))
SHOW = "import socket, sys; it = socket.socket(fileno=int(sys.argv[1])); print('started', it.getsockopt(6, 1), it.getsockopt(6, 4))"
with fresh() as it:
    words = [sys.executable, "-c", SHOW, str(it.fileno())]
    print(subprocess.run(words, pass_fds=[it.fileno()], stdout=subprocess.PIPE, text=True).stdout, end="")
with fresh() as it:
    it.bind((HOST, 0))
    it.listen()
    with socket.create_connection(it.getsockname()) as client:
        with it.accept()[0] as peer:
            print("listens", [peer.getsockopt(*name) for name in FLAGS], [peer.getsockopt(*name) for *name, _ in NUMBERS[2:]])
for nth in range(6):
    with socket.socket() as it:
        it.setsockopt(SOL, socket.SO_REUSEADDR, 1)
        print("bound", tried(it.bind, ("0.0.0.0", 0)))
        if nth % 3 == 1:
            own = it.getsockname()
            print("has a port", own[0], own[1] != 0, tried(it.bind, ("0.0.0.0", 0)), talks(it), it.getsockname()[1] == own[1])
        elif nth % 3 == 2:
            print("again", tried(it.bind, ("0.0.0.0", 0)), tried(it.bind, (HOST, 0)), it.getsockname()[1] != 0, talks(it))
        else:
            it.setsockopt(TCP, socket.TCP_NODELAY, 1)
            print("connects", talks(it), it.getsockname()[0] == HOST, it.getsockopt(TCP, socket.TCP_NODELAY), it.getsockopt(SOL, socket.SO_REUSEADDR))
with socket.socket() as it:
    it.bind(("0.0.0.0", 0))
    it.listen()
    with socket.create_connection((HOST, it.getsockname()[1])) as client:
        print("bound and listens", it.accept()[1] == client.getsockname())
with socket.socket() as it:
    it.bind(("0.0.0.0", 0))
    it.setsockopt(IP, NO_PORT, 1)
    print("too late for that", it.getsockname()[1] != 0, it.getsockopt(IP, NO_PORT))
with socket.socket() as it:
    it.setsockopt(IP, NO_PORT, 1)
    it.bind(("0.0.0.0", 0))
    print("no port", it.getsockname(), talks(it))
with socket.socket() as it, it.dup() as copy:
    copy.bind(("0.0.0.0", 0))
    print("a bound copy", it.getsockname() == copy.getsockname(), talks(it))
with socket.socket() as it:
    it.bind(("0.0.0.0", 0))
    sys.stdout.flush()
    if not os.fork():
        print("a bound child", it.getsockname()[1] != 0)
        sys.stdout.flush()
        os._exit(0)
    os.wait()
    print("its parent", talks(it))
# Another program, that has the socket of this one.
it = fresh()
os.set_inheritable(it.fileno(), True)
sys.stdout.flush()
os.execv(sys.executable, [sys.executable, "-c", SHOW, str(it.fileno())])
