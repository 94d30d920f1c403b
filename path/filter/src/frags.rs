//! Datagrams whose first piece a rule with `keep frags` has let through: the other pieces, which no rule about ports can know,
//! pass with it.

use core::net::IpAddr;
use core::time::Duration;

use firelane_table::Recent;
use firelane_units::{Direction, Instant};
use firelane_wire::IpProtocol;

use crate::packet::{Packet, Piece};

/// For how long: as long as reassembly waits (RFC 1122 §3.3.2).
const LASTS: Duration = Duration::from_secs(60);

/// The names that all pieces of a datagram have.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Datagram {
    /// Where it says it comes from.
    pub src: IpAddr,
    dst: IpAddr,
    protocol: Option<IpProtocol>,
    number: u32,
    direction: Direction,
}

/// The datagrams.
#[derive(Debug)]
pub(crate) struct Frags(Recent<Datagram, ()>);

impl Default for Frags {
    fn default() -> Self {
        Self(Recent::new(LASTS))
    }
}

impl Datagram {
    /// Those of a piece.
    pub fn of(packet: &Packet<'_>) -> Self {
        let Packet { src, dst, datagram, direction, .. } = *packet;
        // IPv6's pieces may begin with different headers, and are of one datagram without it (RFC 8200 §4.5).
        let protocol = Some(packet.protocol).filter(|_| src.is_ipv4());
        Self { src, dst, protocol, number: datagram, direction }
    }
}

impl Frags {
    /// A first piece passed.
    pub(crate) fn keep(&mut self, packet: &Packet<'_>, now: Instant) {
        if packet.piece == Piece::First {
            self.0.keep(Datagram::of(packet), (), now, |other| other.src == packet.src);
        }
    }

    /// Whether a later piece is of a datagram whose first piece passed.
    pub(crate) fn knows(&self, packet: &Packet<'_>, now: Instant) -> bool {
        packet.piece == Piece::Later && self.0.find(&Datagram::of(packet), now).is_some()
    }

    /// Forgets those that are old.
    pub(crate) fn expire(&mut self, now: Instant) {
        self.0.expire(now);
    }
}
