//! Two connections joined by a bad wire, in virtual time.
//!
//! Owns the wire (loss, reordering, duplication, delay), the two programs behind the connections, and the laws
//! that hold on every segment: no promise is taken back, nothing is sent that was not promised, no piece is larger
//! than agreed. Everything follows from one seed. Used by the scenario tests beside this folder.
#![allow(dead_code, unreachable_pub)]

pub mod host;
pub mod lab;
pub mod random;
pub mod wire;

use std::time::Duration;

use firelane_tcp::{CloseReason, State};
use firelane_units::Instant;

use host::{Host, Script};
use random::Random;
use wire::{Faults, Wire};

/// A whole run: two hosts and what lies between them.
pub struct World {
    pub now: Instant,
    pub hosts: [Host; 2],
    pub wire: Wire,
    pub steps: u32,
}

/// More steps than this is a livelock.
const STEPS_MAX: u32 = 3_000_000;
/// More virtual time than this is a connection that never ends.
const TIME_MAX: Duration = Duration::from_secs(14 * 24 * 3600);

impl World {
    pub fn new(seed: u64, scripts: [Script; 2], faults: Faults) -> Self {
        let mut random = Random::new(seed);
        let start = Instant::from_secs(1000);
        let [left, right] = scripts;
        Self {
            now: start,
            hosts: [Host::new(left, &mut random), Host::new(right, &mut random)],
            wire: Wire::new(random.fork(), faults),
            steps: 0,
        }
    }

    /// Runs until both hosts are done and the wire is empty.
    pub fn run(&mut self) {
        while !self.is_over() {
            self.step();
        }
    }

    /// Runs until `until` says so.
    pub fn run_until(&mut self, until: impl Fn(&Self) -> bool) {
        while !until(self) {
            assert!(!self.is_over(), "the run ended first");
            self.step();
        }
    }

    fn is_over(&self) -> bool {
        self.hosts.iter().all(Host::is_done)
    }

    fn step(&mut self) {
        self.steps += 1;
        assert!(self.steps < STEPS_MAX, "livelock at {:?}: {}", self.now, self.describe());
        let next = self
            .hosts
            .iter()
            .filter_map(|host| host.next_event(self.now))
            .chain(self.wire.next_event())
            .min();
        let Some(next) = next else { panic!("deadlock at {:?}: {}", self.now, self.describe()) };
        self.now = self.now.max(next);
        let age = self.now.saturating_since(Instant::from_secs(1000));
        assert!(age < TIME_MAX, "never ends: {}", self.describe());
        while let Some((to, packet)) = self.wire.deliver(self.now) {
            self.hosts[to].on_packet(self.now, &packet);
            self.collect(to);
        }
        for side in 0..2 {
            self.hosts[side].on_time(self.now);
            self.collect(side);
        }
    }

    fn collect(&mut self, side: usize) {
        let [left, right] = &mut self.hosts;
        let (from, to) = if side == 0 { (left, right) } else { (right, left) };
        for packet in from.outbox.drain(..) {
            to.laws.check_allowed(&packet);
            self.wire.send(self.now, 1 - side, packet);
        }
    }

    pub fn describe(&self) -> String {
        format!("{:?}\n{:?}\nwire {}", self.hosts[0], self.hosts[1], self.wire.len())
    }

    /// The law of a stream: what one wrote the other read, all of it.
    pub fn assert_streams_equal(&self) {
        for (from, to) in [(0, 1), (1, 0)] {
            let (sender, receiver) = (&self.hosts[from], &self.hosts[to]);
            assert_eq!(receiver.received, sender.script.bytes, "stream {from}->{to}: {}", self.describe());
            let written = sender.script.bytes - sender.left_to_write;
            assert_eq!(written, sender.script.bytes);
        }
    }

    /// What one read is the beginning of what the other wrote (each octet was compared as it was read).
    pub fn assert_prefixes(&self) {
        for (from, to) in [(0, 1), (1, 0)] {
            let written = self.hosts[from].script.bytes - self.hosts[from].left_to_write;
            assert!(self.hosts[to].received <= written, "{}", self.describe());
        }
    }

    /// Both ended because both had closed.
    pub fn assert_graceful(&self) {
        for host in &self.hosts {
            let fine = host.state() == State::TimeWait || host.closed == Some(CloseReason::Finished);
            assert!(fine, "{}", self.describe());
        }
    }
}
