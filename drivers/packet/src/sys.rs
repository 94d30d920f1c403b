//! Packet sockets: the only unsafe code of this driver.
//!
//! Called by `socket.rs` and `promiscuity.rs`. `sockaddr_ll`, the packet options and what the kernel tells beside a frame are
//! not in safe wrappers, so the system calls that set a socket up and read from it are made here (packet(7)).

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr;

use firelane_frame::virtio::Tag;
use rustix::io::Errno;

/// Every EtherType, in network order.
const ALL_TYPES: u16 = (libc::ETH_P_ALL as u16).to_be();
/// `PACKET_IGNORE_OUTGOING` of `linux/if_packet.h`.
const PACKET_IGNORE_OUTGOING: libc::c_int = 23;
/// `PACKET_VNET_HDR` of `linux/if_packet.h`.
const PACKET_VNET_HDR: libc::c_int = 15;

/// `TP_STATUS_VLAN_VALID` and `TP_STATUS_VLAN_TPID_VALID` of `linux/if_packet.h`.
const HAS_TAG: u32 = 1 << 4;
const HAS_PROTOCOL: u32 = 1 << 6;
/// The protocol of a tag for which none is told (IEEE 802.1Q).
const VLAN: u16 = 0x8100;

/// Which frames a socket hears.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Hears {
    Everything,
    Groups,
}

/// Keeps a frame if the lowest bit of its first byte is set, as in the addresses of groups (IEEE 802 section 8.2): load that
/// byte, test the bit, and return all of the frame, or nothing.
const OF_GROUPS: [libc::sock_filter; 4] = [
    libc::sock_filter { code: 0x30, jt: 0, jf: 0, k: 0 },
    libc::sock_filter { code: 0x45, jt: 0, jf: 1, k: 1 },
    libc::sock_filter { code: 0x06, jt: 0, jf: 0, k: u32::MAX },
    libc::sock_filter { code: 0x06, jt: 0, jf: 0, k: 0 },
];

/// A packet socket bound to the interface with `index`, with virtio-net headers and without its own echo.
pub(crate) fn open(index: u32, hears: Hears) -> io::Result<OwnedFd> {
    let fd = deaf_socket()?;
    let on: libc::c_int = 1;
    for option in [PACKET_VNET_HDR, PACKET_IGNORE_OUTGOING, libc::PACKET_AUXDATA] {
        set_option(&fd, libc::SOL_PACKET, option, &on)?;
    }
    if hears == Hears::Groups {
        let mut code = OF_GROUPS;
        let program = libc::sock_fprog { len: code.len() as u16, filter: code.as_mut_ptr() };
        set_option(&fd, libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, &program)?;
    }
    bind(&fd, index, ALL_TYPES)?;
    Ok(fd)
}

/// Room for what the kernel tells beside a frame, aligned as it wants it.
#[repr(C, align(8))]
struct Beside([u8; 64]);

/// Reads a frame behind its header, and the tag that it had. One that is longer than the room is cut off.
pub(crate) fn receive(fd: &OwnedFd, room: &mut [u8]) -> Result<(usize, Option<Tag>), Errno> {
    let mut part = libc::iovec { iov_base: room.as_mut_ptr().cast(), iov_len: room.len() };
    let mut beside = Beside([0; 64]);
    // SAFETY: a message of zeroes is one without parts.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    (message.msg_iov, message.msg_iovlen) = (&raw mut part, 1);
    (message.msg_control, message.msg_controllen) = (beside.0.as_mut_ptr().cast(), beside.0.len());
    // SAFETY: the kernel writes into `room` and `beside`, both live and as long as said, and keeps no pointer.
    let read = unsafe { libc::recvmsg(fd.as_raw_fd(), &raw mut message, 0) };
    if read < 0 {
        return Err(Errno::from_io_error(&io::Error::last_os_error()).unwrap_or(Errno::IO));
    }
    Ok((read.cast_unsigned(), tag_in(&message)))
}

/// The tag of which the kernel tells.
fn tag_in(message: &libc::msghdr) -> Option<Tag> {
    // SAFETY: the message is the kernel's, which has said how much of the room for control it has used.
    let first = unsafe { libc::CMSG_FIRSTHDR(message) };
    // SAFETY: where there is a first header it lies within that room, whole.
    let head = unsafe { first.as_ref() }?;
    let bytes = size_of::<libc::tpacket_auxdata>();
    // SAFETY: this computes a length.
    let wanted = unsafe { libc::CMSG_LEN(bytes as u32) } as usize;
    if (head.cmsg_level, head.cmsg_type) != (libc::SOL_PACKET, libc::PACKET_AUXDATA) || head.cmsg_len < wanted
    {
        return None;
    }
    // SAFETY: the header says that so many bytes of data follow it; they need not be aligned.
    let data = unsafe { ptr::read_unaligned(libc::CMSG_DATA(first).cast::<libc::tpacket_auxdata>()) };
    if data.tp_status & HAS_TAG == 0 {
        return None;
    }
    let protocol = if data.tp_status & HAS_PROTOCOL == 0 { VLAN } else { data.tp_vlan_tpid };
    let ([a, b], [c, d]) = (protocol.to_be_bytes(), data.tp_vlan_tci.to_be_bytes());
    Some([a, b, c, d])
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
    set_option(fd, libc::SOL_PACKET, libc::PACKET_ADD_MEMBERSHIP, &request)
}

/// Sets an option; its value is a C integer or structure.
fn set_option<T: Copy>(fd: &OwnedFd, level: libc::c_int, option: libc::c_int, value: &T) -> io::Result<()> {
    // SAFETY: the kernel reads `size_of::<T>()` bytes from a live value, and what that points to, and keeps no pointer.
    let result = unsafe {
        libc::setsockopt(
            fd.as_raw_fd(),
            level,
            option,
            std::ptr::from_ref(value).cast(),
            size_of::<T>() as libc::socklen_t,
        )
    };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Binds a socket to an interface, of which it goes on to hear nothing.
pub(crate) fn bind_deaf(fd: &OwnedFd, index: u32) -> io::Result<()> {
    bind(fd, index, 0)
}

/// The interface to which a socket is bound: -1 since that left the network namespace, or was deleted.
pub(crate) fn interface_of(fd: &OwnedFd) -> io::Result<i32> {
    let mut address = UNBOUND;
    let mut length = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `length` bytes of the address, and the length; both are live, and it keeps no pointer.
    let result = unsafe {
        libc::getsockname(fd.as_raw_fd(), std::ptr::from_mut(&mut address).cast(), &raw mut length)
    };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(address.sll_ifindex) }
}

/// The address of no interface.
const UNBOUND: libc::sockaddr_ll = libc::sockaddr_ll {
    sll_family: libc::AF_PACKET as libc::c_ushort,
    sll_protocol: 0,
    sll_ifindex: 0,
    sll_hatype: 0,
    sll_pkttype: 0,
    sll_halen: 0,
    sll_addr: [0; 8],
};

fn bind(fd: &OwnedFd, index: u32, protocol: u16) -> io::Result<()> {
    let address = libc::sockaddr_ll { sll_protocol: protocol, sll_ifindex: index.cast_signed(), ..UNBOUND };
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
