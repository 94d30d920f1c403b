//! Links with lanes of their own: their queues go from lane to lane while connections carry text, and nothing is lost.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use crate::echoed::{exchange, host, text};
use crate::ending::Ending;
use firelane::{ChangeError, Engine, Queue, Rings, Stack, TcpListener, TcpStream, WireConfig, wire};
use firelane_units::{DropReason, Mtu};

fn usable() -> Vec<usize> {
    let set = rustix::thread::sched_getaffinity(None).unwrap();
    (0..rustix::thread::CpuSet::MAX_CPU).filter(|&cpu| set.is_set(cpu)).collect()
}

/// Sends text to a service that echoes it, again and again until enough moves were made, and compares every byte.
fn exchange_all(client: &Stack, seed: u32, moves: &AtomicUsize) -> usize {
    let sent = text(seed);
    let mut rounds = 0;
    while rounds == 0 || moves.load(Ordering::Acquire) < MOVES {
        exchange(TcpStream::connect(client, "10.0.0.1:7").unwrap(), &sent);
        rounds += 1;
    }
    rounds
}

const MOVES: usize = 50;

/// Changes something again and again, by number, while text goes to the server and back, until enough changes were made.
fn while_text_is_echoed(server: &Stack, client: &Stack, change: impl Fn(usize) + Sync) {
    let listener = TcpListener::bind(server, "10.0.0.1:7").unwrap();
    thread::spawn(move || {
        while let Ok((stream, _)) = listener.accept() {
            thread::spawn(move || std::io::copy(&mut &stream, &mut &stream));
        }
    });
    let (ended, moves) = (AtomicBool::new(false), AtomicUsize::new(0));
    thread::scope(|scope| {
        let _ending = Ending(&ended);
        scope.spawn(|| {
            // One that fails would let the others run for ever.
            let mut nth = 0;
            while !ended.load(Ordering::Acquire) {
                change(nth);
                nth += 1;
                moves.store(nth, Ordering::Release);
            }
        });
        let streams: Vec<_> = (0..4)
            .map(|seed| {
                scope.spawn({
                    let moves = &moves;
                    move || exchange_all(client, seed, moves)
                })
            })
            .collect();
        streams.into_iter().for_each(|stream| assert!(stream.join().unwrap() > 0));
    });
}

#[test]
fn connections_go_on_while_the_queues_of_their_links_move() {
    let (left, right) = wire(WireConfig::default());
    let cpus = usable();
    let (one, server, near) = host(1, 2, cpus.len(), vec![left.into()]);
    let (other, client, far) = host(2, 1, cpus.len(), vec![right.into()]);
    while_text_is_echoed(&server, &client, |nth| {
        for (engine, link) in [(&one, near), (&other, far)] {
            let cpu = cpus[nth / 2 % cpus.len()];
            let wanted: &[usize] = if nth % 2 == 0 { &[cpu] } else { &[] };
            engine.set_link_cpus(link, wanted).unwrap();
            assert_eq!(engine.link_cpus(link).is_empty(), wanted.is_empty());
        }
    });
    for (engine, link) in [(&one, near), (&other, far)] {
        engine.set_link_cpus(link, &[]).unwrap();
        let snapshot = engine.snapshot();
        // TCP may have sent something twice while a queue moved; nothing was lost on the way.
        for reason in [DropReason::PortFull, DropReason::LaneFull, DropReason::NoPort] {
            assert_eq!(snapshot.counters.drops.of(reason), 0, "{:?}", snapshot.counters.drops);
        }
        assert!(snapshot.lanes.iter().all(|lane| lane.is_conserved()));
    }
}

/// A link of two wires, as a device with two rings.
#[test]
fn connections_go_on_while_their_links_send_by_more_rings_and_fewer() {
    let wires = [(); 2].map(|()| wire(WireConfig::default()));
    let (left, right): (Vec<_>, Vec<_>) =
        wires.into_iter().map(|(left, right)| (Queue::from(left), Queue::from(right))).unzip();
    let cpus = usable();
    let (one, server, near) = host(1, 2, cpus.len(), left);
    let (other, client, far) = host(2, 2, cpus.len(), right);
    let by = |sent| Rings { fetched: None, sent };
    let used = |engine: &Engine, link| engine.link_rings(link).iter().filter(|it| it.sent).count();
    while_text_is_echoed(&server, &client, |nth| {
        for (engine, link) in [(&one, near), (&other, far)] {
            engine.set_link_rings(link, by(Some(1))).unwrap();
            assert_eq!(used(engine, link), 1);
            // Two rings in one lane: it sends by one of them.
            let wanted: &[usize] = if nth % 2 == 0 { &cpus[..1] } else { &[] };
            engine.set_link_cpus(link, wanted).unwrap();
            engine.set_link_rings(link, by([None, Some(2)][nth % 2])).unwrap();
            assert_eq!(used(engine, link), if wanted.is_empty() { 2 } else { 1 });
        }
    });
    for (engine, link) in [(&one, near), (&other, far)] {
        assert!(engine.link_rings(link).iter().all(|it| it.fetched));
        for wrong in [0, 3] {
            let refused = engine.set_link_rings(link, by(Some(wrong)));
            assert!(matches!(refused, Err(ChangeError::NoRings { all: 2, .. })), "{refused:?}");
        }
        // Who is at the other end of a wire is not told by which to send.
        let refused = engine.set_link_rings(link, Rings { fetched: Some(1), sent: None });
        assert!(matches!(refused, Err(ChangeError::FixedRings { asked: 1, all: 2 })), "{refused:?}");
        let snapshot = engine.snapshot();
        for reason in [DropReason::PortFull, DropReason::LaneFull, DropReason::NoPort] {
            assert_eq!(snapshot.counters.drops.of(reason), 0, "{:?}", snapshot.counters.drops);
        }
        assert!(snapshot.lanes.iter().all(|lane| lane.is_conserved()));
    }
}

#[test]
fn what_cannot_be_changes_nothing() {
    let (left, _right) = wire(WireConfig::default());
    let cpus = usable();
    let (engine, _stack, link) = host(1, 1, 1, vec![left.into()]);
    let missing = (0..1024).rev().find(|cpu| !cpus.contains(cpu)).unwrap();
    for wrong in [vec![missing], vec![cpus[0], missing], vec![usize::MAX]] {
        match engine.set_link_cpus(link, &wrong) {
            Err(ChangeError::NoCpu { cpu, .. }) => assert!(wrong.contains(&cpu)),
            other => panic!("{wrong:?}: {other:?}"),
        }
        assert!(engine.link_cpus(link).is_empty(), "{wrong:?}");
    }
    // The one lane in reserve is free again after what failed.
    engine.set_link_cpus(link, &cpus[..1]).unwrap();
    assert_eq!(engine.link_cpus(link), &cpus[..1]);
    let (more, _far) = wire(WireConfig::default());
    let second = engine.add_link(Mtu::ETHERNET).unwrap();
    engine.add_uplink(second, vec![more.into()]).unwrap();
    engine.set_link_cpus(second, &cpus[..1]).unwrap();
    if let Some(&cpu) = cpus.get(1) {
        assert!(matches!(engine.set_link_cpus(second, &[cpu]), Err(ChangeError::NoLane(it)) if it == cpu));
        assert_eq!(engine.link_cpus(second), &cpus[..1], "it stays where it was");
        engine.set_link_cpus(second, &[]).unwrap();
        engine.remove_uplink(link).unwrap();
        engine.set_link_cpus(second, &[cpu]).unwrap();
        assert_eq!(engine.link_cpus(second), [cpu], "a lane that serves nobody serves another CPU");
    }
    let stub = engine.add_link(Mtu::ETHERSTUB).unwrap();
    assert!(matches!(engine.set_link_cpus(stub, &cpus[..1]), Err(ChangeError::NoQueues(it)) if it == stub));
}
