# Datagrams that do not arrive: IP_RECVERR, MSG_ERRQUEUE, POLLERR, IP_MTU. Prints what it sees; the kernel's is to be the same.
import errno
import json
import select
import socket
import struct
import sys
import time

HOST, PORT = sys.argv[1], 7100
FAR = {"10.0.0.1": "10.0.0.10", "10.0.0.10": "10.0.0.1"}[HOST]
INJECTOR = ("10.0.0.1", PORT)
IP, IPV6 = socket.IPPROTO_IP, socket.IPPROTO_IPV6
IP_RECVERR, IPV6_RECVERR, IP_MTU, IPV6_MTU, IP_RECVTTL, IP_TTL = 11, 25, 14, 24, 12, 2
MSG_ERRQUEUE = 0x2000
NAMES = {HOST: "host", FAR: "far", "0.0.0.0": "any", "::ffff:" + HOST: "host mapped", "::ffff:" + FAR: "far mapped"}


def name(error):
    return errno.errorcode.get(error.errno, str(error))


def told(call):
    try:
        return repr(call())
    except OSError as error:
        return name(error)


def soon(call):
    """What it answers within a while."""
    for _ in range(300):
        answer = told(call)
        if answer != "EAGAIN":
            return answer
        time.sleep(0.01)
    return "never"


def queued(it, room=4096, control=1024):
    """The first fault in words."""
    text, extra, flags, far = it.recvmsg(room, control, MSG_ERRQUEUE | socket.MSG_DONTWAIT)
    words = [repr(text), "flags %#x" % flags, NAMES.get(far[0], far[0])]
    for level, kind, data in extra:
        if (level, kind) in [(IP, IP_RECVERR), (IPV6, IPV6_RECVERR)]:
            number, origin, type, code, pad, info, more = struct.unpack_from("=IBBBBII", data)
            family = struct.unpack_from("=H", data, 16)[0]
            offender = "nobody"
            if family == socket.AF_INET:
                offender = socket.inet_ntop(family, data[20:24])
            elif family == socket.AF_INET6:
                offender = socket.inet_ntop(family, data[24:40])
            words.append(
                "%d/%d: %s origin %d type %d code %d pad %d info %d data %d len %d by %s"
                % (level, kind, errno.errorcode[number], origin, type, code, pad, info, more, len(data), NAMES.get(offender, offender))
            )
        elif (level, kind) == (IP, IP_TTL):
            words.append("ttl %d" % struct.unpack("=i", data))
        else:
            words.append("%d/%d" % (level, kind))
    return ", ".join(words)


def polled(it, limit=3000):
    poll = select.poll()
    poll.register(it, select.POLLIN)
    return [events for _, events in poll.poll(limit)]


def datagrams(family=socket.AF_INET, hears=True, on=None):
    it = socket.socket(family, socket.SOCK_DGRAM)
    it.setblocking(False)
    if hears:
        it.setsockopt(IP, IP_RECVERR, 1)
        if family == socket.AF_INET6:
            it.setsockopt(IPV6, IPV6_RECVERR, 1)
    if on:
        it.bind(on)
    return it


def closed_port(host):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as it:
        it.bind((HOST, 0))
        return (host, it.getsockname()[1])


def error_of(it):
    return errno.errorcode.get(it.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR), 0)


print("options:", [it.getsockopt(IP, IP_RECVERR) for it in (datagrams(hears=False), datagrams())])
six = datagrams(socket.AF_INET6)
print("options:", six.getsockopt(IPV6, IPV6_RECVERR), six.getsockopt(IP, IP_RECVERR))
six.close()

# A port where nobody listens, here and there, with and without a peer.
for where, host in [("host", HOST), ("far", FAR)]:
    for peer in [False, True]:
        it = datagrams()
        to = closed_port(host)
        if peer:
            it.connect(to)
        print(where, "peer" if peer else "no peer", "empty:", told(lambda: queued(it)))
        it.sendto(b"hello", to) if not peer else it.send(b"hello")
        print("poll:", polled(it))
        print("recv:", soon(lambda: it.recv(9)), told(lambda: it.recv(9, socket.MSG_DONTWAIT)))
        print("poll:", polled(it))
        print("queue:", told(lambda: queued(it)), "port", "-")
        print("poll:", polled(it, 0), "queue:", told(lambda: queued(it)))
        it.send(b"again") if peer else it.sendto(b"again", to)
        polled(it)
        time.sleep(0.05)
        print("sent:", told(lambda: it.send(b"more") if peer else it.sendto(b"more", to)))
        it.setsockopt(IP, IP_RECVTTL, 1)
        print("queue:", told(lambda: queued(it)))
        it.close()

# Two of them, and what SO_ERROR says.
it = datagrams()
to = closed_port(FAR)
for text in [b"one", b"two"]:
    it.sendto(text, to) if error_of(it) == 0 else None
    time.sleep(0.3)
    error_of(it)
print("two:", told(lambda: queued(it)), error_of(it), told(lambda: queued(it)), error_of(it), told(lambda: queued(it)))
it.sendto(b"cut text", to)
polled(it)
print("cut:", told(lambda: queued(it, 3)))
it.sendto(b"no control", to)
polled(it)
error_of(it)
print("no control:", told(lambda: queued(it, 99, 0)))
it.sendto(b"recvfrom", to)
polled(it)
print("recvfrom:", told(lambda: it.recvfrom(99, MSG_ERRQUEUE | socket.MSG_DONTWAIT)[0]), error_of(it))
it.sendto(b"off", to)
polled(it)
it.setsockopt(IP, IP_RECVERR, 0)
print("off:", told(lambda: queued(it)))
it.close()

# An IPv6 socket whose datagrams go over IPv4.
it = datagrams(socket.AF_INET6)
it.sendto(b"mapped", ("::ffff:" + to[0], to[1]))
print("mapped: poll", polled(it), told(lambda: queued(it)))
it.close()

# Without the option only who has a peer hears of it.
for peer in [False, True]:
    it = datagrams(hears=False)
    it.connect(to) if peer else None
    it.send(b"x") if peer else it.sendto(b"x", to)
    if peer:
        polled(it)
    else:
        time.sleep(0.2)
    print("without:", told(lambda: it.recv(9, socket.MSG_DONTWAIT)), told(lambda: queued(it)))
    it.close()

# epoll tells it once with edges.
it = datagrams()
epoll = select.epoll()
epoll.register(it, select.EPOLLIN | select.EPOLLET)
it.sendto(b"edge", to)
print("epoll:", [events for _, events in epoll.poll(3)])
print("epoll:", told(lambda: queued(it)), epoll.poll(0))
epoll.close()
it.close()


def inject(it, type, code, rest=0, text="what was sent", protocol=socket.IPPROTO_UDP, to=("192.0.2.7", 33434), ttl=61):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        asking.settimeout(3)
        asked = {"from": (HOST, it.getsockname()[1]), "to": to, "type": type, "code": code, "rest": rest}
        asking.sendto(json.dumps({**asked, "text": text, "protocol": protocol, "ttl": ttl}).encode(), INJECTOR)
        assert asking.recv(9) == b"sent"


# What routers say.
for type, code, rest in [
    (11, 0, 0), (11, 1, 0), (3, 0, 0), (3, 1, 0), (3, 2, 0), (3, 3, 0), (3, 4, 1400), (3, 9, 0), (3, 10, 0), (3, 13, 0),
    (12, 0, 9 << 24),
]:
    it = datagrams(on=(HOST, 0))
    it.setsockopt(IP, IP_RECVTTL, 1)
    inject(it, type, code, rest)
    events = polled(it, 300 if (type, code) == (11, 1) else 3000)
    text = told(lambda: queued(it)).replace("10.0.0.1", "injector")
    print("icmp", type, code, events, text.replace("by host", "by injector").replace("by far", "by injector"), error_of(it))
    it.close()

# What the way carries.
it = datagrams()
print("mtu:", told(lambda: it.getsockopt(IP, IP_MTU)))
it.connect((FAR, 9))
print("mtu:", it.getsockopt(IP, IP_MTU), told(lambda: it.setsockopt(IP, IP_MTU, 1400)))
six = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
print("mtu:", told(lambda: six.getsockopt(IPV6, IPV6_MTU)))
six.close()
server = socket.create_server((HOST, 0))
print("mtu:", told(lambda: server.getsockopt(IP, IP_MTU)))
server.close()
# (Linux says at once that a datagram is too long, Firelane with the next call; both queue it.)
it.setsockopt(IP, 10, 2)
told(lambda: it.send(b"x" * 9500))
polled(it)
print("too long:", told(lambda: queued(it)), error_of(it))
inject(it, 3, 4, 1300, to=(FAR, 9))
polled(it)
print("too big:", told(lambda: queued(it)).replace("by host", "by injector").replace("by far", "by injector"))
print("mtu:", it.getsockopt(IP, IP_MTU))
told(lambda: it.send(b"x" * 1400))
polled(it)
print("too long:", told(lambda: queued(it)))
it.close()

with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as last:
    last.sendto(b"end", INJECTOR)
