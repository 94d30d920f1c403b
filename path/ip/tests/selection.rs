//! Which source a packet has and which destination is tried first (RFC 6724 §5, §6 and the examples of §10).

mod common;

use core::net::IpAddr;

use common::ip;
use firelane_ip::{AddressOrigin, Configured, DadConfig, IfConfig, Ip, IpConfig};
use firelane_units::{Instant, LinkId, MacAddr, Mtu};

const A: LinkId = LinkId(1);
const B: LinkId = LinkId(2);

/// A host with two links; `@B`, `deprecated` and `temporary` behind an address say what it is.
fn host(addresses: &[&str]) -> Ip {
    let mut ip = Ip::new(IpConfig { dad: DadConfig::OFF, ..IpConfig::new([1; 16]) });
    for link in [A, B] {
        let mac = MacAddr([2, 0, 0, 0, 0, link.0 as u8]);
        ip.add_interface(IfConfig { link, mac, mtu: Mtu::ETHERNET, is_home: false });
    }
    for address in addresses {
        let mut words = address.split(' ');
        let prefix: firelane_units::IpPrefix = words.next().unwrap().parse().unwrap();
        let words: Vec<&str> = words.collect();
        let link = if words.contains(&"@B") { B } else { A };
        if words.iter().all(|word| *word == "@B") {
            ip.add_address(Instant::ZERO, link, prefix).unwrap();
            continue;
        }
        let origin = match words.contains(&"temporary") {
            true => AddressOrigin::Temporary,
            false => AddressOrigin::Prefix,
        };
        let is_deprecated = words.contains(&"deprecated");
        ip.on_configured(Configured::Address { link, prefix, origin, is_deprecated });
    }
    for any in ["::/0", "0.0.0.0/0"] {
        ip.add_route(any.parse().unwrap(), None, Some(A)).unwrap();
    }
    ip
}

#[test]
fn sources() {
    for (addresses, dst, expected) in [
        // Rule 1: same address.
        (&["2001:db8:1::1/64", "2001:db8:2::1/64"][..], "2001:db8:1::1", "2001:db8:1::1"),
        // Rule 2: appropriate scope.
        (&["2001:db8:3::1/64", "fe80::1/64"], "2001:db8:1::1", "2001:db8:3::1"),
        (&["2001:db8:3::1/64", "fe80::1/64"], "fe80::9", "fe80::1"),
        (&["2001:db8:3::1/64", "fe80::1/64"], "ff02::5", "fe80::1"),
        (&["2001:db8:3::1/64", "fe80::1/64"], "ff05::5", "2001:db8:3::1"),
        (&["fe80::1/64"], "2001:db8::1", "fe80::1"),
        // Rule 3: avoid deprecated addresses, though not for a scope that does not suffice.
        (&["2001:db8:1::1/64 deprecated", "2001:db8:3::1/64"], "2001:db8:1::9", "2001:db8:3::1"),
        (&["2001:db8:1::1/64 deprecated", "fe80::1/64"], "2001:db8:1::9", "2001:db8:1::1"),
        // Rule 5: outgoing interface.
        (&["2001:db8:1::1/64 @B", "2001:db8:3::1/64"], "2001:db8:2::1", "2001:db8:3::1"),
        // Rule 6: matching label.
        (&["2002:c633:6401::d5e3/64", "2001:db8:1::1/64"], "2002:c633:6401::1", "2002:c633:6401::d5e3"),
        (&["2002:c633:6401::d5e3/64", "2001:db8:1::1/64"], "2001:db8:9::1", "2001:db8:1::1"),
        (&["fd00::1/64", "2001:db8:1::1/64"], "fd11::1", "fd00::1"),
        // Rule 7: temporary addresses.
        (&["2001:db8:1::2/64", "2001:db8:1::d5e3/64 temporary"], "2001:db8:1::9", "2001:db8:1::d5e3"),
        (&["2001:db8:1::2/64", "2001:db8:1::d5e3/64 temporary deprecated"], "2001:db8:1::9", "2001:db8:1::2"),
        // Rule 8: longest matching prefix, no further than the source's own.
        (&["2001:db8:1::2/64", "2001:db8:3::2/64"], "2001:db8:1:ffff::1", "2001:db8:1::2"),
        // IPv4: the subnet of the next hop.
        (&["10.0.0.1/24", "10.1.0.1/24"], "10.1.0.9", "10.1.0.1"),
        (&["10.0.0.1/24", "169.254.1.1/16"], "192.0.2.1", "10.0.0.1"),
        (&["10.0.0.1/24", "169.254.1.1/16"], "169.254.9.9", "169.254.1.1"),
    ] {
        let mut host = host(addresses);
        let found = host.egress(Instant::ZERO, None, ip(dst)).map(|egress| egress.src);
        assert_eq!(found, Ok(ip(expected)), "{addresses:?} to {dst}");
    }
}

#[test]
fn destinations() {
    for (addresses, given, expected) in [
        // Rule 1: what has no source is last.
        (&["10.0.0.1/24"][..], &["2001:db8::1", "192.0.2.1"][..], &["192.0.2.1", "2001:db8::1"][..]),
        // Rule 2: matching scope (RFC 6724 §10.2).
        (
            &["2001:db8:1::2/64", "fe80::1/64", "169.254.13.78/16"],
            &["198.51.100.121", "2001:db8:1::1"],
            &["2001:db8:1::1", "198.51.100.121"],
        ),
        (
            &["fe80::1/64", "198.51.100.117/24"],
            &["2001:db8:1::1", "198.51.100.121"],
            &["198.51.100.121", "2001:db8:1::1"],
        ),
        // Rule 3: avoid deprecated addresses.
        (
            &["2001:db8:1::2/64 deprecated", "198.51.100.117/24"],
            &["2001:db8:1::1", "198.51.100.121"],
            &["198.51.100.121", "2001:db8:1::1"],
        ),
        // Rule 5: matching label.
        (
            &["2002:c633:6401::2/64", "fe80::2/64"],
            &["2001:db8:1::1", "2002:c633:6401::1"],
            &["2002:c633:6401::1", "2001:db8:1::1"],
        ),
        // Rule 6: higher precedence.
        (
            &["2001:db8:1::2/64", "10.1.2.4/24"],
            &["10.1.2.3", "2001:db8:1::1"],
            &["2001:db8:1::1", "10.1.2.3"],
        ),
        // Rule 8: smaller scope.
        (&["2001:db8:1::2/64", "fe80::2/64"], &["2001:db8:1::1", "fe80::1"], &["fe80::1", "2001:db8:1::1"]),
        // Rule 9: longest matching prefix; rule 10: else as it was.
        (
            &["2001:db8:1::2/64", "2001:db8:3::2/64"],
            &["2001:db8:3fff::1", "2001:db8:1::1"],
            &["2001:db8:1::1", "2001:db8:3fff::1"],
        ),
        (&["10.0.0.1/8"], &["192.0.2.2", "192.0.2.1"], &["192.0.2.2", "192.0.2.1"]),
    ] {
        let mut list: Vec<IpAddr> = given.iter().map(|text| ip(text)).collect();
        host(addresses).order_destinations(&mut list);
        let text: Vec<String> = list.iter().map(ToString::to_string).collect();
        assert_eq!(text, expected, "{addresses:?}");
    }
}
