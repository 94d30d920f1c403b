//! A TAP's frames come by as many of its queues as is said, each conversation by one of them, and none is lost meanwhile.
//!
//! As root; otherwise the test says why it is skipped.

mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::net::UdpSocket;
use std::process::Command;

use firelane_driver_tap::TapQueue;
use firelane_frame::{Chain, Driver, Pools, PoolsConfig};
use firelane_units::DropCounters;

const SENDERS: usize = 48;

fn tap() -> Option<Vec<TapQueue>> {
    let queues = common::taps("spread0", 4, &["10.0.0.1/24", "fd00::1/64"])?;
    for neighbour in ["10.0.0.2", "fd00::2"] {
        let words = ["neighbour", "add", neighbour, "lladdr", "02:08:20:00:00:02", "dev", "spread0"];
        let status = Command::new("ip").args(words).args(["nud", "permanent"]).status();
        assert!(status.is_ok_and(|it| it.success()), "{neighbour}");
    }
    Some(queues)
}

/// By which queues datagrams to port 7 have come, by their source ports.
fn came(queues: &mut [TapQueue], pools: &mut Pools) -> (usize, BTreeMap<[u8; 3], BTreeSet<u16>>) {
    let (mut count, mut rings) = (0, BTreeMap::<_, BTreeSet<u16>>::new());
    for queue in queues {
        let (mut chain, mut drops) = (Chain::new(), DropCounters::default());
        while queue.receive(pools, 64, &mut chain, &mut drops) > 0 {}
        while let Some(frame) = chain.pop() {
            let (bytes, version) = (frame.as_slice(), frame.as_slice()[12]);
            let ports = if version == 8 { 34 } else { 54 };
            if let Some(&[high, low, 0, 7]) = bytes.get(ports..ports + 4) {
                rings.entry([version, high, low]).or_default().insert(queue.ring());
                count += 1;
            }
            pools.put(frame);
        }
    }
    (count, rings)
}

#[test]
fn frames_come_by_as_many_queues_as_is_said_and_none_is_lost() {
    let Some(mut queues) = tap() else { return };
    assert_eq!(queues.iter().map(Driver::ring).collect::<Vec<_>>(), [0, 1, 2, 3]);
    let mut pools = Pools::new(PoolsConfig { small_slots: 2048, large_slots: 4 });
    let socket = |nth: usize| {
        let (from, to) = [("10.0.0.1:0", "10.0.0.2:7"), ("[fd00::1]:0", "[fd00::2]:7")][nth % 2];
        let socket = UdpSocket::bind(from).expect("the TAP has the address");
        socket.connect(to).expect("there is a route");
        socket
    };
    let senders: Vec<_> = (0..SENDERS).map(socket).collect();
    let spreader = queues[2].spreader().expect("a descriptor");
    let mut usual = None;
    for rings in [Some(1), Some(2), Some(3), Some(4), None, Some(2)] {
        if let Err(error) = spreader.spread(rings) {
            return eprintln!("skipped: {error}");
        }
        // Twice, so that both datagrams of a conversation may be told apart.
        for sender in senders.iter().chain(&senders) {
            assert_eq!(sender.send(&[1; 58]).unwrap(), 58);
        }
        let (count, by_sender) = came(&mut queues, &mut pools);
        assert_eq!((count, by_sender.len()), (2 * SENDERS, SENDERS), "{rings:?}");
        assert!(by_sender.values().all(|rings| rings.len() == 1), "{by_sender:?}");
        let used: BTreeSet<u16> = by_sender.values().flatten().copied().collect();
        if let Some(rings) = rings {
            assert_eq!(used, (0..rings).collect(), "48 conversations leave none of {rings} rings out");
        }
        if rings == Some(2) {
            assert_eq!(usual.get_or_insert_with(|| by_sender.clone()), &by_sender, "the choice is the same");
        }
    }
}
