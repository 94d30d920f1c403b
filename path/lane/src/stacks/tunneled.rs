//! A netstack's tunnels: what leaves by a tunnel's port gets an outer header and leaves again, as a packet of the netstack's own;
//! what comes to the netstack in a tunnel's protocol loses it and arrives again, by the tunnel's port.
//!
//! A tunnel is a link like others: a switch with two ports, one of which the netstack has as its interface, while the tunnel is the
//! other one's user ([`PortUser::Tunnel`]). So flows, limits, captures and counters see it as any link, and a
//! netstack without tunnels asks nothing for them. What arrives from outside has no ports and comes to the netstack's home lane; what
//! is inside goes on from there as if a device had brought it, to the lane that has its connection. What leaves enters the tunnel in
//! the lane that made it, unless the tunnel's packets have numbers. The tables are `path/tunnel`'s, the errors `path/ip/src/tunnel.rs`.

use core::mem;
use core::net::IpAddr;
use std::collections::BTreeMap;

use firelane_frame::{Arrival, Capabilities, Chain, Checksum, FlowTag, Frame, FrameMeta, offload};
use firelane_ip::{Delivered, Egress, LOOPBACK, TunnelError, Upper};
use firelane_tunnel::{Arrived, Inner, Kind, Outer, Refusal, Refused, Tunnels, set_ecn};
use firelane_units::{Direction, DropReason, LinkId, MacAddr, Mtu, NetstackId};
use firelane_wire::{EtherType, EthernetRepr, EthernetView};

use super::inbound::Inside;
use super::{NO_NETSTACK, Stacks};
use crate::common::Common;
use crate::control;
use crate::links::Links;
use crate::message::{PortUser, TunnelSetup};
use crate::steps::Step;

/// The station at the other end of each tunnel, as frames inside name it. Nobody outside sees it.
pub(crate) const PEER: MacAddr = MacAddr([0x02, 0, 0, 0, 0, 0x02]);

/// Where a packet begins in a frame that a netstack made.
const L3: usize = EthernetView::HEADER_LEN;
/// The most that stands before an outer payload: IPv6's header and Ethernet's.
const FRONT_MAX: usize = L3 + 40;
/// The longest frame that is cut and completed before it enters.
const FRAME_MAX: usize = u16::MAX as usize + 18;

/// A shard's tunnels.
#[derive(Debug, Default)]
pub(crate) struct Tunneled {
    table: Tunnels,
    /// The address of each tunnel's interface.
    macs: BTreeMap<LinkId, MacAddr>,
    /// The way to each tunnel's other end, as its last packet took it.
    ways: BTreeMap<LinkId, Egress>,
    /// Storage of what a large frame is cut into.
    pieces: Chain,
}

impl<D> Links<D> {
    /// Whether what is above a switch leads into a tunnel.
    pub(crate) fn is_over_tunnel(&self, over: LinkId) -> bool {
        let uplink = self.switches.get(over.0).and_then(|link| link.uplink);
        let port = uplink.and_then(|uplink| self.ports.get(uplink.0));
        port.is_some_and(|port| matches!(port.user, PortUser::Tunnel { .. }))
    }
}

impl Stacks {
    /// A tunnel begins, changes or ends.
    pub(crate) fn set_tunnel(
        &mut self,
        id: NetstackId,
        link: LinkId,
        setup: Option<TunnelSetup>,
    ) -> Result<(), control::Refusal> {
        let shard = self.shards.get_mut(id).ok_or(NO_NETSTACK)?;
        let tunnels = &mut shard.tunnels;
        tunnels.ways.remove(&link);
        match setup {
            Some(TunnelSetup { config, mac }) => {
                if !tunnels.table.set(config) {
                    return Err("another tunnel has the same ends");
                }
                tunnels.macs.insert(link, mac);
            }
            None => {
                tunnels.table.remove(link);
                tunnels.macs.remove(&link);
            }
        }
        let ends = tunnels.table.iter().map(|it| match (it.kind, it.remote) {
            (Kind::SixToFour, IpAddr::V4(_)) => (it.local, core::net::Ipv4Addr::UNSPECIFIED.into()),
            (_, remote) => (it.local, remote),
        });
        shard.ip.core.set_tunnel_ends(ends.collect());
        Ok(())
    }

    /// Lets what the link side has for tunnels enter them.
    pub(crate) fn enter_tunnels<D>(&mut self, common: &mut Common<D>, links: &mut Links<D>) {
        if links.tunneled.is_empty() {
            return;
        }
        let mut entering = mem::take(&mut links.tunneled);
        for (netstack, link, frame) in entering.drain(..) {
            match self.inside(common, netstack) {
                Some(mut inside) => inside.enter_tunnel(link, frame),
                None => common.drop_frame(frame, DropReason::NoPort),
            }
        }
        links.tunneled = entering;
    }
}

/// Lets what has come out of tunnels arrive by their ports.
pub(crate) fn leave_tunnels<D>(common: &mut Common<D>, links: &mut Links<D>) {
    if common.uncovered.0.is_empty() {
        return;
    }
    let (mut uncovered, mut chain) = mem::take(&mut common.uncovered);
    let mut frames = uncovered.drain(..).peekable();
    while let Some((link, frame)) = frames.next() {
        chain.push(frame);
        if frames.peek().is_none_or(|(next, _)| *next != link) {
            common.counters.received += chain.len() as u64;
            links.take_received(common, link, Arrival::Local, &mut chain);
        }
    }
    drop(frames);
    common.uncovered = (uncovered, chain);
}

impl<D> Inside<'_, D> {
    /// A frame for the tunnel of a port: whole segments go in, with their sums complete.
    fn enter_tunnel(&mut self, link: LinkId, frame: Frame) {
        let is_whole = frame.meta().segmentation.is_none();
        if is_whole && !matches!(frame.meta().checksum, Checksum::Partial { .. }) {
            return self.encapsulate(link, frame);
        }
        let capabilities = Capabilities { max_frame: FRAME_MAX, ..Capabilities::plain(Mtu::ETHERNET) };
        let mut pieces = mem::take(&mut self.shard.tunnels.pieces);
        pieces.push(frame);
        let dropped = self.common.counters.drops.total();
        let Common { pools, counters, .. } = &mut *self.common;
        offload::prepare(&mut pieces, &capabilities, pools, &mut counters.drops);
        let dropped = counters.drops.total() - dropped;
        counters.copied += (pieces.len() as u64 + dropped).saturating_sub(1);
        while let Some(piece) = pieces.pop() {
            self.encapsulate(link, piece);
        }
        self.shard.tunnels.pieces = pieces;
    }

    fn encapsulate(&mut self, link: LinkId, frame: Frame) {
        let trace = frame.meta().trace;
        let decided = self.step(Step::Tunnel, Direction::Out, trace, |it| it.outer_of(link, &frame));
        let (outer, mut egress) = match decided {
            Ok(decided) => decided,
            Err(refusal) => return self.refuse_entry(frame, refusal),
        };
        let packet = frame.as_slice().get(L3..).unwrap_or_default();
        let flow_label = self.shard.ip.core.flow_label_around(egress.dst, packet);
        let Some(frame) = self.covered(frame, &outer) else { return };
        // Inside it has reached its end; outside it is the netstack's own.
        self.common.counters.delivered += 1;
        let Outer { protocol, ecn, dscp, dont_fragment, hops, .. } = outer;
        let upper = Upper { protocol, ecn, dont_fragment, hops: Some(hops), dscp, flow_label };
        // What cannot be sent is dropped and counted there.
        let _ = self.shard.ip.send(self.common, &mut egress, frame, upper);
        self.shard.tunnels.ways.insert(link, egress);
    }

    /// What stands before a frame's packet, and which way it goes.
    fn outer_of(&mut self, link: LinkId, frame: &Frame) -> Result<(Outer, Egress), Refusal> {
        let packet = frame.as_slice().get(L3..).unwrap_or_default();
        let tunnels = &mut self.shard.tunnels;
        let local = tunnels.table.get(link).ok_or(DropReason::TunnelDown)?.local;
        let remote = tunnels.table.remote_of(link, packet)?;
        let known = tunnels.ways.get(&link).copied();
        let core = &mut self.shard.ip.core;
        let usable = |it: &Egress| core.is_current(it) && it.dst == remote && it.src == local;
        let egress = match known.filter(usable) {
            Some(egress) => egress,
            None => core
                .egress(self.common.now, Some(local), remote)
                .map_err(|_| Refusal::Drop(DropReason::TunnelDown))?,
        };
        if egress.link == LOOPBACK || egress.link == frame.meta().ingress {
            return Err(DropReason::TunnelLoop.into());
        }
        let outer = tunnels.table.encapsulate(link, packet, egress.mtu)?;
        Ok((outer, egress))
    }

    /// A frame's packet with the tunnel's headers in front, and nothing else.
    fn covered(&mut self, mut frame: Frame, outer: &Outer) -> Option<Frame> {
        frame.trim_front(L3);
        frame.truncate(outer.len);
        *frame.meta_mut() = FrameMeta { trace: frame.meta().trace, ..FrameMeta::default() };
        if frame.headroom() < outer.head().len() + FRONT_MAX {
            let Some(mut copy) = self.common.pools.copy_of(frame.as_slice()) else {
                self.drop_frame(frame, DropReason::NoBuffer);
                return None;
            };
            copy.meta_mut().trace = frame.meta().trace;
            self.common.pools.put(mem::replace(&mut frame, copy));
        }
        frame.prepend(outer.head().len()).copy_from_slice(outer.head());
        Some(frame)
    }

    /// A packet does not enter: its sender is told where a rule says so.
    fn refuse_entry(&mut self, mut frame: Frame, refusal: Refusal) {
        let (told, reason) = match refusal {
            Refusal::TooBig(mtu) => (Some(TunnelError::TooBig(mtu)), DropReason::TooBig),
            Refusal::LimitReached(at) => (Some(TunnelError::LimitReached(at)), DropReason::TunnelNested),
            Refusal::Drop(reason @ (DropReason::TunnelDown | DropReason::TunnelAddress)) => {
                (Some(TunnelError::Unreachable), reason)
            }
            Refusal::Drop(reason) => (None, reason),
        };
        if let Some(error) = told {
            self.tell_sender(frame.as_mut_slice().get_mut(L3..).unwrap_or_default(), error);
        }
        self.drop_frame(frame, reason);
    }

    /// Tells the sender of a packet why a tunnel did not take it. Who sent it under another address than it has since it was translated
    /// knows it by the one that he gave it.
    fn tell_sender(&mut self, packet: &mut [u8], error: TunnelError) {
        let Common { now, pools, .. } = &mut *self.common;
        if let Some(nat) = self.shard.gate.nat() {
            nat.restore(packet, *now);
        }
        self.shard.ip.core.report_tunnel(*now, packet, error, pools);
        self.shard.ip.touch();
    }

    /// What came in says of a packet that it did not come out of a tunnel.
    #[inline]
    pub(super) fn tell_unreached(&mut self) {
        if !self.shard.ip.core.unreached().is_empty() {
            let mut packet = mem::take(self.shard.ip.core.unreached());
            self.tell_sender(&mut packet, TunnelError::Unreachable);
            packet.clear();
            *self.shard.ip.core.unreached() = packet;
        }
    }

    /// A packet of a tunnel's protocol has arrived.
    pub(crate) fn leave_tunnel(&mut self, packet: Delivered) {
        let arrived = Arrived {
            protocol: packet.protocol,
            src: packet.src,
            dst: packet.dst,
            ecn: packet.ecn,
            payload: &packet.frame.as_slice()[packet.payload.clone()],
        };
        match self.shard.tunnels.table.decapsulate(&arrived) {
            // Segments of a tunnel are cut before they leave: nobody here could say how they are.
            Ok(_) if packet.frame.meta().segmentation.is_some() => {
                self.drop_frame(packet.frame, DropReason::TunnelBadPacket);
            }
            Ok(inner) => self.uncover(packet, inner),
            Err(Refused::NoTunnel) => {
                let Common { now, pools, .. } = &mut *self.common;
                self.shard.ip.core.refuse_tunnel(*now, &packet, pools);
                self.shard.ip.touch();
                self.drop_frame(packet.frame, DropReason::UnknownProtocol);
            }
            Err(Refused::Drop(reason)) => self.drop_frame(packet.frame, reason),
        }
    }

    /// Takes the headers off a packet, and lets what is inside arrive by the tunnel's port.
    fn uncover(&mut self, packet: Delivered, inner: Inner) {
        let Inner { link, at, len, is_v4, ecn } = inner;
        let Delivered { mut frame, payload, .. } = packet;
        let begin = payload.start + at;
        frame.truncate(begin + len);
        frame.trim_front(begin);
        if let Some(ecn) = ecn {
            set_ecn(frame.as_mut_slice(), ecn);
        }
        let dst = self.shard.tunnels.macs.get(&link).copied().unwrap_or(MacAddr::ZERO);
        let ethertype = if is_v4 { EtherType::IPV4 } else { EtherType::IPV6 };
        EthernetRepr { dst, src: PEER, ethertype }.emit(frame.prepend(L3));
        let meta = frame.meta_mut();
        meta.flow = FlowTag::NONE;
        if let Checksum::Partial { start, .. } = &mut meta.checksum {
            let moved = usize::from(*start).checked_sub(begin).map(|start| (start + L3) as u16);
            match moved {
                Some(moved) => *start = moved,
                None => return self.drop_frame(frame, DropReason::TunnelBadPacket),
            }
        }
        self.common.counters.delivered += 1;
        self.common.uncovered.0.push((link, frame));
    }
}
