//! A netstack with tunnels, and a tester on the wire that speaks with it frame by frame: what goes through, what is told, and what ends
//! for which reason.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use firelane_frame::{Capabilities, Chain, Pools, PoolsConfig};
use firelane_lane::*;
use firelane_nat::{NatConfig, NatList};
use firelane_tunnel::{Arrived, Config, Gre, Kind, Tunnels};
use firelane_units::{
    DropReason, FlowId, LaneId, LinkId, Mtu, NatAction, NatEnd, NatLimits, NatPorts, NatRule, NatTarget,
    NetstackId, Port,
};
use firelane_wire::{
    ArpRepr, Ecn, EtherType, EthernetRepr, EthernetView, Icmpv4Repr, Icmpv4Unreachable, Icmpv4View,
    Icmpv6Repr, Icmpv6View, IpProtocol, Ipv4Repr, Ipv4View, Ipv6Repr, Ipv6View, icmpv6,
};
use firelane_world::*;

const HOST: NetstackId = NetstackId(1);
/// The wire's link and the netstack's port there.
const VNIC: LinkId = LinkId(1);
/// The tunnel's link, the tunnel's own port, and the netstack's.
const TUNNEL: LinkId = LinkId(20);
const TUNNEL_PORT: LinkId = LinkId(21);
const TUNNEL_VNIC: LinkId = LinkId(22);
const INSIDE: Mtu = Mtu::ETHERNET;

fn v4(text: &str) -> Ipv4Addr {
    text.parse().unwrap()
}

fn v6(text: &str) -> Ipv6Addr {
    text.parse().unwrap()
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

/// The host's end of a tunnel: 10.0.0.1 or fd00::1 here, 10.0.0.2 or fd00::2 there.
fn config(kind: Kind, is_v4: bool) -> Config {
    let [local, remote] = if is_v4 { ["10.0.0.1", "10.0.0.2"] } else { ["fd00::1", "fd00::2"] };
    Config { link: TUNNEL_PORT, kind, local: ip(local), remote: ip(remote), hops: 64, limit: Some(4) }
}

fn gre(key: Option<u32>, checksum: bool, sequence: bool) -> Kind {
    Kind::Gre(Gre { key, checksum, sequence })
}

struct Net {
    world: World,
    wire: RingDriver,
    pools: Pools,
    /// The tester's end of the tunnel.
    far: Tunnels,
    config: Config,
}

impl Net {
    /// A host with 172.16.0.1/24 and fd16::1/64 on a tunnel; where the tester is in reach by ARP without a question.
    fn new(lanes: u16, config: Config) -> Self {
        let mut world = World::new(lanes);
        let capabilities = Capabilities::plain(Mtu::ETHERNET);
        let (wire, theirs) = firelane_world::wire(capabilities);
        world.all(|| Control::AddLink(LinkConfig { link: LinkId(0), mtu: Mtu::ETHERNET }));
        let (kind, user) = (PortKind::Uplink, PortUser::Driver { through: LaneId(0) });
        let uplink = PortConfig { id: LinkId(9), over: LinkId(0), kind, user };
        world.add_port(uplink, vec![AnyDriver::Ring(theirs)]);
        let steering = firelane_classify::Steering::even(&world.lane_ids());
        world.all(|| {
            Control::AddNetstack(NetstackConfig { steering: steering.clone(), ..NetstackConfig::new(HOST) })
        });
        world.add_flow(plain_flow(FlowId(1), VNIC, None, None));
        world.add_port(vnic(VNIC.0, 0, 1, 1, PortUser::Netstack(HOST)), vec![]);
        world.all(|| Control::AddLink(LinkConfig { link: TUNNEL, mtu: INSIDE }));
        let has_order = matches!(config.kind, Kind::Gre(Gre { sequence: true, .. }));
        let through = has_order.then_some(LaneId(0));
        let user = PortUser::Tunnel { netstack: HOST, through };
        let port = PortConfig { id: TUNNEL_PORT, over: TUNNEL, kind: PortKind::Uplink, user };
        world.add_port(port, vec![]);
        world.add_flow(plain_flow(FlowId(2), TUNNEL_VNIC, None, None));
        world.add_port(vnic(TUNNEL_VNIC.0, TUNNEL.0, 22, 2, PortUser::Netstack(HOST)), vec![]);
        let setup = TunnelSetup { config, mac: mac(22) };
        world.all(|| Control::SetTunnel(HOST, TUNNEL_PORT, Some(setup)));
        for (link, address) in [
            (VNIC, "10.0.0.1/24"),
            (VNIC, "fd00::1/64"),
            (TUNNEL_VNIC, "172.16.0.1/24"),
            (TUNNEL_VNIC, "fd16::1/64"),
        ] {
            let address = address.parse().unwrap();
            world.all(|| Control::AddAddress(HOST, link, address));
        }
        let mut far = Tunnels::default();
        assert!(far.set(Config { local: config.remote, remote: config.local, ..config }));
        let pools = Pools::new(PoolsConfig { small_slots: 256, large_slots: 16 });
        let mut net = Self { world, wire, pools, far, config };
        net.greet();
        net.go();
        net
    }

    /// The tester asks for the host's addresses, so that the host knows his.
    fn greet(&mut self) {
        let request = ArpRepr::request(mac(2), v4("10.0.0.2"), v4("10.0.0.1"));
        let mut arp = vec![0; request.emitted_len()];
        request.emit(&mut arp);
        self.send_as(EtherType::ARP, &arp);
        // RFC 4861 §4.3: a solicitation with its sender's address.
        let mut solicit = vec![0; 32];
        solicit[0] = 135;
        solicit[8..24].copy_from_slice(&v6("fd00::1").octets());
        solicit[24..26].copy_from_slice(&[1, 1]);
        solicit[26..32].copy_from_slice(&mac(2).0);
        let (src, dst) = (v6("fd00::2"), v6("fd00::1"));
        icmpv6::fill_checksum(&mut solicit, src, dst);
        let mut packet = vec![0; 40];
        Ipv6Repr { hop_limit: 255, ..Ipv6Repr::new(src, dst, IpProtocol::ICMPV6, 32) }.emit(&mut packet);
        packet.extend(solicit);
        self.send_as(EtherType::IPV6, &packet);
    }

    /// Packets that leave by the wire and are for the tester.
    fn go(&mut self) -> Vec<Vec<u8>> {
        self.world.run();
        let mut chain = Chain::new();
        while self.wire.rx.pop_into(&mut chain, 64) > 0 {}
        let mut packets = Vec::new();
        while let Some(frame) = chain.pop() {
            let eth = EthernetView::parse(frame.as_slice()).unwrap();
            if eth.dst() == mac(2) {
                packets.push(frame.as_slice()[14..].to_vec());
            }
        }
        packets
    }

    /// The tester sends a packet; what comes back.
    fn send(&mut self, packet: &[u8]) -> Vec<Vec<u8>> {
        let ethertype = if packet[0] >> 4 == 4 { EtherType::IPV4 } else { EtherType::IPV6 };
        self.send_as(ethertype, packet)
    }

    fn send_as(&mut self, ethertype: EtherType, packet: &[u8]) -> Vec<Vec<u8>> {
        let mut frame = self.pools.copy_of(packet).unwrap();
        EthernetRepr { dst: mac(1), src: mac(2), ethertype }.emit(frame.prepend(14));
        let mut chain = Chain::from_iter([frame]);
        self.wire.tx.push_chain(&mut chain);
        self.go()
    }

    /// The tester's packet with `inner` in the tunnel.
    fn cover(&mut self, inner: &[u8]) -> Vec<u8> {
        let outer = self.far.encapsulate(TUNNEL_PORT, inner, Mtu::new(9000).unwrap()).unwrap();
        outside(self.config.remote, self.config.local, outer.protocol, &[outer.head(), inner].concat())
    }

    /// What is in a packet of the host's.
    fn uncover(&mut self, packet: &[u8]) -> Vec<u8> {
        let (protocol, src, dst, ecn, payload) = match packet[0] >> 4 {
            4 => {
                let view = Ipv4View::parse(packet).unwrap();
                assert!(view.is_checksum_valid() && view.ttl() == 64);
                (view.protocol(), view.src().into(), view.dst().into(), view.ecn(), view.payload())
            }
            _ => {
                let view = Ipv6View::parse(packet).unwrap();
                assert_eq!(view.hop_limit(), 64);
                let (protocol, payload) = match view.next_header() {
                    IpProtocol::DESTINATION_OPTIONS => (IpProtocol(view.payload()[0]), &view.payload()[8..]),
                    protocol => (protocol, view.payload()),
                };
                (protocol, view.src().into(), view.dst().into(), view.ecn(), payload)
            }
        };
        assert_eq!((src, dst), (self.config.local, self.config.remote));
        let inner = self.far.decapsulate(&Arrived { protocol, src, dst, ecn, payload }).unwrap();
        payload[inner.at..inner.at + inner.len].to_vec()
    }

    fn drops(&self, reason: DropReason) -> u64 {
        self.world.counters().drops.of(reason)
    }
}

fn outside(src: IpAddr, dst: IpAddr, protocol: IpProtocol, payload: &[u8]) -> Vec<u8> {
    match (src, dst) {
        (IpAddr::V4(src), IpAddr::V4(dst)) => {
            let mut header = vec![0; 20];
            Ipv4Repr::new(src, dst, protocol, payload.len() as u16).emit(&mut header);
            [header, payload.to_vec()].concat()
        }
        (IpAddr::V6(src), IpAddr::V6(dst)) => {
            let mut header = vec![0; 40];
            Ipv6Repr::new(src, dst, protocol, payload.len() as u16).emit(&mut header);
            [header, payload.to_vec()].concat()
        }
        _ => unreachable!("both ends are of one family"),
    }
}

/// An echo request from 172.16.0.2 or fd16::2 with so many bytes.
fn ping(is_v4: bool, len: usize) -> Vec<u8> {
    let data = vec![0xa5; len];
    if is_v4 {
        let message = Icmpv4Repr::EchoRequest { identifier: 7, sequence: 1, data: &data };
        let mut body = vec![0; message.emitted_len()];
        message.emit(&mut body);
        return outside(ip("172.16.0.2"), ip("172.16.0.1"), IpProtocol::ICMPV4, &body);
    }
    let message = Icmpv6Repr::EchoRequest { identifier: 7, sequence: 1, data: &data };
    let mut body = vec![0; message.emitted_len()];
    message.emit(&mut body);
    icmpv6::fill_checksum(&mut body, v6("fd16::2"), v6("fd16::1"));
    outside(ip("fd16::2"), ip("fd16::1"), IpProtocol::ICMPV6, &body)
}

fn is_pong(packet: &[u8], len: usize) -> bool {
    match packet[0] >> 4 {
        4 => {
            let view = Ipv4View::parse(packet).unwrap();
            let message = Icmpv4View::parse(view.payload()).unwrap();
            assert!(view.is_checksum_valid() && message.is_checksum_valid());
            assert_eq!((view.src(), view.dst()), (v4("172.16.0.1"), v4("172.16.0.2")));
            matches!(Icmpv4Repr::parse(&message), Ok(Icmpv4Repr::EchoReply { data, .. }) if data.len() == len)
        }
        _ => {
            let view = Ipv6View::parse(packet).unwrap();
            let message = Icmpv6View::parse(view.payload()).unwrap();
            assert!(message.is_checksum_valid(view.src(), view.dst()));
            matches!(Icmpv6Repr::parse(&message), Ok(Icmpv6Repr::EchoReply { data, .. }) if data.len() == len)
        }
    }
}

/// What an ICMPv4 error says, and what it quotes.
fn error_v4(packet: &[u8]) -> (Ipv4Addr, Icmpv4Unreachable, Vec<u8>) {
    let view = Ipv4View::parse(packet).unwrap();
    let message = Icmpv4View::parse(view.payload()).unwrap();
    assert!(message.is_checksum_valid());
    match Icmpv4Repr::parse(&message) {
        Ok(Icmpv4Repr::Unreachable { reason, quoted }) => (view.dst(), reason, quoted.to_vec()),
        other => panic!("{other:?} is no error"),
    }
}

#[test]
fn echoes_go_through_every_kind_of_tunnel() {
    let kinds = [Kind::Ip, gre(None, false, false), gre(Some(7), true, true)];
    for (kind, outer_v4, inner_v4, lanes) in
        kinds.into_iter().flat_map(|it| [(it, true), (it, false)]).flat_map(|(kind, outer)| {
            [(kind, outer, true, 1), (kind, outer, false, 1), (kind, outer, true, 3), (kind, outer, false, 3)]
        })
    {
        let mut net = Net::new(lanes, config(kind, outer_v4));
        for len in [0, 100, 1300] {
            let packet = net.cover(&ping(inner_v4, len));
            let back = net.send(&packet);
            assert_eq!(back.len(), 1, "{kind:?}, v4 {outer_v4} {inner_v4}, {lanes} lanes, {len} bytes");
            let inner = net.uncover(&back[0]);
            assert!(is_pong(&inner, len));
        }
        net.world.check_conservation();
        let snapshot = net.world.lanes[0].snapshot();
        let port = snapshot.ports.iter().find(|(id, _)| *id == TUNNEL_VNIC).unwrap().1;
        assert!(port.inward.packets >= 3 && port.outward.packets >= 3, "the link has counted them");
    }
}

/// RFC 6438 §3: outside, the label is all that tells the flows inside apart.
#[test]
fn a_flow_inside_has_a_label_of_its_own_outside() {
    let mut net = Net::new(1, config(Kind::Ip, false));
    let mut label = |inner_v4: bool| {
        let packet = net.cover(&ping(inner_v4, 10));
        let back = net.send(&packet);
        Ipv6View::parse(&back[0]).unwrap().flow_label()
    };
    let labels = [true, true, false, false].map(&mut label);
    assert!(labels[0] == labels[1] && labels[2] == labels[3] && labels[0] != labels[2], "{labels:x?}");
    assert!(!labels.contains(&0), "{labels:x?}");
}

#[test]
fn what_is_too_long_outside_comes_in_pieces_and_goes_in_pieces() {
    let mut net = Net::new(1, config(Kind::Ip, true));
    // 1500 bytes inside: its answer does not fit outside and may be cut there.
    let packet = net.cover(&ping(true, 1472));
    let half = (packet.len() - 20) / 16 * 8;
    let payload = &packet[20..];
    let pieces = [(0, &payload[..half], true), (half, &payload[half..], false)].map(|(at, part, more)| {
        let mut header = vec![0; 20];
        let base = Ipv4Repr::new(v4("10.0.0.2"), v4("10.0.0.1"), IpProtocol::IPV4, part.len() as u16);
        let (identification, fragment_offset) = (9, at as u16);
        Ipv4Repr { identification, more_fragments: more, fragment_offset, ..base }.emit(&mut header);
        [&header, part].concat()
    });
    let back: Vec<_> = pieces.iter().flat_map(|piece| net.send(piece)).collect();
    assert_eq!(back.len(), 2, "the answer is cut outside");
    let views: Vec<_> = back.iter().map(|it| Ipv4View::parse(it).unwrap()).collect();
    assert!(views.iter().all(|view| view.is_fragment() && view.protocol() == IpProtocol::IPV4));
    let mut whole: Vec<_> = views.iter().map(|view| (view.fragment_offset(), view.payload())).collect();
    whole.sort();
    let inner: Vec<u8> = whole.into_iter().flat_map(|(_, part)| part.to_vec()).collect();
    assert!(is_pong(&inner, 1472));
    net.world.check_conservation();
}

#[test]
fn hostile_packets_end_for_a_reason() {
    let good = ping(true, 40);
    let (here, there) = (ip("10.0.0.1"), ip("10.0.0.2"));
    let cut = |packet: &[u8], len: usize| packet[..len].to_vec();
    let gre_of = |flags: [u8; 2], ethertype: [u8; 2], rest: &[u8]| [&flags[..], &ethertype, rest].concat();
    let plain = config(Kind::Ip, true);
    let with = |kind| config(kind, true);
    type Case = (&'static str, Config, Vec<u8>, DropReason);
    let cases: Vec<Case> = vec![
        (
            "from somebody else",
            plain,
            outside(ip("10.0.0.3"), here, IpProtocol::IPV4, &good),
            DropReason::TunnelStranger,
        ),
        (
            "of another version",
            plain,
            outside(there, here, IpProtocol::IPV6, &good),
            DropReason::TunnelBadPacket,
        ),
        (
            "cut off",
            plain,
            outside(there, here, IpProtocol::IPV4, &cut(&good, 40)),
            DropReason::TunnelBadPacket,
        ),
        ("nothing inside", plain, outside(there, here, IpProtocol::IPV4, &[]), DropReason::TunnelBadPacket),
        (
            "version 9",
            plain,
            outside(there, here, IpProtocol::IPV4, &[&[0x95], &good[1..]].concat()),
            DropReason::TunnelBadPacket,
        ),
        (
            "an inner source that is ours",
            plain,
            outside(
                there,
                here,
                IpProtocol::IPV4,
                &outside(ip("172.16.0.1"), ip("172.16.0.1"), IpProtocol::UDP, &[0; 8]),
            ),
            DropReason::Martian,
        ),
        (
            "a loopback source inside",
            plain,
            outside(
                there,
                here,
                IpProtocol::IPV6,
                &outside(ip("::1"), ip("fd16::1"), IpProtocol::UDP, &[0; 8]),
            ),
            DropReason::Martian,
        ),
        (
            "a mapped source inside (RFC 4213 §3.6)",
            plain,
            outside(
                there,
                here,
                IpProtocol::IPV6,
                &outside(ip("::ffff:1.2.3.4"), ip("fd16::1"), IpProtocol::UDP, &[0; 8]),
            ),
            DropReason::Martian,
        ),
        (
            "a tunnel in the tunnel to nobody",
            plain,
            outside(
                there,
                here,
                IpProtocol::IPV4,
                &outside(ip("172.16.0.2"), ip("172.16.0.1"), IpProtocol::IPV4, &good),
            ),
            DropReason::UnknownProtocol,
        ),
        (
            "no GRE tunnel",
            plain,
            outside(there, here, IpProtocol::GRE, &gre_of([0, 0], [8, 0], &good)),
            DropReason::UnknownProtocol,
        ),
        (
            "a wrong key",
            with(gre(Some(1), false, false)),
            outside(
                there,
                here,
                IpProtocol::GRE,
                &gre_of([0x20, 0], [8, 0], &[&[0, 0, 0, 2], &good[..]].concat()),
            ),
            DropReason::TunnelStranger,
        ),
        (
            "no checksum where there must be one",
            with(gre(None, true, false)),
            outside(there, here, IpProtocol::GRE, &gre_of([0, 0], [8, 0], &good)),
            DropReason::GreChecksum,
        ),
        (
            "a wrong checksum",
            with(gre(None, true, false)),
            outside(
                there,
                here,
                IpProtocol::GRE,
                &gre_of([0x80, 0], [8, 0], &[&[1, 2, 0, 0], &good[..]].concat()),
            ),
            DropReason::GreChecksum,
        ),
        (
            "routing",
            with(gre(None, false, false)),
            outside(there, here, IpProtocol::GRE, &gre_of([0x40, 0], [8, 0], &good)),
            DropReason::GreHeader,
        ),
        (
            "version 1",
            with(gre(None, false, false)),
            outside(there, here, IpProtocol::GRE, &gre_of([0x20, 1], [0x88, 0x0b], &good)),
            DropReason::GreHeader,
        ),
        (
            "Ethernet in GRE",
            with(gre(None, false, false)),
            outside(there, here, IpProtocol::GRE, &gre_of([0, 0], [0x65, 0x58], &good)),
            DropReason::GreProtocol,
        ),
        (
            "no number",
            with(gre(None, false, true)),
            outside(there, here, IpProtocol::GRE, &gre_of([0, 0], [8, 0], &good)),
            DropReason::GreOrder,
        ),
    ];
    for (what, config, packet, reason) in cases {
        let mut net = Net::new(1, config);
        let back = net.send(&packet);
        assert_eq!((net.drops(reason), net.world.counters().drops.total()), (1, 1), "{what}");
        let is_told = reason == DropReason::UnknownProtocol;
        assert_eq!(back.len(), usize::from(is_told), "{what}: {back:x?}");
        net.world.check_conservation();
        // The tunnel works on.
        let packet = net.cover(&ping(true, 40));
        let back = net.send(&packet);
        assert_eq!(back.len(), 1, "{what}");
        assert!(is_pong(&net.uncover(&back[0]), 40));
    }
}

#[test]
fn a_mark_outside_is_told_inside_or_ends_what_does_not_understand() {
    let mut net = Net::new(1, config(Kind::Ip, true));
    let marked = |inner: &[u8]| {
        let mut header = vec![0; 20];
        let (src, dst) = (v4("10.0.0.2"), v4("10.0.0.1"));
        Ipv4Repr { ecn: Ecn::Congested, ..Ipv4Repr::new(src, dst, IpProtocol::IPV4, inner.len() as u16) }
            .emit(&mut header);
        [&header, inner].concat()
    };
    assert!(net.send(&marked(&ping(true, 8))).is_empty());
    assert_eq!(net.drops(DropReason::TunnelCongested), 1);
    let mut capable = ping(true, 8);
    firelane_tunnel::set_ecn(&mut capable, Ecn::Capable0);
    let back = net.send(&marked(&capable));
    assert!(is_pong(&net.uncover(&back[0]), 8));
    net.world.check_conservation();
}

#[test]
fn a_small_path_outside_is_told_inside() {
    let mut net = Net::new(2, config(Kind::Ip, true));
    let dont_fragment = |packet: &[u8]| {
        let view = Ipv4View::parse(packet).unwrap();
        let repr = Ipv4Repr { dont_fragment: true, ..Ipv4Repr::parse(&view) };
        let mut packet = packet.to_vec();
        repr.emit(&mut packet);
        packet
    };
    // The host's own answers may be cut, so the large packet is one that it forwards: from the tunnel back into it.
    let on = firelane_ip::Forwarding::ON;
    let steering = firelane_classify::Steering::even(&net.world.lane_ids());
    net.world.all(|| {
        let steering = steering.clone();
        Control::Tune(NetstackConfig { forwarding: on, steering, ..NetstackConfig::new(HOST) })
    });
    let transit = |len: usize| {
        dont_fragment(&outside(ip("172.16.0.9"), ip("172.16.0.2"), IpProtocol::UDP, &vec![0; len]))
    };
    let packet = net.cover(&transit(1400));
    let sent = net.send(&packet);
    assert_eq!(sent.len(), 1);
    assert_eq!(net.uncover(&sent[0]).len(), 1420);
    assert!(Ipv4View::parse(&sent[0]).unwrap().dont_fragment(), "RFC 2003 §3.1");
    // A router outside says 1400.
    let reason = Icmpv4Unreachable::FragmentationNeeded { mtu: 1400 };
    let message = Icmpv4Repr::Unreachable { reason, quoted: &sent[0][..28] };
    let mut body = vec![0; message.emitted_len()];
    message.emit(&mut body);
    let told = outside(ip("10.0.0.2"), ip("10.0.0.1"), IpProtocol::ICMPV4, &body);
    assert!(net.send(&told).is_empty());
    let packet = net.cover(&transit(1400));
    let back = net.send(&packet);
    assert_eq!(back.len(), 1);
    let inner = net.uncover(&back[0]);
    let (to, reason, quoted) = error_v4(&inner);
    assert_eq!((to, reason), (v4("172.16.0.9"), Icmpv4Unreachable::FragmentationNeeded { mtu: 1380 }));
    assert_eq!(quoted[16..20], v4("172.16.0.2").octets());
    assert_eq!(net.drops(DropReason::TooBig), 1);
    // Somebody who quotes no packet of the tunnel's is not believed.
    let packet = net.cover(&transit(1360));
    let sent = net.send(&packet);
    let mut foreign = sent[0][..28].to_vec();
    foreign[16..20].copy_from_slice(&[10, 0, 0, 77]);
    let message = Icmpv4Repr::Unreachable {
        reason: Icmpv4Unreachable::FragmentationNeeded { mtu: 700 },
        quoted: &foreign,
    };
    let mut body = vec![0; message.emitted_len()];
    message.emit(&mut body);
    net.send(&outside(ip("10.0.0.2"), ip("10.0.0.1"), IpProtocol::ICMPV4, &body));
    let packet = net.cover(&transit(1360));
    assert_eq!(net.send(&packet).len(), 1);
    net.world.check_conservation();
}

#[test]
fn an_error_outside_is_told_inside() {
    for outer_v4 in [true, false] {
        for kind in [Kind::Ip, gre(Some(5), true, false)] {
            let mut net = Net::new(1, config(kind, outer_v4));
            let on = firelane_ip::Forwarding::ON;
            net.world.all(|| Control::Tune(NetstackConfig { forwarding: on, ..NetstackConfig::new(HOST) }));
            let transit = outside(ip("172.16.0.9"), ip("172.16.0.2"), IpProtocol::UDP, &[0; 60]);
            let packet = net.cover(&transit);
            let sent = net.send(&packet);
            let told = if outer_v4 {
                let reason = Icmpv4Unreachable::Protocol;
                let message = Icmpv4Repr::Unreachable { reason, quoted: &sent[0] };
                let mut body = vec![0; message.emitted_len()];
                message.emit(&mut body);
                outside(ip("10.0.0.2"), ip("10.0.0.1"), IpProtocol::ICMPV4, &body)
            } else {
                let reason = firelane_wire::Icmpv6Unreachable::Address;
                let message = Icmpv6Repr::Unreachable { reason, quoted: &sent[0] };
                let mut body = vec![0; message.emitted_len()];
                message.emit(&mut body);
                icmpv6::fill_checksum(&mut body, v6("fd00::2"), v6("fd00::1"));
                outside(ip("fd00::2"), ip("fd00::1"), IpProtocol::ICMPV6, &body)
            };
            let back = net.send(&told);
            assert_eq!(back.len(), 1, "{kind:?} {outer_v4}");
            let inner = net.uncover(&back[0]);
            let (to, reason, quoted) = error_v4(&inner);
            assert_eq!((to, reason), (v4("172.16.0.9"), Icmpv4Unreachable::Host));
            assert_eq!(quoted[12..20], transit[12..20]);
            net.world.check_conservation();
        }
    }
}

/// Who sends into a tunnel under another address outside is told under his own, though the tunnel knows the other (Linux:
/// `icmp_ndo_send`).
#[test]
fn who_was_translated_before_the_tunnel_is_told_too() {
    for lanes in [1, 2] {
        let mut net = Net::new(lanes, config(Kind::Ip, true));
        let steering = firelane_classify::Steering::even(&net.world.lane_ids());
        let forwards =
            NetstackConfig { forwarding: firelane_ip::Forwarding::ON, steering, ..NetstackConfig::new(HOST) };
        net.world.all(|| Control::Tune(forwards.clone()));
        let from = NatEnd { prefix: "10.0.0.0/24".parse().ok(), ..NatEnd::default() };
        let action = NatAction::Map(NatTarget::OfLink, NatPorts::Range(Port(20_000), Port(29_999)));
        let rules = vec![NatRule { from, ..NatRule::new(TUNNEL_VNIC, action) }];
        let nat = Arc::new(NatList::new(NatConfig { rules, limits: NatLimits::default() }));
        net.world.all(|| Control::SetNat(HOST, Arc::clone(&nat)));
        let datagram = |len: u16| {
            let mut text = [5000_u16, 53, 8 + len, 0].map(u16::to_be_bytes).concat();
            text.resize(8 + usize::from(len), 0);
            let packet = outside(ip("10.0.0.2"), ip("172.16.0.2"), IpProtocol::UDP, &text);
            let view = Ipv4View::parse(&packet).unwrap();
            let repr = Ipv4Repr { dont_fragment: true, ..Ipv4Repr::parse(&view) };
            let mut packet = packet.clone();
            repr.emit(&mut packet);
            packet
        };
        let is_about = |back: &[Vec<u8>], reason: Icmpv4Unreachable, sent: &[u8]| {
            assert_eq!(back.len(), 1, "{lanes} lanes, {reason:?}");
            let (to, why, quoted) = error_v4(&back[0]);
            assert_eq!((to, why), (v4("10.0.0.2"), reason));
            assert!(Ipv4View::parse_quoted(&quoted).unwrap().is_checksum_valid());
            assert_eq!(quoted[12..28], sent[12..28], "as it was sent");
        };
        let sent = net.send(&datagram(1300));
        assert_eq!(sent.len(), 1);
        assert_eq!(net.uncover(&sent[0])[12..16], v4("172.16.0.1").octets(), "it is translated");
        let mut tells = |reason| {
            let message = Icmpv4Repr::Unreachable { reason, quoted: &sent[0][..548] };
            let mut body = vec![0; message.emitted_len()];
            message.emit(&mut body);
            net.send(&outside(ip("10.0.0.2"), ip("10.0.0.1"), IpProtocol::ICMPV4, &body))
        };
        let back = tells(Icmpv4Unreachable::Protocol);
        is_about(&back, Icmpv4Unreachable::Host, &datagram(1300));
        assert!(tells(Icmpv4Unreachable::FragmentationNeeded { mtu: 1300 }).is_empty());
        let back = net.send(&datagram(1300));
        is_about(&back, Icmpv4Unreachable::FragmentationNeeded { mtu: 1280 }, &datagram(1300));
        assert_eq!(net.drops(DropReason::TooBig), 1);
        assert_eq!(net.send(&datagram(1200)).len(), 1);
        net.world.check_conservation();
    }
}

#[test]
fn a_way_that_leads_into_the_tunnel_itself_ends() {
    let mut net = Net::new(1, config(Kind::Ip, true));
    let transit = net.cover(&ping(true, 8));
    assert_eq!(net.send(&transit).len(), 1);
    let round =
        RouteConfig { gateway: None, ..RouteConfig::on_link("10.0.0.2/32".parse().unwrap(), TUNNEL_VNIC) };
    net.world.all(|| Control::AddRoute(HOST, round));
    assert!(net.send(&transit).is_empty());
    assert_eq!(net.drops(DropReason::TunnelLoop), 1);
    net.world.all(|| Control::RemoveRoute(HOST, round));
    assert_eq!(net.send(&transit).len(), 1);
    // Its own end goes away: there is no tunnel then, and who sends into it is told.
    net.world.all(|| Control::RemoveAddress(HOST, VNIC, ip("10.0.0.1")));
    assert!(net.send(&transit).is_empty());
    net.world.all(|| Control::SetTunnel(HOST, TUNNEL_PORT, None));
    net.world.check_conservation();
}

#[test]
fn a_tunnel_that_has_gone_is_an_unknown_protocol() {
    let mut net = Net::new(1, config(Kind::Ip, true));
    let packet = net.cover(&ping(true, 8));
    net.world.all(|| Control::SetTunnel(HOST, TUNNEL_PORT, None));
    let back = net.send(&packet);
    let (to, reason, _) = error_v4(&back[0]);
    assert_eq!((to, reason), (v4("10.0.0.2"), Icmpv4Unreachable::Protocol));
    assert_eq!(net.drops(DropReason::UnknownProtocol), 1);
    net.world.check_conservation();
}
