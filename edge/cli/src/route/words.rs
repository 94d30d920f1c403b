//! The words of `route`, taken apart: options, the command, modifiers such as `-net` that are longer than a letter, and operands.
//!
//! Modifiers stand anywhere behind the command, as in the original; options may, too.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use firelane_model::{CongestionControl, RouteEnd};
use firelane_units::IpPrefix;

use super::{OPTIONS, USAGE};
use crate::common::Call;
use crate::session::{Failure, die};

/// Modifiers of the original whose meaning a netstack does not have.
const NOT_HERE: [&str; 22] = [
    "-cloning",
    "-expire",
    "-genmask",
    "-hopcount",
    "-iface",
    "-ifa",
    "-ifp",
    "-interface",
    "-llinfo",
    "-lock",
    "-lockrest",
    "-mtu",
    "-multirt",
    "-proto1",
    "-proto2",
    "-recvpipe",
    "-rtt",
    "-rttvar",
    "-secattr",
    "-sendpipe",
    "-setsrc",
    "-xresolve",
];

/// What a command line of `route` says.
pub(super) struct Words {
    pub(super) call: Call<'static>,
    /// `-inet6` (true) or `-inet`.
    pub(super) is_v6: Option<bool>,
    /// `-host` (true) or `-net`.
    is_host: Option<bool>,
    mask: Option<String>,
    /// How packets end: `-blackhole`, `-reject`, `-prohibit`.
    pub(super) end: Option<RouteEnd>,
    /// Whose packets may take the route: `-from`.
    pub(super) source: Option<IpPrefix>,
    /// `-congestion`.
    pub(super) congestion: Option<CongestionControl>,
}

impl Words {
    pub(super) fn of(words: &[String]) -> Result<Self, Failure> {
        let mut plain = Vec::new();
        let call = Call::of(OPTIONS, USAGE, &[])?;
        let mut it =
            Self { call, is_v6: None, is_host: None, mask: None, end: None, source: None, congestion: None };
        let (mut words, mut gateway) = (words.iter(), None);
        while let Some(word) = words.next() {
            match word.as_str() {
                // The way of writing it before there were modifiers; no destination is called so.
                "net" | "host" => it.is_host = Some(word == "host"),
                "-gateway" => gateway = Some(value(word, words.next())?.to_owned()),
                "-inet" | "-inet6" => it.is_v6 = Some(word == "-inet6"),
                "-net" | "-host" => it.is_host = Some(word == "-host"),
                "-blackhole" => it.end = Some(RouteEnd::Blackhole),
                "-reject" => it.end = Some(RouteEnd::Unreachable),
                "-prohibit" => it.end = Some(RouteEnd::Prohibit),
                // Whatever this command adds is static.
                "-static" => {}
                "-netmask" | "-prefixlen" => it.mask = Some(value(word, words.next())?.to_owned()),
                "-from" => {
                    let text = value(word, words.next())?;
                    let wrong = || die(format!("{word} {text}: a network, such as 192.0.2.0/24"));
                    it.source = Some(text.parse().map_err(|_| wrong())?);
                }
                "-congestion" => {
                    let text = value(word, words.next())?;
                    let read = CongestionControl::of_word(text);
                    it.congestion = Some(read.map_err(|allowed| die(format!("{word} {text}: {allowed}")))?);
                }
                other if NOT_HERE.contains(&other) => {
                    return Err(die(format!("{other}: a netstack's routes have no such property")));
                }
                // Its value may look like anything.
                "-N" | "-z" | "--netstack" => {
                    plain.push(word.clone());
                    plain.extend(words.next().cloned());
                }
                _ => plain.push(word.clone()),
            }
        }
        it.call = Call::of(OPTIONS, USAGE, &plain)?;
        if let Some(gateway) = gateway {
            // A metric stands behind it.
            let operands = &mut it.call.args.operands;
            operands.insert(operands.len().min(2), gateway);
        }
        Ok(it)
    }

    /// The network that `text` names. Without a length or a mask an address is a host, unless it is one of IPv4 that ends in zeros: it
    /// is a network as long as the rest then, as in the original.
    pub(super) fn destination(&self, text: &str, gateway: Option<IpAddr>) -> Result<IpPrefix, Failure> {
        let wrong = |allowed: &str| die(format!("{text}: {allowed}"));
        if text == "default" {
            let is_v6 = self.is_v6.or(gateway.map(|it| it.is_ipv6())).unwrap_or_default();
            return Ok(everywhere(is_v6));
        }
        let allowed = "default, or a network such as 192.0.2.0/24 or fd00::/8, or a host's address";
        if let Ok(addr) = text.parse::<IpAddr>() {
            let len = match &self.mask {
                Some(mask) => {
                    let allowed =
                        format!("-netmask {mask}: such as 255.255.255.0, or the length of a network");
                    length(mask, addr).ok_or_else(|| die(allowed))?
                }
                None => self.usual_length(addr).ok_or_else(|| {
                    wrong("a network needs its length, such as 192.0.2.0/24, or a -netmask")
                })?,
            };
            let prefix = IpPrefix::new(addr, len).ok_or_else(|| wrong(allowed))?;
            return self.suits(text, prefix);
        }
        if let Some(prefix) =
            short_network(text).filter(|_| self.is_host == Some(false) && self.mask.is_none())
        {
            return self.suits(text, prefix);
        }
        let prefix = IpPrefix::of_interface(text).ok_or_else(|| wrong(allowed))?;
        if self.mask.is_some() {
            return Err(wrong("it has its length, and -netmask another"));
        }
        self.suits(text, prefix)
    }

    /// Whether it is what `-inet`, `-inet6` and `-host` say.
    fn suits(&self, text: &str, prefix: IpPrefix) -> Result<IpPrefix, Failure> {
        if self.is_v6.is_some_and(|is_v6| is_v6 != prefix.addr().is_ipv6()) {
            return Err(die(format!("{text}: of the other family than -inet or -inet6 says")));
        }
        if self.is_host == Some(true) && prefix != IpPrefix::host(prefix.addr()) {
            return Err(die(format!("{text}: a network, and -host says that it is none")));
        }
        Ok(prefix.network())
    }

    fn usual_length(&self, addr: IpAddr) -> Option<u8> {
        let host = IpPrefix::host(addr).prefix_len();
        let zeros = match addr {
            IpAddr::V4(it) => u8::try_from(it.to_bits().trailing_zeros() / 8 * 8).ok()?,
            IpAddr::V6(it) if it.is_unspecified() => host,
            IpAddr::V6(_) => 0,
        };
        match self.is_host {
            Some(true) => Some(host),
            Some(false) if zeros == 0 => None,
            _ => Some(host - zeros),
        }
    }
}

/// The network whose last numbers are not written: `10.4` is 10.4.0.0/16.
fn short_network(text: &str) -> Option<IpPrefix> {
    let numbers = text.split('.').map(|it| it.parse::<u8>().ok());
    let numbers = numbers.collect::<Option<Vec<_>>>().filter(|it| it.len() < 4)?;
    let mut octets = [0; 4];
    octets[..numbers.len()].copy_from_slice(&numbers);
    IpPrefix::new(Ipv4Addr::from(octets).into(), u8::try_from(numbers.len() * 8).ok()?)
}

/// The network of all addresses of a family.
pub(super) fn everywhere(is_v6: bool) -> IpPrefix {
    let any = if is_v6 { Ipv6Addr::UNSPECIFIED.into() } else { Ipv4Addr::UNSPECIFIED.into() };
    IpPrefix::new(any, 0).unwrap_or(IpPrefix::host(any))
}

fn value<'a>(word: &str, next: Option<&'a String>) -> Result<&'a str, Failure> {
    next.map(String::as_str).ok_or_else(|| die(format!("option '{word}' requires a value\nusage: {USAGE}")))
}

/// The length that a mask says: in dots, in hexadecimal digits, or as a number.
fn length(mask: &str, addr: IpAddr) -> Option<u8> {
    if let Ok(len) = mask.parse::<u8>() {
        return Some(len);
    }
    let (bits, width) = match (mask.parse::<IpAddr>(), mask.strip_prefix("0x"), addr) {
        (Ok(IpAddr::V4(mask)), _, IpAddr::V4(_)) => (u128::from(mask.to_bits()) << 96, 32),
        (Ok(IpAddr::V6(mask)), _, IpAddr::V6(_)) => (mask.to_bits(), 128),
        (Err(_), Some(digits), IpAddr::V4(_)) => {
            (u128::from(u32::from_str_radix(digits, 16).ok()?) << 96, 32)
        }
        _ => return None,
    };
    let len = bits.leading_ones();
    (len <= width && bits.count_ones() == len).then_some(u8::try_from(len).ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn destination(line: &str) -> String {
        let words: Vec<_> = line.split_whitespace().map(str::to_owned).collect();
        let words = Words::of(&words).unwrap();
        let [text] = words.call.args.operands.as_slice() else { panic!("{line}") };
        words.destination(text, None).map_or_else(|why| format!("{why:?}"), |it| it.to_string())
    }

    #[test]
    fn destinations_have_their_usual_lengths() {
        for (line, network) in [
            ("default", "0.0.0.0/0"),
            ("-inet6 default", "::/0"),
            ("10.1.2.3", "10.1.2.3/32"),
            ("10.1.2.0", "10.1.2.0/24"),
            ("10.1.0.0", "10.1.0.0/16"),
            ("-net 10.0.0.0", "10.0.0.0/8"),
            ("-host 10.1.2.0", "10.1.2.0/32"),
            ("0.0.0.0", "0.0.0.0/0"),
            ("10.1.2.3/16", "10.1.0.0/16"),
            ("10.1.2.0 -netmask 255.255.254.0", "10.1.2.0/23"),
            ("10.1.2.0 -netmask 0xffff0000", "10.1.0.0/16"),
            ("10.1.2.0 -netmask 0.0.0.0", "0.0.0.0/0"),
            ("-prefixlen 20 10.1.2.0", "10.1.0.0/20"),
            ("fd00::1", "fd00::1/128"),
            ("-inet6 fd00:: -prefixlen 64", "fd00::/64"),
            ("fd00:: -netmask ffff::", "fd00::/16"),
            ("-net 10.4", "10.4.0.0/16"),
            ("net 10", "10.0.0.0/8"),
            ("-net 192.168.7", "192.168.7.0/24"),
            ("host 10.1.2.0", "10.1.2.0/32"),
        ] {
            assert_eq!(destination(line), network, "{line}");
        }
        for (line, why) in [
            ("-net 10.1.2.3", "needs its length"),
            ("10.1.2.0 -netmask 255.0.255.0", "-netmask 255.0.255.0"),
            ("10.1.2.0 -netmask 33", "or a host's address"),
            ("10.1.2.0/24 -netmask 24", "it has its length"),
            ("-inet6 10.1.2.0/24", "other family"),
            ("-host 10.1.2.0/24", "-host"),
            ("frob", "default, or a network"),
            ("10.4", "default, or a network"),
            ("-net 10.256", "default, or a network"),
            ("-net 10.", "default, or a network"),
            ("-host 10.4", "default, or a network"),
        ] {
            assert!(destination(line).contains(why), "{line}: {}", destination(line));
        }
    }
}
