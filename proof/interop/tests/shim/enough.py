"""Who waits for more bytes than are there hears when less is enough (SO_RCVLOWAT), and uses no CPU until then."""
import select
import socket
import sys
import threading
import time

HOST = sys.argv[1]
LOWAT = (socket.SOL_SOCKET, socket.SO_RCVLOWAT)
listener = socket.create_server((HOST, 0))


def stream():
    one = socket.create_connection(listener.getsockname())
    other = listener.accept()[0]
    # Past what the first segments of a connection bring with them.
    one.sendall(b"begin")
    assert other.recv(5, socket.MSG_WAITALL) == b"begin"
    return one, other


def waits(name, wait, *changes):
    """What a thread's call said after the changes, whether at once, and whether it turned meanwhile."""
    told = []

    def call():
        begun = time.thread_time()
        told.append(wait())
        told.append(time.thread_time() - begun)

    thread = threading.Thread(target=call, daemon=True)
    thread.start()
    for change in changes:
        time.sleep(0.2)
        still = not told
        begun = time.monotonic()
        change()
    thread.join(3)
    late = time.monotonic() - begun
    said = told[0] if told else None
    print(name, said, "waited" if still else "did not", "at once" if late < 1 else "late", "asleep" if told and told[1] < 0.1 else "awake", flush=True)


def in_a_set(flags, others):
    one, other = stream()
    given = select.epoll()
    if others:
        given.register(listener, select.EPOLLIN)
    other.setsockopt(*LOWAT, 100)
    given.register(other, select.EPOLLIN | flags)
    one.sendall(b"x" * 10)
    time.sleep(0.05)
    print("in a set", flags, others, given.poll(0), flush=True)
    waits(f"set {flags} {others}", lambda: len(given.poll(3)), lambda: other.setsockopt(*LOWAT, 1))
    print("again", len(given.poll(0)), other.recv(100), flush=True)


for flags in (0, select.EPOLLET, select.EPOLLONESHOT):
    for others in (False, True):
        in_a_set(flags, others)


def polled(others, limit):
    one, other = stream()
    given = select.poll()
    if others:
        given.register(listener, select.POLLIN)
    other.setsockopt(*LOWAT, 100)
    given.register(other, select.POLLIN)
    one.sendall(b"x" * 10)
    waits(f"poll {others} {limit}", lambda: [event for _, event in given.poll(limit)], lambda: None, lambda: other.setsockopt(*LOWAT, 1))
    other.setsockopt(*LOWAT, 100)
    waits(f"poll {others} {limit} for all", lambda: [event for _, event in given.poll(limit)], lambda: one.sendall(b"x" * 89), lambda: one.sendall(b"x"))
    other.recv(200)
    waits(f"poll {others} {limit} for the end", lambda: [event for _, event in given.poll(limit)], lambda: one.sendall(b"x"), one.close)


for others in (False, True):
    for limit in (3000, None):
        polled(others, limit)

for flags in (socket.MSG_PEEK | socket.MSG_WAITALL, socket.MSG_WAITALL):
    one, other = stream()
    waits(f"all {flags}", lambda: other.recv(10, flags), lambda: one.sendall(b"12345"), lambda: one.sendall(b"67890"))
    one, other = stream()
    waits(f"the rest {flags}", lambda: other.recv(10, flags), lambda: one.sendall(b"12345"), one.close)
    one, other = stream()
    other.setsockopt(*LOWAT, 8)
    waits(f"enough {flags}", lambda: other.recv(10, flags & ~socket.MSG_WAITALL), lambda: one.sendall(b"12345"), lambda: one.sendall(b"678"))

# A call that begins with the connection itself: that may be fused while it sleeps.
for flags in (socket.MSG_PEEK, socket.MSG_PEEK | socket.MSG_WAITALL, 0):
    one = socket.create_connection(listener.getsockname())
    other = listener.accept()[0]
    waits(f"begun {flags}", lambda: other.recv(3, flags), lambda: one.sendall(b"1"), lambda: one.sendall(b"23"))
    one = socket.create_connection(listener.getsockname())
    other = listener.accept()[0]
    waits(f"begun {flags} with nothing", lambda: other.recv(0, flags), lambda: one.sendall(b"1"))
