//! What kind of address an address is, for choosing between several (RFC 6724 §2 and §3).
//!
//! Owns scopes and the policy table; `select.rs` applies the rules. IPv4 counts as its mapped IPv6 address.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// How far an address reaches (RFC 6724 §3.1, §3.2), least first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Scope {
    Interface,
    LinkLocal,
    SiteLocal,
    Organisation,
    Global,
}

/// The default policy table (RFC 6724 §2.1): prefix, its length, precedence, label.
const POLICIES: [(Ipv6Addr, u8, u8, u8); 9] = [
    (Ipv6Addr::LOCALHOST, 128, 50, 0),
    (Ipv6Addr::new(0, 0, 0, 0, 0, 0xffff, 0, 0), 96, 35, 4),
    (Ipv6Addr::UNSPECIFIED, 96, 1, 3),
    (Ipv6Addr::new(0x2001, 0, 0, 0, 0, 0, 0, 0), 32, 5, 5),
    (Ipv6Addr::new(0x2002, 0, 0, 0, 0, 0, 0, 0), 16, 30, 2),
    (Ipv6Addr::new(0x3ffe, 0, 0, 0, 0, 0, 0, 0), 16, 1, 12),
    (Ipv6Addr::new(0xfec0, 0, 0, 0, 0, 0, 0, 0), 10, 1, 11),
    (Ipv6Addr::new(0xfc00, 0, 0, 0, 0, 0, 0, 0), 7, 3, 13),
    (Ipv6Addr::UNSPECIFIED, 0, 40, 1),
];

/// What the policy table says of an address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Policy {
    pub(crate) precedence: u8,
    pub(crate) label: u8,
}

pub(crate) fn policy(addr: IpAddr) -> Policy {
    let bits = mapped(addr).to_bits();
    let covers = |prefix: &Ipv6Addr, len: u8| {
        let host_bits = u128::MAX.checked_shr(len.into()).unwrap_or(0);
        (prefix.to_bits() ^ bits) & !host_bits == 0
    };
    let found = POLICIES.iter().filter(|(prefix, len, ..)| covers(prefix, *len)).max_by_key(|row| row.1);
    // The last row covers everything.
    let (_, _, precedence, label) = found.copied().unwrap_or(POLICIES[8]);
    Policy { precedence, label }
}

pub(crate) fn scope(addr: IpAddr) -> Scope {
    match addr {
        IpAddr::V4(v4) => scope_v4(v4),
        IpAddr::V6(v6) if v6.is_multicast() => match v6.octets()[1] & 15 {
            0 | 1 => Scope::Interface,
            2 | 3 => Scope::LinkLocal,
            4 | 5 => Scope::SiteLocal,
            6..=8 => Scope::Organisation,
            _ => Scope::Global,
        },
        IpAddr::V6(v6) => match v6.to_ipv4_mapped() {
            Some(v4) => scope_v4(v4),
            // RFC 4291 §2.5.3: the loopback address is treated as link-local.
            None if v6.is_unicast_link_local() || v6.is_loopback() => Scope::LinkLocal,
            None if v6.octets()[0] == 0xfe && v6.octets()[1] & 0xc0 == 0xc0 => Scope::SiteLocal,
            None => Scope::Global,
        },
    }
}

/// RFC 6724 §3.2: link-local and loopback addresses reach the link; all others, private ones too, everywhere.
const fn scope_v4(v4: Ipv4Addr) -> Scope {
    let [first, second, third, _] = v4.octets();
    if v4.is_link_local() || v4.is_loopback() || (first == 224 && second == 0 && third == 0) {
        Scope::LinkLocal
    } else {
        Scope::Global
    }
}

/// RFC 6724 §3.2: IPv4 as IPv6.
pub(crate) const fn mapped(addr: IpAddr) -> Ipv6Addr {
    match addr {
        IpAddr::V4(v4) => v4.to_ipv6_mapped(),
        IpAddr::V6(v6) => v6,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_table_and_the_scopes() {
        for (text, precedence, label, expected) in [
            ("::1", 50, 0, Scope::LinkLocal),
            ("192.0.2.1", 35, 4, Scope::Global),
            ("10.1.2.3", 35, 4, Scope::Global),
            ("169.254.1.1", 35, 4, Scope::LinkLocal),
            ("127.0.0.1", 35, 4, Scope::LinkLocal),
            ("2001:db8::1", 40, 1, Scope::Global),
            ("2001::1", 5, 5, Scope::Global),
            ("2002:c000:201::1", 30, 2, Scope::Global),
            ("fd00::1", 3, 13, Scope::Global),
            ("fe80::1", 40, 1, Scope::LinkLocal),
            ("fec0::1", 1, 11, Scope::SiteLocal),
            ("3ffe::1", 1, 12, Scope::Global),
            ("::192.0.2.1", 1, 3, Scope::Global),
            ("ff01::1", 40, 1, Scope::Interface),
            ("ff02::1", 40, 1, Scope::LinkLocal),
            ("ff05::1", 40, 1, Scope::SiteLocal),
            ("ff08::1", 40, 1, Scope::Organisation),
            ("ff0e::1", 40, 1, Scope::Global),
        ] {
            let addr: IpAddr = text.parse().unwrap();
            assert_eq!(policy(addr), Policy { precedence, label }, "{text}");
            assert_eq!(scope(addr), expected, "{text}");
        }
    }
}
