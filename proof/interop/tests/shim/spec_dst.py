"""Who answers a datagram to a group or to everybody as he was told of it (IP_PKTINFO) is heard, from an address of his own.

spec_dst.py serve OWN
spec_dst.py ask OWN PEER BROADCAST DEVICE
"""
import socket
import struct
import sys

GROUP, PORT, IP_PKTINFO = "239.1.2.3", 7177, 8

one = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
one.settimeout(20)
if sys.argv[1] == "serve":
    one.bind(("0.0.0.0", PORT))
    one.setsockopt(socket.IPPROTO_IP, IP_PKTINFO, 1)
    one.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, socket.inet_aton(GROUP) + socket.inet_aton(sys.argv[2]))
    print("ready", flush=True)
    while True:
        text, control, _, peer = one.recvmsg(100, 100)
        index, spec, to = struct.unpack("=I4s4s", control[0][2])
        print(text, "to", socket.inet_ntoa(to), index > 0, socket.inet_ntoa(spec), flush=True)
        # Whoever was told a wrong source hears of it in the next call.
        one.sendmsg([b"answer"], control, 0, peer)
        if text == b"end":
            break
else:
    one.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
    one.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, sys.argv[5].encode())
    one.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton(sys.argv[2]))
    one.bind((sys.argv[2], 0))
    for to in (GROUP, "255.255.255.255", sys.argv[4], sys.argv[3]):
        one.sendto(b"end" if to == sys.argv[3] else b"question", (to, PORT))
        print(to, one.recvfrom(100), flush=True)
