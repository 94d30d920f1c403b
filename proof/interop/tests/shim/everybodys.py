"""All stations' groups, which every host is in: its sockets hear them by IP_MULTICAST_ALL and IPV6_MULTICAST_ALL, or join. And who may have
everybody as the peer."""
import fcntl
import socket
import sys
import time

sys.dont_write_bytecode = True
from conversing import await_ipv6, told

HOST = sys.argv[1]
IP, IPV6, V4, V6 = socket.IPPROTO_IP, socket.IPPROTO_IPV6, socket.AF_INET, socket.AF_INET6
IP_MULTICAST_ALL, IPV6_MULTICAST_ALL = 49, 29
STATIONS, NODES = "224.0.0.1", "ff02::1"
SIOCGIFADDR = 0x8915


def new(family):
    one = socket.socket(family, socket.SOCK_DGRAM)
    one.settimeout(5)
    return one


def address_of(name):
    with new(V4) as asker:
        shown = told(lambda: fcntl.ioctl(asker, SIOCGIFADDR, name.encode().ljust(40, b"\0")))
    return socket.inet_ntoa(shown[20:24]) if isinstance(shown, bytes) else None


def ask(what, family, options, joins):
    """Whether it hears what is sent to all stations, before what is sent to itself."""
    one, sender = new(family), new(V4)
    one.bind(("", 0))
    port = one.getsockname()[1]
    for level, name, value in options:
        one.setsockopt(level, name, value)
    if joins:
        one.setsockopt(IP, socket.IP_ADD_MEMBERSHIP, socket.inet_aton(STATIONS) + socket.inet_aton(HOST))
    sender.setsockopt(IP, socket.IP_MULTICAST_IF, socket.inet_aton(HOST))
    sender.sendto(b"all", (STATIONS, port))
    time.sleep(0.03)
    sender.sendto(b"one", (HOST, port))
    print(what, one.recv(10), flush=True)


for family in (V4, V6):
    for joins in (False, True):
        for all in ((), (0,), (1,)):
            ask(f"{family.name} joins={joins} all={all}", family, [(IP, IP_MULTICAST_ALL, it) for it in all], joins)
link = next(index for index, name in socket.if_nameindex() if address_of(name) == HOST)
await_ipv6(link)
for all in ((), (0,), (1,)):
    one, sender = new(V6), new(V6)
    one.bind(("::", 0))
    for value in all:
        one.setsockopt(IPV6, IPV6_MULTICAST_ALL, value)
    sender.sendto(b"all", (NODES, one.getsockname()[1], 0, link))
    time.sleep(0.03)
    sender.sendto(b"one", ("::1", one.getsockname()[1]))
    print("nodes", all, one.recv(10), flush=True)

everybody = HOST.rpartition(".")[0] + ".255"
for is_allowed in (0, 1):
    one = new(V4)
    one.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, is_allowed)
    one.bind(("", 0))
    for host in (HOST, everybody, HOST):
        done = told(lambda: one.connect((host, 9)))
        peer = told(lambda: one.getpeername()[0])
        print("peer", is_allowed, host == everybody, done, peer.replace(HOST, "host").replace(everybody, "everybody"), flush=True)
