# Sockets for echoes of ICMP, as ping has them. Prints what it sees; the kernel's is to be the same.
import errno
import json
import select
import socket
import struct
import sys

HOST, PORT = sys.argv[1], 7100
FAR = {"10.0.0.1": "10.0.0.10", "10.0.0.10": "10.0.0.1"}[HOST]
INJECTOR = ("10.0.0.1", PORT)
IP, IPV6 = socket.IPPROTO_IP, socket.IPPROTO_IPV6
NAMES = {HOST: "host", FAR: "far"}

if HOST == "10.0.0.1":
    with open("/proc/sys/net/ipv4/ping_group_range", "w") as groups:
        groups.write("0 0")


def told(call):
    try:
        return repr(call())
    except OSError as error:
        return errno.errorcode.get(error.errno, str(error))


def echoes(family=socket.AF_INET):
    it = socket.socket(family, socket.SOCK_DGRAM, socket.IPPROTO_ICMP if family == socket.AF_INET else socket.IPPROTO_ICMPV6)
    it.settimeout(3)
    return it


def question(sequence, text=b"text", type=8, code=0, identifier=77):
    return struct.pack("!BBHHH", type, code, 1234, identifier, sequence) + text


def summed(message):
    message += b"\0" * (len(message) % 2)
    total = sum(struct.unpack("!%dH" % (len(message) // 2), message))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return total


def answer(it, own=None):
    message, far = it.recvfrom(4096)
    type, code, sum, identifier, sequence = struct.unpack_from("!BBHHH", message)
    right = identifier == (own or it.getsockname()[1])
    is_summed = summed(message) == 0xFFFF if it.family == socket.AF_INET else sum != 0
    return NAMES.get(far[0], far[0]), far[1], type, code, is_summed, right, sequence, message[8:]


it = echoes()
print("is:", it.type == socket.SOCK_DGRAM, it.getsockopt(1, 3), it.getsockopt(1, 38), it.getsockopt(1, 39))
print("name:", it.getsockname())
for words in ["b''", "question(1)[:7]", "question(1, type=0)", "question(1, code=1)", "question(1, type=13)", "question(1)"]:
    print("send", words, told(lambda: it.sendto(eval(words), (FAR, 9))))
print("answer:", told(lambda: answer(it)))
print("name:", it.getsockname()[0], it.getsockname()[1] != 0)
print("no peer:", told(lambda: it.send(question(1))))
for far in [HOST, FAR]:
    for length in [0, 1, 56, 1400]:
        it.sendto(question(length, b"x" * length), (far, 0))
        print("answer:", *(str(part)[:30] for part in answer(it)))
print("out of band:", told(lambda: it.sendto(question(1), socket.MSG_OOB, (FAR, 0))))
print("listen:", told(lambda: it.listen(1)), told(lambda: it.shutdown(socket.SHUT_WR)))
it.close()

# Whose identifier it is gets the answer.
one, two = echoes(), echoes()
one.bind((HOST, 4711))
print("bind:", one.getsockname()[1], told(lambda: one.bind((HOST, 1))), told(lambda: two.bind(("192.0.2.1", 1))))
two.bind((HOST, 0))
for it, text in [(one, b"one"), (two, b"two")]:
    it.sendto(question(3, text), (FAR, 0))
print("answers:", answer(two), answer(one))
one.connect((FAR, 0))
print("peer:", told(lambda: one.getpeername()))
one.connect((FAR, 9))
print("peer:", NAMES[one.getpeername()[0]], one.getpeername()[1], one.send(question(4)), answer(one))
poll = select.poll()
poll.register(one, select.POLLIN | select.POLLOUT)
one.send(question(5))
poll.modify(one, select.POLLIN)
print("poll:", poll.poll(3000)[0][1], answer(one)[6], poll.poll(0))

# What is told of an answer.
one.setsockopt(IP, 12, 1)
one.send(question(6))
message, extra, flags, far = one.recvmsg(99, 99)
print("ttl:", len(message), [(level, kind, struct.unpack("=i", data)) for level, kind, data in extra], flags)
one.send(question(7))
one.recv(9, socket.MSG_PEEK)
print("cut:", one.recvmsg(9)[2] & socket.MSG_TRUNC != 0)
one.close()


def inject(it, type, code):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        asking.settimeout(3)
        asked = {"from": (HOST, it.getsockname()[1]), "to": (FAR, 0), "type": type, "code": code, "rest": 0, "text": "ask"}
        asking.sendto(json.dumps({**asked, "protocol": 1}).encode(), INJECTOR)
        assert asking.recv(9) == b"sent"


# Errors.
for hears in [False, True]:
    it = echoes()
    it.setsockopt(IP, 11, hears)
    it.bind((HOST, 0))
    for type, code in [(11, 0), (3, 1), (3, 13)]:
        inject(it, type, code)
        poll = select.poll()
        poll.register(it, select.POLLIN)
        events = [events for _, events in poll.poll(2000 if hears else 200)]
        print("error", type, code, events, it.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR))
        if hears:
            text, extra, flags, far = it.recvmsg(99, 99, 0x2000)
            quoted = text[:4] + text[6:]
            print("queue:", quoted, text[4:6] == struct.pack("!H", it.getsockname()[1]), extra[0][:2], NAMES[far[0]], far[1])
            print("queue:", struct.unpack("=IBBBBII", extra[0][2][:16]), flags)
    it.close()
two.close()

# IPv6.
it = echoes(socket.AF_INET6)
print("is:", it.getsockopt(1, 38), told(lambda: it.sendto(question(1), ("::1", 0))))
it.sendto(question(8, type=128), ("::1", 0))
print("answer:", answer(it))
print("out of band:", told(lambda: it.sendto(question(9, type=128), socket.MSG_OOB, ("::1", 0))))
it.close()

# Raw sockets and other protocols are the kernel's.
print("others:", told(lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM, socket.IPPROTO_ICMPV6)))

with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as last:
    last.sendto(b"end", INJECTOR)
