//! Addresses as programs give them and are told them, and the link that one of a link alone goes by.
//!
//! `fe80::a` is another station on each link (RFC 4007 §4), so who binds or connects to such an address says which is meant: by its
//! scope (`sin6_scope_id` of ipv6(7)), or by the link that the socket is bound to already. From then on the socket speaks over that link alone,
//! as by SO_BINDTODEVICE. Errors are Linux's. Called by `socket.rs`.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use firelane_ip::LOOPBACK;
use firelane_shm::control::Family;
use firelane_units::LinkId;
use rustix::io::Errno;

use super::alike::{Alike, link_of};
use super::socket::errno;
use crate::stack::Stack;

/// An address as a socket of this family has it.
pub(super) fn shown(family: Family, address: SocketAddr) -> SocketAddr {
    match (family, address.ip()) {
        (Family::V6, IpAddr::V4(ip)) => SocketAddr::new(ip.to_ipv6_mapped().into(), address.port()),
        _ => address,
    }
}

/// Every address of a family.
pub(super) fn any(family: Family) -> IpAddr {
    match family {
        Family::V4 => Ipv4Addr::UNSPECIFIED.into(),
        Family::V6 => Ipv6Addr::UNSPECIFIED.into(),
    }
}

pub(super) fn fits(family: Family, address: SocketAddr) -> bool {
    address.is_ipv4() == (family == Family::V4)
}

/// As Linux has it: nobody's address is this host's.
pub(super) fn reachable(mut remote: SocketAddr) -> SocketAddr {
    if remote.ip().is_unspecified() {
        let (v4, v6) = (Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into());
        remote.set_ip(if remote.is_ipv4() { v4 } else { v6 });
    }
    remote
}

/// Whether it is one address of IPv6, in canonical form.
pub(super) fn is_one_of_v6(local: SocketAddr) -> bool {
    local.is_ipv6() && !local.ip().is_unspecified()
}

/// An IPv4 address in IPv6's clothes is IPv4's.
pub(super) fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

/// Over which link a socket speaks that is bound to an address: what stands beside that counts more than what was said before.
pub(super) fn link_at(stack: &Stack, local: SocketAddr, alike: &Alike) -> Result<Option<LinkId>, Errno> {
    if !is_of_link(local.ip()) {
        return Ok(alike.link);
    }
    let link = named(local).or(alike.link).ok_or(Errno::INVAL)?;
    if !stack.has_link(link) {
        return Err(Errno::NODEV);
    }
    let is_anybodys = local.ip().is_multicast() || alike.binds_freely;
    if !is_anybodys && !stack.owns_on(link, local.ip()).map_err(errno)? {
        return Err(Errno::ADDRNOTAVAIL);
    }
    Ok(Some(link))
}

/// Over which link a socket speaks that is connected to an address, where it is `bound` to one, or sends to groups by one. What it is bound
/// to and what stands beside the address must be the same.
pub(super) fn link_towards(
    stack: &Stack,
    remote: SocketAddr,
    bound: Option<LinkId>,
    of_groups: Option<LinkId>,
) -> Result<Option<LinkId>, Errno> {
    let ip = remote.ip();
    if !is_of_link(ip) {
        return Ok(bound);
    }
    let named = named(remote);
    if named.is_some() && bound.is_some() && named != bound {
        return Err(Errno::INVAL);
    }
    let of_groups = of_groups.filter(|_| ip.is_multicast());
    let link = named.or(bound).or(of_groups).ok_or(Errno::INVAL)?;
    // The loopback device has no such station.
    let is_way = stack.has_link(link) && (link != LOOPBACK || ip.is_multicast());
    if is_way { Ok(Some(link)) } else { Err(Errno::NETUNREACH) }
}

/// Whether an address is one link's alone. Of a group the scope stands in its second octet: the interface's own, or the link's (RFC 4291
/// §2.7).
fn is_of_link(ip: IpAddr) -> bool {
    let IpAddr::V6(ip) = ip else { return false };
    ip.is_unicast_link_local() || ip.is_multicast() && matches!(ip.octets()[1] & 0xf, 1 | 2)
}

/// The link that stands beside an address.
fn named(address: SocketAddr) -> Option<LinkId> {
    let SocketAddr::V6(v6) = address else { return None };
    link_of(v6.scope_id().cast_signed())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_one_link_are_told_from_those_of_all() {
        for (ip, wanted) in [
            ("fe80::1", true),
            ("febf::1", true),
            ("fec0::1", false),
            ("ff01::1", true),
            ("ff12::fb", true),
            ("ff05::2", false),
            ("2001:db8::1", false),
            ("::1", false),
            ("::ffff:169.254.0.1", false),
            ("169.254.0.1", false),
        ] {
            assert_eq!(is_of_link(ip.parse().unwrap()), wanted, "{ip}");
        }
        for (address, link) in [
            ("[fe80::1]:1", None),
            ("[fe80::1%1]:1", Some(LOOPBACK)),
            ("[fe80::1%7]:1", Some(LinkId(6))),
            ("1.2.3.4:1", None),
        ] {
            assert_eq!(named(address.parse().unwrap()), link, "{address}");
        }
    }
}
