//! Interface identifiers: the lower half of an IPv6 address that a host makes itself.
//!
//! Owns the three ways to make one: stable and opaque (RFC 7217), from the Ethernet address (RFC 4291
//! appendix A), and temporary (RFC 8981 §3.3.2); a hashed one is never a reserved one (RFC 5453). Called by
//! `own_address.rs` and `temporary.rs`. The inputs are written byte by byte, so that an address is the same after a restart and
//! after a change of compiler.

use core::hash::Hasher;
use core::net::Ipv6Addr;

use firelane_units::MacAddr;
use siphasher::sip::SipHasher24;

/// How a host makes the identifiers of its stable addresses.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum IidKind {
    /// From a secret, the network and the interface: the same at every return to a network, and in another
    /// network another (RFC 7217).
    #[default]
    Stable,
    /// From the Ethernet address (RFC 4291 appendix A): recognisable in every network.
    Eui64,
    /// Chosen by the operator.
    Token([u8; 8]),
}

/// What an identifier is made for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct IidInput {
    /// RFC 7217's `Net_Iface`: a VNIC's address is what stays the same when it comes back.
    pub(crate) mac: MacAddr,
    /// The upper half of the address.
    pub(crate) network: Ipv6Addr,
    /// RFC 7217's `DAD_Counter`: how many identifiers another station has had already.
    pub(crate) tries: u8,
}

/// The stable identifier; `None` if there is no other to try.
pub(crate) fn stable(kind: IidKind, secret: &[u8; 16], input: &IidInput) -> Option<[u8; 8]> {
    match kind {
        IidKind::Stable => Some(hashed(secret, STABLE, input, 0)),
        IidKind::Eui64 if input.tries == 0 => Some(eui64(input.mac)),
        IidKind::Token(token) if input.tries == 0 => Some(token),
        IidKind::Eui64 | IidKind::Token(_) => None,
    }
}

/// A temporary identifier: another for each `serial`.
pub(crate) fn temporary(secret: &[u8; 16], input: &IidInput, serial: u64) -> [u8; 8] {
    hashed(secret, TEMPORARY, input, serial)
}

/// The address with this upper and lower half.
pub(crate) fn address(network: Ipv6Addr, iid: [u8; 8]) -> Ipv6Addr {
    let [a, b, c, d, e, f, g, h, ..] = network.octets();
    let [i, j, k, l, m, n, o, p] = iid;
    Ipv6Addr::from([a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p])
}

/// What the hash is for, so that stable and temporary identifiers say nothing about each other.
const STABLE: u8 = 1;
const TEMPORARY: u8 = 2;

fn hashed(secret: &[u8; 16], purpose: u8, input: &IidInput, serial: u64) -> [u8; 8] {
    // RFC 7217 §5: a reserved identifier is passed over for the next.
    for again in 0..u8::MAX {
        let mut hasher = SipHasher24::new_with_key(secret);
        hasher.write(&[purpose, again, input.tries]);
        hasher.write(&input.network.octets()[..8]);
        hasher.write(&input.mac.0);
        hasher.write(&serial.to_be_bytes());
        let iid = hasher.finish().to_be_bytes();
        if !is_reserved(iid) {
            return iid;
        }
    }
    eui64(input.mac)
}

/// RFC 4291 appendix A: the Ethernet address with two bytes in its middle and its universal bit turned.
pub(crate) const fn eui64(mac: MacAddr) -> [u8; 8] {
    let [a, b, c, d, e, f] = mac.0;
    [a ^ 2, b, c, 0xff, 0xfe, d, e, f]
}

/// RFC 5453: the anycast of routers, those of Ethernet's own range, and the reserved anycast addresses.
pub(crate) fn is_reserved(iid: [u8; 8]) -> bool {
    let bits = u64::from_be_bytes(iid);
    bits == 0
        || (0x0200_5eff_fe00_0000..=0x0200_5eff_feff_ffff).contains(&bits)
        || (0xfdff_ffff_ffff_ff80..=0xfdff_ffff_ffff_ffff).contains(&bits)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: [u8; 16] = [7; 16];

    fn input(network: &str, tries: u8) -> IidInput {
        IidInput { mac: MacAddr([2, 8, 0x20, 1, 2, 3]), network: network.parse().unwrap(), tries }
    }

    #[test]
    fn the_ethernet_address_is_spread_over_the_identifier() {
        assert_eq!(eui64(MacAddr([2, 8, 0x20, 1, 2, 3])), [0, 8, 0x20, 0xff, 0xfe, 1, 2, 3]);
        let made = stable(IidKind::Eui64, &SECRET, &input("fe80::", 0)).unwrap();
        assert_eq!(address("fe80::".parse().unwrap(), made).to_string(), "fe80::8:20ff:fe01:203");
        assert_eq!(stable(IidKind::Eui64, &SECRET, &input("fe80::", 1)), None);
        assert_eq!(stable(IidKind::Token([9; 8]), &SECRET, &input("fe80::", 0)), Some([9; 8]));
        assert_eq!(stable(IidKind::Token([9; 8]), &SECRET, &input("fe80::", 1)), None);
    }

    #[test]
    fn a_stable_identifier_returns_and_differs_by_network_interface_try_and_secret() {
        let make = |secret, input: &IidInput| stable(IidKind::Stable, secret, input).unwrap();
        let first = make(&SECRET, &input("fd00:1::", 0));
        // The value is part of the promise: a host that restarts is found under the same address.
        assert_eq!(first, make(&SECRET, &input("fd00:1::", 0)));
        let other_mac = IidInput { mac: MacAddr([2, 8, 0x20, 1, 2, 4]), ..input("fd00:1::", 0) };
        let others = [
            make(&SECRET, &input("fd00:2::", 0)),
            make(&SECRET, &input("fd00:1::", 1)),
            make(&[8; 16], &input("fd00:1::", 0)),
            make(&SECRET, &other_mac),
            temporary(&SECRET, &input("fd00:1::", 0), 0),
            temporary(&SECRET, &input("fd00:1::", 0), 1),
        ];
        for (i, one) in others.iter().enumerate() {
            assert_ne!(*one, first);
            assert!(!others[..i].contains(one));
        }
    }

    #[test]
    fn reserved_identifiers_are_known() {
        for (bits, reserved) in [
            (0, true),
            (1, false),
            (0x0200_5eff_fe00_5213, true),
            (0x0200_5eff_ff00_0000, false),
            (0xfdff_ffff_ffff_ff7f, false),
            (0xfdff_ffff_ffff_ff80, true),
            (0xfdff_ffff_ffff_ffff, true),
            (0xfe00_0000_0000_0000, false),
        ] {
            assert_eq!(is_reserved(u64::to_be_bytes(bits)), reserved, "{bits:x}");
        }
    }
}
