"""Sockets that several processes and threads share: copies, fork, exec, messages, and the death of who held one."""
import array, multiprocessing, os, select, signal, socket, subprocess, sys, threading, time

HOST = sys.argv[1]


def pair():
    listener = socket.create_server((HOST, 0))
    one = socket.create_connection(listener.getsockname())
    two, _ = listener.accept()
    listener.close()
    return one, two


def expect(error, call):
    try:
        call()
    except error:
        return
    raise AssertionError(f"{error} was expected")


def test_copies():
    a, b = pair()
    copy = a.dup()
    a.send(b"1"), copy.send(b"2")
    time.sleep(0.05)
    assert b.recv(9) == b"12"
    a.close()
    assert select.select([b], [], [], 0.05)[0] == [], "a copy holds it open"
    os.dup2(copy.fileno(), 200)
    copy.close()
    os.write(200, b"3")
    assert b.recv(9) == b"3"
    read, write = os.pipe()
    os.dup2(write, 200)
    assert b.recv(9) == b"", "dup2 has closed the last"
    os.write(200, b"p")
    assert os.read(read, 1) == b"p", "the number is another's now"


def test_fork_and_listener():
    listener = socket.create_server((HOST, 0))
    children = []
    for _ in range(3):
        child = os.fork()
        if child == 0:
            while True:
                s, _ = listener.accept()
                data = s.recv(9)
                s.send(data + str(os.getpid()).encode())
                s.close()
        children.append(child)
    address = listener.getsockname()
    listener.close()
    seen = set()
    for n in range(30):
        c = socket.create_connection(address)
        c.send(b"x")
        seen.add(c.recv(99))
        c.close()
    assert seen and all(int(s[1:]) in children for s in seen)
    for child in children:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def test_fork_and_connection():
    a, b = pair()
    child = os.fork()
    if child == 0:
        b.close()
        while data := a.recv(9):
            a.send(data * 2)
        os._exit(0)
    a.close()
    for n in range(10):
        b.send(b"%d" % n)
        assert b.recv(9) == b"%d" % n * 2
    b.shutdown(socket.SHUT_WR)
    assert b.recv(9) == b""
    assert os.waitpid(child, 0)[1] == 0


def test_parent_and_child_make_their_own():
    child = os.fork()
    if child == 0:
        a, b = pair()
        a.send(b"x")
        os._exit(0 if b.recv(1) == b"x" else 1)
    a, b = pair()
    b.send(b"y")
    assert a.recv(1) == b"y"
    assert os.waitpid(child, 0)[1] == 0


def test_exec():
    a, b = pair()
    os.set_inheritable(b.fileno(), True)
    program = f"import socket; s = socket.socket(fileno={b.fileno()}); s.send(s.recv(9)[::-1]); s.close()"
    process = subprocess.Popen([sys.executable, "-c", program], close_fds=False)
    b.close()
    a.send(b"abc")
    assert a.recv(9) == b"cba"
    assert a.recv(9) == b"" and process.wait() == 0


def test_exec_of_a_listener():
    listener = socket.create_server((HOST, 0))
    os.set_inheritable(listener.fileno(), True)
    program = f"import socket; l = socket.socket(fileno={listener.fileno()}); s, _ = l.accept(); s.send(b'hello')"
    process = subprocess.Popen([sys.executable, "-c", program], close_fds=False)
    c = socket.create_connection(listener.getsockname())
    assert c.recv(9) == b"hello" and process.wait() == 0


def test_standard_input():
    a, b = pair()
    process = subprocess.Popen(["cat"], stdin=b, stdout=b)
    b.close()
    a.send(b"through cat")
    assert a.recv(99) == b"through cat"
    a.shutdown(socket.SHUT_WR)
    assert a.recv(9) == b"" and process.wait() == 0


def test_messages():
    for order in ("before", "after"):
        a, b = pair()
        left, right = socket.socketpair()
        if order == "before":
            socket.send_fds(left, [b"take"], [b.fileno()])
        child = os.fork()
        if child == 0:
            _, fds, _, _ = socket.recv_fds(right, 9, 1)
            s = socket.socket(fileno=fds[0])
            s.send(b"from the child")
            s.close()
            os._exit(0)
        if order == "after":
            socket.send_fds(left, [b"take"], [b.fileno()])
        assert a.recv(99) == b"from the child"
        b.close()
        assert os.waitpid(child, 0)[1] == 0
        assert a.recv(9) == b""


def test_vfork_leaves_the_table_alone():
    a, b = pair()
    # Python's subprocess closes and moves descriptors between vfork and exec.
    for _ in range(5):
        assert subprocess.run(["true"], stdin=b, close_fds=True).returncode == 0
    a.send(b"x")
    assert b.recv(1) == b"x"


def test_multiprocessing():
    with multiprocessing.Pool(2) as pool:
        assert pool.map(len, ["a", "bb", "ccc"]) == [1, 2, 3]


def test_threads_share():
    a, b = pair()
    total, lock, got = 200_000, threading.Lock(), []

    def read():
        while data := b.recv(1000):
            with lock:
                got.append(len(data))

    readers = [threading.Thread(target=read) for _ in range(3)]
    writers = [threading.Thread(target=lambda: a.sendall(b"x" * total)) for _ in range(2)]
    for t in readers + writers:
        t.start()
    for t in writers:
        t.join(20)
    a.shutdown(socket.SHUT_WR)
    for t in readers:
        t.join(20)
    assert sum(got) == 2 * total


def test_death():
    a, b = pair()
    child = os.fork()
    if child == 0:
        b.close()
        a.send(b"last words")
        os.kill(os.getpid(), signal.SIGKILL)
    a.close()
    os.waitpid(child, 0)
    assert b.recv(99) == b"last words" and b.recv(9) == b""
    a, b = pair()
    child = os.fork()
    if child == 0:
        b.close()
        a.recv(1)
        os.kill(os.getpid(), signal.SIGKILL)
    a.close()
    b.send(b"xy")
    os.waitpid(child, 0)
    expect(ConnectionResetError, lambda: b.recv(9))


def test_closed_listener():
    listener = socket.create_server((HOST, 0))
    c = socket.create_connection(listener.getsockname())
    time.sleep(0.05)
    listener.close()
    expect(ConnectionResetError, lambda: c.recv(9))


def test_close_all():
    a, b = pair()
    listener = socket.create_server((HOST, 0))
    os.closerange(a.fileno(), a.fileno() + 1)
    assert b.recv(9) == b""
    for fd in list(range(3, 1024)):
        if fd not in (b.fileno(), listener.fileno()):
            try:
                os.close(fd)
            except OSError:
                pass
    c = socket.create_connection(listener.getsockname())
    s, _ = listener.accept()
    c.send(b"still here")
    assert s.recv(99) == b"still here"


def test_streams():
    a, b = pair()
    file = a.makefile("rwb")
    file.write(b"line\n"), file.flush()
    assert b.makefile("rb").readline() == b"line\n"


if __name__ == "__main__":
    for name, test in list(globals().items()):
        if name.startswith("test_"):
            test()
            print(name, "good", flush=True)
