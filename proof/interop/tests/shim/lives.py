"""Lives of some sockets of one program, drawn by lot: they are made, copied, bound, connected, accepted from, waited for, shared with a child
and closed in any order. Each call, what it told, and what all of them showed then.

lives.py HOST FIRST COUNT KIND

Kinds: `streams`, `families` (also of IPv6), `datagrams` (of both, beside streams).

Ports are shown in the order in which they were first seen. What differs for a reason (docs/shim.md) is not drawn: what is shut down has a
connection or a peer, listeners are not shut down, a failed connection is not bound again, and what has no connection shows no port that was
drawn for it.
"""
import ctypes
import fcntl
import os
import random
import select
import socket
import struct
import sys
import termios
import threading
import time

sys.dont_write_bytecode = True
from conversing import LIBC, brief, checked, events, named, number, settle, told

V4, V6, STREAM, DATAGRAM = socket.AF_INET, socket.AF_INET6, socket.SOCK_STREAM, socket.SOCK_DGRAM
KINDS = {
    "streams": [(V4, STREAM)],
    "families": [(V4, STREAM), (V4, STREAM), (V6, STREAM)],
    "datagrams": [(V4, STREAM), (V4, DATAGRAM), (V4, DATAGRAM), (V6, DATAGRAM)],
}
ESTABLISHED, FIN_WAIT_1, FIN_WAIT_2, CLOSED, LISTENS = 1, 4, 5, 7, 10
NONBLOCK, CLOEXEC, NOSIGNAL, MSG_ERRQUEUE = socket.SOCK_NONBLOCK, socket.SOCK_CLOEXEC, socket.MSG_NOSIGNAL, 0x2000
EDGE, ONCE = 1 << 31, select.EPOLLONESHOT
QUIET, PATIENCE, STEPS = 0.015, 0.2, 45
# No two lives have the same ports, nor have those of a run a moment ago: what was closed there may be in TIME-WAIT.
NEXT_PORT = 10_000 + int(time.time() * 10) % 20_000


def call(name, *arguments):
    return told(lambda: checked(getattr(LIBC, name)(*arguments)))


def packed(family, host, port):
    if family == V4:
        return struct.pack("=H", V4) + struct.pack("!H", port) + socket.inet_pton(V4, host) + bytes(8)
    return struct.pack("=H", V6) + struct.pack("!HI", port, 0) + socket.inet_pton(V6, host) + bytes(4)


class Kind:
    """What the copies of a descriptor have in common."""

    def __init__(self, family, kind):
        self.family, self.kind = family, kind
        self.is_bound, self.has_tried = False, False


class Life:
    def __init__(self, host, draw, kinds):
        global NEXT_PORT
        self.host, self.draw, self.kinds = host, draw, kinds
        self.fds, self.kind_of = {}, {}
        self.sets = {"X": select.epoll(), "Y": select.epoll()}
        self.own_ports = list(range(NEXT_PORT, NEXT_PORT + 3))
        NEXT_PORT += 3
        self.ports = {port: f"own{n}" for n, port in enumerate(self.own_ports)} | {0: "0"}
        # IPv6 alone, or IPv4 by it: in Linux a socket that has been at one is not always good for the other.
        self.shares_address, self.is_mapped = draw.random() < 0.5, draw.random() < 0.5
        self.sent = 0

    def end(self):
        for fd in self.fds.values():
            os.close(fd)
        for it in self.sets.values():
            it.close()

    # What is shown.

    def port(self, port):
        return self.ports.setdefault(port, f"p{len(self.ports)}")

    def text(self, raw, is_stale=False):
        family, port = struct.unpack("=H", raw[:2])[0], struct.unpack("!H", raw[2:4])[0]
        host = socket.inet_ntop(family, raw[4:8] if family == V4 else raw[8:24])
        port = 0 if is_stale and port not in self.own_ports else port
        return f"{host.replace(self.host, 'host')}#{self.port(port)}"

    def name(self, which, fd, room=28, is_stale=False):
        buffer, length = ctypes.create_string_buffer(64), ctypes.c_int(room)
        done = call(which, fd, buffer, ctypes.byref(length))
        if done != 0:
            return done
        return self.text(buffer.raw, is_stale) if room >= 16 else length.value

    def peer(self, fd):
        return self.name("getpeername", fd)

    def has_peer(self, fd):
        return "#" in self.peer(fd)

    def is_stream(self, slot):
        return self.kind_of[slot].kind == STREAM

    def state_of(self, slot):
        value, length = ctypes.create_string_buffer(8), ctypes.c_int(1)
        if not self.is_stream(slot):
            return None
        done = call("getsockopt", self.fds[slot], socket.IPPROTO_TCP, socket.TCP_INFO, value, ctypes.byref(length))
        return done or {FIN_WAIT_1: FIN_WAIT_2}.get(value.raw[0], value.raw[0])

    def shown(self, slot):
        fd, state = self.fds[slot], self.state_of(slot)
        ready = events(fd_of(fd))
        has_failed = state == CLOSED and "ERR" in ready
        name = "?" if has_failed else self.name("getsockname", fd, is_stale=state == CLOSED)
        return f"{ready} {number(fd, termios.FIONREAD)} {name} {self.peer(fd)} {state}"

    def state(self):
        return {slot: self.shown(slot) for slot in sorted(self.fds)}

    # Who and where.

    def pick(self, is_wanted=lambda _: True):
        slots = [slot for slot in sorted(self.fds) if is_wanted(slot)]
        return self.draw.choice(slots) if slots else None

    def free(self):
        return next((slot for slot in "abcdef" if slot not in self.fds), None)

    def keep(self, fd, kind):
        slot = self.free()
        if slot:
            self.fds[slot], self.kind_of[slot] = fd, kind
        else:
            os.close(fd)
        return slot or "-"

    def leave_sets(self, fd):
        """In Linux what is closed stays in a set while it has a copy."""
        for it in self.sets.values():
            told(lambda: it.unregister(fd))

    def drop(self, slot):
        fd = self.fds.pop(slot)
        self.kind_of.pop(slot)
        self.leave_sets(fd)
        return call("close", fd)

    def host_of(self, family, with_any=False):
        v4 = ["127.0.0.1", "127.0.0.1", self.host] + ["0.0.0.0"] * with_any
        if family == V4:
            return self.draw.choice(v4)
        if self.is_mapped:
            return self.draw.choice(["::ffff:" + it for it in v4[:3]] + ["::"] * with_any)
        return self.draw.choice(["::1", "::1"] + ["::"] * with_any)

    def target(self, slot):
        """An address that a socket of the program has, or nobody."""
        family, ports = self.kind_of[slot].family, []
        for other in sorted(self.fds):
            buffer, length = ctypes.create_string_buffer(64), ctypes.c_int(28)
            if self.state_of(other) != CLOSED and call("getsockname", self.fds[other], buffer, ctypes.byref(length)) == 0:
                ports.append(struct.unpack("!H", buffer.raw[2:4])[0])
        host, port = self.host_of(family), self.draw.choice([port for port in ports if port] * 3 + self.own_ports)
        return packed(family, host, port), f"{host.replace(self.host, 'host')}#{self.port(port)}"

    def is_bindable(self, slot):
        """One that had an address and whose connection has failed may have another in Linux, and not here (docs/shim.md)."""
        kind = self.kind_of[slot]
        is_bindable = not self.is_stream(slot) or not kind.has_tried or not kind.is_bound and "RDHUP" not in events(fd_of(self.fds[slot]))
        kind.is_bound |= is_bindable
        return is_bindable

    def may_shut(self, slot, how=socket.SHUT_WR):
        fd = self.fds[slot]
        return self.has_peer(fd) if self.state_of(slot) != LISTENS else how == socket.SHUT_WR

    # Steps: what is done, and what it told. `None` is nothing.

    def make(self):
        if not self.free():
            return None
        kind = self.draw.choice(self.kinds)
        fd = call("socket", kind[0], kind[1] | NONBLOCK, 0)
        one = ctypes.byref(ctypes.c_int(1))
        if kind[1] == STREAM:
            call("setsockopt", fd, socket.IPPROTO_TCP, socket.TCP_NODELAY, one, 4)
        # A connection that both ends have closed here is not in TIME-WAIT.
        if self.shares_address or kind[1] == STREAM:
            call("setsockopt", fd, socket.SOL_SOCKET, socket.SO_REUSEADDR, one, 4)
        return f"{self.keep(fd, Kind(*kind))} is {kind[0].name} {kind[1].name}", None

    def close(self, slot):
        return "close", self.drop(slot)

    def abort(self, slot):
        if not self.is_stream(slot):
            return None
        call("setsockopt", self.fds[slot], socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0), 8)
        return "abort", self.drop(slot)

    def copy(self, slot):
        if not self.free():
            return None
        return f"copy to {self.keep(os.dup(self.fds[slot]), self.kind_of[slot])}", None

    def replace(self, slot):
        other = self.pick()
        if other == slot:
            return None
        self.leave_sets(self.fds[other])
        self.kind_of[other] = self.kind_of[slot]
        return f"copy over {other}", call("dup2", self.fds[slot], self.fds[other]) == self.fds[other]

    def bind(self, slot):
        if not self.is_bindable(slot):
            return None
        family, port = self.kind_of[slot].family, self.draw.choice(self.own_ports + [0])
        host = self.host_of(family, True)
        address = packed(family, host, port)
        return f"bind {host.replace(self.host, 'host')}#{self.port(port)}", call("bind", self.fds[slot], address, len(address))

    def listen(self, slot):
        backlog = self.draw.choice([8, 8, -1, 100])
        return f"listen {backlog}", call("listen", self.fds[slot], backlog)

    def connect(self, slot):
        address, what = self.target(slot)
        fd, blocks = self.fds[slot], self.draw.random() < 0.5
        self.kind_of[slot].has_tried = True
        if blocks:
            call("setsockopt", fd, socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", 0, 300_000), 16)
            os.set_blocking(fd, True)
        done = call("connect", fd, address, len(address))
        os.set_blocking(fd, False)
        return f"connect {what} {'blocks' if blocks else ''}", done

    def accept(self, slot):
        flags = NONBLOCK | self.draw.choice([0, CLOEXEC, CLOEXEC, 0x1000000])
        room, is_asked = self.draw.choice([28, 28, 28, 16, 3, 0, -1]), self.draw.random() < 0.8
        buffer, length = ctypes.create_string_buffer(64), ctypes.c_int(room)
        done = call("accept4", self.fds[slot], *([buffer, ctypes.byref(length)] if is_asked else [None, None]), flags)
        if isinstance(done, int):
            who = self.text(buffer.raw) if is_asked and room == 28 else length.value
            is_closed = fcntl.fcntl(done, fcntl.F_GETFD)
            done = self.keep(done, Kind(self.kind_of[slot].family, STREAM)), who, is_closed
        return f"accept {flags:x} {room} {is_asked}", done

    def send(self, slot):
        count = self.draw.choice([0, 1, 10, 1000, 5000])
        flags = self.draw.choice([0, 0, 0, socket.MSG_DONTWAIT, socket.MSG_CONFIRM])
        self.sent += 1
        text, fd = bytes([self.sent % 251]) * count, self.fds[slot]
        if self.draw.random() < 0.6:
            return f"send {count} {flags}", call("send", fd, text, count, flags | NOSIGNAL)
        address, what = self.target(slot)
        return f"send {count} {flags} to {what}", call("sendto", fd, text, count, flags | NOSIGNAL, address, len(address))

    def recv(self, slot):
        count, room = self.draw.choice([0, 1, 10, 1000, 60_000]), self.draw.choice([28, 28, 4, 0, -1])
        flags = self.draw.choice([0, 0, 0, socket.MSG_PEEK, socket.MSG_TRUNC, socket.MSG_WAITALL, socket.MSG_OOB, socket.MSG_DONTWAIT, MSG_ERRQUEUE])
        # What was sent is queued with its begin.
        count = min(count, 10) if flags == MSG_ERRQUEUE else count
        buffer, name, length = ctypes.create_string_buffer(60_000), ctypes.create_string_buffer(64), ctypes.c_int(room)
        done = call("recvfrom", self.fds[slot], buffer, count, flags, name, ctypes.byref(length))
        if isinstance(done, int):
            who = self.text(name.raw) if room == 28 and length.value else length.value
            taken = flags & socket.MSG_TRUNC and self.is_stream(slot)
            done = done, None if taken else brief(buffer.raw[:min(done, count)]), who
        return f"recv {count} {flags} {room}", done

    def wait(self, slot):
        """A thread is in a call that blocks, while another does something."""
        fd, how = self.fds[slot], self.draw.choice(["recv", "accept", "peek", "all", "poll"])
        # A datagram socket that waits has a port here.
        how = "accept" if not self.is_stream(slot) and self.name("getsockname", fd).endswith("#0") else how
        call("setsockopt", fd, socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", 0, int(PATIENCE * 1e6)), 16)
        os.set_blocking(fd, True)
        told_of, buffer = [], ctypes.create_string_buffer(5000)

        def run():
            if how == "accept":
                told_of.append(call("accept4", fd, None, None, NONBLOCK))
            elif how == "poll":
                poll = select.poll()
                poll.register(fd, select.POLLIN)
                told_of.append([named(ready) for _, ready in poll.poll(1000 * PATIENCE)])
            else:
                flags = {"recv": 0, "peek": socket.MSG_PEEK, "all": socket.MSG_WAITALL}[how]
                told_of.append(call("recv", fd, buffer, 5000, flags))

        thread = threading.Thread(target=run)
        thread.start()
        time.sleep(0.05)
        other, what, done = self.pick(), self.draw.choice(["shutdown", "send", "shut", "connect", "nothing"]), None
        if what == "shutdown" and self.may_shut(other):
            done = call("shutdown", self.fds[other], socket.SHUT_WR)
        elif what == "shut" and self.has_peer(fd):
            done = call("shutdown", fd, socket.SHUT_RDWR)
        elif what == "send":
            done = call("send", self.fds[other], b"x" * 20, 20, NOSIGNAL | socket.MSG_DONTWAIT)
        elif what == "connect" and other != slot:
            address, where = self.target(other)
            self.kind_of[other].has_tried = True
            what, done = f"connect {where}", call("connect", self.fds[other], address, len(address))
        thread.join()
        os.set_blocking(fd, False)
        if how == "accept" and isinstance(told_of[0], int):
            told_of[0] = self.keep(told_of[0], Kind(self.kind_of[slot].family, STREAM))
        return f"wait in {how}, {what} of {other}", (told_of, done)

    def share(self, slot):
        """A child does something, and ends."""
        fd, how = self.fds[slot], self.draw.choice(["send", "recv", "shutdown", "bind", "listen", "connect", "accept", "error", "close"])
        has_failed = self.is_stream(slot) and "RDHUP" in events(fd_of(fd))
        if how == "shutdown" and not self.may_shut(slot) or how == "bind" and not self.is_bindable(slot) or how == "connect" and has_failed:
            how = "error"
        self.kind_of[slot].has_tried |= how == "connect"
        family = self.kind_of[slot].family
        (address, what), anywhere = self.target(slot), packed(family, self.host_of(family), 0)
        buffer = ctypes.create_string_buffer(50)
        calls = {
            "send": lambda: call("send", fd, b"c" * 7, 7, NOSIGNAL), "recv": lambda: call("recv", fd, buffer, 50, 0),
            "shutdown": lambda: call("shutdown", fd, socket.SHUT_WR), "bind": lambda: call("bind", fd, anywhere, len(anywhere)),
            "listen": lambda: call("listen", fd, 3), "connect": lambda: call("connect", fd, address, len(address)),
            "accept": lambda: "accepted" if isinstance(it := call("accept4", fd, None, None, NONBLOCK), int) else it,
            "error": lambda: told(lambda: fd_option(fd, socket.SO_ERROR)), "close": lambda: call("close", fd),
        }
        told_by, tells = os.pipe()
        child = os.fork()
        if not child:
            done = calls[how]()
            time.sleep(0.01)
            os.write(tells, repr((done, events(fd_of(fd)) if how != "close" else None)).encode())
            os._exit(0)
        os.close(tells)
        said = os.read(told_by, 1000).decode()
        os.close(told_by)
        os.waitpid(child, 0)
        return f"a child: {how} {what if how == 'connect' else ''}", said

    def shutdown(self, slot):
        how = self.draw.choice([socket.SHUT_RD, socket.SHUT_WR, socket.SHUT_WR, socket.SHUT_RDWR, 3])
        return (f"shutdown {how}", call("shutdown", self.fds[slot], how)) if self.may_shut(slot, how) else None

    def ask(self, slot):
        fd = self.fds[slot]
        option = lambda name: struct.unpack("i", fd_option(fd, name))[0]
        what, asks = self.draw.choice([
            ("error", lambda: option(socket.SO_ERROR)), ("listens", lambda: option(socket.SO_ACCEPTCONN)),
            ("flags", lambda: fcntl.fcntl(fd, fcntl.F_GETFL) & ~0o100000), ("at mark", lambda: number(fd, 0x8905)),
            *[(f"{which} {room}", lambda which=which, room=room: self.name(which, fd, room))
              for which in ("getsockname", "getpeername") for room in (3, 0, -1)],
            ("select", lambda: [len(ready) for ready in select.select([fd], [fd], [fd], 0)]),
            ("errors", lambda: events(fd_of(fd), 0)), ("all events", lambda: events(fd_of(fd), 0x7fff)),
        ])
        return f"ask {what}", told(asks)

    def change_set(self, slot):
        which, how = self.draw.choice("XXY"), self.draw.choice(["register", "register", "register", "modify", "unregister"])
        wanted = self.draw.choice([select.EPOLLIN, select.EPOLLIN, select.EPOLLIN | select.EPOLLOUT, select.EPOLLIN | select.EPOLLRDHUP, select.EPOLLOUT, 0,
                                   select.EPOLLPRI]) | self.draw.choice([0, 0, ONCE, EDGE])
        # Room to write may be told of by an edge more than the kernel has.
        wanted &= ~select.EPOLLOUT if wanted & EDGE else -1
        arguments = [self.fds[slot], *([wanted] if how != "unregister" else [])]
        return f"set {which} {how} {wanted:x}", told(lambda: getattr(self.sets[which], how)(*arguments))

    def ask_set(self):
        which, names = self.draw.choice("XY"), {fd: slot for slot, fd in self.fds.items()}
        limit = self.draw.choice([0, 0.01])
        return f"ask set {which} {limit}", told(lambda: sorted((names.get(fd), named(ready)) for fd, ready in self.sets[which].poll(limit, 10)))

    def option(self, slot):
        level, name, values = self.draw.choice([
            (socket.SOL_SOCKET, socket.SO_RCVLOWAT, [1, 5, 2000, 0]), (socket.SOL_SOCKET, socket.SO_REUSEPORT, [0, 1]), (socket.SOL_SOCKET, socket.SO_OOBINLINE, [0, 1]),
            (socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, [0, 1]), (socket.SOL_SOCKET, socket.SO_BROADCAST, [0, 1]), (socket.IPPROTO_IP, 11, [0, 1]),
            (socket.IPPROTO_IPV6, 25, [0, 1])])
        value = self.draw.choice(values)
        return f"option {level} {name} {value}", call("setsockopt", self.fds[slot], level, name, ctypes.byref(ctypes.c_int(value)), 4)


class fd_of(int):
    """A descriptor where a socket is asked for."""

    def fileno(self):
        return int(self)


def fd_option(fd, name):
    value, length = ctypes.create_string_buffer(4), ctypes.c_int(4)
    checked(LIBC.getsockopt(fd, socket.SOL_SOCKET, name, value, ctypes.byref(length)))
    return value.raw


ALONE = [(Life.make, 4), (Life.ask_set, 3)]
OF_ONE = [(Life.close, 1.5), (Life.copy, 0.6), (Life.replace, 0.4), (Life.bind, 3), (Life.listen, 2.5), (Life.connect, 4), (Life.accept, 4), (Life.send, 4), (Life.recv, 4),
          (Life.wait, 1.2), (Life.share, 1.2), (Life.shutdown, 1.3), (Life.abort, 0.4), (Life.ask, 3), (Life.change_set, 3), (Life.option, 1.2)]


def live(host, seed, kinds):
    draw = random.Random(seed)
    life = Life(host, draw, kinds)
    steps = ALONE + OF_ONE
    for nth in range(STEPS):
        step = draw.choices([step for step, _ in steps], [weight for _, weight in steps])[0]
        is_alone = step in dict(ALONE)
        slot = None if is_alone else life.pick()
        done = step(life) if is_alone else step(life, slot) if slot else None
        if done is None:
            continue
        settle(life.state, QUIET, 0.003)
        print(f"{seed}.{nth} {slot or ''} {done[0]}: {done[1]} {life.state()}", flush=True)
    life.end()


first, count = int(sys.argv[2]), int(sys.argv[3])
for seed in range(first, first + count):
    live(sys.argv[1], seed, KINDS[sys.argv[4]])
