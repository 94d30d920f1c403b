"""What a program is told of a connection whose peer ends or resets it: by reads, writes, SO_ERROR and poll, in any order."""
import errno
import select
import socket
import struct
import sys
import threading
import time

HOST = sys.argv[1]
PAUSE = 0.02


def tried(call, *words):
    try:
        return call(*words)
    except OSError as error:
        return errno.errorcode[error.errno]


def pair():
    with socket.socket() as listener:
        listener.bind((HOST, 0))
        listener.listen()
        client = socket.create_connection(listener.getsockname())
        return client, listener.accept()[0]


def error_of(one):
    return one.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)


def resets(one):
    one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def unread(client, _):
    client.sendall(b"unread")


def unread_beside(client, server):
    server.sendall(b"to be read")
    client.sendall(b"unread")


BEFORE = {
    "nothing": lambda client, server: None,
    "unread": unread,
    "unread beside": unread_beside,
    "resets": lambda client, server: resets(server),
    "text": lambda client, server: server.sendall(b"to be read"),
    "half": lambda client, server: client.shutdown(socket.SHUT_WR),
    "both halves": lambda client, server: (server.shutdown(socket.SHUT_WR), client.sendall(b"unread")),
}
CALLS = {
    "writes": lambda one: tried(one.send, b"x"),
    "reads": lambda one: tried(one.recv, 3),
    "error": error_of,
    "poll": lambda one: [it[1] for it in polled(one)],
}


def polled(one):
    poll = select.poll()
    poll.register(one, select.POLLIN | select.POLLOUT | select.POLLRDHUP)
    return poll.poll(0)


for before, prepare in BEFORE.items():
    for orders in (["writes"] * 3 + ["reads"] * 5, ["writes", "reads", "reads", "poll", "error", "writes"],
                   ["poll", "reads", "error", "reads", "writes", "poll", "writes"], ["writes", "poll", "error", "poll", "reads", "writes"]):
        client, server = pair()
        prepare(client, server)
        time.sleep(PAUSE)
        server.close()
        told = []
        for name in orders:
            time.sleep(PAUSE)
            told.append(CALLS[name](client))
        print(before, orders[0], orders[1], told, flush=True)

# Who has moved something is told of it, and what ended the call is the next one's.
for title, prepare in (("resets", lambda client, server: resets(server)), ("unread", unread)):
    for calls in (["writes", "writes", "reads"], ["error", "writes"], ["reads", "writes"]):
        client, server = pair()
        prepare(client, server)
        threading.Timer(0.3, server.close).start()
        sent = tried(client.send, bytes(30_000_000))
        print(title, "part" if isinstance(sent, int) and 0 < sent < 30_000_000 else sent, [CALLS[it](client) for it in calls], flush=True)
        client, server = pair()
        prepare(client, server)
        server.send(b"some")
        threading.Timer(0.3, server.close).start()
        print(title, tried(client.recv, 10, socket.MSG_WAITALL), [CALLS[it](client) for it in calls], flush=True)
