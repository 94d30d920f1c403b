//! Whose datagrams go next where several netstacks of a lane have some.

use firelane_ip::DadConfig;
use firelane_lane::DatagramOption;
use firelane_socket::DatagramEnd;
use firelane_units::Mtu;
use firelane_world::*;

const SERVER: &str = "10.0.0.2:9";
/// As many as a socket may send in a turn.
const RECORDS: usize = 32;

/// Who sent what has come, by the last octet of his address, in order.
fn senders(server: &mut DatagramEnd) -> Vec<u8> {
    let mut buffer = [0; 2000];
    let all = std::iter::from_fn(|| server.recv.recv(&mut buffer).unwrap());
    all.map(|it| it.envelope.peer.to_string().split([':', '.']).nth(3).unwrap().parse().unwrap()).collect()
}

/// A world of three netstacks, in which the second hears and all know each other, and so many sockets of the first.
fn world_with(sockets: u32) -> (World, DatagramEnd, Vec<DatagramEnd>, DatagramEnd) {
    let mut world = two_stacks(1, Mtu::ETHERNET);
    world.add_stack_tested(3, DadConfig::OFF);
    let mut server = world.bind_large(2, 1, "0.0.0.0:9");
    let many = (0..sockets).map(|nth| world.bind(1, 100 + nth, 0, "10.0.0.1:0")).collect();
    let mut one = world.bind(3, 2, 0, "10.0.0.3:0");
    let mut first = world.bind(1, 3, 0, "10.0.0.1:0");
    world.send_to(&mut first, 3, SERVER.parse().unwrap(), b"first");
    world.send_to(&mut one, 2, SERVER.parse().unwrap(), b"first");
    world.run();
    assert_eq!(senders(&mut server).len(), 2, "neighbours are known");
    (world, server, many, one)
}

#[test]
fn who_has_many_sockets_keeps_no_other_netstack_waiting() {
    for bytes in [1, 1_400] {
        let (mut world, mut server, mut many, mut one) = world_with(200);
        for (nth, socket) in many.iter_mut().enumerate() {
            for _ in 0..RECORDS {
                world.send_to(socket, 100 + nth as u32, SERVER.parse().unwrap(), &vec![0; bytes]);
            }
        }
        world.send_to(&mut one, 2, SERVER.parse().unwrap(), b"x");
        world.run();
        let order = senders(&mut server);
        let before = order.iter().position(|&sender| sender == 3);
        assert!(before.is_some_and(|before| before <= 2 * RECORDS), "{before:?} of {}", order.len());
        assert!(order.len() > 2 * RECORDS, "the others go on: {}", order.len());
        world.check_conservation();
    }
}

/// Each makes a frame for every VNIC of the link.
#[test]
fn who_speaks_to_all_keeps_no_other_netstack_waiting() {
    let (mut world, mut server, mut many, mut one) = world_with(2);
    for n in 4..200 {
        world.add_stack_tested(n, DadConfig::OFF);
    }
    let mut copied = world.counters().copied;
    for nth in 0..2 {
        world.set(1, 100 + nth, DatagramOption::Broadcast(true));
        for _ in 0..RECORDS {
            let socket = &mut many[nth as usize];
            world.send_to(socket, 100 + nth, "10.0.0.255:9".parse().unwrap(), b"all");
        }
    }
    world.send_to(&mut one, 2, SERVER.parse().unwrap(), b"x");
    world.run();
    let order = senders(&mut server);
    let before = order.iter().position(|&sender| sender == 3);
    assert!(before.is_some_and(|before| before <= 1), "{before:?} of {}", order.len());
    assert!(order.len() > RECORDS, "the other goes on: {}", order.len());
    copied = world.counters().copied - copied;
    assert!(copied >= RECORDS as u64 * 190, "{copied} copies");
    world.check_conservation();
}

#[test]
fn what_cannot_be_sent_keeps_nothing_behind_it_waiting() {
    let (mut world, mut server, _, mut one) = world_with(0);
    for _ in 0..10 * RECORDS {
        world.send_to(&mut one, 2, "192.168.9.9:9".parse().unwrap(), b"nowhere");
    }
    world.send_to(&mut one, 2, SERVER.parse().unwrap(), b"x");
    world.run();
    assert_eq!(senders(&mut server), [3]);
    world.check_conservation();
}
