//! What programs that are gone have left unsaid: text and FINs that their peers have not acknowledged.
//!
//! A connection outlives its socket until its peer has all of it, but not its lane. Who ends an engine asks here whether it may, and has
//! the peers told that are not waited for any longer. Called by `lane.rs`.

use firelane_tcp::State;
use firelane_units::{ConnId, NetstackId};

use super::Stacks;
use super::conn::{Conn, Leaving, Program};
use crate::common::Common;

/// So many places are looked at in one visit.
const PLACES_PER_LOOK: u32 = 1024;

/// What a look at some places of the table of connections has found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unsaid {
    /// One has something to say.
    Some,
    /// None of these; the next look begins here.
    NoneBefore(u32),
    /// None up to the end of the table.
    Nothing,
}

impl Conn {
    /// Whether its program is gone and its peer has yet to acknowledge what it said. Who has acknowledged the FIN has all there was.
    fn is_unsaid(&self) -> bool {
        let is_heard =
            || self.look(|tcp| matches!(tcp.state(), State::FinWait2 | State::TimeWait | State::Closed));
        self.program == Program::Gone && self.leaving != Leaving::Gone && !is_heard()
    }
}

impl Stacks {
    /// Looks for a connection that has something to say, of one netstack or of all, at some places from `from` on.
    pub(crate) fn find_unsaid(&self, netstack: Option<NetstackId>, from: u32) -> Unsaid {
        let (mut unsaid, next) = self.unsaid_from(from);
        match unsaid.any(|conn| netstack.is_none_or(|wanted| wanted == conn.netstack)) {
            true => Unsaid::Some,
            false => next.map_or(Unsaid::Nothing, Unsaid::NoneBefore),
        }
    }

    /// How far the peers of those that have something to say have acknowledged it, added up for some places from `from` on, and where the
    /// next look begins. A sum that stays the same has seen none of them move.
    pub(crate) fn heard_of_unsaid(&self, from: u32) -> (u64, Option<u32>) {
        let (unsaid, next) = self.unsaid_from(from);
        let heard = |conn: &Conn| {
            let [_, una, ..] = conn.look(|tcp| tcp.sequence());
            // Also one that has heard everything, and is counted no more, changes the sum.
            u64::from(una.0) + 1
        };
        (unsaid.map(heard).sum(), next)
    }

    /// Those at some places from `from` on that have something to say, and where the next look begins.
    fn unsaid_from(&self, from: u32) -> (impl Iterator<Item = &Conn>, Option<u32>) {
        let (slab, end) = (&self.conns.slab, from.saturating_add(PLACES_PER_LOOK));
        let unsaid = (from..end).filter_map(|place| slab.get(ConnId(place)).filter(|it| it.is_unsaid()));
        (unsaid, ((end as usize) < slab.places()).then_some(end))
    }

    /// Ends those that have something to say; their peers are told that it does not come.
    pub(crate) fn reset_unsaid<D>(&mut self, common: &mut Common<D>) {
        for place in 0..self.conns.slab.places() as u32 {
            let id = ConnId(place);
            let Some(netstack) = self.conns.slab.get(id).filter(|it| it.is_unsaid()).map(|it| it.netstack)
            else {
                continue;
            };
            if let Some(mut inside) = self.inside(common, netstack) {
                inside.end(id);
            }
        }
    }
}
