//! RFC 5681 §3.1 with RFC 3465: slow start, congestion avoidance by bytes, halving at a loss.
//!
//! Owns the bytes counted towards the next increase. The recovery that RFC 6582 adds is `recovery`'s.

use core::time::Duration;

use firelane_units::Bytes;

use super::{AckSample, Window};

/// The control of RFC 5681.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NewReno {
    pub(super) window: Window,
    /// Bytes acknowledged since the window last grew in congestion avoidance.
    counted: u32,
}

impl NewReno {
    /// Begins in slow start.
    pub fn new(window: Window) -> Self {
        Self { window, counted: 0 }
    }

    pub(super) fn on_ack(&mut self, ack: &AckSample) {
        grow(&mut self.window, &mut self.counted, ack);
    }

    pub(super) fn on_loss(&mut self, outstanding: Bytes) {
        self.window.set_threshold(outstanding.0 / 2);
        self.counted = 0;
    }

    /// RFC 8511 §3: a mark comes earlier than a loss would, so four fifths stay.
    pub(super) fn on_mark(&mut self, outstanding: Bytes) {
        self.window.set_threshold(outstanding.0 * 4 / 5);
        self.counted = 0;
    }

    pub(super) fn on_slow_start(&mut self) {
        self.counted = 0;
    }

    pub(super) fn on_idle(&mut self, _idle: Duration) {}
}

/// Slow start, then a segment per window of bytes that arrived, of which `counted` wait for their growth.
pub(super) fn grow(window: &mut Window, counted: &mut u32, ack: &AckSample) {
    if !ack.window_limited {
        return;
    }
    let mut delivered = ack.delivered.0;
    if window.in_slow_start() {
        delivered = window.slow_start(delivered, 1);
    }
    // RFC 3465 §2.1: one segment per window of bytes acknowledged.
    let sum = u64::from(*counted) + delivered;
    let bytes = u64::from(window.bytes());
    if sum >= bytes {
        window.set(bytes + u64::from(window.mss()));
    }
    *counted = (sum % bytes) as u32;
}

#[cfg(test)]
mod tests {
    use super::*;
    use firelane_units::{Instant, Mss};

    fn ack(delivered: u64) -> AckSample {
        AckSample {
            now: Instant::from_secs(1),
            delivered: Bytes(delivered),
            una: 0,
            nxt: 0,
            rtt: None,
            smoothed: Duration::ZERO,
            window_limited: true,
        }
    }

    #[test]
    fn doubles_in_slow_start_and_adds_a_segment_per_window_after() {
        let mut control = NewReno::new(Window::initial(Mss::clamped(1_000), 10));
        for _ in 0..10 {
            control.on_ack(&ack(1_000));
        }
        assert_eq!(control.window.bytes(), 20_000);
        control.on_loss(Bytes(20_000));
        control.window.set_to_threshold();
        assert_eq!(control.window.bytes(), 10_000);
        for _ in 0..9 {
            control.on_ack(&ack(1_000));
        }
        assert_eq!(control.window.bytes(), 10_000);
        control.on_ack(&ack(1_000));
        assert_eq!(control.window.bytes(), 11_000);
    }

    #[test]
    fn ack_division_gains_nothing() {
        // S06: a thousand ACKs of one byte grow the window by a thousand bytes, not a thousand segments.
        let mut control = NewReno::new(Window::initial(Mss::clamped(1_000), 10));
        for _ in 0..1_000 {
            control.on_ack(&ack(1));
        }
        assert_eq!(control.window.bytes(), 11_000);
    }

    #[test]
    fn the_threshold_is_two_segments_at_least() {
        let mut control = NewReno::new(Window::initial(Mss::clamped(1_000), 10));
        control.on_loss(Bytes(1_000));
        assert_eq!(control.window.threshold(), Some(Bytes(2_000)));
    }
}
