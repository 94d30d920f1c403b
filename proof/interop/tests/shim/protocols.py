"""Sockets of MPTCP are TCP's on a netstack, and of what else the kernel has for a program it is told once."""
import os
import socket
import sys

HOST, MPTCP, SCTP, DCCP, UDPLITE = sys.argv[1], 262, 132, 33, 136
ours, theirs = os.pipe()
os.dup2(theirs, 2)
os.set_blocking(ours, False)


def said():
    try:
        return os.read(ours, 9999).decode().strip()
    except BlockingIOError:
        return ""


listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, MPTCP)
listener.bind((HOST, 0))
listener.listen()
for family, protocol, to in ((socket.AF_INET, MPTCP, HOST), (socket.AF_INET6, MPTCP, "::ffff:" + HOST), (socket.AF_INET, 0, HOST)):
    client = socket.socket(family, socket.SOCK_STREAM, protocol)
    client.connect((to, listener.getsockname()[1]))
    server = listener.accept()[0]
    client.sendall(b"text")
    # TCP_IS_MPTCP
    print(server.recv(9), server.getsockopt(socket.IPPROTO_TCP, 43))
print("said:", said())
made = []
for kind, protocol in ((socket.SOCK_STREAM, SCTP), (socket.SOCK_SEQPACKET, SCTP), (6, DCCP), (socket.SOCK_DGRAM, UDPLITE), (socket.SOCK_DGRAM, socket.IPPROTO_TCP)):
    try:
        made.append(socket.socket(socket.AF_INET, kind, protocol))
    except OSError:
        pass
text = said()
print("told of them:", text.count("are the kernel's") == min(len(made), 1))
