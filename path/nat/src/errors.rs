//! ICMP errors: what they quote is translated back, and they go to whom the quoted packet came from (RFC 5508 §4).
//!
//! An error about a packet of a session goes the other way, and changes where packets of that way do. It neither renews a session
//! nor ends it (RFC 5382 REQ-9, RFC 5508 REQ-6).

use core::net::Ipv4Addr;

use firelane_table::Kept;
use firelane_units::{Direction, DropReason, Instant, LinkId};

use crate::packet::Packet;
use crate::{Host, Nat, Outcome};

impl Nat {
    pub(crate) fn pass_error(
        &mut self,
        (direction, link): (Direction, LinkId),
        packet: &Packet,
        bytes: &mut [u8],
        host: &impl Host,
        now: Instant,
    ) -> Result<Outcome, DropReason> {
        let quoted = packet.quoted(bytes);
        let found = quoted.as_ref().ok().and_then(|quoted| self.sessions.find(&quoted.tuple.reversed()));
        let session = found.and_then(|(at, way)| Some((self.sessions.get_mut(at)?, way)));
        let session = session.filter(|(session, way)| session.ends() > now && session.at[*way] == direction);
        let (Ok(quoted), Some((session, way))) = (quoted, session) else {
            // RFC 5508 REQ-4.
            return self.pass_stranger((direction, link), packet, host, DropReason::NatBadIcmp);
        };
        let (arrives, leaves) = (session.keys[way], session.ends_of(way));
        if packet.tuple.dst != arrives.dst {
            // Whoever sends it tells the sender of what it quotes.
            return Err(DropReason::NatBadIcmp);
        }
        // Somebody between the two has no name outside: it speaks in the name of who has (RFC 5508 REQ-5).
        let is_hidden =
            arrives.src != leaves.src && (packet.tuple.src == arrives.src || direction == Direction::Out);
        let src: Ipv4Addr = if is_hidden { leaves.src } else { packet.tuple.src };
        packet.rewrite_error(bytes, &quoted, &leaves.reversed(), [src, leaves.dst]);
        self.counts.errors += 1;
        Ok(Outcome::Translated(None))
    }
}
