//! The wire: packets in flight, each with its time of arrival.

use std::collections::BTreeMap;
use std::time::Duration;

use firelane_tcp::{SegmentIn, SegmentOut};
use firelane_units::{Instant, SeqNum};
use firelane_wire::{Ecn, TcpFlags, TcpOptions};

use super::random::Random;

/// A segment on its way.
#[derive(Clone, Debug)]
pub struct Packet {
    pub seq: SeqNum,
    pub ack: Option<SeqNum>,
    pub flags: TcpFlags,
    pub window: u16,
    pub urgent: u16,
    pub options: TcpOptions,
    pub payload: Vec<u8>,
}

impl Packet {
    /// What a segment looks like on the wire if nothing cuts it.
    pub fn new(out: &SegmentOut, payload: Vec<u8>) -> Self {
        Self {
            seq: out.seq,
            ack: out.ack,
            flags: out.flags,
            window: out.window,
            urgent: out.urgent,
            options: out.options,
            payload,
        }
    }

    pub fn as_segment(&self) -> SegmentIn<'_> {
        SegmentIn {
            seq: self.seq,
            ack: self.ack,
            flags: self.flags,
            window: self.window,
            urgent: self.urgent,
            options: self.options,
            payload: &self.payload,
            ecn: Ecn::NotCapable,
        }
    }

    /// Cut as a device with segmentation offload cuts: FIN and PSH belong to the last piece.
    pub fn cut(self, bytes: usize) -> Vec<Self> {
        if bytes == 0 || self.payload.len() <= bytes {
            return vec![self];
        }
        let pieces = self.payload.len().div_ceil(bytes);
        (0..pieces)
            .map(|n| {
                let text = &self.payload[n * bytes..self.payload.len().min((n + 1) * bytes)];
                let last = TcpFlags::FIN.with(TcpFlags::PSH);
                let flags = if n + 1 < pieces { self.flags.without(last) } else { self.flags };
                let seq = self.seq + (n * bytes) as u32;
                Self { seq, flags, payload: text.to_vec(), ..self.clone() }
            })
            .collect()
    }
}

/// What the wire does to packets, in percent.
#[derive(Clone, Copy, Debug, Default)]
pub struct Faults {
    pub loss: u64,
    pub duplicate: u64,
    pub reorder: u64,
    pub delay: Duration,
    pub jitter: Duration,
    /// Nothing is lost after this many packets, so that every run can end.
    pub until: u64,
}

#[derive(Debug)]
pub struct Wire {
    random: Random,
    faults: Faults,
    flying: BTreeMap<(Instant, u64), (usize, Packet)>,
    sent: u64,
    last: [Instant; 2],
    pub trace: Option<Vec<String>>,
}

impl Wire {
    pub fn new(random: Random, faults: Faults) -> Self {
        let trace = std::env::var_os("TRACE").map(|_| Vec::new());
        Self { random, faults, flying: BTreeMap::new(), sent: 0, last: [Instant::ZERO; 2], trace }
    }

    pub fn len(&self) -> usize {
        self.flying.len()
    }

    pub fn next_event(&self) -> Option<Instant> {
        self.flying.keys().next().map(|key| key.0)
    }

    pub fn send(&mut self, now: Instant, to: usize, packet: Packet) {
        self.sent += 1;
        let bad = self.sent < self.faults.until;
        let lost = bad && self.random.chance(self.faults.loss);
        if self.trace.is_some() {
            let (seq, ack, len) = (packet.seq.0, packet.ack.map(|a| a.0), packet.payload.len());
            let fate = if lost { "LOST" } else { "" };
            let sack = packet.options.sack;
            eprintln!(
                "{now:?} ->{to} {:?} seq {seq} len {len} ack {ack:?} win {} {sack:?} {fate}",
                packet.flags, packet.window
            );
        }
        if lost {
            return;
        }
        if bad && self.random.chance(self.faults.duplicate) {
            self.fly(now, to, packet.clone(), bad);
        }
        self.fly(now, to, packet, bad);
    }

    fn fly(&mut self, now: Instant, to: usize, packet: Packet, bad: bool) {
        let jitter = self.random.between(0, self.faults.jitter.as_nanos() as u64);
        let mut at = now + self.faults.delay + Duration::from_nanos(jitter);
        if bad && self.random.chance(self.faults.reorder) {
            at += self.faults.delay;
        } else {
            // Packets that are not reordered on purpose keep their order.
            at = at.max(self.last[to]);
            self.last[to] = at;
        }
        let id = self.random.next() >> 32 | self.sent << 32;
        self.flying.insert((at, id), (to, packet));
    }

    pub fn deliver(&mut self, now: Instant) -> Option<(usize, Packet)> {
        let entry = self.flying.first_entry()?;
        if entry.key().0 > now {
            return None;
        }
        Some(entry.remove())
    }
}
