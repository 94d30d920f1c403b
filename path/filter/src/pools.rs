//! Pools: sets of addresses and prefixes by number, which rules name (ippool(5)).
//!
//! One table per prefix length, so a look costs as many probes as there are lengths in the pool, whatever its size. An entry may
//! have an end; from then on it is not in the pool.

use core::net::IpAddr;
use std::collections::BTreeMap;

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
#[derive(Debug)]
pub(crate) struct Pools {
    by_number: BTreeMap<u32, Pool>,
    hasher: Keyed,
}

#[derive(Debug, Default)]
struct Pool {
    /// Networks by length, IPv4's and IPv6's apart; each with its end.
    lengths: BTreeMap<(bool, u8), HashMap<IpAddr, Instant, Keyed>>,
}

/// What an entry without an end has for one.
pub const FOREVER: Instant = Instant::FAR_FUTURE;

impl Pools {
    /// None as yet.
    pub(crate) fn new(key: (u64, u64)) -> Self {
        Self { by_number: BTreeMap::new(), hasher: Keyed(SipHasher13::new_with_keys(key.0, key.1)) }
    }

    /// Forgets all of them.
    pub(crate) fn clear(&mut self) {
        self.by_number.clear();
    }

    /// Enters a prefix until then; again to give it another end.
    pub(crate) fn insert(&mut self, pool: u32, prefix: IpPrefix, until: Instant) {
        let length = (prefix.addr().is_ipv4(), prefix.prefix_len());
        let table = self.by_number.entry(pool).or_default().lengths.entry(length);
        let table = table.or_insert_with(|| HashMap::with_hasher(self.hasher.clone()));
        table.insert(prefix.network().addr(), until);
    }

    /// Whether an address is in a pool now. A pool that nobody made is empty.
    pub(crate) fn contains(&self, pool: u32, address: IpAddr, now: Instant) -> bool {
        self.by_number.get(&pool).is_some_and(|pool| pool.contains(address, now))
    }

    /// Forgets those whose end has come; when the next one's does.
    pub(crate) fn expire(&mut self, now: Instant) -> Option<Instant> {
        let mut next = FOREVER;
        for pool in self.by_number.values_mut() {
            pool.lengths.retain(|_, table| {
                table.retain(|_, until| {
                    let stays = *until > now;
                    if stays {
                        next = next.min(*until);
                    }
                    stays
                });
                !table.is_empty()
            });
        }
        (next != FOREVER).then_some(next)
    }

    /// How many entries they have.
    pub(crate) fn len(&self) -> usize {
        self.by_number.values().flat_map(|pool| pool.lengths.values()).map(HashMap::len).sum()
    }
}

impl Pool {
    fn contains(&self, address: IpAddr, now: Instant) -> bool {
        self.lengths.iter().any(|(&(is_v4, length), table)| {
            let network = || Some(IpPrefix::new(address, length)?.network().addr());
            is_v4 == address.is_ipv4()
                && network().and_then(|it| table.get(&it)).is_some_and(|until| *until > now)
        })
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
        pools.insert(1, prefix("10.1.2.3/8"), FOREVER);
        pools.insert(1, prefix("192.0.2.7/32"), at(10));
        pools.insert(1, prefix("fd00::/8"), FOREVER);
        pools.insert(2, prefix("0.0.0.0/0"), FOREVER);
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
    fn a_hundred_thousand_addresses_are_found_one_by_one() {
        let mut pools = Pools::new((3, 4));
        let address = |n: u32| IpAddr::V4((0x0a00_0000 + 2 * n).into());
        (0..100_000).for_each(|n| pools.insert(7, IpPrefix::host(address(n)), FOREVER));
        assert!((0..100_000).all(|n| pools.contains(7, address(n), Instant::ZERO)));
        assert!(!pools.contains(7, "10.0.0.1".parse().unwrap(), Instant::ZERO));
    }
}
