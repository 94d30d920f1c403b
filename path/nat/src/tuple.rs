//! Between whom a packet goes: what names a session's packets on one of their two ways.

use core::net::Ipv4Addr;

use firelane_wire::IpProtocol;
use siphasher::sip::SipHasher13;

/// The ends of a packet. An ICMP query has its identifier for a port of the one who asks, and zero for the other's; what has no
/// ports that may change has zeros.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Tuple {
    /// Who sends it.
    pub src: Ipv4Addr,
    /// Whom it is for.
    pub dst: Ipv4Addr,
    /// The sender's port, and the other's.
    pub ports: [u16; 2],
    /// What it is.
    pub protocol: IpProtocol,
}

impl Tuple {
    /// What comes back.
    #[must_use]
    pub const fn reversed(self) -> Self {
        let [from, to] = self.ports;
        Self { src: self.dst, dst: self.src, ports: [to, from], protocol: self.protocol }
    }

    pub(crate) fn hash(&self, hasher: &SipHasher13) -> u32 {
        let mut bytes = [0; 13];
        bytes[..4].copy_from_slice(&self.src.octets());
        bytes[4..8].copy_from_slice(&self.dst.octets());
        bytes[8..10].copy_from_slice(&self.ports[0].to_ne_bytes());
        bytes[10..12].copy_from_slice(&self.ports[1].to_ne_bytes());
        bytes[12] = self.protocol.0;
        hasher.hash(&bytes) as u32
    }
}
