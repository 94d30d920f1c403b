//! Groups that a netstack listens to: what it reports, what it answers, what it delivers (RFC 3376, RFC 3810), and
//! what floods of queries and reports do (V10).

use crate::common;
use crate::craft;

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use common::{LINK, Station, ip, mac};
use craft::*;
use firelane_ip::{
    DadConfig, FilterMode, IfConfig, IidKind, Ip, IpConfig, JoinError, Member, SourceFilter, Upper,
};
use firelane_units::{DropReason, Instant, LinkId, Mtu};
use firelane_wire::checksum::Sum;
use firelane_wire::{IpProtocol, Ipv4Option, Ipv4Repr, Ipv4View, Ipv6Repr, Ipv6View, ethernet, ndp};

const ME: Member = Member::Socket(1);

struct Host {
    station: Station,
    now: Instant,
    sent: Vec<Vec<u8>>,
}

/// A station that reports its groups and makes itself a link-local address of this form.
pub(crate) fn reporting(dad: DadConfig, form: IidKind) -> Station {
    let mut station = Station::bare(2, dad, true, 1500);
    let config = IpConfig { dad, link_local: Some(form), group_reports: true, ..IpConfig::new([2; 16]) };
    station.ip = Ip::new(config);
    let mtu = Mtu::new(1500).unwrap();
    station.ip.add_interface(IfConfig { link: LINK, mac: mac(3), mtu, is_home: true });
    station.ip.bring_up(Instant::ZERO, LINK);
    station
}

impl Host {
    fn new() -> Self {
        let mut station = reporting(DadConfig::OFF, IidKind::Eui64);
        for address in ["10.0.0.2/24", "fd00::2/64"] {
            station.ip.add_address(Instant::ZERO, LINK, address.parse().unwrap()).unwrap();
        }
        let mut host = Self { station, now: Instant::ZERO, sent: Vec::new() };
        host.pass(10);
        host
    }

    fn pass(&mut self, seconds: u64) {
        let end = self.now + Duration::from_secs(seconds);
        while let Some(at) = self.station.ip.poll_at().filter(|&at| at <= end) {
            self.station.ip.on_timer(at.max(self.now), &mut self.station.pools);
            self.sent.extend(self.station.outputs(at));
        }
        self.now = end;
    }

    fn set(&mut self, group: &str, filter: SourceFilter) -> Result<LinkId, JoinError> {
        let pools = &mut self.station.pools;
        let set = self.station.ip.set_membership(self.now, None, ip(group), ME, filter, pools);
        self.sent.extend(self.station.outputs(self.now));
        set
    }

    fn give(&mut self, frame: &[u8]) -> &'static str {
        let end = self.station.input_bytes(self.now, frame);
        self.sent.extend(self.station.outputs(self.now));
        end
    }

    /// What was reported since the last call, in words: type, then each record's kind, group and sources.
    fn reports(&mut self) -> Vec<String> {
        std::mem::take(&mut self.sent).iter().filter_map(|frame| report(frame)).collect()
    }
}

/// Reads a report, and checks everything around it.
fn report(frame: &[u8]) -> Option<String> {
    let packet = &frame[14..];
    if let Ok(view) = Ipv4View::parse(packet) {
        if view.protocol() != IpProtocol::IGMP {
            return None;
        }
        assert!(view.is_checksum_valid() && Sum::of(view.payload()).is_valid());
        assert_eq!((view.ttl(), view.src()), (1, VICTIM_V4));
        assert!(matches!(view.options().next(), Some(Ok(Ipv4Option::RouterAlert(0)))));
        assert_eq!(frame[..6], ethernet::group_mac(view.dst().into()).0);
        return Some(words(view.payload(), 4, &view.dst().to_string()));
    }
    let view = Ipv6View::parse(packet).ok().filter(|v| v.next_header() == IpProtocol::HOP_BY_HOP)?;
    assert_eq!(view.payload()[..8], [58, 0, 5, 2, 0, 0, 1, 0]);
    let message = &view.payload()[8..];
    let pseudo = Sum::pseudo_v6(view.src(), view.dst(), IpProtocol::ICMPV6, message.len() as u32);
    assert!(pseudo.combine(Sum::of(message)).is_valid());
    assert!(view.hop_limit() == 1 && view.src().is_unicast_link_local());
    assert_eq!(frame[..6], ethernet::group_mac(view.dst().into()).0);
    Some(words(message, 16, &view.dst().to_string()))
}

fn words(message: &[u8], width: usize, dst: &str) -> String {
    let address = |bytes: &[u8]| -> IpAddr {
        match width {
            4 => Ipv4Addr::from(*bytes.first_chunk::<4>().unwrap()).into(),
            _ => Ipv6Addr::from(*bytes.first_chunk::<16>().unwrap()).into(),
        }
    };
    let mut text = format!("{} to {dst}:", message[0]);
    if !matches!(message[0], 0x22 | 143) {
        let at = message.len() - width;
        return format!("{text} {}", address(&message[at..]));
    }
    let mut rest = &message[8..];
    for _ in 0..u16::from_be_bytes([message[6], message[7]]) {
        let sources = usize::from(u16::from_be_bytes([rest[2], rest[3]]));
        text += &format!(" {} {}", rest[0], address(&rest[4..]));
        for n in 1..=sources {
            text += &format!(" {}", address(&rest[4 + n * width..]));
        }
        rest = &rest[4 + (1 + sources) * width..];
    }
    assert_eq!(rest, [] as [u8; 0]);
    text
}

fn igmp_query(group: [u8; 4], code: u8) -> Vec<u8> {
    let mut message = vec![0x11, code, 0, 0];
    message.extend(group);
    message.extend([2, 125, 0, 0]);
    igmp(&message, if group == [0; 4] { Ipv4Addr::new(224, 0, 0, 1) } else { group.into() })
}

fn igmp(message: &[u8], dst: Ipv4Addr) -> Vec<u8> {
    igmp_from(header_v4(IpProtocol::IGMP).src, message, dst)
}

fn igmp_from(src: Ipv4Addr, message: &[u8], dst: Ipv4Addr) -> Vec<u8> {
    let mut message = message.to_vec();
    message[2..4].fill(0);
    let checksum = Sum::of(&message).checksum();
    message[2..4].copy_from_slice(&checksum.to_be_bytes());
    let header = Ipv4Repr { src, dst, ttl: 1, ..header_v4(IpProtocol::IGMP) };
    v4_with_options(&header, &[148, 4, 0, 0], &message)
}

const QUERIER: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 9);

fn mld_query(src: Ipv6Addr, hops: u8, alert: bool, rest: &[u8]) -> Vec<u8> {
    let body = icmpv6_message(src, ALL_NODES, 130, 0, rest);
    let next = if alert { IpProtocol::HOP_BY_HOP } else { IpProtocol::ICMPV6 };
    let header = Ipv6Repr { src, dst: ALL_NODES, hop_limit: hops, ..header_v6(next) };
    let options: &[u8] = if alert { &[58, 0, 5, 2, 0, 0, 1, 0] } else { &[] };
    v6(&header, &[options, &body].concat())
}

/// A general query's bytes behind the checksum: a second, no group, nothing else.
fn mld_general() -> Vec<u8> {
    let mut rest = vec![0x03, 0xe8, 0, 0];
    rest.extend([0; 16]);
    rest.extend([2, 125, 0, 0]);
    rest
}

fn datagram_to(dst: &str) -> Vec<u8> {
    match ip(dst) {
        IpAddr::V4(dst) => v4(&Ipv4Repr { dst, ..header_v4(IpProtocol::UDP) }, &udp(b"many")),
        IpAddr::V6(dst) => v6(&Ipv6Repr { dst, ..header_v6(IpProtocol::UDP) }, &udp(b"many")),
    }
}

#[test]
fn own_addresses_are_reported_by_their_groups() {
    let mut host = Host::new();
    let mut reports = host.reports();
    reports.sort();
    let link_local = host.station.ip.addresses().find(|a| a.prefix.addr().to_string().starts_with("fe80"));
    let IpAddr::V6(link_local) = link_local.unwrap().prefix.addr() else { panic!() };
    let mut expected = Vec::new();
    for addr in [link_local, VICTIM_V6] {
        let text = format!("143 to ff02::16: 4 {}", ndp::solicited_node(addr));
        expected.extend([text.clone(), text]);
    }
    expected.sort();
    assert_eq!(reports, expected, "each is said twice");
    host.station.ip.remove_address(LINK, VICTIM_V6.into()).unwrap();
    host.pass(3);
    let gone = format!("143 to ff02::16: 3 {}", ndp::solicited_node(VICTIM_V6));
    assert_eq!(host.reports(), [gone.clone(), gone]);
}

#[test]
fn what_is_joined_is_reported_and_delivered_and_what_is_left_is_not() {
    for (group, kind, routers) in [("239.1.2.3", 34, "224.0.0.22"), ("ff05::1:3", 143, "ff02::16")] {
        let mut host = Host::new();
        host.reports();
        assert_eq!(host.give(&datagram_to(group)), "drop");
        assert_eq!(host.station.drops, [DropReason::NotForUs]);
        assert_eq!(host.set(group, SourceFilter::any()), Ok(LINK));
        assert_eq!(host.reports(), [format!("{kind} to {routers}: 4 {group}")]);
        assert_eq!(host.give(&datagram_to(group)), "deliver");
        let delivered = host.station.delivered.pop().unwrap();
        assert!(delivered.is_broadcast_or_multicast);
        let hears = |host: &Host, member| host.station.ip.hears_group(member, LINK, ip(group), delivered.src);
        assert!(hears(&host, ME) && !hears(&host, Member::Socket(2)));
        host.pass(2);
        assert_eq!(host.reports(), [format!("{kind} to {routers}: 4 {group}")]);
        let pools = &mut host.station.pools;
        host.station.ip.leave_groups(host.now, ME, pools);
        host.pass(2);
        assert_eq!(host.reports(), vec![format!("{kind} to {routers}: 3 {group}"); 2]);
        assert_eq!(host.give(&datagram_to(group)), "drop");
    }
}

#[test]
fn sources_are_filtered_and_reported() {
    let mut host = Host::new();
    host.reports();
    let only = |source: &str| SourceFilter { mode: FilterMode::Include, sources: vec![ip(source)] };
    host.set("239.1.2.3", only("10.0.0.9")).unwrap();
    assert_eq!(host.reports(), ["34 to 224.0.0.22: 5 239.1.2.3 10.0.0.9"]);
    host.pass(3);
    host.reports();
    let hears = |host: &Host, source| host.station.ip.hears_group(ME, LINK, ip("239.1.2.3"), ip(source));
    assert!(hears(&host, "10.0.0.9") && !hears(&host, "10.0.0.8"));
    host.set("239.1.2.3", only("10.0.0.8")).unwrap();
    assert_eq!(host.reports(), ["34 to 224.0.0.22: 5 239.1.2.3 10.0.0.8 6 239.1.2.3 10.0.0.9"]);
    assert_eq!(host.set("10.0.0.9", SourceFilter::any()), Err(JoinError::Address));
    assert_eq!(host.set("239.1.2.3", only("fd00::1")), Err(JoinError::Address));
}

#[test]
fn queries_are_answered_within_their_time() {
    let mut host = Host::new();
    host.set("239.1.2.3", SourceFilter::any()).unwrap();
    host.set("ff05::1:3", SourceFilter::any()).unwrap();
    host.pass(5);
    host.reports();
    assert_eq!(host.give(&igmp_query([0; 4], 10)), "consumed");
    host.pass(1);
    assert_eq!(host.reports(), ["34 to 224.0.0.22: 2 239.1.2.3"]);
    assert_eq!(host.give(&mld_query(QUERIER, 1, true, &mld_general())), "consumed");
    host.pass(1);
    let reports = host.reports();
    assert_eq!(reports.len(), 1);
    assert!(reports[0].starts_with("143 to ff02::16: 2 ff02::1:ff"), "{reports:?}");
    assert!(reports[0].ends_with("2 ff05::1:3"), "{reports:?}");
    // RFC 3376 §4.1.12: asked alone, a host answers as well.
    let alone = igmp(&[0x11, 10, 0, 0, 0, 0, 0, 0, 2, 125, 0, 0], VICTIM_V4);
    assert_eq!(host.give(&alone), "consumed");
    host.pass(1);
    assert_eq!(host.reports(), ["34 to 224.0.0.22: 2 239.1.2.3"]);
    // The older versions.
    let v1 = mld_general()[..20].to_vec();
    assert_eq!(host.give(&mld_query(QUERIER, 1, true, &v1)), "consumed");
    host.pass(1);
    let mut reports = host.reports();
    reports.sort();
    assert_eq!((reports.len(), reports[2].as_str()), (3, "131 to ff05::1:3: ff05::1:3"));
    assert_eq!(host.give(&igmp(&[0x11, 10, 0, 0, 0, 0, 0, 0], Ipv4Addr::new(224, 0, 0, 1))), "consumed");
    host.pass(1);
    assert_eq!(host.reports(), ["22 to 239.1.2.3: 239.1.2.3"]);
    host.set("239.1.2.3", SourceFilter::none()).unwrap();
    assert_eq!(host.reports(), ["23 to 224.0.0.2: 239.1.2.3"]);
}

/// RFC 4541 §2.1.1: a switch that listens, and has no address, asks from none. Other packets have no such source.
#[test]
fn a_switch_asks_from_no_address() {
    let mut host = Host::new();
    host.set("239.1.2.3", SourceFilter::any()).unwrap();
    host.pass(5);
    host.reports();
    let (nobody, group) = (Ipv4Addr::UNSPECIFIED, Ipv4Addr::new(239, 1, 2, 3));
    let all_hosts = Ipv4Addr::new(224, 0, 0, 1);
    for (message, dst, report) in [
        (vec![0x11, 10, 0, 0, 0, 0, 0, 0, 2, 125, 0, 0], all_hosts, "34 to 224.0.0.22: 2 239.1.2.3"),
        (vec![0x11, 10, 0, 0, 239, 1, 2, 3, 2, 125, 0, 0], group, "34 to 224.0.0.22: 2 239.1.2.3"),
        (vec![0x11, 10, 0, 0, 0, 0, 0, 0], all_hosts, "22 to 239.1.2.3: 239.1.2.3"),
    ] {
        assert_eq!(host.give(&igmp_from(nobody, &message, dst)), "consumed", "{message:?}");
        host.pass(2);
        assert_eq!(host.reports(), [report], "{message:?}");
    }
    let general = [0x11, 10, 0, 0, 0, 0, 0, 0, 2, 125, 0, 0];
    host.station.drops.clear();
    for (protocol, dst) in
        [(IpProtocol::IGMP, VICTIM_V4), (IpProtocol::UDP, group), (IpProtocol::ICMPV4, all_hosts)]
    {
        let header = Ipv4Repr { src: nobody, dst, ttl: 1, ..header_v4(protocol) };
        assert_eq!(host.give(&v4_with_options(&header, &[148, 4, 0, 0], &general)), "drop", "{protocol:?}");
    }
    assert_eq!(host.station.drops, [DropReason::Martian; 3]);
}

#[test]
fn v10_queries_and_reports_that_break_the_rules_are_dropped_and_counted() {
    let mut host = Host::new();
    host.set("239.1.2.3", SourceFilter::any()).unwrap();
    host.pass(5);
    host.reports();
    let general = mld_general();
    let mut lying = general.clone();
    lying[22..24].copy_from_slice(&[0xff, 0xff]);
    let all_hosts = Ipv4Addr::new(224, 0, 0, 1);
    let mut far = igmp_query([0; 4], 10);
    far[L3 + 8] = 2;
    repair_v4(&mut far);
    let plain = |message: &[u8]| {
        let header = Ipv4Repr { dst: all_hosts, ttl: 1, ..header_v4(IpProtocol::IGMP) };
        v4(&header, message)
    };
    let mut unsigned = igmp_query([0; 4], 10);
    let last = unsigned.len() - 1;
    unsigned[last] ^= 1;
    let frames = [
        ("a checksum", unsigned),
        ("from beyond the link", far),
        ("without the alert", plain(&[0x11, 10, 0xee, 0xf5 - 10 + 9, 0, 0, 0, 0])),
        ("counts that lie", igmp(&[0x11, 10, 0, 0, 0, 0, 0, 0, 2, 125, 0xff, 0xff], all_hosts)),
        ("too short", igmp(&[0x11, 10, 0, 0, 0, 0], all_hosts)),
        ("between two lengths", igmp(&[0x11, 10, 0, 0, 0, 0, 0, 0, 0, 0], all_hosts)),
        ("no group", igmp(&[0x11, 10, 0, 0, 10, 0, 0, 1], all_hosts)),
        ("an unknown type", igmp(&[0x99, 0, 0, 0, 0, 0, 0, 0], all_hosts)),
        ("MLD from a global address", mld_query(ATTACKER_V6, 1, true, &general)),
        ("MLD from beyond the link", mld_query(QUERIER, 64, true, &general)),
        ("MLD without the alert", mld_query(QUERIER, 1, false, &general)),
        ("MLD counts that lie", mld_query(QUERIER, 1, true, &lying)),
        ("MLD between two lengths", mld_query(QUERIER, 1, true, &general[..22])),
    ];
    for (name, frame) in &frames {
        host.station.drops.clear();
        for _ in 0..3 {
            assert_eq!(host.give(frame), "drop", "{name}");
        }
        assert_eq!(host.station.drops, [DropReason::BadGroup; 3], "{name}");
    }
    host.pass(30);
    assert_eq!(host.reports(), [] as [&str; 0], "nothing of it is answered");
}

#[test]
fn v10_a_flood_of_queries_costs_one_answer_and_groups_are_bounded() {
    let mut host = Host::new();
    host.set("239.1.2.3", SourceFilter::any()).unwrap();
    host.pass(5);
    host.reports();
    for n in 0..10_000u32 {
        host.give(&igmp_query([0; 4], 100));
        let [.., a, b] = n.to_be_bytes();
        host.give(&igmp_query([239, 9, a, b], 100));
    }
    host.pass(20);
    assert_eq!(host.reports().len(), 1);
    let mut joined = 0;
    for n in 0..1000u32 {
        let [.., a, b] = n.to_be_bytes();
        joined += usize::from(host.set(&format!("239.8.{a}.{b}"), SourceFilter::any()).is_ok());
    }
    // 512, of which one was there, and two are the groups of its own addresses.
    assert_eq!((joined, host.station.ip.refused().groups), (509, 491));
    let pools = &mut host.station.pools;
    host.station.ip.leave_groups(host.now, ME, pools);
    host.station.outputs(host.now);
    host.pass(10);
    host.reports();
    host.give(&igmp_query([0; 4], 10));
    host.pass(2);
    assert_eq!(host.reports(), [] as [&str; 0], "memory is as before");
}

#[test]
fn a_datagram_to_a_group_leaves_with_one_hop_unless_its_sender_says_otherwise() {
    let mut host = Host::new();
    for (group, at) in [("239.1.2.3", L3 + 8), ("ff05::1:3", L3 + 7)] {
        for (hops, expected) in [(None, 1), (Some(32), 32)] {
            host.station.send(host.now, group, &udp(b"x"), Upper { hops, ..Upper::udp() });
            assert_eq!(host.station.outputs(host.now)[0][at], expected);
        }
    }
}

/// Each member names few sources; all of them together are not kept, compared and reported without end.
#[test]
fn v10_many_members_sources_make_one_report_of_everybody() {
    let mut host = Host::new();
    for n in 0..10u16 {
        let sources = (1..=10).map(|s| Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, n, s).into()).collect();
        let filter = SourceFilter { mode: FilterMode::Include, sources };
        let pools = &mut host.station.pools;
        let member = Member::Socket(10 + u32::from(n));
        host.station.ip.set_membership(host.now, None, ip("ff05::7"), member, filter, pools).unwrap();
    }
    host.pass(30);
    host.sent.clear();
    host.give(&mld_query(QUERIER, 1, true, &mld_general()));
    host.pass(20);
    assert!(!host.sent.is_empty() && host.sent.iter().all(|frame| frame.len() <= 14 + 1280));
    let hears = |n: u32, source: &str| {
        host.station.ip.hears_group(Member::Socket(10 + n), LINK, ip("ff05::7"), ip(source))
    };
    assert!(hears(3, "fd00::3:5") && !hears(4, "fd00::3:5"), "each hears whom he has named");
}

/// RFC 3590 §4, RFC 3810 §5.2.13: routers believe no report that nobody has sent, as those before a host has a link-local address.
#[test]
fn what_was_reported_from_no_address_is_said_again_once_there_is_one() {
    for form in [IidKind::Eui64, IidKind::Stable] {
        let mut station = reporting(DadConfig::FAST, form);
        let (group, filter) = (ip("ff05::7"), SourceFilter::any());
        station.ip.set_membership(Instant::ZERO, Some(LINK), group, ME, filter, &mut station.pools).unwrap();
        let mut said = station.outputs(Instant::ZERO);
        let mut pass = |station: &mut Station, until: u64| {
            while let Some(at) = station.ip.poll_at().filter(|&at| at <= Instant::from_secs(until)) {
                station.ip.on_timer(at, &mut station.pools);
                said.extend(station.outputs(at));
            }
            let of_it = std::mem::take(&mut said).into_iter().filter_map(|frame| {
                let view = Ipv6View::parse(&frame[14..]).ok()?;
                let is_report = view.next_header() == IpProtocol::HOP_BY_HOP;
                let (src, message) = (view.src(), &view.payload()[8..]);
                let text = is_report.then(|| words(message, 16, "all"))?;
                text.contains("ff05::7").then_some((src.is_unspecified(), text))
            });
            of_it.collect::<Vec<_>>()
        };
        let reports = pass(&mut station, 60);
        assert!(reports[0].0, "the first is early");
        let heard: Vec<_> = reports.iter().filter(|(is_nobodys, _)| !is_nobodys).collect();
        assert_eq!(heard.len(), 2, "{reports:?}");
        assert!(heard.iter().all(|(_, text)| *text == reports[0].1), "{reports:?}");
        // Another one changes nothing.
        station.ip.add_address(Instant::from_secs(60), LINK, "fe80::77/64".parse().unwrap()).unwrap();
        assert_eq!(pass(&mut station, 100), []);
    }
}
