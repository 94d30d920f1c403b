"""Datagrams that are longer than the buffers of their sockets: who has nothing queued gets them, and who has any room left sends them."""
import socket
import struct
import sys
import time

HOST = sys.argv[1]
SOCKET, SNDBUF, RCVBUF, RXQ_OVFL = socket.SOL_SOCKET, socket.SO_SNDBUF, socket.SO_RCVBUF, 40
WITHIN = 5


def socket_of(family):
    one = socket.socket(family, socket.SOCK_DGRAM)
    one.settimeout(WITHIN)
    return one


def received(one):
    """How long it was, and how many had no room before it."""
    data, beside, _, _ = one.recvmsg(70_000, 100)
    return len(data), [struct.unpack("I", value)[0] for _, _, value in beside]


def has_come(one):
    """Waits until something is there, and what came with it."""
    one.recv(0, socket.MSG_PEEK)
    time.sleep(0.05)


for family, host in ((socket.AF_INET, HOST), (socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")):
    for when in ("new", "bound", "used"):
        for size in (1, 4096):
            receiver, sender = socket_of(family), socket_of(family)
            for at in ("new", "bound", "used"):
                if at == "bound":
                    receiver.bind((host, 0))
                    sender.bind((host, 0))
                if at == "used":
                    sender.sendto(bytes(1000), receiver.getsockname())
                    received(receiver)
                if at == when:
                    sender.setsockopt(SOCKET, SNDBUF, size)
                    receiver.setsockopt(SOCKET, RCVBUF, size)
            receiver.setsockopt(SOCKET, RXQ_OVFL, 1)
            told = []
            # Pieces of two larger ones are more than Linux lets be under way over IPv6, for so small a buffer.
            for length in (5000, 20_000, 65_507)[:2 if family == socket.AF_INET6 else 3]:
                # Behind what is more than the buffer nothing else has room.
                sent = [sender.sendto(bytes(length), receiver.getsockname()) for _ in range(2)]
                has_come(receiver)
                told += [sent, received(receiver)]
            sender.sendto(b"", receiver.getsockname())
            told.append(received(receiver))
            print(family.name, host.replace(HOST, "host"), when, size, told, flush=True)
            receiver.close()
            sender.close()
