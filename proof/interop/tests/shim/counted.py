"""Two programs whose connection is fused, and what is counted of it. Arguments: the address, the command `firelane`."""
import os, socket, struct, sys, time

from asking import ask

HOST = sys.argv[1]
PORT, THERE, BACK = 7777, 5_000_000, 700_000


def counted():
    """What came and went at the server's flow, and at the VNIC."""
    flow = ask("flowstat", "-p", "-o", "rfused,ofused", "served")
    link = ask("dlstat", "-p", "-o", "rfused,ofused", "web0")
    return [[int(count) for count in text.strip().split(":")] for text in (flow, link)]


def receive(sock, count):
    while count > 0:
        got = len(sock.recv(min(count, 65536)))
        assert got, "the end came early"
        count -= got


def segments(sock):
    return struct.unpack_from("I", sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256), 136)[0]


def serve(sock):
    while sock.recv(1) == b"?":
        sock.sendall(b"!")
    receive(sock, THERE)
    sock.sendall(bytes(BACK))
    sock.recv(1)


def client(sock):
    # Fused in both directions: no segment is sent any more.
    for _ in range(500):
        before = segments(sock)
        sock.sendall(b"?"), sock.recv(1)
        if segments(sock) == before:
            break
        time.sleep(0.001)
    else:
        raise AssertionError("segments are sent")
    flow, link = counted()
    sock.sendall(b".")
    sock.sendall(bytes(THERE))
    receive(sock, BACK)
    after, link_after = counted()
    assert [after[0] - flow[0], after[1] - flow[1]] == [THERE + 1, BACK], (flow, after)
    # Both ends are the VNIC's: what one sends the other gets.
    assert [link_after[at] - link[at] for at in (0, 1)] == [THERE + BACK + 1] * 2, (link, link_after)


listener = socket.create_server((HOST, PORT))
child = os.fork()
if child == 0:
    client(socket.create_connection((HOST, PORT)))
    os._exit(0)
serve(listener.accept()[0])
assert os.waitpid(child, 0)[1] == 0
