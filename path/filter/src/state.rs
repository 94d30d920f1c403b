//! One state, and what names it.
//!
//! Two cache lines. A packet of IPv4 that is no segment asks for the first alone: where there are more states than a cache keeps, each line
//! comes from memory and goes back there. The second has the rest: of IPv6's addresses, of TCP, and of rules with times of their own.
//! `states.rs` keeps them.

use core::hash::Hasher;
use core::net::{IpAddr, Ipv6Addr};
use core::time::Duration;

use firelane_table::Kept;
use firelane_units::{Direction, Instant, KeepState, LinkId};
use firelane_wire::{IpProtocol, TcpView};
use siphasher::sip::SipHasher13;

use crate::packet::{Packet, Piece};
use crate::tcp::Tracked;

/// What names a state: who has sent its first packet, and to whom. Addresses are in two halves, because 128-bit integers would
/// align it to 16 bytes. What is shorter stands together in words that are compared and mixed as such: read as a word after it was
/// written in parts, a processor waits for it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Key {
    src: [u64; 2],
    dst: [u64; 2],
    /// Source and destination port; of an ICMP query [`query_ports`].
    ports: u32,
    /// The protocol, and of an ICMP query its type.
    what: u16,
}

/// What a rule is called as long as it is in each new list.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct RuleId(pub(crate) u32);

/// Which of a state's packets it is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Going {
    /// As the first packet did (0), or back (1).
    pub(crate) way: usize,
    pub(crate) direction: Direction,
    pub(crate) link: LinkId,
}

/// The key of the hash: whoever does not know it cannot aim at a place.
pub(crate) type Secret = (u64, u64);

/// Whether the lower halves of the addresses say all of them.
///
/// Two bytes, so that no other field has as many unused values: it is one of these that says that a place is free, and who asks
/// for that reads this line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u16)]
enum Width {
    /// The upper halves are zero, as IPv4's are.
    Short,
    Long,
}

/// How far a conversation without a handshake is. A question and its answers may have come in anybody's name, so it is half-open still.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Heard {
    /// One end has sent.
    One,
    /// The other has answered.
    Answer,
    /// Who has asked has asked again behind an answer.
    Both,
}

/// What may be known of a state's packet.
#[derive(Debug)]
#[repr(C, align(64))]
pub(crate) struct State {
    /// Of its [`Key`], the lower halves of both addresses.
    low: [u64; 2],
    ports: u32,
    what: u16,
    /// When others heard of it: the lower bits of the second.
    told: u16,
    /// The rule that made it, by a name that it keeps in other lists.
    pub(crate) rule: RuleId,
    width: Width,
    /// Its rule says how long it lasts.
    has_age: bool,
    /// How far what has no handshake is.
    heard: Heard,
    /// Ends when nothing has come until then.
    pub(crate) ends: Instant,
    /// The how manieth it is: no two have the same.
    pub(crate) number: u64,
    /// Links: of the first packet's direction in and out, and of the other; the first packet that goes there says which.
    links: [LinkId; 4],
    /// The upper halves, unless it is short.
    high: [u64; 2],
    /// For how many seconds it lasts then, forth and back.
    age: [u32; 2],
    /// ICMP errors about it do not pass by it.
    pub(crate) no_icmp_err: bool,
    /// It is one of those that its rule's limit counts.
    pub(crate) is_limited: bool,
    pub(crate) tcp: Tracked,
}

const LINE: usize = 64;
// What a packet of a state waits for, where there are more of them than a cache keeps.
const _: () = assert!(size_of::<Option<State>>() == 2 * LINE && core::mem::offset_of!(State, high) == LINE);

/// A link that no packet has named yet.
const NO_LINK: LinkId = LinkId(u32::MAX);

/// How often others hear of a state, in seconds: well within the time that it lasts without packets.
const TELL: u16 = 10;

impl Key {
    /// Whether the first line of its state says all that there is to say of a packet with these names.
    pub(crate) fn is_brief(&self) -> bool {
        self.is_short() && protocol(self.what) != IpProtocol::TCP
    }

    const fn is_short(&self) -> bool {
        self.src[0] | self.dst[0] == 0
    }

    pub(crate) fn of(packet: &Packet<'_>) -> Option<Self> {
        let (ports, kind) = match packet.protocol {
            IpProtocol::ICMPV4 | IpProtocol::ICMPV6 => {
                let (kind, _) = packet.icmp()?;
                let id = (packet.icmp_rest()?.0 >> 16) as u16;
                (query_ports(packet.protocol, kind, id), query(packet.protocol, kind)?)
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

    pub(crate) fn new(src: IpAddr, dst: IpAddr, protocol: IpProtocol, ports: [u16; 2], kind: u8) -> Self {
        Self::of_halves(halves(src), halves(dst), protocol, ports, kind)
    }

    pub(crate) const fn of_halves(
        src: [u64; 2],
        dst: [u64; 2],
        protocol: IpProtocol,
        [from, to]: [u16; 2],
        kind: u8,
    ) -> Self {
        let ports = (from as u32) << 16 | to as u32;
        Self { src, dst, ports, what: (protocol.0 as u16) << 8 | kind as u16 }
    }

    pub(crate) const fn reversed(self) -> Self {
        Self { src: self.dst, dst: self.src, ports: self.ports.rotate_left(16), ..self }
    }

    /// The same for both directions.
    #[inline]
    pub(crate) fn hash(&self, (low_key, high_key): Secret) -> u32 {
        // A new one, word by word: of that it is known here how it goes on, so that all of it becomes one piece without a branch.
        let mut hasher = SipHasher13::new_with_keys(low_key, high_key);
        let turned = self.reversed();
        let is_first = (self.src, self.ports >> 16) <= (self.dst, turned.ports >> 16);
        let Self { src: low, dst: high, ports, what } = if is_first { *self } else { turned };
        hasher.write_u64(u64::from(ports) << 16 | u64::from(what));
        match (v4_bits(low), v4_bits(high)) {
            // Fewer words are sooner mixed.
            (Some(low), Some(high)) => hasher.write_u64(u64::from(low) << 32 | u64::from(high)),
            _ => [low[0], low[1], high[0], high[1]].into_iter().for_each(|word| hasher.write_u64(word)),
        }
        hasher.finish() as u32
    }
}

const fn protocol(what: u16) -> IpProtocol {
    IpProtocol((what >> 8) as u8)
}

/// The IPv4 address that is in its mapped form.
const fn v4_bits([high, low]: [u64; 2]) -> Option<u32> {
    if high == 0 && low >> 32 == 0xffff { Some(low as u32) } else { None }
}

fn halves(address: IpAddr) -> [u64; 2] {
    let bits = match address {
        IpAddr::V4(address) => Ipv6Addr::to_bits(address.to_ipv6_mapped()),
        IpAddr::V6(address) => address.to_bits(),
    };
    [(bits >> 64) as u64, bits as u64]
}

/// The type of the query that a message is, or answers.
pub(crate) const fn query(protocol: IpProtocol, kind: u8) -> Option<u8> {
    match (protocol, kind) {
        (IpProtocol::ICMPV4, 0 | 8) => Some(8),
        (IpProtocol::ICMPV4, 13 | 14) => Some(13),
        (IpProtocol::ICMPV4, 15 | 16) => Some(15),
        (IpProtocol::ICMPV4, 17 | 18) => Some(17),
        (IpProtocol::ICMPV6, 128 | 129) => Some(128),
        _ => None,
    }
}

/// What stands for the ports of a query, or of what answers it: two may ask each other with one identifier, so who asks has another one
/// than who answers.
pub(crate) const fn query_ports(protocol: IpProtocol, kind: u8, id: u16) -> [u16; 2] {
    if asks(protocol, kind) { [id, !id] } else { [!id, id] }
}

/// Whether a message asks: only that begins a state.
pub(crate) const fn asks(protocol: IpProtocol, kind: u8) -> bool {
    matches!(query(protocol, kind), Some(asked) if asked == kind)
}

/// Whether a segment asks for a connection, and no more.
pub(crate) fn is_question(segment: &TcpView<'_>) -> bool {
    let flags = segment.flags();
    flags.syn() && !flags.ack() && !flags.rst()
}

impl Kept for State {
    #[inline]
    fn ends(&self) -> Instant {
        self.ends
    }

    fn is_half_open(&self) -> bool {
        match self.protocol() {
            IpProtocol::TCP => self.tcp.is_half_open(),
            _ => self.heard != Heard::Both,
        }
    }

    #[inline]
    fn is_spent(&self) -> bool {
        self.protocol() == IpProtocol::TCP && self.tcp.is_over()
    }
}

impl State {
    /// What a packet begins.
    pub(crate) fn new(
        key: Key,
        packet: &Packet<'_>,
        segment: Option<&TcpView<'_>>,
        keep: KeepState,
        now: Instant,
    ) -> Self {
        let tcp = segment.map_or_else(Tracked::default, |segment| Tracked::new(segment, keep.strict));
        let Key { src, dst, ports, what } = key;
        let mut state = Self {
            low: [src[1], dst[1]],
            ports,
            what,
            told: seconds(now),
            rule: RuleId(0),
            width: if key.is_short() { Width::Short } else { Width::Long },
            has_age: keep.age.is_some(),
            heard: Heard::One,
            ends: now,
            number: 0,
            links: [NO_LINK; 4],
            high: [src[0], dst[0]],
            age: keep.age.map_or([0; 2], |(forth, back)| [forth, back]),
            no_icmp_err: keep.no_icmp_err,
            is_limited: keep.limit.is_some(),
            tcp,
        };
        state.links[packet.direction.index()] = packet.link;
        state.ends = now + state.lasts(0);
        state
    }

    /// What names it.
    pub(crate) fn key(&self) -> Key {
        let Self { low, ports, what, .. } = *self;
        let high = if self.width == Width::Short { [0; 2] } else { self.high };
        Key { src: [high[0], low[0]], dst: [high[1], low[1]], ports, what }
    }

    #[inline]
    const fn protocol(&self) -> IpProtocol {
        protocol(self.what)
    }

    /// Which way packets with these names go, if they are its own: its first packet's (0), or back (1).
    #[inline]
    pub(crate) fn way_of(&self, key: &Key) -> Option<usize> {
        let is_it = |key: &Key| {
            let is_alike =
                self.low == [key.src[1], key.dst[1]] && (self.ports, self.what) == (key.ports, key.what);
            is_alike
                && match self.width {
                    Width::Short => key.is_short(),
                    Width::Long => self.has_high([key.src[0], key.dst[0]]),
                }
        };
        if is_it(key) { Some(0) } else { is_it(&key.reversed()).then_some(1) }
    }

    /// Whether the upper halves are these. Not inlined, as otherwise they are read without being asked for, and the line with them.
    #[inline(never)]
    fn has_high(&self, high: [u64; 2]) -> bool {
        self.high == high
    }

    /// Whether a packet that has its names simply belongs to it; a segment is noted then.
    #[inline]
    pub(crate) fn takes(&mut self, going: Going, segment: Option<&TcpView<'_>>, now: Instant) -> bool {
        let is_alike = (self.protocol() == IpProtocol::TCP) == segment.is_some();
        let is_its = self.ends > now
            && is_alike
            && !self.is_over(segment)
            && self.is_by_link(going)
            && segment.is_none_or(|segment| self.tcp.take(going.way, segment));
        if is_its {
            self.note_link(going);
        }
        is_its
    }

    /// Whether a segment that came by another link fits the connection. Nothing is noted: rules may end it.
    pub(crate) fn may_have_moved(&self, way: usize, segment: &TcpView<'_>) -> bool {
        let mut seen = self.tcp;
        !is_question(segment) && seen.take(way, segment)
    }

    /// Whether a segment opens a new connection with the names of one that is over.
    pub(crate) fn is_over(&self, segment: Option<&TcpView<'_>>) -> bool {
        // The phase is asked for last: it is in the second line.
        segment.is_some_and(|it| it.flags().syn() && !it.flags().ack()) && self.tcp.is_over()
    }

    /// Whether it came by the link that such packets came by before, if any came.
    pub(crate) fn is_by_link(&self, Going { way, direction, link }: Going) -> bool {
        let known = self.links[2 * way + direction.index()];
        known == NO_LINK || known == link
    }

    /// It was its own: the first one says by which link such packets come. Until an end has sent something of this connection, anybody can
    /// say something in its name.
    #[inline]
    pub(crate) fn note_link(&mut self, Going { way, direction, link }: Going) {
        let nth = 2 * way + direction.index();
        if self.links[nth] == NO_LINK && (self.protocol() != IpProtocol::TCP || self.tcp.has_sent(way)) {
            self.links[nth] = link;
        }
    }

    /// Whether packets that go this way were asked about on their way in.
    pub(crate) fn comes_in(&self, way: usize) -> bool {
        self.links[2 * way + Direction::In.index()] != NO_LINK
    }

    /// A packet has passed by it: it lasts longer for that. Whether others have not heard of it for a while, and the packet
    /// goes as the first one did.
    pub(crate) fn renew(&mut self, way: usize, now: Instant) -> bool {
        if self.heard != Heard::Both {
            // Until then: what is not written to need not go back to memory.
            self.hear(way);
        }
        self.ends = now + self.lasts(way);
        let is_news = way == 0 && seconds(now).wrapping_sub(self.told) >= TELL;
        if is_news {
            self.told = seconds(now);
        }
        is_news
    }

    fn hear(&mut self, way: usize) {
        self.heard = match (self.heard, way) {
            (Heard::One, 1) => Heard::Answer,
            (Heard::Answer, 0) => Heard::Both,
            (heard, _) => heard,
        };
    }

    /// How long it lasts after a packet (ipf's times; RFC 5382, RFC 4787 and RFC 5508 ask for no less of a NAT).
    fn lasts(&self, way: usize) -> Duration {
        if self.has_age {
            return Duration::from_secs(self.age[way].into());
        }
        match self.protocol() {
            IpProtocol::TCP => self.tcp.phase().lasts(),
            IpProtocol::UDP => Duration::from_secs(120),
            _ => Duration::from_secs(60),
        }
    }
}

const fn seconds(now: Instant) -> u16 {
    (now.nanos() / 1_000_000_000) as u16
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// One of few names, some of which differ in one half of an address alone.
    fn names() -> impl Strategy<Value = Key> {
        let half = || {
            prop_oneof![Just([0, 7]), Just([0, 0xffff << 32 | 7]), Just([1, 7]), Just([0, 0xffff << 32 | 8])]
        };
        let protocol = prop_oneof![Just(IpProtocol::UDP), Just(IpProtocol::TCP)];
        (half(), half(), protocol, [0..2_u16, 0..2_u16], 0..2_u8)
            .prop_map(|(src, dst, protocol, ports, kind)| Key::of_halves(src, dst, protocol, ports, kind))
    }

    fn state_of(key: Key) -> State {
        State {
            low: [key.src[1], key.dst[1]],
            ports: key.ports,
            what: key.what,
            told: 0,
            rule: RuleId(0),
            width: if key.is_short() { Width::Short } else { Width::Long },
            has_age: false,
            heard: Heard::One,
            ends: Instant::ZERO,
            number: 0,
            links: [NO_LINK; 4],
            high: [key.src[0], key.dst[0]],
            age: [0; 2],
            no_icmp_err: false,
            is_limited: false,
            tcp: Tracked::default(),
        }
    }

    proptest! {
        #[test]
        fn a_state_is_known_by_its_names_both_ways_and_by_no_others(own in names(), other in names()) {
            let state = state_of(own);
            prop_assert_eq!(state.key(), own);
            let way = if other == own { Some(0) } else { (other == own.reversed()).then_some(1) };
            prop_assert_eq!(state.way_of(&other), way);
            let hashes = [own, other].map(|key| key.hash((1, 2)));
            prop_assert_eq!(hashes[0] == hashes[1], way.is_some());
        }
    }

    /// Bytes that take the place of a state: as many as lie before or behind what says that it is none.
    type Else<const BYTES: usize> = Result<State, [u8; BYTES]>;

    #[test]
    fn whether_a_place_is_free_is_said_in_its_first_line() {
        let tag = core::mem::offset_of!(State, width);
        let behind = 2 * LINE - tag - size_of::<Width>();
        assert!(tag < LINE && tag < behind);
        assert_eq!(size_of::<Else<{ LINE + LINE / 2 }>>(), 2 * LINE, "{tag}");
        assert!(size_of::<Else<{ LINE + LINE / 2 + 4 }>>() > 2 * LINE, "nothing else says it");
        assert!((LINE + LINE / 2..LINE + LINE / 2 + 4).contains(&behind));
    }
}
