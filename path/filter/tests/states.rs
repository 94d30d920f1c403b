//! What belongs to what was let through.

mod common;

use common::*;
use firelane_filter::{Filter, Packet, RuleList, Verdict};
use firelane_units::{Direction, FilterLog, Instant, KeepState, LinkId};
use firelane_wire::{Icmpv4Repr, Icmpv4Unreachable, IpProtocol, TcpFlags};
use proptest::prelude::*;
use std::num::NonZeroU32;
use std::sync::Arc;

const CLIENT: &str = "10.0.0.1:4000";
const SERVER: &str = "192.0.2.7:80";
const SYN_ACK: TcpFlags = TcpFlags::SYN.with(TcpFlags::ACK);

/// Everything ends but what goes out, and what belongs to it.
fn outward() -> Filter {
    filter(vec![rule(IN, BLOCK), rule(OUT, BLOCK), rule(OUT, PASS).keep()])
}

#[test]
fn answers_pass_and_nothing_that_was_not_asked_for() {
    let mut filter = outward();
    assert_eq!(ask(&mut filter, IN, &udp("192.0.2.7:53", "10.0.0.1:4000")), BLOCKED);
    assert_eq!(ask(&mut filter, OUT, &udp("10.0.0.1:4000", "192.0.2.7:53")), Verdict::Pass);
    assert_eq!(ask(&mut filter, IN, &udp("192.0.2.7:53", "10.0.0.1:4000")), Verdict::Pass);
    for other in [("192.0.2.8:53", "10.0.0.1:4000"), ("192.0.2.7:54", "10.0.0.1:4000")] {
        assert_eq!(ask(&mut filter, IN, &udp(other.0, other.1)), BLOCKED);
    }
    assert_eq!(ask(&mut filter, IN, &tcp("192.0.2.7:53", "10.0.0.1:4000", SYN_ACK, 0, 1, 0)), BLOCKED);
    let counts = filter.counts();
    assert_eq!((counts.states.active, counts.states.hits, counts.rules[2].packets), (1, 1, 2));
}

#[test]
fn an_answer_comes_by_the_link_that_its_question_left_by() {
    let mut filter = outward();
    ask_at(&mut filter, OUT, LINK, &udp(CLIENT, SERVER), 0);
    assert_eq!(ask_at(&mut filter, IN, LINK, &udp(SERVER, CLIENT), 0).verdict, Verdict::Pass);
    assert_eq!(ask_at(&mut filter, IN, LinkId(2), &udp(SERVER, CLIENT), 0).verdict, BLOCKED);
}

#[test]
fn a_connection_is_followed_to_its_end() {
    let mut filter = outward();
    let steps: [(Direction, Vec<u8>, bool); 9] = [
        (OUT, syn(CLIENT, SERVER), true),
        (IN, tcp(SERVER, CLIENT, SYN_ACK, 499, 100, 0), true),
        (OUT, tcp(CLIENT, SERVER, TcpFlags::ACK, 100, 500, 50), true),
        (IN, tcp(SERVER, CLIENT, TcpFlags::ACK, 500, 150, 900), true),
        // Blind: outside the window.
        (IN, tcp(SERVER, CLIENT, TcpFlags::RST, 90_000, 0, 0), false),
        (IN, tcp(SERVER, CLIENT, TcpFlags::ACK, 900_000, 150, 10), false),
        (OUT, tcp(CLIENT, SERVER, TcpFlags::ACK.with(TcpFlags::FIN), 150, 1400, 0), true),
        (IN, tcp(SERVER, CLIENT, TcpFlags::ACK.with(TcpFlags::FIN), 1400, 151, 0), true),
        (OUT, tcp(CLIENT, SERVER, TcpFlags::ACK, 151, 1401, 0), true),
    ];
    for (nth, (direction, packet, passes)) in steps.into_iter().enumerate() {
        let verdict = ask(&mut filter, direction, &packet);
        assert_eq!(verdict == Verdict::Pass, passes, "{nth}: {verdict:?}");
    }
    assert_eq!(filter.counts().states.out_of_window, 2);
    // The same names again, after the end: a state of their own.
    assert_eq!(ask(&mut filter, IN, &syn(SERVER, CLIENT)), BLOCKED);
    assert_eq!(ask(&mut filter, OUT, &tcp(CLIENT, SERVER, TcpFlags::SYN, 70_000, 0, 0)), Verdict::Pass);
    assert_eq!(ask(&mut filter, IN, &tcp(SERVER, CLIENT, SYN_ACK, 3, 70_001, 0)), Verdict::Pass);
}

#[test]
fn what_is_outside_the_window_begins_no_state_in_its_place() {
    let mut filter = filter(vec![rule(IN, PASS).proto(IpProtocol::TCP).keep()]);
    ask(&mut filter, IN, &syn(CLIENT, SERVER));
    let stray = tcp(CLIENT, SERVER, TcpFlags::ACK, 1 << 30, 1 << 29, 10);
    assert_eq!(ask(&mut filter, IN, &stray), Verdict::OutOfWindow);
    assert_eq!(filter.counts().states.added, 1);
}

/// What came before was let in without a state, or before there were rules.
#[test]
fn a_connection_whose_first_segment_seen_is_an_answer_goes_on() {
    let mut filter = filter(vec![rule(OUT, PASS).keep()]);
    let steps = [
        (IN, syn(CLIENT, SERVER)),
        (OUT, tcp(SERVER, CLIENT, SYN_ACK, 499, 100, 0)),
        (IN, tcp(CLIENT, SERVER, TcpFlags::ACK, 100, 500, 50)),
        (OUT, tcp(SERVER, CLIENT, TcpFlags::ACK, 500, 150, 900)),
    ];
    for (nth, (direction, packet)) in steps.into_iter().enumerate() {
        assert_eq!(ask(&mut filter, direction, &packet), Verdict::Pass, "{nth}");
    }
    assert_eq!(filter.counts().states.out_of_window, 0);
}

/// RFC 9293 section 3.5.1: whoever has forgotten a connection asks for another with the same names, is told of the old one, resets that,
/// and asks again.
#[test]
fn who_has_forgotten_a_connection_may_begin_anew() {
    let anew = 1 << 30;
    let ask_anew = tcp(CLIENT, SERVER, TcpFlags::SYN, anew, 0, 0);
    let steps = [
        syn(CLIENT, SERVER),
        tcp(SERVER, CLIENT, SYN_ACK, 499, 100, 0),
        tcp(CLIENT, SERVER, TcpFlags::ACK, 100, 500, 50),
        tcp(SERVER, CLIENT, TcpFlags::ACK, 500, 150, 900),
        ask_anew.clone(),
        // It was not touched by that.
        tcp(SERVER, CLIENT, TcpFlags::ACK, 1400, 150, 0),
        tcp(CLIENT, SERVER, TcpFlags::RST, 150, 0, 0),
        ask_anew.clone(),
        tcp(SERVER, CLIENT, SYN_ACK, 77, anew + 1, 0),
        tcp(CLIENT, SERVER, TcpFlags::ACK, anew + 1, 78, 50),
    ];
    let is_forth = |nth: usize| [0, 2, 4, 6, 7, 9].contains(&nth);
    // At the server.
    let mut near = filter(vec![rule(IN, PASS).keep(), rule(OUT, BLOCK)]);
    for (nth, packet) in steps.iter().enumerate() {
        let direction = if is_forth(nth) { IN } else { OUT };
        assert_eq!(ask(&mut near, direction, packet), Verdict::Pass, "{nth}");
    }
    assert_eq!(near.counts().states.added, 2);
    // In a router: what a state lets out asks no rule there, as before.
    let mut between = filter(vec![
        rule(IN, BLOCK),
        rule(OUT, BLOCK),
        rule(IN, PASS).to_port(80).proto(IpProtocol::TCP).keep(),
    ]);
    for (nth, packet) in steps.iter().enumerate() {
        let links = if is_forth(nth) { [LINK, LinkId(2)] } else { [LinkId(2), LINK] };
        for (direction, link) in [IN, OUT].into_iter().zip(links) {
            assert_eq!(
                ask_at(&mut between, direction, link, packet, 0).verdict,
                Verdict::Pass,
                "{nth} {direction:?}"
            );
        }
    }
    assert_eq!(between.counts().states.added, 2);
    // Whom no rule lets in begins none, and no other segment does.
    let (mut outward, mut inward) = (outward(), filter(vec![rule(IN, PASS).keep()]));
    for (nth, packet) in steps[..4].iter().enumerate() {
        let directions = if is_forth(nth) { [OUT, IN] } else { [IN, OUT] };
        assert_eq!(ask(&mut outward, directions[0], packet), Verdict::Pass);
        assert_eq!(ask(&mut inward, directions[1], packet), Verdict::Pass);
    }
    let backward = tcp(SERVER, CLIENT, TcpFlags::SYN, anew, 0, 0);
    assert_eq!(ask(&mut outward, IN, &backward), BLOCKED);
    let stray = tcp(CLIENT, SERVER, SYN_ACK, anew, 1 << 29, 0);
    assert_eq!(ask(&mut inward, IN, &stray), Verdict::OutOfWindow);
}

/// The same where the state of the old connection has gone, too, as when the filter is new: nobody knows of that but its other end.
#[test]
fn who_has_forgotten_a_connection_that_has_no_state_may_begin_anew() {
    let anew = 1 << 30;
    let again = tcp(CLIENT, SERVER, TcpFlags::SYN, anew, 0, 0);
    let steps = [
        (true, again.clone(), true),
        // The old connection's text is nothing to who has forgotten it.
        (false, tcp(SERVER, CLIENT, TcpFlags::ACK, 1400, 150, 100), false),
        (true, tcp(CLIENT, SERVER, TcpFlags::RST, 150, 0, 0), false),
        (false, tcp(SERVER, CLIENT, TcpFlags::ACK, 1400, 150, 0), true),
        (true, tcp(CLIENT, SERVER, TcpFlags::RST, 151, 0, 0), false),
        (true, tcp(CLIENT, SERVER, TcpFlags::RST, 150, 0, 0), true),
        (true, again, true),
        (false, tcp(SERVER, CLIENT, SYN_ACK, 77, anew + 1, 0), true),
        (false, tcp(SERVER, CLIENT, TcpFlags::ACK, 1400, 150, 0), false),
        (true, tcp(CLIENT, SERVER, TcpFlags::RST, 150, 0, 0), false),
        (true, tcp(CLIENT, SERVER, TcpFlags::ACK, anew + 1, 78, 50), true),
        (false, tcp(SERVER, CLIENT, TcpFlags::ACK, 78, anew + 51, 900), true),
    ];
    for [forth, back] in [[IN, OUT], [OUT, IN]] {
        let mut filter = filter(vec![rule(IN, BLOCK), rule(OUT, BLOCK), rule(forth, PASS).keep()]);
        for (nth, (is_forth, packet, passes)) in steps.iter().enumerate() {
            let verdict = ask(&mut filter, if *is_forth { forth } else { back }, packet);
            assert_eq!(verdict == Verdict::Pass, *passes, "{nth} {forth:?}: {verdict:?}");
        }
        let states = filter.counts().states;
        assert_eq!((states.added, states.out_of_window), (1, 5));
    }
}

/// Whoever has given up a connection that nobody answered asks for another one with the same names, as a client with a fixed port does.
#[test]
fn who_was_not_answered_may_begin_anew() {
    let anew = 1 << 30;
    let again = tcp(CLIENT, SERVER, TcpFlags::SYN, anew, 0, 0);
    let steps = [
        syn(CLIENT, SERVER),
        again.clone(),
        tcp(SERVER, CLIENT, SYN_ACK, 499, anew + 1, 0),
        tcp(CLIENT, SERVER, TcpFlags::ACK, anew + 1, 500, 50),
        tcp(SERVER, CLIENT, TcpFlags::ACK, 500, anew + 51, 900),
    ];
    let is_forth = |nth: usize| [0, 1, 3].contains(&nth);
    let kept = |direction, flags| {
        let keeps = rule(direction, PASS).to_port(80).proto(IpProtocol::TCP).keep();
        keeps.with(|it| it.matching.flags = flags)
    };
    let syn_alone = Some(firelane_units::TcpFlagsMatch { set: 2, mask: 0x17 });
    for flags in [None, syn_alone] {
        // At the server, at the client, and between the two.
        for (directions, links) in
            [(vec![IN], vec![LINK]), (vec![OUT], vec![LINK]), (vec![IN, OUT], vec![LINK, LinkId(2)])]
        {
            let rules = vec![rule(IN, BLOCK), rule(OUT, BLOCK), kept(directions[0], flags)];
            let mut filter = filter(rules);
            for (nth, packet) in steps.iter().enumerate() {
                let mut ways: Vec<_> = directions.iter().copied().zip(links.iter().copied()).collect();
                if !is_forth(nth) {
                    ways.reverse();
                    ways.iter_mut()
                        .for_each(|(direction, _)| *direction = if *direction == IN { OUT } else { IN });
                }
                for (direction, link) in ways {
                    let verdict = ask_at(&mut filter, direction, link, packet, 0).verdict;
                    assert_eq!(verdict, Verdict::Pass, "{nth} {direction:?} of {directions:?}");
                }
            }
            // Who speaks in its name moves nothing once both are there.
            let directions = if directions == [OUT] { [OUT, IN] } else { [IN, OUT] };
            let last = *links.last().unwrap();
            ask_at(&mut filter, directions[0], LINK, &syn(CLIENT, SERVER), 0);
            let more = tcp(SERVER, CLIENT, TcpFlags::ACK, 1400, anew + 51, 50);
            let back = if links.len() == 2 { IN } else { directions[1] };
            assert_eq!(ask_at(&mut filter, back, last, &more, 0).verdict, Verdict::Pass);
        }
    }
    // The answer to what it has given up is nobody's.
    let mut filter = outward();
    steps[..2].iter().for_each(|packet| assert_eq!(ask(&mut filter, OUT, packet), Verdict::Pass));
    assert_eq!(ask(&mut filter, IN, &tcp(SERVER, CLIENT, SYN_ACK, 499, 100, 0)), BLOCKED);
    assert_eq!(filter.counts().states.added, 1, "a limit counts it once");
}

/// Who is at another link and does not know the numbers of a connection breaks nothing of it, and one that moves goes on.
#[test]
fn what_is_established_is_not_replaced_from_elsewhere() {
    let elsewhere = LinkId(2);
    let stray = |flags, seq, ack| tcp(CLIENT, SERVER, flags, seq, ack, 0);
    let open = || {
        let mut filter = filter(vec![rule(IN, PASS).keep(), rule(OUT, BLOCK)]);
        ask(&mut filter, IN, &syn(CLIENT, SERVER));
        ask(&mut filter, OUT, &tcp(SERVER, CLIENT, SYN_ACK, 499, 100, 0));
        ask(&mut filter, IN, &stray(TcpFlags::ACK, 100, 500));
        filter
    };
    let mut filter = open();
    let answer = |filter: &mut Filter| ask(filter, OUT, &tcp(SERVER, CLIENT, TcpFlags::ACK, 500, 100, 100));
    let cases = [
        // Whoever is asked says that there is a connection (RFC 9293 section 3.5.1).
        (stray(TcpFlags::SYN, 1 << 30, 0), Verdict::Pass),
        (stray(TcpFlags::SYN, 120, 0), Verdict::Pass),
        (stray(SYN_ACK, 1 << 30, 7), Verdict::OutOfWindow),
        (stray(TcpFlags::ACK, 1 << 30, 1 << 29), Verdict::OutOfWindow),
        (stray(TcpFlags::RST, 1 << 30, 0), Verdict::OutOfWindow),
    ];
    for (packet, verdict) in &cases {
        assert_eq!(ask_at(&mut filter, IN, elsewhere, packet, 0).verdict, *verdict);
        assert_eq!(answer(&mut filter), Verdict::Pass);
    }
    assert_eq!(filter.counts().states.added, 1);
    // It has moved.
    assert_eq!(ask_at(&mut filter, IN, elsewhere, &stray(TcpFlags::ACK, 100, 600), 0).verdict, Verdict::Pass);
    assert_eq!(answer(&mut filter), Verdict::Pass);
    assert_eq!(filter.counts().states.added, 2);
    // It has moved and forgotten.
    let mut filter = open();
    for (packet, _) in [&cases[0], &(stray(TcpFlags::RST, 100, 0), Verdict::Pass), &cases[0]] {
        assert_eq!(ask_at(&mut filter, IN, elsewhere, packet, 0).verdict, Verdict::Pass);
    }
    assert_eq!(ask(&mut filter, OUT, &tcp(SERVER, CLIENT, SYN_ACK, 7, (1 << 30) + 1, 0)), Verdict::Pass);
}

/// What rules end says nothing of a connection that goes by another link, whatever numbers it has.
#[test]
fn what_rules_block_from_elsewhere_changes_no_state() {
    let kept = rule(IN, PASS).proto(IpProtocol::TCP).keep().with(|it| {
        it.link = Some(LINK);
        it.matching.flags = Some(firelane_units::TcpFlagsMatch { set: 2, mask: 0x17 });
    });
    let strays = [
        tcp(CLIENT, SERVER, TcpFlags::RST, 100, 0, 0),
        tcp(CLIENT, SERVER, TcpFlags::ACK.with(TcpFlags::FIN), 100, 500, 0),
        tcp(CLIENT, SERVER, TcpFlags::ACK, 100, 500 + 60_000, 900),
    ];
    for stray in strays {
        let mut filter = filter(vec![rule(IN, BLOCK), rule(OUT, BLOCK), kept.clone()]);
        ask(&mut filter, IN, &syn(CLIENT, SERVER));
        ask(&mut filter, OUT, &tcp(SERVER, CLIENT, SYN_ACK, 499, 100, 0));
        ask(&mut filter, IN, &tcp(CLIENT, SERVER, TcpFlags::ACK, 100, 500, 0));
        assert_eq!(ask_at(&mut filter, IN, LinkId(2), &stray, 0).verdict, BLOCKED);
        let far = tcp(SERVER, CLIENT, TcpFlags::ACK, 500 + 30_000, 100, 0);
        assert_eq!(ask_at(&mut filter, OUT, LINK, &far, 0).verdict, BLOCKED, "the window is where it was");
        let text = tcp(CLIENT, SERVER, TcpFlags::ACK, 100, 500, 10);
        for secs in [1, 60, 60 + 24 * 3600] {
            assert_eq!(ask_at(&mut filter, IN, LINK, &text, secs).verdict, Verdict::Pass, "{secs}");
        }
    }
}

/// Whoever does not know the numbers of a connection does not say by which link its answers come.
#[test]
fn an_answer_comes_by_its_own_link_though_a_stray_one_was_sooner() {
    let strays = [
        tcp(SERVER, CLIENT, SYN_ACK, 7, 1 << 30, 0),
        tcp(SERVER, CLIENT, TcpFlags::ACK, 7, 1 << 30, 0),
        tcp(SERVER, CLIENT, TcpFlags::RST.with(TcpFlags::ACK), 7, 1 << 30, 0),
    ];
    for stray in strays {
        let mut filter = outward();
        ask(&mut filter, OUT, &syn(CLIENT, SERVER));
        ask_at(&mut filter, IN, LinkId(2), &stray, 0);
        assert_eq!(ask(&mut filter, IN, &tcp(SERVER, CLIENT, SYN_ACK, 499, 100, 0)), Verdict::Pass);
        let elsewhere = tcp(SERVER, CLIENT, TcpFlags::ACK, 500, 100, 0);
        assert_ne!(ask_at(&mut filter, IN, LinkId(2), &elsewhere, 0).verdict, Verdict::Pass);
    }
}

/// What is refused takes nobody's place.
#[test]
fn who_finds_no_room_ends_no_state() {
    let one = KeepState { limit: NonZeroU32::new(1), ..KeepState::default() };
    let on = |link, keep| rule(IN, PASS).with(|it| (it.link, it.keep_state) = (Some(link), Some(keep)));
    let rules = vec![rule(OUT, BLOCK), on(LINK, KeepState::default()), on(LinkId(2), one)];
    let mut filter = filter(rules);
    let question = udp(CLIENT, SERVER);
    assert_eq!(ask(&mut filter, IN, &question), Verdict::Pass);
    assert_eq!(ask_at(&mut filter, IN, LinkId(2), &udp("10.0.0.2:7", SERVER), 0).verdict, Verdict::Pass);
    assert_eq!(ask_at(&mut filter, IN, LinkId(2), &question, 0).verdict, Verdict::NoRoom);
    assert_eq!(ask(&mut filter, OUT, &udp(SERVER, CLIENT)), Verdict::Pass);
    // In the place of one of its own rule it has room.
    filter.set_rules(vec![rule(OUT, BLOCK), rule(IN, PASS).with(|it| it.keep_state = Some(one))]);
    let mine = udp("10.0.0.3:7", SERVER);
    for link in [LINK, LinkId(2)] {
        assert_eq!(ask_at(&mut filter, IN, link, &mine, 0).verdict, Verdict::Pass, "{link:?}");
    }
}

/// RFC 8200 section 4.5: what names a datagram is its source, its destination and its number; its pieces may begin with other headers.
#[test]
fn later_pieces_pass_whatever_header_their_first_begins_with() {
    let kept = rule(IN, PASS).proto(IpProtocol::UDP).to_port(53).with(|it| it.keep_frags = true);
    let mut filter = filter(vec![rule(IN, BLOCK), kept]);
    let [src, dst] = ["fd00::1", "fd00::2"].map(|text| text.parse().unwrap());
    let piece = |offset, more, part: &[u8]| {
        let mut bytes = v6_piece(src, dst, offset, more, part);
        // Destination options.
        bytes[40] = 60;
        bytes
    };
    let first = piece(0, true, &[17, 0, 1, 4, 0, 0, 0, 0, 0, 1, 0, 53, 0, 24, 0, 0]);
    assert_eq!(ask(&mut filter, IN, &first), Verdict::Pass);
    assert_eq!(ask(&mut filter, IN, &piece(16, false, &[0; 16])), Verdict::Pass);
}

#[test]
fn icmp_errors_pass_with_what_they_are_about() {
    let mut filter = outward();
    let question = udp("10.0.0.1:4000", "192.0.2.7:53");
    ask(&mut filter, OUT, &question);
    let other = udp("10.0.0.1:4001", "192.0.2.7:53");
    let router = [198, 51, 100, 1].into();
    let about = |quoted| {
        let repr = Icmpv4Repr::Unreachable { reason: Icmpv4Unreachable::Host, quoted };
        icmp(router, A, &repr)
    };
    assert_eq!(ask(&mut filter, IN, &about(&question)), Verdict::Pass);
    assert_eq!(ask(&mut filter, IN, &about(&other)), BLOCKED);
    let misled =
        icmp(router, B, &Icmpv4Repr::Unreachable { reason: Icmpv4Unreachable::Host, quoted: &question });
    assert_eq!(ask(&mut filter, IN, &misled), BLOCKED, "it tells somebody else");
    let keep = KeepState { no_icmp_err: true, ..KeepState::default() };
    let mut without =
        common::filter(vec![rule(IN, BLOCK), rule(OUT, PASS).with(|it| it.keep_state = Some(keep))]);
    ask(&mut without, OUT, &question);
    assert_eq!(ask(&mut without, IN, &about(&question)), BLOCKED);
}

#[test]
fn an_echo_is_answered_and_an_answer_asks_nothing() {
    let mut filter = outward();
    let ask_for = |ident| icmp(A, B, &Icmpv4Repr::EchoRequest { identifier: ident, sequence: 1, data: &[] });
    let answer = |ident| icmp(B, A, &Icmpv4Repr::EchoReply { identifier: ident, sequence: 1, data: &[] });
    assert_eq!(ask(&mut filter, IN, &answer(7)), BLOCKED);
    assert_eq!(ask(&mut filter, OUT, &ask_for(7)), Verdict::Pass);
    assert_eq!(ask(&mut filter, IN, &answer(7)), Verdict::Pass);
    assert_eq!(ask(&mut filter, IN, &answer(8)), BLOCKED);
    let reversed = icmp(B, A, &Icmpv4Repr::EchoRequest { identifier: 7, sequence: 1, data: &[] });
    assert_eq!(ask(&mut filter, IN, &reversed), BLOCKED, "the other way round it is a question");
}

/// Some number all their questions alike (Windows: 1), and ask each other.
#[test]
fn two_who_ask_each_other_with_one_identifier_are_told_apart() {
    let asks = |direction| {
        let kept = rule(direction, PASS).proto(IpProtocol::ICMPV4).keep();
        kept.with(|it| it.matching.icmp = Some((8, None)))
    };
    for ident in [0, 1, 0xffff] {
        let message = |src, dst, is_answer, sequence| {
            let repr = match is_answer {
                true => Icmpv4Repr::EchoReply { identifier: ident, sequence, data: &[] },
                false => Icmpv4Repr::EchoRequest { identifier: ident, sequence, data: &[] },
            };
            icmp(src, dst, &repr)
        };
        let mut filter = filter(vec![rule(IN, BLOCK), rule(OUT, BLOCK), asks(IN), asks(OUT)]);
        for sequence in 0..3 {
            let steps = [
                (IN, message(A, B, false, sequence)),
                (OUT, message(B, A, false, sequence)),
                (OUT, message(B, A, true, sequence)),
                (IN, message(A, B, true, sequence)),
            ];
            for (direction, packet) in &steps {
                assert_eq!(ask(&mut filter, *direction, packet), Verdict::Pass, "{ident} {direction:?}");
            }
            let quoted = &message(A, B, true, sequence);
            let error = icmp(B, A, &Icmpv4Repr::Unreachable { reason: Icmpv4Unreachable::Host, quoted });
            assert_eq!(ask(&mut filter, OUT, &error), Verdict::Pass, "about an answer");
        }
        let states = filter.counts().states;
        assert_eq!((states.active, states.added), (2, 2));
    }
}

#[test]
fn pieces_pass_with_their_first() {
    let kept = rule(IN, PASS).proto(IpProtocol::UDP).to_port(53).with(|it| it.keep_frags = true);
    let mut filter = filter(vec![rule(IN, BLOCK), kept]);
    let mut datagram = udp("10.0.0.1:1", "192.0.2.7:53");
    datagram.extend([0; 16]);
    let [first, later] = pieces(&datagram, 9);
    assert_eq!(ask(&mut filter, IN, &later), BLOCKED, "before the first");
    assert_eq!(ask(&mut filter, IN, &first), Verdict::Pass);
    assert_eq!(ask(&mut filter, IN, &later), Verdict::Pass);
    assert_eq!(ask(&mut filter, IN, &pieces(&datagram, 10)[1]), BLOCKED, "another datagram");
    assert_eq!(ask_at(&mut filter, IN, LINK, &later, 60).verdict, BLOCKED, "too late");
    let [src, dst] = ["fd00::1", "fd00::2"].map(|text| text.parse().unwrap());
    let first = v6_piece(src, dst, 0, true, &[0, 1, 0, 53, 0, 24, 0, 0]);
    assert_eq!(ask(&mut filter, IN, &first), Verdict::Pass);
    assert_eq!(ask(&mut filter, IN, &v6_piece(src, dst, 8, false, &[0; 16])), Verdict::Pass);
}

#[test]
fn states_end_in_their_time_and_give_their_memory_back() {
    let keep = KeepState { age: Some((30, 10)), ..KeepState::default() };
    let cases = [(KeepState::default(), 120, 120), (keep, 30, 10)];
    for (keep, forth, back) in cases {
        let mut filter = filter(vec![rule(IN, BLOCK), rule(OUT, PASS).with(|it| it.keep_state = Some(keep))]);
        ask_at(&mut filter, OUT, LINK, &udp(CLIENT, SERVER), 100);
        let answer = udp(SERVER, CLIENT);
        assert_eq!(ask_at(&mut filter, IN, LINK, &answer, 100 + forth - 1).verdict, Verdict::Pass);
        assert_eq!(ask_at(&mut filter, IN, LINK, &answer, 100 + forth - 1 + back).verdict, BLOCKED);
        let states = filter.counts().states;
        assert_eq!((states.active, states.expired, filter.allocated_bytes()), (0, 1, 0));
    }
}

#[test]
fn a_rules_limit_holds_and_frees_itself() {
    let keep = KeepState { limit: NonZeroU32::new(2), ..KeepState::default() };
    let mut filter = filter(vec![rule(OUT, PASS).with(|it| it.keep_state = Some(keep))]);
    let ask_port = |filter: &mut Filter, port: u16, secs| {
        ask_at(filter, OUT, LINK, &udp(&format!("10.0.0.1:{port}"), SERVER), secs).verdict
    };
    assert_eq!(
        [1, 2, 3].map(|port| ask_port(&mut filter, port, 0)),
        [Verdict::Pass, Verdict::Pass, Verdict::NoRoom]
    );
    assert_eq!(ask_port(&mut filter, 1, 1), Verdict::Pass, "it has its state");
    assert_eq!(ask_port(&mut filter, 3, 125), Verdict::NoRoom, "nobody has looked");
    filter.on_time(firelane_units::Instant::from_secs(125));
    assert_eq!(ask_port(&mut filter, 3, 125), Verdict::Pass);
    assert_eq!(filter.counts().states.rule_full, 2);
}

/// A flood of first segments takes the places of half-open ones; who is established stays.
#[test]
fn a_flood_pushes_out_the_oldest_half_open_and_nobody_else() {
    let mut filter = filter_of(vec![rule(IN, PASS).keep()], 100);
    let established = |n: u16| (format!("10.1.0.1:{}", 1000 + n), SERVER);
    for n in 0..50 {
        let (client, server) = established(n);
        ask(&mut filter, IN, &syn(&client, server));
        ask(&mut filter, OUT, &tcp(server, &client, SYN_ACK, 499, 100, 0));
        ask(&mut filter, IN, &tcp(&client, server, TcpFlags::ACK, 100, 500, 0));
    }
    for n in 0..10_000_u32 {
        let client = format!("10.2.{}.{}:5", n >> 8, n & 255);
        assert_eq!(ask(&mut filter, IN, &syn(&client, SERVER)), Verdict::Pass);
    }
    let states = filter.counts().states;
    assert_eq!((states.active, states.evicted, states.full), (100, 9950, 0));
    let hits = states.hits;
    for n in 0..50 {
        let (client, server) = established(n);
        ask(&mut filter, OUT, &tcp(server, &client, TcpFlags::ACK, 500, 100, 10));
    }
    assert_eq!(filter.counts().states.hits, hits + 50, "each has its state");
    // Where all are established, the newcomer is refused.
    let mut full = filter_of(vec![rule(IN, PASS).keep()], 2);
    for n in 0..2 {
        let (client, server) = established(n);
        ask(&mut full, IN, &syn(&client, server));
        ask(&mut full, OUT, &tcp(server, &client, SYN_ACK, 499, 100, 0));
        ask(&mut full, IN, &tcp(&client, server, TcpFlags::ACK, 100, 500, 0));
    }
    assert_eq!(ask(&mut full, IN, &syn("10.2.0.1:5", SERVER)), Verdict::NoRoom);
    assert_eq!(full.counts().states.full, 1);
}

/// Who opens and closes connections faster than closed ones are forgotten is not refused for that, nor pushes out who opens one or has
/// one open.
#[test]
fn what_is_over_gives_way_before_any_other() {
    let mut filter = filter_of(vec![rule(IN, PASS).keep()], 20);
    let (open, opening) = ("10.1.0.1:1", "10.1.0.2:1");
    const FIN: TcpFlags = TcpFlags::FIN.with(TcpFlags::ACK);
    let connect = |filter: &mut Filter, client: &str| {
        let passed = ask(filter, IN, &syn(client, SERVER));
        ask(filter, OUT, &tcp(SERVER, client, SYN_ACK, 499, 100, 0));
        ask(filter, IN, &tcp(client, SERVER, TcpFlags::ACK, 100, 500, 0));
        passed
    };
    assert_eq!(connect(&mut filter, open), Verdict::Pass);
    ask(&mut filter, IN, &syn(opening, SERVER));
    for port in 1..500 {
        let client = &format!("10.2.0.1:{port}");
        assert_eq!(connect(&mut filter, client), Verdict::Pass, "{port}");
        match port % 2 {
            0 => {
                ask(&mut filter, IN, &tcp(client, SERVER, FIN, 100, 500, 0));
                ask(&mut filter, OUT, &tcp(SERVER, client, FIN, 500, 101, 0));
            }
            _ => {
                ask(&mut filter, OUT, &tcp(SERVER, client, TcpFlags::RST, 500, 0, 0));
            }
        }
    }
    let hits = filter.counts().states.hits;
    ask(&mut filter, OUT, &tcp(SERVER, open, TcpFlags::ACK, 500, 100, 9));
    ask(&mut filter, OUT, &tcp(SERVER, opening, SYN_ACK, 499, 100, 0));
    let states = filter.counts().states;
    assert_eq!((states.active, states.full, states.hits), (20, 0, hits + 2));
}

/// One end alone shows nothing of the other, whatever it sends: its states give way like all half-open ones.
#[test]
fn what_one_end_alone_sends_keeps_no_place() {
    let floods: [&[(TcpFlags, u32)]; 6] = [
        &[(TcpFlags::SYN, 99), (TcpFlags::ACK, 100)],
        &[(TcpFlags::ACK, 100)],
        &[(TcpFlags::SYN, 99), (TcpFlags::FIN, 99)],
        &[(TcpFlags::SYN, 99), (TcpFlags::RST, 100)],
        &[(SYN_ACK, 99), (TcpFlags::ACK, 100)],
        &[(TcpFlags::ACK.with(TcpFlags::FIN), 100), (TcpFlags::ACK, 101)],
    ];
    for flood in floods {
        let mut filter = filter_of(vec![rule(IN, PASS).keep()], 2);
        for client in ["10.2.0.1:5", "10.2.0.2:5", "10.2.0.3:5"] {
            for &(flags, seq) in flood {
                let verdict = ask(&mut filter, IN, &tcp(client, SERVER, flags, seq, 7, 0));
                assert_eq!(verdict, Verdict::Pass, "{client} {flags:?}");
            }
        }
        assert_eq!(filter.counts().states.full, 0);
    }
}

#[test]
fn who_asks_to_be_told_is_told_of_each_packet_or_of_the_first() {
    let told = |log: FilterLog| {
        let kept = rule(OUT, PASS).keep().with(|it| it.log = Some(log));
        let mut filter = filter(vec![rule(IN, BLOCK).with(|it| it.log = Some(log)), kept]);
        let packets =
            [(OUT, CLIENT, SERVER), (IN, SERVER, CLIENT), (OUT, CLIENT, SERVER), (IN, "10.9.0.1:1", CLIENT)];
        packets.map(|(direction, src, dst)| ask_at(&mut filter, direction, LINK, &udp(src, dst), 0).logged)
    };
    assert_eq!(told(FilterLog::default()), [Some(1), Some(1), Some(1), Some(0)]);
    assert_eq!(told(FilterLog { first: true, body: false }), [Some(1), None, None, Some(0)]);
}

/// Who comes and goes for a long time behind one that waits takes no memory.
#[test]
fn the_order_of_half_open_ones_is_bounded() {
    let keep = KeepState { age: Some((1_000_000, 1)), ..KeepState::default() };
    let mut filter = filter_of(vec![rule(IN, PASS).with(|it| it.keep_state = Some(keep))], 4);
    ask(&mut filter, IN, &udp("10.1.0.1:1", SERVER));
    let mut bytes = 0;
    for n in 0..5000_u32 {
        let secs = u64::from(n) * 3;
        let client = format!("10.2.0.{}:{}", n & 255, 1 + n / 256);
        ask_at(&mut filter, IN, LINK, &udp(&client, SERVER), secs);
        // An answer makes it short-lived.
        ask_at(&mut filter, OUT, LINK, &udp(SERVER, &client), secs);
        filter.on_time(firelane_units::Instant::from_secs(secs + 2));
        bytes = bytes.max(filter.allocated_bytes());
    }
    assert_eq!(filter.counts().states.active, 1);
    assert!(bytes < 4096, "{bytes}");
}

#[test]
fn states_outlive_a_change_of_rules() {
    let mut filter = outward();
    ask(&mut filter, OUT, &udp(CLIENT, SERVER));
    let rules = vec![rule(IN, BLOCK), rule(OUT, BLOCK)];
    filter.set(firelane_filter::FilterConfig { rules, pools: Vec::new() }, firelane_units::Instant::ZERO);
    let ruling = ask_at(&mut filter, IN, LINK, &udp(SERVER, CLIENT), 0);
    assert_eq!((ruling.verdict, ruling.rule), (Verdict::Pass, None));
    assert_eq!(ask(&mut filter, OUT, &udp("10.0.0.1:9", SERVER)), BLOCKED);
}

/// Between two lists of rules there may be none for a while, in which connections go on: they are followed, so that their states fit then.
#[test]
fn states_follow_their_connections_without_rules() {
    let set = |filter: &mut Filter, rules: &[firelane_units::FilterRule<LinkId>]| {
        filter.set_rules(rules.to_vec());
    };
    let rules = [rule(IN, BLOCK), rule(OUT, BLOCK), rule(OUT, PASS).keep()];
    let mut filter = filter(rules.to_vec());
    assert_eq!(ask(&mut filter, OUT, &syn(CLIENT, SERVER)), Verdict::Pass);
    assert_eq!(ask(&mut filter, IN, &tcp(SERVER, CLIENT, SYN_ACK, 499, 100, 0)), Verdict::Pass);
    assert_eq!(ask(&mut filter, OUT, &tcp(CLIENT, SERVER, TcpFlags::ACK, 100, 500, 0)), Verdict::Pass);
    set(&mut filter, &[]);
    assert!(filter.is_on());
    let mut sent = 100;
    for _ in 0..100 {
        assert_eq!(
            ask(&mut filter, OUT, &tcp(CLIENT, SERVER, TcpFlags::ACK, sent, 500, 1000)),
            Verdict::Pass
        );
        sent += 1000;
        assert_eq!(ask(&mut filter, IN, &tcp(SERVER, CLIENT, TcpFlags::ACK, 500, sent, 0)), Verdict::Pass);
    }
    assert_eq!(ask(&mut filter, IN, &udp(SERVER, CLIENT)), Verdict::Pass, "nothing is blocked");
    set(&mut filter, &rules);
    assert_eq!(ask(&mut filter, OUT, &tcp(CLIENT, SERVER, TcpFlags::ACK, sent, 500, 1000)), Verdict::Pass);
    let way = firelane_filter::OneWay {
        direction: IN,
        protocol: IpProtocol::TCP,
        from: ("192.0.2.7".parse().unwrap(), firelane_units::Port(80)),
        to: ("10.0.0.1".parse().unwrap(), firelane_units::Port(4000)),
    };
    set(&mut filter, &[]);
    assert!(filter.may_meet(&way, |_| true));
    filter.on_time(Instant::from_secs(6 * 24 * 3600));
    assert!(!filter.is_on() && !filter.may_meet(&way, |_| true), "when all have ended");
}

/// Of two equal rules the first goes on as the first, wherever both stand then.
#[test]
fn a_rule_that_stays_goes_on_counting_and_keeps_its_states() {
    let one = KeepState { limit: NonZeroU32::new(1), ..KeepState::default() };
    let kept = rule(IN, PASS).with(|it| it.keep_state = Some(one));
    let block = rule(IN, BLOCK).to_port(80);
    let follow = |filter: &mut Filter, rules: &[&firelane_units::FilterRule<LinkId>]| {
        let rules = rules.iter().map(|&it| it.clone()).collect();
        let config = firelane_filter::FilterConfig { rules, pools: Vec::new() };
        filter.set(config, firelane_units::Instant::ZERO);
    };
    let packets = |filter: &Filter| filter.counts().rules.iter().map(|it| it.packets).collect::<Vec<_>>();
    let mut filter = filter(vec![block.clone(), kept.clone(), block.clone()]);
    let question = udp(CLIENT, "192.0.2.7:53");
    (0..3).for_each(|_| assert_eq!(ask(&mut filter, IN, &question), Verdict::Pass));
    (0..2).for_each(|_| assert_eq!(ask(&mut filter, IN, &udp(CLIENT, SERVER)), BLOCKED));
    assert_eq!(packets(&filter), [0, 3, 2]);
    // Its state counts for it, and its limit is reached as before.
    follow(&mut filter, &[&kept, &rule(OUT, BLOCK), &block]);
    assert_eq!(packets(&filter), [3, 0, 0]);
    assert_eq!(ask_at(&mut filter, IN, LINK, &question, 0).rule, Some(0));
    assert_eq!(ask(&mut filter, IN, &udp("10.0.0.9:1", "192.0.2.7:53")), Verdict::NoRoom);
    // A rule that was away begins again, and what it has let through is nobody's.
    follow(&mut filter, &[&block]);
    assert_eq!(ask_at(&mut filter, IN, LINK, &question, 0).rule, None);
    follow(&mut filter, &[&block, &kept]);
    assert_eq!(packets(&filter), [0, 0]);
    assert_eq!(ask_at(&mut filter, IN, LINK, &question, 0).rule, None);
    assert_eq!(ask_at(&mut filter, IN, LINK, &udp("10.0.0.9:1", "192.0.2.7:53"), 0).rule, Some(1));
    // When its states end, it may have others.
    filter.on_time(firelane_units::Instant::from_secs(500));
    assert_eq!(ask_at(&mut filter, IN, LINK, &udp("10.0.0.8:1", "192.0.2.7:53"), 500).verdict, Verdict::Pass);
}

/// Lanes that follow one list have one limit, whether it was compared with the one before it or not.
#[test]
fn filters_of_one_list_share_its_limits() {
    let three = KeepState { limit: NonZeroU32::new(3), ..KeepState::default() };
    let kept = rule(IN, PASS).with(|it| it.keep_state = Some(three));
    for is_compared in [false, true] {
        let first = Arc::new(RuleList::new(vec![kept.clone()]));
        let mut lanes = [(); 2].map(|()| Filter::new([(1, 2), (3, 4)], 100));
        lanes.iter_mut().for_each(|lane| lane.follow_list(&first));
        let mut next = 0;
        let mut begin = |lane: &mut Filter, at: u64| {
            next += 1;
            ask_at(lane, IN, LINK, &udp(&format!("10.0.0.1:{next}"), "192.0.2.7:53"), at).verdict
        };
        let [one, other] = &mut lanes;
        assert_eq!([begin(one, 0), begin(one, 0), begin(other, 0)], [Verdict::Pass; 3]);
        assert_eq!([begin(one, 0), begin(other, 0)], [Verdict::NoRoom; 2]);
        // What another lane has begun takes no room of its own.
        let bytes = udp("10.0.0.1:1", "192.0.2.7:53");
        other.adopt(&Packet::read(IN, LINK, &bytes).unwrap(), Some(0), Instant::from_secs(0));
        assert_eq!((one.counts().states.active, other.counts().states.active), (2, 2));
        let mut second = RuleList::new(vec![rule(OUT, BLOCK), kept.clone()]);
        if is_compared {
            second.compare(&first);
        }
        let second = Arc::new(second);
        one.follow_list(&second);
        other.follow_list(&second);
        assert_eq!([begin(one, 0), begin(other, 0)], [Verdict::NoRoom; 2]);
        one.on_time(Instant::from_secs(500));
        assert_eq!(
            [begin(other, 1), begin(one, 500), begin(other, 1)],
            [Verdict::Pass, Verdict::Pass, Verdict::NoRoom]
        );
        // A lane that ends gives its room to the others.
        let [one, mut other] = lanes;
        drop(one);
        assert_eq!([begin(&mut other, 2), begin(&mut other, 2)], [Verdict::Pass, Verdict::NoRoom]);
    }
}

proptest! {
    /// Whatever comes, in whatever order: no panic, never more states than allowed, and all memory comes back.
    #[test]
    fn whatever_comes_memory_is_bounded_and_comes_back(
        packets in prop::collection::vec((any::<bool>(), prop::collection::vec(any::<u8>(), 0..80), 0..6_u8, 0..40_u64), 1..200)
    ) {
        let mut filter = filter_of(vec![rule(IN, PASS).keep().with(|it| it.keep_frags = true), rule(OUT, PASS).keep()], 8);
        let mut now = 0;
        for (is_in, mut bytes, shape, later) in packets {
            now += later;
            bytes.resize(80, 0);
            let protocol = [6, 17, 1, 58, 132, 6][usize::from(shape)];
            let flags = bytes[20] & 0x3f;
            // Few names, so that packets meet.
            let end = |bit: u8| format!("10.0.0.{}:{}", bit & 1, 1 + (bit >> 1 & 1));
            let packet = match protocol {
                6 => tcp(&end(bytes[0]), &end(bytes[1] | 1), TcpFlags::from_bits(flags.into()), u32::from(bytes[2]), u32::from(bytes[3]), 9),
                17 => udp(&end(bytes[0]), &end(bytes[1])),
                _ => v4(A, B, IpProtocol(protocol), &bytes),
            };
            ask_at(&mut filter, if is_in { IN } else { OUT }, LINK, &packet, now);
            prop_assert!(filter.counts().states.active <= 8);
            filter.on_time(firelane_units::Instant::from_secs(now));
        }
        let mut at = Some(firelane_units::Instant::from_secs(now + 6 * 24 * 3600));
        while let Some(then) = at {
            at = filter.on_time(then);
        }
        prop_assert_eq!(filter.allocated_bytes(), 0);
        let states = filter.counts().states;
        prop_assert!(states.added >= states.expired + states.evicted);
    }
}

#[test]
fn a_state_is_of_its_two_ends_and_of_no_others_whichever_half_of_them_differs() {
    let families = [
        &["10.0.0.1:1", "10.0.0.1:2", "10.0.0.2:1"][..],
        &[
            "[fd00::1]:1",
            "[fd00::1]:2",
            "[fd00::2]:1",
            "[fd00:1::1]:1",
            "[::a00:1]:1",
            "[fd00::ffff:a00:1]:1",
        ],
    ];
    let pairs: Vec<_> = families
        .iter()
        .flat_map(|ends| ends.iter().flat_map(|a| ends.iter().map(move |b| (*a, *b))))
        .collect();
    for &(from, to) in pairs.iter().filter(|(from, to)| from != to) {
        let mut filter = common::filter(vec![rule(IN, BLOCK), rule(OUT, BLOCK), rule(IN, PASS).keep()]);
        assert_eq!(ask(&mut filter, IN, &udp(from, to)), Verdict::Pass);
        for &(a, b) in &pairs {
            let is_its = (a, b) == (from, to) || (b, a) == (from, to);
            let verdict = ask(&mut filter, OUT, &udp(a, b));
            assert_eq!(verdict == Verdict::Pass, is_its, "{a} to {b}, of {from} to {to}");
        }
        filter.on_time(Instant::from_secs(500));
        assert_eq!(filter.counts().states.active, 0, "it is found by its names when it ends");
        assert_eq!(filter.allocated_bytes(), 0);
    }
}
