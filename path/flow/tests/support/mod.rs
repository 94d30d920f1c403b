//! A table of flows in virtual time, with senders that are worse than real ones: they send without pause and ignore drops.

#![allow(dead_code, unreachable_pub, clippy::unwrap_used)] // Each test file uses its part of it.

use core::net::Ipv4Addr;
use core::time::Duration;

use firelane_flow::{Counters, FlowConfig, FlowTable, Verdict};
use firelane_frame::{Frame, Pools, PoolsConfig};
use firelane_units::{BitRate, Direction, DropCounters, DropReason, FlowId, Instant, Priority};
use firelane_wire::{EtherType, IpProtocol, Ipv4Repr};

pub const IN: Direction = Direction::In;
pub const OUT: Direction = Direction::Out;
pub const LINK: FlowId = FlowId(0);
/// What a limiter forgives a late lane.
pub const SLACK: Duration = Duration::from_micros(500);

/// A table, the frames' source, and everything that passed.
pub struct World {
    pub flows: FlowTable,
    pub pools: Pools,
    pub drops: DropCounters,
    pub now: Instant,
    pub sent: u32,
    pub passed: Vec<Passed>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Passed {
    pub at: Instant,
    pub flow: FlowId,
    pub direction: Direction,
    pub bytes: u64,
    pub serial: u32,
}

impl World {
    pub fn new() -> Self {
        Self {
            flows: FlowTable::new(),
            pools: Pools::new(PoolsConfig { small_slots: 8192, large_slots: 64 }),
            drops: DropCounters::default(),
            now: Instant::from_secs(1),
            sent: 0,
            passed: vec![],
        }
    }

    pub fn add(
        &mut self,
        flow: u32,
        parent: Option<u32>,
        maxbw: Option<BitRate>,
        priority: Priority,
    ) -> FlowId {
        let config = FlowConfig { parent: parent.map(FlowId), maxbw, priority };
        self.flows.insert(self.now, FlowId(flow), config).unwrap();
        FlowId(flow)
    }

    pub fn limited(&mut self, flow: u32, parent: Option<u32>, mbps: u64) -> FlowId {
        self.add(flow, parent, Some(BitRate::from_mbps(mbps)), Priority::Medium)
    }

    pub fn free(&mut self, flow: u32, parent: Option<u32>) -> FlowId {
        self.add(flow, parent, None, Priority::Medium)
    }

    pub fn frame(&mut self, bytes: usize) -> Frame {
        let mut frame = self.pools.take(bytes).expect("the pool is larger than what may be held");
        frame.append(bytes).fill(0);
        frame.as_mut_slice()[..4].copy_from_slice(&self.sent.to_be_bytes());
        self.sent += 1;
        frame
    }

    pub fn send(&mut self, flow: FlowId, direction: Direction, bytes: usize) {
        let frame = self.frame(bytes);
        self.admit(flow, direction, frame);
    }

    /// Sends a datagram of a conversation, and answers its number.
    pub fn send_of(&mut self, flow: FlowId, conversation: u16, bytes: usize) -> u32 {
        let mut frame = self.frame(bytes);
        let header = frame.as_mut_slice();
        header[12..14].copy_from_slice(&EtherType::IPV4.0.to_be_bytes());
        let [src, dst] = [Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2)];
        Ipv4Repr::new(src, dst, IpProtocol::UDP, bytes as u16 - 34).emit(&mut header[14..]);
        header[34..36].copy_from_slice(&conversation.to_be_bytes());
        self.admit(flow, IN, frame);
        self.sent - 1
    }

    pub fn admit(&mut self, flow: FlowId, direction: Direction, frame: Frame) {
        match self.flows.admit(self.now, flow, direction, frame) {
            Verdict::Pass(frame) => self.note(direction, flow, &frame),
            Verdict::Held => {}
            Verdict::Drop(frame, reason) => {
                self.drops.count(reason);
                self.pools.put(frame);
            }
        }
    }

    pub fn note(&mut self, direction: Direction, flow: FlowId, frame: &Frame) {
        let serial = u32::from_be_bytes(*frame.as_slice().first_chunk().unwrap());
        self.passed.push(Passed { at: self.now, flow, direction, bytes: frame.wire_bytes() as u64, serial });
    }

    pub fn release(&mut self) -> Option<Instant> {
        let mut out = vec![];
        let next = self.flows.release(self.now, &mut self.drops, |d, f, frame| out.push((d, f, frame)));
        out.iter().for_each(|(d, f, frame)| self.note(*d, *f, frame));
        next
    }

    /// Lets these flows send as much as they like for `span`, with a lane that turns every 100 us.
    pub fn saturate(&mut self, flows: &[(FlowId, usize)], span: Duration) {
        let end = self.now + span;
        while self.now < end {
            self.release();
            for &(flow, bytes) in flows {
                // Two ticks at 1 Gb/s are more than any flow here is given in one turn.
                for _ in 0..(20_000 / bytes) {
                    self.send(flow, IN, bytes);
                }
            }
            self.now += Duration::from_micros(100);
        }
    }

    pub fn drain(&mut self) {
        for _ in 0..1_000_000 {
            match self.release() {
                Some(next) => self.now = self.now.max(next),
                None => return,
            }
        }
        panic!("frames are held for ever");
    }

    pub fn bytes_of(&self, flow: FlowId, from: Instant) -> u64 {
        self.passed.iter().filter(|p| p.flow == flow && p.at >= from).map(|p| p.bytes).sum()
    }

    pub fn counters(&self, flow: FlowId, direction: Direction) -> Counters {
        self.flows.counters(flow, direction).unwrap()
    }

    /// In = passed + held + dropped, for every flow and direction and for the whole.
    pub fn assert_conservation(&self) {
        let (mut arrived, mut held, mut dropped) = (0, 0, 0);
        for flow in self.flows.flows() {
            for direction in Direction::ALL {
                let c = self.counters(flow, direction);
                let (waiting, _) = self.flows.held(flow, direction).unwrap();
                assert_eq!(c.arrived, c.passed + c.dropped + waiting as u64, "{flow} {direction:?}");
                let seen = self.passed.iter().filter(|p| p.flow == flow && p.direction == direction);
                assert_eq!(c.passed, seen.clone().count() as u64);
                assert_eq!(c.bytes, seen.map(|p| p.bytes).sum::<u64>());
                arrived += c.arrived;
                held += waiting;
                dropped += c.dropped;
            }
        }
        assert_eq!(arrived, u64::from(self.sent));
        assert_eq!(held, self.flows.held_frames());
        assert_eq!(dropped, self.drops.of(DropReason::FlowLimit));
    }
}

pub fn assert_share(bytes: u64, rate: BitRate, span: Duration) {
    let wanted = rate.bytes_in(span).0;
    assert!(bytes.abs_diff(wanted) <= (wanted / 100).max(2 * 1514), "{bytes} B, wanted {wanted}");
}
