"""Which station an address of one link leads to, and whether one can be bound to it, is said by the interface beside it (ipv6(7)).

links.py serve NAME           answers on port 7777 with its name
links.py FIRST SECOND OWN     asks, with OWN at the interface FIRST
"""
import ctypes
import errno
import socket
import sys
import threading
import time

PORT = 7777
PEER, NOBODYS = "fe80::a", "fe80::bad:babe"
STREAM, DATAGRAM = socket.SOCK_STREAM, socket.SOCK_DGRAM


def serve(name):
    def datagrams():
        hears = fresh(DATAGRAM)
        hears.bind(("::", PORT))
        while True:
            hears.sendto(name, hears.recvfrom(9)[1])

    threading.Thread(target=datagrams, daemon=True).start()
    listener = fresh(STREAM)
    listener.bind(("::", PORT))
    listener.listen()
    while True:
        client = listener.accept()[0]
        client.send(name)
        client.close()


def fresh(kind):
    made = socket.socket(socket.AF_INET6, kind)
    made.settimeout(10)
    return made


def told(what, act):
    try:
        print(what, act(), flush=True)
    except OSError as error:
        print(what, errno.errorcode.get(error.errno, error), flush=True)


def asked(one, scope, peer=PEER):
    one.connect((peer, PORT, 0, scope))
    one.send(b"?")
    return one.recv(9).decode()


def bound(one, address, scope, port=0):
    one.bind((address, port, 0, scope))
    return device(one)


def device(one):
    return NAMED[one.getsockopt(socket.SOL_SOCKET, 25, 16).rstrip(b"\0").decode()]


def at_device(kind, name):
    one = fresh(kind)
    one.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, name.encode() + b"\0")
    return one


def dissolve(one):
    assert ctypes.CDLL(None).connect(one.fileno(), bytes(16), 16) == 0


if sys.argv[1] == "serve":
    serve(sys.argv[2].encode())
FIRST, SECOND, OWN = sys.argv[1:]
NAMED = {FIRST: "first", SECOND: "second", "": "any", "lo": "lo"}
SCOPES = {"first": socket.if_nametoindex(FIRST), "second": socket.if_nametoindex(SECOND), "lo": 1, "none": 7777, "no": 0}

# The servers begin, and every address is somebody's for good.
for scope in ("first", "second"):
    for kind in (STREAM, DATAGRAM):
        deadline = time.monotonic() + 30
        while True:
            try:
                one = fresh(kind)
                one.settimeout(1)
                asked(one, SCOPES[scope])
                break
            except OSError:
                assert time.monotonic() < deadline
                time.sleep(0.05)

for kind in (STREAM, DATAGRAM):
    print(kind.name)
    for scope, number in SCOPES.items():
        # Also those that begin without a question to anybody.
        for _ in range(3):
            told(f"connect {scope}", lambda: asked(fresh(kind), number))
        told(f"bind {scope}", lambda: bound(fresh(kind), OWN, number))
        told(f"bind nobody's {scope}", lambda: bound(fresh(kind), NOBODYS, number))
        freely = fresh(kind)
        freely.setsockopt(socket.IPPROTO_IPV6, 78, 1)
        told(f"bind freely {scope}", lambda: bound(freely, NOBODYS, number))
        told(f"at the second connect {scope}", lambda: asked(at_device(kind, SECOND), number))
        told(f"at the first bind {scope}", lambda: bound(at_device(kind, FIRST), OWN, number))
        told(f"at the second bind {scope}", lambda: bound(at_device(kind, SECOND), OWN, number))
        own = fresh(kind)
        own.bind((OWN, 0, 0, SCOPES["first"]))
        told(f"from the first's connect {scope}", lambda: asked(own, number))
        told(f"group {scope}", lambda: fresh(kind).connect(("ff02::1", PORT, 0, number)) if kind == DATAGRAM else None)
        told(f"bind group {scope}", lambda: bound(fresh(kind), "ff02::1", number) if kind == DATAGRAM else None)
    one = fresh(kind)
    told("connect", lambda: asked(one, SCOPES["second"]))
    told("is at", lambda: device(one))
    waits = fresh(kind)
    waits.setblocking(False)
    told("at once", lambda: waits.connect((PEER, PORT, 0, SCOPES["none"])))

# One that has a name already, and then others.
one = fresh(DATAGRAM)
one.bind(("::", 0))
told("named", lambda: asked(one, SCOPES["second"]))
told("is at", lambda: device(one))
told("another", lambda: asked(one, SCOPES["first"]))
told("the same", lambda: asked(one, SCOPES["no"]))
dissolve(one)
told("is at", lambda: device(one))
told("another", lambda: asked(one, SCOPES["first"]))
told("is at", lambda: device(one))
group = fresh(DATAGRAM)
group.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_IF, SCOPES["second"])
told("group by its option", lambda: group.connect(("ff02::1", PORT, 0, 0)))
told("is at", lambda: device(group))
for scope in ("first", "second", "lo", "none"):
    one = fresh(DATAGRAM)
    for _ in range(2):
        told(f"sendto {scope}", lambda: one.sendto(b"?", (PEER, PORT, 0, SCOPES[scope])))
    told(f"answer {scope}", lambda: one.recv(9).decode() if scope in ("first", "second") else None)
    told(f"error {scope}", lambda: one.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR))
