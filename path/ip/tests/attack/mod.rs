//! The oracle of the attack tests: what every attack must leave behind, whatever it is.
//!
//! An attack is a list of frames. Afterwards one counter has risen by exactly what was sent, nothing else has, no more
//! was answered than allowed, memory is as before once time has passed, and the station answers honest neighbours.
#![allow(dead_code, unreachable_pub, reason = "each test file uses a part")]

use std::collections::BTreeMap;
use std::time::Duration;

use firelane_units::{DropReason, Instant};
use firelane_wire::IpProtocol;

use crate::common::Station;
use crate::craft::*;

/// A victim with its books.
pub struct Attacked {
    pub station: Station,
    pub now: Instant,
    pub sent: Vec<Vec<u8>>,
}

impl Attacked {
    pub fn new() -> Self {
        Self::by(victim())
    }

    pub fn by(mut station: Station) -> Self {
        station.drops.clear();
        station.ip.take_drops();
        Self { station, now: NOW, sent: Vec::new() }
    }

    /// Gives it frames; what it sends is kept.
    pub fn give<'a>(&mut self, frames: impl IntoIterator<Item = &'a Vec<u8>>) {
        for frame in frames {
            self.station.input_bytes(self.now, frame);
            self.sent.extend(self.station.outputs(self.now));
        }
    }

    pub fn pass(&mut self, span: Duration) {
        let end = self.now + span;
        while let Some(at) = self.station.ip.poll_at().filter(|&at| at <= end) {
            self.station.ip.on_timer(at, &mut self.station.pools);
            self.sent.extend(self.station.outputs(at));
        }
        self.now = end;
    }

    /// How often each reason was counted since the last call.
    pub fn counted(&mut self) -> BTreeMap<&'static str, u64> {
        let mut counts = BTreeMap::new();
        for reason in self.station.drops.drain(..) {
            *counts.entry(reason.word()).or_default() += 1;
        }
        let given_up = self.station.ip.take_drops();
        for (reason, count) in given_up.iter().filter(|(_, count)| *count > 0) {
            *counts.entry(reason.word()).or_default() += count;
        }
        counts
    }

    /// Asserts that this one counter has risen by exactly `count`, and no other.
    pub fn assert_counted(&mut self, name: &str, reason: DropReason, count: usize) {
        let expected = BTreeMap::from([(reason.word(), count as u64)]);
        assert_eq!(self.counted(), expected, "{name}");
    }

    /// Two minutes later nothing is held, and an honest neighbour is answered in both versions.
    pub fn assert_recovered(&mut self, name: &str) {
        self.pass(Duration::from_secs(120));
        assert_eq!(self.station.ip.held_frames(), 0, "{name}: something is still held");
        self.sent.clear();
        let echo4 = v4(&header_v4(IpProtocol::ICMPV4), &icmpv4_message(8, 0, &[0, 1, 0, 2, 9]));
        let echo6 = icmpv6_message(ATTACKER_V6, VICTIM_V6, 128, 0, &[0, 1, 0, 2, 9]);
        let echo6 = v6(&header_v6(IpProtocol::ICMPV6), &echo6);
        self.give(&[echo4, echo6]);
        assert!(self.sent.len() >= 2, "{name}: honest echoes are not answered: {:?}", self.counted());
    }
}

/// Each frame is sent three times; each is dropped for `reason`, and nobody hears of it.
pub fn silent(name: &str, frames: &[Vec<u8>], reason: DropReason) {
    let mut attacked = Attacked::new();
    for _ in 0..3 {
        attacked.give(frames);
    }
    attacked.assert_counted(name, reason, 3 * frames.len());
    assert_eq!(attacked.sent, [] as [Vec<u8>; 0], "{name}: something was sent");
    assert_eq!(attacked.station.events, [], "{name}: something was told");
    attacked.assert_recovered(name);
}

/// Each frame is dropped for `reason` and answered with an ICMPv6 parameter problem of this code and pointer.
pub fn problem(name: &str, frame: &[u8], reason: DropReason, code: u8, pointer: u32) {
    let mut attacked = Attacked::new();
    for _ in 0..3 {
        attacked.give(&[frame.to_vec()]);
    }
    attacked.assert_counted(name, reason, 3);
    assert_eq!(attacked.sent.len(), 3, "{name}");
    for answer in &attacked.sent {
        let (kind, said, at, _) = answer_v6(answer);
        assert_eq!((kind, said, at), (4, code, pointer), "{name}");
    }
    attacked.assert_recovered(name);
}
