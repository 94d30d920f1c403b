//! A packet that somebody makes up, from words to a frame.
//!
//! `tcp 10.0.0.9:4000 10.0.0.10:80 S`, `udp [fd00::9]:53 [fd00::1]:53`, `icmp 10.0.0.9 10.0.0.10`: what a trace follows
//! when no real frame is there. Sums are right; a datagram has no text, an echo request eight bytes of it.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;

use firelane_units::{MacAddr, Port, SeqNum};
use firelane_wire::{
    EtherType, EthernetRepr, Icmpv4Repr, Icmpv6Repr, IpProtocol, Ipv4Repr, Ipv6Repr, Sum, TcpFlags,
    TcpOptions, TcpRepr, UdpRepr, icmpv6, tcp, udp,
};

/// TCP's flags by their letters.
const FLAGS: [(char, TcpFlags); 6] = [
    ('F', TcpFlags::FIN),
    ('S', TcpFlags::SYN),
    ('R', TcpFlags::RST),
    ('P', TcpFlags::PSH),
    ('A', TcpFlags::ACK),
    ('U', TcpFlags::URG),
];
const ECHO: [u8; 8] = [0; 8];

/// A made-up packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct InventedPacket {
    /// Who seems to send it.
    pub src: SocketAddr,
    /// Who is to get it.
    pub dst: SocketAddr,
    what: What,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum What {
    Tcp(TcpFlags),
    Udp,
    Echo,
}

/// What is wrong with the words of a packet.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BadPacket(String);

impl fmt::Display for BadPacket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for BadPacket {}

impl FromStr for InventedPacket {
    type Err = BadPacket;

    fn from_str(text: &str) -> Result<Self, BadPacket> {
        let bad = |what: String| Err(BadPacket(what));
        let words: Vec<&str> = text.split_whitespace().collect();
        let (&protocol, ends) = words.split_first().unwrap_or((&"", &[]));
        let (src, dst, rest) = match *ends {
            [src, dst, ref rest @ ..] => (src, dst, rest),
            _ => return bad(format!("{text:?}: tcp|udp SRC:PORT DST:PORT [FLAGS], or icmp SRC DST")),
        };
        let end = |text: &str| match protocol {
            "icmp" => text.parse().map(|address| SocketAddr::new(address, 0)).ok(),
            _ => text.parse().ok(),
        };
        let of = |word: &str| {
            BadPacket(format!("{word:?}: no {protocol} end; an address, with a port but for icmp"))
        };
        let (src, dst) = (end(src).ok_or_else(|| of(src))?, end(dst).ok_or_else(|| of(dst))?);
        if src.is_ipv4() != dst.is_ipv4() {
            return bad(format!("{src} and {dst}: two families"));
        }
        let what = match (protocol, rest) {
            ("tcp", []) => What::Tcp(TcpFlags::SYN),
            ("tcp", [letters]) => What::Tcp(flags(letters)?),
            ("udp", []) => What::Udp,
            ("icmp", []) => What::Echo,
            ("tcp" | "udp" | "icmp", [.., last]) => return bad(format!("{last:?}: one word too many")),
            _ => return bad(format!("{protocol:?}: tcp, udp or icmp")),
        };
        Ok(Self { src, dst, what })
    }
}

fn flags(letters: &str) -> Result<TcpFlags, BadPacket> {
    letters.chars().try_fold(TcpFlags::EMPTY, |sum, letter| {
        let known = FLAGS.iter().find(|(of, _)| *of == letter);
        let (_, flag) = known.ok_or_else(|| BadPacket(format!("{letter:?}: flags are of FSRPAU")))?;
        Ok(sum.with(*flag))
    })
}

impl InventedPacket {
    /// The frame from one station to another.
    pub fn frame(&self, src: MacAddr, dst: MacAddr) -> Vec<u8> {
        let (protocol, body) = self.body();
        let length = body.len() as u16;
        let (ethertype, header) = match (self.src.ip(), self.dst.ip()) {
            (IpAddr::V4(from), IpAddr::V4(to)) => {
                let repr = Ipv4Repr::new(from, to, protocol, length);
                let mut header = vec![0; repr.emitted_len()];
                repr.emit(&mut header);
                (EtherType::IPV4, header)
            }
            (IpAddr::V6(from), IpAddr::V6(to)) => {
                let repr = Ipv6Repr::new(from, to, protocol, length);
                let mut header = vec![0; repr.emitted_len()];
                repr.emit(&mut header);
                (EtherType::IPV6, header)
            }
            _ => unreachable!("both ends have one family"),
        };
        let ethernet = EthernetRepr { dst, src, ethertype };
        let mut frame = vec![0; ethernet.emitted_len()];
        ethernet.emit(&mut frame);
        frame.extend(header);
        frame.extend(body);
        frame
    }

    /// What follows the IP header.
    fn body(&self) -> (IpProtocol, Vec<u8>) {
        let (src_port, dst_port) = (Port(self.src.port()), Port(self.dst.port()));
        let pseudo =
            |protocol, length: usize| Sum::pseudo(self.src.ip(), self.dst.ip(), protocol, length as u32);
        match self.what {
            What::Tcp(flags) => {
                let ack = flags.contains(TcpFlags::ACK).then_some(SeqNum(1));
                let options = TcpOptions::default();
                let (seq, window, urgent) = (SeqNum(1), u16::MAX, 0);
                let repr = TcpRepr { src_port, dst_port, seq, ack, flags, window, urgent, options };
                let mut body = vec![0; repr.emitted_len()];
                repr.emit(&mut body);
                let sum = pseudo(IpProtocol::TCP, body.len());
                tcp::fill_checksum(&mut body, sum);
                (IpProtocol::TCP, body)
            }
            What::Udp => {
                let mut body = vec![0; 8];
                UdpRepr { src_port, dst_port, payload_len: 0 }.emit(&mut body);
                let sum = pseudo(IpProtocol::UDP, body.len());
                udp::fill_checksum(&mut body, sum);
                (IpProtocol::UDP, body)
            }
            What::Echo => self.echo(),
        }
    }

    fn echo(&self) -> (IpProtocol, Vec<u8>) {
        let (identifier, sequence, data) = (1, 1, &ECHO[..]);
        match (self.src.ip(), self.dst.ip()) {
            (IpAddr::V6(src), IpAddr::V6(dst)) => {
                let repr = Icmpv6Repr::EchoRequest { identifier, sequence, data };
                let mut body = vec![0; repr.emitted_len()];
                repr.emit(&mut body);
                icmpv6::fill_checksum(&mut body, src, dst);
                (IpProtocol::ICMPV6, body)
            }
            _ => {
                let repr = Icmpv4Repr::EchoRequest { identifier, sequence, data };
                let mut body = vec![0; repr.emitted_len()];
                repr.emit(&mut body);
                (IpProtocol::ICMPV4, body)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use firelane_classify::{Headers, L3};
    use firelane_wire::{Ipv4View, TcpView, UdpView};

    const FROM: MacAddr = MacAddr([2, 0, 0, 0, 0, 9]);
    const TO: MacAddr = MacAddr([2, 0, 0, 0, 0, 1]);

    #[test]
    fn words_become_frames_that_everybody_can_read() {
        for (words, ports) in [
            ("tcp 10.0.0.9:4000 10.0.0.10:80", Some((4000, 80))),
            ("tcp 10.0.0.9:4000 10.0.0.10:80 SA", Some((4000, 80))),
            ("udp [fd00::9]:53 [fd00::1]:5353", Some((53, 5353))),
            ("udp 10.0.0.9:53 10.0.0.10:5353", Some((53, 5353))),
            ("icmp 10.0.0.9 10.0.0.10", None),
            ("icmp fd00::9 fd00::1", None),
        ] {
            let packet: InventedPacket = words.parse().unwrap();
            let frame = packet.frame(FROM, TO);
            let headers = Headers::parse(&frame).unwrap();
            assert_eq!((headers.dst, headers.src), (TO, FROM));
            assert_eq!(headers.ports.map(|(a, b)| (a.0, b.0)), ports, "{words}");
            let ends = match headers.l3 {
                L3::V4 { src, dst } => (src.into(), dst.into()),
                L3::V6 { src, dst } => (src.into(), dst.into()),
                other => panic!("{other:?}"),
            };
            assert_eq!(ends, (packet.src.ip(), packet.dst.ip()));
            let body = &frame[usize::from(headers.l4_offset)..];
            match packet.what {
                What::Tcp(flags) => {
                    let view = TcpView::parse(body).unwrap();
                    assert!(view.is_checksum_valid(ends.0, ends.1));
                    assert_eq!(view.flags(), flags);
                }
                What::Udp => assert!(UdpView::parse(body).unwrap().is_checksum_valid(ends.0, ends.1)),
                What::Echo => {}
            }
            if packet.src.is_ipv4() {
                assert!(Ipv4View::parse(&frame[14..]).unwrap().is_checksum_valid());
            }
        }
    }

    #[test]
    fn mistakes_are_named() {
        for (words, said) in [
            ("", "SRC:PORT DST:PORT"),
            ("sctp 10.0.0.1:1 10.0.0.2:2", "tcp, udp or icmp"),
            ("tcp 10.0.0.1 10.0.0.2:2", "\"10.0.0.1\": no tcp end"),
            ("tcp 10.0.0.1:1 [::1]:2", "two families"),
            ("tcp 10.0.0.1:1 10.0.0.2:2 X", "'X': flags are of FSRPAU"),
            ("udp 10.0.0.1:1 10.0.0.2:2 S", "one word too many"),
        ] {
            let error = words.parse::<InventedPacket>().unwrap_err().to_string();
            assert!(error.contains(said), "{words}: {error}");
        }
    }
}
