//! The hand that goes round a lane's connections: what has changed for many of them reaches each in its turn.
//!
//! A lane with a million connections must not be busy with one change for a tenth of a second, so each turn of the lane looks at so
//! many places of their table. Some changes ask connections anew (tunables, `tune.rs`; who may be fused, `local.rs`), others end those of an
//! address (`ending.rs`). Whoever begins one says so to the hand, which is over with it when it has gone round once. Called by `turn.rs`.

use core::net::IpAddr;
use std::collections::VecDeque;
use std::sync::Arc;

use firelane_units::{ConnId, Instant, NetstackId};

use super::Stacks;
use super::conn::Conns;
use crate::common::Common;
use crate::links::Links;
use crate::slab::Epoch;

/// Places that one turn looks at: a cache miss each, so well below a tenth of a millisecond, or some hundred microseconds if all end.
pub(super) const PLACES_PER_TURN: u32 = 256;

/// Where the hand is: how often it has gone round, and at which place it looks next.
type At = (u64, u32);

/// The hand.
#[derive(Debug, Default)]
pub(crate) struct Hand {
    at: At,
    /// Connections are asked anew until it is there.
    asks_until: At,
    /// Who has asked for credit asks anew until it is there.
    renews_until: At,
    /// Addresses whose connections it ends, the one that it is over with first before others.
    ends: VecDeque<End>,
}

/// What a connection is asked anew.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Anew {
    Nothing,
    /// Whatever it follows.
    All,
    /// The same, and its question for credit, if it has one.
    Credit,
}

/// An address with which it is over when it is there.
#[derive(Debug)]
struct End {
    until: At,
    netstack: NetstackId,
    address: IpAddr,
    before: Epoch,
}

impl Hand {
    /// Where it is when it has gone round once more.
    const fn once_round(&self) -> At {
        (self.at.0 + 1, self.at.1)
    }

    /// All connections are asked anew.
    pub(super) fn ask_all(&mut self) {
        self.asks_until = self.once_round();
    }

    /// The same, and whoever has asked for credit asks for it once more.
    pub(super) fn renew_all(&mut self) {
        self.ask_all();
        self.renews_until = self.asks_until;
    }

    /// The connections of an address end that have begun before.
    pub(super) fn end(&mut self, netstack: NetstackId, address: IpAddr, before: Epoch) {
        let until = self.once_round();
        self.ends.push_back(End { until, netstack, address, before });
    }

    /// An address with which it is over.
    fn next_over(&mut self) -> Option<End> {
        if self.ends.front()?.until <= self.at { self.ends.pop_front() } else { None }
    }

    fn is_at_rest(&self) -> bool {
        self.ends.is_empty() && self.asks_until <= self.at
    }
}

impl Conns {
    /// Whether all places are looked at in one turn.
    pub(super) fn are_few(&self) -> bool {
        self.slab.places() <= PLACES_PER_TURN as usize
    }

    /// The next place, and what is asked anew of who is there; the hand goes on.
    fn under_hand(&mut self) -> Option<(ConnId, Anew)> {
        let hand = &mut self.hand;
        if hand.is_at_rest() {
            return None;
        }
        let at = hand.at;
        let anew = match () {
            () if at < hand.renews_until => Anew::Credit,
            () if at < hand.asks_until => Anew::All,
            () => Anew::Nothing,
        };
        let is_last = at.1 as usize + 1 >= self.slab.places();
        hand.at = if is_last { (at.0 + 1, 0) } else { (at.0, at.1 + 1) };
        Some((ConnId(at.1), anew))
    }
}

impl Stacks {
    /// The hand goes on by as many places as one turn looks at.
    pub(crate) fn sweep<D>(&mut self, common: &mut Common<D>, links: &Links<D>) {
        for _ in 0..PLACES_PER_TURN {
            let Some((id, anew)) = self.conns.under_hand() else { return };
            self.look_at(common, links, id, anew);
            while let Some(over) = self.conns.hand.next_over() {
                self.forget_ending(over.netstack, over.address, over.before);
            }
        }
    }

    /// What has changed reaches a connection.
    fn look_at<D>(&mut self, common: &mut Common<D>, links: &Links<D>, id: ConnId, anew: Anew) {
        let Some(dated @ (conn, since)) = self.conns.slab.get_dated(id) else { return };
        let netstack = conn.netstack;
        let Some(shard) = self.shards.get(netstack).filter(|it| !it.is_successor(since)) else {
            return;
        };
        if shard.is_ended(dated) {
            self.inside(common, netstack).into_iter().for_each(|mut inside| inside.end_of_address(id));
        } else if anew != Anew::Nothing {
            let config = Arc::clone(&shard.config.tcp);
            self.conns.slab.get_mut(id).into_iter().for_each(|conn| conn.set_config(Arc::clone(&config)));
            self.reconsider(common, links, id);
            if anew == Anew::Credit {
                self.renew_question(common, id);
            }
            if self.conns.slab.get(id).is_some_and(|conn| !conn.fusion.is_on()) {
                // A time-out that runs may be another now.
                self.conns.arm(id, common.now);
            }
        }
    }

    /// When the lane goes on with what takes several turns: at once, if there is anything.
    pub(crate) fn sweep_at(&self, now: Instant) -> Option<Instant> {
        let is_over = self.conns.hand.is_at_rest() && self.conns.deserted.is_empty() && !self.is_removing();
        (!is_over).then_some(now)
    }

    /// Whether connections of addresses or netstacks that were removed have yet to end.
    pub(crate) fn is_ending(&self) -> bool {
        !self.conns.hand.ends.is_empty() || self.is_removing()
    }
}
