//! RFC 9438: CUBIC.
//!
//! After a loss the window follows a cubic function of time that is flat around the window of the last loss.
//! Owns that window and the curve of the present epoch. All sums are in bytes; only the curve itself is
//! computed in floating point, with basic operations that give the same bits everywhere.

use core::time::Duration;

use firelane_units::{Bytes, Instant};

use super::{AckSample, HyStart, Pace, Window};

/// C in segments per second cubed (RFC 9438 §4.6).
const C: f64 = 0.4;
/// beta_cubic = 0.7 as a fraction.
const BETA: (u64, u64) = (7, 10);
/// What a congestion mark leaves with RFC 8511 §3.
const BETA_ECN: (u64, u64) = (85, 100);
/// alpha_cubic = 3 (1 - beta) / (1 + beta) = 9/17 (RFC 9438 §4.3).
const ALPHA: (u64, u64) = (9, 17);

/// The control of RFC 9438.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Cubic {
    pub(super) window: Window,
    /// The window at the last loss, lowered by fast convergence; zero before it.
    max: u32,
    /// The window at the last loss as it was.
    prior: u32,
    stage: Stage,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    SlowStart(HyStart),
    /// Congestion avoidance begins with the next ACK.
    Turning,
    Avoidance(Epoch),
}

/// One stretch of congestion avoidance.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Epoch {
    started: Instant,
    /// The window as this epoch left it.
    window: u32,
    /// The plateau of the curve (W_max of this epoch) in bytes.
    plateau: u32,
    /// Microseconds from the start to the plateau (K).
    to_plateau: u32,
    /// What Reno would have (W_est) in bytes.
    reno: u32,
    /// Fractions of a byte that are owed to the window and to `reno`.
    credit: u32,
    reno_credit: u64,
}

impl Cubic {
    /// Begins in slow start.
    pub fn new(window: Window) -> Self {
        Self { window, max: 0, prior: 0, stage: Stage::SlowStart(HyStart::new()) }
    }

    pub(super) fn on_ack(&mut self, ack: &AckSample) {
        let mut delivered = ack.delivered.0;
        if let Stage::SlowStart(hystart) = &mut self.stage {
            let pace = hystart.on_ack(ack);
            if !ack.window_limited && pace != Pace::Leave {
                return;
            }
            match pace {
                Pace::Grow(divisor) => delivered = self.window.slow_start(delivered, divisor),
                Pace::Leave => self.window.set_threshold(self.window.bytes().into()),
            }
            if self.window.in_slow_start() {
                return;
            }
            self.stage = Stage::Turning;
        }
        if ack.window_limited && delivered > 0 {
            self.avoid(ack, delivered);
        }
    }

    /// Congestion avoidance (RFC 9438 §4.2 to §4.5).
    fn avoid(&mut self, ack: &AckSample, delivered: u64) {
        let (window, mss) = (self.window.bytes(), self.window.mss());
        let mut epoch = match self.stage {
            // A window that somebody else moved (recovery, a restart) begins an epoch of its own.
            Stage::Avoidance(epoch) if epoch.window == window => epoch,
            _ => Epoch::start(ack.now, window, self.max, mss),
        };
        epoch.count_reno(delivered, window, mss, self.prior);
        let elapsed = ack.now.saturating_since(epoch.started);
        let grown = if epoch.curve(elapsed, mss) < epoch.reno {
            // §4.3: where Reno would be faster, be Reno.
            window.max(epoch.reno)
        } else {
            let target = epoch.curve(elapsed + ack.smoothed, mss);
            let target = target.clamp(window, window + window / 2);
            epoch.approach(target, delivered, window)
        };
        self.window.set(grown.into());
        epoch.window = self.window.bytes();
        self.stage = Stage::Avoidance(epoch);
    }

    /// RFC 9438 §4.6 and §4.7.
    ///
    /// We differ: the window is reduced from itself, not from what was outstanding. §4.6 allows it to those
    /// that do not grow the window while the program limits.
    pub(super) fn on_loss(&mut self, _outstanding: Bytes) {
        self.reduce(BETA);
    }

    /// RFC 8511: a mark comes earlier than a loss would, so more stays.
    pub(super) fn on_mark(&mut self) {
        self.reduce(BETA_ECN);
    }

    fn reduce(&mut self, beta: (u64, u64)) {
        let window = self.window.bytes();
        let lowered = u64::from(window) * (beta.1 + beta.0) / (2 * beta.1);
        // Fast convergence: a window that did not reach the last one leaves room for others.
        self.max = if window < self.max { lowered as u32 } else { window };
        self.prior = window;
        self.window.set_threshold(u64::from(window) * beta.0 / beta.1);
        self.stage = Stage::Turning;
    }

    /// RFC 9438 §4.8: the stretch after a time-out begins at its plateau, wherever slow start ends; what was before says
    /// nothing any more.
    pub(super) fn on_slow_start(&mut self) {
        self.max = 0;
        self.stage = Stage::SlowStart(HyStart::off());
    }

    /// Time in which nothing was sent is no time of the epoch (RFC 9438 §5.8).
    pub(super) fn on_idle(&mut self, idle: Duration) {
        if let Stage::Avoidance(epoch) = &mut self.stage {
            epoch.started += idle;
        }
        if self.window.in_slow_start() && !matches!(self.stage, Stage::SlowStart(_)) {
            self.stage = Stage::SlowStart(HyStart::off());
        }
    }
}

impl Epoch {
    fn start(now: Instant, window: u32, max: u32, mss: u32) -> Self {
        // Without a loss, or above its window, the curve begins at its plateau (§4.10).
        let plateau = max.max(window);
        let segments = f64::from(plateau - window) / f64::from(mss);
        let seconds = cube_root(segments / C);
        let to_plateau = (seconds * 1e6).round() as u32;
        Self { started: now, window, plateau, to_plateau, reno: window, credit: 0, reno_credit: 0 }
    }

    /// W_cubic at `elapsed` since the start, in bytes.
    fn curve(&self, elapsed: Duration, mss: u32) -> u32 {
        let offset = elapsed.as_secs_f64() - f64::from(self.to_plateau) / 1e6;
        let bytes = C * offset * offset * offset * f64::from(mss) + f64::from(self.plateau);
        // The conversion saturates at both ends.
        bytes as u32
    }

    /// W_est grows by alpha segments per window until it reaches the window of the loss, then by one (§4.3).
    fn count_reno(&mut self, delivered: u64, window: u32, mss: u32, prior: u32) {
        let weight = if self.reno >= prior { ALPHA.1 } else { ALPHA.0 };
        let delivered = delivered.min(u64::from(u32::MAX));
        let credit = self.reno_credit + delivered * u64::from(mss) * weight;
        let whole = ALPHA.1 * u64::from(window);
        self.reno_credit = credit % whole;
        let reno = u64::from(self.reno) + credit / whole;
        self.reno = u32::try_from(reno).unwrap_or(u32::MAX);
    }

    /// The window grows by (target - window) / window per byte that arrived (§4.4 and §4.5).
    fn approach(&mut self, target: u32, delivered: u64, window: u32) -> u32 {
        let delivered = delivered.min(u64::from(window));
        let credit = u64::from(self.credit) + u64::from(target - window) * delivered;
        self.credit = (credit % u64::from(window)) as u32;
        window + (credit / u64::from(window)) as u32
    }
}

/// Newton's method from above: basic operations only, so that every platform gives the same bits.
fn cube_root(of: f64) -> f64 {
    if of <= 0.0 {
        return 0.0;
    }
    let mut root = of.max(1.0);
    // Each step removes a third of the error at least; 128 steps suffice for any window.
    for _ in 0..128 {
        let next = (2.0 * root + of / (root * root)) / 3.0;
        if next >= root {
            break;
        }
        root = next;
    }
    root
}

#[cfg(test)]
mod tests {
    use super::*;
    use firelane_units::Mss;
    use proptest::prelude::*;

    const MSS: u32 = 1_000;

    fn control(window: u64) -> Cubic {
        let mut control = Cubic::new(Window::initial(Mss::clamped(MSS as u16), 10));
        control.window.set(window);
        control
    }

    fn ack(now: Instant, delivered: u64, rtt: Duration) -> AckSample {
        AckSample {
            now,
            delivered: Bytes(delivered),
            una: 0,
            nxt: 0,
            rtt: None,
            smoothed: rtt,
            window_limited: true,
        }
    }

    /// Runs congestion avoidance for `rounds` round trips, one ACK per segment, after a loss at `window`
    /// bytes; gives the window in segments after each round.
    fn rounds(window: u64, rtt: Duration, rounds: u32) -> Vec<u64> {
        let mut cubic = control(window);
        cubic.on_loss(Bytes(window));
        cubic.window.set_to_threshold();
        let mut now = Instant::from_secs(100);
        let mut seen = Vec::new();
        for _ in 0..rounds {
            let acks = cubic.window.bytes() / MSS;
            for _ in 0..acks {
                now += rtt / acks;
                cubic.on_ack(&ack(now, MSS.into(), rtt));
            }
            seen.push(u64::from(cubic.window.bytes() / MSS));
        }
        seen
    }

    #[test]
    fn a_loss_leaves_seven_tenths() {
        let mut cubic = control(100_000);
        cubic.on_loss(Bytes(100_000));
        cubic.window.set_to_threshold();
        assert_eq!(cubic.window.bytes(), 70_000);
        assert_eq!(cubic.max, 100_000);
        cubic.on_loss(Bytes(70_000));
        // Fast convergence: 70 (1 + 0.7) / 2.
        assert_eq!(cubic.max, 59_500);
    }

    #[test]
    fn the_plateau_is_reached_after_k() {
        // K = cbrt(1000 * 0.3 / 0.4) = 9.086 s, RFC 9438 §4.2.
        let epoch = Epoch::start(Instant::ZERO, 700_000, 1_000_000, MSS);
        assert_eq!(epoch.to_plateau, 9_085_603);
        assert_eq!(epoch.curve(Duration::from_micros(epoch.to_plateau.into()), MSS), 1_000_000);
        assert!(epoch.curve(Duration::ZERO, MSS).abs_diff(700_000) <= 1);
        // One second beyond it, C segments more; ten seconds beyond, 1000 C.
        let beyond = |secs: u64| epoch.curve(Duration::from_micros(9_085_603 + secs * 1_000_000), MSS);
        assert!(beyond(1).abs_diff(1_000_400) <= 1);
        assert!(beyond(10).abs_diff(1_400_000) <= 1);
    }

    #[test]
    fn concave_then_convex() {
        // 1000 segments, 100 ms: K is 91 rounds. Growth per round falls until there and rises after.
        let seen = rounds(1_000_000, Duration::from_millis(100), 180);
        assert!(seen[88].abs_diff(1_000) <= 5, "plateau: {}", seen[88]);
        let growth = |from: usize| seen[from + 10] - seen[from];
        assert!(growth(0) > growth(40) && growth(40) > growth(75), "concave");
        assert!(growth(165) > growth(130) && growth(130) > growth(100), "convex");
    }

    #[test]
    fn as_fast_as_reno_where_reno_is_fast() {
        // Small window, short round trip: Reno would regain 30 % of 20 segments at 9/17 segment a round.
        let seen = rounds(20_000, Duration::from_millis(10), 12);
        assert!(seen[11] >= 19, "W_est leads: {seen:?}");
    }

    #[test]
    fn slow_start_ends_at_the_threshold_and_the_rest_of_the_ack_counts() {
        let mut cubic = control(10_000);
        cubic.on_loss(Bytes(40_000));
        cubic.window.set_threshold(12_000);
        cubic.on_slow_start();
        cubic.window.set(1_000);
        let now = Instant::from_secs(9);
        for n in 1..=11 {
            assert!(matches!(cubic.stage, Stage::SlowStart(_)), "ack {n}");
            cubic.on_ack(&ack(now, 1_000, Duration::from_millis(10)));
        }
        assert_eq!(cubic.window.bytes(), 12_000);
        assert!(!matches!(cubic.stage, Stage::SlowStart(_)));
    }

    /// RFC 9438 §4.8: K is zero and W_max is the window with which congestion avoidance begins.
    #[test]
    fn after_a_time_out_the_curve_begins_at_its_plateau() {
        let mut cubic = control(100_000);
        cubic.on_loss(Bytes(100_000));
        cubic.on_slow_start();
        cubic.window.set(1_000);
        let (mut now, rtt) = (Instant::from_secs(9), Duration::from_millis(10));
        while cubic.window.bytes() < 70_000 {
            now += rtt;
            cubic.on_ack(&ack(now, 8_000, rtt));
        }
        now += rtt;
        cubic.on_ack(&ack(now, 1_000, rtt));
        let Stage::Avoidance(epoch) = cubic.stage else { panic!("{:?}", cubic.stage) };
        assert_eq!((epoch.to_plateau, epoch.plateau), (0, 70_000));
    }

    #[test]
    fn idle_time_is_no_time() {
        let rtt = Duration::from_millis(100);
        let mut busy = control(100_000);
        busy.on_loss(Bytes(100_000));
        busy.window.set_to_threshold();
        busy.on_ack(&ack(Instant::from_secs(1), 1_000, rtt));
        let mut paused = busy;
        busy.on_ack(&ack(Instant::from_secs(2), 1_000, rtt));
        paused.on_idle(Duration::from_secs(600));
        paused.on_ack(&ack(Instant::from_secs(602), 1_000, rtt));
        assert_eq!(paused.window, busy.window);
    }

    proptest! {
        #[test]
        fn the_root_is_a_root(of in 0.0f64..1e7) {
            let root = cube_root(of);
            prop_assert!((root * root * root - of).abs() <= of * 1e-9 + 1e-12, "{} of {}", root, of);
        }

        #[test]
        fn growth_is_monotone_and_at_most_half_a_window_per_round(
            window in 10_000u64..10_000_000, millis in 1u64..400, count in 1u32..60,
        ) {
            let seen = rounds(window.min(400_000), Duration::from_millis(millis), count);
            let mut last = window.min(400_000) * 7 / 10 / u64::from(MSS);
            for now in seen {
                prop_assert!(now >= last);
                prop_assert!(now <= last * 5 / 3 + 2, "{} after {}", now, last);
                last = now;
            }
        }
    }
}
