//! Datagrams whose first piece a rule with `keep frags` has let through: the other pieces, which no rule about ports can know,
//! pass with it.

use core::net::IpAddr;
use core::time::Duration;
use std::collections::VecDeque;

use firelane_units::{Direction, Instant};
use firelane_wire::IpProtocol;

use crate::packet::{Packet, Piece};

/// How many datagrams are remembered; the oldest goes first.
const DATAGRAMS_MAX: usize = 1024;
/// For how long: as long as reassembly waits (RFC 1122 §3.3.2).
const LASTS: Duration = Duration::from_secs(60);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Datagram {
    src: IpAddr,
    dst: IpAddr,
    protocol: IpProtocol,
    number: u32,
    direction: Direction,
}

/// The datagrams.
#[derive(Debug, Default)]
pub(crate) struct Frags {
    known: VecDeque<(Datagram, Instant)>,
}

impl Datagram {
    fn of(packet: &Packet<'_>) -> Self {
        let Packet { src, dst, protocol, datagram, direction, .. } = *packet;
        Self { src, dst, protocol, number: datagram, direction }
    }
}

impl Frags {
    /// A first piece passed.
    pub(crate) fn keep(&mut self, packet: &Packet<'_>, now: Instant) {
        if packet.piece != Piece::First {
            return;
        }
        self.expire(now);
        if self.known.len() == DATAGRAMS_MAX {
            self.known.pop_front();
        }
        self.known.push_back((Datagram::of(packet), now + LASTS));
    }

    /// Whether a later piece is of a datagram whose first piece passed.
    pub(crate) fn knows(&self, packet: &Packet<'_>, now: Instant) -> bool {
        let datagram = || Datagram::of(packet);
        packet.piece == Piece::Later
            && !self.known.is_empty()
            && self.known.iter().any(|(known, until)| *until > now && *known == datagram())
    }

    /// Forgets those that are old.
    pub(crate) fn expire(&mut self, now: Instant) {
        while self.known.front().is_some_and(|(_, until)| *until <= now) {
            self.known.pop_front();
        }
    }
}
