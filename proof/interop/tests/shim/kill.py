"""Two programs whose connection is fused; one is killed at a random moment. The other gets every byte that was sent
before, and then an end. Arguments: the address, a seed, how many rounds."""
import mmap, os, random, select, signal, socket, struct, sys, time, traceback

HOST, SEED, ROUNDS = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
PATTERN = bytes(n * 31 & 0xFF ^ n >> 8 & 0xFF for n in range(1 << 16)) * 2
COUNTS = mmap.mmap(-1, 4096)
# What each end has sent, as far as its calls have returned, and whether its bytes go past the daemon.
SENT, FUSED = {"one": 0, "two": 8}, {"one": 16, "two": 24}


def put(at, value):
    COUNTS[at : at + 8] = struct.pack("q", value)


def get(at):
    return struct.unpack("q", COUNTS[at : at + 8])[0]


def segments_sent(sock):
    return struct.unpack_from("I", sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256), 136)[0]


def meet(sock, me):
    """Plays ping-pong until TCP sends nothing more: whether it came so far."""
    for _ in range(100):
        before = segments_sent(sock)
        for _ in range(2):
            if me == "one":
                sock.sendall(b"!")
            assert sock.recv(1) in (b"!", b"?")
            if me == "two":
                sock.sendall(b"!")
        is_fused = segments_sent(sock) == before
        # Both go on, or both begin.
        sock.sendall(b"?" if is_fused else b"!")
        if sock.recv(1) == b"?" and is_fused:
            return True
        time.sleep(0.001)
    return False


def exchange(sock, me, chance, is_waiting):
    """Sends and receives as fast as it can, until the peer's end."""
    other = "two" if me == "one" else "one"
    sent = got = 0
    is_over = False
    sock.setblocking(is_waiting)
    pid = os.fork() if is_waiting else None
    if pid == 0:
        # A process that only sends: its parent only receives.
        try:
            while True:
                sent += sock.send(PATTERN[sent % 65536 :][: chance.randrange(1, 9000)], socket.MSG_NOSIGNAL)
                put(SENT[me], sent)
        except OSError:
            os._exit(0)
    try:
        while not is_over:
            if not is_waiting:
                readable, writable, _ = select.select([sock], [sock], [], 20)
                assert readable or writable, f"{me} waits in vain: {sent} sent, {got} received"
                if writable:
                    sent += sock.send(PATTERN[sent % 65536 :][: chance.randrange(1, 9000)], socket.MSG_NOSIGNAL)
                    put(SENT[me], sent)
                if not readable:
                    continue
            data = sock.recv(chance.randrange(1, 20000))
            assert data == PATTERN[got % 65536 :][: len(data)], f"{me}: wrong bytes behind {got}"
            got += len(data)
            is_over = not data
    except (ConnectionResetError, BrokenPipeError):
        # What came before may still be there.
        sock.setblocking(False)
        try:
            while data := sock.recv(1 << 16):
                assert data == PATTERN[got % 65536 :][: len(data)], f"{me}: wrong bytes behind {got}"
                got += len(data)
        except OSError:
            pass
    if pid:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    # The one that is dead by now had counted no more than this.
    return got, get(SENT[other])


def child(me, chance, listener, is_waiting):
    if me == "two":
        sock, _ = listener.accept()
    else:
        sock = socket.create_connection(listener)
    put(FUSED[me], 1 + meet(sock, me))
    got, sent = exchange(sock, me, chance, is_waiting)
    assert got >= sent, f"{me}: {got} received of {sent}"
    os._exit(0)


def round_of(number):
    chance = random.Random(SEED * 1_000_003 + number)
    for at in range(0, 32, 8):
        put(at, 0)
    is_waiting = chance.random() < 0.3
    told, tell = os.pipe()
    pids = {}
    for me in ("two", "one"):
        own = random.Random(chance.random())
        pids[me] = os.fork()
        if pids[me] == 0:
            try:
                os.setpgid(0, 0)
                if me == "two":
                    listener = socket.create_server((HOST, 0))
                    os.write(tell, struct.pack("H", listener.getsockname()[1]))
                else:
                    listener = (HOST, struct.unpack("H", os.read(told, 2))[0])
                child(me, own, listener, is_waiting)
            except BaseException as error:
                print(f"round {number}, seed {SEED}, {me}: {error!r}", file=sys.stderr)
                traceback.print_exc()
                os._exit(1)
    os.close(told), os.close(tell)
    deadline = time.monotonic() + 20
    while not (get(FUSED["one"]) and get(FUSED["two"])):
        assert time.monotonic() < deadline, f"round {number}: they do not meet"
        time.sleep(0.001)
    victim = chance.choice(["one", "two"])
    time.sleep(chance.random() ** 2 * 0.008)
    os.killpg(pids[victim], signal.SIGKILL)
    os.waitpid(pids[victim], 0)
    survivor = pids["two" if victim == "one" else "one"]
    while not (ended := os.waitpid(survivor, os.WNOHANG))[0]:
        if time.monotonic() > deadline:
            os.killpg(survivor, signal.SIGKILL)
            raise AssertionError(f"round {number}, seed {SEED}: the survivor of {victim} hangs")
        time.sleep(0.001)
    assert ended[1] == 0, f"round {number}, seed {SEED}: the survivor of {victim} failed"
    return get(FUSED["one"]) > 1 and get(FUSED["two"]) > 1 and get(SENT["one"]) + get(SENT["two"]) > 0


fused = sum(round_of(number) for number in range(ROUNDS))
print(f"{ROUNDS} rounds, {fused} fused")
assert fused > ROUNDS / 2, "hardly any connection was fused"
