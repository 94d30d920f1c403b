//! One end of a packet's way in a rule: `[!] address [port ...]`.

use core::net::{IpAddr, Ipv4Addr};

use firelane_units::{FilterAddresses, FilterEnd, FilterPorts, IpPrefix, Port};

use super::error::RuleError;
use super::read::{Words, decimal};
use super::words;

/// A comparison with one port: its sign, its word and what it means.
type Comparison = (&'static str, &'static str, fn(Port) -> FilterPorts);

const COMPARISONS: [Comparison; 6] = [
    ("=", "eq", FilterPorts::Equal),
    ("!=", "ne", FilterPorts::NotEqual),
    ("<", "lt", FilterPorts::Less),
    (">", "gt", FilterPorts::Greater),
    ("<=", "le", FilterPorts::AtMost),
    (">=", "ge", FilterPorts::AtLeast),
];

impl Words<'_> {
    /// `[!] address [port ...]`
    pub(super) fn end(&mut self) -> Result<FilterEnd, RuleError> {
        let negated = self.take("!");
        let addresses = self.addresses()?;
        let ports = if self.take("port") { self.ports()? } else { FilterPorts::Any };
        Ok(FilterEnd { negated, addresses, ports })
    }

    fn addresses(&mut self) -> Result<FilterAddresses, RuleError> {
        const ALLOWED: &str = "any, an address, a network such as 10.0.0.0/8 or fd00::/8, or pool/N";
        let addresses = self.value(ALLOWED, |word| match word.strip_prefix("pool/") {
            Some(number) => decimal(number).map(FilterAddresses::Pool),
            None if word == "any" => Some(FilterAddresses::Any),
            None => prefix(word).map(FilterAddresses::Prefix),
        })?;
        match addresses {
            FilterAddresses::Prefix(host) if self.peek() == Some("mask") => {
                self.take("mask");
                let allowed = "a mask of leading ones, such as 255.255.255.0, 0xffffff00 or 24";
                let masked = self.value(allowed, |word| masked(host.addr(), word))?;
                Ok(FilterAddresses::Prefix(masked))
            }
            other => Ok(other),
        }
    }

    fn ports(&mut self) -> Result<FilterPorts, RuleError> {
        const PORT: &str = "a port is a number from 0 to 65535, or the name of a service";
        const OPERATOR: &str =
            "port is followed by = != < > <= >= and a port, or by two ports with <> >< or : between";
        let word = self.peek().unwrap_or_default();
        if let Some((.., make)) = COMPARISONS.iter().find(|(sign, name, _)| [*sign, *name].contains(&word)) {
            self.take(word);
            return self.value(PORT, port).map(make);
        }
        if let Some((low, high)) = word.split_once(':').filter(|_| word != ":")
            && let (Some(low), Some(high)) = (port(low), port(high))
        {
            self.take(word);
            return Ok(FilterPorts::Range(low, high));
        }
        let low = self.value(OPERATOR, port)?;
        let make =
            self.value("before a port alone stands =, between two <>, >< or :", |word| match word {
                "<>" => Some(FilterPorts::Outside as fn(Port, Port) -> FilterPorts),
                "><" => Some(FilterPorts::Inside),
                ":" => Some(FilterPorts::Range),
                _ => None,
            })?;
        let high = self.value(PORT, port)?;
        Ok(make(low, high))
    }
}

pub(super) fn port(word: &str) -> Option<Port> {
    decimal(word).or_else(|| words::service(word)).map(Port)
}

fn prefix(word: &str) -> Option<IpPrefix> {
    match word.split_once('/') {
        Some((addr, mask)) => masked(addr.parse().ok()?, mask),
        None => word.parse().ok().map(IpPrefix::host),
    }
}

/// The network of `addr` under a mask: its length, or the mask itself of an IPv4 address.
pub(super) fn masked(addr: IpAddr, mask: &str) -> Option<IpPrefix> {
    let bits = match mask.strip_prefix("0x") {
        Some(digits) if digits.bytes().all(|byte| byte.is_ascii_hexdigit()) => {
            Some(u32::from_str_radix(digits, 16).ok()?)
        }
        _ => mask.parse::<Ipv4Addr>().ok().map(Ipv4Addr::to_bits),
    };
    let len = match bits {
        Some(bits) if bits.leading_ones() + bits.trailing_zeros() >= 32 && addr.is_ipv4() => {
            u8::try_from(bits.leading_ones()).ok()?
        }
        Some(_) => return None,
        None => decimal(mask)?,
    };
    IpPrefix::new(addr, len).map(IpPrefix::network)
}
