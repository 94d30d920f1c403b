//! Gives an interface an address (`linux/if_addr.h`).
//!
//! Called by `open.rs` in a thread that stands in the right network namespace. The older ioctl would do for the first IPv4
//! address alone: a second one takes its place.

use std::io;
use std::net::{IpAddr, Ipv4Addr};

use firelane_units::IpPrefix;
use rustix::net::AddressFamily;

use crate::rtnetlink::{self, attribute};

const RTM_NEWADDR: u16 = 20;
const IFA_ADDRESS: u16 = 1;
const IFA_LOCAL: u16 = 2;
const IFA_BROADCAST: u16 = 4;

/// Gives the interface with this index an address.
pub(crate) fn add(index: u32, prefix: IpPrefix) -> io::Result<()> {
    rtnetlink::ask(request(index, prefix))
}

fn request(index: u32, prefix: IpPrefix) -> Vec<u8> {
    let family = match prefix.addr() {
        IpAddr::V4(_) => AddressFamily::INET,
        IpAddr::V6(_) => AddressFamily::INET6,
    };
    // struct ifaddrmsg: family, prefix length, flags, scope (global), index.
    let [a, b, c, d] = index.to_ne_bytes();
    let header = [family.as_raw() as u8, prefix.prefix_len(), 0, 0, a, b, c, d];
    let mut message = rtnetlink::message(RTM_NEWADDR, &header);
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
    message
}

/// The broadcast address of a subnet that is large enough to have one (RFC 3021).
fn broadcast(addr: Ipv4Addr, prefix_len: u8) -> Option<Ipv4Addr> {
    (prefix_len < 31).then(|| Ipv4Addr::from_bits(addr.to_bits() | u32::MAX >> prefix_len))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rtnetlink::HEADER_BYTES;

    #[test]
    fn a_request_says_how_long_its_attributes_are() {
        for (prefix, attributes) in [("10.0.0.1/24", 3), ("10.0.0.1/31", 2), ("fd00::1/64", 1)] {
            let message = request(7, prefix.parse().unwrap());
            let (mut at, mut count) = (HEADER_BYTES + 8, 0);
            while at < message.len() {
                at += usize::from(u16::from_ne_bytes([message[at], message[at + 1]]));
                count += 1;
            }
            assert_eq!((at, count), (message.len(), attributes), "{prefix}");
        }
        assert_eq!(broadcast(Ipv4Addr::new(10, 1, 2, 3), 23), Some(Ipv4Addr::new(10, 1, 3, 255)));
    }
}
