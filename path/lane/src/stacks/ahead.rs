//! Looking ahead: what the next connections need is fetched for all of them, before the first of them is asked.
//!
//! A connection that has been silent among many is in no cache, and a segment that finds it so waits for one piece of memory after the
//! other: its entry in the index, its place, TCP's state and the rings' words, and what these name. Who has several before him, a
//! chain of segments (`inbound.rs`), kicks of programs or timers that are due, asks for each of these pieces for all before he takes
//! the first, and waits for each kind once. Forwarded flows have the same in `onward.rs`.

use firelane_classify::{Sought, Tuple};
use firelane_socket::ConnRef;
use firelane_units::{ConnId, Instant, NetstackId};
use firelane_wire::IpProtocol;

use super::Stacks;
use super::conn::Conns;
use crate::arrivals::Arrival;
use crate::common::Common;

/// How many connections one look ahead is about: what they need stays in the inner caches until their turn.
pub(super) const MOST: usize = 16;

/// What so many connections have stays in a core's second cache: nothing need be fetched ahead.
const FEW: usize = 256;

/// Connections that are about to be used.
#[derive(Default)]
pub(super) struct Next {
    ids: [ConnId; MOST],
    len: usize,
}

impl Next {
    pub(super) fn push(&mut self, id: ConnId) {
        self.ids[self.len] = id;
        self.len += 1;
    }

    pub(super) const fn is_full(&self) -> bool {
        self.len == MOST
    }

    pub(super) fn iter(&self) -> core::slice::Iter<'_, ConnId> {
        self.ids[..self.len].iter()
    }
}

impl Conns {
    /// Whether connections may be in no cache.
    #[inline]
    fn are_many(&self) -> bool {
        self.slab.len() > FEW
    }

    /// Begins to fetch what the next event of each of these connections needs.
    pub(super) fn look_ahead(&self, next: &Next) {
        if !self.are_many() || next.len < 2 {
            return;
        }
        for &id in next.iter() {
            self.slab.look_ahead(id);
            self.wheel.look_ahead(id.0);
        }
        next.iter().filter_map(|&id| self.slab.get(id)).for_each(|conn| conn.look_ahead());
        next.iter().filter_map(|&id| self.slab.get(id)).for_each(|conn| conn.look_further_ahead());
    }

    /// Connections whose timers are due, as many as are looked at together.
    pub(super) fn all_due(&mut self, now: Instant) -> Next {
        let mut due = Next::default();
        while !due.is_full()
            && let Some(id) = self.wheel.pop(now)
        {
            due.push(ConnId(id));
        }
        self.look_ahead(&due);
        due
    }
}

impl Stacks {
    /// Finds the connections of a chain's segments before the first of them is handled.
    #[inline]
    pub(super) fn look_for_connections(&mut self, arrivals: &mut [Arrival]) {
        if self.conns.are_many() && arrivals.len() > 1 {
            self.find_connections(arrivals);
        }
    }

    fn find_connections(&mut self, arrivals: &mut [Arrival]) {
        let mut sought = [None; MOST];
        let tuple_of = |arrival: &Arrival| -> Option<Tuple> {
            arrival.headers.tuple().filter(|_| arrival.headers.protocol == IpProtocol::TCP)
        };
        for (arrival, sought) in arrivals.iter().zip(&mut sought) {
            let shard = self.shards.get(arrival.netstack);
            *sought = shard.zip(tuple_of(arrival)).map(|(shard, tuple)| shard.conns.foresee(&tuple));
        }
        let mut next = Next::default();
        for (arrival, sought) in arrivals.iter_mut().zip(sought) {
            let shard = self.shards.get(arrival.netstack);
            arrival.sought = shard.zip(sought).map(|(shard, sought)| shard.conns.foreseen(sought));
            if let Some(Sought::Found(id) | Sought::Likely(id)) = arrival.sought {
                next.push(id);
            }
        }
        self.conns.look_ahead(&next);
    }

    /// An application wrote or read. It is looked at together with others that did: before any other message, and at the latest when
    /// the lane turns or settles.
    pub(crate) fn kick<D>(&mut self, common: &mut Common<D>, netstack: NetstackId, conn: ConnRef) {
        self.kicks.push((netstack, conn));
        if self.conns.are_many() && self.kicks.len() < MOST {
            self.conns.slab.look_ahead(conn.conn);
        } else {
            self.take_kicks(common);
        }
    }

    /// Looks at the connections that were kicked.
    #[inline]
    pub(crate) fn take_kicks<D>(&mut self, common: &mut Common<D>) {
        if !self.kicks.is_empty() {
            self.take_all_kicks(common);
        }
    }

    fn take_all_kicks<D>(&mut self, common: &mut Common<D>) {
        let mut next = Next::default();
        self.kicks.iter().for_each(|(_, conn)| next.push(conn.conn));
        self.conns.look_ahead(&next);
        let mut kicks = core::mem::take(&mut self.kicks);
        for (netstack, conn) in kicks.drain(..) {
            if let Some(mut inside) = self.inside(common, netstack) {
                inside.kick(conn);
            }
        }
        self.kicks = kicks;
    }
}
