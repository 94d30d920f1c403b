//! Which rule counts: the meaning of ipf(5).

mod common;

use common::*;
use firelane_filter::{FOREVER, Filter, FilterConfig, OneWay, PoolChange, Verdict};
use firelane_units::{
    BlockAnswer, FilterAction, FilterAddresses, FilterEnd, FilterPorts, FilterProtocol, FilterRule,
    GroupCall, Instant, IpPrefix, LinkId, MapKey, PacketTrait, Port, TcpFlagsMatch,
};
use firelane_wire::{Icmpv4Repr, IpProtocol, TcpFlags};
use proptest::prelude::*;
use std::num::NonZeroU32;

const TCP: IpProtocol = IpProtocol::TCP;

#[test]
fn without_rules_and_without_a_match_packets_pass() {
    let packet = udp("10.0.0.1:1", "192.0.2.7:53");
    assert!(!filter(Vec::new()).is_on());
    let mut filter = filter(vec![rule(OUT, BLOCK), rule(IN, BLOCK).proto(TCP)]);
    assert!(filter.is_on());
    let ruling = ask_at(&mut filter, IN, LINK, &packet, 0);
    assert_eq!((ruling.verdict, ruling.rule), (Verdict::Pass, None));
    assert_eq!(ask(&mut filter, OUT, &packet), BLOCKED);
    let counts = filter.counts();
    assert_eq!((counts.passed, counts.blocked, counts.rules[0].bytes), ([1, 0], [0, 1], 28));
}

#[test]
fn the_last_match_counts_and_quick_ends_the_search() {
    let packet = syn("10.0.0.1:1", "192.0.2.7:80");
    let mut last = filter(vec![rule(IN, BLOCK), rule(IN, PASS).to_port(80), rule(IN, PASS).to_port(81)]);
    assert_eq!(ask_at(&mut last, IN, LINK, &packet, 0).rule, Some(1));
    let mut quick = filter(vec![rule(IN, BLOCK).quick(), rule(IN, PASS)]);
    assert_eq!(ask(&mut quick, IN, &packet), BLOCKED);
}

#[test]
fn a_group_is_read_where_its_head_matches() {
    let group = NonZeroU32::new(100);
    let mut filter = filter(vec![
        rule(IN, BLOCK).proto(TCP).with(|it| it.head = group),
        rule(IN, PASS).to_port(80).with(|it| it.group = group),
        // The same number in the other direction is another group.
        rule(OUT, BLOCK).with(|it| it.group = group),
        rule(IN, BLOCK).from("10.9.0.0/16"),
    ]);
    let cases = [
        (syn("10.0.0.1:1", "192.0.2.7:80"), Some(1)),
        (syn("10.0.0.1:1", "192.0.2.7:81"), Some(0)),
        (udp("10.0.0.1:1", "192.0.2.7:80"), None),
        (syn("10.9.0.1:1", "192.0.2.7:80"), Some(3)),
    ];
    for (packet, rule) in cases {
        assert_eq!(ask_at(&mut filter, IN, LINK, &packet, 0).rule, rule);
    }
    assert_eq!(ask(&mut filter, OUT, &syn("10.0.0.1:1", "192.0.2.7:80")), Verdict::Pass);
}

#[test]
fn quick_in_a_group_ends_the_whole_search() {
    let group = NonZeroU32::new(1);
    let mut filter = filter(vec![
        rule(IN, BLOCK).with(|it| it.head = group),
        rule(IN, PASS).to_port(80).quick().with(|it| it.group = group),
        rule(IN, BLOCK),
    ]);
    assert_eq!(ask(&mut filter, IN, &syn("10.0.0.1:1", "192.0.2.7:80")), Verdict::Pass);
    assert_eq!(ask(&mut filter, IN, &syn("10.0.0.1:1", "192.0.2.7:81")), BLOCKED);
}

/// A filter with these rules, and maps of networks to groups.
fn with_maps(rules: Vec<FilterRule<LinkId>>, maps: &[(u32, &str, u32)]) -> Filter {
    let mut filter = filter(rules);
    filter.change_pools(
        &maps.iter().map(|&(map, network, group)| leads(map, network, group)).collect::<Vec<_>>(),
    );
    filter
}

fn leads(pool: u32, network: &str, group: u32) -> PoolChange {
    let network = network.parse().unwrap();
    PoolChange { pool, network, until: Some(FOREVER), is_exception: false, group: NonZeroU32::new(group) }
}

fn call(map: u32, by: MapKey) -> FilterAction {
    FilterAction::Call(GroupCall { map, by })
}

#[test]
fn a_call_goes_on_with_the_group_that_the_map_has_and_comes_back() {
    let group = |number| move |it: &mut FilterRule<LinkId>| it.group = NonZeroU32::new(number);
    let mut filter = with_maps(
        vec![
            rule(IN, BLOCK),
            rule(IN, call(5, MapKey::Source)),
            rule(IN, PASS).with(group(20)),
            rule(IN, BLOCK).to_port(25).quick().with(group(20)),
            rule(IN, PASS).to_port(80).with(group(30)),
            rule(IN, PASS).to_port(25),
            rule(OUT, call(6, MapKey::Destination)),
            rule(OUT, BLOCK).with(group(20)),
        ],
        &[(5, "10.0.0.0/8", 20), (5, "10.1.0.0/16", 30), (5, "10.2.0.0/16", 99), (6, "192.0.2.0/24", 20)],
    );
    for (from, port, want) in [
        ("10.0.0.1", 443, Verdict::Pass),
        // The group's quick rule ends the whole search.
        ("10.0.0.1", 25, BLOCKED),
        // The longest network has another group, of which no rule is about that port: what stood before counts.
        ("10.1.0.1", 80, Verdict::Pass),
        ("10.1.0.1", 443, BLOCKED),
        // After the group the search goes on.
        ("10.1.0.1", 25, Verdict::Pass),
        // A group without rules, and no group.
        ("10.2.0.1", 443, BLOCKED),
        ("11.0.0.1", 443, BLOCKED),
    ] {
        let packet = syn(&format!("{from}:1"), &format!("192.0.2.7:{port}"));
        assert_eq!(ask(&mut filter, IN, &packet), want, "{from} to {port}");
    }
    assert_eq!(ask(&mut filter, OUT, &syn("192.0.2.7:1", "10.0.0.1:2")), Verdict::Pass, "by its destination");
    assert_eq!(
        ask(&mut filter, OUT, &syn("10.0.0.1:1", "192.0.2.7:2")),
        BLOCKED,
        "the group of its direction"
    );
    let met: Vec<u64> = filter.counts().rules.iter().map(|count| count.packets).collect();
    assert_eq!(met, [3, 7, 1, 1, 1, 1, 2, 1], "calls count what comes to them, rules what they decide");
    // Maps change while rules stay.
    filter.change_pools(&[leads(5, "10.1.0.0/16", 20)]);
    assert_eq!(ask(&mut filter, IN, &syn("10.1.0.1:1", "192.0.2.7:443")), Verdict::Pass);
    filter.change_pools(&[PoolChange { until: None, ..leads(5, "10.0.0.0/8", 20) }]);
    assert_eq!(ask(&mut filter, IN, &syn("10.0.0.1:1", "192.0.2.7:443")), BLOCKED);
}

#[test]
fn a_quick_call_ends_the_search_if_its_group_decides() {
    let group = |number| move |it: &mut FilterRule<LinkId>| it.group = NonZeroU32::new(number);
    let mut filter = with_maps(
        vec![
            rule(IN, call(5, MapKey::Source)).quick(),
            rule(IN, BLOCK).to_port(80).with(group(20)),
            rule(IN, PASS).to_port(80),
            rule(IN, BLOCK).to_port(81),
        ],
        &[(5, "10.0.0.0/8", 20)],
    );
    assert_eq!(ask(&mut filter, IN, &syn("10.0.0.1:1", "192.0.2.7:80")), BLOCKED);
    assert_eq!(ask(&mut filter, IN, &syn("11.0.0.1:1", "192.0.2.7:80")), Verdict::Pass);
    assert_eq!(ask(&mut filter, IN, &syn("10.0.0.1:1", "192.0.2.7:81")), BLOCKED);
}

#[test]
fn calls_that_go_round_for_a_moment_have_an_end() {
    let group = |number| move |it: &mut FilterRule<LinkId>| it.group = NonZeroU32::new(number);
    let mut filter = with_maps(
        vec![
            rule(IN, call(5, MapKey::Source)),
            rule(IN, call(5, MapKey::Source)).with(group(20)),
            rule(IN, BLOCK).with(group(20)),
        ],
        &[(5, "10.0.0.0/8", 20)],
    );
    assert_eq!(ask(&mut filter, IN, &syn("10.0.0.1:1", "192.0.2.7:80")), BLOCKED);
    let met = filter.counts().rules[1].packets;
    assert_eq!(met, u64::from(GroupCall::DEPTH_MAX), "each call counts");
}

proptest! {
    /// A map says what a list of rules would that ask for each of its networks, the shortest first.
    #[test]
    fn a_map_does_what_rules_for_its_networks_would(
        entries in prop::collection::btree_map((0u8..4, 0u8..4, 8u8..=32), 1u32..4, 0..12),
        verdicts in prop::collection::vec(any::<bool>(), 3),
        packets in prop::collection::vec((0u8..4, 0u8..4, 0u8..4), 1..20),
    ) {
        let network = |(a, b, length): (u8, u8, u8)| {
            firelane_units::IpPrefix::new(core::net::Ipv4Addr::new(10, a, b, 1).into(), length).unwrap().network()
        };
        // Of one network the last group that is said counts, for both.
        let maps: std::collections::BTreeMap<_, _> = entries.iter().map(|(at, group)| (network(*at), *group)).collect();
        let verdict = |group: u32| if verdicts[group as usize - 1] { PASS } else { BLOCK };
        let mut called = vec![rule(IN, BLOCK), rule(IN, call(5, MapKey::Source))];
        called.extend((1..4).map(|group| rule(IN, verdict(group)).with(|it| it.group = NonZeroU32::new(group))));
        let mut called = filter(called);
        let texts: Vec<_> = maps.iter().map(|(network, group)| leads(5, &network.to_string(), *group)).collect();
        called.change_pools(&texts);
        let mut longest_last: Vec<_> = maps.iter().collect();
        longest_last.sort_by_key(|(network, _)| network.prefix_len());
        let plain = longest_last.iter().map(|(network, group)| rule(IN, verdict(**group)).from(&network.to_string()));
        let mut plain = filter(core::iter::once(rule(IN, BLOCK)).chain(plain).collect());
        for (a, b, c) in packets {
            let packet = syn(&format!("10.{a}.{b}.{c}:1"), "192.0.2.7:80");
            prop_assert_eq!(ask(&mut called, IN, &packet), ask(&mut plain, IN, &packet), "10.{}.{}.{}", a, b, c);
        }
    }
}

fn any_rule() -> impl Strategy<Value = FilterRule<LinkId>> {
    let action = prop_oneof![Just(PASS), Just(BLOCK), Just(FilterAction::Count), Just(FilterAction::Skip(2))];
    let asked = (any::<(bool, bool)>(), 0..3_u8, 0..3_u8, prop::option::of(1..3_u32), 79..82_u16);
    (action, asked, prop::option::of(1..3_u32)).prop_map(
        |(action, ((is_in, negated), addresses, protocol, link, port), group)| {
            rule(if is_in { IN } else { OUT }, action).with(|it| {
                it.link = link.map(LinkId);
                it.group = group.and_then(NonZeroU32::new);
                it.head = NonZeroU32::new(1).filter(|_| port == 79 && group.is_none());
                it.matching.protocol = FilterProtocol::Number([6, 17, 6][usize::from(protocol)]);
                let addresses = match addresses {
                    0 => FilterAddresses::Any,
                    1 => FilterAddresses::Prefix("10.0.0.0/24".parse().unwrap()),
                    _ => FilterAddresses::Pool(7),
                };
                it.matching.from = FilterEnd { negated, addresses, ports: FilterPorts::Any };
                it.matching.to.ports =
                    if protocol == 2 { FilterPorts::Any } else { FilterPorts::Equal(Port(port)) };
            })
        },
    )
}

proptest! {
    /// Where it is said that no rule is met, none is, whatever is in pools.
    #[test]
    fn who_may_meet_no_rule_meets_none(
        rules in prop::collection::vec(any_rule(), 0..4),
        pooled in prop::option::of(prop::bool::ANY),
        (is_in, source, port, link) in (any::<bool>(), 0..2_u8, 79..82_u16, 1..3_u32),
    ) {
        let mut filter = filter(rules);
        let (direction, link) = (if is_in { IN } else { OUT }, LinkId(link));
        let (from, to) = (format!("10.0.{source}.1:1000"), format!("192.0.2.7:{port}"));
        let end = |text: &str| text.parse::<core::net::SocketAddr>().map(|it| (it.ip(), Port(it.port()))).unwrap();
        let way = OneWay { direction, protocol: TCP, from: end(&from), to: end(&to) };
        let may_meet = filter.may_meet(&way, |other| other == link);
        let network = |is_all| if is_all { "0.0.0.0/0" } else { "10.0.0.0/24" }.parse().unwrap();
        filter.change_pools(&Vec::from_iter(pooled.map(|is_all| PoolChange {
            pool: 7, network: network(is_all), until: Some(FOREVER), is_exception: false, group: None,
        })));
        let ruling = ask_at(&mut filter, direction, link, &syn(&from, &to), 0);
        let has_met = ruling.rule.is_some() || filter.counts().rules.iter().any(|it| it.packets > 0);
        prop_assert!(may_meet || !has_met);
        prop_assert_eq!(filter.may_meet(&way, |other| other == link), may_meet, "pools change nothing");
    }
}

/// One that skips may be the head of a group, whose rules are met before it does.
#[test]
fn who_meets_one_that_skips_meets_its_group() {
    let group = NonZeroU32::new(1);
    let mut filter = filter(vec![
        rule(OUT, FilterAction::Skip(2)).to_port(79).with(|it| it.head = group),
        rule(OUT, BLOCK).with(|it| it.group = group),
    ]);
    let [from, to] =
        [("10.0.0.1", 1000), ("192.0.2.7", 79)].map(|(ip, port)| (ip.parse().unwrap(), Port(port)));
    let way = OneWay { direction: OUT, protocol: TCP, from, to };
    assert!(filter.may_meet(&way, |_| true));
    assert_eq!(ask(&mut filter, OUT, &syn("10.0.0.1:1000", "192.0.2.7:79")), BLOCKED);
}

/// What stands before a transport header hides it from no rule: options that nobody here knows, and a fragment header before others.
#[test]
fn extension_headers_hide_no_ports() {
    let [src, dst] = ["fd00::1", "fd00::2"].map(|text| text.parse().unwrap());
    let segment = tcp("[fd00::1]:1000", "[fd00::2]:23", firelane_wire::TcpFlags::SYN, 0, 0, 0)[40..].to_vec();
    let options = |kind: u8| [6, 0, kind, 4, 0, 0, 0, 0];
    let mut filter = filter(vec![rule(IN, PASS), rule(IN, BLOCK).proto(TCP).to_port(23)]);
    for kind in [1, 0x1e, 0x5e, 0x9e, 0xde] {
        let payload = [&options(kind)[..], &segment].concat();
        let whole = v6(src, dst, IpProtocol::DESTINATION_OPTIONS, &payload);
        assert_eq!(ask(&mut filter, IN, &whole), BLOCKED, "{kind:#x}");
        let mut piece = v6_piece(src, dst, 0, true, &[&payload[..], &[0; 4]].concat());
        piece[40] = IpProtocol::DESTINATION_OPTIONS.0;
        assert_eq!(ask(&mut filter, IN, &piece), BLOCKED, "{kind:#x} behind a fragment header");
    }
    // What ends before its transport header is short, and has no ports.
    let cut = v6(src, dst, IpProtocol::DESTINATION_OPTIONS, &[&options(0xde)[..], &segment[..19]].concat());
    let short =
        vec![rule(IN, PASS), rule(IN, BLOCK).with(|it| it.matching.with = vec![(PacketTrait::Short, true)])];
    assert_eq!(ask(&mut common::filter(short), IN, &cut), BLOCKED);
}

/// The first eight bytes of a segment are enough for its ports, and receivers put such pieces together.
#[test]
fn the_first_piece_of_a_segment_shows_its_ports_however_short() {
    let lists = [
        vec![rule(IN, PASS), rule(IN, BLOCK).proto(TCP).to_port(23)],
        // Nobody knows its flags.
        vec![
            rule(IN, BLOCK),
            rule(IN, PASS).proto(TCP).to_port(23).with(|it| {
                it.matching.flags = Some(TcpFlagsMatch { set: 2, mask: 0x12 });
            }),
        ],
    ];
    for rules in lists {
        let mut filter = filter(rules);
        let [first, _] = pieces(&syn("10.0.0.1:1000", "192.0.2.7:23"), 5);
        assert_eq!(ask(&mut filter, IN, &first), BLOCKED);
    }
    let mut filter = filter(vec![rule(IN, BLOCK), rule(IN, PASS).proto(TCP).to_port(80).keep()]);
    let [first, later] = pieces(&syn("10.0.0.1:1000", "192.0.2.7:80"), 5);
    assert_eq!(ask(&mut filter, IN, &first), Verdict::Pass);
    assert_eq!(ask(&mut filter, IN, &later), BLOCKED);
    assert_eq!(filter.counts().states.added, 0, "a state needs the whole header");
}

#[test]
fn skip_leaves_rules_out_and_count_and_log_decide_nothing() {
    let mut filter = filter(vec![
        rule(IN, FilterAction::Skip(2)).from("10.0.0.0/8"),
        rule(IN, BLOCK),
        rule(IN, BLOCK).quick(),
        rule(IN, FilterAction::Count),
        rule(IN, FilterAction::Log),
    ]);
    let ruling = ask_at(&mut filter, IN, LINK, &udp("10.0.0.1:1", "192.0.2.7:53"), 0);
    assert_eq!((ruling.verdict, ruling.rule, ruling.logged), (Verdict::Pass, None, Some(4)));
    assert_eq!(ask(&mut filter, IN, &udp("11.0.0.1:1", "192.0.2.7:53")), BLOCKED);
    let met: Vec<u64> = filter.counts().rules.iter().map(|count| count.packets).collect();
    assert_eq!(met, [0, 0, 1, 1, 1]);
}

#[test]
fn each_thing_that_a_rule_asks_is_asked() {
    let plain = syn("10.0.0.1:1000", "192.0.2.7:80");
    let ping = Icmpv4Repr::EchoRequest { identifier: 1, sequence: 1, data: &[] };
    let ping = icmp(A, B, &ping);
    let optioned = [&[0x46, 0, 0, 52][..], &plain[4..20], &[1, 1, 1, 0], &plain[20..], &[0; 8]].concat();
    let [first, later] = pieces(&udp_of(16), 5);
    let broadcast = udp("10.0.0.1:68", "255.255.255.255:67");
    let short = v4(A, B, TCP, &[0; 12]);
    let v6 = udp("[fd00::1]:1", "[fd00::2]:53");
    type Ask = fn(&mut firelane_units::FilterRule<LinkId>);
    /// What is asked, how, who has it, and who has not.
    type Case<'a> = (&'a str, Ask, &'a [u8], &'a [&'a [u8]]);
    let cases: [Case<'_>; 14] = [
        ("on", |it| it.link = Some(LINK), &plain, &[]),
        ("proto", |it| it.matching.protocol = FilterProtocol::Number(1), &ping, &[&plain, &v6]),
        ("tcp/udp", |it| it.matching.protocol = FilterProtocol::TcpUdp, &plain, &[&ping]),
        ("from", |it| it.matching.from = end("10.0.0.1/32", FilterPorts::Any), &plain, &[&v6]),
        ("to v6", |it| it.matching.to = end("fd00::/64", FilterPorts::Any), &v6, &[&plain]),
        ("to !", |it| it.matching.to = not(end("192.0.2.0/24", FilterPorts::Any)), &v6, &[&plain]),
        ("port", |it| it.matching.from.ports = FilterPorts::Range(Port(999), Port(1001)), &plain, &[&ping]),
        ("flags", |it| it.matching.flags = Some(TcpFlagsMatch { set: 2, mask: 0x12 }), &plain, &[&ping]),
        ("icmp-type", |it| it.matching.icmp = Some((8, Some(0))), &ping, &[&plain, &later]),
        ("ipopts", |it| it.matching.with = vec![(PacketTrait::IpOptions, true)], &optioned, &[&plain]),
        ("frag", |it| it.matching.with = vec![(PacketTrait::Fragment, true)], &first, &[&plain]),
        ("frag-body", |it| it.matching.with = vec![(PacketTrait::FragmentBody, true)], &later, &[&first]),
        ("short", |it| it.matching.with = vec![(PacketTrait::Short, true)], &short, &[&plain, &later]),
        ("multicast", |it| it.matching.with = vec![(PacketTrait::Multicast, true)], &broadcast, &[&plain]),
    ];
    for (name, ask_for, met, missed) in cases {
        let mut filter = filter(vec![rule(IN, BLOCK).with(ask_for)]);
        assert_eq!(ask(&mut filter, IN, met), BLOCKED, "{name}");
        for packet in missed {
            assert_eq!(ask(&mut filter, IN, packet), Verdict::Pass, "{name}");
        }
    }
    let mut on = filter(vec![rule(IN, BLOCK).with(|it| it.link = Some(LINK))]);
    assert_eq!(ask_at(&mut on, IN, LinkId(2), &plain, 0).verdict, Verdict::Pass);
}

fn not(end: FilterEnd) -> FilterEnd {
    FilterEnd { negated: true, ..end }
}

/// A datagram with text.
fn udp_of(len: usize) -> Vec<u8> {
    let mut payload = vec![0; 8 + len];
    payload[..8].copy_from_slice(&[0, 1, 0, 53, 0, 8 + len as u8, 0, 0]);
    v4(A, B, IpProtocol::UDP, &payload)
}

#[test]
fn flags_are_looked_at_under_their_mask() {
    let mut filter = filter(vec![
        rule(IN, BLOCK).proto(TCP).with(|it| it.matching.flags = Some(TcpFlagsMatch { set: 2, mask: 0x17 })),
    ]);
    let cases = [
        (TcpFlags::SYN, BLOCKED),
        (TcpFlags::SYN.with(TcpFlags::PSH), BLOCKED),
        (TcpFlags::SYN.with(TcpFlags::ACK), Verdict::Pass),
        (TcpFlags::SYN.with(TcpFlags::FIN), Verdict::Pass),
        (TcpFlags::ACK, Verdict::Pass),
    ];
    for (flags, verdict) in cases {
        assert_eq!(ask(&mut filter, IN, &tcp("10.0.0.1:1", "192.0.2.7:80", flags, 0, 0, 0)), verdict);
    }
}

#[test]
fn what_the_sender_hears_is_the_rules_word() {
    for answer in [BlockAnswer::Reset, BlockAnswer::Icmp { code: 13, as_dest: true }] {
        let mut filter = filter(vec![rule(IN, FilterAction::Block(answer))]);
        assert_eq!(ask(&mut filter, IN, &syn("10.0.0.1:1", "192.0.2.7:80")), Verdict::Block(answer));
    }
}

#[test]
fn a_pool_is_asked_and_its_entries_end() {
    let mut filter = Filter::new([(1, 2), (3, 4)], 10);
    let pooled = rule(IN, BLOCK).with(|it| it.matching.from.addresses = FilterAddresses::Pool(13));
    let until = Instant::from_secs(5);
    let entries =
        vec![("10.0.0.0/8".parse().unwrap(), until), (IpPrefix::host(B.into()), firelane_filter::FOREVER)];
    filter.set(FilterConfig { rules: vec![pooled], pools: vec![(13, entries)] }, Instant::ZERO);
    assert_eq!(filter.pooled(), 2);
    let packet = udp("10.0.0.1:1", "192.0.2.7:53");
    let ruling = ask_at(&mut filter, IN, LINK, &packet, 4);
    assert_eq!((ruling.verdict, ruling.is_for_all), (BLOCKED, false), "it will be another");
    assert_eq!(filter.poll_at(), Some(until));
    assert_eq!(ask_at(&mut filter, IN, LINK, &packet, 5).verdict, Verdict::Pass);
    assert_eq!((filter.on_time(until), filter.pooled()), (None, 1));
    assert_eq!(ask_at(&mut filter, IN, LINK, &udp("192.0.2.7:1", "10.0.0.1:53"), 9).verdict, BLOCKED);
}

#[test]
fn a_verdict_is_for_all_of_a_flow_only_if_it_cannot_differ() {
    let packet = syn("10.0.0.1:1", "192.0.2.7:80");
    let is_for_all = |rules| ask_at(&mut filter(rules), IN, LINK, &packet, 0).is_for_all;
    assert!(is_for_all(vec![rule(IN, BLOCK), rule(IN, PASS).proto(TCP).to_port(80)]));
    assert!(is_for_all(vec![rule(IN, BLOCK).proto(IpProtocol::UDP).with(|it| it.matching.ttl = Some(1))]));
    assert!(!is_for_all(vec![rule(IN, BLOCK).with(|it| it.matching.ttl = Some(1))]), "another time to live");
    assert!(!is_for_all(vec![rule(IN, FilterAction::Count), rule(IN, PASS)]), "each is counted");
    assert!(!is_for_all(vec![rule(OUT, PASS).keep()]), "a state may begin");
}
