"""Datagrams in parts (UDP_CORK, MSG_MORE), and what is said beside one: a line for each case, which is the kernel's too."""
import errno, os, select, socket, struct, sys, time

HOST = sys.argv[1]
MORE, NOW = socket.MSG_MORE, socket.MSG_DONTWAIT
SOCKET, IP, IPV6, UDP, CORK = socket.SOL_SOCKET, socket.IPPROTO_IP, socket.IPPROTO_IPV6, socket.IPPROTO_UDP, 1
IP_PKTINFO, IP_RECVTTL, DONTFRAG = 8, 12, 62


def bound(host=HOST):
    one = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_DGRAM)
    one.bind((host, 0))
    one.settimeout(5)
    return one


def tried(call, *arguments):
    try:
        return call(*arguments)
    except TimeoutError:
        return "nothing came"
    except OSError as error:
        return errno.errorcode[error.errno]


def quiet(sock):
    return select.select([sock], [], [], 0.05)[0] == []


def parts(host):
    one, two, other = bound(host), bound(host), bound(host)
    to = two.getsockname()
    sent = [one.sendto(text, flags, to) for text, flags in ((b"ab", MORE), (b"", MORE), (b"cd", MORE), (b"ef", 0))]
    yield "more", sent, two.recv(99), quiet(two)
    one.sendto(b"x", MORE, to)
    yield "ended by nothing", one.sendto(b"", to), two.recv(99)
    one.sendto(b"a", MORE, to)
    yield "the first says where", one.sendto(b"b", other.getsockname()), two.recv(99), quiet(other)
    one.setsockopt(UDP, CORK, 1)
    yield "cork", one.getsockopt(UDP, CORK), one.sendto(b"a", to), one.sendto(b"b", to), quiet(two)
    one.setsockopt(UDP, CORK, 0)
    yield "no cork", one.getsockopt(UDP, CORK), two.recv(99), one.sendto(b"c", to), two.recv(99)
    one.setsockopt(UDP, CORK, 1)
    one.setsockopt(UDP, CORK, 0)
    yield "nothing in it", quiet(two)
    yield "too long", tried(one.sendto, bytes(60_000), MORE, to), tried(one.sendto, bytes(10_000), to)
    yield "gone", one.sendto(b"x", to), two.recv(99)
    yield "too long at once", tried(one.sendto, bytes(70_000), MORE, to), one.sendto(b"y", to), two.recv(99)
    yield "nowhere", tried(one.send, b"x", MORE), tried(one.sendto, b"x", MORE, (host, 0))
    one.connect(to)
    yield "connected", [one.send(text, flags) for text, flags in ((b"1", MORE), (b"2", NOW))], two.recv(99)
    pieces = [os.urandom(1000) for _ in range(20)]
    [one.send(piece, MORE) for piece in pieces]
    yield "fragments", one.send(b""), two.recv(99_999) == b"".join(pieces)
    # What another process begins is not this one's, and nobody sends it.
    fresh = socket.socket(one.family, socket.SOCK_DGRAM)
    fresh.setsockopt(UDP, CORK, 1)
    fresh.sendto(b"lost", to)
    fresh.close()
    yield "closed", quiet(two)


def integer(value):
    return struct.pack("i", value)


def beside(host, controls, options, to=None, family=None):
    """What becomes of a datagram with such control data, and what its receiver is told."""
    for control in controls:
        receiver = bound(host)
        for option in options:
            receiver.setsockopt(*option, 1)
        sender = socket.socket(family or receiver.family, socket.SOCK_DGRAM)
        name = (to or host, receiver.getsockname()[1])
        answer = tried(sender.sendmsg, [b"text"], control, 0, name)
        if answer == 4:
            got, told, flags, source = receiver.recvmsg(99, 200)
            # Without the interface's number.
            cut = {(IP, IP_PKTINFO): slice(4, None), (IPV6, socket.IPV6_PKTINFO): slice(0, 16)}
            told = [(level, kind, shown(data[cut.get((level, kind), slice(None))])) for level, kind, data in told]
            yield said(control), got, sorted(told), flags
        else:
            yield said(control), answer, quiet(receiver)


def said(control):
    return [(level, kind, shown(data)) for level, kind, data in control]


def shown(data):
    return data.hex().replace(socket.inet_aton(HOST).hex(), "host")


def beside_v4():
    address = socket.inet_aton(HOST)
    controls = [[(IP, socket.IP_TTL, integer(n))] for n in (-1, 0, 1, 255, 256)]
    controls += [[(IP, socket.IP_TTL, b"\5")], [(IP, socket.IP_TTL, bytes(8))]]
    controls += [[(IP, socket.IP_TOS, integer(n))] for n in (-1, 0, 0x48, 255, 256)]
    controls += [[(IP, socket.IP_TOS, b"\x28")], [(IP, socket.IP_TOS, b"ab")], [(IP, 99, integer(1))]]
    controls += [[(IP, IP_PKTINFO, bytes(4) + address + bytes(4))], [(IP, IP_PKTINFO, bytes(11))], [(IP, IP_PKTINFO, bytes(12))]]
    controls += [[(IPV6, socket.IPV6_TCLASS, integer(8))], [(99, 1, b"x")], [(UDP, 99, b"x")], [(UDP, 103, bytes(4))]]
    controls += [[(socket.SOL_SOCKET, 99, integer(1))], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, integer(0))]]
    controls += [[(IP, socket.IP_TTL, integer(7)), (IP, socket.IP_TOS, integer(4))]]
    options = [(IP, IP_RECVTTL), (IP, socket.IP_RECVTOS), (IP, IP_PKTINFO)]
    yield from beside(HOST, controls, options)
    mapped = [c for c in controls if c[0][0] == IP]
    source = socket.inet_pton(socket.AF_INET6, "::ffff:" + HOST)
    mapped += [[(IPV6, socket.IPV6_PKTINFO, a + bytes(4))] for a in (source, bytes(15) + b"\1")]
    mapped += [[(IPV6, socket.IPV6_TCLASS, integer(999))]]
    yield from beside(HOST, mapped, options, "::ffff:" + HOST, socket.AF_INET6)


def beside_v6():
    address = socket.inet_pton(socket.AF_INET6, "::1")
    controls = [[(IPV6, kind, integer(n))] for kind in (socket.IPV6_HOPLIMIT, socket.IPV6_TCLASS) for n in (-2, 1, 200, 255, 256)]
    # A traffic class of -1, the socket's by RFC 3542, is 255 to some kernels.
    controls += [[(IPV6, socket.IPV6_HOPLIMIT, integer(-1))]]
    controls += [[(IPV6, socket.IPV6_HOPLIMIT, b"\5")], [(IPV6, socket.IPV6_TCLASS, bytes(8))], [(IPV6, 99, integer(1))]]
    controls += [[(IPV6, DONTFRAG, integer(n))] for n in (-1, 0, 1, 2)] + [[(IPV6, DONTFRAG, b"\1")]]
    controls += [[(IPV6, socket.IPV6_PKTINFO, address + bytes(4))], [(IPV6, socket.IPV6_PKTINFO, bytes(20))]]
    controls += [[(IPV6, socket.IPV6_PKTINFO, bytes(19))], [(IP, socket.IP_TTL, integer(999))], [(UDP, 99, b"x")]]
    options = [(IPV6, kind) for kind in (socket.IPV6_RECVHOPLIMIT, socket.IPV6_RECVTCLASS, socket.IPV6_RECVPKTINFO)]
    yield from beside("::1", controls, options)


def stamps(host):
    """When datagrams arrived, which wait to be read for a while."""
    kinds = {29: ("qq", 10**6), 35: ("qq", 10**9)}
    for kind in kinds:
        one, two = bound(host), bound(host)
        yield kind, two.getsockopt(SOCKET, kind), two.setsockopt(SOCKET, kind, 7), [two.getsockopt(SOCKET, it) for it in kinds]
        two.setsockopt(IP, IP_RECVTTL, 1)
        # The kernel begins to look at the clock a little later.
        time.sleep(0.3)
        times = []
        for text in (b"first", b"second"):
            before = time.time()
            one.sendto(text, two.getsockname())
            select.select([two], [], [], 5)
            times.append((before - 0.05, time.time() + 0.05))
            time.sleep(0.3)
        for before, after in times:
            text, control, flags, _ = two.recvmsg(99, 200)
            form, parts_of_second = kinds[kind]
            level, what, value = control[0]
            seconds, parts = struct.unpack(form, value)
            is_true = before <= seconds + parts / parts_of_second <= after
            yield text, flags, level, what, len(value), is_true, [it[:2] for it in control[1:]]
        two.setsockopt(SOCKET, kind, 0)
        one.sendto(b"x", two.getsockname())
        yield [it[:2] for it in two.recvmsg(99, 200)[1]]


def refused(host):
    """Nobody has the port, and who asks often is told as often."""
    gone = bound(host)
    place = gone.getsockname()
    gone.close()
    one = bound(host)
    one.connect(place)
    told = []
    for _ in range(300):
        one.send(b"x")
        told.append(tried(one.recv, 9))
    yield {it: told.count(it) for it in set(told)}


for name, case in [("refused", refused(HOST)), ("refused v6", refused("::1")), ("stamps", stamps(HOST)), ("stamps v6", stamps("::1")), ("v4", parts(HOST)), ("v6", parts("::1")), ("beside v4", beside_v4()), ("beside v6", beside_v6())]:
    for line in case:
        print(name, *line, flush=True)
