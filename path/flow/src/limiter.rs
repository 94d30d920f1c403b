//! A limit in bits per second, kept by a virtual clock.
//!
//! The clock says until when the bytes that passed have paid for the line. A frame may pass as soon as that
//! moment is reached, and moves it on by the frame's own time. So over any window the bytes passed are the
//! rate times the window, plus at most [`SLACK`] of it and the frame that comes last; there is no bucket that
//! could be full when the first frame comes, and no tick whose edge could be seen. Where a limit above holds frames back it is two
//! frames, or 1 % of 100 ms ([`Limiter::kept`]). Fractions of a nanosecond are carried on, so that no rate drifts.

use core::time::Duration;

use firelane_units::{BitRate, Bytes, Instant};

/// How much unused time is remembered. A lane that wakes up this much late loses nothing; a sender that was
/// silent gains no more than this. Half a millisecond keeps every window of 100 ms within 1 % or two frames.
pub(crate) const SLACK: Duration = Duration::from_micros(500);
/// How much time is made up for if somebody waited for the limit all the while and only the lane was late: a
/// tick of the original. A machine that gives the lane no CPU for longer makes the flow lose the rest.
pub(crate) const LATE_MAX: Duration = Duration::from_millis(10);
/// How long after frames have passed the next ones are gathered by who sleeps, to be released together: at most 10,000 wake-ups per
/// second, whatever the rate and the size of the frames. A frame that takes the line for longer delays nobody. What is not used meanwhile
/// stays within the slack, with two nested limits and a lane that is 100 us late.
pub(crate) const GATHER: Duration = Duration::from_micros(100);
/// An Ethernet frame of the usual size.
const FRAME: u64 = 1514;
/// One per cent of a window of 100 ms.
const EXACT: Duration = Duration::from_millis(1);
/// How much of the line one frame may take at most, if it can be cut.
const PIECE: Duration = Duration::from_micros(400);

/// Numerator of a byte's time: `bytes * BYTE_NANOS / rate` are nanoseconds.
const BYTE_NANOS: u64 = 8_000_000_000;
/// More than any frame, and small enough that its time fits 64 bits.
const CHARGE_MAX: u64 = 1 << 30;

/// One direction's limit.
#[derive(Clone, Debug)]
pub struct Limiter {
    rate: BitRate,
    /// Until when the line is paid for.
    paid_until: Instant,
    /// The fraction of a nanosecond beyond `paid_until`, in units of 1 / rate.
    rest: u64,
    /// When something passed last.
    passed: Instant,
    /// Somebody waits for the limit.
    waiting: Option<Waiting>,
}

/// Who waited for a limit may make up for the lane's lateness, in the turn that ends the waiting.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    /// When the waiting could have ended.
    since: Instant,
    /// The turn in which it ended.
    turn: Option<Instant>,
    /// He was only told to come again, so nobody knows whether he will.
    is_told: bool,
}

impl Waiting {
    /// Whether unused time counts at `now`.
    fn counts(&self, now: Instant) -> bool {
        let is_forgotten = self.is_told && now > self.since + LATE_MAX;
        self.turn.is_none_or(|turn| turn == now) && !is_forgotten
    }
}

impl Limiter {
    /// A limit that begins at `now`. Rate zero lets nothing pass.
    pub fn new(rate: BitRate, now: Instant) -> Self {
        Self { rate, paid_until: now, rest: 0, passed: now, waiting: None }
    }

    /// The limit.
    pub const fn rate(&self) -> BitRate {
        self.rate
    }

    /// Whether nothing ever passes.
    #[inline]
    pub const fn is_closed(&self) -> bool {
        self.rate.bps() == 0
    }

    /// Whether a frame may pass.
    #[inline]
    pub fn is_ready(&self, now: Instant) -> bool {
        self.paid_until <= now && !self.is_closed()
    }

    /// From when on a frame may pass.
    pub const fn ready_at(&self) -> Instant {
        if self.is_closed() { Instant::FAR_FUTURE } else { self.paid_until }
    }

    /// When it is worth waking up for frames that wait: when the first can pass, but not so soon after others that it would have to be
    /// done again and again.
    pub fn wake_at(&self) -> Instant {
        if self.is_closed() { Instant::FAR_FUTURE } else { self.paid_until.max(self.passed + GATHER) }
    }

    /// Somebody is told to wait until the limit is ready. If the lane then comes late, the time counts as used.
    pub fn note_waiting(&mut self) {
        self.waiting = Some(Waiting { since: self.paid_until, turn: None, is_told: false });
    }

    /// The same of one who may be gone by then: if nobody comes, the time has not counted after all.
    pub fn note_told(&mut self) {
        if self.waiting.is_none_or(|waiting| waiting.is_told || waiting.turn.is_some()) {
            self.waiting = Some(Waiting { since: self.paid_until, turn: None, is_told: true });
        }
    }

    /// Those who were told to come have been asked: if none of them has made use of it, none of them had waited.
    pub fn forget_told(&mut self, now: Instant) {
        self.waiting = self.waiting.filter(|it| !it.is_told || it.turn.is_some() || it.since > now);
    }

    /// Nobody waits in a queue. What was made up for this turn is there for whoever else was told to come.
    pub fn forget_waiting(&mut self) {
        self.waiting = self.waiting.filter(|waiting| waiting.is_told || waiting.turn.is_some());
    }

    /// From when on unused time counts at `now`.
    fn counts_from(&self, now: Instant) -> Instant {
        let usual = now - SLACK;
        match self.waiting {
            Some(waiting) if waiting.counts(now) => waiting.since.max(now - LATE_MAX).min(usual),
            _ => usual,
        }
    }

    /// Charges bytes that pass at `now`.
    #[inline]
    pub fn charge(&mut self, now: Instant, bytes: Bytes) {
        if self.is_closed() {
            return;
        }
        let earliest = self.counts_from(now);
        if let Some(waiting) = &mut self.waiting {
            waiting.turn.get_or_insert(now);
        }
        self.forget_before(earliest);
        self.pay(now, bytes);
    }

    /// The same of one who has waited for another limit above this one: he has not left this one unused, so more of it is kept for him
    /// ([`kept`](Self::kept)).
    pub(crate) fn charge_from_above(&mut self, now: Instant, bytes: Bytes) {
        if self.is_closed() {
            return;
        }
        self.forget_before(self.counts_from(now).min(now - self.rate.time_for(self.kept())));
        self.pay(now, bytes);
    }

    /// What is kept for who waits elsewhere: with the frame that comes last it is two frames, or 1 % of 100 ms if that is more.
    pub(crate) fn kept(&self) -> Bytes {
        Bytes(self.rate.bytes_in(EXACT).0.saturating_sub(FRAME).max(FRAME))
    }

    fn pay(&mut self, now: Instant, bytes: Bytes) {
        self.passed = now;
        let time = bytes.0.min(CHARGE_MAX) * BYTE_NANOS + self.rest;
        self.paid_until += Duration::from_nanos(time / self.rate.bps());
        self.rest = time % self.rate.bps();
    }

    /// What was unused before `earliest` is lost.
    pub(crate) fn forget_before(&mut self, earliest: Instant) {
        if self.paid_until < earliest {
            self.paid_until = earliest;
            self.rest = 0;
        }
    }

    /// Charges bytes that pass at `now` and forgives what is still owed from before; unused time counts from `earliest` on.
    pub(crate) fn charge_anew(&mut self, now: Instant, earliest: Instant, bytes: Bytes) {
        if self.is_closed() {
            return;
        }
        self.forget_before(earliest);
        if self.paid_until > now {
            self.paid_until = now;
            self.rest = 0;
        }
        self.pay(now, bytes);
    }

    /// Changes the rate. What was sent beyond `now` stays owed, as bytes: a slow limit's long debt does not
    /// outlive it.
    pub fn set_rate(&mut self, now: Instant, rate: BitRate) {
        if rate == self.rate {
            return;
        }
        let owed = self.paid_until.saturating_since(now).as_nanos() * u128::from(self.rate.bps());
        let nanos = owed.checked_div(u128::from(rate.bps())).unwrap_or(0);
        let debt = u64::try_from(nanos).map_or(Duration::MAX, Duration::from_nanos);
        *self = Self { rate, paid_until: now + debt, rest: 0, passed: self.passed, waiting: None };
    }

    /// How many bytes a sender may build into frames now: what is unused, and one piece. Zero if none.
    pub fn allowance(&self, now: Instant) -> Bytes {
        if self.is_ready(now) { self.rate.bytes_in(self.unused(now) + PIECE) } else { Bytes::ZERO }
    }

    /// The same where others wait who want as much: what is unused.
    pub(crate) fn share(&self, now: Instant) -> Bytes {
        self.rate.bytes_in(self.unused(now))
    }

    fn unused(&self, now: Instant) -> Duration {
        now.saturating_since(self.paid_until.max(self.counts_from(now)))
    }

    /// Bytes that each of those who wait may send per round: as many Ethernet frames as a piece has room for, up to four, so that flows of
    /// small frames are served in chains, and large frames take few rounds. At a slow limit it is one: whoever asks before he sends
    /// cannot have more ready without waiting longer.
    pub(crate) fn quantum(&self) -> Bytes {
        Bytes(self.piece().0.clamp(FRAME, 4 * FRAME))
    }

    /// The most bytes that one frame should take, if it can be cut.
    pub fn piece(&self) -> Bytes {
        self.rate.bytes_in(PIECE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MTU_FRAME: u64 = 1514;

    /// Sends frames of these sizes as early as the limiter allows, waking up `lateness` nanoseconds late in turn.
    fn saturate(rate: BitRate, sizes: &[u64], lateness: &[u64], until: Instant) -> Vec<(Instant, u64)> {
        let mut limiter = Limiter::new(rate, Instant::ZERO);
        let (mut now, mut passed) = (Instant::ZERO, vec![]);
        for n in 0.. {
            if !limiter.is_ready(now) {
                now = limiter.wake_at() + Duration::from_nanos(lateness[n % lateness.len()]);
            }
            if now > until {
                break;
            }
            let bytes = sizes[n % sizes.len()];
            limiter.charge(now, Bytes(bytes));
            passed.push((now, bytes));
        }
        passed
    }

    fn within(passed: &[(Instant, u64)], from: Instant, window: Duration) -> u64 {
        passed.iter().filter(|(at, _)| *at >= from && *at < from + window).map(|(_, b)| b).sum()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]

        /// Issue 6: 1 % or two frames over any 100 ms above 10 Mb/s, with a lane that is up to 250 us late.
        #[test]
        fn every_window_is_exact(
            mbps in 10u64..400,
            sizes in prop::collection::vec(60u64..=MTU_FRAME, 1..20),
            lateness in prop::collection::vec(0u64..250_000, 1..20),
            starts in prop::collection::vec(0u64..900, 8),
        ) {
            let (rate, window) = (BitRate::from_mbps(mbps), Duration::from_millis(100));
            let passed = saturate(rate, &sizes, &lateness, Instant::from_secs(1));
            let wanted = rate.bytes_in(window).0;
            let allowed = (wanted / 100).max(2 * MTU_FRAME);
            // The first window begins with the first frame: there is no burst in the first second.
            for start in starts.into_iter().chain([0]) {
                let bytes = within(&passed, Instant::from_millis(start), window);
                prop_assert!(bytes.abs_diff(wanted) <= allowed, "{bytes} for {wanted} at {start} ms");
            }
        }

        /// A lane that is late by up to ten milliseconds makes up for it while frames wait, and by no more.
        #[test]
        fn who_waits_loses_nothing_to_a_late_lane(
            mbps in 1u64..1000,
            lateness in prop::collection::vec(0u64..9_800_000, 1..20),
        ) {
            let rate = BitRate::from_mbps(mbps);
            let mut limiter = Limiter::new(rate, Instant::ZERO);
            let mut passed = 0;
            for late in lateness.iter().cycle() {
                limiter.note_waiting();
                let now = limiter.wake_at() + Duration::from_nanos(*late);
                if now > Instant::from_secs(1) {
                    break;
                }
                while limiter.is_ready(now) {
                    limiter.charge(now, Bytes(MTU_FRAME));
                    passed += MTU_FRAME;
                }
                let due = rate.bytes_in(now.saturating_since(Instant::ZERO)).0;
                // `due` leaves out a byte that has begun, and the last frame may have been ready just now.
                let most = due + 1 + MTU_FRAME;
                prop_assert!(passed <= most && passed + 2 * MTU_FRAME > due, "{passed} of {due}");
            }
        }

        /// However senders behave, no window gets more than its share.
        #[test]
        fn random_arrivals_never_exceed_the_limit(
            kbps in 1u64..100_000,
            arrivals in prop::collection::vec((0u64..3_000_000, 60u64..9018), 1..300),
        ) {
            let rate = BitRate::from_bps(kbps * 1000);
            let mut limiter = Limiter::new(rate, Instant::ZERO);
            let (mut now, mut passed) = (Instant::ZERO, vec![]);
            for (pause, bytes) in arrivals {
                now += Duration::from_nanos(pause);
                if limiter.is_ready(now) {
                    limiter.charge(now, Bytes(bytes));
                    passed.push((now, bytes));
                }
            }
            for (i, &(from, _)) in passed.iter().enumerate() {
                let mut sum = 0;
                for &(to, bytes) in &passed[i..] {
                    // What came before the last frame is within the limit; the last one may go beyond it.
                    let window = to.saturating_since(from) + SLACK;
                    prop_assert!(sum <= rate.bytes_in(window).0 + 1, "{sum} B in {window:?}");
                    sum += bytes;
                }
            }
        }

        /// A million frames at an awkward rate end when arithmetic says, to the nanosecond.
        #[test]
        fn nothing_drifts(bps in 1_000_003u64..40_000_000_000, bytes in 60u64..2000) {
            let rate = BitRate::from_bps(bps);
            let mut limiter = Limiter::new(rate, Instant::ZERO);
            let frames = 10_000;
            for _ in 0..frames {
                limiter.charge(limiter.ready_at(), Bytes(bytes));
            }
            let exact = u128::from(bytes * frames) * 8_000_000_000 / u128::from(bps);
            prop_assert_eq!(u128::from(limiter.ready_at().nanos()), exact);
        }

        #[test]
        fn a_new_rate_keeps_the_debt_in_bytes(old in 1u64..1 << 40, new in 1u64..1 << 40, bytes in 1u64..65_536) {
            let mut limiter = Limiter::new(BitRate::from_bps(old), Instant::from_secs(1));
            limiter.charge(Instant::from_secs(1), Bytes(bytes));
            limiter.set_rate(Instant::from_secs(1), BitRate::from_bps(new));
            let wait = limiter.ready_at().saturating_since(Instant::from_secs(1)).as_nanos();
            let exact = u128::from(bytes) * 8_000_000_000 / u128::from(new);
            // Half a nanosecond of the old rate, seen through the new one.
            prop_assert!(wait.abs_diff(exact) <= 1 + u128::from(old.div_ceil(new)), "{wait} for {exact}");
        }
    }

    #[test]
    fn one_bit_per_second_passes_one_frame_and_then_waits_for_hours() {
        let mut limiter = Limiter::new(BitRate::from_bps(1), Instant::ZERO);
        assert!(limiter.is_ready(Instant::ZERO));
        limiter.charge(Instant::ZERO, Bytes(MTU_FRAME));
        assert_eq!(limiter.ready_at(), Instant::from_secs(8 * MTU_FRAME));
        limiter.set_rate(Instant::ZERO, BitRate::from_mbps(1000));
        assert_eq!(limiter.ready_at(), Instant::from_nanos(8 * MTU_FRAME));
    }

    #[test]
    fn only_frames_shorter_than_a_gathering_wait_for_others() {
        let now = Instant::from_secs(1);
        let mut limiter = Limiter::new(BitRate::from_mbps(100), now);
        limiter.charge(now, Bytes(MTU_FRAME));
        assert_eq!(limiter.wake_at(), limiter.ready_at());
        let later = limiter.ready_at();
        limiter.charge(later, Bytes(64));
        assert!(limiter.ready_at() < later + GATHER);
        assert_eq!(limiter.wake_at(), later + GATHER);
    }

    #[test]
    fn rate_zero_passes_nothing_and_can_be_lifted() {
        let mut limiter = Limiter::new(BitRate::ZERO, Instant::ZERO);
        assert!(!limiter.is_ready(Instant::FAR_FUTURE));
        assert_eq!(
            (limiter.ready_at(), limiter.allowance(Instant::ZERO)),
            (Instant::FAR_FUTURE, Bytes::ZERO)
        );
        limiter.set_rate(Instant::from_secs(5), BitRate::from_mbps(1));
        assert!(limiter.is_ready(Instant::from_secs(5)));
    }

    #[test]
    fn waiting_that_has_ended_earns_nothing_later() {
        let mut limiter = Limiter::new(BitRate::from_mbps(80), Instant::ZERO);
        limiter.charge(Instant::ZERO, Bytes(1_000));
        limiter.note_waiting();
        let late = Instant::from_millis(5);
        limiter.charge(late, Bytes(1_000));
        assert!(limiter.ready_at() < late - SLACK, "the rest of the lateness may be used in the same turn");
        let later = Instant::from_secs(1);
        limiter.charge(later, Bytes(5_000));
        assert_eq!(limiter.ready_at(), later, "and not in another");
    }

    #[test]
    fn who_was_told_to_come_again_makes_up_for_a_late_lane_if_he_comes() {
        let told = || {
            let mut limiter = Limiter::new(BitRate::from_mbps(80), Instant::ZERO);
            limiter.charge(Instant::ZERO, Bytes(1_000));
            limiter.note_told();
            limiter
        };
        // 80 Mb/s are 10 bytes per microsecond: 4.9 ms unused, and 400 us of a piece.
        assert_eq!(told().allowance(Instant::from_millis(5)), Bytes(53_000));
        assert_eq!(told().allowance(Instant::from_millis(20)), Bytes(9_000), "he did not come");
        // Who came and had nothing to send had not waited; who is told so again, does.
        let mut limiter = told();
        limiter.forget_told(Instant::from_millis(5));
        assert_eq!(limiter.allowance(Instant::from_millis(6)), Bytes(9_000));
        let mut limiter = told();
        limiter.forget_told(Instant::ZERO);
        assert_eq!(limiter.allowance(Instant::from_millis(5)), Bytes(53_000));
        // Who waits in a queue is there.
        let mut limiter = told();
        limiter.note_waiting();
        limiter.note_told();
        assert_eq!(limiter.allowance(Instant::from_millis(20)), Bytes(104_000));
    }

    #[test]
    fn silence_earns_no_more_than_the_slack() {
        let mut limiter = Limiter::new(BitRate::from_mbps(80), Instant::ZERO);
        let now = Instant::from_secs(10);
        // 80 Mb/s are 10 bytes per microsecond: 500 us of slack and 400 us of a piece.
        assert_eq!(limiter.allowance(now), Bytes(9_000));
        limiter.charge(now, Bytes(5_000));
        assert_eq!(limiter.ready_at(), now);
    }
}
