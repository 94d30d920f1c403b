//! A path that becomes smaller in the middle of a transfer and says nothing: no ICMP, large packets vanish.

use std::time::Duration;

use firelane_driver_memory::Conditions;
use firelane_sim::{Client, HostConfig, Plan, Server, Sim, SocketConfig, StackConfig};
use firelane_units::{BitRate, Bytes, Mtu};

const BYTES: u64 = 6_000_000;
/// Half of the transfer at 20 Mb/s.
const SHRINKS_AFTER: Duration = Duration::from_millis(1200);

/// How long `BYTES` take when the path carries packets of `mtu` bytes from some time on, and again all from
/// `until` on.
fn upload(v6: bool, mtu: u16, until: Option<Duration>) -> Duration {
    let mut sim = Sim::new(3);
    let sides = [1, 2].map(|number| {
        let host = sim.host(HostConfig::default(), Mtu::ETHERNET);
        sim.stack(host, &StackConfig::new(number))
    });
    let wire = Conditions {
        rate: Some(BitRate::from_mbps(20)),
        delay: Duration::from_millis(10),
        queue: Bytes(100_000),
        ..Conditions::default()
    };
    let (from, to) = (sim.uplink(0), sim.uplink(1));
    let n = sim.connect(from, to, Mtu::ETHERNET, wire.clone(), wire.clone());
    let remote = sides[1].at(v6, 80);
    sim.spawn(Server::boxed(sides[1], remote, SocketConfig::of(1 << 20)));
    sim.settle();
    let start = sim.now();
    let small = Conditions { mtu: Mtu::new(mtu), ..wire.clone() };
    let forth = sim.wire(n).forth.clone();
    let later = forth.clone();
    sim.at(start + SHRINKS_AFTER, move |_| forth.set(small));
    if let Some(until) = until {
        sim.at(start + until, move |_| later.set(wire));
    }
    let config = SocketConfig::of(1 << 20);
    sim.spawn(Client::boxed(sides[0], remote, Plan::upload(7, BYTES), config, Duration::ZERO));
    assert!(sim.run_until(start + Duration::from_secs(120), Sim::is_over), "v6 {v6}: it ends");
    let took = sim.now().saturating_since(start);
    let lost = sim.wire(n).forth.counters().dropped_long;
    assert!((1..600).contains(&lost), "v6 {v6}, {mtu}: {lost} packets were too long");
    took
}

#[test]
fn a_silent_shrink_costs_some_time_outs_and_no_more() {
    for (v6, mtu) in [(false, 1400), (true, 1400), (true, 1280), (false, 1300), (false, 600)] {
        let took = upload(v6, mtu, None);
        // 2.5 s for the bytes, time-outs to find out, and a window to open again.
        assert!(took < Duration::from_secs(12), "v6 {v6}, {mtu}: {took:?}");
    }
}

#[test]
fn a_path_that_was_away_is_used_in_full_again() {
    let took = upload(false, 700, Some(Duration::from_secs(4)));
    assert!(took < Duration::from_secs(12), "{took:?}");
}
