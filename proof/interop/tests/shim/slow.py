"""Sends the daemon a descriptor whose last close takes minutes. Arguments: an own address, the socket for programs."""
import socket, struct, sys, threading, time

HOST, DOOR = sys.argv[1:]
LONG = 200


def slow():
    """A connection that lingers, and its peer, who does not read."""
    listener = socket.create_server((HOST, 0))
    sock = socket.create_connection(listener.getsockname())
    peer, _ = listener.accept()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, LONG))
    sock.setblocking(False)
    try:
        while True:
            sock.send(bytes(100_000))
    except BlockingIOError:
        return sock, peer


def close(sock):
    """Whether this was not the last one."""
    closing = threading.Thread(target=sock.close, daemon=True)
    closing.start()
    closing.join(1)
    return not closing.is_alive()


def send():
    """Whether the daemon has it alone, and has said that this was no request."""
    sock, peer = slow()
    control = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    control.connect(DOOR)
    socket.send_fds(control, [b"no request"], [sock.fileno()])
    kept.append((peer, control))
    return close(sock) and control.recv(100) == b""


kept = []
# The daemon may be faster than we are; then ours is the last.
while not send():
    pass
print("sent", flush=True)
time.sleep(LONG)
print("ended", flush=True)
