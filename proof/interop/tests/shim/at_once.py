"""What a program sends to itself by the loopback addresses is there when the call returns, for who looks and does not wait."""
import select
import socket

TRIES = 100


def finds(look):
    """Whether a look that does not wait finds something."""
    try:
        return bool(look())
    except BlockingIOError:
        return False


def tell(what, found):
    # Where others take the lane's CPU for long it may come late now and then.
    print(what, "at once" if found >= 0.9 * TRIES else f"{found} of {TRIES}")


for family, host in ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")):
    given, taken = (socket.socket(family, socket.SOCK_DGRAM) for _ in "12")
    taken.bind((host, 0))
    taken.setblocking(False)
    found, readable = 0, 0
    for _ in range(TRIES):
        given.sendto(b"one", taken.getsockname())
        given.sendto(b"two", taken.getsockname())
        readable += finds(lambda: select.select([taken], [], [], 0)[0])
        found += finds(lambda: taken.recv(9)) and finds(lambda: taken.recv(9))
        while finds(lambda: taken.recv(9)):
            pass
    tell("datagrams", found)
    tell("readiness", readable)
    with socket.create_server((host, 0), family=family) as listener:
        listener.setblocking(False)
        found = 0
        for _ in range(TRIES):
            client = socket.socket(family)
            client.setblocking(False)
            try:
                client.connect(listener.getsockname())
            except BlockingIOError:
                pass
            found += finds(lambda: listener.accept()[0].close() or True)
            client.close()
        tell("connections", found)
