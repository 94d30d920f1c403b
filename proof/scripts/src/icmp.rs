//! ICMP in the words of a line: `echo 1 1 (8)`, `unreachable port about udp 7>40000`, `toobig 1280 about tcp 80>40000 1`.
//!
//! One word stands for what both versions say, each with its own numbers. `packet.rs` parses lines with it and describes
//! what comes; `run.rs` lets routers say "too big".

use std::net::IpAddr;

use firelane_sim::Pattern;
use firelane_wire::{Icmpv4View, Icmpv6View, IpProtocol, Ipv4Repr, Ipv6Repr, Sum, icmpv6};

use crate::packet::{bracketed, with_text};
use crate::segment::PEER_TEXT;
use crate::settings::number;

/// A message.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Message {
    what: What,
    bad_sum: bool,
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum What {
    Echo {
        reply: bool,
        id: u16,
        seq: u16,
        len: usize,
    },
    /// An error about a packet of the netstack's.
    Error {
        kind: Kind,
        parameter: u32,
        about: About,
    },
    /// Anything: type, code and so many zeros behind the checksum.
    Raw {
        kind: u8,
        code: u8,
        len: usize,
    },
}

/// An error's name, type and code over IPv4, type and code over IPv6.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Kind(&'static str, (u8, u8), (u8, u8));

const KINDS: [Kind; 10] = [
    Kind("unreachable net", (3, 0), (1, 0)),
    Kind("unreachable host", (3, 1), (1, 3)),
    Kind("unreachable protocol", (3, 2), (4, 1)),
    Kind("unreachable port", (3, 3), (1, 4)),
    Kind("unreachable prohibited", (3, 13), (1, 1)),
    Kind("toobig", (3, 4), (2, 0)),
    Kind("expired", (11, 0), (3, 0)),
    Kind("expired reassembly", (11, 1), (3, 1)),
    Kind("problem", (12, 0), (4, 0)),
    Kind("quench", (4, 0), (100, 0)),
];

/// What an error quotes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct About {
    protocol: IpProtocol,
    /// The netstack's, and the other.
    pub(crate) ports: (u16, u16),
    /// Of a segment, relative to the first.
    pub(crate) seq: i64,
}

impl Message {
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let (text, bad_sum) = match text.strip_suffix("badsum") {
            Some(text) => (text.trim(), true),
            None => (text.trim(), false),
        };
        Ok(Self { what: What::parse(text)?, bad_sum })
    }

    /// The connection that an error quotes, by the peer's port.
    pub(crate) fn about(&self) -> Option<About> {
        match self.what {
            What::Error { about, .. } => Some(about),
            _ => None,
        }
    }

    /// The message's bytes from `src` to `dst`. `first` is what the quoted numbers are relative to.
    pub(crate) fn emit(&self, src: IpAddr, dst: IpAddr, first: u32) -> Vec<u8> {
        let mut bytes = match &self.what {
            What::Echo { reply, id, seq, len } => {
                let kind = match (dst.is_ipv4(), reply) {
                    (true, false) => 8,
                    (true, true) => 0,
                    (false, false) => 128,
                    (false, true) => 129,
                };
                let mut bytes = vec![kind, 0, 0, 0];
                bytes.extend(id.to_be_bytes());
                bytes.extend(seq.to_be_bytes());
                bytes.resize(8 + len, 0);
                PEER_TEXT.fill(0, &mut bytes[8..]);
                bytes
            }
            What::Error { kind, parameter, about } => {
                let (kind, code) = if dst.is_ipv4() { kind.1 } else { kind.2 };
                let mut bytes = vec![kind, code, 0, 0];
                bytes.extend(parameter.to_be_bytes());
                bytes.extend(about.quote(dst, src, first));
                bytes
            }
            What::Raw { kind, code, len } => {
                let mut bytes = vec![*kind, *code];
                bytes.resize(4 + len, 0);
                bytes
            }
        };
        fill_sum(&mut bytes, src, dst);
        if self.bad_sum {
            bytes[2] ^= 0x10;
        }
        bytes
    }
}

impl What {
    fn parse(text: &str) -> Result<Self, String> {
        let words: Vec<&str> = text.split_whitespace().collect();
        match words[..] {
            [word @ ("echo" | "reply"), id, seq, len] => {
                let (id, seq, len) = (number(id)?, number(seq)?, bracketed(len)?);
                return Ok(Self::Echo { reply: word == "reply", id, seq, len });
            }
            ["type", kind, "code", code, len] => {
                return Ok(Self::Raw { kind: number(kind)?, code: number(code)?, len: bracketed(len)? });
            }
            _ => {}
        }
        let unknown = || format!("`{text}` is no ICMP message");
        let (head, about) = text.split_once(" about ").ok_or_else(unknown)?;
        let (name, parameter) = match head.rsplit_once(' ') {
            Some((name, n)) if n.parse::<u32>().is_ok() => (name, number(n)?),
            _ => (head, 0),
        };
        let kind = *KINDS.iter().find(|kind| kind.0 == name).ok_or_else(unknown)?;
        Ok(Self::Error { kind, parameter, about: About::parse(about)? })
    }
}

impl About {
    /// `udp 7>40000`, `tcp 80>40000 1001`.
    fn parse(text: &str) -> Result<Self, String> {
        let ports = |word: &str| -> Result<(u16, u16), String> {
            let (ours, theirs) = word.split_once('>').ok_or(format!("`{word}` are no ports like 7>40000"))?;
            Ok((number(ours)?, number(theirs)?))
        };
        Ok(match text.split_whitespace().collect::<Vec<_>>()[..] {
            ["udp", word] => Self { protocol: IpProtocol::UDP, ports: ports(word)?, seq: 0 },
            ["tcp", word, seq] => Self { protocol: IpProtocol::TCP, ports: ports(word)?, seq: number(seq)? },
            _ => return Err(format!("`{text}` is nothing that an error is about")),
        })
    }

    /// A segment that begins at the number `seq`.
    pub(crate) const fn segment(ports: (u16, u16), seq: i64) -> Self {
        Self { protocol: IpProtocol::TCP, ports, seq }
    }

    /// The netstack's packet from `src` to `dst` as a router quotes it: its header and eight bytes (RFC 792).
    fn quote(&self, src: IpAddr, dst: IpAddr, first: u32) -> Vec<u8> {
        let mut behind = Vec::new();
        behind.extend(self.ports.0.to_be_bytes());
        behind.extend(self.ports.1.to_be_bytes());
        match self.protocol {
            IpProtocol::TCP => behind.extend(first.wrapping_add(self.seq as u32).to_be_bytes()),
            _ => behind.extend([0, 8, 0, 0]),
        }
        let mut quoted = match (src, dst) {
            (IpAddr::V4(src), IpAddr::V4(dst)) => {
                let mut header = Ipv4Repr::new(src, dst, self.protocol, 1480);
                header.dont_fragment = true;
                let mut quoted = vec![0; header.emitted_len()];
                header.emit(&mut quoted);
                quoted
            }
            (IpAddr::V6(src), IpAddr::V6(dst)) => {
                let header = Ipv6Repr::new(src, dst, self.protocol, 1460);
                let mut quoted = vec![0; header.emitted_len()];
                header.emit(&mut quoted);
                quoted
            }
            _ => unreachable!("both addresses are of the script's family"),
        };
        quoted.extend(behind);
        quoted
    }
}

/// "Too big" (RFC 1191 §4, RFC 4443 §3.2) about a segment: the next link carries segments of `mss`.
pub(crate) fn too_big(is_v6: bool, about: About, mss: u16) -> Message {
    let parameter = u32::from(mss) + if is_v6 { 60 } else { 40 };
    Message { what: What::Error { kind: KINDS[5], parameter, about }, bad_sum: false }
}

fn fill_sum(bytes: &mut [u8], src: IpAddr, dst: IpAddr) {
    match (src, dst) {
        (IpAddr::V6(src), IpAddr::V6(dst)) => icmpv6::fill_checksum(bytes, src, dst),
        _ => {
            let sum = Sum::of(bytes).checksum();
            bytes[2..4].copy_from_slice(&sum.to_be_bytes());
        }
    }
}

/// A message of the netstack's in the words of a line.
pub(crate) fn describe(src: IpAddr, dst: IpAddr, bytes: &[u8]) -> String {
    let is_valid = match (src, dst) {
        (IpAddr::V6(src), IpAddr::V6(dst)) => {
            Icmpv6View::parse(bytes).is_ok_and(|view| view.is_checksum_valid(src, dst))
        }
        _ => Icmpv4View::parse(bytes).is_ok_and(|view| view.is_checksum_valid()),
    };
    let &[kind, code, _, _, a, b, c, d, ref rest @ ..] = bytes else { return "a cut ICMP message".into() };
    if !is_valid {
        return "an ICMP message with a wrong checksum".into();
    }
    let parameter = u32::from_be_bytes([a, b, c, d]);
    let echo = |word: &str, pattern: Pattern| {
        with_text(&format!("icmp {word} {} {}", parameter >> 16, parameter & 0xffff), pattern, rest)
    };
    match (dst.is_ipv4(), kind) {
        (true, 0) | (false, 129) => return echo("reply", PEER_TEXT),
        (true, 8) | (false, 128) => return echo("echo", PEER_TEXT),
        _ => {}
    }
    let numbers = |known: &&Kind| (if dst.is_ipv4() { known.1 } else { known.2 }) == (kind, code);
    match KINDS.iter().find(numbers) {
        Some(Kind(name @ ("toobig" | "problem"), ..)) => {
            let shown = if *name == "problem" && dst.is_ipv4() { parameter >> 24 } else { parameter };
            format!("icmp {name} {shown}")
        }
        Some(Kind(name, ..)) => format!("icmp {name}"),
        None => format!("icmp type {kind} code {code}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use firelane_wire::{Icmpv4Repr, Icmpv4Unreachable, Icmpv6Repr};

    #[test]
    fn a_line_and_what_it_makes_have_the_same_words() {
        for ends in [["10.0.0.2", "10.0.0.1"], ["fd00::2", "fd00::1"]] {
            let [src, dst]: [IpAddr; 2] = ends.map(|end| end.parse().unwrap());
            for text in
                ["echo 1 2 (8)", "reply 7 9 (0)", "unreachable port", "toobig 1280", "expired reassembly"]
            {
                let line = if text.contains('(') { text.into() } else { format!("{text} about udp 7>9") };
                let bytes = Message::parse(&line).unwrap().emit(src, dst, 0);
                assert_eq!(describe(src, dst, &bytes), format!("icmp {text}"));
            }
        }
    }

    #[test]
    fn a_quote_names_the_segment() {
        let [src, dst]: [IpAddr; 2] = ["10.0.0.2", "10.0.0.1"].map(|end| end.parse().unwrap());
        let message = Message::parse("unreachable host about tcp 80>40000 -1").unwrap();
        let bytes = message.emit(src, dst, 10);
        let Ok(view) = Icmpv4View::parse(&bytes) else { panic!("a message") };
        let Ok(Icmpv4Repr::Unreachable { reason: Icmpv4Unreachable::Host, quoted }) =
            Icmpv4Repr::parse(&view)
        else {
            panic!("unreachable")
        };
        assert_eq!(quoted[20..], [0, 80, 0x9c, 0x40, 0, 0, 0, 9]);
        let too_big = too_big(true, About::segment((80, 9), 1), 1220);
        let [src, dst]: [IpAddr; 2] = ["fd00::2", "fd00::1"].map(|end| end.parse().unwrap());
        let bytes = too_big.emit(src, dst, 0);
        let Ok(view) = Icmpv6View::parse(&bytes) else { panic!("a message") };
        assert!(matches!(Icmpv6Repr::parse(&view), Ok(Icmpv6Repr::PacketTooBig { mtu: 1280, .. })));
    }
}
