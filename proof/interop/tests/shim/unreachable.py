"""A connection is handed to a program that has no address space left for what its two ends share: what it reads is whole, or an error."""
import array
import errno
import os
import resource
import select
import socket
import subprocess
import sys
import threading
import time

HOST, ROLE = sys.argv[1], sys.argv[2]
MEGABYTE = 1 << 20


def told(call):
    try:
        return call()
    except OSError as error:
        return errno.errorcode[error.errno]


def events(fd, wanted, seconds=10):
    poll = select.poll()
    poll.register(fd, wanted)
    found = dict(poll.poll(seconds * 1000)).get(fd, 0)
    names = {"IN": select.POLLIN, "OUT": select.POLLOUT, "ERR": select.POLLERR, "HUP": select.POLLHUP}
    return " ".join(name for name, bit in names.items() if found & bit)


def own_size():
    """How much address space the program has taken, without what sockets share."""
    with open("/proc/self/maps") as maps:
        places = [line.split()[0].split("-") for line in maps if "memfd:" not in line]
    return sum(int(end, 16) - int(begin, 16) for begin, end in places)


def taker():
    """Takes a connection, leaves itself no room, and only then looks at it."""
    threading.stack_size(MEGABYTE // 4)
    for _ in range(2):
        threading.Thread(target=time.sleep, args=[60], daemon=True).start()
    giver = socket.socket(fileno=0)
    _, control, _, _ = giver.recvmsg(9, socket.CMSG_SPACE(4))
    fd, = array.array("i", control[0][2])
    resource.setrlimit(resource.RLIMIT_AS, (own_size() + 24 * MEGABYTE, resource.RLIM_INFINITY))
    giver.send(b"limited")
    if giver.recv(9) == b"first":
        # Before anything comes.
        print("it can write", events(fd, select.POLLOUT), flush=True)
        giver.send(b"looked")
        print("it reads", events(fd, select.POLLIN), told(lambda: os.read(fd, 99)))
        print("it writes", told(lambda: os.write(fd, b"answer")), flush=True)
        print("it reads", told(lambda: os.read(fd, 99)), flush=True)
    else:
        print("events", events(fd, select.POLLIN))
        os.set_blocking(fd, False)
        reads = [told(lambda: os.read(fd, 99))]
        # What comes of it later is not told again.
        time.sleep(0.05)
        print("it reads", reads + [told(lambda: os.read(fd, 99))])
        print("it writes", told(lambda: os.write(fd, b"answer")), flush=True)
    os._exit(0)


def hand_over(when):
    with socket.create_server((HOST, 0)) as listener:
        client = socket.create_connection(listener.getsockname())
        accepted = listener.accept()[0]
    # Until both have what they share.
    for _ in range(20):
        client.sendall(b"ping")
        accepted.sendall(accepted.recv(9))
        client.recv(9)
        time.sleep(0.005)
    given, taken = socket.socketpair()
    program = subprocess.Popen([sys.executable, __file__, HOST, "taker"], stdin=taken)
    taken.close()
    socket.send_fds(given, [b"x"], [accepted.fileno()])
    given.recv(9)
    if when == "first":
        given.send(b"first")
        given.recv(9)
        client.sendall(b"text")
        heard = client.recv(99)
        client.shutdown(socket.SHUT_WR)
    else:
        client.sendall(b"text")
        given.send(b"later")
    program.wait()
    accepted.close()
    if when == "later":
        client.settimeout(10)
        heard = told(lambda: client.recv(99))
    print("client", heard, flush=True)
    client.close()


if ROLE == "taker":
    taker()
for when in ("first", "later"):
    print("--", when, flush=True)
    hand_over(when)
