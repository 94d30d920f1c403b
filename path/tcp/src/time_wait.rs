//! TIME-WAIT: what remains of a connection that closed first (RFC 9293 §3.6.1, RFC 1337, RFC 6191).
//!
//! A record of 48 bytes in a slab of the lane, an index keyed by a secret, and a wheel of coarse buckets, as
//! Solaris has one per squeue: at 10,000 connections per second there are 600,000 records, and a timer each would
//! cost more than they do. Buckets are singly linked. A place is in a bucket from its first record on: a record that
//! ends later than its bucket (its peer repeated the FIN, or the place has a new user) moves on when the bucket is
//! emptied, and so does a place without a record, which the next record gets. All memory goes with the last record.

use core::time::Duration;
use std::collections::HashMap;

use firelane_frame::{prefer_large_pages, read_ahead};
use firelane_units::{DropReason, Instant, Port, SeqNum};
use firelane_wire::TcpFlags;

use crate::connection::Connection;
use crate::isn::TimestampClock;
use crate::segment::{SegmentIn, SegmentOut};
use crate::state::State;
use crate::tuple::{KeyedHash, Tuple};

/// The width of a wheel bucket (Solaris: 5 s; a finer one costs only empty buckets).
const TICK: Duration = Duration::from_secs(1);
/// Buckets: the longest TIME-WAIT is 10 minutes.
const BUCKETS: usize = 610;
/// Beyond the largest window that can still be in the network (Linux: 65,535 and two).
const INCARNATIONS_APART: u32 = 65_537;
/// An index of so many slots stays in a core's first caches: nothing need be fetched ahead.
const FEW: usize = 1 << 14;
/// How many places one call looks at: some tens of microseconds of a lane.
const AT_ONCE: usize = 256;
/// The end of a list.
const NIL: u32 = u32::MAX;

/// What remains of a connection when it enters TIME-WAIT.
#[derive(Clone, Copy, Debug)]
pub struct TimeWaitRecord {
    tuple: Tuple,
    snd_nxt: SeqNum,
    rcv_nxt: SeqNum,
    /// TS.Recent.
    recent: u32,
    clock: TimestampClock,
    window: u16,
    has_timestamps: bool,
}

/// A place of the slab: a record, with its own address as a number, because a host has few.
#[derive(Clone, Copy, Debug)]
struct Place {
    remote: [u8; 16],
    local: LocalId,
    local_port: Port,
    remote_port: Port,
    window: u16,
    snd_nxt: SeqNum,
    rcv_nxt: SeqNum,
    recent: u32,
    clock: TimestampClock,
    /// The tick in which the record ends; zero if there is none.
    ends: u32,
    /// The next place of its bucket.
    next: u32,
}

const _: () = assert!(size_of::<Place>() == 48);

/// A local address by number, and whether the connection had timestamps.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct LocalId(u16);

impl LocalId {
    const STAMPED: u16 = 1 << 15;

    fn number(self) -> u16 {
        self.0 & !Self::STAMPED
    }

    fn has_timestamps(self) -> bool {
        self.0 & Self::STAMPED != 0
    }
}

/// The local addresses of the records.
#[derive(Debug)]
struct Locals {
    addresses: Vec<[u8; 16]>,
    numbers: HashMap<[u8; 16], u16, KeyedHash>,
}

impl Locals {
    /// The number of an address, given to it if it has none; `None` if there are no more.
    fn intern(&mut self, address: [u8; 16]) -> Option<u16> {
        if let Some(&number) = self.numbers.get(&address) {
            return Some(number);
        }
        let number =
            u16::try_from(self.addresses.len()).ok().filter(|number| number & LocalId::STAMPED == 0)?;
        self.addresses.push(address);
        self.numbers.insert(address, number);
        Some(number)
    }
}

impl Connection {
    /// What must be kept once [`crate::Events::TIME_WAIT`] was reported and everything is sent. `None` in any
    /// other state.
    pub fn time_wait_record(&self, tuple: Tuple) -> Option<TimeWaitRecord> {
        (self.state == State::TimeWait).then(|| TimeWaitRecord {
            tuple,
            snd_nxt: self.send.space.seq(self.flight.nxt()),
            rcv_nxt: self.receive.space.seq(self.receive.nxt),
            recent: self.stamps.recent(),
            clock: self.stamps.clock(),
            window: self.receive.last_window(),
            has_timestamps: self.stamps.is_on(),
        })
    }
}

impl Place {
    /// `<SEQ=SND.NXT><ACK=RCV.NXT><CTL=ACK>`.
    fn acknowledge(&self, now: Instant) -> SegmentOut {
        let mut out = SegmentOut::control(self.snd_nxt, Some(self.rcv_nxt), TcpFlags::EMPTY);
        out.window = self.window;
        out.options.timestamps = self.local.has_timestamps().then(|| (self.clock.value(now), self.recent));
        out
    }

    /// RFC 6191 §2 and RFC 9293 §3.10.7.4 step 4: a SYN that cannot be an old duplicate opens a new incarnation.
    fn yields_to(&self, seg: &SegmentIn<'_>) -> bool {
        let newer_seq = seg.seq.after(self.rcv_nxt);
        match seg.options.timestamps {
            Some((value, _)) if self.local.has_timestamps() => {
                let step = value.wrapping_sub(self.recent) as i32;
                step > 0 || (step == 0 && newer_seq)
            }
            // The old incarnation had timestamps and the SYN has none, or none had: the numbers decide.
            _ => newer_seq,
        }
    }
}

/// What a segment for a connection in TIME-WAIT is answered with.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum TimeWaitAnswer {
    /// No such record: the segment belongs to somebody else.
    Unknown,
    /// Nothing is sent.
    Drop(DropReason),
    /// The last ACK again.
    Reply(SegmentOut),
    /// The record is gone: treat the SYN as one for a listener, with an initial number after `least_iss`.
    Reuse {
        /// Beyond everything that the old incarnation sent.
        least_iss: SeqNum,
    },
}

/// Whether our own program may open a connection on a tuple.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reopening {
    /// Nothing waits there.
    Free,
    /// It must wait.
    Waits,
    /// The record is gone: begin with an initial number after this one.
    After(SeqNum),
}

/// The records of one lane.
#[derive(Debug)]
pub struct TimeWaitTable {
    hash: KeyedHash,
    interval: Duration,
    limit: usize,
    places: Vec<Place>,
    /// Places without a record.
    spare: Vec<u32>,
    locals: Locals,
    live: usize,
    /// Open addressing, a power of two, at most three quarters full.
    index: Vec<Slot>,
    buckets: Box<[u32]>,
    /// The first tick whose bucket was not emptied.
    tick: u32,
}

impl TimeWaitTable {
    /// At most `limit` records, each for `interval`, hashed with the secret `key`.
    pub fn new(key: [u8; 16], interval: Duration, limit: usize) -> Self {
        Self {
            locals: Locals { addresses: Vec::new(), numbers: HashMap::with_hasher(KeyedHash::new(key)) },
            hash: KeyedHash::new(key),
            interval: bounded(interval),
            limit: limit.clamp(1, Slot::POSITIONS),
            places: Vec::new(),
            spare: Vec::new(),
            live: 0,
            index: Vec::new(),
            buckets: vec![NIL; BUCKETS].into_boxed_slice(),
            tick: 1,
        }
    }

    /// Records from here on stay for `interval`; those that are there keep their time, and a new one in the place of one
    /// that would have ended later may stay as long as that.
    pub fn set_interval(&mut self, interval: Duration) {
        self.interval = bounded(interval);
    }

    /// How many places there are, those without a record included.
    pub fn places(&self) -> usize {
        self.places.len()
    }

    /// The connection at a place and when its record ends, unless there is none.
    pub fn at(&self, place: u32) -> Option<(Tuple, Instant)> {
        let ends = self.places.get(place as usize).map(|place| place.ends).filter(|&ends| ends != 0)?;
        Some((self.tuple_at(place), Instant::ZERO + TICK * ends))
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.live
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.live == 0
    }

    /// What the records take, with their index and room to grow.
    pub fn allocated_bytes(&self) -> usize {
        let words = self.spare.capacity() + self.index.capacity() + self.buckets.len();
        let locals = self.locals.addresses.capacity() + self.locals.numbers.capacity();
        self.places.capacity() * size_of::<Place>()
            + words * size_of::<u32>()
            + locals * size_of::<[u8; 16]>()
    }

    /// Starts to fetch what the index has of a tuple that is asked for soon, among so many that it is in no cache.
    pub fn look_ahead(&self, tuple: &Tuple) {
        if self.index.len() > FEW {
            read_ahead(&self.index[self.home(self.hash.of(tuple))]);
        }
    }

    /// Keeps `record` for the interval; an older one of the same tuple is replaced. Says whether there was room:
    /// beyond the limit the connection is simply gone, as on Linux.
    pub fn insert(&mut self, now: Instant, record: TimeWaitRecord) -> bool {
        let hash = self.hash.of(&record.tuple);
        if let Some(slot) = self.find_under(hash, &record.tuple) {
            self.kill(slot);
        }
        if self.live == 0 && self.tick < tick_of(now) {
            self.clear(tick_of(now));
        }
        if self.live >= self.limit {
            return false;
        }
        let Some(place) = self.place_of(record, now) else { return false };
        self.live += 1;
        self.grow_index();
        let position = self.put(place);
        self.index_insert(hash, position);
        true
    }

    /// Whether `tuple` has a record of a connection that a segment with this number is of: it is not beyond its end.
    pub fn has(&self, tuple: &Tuple, seq: SeqNum) -> bool {
        self.find(tuple).is_some_and(|slot| !seq.after(self.places[self.index[slot].position()].rcv_nxt))
    }

    /// A segment came for `tuple`. Where nobody hears it (`is_heard`), a SYN opens nothing and ends no record, which its
    /// sender's next FIN may need (RFC 1337).
    pub fn on_segment(
        &mut self,
        now: Instant,
        tuple: &Tuple,
        seg: &SegmentIn<'_>,
        is_heard: bool,
    ) -> TimeWaitAnswer {
        let Some(slot) = self.find(tuple) else { return TimeWaitAnswer::Unknown };
        let record = &mut self.places[self.index[slot].position()];
        // RFC 1337: a RST must not end TIME-WAIT early.
        if seg.has(TcpFlags::RST) {
            return TimeWaitAnswer::Drop(DropReason::Unacceptable);
        }
        if is_heard && seg.has(TcpFlags::SYN) && seg.ack.is_none() && record.yields_to(seg) {
            let least_iss = record.snd_nxt + INCARNATIONS_APART;
            self.kill(slot);
            return TimeWaitAnswer::Reuse { least_iss };
        }
        // RFC 9293 §3.10.7.4 step 8: a repeated FIN is acknowledged and restarts the time.
        if seg.has(TcpFlags::FIN) && seg.end() == record.rcv_nxt {
            record.ends = tick_of(now + self.interval) + 1;
        }
        let bare = seg.is_empty() && seg.seq == record.rcv_nxt;
        if bare {
            return TimeWaitAnswer::Drop(DropReason::Unacceptable);
        }
        TimeWaitAnswer::Reply(record.acknowledge(now))
    }

    /// Our own program wants the tuple again (RFC 6191 §2 from the other end, as Linux' `tcp_tw_reuse`): with timestamps
    /// nothing old can be taken for new once their clock has moved, for which Linux, too, gives it a second.
    pub fn reopen(&mut self, now: Instant, tuple: &Tuple) -> Reopening {
        let Some(slot) = self.find(tuple) else { return Reopening::Free };
        let record = &self.places[self.index[slot].position()];
        let began = record.ends.saturating_sub((self.interval.as_millis() / TICK.as_millis()) as u32 + 1);
        let is_apart = record.local.has_timestamps() && tick_of(now) >= began + 2;
        if !is_apart {
            return Reopening::Waits;
        }
        let least_iss = record.snd_nxt + INCARNATIONS_APART;
        self.kill(slot);
        Reopening::After(least_iss)
    }

    /// When [`TimeWaitTable::on_timer`] has something to do; early at worst.
    pub fn poll_at(&self) -> Option<Instant> {
        if self.live == 0 {
            return None;
        }
        let first =
            (0..BUCKETS as u32).find(|ahead| self.buckets[(self.tick + ahead) as usize % BUCKETS] != NIL)?;
        Some(Instant::ZERO + TICK * (self.tick + first - 1))
    }

    /// Forgets what has waited long enough, so much of it that packets do not wait for it: what is left is due still.
    pub fn on_timer(&mut self, now: Instant) {
        let due = tick_of(now);
        let mut room = AT_ONCE;
        while self.tick <= due {
            if self.live == 0 {
                self.clear(due + 1);
                return;
            }
            if room == 0 {
                return;
            }
            room = self.empty_bucket(self.tick, room);
            self.tick += u32::from(room > 0);
        }
    }

    /// Gives all memory back: there is no record. The next bucket to be emptied is that of `tick`.
    fn clear(&mut self, tick: u32) {
        self.tick = tick;
        if !self.places.is_empty() {
            (self.places, self.spare, self.index) = (Vec::new(), Vec::new(), Vec::new());
            self.locals.addresses = Vec::new();
            self.locals.numbers.clear();
            self.locals.numbers.shrink_to_fit();
            self.buckets.fill(NIL);
        }
    }

    /// Goes through a bucket, or so much of it as there is room for; how much room is left.
    fn empty_bucket(&mut self, tick: u32, room: usize) -> usize {
        // The bucket of a record that begins now: no later one ends before it.
        let far = tick + (self.interval.as_secs() / TICK.as_secs()) as u32 + 1;
        let bucket = tick as usize % BUCKETS;
        let mut at = core::mem::replace(&mut self.buckets[bucket], NIL);
        for left in (0..room).rev() {
            if at == NIL {
                return left + 1;
            }
            let Place { ends, next, .. } = self.places[at as usize];
            if ends > tick {
                self.link(at, ends);
            } else {
                if ends != 0 {
                    self.unindex(at);
                    self.release(at);
                }
                self.link(at, far);
            }
            at = next;
        }
        self.buckets[bucket] = at;
        0
    }

    fn place_of(&mut self, record: TimeWaitRecord, now: Instant) -> Option<Place> {
        let TimeWaitRecord { tuple, snd_nxt, rcv_nxt, recent, clock, window, has_timestamps } = record;
        let ([local, remote], [local_port, remote_port]) = tuple.parts();
        let stamped = if has_timestamps { LocalId::STAMPED } else { 0 };
        let local = LocalId(self.locals.intern(local)? | stamped);
        let ends = tick_of(now + self.interval) + 1;
        let next = NIL;
        Some(Place {
            remote,
            local,
            local_port,
            remote_port,
            window,
            snd_nxt,
            rcv_nxt,
            recent,
            clock,
            ends,
            next,
        })
    }

    fn tuple_at(&self, position: u32) -> Tuple {
        let place = &self.places[position as usize];
        let local = self.locals.addresses[usize::from(place.local.number())];
        Tuple::from_parts([local, place.remote], [place.local_port, place.remote_port])
    }

    /// Puts a record into a spare place, which stays in its bucket, or into a new one.
    fn put(&mut self, place: Place) -> u32 {
        if let Some(position) = self.spare.pop() {
            let old = &mut self.places[position as usize];
            *old = Place { next: old.next, ..place };
            return position;
        }
        if self.places.len() == self.places.capacity() {
            self.places.reserve_exact((self.places.len() / 32).max(GROWTH_MIN));
        }
        let position = self.places.len() as u32;
        self.places.push(place);
        self.link(position, place.ends);
        position
    }

    /// Puts a place into the bucket of a tick.
    fn link(&mut self, position: u32, tick: u32) {
        let bucket = &mut self.buckets[tick as usize % BUCKETS];
        self.places[position as usize].next = *bucket;
        *bucket = position;
    }

    /// A place that nothing in the index names is spare.
    fn release(&mut self, position: u32) {
        self.places[position as usize].ends = 0;
        self.spare.push(position);
        self.live -= 1;
    }

    fn kill(&mut self, slot: usize) {
        let position = self.index[slot].position() as u32;
        self.index_remove(slot);
        self.release(position);
    }
}

/// The fewest places that the slab grows by.
const GROWTH_MIN: usize = 256;

/// A slot of the index: a position, how far it is from home, and bits of the hash. Both spare most looks at a place of somebody
/// else's, and who takes one out of the index need not ask the places of those behind him where they belong.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Slot(u32);

impl Slot {
    const EMPTY: Self = Self(u32::MAX);
    const POSITION_BITS: u32 = 20;
    /// How many positions there are, the last one left out: with it a slot could look empty.
    const POSITIONS: usize = (1 << Self::POSITION_BITS) - 1;
    const DISTANCE_BITS: u32 = 5;
    /// So far from home or farther.
    const FAR: usize = (1 << Self::DISTANCE_BITS) - 1;

    fn new(hash: u64, distance: usize, position: u32) -> Self {
        let bits = (hash >> 32) as u32 & (u32::MAX << (Self::POSITION_BITS + Self::DISTANCE_BITS));
        Self(bits | position).at_distance(distance)
    }

    fn position(self) -> usize {
        (self.0 & Self::POSITIONS as u32) as usize
    }

    /// How far it is from home, if that is told.
    fn distance(self) -> Option<usize> {
        let distance = self.0 as usize >> Self::POSITION_BITS & Self::FAR;
        (distance < Self::FAR).then_some(distance)
    }

    fn at_distance(self, distance: usize) -> Self {
        let others = self.0 & !((Self::FAR as u32) << Self::POSITION_BITS);
        Self(others | (distance.min(Self::FAR) as u32) << Self::POSITION_BITS)
    }
}

/// The open-addressing index: linear probing with backward-shift deletion.
impl TimeWaitTable {
    fn home(&self, hash: u64) -> usize {
        hash as usize & (self.index.len() - 1)
    }

    fn find(&self, tuple: &Tuple) -> Option<usize> {
        if self.live == 0 { None } else { self.find_under(self.hash.of(tuple), tuple) }
    }

    fn find_under(&self, hash: u64, tuple: &Tuple) -> Option<usize> {
        if self.index.is_empty() {
            return None;
        }
        let (home, mask) = (self.home(hash), self.index.len() - 1);
        for distance in 0.. {
            let at = (home + distance) & mask;
            let slot = self.index[at];
            if slot == Slot::EMPTY {
                break;
            }
            let position = slot.position() as u32;
            if slot == Slot::new(hash, distance, position) && self.tuple_at(position) == *tuple {
                return Some(at);
            }
        }
        None
    }

    fn unindex(&mut self, position: u32) {
        if let Some(slot) = self.find(&self.tuple_at(position)) {
            self.index_remove(slot);
        }
    }

    fn index_insert(&mut self, hash: u64, position: u32) {
        let (home, mask) = (self.home(hash), self.index.len() - 1);
        let mut distance = 0;
        while self.index[(home + distance) & mask] != Slot::EMPTY {
            distance += 1;
        }
        self.index[(home + distance) & mask] = Slot::new(hash, distance, position);
    }

    fn index_remove(&mut self, slot: usize) {
        let mask = self.index.len() - 1;
        let mut hole = slot;
        self.index[hole] = Slot::EMPTY;
        let mut probe = (hole + 1) & mask;
        while self.index[probe] != Slot::EMPTY {
            let distance = self.distance(probe);
            let gap = probe.wrapping_sub(hole) & mask;
            // Whether the hole lies on the way from the entry's home to where it is.
            if distance >= gap {
                let moved = core::mem::replace(&mut self.index[probe], Slot::EMPTY);
                self.index[hole] = moved.at_distance(distance - gap);
                hole = probe;
            }
            probe = (probe + 1) & mask;
        }
    }

    /// How far from home the entry of a slot is.
    fn distance(&self, slot: usize) -> usize {
        let entry = self.index[slot];
        entry.distance().unwrap_or_else(|| {
            let home = self.home(self.hash.of(&self.tuple_at(entry.position() as u32)));
            slot.wrapping_sub(home) & (self.index.len() - 1)
        })
    }

    fn grow_index(&mut self) {
        if self.live * 4 <= self.index.len() * 3 {
            return;
        }
        let slots = (self.index.len() * 2).max(16);
        self.index = Vec::with_capacity(slots);
        prefer_large_pages(&mut self.index);
        self.index.resize(slots, Slot::EMPTY);
        // The places lie side by side; in the order of the index each of them would be waited for.
        for position in 0..self.places.len() as u32 {
            if self.places[position as usize].ends != 0 {
                self.index_insert(self.hash.of(&self.tuple_at(position)), position);
            }
        }
    }
}

/// What the wheel can count.
fn bounded(interval: Duration) -> Duration {
    interval.clamp(TICK, TICK * (BUCKETS as u32 - 2))
}

/// The tick that `now` lies in; ticks begin at one, so that zero can mark a dead record.
fn tick_of(now: Instant) -> u32 {
    (now.millis() / TICK.as_millis() as u64) as u32 + 1
}

#[cfg(test)]
mod tests;
