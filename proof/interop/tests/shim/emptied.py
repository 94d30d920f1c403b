"""What fused connections have once held, and what a program has written where nobody asked for it, goes back. Arguments: the address,
the daemon's process."""
import ctypes, os, socket, struct, sys, time

HOST, DAEMON = sys.argv[1], sys.argv[2]
COUNT, FILL, FAR, TOUCHED = 12, 600_000, 1 << 30, 64 << 20
# Words, and what connections at rest keep.
LITTLE = 4 << 20
PATIENCE = 20


def segments():
    """How much memory all arenas and segments take, as the daemon has them."""
    blocks = 0
    for fd in os.listdir(f"/proc/{DAEMON}/fd"):
        path = f"/proc/{DAEMON}/fd/{fd}"
        try:
            if "memfd:firelane" in os.readlink(path):
                blocks += os.stat(path).st_blocks
        except FileNotFoundError:
            pass
    return blocks * 512


def wait_until_little(before, what):
    deadline = time.monotonic() + PATIENCE
    while segments() > before + LITTLE:
        assert time.monotonic() < deadline, f"{what}: {(segments() - before) >> 10} KiB are left"
        time.sleep(0.05)


def text(cursor, count):
    period = bytes(range(251))
    return (period * (count // 251 + 2))[cursor % 251 : cursor % 251 + count]


def read_whole(sock, cursor, count):
    got = sock.recv(count, socket.MSG_WAITALL)
    assert got == text(cursor, count), f"{len(got)} of {count} bytes at {cursor}, or others"


def touch():
    """Writes far behind what any connection has in the memory that this program shares with the server."""
    with open("/proc/self/maps") as maps:
        begins = [int(line.split("-")[0], 16) for line in maps if "memfd:firelane" in line]
    for begin in begins:
        lanes, blocks = struct.unpack_from("<II", ctypes.string_at(begin, 24), 12)
        if (lanes, blocks) == (1, 1 << 16):
            ctypes.memset(begin + FAR, 7, TOUCHED)
            return
    raise AssertionError("no segment")


def client(port, told, tells):
    socks = [socket.create_connection((HOST, port)) for _ in range(COUNT)]
    for sock in socks:
        sock.sendall(b"?")
        assert sock.recv(1) == b"!"
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, FILL)
    for turn in range(3):
        for sock in socks:
            sock.sendall(text(turn * FILL, FILL))
        os.write(tells, b".")
        assert os.read(told, 1)
    # The next words find the directions at rest.
    for sock in socks:
        sock.sendall(b"?")
        assert sock.recv(1) == b"!"
    touch()
    os.write(tells, b".")
    os.read(told, 1)
    os._exit(0)


listener = socket.create_server((HOST, 0), backlog=COUNT)
(told, tell), (heard, tells) = os.pipe(), os.pipe()
process = os.fork()
if process == 0:
    # Without its server it has nobody to wait for.
    os.close(tell)
    os.close(heard)
    client(listener.getsockname()[1], told, tells)
os.close(told)
os.close(tells)
socks = [listener.accept()[0] for _ in range(COUNT)]
for sock in socks:
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2 * FILL)
    assert sock.recv(1) == b"?"
    sock.sendall(b"!")
before = segments()
for turn in range(3):
    os.read(heard, 1)
    full = segments() - before
    assert turn == 1 or full > COUNT * FILL // 2, f"{full} bytes: they are not fused"
    for sock in socks:
        read_whole(sock, turn * FILL, FILL)
    # One turn goes on at once.
    if turn != 0:
        wait_until_little(before, "at rest")
    os.write(tell, b".")
for sock in socks:
    assert sock.recv(1) == b"?"
    sock.sendall(b"!")
os.read(heard, 1)
# What the first words took has gone back meanwhile.
assert segments() >= before + TOUCHED - LITTLE
os.write(tell, b".")
assert os.waitpid(process, 0)[1] == 0
for sock in socks:
    assert sock.recv(1) == b""
    sock.close()
# This program has it mapped, and goes on.
wait_until_little(before, "touched by who has ended")
print(f"{full >> 10} KiB full, {(segments() - before) >> 10} KiB more than at the begin are left")
