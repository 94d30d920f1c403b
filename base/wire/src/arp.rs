//! ARP for IPv4 over Ethernet (RFC 826, RFC 5227).
//!
//! Parsed and emitted by `path/ip`'s neighbour table only. Every other hardware, protocol, address length
//! or operation (reverse ARP among them) is an error here, so nothing behind this view can be led to read
//! addresses of another size.

use core::net::Ipv4Addr;

use firelane_units::MacAddr;

use crate::bytes::{array, be16, fixed, put};

parse_error! {
    /// Why bytes are no ARP packet for IPv4 over Ethernet.
    ArpError {
        /// Fewer than 28 bytes.
        Truncated = "shorter than an ARP packet" => BadArp,
        /// The hardware type is not Ethernet.
        HardwareType = "the ARP hardware type is not Ethernet" => BadArp,
        /// The protocol type is not IPv4.
        ProtocolType = "the ARP protocol type is not IPv4" => BadArp,
        /// The hardware address length is not 6.
        HardwareLength = "the ARP hardware address length is not 6" => BadArp,
        /// The protocol address length is not 4.
        ProtocolLength = "the ARP protocol address length is not 4" => BadArp,
        /// Neither a request nor a reply.
        Operation = "the ARP operation is neither request nor reply" => BadArp,
    }
}

/// What an ARP packet says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ArpOperation {
    /// Who has the target's address?
    Request,
    /// The sender has it.
    Reply,
}

/// An ARP packet for IPv4 over Ethernet.
#[derive(Clone, Copy, Debug)]
pub struct ArpView<'a> {
    packet: &'a [u8; ArpView::PACKET_LEN],
    operation: ArpOperation,
}

impl ArpView<'_> {
    /// Bytes of a packet; what follows is padding.
    pub const PACKET_LEN: usize = 28;
}

impl<'a> ArpView<'a> {
    /// Checks every field whose value is given.
    #[inline]
    pub fn parse(bytes: &'a [u8]) -> Result<Self, ArpError> {
        let packet: &[u8; ArpView::PACKET_LEN] = bytes.first_chunk().ok_or(ArpError::Truncated)?;
        if be16(packet, 0) != 1 {
            return Err(ArpError::HardwareType);
        }
        if be16(packet, 2) != 0x0800 {
            return Err(ArpError::ProtocolType);
        }
        if packet[4] != 6 {
            return Err(ArpError::HardwareLength);
        }
        if packet[5] != 4 {
            return Err(ArpError::ProtocolLength);
        }
        let operation = match be16(packet, 6) {
            1 => ArpOperation::Request,
            2 => ArpOperation::Reply,
            _ => return Err(ArpError::Operation),
        };
        Ok(Self { packet, operation })
    }

    /// Whether it asks or answers.
    #[inline]
    pub fn operation(&self) -> ArpOperation {
        self.operation
    }

    /// The sender's Ethernet address.
    #[inline]
    pub fn sender_mac(&self) -> MacAddr {
        MacAddr(array(self.packet, 8))
    }

    /// The sender's IPv4 address; unspecified in a probe.
    #[inline]
    pub fn sender_ip(&self) -> Ipv4Addr {
        Ipv4Addr::from(array::<4, _>(self.packet, 14))
    }

    /// The target's Ethernet address; means nothing in a request.
    #[inline]
    pub fn target_mac(&self) -> MacAddr {
        MacAddr(array(self.packet, 18))
    }

    /// The address asked for, or the one that asked.
    #[inline]
    pub fn target_ip(&self) -> Ipv4Addr {
        Ipv4Addr::from(array::<4, _>(self.packet, 24))
    }
}

/// An ARP packet as values.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ArpRepr {
    /// Whether it asks or answers.
    pub operation: ArpOperation,
    /// The sender's Ethernet address.
    pub sender_mac: MacAddr,
    /// The sender's IPv4 address; unspecified in a probe.
    pub sender_ip: Ipv4Addr,
    /// The target's Ethernet address; zero in a request.
    pub target_mac: MacAddr,
    /// The address asked for, or the one that asked.
    pub target_ip: Ipv4Addr,
}

impl ArpRepr {
    /// The question who has `target_ip`.
    pub const fn request(sender_mac: MacAddr, sender_ip: Ipv4Addr, target_ip: Ipv4Addr) -> Self {
        Self { operation: ArpOperation::Request, sender_mac, sender_ip, target_mac: MacAddr::ZERO, target_ip }
    }

    /// The question whether anybody has `address` already, without claiming it (RFC 5227 §1.1).
    pub const fn probe(sender_mac: MacAddr, address: Ipv4Addr) -> Self {
        Self::request(sender_mac, Ipv4Addr::UNSPECIFIED, address)
    }

    /// The claim that `address` is the sender's (RFC 5227 §1.1; a request, as hosts update from those).
    pub const fn announcement(sender_mac: MacAddr, address: Ipv4Addr) -> Self {
        Self::request(sender_mac, address, address)
    }

    /// The view's packet as values.
    pub fn parse(view: &ArpView<'_>) -> Self {
        Self {
            operation: view.operation(),
            sender_mac: view.sender_mac(),
            sender_ip: view.sender_ip(),
            target_mac: view.target_mac(),
            target_ip: view.target_ip(),
        }
    }

    /// The answer to this request from the owner of its target address.
    pub const fn reply_from(&self, owner: MacAddr) -> Self {
        Self {
            operation: ArpOperation::Reply,
            sender_mac: owner,
            sender_ip: self.target_ip,
            target_mac: self.sender_mac,
            target_ip: self.sender_ip,
        }
    }

    /// Whether it asks for an address on behalf of nobody (RFC 5227 §1.1).
    pub fn is_probe(&self) -> bool {
        self.operation == ArpOperation::Request && self.sender_ip.is_unspecified()
    }

    /// Whether the sender claims an address that nobody asked for.
    pub fn is_gratuitous(&self) -> bool {
        self.sender_ip == self.target_ip
    }

    /// Bytes that [`emit`](Self::emit) writes.
    pub const fn emitted_len(&self) -> usize {
        ArpView::PACKET_LEN
    }

    /// Writes the packet to the front of `buffer`.
    pub fn emit(&self, buffer: &mut [u8]) {
        let packet = fixed::<{ ArpView::PACKET_LEN }>(buffer);
        let operation = match self.operation {
            ArpOperation::Request => 1,
            ArpOperation::Reply => 2,
        };
        put(packet, 0, [0, 1, 8, 0, 6, 4, 0, operation]);
        put(packet, 8, self.sender_mac.0);
        put(packet, 14, self.sender_ip.octets());
        put(packet, 18, self.target_mac.0);
        put(packet, 24, self.target_ip.octets());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_is_emitted_is_read_back(reply: bool, macs: [[u8; 6]; 2], ips: [[u8; 4]; 2]) {
            let repr = ArpRepr {
                operation: if reply { ArpOperation::Reply } else { ArpOperation::Request },
                sender_mac: MacAddr(macs[0]),
                sender_ip: ips[0].into(),
                target_mac: MacAddr(macs[1]),
                target_ip: ips[1].into(),
            };
            let mut buffer = [0; 60];
            repr.emit(&mut buffer);
            prop_assert_eq!(ArpRepr::parse(&ArpView::parse(&buffer).unwrap()), repr);
        }
    }

    /// A request as `ping` causes it on Linux.
    const REQUEST: [u8; 28] =
        [0, 1, 8, 0, 6, 4, 0, 1, 2, 8, 0x20, 0xaa, 0xbb, 1, 10, 0, 0, 1, 0, 0, 0, 0, 0, 0, 10, 0, 0, 10];

    #[test]
    fn a_known_request_and_its_answer() {
        let request = ArpRepr::parse(&ArpView::parse(&REQUEST).unwrap());
        let asker = MacAddr([2, 8, 0x20, 0xaa, 0xbb, 1]);
        let (one, ten) = (Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 10));
        assert_eq!(request, ArpRepr::request(asker, one, ten));
        let owner = MacAddr([2, 8, 0x20, 0, 0, 2]);
        let reply = request.reply_from(owner);
        assert_eq!((reply.sender_ip, reply.sender_mac), (ten, owner));
        assert_eq!((reply.target_ip, reply.target_mac), (one, asker));
        assert!(ArpRepr::probe(owner, ten).is_probe() && ArpRepr::announcement(owner, ten).is_gratuitous());
    }

    /// A01: wrong types, lengths, operations and a packet that ends early are errors of their own.
    #[test]
    fn a01_malformed() {
        for (at, value, error) in [
            (1, 6, ArpError::HardwareType),
            (0, 1, ArpError::HardwareType),
            (2, 0x86, ArpError::ProtocolType),
            (4, 0, ArpError::HardwareLength),
            (4, 255, ArpError::HardwareLength),
            (5, 16, ArpError::ProtocolLength),
            (7, 0, ArpError::Operation),
            (7, 3, ArpError::Operation),
            (7, 4, ArpError::Operation),
            (6, 1, ArpError::Operation),
        ] {
            let mut packet = REQUEST;
            packet[at] = value;
            assert_eq!(ArpView::parse(&packet).unwrap_err(), error, "byte {at} = {value}");
        }
        for length in 0..REQUEST.len() {
            assert_eq!(ArpView::parse(&REQUEST[..length]).unwrap_err(), ArpError::Truncated);
        }
    }
}
