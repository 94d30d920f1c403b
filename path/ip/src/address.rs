//! The addresses of a netstack and their test for duplicates (RFC 5227 §2.1, RFC 4862 §5.4).
//!
//! Owns each address' state and the times of its probes and announcements; says what is to be sent next,
//! `arp.rs` and `ndp.rs` send it. Every lane runs the same sequence and only the home lane sends; the others are told
//! how it ended, so that who hears of it can use the address in all of them.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use core::time::Duration;

use firelane_units::{Instant, IpPrefix, LinkId};

use crate::config::DadConfig;
use crate::random::Random;

/// What may be done with an address.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum AddressState {
    /// It is being tested; not used.
    Tentative,
    /// Used.
    Preferred,
    /// Used by what uses it already; nothing new begins with it (RFC 4862 §5.5.4).
    Deprecated,
    /// Somebody else has it; not used.
    Duplicate,
}

impl AddressState {
    /// The word that Solaris' `ipadm` uses.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Tentative => "tentative",
            Self::Preferred | Self::Deprecated => "ok",
            Self::Duplicate => "duplicate",
        }
    }
}

/// Where an address comes from.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum AddressOrigin {
    /// From the operator.
    Operator,
    /// Made for the link alone (RFC 4862 §5.3).
    LinkLocal,
    /// Made from a prefix that a router announced (RFC 4862 §5.5).
    Prefix,
    /// The same, for a while, so that its user is not recognised (RFC 8981).
    Temporary,
}

/// An address of an interface.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Address {
    /// On which link.
    pub link: LinkId,
    /// The address and its subnet.
    pub prefix: IpPrefix,
    /// What may be done with it.
    pub state: AddressState,
    /// Where it comes from.
    pub origin: AddressOrigin,
    /// How many came before it.
    pub(crate) nth: u64,
    /// The operator wants nothing new to begin with it.
    is_retired: bool,
    /// Somebody else had it before its last test. That it went well says little: a cable that was out, or a switch that does not forward
    /// yet, lets nobody answer. So it is not defended, but left to the other as soon as he is heard (RFC 5227 §2.4 (a)).
    is_contested: bool,
    dad: Dad,
}

/// Where an address is in its sequence of probes and announcements.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Dad {
    probes_left: u8,
    announcements_left: u8,
    next: Option<Instant>,
    /// Whether it was said that the address is usable.
    is_told: bool,
    /// When the address was last defended.
    defended: Option<Instant>,
    /// Of the last questions, each its own (RFC 7527 §4.1).
    nonces: [Nonce; NONCES],
}

/// The number by which a question is recognised when the link brings it back.
pub(crate) type Nonce = [u8; 6];

/// Questions that may still be on their way back.
const NONCES: usize = 4;
/// RFC 7527 §4.1: further questions after one has come back (RFC 4861's MAX_MULTICAST_SOLICIT).
const LOOPED_PROBES: u8 = 3;

/// Why an address is refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AddressError {
    /// There is no such interface.
    Link,
    /// It is no address that one station can have.
    Invalid,
    /// The netstack has it already.
    Exists,
    /// The netstack does not have it.
    Missing,
    /// As many addresses as there may be.
    Full,
}

impl core::fmt::Display for AddressError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            Self::Link => "there is no such interface",
            Self::Invalid => "one station cannot have that address",
            Self::Exists => "the address exists",
            Self::Missing => "there is no such address",
            Self::Full => "there are too many addresses",
        })
    }
}

impl core::error::Error for AddressError {}

/// What an address' sequence asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum DadStep {
    /// Ask whether anybody has it, with this nonce where there is room for one (RFC 7527).
    Probe(LinkId, IpAddr, Nonce),
    /// It is usable.
    Ready(LinkId, IpPrefix, AddressOrigin),
    /// Tell everybody that it is ours.
    Announce(LinkId, IpAddr),
    /// Somebody else had it; its test begins anew.
    Again(LinkId, IpAddr),
}

/// RFC 5227 §1.1: ANNOUNCE_NUM and ANNOUNCE_INTERVAL.
const ANNOUNCEMENTS: u8 = 2;
const ANNOUNCE_INTERVAL: Duration = Duration::from_secs(2);
/// RFC 5227 §1.1: the least time between two defences.
const DEFEND_INTERVAL: Duration = Duration::from_secs(10);
/// After so long an operator's address that somebody else had is tested again: he may be gone (Solaris' `ip_dup_recovery`).
const RECOVERY: Duration = Duration::from_secs(300);
/// Addresses of one netstack.
const ADDRESSES_MAX: usize = 1024;

/// The addresses, in order.
#[derive(Debug)]
pub(crate) struct Addresses {
    list: Vec<Address>,
    /// The addresses as numbers, in order, IPv4's and behind them IPv6's as in `list`: searched for every packet, so they lie close.
    v4: Vec<u32>,
    v6: Vec<u128>,
    /// The subnets' broadcast addresses, in order: asked for every packet.
    broadcasts: Vec<Ipv4Addr>,
    dad: DadConfig,
    /// How many there have been.
    count: u64,
    /// Which list this is: another number, other addresses.
    version: u64,
    /// No sequence goes on before; exact after [`Addresses::poll`] has found nothing.
    next: Option<Instant>,
}

impl Addresses {
    pub(crate) const fn new(dad: DadConfig) -> Self {
        Self {
            list: Vec::new(),
            v4: Vec::new(),
            v6: Vec::new(),
            broadcasts: Vec::new(),
            dad,
            count: 0,
            version: 0,
            next: None,
        }
    }

    /// Adds an address, whose test begins.
    pub(crate) fn add(
        &mut self,
        now: Instant,
        link: LinkId,
        prefix: IpPrefix,
        origin: AddressOrigin,
        random: &mut Random,
    ) -> Result<(), AddressError> {
        if !is_station(prefix) {
            return Err(AddressError::Invalid);
        }
        if self.list.len() == ADDRESSES_MAX {
            return Err(AddressError::Full);
        }
        let Err(at) = self.position(prefix.addr()) else { return Err(AddressError::Exists) };
        let delay = u64::try_from(self.dad.delay.as_nanos()).unwrap_or(u64::MAX);
        let first = now + Duration::from_nanos(random.below(delay.saturating_add(1)));
        let dad = Dad {
            probes_left: self.dad.probes,
            announcements_left: ANNOUNCEMENTS,
            next: Some(first),
            is_told: false,
            defended: None,
            nonces: [[0; 6]; NONCES],
        };
        let state = if dad.probes_left == 0 { AddressState::Preferred } else { AddressState::Tentative };
        self.insert(at, (link, prefix, origin), state, dad);
        self.wake_by(first);
        Ok(())
    }

    /// The home lane tests an address, and says how that ended: this lane's own sequence, which stands in for a word that never
    /// comes, begins so late that it does not end before.
    pub(crate) fn leave_to_home(&mut self, now: Instant, addr: IpAddr) {
        if let Ok(at) = self.position(addr) {
            let latest = self.dad.delay + self.dad.interval * u32::from(LOOPED_PROBES + 1);
            self.list[at].dad.next = Some(now + latest);
        }
    }

    /// Notes an address that another lane has tested, or what has become of one.
    pub(crate) fn copy(
        &mut self,
        link: LinkId,
        prefix: IpPrefix,
        origin: AddressOrigin,
        state: AddressState,
    ) -> Result<(), AddressError> {
        match self.position(prefix.addr()) {
            Ok(at) if self.list[at].link == link => self.list[at].state = state,
            Ok(_) => return Err(AddressError::Exists),
            Err(_) if self.list.len() == ADDRESSES_MAX => return Err(AddressError::Full),
            Err(at) => {
                let nonces = [[0; 6]; NONCES];
                let dad = Dad {
                    probes_left: 0,
                    announcements_left: 0,
                    next: None,
                    is_told: true,
                    defended: None,
                    nonces,
                };
                self.insert(at, (link, prefix, origin), state, dad);
            }
        }
        Ok(())
    }

    /// Says whether an address that is used is preferred; says whether that is news.
    pub(crate) fn set_deprecated(&mut self, addr: IpAddr, is_deprecated: bool) -> bool {
        let state = if is_deprecated { AddressState::Deprecated } else { AddressState::Preferred };
        let Ok(at) = self.position(addr) else { return false };
        let address = &mut self.list[at];
        address.is_usable() && core::mem::replace(&mut address.state, state) != state
    }

    /// Gives an operator's address another subnet, and says whether something new may begin with it; how it was before.
    pub(crate) fn change(
        &mut self,
        link: LinkId,
        prefix: IpPrefix,
        is_retired: bool,
    ) -> Result<IpPrefix, AddressError> {
        if !is_station(prefix) {
            return Err(AddressError::Invalid);
        }
        let at = self.position(prefix.addr()).map_err(|_| AddressError::Missing)?;
        let address = &mut self.list[at];
        if address.link != link || address.origin != AddressOrigin::Operator {
            return Err(AddressError::Missing);
        }
        let before = core::mem::replace(&mut address.prefix, prefix);
        address.is_retired = is_retired;
        if address.is_usable() {
            address.state = address.state_in_use();
        }
        self.list_broadcasts();
        Ok(before)
    }

    pub(crate) fn remove(&mut self, link: LinkId, addr: IpAddr) -> Result<Address, AddressError> {
        let at = self.position(addr).map_err(|_| AddressError::Missing)?;
        if self.list[at].link != link {
            return Err(AddressError::Missing);
        }
        let gone = self.list.remove(at);
        match at.checked_sub(self.v4.len()) {
            None => drop(self.v4.remove(at)),
            Some(at) => drop(self.v6.remove(at)),
        }
        self.list_broadcasts();
        Ok(gone)
    }

    #[inline]
    pub(crate) fn get(&self, addr: IpAddr) -> Option<&Address> {
        self.position(addr).ok().map(|at| &self.list[at])
    }

    /// Whether packets for `addr` are for this netstack.
    #[inline]
    pub(crate) fn is_usable(&self, addr: IpAddr) -> bool {
        self.get(addr).is_some_and(Address::is_usable)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Address> {
        self.list.iter()
    }

    pub(crate) fn on(&self, link: LinkId) -> impl Iterator<Item = &Address> {
        self.list.iter().filter(move |address| address.link == link)
    }

    /// The link-local address that may be used on a link.
    pub(crate) fn link_local(&self, link: LinkId) -> Option<Ipv6Addr> {
        self.on(link).filter(|address| address.is_usable()).find_map(|address| match address.prefix.addr() {
            IpAddr::V6(v6) if v6.is_unicast_link_local() => Some(v6),
            _ => None,
        })
    }

    /// Whether `addr` means any router of one of the subnets (RFC 4291 §2.6.1). One of two stations has no such address (RFC 6164).
    pub(crate) fn is_any_router(&self, addr: Ipv6Addr) -> bool {
        let is_of =
            |prefix: IpPrefix| prefix.prefix_len() < 127 && prefix.network().addr() == IpAddr::V6(addr);
        self.list.iter().any(|address| is_of(address.prefix))
    }

    /// Whether `addr` is the broadcast address of one of the subnets, or of all (RFC 1122 §3.2.1.3).
    #[inline]
    pub(crate) fn is_broadcast(&self, addr: Ipv4Addr) -> bool {
        addr.is_broadcast() || self.broadcasts.binary_search(&addr).is_ok()
    }

    /// Whether a test for `addr` with this nonce is our own question, which the link has brought back. The
    /// address stays in its test then: what came back may have drowned an answer (RFC 7527 §4.1).
    pub(crate) fn is_looped(&mut self, addr: IpAddr, nonce: &[u8]) -> bool {
        let Ok(at) = self.position(addr) else { return false };
        let dad = &mut self.list[at].dad;
        let is_own = nonce != [0; 6] && dad.nonces.iter().any(|own| own == nonce);
        if is_own && !dad.is_told && dad.probes_left == 0 {
            dad.probes_left = LOOPED_PROBES;
        }
        is_own
    }

    /// The home lane's test of `addr` has ended well: says whether that is news.
    pub(crate) fn on_ready(&mut self, link: LinkId, addr: IpAddr) -> bool {
        let Ok(at) = self.position(addr) else { return false };
        let address = &mut self.list[at];
        if address.link != link || address.state != AddressState::Tentative {
            return false;
        }
        address.state = address.state_in_use();
        address.dad.is_told = true;
        address.dad.next = None;
        true
    }

    /// Somebody else has `addr`: says whether that is news. The home lane tests the operator's again, after a while.
    pub(crate) fn on_duplicate(
        &mut self,
        link: LinkId,
        addr: IpAddr,
        home: Option<Instant>,
    ) -> Option<IpPrefix> {
        let at = self.position(addr).ok()?;
        let address = &mut self.list[at];
        if address.link != link || address.state == AddressState::Duplicate {
            return None;
        }
        address.state = AddressState::Duplicate;
        let is_operators = address.origin == AddressOrigin::Operator;
        address.dad.next = home.filter(|_| is_operators).map(|now| now + RECOVERY);
        let prefix = address.prefix;
        if let Some(next) = address.dad.next {
            self.wake_by(next);
        }
        Some(prefix)
    }

    /// Who had addresses of the operator's on a link may be gone: their test begins at once.
    pub(crate) fn test_duplicates(&mut self, now: Instant, link: LinkId) {
        let is_meant = |address: &&mut Address| {
            address.link == link && address.state == AddressState::Duplicate && address.dad.next.is_some()
        };
        self.list.iter_mut().filter(is_meant).for_each(|address| address.dad.next = Some(now));
        self.wake_by(now);
    }

    /// The home lane tests an address again that somebody else had.
    pub(crate) fn on_again(&mut self, link: LinkId, addr: IpAddr) {
        let Ok(at) = self.position(addr) else { return };
        let address = &mut self.list[at];
        if address.link == link && address.state == AddressState::Duplicate {
            address.state = AddressState::Tentative;
            address.dad.is_told = false;
        }
    }

    /// Whether `addr` is left to who claims it.
    pub(crate) fn is_contested(&self, addr: IpAddr) -> bool {
        self.get(addr).is_some_and(|address| address.is_contested)
    }

    /// Whether to answer somebody who claims `addr`, which we use (RFC 5227 §2.4 (b)).
    pub(crate) fn may_defend(&mut self, now: Instant, addr: IpAddr) -> bool {
        let Ok(at) = self.position(addr) else { return false };
        let dad = &mut self.list[at].dad;
        let is_soon = dad.defended.is_some_and(|last| now.saturating_since(last) < DEFEND_INTERVAL);
        if !is_soon {
            dad.defended = Some(now);
        }
        !is_soon
    }

    /// When [`poll`](Self::poll) has something.
    pub(crate) const fn poll_at(&self) -> Option<Instant> {
        self.next
    }

    /// The next step that is due.
    pub(crate) fn poll(&mut self, now: Instant, random: &mut Random) -> Option<DadStep> {
        if self.next.is_none_or(|next| next > now) {
            return None;
        }
        let dad = self.dad;
        let due = self.list.iter_mut().find(|address| address.dad.next.is_some_and(|next| next <= now));
        if let Some(address) = due {
            return Some(address.step(now, dad, random));
        }
        self.next = self.list.iter().filter_map(|address| address.dad.next).min();
        None
    }

    /// Which list this is.
    pub(crate) const fn version(&self) -> u64 {
        self.version
    }

    /// An IPv4 address of a link that may be used.
    pub(crate) fn source_v4(&self, link: LinkId) -> Option<Ipv4Addr> {
        self.sources_v4(link).next().map(|(_, v4)| v4)
    }

    /// The same, of the peer's subnet if there is one.
    pub(crate) fn source_v4_towards(&self, link: LinkId, peer: IpAddr) -> Option<Ipv4Addr> {
        let of_subnet = self.sources_v4(link).find(|(prefix, _)| prefix.contains(peer));
        of_subnet.or_else(|| self.sources_v4(link).next()).map(|(_, v4)| v4)
    }

    /// The one of them by which others know this station there: of the link's network before those that stand for themselves (/32), and
    /// the one with the least number, whichever came first: it is the same after the next start.
    pub(crate) fn first_v4(&self, link: LinkId) -> Option<Ipv4Addr> {
        let usable = self.on(link).filter(|address| address.is_usable());
        let of_v4 = usable.filter_map(|address| match address.prefix.addr() {
            IpAddr::V4(v4) => Some((address, v4)),
            IpAddr::V6(_) => None,
        });
        let first = of_v4.min_by_key(|&(address, v4)| {
            (address.state == AddressState::Deprecated, address.prefix.prefix_len() == 32, v4)
        });
        first.map(|(_, v4)| v4)
    }

    fn sources_v4(&self, link: LinkId) -> impl Iterator<Item = (IpPrefix, Ipv4Addr)> {
        let usable = self.on(link).filter(|address| address.is_usable());
        usable.filter_map(|address| match address.prefix.addr() {
            IpAddr::V4(v4) => Some((address.prefix, v4)),
            IpAddr::V6(_) => None,
        })
    }

    fn list_broadcasts(&mut self) {
        self.version += 1;
        self.broadcasts = self.list.iter().filter_map(|address| broadcast_of(address.prefix)).collect();
        self.broadcasts.sort_unstable();
        self.broadcasts.dedup();
    }

    fn wake_by(&mut self, at: Instant) {
        self.next = Some(self.next.map_or(at, |next| next.min(at)));
    }

    fn insert(
        &mut self,
        at: usize,
        (link, prefix, origin): (LinkId, IpPrefix, AddressOrigin),
        state: AddressState,
        dad: Dad,
    ) {
        let nth = self.count;
        let address =
            Address { link, prefix, state, origin, nth, is_retired: false, is_contested: false, dad };
        self.count += 1;
        match prefix.addr() {
            IpAddr::V4(v4) => self.v4.insert(at, v4.to_bits()),
            IpAddr::V6(v6) => self.v6.insert(at - self.v4.len(), v6.to_bits()),
        }
        self.list.insert(at, address);
        self.list_broadcasts();
    }

    /// Where an address is, or would be. A mapped IPv6 address from the wire is no IPv4 address of ours.
    #[inline]
    fn position(&self, addr: IpAddr) -> Result<usize, usize> {
        let before = self.v4.len();
        match addr {
            IpAddr::V4(v4) => self.v4.binary_search(&v4.to_bits()),
            IpAddr::V6(v6) => match self.v6.binary_search(&v6.to_bits()) {
                Ok(at) => Ok(before + at),
                Err(at) => Err(before + at),
            },
        }
    }
}

impl Address {
    /// Whether packets for it are for this netstack, and may come from it.
    #[inline]
    pub const fn is_usable(&self) -> bool {
        matches!(self.state, AddressState::Preferred | AddressState::Deprecated)
    }

    /// The state that it has once its test is over.
    const fn state_in_use(&self) -> AddressState {
        if self.is_retired { AddressState::Deprecated } else { AddressState::Preferred }
    }

    fn step(&mut self, now: Instant, config: DadConfig, random: &mut Random) -> DadStep {
        let addr = self.prefix.addr();
        let dad = &mut self.dad;
        if self.state == AddressState::Duplicate {
            (self.state, self.is_contested) = (AddressState::Tentative, true);
            (dad.probes_left, dad.announcements_left, dad.is_told) = (config.probes, ANNOUNCEMENTS, false);
            return DadStep::Again(self.link, addr);
        }
        if dad.probes_left > 0 {
            dad.probes_left -= 1;
            dad.next = Some(now + config.interval);
            let [.., a, b, c, d, e, f] = random.draw().to_be_bytes();
            dad.nonces.rotate_right(1);
            dad.nonces[0] = [a, b, c, d, e, f];
            return DadStep::Probe(self.link, addr, dad.nonces[0]);
        }
        // The first announcement follows at once: the time of the next step stays.
        if !dad.is_told {
            dad.is_told = true;
            self.state = self.state_in_use();
            return DadStep::Ready(self.link, self.prefix, self.origin);
        }
        dad.announcements_left -= 1;
        dad.next = (dad.announcements_left > 0).then_some(now + ANNOUNCE_INTERVAL);
        DadStep::Announce(self.link, addr)
    }
}

/// Whether one station can have the address: neither group, nor broadcast, nor a special address.
fn is_station(prefix: IpPrefix) -> bool {
    let addr = prefix.addr();
    if addr.is_unspecified() || addr.is_multicast() || addr.is_loopback() {
        return false;
    }
    match addr {
        IpAddr::V4(v4) => {
            let is_network = prefix.prefix_len() < 31 && prefix.network().addr() == addr;
            v4.octets()[0] < 240 && v4.octets()[0] != 0 && broadcast_of(prefix) != Some(v4) && !is_network
        }
        IpAddr::V6(v6) => v6.to_ipv4_mapped().is_none(),
    }
}

/// The broadcast address of a subnet. Two stations, or one, need none (RFC 3021).
pub fn broadcast_of(prefix: IpPrefix) -> Option<Ipv4Addr> {
    let IpAddr::V4(addr) = prefix.addr() else { return None };
    let host_bits = u32::MAX.checked_shr(u32::from(prefix.prefix_len())).unwrap_or(0);
    (prefix.prefix_len() < 31).then(|| Ipv4Addr::from_bits(addr.to_bits() | host_bits))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Keyed;

    const LINK: LinkId = LinkId(1);
    const OPERATOR: AddressOrigin = AddressOrigin::Operator;

    fn addresses(dad: DadConfig) -> (Addresses, Random) {
        (Addresses::new(dad), Random::new(Keyed::new([3; 16], 0), 0))
    }

    /// All steps until nothing is left to do, with the millisecond of each.
    fn run((addresses, random): (&mut Addresses, &mut Random)) -> Vec<(u64, DadStep)> {
        let mut steps = Vec::new();
        while let Some(now) = addresses.poll_at() {
            while let Some(step) = addresses.poll(now, random) {
                steps.push((now.millis(), step));
            }
        }
        steps
    }

    #[test]
    fn an_address_is_probed_used_and_announced() {
        let (mut list, mut random) = addresses(DadConfig::FAST);
        let prefix: IpPrefix = "10.0.0.1/24".parse().unwrap();
        list.add(Instant::ZERO, LINK, prefix, OPERATOR, &mut random).unwrap();
        assert_eq!(list.get(prefix.addr()).unwrap().state, AddressState::Tentative);
        assert!(!list.is_usable(prefix.addr()));
        let steps = run((&mut list, &mut random));
        let start = steps[0].0;
        assert!(start <= 100);
        let times: Vec<u64> = steps.iter().map(|(at, _)| at - start).collect();
        assert_eq!(times, [0, 150, 300, 450, 450, 2450]);
        assert!(matches!(steps[2].1, DadStep::Probe(LINK, ip, _) if ip == prefix.addr()));
        assert_eq!(steps[3].1, DadStep::Ready(LINK, prefix, OPERATOR));
        assert_eq!(steps[4].1, DadStep::Announce(LINK, prefix.addr()));
        assert!(list.is_usable(prefix.addr()));
    }

    #[test]
    fn another_lane_uses_an_address_when_its_home_does_and_never_before() {
        let prefix: IpPrefix = "10.0.0.1/24".parse().unwrap();
        let ready = |replica: u16, is_home: bool| {
            let (mut list, mut random) =
                (Addresses::new(DadConfig::FAST), Random::new(Keyed::new([3; 16], 0), replica));
            list.add(Instant::ZERO, LINK, prefix, OPERATOR, &mut random).unwrap();
            if !is_home {
                list.leave_to_home(Instant::ZERO, prefix.addr());
            }
            let steps = run((&mut list, &mut random));
            steps.iter().find(|(_, step)| matches!(step, DadStep::Ready(..))).unwrap().0
        };
        let latest = (0..50).map(|replica| ready(replica, true)).max().unwrap();
        assert!((0..50).all(|replica| ready(replica, false) > latest));
        let (mut list, mut random) = addresses(DadConfig::FAST);
        list.add(Instant::ZERO, LINK, prefix, OPERATOR, &mut random).unwrap();
        list.leave_to_home(Instant::ZERO, prefix.addr());
        assert!(list.on_ready(LINK, prefix.addr()) && list.is_usable(prefix.addr()));
        assert_eq!(run((&mut list, &mut random)), []);
    }

    /// RFC 4862 §5.4.2, RFC 5227 §2.1.1: stations that begin together do not ask together.
    #[test]
    fn the_first_question_waits_for_a_random_time() {
        let (mut list, mut random) = addresses(DadConfig::SLOW);
        for n in 1..=20 {
            let prefix = format!("fd00::{n}/64").parse().unwrap();
            list.add(Instant::ZERO, LINK, prefix, OPERATOR, &mut random).unwrap();
        }
        let steps = run((&mut list, &mut random));
        let mut first = std::collections::BTreeMap::new();
        for (at, step) in steps {
            if let DadStep::Probe(_, address, _) = step {
                first.entry(address).or_insert(at);
            }
        }
        let distinct: std::collections::BTreeSet<u64> = first.values().copied().collect();
        assert_eq!(first.len(), 20);
        assert!(distinct.len() > 15 && distinct.iter().all(|&at| at <= 1_000), "{distinct:?}");
    }

    #[test]
    fn a_question_that_comes_back_is_no_conflict_and_prolongs_the_test() {
        let (mut list, mut random) = addresses(DadConfig::FAST);
        let prefix: IpPrefix = "fd00::1/64".parse().unwrap();
        list.add(Instant::ZERO, LINK, prefix, OPERATOR, &mut random).unwrap();
        let (mut probes, mut nonces) = (0, Vec::new());
        while let Some(now) = list.poll_at() {
            while let Some(step) = list.poll(now, &mut random) {
                let DadStep::Probe(_, addr, nonce) = step else { continue };
                probes += 1;
                assert!(!nonces.contains(&nonce), "each question has a nonce of its own");
                nonces.push(nonce);
                // The link is looped until the fifth question.
                assert!(probes > 5 || list.is_looped(addr, &nonce));
            }
        }
        // Three, three more because the third came back, and no more because the sixth did not.
        assert_eq!(probes, 6);
        assert!(list.is_usable(prefix.addr()));
        assert!(!list.is_looped(prefix.addr(), &[1; 6]));
    }

    #[test]
    fn without_a_test_an_address_is_usable_at_once() {
        let (mut list, mut random) = addresses(DadConfig::OFF);
        let prefix: IpPrefix = "fd00::1/64".parse().unwrap();
        list.add(Instant::ZERO, LINK, prefix, OPERATOR, &mut random).unwrap();
        assert!(list.is_usable(prefix.addr()));
        assert_eq!(run((&mut list, &mut random))[0], (0, DadStep::Ready(LINK, prefix, OPERATOR)));
    }

    #[test]
    fn a_duplicate_is_never_used_and_ends_its_sequence() {
        let (mut list, mut random) = addresses(DadConfig::FAST);
        let prefix: IpPrefix = "10.0.0.1/24".parse().unwrap();
        list.add(Instant::ZERO, LINK, prefix, OPERATOR, &mut random).unwrap();
        assert_eq!(list.on_duplicate(LINK, prefix.addr(), None), Some(prefix));
        assert_eq!(list.on_duplicate(LINK, prefix.addr(), None), None);
        assert_eq!(run((&mut list, &mut random)), []);
        assert_eq!(list.get(prefix.addr()).unwrap().state, AddressState::Duplicate);
    }

    #[test]
    fn the_operators_duplicate_is_tested_again_by_its_home_after_a_while_and_when_the_link_is_back() {
        for (origin, at, tests) in [
            (OPERATOR, None, 1),
            (OPERATOR, Some(Instant::from_secs(7)), 1),
            (AddressOrigin::LinkLocal, None, 0),
            (AddressOrigin::Prefix, Some(Instant::from_secs(7)), 0),
        ] {
            let (mut list, mut random) = addresses(DadConfig::FAST);
            let prefix: IpPrefix = "fe80::1/64".parse().unwrap();
            list.add(Instant::ZERO, LINK, prefix, origin, &mut random).unwrap();
            let heard = Instant::from_secs(1);
            list.on_duplicate(LINK, prefix.addr(), Some(heard)).unwrap();
            at.into_iter().for_each(|at| list.test_duplicates(at, LINK));
            let steps = run((&mut list, &mut random));
            let again = |step: &&(u64, DadStep)| matches!(step.1, DadStep::Again(..));
            let due = at.unwrap_or(heard + RECOVERY).millis();
            assert_eq!(steps.iter().filter(again).map(|it| it.0).collect::<Vec<_>>(), vec![due; tests]);
            let probes = steps.iter().filter(|it| matches!(it.1, DadStep::Probe(..))).count();
            assert_eq!((probes, list.is_usable(prefix.addr())), (3 * tests, tests > 0), "{origin:?}");
        }
    }

    #[test]
    fn a_claim_is_answered_once_in_ten_seconds() {
        let (mut list, mut random) = addresses(DadConfig::OFF);
        let prefix: IpPrefix = "10.0.0.1/24".parse().unwrap();
        list.add(Instant::ZERO, LINK, prefix, OPERATOR, &mut random).unwrap();
        let answers = [0, 1, 9, 10, 11].map(|s| list.may_defend(Instant::from_secs(s), prefix.addr()));
        assert_eq!(answers, [true, false, false, true, false]);
    }

    #[test]
    fn what_a_station_can_have() {
        let (mut list, mut random) = addresses(DadConfig::OFF);
        for (text, result) in [
            ("10.0.0.1/24", Ok(())),
            ("10.0.0.1/8", Err(AddressError::Exists)),
            ("10.0.0.0/24", Err(AddressError::Invalid)),
            ("10.0.0.255/24", Err(AddressError::Invalid)),
            ("10.1.0.0/31", Ok(())),
            ("10.1.0.1/31", Ok(())),
            ("10.2.0.1/32", Ok(())),
            ("127.0.0.1/8", Err(AddressError::Invalid)),
            ("224.0.0.1/4", Err(AddressError::Invalid)),
            ("240.0.0.1/4", Err(AddressError::Invalid)),
            ("0.1.2.3/8", Err(AddressError::Invalid)),
            ("::1", Err(AddressError::Invalid)),
            ("ff02::1", Err(AddressError::Invalid)),
            ("::ffff:10.0.0.9", Err(AddressError::Invalid)),
            ("fe80::1/10", Ok(())),
        ] {
            let prefix: IpPrefix = text.parse().unwrap();
            assert_eq!(list.add(Instant::ZERO, LINK, prefix, OPERATOR, &mut random), result, "{text}");
        }
        assert!(list.is_broadcast(Ipv4Addr::new(10, 0, 0, 255)));
        assert!(!list.is_broadcast(Ipv4Addr::new(10, 1, 0, 1)));
    }
}
