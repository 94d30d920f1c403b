//! Who gets which ends: `map`, `rdr`, `bimap`, hairpin, filtering and ICMP errors, by the RFCs' requirements.

mod common;

use common::*;
use firelane_nat::{NatConfig, Outcome, Tuple};
use firelane_units::{
    Direction, DropReason, FilterPorts, FilterProtocol, NatAction, NatEnd, NatFiltering, NatLimits, NatPorts,
    NatRedirect, NatRule, NatTarget, Port,
};
use firelane_wire::{Icmpv4Repr, IpProtocol, Ipv4View, Sum, TcpFlags};

const HOST: End<'_> = ("10.0.0.5", 5000);
const PEER: End<'_> = ("198.51.100.7", 53);

fn ended(reason: DropReason) -> Result<Vec<u8>, Outcome> {
    Err(Outcome::Ended(reason))
}

#[test]
fn a_source_has_one_name_outside_whoever_it_sends_to() {
    let mut net = Net::new(vec![from_inside(to_link(RANGE))]);
    let one = net.out(&udp(HOST, PEER, b"a")).unwrap();
    let two = net.out(&udp(HOST, ("198.51.100.8", 99), b"b")).unwrap();
    let other = net.out(&udp(("10.0.0.6", 5000), PEER, b"c")).unwrap();
    assert_eq!(seen(&one), seen(&two), "RFC 4787 REQ-1");
    assert!(seen(&one) != seen(&other) && seen(&one).0 == ip(OUTSIDE));
    assert!(
        (20_000..30_000).contains(&seen(&one).1) && seen(&one).1.is_multiple_of(2),
        "REQ-4: as even as before"
    );
    let answer = net.back(&udp(PEER, (OUTSIDE, seen(&one).1), b"d")).unwrap();
    assert_eq!(ends(&answer), ((ip(PEER.0), 53), (ip(HOST.0), 5000)));
    // RFC 6864 §5.3: numbers of datagrams stay.
    for number in [0, 1, 0xfffe_u16] {
        let mut numbered = udp(HOST, PEER, b"e");
        numbered[4..6].copy_from_slice(&number.to_be_bytes());
        numbered[10..12].fill(0);
        let sum = Sum::of(&numbered[..20]).checksum();
        numbered[10..12].copy_from_slice(&sum.to_be_bytes());
        let left = net.out(&numbered).unwrap();
        let view = Ipv4View::parse(&left).unwrap();
        assert!(view.identification() == number && view.is_checksum_valid());
    }
    let counts = net.nat.counts();
    assert_eq!((counts.sessions, counts.mappings, counts.half_open, counts.rules[0].hits), (3, 2, 2, 3));
}

#[test]
fn what_has_no_names_does_not_leave_with_an_address_of_inside() {
    let mut net = Net::new(vec![from_inside(to_link(RANGE))]);
    let mut leaves = |src: &str, protocol, payload: &[u8]| {
        net.pass(Direction::Out, WAN, &mut packet(src, PEER.0, protocol, payload))
    };
    for kind in [5, 9, 10, 40] {
        let message = [kind, 0, !kind, 0xff, 0, 0, 0, 0];
        let nameless = leaves(HOST.0, IpProtocol::ICMPV4, &message);
        assert_eq!(nameless, Outcome::Ended(DropReason::NatNameless), "ICMP {kind}");
        assert_eq!(leaves(OUTSIDE, IpProtocol::ICMPV4, &message), Outcome::Untouched, "the router's own");
    }
    for protocol in [IpProtocol::UDP, IpProtocol::TCP] {
        let nameless = leaves(HOST.0, protocol, &[1, 2, 3]);
        assert_eq!(nameless, Outcome::Ended(DropReason::NatNameless), "{protocol:?}");
    }
    assert_eq!(net.nat.counts().ended, 6);
}

#[test]
fn a_port_stays_if_it_may_and_gives_way_to_the_netstacks_own() {
    let mut net = Net::new(vec![from_inside(to_link(RANGE))]);
    let first = net.out(&udp(("10.0.0.5", 20_100), PEER, b"a")).unwrap();
    assert_eq!(seen(&first).1, 20_100);
    let taken = net.out(&udp(("10.0.0.6", 20_100), PEER, b"a")).unwrap();
    assert!(seen(&taken).1 != 20_100, "REQ-3: no port has two users");
    net.router.used = vec![20_200];
    let own = net.out(&udp(("10.0.0.6", 20_200), PEER, b"a")).unwrap();
    assert!(seen(&own).1 != 20_200);
}

#[test]
fn what_the_netstack_sends_itself_and_what_no_rule_is_for_is_left_alone() {
    let mut net = Net::new(vec![from_inside(to_link(RANGE))]);
    let own = udp(("10.0.0.254", 20_000), PEER, b"a");
    assert_eq!(net.out(&own), Ok(own));
    let stranger = udp(("172.16.0.1", 20_000), PEER, b"a");
    assert_eq!(net.out(&stranger), Ok(stranger));
    let within = udp(HOST, ("10.0.0.6", 1), b"a");
    assert_eq!(net.within(&within), Ok(within));
    assert_eq!(net.nat.counts().sessions, 0);
}

#[test]
fn who_may_answer_is_what_the_operator_says() {
    for (filtering, passes) in [
        (NatFiltering::Anybody, [true, true, true]),
        (NatFiltering::Address, [true, true, false]),
        (NatFiltering::Port, [true, false, false]),
    ] {
        let limits = NatLimits { filtering, ..NatLimits::default() };
        let mut net = Net::with(vec![from_inside(to_link(RANGE))], limits);
        let port = seen(&net.out(&udp(HOST, PEER, b"a")).unwrap()).1;
        let from = [PEER, (PEER.0, 999), ("203.0.113.9", 53)];
        for (from, passes) in from.into_iter().zip(passes) {
            let answer = net.back(&udp(from, (OUTSIDE, port), b"b"));
            match passes {
                true => assert_eq!(ends(&answer.unwrap()).1, (ip(HOST.0), HOST.1), "{filtering:?} {from:?}"),
                false => assert_eq!(answer, ended(DropReason::NatFiltered), "{filtering:?} {from:?}"),
            }
        }
    }
}

#[test]
fn unsolicited_syns_hear_nothing_and_simultaneous_opens_meet() {
    let mut net = Net::new(vec![from_inside(to_link(RANGE))]);
    let inside = ("10.0.0.5", 20_050);
    let syn = tcp(("198.51.100.7", 80), (OUTSIDE, 20_050), SYN, b"");
    assert_eq!(net.back(&syn), ended(DropReason::NatUnsolicited), "RFC 5382 REQ-4");
    net.out(&tcp(inside, ("198.51.100.7", 80), SYN, b"")).unwrap();
    assert_eq!(ends(&net.back(&syn).unwrap()).1, (ip(inside.0), inside.1), "RFC 5382 REQ-2");
    net.router.used = vec![20_060];
    let own = tcp(("198.51.100.7", 80), (OUTSIDE, 20_060), SYN, b"");
    assert_eq!(net.back(&own), Ok(own), "the netstack listens there");
    let low = tcp(("198.51.100.7", 80), (OUTSIDE, 22), SYN, b"");
    assert_eq!(net.back(&low), Ok(low), "no rule gives it to anybody");
}

#[test]
fn a_server_inside_is_reached_by_its_names_outside() {
    let mut rules = vec![redirect(FilterPorts::Equal(Port(80)), "10.0.0.9", 8080, false)];
    rules.push(redirect(FilterPorts::Range(Port(6000), Port(6009)), "10.0.0.9", 7000, true));
    let mut net = Net::new(rules);
    let client = ("198.51.100.7", 1234);
    let asked = net.back(&tcp(client, (OUTSIDE, 80), SYN, b"")).unwrap();
    assert_eq!(ends(&asked), ((ip(client.0), 1234), (ip("10.0.0.9"), 8080)));
    let answered = net.out(&tcp(("10.0.0.9", 8080), client, SYN.with(ACK), b"")).unwrap();
    assert_eq!(ends(&answered), ((ip(OUTSIDE), 80), (ip(client.0), 1234)));
    let of_range = net.back(&tcp(client, (OUTSIDE, 6004), SYN, b"")).unwrap();
    assert_eq!(ends(&of_range).1.1, 7004);
    let other = tcp(client, (OUTSIDE, 81), SYN, b"");
    assert_eq!(net.back(&other), Ok(other));
    // A range that goes beyond the last port has no others.
    let mut net =
        Net::new(vec![redirect(FilterPorts::Range(Port(9000), Port(9010)), "10.0.0.9", 65_530, true)]);
    assert_eq!(ends(&net.back(&tcp(client, (OUTSIDE, 9005), SYN, b"")).unwrap()).1.1, 65_535);
    let beyond = tcp(client, (OUTSIDE, 9006), SYN, b"");
    assert_eq!(net.back(&beyond), Ok(beyond));
}

/// RFC 4787 REQ-1: what a server sends first has the names by which it is reached, so that who is asked may ask in turn.
#[test]
fn a_server_that_speaks_first_does_so_in_the_names_by_which_it_is_reached() {
    let server = ("10.0.0.9", 5060);
    let map = from_inside(to_link(RANGE));
    let any = |rule: NatRule<_>| NatRule { to: NatEnd { prefix: None, ..rule.to }, ..rule };
    let of_port = |outside| redirect(FilterPorts::Equal(Port(outside)), server.0, server.1, false);
    let mut kept = redirect(FilterPorts::Range(Port(5000), Port(5100)), server.0, 1, false);
    let NatAction::Redirect(to) = kept.action else { unreachable!() };
    kept.action = NatAction::Redirect(NatRedirect { port: None, ..to });
    let range = redirect(FilterPorts::Range(Port(7000), Port(7010)), server.0, 5055, true);
    let exposed = NatRule { to: NatEnd { ports: FilterPorts::Any, ..kept.to }, ..kept };
    for (rule, outside) in [
        (of_port(5060), 5060),
        (of_port(80), 80),
        (any(of_port(80)), 80),
        (kept, 5060),
        (range, 7005),
        (exposed, 5060),
    ] {
        for nth in 0..2 {
            let mut net = Net::new(vec![map, rule]);
            let peer = (PEER.0, 5060);
            if nth == 0 {
                assert_eq!(
                    seen(&net.out(&udp(server, peer, b"a")).unwrap()),
                    (ip(OUTSIDE), outside),
                    "{rule:?}"
                );
                assert_eq!(
                    seen(&net.out(&udp(server, PEER, b"a")).unwrap()),
                    (ip(OUTSIDE), outside),
                    "{rule:?}"
                );
            }
            let came = net.back(&udp(peer, (OUTSIDE, outside), b"b")).unwrap();
            assert_eq!(ends(&came), ((ip(peer.0), peer.1), (ip(server.0), server.1)), "{rule:?}");
            let answered = net.out(&udp(server, peer, b"c")).unwrap();
            assert_eq!(ends(&answered), ((ip(OUTSIDE), outside), (ip(peer.0), peer.1)), "{rule:?}");
            let counts = net.nat.counts();
            assert_eq!((counts.sessions, counts.mappings), (2 - nth, 0), "{rule:?}");
        }
    }
}

/// Where a server has other names outside, as for a rule that came later, who is asked may ask in turn all the same.
#[test]
fn who_is_spoken_to_in_other_names_is_let_in_from_another_port() {
    let (server, peer) = (("10.0.0.9", 5060), (PEER.0, 5060));
    let sip = redirect(FilterPorts::Equal(Port(5060)), server.0, server.1, false);
    // It is for some, or of two in turn: no name of the server's alone.
    let some = NatEnd { prefix: "198.51.100.0/24".parse().ok(), ..NatEnd::default() };
    let both = NatRedirect { address: ip(server.0), second: Some(ip(server.0)), port: None, is_range: false };
    let both = NatRule { action: NatAction::Redirect(both), ..sip };
    for rule in [NatRule { from: some, ..sip }, both] {
        let mut net = Net::new(vec![from_inside(to_link(RANGE)), rule]);
        let other = seen(&net.out(&udp(server, peer, b"a")).unwrap());
        assert_ne!(other.1, 5060);
        for nth in 0..3 {
            let came = ends(&net.back(&udp(peer, (OUTSIDE, 5060), b"b")).unwrap());
            assert_eq!((came.0.0, came.1), (ip(peer.0), (ip(server.0), server.1)), "{nth}");
            assert!(came.0.1 != 5060 && came.0.1.is_multiple_of(2) && came.0.1 >= 1024, "{nth}");
            let answered = net.out(&udp(server, (peer.0, came.0.1), b"c")).unwrap();
            assert_eq!(ends(&answered), ((ip(OUTSIDE), 5060), (ip(peer.0), peer.1)), "{nth}");
            // And what it began goes on.
            assert_eq!(seen(&net.out(&udp(server, peer, b"d")).unwrap()), other);
            let back = ends(&net.back(&udp(peer, (OUTSIDE, other.1), b"e")).unwrap());
            assert_eq!(back, ((ip(peer.0), peer.1), (ip(server.0), server.1)));
            // An error about it finds back.
            let error = net.back(&unreachable(peer.0, &answered)).unwrap();
            assert_eq!(ends(quote(&error)), ((ip(server.0), server.1), (ip(peer.0), came.0.1)));
        }
        assert_eq!(net.nat.counts().sessions, 2);
        // A connection as well; what asks for none has no names to itself.
        let (begun, late) = (seen(&net.out(&tcp(server, peer, SYN, b"")).unwrap()), (OUTSIDE, 5060));
        assert_ne!(begun.1, 5060);
        assert_eq!(net.back(&tcp(peer, late, ACK, b"")), ended(DropReason::NatPorts));
        assert_ne!(seen(&net.back(&tcp(peer, late, SYN, b"")).unwrap()).1, 5060);
    }
}

/// Names that are somebody else's for a peer are not taken from him.
#[test]
fn a_server_that_speaks_first_takes_nobodys_names() {
    let (server, peer) = (("10.0.0.9", 5060), (PEER.0, 5060));
    let sip = |outside| redirect(FilterPorts::Equal(Port(outside)), server.0, server.1, false);
    // Whose port is the netstack's own, or another's by a mapping or by a rule that comes first.
    let of_netstack = (vec![sip(80)], Some(80), None);
    let of_mapping = (vec![sip(20_100)], None, Some(20_100));
    let first = redirect(FilterPorts::Equal(Port(80)), "10.0.0.10", 80, false);
    let of_rule = (vec![first, sip(80)], None, None);
    for (mut rules, used, mapped) in [of_netstack, of_mapping, of_rule] {
        rules.insert(0, from_inside(to_link(RANGE)));
        let mut net = Net::new(rules);
        net.router.used.extend(used);
        if let Some(port) = mapped {
            assert_eq!(seen(&net.out(&udp(("10.0.0.6", port), PEER, b"a")).unwrap()).1, port);
        }
        let port = seen(&net.out(&udp(server, peer, b"a")).unwrap()).1;
        assert!(port != 80 && port != 20_100 && (20_000..30_000).contains(&port));
    }
    // Nor are those that it has for a peer given to another for him.
    let mut net = Net::new(vec![from_inside(to_link(RANGE)), sip(20_100)]);
    assert_eq!(seen(&net.out(&udp(server, peer, b"a")).unwrap()).1, 20_100);
    assert_ne!(seen(&net.out(&udp(("10.0.0.6", 20_100), peer, b"a")).unwrap()).1, 20_100);
    // Of all ports, one that the netstack may choose for its own.
    let all = redirect(FilterPorts::Any, server.0, 1, false);
    let NatAction::Redirect(to) = all.action else { unreachable!() };
    let all = NatRule { action: NatAction::Redirect(NatRedirect { port: None, ..to }), ..all };
    let mut net = Net::new(vec![from_inside(to_link(RANGE)), all]);
    net.router.chooses_from = Some(Port(32_768));
    assert!(seen(&net.out(&udp((server.0, 40_000), peer, b"a")).unwrap()).1 < 30_000);
    assert_eq!(seen(&net.out(&udp((server.0, 4000), peer, b"a")).unwrap()).1, 4000);
}

/// What the netstack itself has asked for comes back to it, though all that comes to its address is for somebody inside.
#[test]
fn a_rule_for_all_that_comes_leaves_the_netstack_its_own_conversations() {
    let exposed = |to_port| NatRule {
        protocol: FilterProtocol::Any,
        action: NatAction::Redirect(NatRedirect {
            address: ip("10.0.0.9"),
            second: None,
            port: to_port,
            is_range: false,
        }),
        ..redirect(FilterPorts::Any, "10.0.0.9", 0, false)
    };
    let alias = NatTarget::OfLink;
    let one = NatEnd { prefix: "10.0.0.9/32".parse().ok(), ..NatEnd::default() };
    let bimap = NatRule { from: one, ..NatRule::new(WAN, NatAction::Bimap(alias)) };
    for rule in [exposed(None), exposed(Some(Port(7))), bimap] {
        let mut net = Net::new(vec![rule]);
        let answers = [
            tcp(PEER, (OUTSIDE, 40_000), SYN.with(ACK), b""),
            udp(PEER, (OUTSIDE, 40_000), b"answer"),
            echo(PEER.0, OUTSIDE, true, 7),
        ];
        let tuple = |protocol, ports| Tuple { src: ip(PEER.0), dst: ip(OUTSIDE), ports, protocol };
        let both = [PEER.1, 40_000];
        // Somebody sends in the peer's name before.
        for answer in &answers {
            let came = net.back(answer).unwrap();
            assert_eq!(Ipv4View::parse(&came).unwrap().dst(), ip("10.0.0.9"), "{rule:?}");
        }
        net.router.begun = vec![
            tuple(IpProtocol::TCP, both),
            tuple(IpProtocol::UDP, both),
            tuple(IpProtocol::ICMPV4, [0, 7]),
        ];
        for answer in &answers {
            assert_eq!(net.back(answer), Ok(answer.clone()), "{rule:?}");
            // By the other link as well.
            assert_eq!(net.forward(LAN, WAN, answer), Ok(answer.clone()), "{rule:?}");
        }
        let begins = net.back(&tcp(PEER, (OUTSIDE, 40_001), SYN, b"")).unwrap();
        assert_eq!(ends(&begins).1.0, ip("10.0.0.9"), "{rule:?}");
        // Nor does who is inside get the names of such a conversation.
        let asked = udp(("10.0.0.9", 40_000), PEER, b"mine");
        match rule.action {
            NatAction::Bimap(_) => assert_eq!(net.out(&asked), ended(DropReason::NatPorts)),
            _ => assert!(net.out(&asked).is_ok()),
        }
    }
}

#[test]
fn two_servers_take_turns() {
    let mut rule = redirect(FilterPorts::Equal(Port(80)), "10.0.0.9", 80, false);
    let both =
        NatRedirect { address: ip("10.0.0.9"), second: Some(ip("10.0.0.10")), port: None, is_range: false };
    rule.action = NatAction::Redirect(both);
    let mut net = Net::new(vec![rule]);
    let asked = (1..5).map(|port| net.back(&tcp(("198.51.100.7", port), (OUTSIDE, 80), SYN, b"")).unwrap());
    let servers: Vec<_> = asked.map(|packet| ends(&packet).1.0.octets()[3]).collect();
    assert_eq!(servers, [9, 10, 9, 10]);
}

#[test]
fn bimap_is_one_for_one_both_ways() {
    let target = NatTarget::Prefix("203.0.113.0/24".parse().unwrap());
    let mut net = Net::new(vec![from_inside(NatAction::Bimap(target))]);
    let left = net.out(&udp(HOST, PEER, b"a")).unwrap();
    assert_eq!(seen(&left), (ip("203.0.113.5"), 5000));
    let came = net.back(&tcp(PEER, ("203.0.113.77", 22), SYN, b"")).unwrap();
    assert_eq!(ends(&came).1, (ip("10.0.0.77"), 22));
    let answer = net.out(&tcp(("10.0.0.77", 22), PEER, SYN.with(ACK), b"")).unwrap();
    assert_eq!(seen(&answer), (ip("203.0.113.77"), 22));
}

#[test]
fn two_inside_meet_by_their_names_outside() {
    let web = redirect(FilterPorts::Equal(Port(80)), "10.0.0.9", 8080, false);
    let mut net = Net::new(vec![from_inside(to_link(RANGE)), web]);
    let (a, b) = (("10.0.0.5", 5000), ("10.0.0.6", 6000));
    let a_out = seen(&net.out(&udp(a, PEER, b"")).unwrap()).1;
    let b_out = seen(&net.out(&udp(b, PEER, b"")).unwrap()).1;
    let to_b = net.within(&udp(a, (OUTSIDE, b_out), b"x")).unwrap();
    assert_eq!(ends(&to_b), ((ip(OUTSIDE), a_out), (ip(b.0), b.1)), "RFC 4787 REQ-9: in its name outside");
    let to_a = net.within(&udp(b, (OUTSIDE, a_out), b"y")).unwrap();
    assert_eq!(ends(&to_a), ((ip(OUTSIDE), b_out), (ip(a.0), a.1)));
    // RFC 5508 REQ-7: the error about it finds back.
    let error = net.within(&unreachable(b.0, &to_b)).unwrap();
    assert_eq!(ends(quote(&error)), ((ip(a.0), a.1), (ip(OUTSIDE), b_out)));
    let view = Ipv4View::parse(&error).unwrap();
    assert_eq!((view.src(), view.dst()), (ip(OUTSIDE), ip(a.0)));
    // The server's name outside works from inside, too.
    let asked = net.within(&tcp(a, (OUTSIDE, 80), SYN, b"")).unwrap();
    assert_eq!(ends(&asked).1, (ip("10.0.0.9"), 8080));
    let from = (OUTSIDE, seen(&asked).1);
    let answered = net.within(&tcp(("10.0.0.9", 8080), from, SYN.with(ACK), b"")).unwrap();
    assert_eq!(ends(&answered), ((ip(OUTSIDE), 80), (ip(a.0), a.1)));
}

/// A server inside and two others who know it by its name outside.
fn with_server(limits: NatLimits) -> Net {
    let web = redirect(FilterPorts::Equal(Port(80)), "10.0.0.9", 8080, false);
    Net::with(vec![from_inside(to_link(RANGE)), web], limits)
}

/// Between the same two inside, whatever has ended of what was there before.
#[test]
fn two_inside_meet_again() {
    let mut net = with_server(NatLimits::default());
    let server = ("10.0.0.9", 8080);
    let ask = |net: &mut Net, packet: Vec<u8>| {
        let asked = ends(&net.within(&packet).unwrap());
        assert_eq!((asked.0.0, asked.1), (ip(OUTSIDE), (ip(server.0), server.1)));
        asked.0.1
    };
    const FIN: TcpFlags = TcpFlags::FIN.with(ACK);
    for nth in 0..3 {
        let from = (OUTSIDE, ask(&mut net, tcp(HOST, (OUTSIDE, 80), SYN, b"")));
        for (is_forth, flags) in [(false, SYN.with(ACK)), (true, ACK), (true, FIN), (false, FIN), (true, ACK)]
        {
            match is_forth {
                true => assert_eq!(ask(&mut net, tcp(HOST, (OUTSIDE, 80), flags, b"")), from.1),
                false => {
                    let back = ends(&net.within(&tcp(server, from, flags, b"")).unwrap());
                    assert_eq!(back, ((ip(OUTSIDE), 80), (ip(HOST.0), HOST.1)), "{nth}");
                }
            }
        }
    }
    // Time is up, and nobody has looked.
    for _ in 0..3 {
        ask(&mut net, udp(HOST, (OUTSIDE, 80), b"x"));
        net.wait(301);
    }
    // Other names outside count from here on.
    for first in [30_000, 40_000, 20_000] {
        let mut rules = vec![from_inside(to_link(NatPorts::Range(Port(first), Port(first + 99))))];
        rules.push(redirect(FilterPorts::Equal(Port(80)), "10.0.0.9", 8080, false));
        net.nat.set(NatConfig { rules, limits: NatLimits::default() });
        for _ in 0..2 {
            let port = ask(&mut net, udp(HOST, (OUTSIDE, 80), b"x"));
            assert!((first..first + 100).contains(&port), "{port}");
        }
    }
}

/// Where there is room for one of the two sessions alone, nothing goes half the way.
#[test]
fn two_inside_do_not_meet_by_half() {
    let question = udp(HOST, (OUTSIDE, 80), b"x");
    let mut net = with_server(NatLimits { sessions: 3, ..NatLimits::default() });
    for port in [1, 2] {
        let from = ("10.0.0.6", port);
        let seen = seen(&net.out(&udp(from, PEER, b"")).unwrap());
        net.back(&udp(PEER, (OUTSIDE, seen.1), b"")).unwrap();
        net.out(&udp(from, PEER, b"")).unwrap();
    }
    for _ in 0..3 {
        assert_eq!(net.within(&question), ended(DropReason::NatFull));
    }
    // One gives way to others, and comes back.
    let mut net = with_server(NatLimits { sessions: 3, ..NatLimits::default() });
    for port in 1..20 {
        assert_eq!(seen(&net.within(&question).unwrap()).0, ip(OUTSIDE), "{port}");
        (0..port % 4).for_each(|nth| assert!(net.out(&udp(("10.0.0.6", 4 * port + nth), PEER, b"")).is_ok()));
        assert_eq!(net.nat.counts().sessions.min(4), net.nat.rows(0, 9).0.len() as u64);
    }
    net.nat.flush();
    assert_eq!((net.nat.counts().mappings, net.nat.allocated_bytes()), (0, 0));
    // Who has no names outside goes in its own, and pushes nobody out.
    let stranger = udp(("172.16.0.1", 7), (OUTSIDE, 80), b"x");
    (0..9).for_each(|_| assert_eq!(seen(&net.within(&stranger).unwrap()).0, ip("172.16.0.1")));
    (0..2).for_each(|nth| assert!(net.out(&udp(("10.0.0.6", nth), PEER, b"")).is_ok()));
    let evicted = net.nat.counts().evicted;
    (0..9).for_each(|_| assert_eq!(seen(&net.within(&stranger).unwrap()).0, ip("172.16.0.1")));
    assert_eq!((net.nat.counts().sessions, net.nat.counts().evicted), (3, evicted));
}

/// One server behind two names, for a client that uses a port again.
#[test]
fn a_session_that_is_over_keeps_no_names() {
    let [web, other] = [80, 81].map(|port| redirect(FilterPorts::Equal(Port(port)), "10.0.0.9", 8080, false));
    let mut net = Net::new(vec![web, other]);
    let (client, server) = (("198.51.100.7", 1234), ("10.0.0.9", 8080));
    const FIN: TcpFlags = TcpFlags::FIN.with(ACK);
    for nth in 0..4 {
        let name = (OUTSIDE, 80 + nth % 2);
        let other = (OUTSIDE, 81 - nth % 2);
        for (is_forth, flags) in
            [(true, SYN), (false, SYN.with(ACK)), (true, ACK), (true, FIN), (false, FIN), (true, ACK)]
        {
            match is_forth {
                true => assert!(net.back(&tcp(client, name, flags, b"")).is_ok(), "{nth} {flags:?}"),
                false => assert_eq!(
                    seen(&net.out(&tcp(server, client, flags, b"")).unwrap()),
                    (ip(name.0), name.1),
                    "{nth} {flags:?}"
                ),
            }
            if flags == ACK {
                let early = tcp(client, other, ACK, b"");
                assert_eq!(net.back(&early), ended(DropReason::NatPorts), "it asks for nothing");
            }
        }
    }
    // Time is up, and nobody has looked.
    for nth in 0..3 {
        assert!(net.back(&udp(client, (OUTSIDE, 80 + nth % 2), b"")).is_ok(), "{nth}");
        net.wait(301);
    }
    assert_eq!(net.nat.flush(), 2);
}

#[test]
fn queries_are_told_apart_by_their_identifiers() {
    let mut net = Net::new(vec![from_inside(to_link(NatPorts::Same))]);
    let one = net.out(&echo("10.0.0.5", PEER.0, false, 7)).unwrap();
    let two = net.out(&echo("10.0.0.6", PEER.0, false, 7)).unwrap();
    assert!(seen(&one).1 == 7 && seen(&two).1 != 7);
    let answer = net.back(&echo(PEER.0, OUTSIDE, true, seen(&two).1)).unwrap();
    assert_eq!(ends(&answer).1, (ip("10.0.0.6"), 7));
    let own = echo(PEER.0, OUTSIDE, true, 999);
    assert_eq!(net.back(&own), Ok(own), "the netstack's own");
}

#[test]
fn errors_find_back_to_who_has_sent_what_they_quote() {
    let web = redirect(FilterPorts::Equal(Port(80)), "10.0.0.9", 8080, false);
    let mut net = Net::new(vec![from_inside(to_link(RANGE)), web]);
    let left = net.out(&udp(HOST, PEER, b"long enough")).unwrap();
    // From the peer, and from somebody on the way.
    for from in [PEER.0, "203.0.113.250"] {
        let error = net.back(&unreachable(from, &left)).unwrap();
        assert_eq!(ends(quote(&error)), ((ip(HOST.0), HOST.1), (ip(PEER.0), PEER.1)));
        let view = Ipv4View::parse(&error).unwrap();
        assert_eq!((view.src(), view.dst()), (ip(from), ip(HOST.0)));
        assert_eq!(quote(&error)[..8], udp(HOST, PEER, b"long enough")[..8], "its header is as it was");
    }
    // Of a query.
    let ping = net.out(&echo(HOST.0, PEER.0, false, 7)).unwrap();
    assert_eq!(ends(quote(&net.back(&unreachable(PEER.0, &ping)).unwrap())).0, (ip(HOST.0), 7));
    // From inside about what came in, from the server and from a router before it.
    let asked = net.back(&udp(PEER, (OUTSIDE, 80), b"question")).unwrap();
    for from in ["10.0.0.9", "10.0.0.200"] {
        let error = net.out(&unreachable(from, &asked)).unwrap();
        assert_eq!(ends(quote(&error)), ((ip(PEER.0), PEER.1), (ip(OUTSIDE), 80)));
        assert_eq!(Ipv4View::parse(&error).unwrap().src(), ip(OUTSIDE), "RFC 5508 REQ-5");
    }
    assert_eq!(net.nat.counts().errors, 5);
}

/// What a netstack tells of a packet behind its translation is about the packet as it came.
#[test]
fn what_has_left_gets_back_the_ends_with_which_it_came() {
    let web = redirect(FilterPorts::Equal(Port(80)), "10.0.0.9", 8080, false);
    let mut net = Net::new(vec![from_inside(to_link(RANGE)), web]);
    let asked = net.back(&udp(PEER, (OUTSIDE, 80), b"question")).unwrap();
    for came in [udp(HOST, PEER, b"long enough"), echo(HOST.0, PEER.0, false, 7)] {
        let left = net.out(&came).unwrap();
        assert_ne!(left, came);
        // All of it, and what an error shows at the least.
        for shown in [left.len(), 28] {
            let mut packet = left[..shown].to_vec();
            assert!(net.nat.restore(&mut packet, net.now));
            assert_eq!(packet, came[..shown]);
        }
    }
    let came = udp(("10.0.0.9", 8080), PEER, b"answer");
    let mut left = net.out(&came).unwrap();
    assert_eq!(seen(&left), (ip(OUTSIDE), 80));
    assert!(net.nat.restore(&mut left, net.now) && left == came, "an answer's sender");
    // What has come in, what was not translated, and what is over stay as they are.
    let own = udp((OUTSIDE, 9), PEER, b"own");
    for mut packet in [asked, own, came] {
        let before = packet.clone();
        assert!(!net.nat.restore(&mut packet, net.now) && packet == before);
    }
    let mut left = net.out(&udp(HOST, PEER, b"long enough")).unwrap();
    net.wait(301);
    assert!(!net.nat.restore(&mut left, net.now));
}

/// On one arm a host's packets leave by the link that they came by, and a shorter way would go round the translation.
#[test]
fn redirects_of_what_is_translated_do_not_leave() {
    let mut net = Net::new(vec![
        from_inside(to_link(RANGE)),
        redirect(FilterPorts::Equal(Port(80)), "10.0.0.9", 8080, false),
    ]);
    let about = |packet: &[u8], to: &str| {
        let message = Icmpv4Repr::Redirect { code: 1, gateway: ip("192.0.2.9"), quoted: packet };
        let mut body = vec![0; message.emitted_len()];
        message.emit(&mut body);
        common::packet(OUTSIDE, to, IpProtocol::ICMPV4, &body)
    };
    let mut leaves = |packet: &[u8], to| net.pass(Direction::Out, WAN, &mut about(packet, to));
    let translated = udp(HOST, PEER, b"long enough");
    let ended = Outcome::Ended(DropReason::NatRedirect);
    assert_eq!(leaves(&translated, HOST.0), ended, "it is told before its packet leaves");
    let untranslated = udp(("172.16.0.1", 9), PEER, b"long enough");
    assert_eq!(leaves(&untranslated, "172.16.0.1"), Outcome::Untouched);
    assert_eq!(leaves(&udp((OUTSIDE, 9), PEER, b"long enough"), "192.0.2.7"), Outcome::Untouched);
    let asked = net.back(&udp(PEER, (OUTSIDE, 80), b"question")).unwrap();
    assert_eq!(
        net.pass(Direction::Out, WAN, &mut about(&asked, PEER.0)),
        ended,
        "it has another destination"
    );
    assert_eq!(net.nat.counts().ended, 2);
}

#[test]
fn damaged_and_foreign_errors_do_not_leave() {
    let mut net = Net::new(vec![from_inside(to_link(RANGE))]);
    let left = net.out(&udp(HOST, PEER, b"x")).unwrap();
    let mut error = unreachable(PEER.0, &left);
    error[40] ^= 1;
    let mut came = error.clone();
    assert_eq!(net.pass(Direction::In, WAN, &mut came), Outcome::Untouched, "IP says what is wrong with it");
    assert_eq!(came, error);
    let about_nothing = unreachable(HOST.0, &udp(PEER, (HOST.0, 1), b""));
    assert_eq!(net.out(&about_nothing), ended(DropReason::NatBadIcmp));
}

#[test]
fn a_syn_offers_no_more_than_its_rule_allows() {
    let mut net =
        Net::new(vec![NatRule { mss: core::num::NonZeroU16::new(1400), ..from_inside(to_link(RANGE)) }]);
    let offer = |packet: &[u8]| firelane_wire::TcpView::parse(&packet[20..]).unwrap().options().mss;
    let left = net.out(&tcp(HOST, ("198.51.100.7", 80), SYN, b"")).unwrap();
    let came = net.back(&tcp(("198.51.100.7", 80), (OUTSIDE, seen(&left).1), SYN.with(ACK), b"")).unwrap();
    assert_eq!((offer(&left), offer(&came)), (Some(1400), Some(1400)));
}

#[test]
fn what_a_rule_made_stays_as_long_as_the_rule() {
    let (map, web) =
        (from_inside(to_link(RANGE)), redirect(FilterPorts::Equal(Port(80)), "10.0.0.9", 8080, false));
    let mut net = Net::new(vec![map, web]);
    let before = seen(&net.out(&udp(HOST, PEER, b"a")).unwrap());
    net.back(&tcp(PEER, (OUTSIDE, 80), SYN, b"")).unwrap();
    let other = redirect(FilterPorts::Equal(Port(81)), "10.0.0.9", 8080, false);
    net.nat.set(NatConfig { rules: vec![other, map], limits: NatLimits::default() });
    let counts = net.nat.counts();
    assert_eq!((counts.sessions, counts.flushed, counts.rules[1].hits, counts.rules[1].active), (1, 1, 1, 1));
    assert_eq!(seen(&net.out(&udp(HOST, ("198.51.100.9", 1), b"a")).unwrap()), before, "the same mapping");
    assert_eq!(net.nat.rows(0, 9).0.iter().map(|row| row.rule).collect::<Vec<_>>(), [Some(1), Some(1)]);
    assert_eq!((net.nat.flush(), net.nat.counts().mappings, net.nat.allocated_bytes()), (2, 0, 0));
}
