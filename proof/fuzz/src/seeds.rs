//! The seed inputs: one good example of everything, from which mutations start.
//!
//! `fuzz seeds` writes them to the corpus; a test compares. Frames are written with `base/wire`, scenarios
//! are choices from a fixed random stream.

use core::net::{Ipv4Addr, Ipv6Addr};
use core::time::Duration;

use firelane_units::{MacAddr, Port, SeqNum, VlanId};
use firelane_wire::*;

use crate::random::Random;

type Seed = (String, Vec<u8>);

const MAC_A: MacAddr = MacAddr([2, 0, 0, 0, 0, 1]);
const MAC_B: MacAddr = MacAddr([2, 0, 0, 0, 0, 2]);
const A4: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const B4: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 10);
const A6: Ipv6Addr = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 1);
const B6: Ipv6Addr = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 0x10);

/// The seeds of the target called `name`.
pub fn of(name: &str) -> Vec<Seed> {
    match name {
        "ethernet" | "classify" => named(frames()),
        "arp" => named([("request", arp())]),
        "ipv4" => named([("udp", packet4(IpProtocol::UDP, &udp4())), ("options", options4())]),
        "ipv6" => named([("udp", packet6(IpProtocol::UDP, &udp6())), ("chain", chain6())]),
        "icmpv4" => named(icmpv4()),
        "icmpv6" => named(icmpv6()),
        "ndp" => named(ndp()),
        "udp" => named([("v4", prefixed(&[4, 14], &udp4())), ("v6", prefixed(&[5, 14], &udp6()))]),
        "tcp" => named([("syn", tcp(true, b"")), ("text", tcp(false, b"hello"))]),
        "checksum" => named([("bytes", Random::new(1).bytes(101))]),
        "offload" => named(offload()),
        "tcp_pair" | "tcp_hostile" | "tcp_tables" | "netstack" => scenarios(),
        "model" => named(models()),
        "ipf_conf" => named(rules()),
        "lane" => {
            [named([("frames", lane_steps()), ("talk", talk(0)), ("talk-two-lanes", talk(7))]), scenarios()]
                .concat()
        }
        "ip" => named([("frames", steps(0)), ("frames-forward", steps(2))]),
        "dhcp_message" => named([("ack", dhcp_ack())]),
        "dhcp_client" => named([("lease", dhcp_lease())]),
        "dhcp6_message" => named([("reply", dhcp6_reply())]),
        "dhcp6_client" => named([("lease", dhcp6_lease())]),
        "cli" => named(commands()),
        "api" => named(requests()),
        _ => Vec::new(),
    }
}

/// An acknowledgment with what servers usually say.
fn dhcp_ack() -> Vec<u8> {
    let mut message = firelane_dhcp::v4::Message::request(firelane_dhcp::v4::MessageType::Ack, 7, MAC_A);
    (message.is_reply, message.yours) = (true, B4);
    let said: [(u8, &[u8]); 6] = [
        (1, &[255, 255, 255, 0]),
        (3, &[10, 0, 0, 1]),
        (51, &[0, 0, 14, 16]),
        (54, &[10, 0, 0, 1]),
        (119, b"\x03lab\x07example\0"),
        (121, &[24, 192, 0, 2, 10, 0, 0, 9, 0, 10, 0, 0, 1]),
    ];
    message.options.extend(said.map(|(code, value)| (code, value.to_vec())));
    message.emit()
}

/// Steps of the client's target: an offer, its acknowledgment, a free address, time.
fn dhcp_lease() -> Vec<u8> {
    let options = [1, 4, 255, 255, 255, 0, 51, 4, 0, 0, 14, 16, 54, 4, 10, 0, 0, 1, 255];
    let answer = |kind: u8| [&[3, 5, 19][..], &[kind], &options].concat();
    [&[0, 1][..], &answer(2), &answer(5), &[6, 5, 1, 0, 0], &answer(5), &[0, 0, 0, 7, 1, 7, 0]].concat()
}

/// A reply with what servers usually say.
fn dhcp6_reply() -> Vec<u8> {
    let mut message = firelane_dhcp::v6::Message::new(firelane_dhcp::v6::MessageType::Reply, 7);
    let address = [&[0x20, 1, 0xd, 0xb8][..], &[0; 11], &[5, 0, 0, 7, 8, 0, 0, 14, 16]].concat();
    let association = [&[0, 0, 0, 7, 0, 0, 3, 132, 0, 0, 5, 160, 0, 5, 0, 24][..], &address].concat();
    message.options.add(1, [0, 4, 1, 2]);
    message.options.add(2, [0, 3, 0]);
    message.options.add(3, association);
    message.options.add(13, [0, 0]);
    message.options.add(24, *b"\x03lab\x07example\0");
    message.emit()
}

/// Steps of the client's target: what it waits for, an offer, its reply, a free address, time.
fn dhcp6_lease() -> Vec<u8> {
    let answer = |is_offer: u8| [3, is_offer, 0, 60, 90, 120, 225, 5, 0];
    [&[0, 0, 0][..], &answer(1), &[0], &answer(0), &[6, 5, 1, 0, 0], &answer(0), &[0, 0, 2, 9, 7, 0, 0]]
        .concat()
}

fn named<const N: usize>(seeds: [(&str, Vec<u8>); N]) -> Vec<Seed> {
    seeds.into_iter().map(|(name, bytes)| (name.to_owned(), bytes)).collect()
}

fn prefixed(front: &[u8], bytes: &[u8]) -> Vec<u8> {
    [front, bytes].concat()
}

/// One frame of every kind, for the classifier and everything behind it.
pub fn frames() -> [(&'static str, Vec<u8>); 14] {
    let tagged = {
        let mut bytes = vec![0; 4];
        let repr =
            VlanRepr { priority: 3, drop_eligible: false, id: VlanId::new(7), ethertype: EtherType::IPV4 };
        repr.emit(&mut bytes);
        frame(EtherType::VLAN, &prefixed(&bytes, &packet4(IpProtocol::TCP, &tcp(false, b"tagged"))))
    };
    let [(_, echo4), (_, unreachable4)] = icmpv4();
    let [(_, echo6), _] = icmpv6();
    [
        ("arp", frame(EtherType::ARP, &arp())),
        ("tcp4", frame(EtherType::IPV4, &packet4(IpProtocol::TCP, &tcp(false, b"hello")))),
        ("syn4", frame(EtherType::IPV4, &packet4(IpProtocol::TCP, &tcp(true, b"")))),
        ("udp4", frame(EtherType::IPV4, &packet4(IpProtocol::UDP, &udp4()))),
        ("echo4", frame(EtherType::IPV4, &packet4(IpProtocol::ICMPV4, &echo4))),
        ("unreachable4", frame(EtherType::IPV4, &packet4(IpProtocol::ICMPV4, &unreachable4))),
        ("udp6", frame(EtherType::IPV6, &packet6(IpProtocol::UDP, &udp6()))),
        ("echo6", frame(EtherType::IPV6, &packet6(IpProtocol::ICMPV6, &echo6))),
        ("chain6", frame(EtherType::IPV6, &chain6())),
        ("tagged", tagged),
        ("first4", frame(EtherType::IPV4, &fragment4(0, true, &udp4()[..8]))),
        ("last4", frame(EtherType::IPV4, &fragment4(8, false, &udp4()[8..]))),
        ("first6", frame(EtherType::IPV6, &fragment6(0, true, &udp6()[..8]))),
        ("last6", frame(EtherType::IPV6, &fragment6(8, false, &udp6()[8..]))),
    ]
}

fn fragment4(offset: u16, more: bool, part: &[u8]) -> Vec<u8> {
    let repr = Ipv4Repr {
        identification: 77,
        dont_fragment: false,
        more_fragments: more,
        fragment_offset: offset,
        ..Ipv4Repr::new(A4, B4, IpProtocol::UDP, part.len() as u16)
    };
    let mut bytes = vec![0; 20];
    repr.emit(&mut bytes);
    prefixed(&bytes, part)
}

fn fragment6(offset: u16, more: bool, part: &[u8]) -> Vec<u8> {
    let repr = FragmentRepr { next_header: IpProtocol::UDP, offset, more, identification: 77 };
    let mut bytes = vec![0; repr.emitted_len()];
    repr.emit(&mut bytes);
    packet6(IpProtocol::FRAGMENT, &prefixed(&bytes, part))
}

fn frame(ethertype: EtherType, payload: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; 14];
    EthernetRepr { dst: MAC_B, src: MAC_A, ethertype }.emit(&mut bytes);
    prefixed(&bytes, payload)
}

fn packet4(protocol: IpProtocol, payload: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; 20];
    Ipv4Repr::new(A4, B4, protocol, payload.len() as u16).emit(&mut bytes);
    prefixed(&bytes, payload)
}

fn packet6(next: IpProtocol, payload: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; 40];
    Ipv6Repr::new(A6, B6, next, payload.len() as u16).emit(&mut bytes);
    prefixed(&bytes, payload)
}

fn arp() -> Vec<u8> {
    let repr = ArpRepr::request(MAC_A, A4, B4);
    let mut bytes = vec![0; repr.emitted_len()];
    repr.emit(&mut bytes);
    bytes
}

/// Router alert, an unknown option and padding.
fn options4() -> Vec<u8> {
    let mut bytes = packet4(IpProtocol::UDP, &udp4());
    bytes.splice(20..20, [0x94, 4, 0, 0, 0x44, 5, 1, 2, 3, 1, 0, 0]);
    bytes[0] = 0x48;
    let total = bytes.len() as u16;
    bytes[2..4].copy_from_slice(&total.to_be_bytes());
    bytes[10..12].fill(0);
    let sum = Sum::of(&bytes[..32]).checksum();
    bytes[10..12].copy_from_slice(&sum.to_be_bytes());
    bytes
}

/// Hop-by-hop options, destination options and a fragment header before UDP.
fn chain6() -> Vec<u8> {
    let datagram = udp6();
    let mut payload = vec![60, 0, 5, 2, 0, 0, 1, 0];
    payload.extend_from_slice(&[44, 0, 1, 4, 0, 0, 0, 0]);
    payload.extend_from_slice(&[17, 0, 0, 0, 0, 0, 0, 9]);
    payload.extend_from_slice(&datagram);
    packet6(IpProtocol::HOP_BY_HOP, &payload)
}

fn udp4() -> Vec<u8> {
    datagram(Sum::pseudo_v4(A4, B4, IpProtocol::UDP, 8 + 5))
}

fn udp6() -> Vec<u8> {
    datagram(Sum::pseudo_v6(A6, B6, IpProtocol::UDP, 8 + 5))
}

fn datagram(pseudo: Sum) -> Vec<u8> {
    let mut bytes = vec![0; 8];
    UdpRepr { src_port: Port(5000), dst_port: Port(53), payload_len: 5 }.emit(&mut bytes);
    bytes.extend_from_slice(b"query");
    udp::fill_checksum(&mut bytes, pseudo);
    bytes
}

fn tcp(syn: bool, text: &[u8]) -> Vec<u8> {
    let seq = |n: u32| SeqNum(1000 + n);
    let options = TcpOptions {
        mss: syn.then_some(1460),
        window_scale: syn.then_some(7),
        sack_permitted: syn,
        sack: if syn {
            SackBlocks::EMPTY
        } else {
            [(seq(10), seq(20)), (seq(30), seq(40))].into_iter().collect()
        },
        timestamps: Some((1, 2)),
        ..TcpOptions::EMPTY
    };
    let repr = TcpRepr {
        src_port: Port(40_000),
        dst_port: Port(80),
        seq: seq(0),
        ack: (!syn).then_some(SeqNum(77)),
        flags: if syn { TcpFlags::SYN } else { TcpFlags::PSH | TcpFlags::ACK },
        window: 5000,
        urgent: 0,
        options,
    };
    let mut bytes = vec![0; repr.emitted_len()];
    repr.emit(&mut bytes);
    bytes.extend_from_slice(text);
    let length = bytes.len() as u16;
    firelane_wire::tcp::fill_checksum(&mut bytes, Sum::pseudo_v4(A4, B4, IpProtocol::TCP, length));
    bytes
}

fn icmpv4() -> [(&'static str, Vec<u8>); 2] {
    let quoted = packet4(IpProtocol::UDP, &udp4());
    let write = |repr: Icmpv4Repr<'_>| {
        let mut bytes = vec![0; repr.emitted_len()];
        repr.emit(&mut bytes);
        bytes
    };
    [
        ("echo", write(Icmpv4Repr::EchoRequest { identifier: 1, sequence: 2, data: b"ping" })),
        ("unreachable", write(Icmpv4Repr::Unreachable { reason: Icmpv4Unreachable::Port, quoted: &quoted })),
    ]
}

fn icmpv6() -> [(&'static str, Vec<u8>); 2] {
    let quoted = packet6(IpProtocol::UDP, &udp6());
    let write = |repr: Icmpv6Repr<'_>| {
        let mut bytes = vec![0; repr.emitted_len()];
        repr.emit(&mut bytes);
        firelane_wire::icmpv6::fill_checksum(&mut bytes, A6, B6);
        bytes
    };
    [
        ("echo", write(Icmpv6Repr::EchoRequest { identifier: 1, sequence: 2, data: b"ping" })),
        ("too-big", write(Icmpv6Repr::PacketTooBig { mtu: 1280, quoted: &quoted })),
    ]
}

fn ndp() -> [(&'static str, Vec<u8>); 3] {
    let write = |message, options: &[NdpOption<'_>]| {
        let repr = NdpRepr { message, options };
        let mut bytes = vec![0; 1 + repr.emitted_len()];
        repr.emit(&mut bytes[1..]);
        bytes
    };
    let advert = NdpMessage::RouterAdvert {
        hop_limit: 64,
        managed: false,
        other: true,
        preference: RouterPreference::High,
        lifetime: Duration::from_secs(1800),
        reachable: Duration::ZERO,
        retransmit: Duration::from_secs(1),
    };
    let prefix = PrefixInformation {
        prefix: Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 0),
        prefix_len: 64,
        on_link: true,
        autonomous: true,
        valid: PrefixInformation::INFINITE,
        preferred: Duration::from_secs(3600),
    };
    let options = [
        NdpOption::SourceLinkLayer(MAC_A),
        NdpOption::Prefix(prefix),
        NdpOption::Mtu(1500),
        NdpOption::RecursiveDns { lifetime: Duration::from_secs(60), servers: &[[0xfd; 16]] },
    ];
    let source = [NdpOption::SourceLinkLayer(MAC_A)];
    [
        ("solicit", write(NdpMessage::NeighbourSolicit { target: B6 }, &source)),
        ("advert", write(advert, &options)),
        (
            "redirect",
            write(NdpMessage::Redirect { target: B6, destination: B6 }, &[NdpOption::TargetLinkLayer(MAC_B)]),
        ),
    ]
}

/// A large TCP frame and a large UDP frame behind their virtio-net headers.
fn offload() -> [(&'static str, Vec<u8>); 2] {
    let header = |gso: u8, size: u16, start: u16, offset: u16| {
        let mut bytes = vec![1, gso, 0, 0];
        [size, start, offset].iter().for_each(|word| bytes.extend_from_slice(&word.to_le_bytes()));
        bytes
    };
    let [_, (_, tcp), _, (_, udp), ..] = frames();
    [
        ("tcp", [header(1, 1000, 34, 16), vec![0, 60], tcp].concat()),
        ("udp", [header(5, 500, 34, 6), vec![1, 30], udp].concat()),
    ]
}

/// Choices of several lengths: mutation makes scenarios of them.
fn scenarios() -> Vec<Seed> {
    let lengths = [40, 200, 800, 1600];
    lengths.into_iter().map(|len| (format!("random-{len}"), Random::new(len as u64).bytes(len))).collect()
}

/// Every frame, repaired.
fn lane_steps() -> Vec<u8> {
    let mut bytes = vec![0];
    for (_, frame) in frames() {
        bytes.push(0);
        bytes.extend_from_slice(&(frame.len() as u16).to_be_bytes());
        bytes.push(0xff);
        bytes.extend_from_slice(&frame);
    }
    bytes
}

/// Every frame, repaired, with a datagram sent between.
fn steps(station: u8) -> Vec<u8> {
    let mut bytes = vec![station];
    for (_, frame) in frames() {
        bytes.push(0);
        bytes.extend_from_slice(&(frame.len() as u16).to_be_bytes());
        bytes.push(0xff);
        bytes.extend_from_slice(&frame);
        bytes.extend_from_slice(&[7, 0, 1, 0x80, 40]);
    }
    bytes
}

/// A connection that is made, accepted, written to, read from and closed, by both versions of IP.
fn talk(world: u8) -> Vec<u8> {
    let mut bytes = vec![world];
    for v6 in [0, 1] {
        // SYN, ACK, accept, text, read, write, ACK, FIN, close, ACK; time between.
        bytes.extend_from_slice(&[9, 0x7c, v6, v6, 0, 0, 1, 0]);
        bytes.extend_from_slice(&[4, v6, 0, 0, 0, 13, 0, 0]);
        bytes.extend_from_slice(&[4, v6, 0, 16, 0, 13, 10, v6, 0xd0, 200]);
        bytes.extend_from_slice(&[13, 7, v6, 0xc0, 200, 4, v6, 0, 0, 0, 12]);
        bytes.extend_from_slice(&[4, v6, 0x80, 0, 0, 13, 14, v6, 4, v6, 0, 0, 0, 11, 0xa0, 9]);
    }
    bytes.extend_from_slice(&[13, 4, 0, 0, 99, 12, 13, 4, 0, 1, 99, 12]);
    bytes
}

fn commands() -> [(&'static str, Vec<u8>); 2] {
    let show = "dladm show-link\ndladm show-vnic -o link,over\ndladm show-linkprop -p mtu web0\n\
                flowadm show-flow -p\nflowadm show-flowprop iperf\nipadm show-addr web0/\nipadm show-if\n\
                dlstat -i 1 web0\nflowstat -r iperf\nflowstat -A\n";
    let change = "dladm create-etherstub vswitch2\ndladm create-vnic -l vswitch2 -p maxbw=1000M vnic3\n\
                  flowadm create-flow -l vnic3 protocol=tcp,local_port=443 -p maxbw=50M http-1\n\
                  flowadm set-flowprop -l vnic3 -p maxbw=100M http-1\nflowadm remove-flow http-1\n\
                  ipadm create-addr -T static -a 10.9.9.9/24 vnic3/v4\nipadm delete-addr vnic3/v4\n\
                  ipadm delete-if vnic3\ndladm reset-linkprop -t -p maxbw vnic3\ndladm delete-vnic vnic3\n";
    [("show", show.into()), ("change", change.into())]
}

fn models() -> [(&'static str, Vec<u8>); 3] {
    [
        ("two-tenants", include_bytes!("../../../examples/two-tenants.toml").to_vec()),
        ("generated-1", prefixed(b"|", &Random::new(1).bytes(300))),
        ("generated-2", prefixed(b"|", &Random::new(2).bytes(600))),
    ]
}

fn rules() -> [(&'static str, Vec<u8>); 2] {
    let said = "# in\nblock return-icmp(port-unr) in log body first on web0 all head 1\nskip 1 in all\n\
                @1 pass in quick on web0 proto tcp from !10.0.0.0 mask 255.0.0.0 port 1024 >< 65535 \\\n to pool/1 port = http \
                flags S/SA keep state (limit 9,strict,age 30/60) keep frags group 1\ncount in all\n";
    let other = "block return-rst out proto 6 from fd00::/8 to any port 5:9\nlog out tos 0x10 ttl 64 proto icmp from any to any \
                 icmp-type unreach code 3 with not frag,short\npass out proto tcp/udp from any port 1 <> 5 to any\n";
    [("in", said.into()), ("out", other.into())]
}

fn requests() -> [(&'static str, Vec<u8>); 2] {
    use firelane_api::paths::*;
    let collections = [
        STATUS,
        MODEL,
        LINKS,
        VNICS,
        ETHERSTUBS,
        FLOWS,
        ADDRS,
        IFS,
        NETSTACKS,
        LINK_STATS,
        FLOW_STATS,
        LINK_HISTORY,
        FLOW_HISTORY,
        "/v1/history/flows/bob-iperf?from=1&until=9&all=true",
        DROPS,
        OPENAPI,
        "/v1/links/web0/props",
        "/v1/flows/bob-iperf/props?persistent=true",
    ];
    let reads: String = collections.iter().map(|path| format!("GET {path}\n\n")).collect();
    let changes = [
        ("POST /v1/etherstubs", r#"{"name":"sw1"}"#),
        ("POST /v1/vnics", r#"{"name":"vnic3","vnic":{"over":"sw1","mac":"2:8:20:0:0:1"}}"#),
        (
            "POST /v1/flows",
            r#"{"name":"f1","flow":{"link":"vnic3","match":{"transport":"tcp","local_port":443}}}"#,
        ),
        ("PATCH /v1/flows/f1/props", r#"{"props":{"maxbw":"100M","priority":null}}"#),
        ("PATCH /v1/links/vnic3/props?temporary=true", r#"{"props":{"mtu":"9000"}}"#),
        ("POST /v1/addrs", r#"{"name":"web0/x","address":"10.0.0.99/24"}"#),
        ("DELETE /v1/addrs/web0/x", ""),
        ("DELETE /v1/flows/f1", ""),
        ("DELETE /v1/vnics/vnic3", ""),
    ];
    let changes: String = changes.iter().map(|(line, body)| format!("{line}\n{body}\n\n")).collect();
    [("reads", reads.into_bytes()), ("changes", changes.into_bytes())]
}
