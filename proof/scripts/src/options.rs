//! The TCP options of the language, each with its bytes: `mss 1460`, `sackOK`, `TS val 1 ecr 2`, `wscale 7`,
//! `nop`, `eol`, `sack 1:2 5:9`, `FO`, `FO ours`, `FO 0badc0de`, `hex 1c02`.
//!
//! The order and the padding are part of what a script says, so options are kept as a list, not as a set.

use std::fmt;

use firelane_wire::FastOpen;

/// One option. Numbers are the script's: relative to the connection's own.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Opt {
    Eol,
    Nop,
    Mss(u16),
    WindowScale(u8),
    SackPermitted,
    Sack(Vec<(i64, i64)>),
    Timestamps(i64, i64),
    /// Fast Open: a cookie, or none, which asks for one.
    FastOpen(Cookie),
    /// Anything, byte by byte.
    Hex(Vec<u8>),
}

/// The cookie of a Fast Open option.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Cookie {
    /// The one that the netstack gave last.
    Ours,
    /// These bytes.
    Bytes(Vec<u8>),
}

/// How to come from a script's numbers to those on the wire, and back.
pub(crate) struct Bases {
    /// Of the sequence numbers in SACK blocks.
    pub(crate) sack: u32,
    /// Of the timestamp.
    pub(crate) value: u32,
    /// Of the echoed timestamp.
    pub(crate) echo: u32,
    /// The cookie that is called `ours`.
    pub(crate) cookie: Option<FastOpen>,
}

impl Opt {
    /// Reads `mss 1460,nop,...`.
    pub(crate) fn parse_list(text: &str) -> Result<Vec<Self>, String> {
        text.split(',').map(|part| Self::parse(part.trim())).collect()
    }

    fn parse(text: &str) -> Result<Self, String> {
        let words: Vec<&str> = text.split_whitespace().collect();
        let number = |word: &str| word.parse::<i64>().map_err(|_| format!("`{word}` is no number"));
        Ok(match words[..] {
            ["nop"] => Self::Nop,
            ["eol"] => Self::Eol,
            ["sackOK"] => Self::SackPermitted,
            ["mss", n] => Self::Mss(number(n)? as u16),
            ["wscale", n] => Self::WindowScale(number(n)? as u8),
            ["TS", "val", value, "ecr", echo] => Self::Timestamps(number(value)?, number(echo)?),
            ["sack", ..] => {
                let block = |word: &&str| {
                    let (left, right) = word.split_once(':').ok_or(format!("`{word}` is no block"))?;
                    Ok::<_, String>((number(left)?, number(right)?))
                };
                Self::Sack(words[1..].iter().map(block).collect::<Result<_, _>>()?)
            }
            ["FO"] => Self::FastOpen(Cookie::Bytes(Vec::new())),
            ["FO", "ours"] => Self::FastOpen(Cookie::Ours),
            ["FO", digits] => {
                Self::FastOpen(Cookie::Bytes(bytes(digits).ok_or(format!("`{digits}` are no bytes"))?))
            }
            ["hex", digits] => Self::Hex(bytes(digits).ok_or(format!("`{digits}` are no bytes"))?),
            _ => return Err(format!("`{text}` is no option")),
        })
    }

    /// Puts the option on the wire.
    pub(crate) fn emit(&self, bases: &Bases, out: &mut Vec<u8>) {
        let word = |base: u32, n: i64| base.wrapping_add(n as u32).to_be_bytes();
        match self {
            Self::Eol => out.push(0),
            Self::Nop => out.push(1),
            Self::Mss(mss) => {
                out.extend([2, 4]);
                out.extend(mss.to_be_bytes());
            }
            Self::WindowScale(shift) => out.extend([3, 3, *shift]),
            Self::SackPermitted => out.extend([4, 2]),
            Self::Sack(blocks) => {
                out.extend([5, 2 + 8 * blocks.len() as u8]);
                for &(left, right) in blocks {
                    out.extend(word(bases.sack, left));
                    out.extend(word(bases.sack, right));
                }
            }
            Self::Timestamps(value, echo) => {
                out.extend([8, 10]);
                out.extend(word(bases.value, *value));
                out.extend(word(bases.echo, *echo));
            }
            Self::FastOpen(cookie) => {
                let ours = bases.cookie.as_ref().map(FastOpen::as_slice);
                let bytes = match cookie {
                    Cookie::Ours => ours.unwrap_or_default(),
                    Cookie::Bytes(bytes) => bytes,
                };
                out.extend([34, 2 + bytes.len() as u8]);
                out.extend(bytes);
            }
            Self::Hex(bytes) => out.extend(bytes),
        }
    }

    /// Reads options from the wire; what is malformed is bytes.
    pub(crate) fn read_list(mut bytes: &[u8], bases: &Bases) -> Vec<Self> {
        let mut list = Vec::new();
        while let [kind, rest @ ..] = bytes {
            if *kind < 2 {
                list.push(if *kind == 0 { Self::Eol } else { Self::Nop });
                bytes = rest;
                continue;
            }
            let whole = rest.first().and_then(|&len| bytes.split_at_checked(usize::from(len)));
            let Some((option, after)) = whole.filter(|(option, _)| option.len() >= 2) else {
                list.push(Self::Hex(bytes.to_vec()));
                break;
            };
            list.push(Self::read(option, bases));
            bytes = after;
        }
        list
    }

    fn read(option: &[u8], bases: &Bases) -> Self {
        let relative = |base: u32, b: &[u8]| {
            let number = u32::from_be_bytes([b[0], b[1], b[2], b[3]]);
            i64::from(number.wrapping_sub(base) as i32)
        };
        match (option[0], &option[2..]) {
            (2, &[high, low]) => Self::Mss(u16::from_be_bytes([high, low])),
            (3, &[shift]) => Self::WindowScale(shift),
            (4, []) => Self::SackPermitted,
            (5, blocks) if blocks.len() % 8 == 0 => {
                let block = |b: &[u8]| (relative(bases.sack, b), relative(bases.sack, &b[4..]));
                Self::Sack(blocks.chunks(8).map(block).collect())
            }
            (8, b) if b.len() == 8 => {
                Self::Timestamps(relative(bases.value, b), relative(bases.echo, &b[4..]))
            }
            (34, b) if bases.cookie.is_some_and(|cookie| cookie.as_slice() == b && !b.is_empty()) => {
                Self::FastOpen(Cookie::Ours)
            }
            (34, b) => Self::FastOpen(Cookie::Bytes(b.to_vec())),
            _ => Self::Hex(option.to_vec()),
        }
    }
}

/// Bytes from hexadecimal digits.
pub(crate) fn bytes(digits: &str) -> Option<Vec<u8>> {
    let pairs = digits.as_bytes().chunks(2);
    pairs.map(|pair| u8::from_str_radix(core::str::from_utf8(pair).ok()?, 16).ok()).collect()
}

impl fmt::Display for Opt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Eol => f.write_str("eol"),
            Self::Nop => f.write_str("nop"),
            Self::Mss(mss) => write!(f, "mss {mss}"),
            Self::WindowScale(shift) => write!(f, "wscale {shift}"),
            Self::SackPermitted => f.write_str("sackOK"),
            Self::Sack(blocks) => {
                f.write_str("sack")?;
                blocks.iter().try_for_each(|(left, right)| write!(f, " {left}:{right}"))
            }
            Self::Timestamps(value, echo) => write!(f, "TS val {value} ecr {echo}"),
            Self::FastOpen(Cookie::Ours) => f.write_str("FO ours"),
            Self::FastOpen(Cookie::Bytes(bytes)) if bytes.is_empty() => f.write_str("FO"),
            Self::FastOpen(Cookie::Bytes(bytes)) => {
                f.write_str("FO ")?;
                bytes.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
            }
            Self::Hex(bytes) => {
                f.write_str("hex ")?;
                bytes.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_and_shown_again() {
        let bases = Bases { sack: u32::MAX - 3, value: 77, echo: u32::MAX, cookie: FastOpen::new(&[5; 8]) };
        for text in [
            "mss 1460,nop,nop,sackOK,nop,wscale 7",
            "mss 1460,sackOK,TS val 100 ecr 0,nop,wscale 14",
            "nop,nop,sack 1:1001 2001:3001",
            "eol,hex fe04aabb",
            "mss 1460,FO,nop,nop",
            "FO 0badc0de,nop,nop,FO ours,nop,nop",
        ] {
            let list = Opt::parse_list(text).unwrap();
            let mut bytes = Vec::new();
            list.iter().for_each(|option| option.emit(&bases, &mut bytes));
            let read = Opt::read_list(&bytes, &bases);
            assert_eq!(read, list);
            let shown: Vec<String> = read.iter().map(Opt::to_string).collect();
            assert_eq!(shown.join(","), text);
        }
    }

    #[test]
    fn nonsense_is_named() {
        for (text, what) in [("mss x", "`x`"), ("foo", "`foo`"), ("sack 1-2", "`1-2`"), ("hex 0g", "`0g`")] {
            assert!(Opt::parse_list(text).unwrap_err().contains(what), "{text}");
        }
    }
}
