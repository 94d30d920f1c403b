//! The sending half: what leaves next (RFC 9293 §3.8.6, §3.10.2).
//!
//! Owns the peer's window and our FIN's place, as cursors of the send ring. `poll_transmit` is asked until it
//! has nothing: first what the handshake or a reset owes, then probes and retransmissions, then new text, then
//! a bare ACK. The send ring is the retransmission buffer, so every segment is a range of cursors; nothing is
//! copied or queued here.

use core::ops::Range;

use firelane_units::{Bytes, Instant, Mss, SeqNum};
use firelane_wire::{TcpFlags, TcpOptions};

use crate::busy::Doing;
use crate::connection::{Connection, Rings};
use crate::flight::Phase;
use crate::mtu_search::FOLLOWERS;
use crate::nagle::{Offer, sendable};
use crate::reassembly::BLOCKS_MAX;
use crate::segment::SegmentOut;
use crate::space::SeqSpace;
use crate::state::State;
use crate::timers::SendTimer;

/// No FIN: a cursor that no stream reaches.
pub(crate) const NOWHERE: u64 = u64::MAX;
/// No largest window of a peer is taken for less: half of it is a segment that a buffer of Linux' least size admits.
const WINDOW_MIN: u32 = 2048;

/// What the way down can carry in one piece.
#[derive(Clone, Copy, Debug)]
pub struct TransmitLimits {
    /// The most text of one large segment: up to 64 KiB where the device or software cuts it. At least one MSS
    /// is always sent.
    pub max_segment_payload: Bytes,
}

/// What we send and what the peer lets us.
#[derive(Debug)]
pub(crate) struct SendSide {
    pub(crate) space: SeqSpace,
    /// SND.UNA + SND.WND as the last window update put it; never used to take back what is already sent.
    edge: u64,
    /// SND.WND as last announced, unscaled.
    pub(crate) window: u32,
    /// Max(SND.WND).
    pub(crate) max_window: u32,
    /// SND.WL1 and SND.WL2.
    updated_by: (SeqNum, SeqNum),
    /// Where our FIN lies; [`NOWHERE`] while the program may still write.
    pub(crate) fin: u64,
    /// The cursor after the last segment that was not full (Minshall).
    small_end: u64,
    /// The shift of the windows that the peer announces.
    pub(crate) scale: u8,
    /// Both ends scale their windows.
    pub(crate) scaled: bool,
    /// The largest segment that the path takes, as far as we know.
    pub(crate) path_mss: Mss,
    /// The largest segment that peer and path take, options included (RFC 6691).
    pub(crate) mss: Mss,
    /// The peer understands SACK.
    pub(crate) sack: bool,
    /// Window probes in a row without progress.
    pub(crate) persist_backoff: u8,
}

/// A sender with nothing out and no FIN.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SendRest {
    space: SeqSpace,
    /// The window's edge beyond SND.NXT.
    room: u32,
    window: u32,
    max_window: u32,
    updated_by: (SeqNum, SeqNum),
    path_mss: Mss,
    mss: Mss,
    scale: u8,
    scaled: bool,
    sack: bool,
}

impl SendSide {
    /// A segment that was not full, and ends at `end`, leaves.
    #[inline]
    pub(crate) fn note_small(&mut self, end: u64) {
        self.small_end = end;
    }

    /// Whether the last segment that was not full is unacknowledged (Minshall).
    #[inline]
    pub(crate) fn is_small_under_way(&self, una: u64) -> bool {
        self.small_end > una
    }

    /// Everything was acknowledged, small segments too.
    pub(crate) fn settle(&mut self, nxt: u64) {
        self.small_end = nxt;
    }

    /// What a connection at rest remembers, if there is no FIN and the window was not taken back.
    pub(crate) fn rest(&self, nxt: u64) -> Option<SendRest> {
        let Self { space, edge, window, max_window, updated_by, path_mss, mss, .. } = *self;
        let Self { fin: NOWHERE, scale, scaled, sack, persist_backoff: 0, .. } = *self else {
            return None;
        };
        let room = u32::try_from(edge.checked_sub(nxt)?).ok()?;
        Some(SendRest { space, room, window, max_window, updated_by, path_mss, mss, scale, scaled, sack })
    }

    /// The sender that rested at `nxt`.
    pub(crate) fn wake_from(rest: SendRest, nxt: u64) -> Self {
        let SendRest { space, room, window, max_window, updated_by, path_mss, mss, scale, scaled, sack } =
            rest;
        Self {
            space,
            edge: nxt + u64::from(room),
            window,
            max_window,
            updated_by,
            fin: NOWHERE,
            small_end: nxt,
            scale,
            scaled,
            path_mss,
            mss,
            sack,
            persist_backoff: 0,
        }
    }

    pub(crate) fn new(iss: SeqNum, mss: Mss) -> Self {
        Self {
            space: SeqSpace::new(iss),
            edge: 0,
            window: 0,
            max_window: 0,
            updated_by: (SeqNum(0), SeqNum(0)),
            fin: NOWHERE,
            small_end: 0,
            scale: 0,
            scaled: false,
            path_mss: mss,
            mss,
            sack: false,
            persist_backoff: 0,
        }
    }

    /// The window of the segment that made the connection (RFC 9293 §3.10.7.3).
    pub(crate) fn set_window(&mut self, seq: SeqNum, window: u32) {
        self.window = window;
        self.max_window = self.max_window.max(window);
        self.edge = u64::from(window);
        self.updated_by = (seq, self.space.seq(0));
    }

    /// RFC 9293 §3.10.7.4 step 5: the newest segment's window counts, newest by sequence number, then by
    /// acknowledgment (MUST-34: the edge may move left, and what is beyond it stays sent).
    #[inline]
    pub(crate) fn update_window(&mut self, seq: SeqNum, ack: u64, window: u32) {
        let (last_seq, last_ack) = self.updated_by;
        let number = self.space.seq(ack);
        if last_seq.before(seq) || (last_seq == seq && last_ack.at_or_before(number)) {
            let edge = ack + u64::from(window);
            if edge > self.edge {
                self.persist_backoff = 0;
            }
            (self.window, self.edge, self.updated_by) = (window, edge, (seq, number));
            self.max_window = self.max_window.max(window);
        }
    }

    /// A window that is newer than any before, whatever the numbers say: the ends have gone on by another way.
    pub(crate) fn renew_window(&mut self, seq: SeqNum, ack: u64, window: u32) {
        (self.window, self.edge) = (window, ack + u64::from(window));
        self.updated_by = (seq, self.space.seq(ack));
        self.max_window = self.max_window.max(window);
    }

    /// How much the window admits beyond `nxt`.
    #[inline]
    pub(crate) fn room(&self, nxt: u64) -> u64 {
        self.edge.saturating_sub(nxt)
    }

    /// The sequence number of a segment without text. Beyond a window that the peer took back it would not be
    /// acceptable there, and its ACK would be lost. An edge that has slipped left by less than the window field's unit was
    /// not taken back (RFC 7323 §2.4): from there an ACK would be old where all has arrived, and two ends that are both so
    /// would never hear each other again. Linux has it so, too.
    fn seq_without_text(&self, una: u64, nxt: u64) -> SeqNum {
        let unit = 1 << self.scale;
        self.space.seq(if nxt < self.edge + unit { nxt } else { self.edge.max(una).min(nxt) })
    }
}

impl Connection {
    /// The next segment to send, or `None` if there is nothing (left). Ask until `None`.
    pub fn poll_transmit(
        &mut self,
        now: Instant,
        rings: &mut Rings<'_>,
        limits: &TransmitLimits,
    ) -> Option<SegmentOut> {
        if let Some(out) = self.poll_small(now, rings) {
            return Some(out);
        }
        self.poll_any(now, rings, limits)
    }

    /// The same, whatever it is that leaves next.
    pub(crate) fn poll_any(
        &mut self,
        now: Instant,
        rings: &mut Rings<'_>,
        limits: &TransmitLimits,
    ) -> Option<SegmentOut> {
        let nxt = self.flight.nxt();
        let mut out = self.next_segment(now, rings, limits)?;
        out.is_repeated = out.segment_bytes > 0 && out.payload.start < nxt;
        self.counts.on_sent(&out);
        if out.is_repeated {
            self.troubles().on_repeated(&out);
        }
        Some(out)
    }

    /// The ACK that is due, of a connection that owes nothing else; [`Connection::poll_transmit`] would find the same, but looks for text.
    pub fn poll_ack(&mut self, now: Instant, rings: &Rings<'_>) -> Option<SegmentOut> {
        if !(self.state == State::Established && self.flight.is_empty() && self.owes_no_more(rings)) {
            return None;
        }
        let out = self.poll_bare(now, rings)?;
        self.counts.on_sent(&out);
        Some(out)
    }

    fn next_segment(
        &mut self,
        now: Instant,
        rings: &mut Rings<'_>,
        limits: &TransmitLimits,
    ) -> Option<SegmentOut> {
        if !self.state.is_synchronized() {
            return self.poll_syn(now, rings).or_else(|| self.poll_early_text(now, rings, limits));
        }
        if self.state.may_send_text()
            && let Some(range) = self.next_range(now, rings, limits)
        {
            return Some(self.emit(now, range, rings));
        }
        if self.state.may_send_text() {
            self.keep_persist_timer(now, rings);
            self.note_held_back(now, rings);
        } else {
            // Our FIN was acknowledged while something was to be sent again: nothing waits for its pace any more.
            self.flight.on_pause();
        }
        self.poll_bare(now, rings)
    }

    /// Whether [`Connection::poll_transmit`] would find nothing: the SYN is under way, or all text was sent once, a FIN behind
    /// it, none is lost, no ACK is due, no probe. It spares the asking where that is frequent; in doubt it says no.
    #[inline]
    pub fn is_quiet(&self, now: Instant, rings: &Rings<'_>) -> bool {
        match self.state {
            State::SynSent => self.pending.is_empty(),
            State::SynReceived => false,
            State::Closed => true,
            _ => !self.receive.owes_bare_ack(now) && !self.owes_fin() && self.owes_nothing_else(rings),
        }
    }

    /// Whether the peer has acknowledged everything that was sent before this segment of ours.
    pub fn has_acknowledged_before(&self, out: &SegmentOut) -> bool {
        out.flags.contains(TcpFlags::SYN) || self.send.space.seq(self.flight.una()) == out.seq
    }

    /// Whether [`Connection::poll_transmit`] would find nothing but an ACK that does not hold the peer up. Whoever asks
    /// again after the program had its chance to answer spares both ends a segment.
    #[inline]
    pub fn may_wait(&self, now: Instant, rings: &Rings<'_>) -> bool {
        let is_open = matches!(self.state, State::Established | State::CloseWait);
        is_open && self.receive.may_wait(now) && self.owes_no_more(rings)
    }

    /// Whether there is nothing to send beside ACKs.
    #[inline]
    fn owes_no_more(&self, rings: &Rings<'_>) -> bool {
        self.send.fin == NOWHERE && self.owes_nothing_else(rings)
    }

    /// Whether there is nothing to send beside ACKs and a FIN.
    #[inline]
    fn owes_nothing_else(&self, rings: &Rings<'_>) -> bool {
        self.flight.nxt() >= self.text_end(rings)
            && self.flight.owes_nothing()
            && self.pending.is_empty()
            && self.timers.send == SendTimer::Off
    }

    /// The persist timer fired: what fits goes, however small; if nothing fits, the window is asked for.
    pub(crate) fn demand_window_probe(&mut self, rings: &Rings<'_>) {
        self.send.persist_backoff = self.send.persist_backoff.saturating_add(1);
        let nxt = self.flight.nxt();
        if self.send.room(nxt) > 0 && nxt < self.text_end(rings) {
            self.pending.demand_override();
        } else {
            self.pending.demand_probe();
        }
    }

    /// The cursor where the text to send ends.
    #[inline]
    fn text_end(&self, rings: &Rings<'_>) -> u64 {
        (rings.send.cursor() + rings.send.available() as u64).min(self.send.fin)
    }

    /// How much text was written and never sent.
    pub fn unsent(&self, rings: &Rings<'_>) -> u64 {
        self.text_end(rings).saturating_sub(self.flight.nxt())
    }

    /// The payload of a full segment with the options that it would carry.
    pub(crate) fn segment_bytes(&self, options: &TcpOptions) -> u16 {
        // The MSS floor of 88 leaves room for the longest options (40).
        self.send.mss.bytes().saturating_sub(options.emitted_len() as u16).max(1)
    }

    /// The range that goes next: a probe, what was lost, or what is new.
    pub(crate) fn next_range(
        &mut self,
        now: Instant,
        rings: &Rings<'_>,
        limits: &TransmitLimits,
    ) -> Option<Range<u64>> {
        let mss = self.text_beside_report();
        let most = (limits.max_segment_payload.0 - limits.max_segment_payload.0 % mss).max(mss);
        // The pieces of a large segment would all carry the pointer of the first (Linux: `tcp_urg_mode`).
        let most = if self.options.urgent_sent() > self.flight.una() { mss } else { most };
        let fresh = self.fresh(rings, most, mss);
        if let Some(range) = self.flight.poll_probe(fresh.as_ref().map(|f| f.start..f.end.min(f.start + mss)))
        {
            return Some(range.start.max(range.end.saturating_sub(mss))..range.end);
        }
        if fresh.is_some() {
            self.flight.wake(now);
        }
        let budget = self.flight.budget().0;
        let whole = budget - budget % mss;
        if let Some(lost) = self.flight.next_retransmit(Bytes(most.min(whole.max(mss))), fresh.is_some()) {
            if lost.end - lost.start > budget {
                self.flight.on_window_exhausted();
                return None;
            }
            return self.hold_to_pace(now, lost, mss);
        }
        let Some(fresh) = fresh else {
            if self.flight.nxt() >= self.text_end(rings) {
                self.flight.on_data_exhausted();
            }
            self.flight.on_pause();
            return None;
        };
        if let Some(probe) = self.mtu_probe(now, rings, limits) {
            return Some(probe);
        }
        let fresh = self.cut_to_budget(fresh, budget, mss)?;
        self.hold_to_pace(now, fresh, mss)
    }

    /// What of `range` may leave now if the connection is paced; it is asked again when its time has come.
    #[inline]
    fn hold_to_pace(&mut self, now: Instant, range: Range<u64>, mss: u64) -> Option<Range<u64>> {
        let most = self.flight.pace(now, self.options.pacing_limit())?.0;
        if range.end - range.start <= most {
            return Some(range);
        }
        Some(range.start..range.start + (most - most % mss).max(mss))
    }

    /// What of `fresh` congestion control lets go: all of it, or whole segments. A FIN alone always goes.
    fn cut_to_budget(&mut self, fresh: Range<u64>, budget: u64, mss: u64) -> Option<Range<u64>> {
        let text = fresh.end.min(self.send.fin) - fresh.start;
        if text <= budget {
            return Some(fresh);
        }
        let whole = budget - budget % mss;
        if whole == 0 {
            self.flight.on_window_exhausted();
            return None;
        }
        Some(fresh.start..fresh.start + whole)
    }

    /// The text (and FIN) that was never sent, that the peer's window admits and that is worth a segment.
    fn fresh(&self, rings: &Rings<'_>, most: u64, mss: u64) -> Option<Range<u64>> {
        let nxt = self.flight.nxt();
        let text_end = self.text_end(rings);
        if nxt > text_end {
            return None;
        }
        let queued = text_end - nxt;
        let room = self.send.room(nxt);
        // Before the handshake is over the FIN waits (RFC 9293 §3.10.4).
        let closes = self.send.fin == text_end && self.state != State::SynReceived;
        let text = if queued == 0 {
            0
        } else if self.pending.overrides() {
            queued.min(room).min(most)
        } else {
            sendable(&Offer {
                queued: Bytes(queued),
                usable: Bytes(room.min(most)),
                largest_window: Bytes(self.send.max_window.into()),
                mss: Mss::clamped(mss as u16),
                // A probe takes what Nagle holds back: it brings more than what was sent before (RFC 8985 §7.3).
                nodelay: self.options.nodelay || self.flight.owes_probe(),
                cork: self.options.cork,
                // Nor does what is urgent wait for anything (`tcp_nagle_test` of Linux).
                last: closes || self.options.urgent_sent() > self.flight.una(),
                small_under_way: self.send.is_small_under_way(self.flight.una()),
            })
            .0
        };
        let fin = u64::from(closes && text == queued && room > text);
        (text + fin > 0).then(|| nxt..nxt + text + fin)
    }

    /// Makes the segment for a range of the stream, new or old, and notes that it left.
    pub(crate) fn emit(&mut self, now: Instant, range: Range<u64>, rings: &Rings<'_>) -> SegmentOut {
        let text = range.start.min(self.send.fin)..range.end.min(self.send.fin);
        let mut flags = TcpFlags::ACK;
        if range.end > self.send.fin {
            flags |= TcpFlags::FIN;
        }
        let is_last = text.end == rings.send.cursor() + rings.send.available() as u64;
        if is_last && text.start < text.end {
            flags |= TcpFlags::PSH;
        }
        let urgent = self.urgent_pointer(&range);
        if urgent != 0 {
            flags |= TcpFlags::URG;
        }
        let mut out = self.header(now, range.start, flags, rings);
        self.receive.ack.on_ack_sent(now, true);
        out.urgent = urgent;
        out.segment_bytes = self.segment_bytes(&out.options);
        if let Some(search) = self.options.mtu_search_mut() {
            if search.is_probe(&range) && range.start >= self.flight.nxt() {
                out.segment_bytes = (range.end - range.start) as u16;
            } else if range.start < self.flight.nxt() {
                search.on_resent(now, &range);
            }
        }
        let is_small = !(text.end - text.start).is_multiple_of(u64::from(out.segment_bytes));
        if range.start >= self.flight.nxt() {
            if is_small {
                self.send.note_small(text.end);
            }
            if self.flight.is_empty() {
                self.progress_at = now;
            }
            self.now_does(now, Doing::Sending);
            if self.pending.overrides() {
                // The wait was for nothing: the peer's buffer is no larger by now, and half of it is worth a segment, unless it
                // is smaller than any buffer that is not an attack.
                self.send.max_window = self.send.max_window.min(self.send.window.max(WINDOW_MIN));
                self.pending.clear_override();
            }
            self.timers.send = SendTimer::Off;
            if text.start < text.end {
                self.put_ecn(&mut out);
            }
        } else {
            self.troubles().repeated_bytes += Bytes(text.end - text.start);
        }
        out.payload = text;
        let end = range.end;
        self.flight.on_sent(now, range);
        if end >= self.text_end(rings) && self.flight.lost() == Bytes::ZERO {
            self.flight.on_data_exhausted();
        }
        out
    }

    /// Header fields of a segment at `cursor`. Sending it settles the ACK that was owed, as whoever sends it says.
    fn header(&mut self, now: Instant, cursor: u64, flags: TcpFlags, rings: &Rings<'_>) -> SegmentOut {
        let seq = self.send.space.seq(cursor);
        let flags = flags | self.ecn.echo();
        let mut out = SegmentOut::control(seq, Some(self.receive.space.seq(self.receive.nxt)), flags);
        out.options.timestamps = self.stamps.option(now);
        if self.receive.has_report() && self.send.sack {
            self.report_ranges(&mut out.options);
        }
        out.window = self.receive.announce(rings.recv, self.options.room());
        out
    }

    /// How many ranges fit into a segment.
    fn report_limit(&self) -> usize {
        if self.stamps.is_on() { BLOCKS_MAX - 1 } else { BLOCKS_MAX }
    }

    /// RFC 2018 §4: the ranges that arrived ahead, as many as fit (three beside timestamps).
    fn report_ranges(&mut self, options: &mut TcpOptions) {
        let limit = self.report_limit();
        let space = self.receive.space;
        for block in self.receive.sack_blocks(limit).as_slice() {
            options.sack.push(space.seq(block.start), space.seq(block.end));
        }
    }

    /// The urgent pointer of a segment that begins at `range.start`: where the urgent text ends (RFC 6093).
    fn urgent_pointer(&self, range: &Range<u64>) -> u16 {
        let ahead = self.options.urgent_sent().saturating_sub(range.start);
        u16::try_from(ahead).unwrap_or(u16::MAX)
    }

    /// Segments without text: a window probe, a keepalive probe, or an ACK that is due.
    fn poll_bare(&mut self, now: Instant, rings: &Rings<'_>) -> Option<SegmentOut> {
        if self.pending.take_probe() {
            // RFC 9293 §3.8.6.1 and §3.8.4. We differ: as Linux does, both probes repeat the last acknowledged
            // number without text, so the stream never runs ahead of a closed window; the peer must answer
            // either kind with an ACK (MUST-26 is for keepalive, step 1 for all others).
            let before = self.flight.una().wrapping_sub(1);
            return Some(self.bare(now, before, rings));
        }
        if !self.receive.take_bare_ack(now) {
            return None;
        }
        Some(self.bare_ack(now, rings))
    }

    /// A segment without text at `cursor`.
    fn bare(&mut self, now: Instant, cursor: u64, rings: &Rings<'_>) -> SegmentOut {
        let out = self.header(now, cursor, TcpFlags::ACK, rings);
        self.receive.ack.on_ack_sent(now, false);
        out
    }

    /// A segment that carries nothing but an ACK.
    pub(crate) fn bare_ack(&mut self, now: Instant, rings: &Rings<'_>) -> SegmentOut {
        let seq = self.seq_without_text();
        let mut out = self.bare(now, self.flight.nxt(), rings);
        out.seq = seq;
        out
    }

    /// The sequence number of what carries no text and is no probe.
    pub(crate) fn seq_without_text(&self) -> SeqNum {
        self.send.seq_without_text(self.flight.una(), self.flight.nxt())
    }

    /// While something waits and nothing is in flight, only the persist timer can wake the connection: the
    /// update that would open the window may be lost (RFC 9293 §3.8.6.1, MUST-36).
    fn keep_persist_timer(&mut self, now: Instant, rings: &Rings<'_>) {
        let waits = self.flight.nxt() < self.text_end(rings) || self.owes_fin();
        if !waits || !self.flight.is_empty() || self.flight.paced_until().is_some() {
            if matches!(self.timers.send, SendTimer::Persist(_) | SendTimer::Held(_)) {
                self.timers.send = SendTimer::Off;
            }
        } else if matches!(self.timers.send, SendTimer::Off | SendTimer::Held(_)) {
            if self.send.persist_backoff == 0 {
                self.progress_at = now;
            }
            self.timers.send = SendTimer::Persist(now + self.persist_interval());
        }
    }

    /// Our FIN has a place and was never sent.
    pub fn owes_fin(&self) -> bool {
        self.flight.nxt() <= self.send.fin && self.send.fin != NOWHERE
    }

    /// The time-out, doubled with each probe that changed nothing (SHLD-30: exponentially).
    pub(crate) fn persist_interval(&self) -> core::time::Duration {
        let backed_off = self.flight.rtt().rto().duration() * (1 << self.send.persist_backoff.min(16));
        backed_off.min(PERSIST_MAX)
    }

    /// What the program has written so far is urgent (`MSG_OOB`; RFC 9293 §3.8.5).
    pub fn mark_urgent(&mut self, rings: &Rings<'_>) {
        self.mark_urgent_to(self.text_end(rings));
    }

    /// The text before `end`, a cursor of the send ring, is urgent: as far as it was written, the segments that carry it
    /// say so.
    pub fn mark_urgent_to(&mut self, end: u64) {
        let end = end.max(self.options.urgent_sent());
        self.options.set_urgent_sent(end);
    }

    /// The path's largest segment changed, options included: what `ip` learned from the route or from ICMP. What is
    /// under way and too long for it is cut anew and sent again (RFC 1191 §6.4, RFC 8201 §5.4).
    pub fn set_path_mss(&mut self, mss: Mss) {
        self.send.path_mss = mss;
        self.follow_path();
    }

    /// Cuts segments as peer, route and search allow.
    pub(crate) fn follow_path(&mut self) {
        let mss = self.route_mss();
        let mss = self.options.mtu_search().map_or(mss, |search| search.size().min(mss));
        if mss != self.send.mss {
            self.send.mss = mss;
            self.flight.set_mss(self.text_per_segment());
        }
    }

    /// What the peer takes, the route claims to carry and the program allows.
    pub(crate) fn route_mss(&self) -> Mss {
        let mss = self.send.path_mss.min(self.peer_mss);
        self.options.mss_limit().map_or(mss, |limit| limit.min(mss))
    }

    /// A segment that is larger than the others, to see whether the path carries it: its range, if the search wants
    /// one, the sender is calm, and enough follows to show a loss at once (RFC 4821 §7.4).
    fn mtu_probe(&mut self, now: Instant, rings: &Rings<'_>, limits: &TransmitLimits) -> Option<Range<u64>> {
        let most = self.route_mss();
        let size = self.options.mtu_search_mut()?.candidate(now, most)?;
        let mss = u64::from(self.flight.mss().bytes());
        let len = u64::from(size) - u64::from(self.send.mss.bytes()) + mss;
        let nxt = self.flight.nxt();
        let needed = len + FOLLOWERS * mss;
        let room =
            self.send.room(nxt).min(self.text_end(rings).saturating_sub(nxt)).min(self.flight.budget().0);
        let is_calm = self.flight.phase() == Phase::Open && self.flight.sacked() == Bytes::ZERO;
        if !is_calm || room < needed || len > limits.max_segment_payload.0 {
            return None;
        }
        let range = nxt..nxt + len;
        self.flight.set_mtu_probe(range.clone());
        self.options.mtu_search_mut()?.on_probe(range.clone(), size);
        Some(range)
    }

    /// The text of a full segment that leaves now: the report of what came ahead takes its part (RFC 6691). Else each segment
    /// would be cut in two, a large piece and a tiny one.
    fn text_beside_report(&self) -> u64 {
        let mss = u64::from(self.flight.mss().bytes());
        if !(self.send.sack && self.receive.has_report()) {
            return mss;
        }
        let blocks = self.receive.report_len(self.report_limit()) as u64;
        mss.saturating_sub(REPORT_HEAD + BLOCK_LEN * blocks).max(1)
    }

    /// The text of a full segment with only the options that every segment carries.
    pub(crate) fn text_per_segment(&self) -> Mss {
        Mss::clamped(self.plain_segment_bytes())
    }

    /// The same, which is less than any MSS where the path carries next to nothing.
    #[inline]
    pub(crate) fn plain_segment_bytes(&self) -> u16 {
        let stamps = if self.stamps.is_on() { TIMESTAMPS_LEN } else { 0 };
        // The MSS floor of 88 leaves room for it.
        self.send.mss.bytes() - stamps
    }
}

/// The longest time between two window probes (RFC 9293 §3.8.6.1 asks for exponential growth; Linux and Solaris
/// stop at the largest time-out, a minute).
const PERSIST_MAX: core::time::Duration = core::time::Duration::from_secs(60);

/// The SACK option with its padding: before the blocks, and each of them.
const REPORT_HEAD: u64 = 4;
const BLOCK_LEN: u64 = 8;

/// The timestamps option with its padding.
const TIMESTAMPS_LEN: u16 = 12;
