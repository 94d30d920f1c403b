//! ICMP errors: what they quote is translated back, and they go to whom the quoted packet came from (RFC 5508 §4).
//!
//! An error about a packet of a session goes the other way, and changes where packets of that way do. It neither renews a session
//! nor ends it (RFC 5382 REQ-9, RFC 5508 REQ-6). What a tunnel has to tell of a packet that was translated before it got there is told
//! of the packet as it was ([`Nat::restore`], Linux: `icmp_ndo_send`).

use core::net::Ipv4Addr;

use firelane_table::Kept;
use firelane_units::{Direction, DropReason, Instant, LinkId};

use crate::packet::Packet;
use crate::{Host, Nat, Outcome, Tuple};

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

    /// Whether what leaves by a link is a redirect of what is translated here: who followed it would go to its next hop under the address
    /// of inside, or to another one than its connection's (Linux: `nf_nat_icmp_reply_translation`).
    pub(crate) fn leads_round(&self, link: LinkId, bytes: &[u8], host: &impl Host) -> bool {
        let Some(about) = Packet::redirected(bytes) else { return false };
        // It is told of before its packet leaves, which is what makes a session of a mapping.
        let may_begin = self.rules.of_source(link, &about.tuple).is_some() && !host.owns(about.tuple.src);
        let is_of = |tuple: &Tuple| self.sessions.find(tuple).is_some();
        may_begin || is_of(&about.tuple) || is_of(&about.tuple.reversed())
    }

    /// Gives a packet that has left, or as much of it as an error shows, the ends with which it came to be translated; whether it was.
    /// Who is told of it knows it by those, and is reached by them.
    pub fn restore(&mut self, bytes: &mut [u8], now: Instant) -> bool {
        let Some(packet) = Packet::read_quoted(bytes) else { return false };
        let Some((at, way)) = self.sessions.find(&packet.tuple.reversed()) else { return false };
        let session = self.sessions.get_mut(at).filter(|session| session.ends() > now);
        let Some(session) = session.filter(|session| session.at[1 - way] == Direction::Out) else {
            return false;
        };
        packet.rewrite(bytes, &session.keys[1 - way], false);
        true
    }
}
