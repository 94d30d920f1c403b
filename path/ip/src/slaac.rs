//! The addresses that a host makes from a prefix (RFC 4862 §5.5.3 and §5.5.4, RFC 7217).
//!
//! Owns, per prefix of a link, the stable address with its lifetimes and the temporary ones (`temporary.rs`). It
//! says what is to be done ([`Change`]); `autoconf.rs` does it.

use core::net::Ipv6Addr;
use core::time::Duration;

use firelane_units::{Instant, MacAddr};

use crate::iid::{IidInput, IidKind};
use crate::lifetime::Until;
use crate::own_address::{OwnAddress, Phase};
use crate::random::Random;
use crate::temporary::Temporaries;

/// A07: prefixes of a link from which addresses are made.
pub(crate) const PREFIXES_MAX: usize = 16;
/// RFC 4862 §5.5.3 (e): a lifetime that nobody vouches for is not cut below this.
const TWO_HOURS: Duration = Duration::from_secs(7200);

/// What is to be done with an address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Change {
    /// Test it, then use it.
    Begin {
        /// Which.
        addr: Ipv6Addr,
        /// Whether it is a temporary one.
        is_temporary: bool,
    },
    /// Begin nothing new with it, or do so again.
    Deprecate {
        /// Which.
        addr: Ipv6Addr,
        /// Whether it is deprecated now.
        is_deprecated: bool,
    },
    /// It ends.
    End(Ipv6Addr),
    /// The prefix of this network ends: what was tried in it and came to nothing is forgotten.
    Forget(Ipv6Addr),
}

/// What an address is made from, on one link.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Recipe {
    pub(crate) kind: IidKind,
    pub(crate) mac: MacAddr,
    pub(crate) secret: [u8; 16],
    /// Whether temporary addresses are made too.
    pub(crate) temporary: bool,
}

/// The lifetimes that a router announced.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Lifetimes {
    pub(crate) valid: Duration,
    pub(crate) preferred: Duration,
}

/// A prefix from which addresses are made.
#[derive(Debug)]
struct Prefix {
    network: Ipv6Addr,
    own: OwnAddress,
    valid: Until,
    preferred: Until,
    is_deprecated: bool,
    temporaries: Temporaries,
}

/// The addresses of one link.
#[derive(Debug, Default)]
pub(crate) struct Slaac {
    list: Vec<Prefix>,
    changes: Vec<Change>,
}

impl Slaac {
    /// A router announces a prefix from which addresses may be made; says whether there is room for it.
    pub(crate) fn hear(&mut self, now: Instant, network: Ipv6Addr, said: Lifetimes, recipe: &Recipe) -> bool {
        let known = self.list.iter().position(|prefix| prefix.network == network);
        let prefix = match known {
            Some(at) => {
                self.list[at].renew(now, said);
                &mut self.list[at]
            }
            // RFC 4862 §5.5.3 (d): a prefix that is over already makes no address.
            None if said.valid.is_zero() => return true,
            None if self.list.len() == PREFIXES_MAX => return false,
            None => {
                let own = OwnAddress::new(now, recipe.kind, &recipe.secret, recipe.mac, network);
                self.list.push(Prefix {
                    network,
                    own,
                    valid: Until::after(now, said.valid),
                    preferred: Until::after(now, said.preferred),
                    is_deprecated: false,
                    temporaries: Temporaries::default(),
                });
                self.list.last_mut().expect("it was just pushed")
            }
        };
        if recipe.temporary {
            let (valid, preferred) = (prefix.valid, prefix.preferred);
            prefix.temporaries.renew(now, valid, preferred);
        }
        true
    }

    /// The address that this host made and that is `addr`.
    pub(crate) fn own_mut(&mut self, addr: Ipv6Addr) -> Option<&mut OwnAddress> {
        self.list.iter_mut().map(|prefix| &mut prefix.own).find(|own| own.addr() == addr)
    }

    /// Another station has a temporary address of ours: says whether it was one.
    pub(crate) fn on_temporary_duplicate(&mut self, now: Instant, addr: Ipv6Addr) -> bool {
        self.list.iter_mut().any(|prefix| prefix.temporaries.on_duplicate(now, addr))
    }

    /// Whether nothing new may begin with `addr`.
    pub(crate) fn is_deprecated(&self, now: Instant, addr: Ipv6Addr) -> bool {
        self.list.iter().any(|prefix| {
            (prefix.own.addr() == addr && prefix.preferred.is_past(now))
                || prefix.temporaries.is_deprecated(addr)
        })
    }

    /// When something is due.
    pub(crate) fn poll_at(&self) -> Option<Instant> {
        self.list.iter().filter_map(Prefix::poll_at).min()
    }

    /// Does what is due; what comes of it is in [`next_change`](Self::next_change).
    pub(crate) fn run(&mut self, now: Instant, recipe: &Recipe, random: &mut Random) {
        let changes = &mut self.changes;
        for prefix in &mut self.list {
            prefix.run(now, recipe, random, changes);
        }
        self.list.retain(|prefix| !prefix.valid.is_past(now));
    }

    /// The next thing to do.
    pub(crate) fn next_change(&mut self) -> Option<Change> {
        if self.changes.is_empty() { None } else { Some(self.changes.remove(0)) }
    }

    /// Ends all addresses.
    pub(crate) fn clear(&mut self) {
        for prefix in self.list.drain(..) {
            if prefix.own.phase() == Phase::Live {
                self.changes.push(Change::End(prefix.own.addr()));
            }
            self.changes.extend(prefix.temporaries.iter().map(Change::End));
            self.changes.push(Change::Forget(prefix.network));
        }
    }
}

impl Prefix {
    /// RFC 4862 §5.5.3 (e): the preferred lifetime is the router's, the valid one not if it is suspiciously short.
    fn renew(&mut self, now: Instant, said: Lifetimes) {
        let left = self.valid.left(now);
        if said.valid > TWO_HOURS || said.valid > left {
            self.valid = Until::after(now, said.valid);
        } else if left > TWO_HOURS {
            self.valid = Until::after(now, TWO_HOURS);
        }
        self.preferred = Until::after(now, said.preferred).min(self.valid);
    }

    fn poll_at(&self) -> Option<Instant> {
        // A preferred lifetime that is over has nothing more to say.
        let preferred = self.preferred.at().filter(|_| !self.is_deprecated);
        Instant::earliest([self.own.poll_at(), self.valid.at(), preferred, self.temporaries.poll_at()])
    }

    fn run(&mut self, now: Instant, recipe: &Recipe, random: &mut Random, changes: &mut Vec<Change>) {
        if self.valid.is_past(now) {
            if self.own.phase() == Phase::Live {
                changes.push(Change::End(self.own.addr()));
            }
            changes.extend(self.temporaries.iter().map(Change::End));
            changes.push(Change::Forget(self.network));
            return;
        }
        if let Some(addr) = self.own.poll(now) {
            changes.push(Change::Begin { addr, is_temporary: false });
        }
        let is_deprecated = self.preferred.is_past(now);
        if core::mem::replace(&mut self.is_deprecated, is_deprecated) != is_deprecated {
            changes.push(Change::Deprecate { addr: self.own.addr(), is_deprecated });
        }
        let input = IidInput { mac: recipe.mac, network: self.network, tries: 0 };
        let ends = (self.valid, self.preferred);
        self.temporaries.run(now, &recipe.secret, &input, ends, random, changes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Keyed;

    const RECIPE: Recipe = Recipe {
        kind: IidKind::Stable,
        mac: MacAddr([2, 8, 0x20, 1, 2, 3]),
        secret: [5; 16],
        temporary: false,
    };

    struct Lab {
        slaac: Slaac,
        random: Random,
    }

    impl Lab {
        fn new() -> Self {
            Self { slaac: Slaac::default(), random: Random::new(Keyed::new([1; 16], 0), 0) }
        }

        /// A router announces these lifetimes, in seconds; what is to be done then.
        fn hear(&mut self, at: u64, network: &str, valid: u64, preferred: u64) -> (bool, Vec<Change>) {
            let said =
                Lifetimes { valid: Duration::from_secs(valid), preferred: Duration::from_secs(preferred) };
            let now = Instant::from_secs(at);
            let has_room = self.slaac.hear(now, network.parse().unwrap(), said, &RECIPE);
            (has_room, self.run(at))
        }

        fn run(&mut self, at: u64) -> Vec<Change> {
            self.slaac.run(Instant::from_secs(at), &RECIPE, &mut self.random);
            core::iter::from_fn(|| self.slaac.next_change()).collect()
        }

        /// The seconds for which the one address is still valid.
        fn valid(&self, at: u64) -> u64 {
            self.slaac.list[0].valid.left(Instant::from_secs(at)).as_secs()
        }
    }

    #[test]
    fn an_address_begins_is_deprecated_returns_and_ends() {
        let mut lab = Lab::new();
        let (_, changes) = lab.hear(0, "fd00:1::", 86_400, 3600);
        let [Change::Begin { addr, is_temporary: false }] = changes[..] else { panic!("{changes:?}") };
        assert!(addr.to_string().starts_with("fd00:1::"));
        assert_eq!(lab.slaac.poll_at(), Some(Instant::from_secs(3600)));
        assert_eq!(lab.run(3600), [Change::Deprecate { addr, is_deprecated: true }]);
        assert!(lab.slaac.is_deprecated(Instant::from_secs(3600), addr));
        let (_, changes) = lab.hear(4000, "fd00:1::", 86_400, 3600);
        assert_eq!(changes, [Change::Deprecate { addr, is_deprecated: false }]);
        assert_eq!(
            lab.hear(5000, "fd00:1::", 86_400, 0).1,
            [Change::Deprecate { addr, is_deprecated: true }]
        );
        assert_eq!(lab.slaac.poll_at(), Some(Instant::from_secs(5000 + 86_400)));
        let network = Ipv6Addr::from(u128::from(addr) >> 64 << 64);
        assert_eq!(lab.run(5000 + 86_400), [Change::End(addr), Change::Forget(network)]);
        assert_eq!(lab.slaac.poll_at(), None);
    }

    #[test]
    fn the_two_hour_rule() {
        // RFC 4862 §5.5.3 (e): what is left, what is announced, what holds then.
        for (left, said, then) in [
            (10_000, 20_000, 20_000),
            (10_000, 7201, 7201),
            (10_000, 7200, 7200),
            (10_000, 60, 7200),
            (10_000, 0, 7200),
            (7200, 60, 7200),
            (5000, 60, 5000),
            (5000, 0, 5000),
            (5000, 6000, 6000),
            (60, 61, 61),
        ] {
            let mut lab = Lab::new();
            lab.hear(0, "fd00:1::", left, left);
            lab.hear(0, "fd00:1::", said, said);
            assert_eq!(lab.valid(0), then, "{left} left, {said} announced");
        }
    }

    #[test]
    fn a_prefix_that_is_over_makes_nothing_and_a07_the_seventeenth_is_refused() {
        let mut lab = Lab::new();
        assert_eq!(lab.hear(0, "fd00:1::", 0, 0), (true, vec![]));
        for n in 0..17 {
            let (has_room, changes) = lab.hear(0, &format!("fd00:{n}::"), 100, 100);
            assert_eq!((has_room, changes.len()), (n < 16, usize::from(n < 16)));
        }
        lab.slaac.clear();
        let ends = lab.run(0).into_iter().filter(|change| matches!(change, Change::End(_)));
        assert_eq!(ends.count(), 16);
    }
}
