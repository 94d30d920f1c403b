//! An IPv4 packet that arrived (RFC 791, RFC 1122 §3.2.1, RFC 1812 §5.3).
//!
//! Checks in order: lengths, checksum, options, source, destination. Each refusal has its reason; what is
//! for this station goes to ICMP or a transport, what is for others to `forward.rs`.

use core::net::Ipv4Addr;

use firelane_frame::{Frame, Pools};
use firelane_units::{DropReason, Instant, LinkId};
use firelane_wire::{IpProtocol, Ipv4Option, Ipv4Repr, Ipv4View};

use crate::config::LOOPBACK;
use crate::counts::packets;
use crate::input::{Delivered, Input};
use crate::stack::Ip;

/// Where the protocol field is, for the pointer of an error.
pub(crate) const PROTOCOL_AT: u16 = 9;

/// For whom a packet is.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cast {
    /// For this station alone.
    Ours,
    /// For a group that it belongs to.
    Group,
    /// For another station.
    Other,
    /// For nobody.
    Nobody,
}

impl Ip {
    /// A frame that carries IPv4.
    pub(crate) fn input_v4(
        &mut self,
        now: Instant,
        link: LinkId,
        frame: Frame,
        l3_offset: usize,
        pools: &mut Pools,
    ) -> Input {
        let (header, header_len) = match self.check_v4(link, &frame.as_slice()[l3_offset..]) {
            Ok(checked) => checked,
            Err(reason) => return Input::Drop(frame, reason),
        };
        let by_group = frame.as_slice()[0] & 1 != 0;
        let cast = self.cast_v4(link, header.dst);
        match cast {
            // RFC 1122 §3.3.6: a broadcast frame with a packet for one station is a mistake or an attack.
            Cast::Ours | Cast::Other if by_group => return Input::Drop(frame, DropReason::NotForUs),
            Cast::Other => return self.forward_v4(now, link, frame, l3_offset, pools),
            Cast::Nobody => return Input::Drop(frame, DropReason::NotForUs),
            Cast::Ours | Cast::Group => {}
        }
        if header.more_fragments || header.fragment_offset > 0 {
            return self.input_fragment_v4(now, link, frame, l3_offset, pools);
        }
        let start = l3_offset + header_len;
        let delivered = Delivered {
            frame,
            protocol: header.protocol,
            src: header.src.into(),
            dst: header.dst.into(),
            payload: start..start + usize::from(header.payload_len),
            ecn: header.ecn,
            ttl: header.ttl,
            is_broadcast_or_multicast: cast == Cast::Group,
            link,
            l3_offset,
        };
        self.deliver_v4(now, delivered, pools)
    }

    pub(crate) fn deliver_v4(&mut self, now: Instant, delivered: Delivered, pools: &mut Pools) -> Input {
        if matches!(
            delivered.protocol,
            IpProtocol::TCP | IpProtocol::UDP | IpProtocol::ICMPV4 | IpProtocol::IGMP
        ) {
            self.counts.v4.delivered += packets(&delivered.frame);
        }
        match delivered.protocol {
            IpProtocol::TCP | IpProtocol::UDP => Input::Deliver(delivered),
            IpProtocol::IGMP => self.input_igmp(now, delivered, pools),
            IpProtocol::ICMPV4 => self.input_icmpv4(now, delivered, pools),
            _ if self.is_for_tunnel(&delivered) => Input::Deliver(delivered),
            // I11: a tunnel that was not configured is no tunnel.
            _ => {
                if !delivered.is_broadcast_or_multicast {
                    self.report_protocol(now, &delivered, PROTOCOL_AT, pools);
                }
                Input::Drop(delivered.frame, DropReason::UnknownProtocol)
            }
        }
    }

    fn check_v4(&self, link: LinkId, packet: &[u8]) -> Result<(Ipv4Repr, usize), DropReason> {
        let view = Ipv4View::parse(packet)?;
        // RFC 1122 §3.2.1.2: always verified, whatever a device says.
        if !view.is_checksum_valid() {
            return Err(DropReason::BadChecksum);
        }
        if view.has_options() {
            check_options(&view)?;
        }
        let header = Ipv4Repr::parse(&view);
        if asks_for_an_address(&header) || is_of_groups(&header) {
            return Ok((header, view.header_len()));
        }
        if self.is_martian_v4(link, header.src) || (header.dst.is_loopback() && link != LOOPBACK) {
            return Err(DropReason::Martian);
        }
        if !self.is_on_reverse_path(link, header.src.into(), header.dst.into()) {
            return Err(DropReason::ReversePath);
        }
        Ok((header, view.header_len()))
    }

    /// I03: a source that no station on a wire can have (RFC 1812 §5.3.7).
    pub(crate) fn is_martian_v4(&self, link: LinkId, src: Ipv4Addr) -> bool {
        let [first, ..] = src.octets();
        match first {
            0 | 224.. => true,
            127 => link != LOOPBACK,
            _ => {
                (link != LOOPBACK && self.addresses.is_usable(src.into())) || self.addresses.is_broadcast(src)
            }
        }
    }

    pub(crate) fn cast_v4(&self, link: LinkId, dst: Ipv4Addr) -> Cast {
        if self.addresses.is_usable(dst.into()) || (dst.is_loopback() && link == LOOPBACK) {
            return Cast::Ours;
        }
        if self.addresses.is_broadcast(dst) || (dst.is_multicast() && self.is_member(link, dst.into())) {
            return Cast::Group;
        }
        let is_station = !dst.is_multicast() && dst.octets()[0] < 240 && dst.octets()[0] != 0;
        if is_station { Cast::Other } else { Cast::Nobody }
    }
}

/// RFC 1122 §3.2.1.3 (a): a station that has no address as yet speaks to everybody, and a server hears it (RFC 2131 §4.1).
fn asks_for_an_address(header: &Ipv4Repr) -> bool {
    header.src.is_unspecified() && header.dst.is_broadcast() && header.protocol == IpProtocol::UDP
}

/// A switch has no address, and asks from none who listens to which groups; a host that has none as yet says so (RFC 4541 §2.1.1, RFC 3376
/// §4.2.13).
fn is_of_groups(header: &Ipv4Repr) -> bool {
    header.src.is_unspecified() && header.dst.is_multicast() && header.protocol == IpProtocol::IGMP
}

/// I04: source routes and options that cannot be read are refused; others mean nothing to a host.
fn check_options(packet: &Ipv4View<'_>) -> Result<(), DropReason> {
    for option in packet.options() {
        match option {
            Ok(Ipv4Option::LooseSourceRoute(..) | Ipv4Option::StrictSourceRoute(..)) | Err(_) => {
                return Err(DropReason::BadOption);
            }
            Ok(_) => {}
        }
    }
    Ok(())
}
