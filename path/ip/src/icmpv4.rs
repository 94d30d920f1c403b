//! ICMP messages for this station (RFC 792, RFC 1122 §3.2.2, RFC 5927).
//!
//! Answers echoes, hands their answers on, and errors to the transport whose packet they quote. Nothing that an error says
//! is believed here.

use core::net::IpAddr;

use firelane_frame::{Frame, FrameMeta, Pools, offload};
use firelane_units::{DropReason, Instant, Port};
use firelane_wire::{Icmpv4Repr, Icmpv4Unreachable, Icmpv4View, IpProtocol, QuoteError, Quoted, icmpv4};

use crate::config::LOOPBACK;
use crate::event::{ErrorKind, IpEvent, QuotedText, Said, TransportError};
use crate::icmp_limit::IcmpKind;
use crate::input::{Delivered, Input};
use crate::output::{Sent, Upper};
use crate::pmtu::claimed_mtu;
use crate::stack::Ip;

impl Ip {
    /// A whole ICMP message.
    pub(crate) fn input_icmpv4(
        &mut self,
        now: Instant,
        mut delivered: Delivered,
        pools: &mut Pools,
    ) -> Input {
        self.counts.v4.icmp.received += 1;
        if let Err(reason) = offload::complete_checksum(&mut delivered.frame) {
            self.counts.v4.icmp.bad += 1;
            return Input::Drop(delivered.frame, reason);
        }
        match self.on_icmpv4(now, &delivered) {
            Ok(Next::Answer) => self.answer_echo(now, delivered, IpProtocol::ICMPV4, pools),
            Ok(Next::Deliver) => Input::Deliver(delivered),
            Ok(Next::Done) => {
                pools.put(delivered.frame);
                Input::Consumed
            }
            Err(reason) => {
                self.counts.v4.icmp.bad += 1;
                Input::Drop(delivered.frame, reason)
            }
        }
    }

    fn on_icmpv4(&mut self, now: Instant, delivered: &Delivered) -> Result<Next, DropReason> {
        let view = Icmpv4View::parse(&delivered.frame.as_slice()[delivered.payload.clone()])?;
        if !view.is_checksum_valid() {
            return Err(DropReason::BadIcmp);
        }
        let message = Icmpv4Repr::parse(&view)?;
        let (kind, quoted) = match message {
            Icmpv4Repr::EchoRequest { .. } => return Ok(Next::Answer),
            Icmpv4Repr::EchoReply { .. } if delivered.is_broadcast_or_multicast => {
                return Err(DropReason::BadIcmp);
            }
            Icmpv4Repr::EchoReply { .. } => return Ok(Next::Deliver),
            Icmpv4Repr::Unreachable { reason, quoted } => (unreachable_kind(reason, quoted), quoted),
            Icmpv4Repr::TimeExceeded { quoted, .. } => (ErrorKind::TimeExceeded, quoted),
            // C05: what a netstack is sent over is the operator's to say.
            Icmpv4Repr::Redirect { .. } => return Err(DropReason::BadIcmp),
            Icmpv4Repr::ParameterProblem { quoted, .. } => (ErrorKind::ParameterProblem, quoted),
        };
        self.on_quoted(now, Quoted::parse_v4(quoted), kind, delivered).map(|()| Next::Done)
    }

    /// A socket of this netstack asked for an echo.
    pub fn count_echo_sent(&mut self, dst: IpAddr) {
        self.counts.of(dst).icmp.sent += 1;
    }

    /// Hands an error to the transport whose packet it quotes, if that may have been ours (RFC 5927 §4).
    pub(crate) fn on_quoted(
        &mut self,
        now: Instant,
        quoted: Result<Quoted<'_>, QuoteError>,
        kind: ErrorKind,
        delivered: &Delivered,
    ) -> Result<(), DropReason> {
        let quoted = quoted?;
        // Errors are sent to the source of what they are about.
        if quoted.src != delivered.dst {
            return Err(DropReason::BadIcmp);
        }
        if self.is_of_tunnel(&quoted) {
            self.counts.of(delivered.dst).icmp.errors_in += 1;
            self.on_tunnel_error(now, &quoted, kind);
            return Ok(());
        }
        let ports = ports_of(&quoted).ok_or(DropReason::BadIcmp)?;
        let message = &delivered.frame.as_slice()[delivered.payload.clone()];
        let &[number, code, _, _, a, b, c, d, ..] = message else { return Err(DropReason::BadIcmp) };
        let said = Said {
            from: delivered.src,
            link: Some(delivered.link),
            hops: delivered.ttl,
            tos: delivered.traffic_class(),
            icmp: [number, code],
            rest: u32::from_be_bytes([a, b, c, d]),
            text: QuotedText::of(quoted.text()),
        };
        self.counts.of(delivered.dst).icmp.errors_in += 1;
        self.tell(IpEvent::TransportError(TransportError {
            protocol: quoted.protocol,
            src: quoted.src,
            dst: quoted.dst,
            ports,
            seq: quoted.seq(),
            kind,
            said,
        }));
        Ok(())
    }

    /// Sends a message back as its answer, in the frame in which it came (RFC 1122 §3.2.2.6, RFC 4443 §4.2).
    pub(crate) fn answer_echo(
        &mut self,
        now: Instant,
        delivered: Delivered,
        protocol: IpProtocol,
        pools: &mut Pools,
    ) -> Input {
        // RFC 1349 §5.1: an answer travels as its question did. What the way said of congestion is not for it.
        let dscp = delivered.traffic_class() >> 2;
        let Delivered { mut frame, src, dst, payload, link, is_broadcast_or_multicast, .. } = delivered;
        let is_ours = link == LOOPBACK || self.interfaces.is_home(link);
        // I12: an echo to a group would be answered by all of it.
        if !is_ours || is_broadcast_or_multicast {
            return Input::Drop(frame, DropReason::BadIcmp);
        }
        if link != LOOPBACK && !self.icmp_limit.allow(now, IcmpKind::Echo, src, &mut self.random) {
            self.counts.of(src).icmp.limited += 1;
            return Input::Drop(frame, DropReason::IcmpLimit);
        }
        let Ok(mut egress) = self.egress(now, Some(dst), src) else {
            return Input::Drop(frame, DropReason::NoRoute);
        };
        keep(&mut frame, payload);
        match src {
            IpAddr::V4(_) => icmpv4::answer_echo(frame.as_mut_slice()),
            IpAddr::V6(_) => firelane_wire::icmpv6::answer_echo(frame.as_mut_slice()),
        }
        let upper = Upper { protocol, dscp, ..Upper::udp() };
        match self.send(now, &mut egress, frame, upper, pools) {
            Sent::Out | Sent::Held => {
                self.made.messages += 1;
                let counts = &mut self.counts.of(src).icmp;
                counts.echoes += 1;
                counts.sent += 1;
                Input::Consumed
            }
            Sent::Drop(frame, reason) => Input::Drop(frame, reason),
        }
    }
}

/// What is to be done with a message that was understood.
pub(crate) enum Next {
    Done,
    Answer,
    /// An answer to an echo: whoever asked gets it (RFC 1122 §3.2.2.6, RFC 4443 §4.2).
    Deliver,
}

/// Who may have sent a quoted packet: its ports, or the identifier of an echo in place of the first.
pub(crate) fn ports_of(quoted: &Quoted<'_>) -> Option<(Port, Port)> {
    quoted.ports().or_else(|| quoted.echo().map(|identifier| (identifier, Port(0))))
}

/// Keeps a part of a frame as the payload of another.
fn keep(frame: &mut Frame, part: core::ops::Range<usize>) {
    frame.truncate(part.end);
    frame.trim_front(part.start);
    *frame.meta_mut() = FrameMeta::default();
}

fn unreachable_kind(reason: Icmpv4Unreachable, quoted: &[u8]) -> ErrorKind {
    match reason {
        Icmpv4Unreachable::Network => ErrorKind::NetworkUnreachable,
        Icmpv4Unreachable::Protocol => ErrorKind::ProtocolUnreachable,
        Icmpv4Unreachable::Port => ErrorKind::PortUnreachable,
        Icmpv4Unreachable::FragmentationNeeded { mtu } => {
            let packet_len = quoted.get(2..4).map_or(0, |len| u16::from_be_bytes([len[0], len[1]]));
            ErrorKind::TooBig {
                mtu: claimed_mtu(core::net::Ipv4Addr::UNSPECIFIED.into(), mtu.into(), packet_len),
            }
        }
        Icmpv4Unreachable::Prohibited | Icmpv4Unreachable::Other(9 | 10) => ErrorKind::Prohibited,
        Icmpv4Unreachable::Host | Icmpv4Unreachable::SourceRoute | Icmpv4Unreachable::Other(_) => {
            ErrorKind::HostUnreachable
        }
    }
}
