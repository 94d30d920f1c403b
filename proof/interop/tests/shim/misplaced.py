"""Names, lengths, buffers and lists that cannot be where the program says, or are longer than what they hold: what each call tells, and
what it has written and taken. Argument: the address."""
import ctypes
import errno
import os
import select
import socket
import struct
import sys
import time

sys.dont_write_bytecode = True
from conversing import LIBC, Iovec, Mmsghdr, Msghdr, events

HOST = sys.argv[1]
NOWHERE, NOTHING, HERE = 8, None, object()
NOSIGNAL, PEEK, TRUNC, WAITALL, OOB, DONTWAIT = (
    socket.MSG_NOSIGNAL, socket.MSG_PEEK, socket.MSG_TRUNC, socket.MSG_WAITALL, socket.MSG_OOB, socket.MSG_DONTWAIT)
ROOM = ctypes.create_string_buffer(100)
LISTENER = socket.create_server((HOST, 0), backlog=64)
LISTENER.setblocking(False)


def call(name, *arguments):
    ctypes.set_errno(0)
    arguments = [ctypes.c_void_p(it) if it is NOTHING else it for it in arguments]
    result = getattr(LIBC, name)(*arguments)
    return errno.errorcode[ctypes.get_errno()] if result == -1 else result


def soon(sock, wanted=select.POLLIN):
    poll = select.poll()
    poll.register(sock, wanted)
    poll.poll(2000)
    return sock


def pair():
    one = socket.create_connection(LISTENER.getsockname())
    two = soon(LISTENER).accept()[0]
    one.setblocking(False)
    return one, two


# Sockets in some states, each with what is to be closed behind it.

def with_text():
    one, two = pair()
    two.send(b"abc")
    return soon(one), two


def ended():
    one, two = pair()
    two.close()
    return soon(one),


def without_text():
    return pair()


def fresh():
    one = socket.socket()
    one.setblocking(False)
    return one,


def without_datagram():
    one = socket.socket(type=socket.SOCK_DGRAM)
    one.bind((HOST, 0))
    one.setblocking(False)
    return one,


def with_datagram():
    one, = without_datagram()
    one.sendto(b"abc", one.getsockname())
    return soon(one),


def fresh_datagrams():
    return socket.socket(type=socket.SOCK_DGRAM),


def listener():
    return LISTENER,


def done(socks):
    for sock in socks:
        if sock is not LISTENER:
            sock.close()


def pointer(buffer):
    return buffer if buffer in (NOWHERE, NOTHING) else ctypes.addressof(buffer)


def lengths():
    """What it is called, the name, its length, and where that is to be."""
    name = ctypes.create_string_buffer(64)
    for length in (-1, -1 << 31, 0, 3, 200, (1 << 31) - 1):
        yield f"length {length}", name, ctypes.c_int(length), HERE
    for what, place in (("no length", NOTHING), ("a length nowhere", NOWHERE)):
        yield what, name, ctypes.c_int(7), place
    yield "a name nowhere", NOWHERE, ctypes.c_int(16), HERE
    yield "a name nowhere without room", NOWHERE, ctypes.c_int(0), HERE
    yield "no name, a length nowhere", NOTHING, ctypes.c_int(7), NOWHERE
    for length in (7, -1):
        yield f"no name, length {length}", NOTHING, ctypes.c_int(length), HERE


def told_names(what, make, ask):
    for label, name, length, place in lengths():
        socks = make()
        place = ctypes.byref(length) if place is HERE else ctypes.c_void_p(place)
        print(what, label, ask(socks[0], ctypes.c_void_p(pointer(name)), place), length.value, flush=True)
        done(socks)


def accepted(client, name, length):
    """Who cannot be told the peer's name has no connection, and the peer hears of that."""
    result = call("accept4", LISTENER.fileno(), name, length, 0)
    if isinstance(result, int):
        os.close(result)
        result = "accepted"
    return result, events(soon(client, select.POLLRDHUP))


def connected():
    client = socket.create_connection(LISTENER.getsockname())
    soon(LISTENER)
    return client,


def names():
    for make in (with_text, ended, without_text, fresh, with_datagram, without_datagram):
        told_names(f"recvfrom {make.__name__}", make, lambda sock, name, length: (
            call("recvfrom", sock.fileno(), ROOM, 10, 0, name, length), events(sock)))
        for which in ("getsockname", "getpeername"):
            told_names(f"{which} {make.__name__}", make, lambda sock, name, length: call(which, sock.fileno(), name, length))
        for label, place, length in (
            ("no", NOTHING, 0), ("no", NOTHING, 16), ("no", NOTHING, -1), ("a", ROOM, 16), ("a", ROOM, 200), ("a", ROOM, -1), ("a", ROOM, 3),
            ("nowhere", NOWHERE, 16), ("nowhere", NOWHERE, 0),
        ):
            for is_many in (False, True):
                socks, text = make(), ctypes.create_string_buffer(10)
                pieces = Iovec(ctypes.addressof(text), 10)
                one = (Mmsghdr * 1)()
                one[0].hdr = Msghdr(pointer(place), length & 0xffffffff, ctypes.pointer(pieces), 1, None, 0, 0x77)
                one[0].len = 99
                result = call("recvmmsg", socks[0].fileno(), one, 1, 0, NOTHING) if is_many else call("recvmsg", socks[0].fileno(), one, 0)
                print("recvmsg", make.__name__, is_many, label, length, result, one[0].hdr.namelen, one[0].hdr.flags, one[0].len, events(socks[0]))
                done(socks)
    for _ in range(3):
        # The descriptors of those that were closed are used again.
        told_names("accept", connected, accepted)


def given_names():
    good = struct.pack("=H", socket.AF_INET) + struct.pack("!H", 9) + socket.inet_aton(HOST) + bytes(8)
    name = ctypes.create_string_buffer(good, 256)
    for make in (with_text, fresh, without_datagram):
        for place, length in (
            (NOTHING, 0), (NOTHING, 16), (NOTHING, -1), (name, 16), (name, 200), (name, 128), (name, 129), (name, -1), (name, 15), (name, 1), (name, 0),
            (NOWHERE, 16), (NOWHERE, 0), (NOWHERE, 200),
        ):
            said, socks = [], []
            for how in ("sendto", "sendmsg", "sendmmsg", "connect", "bind"):
                socks += make()
                fd, at = socks[-1 if make is not with_text else -2].fileno(), ctypes.c_void_p(pointer(place))
                if how == "sendto":
                    said.append(call(how, fd, ROOM, 3, NOSIGNAL, at, length))
                elif how in ("connect", "bind"):
                    # What a connection to nobody comes to is not asked here.
                    is_asked = how == "bind" or make is not fresh or length not in (16, 128)
                    said.append(call(how, fd, at, length) if is_asked else None)
                else:
                    pieces = Iovec(ctypes.addressof(ROOM), 3)
                    one = (Mmsghdr * 1)()
                    one[0].hdr = Msghdr(at, length & 0xffffffff, ctypes.pointer(pieces), 1, None, 0, 0)
                    said.append(call(how, fd, one, *([1] if how == "sendmmsg" else []), NOSIGNAL))
            print("to", make.__name__, ["nothing", "nowhere", "a name"][(NOTHING, NOWHERE, place).index(place)], length, *said)
            done(socks)


def control_data_and_pieces():
    for make in (with_text, with_datagram, without_datagram):
        for how in ("recvmsg", "sendmsg", "readv", "writev"):
            def message(control, length, pieces, count):
                socks = make()
                to = ctypes.create_string_buffer(struct.pack("=H", socket.AF_INET) + struct.pack("!H", socks[0].getsockname()[1]) + socket.inet_aton(HOST), 16)
                is_to = how == "sendmsg" and make is not with_text
                one = Msghdr(pointer(to) if is_to else None, 16 if is_to else 0, ctypes.cast(ctypes.c_void_p(pieces), ctypes.POINTER(Iovec)), count,
                             pointer(control), length, 0)
                result = call(how, socks[0].fileno(), ctypes.byref(one), NOSIGNAL if how == "sendmsg" else 0)
                done(socks)
                return result, one.controllen

            piece = (Iovec * 4)(Iovec(ctypes.addressof(ROOM), 3))
            beside = ctypes.create_string_buffer(64)
            if how.endswith("msg"):
                print(how, make.__name__, [message(control, length, pointer(piece), 1) for control, length in (
                    (NOTHING, 0), (NOTHING, 16), (NOWHERE, 0), (NOWHERE, 16), (NOWHERE, 3), (beside, 3), (beside, 16), (beside, 1 << 40), (NOWHERE, 1 << 40))])
            said = []
            for place, count in ((NOTHING, 0), (NOTHING, 1), (NOWHERE, 1), (NOWHERE, 0), (piece, 1025), (piece, 0)):
                if how.endswith("msg"):
                    said.append(message(NOTHING, 0, pointer(place), count)[0])
                else:
                    socks = make()
                    said.append(call(how, socks[0].fileno(), ctypes.c_void_p(pointer(place)), count))
                    done(socks)
            print(how, make.__name__, "pieces", *said)
        socks = make()
        print("messages nowhere", make.__name__, [
            call(how, socks[0].fileno(), place, *([count] if "mm" in how else []), 0, *([NOTHING] if how == "recvmmsg" else []))
            for how in ("recvmsg", "sendmsg", "recvmmsg", "sendmmsg") for place in (ctypes.c_void_p(NOWHERE), NOTHING) for count in (0, 5)])
        done(socks)


def discarded():
    """Who discards text needs no room for it (tcp(7))."""
    one, two = pair()
    two.sendall(b"a" * 10_000)
    time.sleep(0.1)
    for flags, count in ((TRUNC, 3), (TRUNC | PEEK, 5), (PEEK, 5), (TRUNC, 5000), (0, 5), (TRUNC | PEEK, 99_999), (TRUNC | WAITALL, 100), (TRUNC, 99_999), (TRUNC, 5)):
        print("discard", flags, count, call("recv", one.fileno(), NOTHING, count, flags), call("recv", one.fileno(), ctypes.c_void_p(NOWHERE), 1, flags | DONTWAIT))
    two.send(b"!", OOB)
    time.sleep(0.1)
    print("urgent", *[call("recv", one.fileno(), NOTHING, 1, OOB | flags) for flags in (PEEK, TRUNC, 0)])
    two.close()
    soon(one)
    print("ended", *[call("recv", one.fileno(), NOTHING, 5, flags) for flags in (TRUNC, 0)])
    one.close()


def waited_for():
    """All names of events, alone and together."""
    for make in (with_text, ended, with_datagram, without_datagram, fresh, fresh_datagrams, listener):
        socks = make()
        for wanted in (*(1 << bit for bit in range(11)), 0x2000, 0x3ff, 0x7fff):
            poll, given = select.poll(), select.epoll()
            poll.register(socks[0], wanted)
            given.register(socks[0], wanted)
            print("events", make.__name__, hex(wanted), *[[hex(it) for _, it in asked.poll(0)] for asked in (poll, given)])
            given.close()
        done(socks)


for case in (names, given_names, control_data_and_pieces, discarded, waited_for):
    case()
