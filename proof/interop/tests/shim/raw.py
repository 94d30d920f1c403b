"""What is said of sockets that no netstack has, once for a program."""
import os
import socket
import sys

HOST = sys.argv[1]
ours, theirs = os.pipe()
os.dup2(theirs, 2)
socket.socket(socket.AF_INET, socket.SOCK_STREAM).close()
socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM).close()
os.write(2, b"quiet ")
raw = [socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP), socket.socket(socket.AF_PACKET, socket.SOCK_RAW)]
try:
    socket.socket(socket.AF_INET, socket.SOCK_RAW, 999)
except OSError as error:
    print(error)
print(os.read(ours, 9999).decode().strip())
