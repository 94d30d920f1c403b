//! ICMPv6 messages for this station (RFC 4443, RFC 5927); neighbour discovery goes on to `ndp.rs`.

use core::net::{IpAddr, Ipv6Addr};

use firelane_frame::{Pools, offload};
use firelane_units::{DropReason, Instant, MacAddr};
use firelane_wire::{
    EthernetView, Icmpv6Repr, Icmpv6Unreachable, Icmpv6View, IpProtocol, NdpEnvelope, Quoted,
};

use crate::event::ErrorKind;
use crate::icmpv4::Next;
use crate::input::{Delivered, Input};
use crate::pmtu::claimed_mtu;
use crate::stack::Ip;

impl Ip {
    /// A whole ICMPv6 message. `was_fragmented` if it came with a fragment header, atomic or not.
    pub(crate) fn input_icmpv6(
        &mut self,
        now: Instant,
        mut delivered: Delivered,
        was_fragmented: bool,
        pools: &mut Pools,
    ) -> Input {
        self.counts.v6.icmp.received += 1;
        if let Err(reason) = offload::complete_checksum(&mut delivered.frame) {
            self.counts.v6.icmp.bad += 1;
            return Input::Drop(delivered.frame, reason);
        }
        match self.on_icmpv6(now, &delivered, was_fragmented, pools) {
            Ok(Next::Answer) => self.answer_echo(now, delivered, IpProtocol::ICMPV6, pools),
            Ok(Next::Deliver) => Input::Deliver(delivered),
            Ok(Next::Done) => {
                pools.put(delivered.frame);
                Input::Consumed
            }
            Err(reason) => {
                self.counts.v6.icmp.bad += 1;
                Input::Drop(delivered.frame, reason)
            }
        }
    }

    fn on_icmpv6(
        &mut self,
        now: Instant,
        delivered: &Delivered,
        was_fragmented: bool,
        pools: &mut Pools,
    ) -> Result<Next, DropReason> {
        let (IpAddr::V6(src), IpAddr::V6(dst)) = (delivered.src, delivered.dst) else {
            return Err(DropReason::BadIcmp);
        };
        let view = Icmpv6View::parse(&delivered.frame.as_slice()[delivered.payload.clone()])?;
        if !view.is_checksum_valid(src, dst) {
            return Err(DropReason::BadIcmp);
        }
        if view.is_neighbour_discovery() {
            // RFC 6980 §5: never in fragments.
            if was_fragmented {
                return Err(DropReason::BadNdp);
            }
            let envelope = NdpEnvelope { src, dst, hop_limit: delivered.ttl };
            let from = EthernetView::parse(delivered.frame.as_slice()).map_or(MacAddr::ZERO, |eth| eth.src());
            return self
                .input_ndp(now, delivered.link, &envelope, from, view.message(), pools)
                .map(|()| Next::Done);
        }
        if matches!(view.kind(), 130..=132 | 143) {
            return self.on_mld(now, delivered, view.message()).map(|()| Next::Done);
        }
        // Only neighbour discovery and reports come from nobody.
        if src.is_unspecified() {
            return Err(DropReason::Martian);
        }
        let message = Icmpv6Repr::parse(&view)?;
        let (kind, quoted) = match message {
            Icmpv6Repr::EchoRequest { .. } => return Ok(Next::Answer),
            Icmpv6Repr::EchoReply { .. } if delivered.is_broadcast_or_multicast => {
                return Err(DropReason::BadIcmp);
            }
            Icmpv6Repr::EchoReply { .. } => return Ok(Next::Deliver),
            Icmpv6Repr::Unreachable { reason, quoted } => (unreachable_kind(reason), quoted),
            Icmpv6Repr::PacketTooBig { mtu, quoted } => {
                (ErrorKind::TooBig { mtu: claimed_mtu(Ipv6Addr::UNSPECIFIED.into(), mtu, 0) }, quoted)
            }
            Icmpv6Repr::TimeExceeded { quoted, .. } => (ErrorKind::TimeExceeded, quoted),
            // RFC 4443 §3.4: code 1 is what IPv4 calls an unreachable protocol.
            Icmpv6Repr::ParameterProblem { code: 1, quoted, .. } => (ErrorKind::ProtocolUnreachable, quoted),
            Icmpv6Repr::ParameterProblem { quoted, .. } | Icmpv6Repr::OtherError { quoted, .. } => {
                (ErrorKind::ParameterProblem, quoted)
            }
        };
        self.on_quoted(now, Quoted::parse_v6(quoted), kind, delivered).map(|()| Next::Done)
    }
}

const fn unreachable_kind(reason: Icmpv6Unreachable) -> ErrorKind {
    match reason {
        Icmpv6Unreachable::NoRoute | Icmpv6Unreachable::BeyondScope => ErrorKind::NetworkUnreachable,
        Icmpv6Unreachable::Prohibited | Icmpv6Unreachable::SourcePolicy | Icmpv6Unreachable::RejectRoute => {
            ErrorKind::Prohibited
        }
        Icmpv6Unreachable::Port => ErrorKind::PortUnreachable,
        Icmpv6Unreachable::Address | Icmpv6Unreachable::Other(_) => ErrorKind::HostUnreachable,
    }
}
