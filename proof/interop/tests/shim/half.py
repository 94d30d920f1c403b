"""What TCP_INFO says of a connection whose peer, or own side, has just said that it writes no more, as often as it is asked at once.

half.py
"""
import os
import select
import socket

COUNT, CLOSE_WAIT, FIN_WAIT_1, FIN_WAIT_2 = 1000, 8, 4, 5


def state(one):
    return one.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0]


listener = socket.create_server(("127.0.0.1", 0))
asked, asks = os.pipe()
if not os.fork():
    mine = set()
    for _ in range(COUNT):
        with socket.create_connection(listener.getsockname()) as client:
            client.sendall(b"GET")
            client.shutdown(socket.SHUT_WR)
            mine.add(state(client))
            os.write(asks, b"x")
            client.recv(1)
    # Whether the other has acknowledged it is another matter.
    print("behind one's own end", mine <= {FIN_WAIT_1, FIN_WAIT_2} or mine, flush=True)
    os._exit(0)
theirs = set()
for _ in range(COUNT):
    server, _ = listener.accept()
    with server, select.epoll() as waits:
        waits.register(server, select.EPOLLRDHUP)
        waits.poll(20)
        theirs.add(state(server))
        server.recv(3)
        os.read(asked, 1)
        server.send(b"x")
os.wait()
print("behind the peer's", theirs == {CLOSE_WAIT} or theirs)
