//! What is remembered of forwarded flows changes nothing: with and without it every packet hears the same, and every count is the same.
//!
//! Random packets, in chains, through a router that remembers, through one that is watched and so walks the steps one by one, and
//! past a filter alone that is asked about each packet on its way in and then on its way out.

use std::sync::Arc;

use firelane_filter::{Filter, FilterConfig, FilterCounts, Packet, RuleList, Verdict};
use firelane_frame::Chain;
use firelane_lane::*;
use firelane_units::{
    BlockAnswer, Direction, DropReason, FilterAction, FilterLog, FilterMatch, FilterPorts, FilterProtocol,
    FilterRule, KeepState, LinkId, Port, TcpFlagsMatch,
};
use firelane_wire::{EtherType, EthernetRepr, IpProtocol, Ipv4Repr, ipv4};
use firelane_world::router::*;
use firelane_world::*;
use proptest::prelude::*;

/// The router's leg on a side.
const LEGS: [LinkId; 2] = [LinkId(1), LinkId(11)];

fn rule() -> impl Strategy<Value = FilterRule<LinkId>> {
    let action = prop_oneof![
        6 => Just(FilterAction::Pass),
        4 => Just(FilterAction::Block(BlockAnswer::Silent)),
        1 => Just(FilterAction::Count),
        1 => Just(FilterAction::Skip(1)),
    ];
    let keep = KeepState::default();
    let kept = prop_oneof![
        4 => Just(None),
        4 => Just(Some(keep)),
        1 => Just(Some(KeepState { strict: true, age: Some((5, 5)), ..keep }))
    ];
    let with = (0..8_u8, 1..4_u16, any::<(bool, bool)>(), prop::option::of(0..2_usize));
    (any::<bool>(), action, kept, with).prop_map(
        |(is_in, action, keep_state, (asks, port, (quick, logs), link))| {
            let direction = if is_in { Direction::In } else { Direction::Out };
            let mut matching = FilterMatch::default();
            match asks {
                0 => matching.protocol = FilterProtocol::Number(6),
                1 => matching.protocol = FilterProtocol::Number(17),
                2 => matching.to.ports = FilterPorts::Equal(Port(port)),
                3 => matching.from.ports = FilterPorts::Equal(Port(port)),
                4 => matching.flags = Some(TcpFlagsMatch { set: 2, mask: 0x3f }),
                5 => matching.ttl = Some(63 + (port & 1) as u8),
                _ => {}
            }
            let log = logs.then(FilterLog::default).filter(|_| asks == 6);
            let link = link.map(|side| LEGS[side]);
            FilterRule { keep_state, matching, quick, log, link, ..FilterRule::new(direction, action) }
        },
    )
}

/// A packet of one of few flows from the station on a side to the other's.
#[derive(Clone, Copy, Debug)]
struct Sent {
    side: usize,
    is_tcp: bool,
    ports: [u16; 2],
    flags: u8,
    seq: u8,
    ack: u8,
    len: u8,
}

fn sent() -> impl Strategy<Value = Sent> {
    let flags =
        prop_oneof![2 => Just(0x02_u8), 2 => Just(0x12), 6 => Just(0x10), 1 => Just(0x11), 1 => Just(0x04)];
    (any::<(bool, bool)>(), [1..3_u16, 1..3_u16], flags, [0..4_u8, 0..4_u8], 0..30_u8).prop_map(
        |((is_back, is_tcp), ports, flags, [seq, ack], len)| Sent {
            side: is_back.into(),
            is_tcp,
            ports,
            flags,
            seq: seq * 20,
            ack: ack * 20,
            len,
        },
    )
}

fn frame(sent: &Sent) -> Vec<u8> {
    let Sent { side, is_tcp, ports: [from, to], flags, seq, ack, len } = *sent;
    let (protocol, header) = if is_tcp { (IpProtocol::TCP, 20) } else { (IpProtocol::UDP, 8) };
    let payload = header + u16::from(len);
    let mut bytes = vec![0; 34 + usize::from(payload)];
    let router = if side == 0 { 1 } else { 11 };
    EthernetRepr { dst: mac(router), src: mac(station(side).1), ethertype: EtherType::IPV4 }.emit(&mut bytes);
    Ipv4Repr::new(station(side).0, station(1 - side).0, protocol, payload).emit(&mut bytes[14..]);
    bytes[34..36].copy_from_slice(&from.to_be_bytes());
    bytes[36..38].copy_from_slice(&to.to_be_bytes());
    if is_tcp {
        (bytes[41], bytes[45], bytes[46], bytes[47]) = (seq, ack, 0x50, flags);
        bytes[48..50].copy_from_slice(&200_u16.to_be_bytes());
    } else {
        bytes[38..40].copy_from_slice(&payload.to_be_bytes());
    }
    bytes
}

/// A router with rules, and what became of what was sent to it.
struct Router {
    net: Net,
    rules: Vec<FilterRule<LinkId>>,
}

impl Router {
    fn new() -> Self {
        let mut net = Net::new(1);
        (0..2).for_each(|side| net.introduce(side));
        Self { net, rules: Vec::new() }
    }

    fn watched() -> Self {
        let mut router = Self::new();
        router.net.world.visit(firelane_units::LaneId(0), |_, lane| lane.count_steps(Some(|| 0)));
        router
    }

    fn follow(&mut self, rules: &[FilterRule<LinkId>]) {
        self.rules = rules.to_vec();
        let config = Arc::new(RuleList::new(self.rules.clone()));
        self.net.world.all(|| Control::SetFilter(ROUTER, Arc::clone(&config)));
        self.net.world.run();
    }

    /// What each side gets of a chain, a side's packets at a time.
    fn pass(&mut self, chain: &[Vec<u8>], side: usize) -> Vec<Vec<u8>> {
        let mut frames = Chain::new();
        chain.iter().for_each(|bytes| frames.push(self.net.pools.copy_of(bytes).unwrap()));
        self.net.wires[side].tx.push_chain(&mut frames);
        self.net.world.run();
        // The router's own ARP is none of the filter's.
        self.net.received(1 - side).into_iter().filter(|frame| frame[12..14] == [8, 0]).collect()
    }

    fn counts(&self) -> FilterCounts {
        self.net.world.lanes[0].filter_counts(ROUTER).unwrap()
    }

    fn notices(&self) -> usize {
        self.net.world.mail.notices.iter().filter(|it| matches!(it, Notice::Filtered(..))).count()
    }

    fn drops(&self) -> [u64; 3] {
        [DropReason::FilterBlocked, DropReason::FilterFull, DropReason::FilterWindow]
            .map(|reason| self.net.drops(reason))
    }
}

/// What a filter alone says of a forwarded packet: the frame that leaves, if it may.
fn alone(filter: &mut Filter, frame: &[u8], side: usize, now: firelane_units::Instant) -> Option<Vec<u8>> {
    let packet = Packet::read(Direction::In, LEGS[side], &frame[14..]).unwrap();
    if filter.judge(&packet, now).verdict != Verdict::Pass {
        return None;
    }
    let mut onward = frame.to_vec();
    let [to, from] = [station(1 - side).1, if side == 0 { 11 } else { 1 }].map(mac);
    EthernetRepr { dst: to, src: from, ethertype: EtherType::IPV4 }.emit(&mut onward);
    ipv4::decrement_ttl(&mut onward[14..]);
    let packet = Packet::read(Direction::Out, LEGS[1 - side], &onward[14..]).unwrap();
    (filter.judge(&packet, now).verdict == Verdict::Pass).then_some(onward)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]
    #[test]
    fn what_is_remembered_changes_nothing(
        lists in prop::collection::vec(prop::collection::vec(rule(), 1..6), 1..3),
        chains in prop::collection::vec((prop::collection::vec(sent(), 1..24), 0..4_u64), 1..12),
    ) {
        let [mut plain, mut watched] = [Router::new(), Router::watched()];
        let mut filter = Filter::new([(1, 2), (3, 4)], firelane_filter::STATES_MAX);
        let per_list = chains.len().div_ceil(lists.len());
        for (nth, (chain, later)) in chains.iter().enumerate() {
            if nth % per_list == 0 {
                let rules = &lists[nth / per_list];
                plain.follow(rules);
                watched.follow(rules);
                filter.set(FilterConfig { rules: rules.clone(), pools: Vec::new() }, plain.net.world.now);
            }
            for side in 0..2 {
                let frames: Vec<_> = chain.iter().filter(|it| it.side == side).map(frame).collect();
                let now = plain.net.world.now;
                let wanted: Vec<_> =
                    frames.iter().filter_map(|frame| alone(&mut filter, frame, side, now)).collect();
                prop_assert_eq!(&plain.pass(&frames, side), &wanted);
                prop_assert_eq!(&watched.pass(&frames, side), &wanted);
                prop_assert_eq!(plain.counts(), filter.counts());
                prop_assert_eq!(watched.counts(), filter.counts());
            }
            for router in [&mut plain, &mut watched] {
                router.net.world.run_for(std::time::Duration::from_secs(*later));
                // Nobody answers the router's doubts about its neighbours, so they speak up.
                (0..2).filter(|_| *later > 0).for_each(|side| router.net.introduce(side));
            }
            filter.on_time(plain.net.world.now);
        }
        prop_assert_eq!((plain.drops(), plain.notices()), (watched.drops(), watched.notices()));
        plain.net.world.check_conservation();
        watched.net.world.check_conservation();
    }
}

/// A packet of a known flow that takes the long way is counted once all the same.
#[test]
fn a_known_flows_last_hop_is_counted_once() {
    let pass = FilterRule::new(Direction::In, FilterAction::Pass);
    let kept = FilterRule { keep_state: Some(KeepState::default()), ..pass.clone() };
    for rules in [vec![pass], vec![kept]] {
        for mut router in [Router::new(), Router::watched()] {
            router.follow(&rules);
            let mut datagram = router.net.datagram(station(1).0, 7);
            (0..3).for_each(|_| assert_eq!(router.pass(std::slice::from_ref(&datagram), 0).len(), 1));
            let header =
                Ipv4Repr { ttl: 1, ..Ipv4Repr::new(station(0).0, station(1).0, IpProtocol::UDP, 12) };
            header.emit(&mut datagram[14..]);
            assert_eq!(router.pass(&[datagram], 0).len(), 0);
            let counts = router.counts();
            assert_eq!(
                (counts.passed[0], router.net.received(0).len()),
                (4, 1),
                "and the sender hears of it"
            );
        }
    }
}

/// Packets that are told of are told of each time, remembered or not.
#[test]
fn a_states_packets_are_told_of_on_both_ways() {
    let mut loud = FilterRule::new(Direction::In, FilterAction::Pass);
    (loud.keep_state, loud.log) = (Some(KeepState::default()), Some(FilterLog::default()));
    for mut router in [Router::new(), Router::watched()] {
        router.follow(std::slice::from_ref(&loud));
        let datagram = router.net.datagram(station(1).0, 7);
        (0..5).for_each(|_| assert_eq!(router.pass(std::slice::from_ref(&datagram), 0).len(), 1));
        let told = router.net.world.mail.notices.iter().filter_map(|notice| match notice {
            Notice::Filtered(ROUTER, packet, Verdict::Pass) => Some((packet.direction, packet.bytes[8])),
            _ => None,
        });
        let told: Vec<_> = told.collect();
        let of = |direction| told.iter().filter(|it| it.0 == direction).count();
        assert_eq!((of(Direction::In), of(Direction::Out)), (5, 5));
        assert!(told.iter().all(|&(direction, ttl)| ttl == if direction == Direction::In { 64 } else { 63 }));
    }
}
