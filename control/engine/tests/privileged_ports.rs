//! Ports that a netstack keeps for privileged programs: who gets them, of which protocol, and from when on.
#![allow(clippy::unwrap_used, reason = "a helper of tests fails as a test does")]

use std::net::SocketAddr;
use std::os::fd::OwnedFd;

use firelane::{Limits, NetstackConfig, PrivilegedPorts, TcpListener};
use firelane_shm::control::{Answer, Family, Kind, Request, SocketId};

use crate::support::*;

/// Each is asked for once: a socket's port is free again only some time after its end.
const KEPT: [u16; 8] = [2049, 2050, 2051, 2052, 2053, 2054, 2055, 2056];

fn socket(program: &Program<'_>, kind: Kind) -> (OwnedFd, SocketId) {
    let request = Request::Socket { family: Family::V4, kind, count: 1 };
    let reply = program.world.hub.lock().unwrap().request(program.session, request, Vec::new());
    let Answer::Sockets { sockets } = reply.answer else { panic!("{:?}", reply.answer) };
    (reply.fds.into_iter().next().unwrap(), sockets[0])
}

/// Whether a new socket gets a port, or the error.
fn bind(program: &Program<'_>, kind: Kind, port: u16) -> Result<(), i32> {
    let (_fd, socket) = socket(program, kind);
    let address = SocketAddr::new("10.0.0.1".parse().unwrap(), port);
    match program.ask(Request::Bind { socket, address }) {
        Answer::Failed { errno } => Err(errno),
        _ => Ok(()),
    }
}

#[test]
fn only_privileged_users_get_what_is_kept_for_them() {
    let refused = Err(rustix::io::Errno::ACCESS.raw_os_error());
    let world = World::new();
    let tune = |tcp: &[u16], udp: &[u16]| {
        let privileged = PrivilegedPorts { tcp: tcp.to_vec(), udp: udp.to_vec() };
        let config = NetstackConfig { privileged, ..NetstackConfig::default() };
        world.stack.engine().tune(world.stack.id(), &config).unwrap();
    };
    let own = rustix::process::geteuid().as_raw();
    let stranger = Program::of_user(&world, own + 1000, Limits::default());
    let (root, this_user) = (Program::new(&world), Program::of_user(&world, own, Limits::default()));
    assert_eq!(bind(&stranger, Kind::Stream, KEPT[0]), Ok(()), "none is kept as yet");
    tune(&KEPT, &[]);
    assert_eq!(bind(&stranger, Kind::Stream, KEPT[1]), refused);
    assert_eq!(bind(&stranger, Kind::Stream, 3000), Ok(()));
    assert_eq!(bind(&stranger, Kind::Stream, 0), Ok(()));
    assert_eq!(bind(&stranger, Kind::Datagram, KEPT[2]), Ok(()), "that is UDP's");
    assert_eq!(bind(&root, Kind::Stream, KEPT[3]), Ok(()));
    assert_eq!(bind(&this_user, Kind::Stream, KEPT[4]), Ok(()));
    tune(&[], &KEPT);
    assert_eq!(bind(&stranger, Kind::Datagram, KEPT[5]), refused);
    assert_eq!(bind(&stranger, Kind::Stream, KEPT[1]), Ok(()), "it is free at once, and nobody has it");
    assert_eq!(bind(&root, Kind::Datagram, KEPT[5]), Ok(()));
    tune(&KEPT, &KEPT);
    // This process' own sockets are the operator's.
    TcpListener::bind(&world.stack, SocketAddr::new("10.0.0.1".parse().unwrap(), KEPT[6])).unwrap();
}
