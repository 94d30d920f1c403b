//! RFC 9293 §3.10.7.2: what a listener does with a segment that belongs to no connection.
//!
//! Pure; the lane asks before it makes a half-open entry (`syn.rs`) or answers with a RST (`reset.rs`).

use firelane_wire::TcpFlags;

use crate::segment::SegmentIn;

/// What a listener does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AtListener {
    /// Somebody wants to connect.
    Open,
    /// It acknowledges something of a connection that does not exist: a RST.
    Reset,
    /// Nothing, and says nothing.
    Ignore,
}

impl AtListener {
    /// The steps of §3.10.7.2 in their order.
    pub fn of(seg: &SegmentIn<'_>) -> Self {
        match () {
            () if seg.has(TcpFlags::RST) => Self::Ignore,
            () if seg.ack.is_some() => Self::Reset,
            // We differ: who opens and closes in one segment wants neither; as on Linux, it leaves no state.
            () if seg.has(TcpFlags::SYN) && !seg.has(TcpFlags::FIN) => Self::Open,
            () => Self::Ignore,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use firelane_units::SeqNum;
    use firelane_wire::{Ecn, TcpOptions};

    #[test]
    fn every_combination_of_flags() {
        let (syn, fin, rst) = (TcpFlags::SYN, TcpFlags::FIN, TcpFlags::RST);
        for (flags, acks, verdict) in [
            (TcpFlags::EMPTY, false, AtListener::Ignore),
            (TcpFlags::EMPTY, true, AtListener::Reset),
            (fin, false, AtListener::Ignore),
            (fin, true, AtListener::Reset),
            (syn, false, AtListener::Open),
            (syn, true, AtListener::Reset),
            (syn | fin, false, AtListener::Ignore),
            (syn | fin, true, AtListener::Reset),
            (rst, false, AtListener::Ignore),
            (rst, true, AtListener::Ignore),
            (syn | rst, false, AtListener::Ignore),
            (syn | fin | rst, true, AtListener::Ignore),
            (syn | TcpFlags::PSH | TcpFlags::URG, false, AtListener::Open),
        ] {
            let seg = SegmentIn {
                seq: SeqNum(5),
                ack: acks.then_some(SeqNum(7)),
                flags,
                window: 0,
                urgent: 0,
                options: TcpOptions::EMPTY,
                payload: &[],
                ecn: Ecn::NotCapable,
            };
            assert_eq!(AtListener::of(&seg), verdict, "{flags} {acks}");
        }
    }
}
