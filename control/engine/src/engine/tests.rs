//! What becomes of changes while a lane is out of service.

use std::net::{IpAddr, Ipv4Addr};

use firelane_lane::RouteChange;

use super::*;
use crate::capture::CaptureOf;
use crate::{TraceOf, WireConfig, wire};

const LEFT: LaneId = LaneId(0);
const LOST: LaneId = LaneId(1);

/// An engine that has lost one of its lanes.
fn engine() -> Engine {
    let engine =
        Engine::start(&EngineConfig { lanes: 2, threads: false, ..EngineConfig::default() }).unwrap();
    engine.0.fabric.fail(LOST, || ());
    engine
}

fn vnic(n: u8) -> VnicConfig {
    VnicConfig::new(MacAddr([2, 8, 32, 0, 0, n]))
}

/// A netstack with a VNIC.
fn attach(engine: &Engine) -> (NetstackId, LinkId) {
    let id = engine.add_netstack(Default::default()).unwrap();
    let link = engine.add_link(Mtu::ETHERNET).unwrap();
    (id, engine.add_vnic(link, &vnic(1), VnicUser::Netstack(id)).unwrap())
}

/// Whether the lane that is left knows a way from the address to a station.
fn has_way(engine: &Engine, id: NetstackId, to: [u8; 4]) -> bool {
    let ends = [[10, 0, 0, 1], to].map(|it| IpAddr::V4(Ipv4Addr::from(it)));
    engine.0.fabric.visit(LEFT, |now, lane| lane.way(now, id, (ends[0], ends[1])).is_some()).unwrap()
}

#[test]
fn what_the_lanes_that_are_left_have_taken_is_changed() {
    let engine = engine();
    let (id, vnic) = attach(&engine);
    let address = "10.0.0.1/24".parse().unwrap();
    engine.add_address(vnic, address).unwrap();
    assert!(has_way(&engine, id, [10, 0, 0, 2]));
    let twice = engine.add_address(vnic, address);
    assert!(matches!(twice, Err(ChangeError::AddressTaken(_))), "the books have it: {twice:?}");
    engine.remove_address(vnic, address).unwrap();
    assert!(!has_way(&engine, id, [10, 0, 0, 2]));
    engine.add_address(vnic, address).unwrap();
    engine.remove_vnic(vnic).unwrap();
    engine.remove_netstack(id).unwrap();
    let is_there = engine.0.fabric.visit(LEFT, |_, lane| lane.netstack_counters(id).is_some());
    assert_eq!(is_there, Some(false));
}

#[test]
fn every_change_of_many_reaches_the_lanes_that_are_left() {
    let engine = engine();
    let (id, vnic) = attach(&engine);
    engine.add_address(vnic, "10.0.0.1/24".parse().unwrap()).unwrap();
    let route = |n: u8| RouteConfig::on_link(IpPrefix::new([10, 1, n, 0].into(), 24).unwrap(), vnic);
    let added: Vec<_> = (0..200).map(|n| RouteChange::Add(route(n))).collect();
    engine.change_routes(id, &added).unwrap();
    assert!((0..200).all(|n| has_way(&engine, id, [10, 1, n, 1])));
    let removed: Vec<_> = (0..200).map(|n| RouteChange::Remove(route(n))).collect();
    engine.change_routes(id, &removed).unwrap();
    assert!((0..200).all(|n| !has_way(&engine, id, [10, 1, n, 1])));
}

#[test]
fn devices_are_read_and_captures_run_in_the_lanes_that_are_left() {
    let engine = engine();
    let link = engine.add_link(Mtu::ETHERNET).unwrap();
    for n in 0..2 {
        let queues = [(); 2].map(|()| Queue::from(wire(WireConfig::default()).0)).into();
        let vnic = engine.add_vnic(link, &vnic(n), VnicUser::Device(queues)).unwrap();
        assert_eq!(engine.0.fabric.visit(LEFT, |_, lane| lane.queues_of(vnic).0), Some(2));
        engine.capture(CaptureOf::Link(vnic), 64).unwrap();
    }
    engine.0.fabric.fail(LEFT, || ());
    assert!(matches!(engine.add_link(Mtu::ETHERNET), Err(ChangeError::LaneFailed)), "none is left");
}

#[test]
fn datagram_sockets_without_a_port_get_one_of_a_lane_that_is_left() {
    let builder = crate::Stack::builder().lanes(2).interface(wire(WireConfig::default()).0);
    let stack = builder.address("10.0.0.1/24").unwrap().build().unwrap();
    let fabric = Arc::clone(&stack.engine().0.fabric);
    fabric.fail(LOST, || ());
    let sockets: Vec<_> = (0..32).map(|_| crate::UdpSocket::bind(&stack, "10.0.0.1:0").unwrap()).collect();
    assert_eq!(sockets.len(), 32);
    fabric.fail(LEFT, || ());
    let late = crate::UdpSocket::bind(&stack, "10.0.0.1:0");
    assert_eq!(late.unwrap_err().kind(), std::io::ErrorKind::NetworkDown, "none is left");
}

#[test]
fn sockets_are_shown_and_frames_followed_in_the_lanes_that_are_left() {
    for lost in [LEFT, LOST] {
        let builder = crate::Stack::builder().lanes(2).interface(wire(WireConfig::default()).0);
        let stack = builder.address("10.0.0.1/24").unwrap().build().unwrap();
        let engine = stack.engine();
        let _listener = crate::TcpListener::bind(&stack, "10.0.0.1:80").unwrap();
        let left = if lost == LEFT { LOST } else { LEFT };
        // One that is followed by nobody is not made up.
        let is_traced = || {
            let invent = |link| engine.0.fabric.visit(left, |now, it| it.invent(now, LinkId(link), &[0; 60]));
            (0..9).any(|link| invent(link).flatten().is_some())
        };
        let trace = engine.trace(TraceOf::Invented, 9).unwrap();
        assert!(is_traced());
        engine.0.fabric.fail(lost, || ());
        // The lanes behind the one that has failed end it, too.
        drop(trace);
        assert!(!is_traced(), "{lost:?}");
        let page = engine.sockets(None, crate::SocketCursor::default(), 100).unwrap();
        // The home lane shows listeners.
        assert_eq!(page.rows.iter().any(|row| row.local.port() == 80), left == LEFT, "{:?}", page.rows);
        drop(engine.trace(TraceOf::Invented, 1).unwrap());
        drop(engine.count_steps().unwrap());
        engine.0.fabric.fail(left, || ());
        assert!(matches!(engine.count_steps(), Err(ChangeError::LaneFailed)), "none is left");
        assert!(matches!(engine.trace(TraceOf::Invented, 1), Err(ChangeError::LaneFailed)));
        assert!(engine.sockets(None, crate::SocketCursor::default(), 100).unwrap().rows.is_empty());
    }
}

/// How many frames have come to the other end of a wire.
fn come_to(end: &mut impl firelane_frame::Driver) -> usize {
    let (mut pools, mut drops) = (firelane_frame::Pools::default(), Default::default());
    end.receive(&mut pools, 1000, &mut firelane_frame::Chain::new(), &mut drops)
}

#[test]
fn what_a_limit_holds_ends_with_the_vnic_and_does_not_pass_it() {
    let engine =
        Engine::start(&EngineConfig { lanes: 1, threads: false, ..EngineConfig::default() }).unwrap();
    let link = engine.add_link(Mtu::ETHERNET).unwrap();
    let ends = [(); 2].map(|()| wire(WireConfig::default()));
    let [(here, _one), (there, mut other)] = ends;
    let from = engine.add_vnic(link, &vnic(1), VnicUser::Device(vec![here.into()])).unwrap();
    let slow = VnicConfig { maxbw: Some(BitRate::from_bps(1_000_000)), ..vnic(2) };
    let to = engine.add_vnic(link, &slow, VnicUser::Device(vec![there.into()])).unwrap();
    // With a part of it that has a limit of its own.
    let flow = FlowMatch { transport: Some(firelane_wire::IpProtocol::UDP), ..FlowMatch::default() };
    engine.add_flow(to, flow, Some(BitRate::from_bps(500_000)), Priority::High).unwrap();
    let _trace = engine.trace(TraceOf::Invented, 100).unwrap();
    let packet: crate::InventedPacket = "udp 10.0.0.1:5 10.0.0.2:9".parse().unwrap();
    let frame = packet.frame(vnic(1).mac, vnic(2).mac);
    let passes =
        |frame: &[u8]| engine.0.fabric.visit(LEFT, |now, lane| lane.invent(now, from, frame)).unwrap();
    for n in 0..100 {
        // Every second one is no flow's.
        let mut frame = frame.clone();
        frame.resize(1000, 0);
        if n % 2 == 0 {
            frame[12..14].copy_from_slice(&[0x88, 0xb5]);
        }
        assert!(passes(&frame).is_some());
    }
    let before = come_to(&mut other);
    assert!((1..20).contains(&before), "the limit holds: {before}");
    engine.remove_vnic(to).unwrap();
    assert_eq!(come_to(&mut other), 0, "behind a limit that is taken away first all of them pass");
}
