//! The ACK of a calm path: all that was out has arrived, as it was sent.
//!
//! Requests and answers see no other. Whatever [`Recovery::on_ack`] asks has a known answer then: nothing is lost,
//! nothing was reported, no recovery, probe or reduction is under way, and nothing stays to be timed. What is left is
//! the round trip, the delivery rate and the window. Called by `flight` before the long way, which does the same;
//! that it does is the law tested here.

use core::ops::Range;
use core::time::Duration;

use firelane_units::{Bytes, Instant};

use super::{Frto, Path, Recovery};
use crate::congestion::{AckSample, Control};
use crate::flight::{AckOut, Phase};
use crate::rate::Snapshot;
use crate::rtt::Rtt;

impl Recovery {
    /// Whether nothing waits to be sent again and nothing holds back what is new.
    #[inline]
    pub(crate) fn is_free(&self) -> bool {
        self.sent.lost() == Bytes::ZERO && !self.tlp.is_due() && self.model.is_none() && self.pacer.is_off()
    }

    /// Whether nothing is out and nothing that was out has left a trace; asked of one that [`Recovery::is_free`].
    #[inline]
    pub(crate) fn is_at_peace(&self) -> bool {
        self.sent.is_empty() && self.phase == Phase::Open && self.duplicates == 0
    }

    /// New text leaves while nothing is out, and nothing follows: what [`Recovery::on_sent`] and
    /// [`Recovery::on_data_exhausted`] make of it.
    #[inline]
    pub(crate) fn on_lone_sent(&mut self, now: Instant, range: Range<u64>, path: &Path<'_>) {
        let (len, mss) = (range.end - range.start, u64::from(path.mss.bytes()));
        let window = path.control.window().0;
        let in_flight = u32::try_from(len).unwrap_or(u32::MAX);
        let snapshot = Snapshot { in_flight, ..self.rate.on_sent(now, true) };
        self.sent.push_lone(now, range, snapshot);
        if self.rto_at == Instant::FAR_FUTURE {
            self.rto_at = path.rtt.rto().after(now);
        }
        if !path.sack || self.tlp.in_episode() {
            self.tlp.cancel();
        } else {
            self.tlp.schedule(now, path.rtt, len <= mss, self.rto_at);
        }
        if len + mss > window || (path.control.in_slow_start() && 2 * len > window) {
            self.limited_until = self.sent.nxt();
        }
        if len < window {
            self.rate.on_app_limited(Bytes(len));
        }
    }

    /// When a timer ends or a pace that was waited for; [`Instant::FAR_FUTURE`] if nothing runs.
    #[inline]
    pub(crate) fn next_at(&self) -> Instant {
        let timer = self.rto_at.min(self.reorder_at).min(self.tlp.deadline());
        timer.min(self.pacer.deadline().unwrap_or(Instant::FAR_FUTURE))
    }

    /// Whether an ACK for everything before `ack`, from a peer with SACK that reports nothing, can be taken here.
    #[inline]
    pub(crate) fn is_calm(&self, ack: u64) -> bool {
        ack == self.sent.nxt()
            && self.phase == Phase::Open
            && self.frto == Frto::Off
            && self.duplicates == 0
            && !self.tlp.in_episode()
            && self.model.is_none()
    }

    /// Takes it, if what is out is of one piece.
    #[inline]
    pub(crate) fn on_calm_ack(
        &mut self,
        now: Instant,
        rtt: &mut Rtt,
        control: &mut Control,
    ) -> Option<AckOut> {
        let limited = self.sent.una() < self.limited_until;
        let reorderings = self.rack.reorderings();
        let lone = self.sent.take_lone()?;
        let (len, nxt, took) = (lone.len(), lone.end, now.nanos_since(lone.sent_at));
        self.rack.on_delivered(now, &lone, None, rtt);
        rtt.on_progress();
        rtt.on_sample_nanos(now, took);
        let sample = self.rate.on_lone(now, &lone, rtt.minimum_nanos());
        if !sample.interval.is_zero() {
            self.rate_sample = Some(sample);
        }
        control.on_echo(len, false, nxt, nxt);
        self.sent.take_note();
        control.on_ack(&AckSample {
            now,
            delivered: core::mem::take(&mut self.unrewarded) + len,
            una: nxt,
            nxt,
            rtt: Some(Duration::from_nanos(took)),
            smoothed: Duration::from_nanos(rtt.smoothed_nanos().unwrap_or_default()),
            window_limited: limited,
        });
        (self.rto_at, self.reorder_at) = (Instant::FAR_FUTURE, Instant::FAR_FUTURE);
        self.tlp.cancel();
        Some(AckOut {
            acked: len,
            delivered: len,
            lost: Bytes::ZERO,
            undone: false,
            duplicate: false,
            reordered: self.rack.reorderings() != reorderings,
        })
    }
}

#[cfg(test)]
mod tests {
    use core::time::Duration;

    use firelane_units::{Bytes, Instant, Mss};
    use proptest::prelude::*;

    use crate::congestion::Algorithm;
    use crate::flight::{AckIn, Flight, FlightConfig, TimerFired};

    const MSS: u64 = 1_000;

    /// What may happen to a flight between two looks at it.
    #[derive(Clone, Debug)]
    enum Step {
        /// So many bytes leave, as far as the window lets them.
        Send(u64),
        /// What is lost, or a probe, leaves again.
        Repair,
        /// So many bytes are acknowledged, and perhaps some behind them selectively.
        Ack { len: u64, sack: Option<(u64, u64)>, congested: bool, echoed: bool },
        /// All that is out is acknowledged.
        AckAll { congested: bool, echoed: bool },
        /// Microseconds pass, and timers fire.
        Wait(u64),
        /// The program has no more.
        Exhausted,
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let rarely = || prop::bool::weighted(0.05);
        let sack = prop::option::weighted(0.3, (0u64..3_000, 1u64..2_000));
        let step = prop_oneof![
            6 => (1u64..4_000).prop_map(Step::Send),
            2 => Just(Step::Repair),
            2 => (0u64..4_000, sack, rarely(), any::<bool>())
                .prop_map(|(len, sack, congested, echoed)| Step::Ack { len, sack, congested, echoed }),
            8 => (rarely(), any::<bool>()).prop_map(|(congested, echoed)| Step::AckAll { congested, echoed }),
            6 => (1u64..30_000).prop_map(Step::Wait),
            1 => (100_000u64..2_000_000).prop_map(Step::Wait),
            3 => Just(Step::Exhausted),
        ];
        prop::collection::vec(step, 1..120)
    }

    /// A flight, and the way that it takes its ACKs.
    struct Side {
        flight: Flight,
        takes_calm: bool,
        calm: usize,
    }

    impl Side {
        fn ack(&mut self, now: Instant, ack: &AckIn<'_>) -> String {
            if self.takes_calm
                && ack.sack.is_empty()
                && !ack.congested
                && let Some(out) = self.flight.on_calm_ack(now, ack.ack)
            {
                self.calm += 1;
                return format!("{out:?}");
            }
            format!("{:?}", self.flight.on_ack(now, ack))
        }

        fn take(&mut self, now: Instant, step: &Step) -> String {
            let flight = &mut self.flight;
            let (una, nxt) = (flight.una(), flight.nxt());
            let stamp = |echoed: bool| echoed.then(|| now - Duration::from_millis(5));
            match *step {
                Step::Send(len) => {
                    flight.wake(now);
                    let len = len.min(flight.budget().0);
                    if len > 0 {
                        flight.on_sent(now, nxt..nxt + len);
                    }
                }
                Step::Repair => {
                    let range = flight.poll_probe(None);
                    if let Some(range) = range.or_else(|| flight.next_retransmit(Bytes(MSS), false)) {
                        flight.on_sent(now, range);
                    }
                }
                Step::Ack { len, sack, congested, echoed } if una < nxt => {
                    let ack = (una + len).min(nxt);
                    let sack: Vec<_> =
                        sack.iter().map(|(from, len)| ack + from..(ack + from + len).min(nxt)).collect();
                    let echoed = stamp(echoed);
                    let duplicate = len == 0;
                    return self.ack(now, &AckIn { ack, sack: &sack, echoed, duplicate, congested });
                }
                Step::AckAll { congested, echoed } if una < nxt => {
                    let echoed = stamp(echoed);
                    return self
                        .ack(now, &AckIn { ack: nxt, sack: &[], echoed, duplicate: false, congested });
                }
                Step::Wait(_) => while flight.on_timer(now) != TimerFired::Nothing {},
                Step::Exhausted => flight.on_data_exhausted(),
                Step::Ack { .. } | Step::AckAll { .. } => {}
            }
            String::new()
        }
    }

    fn side(algorithm: Algorithm, sack: bool, takes_calm: bool) -> Side {
        let config = FlightConfig { algorithm, ..FlightConfig::default() };
        let mut flight = Flight::new(&config);
        let rtt = Some(Duration::from_millis(3));
        flight.on_established(Instant::from_secs(1), Mss::clamped(MSS as u16), sack, rtt, 0);
        Side { flight, takes_calm, calm: 0 }
    }

    proptest! {
        #[test]
        fn the_long_way_does_the_same(
            algorithm in prop::sample::select(&Algorithm::ALL[..]),
            sack in prop::bool::weighted(0.8),
            steps in steps(),
        ) {
            let mut both = [true, false].map(|takes_calm| side(algorithm, sack, takes_calm));
            let mut now = Instant::from_secs(1);
            for step in &steps {
                if let Step::Wait(micros) = step {
                    now += Duration::from_micros(*micros);
                }
                let [calm, long] = both.each_mut().map(|side| side.take(now, step));
                prop_assert_eq!(calm, long, "{:?}", step);
                let [calm, long] = both.each_ref().map(|side| format!("{:?}", side.flight));
                prop_assert_eq!(calm, long, "{:?}", step);
            }
        }
    }

    #[test]
    fn requests_are_taken_the_short_way() {
        let mut side = side(Algorithm::Cubic, true, true);
        for n in 1..=10u64 {
            let now = Instant::from_secs(1) + Duration::from_millis(n);
            side.take(now, &Step::Send(64));
            side.take(now + Duration::from_micros(50), &Step::AckAll { congested: false, echoed: true });
        }
        assert_eq!(side.calm, 10);
    }
}
