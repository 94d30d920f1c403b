//! Frames sent from a packet socket, a chain of them with each system call: the generator of `switch`'s, `forward-veth`'s and
//! `attack-cost`'s peers.
//!
//! Used by `bridge.rs`, `forward_veth.rs` and `attack_cost.rs`. The kernel carries each frame across a veth inside the system call, on the
//! sender's CPU.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use crate::peer::Result;

/// Frames per system call, as many as a lane fetches at once.
const CHAIN: usize = 64;

/// Chains of frames, ready to be sent again and again.
pub(crate) struct Burst {
    socket: OwnedFd,
    headers: Vec<libc::mmsghdr>,
    /// What `headers` points to; boxed, so that it stays where it is.
    _parts: Box<[libc::iovec]>,
    _frames: Vec<Box<[u8]>>,
}

impl Burst {
    /// A chain of copies of `frame`, to leave by `interface`.
    pub(crate) fn new(interface: &str, frame: &[u8]) -> Result<Self> {
        Self::of(interface, vec![frame.into()], CHAIN)
    }

    /// `count` frames, which are these in turn.
    pub(crate) fn of(interface: &str, mut frames: Vec<Box<[u8]>>, count: usize) -> Result<Self> {
        // Protocol zero receives nothing.
        let socket = packet_socket(interface, 0)?;
        let part =
            |frame: &mut Box<[u8]>| libc::iovec { iov_base: frame.as_mut_ptr().cast(), iov_len: frame.len() };
        let each: Vec<libc::iovec> = frames.iter_mut().map(part).collect();
        let mut parts: Box<[libc::iovec]> = each.into_iter().cycle().take(count).collect();
        let headers = parts.iter_mut().map(|part| {
            // SAFETY: all zeroes is an `mmsghdr` without name, parts and control data.
            let mut header: libc::mmsghdr = unsafe { std::mem::zeroed() };
            header.msg_hdr.msg_iov = part;
            header.msg_hdr.msg_iovlen = 1;
            header
        });
        let headers = headers.collect();
        Ok(Self { socket, headers, _parts: parts, _frames: frames })
    }

    /// Sends them all once.
    pub(crate) fn send(&mut self) -> io::Result<()> {
        for chain in self.headers.chunks_mut(CHAIN) {
            let count = chain.len() as libc::c_uint;
            // SAFETY: `chain` holds `count` headers, each of one part of `_parts`, which points to the bytes of one of
            // `_frames`; all three live as long as this value and none moves.
            let sent = unsafe { libc::sendmmsg(self.socket.as_raw_fd(), chain.as_mut_ptr(), count, 0) };
            if sent < 0 {
                return Err(io::Error::last_os_error());
            }
        }
        Ok(())
    }
}

/// A packet socket at `interface` that gets frames of an EtherType, and sends past the queueing discipline (packet(7)).
pub(crate) fn packet_socket(interface: &str, ethertype: u16) -> Result<OwnedFd> {
    // SAFETY: socket(2) takes no pointer; it receives nothing before it is bound.
    let raw = unsafe { libc::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) };
    if raw < 0 {
        return Err(io::Error::last_os_error().into());
    }
    // SAFETY: socket(2) has just made the descriptor and nobody else owns it.
    let fd = unsafe { OwnedFd::from_raw_fd(raw) };
    let probe = rustix::net::socket(rustix::net::AddressFamily::INET, rustix::net::SocketType::DGRAM, None)?;
    let index = rustix::net::netdevice::name_to_index(&probe, interface)?;
    // SAFETY: all zeroes is a `sockaddr_ll` of no interface.
    let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
    address.sll_family = libc::AF_PACKET as libc::c_ushort;
    address.sll_protocol = ethertype.to_be();
    address.sll_ifindex = index.cast_signed();
    let (yes, word) = (1 as libc::c_int, size_of::<libc::c_int>() as libc::socklen_t);
    // SAFETY: the kernel reads one integer and one `sockaddr_ll` from live values and keeps no pointer.
    let failed = unsafe {
        let bypass = libc::PACKET_QDISC_BYPASS;
        libc::setsockopt(raw, libc::SOL_PACKET, bypass, std::ptr::from_ref(&yes).cast(), word) < 0
            || libc::bind(
                raw,
                std::ptr::from_ref(&address).cast(),
                size_of::<libc::sockaddr_ll>() as libc::socklen_t,
            ) < 0
    };
    if failed { Err(io::Error::last_os_error().into()) } else { Ok(fd) }
}
