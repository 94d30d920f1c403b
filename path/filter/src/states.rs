//! States: what a rule with `keep state` has let through, and whatever belongs to it, both ways.
//!
//! Entries in a slab, an index with a secret hash by the two ends, and a hand that goes round the slab and takes out what
//! has ended: an entry costs one write per packet and no list. When all places are taken the half-open entry that waits longest goes
//! first; what both ends have shown to be theirs stays, and the newcomer is refused.

use core::hash::Hasher;
use core::net::{IpAddr, Ipv6Addr};
use core::time::Duration;
use std::collections::VecDeque;

use firelane_units::{Direction, Instant, KeepState, LinkId, Port};
use firelane_wire::IpProtocol;
use hashbrown::HashTable;
use siphasher::sip::SipHasher13;

use crate::packet::{Packet, Piece};
use crate::tcp::{Phase, Tracked};

/// How many states there may be, unless said otherwise.
pub const STATES_MAX: usize = 1 << 20;

/// How long the hand takes for all entries, at the most.
const ROUND: Duration = Duration::from_secs(10);
/// How many it looks at in one go.
const LOOKED_AT: usize = 1000;
/// How often it looks, if there are few.
const LOOK: Duration = Duration::from_secs(1);

/// How often others hear of a state: well within the time that it lasts without packets.
const TELL: Duration = Duration::from_secs(10);

/// What names a state: who has sent its first packet, and to whom.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Key {
    src: u128,
    dst: u128,
    /// Ports; of an ICMP query its identifier, twice.
    ports: [u16; 2],
    protocol: IpProtocol,
    /// Of an ICMP query its type.
    kind: u8,
}

/// Why no state was made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum NoState {
    /// Such a packet has none (a reset, an ICMP error, a piece without ports): it passes by itself.
    Never,
    /// There is no place.
    Full,
    /// Its rule has as many as it may.
    RuleFull,
}

/// What a packet that belongs to a state is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Belongs {
    /// To none.
    No,
    /// To the state made by this rule; rules of an earlier list have no number.
    To {
        /// The rule, if the list is still the same.
        rule: Option<u32>,
        /// It goes as the first one did, and others have not heard of the state for a while.
        is_news: bool,
    },
    /// By its names, but it is outside the window.
    OutOfWindow,
}

/// One state.
#[derive(Debug)]
struct State {
    key: Key,
    /// Ends when nothing has come until then.
    ends: Instant,
    /// Which rules' list, and which of it.
    list: u32,
    rule: u32,
    keep: KeepState,
    /// Links: of the first packet's direction in and out, and of the other; the first packet that goes there says which.
    links: [Option<LinkId>; 4],
    tcp: Tracked,
    /// When others heard of it.
    told: Instant,
    /// The other end has answered.
    is_answered: bool,
}

/// What states have counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct StateCounts {
    /// There are so many.
    pub active: u64,
    /// Were made.
    pub added: u64,
    /// Ended for want of packets.
    pub expired: u64,
    /// Gave their place to others.
    pub evicted: u64,
    /// Found no place.
    pub full: u64,
    /// Were more than their rule may have.
    pub rule_full: u64,
    /// Packets that passed by one.
    pub hits: u64,
    /// Packets outside the window of theirs.
    pub out_of_window: u64,
}

impl StateCounts {
    /// Adds those of another table.
    pub fn merge(&mut self, other: &Self) {
        let Self { active, added, expired, evicted, full, rule_full, hits, out_of_window } = self;
        let sums = [
            (active, other.active),
            (added, other.added),
            (expired, other.expired),
            (evicted, other.evicted),
            (full, other.full),
            (rule_full, other.rule_full),
            (hits, other.hits),
            (out_of_window, other.out_of_window),
        ];
        sums.into_iter().for_each(|(sum, count)| *sum += count);
    }
}

/// The table.
#[derive(Debug)]
pub(crate) struct States {
    slab: Vec<Option<State>>,
    free: Vec<u32>,
    index: HashTable<(u32, u32)>,
    hasher: SipHasher13,
    /// Half-open ones in the order in which they began, by place and what `made` was.
    half_open: VecDeque<(u32, u64)>,
    /// When each place was taken, in numbers.
    made: Vec<u64>,
    hand: usize,
    look_at: Instant,
    most: usize,
    /// The rules' list that is there now, and how many states each of its rules has.
    list: u32,
    by_rule: Vec<u32>,
    counts: StateCounts,
}

impl Key {
    fn of(packet: &Packet<'_>) -> Option<Self> {
        let (ports, kind) = match packet.protocol {
            IpProtocol::ICMPV4 | IpProtocol::ICMPV6 => {
                let (kind, _) = packet.icmp()?;
                let id = (packet.icmp_rest()?.0 >> 16) as u16;
                ([id, id], query(packet.protocol, kind)?)
            }
            protocol if protocol.has_ports() => {
                let (from, to) = packet.ports()?;
                ([from.0, to.0], 0)
            }
            _ => ([0, 0], 0),
        };
        (packet.piece != Piece::Later)
            .then(|| Self::new(packet.src, packet.dst, packet.protocol, ports, kind))
    }

    fn new(src: IpAddr, dst: IpAddr, protocol: IpProtocol, ports: [u16; 2], kind: u8) -> Self {
        Self { src: bits(src), dst: bits(dst), ports, protocol, kind }
    }

    const fn reversed(self) -> Self {
        let [from, to] = self.ports;
        Self { src: self.dst, dst: self.src, ports: [to, from], ..self }
    }

    /// The same for both directions.
    fn hash(&self, hasher: &SipHasher13) -> u32 {
        let [from, to] = [(self.src, self.ports[0]), (self.dst, self.ports[1])];
        let (low, high) = if from <= to { (from, to) } else { (to, from) };
        let mut hasher = *hasher;
        for (address, port) in [low, high] {
            hasher.write_u64((address >> 64) as u64);
            hasher.write_u64(address as u64);
            hasher.write_u16(port);
        }
        hasher.write_u16(u16::from(self.protocol.0) << 8 | u16::from(self.kind));
        hasher.finish() as u32
    }
}

fn bits(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => Ipv6Addr::to_bits(address.to_ipv6_mapped()),
        IpAddr::V6(address) => address.to_bits(),
    }
}

/// The type of the query that a message is, or answers.
const fn query(protocol: IpProtocol, kind: u8) -> Option<u8> {
    match (protocol, kind) {
        (IpProtocol::ICMPV4, 0 | 8) => Some(8),
        (IpProtocol::ICMPV4, 13 | 14) => Some(13),
        (IpProtocol::ICMPV4, 15 | 16) => Some(15),
        (IpProtocol::ICMPV4, 17 | 18) => Some(17),
        (IpProtocol::ICMPV6, 128 | 129) => Some(128),
        _ => None,
    }
}

/// Whether a message asks: only that begins a state.
const fn asks(protocol: IpProtocol, kind: u8) -> bool {
    matches!(query(protocol, kind), Some(asked) if asked == kind)
}

impl States {
    /// None as yet, and never more than `most`.
    pub(crate) fn new(key: (u64, u64), most: usize) -> Self {
        Self {
            slab: Vec::new(),
            free: Vec::new(),
            index: HashTable::new(),
            hasher: SipHasher13::new_with_keys(key.0, key.1),
            half_open: VecDeque::new(),
            made: Vec::new(),
            hand: 0,
            look_at: Instant::ZERO,
            most,
            list: 0,
            by_rule: Vec::new(),
            counts: StateCounts::default(),
        }
    }

    /// What was counted.
    pub(crate) fn counts(&self) -> StateCounts {
        StateCounts { active: self.len() as u64, ..self.counts }
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.slab.len() - self.free.len()
    }

    /// Another list of rules counts from here on: states stay, and belong to no rule of it.
    pub(crate) fn begin_list(&mut self, rules: usize) {
        self.list = self.list.wrapping_add(1);
        self.by_rule.clear();
        self.by_rule.resize(rules, 0);
    }

    /// The state that a packet belongs to; it lasts longer for that.
    pub(crate) fn take(&mut self, packet: &Packet<'_>, now: Instant) -> Belongs {
        if self.len() == 0 {
            return Belongs::No;
        }
        let Some(key) = Key::of(packet) else { return self.take_error(packet, now) };
        let Some((at, way)) = self.find(&key) else { return Belongs::No };
        let list = self.list;
        let Some(state) = self.slab[at as usize].as_mut() else { return Belongs::No };
        if state.ends <= now || state.is_over(packet) {
            self.counts.expired += 1;
            self.remove(at);
            return Belongs::No;
        }
        if !state.is_by_link(packet, way) {
            return Belongs::No;
        }
        if let Some((kind, _)) = packet.icmp()
            && asks(packet.protocol, kind) != (way == 0)
        {
            return Belongs::No;
        }
        if let Some(segment) = packet.segment()
            && !state.tcp.take(way, &segment)
        {
            self.counts.out_of_window += 1;
            return Belongs::OutOfWindow;
        }
        state.is_answered |= way == 1;
        state.ends = now + state.lasts(packet.protocol, way);
        let is_news = way == 0 && now.saturating_since(state.told) >= TELL;
        if is_news {
            state.told = now;
        }
        self.counts.hits += 1;
        Belongs::To { rule: (state.list == list).then_some(state.rule), is_news }
    }

    /// An ICMP error about a packet of a state, from its other end or from somebody between.
    fn take_error(&mut self, packet: &Packet<'_>, now: Instant) -> Belongs {
        let Some(quoted) = packet.quoted() else { return Belongs::No };
        // Whoever sends it tells the sender of what it quotes.
        if quoted.src != packet.dst {
            return Belongs::No;
        }
        let (ports, kind) = match (quoted.protocol, quoted.ports(), quoted.transport()) {
            (_, Some((Port(from), Port(to))), _) => ([from, to], 0),
            (protocol @ (IpProtocol::ICMPV4 | IpProtocol::ICMPV6), _, &[kind, _, _, _, high, low, ..]) => {
                let Some(kind) = query(protocol, kind) else { return Belongs::No };
                ([u16::from_be_bytes([high, low]); 2], kind)
            }
            _ => ([0, 0], 0),
        };
        let key = Key::new(quoted.src, quoted.dst, quoted.protocol, ports, kind);
        let Some((at, _)) = self.find(&key) else { return Belongs::No };
        let list = self.list;
        let Some(state) = self.slab[at as usize].as_ref() else { return Belongs::No };
        if state.ends <= now || state.keep.no_icmp_err {
            return Belongs::No;
        }
        self.counts.hits += 1;
        Belongs::To { rule: (state.list == list).then_some(state.rule), is_news: false }
    }

    /// Makes a state of a packet that a rule lets through.
    pub(crate) fn make(
        &mut self,
        packet: &Packet<'_>,
        rule: u32,
        keep: KeepState,
        now: Instant,
    ) -> Result<(), NoState> {
        let key = Key::of(packet).ok_or(NoState::Never)?;
        let segment = packet.segment();
        let is_never = match packet.protocol {
            IpProtocol::TCP => segment.as_ref().is_none_or(|segment| segment.flags().rst()),
            protocol => packet.icmp().is_some_and(|(kind, _)| !asks(protocol, kind)),
        };
        if is_never || packet.is_for_many() {
            return Err(NoState::Never);
        }
        if let Some((at, _)) = self.find(&key) {
            // What is there did not take the packet: the names have a new user.
            self.remove(at);
        }
        let of_rule = self.by_rule.get(rule as usize).copied().unwrap_or_default();
        if keep.limit.is_some_and(|limit| of_rule >= limit.get()) {
            self.counts.rule_full += 1;
            return Err(NoState::RuleFull);
        }
        if self.len() >= self.most && !self.evict() {
            self.counts.full += 1;
            return Err(NoState::Full);
        }
        let tcp = segment.map_or_else(Tracked::default, |segment| Tracked::new(&segment, keep.strict));
        let mut state = State {
            key,
            ends: now,
            list: self.list,
            rule,
            keep,
            links: [None; 4],
            tcp,
            told: now,
            is_answered: false,
        };
        state.links[place(packet.direction, 0)] = Some(packet.link);
        state.ends = now + state.lasts(packet.protocol, 0);
        self.enter(state);
        Ok(())
    }

    fn enter(&mut self, state: State) {
        let is_half_open = state.is_half_open();
        let hash = state.key.hash(&self.hasher);
        if let Some(count) = self.by_rule.get_mut(state.rule as usize) {
            *count += 1;
        }
        let at = self.free.pop().unwrap_or(self.slab.len() as u32);
        if at as usize == self.slab.len() {
            self.slab.push(None);
            self.made.push(0);
        }
        self.slab[at as usize] = Some(state);
        self.counts.added += 1;
        self.made[at as usize] = self.counts.added;
        if is_half_open {
            if self.half_open.len() > 2 * self.most {
                let Self { half_open, slab, made, .. } = self;
                half_open.retain(|&(at, number)| {
                    let state = slab.get(at as usize).and_then(Option::as_ref);
                    made.get(at as usize) == Some(&number) && state.is_some_and(State::is_half_open)
                });
            }
            self.half_open.push_back((at, self.counts.added));
        }
        self.index.insert_unique(spread(hash), (hash, at), |&(hash, _)| spread(hash));
    }

    /// Which state has these names, and whether the packet goes its way (0) or back (1).
    fn find(&self, key: &Key) -> Option<(u32, usize)> {
        let hash = key.hash(&self.hasher);
        let reversed = key.reversed();
        let is_one = |&(its, at): &(u32, u32)| {
            let state = self.slab[at as usize].as_ref();
            its == hash && state.is_some_and(|state| state.key == *key || state.key == reversed)
        };
        let &(_, at) = self.index.find(spread(hash), is_one)?;
        let way = usize::from(self.slab[at as usize].as_ref()?.key != *key);
        Some((at, way))
    }

    fn remove(&mut self, at: u32) {
        let Some(state) = self.slab[at as usize].take() else { return };
        let hash = state.key.hash(&self.hasher);
        if let Ok(found) = self.index.find_entry(spread(hash), |&(_, its)| its == at) {
            found.remove();
        }
        if state.list == self.list
            && let Some(count) = self.by_rule.get_mut(state.rule as usize)
        {
            *count -= 1;
        }
        self.free.push(at);
        if self.len() == 0 {
            // All memory goes with the last one.
            (self.slab, self.free, self.made) = (Vec::new(), Vec::new(), Vec::new());
            (self.index, self.half_open, self.hand) = (HashTable::new(), VecDeque::new(), 0);
        }
    }

    /// Makes room: the half-open state that waits longest goes. Whether there was one.
    fn evict(&mut self) -> bool {
        while let Some((at, number)) = self.half_open.pop_front() {
            let is_it = self.made.get(at as usize) == Some(&number);
            let state = self.slab.get(at as usize).and_then(Option::as_ref).filter(|_| is_it);
            if state.is_some_and(State::is_half_open) {
                self.counts.evicted += 1;
                self.remove(at);
                return true;
            }
        }
        false
    }

    /// Takes out what has ended; when to look again.
    pub(crate) fn on_time(&mut self, now: Instant) -> Option<Instant> {
        if self.len() == 0 || now < self.look_at {
            return self.poll_at();
        }
        for _ in 0..LOOKED_AT.min(self.slab.len()) {
            let at = self.hand;
            self.hand = (at + 1) % self.slab.len();
            if self.slab[at].as_ref().is_some_and(|state| state.ends <= now) {
                self.counts.expired += 1;
                self.remove(at as u32);
                if self.slab.is_empty() {
                    return None;
                }
            }
        }
        // Those that both ends have answered for, or that have ended, need no place in the order.
        while let Some(&(at, number)) = self.half_open.front() {
            let state = self.slab[at as usize].as_ref().filter(|_| self.made[at as usize] == number);
            if state.is_some_and(State::is_half_open) {
                break;
            }
            self.half_open.pop_front();
        }
        let rounds = (self.slab.len() / LOOKED_AT + 1) as u32;
        self.look_at = now + (ROUND / rounds).min(LOOK);
        self.poll_at()
    }

    /// When to look again.
    pub(crate) fn poll_at(&self) -> Option<Instant> {
        (self.len() > 0).then_some(self.look_at)
    }

    /// The bytes that it takes.
    pub(crate) fn allocated_bytes(&self) -> usize {
        self.slab.capacity() * size_of::<Option<State>>()
            + self.made.capacity() * size_of::<u64>()
            + self.free.capacity() * size_of::<u32>()
            + self.half_open.capacity() * size_of::<(u32, u64)>()
            + self.index.allocation_size()
    }
}

/// The table's control bytes are the top of a hash.
const fn spread(hash: u32) -> u64 {
    (hash as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

const fn place(direction: Direction, way: usize) -> usize {
    2 * way + direction.index()
}

impl State {
    /// Whether nobody has shown that both ends are there.
    fn is_half_open(&self) -> bool {
        match self.key.protocol {
            IpProtocol::TCP => self.tcp.phase().is_half_open(),
            _ => !self.is_answered,
        }
    }

    /// Whether a packet opens a new connection with the names of one that is over.
    fn is_over(&self, packet: &Packet<'_>) -> bool {
        let is_begin = packet.segment().is_some_and(|it| it.flags().syn() && !it.flags().ack());
        is_begin && matches!(self.tcp.phase(), Phase::Closed | Phase::Reset)
    }

    /// Whether it came by the link that such packets came by before.
    fn is_by_link(&mut self, packet: &Packet<'_>, way: usize) -> bool {
        *self.links[place(packet.direction, way)].get_or_insert(packet.link) == packet.link
    }

    /// How long it lasts after a packet (ipf's times; RFC 5382, RFC 4787 and RFC 5508 ask for no less of a NAT).
    fn lasts(&self, protocol: IpProtocol, way: usize) -> Duration {
        if let Some((forth, back)) = self.keep.age {
            return Duration::from_secs(if way == 0 { forth } else { back }.into());
        }
        match protocol {
            IpProtocol::TCP => self.tcp.phase().lasts(),
            IpProtocol::UDP => Duration::from_secs(120),
            _ => Duration::from_secs(60),
        }
    }
}
