//! Packet sockets: the only unsafe code of this driver.
//!
//! Called by `socket.rs` alone. `sockaddr_ll` and the packet options are not in safe wrappers, so the four
//! system calls that set a socket up are made here (packet(7)).

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// Every EtherType, in network order.
const ALL_TYPES: u16 = (libc::ETH_P_ALL as u16).to_be();
/// `PACKET_IGNORE_OUTGOING` of `linux/if_packet.h`.
const PACKET_IGNORE_OUTGOING: libc::c_int = 23;
/// `PACKET_VNET_HDR` of `linux/if_packet.h`.
const PACKET_VNET_HDR: libc::c_int = 15;

/// A packet socket bound to the interface with `index`, with virtio-net headers and without its own echo.
pub(crate) fn open(index: u32) -> io::Result<OwnedFd> {
    let fd = deaf_socket()?;
    let on: libc::c_int = 1;
    set_option(&fd, PACKET_VNET_HDR, &on)?;
    set_option(&fd, PACKET_IGNORE_OUTGOING, &on)?;
    bind(&fd, index)?;
    Ok(fd)
}

/// A packet socket that hears nothing before it is bound.
pub(crate) fn deaf_socket() -> io::Result<OwnedFd> {
    let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    // SAFETY: socket(2) takes no pointer.
    let raw = unsafe { libc::socket(libc::AF_PACKET, kind, 0) };
    if raw < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: `raw` is a descriptor that socket(2) has just made and nobody else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(raw) })
}

/// While `fd` is open, the interface takes frames for any address.
pub(crate) fn add_promiscuity(fd: &OwnedFd, index: u32) -> io::Result<()> {
    let request = libc::packet_mreq {
        mr_ifindex: index.cast_signed(),
        mr_type: libc::PACKET_MR_PROMISC as libc::c_ushort,
        mr_alen: 0,
        mr_address: [0; 8],
    };
    set_option(fd, libc::PACKET_ADD_MEMBERSHIP, &request)
}

/// Sets a packet option; its value is a C integer or structure.
fn set_option<T: Copy>(fd: &OwnedFd, option: libc::c_int, value: &T) -> io::Result<()> {
    // SAFETY: the kernel reads `size_of::<T>()` bytes from a live value and keeps no pointer.
    let result = unsafe {
        libc::setsockopt(
            fd.as_raw_fd(),
            libc::SOL_PACKET,
            option,
            std::ptr::from_ref(value).cast(),
            size_of::<T>() as libc::socklen_t,
        )
    };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

fn bind(fd: &OwnedFd, index: u32) -> io::Result<()> {
    let address = libc::sockaddr_ll {
        sll_family: libc::AF_PACKET as libc::c_ushort,
        sll_protocol: ALL_TYPES,
        sll_ifindex: index.cast_signed(),
        sll_hatype: 0,
        sll_pkttype: 0,
        sll_halen: 0,
        sll_addr: [0; 8],
    };
    // SAFETY: the kernel reads one `sockaddr_ll` from a live value and keeps no pointer.
    let result = unsafe {
        libc::bind(
            fd.as_raw_fd(),
            std::ptr::from_ref(&address).cast(),
            size_of::<libc::sockaddr_ll>() as libc::socklen_t,
        )
    };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
