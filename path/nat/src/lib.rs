//! Which addresses packets have inside and outside: IPFilter's `ipnat` rules, mappings and sessions. IPv4.
//!
//! A translator belongs to one netstack and lives in the netstack's home lane, where all that is to be translated arrives: one mapping
//! serves whatever is at the other end, and the two ends of a conversation have nothing in common that could steer them into one
//! lane. `path/lane` asks it for each packet that comes in by a link, before the filter, and for each that goes out by one, behind
//! the filter. Sans-I/O: packets and `now` in, changed packets and an [`Outcome`] out; what has to wait is given to it
//! ([`Nat::keep`]) and comes back ([`Nat::poll_returned`]). Facts: ipnat(5); RFC 4787 (UDP), 5382 (TCP),
//! 5508 (ICMP), 7857.
#![forbid(unsafe_code)]

mod begin;
mod early;
mod errors;
mod keyed;
mod list;
mod lookup;
mod mappings;
mod outside;
mod packet;
mod pieces;
mod rules;
mod served;
mod session;
mod sessions;
mod taken;
mod tuple;

use core::net::Ipv4Addr;
use std::sync::Arc;

use firelane_units::{Direction, DropReason, Instant, LinkId, NatLimits, NatRule, Port};
use firelane_wire::{IpProtocol, TcpFlags};
use siphasher::sip::SipHasher13;

pub use early::Returned;
pub use list::NatList;
pub use pieces::EarlyPiece;
pub use rules::RuleCount;
pub use session::Phase;
pub use sessions::NatRef;
pub use tuple::Tuple;

use mappings::Mappings;
use packet::{Packet, Part};
use pieces::{Datagram, Pieces};
use rules::Rules;
use session::{NO_MAPPING, Session};
use sessions::Sessions;

/// What a translator follows.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct NatConfig {
    /// Rules in their order.
    pub rules: Vec<NatRule<LinkId>>,
    /// Times, and how much there may be.
    pub limits: NatLimits,
}

/// What it asks of the netstack that it works for.
pub trait Host {
    /// Whether an address is one of the netstack's own.
    fn owns(&self, address: Ipv4Addr) -> bool;

    /// The address by which others know the netstack on a link: aliases (/32) stand beside it.
    fn address_of(&self, link: LinkId) -> Option<Ipv4Addr>;

    /// The link that has an address of the netstack's own.
    fn link_of(&self, address: Ipv4Addr) -> Option<LinkId>;

    /// Whether a packet with these names, should it arrive, would be for the netstack itself: nobody inside is given its names.
    fn uses(&self, arrived: &Tuple) -> bool;

    /// From which port on the netstack chooses those of its own sockets at an address: as long as there are others nobody is given those.
    fn chooses_from(&self, protocol: IpProtocol, address: Ipv4Addr) -> Option<Port>;

    /// Whether a packet that arrives may be for the netstack itself, though somebody inside has such names, too.
    fn expects(&self, arrived: &Tuple) -> bool;

    /// Whether a packet that arrives may be of a conversation that the netstack has already: a rule that sends to others what comes to its
    /// address is for what begins there.
    fn has_begun(&self, arrived: &Arrived) -> bool;
}

/// A packet that arrives, and that a rule has for others.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Arrived {
    /// Its names.
    pub tuple: Tuple,
    /// It asks for a connection.
    pub begins: bool,
    /// The rule says which ports it is for: what comes there is for no socket that would take it from anybody.
    pub is_of_ports: bool,
}

/// What becomes of a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// It goes on as it is.
    Untouched,
    /// It has other ends; a whole packet's session, which the next ones of its flow can follow.
    Translated(Option<NatRef>),
    /// It is a piece that has overtaken the first one of its datagram: whoever asks gives it to [`Nat::keep`], and it goes nowhere
    /// before it comes back (RFC 4787 REQ-14).
    Early(EarlyPiece),
    /// It ends here.
    Ended(DropReason),
}

/// What was counted.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct NatCounts {
    /// Packets that were given other ends, on their way in and out.
    pub translated: [u64; 2],
    /// ICMP errors among them.
    pub errors: u64,
    /// Packets that ended, by their reasons as the path's counters have them.
    pub ended: u64,
    /// There are so many sessions.
    pub sessions: u64,
    /// Of these, so many have not shown both ends.
    pub half_open: u64,
    /// There are so many mappings.
    pub mappings: u64,
    /// So many pieces wait for the first one of their datagram.
    pub waiting: u64,
    /// Pieces that came before the first one of their datagram, and had to wait.
    pub early: u64,
    /// Of these, so many waited in vain or had no room.
    pub given_up: u64,
    /// Sessions were made.
    pub added: u64,
    /// Ended for want of packets.
    pub expired: u64,
    /// Gave their place to others.
    pub evicted: u64,
    /// Were ended by command, or with their rule.
    pub flushed: u64,
    /// What each rule has made, in the order of the rules.
    pub rules: Vec<RuleCount>,
}

/// A session, for lists.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NatRow {
    /// The how manieth rule made it.
    pub rule: Option<u32>,
    /// What arrives of its first way.
    pub forth: Tuple,
    /// What arrives of the other.
    pub back: Tuple,
    /// How far it is.
    pub phase: Phase,
    /// When it ends, unless something comes.
    pub ends: Instant,
}

/// A netstack's translator.
#[derive(Debug)]
pub struct Nat {
    rules: Rules,
    limits: NatLimits,
    sessions: Sessions,
    mappings: Mappings,
    /// Of what comes in, and of what goes out: who floods the one side pushes out nothing of the other.
    pieces: [Pieces; 2],
    /// Of redirects to several the how manieth is next.
    turn: u32,
    hasher: SipHasher13,
    counts: NatCounts,
}

impl Nat {
    /// Without rules; `key` is a secret for tables that peers fill.
    pub fn new((low, high): (u64, u64)) -> Self {
        let (hasher, limits) = (SipHasher13::new_with_keys(low, high), NatLimits::default());
        Self {
            rules: Rules::default(),
            limits,
            sessions: Sessions::new(hasher, limits.sessions as usize),
            mappings: Mappings::new(hasher),
            pieces: [Pieces::default(), Pieces::default()],
            turn: 0,
            hasher,
            counts: NatCounts::default(),
        }
    }

    /// Whether packets have to be asked about.
    #[inline]
    pub fn is_on(&self) -> bool {
        !self.rules.is_empty()
    }

    /// Follows other rules from now on, as [`follow_list`](Self::follow_list).
    pub fn set(&mut self, config: NatConfig) {
        let mut list = NatList::new(config);
        list.compare(self.rules.list());
        self.follow_list(&Arc::new(list));
    }

    /// Follows a list that was made before. What a rule has made that stays in the list stays, and it goes on counting; the rest ends.
    /// Sessions are looked at only if some of them stay and others end; no rule is, if the list was compared with the one that this
    /// translator follows. That one is left to whoever else has it.
    pub fn follow_list(&mut self, list: &Arc<NatList>) {
        let ends = self.rules.follow(list);
        self.limits = self.rules.limits();
        self.sessions.set_most(self.limits.sessions as usize);
        match ends as usize {
            0 => {}
            all if all == self.sessions.len() => _ = self.flush(),
            _ => _ = self.end_where(|rules, session| rules.nth(session.rule).is_none()),
        }
    }

    /// Ends all sessions, without a look at any, and how many there were.
    pub fn flush(&mut self) -> u64 {
        let count = self.sessions.len() as u64;
        self.sessions.end_all();
        // Each stood for one of them.
        self.mappings = Mappings::new(self.hasher);
        self.rules.end_all();
        self.counts.flushed += count;
        count
    }

    /// An address is not the netstack's any more: what has come to it ends (Linux: `masq_inet_event`).
    pub fn end_address(&mut self, address: Ipv4Addr) -> u64 {
        self.end_where(|_, session| session.keys.iter().any(|key| key.dst == address))
    }

    fn end_where(&mut self, ends: impl Fn(&Rules, &Session) -> bool) -> u64 {
        let (mut at, mut count) = (0, 0);
        while let Some((found, _)) = self.sessions.from(at, |session| ends(&self.rules, session)) {
            self.remove(found);
            (at, count) = (found + 1, count + 1);
        }
        self.counts.flushed += count;
        count
    }

    /// A packet comes in by a link, or goes out by one. `packet` begins with its IP header; `is_open` says that its transport's checksum is
    /// that of the pseudo-header as yet.
    pub fn pass(
        &mut self,
        (direction, link): (Direction, LinkId),
        packet: &mut [u8],
        is_open: bool,
        host: &impl Host,
        now: Instant,
    ) -> Outcome {
        let passed = self.try_pass((direction, link), packet, is_open, host, now);
        let outcome = passed.unwrap_or_else(Outcome::Ended);
        match outcome {
            Outcome::Untouched | Outcome::Early(_) => {}
            Outcome::Translated(_) => self.counts.translated[direction.index()] += 1,
            Outcome::Ended(_) => self.counts.ended += 1,
        }
        outcome
    }

    fn try_pass(
        &mut self,
        (direction, link): (Direction, LinkId),
        bytes: &mut [u8],
        is_open: bool,
        host: &impl Host,
        now: Instant,
    ) -> Result<Outcome, DropReason> {
        let Some(packet) = Packet::read(bytes) else {
            if direction == Direction::Out && self.leads_round(link, bytes, host) {
                return Err(DropReason::NatRedirect);
            }
            return self.pass_nameless((direction, link), bytes, host);
        };
        let is_for_many = packet.tuple.dst.is_multicast() || packet.tuple.dst.is_broadcast();
        if is_for_many {
            return Ok(Outcome::Untouched);
        }
        let Some(number) = packet.datagram else {
            return self.pass_head((direction, link), &packet, bytes, is_open, host, now);
        };
        let datagram = Datagram::new(&packet.tuple, number);
        if packet.part == Part::Body {
            return self.pass_later((direction, link), datagram, &packet, bytes, host, now);
        }
        let passed = self.pass_head((direction, link), &packet, bytes, is_open, host, now);
        self.pass_first((direction, link), datagram, &packet, passed, host, now)
    }

    /// A whole packet, or the piece of one that has its ports.
    #[inline]
    fn pass_head(
        &mut self,
        (direction, link): (Direction, LinkId),
        packet: &Packet,
        bytes: &mut [u8],
        is_open: bool,
        host: &impl Host,
        now: Instant,
    ) -> Result<Outcome, DropReason> {
        if packet.is_error {
            return self.pass_error((direction, link), packet, bytes, host, now);
        }
        let mut known = self.find(&packet.tuple, packet.flags, now);
        if let Some((at, way)) = known
            && self.is_in_hosts_way((at, way), packet, host)
        {
            self.remove(at);
            known = None;
        }
        let found = match known {
            Some(found) => Some(self.complete(found, packet, host, now)?),
            None => self.begin((direction, link), packet, host, now)?.map(|at| (at, 0)),
        };
        let carried = found.and_then(|found| self.carry(found, direction, packet, bytes, is_open, now));
        Ok(carried.map_or(Outcome::Untouched, |known| Outcome::Translated(Some(known))))
    }

    /// The next packet of a flow whose session is known, if it goes the way that all of them did. Not if it has to be asked about, as what
    /// may be for the netstack itself; then nothing was changed.
    #[inline]
    pub fn follow(
        &mut self,
        known: NatRef,
        direction: Direction,
        bytes: &mut [u8],
        is_open: bool,
        host: &impl Host,
        now: Instant,
    ) -> bool {
        let Some((at, way)) = self.sessions.known(known) else { return false };
        let Some(packet) = Packet::read(bytes) else { return false };
        let is_its = self
            .sessions
            .get(at)
            .is_some_and(|it| it.keys[way] == packet.tuple && it.ends > now && !it.is_over(packet.flags));
        let is_its = is_its && packet.datagram.is_none() && !packet.is_error;
        let is_its = is_its && !self.is_in_hosts_way((at, way), &packet, host);
        let has_passed = is_its && self.carry((at, way), direction, &packet, bytes, is_open, now).is_some();
        self.counts.translated[direction.index()] += u64::from(has_passed);
        has_passed
    }

    /// On which way in or out packets of a known session change.
    #[inline]
    pub fn place_of(&mut self, known: NatRef) -> Option<Direction> {
        let (at, way) = self.sessions.known(known)?;
        self.sessions.get_mut(at).map(|session| session.at[way])
    }

    /// A packet of this session will come soon: what that needs is read before.
    #[inline]
    pub fn touch(&self, known: NatRef) {
        self.sessions.touch(known);
    }

    /// The session that a packet with these names is of, unless it has ended.
    pub(crate) fn find(&mut self, tuple: &Tuple, flags: TcpFlags, now: Instant) -> Option<(u32, usize)> {
        let (at, way) = self.sessions.find(tuple)?;
        let session = self.sessions.get_mut(at)?;
        if session.ends <= now || session.is_over(flags) {
            self.counts.expired += 1;
            self.remove(at);
            return None;
        }
        Some((at, way))
    }

    /// A packet of a session gets its other ends, if it does so on this way.
    #[inline]
    fn carry(
        &mut self,
        (at, way): (u32, usize),
        direction: Direction,
        packet: &Packet,
        bytes: &mut [u8],
        is_open: bool,
        now: Instant,
    ) -> Option<NatRef> {
        let session = self.sessions.get_mut(at).filter(|session| session.at[way] == direction)?;
        session.renew(way, packet.flags, now, &self.limits);
        if let Some(most) = session.mss.filter(|_| packet.flags.syn()) {
            packet.clamp_mss(bytes, most.get(), is_open);
        }
        packet.rewrite(bytes, &session.ends_of(way), is_open);
        Some(NatRef::new(at, way, session.number))
    }

    fn remove(&mut self, at: u32) {
        let Some(session) = self.sessions.take(at) else { return };
        if let Some(count) = self.rules.count(session.rule) {
            count.active -= 1;
        }
        for (mapping, key) in session.mappings.into_iter().zip(session.keys) {
            if mapping != NO_MAPPING {
                self.mappings.release(mapping, key.dst);
            }
        }
    }

    /// Forgets what has ended; when to do so again.
    pub fn on_time(&mut self, now: Instant) -> Option<Instant> {
        while let Some(at) = self.sessions.sweep(now) {
            self.counts.expired += 1;
            self.remove(at);
        }
        self.pieces.iter_mut().for_each(|pieces| pieces.on_time(now));
        self.poll_at()
    }

    /// When [`on_time`](Self::on_time) has something to do.
    pub fn poll_at(&self) -> Option<Instant> {
        let [inward, outward] = [&self.pieces[0], &self.pieces[1]].map(Pieces::poll_at);
        Instant::earliest([inward, outward, self.sessions.poll_at()])
    }

    /// What it has counted.
    pub fn counts(&self) -> NatCounts {
        NatCounts {
            sessions: self.sessions.len() as u64,
            half_open: self.sessions.half_open() as u64,
            mappings: self.mappings.len() as u64,
            waiting: self.waiting() as u64,
            added: self.sessions.added(),
            rules: self.rules.counts().to_vec(),
            ..self.counts.clone()
        }
    }

    /// The sessions from a place on, no more than `most`, and where to go on.
    pub fn rows(&self, from: u32, most: usize) -> (Vec<NatRow>, Option<u32>) {
        let (mut rows, mut at) = (Vec::new(), from);
        while let Some((found, session)) = self.sessions.from(at, |_| true) {
            if rows.len() == most {
                return (rows, Some(found));
            }
            rows.push(NatRow {
                rule: self.rules.nth(session.rule).map(|nth| nth as u32),
                forth: session.keys[0],
                back: session.keys[1],
                phase: session.phase(),
                ends: session.ends,
            });
            at = found + 1;
        }
        (rows, None)
    }

    /// The bytes that its tables take.
    pub fn allocated_bytes(&self) -> usize {
        let pieces: usize = self.pieces.iter().map(Pieces::allocated_bytes).sum();
        self.sessions.allocated_bytes() + self.mappings.allocated_bytes() + pieces
    }
}
