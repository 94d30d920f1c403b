//! An engine with a seed chooses alike every time (`firelane lab --deterministic`).

use firelane::{Engine, EngineConfig, NetstackConfig, UdpSocket};

/// The ports that five sockets of a new engine draw.
fn ports(seed: Option<u64>) -> Vec<u16> {
    let engine = Engine::start(&EngineConfig { seed, ..EngineConfig::default() }).unwrap();
    drawn(&engine)
}

/// The same of a new netstack.
fn drawn(engine: &Engine) -> Vec<u16> {
    let netstack = engine.add_netstack_with(&NetstackConfig::default()).unwrap();
    let stack = engine.stack(netstack).unwrap();
    let sockets: Vec<_> = (0..5).map(|_| UdpSocket::bind(&stack, "[::]:0").unwrap()).collect();
    sockets.iter().map(|socket| socket.local_addr().unwrap().port()).collect()
}

#[test]
fn the_same_seed_draws_the_same_ports() {
    assert_eq!(ports(Some(1)), ports(Some(1)));
    assert_ne!(ports(Some(1)), ports(Some(2)));
}

/// S14: what one tenant's netstack draws says nothing of another's, and nothing of what the next process draws.
#[test]
fn s14_keys_are_drawn_for_each_start_and_each_netstack() {
    assert_ne!(ports(None), ports(None));
    let engine = Engine::start(&EngineConfig { seed: Some(1), ..EngineConfig::default() }).unwrap();
    assert_ne!(drawn(&engine), drawn(&engine));
}
