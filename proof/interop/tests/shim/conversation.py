"""Conversations of two sockets of one program, drawn by lot: each call, what it told, and what both sockets showed then.

conversation.py HOST FIRST COUNT KIND

With the kind `urgent` some text is, and nobody ends a direction. TCP_NODELAY is on, as what Nagle's algorithm holds back depends on when a peer
acknowledges; so does how much is unacknowledged, which is not asked for. What MSG_MORE holds back is not compared either.
"""
import errno
import fcntl
import random
import select
import socket
import struct
import sys
import termios
import time

SIOCATMARK = 0x8905
EVENTS = [("IN", select.POLLIN), ("PRI", select.POLLPRI), ("OUT", select.POLLOUT), ("RDHUP", select.POLLRDHUP),
          ("HUP", select.POLLHUP), ("ERR", select.POLLERR), ("NVAL", select.POLLNVAL)]
WANTED = select.POLLIN | select.POLLPRI | select.POLLOUT | select.POLLRDHUP
QUIET = 0.03
LIMIT = 2.0


def told(call):
    """What a call returns, or the name of its error."""
    try:
        return call()
    except OSError as error:
        return errno.errorcode.get(error.errno, error.errno)


def number(sock, request):
    return told(lambda: struct.unpack("i", fcntl.ioctl(sock, request, bytes(4)))[0])


def shown(sock):
    """Its events, and how much there is to read."""
    poll = select.poll()
    poll.register(sock, WANTED)
    bits = dict(poll.poll(0)).get(sock.fileno(), 0)
    return "|".join(name for name, bit in EVENTS if bits & bit) or "-", number(sock, termios.FIONREAD)


def brief(data):
    return f"{len(data)}:{data[:4].hex()}..{data[-3:].hex()}" if isinstance(data, bytes) else data


class Pair:
    def __init__(self, host, draw, has_urgent):
        listener = socket.socket()
        listener.bind((host, 0))
        listener.listen(8)
        one = socket.create_connection(listener.getsockname())
        two, _ = listener.accept()
        listener.close()
        self.host, self.draw, self.has_urgent = host, draw, has_urgent
        self.ends, self.sent = {"A": one, "B": two}, {"A": 0, "B": 0}
        for end in self.ends.values():
            end.setblocking(False)
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def state(self):
        return {side: shown(end) for side, end in self.ends.items()}

    def settle(self):
        """Until nothing has changed for a while."""
        begin = since = time.monotonic()
        before = self.state()
        while time.monotonic() - since < QUIET and time.monotonic() - begin < LIMIT:
            time.sleep(0.003)
            now = self.state()
            if now != before:
                before, since = now, time.monotonic()

    def send(self, side):
        count = self.draw.choice([1, 2, 7, 100, 1460, 3000, 9000])
        flags = self.draw.choice([0, 0, 0, socket.MSG_OOB if self.has_urgent else 0])
        text = bytes((self.sent[side] + n) % 251 for n in range(count))
        done = told(lambda: self.ends[side].send(text, flags | socket.MSG_NOSIGNAL))
        self.sent[side] += done if isinstance(done, int) else 0
        return f"send {count} {flags}", done

    def recv(self, side):
        count = self.draw.choice([0, 1, 3, 50, 1460, 5000, 100000])
        flags = self.draw.choice([0, 0, 0, socket.MSG_PEEK, socket.MSG_OOB, socket.MSG_WAITALL,
                                  socket.MSG_OOB | socket.MSG_PEEK])
        return f"recv {count} {flags}", brief(told(lambda: self.ends[side].recv(count, flags)))

    def discard(self, side):
        count = self.draw.choice([1, 50, 2000])
        room = bytearray(count)
        return f"discard {count}", told(lambda: self.ends[side].recv_into(room, count, socket.MSG_TRUNC))

    def recvmsg(self, side):
        sizes = [self.draw.choice([1, 10, 2000]) for _ in range(self.draw.randrange(1, 4))]
        flags = self.draw.choice([0, socket.MSG_PEEK])

        def call():
            rooms = [bytearray(size) for size in sizes]
            count, _, with_flags, name = self.ends[side].recvmsg_into(rooms, 0, flags)
            return brief(b"".join(map(bytes, rooms))[:count]), with_flags, name
        return f"recvmsg {sizes} {flags}", told(call)

    def shutdown(self, side):
        how = self.draw.choice([socket.SHUT_RD, socket.SHUT_WR, socket.SHUT_WR, socket.SHUT_RDWR])
        return f"shutdown {how}", told(lambda: self.ends[side].shutdown(how))

    def close(self, side):
        self.ends.pop(side).close()
        return "close", None

    def linger(self, side):
        value = self.draw.choice([(0, 0), (1, 0)])
        end = self.ends[side]
        return f"linger {value}", told(
            lambda: end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", *value)))

    def option(self, side):
        level, name, values = self.draw.choice([
            (socket.SOL_SOCKET, socket.SO_OOBINLINE, [0, 1]),
            (socket.SOL_SOCKET, socket.SO_RCVLOWAT, [0, 1, 5, 2000]),
            (socket.SOL_SOCKET, socket.SO_KEEPALIVE, [0, 1]),
        ])
        value, end = self.draw.choice(values), self.ends[side]
        done = told(lambda: end.setsockopt(level, name, value))
        return f"option {level} {name} {value}", (done, told(lambda: end.getsockopt(level, name)))

    def ask(self, side):
        end = self.ends[side]
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
        ])
        return f"ask {what}", told(call)


STEPS = [(Pair.send, 8), (Pair.recv, 8), (Pair.discard, 1), (Pair.recvmsg, 3), (Pair.shutdown, 1.2), (Pair.close, 0.5),
         (Pair.linger, 0.4), (Pair.option, 2), (Pair.ask, 5)]


def converse(host, seed, is_urgent):
    draw = random.Random(seed)
    pair = Pair(host, draw, is_urgent)
    steps = [it for it in STEPS if not is_urgent or it[0] not in (Pair.shutdown, Pair.close)]
    pair.settle()
    for nth in range(draw.randrange(5, 40)):
        if not pair.ends:
            break
        side = draw.choice(sorted(pair.ends))
        step = draw.choices([step for step, _ in steps], [weight for _, weight in steps])[0]
        what, result = step(pair, side)
        pair.settle()
        print(f"{seed}.{nth} {side} {what}: {result} {pair.state()}")
    for end in pair.ends.values():
        end.close()


first, count = int(sys.argv[2]), int(sys.argv[3])
for seed in range(first, first + count):
    converse(sys.argv[1], seed, sys.argv[4] == "urgent")
