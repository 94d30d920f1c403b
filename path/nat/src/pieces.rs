//! Pieces of datagrams: the first one has the ports and decides, the others follow it.
//!
//! We differ from RFC 4787 REQ-14: a piece that overtakes the first one is not kept until that comes. Where it would leave with an address
//! of inside it ends, with a reason of its own.

use core::net::Ipv4Addr;
use core::time::Duration;

use firelane_table::Recent;
use firelane_units::{Direction, DropReason, Instant, LinkId};
use firelane_wire::IpProtocol;

use crate::packet::Packet;
use crate::sessions::NatRef;
use crate::tuple::Tuple;
use crate::{Host, Nat};

/// For how long a datagram is known: as long as reassembly waits (RFC 1122 §3.3.2).
const LASTS: Duration = Duration::from_secs(60);

/// What all pieces of a datagram say.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Datagram {
    src: Ipv4Addr,
    dst: Ipv4Addr,
    protocol: IpProtocol,
    number: u16,
    direction: Direction,
}

/// The datagrams whose first pieces have passed.
#[derive(Debug)]
pub(crate) struct Pieces(Recent<Datagram, NatRef>);

impl Default for Pieces {
    fn default() -> Self {
        Self(Recent::new(LASTS))
    }
}

impl Datagram {
    const fn new(tuple: &Tuple, (number, direction): (u16, Direction)) -> Self {
        Self { src: tuple.src, dst: tuple.dst, protocol: tuple.protocol, number, direction }
    }
}

impl Pieces {
    /// The first piece of a datagram has passed by this session.
    pub(crate) fn keep(&mut self, tuple: &Tuple, datagram: (u16, Direction), session: NatRef, now: Instant) {
        self.0.keep(Datagram::new(tuple, datagram), session, now, |other| other.src == tuple.src);
    }

    pub(crate) fn expire(&mut self, now: Instant) {
        self.0.expire(now);
    }
}

impl Nat {
    pub(crate) fn pass_piece(
        &mut self,
        (direction, link): (Direction, LinkId),
        packet: &Packet,
        bytes: &mut [u8],
        host: &impl Host,
        now: Instant,
    ) -> Result<Option<Option<NatRef>>, DropReason> {
        let datagram = Datagram::new(&packet.tuple, (packet.datagram.unwrap_or(0), direction));
        let known = self.pieces.0.find(&datagram, now).and_then(|known| self.sessions.known(known));
        let Some((session, way)) = known.and_then(|(at, way)| Some((self.sessions.get_mut(at)?, way))) else {
            return self.pass_stranger((direction, link), packet, host, DropReason::NatFragment);
        };
        packet.rewrite(bytes, &session.ends_of(way), false);
        Ok(Some(None))
    }
}
