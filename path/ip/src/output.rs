//! From a transport's payload to an Ethernet frame (RFC 791, RFC 8200, RFC 6864, RFC 894, RFC 2464).
//!
//! The fast path writes two headers in front of the payload and appends the frame to the output. Only what
//! has no current way, or is too large, or goes to a neighbour that is not known, takes longer.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use firelane_frame::{Chain, Checksum, Frame, Pools, offload};
use firelane_units::{DropReason, Instant, LinkId, MacAddr};
use firelane_wire::{
    Ecn, EtherType, EthernetRepr, EthernetView, IpProtocol, Ipv4Repr, Ipv4View, Ipv6Repr, Ipv6View,
};

use crate::counts::packets;
use crate::egress::Egress;
use crate::fragment;
use crate::stack::Ip;

/// The code point of internetwork control (RFC 3376 §4, RFC 1812 §4.3.2.5), not yet shifted to its place.
pub(crate) const DSCP_CONTROL: u8 = 0xc0 >> 2;

/// What a transport says about a payload.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Upper {
    /// Which transport.
    pub protocol: IpProtocol,
    /// Its congestion field.
    pub ecn: Ecn,
    /// Whether the packet must not be cut, here or on the way.
    pub dont_fragment: bool,
    /// Its hop limit or TTL; `None` is the link's.
    pub hops: Option<u8>,
    /// Its differentiated services code point, 0 to 63.
    pub dscp: u8,
    /// What tells its flow apart over IPv6 ([`Ip::flow_label`]); zero tells nothing.
    pub flow_label: u32,
}

impl Upper {
    /// A TCP segment: never cut, since TCP finds the path's MTU (RFC 1191 §6.4).
    pub const fn tcp(ecn: Ecn) -> Self {
        Self { protocol: IpProtocol::TCP, ecn, dont_fragment: true, hops: None, dscp: 0, flow_label: 0 }
    }

    /// A UDP datagram: may be cut.
    pub const fn udp() -> Self {
        Self { protocol: IpProtocol::UDP, dont_fragment: false, ..Self::tcp(Ecn::NotCapable) }
    }
}

/// What became of a frame that was to be sent.
#[derive(Debug)]
pub enum Sent {
    /// It is in the output, whole or in fragments.
    Out,
    /// It waits for the next hop's address.
    Held,
    /// It cannot be sent. The frame comes back, with the payload alone if nothing was put in front yet.
    Drop(Frame, DropReason),
}

/// The next station, and the link to it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Hop {
    pub(crate) link: LinkId,
    pub(crate) src_mac: MacAddr,
    pub(crate) next_hop: IpAddr,
    pub(crate) dst_mac: Option<MacAddr>,
}

impl Egress {
    #[inline]
    const fn hop(&self) -> Hop {
        Hop { link: self.link, src_mac: self.src_mac, next_hop: self.next_hop, dst_mac: self.dst_mac }
    }
}

/// The longest IPv4 payload, and IPv6 payload.
const PAYLOAD_V4_MAX: usize = 65_515;
const PAYLOAD_V6_MAX: usize = 65_535;

impl Ip {
    /// Sends a payload, with a transport header at its front, over `egress`. The frame needs headroom for
    /// Ethernet and IP (54 bytes); its meta's offsets count from the transport header and are moved. A frame
    /// with [`Segmentation`](firelane_frame::Segmentation) may be as long as an IP packet can be.
    #[inline]
    pub fn send(
        &mut self,
        now: Instant,
        egress: &mut Egress,
        frame: Frame,
        upper: Upper,
        pools: &mut Pools,
    ) -> Sent {
        if !self.is_current(egress) || egress.dst_mac.is_none() {
            // While nothing has changed only its user can have narrowed it.
            let most = self.is_current(egress).then_some(egress.mtu);
            match self.egress_for(now, egress.bound, Some(egress.src), egress.dst) {
                Ok(current) => {
                    let mtu = most.map_or(current.mtu, |most| current.mtu.min(most));
                    *egress = Egress { mtu, ..current };
                }
                Err(_) => return Sent::Drop(frame, DropReason::NoRoute),
            }
        }
        self.send_found(now, egress, frame, upper, pools)
    }

    /// The same by a way that was found just now. The source may be somebody's in whose name we speak: no way is found from it, so
    /// a packet whose next hop is not known yet waits for it by the one that is there.
    #[inline]
    pub fn send_found(
        &mut self,
        now: Instant,
        egress: &mut Egress,
        frame: Frame,
        upper: Upper,
        pools: &mut Pools,
    ) -> Sent {
        self.counts.of(egress.dst).sent += packets(&frame);
        let (header, payload_max) = header_of(egress);
        if frame.len() > payload_max {
            return Sent::Drop(frame, DropReason::TooBig);
        }
        let mtu = usize::from(egress.mtu.bytes());
        if frame.len() + header > mtu && frame.meta().segmentation.is_none() {
            return self.send_cut(now, egress, frame, upper, pools);
        }
        self.send_whole(now, egress, frame, upper, pools)
    }

    #[inline]
    fn send_whole(
        &mut self,
        now: Instant,
        egress: &mut Egress,
        mut frame: Frame,
        upper: Upper,
        pools: &mut Pools,
    ) -> Sent {
        let hops = upper.hops.unwrap_or(egress.hops);
        match (egress.src, egress.dst) {
            (IpAddr::V4(src), IpAddr::V4(dst)) => {
                let mut header = header_v4(src, dst, upper, hops, frame.len());
                // RFC 6864 §4.1: a datagram that cannot be cut needs no identification.
                if !upper.dont_fragment {
                    header.identification = self.identification(egress) as u16;
                    self.leave_out_identifications(egress, &frame);
                }
                prepend_v4(&mut frame, &header);
            }
            (IpAddr::V6(src), IpAddr::V6(dst)) => {
                let header = header_v6(src, dst, upper, hops, frame.len());
                prepend_v6(&mut frame, &header);
            }
            _ => return Sent::Drop(frame, DropReason::NoRoute),
        }
        self.emit(now, &egress.hop(), frame, pools)
    }

    /// Cuts a payload that is too large for the way, if it may be cut.
    #[cold]
    fn send_cut(
        &mut self,
        now: Instant,
        egress: &mut Egress,
        mut frame: Frame,
        upper: Upper,
        pools: &mut Pools,
    ) -> Sent {
        if upper.dont_fragment {
            return Sent::Drop(frame, DropReason::TooBig);
        }
        if let Err(reason) = offload::complete_checksum(&mut frame) {
            return Sent::Drop(frame, reason);
        }
        let (identification, mtu) = (self.identification(egress), egress.mtu);
        let (len, hops) = (frame.len(), upper.hops.unwrap_or(egress.hops));
        match (egress.src, egress.dst) {
            (IpAddr::V4(src), IpAddr::V4(dst)) => {
                let header = Ipv4Repr {
                    identification: identification as u16,
                    ..header_v4(src, dst, upper, hops, len)
                };
                self.send_pieces(now, &egress.hop(), frame, pools, |frame, pools, out| {
                    fragment::cut_v4(frame.as_slice(), &header, &[], mtu, pools, out)?;
                    Ok(1)
                })
            }
            (IpAddr::V6(src), IpAddr::V6(dst)) => {
                let header = header_v6(src, dst, upper, hops, len);
                self.send_pieces(now, &egress.hop(), frame, pools, |frame, pools, out| {
                    fragment::cut_v6(frame.as_slice(), &header, identification, mtu, pools, out)?;
                    Ok(1)
                })
            }
            _ => Sent::Drop(frame, DropReason::NoRoute),
        }
    }

    /// Sends the pieces that `cut` makes of a frame; it says of how many packets.
    pub(crate) fn send_pieces(
        &mut self,
        now: Instant,
        hop: &Hop,
        frame: Frame,
        pools: &mut Pools,
        cut: impl FnOnce(&Frame, &mut Pools, &mut Chain) -> Result<usize, DropReason>,
    ) -> Sent {
        let mut pieces = core::mem::take(&mut self.pieces);
        let result = cut(&frame, pools, &mut pieces);
        let mut sent = Sent::Out;
        match result {
            Err(reason) => sent = Sent::Drop(frame, reason),
            Ok(packets) => {
                pools.put(frame);
                self.made.fragments += pieces.len() as u64;
                let counts = self.counts.version(pieces.front().is_some_and(is_v4));
                counts.cut += packets as u64;
                counts.pieces += pieces.len() as u64;
            }
        }
        while let Some(piece) = pieces.pop() {
            if let Sent::Held = self.emit(now, hop, piece, pools) {
                sent = Sent::Held;
            }
        }
        self.pieces = pieces;
        sent
    }

    #[inline]
    fn identification(&mut self, egress: &mut Egress) -> u32 {
        let find = || self.identifications.counter(egress.src, egress.dst);
        let counter = *egress.counter.get_or_insert_with(find);
        self.identifications.next(counter, &mut self.random)
    }

    /// The datagrams that a frame stands for have a number each, from the first's on (`offload::segment`).
    #[inline]
    fn leave_out_identifications(&mut self, egress: &Egress, frame: &Frame) {
        if let Some(cut) = frame.meta().segmentation
            && let Some(counter) = egress.counter
        {
            self.identifications.leave_out(counter, cut.segments(frame.len()) - 1);
        }
    }

    /// Puts Ethernet in front of a packet and sends it, or lets it wait for the next hop's address. Never
    /// drops it: what waits in vain is given up later.
    #[inline]
    pub(crate) fn emit(&mut self, now: Instant, hop: &Hop, mut frame: Frame, pools: &mut Pools) -> Sent {
        let dst = hop.dst_mac.unwrap_or(MacAddr::ZERO);
        // RFC 8950: the next hop of an IPv4 packet may have no address but IPv6's.
        let is_v4 = is_v4(&frame);
        prepend_ethernet(&mut frame, hop.src_mac, dst, is_v4);
        frame.meta_mut().ingress = hop.link;
        if hop.dst_mac.is_some() {
            self.out.push(frame);
            return Sent::Out;
        }
        self.wait(now, hop, frame, pools);
        Sent::Held
    }

    #[cold]
    fn wait(&mut self, now: Instant, hop: &Hop, frame: Frame, pools: &mut Pools) {
        let mut wait = self.neighbours.wait(now, hop.link, hop.next_hop, frame);
        while let Some(refused) = wait.refused.pop() {
            self.give_up(refused, DropReason::NeighbourUnresolved, pools);
        }
        if wait.ask {
            self.ask(hop.link, hop.next_hop, None, pools);
        }
    }
}

/// A datagram's IPv4 header.
#[inline]
pub(crate) const fn header_v4(src: Ipv4Addr, dst: Ipv4Addr, upper: Upper, hops: u8, len: usize) -> Ipv4Repr {
    let mut header = Ipv4Repr::new(src, dst, upper.protocol, len as u16);
    header.ecn = upper.ecn;
    header.dscp = upper.dscp;
    header.dont_fragment = upper.dont_fragment;
    header.ttl = hops;
    header
}

/// A datagram's IPv6 header.
#[inline]
pub(crate) const fn header_v6(src: Ipv6Addr, dst: Ipv6Addr, upper: Upper, hops: u8, len: usize) -> Ipv6Repr {
    let mut header = Ipv6Repr::new(src, dst, upper.protocol, len as u16);
    header.ecn = upper.ecn;
    header.dscp = upper.dscp;
    header.flow_label = upper.flow_label;
    header.hop_limit = hops;
    header
}

/// Bytes of the IP header, and the longest payload behind it.
#[inline]
pub(crate) const fn header_of(egress: &Egress) -> (usize, usize) {
    match egress.dst {
        IpAddr::V4(_) => (Ipv4View::HEADER_LEN, PAYLOAD_V4_MAX),
        IpAddr::V6(_) => (Ipv6View::HEADER_LEN, PAYLOAD_V6_MAX),
    }
}

/// Whether a packet is IPv4's.
#[inline]
fn is_v4(packet: &Frame) -> bool {
    packet.as_slice().first().is_some_and(|byte| byte >> 4 == 4)
}

/// Puts an IPv4 header in front of a payload.
#[inline]
pub(crate) fn prepend_v4(frame: &mut Frame, header: &Ipv4Repr) {
    header.emit(frame.prepend(Ipv4View::HEADER_LEN));
    move_offsets(frame, Ipv4View::HEADER_LEN as u16);
}

/// Puts an IPv6 header in front of a payload.
#[inline]
pub(crate) fn prepend_v6(frame: &mut Frame, header: &Ipv6Repr) {
    header.emit(frame.prepend(Ipv6View::HEADER_LEN));
    move_offsets(frame, Ipv6View::HEADER_LEN as u16);
}

/// Puts an Ethernet header in front of a packet.
#[inline]
pub(crate) fn prepend_ethernet(frame: &mut Frame, src: MacAddr, dst: MacAddr, is_v4: bool) {
    let ethertype = if is_v4 { EtherType::IPV4 } else { EtherType::IPV6 };
    EthernetRepr { dst, src, ethertype }.emit(frame.prepend(EthernetView::HEADER_LEN));
    move_offsets(frame, EthernetView::HEADER_LEN as u16);
}

/// Offsets count from the frame's beginning, which moved by `by`.
#[inline]
pub(crate) fn move_offsets(frame: &mut Frame, by: u16) {
    let meta = frame.meta_mut();
    if let Checksum::Partial { start, .. } = &mut meta.checksum {
        *start += by;
    }
    if let Some(cut) = &mut meta.segmentation {
        cut.header_bytes += by;
    }
}

/// The addresses of an egress as IPv6's, for messages that are IPv6's.
pub(crate) const fn pair_v6(egress: &Egress) -> Option<(Ipv6Addr, Ipv6Addr)> {
    match (egress.src, egress.dst) {
        (IpAddr::V6(src), IpAddr::V6(dst)) => Some((src, dst)),
        _ => None,
    }
}
