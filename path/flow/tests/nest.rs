//! The nest as a whole, in virtual time: limits, order, fairness, priority, live changes, and the sums.

#![allow(clippy::unwrap_used)] // Helpers of tests, outside #[test] functions.

mod support;

use core::net::IpAddr;
use core::time::Duration;

use firelane_flow::{Conversation, Credit, FlowConfig, FlowError, NEST_MAX, UnderWay};
use firelane_frame::{Checksum, Frame, SegmentKind, Segmentation};
use firelane_units::{BitRate, Bytes, Direction, DropReason, FlowId, Instant, Port, Priority};
use firelane_wire::IpProtocol;
use proptest::prelude::*;
use support::{IN, LINK, OUT, Passed, SLACK, World, assert_share};

/// Which flows there are in the random test: (identifier, parent).
const TREE: [(u32, Option<u32>); 7] =
    [(0, None), (1, Some(0)), (2, Some(0)), (3, Some(1)), (4, Some(1)), (5, Some(2)), (6, Some(3))];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    /// Whatever comes: sums add up, each flow keeps its order, no limit anywhere in the tree is exceeded, and
    /// everything that is held leaves.
    #[test]
    fn the_laws_hold_under_random_traffic(
        limits in prop::collection::vec(prop::option::of(1u64..400), 7),
        promises in prop::collection::vec(prop::option::of(1u64..100), 7),
        priorities in prop::collection::vec(0usize..3, 7),
        traffic in prop::collection::vec((0u32..7, any::<bool>(), 60usize..1514, 0u64..80, 1u8..30), 1..80),
    ) {
        let mut world = World::new();
        for (id, parent) in TREE {
            let maxbw = limits[id as usize].map(BitRate::from_mbps);
            let flow = world.add(id, parent, maxbw, Priority::ALL[priorities[id as usize]]);
            let minbw = promises[id as usize].map(BitRate::from_mbps);
            world.flows.set_minbw(world.now, flow, minbw).unwrap();
        }
        for (flow, outward, bytes, pause, count) in traffic {
            let direction = if outward { OUT } else { IN };
            for _ in 0..count {
                world.send(FlowId(flow), direction, bytes);
            }
            world.assert_conservation();
            world.now += Duration::from_micros(pause);
            world.release();
        }
        world.drain();
        world.assert_conservation();
        prop_assert_eq!(world.flows.held_frames(), 0);
        for (id, _) in TREE {
            for direction in Direction::ALL {
                let own: Vec<_> =
                    world.passed.iter().filter(|p| p.flow == FlowId(id) && p.direction == direction).collect();
                prop_assert!(own.is_sorted_by_key(|p| p.serial), "flow {} out of order", id);
                if let Some(mbps) = limits[id as usize] {
                    let is_below_another = above(id).skip(1).any(|id| limits[id as usize].is_some());
                    let rate = BitRate::from_mbps(mbps);
                    assert_limit(&world.passed, id, direction, rate, is_below_another)?;
                }
            }
        }
    }

    /// Whatever limits come and go, with their flows or without: whoever asks whether there are any is told what the flows say one by one.
    #[test]
    fn whether_there_are_limits_is_known(
        steps in prop::collection::vec((0u32..7, prop::option::of(prop::option::of(1u64..400))), 1..60),
    ) {
        let mut world = World::new();
        for (flow, step) in steps {
            let (id, mbps) = (FlowId(flow), step.map(|mbps| mbps.map(BitRate::from_mbps)));
            match mbps {
                // Refused where it is not there, or others are part of it.
                None => {
                    let _ = world.flows.remove(id, |_, _| {});
                }
                Some(maxbw) if world.flows.config(id).is_some() => {
                    world.flows.set_maxbw(world.now, id, maxbw).unwrap();
                }
                Some(maxbw) => {
                    let parent = TREE[flow as usize].1.map(FlowId);
                    let config = FlowConfig { parent, maxbw, priority: Priority::Medium };
                    let _ = world.flows.insert(world.now, id, config);
                }
            }
            let limits = (0..7).filter_map(|id| world.flows.config(FlowId(id))?.maxbw).count();
            prop_assert_eq!(world.flows.has_limits(), limits > 0);
        }
    }
}

/// A flow and what it is part of.
fn above(id: u32) -> impl Iterator<Item = u32> {
    core::iter::successors(Some(id), |&id| TREE[id as usize].1)
}

/// No window holds more than the limit, the slack and the frame that ends it; for all traffic below `top`. Below another limit it may be
/// two frames in all, or 1 % of 100 ms.
fn assert_limit(
    passed: &[Passed],
    top: u32,
    direction: Direction,
    rate: BitRate,
    is_below_another: bool,
) -> Result<(), TestCaseError> {
    let is_below = |flow: FlowId| above(flow.0).any(|id| id == top);
    let kept = rate.bytes_in(Duration::from_millis(1)).0.saturating_sub(1514).max(1514);
    let slack = rate.bytes_in(SLACK).0;
    let more = if is_below_another { kept.max(slack) } else { slack };
    let below: Vec<_> = passed.iter().filter(|p| is_below(p.flow) && p.direction == direction).collect();
    for (i, first) in below.iter().enumerate() {
        let mut sum = 0;
        for p in &below[i..] {
            let window = p.at.saturating_since(first.at);
            prop_assert!(
                sum <= rate.bytes_in(window).0 + more + 2,
                "flow {} passed {} B in {:?}",
                top,
                sum,
                window
            );
            sum += p.bytes;
        }
    }
    Ok(())
}

#[test]
fn a_flow_gets_its_limit_from_the_first_second() {
    for (mbps, bytes) in [(10, 1514), (50, 1514), (50, 60), (900, 1514)] {
        let mut world = World::new();
        let flow = world.limited(1, None, mbps);
        let start = world.now;
        let span = Duration::from_millis(400);
        world.saturate(&[(flow, bytes)], span);
        for window in 0..4 {
            let from = start + Duration::from_millis(window * 100);
            let to = from + Duration::from_millis(100);
            let bytes: u64 = world.passed.iter().filter(|p| p.at >= from && p.at < to).map(|p| p.bytes).sum();
            assert_share(bytes, BitRate::from_mbps(mbps), Duration::from_millis(100));
        }
        world.assert_conservation();
    }
}

#[test]
fn r13_a_flow_cannot_escape_the_limit_of_its_vnic_nor_both_that_of_the_link() {
    let mut world = World::new();
    world.limited(0, None, 60);
    world.limited(1, Some(0), 50);
    let flow = world.limited(2, Some(1), 40);
    let rest = world.free(3, Some(1));
    let other = world.free(4, Some(0));
    let (start, span) = (world.now, Duration::from_millis(500));
    world.saturate(&[(flow, 1514), (rest, 1514), (other, 1514)], span);
    let [flow, rest, other] = [flow, rest, other].map(|f| world.bytes_of(f, start));
    assert_share(flow + rest + other, BitRate::from_mbps(60), span);
    assert!(flow + rest <= BitRate::from_mbps(50).bytes_in(span + SLACK).0 + 1514);
    assert!(flow <= BitRate::from_mbps(40).bytes_in(span + SLACK).0 + 1514);
    // Three flows share 60 Mb/s in turn.
    for share in [flow, rest, other] {
        assert!(share.abs_diff((flow + rest + other) / 3) < 60_000, "{flow} {rest} {other}");
    }
}

#[test]
fn r13_the_size_of_frames_does_not_change_the_share() {
    let mut world = World::new();
    world.limited(0, None, 100);
    let flows = [(world.free(1, Some(0)), 60), (world.free(2, Some(0)), 1514), (world.free(3, Some(0)), 590)];
    let start = world.now;
    world.saturate(&flows, Duration::from_millis(500));
    let shares = flows.map(|(flow, _)| world.bytes_of(flow, start));
    let third = shares.iter().sum::<u64>() / 3;
    assert!(shares.iter().all(|share| share.abs_diff(third) < third / 50), "{shares:?}");
}

/// A flow that wakes up at the right moment by a limit of its own must not starve one that only waits.
#[test]
fn flows_with_limits_of_their_own_do_not_starve_their_neighbour() {
    let mut world = World::new();
    world.limited(0, None, 100);
    let mut flows: Vec<_> = (1..=4).map(|id| (world.limited(id, Some(0), 50), 1514)).collect();
    flows.push((world.free(5, Some(0)), 1514));
    let start = world.now;
    world.saturate(&flows, Duration::from_millis(500));
    let fair = BitRate::from_mbps(20).bytes_in(Duration::from_millis(500)).0;
    for (flow, _) in flows {
        let share = world.bytes_of(flow, start);
        assert!(share.abs_diff(fair) < fair / 10, "flow {flow} got {share} of {fair}");
    }
}

#[test]
fn a_higher_priority_is_served_first_and_the_rest_goes_to_the_others() {
    let mut world = World::new();
    world.limited(0, None, 100);
    let high = world.add(1, Some(0), Some(BitRate::from_mbps(70)), Priority::High);
    let medium = world.free(2, Some(0));
    let low = world.add(3, Some(0), None, Priority::Low);
    let (start, span) = (world.now, Duration::from_millis(500));
    world.saturate(&[(low, 1514), (medium, 1514), (high, 1514)], span);
    assert_share(world.bytes_of(high, start), BitRate::from_mbps(70), span);
    let rest = world.bytes_of(medium, start);
    assert!(rest.abs_diff(BitRate::from_mbps(30).bytes_in(span).0) < 60_000, "{rest}");
    assert!(world.bytes_of(low, start) <= 4 * 1514, "low only gets what comes before the others wait");
    world.assert_conservation();
}

#[test]
fn lowering_a_vnic_lowers_its_flows() {
    let mut world = World::new();
    world.limited(0, None, 100);
    world.add(1, Some(0), None, Priority::High);
    world.add(2, Some(0), None, Priority::High);
    let (one, two) = (world.free(3, Some(1)), world.add(4, Some(2), None, Priority::High));
    world.flows.set_priority(FlowId(2), Priority::Low).unwrap();
    let start = world.now;
    world.saturate(&[(one, 1514), (two, 1514)], Duration::from_millis(100));
    assert!(world.bytes_of(two, start) <= 4 * 1514);
    world.flows.set_priority(FlowId(1), Priority::Low).unwrap();
    world.flows.set_priority(FlowId(2), Priority::Medium).unwrap();
    let (start, before) = (world.now, world.bytes_of(two, start));
    world.saturate(&[(one, 1514), (two, 1514)], Duration::from_millis(100));
    assert!(world.bytes_of(one, start) <= 8 * 1514 && world.bytes_of(two, start) > before + 1_000_000);
}

#[test]
fn what_no_flow_of_a_vnic_takes_is_of_medium_priority_in_it() {
    // As they are made where nobody says otherwise.
    let mut world = World::new();
    world.add(0, None, None, Priority::High);
    let vnic = world.add(1, Some(0), Some(BitRate::from_mbps(100)), Priority::High);
    let [low, medium, high] = [(2, Priority::Low), (3, Priority::Medium), (4, Priority::High)]
        .map(|(id, priority)| world.add(id, Some(1), None, priority));
    let mut shares = |flow| {
        let start = world.now;
        world.saturate(&[(vnic, 1514), (flow, 1514)], Duration::from_millis(100));
        [vnic, flow].map(|it| world.bytes_of(it, start))
    };
    let [own, its] = shares(medium);
    assert!(own.abs_diff(its) <= 8 * 1514, "{own} and {its}");
    let ([own, its], [before, first]) = (shares(low), shares(high));
    assert!(its <= 8 * 1514 && own > 1_000_000, "{own} and {its}");
    assert!(before <= 8 * 1514 && first > 1_000_000, "{before} and {first}");
}

#[test]
fn a_vnics_priority_counts_before_those_of_anothers_flows() {
    let mut world = World::new();
    world.add(0, None, Some(BitRate::from_mbps(100)), Priority::High);
    let low = world.add(1, Some(0), None, Priority::Low);
    world.add(2, Some(0), None, Priority::Medium);
    let flow = world.add(3, Some(2), None, Priority::Low);
    let start = world.now;
    world.saturate(&[(low, 1514), (flow, 1514)], Duration::from_millis(100));
    let [own, its] = [low, flow].map(|it| world.bytes_of(it, start));
    assert!(own <= 8 * 1514 && its > 1_000_000, "{own} and {its}");
}

#[test]
fn both_directions_have_the_limit_each() {
    let mut world = World::new();
    let flow = world.limited(1, None, 8);
    let start = world.now;
    for _ in 0..1000 {
        world.release();
        world.send(flow, IN, 1514);
        world.send(flow, OUT, 1514);
        world.now += Duration::from_micros(500);
    }
    for direction in Direction::ALL {
        assert_share(
            world.counters(flow, direction).bytes,
            BitRate::from_mbps(8),
            world.now.saturating_since(start),
        );
    }
}

#[test]
fn who_is_awake_releases_each_frame_in_time_and_who_sleeps_wakes_for_several() {
    let mut world = World::new();
    let flow = world.add(1, None, Some(BitRate::from_mbps(1000)), Priority::Medium);
    (0..4).for_each(|_| world.send(flow, OUT, 1250));
    let begin = world.now;
    // A frame takes the line for ten microseconds.
    assert_eq!(world.flows.next_release(), Some(begin + Duration::from_micros(10)));
    let wakes = world.flows.wake_for_release().unwrap();
    assert_eq!(wakes, begin + Duration::from_micros(100), "some are gathered");
    world.now += Duration::from_micros(10);
    world.release();
    assert_eq!(world.passed.len(), 2);
    assert_eq!(world.flows.wake_for_release(), Some(world.now + Duration::from_micros(100)));
    world.now = wakes;
    world.release();
    assert_eq!((world.passed.len(), world.flows.wake_for_release()), (4, None));
    // Nobody waits for what a shut limit drops.
    world.flows.set_maxbw(world.now, flow, Some(BitRate::from_bps(1))).unwrap();
    (0..3).for_each(|_| world.send(flow, OUT, 1250));
    world.flows.set_maxbw(world.now, flow, Some(BitRate::ZERO)).unwrap();
    assert!(world.flows.wake_for_release().is_some_and(|at| at <= world.now));
}

#[test]
fn a_limit_changes_while_frames_are_held() {
    let mut world = World::new();
    let flow = world.add(1, None, Some(BitRate::from_bps(1)), Priority::Medium);
    (0..8).for_each(|_| world.send(flow, IN, 1000));
    assert_eq!(world.flows.held(flow, IN), Some((6, Bytes(6000))), "one passed, one was dropped");
    // A slow limit's debt of hours does not outlive it.
    world.flows.set_maxbw(world.now, flow, Some(BitRate::from_mbps(80))).unwrap();
    world.now += Duration::from_millis(1);
    world.release();
    assert_eq!((world.flows.held_frames(), world.passed.len()), (0, 7));
    // Taking the limit away lets out what is held, at once.
    world.flows.set_maxbw(world.now, flow, Some(BitRate::from_bps(1))).unwrap();
    (0..3).for_each(|_| world.send(flow, IN, 1000));
    world.flows.set_maxbw(world.now, flow, None).unwrap();
    world.send(flow, IN, 1000);
    assert_eq!(world.flows.next_release(), Some(Instant::ZERO));
    world.release();
    world.send(flow, IN, 1000);
    assert_eq!((world.flows.held_frames(), world.flows.next_release()), (0, None));
    assert!(world.passed.is_sorted_by_key(|p| p.serial));
    world.assert_conservation();
    assert_eq!(world.flows.config(flow).unwrap().maxbw, None);
}

#[test]
fn a_limit_of_zero_drops_everything_also_what_is_held_and_what_is_below() {
    let mut world = World::new();
    let link = world.limited(0, None, 1);
    let flow = world.free(1, Some(0));
    (0..3).for_each(|_| world.send(flow, IN, 1000));
    assert_eq!(world.flows.held_frames(), 2);
    world.flows.set_maxbw(world.now, link, Some(BitRate::ZERO)).unwrap();
    world.send(flow, IN, 1000);
    assert_eq!(world.release(), None);
    assert_eq!((world.flows.held_frames(), world.drops.of(DropReason::FlowLimit)), (0, 3));
    assert_eq!(
        world.flows.credit(world.now, (flow, IN), None, UnderWay::default()),
        Credit::At(Instant::FAR_FUTURE)
    );
    world.flows.set_maxbw(world.now, link, Some(BitRate::from_mbps(1))).unwrap();
    world.send(flow, IN, 1000);
    assert_eq!(world.counters(flow, IN).passed, 2);
    world.assert_conservation();
}

#[test]
fn a_removed_flow_hands_out_what_it_held() {
    let mut world = World::new();
    world.limited(0, None, 1);
    let flow = world.free(1, Some(0));
    (0..3).for_each(|_| world.send(flow, IN, 1000));
    let mut handed = 0;
    assert_eq!(world.flows.remove(LINK, |_, _| ()), Err(FlowError::HasChildren));
    world.flows.remove(flow, |direction, _| handed += u32::from(direction == IN)).unwrap();
    assert_eq!((handed, world.flows.held_frames()), (2, 0));
    assert_eq!(world.flows.remove(flow, |_, _| ()), Err(FlowError::Unknown));
    world.drain();
    // A frame whose flow is gone passes and is counted apart.
    world.send(flow, IN, 500);
    assert_eq!((world.flows.stray().passed, world.flows.stray().bytes), (1, 500));
}

#[test]
fn what_a_flow_hands_out_counts_where_it_is_asked_for() {
    let mut world = World::new();
    let vnic = world.limited(0, None, 8);
    let [one, other] = [1, 2].map(|flow| world.free(flow, Some(vnic.0)));
    for _ in 0..5 {
        world.send(one, OUT, 1000);
    }
    assert_eq!(world.flows.held(one, OUT), Some((4, Bytes(4000))));
    let mut frames = vec![];
    world.flows.hand_out(one, |direction, frame| frames.push((direction, frame)));
    assert_eq!((world.flows.held_frames(), frames.len()), (0, 4));
    for (direction, frame) in frames {
        world.admit(other, direction, frame);
    }
    world.assert_conservation();
    world.drain();
    assert!(world.passed.is_sorted_by_key(|p| p.serial) && world.passed.len() == 5);
    // It may be asked again.
    world.send(one, OUT, 1000);
    world.drain();
    world.assert_conservation();
}

#[test]
fn refusals() {
    let mut world = World::new();
    let config = |parent| FlowConfig { parent, maxbw: None, priority: Priority::Medium };
    world.free(0, None);
    assert_eq!(world.flows.insert(world.now, FlowId(0), config(None)), Err(FlowError::Exists));
    assert_eq!(world.flows.insert(world.now, FlowId(1), config(Some(FlowId(9)))), Err(FlowError::NoParent));
    for depth in 1..NEST_MAX as u32 {
        world.free(depth, Some(depth - 1));
    }
    let too_deep = config(Some(FlowId(NEST_MAX as u32 - 1)));
    assert_eq!(world.flows.insert(world.now, FlowId(9), too_deep), Err(FlowError::TooDeep));
    assert_eq!(world.flows.set_maxbw(world.now, FlowId(9), None), Err(FlowError::Unknown));
    assert_eq!(world.flows.set_priority(FlowId(9), Priority::Low), Err(FlowError::Unknown));
}

/// A socket that asks before it sends gets its limit to the byte, and nothing is ever dropped or even held long.
#[test]
fn a_sender_within_its_credit_is_never_dropped() {
    for mbps in [1, 50, 900] {
        let mut world = World::new();
        world.limited(0, None, mbps);
        let flow = world.free(1, Some(0));
        let (start, span) = (world.now, Duration::from_secs(1));
        while world.now < start + span {
            match world.flows.credit(world.now, (flow, OUT), None, UnderWay::default()) {
                Credit::At(at) => world.now = at,
                Credit::Bytes(bytes) => {
                    let count = (bytes.0 / 1514).max(1);
                    (0..count).for_each(|_| world.send(flow, OUT, 1514));
                }
                Credit::Unlimited => panic!("the flow is limited"),
            }
            world.release();
        }
        world.drain();
        assert_eq!((world.drops.total(), world.flows.held_frames()), (0, 0));
        assert_share(
            world.counters(flow, OUT).bytes,
            BitRate::from_mbps(mbps),
            world.now.saturating_since(start),
        );
    }
}

/// Also where its lane comes late, and has a frame for each turn at best.
#[test]
fn a_socket_gets_its_share_beside_senders_that_do_not_ask() {
    for (mbps, pause) in [(100, 100), (20, 100), (20, 900), (10, 2_000), (3, 4_500)] {
        let mut world = World::new();
        world.limited(0, None, mbps);
        let (flood, socket) = (world.free(1, Some(0)), world.free(2, Some(0)));
        let start = world.now;
        for turn in 0..1_000_000 / pause {
            (0..20).for_each(|_| world.send(flood, IN, 1514));
            // The limit is served by timers, whoever comes late.
            for _ in 0..pause / 50 {
                world.release();
                world.now += Duration::from_micros(50);
            }
            if let Credit::Bytes(bytes) =
                world.flows.credit(world.now, (socket, IN), None, UnderWay::default())
            {
                (0..(bytes.0 / 1514).max(1)).for_each(|_| world.send(socket, IN, 1514));
            }
            assert!(turn < 1_000_000);
        }
        let share = world.bytes_of(socket, start);
        let half = BitRate::from_mbps(mbps).bytes_in(Duration::from_millis(500)).0;
        assert!(share > half * 8 / 10, "{share} of {half} at {mbps} Mb/s, each {pause} us");
        assert_eq!(world.counters(socket, IN).dropped, 0);
    }
}

/// Those who do not ask are in other lanes, or are forwarded: the frames that wait are never all gone.
#[test]
fn a_conversation_gets_its_share_beside_others_of_its_flow_that_do_not_ask() {
    for (mbps, others) in [(1, 1), (10, 1), (100, 1), (10, 5), (1_000, 3)] {
        let mut world = World::new();
        let flow = world.limited(0, None, mbps);
        let speaker = |number: u16| {
            let end = |last, port| (IpAddr::from([10, 0, 0, last]), Port(port));
            Conversation::between(IpProtocol::UDP, end(1, number), end(2, 0))
        };
        let (start, mut sent) = (world.now, Vec::new());
        for _ in 0..20_000 {
            for other in 0..others {
                (0..3).for_each(|_| _ = world.send_of(flow, other, 1514));
            }
            for asks in [100, 101] {
                if let Credit::Bytes(bytes) =
                    world.flows.credit(world.now, (flow, IN), Some(speaker(asks)), UnderWay::default())
                {
                    for _ in 0..(bytes.0 / 1514).max(1) {
                        sent.push(world.send_of(flow, asks, 1514));
                    }
                }
            }
            world.release();
            world.now += Duration::from_micros(100);
        }
        let span = world.now.saturating_since(start);
        world.drain();
        let passed = world.passed.iter().filter(|it| sent.contains(&it.serial)).count();
        assert_eq!(passed, sent.len(), "who asks loses nothing");
        let fair = BitRate::from_mbps(mbps).bytes_in(span).0 / 1514 * 2 / (2 + u64::from(others));
        assert!(passed as u64 > fair * 8 / 10, "{passed} of {fair} at {mbps} Mb/s beside {others}");
    }
}

#[test]
fn a_large_frame_is_cut_so_that_the_limit_stays_exact() {
    let mut world = World::new();
    let (slow, fast) = (world.limited(1, None, 50), world.limited(2, None, 9000));
    let mut frame = large_frame(&mut world);
    frame.meta_mut().segmentation = None;
    assert!(!world.flows.must_cut(slow, IN, &frame), "only frames that can be cut");
    let frame = large_frame(&mut world);
    assert!(world.flows.must_cut(slow, IN, &frame) && !world.flows.must_cut(fast, IN, &frame));
    let (mut passed, now) = (0, world.now);
    let World { flows, pools, drops, .. } = &mut world;
    flows.admit_cut(now, slow, IN, frame, pools, drops, |piece| {
        assert_eq!(piece.len(), 1514);
        passed += 1;
    });
    let c = flows.counters(slow, IN).unwrap();
    assert_eq!((passed, c.arrived, c.passed, flows.held_frames()), (1, 40, 1, 39));
    assert_eq!(drops.total(), 0);
    let whole = large_frame(&mut world);
    let World { flows, pools, drops, .. } = &mut world;
    flows.admit_cut(now, fast, IN, whole, pools, drops, |frame| assert_eq!(frame.len(), 54 + 40 * 1460));
    assert_eq!(flows.counters(fast, IN).unwrap().packets, 40);
}

fn large_frame(world: &mut World) -> Frame {
    let mut frame = world.pools.take(54 + 40 * 1460).unwrap();
    frame.append(54 + 40 * 1460).fill(0);
    let bytes = frame.as_mut_slice();
    bytes[12..14].copy_from_slice(&[8, 0]);
    bytes[14] = 0x45;
    bytes[16..18].copy_from_slice(&(40u16 * 1460 + 40).to_be_bytes());
    bytes[23] = 6;
    bytes[46] = 0x50;
    frame.meta_mut().checksum = Checksum::Partial { start: 34, offset: 16 };
    frame.meta_mut().segmentation =
        Some(Segmentation { kind: SegmentKind::TcpV4, segment_bytes: 1460, header_bytes: 54, ecn: false });
    frame
}

#[test]
fn a_full_hold_drops_the_frame_that_has_waited_longest() {
    let mut world = World::new();
    let flow = world.limited(1, None, 10);
    for _ in 0..40 {
        world.send(flow, IN, 1514);
    }
    let (waiting, bytes) = world.flows.held(flow, IN).unwrap();
    assert!(bytes.0 <= 25_000, "20 ms at 10 Mb/s: {bytes}");
    assert_eq!(world.drops.of(DropReason::FlowLimit), 39 - waiting as u64);
    world.drain();
    let serials: Vec<_> = world.passed.iter().map(|p| p.serial).collect();
    let newest = 40 - waiting as u32;
    assert_eq!(serials[0], 0, "the first passes at once");
    assert_eq!(serials[1..], (newest..40).collect::<Vec<_>>(), "then the newest, in order");
    world.assert_conservation();
}

proptest! {
    /// A device whose frames stay in its ring until there is credit is as exact as a hold: a lane that is late by up to ten
    /// milliseconds makes up for it.
    #[test]
    fn frames_left_in_a_ring_lose_nothing_to_a_late_lane(
        mbps in 1u64..400,
        lateness in prop::collection::vec(0u64..9_800, 1..20),
    ) {
        let mut world = World::new();
        world.limited(0, None, mbps);
        let flow = world.free(1, Some(0));
        let start = world.now;
        for late in lateness.iter().cycle() {
            let until = loop {
                match world.flows.credit(world.now, (flow, OUT), None, UnderWay::default()) {
                    Credit::At(until) => break until,
                    _ => world.send(flow, OUT, 1514),
                }
            };
            let due = BitRate::from_mbps(mbps).bytes_in(world.now.saturating_since(start)).0;
            let bytes = world.counters(flow, OUT).bytes;
            prop_assert!(bytes > due && bytes <= due + 1 + 2 * 1514, "{bytes} of {due}");
            world.flows.note_waiting(world.now, flow, OUT, true);
            world.now = until + Duration::from_micros(*late);
            if world.now > start + Duration::from_secs(1) {
                break;
            }
        }
    }
}

#[test]
fn who_came_again_with_nothing_gains_nothing_later() {
    let mut world = World::new();
    world.limited(0, None, 80);
    let flow = world.free(1, Some(0));
    world.send(flow, OUT, 1514);
    world.flows.note_waiting(world.now, flow, OUT, true);
    world.now += Duration::from_micros(300);
    world.flows.note_waiting(world.now, flow, OUT, false);
    world.now += Duration::from_millis(8);
    // 80 Mb/s are 10 bytes per microsecond: 500 us of slack and 400 us of a piece.
    assert_eq!(
        world.flows.credit(world.now, (flow, OUT), None, UnderWay::default()),
        Credit::Bytes(Bytes(9_000))
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// One conversation sends without pause; its neighbours, who together want half of the limit, lose nothing and wait no
    /// longer than the round takes. The limit stays exact meanwhile.
    #[test]
    fn a_flood_inside_a_limit_takes_only_what_its_neighbours_leave(
        mbps in 10u64..200,
        neighbours in 1u16..20,
        sizes in prop::collection::vec(60usize..=1514, 20),
    ) {
        let mut world = World::new();
        world.limited(0, None, mbps);
        let flow = world.free(1, Some(0));
        let rate = BitRate::from_mbps(mbps);
        let turn = Duration::from_micros(100);
        // What each has sent, and when, until it passes.
        let mut asked = std::collections::BTreeMap::new();
        let mut owed = vec![0.0; usize::from(neighbours)];
        let share = rate.bytes_in(turn).0 as f64 / 2.0 / f64::from(neighbours);
        let start = world.now;
        while world.now < start + Duration::from_millis(400) {
            world.release();
            (0..20_000 / 1514).for_each(|_| _ = world.send_of(flow, 0, 1514));
            for (n, owed) in owed.iter_mut().enumerate() {
                *owed += share;
                if *owed >= sizes[n] as f64 {
                    *owed -= sizes[n] as f64;
                    asked.insert(world.send_of(flow, n as u16 + 1, sizes[n]), world.now);
                }
            }
            world.now += turn;
        }
        world.drain();
        let round = rate.time_for(Bytes(1514)) * (2 * u32::from(neighbours) + 4) + Duration::from_micros(500);
        for passed in &world.passed {
            if let Some(at) = asked.remove(&passed.serial) {
                let waited = passed.at.saturating_since(at);
                prop_assert!(waited <= round, "{waited:?} of {round:?}");
            }
        }
        prop_assert!(asked.is_empty(), "{} were dropped", asked.len());
        let window = Duration::from_millis(100);
        let wanted = rate.bytes_in(window).0;
        for from in (0..300).step_by(25).map(|n| start + Duration::from_millis(n)) {
            let inside = world.passed.iter().filter(|it| it.at >= from && it.at < from + window);
            let bytes: u64 = inside.map(|it| it.bytes).sum();
            prop_assert!(bytes.abs_diff(wanted) <= (wanted / 100).max(2 * 1514), "{bytes} of {wanted}");
        }
        world.assert_conservation();
    }
}
