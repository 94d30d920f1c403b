"""Sockets are added to a set before they listen or connect, while another thread waits there: they are in it still afterwards."""
import select
import socket
import sys
import threading

HOST = sys.argv[1]
given = select.epoll()
heard = {}
ended = False


def wait():
    while not ended:
        for fd, event in given.poll(0.2):
            heard[fd] = heard.get(fd, 0) | event


threading.Thread(target=wait, daemon=True).start()
lost, deaf = 0, 0
for _ in range(400):
    listener, client = socket.socket(), socket.socket()
    client.setblocking(False)
    given.register(listener, 0)
    listener.bind((HOST, 0))
    listener.listen()
    given.register(client, 0)
    try:
        client.connect(listener.getsockname())
    except BlockingIOError:
        pass
    for one in (listener, client):
        try:
            given.modify(one, select.EPOLLIN | select.EPOLLONESHOT)
        except FileNotFoundError:
            lost += 1
    other = listener.accept()[0]
    other.close()
    for _ in range(400):
        if client.fileno() in heard:
            break
        threading.Event().wait(0.005)
    else:
        deaf += 1
    for one in (client, listener):
        heard.pop(one.fileno(), None)
        one.close()
ended = True
print("lost", lost)
print("deaf", deaf)


def told_once():
    """Who was told once is told of no more, whatever the socket becomes, until he asks again."""
    good = socket.create_server((HOST, 0))
    nobody = socket.socket()
    nobody.bind((HOST, 0))
    for becomes in ("connected", "refused", "refused twice", "listening"):
        once, one = select.epoll(), socket.socket()
        one.setblocking(False)
        once.register(one, select.EPOLLOUT | select.EPOLLONESHOT)
        said = [[hex(event) for _, event in once.poll(0)]]
        if becomes == "listening":
            one.bind((HOST, 0))
            one.listen()
        else:
            for _ in range(2 if becomes == "refused twice" else 1):
                one.connect_ex((good if becomes == "connected" else nobody).getsockname())
                threading.Event().wait(0.05)
        said.append(once.poll(0.05))
        once.modify(one, select.EPOLLIN | select.EPOLLOUT | select.EPOLLONESHOT)
        said += [[hex(event) for _, event in once.poll(0)], once.poll(0)]
        print("once", becomes, *said)
        once.close()
        one.close()


told_once()
