"""Lives of sockets that several processes have, drawn by lot: programs fork, are spawned, become others, pass sockets in messages, copy them over
others, wait for them in threads, and die in the middle. Each call, what it told, and what the sockets showed then in every process.

kin.py HOST FIRST COUNT KIND
kin.py --play FD NUMBER

Kinds: `streams`, `families` (also of IPv6, and datagrams). One process directs, which has no socket: it tells a player by a pipe what to do, and
waits for the answer, so what they do has an order. Ports are shown in the order in which they were first seen.

What differs for a reason (docs/shim.md) is not drawn: see lives.py, and beside it: what is in an epoll set that a child has of its parent is not
changed, and nobody closes such a socket without his copy of the set.
"""
import array
import ctypes
import fcntl
import os
import pickle
import random
import select
import signal
import socket
import struct
import sys
import termios
import threading
import time

sys.dont_write_bytecode = True
from conversing import LIBC, brief, checked, events, named, number, settle, told

V4, V6, STREAM, DATAGRAM = socket.AF_INET, socket.AF_INET6, socket.SOCK_STREAM, socket.SOCK_DGRAM
KINDS = {"streams": [(V4, STREAM)], "families": [(V4, STREAM), (V4, STREAM), (V6, STREAM), (V4, DATAGRAM), (V4, DATAGRAM), (V6, DATAGRAM)]}
CONNECTED, FIN_WAIT_1, FIN_WAIT_2, CLOSED = 1, 4, 5, 7
EDGE, ONCE = 1 << 31, select.EPOLLONESHOT
NONBLOCK, CLOEXEC, NOSIGNAL, DONTWAIT = socket.SOCK_NONBLOCK, socket.SOCK_CLOEXEC, socket.MSG_NOSIGNAL, socket.MSG_DONTWAIT
# Where players have the pipes by which they are told, and both ends of each way to pass descriptors.
PIPES, MAIL, PLAYERS = 200, 100, 40
MAIL_KINDS = [socket.SOCK_STREAM, socket.SOCK_DGRAM, socket.SOCK_SEQPACKET]
# What a call that waits may take. Each socket has it before it is shared.
PATIENCE, ASLEEP, QUIET, STEPS, MOST_PLAYERS, MOST_FDS = 0.2, 0.05, 0.015, 60, 4, 8
NEXT_PORT = 10_000 + int(time.time() * 10) % 20_000
# Options of a socket that one process sets and another reads.
OPTIONS = [(socket.SOL_SOCKET, socket.SO_RCVLOWAT, [1, 5, 2000]), (socket.SOL_SOCKET, socket.SO_KEEPALIVE, [0, 1]), (socket.SOL_SOCKET, socket.SO_OOBINLINE, [0, 1]),
           (socket.SOL_SOCKET, socket.SO_REUSEADDR, [0, 1]), (socket.IPPROTO_TCP, socket.TCP_NODELAY, [0, 1]), (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, [50, 70]),
           (socket.IPPROTO_IP, socket.IP_TOS, [0, 16]), (socket.SOL_SOCKET, socket.SO_BROADCAST, [0, 1])]


class Fd(int):
    """A descriptor where a socket is asked for."""

    def fileno(self):
        return int(self)


def packed(family, host, port):
    if family == V4:
        return struct.pack("=H", V4) + struct.pack("!H", port) + socket.inet_pton(V4, host) + bytes(8)
    return struct.pack("=H", V6) + struct.pack("!HI", port, 0) + socket.inet_pton(V6, host) + bytes(4)


def unpacked(raw):
    family, port = struct.unpack("=H", raw[:2])[0], struct.unpack("!H", raw[2:4])[0]
    return socket.inet_ntop(family, raw[4:8] if family == V4 else raw[8:24]), port


def whole(fd, length):
    data = b""
    while len(data) < length:
        more = os.read(fd, length - len(data))
        if not more:
            os._exit(0)
        data += more
    return data


def put(fd, what):
    data = pickle.dumps(what, 5)
    os.write(fd, struct.pack("I", len(data)) + data)


def get(fd):
    return pickle.loads(whole(fd, struct.unpack("I", whole(fd, 4))[0]))


# ---- A player.


class Player:
    """A process that does what it is told. Its sockets have the lowest numbers."""

    def __init__(self, number):
        self.number, self.threads = number, {}

    def play(self):
        while True:
            what, arguments = get(PIPES + 4 * self.number)
            try:
                done = told(lambda: getattr(self, what)(*arguments))
            except Exception as error:
                done = repr(error)
            put(PIPES + 4 * self.number + 3, done)

    def call(self, name, *arguments):
        return checked(getattr(LIBC, name)(*arguments))

    def make(self, family, kind, flags):
        fd = self.call("socket", family, kind | flags, 0)
        limit = struct.pack("ll", 0, int(PATIENCE * 1e6))
        for name in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):
            self.call("setsockopt", fd, socket.SOL_SOCKET, name, limit, 16)
        self.call("setsockopt", fd, socket.SOL_SOCKET, socket.SO_REUSEADDR, struct.pack("i", 1), 4)
        if kind == STREAM:
            self.call("setsockopt", fd, socket.IPPROTO_TCP, socket.TCP_NODELAY, struct.pack("i", 1), 4)
        return fd

    def bind(self, fd, address):
        return self.call("bind", fd, address, len(address))

    def connect(self, fd, address):
        return self.call("connect", fd, address, len(address))

    def accept(self, fd, flags):
        buffer, length = ctypes.create_string_buffer(64), ctypes.c_int(28)
        new = self.call("accept4", fd, buffer, ctypes.byref(length), flags)
        return new, unpacked(buffer.raw)

    def send(self, fd, text, flags, to):
        if to:
            return self.call("sendto", fd, text, len(text), flags | NOSIGNAL, to, len(to))
        return self.call("send", fd, text, len(text), flags | NOSIGNAL)

    def write(self, fd, text):
        return os.write(fd, text)

    def recv(self, fd, count, flags):
        buffer = ctypes.create_string_buffer(max(count, 1))
        done = self.call("recv", fd, buffer, count, flags)
        return done, brief(buffer.raw[:min(done, count)])

    def read(self, fd, count):
        return brief(os.read(fd, count))

    def poll(self, fds, limit):
        poll = select.poll()
        for fd in fds:
            poll.register(fd, select.POLLIN)
        return [(fd, named(ready)) for fd, ready in poll.poll(1000 * limit)]

    def select(self, fds, limit):
        return [list(map(int, ready)) for ready in select.select(fds, [], [], limit)]

    def abort(self, fd):
        self.call("setsockopt", fd, socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0), 8)
        return self.call("close", fd)

    def close_range(self, first, last, flags):
        return self.call("close_range", first, last, flags)

    def dup3(self, fd, to, flags):
        return self.call("dup3", fd, to, flags)

    def dup2(self, fd, to):
        return self.call("dup2", fd, to)

    def fcntl(self, fd, command, argument):
        return fcntl.fcntl(fd, command, argument)

    def block(self, fd, by, blocks):
        if by == "ioctl":
            return self.call("ioctl", fd, termios.FIONBIO, ctypes.byref(ctypes.c_int(not blocks)))
        flags = fcntl.fcntl(fd, fcntl.F_GETFL)
        return fcntl.fcntl(fd, fcntl.F_SETFL, flags & ~os.O_NONBLOCK | (0 if blocks else os.O_NONBLOCK))

    def option(self, fd, level, name, value):
        if value is not None:
            return self.call("setsockopt", fd, level, name, struct.pack("i", value), 4)
        buffer, length = ctypes.create_string_buffer(16), ctypes.c_int(16 if name in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO) and level == 1 else 4)
        self.call("getsockopt", fd, level, name, buffer, ctypes.byref(length))
        return buffer.raw[:length.value].hex()

    def set_time(self, fd, name, microseconds):
        return self.call("setsockopt", fd, socket.SOL_SOCKET, name, struct.pack("ll", 0, microseconds), 16)

    # Sets.

    def make_set(self, flags):
        return self.call("epoll_create1", flags)

    def set_ctl(self, epoll, how, fd, wanted):
        event = struct.pack("=Iq", wanted, fd)
        return self.call("epoll_ctl", epoll, how, fd, event)

    def set_wait(self, epoll, limit):
        room = ctypes.create_string_buffer(12 * 20)
        count = self.call("epoll_wait", epoll, room, 20, int(1000 * limit))
        return sorted((fd, named(ready)) for ready, fd in struct.iter_unpack("=Iq", room.raw[:12 * count]))

    # Messages with descriptors.

    def pass_on(self, mail, text, fds, flags):
        return socket.socket(fileno=os.dup(mail)).sendmsg([text], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))], flags)

    def take(self, mail, room, flags):
        it = socket.socket(fileno=mail)
        try:
            text, beside, said, _ = it.recvmsg(100, room, flags)
        finally:
            it.detach()
        fds = [fd for _, _, data in beside for fd in struct.unpack(f"{len(data) // 4}i", data[:len(data) // 4 * 4])]
        return text, fds, said, [fcntl.fcntl(fd, fcntl.F_GETFD) for fd in fds]

    # Processes.

    def fork(self, child):
        pid = os.fork()
        if not pid:
            self.number, self.threads = child, {}
            self.play()
        return pid

    def exec(self, with_environment):
        environment = dict(os.environ) if with_environment else {"PATH": "/usr/bin:/bin"}
        os.execve(sys.executable, words(self.number), environment)

    def spawn(self, child, copies, closes):
        actions = [(os.POSIX_SPAWN_DUP2, fd, to) for fd, to in copies] + [(os.POSIX_SPAWN_CLOSE, fd) for fd in closes]
        return os.posix_spawn(sys.executable, words(child), os.environ, file_actions=actions)

    def reap(self, pid):
        return os.waitpid(pid, 0)[1]

    def leave(self, how):
        if how == "exit":
            LIBC.exit(0)
        os._exit(0)

    def begin(self, what, arguments):
        """A thread waits in a call."""
        done = []
        thread = threading.Thread(target=lambda: done.append(told(lambda: getattr(self, what)(*arguments))), daemon=True)
        thread.start()
        self.threads[len(self.threads)] = thread, done
        return len(self.threads) - 1

    def end(self, thread):
        thread, done = self.threads[thread]
        thread.join(3)
        return done[0] if done else "hangs"

    # What is shown.

    def name(self, which, fd):
        buffer, length = ctypes.create_string_buffer(64), ctypes.c_int(28)
        return told(lambda: self.call(which, fd, buffer, ctypes.byref(length)) or unpacked(buffer.raw))

    def state(self, fd):
        value, length = ctypes.create_string_buffer(8), ctypes.c_int(1)
        done = told(lambda: self.call("getsockopt", fd, socket.IPPROTO_TCP, socket.TCP_INFO, value, ctypes.byref(length)))
        return done or {FIN_WAIT_1: FIN_WAIT_2}.get(value.raw[0], value.raw[0])

    def shown(self, fds):
        def one(fd, is_stream):
            flags = fcntl.fcntl(fd, fcntl.F_GETFL) & ~0o100000, fcntl.fcntl(fd, fcntl.F_GETFD)
            return events(Fd(fd)), number(fd, termios.FIONREAD), self.name("getsockname", fd), self.name("getpeername", fd), self.state(fd) if is_stream else None, flags
        return [(fd, told(lambda: one(fd, is_stream))) for fd, is_stream in fds]

    def which(self, fds):
        """Which are the same, as the kernel counts them."""
        seen = {}
        return [seen.setdefault((it.st_dev, it.st_ino), len(seen)) for it in map(os.fstat, fds)]

    def open_fds(self):
        """What a program sees that looks for what it has open."""
        return [fd for fd in range(64) if told(lambda: fcntl.fcntl(fd, fcntl.F_GETFD)) in (0, 1)]


def words(number):
    return [sys.executable, "-S", "-s", os.path.abspath(__file__), "--play", str(number)]


# ---- The director.


class Thing:
    """An open file: what its copies, in all processes, have in common."""

    def __init__(self, family, kind):
        self.family, self.kind = family, kind
        self.is_bound, self.has_tried, self.has_peer, self.listens, self.is_wild = False, False, False, False, False
        # Of a set: what is in it, and who may ask it.
        self.inside, self.is_shared, self.is_tricky = {}, False, False


class Process:
    def __init__(self, number, pid, parent, fds):
        self.number, self.pid, self.parent, self.fds = number, pid, parent, fds
        self.closes, self.blind = set(), set()

    def ask(self, what, *arguments):
        put(PIPES + 4 * self.number + 1, (what, arguments))
        return get(PIPES + 4 * self.number + 2)


class Life:
    def __init__(self, host, seed, kinds):
        global NEXT_PORT
        self.host, self.draw, self.kinds, self.seed = host, random.Random(seed), kinds, seed
        self.own_ports = list(range(NEXT_PORT, NEXT_PORT + 3))
        NEXT_PORT += 3
        self.ports = {port: f"own{n}" for n, port in enumerate(self.own_ports)} | {0: "0"}
        self.sent, self.next, self.processes, self.orphans = 0, 0, [], []
        # What waits at each end: the things of each message.
        self.mail, self.mail_things = [[] for _ in range(6)], [Thing(None, "mail") for _ in range(6)]
        self.watches = self.draw.choice(["all", "all", "some", "none"])
        for n in range(PLAYERS):
            for at, end in enumerate(end for _ in range(2) for end in os.pipe()):
                os.dup2(end, PIPES + 4 * n + at)
                os.close(end)
        for n, kind in enumerate(MAIL_KINDS):
            for at, end in enumerate(socket.socketpair(socket.AF_UNIX, kind)):
                os.dup2(end.fileno(), MAIL + 2 * n + at)
        for _ in range(2):
            number = self.number()
            pid = os.posix_spawn(sys.executable, words(number), os.environ)
            self.processes.append(Process(number, pid, None, {}))

    def number(self):
        self.next += 1
        return self.next - 1

    def end(self):
        for it in self.processes:
            os.kill(it.pid, signal.SIGKILL)
        while True:
            try:
                os.waitpid(-1, 0)
            except ChildProcessError:
                break
        os.closerange(MAIL, PIPES + 4 * PLAYERS)

    # What is shown.

    def port(self, port):
        return self.ports.setdefault(port, f"p{len(self.ports)}")

    def text(self, name, is_stale=False):
        if not isinstance(name, tuple):
            return name
        host, port = name
        port = 0 if is_stale and port not in self.own_ports else port
        return f"{host.replace(self.host, 'host')}#{self.port(port)}"

    def sockets(self, it):
        return [(fd, thing.kind == STREAM) for fd, thing in sorted(it.fds.items()) if thing.kind in (STREAM, DATAGRAM)]

    def shown(self, it):
        lines = {}
        for fd, told_of in it.ask("shown", self.sockets(it)):
            if isinstance(told_of, tuple):
                ready, count, name, peer, state, flags = told_of
                name = "?" if state == CLOSED and "ERR" in ready else self.text(name, state == CLOSED)
                told_of = f"{ready} {count} {name} {self.text(peer)} {state} {flags[0]:x}{'c' * flags[1]}"
            lines[fd] = told_of
        return lines

    def state(self):
        watched = self.processes if self.watches == "all" else self.processes[:1] if self.watches == "some" else []
        return {it.number: self.shown(it) for it in watched}

    # Who and what.

    def pick(self, it, is_wanted):
        """One of them, rather one that has a peer: of others there is little to tell."""
        fds = [fd for fd, thing in sorted(it.fds.items()) if is_wanted(thing)]
        connected = [fd for fd in fds if it.fds[fd].has_peer]
        return self.draw.choice(connected if connected and self.draw.random() < 0.7 else fds) if fds else None

    def pick_socket(self, it):
        return self.pick(it, lambda thing: thing.kind in (STREAM, DATAGRAM))

    def pick_stream(self, it):
        return self.pick(it, lambda thing: thing.kind == STREAM)

    def pick_set(self, it):
        fds = [fd for fd, thing in sorted(it.fds.items()) if thing.kind == "set" and thing not in it.blind]
        return self.draw.choice(fds) if fds else None

    def gets(self, it, fd, thing, closes=False):
        it.fds[fd] = thing
        (it.closes.add if closes else it.closes.discard)(fd)

    def leave_sets(self, it, fd):
        """In Linux what is closed stays in a set while it has a copy."""
        for at, thing in sorted(it.fds.items()):
            if thing.kind == "set" and thing not in it.blind and fd in thing.inside:
                if thing.is_shared:
                    it.blind.add(thing)
                else:
                    it.ask("set_ctl", at, 3, fd, 0)
                    del thing.inside[fd]

    def loses(self, it, fd):
        it.closes.discard(fd)
        return it.fds.pop(fd, None)

    def host_of(self, thing, with_any=False):
        if thing.family == V4:
            return self.draw.choice(["127.0.0.1", self.host] + ["0.0.0.0"] * with_any)
        return self.draw.choice(["::1"] + ["::"] * with_any)

    def target(self, thing):
        """An own port, which a socket may have."""
        host, port = self.host_of(thing), self.draw.choice(self.own_ports)
        return packed(thing.family, host, port), f"{host.replace(self.host, 'host')}#{self.port(port)}"

    def may_wait(self, thing):
        """A datagram socket that waits has a port here."""
        return thing.kind == STREAM or thing.is_bound

    # Steps: what is done, and what it told. `None` is nothing.

    def make(self, it):
        kind, flags = self.draw.choice(self.kinds), self.draw.choice([0, 0, NONBLOCK]) | self.draw.choice([0, 0, CLOEXEC])
        fd = it.ask("make", kind[0], kind[1], flags)
        self.gets(it, fd, Thing(*kind), flags & CLOEXEC)
        return f"make {kind[0].name} {kind[1].name} {flags:x}", fd

    def make_listener(self, it):
        """One that is at an own port, if nobody is."""
        fd = it.ask("make", V4, STREAM, 0)
        thing = Thing(V4, STREAM)
        self.gets(it, fd, thing)
        port = self.draw.choice(self.own_ports)
        bound = it.ask("bind", fd, packed(V4, "0.0.0.0", port))
        thing.is_bound = bound == 0
        listens = it.ask("call", "listen", fd, 8)
        thing.listens = listens == 0
        return f"make a listener at {self.port(port)}", (fd, bound, listens)

    def make_pair(self, it):
        """A connection of which one player has both ends."""
        listener = self.pick(it, lambda thing: thing.listens and thing.family == V4)
        if listener is None or len(it.fds) > MOST_FDS:
            return None
        name = it.ask("name", "getsockname", listener)
        fd = it.ask("make", V4, STREAM, 0)
        one, two = Thing(V4, STREAM), Thing(V4, STREAM)
        done = it.ask("connect", fd, packed(V4, "127.0.0.1" if name[0] == "0.0.0.0" else name[0], name[1]))
        one.has_peer = done == 0
        one.has_tried = True
        self.gets(it, fd, one)
        taken = it.ask("accept", listener, 0)
        if isinstance(taken, tuple):
            two.has_peer = two.has_tried = True
            self.gets(it, taken[0], two)
            taken = taken[0], self.text(taken[1])
        return f"make a pair by {listener}", (fd, done, taken)

    def make_set(self, it):
        flags = self.draw.choice([0, 0, CLOEXEC])
        fd = it.ask("make_set", flags)
        self.gets(it, fd, Thing(None, "set"), flags)
        return f"make a set {flags:x}", fd

    def close(self, it):
        fd = self.pick(it, lambda _: True)
        if fd is None:
            return None
        self.leave_sets(it, fd)
        self.loses(it, fd)
        return f"close {fd}", it.ask("call", "close", fd)

    def abort(self, it):
        fd = self.pick(it, lambda thing: thing.kind == STREAM and not thing.listens)
        if fd is None:
            return None
        self.leave_sets(it, fd)
        self.loses(it, fd)
        return f"abort {fd}", it.ask("abort", fd)

    def close_range(self, it):
        first = self.draw.randrange(3, 8)
        last, marks = first + self.draw.randrange(0, 4), self.draw.random() < 0.4
        for fd in range(first, last + 1):
            if fd in it.fds and not marks:
                self.leave_sets(it, fd)
        done = it.ask("close_range", first, last, 4 * marks)
        for fd in range(first, last + 1):
            if fd in it.fds:
                it.closes.add(fd) if marks else self.loses(it, fd)
        return f"close_range {first} {last} {marks}", done

    def copy(self, it):
        fd = self.pick(it, lambda _: True)
        if fd is None or len(it.fds) > MOST_FDS:
            return None
        how = self.draw.choice(["dup", "dup2", "dup2", "dup3", fcntl.F_DUPFD, fcntl.F_DUPFD_CLOEXEC])
        thing, to = it.fds[fd], self.draw.choice([0, 3, 4, 5, 6, 7, 8, 9, 12])
        if how in ("dup2", "dup3") and to in it.fds and to != fd:
            self.leave_sets(it, to)
        flags = self.draw.choice([0, CLOEXEC]) if how == "dup3" else 0
        done = {"dup": lambda: it.ask("call", "dup", fd), "dup2": lambda: it.ask("dup2", fd, to), "dup3": lambda: it.ask("dup3", fd, to, flags)}.get(
            how, lambda: it.ask("fcntl", fd, how, to))()
        if isinstance(done, int) and done != fd:
            self.loses(it, done)
            self.gets(it, done, thing, flags or how == fcntl.F_DUPFD_CLOEXEC)
        return f"copy {fd} by {how} {to} {flags:x}", done

    def bind(self, it):
        fd = self.pick_socket(it)
        if fd is None or it.fds[fd].kind == STREAM and it.fds[fd].has_tried:
            return None
        thing, port = it.fds[fd], self.draw.choice(self.own_ports + [0])
        host = self.host_of(thing, True)
        done = it.ask("bind", fd, packed(thing.family, host, port))
        thing.is_bound |= done == 0
        return f"bind {fd} {host.replace(self.host, 'host')}#{self.port(port)}", done

    def listen(self, it):
        fd = self.pick_stream(it)
        if fd is None:
            return None
        done = it.ask("call", "listen", fd, 8)
        it.fds[fd].listens |= done == 0
        return f"listen {fd}", done

    def connect(self, it):
        fd = self.pick_socket(it)
        if fd is None:
            return None
        thing = it.fds[fd]
        address, what = self.target(thing)
        thing.has_tried = True
        done = it.ask("connect", fd, address)
        thing.has_peer |= done == 0
        thing.is_bound |= thing.kind == DATAGRAM and done == 0
        return f"connect {fd} {what}", done

    def accept(self, it):
        fd = self.pick(it, lambda thing: thing.listens)
        if fd is None or len(it.fds) > MOST_FDS:
            return None
        flags = self.draw.choice([0, 0, NONBLOCK, CLOEXEC])
        done = it.ask("accept", fd, flags)
        if isinstance(done, tuple):
            new = Thing(it.fds[fd].family, STREAM)
            new.has_peer = new.has_tried = True
            self.gets(it, done[0], new, flags & CLOEXEC)
            done = done[0], self.text(done[1])
        return f"accept {fd} {flags:x}", done

    def message(self):
        self.sent += 1
        return bytes([self.sent % 251]) * self.draw.choice([1, 10, 1000, 5000])

    def send(self, it):
        fd = self.pick_socket(it)
        if fd is None:
            return None
        text, thing, to, where = self.message(), it.fds[fd], None, ""
        if thing.kind == DATAGRAM:
            (to, where), thing.is_bound = self.target(thing), True
        elif self.draw.random() < 0.3:
            return f"write {fd} {len(text)}", it.ask("write", fd, text)
        return f"send {fd} {len(text)} {where}", it.ask("send", fd, text, self.draw.choice([0, DONTWAIT]), to)

    def recv(self, it):
        fd = self.pick_socket(it)
        if fd is None or not self.may_wait(it.fds[fd]):
            return None
        count, flags = self.draw.choice([1, 10, 1000, 60_000]), self.draw.choice([0, 0, DONTWAIT, socket.MSG_PEEK, socket.MSG_WAITALL])
        if self.draw.random() < 0.3:
            return f"read {fd} {count}", it.ask("read", fd, count)
        return f"recv {fd} {count} {flags}", it.ask("recv", fd, count, flags)

    def shutdown(self, it):
        fd = self.pick(it, lambda thing: thing.has_peer and thing.kind == STREAM)
        how = self.draw.choice([socket.SHUT_WR, socket.SHUT_WR, socket.SHUT_RDWR, socket.SHUT_RD])
        return None if fd is None else (f"shutdown {fd} {how}", it.ask("call", "shutdown", fd, how))

    def flags(self, it):
        fd, by, blocks = self.pick_socket(it), self.draw.choice(["fcntl", "ioctl"]), self.draw.random() < 0.6
        return None if fd is None else (f"{'block' if blocks else 'do not block'} {fd} by {by}", it.ask("block", fd, by, blocks))

    def mark(self, it):
        fd, closes = self.pick(it, lambda _: True), self.draw.randrange(2)
        if fd is None:
            return None
        (it.closes.add if closes else it.closes.discard)(fd)
        return f"mark {fd} {closes}", it.ask("fcntl", fd, fcntl.F_SETFD, closes)

    def option(self, it):
        fd = self.pick_socket(it)
        if fd is None:
            return None
        if self.draw.random() < 0.2:
            name = self.draw.choice([socket.SO_RCVTIMEO, socket.SO_SNDTIMEO])
            return f"time {fd} {name}", it.ask("set_time", fd, name, self.draw.choice([100_000, 250_000, 300_000]))
        level, name, values = self.draw.choice(OPTIONS)
        value = self.draw.choice(values)
        return f"option {fd} {level} {name} {value}", it.ask("option", fd, level, name, value)

    def ask(self, it):
        fd, what = self.pick_socket(it), self.draw.choice(["options", "which", "open", "error", "state", "peer", "flags"])
        if what == "open":
            return "what is open", it.ask("open_fds")
        if what == "which":
            return "which are the same", it.ask("which", sorted(it.fds))
        if fd is None:
            return None
        if what == "options":
            asked = [(level, name) for level, name, _ in OPTIONS] + [(1, socket.SO_RCVTIMEO), (1, socket.SO_SNDTIMEO), (1, socket.SO_ACCEPTCONN)]
            return f"options {fd}", [it.ask("option", fd, level, name, None) for level, name in asked]
        if what == "error":
            return f"error {fd}", it.ask("option", fd, socket.SOL_SOCKET, socket.SO_ERROR, None)
        if what == "flags":
            return f"flags {fd}", (it.ask("fcntl", fd, fcntl.F_GETFL, 0), it.ask("fcntl", fd, fcntl.F_GETFD, 0))
        return f"peer {fd}", self.text(it.ask("name", "getpeername", fd))

    def change_set(self, it):
        at, fd, way = self.pick_set(it), self.pick_socket(it), self.draw.choice([None, None, None, self.draw.randrange(6)])
        if at is None or it.fds[at].is_shared or fd is None and way is None:
            return None
        # What is the kernel's is in the same set.
        fd, thing = (fd, it.fds[fd]) if way is None else (MAIL + way, self.mail_things[way])
        its_set = it.fds[at]
        # What another process connects shows that late.
        if not (thing.has_peer or thing.listens or way is not None) or fd in its_set.inside and its_set.inside[fd] is not thing:
            return None
        wanted = self.draw.choice([select.EPOLLIN, select.EPOLLIN, select.EPOLLIN | select.EPOLLRDHUP, select.EPOLLIN | select.EPOLLOUT])
        # Room to write may be told of by an edge more than the kernel has.
        wanted |= self.draw.choice([0, 0, 0, EDGE, ONCE]) if not wanted & select.EPOLLOUT else 0
        its_set.is_tricky |= bool(wanted & (EDGE | ONCE))
        how = self.draw.choice([1, 1, 1, 2, 3])
        done = it.ask("set_ctl", at, how, fd, wanted)
        if done == 0:
            its_set.inside[fd] = thing
            if how == 3:
                del its_set.inside[fd]
        return f"set {at} {how} {fd} {wanted:x}", done

    def ask_set(self, it):
        at = self.pick_set(it)
        return None if at is None else (f"ask set {at}", it.ask("set_wait", at, 0))

    # Descriptors in messages.

    def pass_on(self, it):
        fds = [fd for fd, thing in sorted(it.fds.items()) if thing.kind != "set"]
        if not fds:
            return None
        way = self.draw.randrange(6)
        if len(self.mail[way ^ 1]) > 3:
            return None
        fds = [self.draw.choice(fds) for _ in range(self.draw.choice([1, 1, 2, 3]))]
        done = it.ask("pass_on", MAIL + way, b"m", fds, DONTWAIT)
        if done == 1:
            self.mail[way ^ 1].append([it.fds[fd] for fd in fds])
        return f"pass {fds} to {way ^ 1}", done

    def take(self, it):
        ways = [way for way in range(6) if self.mail[way]] * 4 + [self.draw.randrange(6)]
        way = self.draw.choice(ways)
        count = len(self.mail[way][0]) if self.mail[way] else 1
        if len(it.fds) + count > MOST_FDS + 2:
            return None
        flags = int(self.draw.choice([0, 0, 0, socket.MSG_PEEK, 0x40000000]) | DONTWAIT)
        if self.draw.random() < 0.1:
            if self.mail[way]:
                self.mail[way].pop(0)
            return f"read from {way}", it.ask("call", "recv", MAIL + way, bytes(10), 10, DONTWAIT)
        room = self.draw.choice([0, 16, 20, 24, 28, 100, 100, 100, 100])
        done = it.ask("take", MAIL + way, room, flags)
        if isinstance(done, tuple):
            text, fds, said, closes = done
            things = self.mail[way][0] if flags & socket.MSG_PEEK else self.mail[way].pop(0)
            for fd, thing, close in zip(fds, things, closes):
                self.gets(it, fd, thing, close)
        return f"take from {way} {room} {flags:x}", done

    # Processes.

    def becomes(self, it, new):
        """What a copy of its descriptors has."""
        self.shares_sets(it)
        new.closes, new.blind = set(it.closes), set(it.blind)
        # An edge, and what is told once, is told to one of them in the kernel.
        new.blind |= {thing for thing in it.fds.values() if thing.is_tricky}
        return new

    def shares_sets(self, it):
        for thing in it.fds.values():
            thing.is_shared |= thing.kind == "set"

    def fork(self, it):
        if len(self.processes) >= MOST_PLAYERS:
            return None
        number = self.number()
        pid = it.ask("fork", number)
        self.processes.append(self.becomes(it, Process(number, pid, it, dict(it.fds))))
        return f"fork {number}", None

    def executed(self, it):
        """What is left of its descriptors in another program. A set knows nothing of sockets there."""
        for fd in sorted(it.closes):
            it.fds.pop(fd, None)
        it.closes = set()
        it.blind |= {thing for thing in it.fds.values() if thing.kind == "set"}

    def become(self, it):
        is_clean = self.draw.random() < 0.3
        put(PIPES + 4 * it.number + 1, ("exec", (not is_clean,)))
        self.executed(it)
        return f"become another{' with a clean environment' * is_clean}", it.ask("open_fds")

    def spawn(self, it):
        if len(self.processes) >= MOST_PLAYERS:
            return None
        new = self.becomes(it, Process(self.number(), 0, it, dict(it.fds)))
        fds = sorted(it.fds)
        copies = [(self.draw.choice(fds), self.draw.choice([0, 3, 5, 9])) for _ in range(self.draw.randrange(3))] if fds else []
        for fd, to in copies:
            if fd not in new.fds:
                return None
            # What is copied to where it is stays open, too.
            self.gets(new, to, new.fds[fd])
        closes = sorted({self.draw.choice(sorted(new.fds)) for _ in range(self.draw.randrange(3))}) if new.fds else []
        for fd in closes:
            self.loses(new, fd)
        new.pid = it.ask("spawn", new.number, copies, closes)
        self.executed(new)
        self.processes.append(new)
        return f"spawn {new.number} {copies} {closes}", new.ask("open_fds")

    def die(self, it):
        if len(self.processes) < 2:
            return None
        how = self.draw.choice(["kill", "kill", "exit", "_exit"])
        self.processes.remove(it)
        if how == "kill":
            os.kill(it.pid, signal.SIGKILL)
        else:
            put(PIPES + 4 * it.number + 1, ("leave", (how,)))
        return f"die by {how}", self.reap(it)

    def stop(self, it):
        """It is stopped, and what it waits for comes, or goes to another."""
        others = [who for who in self.processes if who is not it]
        waits = self.waits(it)
        if not others or waits is None or waits[1] in ("recv", "read", "accept", "set_wait"):
            # What has a time limit ends by being stopped there (signal(7)).
            return None
        _, what, arguments = waits
        thread = it.ask("begin", what, arguments)
        time.sleep(ASLEEP)
        os.kill(it.pid, signal.SIGSTOP)
        who = self.draw.choice(others)
        done = [step(self, who) for step in self.draw.choices([Life.send, Life.recv, Life.accept, Life.connect, Life.close, Life.shutdown], k=2)]
        os.kill(it.pid, signal.SIGCONT)
        return f"stop in {waits[0]} while {who.number} does {[it and it[0] for it in done]}", ([it and it[1] for it in done], self.ended(it, thread, what, arguments))

    def reap(self, it):
        if it.parent in self.processes:
            return it.parent.ask("reap", it.pid)
        return os.waitpid(it.pid, 0)[1]

    # A thread that waits, while something else is done.

    def waits(self, it):
        how = self.draw.choice(["recv", "recv", "read", "peek", "accept", "poll", "poll", "select", "set"])
        fds = [fd for fd, thing in sorted(it.fds.items()) if thing.kind in (STREAM, DATAGRAM) and self.may_wait(thing) and (thing.has_peer or thing.listens)]
        at, fd = self.pick_set(it), self.draw.choice(fds) if fds else None
        if how == "set":
            return None if at is None else (f"wait for set {at}", "set_wait", (at, PATIENCE))
        if fd is None:
            return None
        some = sorted({fd, self.draw.choice(fds)})
        what, arguments = {"recv": ("recv", (fd, 3000, 0)), "peek": ("recv", (fd, 3000, socket.MSG_PEEK)), "read": ("read", (fd, 3000)), "accept": ("accept", (fd, 0)),
                           "poll": ("poll", (some, PATIENCE)), "select": ("select", (some, PATIENCE))}[how]
        return f"{how} {arguments[0]}", what, arguments

    def wait(self, it):
        others = [self.draw.choice(self.processes) for _ in range(self.draw.choice([0, 0, 1]))]
        waiters = [(who, self.waits(who)) for who in [it, *others]]
        if any(waits is None for _, waits in waiters):
            return None
        if len(waiters) > 1 and any(what in ("recv", "read", "accept") for _, (_, what, _) in waiters):
            # Which of two is first is nobody's to say.
            waiters = waiters[:1]
        threads = [(who, who.ask("begin", what, arguments), what, arguments) for who, (_, what, arguments) in waiters]
        time.sleep(ASLEEP)
        who = self.draw.choice(self.processes)
        step = self.draw.choice([Life.send, Life.send, Life.send, Life.shutdown, Life.connect, Life.fork, Life.make, Life.copy, Life.die, Life.flags])
        # What is waited for is not closed by its own process (lives.py).
        is_kept = step is Life.copy and who in [it, *others] or step is Life.die and who in [it, *others]
        done = None if is_kept else step(self, who)
        answers = [self.ended(*thread) for thread in threads]
        return f"{[(who.number, waits[0]) for who, waits in waiters]} while {who.number} does {done and done[0]}", (done and done[1], answers)

    def ended(self, who, thread, what, arguments):
        done = who.ask("end", thread)
        if what == "accept" and isinstance(done, tuple):
            new = Thing(who.fds[arguments[0]].family, STREAM)
            new.has_peer = new.has_tried = True
            self.gets(who, done[0], new)
            done = done[0], self.text(done[1])
        return done


STEPS_BY_WEIGHT = [
    (Life.make, 2), (Life.make_listener, 2), (Life.make_pair, 3), (Life.make_set, 1), (Life.close, 2.5), (Life.abort, 0.5), (Life.close_range, 0.5), (Life.copy, 1.5),
    (Life.bind, 0.7), (Life.listen, 0.7), (Life.connect, 3), (Life.accept, 3), (Life.send, 5), (Life.recv, 4), (Life.shutdown, 1), (Life.flags, 1.5), (Life.mark, 0.7),
    (Life.option, 1), (Life.ask, 2), (Life.change_set, 2), (Life.ask_set, 2), (Life.pass_on, 3), (Life.take, 3), (Life.fork, 2), (Life.become, 1.2), (Life.spawn, 1),
    (Life.die, 1.2), (Life.wait, 4), (Life.stop, 1)]


def live(host, seed, kinds):
    life = Life(host, seed, kinds)
    print(f"{seed} watches {life.watches}")
    steps, weights = zip(*STEPS_BY_WEIGHT)
    for nth in range(STEPS):
        step, it = life.draw.choices(steps, weights)[0], life.draw.choice(life.processes)
        # Without a connection nothing happens.
        step, it = [(Life.make_listener, life.processes[0]), (Life.make_pair, life.processes[0])][nth > 0] if nth < 3 else (step, it)
        done = step(life, it)
        if done is None:
            continue
        if life.watches == "none":
            time.sleep(QUIET)
        else:
            settle(life.state, QUIET, 0.003)
        print(f"{seed}.{nth} {it.number} {done[0]}: {done[1]} {life.state()}", flush=True)
    life.end()


if sys.argv[1] == "--play":
    Player(int(sys.argv[2])).play()
else:
    # Whose parent is gone is the director's.
    LIBC.prctl(36, 1, 0, 0, 0)
    os.closerange(3, 64)
    first, count = int(sys.argv[2]), int(sys.argv[3])
    for seed in range(first, first + count):
        live(sys.argv[1], seed, KINDS[sys.argv[4]])
