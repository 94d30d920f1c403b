"""Who connects to a port whose listener another process has closed a moment ago is refused, as by the kernel; so is who connects when
that process was killed. Argument: the address."""
import errno, os, signal, socket, struct, sys

HOST = sys.argv[1]
TIMES = 300


def tried(port):
    with socket.socket() as sock:
        return errno.errorcode.get(sock.connect_ex((HOST, port)), "connected")


def listening(to_us, from_us, closes):
    """A process that listens, says where, and closes or waits for its end when it is told to."""
    while True:
        listener = socket.create_server((HOST, 0), backlog=9)
        os.write(to_us, struct.pack("i", listener.getsockname()[1]))
        os.read(from_us, 1)
        if not closes:
            signal.pause()
        accepted, _ = listener.accept()
        listener.close()
        os.write(to_us, bytes(4))
        accepted.close()
        # The next port, which is any, may be the same: nobody is to listen there before it was tried.
        os.read(from_us, 1)


def process(closes):
    (ours, to_us), (from_us, to_it) = os.pipe(), os.pipe()
    pid = os.fork()
    if pid == 0:
        listening(to_us, from_us, closes)
    os.close(to_us)
    os.close(from_us)
    return pid, ours, to_it


def port_of(ours):
    return struct.unpack("i", os.read(ours, 4))[0]


def closing():
    pid, ours, to_it = process(closes=True)
    told = []
    for _ in range(TIMES):
        port = port_of(ours)
        with socket.create_connection((HOST, port)):
            os.write(to_it, b"x")
            os.read(ours, 4)
            told.append(tried(port))
        os.write(to_it, b"x")
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    print("closed:", {it: told.count(it) for it in sorted(set(told))})


def killing():
    told = []
    for _ in range(TIMES // 10):
        pid, ours, to_it = process(closes=False)
        port = port_of(ours)
        socket.create_connection((HOST, port)).close()
        os.write(to_it, b"x")
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        told.append(tried(port))
        os.close(ours)
        os.close(to_it)
    print("killed:", {it: told.count(it) for it in sorted(set(told))})


def other_ports():
    """Who has nothing to do with it connects."""
    listener = socket.create_server((HOST, 0), backlog=999)
    port = listener.getsockname()[1]
    told = []
    for _ in range(TIMES):
        socket.create_server((HOST, 0)).close()
        told.append(tried(port))
    print("others:", {it: told.count(it) for it in sorted(set(told))})


closing()
killing()
other_ports()
