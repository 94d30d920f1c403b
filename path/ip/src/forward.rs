//! Packets for others: onward, if this netstack forwards (RFC 1812 §5.2, RFC 8200 §3).
//!
//! Takes one hop off, finds the next one, and sends the packet as it is; what cannot go on is reported to
//! its sender.

use core::net::IpAddr;

use firelane_frame::{Checksum, FlowTag, Frame, Pools, offload};
use firelane_units::{DropReason, Instant, Mtu};
use firelane_wire::{Ipv4Repr, Ipv4View, Ipv6View, TimeExceeded, ext, ipv4, ipv6};

use crate::config::LOOPBACK;
use crate::fragment;
use crate::icmp_error::IcmpError;
use crate::input::Input;
use crate::output::{Hop, Sent};
use crate::stack::Ip;

/// What forwarding needs to know of a packet.
struct Transit {
    dst: IpAddr,
    hops: u8,
    len: usize,
    may_cut: bool,
}

impl Ip {
    pub(crate) fn forward_v4(
        &mut self,
        now: Instant,
        frame: Frame,
        l3_offset: usize,
        pools: &mut Pools,
    ) -> Input {
        if !self.config.forwarding.v4 {
            return Input::Drop(frame, DropReason::NotForUs);
        }
        let transit = match Ipv4View::parse(&frame.as_slice()[l3_offset..]) {
            Ok(view) => Transit {
                dst: view.dst().into(),
                hops: view.ttl(),
                len: usize::from(view.total_len()),
                may_cut: !view.dont_fragment(),
            },
            Err(error) => return Input::Drop(frame, error.into()),
        };
        self.forward(now, frame, l3_offset, &transit, pools)
    }

    pub(crate) fn forward_v6(
        &mut self,
        now: Instant,
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
        if !self.config.forwarding.v6 || stays {
            return Input::Drop(frame, DropReason::NotForUs);
        }
        if let Err(error) = ext::walk_hop_by_hop(&view) {
            self.report_chain(now, &frame.as_slice()[l3_offset..], error, pools);
            return Input::Drop(frame, error.into());
        }
        let transit = Transit {
            dst: view.dst().into(),
            hops: view.hop_limit(),
            len: Ipv6View::HEADER_LEN + usize::from(view.payload_len()),
            may_cut: false,
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
        let hop = match self.onward(now, &frame, l3_offset, transit) {
            Ok(hop) => hop,
            Err((error, reason)) => {
                self.send_error(now, &frame.as_slice()[l3_offset..], error, pools);
                return Input::Drop(frame, reason);
            }
        };
        strip(&mut frame, l3_offset);
        let packet = frame.as_mut_slice();
        match transit.dst {
            IpAddr::V4(_) => ipv4::decrement_ttl(packet),
            IpAddr::V6(_) => ipv6::decrement_hop_limit(packet),
        }
        let sent = match hop {
            (hop, Fit::Whole) => self.emit(now, &hop, frame, pools),
            (hop, Fit::Cut(mtu)) => self.forward_pieces(now, &hop, frame, mtu, pools),
        };
        match sent {
            Sent::Out => Input::Forwarded,
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
    ) -> Result<(Hop, Fit), (IcmpError, DropReason)> {
        if transit.hops <= 1 {
            let error = IcmpError::TimeExceeded(TimeExceeded::InTransit);
            return Err((error, DropReason::HopsExceeded));
        }
        let way = self.way(None, transit.dst).filter(|way| way.link != LOOPBACK);
        let interface = way.and_then(|way| self.interfaces.get(way.link).copied().map(|i| (way, i)));
        let Some((way, interface)) = interface else {
            return Err((IcmpError::NoRoute, DropReason::NoRoute));
        };
        // A frame that stands for many is as large as each of its segments.
        let len = frame.meta().segmentation.map_or(transit.len, |cut| {
            usize::from(cut.header_bytes).saturating_sub(l3_offset) + usize::from(cut.segment_bytes)
        });
        let fits = len <= usize::from(interface.mtu.bytes());
        if !fits && (!transit.may_cut || frame.meta().segmentation.is_some()) {
            return Err((IcmpError::TooBig(interface.mtu), DropReason::TooBig));
        }
        let mac =
            way.mac.or_else(|| self.neighbours.resolve(now, way.link, way.next_hop).map(|(_, mac)| mac));
        let hop = Hop { link: way.link, src_mac: interface.mac, next_hop: way.next_hop, dst_mac: mac };
        Ok((hop, if fits { Fit::Whole } else { Fit::Cut(interface.mtu) }))
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
        let (header, header_len) = match Ipv4View::parse(frame.as_slice()) {
            Ok(view) => (Ipv4Repr::parse(&view), view.header_len()),
            Err(error) => return Sent::Drop(frame, error.into()),
        };
        let mut options = [0; 40];
        let options = &mut options[..header_len - Ipv4View::HEADER_LEN];
        options.copy_from_slice(&frame.as_slice()[Ipv4View::HEADER_LEN..header_len]);
        strip(&mut frame, header_len);
        self.send_pieces(now, hop, frame, pools, |payload, pools, out| {
            fragment::cut_v4(payload, &header, options, mtu, pools, out)
        })
    }
}

/// Whether a packet fits the next link.
enum Fit {
    Whole,
    Cut(Mtu),
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
