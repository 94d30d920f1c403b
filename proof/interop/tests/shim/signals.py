"""SIGIO and SIGURG (O_ASYNC, F_SETOWN): for each thing that happens to a socket, which signals come. A line for each case, which is
the kernel's too."""
import array, errno, fcntl, os, select, signal, socket, struct, sys, time

HOST = sys.argv[1]
F_SETSIG, F_GETSIG, F_SETOWN_EX, F_GETOWN_EX = 10, 11, 15, 16
FIOASYNC, FIOSETOWN, SIOCSPGRP, FIOGETOWN, SIOCGPGRP = 0x5452, 0x8901, 0x8902, 0x8903, 0x8904
REAL_TIME = signal.SIGRTMIN + 3
NAMES = {signal.SIGIO: "SIGIO", signal.SIGURG: "SIGURG", REAL_TIME: "SIGRTMIN+3"}
came = set()
for number in NAMES:
    signal.signal(number, lambda number, _: came.add(NAMES[number]))


def tried(call, *arguments):
    try:
        return call(*arguments)
    except OSError as error:
        return errno.errorcode[error.errno]


def events(sock):
    poll = select.poll()
    poll.register(sock, select.POLLIN | select.POLLPRI | select.POLLOUT)
    return dict(poll.poll(0)).get(sock.fileno(), 0)


def told(what, least=()):
    """Which signals have come: those that must are waited for, others had the time to."""
    deadline = time.monotonic() + 5
    while not came >= set(least) and time.monotonic() < deadline:
        time.sleep(0.001)
    time.sleep(0.05)
    print(f"{what}:", *sorted(came))
    came.clear()


def wants(sock, owner=None, is_async=True):
    fcntl.fcntl(sock, fcntl.F_SETOWN, os.getpid() if owner is None else owner)
    flags = fcntl.fcntl(sock, fcntl.F_GETFL) & ~os.O_ASYNC
    fcntl.fcntl(sock, fcntl.F_SETFL, flags | (os.O_ASYNC if is_async else 0))
    return sock


def pair():
    """Two ends that have talked for a while: they are fused if they may be."""
    listener = socket.create_server((HOST, 0))
    client = socket.create_connection(listener.getsockname())
    server, _ = listener.accept()
    listener.close()
    for _ in range(20):
        for one, other in ((client, server), (server, client)):
            one.sendall(b"?")
            assert other.recv(1) == b"?"
        time.sleep(0.001)
    return client, server


def of_streams():
    client, server = pair()
    client.sendall(b"before")
    told("text for nobody")
    wants(server)
    told("nothing is new")
    client.sendall(b"after")
    told("text", ["SIGIO"])
    client.sendall(b"more")
    told("text behind unread text", ["SIGIO"])
    print("read:", server.recv(99))
    told("reading")
    server.sendall(b"answer")
    told("writing")
    print("answer:", client.recv(99))
    told("being read")
    client.send(b"!", socket.MSG_OOB)
    told("urgent text", ["SIGIO", "SIGURG"])
    print("urgent:", server.recv(1, socket.MSG_OOB))
    client.sendall(b"x" * 30_000)
    told("much", ["SIGIO"])
    got = 0
    while got < 30_000:
        got += len(server.recv(65536))
    wants(server, is_async=False)
    client.sendall(b"off")
    told("without O_ASYNC")
    client.send(b"!", socket.MSG_OOB)
    told("urgent text without O_ASYNC", ["SIGURG"])
    wants(server, owner=0)
    client.send(b"!", socket.MSG_OOB)
    client.sendall(b"nobody")
    told("O_ASYNC without owner")
    wants(server)
    client.shutdown(socket.SHUT_WR)
    told("end of text", ["SIGIO"])
    server.close()
    client.close()
    told("closing")


def of_ends():
    client, server = pair()
    wants(server)
    client.close()
    told("peer closes", ["SIGIO"])
    print("read:", server.recv(9))
    tried(server.send, b"x")
    told("reset by what was written", ["SIGIO"])
    server.close()
    client, server = pair()
    wants(server)
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    client.close()
    told("reset", ["SIGIO"])
    print("read:", tried(server.recv, 9))
    client, server = pair()
    wants(client)
    client.shutdown(socket.SHUT_WR)
    told("own end of text")
    server.sendall(b"still")
    told("text after that", ["SIGIO"])
    server.close()
    told("both have ended", ["SIGIO"])


def of_room():
    client, server = pair()
    client.setblocking(False)
    wants(client)
    sent, idle = 0, 0
    # What is on its way makes room when it has arrived, and then there is a signal.
    while idle < 5:
        count = tried(client.send, b"x" * 65536)
        idle = idle + 1 if count == "EAGAIN" else 0
        sent += 0 if count == "EAGAIN" else count
        time.sleep(0.02 if count == "EAGAIN" else 0)
    came.clear()
    told("no room")
    while sent > 0:
        sent -= len(server.recv(1 << 20))
    told("room again", ["SIGIO"])
    print("writable:", bool(events(client) & select.POLLOUT))


def of_connecting():
    listener = socket.create_server((HOST, 0))
    client = wants(socket.socket())
    client.setblocking(False)
    print("connect:", client.connect_ex(listener.getsockname()) in (0, errno.EINPROGRESS))
    told("connected", ["SIGIO"])
    server, _ = listener.accept()
    server.sendall(b"x")
    told("text", ["SIGIO"])
    client.sendall(b"x")
    told("text for who was accepted")
    print("flags:", [fcntl.fcntl(it, fcntl.F_GETFL) & os.O_ASYNC != 0 for it in (client, server, listener)])
    free = listener.getsockname()
    listener.close()
    server.close()
    told("peer closes", ["SIGIO"])
    client.close()
    refused = wants(socket.socket())
    refused.setblocking(False)
    tried(refused.connect, free)
    told("refused", ["SIGIO"])
    print("error:", errno.errorcode.get(refused.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)))


def of_listeners():
    for early in (True, False):
        listener = socket.socket()
        if early:
            wants(listener)
        listener.bind((HOST, 0))
        listener.listen(5)
        told("listening")
        clients = [socket.create_connection(listener.getsockname())]
        told("a connection early" if early else "a connection for nobody", ["SIGIO"] if early else [])
        if not early:
            wants(listener)
        clients.append(socket.create_connection(listener.getsockname()))
        told("another", ["SIGIO"])
        servers = [listener.accept()[0] for _ in clients]
        told("accepting")
        print("accepted in order:", [it.getpeername() for it in servers] == [it.getsockname() for it in clients])
        clients.append(socket.create_connection(listener.getsockname()))
        told("a third", ["SIGIO"])
        wants(listener, is_async=False)
        clients.append(socket.create_connection(listener.getsockname()))
        told("without O_ASYNC")
        servers += [listener.accept()[0] for _ in range(2)]
        clients[-1].sendall(b"whole")
        print("text:", servers[-1].recv(9))


def of_datagrams():
    one, other = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(2)]
    wants(one)
    one.bind((HOST, 0))
    told("bound")
    other.sendto(b"x", one.getsockname())
    told("a datagram", ["SIGIO"])
    other.sendto(b"y", one.getsockname())
    told("another", ["SIGIO"])
    print("read:", one.recv(9), one.recv(9))
    told("reading")
    other.close()
    other = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    other.bind((HOST, 0))
    one.connect(other.getsockname())
    one.send(b"z")
    told("sending")
    other.close()
    # A netstack hears of the end a moment later.
    deadline = time.monotonic() + 5
    while not came and time.monotonic() < deadline:
        one.send(b"z")
        time.sleep(0.05)
    told("refused", ["SIGIO"])
    print("error:", tried(one.recv, 9))


def of_owners():
    client, server = pair()
    number = array.array("i", [0])
    print("nobody:", fcntl.fcntl(server, fcntl.F_GETOWN), fcntl.fcntl(server, F_GETSIG))
    for request in (FIOSETOWN, SIOCSPGRP):
        fcntl.ioctl(server, request, struct.pack("i", 0))
        fcntl.ioctl(server, request, struct.pack("i", os.getpid()))
        for asked in (FIOGETOWN, SIOCGPGRP):
            fcntl.ioctl(server, asked, number)
            print("owner:", number[0] == os.getpid(), fcntl.fcntl(server, fcntl.F_GETOWN) == os.getpid())
    fcntl.ioctl(server, FIOASYNC, struct.pack("i", 1))
    print("O_ASYNC:", fcntl.fcntl(server, fcntl.F_GETFL) & os.O_ASYNC != 0)
    client.sendall(b"x")
    told("by ioctl", ["SIGIO"])
    fcntl.ioctl(server, FIOASYNC, struct.pack("i", 0))
    client.sendall(b"x")
    told("no more")
    fcntl.ioctl(server, FIOASYNC, struct.pack("i", 1))
    fcntl.fcntl(server, F_SETSIG, int(REAL_TIME))
    print("signal:", fcntl.fcntl(server, F_GETSIG) == REAL_TIME)
    client.sendall(b"x")
    told("another signal", ["SIGRTMIN+3"])
    print("wrong signal:", tried(fcntl.fcntl, server, F_SETSIG, 99))
    print("wrong owner:", tried(fcntl.fcntl, server, fcntl.F_SETOWN, 1 << 29))
    fcntl.fcntl(server, F_SETSIG, 0)
    fcntl.fcntl(server, F_SETOWN_EX, struct.pack("ii", 2, os.getpgrp()))
    print("group:", struct.unpack("ii", fcntl.fcntl(server, F_GETOWN_EX, bytes(8))) == (2, os.getpgrp()))
    fcntl.fcntl(server, F_SETOWN_EX, struct.pack("ii", 1, os.getpid()))
    client.sendall(b"x")
    told("by F_SETOWN_EX", ["SIGIO"])


def of_processes():
    """Whoever has a copy signals and is signalled alike."""
    client, server = pair()
    wants(server)
    child = os.fork()
    if child == 0:
        print("the child's:", fcntl.fcntl(server, fcntl.F_GETOWN) == os.getppid(), flush=True)
        client.sendall(b"from the child")
        os._exit(0)
    os.waitpid(child, 0)
    told("a child writes", ["SIGIO"])
    print("read:", server.recv(99))
    child = os.fork()
    if child == 0:
        wants(server)
        os.kill(os.getppid(), REAL_TIME)
        told("the child's", ["SIGIO"])
        sys.stdout.flush()
        os._exit(0)
    told("the child is ready", ["SIGRTMIN+3"])
    client.sendall(b"for the child")
    os.waitpid(child, 0)
    told("nothing here")
    copy = os.dup(server.fileno())
    server.close()
    wants(socket.socket(fileno=copy).detach())
    client.sendall(b"more")
    told("of a copy", ["SIGIO"])


def of_many():
    """Who reads nothing for long is signalled again when it has."""
    client, server = pair()
    wants(server)
    client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for _ in range(2000):
        client.sendall(b"x")
    told("many", ["SIGIO"])
    got = 0
    while got < 2000:
        got += len(server.recv(9999))
    came.clear()
    client.sendall(b"x")
    told("one more", ["SIGIO"])
    client.sendall(b"x")
    told("and another", ["SIGIO"])


for test in (of_streams, of_ends, of_room, of_connecting, of_listeners, of_datagrams, of_owners, of_processes, of_many):
    print(f"- {test.__name__}")
    sys.stdout.flush()
    test()
