//! What a DHCP client of the netstack's own waits for passes filter and translation, in however many lanes, and nothing else does.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use firelane_filter::RuleList;
use firelane_lane::*;
use firelane_units::{
    BlockAnswer, Direction, DropReason, Family, FilterAction, FilterProtocol, FilterRule, LinkId, Mtu,
    NatAction, NatEnd, NatRedirect, NatRule, NetstackId,
};
use firelane_world::router::*;
use firelane_world::*;

use crate::translating::*;

const LANES: [u16; 3] = [1, 2, 4];
const OPEN: u32 = 0x0012_3456;
const OTHER: u32 = 0x0012_3457;

/// The begin of what a DHCPv4 server says in an exchange, or of a client's question.
fn message_v4(op: u8, number: u32) -> Vec<u8> {
    let mut message = vec![op, 1, 6, 0];
    message.extend(number.to_be_bytes());
    message.resize(240, 0);
    message
}

/// The same of a DHCPv6 server's reply.
fn reply_v6(number: u32) -> Vec<u8> {
    let mut message = number.to_be_bytes().to_vec();
    message[0] = 7;
    message.resize(40, 0);
    message
}

fn block_datagrams(world: &mut World, netstack: NetstackId) {
    let mut rule = FilterRule::new(Direction::In, FilterAction::Block(BlockAnswer::Silent));
    rule.matching.protocol = FilterProtocol::Number(17);
    let rules = Arc::new(RuleList::new(vec![rule]));
    world.all(|| Control::SetFilter(netstack, Arc::clone(&rules)));
}

fn heard(end: &mut firelane_socket::DatagramEnd) -> bool {
    end.recv.recv(&mut [0; 400]).unwrap().is_some()
}

/// `block in all` and `pass out all keep state` leave a netstack its address of a DHCP server.
#[test]
fn the_filter_lets_in_what_a_client_waits_for() {
    for lanes in LANES {
        for (family, ports, addresses) in [
            (Family::V4, [67, 68], ["10.0.0.1", "10.0.0.2"]),
            (Family::V6, [547, 546], ["[fd00::1]", "[fd00::2]"]),
        ] {
            let mut world = two_stacks(lanes, Mtu::ETHERNET);
            block_datagrams(&mut world, NetstackId(2));
            let [server, client] = [0, 1].map(|nth| format!("{}:{}", addresses[nth], ports[nth]));
            let stranger = format!("{}:{}", addresses[0], 4000);
            let mut server = world.bind(1, 5, 0, &server);
            let mut stranger = world.bind(1, 6, 0, &stranger);
            let to: SocketAddr = client.parse().unwrap();
            let mut client = world.bind(2, 7, 0, &client);
            let answer = |number| match family {
                Family::V4 => message_v4(2, number),
                Family::V6 => reply_v6(number),
            };
            let wait = |world: &mut World, link: u32, number: Option<u32>| {
                world.all(|| Control::Await(NetstackId(2), LinkId(link), family, number));
                world.run();
            };
            let mut blocked = 0;
            let mut is_heard = |world: &mut World, is_server: bool, text: &[u8]| {
                let (end, socket) = if is_server { (&mut server, 5) } else { (&mut stranger, 6) };
                world.send_to(end, socket, to, text);
                world.run();
                let is_heard = heard(&mut client);
                blocked += u64::from(!is_heard);
                assert_eq!(world.counters().drops.of(DropReason::FilterBlocked), blocked);
                is_heard
            };
            assert!(!is_heard(&mut world, true, &answer(OPEN)), "nobody waits");
            wait(&mut world, 1, Some(OPEN));
            assert!(!is_heard(&mut world, true, &answer(OPEN)), "on another link somebody does");
            wait(&mut world, 2, Some(OPEN));
            for _ in 0..2 {
                assert!(is_heard(&mut world, true, &answer(OPEN)), "{lanes} lanes, {family:?}");
                assert!(!is_heard(&mut world, true, &answer(OTHER)), "it is of another exchange");
                assert!(!is_heard(&mut world, false, &answer(OPEN)), "it is no server's");
                assert!(!is_heard(&mut world, true, &answer(OPEN)[..3]), "it has no number");
            }
            wait(&mut world, 2, Some(OTHER));
            assert!(!is_heard(&mut world, true, &answer(OPEN)) && is_heard(&mut world, true, &answer(OTHER)));
            wait(&mut world, 2, None);
            assert!(!is_heard(&mut world, true, &answer(OTHER)), "it has its answer");
            world.check_conservation();
        }
    }
}

/// Everything that is for the router's address goes to a station inside, but not what the router itself waits for, whatever went there before.
#[test]
fn an_exposed_host_does_not_take_away_what_a_client_waits_for() {
    let to = NatEnd { prefix: format!("{OUTSIDE}/32").parse().ok(), ..NatEnd::default() };
    let inside = NatRedirect { address: station(0).0, second: None, port: None, is_range: false };
    let exposed = NatRule { to, ..NatRule::new(WAN, NatAction::Redirect(inside)) };
    let (server, client) = ((station(1).0, 67), (OUTSIDE, 68));
    for lanes in LANES {
        for is_blocked in [false, true] {
            let mut net = ready(lanes);
            translate(&mut net, &[exposed]);
            let mut end = net.world.bind(ROUTER.0, 7, 0, "0.0.0.0:68");
            let mut goes = |net: &mut Net, to: (Ipv4Addr, u16), text: &[u8]| {
                net.received(0);
                net.send(1, &datagram_of(1, server, to, text));
                let frames = net.received(0);
                let is_inside = frames.iter().any(|frame| frame[12..14] == [8, 0] && frame[23] == 17);
                (is_inside, heard(&mut end))
            };
            assert_eq!(goes(&mut net, client, &message_v4(2, OPEN)), (true, false), "nobody waits");
            assert_eq!(goes(&mut net, client, &message_v4(2, OPEN)), (true, false), "it is known");
            if is_blocked {
                block_datagrams(&mut net.world, ROUTER);
            }
            net.change(|| Control::Await(ROUTER, WAN, Family::V4, Some(OPEN)));
            let everybody = (Ipv4Addr::BROADCAST, 68);
            for nth in 0..3 {
                for to in [client, everybody] {
                    let went = goes(&mut net, to, &message_v4(2, OPEN));
                    assert_eq!(went, (false, true), "{lanes} lanes, time {nth}, {to:?}");
                }
                // What is no answer to that goes where rules say, and nothing is learned of it for what is one.
                for text in [message_v4(2, OTHER), message_v4(1, OPEN)] {
                    assert_eq!(
                        goes(&mut net, client, &text),
                        (!is_blocked, false),
                        "{lanes} lanes, time {nth}"
                    );
                }
            }
            // The rules are for whom else such a message could be.
            let other = (Ipv4Addr::new(10, 1, 0, 7), 68);
            assert_eq!(goes(&mut net, other, &message_v4(2, OPEN)), (!is_blocked, false));
            net.world.check_conservation();
        }
    }
}
