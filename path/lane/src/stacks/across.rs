//! The two ends of a connection and what stands between them, where both are in this lane.
//!
//! They are of one netstack, or of two whose VNICs are on one switch (`fusion=on`). What goes from the one to the other is
//! what the VNIC with its address sends, and what the one with the other's address gets: flows count it, limits and properties
//! of both have a say. Connections of two netstacks are fused only if their segments would pass nobody else: no router, no
//! rule of a filter, no translation. `fusion.rs` does the fusing.

use firelane_classify::Tuple;
use firelane_filter::OneWay;
use firelane_flow::Limits;
use firelane_units::{ConnId, Direction, FlowId, LinkId, NetstackId};

use super::Stacks;
use super::conn::Conn;
use crate::common::Common;
use crate::likeness::Likeness;
use crate::links::Links;
use crate::message::{FuseWith, PortKind};
use crate::stream_info::Unfused;

/// Whose the two ends are: a connection's own netstack, and its peer's.
pub(super) type Ends = [NetstackId; 2];

/// The same seen from the other end.
pub(super) const fn turned([one, other]: Ends) -> Ends {
    [other, one]
}

impl Conn {
    /// Whose its ends are, as far as it is known.
    pub(super) const fn ends(&self) -> Ends {
        [self.netstack, self.peers]
    }
}

impl Stacks {
    /// Whether connections of two netstacks may be fused at all has perhaps changed.
    pub(crate) fn note_crossing<D>(&mut self, links: &Links<D>) {
        self.conns.crosses = links.crossing > 0;
    }

    /// The VNICs that pass what goes from the tuple's local end to its remote one: which one sends it, and which one gets it.
    pub(super) fn way_between(
        &self,
        [from, to]: Ends,
        tuple: &Tuple,
    ) -> impl Iterator<Item = (LinkId, Direction)> + use<> {
        let link_of = |netstack: NetstackId, address| {
            self.shards.get(netstack).and_then(|shard| shard.ip.core.link_of(address))
        };
        let out = link_of(from, tuple.local()).map(|link| (link, Direction::Out));
        out.into_iter().chain(link_of(to, tuple.remote()).map(|link| (link, Direction::In)))
    }

    /// What packets would be like from the tuple's local end to its remote one. Those of two netstacks would pass between two stations of
    /// their link.
    pub(super) fn likeness_between<D>(
        &self,
        links: &Links<D>,
        ends: Ends,
        tuple: &Tuple,
        dsfield: u8,
    ) -> Likeness {
        let likeness = Likeness::new(*tuple, dsfield);
        if ends[0] == ends[1] {
            return likeness;
        }
        let mut stations = self.way_between(ends, tuple).map(|(link, _)| links.mac_of(link));
        match (stations.next().flatten(), stations.next().flatten()) {
            (Some(src), Some(dst)) => likeness.between(src, dst),
            _ => likeness,
        }
    }

    /// The flows whose limits have a say on what a connection sends to its peer past TCP.
    pub(super) fn limits_of_fused<D>(&self, links: &Links<D>, conn: &Conn) -> Option<Limits> {
        let (ends, tuple) = (conn.ends(), conn.tuple()?);
        let likeness = self.likeness_between(links, ends, &tuple, conn.dsfield());
        Some(links.flows_along(self.way_between(ends, &tuple), &likeness))
    }

    /// How the connection with this tuple marks what it sends; who is not there yet marks nothing.
    pub(super) fn mark_of(&self, netstack: NetstackId, tuple: &Tuple) -> u8 {
        let conn = self.connection(netstack, tuple).and_then(|id| self.conns.slab.get(id));
        conn.map_or(0, Conn::dsfield)
    }

    /// The other end of a connection, if it is in this lane and nobody stands between them.
    pub(super) fn peer_of<D>(
        &mut self,
        common: &mut Common<D>,
        links: &Links<D>,
        id: ConnId,
    ) -> Option<ConnId> {
        let conn = self.conns.slab.get(id)?;
        if links.crossing == 0 {
            return self.connection(conn.netstack, &conn.tuple()?.reversed());
        }
        let [netstack, peers] = self.ends_as_seen(links, conn)?;
        let peer = self.connection(peers, &conn.tuple()?.reversed())?;
        if netstack == peers {
            return Some(peer);
        }
        let [here, there] = self.next_stations(common, links, id)?;
        if self.next_stations(common, links, peer)? != [there, here] {
            return None;
        }
        for (id, peers) in [(id, peers), (peer, netstack)] {
            self.conns.slab.get_mut(id)?.peers = peers;
        }
        Some(peer)
    }

    /// A netstack's connection with this tuple.
    fn connection(&self, netstack: NetstackId, tuple: &Tuple) -> Option<ConnId> {
        let shard = self.shards.get(netstack)?;
        let found = shard.conns.lookup(tuple, |id| self.conns.is_named(id, tuple))?;
        self.home(found).map(|_| found)
    }

    /// The VNIC that sends a connection's segments, and whoever gets them from it.
    fn next_stations<D>(
        &mut self,
        common: &mut Common<D>,
        links: &Links<D>,
        id: ConnId,
    ) -> Option<[LinkId; 2]> {
        let netstack = self.conns.slab.get(id)?.netstack;
        let route = self.inside(common, netstack)?.route_of(id)?;
        let there = links.port_towards(common.now, route.link, route.dst_mac?)?;
        Some([route.link, there])
    }

    /// Whose the ends of a connection are, for who only looks; `None` if its peer is of no netstack that is near.
    pub(super) fn ends_as_seen<D>(&self, links: &Links<D>, conn: &Conn) -> Option<Ends> {
        let tuple = conn.tuple()?;
        let own = self.shards.get(conn.netstack)?;
        if conn.peers != conn.netstack || own.ip.core.is_local(tuple.remote()) {
            return Some(conn.ends());
        }
        let here = own.ip.core.link_of(tuple.local())?;
        let is_near = |there| links.share_switch(here, there);
        let has_peer = |netstack: &NetstackId| {
            let shard = self.shards.get(*netstack);
            let link = shard.and_then(|shard| shard.ip.core.link_of(tuple.remote()));
            link.is_some_and(is_near) && self.connection(*netstack, &tuple.reversed()).is_some()
        };
        let near = self.shards.iter().map(|shard| shard.config.id).find(has_peer)?;
        Some([conn.netstack, near])
    }

    /// What keeps a connection from being fused with its peer.
    pub(super) fn unfused<D>(
        &self,
        common: &Common<D>,
        links: &Links<D>,
        ends: Ends,
        tuple: &Tuple,
    ) -> Option<Unfused> {
        let shards = ends.map(|netstack| self.shards.get(netstack));
        let [Some(own), Some(peers)] = shards else { return Some(Unfused::Away) };
        if !own.config.fusion.is_on || !peers.config.fusion.is_on {
            return Some(Unfused::Property);
        }
        let is_within = ends[0] == ends[1];
        if is_within && common.taps.is_empty() && links.unfusing == 0 {
            return None;
        }
        let ways = [(ends, *tuple), (turned(ends), tuple.reversed())].map(|(ends, tuple)| {
            let mark = self.mark_of(ends[0], &tuple);
            (ends, self.likeness_between(links, ends, &tuple, mark))
        });
        let forbidden = ways.iter().find_map(|(ends, like)| self.unfused_way(common, links, *ends, like));
        if is_within || forbidden.is_some() {
            return forbidden;
        }
        let is_translated = own.gate.has_nat() || peers.gate.has_nat();
        if is_translated || ways.iter().any(|(ends, like)| self.meets_rules(links, *ends, like.tuple())) {
            return Some(Unfused::Filtered);
        }
        self.unfused_across(links, &ways)
    }

    /// The same for what goes one way.
    fn unfused_way<D>(
        &self,
        common: &Common<D>,
        links: &Links<D>,
        ends: Ends,
        likeness: &Likeness,
    ) -> Option<Unfused> {
        self.way_between(ends, likeness.tuple()).find_map(|(link, direction)| {
            let over = links.ports.get(link.0)?.over;
            let flow = links.flow_at(link, likeness, direction);
            let forbids = flow.and_then(|flow| links.unfusing_at(flow));
            forbids.or_else(|| common.taps.want((link, over), flow).then_some(Unfused::Captured))
        })
    }

    /// Whether what goes from the tuple's local end to its remote one would meet a rule of either netstack's filter. Which VNIC of a
    /// netstack that has several on the switch carries it is a matter of routes and neighbours, so it may be any of them.
    fn meets_rules<D>(&self, links: &Links<D>, ends: Ends, tuple: &Tuple) -> bool {
        self.way_between(ends, tuple).any(|(link, direction)| {
            let way = OneWay {
                direction,
                protocol: tuple.protocol(),
                from: (tuple.local(), tuple.local_port()),
                to: (tuple.remote(), tuple.remote_port()),
            };
            let netstack = ends[usize::from(direction == Direction::In)];
            let gate = self.shards.get(netstack).map(|shard| &shard.gate);
            gate.is_some_and(|gate| gate.filter_ref().may_meet(&way, |other| links.share_switch(link, other)))
        })
    }

    /// Both ends must be on one switch, and say so.
    fn unfused_across<D>(&self, links: &Links<D>, ways: &[(Ends, Likeness); 2]) -> Option<Unfused> {
        let mut stations = self.way_between(ways[0].0, ways[0].1.tuple());
        let (Some((here, _)), Some((there, _))) = (stations.next(), stations.next()) else {
            return Some(Unfused::Away);
        };
        if !links.share_switch(here, there) {
            return Some(Unfused::Away);
        }
        // Who looks on sees segments.
        if links.has_onlookers(here) {
            return Some(Unfused::Captured);
        }
        let fuses = |(link, like, direction): (LinkId, &Likeness, Direction)| {
            links.flow_at(link, like, direction).is_some_and(|flow| links.crosses_at(flow))
        };
        let all_do = ways.iter().all(|(ends, like)| {
            self.way_between(*ends, like.tuple()).all(|(link, direction)| fuses((link, like, direction)))
        });
        (!all_do).then_some(Unfused::Apart)
    }
}

impl<D> Links<D> {
    /// The flows in which something like this is sent and got that passes these VNICs.
    pub(super) fn flows_along(
        &self,
        way: impl Iterator<Item = (LinkId, Direction)>,
        likeness: &Likeness,
    ) -> Limits {
        let mut flows = Limits::default();
        for (place, (link, direction)) in flows.iter_mut().zip(way) {
            *place = self.flow_at(link, likeness, direction).map(|flow| (flow, direction));
        }
        flows
    }

    /// Whether two VNICs are on one switch, and in one VLAN of it.
    fn share_switch(&self, one: LinkId, other: LinkId) -> bool {
        let place = |link: LinkId| {
            let port = self.ports.get(link.0)?;
            match port.kind {
                PortKind::Vnic { vlan, .. } => Some((port.over, vlan)),
                PortKind::Uplink | PortKind::Trunk { .. } => None,
            }
        };
        place(one).is_some_and(|at| place(other) == Some(at))
    }

    /// Which flow, of this one and those that it is part of, keeps connections from being fused.
    fn unfusing_at(&self, flow: FlowId) -> Option<Unfused> {
        let flow = self.nest(flow).find(|&flow| self.fuses(flow) == Some(FuseWith::Nobody))?;
        let place = self.places.get(flow.0)?;
        Some(if place.rule.is_some() { Unfused::Flow(flow) } else { Unfused::Link(place.owner) })
    }

    /// Whether this flow, or one that it is part of, lets connections be fused with other netstacks'.
    fn crosses_at(&self, flow: FlowId) -> bool {
        self.nest(flow).any(|flow| self.fuses(flow) == Some(FuseWith::Others))
    }

    fn fuses(&self, flow: FlowId) -> Option<FuseWith> {
        Some(self.places.get(flow.0)?.fuses)
    }

    /// A flow and those that it is part of.
    fn nest(&self, flow: FlowId) -> impl Iterator<Item = FlowId> {
        core::iter::successors(Some(flow), |flow| self.flows.config(*flow)?.parent)
    }
}
