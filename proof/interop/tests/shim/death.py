"""The daemon dies while every kind of call is blocked: each returns within a second, and new calls fail."""
import errno, os, select, socket, sys, threading, time

HOST = sys.argv[1]


def pair():
    listener = socket.create_server((HOST, 0))
    one = socket.create_connection(listener.getsockname())
    two, _ = listener.accept()
    return one, two, listener


a, b, listener = pair()
full, unread, _ = pair()
full.setblocking(False)
try:
    while True:
        full.send(b"x" * 100_000)
        time.sleep(0.01)
except BlockingIOError:
    full.setblocking(True)
set_of_one = select.epoll()
set_of_one.register(b, select.EPOLLIN)
list_of_two = select.poll()
list_of_two.register(b, select.POLLIN), list_of_two.register(listener, select.POLLIN)
ended = {}
ear = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
ear.bind((HOST, 0))


def run(name, call):
    try:
        ended[name] = (call(), time.monotonic())
    except OSError as error:
        ended[name] = (error.errno, time.monotonic())


calls = {
    "recv": lambda: a.recv(1),
    "send": lambda: full.sendall(b"x" * 1_000_000),
    "accept": lambda: listener.accept(),
    "epoll": lambda: set_of_one.poll(20),
    "poll": lambda: list_of_two.poll(20_000),
    "select": lambda: select.select([b], [], [], 20),
}
threads = [threading.Thread(target=run, args=item) for item in calls.items()]
for thread in threads:
    thread.start()
time.sleep(0.2)
assert not ended, ended
open(sys.argv[2], "w").close()
time.sleep(0.1)
while True:
    try:
        socket.socket().close()
    except OSError as error:
        assert error.errno in (errno.ENETDOWN, errno.ECONNRESET), error
        break
    time.sleep(0.005)
death = time.monotonic()
for thread in threads:
    thread.join(5)
assert set(ended) == set(calls), ended
gone = (errno.ENETDOWN, errno.ECONNRESET)
for name, (what, when) in ended.items():
    assert when - death < 1, (name, when - death)
    assert what in gone if name in ("recv", "send", "accept") else what, (name, what)
# A server goes on without its listener, and without going round: it is told once, and asks twice a second at the most.
used = time.process_time()
quiet = select.epoll()
quiet.register(listener, select.EPOLLIN)
assert not quiet.poll(0.3) and not select.select([listener], [], [], 0.3)[0]
# Nor does a server of datagrams.
quiet.register(ear, select.EPOLLIN)
ear.setblocking(False)
assert quiet.poll(1)
try:
    ear.recv(9)
except OSError as error:
    assert error.errno in gone, error
assert not quiet.poll(0.3) and not select.select([ear], [], [], 0.3)[0]
list_of_ears = select.poll()
list_of_ears.register(ear, select.POLLIN | select.POLLOUT)
assert not list_of_ears.poll(300) and not select.select([ear, listener], [], [], 0.3)[0]
rounds, end = 0, time.monotonic() + 1
while time.monotonic() < end:
    try:
        listener.accept()
    except OSError as error:
        assert error.errno in gone, error
    rounds += 1
assert rounds <= 3 and time.process_time() - used < 0.4, (rounds, time.process_time() - used)
listener.setblocking(False)
for call in (lambda: a.recv(1), lambda: b.send(b"x"), lambda: listener.accept()):
    try:
        call()
        raise AssertionError("it went on")
    except OSError as error:
        assert error.errno in gone, error
# Who takes all that waits, until nothing does (libuv), comes to an end.
told = []
for _ in range(4):
    try:
        listener.accept()
    except OSError as error:
        told.append(error.errno)
assert set(told) == {errno.ENETDOWN, errno.EAGAIN}, told
# A child that finds no daemon has its parent's set as it is now, and takes a descriptor for it once.
child = os.fork()
if child == 0:
    told, counts = [], []
    for _ in range(20):
        try:
            told.append([event & select.EPOLLHUP for _, event in set_of_one.poll(0.05)])
        except OSError as error:
            told.append(error.errno)
        counts.append(len(os.listdir("/proc/self/fd")))
    is_right = told[1:] == [[select.EPOLLHUP]] * 19 and counts[1:] == counts[1:2] * 19
    if not is_right:
        print(told, counts, file=sys.stderr, flush=True)
    os._exit(0 if is_right else 1)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
