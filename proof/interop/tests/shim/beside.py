"""What goes beside what is received: how much of a stream is left (TCP_INQ), to which address and port a datagram came
(IP_RECVORIGDSTADDR), how many before it were dropped (SO_RXQ_OVFL), that errors are urgent (SO_SELECT_ERR_QUEUE), whose groups a socket
hears (IP_MULTICAST_ALL), and by which interface it sends (IP_UNICAST_IF)."""
import errno, fcntl, select, socket, struct, sys, time

HOST = sys.argv[1]
IP, IPV6, TCP, INQ = 0, 41, 6, 36
STREAM, DATAGRAM = socket.SOCK_STREAM, socket.SOCK_DGRAM


def tried(call, *arguments):
    try:
        return call(*arguments)
    except TimeoutError:
        return "nothing"
    except OSError as error:
        return errno.errorcode[error.errno]


def left(sock, size, flags=0, room=100):
    text, control, told, _ = sock.recvmsg(size, room, flags)
    text = len(text) if flags & socket.MSG_TRUNC else text[:9]
    return text, [(level, name, int.from_bytes(data, "little"), len(data)) for level, name, data in control], told


def unread():
    sock = socket.socket()
    print([(tried(sock.setsockopt, TCP, INQ, it), sock.getsockopt(TCP, INQ)) for it in (1, 0, 2, -1, 1)])
    passive = socket.create_server((HOST, 0))
    print(passive.getsockopt(TCP, INQ))
    passive.setsockopt(TCP, INQ, 1)
    client = socket.create_connection(passive.getsockname())
    server = passive.accept()[0]
    print("inherited", server.getsockopt(TCP, INQ), client.getsockopt(TCP, INQ))
    client.sendall(b"x" * 1000)
    while len(server.recv(1000, socket.MSG_PEEK)) < 1000:
        pass
    for size, flags in [(100, 0), (100, socket.MSG_PEEK), (0, 0), (200, socket.MSG_TRUNC), (700, 0)]:
        print(size, left(server, size, flags))
    print("no room", client.sendall(b"more"), left(server, 2, room=0), left(server, 1, room=17))
    print("for long", left(server, 9))
    server.setblocking(False)
    print("nothing", tried(left, server, 9))
    server.setblocking(True)
    client.sendall(b"last")
    client.shutdown(socket.SHUT_WR)
    # The end is there once it is read.
    server.recv(4, socket.MSG_WAITALL | socket.MSG_PEEK)
    while server.recv(9, socket.MSG_PEEK) == b"" or left(server, 4, socket.MSG_PEEK)[0] != b"last":
        pass
    time.sleep(0.2)
    print("end", left(server, 2), left(server, 2), left(server, 2))
    server.sendall(b"back")
    print("who has not asked", client.recvmsg(9, 100))
    client.setsockopt(TCP, INQ, 1)
    server.sendall(b"again")
    print("who has", left(client, 3), left(client, 9))


def targets():
    for family, hosts, level, name in [(socket.AF_INET, (HOST, "127.0.0.1"), IP, 20), (socket.AF_INET6, ("::1", "::1"), IPV6, 74)]:
        server = socket.socket(family, DATAGRAM)
        server.bind(("", 0))
        port = server.getsockname()[1]
        print(server.getsockopt(level, name), tried(server.setsockopt, level, name, 1), server.getsockopt(level, name))
        client = socket.socket(family, DATAGRAM)
        client.bind((hosts[0], 0))
        for more in None, (IP, 8), (IP, 12), (IPV6, 49), (IPV6, 51):
            if more and more[0] == level:
                server.setsockopt(*more, 1)
            for host in hosts:
                client.sendto(b"text", (host, port))
                _, control, flags, _ = server.recvmsg(100, 200)
                ours = socket.inet_pton(family, host)
                shown = [(kind, len(data), data.index(ours) if ours in data else -1, struct.unpack_from("!H", data, 2)[0] == port) for _, kind, data in control]
                print(family.name, more, shown, flags, [data[:2].hex() for _, kind, data in control if kind == name])
    # A socket of both families.
    server = socket.socket(socket.AF_INET6, DATAGRAM)
    server.bind(("::", 0))
    server.setsockopt(IPV6, 74, 1)
    client = socket.socket(type=DATAGRAM)
    for turn in range(2):
        client.sendto(b"text", (HOST, server.getsockname()[1]))
        print("mapped", [(level, kind, len(data)) for level, kind, data in server.recvmsg(100, 200)[1]])
        server.setsockopt(IP, 20, 1)


def drops():
    server, client = socket.socket(type=DATAGRAM), socket.socket(type=DATAGRAM)
    for one in server, client:
        one.bind((HOST, 0))
    print(server.getsockopt(1, 40), tried(server.setsockopt, 1, 40, 1), server.getsockopt(1, 40))
    server.setsockopt(1, socket.SO_RCVBUF, 5000)
    client.connect(server.getsockname())
    sent = 200
    for turn in range(sent):
        client.send(b"%200d" % turn)
    time.sleep(0.3)
    server.settimeout(0.3)
    told, seen = [], 0
    while isinstance(one := tried(server.recvmsg, 999, 99), tuple):
        told.append(one[1])
        seen += 1
    print("nothing before the first drop", 0 < seen < sent, any(told))
    client.send(b"behind")
    ((level, name, data),) = server.recvmsg(999, 99)[1]
    print("behind", level, name, len(data), struct.unpack("I", data)[0] == sent - seen)
    server.setsockopt(1, 29, 1)
    client.send(b"once more")
    print("order", [kind for _, kind, _ in server.recvmsg(999, 99)[1]])
    server.setsockopt(1, 40, 0)
    client.send(b"not asked")
    print("not asked", [kind for _, kind, _ in server.recvmsg(999, 99)[1]])


def urgent_errors():
    closed = bound()
    port = closed.getsockname()[1]
    closed.close()
    for on in 0, 1:
        client = socket.socket(type=DATAGRAM)
        client.setsockopt(IP, 11, 1)
        client.setsockopt(1, 45, on)
        client.connect((HOST, port))
        poll, events = select.poll(), select.epoll()
        poll.register(client, select.POLLPRI)
        events.register(client, select.EPOLLPRI)
        print("quiet", poll.poll(100), events.poll(0.1))
        client.send(b"to nobody")
        print("urgent", [event for _, event in poll.poll(5000)], [event for _, event in events.poll(5)], [bool(it) for it in select.select([], [], [client], 0.2)])
        print(client.recvmsg(99, 999, socket.MSG_ERRQUEUE)[0], [event for _, event in poll.poll(100)], client.getsockopt(1, 45))


def device():
    sock = socket.socket(type=DATAGRAM)
    asked = [tried(fcntl.ioctl, sock, 0x8933, name.ljust(40, b"\0")) for name in (b"web0", b"kernel0")]
    return [struct.unpack_from("i", it, 16)[0] for it in asked if it != "ENODEV"][0]


def ways():
    index = device()
    for family, level, name in [(socket.AF_INET, IP, 50), (socket.AF_INET6, IPV6, 76)]:
        for kind in STREAM, DATAGRAM:
            sock = socket.socket(family, kind)
            values = [struct.pack(*it) for it in [("!i", index), ("i", 0), ("!i", 999), ("i", index), ("!i", -1), ("H", 1), ("!ii", 0, index)]]
            told = [(tried(sock.setsockopt, level, name, it), sock.getsockopt(level, name, 4) == values[0]) for it in values]
            print(family.name, kind.name, sock.getsockopt(level, name), told)
            sock.setsockopt(socket.SOL_SOCKET, 62, index)
            print("one device", tried(sock.setsockopt, level, name, values[0]), tried(sock.setsockopt, level, name, 0))
    # What it sends leaves by it, whatever routes say: nobody is asked there who lives elsewhere.
    server, client = bound(), socket.socket(type=DATAGRAM)
    client.setsockopt(IP, 50, struct.pack("!i", index))
    client.sendto(b"to one", (HOST, server.getsockname()[1]))
    print(server.recvfrom(99)[1][0] == HOST)
    client.connect(("192.0.2.1", 9))
    print("a route by the device", client.getsockname()[0] == HOST, tried(client.send, b"text"))
    other = socket.socket(type=DATAGRAM)
    print("no route", tried(other.connect, ("192.0.2.1", 9)))


def bound(port=0):
    sock = socket.socket(type=DATAGRAM)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    sock.bind(("0.0.0.0", port))
    sock.settimeout(0.3)
    return sock


def groups():
    for family, level, name in [(socket.AF_INET, IP, 49), (socket.AF_INET6, IPV6, 29)]:
        for kind, values in [(STREAM, (0, 1)), (DATAGRAM, (0, 1, 2, -1, 0))]:
            sock = socket.socket(family, kind)
            print(kind.name, sock.getsockopt(level, name), [(tried(sock.setsockopt, level, name, it), sock.getsockopt(level, name)) for it in values])
    group, member = "239.7.7.7", socket.inet_aton("239.7.7.7") + socket.inet_aton(HOST)
    joined = bound()
    port = joined.getsockname()[1]
    joined.setsockopt(IP, socket.IP_ADD_MEMBERSHIP, member)
    silent, other = bound(port), bound(port)
    silent.setsockopt(IP, 49, 0)
    sender = socket.socket(type=DATAGRAM)
    sender.setsockopt(IP, socket.IP_MULTICAST_IF, socket.inet_aton(HOST))
    for turn in range(2):
        print(tried(sender.sendto, b"to many", (group, port)), [tried(it.recv, 99) for it in (joined, silent, other)])
        silent.setsockopt(IP, 49, 1)
    joined.close()
    # Who has joined himself hears whom he names.
    again, picky = bound(port), bound(port)
    again.setsockopt(IP, socket.IP_ADD_MEMBERSHIP, member)
    picky.setsockopt(IP, 39, member + socket.inet_aton("10.7.7.7"))
    sender.sendto(b"to many", (group, port))
    print("who is picky", [tried(it.recv, 99) for it in (again, picky, silent, other)])
    # The whole filter at once: who has joined hears all but these, these, or nobody any more.
    here, nobody = socket.inet_aton(HOST), socket.inet_aton("10.7.7.7")

    def v4(mode, *sources, group=group, room=0, count=None):
        return socket.inet_aton(group) + here + struct.pack("II", mode, len(sources) if count is None else count) + b"".join(sources) + bytes(room)

    def stored(address):
        return struct.pack("HH", 2, 0) + address + bytes(120)

    def request(mode, *sources):
        return struct.pack("ii", device(), 0) + stored(socket.inet_aton(group)) + struct.pack("II", mode, len(sources)) + b"".join(map(stored, sources))

    again.close(), picky.close(), silent.close(), other.close()
    one = bound(port)
    one.setsockopt(IP, 49, 0)
    print("not joined", [tried(one.setsockopt, IP, 41, it) for it in (v4(1, here), v4(0), v4(1), v4(2, here), v4(0, group="10.0.0.1"))])
    one.setsockopt(IP, socket.IP_ADD_MEMBERSHIP, member)
    for value in v4(1, here), v4(1, nobody), v4(0, here), v4(0, nobody, here), v4(0), v4(1, here, nobody, room=9), v4(1, here)[:15], v4(1, here, count=2), v4(1, *[nobody] * 11), v4(7), v4(1), v4(1):
        said = tried(one.setsockopt, IP, 41, value)
        sender.sendto(b"to many", (group, port))
        print("filter", said, tried(one.recv, 99))
    one.setsockopt(IP, 42, request(0)[:136])
    for value in request(1, here), request(1, nobody), request(0), request(0, here)[:143], request(0, here)[:200], request(1):
        said = tried(one.setsockopt, IP, 48, value)
        sender.sendto(b"to many", (group, port))
        print("request", said, tried(one.recv, 99))
    six = socket.socket(socket.AF_INET6, DATAGRAM)
    wrong = bytes(8) + stored(here) + struct.pack("II", 0, 0)
    print("of another family", tried(six.setsockopt, IPV6, 48, wrong), tried(six.setsockopt, IPV6, 48, wrong[:99]))


unread()
targets()
drops()
urgent_errors()
ways()
groups()
