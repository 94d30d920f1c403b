//! From SYN to ESTABLISHED (RFC 9293 §3.5, §3.10.1, §3.10.7.3).
//!
//! Active opens, simultaneous opens and the passive half that `syn.rs` promotes. The SYN is outside the stream
//! (`space.rs`), so it has its own timer here and never enters the flight; of it the flight only learns the
//! round-trip time and whether it was lost.

use core::time::Duration;
use std::sync::Arc;

use firelane_units::{DropReason, Instant, Mss, SeqNum};
use firelane_wire::{SackBlocks, TcpFlags, TcpOptions};

use crate::config::{MAX_WINDOW_SCALE, MtuProbing, TcpConfig};
use crate::connection::{Birth, Connection, Rings};
use crate::ecn;
use crate::isn::TimestampClock;
use crate::receive::RoomLimits;
use crate::segment::{CloseReason, Disposition, Events, SegmentIn, SegmentOut, Verdict};
use crate::space::SeqSpace;
use crate::state::{Event, State};
use crate::syn::NewRing;
use crate::syn::RETRIES_MAX;
use crate::timers::SendTimer;

/// When the SYN-ACK left that the peer has answered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum SynAckSent {
    /// First at `at`, and again so often.
    First { at: Instant, retries: u8 },
    /// It was a cookie, so nobody remembers; the answer came `now`.
    Unknown { now: Instant },
}

impl Connection {
    /// An active open (RFC 9293 §3.10.1): the SYN leaves with the next `poll_transmit`.
    pub fn open(config: &Arc<TcpConfig>, birth: &Birth, now: Instant) -> Self {
        let mut connection = Self::new(config, birth, State::SynSent, now);
        connection.pending.syn = true;
        connection
    }

    /// A passive open: `seg` is a SYN for a listener. The SYN-ACK leaves with the next `poll_transmit`.
    pub fn from_syn(config: &Arc<TcpConfig>, birth: &Birth, seg: &SegmentIn<'_>, now: Instant) -> Self {
        let mut connection = Self::new(config, birth, State::SynReceived, now);
        connection.take_syn(now, seg.seq, seg.window, &seg.options);
        connection.take_ecn_of_syn(seg);
        connection.pending.syn = true;
        connection
    }

    /// The connection that a half-open entry becomes: its SYN-ACK left as `sent` says, and announced `room` bytes.
    /// The caller feeds it the segment that completed the handshake.
    #[inline]
    pub(crate) fn from_half_open(
        config: &Arc<TcpConfig>,
        birth: &Birth,
        syn: &SegmentIn<'_>,
        room: NewRing,
        sent: SynAckSent,
    ) -> Self {
        let (sent_at, retries) = match sent {
            SynAckSent::First { at, retries } => (at, retries),
            SynAckSent::Unknown { now } => (now, 0),
        };
        let mut connection = Self::new(config, birth, State::SynReceived, sent_at);
        connection.take_syn(sent_at, syn.seq, syn.window, &syn.options);
        connection.take_ecn_of_syn(syn);
        if connection.send.scaled {
            connection.receive.scale = config.window_scale_for(room.capacity as usize);
        }
        let announced = connection.syn_window(room.foreseen as usize);
        connection.receive.announce_unscaled(announced);
        connection.syn_retries = retries;
        connection.pending.syn_unmeasured = matches!(sent, SynAckSent::Unknown { .. });
        let rto = connection.flight.rtt().rto().duration();
        connection.timers.send = SendTimer::Syn(sent_at + rto);
        connection
    }

    /// RFC 9293 §3.10.7.3: a segment in SYN-SENT.
    pub(crate) fn on_segment_syn_sent(
        &mut self,
        now: Instant,
        seg: &SegmentIn<'_>,
        rings: &mut Rings<'_>,
        out: &mut Disposition,
    ) -> Verdict {
        // First: SEG.ACK =< ISS or > SND.NXT is answered with a RST.
        let covered = seg.ack.map(|ack| self.covered_by(ack).ok_or_else(|| answer_with_reset(seg, ack)));
        let covered = covered.transpose()?;
        // Second: a RST counts only with that acknowledgment (RFC 5961 §3.2 keeps this).
        if seg.has(TcpFlags::RST) {
            if seg.ack.is_none() {
                return Err(Disposition::drop(DropReason::Unacceptable));
            }
            self.forget();
            return Err(Disposition::closed(CloseReason::Refused));
        }
        // Fourth: the SYN. Fifth: neither SYN nor RST is dropped, so an ACK alone proves nothing.
        if !seg.has(TcpFlags::SYN) {
            return Err(Disposition::drop(DropReason::Unacceptable));
        }
        self.heard_at = now;
        self.take_syn(now, seg.seq, seg.window, &seg.options);
        let Some(covered) = covered else {
            // Both ends open at once; text in such a SYN is left for the peer to repeat.
            self.ecn.take_crossing_syn(ecn::is_asked(seg));
            self.enter(now, Event::PeerSyn, out);
            self.pending.syn = true;
            return Ok(());
        };
        self.ecn.take_syn_ack(seg.flags);
        let announced = self.syn_window(rings.recv.foreseen());
        self.receive.announce_unscaled(announced);
        self.enter(now, Event::PeerSynAck, out);
        self.take_syn_text(covered, seg, rings, out);
        self.establish(now, seg, out);
        self.receive.ack.demand_soon();
        // Its text and FIN follow the SYN, one number later.
        let rest = SegmentIn { seq: seg.seq + 1, flags: seg.flags.without(ecn::OF_SYN), ..*seg };
        self.check_urgent(&rest, out);
        self.take_text(now, &rest, rings, out)?;
        self.take_fin(now, &rest, rings, out);
        Ok(())
    }

    /// Whether the peer's permission to send SACK is taken: one who opens took part in it by offering.
    fn may_sack(&self) -> bool {
        if self.active { self.config.sack.offers() } else { self.config.sack.accepts() }
    }

    /// Learns what the peer's SYN says: its numbers, its window and what both ends agree on.
    pub(crate) fn take_syn(&mut self, now: Instant, irs: SeqNum, window: u16, options: &TcpOptions) {
        self.receive.space = SeqSpace::new(irs);
        if let Some(mss) = options.mss {
            self.peer_mss = Mss::clamped(mss);
        }
        self.send.mss = self.route_mss();
        self.stamps.agree(now, options.timestamps);
        self.send.sack = self.may_sack() && options.sack_permitted;
        // RFC 7323 §2.2: both or neither.
        if let Some(scale) = options.window_scale
            && self.pending.syn_scales.unwrap_or(self.config.window_scaling)
        {
            self.send.scaled = true;
            self.send.scale = scale.min(MAX_WINDOW_SCALE);
        } else {
            self.receive.scale = 0;
        }
        // The window of a SYN is never scaled.
        self.send.set_window(irs, window.into());
    }

    /// In SYN-RECEIVED the peer repeats its SYN: our answer was lost, and an ACK alone would not help.
    pub(crate) fn check_repeated_syn(&mut self, seg: &SegmentIn<'_>) -> Verdict {
        let repeats = self.state == State::SynReceived
            && seg.has(TcpFlags::SYN)
            && seg.ack.is_none()
            && seg.seq == self.receive.space.initial();
        if !repeats {
            return Ok(());
        }
        self.pending.syn = true;
        Err(Disposition::drop(DropReason::Duplicate))
    }

    /// RFC 9293 §3.5 figure 8, line 6: both ends opened at once, and the peer's SYN-ACK crosses ours. Its SYN is the
    /// one that we know, a number before the window, so what counts is what follows it.
    pub(crate) fn behind_crossing_syn<'a>(&self, seg: &SegmentIn<'a>) -> SegmentIn<'a> {
        let crosses = self.state == State::SynReceived
            && seg.has(TcpFlags::SYN)
            && seg.ack.is_some_and(|ack| self.covered_by(ack).is_some())
            && seg.seq == self.receive.space.initial();
        if !crosses {
            return *seg;
        }
        // The window of a SYN is never scaled (RFC 7323 §2.2); that of what follows it is.
        let window = seg.window >> self.send.scale;
        SegmentIn { seq: seg.seq + 1, flags: seg.flags.without(ecn::OF_SYN), window, ..*seg }
    }

    /// Step 5 in SYN-RECEIVED: is our SYN acknowledged?
    pub(crate) fn check_syn_acknowledged(
        &mut self,
        now: Instant,
        seg: &SegmentIn<'_>,
        ack: SeqNum,
        rings: &mut Rings<'_>,
        out: &mut Disposition,
    ) -> Verdict {
        let Some(covered) = self.covered_by(ack) else {
            return Err(answer_with_reset(seg, ack));
        };
        self.enter(now, Event::SynAcknowledged, out);
        self.take_syn_text(covered, seg, rings, out);
        self.establish(now, seg, out);
        Ok(())
    }

    /// The handshake is over.
    fn establish(&mut self, now: Instant, seg: &SegmentIn<'_>, out: &mut Disposition) {
        (self.pending.syn, self.pending.syn_scales) = (false, None);
        self.timers.send = SendTimer::Off;
        let repeats = self.syn_retries;
        let sent_at = match (core::mem::take(&mut self.pending.syn_unmeasured), repeats) {
            (true, _) => None,
            (false, 0) => Some(self.progress_at),
            // Karn: a repeated SYN does not tell which one was answered, but its timestamp does (RFC 7323 §4.1).
            (false, _) => self
                .stamps
                .echoed(now, seg.options.timestamps)
                .filter(|&at| at >= TimestampClock::tick_start(self.progress_at)),
        };
        let rtt = sent_at.map(|at| now.saturating_since(at));
        match rtt {
            _ if !self.has_begun_early() => self.begin_flight(now, rtt, repeats),
            Some(rtt) => self.flight.rtt_mut().on_sample(now, rtt),
            None => {}
        }
        self.progress_at = now;
        self.counts.begin(now);
        self.is_unreachable = false;
        self.note_answer(now);
        out.events |= Events::CONNECTED | Events::WRITABLE;
        if self.send.fin != crate::send::NOWHERE {
            self.enter(now, Event::Close, out);
        }
        self.start_keepalive(now);
    }

    /// Text may leave.
    pub(crate) fn begin_flight(&mut self, now: Instant, rtt: Option<Duration>, syn_repeats: u8) {
        if self.config.mtu_probing == MtuProbing::Always {
            self.doubt_path();
        }
        let text = self.text_per_segment();
        self.flight.on_established(now, text, self.send.sack, rtt, syn_repeats);
        if syn_repeats <= 1 && self.config.profile.begins_with_whole_segments() {
            self.flight.begin_with_whole_segments();
        }
    }

    /// The SYN or SYN-ACK, if it is due.
    pub(crate) fn poll_syn(&mut self, now: Instant, rings: &Rings<'_>) -> Option<SegmentOut> {
        if self.state == State::Closed {
            return None;
        }
        if !core::mem::take(&mut self.pending.syn) {
            return self.poll_syn_received_ack(now, rings);
        }
        if self.syn_retries == 0 {
            self.progress_at = now;
        }
        self.timers.send = SendTimer::Syn(now + self.flight.rtt().rto().duration());
        let answers = self.state == State::SynReceived;
        let ack = answers.then(|| self.receive.space.seq(self.receive.nxt));
        let ecn = if answers { self.ecn.answer() } else { self.ask_for_ecn() };
        let mut out = SegmentOut::control(self.send.space.initial(), ack, TcpFlags::SYN | ecn);
        let announced = self.syn_window(rings.recv.foreseen());
        out.window = self.receive.announce_unscaled(announced);
        // A SYN-ACK repeats what the SYN offered and both agree on; a SYN offers what we can.
        let scaling = match self.pending.syn_scales {
            _ if answers => self.send.scaled,
            Some(scales) => scales,
            None => self.config.window_scaling,
        };
        // The peer may have read any of the copies.
        if scaling && self.pending.syn_scales.is_none() {
            self.receive.scale = self.config.window_scale_for(rings.recv.capacity());
        }
        self.pending.syn_scales.get_or_insert(scaling);
        out.options = TcpOptions {
            mss: Some(self.receive.mss.bytes()),
            window_scale: scaling.then_some(self.receive.scale),
            sack_permitted: if answers { self.send.sack } else { self.config.sack.offers() },
            timestamps: self.stamps.option(now),
            sack: SackBlocks::EMPTY,
            layout: self.config.profile.layout(),
        };
        self.put_fast_open(&mut out, rings);
        // As in Linux, what the program says to text that came with a SYN is no sign that it answers.
        self.receive.ack.settle();
        self.receive.ack.rests();
        Some(out)
    }

    /// How much of the free `room` our SYN or SYN-ACK announces.
    pub(crate) fn syn_window(&self, room: usize) -> usize {
        let stamped = self.state == State::SynReceived && self.stamps.is_on();
        let RoomLimits { clamp, buffer } = self.options.room();
        let room = clamp.into_iter().chain(buffer).fold(room, |room, limit| room.min(limit as usize));
        self.config.profile.syn_window(room, self.receive.mss, stamped)
    }

    /// In SYN-RECEIVED an unacceptable segment is answered with an ACK (a crossing SYN-ACK, above all).
    fn poll_syn_received_ack(&mut self, now: Instant, rings: &Rings<'_>) -> Option<SegmentOut> {
        if self.state != State::SynReceived || !self.receive.ack.is_due(now) {
            return None;
        }
        let ack = self.receive.space.seq(self.receive.nxt);
        let seq = self.send.space.seq(self.flight.nxt());
        let mut out = SegmentOut::control(seq, Some(ack), TcpFlags::EMPTY);
        out.options.timestamps = self.stamps.option(now);
        out.window = self.receive.announce(rings.recv, self.options.room());
        self.receive.ack.on_ack_sent(now, false);
        Some(out)
    }

    /// The SYN was not answered in time, or has yet to leave.
    pub(crate) fn on_syn_timer(&mut self, now: Instant) -> Option<Disposition> {
        if self.pending.syn {
            return self.on_held_syn_timer(now);
        }
        self.flight.rtt_mut().on_timeout();
        // `progress_at` is when the first SYN left. RFC 9293 MUST-23: at least 3 minutes by default.
        let is_tired = self.has_begun_early() && usize::from(self.syn_retries) >= RETRIES_MAX;
        let is_over = self.options.syn_retries().map_or_else(
            || now.saturating_since(self.progress_at) >= self.config.connect_timeout,
            |most| self.syn_retries >= most,
        );
        if is_tired || is_over {
            self.forget();
            return Some(Disposition::closed(self.said_by_the_network(CloseReason::TimedOut)));
        }
        self.syn_retries = self.syn_retries.saturating_add(1);
        self.ask_for_other_way(now);
        self.troubles().on_repeated_syn();
        self.pending.syn = true;
        self.timers.send = SendTimer::Off;
        None
    }
}

/// An acknowledgment of something that was never sent, while not synchronized: `<SEQ=SEG.ACK><CTL=RST>`, unless
/// it came with a RST (RFC 9293 §3.5.2 group 2).
fn answer_with_reset(seg: &SegmentIn<'_>, ack: SeqNum) -> Disposition {
    let mut out = Disposition::drop(DropReason::Unacceptable);
    if !seg.has(TcpFlags::RST) {
        out.reply = Some(SegmentOut::control(ack, None, TcpFlags::RST));
    }
    out
}
