//! How large the send buffer should be, as Linux' `tcp_sndbuf_expand` does it.
//!
//! The send ring holds what is under way, for it may be lost, and what waits to follow. As long as that is not twice the
//! congestion window, the window cannot double in a round trip, nor be refilled at once when a recovery ends. So where all
//! text is under way, both windows admit more, and it is the ring that is full, it grows: to twice the window (three times
//! for BBR, whose window may double in a recovery, too), and never beyond the netstack's limit or what the path carries in the
//! least round trip: a window that nothing bounds would make a ring that is in no cache. Storage is of powers of two, and so are
//! the sizes. Called by the lane when a connection has sent all that it had.
//!
//! It does not shrink while it is in use. What is empty for a second gives its storage back (`Connection::shrink`), and the
//! ring begins again with what it was made for, as the congestion window does (RFC 5681 §4.1).

use core::time::Duration;

use firelane_units::Bytes;

use crate::congestion::Algorithm;
use crate::connection::{Connection, Rings};

/// Less than this under way needs no larger ring, and no second look at this one.
const UNDER_WAY_MIN: u64 = 2048;

/// 50 Gb/s in octets per microsecond. A ring that carries this much over the least round trip is not what limits the
/// connection: the CPU that copies does, and it works in a larger ring as far as its caches go.
const ENOUGH: u64 = 6_250;

/// More than any segment without segmentation offload has.
const HELD_UP: u64 = 1500;

impl Connection {
    /// Everything was sent: whether the send ring has grown, so that the program may write on. `TCP_NOTSENT_LOWAT` holds
    /// as before: it is about what is not under way.
    #[inline]
    pub fn tune_sender(&self, rings: &mut Rings<'_>) -> bool {
        let under_way = self.flight.nxt() - self.flight.una();
        self.options.tuning.send && under_way >= UNDER_WAY_MIN && self.grow_sender(under_way, rings)
    }

    /// Whether an acknowledgement is waited for: by text for a segment or more that a window holds back, not Nagle's rule, or by a
    /// program whose ring is half full of what is under way.
    pub fn is_held_up(&self, rings: &Rings<'_>) -> bool {
        let under_way = self.flight.nxt() - self.flight.una();
        waits(self.unsent(rings), under_way, rings.send.attached_bytes() as u64)
    }

    fn grow_sender(&self, under_way: u64, rings: &mut Rings<'_>) -> bool {
        let storage = rings.send.attached_bytes();
        let mss = Bytes(self.flight.mss().bytes().into());
        // Half of the storage: the ring may have been made for less than its storage, and a segment may just have been
        // acknowledged.
        let is_full = under_way >= storage as u64 / 2 && self.unsent(rings) == 0;
        let may_send = self.flight.budget() >= mss && self.send.room(self.flight.nxt()) >= mss.0;
        let most = self.config.max_buffer;
        is_full
            && may_send
            && self.state.may_send_text()
            && !is_enough(storage as u64, self.flight.rtt().minimum())
            && wanted(self.flight.algorithm(), self.flight.window(), most)
                .map(|size| size.min(enough(self.flight.rtt().minimum())))
                .filter(|&size| size > storage)
                .is_some_and(|size| rings.send.grow(size))
    }
}

/// Whether a sender with so much unsent and under way waits for acknowledgements, in a ring of this storage.
const fn waits(unsent: u64, under_way: u64, storage: u64) -> bool {
    unsent >= HELD_UP || under_way > 0 && under_way >= storage / 2
}

/// Whether a ring carries all that there can be to carry, by the least round trip, if there was a sample.
fn is_enough(storage: u64, round_trip: Option<Duration>) -> bool {
    round_trip.is_some_and(|time| u128::from(storage) >= u128::from(ENOUGH) * time.as_micros().max(1))
}

/// The size that is enough: without a sample, any may be.
fn enough(round_trip: Option<Duration>) -> usize {
    let size = round_trip.map(|time| u128::from(ENOUGH) * time.as_micros().max(1));
    size.and_then(|size| usize::try_from(size.next_power_of_two()).ok()).unwrap_or(usize::MAX)
}

/// The size for a congestion window, of at most `most` octets.
fn wanted(algorithm: Algorithm, window: Bytes, most: u32) -> Option<usize> {
    let factor = if algorithm == Algorithm::Bbr { 3 } else { 2 };
    let most = 1u64 << most.checked_ilog2()?;
    let size = window.0.saturating_mul(factor).min(most).next_power_of_two();
    usize::try_from(size).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_fast_enough_does_not_grow() {
        let micros = |micros| Some(Duration::from_micros(micros));
        for (storage, round_trip, enough) in [
            (1 << 20, None, false),
            (1 << 20, micros(10), true),
            (1 << 20, micros(167), true),
            (1 << 20, micros(168), false),
            (65_536, micros(11), false),
            (65_536, micros(0), true),
        ] {
            assert_eq!(is_enough(storage, round_trip), enough, "{storage} {round_trip:?}");
        }
    }

    #[test]
    fn no_ring_grows_to_more_than_is_enough() {
        assert_eq!(enough(None), usize::MAX);
        for micros in [0, 1, 41, 42, 60, 167, 168, 1000, 1_000_000] {
            let round_trip = Some(Duration::from_micros(micros));
            let size = enough(round_trip) as u64;
            assert!(is_enough(size, round_trip) && !is_enough(size / 2 - 1, round_trip), "{micros}: {size}");
        }
    }

    #[test]
    fn who_waits_for_acknowledgements_is_held_up_by_a_window_or_by_his_ring() {
        for (unsent, under_way, storage, is_held_up) in [
            (0, 0, 0, false),
            (0, 0, 65_536, false),
            (952, 7240, 65_536, false),
            (1500, 7240, 65_536, true),
            (0, 32_767, 65_536, false),
            (0, 32_768, 65_536, true),
        ] {
            assert_eq!(waits(unsent, under_way, storage), is_held_up, "{unsent} {under_way} {storage}");
        }
    }

    #[test]
    fn twice_the_window_within_the_limit() {
        const MIB: u64 = 1 << 20;
        for (algorithm, window, most, size) in [
            (Algorithm::Cubic, 14_600, 6 << 20, Some(32_768)),
            (Algorithm::NewReno, MIB, 6 << 20, Some(2 * MIB)),
            (Algorithm::Cubic, MIB + 1, 6 << 20, Some(4 * MIB)),
            (Algorithm::Bbr, MIB, 6 << 20, Some(4 * MIB)),
            (Algorithm::Cubic, 100 * MIB, 6 << 20, Some(4 * MIB)),
            (Algorithm::Cubic, 100 * MIB, 1 << 30, Some(256 * MIB)),
            (Algorithm::Cubic, u64::MAX, 131_072, Some(131_072)),
            (Algorithm::Cubic, MIB, 0, None),
        ] {
            let size = size.map(|size| size as usize);
            assert_eq!(wanted(algorithm, Bytes(window), most), size, "{algorithm:?} {window} {most}");
        }
    }
}
