"""By which way, and from where, datagrams to a group or to everybody leave: a line for each case, which is the kernel's too."""
import errno, socket, sys, time

HOST, NEAR, GROUP, EVERYBODY = sys.argv[1], "127.0.0.1", "239.1.2.3", "255.255.255.255"
IP, PKTINFO = socket.IPPROTO_IP, 8


def datagram(bound=None, device=None):
    sock = socket.socket(type=socket.SOCK_DGRAM)
    sock.settimeout(1)
    if device:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, device)
    if bound:
        sock.bind((bound, 0))
    return sock


def joined(device):
    sock = datagram()
    sock.bind(("", 0))
    sock.setsockopt(IP, socket.IP_ADD_MEMBERSHIP, socket.inet_aton(GROUP) + socket.inet_aton(device))
    return sock


def sent(sender, member, to):
    """The source and this side's own address, as who has got it is told."""
    try:
        sender.sendto(b"to many", (to, member.getsockname()[1]))
        _, control, _, peer = member.recvmsg(99, 99)
        own = control[0][2][4:8] if control else b""
        return " ".join(it.replace(HOST, "host") for it in [peer[0], *([socket.inet_ntoa(own)] if own else [])])
    except TimeoutError:
        return "nothing"
    except OSError as error:
        return errno.errorcode[error.errno]


def denied(sender, member):
    """Who has not said that he wants to does not speak to everybody; the error comes at once, or at a later call."""
    end = time.monotonic() + 20
    while time.monotonic() < end:
        try:
            sender.sendto(b"denied", (EVERYBODY, member.getsockname()[1]))
        except PermissionError:
            return True
    return False


for device in NEAR, HOST:
    member, sender = joined(device), datagram()
    sender.setsockopt(IP, socket.IP_MULTICAST_IF, socket.inet_aton(device))
    print("by", device.replace(HOST, "host"), sent(sender, member, GROUP))
    sender.connect((GROUP, 9))
    print("connected", sender.getsockname()[0].replace(HOST, "host"))
# What has the loopback's address, or is sent by its device, comes to members there, whatever is said of loops and hops.
member = joined(NEAR)
member.setsockopt(IP, PKTINFO, 1)
for bound, device in (NEAR, None), ("127.0.0.9", None), (NEAR, b"lo"), (HOST, b"lo"):
    for to in GROUP, EVERYBODY:
        sender = datagram(bound, device)
        sender.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
        print("near", bound.replace(HOST, "host"), device, to, sent(sender, member, to))
        sender.connect((to, 9))
        print("connected", sender.getsockname()[0].replace(HOST, "host"))
    print("not allowed", denied(datagram(bound, device), member))
for option in (), (socket.IP_MULTICAST_LOOP, 0), (socket.IP_MULTICAST_TTL, 0):
    sender = datagram(NEAR)
    if option:
        sender.setsockopt(IP, *option)
    print("near", option, sent(sender, member, GROUP))
for to in GROUP, EVERYBODY:
    sender = datagram(None, b"lo")
    sender.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
    print("by lo", to, sent(sender, member, to))
