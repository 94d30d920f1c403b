//! Who has a limit of his own, at a limit above that others use up, in virtual time: it takes nothing of his share away.

#![allow(clippy::unwrap_used)] // Helpers of tests, outside #[test] functions.

mod support;

use core::time::Duration;

use firelane_units::{BitRate, FlowId, Priority};
use proptest::prelude::*;
use support::{IN, World};

/// Who sends: frames of so many bytes, a limit of his own or none, and as much as he can.
#[derive(Clone, Copy, Debug)]
struct Sender {
    bytes: usize,
    own: Option<BitRate>,
}

const SPAN: Duration = Duration::from_secs(1);

/// What one who offers so much gets of a link beside others who flood it, and what all get. The lane looks each `turn`.
fn beside(
    link: BitRate,
    (victim, offered): (Sender, BitRate),
    others: &[Sender],
    turn: Duration,
) -> (BitRate, BitRate) {
    let mut world = World::new();
    world.add(0, None, Some(link), Priority::Medium);
    let mut ids = 1..;
    let mut add = |world: &mut World, sender: &Sender| {
        let id = ids.next().unwrap();
        (world.add(id, Some(0), sender.own, Priority::Medium), sender.bytes)
    };
    let (victim, bytes) = add(&mut world, &victim);
    let others: Vec<(FlowId, usize)> = others.iter().map(|it| add(&mut world, it)).collect();
    let (start, mut sent) = (world.now, 0);
    while world.now < start + SPAN {
        world.release();
        let due = offered.bytes_in(world.now.saturating_since(start)).0;
        while sent < due {
            world.send(victim, IN, bytes);
            sent += bytes as u64;
        }
        for &(flow, bytes) in &others {
            let (_, held) = world.flows.held(flow, IN).unwrap();
            (0..30_000_u64.saturating_sub(held.0) / bytes as u64).for_each(|_| world.send(flow, IN, bytes));
        }
        world.now += turn;
    }
    let all: u64 = world.passed.iter().map(|it| it.bytes).sum();
    let per_second = |bytes: u64| BitRate::from_bps(bytes * 8);
    (per_second(world.bytes_of(victim, start)), per_second(all))
}

/// He has what he offers but for 2 % or a few frames, and nothing of the link is left unused.
fn assert_nothing_is_lost(
    link: BitRate,
    victim: (Sender, BitRate),
    others: &[Sender],
    turn: Duration,
) -> Result<(), TestCaseError> {
    let (got, all) = beside(link, victim, others, turn);
    let few = 8 * 8 * 1514;
    let least = victim.1.bps() - (victim.1.bps() / 50).max(few);
    prop_assert!(
        got.bps() >= least,
        "{} of {} b/s: {:?} beside {:?}",
        got.bps(),
        victim.1.bps(),
        victim,
        others
    );
    prop_assert!(
        all.bps() + (link.bps() / 100).max(few) >= link.bps(),
        "{} of {} b/s",
        all.bps(),
        link.bps()
    );
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    /// He offers less than his limit and less than the same share for all. His neighbours have limits too, or none.
    #[test]
    fn who_offers_less_than_his_limit_and_his_share_loses_nothing(
        mbps in prop_oneof![3u64..20, 20u64..200, 200u64..1500],
        (bytes, offered, above) in (64usize..=1514, 20u64..=97, 102u64..=400),
        others in prop::collection::vec((64usize..=1514, prop::option::of(150u64..=400)), 1..5),
        turn in 10u64..=100,
    ) {
        let link = BitRate::from_mbps(mbps);
        let share = link.bps() / (others.len() as u64 + 1);
        let of = |base: u64, percent: u64| BitRate::from_bps(base * percent / 100);
        let offered = of(share, offered);
        let victim = Sender { bytes, own: Some(of(offered.bps(), above)) };
        let others: Vec<_> =
            others.iter().map(|&(bytes, own)| Sender { bytes, own: own.map(|own| of(share, own)) }).collect();
        assert_nothing_is_lost(link, (victim, offered), &others, Duration::from_micros(turn))?;
    }
}

#[test]
fn a_limit_of_ones_own_costs_small_and_large_frames_nothing() {
    let mbps = BitRate::from_mbps;
    let flood = |own| [Sender { bytes: 1042, own }; 3];
    for (link, bytes, kbps, own, others) in [
        (10, 142, 2400, Some(3), flood(None)),
        (10, 242, 2400, Some(3), flood(None)),
        (10, 242, 2400, Some(5), flood(None)),
        (10, 1042, 2400, Some(3), flood(None)),
        (10, 142, 2400, Some(4), flood(Some(mbps(4)))),
        (100, 300, 24_000, Some(30), flood(None)),
        (100, 300, 24_000, Some(25), flood(None)),
        (200, 1514, 48_000, Some(55), flood(None)),
        (100, 300, 24_000, None, flood(None)),
    ] {
        let victim = Sender { bytes, own: own.map(mbps) };
        let offered = BitRate::from_bps(kbps * 1000);
        assert_nothing_is_lost(mbps(link), (victim, offered), &others, Duration::from_micros(50)).unwrap();
    }
}
