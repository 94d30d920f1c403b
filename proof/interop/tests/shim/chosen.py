"""What options of streams bring about: a line for each case, which is the kernel's too."""
import errno, select, socket, struct, sys, time

HOST = sys.argv[1]
SOCKET, TCP, IP, IPV6 = socket.SOL_SOCKET, socket.IPPROTO_TCP, socket.IPPROTO_IP, socket.IPPROTO_IPV6
SNDLOWAT, SNDBUFFORCE, FASTOPEN = 19, 32, 23
OPTIONS, PKTINFO, RECVTTL, RECVERR = 4, 8, 12, 11
RECVERR_6, MSG_ERRQUEUE = 25, 0x2000


def tried(call, *arguments):
    try:
        return call(*arguments)
    except OSError as error:
        return errno.errorcode[error.errno]


def is_ready(sock, seconds, what=select.POLLIN):
    poll = select.poll()
    poll.register(sock, what)
    return bool(poll.poll(seconds * 1000))


def listener(*options, later=()):
    sock = socket.socket()
    for option in options:
        sock.setsockopt(*option)
    sock.bind((HOST, 0))
    sock.listen()
    for option in later:
        sock.setsockopt(*option)
    return sock


def pair(passive, *options):
    active = socket.socket()
    for option in options:
        active.setsockopt(*option)
    active.connect(passive.getsockname())
    return active, passive.accept()[0]


def deferred():
    defer = (TCP, socket.TCP_DEFER_ACCEPT, 5)
    for name, passive in (("before", listener(defer)), ("after", listener(later=[defer]))):
        client = socket.create_connection(passive.getsockname())
        print(f"deferred, set {name} listen", passive.getsockopt(*defer[:2]), is_ready(passive, 0.2))
        client.sendall(b"at last")
        print("with text", is_ready(passive, 5), passive.accept()[0].recv(100))
        gone = socket.create_connection(passive.getsockname())
        gone.close()
        print("with an end", is_ready(passive, 5), passive.accept()[0].recv(100))
    passive = listener((TCP, socket.TCP_DEFER_ACCEPT, 1))
    client = socket.create_connection(passive.getsockname())
    print("a second", is_ready(passive, 0.5), is_ready(passive, 5))
    server = passive.accept()[0]
    server.sendall(b"you first")
    print("and then", client.recv(100))


def segments():
    limit = (TCP, socket.TCP_MAXSEG, 700)
    for name, ends in (("client's", pair(listener(), limit)), ("listener's", pair(listener(limit)))):
        sizes = [end.getsockopt(*limit[:2]) <= 700 for end in ends]
        for one, other in (ends, ends[::-1]):
            one.sendall(bytes(100_000))
            left = 100_000
            while left:
                left -= len(other.recv(left))
        print(f"the {name} largest segment", sizes)
    fresh = socket.socket()
    print([tried(fresh.setsockopt, *limit[:2], size) for size in (87, 32768, 88, 0)])


def inherited():
    later = [(SOCKET, socket.SO_KEEPALIVE, 1), (TCP, socket.TCP_KEEPIDLE, 77), (TCP, socket.TCP_NODELAY, 1),
             (TCP, socket.TCP_LINGER2, 9), (TCP, socket.TCP_SYNCNT, 3), (TCP, socket.TCP_USER_TIMEOUT, 5000)]
    _, server = pair(listener(later=later))
    print("inherited", [server.getsockopt(*option[:2]) for option in later])


def kept():
    client, server = pair(listener())
    for level, name in ((IP, RECVTTL), (IP, PKTINFO), (IP, socket.IP_MULTICAST_LOOP), (SOCKET, SNDLOWAT)):
        before = client.getsockopt(level, name)
        print("kept", level, name, before, tried(client.setsockopt, level, name, 1 - before),
              client.getsockopt(level, name))
    print("no options of IP", client.getsockopt(IP, OPTIONS, 40), tried(client.setsockopt, IP, OPTIONS, b""))
    print("fast open", tried(client.setsockopt, TCP, FASTOPEN, 5), tried(listener().setsockopt, TCP, FASTOPEN, 5),
          tried(listener().setsockopt, TCP, FASTOPEN, -1))
    print("by force", tried(client.setsockopt, SOCKET, SNDBUFFORCE, 40000), client.getsockopt(SOCKET, socket.SO_SNDBUF))
    ends = [(TCP, socket.TCP_LINGER2, -7), (TCP, socket.TCP_LINGER2, 500), (TCP, socket.TCP_SYNCNT, 0),
            (TCP, socket.TCP_SYNCNT, 128), (TCP, socket.TCP_DEFER_ACCEPT, -1), (TCP, socket.TCP_DEFER_ACCEPT, 16)]
    for option in ends:
        fresh = socket.socket()
        print("bounds", option, tried(fresh.setsockopt, *option), option[1] == socket.TCP_SYNCNT or fresh.getsockopt(*option[:2]))
    datagram = socket.socket(type=socket.SOCK_DGRAM)
    datagram.setsockopt(SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 5))
    datagram.setsockopt(SOCKET, socket.SO_KEEPALIVE, 1)
    print("datagrams", datagram.getsockopt(SOCKET, socket.SO_LINGER, 8), datagram.getsockopt(SOCKET, socket.SO_KEEPALIVE))
    datagram.setsockopt(IP, socket.IP_MULTICAST_IF, socket.inet_aton(HOST))
    print("by", datagram.getsockopt(IP, socket.IP_MULTICAST_IF, 4) == socket.inet_aton(HOST))


def clamped():
    clamp = (TCP, socket.TCP_WINDOW_CLAMP)
    for most in (0, 1, -5, 1151, 1152, 5000, 1 << 30):
        fresh = socket.socket()
        print("clamp", most, fresh.getsockopt(*clamp), tried(fresh.setsockopt, *clamp, most), fresh.getsockopt(*clamp),
              tried(fresh.setsockopt, *clamp, 0), fresh.getsockopt(*clamp))
    for name, ends in (("client's", pair(listener(), (*clamp, 20_000))), ("listener's", pair(listener((*clamp, 20_000)))[::-1])):
        print(f"the {name} clamp", ends[0].getsockopt(*clamp), ends[1].getsockopt(*clamp) > 20_000)
        print("on a connection", [(tried(ends[0].setsockopt, *clamp, most), ends[0].getsockopt(*clamp)) for most in (0, -1, 9000, 0)])
        # After this Linux tells another clamp: its own right-sizing of the buffer forgets it.
        ends[1].sendall(bytes(50_000))
        left = 50_000
        while left:
            left -= len(ends[0].recv(left))
    passive = listener((*clamp, 9000))
    print("a listener", tried(passive.setsockopt, *clamp, 0), passive.getsockopt(*clamp))
    print("datagrams", tried(socket.socket(type=socket.SOCK_DGRAM).setsockopt, *clamp, 9000))


def told_of_errors():
    for family in (socket.AF_INET, socket.AF_INET6):
        fresh = socket.socket(family)
        for level, name in ((IP, RECVERR), (IPV6, RECVERR_6)):
            print("errors", family.name, level, tried(fresh.getsockopt, level, name), tried(fresh.setsockopt, level, name, 3),
                  tried(fresh.getsockopt, level, name), tried(fresh.setsockopt, level, name, 0), tried(fresh.getsockopt, level, name))
    client, server = pair(listener((IP, RECVERR, 1)), (IP, RECVERR, 1))
    for end in (client, server):
        print("errors", end.getsockopt(IP, RECVERR), tried(end.recv, 9, MSG_ERRQUEUE), tried(end.recv, 9, MSG_ERRQUEUE | socket.MSG_DONTWAIT),
              end.getsockopt(SOCKET, socket.SO_ERROR), is_ready(end, 0))
    client.sendall(b"all is well")
    print("errors", server.recv(99), tried(socket.socket().recv, 9, MSG_ERRQUEUE))
    nobody = socket.socket()
    nobody.setsockopt(IP, RECVERR, 1)
    print("errors", tried(nobody.connect, (HOST, 9)), tried(nobody.recv, 9, MSG_ERRQUEUE))


deferred()
segments()
clamped()
told_of_errors()
inherited()
kept()
