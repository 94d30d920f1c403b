//! Dynamic right-sizing: how large the receive buffer should be (Fisk and Feng 2001, as Linux'
//! `tcp_rcv_space_adjust` does it).
//!
//! What the program reads in a round trip is what the sender's window brought; the buffer grows so that the next
//! window may be twice as large, and never beyond the netstack's limit. A program that reads slowly gets no larger
//! buffer: it is not the buffer that limits it. Owns the receiver's estimate of the round trip, which has no
//! retransmissions to be careful about, and the round that is being measured. Called by `receive` per segment with
//! text, for connections whose program left the size to us.

use core::time::Duration;

use firelane_units::{Instant, Mss};

/// Room for the sender's initial window on top of what was read (RFC 6928's ten segments, and some).
const SLACK_SEGMENTS: u64 = 16;

/// What is measured of one connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReceiveTuning {
    /// The round trip in microseconds; zero before the first sample.
    round_trip: u32,
    /// The echo that gave the last sample: each tells the time once.
    echoed: Instant,
    /// When the present round began, and how much had been read then.
    since: Instant,
    read: u64,
    /// The most that was read in a round.
    space: u64,
    /// Without timestamps: when the end of the window that was open at `window_at` arrives, a round trip is over.
    window_end: u64,
    window_at: Instant,
}

/// Text that arrived.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TextIn {
    /// When.
    pub(crate) now: Instant,
    /// When the ACK left that it echoes, if the segment is full-sized and carries a timestamp.
    pub(crate) echoed: Option<Instant>,
    /// Whether it carries timestamps at all.
    pub(crate) is_stamped: bool,
    /// RCV.NXT behind it, and the end of the window.
    pub(crate) nxt: u64,
    pub(crate) edge: u64,
}

impl ReceiveTuning {
    /// The first text arrived; `read` of it and what went before was read.
    pub(crate) fn new(now: Instant, read: u64, edge: u64, mss: Mss) -> Self {
        Self {
            round_trip: 0,
            echoed: Instant::ZERO,
            since: now,
            read,
            space: 10 * u64::from(mss.bytes()),
            window_end: edge,
            window_at: now,
        }
    }

    /// The round trip, once there was a sample.
    pub(crate) fn round_trip(&self) -> Option<Duration> {
        (self.round_trip > 0).then(|| Duration::from_micros(self.round_trip.into()))
    }

    /// Text arrived: perhaps it tells the round trip.
    #[inline]
    pub(crate) fn on_text(&mut self, text: &TextIn) {
        if let Some(echoed) = text.echoed
            && echoed != self.echoed
        {
            self.echoed = echoed;
            let sample = micros(text.now.saturating_since(echoed)).max(1);
            self.round_trip = match self.round_trip {
                0 => sample,
                old => old - old / 8 + sample / 8,
            }
            .max(1);
        }
        if !text.is_stamped && text.nxt >= self.window_end {
            // A window arrives in a round trip at least, so the least of these comes nearest.
            let sample = micros(text.now.saturating_since(self.window_at)).max(1);
            self.round_trip = if self.round_trip == 0 { sample } else { self.round_trip.min(sample) };
            (self.window_end, self.window_at) = (text.edge.max(text.nxt + 1), text.now);
        }
    }

    /// Whether a round is over, so that [`ReceiveTuning::end_round`] has something to say.
    #[inline]
    pub(crate) fn is_round_over(&self, now: Instant) -> bool {
        self.round_trip > 0
            && now.saturating_since(self.since) >= Duration::from_micros(self.round_trip.into())
    }

    /// A round is over, and everything before `read` was read: the size that the buffer should have, if this round
    /// brought more than any before.
    pub(crate) fn end_round(&mut self, now: Instant, read: u64, mss: Mss) -> Option<u64> {
        let copied = read - self.read;
        (self.since, self.read) = (now, read);
        if copied <= self.space {
            return None;
        }
        // Twice, so that losses leave the sender room; and as much more as this round was more than the last, because
        // the window that we announce now is used a round trip from here.
        let window = 2 * copied + SLACK_SEGMENTS * u64::from(mss.bytes());
        let growth = u128::from(window) * u128::from(copied - self.space) / u128::from(self.space);
        self.space = copied;
        Some(window.saturating_add(2 * u64::try_from(growth).unwrap_or(u64::MAX / 4)))
    }
}

fn micros(span: Duration) -> u32 {
    u32::try_from(span.as_micros()).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MSS: Mss = Mss::clamped(1000);

    fn at(millis: u64) -> Instant {
        Instant::from_millis(millis)
    }

    fn text(millis: u64, echoed: Option<u64>, nxt: u64, edge: u64) -> TextIn {
        TextIn { now: at(millis), echoed: echoed.map(at), is_stamped: echoed.is_some(), nxt, edge }
    }

    #[test]
    fn timestamps_tell_the_round_trip_once_each() {
        let mut tuning = ReceiveTuning::new(at(1_000), 0, 64_000, MSS);
        assert_eq!(tuning.round_trip(), None);
        tuning.on_text(&text(1_050, Some(1_000), 1_000, 64_000));
        assert_eq!(tuning.round_trip(), Some(Duration::from_millis(50)));
        // The rest of the sender's burst echoes the same ACK, and says nothing new.
        tuning.on_text(&text(1_090, Some(1_000), 9_000, 64_000));
        assert_eq!(tuning.round_trip(), Some(Duration::from_millis(50)));
        tuning.on_text(&text(1_140, Some(1_050), 10_000, 64_000));
        assert_eq!(tuning.round_trip(), Some(Duration::from_millis(55)));
    }

    #[test]
    fn without_timestamps_a_window_does() {
        let mut tuning = ReceiveTuning::new(at(1_000), 0, 64_000, MSS);
        tuning.on_text(&text(1_040, None, 63_000, 90_000));
        assert_eq!(tuning.round_trip(), None);
        tuning.on_text(&text(1_050, None, 64_000, 120_000));
        assert_eq!(tuning.round_trip(), Some(Duration::from_millis(50)));
        tuning.on_text(&text(1_200, None, 120_000, 180_000));
        assert_eq!(tuning.round_trip(), Some(Duration::from_millis(50)), "a pause is no round trip");
    }

    #[test]
    fn the_buffer_keeps_ahead_of_slow_start() {
        // 10, 20, 40, ... segments per round, all read: what is announced after a round holds the next but one.
        let mut tuning = ReceiveTuning::new(at(0), 0, 64_000, MSS);
        tuning.on_text(&text(100, Some(1), 1_000, 64_000));
        let (mut read, mut now) = (0, 100);
        for round in 1..=6 {
            let sent = 10_000 << round;
            read += sent;
            now += 100;
            assert!(tuning.is_round_over(at(now)));
            let wanted = tuning.end_round(at(now), read, MSS).expect("it was more than before");
            assert!(wanted >= 4 * sent, "round {round}: {wanted} after {sent}");
        }
        read += 10_000;
        assert_eq!(tuning.end_round(at(now + 100), read, MSS), None, "less than before");
    }

    proptest! {
        #[test]
        fn no_round_makes_it_panic_or_shrink(
            steps in prop::collection::vec((0u64..5_000, any::<bool>(), 0u64..1 << 32), 1..60),
        ) {
            let mut tuning = ReceiveTuning::new(at(0), 0, 1, MSS);
            let (mut now, mut read) = (0, 0);
            let mut last = 0;
            for (pause, stamped, len) in steps {
                now += pause;
                let echoed = stamped.then(|| now.saturating_sub(pause / 2));
                tuning.on_text(&text(now, echoed, read + len, read + 2 * len));
                if tuning.is_round_over(at(now)) {
                    read += len;
                    if let Some(wanted) = tuning.end_round(at(now), read, MSS) {
                        prop_assert!(wanted >= 2 * tuning.space && tuning.space > last);
                        last = tuning.space;
                    }
                }
            }
        }
    }
}
