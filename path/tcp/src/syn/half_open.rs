//! One half-open connection: what its SYN said and what was answered (RFC 9293 §3.10.7.2, RFC 4987 §3.4).
//!
//! A hundred bytes, without rings, socket or timer of its own. `syn.rs` keeps them; a cookie that comes back
//! (`cookie.rs`) is turned into one for the moment in which it grows up.

use std::sync::Arc;

use firelane_units::{Instant, SeqNum, SocketId};
use firelane_wire::{Ecn, TcpFlags, TcpOptions};

use crate::config::TcpConfig;
use crate::connection::{Birth, Connection};
use crate::cookie::Offer;
use crate::ecn;
use crate::handshake::SynAckSent;
use crate::segment::{SegmentIn, SegmentOut};
use crate::syn::{NewRing, Opening};

/// What the peer's SYN said, without text.
#[derive(Clone, Copy, Debug)]
pub(super) struct PeerSyn {
    pub(super) irs: SeqNum,
    pub(super) mss: Option<u16>,
    pub(super) window: u16,
    pub(super) offer: Offer,
    /// The peer's timestamp, if it uses them.
    pub(super) stamp: Option<u32>,
}

impl PeerSyn {
    fn new(seg: &SegmentIn<'_>) -> Self {
        let TcpOptions { mss, window_scale, sack_permitted, timestamps, .. } = seg.options;
        Self {
            irs: seg.seq,
            mss,
            window: seg.window,
            offer: Offer { scale: window_scale, sack: sack_permitted, ecn: ecn::is_asked(seg) },
            stamp: timestamps.map(|(value, _)| value),
        }
    }

    /// The options as they stood in the SYN.
    fn options(&self) -> TcpOptions {
        TcpOptions {
            mss: self.mss,
            window_scale: self.offer.scale,
            sack_permitted: self.offer.sack,
            timestamps: self.stamp.map(|value| (value, 0)),
            ..TcpOptions::EMPTY
        }
    }
}

/// A SYN that was answered.
#[derive(Clone, Debug)]
pub struct HalfOpen {
    pub(super) listener: SocketId,
    pub(super) birth: Birth,
    pub(super) peer: PeerSyn,
    /// The ring that the connection will have.
    pub(super) room: NewRing,
    pub(super) sent: SynAckSent,
    /// For how many repeats of the SYN-ACK it waits for text (`TCP_DEFER_ACCEPT`).
    pub(super) defer: u8,
    /// The peer has acknowledged the SYN-ACK, and believes to be connected: it waits for text, or for room at the listener.
    pub(super) acked: bool,
    pub(super) config: Arc<TcpConfig>,
}

impl HalfOpen {
    /// What a SYN becomes for a listener.
    pub(super) fn new(now: Instant, opening: &Opening<'_>, seg: &SegmentIn<'_>) -> Self {
        Self {
            listener: opening.listener,
            birth: opening.birth,
            peer: PeerSyn::new(seg),
            room: opening.room,
            sent: SynAckSent::First { at: now, retries: 0 },
            defer: opening.defer,
            acked: false,
            config: Arc::clone(opening.config),
        }
    }

    /// A SYN and the SYN-ACK for it, for who has the rest of the handshake over at once and needs no table.
    pub fn begin(now: Instant, opening: &Opening<'_>, seg: &SegmentIn<'_>) -> (Self, SegmentOut) {
        let entry = Self::new(now, opening, seg);
        let answer = entry.syn_ack(now);
        (entry, answer)
    }

    /// Whose connection it will be.
    pub fn listener(&self) -> SocketId {
        self.listener
    }

    /// The ring of which its SYN-ACK has promised room.
    pub fn room(&self) -> usize {
        self.room.capacity as usize
    }

    /// The connection that it becomes, in SYN-RECEIVED: give it its rings, and then the segment that completed
    /// the handshake.
    #[inline]
    pub fn connection(&self) -> Connection {
        let syn = SegmentIn {
            seq: self.peer.irs,
            ack: None,
            flags: if self.peer.offer.ecn { TcpFlags::SYN | ecn::ASKS } else { TcpFlags::SYN },
            window: self.peer.window,
            urgent: 0,
            options: self.peer.options(),
            payload: &[],
            ecn: Ecn::NotCapable,
        };
        Connection::from_half_open(&self.config, &self.birth, &syn, self.room, self.sent)
    }

    /// Whether this ACK, after so many repeats of the SYN-ACK, completes nothing, because its listener wants text first.
    pub(super) fn puts_off(&self, seg: &SegmentIn<'_>, retries: u8) -> bool {
        retries < self.defer && seg.payload.is_empty() && !seg.has(TcpFlags::FIN)
    }

    /// Whether the SYN-ACK goes once more after `retries` repeats: one that the peer has acknowledged only to hear from him
    /// when the listener's time is over.
    pub(super) fn repeats(&self, retries: u8) -> bool {
        !self.acked || retries + 1 >= self.defer
    }

    /// The SYN-ACK: it repeats what the SYN offered and both agree on.
    pub(super) fn syn_ack(&self, now: Instant) -> SegmentOut {
        let (config, peer) = (&self.config, &self.peer);
        let agrees = peer.offer.ecn && ecn::is_accepted(config);
        let flags = if agrees { TcpFlags::SYN | TcpFlags::ECE } else { TcpFlags::SYN };
        let mut out = SegmentOut::control(self.birth.iss, Some(peer.irs + 1), flags);
        out.window = self.window_field();
        let scale = peer.offer.scale.filter(|_| config.window_scaling);
        out.options = TcpOptions {
            mss: Some(self.birth.mss.bytes()),
            window_scale: scale.map(|_| config.window_scale_for(self.room.capacity as usize)),
            sack_permitted: config.sack.accepts() && peer.offer.sack,
            timestamps: self.stamps(now),
            layout: config.profile.layout(),
            ..TcpOptions::EMPTY
        };
        out
    }

    /// `<SEQ=SND.NXT><ACK=RCV.NXT><CTL=ACK>`.
    pub(super) fn challenge(&self, now: Instant) -> SegmentOut {
        let mut out = SegmentOut::control(self.birth.iss + 1, Some(self.peer.irs + 1), TcpFlags::EMPTY);
        out.window = self.window_field();
        out.options.timestamps = self.stamps(now);
        out
    }

    /// Our timestamp and the echo of the peer's, if both use them.
    pub(super) fn stamps(&self, now: Instant) -> Option<(u32, u32)> {
        let echo = self.peer.stamp.filter(|_| self.config.timestamps)?;
        Some((self.birth.clock.value(now), echo))
    }

    pub(super) fn window_field(&self) -> u16 {
        let stamped = self.peer.stamp.is_some() && self.config.timestamps;
        let window = self.config.profile.syn_window(self.room.foreseen as usize, self.birth.mss, stamped);
        window.min(usize::from(u16::MAX)) as u16
    }
}
