//! Addresses that change, so that their user is not recognised (RFC 8981).
//!
//! Owns the temporary addresses of one prefix: when the next is made, how long each is preferred and valid, and
//! what happens if another station has one. Called by `slaac.rs`.

use core::net::Ipv6Addr;
use core::time::Duration;

use firelane_units::Instant;

use crate::iid::{self, IidInput};
use crate::lifetime::Until;
use crate::random::Random;
use crate::slaac::Change;

/// RFC 8981 §3.8.
const TEMP_VALID_LIFETIME: Duration = Duration::from_secs(2 * 86_400);
const TEMP_PREFERRED_LIFETIME: Duration = Duration::from_secs(86_400);
/// RFC 8981 §3.8: 0.4 times the preferred lifetime.
const MAX_DESYNC_FACTOR: Duration = Duration::from_secs(34_560);
/// RFC 8981 §3.8: two seconds, and the time that three tests of a second each take.
const REGEN_ADVANCE: Duration = Duration::from_secs(5);
const TEMP_IDGEN_RETRIES: u8 = 3;
/// Of one prefix at a time; with the lifetimes above there are never more than four.
const TEMPORARIES_MAX: usize = 8;

/// A temporary address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Temporary {
    addr: Ipv6Addr,
    /// What it may have at most, whatever the prefix has.
    valid_at_most: Instant,
    preferred_at_most: Instant,
    valid: Until,
    preferred: Until,
    is_deprecated: bool,
}

/// The temporary addresses of a prefix.
#[derive(Debug, Default)]
pub(crate) struct Temporaries {
    /// The newest last.
    list: Vec<Temporary>,
    /// When the next is made.
    next: Option<Instant>,
    tries: u8,
}

impl Temporaries {
    /// The prefix was announced, and is good until then (RFC 8981 §3.4).
    pub(crate) fn renew(&mut self, now: Instant, valid: Until, preferred: Until) {
        for temporary in &mut self.list {
            temporary.valid = valid.min(Until::At(temporary.valid_at_most));
            temporary.preferred = preferred.min(Until::At(temporary.preferred_at_most)).min(temporary.valid);
        }
        let newest = self.list.last().and_then(|newest| newest.preferred.at());
        match newest {
            Some(end) => self.next = Some(before(end, now)),
            None if self.tries < TEMP_IDGEN_RETRIES => self.next = Some(now),
            None => {}
        }
    }

    /// Another station has `addr`: says whether it was one of these. After a few tries there are no more.
    pub(crate) fn on_duplicate(&mut self, now: Instant, addr: Ipv6Addr) -> bool {
        let Some(at) = self.list.iter().position(|temporary| temporary.addr == addr) else { return false };
        self.list.remove(at);
        self.tries += 1;
        self.next = (self.tries < TEMP_IDGEN_RETRIES).then_some(now);
        true
    }

    pub(crate) fn is_deprecated(&self, addr: Ipv6Addr) -> bool {
        self.list.iter().any(|temporary| temporary.addr == addr && temporary.is_deprecated)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = Ipv6Addr> {
        self.list.iter().map(|temporary| temporary.addr)
    }

    pub(crate) fn poll_at(&self) -> Option<Instant> {
        let ends = self.list.iter().filter_map(|t| if t.is_deprecated { t.valid } else { t.preferred }.at());
        ends.chain(self.next).min()
    }

    /// Does what is due. `ends` are the prefix's lifetimes: valid and preferred.
    pub(crate) fn run(
        &mut self,
        now: Instant,
        secret: &[u8; 16],
        input: &IidInput,
        ends: (Until, Until),
        random: &mut Random,
        changes: &mut Vec<Change>,
    ) {
        self.list.retain_mut(|temporary| {
            let is_deprecated = temporary.preferred.is_past(now);
            if core::mem::replace(&mut temporary.is_deprecated, is_deprecated) != is_deprecated {
                changes.push(Change::Deprecate { addr: temporary.addr, is_deprecated });
            }
            let is_over = temporary.valid.is_past(now);
            if is_over {
                changes.push(Change::End(temporary.addr));
            }
            !is_over
        });
        if self.next.is_some_and(|next| next <= now) {
            self.next = None;
            self.begin(now, secret, input, ends, random, changes);
        }
    }

    fn begin(
        &mut self,
        now: Instant,
        secret: &[u8; 16],
        input: &IidInput,
        (valid, preferred): (Until, Until),
        random: &mut Random,
        changes: &mut Vec<Change>,
    ) {
        let desync = random.below(MAX_DESYNC_FACTOR.as_nanos() as u64);
        let valid_at_most = now + TEMP_VALID_LIFETIME;
        let preferred_at_most = now + (TEMP_PREFERRED_LIFETIME - Duration::from_nanos(desync));
        let valid = valid.min(Until::At(valid_at_most));
        let preferred = preferred.min(Until::At(preferred_at_most)).min(valid);
        // RFC 8981 §3.4 (5): one that would be given up before it is tested is not made.
        let is_worth_it = preferred.left(now) > REGEN_ADVANCE && self.list.len() < TEMPORARIES_MAX;
        let Some(end) = preferred.at().filter(|_| is_worth_it) else { return };
        let addr = iid::address(input.network, iid::temporary(secret, input, random.draw()));
        let is_deprecated = false;
        self.list.push(Temporary { addr, valid_at_most, preferred_at_most, valid, preferred, is_deprecated });
        self.next = Some(before(end, now));
        changes.push(Change::Begin { addr, is_temporary: true });
    }
}

/// When the successor of an address that is preferred until `end` is made.
fn before(end: Instant, now: Instant) -> Instant {
    now + end.saturating_since(now).saturating_sub(REGEN_ADVANCE)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Keyed;
    use firelane_units::MacAddr;

    struct Lab {
        temporaries: Temporaries,
        random: Random,
        ends: (Until, Until),
    }

    impl Lab {
        fn new() -> Self {
            let ends = (Until::Never, Until::Never);
            let random = Random::new(Keyed::new([1; 16], 0), 0);
            Self { temporaries: Temporaries::default(), random, ends }
        }

        fn renew(&mut self, now: Instant) -> Vec<Change> {
            self.temporaries.renew(now, self.ends.0, self.ends.1);
            self.run(now)
        }

        fn run(&mut self, now: Instant) -> Vec<Change> {
            let input = IidInput {
                mac: MacAddr([2, 8, 0x20, 1, 2, 3]),
                network: "fd00:1::".parse().unwrap(),
                tries: 0,
            };
            let mut changes = Vec::new();
            self.temporaries.run(now, &[1; 16], &input, self.ends, &mut self.random, &mut changes);
            changes
        }
    }

    #[test]
    fn a_successor_comes_before_the_old_one_is_deprecated_for_weeks() {
        let mut lab = Lab::new();
        let mut now = Instant::ZERO;
        let (mut preferred, mut all, mut most) = (Vec::new(), Vec::new(), 0);
        let mut changes = lab.renew(now);
        while now < Instant::from_secs(14 * 86_400) {
            for change in changes {
                match change {
                    Change::Begin { addr, is_temporary } => {
                        assert!(is_temporary && !all.contains(&addr));
                        preferred.push(addr);
                        all.push(addr);
                    }
                    Change::Deprecate { addr, is_deprecated } => {
                        assert!(is_deprecated);
                        preferred.retain(|old| *old != addr);
                    }
                    Change::End(addr) => assert!(!preferred.contains(&addr)),
                    Change::Forget(_) => unreachable!("the prefix lasts"),
                }
            }
            assert!(!preferred.is_empty(), "there is always one to begin with");
            most = most.max(lab.temporaries.list.len());
            let next = lab.temporaries.poll_at().unwrap();
            assert!(next > now);
            now = next;
            changes = lab.run(now);
        }
        // One in 0.6 to 1 day.
        assert!((14..=24).contains(&all.len()), "{}", all.len());
        assert!(most <= 4, "{most}");
    }

    #[test]
    fn a_prefix_that_is_deprecated_soon_gets_none_and_cuts_those_that_are() {
        let mut lab = Lab::new();
        lab.ends = (Until::Never, Until::At(Instant::from_secs(5)));
        assert_eq!(lab.renew(Instant::ZERO), []);
        lab.ends = (Until::Never, Until::Never);
        let [Change::Begin { addr, .. }] = lab.renew(Instant::ZERO)[..] else { panic!("one begins") };
        lab.ends = (Until::At(Instant::from_secs(900)), Until::At(Instant::from_secs(100)));
        assert_eq!(lab.renew(Instant::from_secs(10)), []);
        assert_eq!(lab.run(Instant::from_secs(95)), []);
        assert_eq!(lab.run(Instant::from_secs(100)), [Change::Deprecate { addr, is_deprecated: true }]);
        assert_eq!(lab.run(Instant::from_secs(900)), [Change::End(addr)]);
        assert_eq!(lab.temporaries.poll_at(), None);
    }

    #[test]
    fn a08_three_duplicates_end_it() {
        let mut lab = Lab::new();
        let mut begun = 0;
        let mut changes = lab.renew(Instant::ZERO);
        while let Some(Change::Begin { addr, .. }) = changes.pop() {
            begun += 1;
            assert!(lab.temporaries.on_duplicate(Instant::ZERO, addr));
            assert!(!lab.temporaries.on_duplicate(Instant::ZERO, addr));
            changes = lab.run(Instant::ZERO);
        }
        assert_eq!((begun, lab.renew(Instant::from_secs(600)), lab.temporaries.poll_at()), (3, vec![], None));
    }
}
