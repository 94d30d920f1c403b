//! What both versions of ICMP share: the packet that an error quotes, and why a packet's time was up.
//!
//! A quoted packet is what somebody says that we sent. [`Quoted`] reads only its addresses, protocol and
//! the first bytes of its transport header; whether we really sent it (RFC 5927) is decided by the
//! transport, which knows its connections and sequence numbers.

use core::net::IpAddr;

use firelane_units::{Port, SeqNum};

use crate::{IpProtocol, Ipv4View, Ipv6View, ext};

/// Why a packet's time was up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TimeExceeded {
    /// It made all the hops that it may make.
    InTransit,
    /// Its fragments did not arrive in time.
    InReassembly,
}

impl TimeExceeded {
    pub(crate) const fn from_code(code: u8) -> Option<Self> {
        match code {
            0 => Some(Self::InTransit),
            1 => Some(Self::InReassembly),
            _ => None,
        }
    }

    /// The message's code.
    pub const fn code(self) -> u8 {
        match self {
            Self::InTransit => 0,
            Self::InReassembly => 1,
        }
    }
}

parse_error! {
    /// Why a quoted packet says nothing.
    QuoteError {
        /// It is cut before the first 8 bytes of the transport header.
        Truncated = "the quoted packet is cut before its transport header" => BadIcmp,
        /// Its IP header is wrong.
        Header = "the quoted packet's IP header is wrong" => BadIcmp,
        /// It is a fragment that has no transport header.
        Fragment = "the quoted packet is a fragment without a transport header" => BadIcmp,
    }
}

/// The packet that an ICMP error is about, as far as it is quoted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Quoted<'a> {
    /// Who is said to have sent it: one of our addresses, or the error is not for us.
    pub src: IpAddr,
    /// Who it was for.
    pub dst: IpAddr,
    /// Its transport.
    pub protocol: IpProtocol,
    transport: &'a [u8],
}

/// What every error quotes of the transport header at least (RFC 792).
const TRANSPORT_LEAST: usize = 8;

impl<'a> Quoted<'a> {
    /// Reads what an ICMPv4 error quotes.
    pub fn parse_v4(bytes: &'a [u8]) -> Result<Self, QuoteError> {
        let packet = Ipv4View::parse_quoted(bytes).map_err(|_| QuoteError::Header)?;
        if packet.fragment_offset() > 0 {
            return Err(QuoteError::Fragment);
        }
        Self::new(packet.src().into(), packet.dst().into(), packet.protocol(), packet.payload())
    }

    /// Reads what an ICMPv6 error quotes. Extension headers in it are passed over, not obeyed.
    pub fn parse_v6(bytes: &'a [u8]) -> Result<Self, QuoteError> {
        let packet = Ipv6View::parse_quoted(bytes).map_err(|_| QuoteError::Header)?;
        let (protocol, transport) =
            ext::skip(packet.next_header(), packet.payload()).ok_or(QuoteError::Fragment)?;
        Self::new(packet.src().into(), packet.dst().into(), protocol, transport)
    }

    fn new(src: IpAddr, dst: IpAddr, protocol: IpProtocol, transport: &'a [u8]) -> Result<Self, QuoteError> {
        if transport.len() < TRANSPORT_LEAST {
            return Err(QuoteError::Truncated);
        }
        Ok(Self { src, dst, protocol, transport })
    }

    /// The transport header as far as it is quoted, 8 bytes at least.
    pub fn transport(&self) -> &'a [u8] {
        self.transport
    }

    /// Source and destination port, if the transport has them.
    pub fn ports(&self) -> Option<(Port, Port)> {
        let &[a, b, c, d, ..] = self.transport else { return None };
        let ports = (Port(u16::from_be_bytes([a, b])), Port(u16::from_be_bytes([c, d])));
        self.protocol.has_ports().then_some(ports)
    }

    /// The identifier of a question for an echo (RFC 792, RFC 4443 §4.1).
    pub fn echo(&self) -> Option<Port> {
        let &[kind, _, _, _, a, b, ..] = self.transport else { return None };
        let is_question =
            matches!((self.protocol, kind), (IpProtocol::ICMPV4, 8) | (IpProtocol::ICMPV6, 128));
        is_question.then_some(Port(u16::from_be_bytes([a, b])))
    }

    /// What a program has sent, as far as it is quoted: behind UDP's header, or with ICMP's.
    pub fn text(&self) -> &'a [u8] {
        if self.protocol == IpProtocol::UDP { &self.transport[TRANSPORT_LEAST..] } else { self.transport }
    }

    /// The sequence number of a TCP segment, which must be one in flight (RFC 5927 §4.1).
    pub fn seq(&self) -> Option<SeqNum> {
        let &[_, _, _, _, a, b, c, d, ..] = self.transport else { return None };
        (self.protocol == IpProtocol::TCP).then_some(SeqNum(u32::from_be_bytes([a, b, c, d])))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Ipv4Repr, Ipv6Repr};
    use proptest::prelude::*;

    const TRANSPORT: [u8; 8] = [0x1f, 0x90, 0, 80, 1, 2, 3, 4];

    fn v4(payload: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0; 20];
        Ipv4Repr::new([10, 0, 0, 1].into(), [10, 0, 0, 2].into(), IpProtocol::TCP, 1000).emit(&mut bytes);
        bytes.extend(payload);
        bytes
    }

    fn v6(next: u8, payload: &[u8]) -> Vec<u8> {
        let (src, dst) = ("fd00::1".parse().unwrap(), "fd00::2".parse().unwrap());
        let mut bytes = vec![0; 40];
        Ipv6Repr::new(src, dst, IpProtocol(next), 1000).emit(&mut bytes);
        bytes.extend(payload);
        bytes
    }

    #[test]
    fn a_cut_packet_names_its_connection() {
        let behind_options = [&[6, 0, 1, 4, 0, 0, 0, 0][..], &TRANSPORT].concat();
        for quoted in [
            Quoted::parse_v4(&v4(&TRANSPORT)),
            Quoted::parse_v6(&v6(6, &TRANSPORT)),
            Quoted::parse_v6(&v6(60, &behind_options)),
        ] {
            let quoted = quoted.unwrap();
            assert_eq!(quoted.ports(), Some((Port(8080), Port(80))));
            assert_eq!(quoted.seq(), Some(SeqNum(0x0102_0304)));
            assert_eq!(quoted.protocol, IpProtocol::TCP);
        }
        let datagram = v6(17, &TRANSPORT);
        let udp = Quoted::parse_v6(&datagram).unwrap();
        assert_eq!((udp.seq(), udp.ports().is_some()), (None, true));
        assert_eq!(Quoted::parse_v6(&v6(58, &TRANSPORT)).unwrap().ports(), None);
        assert_eq!(udp.text(), b"");
        for (next, kind, identifier) in
            [(1, 8, Some(0x0102)), (1, 0, None), (58, 128, Some(0x0102)), (58, 8, None), (17, 8, None)]
        {
            let message = [kind, 0, 7, 7, 1, 2, 0, 9, 5, 6];
            let quoted = v6(next, &message);
            let quoted = Quoted::parse_v6(&quoted).unwrap();
            assert_eq!(quoted.echo(), identifier.map(Port), "{next} {kind}");
            assert_eq!(quoted.text(), if next == 17 { &message[8..] } else { &message[..] });
        }
    }

    /// C02: quotes that are cut too early, and I04: source routes inside them, which are passed over.
    #[test]
    fn c02_malformed() {
        assert_eq!(Quoted::parse_v4(&v4(&TRANSPORT[..7])), Err(QuoteError::Truncated));
        assert_eq!(Quoted::parse_v4(&v4(&[])[..19]), Err(QuoteError::Header));
        assert_eq!(Quoted::parse_v4(&[]), Err(QuoteError::Header));
        assert_eq!(Quoted::parse_v6(&v6(6, &[])[..39]), Err(QuoteError::Header));
        assert_eq!(Quoted::parse_v6(&v6(6, &TRANSPORT[..7])), Err(QuoteError::Truncated));
        assert_eq!(Quoted::parse_v6(&v6(60, &[6, 9, 0, 0, 0, 0, 0, 0])), Err(QuoteError::Fragment));
        let later = [&[6, 0, 0, 8, 0, 0, 0, 0][..], &TRANSPORT].concat();
        assert_eq!(Quoted::parse_v6(&v6(44, &later)), Err(QuoteError::Fragment));
        let mut later = v4(&TRANSPORT);
        later[7] = 1;
        assert_eq!(Quoted::parse_v4(&later), Err(QuoteError::Fragment));
        let mut routed = v4(&[&[137, 39, 0][..], &[0xff; 36], &[137], &TRANSPORT].concat());
        routed[0] = 0x4f;
        assert_eq!(Quoted::parse_v4(&routed).unwrap().ports(), Some((Port(8080), Port(80))));
    }

    proptest! {
        #[test]
        fn any_quote_is_read_or_refused(mut bytes in proptest::collection::vec(any::<u8>(), 1..120)) {
            for first in [bytes[0], 0x45, 0x4f, 0x60] {
                bytes[0] = first;
                for quoted in [Quoted::parse_v4(&bytes), Quoted::parse_v6(&bytes)].into_iter().flatten() {
                    prop_assert!(quoted.transport().len() >= TRANSPORT_LEAST);
                }
            }
        }
    }
}
