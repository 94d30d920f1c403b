"""The other end of a tunnel, by scapy: every packet is built and read by an implementation that is not ours.

    judge.py exchange KIND      echoes and datagrams through the tunnel, with what they must be like outside and inside
    judge.py error KIND CODE    answers each echo that comes out of the tunnel with an error of ICMP's about the outer packet

It has no address of the kernel's: it answers for 192.0.2.2 and fd99::2 itself. With JUDGE_VLAN in the environment all that it sends
and gets is in that VLAN."""

import os
import sys
import time

from scapy.all import (
    ARP, GRE, ICMP, Dot1Q, IP, UDP, Ether, ICMPv6DestUnreach, ICMPv6EchoReply, ICMPv6EchoRequest, ICMPv6ND_NA, ICMPv6ND_NS,
    ICMPv6NDOptDstLLAddr, ICMPv6NDOptSrcLLAddr, ICMPv6PacketTooBig, IPv6, IPv6ExtHdrDestOpt, Raw, conf, get_if_hwaddr,
)

LINK = "judge0"
VLAN = int(os.environ.get("JUDGE_VLAN", 0))
OURS = {4: "192.0.2.2", 6: "fd99::2"}
ROUTER = {4: "192.0.2.1", 6: "fd99::1"}
# The tunnel's other end, hosts behind both, by the version inside.
INSIDE = {4: "172.16.0.1", 6: "fd16::1"}
ALICE = {4: "10.1.0.2", 6: "fd01::2"}
BOB = {4: "10.2.0.2", 6: "fd02::2"}
# The outer version, which versions go inside, and whether there is a GRE header, with which options.
KINDS = {
    "ipip": (4, [4, 6], None),
    "ip6": (6, [4, 6], None),
    "gre": (4, [4, 6], {"key_present": 1, "key": 7, "chksum_present": 1, "seqnum_present": 1}),
    "gre6": (6, [4, 6], {}),
    "6to4": (4, [6], None),
}
# Of 6to4, in whose addresses the outer ones stand (RFC 3056): the tunnel's end, a host behind it, and behind this end.
SITE = {"end": "2002:c000:201::1", "host": "2002:c000:201:1::2", "far": "2002:c000:202::9"}
HOPS = 64
NOT_ECT, ECT1, ECT0, CE = 0, 1, 2, 3


class Tagged:
    """A socket whose frames are all in one VLAN, outside of which nobody has anything to say."""

    def __init__(self, inner, mac):
        self.inner, self.mac = inner, mac

    def send(self, frame):
        self.inner.send(Ether(dst=frame.dst, src=frame.src) / Dot1Q(vlan=VLAN) / frame.payload)

    def select(self, _, left):
        return self.inner.select([self.inner], left)

    def recv(self, size):
        came = self.inner.recv(size)
        if came is None or came.src == self.mac:
            return None
        if Dot1Q not in came or came[Dot1Q].vlan != VLAN:
            raise SystemExit(f"FAIL: not in VLAN {VLAN}: {came.summary()}")
        return Ether(bytes(Ether(dst=came.dst, src=came.src) / came[Dot1Q].payload))


class Judge:
    def __init__(self, kind):
        self.outer, self.versions, self.gre = KINDS[kind]
        self.mac = get_if_hwaddr(LINK)
        socket = conf.L2socket(iface=LINK)
        self.socket = Tagged(socket, self.mac) if VLAN else socket
        self.sequence = 0
        self.router = None
        self.router = self.find_router()

    def find_router(self):
        """Asks for the router, who learns by it where we are."""
        if self.outer == 4:
            ask = Ether(dst="ff:ff:ff:ff:ff:ff", src=self.mac) / ARP(hwsrc=self.mac, psrc=OURS[4], pdst=ROUTER[4])
            mac = lambda it: it[ARP].hwsrc if ARP in it and it[ARP].op == 2 and it[ARP].psrc == ROUTER[4] else None
        else:
            ask = Ether(dst="33:33:ff:00:00:01", src=self.mac) / IPv6(src=OURS[6], dst="ff02::1:ff00:1", hlim=255)
            ask /= ICMPv6ND_NS(tgt=ROUTER[6]) / ICMPv6NDOptSrcLLAddr(lladdr=self.mac)
            mac = lambda it: it[Ether].src if ICMPv6ND_NA in it and it[ICMPv6ND_NA].tgt == ROUTER[6] else None
        for _ in range(60):
            found = self.exchange(ask, mac, 0.5)
            if found:
                return found
        raise SystemExit("FAIL: the router does not say where it is")

    def exchange(self, frame, want, seconds):
        """Sends a frame, if any, and gives the first answer that `want` makes something of."""
        if frame is not None:
            self.socket.send(frame)
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            ready = self.socket.select([self.socket], left)
            if not ready:
                continue
            came = self.socket.recv(65535)
            if came is None or came.src == self.mac:
                continue
            self.introduce(came)
            if (made := want(came)) is not None:
                return made
        return None

    def introduce(self, came):
        """Answers who looks for us."""
        if ARP in came and came[ARP].op == 1 and came[ARP].pdst == OURS[4]:
            told = ARP(op=2, hwsrc=self.mac, psrc=OURS[4], hwdst=came[ARP].hwsrc, pdst=came[ARP].psrc)
            self.socket.send(Ether(dst=came.src, src=self.mac) / told)
        if ICMPv6ND_NS in came and came[ICMPv6ND_NS].tgt == OURS[6]:
            told = IPv6(src=OURS[6], dst=came[IPv6].src, hlim=255) / ICMPv6ND_NA(tgt=OURS[6], S=1, O=1, R=0)
            told /= ICMPv6NDOptDstLLAddr(lladdr=self.mac)
            self.socket.send(Ether(dst=came.src, src=self.mac) / told)

    def cover(self, inner, src=None, ecn=NOT_ECT, **header):
        """A packet in the tunnel; `header` changes GRE's."""
        src = src or OURS[self.outer]
        version = 4 if isinstance(inner, IP) else 6
        protocol = 47 if self.gre is not None else {4: 4, 6: 41}[version]
        if self.outer == 4:
            outer = IP(src=src, dst=ROUTER[4], proto=protocol, ttl=HOPS, tos=ecn)
        else:
            outer = IPv6(src=src, dst=ROUTER[6], nh=protocol, hlim=HOPS, tc=ecn)
        if self.gre is not None:
            gre = GRE(proto={4: 0x0800, 6: 0x86DD}[version], **self.gre)
            if gre.seqnum_present:
                gre.seqence_number = self.sequence
                self.sequence += 1
            for name, value in header.items():
                setattr(gre, name, value)
            outer /= gre
        return Ether(dst=self.router, src=self.mac) / outer / inner

    def uncover(self, came):
        """The outer and the inner packet of one that came through the tunnel, if it did and is as the RFCs say."""
        outer = came.getlayer(IP if self.outer == 4 else IPv6)
        if outer is None or outer.src != ROUTER[self.outer] or outer.dst != OURS[self.outer]:
            return None
        if self.outer == 4:
            protocol, above = outer.proto, outer.payload
        else:
            protocol, above = outer.nh, outer.payload
            if isinstance(above, IPv6ExtHdrDestOpt):
                # RFC 2473 section 4.1.1: the tunnel encapsulation limit.
                limit = [it for it in above.options if it.otype == 4]
                check(len(limit) == 1 and limit[0].optlen == 1, "the limit of tunnels in one another")
                protocol, above = above.nh, above.payload
        if protocol == 47 and self.gre is not None:
            check(GRE in came, "a GRE header")
            self.judge_gre(above)
            inner = above.payload
        elif protocol in (4, 41) and self.gre is None:
            inner = above
            check(isinstance(inner, IP if protocol == 4 else IPv6), f"protocol {protocol} says what is inside")
        else:
            return None
        check(is_summed(outer), f"a checksum outside or inside: {outer.show(dump=True)}")
        return outer, inner

    def judge_gre(self, gre):
        for name, value in self.gre.items():
            check(getattr(gre, name) == value, f"GRE: {name} is {value}, not {getattr(gre, name)}")
        check(gre.version == 0 and gre.recursion_control == 0 and gre.flags == 0, "GRE: what is reserved is zero")
        if self.gre.get("chksum_present"):
            check(gre.chksum is not None, "GRE: a checksum")
        if self.gre.get("seqnum_present"):
            last = getattr(self, "last", None)
            check(last is None or gre.seqence_number > last, "GRE: numbers rise")
            self.last = gre.seqence_number

    def ask(self, inner, seconds=5, **how):
        """What comes back of a packet that goes in, as outer and inner."""
        def want(came):
            both = self.uncover(came)
            return both if both and is_answer(inner, both[1]) else None
        return self.exchange(self.cover(inner, **how), want, seconds)

    def patiently(self, inner, **how):
        """The same for a first packet, whose neighbours do not know each other yet."""
        for _ in range(30):
            if both := self.ask(inner, 1, **how):
                return both
        raise SystemExit(f"FAIL: nothing comes back: {inner.summary()}")

    def silent(self, what, inner, **how):
        check(self.ask(inner, 0.4, **how) is None, f"{what}: nobody answers")


def check(is_so, what):
    if not is_so:
        raise SystemExit(f"FAIL: {what}")


def is_summed(packet):
    """Whether all checksums of a packet are those that scapy would write."""
    again = packet.__class__(bytes(packet))
    layer = again
    while layer:
        for name in ("chksum", "cksum"):
            if name in layer.fields:
                delattr(layer, name)
        layer = layer.payload
    return bytes(again) == bytes(packet)


def is_answer(asked, came):
    if came.src != asked.dst or came.dst != asked.src:
        return False
    if UDP in asked:
        return UDP in came and came[UDP].dport == asked[UDP].sport
    if ICMP in asked:
        return ICMP in came and came[ICMP].type == 0 and came[ICMP].seq == asked[ICMP].seq
    return ICMPv6EchoReply in came and came[ICMPv6EchoReply].seq == asked[ICMPv6EchoRequest].seq


def inside(version, src, dst, hops=HOPS, tos=0, dont_fragment=False):
    if version == 4:
        return IP(src=src, dst=dst, ttl=hops, tos=tos, flags="DF" if dont_fragment else 0)
    return IPv6(src=src, dst=dst, hlim=hops, tc=tos)


def echo(version, dst, number, size=56):
    ask = ICMP(id=7, seq=number) if version == 4 else ICMPv6EchoRequest(id=7, seq=number)
    if version == 6:
        ask.data = bytes(size)
        return inside(6, BOB[6], dst) / ask
    return inside(4, BOB[4], dst) / ask / Raw(bytes(size))


def hops_of(packet):
    return packet.ttl if isinstance(packet, IP) else packet.hlim


def tos_of(packet):
    return packet.tos if isinstance(packet, IP) else packet.tc


def question(version, text, hops=9, tos=0, dont_fragment=False):
    packet = inside(version, BOB[version], ALICE[version], hops, tos, dont_fragment)
    return packet / UDP(sport=4000, dport=7) / Raw(text)


def exchange(judge):
    for version in judge.versions:
        outer, inner = judge.patiently(echo(version, INSIDE[version], 1))
        check(hops_of(outer) == HOPS, f"the tunnel's own hops outside: {hops_of(outer)}")
        print(f"ok: IPv{version}: an echo of the tunnel's end")
        # Through the router, to a host of the kernel's: it tells what its packet was like.
        outer, inner = judge.patiently(question(version, b"what"))
        told = bytes(inner[UDP].payload)
        check(told == b"8 0 what", f"one hop less, and nothing marked: {told}")
        check((hops_of(inner), hops_of(outer)) == (HOPS - 1, HOPS), "the tunnel is one hop, whatever is outside")
        print(f"ok: IPv{version}: a datagram there and back, one hop less")
        large = bytes(range(256)) * 4
        outer, inner = judge.ask(question(version, large))
        check(bytes(inner[UDP].payload) == b"8 0 " + large, "1,024 bytes come back as they were")
        print(f"ok: IPv{version}: a large datagram")
        outer, inner = judge.ask(question(version, b"tos", tos=0xB8 | ECT0))
        check(bytes(inner[UDP].payload) == b"8 186 tos", "code point and ECT(0) stay")
        check(tos_of(outer) == tos_of(inner) == 0xB8 | ECT0, f"outside they are the same: {tos_of(outer):#x}")
        print(f"ok: IPv{version}: DSCP and ECN are copied outward")
        for inner_ecn, outer_ecn, comes in [
            (ECT0, CE, CE), (ECT1, CE, CE), (ECT0, ECT1, ECT1), (ECT1, ECT0, ECT1), (ECT0, NOT_ECT, ECT0),
            (NOT_ECT, ECT0, NOT_ECT),
        ]:
            both = judge.ask(question(version, b"ecn", tos=inner_ecn), ecn=outer_ecn)
            check(both is not None, f"inner {inner_ecn}, outer {outer_ecn}: it comes through")
            told = bytes(both[1][UDP].payload)
            check(told == b"8 %d ecn" % comes, f"RFC 6040: inner {inner_ecn}, outer {outer_ecn} is {comes}: {told}")
        judge.silent("RFC 6040: what cannot be marked is lost", question(version, b"ecn"), ecn=CE)
        print(f"ok: IPv{version}: RFC 6040 inward")
        judge.silent("a stranger", question(version, b"who"), src={4: "192.0.2.66", 6: "fd99::66"}[judge.outer])
        print(f"ok: IPv{version}: a stranger is not heard")
    for dont_fragment in [False, True]:
        outer, inner = judge.ask(question(4, b"cut" if not dont_fragment else b"whole"))
        check(bool(inner.flags.DF) == dont_fragment, "alice does as she is asked")
        if judge.outer == 4:
            check(bool(outer.flags.DF) == dont_fragment, f"RFC 2003: DF outside as inside ({dont_fragment})")
            print(f"ok: DF {dont_fragment}")
    if judge.gre and judge.gre.get("key_present"):
        for what, header in [
            ("another key", {"key": 8}), ("no key", {"key_present": 0}), ("a wrong checksum", {"chksum": 0x1234}),
            ("no checksum", {"chksum_present": 0}), ("version 1", {"version": 1}), ("an old number", {"seqence_number": 0}),
        ]:
            judge.silent(f"GRE with {what}", question(4, b"gre"), **header)
        check(judge.ask(question(4, b"gre")) is not None, "and the tunnel goes on")
        print("ok: GRE: what is refused")


def six_to_four(judge):
    """RFC 3056: the other end stands in the packet's own address; RFC 3964: whoever sends has his own there."""
    INSIDE[6], ALICE[6], BOB[6] = SITE["end"], SITE["host"], SITE["far"]
    outer, inner = judge.patiently(echo(6, INSIDE[6], 1))
    check(outer.proto == 41 and hops_of(outer) == HOPS, "IPv6 directly behind IPv4, with the tunnel's own hops")
    print("ok: 6to4: an echo of the tunnel's end")
    outer, inner = judge.patiently(question(6, b"what"))
    check(bytes(inner[UDP].payload) == b"8 0 what", "one hop less for a host behind the tunnel")
    print("ok: 6to4: a datagram there and back")
    for what, source in [
        ("another site's address", "2002:c000:242::9"), ("a private site's", "2002:a00:1::9"), ("a native one", "fd02::2"),
    ]:
        BOB[6] = source
        judge.silent(f"RFC 3964: {what} from here", question(6, b"who"))
    BOB[6] = SITE["far"]
    judge.silent("RFC 3964: from somebody else's address", question(6, b"who"), src="192.0.2.66")
    check(judge.ask(question(6, b"what")) is not None, "and the tunnel goes on")
    print("ok: 6to4: whose address is another's is not heard")


def about(judge, came, code):
    """An error of ICMP's about an outer packet, as a router of the outer network sends it."""
    outer = came.getlayer(IP if judge.outer == 4 else IPv6)
    quoted = bytes(outer)[:548 if judge.outer == 4 else 1232]
    if judge.outer == 4:
        errors = {"host": ICMP(type=3, code=1), "big": ICMP(type=3, code=4, nexthopmtu=1300), "expired": ICMP(type=11, code=0)}
        error = errors[code]
        answer = IP(src=OURS[4], dst=outer.src) / error
    else:
        error = {"host": ICMPv6DestUnreach(code=3), "big": ICMPv6PacketTooBig(mtu=1300)}[code]
        answer = IPv6(src=OURS[6], dst=outer.src) / error
    return Ether(dst=judge.router, src=judge.mac) / answer / Raw(quoted)


def errors(judge, code):
    print("ready", flush=True)

    def want(came):
        both = judge.uncover(came)
        if both and (ICMP in both[1] or ICMPv6EchoRequest in both[1]):
            judge.socket.send(about(judge, came, code))

    judge.exchange(None, want, 60)


judge = Judge(sys.argv[2])
if sys.argv[2] == "6to4":
    six_to_four(judge)
elif sys.argv[1] == "exchange":
    exchange(judge)
else:
    errors(judge, sys.argv[3])
