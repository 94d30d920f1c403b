//! Paced connections that something else holds up, too: a lane whose frames are all on the way, or a limit. The lane waits
//! for that, asleep, and goes on.

use std::sync::Arc;
use std::time::Duration;

use firelane_driver_memory::Conditions;
use firelane_frame::PoolsConfig;
use firelane_sim::{Client, HostConfig, Plan, Server, Sim, SocketConfig, StackConfig};
use firelane_tcp::TcpConfig;
use firelane_tcp::congestion::Algorithm;
use firelane_units::{BitRate, Bytes, Mtu};

/// Sends 2 MB over each of four connections; how often the sender's lane worked for it.
fn turns(algorithm: Algorithm, pools: PoolsConfig, maxbw: Option<BitRate>) -> u64 {
    let mut sim = Sim::new(1);
    let mut tcp = TcpConfig::default();
    tcp.flight.algorithm = algorithm;
    tcp.flight.pacing = true;
    let tcp = Arc::new(tcp);
    let sides = [1, 2].map(|number| {
        let host = sim.host(HostConfig { pools, ..HostConfig::default() }, Mtu::ETHERNET);
        sim.stack(host, &StackConfig { tcp: Arc::clone(&tcp), maxbw, ..StackConfig::new(number) })
    });
    let (rate, delay) = (Some(BitRate::from_mbps(400)), Duration::from_millis(50));
    let wire = Conditions { rate, delay, queue: Bytes(20_000_000), ..Conditions::default() };
    let (from, to) = (sim.uplink(0), sim.uplink(1));
    sim.connect(from, to, Mtu::ETHERNET, wire.clone(), wire);
    let sockets = SocketConfig::of(16 << 20);
    sim.spawn(Server::boxed(sides[1], sides[1].at(false, 80), sockets));
    sim.settle();
    for n in 0..4 {
        let plan = Plan::upload(n, 2_000_000);
        sim.spawn(Client::boxed(sides[0], sides[1].at(false, 80), plan, sockets, Duration::ZERO));
    }
    let limit = sim.now() + Duration::from_secs(30);
    assert!(sim.run_until(limit, |sim| sim.endings().len() == 8), "{algorithm:?} {pools:?} {maxbw:?}");
    sim.snapshots()[0].counters.turns
}

const FEW: PoolsConfig = PoolsConfig { small_slots: 256, large_slots: 4 };

#[test]
fn a_lane_without_frames_waits_for_them() {
    for algorithm in [Algorithm::Bbr, Algorithm::Cubic] {
        // 5,500 segments and their ACKs; an empty pool is looked at ten times in a millisecond.
        let turns = turns(algorithm, FEW, None);
        assert!(turns < 25_000, "{algorithm:?}: {turns}");
    }
}

#[test]
fn a_paced_connection_sleeps_while_a_limit_holds_it() {
    for algorithm in [Algorithm::Bbr, Algorithm::Cubic] {
        let turns = turns(algorithm, HostConfig::default().pools, Some(BitRate::from_mbps(20)));
        assert!(turns < 25_000, "{algorithm:?}: {turns}");
    }
}
