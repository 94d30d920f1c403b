"""A process has no descriptor left in the moment in which a fused connection is passed to it: with the next one it has forgotten that."""
import array, os, resource, signal, socket, sys, time

HOST = sys.argv[1]


def converse(sock):
    """As a program does that is fused with the other by then."""
    for _ in range(2):
        sock.send(b"hi")
        assert sock.recv(2) == b"ok"
        time.sleep(0.1)


class Client:
    """A program that connects so many times, and says in the end what was answered last."""

    def __init__(self, address, count):
        self.ends, self.end = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            for _ in range(count):
                with socket.create_connection(address) as sock:
                    converse(sock)
                    sock.send(b"request")
                    sock.settimeout(10)
                    try:
                        answer = sock.recv(99)
                    except OSError as error:
                        answer = error
            # What it shares with the other is not to be the next one's.
            os.read(self.ends, 1)
            os._exit(0 if answer == b"answer" else 1)

    def leave(self):
        os.write(self.end, b"x")
        assert os.waitpid(self.pid, 0)[1] == 0, "no answer on the last connection"


def work(control):
    """Answers on connections that are passed here, before one of which descriptors run out."""
    taken = []
    while True:
        order, beside, _, _ = control.recvmsg(10, socket.CMSG_SPACE(4))
        if not order:
            os._exit(0)
        if order == b"full":
            taken.append(os.open("/dev/null", os.O_RDONLY))
            resource.setrlimit(resource.RLIMIT_NOFILE, (taken[0] + 20, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
            try:
                while True:
                    taken.append(os.open("/dev/null", os.O_RDONLY))
            except OSError:
                pass
            # For what is passed.
            os.close(taken.pop())
        elif order == b"empty":
            while taken:
                os.close(taken.pop())
        else:
            sock = socket.socket(fileno=array.array("i", beside[0][2])[0])
            try:
                assert sock.recv(99) == b"request"
                sock.send(b"answer")
            except ConnectionAbortedError:
                print("aborted", file=sys.stderr)
            sock.close()
        control.send(b"done")


def order(control, what, *fds):
    socket.send_fds(control, [what], fds)
    assert control.recv(4) == b"done"


listener = socket.create_server((HOST, 0))
control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
worker = os.fork()
if worker == 0:
    control.close()
    work(theirs)
theirs.close()
signal.alarm(60)
clients = []
for orders in [[b""], [b"full", b"empty"]]:
    clients.append(Client(listener.getsockname(), len(orders)))
    for before in orders:
        server, _ = listener.accept()
        for _ in range(2):
            assert server.recv(2) == b"hi"
            server.send(b"ok")
        # It has been seen here, in the memory that the two share.
        assert server.recv(99, socket.MSG_PEEK) == b"request"
        if before:
            order(control, before)
        order(control, b"pass", server.fileno())
        server.close()
[client.leave() for client in clients]
control.close()
os.waitpid(worker, 0)
