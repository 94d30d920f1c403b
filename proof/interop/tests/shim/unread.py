"""How many writes to a fused connection may be unread. Arguments: the address, the limit; zero is none."""
import select, socket, sys, time

HOST, LIMIT = sys.argv[1], int(sys.argv[2])


def segments_sent(sock):
    return int.from_bytes(sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256)[136:140], "little")


def play():
    one.sendall(b"?")
    assert two.recv(1) == b"?"
    two.sendall(b"!")
    assert one.recv(1) == b"!"


def is_fused():
    play()
    before = segments_sent(one) + segments_sent(two)
    play()
    return segments_sent(one) + segments_sent(two) == before


def fill(most):
    """Writes byte after byte until there is no room; how many."""
    for count in range(most):
        try:
            one.send(b"x")
        except BlockingIOError:
            return count
    return most


listener = socket.create_server((HOST, 0))
one = socket.create_connection(listener.getsockname())
two, _ = listener.accept()
deadline = time.monotonic() + 10
while not is_fused():
    assert time.monotonic() < deadline, "not fused"
    time.sleep(0.001)
one.setblocking(False)
waiting = select.epoll()
waiting.register(one, select.EPOLLOUT | select.EPOLLET)
if LIMIT == 0:
    assert fill(1000) == 1000
    sys.exit()
assert waiting.poll(5) == [(one.fileno(), select.EPOLLOUT)]
assert fill(1000) == LIMIT
assert two.recv(LIMIT - 1) == b"x" * (LIMIT - 1)
assert fill(1) == 0, "until the reader finds the end"
while waiting.poll(0):
    assert fill(1) == 0
assert two.recv(9) == b"x"
assert waiting.poll(5) == [(one.fileno(), select.EPOLLOUT)]
assert fill(1000) == LIMIT
