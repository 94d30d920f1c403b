//! What is written on a datagram while it waits in a ring: whom it is from or to, and what IP is to know or has seen.
//!
//! A record is an envelope of [`RECORD_BYTES`] and the payload. Sockets and lanes write and read them on both sides of a
//! byte ring, and programs in shared memory (`drivers/shm`), so any bytes can be read as one. RFC 768, RFC 3542 §6.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use firelane_units::{Instant, LinkId};

/// The bytes of a ring that a datagram takes beside its payload.
pub const RECORD_BYTES: usize = 60;

/// The most datagrams that one record stands for: Linux' `UDP_MAX_SEGMENTS`.
pub const SEGMENTS_MAX: usize = 128;

/// The outside of a datagram. What is `None` is not known of one that came, and as the socket has it for one that goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Envelope {
    /// The other side's address: where it came from, or where it goes.
    pub peer: SocketAddr,
    /// This side's address.
    pub local: Option<IpAddr>,
    /// This host's own address by which the sender knows it, of one that came to many by IPv4.
    pub own: Option<Ipv4Addr>,
    /// The link by which it came, or is to leave.
    pub link: Option<LinkId>,
    /// Its traffic class: the octet that TOS was, with differentiated services and ECN.
    pub tos: Option<u8>,
    /// Its TTL or hop limit.
    pub hops: Option<u8>,
    /// Whether it is not to be fragmented.
    pub dont_fragment: Option<bool>,
    /// Not zero: the payload is several datagrams of so many bytes each, of which the last may be shorter.
    pub segment: u16,
    /// When its lane took it from the link, by the lane's clock.
    pub arrived: Option<Instant>,
    /// How many before it had no room in its queue, since there is one.
    pub dropped: u32,
}

/// Bits of the octet that says what is there.
mod has {
    pub(super) const PEER_V6: u8 = 1;
    pub(super) const LOCAL: u8 = 2;
    pub(super) const LOCAL_V6: u8 = 4;
    pub(super) const LINK: u8 = 8;
    pub(super) const TOS: u8 = 16;
    pub(super) const HOPS: u8 = 32;
    pub(super) const WHOLE: u8 = 64;
    pub(super) const CUT: u8 = 128;
}

impl Envelope {
    /// Nothing but the other side's address.
    pub const fn to(peer: SocketAddr) -> Self {
        Self {
            peer,
            local: None,
            own: None,
            link: None,
            tos: None,
            hops: None,
            dont_fragment: None,
            segment: 0,
            arrived: None,
            dropped: 0,
        }
    }

    /// The most bytes of payload that a packet to or from the peer can carry. IPv6 does not count its own header.
    pub const fn payload_max(&self) -> usize {
        let is_v4 = match self.peer.ip() {
            IpAddr::V4(_) => true,
            IpAddr::V6(address) => address.to_ipv4_mapped().is_some(),
        };
        65_535 - 8 - if is_v4 { 20 } else { 0 }
    }

    /// How many datagrams a payload of `len` bytes is.
    pub const fn segments(&self, len: usize) -> usize {
        match self.segment as usize {
            0 => 1,
            segment if len <= segment => 1,
            segment => len.div_ceil(segment),
        }
    }

    /// Whether a datagram behind this one may stand in the same record, which arrived when its first did.
    pub fn joins(&self, next: &Self) -> bool {
        let same = |it: &Self| Self { segment: 0, arrived: None, dropped: 0, ..*it };
        same(self) == same(next)
    }

    /// The record's begin: length (4 bytes), the peer's port (2), what is there (1), a byte unused, the peer's address (16,
    /// IPv4 in the first four), this side's (16; behind IPv4's four its own), link (4), traffic class, hops, bytes per datagram (2), one nanosecond more than
    /// when it arrived (8), datagrams that had no room before it (4). Native order: both sides are on one machine.
    pub fn encode(&self, len: usize) -> [u8; RECORD_BYTES] {
        let mut record = [0; RECORD_BYTES];
        let mut there = 0;
        record[..4].copy_from_slice(&(len as u32).to_ne_bytes());
        record[4..6].copy_from_slice(&self.peer.port().to_ne_bytes());
        there |= write_ip(&mut record[8..24], self.peer.ip(), has::PEER_V6);
        if let Some(local) = self.local {
            there |= has::LOCAL | write_ip(&mut record[24..40], local, has::LOCAL_V6);
        }
        if let (Some(IpAddr::V4(_)), Some(own)) = (self.local, self.own) {
            record[28..32].copy_from_slice(&own.octets());
        }
        if let Some(link) = self.link {
            there |= has::LINK;
            record[40..44].copy_from_slice(&link.0.to_ne_bytes());
        }
        if let Some(tos) = self.tos {
            there |= has::TOS;
            record[44] = tos;
        }
        if let Some(hops) = self.hops {
            there |= has::HOPS;
            record[45] = hops;
        }
        there |= self.dont_fragment.map_or(0, |on| if on { has::WHOLE } else { has::CUT });
        record[46..48].copy_from_slice(&self.segment.to_ne_bytes());
        let arrived = self.arrived.map_or(0, |at| at.nanos().saturating_add(1));
        record[48..56].copy_from_slice(&arrived.to_ne_bytes());
        record[56..].copy_from_slice(&self.dropped.to_ne_bytes());
        record[6] = there;
        record
    }

    /// The envelope and the payload's length, as any bytes say.
    pub fn decode(record: &[u8; RECORD_BYTES]) -> (Self, usize) {
        let there = |bit: u8| record[6] & bit != 0;
        let word = |at: usize| {
            let [.., a, b, c, d] = record[..at + 4] else { return 0 };
            u32::from_ne_bytes([a, b, c, d])
        };
        let half = |at: usize| u16::from_ne_bytes([record[at], record[at + 1]]);
        let own = record[28..].first_chunk::<4>().map(|&octets| Ipv4Addr::from(octets));
        let arrived = record[48..].first_chunk().map_or(0, |nanos| u64::from_ne_bytes(*nanos));
        let envelope = Self {
            peer: SocketAddr::new(read_ip(&record[8..24], there(has::PEER_V6)), half(4)),
            local: there(has::LOCAL).then(|| read_ip(&record[24..40], there(has::LOCAL_V6))),
            own: own.filter(|own| there(has::LOCAL) && !there(has::LOCAL_V6) && !own.is_unspecified()),
            link: there(has::LINK).then(|| LinkId(word(40))),
            tos: there(has::TOS).then_some(record[44]),
            hops: there(has::HOPS).then_some(record[45]),
            dont_fragment: (there(has::WHOLE) || there(has::CUT)).then_some(there(has::WHOLE)),
            segment: half(46),
            arrived: arrived.checked_sub(1).map(Instant::from_nanos),
            dropped: word(56),
        };
        (envelope, word(0) as usize)
    }
}

/// Writes an address; the bit, if it is IPv6's.
fn write_ip(to: &mut [u8], ip: IpAddr, bit: u8) -> u8 {
    match ip {
        IpAddr::V4(address) => {
            to[..4].copy_from_slice(&address.octets());
            0
        }
        IpAddr::V6(address) => {
            to.copy_from_slice(&address.octets());
            bit
        }
    }
}

fn read_ip(from: &[u8], is_v6: bool) -> IpAddr {
    match (is_v6, from.first_chunk::<16>(), from.first_chunk::<4>()) {
        (true, Some(&octets), _) => Ipv6Addr::from(octets).into(),
        (_, _, Some(&octets)) => IpAddr::from(octets),
        (_, _, None) => Ipv6Addr::UNSPECIFIED.into(),
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn ip() -> impl Strategy<Value = IpAddr> {
        prop_oneof![any::<[u8; 4]>().prop_map(IpAddr::from), any::<[u8; 16]>().prop_map(IpAddr::from)]
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(
            peer in (ip(), any::<u16>()), local in prop::option::of(ip()), link in prop::option::of(any::<u32>()),
            tos: Option<u8>, hops: Option<u8>, dont_fragment: Option<bool>, segment: u16, len in 0usize..1 << 17,
            arrived in prop::option::of(0..u64::MAX), dropped: u32, own: Option<[u8; 4]>,
        ) {
            let (link, arrived) = (link.map(LinkId), arrived.map(Instant::from_nanos));
            let peer = SocketAddr::from(peer);
            let own = own.map(Ipv4Addr::from).filter(|own| local.is_some_and(|it| it.is_ipv4()) && !own.is_unspecified());
            let envelope = Envelope { peer, local, own, link, tos, hops, dont_fragment, segment, arrived, dropped };
            prop_assert_eq!(Envelope::decode(&envelope.encode(len)), (envelope, len));
        }

        #[test]
        fn any_bytes_are_an_envelope(bytes in any::<[u8; 32]>(), more in any::<[u8; 28]>()) {
            let mut record = [0; RECORD_BYTES];
            record[..32].copy_from_slice(&bytes);
            record[32..].copy_from_slice(&more);
            let (envelope, len) = Envelope::decode(&record);
            prop_assert_eq!(Envelope::decode(&envelope.encode(len)), (envelope, len));
        }
    }

    #[test]
    fn limits_and_segments_by_address_and_length() {
        for (peer, max) in [("10.0.0.1:1", 65_507), ("[::ffff:10.0.0.1]:1", 65_507), ("[fd00::1]:1", 65_527)]
        {
            assert_eq!(Envelope::to(peer.parse().unwrap()).payload_max(), max);
        }
        let of = |segment| Envelope { segment, ..Envelope::to(SocketAddr::from(([1, 2, 3, 4], 5))) };
        for (segment, len, count) in [(0, 9000, 1), (1000, 0, 1), (1000, 1000, 1), (1000, 1001, 2), (1, 5, 5)]
        {
            assert_eq!(of(segment).segments(len), count, "{segment} {len}");
        }
        assert!(of(3).joins(&of(0)));
        assert!(!of(3).joins(&Envelope { hops: Some(1), ..of(3) }));
        assert!(of(3).joins(&Envelope { arrived: Some(Instant::ZERO), ..of(3) }), "whenever it came");
    }
}
