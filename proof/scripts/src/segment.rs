//! A TCP segment of the language: `S. 0:0(0) ack 1 win 65535 <mss 1460>`.
//!
//! Parsed from a line, put on the wire, read from the wire and compared. Sequence numbers are relative to each
//! side's first, as in packetdrill and tcpdump; a [`Flow`] knows what they are relative to.

use std::fmt;
use std::net::IpAddr;

use firelane_sim::Pattern;
use firelane_units::{Port, SeqNum};
use firelane_wire::{Ecn, FastOpen, IpProtocol, Sum, TcpFlags, TcpOptions, TcpRepr, TcpView, tcp};

use crate::options::{Bases, Opt};

/// What the script's peer writes, what it writes in a segment with other text, and what programs write.
pub(crate) const PEER_TEXT: Pattern = Pattern(0x70);
const OTHER_TEXT: Pattern = Pattern(0x71);
pub(crate) const OUR_TEXT: Pattern = Pattern(0x72);

/// A segment.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Segment {
    /// The peer's port, if it is not the usual one.
    pub(crate) port: Option<u16>,
    /// A new incarnation begins: its numbers are new.
    pub(crate) is_new: bool,
    pub(crate) flags: TcpFlags,
    pub(crate) seq: i64,
    pub(crate) len: u32,
    pub(crate) ack: Option<i64>,
    pub(crate) window: Option<u16>,
    pub(crate) urgent: Option<u16>,
    /// `None` is any.
    pub(crate) options: Option<Vec<Opt>>,
    pub(crate) ecn: Option<Ecn>,
    /// Injected with a wrong checksum.
    pub(crate) bad_sum: bool,
    /// Injected with text that differs from what belongs there.
    pub(crate) other_text: bool,
    /// The IP header's hop limit and DiffServ code point.
    pub(crate) ttl: Option<u8>,
    pub(crate) dscp: Option<u8>,
    /// It has another flow label than what was sent before it, over IPv6.
    pub(crate) relabelled: Option<bool>,
    /// The data offset that the header tells, in words, instead of the truth.
    pub(crate) offset: Option<u8>,
}

/// What a connection's relative numbers are relative to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Flow {
    pub(crate) peer_first: u32,
    pub(crate) our_first: Option<u32>,
    pub(crate) our_stamp: Option<u32>,
    /// The cookie that the netstack gave last, to whoever asked.
    pub(crate) cookie: Option<FastOpen>,
}

impl Flow {
    pub(crate) const fn new(peer_first: u32) -> Self {
        Self { peer_first, our_first: None, our_stamp: None, cookie: None }
    }

    fn outward(&self) -> Bases {
        Bases { sack: self.peer_first, value: self.our_stamp.unwrap_or(0), echo: 0, cookie: self.cookie }
    }

    fn inward(&self) -> Bases {
        Bases {
            sack: self.our_first.unwrap_or(0),
            value: 0,
            echo: self.our_stamp.unwrap_or(0),
            cookie: self.cookie,
        }
    }
}

impl Segment {
    /// Reads everything behind the arrow.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let (head, options) = match text.split_once('<') {
            Some((head, rest)) => {
                let (inner, tail) = rest.split_once('>').ok_or("`<` without `>`")?;
                let options = if inner == "..." { None } else { Some(Opt::parse_list(inner)?) };
                (format!("{head} {tail}"), options)
            }
            None => (text.to_owned(), Some(Vec::new())),
        };
        let mut words = head.split_whitespace();
        let mut next = || words.next().ok_or_else(|| "the segment ends too early".to_owned());
        let mut port = None;
        let mut word = next()?;
        if word == "port" {
            port = Some(parse(next()?)?);
            word = next()?;
        }
        let flags = flags(word)?;
        let (seq, len) = range(next()?)?;
        let mut segment = Self {
            port,
            is_new: false,
            flags,
            seq,
            len,
            ack: None,
            window: None,
            urgent: None,
            options,
            ecn: None,
            bad_sum: false,
            other_text: false,
            offset: None,
            ttl: None,
            dscp: None,
            relabelled: None,
        };
        while let Some(word) = words.next() {
            let mut value = || words.next().ok_or_else(|| format!("`{word}` needs a value"));
            match word {
                "ack" => segment.ack = Some(parse(value()?)?),
                "win" => segment.window = Some(parse(value()?)?),
                "urg" => segment.urgent = Some(parse(value()?)?),
                "noect" | "ect0" | "ect1" | "ce" => segment.ecn = Some(ecn_of(word)),
                "new" => segment.is_new = true,
                "badsum" => segment.bad_sum = true,
                "othertext" => segment.other_text = true,
                "ttl" => segment.ttl = Some(parse(value()?)?),
                "dscp" => segment.dscp = Some(parse(value()?)?),
                "relabelled" => segment.relabelled = Some(true),
                "offset" => segment.offset = Some(parse(value()?)?),
                _ => return Err(format!("`{word}` is no part of a segment")),
            }
        }
        if segment.ack.is_some() != flags.contains(TcpFlags::ACK) {
            return Err("an acknowledgment number goes with the flag `.`, and the flag with a number".into());
        }
        Ok(segment)
    }

    /// The segment's bytes, from the peer at `src` to `dst`.
    pub(crate) fn emit(&self, flow: &Flow, ends: ((IpAddr, u16), (IpAddr, u16))) -> Vec<u8> {
        let ((src, src_port), (dst, dst_port)) = ends;
        let ours = flow.our_first.unwrap_or(0);
        let repr = TcpRepr {
            src_port: Port(src_port),
            dst_port: Port(dst_port),
            seq: SeqNum(flow.peer_first.wrapping_add(self.seq as u32)),
            ack: self.ack.map(|ack| SeqNum(ours.wrapping_add(ack as u32))),
            flags: self.flags,
            window: self.window.unwrap_or(u16::MAX),
            urgent: self.urgent.unwrap_or(0),
            options: TcpOptions::EMPTY,
        };
        let mut options = Vec::new();
        let bases = flow.inward();
        self.options.iter().flatten().for_each(|option| option.emit(&bases, &mut options));
        options.resize(options.len().next_multiple_of(4), 0);
        let header = 20 + options.len();
        let mut bytes = vec![0; header + self.len as usize];
        repr.emit(&mut bytes[..20]);
        bytes[12] = self.offset.unwrap_or(header as u8 / 4) << 4 | bytes[12] & 0x0f;
        bytes[20..header].copy_from_slice(&options);
        let text = if self.other_text { OTHER_TEXT } else { PEER_TEXT };
        // Text begins behind the SYN, which has a number of its own.
        let from = self.seq - 1 + i64::from(self.flags.contains(TcpFlags::SYN));
        text.fill(from as u64, &mut bytes[header..]);
        let pseudo = Sum::pseudo(src, dst, IpProtocol::TCP, bytes.len() as u32);
        tcp::fill_checksum(&mut bytes, pseudo);
        if self.bad_sum {
            bytes[tcp::CHECKSUM_OFFSET] ^= 0x40;
        }
        bytes
    }

    /// What came from the netstack, in the script's numbers. Learns the netstack's first ones.
    pub(crate) fn read(view: &TcpView<'_>, ecn: Ecn, flow: &mut Flow) -> Result<Self, String> {
        let flags = view.flags();
        if flags.contains(TcpFlags::SYN) && flow.our_first.is_none() {
            flow.our_first = Some(view.seq().0);
        }
        if let Some((value, _)) = view.options().timestamps {
            flow.our_stamp.get_or_insert(value);
        }
        if view.ack().is_some() {
            flow.cookie = view.options().fast_open().or(flow.cookie);
        }
        let relative = |number: u32, base: u32| i64::from(number.wrapping_sub(base) as i32);
        let seq = relative(view.seq().0, flow.our_first.unwrap_or(0));
        // Text begins behind the SYN, which has a number of its own.
        let from = seq.wrapping_sub(1) + i64::from(flags.contains(TcpFlags::SYN));
        if let Some(wrong) = OUR_TEXT.first_wrong(from as u64, view.payload()) {
            return Err(format!("the text is wrong at {}", wrong + 1));
        }
        Ok(Self {
            port: None,
            is_new: false,
            flags,
            seq,
            len: view.payload().len() as u32,
            ack: view.ack().map(|ack| relative(ack.0, flow.peer_first)),
            window: Some(view.window()),
            urgent: (view.urgent() != 0).then(|| view.urgent()),
            options: Some(Opt::read_list(view.option_bytes(), &flow.outward())),
            ecn: Some(ecn),
            bad_sum: false,
            other_text: false,
            offset: None,
            ttl: None,
            dscp: None,
            relabelled: None,
        })
    }

    /// Whether `seen` is what this line expects: what the line does not say may be anything, options excepted.
    pub(crate) fn matches(&self, seen: &Self) -> bool {
        self.flags == seen.flags
            && (self.seq, self.len, self.ack) == (seen.seq, seen.len, seen.ack)
            && self.window.is_none_or(|window| Some(window) == seen.window)
            && self.urgent == seen.urgent
            && self.options.as_ref().is_none_or(|options| Some(options) == seen.options.as_ref())
            && self.ttl.is_none_or(|ttl| Some(ttl) == seen.ttl)
            && self.dscp.is_none_or(|dscp| Some(dscp) == seen.dscp)
            && self.relabelled.is_none_or(|it| seen.relabelled.is_none_or(|seen| seen == it))
            && self.ecn.is_none_or(|ecn| Some(ecn) == seen.ecn)
    }
}

/// The codepoint that a line calls so.
fn ecn_of(word: &str) -> Ecn {
    match word {
        "ect0" => Ecn::Capable0,
        "ect1" => Ecn::Capable1,
        "ce" => Ecn::Congested,
        _ => Ecn::NotCapable,
    }
}

impl fmt::Display for Segment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(port) = self.port {
            write!(f, "port {port} ")?;
        }
        let order = "SFRPUEW.";
        let letters =
            order.chars().filter(|&letter| flag(letter).is_some_and(|flag| self.flags.contains(flag)));
        let letters: String = letters.collect();
        f.write_str(if letters.is_empty() { "-" } else { &letters })?;
        write!(f, " {}:{}({})", self.seq, self.seq + i64::from(self.len), self.len)?;
        if let Some(ack) = self.ack {
            write!(f, " ack {ack}")?;
        }
        if let Some(window) = self.window {
            write!(f, " win {window}")?;
        }
        if let Some(urgent) = self.urgent {
            write!(f, " urg {urgent}")?;
        }
        match &self.options {
            None => f.write_str(" <...>")?,
            Some(options) if options.is_empty() => {}
            Some(options) => {
                let words: Vec<String> = options.iter().map(Opt::to_string).collect();
                write!(f, " <{}>", words.join(","))?;
            }
        }
        match self.ecn {
            Some(Ecn::Capable0) => f.write_str(" ect0"),
            Some(Ecn::Capable1) => f.write_str(" ect1"),
            Some(Ecn::Congested) => f.write_str(" ce"),
            _ => Ok(()),
        }
    }
}

/// The flag of a letter.
fn flag(letter: char) -> Option<TcpFlags> {
    Some(match letter {
        'S' => TcpFlags::SYN,
        'F' => TcpFlags::FIN,
        'R' => TcpFlags::RST,
        'P' => TcpFlags::PSH,
        'U' => TcpFlags::URG,
        'E' => TcpFlags::ECE,
        'W' => TcpFlags::CWR,
        '.' => TcpFlags::ACK,
        _ => return None,
    })
}

fn flags(word: &str) -> Result<TcpFlags, String> {
    if word == "-" {
        return Ok(TcpFlags::EMPTY);
    }
    word.chars().try_fold(TcpFlags::EMPTY, |flags, letter| {
        flag(letter).map(|one| flags | one).ok_or(format!("`{word}` are no flags"))
    })
}

/// `1:1001(1000)`.
fn range(word: &str) -> Result<(i64, u32), String> {
    let wrong = || format!("`{word}` is no range like 1:1001(1000)");
    let (first, rest) = word.split_once(':').ok_or_else(wrong)?;
    let (last, len) = rest.strip_suffix(')').and_then(|rest| rest.split_once('(')).ok_or_else(wrong)?;
    let (first, last, len): (i64, i64, u32) = (parse(first)?, parse(last)?, parse(len)?);
    if first + i64::from(len) == last { Ok((first, len)) } else { Err(format!("`{word}` does not add up")) }
}

fn parse<T: std::str::FromStr>(word: &str) -> Result<T, String> {
    word.parse().map_err(|_| format!("`{word}` is no such number"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_segment_is_shown_as_it_was_written() {
        for text in [
            "S 0:0(0) win 65535 <mss 1460,nop,nop,sackOK>",
            "S. 0:0(0) ack 1 win 100 <...>",
            "FP. 1:1001(1000) ack 1 win 5",
            "R 1:1(0)",
            "port 7 - 0:0(0) urg 9",
            ". 1:1(0) ack 1 ce",
        ] {
            assert_eq!(Segment::parse(text).unwrap().to_string(), text);
        }
    }

    #[test]
    fn what_goes_out_comes_back() {
        let ends = (("10.0.0.2".parse().unwrap(), 9), ("10.0.0.1".parse().unwrap(), 80));
        let mut flow = Flow { peer_first: 5, our_first: Some(u32::MAX), our_stamp: Some(77), cookie: None };
        let segment = Segment::parse("P. 1:5(4) ack 3 win 9 <nop,nop,TS val 5 ecr 6>").unwrap();
        let bytes = segment.emit(&flow, ends);
        let view = TcpView::parse(&bytes).unwrap();
        assert!(view.is_checksum_valid(ends.0.0, ends.1.0));
        assert_eq!((view.seq().0, view.ack().unwrap().0), (6, 2));
        assert_eq!(view.options().timestamps, Some((5, 83)));
        // Read as if it were ours: the bases are exchanged.
        let mirrored = Flow { peer_first: u32::MAX, our_first: Some(5), our_stamp: Some(0), ..Flow::new(0) };
        flow = mirrored;
        let wrong = Segment::read(&view, Ecn::NotCapable, &mut flow).unwrap_err();
        assert!(wrong.contains("text"), "the peer's text is not ours: {wrong}");
    }

    #[test]
    fn mistakes_are_named() {
        for (text, what) in [
            ("S", "ends"),
            ("Q 0:0(0)", "`Q`"),
            ("S 0:1(0)", "add up"),
            ("S 0-0", "range"),
            (". 0:0(0)", "acknowledgment"),
            ("S 0:0(0) <mss 5", "`>`"),
            ("S 0:0(0) foo", "`foo`"),
            ("S 0:0(0) win", "value"),
            ("S 0:0(0) win 70000", "`70000`"),
        ] {
            let error = Segment::parse(text).unwrap_err();
            assert!(error.contains(what), "{text}: {error}");
        }
    }
}
