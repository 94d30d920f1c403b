"""Conversations of three datagram sockets of one program, drawn by lot: each call, what it told, and what all of them showed then.

datagram_conversation.py HOST FIRST COUNT KIND

Kinds: `plain` (names, peers, sizes, parts, ends), `beside` (control data, and many at once), `refused` (peers that are not there, and
what is queued of that), `bound` (who may share a port), `groups` (memberships, broadcasts).

Ports are shown in the order in which they were first seen. An error that the kernel tells at once may be the next call's here
(docs/shim.md), so what sends to where no way leads asks for it: see `sooner_or_later`. What else differs for a reason is not drawn.
"""
import ctypes
import errno
import itertools
import random
import select
import socket
import struct
import sys
import termios

sys.dont_write_bytecode = True
from conversing import LIBC, brief, checked, events, many, number, passed, settle, told

IP, IPV6, SOCKET, UDP = socket.IPPROTO_IP, socket.IPPROTO_IPV6, socket.SOL_SOCKET, socket.IPPROTO_UDP
IP_PKTINFO, IP_MTU_DISCOVER, IP_RECVERR, IP_RECVTTL, IP_MTU, IP_FREEBIND, IP_RECVORIGDSTADDR = 8, 10, 11, 12, 14, 15, 20
IPV6_MTU_DISCOVER, IPV6_MTU, IPV6_RECVERR, IPV6_RECVORIGDSTADDR, IPV6_DONTFRAG = 23, 24, 25, 74, 62
UDP_CORK, UDP_SEGMENT, UDP_GRO = 1, 103, 104
SO_TIMESTAMP, SO_RXQ_OVFL = 29, 40
MORE, OOB, PEEK, TRUNC, DONTWAIT, ERRQUEUE = (
    socket.MSG_MORE, socket.MSG_OOB, socket.MSG_PEEK, socket.MSG_TRUNC, socket.MSG_DONTWAIT, socket.MSG_ERRQUEUE)
LARGE = 2000
GROUP_V4, GROUP_V6 = "239.7.7.7", "ff12::77"
QUIET = 0.003
PORTS = itertools.count()


class Barrier:
    """Two sockets of which one asks and the other answers: what was sent before has arrived then, as the same lane does it."""
    def __init__(self, host):
        self.ends = [socket.socket(type=socket.SOCK_DGRAM) for _ in range(2)]
        for end in self.ends:
            end.bind((host, 0))
            end.settimeout(5)

    def pass_through(self):
        for _ in range(2):
            for one, other in (self.ends, reversed(self.ends)):
                one.sendto(b"", other.getsockname())
                other.recv(1)


class Talk:
    def __init__(self, host, draw, barrier, has_errors):
        self.host, self.draw, self.barrier, self.has_errors = host, draw, barrier, has_errors
        self.ports, self.sent = {0: "0"}, 0
        self.socks, self.families = {}, {}
        for side in "ABC":
            self.families[side] = draw.choice([socket.AF_INET, socket.AF_INET, socket.AF_INET6])
            sock = socket.socket(self.families[side], socket.SOCK_DGRAM)
            sock.setblocking(False)
            self.socks[side] = sock
        # Whose port the program has chosen.
        self.chosen = set()
        # Who is bound to the loopback device.
        self.on_lo = set()
        # A port that nobody has.
        self.nobody = self.free_port()
        self.port(self.nobody)

    def free_port(self):
        """None that is drawn for who has no port."""
        return 10_000 + next(PORTS) % 20_000

    def close(self):
        for sock in self.socks.values():
            sock.close()

    def port(self, number):
        return self.ports.setdefault(number, "p%d" % len(self.ports))

    def address(self, text):
        return text.replace(self.host, "host")

    def name(self, name):
        """A name as it is shown."""
        if not isinstance(name, tuple):
            return name
        return f"{self.address(name[0])}#{self.port(name[1])}"

    def shown(self, side):
        sock = self.socks[side]
        own, peer = (self.name(told(call)) for call in (sock.getsockname, sock.getpeername))
        return f"{events(sock)} {number(sock, termios.FIONREAD)} {own} {peer}"

    def state(self):
        return {side: self.shown(side) for side in self.socks}

    def settle(self):
        self.barrier.pass_through()
        settle(self.state, QUIET, 0.001)

    def is_v6(self, side):
        return self.families[side] == socket.AF_INET6

    def own_addresses(self, side):
        v4 = ["127.0.0.1", self.host]
        if not self.is_v6(side):
            return v4
        own = self.socks[side].getsockname()[0]
        # In Linux what has an address of IPv6 sends to IPv4 from 127.0.0.6.
        v6, mapped = ["::1", "::1"], ["::ffff:" + it for it in v4]
        return v6 + mapped if own == "::" else mapped if own.startswith("::ffff:") else v6

    def any_port(self):
        """One of the others', or nobody's."""
        ports = [told(sock.getsockname)[1] for sock in self.socks.values()]
        return self.draw.choice([port for port in ports if port] + [self.nobody])

    def somebody(self, side):
        """Where another socket hears, by an address of this one's kind; it may not be heard for all that."""
        other = self.draw.choice([it for it in self.socks if it != side])
        address, port = self.socks[other].getsockname()[:2]
        if port == 0 or self.draw.random() < 0.1:
            port = self.any_port()
        own = self.own_addresses(side)
        if address in own:
            return address, port
        mapped = "::ffff:" + address
        if mapped in own:
            return mapped, port
        if address.startswith("::ffff:") and address[7:] in own:
            return address[7:], port
        return self.draw.choice(own), port

    def fresh_port(self, side):
        """One that is chosen for now. Of a socket of IPv6 that got its address by connecting, Linux keeps others from IPv4's, too."""
        port = self.draw.choice([0, self.any_port(), self.free_port()])
        others = [sock.getsockname() for it, sock in self.socks.items() if it != side and self.has_peer(it)]
        return 0 if port in [name[1] for name in others if name[0] == "::1"] else port

    def bound(self, side, address, port):
        done = told(lambda: self.socks[side].bind((address, port)))
        if done is None and port:
            self.chosen.add(side)
        return done

    def is_quiet(self):
        """Whether nothing waits to be read: then there is room for something large."""
        return all(number(sock, termios.FIONREAD) == 0 for sock in self.socks.values())

    def text(self, large=True, short=False):
        """The first 64 bytes of what did not arrive are kept, and nothing of what is longer than any datagram."""
        sizes = [0, 1, 2, 7, 60] if short else [0, 1, 2, 7, 100, 100, 1472]
        if large and not short and self.is_quiet():
            sizes += [LARGE, 9000, 65507, 65508, 70000]
        count = self.draw.choice(sizes)
        begin, self.sent = self.sent, self.sent + 1
        return bytes((begin + n) % 251 for n in range(count))

    def flags(self, side, is_named):
        """What a connected socket begins for somebody else, its next datagram goes to in Linux."""
        flags = self.draw.choice([0, 0, 0, 0, MORE, OOB, DONTWAIT])
        is_cut = self.socks[side].getsockopt(UDP, UDP_SEGMENT)
        return 0 if flags == MORE and (is_cut or is_named and self.has_peer(side)) else flags

    def has_peer(self, side):
        return isinstance(told(self.socks[side].getpeername), tuple)

    # Names.

    def bind(self, side):
        addresses = self.own_addresses(side) + (["::", "::"] if self.is_v6(side) else ["0.0.0.0", "0.0.0.0"])
        address = self.draw.choice(addresses + (["2001:db8::9"] if self.is_v6(side) else ["10.9.9.9"]))
        port = self.fresh_port(side)
        return f"bind {self.name((address, port))}", self.bound(side, address, port)

    def connect(self, side):
        address, port = self.somebody(side)
        kind = self.draw.randrange(12)
        # Parts of a datagram go where the last connect says, in Linux.
        told(lambda: self.socks[side].setsockopt(UDP, UDP_CORK, 0))
        if kind == 0:
            address = "::" if self.is_v6(side) else "0.0.0.0"
        elif kind == 2:
            port = self.nobody
        elif kind < 5 and side in self.chosen:
            # Whose port was drawn has another one then in Linux.
            return "disconnect", told(lambda: disconnect(self.socks[side]))
        return f"connect {self.name((address, port))}", told(lambda: self.socks[side].connect((address, port)))

    def close_and_open(self, side):
        self.socks[side].close()
        self.chosen.discard(side)
        self.on_lo.discard(side)
        sock = socket.socket(self.families[side], socket.SOCK_DGRAM)
        sock.setblocking(False)
        self.socks[side] = sock
        return "anew", None

    # Text.

    def send(self, side):
        text, flags = self.text(), self.flags(side, False)
        return f"send {len(text)} {flags}", told(lambda: self.socks[side].send(text, flags))

    def sendto(self, side):
        text, flags = self.text(), self.flags(side, True)
        address, port = self.somebody(side)
        kind = self.draw.randrange(16)
        if kind == 0:
            address = "::" if self.is_v6(side) else "0.0.0.0"
        elif kind == 1:
            port = 0
        where = (address, port)
        return f"sendto {len(text)} {flags} {self.name(where)}", told(lambda: self.socks[side].sendto(text, flags, where))

    def recv(self, side):
        count = self.draw.choice([0, 1, 3, 50, 1460, 70000, 70000])
        flags = self.draw.choice([0, 0, 0, PEEK, TRUNC, OOB, PEEK | TRUNC, socket.MSG_WAITALL])

        def call():
            room = bytearray(count)
            got, name = self.socks[side].recvfrom_into(room, count, flags)
            return got, brief(bytes(room[:min(got, count)])), self.name(name)
        return f"recv {count} {flags}", told(call)

    def recvmsg(self, side):
        sizes = [self.draw.choice([0, 1, 10, 2000, 70000]) for _ in range(self.draw.randrange(1, 4))]
        room = self.draw.choice([0, 16, 20, 24, 40, 60, 200, 200, 200])
        flags = self.draw.choice([0, 0, 0, PEEK, TRUNC])
        return f"recvmsg {sizes} {room} {flags}", told(lambda: self.received(side, sizes, room, flags))

    def received(self, side, sizes, room, flags):
        rooms = [bytearray(size) for size in sizes]
        count, control, with_flags, name = self.socks[side].recvmsg_into(rooms, room, flags)
        return (count, brief(b"".join(map(bytes, rooms))[:count]), with_flags, self.name(name),
                [self.beside_shown(*it) for it in control])

    def beside_shown(self, level, kind, data):
        """Control data, without what differs from run to run."""
        if (level, kind) in [(SOCKET, SO_TIMESTAMP), (SOCKET, 35)]:
            data = b"%d" % len(data)
        elif (level, kind) == (IP, IP_PKTINFO) and len(data) == 12:
            return "info", *(self.address(socket.inet_ntoa(data[at:at + 4])) for at in (4, 8))
        elif (level, kind) == (IPV6, socket.IPV6_PKTINFO) and len(data) == 20:
            return "info6", self.address(socket.inet_ntop(socket.AF_INET6, data[:16]))
        elif (level, kind) == (IP, IP_RECVORIGDSTADDR) and len(data) == 16:
            return "target", self.name((socket.inet_ntoa(data[4:8]), int.from_bytes(data[2:4], "big"))), data[:2].hex(), data[8:].hex()
        elif (level, kind) == (IPV6, IPV6_RECVORIGDSTADDR) and len(data) == 28:
            return "target6", self.name((socket.inet_ntop(socket.AF_INET6, data[8:24]), int.from_bytes(data[2:4], "big"))), data[24:].hex()
        elif (level, kind) in [(IP, IP_RECVERR), (IPV6, IPV6_RECVERR)] and len(data) >= 16:
            return "error", kind, self.error_shown(data)
        elif (level, kind) in [(IP, IP_PKTINFO), (IPV6, socket.IPV6_PKTINFO), (IP, IP_RECVORIGDSTADDR), (IPV6, IPV6_RECVORIGDSTADDR)]:
            return level, kind, len(data)
        return level, kind, data.hex()

    def error_shown(self, data):
        number, origin, kind, code, _, info, more = struct.unpack("IBBBBII", data[:16])
        name = data[16:]
        family = int.from_bytes(name[:2], "little") if len(name) >= 2 else None
        address = None
        if family == socket.AF_INET:
            address = self.address(socket.inet_ntoa(name[4:8]))
        elif family == socket.AF_INET6:
            address = self.address(socket.inet_ntop(socket.AF_INET6, name[8:24]))
        return errno.errorcode.get(number, number), origin, kind, code, info, more, family, address, len(name)

    def shutdown(self, side):
        if not self.socks[side].getsockname()[1]:
            return "nothing", None
        how = self.draw.choice([socket.SHUT_RD, socket.SHUT_WR, socket.SHUT_RDWR, 7])
        return f"shutdown {how}", told(lambda: self.socks[side].shutdown(how))

    def cork(self, side):
        on = 0 if self.has_peer(side) else self.draw.choice([0, 1])
        sock = self.socks[side]
        return f"cork {on}", (told(lambda: sock.setsockopt(UDP, UDP_CORK, on)), told(lambda: sock.getsockopt(UDP, UDP_CORK)))

    def ask(self, side):
        sock = self.socks[side]
        host = "::1" if self.is_v6(side) else self.host
        what, call = self.draw.choice([
            ("error", lambda: errno.errorcode.get(sock.getsockopt(SOCKET, socket.SO_ERROR), 0)),
            ("error", lambda: errno.errorcode.get(sock.getsockopt(SOCKET, socket.SO_ERROR), 0)),
            ("queued", lambda: self.received(side, [100], 200, ERRQUEUE)),
            ("mark", lambda: number(sock, 0x8905)),
            ("accept", lambda: sock.accept()),
            ("listen", lambda: sock.listen(1)),
            ("select", lambda: [len(it) for it in select.select([sock], [sock], [sock], 0)]),
            ("epoll", lambda: self.epoll(sock)),
            ("type", lambda: [sock.getsockopt(SOCKET, it) for it in (socket.SO_TYPE, socket.SO_PROTOCOL, socket.SO_DOMAIN, socket.SO_ACCEPTCONN)]),
        ])
        return f"ask {what}", told(call)

    def epoll(self, sock):
        with select.epoll() as epoll:
            epoll.register(sock, select.EPOLLIN | select.EPOLLOUT | select.EPOLLRDHUP | select.EPOLLPRI)
            return [it[1] for it in epoll.poll(0)]

    # Beside.

    def tell(self, side):
        """What it wants to be told with each datagram."""
        names = [(IP, IP_PKTINFO), (IP, IP_RECVTTL), (IP, socket.IP_RECVTOS), (SOCKET, SO_RXQ_OVFL), (UDP, UDP_GRO)]
        if self.is_v6(side):
            names += [(IPV6, it) for it in (socket.IPV6_RECVPKTINFO, socket.IPV6_RECVTCLASS, socket.IPV6_RECVHOPLIMIT)]
        if not self.has_errors:
            # To which port an error came is whatever stands there, in Linux; when it came is not told here.
            names += [(SOCKET, SO_TIMESTAMP), (SOCKET, 35), (IP, IP_RECVORIGDSTADDR)] + ([(IPV6, IPV6_RECVORIGDSTADDR)] if self.is_v6(side) else [])
        if {"IN", "ERR"} & set(events(self.socks[side]).split("|")):
            # What has come tells in Linux what was wanted then.
            return "nothing", None
        return self.set(side, "tell", *self.draw.choice(names), self.draw.choice([0, 1, 1, 1]))

    def set(self, side, what, level, name, value):
        sock = self.socks[side]
        return f"{what} {level} {name} {value}", (
            told(lambda: sock.setsockopt(level, name, value)), told(lambda: sock.getsockopt(level, name)))

    def usual(self, side):
        """What is written on what it sends."""
        choices = [(IP, socket.IP_TTL, [0, 1, 9, 255, 256, -1]), (IP, socket.IP_TOS, [0, 3, 0x48, 255, 256]),
                   (UDP, UDP_SEGMENT, [0, 100, 1000, 70000, -1]), (IP, IP_MTU_DISCOVER, [0, 1, 2, 3, 4, 5, 6, -1]),
                   (SOCKET, socket.SO_PRIORITY, [0, 3, 6]), (IP, IP_FREEBIND, [0, 1])]
        if self.is_v6(side):
            choices += [(IPV6, socket.IPV6_UNICAST_HOPS, [1, 9, 255, 256, -1, -2]), (IPV6, socket.IPV6_TCLASS, [0, 7, 255, 256, -1]),
                        (IPV6, IPV6_MTU_DISCOVER, [0, 1, 2, 3, 6]), (IPV6, IPV6_DONTFRAG, [0, 1])]
        level, name, values = self.draw.choice(choices)
        return self.set(side, "usual", level, name, self.draw.choice(values))

    def controls(self, side):
        integer = lambda value: struct.pack("i", value)
        info = lambda link, address: struct.pack("i", link) + socket.inet_aton(address) + bytes(4)
        info6 = lambda link, address: socket.inet_pton(socket.AF_INET6, address) + struct.pack("i", link)
        all = [(IP, socket.IP_TTL, integer(self.draw.choice([1, 9, 255, 0, 256, -1]))),
               (IP, socket.IP_TOS, integer(self.draw.choice([0, 3, 0x48, 255, 256]))),
               (IP, socket.IP_TOS, b"\x28"), (IP, IP_PKTINFO, info(0, self.draw.choice(["127.0.0.1", self.host, "0.0.0.0", "10.9.9.9"]))),
               (UDP, UDP_SEGMENT, struct.pack("H", self.draw.choice([1, 100, 1000, 0]))),
               (IP, 99, integer(1)) if self.draw.random() < 0.2 else (IP, socket.IP_TTL, integer(6))]
        if self.is_v6(side):
            all += [(IPV6, socket.IPV6_HOPLIMIT, integer(self.draw.choice([0, 1, 9, 255, -1, 256]))),
                    (IPV6, socket.IPV6_TCLASS, integer(self.draw.choice([0, 9, 255, 256]))),
                    (IPV6, IPV6_DONTFRAG, integer(self.draw.choice([0, 1, 2]))),
                    (IPV6, socket.IPV6_PKTINFO, info6(0, self.draw.choice(["::1", "::", "::ffff:127.0.0.1"])))]
        return self.draw.sample(all, self.draw.choice([0, 1, 1, 1, 2]))

    def sendmsg(self, side):
        control = self.controls(side)
        # What is wrong with the source is found out when it is sent.
        has_source = any(it[:2] in ((IP, IP_PKTINFO), (IPV6, socket.IPV6_PKTINFO)) for it in control)
        control = [it for it in control if it[0] != UDP or not has_source]
        text = self.text(large=not has_source)
        # Whether several datagrams may be made of it, too.
        is_cut = self.socks[side].getsockopt(UDP, UDP_SEGMENT) or any(it[0] == UDP for it in control)
        flags = 0 if has_source or is_cut or self.has_peer(side) else self.draw.choice([0, 0, 0, MORE])
        to = None if self.draw.random() < 0.3 else self.somebody(side)
        said = [(level, kind, self.address(data.hex().replace(socket.inet_aton(self.host).hex(), "host"))) for level, kind, data in control]
        return f"sendmsg {len(text)} {flags} {self.name(to)} {said}", self.sooner_or_later(
            side, lambda: self.socks[side].sendmsg([text[:5], text[5:]], control, flags, *([to] if to else [])))

    def sooner_or_later(self, side, call):
        """What came of sending: here the next call may tell what the kernel tells at once."""
        done = told(call)
        if isinstance(done, int):
            self.settle()
            done = errno.errorcode.get(self.socks[side].getsockopt(SOCKET, socket.SO_ERROR), done)
        return done

    def sendmmsg(self, side):
        texts = [self.text(False) for _ in range(self.draw.randrange(1, 5))]
        messages, kept = many(texts)

        def call():
            count, _ = passed(LIBC.sendmmsg, self.socks[side], messages, 0)
            # The kernel ends with the first that is refused, as that is known then.
            self.settle()
            refused = self.socks[side].getsockopt(SOCKET, socket.SO_ERROR)
            return 1 if refused else count, [it.len for it in messages][:1 if refused or count < len(texts) else None]
        return f"sendmmsg {[len(it) for it in texts]}", told(call)

    def recvmmsg(self, side):
        sizes = [self.draw.choice([0, 1, 50, 2000]) for _ in range(self.draw.randrange(1, 5))]
        flags = self.draw.choice([0, DONTWAIT, 0x10000, PEEK, TRUNC])
        messages, kept = many([bytes(size) for size in sizes])

        def call():
            count, lengths = passed(LIBC.recvmmsg, self.socks[side], messages, flags, None)
            return count, lengths, [brief(it.raw[:size]) for it, size in zip(kept[0], sizes)][:count]
        return f"recvmmsg {sizes} {flags}", told(call)

    # Errors.

    def hear(self, side):
        names = [(IP, IP_RECVERR)] + ([(IPV6, IPV6_RECVERR)] if self.is_v6(side) else [])
        level, name = self.draw.choice(names)
        return self.set(side, "hear", level, name, self.draw.choice([0, 1, 1, 1]))

    def queue(self, side):
        sizes, room = [self.draw.choice([0, 3, 2000])], self.draw.choice([0, 20, 100, 200, 200])
        flags = ERRQUEUE | self.draw.choice([0, 0, PEEK, TRUNC])
        return f"queue {sizes} {room} {flags - ERRQUEUE}", told(lambda: self.received(side, sizes, room, flags))

    def to_nobody(self, side):
        text = self.text(short=True)
        address = self.draw.choice(self.own_addresses(side))
        where = (address, self.nobody)
        if self.draw.random() < 0.4:
            return f"send {len(text)}", told(lambda: self.socks[side].send(text))
        return f"sendto {len(text)} {self.name(where)}", told(lambda: self.socks[side].sendto(text, where))

    def mtu(self, side):
        """That of IPv6 over the loopback device is one more in Linux."""
        sock = self.socks[side]
        return "mtu", [told(lambda: min(sock.getsockopt(level, name), 65535)) for level, name in ((IP, IP_MTU), (IPV6, IPV6_MTU))]

    # Sharing.

    def share(self, side):
        name, on = self.draw.choice([socket.SO_REUSEADDR, socket.SO_REUSEPORT]), self.draw.choice([0, 1, 1])
        return self.set(side, "share", SOCKET, name, on)

    def only(self, side):
        if not self.is_v6(side):
            return self.share(side)
        return self.set(side, "only", IPV6, socket.IPV6_V6ONLY, self.draw.choice([0, 1]))

    def free(self, side):
        if self.is_v6(side) and self.draw.random() < 0.5:
            return self.set(side, "free", IPV6, 78, self.draw.choice([0, 1]))
        return self.set(side, "free", IP, IP_FREEBIND, self.draw.choice([0, 1]))

    def device(self, side):
        """Who has a port stays where he is, and who is bound to the loopback device does not reach the host's other addresses."""
        sock, device = self.socks[side], self.draw.choice([b"lo\0", b"", b"nosuch\0"])
        if sock.getsockname()[1]:
            device = b"nosuch\0"
        elif device == b"lo\0":
            self.on_lo.add(side)
        elif device == b"":
            self.on_lo.discard(side)
        return f"device {device}", (told(lambda: sock.setsockopt(SOCKET, 25, device)), told(lambda: sock.getsockopt(SOCKET, 25, 16)))

    def connect_near(self, side):
        """Who is bound to all addresses of IPv6 and connects to one keeps others from those of IPv4, in Linux."""
        if side in self.on_lo or self.socks[side].getsockname()[0] == "::":
            return "nothing", None
        return self.connect(side)

    def bind_near(self, side):
        """The same port as somebody's, often."""
        addresses = self.own_addresses(side) + (["::"] if self.is_v6(side) else ["0.0.0.0"])
        address, port = self.draw.choice(addresses), self.draw.choice([0, self.any_port(), self.any_port(), self.nobody])
        return f"bind {self.name((address, port))}", self.bound(side, address, port)

    # Groups.

    def member(self, side):
        on = self.draw.choice([True, True, False])
        device = self.draw.choice(["127.0.0.1", self.host, "10.9.9.9"])
        group = self.draw.choice([GROUP_V4, GROUP_V4, "239.7.7.8", "10.1.1.1"])
        sock = self.socks[side]
        if self.is_v6(side) and self.draw.random() < 0.7:
            group, link = self.draw.choice([GROUP_V6, GROUP_V6, "ff11::78", "::1"]), self.draw.choice([1, 1, 99])
            value = socket.inet_pton(socket.AF_INET6, group) + struct.pack("i", link)
            name = socket.IPV6_JOIN_GROUP if on else socket.IPV6_LEAVE_GROUP
            return f"member {on} {group} {link}", told(lambda: sock.setsockopt(IPV6, name, value))
        value = socket.inet_aton(group) + socket.inet_aton(device)
        name = socket.IP_ADD_MEMBERSHIP if on else socket.IP_DROP_MEMBERSHIP
        return f"member {on} {group} {self.address(device)}", told(lambda: sock.setsockopt(IP, name, value))

    def group_option(self, side):
        sock = self.socks[side]
        choices = [(IP, socket.IP_MULTICAST_TTL, [0, 1, 9, 255, 256, -1, -2]), (IP, 49, [0, 1, 2])]
        # That of IPv6 is about both, of a socket of IPv6 in Linux.
        if not self.is_v6(side):
            choices.append((IP, socket.IP_MULTICAST_LOOP, [0, 1, 1, 2]))
        if self.is_v6(side):
            choices += [(IPV6, socket.IPV6_MULTICAST_HOPS, [0, 1, 255, 256, -1, -2]), (IPV6, socket.IPV6_MULTICAST_LOOP, [0, 1, 1, 2]),
                        (IPV6, 29, [0, 1, 2])]
        level, name, values = self.draw.choice(choices)
        return self.set(side, "option", level, name, self.draw.choice(values))

    def group_device(self, side):
        sock = self.socks[side]
        if self.is_v6(side) and self.draw.random() < 0.5:
            link = self.draw.choice([0, 1, 99, -1])
            return f"device {link}", (told(lambda: sock.setsockopt(IPV6, socket.IPV6_MULTICAST_IF, link)),
                                      told(lambda: sock.getsockopt(IPV6, socket.IPV6_MULTICAST_IF)))
        device = self.draw.choice(["127.0.0.1", self.host, "0.0.0.0", "10.9.9.9"])
        return f"device {self.address(device)}", (
            told(lambda: sock.setsockopt(IP, socket.IP_MULTICAST_IF, socket.inet_aton(device))),
            told(lambda: self.address(socket.inet_ntoa(sock.getsockopt(IP, socket.IP_MULTICAST_IF, 4)))))

    def bind_group(self, side):
        v4 = ["0.0.0.0", "0.0.0.0", self.host, GROUP_V4, "255.255.255.255", self.everybody()]
        v6 = ["::", "::", "::1", "::ffff:" + self.host]
        address, port = self.draw.choice(v6 if self.is_v6(side) else v4), self.draw.choice([0, self.any_port(), self.any_port()])
        return f"bind {self.everywhere(address)}#{self.port(port)}", self.bound(side, address, port)

    def everybody(self):
        return self.host.rpartition(".")[0] + ".255"

    def everywhere(self, address):
        return self.address(address.replace(self.everybody(), "everybody"))

    def broadcast(self, side):
        return self.set(side, "broadcast", SOCKET, socket.SO_BROADCAST, self.draw.choice([0, 1]))

    def to_group(self, side):
        """The device by which it goes is named before, as no route leads there."""
        text, port, sock = self.text(False), self.any_port(), self.socks[side]
        if self.is_v6(side) and self.draw.random() < 0.5:
            where = (GROUP_V6, port, 0, 1)
        else:
            told(lambda: sock.setsockopt(IP, socket.IP_MULTICAST_IF, socket.inet_aton(self.host)))
            # Where no route leads to everybody it is ENETUNREACH in Linux, and the first VNIC's here.
            address = self.draw.choice([GROUP_V4, GROUP_V4, "239.7.7.8", self.everybody()])
            where = (("::ffff:" if self.is_v6(side) else "") + address, port)
        done = self.sooner_or_later(side, lambda: sock.sendto(text, where))
        return f"to {self.everywhere(where[0])}#{self.port(port)} {len(text)}", done


def disconnect(sock):
    """connect(2) with AF_UNSPEC."""
    checked(LIBC.connect(sock.fileno(), ctypes.create_string_buffer(16), 16))


KINDS = {
    "plain": [(Talk.bind, 3), (Talk.connect, 4), (Talk.send, 6), (Talk.sendto, 6), (Talk.recv, 6), (Talk.recvmsg, 2),
              (Talk.shutdown, 0.7), (Talk.cork, 1), (Talk.ask, 4), (Talk.close_and_open, 0.5)],
    "beside": [(Talk.bind, 2), (Talk.connect, 2), (Talk.tell, 6), (Talk.usual, 4), (Talk.sendmsg, 8), (Talk.sendmmsg, 2), (Talk.recvmmsg, 2),
               (Talk.recvmsg, 8), (Talk.recv, 1), (Talk.send, 1), (Talk.sendto, 2)],
    "refused": [(Talk.bind, 2), (Talk.connect, 3), (Talk.hear, 4), (Talk.to_nobody, 8), (Talk.queue, 5), (Talk.ask, 3), (Talk.recv, 2),
                (Talk.mtu, 1), (Talk.close_and_open, 0.4), (Talk.tell, 1)],
    "bound": [(Talk.share, 4), (Talk.only, 1), (Talk.free, 0.5), (Talk.device, 1), (Talk.bind_near, 6), (Talk.connect_near, 2), (Talk.close_and_open, 4)],
    "groups": [(Talk.share, 2), (Talk.bind_group, 3), (Talk.member, 5), (Talk.group_option, 3), (Talk.group_device, 2), (Talk.broadcast, 2),
               (Talk.to_group, 8), (Talk.recvmsg, 6), (Talk.close_and_open, 0.5)],
}


def converse(host, seed, kind, barrier):
    draw, steps = random.Random(seed), KINDS[kind]
    talk = Talk(host, draw, barrier, kind == "refused")
    print(f"{seed}.- families {[int(it) for it in talk.families.values()]}")
    for nth in range(draw.randrange(8, 30)):
        side = draw.choice(sorted(talk.socks))
        step = draw.choices([step for step, _ in steps], [weight for _, weight in steps])[0]
        what, result = step(talk, side)
        talk.settle()
        print(f"{seed}.{nth} {side} {what}: {result} {talk.state()}")
    talk.close()


if __name__ == "__main__":
    host, first, count = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    between = Barrier(host)
    for seed in range(first, first + count):
        converse(host, seed, sys.argv[4], between)
