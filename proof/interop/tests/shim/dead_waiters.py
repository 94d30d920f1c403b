"""Processes that wait for a fused connection are killed: from then on writing there costs the peer what it did before."""
import os, select, signal, socket, sys, time

HOST = sys.argv[1]
PORT = 7474
WRITES = 200


def write(sock):
    """Writes what nobody waits for. How long this thread worked for that: to ask the daemon takes hundreds of times as long."""
    before = time.thread_time()
    for _ in range(WRITES):
        sock.send(b"x")
    return time.thread_time() - before


def until_cheap(sock, most):
    """The daemon has yet to hear who is dead."""
    deadline = time.monotonic() + 10
    while (took := write(sock)) > most:
        assert time.monotonic() < deadline, f"{WRITES} writes take {took:.6f} s of this thread, where {most:.6f} were to be enough"
        time.sleep(0.05)


def wait_in_a_child(sock):
    pid = os.fork()
    if pid == 0:
        waiter = select.epoll()
        waiter.register(sock, select.EPOLLIN)
        while True:
            waiter.poll()
    return pid


go, told = os.pipe()
back, done = os.pipe()
listener = socket.create_server((HOST, PORT))
client = os.fork()
if client == 0:
    listener.close()
    sock = socket.create_connection((HOST, PORT))
    for _ in range(3):
        sock.send(b"a")
        assert sock.recv(1) == b"b"
    before = min(write(sock) for _ in range(10))
    os.write(done, b"x")
    os.read(go, 1)
    until_cheap(sock, 20 * before)
    os._exit(0)
server, _ = listener.accept()
for _ in range(3):
    assert server.recv(1) == b"a"
    server.send(b"b")
os.read(back, 1)
try:
    while True:
        server.recv(4096, socket.MSG_DONTWAIT)
except BlockingIOError:
    pass
# Several: who has had a slot before leaves it to the next.
children = [wait_in_a_child(server) for _ in range(4)]
time.sleep(0.5)
for pid in children:
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
os.write(told, b"x")
_, status = os.waitpid(client, 0)
assert status == 0, status
