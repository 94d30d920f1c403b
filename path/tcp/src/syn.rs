//! Half-open connections: a small entry per SYN that a listener has answered, or a cookie when there are too
//! many (RFC 4987, RFC 9293 §3.10.7.2).
//!
//! A SYN costs no connection and no ring: an entry of a hundred bytes remembers what it said until the ACK comes,
//! and the table repeats the SYN-ACK. Entries are limited per listener and in all. Beyond a limit the SYN-ACK is a
//! cookie (`cookie.rs`), which costs nothing; an ACK is read as a cookie only while this listener has lately made
//! some. With cookies off, the oldest entry whose first SYN-ACK went unanswered gives way, as in Solaris; if there
//! is none, the SYN is dropped, and its sender will try again.

mod half_open;

use std::sync::Arc;

use core::ops::Range;
use core::time::Duration;

use firelane_table::{Index, Numbered};
use firelane_units::{DropReason, Instant, SocketId};
use firelane_wire::TcpFlags;

pub use self::half_open::HalfOpen;
use self::half_open::PeerSyn;
use crate::config::{MAX_WINDOW_SCALE, SynCookies, TcpConfig};
use crate::connection::Birth;
use crate::cookie::{Cookies, Offer};
use crate::handshake::SynAckSent;
use crate::segment::{SegmentIn, SegmentOut};
use crate::tuple::{KeyedHash, Tuple};

/// How often a SYN-ACK is repeated (Linux: `tcp_synack_retries`), at 1, 2, 4, 8 and 16 s.
pub(crate) const RETRIES_MAX: usize = 5;
/// How long the first SYN-ACK waits (RFC 6298 §2.1).
const FIRST_TIMEOUT: Duration = Duration::from_secs(1);
/// How long after a listener's last cookie an ACK may still be one (Linux: `TCP_SYNCOOKIE_VALID`).
const COOKIES_VALID: Duration = Duration::from_secs(120);
/// No place.
const NIL: u32 = u32::MAX;
/// An empty table keeps the memory of so many entries.
const KEPT_WHEN_EMPTY: usize = 1024;

/// How many half-open connections a lane may have; of one listener, [`TcpConfig::half_open_max`] says.
pub const HALF_OPEN_TOTAL: u32 = 16_384;

/// What is known beside a segment that may open a connection.
#[derive(Clone, Copy, Debug)]
pub struct Opening<'a> {
    /// Which connection.
    pub tuple: Tuple,
    /// Whose.
    pub listener: SocketId,
    /// The netstack's tunables.
    pub config: &'a Arc<TcpConfig>,
    /// What it would be born with.
    pub birth: Birth,
    /// The receive ring that it would have.
    pub room: NewRing,
    /// It follows a connection in TIME-WAIT (RFC 6191): its peer is real, and its first number is chosen, so it gets
    /// an entry where others get a cookie.
    pub reopens: bool,
    /// Nothing is to be remembered of it: there may be a connection of its ends elsewhere. It gets a cookie.
    pub stateless: bool,
    /// For how many repeats of the SYN-ACK an ACK without text is no connection yet ([`deferred_repeats`]).
    pub defer: u8,
}

/// The receive ring of a connection that begins.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NewRing {
    /// The most that may be unread.
    pub capacity: u32,
    /// How much of that a SYN-ACK may promise, before there is storage.
    pub foreseen: u32,
}

impl NewRing {
    /// One that may be promised whole.
    pub const fn of(capacity: u32) -> Self {
        Self { capacity, foreseen: capacity }
    }
}

/// For how many repeats of a SYN-ACK, which come after 1, 2, 4, 8 and 16 s, connections wait for text whose listener wants
/// that for so many seconds (`TCP_DEFER_ACCEPT`): as Linux has it, but for no more repeats than there are.
pub fn deferred_repeats(seconds: u32) -> u8 {
    // After n of them 2^n - 1 seconds have passed.
    (u32::BITS - seconds.leading_zeros()).min(RETRIES_MAX as u32) as u8
}

/// What a half-open connection answers.
#[derive(Debug)]
#[allow(clippy::large_enum_variant)] // Made once per connection and taken apart at once; a box would cost more.
pub enum SynAnswer {
    /// No such entry: the segment belongs to somebody else.
    Unknown,
    /// Nothing is sent.
    Drop(DropReason),
    /// The ACK is remembered: the listener wants text first.
    Waits,
    /// The SYN-ACK again, a challenge ACK, or a RST.
    Reply(SegmentOut),
    /// The handshake completes: let it become a connection, and give that this same segment.
    Promote(HalfOpen),
}

/// What a table has counted.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct SynCounters {
    /// SYN-ACKs that were cookies (Linux: `SyncookiesSent`).
    pub cookies_sent: u64,
    /// Connections that came of one (`SyncookiesRecv`).
    pub cookies_accepted: u64,
    /// ACKs that could have been one and were not (`SyncookiesFailed`).
    pub cookies_failed: u64,
    /// Entries that gave way to newer ones.
    pub evicted: u64,
    /// Entries that ended otherwise without becoming a connection: reset, given up, or left by their listener.
    pub failed: u64,
    /// SYN-ACKs that were repeated.
    pub repeated: u64,
}

impl SynCounters {
    /// Adds another table's.
    pub fn merge(&mut self, other: &Self) {
        self.cookies_sent += other.cookies_sent;
        self.cookies_accepted += other.cookies_accepted;
        self.cookies_failed += other.cookies_failed;
        self.evicted += other.evicted;
        self.failed += other.failed;
        self.repeated += other.repeated;
    }
}

/// A place of the table.
#[derive(Debug)]
struct Place {
    /// `None` in the free list.
    entry: Option<HalfOpen>,
    tuple: Tuple,
    hash: u32,
    retries: u8,
    /// In which of its times for that it was last challenged.
    challenged: Option<u16>,
    /// When the SYN-ACK is repeated, or the entry forgotten.
    due: Instant,
    /// Neighbours in the list of its retries; `next` also links the free list.
    previous: u32,
    next: u32,
}

impl Place {
    /// Answers what does not belong to the connection that is to come to be. Two such entries that are out of step would answer each other
    /// without end (RFC 5961 §7), so once in each [`TcpConfig::challenge_interval`].
    fn challenge(&mut self, now: Instant) -> SynAnswer {
        let Some(entry) = &self.entry else { return SynAnswer::Unknown };
        let interval = entry.config.challenge_interval.as_millis().max(1);
        let time = Some((now.saturating_since(Instant::ZERO).as_millis() / interval) as u16);
        if std::mem::replace(&mut self.challenged, time) == time {
            return SynAnswer::Drop(DropReason::Unacceptable);
        }
        SynAnswer::Reply(entry.challenge(now))
    }
}

/// Places in the order in which they are due.
#[derive(Clone, Copy, Debug)]
struct List {
    first: u32,
    last: u32,
}

/// What is kept of one listener.
#[derive(Clone, Copy, Debug)]
struct OfListener {
    half_open: u32,
    /// Until when an ACK may be a cookie.
    cookies_until: Instant,
}

/// The half-open connections of a lane.
#[derive(Debug)]
pub struct SynTable {
    /// How many there may be.
    most: u32,
    cookies: Cookies,
    counters: SynCounters,
    places: Vec<Place>,
    free: u32,
    index: Index,
    hash: KeyedHash,
    /// By retries: each list waits equally long, so it is in order of time.
    lists: [List; RETRIES_MAX + 1],
    listeners: Numbered<OfListener>,
}

impl SynTable {
    /// An empty table for at most `most` of them, hashed with one secret `key`, its cookies made with another.
    pub fn new(key: [u8; 16], cookie_key: [u8; 16], most: u32) -> Self {
        Self {
            most,
            cookies: Cookies::new(cookie_key),
            counters: SynCounters::default(),
            places: Vec::new(),
            free: NIL,
            index: Index::default(),
            hash: KeyedHash::new(key),
            lists: [List { first: NIL, last: NIL }; RETRIES_MAX + 1],
            listeners: Numbered::default(),
        }
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.index.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.index.is_empty()
    }

    /// Whether a connection of these ends is half open.
    pub fn has(&self, tuple: &Tuple) -> bool {
        self.find(tuple).is_some()
    }

    /// The ends of what is in a place.
    pub fn tuple_at(&self, place: usize) -> Option<&Tuple> {
        self.places.get(place).filter(|place| place.entry.is_some()).map(|place| &place.tuple)
    }

    /// Whose a half-open connection of these ends is.
    pub fn listener_of(&self, tuple: &Tuple) -> Option<SocketId> {
        let place = self.places.get(self.find(tuple)? as usize)?;
        place.entry.as_ref().map(|entry| entry.listener)
    }

    /// How many `listener` has.
    pub fn len_of(&self, listener: SocketId) -> u32 {
        self.listeners.get(listener.0).map_or(0, |of| of.half_open)
    }

    /// What it has counted.
    pub fn counters(&self) -> SynCounters {
        self.counters
    }

    /// A SYN for a listener, whose tuple has no entry. The answer is the SYN-ACK.
    pub fn on_syn(
        &mut self,
        now: Instant,
        opening: &Opening<'_>,
        seg: &SegmentIn<'_>,
    ) -> Result<SegmentOut, DropReason> {
        let entry = HalfOpen::new(now, opening, seg);
        let stateless = opening.stateless || self.wants_cookie(opening.listener, opening.config);
        if stateless && !opening.reopens {
            return Ok(self.answer_with_cookie(now, &opening.tuple, entry));
        }
        let has_enough = self.has_enough(opening.listener, opening.config) && !opening.reopens;
        if has_enough || (self.is_full() && !self.evict()) {
            return Err(DropReason::HalfOpenFull);
        }
        let answer = entry.syn_ack(now);
        self.insert(now, opening.tuple, entry);
        Ok(answer)
    }

    /// A SYN was answered elsewhere ([`HalfOpen::begin`]), and its handshake is not over after all.
    pub fn enter(&mut self, now: Instant, tuple: Tuple, entry: HalfOpen) {
        self.insert(now, tuple, entry);
    }

    /// Whether the next SYN for `listener` is answered with a cookie. Then none is taken as a Fast Open either: that costs
    /// more than an entry.
    pub fn wants_cookie(&self, listener: SocketId, config: &TcpConfig) -> bool {
        match config.syn_cookies {
            SynCookies::Off => false,
            SynCookies::Pressure => self.has_enough(listener, config) || self.is_full(),
            SynCookies::Always => true,
        }
    }

    /// Asked with the configuration of now, so a changed limit holds for listeners that are there, too.
    fn has_enough(&self, listener: SocketId, config: &TcpConfig) -> bool {
        self.len_of(listener) >= config.half_open_max
    }

    fn is_full(&self) -> bool {
        self.len() >= self.most as usize
    }

    /// The SYN-ACK that remembers the SYN itself.
    fn answer_with_cookie(&mut self, now: Instant, tuple: &Tuple, mut entry: HalfOpen) -> SegmentOut {
        let announced = entry.peer.mss.unwrap_or(entry.birth.peer_default.bytes());
        entry.birth.iss = self.cookies.make(now, tuple, entry.peer.irs, announced);
        self.counters.cookies_sent += 1;
        self.of_listener(entry.listener).cookies_until = now + COOKIES_VALID;
        let mut out = entry.syn_ack(now);
        match &mut out.options.timestamps {
            Some((stamp, _)) => {
                let scale = entry.peer.offer.scale.map(|scale| scale.min(MAX_WINDOW_SCALE));
                *stamp = Offer { scale, ..entry.peer.offer }.stamp(entry.birth.clock, now);
            }
            // Nothing would remember them.
            None => {
                (out.options.window_scale, out.options.sack_permitted) = (None, false);
                out.flags = out.flags.without(TcpFlags::ECE);
            }
        }
        out
    }

    /// Whether a cookie of `listener` may still come back.
    pub fn expects_cookie(&self, now: Instant, listener: SocketId) -> bool {
        self.listeners.get(listener.0).is_some_and(|of| now < of.cookies_until)
    }

    /// An ACK for a listener, of a tuple that nobody knows: is it a cookie of ours? `None` if it cannot be one.
    pub fn on_cookie(
        &mut self,
        now: Instant,
        opening: &Opening<'_>,
        seg: &SegmentIn<'_>,
    ) -> Option<Result<HalfOpen, DropReason>> {
        let may_be_one =
            self.expects_cookie(now, opening.listener) && !seg.has(TcpFlags::SYN) && !seg.has(TcpFlags::RST);
        let ack = seg.ack.filter(|_| may_be_one)?;
        let (irs, cookie) = (seg.seq - 1, ack - 1);
        let Some(mss) = self.cookies.read(now, &opening.tuple, irs, cookie) else {
            self.counters.cookies_failed += 1;
            return Some(Err(DropReason::BadCookie));
        };
        self.counters.cookies_accepted += 1;
        let stamps = seg.options.timestamps.filter(|_| opening.config.timestamps);
        let offer = stamps.map(|(_, echo)| Offer::of_echo(opening.birth.clock, echo)).unwrap_or_default();
        Some(Ok(HalfOpen {
            listener: opening.listener,
            birth: Birth { iss: cookie, ..opening.birth },
            peer: PeerSyn {
                irs,
                mss: Some(mss),
                window: seg.window,
                offer,
                stamp: stamps.map(|(value, _)| value),
            },
            // What its SYN-ACK has announced nobody remembers.
            room: NewRing::of(opening.room.capacity),
            sent: SynAckSent::Unknown { now },
            defer: 0,
            acked: false,
            config: Arc::clone(opening.config),
        }))
    }

    /// A segment came for `tuple`: the steps of RFC 9293 §3.10.7.4 as far as they mean something here. `has_room`
    /// says whether the listener takes one more connection; if not, the ACK is dropped, and its sender will hear the
    /// SYN-ACK again (Linux: `tcp_abort_on_overflow` off).
    pub fn on_segment(
        &mut self,
        now: Instant,
        tuple: &Tuple,
        seg: &SegmentIn<'_>,
        has_room: impl FnOnce(SocketId) -> bool,
    ) -> SynAnswer {
        let Some(position) = self.find(tuple) else { return SynAnswer::Unknown };
        let place = &mut self.places[position as usize];
        let Some(entry) = &mut place.entry else { return SynAnswer::Unknown };
        if seg.has(TcpFlags::SYN) && seg.seq == entry.peer.irs && seg.ack.is_none() {
            return SynAnswer::Reply(entry.syn_ack(now));
        }
        let ahead = seg.seq.offset_from(entry.peer.irs + 1);
        if seg.has(TcpFlags::RST) {
            // RFC 5961 §3.2, as in `reset.rs`.
            return match ahead {
                0 => {
                    self.fail(position);
                    SynAnswer::Drop(DropReason::Unacceptable)
                }
                ahead if (1..=i32::from(entry.window_field())).contains(&ahead) => place.challenge(now),
                _ => SynAnswer::Drop(DropReason::OutOfWindow),
            };
        }
        if seg.has(TcpFlags::SYN) || !(0..=i32::from(entry.window_field())).contains(&ahead) {
            return place.challenge(now);
        }
        // RFC 7323 §3.2 and §5.3: a connection would not take it either, and would wait for a better one in vain.
        if let Some(stamp) = entry.peer.stamp.filter(|_| entry.config.timestamps) {
            match seg.options.timestamps {
                None => return SynAnswer::Drop(DropReason::OldTimestamp),
                Some((value, _)) if value.wrapping_sub(stamp).cast_signed() < 0 => {
                    return place.challenge(now);
                }
                Some(_) => {}
            }
        }
        match seg.ack {
            None => SynAnswer::Drop(DropReason::Unacceptable),
            Some(ack) if ack != entry.birth.iss + 1 => {
                SynAnswer::Reply(SegmentOut::control(ack, None, TcpFlags::RST))
            }
            Some(_) if entry.puts_off(seg, place.retries) => {
                // How long the way is was seen now; how long the peer thinks is no measure of it.
                (entry.acked, entry.sent) = (true, SynAckSent::Unknown { now });
                SynAnswer::Waits
            }
            Some(_) => {
                entry.acked = true;
                if !has_room(entry.listener) {
                    return SynAnswer::Drop(DropReason::ListenFull);
                }
                self.remove(position).map_or(SynAnswer::Unknown, SynAnswer::Promote)
            }
        }
    }

    /// The listener is gone, and what it had half open with it. Peers that believe to be connected, whose ACK found the listener full
    /// or wanting text first, are told through `send` as those are that nobody has accepted; the others hear it when their ACK comes.
    pub fn forget_listener(&mut self, listener: SocketId, mut send: impl FnMut(&Tuple, SegmentOut)) {
        self.forget_where(0..u32::MAX, |it| it == listener, |_, names, reset| send(names, reset));
        self.listeners.remove(listener.0);
    }

    /// All listeners are gone, each as in [`SynTable::forget_listener`], with their netstack: what stands in some of the places is
    /// forgotten. Whether there are places behind them.
    pub fn forget_some(
        &mut self,
        places: Range<u32>,
        send: impl FnMut(SocketId, &Tuple, SegmentOut),
    ) -> bool {
        let end = places.end;
        self.forget_where(places, |_| true, send);
        (end as usize) < self.places.len()
    }

    fn forget_where(
        &mut self,
        places: Range<u32>,
        is_gone: impl Fn(SocketId) -> bool,
        mut send: impl FnMut(SocketId, &Tuple, SegmentOut),
    ) {
        for position in places.start..places.end.min(self.places.len() as u32) {
            let Some(place) = self.places.get(position as usize) else { continue };
            let Some(entry) = place.entry.as_ref().filter(|entry| is_gone(entry.listener)) else {
                continue;
            };
            if entry.acked {
                let reset = SegmentOut::control(entry.birth.iss + 1, None, TcpFlags::RST);
                send(entry.listener, &place.tuple, reset);
            }
            self.fail(position);
        }
    }

    /// When [`SynTable::on_timer`] has something to do.
    pub fn poll_at(&self) -> Option<Instant> {
        let firsts = self.lists.iter().filter_map(|list| self.places.get(list.first as usize));
        firsts.map(|place| place.due).min()
    }

    /// Repeats the SYN-ACKs that are due through `send`, and forgets what has been repeated often enough.
    pub fn on_timer(&mut self, now: Instant, mut send: impl FnMut(&Tuple, SegmentOut)) {
        for retries in 0..=RETRIES_MAX {
            loop {
                let position = self.lists[retries].first;
                let Some(place) = self.places.get_mut(position as usize).filter(|place| place.due <= now)
                else {
                    break;
                };
                let Some(entry) = place.entry.as_mut().filter(|_| retries < RETRIES_MAX) else {
                    self.fail(position);
                    continue;
                };
                if let SynAckSent::First { retries, .. } = &mut entry.sent {
                    *retries += 1;
                }
                if entry.repeats(retries as u8) {
                    send(&place.tuple, entry.syn_ack(now));
                    self.counters.repeated += 1;
                }
                self.unlink(position);
                self.link(now, position, retries + 1);
            }
        }
    }

    /// Makes room: the oldest entry that has been repeated goes.
    fn evict(&mut self) -> bool {
        let Some(list) = self.lists[1..].iter().rev().find(|list| list.first != NIL) else { return false };
        self.remove(list.first);
        self.counters.evicted += 1;
        true
    }
}

/// The places, their lists and their index.
impl SynTable {
    fn find(&self, tuple: &Tuple) -> Option<u32> {
        if self.is_empty() {
            return None;
        }
        self.index.find(self.hash.short(tuple), |position| self.places[position as usize].tuple == *tuple)
    }

    fn of_listener(&mut self, listener: SocketId) -> &mut OfListener {
        let none = OfListener { half_open: 0, cookies_until: Instant::ZERO };
        self.listeners.get_or_insert(listener.0, none)
    }

    fn insert(&mut self, now: Instant, tuple: Tuple, entry: HalfOpen) {
        self.of_listener(entry.listener).half_open += 1;
        let hash = self.hash.short(&tuple);
        let place = Place {
            entry: Some(entry),
            tuple,
            hash,
            retries: 0,
            challenged: None,
            due: now,
            previous: NIL,
            next: NIL,
        };
        let position = match self.places.get_mut(self.free as usize) {
            Some(free) => {
                let position = self.free;
                self.free = free.next;
                *free = place;
                position
            }
            None => {
                self.places.push(place);
                self.places.len() as u32 - 1
            }
        };
        self.link(now, position, 0);
        self.index.insert(hash, position);
    }

    /// An entry ends that became no connection.
    fn fail(&mut self, position: u32) {
        self.counters.failed += u64::from(self.remove(position).is_some());
    }

    fn remove(&mut self, position: u32) -> Option<HalfOpen> {
        let place = self.places.get_mut(position as usize)?;
        let entry = place.entry.take()?;
        let hash = place.hash;
        self.index.remove(hash, position);
        self.unlink(position);
        self.places[position as usize].next = self.free;
        self.free = position;
        if let Some(of) = self.listeners.get_mut(entry.listener.0) {
            of.half_open -= 1;
        }
        if self.is_empty() && self.places.capacity() > KEPT_WHEN_EMPTY {
            // What a flood has taken comes back when it is over.
            (self.places, self.free) = (Vec::new(), NIL);
            self.index = Index::default();
        }
        Some(entry)
    }

    /// Puts a place at the end of the list of those with so many retries.
    fn link(&mut self, now: Instant, position: u32, retries: usize) {
        let last = core::mem::replace(&mut self.lists[retries].last, position);
        match self.places.get_mut(last as usize) {
            Some(before) => before.next = position,
            None => self.lists[retries].first = position,
        }
        let place = &mut self.places[position as usize];
        place.retries = retries as u8;
        place.due = now + FIRST_TIMEOUT * (1 << retries);
        (place.previous, place.next) = (last, NIL);
    }

    fn unlink(&mut self, position: u32) {
        let Place { previous, next, retries, .. } = self.places[position as usize];
        let list = &mut self.lists[usize::from(retries)];
        match self.places.get_mut(previous as usize) {
            Some(before) => before.next = next,
            None => list.first = next,
        }
        match self.places.get_mut(next as usize) {
            Some(after) => after.previous = previous,
            None => list.last = previous,
        }
    }
}

#[cfg(test)]
mod tests;
