"""Negative seconds of SO_RCVTIMEO and SO_SNDTIMEO: calls do not wait at all, and the time that is told is none."""
import errno
import socket
import struct
import sys
import time

HOST = sys.argv[1]
SO_RCVTIMEO, SO_SNDTIMEO = 20, 21


def told(call):
    begun = time.monotonic()
    try:
        call()
    except OSError as error:
        return errno.errorcode[error.errno], time.monotonic() - begun < 10
    return "did"


def write(sock):
    while True:
        sock.send(bytes(1 << 20))


listener = socket.create_server((HOST, 0))
client = socket.create_connection(listener.getsockname())
server = listener.accept()[0]
datagrams = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
datagrams.bind((HOST, 0))


def tried(name, sock, option, call):
    for seconds, micros in ((-1, 0), (-1, 500_000), (-7, 999_999)):
        sock.setsockopt(socket.SOL_SOCKET, option, struct.pack("qq", seconds, micros))
        shown = struct.unpack("qq", sock.getsockopt(socket.SOL_SOCKET, option, 16))
        print(name, seconds, micros, shown, told(call), flush=True)


tried("read", client, SO_RCVTIMEO, lambda: client.recv(1))
tried("datagram", datagrams, SO_RCVTIMEO, lambda: datagrams.recv(1))
tried("accept", listener, SO_RCVTIMEO, lambda: listener._accept())
tried("write", client, SO_SNDTIMEO, lambda: write(client))
# What is accepted has them of its listener.
other = socket.create_connection(listener.getsockname())
while True:
    try:
        accepted = socket.socket(fileno=listener._accept()[0])
        break
    except BlockingIOError:
        time.sleep(0.01)
print("accepted", told(lambda: accepted.recv(1)), flush=True)
fresh = socket.socket()
fresh.setsockopt(socket.SOL_SOCKET, SO_RCVTIMEO, struct.pack("qq", -1, 0))
fresh.connect(listener.getsockname())
print("connected", told(lambda: fresh.recv(1)), flush=True)
# Another time, and none, are as ever.
for seconds, micros in ((0, 50_000), (0, 0)):
    client.setsockopt(socket.SOL_SOCKET, SO_RCVTIMEO, struct.pack("qq", seconds, micros))
    print("again", struct.unpack("qq", client.getsockopt(socket.SOL_SOCKET, SO_RCVTIMEO, 16)), flush=True)
server.send(b"text")
print(client.recv(9), flush=True)
