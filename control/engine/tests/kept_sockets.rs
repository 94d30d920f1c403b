//! Sockets of programs that are closed and kept: each end, whose connection it is, and the books that follow later.
#![allow(clippy::unwrap_used, reason = "a helper of tests fails as a test does")]

use std::io::{Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::Ordering;

use firelane::{TcpListener, TcpStream};
use firelane_shm::control::{Answer, Place, Request, SocketId};
use firelane_shm::layout::request;
use firelane_shm::{Mapping, Readiness};

use crate::support::*;

#[test]
fn a_socket_that_is_closed_and_kept_is_a_new_one() {
    let world = World::new();
    let (program, other) = (Program::new(&world), Program::new(&world));
    let listener = TcpListener::bind(&world.peer, "10.0.0.2:0").unwrap();
    let (_fd, socket) = program.socket();
    for _ in 0..3 {
        assert_eq!(program.names(socket), [None; 2]);
        let address = listener.local_addr().unwrap();
        let Answer::Stream { place } = program.ask(Request::Connect { socket, address, fast: false }) else {
            panic!("it is a new one");
        };
        let (mut peer, from) = listener.accept().unwrap();
        other.close(socket, Some(place.block));
        program.close(socket, Some(place.block + 1));
        program.close(socket, None);
        assert_eq!(
            program.names(socket),
            [Some(from), Some(address)],
            "neither another's word nor of another"
        );
        program.write(place.block, b"the last");
        program.close(socket, Some(place.block));
        let mut all = Vec::new();
        peer.read_to_end(&mut all).unwrap();
        assert_eq!(all, b"the last");
    }
    let (_fd, local) = program.listen("10.0.0.1:0");
    let name = SocketId(rustix::fs::fstat(&_fd).unwrap().st_ino);
    assert_eq!(program.names(name), [Some(local), None]);
    program.close(name, None);
    assert_eq!(program.ask(Request::Names { socket: name }), Answer::Failed { errno: 9 }, "listeners end");
}

#[test]
fn a_connection_is_that_of_the_socket_whose_name_stands_on_it() {
    let world = World::new();
    let (program, other) = (Program::new(&world), Program::new(&world));
    let (listener, local) = program.listen("10.0.0.1:0");
    let connect = || TcpStream::connect(&world.peer, local).unwrap();
    let (_own, own) = program.socket();
    let (_others, others) = other.socket();
    for (name, is_good) in [(own, true), (others, false), (SocketId(7), false), (SocketId(u64::MAX), false)] {
        let mut client = connect();
        let place = program.told(&listener);
        program.take(place, name);
        // Something is heard of a socket that is not there.
        program.close(SocketId(u64::MAX), None);
        if is_good {
            assert_eq!(program.names(name), [Some(local), Some(client.local_addr().unwrap())]);
            program.write(place.block, b"x");
            client.read_exact(&mut [0]).unwrap();
            program.close(name, Some(place.block));
        }
        until(|| is_over(&mut client));
    }
    assert_eq!(other.names(others), [None; 2], "it is as new as before");
    world.wait_for(|[_, sockets, ..]| sockets == 3);
}

/// A name may stand on a second connection before it is heard that the first is closed, and be found there first.
#[test]
fn what_is_closed_is_the_connection_that_was_meant() {
    let world = World::new();
    let program = Program::new(&world);
    let (listener, local) = program.listen("10.0.0.1:0");
    let [mut first, mut second] = [(); 2].map(|()| TcpStream::connect(&world.peer, local).unwrap());
    let [of_first, of_second] = [(); 2].map(|()| program.told(&listener));
    let (_fd, socket) = program.socket();
    program.take(of_second, socket);
    program.take(of_first, socket);
    assert_eq!(program.names(socket)[1], Some(first.local_addr().unwrap()));
    program.close(socket, Some(of_second.block));
    until(|| is_over(&mut second));
    assert!(!is_over(&mut first));
    program.write(of_first.block, b"x");
    first.set_read_timeout(None).unwrap();
    first.read_exact(&mut [0]).unwrap();
    drop(_fd);
    until(|| is_over(&mut first));
}

/// Asks for nothing but the lane: who keeps the books of sockets is held up meanwhile.
#[test]
fn a_connection_is_closed_by_its_words() {
    let world = World::new();
    let program = Program::new(&world);
    let listener = TcpListener::bind(&world.peer, "10.0.0.2:0").unwrap();
    let (_fd, socket) = program.socket();
    for way in 0..6 {
        let address = listener.local_addr().unwrap();
        // It is a new one at once, also where the lane has not looked yet.
        let Answer::Stream { place } = program.ask(Request::Connect { socket, address, fast: false }) else {
            panic!("it is a new one");
        };
        let (mut peer, from) = listener.accept().unwrap();
        assert_eq!(program.names(socket), [Some(from), Some(address)]);
        let (is_unread, is_reset) = (way == 3, way == 4);
        let end = program.end(place.block);
        program.wait(&end, Readiness::WRITABLE);
        if is_unread {
            peer.write_all(b"nobody reads this").unwrap();
            program.wait(&end, Readiness::READABLE);
        } else if is_reset {
            let value = [1u32, 0].map(u32::to_ne_bytes).concat();
            let linger = Request::SetOption { socket, level: 1, name: 13, value };
            assert_eq!(program.ask(linger), Answer::Done);
        } else {
            program.write(place.block, b"the last");
        }
        assert!(end.leave());
        if way == 5 {
            continue;
        }
        let _books = world.hub.lock().unwrap();
        program.kick(&end);
        let mut all = Vec::new();
        let ended = peer.read_to_end(&mut all).map_err(|error| error.raw_os_error());
        match is_unread || is_reset {
            true => assert_eq!(ended, Err(Some(RESET as i32)), "{way}"),
            false => assert_eq!((ended, &all[..]), (Ok(8), &b"the last"[..]), "{way}"),
        }
    }
    assert_eq!(program.names(socket), [None; 2]);
    drop((_fd, program));
    world.wait_for(|counts| counts == [0; 4]);
}

#[test]
fn what_was_accepted_and_closed_by_its_words_is_in_no_books() {
    let world = World::new();
    let program = Program::new(&world);
    let (listener, local) = program.listen("10.0.0.1:0");
    let (_fd, socket) = program.socket();
    let mut highest = 0;
    for cycle in 0..300 {
        let mut client = TcpStream::connect(&world.peer, local).unwrap();
        let place = program.told(&listener);
        highest = highest.max(place.block);
        program.take(place, socket);
        if cycle % 3 == 0 {
            assert_eq!(program.names(socket)[1], Some(client.local_addr().unwrap()));
        }
        let end = program.end(place.block);
        assert!(end.leave());
        program.kick(&end);
        until(|| is_over(&mut client));
    }
    assert_eq!(program.names(socket), [None; 2]);
    world.wait_for(|[_, sockets, ..]| sockets == 2);
    assert!(highest < 150, "blocks are used again: {highest}");
}

/// Nobody asks for anything any more, and what is left is little.
#[test]
fn who_keeps_the_books_is_called_for_what_was_left() {
    let mut world = World::new();
    world.stop.store(true, Ordering::Release);
    world.thread.take().unwrap().join().unwrap();
    world.thread = Some(std::thread::spawn(|| {}));
    let program = Program::new(&world);
    let listener = TcpListener::bind(&world.peer, "10.0.0.2:0").unwrap();
    let (_fd, block) = program.connect(listener.local_addr().unwrap());
    let (mut peer, _) = listener.accept().unwrap();
    let end = program.end(block);
    program.wait(&end, Readiness::WRITABLE);
    let mut hub = world.hub.lock().unwrap();
    hub.look();
    assert!(hub.fall_asleep() && hub.sockets().len() == 1);
    assert!(end.leave());
    program.kick(&end);
    peer.read_to_end(&mut Vec::new()).unwrap();
    let mut called = [rustix::event::PollFd::new(&*hub, rustix::event::PollFlags::IN)];
    let limit = rustix::event::Timespec { tv_sec: 20, tv_nsec: 0 };
    assert_eq!(rustix::event::poll(&mut called, Some(&limit)), Ok(1));
    hub.look();
    assert_eq!(hub.sockets().len(), 0, "it is a new one, which is nothing to show");
}

#[test]
fn who_spoils_the_words_of_an_end_harms_his_own() {
    let world = World::new();
    let (program, other) = (Program::new(&world), Program::new(&world));
    let (listener, local) = program.listen("10.0.0.1:0");
    let mut client = TcpStream::connect(&world.peer, local).unwrap();
    // Of one that nobody has accepted, and of others before they are there.
    let place = program.told(&listener);
    for block in [place.block, place.block + 1, place.block + 2, 70_000] {
        program.mapping.block(block).unwrap().requests.store(request::CLOSE, Ordering::Release);
        let _ = program.mapping.lane(0).unwrap().tell(block);
    }
    rustix::io::write(&program.bells[0], &1u64.to_ne_bytes()).unwrap();
    until(|| is_over(&mut client));
    // Two have the socket: the connection ends, and it is nobody's new socket.
    let mut client = TcpStream::connect(&world.peer, local).unwrap();
    let place = program.told(&listener);
    let (fd, socket) = program.socket();
    program.take(place, socket);
    let shown = vec![fd.as_fd().try_clone_to_owned().unwrap()];
    let attached = world.hub.lock().unwrap().request(other.session, Request::Attach, shown);
    assert!(matches!(attached.answer, Answer::Attached { .. }));
    let end = program.end(place.block);
    for _ in 0..3 {
        assert!(end.leave());
        program.kick(&end);
        until(|| is_over(&mut client));
        world.hub.lock().unwrap().tidy();
        assert_eq!(other.names(socket), program.names(socket));
        assert_eq!(other.names(socket)[0], Some(local), "it is what it was");
    }
    // The same by a message, and then by its end.
    program.close(socket, Some(place.block));
    assert_eq!(program.ask(Request::Names { socket }), Answer::Failed { errno: 9 });
    drop((fd, listener, program, other));
    world.wait_for(|[sessions, sockets, arenas, _]| [sessions, sockets, arenas] == [0; 3]);
}

/// Who keeps the books is held up meanwhile. What the descriptor has no room for goes on when it has, in its order; what nobody has
/// accepted is reset when the listener closes.
#[test]
fn a_lane_hands_connections_on_by_itself() {
    let world = World::new();
    let program = Program::new(&world);
    for (backlog, accepted) in [(16, 9), (4096, 1500)] {
        let (listener, socket) = program.socket();
        let address = "10.0.0.1:0".parse().unwrap();
        assert_eq!(program.ask(Request::Bind { socket, address }), Answer::Done);
        assert!(matches!(program.ask(Request::Listen { socket, backlog }), Answer::Stream { .. }));
        let local = program.names(socket)[0].unwrap();
        let connect = || TcpStream::connect(&world.peer, local).unwrap();
        let books = world.hub.lock().unwrap();
        let mut peers: Vec<_> = (0..16).map(|_| connect()).collect();
        let first = (program.told(&listener), peers.remove(0));
        drop(books);
        peers.extend((0..backlog / 2).map(|_| connect()));
        let mut taken = Vec::new();
        for (nth, peer) in peers.iter().take(accepted).enumerate() {
            let (fd, block) = program.accept(&listener);
            let name = SocketId(rustix::fs::fstat(&fd).unwrap().st_ino);
            assert_eq!(program.names(name)[1], Some(peer.local_addr().unwrap()), "{nth} of {backlog}");
            taken.push((fd, block));
        }
        drop(listener);
        let mut left = peers.split_off(accepted);
        until(|| left.iter_mut().all(is_over));
        for ((_, block), peer) in taken.iter().zip(&mut peers) {
            program.write(*block, b"still there");
            let mut bytes = [0; 11];
            peer.read_exact(&mut bytes).unwrap();
        }
        drop(first);
    }
    drop(program);
    world.wait_for(|counts| counts == [0; 4]);
}

#[test]
fn a_connection_that_nobody_names_is_reset() {
    let world = World::new();
    let (program, other) = (Program::new(&world), Program::new(&world));
    let (listener, local) = program.listen("10.0.0.1:0");
    let attach = |fd: &OwnedFd| {
        let fds = vec![fd.as_fd().try_clone_to_owned().unwrap()];
        world.hub.lock().unwrap().request(other.session, Request::Attach, fds)
    };
    let (shared, _) = Mapping::attach(&attach(&listener).fds[0]).unwrap();
    let [mut lost, mut waiting] = [(); 2].map(|()| TcpStream::connect(&world.peer, local).unwrap());
    program.told(&listener);
    wait_for_one(&listener);
    // It dies before it says who has the first.
    world.hub.lock().unwrap().end(program.session);
    for _ in 0..10 {
        world.hub.lock().unwrap().tidy();
    }
    assert!(
        !is_over(&mut lost) && !is_over(&mut waiting),
        "the other program may have taken it a moment ago"
    );
    let place = other.told(&listener);
    let (_fd, socket) = other.socket();
    shared.block(place.block).unwrap().taken_as.store(socket.0, Ordering::Release);
    until(|| {
        world.hub.lock().unwrap().tidy();
        is_over(&mut lost)
    });
    assert!(!is_over(&mut waiting));
    assert_eq!(other.names(socket)[1], Some(waiting.local_addr().unwrap()));
    let mut late = TcpStream::connect(&world.peer, local).unwrap();
    drop(listener);
    until(|| is_over(&mut late));
    assert!(!is_over(&mut waiting), "it is accepted");
}

#[test]
fn who_has_no_socket_left_for_a_connection_gets_one() {
    let world = World::new();
    let (program, other) = (Program::new(&world), Program::new(&world));
    let (listener, local) = program.listen("10.0.0.1:0");
    let mut client = TcpStream::connect(&world.peer, local).unwrap();
    let place = program.told(&listener);
    let take = |of: &Program<'_>, place| {
        world.hub.lock().unwrap().request(of.session, Request::Take { place }, Vec::new())
    };
    let elsewhere = Place { block: place.block + 1, ..place };
    assert_eq!(take(&program, elsewhere).answer, Answer::Failed { errno: 22 });
    assert_eq!(take(&other, place).answer, Answer::Failed { errno: 22 }, "it has not the arena");
    let taken = take(&program, place);
    let Answer::Sockets { sockets } = &taken.answer else { panic!("{taken:?}") };
    assert_eq!(program.names(sockets[0])[1], Some(client.local_addr().unwrap()));
    assert!(!is_over(&mut client));
    assert_eq!(take(&program, place).answer, Answer::Failed { errno: 22 }, "once");
    drop(taken);
    until(|| is_over(&mut client));
}
