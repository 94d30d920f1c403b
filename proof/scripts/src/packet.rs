//! What is no TCP segment, and what stands in front of any packet: `udp 40000>7 (10)`, `icmp echo 1 1 (8)`,
//! `ip(ttl 1, from 10.0.0.9) S 0:0(0)`.
//!
//! Parsed from a line here; `station.rs` puts it on the wire. What comes from the netstack is put into the same
//! words by [`describe`], so that expecting is comparing text.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use firelane_sim::Pattern;
use firelane_units::Port;
use firelane_wire::{Ecn, IpProtocol, Ipv4Repr, Ipv6Repr, Sum, UdpRepr, UdpView, udp};

use crate::icmp::{self, Message};
use crate::segment::{OUR_TEXT, PEER_TEXT, Segment};
use crate::settings::number;

/// A packet that the peer sends.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Packet {
    pub(crate) envelope: Envelope,
    pub(crate) body: Body,
}

/// What an IP packet carries.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Body {
    Segment(Segment),
    Udp(Datagram),
    Icmp(Message),
    /// So many bytes of no protocol that is known.
    Bytes(usize),
}

/// How the IP header differs from a usual one.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Envelope {
    pub(crate) ttl: Option<u8>,
    pub(crate) dscp: u8,
    pub(crate) from: Option<IpAddr>,
    pub(crate) to: Option<IpAddr>,
    /// To all stations of the link.
    pub(crate) to_all: bool,
    /// The Ethernet frame is a broadcast.
    pub(crate) broadcast: bool,
    pub(crate) protocol: Option<u8>,
    /// IPv4's options.
    pub(crate) options: Vec<u8>,
    /// IPv6's extension headers: the number of the first, and all bytes.
    pub(crate) chain: Option<(u8, Vec<u8>)>,
    /// Only these bytes of the payload, as a fragment.
    pub(crate) part: Option<(usize, usize)>,
    pub(crate) more: bool,
    pub(crate) id: u16,
    /// What the length field says instead of the truth.
    pub(crate) len: Option<u16>,
    pub(crate) version: Option<u8>,
    pub(crate) bad_sum: bool,
    /// Only so many bytes of the packet arrive.
    pub(crate) cut: Option<usize>,
}

/// A UDP datagram.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Datagram {
    src: u16,
    dst: u16,
    len: usize,
    /// What the length field says instead of the truth.
    told: Option<u16>,
    sum: Checksum,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Checksum {
    Right,
    Wrong,
    None,
}

impl Packet {
    /// Reads everything behind the arrow.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let text = text.trim();
        let (envelope, rest) = match text.strip_prefix("ip(") {
            Some(rest) => {
                let (inner, rest) = rest.split_once(')').ok_or("`ip(` without `)`")?;
                (Envelope::parse(inner)?, rest.trim())
            }
            None => (Envelope::default(), text),
        };
        let body = match rest.split_once(' ') {
            Some(("udp", rest)) => Body::Udp(Datagram::parse(rest)?),
            Some(("icmp", rest)) => Body::Icmp(Message::parse(rest)?),
            Some(("bytes", rest)) => Body::Bytes(number(rest)?),
            _ => Body::Segment(Segment::parse(rest)?),
        };
        Ok(Self { envelope, body })
    }
}

impl Envelope {
    fn parse(text: &str) -> Result<Self, String> {
        let mut envelope = Self::default();
        for part in text.split(',') {
            match part.split_whitespace().collect::<Vec<_>>()[..] {
                ["ttl", n] => envelope.ttl = Some(number(n)?),
                ["dscp", n] => envelope.dscp = number(n)?,
                ["from", address] => envelope.from = Some(number(address)?),
                ["to", "all"] => envelope.to_all = true,
                ["to", address] => envelope.to = Some(number(address)?),
                ["broadcast"] => envelope.broadcast = true,
                ["proto", n] => envelope.protocol = Some(number(n)?),
                ["opts", digits] => envelope.options = hex(digits)?,
                ["chain", first, digits] => envelope.chain = Some((number(first)?, hex(digits)?)),
                ["part", range, ref more @ ..] => {
                    let (from, to) = range.split_once(':').ok_or("a part is like 0:16")?;
                    envelope.part = Some((number(from)?, number(to)?));
                    envelope.more = *more == ["more"];
                }
                ["id", n] => envelope.id = number(n)?,
                ["len", n] => envelope.len = Some(number(n)?),
                ["version", n] => envelope.version = Some(number(n)?),
                ["badsum"] => envelope.bad_sum = true,
                ["cut", n] => envelope.cut = Some(number(n)?),
                _ => return Err(format!("`{}` is no part of an IP header", part.trim())),
            }
        }
        Ok(envelope)
    }
}

impl Envelope {
    /// An IP packet from `src` to `dst` around a payload, with everything that is wrong with it.
    pub(crate) fn wrap(
        &self,
        ends: (IpAddr, IpAddr),
        protocol: IpProtocol,
        ecn: Ecn,
        payload: &[u8],
    ) -> Vec<u8> {
        let protocol = self.protocol.map_or(protocol, IpProtocol);
        let part = match self.part {
            Some((from, to)) => &payload[from.min(payload.len())..to.min(payload.len())],
            None => payload,
        };
        let mut bytes = match ends {
            (IpAddr::V4(src), IpAddr::V4(dst)) => self.wrap_v4(src, dst, protocol, ecn, part),
            (IpAddr::V6(src), IpAddr::V6(dst)) => self.wrap_v6(src, dst, protocol, ecn, part),
            _ => unreachable!("both addresses are of the script's family"),
        };
        if let Some(version) = self.version {
            bytes[0] = version << 4 | bytes[0] & 0x0f;
        }
        bytes.truncate(self.cut.unwrap_or(bytes.len()));
        bytes
    }

    fn wrap_v4(&self, src: Ipv4Addr, dst: Ipv4Addr, protocol: IpProtocol, ecn: Ecn, part: &[u8]) -> Vec<u8> {
        let mut repr = Ipv4Repr::new(src, dst, protocol, part.len() as u16);
        (repr.ecn, repr.dscp) = (ecn, self.dscp);
        repr.ttl = self.ttl.unwrap_or(repr.ttl);
        repr.dont_fragment = self.part.is_none();
        repr.identification = self.id;
        repr.more_fragments = self.more;
        repr.fragment_offset = self.part.map_or(0, |(from, _)| from as u16);
        let mut bytes = vec![0; repr.emitted_len()];
        repr.emit(&mut bytes);
        bytes.extend_from_slice(&self.options);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        let header_len = bytes.len();
        bytes.extend_from_slice(part);
        let total = self.len.unwrap_or(bytes.len() as u16);
        bytes[0] = 0x40 | (header_len / 4) as u8;
        bytes[2..4].copy_from_slice(&total.to_be_bytes());
        bytes[10..12].fill(0);
        let sum = Sum::of(&bytes[..header_len]).checksum();
        bytes[10..12].copy_from_slice(&sum.to_be_bytes());
        bytes[10] ^= u8::from(self.bad_sum);
        bytes
    }

    fn wrap_v6(&self, src: Ipv6Addr, dst: Ipv6Addr, protocol: IpProtocol, ecn: Ecn, part: &[u8]) -> Vec<u8> {
        let mut behind = Vec::new();
        let mut first = protocol;
        if let Some((number, headers)) = &self.chain {
            first = IpProtocol(*number);
            behind.extend_from_slice(headers);
        }
        if let Some((from, _)) = self.part {
            first = IpProtocol::FRAGMENT;
            behind.extend([protocol.0, 0]);
            behind.extend((from as u16 | u16::from(self.more)).to_be_bytes());
            behind.extend(u32::from(self.id).to_be_bytes());
        }
        behind.extend_from_slice(part);
        let mut repr = Ipv6Repr::new(src, dst, first, self.len.unwrap_or(behind.len() as u16));
        (repr.ecn, repr.dscp) = (ecn, self.dscp);
        repr.hop_limit = self.ttl.unwrap_or(repr.hop_limit);
        let mut bytes = vec![0; repr.emitted_len()];
        repr.emit(&mut bytes);
        bytes.extend_from_slice(&behind);
        bytes
    }
}

impl Datagram {
    /// `40000>7 (10) [len 8] [badsum|nosum]`.
    fn parse(text: &str) -> Result<Self, String> {
        let mut words = text.split_whitespace();
        let mut next = || words.next().ok_or("a datagram is like 40000>7 (10)");
        let (src, dst) = next()?.split_once('>').ok_or("ports are like 40000>7")?;
        let len = bracketed(next()?)?;
        let mut datagram =
            Self { src: number(src)?, dst: number(dst)?, len, told: None, sum: Checksum::Right };
        while let Some(word) = words.next() {
            match word {
                "len" => datagram.told = Some(number(words.next().ok_or("`len` needs a number")?)?),
                "badsum" => datagram.sum = Checksum::Wrong,
                "nosum" => datagram.sum = Checksum::None,
                _ => return Err(format!("`{word}` is no part of a datagram")),
            }
        }
        Ok(datagram)
    }

    pub(crate) fn emit(&self, src: IpAddr, dst: IpAddr) -> Vec<u8> {
        let mut bytes = vec![0; 8 + self.len];
        PEER_TEXT.fill(0, &mut bytes[8..]);
        let payload_len = self.len as u16;
        UdpRepr { src_port: Port(self.src), dst_port: Port(self.dst), payload_len }.emit(&mut bytes);
        if let Some(told) = self.told {
            bytes[4..6].copy_from_slice(&told.to_be_bytes());
        }
        let pseudo = Sum::pseudo(src, dst, IpProtocol::UDP, bytes.len() as u32);
        match self.sum {
            Checksum::Right => udp::fill_checksum(&mut bytes, pseudo),
            Checksum::Wrong => {
                udp::fill_checksum(&mut bytes, pseudo);
                bytes[6] ^= 0x20;
            }
            Checksum::None => {}
        }
        bytes
    }
}

/// A packet of the netstack's that is no TCP segment, in the words of a line. The text behind is checked.
pub(crate) fn describe(src: IpAddr, dst: IpAddr, protocol: IpProtocol, payload: &[u8]) -> String {
    match protocol {
        IpProtocol::UDP => match UdpView::parse(payload) {
            Ok(view) => {
                let ports = format!("udp {}>{}", view.src_port().0, view.dst_port().0);
                if !view.is_checksum_valid(src, dst) {
                    return format!("{ports} with a wrong checksum");
                }
                with_text(&ports, OUR_TEXT, view.payload())
            }
            Err(error) => format!("a bad datagram: {error}"),
        },
        IpProtocol::ICMPV4 | IpProtocol::ICMPV6 => icmp::describe(src, dst, payload),
        protocol => format!("a packet of protocol {}", protocol.0),
    }
}

/// `what (LEN)`, or what is wrong with the text.
pub(crate) fn with_text(what: &str, pattern: Pattern, text: &[u8]) -> String {
    match pattern.first_wrong(0, text) {
        None => format!("{what} ({})", text.len()),
        Some(wrong) => format!("{what} with a wrong byte at {wrong}"),
    }
}

/// `(10)`.
pub(crate) fn bracketed(word: &str) -> Result<usize, String> {
    let inner = word.strip_prefix('(').and_then(|word| word.strip_suffix(')'));
    number(inner.ok_or(format!("`{word}` is no length like (10)"))?)
}

fn hex(digits: &str) -> Result<Vec<u8>, String> {
    crate::options::bytes(digits).ok_or(format!("`{digits}` are no bytes"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_are_told_apart_from_segments() {
        assert!(matches!(Packet::parse(" S 0:0(0)").unwrap().body, Body::Segment(_)));
        let packet = Packet::parse("ip(ttl 1, part 0:16 more, id 7) udp 4>7 (10) nosum").unwrap();
        assert_eq!((packet.envelope.ttl, packet.envelope.part), (Some(1), Some((0, 16))));
        assert!(packet.envelope.more && matches!(packet.body, Body::Udp(Datagram { len: 10, .. })));
        let packet = Packet::parse("ip(from 10.0.0.9) S 0:0(0)").unwrap();
        assert!(packet.envelope.from.is_some() && matches!(packet.body, Body::Segment(_)));
    }

    #[test]
    fn mistakes_are_named() {
        for (text, what) in [
            ("ip(ttl 1", "`)`"),
            ("ip(speed 5) udp 1>2 (3)", "`speed 5`"),
            ("udp 1-2 (3)", "ports"),
            ("udp 1>2 3", "`3`"),
            ("udp 1>2 (3) now", "`now`"),
            ("icmp hello", "`hello`"),
            ("bytes x", "`x`"),
        ] {
            let error = Packet::parse(text).unwrap_err();
            assert!(error.contains(what), "{text}: {error}");
        }
    }

    #[test]
    fn what_comes_is_described_as_it_would_be_written() {
        let ends: [IpAddr; 2] = ["10.0.0.1".parse().unwrap(), "10.0.0.2".parse().unwrap()];
        let datagram = Datagram::parse("7>40000 (10)").unwrap();
        let mut bytes = datagram.emit(ends[0], ends[1]);
        let told = describe(ends[0], ends[1], IpProtocol::UDP, &bytes);
        assert_eq!(told, "udp 7>40000 with a wrong byte at 0", "the peer's text is not ours");
        OUR_TEXT.fill(0, &mut bytes[8..]);
        assert_eq!(describe(ends[0], ends[1], IpProtocol::UDP, &bytes), "udp 7>40000 with a wrong checksum");
    }
}
