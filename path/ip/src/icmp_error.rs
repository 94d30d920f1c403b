//! Errors about packets of others (RFC 1122 §3.2.2, RFC 1812 §4.3.2, RFC 4443 §2.4).
//!
//! Owns the rules by which no error is sent, for both versions, and the messages. A packet that cannot be
//! sent an error about is dropped in silence by whoever asked.

use core::net::{IpAddr, Ipv4Addr};

use firelane_frame::Pools;
use firelane_units::{Instant, LinkId, Mtu};
use firelane_wire::{
    Icmpv4Repr, Icmpv4Unreachable, Icmpv4View, Icmpv6Repr, Icmpv6Unreachable, IpProtocol, Ipv4View, Ipv6View,
    Quoted, TimeExceeded, ext, icmpv4, icmpv6,
};

use crate::icmp_limit::IcmpKind;
use crate::input::Delivered;
use crate::output::{DSCP_CONTROL, Sent, Upper, pair_v6};
use crate::stack::Ip;

/// What is wrong with a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum IcmpError {
    /// No socket on the port.
    PortUnreachable,
    /// No such protocol; where the packet names it.
    ProtocolUnreachable { named_at: u16 },
    /// The next hop does not answer.
    HostUnreachable,
    /// No route.
    NoRoute,
    /// An administrator forbids it.
    Prohibited,
    /// A filter refuses it, with a code of ICMPv4's; in its destination's name or in our own.
    Refused { code: u8, as_dest: bool },
    /// Too large for the next link.
    TooBig(Mtu),
    /// Its time was up.
    TimeExceeded(TimeExceeded),
    /// Nothing: the packet goes on, and this neighbour of its sender's would have been a shorter way.
    Redirect(Ipv4Addr),
    /// An IPv6 header that cannot be processed: code and pointer, and whether a group is no excuse.
    Problem { code: u8, pointer: u16, even_to_groups: bool },
}

impl Ip {
    /// Tells the sender of a datagram that nobody listens on its port.
    pub fn unreachable_port(&mut self, now: Instant, delivered: &Delivered, pools: &mut Pools) {
        if !delivered.is_broadcast_or_multicast {
            let packet = &delivered.frame.as_slice()[delivered.l3_offset..delivered.payload.end];
            self.send_error(now, packet, IcmpError::PortUnreachable, pools);
        }
    }

    /// Tells the sender of a packet, which begins with its IP header, that a filter refuses it: the code is ICMPv4's, which ICMPv6
    /// has by other numbers. In the destination's name if `as_dest`, else in our own.
    pub fn refuse(&mut self, now: Instant, packet: &[u8], code: u8, as_dest: bool, pools: &mut Pools) {
        self.send_error(now, packet, IcmpError::Refused { code, as_dest }, pools);
    }

    /// Whether somebody can be told of a packet that came by `link` and that nothing has looked at as yet: its source is a station that may be
    /// there, and it is for one station and not for many, each of which would speak in the name of all (RFC 1122 §3.2.2, RFC 9293 §3.9.2.3).
    pub fn may_be_answered(&self, link: LinkId, src: IpAddr, dst: IpAddr) -> bool {
        let is_for_one =
            !(dst.is_multicast() || dst.is_unspecified() || dst.is_loopback() || self.is_broadcast(dst));
        let is_from_one = match src {
            IpAddr::V4(src) => !self.is_martian_v4(link, src),
            IpAddr::V6(src) => !src.is_unspecified() && !self.is_martian_v6(link, src),
        };
        is_for_one && is_from_one
    }

    /// Sends an error about `packet`, which begins with an IP header, to its source, if the rules allow it.
    pub(crate) fn send_error(&mut self, now: Instant, packet: &[u8], error: IcmpError, pools: &mut Pools) {
        match packet.first().map(|byte| byte >> 4) {
            Some(4) => self.send_error_v4(now, packet, error, pools),
            Some(6) => self.send_error_v6(now, packet, error, pools),
            _ => {}
        }
    }

    fn send_error_v4(&mut self, now: Instant, packet: &[u8], error: IcmpError, pools: &mut Pools) {
        let Ok(view) = Ipv4View::parse_quoted(packet) else { return };
        let (src, dst) = (view.src(), view.dst());
        let is_icmp_error = view.protocol() == IpProtocol::ICMPV4
            && !Icmpv4View::parse(view.payload()).is_ok_and(|message| !message.is_error());
        let is_one_station = !src.is_unspecified() && !src.is_multicast() && src.octets()[0] < 240;
        if is_icmp_error
            || view.fragment_offset() > 0
            || !is_one_station
            || self.addresses.is_broadcast(src)
            || dst.is_multicast()
            || self.addresses.is_broadcast(dst)
        {
            return;
        }
        let end = usize::from(view.total_len()).min(packet.len()).min(icmpv4::QUOTE_MAX);
        let quoted = &packet[..end];
        let unreachable = |reason| Icmpv4Repr::Unreachable { reason, quoted };
        let message = match error {
            IcmpError::PortUnreachable => unreachable(Icmpv4Unreachable::Port),
            IcmpError::ProtocolUnreachable { .. } => unreachable(Icmpv4Unreachable::Protocol),
            IcmpError::HostUnreachable => unreachable(Icmpv4Unreachable::Host),
            IcmpError::NoRoute => unreachable(Icmpv4Unreachable::Network),
            IcmpError::Prohibited => unreachable(Icmpv4Unreachable::Prohibited),
            IcmpError::Refused { code, .. } => unreachable(Icmpv4Unreachable::Other(code)),
            IcmpError::TooBig(mtu) => {
                unreachable(Icmpv4Unreachable::FragmentationNeeded { mtu: mtu.bytes() })
            }
            IcmpError::TimeExceeded(reason) => Icmpv4Repr::TimeExceeded { reason, quoted },
            IcmpError::Redirect(gateway) => Icmpv4Repr::Redirect { code: REDIRECT_HOST, gateway, quoted },
            IcmpError::Problem { code, pointer, .. } => {
                Icmpv4Repr::ParameterProblem { code, pointer: pointer as u8, quoted }
            }
        };
        let ours = (Name::of(error, dst.into()), kind(error));
        self.send_message(now, ours, src.into(), message.emitted_len(), pools, |body, _| {
            message.emit(body);
        });
    }

    fn send_error_v6(&mut self, now: Instant, packet: &[u8], error: IcmpError, pools: &mut Pools) {
        let Ok(view) = Ipv6View::parse_quoted(packet) else { return };
        let (src, dst) = (view.src(), view.dst());
        let even_to_groups =
            matches!(error, IcmpError::TooBig(_) | IcmpError::Problem { even_to_groups: true, .. });
        // RFC 4443 §2.4 (e.6): the source names one station.
        let is_one_station =
            !src.is_unspecified() && !src.is_multicast() && !self.addresses.is_any_router(src);
        let may_answer = is_one_station && (!dst.is_multicast() || even_to_groups);
        if !may_answer || is_icmpv6_error(packet, &view) {
            return;
        }
        let end = (Ipv6View::HEADER_LEN + view.payload().len()).min(icmpv6::QUOTE_MAX);
        let quoted = &packet[..end];
        let unreachable = |reason| Icmpv6Repr::Unreachable { reason, quoted };
        let problem =
            |code, pointer| Icmpv6Repr::ParameterProblem { code, pointer: u32::from(pointer), quoted };
        let message = match error {
            IcmpError::PortUnreachable => unreachable(Icmpv6Unreachable::Port),
            IcmpError::ProtocolUnreachable { named_at } => problem(1, named_at),
            IcmpError::HostUnreachable => unreachable(Icmpv6Unreachable::Address),
            IcmpError::NoRoute => unreachable(Icmpv6Unreachable::NoRoute),
            IcmpError::Prohibited => unreachable(Icmpv6Unreachable::Prohibited),
            IcmpError::Refused { code, .. } => unreachable(refusal_v6(code)),
            IcmpError::TooBig(mtu) => Icmpv6Repr::PacketTooBig { mtu: u32::from(mtu.bytes()), quoted },
            IcmpError::TimeExceeded(reason) => Icmpv6Repr::TimeExceeded { reason, quoted },
            // That is a message of neighbour discovery (`redirect.rs`).
            IcmpError::Redirect(_) => return,
            IcmpError::Problem { code, pointer, .. } => problem(code, pointer),
        };
        let ours = (Name::of(error, dst.into()), kind(error));
        self.send_message(now, ours, src.into(), message.emitted_len(), pools, |body, egress| {
            message.emit(body);
            if let Some((from, to)) = pair_v6(egress) {
                icmpv6::fill_checksum(body, from, to);
            }
        });
    }

    /// Sends a message of `len` bytes to `to`.
    fn send_message(
        &mut self,
        now: Instant,
        (name, kind): (Name, IcmpKind),
        to: IpAddr,
        len: usize,
        pools: &mut Pools,
        emit: impl FnOnce(&mut [u8], &crate::Egress),
    ) {
        // As in Linux, what a netstack tells its own programs is not limited: nobody else hears it. A look at the limit costs less than
        // the way, which is not looked for in vain.
        let is_limited = !self.is_local(to);
        if is_limited && self.icmp_limit.is_spent(now, kind) {
            self.counts.of(to).icmp.limited += 1;
            return;
        }
        let src = match name {
            Name::OursOr(address) => Some(address).filter(|&ours| self.is_local(ours)),
            Name::Theirs(_) => None,
        };
        let Ok(mut egress) = self.egress(now, src, to) else { return };
        if let Name::Theirs(address) = name {
            egress.src = address;
        }
        if is_limited && !self.icmp_limit.allow(now, kind, to, &mut self.random) {
            self.counts.of(to).icmp.limited += 1;
            return;
        }
        let Some(mut frame) = pools.take(len) else { return };
        emit(frame.append(len), &egress);
        // RFC 1812 §4.3.2.5: what a network says of itself goes before what it carries. RFC 4443 has no such rule.
        let (protocol, dscp) =
            if to.is_ipv4() { (IpProtocol::ICMPV4, DSCP_CONTROL) } else { (IpProtocol::ICMPV6, 0) };
        let upper = Upper { protocol, dscp, ..Upper::udp() };
        match self.send_found(now, &mut egress, frame, upper, pools) {
            Sent::Out | Sent::Held => {
                self.made.messages += 1;
                let counts = &mut self.counts.of(to).icmp;
                counts.sent += 1;
                counts.errors_out += 1;
            }
            Sent::Drop(frame, _) => pools.put(frame),
        }
    }
}

/// From whom a message is.
#[derive(Clone, Copy, Debug)]
enum Name {
    /// From this address if it is ours, else from one that is.
    OursOr(IpAddr),
    /// From this address, whoever's it is.
    Theirs(IpAddr),
}

impl Name {
    const fn of(error: IcmpError, dst: IpAddr) -> Self {
        match error {
            IcmpError::Refused { as_dest: true, .. } => Self::Theirs(dst),
            _ => Self::OursOr(dst),
        }
    }
}

/// By what limit it is sent.
const fn kind(error: IcmpError) -> IcmpKind {
    match error {
        IcmpError::TooBig(_) => IcmpKind::TooBig,
        _ => IcmpKind::Error,
    }
}

/// ICMPv6's word for a code of ICMPv4's (RFC 7915 §4.2, read backwards).
const fn refusal_v6(code: u8) -> Icmpv6Unreachable {
    match code {
        0 | 5..=8 | 11 => Icmpv6Unreachable::NoRoute,
        1 | 12 => Icmpv6Unreachable::Address,
        3 => Icmpv6Unreachable::Port,
        _ => Icmpv6Unreachable::Prohibited,
    }
}

/// Whether a packet is an ICMPv6 error or a redirect (RFC 4443 §2.4 (e)), or may be one.
pub(crate) fn is_icmpv6_error(packet: &[u8], view: &Ipv6View<'_>) -> bool {
    match Quoted::parse_v6(packet) {
        Ok(quoted) => {
            let kind = quoted.transport()[0];
            quoted.protocol == IpProtocol::ICMPV6 && (kind < 128 || kind == REDIRECT)
        }
        // The message is cut off or in another fragment.
        Err(_) => ext::walk(view).map_or(view.next_header(), |chain| chain.upper) == IpProtocol::ICMPV6,
    }
}

/// RFC 1812 §4.3.3.2: redirects are for a host alone.
const REDIRECT_HOST: u8 = 1;
/// The type of neighbour discovery's redirect.
const REDIRECT: u8 = 137;
