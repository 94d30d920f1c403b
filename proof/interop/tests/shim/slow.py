"""Sends the daemon descriptors whose last close takes minutes. Arguments: an own address, the socket for programs."""
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


def knock():
    control = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    control.connect(DOOR)
    return control


def close(sock):
    """Whether this was not the last one."""
    closing = threading.Thread(target=sock.close, daemon=True)
    closing.start()
    closing.join(1)
    return not closing.is_alive()


def is_told(control):
    """The daemon has read it: no such request."""
    control.settimeout(LONG / 2)
    return control.recv(100) == b""


def beside_a_request():
    sock, peer = slow()
    control = knock()
    socket.send_fds(control, [b"no request"], [sock.fileno()])
    return close(sock) and is_told(control), (peer, control)


def in_the_queue():
    """Nobody reads what comes after the first message, which ends the session."""
    sock, peer = slow()
    control = knock()
    control.send(b"no request")
    try:
        socket.send_fds(control, [b"unread"], [sock.fileno()])
    except BrokenPipeError:
        return False, (peer, control)
    return close(sock) and is_told(control), (peer, control)


kept = []
for way in (beside_a_request, in_the_queue):
    # The daemon may be faster than we are; then ours is the last.
    done = False
    while not done:
        done, more = way()
        kept.append(more)
print("sent", flush=True)
time.sleep(LONG)
print("ended", flush=True)
