"""What stands beside datagrams that came together, in the order in which a program is told it: with little room the last of it is cut."""
import socket
import struct

IP, IPV6, SOCKET, UDP = socket.IPPROTO_IP, socket.IPPROTO_IPV6, socket.SOL_SOCKET, socket.IPPROTO_UDP
UDP_SEGMENT, UDP_GRO, SO_TIMESTAMP, SO_TIMESTAMPNS, RECVORIGDSTADDR_V4, RECVORIGDSTADDR_V6 = 103, 104, 29, 35, 20, 74
OF_IP = [(IP, 8), (IP, socket.IP_RECVTOS), (IP, 12), (IP, RECVORIGDSTADDR_V4)]
OF_IPV6 = [(IPV6, it) for it in (socket.IPV6_RECVPKTINFO, socket.IPV6_RECVTCLASS, socket.IPV6_RECVHOPLIMIT, RECVORIGDSTADDR_V6)]
LENGTH, COUNT = 128, 16
# Of everything, and of each header one octet.
ROOMS = [*range(0, 240, 8), 17, 1000]


def told(receiver, sender, host, room):
    sender.sendmsg([b"x" * LENGTH * COUNT], [(UDP, UDP_SEGMENT, struct.pack("H", LENGTH))], 0, (host, receiver.getsockname()[1]))
    text, beside, flags, _ = receiver.recvmsg(LENGTH * COUNT, room)
    joined = [struct.unpack("i", data)[0] for level, kind, data in beside if (level, kind, len(data)) == (UDP, UDP_GRO, 4)]
    return len(text), [(level, kind, len(data)) for level, kind, data in beside], joined, "cut" if flags & socket.MSG_CTRUNC else "whole"


for family, bound, host, names in (
    (socket.AF_INET, "127.0.0.1", "127.0.0.1", OF_IP),
    (socket.AF_INET6, "::1", "::1", OF_IPV6),
    (socket.AF_INET6, "::", "::ffff:127.0.0.1", OF_IP + OF_IPV6),
):
    for stamp in (SO_TIMESTAMP, SO_TIMESTAMPNS):
        with socket.socket(family, socket.SOCK_DGRAM) as receiver, socket.socket(family, socket.SOCK_DGRAM) as sender:
            receiver.settimeout(10)
            receiver.bind((bound, 0))
            for level, name in [(UDP, UDP_GRO), (SOCKET, stamp), *names]:
                receiver.setsockopt(level, name, 1)
            for room in ROOMS:
                print(host, room, *told(receiver, sender, host, room))
