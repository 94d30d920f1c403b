"""Two programs whose connection is fused, one of which marks what it sends (IP_TOS): from then on it is in the flow of its DS field, and
until then it was not. Arguments: the address, the command `firelane`."""
import os, socket, sys, time

from asking import ask

HOST = sys.argv[1]
PORT, PLAIN, MARKED = 7777, 5_000_000, 700_000


def counted():
    """What came and went in the flow, fused or not."""
    shown = ask("flowstat", "-p", "-o", "rfused,ofused,ipkts,opkts", "marked")
    return [int(count) for count in shown.strip().split(":")]


def serve(sock):
    """Says when so much has come."""
    for count in PLAIN, MARKED, PLAIN:
        while count > 0:
            got = len(sock.recv(min(count, 65536)))
            assert got, "the end came early"
            count -= got
        sock.sendall(b".")


def client(sock):
    def send(count):
        began = time.monotonic()
        sock.sendall(bytes(count))
        assert sock.recv(1) == b"."
        return time.monotonic() - began

    def mark(tos):
        sock.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, tos)

    send(PLAIN)
    mark(46 << 2)
    before = counted()
    assert before[:2] == [0, 0], before
    # Of 20 Mb/s it takes 0.28 s.
    took = send(MARKED)
    assert took > 0.2, took
    mark(0)
    after = counted()
    # What comes to the server's port is in a flow that names more.
    assert [after[at] - before[at] for at in (0, 1)] == [0, MARKED], (before, after)
    # Of 20 Mb/s it would take two seconds.
    took = send(PLAIN)
    assert took < 1.5, took
    assert counted()[:2] == after[:2], (after, counted())


ask("flowadm", "add-flow", "-t", "-l", "web0", "-a", "dsfield=0xb8:0xfc", "-p", "maxbw=20M", "marked")
listener = socket.create_server((HOST, PORT))
child = os.fork()
if child == 0:
    client(socket.create_connection((HOST, PORT)))
    os._exit(0)
serve(listener.accept()[0])
assert os.waitpid(child, 0)[1] == 0
