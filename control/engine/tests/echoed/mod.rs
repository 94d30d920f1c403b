//! Text that a service echoes while something happens to the lanes that carry it: every byte comes back.
#![allow(dead_code, reason = "each test file needs some of it")]

use std::io::{Read, Write};
use std::net::Shutdown;
use std::thread;

use firelane::{Engine, EngineConfig, Queue, Stack, TcpConfig, TcpStream, VnicConfig, VnicUser};
use firelane_units::{LinkId, Mtu};

/// A megabyte, another one for each seed.
pub(crate) fn text(seed: u32) -> Vec<u8> {
    (0..1_000_000u32).map(|n| (n.wrapping_mul(seed + 3) % 251) as u8).collect()
}

/// Sends text to a service that echoes it, and compares every byte.
pub(crate) fn exchange(mut stream: TcpStream, sent: &[u8]) {
    let mut writing = stream.clone();
    let mut received = Vec::new();
    thread::scope(|scope| {
        scope.spawn(|| {
            writing.write_all(sent).unwrap();
            writing.shutdown(Shutdown::Write).unwrap();
        });
        stream.read_to_end(&mut received).unwrap();
    });
    assert!(received == sent, "{} of {} bytes", received.len(), sent.len());
}

/// A netstack over a link that is an end of a wire, or of several.
pub(crate) fn host(n: u8, lanes: usize, reserve: usize, ends: Vec<Queue>) -> (Engine, Stack, LinkId) {
    let engine = Engine::start(&EngineConfig { lanes, reserve, ..EngineConfig::default() }).unwrap();
    let link = engine.add_link(Mtu::ETHERNET).unwrap();
    engine.add_uplink(link, ends).unwrap();
    let id = engine.add_netstack(TcpConfig::default()).unwrap();
    let mac = format!("02:08:20:00:00:0{n}").parse().unwrap();
    let vnic = engine.add_vnic(link, &VnicConfig::new(mac), VnicUser::Netstack(id)).unwrap();
    engine.add_address(vnic, format!("10.0.0.{n}/24").parse().unwrap()).unwrap();
    let stack = engine.stack(id).unwrap();
    (engine, stack, link)
}

/// Eight connections to the service at 10.0.0.1, at the same time.
pub(crate) fn exchange_eight(client: &Stack) {
    thread::scope(|scope| {
        for seed in 0..8u32 {
            let stream = TcpStream::connect(client, "10.0.0.1:7").unwrap();
            scope.spawn(move || exchange(stream, &text(seed)));
        }
    });
}
