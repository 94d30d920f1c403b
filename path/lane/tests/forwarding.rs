//! A netstack that forwards between two etherstubs: known flows, changes, and books that balance.

use std::net::{IpAddr, Ipv4Addr};

use firelane_frame::Chain;
use firelane_ip::{IfRouting, RouteKind};
use firelane_lane::*;
use firelane_units::{DropReason, LinkId};
use firelane_wire::Ipv4View;
use firelane_world::router::*;
use firelane_world::*;

#[test]
fn every_packet_of_a_flow_is_forwarded_alike() {
    for lanes in [1, 2, 4] {
        let mut net = Net::new(lanes);
        for port in 1..20 {
            let all: Vec<_> = (0..3).map(|_| net.forward(station(1).0, port).expect("it goes on")).collect();
            assert!(all.iter().all(|frame| *frame == all[0]));
            let view = Ipv4View::parse(&all[0][14..]).unwrap();
            assert!(view.is_checksum_valid() && view.ttl() == 63);
            assert_eq!((&all[0][..6], &all[0][6..12]), (&mac(8).0[..], &mac(11).0[..]));
        }
        net.world.check_conservation();
    }
}

#[test]
fn a_change_counts_for_the_next_packet_of_a_known_flow() {
    let mut net = Net::new(2);
    let dst = Ipv4Addr::new(192, 0, 2, 1);
    assert!(net.forward(dst, 9).is_none());
    assert_eq!(net.drops(DropReason::NoRoute), 1);
    let via = RouteConfig::via("192.0.2.0/24".parse().unwrap(), IpAddr::V4(station(1).0));
    net.change(|| Control::AddRoute(ROUTER, via));
    (0..2).for_each(|_| assert!(net.forward(dst, 9).is_some()));
    let hole = RouteConfig {
        gateway: None,
        kind: RouteKind::Blackhole,
        ..RouteConfig::via("192.0.2.1/32".parse().unwrap(), dst.into())
    };
    net.change(|| Control::AddRoute(ROUTER, hole));
    assert!(net.forward(dst, 9).is_none());
    assert_eq!(net.drops(DropReason::Blackhole), 1);
    net.change(|| Control::RemoveRoute(ROUTER, hole));
    (0..2).for_each(|_| assert!(net.forward(dst, 9).is_some()));
    let off = IfRouting { forwards_v4: Some(false), ..IfRouting::default() };
    net.change(|| Control::SetRouting(ROUTER, LinkId(11), off));
    assert!(net.forward(dst, 9).is_none());
    assert_eq!(net.drops(DropReason::NotForwarding), 1);
    net.world.check_conservation();
}

#[test]
fn a_chain_of_many_flows_is_forwarded_whole_and_in_order() {
    let mut net = Net::new(1);
    assert!(net.forward(station(1).0, 1).is_some());
    for _ in 0..3 {
        let mut chain = Chain::new();
        for n in 0..200_u16 {
            let mut frame = net.pools.copy_of(&net.datagram(station(1).0, n / 2)).unwrap();
            // Every other one differs in what the receiver sees, not in what the flow is known by.
            frame.as_mut_slice()[42] = n as u8;
            chain.push(frame);
        }
        net.wires[0].tx.push_chain(&mut chain);
        net.world.run();
        let received = net.received(1);
        let order: Vec<u8> = received.iter().map(|frame| frame[42]).collect();
        assert_eq!(order, (0..200).map(|n: u16| n as u8).collect::<Vec<_>>());
    }
    net.world.check_conservation();
}

#[test]
fn a_flow_that_is_known_is_counted_at_every_port() {
    let mut net = Net::new(1);
    let packets = |net: &Net| {
        let snapshot = net.world.lanes[0].snapshot();
        let port = |id: u32| snapshot.ports.iter().find(|(link, _)| link.0 == id).unwrap().1;
        [port(2).outward.packets, port(1).inward.packets, port(11).outward.packets, port(12).inward.packets]
    };
    let before = packets(&net);
    let ip = |net: &Net| net.world.lanes[0].netstack_counters(ROUTER).unwrap().ip.v4;
    let ip_before = ip(&net);
    (0..10).for_each(|_| assert!(net.forward(station(1).0, 5).is_some()));
    assert_eq!(packets(&net), before.map(|packets| packets + 10));
    let (all, its) = (ip(&net), ip_before);
    assert_eq!((all.forwarded - its.forwarded, all.received - its.received), (10, 10));
    assert_eq!((all.sent, all.delivered), (its.sent, its.delivered), "none was its own");
    net.world.check_conservation();
}
