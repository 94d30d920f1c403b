//! The receiving half: what is acceptable, where text goes, and what window the peer gets (RFC 9293 §3.10.7.4
//! steps 1, 6, 7 and 8, §3.8.6).
//!
//! Owns RCV.NXT and the promised right edge, both as cursors of the receive ring. Text goes from the frame
//! straight into the ring: in order it is published at once, ahead of its turn it is written where it will
//! belong and `reassembly.rs` remembers the range. Nothing is ever taken beyond the promised edge, and the
//! promise never exceeds the ring, so a peer costs no memory that it was not offered.

use core::ops::Range;
use core::time::Duration;

use firelane_frame::{RingWriter, read_all_ahead};
use firelane_units::{Bytes, DropReason, Instant, Mss, SeqNum};
use firelane_wire::TcpFlags;

use crate::connection::{Connection, Rings};
use crate::delayed_ack::{Arrival, DelayedAck, Habit};
use crate::nagle::{right_edge, window_update_due};
use crate::reassembly::{Accepted, Blocks, Reassembly};
use crate::receive_tuning::{ReceiveTuning, TextIn};
use crate::segment::{Disposition, Events, SegmentIn, Verdict};
use crate::space::SeqSpace;
use crate::state::Event;
use crate::storage::Storage;

/// No FIN: a cursor that no stream reaches.
pub(crate) const NOWHERE: u64 = u64::MAX;

/// What a timestamp takes of each segment, padding included (RFC 7323 appendix A).
const TIMESTAMP_BYTES: u16 = 12;

/// What limits new promises beside the receive ring.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct RoomLimits {
    /// The most that is announced (`TCP_WINDOW_CLAMP`).
    pub(crate) clamp: Option<u32>,
    /// The most that may be unread, while the ring is larger because more was promised before (`SO_RCVBUF`).
    pub(crate) buffer: Option<u32>,
}

impl RoomLimits {
    /// Nothing but the ring.
    pub(crate) const NONE: Self = Self { clamp: None, buffer: None };
}

/// What the peer sends and what we told it.
#[derive(Debug)]
pub(crate) struct ReceiveSide {
    pub(crate) space: SeqSpace,
    /// RCV.NXT: the next cursor in order; one past the FIN once that is taken.
    pub(crate) nxt: u64,
    /// The furthest right edge ever announced (RFC 7323 §2.4: honour the largest).
    pub(crate) promised: u64,
    /// The last acknowledgment number sent (RFC 7323's Last.ACK.sent).
    pub(crate) acknowledged: u64,
    /// Where the peer's FIN lies; [`NOWHERE`] until one came.
    pub(crate) fin: u64,
    /// The shift of the windows that we announce.
    pub(crate) scale: u8,
    /// The MSS that we announced.
    pub(crate) mss: Mss,
    /// The largest segment that the peer sent, as far as it tells the size of its full segments.
    segment: u16,
    pub(crate) ack: DelayedAck,
    /// Bare ACKs owed one by one: a peer without SACK counts duplicates (RFC 5681 §3.2), so one ACK must not
    /// stand for several segments that came ahead in one turn.
    repeats: u8,
    /// What waits ahead of its turn; `None` until something did.
    reassembly: Option<Box<Reassembly>>,
    /// How large the ring should be; `None` while idle, or if the program has said it.
    tuning: Option<Box<ReceiveTuning>>,
    pub(crate) storage: Storage,
}

/// A receiver that has acknowledged everything and holds nothing ahead.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReceiveRest {
    nxt: u64,
    space: SeqSpace,
    /// The promised edge beyond RCV.NXT.
    room: u32,
    mss: Mss,
    segment: u16,
    scale: u8,
    habit: Habit,
}

impl ReceiveSide {
    /// Ends with what has memory of its own.
    pub(crate) fn retire(&mut self) {
        (self.tuning, self.reassembly) = (None, None);
    }

    /// Begins to fetch what sizes the ring.
    #[inline]
    pub(crate) fn look_ahead(&self) {
        self.tuning.as_deref().into_iter().for_each(read_all_ahead);
    }

    /// What a connection at rest remembers, if no ACK is owed and nothing waits ahead.
    pub(crate) fn rest(&self) -> Option<ReceiveRest> {
        let Self { space, nxt, promised, acknowledged, scale, mss, segment, ref ack, .. } = *self;
        let Self { fin: NOWHERE, repeats: 0, reassembly: None, tuning: None, .. } = *self else {
            return None;
        };
        if acknowledged != nxt {
            return None;
        }
        let room = u32::try_from(promised.checked_sub(nxt)?).ok()?;
        Some(ReceiveRest { nxt, space, room, mss, segment, scale, habit: ack.rest()? })
    }

    /// The receiver that rested.
    pub(crate) fn wake_from(rest: ReceiveRest) -> Self {
        let ReceiveRest { nxt, space, room, mss, segment, scale, habit } = rest;
        Self {
            space,
            nxt,
            promised: nxt + u64::from(room),
            acknowledged: nxt,
            fin: NOWHERE,
            scale,
            mss,
            segment,
            ack: DelayedAck::wake_from(habit),
            repeats: 0,
            reassembly: None,
            tuning: None,
            storage: Storage::Enough,
        }
    }

    /// The receiver of a connection whose peer is not heard yet; `mss` is what we announce.
    pub(crate) fn new(mss: Mss) -> Self {
        Self {
            space: SeqSpace::new(SeqNum(0)),
            nxt: 0,
            promised: 0,
            acknowledged: 0,
            fin: NOWHERE,
            scale: 0,
            mss,
            segment: Mss::DEFAULT_V4.bytes().min(mss.bytes()),
            ack: DelayedAck::new(),
            repeats: 0,
            reassembly: None,
            tuning: None,
            storage: Storage::Enough,
        }
    }

    /// The cursor of a sequence number of the peer.
    #[inline]
    pub(crate) fn cursor(&self, seq: SeqNum) -> i64 {
        self.space.cursor(seq, self.nxt)
    }

    /// RFC 9293 §3.10.7.4 step 1, the four cases of the table.
    ///
    /// We differ: a segment that begins exactly at the right edge is acceptable, its text is not. A peer that
    /// filled our window while something was lost sends its ACKs from there, and a peer that probes a closed
    /// window does too.
    #[inline]
    fn is_acceptable(&self, start: i64, len: u32) -> bool {
        let end = start + i64::from(len);
        let reaches = if len == 0 { start >= self.nxt as i64 } else { end > self.nxt as i64 };
        reaches && start <= self.promised as i64
    }

    /// RFC 7323 §4.3 (2): the segment reaches the last acknowledgment number sent. One that ends just there, all
    /// of it a duplicate because our ACK was lost, counts: the answer then echoes the copy that it answers, as
    /// in Linux and FreeBSD, and the peer does not take the time between the copies for a round trip.
    fn covers_acknowledged(&self, start: i64, len: u32) -> bool {
        let acknowledged = self.acknowledged as i64;
        start <= acknowledged && start + i64::from(len) >= acknowledged
    }

    /// Whether `seq` lies inside the window as RFC 5961 means it: at or after RCV.NXT, before the edge.
    pub(crate) fn is_in_window(&self, seq: SeqNum) -> bool {
        let start = self.cursor(seq);
        start >= self.nxt as i64 && start < self.promised.max(self.nxt + 1) as i64
    }

    /// Makes the ring as large as `bytes`, or as what was promised beyond what the program has read, if that is more: then the
    /// limit for new promises is what remains to be kept ([`RoomLimits::buffer`]).
    pub(crate) fn resize(&self, bytes: usize, ring: &mut RingWriter) -> Option<u32> {
        let read = ring.cursor() - ring.unread() as u64;
        let promised = usize::try_from(self.promised.saturating_sub(read)).unwrap_or(usize::MAX);
        // Nothing was promised that the ring did not have. What a fused peer reads is not in these cursors.
        let kept = bytes.max(promised.min(ring.capacity()));
        ring.set_capacity(kept);
        (kept > bytes).then_some(bytes as u32)
    }

    /// What may be offered of the ring: what of it is free, and all of it, as far as `limits` let it. The least that a scaled
    /// field can say goes even beyond the clamp: a window of nothing would never open.
    fn room(&self, ring: &RingWriter, limits: RoomLimits) -> (Bytes, Bytes) {
        let most = limits.clamp.map_or(u64::MAX, |clamp| u64::from(clamp).max(1 << self.scale));
        let at_most = |size: usize| Bytes(Bytes::from(size).0.min(most));
        let (mut free, mut capacity) = (ring.free(), ring.capacity());
        if self.storage == Storage::Absent && ring.is_unbacked() {
            free = 0;
        }
        // Steps of what it would like to have are not to be had, and the window would stay closed.
        if ring.is_short() {
            capacity = capacity.min(ring.attached_bytes());
        }
        if let Some(buffer) = limits.buffer {
            free = free.min((buffer as usize).saturating_sub(ring.unread()));
            capacity = capacity.min(buffer as usize);
        }
        (at_most(free), at_most(capacity))
    }

    /// The window field of the next segment, and with it the promise.
    pub(crate) fn announce(&mut self, ring: &RingWriter, limits: RoomLimits) -> u16 {
        let (mut free, mut capacity) = self.room(ring, limits);
        let mut edge = right_edge(self.promised, self.nxt, free, capacity, self.mss);
        // What is promised before there is storage for it must be there when it is needed. What is not new is not asked about: who
        // only sends has no storage to receive, and announces with each segment.
        let is_new = edge > self.promised || (edge - self.nxt) & ((1 << self.scale) - 1) > 0;
        if is_new && ring.is_unbacked() && self.storage != Storage::Absent && self.fin == NOWHERE {
            self.back(ring);
            (free, capacity) = self.room(ring, limits);
            edge = right_edge(self.promised, self.nxt, free, capacity, self.mss);
        }
        let span = edge - self.nxt;
        let mut field = span >> self.scale;
        // An edge that stays must not slip left because the field is coarse: round up where the ring allows.
        if edge == self.promised && (field << self.scale) < span && (field + 1) << self.scale <= free.0 {
            field += 1;
        }
        let field = field.min(u64::from(u16::MAX));
        self.promised = self.promised.max(self.nxt + (field << self.scale));
        self.acknowledged = self.nxt;
        field as u16
    }

    /// The window field of a SYN, which is never scaled (RFC 7323 §2.2).
    pub(crate) fn announce_unscaled(&mut self, room: usize) -> u16 {
        let field = room.min(usize::from(u16::MAX)) as u16;
        self.promised = self.promised.max(self.nxt + u64::from(field));
        self.acknowledged = self.nxt;
        field
    }

    /// The window that the peer knows of, for a segment that promises nothing new.
    pub(crate) fn last_window(&self) -> u16 {
        let left = self.promised.saturating_sub(self.nxt) >> self.scale;
        left.min(u64::from(u16::MAX)) as u16
    }

    /// Whether the reader made room that the peer must hear of. While at least a segment is left, the window
    /// must double first, as in Linux: until then the ACKs of what arrives tell it early enough.
    pub(crate) fn owes_update(&self, ring: &RingWriter, limits: RoomLimits) -> bool {
        let (free, capacity) = self.room(ring, limits);
        // Of room beyond what the window field can hold the peer cannot be told.
        let free = Bytes(free.0.min(u64::from(u16::MAX) << self.scale));
        let left = self.promised.saturating_sub(self.nxt);
        let worth = left < u64::from(self.mss.bytes()) || free.0 >= 2 * left;
        worth && self.fin == NOWHERE && window_update_due(self.promised, self.nxt, free, capacity, self.mss)
    }

    /// The cursor after the last octet of text that came in order.
    pub(crate) fn text_end(&self) -> u64 {
        self.nxt.min(self.fin)
    }

    /// Whether text or a FIN waits ahead of its turn.
    #[inline]
    pub(crate) fn holds_ahead(&self) -> bool {
        self.fin != NOWHERE || self.reassembly.as_ref().is_some_and(|held| !held.is_empty())
    }

    /// Whether nothing ever came ahead, and no FIN.
    #[inline]
    fn has_no_books(&self) -> bool {
        self.fin == NOWHERE && self.reassembly.is_none()
    }

    /// Whether the next ACK should carry SACK blocks.
    #[inline]
    pub(crate) fn has_report(&self) -> bool {
        self.reassembly.as_ref().is_some_and(|held| held.has_report())
    }

    /// How many blocks that will be.
    pub(crate) fn report_len(&self, limit: usize) -> usize {
        self.reassembly.as_ref().map_or(0, |held| held.report_len(limit))
    }

    /// The blocks of the next ACK.
    pub(crate) fn sack_blocks(&mut self, limit: usize) -> Blocks {
        self.reassembly.as_mut().map(|held| held.sack_blocks(limit)).unwrap_or_default()
    }

    /// Hands a range to reassembly. What continues the stream while nothing waits needs no books.
    #[inline]
    fn accept(&mut self, range: Range<u64>, mut write: impl FnMut(Range<u64>)) -> Accepted {
        if range.start == self.nxt && self.reassembly.is_none() {
            write(range.clone());
            return Accepted::InOrder { next: range.end, filled_hole: false };
        }
        self.reassembly.get_or_insert_default().accept(self.nxt, range, write)
    }

    /// The round trip that the receiver sees, once it measured one.
    pub(crate) fn round_trip(&self) -> Option<Duration> {
        self.tuning.as_ref()?.round_trip()
    }

    /// Text arrived: lets the ring grow, up to `most`, if the program reads as fast as it comes.
    fn tune(
        &mut self,
        now: Instant,
        echoed: Option<Instant>,
        is_stamped: bool,
        ring: &mut RingWriter,
        most: usize,
    ) {
        let (edge, nxt, mss) = (self.promised, self.nxt, self.mss);
        let read = |ring: &RingWriter| ring.cursor() - ring.unread() as u64;
        let tuning =
            self.tuning.get_or_insert_with(|| Box::new(ReceiveTuning::new(now, read(ring), edge, mss)));
        tuning.on_text(&TextIn { now, echoed, is_stamped, nxt, edge });
        if tuning.is_round_over(now)
            && let Some(wanted) = tuning.end_round(now, read(ring), mss)
        {
            let wanted = usize::try_from(wanted).unwrap_or(most).min(most);
            if wanted > ring.capacity() {
                ring.set_capacity(wanted);
            }
        }
    }

    /// Everything up to `cursor` has come by another way than segments, and is acknowledged.
    pub(crate) fn go_on_at(&mut self, cursor: u64) {
        self.nxt = cursor;
        self.promised = self.promised.max(cursor);
        (self.acknowledged, self.repeats) = (cursor, 0);
        self.ack.settle();
        self.reassembly = None;
        self.tuning = None;
    }

    /// Gives back the books if nothing waits.
    pub(crate) fn shrink(&mut self, sack: bool) {
        self.tuning = None;
        // Without SACK nobody is told of what came twice.
        self.reassembly.take_if(|held| if sack { !held.has_report() } else { held.is_empty() });
    }

    /// The size of the peer's full segments, as far as they tell it.
    #[inline]
    pub(crate) fn segment(&self) -> u16 {
        self.segment
    }

    /// Text of `payload` bytes came, perhaps in several segments merged on the way, which tell nothing of their size: none
    /// is larger than our MSS without the options that each carries (RFC 6691).
    #[inline]
    fn note_segment(&mut self, payload: usize, options: u16) {
        let most = self.mss.bytes().saturating_sub(options);
        let seen = payload.min(usize::from(u16::MAX)) as u16;
        self.segment = self.segment.max(seen).min(most);
    }

    /// The size of the peer's full segments, for "acknowledge every second one".
    #[inline]
    fn full_segment(&self) -> Mss {
        Mss::clamped(self.segment)
    }

    /// Takes the text that begins at cursor `start`. Says whether anything new was published.
    pub(crate) fn take_text(
        &mut self,
        now: Instant,
        start: i64,
        payload: &[u8],
        ring: &mut RingWriter,
        delay: Duration,
        counts_duplicates: bool,
    ) -> Result<bool, DropReason> {
        // The promise never exceeds the ring unless somebody made the ring smaller, or others have the memory.
        let room = ring.cursor() + ring.claim() as u64;
        let right = self.promised.min(self.fin).min(room) as i64;
        let end = start + payload.len() as i64;
        let (from, to) = (start.max(0), end.min(right));
        if to < end && room < self.promised {
            self.note_lost_room(ring);
        }
        if from >= to {
            self.doubt_absence();
            self.ack.demand();
            return Err(DropReason::OutOfWindow);
        }
        let full = self.full_segment();
        let accepted = self.accept(from as u64..to as u64, |part| {
            let offset = (part.start as i64 - start) as usize;
            ring.write_at(part.start, &payload[offset..offset + (part.end - part.start) as usize]);
        });
        let len = Bytes((to - from) as u64);
        let arrival = match accepted {
            Accepted::InOrder { filled_hole: false, .. } => Arrival::InOrder,
            _ => Arrival::Urgent,
        };
        self.ack.on_data(now, len, full, arrival, delay);
        match accepted {
            Accepted::InOrder { next, .. } => {
                ring.advance((next - self.nxt) as usize);
                self.nxt = next;
                self.repeats = 0;
                Ok(true)
            }
            Accepted::Ahead => {
                self.repeats = self.repeats.saturating_add(counts_duplicates.into());
                Ok(false)
            }
            Accepted::Duplicate => Err(DropReason::Duplicate),
            Accepted::Full => Err(DropReason::ReassemblyFull),
        }
    }

    /// Takes text that continues the stream while nothing waits ahead: what [`Self::take_text`] makes of it.
    #[inline]
    pub(crate) fn take_next(
        &mut self,
        now: Instant,
        text: &[u8],
        ring: &mut RingWriter,
        delay: Duration,
    ) -> Result<bool, DropReason> {
        let room = usize::try_from(self.promised - self.nxt).unwrap_or(usize::MAX);
        let due = text.len().min(room);
        let taken = ring.write(&text[..due]);
        if taken < due {
            self.note_lost_room(ring);
        }
        if taken == 0 {
            self.doubt_absence();
            self.ack.demand();
            return Err(DropReason::OutOfWindow);
        }
        let full = self.full_segment();
        self.ack.on_data(now, Bytes(taken as u64), full, Arrival::InOrder, delay);
        self.nxt += taken as u64;
        self.repeats = 0;
        Ok(true)
    }

    /// Whether the bare ACK that is owed may wait for an answer of the program that carries it.
    pub(crate) fn may_wait(&self, now: Instant) -> bool {
        self.repeats == 0 && self.ack.may_wait(now)
    }

    /// Whether [`Self::take_bare_ack`] would say yes.
    pub(crate) fn owes_bare_ack(&self, now: Instant) -> bool {
        self.repeats > 0 || self.ack.is_due(now)
    }

    /// Whether a bare ACK must leave; asking counts one of the repeats as sent.
    pub(crate) fn take_bare_ack(&mut self, now: Instant) -> bool {
        let owed = self.owes_bare_ack(now);
        self.repeats = self.repeats.saturating_sub(1);
        owed
    }

    /// Remembers a FIN at the end of a segment that was taken whole. What came first counts: a second FIN
    /// elsewhere is ignored, and so is one before text that is already here, up to `ahead`.
    fn note_fin(&mut self, at: i64, ahead: u64) {
        if self.fin == NOWHERE && at >= self.nxt.max(ahead) as i64 && at <= self.promised as i64 {
            self.fin = at as u64;
        }
    }

    /// Steps over the FIN if its turn has come.
    fn reach_fin(&mut self) -> bool {
        if self.nxt != self.fin {
            return false;
        }
        self.nxt += 1;
        self.ack.demand_soon();
        true
    }
}

impl Connection {
    /// RFC 9293 §3.10.7.4 step 1 with RFC 7323 §5.3: PAWS, then the window.
    pub(crate) fn check_sequence(&mut self, now: Instant, seg: &SegmentIn<'_>) -> Verdict {
        let start = self.receive.cursor(seg.seq);
        if self.stamps.is_on() && !seg.has(TcpFlags::RST) {
            match seg.options.timestamps {
                Some((value, _)) if self.stamps.is_old(now, value) => {
                    return Err(self.refuse(now, seg, DropReason::OldTimestamp));
                }
                // RFC 7323 §3.2: once agreed, every segment but a RST carries the option.
                // A SYN goes on to its challenge: a peer that lost its state knows of no agreement.
                None if !seg.has(TcpFlags::SYN) => return Err(Disposition::drop(DropReason::OldTimestamp)),
                _ => {}
            }
        }
        // Who only guesses its acknowledgment does not set the value either: with one far ahead all that the peer sends
        // would be old.
        if let (Some((value, _)), Some(ack)) = (seg.options.timestamps, seg.ack)
            && self.stamps.is_on()
            && self.receive.covers_acknowledged(start, seg.len())
            && self.credible(ack).is_some()
        {
            self.stamps.note(now, value);
        }
        if !self.receive.is_acceptable(start, seg.len()) {
            let is_past = !seg.payload.is_empty() && start + i64::from(seg.len()) <= self.receive.nxt as i64;
            let reason = if is_past { DropReason::Duplicate } else { DropReason::OutOfWindow };
            return Err(self.refuse(now, seg, reason));
        }
        Ok(())
    }

    /// A segment that is not acceptable is answered with an ACK, a RST with silence. Answers to segments
    /// without text are limited, so that two peers out of step do not acknowledge each other for ever.
    fn refuse(&mut self, now: Instant, seg: &SegmentIn<'_>, reason: DropReason) -> Disposition {
        if seg.has(TcpFlags::RST) {
            return Disposition::drop(reason);
        }
        // RFC 2883 §4: text that came before is reported as a duplicate.
        let start = self.receive.cursor(seg.seq);
        let end = start + seg.payload.len() as i64;
        if start >= 0 && start < end && end <= self.receive.nxt as i64 && self.send.sack {
            self.receive.accept(start as u64..end as u64, |_| {});
        }
        if !seg.payload.is_empty() || seg.has(TcpFlags::FIN) || self.may_challenge(now) {
            self.receive.doubt_absence();
            self.receive.ack.demand();
        }
        Disposition::drop(reason)
    }

    /// Step 6: the urgent pointer (RFC 9293 §3.8.5). It points after the last urgent octet (RFC 6093), and only
    /// moves forward; the text stays in the stream.
    pub(crate) fn check_urgent(&mut self, seg: &SegmentIn<'_>, out: &mut Disposition) {
        if let Some(mark) = self.new_mark(seg) {
            self.options.set_urgent_received(mark);
            out.events |= Events::URGENT;
        }
    }

    fn new_mark(&self, seg: &SegmentIn<'_>) -> Option<u64> {
        if !seg.has(TcpFlags::URG) || seg.urgent == 0 || !self.state.may_receive_text() {
            return None;
        }
        let at = self.receive.cursor(seg.seq) + i64::from(seg.urgent);
        let known = self.options.urgent_received().unwrap_or(self.receive.nxt);
        (at > known as i64).then_some(at as u64)
    }

    /// Where [`Connection::urgent_mark`] will be once `seg` is taken, if it moves that: for who shows its reader the mark
    /// before the text.
    pub fn mark_to_come(&self, seg: &SegmentIn<'_>) -> Option<u64> {
        let mark = self.new_mark(seg)?;
        let nxt = self.flight.nxt();
        let is_of_peer = self.send.space.cursor(seg.ack?, nxt) <= nxt as i64;
        let ends_nothing = !seg.has(TcpFlags::SYN) && !seg.has(TcpFlags::RST);
        let is_acceptable = self.receive.is_acceptable(self.receive.cursor(seg.seq), seg.len());
        (is_of_peer && ends_nothing && is_acceptable).then_some(mark)
    }

    /// Step 7: the text. Says what is wrong if it ends the connection.
    pub(crate) fn take_text(
        &mut self,
        now: Instant,
        seg: &SegmentIn<'_>,
        rings: &mut Rings<'_>,
        out: &mut Disposition,
    ) -> Verdict {
        if seg.payload.is_empty() || !self.state.may_receive_text() {
            return Ok(());
        }
        let start = self.receive.cursor(seg.seq);
        let is_new = start + seg.payload.len() as i64 > self.receive.nxt as i64;
        if is_new && let Some(reason) = self.lack_of_reader() {
            // RFC 9293 §3.6.1: nobody can read it, so the peer must learn that it is lost.
            return Err(self.reset_now(now, reason, DropReason::NoReader));
        }
        self.take_ecn(now, seg, rings, out);
        match self.place_text(now, start, seg.payload, seg.options.timestamps, rings.recv) {
            Ok(events) => out.events |= events,
            Err(reason) => out.dropped = Some(reason),
        }
        if seg.has(TcpFlags::PSH) {
            self.receive.ack.on_push();
        }
        Ok(())
    }

    /// Puts text where it belongs in the ring; what the socket must hear of it.
    pub(crate) fn place_text(
        &mut self,
        now: Instant,
        start: i64,
        text: &[u8],
        stamps: Option<(u32, u32)>,
        ring: &mut RingWriter,
    ) -> Result<Events, DropReason> {
        let (delay, counts) = (self.config.delayed_ack, !self.send.sack);
        self.receive.note_segment(text.len(), if self.stamps.is_on() { TIMESTAMP_BYTES } else { 0 });
        let is_next = start == self.receive.nxt as i64 && self.receive.has_no_books();
        let published = match is_next {
            true => self.receive.take_next(now, text, ring, delay)?,
            false => self.receive.take_text(now, start, text, ring, delay, counts)?,
        };
        if published {
            if self.options.tuning.receive {
                self.tune_receiver(now, text.len(), stamps, ring);
            }
            return Ok(Events::READABLE);
        }
        let piece = self.receive.segment().into();
        self.troubles().on_unordered(text.len(), piece);
        Ok(Events::NONE)
    }

    fn tune_receiver(&mut self, now: Instant, len: usize, stamps: Option<(u32, u32)>, ring: &mut RingWriter) {
        let is_full = len >= usize::from(self.receive.segment());
        let stamps = stamps.filter(|_| is_full);
        let echoed = self.stamps.echoed(now, stamps);
        let most = self.config.max_buffer as usize;
        self.receive.tune(now, echoed, self.stamps.is_on(), ring, most);
    }

    /// Step 8: the FIN, when everything before it is here.
    pub(crate) fn take_fin(
        &mut self,
        now: Instant,
        seg: &SegmentIn<'_>,
        rings: &Rings<'_>,
        out: &mut Disposition,
    ) {
        if seg.has(TcpFlags::FIN) && out.dropped != Some(DropReason::ReassemblyFull) {
            let at = self.receive.cursor(seg.seq) + seg.payload.len() as i64;
            self.receive.note_fin(at, rings.recv.ahead());
        }
        if self.receive.reach_fin() {
            out.events |= Events::PEER_CLOSED | Events::READABLE;
            self.enter(now, Event::PeerFin, out);
        } else if seg.has(TcpFlags::FIN) && self.state.may_receive_text() {
            // RFC 5681 §4.2: ahead of its turn it tells of a hole like any text does, so the peer hears of it at
            // once.
            self.receive.ack.demand();
        }
    }

    /// The program has read: the peer may have to hear that there is room.
    pub fn window_opened(&mut self, now: Instant, rings: &Rings<'_>) {
        self.timers.note_traffic(now);
        self.receive.look_for_more(rings.recv);
        if self.state.may_receive_text() && self.receive.owes_update(rings.recv, self.options.room()) {
            self.receive.ack.demand();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use firelane_frame::byte_ring;
    use proptest::prelude::*;

    proptest! {
        /// However text comes and is read, and wherever the clamp moves: no new promise goes beyond it (nor beyond the ring),
        /// and none is taken back.
        #[test]
        fn what_is_promised_anew_is_within_the_clamp(
            scale in 0u8..8,
            steps in prop::collection::vec((0usize..3_000, 0usize..3_000, 1_152u32..20_000), 1..60),
        ) {
            let (mut ring, mut reader) = byte_ring(16_384);
            let mut side = ReceiveSide { scale, ..ReceiveSide::new(Mss::clamped(1000)) };
            for (came, taken, clamp) in steps {
                let before = side.promised;
                side.announce(&ring, RoomLimits { clamp: Some(clamp), ..RoomLimits::NONE });
                prop_assert!(side.promised >= before);
                let free = ring.free() as u64;
                prop_assert!(side.promised == before || side.promised - side.nxt <= u64::from(clamp).min(free));
                let came = came.min((side.promised - side.nxt) as usize);
                prop_assert_eq!(ring.write(&vec![0; came]), came);
                side.nxt += came as u64;
                reader.release(taken.min(reader.available()));
            }
            reader.release(reader.available());
            side.nxt = side.promised.max(side.nxt);
            let limits = RoomLimits { clamp: Some(1_152), ..RoomLimits::NONE };
            prop_assert!(side.owes_update(&ring, limits), "a closed window opens");
            side.announce(&ring, limits);
            prop_assert!(side.promised > side.nxt);
        }
    }

    proptest! {
        /// However often the program changes its buffer: there is room for all that was promised, and no new promise goes beyond
        /// the buffer.
        #[test]
        fn what_was_promised_has_room_whatever_the_buffer_becomes(
            scale in 0u8..8,
            steps in prop::collection::vec((0usize..3_000, 0usize..3_000, 1_152usize..20_000), 1..60),
        ) {
            let (mut ring, mut reader) = byte_ring(16_384);
            let mut side = ReceiveSide { scale, ..ReceiveSide::new(Mss::clamped(1000)) };
            for (came, taken, bytes) in steps {
                let buffer = side.resize(bytes, &mut ring);
                let (before, unread) = (side.promised, ring.unread() as u64);
                prop_assert!(ring.free() as u64 >= before - side.nxt);
                side.announce(&ring, RoomLimits { buffer, ..RoomLimits::NONE });
                prop_assert!(side.promised == before || side.promised - side.nxt + unread <= bytes as u64);
                let came = came.min((side.promised - side.nxt) as usize);
                prop_assert_eq!(ring.write(&vec![0; came]), came);
                side.nxt += came as u64;
                reader.release(taken.min(reader.available()));
            }
            let rest = (side.promised - side.nxt) as usize;
            prop_assert_eq!(ring.write(&vec![0; rest]), rest);
            side.nxt = side.promised;
            reader.release(reader.available());
            prop_assert_eq!(side.resize(2_000, &mut ring), None, "what was promised is used up");
        }
    }

    /// While the edge stays where it is, a coarse field is rounded up, so that the edge does not slip left.
    #[test]
    fn an_edge_that_stays_does_not_slip() {
        let (mut ring, mut reader) = byte_ring(4096);
        let mut side = ReceiveSide { scale: 4, ..ReceiveSide::new(Mss::clamped(1000)) };
        assert_eq!(side.announce(&ring, RoomLimits::NONE), 256);
        ring.write(&[0; 2000]);
        side.nxt = 2000;
        reader.release(900);
        // 2,096 octets are promised: no multiple of 16 less than that may be said while there is room.
        side.nxt = 2001;
        ring.write(&[0; 1]);
        assert_eq!(side.announce(&ring, RoomLimits::NONE), 131);
        assert!(side.promised >= 4096 && side.promised <= ring.cursor() + ring.free() as u64);
    }
}
