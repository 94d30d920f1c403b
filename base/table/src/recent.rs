//! What was seen a short while ago, the oldest first: pieces of a datagram that follow their first one. Used by `path/filter` and
//! `path/nat`.

use core::time::Duration;
use std::collections::VecDeque;

use firelane_units::Instant;

/// How many are remembered; the oldest goes first.
pub const RECENT_MAX: usize = 1024;

/// A bounded memory, in which something is found by its names for a while.
#[derive(Debug)]
pub struct Recent<K, V> {
    seen: VecDeque<(K, V, Instant)>,
    lasts: Duration,
}

impl<K: PartialEq, V: Copy> Recent<K, V> {
    /// Nothing as yet; each thing is remembered for so long.
    pub const fn new(lasts: Duration) -> Self {
        Self { seen: VecDeque::new(), lasts }
    }

    /// Remembers something.
    pub fn keep(&mut self, key: K, value: V, now: Instant) {
        self.expire(now);
        if self.seen.len() == RECENT_MAX {
            self.seen.pop_front();
        }
        self.seen.push_back((key, value, now + self.lasts));
    }

    /// What was remembered last under these names.
    pub fn find(&self, key: &K, now: Instant) -> Option<V> {
        let found = self.seen.iter().rev().find(|(known, _, until)| *until > now && known == key)?;
        Some(found.1)
    }

    /// Forgets what is old.
    pub fn expire(&mut self, now: Instant) {
        while self.seen.front().is_some_and(|(.., until)| *until <= now) {
            self.seen.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_goes_first_and_each_in_its_time() {
        let mut recent = Recent::new(Duration::from_secs(60));
        let at = Instant::from_secs;
        (0..=RECENT_MAX).for_each(|nth| recent.keep(nth, nth + 1, at(1)));
        assert_eq!((recent.find(&0, at(1)), recent.find(&1, at(60))), (None, Some(2)));
        recent.keep(1, 7, at(2));
        assert_eq!(
            (recent.find(&1, at(60)), recent.find(&1, at(61)), recent.find(&1, at(62))),
            (Some(7), Some(7), None)
        );
        recent.expire(at(62));
        assert!(recent.seen.is_empty());
    }
}
