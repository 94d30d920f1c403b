//! Mappings: which address and port outside stand for which inside, whoever is at the other end (RFC 4787 REQ-1: endpoint-independent).
//!
//! A mapping stands while a session needs it. No two have the same names outside, and none has two.

use core::net::Ipv4Addr;
use std::collections::hash_map::Entry;

use firelane_table::Index;
use firelane_units::LinkId;
use firelane_wire::IpProtocol;
use siphasher::sip::SipHasher13;

use crate::keyed::{Keyed, KeyedMap};
use crate::taken::TakenPorts;

/// A mapping.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Mapping {
    pub(crate) protocol: IpProtocol,
    pub(crate) inside: (Ipv4Addr, u16),
    pub(crate) outside: (Ipv4Addr, u16),
    /// Behind which link outside is.
    pub(crate) link: LinkId,
    /// The rule that made it, by the name that it keeps in other lists.
    pub(crate) rule: u32,
    /// How many sessions need it.
    sessions: u32,
}

/// The mappings.
#[derive(Debug)]
pub(crate) struct Mappings {
    slab: Vec<Option<Mapping>>,
    free: Vec<u32>,
    inside: Index,
    outside: Index,
    taken: TakenPorts,
    /// With how many sessions each mapping has sent to an address.
    peers: KeyedMap<(u32, Ipv4Addr), u32>,
    hasher: SipHasher13,
}

impl Mapping {
    pub(crate) const fn new(
        protocol: IpProtocol,
        inside: (Ipv4Addr, u16),
        outside: (Ipv4Addr, u16),
        link: LinkId,
        rule: u32,
    ) -> Self {
        Self { protocol, inside, outside, link, rule, sessions: 0 }
    }
}

impl Mappings {
    pub(crate) fn new(hasher: SipHasher13) -> Self {
        Self {
            slab: Vec::new(),
            free: Vec::new(),
            inside: Index::default(),
            outside: Index::default(),
            taken: TakenPorts::new(hasher),
            peers: KeyedMap::with_hasher(Keyed(hasher)),
            hasher,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.slab.len() - self.free.len()
    }

    pub(crate) fn get(&self, at: u32) -> Option<&Mapping> {
        self.slab.get(at as usize)?.as_ref()
    }

    fn get_mut(&mut self, at: u32) -> Option<&mut Mapping> {
        self.slab.get_mut(at as usize)?.as_mut()
    }

    fn hash(&self, protocol: IpProtocol, (address, port): (Ipv4Addr, u16), rule: u32) -> u32 {
        let mut bytes = [0; 11];
        bytes[..4].copy_from_slice(&address.octets());
        bytes[4..6].copy_from_slice(&port.to_ne_bytes());
        bytes[6] = protocol.0;
        bytes[7..].copy_from_slice(&rule.to_ne_bytes());
        self.hasher.hash(&bytes) as u32
    }

    /// The mapping that a rule has made for somebody inside.
    pub(crate) fn of_inside(&self, protocol: IpProtocol, inside: (Ipv4Addr, u16), rule: u32) -> Option<u32> {
        self.inside.find(self.hash(protocol, inside, rule), |at| {
            self.get(at).is_some_and(|it| (it.protocol, it.inside, it.rule) == (protocol, inside, rule))
        })
    }

    /// The mapping that has these names outside.
    pub(crate) fn of_outside(&self, protocol: IpProtocol, outside: (Ipv4Addr, u16)) -> Option<u32> {
        let is_it = |it: &Mapping| (it.protocol, it.outside) == (protocol, outside);
        self.outside.find(self.hash(protocol, outside, 0), |at| self.get(at).is_some_and(is_it))
    }

    /// The ports outside that mappings have.
    pub(crate) fn taken(&self) -> &TakenPorts {
        &self.taken
    }

    /// Enters one whose names nobody has; it goes again with the last session that needs it.
    pub(crate) fn enter(&mut self, mapping: Mapping) -> u32 {
        let at = self.free.pop().unwrap_or(self.slab.len() as u32);
        if at as usize == self.slab.len() {
            self.slab.push(None);
        }
        let Mapping { protocol, inside, outside, rule, .. } = mapping;
        self.slab[at as usize] = Some(mapping);
        let (inner, outer) = (self.hash(protocol, inside, rule), self.hash(protocol, outside, 0));
        self.inside.insert(inner, at);
        self.outside.insert(outer, at);
        self.taken.put(protocol, outside);
        at
    }

    /// A session with somebody needs it.
    pub(crate) fn hold(&mut self, at: u32, peer: Ipv4Addr) {
        if let Some(mapping) = self.get_mut(at) {
            mapping.sessions += 1;
            *self.peers.entry((at, peer)).or_insert(0) += 1;
        }
    }

    /// It needs it no more.
    pub(crate) fn release(&mut self, at: u32, peer: Ipv4Addr) {
        if let Entry::Occupied(mut count) = self.peers.entry((at, peer)) {
            *count.get_mut() -= 1;
            if *count.get() == 0 {
                count.remove();
            }
        }
        if let Some(mapping) = self.get_mut(at) {
            mapping.sessions = mapping.sessions.saturating_sub(1);
        }
        self.let_go(at);
    }

    /// A session is on its way that will need it.
    pub(crate) fn pin(&mut self, at: u32) {
        self.get_mut(at).into_iter().for_each(|mapping| mapping.sessions += 1);
    }

    /// That session is there next, or who has pinned it lets it go.
    pub(crate) fn unpin(&mut self, at: u32) {
        self.get_mut(at).into_iter().for_each(|mapping| mapping.sessions -= 1);
    }

    /// Takes it out if no session needs it.
    pub(crate) fn let_go(&mut self, at: u32) {
        let Some(&Mapping { protocol, inside, outside, rule, sessions: 0, .. }) = self.get(at) else {
            return;
        };
        let (inner, outer) = (self.hash(protocol, inside, rule), self.hash(protocol, outside, 0));
        self.inside.remove(inner, at);
        self.outside.remove(outer, at);
        self.taken.take(protocol, outside);
        self.slab[at as usize] = None;
        self.free.push(at);
        if self.len() == 0 {
            // All memory goes with the last one.
            (self.slab, self.free) = (Vec::new(), Vec::new());
            (self.inside, self.outside) = (Index::default(), Index::default());
            self.taken = TakenPorts::new(self.hasher);
            self.peers = KeyedMap::with_hasher(Keyed(self.hasher));
        }
    }

    /// Whether somebody behind a mapping has a session with this address.
    pub(crate) fn has_sent_to(&self, at: u32, peer: Ipv4Addr) -> bool {
        self.peers.contains_key(&(at, peer))
    }

    /// The bytes that it takes.
    pub(crate) fn allocated_bytes(&self) -> usize {
        self.slab.capacity() * size_of::<Option<Mapping>>()
            + self.free.capacity() * size_of::<u32>()
            + self.peers.capacity() * size_of::<((u32, Ipv4Addr), u32)>()
            + self.inside.allocated_bytes()
            + self.outside.allocated_bytes()
            + self.taken.allocated_bytes()
    }
}
