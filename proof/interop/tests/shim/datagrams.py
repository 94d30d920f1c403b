"""Datagrams: both families, peers, errors, flags, control data, offload, readiness, sharing, groups."""
import errno, os, select, socket, struct, sys, threading, time

HOST = sys.argv[1]
UDP, SEGMENT, GRO = socket.IPPROTO_UDP, 103, 104


def bound(host=HOST):
    one = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_DGRAM)
    one.bind((host, 0))
    one.settimeout(10)
    return one


def expect(number, call):
    try:
        call()
    except OSError as error:
        assert error.errno == number, (errno.errorcode[number], error)
        return
    raise AssertionError(f"{errno.errorcode[number]} was expected")


def test_there_and_back():
    for host in [HOST, "127.0.0.1", "::1"]:
        server, client = bound(host), socket.socket(bound(host).family, socket.SOCK_DGRAM)
        client.settimeout(10)
        for text in [b"one", b"", b"three" * 200]:
            client.sendto(text, server.getsockname()[:2])
            got, peer = server.recvfrom(2000)
            assert got == text and peer[1] == client.getsockname()[1], (host, got, peer)
            server.sendto(got, peer)
            assert client.recvfrom(2000) == (text, server.getsockname())


def test_names_and_options():
    one = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    assert one.getsockname() == ("0.0.0.0", 0)
    assert one.getsockopt(socket.SOL_SOCKET, socket.SO_TYPE) == socket.SOCK_DGRAM
    assert one.getsockopt(socket.SOL_SOCKET, socket.SO_PROTOCOL) == socket.IPPROTO_UDP
    expect(errno.ENOTCONN, one.getpeername)
    expect(errno.EDESTADDRREQ, lambda: one.send(b"x"))
    expect(errno.EOPNOTSUPP, lambda: one.listen(1))
    expect(errno.ENOTCONN, lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM).shutdown(socket.SHUT_RDWR))
    one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 100000)
    assert one.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) == 200000
    everybody = (HOST.rpartition(".")[0] + ".255", 9)
    expect(errno.EACCES, lambda: (one.sendto(b"x", everybody), time.sleep(0.3), one.sendto(b"x", (HOST, 9))))
    one.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
    one.sendto(b"x", everybody)
    two = bound()
    expect(errno.EADDRINUSE, lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM).bind(two.getsockname()))
    expect(errno.EADDRNOTAVAIL, lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM).bind(("10.9.9.9", 0)))
    expect(errno.EINVAL, lambda: two.bind((HOST, 0)))
    expect(errno.EINVAL, lambda: two.sendto(b"x", (HOST, 0)))


def test_peers():
    one, two, three = bound(), bound(), bound()
    one.connect(two.getsockname())
    assert one.getpeername() == two.getsockname()
    three.sendto(b"no", one.getsockname())
    two.sendto(b"yes", one.getsockname())
    assert one.recv(10) == b"yes"
    one.send(b"hello")
    assert two.recvfrom(10) == (b"hello", one.getsockname())
    one.connect(three.getsockname())
    one.send(b"you")
    assert three.recv(10) == b"you"
    gone = bound()
    name = gone.getsockname()
    gone.close()
    time.sleep(0.2)
    one.connect(name)
    one.send(b"nobody")
    expect(errno.ECONNREFUSED, lambda: one.recv(10))
    one.send(b"nobody")
    select.select([one], [], [], 10)
    assert one.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == errno.ECONNREFUSED


def test_flags_and_times():
    one, two = bound(), bound()
    one.settimeout(None)
    expect(errno.EAGAIN, lambda: one.recv(1, socket.MSG_DONTWAIT))
    one.settimeout(10)
    two.sendto(b"abcdef", one.getsockname())
    assert one.recv(3, socket.MSG_PEEK) == b"abc"
    got, _, flags, peer = one.recvmsg(4)
    assert got == b"abcd" and flags == socket.MSG_TRUNC and peer == two.getsockname()
    two.sendto(b"abcdef", one.getsockname())
    buffer = bytearray(2)
    assert one.recv_into(buffer, 2, socket.MSG_TRUNC) == 6
    one.settimeout(0.05)
    try:
        one.recv(1)
        raise AssertionError("nothing was sent")
    except TimeoutError:
        pass
    one.settimeout(10)
    threading.Timer(0.05, lambda: two.sendto(b"late", one.getsockname())).start()
    assert one.recv(10) == b"late"
    one.setblocking(False)
    expect(errno.EAGAIN, lambda: one.recv(1))


def test_the_largest():
    one, two = bound(), bound()
    text = os.urandom(65507)
    two.sendto(text, one.getsockname())
    assert one.recv(70000) == text
    expect(errno.EMSGSIZE, lambda: two.sendto(text + b"x", one.getsockname()))
    pieces = [b"%d" % n for n in range(100)]
    two.sendmsg(pieces, [], 0, one.getsockname())
    assert one.recv(1000) == b"".join(pieces)


def test_control_data():
    one, two = bound(), bound()
    for option in [socket.IP_RECVTOS, 8, 12]:
        one.setsockopt(socket.IPPROTO_IP, option, 1)
    two.setsockopt(socket.IPPROTO_IP, socket.IP_TTL, 9)
    for beside, tos, ttl in [([], 0, 9), ([(0, socket.IP_TOS, struct.pack("i", 0x48)), (0, socket.IP_TTL, struct.pack("i", 77))], 0x48, 77)]:
        two.sendmsg([b"x"], beside, 0, one.getsockname())
        _, control, flags, _ = one.recvmsg(10, 200)
        told = {kind: data for level, kind, data in control if level == 0}
        assert flags == 0 and told[socket.IP_TOS] == bytes([tos]) and told[socket.IP_TTL] == struct.pack("i", ttl)
        assert told[8][4:8] == socket.inet_aton(HOST), told
    two.sendto(b"x", one.getsockname())
    _, control, flags, _ = one.recvmsg(10, 30)
    assert flags == socket.MSG_CTRUNC and len(control) == 1
    source = struct.pack("i4s4s", 0, socket.inet_aton(HOST), bytes(4))
    two.sendmsg([b"y"], [(0, 8, source)], 0, one.getsockname())
    assert one.recvfrom(10)[1][0] == HOST
    expect(errno.EINVAL, lambda: two.sendmsg([b"y"], [(0, 99, b"1234")], 0, one.getsockname()))


def test_offload():
    one, two = bound(), bound()
    text = os.urandom(10500)
    two.setsockopt(UDP, SEGMENT, 1000)
    two.sendto(text, one.getsockname())
    assert [len(one.recv(2000)) for _ in range(11)] == [1000] * 10 + [500]
    one.setsockopt(UDP, GRO, 1)
    two.sendmsg([text], [(UDP, SEGMENT, struct.pack("H", 1200))], 0, one.getsockname())
    got, control, _, _ = one.recvmsg(65535, 100)
    assert got == text and control == [(UDP, GRO, struct.pack("i", 1200))], control
    two.setsockopt(UDP, SEGMENT, 0)
    two.sendto(text, one.getsockname())
    assert one.recvmsg(65535, 100)[:2] == (text, [])
    expect(errno.EINVAL, lambda: two.sendmsg([text], [(UDP, SEGMENT, struct.pack("H", 10))], 0, one.getsockname()))


def test_readiness():
    one, two = bound(), bound()
    fresh = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    epoll, poll = select.epoll(), select.poll()
    epoll.register(fresh, select.EPOLLIN)
    poll.register(fresh, select.POLLIN | select.POLLOUT)
    assert epoll.poll(0) == [] and poll.poll(0) == [(fresh.fileno(), select.POLLOUT)]
    fresh.bind((HOST, 0))
    epoll.register(one, select.EPOLLIN)
    assert epoll.poll(0) == []
    for target in [one, fresh]:
        threading.Timer(0.05, lambda: two.sendto(b"x", target.getsockname())).start()
        assert epoll.poll(10) == [(target.fileno(), select.EPOLLIN)]
        assert target.recv(10) == b"x"
        assert epoll.poll(0) == []
        threading.Timer(0.05, lambda: two.sendto(b"x", target.getsockname())).start()
        assert select.select([target, two], [], [], 10)[0] == [target]
        target.recv(10)
    for n in range(3000):
        two.sendto(b"%d" % n, one.getsockname())
        assert one.recv(10) == b"%d" % n


def test_fork_and_dup():
    one, two = bound(), socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    if os.fork() == 0:
        got, peer = one.recvfrom(100)
        two.sendto(got + b" from the child", peer)
        os._exit(0)
    three = bound()
    three.sendto(b"hello", one.getsockname())
    assert three.recv(100) == b"hello from the child"
    os.wait()
    copy = two.dup()
    two.close()
    copy.sendto(b"again", three.getsockname())
    assert three.recv(100) == b"again"


def test_shared_ports():
    one, two = socket.socket(socket.AF_INET, socket.SOCK_DGRAM), socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    for it in [one, two]:
        it.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        it.settimeout(10)
    one.bind((HOST, 0))
    peer, other = bound(), bound()
    one.connect(peer.getsockname())
    two.bind(one.getsockname())
    peer.sendto(b"peer", one.getsockname())
    other.sendto(b"other", one.getsockname())
    assert one.recv(10) == b"peer" and two.recv(10) == b"other"


def test_groups():
    one, two = bound("0.0.0.0"), bound()
    group = ("239.1.2.3", one.getsockname()[1])
    member = struct.pack("4s4s", socket.inet_aton(group[0]), socket.inet_aton(HOST))
    one.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, member)
    expect(errno.EADDRINUSE, lambda: one.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, member))
    two.sendto(b"to all", group)
    assert one.recv(100) == b"to all"
    one.setsockopt(socket.IPPROTO_IP, socket.IP_DROP_MEMBERSHIP, member)
    two.sendto(b"to nobody", group)
    one.settimeout(0.2)
    try:
        one.recv(100)
        raise AssertionError("it has left the group")
    except TimeoutError:
        pass


for name, test in sorted(globals().copy().items()):
    if name.startswith("test_"):
        print(name, flush=True)
        test()
