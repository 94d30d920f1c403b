//! A connection that opens fast, until its handshake is over (RFC 7413 §4.2).
//!
//! The text of a SYN lies at the beginning of the send ring, and stays outside the flight as the SYN does: what the
//! SYN-ACK covers leaves the ring, what it does not is sent as if for the first time. A server that has taken the text
//! of a SYN is in SYN-RECEIVED, and may answer before the client's ACK comes. A SYN that is repeated carries neither
//! text nor option, so whatever it was that lost the first one lets the second pass.

use firelane_units::{Instant, Mss, SeqNum};
use firelane_wire::FastOpen;
use std::sync::Arc;

use crate::config::TcpConfig;
use crate::connection::{Birth, Connection, Rings};
use crate::segment::{CloseReason, Disposition, Events, SegmentIn, SegmentOut};
use crate::send::TransmitLimits;
use crate::state::State;

/// What a SYN may carry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FastOpenOffer {
    /// A cookie, or the question for one; `None` goes without.
    pub option: Option<FastOpen>,
    /// Whether text goes with it.
    pub text: bool,
    /// The largest segment that the server is known to take.
    pub mss: Mss,
}

/// What a client's handshake has shown.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FastOpenReport {
    /// The SYN carried no text, and was answered with this, or without a cookie.
    Answered {
        /// The server's cookie.
        cookie: Option<FastOpen>,
        /// The MSS that it announced.
        mss: Mss,
    },
    /// The SYN's text was taken, some of it at least.
    Taken {
        /// A cookie that replaces the one that was used.
        cookie: Option<FastOpen>,
        /// The MSS that it announced.
        mss: Mss,
    },
    /// The SYN's text was not.
    Refused {
        /// A cookie to be used next time.
        cookie: Option<FastOpen>,
        /// The MSS that it announced.
        mss: Mss,
    },
    /// The SYN had to be repeated without text and option, was never answered, or by an ICMP error alone.
    Lost,
}

/// `tcpi_fastopen_client_fail`: why the SYN's text was not taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum Failure {
    #[default]
    None,
    NoCookie,
    NotAcknowledged,
    Repeated,
}

/// What a connection that opens fast remembers.
#[derive(Clone, Debug, Default)]
pub(crate) struct FastOpenState {
    /// A listener has taken the text; else we connect.
    is_server: bool,
    /// What the first SYN or SYN-ACK carries, until that has left.
    option: Option<FastOpen>,
    /// How large a segment the SYN may be; zero if it carries no text.
    room: u16,
    /// The cursor after the SYN's text: ours once it has left, or the peer's.
    text: u64,
    /// What the handshake has shown, until the lane asks.
    report: Option<FastOpenReport>,
    /// Whether the end of a server's handshake was told.
    is_told: bool,
    is_taken: bool,
    failure: Failure,
}

impl Connection {
    /// An active open whose SYN carries what `offer` allows of what the send ring holds when it leaves.
    pub fn open_fast(config: &Arc<TcpConfig>, birth: &Birth, offer: FastOpenOffer, now: Instant) -> Self {
        let mut connection = Self::open(config, birth, now);
        let room = if offer.text { offer.mss.min(birth.mss).bytes() } else { 0 };
        let state = FastOpenState { option: offer.option, room, ..FastOpenState::default() };
        connection.options.set_fast_open(state);
        connection
    }

    /// A passive open at once: `seg` is a SYN with a good cookie, and its text goes to the program. The SYN-ACK, which
    /// brings the cookie `renewed`, leaves with the next `poll_transmit`.
    pub fn accept_fast(
        config: &Arc<TcpConfig>,
        birth: &Birth,
        seg: &SegmentIn<'_>,
        renewed: Option<FastOpen>,
        now: Instant,
        rings: &mut Rings<'_>,
    ) -> (Self, Disposition) {
        let mut connection = Self::from_syn(config, birth, seg, now);
        let mut out = Disposition { events: Events::CONNECTED | Events::WRITABLE, ..Disposition::default() };
        let announced = connection.syn_window(rings.recv.foreseen());
        connection.receive.announce_unscaled(announced);
        connection.counts.on_received(now, seg.payload.len(), connection.receive.segment().into());
        connection.timers.note_traffic(now);
        if !seg.payload.is_empty() {
            let (delay, counts) = (config.delayed_ack, !connection.send.sack);
            match connection.receive.take_text(now, 0, seg.payload, rings.recv, delay, counts) {
                Ok(_) => out.events |= Events::READABLE,
                Err(reason) => out.dropped = Some(reason),
            }
        }
        let text = connection.receive.nxt;
        connection.options.set_fast_open(FastOpenState {
            is_server: true,
            option: renewed,
            text,
            is_taken: text > 0,
            ..FastOpenState::default()
        });
        connection.begin_flight(now, None, 0);
        (connection, out)
    }

    /// Puts option and text into the first SYN, or the option into the first SYN-ACK.
    pub(crate) fn put_fast_open(&mut self, out: &mut SegmentOut, rings: &Rings<'_>) {
        let is_syn = self.state == State::SynSent;
        let Some(state) = self.options.fast_open_mut() else { return };
        if let Some(option) = state.option.take() {
            out.options = out.options.with_fast_open(option);
        }
        let room = core::mem::take(&mut state.room);
        if !is_syn || room == 0 {
            return;
        }
        let room = usize::from(room).saturating_sub(out.options.emitted_len());
        let text = rings.send.available().min(room);
        state.text = text as u64;
        out.payload = 0..state.text;
        out.segment_bytes = text as u16;
    }

    /// How much text `ack` covers of what left with the SYN or before the handshake was over; `None` if it acknowledges
    /// what was never sent.
    pub(crate) fn covered_by(&self, ack: SeqNum) -> Option<u64> {
        let covered = self.send.space.cursor(ack, 0);
        let of_syn = self.options.fast_open().filter(|state| !state.is_server).map_or(0, |state| state.text);
        let most = self.flight.nxt().max(of_syn) as i64;
        (0..=most).contains(&covered).then_some(covered as u64)
    }

    /// The SYN is acknowledged by `seg`, with so much of its text.
    pub(crate) fn take_syn_text(
        &mut self,
        covered: u64,
        seg: &SegmentIn<'_>,
        rings: &mut Rings<'_>,
        out: &mut Disposition,
    ) {
        let (mss, has_repeated) = (self.peer_mss, self.syn_retries > 0);
        let Some(state) = self.options.fast_open_mut().filter(|state| !state.is_server) else { return };
        let (cookie, text) = (seg.options.fast_open().filter(|it| !it.is_request()), state.text);
        state.is_taken = covered > 0;
        let (report, failure) = match () {
            () if covered > 0 => (FastOpenReport::Taken { cookie, mss }, Failure::None),
            // An answer with a cookie is an answer to the first SYN, which the second only overtook.
            () if has_repeated && cookie.is_none() => (FastOpenReport::Lost, Failure::Repeated),
            () if text > 0 => (FastOpenReport::Refused { cookie, mss }, Failure::NotAcknowledged),
            () => (FastOpenReport::Answered { cookie, mss }, Failure::NoCookie),
        };
        (state.report, state.failure) = (Some(report), failure);
        if covered > 0 {
            rings.send.release(covered as usize);
            self.flight.begin_at(covered);
            self.send.update_window(seg.seq, covered, seg.window.into());
            out.events |= Events::WRITABLE;
        }
        if text > covered {
            self.troubles().repeated_bytes += firelane_units::Bytes(text - covered);
        }
    }

    /// Text of a server that has taken a SYN's, while the client's ACK is still to come (RFC 7413 §4.2.2). The SYN-ACK
    /// keeps its timer and its time.
    pub(crate) fn poll_early_text(
        &mut self,
        now: Instant,
        rings: &Rings<'_>,
        limits: &TransmitLimits,
    ) -> Option<SegmentOut> {
        if self.state != State::SynReceived || !self.has_begun_early() {
            return None;
        }
        let range = self.next_range(now, rings, limits)?;
        let (timer, since) = (self.timers.send, self.progress_at);
        let out = self.emit(now, range, rings);
        (self.timers.send, self.progress_at) = (timer, since);
        Some(out)
    }

    /// Whether its program had it before the handshake was over.
    pub(crate) fn has_begun_early(&self) -> bool {
        self.options.fast_open().is_some_and(|state| state.is_server)
    }

    /// Whether the text of a SYN was taken, ours by the peer or the peer's by us (`TCPI_OPT_SYN_DATA`).
    pub(crate) fn had_text_in_syn(&self) -> bool {
        self.options.fast_open().is_some_and(|state| state.is_taken)
    }

    /// Why ours was not.
    pub(crate) fn fast_open_failure(&self) -> Failure {
        self.options.fast_open().map_or(Failure::None, |state| state.failure)
    }

    /// What a client's handshake has shown, once; also if it was never answered, or by the network alone (RFC 7413
    /// §4.1.3.1). `closed` is the end of its connection.
    pub fn take_fast_open_report(&mut self, closed: Option<CloseReason>) -> Option<FastOpenReport> {
        let is_in_vain = match closed {
            // Of what has never left nothing is known.
            Some(CloseReason::TimedOut | CloseReason::Unreachable) => {
                !self.pending.syn || self.syn_retries > 0
            }
            _ => self.state == State::Closed && self.syn_retries > 0,
        };
        let state = self.options.fast_open_mut().filter(|state| !state.is_server && !state.is_told)?;
        let report = state.report.take().or(is_in_vain.then_some(FastOpenReport::Lost))?;
        state.is_told = true;
        Some(report)
    }

    /// Whether a server's handshake that began with a Fast Open is over, in this way or that; says so once.
    pub fn take_fast_open_end(&mut self) -> bool {
        let is_over = self.state != State::SynReceived;
        let state = self.options.fast_open_mut().filter(|state| state.is_server && is_over && !state.is_told);
        state.map(|state| state.is_told = true).is_some()
    }

    /// Whether text vanishes behind a handshake whose SYN brought text there, so that something on the way seems not to
    /// bear it; says so once.
    pub fn take_black_hole(&mut self) -> bool {
        let is_silent = self.receive.nxt == 0 && self.state.is_synchronized();
        let state =
            self.options.fast_open_mut().filter(|state| is_silent && !state.is_server && state.is_taken);
        state.is_some_and(|state| {
            core::mem::replace(&mut state.failure, Failure::NotAcknowledged) == Failure::None
        })
    }

    /// Whether text went in a client's SYN and the server has answered with text.
    pub fn has_opened_fast(&self) -> bool {
        self.receive.nxt > 0
            && self.options.fast_open().is_some_and(|state| !state.is_server && state.is_taken)
    }
}
