"""A signal without SA_RESTART ends a call that has waited for long, whenever it comes; text that comes as late is read."""
import os
import signal
import socket
import sys
import time

HOST = sys.argv[1]
listener = socket.create_server((HOST, 0))


class Over(Exception):
    pass


def over(*_):
    raise Over


signal.signal(signal.SIGALRM, over)


def interrupted(call, after):
    begun = time.monotonic()
    signal.setitimer(signal.ITIMER_REAL, after)
    try:
        call()
    except Over:
        took = time.monotonic() - begun
        return after - 0.05 <= took < after + 0.5
    return "no signal"


def children(calls, after):
    """Each in a process of its own, all at once; how many were interrupted."""
    numbers = []
    for call in calls:
        number = os.fork()
        if not number:
            # Its first call may take a while.
            try:
                client.recv(1, socket.MSG_DONTWAIT)
            except BlockingIOError:
                os._exit(0 if interrupted(call, after) is True else 1)
        numbers.append(number)
    return sum(os.waitpid(number, 0)[1] == 0 for number in numbers)


client, server = socket.create_connection(listener.getsockname()), listener.accept()[0]
datagrams = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
datagrams.bind((HOST, 0))
full = socket.create_connection(listener.getsockname())
unread = listener.accept()[0]
for name, call in (("read", lambda: client.recv(1)), ("datagram", lambda: datagrams.recv(1)), ("write", lambda: full.sendall(bytes(1 << 26)))):
    print(name, [interrupted(call, after) for after in (0.4, 0.6)], flush=True)
print("many", children([lambda: client.recv(1), lambda: server.recv(1), lambda: datagrams.recv(1)] * 5, 0.75), flush=True)
for after in (0.1, 0.6):
    number = os.fork()
    if not number:
        time.sleep(after)
        server.send(b"late")
        os._exit(0)
    print("text", client.recv(9))
    os.waitpid(number, 0)
number = os.fork()
if not number:
    time.sleep(0.6)
    server.shutdown(socket.SHUT_WR)
    os._exit(0)
print("end", client.recv(9))
os.waitpid(number, 0)
