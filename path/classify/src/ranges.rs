//! From a port to a flow: the rules of one set that are alike but for their ranges of ports.
//!
//! Asked by `rules.rs` once a packet's other values are found. Where one side's port is a range, the ranges are cut at
//! each other's ends when a rule comes or goes, and each piece knows its flow: a look-up is one binary search among
//! pieces of 65,536 ports at most, 17 comparisons however many ranges overlap. Where both sides' ports are ranges, rules
//! are compared one by one, and [`RANGE_PAIRS_MAX`] says how many there may be.

use firelane_units::{FlowId, Port, PortRange};

use crate::pins::Ranged;
use crate::rules::RuleError;

/// How many rules with ranges of local and of remote ports may be alike in everything else: each costs a comparison.
pub const RANGE_PAIRS_MAX: usize = 64;

/// The rules, by their ranges.
#[derive(Clone, Debug)]
pub(crate) struct Ranges {
    ranged: Ranged,
    /// The narrowest first.
    rules: Vec<Rule>,
    /// Where one side is a range: the pieces, by their first port. Cuts are where ranges begin and end, and nowhere else.
    pieces: Vec<Piece>,
}

/// Rules are ordered by width, then by the ports themselves.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Rule {
    widths: [u16; 2],
    ranges: [PortRange; 2],
    flow: FlowId,
}

/// Ports from `first` to the next piece's, and the narrowest range that they are in.
#[derive(Clone, Copy, Debug)]
struct Piece {
    first: u16,
    rule: Option<Rule>,
}

impl Ranges {
    pub(crate) fn new(ranged: Ranged) -> Self {
        Self { ranged, rules: Vec::new(), pieces: vec![Piece { first: 0, rule: None }] }
    }

    pub(crate) fn len(&self) -> usize {
        self.rules.len()
    }

    /// The flow of the narrowest ranges that these ports are in.
    #[inline]
    pub(crate) fn find(&self, ports: [Port; 2]) -> Option<FlowId> {
        if self.are_pairs() {
            let is_in =
                |rule: &&Rule| rule.ranges.iter().zip(ports).all(|(range, port)| range.contains(port));
            return self.rules.iter().find(is_in).map(|rule| rule.flow);
        }
        let port = ports[self.side()];
        let after = self.pieces.partition_point(|piece| piece.first <= port.0);
        self.pieces[after - 1].rule.map(|rule| rule.flow)
    }

    /// The flow of exactly these ranges.
    pub(crate) fn get(&self, ranges: [PortRange; 2]) -> Option<FlowId> {
        self.rules.iter().find(|rule| rule.ranges == ranges).map(|rule| rule.flow)
    }

    /// Enters ranges that are not there.
    pub(crate) fn insert(&mut self, ranges: [PortRange; 2], flow: FlowId) -> Result<(), RuleError> {
        if self.are_pairs() && self.rules.len() == RANGE_PAIRS_MAX {
            return Err(RuleError::TooManyRangePairs);
        }
        let rule = Rule { widths: ranges.map(PortRange::width), ranges, flow };
        let at = self.rules.partition_point(|other| *other < rule);
        self.rules.insert(at, rule);
        if !self.are_pairs() {
            self.cut_in(rule);
        }
        Ok(())
    }

    /// Removes exactly these ranges; their flow, if they were there.
    pub(crate) fn remove(&mut self, ranges: [PortRange; 2]) -> Option<FlowId> {
        let at = self.rules.iter().position(|rule| rule.ranges == ranges)?;
        let gone = self.rules.remove(at);
        if self.are_pairs() {
            return Some(gone.flow);
        }
        let side = self.side();
        // What narrower ranges have, they keep.
        let wider = &self.rules[at..];
        for piece in self.pieces.iter_mut().filter(|piece| piece.rule == Some(gone)) {
            piece.rule = wider.iter().find(|rule| rule.ranges[side].contains(Port(piece.first))).copied();
        }
        let range = ranges[side];
        self.heal_at(Some(range.first().0));
        self.heal_at(range.last().0.checked_add(1));
        Some(gone.flow)
    }

    /// Whether both sides' ports are ranges.
    #[inline]
    fn are_pairs(&self) -> bool {
        self.ranged.local && self.ranged.remote
    }

    /// Which of two ports a single range is about.
    #[inline]
    fn side(&self) -> usize {
        usize::from(!self.ranged.local)
    }

    /// Gives the rule those of its ports that no narrower one has.
    fn cut_in(&mut self, rule: Rule) {
        let range = rule.ranges[self.side()];
        let begin = self.cut_at(range.first().0);
        let end = range.last().0.checked_add(1).map_or(self.pieces.len(), |port| self.cut_at(port));
        for piece in &mut self.pieces[begin..end] {
            if piece.rule.is_none_or(|there| rule < there) {
                piece.rule = Some(rule);
            }
        }
    }

    /// Takes the cut at `port` away if no range begins there or ends before it.
    fn heal_at(&mut self, port: Option<u16>) {
        let Some(port) = port.filter(|&port| port > 0) else { return };
        let side = self.side();
        let ends = |range: PortRange| range.first().0 == port || range.last().0 == port - 1;
        if self.rules.iter().any(|rule| ends(rule.ranges[side])) {
            return;
        }
        let at = self.pieces.partition_point(|piece| piece.first < port);
        self.pieces.remove(at);
    }

    /// The place of the piece that begins at `port`; it is cut off from the one before if need be.
    fn cut_at(&mut self, port: u16) -> usize {
        let after = self.pieces.partition_point(|piece| piece.first < port);
        if self.pieces.get(after).is_none_or(|piece| piece.first != port) {
            let rule = self.pieces[after - 1].rule;
            self.pieces.insert(after, Piece { first: port, rule });
        }
        after
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn range(first: u16, last: u16) -> PortRange {
        PortRange::new(Port(first.min(last)), Port(first.max(last))).unwrap()
    }

    const EVERY: (u16, u16) = (0, u16::MAX);

    fn end() -> impl Strategy<Value = u16> {
        prop_oneof![0..40u16, Just(u16::MAX), u16::MAX - 5..=u16::MAX]
    }

    proptest! {
        #[test]
        fn the_narrowest_range_is_found_whatever_came_and_went(
            steps in prop::collection::vec((any::<bool>(), end(), end()), 1..40),
            asked in prop::collection::vec(end(), 20),
            local in any::<bool>(),
        ) {
            let every = range(EVERY.0, EVERY.1);
            let mut ranges = Ranges::new(Ranged { local, remote: !local });
            let mut model: Vec<Rule> = Vec::new();
            for (flow, (comes, a, b)) in (0..).map(FlowId).zip(steps) {
                let pair = if local { [range(a, b), every] } else { [every, range(a, b)] };
                let there = model.iter().position(|rule| rule.ranges == pair);
                prop_assert_eq!(ranges.get(pair), there.map(|at| model[at].flow));
                match there {
                    Some(at) => prop_assert_eq!(ranges.remove(pair), Some(model.remove(at).flow)),
                    None if comes => {
                        ranges.insert(pair, flow).unwrap();
                        model.push(Rule { widths: pair.map(PortRange::width), ranges: pair, flow });
                    }
                    None => prop_assert_eq!(ranges.remove(pair), None),
                }
                // No cut outlives the ranges that made it.
                prop_assert!(ranges.pieces.len() <= 2 * model.len() + 1);
            }
            for port in asked.into_iter().map(Port) {
                let ports = if local { [port, Port(1)] } else { [Port(1), port] };
                let side = usize::from(!local);
                let best = model.iter().filter(|rule| rule.ranges[side].contains(port)).min();
                prop_assert_eq!(ranges.find(ports), best.map(|rule| rule.flow));
            }
        }
    }

    #[test]
    fn ten_thousand_overlapping_ranges_are_pieces_with_one_answer_each() {
        let every = range(EVERY.0, EVERY.1);
        let mut ranges = Ranges::new(Ranged { local: true, remote: false });
        // Each range lies inside the one before: the worst for who would compare one by one.
        for n in 0..10_000u16 {
            ranges.insert([range(n, u16::MAX - n), every], FlowId(n.into())).unwrap();
        }
        assert_eq!((ranges.len(), ranges.pieces.len()), (10_000, 19_999));
        for (port, flow) in [(0, 0), (1, 1), (9_999, 9_999), (30_000, 9_999), (u16::MAX - 7, 7)] {
            assert_eq!(ranges.find([Port(port), Port(0)]), Some(FlowId(flow)), "{port}");
        }
    }

    #[test]
    fn ranges_on_both_sides_are_found_narrowest_first_and_are_few() {
        let mut ranges = Ranges::new(Ranged { local: true, remote: true });
        ranges.insert([range(0, 100), range(0, 100)], FlowId(1)).unwrap();
        ranges.insert([range(0, 100), range(50, 60)], FlowId(2)).unwrap();
        ranges.insert([range(10, 20), range(0, 100)], FlowId(3)).unwrap();
        let find =
            |ranges: &Ranges, local, remote| ranges.find([Port(local), Port(remote)]).map(|flow| flow.0);
        let found = [(5, 5), (5, 55), (15, 55), (15, 200)].map(|(l, r)| find(&ranges, l, r));
        assert_eq!(found, [Some(1), Some(2), Some(3), None]);
        assert_eq!(ranges.remove([range(10, 20), range(0, 100)]), Some(FlowId(3)));
        assert_eq!(find(&ranges, 15, 55), Some(2));
        let accepted = (0..100).filter(|&n| ranges.insert([range(n, 900), range(n, 901)], FlowId(9)).is_ok());
        assert_eq!((accepted.count(), ranges.len()), (RANGE_PAIRS_MAX - 2, RANGE_PAIRS_MAX));
    }
}
