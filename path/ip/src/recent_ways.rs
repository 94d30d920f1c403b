//! The ways that were found last, by destination.
//!
//! Connections that begin one after the other ask for the same ways: a server for its SYN-ACK and then for the connection that
//! comes of it, a client for its server each time. A way is good while its generation is the current one, and what is
//! asked of a neighbour each time somebody begins to use it is asked here, too, so an answer from here is the one
//! that a search would give. Asked and filled by `egress.rs`.

use core::net::IpAddr;

use firelane_units::{Instant, LinkId};

use crate::egress::Egress;
use crate::stack::Ip;

/// How many are kept, once there are any: the peers of a busy moment, in little more than ten kilobytes.
const PLACES: usize = 128;

/// A way, and the link whose address its source is.
#[derive(Clone, Copy, Debug)]
struct Recent {
    egress: Egress,
    src_link: LinkId,
}

/// One way for each place that destinations share.
#[derive(Debug, Default)]
pub(crate) struct RecentWays {
    places: Vec<Option<Recent>>,
}

impl RecentWays {
    fn find(&self, dst: IpAddr) -> Option<&Recent> {
        self.places.get(place_of(dst))?.as_ref().filter(|recent| recent.egress.dst == dst)
    }
}

/// Whoever aims at one place makes his own ways be searched for.
fn place_of(dst: IpAddr) -> usize {
    let bits = match dst {
        IpAddr::V4(v4) => u64::from(v4.to_bits()),
        IpAddr::V6(v6) => v6.to_bits() as u64 ^ (v6.to_bits() >> 64) as u64,
    };
    (bits.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 57) as usize
}

const _: () = assert!(PLACES == 1 << (u64::BITS - 57));

impl Ip {
    /// The way from `src` to `dst`, if it was found lately.
    pub(crate) fn recent_way(&mut self, now: Instant, src: IpAddr, dst: IpAddr) -> Option<Egress> {
        let &Recent { egress, src_link } = self.recent_ways.find(dst)?;
        if !self.is_current(&egress) || !(egress.src == src || self.serves_alike(src, dst, src_link)) {
            return None;
        }
        let (id, mac) =
            self.neighbours.resolve_again(now, egress.neighbour?, egress.link, egress.next_hop)?;
        (egress.dst_mac == Some(mac) && egress.neighbour == Some(id)).then_some(Egress { src, ..egress })
    }

    /// Whether the way from `src` is that from the other addresses of `src_link`: a route over the source's link
    /// comes first, and sources may have routes of their own.
    fn serves_alike(&self, src: IpAddr, dst: IpAddr, src_link: LinkId) -> bool {
        self.sourced.is_empty()
            && src.is_ipv4() == dst.is_ipv4()
            && !src.is_loopback()
            && self.addresses.get(src).is_some_and(|address| address.is_usable() && address.link == src_link)
    }

    /// Remembers a way to a neighbour, from an address that was named.
    pub(crate) fn remember_way(&mut self, egress: &Egress) {
        let Some(src) = self.addresses.get(egress.src).filter(|_| egress.neighbour.is_some()) else { return };
        let recent = Recent { egress: *egress, src_link: src.link };
        if self.recent_ways.places.is_empty() {
            self.recent_ways.places.resize(PLACES, None);
        }
        self.recent_ways.places[place_of(egress.dst)] = Some(recent);
    }
}
