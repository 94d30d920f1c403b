"""SO_SNDBUF and SO_RCVBUF before and after connecting: how much a writer gets rid of while nobody reads, roughly."""
import socket
import sys
import time

HOST = sys.argv[1]
SOCKET, SNDBUF, RCVBUF = socket.SOL_SOCKET, socket.SO_SNDBUF, socket.SO_RCVBUF
SMALL, LARGE = 4096, 100_000
# What was announced before a buffer became smaller is still taken: up to all of the earlier one, where Linux begins with little.
PROMISED = 2_000_000


def fill(one):
    """Writes until nothing moves any more."""
    one.setblocking(False)
    done, last = 0, time.monotonic()
    while time.monotonic() - last < 0.15:
        try:
            done += one.send(bytes(65536))
            last = time.monotonic()
        except BlockingIOError:
            time.sleep(0.01)
    return done


def pair(send, receive):
    """Buffers that become small before they listen, or connect, or after."""
    listener = socket.socket()
    listener.bind((HOST, 0))
    if receive == "bound":
        listener.setsockopt(SOCKET, RCVBUF, SMALL)
    listener.listen()
    if receive == "listening":
        listener.setsockopt(SOCKET, RCVBUF, SMALL)
    client = socket.socket()
    if send == "new":
        client.setsockopt(SOCKET, SNDBUF, SMALL)
    client.connect(listener.getsockname())
    server = listener.accept()[0]
    if send == "connected":
        client.setsockopt(SOCKET, SNDBUF, SMALL)
    if receive == "accepted":
        server.setsockopt(SOCKET, RCVBUF, SMALL)
    print(send, receive, [client.getsockopt(SOCKET, SNDBUF), server.getsockopt(SOCKET, RCVBUF)], end=" ")
    return client, server


def read_all(server, wanted):
    server.settimeout(5)
    while wanted > 0:
        wanted -= len(server.recv(1 << 20))
    return wanted


for receive in ("bound", "listening", "accepted"):
    for send in ("new", "connected"):
        client, server = pair(send, receive)
        first = fill(client)
        most = PROMISED if receive == "accepted" else LARGE
        print(0 < first < most, read_all(server, first), flush=True)

client, server = pair("connected", "accepted")
first = fill(client)
client.setsockopt(SOCKET, SNDBUF, LARGE)
second = fill(client)
print("larger", second > LARGE // 2, end=" ")
client.setsockopt(SOCKET, SNDBUF, SMALL)
print("smaller", fill(client), read_all(server, first + second), end=" ")
third = fill(client)
print(0 < third < LARGE, end=" ")
server.setsockopt(SOCKET, RCVBUF, 4 * LARGE)
print("read by more", read_all(server, third), read_all(server, fill(client)), flush=True)
