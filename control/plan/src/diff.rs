//! The comparison itself.

use firelane_model::{Address, Interface, LinkKind, LinkName, Mac, Model, Netstack, NetstackName, Vnic};

use crate::promise;
use crate::torn::Torn;
use crate::{Action, Effect, Step};

/// The steps that turn `present` into `wanted`, in an order in which each can be carried out. Both models
/// must be valid.
pub fn plan(wanted: &Model, present: &Model) -> Vec<Step> {
    let mut plan = Plan { wanted, present, torn: Torn { wanted, present }, steps: Vec::new() };
    plan.take_down();
    plan.settings();
    plan.lower_promises();
    plan.build_bottom();
    plan.change_links();
    plan.raise_promises();
    plan.build_top();
    plan.steps
}

pub(crate) struct Plan<'a> {
    pub(crate) wanted: &'a Model,
    pub(crate) present: &'a Model,
    pub(crate) torn: Torn<'a>,
    steps: Vec<Step>,
}

fn anew(stays: bool) -> Effect {
    if stays { Effect::Recreate } else { Effect::Live }
}

/// Of what carries connections: nothing that rests on it goes on without it.
fn gone(stays: bool) -> Effect {
    if stays { Effect::Recreate } else { Effect::Ends }
}

impl<'a> Plan<'a> {
    pub(crate) fn push(&mut self, effect: Effect, action: Action) {
        self.steps.push(Step { action, effect });
    }

    fn take_down(&mut self) {
        let (wanted, present) = (self.wanted, self.present);
        for (name, _) in
            present.services.iter().filter(|(name, it)| self.torn.service(name, it)).collect::<Vec<_>>()
        {
            self.push(gone(wanted.services.contains_key(name)), Action::StopService(name.clone()));
        }
        for (name, _) in
            present.flows.iter().filter(|(name, it)| self.torn.flow(name, it)).collect::<Vec<_>>()
        {
            self.push(anew(wanted.flows.contains_key(name)), Action::RemoveFlow(name.clone()));
        }
        for (name, netstack) in &present.netstacks {
            self.take_out(name, netstack);
        }
        for (name, _) in
            present.wires.iter().filter(|(name, it)| self.torn.wire(name, it)).collect::<Vec<_>>()
        {
            self.push(gone(wanted.wires.contains_key(name)), Action::DeleteWire(name.clone()));
        }
        for (name, _) in
            present.vnics.iter().filter(|(name, it)| self.torn.vnic(name, it)).collect::<Vec<_>>()
        {
            self.push(gone(wanted.vnics.contains_key(name)), Action::DeleteVnic(name.clone()));
        }
        for name in present.etherstubs.keys().filter(|name| self.torn.etherstub(name)).collect::<Vec<_>>() {
            self.push(gone(wanted.class_of(name.as_str()).is_some()), Action::DeleteEtherstub(name.clone()));
        }
        for name in present.links.keys().filter(|name| self.torn.link(name)).collect::<Vec<_>>() {
            self.push(gone(wanted.class_of(name.as_str()).is_some()), Action::DeleteLink(name.clone()));
        }
        for name in present.netstacks.keys().filter(|name| self.torn.netstack(name)).collect::<Vec<_>>() {
            let effect = gone(wanted.netstacks.contains_key(name));
            self.push(effect, Action::DeleteNetstack(name.clone()));
        }
    }

    /// Takes out of a netstack what it is to have no more.
    fn take_out(&mut self, name: &NetstackName, netstack: &Netstack) {
        let shall = self.wanted.netstacks.get(name).filter(|_| !self.torn.netstack(name));
        if netstack.fpm.is_some() && self.torn.fpm(name, netstack) {
            let action = Action::SetFpm(name.clone(), netstack.fpm.clone(), None);
            self.push(Effect::Live, action);
        }
        for route in &netstack.routes {
            if shall.and_then(|it| it.same_way(*route)).is_none() {
                self.push(Effect::Live, Action::RemoveRoute(name.clone(), *route));
            }
        }
        for (vnic, is) in &netstack.interfaces {
            if self.torn.interface(name, vnic, is) {
                let none = Interface::default();
                let action = Action::SetInterface(name.clone(), vnic.clone(), is.clone(), none);
                self.push(Effect::Live, action);
            }
        }
        for (addrobj, address) in &netstack.addresses {
            if self.torn.address(name, addrobj, *address) {
                let comes_again = self.wanted.netstacks.get(name);
                let stays = comes_again.is_some_and(|it| it.addresses.contains_key(addrobj));
                self.push(gone(stays), Action::RemoveAddress(name.clone(), addrobj.clone()));
            }
        }
        if let Some(interim) = self.torn.interim_filter(netstack) {
            let action = Action::SetFilter(name.clone(), netstack.packet_filter(), interim);
            self.push(Effect::Live, action);
        }
    }

    fn settings(&mut self) {
        let (is, shall) = (&self.present.daemon, &self.wanted.daemon);
        for to in is.changes(shall) {
            // Connections are bound to lanes, and another number of lanes is another set of lanes, which the next start makes. A
            // lane that moves to another CPU takes all with it.
            let effect = if is.lanes == to.lanes { Effect::Live } else { Effect::Restart };
            self.push(effect, Action::SetDaemon(is.clone(), to));
        }
    }

    fn build_bottom(&mut self) {
        let (wanted, present) = (self.wanted, self.present);
        for (name, shall) in &wanted.netstacks {
            let is = self.kept_netstack(name);
            if let Some(is) = is.filter(|is| is.cpus != shall.cpus) {
                // A lane that moves to another CPU takes all with it.
                let action = Action::SetCpus(name.clone(), is.cpus.clone(), shall.cpus.clone());
                self.push(Effect::Live, action);
            }
            match is {
                None => {
                    let effect = anew(present.netstacks.contains_key(name));
                    self.push(effect, Action::create_netstack(name, shall));
                }
                Some(is) if is.tunables != shall.tunables => {
                    self.push(
                        Effect::Live,
                        Action::SetTunables(name.clone(), is.tunables.clone(), shall.tunables.clone()),
                    );
                }
                Some(_) => {}
            }
            let is = is.map(|is| is.programs.clone()).unwrap_or_default();
            if is != shall.programs {
                self.push(Effect::Live, Action::SetPrograms(name.clone(), is, shall.programs.clone()));
            }
        }
        for (name, shall) in &wanted.links {
            if !present.links.contains_key(name) || self.torn.link(name) {
                let effect = anew(present.class_of(name.as_str()).is_some());
                self.push(effect, Action::CreateLink(name.clone(), shall.clone()));
            }
        }
        for (name, shall) in &wanted.etherstubs {
            if !present.etherstubs.contains_key(name) {
                let effect = anew(present.class_of(name.as_str()).is_some());
                self.push(effect, Action::CreateEtherstub(name.clone(), shall.clone()));
            }
        }
    }

    /// An MTU grows from the bottom and shrinks from the top, so a VNIC's never exceeds what is below it.
    fn change_links(&mut self) {
        self.change_lower(true);
        for (name, is, shall) in self.kept_vnics() {
            let (is, shall) = (promise::lowered_vnic(is, shall), promise::before_raise(self, shall, is));
            if is != shall {
                // A device is laid out for its packets; a netstack is told how large they may be.
                let is_live = is.mtu == shall.mtu || shall.netstack().is_some();
                let effect = if is_live { Effect::Live } else { Effect::Brief };
                self.push(effect, Action::SetVnic(name.clone(), is, shall));
            }
        }
        self.change_lower(false);
    }

    /// The netstack `name` as it is, if it stays.
    fn kept_netstack(&self, name: &NetstackName) -> Option<&'a Netstack> {
        self.present.netstacks.get(name).filter(|_| !self.torn.netstack(name))
    }

    /// The VNICs that stay, as they are and as they shall be.
    pub(crate) fn kept_vnics(&self) -> Vec<(&'a LinkName, &'a Vnic, &'a Vnic)> {
        let (wanted, present) = (self.wanted, self.present);
        let pairs = present.vnics.iter().filter_map(|(name, is)| Some((name, is, wanted.vnics.get(name)?)));
        pairs.filter(|(name, is, _)| !self.torn.vnic(name, is)).collect()
    }

    /// The changes of links and etherstubs whose MTU grows, or of the others.
    fn change_lower(&mut self, growing: bool) {
        let (wanted, present) = (self.wanted, self.present);
        for (name, is) in &present.links {
            match wanted.links.get(name) {
                Some(shall) if is != shall && is.kind == shall.kind && (shall.mtu > is.mtu) == growing => {
                    // Its device is attached again with room for other packets.
                    let is_live = is.mtu == shall.mtu || is.kind == LinkKind::Memory;
                    let effect = if is_live { Effect::Live } else { Effect::Brief };
                    self.push(effect, Action::SetLink(name.clone(), is.clone(), shall.clone()));
                }
                _ => {}
            }
        }
        for (name, is) in &present.etherstubs {
            match wanted.etherstubs.get(name) {
                Some(shall) if is != shall && (shall.mtu > is.mtu) == growing => {
                    self.push(Effect::Live, Action::SetEtherstub(name.clone(), is.clone(), shall.clone()));
                }
                _ => {}
            }
        }
    }

    fn build_wires(&mut self) {
        for (name, shall) in &self.wanted.wires {
            match self.present.wires.get(name) {
                Some(is) if !self.torn.wire(name, is) => {
                    if is != shall {
                        self.push(Effect::Live, Action::SetWire(name.clone(), is.clone(), shall.clone()));
                    }
                }
                is => self.push(anew(is.is_some()), Action::CreateWire(name.clone(), shall.clone())),
            }
        }
    }

    /// Those whose addresses are said come first: who chooses his own must not choose one of theirs.
    fn build_vnics(&mut self) {
        let (wanted, present) = (self.wanted, self.present);
        for is_fixed in [true, false] {
            for (name, shall) in
                wanted.vnics.iter().filter(|(_, it)| matches!(it.mac, Mac::Fixed(_)) == is_fixed)
            {
                let is = present.vnics.get(name);
                if is.is_none_or(|is| self.torn.vnic(name, is)) {
                    self.push(anew(is.is_some()), Action::CreateVnic(name.clone(), shall.clone()));
                }
            }
        }
    }

    fn build_top(&mut self) {
        self.build_vnics();
        self.build_wires();
        for (name, shall) in &self.wanted.netstacks {
            let is = self.kept_netstack(name);
            // Before there is an address, so that nothing comes in by it unasked.
            let interim = is.and_then(|is| self.torn.interim_filter(is));
            if interim.is_some()
                || is.is_none_or(|is| {
                    (&is.filter, &is.pools, &is.nat, is.nat_limits)
                        != (&shall.filter, &shall.pools, &shall.nat, shall.nat_limits)
                })
            {
                let before = interim.or_else(|| is.map(Netstack::packet_filter)).unwrap_or_default();
                let after = shall.packet_filter();
                if before != after {
                    self.push(Effect::Live, Action::SetFilter(name.clone(), before, after));
                }
            }
            for (vnic, shall) in &shall.interfaces {
                let before = is.and_then(|is| is.interfaces.get(vnic));
                let before = before.filter(|before| !self.torn.interface(name, vnic, before));
                // An empty table says as much as none.
                let before = before.cloned().unwrap_or_default();
                if before != *shall {
                    let action = Action::SetInterface(name.clone(), vnic.clone(), before, shall.clone());
                    self.push(Effect::Live, action);
                }
            }
            self.build_addresses(name, shall);
            for route in &shall.routes {
                if !is.is_some_and(|is| is.routes.contains(route)) {
                    self.push(Effect::Live, Action::AddRoute(name.clone(), *route));
                }
            }
        }
        self.build_fpms();
        self.build_flows();
        self.build_services();
    }

    /// Who is the primary one no more says so before another one is it.
    fn build_addresses(&mut self, name: &NetstackName, shall: &Netstack) {
        let is = self.present.netstacks.get(name);
        let is_primary = |address: &Address| matches!(address, Address::Dhcp(it) if it.primary);
        for steps_down in [true, false] {
            for (addrobj, address) in &shall.addresses {
                let before = is.and_then(|is| is.addresses.get(addrobj));
                if steps_down != (before.is_some_and(is_primary) && !is_primary(address)) {
                    continue;
                }
                match before.filter(|before| !self.torn.address(name, addrobj, **before)) {
                    None => {
                        let action = Action::AddAddress(name.clone(), addrobj.clone(), *address);
                        self.push(anew(before.is_some()), action);
                    }
                    Some(before) if before != address => {
                        let action = Action::SetAddress(name.clone(), addrobj.clone(), *before, *address);
                        self.push(Effect::Live, action);
                    }
                    Some(_) => {}
                }
            }
        }
    }

    /// A routing daemon is listened for when all is there that its routes may lead to.
    fn build_fpms(&mut self) {
        for (name, shall) in &self.wanted.netstacks {
            let is = self.kept_netstack(name);
            let before = is.filter(|is| !self.torn.fpm(name, is)).and_then(|is| is.fpm.clone());
            if before != shall.fpm {
                self.push(Effect::Live, Action::SetFpm(name.clone(), before, shall.fpm.clone()));
            }
        }
    }

    fn build_flows(&mut self) {
        for (name, shall) in &self.wanted.flows {
            match self.present.flows.get(name) {
                Some(is) if !self.torn.flow(name, is) => {
                    let is = promise::lowered_flow(is, shall);
                    if is != *shall {
                        self.push(Effect::Live, Action::SetFlow(name.clone(), is, shall.clone()));
                    }
                }
                is => self.push(anew(is.is_some()), Action::AddFlow(name.clone(), shall.clone())),
            }
        }
    }

    fn build_services(&mut self) {
        for (name, shall) in &self.wanted.services {
            match self.present.services.get(name) {
                Some(is) if !self.torn.service(name, is) => {
                    if is != shall {
                        self.push(Effect::Live, Action::SetService(name.clone(), is.clone(), shall.clone()));
                    }
                }
                is => self.push(anew(is.is_some()), Action::StartService(name.clone(), shall.clone())),
            }
        }
    }
}
