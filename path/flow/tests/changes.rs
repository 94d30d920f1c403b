//! Limits, guarantees, priorities and flows that come and go at random while frames are held: none is lost, none stays, and the schedule
//! always knows when it goes on.

#![allow(clippy::unwrap_used)] // Helpers of tests, outside #[test] functions.

mod support;

use core::time::Duration;

use firelane_flow::{FlowConfig, Lender, Loan};
use firelane_table::Mint;
use firelane_units::{BitRate, Bytes, Direction, DropReason, FlowId, Priority};
use proptest::prelude::*;
use support::{IN, OUT, World};

/// Flows and what they are part of.
const TREE: [Option<u32>; 7] = [None, Some(0), Some(0), Some(1), Some(1), Some(2), Some(3)];

#[derive(Clone, Debug)]
enum Change {
    Send(u32, bool, usize, u8),
    Limit(u32, Option<u64>),
    Promise(u32, Option<u64>),
    Priority(u32, usize),
    Remove(u32),
    HandOut(u32),
    Lend(u32, u64),
    Wait(u64),
}

fn change() -> impl Strategy<Value = Change> {
    let bps = prop_oneof![
        Just(0u64),
        Just(1),
        Just(1000),
        1_000_000..1_000_000_000u64,
        Just(1_000_000_000_000),
        Just(u64::MAX)
    ];
    let flow = || 0u32..7;
    prop_oneof![
        6 => (flow(), any::<bool>(), 60usize..1514, 1u8..40).prop_map(|(f, d, b, n)| Change::Send(f, d, b, n)),
        4 => (flow(), prop::option::of(bps.clone())).prop_map(|(f, b)| Change::Limit(f, b)),
        2 => (flow(), prop::option::of(bps)).prop_map(|(f, b)| Change::Promise(f, b)),
        1 => (flow(), 0usize..3).prop_map(|(f, p)| Change::Priority(f, p)),
        1 => flow().prop_map(Change::Remove),
        1 => flow().prop_map(Change::HandOut),
        2 => (flow(), 1u64..100_000).prop_map(|(f, b)| Change::Lend(f, b)),
        6 => (0u64..5_000).prop_map(Change::Wait),
        1 => (0u64..1_000_000_000_000).prop_map(Change::Wait),
    ]
}

/// What was sent has passed, was dropped by a limit, or is held.
fn check(world: &mut World) {
    let held: usize = (0..7)
        .flat_map(|flow| Direction::ALL.map(|direction| world.flows.held(FlowId(flow), direction)))
        .flatten()
        .map(|(frames, _)| frames)
        .sum();
    assert_eq!(held, world.flows.held_frames());
    let gone = world.passed.len() + world.drops.of(DropReason::FlowLimit) as usize;
    assert_eq!(gone + held, world.sent as usize);
    assert!(held == 0 || world.flows.next_release().is_some(), "{held} are held and nobody looks");
}

fn apply(world: &mut World, lender: &mut Lender<()>, change: &Change) {
    let now = world.now;
    match *change {
        Change::Send(flow, outward, bytes, count) => {
            for _ in 0..count {
                world.send(FlowId(flow), if outward { OUT } else { IN }, bytes);
            }
        }
        Change::Limit(flow, bps) => {
            let _ = world.flows.set_maxbw(now, FlowId(flow), bps.map(BitRate::from_bps));
        }
        Change::Promise(flow, bps) => {
            let _ = world.flows.set_minbw(now, FlowId(flow), bps.map(BitRate::from_bps));
        }
        Change::Priority(flow, nth) => {
            let _ = world.flows.set_priority(FlowId(flow), Priority::ALL[nth]);
        }
        Change::Remove(flow) => {
            let mut held = vec![];
            match world.flows.remove(FlowId(flow), |direction, frame| held.push((direction, frame))) {
                Ok(()) => {
                    let above = FlowId(TREE[flow as usize].unwrap_or(flow));
                    held.into_iter().for_each(|(direction, frame)| world.admit(above, direction, frame));
                }
                Err(_) => {
                    let parent = TREE[flow as usize].map(FlowId);
                    let config = FlowConfig { parent, maxbw: None, priority: Priority::Medium };
                    let _ = world.flows.insert(now, FlowId(flow), config);
                }
            }
        }
        Change::HandOut(flow) => {
            let mut held = vec![];
            world.flows.hand_out(FlowId(flow), |direction, frame| held.push((direction, frame)));
            held.into_iter().for_each(|(direction, frame)| world.admit(FlowId(flow), direction, frame));
        }
        Change::Lend(flow, bytes) => {
            let ways = [Some((FlowId(flow), OUT)), Some((FlowId(6 - flow), IN))];
            lender.ask(now, Loan { borrower: (), ways, wanted: Bytes(bytes) });
            lender.lend(now, &mut world.flows, |_, _| {});
        }
        Change::Wait(micros) => world.now += Duration::from_micros(micros),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn whatever_changes_nothing_is_lost_and_nothing_stays(changes in prop::collection::vec(change(), 1..150)) {
        let mut world = World::new();
        let mut lender = Lender::default();
        for (flow, parent) in (0..).zip(TREE) {
            world.add(flow, parent, None, Priority::Medium);
        }
        for change in &changes {
            apply(&mut world, &mut lender, change);
            check(&mut world);
            // Several changes may come in a turn.
            if let Change::Wait(_) = change {
                let next = world.release();
                check(&mut world);
                prop_assert!(next.is_none_or(|at| at > world.now), "{next:?} is no later than {:?}", world.now);
                lender.lend(world.now, &mut world.flows, |_, _| {});
            }
        }
        // At some megabits everything leaves in time.
        for flow in 0..7 {
            if world.flows.config(FlowId(flow)).is_some_and(|it| it.maxbw.is_some()) {
                world.flows.set_maxbw(world.now, FlowId(flow), Some(BitRate::from_mbps(10))).unwrap();
            }
        }
        let start = world.now;
        world.drain();
        check(&mut world);
        prop_assert_eq!(world.flows.held_frames(), 0);
        prop_assert!(world.now <= start + Duration::from_secs(60), "{:?}", world.now.saturating_since(start));
    }
}

/// Numbers of flows only rise, as long as the engine runs.
#[test]
fn flows_that_have_been_cost_nothing() {
    let mut world = World::new();
    let mut mint = Mint::below(u32::MAX);
    let stays: Vec<_> = (0..10).map(|_| world.limited(mint.mint().unwrap(), None, 8)).collect();
    let before = world.flows.allocated_bytes();
    for nth in 0..20_000 {
        let flow = world.limited(mint.mint().unwrap(), Some(stays[nth % 10].0), 8);
        if nth.is_multiple_of(1000) {
            (0..3).for_each(|_| world.send(flow, OUT, 1000));
            world.drain();
        }
        world.flows.remove(flow, |_, _| panic!("it holds nothing")).unwrap();
        mint.give_back(flow.0);
    }
    let after = world.flows.allocated_bytes();
    assert!(after <= 2 * before, "{before} bytes for 10 flows, and {after} after many");
    assert_eq!(world.passed.len(), 60);
    assert!(world.flows.flows().eq(stays));
}
