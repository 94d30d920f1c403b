"""What sockets say of options that change nothing, are about other families' sockets, or are root's: the kernel's answers."""
import errno, os, socket, struct, sys

HOST = sys.argv[1]
SOCKET, IP, IPV6, TCP = 1, 0, 41, 6
STREAM, DATAGRAM = socket.SOCK_STREAM, socket.SOCK_DGRAM
COOKIE = SOCKET, 57
RELEASE = os.uname().release
# Since then Linux takes what is said of peers' rights from sockets of UNIX alone.
IS_RECENT = tuple(int(part) for part in RELEASE.split("-")[0].split(".")[:2]) >= (6, 16)
# Of every socket.
ALL = [("debug", SOCKET, 1), ("bsdcompat", SOCKET, 14), ("peercred", SOCKET, 17), ("wifi status", SOCKET, 41), ("no fcs", SOCKET, 43),
       ("lock filter", SOCKET, 44), ("busy poll", SOCKET, 46), ("peergroups", SOCKET, 59), ("prefer busy poll", SOCKET, 69),
       ("busy poll budget", SOCKET, 70), ("reserve", SOCKET, 73), ("passsec", IP, 18), ("cookie", *COOKIE)]
if IS_RECENT:
    ALL += [("passcred", SOCKET, 16), ("passsec", SOCKET, 34), ("pass pidfd", SOCKET, 76), ("peer pidfd", SOCKET, 77), ("pass rights", SOCKET, 83)]
# Of streams.
STREAMS = [("no check", SOCKET, 11), ("overflows", SOCKET, 40), ("errors wake", SOCKET, 45), ("destination", IP, 20),
           ("thin acks", TCP, 17), ("paths", TCP, 43)]
# Which protocols there are above TCP is a matter of modules.
if not os.path.isdir(f"/lib/modules/{RELEASE}"):
    STREAMS.append(("protocol above", TCP, 31))
STREAMS_V6 = [("destination", IPV6, 74), ("path mtu", IPV6, 60)]
VALUES = (0, 1, 2, 9, 65535, 65536, -1, 0)


def tried(call, *arguments):
    try:
        return call(*arguments)
    except OSError as error:
        return errno.errorcode[error.errno]


def read(sock, level, name, room=64):
    value = tried(sock.getsockopt, level, name, room)
    return value.hex() if isinstance(value, bytes) else value


def told(options):
    for family in socket.AF_INET, socket.AF_INET6:
        for kind in STREAM, DATAGRAM:
            more = STREAMS + (STREAMS_V6 if family == socket.AF_INET6 else []) if kind == STREAM else []
            for what, level, name in options + more:
                sock = socket.socket(family, kind)
                # Numbers of sockets are not the same, but have as many bytes.
                first = read(sock, level, name) if name != 57 else len(read(sock, level, name))
                said = [tried(sock.setsockopt, level, name, value) for value in VALUES]
                one = socket.socket(family, kind)
                tried(one.setsockopt, level, name, 1)
                after = read(one, level, name) if name != 57 else None
                print(family.name, kind.name, what, first, said, after, read(sock, level, name, 2) if name != 57 else read(sock, level, name, 7))
                print(tried(sock.setsockopt, level, name, b"\1"), tried(sock.setsockopt, level, name, b"tls") if name == 31 else "")


def cookies():
    """Each socket has its own for as long as it is, whatever becomes of it; who has a copy of it sees the same."""
    def cookie(sock):
        return struct.unpack("Q", sock.getsockopt(*COOKIE, 8))[0]

    passive = socket.create_server((HOST, 0))
    seen = [cookie(passive)]
    for turn in range(3):
        client = socket.socket()
        before = cookie(client)
        client.connect(passive.getsockname())
        server = passive.accept()[0]
        print("stays", before == cookie(client) == cookie(client.dup()), cookie(server) == cookie(server))
        seen += [before, cookie(server)]
        datagrams = socket.socket(type=DATAGRAM)
        before = cookie(datagrams)
        datagrams.connect((HOST, 9))
        print("stays", before == cookie(datagrams))
        seen.append(before)
        ours, theirs = socket.socketpair()
        if os.fork() == 0:
            theirs.sendall(struct.pack("Q", cookie(client)))
            os._exit(0)
        os.wait()
        print("a child's", struct.unpack("Q", ours.recv(8))[0] == cookie(client))
        # Their descriptors may serve again.
        for sock in client, server, datagrams:
            sock.close()
    print("each its own", len(set(seen)) == len(seen), cookie(passive) == seen[0], 0 in seen)


told(ALL)
cookies()
passive = socket.create_server((HOST, 0))
inherited = [(SOCKET, 1), (SOCKET, 41), (SOCKET, 46), (SOCKET, 69)]
for level, name in inherited:
    passive.setsockopt(level, name, 1)
client = socket.create_connection(passive.getsockname())
server = passive.accept()[0]
print("a listener's", [(read(client, *it), read(server, *it)) for it in inherited])
sys.stdout.flush()
if os.fork() == 0:
    os.setuid(65534)
    told([it for it in ALL if it[1] == SOCKET])
    sys.stdout.flush()
    os._exit(0)
os.wait()
