# Sends ICMP errors that quote whatever it is told: one request a datagram, of JSON, to the port in argv[2].
import json
import socket
import struct
import sys

server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
server.bind((sys.argv[1], int(sys.argv[2])))
raw = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP)
# Its kernel answers every datagram to a closed port.
with open("/proc/sys/net/ipv4/icmp_ratelimit", "w") as limit:
    limit.write("0")
print("ready", flush=True)


def checksum(text):
    text += b"\0" * (len(text) % 2)
    total = sum(struct.unpack("!%dH" % (len(text) // 2), text))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


while True:
    asked, who = server.recvfrom(4096)
    if asked == b"end":
        break
    asked = json.loads(asked)
    text = asked["text"].encode()
    if asked["protocol"] == socket.IPPROTO_UDP:
        transport = struct.pack("!HHHH", asked["from"][1], asked["to"][1], 8 + len(text), 0) + text
    else:
        transport = struct.pack("!BBHHH", 8, 0, 0, asked["from"][1], 7) + text
    ends = socket.inet_aton(asked["from"][0]) + socket.inet_aton(asked["to"][0])
    header = struct.pack("!BBHHHBBH", 0x45, 0, 20 + len(transport), 1, 0x4000, 1, asked["protocol"], 0) + ends
    message = struct.pack("!BBHI", asked["type"], asked["code"], 0, asked["rest"]) + header + transport
    message = message[:2] + struct.pack("!H", checksum(message)) + message[4:]
    raw.setsockopt(socket.IPPROTO_IP, socket.IP_TTL, asked.get("ttl", 64))
    raw.sendto(message, (asked["from"][0], 0))
    server.sendto(b"sent", who)
