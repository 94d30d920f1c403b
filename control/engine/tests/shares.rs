//! What one program, and one user's programs, may have of what is for all.
#![allow(clippy::unwrap_used, reason = "a helper of tests fails as a test does")]

use std::os::fd::OwnedFd;

use firelane::Limits;
use firelane_shm::control::{Answer, Family, Kind, Request, SocketId};

use crate::support::*;

const ENOBUFS: i32 = 105;
const IP_ADD_MEMBERSHIP: i32 = 35;

fn datagram_socket(program: &Program<'_>) -> (OwnedFd, SocketId) {
    let request = Request::Socket { family: Family::V4, kind: Kind::Datagram, count: 1 };
    let reply = program.world.hub.lock().unwrap().request(program.session, request, Vec::new());
    let Answer::Sockets { sockets } = reply.answer else { panic!("{:?}", reply.answer) };
    (reply.fds.into_iter().next().unwrap(), sockets[0])
}

fn join(program: &Program<'_>, socket: SocketId, group: [u8; 4]) -> Answer {
    let value = [group, [10, 0, 0, 1]].concat();
    program.ask(Request::SetOption { socket, level: 0, name: IP_ADD_MEMBERSHIP, value })
}

/// How many groups a program is let into.
fn join_all(program: &Program<'_>, socket: SocketId, first: u8) -> usize {
    let group = |n: usize| [239, first, (n >> 8) as u8, n as u8];
    let refused = (0..600).find(|&n| match join(program, socket, group(n)) {
        Answer::Done => false,
        Answer::Failed { errno: ENOBUFS } => true,
        other => panic!("{other:?}"),
    });
    refused.expect("a netstack has no more")
}

#[test]
fn no_program_and_no_user_takes_all_groups_of_a_netstack() {
    let world = World::new();
    let [one, other] = [1, 2].map(|user| Program::of_user(&world, user, Limits::default()));
    let (first, second) = (datagram_socket(&one), datagram_socket(&one));
    assert_eq!(join_all(&one, first.1, 1), 256);
    assert_eq!(join_all(&one, second.1, 2), 0, "another socket gives it no more");
    assert_eq!(join(&one, second.1, [239, 1, 0, 9]), Answer::Done, "which it has already");
    let others = datagram_socket(&other);
    assert_eq!(join_all(&other, others.1, 3), 256, "another user has his");
    // What is closed is given back.
    drop(first);
    until(|| join(&one, second.1, [239, 2, 0, 1]) == Answer::Done);
}

#[test]
fn no_program_takes_all_places_of_a_group() {
    let world = World::new();
    let [one, other] = [1, 2].map(|user| Program::of_user(&world, user, Limits::default()));
    let sockets: Vec<_> = (0..513).map(|_| datagram_socket(&one)).collect();
    let joined = sockets.iter().filter(|it| join(&one, it.1, [239, 1, 1, 1]) == Answer::Done).count();
    assert_eq!(joined, 512);
    let others: Vec<_> = (0..500).map(|_| datagram_socket(&other)).collect();
    assert!(others.iter().all(|it| join(&other, it.1, [239, 1, 1, 1]) == Answer::Done));
}

/// Its netstack may end while a program runs: what it asks for is refused, and nobody waits for an answer that does not come.
#[test]
fn a_datagram_socket_without_its_netstack_is_told_so() {
    const ENETDOWN: i32 = 100;
    let world = World::new();
    let program = Program::of_user(&world, 1, Limits::default());
    let (bound, other) = (datagram_socket(&program), datagram_socket(&program));
    let address = "10.0.0.1:7777".parse().unwrap();
    let bind = |socket| Request::Bind { socket, address };
    assert!(!matches!(program.ask(bind(bound.1)), Answer::Failed { .. }));
    world.stack.engine().remove_netstack(world.stack.id()).unwrap();
    let connect = |socket| Request::Connect { socket, address: "10.0.0.2:9".parse().unwrap(), fast: false };
    assert_eq!(program.ask(connect(bound.1)), Answer::Failed { errno: ENETDOWN });
    assert!(matches!(program.ask(connect(other.1)), Answer::Failed { .. }));
}
