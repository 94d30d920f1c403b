//! Streams into a feed, and the netstack's routes that come out: those of a real zebra, those of a model, and arbitrary bytes.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;
use std::time::Duration;

use firelane_fpm::{Change, Config, End, Feed, Hop, Refusal};
use firelane_units::{Instant, IpPrefix, LinkId};
use proptest::prelude::*;

const CONFIG: Config = Config { grace: Duration::from_secs(60), settle: Duration::from_secs(5) };

/// What a netstack has been given.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
struct Given(BTreeMap<IpPrefix, BTreeSet<Hop>>);

impl Given {
    fn follow(&mut self, changes: &[Change]) {
        for change in changes {
            match *change {
                Change::Add(to, hop) => {
                    assert!(self.0.entry(to).or_default().insert(hop), "{change:?} twice")
                }
                Change::Remove(to, hop) => {
                    let hops = self.0.get_mut(&to).expect("the destination was given");
                    assert!(hops.remove(&hop), "{change:?} was not given");
                    if hops.is_empty() {
                        self.0.remove(&to);
                    }
                }
            }
        }
    }

    fn to(&self, destination: &str) -> Vec<Hop> {
        self.0.get(&prefix(destination)).into_iter().flatten().copied().collect()
    }
}

/// A feed with the netstack behind it.
struct Net {
    feed: Feed,
    given: Given,
    now: Instant,
}

impl Net {
    fn new() -> Self {
        Self { feed: Feed::new(CONFIG), given: Given::default(), now: Instant::from_secs(1) }
    }

    fn connected() -> Self {
        let mut net = Self::new();
        net.feed.connected(net.now);
        net
    }

    fn say(&mut self, stream: &[u8]) {
        let given = &mut self.given;
        self.feed.received(self.now, stream, &mut |changes| given.follow(changes)).unwrap();
    }

    fn pass(&mut self, seconds: u64) {
        self.now = self.now.plus_nanos(seconds * 1_000_000_000);
        let given = &mut self.given;
        self.feed.on_time(self.now, &mut |changes| given.follow(changes));
    }

    fn links(&mut self, links: &[(u32, u32)]) {
        let links: HashMap<u32, LinkId> = links.iter().map(|&(index, id)| (index, LinkId(id))).collect();
        let given = &mut self.given;
        self.feed.set_links(links, &mut |changes| given.follow(changes));
    }

    fn refused(&self, why: Refusal) -> u64 {
        self.feed.counts().refused(why)
    }
}

fn prefix(text: &str) -> IpPrefix {
    text.parse().unwrap()
}

fn via(gateway: &str) -> Hop {
    Hop::Via(gateway.parse().unwrap(), None)
}

/// Netlink's messages, as a daemon writes them.
mod say {
    use super::{IpAddr, IpPrefix};

    fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
        let mut bytes = ((value.len() + 4) as u16).to_ne_bytes().to_vec();
        bytes.extend(kind.to_ne_bytes());
        bytes.extend(value);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes
    }

    fn octets(addr: IpAddr) -> Vec<u8> {
        match addr {
            IpAddr::V4(addr) => addr.octets().to_vec(),
            IpAddr::V6(addr) => addr.octets().to_vec(),
        }
    }

    fn family(addr: IpAddr) -> u8 {
        if addr.is_ipv4() { 2 } else { 10 }
    }

    pub(super) fn message(kind: u16, inside: &[u8]) -> Vec<u8> {
        let mut bytes = ((inside.len() + 16) as u32).to_ne_bytes().to_vec();
        bytes.extend(kind.to_ne_bytes());
        bytes.extend([0; 10]);
        bytes.extend(inside);
        bytes
    }

    pub(super) fn frame(messages: &[Vec<u8>]) -> Vec<u8> {
        let inside = messages.concat();
        let length = ((inside.len() + 4) as u16).to_be_bytes();
        [vec![1, 1, length[0], length[1]], inside].concat()
    }

    pub(super) fn rtmsg(to: IpPrefix, protocol: u8, kind: u8, more: &[Vec<u8>]) -> Vec<u8> {
        let header = [family(to.addr()), to.prefix_len(), 0, 0, 254, protocol, 0, kind, 0, 0, 0, 0];
        [header.to_vec(), attribute(1, &octets(to.addr())), more.concat()].concat()
    }

    /// A BGP route of this metric by the next hop of that number.
    pub(super) fn named(to: IpPrefix, id: u32) -> Vec<u8> {
        let more = [attribute(30, &id.to_ne_bytes()), attribute(6, &20u32.to_ne_bytes())];
        message(24, &rtmsg(to, 186, 1, &more))
    }

    pub(super) fn via(to: IpPrefix, gateway: IpAddr) -> Vec<u8> {
        message(24, &rtmsg(to, 186, 1, &[attribute(5, &octets(gateway))]))
    }

    pub(super) fn by(to: IpPrefix, gateway: Option<IpAddr>, index: u32) -> Vec<u8> {
        let gateway = gateway.map(|it| attribute(5, &octets(it))).unwrap_or_default();
        message(24, &rtmsg(to, 186, 1, &[attribute(4, &index.to_ne_bytes()), gateway]))
    }

    pub(super) fn multipath(to: IpPrefix, gateways: &[IpAddr]) -> Vec<u8> {
        let hop = |gateway: &IpAddr| {
            let inside = attribute(5, &octets(*gateway));
            let mut bytes = ((inside.len() + 8) as u16).to_ne_bytes().to_vec();
            bytes.extend([0, 0, 3, 0, 0, 0]);
            [bytes, inside].concat()
        };
        let row: Vec<u8> = gateways.iter().flat_map(hop).collect();
        message(24, &rtmsg(to, 186, 1, &[attribute(9, &row)]))
    }

    pub(super) fn ends(to: IpPrefix, kind: u8) -> Vec<u8> {
        message(24, &rtmsg(to, 188, kind, &[]))
    }

    /// A connected network (24), or its end (25).
    pub(super) fn of_kernel(kind: u16, to: IpPrefix) -> Vec<u8> {
        message(kind, &rtmsg(to, 2, 1, &[attribute(4, &3u32.to_ne_bytes())]))
    }

    pub(super) fn gone(to: IpPrefix) -> Vec<u8> {
        message(25, &rtmsg(to, 186, 0, &[]))
    }

    pub(super) fn hop(id: u32, gateway: IpAddr) -> Vec<u8> {
        let more = [attribute(1, &id.to_ne_bytes()), attribute(6, &octets(gateway))];
        message(104, &[vec![family(gateway), 0, 11, 0, 0, 0, 0, 0], more.concat()].concat())
    }

    /// One with labels (`NHA_ENCAP`).
    pub(super) fn labelled_hop(id: u32, gateway: IpAddr) -> Vec<u8> {
        let more = [attribute(8, &[0; 8]), attribute(1, &id.to_ne_bytes()), attribute(6, &octets(gateway))];
        message(104, &[vec![family(gateway), 0, 11, 0, 0, 0, 0, 0], more.concat()].concat())
    }

    /// The same of a route (`RTA_ENCAP`).
    pub(super) fn labelled(to: IpPrefix, gateway: IpAddr) -> Vec<u8> {
        message(24, &rtmsg(to, 186, 1, &[attribute(22, &[0; 8]), attribute(5, &octets(gateway))]))
    }

    pub(super) fn group(id: u32, members: &[u32]) -> Vec<u8> {
        let row: Vec<u8> = members.iter().flat_map(|it| [it.to_ne_bytes(), [0; 4]].concat()).collect();
        let more = [attribute(1, &id.to_ne_bytes()), attribute(2, &row)];
        message(104, &[vec![0, 0, 11, 0, 0, 0, 0, 0], more.concat()].concat())
    }

    pub(super) fn hop_gone(id: u32) -> Vec<u8> {
        message(105, &[vec![0; 8], attribute(1, &id.to_ne_bytes())].concat())
    }
}

fn zebra() -> Vec<Vec<u8>> {
    let bytes = |line: &str| {
        let octet = |at: usize| u8::from_str_radix(&line[at..at + 2], 16).unwrap();
        (0..line.len()).step_by(2).map(octet).collect()
    };
    include_str!("zebra.hex").lines().filter(|line| !line.starts_with('#')).map(bytes).collect()
}

#[test]
fn what_zebra_says_is_understood() {
    let mut net = Net::connected();
    let frames = zebra();
    let first_change = frames.iter().position(|frame| frame.len() == 100).unwrap();
    frames[..first_change].iter().for_each(|frame| net.say(frame));
    let given = |net: &Net, to: &str| net.given.to(to);
    assert_eq!(given(&net, "203.0.113.0/24"), [via("10.9.0.2")]);
    assert_eq!(given(&net, "203.0.114.0/24"), [via("10.9.0.2"), via("10.9.0.3")]);
    assert_eq!(given(&net, "203.0.115.0/24"), [Hop::Ends(End::Blackhole)]);
    assert_eq!(given(&net, "203.0.116.0/24"), [Hop::Ends(End::Unreachable)]);
    assert_eq!(given(&net, "2001:db8:1::/48"), [via("fd00:9::2")]);
    assert_eq!(given(&net, "2001:db8:3::/48"), [via("fd00:9::2"), via("fd00:9::3")]);
    assert_eq!(given(&net, "2001:db8:4::/48"), [Hop::Ends(End::Blackhole)]);
    // By an interface of zebra's namespace that is none of ours as yet.
    let by_interface = ["203.0.117.0/24", "2001:db8:2::/48"];
    assert!(by_interface.iter().all(|to| given(&net, to).is_empty()));
    assert_eq!((net.feed.counts().unresolved, net.refused(Refusal::Kernel)), (2, 3));
    net.links(&[(3, 7)]);
    assert_eq!(given(&net, "203.0.117.0/24"), [Hop::OnLink(LinkId(7))]);
    let beyond = Hop::Via("fe80::5".parse().unwrap(), Some(LinkId(7)));
    assert_eq!(given(&net, "2001:db8:2::/48"), [beyond]);
    let whence = net.feed.whence(prefix("203.0.113.0/24")).unwrap();
    assert_eq!((whence.word(), whence.metric), (Some("static"), 20));
    frames[first_change..].iter().for_each(|frame| net.say(frame));
    assert_eq!(given(&net, "203.0.114.0/24"), [via("10.9.0.2")]);
    assert_eq!(given(&net, "203.0.113.0/24"), []);
    assert_eq!(given(&net, "203.0.120.0/24"), [via("10.9.0.7")]);
    let counts = net.feed.counts();
    assert_eq!((counts.routes, counts.installed, counts.stale, counts.unresolved), (9, 10, 0, 0));
    let others = Refusal::ALL.iter().filter(|&&why| why != Refusal::Kernel);
    assert_eq!(others.map(|&why| counts.refused(why)).sum::<u64>(), 0);
}

#[test]
fn a_change_within_a_frame_is_one_change() {
    let mut net = Net::connected();
    let to = prefix("198.51.100.0/24");
    let (one, two): (IpAddr, IpAddr) = ("10.0.0.1".parse().unwrap(), "10.0.0.2".parse().unwrap());
    net.say(&say::frame(&[say::via(to, one)]));
    let mut seen = Vec::new();
    let stream = say::frame(&[say::gone(to), say::via(to, two)]);
    net.feed.received(net.now, &stream, &mut |changes| seen.extend_from_slice(changes)).unwrap();
    assert_eq!(seen, [Change::Add(to, Hop::Via(two, None)), Change::Remove(to, Hop::Via(one, None))]);
    seen.clear();
    net.feed.received(net.now, &stream, &mut |changes| seen.extend_from_slice(changes)).unwrap();
    assert_eq!(seen, [], "what is as before is not touched");
}

#[test]
fn what_is_refused_is_counted_by_its_reason_and_the_rest_goes_on() {
    let to = prefix("198.51.100.0/24");
    let gateway: IpAddr = "10.0.0.1".parse().unwrap();
    let with = |at: usize, byte: u8, mut message: Vec<u8>| {
        message[at] = byte;
        message
    };
    let all: IpAddr = "224.0.0.1".parse().unwrap();
    let rtm = 16;
    for (message, why) in [
        (say::message(28, &[0; 12]), Refusal::MessageType),
        (say::message(24, &[2; 8]), Refusal::Length),
        (with(rtm, 7, say::via(to, gateway)), Refusal::Family),
        (with(rtm + 1, 33, say::via(to, gateway)), Refusal::Destination),
        (say::via(prefix("224.0.0.0/4"), gateway), Refusal::Destination),
        (say::via(prefix("127.0.0.0/8"), gateway), Refusal::Destination),
        (with(rtm + 2, 8, say::via(to, gateway)), Refusal::Source),
        (with(rtm + 4, 9, say::via(to, gateway)), Refusal::Table),
        (with(rtm + 5, 2, say::via(to, gateway)), Refusal::Kernel),
        (with(rtm + 7, 5, say::via(to, gateway)), Refusal::RouteType),
        (say::via(to, all), Refusal::Gateway),
        (with(rtm + 12, 3, say::via(to, gateway)), Refusal::Attribute),
        (with(rtm + 12, 99, say::via(to, gateway)), Refusal::Attribute),
        (say::message(24, &say::rtmsg(to, 186, 1, &[])), Refusal::Attribute),
        (with(rtm + 22, 22, say::via(to, gateway)), Refusal::Encapsulation),
        (say::group(5, &[]), Refusal::Group),
        (say::group(5, &[1; 257]), Refusal::Group),
        (say::hop(0, gateway), Refusal::Attribute),
        (with(0, 200, say::via(to, gateway)), Refusal::Length),
    ] {
        let mut net = Net::connected();
        let good = prefix("192.0.2.0/24");
        net.say(&say::frame(std::slice::from_ref(&message)));
        net.say(&say::frame(&[say::via(good, gateway)]));
        let counts = net.feed.counts();
        let refused: Vec<_> = Refusal::ALL.iter().filter(|&&why| counts.refused(why) > 0).collect();
        assert_eq!(refused, [&why], "{message:?}");
        assert_eq!((counts.messages, counts.refused(why)), (2, 1), "{why:?}");
        assert_eq!(net.given.0.keys().collect::<Vec<_>>(), [&good], "{why:?}");
    }
    let mut net = Net::connected();
    net.say(&[1, 2, 0, 6, 1, 1]);
    assert_eq!(net.refused(Refusal::NotNetlink), 1);
    let mut ignore = |_: &[Change]| {};
    for (stream, why) in [([3, 1, 0, 8], Refusal::Version), ([1, 1, 0, 2], Refusal::FrameLength)] {
        let mut net = Net::connected();
        assert!(net.feed.received(net.now, &stream, &mut ignore).is_err());
        assert_eq!(net.refused(why), 1);
    }
}

/// The daemon believes that it is there: what was there before leads where nobody wants it.
#[test]
fn what_is_refused_takes_along_what_it_replaces() {
    let to = prefix("198.51.100.0/24");
    let hop = |last: u8| IpAddr::from([10, 0, 0, last]);
    let by_first = || {
        let mut net = Net::connected();
        net.say(&say::frame(&[say::hop(1, hop(1)), say::named(to, 1)]));
        assert_eq!(net.given.to("198.51.100.0/24"), [via("10.0.0.1")]);
        net
    };
    // By another object, and by the same one that is another now; in a group the others stay.
    for (id, object) in [(2, say::labelled_hop(2, hop(2))), (1, say::labelled_hop(1, hop(2)))] {
        let mut net = by_first();
        net.say(&say::frame(&[object, say::gone(to), say::named(to, id)]));
        assert_eq!((net.given.0.len(), net.refused(Refusal::Encapsulation)), (0, 1));
        assert_eq!((net.feed.counts().unresolved, net.feed.counts().routes), (1, 1));
        net.say(&say::frame(&[say::hop(3, hop(3)), say::group(9, &[id, 3]), say::named(to, 9)]));
        assert_eq!(net.given.to("198.51.100.0/24"), [via("10.0.0.3")]);
        net.say(&say::frame(&[say::hop(id, hop(2)), say::named(to, id)]));
        assert_eq!(net.given.to("198.51.100.0/24"), [via("10.0.0.2")], "it may be another again");
    }
    let all: IpAddr = "224.0.0.1".parse().unwrap();
    for route in [say::labelled(to, hop(2)), say::via(to, all), say::multipath(to, &[hop(1), all])] {
        let mut net = by_first();
        net.say(&say::frame(&[route]));
        assert_eq!((net.given.0.len(), net.feed.counts().routes), (0, 0));
    }
}

/// A prefix has become a connected network of zebra's namespace, or a route of its kernel. With `fpm use-route-replace`, which is on unless
/// somebody says otherwise, nothing else tells that the route of before is gone.
#[test]
fn a_route_of_the_kernel_takes_the_place_of_what_was_told_before() {
    let (to, other) = (prefix("198.51.100.0/24"), prefix("203.0.113.0/24"));
    let hop: IpAddr = "10.0.0.1".parse().unwrap();
    let mut net = Net::connected();
    net.say(&say::frame(&[say::hop(1, hop), say::named(to, 1), say::named(other, 1)]));
    net.say(&say::frame(&[say::of_kernel(24, to)]));
    assert_eq!(
        (net.given.to("198.51.100.0/24"), net.given.to("203.0.113.0/24")),
        (vec![], vec![via("10.0.0.1")])
    );
    assert_eq!((net.feed.counts().routes, net.refused(Refusal::Kernel)), (1, 1));
    // Without it zebra says that the kernel's is gone before it says what comes, and there may be one already by then.
    net.say(&say::frame(&[say::named(to, 1)]));
    net.say(&say::frame(&[say::of_kernel(25, to)]));
    assert_eq!((net.given.to("198.51.100.0/24"), net.refused(Refusal::Kernel)), (vec![via("10.0.0.1")], 2));
}

#[test]
fn a_next_hop_that_becomes_another_takes_its_routes_along() {
    let mut net = Net::connected();
    let (a, b) = (prefix("198.51.100.0/24"), prefix("203.0.113.0/24"));
    let hop = |last: u8| IpAddr::from([10, 0, 0, last]);
    net.say(&say::frame(&[say::group(9, &[1, 2]), say::named(a, 9), say::named(b, 2)]));
    assert_eq!(net.feed.counts().unresolved, 2);
    net.say(&say::frame(&[say::hop(1, hop(1)), say::hop(2, hop(2))]));
    assert_eq!(net.given.to("198.51.100.0/24"), [via("10.0.0.1"), via("10.0.0.2")]);
    net.say(&say::frame(&[say::hop(2, hop(3))]));
    assert_eq!(net.given.to("198.51.100.0/24"), [via("10.0.0.1"), via("10.0.0.3")]);
    assert_eq!(net.given.to("203.0.113.0/24"), [via("10.0.0.3")]);
    net.say(&say::frame(&[say::multipath(a, &[hop(5), hop(6)]), say::hop_gone(9), say::ends(b, 8)]));
    assert_eq!(net.given.to("198.51.100.0/24"), [via("10.0.0.5"), via("10.0.0.6")]);
    assert_eq!(net.given.to("203.0.113.0/24"), [Hop::Ends(End::Prohibit)]);
    assert_eq!(net.feed.counts().next_hops, 2);
}

#[test]
fn a_link_local_gateway_is_on_the_link_of_the_daemons_interface() {
    let mut net = Net::connected();
    let gateway = "fe80::1".parse().ok();
    net.say(&say::frame(&[say::by(prefix("::/0"), gateway, 4), say::by(prefix("fd01::/64"), None, 4)]));
    assert_eq!((net.given.0.len(), net.feed.counts().unresolved), (0, 2));
    net.links(&[(4, 1), (5, 2)]);
    assert_eq!(net.given.to("::/0"), [Hop::Via(gateway.unwrap(), Some(LinkId(1)))]);
    net.links(&[(4, 2)]);
    assert_eq!(net.given.to("fd01::/64"), [Hop::OnLink(LinkId(2))]);
    net.links(&[]);
    assert_eq!((net.given.0.len(), net.feed.counts().unresolved), (0, 2));
    // IPv4 may go by an IPv6 gateway (RFC 8950); the other way round leads nowhere.
    net.say(&say::frame(&[say::hop(3, "fd00::1".parse().unwrap()), say::named(prefix("10.0.0.0/8"), 3)]));
    assert_eq!(net.given.to("10.0.0.0/8"), [via("fd00::1")]);
    net.say(&say::frame(&[say::hop(4, "10.0.0.1".parse().unwrap()), say::named(prefix("fd02::/64"), 4)]));
    assert_eq!(net.given.0.len(), 1);
}

#[test]
fn routes_outlive_their_daemon_for_the_grace_time_alone() {
    let mut net = Net::connected();
    let (a, b) = (prefix("198.51.100.0/24"), prefix("203.0.113.0/24"));
    let hop: IpAddr = "10.0.0.1".parse().unwrap();
    net.say(&say::frame(&[say::hop(1, hop), say::named(a, 1), say::via(b, hop)]));
    net.feed.disconnected(net.now);
    assert_eq!((net.feed.counts().stale, net.feed.deadline()), (2, Some(Instant::from_secs(61))));
    net.pass(59);
    assert_eq!(net.given.0.len(), 2);
    net.pass(1);
    assert_eq!((net.given.0.len(), net.feed.counts().swept, net.feed.deadline()), (0, 2, None));
}

#[test]
fn a_new_session_confirms_what_it_tells_and_its_silence_ends_the_rest() {
    let mut net = Net::connected();
    let (a, b) = (prefix("198.51.100.0/24"), prefix("203.0.113.0/24"));
    let hop: IpAddr = "10.0.0.1".parse().unwrap();
    let other: IpAddr = "10.0.0.9".parse().unwrap();
    net.say(&say::frame(&[say::hop(1, hop), say::named(a, 1), say::named(b, 1)]));
    net.pass(100);
    assert_eq!(net.feed.counts().stale, 0);
    net.feed.disconnected(net.now);
    net.feed.connected(net.now);
    // The same number is another next hop now, which is no business of routes of the time before.
    net.say(&say::frame(&[say::hop(1, other)]));
    net.pass(20);
    assert_eq!(net.given.to("198.51.100.0/24"), [via("10.0.0.1")], "no route as yet: it goes on");
    net.say(&say::frame(&[say::named(a, 1)]));
    assert_eq!((net.given.to("198.51.100.0/24"), net.feed.counts().stale), (vec![via("10.0.0.9")], 1));
    net.pass(4);
    assert_eq!(net.given.0.len(), 2);
    net.pass(1);
    assert_eq!(net.given.0.keys().collect::<Vec<_>>(), [&a]);
    assert_eq!((net.feed.counts().stale, net.feed.deadline()), (0, None));
    let (given, now) = (&mut net.given, net.now);
    net.feed.clear(now, &mut |changes| given.follow(changes));
    assert_eq!((net.given.0.len(), net.feed.counts().routes), (0, 0));
}

#[test]
fn a_daemon_that_comes_and_goes_keeps_nothing_alive() {
    let mut net = Net::new();
    let hop: IpAddr = "10.0.0.1".parse().unwrap();
    for n in 0..250u8 {
        net.feed.connected(net.now);
        net.say(&say::frame(&[say::via(IpPrefix::host([198, 51, 100, n].into()), hop)]));
        net.feed.disconnected(net.now);
        net.pass(1);
        assert!(net.given.0.len() <= 120, "{} after {n}", net.given.0.len());
    }
    net.pass(60);
    assert_eq!((net.given.0.len(), net.feed.counts().swept), (0, 250));
}

/// One of a few destinations, next hops and numbers, so that they meet.
#[derive(Clone, Debug)]
enum Told {
    Named(u8, u8),
    Via(u8, u8),
    Multipath(u8, u8, u8),
    Ends(u8),
    Gone(u8),
    Hop(u8, u8),
    Group(u8, Vec<u8>),
    HopGone(u8),
}

fn told() -> impl Strategy<Value = Told> {
    let (to, hop, id, group) = (0u8..4, 1u8..5, 1u8..5, 5u8..8);
    prop_oneof![
        (to.clone(), 1u8..8).prop_map(|(to, id)| Told::Named(to, id)),
        (to.clone(), hop.clone()).prop_map(|(to, hop)| Told::Via(to, hop)),
        (to.clone(), hop.clone(), hop.clone()).prop_map(|(to, a, b)| Told::Multipath(to, a, b)),
        to.clone().prop_map(Told::Ends),
        to.prop_map(Told::Gone),
        (id.clone(), hop).prop_map(|(id, hop)| Told::Hop(id, hop)),
        (group, proptest::collection::vec(id, 1..4)).prop_map(|(id, members)| Told::Group(id, members)),
        (1u8..8).prop_map(Told::HopGone),
    ]
}

fn destination(n: u8) -> IpPrefix {
    prefix(&format!("198.51.{n}.0/24"))
}

fn gateway(n: u8) -> IpAddr {
    IpAddr::from([10, 0, 0, n])
}

impl Told {
    fn bytes(&self) -> Vec<u8> {
        match self {
            Self::Named(to, id) => say::named(destination(*to), (*id).into()),
            Self::Via(to, hop) => say::via(destination(*to), gateway(*hop)),
            Self::Multipath(to, a, b) => say::multipath(destination(*to), &[gateway(*a), gateway(*b)]),
            Self::Ends(to) => say::ends(destination(*to), 6),
            Self::Gone(to) => say::gone(destination(*to)),
            Self::Hop(id, hop) => say::hop((*id).into(), gateway(*hop)),
            Self::Group(id, members) => {
                say::group((*id).into(), &members.iter().map(|&it| it.into()).collect::<Vec<_>>())
            }
            Self::HopGone(id) => say::hop_gone((*id).into()),
        }
    }
}

/// What is told, looked at as a whole.
#[derive(Default)]
struct Naive {
    routes: BTreeMap<u8, Told>,
    objects: BTreeMap<u8, Told>,
}

impl Naive {
    fn follow(&mut self, told: &Told) {
        match told {
            Told::Named(to, _) | Told::Via(to, _) | Told::Multipath(to, ..) | Told::Ends(to) => {
                self.routes.insert(*to, told.clone());
            }
            Told::Gone(to) => drop(self.routes.remove(to)),
            Told::Hop(id, _) | Told::Group(id, _) => drop(self.objects.insert(*id, told.clone())),
            Told::HopGone(id) => drop(self.objects.remove(id)),
        }
    }

    fn one(&self, id: u8) -> Option<Hop> {
        match self.objects.get(&id)? {
            Told::Hop(_, hop) => Some(Hop::Via(gateway(*hop), None)),
            _ => None,
        }
    }

    /// The ways of a route; none while they are not known.
    fn ways(&self, route: &Told) -> Option<BTreeSet<Hop>> {
        let via = |hop: u8| Hop::Via(gateway(hop), None);
        Some(match route {
            Told::Via(_, hop) => [via(*hop)].into(),
            Told::Multipath(_, a, b) => [via(*a), via(*b)].into(),
            Told::Ends(_) => [Hop::Ends(End::Blackhole)].into(),
            Told::Named(_, id) => match self.objects.get(id)? {
                Told::Group(_, members) => {
                    let ways: BTreeSet<Hop> = members.iter().filter_map(|&it| self.one(it)).collect();
                    return (!ways.is_empty()).then_some(ways);
                }
                _ => [self.one(*id)?].into(),
            },
            _ => return None,
        })
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    /// After each frame the netstack has what the whole of it says, or for a route whose next hops are unknown what it had.
    /// A destination with a way before and after a frame has one at every moment.
    #[test]
    fn the_netstack_has_what_is_told(frames in proptest::collection::vec(proptest::collection::vec(told(), 1..5), 1..20)) {
        let mut net = Net::connected();
        let mut naive = Naive::default();
        for frame in &frames {
            let before = net.given.clone();
            let mut gaps = BTreeSet::new();
            let stream = say::frame(&frame.iter().map(Told::bytes).collect::<Vec<_>>());
            let given = &mut net.given;
            net.feed.received(net.now, &stream, &mut |changes| for change in changes {
                given.follow(std::slice::from_ref(change));
                let (Change::Add(to, _) | Change::Remove(to, _)) = *change;
                if !given.0.contains_key(&to) {
                    gaps.insert(to);
                }
            }).unwrap();
            frame.iter().for_each(|told| naive.follow(told));
            for n in 0..4 {
                let to = destination(n);
                let has = net.given.0.get(&to).cloned();
                match naive.routes.get(&n).map(|route| naive.ways(route)) {
                    None => prop_assert_eq!(has, None),
                    Some(Some(ways)) => {
                        prop_assert_eq!(has, Some(ways));
                        prop_assert!(!before.0.contains_key(&to) || !gaps.contains(&to), "a gap at {}", to);
                    }
                    Some(None) => prop_assert!(!before.0.contains_key(&to) || has.is_some()),
                }
            }
            let counts = net.feed.counts();
            prop_assert_eq!(counts.routes, naive.routes.len());
            prop_assert_eq!(counts.installed, net.given.0.values().map(BTreeSet::len).sum::<usize>());
            prop_assert_eq!(counts.unresolved, naive.routes.len() - net.given.0.len());
            prop_assert_eq!(counts.next_hops, naive.objects.len());
        }
        net.feed.disconnected(net.now);
        net.pass(60);
        prop_assert_eq!(net.given.0.len(), 0);
        let counts = net.feed.counts();
        prop_assert_eq!((counts.routes, counts.installed, counts.unresolved, counts.stale), (0, 0, 0, 0));
    }

    /// Nothing of arbitrary bytes, or of zebra's with some changed, is worse than a refusal.
    #[test]
    fn arbitrary_bytes_are_followed_or_refused(
        noise in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..8),
        bytes in proptest::collection::vec(any::<u8>(), 0..300),
        is_framed in any::<bool>(),
        pieces in 1usize..400,
    ) {
        let mut stream = zebra().concat();
        for (at, byte) in noise {
            let at = at.index(stream.len());
            stream[at] = byte;
        }
        let framed = say::frame(std::slice::from_ref(&bytes));
        stream.extend(if is_framed { framed } else { bytes });
        let mut net = Net::connected();
        net.links(&[(3, 1)]);
        for piece in stream.chunks(pieces) {
            let given = &mut net.given;
            if net.feed.received(net.now, piece, &mut |changes| given.follow(changes)).is_err() {
                net.feed.disconnected(net.now);
                break;
            }
        }
        let counts = net.feed.counts();
        prop_assert_eq!(counts.installed, net.given.0.values().map(BTreeSet::len).sum::<usize>());
        net.feed.disconnected(net.now);
        net.pass(60);
        prop_assert_eq!(net.given.0.len(), 0);
    }
}
