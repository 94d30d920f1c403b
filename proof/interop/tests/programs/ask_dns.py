"""Asks a name server for the address of lane.test: HOST PORT."""
import socket, struct, sys

one = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
one.settimeout(2)
question = struct.pack("!6H", 77, 0x100, 1, 0, 0, 0) + b"\4lane\4test\0" + struct.pack("!2H", 1, 1)
one.sendto(question, (sys.argv[1], int(sys.argv[2])))
answer, _ = one.recvfrom(512)
assert answer[:2] == question[:2]
print(socket.inet_ntoa(answer[-4:]))
