//! RFC 4821 and 8899: the largest segment of a path that says nothing.
//!
//! A router that drops what is too long for it and sends no ICMP (or whose ICMP is lost) is a black hole: small
//! segments pass, large ones vanish. After some time-outs in a row the connection falls back to a size that nearly
//! every path carries; when that arrives, it searches upwards with segments of text that are larger than the others.
//! A probe that is lost is no sign of congestion. Owns the search; called by `connection` at time-outs, by `ack` when
//! something new is acknowledged, by `send` for what leaves. Sizes are those of an MSS, options included.

use core::ops::Range;
use core::time::Duration;

use firelane_units::{Instant, Mss};

/// After so many time-outs in a row a path that carried large segments is doubted (Linux' `tcp_retries1`).
pub(crate) const DOUBT_AFTER: u8 = 3;

/// What is fallen back to, in this order: RFC 8899 §5.1.2's base for paths of IPv6's least MTU (1280), and what every
/// IPv4 host takes (RFC 9293 MUST-15).
const STEPS_DOWN: [u16; 2] = [1220, 536];

/// How often one size is tried (RFC 8899 §5.1.2: MAX_PROBES).
const TRIES: u8 = 3;
/// Time between a probe that was lost and the next one.
const RETRY: Duration = Duration::from_secs(1);
/// When a search that has ended is begun anew: paths change (RFC 8899 §5.1.1: PMTU_RAISE_TIMER).
const RAISE: Duration = Duration::from_secs(600);
/// Differences that are not worth a probe.
const RESOLUTION: u16 = 8;

/// Segments that must follow a probe in the same flight, so that its loss shows at once.
pub(crate) const FOLLOWERS: u64 = 4;

/// How far the search is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    /// Fallen back; nothing has arrived since.
    Doubt,
    /// Looking for more.
    Search,
    /// Found; until then.
    Complete,
}

/// A search, from the first fall.
#[derive(Clone, Debug)]
pub(crate) struct MtuSearch {
    /// What is used: the largest size that arrived, or that is assumed to.
    low: u16,
    /// The largest size that may still arrive.
    high: u16,
    stage: Stage,
    /// What is being tried: where it lies, and its size.
    probe: Option<(Range<u64>, u16)>,
    tries: u8,
    next_at: Instant,
}

impl MtuSearch {
    /// Time-outs say that segments of `size` do not arrive: a search that begins below it, if there is anything below
    /// that is worth it.
    pub(crate) fn begin(size: Mss) -> Option<Self> {
        let low = STEPS_DOWN.into_iter().next().filter(|&low| low < size.bytes())?;
        let high = size.bytes();
        Some(Self { low, high, stage: Stage::Doubt, probe: None, tries: 0, next_at: Instant::ZERO })
    }

    /// Another time-out.
    pub(crate) fn on_timeout(&mut self) {
        self.probe = None;
        self.stage = Stage::Doubt;
        if let Some(lower) = STEPS_DOWN.into_iter().find(|&step| step < self.low) {
            self.low = lower;
        }
    }

    /// What the connection uses meanwhile.
    pub(crate) fn size(&self) -> Mss {
        Mss::clamped(self.low)
    }

    /// Something new was acknowledged, everything before `una`. Says whether the size has changed. `most` is what the
    /// peer takes and the route claims.
    pub(crate) fn on_progress(&mut self, now: Instant, una: u64, most: Mss) -> bool {
        if self.stage == Stage::Doubt {
            self.stage = Stage::Search;
            self.next_at = now;
        }
        let arrived = self.probe.take_if(|(range, _)| una >= range.end);
        if let Some((_, size)) = &arrived {
            self.low = *size;
            (self.tries, self.next_at) = (0, now);
            self.settle(now, most);
        }
        arrived.is_some()
    }

    /// A range leaves again. If it is of the probe, that was lost.
    pub(crate) fn on_resent(&mut self, now: Instant, range: &Range<u64>) {
        let overlaps =
            |(probe, _): &mut (Range<u64>, u16)| range.start < probe.end && probe.start < range.end;
        let Some((_, size)) = self.probe.take_if(overlaps) else { return };
        self.tries += 1;
        self.next_at = now + RETRY;
        if self.tries >= TRIES {
            self.tries = 0;
            self.high = size - 1;
            self.settle(now, Mss::clamped(self.high));
        }
    }

    /// Whether there is anything left to try. `most` as before: it may be less than what arrived, and more again later, so
    /// it is never kept.
    fn settle(&mut self, now: Instant, most: Mss) {
        if self.high.min(most.bytes()).saturating_sub(self.low) < RESOLUTION {
            self.stage = Stage::Complete;
            self.next_at = now + RAISE;
        }
    }

    /// The size to try now, if it is time. `most` as before.
    #[inline]
    pub(crate) fn candidate(&mut self, now: Instant, most: Mss) -> Option<u16> {
        if self.probe.is_some() || self.stage == Stage::Doubt || now < self.next_at {
            return None;
        }
        if self.stage == Stage::Complete {
            (self.stage, self.high) = (Stage::Search, most.bytes().max(self.low));
            self.settle(now, most);
            if self.stage == Stage::Complete {
                return None;
            }
        }
        // The whole first: most often the path was only silent for a while. Then halves of what is left.
        let high = self.high.min(most.bytes());
        let is_untried = high == most.bytes();
        let size = if is_untried { high } else { self.low + high.saturating_sub(self.low).div_ceil(2) };
        (size > self.low).then_some(size)
    }

    /// A probe of `size` leaves.
    pub(crate) fn on_probe(&mut self, range: Range<u64>, size: u16) {
        self.probe = Some((range, size));
    }

    /// Whether the range is the probe's.
    pub(crate) fn is_probe(&self, range: &Range<u64>) -> bool {
        self.probe.as_ref().is_some_and(|(probe, _)| probe == range)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const FULL: Mss = Mss::clamped(1460);

    /// Plays a search over a path that carries `limit`; gives what it found and how many probes it took.
    fn found(limit: u16, most: Mss) -> (u16, u32) {
        let mut search = MtuSearch::begin(most).expect("larger than the base");
        while search.size().bytes() > limit {
            search.on_timeout();
        }
        let (mut now, mut una, mut probes) = (Instant::from_secs(1), 1_000, 0);
        search.on_progress(now, una, most);
        while search.stage != Stage::Complete {
            now += RETRY;
            let size = search.candidate(now, most).expect("a search has a next step");
            assert!(size > search.low && size <= search.high, "{size} of {search:?}");
            let range = una..una + u64::from(size);
            search.on_probe(range.clone(), size);
            assert_eq!(search.candidate(now, most), None, "one probe at a time");
            if size > limit {
                search.on_resent(now, &(range.start..range.start + 10));
            }
            una = range.end;
            search.on_progress(now, una, most);
            probes += 1;
            assert!(probes < 60, "{search:?}");
        }
        (search.low, probes)
    }

    #[test]
    fn a_path_that_was_only_silent_is_back_with_one_probe() {
        assert_eq!(found(1460, FULL), (1460, 1));
    }

    #[test]
    fn nothing_is_searched_below_the_base() {
        assert!(MtuSearch::begin(Mss::clamped(1220)).is_none());
    }

    #[test]
    fn a_second_time_out_goes_further_down_and_no_third() {
        let mut search = MtuSearch::begin(FULL).expect("larger");
        let sizes: Vec<u16> = (0..3)
            .map(|_| {
                let size = search.size().bytes();
                search.on_timeout();
                size
            })
            .collect();
        assert_eq!(sizes, [1220, 536, 536]);
        assert_eq!(search.candidate(Instant::from_secs(9), FULL), None, "nothing has arrived");
    }

    #[test]
    fn a_search_is_begun_anew_after_a_while() {
        let mut search = MtuSearch::begin(FULL).expect("larger");
        let now = Instant::from_secs(1);
        search.on_progress(now, 10, FULL);
        (search.high, search.stage, search.next_at) = (1225, Stage::Complete, now + RAISE);
        assert_eq!(search.candidate(now + RAISE / 2, FULL), None);
        assert_eq!(search.candidate(now + RAISE, FULL), Some(1460));
    }

    /// ICMP without an MTU makes the route claim less than what arrives (RFC 1191 §7); later it claims the whole again.
    #[test]
    fn a_route_that_claims_little_for_a_while_bounds_nothing_for_good() {
        let mut search = MtuSearch::begin(FULL).expect("larger");
        let (now, little) = (Instant::from_secs(1), Mss::clamped(966));
        search.on_progress(now, 10, FULL);
        assert_eq!(search.candidate(now, little), None);
        search.on_progress(now, 20, little);
        assert_eq!(search.candidate(now, FULL), Some(1460));
        (search.stage, search.next_at) = (Stage::Complete, now + RAISE);
        assert_eq!(search.candidate(now + RAISE, little), None);
        assert_eq!(search.stage, Stage::Complete);
        search.on_timeout();
        search.on_progress(now + RAISE, 30, little);
        assert_eq!(search.candidate(now + RAISE, little), Some(966), "now it is more than what arrives");
    }

    proptest! {
        #[test]
        fn the_search_ends_at_the_path_s_size(limit in 536u16..9000, most in 1221u16..9000) {
            let (found, probes) = found(limit, Mss::clamped(most));
            let wanted = limit.min(most);
            prop_assert!(found <= wanted && wanted - found < RESOLUTION, "{} of {}", found, wanted);
            prop_assert!(probes <= 3 * 14);
        }
    }
}
