//! Netstacks with lanes of their own: whose connections go there and stay there, while others' are elsewhere.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::echoed::{exchange, exchange_eight, text};
use crate::ending::Ending;
use firelane::{
    ChangeError, Engine, EngineConfig, NetstackConfig, SocketCursor, Stack, TcpListener, TcpStream,
    UdpSocket, VnicConfig, VnicUser,
};
use firelane_units::{BitRate, LinkId, Mtu, NetstackId};

/// Connections that stand: as good as surely each lane has some.
const HELD: usize = 64;

fn usable() -> Vec<usize> {
    let set = rustix::thread::sched_getaffinity(None).unwrap();
    (0..rustix::thread::CpuSet::MAX_CPU).filter(|&cpu| set.is_set(cpu)).collect()
}

fn engine(lanes: usize, reserve: usize) -> (Engine, LinkId) {
    let engine = Engine::start(&EngineConfig { lanes, reserve, ..EngineConfig::default() }).unwrap();
    let link = engine.add_link(Mtu::ETHERNET).unwrap();
    (engine, link)
}

/// A host on the link, with lanes of its own on these CPUs.
fn host(engine: &Engine, link: LinkId, n: u8, cpus: &[usize]) -> (NetstackId, Stack) {
    let (id, _, stack) = host_with_vnic(engine, link, n, cpus);
    (id, stack)
}

fn host_with_vnic(engine: &Engine, link: LinkId, n: u8, cpus: &[usize]) -> (NetstackId, LinkId, Stack) {
    let id = engine.add_netstack_on(&NetstackConfig::default(), cpus).unwrap();
    let mut config = VnicConfig::new(format!("02:08:20:00:00:0{n}").parse().unwrap());
    // A limit that is kept, in whichever lane.
    config.maxbw = Some(BitRate::from_mbps(40_000));
    let vnic = engine.add_vnic(link, &config, VnicUser::Netstack(id)).unwrap();
    engine.add_address(vnic, format!("10.0.0.{n}/24").parse().unwrap()).unwrap();
    (id, vnic, engine.stack(id).unwrap())
}

/// Answers what it hears on port 7 until the engine ends.
fn serve(stack: &Stack) {
    let listener = TcpListener::bind(stack, "0.0.0.0:7").unwrap();
    thread::spawn(move || {
        while let Ok((stream, _)) = listener.accept() {
            thread::spawn(move || std::io::copy(&mut &stream, &mut &stream));
        }
    });
}

#[test]
fn connections_of_a_netstack_are_in_its_own_lanes_alone() {
    let cpus = usable();
    let (engine, link) = engine(2, cpus.len());
    let (server, stack) = host(&engine, link, 1, &cpus);
    let (client, near) = host(&engine, link, 2, &[]);
    serve(&stack);
    let held: Vec<_> = (0..HELD).map(|_| TcpStream::connect(&near, "10.0.0.1:7").unwrap()).collect();
    // Who has connected may be a moment ahead of the other end.
    let ends = || engine.snapshot().lanes.iter().map(|lane| lane.connections).collect::<Vec<_>>();
    let deadline = Instant::now() + Duration::from_secs(20);
    while ends().iter().sum::<usize>() < 2 * HELD {
        assert!(Instant::now() < deadline, "{:?}", ends());
        thread::sleep(Duration::from_millis(1));
    }
    let ends = ends();
    let (common, own) = ends.split_at(2);
    assert_eq!(common.iter().sum::<usize>(), HELD, "the client's ends: {common:?}");
    assert_eq!(own.iter().sum::<usize>(), HELD, "the server's ends: {own:?}");
    assert!(own.iter().all(|&count| count > 0), "spread over all of them: {own:?}");
    assert_eq!(engine.netstack_cpus(server), cpus);
    assert!(engine.netstack_cpus(client).is_empty());
    let sockets = engine.sockets(Some(server), SocketCursor::default(), usize::MAX).unwrap().rows;
    assert_eq!(sockets.len(), HELD + 1, "its connections and its listener");
    exchange_eight(&near);
    drop(held);
    // Datagrams, too, each way.
    let (asks, answers) =
        (UdpSocket::bind(&near, "10.0.0.2:53").unwrap(), UdpSocket::bind(&stack, "10.0.0.1:53").unwrap());
    for (from, to, there) in [(&asks, &answers, "10.0.0.1:53"), (&answers, &asks, "10.0.0.2:53")] {
        from.send_to(b"question", there).unwrap();
        let mut bytes = [0; 16];
        assert_eq!(to.recv_from(&mut bytes).unwrap().0, 8);
    }
    assert!(engine.snapshot().lanes.iter().all(|lane| lane.is_conserved()));
}

#[test]
fn a_netstacks_lanes_move_with_all_its_connections() {
    let cpus = usable();
    let (engine, link) = engine(1, cpus.len());
    let (server, stack) = host(&engine, link, 1, &cpus[..1]);
    let (_, near) = host(&engine, link, 2, &[]);
    serve(&stack);
    let ended = AtomicBool::new(false);
    thread::scope(|scope| {
        let _ending = Ending(&ended);
        scope.spawn(|| {
            // One that fails would let this run for ever.
            for nth in (0..cpus.len()).cycle().take(100_000) {
                let cpu = &cpus[nth..=nth];
                engine.set_netstack_cpus(server, cpu).unwrap();
                assert_eq!(engine.netstack_cpus(server), cpu);
                if ended.load(Ordering::Acquire) {
                    return;
                }
            }
        });
        let streams: Vec<_> = (0..4u32)
            .map(|seed| {
                let near = &near;
                scope.spawn(move || exchange(TcpStream::connect(near, "10.0.0.1:7").unwrap(), &text(seed)))
            })
            .collect();
        streams.into_iter().for_each(|stream| stream.join().unwrap());
    });
}

#[test]
fn what_cannot_be_is_refused_and_changes_nothing() {
    let cpus = usable();
    let missing = (0..1024).rev().find(|cpu| !cpus.contains(cpu)).unwrap();
    let (engine, link) = engine(1, 1);
    let config = NetstackConfig::default();
    for wrong in [vec![missing], vec![cpus[0], missing]] {
        let refused = engine.add_netstack_on(&config, &wrong);
        assert!(matches!(refused, Err(ChangeError::NoCpu { .. })), "{refused:?}");
    }
    let refused = engine.add_netstack_on(&config, &[cpus[0], cpus[0]]);
    assert!(matches!(refused, Err(ChangeError::NoLane(cpu)) if cpu == cpus[0]), "{refused:?}");
    // The lane that was about to be given rests again.
    let last = cpus[cpus.len() - 1];
    let (one, _) = host(&engine, link, 1, &[last]);
    assert_eq!(engine.netstack_cpus(one), [last]);
    let (shared, _) = host(&engine, link, 2, &[]);
    for (id, asked, own) in [(one, vec![], 1), (one, vec![cpus[0], last], 1), (shared, vec![last], 0)] {
        let refused = engine.set_netstack_cpus(id, &asked);
        let is_told = matches!(refused, Err(ChangeError::FixedLanes { own: is, asked: it }) if is == own && it == asked.len());
        assert!(is_told, "{refused:?}");
    }
    assert!(matches!(engine.set_netstack_cpus(one, &[missing]), Err(ChangeError::NoCpu { .. })));
    // Who names the same CPU has the same lane, which goes nowhere then without the other.
    let (two, vnic, _) = host_with_vnic(&engine, link, 3, &[last]);
    if last != cpus[0] {
        let refused = engine.set_netstack_cpus(one, &cpus[..1]);
        assert!(matches!(refused, Err(ChangeError::SharedLane(cpu)) if cpu == last), "{refused:?}");
        let refused = engine.add_netstack_on(&config, &cpus[..1]);
        assert!(matches!(refused, Err(ChangeError::NoLane(cpu)) if cpu == cpus[0]), "{refused:?}");
    }
    engine.remove_vnic(vnic).unwrap();
    engine.remove_netstack(two).unwrap();
    engine.set_netstack_cpus(one, &cpus[..1]).unwrap();
    assert_eq!(engine.netstack_cpus(one), &cpus[..1]);
}
