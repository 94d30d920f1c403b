//! The connections that a listener has brought and that its program may not have accepted as yet: when it closes, they end.
//!
//! Nobody says here which are accepted, so those are left out from time to time. What is kept is never more than twice as many as wait,
//! and a listener that closes looks through that, not through all connections of its lane: some at once, the others in the turns that
//! follow, so that thousands that wait are no pause for others. Kept by `shard.rs`, filled by `open.rs`, ended by `commands.rs` and
//! `turn.rs`.

use std::collections::VecDeque;

use firelane_socket::ConnRef;
use firelane_units::{NetstackId, SocketId};

use super::Stacks;
use super::inbound::Inside;
use crate::common::Common;

/// So many are kept before the first look.
const LEAST: usize = 64;

/// How many end at a time: five microseconds each.
const ENDS_PER_TURN: usize = 64;

/// Those whose listener has closed, in the order in which they end.
#[derive(Debug, Default)]
pub(crate) struct Deserted(VecDeque<Orphan>);

#[derive(Clone, Copy, Debug)]
struct Orphan {
    netstack: NetstackId,
    listener: SocketId,
    conn: ConnRef,
}

impl Deserted {
    /// Whether there is none.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl<D> Inside<'_, D> {
    /// A listener has closed: what it has brought and nobody has accepted ends.
    pub(super) fn desert(&mut self, listener: SocketId, brought: Brought) {
        let netstack = self.shard.config.id;
        let mut orphans = brought.into_all().into_iter().map(|conn| Orphan { netstack, listener, conn });
        orphans.by_ref().take(ENDS_PER_TURN).for_each(|orphan| self.end_orphan(orphan));
        self.conns.deserted.0.extend(orphans);
    }

    fn end_orphan(&mut self, Orphan { listener, conn, .. }: Orphan) {
        if self.conns.is_orphan(conn, listener) {
            self.command(conn, Self::abort);
        }
    }
}

impl Stacks {
    /// The next ones end whose listeners have closed.
    pub(crate) fn end_deserted<D>(&mut self, common: &mut Common<D>) {
        for _ in 0..ENDS_PER_TURN {
            let Some(orphan) = self.conns.deserted.0.pop_front() else { return };
            if let Some(mut inside) = self.inside(common, orphan.netstack) {
                inside.end_orphan(orphan);
            }
        }
    }
}

/// A listener's.
#[derive(Clone, Debug, Default)]
pub(crate) struct Brought {
    all: Vec<ConnRef>,
    /// At how many those that wait no more are left out.
    looks_at: usize,
}

impl Brought {
    /// One more; of the others `waits` says whether they wait still.
    pub(super) fn push(&mut self, conn: ConnRef, waits: impl Fn(ConnRef) -> bool) {
        if self.all.len() >= self.looks_at.max(LEAST) {
            self.all.retain(|&it| waits(it));
            self.looks_at = 2 * self.all.len();
        }
        self.all.push(conn);
    }

    /// All of them, some of which may not wait any more.
    pub(super) fn into_all(self) -> Vec<ConnRef> {
        self.all
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use firelane_units::ConnId;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn who_waits_is_kept_and_no_more_than_twice_as_many(waiting in prop::collection::vec(any::<bool>(), 0..2000)) {
            let conn = |nth: usize| ConnRef { conn: ConnId(nth as u32), generation: 1 };
            let mut brought = Brought::default();
            for nth in 0..waiting.len() {
                brought.push(conn(nth), |it| waiting[it.conn.0 as usize]);
                let wait = waiting[..nth].iter().filter(|waits| **waits).count();
                prop_assert!(brought.all.len() <= LEAST.max(2 * wait) + 1);
            }
            let all = brought.into_all();
            let kept = |nth: &usize| all.contains(&conn(*nth));
            prop_assert!((0..waiting.len()).filter(|nth| waiting[*nth]).all(|nth| kept(&nth)));
        }
    }
}
