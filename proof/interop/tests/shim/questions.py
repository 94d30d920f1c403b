"""Short conversations, each with a process of the server's own: the client waits by poll, the server by epoll. Every answer
must wake who waits for it, whenever in the conversation the two are fused. Arguments: the address, how many."""
import os, select, socket, sys

HOST, COUNT = sys.argv[1], int(sys.argv[2])
PATIENCE = 10


def serve(sock):
    """Answers two questions in a process of its own, as PostgreSQL does."""
    waits = select.epoll()
    waits.register(sock, select.EPOLLIN)
    for length in (8, 60):
        assert waits.poll(PATIENCE), "no question came"
        assert len(sock.recv(100)) == length
        sock.send(b"N")
    assert waits.poll(PATIENCE) and sock.recv(1) == b""


def ask(address):
    sock = socket.create_connection(address)
    waits = select.poll()
    waits.register(sock, select.POLLIN)
    for length in (8, 60):
        sock.send(bytes(length))
        assert waits.poll(PATIENCE * 1000), "no answer came"
        assert sock.recv(100) == b"N"
    sock.close()


listener = socket.create_server((HOST, 0))
address = listener.getsockname()
client = os.fork()
if client == 0:
    listener.close()
    for _ in range(COUNT):
        asker = os.fork()
        if asker == 0:
            ask(address)
            os._exit(0)
        assert os.waitpid(asker, 0)[1] == 0
    os._exit(0)
for _ in range(COUNT):
    sock, _ = listener.accept()
    server = os.fork()
    if server == 0:
        serve(sock)
        os._exit(0)
    sock.close()
    assert os.waitpid(server, 0)[1] == 0
assert os.waitpid(client, 0)[1] == 0
