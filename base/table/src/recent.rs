//! What was seen a short while ago, the oldest first: pieces of a datagram that follow their first one. Used by `path/filter` and
//! `path/nat`.

use core::time::Duration;
use std::collections::VecDeque;

use firelane_units::Instant;

/// How many are remembered; the oldest goes first.
pub const RECENT_MAX: usize = 1024;
/// Of which those that are alike keep so many when there is no room.
const RECENT_ALIKE: usize = RECENT_MAX / 4;

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

    /// Remembers something. Where there is no room the oldest is forgotten: that of those of which `is_alike` says that they are of the same
    /// source, if they have their share, so that who floods pushes out what is his.
    pub fn keep(&mut self, key: K, value: V, now: Instant, is_alike: impl Fn(&K) -> bool) {
        self.expire(now);
        if self.seen.len() == RECENT_MAX {
            let alike = (0..).zip(&self.seen).filter(|(_, (known, ..))| is_alike(known)).map(|(nth, _)| nth);
            let has_share = alike.clone().nth(RECENT_ALIKE - 1).is_some();
            let oldest = alike.clone().next().filter(|_| has_share).unwrap_or(0);
            self.seen.remove(oldest);
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
        (0..=RECENT_MAX).for_each(|nth| recent.keep(nth, nth + 1, at(1), |_| false));
        assert_eq!((recent.find(&0, at(1)), recent.find(&1, at(60))), (None, Some(2)));
        recent.keep(1, 7, at(2), |_| false);
        assert_eq!(
            (recent.find(&1, at(60)), recent.find(&1, at(61)), recent.find(&1, at(62))),
            (Some(7), Some(7), None)
        );
        recent.expire(at(62));
        assert!(recent.seen.is_empty());
    }

    #[test]
    fn who_floods_pushes_out_what_is_his() {
        let mut recent = Recent::new(Duration::from_secs(60));
        let now = Instant::from_secs(1);
        let mut keep = |source: u32, nth: usize| recent.keep((source, nth), (), now, |it| it.0 == source);
        (0..RECENT_MAX - 1).for_each(|nth| keep(nth as u32, nth));
        (0..3 * RECENT_MAX).for_each(|nth| keep(u32::MAX, nth));
        let of = |is_its: fn(u32) -> bool| recent.seen.iter().filter(|(key, ..)| is_its(key.0)).count();
        let (own, others) = (of(|it| it == u32::MAX), of(|it| it != u32::MAX));
        assert_eq!((own, others), (RECENT_ALIKE, RECENT_MAX - RECENT_ALIKE));
        assert!(recent.find(&(u32::MAX, 3 * RECENT_MAX - 1), now).is_some(), "his oldest went");
    }
}
