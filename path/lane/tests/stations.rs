//! A station that is no Firelane: raw frames into a netstack, and what comes back. And frames of any bytes.

use std::net::Ipv4Addr;

use firelane_frame::{Capabilities, Chain, Pools, PoolsConfig};
use firelane_lane::*;
use firelane_units::{DropReason, FlowId, LaneId, LinkId};
use firelane_wire::{
    ArpOperation, ArpRepr, EtherType, EthernetRepr, Icmpv4Repr, IpProtocol, Ipv4Repr, UdpRepr,
};
use firelane_world::*;
use proptest::prelude::*;

/// Station 7 on the same etherstub as netstack 2.
struct Station {
    world: World,
    wire: RingDriver,
    pools: Pools,
}

const US: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 7);
const STACK: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);

impl Station {
    fn new(lanes: u16) -> Self {
        let mut world = two_stacks(lanes, MTU);
        world.add_flow(plain_flow(FlowId(7), LinkId(7), None, None));
        let (wire, end) = wire(Capabilities::plain(MTU));
        world.add_port(vnic(7, 0, 7, 7, PortUser::Driver { through: LaneId(0) }), vec![end.into()]);
        world.run();
        let pools = Pools::new(PoolsConfig { small_slots: 256, large_slots: 1 });
        let mut station = Self { world, wire, pools };
        station.received();
        station
    }

    fn send(&mut self, bytes: &[u8]) {
        let mut chain = Chain::new();
        chain.push(self.pools.copy_of(bytes).unwrap());
        self.wire.tx.push_chain(&mut chain);
        self.world.run();
    }

    fn received(&mut self) -> Vec<Vec<u8>> {
        let mut chain = Chain::new();
        self.wire.rx.pop_into(&mut chain, 1000);
        chain.iter().map(|frame| frame.as_slice().to_vec()).collect()
    }

    /// Asks for the netstack's address, by which it learns ours.
    fn resolve(&mut self) -> Vec<Vec<u8>> {
        let arp = ArpRepr {
            operation: ArpOperation::Request,
            sender_mac: mac(7),
            sender_ip: US,
            target_mac: firelane_units::MacAddr::ZERO,
            target_ip: STACK,
        };
        let mut body = vec![0; arp.emitted_len()];
        arp.emit(&mut body);
        let ask = frame(firelane_units::MacAddr::BROADCAST, EtherType::ARP, &body);
        self.send(&ask);
        self.received()
    }
}

fn frame(dst: firelane_units::MacAddr, ethertype: EtherType, body: &[u8]) -> Vec<u8> {
    let header = EthernetRepr { dst, src: mac(7), ethertype };
    let mut bytes = vec![0; header.emitted_len()];
    header.emit(&mut bytes);
    bytes.extend_from_slice(body);
    bytes
}

fn ipv4(protocol: IpProtocol, payload: &[u8]) -> Vec<u8> {
    let header = Ipv4Repr::new(US, STACK, protocol, payload.len() as u16);
    let mut packet = vec![0; header.emitted_len()];
    header.emit(&mut packet);
    packet.extend_from_slice(payload);
    frame(mac(2), EtherType::IPV4, &packet)
}

fn echo(data: &[u8]) -> Vec<u8> {
    let message = Icmpv4Repr::EchoRequest { identifier: 1, sequence: 2, data };
    let mut bytes = vec![0; message.emitted_len()];
    message.emit(&mut bytes);
    ipv4(IpProtocol::ICMPV4, &bytes)
}

#[test]
fn a_ping_is_answered() {
    for lanes in [1, 2, 4] {
        let mut station = Station::new(lanes);
        let answers = station.resolve();
        assert_eq!(answers.len(), 1, "one netstack has the address");
        assert_eq!((&answers[0][..6], &answers[0][6..12]), (&mac(7).0[..], &mac(2).0[..]));
        station.send(&echo(b"payload"));
        let answers = station.received();
        assert_eq!(answers.len(), 1);
        // Type 0 is the answer; identifier, sequence and data come back.
        assert_eq!(answers[0][34], 0);
        assert_eq!(&answers[0][38..], [&[0, 1, 0, 2][..], b"payload"].concat());
        station.world.check_conservation();
    }
}

/// The home lane hears where an address is, and that it has moved, though it may be another one that sends there.
#[test]
fn an_address_that_moves_moves_in_every_lane() {
    let moving = Ipv4Addr::new(10, 0, 0, 66);
    let said = |operation, sender_mac, target_ip| {
        let packet = ArpRepr { operation, sender_mac, sender_ip: moving, target_mac: mac(2), target_ip };
        let mut body = vec![0; packet.emitted_len()];
        packet.emit(&mut body);
        frame(firelane_units::MacAddr::BROADCAST, EtherType::ARP, &body)
    };
    for port in 5000..5008 {
        let mut station = Station::new(2);
        let mut end = station.world.bind(2, 1, 0, &format!("10.0.0.2:{port}"));
        let mut came_after = |arp: Vec<u8>| {
            station.world.send_to(&mut end, 1, (moving, 9).into(), b"a datagram");
            station.world.run();
            station.send(&arp);
            station.world.send_to(&mut end, 1, (moving, 9).into(), b"a datagram");
            station.world.run();
            station.received().iter().filter(|frame| frame[12..14] == [8, 0]).count()
        };
        let before = came_after(said(ArpOperation::Reply, mac(9), STACK));
        let after = came_after(said(ArpOperation::Request, mac(7), moving));
        assert_eq!((before, after), (0, 1), "port {port}");
    }
}

#[test]
fn a_datagram_for_nobody_is_answered_with_an_error() {
    let mut station = Station::new(1);
    station.resolve();
    let ports =
        UdpRepr { src_port: firelane_units::Port(9), dst_port: firelane_units::Port(9), payload_len: 0 };
    let mut bytes = vec![0; 8];
    ports.emit(&mut bytes);
    station.send(&ipv4(IpProtocol::UDP, &bytes));
    assert_eq!(station.world.counters().drops.of(DropReason::NoSocket), 1);
    let answers = station.received();
    // Type 3, code 3: port unreachable.
    assert_eq!((answers.len(), &answers[0][34..36]), (1, &[3, 3][..]));
    station.world.check_conservation();
}

#[test]
fn frames_that_wait_in_a_netstack_are_counted_when_it_ends() {
    let mut world = two_stacks(1, MTU);
    // Nobody has the address, so the SYN waits for an answer.
    let _stream = world.connect(1, 0, "10.0.0.99:80");
    world.run();
    assert_eq!(world.lanes[0].snapshot().held, 1);
    world.all(|| Control::RemovePort(LinkId(1)));
    world.all(|| Control::RemoveNetstack(firelane_units::NetstackId(1)));
    world.check_conservation();
    assert_eq!(world.lanes[0].snapshot().held, 0);

    let _stream = world.connect(2, 0, "10.0.0.99:80");
    world.run();
    world.all(|| Control::RemoveNetstack(firelane_units::NetstackId(2)));
    world.check_conservation();
    assert_eq!(world.counters().drops.of(DropReason::NoPort), 1);
}

/// Frames that look right at first: an Ethernet header for us, and then anything.
fn frames() -> impl Strategy<Value = Vec<u8>> {
    let ethertype = prop_oneof![Just(0x0800u16), Just(0x86dd), Just(0x0806), Just(0x8100), any::<u16>()];
    let start = prop_oneof![Just(vec![]), Just(vec![0x45, 0]), Just(vec![0x60, 0, 0, 0])];
    let protocol = prop_oneof![Just(1u8), Just(6), Just(17), Just(58), Just(44), Just(0), any::<u8>()];
    let to = prop_oneof![Just(mac(2)), Just(mac(7)), Just(firelane_units::MacAddr::BROADCAST)];
    let body = proptest::collection::vec(any::<u8>(), 0..200);
    (to, ethertype, start, protocol, body, any::<bool>()).prop_map(
        |(to, ethertype, start, protocol, body, consistent)| {
            let mut packet = start;
            packet.extend_from_slice(&body);
            if consistent && packet.len() >= 40 {
                let len = packet.len() as u16;
                match packet[0] >> 4 {
                    4 => {
                        packet[2..4].copy_from_slice(&len.to_be_bytes());
                        packet[6] = 0;
                        packet[9] = protocol;
                        packet[12..20].copy_from_slice(&[10, 0, 0, 7, 10, 0, 0, 2]);
                        packet[10..12].fill(0);
                        let sum = firelane_wire::sum(&packet[..20]).checksum();
                        packet[10..12].copy_from_slice(&sum.to_be_bytes());
                    }
                    6 => {
                        packet[4..6].copy_from_slice(&(len - 40).to_be_bytes());
                        packet[6] = protocol;
                        packet[24..40].copy_from_slice(&[0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2]);
                    }
                    _ => {}
                }
            }
            frame(to, EtherType(ethertype), &packet)
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn frames_of_any_bytes_are_counted_and_never_a_panic(
        frames in proptest::collection::vec(frames(), 1..40),
        lanes in 1u16..4,
    ) {
        let mut station = Station::new(lanes);
        let _listener = station.world.listen(2, 1, "10.0.0.2:80", 4);
        for bytes in &frames {
            station.send(bytes);
            station.received();
        }
        station.world.check_conservation();
        station.world.run_for(std::time::Duration::from_secs(100));
        station.world.check_conservation();
        // The netstack still works.
        station.resolve();
        station.send(&echo(b"x"));
        prop_assert!(!station.received().is_empty());
    }
}
