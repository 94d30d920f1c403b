//! Which present objects have to go: those that are not wanted, those that cannot become what is wanted,
//! and those that rest on one of these.

use firelane_model::{
    AddrObjName, Address, Filter, Flow, FlowName, Interface, IpfRule, Iptun, LinkName, Model, Netstack,
    NetstackName, Over, Service, ServiceName, Vnic, VnicUser, Wire,
};

/// Asks about objects of `present`.
pub(crate) struct Torn<'a> {
    pub(crate) wanted: &'a Model,
    pub(crate) present: &'a Model,
}

impl Torn<'_> {
    pub(crate) fn link(&self, name: &LinkName) -> bool {
        let kinds = [self.present, self.wanted].map(|model| model.links.get(name).map(|link| &link.kind));
        kinds[0] != kinds[1]
    }

    pub(crate) fn etherstub(&self, name: &LinkName) -> bool {
        !self.wanted.etherstubs.contains_key(name)
    }

    /// Whether a netstack goes. Its connections stay in their lanes: one that gets some of its own, more of them or fewer, is
    /// made anew.
    pub(crate) fn netstack(&self, name: &NetstackName) -> bool {
        let lanes = |model: &Model| model.netstacks.get(name).map(|it| it.cpus.numbers().count());
        lanes(self.present) != lanes(self.wanted)
    }

    pub(crate) fn vnic(&self, name: &LinkName, is: &Vnic) -> bool {
        let Some(shall) = self.wanted.vnics.get(name) else { return true };
        let differs = self.over(name, is, shall)
            || is.mac != shall.mac
            || is.vlan != shall.vlan
            || is.is_vlan != shall.is_vlan;
        differs
            || !same_user(is, shall)
            || is.over.link().is_some_and(|over| self.below(over))
            || is.netstack().is_some_and(|n| self.netstack(n))
    }

    pub(crate) fn wire(&self, name: &LinkName, is: &Wire) -> bool {
        let Some(shall) = self.wanted.wires.get(name) else { return true };
        let goes = |end: &LinkName| match self.present.vnics.get(end) {
            Some(vnic) => self.vnic(end, vnic),
            None => self.below(end),
        };
        is.ends != shall.ends || is.seed != shall.seed || is.ends.iter().any(goes)
    }

    /// Whether the link or etherstub `name` goes. One name may change its class.
    /// A tunnel is led elsewhere while it runs, unless one that is there has the ends that it gets.
    fn over(&self, name: &LinkName, is: &Vnic, shall: &Vnic) -> bool {
        let (Over::Tunnel(before), Over::Tunnel(after)) = (&is.over, &shall.over) else {
            return is.over != shall.over;
        };
        let is_taken = |(other, it): (&LinkName, &Vnic)| {
            other != name
                && it.netstack() == shall.netstack()
                && it.over.tunnel().is_some_and(|it| it.meets(after))
        };
        let mtu = |vnic: &Vnic| vnic.mtu.or_else(|| vnic.over.tunnel().map(Iptun::default_mtu));
        mtu(is) != mtu(shall) || before != after && self.present.vnics.iter().any(is_taken)
    }

    fn below(&self, name: &LinkName) -> bool {
        if self.present.links.contains_key(name) { self.link(name) } else { self.etherstub(name) }
    }

    pub(crate) fn address(&self, netstack: &NetstackName, name: &AddrObjName, is: Address) -> bool {
        let stays = self.wanted.netstacks.get(netstack).filter(|_| !self.netstack(netstack));
        let shall = stays.and_then(|it| it.addresses.get(name));
        let interface = self.present.vnics.get_key_value(name.interface());
        !shall.is_some_and(|shall| is.can_become(*shall))
            || interface.is_none_or(|(vnic, it)| self.vnic(vnic, it))
    }

    /// Whether nothing may be said of an interface any more, or not what was said: it goes, or one whose addresses it
    /// uses.
    pub(crate) fn interface(&self, netstack: &NetstackName, name: &LinkName, is: &Interface) -> bool {
        let stays = !self.netstack(netstack)
            && self.wanted.netstacks.get(netstack).is_some_and(|it| it.interfaces.contains_key(name));
        let goes = |vnic: &LinkName| self.present.vnics.get(vnic).is_none_or(|it| self.vnic(vnic, it));
        !stays || goes(name) || is.sources().any(goes)
    }

    /// The filter of `is` between: without rules of links that go. What the others' packets hear is the same all the time.
    pub(crate) fn interim_filter(&self, is: &Netstack) -> Option<Filter> {
        let goes = |vnic: &LinkName| self.present.vnics.get(vnic).is_none_or(|it| self.vnic(vnic, it));
        let named = |rule: &IpfRule| rule.rule().link.as_ref().is_some_and(goes);
        let is_named = is.filter.iter().any(named) || is.nat.iter().any(|rule| goes(&rule.rule().link));
        is_named.then(|| is.packet_filter().without(goes))
    }

    /// Whether a netstack's routing daemon is listened for no more, or not at another place before its own is free: one that two
    /// netstacks have in turn is nobody's in between.
    pub(crate) fn fpm(&self, name: &NetstackName, is: &Netstack) -> bool {
        let shall = self.wanted.netstacks.get(name).filter(|it| it.fpm.is_some() && !self.netstack(name));
        let Some(shall) = shall else { return true };
        let has_other = |model: &Model, door| {
            model.netstacks.iter().any(|(other, it)| other != name && it.fpm_door() == door)
        };
        let (from, to) = (is.fpm_door(), shall.fpm_door());
        from != to && (has_other(self.present, to) || has_other(self.wanted, from))
    }

    pub(crate) fn flow(&self, name: &FlowName, is: &Flow) -> bool {
        let Some(shall) = self.wanted.flows.get(name) else { return true };
        let rests_on = match self.present.vnics.get(&is.link) {
            Some(vnic) => self.vnic(&is.link, vnic),
            None => self.below(&is.link),
        };
        is.link != shall.link || is.matching != shall.matching || rests_on
    }

    pub(crate) fn service(&self, name: &ServiceName, is: &Service) -> bool {
        let Some(shall) = self.wanted.services.get(name) else { return true };
        is.kind != shall.kind
            || is.netstack != shall.netstack
            || is.port != shall.port
            || self.netstack(&is.netstack)
    }
}

/// Whether the user stays; addresses and routes of a kernel interface change in place.
fn same_user(is: &Vnic, shall: &Vnic) -> bool {
    match (&is.user, &shall.user) {
        (VnicUser::Tap(a), VnicUser::Tap(b)) => a.namespace == b.namespace && a.ifname == b.ifname,
        (a, b) => a == b,
    }
}
