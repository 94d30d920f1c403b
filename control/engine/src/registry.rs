//! What the engine remembers of its configuration: enough to check a change before any lane gets it.
//!
//! Owned by `engine.rs` under its lock. It knows which flow is part of which, and from that the lane in which
//! each is limited: a limit is exact because one lane keeps it, so all flows below one limit share a lane.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use firelane_classify::{FlowMatch, FlowRules, RuleError, Steering};
use firelane_driver_tap::Selector;
use firelane_filter::RuleList;
use firelane_flow::FlowConfig;
use firelane_ip::{Forwarding, IfRouting, Resolvers, broadcast_of};
use firelane_nat::NatList;
use firelane_table::Mint;
use firelane_units::{FlowId, IpPrefix, LaneId, LinkId, MacAddr, NetstackId, VlanId};

use crate::aside::Aside;
use crate::error::ChangeError;
use crate::flow_lanes::LanesLeft;
use crate::netstack_config::NetstackConfig;
use crate::rings::Rings;
use crate::tunnel::TunnelConfig;
use crate::wires::Trunk;

/// A link: what VNICs are attached to.
#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) flow: FlowId,
    pub(crate) uplink: Option<LinkId>,
}

/// A VNIC.
#[derive(Debug)]
pub(crate) struct Vnic {
    pub(crate) over: LinkId,
    pub(crate) mac: MacAddr,
    pub(crate) vlan: Option<VlanId>,
    pub(crate) flow: FlowId,
    pub(crate) netstack: Option<NetstackId>,
}

/// A tunnel.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tunnel {
    /// The link that its VNIC is over.
    pub(crate) link: LinkId,
    /// Its own port there, if it carries anything.
    pub(crate) port: Option<LinkId>,
    /// Whose packets it carries, and between which stations.
    pub(crate) carries: Option<(NetstackId, TunnelConfig)>,
    /// Its VNIC's address.
    pub(crate) mac: MacAddr,
}

/// The queues of a port's driver.
#[derive(Debug)]
pub(crate) struct Queues {
    /// The lane in which each is.
    pub(crate) lanes: Vec<LaneId>,
    /// Where they were at first.
    pub(crate) dealt: Vec<LaneId>,
    /// How many of them are used.
    pub(crate) rings: Rings,
    /// Lanes without any that have one of them once more, to send by (`lent.rs`).
    pub(crate) lent: Vec<LaneId>,
    /// The flows that have one more each for themselves, in the order of these (`aside.rs`).
    pub(crate) aside: Vec<Aside>,
    /// By which of them the device was told to send, if it does not do as it likes.
    pub(crate) choice: Option<Choice>,
}

/// By which queues a device sends.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Choice {
    /// By so many of the first ones.
    pub(crate) rings: u16,
    /// What has another one, or comes by the first ones all the same: the first that matches decides.
    pub(crate) aside: Vec<(Selector, Option<u16>)>,
}

impl Queues {
    pub(crate) fn dealt(lanes: Vec<LaneId>) -> Self {
        let (rings, dealt) = (Rings::default(), lanes.clone());
        Self { lanes, dealt, rings, lent: Vec::new(), aside: Vec::new(), choice: None }
    }
}

/// A flow, or the limit of a VNIC or link.
#[derive(Debug)]
pub(crate) struct Flow {
    pub(crate) owner: LinkId,
    pub(crate) rule: Option<FlowMatch>,
    pub(crate) config: FlowConfig,
    pub(crate) home: Option<LaneId>,
    /// Lanes of its own (`flow_lanes.rs`).
    pub(crate) lanes: Vec<LaneId>,
}

/// What a listener, or a socket that may become one, has of a netstack's addresses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Claim {
    pub(crate) addr: SocketAddr,
    /// Whether `[::]` leaves IPv4 to others.
    pub(crate) v6_only: bool,
    /// The user with whose sockets it is shared, if they say so, too (SO_REUSEPORT).
    pub(crate) sharer: Option<u32>,
    /// Whether the address need not be the netstack's (IP_FREEBIND).
    pub(crate) is_free: bool,
    /// Whether others may have it too that say the same, as long as none of them listens (SO_REUSEADDR).
    pub(crate) reuses: bool,
    /// Whether connections come to it.
    pub(crate) listens: bool,
    /// The only link that it speaks over: whoever keeps to another one may have the address as well.
    pub(crate) link: Option<LinkId>,
}

impl Claim {
    /// For one socket alone.
    pub(crate) fn alone(addr: SocketAddr, v6_only: bool) -> Self {
        Self { addr, v6_only, sharer: None, is_free: false, reuses: false, listens: false, link: None }
    }

    /// Whether it cannot be had beside another that somebody has (`inet_bind_conflict` of Linux).
    fn meets(&self, other: &Self) -> bool {
        let share = self.sharer.is_some() && self.sharer == other.sharer
            || self.reuses && other.reuses && !other.listens;
        let (mine, theirs) = (self.addr.ip(), other.addr.ip());
        let are_apart = self.link.zip(other.link).is_some_and(|(mine, theirs)| mine != theirs);
        self.addr.port() == other.addr.port()
            && !are_apart
            && (mine == theirs || self.covers(theirs) || other.covers(mine))
            && !share
    }

    /// An unspecified address covers its family; IPv6's covers IPv4 too, as dual-stack sockets do.
    fn covers(&self, one: IpAddr) -> bool {
        let any = self.addr.ip();
        any.is_unspecified() && (any.is_ipv4() == one.is_ipv4() || any.is_ipv6() && !self.v6_only)
    }
}

/// A netstack.
#[derive(Debug)]
pub(crate) struct Netstack {
    /// Over which its sockets are spread that are of no flow with lanes of its own.
    pub(crate) lanes: Vec<LaneId>,
    /// In which lane which socket begins (`placing.rs`).
    pub(crate) steering: Steering,
    /// How many sockets are on their way to the lanes that were chosen for them.
    pub(crate) placing: Arc<AtomicUsize>,
    /// How packets by its interfaces are treated, if that was said.
    pub(crate) routing: BTreeMap<LinkId, IfRouting>,
    pub(crate) addresses: Vec<(LinkId, IpPrefix)>,
    /// Addresses that it made itself, as its lanes have reported them.
    pub(crate) configured: Vec<(LinkId, IpPrefix)>,
    /// What its routers say about names, by link.
    pub(crate) resolvers: Vec<Resolvers>,
    pub(crate) listeners: Vec<Claim>,
    pub(crate) config: Arc<NetstackConfig>,
    /// The rules that its filter follows in each lane.
    pub(crate) filter: Arc<RuleList>,
    /// The rules by which its addresses are translated.
    pub(crate) nat: Arc<NatList>,
}

impl Netstack {
    /// One whose sockets are spread over `lanes`.
    pub(crate) fn new(lanes: Vec<LaneId>, config: Arc<NetstackConfig>) -> Self {
        let (addresses, configured, resolvers, listeners) = Default::default();
        let (steering, placing, routing) = (Steering::even(&lanes), Arc::default(), BTreeMap::new());
        let (filter, nat) = (Arc::default(), Arc::default());
        Self {
            lanes,
            steering,
            placing,
            routing,
            addresses,
            configured,
            resolvers,
            listeners,
            config,
            filter,
            nat,
        }
    }

    /// Whether it passes on packets for others, by any of its interfaces.
    pub(crate) fn forwards(&self) -> bool {
        let by_interface = |it: &IfRouting| it.forwards_v4 == Some(true) || it.forwards_v6 == Some(true);
        let Forwarding { v4, v6, .. } = self.config.forwarding;
        v4 || v6 || self.routing.values().any(by_interface)
    }

    /// Whether a listener on `wanted` would meet one that is there.
    pub(crate) fn is_taken(&self, wanted: &Claim) -> bool {
        self.listeners.iter().any(|there| wanted.meets(there))
    }

    /// Whether a socket may have the address that it wants.
    pub(crate) fn allows(&self, wanted: &Claim) -> bool {
        wanted.is_free || self.owns(wanted.addr.ip())
    }

    /// Whether a datagram socket may be bound to `addr`: who waits for broadcasts alone is bound to where they go, and a group's
    /// address is anybody's.
    pub(crate) fn may_bind(&self, addr: IpAddr) -> bool {
        let mut owned = self.addresses.iter().chain(&self.configured);
        let is_everybodys = match addr {
            IpAddr::V4(v4) => v4.is_broadcast() || owned.any(|(_, prefix)| broadcast_of(*prefix) == Some(v4)),
            IpAddr::V6(_) => false,
        };
        is_everybodys || addr.is_multicast() || self.owns(addr)
    }

    /// Whether the netstack may listen on or send from `addr`.
    pub(crate) fn owns(&self, addr: IpAddr) -> bool {
        // Every netstack has the loopback addresses to itself.
        addr.is_unspecified() || addr.is_loopback() || self.has_address(addr)
    }

    /// Whether its interface over `link` has `addr`.
    pub(crate) fn has_address_on(&self, link: LinkId, addr: IpAddr) -> bool {
        let mut all = self.addresses.iter().chain(&self.configured);
        all.any(|(on, prefix)| *on == link && prefix.addr() == addr)
    }

    /// Whether one of its interfaces has `addr`.
    pub(crate) fn has_address(&self, addr: IpAddr) -> bool {
        self.addresses.iter().chain(&self.configured).any(|(_, prefix)| prefix.addr() == addr)
    }
}

/// Everything.
#[derive(Debug, Default)]
pub(crate) struct Registry {
    pub(crate) links: BTreeMap<LinkId, Link>,
    pub(crate) vnics: BTreeMap<LinkId, Vnic>,
    /// The ports that ends of wires have over links.
    pub(crate) trunks: BTreeMap<LinkId, Trunk>,
    /// Tunnels, by the VNICs that lead into them.
    pub(crate) tunnels: BTreeMap<LinkId, Tunnel>,
    /// The queues of each port that has a driver.
    pub(crate) queues: BTreeMap<LinkId, Queues>,
    pub(crate) flows: BTreeMap<FlowId, Flow>,
    /// Those of them that have lanes of their own: few of very many.
    with_lanes: BTreeSet<FlowId>,
    /// The rules of each VNIC's and uplink's flows, as the lanes have them.
    rules: BTreeMap<LinkId, FlowRules>,
    pub(crate) netstacks: BTreeMap<NetstackId, Netstack>,
    /// The captures that run.
    pub(crate) captures: BTreeSet<u32>,
    /// A trace runs.
    pub(crate) is_tracing: bool,
    /// Steps are counted.
    pub(crate) is_metering: bool,
    mints: Mints,
}

/// Where their numbers are from.
#[derive(Debug)]
struct Mints {
    links: Mint,
    flows: Mint,
    netstacks: Mint,
}

impl Default for Mints {
    fn default() -> Self {
        // One more than a link's number is its interface's, which programs have in an `int`.
        let [links, flows, netstacks] = [i32::MAX as u32, u32::MAX, 1 << u16::BITS].map(Mint::below);
        Self { links, flows, netstacks }
    }
}

impl Registry {
    pub(crate) fn mint_link(&mut self) -> LinkId {
        LinkId(self.mints.links.mint().expect("memory has no room for so many links"))
    }

    /// No lane has a link or port of this number any more.
    pub(crate) fn give_back_link(&mut self, link: LinkId) {
        self.mints.links.give_back(link.0);
    }

    pub(crate) fn mint_flow(&mut self) -> FlowId {
        FlowId(self.mints.flows.mint().expect("memory has no room for so many flows"))
    }

    /// A number that no netstack has, if there is one: what is on its way to one that is gone reaches no other before thousands more.
    pub(crate) fn mint_netstack(&mut self) -> Option<NetstackId> {
        Some(NetstackId(self.mints.netstacks.mint()? as u16))
    }

    /// No lane has a netstack of this number any more.
    pub(crate) fn give_back_netstack(&mut self, netstack: NetstackId) {
        self.mints.netstacks.give_back(netstack.0.into());
    }

    /// The port whose flows the flows of `link` are, and the flow that they are part of: what passes a link's wire has
    /// passed a VNIC, where it counts against the link's limit, so a link's flows are part of no other.
    pub(crate) fn owner_of(&self, link: LinkId) -> Result<(LinkId, Option<FlowId>), ChangeError> {
        if let Some(vnic) = self.vnics.get(&link) {
            return Ok((link, Some(vnic.flow)));
        }
        let known = self.links.get(&link).ok_or(ChangeError::NoLink(link))?;
        known.uplink.map(|uplink| (uplink, None)).ok_or(ChangeError::NoWire(link))
    }

    /// Enters the rule of a flow, or says why no lane would.
    pub(crate) fn add_rule(
        &mut self,
        owner: LinkId,
        rule: &FlowMatch,
        flow: FlowId,
    ) -> Result<(), RuleError> {
        self.rules.entry(owner).or_default().insert(rule, flow)
    }

    /// Gives a flow other lanes of its own, or none; the answer is what it had.
    pub(crate) fn give_lanes(&mut self, flow: FlowId, lanes: Vec<LaneId>) -> Vec<LaneId> {
        let Some(known) = self.flows.get_mut(&flow) else { return Vec::new() };
        match lanes.is_empty() {
            true => self.with_lanes.remove(&flow),
            false => self.with_lanes.insert(flow),
        };
        std::mem::replace(&mut known.lanes, lanes)
    }

    /// The flows that have lanes of their own.
    pub(crate) fn flows_with_lanes(&self) -> impl Iterator<Item = (FlowId, &Flow)> {
        self.with_lanes.iter().filter_map(|&id| Some((id, self.flows.get(&id)?)))
    }

    /// Forgets a flow that no lane has any more, and its rule.
    pub(crate) fn forget_flow(&mut self, flow: FlowId) {
        self.mints.flows.give_back(flow.0);
        self.with_lanes.remove(&flow);
        if let Some(Flow { owner, rule: Some(rule), .. }) = self.flows.remove(&flow)
            && let Some(rules) = self.rules.get_mut(&owner)
        {
            rules.remove(&rule);
            if rules.is_empty() {
                self.rules.remove(&owner);
            }
        }
    }

    /// The flows of a VNIC or uplink, its own limit not among them.
    pub(crate) fn flows_of(&self, owner: LinkId) -> Vec<FlowId> {
        let is_its = |flow: &Flow| flow.owner == owner && flow.rule.is_some();
        self.flows.iter().filter(|(_, flow)| is_its(flow)).map(|(&id, _)| id).collect()
    }

    /// The netstack that uses a VNIC.
    pub(crate) fn user_of(&self, vnic: LinkId) -> Option<NetstackId> {
        self.vnics.get(&vnic)?.netstack
    }

    /// The lane in which a flow with this configuration is limited, of those that all share: that of the topmost limit above it. A flow with
    /// lanes of its own is limited there, and so is a VNIC whose device lanes of its own serve, or of whose netstack it is; `user`
    /// is the netstack of the flow's own. What passes a device is in its flow's lane without a limit, too. None is one that has failed,
    /// as long as there is another.
    pub(crate) fn home_of(
        &self,
        flow: FlowId,
        config: &FlowConfig,
        user: Option<NetstackId>,
        lanes: &LanesLeft,
    ) -> Option<LaneId> {
        let mut limited = config.maxbw.map(|_| (flow, user));
        let mut parent = config.parent;
        while let Some(id) = parent {
            let Some(above) = self.flows.get(&id) else { break };
            if above.config.maxbw.is_some() {
                limited = Some((id, self.user_of(above.owner)));
            }
            parent = above.config.parent;
        }
        let own = |flow: FlowId| lanes.choose(&self.flows.get(&flow)?.lanes, 0);
        let Some((top, user)) = limited else { return own(flow).filter(|_| user.is_none()) };
        if let Some(lane) = own(top) {
            return Some(lane);
        }
        let its = user.and_then(|id| self.netstacks.get(&id)).map(|it| &it.lanes);
        let its = its.or_else(|| self.own_queues(top, lanes.common.len())).map_or(&[][..], Vec::as_slice);
        let chosen =
            lanes.choose(its, top.0 as usize).or_else(|| lanes.choose(&lanes.common, top.0 as usize));
        // Where all have failed nothing passes, limited or not.
        chosen.or_else(|| lanes.common.first().copied())
    }

    /// The lanes that serve the device of a flow's VNIC or link, if all are beyond the `common` ones.
    fn own_queues(&self, flow: FlowId, common: usize) -> Option<&Vec<LaneId>> {
        let queues = &self.queues.get(&self.flows.get(&flow)?.owner)?.lanes;
        let is_own = !queues.is_empty() && queues.iter().all(|lane| lane.index() >= common);
        is_own.then_some(queues)
    }

    /// Brings every flow's home up to date and answers those that changed.
    pub(crate) fn rehome(&mut self, lanes: &LanesLeft) -> Vec<(FlowId, Option<LaneId>)> {
        self.rehome_among(self.flows.keys().copied().collect(), lanes)
    }

    /// The same of one that has changed, and of all if others may be part of it.
    pub(crate) fn rehome_below(&mut self, flow: FlowId, lanes: &LanesLeft) -> Vec<(FlowId, Option<LaneId>)> {
        // Very many flows have rules, and nothing is part of one that has.
        let is_alone = self.flows.get(&flow).is_some_and(|it| it.rule.is_some());
        if is_alone { self.rehome_among(vec![flow], lanes) } else { self.rehome(lanes) }
    }

    fn rehome_among(&mut self, flows: Vec<FlowId>, lanes: &LanesLeft) -> Vec<(FlowId, Option<LaneId>)> {
        let home = |id: FlowId| {
            let flow = self.flows.get(&id)?;
            Some((id, self.home_of(id, &flow.config, self.user_of(flow.owner), lanes)))
        };
        let homes: Vec<_> = flows.into_iter().filter_map(home).collect();
        homes
            .into_iter()
            .filter(|(id, home)| {
                let flow = self.flows.get_mut(id).expect("the identifiers are the table's own");
                std::mem::replace(&mut flow.home, *home) != *home
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use firelane_units::{BitRate, Priority};

    fn add(registry: &mut Registry, parent: Option<FlowId>, mbps: Option<u64>) -> FlowId {
        let id = registry.mint_flow();
        let maxbw = mbps.map(BitRate::from_mbps);
        let config = FlowConfig { parent, maxbw, priority: Priority::Medium };
        let lanes = Vec::new();
        registry.flows.insert(id, Flow { owner: LinkId(0), rule: None, config, home: None, lanes });
        id
    }

    fn of(lanes: u16, failed: &[u16]) -> LanesLeft {
        LanesLeft {
            common: (0..lanes).map(LaneId).collect(),
            failed: failed.iter().copied().map(LaneId).collect(),
        }
    }

    #[test]
    fn flows_below_one_limit_share_its_lane() {
        let mut registry = Registry::default();
        let link = add(&mut registry, None, None);
        let vnic = add(&mut registry, Some(link), Some(10));
        let one = add(&mut registry, Some(vnic), Some(1));
        let two = add(&mut registry, Some(vnic), None);
        let free = add(&mut registry, Some(link), None);
        assert_eq!(registry.rehome(&of(2, &[])).len(), 3);
        let home = |id| registry.flows[&id].home;
        assert_eq!((home(one), home(two)), (home(vnic), home(vnic)));
        assert_eq!((home(vnic), home(free), home(link)), (Some(LaneId(1)), None, None));
        assert!(registry.rehome(&of(2, &[])).is_empty());
    }

    #[test]
    fn flows_with_lanes_are_known_apart_as_long_as_they_have_them() {
        let mut registry = Registry::default();
        let [one, two] = [(); 2].map(|()| add(&mut registry, None, None));
        let named = |registry: &Registry| registry.flows_with_lanes().map(|(id, _)| id).collect::<Vec<_>>();
        for flow in [two, one] {
            assert_eq!(registry.give_lanes(flow, vec![LaneId(1)]), []);
        }
        assert_eq!(named(&registry), [one, two]);
        assert_eq!(registry.give_lanes(one, Vec::new()), [LaneId(1)]);
        assert_eq!(named(&registry), [two]);
        registry.forget_flow(two);
        assert_eq!((named(&registry), registry.give_lanes(two, vec![LaneId(1)])), (vec![], vec![]));
        assert_eq!(named(&registry), []);
    }

    #[test]
    fn no_two_netstacks_have_one_number_though_numbers_come_again() {
        let mut registry = Registry::default();
        let first = registry.mint_netstack().unwrap();
        registry.netstacks.insert(first, Netstack::new(vec![LaneId(0)], Arc::default()));
        for _ in 0..=u16::MAX {
            let later = registry.mint_netstack().unwrap();
            assert_ne!(later, first);
            registry.give_back_netstack(later);
        }
    }

    #[test]
    fn the_limit_of_a_netstacks_vnic_is_kept_in_one_of_its_lanes() {
        let mut registry = Registry::default();
        let id = registry.mint_netstack().expect("there is none yet");
        let (link, vnic) = (registry.mint_link(), registry.mint_link());
        registry.netstacks.insert(id, Netstack::new(vec![LaneId(5)], Arc::default()));
        let of_link = add(&mut registry, None, None);
        let of_vnic = add(&mut registry, Some(of_link), Some(10));
        let inside = add(&mut registry, Some(of_vnic), Some(1));
        for flow in [of_vnic, inside] {
            registry.flows.get_mut(&flow).unwrap().owner = vnic;
        }
        let mac = MacAddr([2, 8, 32, 0, 0, 1]);
        registry.vnics.insert(vnic, Vnic { over: link, mac, vlan: None, flow: of_vnic, netstack: Some(id) });
        registry.rehome(&of(2, &[]));
        assert_eq!([of_vnic, inside].map(|it| registry.flows[&it].home), [Some(LaneId(5)); 2]);
        // Below a limit of the link all meet in that one's lane, whoever uses them.
        registry.flows.get_mut(&of_link).unwrap().config.maxbw = Some(BitRate::from_mbps(100));
        registry.rehome(&of(2, &[]));
        assert_eq!([of_link, of_vnic, inside].map(|it| registry.flows[&it].home), [Some(LaneId(0)); 3]);
    }

    #[test]
    fn a_flow_with_lanes_of_its_own_is_limited_there_unless_a_limit_above_it_is_elsewhere() {
        let mut registry = Registry::default();
        let (link, vnic) = (registry.mint_link(), registry.mint_link());
        let of_vnic = add(&mut registry, None, None);
        let flow = add(&mut registry, Some(of_vnic), None);
        for id in [of_vnic, flow] {
            registry.flows.get_mut(&id).unwrap().owner = vnic;
        }
        let mac = MacAddr([2, 8, 32, 0, 0, 1]);
        registry.vnics.insert(vnic, Vnic { over: link, mac, vlan: None, flow: of_vnic, netstack: None });
        let homes = |registry: &mut Registry| {
            registry.rehome(&of(2, &[]));
            [of_vnic, flow].map(|id| registry.flows[&id].home)
        };
        registry.flows.get_mut(&flow).unwrap().lanes = vec![LaneId(3)];
        assert_eq!(homes(&mut registry), [None, Some(LaneId(3))]);
        registry.flows.get_mut(&flow).unwrap().config.maxbw = Some(BitRate::from_mbps(1));
        assert_eq!(homes(&mut registry), [None, Some(LaneId(3))]);
        registry.flows.get_mut(&of_vnic).unwrap().config.maxbw = Some(BitRate::from_mbps(10));
        assert_eq!(homes(&mut registry), [Some(LaneId(0)); 2]);
        // The VNIC's device has a lane of its own: its limit is there, too.
        registry.queues.insert(vnic, Queues::dealt(vec![LaneId(4)]));
        assert_eq!(homes(&mut registry), [Some(LaneId(4)); 2]);
        for (failed, home) in [(&[4][..], 0), (&[4, 0], 1), (&[4, 0, 1], 0)] {
            registry.rehome(&of(2, failed));
            assert_eq!([of_vnic, flow].map(|id| registry.flows[&id].home), [Some(LaneId(home)); 2]);
        }
        registry.flows.get_mut(&of_vnic).unwrap().config.maxbw = None;
        registry.rehome(&of(2, &[3]));
        assert_eq!(registry.flows[&flow].home, Some(LaneId(4)), "lanes of its own are lost");
    }

    #[test]
    fn listeners_meet_on_their_port_and_address() {
        let claim = |text: &str, sharer| {
            let (text, v6_only) = text.strip_prefix('!').map_or((text, false), |text| (text, true));
            Claim { sharer, ..Claim::alone(text.parse().unwrap(), v6_only) }
        };
        let netstack = || Netstack::new(vec![LaneId(0)], Arc::default());
        let listening = |claim| Netstack { listeners: vec![claim], ..netstack() };
        // A leading `!` means IPV6_V6ONLY.
        for (there, wanted, taken) in [
            ("10.0.0.1:80", "10.0.0.1:80", true),
            ("10.0.0.1:80", "10.0.0.1:81", false),
            ("10.0.0.1:80", "10.0.0.2:80", false),
            ("0.0.0.0:80", "10.0.0.2:80", true),
            ("10.0.0.2:80", "0.0.0.0:80", true),
            ("[::]:80", "10.0.0.2:80", true),
            ("[fd00::1]:80", "10.0.0.2:80", false),
            ("0.0.0.0:80", "[fd00::1]:80", false),
            ("0.0.0.0:80", "[::]:80", true),
            ("0.0.0.0:80", "![::]:80", false),
            ("![::]:80", "10.0.0.2:80", false),
            ("![::]:80", "[fd00::1]:80", true),
            ("![::]:80", "[::]:80", true),
        ] {
            for (mine, theirs, share) in
                [(None, None, false), (Some(1), Some(2), false), (Some(1), Some(1), true)]
            {
                let is_taken = listening(claim(there, mine)).is_taken(&claim(wanted, theirs));
                assert_eq!(is_taken, taken && !share, "{there} {mine:?}, {wanted} {theirs:?}");
            }
            for (mine, theirs, are_apart) in
                [(Some(1), None, false), (Some(1), Some(1), false), (Some(1), Some(2), true)]
            {
                let on = |text, link: Option<u32>| Claim { link: link.map(LinkId), ..claim(text, None) };
                let is_taken = listening(on(there, mine)).is_taken(&on(wanted, theirs));
                assert_eq!(is_taken, taken && !are_apart, "{there} {mine:?}, {wanted} {theirs:?}");
            }
            // What says both that it may be had with others: until one listens.
            for (mine, listens, theirs, shares) in [
                (true, false, true, true),
                (true, false, false, false),
                (false, false, true, false),
                (true, true, true, false),
            ] {
                let there = Claim { reuses: mine, listens, ..claim(there, None) };
                for it_listens in [false, true] {
                    let wanted = Claim { reuses: theirs, listens: it_listens, ..claim(wanted, None) };
                    assert_eq!(listening(there).is_taken(&wanted), taken && !shares, "{there:?}, {wanted:?}");
                }
            }
        }
    }
}
