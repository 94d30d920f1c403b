"""Conversations of two sockets of one program, drawn by lot: each call, what it told, and what both sockets showed then.

conversation.py HOST FIRST COUNT KIND

With the kind `urgent` some text is, which the other end looks at, and nobody ends a direction; with `sets` both are in an epoll set by lot, which is asked now and then.
TCP_NODELAY is on whenever a call has ended, and nothing is corked, as what Nagle's algorithm and corks hold back depends on when a peer
acknowledges; so does how much is unacknowledged, which is asked for with `sets` alone, where each call is given the time for that.
"""
import errno
import os
import random
import select
import socket
import struct
import sys
import termios

sys.dont_write_bytecode = True
from conversing import LIBC, brief, events, many, named, number, passed, settle, told

SIOCATMARK = 0x8905
MSG_FASTOPEN, TCP_INQ = 0x20000000, 36
MSG_MORE, MSG_ERRQUEUE, MSG_CMSG_CLOEXEC, MSG_WAITFORONE = 0x8000, 0x2000, 0x40000000, 0x10000
MODES = [0, select.EPOLLET, select.EPOLLONESHOT, select.EPOLLET | select.EPOLLONESHOT]
# An acknowledgement may be late by 40 ms.
QUIET = {"sets": 0.06}.get(sys.argv[4], 0.03)


def shown(sock):
    """Its events, and how much there is to read."""
    return events(sock), number(sock, termios.FIONREAD)


class Pair:
    def __init__(self, host, draw, kind):
        listener = socket.socket()
        listener.bind((host, 0))
        listener.listen(8)
        one = socket.create_connection(listener.getsockname())
        two, _ = listener.accept()
        listener.close()
        self.host, self.draw, self.has_urgent = host, draw, kind == "urgent"
        self.ends, self.sent = {"A": one, "B": two}, {"A": 0, "B": 0}
        self.file, self.is_ending = None, False
        for end in self.ends.values():
            end.setblocking(False)
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.set = select.epoll() if kind == "sets" else None

    def state(self):
        return {side: shown(end) for side, end in self.ends.items()}

    def settle(self):
        settle(self.state, QUIET, 0.003)

    def end(self):
        for end in self.ends.values():
            end.close()
        if self.set:
            self.set.close()

    def text(self, side, count):
        return bytes((self.sent[side] + n) % 251 for n in range(count))

    def note(self, side, done):
        self.sent[side] += done if isinstance(done, int) else 0
        return done

    def send(self, side):
        count = self.draw.choice([1, 2, 7, 100, 1460, 3000, 9000])
        flags = self.draw.choice([0, 0, 0, socket.MSG_OOB if self.has_urgent else 0, socket.MSG_DONTWAIT, socket.MSG_EOR, socket.MSG_CONFIRM, socket.MSG_DONTROUTE,
                                  MSG_FASTOPEN, socket.MSG_PEEK, MSG_ERRQUEUE, socket.MSG_TRUNC, socket.MSG_WAITALL])
        text = self.text(side, count)
        done = self.note(side, told(lambda: self.ends[side].send(text, flags | socket.MSG_NOSIGNAL)))
        if flags != socket.MSG_OOB:
            return f"send {count} {flags}", done
        self.settle()
        other = self.ends["AB".replace(side, "")]
        return f"send {count} urgent", (done, told(lambda: other.recv(1, socket.MSG_OOB | socket.MSG_PEEK)))

    def send_many(self, side):
        """All that hangs together, so that nothing is held back behind it."""
        end = self.ends[side]
        # Which call is the first to be told that the other end is gone depends on when that says so.
        is_ending = len(self.ends) < 2 or self.is_ending
        how = self.draw.choice([*(() if is_ending else ("more", "cork", "delay", "messages", "file", "write")), "vector", "to", "control", "nothing"])
        counts = [self.draw.choice([1, 5, 700, 1460, 2921]) for _ in range(self.draw.randrange(1, 5))]
        told_of = []

        def one(call):
            told_of.append(self.note(side, told(call)))

        def send(count, flags=0):
            text = self.text(side, count)
            one(lambda: end.send(text, flags | socket.MSG_NOSIGNAL))

        def option(name, on):
            told_of.append(told(lambda: end.setsockopt(socket.IPPROTO_TCP, name, on)))

        if how == "more":
            for count in counts:
                send(count, MSG_MORE)
            send(3)
        elif how in ("cork", "delay"):
            name, on = {"cork": (socket.TCP_CORK, 1), "delay": (socket.TCP_NODELAY, 0)}[how]
            option(name, on)
            told_of.append(told(lambda: end.getsockopt(socket.IPPROTO_TCP, name)))
            for count in counts:
                send(count)
            option(name, 1 - on)
        elif how == "vector":
            text = self.text(side, sum(counts))
            ends = [sum(counts[:n]) for n in range(len(counts) + 1)]
            one(lambda: os.writev(end.fileno(), [text[a:b] for a, b in zip(ends, ends[1:])]))
        elif how == "messages":
            text = self.text(side, sum(counts))
            ends = [sum(counts[:n]) for n in range(len(counts) + 1)]
            messages, kept = many([text[a:b] for a, b in zip(ends, ends[1:])])
            done = told(lambda: passed(LIBC.sendmmsg, end, messages, socket.MSG_NOSIGNAL))
            told_of.append(done)
            self.note(side, sum(it[0] for it in done[1]) if isinstance(done, tuple) else 0)
        elif how == "file":
            if not self.file:
                self.file = os.open(sys.executable, os.O_RDONLY)
            for count in counts:
                told_of.append(told(lambda: os.sendfile(end.fileno(), self.file, 0, count)))
        elif how == "write":
            for count in counts:
                text = self.text(side, count)
                one(lambda: os.write(end.fileno(), text))
                told_of.append(told(lambda: os.pwrite(end.fileno(), text, 0)))
        elif how == "to":
            text = self.text(side, counts[0])
            one(lambda: end.sendto(text, socket.MSG_NOSIGNAL, (self.host, 9)))
        elif how == "control":
            text = self.text(side, counts[0])
            level, name, data = self.draw.choice([(socket.SOL_SOCKET, 77, b"1234"), (socket.IPPROTO_TCP, 1, b"1234"), (socket.SOL_IP, socket.IP_TOS, b"\0\0\0\0"),
                                                  (socket.SOL_SOCKET, 37, b"\0" * 8)])
            one(lambda: end.sendmsg([text], [(level, name, data)], socket.MSG_NOSIGNAL))
            how += f" {level} {name}"
        else:
            one(lambda: end.send(b"", socket.MSG_NOSIGNAL))
            one(lambda: os.write(end.fileno(), b""))
            one(lambda: os.writev(end.fileno(), [b"", b""]))
        return f"send by {how} {counts}", told_of

    def recv(self, side):
        count = self.draw.choice([0, 1, 3, 50, 1460, 5000, 100000])
        flags = self.draw.choice([0, 0, 0, socket.MSG_PEEK, socket.MSG_OOB, socket.MSG_WAITALL, socket.MSG_OOB | socket.MSG_PEEK,
                                  socket.MSG_PEEK | socket.MSG_WAITALL, MSG_ERRQUEUE, socket.MSG_DONTWAIT])
        return f"recv {count} {flags}", brief(told(lambda: self.ends[side].recv(count, flags)))

    def wait(self, side):
        """A call that blocks, for a while."""
        end = self.ends[side]
        count = self.draw.choice([0, 1, 3, 50, 1460, 5000, 100000])
        flags = self.draw.choice([0, 0, socket.MSG_PEEK, socket.MSG_WAITALL, socket.MSG_WAITALL, socket.MSG_PEEK | socket.MSG_WAITALL,
                                  socket.MSG_OOB, socket.MSG_DONTWAIT, socket.MSG_WAITALL | socket.MSG_DONTWAIT, MSG_ERRQUEUE])
        end.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", 0, 20000))
        os.set_blocking(end.fileno(), True)
        done = told(lambda: end.recv(count, flags))
        os.set_blocking(end.fileno(), False)
        return f"wait {count} {flags}", brief(done)

    def read(self, side):
        fd = self.ends[side].fileno()
        how = self.draw.choice(["read", "vector", "pread", "dup", "splice"])
        count = self.draw.choice([0, 1, 50, 5000])
        # The kernel's splice never passes an urgent byte.
        how = "read" if how == "splice" and self.has_urgent else how
        if how == "vector":
            rooms = [bytearray(it) for it in (count, 1, 7)]

            def call():
                done = os.readv(fd, rooms)
                return brief(b"".join(map(bytes, rooms))[:done])
        elif how == "splice":
            count = min(count, 50)

            def call():
                ends = os.pipe()
                try:
                    done = os.splice(fd, ends[1], count, flags=2)
                    return brief(os.read(ends[0], done) if done else b"")
                finally:
                    os.close(ends[0]), os.close(ends[1])
        elif how == "pread":
            call = lambda: brief(os.pread(fd, count, 0))
        elif how == "dup":
            def call():
                copy = os.dup(fd)
                try:
                    return brief(os.read(copy, count))
                finally:
                    os.close(copy)
        else:
            call = lambda: brief(os.read(fd, count))
        return f"{how} {count}", told(call)

    def messages(self, side):
        sizes = [self.draw.choice([0, 1, 10, 2000]) for _ in range(self.draw.randrange(1, 4))]
        flags = self.draw.choice([0, socket.MSG_PEEK, MSG_WAITFORONE, socket.MSG_WAITALL, MSG_CMSG_CLOEXEC, MSG_ERRQUEUE, socket.MSG_TRUNC])
        messages, kept = many([bytes(size) for size in sizes])
        done = told(lambda: passed(LIBC.recvmmsg, self.ends[side], messages, flags, None))
        if isinstance(done, tuple) and not flags & socket.MSG_TRUNC:
            done += tuple(brief(room.raw[:it[0]]) for room, it in zip(kept[0], done[1]))
        return f"recvmmsg {sizes} {flags}", done

    def discard(self, side):
        count = self.draw.choice([0, 1, 50, 2000, 9000])
        flags = self.draw.choice([0, 0, socket.MSG_PEEK, socket.MSG_WAITALL, socket.MSG_OOB])
        room = bytearray(count or 1)
        return f"discard {count} {flags}", told(lambda: self.ends[side].recv_into(room, count, socket.MSG_TRUNC | flags) if count else
                                                len(self.ends[side].recv(0, socket.MSG_TRUNC | flags)))

    def recvmsg(self, side):
        sizes = [self.draw.choice([0, 1, 10, 2000]) for _ in range(self.draw.randrange(1, 4))]
        flags = self.draw.choice([0, 0, socket.MSG_PEEK, socket.MSG_WAITALL, MSG_CMSG_CLOEXEC, MSG_ERRQUEUE, socket.MSG_OOB, socket.MSG_TRUNC])
        control = self.draw.choice([0, 0, 100])

        def call():
            rooms = [bytearray(size) for size in sizes]
            count, beside, with_flags, name = self.ends[side].recvmsg_into(rooms, control, flags)
            text = b"".join(map(bytes, rooms))[:count] if not flags & socket.MSG_TRUNC else count
            return brief(text), beside, with_flags, name
        return f"recvmsg {sizes} {flags} {control}", told(call)

    def shutdown(self, side):
        how = self.draw.choice([socket.SHUT_RD, socket.SHUT_WR, socket.SHUT_WR, socket.SHUT_RDWR, 3, -1])
        self.is_ending = True
        return f"shutdown {how}", told(lambda: self.ends[side].shutdown(how))

    def close(self, side):
        self.ends.pop(side).close()
        return "close", None

    def abort(self, side):
        end = self.ends.pop(side)
        end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        end.close()
        return "abort", None

    def linger(self, side):
        value = self.draw.choice([(0, 0), (1, 0)])
        end = self.ends[side]
        done = told(lambda: end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", *value)))
        return f"linger {value}", (done, told(lambda: end.getsockopt(socket.SOL_SOCKET, socket.SO_LINGER, 8)))

    def option(self, side):
        level, name, values = self.draw.choice([
            (socket.SOL_SOCKET, socket.SO_OOBINLINE, [0, 1]),
            (socket.SOL_SOCKET, socket.SO_RCVLOWAT, [0, 1, 5, 2000, -1]),
            (socket.SOL_SOCKET, socket.SO_SNDLOWAT, [1, 5]),
            (socket.SOL_SOCKET, socket.SO_KEEPALIVE, [0, 1]),
            (socket.IPPROTO_TCP, socket.TCP_QUICKACK, [0, 1]),
            (socket.IPPROTO_TCP, TCP_INQ, [0, 1]),
        ])
        value, end = self.draw.choice(values), self.ends[side]
        done = told(lambda: end.setsockopt(level, name, value))
        # The kernel decides by itself when it delays acknowledgements, and its sysctls how much is as much as can be.
        is_fixed = name != socket.TCP_QUICKACK and value >= 0
        return f"option {level} {name} {value}", (done, told(lambda: end.getsockopt(level, name)) if is_fixed else None)

    def ask(self, side):
        end = self.ends[side]
        wanted = self.draw.choice([0, select.POLLIN, select.POLLOUT, select.POLLPRI, select.POLLRDHUP, 0x1fff, select.POLLRDNORM, select.POLLRDBAND,
                                   select.POLLWRBAND | select.POLLWRNORM])
        what, call = self.draw.choice([
            ("error", lambda: errno.errorcode.get(end.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR), 0)),
            ("mark", lambda: number(end, SIOCATMARK)),
            # FIN-WAIT-1 lasts for as long as the peer thinks.
            ("state", lambda: {4: 5}.get(*[end.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0]] * 2)),
            ("peer", lambda: end.getpeername()[0] == self.host),
            ("name", lambda: end.getsockname()[0] == self.host),
            ("accept", lambda: end.accept()),
            ("connect", lambda: end.connect((self.host, 9))),
            ("listen", lambda: end.listen(1)),
            (f"poll {wanted:x}", lambda: events(end, wanted)),
            ("select", lambda: [len(it) for it in select.select([end], [end], [end], 0)]),
            ("seek", lambda: os.lseek(end.fileno(), 0, os.SEEK_SET)),
            # Each end has acknowledged what it can; what comes when it is gone is never acknowledged.
            ("unacknowledged", lambda: number(end, termios.TIOCOUTQ) if self.set and len(self.ends) == 2 and not self.is_ending else None),
        ])
        return f"ask {what}", told(call)

    def change_set(self, side):
        end = self.ends[side]
        events = self.draw.choice([0, select.EPOLLIN, select.EPOLLIN, select.EPOLLOUT, select.EPOLLIN | select.EPOLLOUT | select.EPOLLRDHUP, select.EPOLLPRI,
                                   select.EPOLLRDHUP, select.EPOLLRDNORM | select.EPOLLWRNORM]) | self.draw.choice(MODES)
        # Room to write may be told of by an edge more than the kernel has.
        events &= ~(select.EPOLLOUT | select.EPOLLWRNORM) if events & select.EPOLLET else -1
        what = self.draw.choice(["register", "register", "modify", "modify", "unregister"])
        arguments = [end] if what == "unregister" else [end, events]
        return f"set {what} {events:x}", told(lambda: getattr(self.set, what)(*arguments))

    def ask_set(self, _):
        names = {end.fileno(): side for side, end in self.ends.items()}
        most = self.draw.choice([1, 2, 2, 5])
        # Which comes first is not compared.
        most = most if most > 1 or len(self.ends) == 1 else 2
        time = self.draw.choice([0, 0, 0.01])
        return f"ask set {most} {time}", told(lambda: sorted((names.get(fd), named(events)) for fd, events in self.set.poll(time, most)))


STEPS = [(Pair.send, 7), (Pair.send_many, 3), (Pair.recv, 7), (Pair.wait, 2), (Pair.read, 2), (Pair.messages, 2), (Pair.discard, 1.5), (Pair.recvmsg, 3),
         (Pair.shutdown, 1.2), (Pair.close, 0.5), (Pair.abort, 0.2), (Pair.linger, 0.4), (Pair.option, 2.5), (Pair.ask, 6)]
ENDING = (Pair.shutdown, Pair.close, Pair.abort)
ASKING = [(Pair.change_set, 5), (Pair.ask_set, 12)]


def converse(host, seed, kind):
    draw = random.Random(seed)
    pair = Pair(host, draw, kind)
    steps = [it for it in STEPS if kind != "urgent" or it[0] not in ENDING] + (ASKING if kind == "sets" else [])
    pair.settle()
    for nth in range(draw.randrange(5, 40)):
        if not pair.ends:
            break
        side = draw.choice(sorted(pair.ends))
        step = draw.choices([step for step, _ in steps], [weight for _, weight in steps])[0]
        what, result = step(pair, side)
        pair.settle()
        print(f"{seed}.{nth} {side} {what}: {result} {pair.state()}", flush=True)
    pair.end()


first, count = int(sys.argv[2]), int(sys.argv[3])
for seed in range(first, first + count):
    converse(sys.argv[1], seed, sys.argv[4])
