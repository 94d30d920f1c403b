//! ICMP for IPv6 (RFC 4443), without neighbour discovery, which is in `ndp.rs`.
//!
//! `path/ip` answers echoes, sends errors, and hands received errors to the transport with the packet they
//! quote. The checksum covers a pseudo-header, so `emit` leaves it zero for [`fill_checksum`].

use core::net::Ipv6Addr;

use crate::bytes::{be16, be32, fixed, put};
use crate::{IpProtocol, QuoteError, Quoted, Sum, TimeExceeded, update16};

parse_error! {
    /// Why bytes are no ICMPv6 message that is handled.
    Icmpv6Error {
        /// Fewer than 8 bytes.
        Truncated = "shorter than an ICMPv6 message" => BadIcmp,
        /// A type that is not handled here.
        Kind = "an ICMPv6 type that is not handled" => BadIcmp,
        /// A code that the type does not have.
        Code = "an ICMPv6 code that the type does not have" => BadIcmp,
    }
}

/// The most bytes of a packet that an error quotes: it stays within the least MTU (RFC 4443 §2.4 (c)).
pub const QUOTE_MAX: usize = 1280 - 40 - Icmpv6View::HEADER_LEN;

const UNREACHABLE: u8 = 1;
const PACKET_TOO_BIG: u8 = 2;
const TIME_EXCEEDED: u8 = 3;
const PARAMETER_PROBLEM: u8 = 4;
const ECHO_REQUEST: u8 = 128;
const ECHO_REPLY: u8 = 129;

/// A message that has at least a header. Its checksum is checked by [`is_checksum_valid`](Self::is_checksum_valid).
#[derive(Clone, Copy, Debug)]
pub struct Icmpv6View<'a> {
    header: &'a [u8; Icmpv6View::HEADER_LEN],
    message: &'a [u8],
    payload: &'a [u8],
}

impl Icmpv6View<'_> {
    /// Bytes of the header, which all messages that are handled have in common.
    pub const HEADER_LEN: usize = 8;
}

impl<'a> Icmpv6View<'a> {
    /// Checks an upper layer's bytes.
    pub fn parse(message: &'a [u8]) -> Result<Self, Icmpv6Error> {
        let (header, payload) = message.split_first_chunk().ok_or(Icmpv6Error::Truncated)?;
        Ok(Self { header, message, payload })
    }

    /// The type.
    pub fn kind(&self) -> u8 {
        self.header[0]
    }

    /// The code.
    pub fn code(&self) -> u8 {
        self.header[1]
    }

    /// The checksum field.
    pub fn checksum(&self) -> u16 {
        be16(self.header, 2)
    }

    /// Whether the checksum is right.
    pub fn is_checksum_valid(&self, src: Ipv6Addr, dst: Ipv6Addr) -> bool {
        let pseudo = Sum::pseudo_v6(src, dst, IpProtocol::ICMPV6, self.message.len() as u32);
        pseudo.combine(Sum::of(self.message)).is_valid()
    }

    /// The four bytes whose meaning depends on the type.
    pub fn parameter(&self) -> u32 {
        be32(self.header, 4)
    }

    /// The whole message, as `ndp.rs` parses it.
    pub fn message(&self) -> &'a [u8] {
        self.message
    }

    /// Everything behind the header: echoed data or a quoted packet.
    pub fn payload(&self) -> &'a [u8] {
        self.payload
    }

    /// Whether it is an error, which is never answered with another (RFC 4443 §2.1, §2.4 (e)).
    pub fn is_error(&self) -> bool {
        self.kind() < 128
    }

    /// Whether it is a message of neighbour discovery (RFC 4861): router solicitation to redirect.
    pub fn is_neighbour_discovery(&self) -> bool {
        matches!(self.kind(), 133..=137)
    }
}

/// Why a packet did not arrive.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Icmpv6Unreachable {
    /// No route to it.
    NoRoute,
    /// Forbidden by an administrator.
    Prohibited,
    /// It would leave the scope of its source address.
    BeyondScope,
    /// The address does not answer.
    Address,
    /// Nobody listens on the port.
    Port,
    /// The source address failed a policy.
    SourcePolicy,
    /// A route that rejects.
    RejectRoute,
    /// Any other code.
    Other(u8),
}

impl Icmpv6Unreachable {
    const fn from_code(code: u8) -> Self {
        match code {
            0 => Self::NoRoute,
            1 => Self::Prohibited,
            2 => Self::BeyondScope,
            3 => Self::Address,
            4 => Self::Port,
            5 => Self::SourcePolicy,
            6 => Self::RejectRoute,
            code => Self::Other(code),
        }
    }

    /// The message's code.
    pub const fn code(self) -> u8 {
        match self {
            Self::NoRoute => 0,
            Self::Prohibited => 1,
            Self::BeyondScope => 2,
            Self::Address => 3,
            Self::Port => 4,
            Self::SourcePolicy => 5,
            Self::RejectRoute => 6,
            Self::Other(code) => code,
        }
    }
}

/// An ICMPv6 message as values.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Icmpv6Repr<'a> {
    /// "Say this back."
    EchoRequest {
        /// Whose question it is.
        identifier: u16,
        /// Which of his questions.
        sequence: u16,
        /// What to say back.
        data: &'a [u8],
    },
    /// The answer.
    EchoReply {
        /// Whose question it was.
        identifier: u16,
        /// Which of his questions.
        sequence: u16,
        /// What he said.
        data: &'a [u8],
    },
    /// A packet did not arrive.
    Unreachable {
        /// Why.
        reason: Icmpv6Unreachable,
        /// The packet, as far as it is quoted.
        quoted: &'a [u8],
    },
    /// A packet is too large for a link on its way.
    PacketTooBig {
        /// That link's MTU, as the router says.
        mtu: u32,
        /// The packet, as far as it is quoted.
        quoted: &'a [u8],
    },
    /// A packet's time was up.
    TimeExceeded {
        /// Where.
        reason: TimeExceeded,
        /// The packet, as far as it is quoted.
        quoted: &'a [u8],
    },
    /// A header field cannot be processed; [`HeaderProblem::code`](crate::HeaderProblem::code) gives the code.
    ParameterProblem {
        /// What is wrong.
        code: u8,
        /// Where in the packet.
        pointer: u32,
        /// The packet, as far as it is quoted.
        quoted: &'a [u8],
    },
    /// An error of a type that is unknown: the upper layer hears of it all the same (RFC 4443 §2.4 (a)).
    OtherError {
        /// The type, below 128.
        kind: u8,
        /// The code.
        code: u8,
        /// The packet, as far as it is quoted.
        quoted: &'a [u8],
    },
}

impl<'a> Icmpv6Repr<'a> {
    /// The view's message as values. Errors keep codes that are unknown (RFC 4443 §2.4 (a)).
    pub fn parse(view: &Icmpv6View<'a>) -> Result<Self, Icmpv6Error> {
        let (kind, code, parameter) = (view.kind(), view.code(), view.parameter());
        let (payload, quoted) = (view.payload(), view.payload());
        let (identifier, sequence) = ((parameter >> 16) as u16, parameter as u16);
        match (kind, code) {
            (ECHO_REQUEST, 0) => Ok(Self::EchoRequest { identifier, sequence, data: payload }),
            (ECHO_REPLY, 0) => Ok(Self::EchoReply { identifier, sequence, data: payload }),
            (ECHO_REQUEST | ECHO_REPLY, _) => Err(Icmpv6Error::Code),
            (UNREACHABLE, _) => Ok(Self::Unreachable { reason: Icmpv6Unreachable::from_code(code), quoted }),
            // RFC 4443 §3.2: the code is ignored by the receiver.
            (PACKET_TOO_BIG, _) => Ok(Self::PacketTooBig { mtu: parameter, quoted }),
            (TIME_EXCEEDED, _) => match TimeExceeded::from_code(code) {
                Some(reason) => Ok(Self::TimeExceeded { reason, quoted }),
                None => Ok(Self::OtherError { kind, code, quoted }),
            },
            (PARAMETER_PROBLEM, _) => Ok(Self::ParameterProblem { code, pointer: parameter, quoted }),
            (0..128, _) => Ok(Self::OtherError { kind, code, quoted }),
            _ => Err(Icmpv6Error::Kind),
        }
    }

    /// The packet that an error is about; `None` if the message is no error.
    pub fn quoted(&self) -> Option<Result<Quoted<'a>, QuoteError>> {
        match *self {
            Self::EchoRequest { .. } | Self::EchoReply { .. } => None,
            Self::Unreachable { quoted, .. }
            | Self::PacketTooBig { quoted, .. }
            | Self::TimeExceeded { quoted, .. }
            | Self::ParameterProblem { quoted, .. }
            | Self::OtherError { quoted, .. } => Some(Quoted::parse_v6(quoted)),
        }
    }

    /// Type, code, parameter and payload.
    fn parts(&self) -> (u8, u8, u32, &'a [u8]) {
        let pair = |high: u16, low: u16| u32::from(high) << 16 | u32::from(low);
        match *self {
            Self::EchoRequest { identifier, sequence, data } => {
                (ECHO_REQUEST, 0, pair(identifier, sequence), data)
            }
            Self::EchoReply { identifier, sequence, data } => {
                (ECHO_REPLY, 0, pair(identifier, sequence), data)
            }
            Self::Unreachable { reason, quoted } => (UNREACHABLE, reason.code(), 0, quoted),
            Self::PacketTooBig { mtu, quoted } => (PACKET_TOO_BIG, 0, mtu, quoted),
            Self::TimeExceeded { reason, quoted } => (TIME_EXCEEDED, reason.code(), 0, quoted),
            Self::ParameterProblem { code, pointer, quoted } => (PARAMETER_PROBLEM, code, pointer, quoted),
            Self::OtherError { kind, code, quoted } => (kind, code, 0, quoted),
        }
    }

    /// Bytes that [`emit`](Self::emit) writes.
    pub fn emitted_len(&self) -> usize {
        Icmpv6View::HEADER_LEN + self.parts().3.len()
    }

    /// Writes the message, with a checksum field of zero, to the front of `buffer`.
    pub fn emit(&self, buffer: &mut [u8]) {
        let (kind, code, parameter, payload) = self.parts();
        let message = &mut buffer[..Icmpv6View::HEADER_LEN + payload.len()];
        message[Icmpv6View::HEADER_LEN..].copy_from_slice(payload);
        let header = fixed::<{ Icmpv6View::HEADER_LEN }>(message);
        put(header, 0, [kind, code, 0, 0]);
        put(header, 4, parameter.to_be_bytes());
    }
}

/// Completes the checksum of a message, neighbour discovery included, whose checksum field is zero.
///
/// # Panics
/// If `message` is shorter than a header.
pub fn fill_checksum(message: &mut [u8], src: Ipv6Addr, dst: Ipv6Addr) {
    let pseudo = Sum::pseudo_v6(src, dst, IpProtocol::ICMPV6, message.len() as u32);
    let checksum = pseudo.combine(Sum::of(message)).checksum();
    put(fixed::<{ Icmpv6View::HEADER_LEN }>(message), 2, checksum.to_be_bytes());
}

/// Turns an echo request, which has been parsed, into its answer without copying it; the checksum stays
/// right, since the addresses that change places are in its sum both times (RFC 1624).
///
/// # Panics
/// If `message` is shorter than a header.
pub fn answer_echo(message: &mut [u8]) {
    let header = fixed::<{ Icmpv6View::HEADER_LEN }>(message);
    let answer = u16::from_be_bytes([ECHO_REPLY, 0]);
    let checksum = update16(be16(header, 2), be16(header, 0), answer);
    put(header, 0, answer.to_be_bytes());
    put(header, 2, checksum.to_be_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SRC: Ipv6Addr = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 1);
    const DST: Ipv6Addr = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 0x10);

    fn emitted(repr: &Icmpv6Repr<'_>) -> Vec<u8> {
        let mut bytes = vec![0xee; repr.emitted_len()];
        repr.emit(&mut bytes);
        fill_checksum(&mut bytes, SRC, DST);
        bytes
    }

    proptest! {
        #[test]
        fn what_is_emitted_is_read_back(which in 0u8..7, code: u8, parameter: u32,
                                        payload in proptest::collection::vec(any::<u8>(), 0..120)) {
            let (identifier, sequence) = ((parameter >> 16) as u16, parameter as u16);
            let quoted = &payload[..];
            let repr = match which {
                0 => Icmpv6Repr::EchoRequest { identifier, sequence, data: quoted },
                1 => Icmpv6Repr::EchoReply { identifier, sequence, data: quoted },
                2 => Icmpv6Repr::Unreachable { reason: Icmpv6Unreachable::from_code(code), quoted },
                3 => Icmpv6Repr::PacketTooBig { mtu: parameter, quoted },
                4 => Icmpv6Repr::TimeExceeded { reason: TimeExceeded::from_code(code % 2).unwrap(), quoted },
                5 => Icmpv6Repr::ParameterProblem { code, pointer: parameter, quoted },
                _ => Icmpv6Repr::OtherError { kind: 5 + code % 123, code, quoted },
            };
            let bytes = emitted(&repr);
            let view = Icmpv6View::parse(&bytes).unwrap();
            prop_assert!(view.is_checksum_valid(SRC, DST));
            prop_assert_eq!(view.is_error(), which >= 2);
            prop_assert_eq!(Icmpv6Repr::parse(&view), Ok(repr));
        }

        #[test]
        fn an_echo_is_answered_in_place(identifier: u16, sequence: u16,
                                        data in proptest::collection::vec(any::<u8>(), 0..120)) {
            let mut bytes = emitted(&Icmpv6Repr::EchoRequest { identifier, sequence, data: &data });
            answer_echo(&mut bytes);
            let view = Icmpv6View::parse(&bytes).unwrap();
            prop_assert!(view.is_checksum_valid(DST, SRC));
            let reply = Icmpv6Repr::EchoReply { identifier, sequence, data: &data };
            prop_assert_eq!(Icmpv6Repr::parse(&view), Ok(reply));
        }

        #[test]
        fn any_bytes_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..120)) {
            if let Ok(view) = Icmpv6View::parse(&bytes) {
                let _ = Icmpv6Repr::parse(&view).map(|repr| repr.quoted());
            }
        }
    }

    /// C01, V08: an echo that is too short, and messages that are not handled here.
    #[test]
    fn c01_malformed() {
        for length in 0..8 {
            let error = Icmpv6View::parse(&[128; 8][..length]).unwrap_err();
            assert_eq!(error, Icmpv6Error::Truncated);
        }
        for (kind, code, error) in [
            (128, 1, Icmpv6Error::Code),
            (129, 255, Icmpv6Error::Code),
            (130, 0, Icmpv6Error::Kind),
            (135, 0, Icmpv6Error::Kind),
            (255, 0, Icmpv6Error::Kind),
        ] {
            let bytes = [kind, code, 0, 0, 0, 0, 0, 0];
            let view = Icmpv6View::parse(&bytes).unwrap();
            assert_eq!(Icmpv6Repr::parse(&view), Err(error), "type {kind} code {code}");
        }
        let unknown = [100, 7, 0, 0, 0, 0, 0, 0];
        let repr = Icmpv6Repr::parse(&Icmpv6View::parse(&unknown).unwrap()).unwrap();
        assert_eq!(repr, Icmpv6Repr::OtherError { kind: 100, code: 7, quoted: &[] });
        assert_eq!(repr.quoted(), Some(Err(QuoteError::Header)), "an error that quotes nothing");
    }

    #[test]
    fn a_too_big_message_tells_its_mtu() {
        let bytes = [2, 9, 0, 0, 0, 0, 5, 0];
        let view = Icmpv6View::parse(&bytes).unwrap();
        assert_eq!(Icmpv6Repr::parse(&view), Ok(Icmpv6Repr::PacketTooBig { mtu: 1280, quoted: &[] }));
        assert!(!view.is_neighbour_discovery());
    }
}
