//! RFC 6937 with RFC 9937's choice of bound: proportional rate reduction.
//!
//! During fast recovery, paces what is sent against what arrives, so that the window goes down to its new
//! value evenly over one round trip. Owns the counters of one recovery. Called by `recovery`: [`Prr::on_ack`]
//! per ACK and [`Prr::on_sent`] per segment while it recovers.

use firelane_units::{Bytes, Mss};

/// The counters of one fast recovery.
#[derive(Clone, Copy, Debug, Default)]
pub struct Prr {
    /// Outstanding bytes when recovery began (RecoverFS).
    outstanding: u64,
    delivered: u64,
    sent: u64,
}

/// What an ACK in recovery says.
#[derive(Clone, Copy, Debug)]
pub struct PrrAck {
    /// Bytes that it delivered (DeliveredData).
    pub delivered: Bytes,
    /// Bytes under way after it (pipe).
    pub in_flight: Bytes,
    /// The window to arrive at.
    pub slow_start_threshold: Bytes,
    /// Whether it advanced the cumulative acknowledgement and showed no further loss (RFC 9937's SafeACK).
    pub safe: bool,
}

impl Prr {
    /// Recovery begins with `outstanding` bytes sent and not acknowledged.
    pub fn start(outstanding: Bytes) -> Self {
        Self { outstanding: outstanding.0.max(1), delivered: 0, sent: 0 }
    }

    /// Outstanding bytes when recovery began.
    pub fn outstanding(&self) -> Bytes {
        Bytes(self.outstanding)
    }

    /// The congestion window after an ACK.
    pub fn on_ack(&mut self, ack: &PrrAck, mss: Mss) -> Bytes {
        let mss = u64::from(mss.bytes());
        let (delivered, in_flight) = (ack.delivered.0, ack.in_flight.0);
        let target = ack.slow_start_threshold.0;
        self.delivered += delivered;
        let allowed = if in_flight > target {
            // Proportional: for each byte that arrives, target/outstanding bytes go.
            let due = u128::from(self.delivered) * u128::from(target);
            let due = due.div_ceil(u128::from(self.outstanding)) as u64;
            due.saturating_sub(self.sent)
        } else {
            // Below the target: conserve packets, and slow-start towards it if the ACK is good news.
            let conserve = self.delivered.saturating_sub(self.sent).max(delivered);
            let limit = if ack.safe { conserve + mss } else { conserve };
            limit.min(target - in_flight)
        };
        // The fast retransmission that opens recovery always goes (RFC 9937 §6.1).
        let allowed = if self.sent == 0 { allowed.max(mss) } else { allowed };
        Bytes(in_flight + allowed)
    }

    /// Data left, new or old.
    pub fn on_sent(&mut self, len: Bytes) {
        self.sent += len.0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MSS: Mss = Mss::clamped(1000);

    /// Runs a recovery in which each ACK delivers one segment; gives how many were sent after each ACK.
    fn run(outstanding: u64, lost: u64, target: u64) -> Vec<u64> {
        let mut prr = Prr::start(Bytes(outstanding * 1_000));
        let mut in_flight = (outstanding - lost) * 1_000;
        let mut sent = Vec::new();
        for ack in 0..outstanding - lost {
            in_flight -= 1_000;
            let ack = PrrAck {
                delivered: Bytes(1_000),
                in_flight: Bytes(in_flight),
                slow_start_threshold: Bytes(target * 1_000),
                safe: ack > 0,
            };
            let window = prr.on_ack(&ack, MSS).0;
            let whole = (window - in_flight) / 1_000;
            prr.on_sent(Bytes(whole * 1_000));
            in_flight += whole * 1_000;
            sent.push(whole);
        }
        sent
    }

    #[test]
    fn rfc_6937_first_example_one_loss_of_twenty() {
        // RFC 6937 §4: FlightSize 20, one segment lost, ssthresh 10: one segment goes for every two ACKs.
        let sent = run(20, 1, 10);
        assert_eq!(sent[0], 1, "the fast retransmission");
        assert_eq!(sent.iter().sum::<u64>(), 10);
        assert!(sent.iter().all(|&n| n <= 1), "never a burst: {sent:?}");
        let halfway: u64 = sent[..10].iter().sum();
        assert!((4..=6).contains(&halfway), "evenly: {sent:?}");
    }

    #[test]
    fn a_big_loss_is_slow_started_back_to_the_target() {
        // RFC 6937 §4's second example: 15 of 20 lost; pipe falls below ssthresh at once.
        let sent = run(20, 15, 10);
        assert!(sent.iter().all(|&n| n <= 2), "at most one more than arrived: {sent:?}");
        assert!(sent.iter().sum::<u64>() >= 5, "packets are conserved: {sent:?}");
    }

    proptest! {
        #[test]
        fn the_window_ends_at_or_below_the_target(
            outstanding in 4u64..200, lost_share in 1u64..100, target_share in 10u64..100,
        ) {
            let lost = (outstanding * lost_share / 100).clamp(1, outstanding - 1);
            let target = (outstanding * target_share / 100).max(2);
            let sent = run(outstanding, lost, target);
            let in_flight: u64 = sent.iter().sum();
            prop_assert!(in_flight <= target.max(1) + 1, "{} of {}", in_flight, target);
        }
    }
}
