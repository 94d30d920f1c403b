//! Lanes that the kernel has taken from their CPUs come back to them while connections carry text: nothing is lost.
//!
//! Alone in its file, because it tells this process' lanes from other threads by their names.

mod echoed;
mod ending;

use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use echoed::{exchange_eight, host};
use ending::Ending;
use firelane::{CpuNews, TcpListener, WireConfig, wire};
use firelane_units::LaneId;
use rustix::thread::{CpuSet, Pid, sched_getaffinity, sched_setaffinity};

/// The threads of all lanes of this process, those in reserve too.
fn lane_threads() -> Vec<Pid> {
    let tasks = fs::read_dir("/proc/self/task").unwrap().map(|task| task.unwrap().path());
    let is_lane = |name: &str| name.starts_with("lane") || name.starts_with("own");
    let lanes = tasks.filter(|task| fs::read_to_string(task.join("comm")).is_ok_and(|name| is_lane(&name)));
    let number = |task: std::path::PathBuf| task.file_name().unwrap().to_str().unwrap().parse().unwrap();
    lanes.map(|task| Pid::from_raw(number(task)).unwrap()).collect()
}

/// What the kernel does when a CPU goes off line: threads that were bound to it may run on all others.
fn take_away(cpu: usize, whole: &CpuSet) {
    let mut rest = *whole;
    rest.unset(cpu);
    for lane in lane_threads() {
        let is = sched_getaffinity(Some(lane)).unwrap();
        if is.count() == 1 && is.is_set(cpu) {
            sched_setaffinity(Some(lane), &rest).unwrap();
        }
    }
}

#[test]
fn connections_go_on_while_lanes_lose_their_cpu_and_come_back() {
    let whole = sched_getaffinity(None).unwrap();
    let cpus: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|&cpu| whole.is_set(cpu)).collect();
    let [first, .., last] = cpus[..] else {
        eprintln!("one CPU: no lane can go to another");
        return;
    };
    let (left, right) = wire(WireConfig::default());
    let (one, server, near) = host(1, 2, 1, vec![left.into()]);
    let (other, client, _) = host(2, 2, 1, vec![right.into()]);
    for engine in [&one, &other] {
        engine.set_cpus(&[first, last]).unwrap();
    }
    one.set_link_cpus(near, &[last]).unwrap();
    let listener = TcpListener::bind(&server, "10.0.0.1:7").unwrap();
    thread::spawn(move || {
        while let Ok((stream, _)) = listener.accept() {
            thread::spawn(move || std::io::copy(&mut &stream, &mut &stream));
        }
    });
    let back = |lane| CpuNews::Back { lane: LaneId(lane), cpu: last };
    let ended = AtomicBool::new(false);
    let rounds = thread::scope(|scope| {
        let mover = scope.spawn(|| {
            let mut rounds = 0;
            while !ended.load(Ordering::Acquire) || rounds < 20 {
                take_away(last, &whole);
                assert_ne!(one.lane_cpus()[1], [last]);
                assert_ne!(one.link_cpus(near), [last]);
                assert_eq!(one.return_lanes(), [back(1), back(2)]);
                assert_eq!(other.return_lanes(), [back(1)]);
                assert_eq!(
                    (one.lane_cpus(), one.link_cpus(near)),
                    (vec![vec![first], vec![last]], vec![last])
                );
                assert_eq!(other.lane_cpus(), [[first], [last]]);
                rounds += 1;
            }
            rounds
        });
        let ending = Ending(&ended);
        exchange_eight(&client);
        drop(ending);
        mover.join().unwrap()
    });
    assert!(rounds >= 20);
}
