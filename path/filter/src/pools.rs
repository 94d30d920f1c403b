//! Pools: sets of addresses and prefixes by number, which rules name (ippool(5)), and maps, which have a group of rules for each
//! prefix.
//!
//! One table per prefix length, so a look costs as many probes as there are lengths in the pool, whatever its size. An entry may
//! have an end; from then on it is not in the pool. Those that have one stand in the order of their ends as well, and are
//! forgotten some at a time: a hundred thousand that end at once hold no packet up.

use core::net::IpAddr;
use core::num::NonZeroU32;
use std::collections::{BTreeMap, BTreeSet};

use firelane_units::{Instant, IpPrefix};
use hashbrown::HashMap;
use siphasher::sip::SipHasher13;

/// A pool's secret hash: addresses may come from a peer.
#[derive(Clone, Debug)]
struct Keyed(SipHasher13);

impl core::hash::BuildHasher for Keyed {
    type Hasher = SipHasher13;

    fn build_hasher(&self) -> SipHasher13 {
        self.0
    }
}

/// The pools of a netstack.
#[derive(Clone, Debug)]
pub(crate) struct Pools {
    by_number: BTreeMap<u32, Pool>,
    /// Entries that end, the next one first.
    ends: BTreeSet<(Instant, u32, IpPrefix)>,
    hasher: Keyed,
}

#[derive(Clone, Debug, Default)]
struct Pool {
    /// Networks by length, IPv4's and IPv6's apart.
    lengths: BTreeMap<(bool, u8), HashMap<IpAddr, Node, Keyed>>,
}

/// What is said of a network.
#[derive(Clone, Copy, Debug)]
struct Node {
    until: Instant,
    is_exception: bool,
    group: Option<NonZeroU32>,
}

/// What an entry without an end has for one.
pub const FOREVER: Instant = Instant::FAR_FUTURE;
/// Entries that are forgotten in one go: some tens of microseconds.
const FORGOTTEN_AT_ONCE: usize = 256;

/// A network comes into a pool, gets another end, or goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PoolChange {
    /// The pool's number.
    pub pool: u32,
    /// The network.
    pub network: IpPrefix,
    /// Until when it is in there, [`FOREVER`] being without end; nothing if it goes.
    pub until: Option<Instant>,
    /// Its addresses are not in the pool, whatever larger network they are of (`!`).
    pub is_exception: bool,
    /// The group of rules that a map has for its addresses.
    pub group: Option<NonZeroU32>,
}

impl Pools {
    /// None as yet.
    pub(crate) fn new(key: (u64, u64)) -> Self {
        let hasher = Keyed(SipHasher13::new_with_keys(key.0, key.1));
        Self { by_number: BTreeMap::new(), ends: BTreeSet::new(), hasher }
    }

    /// Forgets all of them.
    pub(crate) fn clear(&mut self) {
        self.by_number.clear();
        self.ends.clear();
    }

    /// Enters whole pools, with what is in them and until when.
    pub(crate) fn fill(&mut self, pools: Vec<(u32, Vec<(IpPrefix, Instant)>)>) {
        for (pool, entries) in pools {
            self.begin(pool);
            entries.into_iter().for_each(|(prefix, until)| self.insert(pool, prefix, until, false));
        }
    }

    /// There is such a pool, whatever is in it.
    pub(crate) fn begin(&mut self, pool: u32) {
        self.by_number.entry(pool).or_default();
    }

    /// Whether there is, or was, something in such a pool.
    pub(crate) fn has(&self, pool: u32) -> bool {
        self.by_number.contains_key(&pool)
    }

    /// Enters a prefix until then; again to give it another end, or to say the contrary of it.
    pub(crate) fn insert(&mut self, pool: u32, prefix: IpPrefix, until: Instant, is_exception: bool) {
        self.enter(pool, prefix, Node { until, is_exception, group: None });
    }

    /// The same of a map, which has this group for the prefix.
    pub(crate) fn insert_group(&mut self, map: u32, prefix: IpPrefix, until: Instant, group: NonZeroU32) {
        self.enter(map, prefix, Node { until, is_exception: false, group: Some(group) });
    }

    fn enter(&mut self, pool: u32, prefix: IpPrefix, node: Node) {
        let until = node.until;
        let network = prefix.network();
        let length = (network.addr().is_ipv4(), network.prefix_len());
        let table = self.by_number.entry(pool).or_default().lengths.entry(length);
        let table = table.or_insert_with(|| HashMap::with_hasher(self.hasher.clone()));
        if let Some(before) = table.insert(network.addr(), node) {
            self.ends.remove(&(before.until, pool, network));
        }
        if until != FOREVER {
            self.ends.insert((until, pool, network));
        }
    }

    /// Takes a prefix out; one that is not there changes nothing.
    pub(crate) fn remove(&mut self, pool: u32, prefix: IpPrefix) {
        let network = prefix.network();
        if let Some(until) = self.forget(pool, network) {
            self.ends.remove(&(until, pool, network));
        }
    }

    /// Takes a prefix out of its table; gives its end.
    fn forget(&mut self, pool: u32, network: IpPrefix) -> Option<Instant> {
        let lengths = &mut self.by_number.get_mut(&pool)?.lengths;
        let length = (network.addr().is_ipv4(), network.prefix_len());
        let table = lengths.get_mut(&length)?;
        let node = table.remove(&network.addr());
        if table.is_empty() {
            lengths.remove(&length);
        }
        node.map(|node| node.until)
    }

    /// Whether an address is in a pool now. A pool that nobody made is empty.
    pub(crate) fn contains(&self, pool: u32, address: IpAddr, now: Instant) -> bool {
        self.by_number.get(&pool).is_some_and(|pool| pool.contains(address, now))
    }

    /// The group that a map has for an address now: that of the longest network which the address is of.
    pub(crate) fn group(&self, map: u32, address: IpAddr, now: Instant) -> Option<NonZeroU32> {
        self.by_number.get(&map)?.node(address, now)?.group
    }

    /// Forgets entries whose end has come, some at a time; when there is one to forget again.
    pub(crate) fn expire(&mut self, now: Instant) -> Option<Instant> {
        for _ in 0..FORGOTTEN_AT_ONCE {
            let Some(&(until, pool, network)) = self.ends.first().filter(|(until, ..)| *until <= now) else {
                break;
            };
            self.ends.remove(&(until, pool, network));
            self.forget(pool, network);
        }
        self.next_end()
    }

    /// When the next entry ends.
    pub(crate) fn next_end(&self) -> Option<Instant> {
        self.ends.first().map(|(until, ..)| *until)
    }

    /// How many entries they have.
    pub(crate) fn len(&self) -> usize {
        self.by_number.values().flat_map(|pool| pool.lengths.values()).map(HashMap::len).sum()
    }
}

impl Pool {
    /// The longest network that the address is of decides, as in the original's trees.
    fn contains(&self, address: IpAddr, now: Instant) -> bool {
        self.node(address, now).is_some_and(|node| !node.is_exception)
    }

    /// What is said of that network.
    fn node(&self, address: IpAddr, now: Instant) -> Option<Node> {
        let is_v4 = address.is_ipv4();
        let mut nodes = self.lengths.range((is_v4, 0)..=(is_v4, u8::MAX)).rev().filter_map(|(key, table)| {
            let network = IpPrefix::new(address, key.1)?.network().addr();
            table.get(&network).filter(|node| node.until > now)
        });
        nodes.next().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_in_a_pool_until_its_end() {
        let mut pools = Pools::new((1, 2));
        let prefix = |text: &str| text.parse().unwrap();
        let at = Instant::from_secs;
        pools.insert(1, prefix("10.1.2.3/8"), FOREVER, false);
        pools.insert(1, prefix("192.0.2.7/32"), at(10), false);
        pools.insert(1, prefix("fd00::/8"), FOREVER, false);
        pools.insert(2, prefix("0.0.0.0/0"), FOREVER, false);
        let is_in =
            |pools: &Pools, pool, text: &str, now| pools.contains(pool, text.parse().unwrap(), at(now));
        assert!(is_in(&pools, 1, "10.200.0.1", 99) && is_in(&pools, 1, "fd12::1", 99));
        assert!(is_in(&pools, 1, "192.0.2.7", 9) && !is_in(&pools, 1, "192.0.2.7", 10));
        assert!(!is_in(&pools, 1, "192.0.2.8", 1) && !is_in(&pools, 1, "fe80::1", 1));
        assert!(is_in(&pools, 2, "192.0.2.8", 1) && !is_in(&pools, 2, "fd00::1", 1));
        assert!(!is_in(&pools, 3, "10.0.0.1", 1), "nobody made it");
        assert_eq!((pools.expire(at(9)), pools.len()), (Some(at(10)), 4));
        assert_eq!((pools.expire(at(10)), pools.len()), (None, 3));
    }

    #[test]
    fn the_longest_network_of_an_address_decides_whether_it_is_in_a_pool() {
        let mut pools = Pools::new((1, 2));
        let prefix = |text: &str| text.parse().unwrap();
        let at = Instant::from_secs;
        pools.insert(1, prefix("10.0.0.0/8"), FOREVER, false);
        pools.insert(1, prefix("10.1.0.0/16"), at(10), true);
        pools.insert(1, prefix("10.1.2.0/24"), at(20), false);
        pools.insert(1, prefix("fd00::/64"), FOREVER, true);
        pools.insert(1, prefix("fd00::/8"), FOREVER, false);
        let is_in = |pools: &Pools, text: &str, now| pools.contains(1, text.parse().unwrap(), at(now));
        for (address, now, wanted) in [
            ("10.200.0.1", 1, true),
            ("10.1.9.9", 1, false),
            ("10.1.2.9", 1, true),
            ("10.1.9.9", 10, true),
            ("10.1.2.9", 10, true),
            ("10.1.2.9", 20, true),
            ("192.0.2.1", 1, false),
            ("fd00::7", 1, false),
            ("fd00:0:0:1::7", 1, true),
        ] {
            assert_eq!(is_in(&pools, address, now), wanted, "{address} at {now}");
        }
        pools.insert(1, prefix("10.1.0.0/16"), FOREVER, true);
        assert!(!is_in(&pools, "10.1.9.9", 99), "it has another end");
        pools.insert(1, prefix("10.1.0.0/16"), FOREVER, false);
        assert!(is_in(&pools, "10.1.9.9", 99), "and the contrary is said of it");
        pools.insert(2, prefix("192.0.2.0/24"), FOREVER, true);
        assert!(!pools.contains(2, "192.0.2.1".parse().unwrap(), at(1)));
        assert!(!pools.contains(2, "192.0.3.1".parse().unwrap(), at(1)), "exceptions alone hold nobody");
    }

    #[test]
    fn a_map_has_the_group_of_the_longest_network() {
        let mut pools = Pools::new((1, 2));
        let prefix = |text: &str| text.parse().unwrap();
        let (at, group) = (Instant::from_secs, |number| NonZeroU32::new(number));
        let mut enter = |text: &str, until, number| {
            pools.insert_group(1, prefix(text), until, group(number).unwrap());
        };
        enter("10.0.0.0/8", FOREVER, 8);
        enter("10.1.0.0/16", at(10), 16);
        enter("fd00::/8", FOREVER, 6);
        pools.insert(2, prefix("10.0.0.0/8"), FOREVER, false);
        for (map, address, now, wanted) in [
            (1, "10.2.0.1", 1, group(8)),
            (1, "10.1.0.1", 9, group(16)),
            (1, "10.1.0.1", 10, group(8)),
            (1, "fd00::1", 1, group(6)),
            (1, "192.0.2.1", 1, None),
            (2, "10.2.0.1", 1, None),
            (3, "10.2.0.1", 1, None),
        ] {
            assert_eq!(
                pools.group(map, address.parse().unwrap(), at(now)),
                wanted,
                "{address} in {map} at {now}"
            );
        }
        pools.insert_group(1, prefix("10.0.0.0/8"), FOREVER, group(9).unwrap());
        assert_eq!(
            pools.group(1, "10.2.0.1".parse().unwrap(), at(1)),
            group(9),
            "another one takes its place"
        );
    }

    #[test]
    fn an_entry_has_one_end_whatever_was_said_of_it_before() {
        let mut pools = Pools::new((1, 2));
        let network: IpPrefix = "192.0.2.7/24".parse().unwrap();
        let inside = "192.0.2.99".parse().unwrap();
        let at = Instant::from_secs;
        pools.insert(1, network, at(10), false);
        pools.insert(1, network, at(20), false);
        assert_eq!(pools.expire(at(10)), Some(at(20)));
        assert!(pools.contains(1, inside, at(19)));
        pools.insert(1, network, FOREVER, false);
        assert_eq!((pools.expire(at(30)), pools.contains(1, inside, at(30))), (None, true));
        pools.insert(1, network, at(40), false);
        pools.remove(2, network);
        pools.remove(1, network);
        assert_eq!((pools.next_end(), pools.len(), pools.contains(1, inside, at(31))), (None, 0, false));
        pools.remove(1, network);
    }

    #[test]
    fn a_hundred_thousand_ends_are_forgotten_some_at_a_time() {
        let mut pools = Pools::new((3, 4));
        let host = |n: u32| IpPrefix::host(IpAddr::V4((0x0a00_0000 + n).into()));
        (0..100_000).for_each(|n| pools.insert(7, host(n), Instant::from_secs(5), false));
        let now = Instant::from_secs(6);
        assert!(!pools.contains(7, "10.0.0.1".parse().unwrap(), now), "it has ended, forgotten or not");
        let mut goes = 0;
        while pools.len() > 0 {
            let before = pools.len();
            let again = pools.expire(now);
            assert!(before - pools.len() <= FORGOTTEN_AT_ONCE);
            assert_eq!(again.is_some(), pools.len() > 0);
            goes += 1;
        }
        assert_eq!(goes, 100_000_usize.div_ceil(FORGOTTEN_AT_ONCE));
    }

    #[test]
    fn a_hundred_thousand_addresses_are_found_one_by_one() {
        let mut pools = Pools::new((3, 4));
        let address = |n: u32| IpAddr::V4((0x0a00_0000 + 2 * n).into());
        (0..100_000).for_each(|n| pools.insert(7, IpPrefix::host(address(n)), FOREVER, false));
        assert!((0..100_000).all(|n| pools.contains(7, address(n), Instant::ZERO)));
        assert!(!pools.contains(7, "10.0.0.1".parse().unwrap(), Instant::ZERO));
    }
}
