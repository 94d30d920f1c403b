//! Choosing between several addresses: the source of a packet, and the order of destinations (RFC 6724 §5, §6).
//!
//! Called by `egress.rs` for the source, and by programs for destinations ([`Ip::order_destinations`]). The rules
//! stand in the text's order; those about mobility (4 and 4) and native transport (7) have nothing to decide here.

use core::cmp::Reverse;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use firelane_units::LinkId;

use crate::address::{Address, AddressOrigin, AddressState};
use crate::config::LOOPBACK;
use crate::egress::Way;
use crate::policy::{Scope, mapped, policy, scope};
use crate::stack::Ip;

impl Ip {
    /// The source address that suits `dst` best, or none.
    pub(crate) fn choose_source(&self, way: Way, dst: IpAddr) -> Option<IpAddr> {
        if way.link == LOOPBACK && !dst.is_multicast() && dst != Ipv4Addr::BROADCAST {
            return Some(match dst {
                IpAddr::V4(v4) if v4.is_loopback() => Ipv4Addr::LOCALHOST.into(),
                IpAddr::V6(v6) if v6.is_loopback() => Ipv6Addr::LOCALHOST.into(),
                // Rule 1: the destination itself.
                own => own,
            });
        }
        let candidates = || {
            self.addresses
                .iter()
                .filter(|a| a.is_usable() && a.prefix.addr().is_ipv4() == dst.is_ipv4())
                // RFC 6724 §4: a link-local source does not leave its link.
                .filter(|a| a.link == way.link || !is_link_scope(a.prefix.addr()))
        };
        let best = |of: Option<LinkId>| {
            candidates().filter(|a| of.is_none_or(|link| a.link == link)).max_by_key(|a| rank(a, way, dst))
        };
        // The operator may have said whose addresses they are; an interface without any has no say.
        let said = self.interfaces.routing(way.link).sources(dst).filter(|_| !is_link_scope(dst));
        said.and_then(|link| best(Some(link))).or_else(|| best(None)).map(|a| a.prefix.addr())
    }

    /// Puts destinations into the order in which they should be tried (RFC 6724 §6).
    pub fn order_destinations(&self, destinations: &mut [IpAddr]) {
        // A stable sort: rule 10 leaves the order as it was.
        destinations.sort_by_cached_key(|&dst| {
            let way = self.way(None, dst);
            let src = way.and_then(|way| self.choose_source(way, dst));
            let address = src.and_then(|src| self.addresses.get(src)).copied();
            let is_deprecated = address.is_some_and(|a| a.state == AddressState::Deprecated);
            Reverse((
                // Rule 1: avoid unusable destinations.
                src.is_some(),
                // Rule 2: prefer matching scope.
                src.is_some_and(|src| scope(src) == scope(dst)),
                // Rule 3: avoid deprecated addresses.
                !is_deprecated,
                // Rule 5: prefer matching label.
                src.is_some_and(|src| policy(src).label == policy(dst).label),
                // Rule 6: prefer higher precedence.
                policy(dst).precedence,
                // Rule 8: prefer smaller scope.
                Reverse(scope(dst)),
                // Rule 9: use the longest matching prefix, within one family.
                src.map_or(0, |src| common_bits(src, dst, prefix_len(address.as_ref()))),
            ))
        });
    }
}

/// The rules of RFC 6724 §5 as a rank: the highest is chosen.
fn rank(address: &Address, way: Way, dst: IpAddr) -> impl Ord {
    let addr = address.prefix.addr();
    let (own_scope, wanted) = (scope(addr), scope(dst));
    let is_on_link = address.link == way.link;
    (
        // Rule 1: prefer same address.
        addr == dst,
        // Rule 2: prefer appropriate scope: the smallest that is large enough, else the largest.
        scope_rank(own_scope, wanted),
        // Rule 3: avoid deprecated addresses.
        address.state != AddressState::Deprecated,
        // Rule 5: prefer outgoing interface. In IPv4 this includes the subnet of the next hop, which knows the way
        // back (RFC 1122 §3.3.4.3).
        (is_on_link, is_on_link && addr.is_ipv4() && address.prefix.contains(way.next_hop)),
        // Rule 6: prefer matching label.
        policy(addr).label == policy(dst).label,
        // Rule 7: prefer temporary addresses.
        address.origin == AddressOrigin::Temporary,
        // Rule 8: use longest matching prefix, within the source's subnet.
        common_bits(addr, dst, address.prefix.prefix_len()),
        // In IPv4 the one that is there the longest, as in Linux.
        Reverse(if addr.is_ipv4() { address.nth } else { 0 }),
    )
}

/// RFC 6724 §5 rule 2 for one source: a scope that suffices is better than one that does not; of those that do,
/// the smaller; of those that do not, the larger.
const fn scope_rank(own: Scope, wanted: Scope) -> (bool, i8) {
    let suffices = own as u8 >= wanted as u8;
    (suffices, if suffices { -(own as i8) } else { own as i8 })
}

fn is_link_scope(addr: IpAddr) -> bool {
    addr.is_ipv6() && scope(addr) <= Scope::LinkLocal
}

fn prefix_len(address: Option<&Address>) -> u8 {
    address.map_or(u8::MAX, |address| address.prefix.prefix_len())
}

/// RFC 6724 §2.2: the leading bits that both have, at most as many as the source's prefix has.
fn common_bits(source: IpAddr, dst: IpAddr, prefix_len: u8) -> u32 {
    if source.is_ipv4() != dst.is_ipv4() {
        return 0;
    }
    let offset = if source.is_ipv4() { 96 } else { 0 };
    let common = (mapped(source).to_bits() ^ mapped(dst).to_bits()).leading_zeros() - offset;
    common.min(prefix_len.into())
}
