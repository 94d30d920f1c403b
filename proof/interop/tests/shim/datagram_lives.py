"""Lives of some datagram sockets of one or two programs, drawn by lot: who of several gets what, and what is told of it. Each call, what it
told, and what all of them showed then.

datagram_lives.py HOST FIRST COUNT KIND PROGRAMS

Kinds: `who` (names, peers, who hears), `calls` (many messages in a call, waiting, ends), `beside` (control data, well and badly made, and
options), `errors` (what comes back), `groups` (memberships, sources, who hears whom).

Ports are shown in the order in which they were first seen. What differs for a reason (docs/shim.md) is not drawn.
"""
import ctypes
import errno
import fcntl
import os
import pickle
import random
import socket
import struct
import sys
import termios
import threading
import time

sys.dont_write_bytecode = True
from conversing import LIBC, PATIENCE, Iovec, Mmsghdr, Msghdr, await_ipv6, brief, checked, events, number, settle, told

V4, V6, DATAGRAM = socket.AF_INET, socket.AF_INET6, socket.SOCK_DGRAM
SOCKET, IP, IPV6, UDP = socket.SOL_SOCKET, socket.IPPROTO_IP, socket.IPPROTO_IPV6, socket.IPPROTO_UDP
NOSIGNAL, ERRQUEUE, WAITFORONE = int(socket.MSG_NOSIGNAL), 0x2000, 0x10000
PEEK, TRUNC, ALL, DONTWAIT, OOB, CONFIRM = (
    int(flag) for flag in (socket.MSG_PEEK, socket.MSG_TRUNC, socket.MSG_WAITALL, socket.MSG_DONTWAIT, socket.MSG_OOB, socket.MSG_CONFIRM))
SHOWN, SIOCGIFADDR = 0x23c7, 0x8915
IP_RECVERR, IPV6_RECVERR, IP_PKTINFO, IP_ORIGIN, IPV6_ORIGIN, IPV6_PKTINFO, UDP_SEGMENT, UDP_GRO = 11, 25, 8, 20, 74, 50, 103, 104
QUIET, STEPS, WAITS = 0.004, 45, 60
# No two lives have the same ports, nor have those of a run a moment ago.
NEXT_PORT = 10_000 + int(time.time() * 10) % 20_000


class FdOf(int):
    """A descriptor where a socket is asked for."""

    def fileno(self):
        return int(self)


def call(name, *arguments):
    return told(lambda: checked(getattr(LIBC, name)(*arguments)))


def packed(host, port, scope=0):
    if ":" not in host:
        return struct.pack("=H", V4) + struct.pack("!H", port) + socket.inet_pton(V4, host) + bytes(8)
    return struct.pack("=H", V6) + struct.pack("!HI", port, 0) + socket.inet_pton(V6, host) + struct.pack("=I", scope)


def integer(value):
    return struct.pack("i", value)


class Program:
    """What is done in this process. Its calls are those of `Other`, too: what they take and tell can be sent."""

    def do(self, name, *arguments):
        return getattr(self, name)(*arguments)

    def start(self, name, *arguments):
        done = []
        thread = threading.Thread(target=lambda: done.append(self.do(name, *arguments)))
        thread.start()
        return lambda: (thread.join(), done[0])[1]

    def make(self, family):
        return call("socket", family, DATAGRAM | socket.SOCK_NONBLOCK, 0)

    def plain(self, name, fd, *arguments):
        return call(name, fd, *arguments)

    def set(self, fd, level, name, value):
        return call("setsockopt", fd, level, name, value, len(value))

    def get(self, fd, level, name):
        value, length = ctypes.create_string_buffer(64), ctypes.c_int(64)
        return call("getsockopt", fd, level, name, value, ctypes.byref(length)) or value.raw[:length.value]

    def name(self, fd, which):
        name, length = ctypes.create_string_buffer(64), ctypes.c_int(28)
        return call(which, fd, name, ctypes.byref(length)) or name.raw[:length.value]

    def states(self, fds):
        return [(events(FdOf(fd), SHOWN), number(fd, termios.FIONREAD), self.name(fd, "getsockname"), self.name(fd, "getpeername")) for fd in fds]

    def ask(self, fd, request):
        return number(fd, request)

    def send(self, fd, texts, to, control, length):
        pieces = [ctypes.create_string_buffer(text, max(len(text), 1)) for text in texts]
        buffers = (Iovec * len(texts))(*[Iovec(ctypes.addressof(piece), len(text)) for piece, text in zip(pieces, texts)])
        beside, name = ctypes.create_string_buffer(control, max(len(control), 1)), ctypes.create_string_buffer(to or b"", 32)
        message = Msghdr(to and ctypes.addressof(name), len(to or b""), buffers, len(texts), ctypes.addressof(beside), length, 0)
        return call("sendmsg", fd, ctypes.byref(message), NOSIGNAL)

    def receive(self, fd, sizes, flags, room, of_name):
        pieces = [ctypes.create_string_buffer(max(size, 1)) for size in sizes]
        buffers = (Iovec * max(len(sizes), 1))(*[Iovec(ctypes.addressof(piece), size) for piece, size in zip(pieces, sizes)])
        beside, name = ctypes.create_string_buffer(max(room, 1)), ctypes.create_string_buffer(64)
        message = Msghdr(ctypes.addressof(name), of_name, buffers, len(sizes), ctypes.addressof(beside), room, 0x55)
        done = call("recvmsg", fd, ctypes.byref(message), flags)
        if not isinstance(done, int):
            return done
        text = b"".join(piece.raw[:size] for piece, size in zip(pieces, sizes))[:done]
        return done, text, message.namelen, name.raw[:min(message.namelen, of_name)], beside.raw[:message.controllen], message.flags

    def many(self, which, fd, texts, names, *rest):
        messages, kept = (Mmsghdr * max(len(texts), 1))(), []
        for message, text, name in zip(messages, texts, names):
            piece, of_name = ctypes.create_string_buffer(text, max(len(text), 1)), ctypes.create_string_buffer(name or b"", 64)
            buffer = Iovec(ctypes.addressof(piece), len(text))
            kept.append((piece, buffer, of_name))
            message.hdr.iov, message.hdr.iovlen, message.len = ctypes.pointer(buffer), 1, 77
            if name:
                message.hdr.name, message.hdr.namelen = ctypes.addressof(of_name), len(name)
        done = call(which, fd, messages, len(texts), *rest)
        count = done if isinstance(done, int) else 0
        return done, [(it.len, it.hdr.flags, it.hdr.namelen, piece.raw[:min(it.len, len(text))])
                      for it, (piece, _, _), text in zip(messages[:count], kept, texts)]

    def receive_many(self, fd, sizes, names, flags, limit):
        limit = limit and ctypes.byref((ctypes.c_long * 2)(*limit))
        return self.many("recvmmsg", fd, [bytes(size) for size in sizes], names, flags, limit)

    def wait(self, fd, flags):
        os.set_blocking(fd, True)
        self.set(fd, SOCKET, socket.SO_RCVTIMEO, struct.pack("qq", 0, int(WAITS * PATIENCE) * 1000))
        done = self.receive(fd, [3000], flags, 0, 28)
        os.set_blocking(fd, False)
        return done if not isinstance(done, tuple) else done[:2]


class Other(Program):
    """The same in a child."""

    def __init__(self):
        (asked, asks), (heard, tells) = os.pipe(), os.pipe()
        if not os.fork():
            os.close(asks)
            with os.fdopen(asked, "rb") as source, os.fdopen(tells, "wb") as sink:
                while True:
                    try:
                        name, arguments = pickle.load(source)
                    except EOFError:
                        os._exit(0)
                    pickle.dump(getattr(Program(), name)(*arguments), sink)
                    sink.flush()
        os.close(asked)
        os.close(tells)
        self.sink, self.source = os.fdopen(asks, "wb"), os.fdopen(heard, "rb")

    def do(self, name, *arguments):
        return self.start(name, *arguments)()

    def start(self, name, *arguments):
        pickle.dump((name, arguments), self.sink)
        self.sink.flush()
        return lambda: pickle.load(self.source)


class Sock:
    def __init__(self, program, fd, family):
        self.program, self.fd, self.family = program, fd, family
        self.has_chosen, self.is_v6_alone = False, False

    def do(self, name, *arguments):
        return self.program.do(name, self.fd, *arguments)

    def own(self):
        return self.do("name", "getsockname")

    def host(self):
        raw = self.own()
        return socket.inet_ntop(self.family, raw[4:8] if self.family == V4 else raw[8:24])

    def port(self):
        return struct.unpack("!H", self.own()[2:4])[0]


class Life:
    def __init__(self, host, draw, kind, programs, barrier):
        global NEXT_PORT
        self.host, self.draw, self.kind, self.programs, self.barrier = host, draw, kind, programs, barrier
        self.everybody = host.rpartition(".")[0] + ".255"
        self.link = next(index for index, name in socket.if_nameindex() if address_of(name) == host)
        if kind == "groups":
            await_ipv6(self.link)
        self.own_ports = list(range(NEXT_PORT, NEXT_PORT + 3))
        NEXT_PORT += 3
        self.ports = {port: f"own{n}" for n, port in enumerate(self.own_ports)} | {0: "0"}
        self.socks, self.sent, self.waits = {}, 0, None

    def end(self):
        for sock in self.socks.values():
            sock.program.do("plain", "close", sock.fd)

    # What is shown.

    def port(self, port):
        return self.ports.setdefault(port, f"p{len(self.ports)}")

    def address(self, host):
        is_of_link = host.startswith("fe80")
        return "link's" if is_of_link else host.replace(self.host, "host").replace(self.everybody, "everybody")

    def name(self, raw):
        if not isinstance(raw, bytes):
            return raw
        family = struct.unpack("=H", raw[:2])[0] if len(raw) > 1 else 0
        if family not in (V4, V6) or len(raw) < (8 if family == V4 else 24):
            return len(raw)
        host = socket.inet_ntop(family, raw[4:8] if family == V4 else raw[8:24])
        return f"{self.address(host)}#{self.port(struct.unpack('!H', raw[2:4])[0])}"

    def state(self):
        shown = {}
        for program in self.programs:
            slots = [slot for slot in sorted(self.socks) if self.socks[slot].program is program]
            states = program.do("states", [self.socks[slot].fd for slot in slots])
            for slot, (ready, queued, own, peer) in zip(slots, states):
                shown[slot] = f"{ready} {queued} {self.name(own)} {self.name(peer)}"
        return shown

    def got(self, done):
        if not isinstance(done, tuple) or len(done) < 6:
            return done if not isinstance(done, tuple) else (done[0], brief(done[1]))
        count, text, length, name, control, flags = done
        return count, brief(text), length, self.name(name), self.beside(control), hex(flags)

    def beside(self, control):
        shown = []
        while len(control) >= 16:
            length, level, kind = struct.unpack("=Qii", control[:16])
            shown.append((level, kind, length, self.said(level, kind, control[16:length])))
            control = control[max(length + 7 & ~7, 16):]
        return shown, len(control)

    def said(self, level, kind, data):
        """Without what differs from run to run, and the interface."""
        if level == SOCKET and kind in (29, 35, 63, 64):
            return len(data)
        if (level, kind) == (IP, IP_PKTINFO) and len(data) == 12:
            return [self.address(socket.inet_ntoa(data[at:at + 4])) for at in (4, 8)]
        if (level, kind) == (IPV6, IPV6_PKTINFO) and len(data) == 20:
            return self.address(socket.inet_ntop(V6, data[:16]))
        if (level, kind) in [(IP, IP_ORIGIN), (IPV6, IPV6_ORIGIN)]:
            return self.name(data)
        if (level, kind) in [(IP, IP_RECVERR), (IPV6, IPV6_RECVERR)] and len(data) >= 16:
            number, *what, _, info, more = struct.unpack("IBBBBII", data[:16])
            # To which port it came is whatever stands there, in Linux.
            who = data[16:18] + bytes(2) + data[20:]
            return errno.errorcode.get(number, number), what, info, more, self.name(who)
        return data.hex()

    # Who and where.

    def pick(self, is_wanted=lambda _: True):
        slots = [slot for slot in sorted(self.socks) if is_wanted(self.socks[slot])]
        return self.draw.choice(slots) if slots else None

    def text(self, sizes=(0, 1, 3, 20, 100, 1000, 1472, 1473, 3000)):
        self.sent += 1
        return bytes((self.sent * 7 + n) % 251 for n in range(self.draw.choice(sizes)))

    def host_of(self, sock, binds=False):
        v4 = ["127.0.0.1", "127.0.0.1", self.host, self.host, "127.0.0.2"]
        if sock.family == V4:
            return self.draw.choice(v4 + ["0.0.0.0", "0.0.0.0"] * binds + ["10.9.9.9"] * (binds and self.draw.random() < 0.1))
        mapped = [f"::ffff:{host}" for host in v4]
        if binds:
            return self.draw.choice(["::1", "::", "::"] + ([] if sock.is_v6_alone else mapped[:3]))
        own = sock.host()
        if own.startswith("::ffff:"):
            return self.draw.choice(mapped)
        return self.draw.choice(["::1"] if own != "::" or sock.is_v6_alone else mapped + ["::1"] * 5)

    def any_port(self):
        ports = [sock.port() for _, sock in sorted(self.socks.items()) if sock.program is not self.waits]
        return self.draw.choice([port for port in ports if port] * 4 + self.own_ports)

    def target(self, sock):
        """Where another one hears, more often than not."""
        host, port = self.host_of(sock), self.any_port()
        other = self.socks[self.pick()]
        if self.waits is None and self.draw.random() < 0.5 and other.port():
            theirs = other.host()
            usual = theirs if other.family == sock.family else theirs[7:] if theirs.startswith("::ffff:") else f"::ffff:{theirs}" if other.family == V4 else ""
            known = ["127.0.0.1", "127.0.0.2", self.host] if sock.family == V4 else ["::1"] if sock.is_v6_alone else ["::1", "::ffff:127.0.0.1", f"::ffff:{self.host}"]
            own = sock.host()
            if usual in known and (sock.family == V4 or own == "::" or own.startswith("::ffff:") == usual.startswith("::ffff:")):
                host, port = usual, other.port()
        return packed(host, port), f"{self.address(host)}#{self.port(port)}"

    # Steps: what is done, and what it told. `None` is nothing.

    def make(self):
        slot = next((slot for slot in "abcdef" if slot not in self.socks), None)
        if not slot:
            return None
        family, program = self.draw.choice([V4, V4, V6]), self.draw.choice(self.programs)
        sock = self.socks[slot] = Sock(program, program.do("make", family), family)
        options = [(SOCKET, socket.SO_REUSEADDR)] if self.draw.random() < 0.75 else []
        if family == V6 and self.draw.random() < 0.3:
            sock.is_v6_alone = True
            options.append((IPV6, socket.IPV6_V6ONLY))
        done = [sock.do("set", level, name, integer(1)) for level, name in options]
        return f"{slot} is {family.name} of {self.programs.index(program)} {options}", done

    def close(self, slot):
        sock = self.socks.pop(slot)
        return "close", sock.program.do("plain", "close", sock.fd)

    def bind(self, slot):
        sock = self.socks[slot]
        # Whose port was drawn for it keeps it here.
        if sock.port() and not sock.has_chosen:
            return None
        host, port = self.host_of(sock, True), self.draw.choice(self.own_ports + self.own_ports[:1] + [0])
        return f"bind {self.address(host)}#{self.port(port)}", self.bound(sock, packed(host, port), port)

    def bound(self, sock, address, port):
        done = sock.program.do("plain", "bind", sock.fd, address, len(address))
        sock.has_chosen |= done == 0 and port > 0
        return done

    def connect(self, slot):
        sock = self.socks[slot]
        if sock.has_chosen and self.draw.random() < 0.25:
            return "unconnect", sock.program.do("plain", "connect", sock.fd, bytes(16), 16)
        address, what = self.target(sock)
        return f"connect {what}", sock.program.do("plain", "connect", sock.fd, address, len(address))

    def sooner_or_later(self, sock, done):
        """What came of sending: here the next call may tell what the kernel tells at once."""
        if not isinstance(done, int):
            return done
        self.barrier.pass_through()
        settle(self.state, QUIET, 0.001)
        error = sock.do("get", SOCKET, socket.SO_ERROR)
        return errno.errorcode.get(struct.unpack("i", error)[0], done)

    def send(self, slot):
        sock, text = self.socks[slot], self.text()
        if self.draw.random() < 0.4:
            flags = self.draw.choice([0, 0, DONTWAIT, CONFIRM]) | NOSIGNAL
            return f"send {len(text)} {flags:x}", sock.program.do("plain", "send", sock.fd, text, len(text), flags)
        to, what = self.target(sock)
        return f"send {len(text)} to {what}", sock.program.do("plain", "sendto", sock.fd, text, len(text), NOSIGNAL, to, len(to))

    def recv(self, slot):
        sizes = [self.draw.choice([0, 1, 10, 3000]) for _ in range(self.draw.choice([1, 1, 2, 0]))]
        flags = self.draw.choice([0, 0, 0, 0, PEEK, TRUNC, PEEK | TRUNC, ALL, DONTWAIT, ERRQUEUE, ERRQUEUE | PEEK, OOB])
        # What was sent is queued with its begin.
        sizes = [min(size, 10) for size in sizes] if flags & ERRQUEUE else sizes
        room, of_name = self.draw.choice([0, 200, 200, 200, 13, 16, 20, 30, 44]), self.draw.choice([28, 28, 28, 0, 3, 16])
        return f"recv {sizes} {flags:x} {room} {of_name}", self.got(self.socks[slot].do("receive", sizes, flags, room, of_name))

    def send_many(self, slot):
        sock = self.socks[slot]
        texts = [self.text((0, 1, 5, 200)) for _ in range(self.draw.randrange(0, 5))]
        # Linux ends with the first of several to who is not there, and tells it then.
        to = [self.target(sock) if self.draw.random() < 0.5 else (None, None) for _ in texts]
        if isinstance(sock.do("name", "getpeername"), bytes):
            texts, to = texts[:1], to[:1]
        done = sock.program.do("many", "sendmmsg", sock.fd, texts, [address for address, _ in to], NOSIGNAL)
        return f"sendmmsg {[(len(text), what) for text, (_, what) in zip(texts, to)]}", (done[0], [it[0] for it in done[1]])

    def receive_many(self, slot):
        sizes = [self.draw.choice([0, 1, 3000]) for _ in range(self.draw.randrange(0, 6))]
        flags = self.draw.choice([0, WAITFORONE, PEEK, TRUNC, ALL])
        limit = self.draw.choice([None, (0, 0), (0, 1000), (0, -1), (0, 10 ** 9), (-1, 0)])
        names = [bytes(28) if self.draw.random() < 0.5 else None for _ in sizes]
        done = self.socks[slot].do("receive_many", sizes, names, flags, limit)
        return f"recvmmsg {sizes} {flags:x} {limit}", (done[0], [(*it[:3], brief(it[3])) for it in done[1]])

    def shutdown(self, slot):
        sock, how = self.socks[slot], self.draw.choice([0, 1, 2, 3, -1])
        # Who has no address remembers nothing.
        return (f"shutdown {how}", sock.program.do("plain", "shutdown", sock.fd, how)) if sock.port() else None

    def ask(self, slot):
        name, asks = self.draw.choice([
            ("error", lambda sock: sock.do("get", SOCKET, socket.SO_ERROR)), ("error", lambda sock: sock.do("get", SOCKET, socket.SO_ERROR)),
            ("out", lambda sock: sock.do("ask", termios.TIOCOUTQ)),
            ("kind", lambda sock: [sock.do("get", SOCKET, it) for it in (socket.SO_TYPE, 38, 39, socket.SO_ACCEPTCONN)])])
        return name, asks(self.socks[slot])

    def wait(self, slot):
        """One waits for something, while another does something."""
        sock, flags = self.socks[slot], self.draw.choice([0, PEEK, ALL])
        if not sock.port():
            return None
        end = sock.program.start("wait", sock.fd, flags)
        self.waits = sock.program if isinstance(sock.program, Other) else None
        time.sleep(0.015)
        other, what, done = self.pick(lambda it: it.program is not self.waits), self.draw.choice(["send", "to", "shut", "nothing"]), None
        if other and what != "nothing":
            doer = self.socks[other]
            if what == "send":
                done = doer.do("send", [b"w" * 9], None, b"", 0)
            elif what == "to":
                to, where = self.target(doer)
                what, done = f"to {where}", doer.do("send", [b"w" * 9], to, b"", 0)
            elif doer.port():
                done = doer.program.do("plain", "shutdown", doer.fd, socket.SHUT_RD)
        told_of, self.waits = end(), None
        return f"wait {flags:x}, {other} {what}", (self.got(told_of), done)

    # Beside.

    def tell(self, slot):
        """What it wants to be told with each datagram; what has come tells in Linux what was wanted then."""
        sock = self.socks[slot]
        names = [(IP, IP_PKTINFO), (IP, 12), (IP, 13), (IP, IP_ORIGIN), (SOCKET, 40), (UDP, UDP_GRO), (SOCKET, 29), (SOCKET, 35), (IPV6, 49),
                 (IPV6, 66), (IPV6, 51), (IPV6, IPV6_ORIGIN), (IP, IP_RECVERR), (IPV6, IPV6_RECVERR)]
        level, name = self.draw.choice(names[-2:] if self.kind == "errors" else names)
        if sock.program.do("states", [sock.fd])[0][0] != "OUT|WRNORM|WRBAND":
            return None
        return self.set(sock, "tell", level, name, self.draw.choice([0, 1, 1, 1, 2]))

    def set(self, sock, what, level, name, value):
        return f"{what} {level} {name} {value}", (sock.do("set", level, name, integer(value)), sock.do("get", level, name))

    def usual(self, slot):
        level, name, values = self.draw.choice([
            (IP, 2, [0, 1, 9, 255, 256, -1]), (IP, 1, [0, 3, 0x48, 255, 256]), (UDP, UDP_SEGMENT, [0, 1, 100, 1000, 1472, 65535, 65536]),
            (IP, 10, [0, 1, 2, 3, 4, 5, 6]), (SOCKET, 12, [0, 3, 6, 7]), (IPV6, 16, [1, 9, 255, 256, -1]), (IPV6, 67, [0, 7, 255, 256, -1]),
            (IPV6, 23, [0, 1, 2, 3]), (SOCKET, 6, [0, 1]), (IP, 34, [0, 1]), (IPV6, 18, [0, 1, 5, 255, -1]), (IP, 33, [0, 1, 5, 255, -1, 256]), (SOCKET, 18, [0, 5, 1])])
        return self.set(self.socks[slot], "usual", level, name, self.draw.choice(values))

    def control(self):
        choose, infos = self.draw.choice, ["127.0.0.1", self.host, "0.0.0.0"]
        level, kind, data = choose([
            (IP, 2, integer(choose([0, 1, 9, 255, 256, -1]))), (IP, 2, b"\7"), (IP, 1, integer(choose([0, 3, 0x48, 255, 256]))), (IP, 1, b"\x28"), (IP, 1, b"\x28\0"),
            (IP, IP_PKTINFO, integer(0) + socket.inet_aton(choose(infos)) + bytes(4)), (IP, IP_PKTINFO, bytes(11)), (IP, IP_PKTINFO, bytes(13)),
            (UDP, UDP_SEGMENT, struct.pack("H", choose([0, 1, 100, 1472, 1473, 65535]))), (UDP, UDP_SEGMENT, integer(100)), (UDP, UDP_SEGMENT, b"\1"),
            (UDP, UDP_GRO, integer(1)), (SOCKET, 1, integer(1)), (SOCKET, 77, b""), (77, 1, integer(1)), (IPV6, 52, integer(choose([0, 1, 255, 256, -1]))), (IPV6, 52, b"\7"),
            (IPV6, 67, integer(choose([0, 7, 255, 256, -1]))), (IPV6, 67, b"\7"), (IPV6, 62, integer(choose([0, 1, 2]))), (IPV6, 99, integer(1)), (IP, 99, integer(1)),
            (IPV6, IPV6_PKTINFO, socket.inet_pton(V6, choose(["::1", "::"])) + integer(0)), (IPV6, IPV6_PKTINFO, bytes(19)), (IPV6, IPV6_PKTINFO, bytes(24))])
        wrong = choose([0, 15, 16, 17, len(data) + 17, len(data) + 24, 1 << 40, (1 << 64) - 1, len(data) + 15])
        length = wrong if self.draw.random() < 0.12 else len(data) + 16
        shown = self.address(socket.inet_ntoa(data[4:8])) if (level, kind, len(data)) == (IP, IP_PKTINFO, 12) else data.hex()
        return struct.pack("=Qii", length, level, kind) + data + bytes(-len(data) % 8), (level, kind, shown, length)

    def sendmsg(self, slot):
        sock, parts = self.socks[slot], [self.control() for _ in range(self.draw.choice([1, 1, 1, 2, 3]))]
        control, text = b"".join(data for data, _ in parts), self.text((0, 1, 100, 1000, 1472, 1473, 3000, 12800, 12801, 20000))
        length = len(control) if self.draw.random() < 0.9 else self.draw.choice([len(control) - 1, len(control) - 8, 8, 15])
        at, (to, what) = self.draw.choice([0, 1, len(text) // 2]), self.target(sock) if self.draw.random() < 0.7 else (None, None)
        done = self.sooner_or_later(sock, sock.do("send", [text[:at], text[at:]], to, control, length))
        return f"sendmsg {len(text)} to {what} {[said for _, said in parts]} {length}", done

    # Groups.

    def group_options(self, is_v6):
        """All ways to hear a group, or not; a source is left only by who names sources, as Linux changes what it then refuses."""
        choose, on = self.draw.choice, struct.pack("=Q", self.link)
        stored = lambda host: packed(host, 0).ljust(128, b"\0")
        if is_v6:
            group, source = choose(["ff15::77", "ff15::77", "ff02::77", "ff12::78", "ff35::1"]), choose(["::1", "fd00::1"])
            octets, both = socket.inet_pton(V6, group), stored(group) + stored(source)
            return group, source, [("join", IPV6, 20, octets + integer(self.link)), ("leave", IPV6, 21, octets + integer(self.link)),
                                   ("join", IPV6, 42, on + stored(group)), ("leave", IPV6, 45, on + stored(group)), ("hear", IPV6, 46, on + both),
                                   ("block", IPV6, 43, on + both), ("all", IPV6, 29, integer(choose([0, 1])))]
        group, source = choose(["239.7.7.7", "239.7.7.7", "239.7.7.8", "232.1.1.1", "224.0.0.1"]), choose([self.host, self.host, "10.0.0.99"])
        octets, own, from_, both = socket.inet_aton(group), socket.inet_aton(self.host), socket.inet_aton(source), stored(group) + stored(source)
        return group, source, [
            ("join", IP, 35, octets + own), ("join", IP, 35, octets + bytes(4) + integer(self.link)), ("leave", IP, 36, octets + own), ("hear", IP, 39, octets + own + from_),
            ("block", IP, 38, octets + own + from_), ("join", IP, 42, on + stored(group)), ("leave", IP, 45, on + stored(group)), ("hear", IP, 46, on + both),
            ("block", IP, 43, on + both), ("filter", IP, 41, octets + own + integer(choose([0, 1])) + integer(1) + from_),
            ("filter", IP, 41, octets + own + integer(choose([0, 1])) + integer(0)), ("all", IP, 49, integer(choose([0, 1])))]

    def member(self, slot):
        sock = self.socks[slot]
        group, source, options = self.group_options(sock.family == V6 and self.draw.random() < 0.6)
        what, level, name, value = self.draw.choice(options)
        # What tells filters apart is in their last bytes, and of one the source.
        shown = value[16:24].hex().replace(socket.inet_aton(self.host).hex(), "host") if what == "filter" else value.hex() if what == "all" else ""
        shown = value[8:16].hex() if what == "filter" else shown
        return f"{what} {name} {group} {self.address(source)} {shown}", sock.do("set", level, name, value)

    def sends_by(self, slot):
        """How it sends to groups. IP_MULTICAST_LOOP of a socket of IPv6 is about what it sends over IPv4 here."""
        sock, own = self.socks[slot], socket.inet_aton(self.host)
        options = [("device", IP, 32, own), ("device", IP, 32, bytes(8) + integer(self.link)), ("device", IP, 32, bytes(4) + own), ("hops", IP, 33, integer(self.draw.choice([0, 1, 3]))),
                   ("broadcast", SOCKET, 6, integer(self.draw.choice([0, 1])))]
        if sock.family == V4:
            options.append(("loop", IP, 34, integer(self.draw.choice([0, 1]))))
        else:
            options += [("device", IPV6, 17, integer(self.link)), ("hops", IPV6, 18, integer(self.draw.choice([0, 1, 3])))]
        if sock.is_v6_alone:
            options.append(("loop", IPV6, 19, integer(self.draw.choice([0, 1]))))
        what, level, name, value = self.draw.choice(options)
        got = sock.do("get", level, name)
        return f"{what} {level} {value.hex() if what != 'device' else len(value)}", (sock.do("set", level, name, value), got if what != "device" else len(got))

    def to_group(self, slot):
        """The device by which it goes is named before, as no route leads there."""
        sock, text, port = self.socks[slot], self.text((0, 1, 20, 1000, 1400)), self.any_port()
        own = sock.host()
        if own.startswith("127.") or own == "::1" or own.startswith("::ffff:"):
            return None
        if sock.family == V6 and (sock.is_v6_alone or own != "::" or self.draw.random() < 0.5):
            group = self.draw.choice(["ff15::77", "ff15::77", "ff02::77", "ff12::78", "ff35::1", "ff02::1"])
            to = packed(group, port, self.link)
        else:
            group = self.draw.choice(["239.7.7.7", "239.7.7.7", "239.7.7.8", "232.1.1.1", "224.0.0.1", self.everybody])
            sock.do("set", IP, 32, bytes(8) + integer(self.link))
            to = packed(("::ffff:" if sock.family == V6 else "") + group, port)
        done = sock.program.do("plain", "sendto", sock.fd, text, len(text), NOSIGNAL, to, len(to))
        return f"to {self.address(group)}#{self.port(port)} {len(text)}", self.sooner_or_later(sock, done)

    def bind_group(self, slot):
        sock = self.socks[slot]
        if sock.port() and not sock.has_chosen:
            return None
        hosts = ["0.0.0.0"] * 3 + [self.host, "239.7.7.7", self.everybody] if sock.family == V4 else ["::"] * 4 + ["ff15::77"]
        host, port = self.draw.choice(hosts), self.draw.choice([self.own_ports[0], *self.own_ports[:2]])
        return f"bind {self.address(host)}#{self.port(port)}", self.bound(sock, packed(host, port), port)


def address_of(name):
    with socket.socket(type=DATAGRAM) as asker:
        shown = told(lambda: fcntl.ioctl(asker, SIOCGIFADDR, name.encode().ljust(40, b"\0")))
    return socket.inet_ntoa(shown[20:24]) if isinstance(shown, bytes) else None


USUAL = [(Life.make, 3), (Life.close, 1), (Life.bind, 4), (Life.connect, 3), (Life.send, 12), (Life.recv, 8), (Life.ask, 1)]
KINDS = {
    "who": [(Life.make, 4), (Life.close, 1.5), (Life.bind, 5), (Life.connect, 3), (Life.send, 15), (Life.recv, 4)],
    "calls": USUAL + [(Life.send_many, 4), (Life.receive_many, 4), (Life.shutdown, 1), (Life.wait, 2), (Life.tell, 2), (Life.ask, 2)],
    "beside": USUAL + [(Life.tell, 6), (Life.usual, 6), (Life.sendmsg, 12), (Life.recv, 8), (Life.bind, 3)],
    "errors": USUAL + [(Life.tell, 4), (Life.ask, 5), (Life.recv, 6), (Life.send, 8), (Life.close, 2), (Life.make, 2)],
    "groups": [(Life.make, 3), (Life.close, 1), (Life.bind_group, 5), (Life.member, 10), (Life.sends_by, 5), (Life.to_group, 12), (Life.recv, 6), (Life.tell, 2)],
}


class Barrier:
    """Two sockets of which one asks and the other answers: what was sent before has arrived then, as the same lane does it."""

    def __init__(self, host):
        self.ends = [socket.socket(type=DATAGRAM) for _ in range(2)]
        for end in self.ends:
            end.bind((host, 0))
            end.settimeout(5)

    def pass_through(self):
        for _ in range(3):
            for one, other in (self.ends, reversed(self.ends)):
                one.sendto(b"", other.getsockname())
                other.recv(1)


def live(host, seed, kind, programs, barrier):
    draw, steps = random.Random(seed), KINDS[kind]
    life = Life(host, draw, kind, programs, barrier)
    for nth in range(STEPS):
        step = draw.choices([step for step, _ in steps], [weight for _, weight in steps])[0] if nth > 2 else Life.make
        slot = life.pick()
        done = step(life) if step is Life.make else step(life, slot) if slot else None
        if done is None:
            continue
        barrier.pass_through()
        settle(life.state, QUIET, 0.001)
        print(f"{seed}.{nth} {slot if step is not Life.make else ''} {done[0]}: {done[1]} {life.state()}", flush=True)
    life.end()


if __name__ == "__main__":
    first, count = int(sys.argv[2]), int(sys.argv[3])
    all = [Program()] + [Other() for _ in range(1, int(sys.argv[5]))]
    between = Barrier(sys.argv[1])
    for seed in range(first, first + count):
        live(sys.argv[1], seed, sys.argv[4], all, between)
