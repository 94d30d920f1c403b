//! A netstack that forwards between two etherstubs: known flows, changes, and books that balance.

mod support;

use std::net::{IpAddr, Ipv4Addr};

use firelane_frame::{Capabilities, Chain, Pools, PoolsConfig};
use firelane_ip::{Forwarding, IfRouting, RouteKind};
use firelane_lane::*;
use firelane_units::{DropReason, FlowId, IpPrefix, LaneId, LinkId, MacAddr, NetstackId};
use firelane_wire::{ArpOperation, ArpRepr, EtherType, EthernetRepr, IpProtocol, Ipv4Repr, Ipv4View};
use support::*;

const ROUTER: NetstackId = NetstackId(1);

/// Stations 7 of 10.1.0.0/24 and 8 of 10.2.0.0/24, each on its own etherstub with the router's address 1 there.
struct Net {
    world: World,
    wires: [RingDriver; 2],
    pools: Pools,
}

fn station(side: usize) -> (Ipv4Addr, u8) {
    [(Ipv4Addr::new(10, 1, 0, 7), 7), (Ipv4Addr::new(10, 2, 0, 8), 8)][side]
}

impl Net {
    fn new(lanes: u16) -> Self {
        let mut world = World::new(lanes);
        let steering = firelane_classify::Steering::even(&world.lane_ids());
        let config = NetstackConfig { steering, forwarding: Forwarding::ON, ..NetstackConfig::new(ROUTER) };
        world.all(|| Control::AddNetstack(config.clone()));
        let ends = [0, 1].map(|side: u32| {
            let (stub, leg, port) = (10 * side, 10 * side + 1, 10 * side + 2);
            world.all(|| Control::AddLink(LinkConfig { link: LinkId(stub), mtu: MTU }));
            for (id, user) in
                [(leg, PortUser::Netstack(ROUTER)), (port, PortUser::Driver { through: LaneId(0) })]
            {
                world.add_flow(plain_flow(FlowId(id), LinkId(id), None, None));
                let mac_end = if id == leg { id as u8 } else { station(side as usize).1 };
                let (far, near) = wire(Capabilities::plain(MTU));
                let queues = if id == port { vec![near.into()] } else { vec![] };
                world.add_port(vnic(id, stub, mac_end, id, user), queues);
                if id == port {
                    let address: IpPrefix = format!("10.{}.0.1/24", side + 1).parse().unwrap();
                    world.all(|| Control::AddAddress(ROUTER, LinkId(leg), address));
                    return far;
                }
            }
            unreachable!("the second port has a wire")
        });
        world.run();
        let pools = Pools::new(PoolsConfig { small_slots: 512, large_slots: 1 });
        let mut net = Self { world, wires: ends, pools };
        (0..2).for_each(|side| net.introduce(side));
        net
    }

    /// A station asks for the router's address, by which the router learns its.
    fn introduce(&mut self, side: usize) {
        let (ip, end) = station(side);
        let target_ip = Ipv4Addr::from_octets([10, side as u8 + 1, 0, 1]);
        let (operation, target_mac) = (ArpOperation::Request, MacAddr::ZERO);
        let arp = ArpRepr { operation, sender_mac: mac(end), sender_ip: ip, target_mac, target_ip };
        let mut body = vec![0; arp.emitted_len()];
        arp.emit(&mut body);
        let mut bytes = vec![0; 14];
        EthernetRepr { dst: MacAddr::BROADCAST, src: mac(end), ethertype: EtherType::ARP }.emit(&mut bytes);
        bytes.extend(body);
        self.send(side, &bytes);
        assert!(!self.received(side).is_empty(), "the router has the address");
    }

    /// The second station says where it is.
    fn answer(&mut self) {
        let ((sender_ip, end), target_ip) = (station(1), Ipv4Addr::new(10, 2, 0, 1));
        let (operation, target_mac) = (ArpOperation::Reply, mac(11));
        let arp = ArpRepr { operation, sender_mac: mac(end), sender_ip, target_mac, target_ip };
        let mut bytes = vec![0; 14 + arp.emitted_len()];
        EthernetRepr { dst: mac(11), src: mac(end), ethertype: EtherType::ARP }.emit(&mut bytes);
        arp.emit(&mut bytes[14..]);
        self.send(1, &bytes);
    }

    fn send(&mut self, side: usize, bytes: &[u8]) {
        let mut chain = Chain::new();
        chain.push(self.pools.copy_of(bytes).unwrap());
        self.wires[side].tx.push_chain(&mut chain);
        self.world.run();
    }

    fn received(&mut self, side: usize) -> Vec<Vec<u8>> {
        let mut chain = Chain::new();
        self.wires[side].rx.pop_into(&mut chain, 1000);
        chain.iter().map(|frame| frame.as_slice().to_vec()).collect()
    }

    /// Sends a datagram from the first station to `dst`; what the second gets.
    fn forward(&mut self, dst: Ipv4Addr, port: u16) -> Option<Vec<u8>> {
        let bytes = self.datagram(dst, port);
        self.send(0, &bytes);
        let mut received = self.received(1);
        if received.first().is_some_and(|frame| frame[12..14] == [8, 6]) {
            // A lane that does not know the station yet asks for itself.
            self.answer();
            received = self.received(1);
        }
        assert!(received.len() <= 1);
        received.pop()
    }

    /// A datagram of the first station to `dst`, on its way to the router.
    fn datagram(&self, dst: Ipv4Addr, port: u16) -> Vec<u8> {
        let header = Ipv4Repr::new(station(0).0, dst, IpProtocol::UDP, 12);
        let mut bytes = vec![0; 34];
        let to_router = EthernetRepr { dst: mac(1), src: mac(7), ethertype: EtherType::IPV4 };
        to_router.emit(&mut bytes);
        header.emit(&mut bytes[14..]);
        bytes.extend([(port >> 8) as u8, port as u8, 0, 53, 0, 12, 0, 0, 1, 2, 3, 4]);
        bytes
    }

    fn change(&mut self, change: impl Fn() -> Control<AnyDriver>) {
        self.world.all(change);
        self.world.run();
    }

    fn drops(&self, reason: DropReason) -> u64 {
        self.world.counters().drops.of(reason)
    }
}

#[test]
fn every_packet_of_a_flow_is_forwarded_alike() {
    for lanes in [1, 2, 4] {
        let mut net = Net::new(lanes);
        for port in 1..20 {
            let all: Vec<_> = (0..3).map(|_| net.forward(station(1).0, port).expect("it goes on")).collect();
            assert!(all.iter().all(|frame| *frame == all[0]));
            let view = Ipv4View::parse(&all[0][14..]).unwrap();
            assert!(view.is_checksum_valid() && view.ttl() == 63);
            assert_eq!((&all[0][..6], &all[0][6..12]), (&mac(8).0[..], &mac(11).0[..]));
        }
        net.world.check_conservation();
    }
}

#[test]
fn a_change_counts_for_the_next_packet_of_a_known_flow() {
    let mut net = Net::new(2);
    let dst = Ipv4Addr::new(192, 0, 2, 1);
    assert!(net.forward(dst, 9).is_none());
    assert_eq!(net.drops(DropReason::NoRoute), 1);
    let via = RouteConfig::via("192.0.2.0/24".parse().unwrap(), IpAddr::V4(station(1).0));
    net.change(|| Control::AddRoute(ROUTER, via));
    (0..2).for_each(|_| assert!(net.forward(dst, 9).is_some()));
    let hole = RouteConfig {
        gateway: None,
        kind: RouteKind::Blackhole,
        ..RouteConfig::via("192.0.2.1/32".parse().unwrap(), dst.into())
    };
    net.change(|| Control::AddRoute(ROUTER, hole));
    assert!(net.forward(dst, 9).is_none());
    assert_eq!(net.drops(DropReason::Blackhole), 1);
    net.change(|| Control::RemoveRoute(ROUTER, hole));
    (0..2).for_each(|_| assert!(net.forward(dst, 9).is_some()));
    let off = IfRouting { forwards_v4: Some(false), ..IfRouting::default() };
    net.change(|| Control::SetRouting(ROUTER, LinkId(11), off));
    assert!(net.forward(dst, 9).is_none());
    assert_eq!(net.drops(DropReason::NotForwarding), 1);
    net.world.check_conservation();
}

#[test]
fn a_chain_of_many_flows_is_forwarded_whole_and_in_order() {
    let mut net = Net::new(1);
    assert!(net.forward(station(1).0, 1).is_some());
    for _ in 0..3 {
        let mut chain = Chain::new();
        for n in 0..200_u16 {
            let mut frame = net.pools.copy_of(&net.datagram(station(1).0, n / 2)).unwrap();
            // Every other one differs in what the receiver sees, not in what the flow is known by.
            frame.as_mut_slice()[42] = n as u8;
            chain.push(frame);
        }
        net.wires[0].tx.push_chain(&mut chain);
        net.world.run();
        let received = net.received(1);
        let order: Vec<u8> = received.iter().map(|frame| frame[42]).collect();
        assert_eq!(order, (0..200).map(|n: u16| n as u8).collect::<Vec<_>>());
    }
    net.world.check_conservation();
}

#[test]
fn a_flow_that_is_known_is_counted_at_every_port() {
    let mut net = Net::new(1);
    let packets = |net: &Net| {
        let snapshot = net.world.lanes[0].snapshot();
        let port = |id: u32| snapshot.ports.iter().find(|(link, _)| link.0 == id).unwrap().1;
        [port(2).outward.packets, port(1).inward.packets, port(11).outward.packets, port(12).inward.packets]
    };
    let before = packets(&net);
    let ip = |net: &Net| net.world.lanes[0].netstack_counters(ROUTER).unwrap().ip.v4;
    let ip_before = ip(&net);
    (0..10).for_each(|_| assert!(net.forward(station(1).0, 5).is_some()));
    assert_eq!(packets(&net), before.map(|packets| packets + 10));
    let (all, its) = (ip(&net), ip_before);
    assert_eq!((all.forwarded - its.forwarded, all.received - its.received), (10, 10));
    assert_eq!((all.sent, all.delivered), (its.sent, its.delivered), "none was its own");
    net.world.check_conservation();
}
