"""Urgent data between two hosts: each says of what it got where the mark was, and which byte was read apart."""
import array, fcntl, select, socket, sys, termios, time

ROLE, HOST, PORT = sys.argv[1], sys.argv[2], int(sys.argv[3])
SIOCATMARK = 0x8905
ROUNDS = 40


def is_at_mark(sock):
    value = array.array("i", [-1])
    fcntl.ioctl(sock, SIOCATMARK, value)
    return value[0]


def say(sock, text, byte):
    sock.sendall(text)
    assert sock.send(byte, socket.MSG_OOB) == len(byte)


def hear(sock):
    """The text before the mark, and the byte."""
    poll = select.poll()
    poll.register(sock, select.POLLPRI)
    assert poll.poll(10_000), "nothing urgent came"
    text = b""
    # What was announced is here, so all before it is.
    while not is_at_mark(sock):
        text += sock.recv(4000)
    return text, sock.recv(1, socket.MSG_OOB)


def text_of(n):
    return bytes((n + i) % 251 for i in range(1 + n * 97))


if ROLE == "server":
    listener = socket.create_server((HOST, PORT))
    print("ready", flush=True)
    sock, _ = listener.accept()
    for n in range(ROUNDS):
        text, byte = hear(sock)
        assert text == (b"" if n == 0 else b"~") + text_of(n) and byte == bytes([n]), (n, len(text), byte)
        say(sock, text_of(n + 7), bytes([n ^ 255]))
        # What comes behind the mark begins the next text.
    assert sock.recv(9) == b"end", "the last byte is left out, and text goes on"
else:
    deadline = time.monotonic() + 20
    while True:
        try:
            sock = socket.create_connection((HOST, PORT), timeout=5)
            break
        except ConnectionRefusedError:
            assert time.monotonic() < deadline
            time.sleep(0.05)
    sock.settimeout(None)
    for n in range(ROUNDS):
        if n > 0:
            sock.sendall(b"~")
        say(sock, text_of(n), bytes([n]))
        text, byte = hear(sock)
        assert text == text_of(n + 7) and byte == bytes([n ^ 255]), (n, len(text), byte)
    sock.sendall(b"end")
    sock.close()
print("done")
