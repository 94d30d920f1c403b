//! BBR on a path with one bottleneck: a rate, a queue, a round trip, and losses.
#![allow(clippy::single_range_in_vec_init)] // a list of blocks may have one block

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::ops::Range;
use std::time::Duration;

use firelane_tcp::congestion::Algorithm;
use firelane_tcp::congestion::bbr::State;
use firelane_tcp::flight::{AckIn, Flight, FlightConfig, TimerFired};
use firelane_tcp::reassembly::{Accepted, Reassembly};
use firelane_units::{Bytes, Instant, Mss};

const MSS: u64 = 1_000;
const RTT: Duration = Duration::from_millis(40);
/// 80 Mb/s; the bandwidth-delay product is 400,000 bytes.
const RATE: u64 = 10_000_000;

/// When it arrives, what it acknowledges, and what it reports selectively.
type Ack = (Instant, u64, Vec<(u64, u64)>);

/// A sender that never runs dry, and its path.
struct Path {
    flight: Flight,
    start: Instant,
    now: Instant,
    /// Bytes per second.
    rate: u64,
    queue: u64,
    lose: Box<dyn FnMut(u64) -> bool>,
    free_at: Instant,
    /// Segments that reach the peer, and the ACKs that they cause half a round trip later.
    wire: BinaryHeap<Reverse<(Instant, u64, u64, u64)>>,
    acks: BinaryHeap<Reverse<Ack>>,
    received: Reassembly,
    next: u64,
    sent: u64,
    dropped: u64,
}

impl Path {
    fn new(algorithm: Algorithm, queue: u64) -> Self {
        let mut flight = Flight::new(&FlightConfig { algorithm, ..FlightConfig::default() });
        let start = Instant::from_secs(1_000);
        flight.on_established(start, Mss::clamped(MSS as u16), true, Some(RTT), 0);
        Self {
            flight,
            start,
            now: start,
            rate: RATE,
            queue,
            lose: Box::new(|_| false),
            free_at: start,
            wire: BinaryHeap::new(),
            acks: BinaryHeap::new(),
            received: Reassembly::new(),
            next: 0,
            sent: 0,
            dropped: 0,
        }
    }

    /// Loses one segment in `n`, evenly but without a rhythm.
    fn losing_one_in(mut self, n: u64) -> Self {
        self.lose = Box::new(move |sent| (sent.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32).is_multiple_of(n));
        self
    }

    fn transmit(&mut self) {
        loop {
            let nxt = self.flight.nxt();
            let fresh = nxt..nxt + MSS;
            if let Some(probe) = self.flight.poll_probe(Some(fresh.clone())) {
                self.send(probe.start, probe.end);
                continue;
            }
            let budget = self.flight.budget().0;
            let range = self.flight.next_retransmit(Bytes(MSS), true).unwrap_or(fresh);
            if range.end - range.start > budget {
                return self.flight.on_window_exhausted();
            }
            if self.flight.pace(self.now, None).is_none() {
                return;
            }
            self.send(range.start, range.end);
        }
    }

    fn send(&mut self, start: u64, end: u64) {
        self.flight.on_sent(self.now, start..end);
        self.sent += 1;
        let waiting = self.free_at.saturating_since(self.now).as_nanos() as u64;
        let is_full = waiting * (self.rate / 1_000) / 1_000_000 > self.queue;
        if is_full || (self.lose)(self.sent) {
            self.dropped += 1;
            return;
        }
        let takes = Duration::from_nanos((end - start) * 1_000_000_000 / self.rate);
        self.free_at = self.free_at.max(self.now) + takes;
        self.wire.push(Reverse((self.free_at + RTT / 2, self.sent, start, end)));
    }

    fn receive(&mut self, start: u64, end: u64) {
        if let Accepted::InOrder { next, .. } = self.received.accept(self.next, start..end, |_| {}) {
            self.next = next;
        }
        let sack = self.received.sack_blocks(3);
        let sack = sack.as_slice().iter().map(|block| (block.start, block.end)).collect();
        self.acks.push(Reverse((self.now + RTT / 2, self.next, sack)));
    }

    /// Lets time pass up to so long after the beginning; gives what arrived in order meanwhile, in bytes per second.
    fn run(&mut self, until: Duration) -> u64 {
        let (end, from, before) = (self.start + until, self.now, self.next);
        loop {
            self.transmit();
            let arrival = self.wire.peek().map(|Reverse((at, ..))| *at);
            let ack = self.acks.peek().map(|Reverse((at, ..))| *at);
            let timers = [self.flight.deadline(), self.flight.paced_until()];
            let due = [arrival, ack].into_iter().chain(timers).flatten().min().expect("data are out");
            if due > end {
                self.now = end;
                let span = end.saturating_since(from).as_millis() as u64;
                return (self.next - before) * 1_000 / span;
            }
            self.now = self.now.max(due);
            if arrival == Some(due) {
                let Reverse((_, _, start, end)) = self.wire.pop().expect("it was peeked");
                self.receive(start, end);
            } else if ack == Some(due) {
                let Reverse((_, ack, sack)) = self.acks.pop().expect("it was peeked");
                if ack >= self.flight.una() {
                    let sack: Vec<_> = sack.iter().map(|&(start, end)| start..end).collect();
                    let duplicate = ack == self.flight.una() && !self.flight.is_empty();
                    let ack = AckIn { ack, sack: &sack, echoed: None, duplicate, congested: false };
                    self.flight.on_ack(self.now, &ack);
                }
            } else {
                while self.flight.on_timer(self.now) != TimerFired::Nothing {}
            }
        }
    }

    fn smoothed(&self) -> Duration {
        self.flight.rtt().smoothed().expect("the handshake gave one")
    }
}

fn secs(n: u64) -> Duration {
    Duration::from_secs(n)
}

/// The queue holds ten times what the path does: CUBIC would fill it.
#[test]
fn finds_the_rate_and_leaves_the_queue_short() {
    let mut path = Path::new(Algorithm::Bbr, 4_000_000);
    path.run(secs(2));
    let rate = path.run(secs(5));
    assert!(rate >= RATE * 95 / 100, "{rate}");
    assert!(path.smoothed() <= RTT * 14 / 10, "{:?}", path.smoothed());
    assert_eq!(path.dropped, 0);
    let mut cubic = Path::new(Algorithm::Cubic, 4_000_000);
    cubic.run(secs(5));
    assert!(cubic.smoothed() > RTT * 2, "{:?}", cubic.smoothed());
}

/// Losses that have nothing to do with the queue do not slow it down until they are many.
#[test]
fn one_loss_in_a_hundred_is_no_congestion() {
    let run = |algorithm| {
        let mut path = Path::new(algorithm, 400_000).losing_one_in(100);
        path.run(secs(3));
        path.run(secs(12))
    };
    let (bbr, cubic) = (run(Algorithm::Bbr), run(Algorithm::Cubic));
    assert!(bbr >= RATE * 70 / 100 && bbr >= 3 * cubic, "{bbr} beside {cubic}");
}

/// A queue that holds a tenth of the path: the model learns how much fits.
#[test]
fn a_short_queue_bounds_what_is_in_flight() {
    let mut path = Path::new(Algorithm::Bbr, 40_000);
    path.run(secs(3));
    let (sent, dropped) = (path.sent, path.dropped);
    let rate = path.run(secs(20));
    assert!(rate >= RATE * 85 / 100, "{rate}");
    let (sent, dropped) = (path.sent - sent, path.dropped - dropped);
    assert!(dropped * 100 <= sent * 2, "{dropped} of {sent} are lost");
}

/// A queue of one bandwidth-delay product: what is lost when the rate falls bounds the model until it has forgotten the
/// old rate, two probes later.
#[test]
fn follows_a_rate_that_falls() {
    let mut path = Path::new(Algorithm::Bbr, 400_000);
    path.run(secs(4));
    path.rate = RATE / 4;
    path.run(secs(15));
    let rate = path.run(secs(20));
    assert!(rate >= path.rate * 85 / 100, "{rate}");
    assert!(path.smoothed() <= RTT * 5, "{:?}", path.smoothed());
}

#[test]
fn finds_a_rate_that_rises() {
    let mut path = Path::new(Algorithm::Bbr, 4_000_000);
    path.run(secs(4));
    path.rate = RATE * 4;
    path.run(secs(12));
    let rate = path.run(secs(17));
    assert!(rate >= path.rate * 85 / 100, "{rate}");
}

/// ProbeRTT: whoever keeps a queue drains the path once in five seconds or so.
#[test]
fn drains_the_path_from_time_to_time() {
    let mut path = Path::new(Algorithm::Bbr, 4_000_000);
    path.run(secs(1));
    let mut least = u64::MAX;
    for step in 101..1_300 {
        path.run(Duration::from_millis(step * 10));
        least = least.min(path.flight.in_flight().0);
    }
    assert!(least <= 220_000, "{least}");
    let rate = path.run(secs(16));
    assert!(rate >= RATE * 90 / 100, "{rate}");
}

/// What a program leaves unsent for a while is not forgotten: the rate is known when it goes on.
#[test]
fn pacing_begins_with_the_first_segment() {
    let mut path = Path::new(Algorithm::Bbr, 4_000_000);
    path.transmit();
    // 2.77 times ten segments in a round trip: the first two leave at once.
    assert_eq!(path.sent, 1);
    let wait = path.flight.paced_until().expect("the rest waits").saturating_since(path.now);
    assert!(wait > RTT / 30 && wait < RTT / 25, "{wait:?}");
}

/// The peer's window has room for one segment: sends the next when its pace lets it go, and takes its ACK `rtt` later.
fn lone_segment(flight: &mut Flight, now: &mut Instant, rtt: Duration) {
    flight.wake(*now);
    while flight.pace(*now, None).is_none() {
        *now = flight.paced_until().expect("something waits for its pace");
    }
    let nxt = flight.nxt();
    flight.on_sent(*now, nxt..nxt + MSS);
    flight.on_pause();
    *now += rtt;
    let ack = AckIn { ack: nxt + MSS, sack: &[], echoed: None, duplicate: false, congested: false };
    flight.on_ack(*now, &ack);
}

/// A round trip of broken microseconds, over and over: none is shorter than the least, so all of them measure the rate.
/// When none counted, the rate of a connection of one segment at a time stayed what a time-out had made of it.
#[test]
fn a_pace_from_before_a_time_out_is_not_kept_for_ever() {
    let config = FlightConfig { algorithm: Algorithm::Bbr, ..FlightConfig::default() };
    let mut flight = Flight::new(&config);
    let mut now = Instant::from_secs(1_000);
    flight.on_established(now, Mss::clamped(MSS as u16), true, Some(Duration::from_micros(90)), 0);
    for _ in 0..50 {
        lone_segment(&mut flight, &mut now, Duration::from_millis(150));
    }
    let nxt = flight.nxt();
    flight.wake(now);
    flight.on_sent(now, nxt..nxt + MSS);
    while flight.timeouts() < 4 {
        now = flight.deadline().expect("something is out");
        if let TimerFired::Retransmission { .. } = flight.on_timer(now) {
            flight.on_sent(now, nxt..nxt + MSS);
        }
    }
    let ack = AckIn { ack: nxt + MSS, sack: &[], echoed: None, duplicate: false, congested: false };
    flight.on_ack(now + Duration::from_millis(2), &ack);
    for _ in 0..20 {
        lone_segment(&mut flight, &mut now, Duration::from_nanos(12_640));
    }
    let before = now;
    lone_segment(&mut flight, &mut now, Duration::from_nanos(12_640));
    let took = now.saturating_since(before);
    assert!(took < Duration::from_millis(1), "{took:?} for one segment");
}

/// Sends what the window lets go, lost segments first, twenty at most.
fn fill(flight: &mut Flight, now: Instant) {
    for _ in 0..20 {
        let nxt = flight.nxt();
        let range = flight.next_retransmit(Bytes(MSS), true).unwrap_or(nxt..nxt + MSS);
        if range.end - range.start > flight.budget().0 {
            return flight.on_window_exhausted();
        }
        flight.on_sent(now, range);
    }
}

/// The model makes the window smaller than what is under way (ProbeRTT) just when the first segment is found lost again, and then the
/// path is silent for a while. What the window alone holds waits for nothing that comes with time.
#[test]
fn a_time_out_lets_go_what_the_window_alone_holds() {
    let mut flight = Flight::new(&FlightConfig { algorithm: Algorithm::Bbr, ..FlightConfig::default() });
    let start = Instant::from_secs(1_000);
    flight.on_established(start, Mss::clamped(MSS as u16), true, Some(RTT), 0);
    let ack = |flight: &mut Flight, now, ack: u64, sack: &[Range<u64>]| {
        let duplicate = ack == flight.una();
        flight.on_ack(now, &AckIn { ack, sack, echoed: None, duplicate, congested: false });
    };
    // Round trips that are longer than the first one, which is too old after five seconds.
    let (mut now, rtt) = (start, RTT * 5 / 4);
    for _ in 0..90 {
        fill(&mut flight, now);
        now += rtt;
        let all = flight.nxt();
        ack(&mut flight, now, all, &[]);
    }
    // A lone segment is lost, and its probe; what the program writes then is under way at the time-out, and arrives.
    let front = flight.nxt();
    flight.on_sent(now, front..front + MSS);
    now = flight.deadline().unwrap();
    assert_eq!(flight.on_timer(now), TimerFired::Probe);
    let probe = flight.poll_probe(None).unwrap();
    flight.on_sent(now, probe);
    now = flight.deadline().unwrap();
    fill(&mut flight, now - Duration::from_millis(10));
    let arrived = flight.nxt();
    assert_eq!(flight.on_timer(now), TimerFired::Retransmission { count: 1 });
    fill(&mut flight, now);
    now += rtt - Duration::from_millis(10);
    for end in (front + 2 * MSS..=arrived).step_by(MSS as usize) {
        ack(&mut flight, now, front, &[front + MSS..end]);
    }
    fill(&mut flight, now);
    // The first of what left behind the second copy arrives: that one is lost.
    now += rtt;
    ack(&mut flight, now, front, &[arrived..arrived + MSS, front + MSS..arrived]);
    assert_eq!((flight.bbr().unwrap().state(), flight.lost()), (State::ProbeRtt, Bytes(MSS)));
    assert!(flight.window() < flight.in_flight() && flight.timeouts() == 1);

    now = flight.deadline().unwrap();
    assert_eq!(flight.on_timer(now), TimerFired::Retransmission { count: 2 });
    assert_eq!(flight.next_retransmit(Bytes(MSS), true), Some(front..front + MSS));
    assert!(flight.budget() >= Bytes(MSS));
    // That a pace or a device holds it then counts for nothing.
    now = flight.deadline().unwrap();
    assert_eq!(flight.on_timer(now), TimerFired::Held);
}
