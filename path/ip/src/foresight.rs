//! The ways onward of many new flows, found together (RFC 1812 §5.2.4).
//!
//! A flow's first packet finds its way alone (`forward.rs`) and waits for the memory at each step of the table.
//! [`Ip::foresee`] goes through the table with all new flows of a chain side by side, so that it is waited for once. Before, and
//! without memory that has to be waited for, [`Ip::going_onward`] says which of them may be forwarded at all. Both together
//! answer what most flows of a router have: addresses that may be forwarded, one route, and a gateway that is known.
//! About others it says nothing, and their first packet takes the long way. What it answers is what the long way finds
//! (`tests/forwarding.rs`).

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use firelane_units::{Instant, LinkId};

use crate::adjacency::Adjacency;
use crate::config::LOOPBACK;
use crate::egress::is_link_local;
use crate::gateways::GatewayId;
use crate::input_v4::Cast;
use crate::stack::Ip;
use crate::trie::MANY;

/// What decides about a new flow.
#[derive(Clone, Copy, Debug)]
pub struct NewFlow {
    /// By which link its packets come.
    pub link: LinkId,
    /// Who sends them.
    pub src: IpAddr,
    /// Who they are for.
    pub dst: IpAddr,
}

/// How many new flows are foreseen at once.
pub const FORESEEN_MAX: usize = MANY;

/// New flows that are forwarded if there is a way, by their numbers.
#[derive(Debug)]
pub struct GoingOnward {
    to: [(usize, IpAddr); FORESEEN_MAX],
    count: usize,
}

/// The adjacencies of the table's gateways by their numbers, each good in its generation: what gives a number to another gateway
/// begins another generation.
#[derive(Debug, Default)]
pub(crate) struct KnownGateways {
    /// Nothing until the first is asked for: a host foresees nothing.
    places: Vec<Option<Adjacency>>,
}

impl KnownGateways {
    /// That of a gateway. It is lent: a copy would be read again before it is written whole, for which a processor waits.
    #[inline]
    fn find(&self, gateway: GatewayId, generation: u32) -> Option<&Adjacency> {
        let known = self.places.get(gateway.index()?)?.as_ref()?;
        (known.generation == generation).then_some(known)
    }

    fn put(&mut self, gateway: GatewayId, adjacency: Adjacency) {
        let Some(nth) = gateway.index() else { return };
        if self.places.len() <= nth {
            self.places.resize(nth + 1, None);
        }
        self.places[nth] = Some(adjacency);
    }
}

impl Ip {
    /// Which of `flows` may be forwarded. Of more than [`FORESEEN_MAX`] only so many are looked at.
    #[inline]
    pub fn going_onward(&self, flows: impl Iterator<Item = NewFlow>) -> GoingOnward {
        let nowhere = (0, IpAddr::V4(Ipv4Addr::UNSPECIFIED));
        let mut going = GoingOnward { to: [nowhere; FORESEEN_MAX], count: 0 };
        for (nth, flow) in flows.take(FORESEEN_MAX).enumerate() {
            if self.goes_onward(&flow) {
                going.to[going.count] = (nth, flow.dst);
                going.count += 1;
            }
        }
        going
    }

    /// Tells `found` the way of each of these flows, by its number, that is as most are.
    pub fn foresee(&mut self, now: Instant, going: &GoingOnward, mut found: impl FnMut(usize, &Adjacency)) {
        let onward = &going.to[..going.count];
        let mut gateways = [GatewayId::NONE; FORESEEN_MAX];
        self.routes.gateways(onward, &mut gateways);
        for (&(nth, dst), &gateway) in onward.iter().zip(&gateways) {
            if self.gateways.find(gateway, self.generation).is_none() {
                self.learn_gateway(now, gateway);
            }
            if let Some(adjacency) = self.gateways.find(gateway, self.generation)
                && self.forwards(adjacency.link, dst.is_ipv4())
            {
                found(nth, adjacency);
            }
        }
    }

    /// Whether packets with these addresses are forwarded, if there is a way.
    fn goes_onward(&self, flow: &NewFlow) -> bool {
        let NewFlow { link, src, dst } = *flow;
        if link == LOOPBACK || dst.is_loopback() || !self.forwards(link, dst.is_ipv4()) {
            return false;
        }
        let is_for_others = match (src, dst) {
            (IpAddr::V4(src), IpAddr::V4(dst)) => {
                let stays = src.is_link_local() || dst.is_link_local();
                !stays && !self.is_martian_v4(link, src) && self.cast_v4(link, dst) == Cast::Other
            }
            (IpAddr::V6(src), IpAddr::V6(dst)) => {
                let stays = src.is_unspecified() || is_link_local(src.into()) || is_link_local(dst.into());
                !stays && !self.is_martian_v6(link, src) && self.cast_v6(link, dst) == Cast::Other
            }
            _ => false,
        };
        is_for_others && self.is_on_reverse_path(link, src, dst) && !self.sourced.has(src)
    }

    /// Looks for the way to a gateway and keeps it, if there is one and its address is known.
    fn learn_gateway(&mut self, now: Instant, gateway: GatewayId) -> Option<()> {
        let (ip, link) = self.routes.gateway(gateway)?;
        let link = self.link_towards(link, Some(ip))?;
        let src_mac = self.interfaces.mac(link)?;
        let (_, dst_mac) = self.neighbours.resolve(now, link, ip)?;
        let [of_v4, of_v6] = [IpAddr::V4(Ipv4Addr::UNSPECIFIED), IpAddr::V6(Ipv6Addr::UNSPECIFIED)]
            .map(|family| self.interfaces.mtu(link, family));
        let mtu = match ip {
            IpAddr::V4(_) => of_v4?,
            // Packets of both families go by it, and are foreseen only where they may be as large.
            IpAddr::V6(_) => of_v6.filter(|_| of_v4 == of_v6)?,
        };
        let generation = self.generation;
        self.gateways.put(gateway, Adjacency { link, src_mac, dst_mac, mtu, generation });
        Some(())
    }
}
