//! What Fast Open is for: a question and its answer in one round trip instead of two, over both families, and lanes that
//! tell each other of cookies.

use std::sync::Arc;
use std::time::Duration;

use firelane_driver_memory::Conditions;
use firelane_sim::{Client, HostConfig, Plan, Server, Sim, SocketConfig, StackConfig};
use firelane_tcp::congestion::Algorithm;
use firelane_tcp::{FastOpenPolicy, TcpConfig};
use firelane_units::Mtu;

const DELAY: Duration = Duration::from_millis(20);

/// How long each of three sessions takes of which the second and third know what the first has learned.
fn sessions(v6: bool, lanes: u16, algorithm: Algorithm, policy: FastOpenPolicy) -> ([Duration; 3], u64) {
    let mut sim = Sim::new(5);
    let sides = [1, 2].map(|number| {
        let host = sim.host(HostConfig { lanes, ..HostConfig::default() }, Mtu::ETHERNET);
        let tcp = Arc::new(TcpConfig { fast_open: policy, ..TcpConfig::default() });
        sim.stack(host, &StackConfig { tcp, ..StackConfig::new(number) })
    });
    let wire = Conditions { delay: DELAY, ..Conditions::default() };
    let (from, to) = (sim.uplink(0), sim.uplink(1));
    sim.connect(from, to, Mtu::ETHERNET, wire.clone(), wire);
    let remote = sides[1].at(v6, 80);
    let mut sockets = SocketConfig::of(1 << 16);
    (sockets.options.fast_open, sockets.options.fast_open_queue) = (true, 16);
    sockets.options.congestion = Some(algorithm);
    sim.spawn(Server::boxed(sides[1], remote, sockets));
    sim.settle();
    // The neighbours learn each other first.
    let mut session = |seed| {
        let start = sim.now();
        sim.spawn(Client::boxed(
            sides[0],
            remote,
            Plan::requests(seed, 1, 100, 1000),
            sockets,
            Duration::ZERO,
        ));
        assert!(sim.run_until(start + Duration::from_secs(10), Sim::is_over), "session {seed} ends");
        sim.now().saturating_since(start)
    };
    session(1);
    let took = [session(2), session(3), session(4)];
    (took, sim.snapshots().iter().map(|it| it.fast_open.active).sum())
}

#[test]
fn a_known_server_answers_a_round_trip_earlier() {
    use Algorithm::{Bbr, Cubic};
    for (v6, lanes, algorithm) in
        [(false, 1, Cubic), (true, 1, Cubic), (false, 4, Cubic), (true, 4, Cubic), (false, 1, Bbr)]
    {
        let (plain, none) = sessions(v6, lanes, algorithm, FastOpenPolicy::new(0));
        let (fast, active) = sessions(v6, lanes, algorithm, FastOpenPolicy::new(3));
        assert_eq!((none, active), (0, 3), "v6 {v6}, {lanes} lanes, {algorithm:?}");
        for (plain, fast) in plain.into_iter().zip(fast) {
            let saved = plain.saturating_sub(fast);
            assert!(saved > DELAY * 2 - Duration::from_millis(2), "v6 {v6}, {lanes}: {plain:?} and {fast:?}");
        }
    }
}
