//! Lanes that move between CPUs while their connections carry text: nothing is lost, and wrong CPUs change nothing. And how long they
//! run at a time.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use crate::echoed::exchange_eight;
use crate::ending::Ending;
use firelane::{ChangeError, Engine, Stack, TcpListener, WireConfig, wire};

fn pair(lanes: usize) -> (Stack, Stack) {
    let (left, right) = wire(WireConfig::default());
    let stack = |end: firelane::Queue, n: u8| {
        let builder =
            Stack::builder().lanes(lanes).interface(end).mac(&format!("02:08:20:00:00:0{n}")).unwrap();
        builder.address(&format!("10.0.0.{n}/24")).unwrap().build().unwrap()
    };
    (stack(left.into(), 1), stack(right.into(), 2))
}

/// The CPUs of this process: where lanes are before anybody says so.
fn usable(engine: &Engine) -> Vec<usize> {
    let of_lanes = engine.lane_cpus();
    assert!(of_lanes.iter().all(|it| *it == of_lanes[0] && !it.is_empty()), "{of_lanes:?}");
    of_lanes[0].clone()
}

#[test]
fn connections_go_on_while_their_lanes_move() {
    let (server, client) = pair(2);
    let listener = TcpListener::bind(&server, "10.0.0.1:7").unwrap();
    thread::spawn(move || {
        while let Ok((stream, _)) = listener.accept() {
            thread::spawn(move || std::io::copy(&mut &stream, &mut &stream));
        }
    });
    let engines = [server.engine(), client.engine()];
    let cpus = usable(&engines[0]);
    let ended = AtomicBool::new(false);
    let moves = thread::scope(|scope| {
        let mover = scope.spawn(|| {
            let mut moves = 0;
            while !ended.load(Ordering::Acquire) || moves < 20 {
                let [first, second] = [moves % cpus.len(), (moves / 2) % cpus.len()].map(|n| cpus[n]);
                for engine in &engines {
                    engine.set_cpus(&[first, second]).unwrap();
                    assert_eq!(engine.lane_cpus(), [[first], [second]]);
                }
                moves += 1;
            }
            moves
        });
        let ending = Ending(&ended);
        exchange_eight(&client);
        drop(ending);
        mover.join().unwrap()
    });
    assert!(moves >= 20);
    for engine in &engines {
        engine.set_cpus(&[]).unwrap();
        assert_eq!(engine.lane_cpus(), [cpus.clone(), cpus.clone()]);
    }
}

#[test]
fn a_cpu_that_does_not_exist_is_refused_and_no_lane_moves() {
    let (server, _client) = pair(2);
    let engine = server.engine();
    let cpus = usable(&engine);
    engine.set_cpus(&cpus[..1]).unwrap();
    let before = engine.lane_cpus();
    let missing = (0..1024).rev().find(|cpu| !cpus.contains(cpu)).unwrap();
    for wrong in [vec![missing], vec![cpus[0], missing], vec![cpus[0], cpus[0], missing], vec![usize::MAX]] {
        match engine.set_cpus(&wrong) {
            Err(ChangeError::NoCpu { cpu, usable }) => {
                assert!(wrong.contains(&cpu) && usable == cpus, "{cpu} {usable:?}");
            }
            other => panic!("{wrong:?}: {other:?}"),
        }
        assert_eq!(engine.lane_cpus(), before, "{wrong:?}");
    }
}

#[test]
fn lanes_have_the_slice_that_is_said_and_the_kernels_again() {
    let (server, _client) = pair(2);
    let engine = server.engine();
    let before = engine.lane_slices();
    for wanted in [300, 100, 3000].map(Duration::from_micros) {
        engine.set_slice(Some(wanted)).unwrap();
        // A kernel that has one slice for all says nothing of it.
        let expected = if before[0].is_zero() { Duration::ZERO } else { wanted };
        assert_eq!(engine.lane_slices(), [expected; 2]);
    }
    engine.set_slice(None).unwrap();
    assert_eq!(engine.lane_slices(), before);
}
