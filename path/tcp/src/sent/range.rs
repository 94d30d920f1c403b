//! One sent range: two cursors of the send ring, its last transmission, and what became of it; and what its loss says.
//!
//! Called by the list of ranges, and by whoever looks at one: RACK (RFC 8985) and delivery-rate sampling.

use core::ops::Range;

use firelane_units::{Bytes, Instant};

use crate::rate::Snapshot;

/// What is known of a range.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mark {
    /// Under way, as far as we know.
    InFlight,
    /// Selectively acknowledged.
    Sacked,
    /// Lost, and waiting to be sent again.
    Lost,
}

/// Consecutive bytes that share a fate: the same last transmission and the same mark.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SentRange {
    /// The first cursor.
    pub start: u64,
    /// The cursor after the last.
    pub end: u64,
    /// When it was last sent.
    pub sent_at: Instant,
    /// The rate sampler's state when it was last sent.
    pub snapshot: Snapshot,
    /// The count of lost bytes then, modulo 2^32.
    pub lost_before: u32,
    /// How often it was sent.
    pub transmissions: u8,
    /// What is known of it.
    pub mark: Mark,
    /// How many segments a sacked range stands for.
    pub(super) segments: u16,
}

impl SentRange {
    /// A range sent for the first time.
    pub fn first(range: Range<u64>, sent_at: Instant, snapshot: Snapshot) -> Self {
        Self {
            start: range.start,
            end: range.end,
            sent_at,
            snapshot,
            lost_before: 0,
            transmissions: 1,
            mark: Mark::InFlight,
            segments: 0,
        }
    }

    /// How many cursors it covers.
    pub fn len(&self) -> Bytes {
        Bytes(self.end - self.start)
    }

    /// A range covers at least one cursor.
    pub fn is_empty(&self) -> bool {
        self.start == self.end
    }

    /// Whether it was sent more than once, so that an acknowledgement does not tell which copy arrived.
    pub fn is_retransmitted(&self) -> bool {
        self.transmissions > 1
    }

    /// Whether the two differ only in their place.
    pub(super) fn shares_fate(&self, next: &Self) -> bool {
        self.end == next.start
            && self.mark == Mark::InFlight
            && next.mark == Mark::InFlight
            && self.sent_at == next.sent_at
            && self.transmissions == next.transmissions
            && self.lost_before == next.lost_before
            && self.snapshot.shares_round(&next.snapshot)
    }
}

/// What to do with a range that loss detection looks at.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Judgement {
    /// Leave it.
    Keep,
    /// It is lost.
    Lost,
    /// Leave it and all later ones.
    Stop,
}

/// A range that was found lost: how much was, of what was in flight with it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LossNote {
    /// Its bytes.
    pub len: u64,
    /// What was in flight once it had left.
    pub in_flight: u64,
    /// What was found lost since then, itself included.
    pub lost: u64,
    /// Whether the program was the limit when it left.
    pub app_limited: bool,
}

impl LossNote {
    /// The note of `range`, after which `lost` bytes were ever lost.
    pub(super) fn of(range: &SentRange, lost: u64) -> Self {
        Self {
            len: range.len().0,
            in_flight: range.snapshot.in_flight.into(),
            lost: (lost as u32).wrapping_sub(range.lost_before).into(),
            app_limited: range.snapshot.app_limited,
        }
    }

    /// Whether more than one byte in `share` was lost.
    pub fn exceeds(&self, share: u64) -> bool {
        self.lost.saturating_mul(share) > self.in_flight
    }
}

/// More than one byte in so many is more than chance: BBR's line (draft-ietf-ccwg-bbr §2.5, LossThresh).
pub const LOSS_SHARE: u64 = 50;
