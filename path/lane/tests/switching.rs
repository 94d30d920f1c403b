//! Frames between drivers through one, two and four lanes: where they go, what limits do, that none is lost.

use std::net::Ipv6Addr;
use std::time::Duration;

use firelane_classify::FlowMatch;
use firelane_flow::FlowConfig;
use firelane_frame::{Capabilities, Chain, Checksum, Pools, PoolsConfig, SegmentKind, Segmentation};
use firelane_lane::*;
use firelane_switch::Rules;
use firelane_units::{
    BitRate, DropReason, FlowId, LaneId, LinkId, MacAddr, Port, Priority, Protection, Protections,
};
use firelane_wire::IpProtocol;
use firelane_wire::checksum::Sum;
use firelane_wire::ethernet::group_mac;
use firelane_wire::ndp::solicited_node;
use firelane_world::*;

/// An etherstub with two TAP-like VNICs of one queue each, in the lanes 0 and the last.
struct Stub {
    world: World,
    pools: Pools,
    alice: RingDriver,
    bob: RingDriver,
}

fn stub(lanes: u16, limit: Option<BitRate>) -> Stub {
    let mut world = World::new(lanes);
    let last = LaneId(lanes - 1);
    let home = limit.map(|_| LaneId(lanes / 2));
    world.all(|| Control::AddLink(LinkConfig { link: LinkId(0), mtu: MTU }));
    world.add_flow(plain_flow(FlowId(1), LinkId(1), None, None));
    world.add_flow(plain_flow(FlowId(2), LinkId(2), limit, home));
    let (alice, a) = wire(Capabilities::plain(MTU));
    let (bob, b) = wire(Capabilities::plain(MTU));
    world.add_port(vnic(1, 0, 1, 1, PortUser::Driver { through: LaneId(0) }), vec![a.into()]);
    let config = vnic(2, 0, 2, 2, PortUser::Driver { through: last });
    let mut queue = Some(AnyDriver::Ring(b));
    for lane in &mut world.lanes {
        let here = if lane.id() == last { queue.take() } else { None };
        lane.on_message(world.now, LaneMessage::Control(Box::new(Control::AddPort(config, here))));
    }
    let pools = Pools::new(PoolsConfig { small_slots: 4096, large_slots: 4 });
    Stub { world, pools, alice, bob }
}

impl Stub {
    fn send(&mut self, count: usize, to: u8, len: usize) {
        let mut chain = Chain::new();
        for n in 0..count {
            chain.push(udp_frame(&mut self.pools, 1, to, (n as u16 + 1, 53), len));
        }
        while !chain.is_empty() {
            self.alice.tx.push_chain(&mut chain);
            self.world.run();
        }
    }

    fn send_to_all(&mut self, count: usize) {
        let mut chain = Chain::new();
        for n in 0..count {
            let mut frame = udp_frame(&mut self.pools, 1, 2, (n as u16 + 1, 53), 100);
            frame.as_mut_slice()[..6].fill(0xff);
            chain.push(frame);
        }
        self.alice.tx.push_chain(&mut chain);
        self.world.run();
    }

    fn received(&mut self) -> Chain {
        let mut chain = Chain::new();
        self.bob.rx.pop_into(&mut chain, usize::MAX);
        chain
    }
}

#[test]
fn frames_reach_the_station_that_they_name_in_order() {
    for lanes in [1, 2, 4] {
        let mut stub = stub(lanes, None);
        stub.send(500, 2, 100);
        let got = stub.received();
        let ports: Vec<u8> = got.iter().map(|f| f.as_slice()[35]).collect();
        assert_eq!(got.len(), 500, "{lanes} lanes");
        assert!((0..500).all(|n| ports[n] == (n + 1) as u8), "in order");
        let counters = stub.world.counters();
        assert_eq!((counters.received, counters.forwarded, counters.drops.total()), (500, 500, 0));
        stub.world.check_conservation();
    }
}

/// Sends `count` frames at once.
fn burst(stub: &mut Stub, count: usize) {
    let mut chain = Chain::new();
    chain.extend((0..count).map(|_| udp_frame(&mut stub.pools, 1, 2, (1, 53), 60)));
    stub.alice.tx.push_chain(&mut chain);
    stub.world.run();
    stub.received();
}

#[test]
fn the_first_chain_after_a_notification_is_told_from_those_that_were_polled() {
    for lanes in [1, 2] {
        let mut stub = stub(lanes, None);
        stub.world.run();
        for count in [5, 200, 1, 30] {
            burst(&mut stub, count);
        }
        let arrivals = |stub: &Stub, port: u32| {
            let lanes = stub.world.lanes.iter().map(|lane| lane.snapshot().ports);
            let mut sum = PortCounters::default();
            for (_, counters) in lanes.flatten().filter(|(id, _)| *id == LinkId(port)) {
                sum.inward.merge(&counters.inward);
                sum.outward.merge(&counters.outward);
            }
            sum
        };
        // Of 200 frames 64 come first; the rest is fetched as 64, 64 and 8 without being told of.
        let sent = arrivals(&stub, 1).outward.arrivals;
        assert_eq!((sent.notified, sent.polled, sent.bytes), (100, 136, 236 * 60), "{lanes} lanes");
        assert_eq!(sent.chains(), [3, 1, 3]);
        let received = arrivals(&stub, 2).inward.arrivals;
        assert_eq!((received.notified, received.polled, received.bytes), (100, 136, 236 * 60));
        assert_eq!(received.chains().iter().sum::<u64>(), 7, "{lanes} lanes");
        // Who never sleeps is told of nothing.
        let mut chain = Chain::new();
        stub.world.lanes[0].turn(stub.world.now, Idle::StaysAwake);
        chain.push(udp_frame(&mut stub.pools, 1, 2, (1, 53), 60));
        stub.alice.tx.push_chain(&mut chain);
        stub.world.lanes[0].turn(stub.world.now, Idle::StaysAwake);
        assert_eq!(arrivals(&stub, 1).outward.arrivals.polled, 137);
    }
}

#[test]
fn what_nobody_has_is_dropped_with_its_reason() {
    let mut stub = stub(2, None);
    stub.send(3, 77, 100);
    let mut runt = Chain::new();
    runt.push(stub.pools.copy_of(&[1, 2, 3]).unwrap());
    stub.alice.tx.push_chain(&mut runt);
    stub.world.run();
    let drops = stub.world.counters().drops;
    let reasons: Vec<_> = drops.iter().collect();
    assert_eq!(reasons, [(DropReason::TooShort, 1), (DropReason::UnknownDestination, 3)]);
    stub.world.check_conservation();
}

#[test]
fn a_broadcast_reaches_everybody_but_its_sender() {
    let mut stub = stub(2, None);
    let mut frame = udp_frame(&mut stub.pools, 1, 2, (1, 2), 60);
    frame.as_mut_slice()[..6].fill(0xff);
    let mut chain = Chain::new();
    chain.push(frame);
    stub.alice.tx.push_chain(&mut chain);
    stub.world.run();
    assert_eq!(stub.received().len(), 1);
    let mut back = Chain::new();
    assert_eq!(stub.alice.rx.pop_into(&mut back, 9), 0);
    stub.world.check_conservation();
}

#[test]
fn a_limit_holds_in_one_lane_whatever_the_number_of_lanes() {
    for lanes in [1, 2, 4] {
        // 8 Mb/s for a second is a megabyte; ten times as much is offered, evenly.
        let mut stub = stub(lanes, Some(BitRate::from_mbps(8)));
        let mut bytes = 0;
        for _ in 0..1000 {
            stub.send(10, 2, 1000);
            stub.world.run_for(Duration::from_millis(1));
            bytes += stub.received().bytes().0;
            stub.world.check_conservation();
        }
        assert!((990_000..=1_022_000).contains(&bytes), "{bytes} bytes with {lanes} lanes");
        let counters = stub.world.counters();
        let held: u64 = stub.world.lanes.iter().map(|lane| lane.snapshot().held).sum();
        assert_eq!(counters.drops.of(DropReason::FlowLimit) + counters.forwarded + held, 10_000);
    }
}

#[test]
fn a_sender_with_a_ring_of_its_own_is_not_fetched_over_its_limit() {
    for lanes in [1, 2] {
        let mut stub = stub(lanes, None);
        stub.world.all(|| Control::SetHome(FlowId(1), Some(LaneId(0))));
        stub.world.all(|| Control::SetMaxbw(FlowId(1), Some(BitRate::from_mbps(8))));
        let mut chain = Chain::new();
        for n in 0..1000 {
            chain.push(udp_frame(&mut stub.pools, 1, 2, (n, 53), 1250));
        }
        stub.alice.tx.push_chain(&mut chain);
        stub.world.run_for(Duration::from_millis(500));
        // Half a second of 8 Mb/s are 400 frames of 1,250 bytes; the others wait where their sender sees them.
        let passed = stub.received().len();
        assert!((398..=402).contains(&passed), "{passed}");
        assert!(stub.alice.tx.free() < 1024 - 590, "{} places are free", stub.alice.tx.free());
        assert_eq!(stub.world.counters().drops.total(), 0);
        stub.world.all(|| Control::SetMaxbw(FlowId(1), None));
        stub.world.run();
        assert_eq!(stub.received().len() + passed, 1000);
        stub.world.check_conservation();
    }
}

/// The flow of what goes to `port`, part of bob's.
fn by_port(flow: u32, port: u16, home: Option<LaneId>) -> FlowSetup {
    let rule = FlowMatch { local_port: Some(Port(port).into()), ..FlowMatch::default() };
    let parent = Some(FlowId(2));
    let config = FlowConfig { parent, maxbw: None, priority: Priority::Medium };
    FlowSetup { flow: FlowId(flow), owner: LinkId(2), rule: Some(rule), config, home }
}

#[test]
fn who_follows_others_is_asked_for_its_own_flow_and_limit() {
    for lanes in [1, 2] {
        let mut stub = stub(lanes, None);
        for (flow, port) in [(3, 53), (4, 80)] {
            stub.world.add_flow(by_port(flow, port, Some(LaneId(lanes - 1))));
        }
        let send = |stub: &mut Stub, rounds: usize| {
            let mut chain = Chain::new();
            for _ in 0..rounds {
                let ports = [53, 80, 9];
                chain.extend(ports.map(|port| udp_frame(&mut stub.pools, 1, 2, (1000, port), 60)));
            }
            stub.alice.tx.push_chain(&mut chain);
            stub.world.run();
            stub.received().len()
        };
        assert_eq!(send(&mut stub, 10), 30);
        stub.world.all(|| Control::SetMaxbw(FlowId(4), Some(BitRate::ZERO)));
        assert_eq!(send(&mut stub, 10), 20, "the way is known, and one of its flows closed");
        stub.world.all(|| Control::SetMaxbw(FlowId(4), None));
        stub.world.all(|| Control::RemoveFlow(FlowId(3)));
        assert_eq!(send(&mut stub, 10), 30);
        let mut passed = [0; 5];
        let mut carried = (0, 0);
        for lane in &stub.world.lanes {
            let snapshot = lane.snapshot();
            for (flow, [inward, _]) in snapshot.flows {
                passed[flow.0 as usize] += inward.passed;
            }
            for (port, counters) in snapshot.ports {
                if port == LinkId(2) {
                    carried.0 += counters.inward.packets;
                    carried.1 += counters.inward.bytes;
                }
            }
        }
        assert_eq!(passed[2..], [10 + 10 + 20, 0, 20], "{lanes} lanes; what is removed counts no more");
        assert_eq!(carried, (80, 80 * 60));
        assert_eq!(stub.world.counters().drops.of(DropReason::FlowLimit), 10);
        stub.world.check_conservation();
    }
}

#[test]
fn what_a_flow_held_when_it_was_removed_is_counted_once_at_its_port() {
    for lanes in [1, 2] {
        let mut stub = stub(lanes, None);
        let rule = FlowMatch { remote_port: Some(Port(53).into()), ..FlowMatch::default() };
        let config =
            FlowConfig { parent: None, maxbw: Some(BitRate::from_mbps(8)), priority: Priority::Medium };
        let home = Some(LaneId(lanes - 1));
        stub.world.add_flow(FlowSetup { flow: FlowId(3), owner: LinkId(1), rule: Some(rule), config, home });
        let sent = |stub: &Stub| {
            let ports = stub.world.lanes.iter().flat_map(|lane| lane.snapshot().ports);
            let its = ports.filter(|(id, _)| *id == LinkId(1)).map(|(_, it)| it.outward);
            its.fold((0, 0), |sum, it| (sum.0 + it.packets, sum.1 + it.bytes))
        };
        stub.send(100, 2, 1000);
        let held: u64 = stub.world.lanes.iter().map(|lane| lane.snapshot().held).sum();
        let ended = stub.received().len() as u64 + stub.world.counters().drops.of(DropReason::FlowLimit);
        assert!(held > 0 && sent(&stub) == (100, 100_000), "{held} {:?}", sent(&stub));
        stub.world.all(|| Control::RemoveFlow(FlowId(3)));
        stub.world.run();
        assert_eq!((stub.received().len() as u64, ended), (held, 100 - held), "{lanes} lanes");
        assert_eq!(sent(&stub), (100, 100_000), "{lanes} lanes");
        stub.world.check_conservation();
    }
}

#[test]
fn a_limit_that_is_lifted_lets_everything_go() {
    let mut stub = stub(2, Some(BitRate::ZERO));
    stub.send(5, 2, 100);
    assert_eq!(stub.world.counters().drops.of(DropReason::FlowLimit), 5);
    stub.world.all(|| Control::SetMaxbw(FlowId(2), None));
    stub.send(5, 2, 100);
    assert_eq!(stub.received().len(), 5);
    stub.world.check_conservation();
}

#[test]
fn a_port_that_goes_takes_its_frames_along() {
    let mut stub = stub(1, None);
    stub.world.all(|| Control::RemovePort(LinkId(2)));
    stub.send(4, 2, 100);
    assert_eq!(stub.world.counters().drops.total(), 4);
    stub.world.check_conservation();
}

#[test]
fn a_device_that_takes_nothing_costs_no_more_than_its_queue() {
    let mut stub = stub(1, None);
    stub.send(3000, 2, 60);
    // 1,024 in the ring, 1,024 waiting for it, the rest dropped.
    let counters = stub.world.counters();
    assert_eq!((counters.forwarded, counters.drops.of(DropReason::PortFull)), (1024, 952));
    stub.world.check_conservation();
    assert_eq!(stub.received().len(), 1024);
    stub.world.run_for(Duration::from_millis(1));
    assert_eq!(stub.received().len(), 1024);
    stub.world.check_conservation();
}

#[test]
fn a_vnic_that_nobody_uses_gets_no_copy_and_counts_no_error() {
    for lanes in [1, 2] {
        let mut stub = stub(lanes, None);
        stub.world.add_flow(plain_flow(FlowId(3), LinkId(3), None, None));
        stub.world.add_port(vnic(3, 0, 3, 3, PortUser::Nobody), vec![]);
        stub.send_to_all(5);
        assert_eq!(stub.received().len(), 5, "the broadcasts come to who is there");
        let counters = stub.world.counters();
        assert_eq!((counters.drops.total(), counters.copied), (0, 0));
        stub.send(3, 3, 100);
        let counters = stub.world.counters();
        assert_eq!((counters.drops.of(DropReason::NoUser), counters.drops.total()), (3, 3));
        let snapshots: Vec<_> = stub.world.lanes.iter().map(|lane| lane.snapshot()).collect();
        let ports = snapshots.iter().flat_map(|it| &it.ports).filter(|(id, _)| *id == LinkId(3));
        assert!(ports.clone().count() > 0 && ports.clone().all(|(_, it)| it.inward.dropped == 0));
        stub.world.all(|| Control::SetUser(LinkId(3), PortUser::Nobody));
        stub.send_to_all(5);
        assert_eq!(stub.world.counters().drops.total(), 3);
        stub.world.check_conservation();
    }
}

#[test]
fn a_guard_stops_what_it_must_even_on_a_way_that_was_remembered_and_lets_go_again() {
    for lanes in [1, 2] {
        let mut stub = stub(lanes, None);
        stub.send(100, 2, 100);
        assert_eq!(stub.received().len(), 100);
        let kinds = Protections::NONE.with(Protection::IpNospoof);
        let allowed_ips = vec!["203.0.113.1".parse().unwrap()];
        let rules = Rules { kinds, allowed_ips, ..Rules::default() };
        stub.world.all(|| Control::SetGuard(LinkId(1), mac(1), Some(rules.clone())));
        stub.send(100, 2, 100);
        assert_eq!(stub.received().len(), 0, "{lanes} lanes");
        assert_eq!(stub.world.counters().drops.of(DropReason::IpSpoofed), 100);
        let guards = stub.world.lanes.iter().flat_map(|lane| lane.snapshot().guards);
        let stopped: u64 = guards.map(|(_, counters)| counters[Protection::IpNospoof as usize]).sum();
        assert_eq!(stopped, 100);
        stub.world.all(|| Control::SetGuard(LinkId(1), mac(1), None));
        stub.send(100, 2, 100);
        assert_eq!(stub.received().len(), 100, "{lanes} lanes");
        stub.world.check_conservation();
    }
}

/// A frame of the station 1 with an IPv6 packet: next header, hop limit, ends and what is behind the header.
fn ipv6_frame(to: MacAddr, (next, hops): (u8, u8), ends: [&str; 2], body: &[u8]) -> Vec<u8> {
    let [src, dst] = ends.map(|it| it.parse::<Ipv6Addr>().unwrap().octets());
    let len = (body.len() as u16).to_be_bytes();
    let head = [&to.0[..], &mac(1).0, &[0x86, 0xdd, 0x60, 0, 0, 0], &len, &[next, hops], &src, &dst];
    [&head.concat()[..], body].concat()
}

impl Stub {
    /// How many of these frames, sent by the station 1, the station 2 gets.
    fn pass(&mut self, frames: &[Vec<u8>]) -> usize {
        let mut chain: Chain = frames.iter().map(|it| self.pools.copy_of(it).unwrap()).collect();
        self.alice.tx.push_chain(&mut chain);
        self.world.run();
        self.received().len()
    }

    fn guard(&mut self, kind: Protection, allowed: &[&str]) {
        let kinds = Protections::NONE.with(kind);
        let allowed_ips = allowed.iter().map(|it| it.parse().unwrap()).collect();
        let rules = Rules { kinds, allowed_ips, ..Rules::default() };
        self.world.all(|| Control::SetGuard(LinkId(1), mac(1), Some(rules.clone())));
    }
}

/// The address of the gateway, announced behind nine extension headers, or in a piece that ends with one of them.
#[test]
fn a12_no_advertisement_passes_that_its_guard_cannot_read() {
    let mut stub = stub(1, None);
    let gateway = "fd00::fe".parse::<Ipv6Addr>().unwrap().octets();
    let advert = [&[136, 0, 0, 0, 0x20, 0, 0, 0][..], &gateway].concat();
    let behind = |headers: usize, last: u8| {
        let kinds = (1..=headers).map(|nth| if nth == headers { last } else { 60 });
        let headers: Vec<u8> = kinds.flat_map(|next| [next, 0, 1, 4, 0, 0, 0, 0]).collect();
        [&headers[..], if last == 58 { &advert } else { b"no news!" }].concat()
    };
    let ends = ["fd00::1", "ff02::1"];
    let frame = |(next, hops), body: &[u8]| ipv6_frame(MacAddr::BROADCAST, (next, hops), ends, body);
    let first_piece = [60, 0, 0, 1, 0, 0, 0, 7, 58, 0, 1, 4, 0, 0, 0, 0];
    let spoofed = [
        frame((58, 255), &advert),
        frame((60, 255), &behind(8, 58)),
        frame((60, 255), &behind(9, 58)),
        frame((44, 255), &first_piece),
        frame((44, 255), &first_piece[..8]),
    ];
    let honest = [
        frame((60, 64), &behind(8, 59)),
        frame((44, 64), &[58, 0, 0, 8, 0, 0, 0, 7, 136, 0, 0, 0, 0, 0, 0, 0]),
    ];
    assert_eq!(stub.pass(&[&spoofed[..], &honest].concat()), 7, "without a guard");
    stub.guard(Protection::IpNospoof, &["fd00::1"]);
    assert_eq!(stub.pass(&spoofed), 0);
    assert_eq!(stub.pass(&honest), 2);
    assert_eq!(stub.world.counters().drops.of(DropReason::IpSpoofed), 5);
    stub.world.check_conservation();
}

/// Whoever leaves a checksum open says where it goes, and that may be an address or a port: what was judged is what leaves.
#[test]
fn a13_an_open_checksum_changes_nothing_behind_its_judges() {
    let mut stub = stub(1, None);
    stub.guard(Protection::IpNospoof, &["10.0.0.1"]);
    let rest = |bytes: &[u8]| [&bytes[..18], &bytes[20..24], &bytes[26..40], &bytes[42..]].concat();
    let (mut left, mut as_sent) = (0, 0);
    for start in 0..60 {
        let mut chain: Chain = (0..59_u16.saturating_sub(start))
            .map(|offset| {
                let mut frame = udp_frame(&mut stub.pools, 1, 2, (7, 53), 60);
                frame.meta_mut().checksum = Checksum::Partial { start, offset: offset as u8 };
                frame
            })
            .collect();
        let sent = chain.front().map(|frame| rest(frame.as_slice()));
        stub.alice.tx.push_chain(&mut chain);
        stub.world.run();
        for frame in stub.received().iter() {
            assert_eq!(frame.as_slice()[26..30], [10, 0, 0, 1], "{start}");
            left += 1;
            as_sent += usize::from(Some(rest(frame.as_slice())) == sent);
        }
    }
    let drops = stub.world.counters().drops;
    assert!(drops.of(DropReason::IpSpoofed) > 50, "{drops:?}");
    assert!(as_sent > 50 && left > as_sent, "{left} left, of {as_sent} no more than checksums has changed");
    // A device of a tunnel leaves the inner transport's open, which says nothing of how to cut what is around it.
    let mut frame = udp_frame(&mut stub.pools, 1, 2, (7, 4789), 200);
    frame.meta_mut().checksum = Checksum::Partial { start: 92, offset: 6 };
    frame.meta_mut().segmentation =
        Some(Segmentation { kind: SegmentKind::Udp, segment_bytes: 50, header_bytes: 100, ecn: false });
    stub.alice.tx.push_chain(&mut Chain::from_iter([frame]));
    stub.world.run();
    assert_eq!(stub.received().len(), 0);
    assert_eq!(stub.world.counters().drops.of(DropReason::BadOffload), 1);
    stub.world.check_conservation();
}

/// A test of an address, whose checksum differs from the right one by `error`.
fn test_of(target: Ipv6Addr, to: MacAddr, error: u16) -> Vec<u8> {
    let group = solicited_node(target);
    let mut solicit = [&[135, 0, 0, 0, 0, 0, 0, 0][..], &target.octets()].concat();
    let pseudo = Sum::pseudo_v6(Ipv6Addr::UNSPECIFIED, group, IpProtocol::ICMPV6, 24);
    let sum = pseudo.combine(Sum::of(&solicit)).checksum() ^ error;
    solicit[2..4].copy_from_slice(&sum.to_be_bytes());
    ipv6_frame(to, (58, 255), ["::", &group.to_string()], &solicit)
}

/// Whoever has the address never hears the first three, so nobody contradicts them.
#[test]
fn a12_who_tests_an_address_so_that_nobody_hears_it_has_not_claimed_it() {
    let target = "fe80::7".parse::<Ipv6Addr>().unwrap();
    let group = group_mac(solicited_node(target).into());
    let heard = test_of(target, group, 0);
    let tagged = [&heard[..12], &[0x81, 0, 0, 0], &heard[12..]].concat();
    let (to_oneself, wrong) = (test_of(target, mac(1), 0), test_of(target, group, 1));
    let used = ipv6_frame(mac(2), (59, 64), ["fe80::7", "fe80::2"], &[]);
    for (test, passes) in [(to_oneself, false), (tagged, false), (wrong, false), (heard, true)] {
        for lanes in [1, 2] {
            let mut stub = stub(lanes, None);
            stub.guard(Protection::IpNospoof, &[]);
            stub.pass(std::slice::from_ref(&test));
            assert_eq!(stub.pass(std::slice::from_ref(&used)), usize::from(passes), "{test:x?}");
            assert_eq!(stub.world.counters().drops.of(DropReason::IpSpoofed), u64::from(!passes));
            stub.world.check_conservation();
        }
    }
}

#[test]
fn a12_a_test_that_a_limit_stops_has_not_claimed_the_address() {
    let target = "fe80::7".parse::<Ipv6Addr>().unwrap();
    let test = test_of(target, group_mac(solicited_node(target).into()), 0);
    let used = ipv6_frame(mac(2), (59, 64), ["fe80::7", "fe80::2"], &[]);
    for lanes in [1, 2] {
        let mut stub = stub(lanes, None);
        stub.guard(Protection::IpNospoof, &[]);
        let rule = FlowMatch { transport: Some(IpProtocol::ICMPV6), ..FlowMatch::default() };
        let config = FlowConfig { parent: None, maxbw: Some(BitRate::ZERO), priority: Priority::Medium };
        let home = Some(LaneId(lanes - 1));
        let setup = FlowSetup { flow: FlowId(3), owner: LinkId(1), rule: Some(rule), config, home };
        stub.world.add_flow(setup);
        for (is_limited, passes) in [(true, 0), (false, 1)] {
            assert_eq!(stub.pass(std::slice::from_ref(&test)), usize::from(!is_limited), "{lanes} lanes");
            if is_limited {
                assert_eq!(stub.world.counters().drops.of(DropReason::FlowLimit), 1);
                stub.world.all(|| Control::RemoveFlow(FlowId(3)));
            }
            assert_eq!(stub.pass(std::slice::from_ref(&used)), passes, "{lanes} lanes");
        }
        stub.world.check_conservation();
    }
}
