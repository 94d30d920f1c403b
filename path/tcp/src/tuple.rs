//! The four numbers that name a connection, small enough for tables of many.
//!
//! Addresses of both families in one form (an IPv4 address is its mapped IPv6 one), so that a key has one layout
//! and 36 bytes. Used by the tables of what is not yet a connection (`syn.rs`) or was one (`time_wait.rs`).

use core::hash::BuildHasher;
use core::net::{IpAddr, Ipv6Addr, SocketAddr};

use firelane_units::Port;
use siphasher::sip::SipHasher13;

/// Local and remote address and port.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Tuple {
    local: [u8; 16],
    remote: [u8; 16],
    local_port: Port,
    remote_port: Port,
}

impl Tuple {
    /// The connection between `local` and `remote`.
    pub fn new(local: SocketAddr, remote: SocketAddr) -> Self {
        Self {
            local: octets(local.ip()),
            remote: octets(remote.ip()),
            local_port: Port(local.port()),
            remote_port: Port(remote.port()),
        }
    }

    /// Our end.
    pub fn local(&self) -> SocketAddr {
        SocketAddr::new(address(self.local), self.local_port.0)
    }

    /// The peer's end.
    pub fn remote(&self) -> SocketAddr {
        SocketAddr::new(address(self.remote), self.remote_port.0)
    }
}

impl Tuple {
    /// Both addresses in the one form, and both ports; ours first.
    pub(crate) fn parts(&self) -> ([[u8; 16]; 2], [Port; 2]) {
        ([self.local, self.remote], [self.local_port, self.remote_port])
    }

    /// What [`Tuple::parts`] gave.
    pub(crate) fn from_parts([local, remote]: [[u8; 16]; 2], [local_port, remote_port]: [Port; 2]) -> Self {
        Self { local, remote, local_port, remote_port }
    }

    /// Its 36 bytes, for a keyed hash.
    #[inline]
    pub(crate) fn to_bytes(self) -> [u8; 36] {
        let mut bytes = [0; 36];
        bytes[..16].copy_from_slice(&self.local);
        bytes[16..32].copy_from_slice(&self.remote);
        bytes[32..34].copy_from_slice(&self.local_port.0.to_ne_bytes());
        bytes[34..].copy_from_slice(&self.remote_port.0.to_ne_bytes());
        bytes
    }
}

fn octets(ip: IpAddr) -> [u8; 16] {
    match ip {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
        IpAddr::V6(v6) => v6.octets(),
    }
}

fn address(octets: [u8; 16]) -> IpAddr {
    Ipv6Addr::from(octets).to_canonical()
}

/// Keyed hashing, so that a peer who chooses ports cannot choose buckets (R09 of the attack list).
#[derive(Clone)]
pub(crate) struct KeyedHash(SipHasher13);

impl KeyedHash {
    pub(crate) fn new(key: [u8; 16]) -> Self {
        Self(SipHasher13::new_with_key(&key))
    }
}

impl core::fmt::Debug for KeyedHash {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("KeyedHash(..)")
    }
}

impl BuildHasher for KeyedHash {
    type Hasher = SipHasher13;

    fn build_hasher(&self) -> SipHasher13 {
        self.0
    }
}

impl KeyedHash {
    /// As many bits as an index takes.
    pub(crate) fn short(&self, tuple: &Tuple) -> u32 {
        self.of(tuple) as u32
    }

    pub(crate) fn of(&self, tuple: &Tuple) -> u64 {
        self.0.hash(&tuple.to_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_families_read_back() {
        for (local, remote) in [("10.0.0.1:80", "10.0.0.2:4000"), ("[fd00::1]:80", "[fd00::2]:4000")] {
            let (local, remote) = (local.parse().unwrap(), remote.parse().unwrap());
            let tuple = Tuple::new(local, remote);
            assert_eq!((tuple.local(), tuple.remote()), (local, remote));
        }
        assert_eq!(size_of::<Tuple>(), 36);
    }
}
