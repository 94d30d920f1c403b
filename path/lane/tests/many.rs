//! More connections than a lane's caches hold: their segments, kicks and timers are looked for ahead, together (`stacks/ahead.rs`).

use std::time::Duration;

use firelane_lane::SocketCommand;
use firelane_socket::StreamEnd;
use firelane_units::Mtu;
use firelane_world::*;

/// Both ends of each are in the lanes' tables.
const CONNECTIONS: usize = 300;
/// An order that scatters them, and has no divisor in common with their number.
const STRIDE: usize = 187;

fn order() -> impl Iterator<Item = usize> {
    (0..CONNECTIONS).map(|n| n * STRIDE % CONNECTIONS)
}

/// So many connections from netstack 1 to netstack 2, in the lanes in turn.
fn connections(world: &mut World, lanes: u16) -> (Vec<StreamEnd>, Vec<StreamEnd>) {
    let listener = world.listen(2, 1, "10.0.0.2:80", CONNECTIONS);
    world.run();
    let (mut clients, mut servers) = (Vec::new(), Vec::new());
    for n in 0..CONNECTIONS {
        let client = world.connect(1, n as u16 % lanes, "10.0.0.2:80");
        world.run_for(Duration::from_millis(1));
        let accepted = listener.accept().expect("the handshake is over");
        assert_eq!(accepted.names.remote, client.shared().names().unwrap().local);
        clients.push(client);
        servers.push(accepted.stream);
    }
    (clients, servers)
}

/// What connection `n` says in a round: another length and other bytes than any other.
fn words(n: usize, round: usize) -> Vec<u8> {
    (0..20 + n).map(|at| (at ^ n ^ round << 4) as u8).collect()
}

/// All of them say something at the same time, and each is heard by its own peer.
fn say(world: &mut World, from: &mut [StreamEnd], to: &mut [StreamEnd], round: usize) {
    for n in order() {
        let said = words(n, round);
        assert_eq!(world.write(&mut from[n], &said), Ok(said.len()));
    }
    world.run();
    let mut heard = vec![0; 2 * CONNECTIONS];
    for n in order() {
        let count = world.read(&mut to[n], &mut heard).expect("something was said");
        assert_eq!(heard[..count], words(n, round), "{n} in round {round}");
    }
}

#[test]
fn each_of_many_is_heard_by_its_own_peer() {
    for lanes in [1, 2] {
        let mut world = two_stacks(lanes, Mtu::ETHERNET);
        let (mut clients, mut servers) = connections(&mut world, lanes);
        // At once, after delayed acknowledgments, and after they have gone to rest.
        for (round, silence) in [0, 100, 3_000, 0].into_iter().enumerate() {
            world.run_for(Duration::from_millis(silence));
            say(&mut world, &mut clients, &mut servers, 2 * round);
            say(&mut world, &mut servers, &mut clients, 2 * round + 1);
        }
        world.check_conservation();
    }
}

/// A kick waits for others, and nothing that is said behind it comes before it.
#[test]
fn what_was_written_before_the_end_arrives_before_the_end() {
    let mut world = two_stacks(1, Mtu::ETHERNET);
    let (mut clients, mut servers) = connections(&mut world, 1);
    for n in order() {
        let said = words(n, 0);
        assert_eq!(world.write(&mut clients[n], &said), Ok(said.len()));
        match n % 3 {
            0 => world.command(&clients[n], SocketCommand::Close),
            1 => world.command(&clients[n], SocketCommand::Shutdown),
            _ => {}
        }
    }
    world.run();
    let mut heard = vec![0; 2 * CONNECTIONS];
    for (n, server) in servers.iter_mut().enumerate() {
        let count = world.read(server, &mut heard).expect("something was said");
        assert_eq!(heard[..count], words(n, 0), "{n}");
        let more = world.read(server, &mut heard);
        assert_eq!(more == Ok(0), n % 3 != 2, "{n}: {more:?}");
    }
    world.check_conservation();
}

/// Places of connections that have ended are used again, while kicks for those that had them are on their way.
#[test]
fn a_kick_for_one_that_is_gone_reaches_nobody() {
    let mut world = two_stacks(1, Mtu::ETHERNET);
    let (mut clients, mut servers) = connections(&mut world, 1);
    let gone: Vec<StreamEnd> = clients.drain(..100).collect();
    servers.drain(..100);
    for end in &gone {
        world.command(end, SocketCommand::Abort);
    }
    world.run();
    let listener = world.listen(2, 2, "10.0.0.2:81", 200);
    let new: Vec<StreamEnd> = (0..100).map(|_| world.connect(1, 0, "10.0.0.2:81")).collect();
    world.run_for(Duration::from_millis(10));
    let place = |end: &StreamEnd| end.shared().conn().map(|conn| conn.conn);
    let accepted: Vec<StreamEnd> = std::iter::from_fn(|| listener.accept()).map(|it| it.stream).collect();
    assert_eq!(accepted.len(), 100);
    let is_used_again = |old: &StreamEnd| new.iter().chain(&accepted).any(|end| place(end) == place(old));
    assert!(gone.iter().all(is_used_again));
    for mut end in gone {
        let nudge = end.send.nudge();
        world.pass_nudge(&end, nudge);
    }
    world.run();
    assert!(new.iter().all(|end| end.poll_connected() == Ok(true)));
    let counters: usize = world.lanes.iter().map(|lane| lane.snapshot().connections).sum();
    assert_eq!(counters, 2 * (CONNECTIONS - 100) + 200);
    world.check_conservation();
}
