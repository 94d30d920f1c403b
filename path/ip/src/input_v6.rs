//! An IPv6 packet that arrived (RFC 8200, RFC 4291).
//!
//! Checks in order: lengths, source, destination, extension headers. What is for this station goes to
//! ICMPv6 or a transport, what is for others to `forward.rs`.

use core::net::Ipv6Addr;

use firelane_frame::{Frame, Pools};
use firelane_units::{DropReason, Instant, LinkId};
use firelane_wire::{
    EthernetView, ExtChain, ExtError, HeaderProblem, IpProtocol, Ipv6Repr, Ipv6View, ext, ndp,
};

use crate::config::LOOPBACK;
use crate::counts::packets;
use crate::icmp_error::IcmpError;
use crate::input::{Delivered, Input};
use crate::input_v4::Cast;
use crate::stack::Ip;

impl Ip {
    /// A frame that carries IPv6.
    pub(crate) fn input_v6(
        &mut self,
        now: Instant,
        link: LinkId,
        frame: Frame,
        l3_offset: usize,
        pools: &mut Pools,
    ) -> Input {
        let header = match Ipv6View::parse(&frame.as_slice()[l3_offset..]) {
            Ok(view) => Ipv6Repr::parse(&view),
            Err(error) => return Input::Drop(frame, error.into()),
        };
        if self.is_martian_v6(link, header.src) || (header.dst.is_loopback() && link != LOOPBACK) {
            self.note_owner(now, link, &header, &frame);
            return Input::Drop(frame, DropReason::Martian);
        }
        if !self.is_on_reverse_path(link, header.src.into(), header.dst.into()) {
            return Input::Drop(frame, DropReason::ReversePath);
        }
        let by_group = frame.as_slice()[0] & 1 != 0;
        match self.cast_v6(link, header.dst) {
            Cast::Ours | Cast::Other if by_group => Input::Drop(frame, DropReason::NotForUs),
            Cast::Other => self.forward_v6(now, link, frame, l3_offset, pools),
            Cast::Nobody => Input::Drop(frame, DropReason::NotForUs),
            Cast::Ours | Cast::Group => self.open_v6(now, link, frame, l3_offset, Origin::Wire, pools),
        }
    }

    /// A station of this link speaks from an address of ours that it had before us: what it tells its neighbours is never routed.
    #[cold]
    fn note_owner(&mut self, now: Instant, link: LinkId, header: &Ipv6Repr, frame: &Frame) {
        let is_neighbours = header.hop_limit == u8::MAX && header.next_header == IpProtocol::ICMPV6;
        let addr = header.src.into();
        if !is_neighbours || !self.gives_up(link, addr) {
            return;
        }
        let from = EthernetView::parse(frame.as_slice()).map(|view| view.src());
        if let Ok(from) = from
            && self.interfaces.mac(link) != Some(from)
        {
            self.on_conflict(now, link, addr, from);
        }
    }

    /// Walks the extension headers of a packet for this station and delivers what is behind them.
    pub(crate) fn open_v6(
        &mut self,
        now: Instant,
        link: LinkId,
        frame: Frame,
        l3_offset: usize,
        origin: Origin,
        pools: &mut Pools,
    ) -> Input {
        let view = match Ipv6View::parse(&frame.as_slice()[l3_offset..]) {
            Ok(view) => view,
            Err(error) => return Input::Drop(frame, error.into()),
        };
        let header = Ipv6Repr::parse(&view);
        let chain = match ext::walk(&view) {
            Ok(chain) => chain,
            Err(error) => {
                self.report_chain(now, &frame.as_slice()[l3_offset..], error, pools);
                return Input::Drop(frame, error.into());
            }
        };
        if chain.is_fragment() {
            return match origin {
                Origin::Wire => self.input_fragment_v6(now, link, frame, l3_offset, &chain, pools),
                // CVE-2021-24086: fragments of fragments.
                Origin::Reassembly => Input::Drop(frame, DropReason::BadFragment),
            };
        }
        let was_fragmented = origin == Origin::Reassembly || chain.fragment.is_some();
        let delivered = Delivered {
            frame,
            protocol: chain.upper,
            src: header.src.into(),
            dst: header.dst.into(),
            payload: l3_offset + usize::from(chain.offset)
                ..l3_offset + Ipv6View::HEADER_LEN + usize::from(header.payload_len),
            ecn: header.ecn,
            ttl: header.hop_limit,
            is_broadcast_or_multicast: header.dst.is_multicast(),
            link,
            l3_offset,
        };
        self.deliver_v6(now, delivered, &chain, was_fragmented, pools)
    }

    fn deliver_v6(
        &mut self,
        now: Instant,
        delivered: Delivered,
        chain: &ExtChain,
        was_fragmented: bool,
        pools: &mut Pools,
    ) -> Input {
        // Only neighbour discovery comes from nobody.
        if delivered.src.is_unspecified() && chain.upper != IpProtocol::ICMPV6 {
            return Input::Drop(delivered.frame, DropReason::Martian);
        }
        if matches!(chain.upper, IpProtocol::TCP | IpProtocol::UDP | IpProtocol::ICMPV6) {
            self.counts.v6.delivered += packets(&delivered.frame);
        }
        match chain.upper {
            IpProtocol::TCP | IpProtocol::UDP => Input::Deliver(delivered),
            IpProtocol::ICMPV6 => self.input_icmpv6(now, delivered, was_fragmented, pools),
            IpProtocol::NO_NEXT => {
                pools.put(delivered.frame);
                Input::Consumed
            }
            _ if self.is_for_tunnel(&delivered) => Input::Deliver(delivered),
            _ => {
                self.report_protocol(now, &delivered, chain.named_at, pools);
                Input::Drop(delivered.frame, DropReason::UnknownProtocol)
            }
        }
    }

    /// RFC 8200 §4: some problems with headers are reported.
    pub(crate) fn report_chain(&mut self, now: Instant, packet: &[u8], error: ExtError, pools: &mut Pools) {
        if let ExtError::Report { problem, pointer } = error {
            let even_to_groups = problem == HeaderProblem::UnrecognizedOption;
            let error = IcmpError::Problem { code: problem.code(), pointer, even_to_groups };
            self.send_error(now, packet, error, pools);
        }
    }

    /// V09: a source that no station on a wire can have (RFC 4291 §2.5, §2.7).
    pub(crate) fn is_martian_v6(&self, link: LinkId, src: Ipv6Addr) -> bool {
        let is_ours = src.is_loopback() || self.addresses.is_usable(src.into());
        src.is_multicast() || src.to_ipv4_mapped().is_some() || (is_ours && link != LOOPBACK)
    }

    pub(crate) fn cast_v6(&self, link: LinkId, dst: Ipv6Addr) -> Cast {
        if let Some(address) = self.addresses.get(dst.into()).filter(|_| self.is_local(dst.into())) {
            // A link-local address means this station on its own link only (RFC 4291 §2.5.6).
            let is_here = !dst.is_unicast_link_local() || address.link == link || link == LOOPBACK;
            return if is_here { Cast::Ours } else { Cast::Nobody };
        }
        if dst.is_loopback() && link == LOOPBACK {
            return Cast::Ours;
        }
        if dst.is_multicast() {
            return if self.is_member_v6(link, dst) { Cast::Group } else { Cast::Nobody };
        }
        let is_routable = !dst.is_unspecified()
            && !dst.is_loopback()
            && !dst.is_unicast_link_local()
            && dst.to_ipv4_mapped().is_none();
        if is_routable { Cast::Other } else { Cast::Nobody }
    }

    /// Groups that are listened to: those that somebody joined, that of all stations, and those in which its
    /// addresses are asked for, tentative or not.
    fn is_member_v6(&self, link: LinkId, group: Ipv6Addr) -> bool {
        let is_solicited = |address: &crate::Address| match address.prefix.addr() {
            core::net::IpAddr::V6(addr) => ndp::solicited_node(addr) == group,
            core::net::IpAddr::V4(_) => false,
        };
        // V09: what does not leave a host cannot come from a wire (RFC 4291 §2.7).
        if group.octets()[1] & 15 <= 1 && link != LOOPBACK {
            return false;
        }
        self.is_member(link, group.into()) || self.addresses.on(link).any(is_solicited)
    }
}

/// Where a packet for this station comes from.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Origin {
    /// It arrived whole, or as a fragment.
    Wire,
    /// It was put together here.
    Reassembly,
}
