//! An engine with a seed chooses alike every time (`firelane lab --deterministic`).

use firelane::{Engine, EngineConfig, NetstackConfig, UdpSocket};

/// The ports that five sockets of a new engine draw.
fn ports(seed: Option<u64>) -> Vec<u16> {
    let engine = Engine::start(&EngineConfig { seed, ..EngineConfig::default() }).unwrap();
    let netstack = engine.add_netstack_with(&NetstackConfig::default()).unwrap();
    let stack = engine.stack(netstack).unwrap();
    let sockets: Vec<_> = (0..5).map(|_| UdpSocket::bind(&stack, "[::]:0").unwrap()).collect();
    sockets.iter().map(|socket| socket.local_addr().unwrap().port()).collect()
}

#[test]
fn the_same_seed_draws_the_same_ports() {
    assert_eq!(ports(Some(1)), ports(Some(1)));
    assert_ne!(ports(Some(1)), ports(Some(2)));
    assert_ne!(ports(None), ports(None));
}
