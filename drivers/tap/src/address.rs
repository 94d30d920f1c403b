//! Gives an interface an address by one rtnetlink request (RFC 3549, `linux/if_addr.h`).
//!
//! Called by `open.rs` in a thread that stands in the right network namespace. The older ioctl would do for the first IPv4
//! address alone: a second one takes its place.

use std::io;
use std::net::{IpAddr, Ipv4Addr};

use firelane_units::IpPrefix;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};

const NLMSG_ERROR: u16 = 2;
const RTM_NEWADDR: u16 = 20;
/// `NLM_F_REQUEST | NLM_F_ACK | NLM_F_REPLACE | NLM_F_CREATE`: an address that is there already is no error.
const FLAGS: u16 = 0x1 | 0x4 | 0x100 | 0x400;
const IFA_ADDRESS: u16 = 1;
const IFA_LOCAL: u16 = 2;
const IFA_BROADCAST: u16 = 4;
/// Of a message: length, type, flags, number, port.
const HEADER_BYTES: usize = 16;

/// Gives the interface with this index an address.
pub(crate) fn add(index: u32, prefix: IpPrefix) -> io::Result<()> {
    // Netlink's protocol 0 is rtnetlink.
    let socket =
        rustix::net::socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, None)?;
    rustix::net::send(&socket, &request(index, prefix), SendFlags::empty())?;
    let mut answer = [0; 256];
    let (count, _) = rustix::net::recv(&socket, &mut answer, RecvFlags::empty())?;
    result_of(&answer[..count])
}

/// What the kernel's acknowledgement says.
fn result_of(answer: &[u8]) -> io::Result<()> {
    let unreadable = || io::Error::new(io::ErrorKind::InvalidData, "rtnetlink's answer cannot be read");
    let kind = answer.get(4..6).and_then(|it| it.try_into().ok()).map(u16::from_ne_bytes);
    let code = answer.get(HEADER_BYTES..HEADER_BYTES + 4).and_then(|it| it.try_into().ok());
    match (kind, code.map(i32::from_ne_bytes)) {
        (Some(NLMSG_ERROR), Some(0)) => Ok(()),
        (Some(NLMSG_ERROR), Some(code)) => Err(io::Error::from_raw_os_error(-code)),
        _ => Err(unreadable()),
    }
}

fn request(index: u32, prefix: IpPrefix) -> Vec<u8> {
    let mut message = vec![0; HEADER_BYTES];
    let family = match prefix.addr() {
        IpAddr::V4(_) => AddressFamily::INET,
        IpAddr::V6(_) => AddressFamily::INET6,
    };
    // struct ifaddrmsg: family, prefix length, flags, scope (global), index.
    message.extend([family.as_raw() as u8, prefix.prefix_len(), 0, 0]);
    message.extend(index.to_ne_bytes());
    match prefix.addr() {
        IpAddr::V4(addr) => {
            attribute(&mut message, IFA_LOCAL, &addr.octets());
            attribute(&mut message, IFA_ADDRESS, &addr.octets());
            if let Some(broadcast) = broadcast(addr, prefix.prefix_len()) {
                attribute(&mut message, IFA_BROADCAST, &broadcast.octets());
            }
        }
        IpAddr::V6(addr) => attribute(&mut message, IFA_ADDRESS, &addr.octets()),
    }
    let length = message.len() as u32;
    message[..4].copy_from_slice(&length.to_ne_bytes());
    message[4..6].copy_from_slice(&RTM_NEWADDR.to_ne_bytes());
    message[6..8].copy_from_slice(&FLAGS.to_ne_bytes());
    message
}

/// Appends an attribute whose value is a multiple of four bytes long.
fn attribute(message: &mut Vec<u8>, kind: u16, value: &[u8]) {
    message.extend((4 + value.len() as u16).to_ne_bytes());
    message.extend(kind.to_ne_bytes());
    message.extend(value);
}

/// The broadcast address of a subnet that is large enough to have one (RFC 3021).
fn broadcast(addr: Ipv4Addr, prefix_len: u8) -> Option<Ipv4Addr> {
    (prefix_len < 31).then(|| Ipv4Addr::from_bits(addr.to_bits() | u32::MAX >> prefix_len))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_says_how_long_it_and_its_attributes_are() {
        for (prefix, attributes) in [("10.0.0.1/24", 3), ("10.0.0.1/31", 2), ("fd00::1/64", 1)] {
            let message = request(7, prefix.parse().unwrap());
            assert_eq!(u32::from_ne_bytes(message[..4].try_into().unwrap()) as usize, message.len());
            let (mut at, mut count) = (HEADER_BYTES + 8, 0);
            while at < message.len() {
                at += usize::from(u16::from_ne_bytes([message[at], message[at + 1]]));
                count += 1;
            }
            assert_eq!((at, count), (message.len(), attributes), "{prefix}");
        }
        assert_eq!(broadcast(Ipv4Addr::new(10, 1, 2, 3), 23), Some(Ipv4Addr::new(10, 1, 3, 255)));
    }

    #[test]
    fn the_kernels_answer_is_an_error_or_none() {
        let answer = |kind: u16, code: i32| {
            let mut bytes = vec![0; HEADER_BYTES];
            bytes[4..6].copy_from_slice(&kind.to_ne_bytes());
            bytes.extend(code.to_ne_bytes());
            result_of(&bytes).map_err(|error| error.raw_os_error())
        };
        assert_eq!(answer(NLMSG_ERROR, 0), Ok(()));
        assert_eq!(answer(NLMSG_ERROR, -libc::EPERM), Err(Some(libc::EPERM)));
        assert_eq!(answer(RTM_NEWADDR, 0), Err(None));
        assert!(result_of(&[]).is_err());
    }
}
