//! How far each address is usable, as the lanes have reported it.
//!
//! Called by `host.rs`: steps begin and end addresses, notices say what duplicate address detection found.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use firelane::{AddressOrigin, Configured, Notice, Resolvers};
use firelane_api::{AddressState, ConfiguredAddress, ResolverInfo};
use firelane_model::{AddrObjName, Address, Model};
use firelane_plan::{Action, Step};
use firelane_units::{IpPrefix, LaneId, LinkId};

use crate::filter;
use crate::works::Works;

/// The state of every address object in force.
#[derive(Debug, Default)]
pub(crate) struct Addresses {
    known: BTreeMap<AddrObjName, (Address, AddressState)>,
    /// What interfaces have configured by themselves.
    configured: BTreeMap<LinkId, Vec<ConfiguredAddress>>,
    /// Who resolves names, as the routers of links say.
    resolvers: BTreeMap<LinkId, ResolverInfo>,
}

impl Addresses {
    /// Notes an address that `step` has added or removed.
    pub(crate) fn follow(&mut self, step: &Step) {
        match &step.action {
            Action::AddAddress(_, name, address) => {
                // Whether an automatic one comes is the network's to say: nobody waits for it.
                let state = match address {
                    Address::Static(it) if it.down => AddressState::Down,
                    Address::Static(_) => AddressState::Tentative,
                    Address::Addrconf(_) => AddressState::Ok,
                    // Its client knows.
                    Address::Dhcp(_) => return,
                };
                self.known.insert(name.clone(), (*address, state));
            }
            Action::SetAddress(_, name, _, address) => {
                if let Some((known, state)) = self.known.get_mut(name) {
                    let is_down = |it: &Address| matches!(it, Address::Static(it) if it.down);
                    match (is_down(known), is_down(address)) {
                        (_, true) => *state = AddressState::Down,
                        (true, false) => *state = AddressState::Tentative,
                        (false, false) => {}
                    }
                    *known = *address;
                }
            }
            Action::RemoveAddress(_, name) => drop(self.known.remove(name)),
            _ => {}
        }
    }

    /// Notes what the lanes of `works` report, who carry `model` out.
    pub(crate) fn note(&mut self, notices: Vec<(LaneId, Notice)>, works: &Works, model: &Model) {
        for (lane, notice) in notices {
            let (link, prefix, state) = match notice {
                Notice::AddressReady(_, link, prefix) => (link, prefix, AddressState::Ok),
                Notice::DuplicateAddress(_, link, prefix, mac) => {
                    tracing::error!("address {prefix}: the station {mac} has it already");
                    (link, prefix, AddressState::Duplicate)
                }
                Notice::Configured(_, change) => {
                    self.configure(change);
                    continue;
                }
                Notice::Resolvers(_, known) => {
                    tracing::info!(
                        "name servers of routers: {:?}, domains {:?}",
                        known.servers,
                        known.domains
                    );
                    self.resolvers.insert(known.link, info_of(known));
                    continue;
                }
                Notice::RouterFlags(_, link, flags) => {
                    works.clients.on_router(link, flags);
                    continue;
                }
                Notice::Filtered(netstack, packet, verdict) => {
                    let name = works.netstacks.iter().find(|(_, id)| **id == netstack).map(|(name, _)| name);
                    let rules = name.and_then(|name| model.netstacks.get(name)).map(|it| &it.filter[..]);
                    let text = filter::told(&packet, verdict, &works.vnics, rules.unwrap_or_default());
                    tracing::info!("filter of {}: {text}", name.map_or("", |name| name.as_str()));
                    continue;
                }
                Notice::Refused { what, why } => {
                    tracing::error!("lane {lane}: {what}: {why}");
                    continue;
                }
            };
            works.clients.on_tested(link, prefix.addr(), state == AddressState::Ok);
            let interface = works.vnics.iter().find(|(_, it)| it.id == link).map(|(name, _)| name.as_str());
            let meant = self.known.iter_mut().find(|(name, (address, _))| {
                Some(name.interface()) == interface && address.addr() == Some(prefix.addr())
            });
            if let Some((_, (_, known))) = meant {
                *known = state;
            }
        }
        let own = works.vnics.len();
        if self.configured.len() > own || self.resolvers.len() > own {
            self.keep(works.vnics.values().map(|it| it.id).collect());
        }
    }

    /// Forgets the links that have ended: no other one gets their numbers.
    fn keep(&mut self, links: BTreeSet<LinkId>) {
        self.configured.retain(|link, _| links.contains(link));
        self.resolvers.retain(|link, _| links.contains(link));
    }

    fn configure(&mut self, change: Configured) {
        match change {
            Configured::Address { link, prefix, origin, is_deprecated: deprecated } => {
                let temporary = origin == AddressOrigin::Temporary;
                let list = self.configured.entry(link).or_default();
                list.retain(|own| own.prefix != prefix);
                list.push(ConfiguredAddress { prefix, deprecated, temporary });
                list.sort_by_key(|own| (!is_link_local(own.prefix), own.temporary, own.prefix));
            }
            Configured::NoAddress { link, addr } => {
                let list = self.configured.entry(link).or_default();
                list.retain(|own| own.prefix.addr() != addr);
            }
            Configured::Route(_) | Configured::NoRoute(_) | Configured::Link(..) => {}
        }
    }

    /// What the interface of `name` has configured by itself, its link-local address first.
    pub(crate) fn configured(&self, name: &AddrObjName, works: &Works) -> Vec<ConfiguredAddress> {
        let link = works.vnics.get(name.interface()).map(|it| it.id);
        link.and_then(|link| self.configured.get(&link)).cloned().unwrap_or_default()
    }

    /// Who resolves names, as the routers of `name`'s interface say.
    pub(crate) fn resolvers(&self, name: &AddrObjName, works: &Works) -> ResolverInfo {
        let link = works.vnics.get(name.interface()).map(|it| it.id);
        link.and_then(|link| self.resolvers.get(&link)).cloned().unwrap_or_default()
    }

    /// Whether some are still being tested.
    pub(crate) fn are_pending(&self) -> bool {
        self.known.values().any(|(_, state)| *state == AddressState::Tentative)
    }

    /// Addresses that are not used because another station has them, one line each.
    pub(crate) fn duplicates(&self) -> impl Iterator<Item = String> {
        let duplicates = self.known.iter().filter(|(_, (_, state))| *state == AddressState::Duplicate);
        duplicates.map(|(name, (address, _))| format!("address {name} {address}: another station has it"))
    }

    /// The state of `name`.
    pub(crate) fn state(&self, name: &AddrObjName) -> AddressState {
        self.known.get(name).map_or(AddressState::Disabled, |(_, state)| *state)
    }
}

fn is_link_local(prefix: IpPrefix) -> bool {
    matches!(prefix.addr(), IpAddr::V6(addr) if addr.is_unicast_link_local())
}

fn info_of(known: Resolvers) -> ResolverInfo {
    ResolverInfo { name_servers: known.servers.into_iter().map(IpAddr::V6).collect(), domains: known.domains }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_links_have_configured_ends_with_them() {
        let mut addresses = Addresses::default();
        for link in (0..3).map(LinkId) {
            let prefix = "fe80::1/64".parse().unwrap();
            let origin = AddressOrigin::LinkLocal;
            addresses.configure(Configured::Address { link, prefix, origin, is_deprecated: false });
            addresses.resolvers.insert(link, ResolverInfo::default());
        }
        addresses.keep(BTreeSet::from([LinkId(1)]));
        let left = (addresses.configured.keys().copied(), addresses.resolvers.keys().copied());
        assert_eq!((left.0.collect(), left.1.collect()), (vec![LinkId(1)], vec![LinkId(1)]));
    }
}
