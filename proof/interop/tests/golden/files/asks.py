"""Sends itself a datagram and a connection on two ports, and says which come."""
import socket

HOST = "10.0.0.1"
for port in 7000, 7001:
    server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    server.bind((HOST, port))
    server.settimeout(0.5)
    socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"hello", (HOST, port))
    try:
        print("datagram to", port, server.recv(100).decode(), flush=True)
    except OSError as error:
        print("datagram to", port, type(error).__name__, flush=True)
    listener = socket.create_server((HOST, port))
    try:
        print("connection to", port, "made" if socket.create_connection((HOST, port), 3) else "", flush=True)
    except OSError as error:
        print("connection to", port, type(error).__name__, flush=True)
