//! `recvmsg` with MSG_ERRQUEUE: what became of datagrams that did not arrive (`IP_RECVERR`, ip(7)).
//!
//! They wait with the daemon; a bit of the socket's words says whether there are any, so nobody asks in vain.

use core::ffi::c_int;
use core::net::IpAddr;

use firelane_frame::Envelope;
use firelane_shm::{Fault, Origin};
use firelane_units::LinkId;
use rustix::io::Errno;

use crate::address::Shown;
use crate::buffers::Sink;
use crate::socket::{Beside, Held, Received};
use crate::{names, session, socket, to_itself};

/// `struct sock_extended_err`, and the addresses behind it.
const EXTENDED: usize = 16;
const NAME_V4: usize = 16;
const NAME_V6: usize = 28;

/// A fault, as control data of a message.
pub(crate) struct Told {
    /// What the ICMP message was like, for what the program wants to know of each datagram; `None` if there was none.
    pub(crate) envelope: Option<Envelope>,
    /// IP_RECVERR or IPV6_RECVERR.
    pub(crate) option: (c_int, c_int),
    /// `struct sock_extended_err` with the offender's name.
    bytes: [u8; EXTENDED + NAME_V6],
    len: usize,
}

impl Told {
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

/// Takes the first.
pub(crate) fn take(socket: &Held, sink: &mut Sink<'_>) -> Result<(Received, Told), Errno> {
    let stream = socket.stream().filter(|_| socket.is_datagram()).ok_or(Errno::AGAIN)?;
    if socket::is_dead(socket.word) {
        return Err(stream.is_over());
    }
    if !stream.end().block().has_faults() {
        return Err(Errno::AGAIN);
    }
    if sink.is_faulty() {
        return Err(Errno::FAULT);
    }
    let fault = session::fault(socket)?;
    to_itself::faulted();
    let mut copied = 0;
    for piece in sink.from(0) {
        let part = &fault.text[copied..];
        let len = part.len().min(piece.len());
        piece[..len].copy_from_slice(&part[..len]);
        copied += len;
    }
    let cut = if copied < fault.text.len() { libc::MSG_TRUNC } else { 0 };
    let received = Received {
        bytes: copied,
        from: Some(Shown::new(fault.to, socket.is_v6())),
        flags: libc::MSG_ERRQUEUE | cut,
        beside: Beside::Datagram {
            envelope: envelope(&fault),
            bits: stream.end().block().file.load(core::sync::atomic::Ordering::Relaxed),
            port: names::port_of(stream.end().block()),
        },
    };
    Ok((received, told(&fault, socket.is_v6())))
}

/// The ICMP message, as if it were a datagram.
fn envelope(fault: &Fault) -> Envelope {
    Envelope {
        peer: (fault.offender, 0).into(),
        local: Some(fault.local),
        own: None,
        link: fault.interface.checked_sub(1).map(LinkId),
        tos: Some(fault.tos),
        hops: Some(fault.hops),
        dont_fragment: None,
        segment: 0,
        arrived: None,
        dropped: 0,
    }
}

fn told(fault: &Fault, is_v6: bool) -> Told {
    let mut bytes = [0; EXTENDED + NAME_V6];
    bytes[..4].copy_from_slice(&fault.errno.to_ne_bytes());
    bytes[4] = fault.origin as u8;
    bytes[5..7].copy_from_slice(&fault.icmp);
    bytes[8..12].copy_from_slice(&fault.info.to_ne_bytes());
    let name = &mut bytes[EXTENDED..];
    let is_named = fault.origin != Origin::Local;
    let (family, len) = if is_v6 { (libc::AF_INET6, NAME_V6) } else { (libc::AF_INET, NAME_V4) };
    if is_named {
        name[..2].copy_from_slice(&(family as u16).to_ne_bytes());
        match fault.offender {
            IpAddr::V4(ip) if !is_v6 => name[4..8].copy_from_slice(&ip.octets()),
            IpAddr::V4(ip) => name[8..24].copy_from_slice(&ip.to_ipv6_mapped().octets()),
            IpAddr::V6(ip) => {
                name[8..24].copy_from_slice(&ip.octets());
                if ip.is_unicast_link_local() {
                    name[24..].copy_from_slice(&fault.interface.to_ne_bytes());
                }
            }
        }
    }
    let option =
        if is_v6 { (libc::IPPROTO_IPV6, libc::IPV6_RECVERR) } else { (libc::IPPROTO_IP, libc::IP_RECVERR) };
    Told { envelope: is_named.then(|| envelope(fault)), option, bytes, len: EXTENDED + len }
}
