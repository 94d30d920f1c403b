//! ICMP for IPv4 (RFC 792, RFC 1122 §3.2.2, RFC 1191).
//!
//! `path/ip` answers echoes, sends errors, and hands received errors to the transport with the packet they
//! quote; redirects are sent and not obeyed. Messages that a host ignores today (source quench, timestamp, address mask, ...) are
//! the error [`Icmpv4Error::Kind`].

use core::net::Ipv4Addr;

use crate::bytes::{be16, be32, fixed, put};
use crate::{QuoteError, Quoted, Sum, TimeExceeded, update16};

parse_error! {
    /// Why bytes are no ICMP message that is handled.
    Icmpv4Error {
        /// Fewer than 8 bytes.
        Truncated = "shorter than an ICMP message" => BadIcmp,
        /// A type that is not handled.
        Kind = "an ICMP type that is not handled" => BadIcmp,
        /// A code that the type does not have.
        Code = "an ICMP code that the type does not have" => BadIcmp,
    }
}

/// The most bytes of a packet that an error quotes: it stays within 576 bytes (RFC 1812 §4.3.2.3).
pub const QUOTE_MAX: usize = 576 - 20 - Icmpv4View::HEADER_LEN;

const ECHO_REPLY: u8 = 0;
const UNREACHABLE: u8 = 3;
const REDIRECT: u8 = 5;
const ECHO_REQUEST: u8 = 8;
const TIME_EXCEEDED: u8 = 11;
const PARAMETER_PROBLEM: u8 = 12;

/// A message that has at least a header. Its checksum is checked by [`is_checksum_valid`](Self::is_checksum_valid).
#[derive(Clone, Copy, Debug)]
pub struct Icmpv4View<'a> {
    header: &'a [u8; Icmpv4View::HEADER_LEN],
    message: &'a [u8],
    payload: &'a [u8],
}

impl Icmpv4View<'_> {
    /// Bytes of the header, which all messages that are handled have in common.
    pub const HEADER_LEN: usize = 8;
}

impl<'a> Icmpv4View<'a> {
    /// Checks an IP payload.
    pub fn parse(message: &'a [u8]) -> Result<Self, Icmpv4Error> {
        let (header, payload) = message.split_first_chunk().ok_or(Icmpv4Error::Truncated)?;
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
    pub fn is_checksum_valid(&self) -> bool {
        Sum::of(self.message).is_valid()
    }

    /// The four bytes whose meaning depends on the type.
    pub fn parameter(&self) -> u32 {
        be32(self.header, 4)
    }

    /// Everything behind the header: echoed data or a quoted packet.
    pub fn payload(&self) -> &'a [u8] {
        self.payload
    }

    /// Whether it is an error, which is never answered with another (RFC 1122 §3.2.2). Types that are
    /// unknown count as errors: silence is the safe answer.
    pub fn is_error(&self) -> bool {
        !matches!(self.kind(), ECHO_REPLY | ECHO_REQUEST | 9 | 10 | 13..=18)
    }
}

/// Why a packet did not arrive.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Icmpv4Unreachable {
    /// No way to the network.
    Network,
    /// No way to the host.
    Host,
    /// The host does not have the protocol.
    Protocol,
    /// Nobody listens on the port.
    Port,
    /// Too large for a link behind the sender, and not to be fragmented.
    FragmentationNeeded {
        /// That link's MTU (RFC 1191 §4); zero from a router that does not know.
        mtu: u16,
    },
    /// A source route cannot be followed.
    SourceRoute,
    /// Forbidden by an administrator (codes 9, 10 and 13 mean it for different objects; 13 is sent).
    Prohibited,
    /// Any other code.
    Other(u8),
}

impl Icmpv4Unreachable {
    const fn parse(code: u8, parameter: u32) -> Self {
        match code {
            0 => Self::Network,
            1 => Self::Host,
            2 => Self::Protocol,
            3 => Self::Port,
            4 => Self::FragmentationNeeded { mtu: parameter as u16 },
            5 => Self::SourceRoute,
            13 => Self::Prohibited,
            code => Self::Other(code),
        }
    }

    /// The message's code.
    pub const fn code(self) -> u8 {
        match self {
            Self::Network => 0,
            Self::Host => 1,
            Self::Protocol => 2,
            Self::Port => 3,
            Self::FragmentationNeeded { .. } => 4,
            Self::SourceRoute => 5,
            Self::Prohibited => 13,
            Self::Other(code) => code,
        }
    }
}

/// An ICMP message as values.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Icmpv4Repr<'a> {
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
        reason: Icmpv4Unreachable,
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
    /// "Send this over another first hop."
    Redirect {
        /// 0 and 2: its network; 1 and 3: its host. RFC 1812 §4.3.3.2 lets nobody send those of networks.
        code: u8,
        /// The better first hop; the packet's destination if that is on the link.
        gateway: Ipv4Addr,
        /// The packet, as far as it is quoted.
        quoted: &'a [u8],
    },
    /// A header field cannot be processed.
    ParameterProblem {
        /// 0: the pointer shows the field; 1: an option is missing; 2: bad length.
        code: u8,
        /// Where in the packet.
        pointer: u8,
        /// The packet, as far as it is quoted.
        quoted: &'a [u8],
    },
}

impl<'a> Icmpv4Repr<'a> {
    /// The view's message as values.
    pub fn parse(view: &Icmpv4View<'a>) -> Result<Self, Icmpv4Error> {
        let (code, parameter, payload) = (view.code(), view.parameter(), view.payload());
        let (identifier, sequence) = ((parameter >> 16) as u16, parameter as u16);
        match (view.kind(), code) {
            (ECHO_REQUEST, 0) => Ok(Self::EchoRequest { identifier, sequence, data: payload }),
            (ECHO_REPLY, 0) => Ok(Self::EchoReply { identifier, sequence, data: payload }),
            (UNREACHABLE, 0..=15) => {
                Ok(Self::Unreachable { reason: Icmpv4Unreachable::parse(code, parameter), quoted: payload })
            }
            (TIME_EXCEEDED, _) => {
                let reason = TimeExceeded::from_code(code).ok_or(Icmpv4Error::Code)?;
                Ok(Self::TimeExceeded { reason, quoted: payload })
            }
            (PARAMETER_PROBLEM, 0..=2) => {
                Ok(Self::ParameterProblem { code, pointer: (parameter >> 24) as u8, quoted: payload })
            }
            (REDIRECT, 0..=3) => {
                Ok(Self::Redirect { code, gateway: Ipv4Addr::from_bits(parameter), quoted: payload })
            }
            (ECHO_REQUEST | ECHO_REPLY | UNREACHABLE | REDIRECT | PARAMETER_PROBLEM, _) => {
                Err(Icmpv4Error::Code)
            }
            _ => Err(Icmpv4Error::Kind),
        }
    }

    /// The packet that an error is about; `None` if the message is no error.
    pub fn quoted(&self) -> Option<Result<Quoted<'a>, QuoteError>> {
        match *self {
            Self::EchoRequest { .. } | Self::EchoReply { .. } => None,
            Self::Unreachable { quoted, .. }
            | Self::TimeExceeded { quoted, .. }
            | Self::Redirect { quoted, .. }
            | Self::ParameterProblem { quoted, .. } => Some(Quoted::parse_v4(quoted)),
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
            Self::Unreachable { reason, quoted } => {
                let parameter = match reason {
                    Icmpv4Unreachable::FragmentationNeeded { mtu } => u32::from(mtu),
                    _ => 0,
                };
                (UNREACHABLE, reason.code(), parameter, quoted)
            }
            Self::TimeExceeded { reason, quoted } => (TIME_EXCEEDED, reason.code(), 0, quoted),
            Self::Redirect { code, gateway, quoted } => (REDIRECT, code, gateway.to_bits(), quoted),
            Self::ParameterProblem { code, pointer, quoted } => {
                (PARAMETER_PROBLEM, code, u32::from(pointer) << 24, quoted)
            }
        }
    }

    /// Bytes that [`emit`](Self::emit) writes.
    pub fn emitted_len(&self) -> usize {
        Icmpv4View::HEADER_LEN + self.parts().3.len()
    }

    /// Writes the message, with its checksum, to the front of `buffer`.
    pub fn emit(&self, buffer: &mut [u8]) {
        let (kind, code, parameter, payload) = self.parts();
        let message = &mut buffer[..Icmpv4View::HEADER_LEN + payload.len()];
        message[Icmpv4View::HEADER_LEN..].copy_from_slice(payload);
        let header = fixed::<{ Icmpv4View::HEADER_LEN }>(message);
        put(header, 0, [kind, code, 0, 0]);
        put(header, 4, parameter.to_be_bytes());
        let checksum = Sum::of(message).checksum();
        message[2..4].copy_from_slice(&checksum.to_be_bytes());
    }
}

/// Turns an echo request, which has been parsed, into its answer without copying it; the checksum stays
/// right (RFC 1624).
///
/// # Panics
/// If `message` is shorter than a header.
pub fn answer_echo(message: &mut [u8]) {
    let header = fixed::<{ Icmpv4View::HEADER_LEN }>(message);
    let answer = u16::from_be_bytes([ECHO_REPLY, 0]);
    // Of the two zeroes of ones' complement only this one is right in an answer that is zero throughout.
    let checksum = match update16(be16(header, 2), be16(header, 0), answer) {
        0 => 0xffff,
        checksum => checksum,
    };
    put(header, 0, answer.to_be_bytes());
    put(header, 2, checksum.to_be_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn emitted(repr: &Icmpv4Repr<'_>) -> Vec<u8> {
        let mut bytes = vec![0xee; repr.emitted_len()];
        repr.emit(&mut bytes);
        bytes
    }

    #[test]
    fn the_answer_to_nothing_but_zeroes_has_a_checksum() {
        let mut message = emitted(&Icmpv4Repr::EchoRequest { identifier: 0, sequence: 0, data: &[0; 6] });
        answer_echo(&mut message);
        assert_eq!(message, [0, 0, 0xff, 0xff, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        assert!(Icmpv4View::parse(&message).unwrap().is_checksum_valid());
    }

    proptest! {
        #[test]
        fn what_is_emitted_is_read_back(which in 0u8..6, code: u8, parameter: u32,
                                        payload in proptest::collection::vec(any::<u8>(), 0..120)) {
            let (identifier, sequence) = ((parameter >> 16) as u16, parameter as u16);
            let payload = &payload[..];
            let repr = match which {
                0 => Icmpv4Repr::EchoRequest { identifier, sequence, data: payload },
                1 => Icmpv4Repr::EchoReply { identifier, sequence, data: payload },
                2 => Icmpv4Repr::Unreachable {
                    reason: Icmpv4Unreachable::parse(code % 16, parameter), quoted: payload,
                },
                3 => Icmpv4Repr::TimeExceeded {
                    reason: TimeExceeded::from_code(code % 2).unwrap(), quoted: payload,
                },
                4 => Icmpv4Repr::Redirect {
                    code: code % 4, gateway: Ipv4Addr::from_bits(parameter), quoted: payload,
                },
                _ => Icmpv4Repr::ParameterProblem { code: code % 3, pointer: sequence as u8, quoted: payload },
            };
            let bytes = emitted(&repr);
            let view = Icmpv4View::parse(&bytes).unwrap();
            prop_assert!(view.is_checksum_valid());
            prop_assert_eq!(view.is_error(), which >= 2);
            prop_assert_eq!(Icmpv4Repr::parse(&view), Ok(repr));
        }

        #[test]
        fn an_echo_is_answered_in_place(identifier: u16, sequence: u16,
                                        data in proptest::collection::vec(any::<u8>(), 0..120)) {
            let mut bytes = emitted(&Icmpv4Repr::EchoRequest { identifier, sequence, data: &data });
            answer_echo(&mut bytes);
            prop_assert_eq!(bytes, emitted(&Icmpv4Repr::EchoReply { identifier, sequence, data: &data }));
        }

        #[test]
        fn any_bytes_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..90), kind in 0u8..20) {
            let mut bytes = bytes;
            if let Some(first) = bytes.first_mut() {
                *first = kind;
            }
            if let Ok(view) = Icmpv4View::parse(&bytes) {
                let _ = Icmpv4Repr::parse(&view).map(|repr| repr.quoted());
            }
        }
    }

    /// A `ping` request of Linux, data cut to 8 bytes.
    #[test]
    fn a_known_request() {
        let data = [0x10, 0x11, 0x12, 0x13, 0x14, 0x15, 0x16, 0x17];
        let repr = Icmpv4Repr::EchoRequest { identifier: 0x1234, sequence: 1, data: &data };
        let expected = [&[8, 0, 0x99, 0x7a, 0x12, 0x34, 0, 1][..], &data].concat();
        assert_eq!(emitted(&repr), expected);
    }

    /// C01: an echo that is too short, and messages that a host does not handle.
    #[test]
    fn c01_malformed() {
        for length in 0..8 {
            let error = Icmpv4View::parse(&[8; 8][..length]).unwrap_err();
            assert_eq!(error, Icmpv4Error::Truncated);
        }
        for (kind, code, error) in [
            (8, 1, Icmpv4Error::Code),
            (0, 9, Icmpv4Error::Code),
            (3, 16, Icmpv4Error::Code),
            (11, 2, Icmpv4Error::Code),
            (12, 3, Icmpv4Error::Code),
            (4, 0, Icmpv4Error::Kind),
            (5, 4, Icmpv4Error::Code),
            (13, 0, Icmpv4Error::Kind),
            (255, 0, Icmpv4Error::Kind),
        ] {
            let bytes = [kind, code, 0, 0, 0, 0, 0, 0];
            let view = Icmpv4View::parse(&bytes).unwrap();
            assert_eq!(Icmpv4Repr::parse(&view), Err(error), "type {kind} code {code}");
        }
        let empty = [3, 3, 0, 0, 0, 0, 0, 0];
        let repr = Icmpv4Repr::parse(&Icmpv4View::parse(&empty).unwrap()).unwrap();
        assert_eq!(repr.quoted(), Some(Err(QuoteError::Header)), "an error that quotes nothing");
    }
}
