//! RFC 8257: DCTCP, for networks whose routers mark early.
//!
//! The window shrinks by the share of text that was marked, not by half: where queues are short, marks are many
//! and each one says little. Owns the estimate of that share; growth and the answer to loss are NewReno's. Its
//! receiver's half, the exact echo, is `ecn.rs`. It is for data centres: beside others on a shared path it takes
//! more than its share (RFC 8257 §5).

use core::time::Duration;

use firelane_units::Bytes;

use super::newreno::grow;
use super::{AckSample, Window};

/// One, in the units of alpha.
const ONE: u64 = 1 << 20;
/// g, the weight of a new window of data: 1/16 (RFC 8257 §3.3, §4.2).
const WEIGHT_SHIFT: u32 = 4;

/// The control of RFC 8257.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Dctcp {
    pub(super) window: Window,
    /// Bytes delivered since the last growth in congestion avoidance.
    counted: u32,
    /// The share that is marked (DCTCP.Alpha). It begins at one: the first mark halves the window.
    alpha: u32,
    delivered: u64,
    marked: u64,
    /// When everything before it is acknowledged, a window of data has been observed (DCTCP.WindowEnd).
    window_end: u64,
}

impl Dctcp {
    /// Begins in slow start.
    pub fn new(window: Window) -> Self {
        Self { window, counted: 0, alpha: ONE as u32, delivered: 0, marked: 0, window_end: 0 }
    }

    /// The share of text that is believed to be marked, in millionths.
    pub fn alpha(&self) -> u32 {
        (u64::from(self.alpha) * 1_000_000 / ONE) as u32
    }

    /// §3.3 steps 1 to 7: every ACK counts, whatever state the sender is in.
    pub(super) fn on_echo(&mut self, delivered: Bytes, congested: bool, una: u64, nxt: u64) {
        self.delivered += delivered.0;
        self.marked += if congested { delivered.0 } else { 0 };
        if una <= self.window_end {
            return;
        }
        let alpha = u64::from(self.alpha);
        // Without the least step the estimate would stay above zero for ever (§4.2).
        let fade = (alpha >> WEIGHT_SHIFT).max(alpha.min(1));
        let share = (self.marked * ONE).checked_div(self.delivered).unwrap_or(0);
        self.alpha = (alpha - fade + (share >> WEIGHT_SHIFT)).min(ONE) as u32;
        (self.delivered, self.marked, self.window_end) = (0, 0, nxt);
    }

    pub(super) fn on_ack(&mut self, ack: &AckSample) {
        grow(&mut self.window, &mut self.counted, ack);
    }

    /// §3.5: a loss is answered as by everybody else.
    pub(super) fn on_loss(&mut self, outstanding: Bytes) {
        self.window.set_threshold(outstanding.0 / 2);
        self.counted = 0;
    }

    /// §3.3 step 9: `cwnd = cwnd * (1 - DCTCP.Alpha / 2)`.
    pub(super) fn on_mark(&mut self) {
        let window = u64::from(self.window.bytes());
        self.window.set_threshold(window - window * u64::from(self.alpha) / (2 * ONE));
        self.counted = 0;
    }

    pub(super) fn on_slow_start(&mut self) {
        self.counted = 0;
    }

    pub(super) fn on_idle(&mut self, _idle: Duration) {}
}

#[cfg(test)]
mod tests {
    use super::*;
    use firelane_units::Mss;
    use proptest::prelude::*;

    fn control(window: u64) -> Dctcp {
        let mut control = Dctcp::new(Window::initial(Mss::clamped(1_000), 10));
        control.window.set(window);
        control
    }

    /// Observes `windows` windows of a hundred segments of which `marked` are.
    fn observe(control: &mut Dctcp, from: u64, windows: u64, marked: u64) -> u64 {
        let mut una = from;
        for _ in 0..windows {
            for n in 0..100 {
                una += 1_000;
                control.on_echo(Bytes(1_000), n < marked, una, una + 100_000);
            }
        }
        una
    }

    #[test]
    fn the_first_mark_halves() {
        let mut control = control(100_000);
        control.on_mark();
        assert_eq!(control.window.threshold(), Some(Bytes(50_000)));
    }

    #[test]
    fn a_tenth_marked_takes_a_twentieth() {
        let mut control = control(100_000);
        observe(&mut control, 0, 200, 10);
        assert!(control.alpha().abs_diff(100_000) < 2_000, "{}", control.alpha());
        control.on_mark();
        let threshold = control.window.threshold().map_or(0, |bytes| bytes.0);
        assert!(threshold.abs_diff(95_000) < 200, "{threshold}");
    }

    #[test]
    fn without_marks_the_estimate_reaches_zero() {
        let mut control = control(100_000);
        observe(&mut control, 0, 400, 0);
        assert_eq!(control.alpha, 0);
        // RFC 8257 §4.2: a new mark still counts.
        observe(&mut control, 1 << 40, 2, 100);
        assert!(control.alpha > 0);
    }

    #[test]
    fn a_loss_halves_what_was_out() {
        let mut control = control(100_000);
        observe(&mut control, 0, 400, 0);
        control.on_loss(Bytes(80_000));
        assert_eq!(control.window.threshold(), Some(Bytes(40_000)));
    }

    proptest! {
        /// The estimate stays a share, and tends to the share that is there.
        #[test]
        fn alpha_follows_the_share(marked in 0u64..=100) {
            let mut control = control(100_000);
            observe(&mut control, 0, 300, marked);
            prop_assert!(u64::from(control.alpha) <= ONE);
            prop_assert!(u64::from(control.alpha()).abs_diff(marked * 10_000) <= 20_000, "{}", control.alpha());
        }
    }
}
