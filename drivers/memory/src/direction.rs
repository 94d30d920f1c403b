//! One direction of a simulated wire: a queue, a rate, faults and a delay, in virtual time.
//!
//! Called by `end.rs`, under its lock. Each frame's fate is decided when it is offered; what is left is when
//! it arrives. A frame that is lost still takes its time on the wire. What is under way lies in memory of the wire's own: a
//! long wire would otherwise keep the buffers of a lane from everybody else.

use core::cmp::Ordering;
use core::time::Duration;
use std::collections::{BinaryHeap, VecDeque};

use firelane_frame::{Chain, Frame, FrameMeta, Pools, offload};
use firelane_units::{DropCounters, DropReason, Instant};

use crate::chance::Random;
use crate::conditions::{Conditions, Corruption, GilbertElliott, Loss, Mark, Reorder};
use crate::mark::mark;

/// An Ethernet header; what lies behind is what an MTU limits, and what a receiver can check.
const ETHERNET_BYTES: usize = 14;

/// What became of the frames of one direction. `sent + duplicated = delivered + lost + queued`, where lost
/// is `dropped_loss + dropped_full + dropped_long + dropped_buffer`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct WireCounters {
    /// Frames that the sender gave.
    pub sent: u64,
    /// Their bytes.
    pub sent_bytes: u64,
    /// Frames that the receiver got.
    pub delivered: u64,
    /// Lost as the conditions asked.
    pub dropped_loss: u64,
    /// Found the queue full.
    pub dropped_full: u64,
    /// Larger than the path's MTU.
    pub dropped_long: u64,
    /// Found no buffer at the far end.
    pub dropped_buffer: u64,
    /// Second copies.
    pub duplicated: u64,
    /// Arrive, or arrived, with the mark "congestion experienced".
    pub marked: u64,
    /// Arrive, or arrived, with a flipped bit.
    pub corrupted: u64,
    /// Arrive, or arrived, after later ones.
    pub reordered: u64,
    /// Waiting or on their way.
    pub queued: u64,
}

impl WireCounters {
    /// Frames that will not arrive.
    pub fn lost(&self) -> u64 {
        self.dropped_loss + self.dropped_full + self.dropped_long + self.dropped_buffer
    }
}

pub(crate) struct Direction {
    conditions: Conditions,
    random: Random,
    now: Instant,
    sender: Sender,
    /// Frames offered since the conditions were set.
    index: u64,
    /// The Gilbert-Elliott state.
    is_bad: bool,
    flying: BinaryHeap<Flight>,
    held: Vec<Held>,
    /// The bytes of both.
    flying_bytes: u64,
    /// The latest arrival in order, before which no later frame arrives unless it is reordered.
    latest: Instant,
    order: u64,
    counters: WireCounters,
}

/// A frame that will arrive.
struct Flight {
    bytes: Box<[u8]>,
    meta: FrameMeta,
    departs: Instant,
    /// Delay beyond the conditions' own.
    extra: Duration,
    arrives: Instant,
    order: u64,
    /// Later frames may arrive earlier.
    is_overtaken: bool,
    is_double: bool,
}

/// A frame that waits for later ones to pass.
struct Held {
    flight: Flight,
    remaining: u32,
}

impl Direction {
    pub(crate) fn new(seed: u64, conditions: Conditions) -> Self {
        Self {
            conditions,
            random: Random::new(seed),
            now: Instant::ZERO,
            sender: Sender::default(),
            index: 0,
            is_bad: false,
            flying: BinaryHeap::new(),
            held: Vec::new(),
            flying_bytes: 0,
            latest: Instant::ZERO,
            order: 0,
            counters: WireCounters::default(),
        }
    }

    pub(crate) fn conditions(&self) -> &Conditions {
        &self.conditions
    }

    pub(crate) fn counters(&self) -> WireCounters {
        let queued = self.flying.len() + self.held.len();
        WireCounters { queued: queued as u64, ..self.counters }
    }

    /// Changes the conditions. Frames that have left keep their time of arrival; those that wait leave at
    /// the new rate.
    pub(crate) fn set_conditions(&mut self, conditions: Conditions) {
        self.conditions = conditions;
        self.index = 0;
        self.sender = Sender::default();
        self.latest = Instant::ZERO;
        let waits = |held: &mut Held| held.flight.departs > self.now;
        let mut flights: Vec<Flight> = self.held.extract_if(.., waits).map(|held| held.flight).collect();
        flights.extend(self.flying.drain());
        flights.sort_unstable_by_key(|flight| flight.order);
        for mut flight in flights {
            if flight.departs > self.now {
                let bytes = flight.wire_bytes();
                flight.departs = self.sender.send(self.now, bytes, self.conditions.rate);
                flight.arrives = flight.departs + self.conditions.delay + flight.extra;
            }
            if !flight.is_overtaken {
                self.latest = self.latest.max(flight.arrives);
                flight.arrives = self.latest;
            }
            self.flying.push(flight);
        }
    }

    /// Takes a frame in, or says why it does not arrive.
    pub(crate) fn offer(&mut self, now: Instant, mut frame: Frame) -> Result<(), DropReason> {
        self.now = self.now.max(now);
        self.counters.sent += 1;
        self.counters.sent_bytes += frame.len() as u64;
        let index = self.index;
        self.index += 1;
        let waiting = self.sender.waiting(self.now);
        let departs = self.admit(&frame, waiting).inspect_err(|reason| match reason {
            DropReason::TooLong => self.counters.dropped_long += 1,
            _ => self.counters.dropped_full += 1,
        })?;
        if self.conditions.blackhole || self.is_lost(index) {
            self.counters.dropped_loss += 1;
            return Err(DropReason::WireLoss);
        }
        if self.is_marked(waiting) && mark(&mut frame) {
            self.counters.marked += 1;
        }
        if self.random.happens(self.conditions.corrupt) {
            self.corrupt(&mut frame);
        }
        self.fly(&frame, departs);
        Ok(())
    }

    /// When the frame has left, if it is short enough and the queue has room.
    fn admit(&mut self, frame: &Frame, waiting: u64) -> Result<Instant, DropReason> {
        let packet_bytes = frame.meta().segmentation.map_or(frame.len(), |cut| {
            frame.len().min(usize::from(cut.header_bytes) + usize::from(cut.segment_bytes))
        });
        let mtu = self.conditions.mtu.map_or(usize::MAX, |mtu| usize::from(mtu.bytes()));
        if packet_bytes.saturating_sub(ETHERNET_BYTES) > mtu {
            return Err(DropReason::TooLong);
        }
        let bytes = frame.wire_bytes() as u64;
        let is_queue_full = waiting > 0 && waiting + bytes > self.conditions.queue.0;
        if is_queue_full || self.flying_bytes + frame.len() as u64 > self.conditions.flight.0 {
            return Err(DropReason::RingFull);
        }
        Ok(self.sender.send(self.now, bytes, self.conditions.rate))
    }

    fn is_lost(&mut self, index: u64) -> bool {
        match &self.conditions.loss {
            Loss::None => false,
            Loss::Random(chance) => self.random.happens(*chance),
            Loss::Scripted(indices) => indices.contains(&index),
            Loss::Burst(GilbertElliott { worsen, recover, loss_good, loss_bad }) => {
                let changes = self.random.happens(if self.is_bad { *recover } else { *worsen });
                self.is_bad ^= changes;
                self.random.happens(if self.is_bad { *loss_bad } else { *loss_good })
            }
        }
    }

    /// Whether a frame that finds so much waiting is to be marked.
    fn is_marked(&mut self, waiting: u64) -> bool {
        match self.conditions.mark {
            Mark::None => false,
            Mark::Random(chance) => self.random.happens(chance),
            Mark::Above(bytes) => waiting > bytes.0,
        }
    }

    /// Flips one bit behind the Ethernet header, which no checksum of ours covers.
    fn corrupt(&mut self, frame: &mut Frame) {
        let first = ETHERNET_BYTES.min(frame.len());
        let bits = (frame.len() - first) as u64 * 8;
        // A frame whose meta contradicts it is corrupt as it is.
        if bits == 0 || offload::complete_checksum(frame).is_err() {
            return;
        }
        let bit = self.random.below(bits) as usize;
        frame.as_mut_slice()[first + bit / 8] ^= 1 << (bit % 8);
        frame.meta_mut().checksum = match self.conditions.corruption {
            Corruption::Shows => firelane_frame::Checksum::Unchecked,
            Corruption::Hidden => firelane_frame::Checksum::Verified,
        };
        self.counters.corrupted += 1;
    }

    /// Gives the frame its time of arrival.
    fn fly(&mut self, frame: &Frame, departs: Instant) {
        let jitter = self.random.duration_up_to(self.conditions.jitter);
        let in_time = departs + self.conditions.delay + jitter;
        let is_double = self.random.happens(self.conditions.duplicate);
        let order = self.next_order();
        self.flying_bytes += frame.len() as u64;
        let flight = Flight {
            bytes: frame.as_slice().into(),
            meta: *frame.meta(),
            departs,
            extra: jitter,
            arrives: in_time,
            order,
            is_overtaken: true,
            is_double,
        };
        match self.conditions.reorder {
            Reorder::Delay { chance, extra } if self.random.happens(chance) => {
                self.counters.reordered += 1;
                self.flying.push(Flight { extra: jitter + extra, arrives: in_time + extra, ..flight });
            }
            Reorder::Positions { chance, later, at_most } if later > 0 && self.random.happens(chance) => {
                self.counters.reordered += 1;
                let flight = Flight { arrives: in_time + at_most, ..flight };
                self.held.push(Held { flight, remaining: later });
            }
            _ => {
                // Rate and jitter keep the order; only a reordered frame is overtaken.
                self.latest = self.latest.max(in_time);
                self.flying.push(Flight { arrives: self.latest, is_overtaken: false, ..flight });
                self.let_go_of_held(self.latest);
            }
        }
    }

    fn next_order(&mut self) -> u64 {
        self.order += 1;
        self.order
    }

    /// A frame that arrives at `passed` passes those that are held. None waits longer than it has to: what passes it
    /// may itself arrive much later, or never.
    fn let_go_of_held(&mut self, passed: Instant) {
        self.held.iter_mut().for_each(|held| held.remaining -= 1);
        let free = self.held.extract_if(.., |held| held.remaining == 0);
        for Held { flight, .. } in free {
            self.order += 1;
            let arrives = passed.min(flight.arrives);
            self.flying.push(Flight { arrives, order: self.order, ..flight });
        }
    }

    /// Hands over up to `budget` frames that have arrived.
    pub(crate) fn deliver(
        &mut self,
        now: Instant,
        pools: &mut Pools,
        budget: usize,
        out: &mut Chain,
        drops: &mut DropCounters,
    ) -> usize {
        self.now = self.now.max(now);
        self.flying.extend(self.held.extract_if(.., |held| held.flight.arrives <= now).map(|h| h.flight));
        let mut delivered = 0;
        while delivered < budget && self.flying.peek().is_some_and(|first| first.arrives <= now) {
            let Some(mut flight) = self.flying.pop() else { break };
            let arrived = flight.arrive(pools);
            let is_second = core::mem::take(&mut flight.is_double);
            match arrived {
                Some(frame) => {
                    out.push(frame);
                    delivered += 1;
                    self.counters.duplicated += u64::from(is_second);
                }
                None => {
                    drops.count(DropReason::NoBuffer);
                    self.counters.dropped_buffer += u64::from(!is_second);
                }
            }
            if is_second {
                self.flying.push(flight);
            } else {
                self.flying_bytes -= flight.bytes.len() as u64;
            }
        }
        self.counters.delivered += delivered as u64;
        delivered
    }

    /// Whether a frame has arrived at `now`.
    pub(crate) fn has_arrived(&self, now: Instant) -> bool {
        self.next_arrival().is_some_and(|at| at <= now)
    }

    /// When the next frame arrives, if no other is sent.
    pub(crate) fn next_arrival(&self) -> Option<Instant> {
        let held = self.held.iter().map(|held| held.flight.arrives);
        let first = self.flying.peek().map(|flight| flight.arrives).into_iter().chain(held).min();
        first.filter(|&at| at < Instant::FAR_FUTURE)
    }
}

impl Flight {
    /// The frame in a buffer of the receiver's, if there is one.
    fn arrive(&self, pools: &mut Pools) -> Option<Frame> {
        let mut frame = pools.copy_of(&self.bytes)?;
        *frame.meta_mut() = self.meta;
        Some(frame)
    }

    /// As [`Frame::wire_bytes`].
    fn wire_bytes(&self) -> u64 {
        let len = self.bytes.len();
        self.meta.segmentation.map_or(len, |cut| cut.wire_bytes(len)) as u64
    }

    fn key(&self) -> (Instant, u64) {
        (self.arrives, self.order)
    }
}

impl PartialEq for Flight {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl Eq for Flight {}

impl PartialOrd for Flight {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Flight {
    /// The earliest is the greatest, for the heap.
    fn cmp(&self, other: &Self) -> Ordering {
        other.key().cmp(&self.key())
    }
}

/// Sends frames one after the other at a rate, exactly: the fraction of a nanosecond that a frame leaves
/// over is charged to the next.
#[derive(Default)]
struct Sender {
    busy_until: Instant,
    /// In nanoseconds times bits per second.
    remainder: u128,
    /// When each frame that waits has left, and its bytes.
    queue: VecDeque<(Instant, u64)>,
    queued_bytes: u64,
}

impl Sender {
    /// Bytes that have not left.
    fn waiting(&mut self, now: Instant) -> u64 {
        while let Some(&(departs, bytes)) = self.queue.front().filter(|(departs, _)| *departs <= now) {
            debug_assert!(departs <= now);
            self.queued_bytes -= bytes;
            self.queue.pop_front();
        }
        self.queued_bytes
    }

    fn send(&mut self, now: Instant, bytes: u64, rate: Option<firelane_units::BitRate>) -> Instant {
        let Some(rate) = rate else { return now };
        if self.busy_until < now {
            (self.busy_until, self.remainder) = (now, 0);
        }
        let total = u128::from(bytes) * 8 * 1_000_000_000 + self.remainder;
        let bps = u128::from(rate.bps());
        self.busy_until = match (total.checked_div(bps), total.checked_rem(bps)) {
            (Some(nanos), Some(remainder)) => {
                self.remainder = remainder;
                self.busy_until + Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
            }
            // At rate zero nothing leaves.
            _ => Instant::FAR_FUTURE,
        };
        self.queue.push_back((self.busy_until, bytes));
        self.queued_bytes += bytes;
        self.busy_until
    }
}
