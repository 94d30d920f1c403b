//! Frames for the targets of IP and of the lane: made plausible on the way in, judged on the way out.
//!
//! A mutated frame with wrong checksums ends at the first check, so the input may ask for repairs. What a
//! netstack sends must be right without any.

use core::net::IpAddr;

use firelane_units::MacAddr;
use firelane_wire::*;

/// What is put right in a frame before it arrives, as bits of the input.
#[derive(Clone, Copy, Debug)]
pub(super) struct Repair(pub(super) u8);

impl Repair {
    const ADDRESS: u8 = 1;
    const LENGTHS: u8 = 2;
    const SUMS: u8 = 4;
    const DESTINATION: u8 = 8;

    /// Repairs `frame`, sent to the station `mac` with the addresses `own`.
    pub(super) fn apply(self, frame: &mut [u8], mac: MacAddr, own: [IpAddr; 2]) {
        if self.0 & Self::ADDRESS != 0
            && let Some(dst) = frame.get_mut(..6)
        {
            dst.copy_from_slice(&mac.0);
        }
        let Some((header, packet)) = frame.split_at_mut_checked(14) else { return };
        match (header[12], header[13], packet.len()) {
            (0x08, 0x00, 20..) => self.apply_v4(packet, own),
            (0x86, 0xdd, 40..) => self.apply_v6(packet, own),
            _ => {}
        }
    }

    fn apply_v4(self, packet: &mut [u8], own: [IpAddr; 2]) {
        let length = packet.len() as u16;
        if self.0 & Self::LENGTHS != 0 {
            packet[2..4].copy_from_slice(&length.to_be_bytes());
        }
        if let (IpAddr::V4(v4), true) = (own[0], self.0 & Self::DESTINATION != 0) {
            packet[16..20].copy_from_slice(&v4.octets());
        }
        let header_len = usize::from(packet[0] & 0x0f) * 4;
        if self.0 & Self::SUMS == 0 || header_len < 20 || header_len > packet.len() {
            return;
        }
        packet[10..12].fill(0);
        let sum = Sum::of(&packet[..header_len]).checksum();
        packet[10..12].copy_from_slice(&sum.to_be_bytes());
        let Ok(view) = Ipv4View::parse(packet) else { return };
        let (src, dst, protocol, is_fragment) =
            (view.src().into(), view.dst().into(), view.protocol(), view.is_fragment());
        let end = usize::from(view.total_len());
        if !is_fragment {
            self.apply_transport(&mut packet[header_len..end], src, dst, protocol);
        }
    }

    fn apply_v6(self, packet: &mut [u8], own: [IpAddr; 2]) {
        let length = (packet.len() - 40) as u16;
        if self.0 & Self::LENGTHS != 0 {
            packet[4..6].copy_from_slice(&length.to_be_bytes());
        }
        if let (IpAddr::V6(v6), true) = (own[1], self.0 & Self::DESTINATION != 0) {
            packet[24..40].copy_from_slice(&v6.octets());
        }
        let Ok(view) = Ipv6View::parse(packet) else { return };
        let Ok(chain) = ext::walk(&view) else { return };
        let (src, dst) = (view.src().into(), view.dst().into());
        let (start, end) = (usize::from(chain.offset), 40 + view.payload().len());
        if self.0 & Self::SUMS != 0 && !chain.is_fragment() {
            self.apply_transport(&mut packet[start..end], src, dst, chain.upper);
        }
    }

    fn apply_transport(self, bytes: &mut [u8], src: IpAddr, dst: IpAddr, protocol: IpProtocol) {
        let length = bytes.len();
        let (at, is_summed) = match protocol {
            IpProtocol::TCP if length >= 20 => (16, true),
            IpProtocol::UDP if length >= 8 => (6, true),
            IpProtocol::ICMPV6 if length >= 4 => (2, true),
            IpProtocol::ICMPV4 if length >= 4 => (2, false),
            _ => return,
        };
        if protocol == IpProtocol::UDP && self.0 & Self::LENGTHS != 0 {
            bytes[4..6].copy_from_slice(&(length as u16).to_be_bytes());
        }
        bytes[at..at + 2].fill(0);
        let pseudo = if is_summed { Sum::pseudo(src, dst, protocol, length as u32) } else { Sum::ZERO };
        let sum = pseudo.combine(Sum::of(bytes)).checksum_nonzero();
        bytes[at..at + 2].copy_from_slice(&sum.to_be_bytes());
    }
}

/// Asserts that a frame that leaves is one that any station would take. `is_open` says that its transport's
/// checksum is left to the device.
pub(super) fn assert_well_formed(frame: &[u8], mac: MacAddr, is_open: bool) {
    let ethernet = EthernetView::parse(frame).expect("a frame has an Ethernet header");
    assert_eq!(ethernet.src(), mac, "the source is the VNIC's own address");
    let packet = ethernet.payload();
    match ethernet.ethertype() {
        EtherType::ARP => assert!(ArpView::parse(packet).is_ok(), "{frame:02x?}"),
        EtherType::IPV4 => {
            let view = Ipv4View::parse(packet).expect("lengths agree");
            assert!(view.is_checksum_valid(), "{frame:02x?}");
            assert!(!view.src().is_multicast() && !view.src().is_broadcast(), "{frame:02x?}");
            if !view.is_fragment() && !is_open {
                assert_sum(view.payload(), view.src().into(), view.dst().into(), view.protocol());
            }
        }
        EtherType::IPV6 => {
            let view = Ipv6View::parse(packet).expect("lengths agree");
            assert!(!view.src().is_multicast(), "{frame:02x?}");
            let chain = ext::walk(&view).expect("its own extension headers are right");
            if !chain.is_fragment() && !is_open {
                assert_sum(chain.payload(&view), view.src().into(), view.dst().into(), chain.upper);
            }
        }
        other => panic!("a netstack sends no {other}"),
    }
}

fn assert_sum(transport: &[u8], src: IpAddr, dst: IpAddr, protocol: IpProtocol) {
    let is_right = match protocol {
        IpProtocol::TCP => TcpView::parse(transport).is_ok_and(|tcp| tcp.is_checksum_valid(src, dst)),
        IpProtocol::UDP => UdpView::parse(transport).is_ok_and(|udp| udp.is_checksum_valid(src, dst)),
        IpProtocol::ICMPV4 => Icmpv4View::parse(transport).is_ok_and(|icmp| icmp.is_checksum_valid()),
        IpProtocol::ICMPV6 => match (src, dst) {
            (IpAddr::V6(src), IpAddr::V6(dst)) => {
                Icmpv6View::parse(transport).is_ok_and(|icmp| icmp.is_checksum_valid(src, dst))
            }
            _ => false,
        },
        _ => true,
    };
    assert!(is_right, "{protocol} from {src} to {dst}: {transport:02x?}");
}
