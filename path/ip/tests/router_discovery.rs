//! A host among routers: what it asks, what it believes, and what it forgets (RFC 4861 §6.3, RFC 4862 §5.5,
//! RFC 4191, RFC 7048, RFC 7559, RFC 8106, RFC 8981).
//!
//! The routers are frames made by hand; the host is a home lane with a link-local address.

use crate::common;
use crate::craft;

use core::net::{IpAddr, Ipv6Addr};
use core::time::Duration;

use common::{LINK, Station, ip, mac};
use craft::ndp_frame;
use firelane_ip::{
    AddressOrigin, AddressState, AutoconfConfig, Configured, DadConfig, IfConfig, IidKind, Ip, IpConfig,
    IpEvent, NeighbourState, Origin, RouterFlags, Sent, Upper,
};
use firelane_units::{DropReason, Instant, IpPrefix, Mtu};
use firelane_wire::{
    IpProtocol, Ipv6View, NdpEnvelope, NdpMessage, NdpOption, NdpView, PrefixInformation, RouteInformation,
    RouterPreference,
};

const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
const PLAIN: AutoconfConfig = AutoconfConfig { iid: IidKind::Eui64, stateless: true, temporary: false };

struct Host {
    station: Station,
    now: Instant,
    sent: Vec<Vec<u8>>,
}

impl Host {
    fn new(settings: Option<AutoconfConfig>) -> Self {
        Self::testing(DadConfig::FAST, settings)
    }

    fn testing(dad: DadConfig, settings: Option<AutoconfConfig>) -> Self {
        let mut station = Station::bare(1, dad, true, 1500);
        let config = IpConfig { dad, link_local: Some(IidKind::Eui64), ..IpConfig::new([1; 16]) };
        station.ip = Ip::new(config);
        let mtu = Mtu::new(1500).unwrap();
        station.ip.add_interface(IfConfig { link: LINK, mac: mac(1), mtu, is_home: true });
        station.ip.bring_up(Instant::ZERO, LINK);
        let mut host = Self { station, now: Instant::ZERO, sent: Vec::new() };
        if settings.is_some() {
            host.station.ip.set_autoconf(Instant::ZERO, LINK, settings);
        }
        host.run(3);
        host
    }

    /// Lets seconds pass.
    fn run(&mut self, seconds: u64) {
        let end = self.now + Duration::from_secs(seconds);
        while let Some(at) = self.station.ip.poll_at().filter(|&at| at <= end) {
            self.station.ip.on_timer(at, &mut self.station.pools);
            let sent = self.station.outputs(at);
            self.sent.extend(sent);
        }
        self.now = end;
    }

    fn give(&mut self, frame: &[u8]) -> &'static str {
        let end = self.station.input_bytes(self.now, frame);
        let sent = self.station.outputs(self.now);
        self.sent.extend(sent);
        end
    }

    /// Router `n` announces itself for half an hour, with these options.
    fn advertise(&mut self, n: u16, options: &[NdpOption<'_>]) -> &'static str {
        self.give(&advert(n, 1800, RouterPreference::Medium, options))
    }

    fn addresses(&self, origin: AddressOrigin) -> Vec<(IpPrefix, AddressState)> {
        let of = self.station.ip.addresses().filter(|a| a.origin == origin);
        of.map(|a| (a.prefix, a.state)).collect()
    }

    fn next_hop(&mut self, dst: &str) -> Option<IpAddr> {
        self.station.ip.egress(self.now, None, ip(dst)).ok().map(|egress| egress.next_hop)
    }

    fn solicitations(&mut self) -> usize {
        let sent = std::mem::take(&mut self.sent);
        sent.iter().filter(|frame| matches!(message(frame), Some(NdpMessage::RouterSolicit))).count()
    }
}

fn router(n: u16) -> Ipv6Addr {
    Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, n)
}

fn message(frame: &[u8]) -> Option<NdpMessage> {
    let view = Ipv6View::parse(&frame[14..]).ok().filter(|v| v.next_header() == IpProtocol::ICMPV6)?;
    let envelope = NdpEnvelope { src: view.src(), dst: view.dst(), hop_limit: view.hop_limit() };
    NdpView::parse(&envelope, view.payload()).ok().map(|ndp| ndp.message())
}

fn router_advert(lifetime: u64, preference: RouterPreference) -> NdpMessage {
    NdpMessage::RouterAdvert {
        hop_limit: 0,
        managed: false,
        other: false,
        preference,
        lifetime: Duration::from_secs(lifetime),
        reachable: Duration::ZERO,
        retransmit: Duration::ZERO,
    }
}

fn advert(n: u16, lifetime: u64, preference: RouterPreference, options: &[NdpOption<'_>]) -> Vec<u8> {
    ndp_frame(router(n), ALL_NODES, router_advert(lifetime, preference), options)
}

fn prefix(text: &str, valid: u64, preferred: u64) -> NdpOption<'static> {
    let network: IpPrefix = text.parse().unwrap();
    let IpAddr::V6(addr) = network.addr() else { panic!("an IPv6 prefix") };
    NdpOption::Prefix(PrefixInformation {
        prefix: addr,
        prefix_len: network.prefix_len(),
        on_link: true,
        autonomous: true,
        valid: Duration::from_secs(valid),
        preferred: Duration::from_secs(preferred),
    })
}

#[test]
fn a_host_asks_for_routers_until_one_answers() {
    let mut host = Host::new(Some(PLAIN));
    assert_eq!(host.solicitations(), 1);
    host.run(30);
    // After about 4 and 8 and 16 seconds.
    assert!((2..=3).contains(&host.solicitations()));
    // An answer that is no default router's is none.
    host.give(&advert(9, 0, RouterPreference::Medium, &[prefix("fd00:1::/64", 3600, 3600)]));
    host.run(100);
    assert!(host.solicitations() >= 2);
    host.advertise(1, &[]);
    host.run(600);
    assert_eq!(host.solicitations(), 0);
    // The last router is gone: it is asked for another one.
    host.run(1300);
    assert!(host.solicitations() >= 1);
}

/// RFC 4861 §4.1, §6.3.7: from the link-local address with the host's own, or from nobody without one.
#[test]
fn a_solicitation_comes_from_the_link_local_address_with_the_hosts_own() {
    for (dad, named) in [(DadConfig::OFF, true), (DadConfig::SLOW, false)] {
        // A slow test goes on for longer than the first question waits.
        let host = Host::testing(dad, Some(PLAIN));
        let frame = host.sent.iter().find(|f| message(f) == Some(NdpMessage::RouterSolicit)).unwrap();
        let view = Ipv6View::parse(&frame[14..]).unwrap();
        assert_eq!((view.hop_limit(), view.dst().to_string().as_str()), (255, "ff02::2"));
        assert_eq!(frame[..6], [0x33, 0x33, 0, 0, 0, 2]);
        let envelope = NdpEnvelope { src: view.src(), dst: view.dst(), hop_limit: 255 };
        let options = NdpView::parse(&envelope, view.payload()).unwrap().options();
        assert_eq!((view.src().is_unicast_link_local(), view.src().is_unspecified()), (named, !named));
        assert_eq!(options.source_mac(), named.then_some(mac(1)));
    }
}

#[test]
fn an_advertised_prefix_brings_an_address_a_route_and_a_router() {
    let mut host = Host::new(Some(PLAIN));
    assert_eq!(host.next_hop("2001:db8::1"), None);
    assert_eq!(host.advertise(1, &[prefix("fd00:1::/64", 86_400, 3600)]), "consumed");
    host.run(2);
    let expected: IpPrefix = "fd00:1::ff:fe00:1/64".parse().unwrap();
    assert_eq!(host.addresses(AddressOrigin::Prefix), [(expected, AddressState::Preferred)]);
    assert_eq!(host.next_hop("2001:db8::1"), Some(router(1).into()));
    assert_eq!(host.next_hop("fd00:1::99"), Some(ip("fd00:1::99")));
    let egress = host.station.ip.egress(host.now, None, ip("2001:db8::1")).unwrap();
    assert_eq!((egress.src, egress.hops), (expected.addr(), 64));
    // The other lanes hear all of it, and reach what the home lane reaches.
    let mut other = Station::bare(1, DadConfig::FAST, false, 1500);
    for event in host.station.events.drain(..) {
        if let IpEvent::Configured(change) = event {
            other.ip.on_configured(change);
        }
    }
    let copied = other.ip.egress(host.now, None, ip("2001:db8::1")).unwrap();
    assert_eq!((copied.src, copied.next_hop), (expected.addr(), router(1).into()));
    // The lifetimes end: first nothing new begins with it, then it is gone, and the route before it.
    host.run(3600);
    assert_eq!(host.addresses(AddressOrigin::Prefix), [(expected, AddressState::Deprecated)]);
    assert!(host.station.ip.is_local(expected.addr()));
    assert_eq!(host.next_hop("2001:db8::1"), None);
    host.run(86_400);
    assert_eq!(host.addresses(AddressOrigin::Prefix), []);
    assert_eq!(host.station.ip.routes().count(), 0);
    for event in host.station.events.drain(..) {
        if let IpEvent::Configured(change) = event {
            other.ip.on_configured(change);
        }
    }
    assert_eq!((other.ip.addresses().count(), other.ip.routes().count()), (1, 0));
}

#[test]
fn advertisements_that_say_nothing_to_this_host() {
    let address = |option: PrefixInformation| NdpOption::Prefix(option);
    let NdpOption::Prefix(good) = prefix("fd00:1::/64", 3600, 3600) else { panic!() };
    for (name, option) in [
        (
            "preferred for longer than valid",
            PrefixInformation { preferred: Duration::from_secs(3601), ..good },
        ),
        ("not autonomous", PrefixInformation { autonomous: false, ..good }),
        ("no half left for the host", PrefixInformation { prefix_len: 65, ..good }),
        ("more than a half", PrefixInformation { prefix_len: 63, ..good }),
        ("longer than an address", PrefixInformation { prefix_len: 129, ..good }),
        ("link-local", PrefixInformation { prefix: router(0), ..good }),
        ("a group", PrefixInformation { prefix: ALL_NODES, ..good }),
        ("over already", PrefixInformation { valid: Duration::ZERO, preferred: Duration::ZERO, ..good }),
    ] {
        let mut host = Host::new(Some(PLAIN));
        assert_eq!(host.advertise(1, &[address(option)]), "consumed");
        host.run(2);
        assert_eq!(host.addresses(AddressOrigin::Prefix), [], "{name}");
    }
    let mut host = Host::new(Some(PLAIN));
    host.advertise(1, &[address(PrefixInformation { on_link: false, ..good })]);
    host.run(2);
    assert_eq!(host.addresses(AddressOrigin::Prefix).len(), 1);
    // RFC 5942: an address makes no prefix; its neighbours are reached through the router.
    assert_eq!(host.next_hop("fd00:1::99"), Some(router(1).into()));
    let mut host = Host::new(Some(AutoconfConfig { stateless: false, ..PLAIN }));
    host.advertise(1, &[address(good)]);
    host.run(2);
    assert_eq!(host.addresses(AddressOrigin::Prefix), []);
    assert_eq!(host.next_hop("fd00:1::99"), Some(ip("fd00:1::99")));
}

#[test]
fn a07_only_a_host_that_was_told_to_listens_to_routers() {
    for settings in [None, Some(PLAIN)] {
        let mut host = Host::new(settings);
        if settings.is_some() {
            host.station.ip.set_forwarding(true);
        }
        for _ in 0..5 {
            assert_eq!(host.advertise(1, &[prefix("fd00:1::/64", 3600, 3600)]), "drop");
        }
        assert_eq!(host.station.drops, [DropReason::BadNdp; 5]);
        assert_eq!((host.station.ip.routes().count(), host.next_hop("2001:db8::1")), (0, None));
    }
    // From an address that is not the link's, or from beyond the link.
    let mut host = Host::new(Some(PLAIN));
    let message = router_advert(1800, RouterPreference::High);
    let far = ndp_frame("fd00::1".parse().unwrap(), ALL_NODES, message, &[]);
    let mut hop = advert(1, 1800, RouterPreference::High, &[]);
    hop[14 + 7] = 254;
    for frame in [far, hop] {
        assert_eq!(host.give(&frame), "drop");
    }
    assert_eq!(host.station.drops, [DropReason::BadNdp; 2]);
}

#[test]
fn a07_a_flood_of_prefixes_routes_and_routers_is_bounded_and_counted() {
    let mut host = Host::new(Some(PLAIN));
    for n in 0..1000 {
        let route = RouteInformation {
            prefix: Ipv6Addr::new(0xfd01, n, 0, 0, 0, 0, 0, 0),
            prefix_len: 32,
            preference: RouterPreference::Medium,
            lifetime: Duration::from_secs(1800),
        };
        let servers = [Ipv6Addr::new(0xfd02, 0, 0, 0, 0, 0, 0, n + 1).octets()];
        let name = format!("\x05d{n:04}\0\0");
        let options = [
            prefix(&format!("fd00:{n:x}::/64"), 1800, 1800),
            NdpOption::Route(route),
            NdpOption::RecursiveDns { lifetime: Duration::from_secs(1800), servers: &servers },
            NdpOption::DnsSearch { lifetime: Duration::from_secs(1800), names: name.as_bytes() },
        ];
        assert_eq!(host.advertise(n + 1, &options), "consumed");
    }
    host.run(2);
    let refused = host.station.ip.refused();
    assert_eq!((refused.routers, refused.routes), (984, 984));
    assert_eq!((refused.prefixes, refused.addresses), (984, 984));
    assert_eq!((refused.servers, refused.domains), (992, 992));
    assert_eq!(host.addresses(AddressOrigin::Prefix).len(), 16);
    assert_eq!(host.station.ip.routes().count(), 48);
    let known = host.station.ip.resolvers().next().unwrap();
    assert_eq!((known.servers.len(), known.domains.len()), (8, 8));
    // Everything that was learned is forgotten in time.
    host.run(1800);
    assert_eq!((host.addresses(AddressOrigin::Prefix).len(), host.station.ip.routes().count()), (0, 0));
}

#[test]
fn the_liked_router_is_used_while_it_answers() {
    let mut host = Host::new(Some(PLAIN));
    host.give(&advert(1, 1800, RouterPreference::Low, &[prefix("fd00:1::/64", 3600, 3600)]));
    host.give(&advert(2, 1800, RouterPreference::High, &[]));
    host.run(2);
    assert_eq!(host.next_hop("2001:db8::1"), Some(router(2).into()));
    // What it says lies behind it goes there, whatever the other is liked.
    let behind = RouteInformation {
        prefix: "2001:db8:1::".parse().unwrap(),
        prefix_len: 48,
        preference: RouterPreference::Medium,
        lifetime: Duration::from_secs(1800),
    };
    host.give(&advert(1, 1800, RouterPreference::Low, &[NdpOption::Route(behind)]));
    assert_eq!(host.next_hop("2001:db8:1::1"), Some(router(1).into()));
    assert_eq!(host.next_hop("2001:db8:2::1"), Some(router(2).into()));
    // A datagram asks for it; it does not answer, and the other one takes over.
    assert!(!matches!(host.station.send(host.now, "2001:db8::1", b"x", Upper::udp()), Sent::Drop(..)));
    host.run(20);
    assert_eq!(host.next_hop("2001:db8::1"), Some(router(1).into()));
    // It is heard again.
    host.give(&advert(2, 1800, RouterPreference::High, &[NdpOption::SourceLinkLayer(mac(9))]));
    assert_eq!(host.next_hop("2001:db8::1"), Some(router(2).into()));
    // It resigns.
    host.give(&advert(2, 0, RouterPreference::High, &[]));
    assert_eq!(host.next_hop("2001:db8::1"), Some(router(1).into()));
    let origins: Vec<Origin> = host.station.ip.routes().map(|route| route.origin).collect();
    assert!(origins.contains(&Origin::OnLink) && origins.contains(&Origin::Router(RouterPreference::Low)));
}

#[test]
fn rfc7048_the_only_router_is_sent_to_while_it_is_asked_ever_more_rarely() {
    let mut host = Host::new(Some(PLAIN));
    let options = [NdpOption::SourceLinkLayer(mac(9)), prefix("fd00:1::/64", 86_400, 86_400)];
    host.give(&advert(1, 9000, RouterPreference::Medium, &options));
    host.run(2);
    host.sent.clear();
    let mut times = Vec::new();
    for second in 0..240 {
        let sent = host.station.send(host.now, "2001:db8::1", b"x", Upper::udp());
        assert!(matches!(sent, Sent::Out), "{second}");
        host.sent.clear();
        host.run(1);
        let asked = |f: &Vec<u8>| matches!(message(f), Some(NdpMessage::NeighbourSolicit { .. }));
        times.extend(host.sent.iter().filter(|f| asked(f)).map(|_| second));
    }
    // Five seconds of delay, three questions to it, then everybody after 3, 9, 27, 60, 60 seconds.
    assert!((7..=10).contains(&times.len()), "{times:?}");
    let gaps: Vec<u64> = times.windows(2).map(|w| w[1] - w[0]).collect();
    assert!(gaps.windows(2).all(|w| w[0] <= w[1] + 1), "{times:?}");
    assert!(*gaps.last().unwrap() >= 59, "{times:?}");
    let state = host.station.ip.neighbours().find(|n| n.ip == IpAddr::V6(router(1))).unwrap().state;
    assert_eq!(state, NeighbourState::Unreachable);
    // Nobody uses it any more: it is forgotten.
    host.run(200);
    assert_eq!(host.station.ip.neighbours().count(), 0);
}

#[test]
fn link_parameters_are_obeyed_within_reason() {
    let mut host = Host::new(Some(PLAIN));
    let with = |hop_limit, mtu| {
        let NdpMessage::RouterAdvert { managed, other, preference, lifetime, .. } =
            router_advert(1800, RouterPreference::Medium)
        else {
            panic!()
        };
        let message = NdpMessage::RouterAdvert {
            hop_limit,
            managed,
            other,
            preference,
            lifetime,
            reachable: Duration::from_millis(10_000),
            retransmit: Duration::from_millis(500),
        };
        let options = [NdpOption::Mtu(mtu), prefix("fd00:1::/64", 3600, 3600)];
        ndp_frame(router(1), ALL_NODES, message, &options)
    };
    for (hop_limit, mtu, expected) in [
        (100, 1400, (100, 1400)),
        (0, 1279, (100, 1400)),
        (1, 1501, (100, 1400)),
        (31, 0, (100, 1400)),
        (32, 1280, (32, 1280)),
        (255, 1500, (255, 1500)),
    ] {
        host.give(&with(hop_limit, mtu));
        host.run(2);
        let egress = host.station.ip.egress(host.now, None, ip("2001:db8::1")).unwrap();
        assert_eq!((egress.hops, egress.mtu.bytes()), expected, "{hop_limit} {mtu}");
    }
    let parameters =
        host.station.events.iter().filter(|event| matches!(event, IpEvent::Configured(Configured::Link(..))));
    assert_eq!(parameters.count(), 3, "only what is news is told");
}

/// RFC 4861 §6.3.2 and §6.3.4: how long a neighbour is believed, spread by half, and how often one is asked.
#[test]
fn times_that_a_router_announces_are_those_of_its_link() {
    let mut host = Host::new(Some(PLAIN));
    let message = NdpMessage::RouterAdvert {
        hop_limit: 0,
        managed: false,
        other: false,
        preference: RouterPreference::Medium,
        lifetime: Duration::from_secs(1800),
        reachable: Duration::from_secs(10),
        retransmit: Duration::from_millis(500),
    };
    host.give(&ndp_frame(router(1), ALL_NODES, message, &[prefix("fd00:1::/64", 3600, 3600)]));
    host.run(5);
    let begin = host.now;
    let asks = |frame: &Vec<u8>| matches!(self::message(frame), Some(NdpMessage::NeighbourSolicit { .. }));
    assert!(matches!(host.station.send(begin, "fd00:1::99", b"x", Upper::udp()), Sent::Held));
    assert!(host.station.outputs(begin).iter().any(asks));
    let mut asked = Vec::new();
    while let Some(at) = host.station.ip.poll_at().filter(|&at| at < begin + Duration::from_millis(1400)) {
        host.station.ip.on_timer(at, &mut host.station.pools);
        let again = host.station.outputs(at);
        asked.extend(again.iter().filter(|f| asks(f)).map(|_| at.saturating_since(begin).as_millis()));
    }
    assert_eq!(asked, [500, 1000]);
    let IpAddr::V6(target) = ip("fd00:1::99") else { panic!() };
    let answer = NdpMessage::NeighbourAdvert { target, router: false, solicited: true, replace: true };
    let own = host.addresses(AddressOrigin::Prefix)[0].0.addr();
    let IpAddr::V6(own) = own else { panic!() };
    host.give(&ndp_frame(target, own, answer, &[NdpOption::TargetLinkLayer(mac(9))]));
    let state =
        |host: &Host| host.station.ip.neighbours().find(|n| n.ip == ip("fd00:1::99")).map(|n| n.state);
    let mut believed = 0;
    while state(&host) == Some(NeighbourState::Reachable) {
        host.run(1);
        believed += 1;
    }
    assert_eq!(state(&host), Some(NeighbourState::Stale));
    assert!((5..15).contains(&believed), "{believed} s");
}

/// RFC 4861 §7.2.5: a router that says that it is none is no default router from then on, if it is believed.
#[test]
fn a_default_router_that_says_it_is_none_is_none() {
    let behind = RouteInformation {
        prefix: "2001:db8:1::".parse().unwrap(),
        prefix_len: 48,
        preference: RouterPreference::Medium,
        lifetime: Duration::from_secs(1800),
    };
    let own =
        [NdpOption::SourceLinkLayer(mac(9)), prefix("fd00:1::/64", 3600, 3600), NdpOption::Route(behind)];
    let says = |router: bool, replace: bool, mac| {
        let message =
            NdpMessage::NeighbourAdvert { target: self::router(1), router, solicited: false, replace };
        ndp_frame(self::router(1), ALL_NODES, message, &[NdpOption::TargetLinkLayer(mac)])
    };
    let mut host = Host::new(Some(PLAIN));
    host.advertise(1, &own);
    host.advertise(2, &[NdpOption::SourceLinkLayer(mac(8))]);
    host.run(5);
    host.solicitations();
    let (first, second) = (Some(router(1).into()), Some(router(2).into()));
    assert_eq!(host.next_hop("2001:db8::1"), first);
    let cached = host.station.ip.egress(host.now, None, ip("2001:db8::1")).unwrap();
    // A router still; and somebody else, who may not speak for it.
    for frame in [says(true, true, mac(9)), says(false, false, mac(7))] {
        assert_eq!(host.give(&frame), "consumed");
        assert_eq!(host.next_hop("2001:db8::1"), first);
    }
    assert_eq!(host.give(&says(false, true, mac(9))), "consumed");
    assert_eq!(host.next_hop("2001:db8::1"), second);
    assert!(!host.station.ip.is_current(&cached), "who used it looks again");
    assert_eq!(host.next_hop("2001:db8:1::1"), first, "what it said lies behind it is not about everywhere");
    host.run(5);
    assert_eq!(host.solicitations(), 0, "there is another one");
    // The last one is gone: it is asked for another, and believed when it is back.
    host.give(&advert(2, 0, RouterPreference::Medium, &[]));
    host.advertise(1, &own);
    assert_eq!(host.next_hop("2001:db8::1"), first);
    host.run(5);
    host.solicitations();
    host.give(&says(false, true, mac(9)));
    assert_eq!(host.next_hop("2001:db8::1"), None);
    host.run(3);
    assert_eq!(host.solicitations(), 1);
    host.advertise(1, &own);
    assert_eq!(host.next_hop("2001:db8::1"), first);
}

#[test]
fn resolvers_come_from_routers_and_go_with_them() {
    let mut host = Host::new(Some(PLAIN));
    let servers = [Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 0x53).octets(), router(0x53).octets()];
    let options = [
        NdpOption::RecursiveDns { lifetime: Duration::from_secs(600), servers: &servers },
        NdpOption::DnsSearch { lifetime: Duration::from_secs(300), names: b"\x03lab\x07example\0\0\0" },
    ];
    host.advertise(1, &options);
    let known = host.station.ip.resolvers().next().unwrap();
    assert_eq!(known.servers, servers.map(Ipv6Addr::from));
    assert_eq!((known.link, known.domains), (LINK, vec!["lab.example".to_owned()]));
    assert!(host.station.events.contains(&IpEvent::Resolvers(LINK)));
    host.run(301);
    assert_eq!(host.station.ip.resolvers().next().unwrap().domains, [] as [String; 0]);
    host.run(300);
    assert_eq!(host.station.ip.resolvers().next().unwrap().servers, [] as [Ipv6Addr; 0]);
}

#[test]
fn a07_a_server_list_of_half_an_address_is_ignored_and_the_rest_is_not() {
    // CVE-2020-16898: an even length, so that the last server is half there.
    let mut host = Host::new(Some(PLAIN));
    let mut body = vec![0; 6];
    body.extend([0xfd; 24]);
    let options = [NdpOption::Other(25, &body), prefix("fd00:1::/64", 3600, 3600)];
    assert_eq!(host.advertise(1, &options), "consumed");
    host.run(2);
    assert_eq!(host.station.ip.resolvers().next().unwrap().servers, [] as [Ipv6Addr; 0]);
    assert_eq!(host.addresses(AddressOrigin::Prefix).len(), 1);
}

#[test]
fn temporary_addresses_are_preferred_for_what_begins_here() {
    let mut host = Host::new(Some(AutoconfConfig { temporary: true, ..PLAIN }));
    host.advertise(1, &[prefix("fd00:1::/64", 604_800, 604_800)]);
    host.run(2);
    let [(temporary, AddressState::Preferred)] = host.addresses(AddressOrigin::Temporary)[..] else {
        panic!("one temporary address")
    };
    let stable = host.addresses(AddressOrigin::Prefix)[0].0;
    let egress = host.station.ip.egress(host.now, None, ip("2001:db8::1")).unwrap();
    assert_eq!(egress.src, temporary.addr());
    assert_ne!(stable.addr(), temporary.addr());
    // A day later another one has taken its place, and it is still answered for.
    for _ in 0..48 {
        host.advertise(1, &[prefix("fd00:1::/64", 604_800, 604_800)]);
        host.run(1790);
    }
    let states = host.addresses(AddressOrigin::Temporary);
    assert!(states.contains(&(temporary, AddressState::Deprecated)), "{states:?}");
    let egress = host.station.ip.egress(host.now, None, ip("2001:db8::1")).unwrap();
    assert!(egress.src != temporary.addr() && egress.src != stable.addr());
}

#[test]
fn what_routers_brought_ends_with_the_wish_for_it() {
    let mut host = Host::new(Some(PLAIN));
    let servers = [[0xfd; 16]];
    let dns = NdpOption::RecursiveDns { lifetime: Duration::from_secs(600), servers: &servers };
    host.advertise(1, &[prefix("fd00:1::/64", 3600, 3600), dns]);
    host.run(2);
    assert_eq!(host.station.ip.routes().count(), 2);
    host.station.ip.set_autoconf(host.now, LINK, None);
    host.station.outputs(host.now);
    assert_eq!((host.station.ip.routes().count(), host.station.ip.addresses().count()), (0, 1));
    assert_eq!(host.addresses(AddressOrigin::LinkLocal).len(), 1);
    assert_eq!(host.advertise(1, &[]), "drop");
    // And comes back with it.
    host.station.ip.set_autoconf(host.now, LINK, Some(PLAIN));
    host.advertise(1, &[prefix("fd00:1::/64", 3600, 3600)]);
    host.run(2);
    assert_eq!(host.addresses(AddressOrigin::Prefix).len(), 1);
}

#[test]
fn a08_a_duplicate_of_an_opaque_address_is_replaced_by_the_next() {
    let mut host = Host::new(Some(AutoconfConfig { iid: IidKind::Stable, ..PLAIN }));
    host.advertise(1, &[prefix("fd00:1::/64", 86_400, 86_400)]);
    let [(first, AddressState::Tentative)] = host.addresses(AddressOrigin::Prefix)[..] else {
        panic!("one address is tested")
    };
    let IpAddr::V6(target) = first.addr() else { panic!() };
    let message = NdpMessage::NeighbourAdvert { target, router: false, solicited: false, replace: true };
    host.give(&ndp_frame(target, ALL_NODES, message, &[NdpOption::TargetLinkLayer(mac(9))]));
    host.run(5);
    let [(second, AddressState::Preferred)] = host.addresses(AddressOrigin::Prefix)[..] else {
        panic!("another is used: {:?}", host.addresses(AddressOrigin::Prefix))
    };
    assert_ne!(first, second);
}

#[test]
fn what_routers_say_of_dhcpv6_is_told_when_it_is_news() {
    let mut host = Host::new(Some(PLAIN));
    let say = |host: &mut Host, managed, other| {
        let NdpMessage::RouterAdvert { hop_limit, preference, lifetime, reachable, retransmit, .. } =
            router_advert(1800, RouterPreference::Medium)
        else {
            panic!()
        };
        let message = NdpMessage::RouterAdvert {
            hop_limit,
            managed,
            other,
            preference,
            lifetime,
            reachable,
            retransmit,
        };
        host.give(&ndp_frame(router(1), ALL_NODES, message, &[]));
        host.run(1);
    };
    let told = |host: &mut Host| {
        let flags = |event| match event {
            IpEvent::RouterFlags(LINK, RouterFlags { managed, other }) => Some((managed, other)),
            _ => None,
        };
        std::mem::take(&mut host.station.events).into_iter().filter_map(flags).collect::<Vec<_>>()
    };
    for (managed, other) in [(false, false), (true, true), (true, true), (false, true)] {
        say(&mut host, managed, other);
    }
    assert_eq!(told(&mut host), [(true, true), (false, true)]);
    // Whoever begins anew is told anew.
    host.station.ip.set_autoconf(host.now, LINK, Some(PLAIN));
    host.run(1);
    say(&mut host, false, true);
    assert_eq!(told(&mut host), [(false, true)]);
    // Without the operator's wish nothing is heard of them.
    host.station.ip.set_autoconf(host.now, LINK, None);
    host.run(1);
    say(&mut host, true, true);
    assert_eq!(told(&mut host), []);
}

/// What another station had ends with its prefix: who announces prefixes and has their addresses does not fill the table.
#[test]
fn an_address_that_another_station_has_is_forgotten_with_its_prefix() {
    let mut host = Host::new(Some(PLAIN));
    for nth in 0..3 {
        let network = format!("fd00:{:x}::/64", 9 - nth);
        host.advertise(1, &[prefix(&network, 2, 2)]);
        let Some(&(it, AddressState::Tentative)) = host.addresses(AddressOrigin::Prefix).last() else {
            panic!()
        };
        let IpAddr::V6(target) = it.addr() else { panic!() };
        let advert = NdpMessage::NeighbourAdvert { target, router: false, solicited: false, replace: true };
        host.give(&ndp_frame(target, ALL_NODES, advert, &[NdpOption::TargetLinkLayer(mac(9))]));
        host.run(5);
        assert_eq!(host.addresses(AddressOrigin::Prefix), []);
    }
}
