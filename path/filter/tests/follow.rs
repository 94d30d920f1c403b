//! A flow whose state is known is ruled about and counted as one that is searched for, whatever came between.

mod common;

use std::collections::HashMap;
use std::num::NonZeroU32;

use common::*;
use firelane_filter::{
    FORESEEN_MAX, Filter, FilterConfig, FlowNames, Followed, Packet, Ruling, StateRef, Verdict, Whole,
};
use firelane_units::{Direction, FilterLog, FilterRule, Instant, KeepState, LinkId};
use firelane_wire::{IpProtocol, TcpFlags};
use proptest::prelude::*;

const TCP: IpProtocol = IpProtocol::TCP;
const UDP: IpProtocol = IpProtocol::UDP;

fn rules(which: u8) -> Vec<FilterRule<LinkId>> {
    let strict = KeepState { strict: true, age: Some((3, 2)), ..KeepState::default() };
    let one = KeepState { limit: NonZeroU32::new(1), ..KeepState::default() };
    let keeps = |direction, keep| rule(direction, PASS).with(|it| it.keep_state = Some(keep));
    let logs = |first| move |it: &mut FilterRule<LinkId>| it.log = Some(FilterLog { first, body: false });
    match which {
        0 => vec![rule(IN, BLOCK), rule(OUT, BLOCK), rule(IN, PASS).keep()],
        1 => vec![rule(OUT, PASS).keep().with(logs(false)), rule(IN, BLOCK).proto(TCP)],
        2 => vec![keeps(IN, strict), keeps(OUT, one).proto(UDP).with(logs(true))],
        3 => vec![rule(IN, PASS).to_port(1).keep(), rule(IN, BLOCK).to_port(2)],
        _ => vec![rule(IN, BLOCK), rule(OUT, PASS).keep()],
    }
}

/// What is said of a packet, and of the same on its way out, if it may be passed on by a link.
type Said = (Ruling, Option<Ruling>);

/// Asks by the packet.
fn ask(filter: &mut Filter, packet: &Packet<'_>, onward: Option<&Packet<'_>>, now: Instant) -> Said {
    let ruling = filter.judge(packet, now);
    let onward = onward.filter(|_| ruling.verdict == Verdict::Pass);
    (ruling, onward.map(|packet| filter.judge(packet, now)))
}

/// Asks by the state of which is known, if there is one, and by the packet else.
fn ask_known(
    filter: &mut Filter,
    known: &mut HashMap<Vec<u8>, StateRef>,
    (packet, onward): (&Packet<'_>, Option<&Packet<'_>>),
    names: Vec<u8>,
    now: Instant,
) -> (Said, bool) {
    let segment = packet.segment();
    let whole = Whole {
        direction: packet.direction,
        link: packet.link,
        onward: onward.map(|packet| packet.link),
        bytes: packet.bytes,
        segment: segment.as_ref(),
    };
    let followed = known.get(&names).and_then(|state| filter.follow(*state, &whole, now));
    let state = known.get(&names).copied();
    // It is the state that was named.
    let by_state = |followed: Followed| Ruling { state, ..followed.ruling() };
    let said = match (followed, onward) {
        (Some((followed, None)), Some(onward)) => (by_state(followed), Some(filter.judge(onward, now))),
        (Some((followed, onward)), _) => (by_state(followed), onward.map(by_state)),
        (None, _) => ask(filter, packet, onward, now),
    };
    if let Some(state) = said.0.state {
        known.insert(names, state);
    }
    (said, followed.is_some())
}

#[derive(Clone, Debug)]
enum Event {
    Packet {
        is_in: bool,
        link: u32,
        onward: Option<u32>,
        ends: u8,
        protocol: u8,
        flags: u8,
        seq: u8,
        ack: u8,
        len: u8,
    },
    Later(u64),
    Rules(u8),
}

fn event() -> impl Strategy<Value = Event> {
    let ends = (any::<(bool, bool, u8)>(), prop::option::of(2..4_u32));
    let packet = (ends, 0..4_u8, any::<(u8, u8, u8)>(), 0..30_u8).prop_map(
        |(((is_in, is_other, ends), onward), protocol, (flags, seq, ack), len)| Event::Packet {
            is_in,
            link: 1 + u32::from(is_other),
            onward: onward.filter(|_| is_in),
            ends: ends & 15,
            protocol,
            flags,
            seq,
            ack,
            len,
        },
    );
    prop_oneof![20 => packet, 2 => (0..90_u64).prop_map(Event::Later), 1 => (0..5_u8).prop_map(Event::Rules)]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]
    #[test]
    fn a_known_state_rules_as_a_search_does(first in 0..5_u8, events in prop::collection::vec(event(), 1..200)) {
        let [mut plain, mut knowing] = [rules(first), rules(first)].map(|rules| filter_of(rules, 4));
        let (mut known, mut now) = (HashMap::new(), 0);
        for event in events {
            match event {
                Event::Later(secs) => {
                    now += secs;
                    let at = Instant::from_secs(now);
                    prop_assert_eq!(plain.on_time(at), knowing.on_time(at));
                }
                Event::Rules(which) => {
                    for filter in [&mut plain, &mut knowing] {
                        let config = FilterConfig { rules: rules(which), pools: Vec::new() };
                        filter.set(config, Instant::from_secs(now));
                    }
                }
                Event::Packet { is_in, link, onward, ends, protocol, flags, seq, ack, len } => {
                    let end = |bits: u8| format!("10.0.0.{}:{}", bits & 1, 1 + (bits >> 1 & 1));
                    let [src, dst] = [end(ends), end(ends >> 2)];
                    let is_tcp = protocol > 0;
                    let flags = [
                        TcpFlags::SYN,
                        TcpFlags::SYN.with(TcpFlags::ACK),
                        TcpFlags::ACK,
                        TcpFlags::ACK,
                        TcpFlags::ACK.with(TcpFlags::FIN),
                        TcpFlags::RST,
                    ][usize::from(flags) % 6];
                    let bytes = match is_tcp {
                        true => tcp(&src, &dst, flags, u32::from(seq & 3) * 20, u32::from(ack & 3) * 20, len.into()),
                        false => udp(&src, &dst),
                    };
                    let direction = if is_in { Direction::In } else { Direction::Out };
                    let packet = Packet::read(direction, LinkId(link), &bytes).unwrap();
                    let onward = onward.and_then(|link| Packet::read(Direction::Out, LinkId(link), &bytes));
                    let (at, names) = (Instant::from_secs(now), vec![ends, is_tcp.into()]);
                    let searched = ask(&mut plain, &packet, onward.as_ref(), at);
                    let packets = (&packet, onward.as_ref());
                    let (followed, _) = ask_known(&mut knowing, &mut known, packets, names, at);
                    prop_assert_eq!(searched, followed);
                }
            }
            prop_assert_eq!(plain.counts(), knowing.counts());
        }
    }
}

fn names(packet: &Packet<'_>) -> FlowNames {
    let halves = |address: core::net::IpAddr| match address {
        core::net::IpAddr::V4(address) => {
            let bits = address.to_ipv6_mapped().to_bits();
            [(bits >> 64) as u64, bits as u64]
        }
        core::net::IpAddr::V6(_) => unreachable!("the packets are IPv4's"),
    };
    let (src, dst) = (halves(packet.src), halves(packet.dst));
    FlowNames { src, dst, ports: packet.ports().unwrap(), protocol: packet.protocol }
}

#[test]
fn the_usual_packet_is_followed_and_the_unusual_is_not() {
    let mut filter = filter(vec![rule(IN, BLOCK), rule(IN, PASS).keep()]);
    let mut known = HashMap::new();
    let mut ask = |filter: &mut Filter, bytes: &[u8], direction, link, secs| {
        let packet = Packet::read(direction, link, bytes).unwrap();
        let at = Instant::from_secs(secs);
        let ((ruling, _), is_followed) = ask_known(filter, &mut known, (&packet, None), vec![0], at);
        (ruling.verdict, is_followed)
    };
    let datagram = udp("10.0.0.1:1", "192.0.2.7:53");
    assert_eq!(ask(&mut filter, &datagram, IN, LINK, 0), (Verdict::Pass, false), "it begins the state");
    assert_eq!(ask(&mut filter, &datagram, IN, LINK, 0), (Verdict::Pass, true));
    assert_eq!(ask(&mut filter, &datagram, OUT, LinkId(2), 0), (Verdict::Pass, true));
    assert_eq!(ask(&mut filter, &datagram, OUT, LinkId(3), 0), (Verdict::Pass, false), "by another link");
    assert_eq!(ask(&mut filter, &datagram, IN, LINK, 500), (Verdict::Pass, false), "the state has ended");
    assert_eq!(ask(&mut filter, &datagram, IN, LINK, 500), (Verdict::Pass, true));
}

#[test]
fn many_flows_find_their_states_together() {
    let mut filter = filter(vec![rule(IN, BLOCK), rule(IN, PASS).proto(UDP).keep()]);
    let flows = FORESEEN_MAX + 9;
    let datagrams: Vec<_> = (0..flows).map(|n| udp(&format!("10.0.0.1:{}", n + 1), "192.0.2.7:53")).collect();
    let packets: Vec<_> = datagrams.iter().map(|it| Packet::read(IN, LINK, it).unwrap()).collect();
    let all: Vec<_> = packets.iter().map(names).collect();
    let look = |filter: &Filter| {
        let mut sought = filter.seek(all.iter().copied());
        filter.approach(&mut sought);
        sought
    };
    let sought = look(&filter);
    assert!((0..=flows).all(|nth| filter.found(&sought, nth, all[nth % flows]).is_none()));
    let even: Vec<_> = packets.iter().step_by(2).map(|it| filter.judge(it, Instant::ZERO).state).collect();
    let sought = look(&filter);
    for nth in 0..flows {
        let wanted = even[nth / 2].filter(|_| nth % 2 == 0 && nth < FORESEEN_MAX);
        assert_eq!(filter.found(&sought, nth, all[nth]), wanted, "{nth}");
    }
}
