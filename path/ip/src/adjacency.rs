//! The next station of forwarded packets, found once and used for the next ones (RFC 1812 §5.2, RFC 1624).
//!
//! An [`Adjacency`] holds what does not differ between packets that leave to one station: the link, both stations'
//! addresses, the MTU. `forward.rs` finds it for the first packet of a flow; the lane keeps it with the flow while the
//! generation is the same; [`Ip::pass_on`] checks what each packet has of its own and rewrites it in place. Whatever
//! is unusual about a packet gives it back, and it takes the long way.

use firelane_frame::{FlowTag, Frame};
use firelane_units::{LinkId, MacAddr, Mtu};
use firelane_wire::{EtherType, EthernetView, IpProtocol, Ipv4View, Ipv6View, Sum, ipv4, ipv6};

use crate::counts::packets;
use crate::output::Hop;
use crate::stack::Ip;

/// The next station, and the link to it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Adjacency {
    /// By which link.
    pub link: LinkId,
    /// The link's own address.
    pub src_mac: MacAddr,
    /// The next station's.
    pub dst_mac: MacAddr,
    /// The largest packet.
    pub mtu: Mtu,
    /// The generation in which this was found.
    pub generation: u32,
}

/// What [`Adjacency::usual`] found out about a frame.
#[derive(Clone, Copy, Debug)]
pub struct Usual {
    /// The packet's bytes.
    len: usize,
}

/// Where a packet begins that has no tag.
const L3: usize = EthernetView::HEADER_LEN;
/// Where IPv4's header without options ends.
const V4_END: usize = L3 + Ipv4View::HEADER_LEN;

impl Adjacency {
    pub(crate) fn of(hop: &Hop, mtu: Option<Mtu>, generation: u32) -> Option<Self> {
        let (dst_mac, mtu) = (hop.dst_mac?, mtu?);
        Some(Self { link: hop.link, src_mac: hop.src_mac, dst_mac, mtu, generation })
    }

    /// Whether a frame is of the kind that goes this way as it is: a station's own untagged one, whose packet has neither options
    /// nor extension headers, a right sum, a hop to spare, and no more bytes than the link takes.
    #[inline]
    pub fn usual(&self, frame: &Frame) -> Option<Usual> {
        let (len, most) = (usual_len(frame.as_slice())?, usize::from(self.mtu.bytes()));
        let fits = match frame.meta().segmentation {
            None => len <= most,
            Some(cut) => usize::from(cut.header_bytes) + usize::from(cut.segment_bytes) <= L3 + most,
        };
        fits.then_some(Usual { len })
    }
}

impl Ip {
    /// Sends a flow's packet by the way of those before it, whose generation is the current one. Gives the frame back,
    /// as it was, if it is not of the usual kind ([`Adjacency::usual`]).
    #[inline]
    pub fn pass_on(&mut self, way: &Adjacency, frame: Frame) -> Result<(), Frame> {
        match way.usual(&frame) {
            Some(usual) => {
                self.pass_usual(way, usual, frame);
                Ok(())
            }
            None => Err(frame),
        }
    }

    /// The same with a frame that is known to be of the usual kind.
    #[inline]
    pub fn pass_usual(&mut self, way: &Adjacency, Usual { len }: Usual, mut frame: Frame) {
        frame.truncate(L3 + len);
        let head = frame.as_mut_slice().first_chunk_mut::<V4_END>();
        let head = head.expect("a usual packet is as long as IPv4's header at least");
        head[..6].copy_from_slice(&way.dst_mac.0);
        head[6..12].copy_from_slice(&way.src_mac.0);
        let is_v4 = head[L3] >> 4 == 4;
        match is_v4 {
            true => ipv4::decrement_ttl(&mut head[L3..]),
            false => ipv6::decrement_hop_limit(&mut frame.as_mut_slice()[L3..]),
        }
        let (counts, packets) = (self.counts.version(is_v4), packets(&frame));
        counts.received += packets;
        counts.forwarded += packets;
        let meta = frame.meta_mut();
        (meta.ingress, meta.flow) = (way.link, FlowTag::NONE);
        self.out.push(frame);
    }
}

/// The length of the packet in a frame, if both are of the usual kind and it has a hop to spare.
#[inline]
fn usual_len(bytes: &[u8]) -> Option<usize> {
    let head = bytes.first_chunk::<V4_END>()?;
    if head[0] & 1 != 0 {
        return None;
    }
    match EtherType(u16::from_be_bytes([head[12], head[13]])) {
        EtherType::IPV4 => {
            let header = head.last_chunk::<{ Ipv4View::HEADER_LEN }>()?;
            let len = usize::from(u16::from_be_bytes([header[2], header[3]]));
            let is_whole = (Ipv4View::HEADER_LEN..=bytes.len() - L3).contains(&len);
            // Version 4, and no options.
            let is_usual = header[0] == 0x45 && header[8] > 1 && Sum::of_fixed(header).is_valid();
            (is_whole && is_usual).then_some(len)
        }
        EtherType::IPV6 => {
            let view = Ipv6View::parse(bytes.get(L3..)?).ok()?;
            let is_plain = matches!(view.next_header(), IpProtocol::TCP | IpProtocol::UDP | IpProtocol::SCTP);
            let is_usual = view.hop_limit() > 1 && is_plain;
            is_usual.then(|| Ipv6View::HEADER_LEN + usize::from(view.payload_len()))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use firelane_wire::Ipv4Repr;
    use proptest::prelude::*;

    /// The same by the view that the long way reads.
    fn by_view(bytes: &[u8]) -> Option<usize> {
        let view = Ipv4View::parse(bytes.get(L3..)?).ok()?;
        let is_ours = bytes[0] & 1 == 0 && bytes[12..14] == [8, 0];
        let is_usual = is_ours && !view.has_options() && view.ttl() > 1 && view.is_checksum_valid();
        is_usual.then(|| usize::from(view.total_len()))
    }

    proptest! {
        #[test]
        fn a_usual_frame_is_what_the_view_says(
            (payload, padding) in (0u16..40, 0usize..8),
            changes in prop::collection::vec((0usize..V4_END, any::<u8>()), 0..3),
            (cut, mends) in (0usize..80, any::<bool>()),
        ) {
            let header = Ipv4Repr::new([192, 0, 2, 1].into(), [192, 0, 2, 9].into(), IpProtocol::UDP, payload);
            let mut bytes = vec![0; V4_END + usize::from(payload) + padding];
            bytes[12..14].copy_from_slice(&[8, 0]);
            header.emit(&mut bytes[L3..]);
            prop_assert_eq!(usual_len(&bytes), Some(Ipv4View::HEADER_LEN + usize::from(payload)));
            changes.iter().for_each(|&(at, byte)| bytes[at] = byte);
            if mends {
                bytes[24..26].fill(0);
                let sum = Sum::of(&bytes[L3..V4_END]).checksum();
                bytes[24..26].copy_from_slice(&sum.to_be_bytes());
            }
            bytes.truncate(bytes.len().saturating_sub(cut.saturating_sub(40)));
            prop_assert_eq!(usual_len(&bytes), by_view(&bytes));
        }
    }
}
