"""The netstack goes away under a server's sockets: each is told, and nobody goes round."""
import errno, select, socket, sys, threading, time

HOST = sys.argv[1]


def listens():
    return socket.create_server((HOST, 0))


def hears():
    one = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    one.bind((HOST, 0))
    return one


def rounds(call):
    """How often a call is made within a second by who goes on after each error; what he is told."""
    told, count, end = set(), 0, time.monotonic() + 1
    while time.monotonic() < end:
        for told_of in call():
            count += 1
            try:
                told_of()
            except OSError as error:
                told.add(error.errno)
    return count, told


def looks(sock, call):
    """The same call when the socket is ready, as a server does that has many."""
    events = select.epoll()
    events.register(sock, select.EPOLLIN)
    assert not events.poll(0)
    sock.setblocking(False)
    return lambda: [call for _ in events.poll(0.1)]


def polls(sock, call):
    sock.setblocking(False)
    return lambda: [call for _ in select.select([sock], [], [], 0.1)[0]]


def is_told(call):
    try:
        call()
    except OSError as error:
        return error.errno in GONE
    return False


GONE = (errno.ENETDOWN, errno.ECONNABORTED)
servers = {}
for name, how in ("epoll", looks), ("select", polls):
    listener = listens()
    servers["accept by " + name] = how(listener, listener.accept)
sleepers = hears()
answers = []
threads = [threading.Thread(target=lambda: answers.append(is_told(lambda: sleepers.recv(9)))) for _ in range(3)]
for thread in threads:
    thread.start()
ears = [hears() for _ in range(2)]
hearing = {"recv by epoll": looks(ears[0], lambda: ears[0].recv(9)), "recv by select": polls(ears[1], lambda: ears[1].recv(9))}
listener = listens()
servers["accept"] = lambda: [listener.accept]
last = listens()
open(sys.argv[2], "w").close()
last.settimeout(20)
try:
    last.accept()
except OSError as error:
    assert error.errno == errno.ENETDOWN, error
for name, call in (servers | hearing).items():
    used = time.process_time()
    count, told = rounds(call)
    assert 1 <= count <= 3 and told, (name, count, told)
    assert told <= set(GONE) if name in hearing else told == {errno.ENETDOWN}, (name, told)
    assert time.process_time() - used < 0.3, name
for thread in threads:
    thread.join(20)
assert answers == [True] * 3, answers
for one in ears + [sleepers]:
    assert is_told(lambda: one.recv(9)) and is_told(lambda: one.sendto(b"x", (HOST, 9)))
# What has its name now has its programs: they go on with new sockets, and the old ones stay what they are.
end = time.monotonic() + 20
while True:
    try:
        listener = listens()
        break
    except OSError as error:
        assert error.errno in (errno.ENETDOWN, errno.EADDRNOTAVAIL) and time.monotonic() < end, error
        time.sleep(0.01)
one = socket.create_connection(listener.getsockname())
two, _ = listener.accept()
one.sendall(b"anew")
assert two.recv(9) == b"anew"
for old in ears:
    assert is_told(lambda: old.recv(9))
