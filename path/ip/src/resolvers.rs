//! The name servers and search domains that routers announce (RFC 8106).
//!
//! Owns both lists of one link, bounded and with their lifetimes; says whether they have changed. A program reads
//! them through [`Ip::resolvers`](crate::Ip::resolvers); this project's netstacks have no resolver of their own.

use core::net::Ipv6Addr;
use core::time::Duration;

use firelane_units::{Instant, LinkId};

use crate::lifetime::Until;

/// Servers of a link; RFC 8106 §5.3.1 asks for at least three.
pub(crate) const SERVERS_MAX: usize = 8;
/// Domains of a link; RFC 8106 §5.3.2 asks for at least three.
pub(crate) const DOMAINS_MAX: usize = 8;

/// Where names of a link are asked for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Resolvers {
    /// Which link; a link-local server is meant there.
    pub link: LinkId,
    /// The servers, in the routers' order.
    pub servers: Vec<Ipv6Addr>,
    /// The domains in which a short name is looked for, in the routers' order.
    pub domains: Vec<String>,
}

/// What comes of an announcement.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Heard {
    /// The list is as it was.
    Same,
    /// It has changed.
    Changed,
    /// There is no room for it.
    Refused,
}

/// The lists of one link.
#[derive(Debug, Default)]
pub(crate) struct ResolverLists {
    servers: Vec<(Ipv6Addr, Until)>,
    domains: Vec<(String, Until)>,
}

impl ResolverLists {
    pub(crate) fn hear_server(&mut self, now: Instant, server: Ipv6Addr, lifetime: Duration) -> Heard {
        hear(&mut self.servers, SERVERS_MAX, now, server, lifetime)
    }

    pub(crate) fn hear_domain(&mut self, now: Instant, domain: String, lifetime: Duration) -> Heard {
        hear(&mut self.domains, DOMAINS_MAX, now, domain, lifetime)
    }

    pub(crate) fn poll_at(&self) -> Option<Instant> {
        let servers = self.servers.iter().filter_map(|(_, until)| until.at());
        servers.chain(self.domains.iter().filter_map(|(_, until)| until.at())).min()
    }

    /// Forgets what is too old; says whether there was anything.
    pub(crate) fn run(&mut self, now: Instant) -> bool {
        let before = self.servers.len() + self.domains.len();
        self.servers.retain(|(_, until)| !until.is_past(now));
        self.domains.retain(|(_, until)| !until.is_past(now));
        before != self.servers.len() + self.domains.len()
    }

    pub(crate) fn show(&self, link: LinkId) -> Resolvers {
        Resolvers {
            link,
            servers: self.servers.iter().map(|(server, _)| *server).collect(),
            domains: self.domains.iter().map(|(domain, _)| domain.clone()).collect(),
        }
    }
}

/// RFC 8106 §6.2: an entry that is known gets the new lifetime, and a lifetime of zero ends it.
fn hear<T: PartialEq>(
    list: &mut Vec<(T, Until)>,
    max: usize,
    now: Instant,
    what: T,
    lifetime: Duration,
) -> Heard {
    let known = list.iter().position(|(old, _)| *old == what);
    match (known, lifetime.is_zero()) {
        (None, true) => Heard::Same,
        (Some(at), true) => {
            list.remove(at);
            Heard::Changed
        }
        (Some(at), false) => {
            list[at].1 = Until::after(now, lifetime);
            Heard::Same
        }
        (None, false) if list.len() == max => Heard::Refused,
        (None, false) => {
            list.push((what, Until::after(now, lifetime)));
            Heard::Changed
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_and_domains_come_stay_and_go() {
        let mut lists = ResolverLists::default();
        let (now, minute) = (Instant::ZERO, Duration::from_secs(60));
        let server: Ipv6Addr = "fd00::53".parse().unwrap();
        assert_eq!(lists.hear_server(now, server, Duration::ZERO), Heard::Same);
        assert_eq!(lists.hear_server(now, server, minute), Heard::Changed);
        assert_eq!(lists.hear_domain(now, "example.org".into(), minute * 2), Heard::Changed);
        assert_eq!(lists.hear_server(now, server, minute * 3), Heard::Same);
        assert_eq!(lists.poll_at(), Some(Instant::from_secs(120)));
        assert!(!lists.run(Instant::from_secs(119)));
        assert!(lists.run(Instant::from_secs(120)));
        let shown = lists.show(LinkId(3));
        assert_eq!((shown.servers, shown.domains), (vec![server], vec![]));
        assert_eq!(lists.hear_server(now, server, Duration::ZERO), Heard::Changed);
        assert_eq!(lists.poll_at(), None);
    }

    #[test]
    fn a07_the_ninth_is_refused() {
        let mut lists = ResolverLists::default();
        for n in 0..9 {
            let server = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, n);
            let expected = if n < 8 { Heard::Changed } else { Heard::Refused };
            assert_eq!(lists.hear_server(Instant::ZERO, server, Duration::MAX), expected);
            assert_eq!(lists.hear_domain(Instant::ZERO, format!("d{n}.example"), Duration::MAX), expected);
        }
    }
}
