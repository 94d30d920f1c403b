"""A call sleeps on a socket in one thread while another closes its descriptor, or puts another file in its place: the call holds it, and what
comes later under the same number is not its own."""
import os
import select
import socket
import sys
import threading
import time

HOST = sys.argv[1]
listener = socket.create_server((HOST, 0), backlog=64)


def pair():
    client = socket.create_connection(listener.getsockname())
    return client, listener.accept()[0]


def called(name, call, after=0.1):
    """The call begins to sleep; one that sleeps for long changes how it does."""
    results = []

    def run():
        try:
            results.append(call())
        except OSError as error:
            results.append(error.errno)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    time.sleep(after)

    def told():
        thread.join(2)
        print(name, results or "sleeps on")

    return told


def dup(fd):
    null = os.open("/dev/null", os.O_RDONLY)
    os.dup2(null, fd)
    os.close(null)


for name, close, after in [
    ("close", os.close, 0.1),
    ("a later close", os.close, 0.3),
    ("dup2", dup, 0.1),
    ("closerange", lambda fd: os.closerange(fd, fd + 1), 0.3),
]:
    client, server = pair()
    number = client.detach()
    told = called(name, lambda: os.read(number, 100), after)
    close(number)
    if name == "dup2":
        os.close(number)
    others = [pair() for _ in range(4)]
    for one, other in others:
        other.send(b"another's")
    time.sleep(0.3)
    server.send(b"its own")
    told()
    print([one.recv(100) for one, _ in others])
    server.settimeout(2)
    print(name, "then the end", server.recv(1))

client, server = pair()
number = client.detach()
two = [called("one of two", lambda: len(os.read(number, 2))) for _ in range(2)]
os.close(number)
server.send(b"abcd")
for told in two:
    told()
client, server = pair()
number = client.detach()
copy = os.dup(number)
told = called("a copy is left", lambda: os.read(number, 100))
os.close(number)
os.write(copy, b"there")
print(server.recv(100))
server.send(b"back")
told()
os.close(copy)
print(server.recv(100))
client, server = pair()
number = client.detach()
told = called("a write", lambda: os.write(number, bytes(16 << 20)))
os.close(number)
got = 0
while text := server.recv(1 << 20):
    got += len(text)
told()
print("all", got)
one = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
one.bind((HOST, 0))
name, number = one.getsockname(), one.detach()
told = called("a datagram", lambda: os.read(number, 100))
os.close(number)
other = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
other.sendto(b"datagram", name)
told()
# Who waits in select is told at the next news that it is ready for all that was asked, and by the next call what has become of it.
client, server = pair()
number = client.detach()
told = called("select", lambda: [len(ready) for ready in select.select([number], [], [number], 5)])
os.close(number)
server.send(b"news")
told()
try:
    print(select.select([number], [], [], 0))
except OSError as error:
    print("closed before", error.errno)
server.close()
