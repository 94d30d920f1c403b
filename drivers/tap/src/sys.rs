//! The ioctls of `/dev/net/tun` and of network interfaces. The only unsafe code of this driver.
//!
//! Called by `open.rs` alone. Every function wraps one system call, checks its result and returns the
//! error with the call's name; none keeps a pointer. Layouts: `linux/if_tun.h`, `linux/if.h`,
//! `linux/ipv6.h`.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use firelane_units::{MacAddr, Mtu};

const TUNSETIFF: libc::Ioctl = 0x4004_54ca;
const TUNSETOFFLOAD: libc::Ioctl = 0x4004_54d0;
const TUNSETVNETHDRSZ: libc::Ioctl = 0x4004_54d8;

/// `TUN_F_CSUM | TUN_F_TSO4 | TUN_F_TSO6 | TUN_F_TSO_ECN`.
pub(crate) const OFFLOAD_TCP: libc::c_ulong = 0x0f;
/// `TUN_F_USO4 | TUN_F_USO6` (Linux 6.2 and later).
pub(crate) const OFFLOAD_UDP: libc::c_ulong = 0x60;

/// An interface's name as the kernel takes it: at most 15 bytes.
#[derive(Clone, Copy)]
pub(crate) struct IfName([libc::c_char; libc::IFNAMSIZ]);

impl IfName {
    pub(crate) fn new(name: &str) -> Option<Self> {
        let fits = !name.is_empty() && name.len() < libc::IFNAMSIZ;
        let plain = name.bytes().all(|b| b.is_ascii_graphic() && b != b'/' && b != b':' && b != b'%');
        if !fits || !plain || name == "." || name == ".." {
            return None;
        }
        let mut chars = [0; libc::IFNAMSIZ];
        for (to, from) in chars.iter_mut().zip(name.bytes()) {
            *to = from.cast_signed();
        }
        Some(Self(chars))
    }
}

fn request(name: IfName) -> libc::ifreq {
    // SAFETY: `ifreq` is plain old data for which all zeroes is a valid value.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    request.ifr_name = name.0;
    request
}

/// Runs an ioctl whose argument is a pointer to `argument`.
fn ioctl<T>(fd: BorrowedFd<'_>, code: libc::Ioctl, argument: &mut T) -> io::Result<()> {
    // SAFETY: every `code` used in this file takes a pointer to the type that its caller passes, and the
    // kernel keeps no pointer after the call.
    let result = unsafe { libc::ioctl(fd.as_raw_fd(), code, std::ptr::from_mut(argument)) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Opens a queue of the TAP `name`, creating the interface if it does not exist.
pub(crate) fn open_queue(name: IfName, multi_queue: bool) -> io::Result<OwnedFd> {
    use rustix::fs::{Mode, OFlags};
    let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let fd = rustix::fs::open("/dev/net/tun", flags, Mode::empty())?;
    let mut wanted = libc::IFF_TAP | libc::IFF_NO_PI | libc::IFF_VNET_HDR;
    if multi_queue {
        wanted |= libc::IFF_MULTI_QUEUE;
    }
    let mut ifreq = request(name);
    ifreq.ifr_ifru.ifru_flags = wanted as libc::c_short;
    ioctl(fd.as_fd(), TUNSETIFF, &mut ifreq)?;
    let mut header_bytes = firelane_frame::virtio::HEADER_BYTES as libc::c_int;
    ioctl(fd.as_fd(), TUNSETVNETHDRSZ, &mut header_bytes)?;
    Ok(fd)
}

/// Tells the kernel which offloads this side takes; false if it does not know one of them.
pub(crate) fn set_offload(fd: BorrowedFd<'_>, flags: libc::c_ulong) -> bool {
    // SAFETY: TUNSETOFFLOAD takes its flags by value.
    unsafe { libc::ioctl(fd.as_raw_fd(), TUNSETOFFLOAD, flags) == 0 }
}

/// A socket of the address family `family` to send interface ioctls through.
pub(crate) fn control_socket(family: rustix::net::AddressFamily) -> io::Result<OwnedFd> {
    use rustix::net::{SocketFlags, SocketType, socket_with};
    Ok(socket_with(family, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?)
}

pub(crate) fn set_mac(socket: BorrowedFd<'_>, name: IfName, mac: MacAddr) -> io::Result<()> {
    let mut ifreq = request(name);
    let mut address = libc::sockaddr { sa_family: libc::ARPHRD_ETHER, sa_data: [0; 14] };
    for (to, from) in address.sa_data.iter_mut().zip(mac.0) {
        *to = from.cast_signed();
    }
    ifreq.ifr_ifru.ifru_hwaddr = address;
    ioctl(socket, libc::SIOCSIFHWADDR, &mut ifreq)
}

pub(crate) fn set_mtu(socket: BorrowedFd<'_>, name: IfName, mtu: Mtu) -> io::Result<()> {
    let mut ifreq = request(name);
    ifreq.ifr_ifru.ifru_mtu = mtu.bytes().into();
    ioctl(socket, libc::SIOCSIFMTU, &mut ifreq)
}

pub(crate) fn set_up(socket: BorrowedFd<'_>, name: IfName) -> io::Result<()> {
    let mut ifreq = request(name);
    ioctl(socket, libc::SIOCGIFFLAGS, &mut ifreq)?;
    // SAFETY: SIOCGIFFLAGS has just filled `ifru_flags`.
    let flags = unsafe { ifreq.ifr_ifru.ifru_flags };
    ifreq.ifr_ifru.ifru_flags = flags | libc::IFF_UP as libc::c_short;
    ioctl(socket, libc::SIOCSIFFLAGS, &mut ifreq)
}

pub(crate) fn add_ipv4(
    socket: BorrowedFd<'_>,
    name: IfName,
    addr: Ipv4Addr,
    prefix_len: u8,
) -> io::Result<()> {
    let mask = u32::MAX.checked_shl(32 - u32::from(prefix_len)).unwrap_or(0);
    let mut ifreq = request(name);
    ifreq.ifr_ifru.ifru_addr = inet(addr);
    ioctl(socket, libc::SIOCSIFADDR, &mut ifreq)?;
    let mut ifreq = request(name);
    ifreq.ifr_ifru.ifru_netmask = inet(Ipv4Addr::from_bits(mask));
    ioctl(socket, libc::SIOCSIFNETMASK, &mut ifreq)
}

/// `addr` as a `sockaddr_in` in the generic form: port in bytes 0 and 1, address in bytes 2 to 5.
fn inet(addr: Ipv4Addr) -> libc::sockaddr {
    let mut generic = libc::sockaddr { sa_family: libc::AF_INET as libc::sa_family_t, sa_data: [0; 14] };
    for (to, from) in generic.sa_data[2..6].iter_mut().zip(addr.octets()) {
        *to = from.cast_signed();
    }
    generic
}

/// `struct in6_ifreq` of `linux/ipv6.h`.
#[repr(C)]
struct In6Request {
    addr: [u8; 16],
    prefix_len: u32,
    index: libc::c_int,
}

pub(crate) fn add_ipv6(
    socket: BorrowedFd<'_>,
    name: IfName,
    addr: Ipv6Addr,
    prefix_len: u8,
) -> io::Result<()> {
    let mut ifreq = request(name);
    ioctl(socket, libc::SIOCGIFINDEX, &mut ifreq)?;
    // SAFETY: SIOCGIFINDEX has just filled `ifru_ifindex`.
    let index = unsafe { ifreq.ifr_ifru.ifru_ifindex };
    let mut request = In6Request { addr: addr.octets(), prefix_len: prefix_len.into(), index };
    ioctl(socket, libc::SIOCSIFADDR, &mut request)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_checked() {
        for good in ["alice0", "a", "fifteen-chars-1"] {
            assert!(IfName::new(good).is_some(), "{good}");
        }
        for bad in ["", "sixteen-chars-12", "a/b", "a b", "..", "a%d", "a:1"] {
            assert!(IfName::new(bad).is_none(), "{bad}");
        }
    }

    #[test]
    fn the_ipv6_request_has_the_kernels_layout() {
        assert_eq!(size_of::<In6Request>(), 24);
    }
}
