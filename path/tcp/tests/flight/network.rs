//! The small network: one sender, a path that decides what becomes of each segment and ACK, and a receiver.
//!
//! Owns what is on its way and when it arrives. The scenarios beside it say how long the stream is, and the fates.

use core::ops::Range;
use core::time::Duration;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

use firelane_tcp::TimestampClock;
use firelane_tcp::flight::{AckIn, Flight, FlightConfig, Phase, TimerFired};
use firelane_tcp::reassembly::Reassembly;
use firelane_units::{Bytes, Instant, Mss};

pub(crate) const MSS: u64 = 1_000;

/// What the path does to the n-th segment (or ACK) that enters it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fate {
    Pass,
    Lose,
    Delay(Duration),
    /// Held until then, if it would arrive earlier.
    Until(Instant),
    Double,
}

/// What travels, ordered by when it arrives and then by when it left.
#[derive(PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Cargo {
    Segment { start: u64, end: u64, stamp: u32 },
    Ack { ack: u64, sack: Vec<(u64, u64)>, echo: u32 },
}

pub(crate) type FateOf = Box<dyn FnMut(u64, &Range<u64>) -> Fate>;

pub(crate) struct Network {
    pub(crate) now: Instant,
    pub(crate) flight: Flight,
    /// How many bytes the program wants to send.
    pub(crate) length: u64,
    pub(crate) sack: bool,
    pub(crate) clock: Option<TimestampClock>,
    pub(crate) one_way: Duration,
    /// The path carries one segment per this time, and queues the others.
    pub(crate) per_segment: Duration,
    pub(crate) free_at: Instant,
    pub(crate) segment_fate: FateOf,
    pub(crate) ack_fate: FateOf,
    pub(crate) received: Reassembly,
    pub(crate) next: u64,
    /// The receiver's TS.Recent (RFC 7323 §4.3): it answers an ACK's echo, not the segment that caused it.
    pub(crate) recent: u32,
    pub(crate) wire: BinaryHeap<Reverse<(Instant, u64, Cargo)>>,
    pub(crate) entered: u64,
    pub(crate) acks: u64,
    pub(crate) sent_bytes: u64,
    pub(crate) timeouts: u32,
    pub(crate) probes: u32,
    pub(crate) undone: u32,
    pub(crate) phases: Vec<Phase>,
}

impl Network {
    pub(crate) fn new(length: u64) -> Self {
        let mut flight = Flight::new(&FlightConfig::default());
        let start = Instant::from_secs(1_000);
        let rtt = Duration::from_millis(50);
        flight.on_established(start, Mss::clamped(MSS as u16), true, Some(rtt), 0);
        Self {
            now: start,
            flight,
            length,
            sack: true,
            clock: None,
            one_way: rtt / 2,
            per_segment: Duration::from_micros(100),
            free_at: start,
            segment_fate: Box::new(|_, _| Fate::Pass),
            ack_fate: Box::new(|_, _| Fate::Pass),
            received: Reassembly::new(),
            next: 0,
            recent: 0,
            wire: BinaryHeap::new(),
            entered: 0,
            acks: 0,
            sent_bytes: 0,
            timeouts: 0,
            probes: 0,
            undone: 0,
            phases: vec![Phase::Open],
        }
    }

    pub(crate) fn without_sack(mut self) -> Self {
        let rtt = Some(self.one_way * 2);
        self.flight.on_established(self.now, Mss::clamped(MSS as u16), false, rtt, 0);
        self.sack = false;
        self
    }

    pub(crate) fn with_timestamps(mut self) -> Self {
        self.clock = Some(TimestampClock::from_offset(12_345));
        self
    }

    pub(crate) fn losing(self, lost: &[u64]) -> Self {
        let lost = lost.to_vec();
        self.segments(move |n, _| if lost.contains(&n) { Fate::Lose } else { Fate::Pass })
    }

    pub(crate) fn segments(mut self, fate: impl FnMut(u64, &Range<u64>) -> Fate + 'static) -> Self {
        self.segment_fate = Box::new(fate);
        self
    }

    pub(crate) fn acks(mut self, fate: impl FnMut(u64, &Range<u64>) -> Fate + 'static) -> Self {
        self.ack_fate = Box::new(fate);
        self
    }

    /// The connection's sending loop, as `flight`'s documentation orders it.
    pub(crate) fn transmit(&mut self) {
        loop {
            let nxt = self.flight.nxt();
            let fresh = (nxt < self.length).then(|| nxt..(nxt + MSS).min(self.length));
            if let Some(probe) = self.flight.poll_probe(fresh.clone()) {
                self.probes += 1;
                self.send(probe);
                continue;
            }
            let budget = self.flight.budget();
            if let Some(lost) = self.flight.next_retransmit(Bytes(MSS), fresh.is_some()) {
                if lost.end - lost.start > budget.0 {
                    return self.flight.on_window_exhausted();
                }
                self.send(lost);
                continue;
            }
            match fresh {
                None => return self.flight.on_data_exhausted(),
                Some(range) if range.end - range.start > budget.0 => {
                    return self.flight.on_window_exhausted();
                }
                Some(range) => self.send(range),
            }
        }
    }

    pub(crate) fn send(&mut self, range: Range<u64>) {
        assert!(range.start < range.end && range.end <= self.length);
        self.sent_bytes += range.end - range.start;
        self.flight.on_sent(self.now, range.clone());
        let fate = (self.segment_fate)(self.entered, &range);
        let stamp = self.clock.map_or(0, |clock| clock.value(self.now));
        self.entered += 1;
        self.free_at = self.free_at.max(self.now) + self.per_segment;
        let arrives = self.free_at + self.one_way;
        self.launch(arrives, fate, || Cargo::Segment { start: range.start, end: range.end, stamp });
    }

    pub(crate) fn launch(&mut self, arrives: Instant, fate: Fate, cargo: impl Fn() -> Cargo) {
        let order = self.entered + self.acks;
        match fate {
            Fate::Lose => {}
            Fate::Pass => self.wire.push(Reverse((arrives, order, cargo()))),
            Fate::Delay(by) => self.wire.push(Reverse((arrives + by, order, cargo()))),
            Fate::Until(at) => self.wire.push(Reverse((arrives.max(at), order, cargo()))),
            Fate::Double => {
                self.wire.push(Reverse((arrives, order, cargo())));
                self.wire.push(Reverse((arrives, order, cargo())));
            }
        }
    }

    pub(crate) fn receive(&mut self, range: Range<u64>, stamp: u32) {
        use firelane_tcp::reassembly::Accepted;
        if range.start <= self.next && self.next <= range.end {
            self.recent = self.recent.max(stamp);
        }
        if let Accepted::InOrder { next, .. } = self.received.accept(self.next, range.clone(), |_| {}) {
            self.next = next;
        }
        let sack = if self.sack { self.received.sack_blocks(3) } else { Default::default() };
        let sack: Vec<_> = sack.as_slice().iter().map(|block| (block.start, block.end)).collect();
        let fate = (self.ack_fate)(self.acks, &range);
        let (ack, stamp) = (self.next, self.recent);
        self.acks += 1;
        let arrives = self.now + self.one_way;
        self.launch(arrives, fate, || Cargo::Ack { ack, sack: sack.clone(), echo: stamp });
    }

    pub(crate) fn acknowledge(&mut self, ack: u64, sack: &[(u64, u64)], echo: u32) {
        if ack < self.flight.una() {
            return;
        }
        let sack: Vec<_> = sack.iter().map(|&(start, end)| start..end).collect();
        let duplicate = ack == self.flight.una() && !self.flight.is_empty();
        let echoed = self.clock.and_then(|clock| clock.sent_at(echo, self.now));
        let out =
            self.flight.on_ack(self.now, &AckIn { ack, sack: &sack, echoed, duplicate, congested: false });
        self.undone += u32::from(out.undone);
        self.note_phase();
    }

    pub(crate) fn note_phase(&mut self) {
        if self.phases.last() != Some(&self.flight.phase()) {
            self.phases.push(self.flight.phase());
        }
    }

    /// One event: an arrival or a deadline, whichever is first. `false` when nothing is left to happen.
    pub(crate) fn step(&mut self) -> bool {
        self.transmit();
        assert_eq!(self.flight.is_empty(), self.flight.deadline().is_none(), "data out need a timer");
        let arrival = self.wire.peek().map(|Reverse((at, ..))| *at);
        let due = [arrival, self.flight.deadline()].into_iter().flatten().min();
        let Some(due) = due else { return false };
        self.now = self.now.max(due);
        if arrival == Some(due) {
            let Reverse((_, _, cargo)) = self.wire.pop().expect("it was peeked");
            match cargo {
                Cargo::Segment { start, end, stamp } => self.receive(start..end, stamp),
                Cargo::Ack { ack, sack, echo } => self.acknowledge(ack, &sack, echo),
            }
            return true;
        }
        match self.flight.on_timer(self.now) {
            TimerFired::Retransmission { .. } => self.timeouts += 1,
            TimerFired::Probe | TimerFired::Reordering | TimerFired::Held => {}
            TimerFired::Nothing => panic!("a deadline passed and nothing was due"),
        }
        self.note_phase();
        true
    }

    /// Runs until everything is acknowledged; gives the time that took.
    pub(crate) fn run(&mut self) -> Duration {
        let start = self.now;
        for _ in 0..1_000_000 {
            if self.flight.una() == self.length {
                return self.now.saturating_since(start);
            }
            assert!(self.step(), "stuck at {} of {}: {:?}", self.flight.una(), self.length, self.flight);
        }
        panic!("too slow: {:?}", self.flight);
    }

    /// Bytes sent beyond the stream's length.
    pub(crate) fn excess(&self) -> u64 {
        self.sent_bytes - self.length
    }
}
