//! Which source a packet has and which destination is tried first (RFC 6724 §5, §6 and the examples of §10).

use crate::common;

use core::net::IpAddr;

use common::ip;
use firelane_ip::{AddressError, AddressOrigin, Configured, DadConfig, IfConfig, IfRouting, Ip, IpConfig};
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

/// Who goes and comes back is the last one.
#[test]
fn an_ipv4_source_that_was_taken_away_is_behind_the_others() {
    let mut host = host(&["10.0.0.9/24", "10.0.0.1/24"]);
    let source = |host: &mut Ip| host.egress(Instant::ZERO, None, ip("10.0.0.50")).unwrap().src;
    assert_eq!(source(&mut host), ip("10.0.0.9"));
    host.remove_address(A, ip("10.0.0.9")).unwrap();
    assert_eq!(source(&mut host), ip("10.0.0.1"));
    host.add_address(Instant::ZERO, A, "10.0.0.9/24".parse().unwrap()).unwrap();
    assert_eq!(source(&mut host), ip("10.0.0.1"));
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
        // Of those that are as good, the first that was added.
        (&["10.0.0.7/24", "10.0.0.9/24", "10.0.0.1/24"], "10.0.0.50", "10.0.0.7"),
        (&["10.0.0.9/24", "10.0.0.1/24"], "10.0.0.50", "10.0.0.9"),
        (&["10.0.0.1/24", "10.0.0.9/24"], "10.0.0.50", "10.0.0.1"),
        (&["10.0.0.9/24", "10.0.0.1/24"], "192.0.2.1", "10.0.0.9"),
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

#[test]
fn an_interface_may_say_whose_addresses_its_packets_get() {
    let to = |ip: &mut Ip, dst: &str| ip.egress(Instant::ZERO, None, dst.parse().unwrap()).map(|it| it.src);
    let mut host =
        host(&["10.0.0.1/24", "10.9.9.9/32 @B", "2001:db8:1::1/64", "2001:db8:9::9/128 @B", "fe80::1/64"]);
    assert_eq!(to(&mut host, "192.0.2.1"), Ok(ip("10.0.0.1")));
    assert!(host.set_routing(A, IfRouting { sources_v4: Some(B), ..IfRouting::default() }));
    assert_eq!(to(&mut host, "192.0.2.1"), Ok(ip("10.9.9.9")));
    assert_eq!(to(&mut host, "10.0.0.7"), Ok(ip("10.9.9.9")), "on the link, too");
    assert_eq!(to(&mut host, "2001:db8:7::1"), Ok(ip("2001:db8:1::1")), "IPv6 is asked for itself");
    assert!(host.set_routing(A, IfRouting { sources_v6: Some(B), ..IfRouting::default() }));
    assert_eq!(to(&mut host, "192.0.2.1"), Ok(ip("10.0.0.1")));
    assert_eq!(to(&mut host, "2001:db8:7::1"), Ok(ip("2001:db8:9::9")));
    assert_eq!(to(&mut host, "fe80::9"), Ok(ip("fe80::1")), "what is of the link stays of the link");
    // Whoever names a source gets it.
    let named = host.egress(Instant::ZERO, Some(ip("2001:db8:1::1")), ip("2001:db8:7::1"));
    assert_eq!(named.map(|it| it.src), Ok(ip("2001:db8:1::1")));
    // An interface that has none has no say.
    host.remove_address(B, ip("2001:db8:9::9")).unwrap();
    assert_eq!(to(&mut host, "2001:db8:7::1"), Ok(ip("2001:db8:1::1")));
}

#[test]
fn the_operator_retires_an_address_and_gives_it_another_subnet() {
    let to = |ip: &mut Ip, dst: &str| ip.egress(Instant::ZERO, None, dst.parse().unwrap()).map(|it| it.src);
    for (own, other, near) in
        [("10.0.0.1", "10.0.0.2", "10.0.0.9"), ("2001:db8:1::1", "2001:db8:1::2", "2001:db8:1::9")]
    {
        let len = if ip(own).is_ipv4() { 24 } else { 64 };
        let with = |addr: &str, len: u8| firelane_units::IpPrefix::new(ip(addr), len).unwrap();
        let mut host = host(&[&format!("{own}/{len}"), &format!("{other}/{len}")]);
        host.change_address(A, with(own, len), true).unwrap();
        assert_eq!(to(&mut host, near), Ok(ip(other)), "nothing new begins with it");
        assert!(host.egress(Instant::ZERO, Some(ip(own)), ip(near)).is_ok(), "what uses it goes on");
        host.change_address(A, with(other, len), true).unwrap();
        host.change_address(A, with(own, len), false).unwrap();
        assert_eq!(to(&mut host, near), Ok(ip(own)));
        // The route of a subnet stays as long as an address is in it.
        let connected =
            |host: &Ip, len: u8| host.routes().any(|it| it.destination == with(own, len).network());
        let shorter = len - 8;
        host.change_address(A, with(own, shorter), false).unwrap();
        assert!(connected(&host, shorter) && connected(&host, len));
        host.change_address(A, with(other, shorter), false).unwrap();
        assert!(connected(&host, shorter) && !connected(&host, len));
        host.change_address(A, firelane_units::IpPrefix::host(ip(own)), false).unwrap();
        host.change_address(A, firelane_units::IpPrefix::host(ip(other)), false).unwrap();
        assert!(!connected(&host, shorter));
        for (link, addr, len) in [(B, own, len), (A, near, len)] {
            assert_eq!(host.change_address(link, with(addr, len), false), Err(AddressError::Missing));
        }
    }
    let mut host = host(&["10.0.0.255/16", "2001:db8:1::7/64 temporary"]);
    let invalid = host.change_address(A, "10.0.0.255/24".parse().unwrap(), false);
    assert_eq!(invalid, Err(AddressError::Invalid), "it is the broadcast address of that subnet");
    let made = host.change_address(A, "2001:db8:1::7/48".parse().unwrap(), false);
    assert_eq!(made, Err(AddressError::Missing), "it is not the operator's");
}
