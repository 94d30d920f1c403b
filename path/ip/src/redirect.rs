//! Telling neighbours of shorter ways (RFC 1812 §5.2.7.2, RFC 4861 §8.2): what goes back to the link that it came by would have
//! arrived without us.
//!
//! Called by `forward.rs`; off unless the operator wants it. The packet goes on all the same, and so do the others of its flow, of
//! which nobody is told again until something changes. As many redirects are sent as errors may be.

use core::net::{IpAddr, Ipv6Addr};

use firelane_frame::{Frame, Pools};
use firelane_units::{Instant, MacAddr};
use firelane_wire::{EthernetView, Ipv6View, NdpMessage, NdpOption, NdpRepr};

use crate::icmp_error::{IcmpError, is_icmpv6_error};
use crate::icmp_limit::IcmpKind;
use crate::ndp::Course;
use crate::output::Hop;
use crate::stack::Ip;

/// Bytes of the packet that a redirect of IPv6 shows: with the headers and both options they are the smallest MTU (RFC 4861 §4.6.3).
const SHOWN_MAX: usize = 1280 - Ipv6View::HEADER_LEN - 40 - 8 - 8;

impl Ip {
    /// A packet leaves by the link that it came by: its sender is told of the next hop, if he is a neighbour of both.
    #[cold]
    pub(crate) fn redirect(
        &mut self,
        now: Instant,
        frame: &Frame,
        l3_offset: usize,
        (src, dst): (IpAddr, IpAddr),
        hop: &Hop,
        pools: &mut Pools,
    ) {
        let forwarding = self.config.forwarding;
        // RFC 1812 §5.2.7.2: the sender's network is that of the next hop; of IPv6 he needs to be on the link.
        let is_beside = || {
            self.addresses.on(hop.link).any(|address| {
                let subnet = address.prefix;
                subnet.contains(src) && (src.is_ipv6() || subnet.contains(hop.next_hop))
            })
        };
        let packet = &frame.as_slice()[l3_offset..];
        match (src, hop.next_hop, dst) {
            (_, IpAddr::V4(gateway), IpAddr::V4(_)) if forwarding.redirects_v4 && is_beside() => {
                self.send_error(now, packet, IcmpError::Redirect(gateway), pools);
            }
            (IpAddr::V6(to), IpAddr::V6(target), IpAddr::V6(destination))
                if forwarding.redirects_v6 && is_beside() =>
            {
                // RFC 4861 §8.1: a router is known by its link-local address alone.
                let can_be_named = target == destination || target.is_unicast_link_local();
                if let Ok(ethernet) = EthernetView::parse(frame.as_slice())
                    && can_be_named
                {
                    let better = NdpMessage::Redirect { target, destination };
                    self.send_redirect_v6(now, packet, hop, better, (to, ethernet.src()), pools);
                }
            }
            _ => {}
        }
    }

    fn send_redirect_v6(
        &mut self,
        now: Instant,
        packet: &[u8],
        hop: &Hop,
        message: NdpMessage,
        (dst, dst_mac): (Ipv6Addr, MacAddr),
        pools: &mut Pools,
    ) {
        let Ok(view) = Ipv6View::parse(packet) else { return };
        let Some(src) = self.addresses.link_local(hop.link) else { return };
        if is_icmpv6_error(packet, &view)
            || !self.icmp_limit.allow(now, IcmpKind::Error, dst.into(), &mut self.random)
        {
            return;
        }
        let shown = NdpOption::Redirected(&packet[..packet.len().min(SHOWN_MAX)]);
        let course = Course { link: hop.link, dst_mac, src, dst };
        match hop.dst_mac {
            Some(mac) => {
                let options = [NdpOption::TargetLinkLayer(mac), shown];
                self.send_ndp(course, &NdpRepr { message, options: &options }, pools);
            }
            // Whoever is sent there asks for it.
            None => self.send_ndp(course, &NdpRepr { message, options: &[shown] }, pools),
        }
    }
}
