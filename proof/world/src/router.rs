//! A netstack that forwards between two etherstubs, with a station at each.

use std::net::Ipv4Addr;

use firelane_frame::{Capabilities, Chain, Pools, PoolsConfig};
use firelane_ip::Forwarding;
use firelane_lane::*;
use firelane_units::{DropReason, FlowId, IpPrefix, LaneId, LinkId, MacAddr, NetstackId};
use firelane_wire::{
    ArpOperation, ArpRepr, EtherType, EthernetRepr, Icmpv4Repr, Icmpv4Unreachable, IpProtocol, Ipv4Repr,
};

use crate::{AnyDriver, MTU, RingDriver, World, mac, plain_flow, vnic, wire};

/// The netstack that forwards.
pub const ROUTER: NetstackId = NetstackId(1);

/// Stations 7 of 10.1.0.0/24 and 8 of 10.2.0.0/24, each on its own etherstub with the router's address 1 there.
pub struct Net {
    /// The router's lanes.
    pub world: World,
    /// What the stations are at.
    pub wires: [RingDriver; 2],
    /// The frames of the stations.
    pub pools: Pools,
}

/// The station at a side, and the last byte of its MAC address.
pub fn station(side: usize) -> (Ipv4Addr, u8) {
    [(Ipv4Addr::new(10, 1, 0, 7), 7), (Ipv4Addr::new(10, 2, 0, 8), 8)][side]
}

impl Net {
    /// A router that knows its stations' networks and nothing else.
    pub fn new(lanes: u16) -> Self {
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
    pub fn introduce(&mut self, side: usize) {
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

    /// A station says where it is.
    pub fn answer(&mut self, side: usize) {
        let ((sender_ip, end), target_ip) = (station(side), Ipv4Addr::new(10, side as u8 + 1, 0, 1));
        let (operation, target_mac) = (ArpOperation::Reply, mac(10 * side as u8 + 1));
        let arp = ArpRepr { operation, sender_mac: mac(end), sender_ip, target_mac, target_ip };
        let mut bytes = vec![0; 14 + arp.emitted_len()];
        EthernetRepr { dst: target_mac, src: mac(end), ethertype: EtherType::ARP }.emit(&mut bytes);
        arp.emit(&mut bytes[14..]);
        self.send(side, &bytes);
    }

    /// A station sends a frame.
    pub fn send(&mut self, side: usize, bytes: &[u8]) {
        let mut chain = Chain::new();
        chain.push(self.pools.copy_of(bytes).unwrap());
        self.wires[side].tx.push_chain(&mut chain);
        self.world.run();
    }

    /// What a station has got.
    pub fn received(&mut self, side: usize) -> Vec<Vec<u8>> {
        let mut chain = Chain::new();
        self.wires[side].rx.pop_into(&mut chain, 1000);
        chain.iter().map(|frame| frame.as_slice().to_vec()).collect()
    }

    /// Sends a datagram from the first station to `dst`; what the second gets.
    pub fn forward(&mut self, dst: Ipv4Addr, port: u16) -> Option<Vec<u8>> {
        let bytes = self.datagram(dst, port);
        self.send(0, &bytes);
        let mut received = self.received(1);
        if received.first().is_some_and(|frame| frame[12..14] == [8, 6]) {
            // A lane that does not know the station yet asks for itself.
            self.answer(1);
            received = self.received(1);
        }
        assert!(received.len() <= 1);
        received.pop()
    }

    /// A datagram of the first station to `dst`, on its way to the router.
    pub fn datagram(&self, dst: Ipv4Addr, port: u16) -> Vec<u8> {
        let header = Ipv4Repr::new(station(0).0, dst, IpProtocol::UDP, 12);
        let mut bytes = vec![0; 34];
        let to_router = EthernetRepr { dst: mac(1), src: mac(7), ethertype: EtherType::IPV4 };
        to_router.emit(&mut bytes);
        header.emit(&mut bytes[14..]);
        bytes.extend([(port >> 8) as u8, port as u8, 0, 53, 0, 12, 0, 0, 1, 2, 3, 4]);
        bytes
    }

    /// The second station's answer to a datagram of the first's from `port`.
    pub fn back(&self, port: u16) -> Vec<u8> {
        let mut bytes = vec![0; 34];
        EthernetRepr { dst: mac(11), src: mac(8), ethertype: EtherType::IPV4 }.emit(&mut bytes);
        Ipv4Repr::new(station(1).0, station(0).0, IpProtocol::UDP, 12).emit(&mut bytes[14..]);
        bytes.extend([0, 53, (port >> 8) as u8, port as u8, 0, 12, 0, 0, 1, 2, 3, 4]);
        bytes
    }

    /// What a station behind the second says of a datagram of the first's from `port`.
    pub fn unreachable(&self, port: u16) -> Vec<u8> {
        let quoted = self.datagram(station(1).0, port);
        let reason = Icmpv4Unreachable::Host;
        let message = Icmpv4Repr::Unreachable { reason, quoted: &quoted[14..] };
        let len = message.emitted_len();
        let mut bytes = vec![0; 34 + len];
        EthernetRepr { dst: mac(11), src: mac(8), ethertype: EtherType::IPV4 }.emit(&mut bytes);
        let from = Ipv4Addr::new(198, 51, 100, 1);
        Ipv4Repr::new(from, station(0).0, IpProtocol::ICMPV4, len as u16).emit(&mut bytes[14..]);
        message.emit(&mut bytes[34..]);
        bytes
    }

    /// Changes something in all lanes.
    pub fn change(&mut self, change: impl Fn() -> Control<AnyDriver>) {
        self.world.all(change);
        self.world.run();
    }

    /// How many frames were lost so.
    pub fn drops(&self, reason: DropReason) -> u64 {
        self.world.counters().drops.of(reason)
    }
}
