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
        "tcp_pair" | "tcp_hostile" | "tcp_tables" => scenarios(),
        "model" => named(models()),
        "api" => named(requests()),
        _ => Vec::new(),
    }
}

fn named<const N: usize>(seeds: [(&str, Vec<u8>); N]) -> Vec<Seed> {
    seeds.into_iter().map(|(name, bytes)| (name.to_owned(), bytes)).collect()
}

fn prefixed(front: &[u8], bytes: &[u8]) -> Vec<u8> {
    [front, bytes].concat()
}

/// One frame of every kind, for the classifier and everything behind it.
pub fn frames() -> [(&'static str, Vec<u8>); 10] {
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
    ]
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

fn models() -> [(&'static str, Vec<u8>); 3] {
    [
        ("two-tenants", include_bytes!("../../../examples/two-tenants.toml").to_vec()),
        ("generated-1", prefixed(b"|", &Random::new(1).bytes(300))),
        ("generated-2", prefixed(b"|", &Random::new(2).bytes(600))),
    ]
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
