//! TCP by a limit: what a program gets of it. The limit is at the receiver, whose link cannot make the sender wait.

use std::time::Duration;

use firelane_driver_memory::Conditions;
use firelane_sim::{Client, HostConfig, Plan, Server, Sim, SocketConfig, StackConfig};
use firelane_units::{BitRate, Bytes, Mtu};

/// Uploads for about five seconds through a limit at the receiver; how much of it the text had.
fn share(mtu: Mtu, maxbw: BitRate, seed: u64) -> f64 {
    let mut sim = Sim::new(seed);
    let limits = [None, Some(maxbw)];
    let sides = [1, 2].map(|number: u8| {
        let host = sim.host(HostConfig::default(), mtu);
        sim.stack(host, &StackConfig { maxbw: limits[usize::from(number) - 1], ..StackConfig::new(number) })
    });
    let wire = Conditions {
        rate: Some(BitRate::from_mbps(1000)),
        delay: Duration::from_micros(50),
        queue: Bytes(20_000_000),
        ..Conditions::default()
    };
    let (from, to) = (sim.uplink(0), sim.uplink(1));
    sim.connect(from, to, mtu, wire.clone(), wire);
    let sockets = SocketConfig::of(1 << 20);
    sim.spawn(Server::boxed(sides[1], sides[1].at(false, 80), sockets));
    sim.settle();
    let bytes = maxbw.bytes_in(Duration::from_secs(5)).0;
    let plan = Plan::upload(0, bytes);
    sim.spawn(Client::boxed(sides[0], sides[1].at(false, 80), plan, sockets, Duration::ZERO));
    let start = sim.now();
    assert!(sim.run_until(start + Duration::from_secs(60), |sim| sim.endings().len() == 2));
    5.0 / sim.now().saturating_since(start).as_secs_f64()
}

#[test]
fn text_gets_nearly_all_of_a_limit_however_few_frames_that_is() {
    let jumbo = Mtu::new(9000).unwrap();
    let mut told = Vec::new();
    for (mtu, mbps) in [(Mtu::ETHERNET, 1), (Mtu::ETHERNET, 2), (Mtu::ETHERNET, 10), (jumbo, 2), (jumbo, 10)]
    {
        let shares = [1, 2, 3].map(|seed| share(mtu, BitRate::from_mbps(mbps), seed));
        told.push((mtu.bytes(), mbps, shares));
    }
    // Headers take 4.3 % of frames of 1,514 bytes.
    assert!(told.iter().flat_map(|it| it.2).all(|share| share > 0.94), "{told:.3?}");
}
