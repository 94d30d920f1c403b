//! Flows with lanes of their own: the connections and sockets of a service go there, those of others do not, and what there was
//! before goes on where it is.

use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Waker};
use std::thread;
use std::time::{Duration, Instant};

use crate::echoed::{exchange, text};
use crate::ending::Ending;
use firelane::{
    ChangeError, Engine, EngineConfig, FlowMatch, Forwarding, NatConfig, NetstackConfig, Stack, StreamConfig,
    TcpListener, TcpStream, UdpSocket, VnicConfig, VnicUser, WireConfig, wire,
};
use firelane_units::{
    BitRate, FlowId, LinkId, Mtu, NatAction, NatLimits, NatPorts, NatRule, NatTarget, NetstackId, Priority,
};
use firelane_wire::IpProtocol;

const LIMIT: Duration = Duration::from_secs(20);

fn usable() -> Vec<usize> {
    let set = rustix::thread::sched_getaffinity(None).unwrap();
    (0..rustix::thread::CpuSet::MAX_CPU).filter(|&cpu| set.is_set(cpu)).collect()
}

struct World {
    engine: Engine,
    link: LinkId,
    server: (NetstackId, LinkId, Stack),
    near: Stack,
}

impl World {
    /// A server at 10.0.0.1 and a client at 10.0.0.2, in one lane, with as many in reserve.
    fn new(reserve: usize) -> Self {
        Self::with(1, reserve)
    }

    fn with(lanes: usize, reserve: usize) -> Self {
        let engine = Engine::start(&EngineConfig { lanes, reserve, ..EngineConfig::default() }).unwrap();
        let link = engine.add_link(Mtu::ETHERNET).unwrap();
        let host = |n: u8| {
            let id = engine.add_netstack_with(&NetstackConfig::default()).unwrap();
            let config = VnicConfig::new(format!("02:08:20:00:00:0{n}").parse().unwrap());
            let vnic = engine.add_vnic(link, &config, VnicUser::Netstack(id)).unwrap();
            engine.add_address(vnic, format!("10.0.0.{n}/24").parse().unwrap()).unwrap();
            (id, vnic, engine.stack(id).unwrap())
        };
        let (server, (_, _, near)) = (host(1), host(2));
        Self { engine, link, server, near }
    }

    /// The flow of what the server has at these ports.
    fn service(&self, ports: &str) -> FlowId {
        self.flow(FlowMatch { local_port: Some(ports.parse().unwrap()), ..FlowMatch::default() })
    }

    fn flow(&self, rule: FlowMatch) -> FlowId {
        self.engine.add_flow(self.server.1, rule, None, Priority::Medium).unwrap()
    }

    fn connect(&self, port: u16) -> TcpStream {
        TcpStream::connect(&self.near, ("10.0.0.1", port)).unwrap()
    }

    /// Connections to port 7 begin, carry text and end while the flow of that port gets lanes, others, and none.
    fn exchange_while_lanes_change(&self) {
        let (cpus, flow) = (usable(), self.service("7"));
        let ended = AtomicBool::new(false);
        thread::scope(|scope| {
            let _ending = Ending(&ended);
            scope.spawn(|| {
                let mut nth = 0;
                while !ended.load(Ordering::Acquire) {
                    let own = [&cpus[nth % cpus.len()..][..1], &[]][nth / 2 % 2];
                    self.engine.set_flow_cpus(flow, own).unwrap();
                    nth += 1;
                    thread::sleep(Duration::from_micros(500));
                }
            });
            let stream = |seed: u32| {
                thread::sleep(Duration::from_millis(u64::from(seed) * 3));
                exchange(self.connect(7), &text(seed));
            };
            let streams: Vec<_> = (0..16).map(|seed| scope.spawn(move || stream(seed))).collect();
            streams.into_iter().for_each(|stream| stream.join().unwrap());
        });
    }

    /// Waits until the lanes have so many connections, common ones first.
    fn wait_for(&self, wanted: &[usize]) {
        let ends = || self.engine.snapshot().lanes.iter().map(|it| it.connections).collect::<Vec<_>>();
        let deadline = Instant::now() + LIMIT;
        while ends() != wanted {
            assert!(Instant::now() < deadline, "{:?}, not {wanted:?}", ends());
            thread::sleep(Duration::from_millis(1));
        }
    }
}

/// Answers what it hears on a port until the engine ends.
fn serve(stack: &Stack, port: u16) {
    let listener = TcpListener::bind(stack, ("0.0.0.0", port)).unwrap();
    thread::spawn(move || {
        while let Ok((stream, _)) = listener.accept() {
            thread::spawn(move || std::io::copy(&mut &stream, &mut &stream));
        }
    });
}

fn echoes(stream: &TcpStream, word: &[u8]) {
    use std::io::{Read, Write};
    (&mut &*stream).write_all(word).unwrap();
    let mut back = vec![0; word.len()];
    (&mut &*stream).read_exact(&mut back).unwrap();
    assert_eq!(back, word);
}

#[test]
fn a_service_is_in_its_lane_and_what_was_there_before_stays_and_goes_on() {
    let world = World::new(1);
    let cpu = usable()[0];
    let stack = &world.server.2;
    serve(stack, 7);
    serve(stack, 9);
    let before: Vec<_> = (0..3).map(|_| world.connect(7)).collect();
    world.wait_for(&[6, 0]);
    let flow = world.service("7");
    assert!(world.engine.flow_cpus(flow).is_empty());
    world.engine.set_flow_cpus(flow, &[cpu]).unwrap();
    assert_eq!(world.engine.flow_cpus(flow), [cpu]);
    // A listener that was there before is in the new lane, too, and one of another service is not asked about it.
    let after: Vec<_> = (0..5).map(|_| world.connect(7)).collect();
    let others: Vec<_> = (0..2).map(|_| world.connect(9)).collect();
    world.wait_for(&[6 + 5 + 4, 5]);
    for stream in before.iter().chain(&after).chain(&others) {
        echoes(stream, b"where it is");
    }
    // What begins after the flow has lost its lane is with the others again, and what is in the lane goes on.
    world.engine.set_flow_cpus(flow, &[]).unwrap();
    let last = world.connect(7);
    world.wait_for(&[6 + 5 + 4 + 2, 5]);
    before.iter().chain(&after).chain([&last]).for_each(|stream| echoes(stream, b"still"));
    // Its lane serves it until the last of them has ended.
    drop((before, after, others, last));
    world.wait_for(&[0, 0]);
    let deadline = Instant::now() + LIMIT;
    loop {
        world.engine.settle();
        // A lane that rests is bound to no CPU: another service may have it on another one.
        let next = world.service("11");
        let given = world.engine.set_flow_cpus(next, &usable()[usable().len() - 1..]);
        world.engine.remove_flow(next).unwrap();
        if given.is_ok() {
            break;
        }
        assert!(Instant::now() < deadline, "{given:?}");
        thread::sleep(Duration::from_millis(5));
    }
    assert!(world.engine.snapshot().lanes.iter().all(|lane| lane.is_conserved()));
}

#[test]
fn a_lane_comes_and_goes_under_load_and_no_byte_is_lost() {
    for lanes in [1, 3] {
        let world = World::with(lanes, 2);
        serve(&world.server.2, 7);
        world.exchange_while_lanes_change();
    }
}

/// All that arrives comes to the lane that translates first, and goes to the lanes of the sockets from there.
#[test]
fn the_same_holds_where_addresses_are_translated() {
    for lanes in [1, 3] {
        let world = World::with(lanes, 2);
        let (id, vnic, ref stack) = world.server;
        let mapped = NatRule::new(vnic, NatAction::Map(NatTarget::OfLink, NatPorts::Same));
        let config = NatConfig { rules: vec![mapped], limits: NatLimits::default() };
        world.engine.set_nat(id, config).unwrap();
        serve(stack, 7);
        world.exchange_while_lanes_change();
    }
}

/// While things are not yet where they would begin now, all lanes are asked for what is nowhere, once.
#[test]
fn what_nobody_has_is_refused_once_while_others_are_where_they_were() {
    for is_translated in [false, true] {
        let world = World::new(2);
        let (id, vnic, ref stack) = world.server;
        if is_translated {
            let mapped = NatRule::new(vnic, NatAction::Map(NatTarget::OfLink, NatPorts::Same));
            let config = NatConfig { rules: vec![mapped], limits: NatLimits::default() };
            world.engine.set_nat(id, config).unwrap();
        }
        serve(stack, 7);
        let held = world.connect(7);
        echoes(&held, b"before");
        let flow = world.service("7-9");
        world.engine.set_flow_cpus(flow, &usable()[..1]).unwrap();
        let asks = UdpSocket::bind(&world.near, "10.0.0.2:999").unwrap();
        asks.connect("10.0.0.1:8").unwrap();
        asks.send(b"nobody").unwrap();
        let refused = asks.recv(&mut [0; 16]).unwrap_err();
        assert_eq!(refused.kind(), std::io::ErrorKind::ConnectionRefused, "{is_translated}");
        let refused = TcpStream::connect(&world.near, "10.0.0.1:9").map(drop).unwrap_err();
        assert_eq!(refused.kind(), std::io::ErrorKind::ConnectionRefused, "{is_translated}");
        echoes(&held, b"after");
        // Nothing goes round: what is handed on now are acknowledgments that were due.
        let handed = || world.engine.snapshot().lanes.iter().map(|it| it.counters.handed).sum::<u64>();
        let before = handed();
        thread::sleep(Duration::from_millis(50));
        let since = handed() - before;
        assert!(since < 20, "{is_translated}: {since}");
    }
}

#[test]
fn datagrams_of_a_service_go_to_its_lane_and_a_socket_from_before_is_found() {
    let world = World::new(1);
    let (cpu, stack) = (usable()[0], &world.server.2);
    let early = UdpSocket::bind(stack, "10.0.0.1:53").unwrap();
    let flow = world.service("53-54");
    world.engine.set_flow_cpus(flow, &[cpu]).unwrap();
    let late = UdpSocket::bind(stack, "10.0.0.1:54").unwrap();
    let asks = UdpSocket::bind(&world.near, "10.0.0.2:999").unwrap();
    for (answers, there) in [(&early, "10.0.0.1:53"), (&late, "10.0.0.1:54")] {
        asks.send_to(b"question", there).unwrap();
        let mut bytes = [0; 16];
        let (count, from) = answers.recv_from(&mut bytes).unwrap();
        assert_eq!((count, from), (8, "10.0.0.2:999".parse().unwrap()));
        answers.send_to(b"answer", from).unwrap();
        assert_eq!(asks.recv_from(&mut bytes).unwrap().0, 6);
        // Its netstack's own programs find it as well.
        let inside = UdpSocket::bind(stack, "10.0.0.1:0").unwrap();
        inside.send_to(b"word", there).unwrap();
        assert_eq!(answers.recv_from(&mut bytes).unwrap().0, 4);
    }
    // Whoever has the port has it, in whichever lane he is.
    for there in ["10.0.0.1:53", "10.0.0.1:54"] {
        let taken = UdpSocket::bind(stack, there).map(drop);
        assert!(taken.is_err_and(|error| error.kind() == std::io::ErrorKind::AddrInUse), "{there}");
    }
    assert!(world.engine.snapshot().lanes[1].counters.entered() > 0);
}

/// A datagram socket has its port before its lane, so that a service may have any of those that are drawn for others.
#[test]
fn datagrams_of_a_service_go_to_its_lane_at_ports_that_are_drawn_as_well() {
    let world = World::new(1);
    let (cpu, stack) = (usable()[0], &world.server.2);
    let rule = FlowMatch {
        transport: Some(IpProtocol::UDP),
        local_port: Some("40000-65535".parse().unwrap()),
        ..FlowMatch::default()
    };
    world.engine.set_flow_cpus(world.flow(rule), &[cpu]).unwrap();
    let asks = UdpSocket::bind(&world.near, "10.0.0.2:999").unwrap();
    let entered = || world.engine.snapshot().lanes[1].counters.entered();
    let exchange = |answers: &UdpSocket| {
        asks.send_to(b"question", answers.local_addr().unwrap()).unwrap();
        let mut bytes = [0; 16];
        let (count, from) = answers.recv_from(&mut bytes).unwrap();
        assert_eq!(count, 8);
        answers.send_to(b"answer", from).unwrap();
        assert_eq!(asks.recv_from(&mut bytes).unwrap().0, 6);
    };
    exchange(&UdpSocket::bind(stack, "10.0.0.1:39999").unwrap());
    assert_eq!(entered(), 0, "no port of the service");
    exchange(&UdpSocket::bind(stack, "10.0.0.1:50000").unwrap());
    assert!(entered() > 0, "it is in its lane");
    (0..64).for_each(|_| exchange(&UdpSocket::bind(stack, "10.0.0.1:0").unwrap()));
}

#[test]
fn connections_of_a_netstack_with_itself_are_where_both_ends_are_found() {
    let world = World::new(1);
    let stack = &world.server.2;
    serve(stack, 7);
    let flow = world.service("7");
    world.engine.set_flow_cpus(flow, &[usable()[0]]).unwrap();
    let own: Vec<_> = (0..4).map(|_| TcpStream::connect(stack, "10.0.0.1:7").unwrap()).collect();
    own.iter().for_each(|stream| echoes(stream, b"inside"));
    world.wait_for(&[8, 0]);
    exchange(TcpStream::connect(stack, "127.0.0.1:7").unwrap(), &text(1));
}

#[test]
fn a_connection_that_binds_the_port_of_a_service_is_in_its_lane() {
    let world = World::new(1);
    serve(&world.near, 7);
    let flow = world.service("2000");
    world.engine.set_flow_cpus(flow, &[usable()[0]]).unwrap();
    let (local, remote) = ("10.0.0.1:2000".parse().unwrap(), "10.0.0.2:7".parse().unwrap());
    let bound = TcpStream::begin_from(&world.server.2, Some(local), remote, StreamConfig::default()).unwrap();
    let deadline = Instant::now() + LIMIT;
    while bound.poll_connected(&mut Context::from_waker(Waker::noop())).map(Result::unwrap).is_pending() {
        assert!(Instant::now() < deadline, "nobody answers");
        thread::sleep(Duration::from_millis(1));
    }
    echoes(&bound, b"from a port");
    world.wait_for(&[1, 1]);
    // Ports that are drawn are nobody's service.
    let wide = world.service("30000-65535");
    world.engine.set_flow_cpus(wide, &[usable()[0]]).unwrap();
    let drawn: Vec<_> = (0..4).map(|_| TcpStream::connect(&world.server.2, "10.0.0.2:7").unwrap()).collect();
    drawn.iter().for_each(|stream| echoes(stream, b"drawn"));
}

#[test]
fn a_routers_flow_has_lanes_if_it_names_an_address() {
    let world = World::new(1);
    let (id, _, stack) = &world.server;
    serve(stack, 7);
    let any = world.service("7");
    world.engine.set_flow_cpus(any, &[usable()[0]]).unwrap();
    let first = world.connect(7);
    world.wait_for(&[1, 1]);
    let forwarding = Forwarding { v6: false, ..Forwarding::ON };
    world.engine.tune(*id, &NetstackConfig { forwarding, ..NetstackConfig::default() }).unwrap();
    let second = world.connect(7);
    world.wait_for(&[3, 1]);
    let named = FlowMatch {
        local_ip: Some("10.0.0.1/32".parse().unwrap()),
        local_port: Some("7".parse().unwrap()),
        ..FlowMatch::default()
    };
    let named = world.flow(named);
    world.engine.set_flow_cpus(named, &[usable()[0]]).unwrap();
    let third = world.connect(7);
    world.wait_for(&[4, 2]);
    [&first, &second, &third].into_iter().for_each(|stream| echoes(stream, b"on"));
}

#[test]
fn what_cannot_have_lanes_is_refused_and_changes_nothing() {
    let world = World::new(1);
    let cpus = usable();
    let missing = (0..1024).rev().find(|cpu| !cpus.contains(cpu)).unwrap();
    let remote = FlowMatch { remote_ip: Some("10.0.0.2/32".parse().unwrap()), ..FlowMatch::default() };
    let flow = world.flow(remote);
    let refused = world.engine.set_flow_cpus(flow, &cpus[..1]);
    assert!(matches!(refused, Err(ChangeError::NoService)), "{refused:?}");
    let service = world.service("7");
    let refused = world.engine.set_flow_cpus(service, &[missing]);
    assert!(matches!(refused, Err(ChangeError::NoCpu { cpu, .. }) if cpu == missing), "{refused:?}");
    let refused = world.engine.set_flow_cpus(service, &[cpus[0], cpus[0]]);
    assert!(matches!(refused, Err(ChangeError::NoLane(_))), "{refused:?}");
    assert!(world.engine.flow_cpus(service).is_empty());
    let refused = world.engine.set_flow_cpus(FlowId(999), &[]);
    assert!(matches!(refused, Err(ChangeError::NoFlow(_))), "{refused:?}");
    // What passes a device has one lane.
    let (near, _far) = wire(WireConfig::default());
    let config = VnicConfig::new("02:08:20:00:00:09".parse().unwrap());
    let device = world.engine.add_vnic(world.link, &config, VnicUser::Device(vec![near.into()])).unwrap();
    let of_device = world.engine.add_flow(device, remote, None, Priority::Medium).unwrap();
    let refused = world.engine.set_flow_cpus(of_device, &[cpus[0], cpus[cpus.len() - 1]]);
    assert!(matches!(refused, Err(ChangeError::OneLane(2))), "{refused:?}");
    world.engine.set_flow_cpus(of_device, &cpus[..1]).unwrap();
    assert_eq!(world.engine.flow_cpus(of_device), &cpus[..1]);
    world.engine.set_flow_maxbw(of_device, Some(BitRate::from_mbps(1))).unwrap();
    world.engine.remove_vnic(device).unwrap();
}

#[test]
fn very_many_flows_come_change_and_go() {
    let world = World::new(1);
    let (end, _other) = wire(WireConfig::default());
    let config = VnicConfig::new("02:08:20:00:00:09".parse().unwrap());
    let device = world.engine.add_vnic(world.link, &config, VnicUser::Device(vec![end.into()])).unwrap();
    let rule = |nth: u32| FlowMatch {
        remote_ip: format!("10.1.{}.{}/32", nth >> 8, nth & 255).parse().ok(),
        ..FlowMatch::default()
    };
    for owner in [world.server.1, device] {
        let add = |nth| world.engine.add_flow(owner, rule(nth), None, Priority::Medium).unwrap();
        let flows: Vec<_> = (0..10_000).map(add).collect();
        let limit = |flow| world.engine.set_flow_maxbw(flow, Some(BitRate::from_mbps(10))).unwrap();
        flows.iter().copied().for_each(limit);
        let known = world.engine.snapshot().flows;
        assert!(flows.iter().all(|flow| known.contains_key(flow)));
        flows.iter().for_each(|&flow| world.engine.remove_flow(flow).unwrap());
        let known = world.engine.snapshot().flows;
        assert!(!flows.iter().any(|flow| known.contains_key(flow)));
    }
}
