//! A TAP's frames come by as many of its queues as is said, each conversation by one of them or by the one that is set aside for it,
//! and none is lost meanwhile.
//!
//! As root; otherwise the test says why it is skipped.

use crate::common;
use std::collections::{BTreeMap, BTreeSet};
use std::net::{SocketAddr, UdpSocket};

use firelane_driver_tap::{Selector, Spread, TapQueue};
use firelane_frame::{Driver, Pools, PoolsConfig};
use firelane_skipped::skipped;
use firelane_units::{DropCounters, IpPrefix, Port, PortRange};

const SENDERS: usize = 48;

/// A TAP with these neighbours in a network namespace of the thread's own.
fn tap(name: &str, queues: u16, neighbours: &[&str]) -> Option<Vec<TapQueue>> {
    let queues = common::taps(name, queues, &["10.0.0.1/24", "fd00::1/64"])?;
    neighbours.iter().for_each(|it| common::neighbour(name, it));
    Some(queues)
}

/// By which queues datagrams to port 7 have come, by version and source port.
fn came(queues: &mut [TapQueue], pools: &mut Pools) -> (usize, BTreeMap<(u8, u16), BTreeSet<u16>>) {
    let (mut count, mut rings) = (0, BTreeMap::<_, BTreeSet<u16>>::new());
    for queue in queues {
        let ring = queue.ring();
        common::fetch(queue, pools, &mut DropCounters::default(), |frame| {
            if let Some([from, 7]) = common::ports(frame) {
                rings.entry((frame[12], from)).or_default().insert(ring);
                count += 1;
            }
        });
    }
    (count, rings)
}

#[test]
fn frames_come_by_as_many_queues_as_is_said_and_none_is_lost() {
    let Some(mut queues) = tap("spread0", 4, &["10.0.0.2", "fd00::2"]) else { return };
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
        if let Err(error) = spreader.spread(rings.map(|rings| Spread { rings, aside: &[] })) {
            return skipped(error);
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

/// What frames may have in common, and whether these do.
fn selectors() -> Vec<Selector> {
    let prefix = |text: &str| Some(text.parse().unwrap());
    let ports = |text: &str| Some(text.parse().unwrap());
    let any = Selector::default();
    vec![
        Selector { destination: prefix("10.0.0.2/32"), ..any },
        Selector { destination: prefix("10.0.0.128/25"), ..any },
        Selector { destination: prefix("200.1.0.0/16"), protocol: Some(17), ..any },
        Selector { source: prefix("10.0.0.1/32"), destination: prefix("200.0.0.0/5"), ..any },
        Selector { destination: prefix("fd00::2/128"), ..any },
        Selector { destination: prefix("fd00:0:0:0:8000::/65"), ..any },
        Selector {
            destination: prefix("fd00::/16"),
            source: prefix("fd00::1/64"),
            protocol: Some(17),
            ..any
        },
        Selector { destination_port: ports("7"), ..any },
        Selector { destination_port: ports("40000-40010"), protocol: Some(17), ..any },
        Selector { source_port: ports("1024-40000"), destination_port: ports("7-9"), ..any },
        Selector { protocol: Some(6), ..any },
        Selector { protocol: Some(1), destination_port: ports("7"), ..any },
        any,
    ]
}

fn matches(selector: &Selector, from: SocketAddr, to: SocketAddr) -> bool {
    let address =
        |prefix: Option<IpPrefix>, it: SocketAddr| prefix.is_none_or(|prefix| prefix.contains(it.ip()));
    let port =
        |range: Option<PortRange>, it: SocketAddr| range.is_none_or(|range| range.contains(Port(it.port())));
    address(selector.source, from)
        && address(selector.destination, to)
        && port(selector.source_port, from)
        && port(selector.destination_port, to)
        && selector.protocol.is_none_or(|it| it == 17)
}

#[test]
fn frames_with_a_queue_set_aside_come_by_that_one() {
    let Some(mut queues) = tap("aside0", 2, &["10.0.0.2", "10.0.0.200", "fd00::2", "fd00::8000:0:0:2"])
    else {
        return;
    };
    for net in ["200.1.0.0/16", "202.0.0.0/16"] {
        common::ip(&format!("route add {net} via 10.0.0.2"));
    }
    // One more, as often as is liked, and the interface may have another name meanwhile.
    queues.push(queues[0].one_more(2).expect("a queue"));
    common::ip("link set aside0 name aside1");
    queues.push(queues[0].one_more(3).expect("another one"));
    let mut pools = Pools::new(PoolsConfig { small_slots: 2048, large_slots: 4 });
    let spreader = queues[1].spreader().expect("a descriptor");
    let targets = ["10.0.0.2", "10.0.0.200", "200.1.2.3", "202.0.0.1", "[fd00::2]", "[fd00::8000:0:0:2]"];
    let targets: Vec<SocketAddr> = (targets.iter())
        .flat_map(|host| [7, 9, 10, 40005].map(|port| format!("{host}:{port}").parse().unwrap()))
        .collect();
    let senders = ["10.0.0.1:0", "[fd00::1]:0"].map(|from| UdpSocket::bind(from).expect("an address"));
    let all = selectors();
    let by_chance = |nth: usize| all[nth.wrapping_mul(0x9e37_79b9).rotate_right(7) % all.len()];
    for nth in 0..60 {
        let aside: Vec<_> = (0..nth % 5)
            .map(|place| (by_chance(nth * 5 + place), [Some(2), None, Some(3)][(nth + place) % 3]))
            .collect();
        if let Err(error) = spreader.spread(Some(Spread { rings: 2, aside: &aside })) {
            return skipped(error);
        }
        for to in &targets {
            let sender = &senders[usize::from(to.is_ipv6())];
            assert_eq!(sender.send_to(&[1; 58], to).unwrap(), 58);
            let from = sender.local_addr().unwrap();
            let found = aside.iter().find(|(selector, _)| matches(selector, from, *to));
            let wanted = found.and_then(|&(_, queue)| queue).map_or(vec![0, 1], |queue| vec![queue]);
            let came = come(&mut queues, &mut pools, *to);
            assert!(
                came.len() == 1 && wanted.contains(&came[0]),
                "{to} by {came:?}, not {wanted:?}: {aside:?}"
            );
        }
    }
}

/// By which queues datagrams to this address' port have come.
fn come(queues: &mut [TapQueue], pools: &mut Pools, to: SocketAddr) -> Vec<u16> {
    let mut rings = Vec::new();
    for queue in queues {
        let ring = queue.ring();
        common::fetch(queue, pools, &mut DropCounters::default(), |frame| {
            let is_it = common::ports(frame).is_some_and(|[_, port]| port == to.port());
            rings.extend(is_it.then_some(ring));
        });
    }
    rings
}
