"""Listeners and datagram sockets of a parent and of its child, which say what came to them.

Ports 7001 (the parent's listener) and 7002 (the child's, a process of its own) send a line to who connects; 7003 and 7004 are
their datagram sockets, which answer. 7005 has rules of its own."""

import errno
import os
import socket
import sys
import threading
import time

host, ready = sys.argv[1:]
SOL_FIRELANE, FIRELANE_FILTER = 0x464C, 1
SO_ATTACH_FILTER, SO_DETACH_FILTER = 26, 27


def serve(port):
    listener = socket.create_server((host, port))
    while True:
        peer, _ = listener.accept()
        peer.sendall(b"here\n")
        peer.close()


def answer(port):
    datagrams = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    datagrams.bind((host, port))
    while True:
        text, peer = datagrams.recvfrom(100)
        datagrams.sendto(b"got " + text, peer)


def background(work, port):
    threading.Thread(target=work, args=(port,), daemon=True).start()


def refusal(call, *args):
    try:
        call(*args)
        return "taken"
    except OSError as error:
        return errno.errorcode[error.errno]


if os.fork() == 0:
    background(serve, 7002)
    answer(7004)
background(serve, 7001)
background(answer, 7003)

own = socket.socket()
own.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
own.setsockopt(SOL_FIRELANE, FIRELANE_FILTER, b"block return-rst in quick proto tcp from 10.0.0.1/32 to any\n")
own.bind((host, 7005))
own.listen()
told = [
    refusal(own.setsockopt, SOL_FIRELANE, FIRELANE_FILTER, b"block out all"),
    refusal(own.setsockopt, SOL_FIRELANE, FIRELANE_FILTER, b"block in sideways"),
    refusal(own.setsockopt, SOL_FIRELANE, FIRELANE_FILTER, b"pass in all\n" * 100),
    refusal(own.setsockopt, SOL_FIRELANE, 999, b"pass in all"),
    refusal(own.setsockopt, socket.SOL_SOCKET, SO_ATTACH_FILTER, b"\x00" * 16),
    refusal(own.setsockopt, socket.SOL_SOCKET, SO_DETACH_FILTER, b"\x00" * 4),
]
with open(ready + ".new", "w") as file:
    file.write(f"{os.getpid()} {own.fileno()} {' '.join(told)}")
os.rename(ready + ".new", ready)
while True:
    peer, address = own.accept()
    told = refusal(peer.setsockopt, SOL_FIRELANE, FIRELANE_FILTER, b"block in all")
    peer.sendall(b"here, a connection: " + told.encode() + b"\n")
    # From the next connection on everybody may come.
    own.setsockopt(SOL_FIRELANE, FIRELANE_FILTER, b"")
    peer.close()
