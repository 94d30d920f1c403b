//! The connections that a listener has brought and that its program may not have accepted as yet: when it closes, they end.
//!
//! Nobody says here which are accepted, so those are left out from time to time. What is kept is never more than twice as many as wait,
//! and a listener that closes looks through that, not through all connections of its lane. Kept by `shard.rs`, filled by `open.rs`.

use firelane_socket::ConnRef;

/// So many are kept before the first look.
const LEAST: usize = 64;

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
