//! RFC 8985 §6: RACK, loss detection by time.
//!
//! A range is lost when something sent after it has arrived and a reordering window has passed since. Owns
//! the most recently sent range that arrived, and the reordering window with its adaptation to duplicates.
//! Called by `recovery`: [`Rack::on_delivered`] for each piece that an ACK delivers, [`Rack::on_dsack`], then
//! [`Rack::detect`] over the ranges.

use core::time::Duration;

use firelane_units::{Bytes, Instant, Mss};

use crate::isn::TimestampClock;
use crate::rtt::Rtt;
use crate::sent::{Judgement, SentRange, SentRanges};

/// How many later segments arrive before the first is held lost without waiting (RFC 5681 §3.2).
pub const DUP_THRESHOLD: u32 = 3;

/// In how many recoveries without duplicates the widened window falls back (RFC 8985 §6.2 step 4).
const WINDOW_PERSISTS: u8 = 16;

/// Where in [`RackRest`] the window stands, and the widest that has room there; the smoothed round trip is seldom as long.
const REST_SHIFT: u32 = 5;
const REST_QUARTERS_MAX: u8 = u8::MAX >> REST_SHIFT;

const _: () = assert!(WINDOW_PERSISTS >> REST_SHIFT == 0);

/// The detector of one connection.
#[derive(Clone, Copy, Debug)]
pub struct Rack {
    /// When the newest range that arrived was sent, and where it ends.
    sent_at: Instant,
    end: u64,
    /// The round trip that it took.
    rtt: Duration,
    /// The highest cursor that arrived.
    forward: u64,
    /// The peer has been seen to receive out of order.
    reordering_seen: bool,
    /// How often, modulo its width.
    reorderings: u8,
    /// The reordering window in quarters of the least round trip.
    window_quarters: u8,
    window_persists: u8,
    /// The end of the round in which a duplicate was last counted.
    duplicate_round: Option<u64>,
}

/// What the path has taught, which outlasts a silence (RFC 8985 §6.2), in a byte, for there are many silent connections: the
/// reordering window in quarters of the least round trip, zero if nothing was ever seen to be reordered, and below that for how
/// many recoveries it stays so wide.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct RackRest(u8);

/// What a look at the ranges found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Detection {
    /// Bytes newly marked lost.
    pub lost: u64,
    /// When to look again, if some ranges are only suspects yet.
    pub again_at: Option<Instant>,
}

impl Rack {
    /// Nothing has arrived; cursors begin at `una`.
    pub fn new(una: u64) -> Self {
        Self {
            sent_at: Instant::ZERO,
            end: una,
            rtt: Duration::ZERO,
            forward: una,
            reordering_seen: false,
            reorderings: 0,
            window_quarters: 1,
            window_persists: 0,
            duplicate_round: None,
        }
    }

    /// What a flight remembers while nothing is out.
    pub(crate) fn rest(&self) -> RackRest {
        let quarters = if self.reordering_seen { self.window_quarters.min(REST_QUARTERS_MAX) } else { 0 };
        RackRest(quarters << REST_SHIFT | self.window_persists)
    }

    /// The detector goes on with what it knew.
    pub(crate) fn wake_from(&mut self, rest: RackRest) {
        let quarters = rest.0 >> REST_SHIFT;
        (self.reordering_seen, self.window_quarters) = (quarters > 0, quarters.max(1));
        self.window_persists = rest.0 & ((1 << REST_SHIFT) - 1);
    }

    /// A count that changes when the peer is seen to receive out of order.
    pub fn reorderings(&self) -> u8 {
        self.reorderings
    }

    /// A piece arrived (RFC 8985 §6.2 steps 1 to 3). `echoed` is when the segment left whose timestamp the
    /// ACK carries.
    pub fn on_delivered(&mut self, now: Instant, piece: &SentRange, echoed: Option<Instant>, rtt: &Rtt) {
        if piece.end > self.forward {
            self.forward = piece.end;
        } else if piece.end < self.forward && !piece.is_retransmitted() {
            self.reordering_seen = true;
            self.reorderings = self.reorderings.wrapping_add(1);
        }
        let took = now.saturating_since(piece.sent_at);
        if piece.is_retransmitted() {
            // The ACK may be for an earlier transmission: the timestamp says so, or it came too soon.
            let answers_earlier = echoed.is_some_and(|sent| sent < TimestampClock::tick_start(piece.sent_at));
            if answers_earlier || rtt.minimum().is_some_and(|min| took < min) {
                return;
            }
        }
        self.rtt = took;
        if is_sent_after((piece.sent_at, piece.end), (self.sent_at, self.end)) {
            self.sent_at = piece.sent_at;
            self.end = piece.end;
        }
    }

    /// A duplicate of a retransmission was reported: the window was too small. Counted once per round trip (§6.2
    /// step 4). A range that is sent again before its first copy arrives shows its being late in no other way.
    pub fn on_dsack(&mut self, una: u64, nxt: u64) {
        self.reordering_seen = true;
        if self.duplicate_round.is_some_and(|round| una >= round) {
            self.duplicate_round = None;
        }
        if self.duplicate_round.is_none() {
            self.duplicate_round = Some(nxt);
            self.window_quarters = self.window_quarters.saturating_add(1);
            self.window_persists = WINDOW_PERSISTS;
        }
    }

    /// A recovery ended.
    pub fn on_recovered(&mut self) {
        self.window_persists = self.window_persists.saturating_sub(1);
        if self.window_persists == 0 {
            self.window_quarters = 1;
        }
    }

    /// How long a range may be overtaken before it counts as lost. Zero while nothing was ever reordered and
    /// losses are certain: in recovery, or when [`DUP_THRESHOLD`] segments arrived beyond a hole.
    pub fn reordering_window(&self, recovering: bool, sacked_segments: u32, rtt: &Rtt) -> Duration {
        if !self.reordering_seen && (recovering || sacked_segments >= DUP_THRESHOLD) {
            return Duration::ZERO;
        }
        let least = rtt.minimum().unwrap_or_default();
        let window = least * u32::from(self.window_quarters) / 4;
        window.min(rtt.smoothed().unwrap_or_default())
    }

    /// Marks what is lost (§6.2 step 5).
    pub fn detect(&self, now: Instant, sent: &mut SentRanges, window: Duration) -> Detection {
        let mut again_at: Option<Instant> = None;
        let lost = sent.judge(|range| {
            if !is_sent_after((self.sent_at, self.end), (range.sent_at, range.end)) {
                // First transmissions left in the order of the list, so everything behind is later still.
                return if range.is_retransmitted() { Judgement::Keep } else { Judgement::Stop };
            }
            let lost_at = range.sent_at + self.rtt + window;
            if lost_at <= now {
                return Judgement::Lost;
            }
            again_at = again_at.max(Some(lost_at));
            Judgement::Keep
        });
        Detection { lost: lost.0, again_at }
    }

    /// Marks what a time-out makes lost: the first segment, and whatever left so long ago that it should have
    /// been acknowledged (§6.3).
    pub fn mark_on_timeout(&self, now: Instant, sent: &mut SentRanges, window: Duration, mss: Mss) {
        sent.mark_front_lost(Bytes(mss.bytes().into()));
        let rtt = self.rtt;
        sent.judge(
            |range| {
                if range.sent_at + rtt + window <= now { Judgement::Lost } else { Judgement::Keep }
            },
        );
    }
}

/// RFC 8985's RACK_sent_after: later, or of the same burst and further on.
fn is_sent_after(a: (Instant, u64), b: (Instant, u64)) -> bool {
    a > b
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rate::Snapshot;
    use crate::rtt::RtoLimits;

    const MSS: Mss = Mss::clamped(1000);

    fn at(millis: u64) -> Instant {
        Instant::from_millis(millis)
    }

    fn sent(count: u64) -> SentRanges {
        let mut sent = SentRanges::new(0);
        for n in 0..count {
            sent.on_sent(at(1_000 + n), n * 1_000..(n + 1) * 1_000, Snapshot::default());
        }
        sent
    }

    fn rtt_of(millis: u64) -> Rtt {
        let mut rtt = Rtt::new(RtoLimits::default());
        rtt.on_sample(at(0), Duration::from_millis(millis));
        rtt
    }

    fn sack(rack: &mut Rack, sent: &mut SentRanges, now: Instant, block: core::ops::Range<u64>, rtt: &Rtt) {
        sent.on_sack_block(&block, MSS, |piece| rack.on_delivered(now, piece, None, rtt));
    }

    #[test]
    fn one_later_arrival_makes_a_suspect_and_time_a_loss() {
        let (mut rack, mut sent, rtt) = (Rack::new(0), sent(3), rtt_of(100));
        sack(&mut rack, &mut sent, at(1_101), 1_000..2_000, &rtt);
        let window = rack.reordering_window(false, sent.sacked_segments(), &rtt);
        assert_eq!(window, Duration::from_millis(25));
        let detection = rack.detect(at(1_101), &mut sent, window);
        assert_eq!(detection, Detection { lost: 0, again_at: Some(at(1_125)) });
        let detection = rack.detect(at(1_125), &mut sent, window);
        assert_eq!(detection, Detection { lost: 1_000, again_at: None });
        assert_eq!(sent.first_lost(), Some(0..1_000));
    }

    #[test]
    fn three_later_arrivals_need_no_time() {
        let (mut rack, mut sent, rtt) = (Rack::new(0), sent(5), rtt_of(100));
        sack(&mut rack, &mut sent, at(1_103), 1_000..4_000, &rtt);
        let window = rack.reordering_window(false, sent.sacked_segments(), &rtt);
        assert_eq!(window, Duration::ZERO);
        // The fifth was sent after everything that arrived: no suspicion.
        assert_eq!(rack.detect(at(1_103), &mut sent, window).lost, 1_000);
        assert_eq!(sent.in_flight().0, 1_000);
    }

    #[test]
    fn a_late_original_shows_reordering_and_keeps_the_window_open() {
        let (mut rack, mut sent, rtt) = (Rack::new(0), sent(5), rtt_of(100));
        sack(&mut rack, &mut sent, at(1_101), 3_000..4_000, &rtt);
        sack(&mut rack, &mut sent, at(1_102), 1_000..2_000, &rtt);
        sack(&mut rack, &mut sent, at(1_103), 2_000..3_000, &rtt);
        assert_eq!(rack.reordering_window(true, 3, &rtt), Duration::from_millis(25));
    }

    #[test]
    fn a_lost_retransmission_is_found() {
        let (mut rack, mut sent, rtt) = (Rack::new(0), sent(5), rtt_of(100));
        sack(&mut rack, &mut sent, at(1_103), 1_000..4_000, &rtt);
        rack.detect(at(1_103), &mut sent, Duration::ZERO);
        sent.on_sent(at(1_104), 0..1_000, Snapshot::default());
        sent.on_sent(at(1_105), 5_000..6_000, Snapshot::default());
        sack(&mut rack, &mut sent, at(1_205), 5_000..6_000, &rtt);
        // The retransmission (1104) was overtaken by 5000..6000 (1105); 4000..5000 (1004) too.
        assert_eq!(rack.detect(at(1_205), &mut sent, Duration::ZERO).lost, 2_000);
        assert_eq!(sent.first_lost(), Some(0..1_000));
    }

    #[test]
    fn an_answer_to_the_first_copy_does_not_move_the_clock() {
        let (mut rack, mut sent, rtt) = (Rack::new(0), sent(2), rtt_of(100));
        sent.on_sent(at(1_090), 0..1_000, Snapshot::default());
        let before = (rack.sent_at, rack.end);
        // The ACK comes 5 ms after the second copy left, and its timestamp is the first copy's.
        sent.on_cumulative_ack(1_000, |piece| rack.on_delivered(at(1_095), piece, Some(at(1_000)), &rtt));
        assert_eq!((rack.sent_at, rack.end), before);
    }

    #[test]
    fn duplicates_widen_the_window_once_per_round_and_it_falls_back() {
        let (mut rack, rtt) = (Rack::new(0), rtt_of(100));
        assert_eq!(rack.reordering_window(true, 3, &rtt), Duration::ZERO);
        let quarters = |rack: &Rack| rack.reordering_window(false, 0, &rtt).as_millis() / 25;
        rack.on_dsack(0, 10_000);
        rack.on_dsack(5_000, 12_000);
        assert_eq!(quarters(&rack), 2, "one round, one step");
        rack.on_dsack(10_000, 20_000);
        rack.on_dsack(20_000, 30_000);
        rack.on_dsack(30_000, 40_000);
        assert_eq!(quarters(&rack), 4, "never beyond the smoothed round trip");
        for _ in 0..WINDOW_PERSISTS {
            let rest = rack.rest();
            rack = Rack::new(50_000);
            rack.wake_from(rest);
            assert_eq!(quarters(&rack), 4, "nor forgotten in silence");
            rack.on_recovered();
        }
        assert_eq!(quarters(&rack), 1);
    }
}
