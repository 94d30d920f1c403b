//! The model, fed with rounds of one ACK each. `tests/bbr.rs` shows it on a path.

use super::*;

const MSS: Mss = Mss::clamped(1_000);
const RTT: Duration = Duration::from_millis(100);
/// A megabyte per second: the bandwidth-delay product is 100,000 bytes.
const RATE: u64 = 1_000_000;
const BDP: u64 = 100_000;

/// A model and what it was told.
struct Bench {
    model: Bbr,
    now: Instant,
    window: Bytes,
    delivered: u64,
}

impl Bench {
    fn new() -> Self {
        let (now, window) = (Instant::from_secs(1), Bytes(10_000));
        Self { model: Bbr::new(now, MSS, window, Some(RTT)), now, window, delivered: 0 }
    }

    fn ack(&self, rate: u64, in_flight: u64) -> BbrAck {
        BbrAck {
            now: self.now,
            rate,
            volume: in_flight,
            app_limited: false,
            prior_delivered: self.delivered,
            delivered: self.delivered + in_flight.max(1_000),
            newly_delivered: in_flight.max(1_000),
            tx_in_flight: in_flight,
            lost: 0,
            shows_loss: false,
            rtt: Some(RTT),
            in_flight,
            window_limited: true,
            in_recovery: false,
            sack: true,
        }
    }

    fn tell(&mut self, ack: BbrAck) -> State {
        self.window = self.model.on_ack(&ack, self.window);
        self.delivered = ack.delivered;
        self.model.state()
    }

    /// A round trip passes in which data arrive at `rate`, and `in_flight` are out at its end.
    fn round(&mut self, rate: u64, in_flight: u64) -> State {
        self.now += RTT;
        self.tell(self.ack(rate, in_flight))
    }

    /// In Cruise, with a full pipe behind it.
    fn cruising() -> Self {
        let mut bench = Self::new();
        for _ in 0..4 {
            bench.round(RATE, 2 * BDP);
        }
        bench.round(RATE, BDP / 2);
        assert_eq!(bench.round(RATE, BDP / 2), State::Cruise);
        bench
    }

    /// In Up, whose first segments are answered.
    fn probing() -> Self {
        let mut bench = Self::cruising();
        bench.until(State::Up, |bench| bench.round(RATE, BDP));
        bench.round(RATE * 5 / 4, BDP);
        bench
    }

    /// Goes on until the model is in `state`.
    fn until(&mut self, state: State, mut step: impl FnMut(&mut Self) -> State) {
        let reached = (0..200).any(|_| step(self) == state);
        assert!(reached, "{state:?} is never reached: {:?}", self.model);
    }

    fn lose(&mut self, lost: u64, in_flight: u64) {
        let note = LossNote { len: 1_000, in_flight, lost, app_limited: false };
        self.model.on_lost(self.now, self.delivered, &note, self.window, true);
    }
}

#[test]
fn the_first_rate_is_the_window_per_round_trip() {
    assert_eq!(Bench::new().model.pacing_rate().bps(), 8 * 277_000);
}

/// §5.3.1 and §5.3.2: three rounds without growth, then until the queue is gone.
#[test]
fn startup_drain_cruise() {
    let mut bench = Bench::new();
    for rate in [RATE / 8, RATE / 4, RATE / 2, RATE] {
        assert_eq!(bench.round(rate, 2 * BDP), State::Startup);
    }
    assert_eq!(bench.round(RATE, 2 * BDP), State::Startup);
    assert_eq!(bench.round(RATE, 2 * BDP), State::Startup);
    assert_eq!(bench.round(RATE, 2 * BDP), State::Drain);
    assert_eq!(bench.model.pacing_rate().bps(), RATE * 8 * 50 / 100 * 99 / 100);
    assert_eq!(bench.round(RATE, 2 * BDP), State::Drain);
    // Down has nothing left to do, and gives way at once.
    assert_eq!(bench.round(RATE, BDP), State::Cruise);
    assert_eq!(bench.model.pacing_rate().bps(), RATE * 8 * 99 / 100);
}

/// §5.3.2: a queue that stands although it was drained is somebody else's.
#[test]
fn drain_ends_after_three_rounds() {
    let mut bench = Bench::new();
    bench.until(State::Drain, |bench| bench.round(RATE, 4 * BDP));
    let rounds = (0..9).take_while(|_| bench.round(RATE, 4 * BDP) == State::Drain).count();
    assert_eq!(rounds, 3);
}

/// §5.3.1.3: much is lost in six ACKs of a round of recovery; if it was spurious, Startup goes on (§5.5.11).
#[test]
fn losses_end_startup_and_their_undoing_brings_it_back() {
    let mut bench = Bench::new();
    bench.round(RATE / 4, BDP);
    bench.model.on_recovery(bench.window, false);
    bench.lose(5_000, BDP);
    for _ in 0..6 {
        let mut ack = bench.ack(RATE / 2, BDP);
        (ack.shows_loss, ack.in_recovery, ack.lost, ack.prior_delivered) = (true, true, 5_000, 0);
        assert_eq!(bench.tell(ack), State::Startup);
    }
    bench.now += RTT;
    let mut ack = bench.ack(RATE / 2, 2 * BDP);
    (ack.in_recovery, ack.lost) = (true, 5_000);
    assert_eq!(bench.tell(ack), State::Drain);
    bench.model.on_undo(bench.delivered);
    assert_eq!(bench.model.state(), State::Startup);
    assert_eq!(bench.model.bounds.inflight_long, INFINITE);
}

/// §5.3.3: refill for a round, up until the rate stays, down.
#[test]
fn a_probe_that_finds_more_is_believed() {
    let mut bench = Bench::probing();
    assert_eq!(bench.model.pacing_rate().bps(), gain(gain(RATE * 5 / 4, 125), 99) * 8);
    let rounds = (0..9).take_while(|_| bench.round(RATE * 5 / 4, BDP) == State::Up).count();
    assert_eq!(bench.model.state(), State::Down);
    assert!((1..=4).contains(&rounds), "{rounds}");
    assert_eq!(bench.model.max_rate.get(), RATE * 5 / 4);
}

/// §5.5.10.2: a probe that loses too much sets the bound where the losses began, and the next one only touches it.
#[test]
fn a_probe_that_loses_too_much_sets_the_bound() {
    let mut bench = Bench::probing();
    bench.lose(2_000, 150_000);
    assert_eq!(bench.model.state(), State::Up, "less than two in a hundred");
    bench.lose(5_000, 150_000);
    assert_eq!(bench.model.state(), State::Down);
    assert_eq!(bench.model.bounds.inflight_long, 149_000);
    bench.lose(50_000, 150_000);
    assert_eq!(bench.model.bounds.inflight_long, 149_000, "once per probe");
    bench.round(RATE, BDP / 2);
    bench.until(State::Up, |bench| bench.round(RATE, BDP.min(bench.window.0)));
    let touch = BbrAck { window_limited: false, ..bench.ack(RATE, 149_000) };
    assert_eq!(bench.tell(touch), State::Down);
    bench.model.on_undo(bench.delivered);
    assert_eq!(bench.model.bounds.inflight_long, 149_000, "the episode of before is no longer remembered");
}

/// §5.5.10.3 with RFC 3168: in Cruise a round with losses, or with marks, lowers the rate by three tenths at most, and
/// the next probe forgets that.
#[test]
fn a_round_with_marks_lowers_the_short_bounds() {
    let mut bench = Bench::cruising();
    for _ in 0..2 {
        bench.model.note_congestion(bench.delivered, bench.window);
        bench.round(RATE / 2, BDP);
    }
    assert_eq!(bench.model.rate, RATE * 7 / 10);
    bench.until(State::Refill, |bench| bench.round(RATE / 2, BDP));
    bench.round(RATE / 2, BDP);
    assert_eq!(bench.model.rate, RATE);
}

/// §5.3.4: five seconds without the least round trip, then half of the product for 200 ms.
#[test]
fn the_path_is_drained_when_its_least_round_trip_is_old() {
    let mut bench = Bench::cruising();
    let later = |bench: &mut Bench, in_flight| {
        bench.now += RTT;
        let mut ack = bench.ack(RATE, in_flight);
        ack.rtt = Some(RTT * 3 / 2);
        bench.tell(ack)
    };
    let before = bench.now;
    bench.until(State::ProbeRtt, |bench| later(bench, BDP));
    let waited = bench.now.saturating_since(before);
    assert!(waited > Duration::from_secs(4) && waited <= Duration::from_millis(5_200), "{waited:?}");
    assert!(bench.window.0 <= BDP / 2);
    assert!(bench.model.holds_back());
    let drained = bench.now;
    bench.until(State::Cruise, |bench| later(bench, BDP / 2));
    let lasted = bench.now.saturating_since(drained);
    assert!(lasted > Duration::from_millis(200) && lasted <= Duration::from_millis(500), "{lasted:?}");
    assert!(bench.window.0 > BDP);
}

/// §5.4: after silence the known rate is the pace, and the drain is not needed.
#[test]
fn silence_is_no_reason_to_drain() {
    let mut bench = Bench::cruising();
    bench.now += Duration::from_secs(20);
    bench.window = bench.model.on_restart(bench.now, bench.window);
    assert_eq!(bench.model.pacing_rate().bps(), RATE * 8 * 99 / 100);
    assert_ne!(bench.round(RATE, BDP / 2), State::ProbeRtt);
}

/// A recovery gives back the window of before it, unless the model knows better.
#[test]
fn the_window_survives_a_recovery() {
    let mut bench = Bench::cruising();
    let before = bench.window;
    bench.model.on_recovery(before, false);
    assert_eq!(bench.model.on_recovered(Bytes(1_000)), before);
}

proptest::proptest! {
    /// Whatever ACKs say, the window stays within four segments and what the field can carry, and something may leave.
    #[test]
    fn anything_may_arrive(
        acks in proptest::collection::vec(
            (0u64..1 << 40, 0u64..1 << 32, 0u64..1 << 32, 0u64..1 << 20, 0u8..64, 0u64..10_000_000_000), 1..200),
    ) {
        let mut bench = Bench::new();
        for (rate, in_flight, lost, newly, bits, nanos) in acks {
            bench.now += Duration::from_nanos(nanos);
            let mut ack = bench.ack(rate, in_flight);
            (ack.lost, ack.newly_delivered, ack.delivered) = (lost, newly, bench.delivered + newly);
            (ack.app_limited, ack.window_limited) = (bits & 1 != 0, bits & 2 != 0);
            (ack.sack, ack.in_recovery, ack.shows_loss) = (bits & 4 != 0, bits & 8 != 0, bits & 16 != 0);
            ack.rtt = (bits & 32 != 0).then(|| Duration::from_nanos(nanos));
            if ack.shows_loss {
                bench.lose(lost, in_flight);
            }
            bench.tell(ack);
            proptest::prop_assert!(bench.window.0 >= 4_000);
            proptest::prop_assert!(bench.model.pacing_rate().bps() > 0);
            bench.window = bench.window.min(Bytes(1 << 30));
        }
    }
}
