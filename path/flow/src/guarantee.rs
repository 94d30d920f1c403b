//! A guaranteed rate: what a flow gets of the limits above it before priorities have a say.
//!
//! It is the same virtual clock as a limit's ([`Limiter`]), read the other way round: as long as the bytes that passed
//! have not reached the rate, the flow is *owed*, and who is owed is served first (`schedule.rs`). What it gets beyond its
//! rate is not held against it, because it used what nobody else wanted: however much it took while its
//! neighbours were silent, it is owed again one frame's time after they begin.

use firelane_units::{BitRate, Bytes, Instant};

use crate::limiter::{LATE_MAX, Limiter, SLACK};

/// One direction's guarantee.
#[derive(Clone, Debug)]
pub(crate) struct Guarantee(Limiter);

impl Guarantee {
    pub(crate) fn new(rate: BitRate, now: Instant) -> Self {
        Self(Limiter::new(rate, now))
    }

    pub(crate) fn rate(&self) -> BitRate {
        self.0.rate()
    }

    pub(crate) fn set_rate(&mut self, now: Instant, rate: BitRate) {
        self.0.set_rate(now, rate);
    }

    /// From when on its flow is owed.
    pub(crate) fn owed_at(&self) -> Instant {
        self.0.ready_at()
    }

    /// Counts bytes that pass at `now`. Who has waited for a limit may make up for a lane that is late; who was silent
    /// has earned no more than a limit would let him.
    pub(crate) fn charge(&mut self, now: Instant, bytes: Bytes, has_waited: bool) {
        let kept = if has_waited { LATE_MAX } else { SLACK };
        self.0.charge_anew(now, now - kept, bytes);
    }

    /// Something begins to wait: the silence before it does not count.
    pub(crate) fn begin(&mut self, now: Instant) {
        self.0.forget_before(now - SLACK);
    }

    /// What may wait in front of the limits, so that a late lane finds enough to make up with.
    pub(crate) fn reserve(&self) -> Bytes {
        self.0.rate().bytes_in(LATE_MAX)
    }
}
