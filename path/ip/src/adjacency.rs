//! The next station of forwarded packets, found once and used for the next ones (RFC 1812 §5.2, RFC 1624).
//!
//! An [`Adjacency`] holds what does not differ between packets that leave to one station: the link, both stations'
//! addresses, the MTU. `forward.rs` finds it for the first packet of a flow; the lane keeps it with the flow while the
//! generation is the same; [`Ip::pass_on`] checks what each packet has of its own and rewrites it in place. Whatever
//! is unusual about a packet gives it back, and it takes the long way.

use firelane_frame::{FlowTag, Frame};
use firelane_units::{LinkId, MacAddr, Mtu};
use firelane_wire::{EtherType, EthernetView, IpProtocol, Ipv4View, Ipv6View, ipv4, ipv6};

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
        let bytes = frame.as_mut_slice();
        bytes[..6].copy_from_slice(&way.dst_mac.0);
        bytes[6..12].copy_from_slice(&way.src_mac.0);
        let is_v4 = bytes[L3] >> 4 == 4;
        match is_v4 {
            true => ipv4::decrement_ttl(&mut bytes[L3..]),
            false => ipv6::decrement_hop_limit(&mut bytes[L3..]),
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
    if bytes.first()? & 1 != 0 {
        return None;
    }
    let packet = bytes.get(L3..)?;
    match EtherType(u16::from_be_bytes([bytes[12], bytes[13]])) {
        EtherType::IPV4 => {
            let view = Ipv4View::parse(packet).ok()?;
            let is_usual = !view.has_options() && view.ttl() > 1 && view.is_checksum_valid();
            is_usual.then(|| usize::from(view.total_len()))
        }
        EtherType::IPV6 => {
            let view = Ipv6View::parse(packet).ok()?;
            let is_plain = matches!(view.next_header(), IpProtocol::TCP | IpProtocol::UDP | IpProtocol::SCTP);
            let is_usual = view.hop_limit() > 1 && is_plain;
            is_usual.then(|| Ipv6View::HEADER_LEN + usize::from(view.payload_len()))
        }
        _ => None,
    }
}
