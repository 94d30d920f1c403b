//! A segment as the connection sees it, coming and going.
//!
//! [`SegmentIn`] is made by the lane from a checked view; its payload is borrowed from the frame and copied
//! once, straight into the receive ring. [`SegmentOut`] is an instruction to the lane: header fields, and a
//! range of *send cursors* that the lane copies out of the send ring (up to 64 KiB, cut into `segment_bytes`
//! pieces by the device or by software). Ports and addresses are the lane's header template.

use core::ops::Range;

use firelane_units::{DropReason, SeqNum};
use firelane_wire::{Ecn, OptionLayout, TcpFlags, TcpOptions};

/// A segment that arrived, its checksum already verified.
#[derive(Clone, Copy, Debug)]
pub struct SegmentIn<'a> {
    /// Sequence number of the first octet (or of the SYN).
    pub seq: SeqNum,
    /// The acknowledgment number, if the ACK bit is set.
    pub ack: Option<SeqNum>,
    /// The control bits.
    pub flags: TcpFlags,
    /// The window field as on the wire, without scaling.
    pub window: u16,
    /// The urgent pointer as on the wire.
    pub urgent: u16,
    /// The options.
    pub options: TcpOptions,
    /// The text.
    pub payload: &'a [u8],
    /// What the IP header said about congestion.
    pub ecn: Ecn,
}

impl SegmentIn<'_> {
    /// SEG.LEN: the sequence space it occupies, SYN and FIN included (RFC 9293 §3.3.1).
    pub fn len(&self) -> u32 {
        self.payload.len() as u32
            + u32::from(self.flags.contains(TcpFlags::SYN))
            + u32::from(self.flags.contains(TcpFlags::FIN))
    }

    /// Whether it occupies no sequence space.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The sequence number after its last octet.
    pub fn end(&self) -> SeqNum {
        self.seq + self.len()
    }

    /// Whether the control bit is set.
    pub fn has(&self, flag: TcpFlags) -> bool {
        self.flags.contains(flag)
    }
}

/// A segment to send. A large one is cut every `segment_bytes` of payload: FIN and PSH belong to the last
/// piece, CWR to the first.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SegmentOut {
    /// Sequence number of the first octet.
    pub seq: SeqNum,
    /// The acknowledgment number; `None` leaves the ACK bit clear.
    pub ack: Option<SeqNum>,
    /// The control bits.
    pub flags: TcpFlags,
    /// The window field as it goes on the wire.
    pub window: u16,
    /// The urgent pointer as it goes on the wire.
    pub urgent: u16,
    /// The options; every piece of a large segment carries them.
    pub options: TcpOptions,
    /// The text, as cursors of the send ring.
    pub payload: Range<u64>,
    /// The most payload that one piece carries.
    pub segment_bytes: u16,
    /// What the IP header says about congestion.
    pub ecn: Ecn,
    /// Whether its text has left before; nothing of it is on the wire, it is for whoever counts.
    pub is_repeated: bool,
}

impl SegmentOut {
    /// A segment without text: `flags` at `seq`, acknowledging `ack`.
    pub fn control(seq: SeqNum, ack: Option<SeqNum>, flags: TcpFlags) -> Self {
        let flags = if ack.is_some() { flags | TcpFlags::ACK } else { flags };
        Self {
            seq,
            ack,
            flags,
            window: 0,
            urgent: 0,
            options: TcpOptions::default(),
            payload: 0..0,
            segment_bytes: 0,
            ecn: Ecn::NotCapable,
            is_repeated: false,
        }
    }

    /// What its receiver would read of it in a packet, if it has no text and marks none as urgent.
    pub fn without_packet(&self) -> Option<SegmentIn<'static>> {
        if !self.payload.is_empty() || self.flags.contains(TcpFlags::URG) {
            return None;
        }
        Some(SegmentIn {
            seq: self.seq,
            ack: self.ack,
            flags: self.flags,
            window: self.window,
            urgent: self.urgent,
            // In which order they would have stood cannot be seen in what was read.
            options: TcpOptions { layout: OptionLayout::default(), ..self.options },
            payload: &[],
            ecn: self.ecn,
        })
    }

    /// How much text it carries.
    pub fn payload_len(&self) -> usize {
        (self.payload.end - self.payload.start) as usize
    }

    /// How many pieces leave on the wire.
    pub fn pieces(&self) -> usize {
        match self.segment_bytes {
            0 => 1,
            bytes => self.payload_len().div_ceil(usize::from(bytes)).max(1),
        }
    }
}

/// What a segment or a timer did, for the lane to act on. Whatever the connection then has to send comes out
/// of `poll_transmit`.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Disposition {
    /// What the socket must hear.
    pub events: Events,
    /// A reply that belongs to no stream position: a RST, or a challenge ACK (RFC 5961), which the lane sends
    /// only if the host's [`crate::ChallengeBudget`] allows it.
    pub reply: Option<SegmentOut>,
    /// The connection is gone, and why. The lane drops it after it has sent what is left.
    pub closed: Option<CloseReason>,
    /// The segment's text was not taken, and why; the frame counts under this reason.
    pub dropped: Option<DropReason>,
}

impl Disposition {
    /// Nothing to tell, and the segment gave nothing, for `reason`.
    pub fn drop(reason: DropReason) -> Self {
        Self { dropped: Some(reason), ..Self::default() }
    }

    /// The connection ended for `reason`.
    pub(crate) fn closed(reason: CloseReason) -> Self {
        Self { events: Events::CLOSED, closed: Some(reason), ..Self::default() }
    }
}

/// A step of the segment's way: go on to the next one, or stop here with what there is to tell.
pub(crate) type Verdict = Result<(), Disposition>;

/// Why a connection is gone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CloseReason {
    /// Both ends closed and know it.
    Finished,
    /// The peer answered our SYN with a RST (`ECONNREFUSED`).
    Refused,
    /// The peer reset the connection (`ECONNRESET`).
    Reset,
    /// The peer reset it after its FIN, so that what was written reaches nobody (`EPIPE`, as Linux says).
    BrokenPipe,
    /// Nothing came back for too long (`ETIMEDOUT`).
    TimedOut,
    /// The network says that the peer cannot be reached (`EHOSTUNREACH`): at once while connecting, else when the wait for
    /// the peer has ended in vain.
    Unreachable,
    /// We gave it up: an abort, or data that nobody can read any more.
    Aborted,
}

/// A set of things that the socket must hear.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub struct Events(u8);

impl Events {
    /// Nothing.
    pub const NONE: Self = Self(0);
    /// The handshake is complete.
    pub const CONNECTED: Self = Self(1);
    /// The receive ring has more.
    pub const READABLE: Self = Self(1 << 1);
    /// The send ring has room again.
    pub const WRITABLE: Self = Self(1 << 2);
    /// The peer will send no more: after what is in the ring comes end of file.
    pub const PEER_CLOSED: Self = Self(1 << 3);
    /// The peer has urgent data (`SIGURG`).
    pub const URGENT: Self = Self(1 << 4);
    /// Only TIME-WAIT is left: take [`crate::Connection::time_wait_record`] once everything is sent.
    pub const TIME_WAIT: Self = Self(1 << 5);
    /// The connection is gone; `Disposition::closed` says why.
    pub const CLOSED: Self = Self(1 << 6);
    /// The reply is a challenge ACK.
    pub const CHALLENGE: Self = Self(1 << 7);

    /// Whether all of `other` is in the set.
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Whether the set is empty.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }
}

impl core::ops::BitOr for Events {
    type Output = Self;
    fn bitor(self, rhs: Self) -> Self {
        Self(self.0 | rhs.0)
    }
}

impl core::ops::BitOrAssign for Events {
    fn bitor_assign(&mut self, rhs: Self) {
        self.0 |= rhs.0;
    }
}

impl core::fmt::Debug for Events {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        const WORDS: [&str; 8] = [
            "connected",
            "readable",
            "writable",
            "peer_closed",
            "urgent",
            "time_wait",
            "closed",
            "challenge",
        ];
        f.debug_set()
            .entries(
                WORDS.iter().enumerate().filter(|&(bit, _)| self.0 >> bit & 1 == 1).map(|(_, word)| word),
            )
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn syn_and_fin_occupy_sequence_space() {
        let seg = |flags, payload| SegmentIn {
            seq: SeqNum(u32::MAX),
            ack: None,
            flags,
            window: 0,
            urgent: 0,
            options: TcpOptions::default(),
            payload,
            ecn: Ecn::NotCapable,
        };
        for (flags, payload, len) in [
            (TcpFlags::ACK, &b""[..], 0),
            (TcpFlags::SYN, b"", 1),
            (TcpFlags::ACK | TcpFlags::FIN, b"ab", 3),
            (TcpFlags::SYN | TcpFlags::FIN, b"", 2),
        ] {
            let seg = seg(flags, payload);
            assert_eq!((seg.len(), seg.is_empty()), (len, len == 0));
            assert_eq!(seg.end(), SeqNum(u32::MAX) + len);
        }
    }

    #[test]
    fn events_are_named() {
        let events = Events::CONNECTED | Events::CLOSED;
        assert_eq!(format!("{events:?}"), r#"{"connected", "closed"}"#);
        assert!(events.contains(Events::CLOSED) && !events.contains(Events::READABLE));
    }

    #[test]
    fn pieces_of_a_large_segment() {
        let mut out = SegmentOut::control(SeqNum(1), None, TcpFlags::RST);
        assert_eq!(out.pieces(), 1);
        (out.payload, out.segment_bytes) = (10..10 + 2921, 1460);
        assert_eq!(out.pieces(), 3);
    }
}
