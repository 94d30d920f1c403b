# Parents and children that both make and connect sockets: what one does to a socket of both is there for the other, and
# what one does to a socket of its own is nobody else's. Prints what it sees; the kernel's is to be the same.
import errno
import os
import select
import socket
import sys
import threading
import time

HOST = sys.argv[1]


def name(error):
    return errno.errorcode.get(error.errno, str(error))


def told(call):
    try:
        return repr(call())
    except OSError as error:
        return name(error)


class Child:
    """A forked child that does `what` when it is told to, and says when it has."""

    def __init__(self, what):
        self.go, self.done = os.pipe(), os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            code = 1
            try:
                os.read(self.go[0], 1)
                what()
                os.write(self.done[1], b".")
                os.read(self.go[0], 1)
                code = 0
            finally:
                os._exit(code)

    def act(self):
        os.write(self.go[1], b".")
        os.close(self.done[1])
        assert os.read(self.done[0], 1) == b".", "the child has failed"

    def end(self):
        os.write(self.go[1], b".")
        assert os.waitpid(self.pid, 0)[1] == 0
        for fd in [*self.go, self.done[0]]:
            os.close(fd)


server = socket.create_server((HOST, 0), backlog=64)
there = server.getsockname()


def echo():
    taken, _ = server.accept()
    taken.settimeout(10)
    return taken


# What a child does to a fresh socket that its parent has, too.
for use in ["send", "recv", "connect", "getpeername", "getsockname", "shutdown", "bind", "listen", "poll", "select", "epoll"]:
    both = socket.socket()
    child = Child(lambda: both.connect(there))
    child.act()
    taken = echo()
    both.settimeout(None)
    taken.send(b"hello")
    # It is there before anybody asks, as it is at once in the kernel.
    time.sleep(0.05)
    answer = {
        "send": lambda: both.send(b"text") and taken.recv(9),
        "recv": lambda: both.recv(9),
        "connect": lambda: both.connect(there),
        "getpeername": lambda: both.getpeername() == there,
        "getsockname": lambda: both.getsockname() == taken.getpeername(),
        "shutdown": lambda: both.shutdown(socket.SHUT_WR) or taken.recv(9),
        "bind": lambda: both.bind((HOST, 0)),
        "listen": lambda: both.listen(1),
        "select": lambda: [len(list) for list in select.select([both], [both], [], 5)],
    }
    if use == "poll":
        poll = select.poll()
        poll.register(both, select.POLLIN | select.POLLOUT)
        answer["poll"] = lambda: [events for _, events in poll.poll(5000)]
    if use == "epoll":
        epoll = select.epoll()
        epoll.register(both, select.EPOLLIN | select.EPOLLOUT)
        answer["epoll"] = lambda: [events for _, events in epoll.poll(5)]
    print("connected by a child:", use, told(answer[use]))
    print("and then:", told(lambda: both.send(b"more")) if use != "shutdown" else "-")
    child.end()
    both.close()
    taken.close()

# The other way round: the parent connects, the child speaks.
both = socket.socket()
spoken = Child(lambda: both.send(b"from the child"))
both.connect(there)
taken = echo()
spoken.act()
print("connected by the parent:", taken.recv(99))
spoken.end()
both.close()
taken.close()

# A child makes the parent's socket a listener.
both = socket.socket()
both.bind((HOST, 0))
child = Child(lambda: both.listen(5))
child.act()
client = socket.create_connection(both.getsockname())
both.settimeout(5)
print("listening by a child: poll", told(lambda: [len(it) for it in select.select([both], [], [], 5)]))
print("listening by a child: accept", told(lambda: both.accept()[1] == client.getsockname()))
child.end()
client.close()
both.close()

# Two fresh sockets with copies in one process are two.
one, two = socket.socket(), socket.socket()
copies = [one.dup(), two.dup()]
one.connect(there)
taken = echo()
print("copies:", told(lambda: copies[0].send(b"one")), told(lambda: two.send(b"two")), told(lambda: copies[1].recv(1)))
two.connect(there)
other = echo()
copies[1].send(b"two")
print("copies:", taken.recv(9), other.recv(9))
for it in [one, two, *copies, taken, other]:
    it.close()

# A datagram socket that a child has bound, and one that it has connected.
for what in ["bind", "connect"]:
    both = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    far = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    far.bind((HOST, 0))
    child = Child(lambda: both.bind((HOST, 0)) if what == "bind" else both.connect(far.getsockname()))
    child.act()
    if what == "bind":
        print("datagrams: bind", told(lambda: both.getsockname()[1] != 0), told(lambda: both.bind((HOST, 0))))
        far.sendto(b"hello", both.getsockname())
        both.settimeout(5)
        print("datagrams: bind", told(lambda: both.recv(9)))
    else:
        print("datagrams: connect", told(lambda: both.getpeername() == far.getsockname()), told(lambda: both.send(b"x")))
        far.settimeout(5)
        print("datagrams: connect", told(lambda: far.recv(9)))
    child.end()
    both.close()
    far.close()

# Both make and connect sockets of their own, in loops, with threads, while others fork.
ROUNDS = 25
faults = []


def serve():
    try:
        while True:
            taken, _ = server.accept()
            with taken:
                text = taken.recv(64)
                if text == b"end":
                    return
                taken.sendall(text)
    except OSError as error:
        faults.append("serve: " + name(error))


def talk(who):
    for round in range(ROUNDS):
        text = b"%s %d" % (who.encode(), round)
        try:
            with socket.socket() as it:
                it.settimeout(20)
                it.connect(there)
                it.send(text)
                told = it.recv(64)
                if told != text:
                    faults.append("%r instead of %r" % (told, text))
                if it.recv(1) != b"":
                    faults.append("no end")
        except OSError as error:
            faults.append(who + ": " + (name(error) if error.errno else str(error)))


serving = [threading.Thread(target=serve) for _ in range(2)]
for it in serving:
    it.start()
talking = [threading.Thread(target=talk, args=("parent %d" % number,)) for number in range(3)]
for it in talking:
    it.start()
children = []
for number in range(8):
    pid = os.fork()
    if pid == 0:
        server.close()
        faults.clear()
        threads = [threading.Thread(target=talk, args=("child %d" % number,)) for _ in range(2)]
        for it in threads:
            it.start()
        for it in threads:
            it.join()
        for fault in faults:
            os.write(2, (fault + "\n").encode())
        os._exit(len(faults) != 0)
    children.append(pid)
ended = [os.waitpid(pid, 0)[1] for pid in children]
for it in talking:
    it.join()
for it in serving:
    with socket.create_connection(there) as last:
        last.send(b"end")
        last.recv(1)
for it in serving:
    it.join()
print("all of them:", ended, faults)
server.close()
