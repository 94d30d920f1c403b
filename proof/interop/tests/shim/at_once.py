"""What a program sends to itself by the loopback addresses is there when the call returns, for who looks and does not wait."""
import select
import socket
import threading
import time

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


def send_to_nobody():
    """Sends to ports at which sockets of this program were, and to one at which another than the last bound hears."""
    spare = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(8)]
    for one in spare:
        one.bind(("127.0.0.1", 0))
    places = [one.getsockname() for one in spare]
    for one in spare:
        one.close()
    shared = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(4)]
    at = 0
    for one in shared:
        one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        one.bind(("127.0.0.1", at))
        at = one.getsockname()[1]
    senders = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(8)]
    for place in (places + [("127.0.0.1", at)] * 4) * 50:
        for sender in senders:
            sender.sendto(b"x", place)


def begin_at_full():
    """Begins more connections than the accept queue of a listener takes."""
    with socket.create_server(("127.0.0.1", 0), backlog=1) as full:
        for _ in range(600):
            client = socket.socket()
            client.setblocking(False)
            client.connect_ex(full.getsockname())
            begun.append(client)


begun = []
# With a wait for each, however short, they would take longer than this on any machine.
for what, act in (("datagrams", send_to_nobody), ("connections", begin_at_full)):
    began = time.monotonic()
    act()
    took = time.monotonic() - began
    print(what, "that do not come are not waited for" if took < 3 else f"took {took:.2f} s")


def takes(listener):
    """A thread that is blocked in accept."""
    while True:
        one, _ = listener.accept()
        if one.recv(1):
            break


IP_MINTTL = 21
with socket.create_server(("127.0.0.1", 0)) as listener:
    # Who has sent this one is not answered.
    listener.setsockopt(socket.IPPROTO_IP, IP_MINTTL, 255)
    with socket.socket() as vain:
        vain.setblocking(False)
        vain.connect_ex(listener.getsockname())
    listener.setsockopt(socket.IPPROTO_IP, IP_MINTTL, 0)
    thread = threading.Thread(target=takes, args=[listener])
    thread.start()
    found = 0
    for nth in range(TRIES):
        # It sleeps by then.
        time.sleep(0.003)
        with socket.socket() as client:
            client.setblocking(False)
            client.connect_ex(listener.getsockname())
            # The first is the one by which it is known that the program takes connections again.
            found += nth == 0 or len(select.select([], [client], [], 0)[1])
    with socket.create_connection(listener.getsockname()) as client:
        client.send(b"x")
        thread.join()
    tell("connections after one in vain", found)
