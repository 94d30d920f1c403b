"""Conversations about one socket's options, drawn by lot: what getsockopt, setsockopt, ioctl and fcntl tell of it, with room and values of
every length, and at the end what all options are.

option_conversation.py HOST FIRST COUNT KIND

Kinds: `streams` and `datagrams`, in a state that is drawn, too; `listeners` (what connections have of their listener, before and after it listens);
`requests` (ioctl and fcntl of either). What the host decides, and not the program, is shown as far as it is the same everywhere:
see SHOWN. What differs for a reason is not drawn: see LEFT_OUT.
"""
import ctypes
import errno
import fcntl
import os
import random
import select
import signal
import socket
import struct
import sys
import time

sys.dont_write_bytecode = True
from conversing import LIBC, checked, events, told

SOCKET, IP, IPV6, TCP, UDP = socket.SOL_SOCKET, socket.IPPROTO_IP, socket.IPPROTO_IPV6, socket.IPPROTO_TCP, socket.IPPROTO_UDP
V4, V6, STREAM, DATAGRAM = socket.AF_INET, socket.AF_INET6, socket.SOCK_STREAM, socket.SOCK_DGRAM
NAMES = {
    SOCKET: {1: "DEBUG", 2: "REUSEADDR", 3: "TYPE", 4: "ERROR", 5: "DONTROUTE", 6: "BROADCAST", 7: "SNDBUF", 8: "RCVBUF", 9: "KEEPALIVE",
             10: "OOBINLINE", 11: "NO_CHECK", 12: "PRIORITY", 13: "LINGER", 14: "BSDCOMPAT", 15: "REUSEPORT", 16: "PASSCRED", 17: "PEERCRED",
             18: "RCVLOWAT", 19: "SNDLOWAT", 20: "RCVTIMEO", 21: "SNDTIMEO", 22: "SECURITY", 25: "BINDTODEVICE", 26: "ATTACH_FILTER",
             27: "DETACH_FILTER", 28: "PEERNAME", 29: "TIMESTAMP", 30: "ACCEPTCONN", 31: "PEERSEC", 32: "SNDBUFFORCE", 33: "RCVBUFFORCE", 34: "PASSSEC",
             35: "TIMESTAMPNS", 36: "MARK", 37: "TIMESTAMPING", 38: "PROTOCOL", 39: "DOMAIN", 40: "RXQ_OVFL", 41: "WIFI_STATUS", 42: "PEEK_OFF",
             43: "NOFCS", 44: "LOCK_FILTER", 45: "SELECT_ERR_QUEUE", 46: "BUSY_POLL", 47: "MAX_PACING_RATE", 48: "BPF_EXTENSIONS",
             49: "INCOMING_CPU", 50: "ATTACH_BPF", 51: "ATTACH_REUSEPORT_CBPF", 52: "ATTACH_REUSEPORT_EBPF", 53: "CNX_ADVICE", 55: "MEMINFO",
             56: "INCOMING_NAPI_ID", 57: "COOKIE", 59: "PEERGROUPS", 60: "ZEROCOPY", 61: "TXTIME", 62: "BINDTOIFINDEX", 63: "TIMESTAMP_NEW",
             64: "TIMESTAMPNS_NEW", 65: "TIMESTAMPING_NEW", 66: "RCVTIMEO_NEW", 67: "SNDTIMEO_NEW", 68: "DETACH_REUSEPORT_BPF", 69: "PREFER_BUSY_POLL",
             70: "BUSY_POLL_BUDGET", 71: "NETNS_COOKIE", 72: "BUF_LOCK", 73: "RESERVE_MEM", 74: "TXREHASH", 75: "RCVMARK", 76: "PASSPIDFD",
             77: "PEERPIDFD", 83: "PASSRIGHTS"},
    TCP: {1: "NODELAY", 2: "MAXSEG", 3: "CORK", 4: "KEEPIDLE", 5: "KEEPINTVL", 6: "KEEPCNT", 7: "SYNCNT", 8: "LINGER2", 9: "DEFER_ACCEPT",
          10: "WINDOW_CLAMP", 11: "INFO", 12: "QUICKACK", 13: "CONGESTION", 14: "MD5SIG", 16: "THIN_LINEAR_TIMEOUTS", 17: "THIN_DUPACK",
          18: "USER_TIMEOUT", 19: "REPAIR", 20: "REPAIR_QUEUE", 21: "QUEUE_SEQ", 22: "REPAIR_OPTIONS", 23: "FASTOPEN", 24: "TIMESTAMP", 25: "NOTSENT_LOWAT",
          26: "CC_INFO", 27: "SAVE_SYN", 28: "SAVED_SYN", 29: "REPAIR_WINDOW", 30: "FASTOPEN_CONNECT", 31: "ULP", 32: "MD5SIG_EXT",
          33: "FASTOPEN_KEY", 34: "FASTOPEN_NO_COOKIE", 35: "ZEROCOPY_RECEIVE", 36: "INQ", 37: "TX_DELAY", 43: "IS_MPTCP"},
    UDP: {1: "CORK", 100: "ENCAP", 101: "NO_CHECK6_TX", 102: "NO_CHECK6_RX", 103: "SEGMENT", 104: "GRO"},
    IP: {1: "TOS", 2: "TTL", 3: "HDRINCL", 4: "OPTIONS", 5: "ROUTER_ALERT", 6: "RECVOPTS", 7: "RETOPTS", 8: "PKTINFO", 9: "PKTOPTIONS", 10: "MTU_DISCOVER",
         11: "RECVERR", 12: "RECVTTL", 13: "RECVTOS", 14: "MTU", 15: "FREEBIND", 18: "PASSSEC", 19: "TRANSPARENT", 20: "RECVORIGDSTADDR",
         21: "MINTTL", 22: "NODEFRAG", 23: "CHECKSUM", 24: "BIND_ADDRESS_NO_PORT", 25: "RECVFRAGSIZE", 26: "RECVERR_RFC4884", 32: "MULTICAST_IF",
         33: "MULTICAST_TTL", 34: "MULTICAST_LOOP", 35: "ADD_MEMBERSHIP", 36: "DROP_MEMBERSHIP", 37: "UNBLOCK_SOURCE", 38: "BLOCK_SOURCE",
         39: "ADD_SOURCE_MEMBERSHIP", 40: "DROP_SOURCE_MEMBERSHIP", 41: "MSFILTER", 42: "JOIN_GROUP", 45: "LEAVE_GROUP", 49: "MULTICAST_ALL",
         50: "UNICAST_IF", 51: "LOCAL_PORT_RANGE", 52: "PROTOCOL", 80: "ORIGINAL_DST"},
    IPV6: {1: "ADDRFORM", 2: "2292PKTINFO", 6: "2292PKTOPTIONS", 7: "CHECKSUM", 8: "2292HOPLIMIT", 11: "FLOWINFO", 16: "UNICAST_HOPS",
           17: "MULTICAST_IF", 18: "MULTICAST_HOPS", 19: "MULTICAST_LOOP", 20: "JOIN_GROUP", 21: "LEAVE_GROUP", 22: "ROUTER_ALERT", 23: "MTU_DISCOVER",
           24: "MTU", 25: "RECVERR", 26: "V6ONLY", 27: "JOIN_ANYCAST", 29: "MULTICAST_ALL", 31: "RECVERR_RFC4884", 32: "FLOWLABEL_MGR", 33: "FLOWINFO_SEND",
           36: "HDRINCL", 49: "RECVPKTINFO", 50: "PKTINFO", 51: "RECVHOPLIMIT", 52: "HOPLIMIT", 53: "RECVHOPOPTS", 54: "HOPOPTS", 56: "RECVRTHDR",
           57: "RTHDR", 58: "RECVDSTOPTS", 59: "DSTOPTS", 60: "RECVPATHMTU", 61: "PATHMTU", 62: "DONTFRAG", 66: "RECVTCLASS", 67: "TCLASS",
           70: "AUTOFLOWLABEL", 72: "ADDR_PREFERENCES", 73: "MINHOPCOUNT", 74: "RECVORIGDSTADDR", 75: "TRANSPARENT", 76: "UNICAST_IF",
           77: "RECVFRAGSIZE", 78: "FREEBIND"},
}
PREFIXES = {SOCKET: "SO_", TCP: "TCP_", UDP: "UDP_", IP: "IP_", IPV6: "IPV6_"}
OPTIONS = {PREFIXES[level] + name: (level, number) for level, names in NAMES.items() for number, name in names.items()}
CALLED = {option: name for name, option in OPTIONS.items()}
# Not done, and said so (docs/calls.md): ENOPROTOOPT.
NOT_DONE = {
    "SO_ATTACH_FILTER", "SO_DETACH_FILTER", "SO_PEERNAME", "SO_PEERSEC", "SO_TIMESTAMPING", "SO_PEEK_OFF", "SO_BPF_EXTENSIONS", "SO_ATTACH_BPF",
    "SO_ATTACH_REUSEPORT_CBPF", "SO_ATTACH_REUSEPORT_EBPF", "SO_DETACH_REUSEPORT_BPF", "SO_CNX_ADVICE", "SO_MEMINFO", "SO_TXTIME", "SO_NETNS_COOKIE",
    "SO_BUF_LOCK", "SO_TXREHASH", "SO_RCVMARK", "TCP_MD5SIG", "TCP_MD5SIG_EXT", "TCP_REPAIR", "TCP_REPAIR_QUEUE", "TCP_QUEUE_SEQ", "TCP_REPAIR_OPTIONS",
    "TCP_REPAIR_WINDOW", "TCP_TIMESTAMP", "TCP_CC_INFO", "TCP_SAVED_SYN", "TCP_FASTOPEN_KEY", "TCP_ZEROCOPY_RECEIVE", "IP_LOCAL_PORT_RANGE",
    "IP_PKTOPTIONS", "IPV6_ADDRFORM", "IPV6_2292PKTINFO", "IPV6_2292PKTOPTIONS", "IPV6_2292HOPLIMIT", "IPV6_JOIN_ANYCAST", "IPV6_FLOWLABEL_MGR",
    "IPV6_PATHMTU", "IPV6_AUTOFLOWLABEL", "IPV6_ADDR_PREFERENCES", "IPV6_PKTINFO", "IPV6_HOPLIMIT", "IPV6_HOPOPTS", "IPV6_RTHDR", "IPV6_DSTOPTS",
}
# Those of raw sockets, of translators, and what the kernel reads from a field that means something else there.
RAW = {"IP_HDRINCL", "IP_ROUTER_ALERT", "IP_NODEFRAG", "IPV6_ROUTER_ALERT", "IPV6_CHECKSUM", "IPV6_HDRINCL", "IP_ORIGINAL_DST", "IP_PROTOCOL"}
# A connection is in no group; to name sources the kernel lets it join some.
SOURCES = {"IP_UNBLOCK_SOURCE", "IP_BLOCK_SOURCE", "IP_ADD_SOURCE_MEMBERSHIP", "IP_DROP_SOURCE_MEMBERSHIP", "IP_MSFILTER", "IP_JOIN_GROUP", "IP_LEAVE_GROUP"}
# Those of 32-bit programs, and what the kernel decides by itself from segment to segment.
ELSEWHERE = {"SO_TIMESTAMP_NEW", "SO_TIMESTAMPNS_NEW", "SO_TIMESTAMPING_NEW", "SO_RCVTIMEO_NEW", "SO_SNDTIMEO_NEW", "TCP_QUICKACK"}
LEFT_OUT = {True: NOT_DONE | ELSEWHERE | RAW | SOURCES | {"IP_RECVFRAGSIZE", "IP_MTU", "IPV6_MTU"}, False: NOT_DONE | ELSEWHERE | RAW | {"IP_MSFILTER", "IP_MTU", "IPV6_MTU", "IPV6_DONTFRAG"}}
# These are off, and may be set so.
OFF = {"SO_DONTROUTE", "SO_ZEROCOPY", "IP_TRANSPARENT", "IP_CHECKSUM", "IP_RECVERR_RFC4884", "IPV6_FLOWINFO", "IPV6_RECVERR_RFC4884", "IPV6_TRANSPARENT",
       "IPV6_RECVFRAGSIZE"}
OFF_IN = {
    True: OFF | {"SO_TIMESTAMP", "SO_TIMESTAMPNS", "TCP_THIN_LINEAR_TIMEOUTS", "TCP_SAVE_SYN", "TCP_TX_DELAY"},
    False: OFF | {"SO_NO_CHECK", "UDP_ENCAP", "UDP_NO_CHECK6_TX", "UDP_NO_CHECK6_RX", "IP_RECVOPTS", "IP_RETOPTS", "IP_BIND_ADDRESS_NO_PORT", "IP_RECVFRAGSIZE",
                  "IPV6_RECVHOPOPTS", "IPV6_RECVRTHDR", "IPV6_RECVDSTOPTS", "IPV6_RECVPATHMTU"},
}
FILL = 0xa5
ROOMS = [0, 1, 2, 3, 4, 4, 4, 5, 8, 16, 64, 256]
NUMBERS = [0, 1, 1, 2, 3, 5, 9, 10, 60, 128, 255, 256, 1000, 1280, 1500, 5000, 20_000, 65535, 65536, 100_000, 1_000_000, -1, -2, 0x7fffffff, -0x80000000]
LIMIT = 3.0
CLOSE, CLOSE_WAIT = 7, 8


def integer(number):
    return struct.pack("i", number)


def called(level, name):
    return CALLED.get((level, name), f"{level}/{name}")


def read(sock, level, name, room):
    """As much as getsockopt(2) says, and whether it has written more."""
    value = (ctypes.c_ubyte * 512)(*[FILL] * 512)
    length = ctypes.c_int(room)
    checked(LIBC.getsockopt(sock.fileno(), level, name, value, ctypes.byref(length)))
    count, raw = length.value, bytes(value)
    more = raw[max(count, 0):].rstrip(bytes([FILL]))
    return count, raw[:max(count, 0)], f" and {len(more)} more" if more else ""


def write(sock, level, name, value, length=None):
    return checked(LIBC.setsockopt(sock.fileno(), level, name, value, len(value) if length is None else length))


# What the host decides.

def only_length(_, raw, said):
    return "?"


def unless_said(_, raw, said):
    return raw.hex() if said else "?"


def buffer(_, raw, said):
    """Least and most are the host's."""
    if not said or len(raw) < 4:
        return "?"
    size = struct.unpack("i", raw)[0]
    return size if 10_000 < size < 4_000_000 else "least" if size < 10_000 else "most"


def low_water(_, raw, said):
    """As much as there can be is the host's."""
    return raw.hex() if len(raw) < 4 or struct.unpack("i", raw[:4])[0] < 1100 else "most"


def linger(_, raw, said):
    """For ever is as many seconds as the kernel's clock counts."""
    return raw.hex() if len(raw) < 8 or 0 <= struct.unpack("ii", raw)[1] < 10_000 else raw[:4].hex() + " for ever"


def state(_, raw, said):
    """That of TCP_INFO; behind it stands what was measured."""
    return raw[:1].hex()


SHOWN = {
    "SO_SNDBUF": buffer, "SO_RCVBUF": buffer, "SO_COOKIE": only_length, "SO_INCOMING_CPU": only_length, "TCP_SYNCNT": unless_said,
    "TCP_INFO": state, "TCP_KEEPCNT": unless_said, "TCP_KEEPINTVL": unless_said, "TCP_KEEPIDLE": unless_said, "TCP_CONGESTION": unless_said,
    "TCP_MAXSEG": only_length, "TCP_WINDOW_CLAMP": only_length, "IP_MTU": only_length, "IPV6_MTU": only_length, "IP_MULTICAST_TTL": unless_said, "SO_RCVLOWAT": low_water, "SO_LINGER": linger,
    # What a connection that was accepted has is its first segment's; and a socket of IPv6 hears no groups of IPv4 at first.
    "IPV6_MULTICAST_HOPS": unless_said, "IPV6_MULTICAST_IF": unless_said, "IP_MULTICAST_ALL": unless_said,
}


class Talk:
    def __init__(self, host, draw, kind):
        self.host, self.draw, self.kind = host, draw, kind
        self.kept, self.said = [], set()
        self.is_stream = kind == "listeners" or kind != "datagrams" and draw.random() < 0.7 or kind == "streams"
        self.family = draw.choice([V4, V4, V6])
        self.own = host if self.family == V4 else draw.choice(["::1", "::ffff:" + host])
        states = STREAMS if self.is_stream else DATAGRAMS
        self.state = "fresh" if kind == "listeners" else draw.choice(list(states))
        self.sock = self.new()
        states[self.state](self)

    def new(self):
        sock = socket.socket(self.family, STREAM if self.is_stream else DATAGRAM)
        sock.setblocking(False)
        return sock

    def keep(self, sock):
        self.kept.append(sock)
        return sock

    def end(self):
        for sock in [self.sock, *self.kept]:
            if sock.type == STREAM:
                told(lambda: sock.setsockopt(SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0)))
            sock.close()

    def await_(self, sock, wanted):
        poll = select.poll()
        poll.register(sock, wanted)
        poll.poll(LIMIT * 1000)

    def await_state(self, number):
        """What TCP_INFO tells first."""
        end = time.monotonic() + LIMIT
        while self.sock.getsockopt(TCP, socket.TCP_INFO, 1)[0] != number and time.monotonic() < end:
            time.sleep(0.001)

    # States.

    def fresh(self):
        pass

    def bound(self):
        self.sock.bind((self.own, 0))

    def listening(self):
        self.bound()
        self.sock.listen(5)

    def nobody(self):
        """Where nobody listens."""
        sock = self.keep(self.new())
        sock.bind((self.own, 0))
        return sock.getsockname()

    def refused(self):
        self.sock.connect_ex(self.nobody())
        self.await_(self.sock, select.POLLOUT)

    def door(self):
        door = self.keep(self.new())
        door.bind((self.own, 0))
        door.listen(5)
        return door

    def joined(self):
        """Its peer."""
        door = self.door()
        told(lambda: self.sock.connect(door.getsockname()))
        self.await_(self.sock, select.POLLOUT)
        self.await_(door, select.POLLIN)
        return self.keep(door.accept()[0])

    def connected(self):
        self.joined()

    def accepted(self):
        peer = self.joined()
        self.kept[-1], self.sock = self.sock, peer
        self.sock.setblocking(False)

    def peer_ended(self):
        self.joined().close()
        self.await_(self.sock, select.POLLIN)
        self.await_state(CLOSE_WAIT)

    def peer_half_ended(self):
        self.joined().shutdown(socket.SHUT_WR)
        self.await_(self.sock, select.POLLIN)
        self.await_state(CLOSE_WAIT)

    def reset(self):
        peer = self.joined()
        peer.setsockopt(SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        peer.close()
        self.await_(self.sock, select.POLLHUP)
        self.await_state(CLOSE)

    def unread(self):
        self.joined().send(b"some text")
        self.await_(self.sock, select.POLLIN)

    def shut(self):
        self.joined()
        self.sock.shutdown(self.draw.choice([socket.SHUT_RD, socket.SHUT_WR, socket.SHUT_RDWR]))
        time.sleep(0.02)

    def connecting(self):
        where = self.host.rpartition(".")[0] + ".77"
        if self.family == V6:
            self.own = where = "::ffff:" + where
        self.sock.connect_ex((where, 9))

    def has_peer(self):
        peer = self.keep(self.new())
        peer.bind((self.own, 0))
        self.sock.connect(peer.getsockname())
        return peer

    def is_sent_to(self):
        peer = self.has_peer()
        peer.sendto(b"some text", self.sock.getsockname())
        self.await_(self.sock, select.POLLIN)

    def is_refused(self):
        peer = self.keep(self.new())
        peer.bind((self.own, 0))
        where = peer.getsockname()
        peer.close()
        self.kept.pop()
        self.sock.connect(where)
        told(lambda: self.sock.send(b"text"))
        self.await_(self.sock, 0)

    def is_shut(self):
        self.has_peer()
        self.sock.shutdown(self.draw.choice([socket.SHUT_RD, socket.SHUT_WR, socket.SHUT_RDWR]))

    # Options.

    def option(self):
        """Its level and number."""
        kind = self.draw.random()
        own = TCP if self.is_stream else UDP
        if kind < 0.04:
            return self.draw.choice([SOCKET, IP, own]), self.draw.choice([1000, 12_345, -1])
        if kind < 0.07:
            return self.draw.choice([2, 255, 132, 284, -1, UDP if self.is_stream else TCP]), self.draw.choice([1, 2, 11, 13])
        level = self.draw.choice([SOCKET, SOCKET, IP, own] + [IPV6] * (2 if self.family == V6 else self.draw.random() < 0.1))
        return level, self.draw.choice([it for it in NAMES[level] if self.is_drawn(level, it)])

    def is_drawn(self, level, name):
        return called(level, name) not in LEFT_OUT[self.is_stream]

    def shown(self, level, name, value):
        if not isinstance(value, tuple):
            return value
        count, raw, more = value
        how = SHOWN.get(called(level, name))
        return f"{count}:{how(self, raw, (level, name) in self.said) if how else raw.hex()}{more}"

    def got(self, level, name, room):
        return self.shown(level, name, told(lambda: read(self.sock, level, name, room)))

    def get(self):
        (level, name), room = self.option(), self.draw.choice(ROOMS)
        return f"get {called(level, name)} {room}", self.got(level, name, room)

    def value(self, level, name):
        number = integer(self.draw.choice(NUMBERS))
        if called(level, name) in OFF_IN[self.is_stream]:
            return integer(0)
        special = SPECIAL.get(called(level, name))
        if special and (self.draw.random() < 0.6 or special is MEMBER):
            value = self.draw.choice(special)
            return value(self) if callable(value) else value
        length = self.draw.choice([4] * 8 + [0, 1, 2, 3, 5, 8, 16, 64, 256])
        return (number + bytes(length))[:length]

    def is_not_done(self, name, value):
        """Values that are not done, and said so (docs/calls.md), and those by which nobody could connect."""
        number = int.from_bytes(value[:4], sys.byteorder, signed=True)
        # What has a peer, or had one, stays at its device, and opens nothing fast any more.
        is_late = self.state not in ("fresh", "bound", "listening")
        if is_late and name in ("SO_BINDTODEVICE", "SO_BINDTOIFINDEX", "TCP_FASTOPEN", "TCP_FASTOPEN_CONNECT", "TCP_FASTOPEN_NO_COOKIE", "IPV6_V6ONLY"):
            return True
        return {
            "TCP_USER_TIMEOUT": self.state == "connecting", "TCP_SYNCNT": self.state == "connecting", "IPV6_DONTFRAG": len(value) < 4,
            "IPV6_UNICAST_HOPS": number == 0, "SO_INCOMING_CPU": True, "SO_BINDTOIFINDEX": number > 1 or self.kind == "listeners", "IP_OPTIONS": len(value) > 0,
            "TCP_DEFER_ACCEPT": number > 31, "TCP_FASTOPEN": number > 4096, "IPV6_MULTICAST_IF": 1 < number < 99, "IP_JOIN_GROUP": True, "IP_LEAVE_GROUP": True,
            "SO_BINDTODEVICE": self.kind == "listeners",
            "IP_MINTTL": self.kind == "listeners", "IPV6_MINHOPCOUNT": self.kind == "listeners", "IPV6_V6ONLY": self.kind == "listeners",
        }.get(name, False)

    def set(self):
        level, name = self.option()
        value = self.value(level, name)
        if self.is_not_done(called(level, name), value):
            return "nothing", None
        done = told(lambda: write(self.sock, level, name, value))
        if done == 0:
            self.said.add((level, name))
        text = value.hex() if len(value) < 20 else f"{len(value)} bytes"
        return f"set {called(level, name)} {text}", (done, self.got(level, name, 64))

    def wrong_pointer(self):
        level = self.draw.choice([SOCKET, TCP if self.is_stream else UDP])
        name = self.draw.choice([1, 2, 7, 8, 9, 12] if level == SOCKET else [1, 3, 4] if self.is_stream else [103, 104])
        length = self.draw.choice([-1, 0, 4, 8])
        if self.draw.random() < 0.5:
            return f"set nothing {called(level, name)} {length}", told(lambda: write(self.sock, level, name, None, length))
        room = ctypes.c_int(length)
        place = None if self.draw.random() < 0.5 else ctypes.byref(room)
        return f"get nowhere {called(level, name)} {length} {place is None}", told(
            lambda: checked(LIBC.getsockopt(self.sock.fileno(), level, name, None, place)))

    def has_device(self):
        return bool({OPTIONS["SO_BINDTODEVICE"], OPTIONS["SO_BINDTOIFINDEX"]} & self.said)

    def go_on(self):
        """What else programs do with it."""
        sock, what = self.sock, self.draw.choice(["bind", "listen", "connect", "shutdown", "error", "name", "events"])
        # A connection that failed keeps its address until a call has said so.
        if what in ("bind", "connect") and (self.has_device() or self.is_stream and self.state not in ("fresh", "bound", "listening")):
            return "nothing", None
        # A listener that is shut down has no options any more; an attempt that is given up tells its error once.
        # And what has neither a name nor a peer remembers none.
        is_strange = self.state in ("listening", "connecting") or not self.is_stream and self.state == "fresh"
        if what == "shutdown" and is_strange or what == "listen":
            return "nothing", None
        if what == "bind":
            return what, told(lambda: sock.bind((self.own, 0)))
        if what == "connect":
            where = (self.door() if self.is_stream else self.keep(self.new()))
            if not self.is_stream:
                where.bind((self.own, 0))
            done = told(lambda: sock.connect(where.getsockname()))
            self.await_(sock, select.POLLOUT)
            return what, None if done in (None, "EINPROGRESS") else done
        if what == "shutdown":
            how = self.draw.choice([0, 1, 2, 3])
            done = told(lambda: sock.shutdown(how))
            time.sleep(0.02)
            return f"{what} {how}", done
        if what == "error":
            return what, errno.errorcode.get(sock.getsockopt(SOCKET, socket.SO_ERROR), 0)
        if what == "name":
            return what, sock.getsockname()[0].replace(self.host, "host")
        return what, events(sock)

    def all(self):
        """Every option as it is."""
        levels = [SOCKET, IP, TCP if self.is_stream else UDP] + [IPV6] * (self.family == V6)
        for level in levels:
            for name in NAMES[level]:
                if self.is_drawn(level, name):
                    yield called(level, name), self.got(level, name, self.draw.choice([4, 64]))

    # Listeners.

    def listen(self):
        self.sock.bind((self.own, 0))
        self.sock.listen(5)

    def accept(self):
        """Somebody who connects, and sends, as it may wait for that (TCP_DEFER_ACCEPT)."""
        client = self.keep(self.new())
        client.setblocking(True)
        client.connect(self.sock.getsockname())
        client.send(b"text")
        self.await_(self.sock, select.POLLIN)
        one, _ = self.sock.accept()
        one.setblocking(False)
        self.kept.append(self.sock)
        self.sock = one

    # Requests.

    def ioctl(self):
        # The SYN of what was refused counts as unacknowledged in Linux.
        name = self.draw.choice([it for it in REQUESTS if it != "SIOCOUTQ" or self.state != "refused"])
        number, arguments = REQUESTS[name]
        argument = self.draw.choice(arguments)
        argument = argument(self) if callable(argument) else argument
        if argument is None:
            return f"ioctl {name} nowhere", told(lambda: checked(LIBC.ioctl(self.sock.fileno(), ctypes.c_ulong(number), None)))
        room = bytearray(argument + bytes([FILL]) * 8)

        def call():
            fcntl.ioctl(self.sock, number, room, True)
            return own_pid(bytes(room).hex())
        return f"ioctl {name} {own_pid(argument.hex())}", told(call)

    def fcntl(self):
        name = self.draw.choice(list(COMMANDS))
        number, arguments = COMMANDS[name]
        argument = self.draw.choice(arguments)
        argument = argument() if callable(argument) else argument
        shown = own_pid(argument.hex()) if isinstance(argument, bytes) else {os.getpid(): "own", -os.getpid(): "-own"}.get(argument, argument)
        value = ctypes.create_string_buffer(argument, 64) if isinstance(argument, bytes) else ctypes.c_long(argument)

        def call():
            done = checked(LIBC.fcntl(self.sock.fileno(), number, value))
            if "DUP" in name:
                copy = socket.socket(fileno=done)
                with copy:
                    flags = LIBC.fcntl(done, fcntl.F_GETFD, 0), LIBC.fcntl(done, fcntl.F_GETFL, 0)
                    return done >= argument, flags, copy.getsockopt(SOCKET, socket.SO_TYPE), copy.getsockopt(SOCKET, 38)
            if isinstance(argument, bytes):
                return done, own_pid(bytes(value).hex())
            return {os.getpid(): "own", -os.getpid(): "-own"}.get(done, done)
        return f"fcntl {name} {shown}", told(call)


def own_pid(text):
    """With owners as the same for every process: they stand in the first two words, and elsewhere a number may be one by chance."""
    own = integer(os.getpid()).hex()
    words = ("[own]" if word == own else word for word in (text[:8], text[8:16]))
    return "".join(words) + text[16:]


def device(talk):
    """Its name, which differs."""
    return b"lo\0"


def interface(name, beside=b""):
    return name.ljust(16, b"\0") + beside.ljust(24, b"\0")


STREAMS = {"fresh": Talk.fresh, "bound": Talk.bound, "listening": Talk.listening, "refused": Talk.refused, "connected": Talk.connected,
           "accepted": Talk.accepted, "peer ended": Talk.peer_ended, "peer half ended": Talk.peer_half_ended, "reset": Talk.reset, "unread": Talk.unread,
           "shut": Talk.shut, "connecting": Talk.connecting}
DATAGRAMS = {"fresh": Talk.fresh, "bound": Talk.bound, "has peer": Talk.has_peer, "sent to": Talk.is_sent_to, "refused": Talk.is_refused, "shut": Talk.is_shut}
PAIR = [struct.pack("ii", *it) for it in ((0, 0), (1, 0), (1, 5), (1, -1), (0, 9), (1, 0x7fffffff), (-1, 3))] + [struct.pack("iii", 1, 2, 3)]
TIMES = [struct.pack("qq", *it) for it in ((0, 0), (1, 0), (0, 1), (0, 20_000), (5, 999_999), (0, 1_000_000), (0, -1), (-1, 0), (1 << 62, 0), (100_000_000, 0))] + [
    struct.pack("qqq", 3, 4, 5), struct.pack("ii", 1, 0)]
WORDS = [b"cubic", b"cubic\0", b"reno", b"reno\0", b"bbr", b"nosuch", b"", b"\0", b"a word that is longer than any"]
DEVICES = [b"lo", b"lo\0", b"nosuch", b"", b"\0", b"a name that is longer than any", b"lo\0\0\0\0"]
LINKS = [integer(it) for it in (0, 1, 99, -1)] + [struct.pack("!i", it) for it in (1, 99)]
V4_GROUP, V6_GROUP = socket.inet_aton("239.7.7.9"), socket.inet_pton(V6, "ff12::79")
LOOPBACK = socket.inet_aton("127.0.0.1")
MEMBER = [V4_GROUP + LOOPBACK, V4_GROUP + bytes(4) + integer(1), V4_GROUP, V4_GROUP + LOOPBACK + integer(99), V4_GROUP[:3], LOOPBACK * 2]
DISCOVER = [integer(it) for it in range(-1, 7)]
MEMBER_V6 = [V6_GROUP + integer(1), V6_GROUP, V6_GROUP + integer(99), socket.inet_pton(V6, "::1") + integer(1), V6_GROUP + integer(1) + bytes(4)]
SPECIAL = {
    "SO_LINGER": PAIR, "SO_RCVTIMEO": TIMES, "SO_SNDTIMEO": TIMES, "SO_RCVTIMEO_NEW": TIMES, "SO_SNDTIMEO_NEW": TIMES, "TCP_CONGESTION": WORDS,
    "TCP_ULP": [b"tls", b"", b"nosuch"], "SO_BINDTODEVICE": DEVICES, "SO_BINDTOIFINDEX": LINKS, "IP_UNICAST_IF": LINKS, "IPV6_UNICAST_IF": LINKS,
    "IPV6_MULTICAST_IF": LINKS, "IP_MULTICAST_IF": [LOOPBACK, bytes(4), LOOPBACK[:3], *MEMBER], "IP_ADD_MEMBERSHIP": MEMBER, "IP_DROP_MEMBERSHIP": MEMBER,
    "IPV6_JOIN_GROUP": MEMBER_V6, "IPV6_LEAVE_GROUP": MEMBER_V6, "SO_MAX_PACING_RATE": [struct.pack("q", it) for it in (-1, 0, 1 << 20, 1 << 40)],
    "IP_MTU_DISCOVER": DISCOVER, "IPV6_MTU_DISCOVER": DISCOVER,
    "TCP_DEFER_ACCEPT": [integer(it) for it in (0, 1, 2, 3, 7, 8, 30, 60)],
}
NUMBER, ROOM = [integer(it) for it in (0, 1, 2, -1)], [bytes(4), bytes(4), None]
OWN = lambda *_: integer(os.getpid())
BY_NAME = [interface(b"lo"), interface(b"lo"), interface(b"nosuch"), interface(b""), None, interface(b"lo:1"), interface(b"lo\0more")]
REQUESTS = {
    "FIONREAD": (0x541b, ROOM), "SIOCOUTQ": (0x5411, ROOM), "SIOCOUTQNSD": (0x894b, [bytes(4)]), "SIOCATMARK": (0x8905, ROOM), "FIONBIO": (0x5421, [*NUMBER, None]),
    "FIOASYNC": (0x5452, [*NUMBER, None]), "FIOGETOWN": (0x8903, ROOM), "SIOCGPGRP": (0x8904, ROOM), "FIOSETOWN": (0x8901, [OWN, integer(0), integer(999_999), None]),
    "SIOCSPGRP": (0x8902, [OWN, integer(0), integer(-999_999), None]), "FIOCLEX": (0x5451, [bytes(4)]), "FIONCLEX": (0x5450, [bytes(4)]),
    "FIOQSIZE": (0x5460, [bytes(8)]), "FIGETBSZ": (2, ROOM), "FIBMAP": (1, ROOM), "TCGETS": (0x5401, [bytes(64)]), "TIOCGWINSZ": (0x5413, [bytes(8)]),
    "TIOCGPGRP": (0x540f, ROOM),
    "SIOCGIFNAME": (0x8910, [interface(b"", integer(it)) for it in (1, 1, 0, 99)] + [None]), "SIOCGIFFLAGS": (0x8913, BY_NAME),
    "SIOCGIFADDR": (0x8915, BY_NAME), "SIOCGIFDSTADDR": (0x8917, BY_NAME), "SIOCGIFBRDADDR": (0x8919, BY_NAME), "SIOCGIFNETMASK": (0x891b, BY_NAME),
    "SIOCGIFMETRIC": (0x891d, BY_NAME), "SIOCGIFMEM": (0x891f, BY_NAME), "SIOCGIFMTU": (0x8921, BY_NAME), "SIOCGIFHWADDR": (0x8927, BY_NAME),
    "SIOCGIFINDEX": (0x8933, BY_NAME), "SIOCGIFCOUNT": (0x8938, BY_NAME), "SIOCGIFTXQLEN": (0x8942, BY_NAME),
    "SIOCGIFMAP": (0x8970, BY_NAME), "SIOCGIFSLAVE": (0x8929, BY_NAME), "SIOCGIFENCAP": (0x8925, BY_NAME),
    "unknown": (0x1234, ROOM), "SIOCDEVPRIVATE": (0x89f0, [interface(b"lo")]),
    "odd": (0xdeadbeef, ROOM),
}
COMMANDS = {
    "GETFL": (3, [0]), "SETFL": (4, [0, os.O_NONBLOCK, os.O_APPEND, os.O_ASYNC, os.O_NONBLOCK | os.O_ASYNC, os.O_DIRECT, os.O_NOATIME, os.O_TRUNC, os.O_WRONLY,
                                     os.O_CLOEXEC, os.O_DSYNC, -1 & ~os.O_DIRECT & 0x7fffffff]),
    "DUPFD": (0, [0, 100, 900, -1, 1 << 30]), "DUPFD_CLOEXEC": (1030, [0, 100, -1, 1 << 30]), "GETFD": (1, [0]), "SETFD": (2, [0, 1, 2, 3, -1]),
    "GETOWN": (9, [0]), "SETOWN": (8, [os.getpid, lambda: -os.getpid(), 0, 999_999, -999_999, -0x80000000]), "GETOWN_EX": (16, [bytes(8)]),
    "SETOWN_EX": (15, [lambda: integer(1) + integer(os.getpid()), lambda: integer(0) + integer(os.getpid()), integer(1) + integer(0), integer(7) + integer(0),
                       integer(2) + integer(999_999)]),
    "GETSIG": (11, [0]), "SETSIG": (10, [0, signal.SIGIO, signal.SIGURG, 40, 64, 65, -1]), "GETPIPE_SZ": (1032, [0]), "SETPIPE_SZ": (1031, [65536]),
    "GETLEASE": (1025, [0]), "SETLEASE": (1024, [0, 1, 2]), "NOTIFY": (1026, [0, 1]), "GET_SEALS": (1034, [0]), "ADD_SEALS": (1033, [1]),
    "GETOWNER_UIDS": (17, [bytes(8)]), "GETLK": (5, [struct.pack("hhqqi", 1, 0, 0, 0, 0)]), "SETLK": (6, [struct.pack("hhqqi", 1, 0, 0, 0, 0)]),
    "GET_RW_HINT": (1035, [bytes(8)]), "unknown": (99, [0]), "odd": (-1, [0]), "DUPFD_QUERY": (1027, [0]),
}
OPTION_STEPS = [(Talk.get, 10), (Talk.set, 14), (Talk.wrong_pointer, 1), (Talk.go_on, 2)]
STEPS = {
    "streams": OPTION_STEPS, "datagrams": OPTION_STEPS, "listeners": [(Talk.set, 1)],
    "requests": [(Talk.ioctl, 10), (Talk.fcntl, 8), (Talk.go_on, 1)],
}


def converse(host, seed, kind):
    draw, steps = random.Random(seed), STEPS[kind]
    talk = Talk(host, draw, kind)
    print(f"{seed}.- {talk.family.name} {talk.is_stream} {talk.state} {talk.own.replace(host, 'host')}", flush=True)

    def steps_of(count, begin):
        for nth in range(begin, begin + count):
            step = draw.choices([step for step, _ in steps], [weight for _, weight in steps])[0]
            what, result = step(talk)
            print(f"{seed}.{nth} {what}: {result}", flush=True)

    if kind == "listeners":
        steps_of(draw.randrange(12), 0)
        talk.listen()
        steps_of(draw.randrange(12), 20)
        talk.accept()
    else:
        steps_of(draw.randrange(10, 40), 0)
    if kind != "requests":
        for name, value in talk.all():
            print(f"{seed} {name}: {value}", flush=True)
    talk.end()


if __name__ == "__main__":
    for number in signal.SIGIO, signal.SIGURG, 40, 64:
        signal.signal(number, signal.SIG_IGN)
    host, first, count = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    for seed in range(first, first + count):
        converse(host, seed, sys.argv[4])
