//! The headers of a way that is in use, in both directions.
//!
//! A connection's packets go one way, and its peer's come back by the same link between the same two addresses. What
//! IP decides about addresses was decided when the way was found ([`Egress`]) and holds while the way
//! is current. So a [`Front`] has Ethernet's and IP's header ready for the next packet out, and
//! [`Ip::returned`] judges a packet that comes back by its header alone. Called by the lane for segments of known
//! connections; whatever is not plain takes `output.rs` and `input.rs`, which come to the same result.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use core::ops::Range;

use firelane_frame::Frame;
use firelane_units::LinkId;
use firelane_wire::{Ecn, EtherType, EthernetRepr, EthernetView, IpProtocol, Ipv4View, Ipv6View, Sum};

use crate::config::LOOPBACK;
use crate::counts::packets;
use crate::egress::Egress;
use crate::input::Delivered;
use crate::input_v4::Cast;
use crate::output::{Upper, header_of, header_v4, header_v6, move_offsets};
use crate::stack::Ip;

/// The longest front: Ethernet and IPv6.
const FRONT_MAX: usize = EthernetView::HEADER_LEN + Ipv6View::HEADER_LEN;

const V4_LEN: usize = Ipv4View::HEADER_LEN;
const V6_LEN: usize = Ipv6View::HEADER_LEN;

/// Where the headers have their TTL and their hop limit.
const TTL_AT: usize = 8;
const HOP_LIMIT_AT: usize = 7;

/// More fragments, and the offset of one.
const FRAGMENT_BITS: u16 = 0x3fff;

/// Ethernet's and IP's header of a connection's packets, but for their length and congestion field.
#[derive(Clone, Copy, Debug)]
pub struct Front {
    bytes: [u8; FRONT_MAX],
    /// The generation of the way that it was made for.
    generation: u32,
    link: LinkId,
    /// The largest IP packet, and the longest payload, whatever is cut later.
    mtu: u16,
    payload_max: u16,
    is_v4: bool,
    /// The sum of IPv4's header without length and congestion field.
    sum: Sum,
    /// The sum of the pseudo-header without the length.
    pseudo: Sum,
}

impl Front {
    /// The sum of the pseudo-header of a payload of `len` bytes.
    #[inline]
    pub fn pseudo(&self, len: usize) -> Sum {
        self.pseudo.add_u32(len as u32)
    }

    /// Whether its packets are IPv4.
    #[inline]
    pub const fn is_v4(&self) -> bool {
        self.is_v4
    }
}

impl Ip {
    /// The front of packets that go by `egress`; `None` while it leads nowhere, or if they may be cut.
    pub fn front(&self, egress: &Egress, upper: Upper) -> Option<Front> {
        let dst = egress.dst_mac.filter(|_| self.is_current(egress) && upper.dont_fragment)?;
        let mut bytes = [0; FRONT_MAX];
        let is_v4 = egress.dst.is_ipv4();
        let ethertype = if is_v4 { EtherType::IPV4 } else { EtherType::IPV6 };
        let (ethernet, header) = bytes.split_at_mut(EthernetView::HEADER_LEN);
        EthernetRepr { dst, src: egress.src_mac, ethertype }.emit(ethernet);
        let upper = Upper { ecn: Ecn::NotCapable, ..upper };
        let hops = upper.hops.unwrap_or(egress.hops);
        let mut sum = Sum::ZERO;
        match (egress.src, egress.dst) {
            (IpAddr::V4(src), IpAddr::V4(dst)) => {
                header_v4(src, dst, upper, hops, 0).emit(header);
                header[2..4].fill(0);
                header[10..12].fill(0);
                sum = Sum::of(&header[..V4_LEN]);
            }
            (IpAddr::V6(src), IpAddr::V6(dst)) => header_v6(src, dst, upper, hops, 0).emit(header),
            _ => return None,
        }
        let pseudo = Sum::pseudo(egress.src, egress.dst, upper.protocol, 0);
        let payload_max = header_of(egress).1 as u16;
        let (generation, link, mtu) = (self.generation, egress.link, egress.mtu.bytes());
        Some(Front { bytes, generation, link, mtu, payload_max, is_v4, sum, pseudo })
    }

    /// Whether nothing has changed since `front` was made.
    #[inline]
    pub const fn is_front_current(&self, front: &Front) -> bool {
        front.generation == self.generation
    }

    /// Sends a payload, with a transport header at its front, behind `front`, as [`Ip::send`] would. Gives the frame
    /// back if it is too large, or if the way is not current.
    #[inline]
    pub fn send_behind(&mut self, front: &Front, mut frame: Frame, ecn: Ecn) -> Result<(), Frame> {
        let len = frame.len();
        let header = if front.is_v4 { V4_LEN } else { V6_LEN };
        let is_cut_later = frame.meta().segmentation.is_some();
        let fits =
            len <= usize::from(front.payload_max) && (is_cut_later || len + header <= usize::from(front.mtu));
        if !fits || !self.is_front_current(front) {
            return Err(frame);
        }
        match front.is_v4 {
            true => front.put_v4(&mut frame, ecn),
            false => front.put_v6(&mut frame, ecn),
        }
        move_offsets(&mut frame, (EthernetView::HEADER_LEN + header) as u16);
        frame.meta_mut().ingress = front.link;
        self.counts.version(front.is_v4).sent += packets(&frame);
        self.out.push(frame);
        Ok(())
    }

    /// Whether packets from `dst` to `src` that come by `link` are in order and for this station, whoever asks.
    pub(crate) fn is_way_back(&self, link: LinkId, src: IpAddr, dst: IpAddr) -> bool {
        let is_ours = match (src, dst) {
            (IpAddr::V4(us), IpAddr::V4(peer)) => {
                !self.is_martian_v4(link, peer) && self.cast_v4(link, us) == Cast::Ours
            }
            (IpAddr::V6(us), IpAddr::V6(peer)) => {
                !self.is_martian_v6(link, peer)
                    && !peer.is_unspecified()
                    && self.cast_v6(link, us) == Cast::Ours
            }
            _ => false,
        };
        link != LOOPBACK && is_ours && !src.is_loopback()
    }

    /// Where in the frame a whole TCP segment is that came back on the way `egress`, in a packet without options; `None`
    /// leaves the frame to [`Ip::input`].
    #[inline]
    pub fn returned(
        &self,
        egress: &Egress,
        link: LinkId,
        frame: &[u8],
        l3_offset: usize,
    ) -> Option<Range<usize>> {
        if link != egress.link || !egress.leads_back || !self.is_current(egress) || frame[0] & 1 != 0 {
            return None;
        }
        let ethertype = frame.get(l3_offset.checked_sub(2)?..)?.first_chunk()?;
        let packet = &frame[l3_offset..];
        let (start, end) = match (EtherType(u16::from_be_bytes(*ethertype)), egress.src, egress.dst) {
            (EtherType::IPV4, IpAddr::V4(us), IpAddr::V4(peer)) => returned_v4(packet, us, peer)?,
            (EtherType::IPV6, IpAddr::V6(us), IpAddr::V6(peer)) => returned_v6(packet, us, peer)?,
            _ => return None,
        };
        Some(l3_offset + start..l3_offset + end)
    }
}

impl Ip {
    /// Takes a packet that [`Ip::returned`] would take, as [`Ip::input`] would deliver it. Gives the frame back otherwise.
    #[inline]
    pub fn input_returned(
        &mut self,
        egress: &Egress,
        link: LinkId,
        frame: Frame,
        l3_offset: usize,
    ) -> Result<Delivered, Frame> {
        let Some(payload) = self.returned(egress, link, frame.as_slice(), l3_offset) else {
            return Err(frame);
        };
        let is_v4 = egress.dst.is_ipv4();
        self.count_returned(is_v4, &frame);
        let mut packet = Delivered {
            protocol: IpProtocol::TCP,
            src: egress.dst,
            dst: egress.src,
            payload,
            ecn: Ecn::NotCapable,
            ttl: frame.as_slice()[l3_offset + if is_v4 { TTL_AT } else { HOP_LIMIT_AT }],
            is_broadcast_or_multicast: false,
            link,
            l3_offset,
            frame,
        };
        packet.ecn = Ecn::from_bits(packet.traffic_class());
        Ok(packet)
    }
}

impl Front {
    #[inline]
    fn put_v4(&self, frame: &mut Frame, ecn: Ecn) {
        const LEN: usize = EthernetView::HEADER_LEN + V4_LEN;
        let total = (frame.len() + V4_LEN) as u16;
        let sum = self.sum.add_u16(total).add_u16(u16::from(ecn.bits()));
        let front: &mut [u8; LEN] = fixed(frame.prepend(LEN));
        front.copy_from_slice(&self.bytes[..LEN]);
        let header = &mut front[EthernetView::HEADER_LEN..];
        header[1] |= ecn.bits();
        header[2..4].copy_from_slice(&total.to_be_bytes());
        header[10..12].copy_from_slice(&sum.checksum().to_be_bytes());
    }

    #[inline]
    fn put_v6(&self, frame: &mut Frame, ecn: Ecn) {
        let len = frame.len() as u16;
        let front: &mut [u8; FRONT_MAX] = fixed(frame.prepend(FRONT_MAX));
        *front = self.bytes;
        let header = &mut front[EthernetView::HEADER_LEN..];
        header[1] |= ecn.bits() << 4;
        header[4..6].copy_from_slice(&len.to_be_bytes());
    }
}

#[inline]
fn fixed<const N: usize>(bytes: &mut [u8]) -> &mut [u8; N] {
    bytes.first_chunk_mut().expect("as much was asked for")
}

/// Where the segment begins and ends in an IPv4 packet from `peer` to `us`.
#[inline]
fn returned_v4(packet: &[u8], us: Ipv4Addr, peer: Ipv4Addr) -> Option<(usize, usize)> {
    let header = packet.first_chunk::<V4_LEN>()?;
    let half = |at: usize| u16::from_be_bytes([header[at], header[at + 1]]);
    let end = usize::from(half(2));
    let is_plain = header[0] == 0x45
        && half(6) & FRAGMENT_BITS == 0
        && header[9] == IpProtocol::TCP.0
        && header[12..16] == peer.octets()
        && header[16..20] == us.octets()
        && (V4_LEN..=packet.len()).contains(&end)
        // RFC 1122 §3.2.1.2: always verified, whatever a device says.
        && Sum::of_fixed(header).is_valid();
    is_plain.then_some((V4_LEN, end))
}

/// The same in an IPv6 packet.
#[inline]
fn returned_v6(packet: &[u8], us: Ipv6Addr, peer: Ipv6Addr) -> Option<(usize, usize)> {
    let header = packet.first_chunk::<V6_LEN>()?;
    let end = V6_LEN + usize::from(u16::from_be_bytes([header[4], header[5]]));
    let is_plain = header[0] >> 4 == 6
        && header[6] == IpProtocol::TCP.0
        && header[8..24] == peer.octets()
        && header[24..40] == us.octets()
        && end <= packet.len();
    is_plain.then_some((V6_LEN, end))
}
