"""Text to a far client by a program that waits for edges, from a send buffer that begins small and grows meanwhile.

"serve": takes a connection after the other, sends each the text, of which little may be unsent if that is said, and closes.
"fetch": reads it, and judges it."""

import hashlib
import select
import socket
import sys

TEXT = bytes(range(256)) * 251 * 64  # 4 MB, and no power of two.


def serve(host, unsent):
    listener = socket.create_server((host, 7070))
    print("ready", flush=True)
    while True:
        connection, _ = listener.accept()
        connection.setblocking(False)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, int(unsent))
        edges = select.epoll()
        edges.register(connection.fileno(), select.EPOLLIN | select.EPOLLOUT | select.EPOLLRDHUP | select.EPOLLET)
        done = 0
        while done < len(TEXT):
            if not edges.poll(10):
                print("no edge after", done, flush=True)
                break
            try:
                while done < len(TEXT):
                    done += connection.send(TEXT[done : done + 32768])
            except BlockingIOError:
                pass
        edges.close()
        connection.close()


def fetch(host):
    connection = socket.create_connection((host, 7070), timeout=20)
    got = hashlib.sha256()
    count = 0
    while part := connection.recv(1 << 20):
        got.update(part)
        count += len(part)
    print("whole" if got.digest() == hashlib.sha256(TEXT).digest() else f"only {count} of {len(TEXT)}")


{"serve": serve, "fetch": fetch}[sys.argv[1]](*sys.argv[2:])
