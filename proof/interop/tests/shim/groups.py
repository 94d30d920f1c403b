"""From whom a socket hears in a group (RFC 3678): a line for each case, which is the kernel's too."""
import errno, select, socket, struct, sys

HOST = sys.argv[1]
IP, GROUP, PORT = socket.IPPROTO_IP, "232.9.8.7", 9876
JOIN, LEAVE, UNBLOCK, BLOCK, HEAR, UNHEAR = 35, 36, 37, 38, 39, 40
REQUESTS = {"join": 42, "block": 43, "unblock": 44, "leave": 45, "hear": 46, "unhear": 47}
HERE, GONE = socket.inet_aton(HOST), socket.inet_aton("10.0.0.77")


def tried(call, *arguments):
    try:
        return call(*arguments)
    except OSError as error:
        return errno.errorcode[error.errno]


def member():
    one = socket.socket(type=socket.SOCK_DGRAM)
    one.bind((GROUP, PORT))
    return one


def hears(one):
    sender = socket.socket(type=socket.SOCK_DGRAM)
    sender.bind((HOST, 0))
    sender.setsockopt(IP, socket.IP_MULTICAST_IF, HERE)
    sender.sendto(b"to all", (GROUP, PORT))
    is_there = bool(select.select([one], [], [], 0.2)[0])
    while select.select([one], [], [], 0)[0]:
        one.recv(100)
    return is_there


def wish(one, what, source=b""):
    return tried(one.setsockopt, IP, what, socket.inet_aton(GROUP) + HERE + source)


def request(one, what, group=GROUP, source=None):
    def stored(address):
        return struct.pack("HH4s120x", socket.AF_INET, 0, address)
    value = bytes(8) + stored(socket.inet_aton(group)) + (stored(source) if source else b"")
    return tried(one.setsockopt, IP, REQUESTS[what], value)


one = member()
print("join", hears(one), wish(one, JOIN), hears(one), wish(one, JOIN))
print("block", wish(one, BLOCK, HERE), hears(one), wish(one, BLOCK, HERE), wish(one, HEAR, HERE))
print("another, too", wish(one, BLOCK, GONE), hears(one), wish(one, UNBLOCK, HERE), hears(one), wish(one, UNBLOCK, HERE))
print("leave", wish(one, LEAVE), hears(one), wish(one, LEAVE), wish(one, BLOCK, HERE))
print("hear another", wish(one, HEAR, GONE), hears(one), wish(one, HEAR, GONE), wish(one, BLOCK, HERE))
print("hear this", wish(one, HEAR, HERE), hears(one), wish(one, UNHEAR, GONE), hears(one))
print("the last", wish(one, UNHEAR, HERE), hears(one), wish(one, UNHEAR, HERE), wish(one, LEAVE))
print("many", [wish(one, HEAR, socket.inet_aton(f"10.0.0.{n}")) for n in range(100, 111)], wish(one, LEAVE))
for sized in (b"", GONE[:3]):
    print("short", wish(one, HEAR, sized), wish(one, BLOCK, sized))
print("no group", request(one, "join", group="10.0.0.5"), request(one, "hear", "10.0.0.5", GONE))
# Who is not bound yet is a member all the same, and others hear what he has joined (IP_MULTICAST_ALL).
one.close()
other = member()
print("nobody", hears(other))
early = socket.socket(type=socket.SOCK_DGRAM)
print("early", wish(early, JOIN), hears(other), wish(early, BLOCK, HERE), hears(other), wish(early, UNBLOCK, HERE), hears(other))
print("early leaves", wish(early, LEAVE), hears(other), wish(early, JOIN), hears(other))
early.close()
print("early closes", hears(other))
early = socket.socket(type=socket.SOCK_DGRAM)
early.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
print("early again", wish(early, JOIN), hears(other))
early.bind((HOST, 0))
print("early is bound", hears(other), wish(early, LEAVE), hears(other), wish(early, LEAVE))
other.close()
nowhere = struct.pack("Q", 999) + struct.pack("HH4s120x", socket.AF_INET, 0, socket.inet_aton(GROUP))
for one in socket.socket(type=socket.SOCK_DGRAM), member():
    print("nowhere", tried(one.setsockopt, IP, 42, nowhere), tried(one.setsockopt, IP, JOIN, socket.inet_aton(GROUP) + GONE))
    print("no device", tried(one.setsockopt, IP, JOIN, socket.inet_aton(GROUP) + HERE + struct.pack("i", 999)))
for one in socket.socket(socket.AF_INET6, socket.SOCK_DGRAM), socket.socket(socket.AF_INET6, socket.SOCK_DGRAM):
    group = socket.inet_pton(socket.AF_INET6, "ff02::9:8:7")
    print("nowhere v6", tried(one.setsockopt, 41, 20, group + struct.pack("i", 999)), tried(one.setsockopt, 41, 20, group + struct.pack("i", -1)))
    one.bind(("::", 0))
    print("nowhere v6", tried(one.setsockopt, 41, 20, group + struct.pack("i", 999)))
