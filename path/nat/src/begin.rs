//! A conversation's first packet: which rule it is for, and which ends its two ways get.
//!
//! What leaves has its source mapped (`map`, `bimap`); what arrives is for somebody else (`rdr`), for who has the address outside
//! (`bimap`), or for the owner of a mapping, if that lets it in (RFC 4787 §5). What one inside sends to another's names outside is turned
//! round here, with its own names outside (hairpinning, RFC 4787 REQ-9).

use core::net::Ipv4Addr;

use firelane_units::{
    Direction, DropReason, FilterPorts, Instant, LinkId, NatAction, NatFiltering, NatPorts, NatTarget, Port,
};
use firelane_wire::{IpProtocol, Ipv4View};

use crate::mappings::Mapping;
use crate::outside::{choose, opposite};
use crate::packet::Packet;
use crate::rules::Rule;
use crate::session::{NO_MAPPING, Session};
use crate::sessions::NatRef;
use crate::tuple::Tuple;
use crate::{Arrived, Host, Nat, Outcome};

/// Who a packet is really for.
#[derive(Clone, Copy, Debug)]
struct Inner {
    rule: Rule,
    end: (Ipv4Addr, u16),
    mapping: u32,
}

/// Who a packet seems to come from.
#[derive(Clone, Copy, Debug)]
struct Outer {
    rule: Rule,
    end: (Ipv4Addr, u16),
    mapping: u32,
}

impl Inner {
    /// Whether the netstack itself may be whom a packet is for. It comes before what others have been given, and keeps of what a rule
    /// gives others the conversations that it has.
    fn is_for_host(&self, packet: &Packet, host: &impl Host) -> bool {
        let tuple = packet.tuple;
        if self.mapping != NO_MAPPING {
            return host.expects(&tuple);
        }
        is_of_host(packet, self.rule.rule.to.ports != FilterPorts::Any, host)
    }
}

/// Whether a packet that arrives may be of a conversation of the netstack's own, though a rule, which says for which ports or not, gives
/// it to somebody inside.
fn is_of_host(packet: &Packet, is_of_ports: bool, host: &impl Host) -> bool {
    let (tuple, begins) = (packet.tuple, packet.flags.syn() && !packet.flags.ack());
    host.owns(tuple.dst) && host.has_begun(&Arrived { tuple, begins, is_of_ports })
}

impl Nat {
    /// Whether a session is in the way of what the netstack has begun itself: somebody outside sent before in the names of whom it asks now.
    pub(crate) fn is_in_hosts_way(&self, (at, way): (u32, usize), packet: &Packet, host: &impl Host) -> bool {
        let Some(session) = self.sessions.get(at).filter(|it| it.may_be_in_hosts_way(way)) else {
            return false;
        };
        let rule = self.rules.get(session.rule);
        is_of_host(packet, rule.is_none_or(|it| it.rule.to.ports != FilterPorts::Any), host)
    }

    /// The place of the session that a packet begins, if it is for a rule.
    pub(crate) fn begin(
        &mut self,
        (direction, link): (Direction, LinkId),
        packet: &Packet,
        host: &impl Host,
        now: Instant,
    ) -> Result<Option<u32>, DropReason> {
        match direction {
            Direction::In => self.begin_in(link, packet, host, now),
            Direction::Out => self.begin_out(link, packet, host, now),
        }
    }

    fn begin_out(
        &mut self,
        link: LinkId,
        packet: &Packet,
        host: &impl Host,
        now: Instant,
    ) -> Result<Option<u32>, DropReason> {
        let tuple = &packet.tuple;
        // What the netstack sends itself has the address that it was given.
        if host.owns(tuple.src) || self.rules.of_source(link, tuple).is_none() {
            return Ok(None);
        }
        self.make_room(tuple.src, now)?;
        let peer = (tuple.dst, tuple.ports[1]);
        let Some(outer) = self.outer(link, packet, peer, host, now)? else { return Ok(None) };
        let back = Tuple { src: outer.end.0, ports: [outer.end.1, tuple.ports[1]], ..*tuple }.reversed();
        let at = [Direction::Out, Direction::In];
        let session = Session::new([*tuple, back], at, [outer.mapping, NO_MAPPING]);
        self.enter(session, &outer.rule, packet, now).map(Some)
    }

    fn begin_in(
        &mut self,
        link: LinkId,
        packet: &Packet,
        host: &impl Host,
        now: Instant,
    ) -> Result<Option<u32>, DropReason> {
        let tuple = &packet.tuple;
        if let Some(inner) = self.inner(link, tuple, host) {
            if inner.is_for_host(packet, host) {
                return Ok(None);
            }
            if inner.mapping != NO_MAPPING {
                self.may_answer(inner.mapping, tuple.src)?;
            }
            self.make_room_beside(inner.mapping, tuple.src, now)?;
            let back = match inner.mapping {
                NO_MAPPING => self.answer_of(inner.end, packet, now),
                _ => Tuple { dst: inner.end.0, ports: [tuple.ports[0], inner.end.1], ..*tuple }.reversed(),
            };
            let at = [Direction::In, Direction::Out];
            let session = Session::new([*tuple, back], at, [NO_MAPPING, inner.mapping]);
            return self.enter(session, &inner.rule, packet, now).map(Some);
        }
        if let Some(made) = self.turn_round(link, packet, host, now)? {
            return Ok(Some(made));
        }
        if packet.flags.syn() && !packet.flags.ack() && self.may_become_mapped(link, tuple, host) {
            // RFC 5382 REQ-4: who asks hears nothing, for somebody inside may be about to ask him.
            return Err(DropReason::NatUnsolicited);
        }
        Ok(None)
    }

    /// One inside sends to the names that another has outside. Its packet gets its destination before IP and its own names outside behind
    /// IP, which takes no packet from outside that comes from itself: two sessions, of which the second begins here, too.
    fn turn_round(
        &mut self,
        link: LinkId,
        packet: &Packet,
        host: &impl Host,
        now: Instant,
    ) -> Result<Option<u32>, DropReason> {
        let tuple = &packet.tuple;
        let Some(inner) = self.inner_behind(link, tuple, host) else { return Ok(None) };
        if inner.mapping == NO_MAPPING && inner.is_for_host(packet, host) {
            return Ok(None);
        }
        let turned = self.turn_to(&inner, packet, host, now);
        if turned.is_err() {
            // The session that needed it may have given way.
            self.mappings.let_go(inner.mapping);
        }
        turned.map(Some)
    }

    /// The session of what one inside sends to another.
    fn turn_to(
        &mut self,
        inner: &Inner,
        packet: &Packet,
        host: &impl Host,
        now: Instant,
    ) -> Result<u32, DropReason> {
        let tuple = &packet.tuple;
        let within = Tuple { dst: inner.end.0, ports: [tuple.ports[0], inner.end.1], ..*tuple };
        self.mappings.pin(inner.mapping);
        let named = self.name_sender(inner.rule.rule.link, within, packet, host, now);
        let room = named.and_then(|()| self.make_room(tuple.src, now));
        self.mappings.unpin(inner.mapping);
        room?;
        // The place may have been the other's.
        self.is_named(inner.rule.rule.link, &within, tuple)?;
        let at = [Direction::In, Direction::Out];
        let mut turned = Session::new([*tuple, within.reversed()], at, [NO_MAPPING, inner.mapping]);
        turned.is_turned = true;
        self.enter(turned, &inner.rule, packet, now)
    }

    /// What arrived from somebody inside goes on to another with the ends `within`, in its sender's names outside: the session for
    /// that, unless it is there, or nobody says that the sender has such names.
    fn name_sender(
        &mut self,
        link: LinkId,
        within: Tuple,
        packet: &Packet,
        host: &impl Host,
        now: Instant,
    ) -> Result<(), DropReason> {
        let has_none = self.rules.of_source(link, &packet.tuple).is_none();
        if has_none || self.find(&within, packet.flags, now).is_some() {
            return Ok(());
        }
        self.make_room(within.src, now)?;
        let peer = (within.dst, within.ports[1]);
        let Some(outer) = self.outer(link, packet, peer, host, now)? else { return Ok(()) };
        let seen = Tuple { src: outer.end.0, ports: [outer.end.1, within.ports[1]], ..within };
        let at = [Direction::Out, Direction::In];
        let named = Session::new([within, seen.reversed()], at, [outer.mapping, NO_MAPPING]);
        let named = self.enter(named, &outer.rule, packet, now)?;
        if let Some(session) = self.sessions.get_mut(named) {
            session.renew(0, packet.flags, now, &self.limits);
        }
        Ok(())
    }

    /// Whether what goes on to another inside finds the names that its sender has.
    fn is_named(&self, link: LinkId, within: &Tuple, tuple: &Tuple) -> Result<(), DropReason> {
        let has_names = self.sessions.find(within).is_some() || self.rules.of_source(link, tuple).is_none();
        if has_names { Ok(()) } else { Err(DropReason::NatFull) }
    }

    /// A known session's packet: between two inside the sender's names may have ended, with their rule or for want of room.
    #[inline]
    pub(crate) fn complete(
        &mut self,
        found: (u32, usize),
        packet: &Packet,
        host: &impl Host,
        now: Instant,
    ) -> Result<(u32, usize), DropReason> {
        match self.sessions.get_mut(found.0) {
            Some(session) if session.is_turned && found.1 == 0 => self.name_again(found, packet, host, now),
            _ => Ok(found),
        }
    }

    fn name_again(
        &mut self,
        (at, way): (u32, usize),
        packet: &Packet,
        host: &impl Host,
        now: Instant,
    ) -> Result<(u32, usize), DropReason> {
        let Some(session) = self.sessions.get_mut(at) else { return Err(DropReason::NatFull) };
        let (known, within) = (NatRef::new(at, way, session.number), session.ends_of(way));
        let Some(link) = self.rules.get(session.rule).map(|it| it.rule.link) else { return Ok((at, way)) };
        self.name_sender(link, within, packet, host, now)?;
        // It may have given its own place for that.
        let found = self.sessions.known(known).ok_or(DropReason::NatFull)?;
        self.is_named(link, &within, &packet.tuple).map(|()| found)
    }

    /// Who a packet is for that arrives by a link.
    fn inner(&mut self, link: LinkId, tuple: &Tuple, host: &impl Host) -> Option<Inner> {
        if let Some(rule) = self.rules.of_destination(link, tuple, false) {
            return self.redirected(rule, tuple);
        }
        self.inner_of_bimap(link, tuple, false, host)
            .or_else(|| self.inner_of_mapping(tuple, |its| its == link))
    }

    /// Who a packet of somebody inside is for, whose destination is an address outside.
    fn inner_behind(&mut self, link: LinkId, tuple: &Tuple, host: &impl Host) -> Option<Inner> {
        if host.owns(tuple.dst)
            && let Some(rule) = self.rules.of_destination(link, tuple, true)
        {
            return self.redirected(rule, tuple);
        }
        self.inner_of_bimap(link, tuple, true, host)
            .or_else(|| self.inner_of_mapping(tuple, |its| its != link))
    }

    fn redirected(&mut self, rule: Rule, tuple: &Tuple) -> Option<Inner> {
        let NatAction::Redirect(to) = rule.rule.action else { return None };
        let address = match to.second {
            Some(second) => {
                self.turn = self.turn.wrapping_add(1);
                if self.turn % 2 == 1 { to.address } else { second }
            }
            None => to.address,
        };
        let has_ports = matches!(tuple.protocol, IpProtocol::TCP | IpProtocol::UDP);
        let asked = tuple.ports[1];
        let port = match to.port.filter(|_| has_ports) {
            None => asked,
            Some(first) if to.is_range => {
                let least = first_port(rule.rule.to.ports).unwrap_or(Port(asked));
                // Who reads rules refuses those whose ports go beyond the last one.
                first.0.checked_add(asked.checked_sub(least.0)?)?
            }
            Some(port) => port.0,
        };
        Some(Inner { rule, end: (address, port), mapping: NO_MAPPING })
    }

    fn inner_of_bimap(
        &self,
        link: LinkId,
        tuple: &Tuple,
        is_from_inside: bool,
        host: &impl Host,
    ) -> Option<Inner> {
        let (rule, inside) = self.rules.of_opposite(link, tuple, is_from_inside, host)?;
        Some(Inner { rule, end: (inside, tuple.ports[1]), mapping: NO_MAPPING })
    }

    fn inner_of_mapping(&self, tuple: &Tuple, is_by: impl Fn(LinkId) -> bool) -> Option<Inner> {
        let at = self.mappings.of_outside(tuple.protocol, (tuple.dst, tuple.ports[1]))?;
        let mapping = self.mappings.get(at).filter(|mapping| is_by(mapping.link))?;
        let rule = *self.rules.get(mapping.rule)?;
        Some(Inner { rule, end: mapping.inside, mapping: at })
    }

    /// Whether a mapping lets in who has not been sent to, or not from there (RFC 4787 REQ-8, RFC 5382 REQ-3).
    fn may_answer(&self, mapping: u32, peer: Ipv4Addr) -> Result<(), DropReason> {
        let may = match self.limits.filtering {
            NatFiltering::Anybody => true,
            NatFiltering::Address => self.mappings.has_sent_to(mapping, peer),
            NatFiltering::Port => false,
        };
        if may { Ok(()) } else { Err(DropReason::NatFiltered) }
    }

    /// Who a packet seems to come from that leaves by a link for a peer.
    fn outer(
        &mut self,
        link: LinkId,
        packet: &Packet,
        peer: (Ipv4Addr, u16),
        host: &impl Host,
        now: Instant,
    ) -> Result<Option<Outer>, DropReason> {
        let tuple = &packet.tuple;
        let Some(rule) = self.rules.of_source(link, tuple) else { return Ok(None) };
        let of_link = host.address_of(link);
        let (to, ports) = match rule.rule.action {
            NatAction::Map(to, ports) => (to, ports),
            NatAction::Bimap(to) => {
                let from = rule.rule.from.prefix.ok_or(DropReason::NatPorts)?;
                let address = opposite(tuple.src, from, to, of_link).ok_or(DropReason::NatPorts)?;
                let port = tuple.ports[0];
                let answer =
                    Tuple { src: peer.0, dst: address, ports: [peer.1, port], protocol: tuple.protocol };
                // The netstack itself may speak in these names already. Other lanes are not asked, so as if this began.
                let asked = Arrived { tuple: answer, begins: true, is_of_ports: true };
                if host.owns(address) && host.has_begun(&asked) {
                    return Err(DropReason::NatPorts);
                }
                return Ok(Some(Outer { rule, end: (address, port), mapping: NO_MAPPING }));
            }
            NatAction::Redirect(_) => return Ok(None),
        };
        let inside = (tuple.src, tuple.ports[0]);
        if let Some(at) = self.mappings.of_inside(tuple.protocol, inside, rule.id)
            && let Some(mapping) = self.mappings.get(at)
        {
            return Ok(Some(Outer { rule, end: mapping.outside, mapping: at }));
        }
        if let Some(end) = self.served_as((link, to), packet, peer, host, now) {
            return Ok(Some(Outer { rule, end, mapping: NO_MAPPING }));
        }
        let end = self.choose(&rule, (to, ports), tuple, of_link, host).ok_or(DropReason::NatPorts)?;
        let mapping = self.mappings.enter(Mapping::new(tuple.protocol, inside, end, link, rule.id));
        Ok(Some(Outer { rule, end, mapping }))
    }

    fn choose(
        &self,
        rule: &Rule,
        to: (NatTarget, NatPorts),
        tuple: &Tuple,
        of_link: Option<Ipv4Addr>,
        host: &impl Host,
    ) -> Option<(Ipv4Addr, u16)> {
        let is_used = |address, port| {
            let answer = Tuple { src: address, ports: [port, tuple.ports[1]], ..*tuple }.reversed();
            // A server that a rule has given this port may speak to the same peer.
            host.uses(&answer) || self.sessions.find(&answer).is_some()
        };
        let own_from = |address| host.chooses_from(tuple.protocol, address).map(|port| port.0);
        choose(&rule.rule, to, tuple, of_link, &self.hasher, (self.mappings.taken(), is_used), own_from)
    }

    /// Whether a port outside is nobody's, and a rule may give it to somebody.
    fn may_become_mapped(&self, link: LinkId, tuple: &Tuple, host: &impl Host) -> bool {
        self.rules.may_give(link, tuple, host) && !host.expects(tuple)
    }

    /// A packet that belongs to nothing known and begins nothing: it goes on as it is, unless it would leave with an address
    /// of inside.
    pub(crate) fn pass_stranger(
        &self,
        (direction, link): (Direction, LinkId),
        packet: &Packet,
        host: &impl Host,
        reason: DropReason,
    ) -> Result<Outcome, DropReason> {
        let leaks = direction == Direction::Out && self.is_mapped_source(link, packet.tuple.src, host);
        if leaks { Err(reason) } else { Ok(Outcome::Untouched) }
    }

    /// A packet without names that could be others outside: the same.
    pub(crate) fn pass_nameless(
        &self,
        (direction, link): (Direction, LinkId),
        bytes: &[u8],
        host: &impl Host,
    ) -> Result<Outcome, DropReason> {
        // What is no packet at all is IP's to refuse.
        let Ok(view) = Ipv4View::parse(bytes) else { return Ok(Outcome::Untouched) };
        let is_for_many = view.dst().is_multicast() || view.dst().is_broadcast();
        let leaks =
            direction == Direction::Out && !is_for_many && self.is_mapped_source(link, view.src(), host);
        if leaks { Err(DropReason::NatNameless) } else { Ok(Outcome::Untouched) }
    }

    /// Whether who sends by a link has another address outside, whatever it sends.
    pub(crate) fn is_mapped_source(&self, link: LinkId, src: Ipv4Addr, host: &impl Host) -> bool {
        self.rules.is_mapped(link, src) && !host.owns(src)
    }

    /// Makes room for one more session that needs a mapping, whoever else gives way.
    fn make_room_beside(&mut self, mapping: u32, source: Ipv4Addr, now: Instant) -> Result<(), DropReason> {
        self.mappings.pin(mapping);
        let made = self.make_room(source, now);
        self.mappings.unpin(mapping);
        made
    }

    /// Makes room for one more session, or says why there is none: what is over goes first.
    fn make_room(&mut self, source: Ipv4Addr, now: Instant) -> Result<(), DropReason> {
        if self.sessions.of_source(source) >= self.limits.per_source {
            let its = self.sessions.gives_way_to_its_own(source, now, &self.limits);
            self.evict(its.ok_or(DropReason::NatSourceFull)?);
        }
        if self.sessions.is_full() {
            let gone = self.sessions.gives_way(now);
            self.evict(gone.ok_or(DropReason::NatFull)?);
        }
        Ok(())
    }

    fn evict(&mut self, at: u32) {
        self.counts.evicted += 1;
        self.remove(at);
    }

    /// Enters the session that a packet begins, unless somebody has its names.
    fn enter(
        &mut self,
        mut session: Session,
        rule: &Rule,
        packet: &Packet,
        now: Instant,
    ) -> Result<u32, DropReason> {
        (session.rule, session.age, session.mss) = (rule.id, rule.rule.age, rule.rule.mss);
        let ([forth, back], mappings) = (session.keys, session.mappings);
        // What is over lets go of a mapping that this one needs.
        mappings.into_iter().for_each(|mapping| self.mappings.pin(mapping));
        let is_taken = self.find(&back, packet.flags, now).is_some() || forth == back;
        mappings.into_iter().for_each(|mapping| self.mappings.unpin(mapping));
        if is_taken {
            mappings.into_iter().for_each(|mapping| self.mappings.let_go(mapping));
            return Err(DropReason::NatPorts);
        }
        for (mapping, peer) in mappings.into_iter().zip([forth.dst, back.dst]) {
            self.mappings.hold(mapping, peer);
        }
        if let Some(count) = self.rules.count(rule.id) {
            count.hits += 1;
            count.active += 1;
        }
        Ok(self.sessions.enter(session))
    }
}

/// The least of the ports that a rule is for.
fn first_port(ports: firelane_units::FilterPorts) -> Option<Port> {
    use firelane_units::FilterPorts::{AtLeast, Equal, Range};
    match ports {
        Equal(port) | AtLeast(port) | Range(port, _) => Some(port),
        _ => None,
    }
}
