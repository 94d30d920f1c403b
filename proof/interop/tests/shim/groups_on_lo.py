"""Groups on the loopback device, and where no way leads: a line for each case, which is the kernel's too."""
import errno, select, socket, struct, sys

HOST = sys.argv[1]
LO = socket.if_nametoindex("lo")
V4, V6 = socket.IPPROTO_IP, socket.IPPROTO_IPV6
NOWHERE = len(sys.argv) > 2


def tried(call, *arguments):
    try:
        return call(*arguments) or "done"
    except OSError as error:
        return errno.errorcode[error.errno]


def v4(group, address="0.0.0.0", link=None):
    value = socket.inet_aton(group) + socket.inet_aton(address)
    return value if link is None else value + struct.pack("i", link)


def v6(group, link):
    return socket.inet_pton(socket.AF_INET6, group) + struct.pack("i", link)


def datagrams(family):
    return socket.socket(family, socket.SOCK_DGRAM)


JOINS = [("by address", V4, 35, 36, v4("239.1.2.4", "127.0.0.1")), ("by number", V4, 35, 36, v4("239.1.2.5", link=LO)),
         ("of IPv6", V6, 20, 21, v6("ff02::1235", LO)), ("of the node", V6, 20, 21, v6("ff01::1235", LO))]
if NOWHERE:
    JOINS += [("no way", V4, 35, 36, v4("239.1.2.3")), ("no way, well known", V4, 35, 36, v4("224.0.0.251")),
              ("no address", V4, 35, 36, v4("239.1.2.3", "10.0.0.77"))]
for bound in False, True:
    for what, level, join, leave, value in JOINS:
        one = datagrams(socket.AF_INET if level == V4 else socket.AF_INET6)
        if bound:
            one.bind(("", 0))
        print(what, bound, [tried(one.setsockopt, level, option, value) for option in (join, join, leave, leave)])
# By its address and by its number it is the same link.
one = datagrams(socket.AF_INET)
print("twice", tried(one.setsockopt, V4, 35, v4("239.1.2.6", "127.0.0.1")), tried(one.setsockopt, V4, 35, v4("239.1.2.6", link=LO)))


def heard(one):
    return one.recvfrom(100)[0] if select.select([one], [], [], 0.3)[0] else "nothing"


def sent(one, text, to):
    """What cannot go is said by the call, or by the one after it."""
    first = tried(one.sendto, text, to)
    if one.family == socket.AF_INET:
        return first
    select.select([], [], [], 0.1)
    return first if isinstance(first, str) else tried(one.sendto, text, to)


for family, group, level, join, leave, joined, by, link in (
    (socket.AF_INET, "239.1.2.9", V4, 35, 36, v4("239.1.2.9", link=LO), 32, struct.pack("4s4si", bytes(4), bytes(4), LO)),
    (socket.AF_INET6, "ff02::77", V6, 20, 21, v6("ff02::77", LO), 17, struct.pack("i", LO)),
):
    member, stranger, sender = [datagrams(family) for _ in range(3)]
    member.bind(("", 0))
    stranger.bind(("", 0))
    there, elsewhere = [(group, one.getsockname()[1]) for one in (member, stranger)]
    print(family.name, tried(sender.setsockopt, level, by, link), sender.getsockopt(level, by))
    print("nobody is a member", sent(sender, b"early", there), heard(member))
    print("joined", tried(member.setsockopt, level, join, joined), sent(sender, b"to all", there), heard(member), heard(member))
    # Who has joined nothing hears what others have (IP_MULTICAST_ALL).
    print("another", sent(sender, b"to all", elsewhere), heard(stranger), heard(member))
    print("left", tried(member.setsockopt, level, leave, joined), sent(sender, b"late", elsewhere), heard(stranger))
if NOWHERE:
    away = datagrams(socket.AF_INET)
    first = tried(away.sendto, b"away", ("239.1.2.9", 9))
    select.select([], [], [], 0.1)
    print("by no link", first if isinstance(first, str) else tried(away.sendto, b"away", ("239.1.2.9", 9)))
