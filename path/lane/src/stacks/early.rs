//! Pieces of datagrams that have overtaken their first one: the translator keeps them until that has passed, and they follow it then,
//! each on the way on which it was kept (RFC 4787 REQ-14).
//!
//! The netstack's books call a frame that waits here held. On its way out it was IP's, and is taken out of IP's books as one that ends there
//! is; when it goes on it is put back. Called by `translated.rs` and `filtered.rs`, which say that a piece is early, and
//! behind each packet that may be a first one, and when time is up (`mod.rs`). The limits are `path/nat`'s.

use firelane_classify::Headers;
use firelane_frame::Frame;
use firelane_nat::{EarlyPiece, Returned};
use firelane_units::{Direction, DropReason, LinkId};

use super::inbound::Inside;
use crate::watch::Sight;

/// Why a packet does not leave.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Stay {
    /// It ends here.
    Ended(DropReason),
    /// It waits for the first piece of its datagram.
    Early(EarlyPiece),
}

impl<D> Inside<'_, D> {
    /// The translator keeps a piece.
    pub(super) fn keep(&mut self, piece: EarlyPiece, frame: Frame) {
        self.common.see(frame.meta().trace, Sight::Early);
        match self.shard.gate.nat() {
            Some(nat) => nat.keep(piece, frame, self.common.now),
            None => self.drop_frame(frame, DropReason::NatFragment),
        }
    }

    /// A frame that IP has made ready does not leave.
    pub(super) fn stay(&mut self, frame: Frame, stay: Stay) {
        self.shard.ip.take_out();
        match stay {
            Stay::Ended(reason) => self.drop_frame(frame, reason),
            Stay::Early(piece) => self.keep(piece, frame),
        }
    }

    /// What has waited for a packet that came in comes in behind it.
    #[inline]
    pub(super) fn let_follow(&mut self) {
        while let Some(returned) = self.returned(Direction::In) {
            match returned {
                Returned::Released(link, frame) => self.come_in_again(link, frame),
                Returned::Ended(frame, reason) => self.drop_frame(frame, reason),
            }
        }
    }

    /// What has waited for a packet that leaves does so behind it.
    #[inline]
    pub(super) fn let_follow_out(&mut self) {
        while let Some(returned) = self.returned(Direction::Out) {
            match returned {
                Returned::Released(_, frame) => self.go_out_again(frame),
                Returned::Ended(frame, reason) => self.drop_frame(frame, reason),
            }
        }
    }

    /// The translator goes: what it has kept ends.
    pub(super) fn give_up_pieces(&mut self) {
        if let Some(nat) = self.shard.gate.nat() {
            nat.give_up_pieces();
        }
        self.let_follow();
        self.let_follow_out();
    }

    #[inline]
    fn returned(&mut self, direction: Direction) -> Option<Returned> {
        self.shard.gate.nat()?.poll_returned(direction)
    }

    #[cold]
    fn come_in_again(&mut self, link: LinkId, frame: Frame) {
        match Headers::parse(frame.as_slice()) {
            // A piece has no ports, so no other lane was asked for who has them.
            Ok(headers) => {
                if let Some((frame, changed)) = self.pass_doors((link, None), frame, &headers) {
                    self.slow_path(link, frame, &headers, changed.as_ref());
                }
            }
            Err(reason) => self.drop_frame(frame, reason),
        }
    }

    /// The filter has let it go before it was kept.
    #[cold]
    fn go_out_again(&mut self, mut frame: Frame) {
        self.shard.ip.put_back();
        let passed = match Headers::parse(frame.as_slice()) {
            Ok(headers) => self.translate_out(&mut frame, headers.l3_offset).map(drop),
            Err(reason) => Err(Stay::Ended(reason)),
        };
        match passed {
            Ok(()) => self.leave(frame),
            Err(stay) => self.stay(frame, stay),
        }
    }
}
