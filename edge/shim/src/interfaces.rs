//! Which interfaces and addresses this program has: those of its netstack, as `getifaddrs` and `ioctl` show them.
//!
//! The kernel's own are not its: what it would bind to or announce must be what the daemon knows (netdevice(7)).

use core::ffi::c_int;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};
use core::sync::atomic::{AtomicU32, Ordering};

use firelane_shm::control::{Interface, Reach};
use libc::c_ulong;
use rustix::io::Errno;
use rustix::net::{AddressFamily, sockopt};

use crate::address::Shown;
use crate::{session, socket, sys};

/// As long as an address of any family here (`sockaddr_in6`).
pub(crate) const ADDRESS_BYTES: usize = 28;
/// A name with its zero.
pub(crate) const NAME_BYTES: usize = 64;
/// The name in a `struct ifreq`, and all of it.
const IFREQ_NAME: usize = libc::IFNAMSIZ;
pub(crate) const IFREQ_BYTES: usize = 40;
/// A `struct ifmap`.
const MAP_BYTES: usize = 24;

/// What an interface is, by who hears what leaves by it. At a tunnel nobody is asked for addresses of a link (IFF_NOARP), as in Linux.
const fn flags_of(reach: Reach) -> c_int {
    match reach {
        Reach::Link => UP | libc::IFF_BROADCAST | libc::IFF_MULTICAST,
        Reach::End => UP | libc::IFF_POINTOPOINT | libc::IFF_NOARP | libc::IFF_MULTICAST,
        Reach::Named => UP | libc::IFF_NOARP,
    }
}
const LOOPBACK_FLAGS: c_int = UP | libc::IFF_LOOPBACK;
/// Also that the device behind it is, which only `getifaddrs` has room for (IFF_LOWER_UP).
const UP: c_int = libc::IFF_UP | libc::IFF_RUNNING | 1 << 16;
/// Every netstack has its loopback addresses, at an interface as Linux shows it, which is no link: the daemon gives this number to none.
pub(crate) const LOOPBACK: u32 = 1;
const LOOPBACK_MTU: u32 = 65_536;
/// How many packets wait at a device, as Linux says of those that make no queue of their own.
const QUEUE_LEN: u32 = 1000;

/// One entry of `getifaddrs`.
pub(crate) struct Entry {
    pub(crate) name: [u8; NAME_BYTES],
    pub(crate) address: [u8; ADDRESS_BYTES],
    /// Of an address of the internet's families.
    pub(crate) mask: Option<[u8; ADDRESS_BYTES]>,
    /// Of an IPv4 address: where everybody on the link hears, or of a tunnel's the address itself, as Linux has it of who names no peer.
    pub(crate) broadcast: Option<[u8; ADDRESS_BYTES]>,
    pub(crate) flags: c_int,
}

/// The loopback interface, and those of the netstack, once for each address.
fn known() -> Result<Vec<Interface>, Errno> {
    let loopback =
        [(Ipv4Addr::LOCALHOST.into(), 8), (Ipv6Addr::LOCALHOST.into(), 128)].map(|address| Interface {
            name: String::from("lo"),
            index: LOOPBACK,
            mtu: LOOPBACK_MTU,
            mac: [0; 6],
            reach: Reach::Link,
            address: Some(address),
        });
    Ok(loopback.into_iter().chain(session::interfaces()?).collect())
}

/// Whether the netstack has addresses of IPv4, and of IPv6, with which names lead anywhere: no loopback ones, nor those of one link that
/// every interface makes itself.
pub(crate) fn families() -> Result<(bool, bool), Errno> {
    let known = session::interfaces()?;
    let has = |is: fn(IpAddr) -> bool| known.iter().filter_map(|it| it.address).any(|(ip, _)| is(ip));
    let leads = |ip| matches!(ip, IpAddr::V6(ip) if !ip.is_unicast_link_local());
    Ok((has(|ip| ip.is_ipv4()), has(leads)))
}

/// Whether the netstack has the interface with this number. Who was found is not asked for again: no other gets its number.
pub(crate) fn is_there(index: u32) -> bool {
    static FOUND: [AtomicU32; 16] = [const { AtomicU32::new(0) }; 16];
    let found = &FOUND[index as usize % FOUND.len()];
    if found.load(Ordering::Relaxed) == index {
        return true;
    }
    // Without an answer the lane says what it finds.
    let is_there = session::interfaces().map_or(true, |known| known.iter().any(|it| it.index == index));
    if is_there {
        found.store(index, Ordering::Relaxed);
    }
    is_there
}

/// Whether an address is of one link, which has to stand beside it.
pub(crate) fn is_of_link(address: &SocketAddr) -> bool {
    matches!(address, SocketAddr::V6(v6) if v6.ip().is_unicast_link_local() && v6.scope_id() == 0)
}

/// An address as programs are told it: that of one link (RFC 4007 §6) with the interface where `own` is, which is this host's end of it.
pub(crate) fn scoped(address: SocketAddr, own: IpAddr) -> SocketAddr {
    if !is_of_link(&address) {
        return address;
    }
    let known = session::interfaces().unwrap_or_default();
    let index = known.iter().find(|it| it.address.is_some_and(|(ip, _)| ip == own)).map_or(0, |it| it.index);
    match address {
        SocketAddr::V6(v6) => SocketAddrV6::new(*v6.ip(), v6.port(), 0, index).into(),
        v4 @ SocketAddr::V4(_) => v4,
    }
}

fn flags(interface: &Interface) -> c_int {
    if interface.index == LOOPBACK { LOOPBACK_FLAGS } else { flags_of(interface.reach) }
}

fn hardware(interface: &Interface) -> u16 {
    match interface.reach {
        _ if interface.index == LOOPBACK => libc::ARPHRD_LOOPBACK,
        Reach::Link => libc::ARPHRD_ETHER,
        Reach::End | Reach::Named => libc::ARPHRD_NONE,
    }
}

/// The number of the netstack's interface with a name.
pub(crate) fn index_of(asked: &[u8]) -> Option<u32> {
    let is_it = |it: &&Interface| it.name.as_bytes() == asked;
    known().ok()?.iter().find(is_it).map(|it| it.index)
}

/// The name of the netstack's interface with a number.
pub(crate) fn name_of(index: u32) -> Option<[u8; NAME_BYTES]> {
    known().ok()?.iter().find(|it| it.index == index).map(name)
}

/// All of them, each once.
pub(crate) fn names() -> Result<Vec<(u32, [u8; NAME_BYTES])>, Errno> {
    let mut names: Vec<_> = known()?.iter().map(|it| (it.index, name(it))).collect();
    names.dedup();
    Ok(names)
}

/// What `getifaddrs` shows: each interface's address on the link, as Linux begins, and then those on the network.
pub(crate) fn entries() -> Result<Vec<Entry>, Errno> {
    let known = known()?;
    let mut links: Vec<&Interface> = Vec::new();
    for interface in &known {
        if links.last().is_none_or(|last| last.index != interface.index) {
            links.push(interface);
        }
    }
    let link = |it: &Interface| Entry {
        name: name(it),
        address: on_link(it),
        mask: None,
        broadcast: None,
        flags: flags(it),
    };
    let addressed = |it: &Interface| {
        let (ip, prefix) = it.address?;
        let broadcast = match it.reach {
            Reach::Link => broadcast(ip, prefix),
            Reach::End => Some(ip).filter(IpAddr::is_ipv4),
            Reach::Named => None,
        };
        let broadcast = broadcast.map(|ip| shown(ip, it.index));
        let (address, mask) = (shown(ip, it.index), Some(shown(mask(ip, prefix), 0)));
        Some(Entry { name: name(it), address, mask, broadcast, flags: flags(it) })
    };
    Ok(links.into_iter().map(link).chain(known.iter().filter_map(addressed)).collect())
}

fn name(interface: &Interface) -> [u8; NAME_BYTES] {
    let mut name = [0; NAME_BYTES];
    // The last byte stays zero.
    name[..NAME_BYTES - 1].iter_mut().zip(interface.name.bytes()).for_each(|(to, from)| *to = from);
    name
}

/// `struct sockaddr_ll`.
fn on_link(interface: &Interface) -> [u8; ADDRESS_BYTES] {
    let mut bytes = [0; ADDRESS_BYTES];
    bytes[..2].copy_from_slice(&(libc::AF_PACKET as u16).to_ne_bytes());
    bytes[4..8].copy_from_slice(&interface.index.to_ne_bytes());
    bytes[8..10].copy_from_slice(&hardware(interface).to_ne_bytes());
    let mac = mac(interface);
    bytes[11] = mac.len() as u8;
    bytes[12..][..mac.len()].copy_from_slice(mac);
    bytes
}

/// The address on the link. A tunnel's has none.
fn mac(interface: &Interface) -> &[u8] {
    if interface.reach == Reach::Link { &interface.mac } else { &[] }
}

fn shown(ip: IpAddr, index: u32) -> [u8; ADDRESS_BYTES] {
    let address = match ip {
        IpAddr::V6(ip) if ip.is_unicast_link_local() => SocketAddrV6::new(ip, 0, 0, index).into(),
        ip => SocketAddr::new(ip, 0),
    };
    let mut bytes = [0; ADDRESS_BYTES];
    let known = Shown::new(address, ip.is_ipv6());
    bytes[..known.bytes().len()].copy_from_slice(known.bytes());
    bytes
}

fn mask(ip: IpAddr, prefix: u8) -> IpAddr {
    match ip {
        IpAddr::V4(_) => {
            Ipv4Addr::from_bits(u32::MAX.checked_shl(32 - u32::from(prefix)).unwrap_or(0)).into()
        }
        IpAddr::V6(_) => {
            Ipv6Addr::from_bits(u128::MAX.checked_shl(128 - u32::from(prefix)).unwrap_or(0)).into()
        }
    }
}

fn broadcast(ip: IpAddr, prefix: u8) -> Option<IpAddr> {
    match (ip, mask(ip, prefix)) {
        (IpAddr::V4(ip), IpAddr::V4(mask)) if !ip.is_loopback() => {
            Some(Ipv4Addr::from_bits(ip.to_bits() | !mask.to_bits()).into())
        }
        _ => None,
    }
}

/// Whether a request asks about interfaces, of a socket that knows some.
pub(crate) fn is_asked(fd: c_int, request: c_ulong) -> bool {
    let asks = matches!(
        request,
        libc::SIOCGIFCONF
            | libc::SIOCGIFNAME
            | libc::SIOCGIFINDEX
            | libc::SIOCGIFFLAGS
            | libc::SIOCGIFADDR
            | libc::SIOCGIFDSTADDR
            | libc::SIOCGIFMETRIC
            | libc::SIOCGIFTXQLEN
            | libc::SIOCGIFMAP
            | libc::SIOCGIFNETMASK
            | libc::SIOCGIFBRDADDR
            | libc::SIOCGIFMTU
            | libc::SIOCGIFHWADDR
    );
    // As in Linux a socket of IPv6 does not tell addresses of IPv4.
    let tells_all = request == libc::SIOCGIFCONF || is_for_any(request);
    let is_internets = || match (socket::at(fd), sockopt::socket_domain(sys::borrow(fd))) {
        (Some(socket), _) => tells_all || !socket.is_v6(),
        (None, Ok(AddressFamily::INET6)) => tells_all,
        (None, family) => family == Ok(AddressFamily::INET),
    };
    asks && session::is_wanted() && is_internets()
}

/// Whether the kernel answers a request about an interface on a socket of any family, as is the one behind a socket of ours.
pub(crate) fn is_for_any(request: c_ulong) -> bool {
    matches!(
        request,
        libc::SIOCGIFNAME
            | libc::SIOCGIFINDEX
            | libc::SIOCGIFFLAGS
            | libc::SIOCGIFMTU
            | libc::SIOCGIFHWADDR
            | libc::SIOCGIFMETRIC
            | libc::SIOCGIFTXQLEN
            | libc::SIOCGIFMAP
    )
}

/// The entries of SIOCGIFCONF: a `struct ifreq` for each IPv4 address.
pub(crate) fn configured() -> Result<Vec<[u8; IFREQ_BYTES]>, Errno> {
    let known = known()?;
    let entry = |it: &Interface| {
        let (ip, _) = it.address.filter(|(ip, _)| ip.is_ipv4())?;
        let mut entry = [0; IFREQ_BYTES];
        entry[..IFREQ_NAME].copy_from_slice(&name(it)[..IFREQ_NAME]);
        entry[IFREQ_NAME..IFREQ_NAME + 16].copy_from_slice(&shown(ip, 0)[..16]);
        Some(entry)
    };
    Ok(known.iter().filter_map(entry).collect())
}

/// Answers a request about one interface in the `struct ifreq` that names it.
pub(crate) fn answer(request: c_ulong, entry: &mut [u8; IFREQ_BYTES]) -> Result<(), Errno> {
    let known = known()?;
    let (asked, value) = entry.split_at_mut(IFREQ_NAME);
    let label = asked.split(|&byte| byte == 0).next().unwrap_or_default();
    // As in Linux `web0:1` is the device before the colon; no address has such a label.
    let device = label.split(|&byte| byte == b':').next().unwrap_or_default().to_vec();
    let is_label = device.len() < label.len();
    let number = |value: &[u8]| value.first_chunk().map_or(0, |bytes| u32::from_ne_bytes(*bytes));
    let is_it = |it: &&Interface| {
        if request == libc::SIOCGIFNAME {
            it.index == number(value)
        } else {
            let name = name(it);
            name[..IFREQ_NAME].split(|&byte| byte == 0).next() == Some(&device[..])
        }
    };
    let mut its = known.iter().filter(is_it).peekable();
    let it = *its.peek().ok_or(Errno::NODEV)?;
    let v4 = its.find_map(|it| it.address.filter(|(ip, _)| ip.is_ipv4()));
    let address = |of: fn(IpAddr, u8) -> Option<IpAddr>| {
        let (ip, prefix) = v4.filter(|_| !is_label).ok_or(Errno::ADDRNOTAVAIL)?;
        Ok::<_, Errno>(shown(of(ip, prefix).ok_or(Errno::ADDRNOTAVAIL)?, 0))
    };
    let mut put = |bytes: &[u8]| value[..bytes.len()].copy_from_slice(bytes);
    match request {
        libc::SIOCGIFNAME => asked.copy_from_slice(&name(it)[..IFREQ_NAME]),
        libc::SIOCGIFINDEX => put(&it.index.to_ne_bytes()),
        libc::SIOCGIFMTU => put(&it.mtu.to_ne_bytes()),
        libc::SIOCGIFMETRIC => put(&0_i32.to_ne_bytes()),
        libc::SIOCGIFTXQLEN => put(&QUEUE_LEN.to_ne_bytes()),
        // No memory, interrupt or port of a device is the program's.
        libc::SIOCGIFMAP => put(&[0; MAP_BYTES]),
        libc::SIOCGIFFLAGS => put(&(flags(it) as u16).to_ne_bytes()),
        libc::SIOCGIFHWADDR => {
            put(&hardware(it).to_ne_bytes());
            value[2..8].fill(0);
            value[2..][..mac(it).len()].copy_from_slice(mac(it));
        }
        libc::SIOCGIFNETMASK => put(&address(|ip, prefix| Some(mask(ip, prefix)))?[..16]),
        // Who has none has zeros.
        libc::SIOCGIFBRDADDR => {
            let everybody = match it.reach {
                Reach::Link => |ip, prefix| broadcast(ip, prefix).or(Some(Ipv4Addr::UNSPECIFIED.into())),
                Reach::End | Reach::Named => |_, _| Some(Ipv4Addr::UNSPECIFIED.into()),
            };
            put(&address(everybody)?[..16]);
        }
        _ => put(&address(|ip, _| Some(ip))?[..16]),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn masks_and_broadcasts_of_every_prefix() {
        let v4 = IpAddr::from([10, 1, 2, 3]);
        for (prefix, its_mask, its_broadcast) in [
            (0, [0, 0, 0, 0], [255, 255, 255, 255]),
            (8, [255, 0, 0, 0], [10, 255, 255, 255]),
            (30, [255, 255, 255, 252], [10, 1, 2, 3]),
            (32, [255, 255, 255, 255], [10, 1, 2, 3]),
        ] {
            assert_eq!(mask(v4, prefix), IpAddr::from(its_mask), "/{prefix}");
            assert_eq!(broadcast(v4, prefix), Some(IpAddr::from(its_broadcast)), "/{prefix}");
        }
        let v6: IpAddr = "2001:db8::1".parse().unwrap();
        assert_eq!(mask(v6, 64), "ffff:ffff:ffff:ffff::".parse::<IpAddr>().unwrap());
        assert_eq!((mask(v6, 0), broadcast(v6, 64)), (Ipv6Addr::UNSPECIFIED.into(), None));
    }

    #[test]
    fn a_link_address_has_its_interface() {
        let it = Interface {
            name: "web0".into(),
            index: 7,
            mtu: 1500,
            mac: [2, 0, 0, 0, 0, 9],
            reach: Reach::Link,
            address: None,
        };
        let bytes = on_link(&it);
        assert_eq!((bytes[4], bytes[11], &bytes[12..18]), (7, 6, &[2, 0, 0, 0, 0, 9][..]));
        assert_eq!(&name(&it)[..5], b"web0\0");
        let local = shown("fe80::1".parse().unwrap(), 7);
        assert_eq!(local[24..28], 7_u32.to_ne_bytes());
        let tunnel = on_link(&Interface { reach: Reach::End, ..it });
        assert_eq!((tunnel[4], &tunnel[8..10], &tunnel[11..18]), (7, &[0xfe, 0xff][..], &[0; 7][..]));
    }

    #[test]
    fn a_tunnel_does_not_broadcast() {
        for (reach, expected) in [
            (Reach::Link, libc::IFF_BROADCAST | libc::IFF_MULTICAST),
            (Reach::End, libc::IFF_POINTOPOINT | libc::IFF_NOARP | libc::IFF_MULTICAST),
            (Reach::Named, libc::IFF_NOARP),
        ] {
            assert_eq!(flags_of(reach) & !UP, expected, "{reach:?}");
        }
    }
}
