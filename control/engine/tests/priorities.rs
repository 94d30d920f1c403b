//! Priorities of netstacks' VNICs: of two that send through a link with a limit, the higher one is served, and they change places
//! while both send.

use std::io::{Read, Write};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use firelane::{Engine, EngineConfig, Stack, TcpConfig, TcpListener, TcpStream, VnicConfig, VnicUser};
use firelane_units::{BitRate, LinkId, Mtu, Priority};

use crate::ending::Ending;

fn netstack(engine: &Engine, link: LinkId, n: u8, priority: Priority) -> (Stack, LinkId) {
    let id = engine.add_netstack(TcpConfig::default()).unwrap();
    let mac = format!("02:08:20:00:00:0{n}").parse().unwrap();
    let config = VnicConfig { priority, ..VnicConfig::new(mac) };
    let vnic = engine.add_vnic(link, &config, VnicUser::Netstack(id)).unwrap();
    engine.add_address(vnic, format!("10.0.0.{n}/24").parse().unwrap()).unwrap();
    (engine.stack(id).unwrap(), vnic)
}

/// How much came of each until now.
fn counted(counts: &[AtomicU64; 2]) -> [u64; 2] {
    counts.each_ref().map(|count| count.load(Ordering::Relaxed))
}

/// Whether one gets more than four times what the other gets, at the pace of the link, at some time soon. What was on its way
/// before comes first, and a machine with other work lets the higher one have nothing to send at times. Else what came last.
fn served_first(counts: &[AtomicU64; 2], higher: usize) -> Result<(), [u64; 2]> {
    let mut came = [0; 2];
    for _ in 0..30 {
        let before = counted(counts);
        thread::sleep(Duration::from_millis(400));
        let after = counted(counts);
        came = [0, 1].map(|which| after[which] - before[which]);
        if came[higher] > 4 * came[1 - higher] && came[higher] > 100_000 {
            return Ok(());
        }
    }
    Err(came)
}

#[test]
fn the_higher_of_two_netstacks_is_served_and_they_change_places_live() {
    let engine = Engine::start(&EngineConfig { lanes: 2, ..EngineConfig::default() }).unwrap();
    let link = engine.add_link(Mtu::ETHERNET).unwrap();
    engine.set_link_maxbw(link, Some(BitRate::from_mbps(5))).unwrap();
    let (server, _) = netstack(&engine, link, 1, Priority::High);
    let senders = [netstack(&engine, link, 2, Priority::Low), netstack(&engine, link, 3, Priority::High)];
    let listener = TcpListener::bind(&server, "10.0.0.1:9").unwrap();
    let (counts, ended) = ([const { AtomicU64::new(0) }; 2], AtomicBool::new(false));
    thread::scope(|scope| {
        let ending = Ending(&ended);
        for (count, (sender, _)) in counts.iter().zip(&senders) {
            let mut writing = TcpStream::connect(sender, "10.0.0.1:9").unwrap();
            let (mut reading, _) = listener.accept().unwrap();
            scope.spawn({
                let ended = &ended;
                move || while !ended.load(Ordering::Relaxed) && writing.write_all(&[7; 4096]).is_ok() {}
            });
            scope.spawn(move || {
                let mut text = [0; 16384];
                while let Ok(length @ 1..) = reading.read(&mut text) {
                    count.fetch_add(length as u64, Ordering::Relaxed);
                }
            });
        }
        for higher in [1, 0] {
            for (which, (_, vnic)) in senders.iter().enumerate() {
                let priority = if which == higher { Priority::High } else { Priority::Low };
                engine.set_link_priority(*vnic, priority).unwrap();
            }
            assert_eq!(served_first(&counts, higher), Ok(()), "{higher} is higher");
        }
        drop(ending);
    });
}
