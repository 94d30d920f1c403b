"""SO_BINDTODEVICE: a line for each answer, which is the kernel's too. Arguments: the own address and the other side's, where the
same script, with `peer` as third, calls back and echoes."""
import errno, fcntl, os, socket, struct, sys, threading

HOST, PEER = sys.argv[1:3]
SOCKET, DEVICE, INDEX = 1, (1, 25), (1, 62)
NAME = {"10.0.0.10": b"web0", "10.0.0.1": b"kernel0"}[HOST]
STREAM, DATAGRAM = socket.SOCK_STREAM, socket.SOCK_DGRAM
CALLS, ECHOES = 7171, 7172


def tried(call, *arguments):
    try:
        return call(*arguments)
    except OSError as error:
        return errno.errorcode.get(error.errno, type(error).__name__) if error.errno else type(error).__name__


def shown(name):
    return name.replace(NAME, b"DEVICE") if isinstance(name, bytes) else name


def bound(kind, *options):
    sock = socket.socket(type=kind)
    sock.settimeout(20)
    sock.setsockopt(*DEVICE, NAME)
    return sock


def peer():
    passive = socket.create_server((HOST, CALLS))
    echo = socket.socket(type=DATAGRAM)
    echo.bind((HOST, ECHOES))

    def answer():
        while True:
            text, whose = echo.recvfrom(100)
            echo.sendto(text, whose)

    threading.Thread(target=answer, daemon=True).start()
    print("ready", flush=True)
    while True:
        one, whose = passive.accept()
        port = int(one.recv(9))
        if port == 0:
            break
        call = socket.create_connection((whose[0], port))
        call.sendall(b"hello")
        one.sendall(b"called")


def asked(port):
    """The other side has called us there."""
    with socket.create_connection((PEER, CALLS)) as sock:
        sock.sendall(b"%d" % port)
        return sock.recv(9)


def options():
    for kind in STREAM, DATAGRAM:
        sock = socket.socket(type=kind)
        number = struct.unpack_from("i", fcntl.ioctl(sock, 0x8933, struct.pack("16s24s", NAME, b"")), 16)[0]
        print("new", sock.getsockopt(*DEVICE, 16), sock.getsockopt(*INDEX))
        print("nobody's", [tried(sock.setsockopt, *DEVICE, name) for name in (b"nowhere0", b"nowhere0\0", b"x" * 40)])
        print("set", tried(sock.setsockopt, *DEVICE, NAME + b"\0"), shown(sock.getsockopt(*DEVICE, 16)), sock.getsockopt(*INDEX) == number)
        print("no room", tried(sock.getsockopt, *DEVICE, 15))
        print("none", tried(sock.setsockopt, *DEVICE, b"\0"), sock.getsockopt(*DEVICE, 16), tried(sock.setsockopt, *DEVICE, b""))
        print("by number", tried(sock.setsockopt, *INDEX, number), shown(sock.getsockopt(*DEVICE, 16)), sock.getsockopt(*INDEX) == number)
        print("no number", [tried(sock.setsockopt, *INDEX, value) for value in (-1, 0)], sock.getsockopt(*DEVICE, 16))
    if os.fork() == 0:
        os.setuid(65534)
        for kind in STREAM, DATAGRAM:
            sock = socket.socket(type=kind)
            print("others", [tried(sock.setsockopt, *DEVICE, name) for name in (NAME, NAME, b"")], flush=True)
        os._exit(0)
    os.wait()


def listeners():
    passive = bound(STREAM)
    passive.bind((HOST, 0))
    passive.listen()
    # The device is the one that has the address.
    client = socket.create_connection(passive.getsockname())
    server = passive.accept()[0]
    print("from here", client.getsockopt(*DEVICE, 16), shown(server.getsockopt(*DEVICE, 16)))
    print("from there", asked(passive.getsockname()[1]))
    server = passive.accept()[0]
    print("accepted", server.recv(9), shown(server.getsockopt(*DEVICE, 16)))
    everywhere = bound(STREAM)
    everywhere.bind(("0.0.0.0", 0))
    everywhere.listen()
    print("to another address", tried(socket.create_connection, ("127.0.0.1", everywhere.getsockname()[1])))
    client = bound(STREAM)
    client.connect((HOST, everywhere.getsockname()[1]))
    client.sendall(b"text")
    print("bound both", everywhere.accept()[0].recv(9))
    passive.setsockopt(*DEVICE, b"")
    client = socket.create_connection(passive.getsockname())
    print("by any", passive.accept()[0].getsockopt(*DEVICE, 16))


def listening(port, device, *options, address=("0.0.0.0", socket.AF_INET)):
    sock = socket.socket(address[1])
    sock.settimeout(20)
    for option in options:
        sock.setsockopt(*option)
    if device:
        sock.setsockopt(*DEVICE, device)
    sock.bind((address[0], port))
    sock.listen()
    return sock


def beside():
    here = listening(0, NAME)
    port = here.getsockname()[1]
    there = listening(port, b"lo")
    print("once more", [tried(listening, port, device) for device in (NAME, b"lo", b"")])
    for address, sock in ("127.0.0.1", there), (HOST, here):
        client = socket.create_connection((address, port))
        print("beside", sock.accept()[0].getsockname() == (address, port))
    print("beside from there", asked(port), here.accept()[0].recv(9))
    share, alone = (SOCKET, 15, 1), (41, 26, 1)
    wide = listening(0, b"", share)
    port = wide.getsockname()[1]
    narrow = listening(port, NAME, share)
    for _ in range(8):
        client = socket.create_connection((HOST, port))
        narrow.accept()
    client = socket.create_connection(("127.0.0.1", port))
    print("before who keeps to none", wide.accept()[0].getsockname() == ("127.0.0.1", port))
    for order in [(share, alone), (share,)], [(share,), (share, alone)]:
        port, pair = 0, []
        for options in order:
            pair.append(listening(port, b"", *options, address=("::", socket.AF_INET6)))
            port = pair[0].getsockname()[1]
        dual = pair[order.index((share,))]
        for _ in range(4):
            for address, sock, name in (HOST, dual, "::ffff:" + HOST), ("::1", pair[0], "::1"):
                client = socket.create_connection((address, port))
                print("shared", address == HOST, sock.accept()[1][0] == name)


def clients():
    client = bound(STREAM)
    client.connect((PEER, CALLS))
    other = socket.create_server((HOST, 0))
    client.sendall(b"%d" % other.getsockname()[1])
    print("connected", other.accept()[0].recv(9), client.recv(9), client.getsockname()[0] == HOST)


def datagrams():
    for connects in False, True:
        sock = bound(DATAGRAM)
        if connects:
            sock.connect((PEER, ECHOES))
            sock.send(b"text")
        else:
            sock.sendto(b"text", (PEER, ECHOES))
        print("echoed", sock.recvfrom(9) == (b"text", (PEER, ECHOES)), shown(sock.getsockopt(*DEVICE, 16)))
    sock = bound(DATAGRAM)
    sock.bind((HOST, 0))
    socket.socket(type=DATAGRAM).sendto(b"text", sock.getsockname())
    sock.settimeout(0.3)
    print("from here", tried(sock.recv, 9))
    sock = bound(DATAGRAM)
    sock.bind(("0.0.0.0", 0))
    sock.settimeout(0.3)
    socket.socket(type=DATAGRAM).sendto(b"text", ("127.0.0.1", sock.getsockname()[1]))
    print("to another address", tried(sock.recv, 9))


if len(sys.argv) > 3:
    peer()
else:
    options()
    listeners()
    beside()
    clients()
    datagrams()
    with socket.create_connection((PEER, CALLS)) as sock:
        sock.sendall(b"0")
