"""A mark, the CPU of what arrives, and addresses that are nobody's as yet: a line for each answer, which is the kernel's too."""
import errno, os, socket, sys

HOST = sys.argv[1]
SOCKET, IP, IPV6 = 1, 0, 41
MARK, CPU, NAPI = (SOCKET, 36), (SOCKET, 49), (SOCKET, 56)
STREAM, DATAGRAM = socket.SOCK_STREAM, socket.SOCK_DGRAM
FREE, NO_PORT = {socket.AF_INET: (IP, 15), socket.AF_INET6: (IPV6, 78)}, (IP, 24)
# Nobody has these.
STRANGE = {socket.AF_INET: "10.99.0.77", socket.AF_INET6: "fd99::77"}


def tried(call, *arguments):
    try:
        return call(*arguments)
    except OSError as error:
        return errno.errorcode[error.errno]


def marks():
    for kind in STREAM, DATAGRAM:
        sock = socket.socket(type=kind)
        before = sock.getsockopt(*MARK)
        told = [(tried(sock.setsockopt, *MARK, value), sock.getsockopt(*MARK)) for value in (5, -1, 0)]
        print("mark", before, told, tried(sock.setsockopt, *MARK, b"12"))
    passive = socket.create_server((HOST, 0))
    passive.setsockopt(*MARK, 7)
    client = socket.create_connection(passive.getsockname())
    print("a listener's", passive.accept()[0].getsockopt(*MARK), client.getsockopt(*MARK))
    if os.fork() == 0:
        os.setuid(65534)
        for kind in STREAM, DATAGRAM:
            print("others", tried(socket.socket(type=kind).setsockopt, *MARK, 5), flush=True)
        os._exit(0)
    os.wait()


def cpus():
    for kind in STREAM, DATAGRAM:
        sock = socket.socket(type=kind)
        print("new", sock.getsockopt(*CPU), sock.getsockopt(*NAPI), tried(sock.setsockopt, *NAPI, 1))
    passive = socket.create_server((HOST, 0))
    client = socket.create_connection(passive.getsockname())
    server = passive.accept()[0]
    server.sendall(b"text")
    print("a connection", client.recv(9), 0 <= client.getsockopt(*CPU) < 4096)


def freely():
    for family, host in STRANGE.items():
        for kind in STREAM, DATAGRAM:
            sock = socket.socket(family, kind)
            print("strange", host, sock.getsockopt(*FREE[family]), tried(sock.bind, (host, 7070)))
            sock.setsockopt(*FREE[family], 1)
            print("free", sock.getsockopt(*FREE[family]), tried(sock.bind, (host, 7070)), sock.getsockname()[:2] == (host, 7070))
            print("again", tried(sock.bind, (host, 7071)), kind == STREAM and tried(sock.listen))
            other = socket.socket(family, kind)
            other.setsockopt(*FREE[family], 1)
            print("another", tried(other.bind, (host, 7070)), tried(other.bind, (host, 0)), other.getsockname()[1] > 0)
    sock = socket.socket()
    sock.setsockopt(*FREE[socket.AF_INET], 1)
    sock.setsockopt(*NO_PORT, 1)
    print("without a port", tried(sock.bind, (STRANGE[socket.AF_INET], 0)), sock.getsockname()[1])
    sock = socket.socket()
    sock.setsockopt(*FREE[socket.AF_INET], 1)
    sock.setsockopt(*FREE[socket.AF_INET], 0)
    print("no more", tried(sock.bind, (STRANGE[socket.AF_INET], 0)))


marks()
cpus()
freely()
