//! A trace says what becomes of a frame, station by station, and changes nothing; steps are counted while somebody looks.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use firelane_filter::{RuleList, Verdict};
use firelane_frame::{Capabilities, Chain, Pools, PoolsConfig};
use firelane_ip::{Forwarding, RouteKind};
use firelane_lane::*;
use firelane_nat::{NatConfig, NatList};
use firelane_units::{
    BlockAnswer, Direction, DropReason, FilterAction, FilterPorts, FilterProtocol, FilterRule, FlowId,
    IpPrefix, LaneId, LinkId, NatAction, NatLimits, NatRedirect, NatRule, NetstackId, Port,
};
use firelane_wire::{EtherType, EthernetRepr, IpProtocol, Ipv4Repr};
use firelane_world::*;

const HOST: NetstackId = NetstackId(1);
/// The netstack's VNIC, a device's VNIC, and the etherstub of both.
const LEG: LinkId = LinkId(1);
const PORT: LinkId = LinkId(2);
const STUB: LinkId = LinkId(0);

struct Net {
    world: World,
    device: RingDriver,
    pools: Pools,
}

impl Net {
    /// 10.1.0.1 is a netstack that forwards, behind a VNIC; the station 10.1.0.7 is at the device.
    fn new(lanes: u16) -> Self {
        let mut world = World::new(lanes);
        let steering = firelane_classify::Steering::even(&world.lane_ids());
        let config = NetstackConfig { steering, forwarding: Forwarding::ON, ..NetstackConfig::new(HOST) };
        world.all(|| Control::AddNetstack(config.clone()));
        world.all(|| Control::AddLink(LinkConfig { link: STUB, mtu: MTU }));
        let (device, near) = wire(Capabilities::plain(MTU));
        world.add_flow(plain_flow(FlowId(1), LEG, None, None));
        world.add_flow(plain_flow(FlowId(2), PORT, None, None));
        world.add_port(vnic(1, 0, 1, 1, PortUser::Netstack(HOST)), vec![]);
        world.add_port(vnic(2, 0, 7, 2, PortUser::Driver { through: LaneId(0) }), vec![near.into()]);
        let address: IpPrefix = "10.1.0.1/24".parse().unwrap();
        world.all(|| Control::AddAddress(HOST, LEG, address));
        let closed: IpPrefix = "10.9.0.0/16".parse().unwrap();
        world.all(|| Control::AddRoute(HOST, RouteConfig::ending(closed, RouteKind::Blackhole)));
        world.run();
        Self { world, device, pools: Pools::new(PoolsConfig { small_slots: 64, large_slots: 1 }) }
    }

    fn trace(&mut self, of: Followed, most: u32) {
        let numbers = Arc::new(Numbers::new(most));
        for lane in self.world.lane_ids() {
            let tracing = Tracing { of, numbers: Arc::clone(&numbers) };
            self.world.visit(lane, |_, lane| lane.trace(Some(tracing.clone())));
        }
    }

    /// What all lanes have seen, in order.
    fn seen(&mut self) -> Vec<Seen> {
        let mut all = Vec::new();
        for lane in self.world.lane_ids() {
            all.append(&mut self.world.visit(lane, |_, lane| lane.take_seen().0));
        }
        all.sort_by_key(|seen| seen.order);
        all
    }

    fn sights(&mut self) -> Vec<Sight> {
        self.seen().into_iter().map(|seen| seen.what).collect()
    }

    fn send(&mut self, bytes: &[u8]) {
        let mut chain = Chain::new();
        chain.push(self.pools.copy_of(bytes).unwrap());
        self.device.tx.push_chain(&mut chain);
        self.world.run();
    }
}

/// A datagram of the station to `dst`, from `port`.
fn datagram(dst: Ipv4Addr, port: u8) -> Vec<u8> {
    let header = Ipv4Repr::new(Ipv4Addr::new(10, 1, 0, 7), dst, IpProtocol::UDP, 12);
    let mut bytes = vec![0; 34];
    EthernetRepr { dst: mac(1), src: mac(7), ethertype: EtherType::IPV4 }.emit(&mut bytes);
    header.emit(&mut bytes[14..]);
    bytes.extend([0, port, 0, 53, 0, 12, 0, 0, 1, 2, 3, 4]);
    bytes
}

const OURS: Ipv4Addr = Ipv4Addr::new(10, 1, 0, 1);
const CLOSED: Ipv4Addr = Ipv4Addr::new(10, 9, 0, 1);

#[test]
fn a_real_frame_is_followed_from_its_port_to_its_end() {
    for lanes in [1, 3] {
        let mut net = Net::new(lanes);
        // A way is remembered: who is followed takes the stations one by one all the same.
        net.send(&datagram(OURS, 1));
        net.trace(Followed::Address(OURS.into()), 1);
        net.send(&datagram(OURS, 2));
        net.send(&datagram(OURS, 3));
        let seen = net.seen();
        assert!(seen.iter().all(|seen| seen.frame == 1), "one frame was asked for");
        let words: Vec<Sight> = seen.iter().map(|seen| seen.what).collect();
        let wanted = [
            Sight::Flow(PORT, Direction::Out, Some(FlowId(2))),
            Sight::Switched(LEG),
            Sight::Flow(LEG, Direction::In, Some(FlowId(1))),
            Sight::Netstack(HOST, LEG),
            Sight::Found(Owner::Nobody),
            Sight::Step(Step::Ip, Direction::In),
            Sight::Step(Step::Udp, Direction::In),
            Sight::Dropped(DropReason::NoSocket),
        ];
        assert!(matches!(words[0], Sight::Received(PORT, 46, Some(_))), "{words:?}");
        let rest: Vec<_> =
            words[1..].iter().copied().filter(|sight| !matches!(sight, Sight::Handed(_))).collect();
        assert_eq!(rest, wanted);
        assert_eq!(net.world.counters().drops.of(DropReason::NoSocket), 3, "the counter has the same word");
        net.world.check_conservation();
    }
}

#[test]
fn an_invented_frame_ends_where_a_real_one_would() {
    for (dst, reason) in [(CLOSED, DropReason::Blackhole), (OURS, DropReason::NoSocket)] {
        let mut net = Net::new(1);
        net.trace(Followed::Invented, 8);
        let number = net.world.visit(LaneId(0), |now, lane| lane.invent(now, PORT, &datagram(dst, 9)));
        assert_eq!(number, Some(1));
        net.world.run();
        let sights = net.sights();
        assert_eq!(sights.last(), Some(&Sight::Dropped(reason)));
        assert_eq!(net.world.counters().drops.of(reason), 1);
        net.world.check_conservation();
    }
    let mut net = Net::new(1);
    let invent = |net: &mut Net, link, bytes: &[u8]| {
        net.world.visit(LaneId(0), |now, lane| lane.invent(now, link, bytes))
    };
    assert_eq!(invent(&mut net, PORT, &datagram(OURS, 1)), None, "nobody traces");
    net.trace(Followed::Invented, 8);
    assert_eq!(invent(&mut net, LinkId(77), &datagram(OURS, 1)), None, "there is no such port");
    assert_eq!(invent(&mut net, PORT, &[1, 2, 3]), Some(1));
    assert_eq!(net.sights(), [Sight::Received(PORT, 3, None), Sight::Dropped(DropReason::TooShort)]);
    net.world.check_conservation();
}

/// What a datagram of the station for port 53 of the netstack's own address meets, on the way that doors are on.
fn at_the_doors(net: &mut Net) -> Vec<Sight> {
    net.trace(Followed::Invented, 8);
    net.world.visit(LaneId(0), |now, lane| lane.invent(now, PORT, &datagram(OURS, 9)));
    net.world.run();
    let is_of_doors = |it: &Sight| matches!(it, Sight::Judged(..) | Sight::Translated(_) | Sight::Dropped(_));
    net.sights().into_iter().filter(is_of_doors).collect()
}

#[test]
fn what_the_filter_and_the_translator_say_is_seen() {
    let block = |port| {
        let mut rule = FilterRule::new(Direction::In, FilterAction::Block(BlockAnswer::Silent));
        rule.matching.protocol = FilterProtocol::Number(IpProtocol::UDP.0);
        rule.matching.to.ports = FilterPorts::Equal(Port(port));
        rule
    };
    let mut net = Net::new(1);
    let filter = |ports: &[u16]| Arc::new(RuleList::new(ports.iter().map(|&port| block(port)).collect()));
    let rules = filter(&[54, 53]);
    net.world.all(|| Control::SetFilter(HOST, Arc::clone(&rules)));
    let blocked = Verdict::Block(BlockAnswer::Silent);
    let ended = Sight::Dropped(DropReason::FilterBlocked);
    assert_eq!(at_the_doors(&mut net), [Sight::Judged(HOST, blocked, Some(1)), ended]);
    // What it says of a flow it says of the next one too, without a look at its rules.
    assert_eq!(at_the_doors(&mut net), [Sight::Judged(HOST, blocked, Some(1)), ended]);
    let rules = filter(&[54]);
    net.world.all(|| Control::SetFilter(HOST, Arc::clone(&rules)));
    assert_eq!(at_the_doors(&mut net)[0], Sight::Judged(HOST, Verdict::Pass, None));
    // The filter sees what the translator has made of it.
    let to = NatRedirect { address: CLOSED, second: None, port: Some(Port(54)), is_range: false };
    let rule = NatRule { protocol: FilterProtocol::TcpUdp, ..NatRule::new(LEG, NatAction::Redirect(to)) };
    let config = Arc::new(NatList::new(NatConfig { rules: vec![rule], limits: NatLimits::default() }));
    net.world.all(|| Control::SetNat(HOST, Arc::clone(&config)));
    let sights = at_the_doors(&mut net);
    let [Sight::Translated(headers), judged, end] = sights[..] else { panic!("{sights:?}") };
    assert_eq!(headers.ports, Some((Port(9), Port(54))));
    assert_eq!([judged, end], [Sight::Judged(HOST, blocked, Some(0)), ended]);
    net.world.check_conservation();
}

#[test]
fn a_flows_frames_are_followed_both_ways() {
    let mut net = Net::new(1);
    net.trace(Followed::Flow { flow: FlowId(1), owner: LEG, mac: Some(mac(1)) }, 10);
    net.send(&datagram(OURS, 1));
    // The answer, an ARP question for the station and later the error, leaves by the VNIC.
    let seen = net.seen();
    assert!(matches!(seen[0].what, Sight::Received(PORT, ..)), "{seen:?}");
    assert!(seen.iter().any(|it| matches!(it.what, Sight::Sent(LEG, ..)) && it.frame == 2), "{seen:?}");
    net.trace(Followed::Flow { flow: FlowId(9), owner: LEG, mac: Some(mac(1)) }, 10);
    net.send(&datagram(OURS, 1));
    assert_eq!(net.sights(), []);
}

#[test]
fn steps_are_counted_while_somebody_looks() {
    static CYCLES: AtomicU64 = AtomicU64::new(0);
    let mut net = Net::new(1);
    net.send(&datagram(OURS, 1));
    let counts = |net: &mut Net| net.world.visit(LaneId(0), |_, lane| lane.step_counts());
    assert_eq!(counts(&mut net), StepCounts::default());
    net.world.visit(LaneId(0), |_, lane| lane.count_steps(Some(|| CYCLES.fetch_add(1, Ordering::Relaxed))));
    net.send(&datagram(OURS, 1));
    net.send(&datagram(CLOSED, 1));
    let counted = counts(&mut net);
    assert_eq!(counted.of(Step::Ip, Direction::In), StepCount { frames: 2, cycles: 2 });
    assert_eq!(counted.of(Step::Udp, Direction::In), StepCount { frames: 1, cycles: 1 });
    net.world.visit(LaneId(0), |_, lane| lane.count_steps(None));
    assert_eq!(counts(&mut net), StepCounts::default());
}
