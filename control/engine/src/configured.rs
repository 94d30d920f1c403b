//! What netstacks have configured by themselves, as the engine knows it.
//!
//! The lanes report it as notices. They are looked at when somebody asks for them, and before a program binds to
//! an address that the operator has not given: it may be one that the netstack made.

use std::net::IpAddr;
use std::sync::PoisonError;

use firelane_ip::{Configured, Resolvers};
use firelane_lane::Notice;
use firelane_units::{IpPrefix, LaneId, LinkId, NetstackId};

use crate::calls::Held;
use crate::engine::{Engine, Inner};
use crate::notices::WAITING_MAX;
use crate::registry::Registry;
use crate::stack::Stack;

impl Engine {
    /// What lanes have reported since the last call: refused changes, addresses that became ready. Of more than 4,096 the oldest have given
    /// way.
    pub fn notices(&self) -> Vec<(LaneId, Notice)> {
        drop(self.0.registry_of_now());
        self.0.noted.lock().unwrap_or_else(PoisonError::into_inner).drain(..).collect()
    }

    /// Waits until lanes have reported something since this was ready last. One task may wait.
    pub async fn noticed(&self) {
        std::future::poll_fn(|context| self.0.fabric.news.poll(context)).await;
    }

    /// The addresses that a netstack has made itself and uses.
    pub fn configured_addresses(&self, id: NetstackId) -> Vec<(LinkId, IpPrefix)> {
        let registry = self.0.registry_of_now();
        registry.netstacks.get(&id).map(|netstack| netstack.configured.clone()).unwrap_or_default()
    }

    /// The link over which a netstack has this address: the operator's, a lease's, or one that it made itself.
    pub fn holder_of(&self, id: NetstackId, address: IpAddr) -> Option<LinkId> {
        let registry = self.0.registry_of_now();
        let netstack = registry.netstacks.get(&id)?;
        let mut all = netstack.addresses.iter().chain(&netstack.configured);
        all.find(|(_, prefix)| prefix.addr() == address).map(|(link, _)| *link)
    }
}

impl Stack {
    /// The name servers and search domains that the routers of the netstack's links announce (RFC 8106).
    pub fn resolvers(&self) -> Vec<Resolvers> {
        let registry = self.inner.registry_of_now();
        registry.netstacks.get(&self.id).map(|netstack| netstack.resolvers.clone()).unwrap_or_default()
    }
}

impl Inner {
    /// The registry, with what the lanes have reported until now.
    pub(crate) fn registry_of_now(&self) -> Held<'_, Registry> {
        let mut registry = self.registry();
        self.note(&mut registry);
        registry
    }

    fn note(&self, registry: &mut Registry) {
        let waiting = self.fabric.notices.lock().unwrap_or_else(PoisonError::into_inner).take();
        let mut noted = self.noted.lock().unwrap_or_else(PoisonError::into_inner);
        for (lane, notice) in waiting {
            match &notice {
                Notice::Configured(id, change) => {
                    if let Some(netstack) = registry.netstacks.get_mut(id) {
                        follow(&mut netstack.configured, *change);
                    }
                }
                Notice::Resolvers(id, known) => {
                    if let Some(netstack) = registry.netstacks.get_mut(id) {
                        netstack.resolvers.retain(|old| old.link != known.link);
                        netstack.resolvers.push(known.clone());
                    }
                }
                _ => {}
            }
            noted.push_back((lane, notice));
        }
        // A program that never asks must not collect them for ever.
        while noted.len() > WAITING_MAX {
            noted.pop_front();
        }
    }
}

fn follow(addresses: &mut Vec<(LinkId, IpPrefix)>, change: Configured) {
    match change {
        Configured::Address { link, prefix, .. } => {
            if !addresses.contains(&(link, prefix)) {
                addresses.push((link, prefix));
            }
        }
        Configured::NoAddress { link, addr } => {
            addresses.retain(|(on, prefix)| *on != link || prefix.addr() != addr);
        }
        Configured::Route(_) | Configured::NoRoute(_) | Configured::Link(..) => {}
    }
}
