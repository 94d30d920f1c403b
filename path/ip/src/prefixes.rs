//! The prefixes that are on a link because a router says so (RFC 4861 §6.3.4, RFC 5942 §4).
//!
//! Owns their lifetimes, per link; says which begin and end, `autoconf.rs` changes the routes. An address never
//! brings a prefix: only this list does, and the operator's own addresses.

use core::time::Duration;

use firelane_units::{Instant, IpPrefix};

use crate::lifetime::Until;

/// A07: prefixes of a link.
pub(crate) const PREFIXES_MAX: usize = 16;

/// What comes of an announcement.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum OnLink {
    /// Nothing that others see.
    Same,
    /// Its addresses are on the link from now on.
    New,
    /// They are no more.
    Gone,
    /// There is no room for it.
    Refused,
}

/// The prefixes of a link.
#[derive(Debug, Default)]
pub(crate) struct Prefixes {
    list: Vec<(IpPrefix, Until)>,
}

impl Prefixes {
    /// A router says that `prefix` is on the link, for a while; zero ends it.
    pub(crate) fn hear(&mut self, now: Instant, prefix: IpPrefix, lifetime: Duration) -> OnLink {
        let known = self.list.iter().position(|(old, _)| *old == prefix);
        match (known, lifetime.is_zero()) {
            (None, true) => OnLink::Same,
            (Some(at), true) => {
                self.list.remove(at);
                OnLink::Gone
            }
            (Some(at), false) => {
                self.list[at].1 = Until::after(now, lifetime);
                OnLink::Same
            }
            (None, false) if self.list.len() == PREFIXES_MAX => OnLink::Refused,
            (None, false) => {
                self.list.push((prefix, Until::after(now, lifetime)));
                OnLink::New
            }
        }
    }

    /// When the next one ends.
    pub(crate) fn poll_at(&self) -> Option<Instant> {
        self.list.iter().filter_map(|(_, until)| until.at()).min()
    }

    /// The next one whose time is up.
    pub(crate) fn poll(&mut self, now: Instant) -> Option<IpPrefix> {
        let at = self.list.iter().position(|(_, until)| until.is_past(now))?;
        Some(self.list.remove(at).0)
    }

    /// Ends all of them, one by one.
    pub(crate) fn pop(&mut self) -> Option<IpPrefix> {
        self.list.pop().map(|(prefix, _)| prefix)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_lives_as_long_as_it_was_said_last() {
        let mut prefixes = Prefixes::default();
        let prefix: IpPrefix = "fd00:1::/64".parse().unwrap();
        let hour = Duration::from_secs(3600);
        assert_eq!(prefixes.hear(Instant::ZERO, prefix, Duration::ZERO), OnLink::Same);
        assert_eq!(prefixes.hear(Instant::ZERO, prefix, hour), OnLink::New);
        assert_eq!(prefixes.hear(Instant::from_secs(100), prefix, hour / 2), OnLink::Same);
        assert_eq!(prefixes.poll_at(), Some(Instant::from_secs(1900)));
        assert_eq!(prefixes.poll(Instant::from_secs(1899)), None);
        assert_eq!(prefixes.poll(Instant::from_secs(1900)), Some(prefix));
        assert_eq!(prefixes.hear(Instant::ZERO, prefix, Duration::from_secs(u32::MAX.into())), OnLink::New);
        assert_eq!(prefixes.poll_at(), None);
        assert_eq!(prefixes.hear(Instant::ZERO, prefix, Duration::ZERO), OnLink::Gone);
    }

    #[test]
    fn a07_the_seventeenth_prefix_is_refused() {
        let mut prefixes = Prefixes::default();
        let results: Vec<OnLink> = (0..17)
            .map(|n| prefixes.hear(Instant::ZERO, format!("fd00:{n}::/64").parse().unwrap(), Duration::MAX))
            .collect();
        assert!(results[..16].iter().all(|result| *result == OnLink::New));
        assert_eq!(results[16], OnLink::Refused);
    }
}
