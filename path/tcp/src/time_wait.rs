//! TIME-WAIT: what remains of a connection that closed first (RFC 9293 §3.6.1, RFC 1337, RFC 6191).
//!
//! A record of 64 bytes in a slab of the lane, an index keyed by a secret, and a wheel of coarse buckets, as
//! Solaris has one per squeue: at 10,000 connections per second there are 600,000 records, and a timer each would
//! cost more than they do. Buckets are singly linked; a record that lives longer than its bucket (its peer
//! repeated the FIN) moves on when the bucket is emptied, and one that is reused is left behind as dead.

use core::time::Duration;

use firelane_units::{DropReason, Instant, SeqNum};
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
/// The end of a list.
const NIL: u32 = u32::MAX;

/// What is kept of a connection in TIME-WAIT.
#[derive(Clone, Copy, Debug)]
pub struct TimeWaitRecord {
    tuple: Tuple,
    snd_nxt: SeqNum,
    rcv_nxt: SeqNum,
    /// TS.Recent.
    recent: u32,
    clock: TimestampClock,
    /// The tick in which it ends; zero marks a dead record.
    ends: u32,
    /// The next record of its bucket, or of the free list.
    next: u32,
    window: u16,
    has_timestamps: bool,
}

const _: () = assert!(size_of::<TimeWaitRecord>() <= 64);

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
            ends: 0,
            next: NIL,
            window: self.receive.last_window(),
            has_timestamps: self.stamps.is_on(),
        })
    }
}

impl TimeWaitRecord {
    /// `<SEQ=SND.NXT><ACK=RCV.NXT><CTL=ACK>`.
    fn acknowledge(&self, now: Instant) -> SegmentOut {
        let mut out = SegmentOut::control(self.snd_nxt, Some(self.rcv_nxt), TcpFlags::EMPTY);
        out.window = self.window;
        out.options.timestamps = self.has_timestamps.then(|| (self.clock.value(now), self.recent));
        out
    }

    /// RFC 6191 §2 and RFC 9293 §3.10.7.4 step 4: a SYN that cannot be an old duplicate opens a new incarnation.
    fn yields_to(&self, seg: &SegmentIn<'_>) -> bool {
        let newer_seq = seg.seq.after(self.rcv_nxt);
        match seg.options.timestamps {
            Some((value, _)) if self.has_timestamps => {
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
    records: Vec<TimeWaitRecord>,
    free: u32,
    live: usize,
    /// Open addressing, a power of two, at most half full: positions in `records`.
    index: Vec<u32>,
    buckets: Box<[u32]>,
    /// The first tick whose bucket was not emptied.
    tick: u32,
}

impl TimeWaitTable {
    /// At most `limit` records, each for `interval`, hashed with the secret `key`.
    pub fn new(key: [u8; 16], interval: Duration, limit: usize) -> Self {
        Self {
            hash: KeyedHash::new(key),
            interval: bounded(interval),
            limit: limit.clamp(1, NIL as usize - 1),
            records: Vec::new(),
            free: NIL,
            live: 0,
            index: Vec::new(),
            buckets: vec![NIL; BUCKETS].into_boxed_slice(),
            tick: 1,
        }
    }

    /// Records from here on stay for `interval`; those that are there keep their time.
    pub fn set_interval(&mut self, interval: Duration) {
        self.interval = bounded(interval);
    }

    /// How many places there are, dead ones included.
    pub fn places(&self) -> usize {
        self.records.len()
    }

    /// The connection at a place and when its record ends, unless the place is free.
    pub fn at(&self, place: u32) -> Option<(Tuple, Instant)> {
        let record = self.records.get(place as usize).filter(|record| record.ends != 0)?;
        Some((record.tuple, Instant::ZERO + TICK * record.ends))
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.live
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.live == 0
    }

    /// Keeps `record` for the interval; an older one of the same tuple is replaced. Says whether there was room:
    /// beyond the limit the connection is simply gone, as on Linux.
    pub fn insert(&mut self, now: Instant, mut record: TimeWaitRecord) -> bool {
        if let Some(slot) = self.find(&record.tuple) {
            self.kill(slot);
        }
        if self.live == 0 {
            self.tick = self.tick.max(tick_of(now));
        }
        if self.live >= self.limit {
            return false;
        }
        record.ends = tick_of(now + self.interval) + 1;
        let position = self.place(record);
        self.link(position);
        self.live += 1;
        self.grow_index();
        self.index_insert(position);
        true
    }

    /// A segment came for `tuple`.
    pub fn on_segment(&mut self, now: Instant, tuple: &Tuple, seg: &SegmentIn<'_>) -> TimeWaitAnswer {
        let Some(slot) = self.find(tuple) else { return TimeWaitAnswer::Unknown };
        let position = self.index[slot] as usize;
        let record = &mut self.records[position];
        // RFC 1337: a RST must not end TIME-WAIT early.
        if seg.has(TcpFlags::RST) {
            return TimeWaitAnswer::Drop(DropReason::Unacceptable);
        }
        if seg.has(TcpFlags::SYN) && seg.ack.is_none() && record.yields_to(seg) {
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
        let record = &self.records[self.index[slot] as usize];
        let began = record.ends.saturating_sub((self.interval.as_millis() / TICK.as_millis()) as u32 + 1);
        if !record.has_timestamps || tick_of(now) < began + 2 {
            return Reopening::Waits;
        }
        let least_iss = record.snd_nxt + INCARNATIONS_APART;
        self.kill(slot);
        Reopening::After(least_iss)
    }

    /// When [`TimeWaitTable::on_timer`] has something to do.
    pub fn poll_at(&self) -> Option<Instant> {
        if self.live == 0 {
            return None;
        }
        let first =
            (0..BUCKETS as u32).find(|ahead| self.buckets[(self.tick + ahead) as usize % BUCKETS] != NIL)?;
        Some(Instant::ZERO + TICK * (self.tick + first - 1))
    }

    /// Forgets what has waited long enough.
    pub fn on_timer(&mut self, now: Instant) {
        let due = tick_of(now);
        while self.tick <= due {
            if self.live == 0 {
                self.tick = due + 1;
            } else {
                self.empty_bucket(self.tick);
                self.tick += 1;
            }
        }
    }

    fn empty_bucket(&mut self, tick: u32) {
        let mut at = core::mem::replace(&mut self.buckets[tick as usize % BUCKETS], NIL);
        while at != NIL {
            let record = self.records[at as usize];
            if record.ends > tick {
                self.link(at);
            } else {
                self.unindex(&record.tuple, at);
                self.release(at);
            }
            at = record.next;
        }
    }

    fn place(&mut self, record: TimeWaitRecord) -> u32 {
        if self.free == NIL {
            self.records.push(record);
            return self.records.len() as u32 - 1;
        }
        let position = self.free;
        self.free = self.records[position as usize].next;
        self.records[position as usize] = record;
        position
    }

    /// Puts a record into the bucket of the tick in which it ends.
    fn link(&mut self, position: u32) {
        let record = &mut self.records[position as usize];
        let bucket = &mut self.buckets[record.ends as usize % BUCKETS];
        record.next = *bucket;
        *bucket = position;
    }

    /// A record that its bucket has let go of returns to the free list.
    fn release(&mut self, position: u32) {
        let record = &mut self.records[position as usize];
        if record.ends != 0 {
            self.live -= 1;
        }
        record.ends = 0;
        record.next = self.free;
        self.free = position;
    }

    /// Takes a record out of the index; its bucket still holds it, and frees it in its time.
    fn kill(&mut self, slot: usize) {
        let position = self.index[slot];
        self.index_remove(slot);
        self.records[position as usize].ends = 0;
        self.live -= 1;
    }
}

/// The open-addressing index: linear probing with backward-shift deletion.
impl TimeWaitTable {
    fn home(&self, tuple: &Tuple) -> usize {
        self.hash.of(tuple) as usize & (self.index.len() - 1)
    }

    fn find(&self, tuple: &Tuple) -> Option<usize> {
        if self.index.is_empty() {
            return None;
        }
        let mut slot = self.home(tuple);
        while self.index[slot] != NIL {
            if self.records[self.index[slot] as usize].tuple == *tuple {
                return Some(slot);
            }
            slot = (slot + 1) & (self.index.len() - 1);
        }
        None
    }

    fn unindex(&mut self, tuple: &Tuple, position: u32) {
        if let Some(slot) = self.find(tuple)
            && self.index[slot] == position
        {
            self.index_remove(slot);
        }
    }

    fn index_insert(&mut self, position: u32) {
        let mut slot = self.home(&self.records[position as usize].tuple);
        while self.index[slot] != NIL {
            slot = (slot + 1) & (self.index.len() - 1);
        }
        self.index[slot] = position;
    }

    fn index_remove(&mut self, slot: usize) {
        let mask = self.index.len() - 1;
        let mut hole = slot;
        self.index[hole] = NIL;
        let mut probe = (hole + 1) & mask;
        while self.index[probe] != NIL {
            let home = self.home(&self.records[self.index[probe] as usize].tuple);
            // Whether the hole lies on the way from the entry's home to where it is.
            if (probe.wrapping_sub(home) & mask) >= (probe.wrapping_sub(hole) & mask) {
                self.index[hole] = core::mem::replace(&mut self.index[probe], NIL);
                hole = probe;
            }
            probe = (probe + 1) & mask;
        }
    }

    fn grow_index(&mut self) {
        if self.live * 2 <= self.index.len() {
            return;
        }
        let old = core::mem::take(&mut self.index);
        self.index = vec![NIL; (old.len() * 2).max(16)];
        for position in old.into_iter().filter(|&position| position != NIL) {
            self.index_insert(position);
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
