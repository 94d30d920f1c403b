//! Connections that wait in a listener's words: taken there, or told by messages while somebody waits for the descriptor.

use std::io::Read;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use crate::support::{Program, World, is_over, until, wait_for_one};
use firelane::TcpStream;
use firelane_shm::control::{Answer, Arrived, Place, Request, SAME_BACKLOG, SocketId};
use firelane_shm::{AcceptQueue, Mapping, Offer, SLICE, Woken, carry};

/// A listener with its name, where connections wait, and its address.
fn listen(program: &Program<'_>) -> (OwnedFd, SocketId, Place, std::net::SocketAddr) {
    let (fd, socket) = program.socket();
    let address = "10.0.0.1:0".parse().unwrap();
    assert_eq!(program.ask(Request::Bind { socket, address }), Answer::Done);
    let Answer::Stream { place } = program.ask(Request::Listen { socket, backlog: 256 }) else {
        panic!("it has a place")
    };
    assert_eq!(place.arena, program.arena);
    (fd, socket, place, program.names(socket)[0].unwrap())
}

fn words<'a>(program: &'a Program<'_>, place: Place) -> &'a AcceptQueue {
    program.mapping.accept_queue(place.block).unwrap()
}

fn connect(world: &World, to: std::net::SocketAddr) -> TcpStream {
    TcpStream::connect(&world.peer, to).unwrap()
}

/// Takes what waits longest in the words under a name of its own.
fn take(program: &Program<'_>, place: Place) -> (OwnedFd, u32) {
    let mut block = None;
    until(|| {
        block = words(program, place).take();
        block.is_some()
    });
    let (fd, socket) = program.socket();
    program.take(Place { block: block.unwrap(), ..place }, socket);
    (fd, block.unwrap())
}

fn greet(program: &Program<'_>, block: u32, peer: &mut TcpStream, nth: u8) {
    program.write(block, &[nth]);
    let mut byte = [0];
    peer.read_exact(&mut byte).unwrap();
    assert_eq!(byte, [nth]);
}

#[test]
fn who_waits_for_connections_hears_that_the_netstack_is_gone() {
    let world = World::new();
    let program = Program::new(&world);
    let (listener, _, place, address) = listen(&program);
    words(&program, place).begin();
    let mut first = connect(&world, address);
    greet(&program, take(&program, place).1, &mut first, 1);
    world.stack.engine().remove_netstack(world.stack.id()).unwrap();
    ends(&listener);
}

/// Somebody who waits for the descriptor finds its end.
fn ends(listener: &OwnedFd) {
    wait_for_one(listener);
    assert_eq!(carry::receive(listener, &mut [0; Arrived::BYTES], &mut Vec::new(), true).unwrap(), 0);
}

#[test]
fn connections_wait_in_their_order_and_come_by_messages_when_somebody_waits() {
    let world = World::new();
    let program = Program::new(&world);
    let (listener, _, place, address) = listen(&program);
    let mut first = connect(&world, address);
    greet(&program, program.accept(&listener).1, &mut first, 1);
    words(&program, place).begin();
    words(&program, place).note_read();
    // More than there is room for, and then more by messages.
    let mut peers: Vec<_> = (0..50).map(|_| connect(&world, address)).collect();
    wait_for_one(&listener);
    let mut taken = Vec::new();
    for (nth, peer) in peers.iter_mut().enumerate() {
        let (fd, block) = if words(&program, place).is_empty() {
            let next = program.accept(&listener);
            words(&program, place).note_read();
            next
        } else {
            take(&program, place)
        };
        greet(&program, block, peer, nth as u8);
        taken.push(fd);
    }
    // All is read, so the next one waits in the words, until somebody is about to wait for the descriptor.
    let mut late = connect(&world, address);
    until(|| !words(&program, place).is_empty());
    words(&program, place).watch();
    let mut next = connect(&world, address);
    greet(&program, program.accept(&listener).1, &mut late, 7);
    greet(&program, program.accept(&listener).1, &mut next, 8);
    assert!(words(&program, place).is_empty());
}

#[test]
fn who_is_told_of_nothing_asks_again_and_what_waits_comes() {
    let world = World::new();
    let program = Program::new(&world);
    let (listener, socket, place, address) = listen(&program);
    words(&program, place).begin();
    let mut peer = connect(&world, address);
    until(|| !words(&program, place).is_empty());
    words(&program, place).watch();
    assert_eq!(program.ask(Request::Listen { socket, backlog: SAME_BACKLOG }), Answer::Stream { place });
    greet(&program, program.accept(&listener).1, &mut peer, 3);
}

#[test]
fn what_nobody_has_taken_is_reset_when_the_listener_closes_and_its_words_serve_the_next() {
    let world = World::new();
    let program = Program::new(&world);
    let mut places = Vec::new();
    for nth in 0..3 {
        let (listener, _, place, address) = listen(&program);
        words(&program, place).begin();
        assert!(words(&program, place).is_empty());
        let mut peers: Vec<_> = (0..4).map(|_| connect(&world, address)).collect();
        let (_fd, block) = take(&program, place);
        greet(&program, block, &mut peers[0], nth);
        drop(listener);
        let mut left = peers.split_off(1);
        until(|| left.iter_mut().all(is_over));
        greet(&program, block, &mut peers[0], nth);
        world.wait_for(|[_, sockets, ..]| sockets == 1);
        places.push(place);
    }
    assert!(places.windows(2).all(|two| two[0] == two[1]), "{places:?}");
    drop(program);
    world.wait_for(|counts| counts == [0; 4]);
}

/// Somebody has died in `accept`, or it was shut down to get somebody out of it.
#[test]
fn what_is_left_at_a_listener_does_not_make_the_next_one_go_by_messages() {
    let world = World::new();
    let program = Program::new(&world);
    let mut places = Vec::new();
    for leave in [AcceptQueue::give_up, AcceptQueue::watch, AcceptQueue::begin] {
        let (listener, _, place, address) = listen(&program);
        words(&program, place).begin();
        let mut peer = connect(&world, address);
        let (_fd, block) = take(&program, place);
        greet(&program, block, &mut peer, 5);
        leave(words(&program, place));
        drop(listener);
        world.wait_for(|[_, sockets, ..]| sockets == 1);
        places.push(place);
    }
    assert!(places[0] == places[1] && places[1] != places[2], "{places:?}");
}

#[test]
fn a_connection_waits_for_another_program_that_has_the_listener() {
    let world = World::new();
    let (program, other) = (Program::new(&world), Program::new(&world));
    let (listener, _, place, address) = listen(&program);
    words(&program, place).begin();
    let fds = vec![listener.as_fd().try_clone_to_owned().unwrap()];
    let attached = world.hub.lock().unwrap().request(other.session, Request::Attach, fds);
    assert!(matches!(attached.answer, Answer::Attached { place: Some(it), .. } if it == place));
    let (shared, _) = firelane_shm::Mapping::attach(&attached.fds[0]).unwrap();
    let mut peers: Vec<_> = (0..2).map(|_| connect(&world, address)).collect();
    until(|| !words(&program, place).is_empty());
    // One program takes a connection and dies before it says as what; what still waits is the other's.
    assert!(words(&program, place).take().is_some());
    until(|| !words(&program, place).is_empty());
    drop(program);
    for _ in 0..10 {
        world.hub.lock().unwrap().tidy();
    }
    assert!(!is_over(&mut peers[0]), "the other may have taken it a moment ago");
    let queue = shared.accept_queue(place.block).unwrap();
    let mut waiting = None;
    until(|| {
        waiting = queue.take();
        waiting.is_some()
    });
    let block = waiting.unwrap();
    let (_fd, socket) = other.socket();
    shared.block(block).unwrap().file.fetch_or(firelane_shm::layout::TAKEN, Ordering::Relaxed);
    shared.block(block).unwrap().taken_as.store(socket.0, Ordering::Release);
    until(|| {
        world.hub.lock().unwrap().tidy();
        is_over(&mut peers[0])
    });
    assert!(!is_over(&mut peers[1]), "that one is had");
    assert!(other.names(socket)[1].is_some());
}

/// Another program that has a listener of the first one's arena, and that arena as it sees it.
fn child<'a>(world: &'a World, listener: &OwnedFd) -> (Program<'a>, Mapping) {
    let child = Program::new(world);
    let fds = vec![listener.as_fd().try_clone_to_owned().unwrap()];
    let attached = world.hub.lock().unwrap().request(child.session, Request::Attach, fds);
    let (shared, _) = Mapping::attach(&attached.fds[0]).unwrap();
    (child, shared)
}

/// As at a server with many processes, of which one ends at any time, and of which all are busy: its queue is never empty.
#[test]
fn what_was_taken_by_who_has_died_unnamed_is_reset_whoever_else_dies_meanwhile() {
    for by_messages in [false, true] {
        let world = World::new();
        let program = Program::new(&world);
        let (listener, _, place, address) = listen(&program);
        words(&program, place).begin();
        if by_messages {
            words(&program, place).watch();
        }
        let mut peers: Vec<_> = (0..2).map(|_| connect(&world, address)).collect();
        let (dies, _shared) = child(&world, &listener);
        if by_messages {
            program.told(&listener);
            words(&program, place).note_read();
            wait_for_one(&listener);
        } else {
            until(|| words(&program, place).waiting() == 2);
            assert!(words(&program, place).take().is_some());
        }
        drop(dies);
        until(|| {
            drop(child(&world, &listener));
            world.hub.lock().unwrap().tidy();
            is_over(&mut peers[0])
        });
        assert!(!is_over(&mut peers[1]), "it waits for whoever comes");
    }
}

#[test]
fn what_a_program_has_taken_is_reset_as_soon_as_it_dies_and_not_before() {
    let world = World::new();
    let program = Program::new(&world);
    let (listener, _, place, address) = listen(&program);
    words(&program, place).begin();
    let mut peers: Vec<_> = (0..2).map(|_| connect(&world, address)).collect();
    let (dies, shared) = child(&world, &listener);
    let take = |session| {
        let mut block = None;
        until(|| {
            block = words(&program, place).take();
            block.is_some()
        });
        shared.block(block.unwrap()).unwrap().is_taken_by(session);
        block.unwrap()
    };
    let blocks = [take(dies.session), take(program.session)];
    for _ in 0..2 {
        world.hub.lock().unwrap().tidy();
        assert!(peers.iter_mut().all(|peer| !is_over(peer)), "both may be slow");
    }
    drop(dies);
    world.hub.lock().unwrap().tidy();
    until(|| is_over(&mut peers[0]));
    // It lives, so it may be slow for as long as it likes.
    thread::sleep(Duration::from_millis(1200));
    world.hub.lock().unwrap().tidy();
    assert!(!is_over(&mut peers[1]));
    let (_fd, socket) = program.socket();
    program.take(Place { block: blocks[1], ..place }, socket);
    greet(&program, blocks[1], &mut peers[1], 1);
    assert!(program.names(socket)[1].is_some());
}

/// Two programs that share a segment already carry their text past the lane from the first byte on.
#[test]
fn who_is_connected_shares_his_connection_with_its_peer() {
    let world = World::new();
    let (program, client) = (Program::new(&world), Program::new(&world));
    let (listener, _, place, address) = listen(&program);
    words(&program, place).begin();
    let segment = |block| client.mapping.block(block).unwrap().segment.load(Ordering::SeqCst);
    let (_first, block) = client.connect(address);
    until(|| segment(block) != 0);
    for nth in 0..20 {
        if nth == 10 {
            words(&program, place).watch();
        }
        let (_fd, block) = client.connect(address);
        // Nothing is written. The lane's own thread begins it if it is at work just then.
        until(|| segment(block) != 0);
    }
    drop(listener);
}

/// Also where the connection is fused: each wake-up is a switch of process, and there are no two for one connection.
#[test]
fn who_sleeps_until_he_is_connected_is_woken_once() {
    let world = World::new();
    let (program, client) = (Program::new(&world), Program::new(&world));
    let (_listener, _, place, address) = listen(&program);
    words(&program, place).begin();
    until(|| {
        drop(client.connect(address));
        client.mapping.take_offer().is_some()
    });
    let (_fd, socket) = client.socket();
    for nth in 0..20 {
        let mut block = None;
        until(|| {
            block = client.mapping.take_offer();
            block.is_some()
        });
        let Offer { block, .. } = block.unwrap();
        let end = client.end(block);
        let looks = AtomicU32::new(0);
        let is_told = || {
            looks.fetch_add(1, Ordering::Relaxed);
            end.status() != 0
        };
        thread::scope(|scope| {
            let sleeper = scope.spawn(|| end.block().sleep(SLICE, is_told));
            until(|| looks.load(Ordering::Relaxed) > 0);
            // It falls asleep now; if it does not, it is not woken at all.
            thread::sleep(Duration::from_millis(1));
            client.begin(block, socket, address);
            assert_eq!(sleeper.join().unwrap(), Woken::Ready, "{nth}");
        });
        until(|| end.block().segment.load(Ordering::SeqCst) != 0);
    }
}
