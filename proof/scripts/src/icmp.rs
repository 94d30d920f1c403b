//! What routers on the way say: ICMP errors that quote a segment of the netstack's. Called by `run.rs`.

use std::net::IpAddr;

use firelane_wire::{Icmpv4Repr, Icmpv4Unreachable, Icmpv6Repr, IpProtocol, Ipv4Repr, Ipv6Repr, icmpv6};

/// What a router quotes of a TCP segment: the first eight bytes, ports and number (RFC 792).
const QUOTED_TCP: usize = 8;

/// "Too big" (RFC 1191 §4, RFC 4443 §3.2) for a segment from `src` to `dst` whose sequence number is `seq`: the next
/// link carries segments of `mss`.
pub(crate) fn too_big(
    src: IpAddr,
    dst: IpAddr,
    ports: (u16, u16),
    seq: u32,
    mss: u16,
) -> (IpProtocol, Vec<u8>) {
    let mut tcp = [0; QUOTED_TCP];
    tcp[..2].copy_from_slice(&ports.0.to_be_bytes());
    tcp[2..4].copy_from_slice(&ports.1.to_be_bytes());
    tcp[4..].copy_from_slice(&seq.to_be_bytes());
    match (src, dst) {
        (IpAddr::V4(src), IpAddr::V4(dst)) => {
            let mut header = Ipv4Repr::new(src, dst, IpProtocol::TCP, 1480);
            header.dont_fragment = true;
            let mut quoted = vec![0; header.emitted_len()];
            header.emit(&mut quoted);
            quoted.extend_from_slice(&tcp);
            let reason = Icmpv4Unreachable::FragmentationNeeded { mtu: mss + 40 };
            let repr = Icmpv4Repr::Unreachable { reason, quoted: &quoted };
            let mut message = vec![0; repr.emitted_len()];
            repr.emit(&mut message);
            (IpProtocol::ICMPV4, message)
        }
        (IpAddr::V6(src), IpAddr::V6(dst)) => {
            let header = Ipv6Repr::new(src, dst, IpProtocol::TCP, 1460);
            let mut quoted = vec![0; header.emitted_len()];
            header.emit(&mut quoted);
            quoted.extend_from_slice(&tcp);
            let repr = Icmpv6Repr::PacketTooBig { mtu: u32::from(mss) + 60, quoted: &quoted };
            let mut message = vec![0; repr.emitted_len()];
            repr.emit(&mut message);
            // The station speaks as the router.
            icmpv6::fill_checksum(&mut message, dst, src);
            (IpProtocol::ICMPV6, message)
        }
        _ => unreachable!("both addresses are of the script's family"),
    }
}
