"""A server that forks for each connection: who waits at another connection of it is not disturbed when a child ends, and hears of a reader's
larger buffer. Prints how often those who wait were woken, per child, and whether the writer heard of room in time."""
import os
import select
import signal
import socket
import sys
import threading
import time

HOST, IDLE, SHORT = sys.argv[1], 60, 20


def serve(listener):
    while True:
        one, _ = listener.accept()
        if os.fork() == 0:
            listener.close()
            while text := one.recv(100):
                one.send(text)
            os._exit(0)
        one.close()


def connected(place):
    one = socket.create_connection(place)
    for text in (b"x", b"y"):
        one.send(text)
        assert one.recv(1) == text
    return one


def switches(threads):
    """How often they have slept."""
    counts = 0
    for thread in threads:
        with open(f"/proc/self/task/{thread}/status") as lines:
            counts += sum(int(line.split()[1]) for line in lines if line.startswith("voluntary"))
    return counts


def waits(one, threads):
    threads.append(threading.get_native_id())
    one.recv(1)


def disturbed():
    with socket.create_server((HOST, 0), backlog=128) as listener:
        place, server = listener.getsockname(), os.fork()
        if server == 0:
            signal.signal(signal.SIGCHLD, signal.SIG_IGN)
            serve(listener)
    threads, idle = [], [connected(place) for _ in range(IDLE)]
    for one in idle:
        threading.Thread(target=waits, args=(one, threads), daemon=True).start()
    while len(threads) < IDLE:
        time.sleep(0.01)
    # Who has looked for a while sleeps.
    time.sleep(1)
    before = switches(threads)
    for _ in range(SHORT):
        connected(place).close()
    time.sleep(0.3)
    woken = (switches(threads) - before) / SHORT
    os.kill(server, signal.SIGKILL)
    # Some look again after a time.
    return "nobody" if woken < IDLE / 4 else f"{woken} of {IDLE} threads"


def hears_of_room():
    with socket.create_server((HOST, 0)) as listener:
        writer = socket.create_connection(listener.getsockname())
        reader, _ = listener.accept()
    for one, other in ((writer, reader), (reader, writer)) * 2:
        one.send(b"a")
        other.recv(1)
    time.sleep(0.1)
    reader.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    writer.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 8192)
    writer.setblocking(False)
    try:
        while True:
            writer.send(b"x" * 1000)
    except BlockingIOError:
        pass
    # Waiters of the reader's own process are woken in any case.
    waiter = os.fork()
    if waiter == 0:
        began = time.monotonic()
        polled = select.poll()
        polled.register(writer, select.POLLOUT)
        # Who waits for one descriptor alone sleeps elsewhere.
        polled.register(os.pipe()[0], select.POLLIN)
        told = bool(polled.poll(10_000))
        os._exit(0 if told and time.monotonic() - began < 5 else 1)
    time.sleep(1)
    reader.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 400000)
    return os.waitpid(waiter, 0)[1] == 0


print("room is heard of:", hears_of_room())
print("disturbed by each end:", disturbed())
os._exit(0)
