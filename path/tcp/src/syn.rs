//! Half-open connections: a small entry per SYN that a listener has answered (RFC 4987, RFC 9293 §3.10.7.2).
//!
//! A SYN costs no connection and no ring: an entry of a hundred bytes remembers what it said until the ACK comes,
//! and the table repeats the SYN-ACK. Entries are limited per listener and in all. When the table is full, the
//! oldest entry whose first SYN-ACK went unanswered gives way, as in Solaris; if there is none, the SYN is
//! dropped, and its sender will try again. A cookie would be made where [`SynTable::on_syn`] finds no room.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use core::time::Duration;

use firelane_units::{DropReason, Instant, SeqNum, SocketId};
use firelane_wire::{Ecn, TcpFlags, TcpOptions};

use crate::config::TcpConfig;
use crate::connection::{Birth, Connection};
use crate::ecn;
use crate::segment::{SegmentIn, SegmentOut};
use crate::tuple::{KeyedHash, Tuple};

/// How often a SYN-ACK is repeated (Linux: `tcp_synack_retries`), at 1, 2, 4, 8 and 16 s.
const RETRIES_MAX: usize = 5;
/// How long the first SYN-ACK waits (RFC 6298 §2.1).
const FIRST_TIMEOUT: Duration = Duration::from_secs(1);

/// How many half-open connections there may be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SynLimits {
    /// Of one listener (Solaris: backlog + `_conn_req_max_q0`, 1024).
    pub per_listener: u32,
    /// Of the whole lane.
    pub total: u32,
}

impl Default for SynLimits {
    fn default() -> Self {
        Self { per_listener: 1024, total: 16_384 }
    }
}

/// What a half-open connection answers.
#[derive(Debug)]
pub enum SynAnswer {
    /// No such entry: the segment belongs to somebody else.
    Unknown,
    /// Nothing is sent.
    Drop(DropReason),
    /// The SYN-ACK again, a challenge ACK, or a RST.
    Reply(SegmentOut),
    /// The handshake completes: give the connection its rings and then this same segment.
    Promote {
        /// In SYN-RECEIVED.
        connection: Box<Connection>,
        /// Whose it is.
        listener: SocketId,
    },
}

/// One SYN that was answered.
#[derive(Clone, Debug)]
struct HalfOpen {
    listener: SocketId,
    birth: Birth,
    /// What the SYN said, without text.
    irs: SeqNum,
    window: u16,
    options: TcpOptions,
    /// The SYN asked for ECN.
    asks_ecn: bool,
    /// The ring that the connection will have.
    room: u32,
    sent_at: Instant,
    retries: u8,
    config: Arc<TcpConfig>,
}

impl HalfOpen {
    fn syn(&self) -> SegmentIn<'static> {
        SegmentIn {
            seq: self.irs,
            ack: None,
            flags: if self.asks_ecn { TcpFlags::SYN | ecn::ASKS } else { TcpFlags::SYN },
            window: self.window,
            urgent: 0,
            options: self.options,
            payload: &[],
            ecn: Ecn::NotCapable,
        }
    }

    fn syn_ack(&self, now: Instant) -> SegmentOut {
        let (config, said) = (&self.config, &self.options);
        let agrees = self.asks_ecn && ecn::is_accepted(config);
        let flags = if agrees { TcpFlags::SYN | TcpFlags::ECE } else { TcpFlags::SYN };
        let mut out = SegmentOut::control(self.birth.iss, Some(self.irs + 1), flags);
        out.window = self.window_field();
        out.options = TcpOptions {
            mss: Some(self.birth.mss.bytes()),
            window_scale: said
                .window_scale
                .filter(|_| config.window_scaling)
                .map(|_| config.window_scale_for(self.room as usize)),
            sack_permitted: config.sack && said.sack_permitted,
            timestamps: said
                .timestamps
                .filter(|_| config.timestamps)
                .map(|(value, _)| (self.birth.clock.value(now), value)),
            ..TcpOptions::EMPTY
        };
        out
    }

    fn window_field(&self) -> u16 {
        self.room.min(u32::from(u16::MAX)) as u16
    }

    /// `<SEQ=SND.NXT><ACK=RCV.NXT><CTL=ACK>`.
    fn challenge(&self, now: Instant) -> SegmentOut {
        let mut out = SegmentOut::control(self.birth.iss + 1, Some(self.irs + 1), TcpFlags::EMPTY);
        out.window = self.window_field();
        let stamps = self.syn_ack(now).options.timestamps;
        out.options.timestamps = stamps;
        out
    }

    fn promote(&self) -> Box<Connection> {
        let sent = (self.sent_at, self.retries);
        let connection =
            Connection::from_half_open(&self.config, &self.birth, &self.syn(), self.room as usize, sent);
        Box::new(connection)
    }
}

/// The half-open connections of a lane.
#[derive(Debug)]
pub struct SynTable {
    limits: SynLimits,
    entries: HashMap<Tuple, HalfOpen, KeyedHash>,
    per_listener: HashMap<SocketId, u32, KeyedHash>,
    /// By retries: what waits for its time-out, in the order of the time-outs. An item whose entry is gone, or
    /// has moved on, is skipped.
    waiting: [VecDeque<(Instant, Tuple)>; RETRIES_MAX + 1],
}

impl SynTable {
    /// An empty table, hashed with the secret `key`.
    pub fn new(key: [u8; 16], limits: SynLimits) -> Self {
        Self {
            limits,
            entries: HashMap::with_hasher(KeyedHash::new(key)),
            per_listener: HashMap::with_hasher(KeyedHash::new(key)),
            waiting: Default::default(),
        }
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// How many `listener` has.
    pub fn len_of(&self, listener: SocketId) -> u32 {
        self.per_listener.get(&listener).copied().unwrap_or(0)
    }

    /// A SYN for `listener` on `tuple`, which has no entry. `room` is the receive ring that the connection will
    /// have. The answer is the SYN-ACK.
    pub fn on_syn(
        &mut self,
        now: Instant,
        tuple: Tuple,
        listener: (SocketId, &Arc<TcpConfig>),
        birth: Birth,
        room: u32,
        seg: &SegmentIn<'_>,
    ) -> Result<SegmentOut, DropReason> {
        let (listener, config) = listener;
        if self.len_of(listener) >= self.limits.per_listener {
            return Err(DropReason::ListenFull);
        }
        if self.entries.len() >= self.limits.total as usize && !self.evict() {
            return Err(DropReason::ListenFull);
        }
        let entry = HalfOpen {
            listener,
            birth,
            irs: seg.seq,
            window: seg.window,
            options: TcpOptions { sack: Default::default(), ..seg.options },
            asks_ecn: ecn::is_asked(seg),
            room,
            sent_at: now,
            retries: 0,
            config: Arc::clone(config),
        };
        let answer = entry.syn_ack(now);
        self.waiting[0].push_back((now + FIRST_TIMEOUT, tuple));
        self.entries.insert(tuple, entry);
        *self.per_listener.entry(listener).or_insert(0) += 1;
        Ok(answer)
    }

    /// A segment came for `tuple`: the steps of RFC 9293 §3.10.7.4 as far as they mean something here.
    pub fn on_segment(&mut self, now: Instant, tuple: &Tuple, seg: &SegmentIn<'_>) -> SynAnswer {
        let Some(entry) = self.entries.get(tuple) else { return SynAnswer::Unknown };
        if seg.has(TcpFlags::SYN) && seg.seq == entry.irs && seg.ack.is_none() {
            return SynAnswer::Reply(entry.syn_ack(now));
        }
        let ahead = seg.seq.offset_from(entry.irs + 1);
        if seg.has(TcpFlags::RST) {
            // RFC 5961 §3.2, as in `reset.rs`.
            return match ahead {
                0 => {
                    self.remove(tuple);
                    SynAnswer::Drop(DropReason::Unacceptable)
                }
                _ => SynAnswer::Drop(DropReason::OutOfWindow),
            };
        }
        if seg.has(TcpFlags::SYN) || !(0..=i32::from(entry.window_field())).contains(&ahead) {
            return SynAnswer::Reply(entry.challenge(now));
        }
        match seg.ack {
            None => SynAnswer::Drop(DropReason::Unacceptable),
            Some(ack) if ack != entry.birth.iss + 1 => {
                SynAnswer::Reply(SegmentOut::control(ack, None, TcpFlags::RST))
            }
            Some(_) => {
                let (connection, listener) = (entry.promote(), entry.listener);
                self.remove(tuple);
                SynAnswer::Promote { connection, listener }
            }
        }
    }

    /// The listener is gone, and what it had half open with it.
    pub fn forget_listener(&mut self, listener: SocketId) {
        self.entries.retain(|_, entry| entry.listener != listener);
        self.per_listener.remove(&listener);
    }

    /// When [`SynTable::on_timer`] has something to do; early at worst.
    pub fn poll_at(&self) -> Option<Instant> {
        self.waiting.iter().filter_map(|queue| queue.front()).map(|&(at, _)| at).min()
    }

    /// Repeats the SYN-ACKs that are due through `send`, and forgets what has been repeated often enough.
    pub fn on_timer(&mut self, now: Instant, mut send: impl FnMut(&Tuple, SegmentOut)) {
        for retries in 0..=RETRIES_MAX {
            while let Some(tuple) = self.next_due(retries, now) {
                if retries == RETRIES_MAX {
                    self.remove(&tuple);
                    continue;
                }
                let Some(entry) = self.entries.get_mut(&tuple) else { continue };
                entry.retries += 1;
                send(&tuple, entry.syn_ack(now));
                let wait = FIRST_TIMEOUT * (1 << entry.retries);
                self.waiting[retries + 1].push_back((now + wait, tuple));
            }
        }
    }

    /// The next entry that has waited long enough after so many retries.
    fn next_due(&mut self, retries: usize, now: Instant) -> Option<Tuple> {
        loop {
            let &(at, tuple) = self.waiting[retries].front()?;
            let is_live = self.is_live(&tuple, retries, at);
            if is_live && at > now {
                return None;
            }
            self.waiting[retries].pop_front();
            if is_live {
                return Some(tuple);
            }
        }
    }

    /// Whether the item that waits until `at` is its entry's own, and not that of an earlier one of that tuple.
    fn is_live(&self, tuple: &Tuple, retries: usize, at: Instant) -> bool {
        self.entries.get(tuple).is_some_and(|entry| {
            usize::from(entry.retries) == retries && (retries > 0 || entry.sent_at + FIRST_TIMEOUT == at)
        })
    }

    /// Makes room: the oldest entry that has been repeated goes.
    fn evict(&mut self) -> bool {
        for retries in (1..=RETRIES_MAX).rev() {
            while let Some((at, tuple)) = self.waiting[retries].pop_front() {
                if self.is_live(&tuple, retries, at) {
                    self.remove(&tuple);
                    return true;
                }
            }
        }
        false
    }

    fn remove(&mut self, tuple: &Tuple) {
        let Some(entry) = self.entries.remove(tuple) else { return };
        if let Some(count) = self.per_listener.get_mut(&entry.listener) {
            *count -= 1;
            if *count == 0 {
                self.per_listener.remove(&entry.listener);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::isn::TimestampClock;
    use crate::state::State;
    use firelane_units::Mss;

    const LISTENER: SocketId = SocketId(7);
    const ISS: SeqNum = SeqNum(5000);

    fn tuple(port: u16) -> Tuple {
        Tuple::new(([10, 0, 0, 1], 80).into(), ([10, 0, 0, 2], port).into())
    }

    fn birth() -> Birth {
        let clock = TimestampClock::from_offset(0);
        Birth { iss: ISS, clock, mss: Mss::clamped(1460), peer_default: Mss::DEFAULT_V4 }
    }

    fn syn() -> SegmentIn<'static> {
        SegmentIn {
            seq: SeqNum(100),
            ack: None,
            flags: TcpFlags::SYN,
            window: 1000,
            urgent: 0,
            options: TcpOptions { mss: Some(1400), window_scale: Some(3), ..TcpOptions::EMPTY },
            payload: &[],
            ecn: Ecn::NotCapable,
        }
    }

    fn at(secs: u64) -> Instant {
        Instant::from_secs(1000 + secs)
    }

    fn table(per_listener: u32, total: u32) -> SynTable {
        SynTable::new([1; 16], SynLimits { per_listener, total })
    }

    fn open(table: &mut SynTable, now: Instant, port: u16) -> Result<SegmentOut, DropReason> {
        let config = Arc::new(TcpConfig::default());
        table.on_syn(now, tuple(port), (LISTENER, &config), birth(), 65_536, &syn())
    }

    /// What the entry says to a segment: (seq offset from IRS, ack offset from ISS, flags) -> answer.
    #[test]
    fn answers() {
        let (ack, rst, syn_bit) = (TcpFlags::ACK, TcpFlags::RST, TcpFlags::SYN);
        for (seq, acked, flags, answer, left) in [
            (0, None, syn_bit, "SYN-ACK", 1),
            (1, Some(1), ack, "promote", 0),
            (1, Some(1), ack.with(TcpFlags::FIN), "promote", 0),
            (1, Some(2), ack, "RST", 1),
            (1, None, TcpFlags::EMPTY, "drop", 1),
            (0, Some(1), ack, "ACK", 1),
            (70_000, Some(1), ack, "ACK", 1),
            (5, None, syn_bit, "ACK", 1),
            (1, None, rst, "drop", 0),
            (2, None, rst, "drop", 1),
            (0, None, rst, "drop", 1),
        ] {
            let mut table = table(10, 10);
            open(&mut table, at(0), 1).expect("room");
            let ack = acked.map(|ahead| ISS + ahead);
            let seg = SegmentIn { seq: SeqNum(100) + seq, ack, flags, options: TcpOptions::EMPTY, ..syn() };
            let said = match table.on_segment(at(0), &tuple(1), &seg) {
                SynAnswer::Unknown => "unknown",
                SynAnswer::Drop(_) => "drop",
                SynAnswer::Reply(out) if out.flags.contains(TcpFlags::RST) => "RST",
                SynAnswer::Reply(out) if out.flags.contains(TcpFlags::SYN) => "SYN-ACK",
                SynAnswer::Reply(_) => "ACK",
                SynAnswer::Promote { connection, listener } => {
                    assert_eq!((connection.state(), listener), (State::SynReceived, LISTENER));
                    "promote"
                }
            };
            assert_eq!((said, table.len()), (answer, left), "{seq} {acked:?} {flags:?}");
        }
    }

    #[test]
    fn the_answer_repeats_what_both_agree_on() {
        let out = open(&mut table(1, 1), at(0), 1).expect("room");
        assert_eq!((out.seq, out.ack, out.window), (ISS, Some(SeqNum(101)), 65_535));
        assert_eq!((out.options.mss, out.options.window_scale), (Some(1460), Some(7)));
        assert_eq!((out.options.timestamps, out.options.sack_permitted), (None, false));
    }

    #[test]
    fn a_syn_ack_is_repeated_five_times_and_forgotten() {
        let mut table = table(10, 10);
        open(&mut table, at(0), 1).expect("room");
        let mut sent = Vec::new();
        while let Some(due) = table.poll_at() {
            table.on_timer(due, |_, out| {
                assert!(out.flags.contains(TcpFlags::SYN));
                sent.push(due.saturating_since(at(0)).as_secs());
            });
        }
        assert_eq!(sent, [1, 3, 7, 15, 31]);
        assert!(table.is_empty() && table.len_of(LISTENER) == 0);
    }

    #[test]
    fn limits_hold_and_an_unanswered_entry_gives_way() {
        let mut small = table(2, 10);
        open(&mut small, at(0), 1).expect("room");
        open(&mut small, at(0), 2).expect("room");
        assert_eq!(open(&mut small, at(0), 3), Err(DropReason::ListenFull));

        let mut full = table(10, 2);
        open(&mut full, at(0), 1).expect("room");
        assert!(open(&mut full, at(1), 2).is_ok());
        assert_eq!(open(&mut full, at(1), 3), Err(DropReason::ListenFull));
        full.on_timer(at(1), |_, _| {});
        assert!(open(&mut full, at(1), 3).is_ok());
        assert!(matches!(full.on_segment(at(1), &tuple(1), &syn()), SynAnswer::Unknown));
        assert!(matches!(full.on_segment(at(1), &tuple(2), &syn()), SynAnswer::Reply(_)));
        full.forget_listener(LISTENER);
        assert!(full.is_empty());
    }
}
