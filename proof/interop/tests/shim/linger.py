"""close(2) with SO_LINGER: how long it takes, and what the peer gets. A line for each case, which is the kernel's too."""
import os, signal, socket, struct, sys, threading, time

HOST = sys.argv[1]
# A close that waits in vain takes LIMIT seconds, one that waits up to LONG for what comes takes AFTER, and others no time.
LIMIT, AFTER, LONG = 2, 0.4, 60


def linger(sock, seconds, on=1):
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", on, seconds))


def pair(listener_lingers=None):
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 17)
    listener.bind((HOST, 0))
    if listener_lingers:
        linger(listener, listener_lingers)
    listener.listen()
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    client.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 17)
    client.connect(listener.getsockname())
    server, _ = listener.accept()
    listener.close()
    return client, server


def fill(sock):
    """Writes more than the peer's buffer holds; how much."""
    sent = 0
    sock.setblocking(False)
    try:
        while True:
            sent += sock.send(bytes(10_000))
    except BlockingIOError:
        pass
    sock.setblocking(True)
    return sent


def stuck(seconds=LIMIT, **options):
    client, server = pair(**options)
    if seconds:
        linger(client, seconds)
    return client, server, fill(client)


def told(close, limit=LIMIT):
    begun = time.monotonic()
    close()
    took = time.monotonic() - begun
    return "in the end" if took > limit / 2 else "after a while" if limit == LONG and took > 0.9 * AFTER else "at once"


def later(act):
    def run():
        time.sleep(AFTER)
        act()

    threading.Thread(target=run, daemon=True).start()


def drain(server, wanted):
    got = 0
    while piece := server.recv(65536):
        got += len(piece)
    assert got == wanted, (got, wanted)


def nobody_reads():
    client, server, _ = stuck()
    return told(client.close)


def nobody_reads_and_it_does_not_block():
    client, server, _ = stuck()
    client.setblocking(False)
    return told(client.close)


def the_option_is_the_listeners():
    client, server = pair(listener_lingers=LIMIT)
    fill(server)
    return told(server.close)


def all_is_read():
    client, server, sent = stuck(LONG)
    later(lambda: drain(server, sent))
    return told(client.close, LONG)


def a_signal_comes():
    client, server, _ = stuck(LONG)
    signal.signal(signal.SIGALRM, lambda *_: None)
    signal.setitimer(signal.ITIMER_REAL, AFTER)
    return told(client.close, LONG)


def the_peer_resets():
    client, server, _ = stuck(LONG)
    linger(server, 0)
    later(server.close)
    return told(client.close, LONG)


def nothing_is_written():
    client, server = pair()
    linger(client, LIMIT)
    return told(client.close), server.recv(9)


def what_was_written_fits():
    client, server = pair()
    linger(client, LIMIT)
    client.sendall(b"little")
    return told(client.close), server.recv(9), server.recv(9)


def there_is_a_copy():
    client, server, _ = stuck()
    copy = client.dup()
    return told(client.close), told(copy.close)


def a_child_has_it():
    client, server, _ = stuck()
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(write)
        os.read(read, 1)
        os._exit(0)
    first = told(client.close)
    os.close(write)
    os.waitpid(child, 0)
    return first


def only_shut():
    client, server, _ = stuck()
    return told(lambda: client.shutdown(socket.SHUT_WR))


def no_longer_wanted():
    client, server, _ = stuck()
    linger(client, LIMIT, on=0)
    return told(client.close)


def no_time():
    client, server = pair()
    linger(client, 0)
    client.sendall(b"lost")
    time.sleep(0.1)
    text = told(client.close)
    try:
        while server.recv(9):
            pass
        return text, "an end"
    except ConnectionResetError:
        return text, "a reset"


def text_is_unread():
    client, server, _ = stuck()
    server.sendall(b"unread")
    time.sleep(0.1)
    return told(client.close)


def another_takes_its_place():
    other = os.open("/dev/null", os.O_RDONLY)
    answers = []
    # dup2, and dup3.
    for inheritable in True, False:
        client, server, _ = stuck()
        answers.append(told(lambda: os.dup2(other, client.fileno(), inheritable)))
    client, server, _ = stuck()
    copy = client.dup()
    return *answers, told(lambda: os.dup2(other, client.fileno())), told(lambda: os.dup2(other, copy.fileno()))


def it_is_one_of_a_range():
    client, server, _ = stuck()
    other = os.open("/dev/null", os.O_RDONLY)
    os.dup2(other, 99), os.dup2(client.fileno(), 100), os.dup2(other, 101), os.dup2(client.fileno(), 102)
    client.close()
    answers = told(lambda: os.closerange(101, 103)), told(lambda: os.closerange(99, 101))
    return answers, [os.path.exists(f"/proc/self/fd/{fd}") for fd in range(99, 103)]


CASES = [it for it in list(globals().values()) if callable(it) and getattr(it, "__code__", None)]
CASES = CASES[CASES.index(nobody_reads):]
# All at once, each in a process of its own, because some take long.
answers = []
for case in CASES:
    read, write = os.pipe()
    if os.fork() == 0:
        os.close(read)
        try:
            os.write(write, repr(case()).encode())
        except BaseException:
            import traceback

            os.write(write, traceback.format_exc().encode())
        os._exit(0)
    os.close(write)
    answers.append(read)
for case, read in zip(CASES, answers):
    print(case.__name__, os.fdopen(read).read())
for _ in CASES:
    os.wait()
