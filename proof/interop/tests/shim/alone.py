"""What a program that talks with itself is told of where datagrams come from, and what it may say of traffic classes."""
import errno
import socket
import struct
import sys

IP, IPV6 = socket.IPPROTO_IP, socket.IPPROTO_IPV6
IP_PKTINFO, TOS, TCLASS = 8, 1, 67


def tried(call, *arguments):
    try:
        return call(*arguments)
    except OSError as error:
        return errno.errorcode[error.errno]


# As dnsmasq does it: the interface of a question is looked up, and answers go by it.
for family, host, level, ask in [
    (socket.AF_INET, "127.0.0.1", IP, IP_PKTINFO),
    (socket.AF_INET6, "::1", IPV6, socket.IPV6_RECVPKTINFO),
]:
    server = socket.socket(family, socket.SOCK_DGRAM)
    server.bind((host, 0))
    server.setsockopt(level, ask, 1)
    client = socket.socket(family, socket.SOCK_DGRAM)
    client.settimeout(5)
    client.sendto(b"question", server.getsockname())
    text, control, _, peer = server.recvmsg(100, 100)
    index = {len(data): struct.unpack("i" if level == IP else "16xi", data[: 4 if level == IP else 20]) for _, _, data in control}
    print(host, text, index, socket.if_indextoname(1))
    server.sendmsg([b"answer"], control, 0, peer)
    print(client.recv(100))

VALUES = (0, 1, 3, 16, 184, 255, 256, 1000, -1, -2, 1 << 20)
for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
    for family, level, name in [(socket.AF_INET, IP, TOS), (socket.AF_INET6, IPV6, TCLASS)]:
        s = socket.socket(family, kind)
        print(kind.name, name, [(tried(s.setsockopt, level, name, value), s.getsockopt(level, name)) for value in VALUES])
# A socket of IPv6 has those of both families, and what it sends to mapped addresses is IPv4's.
PAIRS = [("hops", 2, 16, 5, 9), ("class", TOS, TCLASS, 0x44, 0x88), ("discover", 10, 23, 2, 1), ("group hops", 33, 18, 3, 4), ("loop", 34, 19, 0, 1)]
for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
    s = socket.socket(socket.AF_INET6, kind)
    for what, v4, v6, one, other in PAIRS[: 3 if kind == socket.SOCK_STREAM else None]:
        said = [tried(s.setsockopt, IP, v4, one), tried(s.setsockopt, IPV6, v6, other)]
        print(kind.name, what, said, s.getsockopt(IP, v4), s.getsockopt(IPV6, v6))
    if kind == socket.SOCK_DGRAM:
        for family, host, to, level, ask in [
            (socket.AF_INET, "127.0.0.1", "::ffff:127.0.0.1", IP, (12, 13)),
            (socket.AF_INET6, "::1", "::1", IPV6, (51, 66)),
        ]:
            server = socket.socket(family, socket.SOCK_DGRAM)
            server.bind((host, 0))
            [server.setsockopt(level, name, 1) for name in ask]
            s.sendto(b"both", (to, server.getsockname()[1]))
            server.settimeout(5)
            text, control, _, _ = server.recvmsg(100, 100)
            print(to, text, sorted((name, data[0]) for _, name, data in control))
# Options of a protocol that a socket has not.
for family in (socket.AF_INET, socket.AF_INET6):
    print(tried(socket.socket(family, socket.SOCK_DGRAM).getsockopt, socket.IPPROTO_TCP, socket.TCP_NODELAY),
          tried(socket.socket(family).getsockopt, socket.IPPROTO_UDP, 1))
