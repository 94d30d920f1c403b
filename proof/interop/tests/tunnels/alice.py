"""Answers datagrams to port 7, by both versions, with their hops and congestion field before their text. `cut` is answered by
what may be cut on its way, all others by what may not."""

import select
import socket
import struct

IP_MTU_DISCOVER, DONT, DO = 10, 0, 2
v4 = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
v4.setsockopt(socket.IPPROTO_IP, socket.IP_RECVTOS, 1)
v4.setsockopt(socket.IPPROTO_IP, 12, 1)
v4.bind(("10.1.0.2", 7))
v6 = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
v6.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_RECVTCLASS, 1)
v6.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_RECVHOPLIMIT, 1)
v6.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
v6.bind(("::", 7))
print("ready", flush=True)
while True:
    for own in select.select([v4, v6], [], [])[0]:
        text, told, _, peer = own.recvmsg(2000, 200)
        said = {kind: value for _, kind, value in told}
        if own is v4:
            hops, tos = struct.unpack("i", said[2])[0], said[1][0]
            own.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, tos)
            own.setsockopt(socket.IPPROTO_IP, IP_MTU_DISCOVER, DONT if text == b"cut" else DO)
        else:
            hops, tos = struct.unpack("i", said[52])[0], struct.unpack("i", said[67])[0]
            own.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_TCLASS, tos)
        own.sendto(b"%d %d " % (hops, tos) + text, peer)
