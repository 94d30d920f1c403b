//! Streams that programs have closed by their words: how many lanes have ended whose sockets are in the books still.
//!
//! A lane ends such a connection in its own turn. The rest (whose socket it was, that its block is free) takes the tables of
//! `hub.rs`, whose thread a close is not to wake: it goes with whatever that does next. Only when many wait, or for long, is it
//! called. Owned by `mod.rs`; lanes' workers note and ask, the hub takes.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use firelane_units::Instant;

/// With so many the hub is called at once.
const MANY: u64 = 64;
/// How long the first of fewer waits at the most.
const LONGEST: Duration = Duration::from_millis(50);

/// How many there are, since when, and in which arenas, by their places.
#[derive(Debug, Default)]
pub(super) struct Leaving {
    count: AtomicU64,
    since: AtomicU64,
    arenas: Mutex<Vec<u32>>,
}

impl Leaving {
    /// So many more. Whether the hub is to be called for all of them.
    pub(super) fn note(&self, now: Instant, more: usize) -> bool {
        if more == 0 {
            return false;
        }
        let before = self.count.fetch_add(more as u64, Ordering::AcqRel);
        if before == 0 {
            self.since.store(now.nanos(), Ordering::Relaxed);
        }
        before < MANY && before + more as u64 >= MANY
    }

    /// Some are in this arena, and before there were none.
    pub(super) fn are_in(&self, arena: u32) {
        self.arenas.lock().unwrap_or_else(PoisonError::into_inner).push(arena);
    }

    /// The hub takes the places of arenas, of which it has to look at no others.
    pub(super) fn take_arenas(&self) -> Vec<u32> {
        std::mem::take(&mut *self.arenas.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// How long a worker may sleep before he is to ask again; no time is left if the hub is to be called. `None` if there are
    /// none.
    pub(super) fn patience(&self, now: impl FnOnce() -> Instant) -> Option<Duration> {
        if self.count.load(Ordering::Acquire) == 0 {
            return None;
        }
        let since = Instant::from_nanos(self.since.load(Ordering::Relaxed));
        Some(LONGEST.saturating_sub(now().saturating_since(since)))
    }

    /// The hub takes all that there are. Whether there are any.
    pub(super) fn take(&self) -> bool {
        // Those that come meanwhile are counted and wait for the next time, or are taken now and counted for nothing.
        self.count.load(Ordering::Relaxed) != 0 && self.count.swap(0, Ordering::AcqRel) != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hub_is_called_once_for_many_and_in_time_for_few() {
        let (leaving, at) = (Leaving::default(), |millis: u64| Instant::from_nanos(millis * 1_000_000));
        assert_eq!(leaving.patience(|| at(1)), None);
        assert!(!leaving.take() && !leaving.note(at(1), 0));
        assert!(!leaving.note(at(10), 1) && !leaving.note(at(40), 1));
        let patience = |millis| leaving.patience(|| at(millis));
        assert_eq!(patience(20), Some(Duration::from_millis(40)));
        assert_eq!(patience(60), Some(Duration::ZERO), "the first has waited for so long");
        assert!(leaving.take() && !leaving.take());
        let calls = (0..200).filter(|_| leaving.note(at(70), 1)).count();
        assert_eq!(calls, 1);
        assert!(leaving.take() && leaving.note(at(80), 65), "and again");
    }
}
