//! What a host configures by itself on its links (RFC 4862).
//!
//! Owns, per link, the state machines of automatic configuration and says when the next of them has something
//! to do. They run in the home lane; what they decide is a [`Configured`], which this lane applies and the
//! others copy. So the lanes of a netstack never disagree about what a router has said.

use core::net::{IpAddr, Ipv6Addr};

use firelane_units::{Instant, IpPrefix, LinkId, MacAddr};

use crate::address::{AddressOrigin, AddressState};
use crate::event::{Configured, IpEvent};
use crate::iid::IidKind;
use crate::own_address::OwnAddress;
use crate::stack::Ip;

/// RFC 4291 §2.5.6.
const LINK_LOCAL: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0);
/// The upper half is the network's, the lower half the host's (RFC 4291 §2.5.1).
const HALF: u8 = 64;

/// A link on which something is configured automatically.
#[derive(Debug)]
pub(crate) struct AutoLink {
    pub(crate) link: LinkId,
    pub(crate) link_local: OwnAddress,
}

/// All of them, in order of their links.
#[derive(Debug)]
pub(crate) struct Autoconf {
    pub(crate) links: Vec<AutoLink>,
    pub(crate) secret: [u8; 16],
    next: Option<Instant>,
}

impl Autoconf {
    pub(crate) const fn new(secret: [u8; 16]) -> Self {
        Self { links: Vec::new(), secret, next: None }
    }

    /// When something is due.
    pub(crate) const fn poll_at(&self) -> Option<Instant> {
        self.next
    }

    pub(crate) fn link(&mut self, link: LinkId) -> Option<&mut AutoLink> {
        self.links.iter_mut().find(|auto| auto.link == link)
    }

    pub(crate) fn forget(&mut self, link: LinkId) {
        self.links.retain(|auto| auto.link != link);
        self.schedule();
    }

    pub(crate) fn schedule(&mut self) {
        self.next = self.links.iter().filter_map(AutoLink::poll_at).min();
    }
}

impl AutoLink {
    fn poll_at(&self) -> Option<Instant> {
        self.link_local.poll_at()
    }

    /// The address that this host made and that is `addr`.
    fn own_mut(&mut self, addr: Ipv6Addr) -> Option<&mut OwnAddress> {
        Some(&mut self.link_local).filter(|own| own.addr() == addr)
    }
}

impl Ip {
    /// An interface can be used: the home lane makes its link-local address, if the netstack wants one
    /// (RFC 4862 §5.3).
    pub fn bring_up(&mut self, now: Instant, link: LinkId) {
        let (Some(kind), Some(interface)) = (self.config.link_local, self.interfaces.get(link)) else {
            return;
        };
        if interface.is_home && self.autoconf.link(link).is_none() {
            self.begin_auto_link(now, link, interface.mac, kind);
        }
    }

    fn begin_auto_link(&mut self, now: Instant, link: LinkId, mac: MacAddr, kind: IidKind) {
        let link_local = OwnAddress::new(now, kind, &self.autoconf.secret, mac, LINK_LOCAL);
        self.autoconf.links.push(AutoLink { link, link_local });
        self.autoconf.schedule();
    }

    /// Does what is due on all links.
    pub(crate) fn run_autoconf(&mut self, now: Instant) {
        if self.autoconf.poll_at().is_none_or(|at| at > now) {
            return;
        }
        for n in 0..self.autoconf.links.len() {
            let auto = &mut self.autoconf.links[n];
            let link = auto.link;
            if let Some(addr) = auto.link_local.poll(now) {
                self.try_own(now, link, addr, AddressOrigin::LinkLocal);
            }
        }
        self.autoconf.schedule();
    }

    /// Begins the test of an address that this host made.
    fn try_own(&mut self, now: Instant, link: LinkId, addr: Ipv6Addr, origin: AddressOrigin) {
        let Some(prefix) = IpPrefix::new(addr.into(), HALF) else { return };
        // The operator may have given the netstack the same address: then it is his, and there already.
        let _ = self.addresses.add(now, link, prefix, origin, &mut self.random);
        self.begin_generation();
    }

    /// Another station has `addr`, which this host may have made: the next identifier is tried, or none.
    pub(crate) fn on_own_duplicate(&mut self, now: Instant, link: LinkId, addr: IpAddr) {
        let IpAddr::V6(v6) = addr else { return };
        let secret = self.autoconf.secret;
        let Some(own) = self.autoconf.link(link).and_then(|auto| auto.own_mut(v6)) else { return };
        // The last one stays in the list, where an operator sees it.
        if own.on_duplicate(now, &secret) {
            let _ = self.addresses.remove(link, addr);
            self.autoconf.schedule();
        }
    }

    /// Applies, and tells the other lanes, what was decided here.
    pub(crate) fn configure(&mut self, change: Configured) {
        self.apply(change);
        self.tell(IpEvent::Configured(change));
    }

    /// Another lane of the netstack, its home, has configured something.
    pub fn on_configured(&mut self, change: Configured) {
        self.apply(change);
    }

    fn apply(&mut self, change: Configured) {
        match change {
            Configured::Address { link, prefix, origin, is_deprecated } => {
                let state = if is_deprecated { AddressState::Deprecated } else { AddressState::Preferred };
                // The home lane has room for it, so this one has too, unless the operator was faster here.
                let _ = self.addresses.copy(link, prefix, origin, state);
            }
            Configured::NoAddress { link, addr } => {
                let _ = self.addresses.remove(link, addr);
            }
        }
        self.begin_generation();
    }
}
