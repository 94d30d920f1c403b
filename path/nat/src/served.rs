//! Servers inside that a rule (`rdr`) has given names outside: what they begin themselves, and what somebody outside begins with them while
//! they speak to him already.
//!
//! A rule is a mapping that stands whatever is sent (RFC 6887 calls it so), and RFC 4787 REQ-1 asks for one mapping whoever is at the
//! other end: so what a server sends first leaves in the names by which it is reached, and both are one session. Asked by `begin.rs`.

use core::net::Ipv4Addr;

use firelane_units::{
    FilterPorts, Instant, LinkId, NatAction, NatEnd, NatRedirect, NatRule, NatTarget, Port,
};
use firelane_wire::IpProtocol;

use crate::outside::target;
use crate::packet::Packet;
use crate::rules::{is_of_protocol, span};
use crate::tuple::Tuple;
use crate::{Host, Nat};

/// So many ports are tried for somebody outside whose own one is taken.
const PORTS_TRIED: u16 = 128;
/// Nobody is given a port below in place of his own.
const LEAST_PORT: u16 = 1024;

impl Nat {
    /// The names outside by which who sends a packet to `peer` is reached by a rule, if they are among those that `map` gives and nobody else
    /// has them there.
    pub(crate) fn served_as(
        &mut self,
        (link, to): (LinkId, NatTarget),
        packet: &Packet,
        peer: (Ipv4Addr, u16),
        host: &impl Host,
        now: Instant,
    ) -> Option<(Ipv4Addr, u16)> {
        let tuple = &packet.tuple;
        let given = target(to, host.address_of(link))?;
        let named = self.rules.of_server(link, tuple, |rule| {
            let (address, port) = outside_of(rule, given, tuple)?;
            let is_any = rule.to.ports == FilterPorts::Any;
            // Of all ports those that the netstack chooses for its own sockets are not the server's alone.
            let own_from = host.chooses_from(tuple.protocol, address).filter(|_| is_any);
            own_from.is_none_or(|from| port < from.0).then_some((address, port))
        });
        let (id, (address, port)) = named?;
        let answer = Tuple { src: peer.0, dst: address, ports: [peer.1, port], protocol: tuple.protocol };
        // Another rule before it may have somebody else for these names.
        let leads_back = self.rules.of_destination(link, &answer, false).is_some_and(|rule| rule.id == id);
        let is_free = leads_back
            && self.mappings.of_outside(tuple.protocol, (address, port)).is_none()
            && !host.uses(&answer)
            && self.find(&answer, packet.flags, now).is_none();
        is_free.then_some((address, port))
    }

    /// What a server answers to somebody outside who begins: it has another port for him if it speaks to his own one in other names.
    pub(crate) fn answer_of(&mut self, server: (Ipv4Addr, u16), packet: &Packet, now: Instant) -> Tuple {
        let tuple = packet.tuple;
        let from = |port| Tuple { dst: server.0, ports: [port, server.1], ..tuple }.reversed();
        let own = from(tuple.ports[0]);
        let begins = match tuple.protocol {
            IpProtocol::TCP => packet.flags.syn() && !packet.flags.ack(),
            protocol => protocol == IpProtocol::UDP,
        };
        if !begins || self.find(&own, packet.flags, now).is_none() {
            return own;
        }
        // As even as his own (RFC 4787 REQ-4), from a place on that nobody can guess.
        let (first, begin) = (LEAST_PORT | tuple.ports[0] & 1, tuple.hash(&self.hasher) as u16);
        let pairs = (u16::MAX - LEAST_PORT) / 2 + 1;
        let ports = (0..PORTS_TRIED).map(|nth| first + (begin.wrapping_add(nth) % pairs) * 2);
        let mut answers = ports.map(from);
        answers.find(|answer| self.find(answer, packet.flags, now).is_none()).unwrap_or(own)
    }
}

/// The names outside of who sends a packet, if he is a rule's server and the address is one of those `given` to him.
pub(crate) fn outside_of(
    rule: &NatRule<LinkId>,
    given: (u32, u64),
    tuple: &Tuple,
) -> Option<(Ipv4Addr, u16)> {
    Some((address_outside(rule, given)?, port_outside(rule, tuple)?))
}

/// The server of a rule that is for whoever asks, and always for the same one.
fn only_server(rule: &NatRule<LinkId>) -> Option<NatRedirect> {
    let NatAction::Redirect(to) = rule.action else { return None };
    let is_for_all = rule.from == NatEnd::default() && !rule.to.negated;
    Some(to).filter(|to| is_for_all && to.second.is_none())
}

/// The address at which a rule's server is reached, if it is one of those `given` to who sends.
fn address_outside(rule: &NatRule<LinkId>, (first, count): (u32, u64)) -> Option<Ipv4Addr> {
    let (reached, all) = match rule.to.prefix {
        Some(prefix) => span(prefix)?,
        None => (0, 1 << 32),
    };
    // The only one that both have.
    let only = match (all, count) {
        (1, _) => reached,
        (_, 1) => first,
        _ => return None,
    };
    let is_of =
        |(first, count): (u32, u64)| only.checked_sub(first).is_some_and(|nth| u64::from(nth) < count);
    (is_of((first, count)) && is_of((reached, all))).then(|| Ipv4Addr::from_bits(only))
}

/// The port at which a rule's server is reached if it is who sends a packet.
fn port_outside(rule: &NatRule<LinkId>, tuple: &Tuple) -> Option<u16> {
    let to = only_server(rule)?;
    let is_its = to.address == tuple.src && is_of_protocol(rule, tuple.protocol);
    if !is_its || !matches!(tuple.protocol, IpProtocol::TCP | IpProtocol::UDP) {
        return None;
    }
    let port = tuple.ports[0];
    let outside = match (rule.to.ports, to.port) {
        (_, None) => port,
        (FilterPorts::Equal(outside), Some(its)) if its.0 == port => outside.0,
        (FilterPorts::Range(low, _), Some(first)) if to.is_range => {
            low.0.checked_add(port.checked_sub(first.0)?)?
        }
        _ => return None,
    };
    rule.to.ports.contains(Port(outside)).then_some(outside)
}
