"""By which way, and from where, datagrams to a group or to everybody leave: a line for each case, which is the kernel's too."""
import errno, socket, sys

HOST, NEAR, GROUP = sys.argv[1], "127.0.0.1", "239.1.2.3"
IP = socket.IPPROTO_IP


def datagram():
    sock = socket.socket(type=socket.SOCK_DGRAM)
    sock.settimeout(1)
    return sock


def sent(sender, member, to):
    try:
        sender.sendto(b"to many", (to, member.getsockname()[1]))
        return member.recvfrom(99)[1][0].replace(HOST, "host")
    except TimeoutError:
        return "nothing"
    except OSError as error:
        return errno.errorcode[error.errno]


for device in NEAR, HOST:
    member = datagram()
    member.bind(("", 0))
    member.setsockopt(IP, socket.IP_ADD_MEMBERSHIP, socket.inet_aton(GROUP) + socket.inet_aton(device))
    sender = datagram()
    sender.setsockopt(IP, socket.IP_MULTICAST_IF, socket.inet_aton(device))
    print("by", device.replace(HOST, "host"), sent(sender, member, GROUP))
    sender.connect((GROUP, 9))
    print("connected", sender.getsockname()[0].replace(HOST, "host"))
