//! `filter`: what a packet filter costs the router of `forward`: a thousand rules without state, and a million states.
//!
//! Two routers in turn, one without rules and one with them, each the median of its rounds. For states a frame
//! comes with another source port in each of its rounds, so that all states are used in turn.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use firelane_filter::RuleList;
use firelane_lane::Control;
use firelane_units::{
    BlockAnswer, Direction, FilterAction, FilterAddresses, FilterPorts, FilterProtocol, FilterRule,
    KeepState, LinkId, Port,
};

use crate::forward::{Case, ROUTER, World};
use crate::peer::Result;
use crate::report::{ROUNDS_MIN, Samples, Table, Verdict, number};
use crate::{alloc, cpu};

const SPAN: Duration = Duration::from_millis(300);
const RULES: u16 = 1_000;
const STATES: u32 = 1 << 20;
/// How many frames there are for them.
const FRAMES: u32 = 1 << 15;

fn rule(direction: Direction, action: FilterAction) -> FilterRule<LinkId> {
    let mut rule = FilterRule::new(direction, action);
    rule.matching.protocol = FilterProtocol::Number(17);
    rule
}

/// Rules that a packet has to be compared with, one by one, and none of which is about it.
fn stateless() -> Vec<FilterRule<LinkId>> {
    let each = |n: u16| {
        let mut it = rule(Direction::ALL[usize::from(n % 2)], FilterAction::Block(BlockAnswer::Silent));
        it.matching.to.ports = FilterPorts::Equal(Port(20_000 + n));
        it.matching.from.addresses = FilterAddresses::Any;
        it
    };
    (0..RULES).map(each).collect()
}

/// Nothing passes but what belongs to a state; the router's own ARP is none of IP's.
fn stateful() -> Vec<FilterRule<LinkId>> {
    let limit = NonZeroU32::new(STATES);
    let keep_state = Some(KeepState { limit, ..KeepState::default() });
    vec![
        rule(Direction::In, FilterAction::Block(BlockAnswer::Silent)),
        rule(Direction::Out, FilterAction::Block(BlockAnswer::Silent)),
        FilterRule { keep_state, ..rule(Direction::In, FilterAction::Pass) },
    ]
}

struct Side {
    world: World,
    rates: Samples,
    allocations: u64,
    frames: u64,
}

impl Side {
    fn new(case: &Case, rules: Vec<FilterRule<LinkId>>) -> Self {
        let mut world = World::new(case);
        let list = Arc::new(RuleList::new(rules));
        world.tell(Control::SetFilter(ROUTER, list));
        Self { world, rates: Samples::default(), allocations: 0, frames: 0 }
    }

    fn round(&mut self) -> Result<()> {
        let before = alloc::allocations();
        let moved = self.world.go_round(SPAN)?;
        self.allocations += alloc::allocations() - before;
        self.frames += moved.frames;
        self.rates.push(1000.0 / moved.nanos_per_frame());
        Ok(())
    }
}

/// Runs the benchmark.
pub(crate) fn run() -> Result<Verdict> {
    cpu::bind(1)?;
    let table = Table::begin("filter: the router of `forward` with a filter, beside itself without one");
    let few = Case { routes: 10_000, flows: 10_000, ports: 1, wanted_mpps: 0.0 };
    let many = Case { routes: 10_000, flows: FRAMES, ports: STATES / FRAMES, wanted_mpps: 0.0 };
    let mut worst: Option<Verdict> = None;
    for (what, case, rules, most) in
        [("1,000 rules, 10,000 flows", few, stateless(), 0.20), ("1,048,576 states", many, stateful(), 0.25)]
    {
        let mut plain = Side::new(&case, Vec::new());
        let mut filtered = Side::new(&case, rules);
        for side in [&mut plain, &mut filtered] {
            // Every flow is known before.
            side.world.go_all_round()?;
        }
        for _ in 0..ROUNDS_MIN {
            plain.round()?;
            filtered.round()?;
        }
        plain.world.check()?;
        filtered.world.check()?;
        table.row(&format!("{what}: without"), &plain.rates, "M/CPU-s");
        table.row(&format!("{what}: with"), &filtered.rates, "M/CPU-s");
        let ratio = filtered.rates.median() / plain.rates.median();
        table.at_most("  slower by", 1.0 - ratio, most, "of it");
        table.no_allocations("  allocations per million frames", filtered.allocations, filtered.frames);
        if worst.as_ref().is_none_or(|worst| ratio < worst.ratio) {
            let told = |rates: &Samples| format!("{} Mpps", number(rates.median()));
            let (firelane, peer) = (told(&filtered.rates), told(&plain.rates));
            worst = Some(Verdict { name: "filter", ratio, firelane, peer });
        }
    }
    worst.ok_or_else(|| "nothing was measured".into())
}
