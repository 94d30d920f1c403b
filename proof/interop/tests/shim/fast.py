"""TCP Fast Open of programs that connect (RFC 7413): a line for each answer, which is the kernel's too.

The kernel remembers cookies by address, the netstack by address and port: who is to have none yet is a peer to whom nobody has
connected before. With a second argument the netstack, or the kernel, lets nobody connect so."""
import ctypes, errno, os, select, socket, struct, sys, threading, time

HOST = sys.argv[1]
TCP = socket.IPPROTO_TCP
FASTOPEN, CONNECT, NO_COOKIE, MSG = 23, 30, 34, 0x20000000


def tried(call, *arguments):
    try:
        return call(*arguments)
    except OSError as error:
        return errno.errorcode[error.errno].replace("ENOTSUP", "EOPNOTSUPP")


def events(sock, seconds=0):
    poll = select.poll()
    poll.register(sock, select.POLLIN | select.POLLOUT | select.POLLRDHUP)
    return [hex(event) for _, event in poll.poll(seconds * 1000)]


def is_ready(sock, seconds):
    return bool(select.select([sock], [], [], seconds)[0])


def listener(host=HOST, *options):
    sock = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    sock.setsockopt(TCP, FASTOPEN, 5)
    for option in options:
        sock.setsockopt(TCP, *option)
    sock.bind((host, 0))
    sock.listen()
    return sock


def fresh(family=socket.AF_INET, blocks=True, connects=True):
    sock = socket.socket(family)
    if connects:
        sock.setsockopt(TCP, CONNECT, 1)
    sock.setblocking(blocks)
    return sock


def info(sock):
    """Whether text in the SYN was taken, and why it was not."""
    told = sock.getsockopt(TCP, socket.TCP_INFO, 104)
    return bool(told[5] & 32), told[7] >> 1 & 3


def whole(sock, most=1 << 20):
    got = b""
    while len(got) < most and (piece := sock.recv(65536)):
        got += piece
    return got


def known(*options):
    """A listener whose cookie we have."""
    passive = listener(HOST, *options)
    client = fresh(connects=False)
    client.sendto(b"text", MSG, passive.getsockname())
    passive.accept()[0].recv(9)
    return passive


def nobody_knows_the_peer():
    passive = listener("127.0.0.1")
    client = fresh()
    print("unknown", client.connect(passive.getsockname()), tried(client.connect, passive.getsockname()), client.send(b"text"))
    server = passive.accept()[0]
    print("unknown, then", server.recv(9), info(client)[0], info(server))
    passive = listener("::1")
    client = fresh(socket.AF_INET6, blocks=False, connects=False)
    print("unknown, at once", tried(client.sendto, b"text", MSG, passive.getsockname()))
    server = passive.accept()[0]
    print("nothing went", events(client, 5), is_ready(server, 0.1))
    print("again", tried(client.sendto, b"text", MSG, passive.getsockname()), server.recv(9))
    print("and again", tried(client.sendto, b"text", MSG, passive.getsockname()))


def options():
    sock = socket.socket()
    for name in CONNECT, NO_COOKIE:
        print("begins with", sock.getsockopt(TCP, name))
        for value in 1, 2, -1, 0, 1:
            print("set", name, value, tried(sock.setsockopt, TCP, name, value), sock.getsockopt(TCP, name))
    passive = listener()
    print("a listener", [tried(passive.setsockopt, TCP, name, 1) for name in (CONNECT, NO_COOKIE)])
    client = socket.create_connection(passive.getsockname())
    print("a connection", [tried(client.setsockopt, TCP, name, 1) for name in (CONNECT, NO_COOKIE)])
    print("datagrams", tried(socket.socket(type=socket.SOCK_DGRAM).setsockopt, TCP, CONNECT, 1))


def it_waits_for_text():
    passive = known()
    client = fresh(blocks=False)
    print("waits", client.connect(passive.getsockname()), tried(client.connect, passive.getsockname()))
    name = client.getsockname()
    print("has a name", name[0] == HOST, name[1] > 0)
    print("is", events(client), tried(client.getpeername), tried(client.recv, 9), is_ready(passive, 0.2))
    polled = select.epoll()
    polled.register(client, select.EPOLLIN | select.EPOLLOUT)
    print("told", [hex(event) for _, event in polled.poll(5)])
    print("writes", client.send(b"text"))
    server = passive.accept()[0]
    print("arrives", server.recv(9), server.getpeername() == client.getsockname() == name, info(client), info(server))
    print("stands", events(client, 5), [tried(client.connect, passive.getsockname()) for _ in range(2)])
    server.sendall(b"answer")
    print("answers", is_ready(client, 5), [hex(event) for _, event in polled.poll(5)], client.recv(9))


def it_blocks():
    passive = known()
    client = fresh()
    client.bind((HOST, 0))
    client.connect(passive.getsockname())
    print("blocking", client.send(b"text"), tried(client.connect, passive.getsockname()), info(client))
    server = passive.accept()[0]
    print("and", client.send(b" and more"), whole(server, 13))
    client = fresh()
    client.connect(passive.getsockname())
    text = os.urandom(300_000)
    answer = []
    reader = threading.Thread(target=lambda: answer.append(whole(passive.accept()[0], len(text)) == text))
    reader.start()
    print("much", client.sendmsg([text[:5], b"", text[5:50_000], text[50_000:]]))
    reader.join()
    print("all of it", answer, info(client))


def by_sendto():
    passive = known()
    client = fresh(connects=False)
    print("sendto", client.sendto(b"text", MSG, passive.getsockname()), tried(client.sendto, b"more", MSG, passive.getsockname()))
    server = passive.accept()[0]
    print("arrives", server.recv(9), info(client))
    client = fresh(blocks=False, connects=False)
    print("sendmsg", client.sendmsg([b"te", b"xt"], [], MSG, passive.getsockname()))
    server = passive.accept()[0]
    print("arrives", server.recv(9), info(client), events(client, 5))
    print("then", [tried(client.sendto, b"more", MSG, passive.getsockname()) for _ in range(2)], server.recv(9))
    client = fresh(connects=False)
    print("without wait", client.sendto(b"text", MSG | socket.MSG_DONTWAIT, passive.getsockname()), passive.accept()[0].recv(9))
    client = fresh()
    client.connect(passive.getsockname())
    read, write = os.pipe()
    os.write(write, b"piped")
    print("by splice", os.splice(read, client.fileno(), 9), passive.accept()[0].recv(9), info(client))
    client = fresh()
    client.connect(passive.getsockname())
    file = os.memfd_create("file")
    os.write(file, b"filed")
    print("by sendfile", os.sendfile(client.fileno(), file, 0, 9), passive.accept()[0].recv(9), info(client))
    client = fresh()
    client.connect(passive.getsockname())
    print("after connect", client.send(b"text", MSG), passive.accept()[0].recv(9))


def wrongly():
    passive = known()
    libc = ctypes.CDLL(None, use_errno=True)

    def sendto(sock, address):
        done = libc.sendto(sock.fileno(), b"text", 4, MSG, address, len(address) if address else 0)
        return done if done >= 0 else errno.errorcode[ctypes.get_errno()]

    where = struct.pack("=H", socket.AF_INET) + struct.pack("!H", passive.getsockname()[1]) + socket.inet_aton(HOST) + bytes(8)
    for name, address in (("none", None), ("unspecified", bytes(16)), ("another family", struct.pack("=H", 10) + bytes(26)),
                          ("short", where[:8])):
        print("wrongly", name, sendto(fresh(connects=False), address))
    print("of a listener", sendto(passive, where))
    print("of another", sendto(socket.create_connection(passive.getsockname()), where))


def nobody_is_there():
    passive = known()
    address = passive.getsockname()
    passive.close()
    time.sleep(0.2)
    client = fresh()
    print("nobody", client.connect(address), tried(client.send, b"text"))
    client = fresh(blocks=False)
    print("nobody", client.connect(address), client.send(b"text"), events(client, 5))
    print("why", errno.errorcode[client.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)])
    print("sendto", tried(fresh(connects=False).sendto, b"text", MSG, address))


def nothing_is_written():
    passive = known()
    for _ in range(3):
        client = fresh()
        client.connect(passive.getsockname())
        client.close()
    print("nothing was written", is_ready(passive, 0.3))


def others_have_it():
    passive = known()
    client = fresh()
    client.connect(passive.getsockname())
    copy = client.dup()
    print("by a copy", copy.send(b"text"), passive.accept()[0].recv(9), tried(client.connect, passive.getsockname()))
    client = fresh()
    client.connect(passive.getsockname())
    if os.fork() == 0:
        os._exit(client.send(b"a child's"))
    print("by a child", os.waitstatus_to_exitcode(os.wait()[1]), passive.accept()[0].recv(9), client.send(b"more"))


def without_a_cookie():
    passive = listener(HOST, (NO_COOKIE, 1))
    client = fresh()
    client.setsockopt(TCP, NO_COOKIE, 1)
    print("trusting", client.connect(passive.getsockname()), client.send(b"text"), passive.accept()[0].recv(9), info(client))


if len(sys.argv) > 2:
    passive = socket.create_server((HOST, 0))
    sock = socket.socket()
    print("not allowed", [tried(sock.setsockopt, TCP, CONNECT, value) for value in (0, 1, 2)])
    print("nor so", tried(sock.sendto, b"text", MSG, passive.getsockname()))
    print("but so", sock.connect(passive.getsockname()), sock.send(b"text"), passive.accept()[0].recv(9))
else:
    nobody_knows_the_peer()
    options()
    it_waits_for_text()
    it_blocks()
    by_sendto()
    wrongly()
    nobody_is_there()
    nothing_is_written()
    others_have_it()
    without_a_cookie()
