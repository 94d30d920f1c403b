//! One state, and what names it.
//!
//! Two cache lines: the first is what a search compares and what says that the state is still there, the second what a packet
//! changes. `states.rs` keeps them.

use core::net::{IpAddr, Ipv6Addr};
use core::time::Duration;

use firelane_table::Kept;
use firelane_units::{Direction, Instant, KeepState, LinkId};
use firelane_wire::{IpProtocol, TcpView};
use siphasher::sip::SipHasher13;

use crate::packet::{Packet, Piece};
use crate::tcp::{Phase, Tracked};

/// What names a state: who has sent its first packet, and to whom. Addresses are in two halves, because 128-bit integers would
/// align it to 16 bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Key {
    src: [u64; 2],
    dst: [u64; 2],
    /// Ports; of an ICMP query its identifier, twice.
    ports: [u16; 2],
    protocol: IpProtocol,
    /// Of an ICMP query its type.
    kind: u8,
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

/// What may be known of a state's packet.
#[derive(Debug)]
#[repr(C, align(64))]
pub(crate) struct State {
    pub(crate) key: Key,
    /// Ends when nothing has come until then.
    pub(crate) ends: Instant,
    /// The how manieth it is: no two have the same.
    pub(crate) number: u64,
    /// The rule that made it, by a name that it keeps in other lists.
    pub(crate) rule: RuleId,
    /// Links: of the first packet's direction in and out, and of the other; the first packet that goes there says which.
    links: [LinkId; 4],
    pub(crate) tcp: Tracked,
    /// For how many seconds it lasts, forth and back, if its rule says so.
    age: [u32; 2],
    /// When others heard of it, in seconds.
    told: u32,
    /// ICMP errors about it do not pass by it.
    pub(crate) no_icmp_err: bool,
    /// The other end has answered.
    is_answered: bool,
}

// What a packet of a state waits for, where there are more of them than a cache keeps.
const _: () = assert!(size_of::<Option<State>>() == 128);

/// A link that no packet has named yet.
const NO_LINK: LinkId = LinkId(u32::MAX);
/// An age that no rule gives.
const NO_AGE: u32 = u32::MAX;

/// How often others hear of a state, in seconds: well within the time that it lasts without packets.
const TELL: u32 = 10;

impl Key {
    /// Nobody's.
    pub(crate) const NOBODY: Self =
        Self { src: [0; 2], dst: [0; 2], ports: [0; 2], protocol: IpProtocol(0), kind: 0 };

    pub(crate) fn of(packet: &Packet<'_>) -> Option<Self> {
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

    pub(crate) fn new(src: IpAddr, dst: IpAddr, protocol: IpProtocol, ports: [u16; 2], kind: u8) -> Self {
        Self::of_halves(halves(src), halves(dst), protocol, ports, kind)
    }

    pub(crate) const fn of_halves(
        src: [u64; 2],
        dst: [u64; 2],
        protocol: IpProtocol,
        ports: [u16; 2],
        kind: u8,
    ) -> Self {
        Self { src, dst, ports, protocol, kind }
    }

    pub(crate) const fn reversed(self) -> Self {
        let [from, to] = self.ports;
        Self { src: self.dst, dst: self.src, ports: [to, from], ..self }
    }

    /// The same for both directions.
    pub(crate) fn hash(&self, hasher: &SipHasher13) -> u32 {
        let [from, to] = [(self.src, self.ports[0]), (self.dst, self.ports[1])];
        let ((low, low_port), (high, high_port)) = if from <= to { (from, to) } else { (to, from) };
        let names = u64::from(low_port) << 32 | u64::from(high_port) << 16;
        let names = names | u64::from(self.protocol.0) << 8 | u64::from(self.kind);
        let words = [names, low[0], low[1], high[0], high[1]];
        hasher.hash(words.map(u64::to_ne_bytes).as_flattened()) as u32
    }
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

/// Whether a message asks: only that begins a state.
pub(crate) const fn asks(protocol: IpProtocol, kind: u8) -> bool {
    matches!(query(protocol, kind), Some(asked) if asked == kind)
}

impl Kept for State {
    #[inline]
    fn number(&self) -> u64 {
        self.number
    }

    #[inline]
    fn ends(&self) -> Instant {
        self.ends
    }

    fn is_half_open(&self) -> bool {
        match self.key.protocol {
            IpProtocol::TCP => self.tcp.phase().is_half_open(),
            _ => !self.is_answered,
        }
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
        let mut state = Self {
            key,
            ends: now,
            number: 0,
            rule: RuleId(0),
            links: [NO_LINK; 4],
            tcp,
            age: keep.age.map_or([NO_AGE; 2], |(forth, back)| [forth, back]),
            told: seconds(now),
            no_icmp_err: keep.no_icmp_err,
            is_answered: false,
        };
        state.links[packet.direction.index()] = packet.link;
        state.ends = now + state.lasts(0);
        state
    }

    /// Whether a segment opens a new connection with the names of one that is over.
    pub(crate) fn is_over(&self, segment: Option<&TcpView<'_>>) -> bool {
        matches!(self.tcp.phase(), Phase::Closed | Phase::Reset)
            && segment.is_some_and(|it| it.flags().syn() && !it.flags().ack())
    }

    /// Whether it came by the link that such packets came by before.
    pub(crate) fn is_by_link(&mut self, Going { way, direction, link }: Going) -> bool {
        let known = &mut self.links[2 * way + direction.index()];
        if *known == NO_LINK {
            *known = link;
        }
        *known == link
    }

    /// A packet has passed by it: it lasts longer for that. Whether others have not heard of it for a while, and the packet
    /// goes as the first one did.
    pub(crate) fn renew(&mut self, way: usize, now: Instant) -> bool {
        self.is_answered |= way == 1;
        self.ends = now + self.lasts(way);
        let is_news = way == 0 && seconds(now).wrapping_sub(self.told) >= TELL;
        if is_news {
            self.told = seconds(now);
        }
        is_news
    }

    /// How long it lasts after a packet (ipf's times; RFC 5382, RFC 4787 and RFC 5508 ask for no less of a NAT).
    fn lasts(&self, way: usize) -> Duration {
        if self.age[way] != NO_AGE {
            return Duration::from_secs(self.age[way].into());
        }
        match self.key.protocol {
            IpProtocol::TCP => self.tcp.phase().lasts(),
            IpProtocol::UDP => Duration::from_secs(120),
            _ => Duration::from_secs(60),
        }
    }

    pub(crate) const fn protocol(&self) -> IpProtocol {
        self.key.protocol
    }
}

const fn seconds(now: Instant) -> u32 {
    (now.nanos() / 1_000_000_000) as u32
}
