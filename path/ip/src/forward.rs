//! Packets for others: onward, if this netstack forwards (RFC 1812 §5.2, RFC 8200 §3).
//!
//! Takes one hop off, finds the next one, and sends the packet as it is; what cannot go on is reported to
//! its sender. What all packets of a flow share is told to the caller, who lets the next ones take it
//! (`adjacency.rs`).

use core::net::IpAddr;

use firelane_frame::{Chain, Checksum, FlowTag, Frame, Pools, offload};
use firelane_units::{DropReason, Instant, LinkId, Mtu};
use firelane_wire::{IpProtocol, Ipv4Repr, Ipv4View, Ipv6View, TimeExceeded, ext, ipv4, ipv6};

use crate::adjacency::Adjacency;
use crate::counts::packets;
use crate::egress::NoWay;
use crate::fragment;
use crate::icmp_error::IcmpError;
use crate::input::Input;
use crate::output::{Hop, Sent};
use crate::route::RouteKind;
use crate::stack::Ip;

/// What forwarding needs to know of a packet.
struct Transit {
    came_by: LinkId,
    src: IpAddr,
    dst: IpAddr,
    hops: u8,
    len: usize,
    may_cut: bool,
    /// What its flow has in common, folded: equal routes share flows.
    flow: u32,
}

impl Ip {
    pub(crate) fn forward_v4(
        &mut self,
        now: Instant,
        link: LinkId,
        frame: Frame,
        l3_offset: usize,
        pools: &mut Pools,
    ) -> Input {
        if !self.forwards(link, true) {
            return Input::Drop(frame, DropReason::NotForUs);
        }
        let transit = match Ipv4View::parse(&frame.as_slice()[l3_offset..]) {
            // RFC 3927 §7: such packets do not leave their link.
            Ok(view) if view.src().is_link_local() || view.dst().is_link_local() => {
                return Input::Drop(frame, DropReason::NotForUs);
            }
            Ok(view) => Transit {
                came_by: link,
                src: view.src().into(),
                dst: view.dst().into(),
                hops: view.ttl(),
                len: usize::from(view.total_len()),
                may_cut: !view.dont_fragment(),
                flow: flow_v4(&view),
            },
            Err(error) => return Input::Drop(frame, error.into()),
        };
        self.forward(now, frame, l3_offset, &transit, pools)
    }

    pub(crate) fn forward_v6(
        &mut self,
        now: Instant,
        link: LinkId,
        frame: Frame,
        l3_offset: usize,
        pools: &mut Pools,
    ) -> Input {
        let view = match Ipv6View::parse(&frame.as_slice()[l3_offset..]) {
            Ok(view) => view,
            Err(error) => return Input::Drop(frame, error.into()),
        };
        // RFC 4291 §2.5: such sources do not leave their link, or their host.
        let stays = view.src().is_unspecified() || view.src().is_unicast_link_local();
        if !self.forwards(link, false) || stays {
            return Input::Drop(frame, DropReason::NotForUs);
        }
        if let Err(error) = ext::walk_hop_by_hop(&view) {
            self.report_chain(now, &frame.as_slice()[l3_offset..], error, pools);
            return Input::Drop(frame, error.into());
        }
        let transit = Transit {
            came_by: link,
            src: view.src().into(),
            dst: view.dst().into(),
            hops: view.hop_limit(),
            len: Ipv6View::HEADER_LEN + usize::from(view.payload_len()),
            may_cut: false,
            flow: flow_v6(&view),
        };
        self.forward(now, frame, l3_offset, &transit, pools)
    }

    fn forward(
        &mut self,
        now: Instant,
        mut frame: Frame,
        l3_offset: usize,
        transit: &Transit,
        pools: &mut Pools,
    ) -> Input {
        frame.truncate(l3_offset + transit.len);
        let (hop, fit) = match self.onward(now, &frame, l3_offset, transit) {
            Ok(found) => found,
            Err((error, reason)) => {
                if let Some(error) = error {
                    self.send_error(now, &frame.as_slice()[l3_offset..], error, pools);
                }
                return Input::Drop(frame, reason);
            }
        };
        if hop.link == transit.came_by {
            self.redirect(now, &frame, l3_offset, (transit.src, transit.dst), &hop, pools);
        }
        let adjacency = Adjacency::of(&hop, self.interfaces.mtu(hop.link, transit.dst), self.generation);
        let packet = &mut frame.as_mut_slice()[l3_offset..];
        match transit.dst {
            IpAddr::V4(_) => ipv4::decrement_ttl(packet),
            IpAddr::V6(_) => ipv6::decrement_hop_limit(packet),
        }
        let packets = packets(&frame);
        let sent = match fit {
            Fit::Whole => {
                strip(&mut frame, l3_offset);
                self.emit(now, &hop, frame, pools)
            }
            Fit::Cut(mtu) => {
                strip(&mut frame, l3_offset);
                self.forward_pieces(now, &hop, frame, mtu, pools)
            }
            Fit::CutEach(mtu) => self.forward_pieces_of_each(now, &hop, frame, l3_offset, mtu, pools),
        };
        if !matches!(sent, Sent::Drop(..)) {
            self.counts.of(transit.dst).forwarded += packets;
        }
        match sent {
            Sent::Out => Input::Forwarded(adjacency),
            Sent::Held => Input::Held,
            Sent::Drop(frame, reason) => Input::Drop(frame, reason),
        }
    }

    /// The next hop, and whether the packet fits the link to it.
    fn onward(
        &mut self,
        now: Instant,
        frame: &Frame,
        l3_offset: usize,
        transit: &Transit,
    ) -> Result<(Hop, Fit), (Option<IcmpError>, DropReason)> {
        let way = self.way_onward(transit.flow, transit.src, transit.dst).map_err(|no_way| match no_way {
            NoWay::Ends(RouteKind::Blackhole) => (None, DropReason::Blackhole),
            NoWay::Ends(RouteKind::Unreachable) => {
                (Some(IcmpError::HostUnreachable), DropReason::Unreachable)
            }
            NoWay::Ends(RouteKind::Prohibit) => (Some(IcmpError::Prohibited), DropReason::Prohibited),
            NoWay::Ends(RouteKind::Unicast) | NoWay::NoRoute => {
                (Some(IcmpError::NoRoute), DropReason::NoRoute)
            }
        })?;
        let Some(interface) = self.interfaces.get(way.link).copied() else {
            return Err((Some(IcmpError::NoRoute), DropReason::NoRoute));
        };
        if !self.forwards(way.link, transit.dst.is_ipv4()) {
            return Err((Some(IcmpError::Prohibited), DropReason::NotForwarding));
        }
        // RFC 1812 §5.2.1: behind the way, as in Linux. Where a route ends packets there is no hop, and a blackhole tells nobody.
        if transit.hops <= 1 {
            let error = IcmpError::TimeExceeded(TimeExceeded::InTransit);
            return Err((Some(error), DropReason::HopsExceeded));
        }
        // A frame that stands for many is as large as each of its segments.
        let len = frame.meta().segmentation.map_or(transit.len, |cut| {
            usize::from(cut.header_bytes).saturating_sub(l3_offset) + usize::from(cut.segment_bytes)
        });
        let mtu = self.interfaces.mtu(way.link, transit.dst).unwrap_or(interface.mtu);
        let fit = match (len <= usize::from(mtu.bytes()), transit.may_cut, frame.meta().segmentation) {
            (true, ..) => Fit::Whole,
            (false, false, _) => return Err((Some(IcmpError::TooBig(mtu)), DropReason::TooBig)),
            (false, true, None) => Fit::Cut(mtu),
            (false, true, Some(_)) => Fit::CutEach(mtu),
        };
        let mac =
            way.mac.or_else(|| self.neighbours.resolve(now, way.link, way.next_hop).map(|(_, mac)| mac));
        let hop = Hop { link: way.link, src_mac: interface.mac, next_hop: way.next_hop, dst_mac: mac };
        Ok((hop, fit))
    }

    /// Whether packets for others may come or leave by `link`.
    pub(crate) fn forwards(&self, link: LinkId, is_v4: bool) -> bool {
        let routing = self.interfaces.routing(link);
        if is_v4 {
            routing.forwards_v4.unwrap_or(self.config.forwarding.v4)
        } else {
            routing.forwards_v6.unwrap_or(self.config.forwarding.v6)
        }
    }

    /// Cuts a packet that is too large for the next link (RFC 791 §3.2, RFC 1812 §5.2.6).
    #[cold]
    fn forward_pieces(
        &mut self,
        now: Instant,
        hop: &Hop,
        mut frame: Frame,
        mtu: Mtu,
        pools: &mut Pools,
    ) -> Sent {
        if let Err(reason) = offload::complete_checksum(&mut frame) {
            return Sent::Drop(frame, reason);
        }
        self.send_pieces(now, hop, frame, pools, |frame, pools, out| {
            cut(frame.as_slice(), mtu, pools, out)?;
            Ok(1)
        })
    }

    /// Cuts each of the packets that a frame stands for: who has put them together, on the sender's host or on the way, says nothing of
    /// their sizes, and each may be cut.
    #[cold]
    fn forward_pieces_of_each(
        &mut self,
        now: Instant,
        hop: &Hop,
        frame: Frame,
        l3_offset: usize,
        mtu: Mtu,
        pools: &mut Pools,
    ) -> Sent {
        self.send_pieces(now, hop, frame, pools, |frame, pools, out| {
            let packets = offload::segments_of(frame, pools, out)?;
            for _ in 0..packets {
                let Some(packet) = out.pop() else { break };
                let result = cut(&packet.as_slice()[l3_offset..], mtu, pools, out);
                pools.put(packet);
                if let Err(reason) = result {
                    while let Some(rest) = out.pop() {
                        pools.put(rest);
                    }
                    return Err(reason);
                }
            }
            Ok(packets)
        })
    }
}

/// Appends the pieces of a packet to `out`.
fn cut(packet: &[u8], mtu: Mtu, pools: &mut Pools, out: &mut Chain) -> Result<(), DropReason> {
    let view = Ipv4View::parse(packet)?;
    let header = Ipv4Repr::parse(&view);
    // No datagram is as long as that, and the later pieces could not say where they are.
    if u32::from(header.fragment_offset) + u32::from(header.payload_len) > u16::MAX.into() {
        return Err(DropReason::BadFragment);
    }
    let options = &packet[Ipv4View::HEADER_LEN..view.header_len()];
    fragment::cut_v4(view.payload(), &header, options, mtu, pools, out)
}

/// Whether a packet fits the next link.
enum Fit {
    Whole,
    /// It does not, and is cut.
    Cut(Mtu),
    /// None of those that the frame stands for does, or not each.
    CutEach(Mtu),
}

/// A flow's number: both addresses, the protocol and, where they can be read, the ports.
pub(crate) fn flow_v4(view: &Ipv4View<'_>) -> u32 {
    let is_whole = view.fragment_offset() == 0 && !view.more_fragments();
    let ports = if is_whole { ports(view.protocol(), view.payload()) } else { 0 };
    mix([view.src().to_bits(), view.dst().to_bits(), view.protocol().0.into(), ports])
}

/// The same; extension headers hide the ports, and then the flow label tells flows apart (RFC 6438 §3).
pub(crate) fn flow_v6(view: &Ipv6View<'_>) -> u32 {
    let folded = |addr: core::net::Ipv6Addr| {
        let bits = addr.to_bits();
        mix([(bits >> 96) as u32, (bits >> 64) as u32, (bits >> 32) as u32, bits as u32])
    };
    let ports = match ports(view.next_header(), view.payload()) {
        0 => view.flow_label(),
        ports => ports,
    };
    mix([folded(view.src()), folded(view.dst()), view.next_header().0.into(), ports])
}

fn ports(protocol: IpProtocol, payload: &[u8]) -> u32 {
    let has_ports = matches!(protocol, IpProtocol::TCP | IpProtocol::UDP | IpProtocol::SCTP);
    payload.first_chunk().filter(|_| has_ports).map_or(0, |&ports| u32::from_be_bytes(ports))
}

fn mix(words: [u32; 4]) -> u32 {
    let step =
        |hash: u64, word: u32| (hash ^ u64::from(word)).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
    let hash = words.into_iter().fold(0, step);
    (hash >> 32) as u32 ^ hash as u32
}

/// Takes headers off the front; the meta's offsets follow.
fn strip(frame: &mut Frame, by: usize) {
    frame.trim_front(by);
    let meta = frame.meta_mut();
    meta.flow = FlowTag::NONE;
    if let Checksum::Partial { start, .. } = &mut meta.checksum {
        *start = start.saturating_sub(by as u16);
    }
    if let Some(cut) = &mut meta.segmentation {
        cut.header_bytes = cut.header_bytes.saturating_sub(by as u16);
    }
}
