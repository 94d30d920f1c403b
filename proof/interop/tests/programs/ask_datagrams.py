"""Asks an echo of datagrams: HOST PORT COUNT."""
import socket, sys

host, port, count = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
one = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
one.settimeout(2)
one.connect((host, port))
for number in range(count):
    text = b"%d" % number * (1 + number)
    one.send(text)
    assert one.recv(65535) == text
