"""Connections whose text nobody reads have used up the memory; whoever comes then is served all the same. Prints what he was told."""
import os
import socket
import sys

HOST, HELD, SIZE = sys.argv[1], 100, 600_000


def ask():
    with socket.create_connection((HOST, 7190)) as it:
        it.settimeout(20)
        it.sendall(b"y" * SIZE)
        it.shutdown(socket.SHUT_WR)
        return it.recv(100).decode()


def client():
    held = [socket.create_connection((HOST, 7190)) for _ in range(HELD)]
    for it in held:
        it.sendall(b"x" * 8000)
    for turn in ["first", "second", "third"]:
        print(turn, ask(), flush=True)
    for it in held:
        it.close()
    print("all closed", ask(), flush=True)


listener = socket.socket()
listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
listener.bind((HOST, 7190))
listener.listen(HELD + 10)
child = os.fork()
if child == 0:
    listener.close()
    client()
    os._exit(0)
held = [listener.accept()[0] for _ in range(HELD)]
for _ in range(4):
    it, _ = listener.accept()
    got = 0
    while text := it.recv(1 << 20):
        got += len(text)
    it.sendall(f"thanks for {got}".encode())
    it.close()
os.waitpid(child, 0)
