//! The congestion window itself, and what all algorithms do alike with it.
//!
//! Owns window, slow start threshold and segment size of a connection, in 32 bits each: RFC 7323 ends windows
//! at 1 GiB. Called by the algorithms of this folder only.

use firelane_units::{Bytes, Mss};

/// The largest congestion window: the largest window that a peer can offer (RFC 7323 §2.3).
pub const WINDOW_MAX: u32 = 1 << 30;

/// No loss was seen: slow start has no threshold.
const NO_THRESHOLD: u32 = u32::MAX;

/// The most that one ACK adds in slow start, in segments and in bytes, whichever is more.
///
/// RFC 9406 §4.2 recommends 8 segments for senders that do not pace. We differ for large segments: a peer
/// that receives 64 KiB at once acknowledges them at once, and growing by 8 segments per ACK would then not
/// double the window. We differ from RFC 3465 §2.3, too, which asks for one segment per ACK after a time-out, because an
/// ACK may then cover what had arrived before: what was reported selectively before does not count a second time here.
const GROWTH_SEGMENTS: u32 = 8;
const GROWTH_BYTES: u32 = 64 * 1024;

/// A congestion window.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Window {
    bytes: u32,
    threshold: u32,
    mss: Mss,
}

impl Window {
    /// The initial window (RFC 6928 §2): `segments`, but no more bytes than as many segments of 1460 have,
    /// unless that is less than two segments.
    pub fn initial(mss: Mss, segments: u16) -> Self {
        let (size, segments) = (u32::from(mss.bytes()), u32::from(segments.max(1)));
        let most = (segments * 1_460).max(segments.min(2) * size);
        Self { bytes: (segments * size).min(most), threshold: NO_THRESHOLD, mss }
    }

    /// The window in bytes.
    pub fn bytes(&self) -> u32 {
        self.bytes
    }

    /// The segment size.
    pub fn mss(&self) -> u32 {
        u32::from(self.mss.bytes())
    }

    /// The path's segment size changed; the window keeps its bytes, but holds a segment at least.
    pub fn set_mss(&mut self, mss: Mss) {
        self.mss = mss;
        self.set(u64::from(self.bytes));
    }

    /// Sets the window, within one segment and [`WINDOW_MAX`].
    pub fn set(&mut self, bytes: u64) {
        let bytes = u32::try_from(bytes).unwrap_or(WINDOW_MAX).min(WINDOW_MAX);
        self.bytes = bytes.max(self.mss());
    }

    /// The threshold, if a loss or HyStart++ has set one.
    pub fn threshold(&self) -> Option<Bytes> {
        (self.threshold != NO_THRESHOLD).then_some(Bytes(self.threshold.into()))
    }

    /// Sets the threshold, at least two segments (RFC 5681 §3.1).
    pub fn set_threshold(&mut self, bytes: u64) {
        let bytes = u32::try_from(bytes).unwrap_or(WINDOW_MAX).min(WINDOW_MAX);
        self.threshold = bytes.max(2 * self.mss());
    }

    /// The same without a threshold.
    pub fn without_threshold(self) -> Self {
        Self { threshold: NO_THRESHOLD, ..self }
    }

    /// Whether the window is below the threshold.
    pub fn in_slow_start(&self) -> bool {
        self.bytes < self.threshold
    }

    /// Slow start (RFC 5681 §3.1, bytes as RFC 3465 counts them): grows by what arrived over `divisor`, up to
    /// the threshold. Gives what remains of `delivered` for congestion avoidance.
    pub fn slow_start(&mut self, delivered: u64, divisor: u32) -> u64 {
        let limit = (GROWTH_SEGMENTS * self.mss()).max(GROWTH_BYTES);
        let growth = delivered.min(u64::from(limit)) / u64::from(divisor);
        let room = u64::from(self.threshold - self.bytes.min(self.threshold));
        let used = growth.min(room);
        self.set(u64::from(self.bytes) + used);
        growth - used
    }

    /// Fast recovery ended: the window is the threshold (RFC 6675 §5, RFC 9937).
    pub fn set_to_threshold(&mut self) {
        if self.threshold != NO_THRESHOLD {
            self.set(self.threshold.into());
        }
    }

    /// Data go after an idle time of `timeouts` retransmission time-outs: RFC 5681 §4.1 restarts from the
    /// initial window; as Linux does, the window halves per time-out and does not fall below it. The
    /// threshold remembers three quarters of what was (RFC 2861 §3.1).
    pub fn restart(&mut self, initial: Self, timeouts: u32) {
        if let Some(threshold) = self.threshold() {
            self.set_threshold(threshold.0.max(u64::from(self.bytes / 4 * 3)));
        }
        let decayed = self.bytes.checked_shr(timeouts).unwrap_or(0);
        self.set(decayed.max(initial.bytes.min(self.bytes)).into());
    }
}
