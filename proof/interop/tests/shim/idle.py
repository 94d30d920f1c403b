"""Many fused connections that nobody uses: neither their program nor the daemon works. Arguments: the address, how many, the
daemon's process."""
import os, resource, select, socket, sys, time

HOST, COUNT, DAEMON = sys.argv[1], int(sys.argv[2]), sys.argv[3]
SETTLING, SPAN = 3, 5
# Of a CPU, for all connections together.
ALLOWED = 0.01


def used(process):
    """CPU time in seconds."""
    with open(f"/proc/{process}/stat") as stat:
        words = stat.read().rsplit(")", 1)[1].split()
    return sum(map(int, words[11:13])) / os.sysconf("SC_CLK_TCK")


def segments_sent(sock):
    return int.from_bytes(sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256)[136:140], "little")


def play(one, two):
    one.sendall(b"?")
    assert two.recv(1) == b"?"
    two.sendall(b"!")
    assert one.recv(1) == b"!"


limit = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
assert limit > 2 * COUNT + 100, "descriptors"
listener = socket.create_server((HOST, 0), backlog=1024)
pairs = []
for _ in range(COUNT):
    one = socket.create_connection(listener.getsockname())
    pairs.append((one, listener.accept()[0]))
deadline = time.monotonic() + 20
left = list(pairs)
while left:
    assert time.monotonic() < deadline, f"{len(left)} are not fused"
    for pair in left:
        play(*pair)
    before = [segments_sent(one) + segments_sent(two) for one, two in left]
    for pair in left:
        play(*pair)
    after = [segments_sent(one) + segments_sent(two) for one, two in left]
    left = [pair for pair, was, now in zip(left, before, after) if was != now]
waiting = select.epoll()
for pair in pairs:
    for sock in pair:
        waiting.register(sock, select.EPOLLIN)
assert waiting.poll(SETTLING) == []
before = used("self"), used(DAEMON)
assert waiting.poll(SPAN) == []
shares = [(now - then) / SPAN for now, then in zip((used("self"), used(DAEMON)), before)]
print(f"{COUNT} connections: {shares[0]:.4f} of a CPU for the program, {shares[1]:.4f} for the daemon")
assert max(shares) <= ALLOWED
one, two = pairs[COUNT // 2]
one.sendall(b"wake up")
assert waiting.poll(5) == [(two.fileno(), select.EPOLLIN)] and two.recv(9) == b"wake up"
