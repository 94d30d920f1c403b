//! A game: limits, guarantees, priorities and flows change from epoch to epoch while senders flood them, and what passed in each epoch is
//! compared with what a few laws say of it, whichever changes were before.

#![allow(clippy::unwrap_used)] // Helpers of tests, outside #[test] functions.

mod support;

use core::time::Duration;
use std::collections::BTreeMap;

use firelane_flow::FlowConfig;
use firelane_units::{BitRate, FlowId, Instant, Priority};
use proptest::prelude::*;
use support::{IN, World};

/// A link, its VNICs, and their flows.
const TREE: [Option<u32>; 7] = [None, Some(0), Some(0), Some(1), Some(1), Some(2), Some(2)];
/// Who sends: the flows, and what no flow of a VNIC takes.
const SENDERS: [u32; 6] = [1, 2, 3, 4, 5, 6];
/// What a limit, guarantee or priority may need to be seen.
const SETTLE: Duration = Duration::from_millis(30);
const MEASURE: Duration = Duration::from_millis(100);
const FRAME: u64 = 1514;

#[derive(Clone, Debug)]
enum Change {
    Limit(u32, Option<u64>),
    Promise(u32, Option<u64>),
    Priority(u32, usize),
    /// The flow goes, and comes back without limit and guarantee.
    Renew(u32),
    /// What it holds is asked for once more, as where its home has moved here and back.
    HandOut(u32),
}

/// Who sends in an epoch, of how many conversations, frames of which size.
#[derive(Clone, Copy, Debug)]
struct Sender {
    flow: u32,
    conversations: u16,
    bytes: usize,
}

#[derive(Clone, Debug)]
struct Epoch {
    changes: Vec<Change>,
    senders: Vec<Sender>,
    /// Microseconds from turn to turn.
    turns: Vec<u64>,
}

fn mbps() -> impl Strategy<Value = u64> {
    prop_oneof![4 => 5u64..150, 1 => 150u64..400]
}

fn change() -> impl Strategy<Value = Change> {
    prop_oneof![
        5 => (0u32..7, prop::option::weighted(0.7, mbps())).prop_map(|(f, b)| Change::Limit(f, b)),
        2 => (1u32..7, prop::option::weighted(0.7, 2u64..40)).prop_map(|(f, b)| Change::Promise(f, b)),
        2 => (1u32..7, 0usize..3).prop_map(|(f, p)| Change::Priority(f, p)),
        1 => (3u32..7).prop_map(Change::Renew),
        1 => (1u32..7).prop_map(Change::HandOut),
    ]
}

fn epoch() -> impl Strategy<Value = Epoch> {
    let senders = prop::collection::vec((1u16..5, 60usize..=1514, any::<bool>()), SENDERS.len());
    let senders = senders.prop_map(|all| {
        let of = |(flow, (conversations, bytes, sends)): (u32, (u16, usize, bool))| {
            let bytes = if bytes > 1200 { 1514 } else { bytes };
            sends.then_some(Sender { flow, conversations, bytes })
        };
        SENDERS.into_iter().zip(all).filter_map(of).collect::<Vec<_>>()
    });
    let turns = prop::collection::vec(20u64..250, 1..6);
    (prop::collection::vec(change(), 1..6), senders, turns).prop_map(|(changes, senders, turns)| Epoch {
        changes,
        senders,
        turns,
    })
}

fn above(flow: u32) -> impl Iterator<Item = u32> {
    core::iter::successors(Some(flow), |&at| TREE[at as usize])
}

/// What the flows are told to be.
#[derive(Clone, Copy)]
struct Told {
    limit: Option<u64>,
    promise: Option<u64>,
    priority: Priority,
}

const NEW: Told = Told { limit: None, promise: None, priority: Priority::Medium };

struct Game {
    world: World,
    told: [Told; 7],
    /// The conversation of each frame that was sent, by number; and the last number of each that passed.
    of: Vec<(u32, u16)>,
    last: BTreeMap<(u32, u16), u32>,
    looked: usize,
    /// When the limit of each flow was changed last, or its flow or one below it.
    since: [Instant; 7],
}

impl Game {
    fn new() -> Self {
        let mut world = World::new();
        for (flow, parent) in (0..).zip(TREE) {
            world.add(flow, parent, None, Priority::Medium);
        }
        let since = [world.now; 7];
        let (of, last) = (Vec::new(), BTreeMap::new());
        Self { world, told: [NEW; 7], of, last, looked: 0, since }
    }

    fn apply(&mut self, change: &Change) {
        let now = self.world.now;
        let rate = |mbps: Option<u64>| mbps.map(BitRate::from_mbps);
        match *change {
            Change::Limit(flow, limit) => {
                self.told[flow as usize].limit = limit;
                self.since[flow as usize] = now;
                self.world.flows.set_maxbw(now, FlowId(flow), rate(limit)).unwrap();
            }
            Change::Promise(flow, promise) => {
                self.told[flow as usize].promise = promise;
                self.world.flows.set_minbw(now, FlowId(flow), rate(promise)).unwrap();
            }
            Change::Priority(flow, nth) => {
                self.told[flow as usize].priority = Priority::ALL[nth];
                self.world.flows.set_priority(FlowId(flow), Priority::ALL[nth]).unwrap();
            }
            Change::Renew(flow) => {
                let (mut held, parent) = (Vec::new(), TREE[flow as usize].map(FlowId));
                self.world.flows.remove(FlowId(flow), |_, frame| held.push(frame)).unwrap();
                let config = FlowConfig { parent, maxbw: None, priority: NEW.priority };
                self.world.flows.insert(now, FlowId(flow), config).unwrap();
                self.told[flow as usize] = NEW;
                self.since[flow as usize] = now;
                held.into_iter().for_each(|frame| self.world.admit(FlowId(flow), IN, frame));
            }
            Change::HandOut(flow) => {
                let mut held = Vec::new();
                self.world.flows.hand_out(FlowId(flow), |_, frame| held.push(frame));
                held.into_iter().for_each(|frame| self.world.admit(FlowId(flow), IN, frame));
            }
        }
    }

    /// More than any limit lets pass.
    fn offer(&mut self, sender: Sender, turn: u64) {
        let tightest = above(sender.flow).filter_map(|at| self.told[at as usize].limit).min();
        let bytes = tightest.unwrap_or(100) * turn / 8 * 2 + 3 * FRAME;
        for nth in 0..bytes / sender.bytes as u64 {
            let conversation = (nth % u64::from(sender.conversations)) as u16;
            let number = self.world.send_of(FlowId(sender.flow), conversation, sender.bytes);
            assert_eq!(number as usize, self.of.len());
            self.of.push((sender.flow, conversation));
        }
    }

    /// Nobody overtakes who is of his conversation.
    fn check_order(&mut self) {
        for passed in &self.world.passed[self.looked..] {
            let of = self.of[passed.serial as usize];
            let before = self.last.insert(of, passed.serial);
            assert!(before < Some(passed.serial), "{of:?}: {} after {before:?}", passed.serial);
        }
        self.looked = self.world.passed.len();
    }

    /// Runs an epoch; who held frames after all of its turns but the first.
    fn play(&mut self, epoch: &Epoch) -> (Instant, Vec<u32>) {
        let begin = self.world.now + SETTLE;
        let mut held: Vec<_> = SENDERS.to_vec();
        for &turn in epoch.turns.iter().cycle() {
            self.world.release();
            epoch.senders.iter().for_each(|&sender| self.offer(sender, turn));
            self.check_order();
            if self.world.now >= begin {
                held.retain(|&flow| self.world.flows.held(FlowId(flow), IN).unwrap().0 > 0);
            }
            if self.world.now >= begin + MEASURE {
                break;
            }
            self.world.now += Duration::from_micros(turn);
        }
        (begin, held)
    }

    /// Bytes that passed from `begin` on, of `flow` and what is part of it, or of itself alone.
    fn bytes(&self, begin: Instant, flow: u32, with_parts: bool) -> u64 {
        let all = self.world.passed.iter().rev().take_while(|it| it.at >= begin);
        let is_its = |it: u32| it == flow || with_parts && above(it).any(|at| at == flow);
        all.filter(|it| is_its(it.flow.0)).map(|it| it.bytes).sum()
    }

    fn gates(&self, flow: u32) -> impl Iterator<Item = (u32, u64)> {
        above(flow).filter_map(|at| Some((at, self.told[at as usize].limit?)))
    }

    /// Whether frames of it are owed anything at the link's limit.
    fn is_promised(&self, flow: u32) -> bool {
        above(flow).any(|at| self.told[at as usize].promise.is_some())
    }

    fn rank(&self, flow: u32) -> (Priority, Priority) {
        let own = self.told[flow as usize].priority;
        match TREE[flow as usize] {
            Some(vnic) if vnic != 0 => (self.told[vnic as usize].priority, own),
            _ => (own, Priority::Medium),
        }
    }

    fn check(&self, epoch: &Epoch, begin: Instant, held: &[u32]) -> Result<(), TestCaseError> {
        let window = self.world.now.saturating_since(begin);
        self.check_limits(window, begin)?;
        for &flow in held {
            self.check_use(flow, window, begin)?;
            for &other in held {
                self.check_rank(flow, other, begin)?;
            }
        }
        self.check_promises(epoch, held, window, begin)
    }

    /// No limit lets pass more than it says.
    fn check_limits(&self, window: Duration, begin: Instant) -> Result<(), TestCaseError> {
        for (flow, told) in (0..).zip(&self.told) {
            let Some(rate) = told.limit.map(BitRate::from_mbps) else { continue };
            let bytes = self.bytes(begin, flow, true);
            let wanted = rate.bytes_in(window).0;
            let most = wanted + (wanted / 100).max(2 * FRAME) + 2;
            prop_assert!(bytes <= most, "flow {flow} passed {bytes} B of {wanted}");
        }
        Ok(())
    }

    /// Who waits does so because a limit on its way is used, at each moment one of them.
    fn check_use(&self, flow: u32, window: Duration, begin: Instant) -> Result<(), TestCaseError> {
        let (mut used, mut allowed) = (Duration::ZERO, window / 50 + Duration::from_micros(500));
        for (at, mbps) in self.gates(flow) {
            let rate = BitRate::from_mbps(mbps);
            used += rate.time_for(firelane_units::Bytes(self.bytes(begin, at, true)));
            allowed += rate.time_for(firelane_units::Bytes(2 * FRAME));
        }
        prop_assert!(used + allowed >= window, "flow {flow}: {used:?} of {window:?} were used");
        Ok(())
    }

    /// Where the link's limit is all that two wait for, the higher rank goes first, and equal ones have the same.
    fn check_rank(&self, flow: u32, other: u32, begin: Instant) -> Result<(), TestCaseError> {
        let waits_for_link = |flow| self.gates(flow).all(|(at, _)| at == 0) && !self.is_promised(flow);
        if flow == other || !waits_for_link(flow) || !waits_for_link(other) {
            return Ok(());
        }
        let [mine, its] = [flow, other].map(|it| self.bytes(begin, it, false));
        match self.rank(flow).cmp(&self.rank(other)) {
            core::cmp::Ordering::Greater => prop_assert_eq!(its, 0, "{} beside {}", other, flow),
            core::cmp::Ordering::Equal => {
                prop_assert!(mine.abs_diff(its) <= 10 * FRAME, "{flow} has {mine} B, and {other} {its}");
            }
            core::cmp::Ordering::Less => {}
        }
        Ok(())
    }

    /// Who is guaranteed something that the limits above him have has it.
    fn check_promises(
        &self,
        _epoch: &Epoch,
        held: &[u32],
        window: Duration,
        begin: Instant,
    ) -> Result<(), TestCaseError> {
        // What is promised below each, or to it.
        let promised = |at: u32| {
            let of = |flow: u32| self.told[flow as usize].promise.unwrap_or(0);
            match at {
                0 => [1, 2].iter().map(|&vnic| of(vnic).max(of(2 * vnic + 1) + of(2 * vnic + 2))).sum(),
                1 | 2 => of(at).max(of(2 * at + 1) + of(2 * at + 2)),
                _ => of(at),
            }
        };
        for &flow in held {
            let Some(promise) = self.told[flow as usize].promise else { continue };
            let fits = self.gates(flow).all(|(at, mbps)| promised(at) * 10 <= mbps * 9);
            if !fits {
                continue;
            }
            let (bytes, rate) = (self.bytes(begin, flow, true), BitRate::from_mbps(promise));
            let wanted = rate.bytes_in(window).0;
            let least = wanted - (wanted / 50).max(3 * FRAME).min(wanted);
            prop_assert!(bytes >= least, "flow {flow} has {bytes} B of {wanted} that are guaranteed");
        }
        Ok(())
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn the_laws_hold_from_epoch_to_epoch(epochs in prop::collection::vec(epoch(), 1..8)) {
        let mut game = Game::new();
        for epoch in &epochs {
            epoch.changes.iter().for_each(|change| game.apply(change));
            let (begin, held) = game.play(epoch);
            game.check(epoch, begin, &held)?;
        }
        game.world.drain();
        game.check_order();
        prop_assert_eq!(game.world.flows.held_frames(), 0);
    }
}
