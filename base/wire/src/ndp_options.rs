//! The options of neighbour discovery messages (RFC 4861 §4.6, RFC 3971, RFC 8106).
//!
//! Lengths are checked once, when `ndp.rs` parses the message, so walking the options later cannot fail.
//! There are at most [`OPTIONS_MAX`]; how many prefixes or servers are kept is for `path/ip` to limit.

use core::net::Ipv6Addr;
use core::time::Duration;

use firelane_units::MacAddr;

use crate::NdpError;
use crate::bytes::{array, be32, fixed, put};
use crate::ndp::RouterPreference;

/// Options in one message. A full Ethernet frame of prefixes has 46; more is no honest router.
pub const OPTIONS_MAX: usize = 64;

/// A prefix that a router announces (RFC 4861 §4.6.2).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PrefixInformation {
    /// The prefix; bits behind its length mean nothing.
    pub prefix: Ipv6Addr,
    /// How many bits count, as announced: values above 128 included.
    pub prefix_len: u8,
    /// Addresses with this prefix are on the link.
    pub on_link: bool,
    /// Hosts may make addresses from it.
    pub autonomous: bool,
    /// How long it is on the link; [`INFINITE`](Self::INFINITE) is for ever. Whole seconds.
    pub valid: Duration,
    /// How long addresses from it are preferred; [`INFINITE`](Self::INFINITE) is for ever. Whole seconds.
    pub preferred: Duration,
}

impl PrefixInformation {
    /// A lifetime without end.
    pub const INFINITE: Duration = Duration::from_secs(u32::MAX as u64);
}

/// A route that a router announces (RFC 4191 §2.3).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RouteInformation {
    /// Where to; bits behind its length are zero where it was read.
    pub prefix: Ipv6Addr,
    /// How many bits count, at most 128.
    pub prefix_len: u8,
    /// How much to like it.
    pub preference: RouterPreference,
    /// How long it is good; [`PrefixInformation::INFINITE`] is for ever. Whole seconds.
    pub lifetime: Duration,
}

/// One option.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NdpOption<'a> {
    /// The sender's Ethernet address.
    SourceLinkLayer(MacAddr),
    /// The target's Ethernet address.
    TargetLinkLayer(MacAddr),
    /// A prefix of the link.
    Prefix(PrefixInformation),
    /// The packet that caused a redirect, as far as it is quoted; its length is a multiple of 8.
    Redirected(&'a [u8]),
    /// The link's MTU.
    Mtu(u32),
    /// A number by which a solicitation is recognised (RFC 3971 §5.3.2, RFC 7527); 6 bytes, or 8 more.
    Nonce(&'a [u8]),
    /// A route behind the router.
    Route(RouteInformation),
    /// Recursive DNS servers (RFC 8106 §5.1).
    RecursiveDns {
        /// How long they may be used. Whole seconds.
        lifetime: Duration,
        /// Their addresses.
        servers: &'a [[u8; 16]],
    },
    /// Domains in which short names are looked for (RFC 8106 §5.2).
    DnsSearch {
        /// How long they may be used. Whole seconds.
        lifetime: Duration,
        /// Their names, for [`search_domains`], padded with zeroes.
        names: &'a [u8],
    },
    /// Any other: type and contents, 6 bytes or 8 more.
    Other(u8, &'a [u8]),
}

impl<'a> NdpOption<'a> {
    /// Reads the option at the front of `bytes`; says what is behind it.
    fn read(bytes: &'a [u8]) -> Result<(Self, &'a [u8]), NdpError> {
        let &[kind, units, ..] = bytes else { return Err(NdpError::OptionLength) };
        let (option, rest) = bytes.split_at_checked(usize::from(units) * 8).ok_or(NdpError::OptionLength)?;
        // A length of zero would never end: it does not even cover type and length.
        let [_, _, body @ ..] = option else { return Err(NdpError::OptionLength) };
        let option = match (kind, body) {
            (1, &[a, b, c, d, e, f]) => Self::SourceLinkLayer(MacAddr([a, b, c, d, e, f])),
            (2, &[a, b, c, d, e, f]) => Self::TargetLinkLayer(MacAddr([a, b, c, d, e, f])),
            (3, body) => Self::Prefix(read_prefix(body).ok_or(NdpError::OptionLength)?),
            (4, [_, _, _, _, _, _, quoted @ ..]) => Self::Redirected(quoted),
            (5, &[_, _, a, b, c, d]) => Self::Mtu(u32::from_be_bytes([a, b, c, d])),
            (1 | 2 | 5, _) => return Err(NdpError::OptionLength),
            (14, nonce) => Self::Nonce(nonce),
            (24, body) => read_route(body).map_or(Self::Other(24, body), Self::Route),
            (31, [_, _, a, b, c, d, names @ ..]) if names.len() >= 8 => {
                let lifetime = u32::from_be_bytes([*a, *b, *c, *d]);
                Self::DnsSearch { lifetime: Duration::from_secs(lifetime.into()), names }
            }
            (25, body) => Self::read_dns(body).unwrap_or(Self::Other(25, body)),
            (kind, body) => Self::Other(kind, body),
        };
        Ok((option, rest))
    }

    /// RFC 8106 §5.3.1: an option without a server, or with half of one, is ignored and the rest of the
    /// message is not.
    fn read_dns(body: &'a [u8]) -> Option<Self> {
        let (head, servers) = body.split_first_chunk::<6>()?;
        let (servers, half) = servers.as_chunks::<16>();
        let lifetime = Duration::from_secs(u64::from(be32(head, 2)));
        (half.is_empty() && !servers.is_empty()).then_some(Self::RecursiveDns { lifetime, servers })
    }

    /// Type, and bytes behind type and length before padding.
    const fn parts(&self) -> (u8, usize) {
        match self {
            Self::SourceLinkLayer(_) => (1, 6),
            Self::TargetLinkLayer(_) => (2, 6),
            Self::Prefix(_) => (3, 30),
            Self::Redirected(quoted) => (4, 6 + quoted.len()),
            Self::Mtu(_) => (5, 6),
            Self::Nonce(nonce) => (14, nonce.len()),
            Self::Route(route) => (24, route_len(route)),
            Self::RecursiveDns { servers, .. } => (25, 6 + 16 * servers.len()),
            Self::DnsSearch { names, .. } => (31, 6 + names.len()),
            Self::Other(kind, body) => (*kind, body.len()),
        }
    }

    /// Bytes that [`emit`](Self::emit) writes, a multiple of 8.
    pub const fn emitted_len(&self) -> usize {
        (2 + self.parts().1).next_multiple_of(8)
    }

    /// Writes the option, padded with zeroes, to the front of `buffer`.
    ///
    /// # Panics
    /// If `buffer` is too small, or the option is longer than the 2,040 bytes that its length can say.
    pub fn emit(&self, buffer: &mut [u8]) {
        let option = &mut buffer[..self.emitted_len()];
        option.fill(0);
        option[0] = self.parts().0;
        option[1] = u8::try_from(option.len() / 8).expect("an option has at most 2,040 bytes");
        match *self {
            Self::SourceLinkLayer(mac) | Self::TargetLinkLayer(mac) => option[2..8].copy_from_slice(&mac.0),
            Self::Prefix(prefix) => emit_prefix(&prefix, fixed(option)),
            Self::Redirected(quoted) => option[8..8 + quoted.len()].copy_from_slice(quoted),
            Self::Mtu(mtu) => option[4..8].copy_from_slice(&mtu.to_be_bytes()),
            Self::Nonce(body) | Self::Other(_, body) => option[2..2 + body.len()].copy_from_slice(body),
            Self::Route(route) => emit_route(&route, option),
            Self::DnsSearch { lifetime, names } => {
                option[4..8].copy_from_slice(&seconds(lifetime).to_be_bytes());
                option[8..8 + names.len()].copy_from_slice(names);
            }
            Self::RecursiveDns { lifetime, servers } => {
                option[4..8].copy_from_slice(&seconds(lifetime).to_be_bytes());
                option[8..].copy_from_slice(servers.as_flattened());
            }
        }
    }
}

fn read_prefix(body: &[u8]) -> Option<PrefixInformation> {
    let body: &[u8; 30] = body.try_into().ok()?;
    Some(PrefixInformation {
        prefix_len: body[0],
        on_link: body[1] & 0x80 != 0,
        autonomous: body[1] & 0x40 != 0,
        valid: Duration::from_secs(u64::from(be32(body, 2))),
        preferred: Duration::from_secs(u64::from(be32(body, 6))),
        prefix: Ipv6Addr::from(array::<16, _>(body, 14)),
    })
}

fn emit_prefix(prefix: &PrefixInformation, option: &mut [u8; 32]) {
    let flags = u8::from(prefix.on_link) << 7 | u8::from(prefix.autonomous) << 6;
    put(option, 2, [prefix.prefix_len, flags]);
    put(option, 4, seconds(prefix.valid).to_be_bytes());
    put(option, 8, seconds(prefix.preferred).to_be_bytes());
    put(option, 16, prefix.prefix.octets());
}

/// RFC 4191 §2.3: one whose preference is the reserved value is ignored, like one whose prefix is not all there.
fn read_route(body: &[u8]) -> Option<RouteInformation> {
    let (head, prefix) = body.split_first_chunk::<6>()?;
    let prefix_len = head[0];
    if prefix_len > 128 || prefix.len() > 16 || prefix.len() * 8 < usize::from(prefix_len) {
        return None;
    }
    let mut octets = [0; 16];
    octets[..prefix.len()].copy_from_slice(prefix);
    // "The bits in the prefix after the prefix length ... MUST be ignored by the receiver."
    let kept = u128::MAX.checked_shl(128 - u32::from(prefix_len)).unwrap_or(0);
    Some(RouteInformation {
        prefix: (u128::from_be_bytes(octets) & kept).into(),
        prefix_len,
        preference: RouterPreference::from_bits(head[1] >> 3 & 3)?,
        lifetime: Duration::from_secs(u64::from(be32(head, 2))),
    })
}

/// Bytes behind type and length: the prefix as far as its length says, in units of eight.
const fn route_len(route: &RouteInformation) -> usize {
    6 + match route.prefix_len {
        0 => 0,
        1..=64 => 8,
        65.. => 16,
    }
}

fn emit_route(route: &RouteInformation, option: &mut [u8]) {
    option[2] = route.prefix_len;
    option[3] = route.preference.bits() << 3;
    option[4..8].copy_from_slice(&seconds(route.lifetime).to_be_bytes());
    let prefix = &mut option[8..];
    prefix.copy_from_slice(&route.prefix.octets()[..prefix.len()]);
}

/// The names in a [`NdpOption::DnsSearch`], each a list of labels; it ends where one is malformed or the padding
/// begins (RFC 8106 §5.2, RFC 1035 §3.1).
pub fn search_domains(names: &[u8]) -> impl Iterator<Item = impl Iterator<Item = &[u8]>> {
    let mut rest = names;
    core::iter::from_fn(move || {
        let len = name_len(rest)?;
        let (name, behind) = rest.split_at(len);
        rest = behind;
        Some(labels(name))
    })
}

/// Bytes of the name at the front, its closing zero included. RFC 1035 §3.1: labels have at most 63 bytes and a
/// name 255; RFC 8106 §5.2: it is not compressed.
fn name_len(bytes: &[u8]) -> Option<usize> {
    let mut at = 0;
    loop {
        match *bytes.get(at)? {
            0 => return (at > 0).then_some(at + 1),
            len @ 1..=63 => at += 1 + usize::from(len),
            _ => return None,
        }
        if at >= 255 {
            return None;
        }
    }
}

fn labels(mut name: &[u8]) -> impl Iterator<Item = &[u8]> {
    core::iter::from_fn(move || {
        let (&len, behind) = name.split_first().filter(|(len, _)| **len > 0)?;
        let (label, rest) = behind.split_at_checked(usize::from(len))?;
        name = rest;
        Some(label)
    })
}

fn seconds(span: Duration) -> u32 {
    u32::try_from(span.as_secs()).unwrap_or(u32::MAX)
}

/// The options of a message, in order, whose lengths have been checked.
#[derive(Clone, Copy, Debug)]
pub struct NdpOptions<'a> {
    rest: &'a [u8],
}

impl<'a> NdpOptions<'a> {
    pub(crate) fn check(bytes: &'a [u8]) -> Result<Self, NdpError> {
        let mut rest = bytes;
        for _ in 0..OPTIONS_MAX {
            if rest.is_empty() {
                return Ok(Self { rest: bytes });
            }
            rest = NdpOption::read(rest)?.1;
        }
        if rest.is_empty() { Ok(Self { rest: bytes }) } else { Err(NdpError::TooManyOptions) }
    }

    /// The sender's Ethernet address, if it is there.
    pub fn source_mac(mut self) -> Option<MacAddr> {
        self.find_map(|option| match option {
            NdpOption::SourceLinkLayer(mac) => Some(mac),
            _ => None,
        })
    }

    /// The target's Ethernet address, if it is there.
    pub fn target_mac(mut self) -> Option<MacAddr> {
        self.find_map(|option| match option {
            NdpOption::TargetLinkLayer(mac) => Some(mac),
            _ => None,
        })
    }

    /// The nonce of a solicitation, if it is there.
    pub fn nonce(mut self) -> Option<&'a [u8]> {
        self.find_map(|option| match option {
            NdpOption::Nonce(nonce) => Some(nonce),
            _ => None,
        })
    }
}

impl<'a> Iterator for NdpOptions<'a> {
    type Item = NdpOption<'a>;

    fn next(&mut self) -> Option<NdpOption<'a>> {
        if self.rest.is_empty() {
            return None;
        }
        let (option, rest) = NdpOption::read(self.rest).ok()?;
        self.rest = rest;
        Some(option)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn emitted(option: NdpOption<'_>) -> Vec<u8> {
        let mut bytes = vec![0xee; option.emitted_len()];
        option.emit(&mut bytes);
        bytes
    }

    #[test]
    fn known_options() {
        let mac = MacAddr([2, 8, 0x20, 1, 2, 3]);
        assert_eq!(emitted(NdpOption::TargetLinkLayer(mac)), [2, 1, 2, 8, 0x20, 1, 2, 3]);
        assert_eq!(emitted(NdpOption::Mtu(1500)), [5, 1, 0, 0, 0, 0, 5, 0xdc]);
        assert_eq!(emitted(NdpOption::Nonce(&[1, 2, 3, 4, 5, 6])), [14, 1, 1, 2, 3, 4, 5, 6]);
        let prefix = NdpOption::Prefix(PrefixInformation {
            prefix: "fd00:1::".parse().unwrap(),
            prefix_len: 64,
            on_link: true,
            autonomous: true,
            valid: PrefixInformation::INFINITE,
            preferred: Duration::from_secs(14_400),
        });
        let expected = [
            &[3, 4, 64, 0xc0, 0xff, 0xff, 0xff, 0xff, 0, 0, 0x38, 0x40, 0, 0, 0, 0][..],
            &[0xfd, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
        ]
        .concat();
        assert_eq!(emitted(prefix), expected);
        assert_eq!(NdpOption::read(&expected), Ok((prefix, &[][..])));
        let server = [[0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x53]];
        let dns = NdpOption::RecursiveDns { lifetime: Duration::from_secs(60), servers: &server };
        assert_eq!(emitted(dns)[..8], [25, 3, 0, 0, 0, 0, 0, 60]);
        assert_eq!(emitted(dns)[8..], server[0]);
    }

    #[test]
    fn routes_of_every_length_and_those_that_are_ignored() {
        let route = |prefix: &str, prefix_len| RouteInformation {
            prefix: prefix.parse().unwrap(),
            prefix_len,
            preference: RouterPreference::High,
            lifetime: Duration::from_secs(600),
        };
        for (route, len) in [(route("::", 0), 8), (route("fd00:1::", 48), 16), (route("fd00::1", 128), 24)] {
            let bytes = emitted(NdpOption::Route(route));
            assert_eq!((bytes.len(), bytes[3]), (len, 0x08));
            assert_eq!(NdpOption::read(&bytes), Ok((NdpOption::Route(route), &[][..])));
        }
        let sloppy = emitted(NdpOption::Route(route("fd00:1:0:ff00::1", 128)));
        for (len, prefix) in [(0, "::"), (56, "fd00:1:0:ff00::"), (48, "fd00:1::")] {
            let mut bytes = sloppy.clone();
            bytes[2] = len;
            assert_eq!(NdpOption::read(&bytes), Ok((NdpOption::Route(route(prefix, len)), &[][..])));
        }
        let good = emitted(NdpOption::Route(route("fd00:1::", 48)));
        for (at, value) in [(2, 65), (2, 129), (3, 0x10)] {
            let mut bad = good.clone();
            bad[at] = value;
            assert!(matches!(NdpOption::read(&bad), Ok((NdpOption::Other(24, _), _))), "{at} {value}");
        }
    }

    #[test]
    fn search_domains_are_read_until_the_padding_or_the_first_mistake() {
        let read = |names: &[u8]| -> Vec<String> {
            let text = |label: &[u8]| String::from_utf8_lossy(label).into_owned();
            search_domains(names).map(|name| name.map(text).collect::<Vec<_>>().join(".")).collect()
        };
        let names = b"\x07example\x03org\0\x03lab\0\0\0\0";
        assert_eq!(read(names), ["example.org", "lab"]);
        let option = NdpOption::DnsSearch { lifetime: Duration::from_secs(9), names };
        let bytes = emitted(option);
        let Ok((NdpOption::DnsSearch { lifetime, names }, [])) = NdpOption::read(&bytes) else {
            panic!("it reads what it wrote")
        };
        assert_eq!((lifetime.as_secs(), read(names)), (9, vec!["example.org".to_owned(), "lab".to_owned()]));
        assert_eq!(read(b"\x03lab\0\xc0\x00\0"), ["lab"]);
        assert_eq!(read(b"\x09lab\0"), [] as [&str; 0]);
        assert_eq!(read(&[1; 300]), [] as [&str; 0]);
        assert_eq!(read(&[0; 8]), [] as [&str; 0]);
    }

    #[test]
    fn contents_that_fill_no_unit_are_padded_with_zeroes() {
        let quoted = emitted(NdpOption::Redirected(&[0x60; 41]));
        assert_eq!((quoted.len(), quoted[1], &quoted[8 + 41..]), (56, 7, &[0; 7][..]));
        assert_eq!(emitted(NdpOption::Nonce(&[9; 7])), [14, 2, 9, 9, 9, 9, 9, 9, 9, 0, 0, 0, 0, 0, 0, 0]);
    }

    #[test]
    fn the_first_of_a_kind_is_found() {
        let bytes = [[200, 1, 0, 0, 0, 0, 0, 0], [1, 1, 2, 0, 0, 0, 0, 1], [1, 1, 2, 0, 0, 0, 0, 2]].concat();
        let options = NdpOptions::check(&bytes).unwrap();
        assert_eq!(options.source_mac(), Some(MacAddr([2, 0, 0, 0, 0, 1])));
        assert_eq!((options.target_mac(), options.nonce(), options.count()), (None, None, 3));
    }
}
