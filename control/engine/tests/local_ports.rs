//! Local ports of a netstack in several lanes: a program gets all of them, however its calls fall on the lanes.

use std::io::ErrorKind;
use std::ops::RangeInclusive;
use std::thread;

use firelane::{Engine, EngineConfig, NetstackConfig, Stack, TcpListener, TcpStream, VnicConfig, VnicUser};
use firelane_units::{LinkId, Mtu};

const PORTS: RangeInclusive<u16> = 40_000..=40_063;
const PEERS: [&str; 2] = ["10.0.0.1:7", "10.0.0.1:9"];

fn host(engine: &Engine, link: LinkId, n: u8) -> Stack {
    let config = NetstackConfig { tcp_ports: PORTS, ..NetstackConfig::default() };
    let id = engine.add_netstack_on(&config, &[]).unwrap();
    let vnic = VnicConfig::new(format!("02:08:20:00:00:0{n}").parse().unwrap());
    let vnic = engine.add_vnic(link, &vnic, VnicUser::Netstack(id)).unwrap();
    engine.add_address(vnic, format!("10.0.0.{n}/24").parse().unwrap()).unwrap();
    engine.stack(id).unwrap()
}

/// Calls that keep step with what deals them to lanes, as those of a proxy that asks one of its servers after the other.
#[test]
fn a_program_has_all_ports_to_each_peer_before_it_hears_that_there_is_none() {
    let engine = Engine::start(&EngineConfig { lanes: 2, ..EngineConfig::default() }).unwrap();
    let link = engine.add_link(Mtu::ETHERNET).unwrap();
    let (server, client) = (host(&engine, link, 1), host(&engine, link, 2));
    for peer in PEERS {
        let listener = TcpListener::bind(&server, peer).unwrap();
        // The far ends stay until the engine ends.
        thread::spawn(move || {
            let mut accepted = Vec::new();
            while let Ok((stream, _)) = listener.accept() {
                accepted.push(stream);
            }
        });
    }
    let mut held = Vec::new();
    for nth in 0..PORTS.len() {
        held.extend(PEERS.map(|peer| {
            TcpStream::connect(&client, peer).unwrap_or_else(|error| panic!("{nth} to {peer}: {error}"))
        }));
    }
    let mut ports: Vec<u16> = held.iter().step_by(2).map(|it| it.local_addr().unwrap().port()).collect();
    ports.sort_unstable();
    assert!(ports.iter().copied().eq(PORTS), "each once: {ports:?}");
    for peer in PEERS.into_iter().cycle().take(8) {
        let late = TcpStream::connect(&client, peer).unwrap_err();
        assert_eq!(late.kind(), ErrorKind::AddrNotAvailable);
    }
    // One that is dropped before it has an outcome leaves nothing; what comes free is had again.
    drop(TcpStream::begin(&client, PEERS[0].parse().unwrap(), firelane::StreamConfig::default()));
    assert!(engine.snapshot().lanes.iter().all(|lane| lane.is_conserved()));
}
