//! Buffers that follow the path: what a long one carries when the program leaves their sizes to the stack.

use std::time::Duration;

use firelane_driver_memory::Conditions;
use firelane_sim::{Client, HostConfig, Plan, Server, Sim, SocketConfig, StackConfig};
use firelane_tcp::Tuning;
use firelane_tcp::congestion::Algorithm;
use firelane_units::{BitRate, Bytes, Mtu};

const BYTES: u64 = 8_000_000;
const LIMIT: Duration = Duration::from_secs(60);
const SMALL: usize = 64 << 10;
const LARGE: usize = 4 << 20;

/// How long `BYTES` take over 100 Mb/s and a round trip of 100 ms, with receive buffers that begin small. `pause` is
/// how long the reader waits between reads of 16 KiB.
fn upload(autotune: bool, pause: Duration) -> Duration {
    let mut receiver = SocketConfig::of(SMALL);
    receiver.options.tuning.receive = autotune;
    carry(SocketConfig::of(LARGE), receiver, pause)
}

/// The same for a sender whose buffer begins small.
fn send_from(algorithm: Algorithm, tuning: Tuning, unsent_limit: Option<u32>) -> Duration {
    let mut sender = SocketConfig::of(SMALL);
    let options = &mut sender.options;
    (options.tuning, options.unsent_limit, options.congestion) = (tuning, unsent_limit, Some(algorithm));
    carry(sender, SocketConfig::of(LARGE), Duration::ZERO)
}

fn carry(sender: SocketConfig, receiver: SocketConfig, pause: Duration) -> Duration {
    let mut sim = Sim::new(1);
    let sides = [1, 2].map(|number| {
        let host = sim.host(HostConfig::default(), Mtu::ETHERNET);
        sim.stack(host, &StackConfig::new(number))
    });
    let wire = Conditions {
        rate: Some(BitRate::from_mbps(100)),
        delay: Duration::from_millis(50),
        queue: Bytes(4 << 20),
        ..Conditions::default()
    };
    let (from, to) = (sim.uplink(0), sim.uplink(1));
    sim.connect(from, to, Mtu::ETHERNET, wire.clone(), wire);
    sim.spawn(Server::boxed(sides[1], sides[1].at(false, 80), receiver));
    sim.settle();
    let pace = if pause.is_zero() { (64 << 10, pause) } else { (16 << 10, pause) };
    let plan = Plan { pace, ..Plan::upload(7, BYTES) };
    sim.spawn(Client::boxed(sides[0], sides[1].at(false, 80), plan, sender, Duration::ZERO));
    let start = sim.now();
    assert!(sim.run_until(start + LIMIT, Sim::is_over), "it ends");
    sim.now().saturating_since(start)
}

#[test]
fn a_receive_buffer_grows_to_what_the_path_carries() {
    // A window of 64 KiB carries 5 Mb/s; the path 100.
    let fixed = upload(false, Duration::ZERO);
    assert!(fixed > Duration::from_secs(10), "{fixed:?}");
    let grown = upload(true, Duration::ZERO);
    assert!(grown < Duration::from_secs(3), "{grown:?}");
}

#[test]
fn a_slow_reader_gets_no_large_buffer() {
    // 16 KiB per 20 ms: the reader is the limit, and everything takes as long as it takes to read.
    let fixed = upload(false, Duration::from_millis(20));
    let grown = upload(true, Duration::from_millis(20));
    assert!(grown <= fixed && grown > Duration::from_secs(9), "{fixed:?} {grown:?}");
}

#[test]
fn a_send_buffer_grows_with_the_congestion_window() {
    let fixed = send_from(Algorithm::Cubic, Tuning { send: false, receive: true }, None);
    assert!(fixed > Duration::from_secs(10), "SO_SNDBUF was set: {fixed:?}");
    for algorithm in Algorithm::ALL {
        let grown = send_from(algorithm, Tuning::BOTH, None);
        assert!(grown < Duration::from_secs(3), "{algorithm:?}: {grown:?}");
    }
}

#[test]
fn what_may_be_unsent_does_not_hinder_a_send_buffer_to_grow() {
    let limited = send_from(Algorithm::Cubic, Tuning::BOTH, Some(32 << 10));
    assert!(limited < Duration::from_secs(3), "{limited:?}");
}
