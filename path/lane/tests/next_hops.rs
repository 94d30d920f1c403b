//! Datagrams to a neighbour whose address has to be asked for first: a burst waits in its socket, and nothing of it is lost. And
//! connections to one who is not there.

use std::net::SocketAddr;
use std::time::Duration;

use firelane_driver_memory::{Conditions, WireConfig};
use firelane_ip::ErrorKind;
use firelane_lane::{Control, DatagramOption, Fault};
use firelane_socket::{DatagramEnd, SocketError};
use firelane_units::{BitRate, DropReason, FlowId};
use firelane_world::*;

/// More than may wait for a neighbour, and as many as the queues of both sockets have room for.
const MANY: u32 = 600;

/// Two hosts whose wire takes two milliseconds each way, and a socket on the first.
fn far_apart(lanes: u16, limit: Option<u64>, any: &str) -> (World, World, DatagramEnd) {
    let conditions = Conditions { delay: Duration::from_millis(2), ..Conditions::default() };
    let (mut a, b) = two_hosts(lanes, WireConfig::simulated(3, conditions));
    if let Some(mbps) = limit {
        a.all(|| Control::SetMaxbw(FlowId(1), Some(BitRate::from_mbps(mbps))));
    }
    let socket = a.bind(1, 1, lanes - 1, &format!("{any}:0"));
    (a, b, socket)
}

/// Lets both go on for so long.
fn run_for(a: &mut World, b: &mut World, span: Duration) {
    let end = a.now + span;
    loop {
        let due = [a.run(), b.run(), a.run()].into_iter().flatten().min().unwrap_or(end);
        let now = due.max(a.now + Duration::from_nanos(1)).min(end);
        (a.now, b.now) = (now, now);
        if now == end {
            return;
        }
    }
}

/// Sends numbers, each as so many bytes.
fn burst(world: &mut World, socket: &mut DatagramEnd, peer: SocketAddr, count: u32, len: usize) {
    for n in 0..count {
        let mut bytes = n.to_be_bytes().to_vec();
        bytes.resize(len, 7);
        world.send_to(socket, 1, peer, &bytes);
    }
}

/// The numbers that have arrived.
fn numbers(socket: &mut DatagramEnd) -> Vec<u32> {
    let mut buffer = [0; 10_000];
    let mut next = || {
        let got = socket.recv.recv(&mut buffer).unwrap()?;
        Some(u32::from_be_bytes(buffer[..got.copied.min(4)].try_into().unwrap()))
    };
    std::iter::from_fn(&mut next).collect()
}

/// The number that a fault quotes, of a host that did not answer.
fn number_in(fault: &Fault) -> u32 {
    let Fault::Told(error) = fault else { panic!("{fault:?}") };
    assert_eq!(error.kind, ErrorKind::HostUnreachable);
    u32::from_be_bytes(error.said.text.as_slice()[..4].try_into().unwrap())
}

#[test]
fn a_burst_to_somebody_new_arrives_whole_and_in_order() {
    for (lanes, limit) in
        [1, 2].into_iter().flat_map(|lanes| [(lanes, None), (lanes, Some(1)), (lanes, Some(100))])
    {
        for (any, peer) in [("0.0.0.0", "10.0.0.2:9"), ("[::]", "[fd00::2]:9")] {
            let (mut a, mut b, mut socket) = far_apart(lanes, limit, any);
            let mut server = b.bind(2, 1, 0, &format!("{any}:9"));
            burst(&mut a, &mut socket, peer.parse().unwrap(), MANY, 20);
            run_for(&mut a, &mut b, Duration::from_millis(1500));
            let case = format!("{peer}, {limit:?} Mb/s, {lanes} lanes");
            assert_eq!(numbers(&mut server), (0..MANY).collect::<Vec<_>>(), "{case}");
            assert_eq!(a.counters().drops.of(DropReason::FlowLimit), 0, "{case}");
            a.check_conservation();
        }
    }
}

/// Each is more than half of the frames that may wait.
#[test]
fn datagrams_in_pieces_wait_as_well() {
    let (mut a, mut b, _) = far_apart(1, None, "0.0.0.0");
    let mut socket = a.bind_large(1, 2, "10.0.0.1:7");
    let mut server = b.bind_large(2, 1, "0.0.0.0:9");
    let peer: SocketAddr = "10.0.0.2:9".parse().unwrap();
    for n in 0..8_u32 {
        let mut bytes = n.to_be_bytes().to_vec();
        bytes.resize(40_000, 7);
        a.send_to(&mut socket, 2, peer, &bytes);
    }
    run_for(&mut a, &mut b, Duration::from_millis(100));
    assert_eq!(numbers(&mut server), (0..8).collect::<Vec<_>>());
    a.check_conservation();
}

#[test]
fn what_waits_for_somebody_who_is_not_there_goes_with_the_frames_that_do() {
    for (any, nobody, peer) in
        [("0.0.0.0", "10.0.0.77:9", "10.0.0.2:9"), ("[::]", "[fd00::77]:9", "[fd00::2]:9")]
    {
        for hears in [false, true] {
            let (mut a, mut b, mut socket) = far_apart(1, None, any);
            let mut server = b.bind(2, 1, 0, &format!("{any}:9"));
            a.set(1, 1, DatagramOption::Faults { v4: hears, v6: hears });
            burst(&mut a, &mut socket, nobody.parse().unwrap(), MANY, 20);
            run_for(&mut a, &mut b, Duration::from_millis(2900));
            assert_eq!(a.udp(1).unsendable, 0);
            run_for(&mut a, &mut b, Duration::from_millis(200));
            let udp = a.udp(1);
            assert_eq!(udp.sent + udp.unsendable, u64::from(MANY));
            assert_eq!(a.counters().drops.of(DropReason::NeighbourUnresolved), udp.sent);
            let mut told: Vec<u32> = a.mail.faults.drain(..).map(|(_, fault)| number_in(&fault)).collect();
            told.sort_unstable();
            assert_eq!(told, if hears { (0..MANY).collect() } else { vec![] });
            burst(&mut a, &mut socket, peer.parse().unwrap(), 100, 20);
            run_for(&mut a, &mut b, Duration::from_millis(50));
            assert_eq!(numbers(&mut server).len(), 100);
            // It is asked for anew.
            burst(&mut a, &mut socket, nobody.parse().unwrap(), 10, 20);
            run_for(&mut a, &mut b, Duration::from_millis(100));
            assert_eq!(a.udp(1).unsendable, udp.unsendable);
            a.check_conservation();
        }
    }
}

#[test]
fn who_connects_to_somebody_who_is_not_there_hears_it_when_he_was_asked_for_in_vain() {
    for lanes in [1, 2] {
        let (mut a, mut b, _socket) = far_apart(lanes, None, "0.0.0.0");
        let begun = ["10.0.0.99:9", "[fd00::99]:9"].map(|remote| a.connect(1, lanes - 1, remote));
        run_for(&mut a, &mut b, Duration::from_millis(1500));
        assert!(begun.iter().all(|it| it.poll_connected() == Ok(false)), "he is asked for on");
        run_for(&mut a, &mut b, Duration::from_millis(3000));
        assert!(
            begun.iter().all(|it| it.poll_connected() == Err(SocketError::HostUnreachable)),
            "{lanes} lanes"
        );
        a.check_conservation();
    }
}
