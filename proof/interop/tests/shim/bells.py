"""Programs whose threads wait for a server come and go: what the server is given to wake them by does not stay with it, and is not many."""
import os, select, socket, sys, threading, time

HOST = sys.argv[1]
PORT = 7475
CLIENTS, THREADS = int(sys.argv[2]), int(sys.argv[3])
# As many descriptors of this kind has a process at most.
MOST = 128


def bells():
    """How many descriptors of that kind it has, with those of its own set: one, and one for each program that it is fused with."""

    def kind(fd):
        try:
            return os.readlink(f"/proc/self/fd/{fd}")
        except OSError:
            # That of the list itself.
            return ""

    return sum(kind(fd) == "anon_inode:[timerfd]" for fd in os.listdir("/proc/self/fd"))


class Client:
    """A program, each of whose threads waits for two sockets at a time until it has been answered."""

    def __init__(self, listener):
        self.ends, self.end = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            listener.close()
            self.talk()
            os._exit(0)
        os.close(self.ends)
        self.socks = [listener.accept()[0] for _ in range(2 * THREADS)]

    def talk(self):
        socks = [socket.create_connection((HOST, PORT)) for _ in range(2 * THREADS)]
        barrier = threading.Barrier(THREADS)

        def work(nth):
            pair = socks[2 * nth : 2 * nth + 2]
            poll = select.poll()
            [poll.register(sock, select.POLLIN) for sock in pair]
            for _ in range(6):
                barrier.wait()
                pair[0].send(b"y")
                assert poll.poll(5000), "nobody answers"
                assert pair[0].recv(1) == b"y"

        threads = [threading.Thread(target=work, args=(nth,)) for nth in range(THREADS)]
        [thread.start() for thread in threads]
        [thread.join() for thread in threads]
        [sock.close() for sock in socks]
        os.read(self.ends, 1)

    def answer(self):
        """Answers all that its threads ask, late enough for them to sleep."""
        with select.epoll() as waiter:
            left = {sock.fileno(): sock for sock in self.socks}
            [waiter.register(fd, select.EPOLLIN) for fd in left]
            while left:
                for fd, _ in waiter.poll():
                    if text := left[fd].recv(10):
                        time.sleep(0.005)
                        left[fd].send(text)
                    else:
                        waiter.unregister(fd)
                        left.pop(fd).close()

    def leave(self):
        # Others have the pipe, too.
        os.write(self.end, b"x")
        os.close(self.end)
        assert os.waitpid(self.pid, 0)[1] == 0


def visit(listener):
    client = Client(listener)
    client.answer()
    return client


listener = socket.create_server((HOST, PORT))
visit(listener).leave()
first = bells()
clients = [visit(listener) for _ in range(CLIENTS)]
most = bells()
assert min(first + 2 * CLIENTS, MOST) <= most <= MOST + 2 * CLIENTS, f"{most} with so many clients, {first} with one"
[client.leave() for client in clients]
deadline = time.monotonic() + 10
while True:
    visit(listener).leave()
    now = bells()
    # Not each thread of the first has slept.
    if now <= first + THREADS:
        break
    assert time.monotonic() < deadline, f"{first} with one client, {most} with more, {now} when they had left"
print(first, most, now)
