//! Connections that programs begin by words of blocks that they are offered: books that follow later, and every misuse.
#![allow(clippy::unwrap_used, reason = "a helper of tests fails as a test does")]

use std::collections::BTreeSet;
use std::io::Read;
use std::net::SocketAddr;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use firelane::TcpListener;
use firelane_shm::control::{Answer, Place, Request, SocketId};
use firelane_shm::layout::{SHOWN, margin, request};
use firelane_shm::{OFFERS, Offer, Readiness, UNTOLD_MAX, UntoldOption};

use crate::support::*;

/// Connects by a block that was offered, as a socket of this name.
fn connect_by_offer(program: &Program<'_>, socket: SocketId, to: SocketAddr) -> u32 {
    let Offer { block, .. } = program.mapping.take_offer().expect("blocks are offered");
    program.begin(block, socket, to);
    block
}

/// Who connects few times is offered nothing.
fn until_offered(program: &Program<'_>, listener: &TcpListener) {
    for _ in 0..4 {
        assert_eq!(program.mapping.take_offer(), None);
        let connected = program.connect(listener.local_addr().unwrap());
        drop((listener.accept().unwrap(), connected));
    }
}

/// A program that is offered blocks, and a listener of its peer's.
fn offered(world: &World) -> (Program<'_>, TcpListener, SocketAddr) {
    let program = Program::new(world);
    let listener = TcpListener::bind(&world.peer, "10.0.0.2:0").unwrap();
    let address = listener.local_addr().unwrap();
    until_offered(&program, &listener);
    (program, listener, address)
}

/// So who has many at a time has them in all lanes, and who has one after the other in one of them.
#[test]
fn what_is_offered_is_in_all_lanes_by_turns_and_says_in_which() {
    let lanes = 3;
    let world = World::of(lanes, firelane::WireConfig::default());
    let (program, _listener, _address) = offered(&world);
    let mut all: Vec<Offer> = std::iter::from_fn(|| program.mapping.take_offer()).collect();
    assert!(all.len() >= 64, "{all:?}");
    for offer in &all {
        let words = program.mapping.block(offer.block).unwrap();
        let place = words.rings.margin[margin::PLACE].load(Ordering::Relaxed);
        assert_eq!(u64::from(offer.lane), place & 0xffff, "{offer:?}");
    }
    all.sort_by_key(|it| it.place);
    for some in all.windows(lanes) {
        let lanes_there: BTreeSet<u32> = some.iter().map(|it| it.lane).collect();
        assert_eq!(lanes_there.len(), lanes, "{some:?}");
    }
}

#[test]
fn a_connection_is_begun_by_a_block_that_was_offered() {
    let world = World::new();
    let (program, listener, address) = offered(&world);
    let (_fd, socket) = program.socket();
    let mut highest = 0;
    for cycle in 0..300 {
        // The lane alone: who keeps the books is held up meanwhile.
        let books = world.hub.lock().unwrap();
        let block = connect_by_offer(&program, socket, address);
        highest = highest.max(block);
        let end = program.end(block);
        program.wait(&end, Readiness::WRITABLE);
        let (mut peer, from) = listener.accept().unwrap();
        drop(books);
        if cycle % 3 == 0 {
            assert_eq!(program.names(socket), [Some(from), Some(address)], "{cycle}");
        }
        program.write(block, b"the last");
        assert!(end.leave());
        program.kick(&end);
        let mut all = Vec::new();
        peer.read_to_end(&mut all).unwrap();
        assert_eq!(all, b"the last");
    }
    assert_eq!(program.names(socket), [None; 2]);
    assert!(highest < 400, "blocks are used again: {highest}");
    // Nobody listens.
    let block = connect_by_offer(&program, socket, SocketAddr::new(address.ip(), 9));
    until(|| program.end(block).readiness().has(Readiness::ERROR));
    assert_eq!(u64::from(program.end(block).take_error().unsigned_abs()), REFUSED);
    drop((_fd, program));
    world.wait_for(|counts| counts == [0; 4]);
}

/// The options that may wait, each with its least value and its greatest.
fn all_that_may_wait() -> Vec<UntoldOption> {
    let named = (0..300).flat_map(|level| (0..130).map(move |name| (level, name)));
    let with = |(level, name), value| UntoldOption::new(level, name, value);
    let values = [i32::MIN, -1, 0, 1, 5, 127, 255, 32_767, i32::MAX];
    named.flat_map(|it| values.into_iter().filter_map(move |value| with(it, value))).collect()
}

fn set(program: &Program<'_>, socket: SocketId, option: UntoldOption) -> Answer {
    let (level, name, value) = (option.level(), option.name(), option.value().to_ne_bytes().to_vec());
    program.ask(Request::SetOption { socket, level, name, value })
}

fn get(program: &Program<'_>, socket: SocketId, option: UntoldOption) -> i32 {
    let (level, name) = (option.level(), option.name());
    match program.ask(Request::GetOption { socket, level, name, len: 4 }) {
        Answer::Option { value } => i32::from_ne_bytes(value.try_into().unwrap()),
        other => panic!("{option:?}: {other:?}"),
    }
}

/// What a socket has set, as words.
fn shown_options(world: &World, socket: SocketId) -> Vec<String> {
    let all = world.hub.lock().unwrap().explain(&BTreeSet::from([socket.0]));
    all.into_iter().next().unwrap().options
}

/// So that a library may keep them, and say that they are set.
#[test]
fn nobody_is_refused_an_option_that_may_wait() {
    let world = World::new();
    let program = Program::new(&world);
    for option in all_that_may_wait() {
        let (_fd, socket) = program.socket();
        assert_eq!(set(&program, socket, option), Answer::Done, "{option:?}");
    }
}

#[test]
fn a_connection_has_the_options_that_lie_beside_its_offer() {
    let world = World::new();
    let (program, listener, address) = offered(&world);
    let all = all_that_may_wait();
    for some in all.chunks(UNTOLD_MAX) {
        // Once by questions, once by the words.
        let (_fd, asked) = program.socket();
        some.iter().for_each(|&option| assert_eq!(set(&program, asked, option), Answer::Done));
        let connect = Request::Connect { socket: asked, address, fast: false };
        let Answer::Stream { place } = program.ask(connect) else { panic!("connecting begins") };
        program.wait(&program.end(place.block), Readiness::WRITABLE);
        let _accepted = listener.accept().unwrap();
        let (_fd, socket) = program.socket();
        let Offer { place: at, block, .. } = program.mapping.take_offer().expect("blocks are offered");
        program.mapping.untold(at).unwrap().put(some.iter().copied());
        // The library says itself what the lane reads from the words.
        let bits = program.mapping.block(place.block).unwrap().requests.load(Ordering::Relaxed);
        let bits = bits & (request::NODELAY | request::CORK | request::QUICKACK);
        program.ask_with(block, socket, address, request::UNTOLD | bits);
        program.kick(&program.end(block));
        program.wait(&program.end(block), Readiness::WRITABLE);
        let _accepted = listener.accept().unwrap();
        for &option in some {
            assert_eq!(get(&program, socket, option), get(&program, asked, option), "{option:?}");
        }
        let words = [block, place.block].map(|block| program.mapping.block(block).unwrap());
        let [told, known] = words.map(|block| {
            let capacity = block.capacity.each_ref().map(|it| it.load(Ordering::Relaxed));
            (capacity, block.low_water[1].load(Ordering::Relaxed), block.file.load(Ordering::Relaxed) & SHOWN)
        });
        assert_eq!(told, known);
        let [told, known] = [socket, asked].map(|name| shown_options(&world, name));
        assert_eq!(told, known);
        // The next one has a new socket's.
        let (_fd, next) = program.socket();
        connect_by_offer(&program, next, address);
        let _accepted = listener.accept().unwrap();
        assert_eq!(shown_options(&world, next), Vec::<String>::new());
    }
}

/// TCP_CORK lies beside the offer, and is taken away before the lane has looked, or once the text is written.
#[test]
fn who_takes_his_cork_away_is_not_corked() {
    let world = World::new();
    let (program, listener, address) = offered(&world);
    for is_early in [true, false] {
        let (_fd, socket) = program.socket();
        let Offer { place: at, block, .. } = program.mapping.take_offer().expect("blocks are offered");
        let end = program.end(block);
        program.mapping.untold(at).unwrap().put([UntoldOption::new(6, 3, 1).unwrap()]);
        program.ask_with(block, socket, address, request::UNTOLD | request::CORK);
        if is_early {
            end.set_option(request::CORK, false);
        }
        program.kick(&end);
        program.wait(&end, Readiness::WRITABLE);
        let (mut peer, _) = listener.accept().unwrap();
        if !is_early {
            program.write(block, b"text");
            peer.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
            assert!(peer.read(&mut [0; 9]).is_err(), "it is corked");
            end.set_option(request::CORK, false);
            program.kick(&end);
            peer.set_read_timeout(None).unwrap();
            assert_eq!(peer.read(&mut [0; 9]).unwrap(), 4);
        }
        // What is corked leaves in the end, when the timer of a closed window has ended.
        let begun = Instant::now();
        for _ in 0..20 {
            program.write(block, b"text");
            assert_eq!(peer.read(&mut [0; 9]).unwrap(), 4);
        }
        assert!(begun.elapsed() < Duration::from_secs(2), "{is_early}: {:?}", begun.elapsed());
    }
}

/// What is asked about the socket comes before the lane has looked, which then finds that it was done.
#[test]
fn who_asks_about_a_socket_finds_the_connection_that_it_has_begun() {
    let world = World::new();
    let (program, listener, address) = offered(&world);
    let (fd, socket) = program.socket();
    let Offer { block, .. } = program.mapping.take_offer().unwrap();
    // A listener that has hung up comes first, and holds up nothing that is asked here.
    drop(program.listen("10.0.0.1:0"));
    program.ask_silently(block, socket, address);
    let value = 1u32.to_ne_bytes().to_vec();
    assert_eq!(program.ask(Request::SetOption { socket, level: 1, name: 9, value }), Answer::Done);
    let (_peer, from) = listener.accept().unwrap();
    program.kick(&program.end(block));
    program.wait(&program.end(block), Readiness::WRITABLE);
    assert_eq!(program.names(socket), [Some(from), Some(address)]);
    let keepalive = program.ask(Request::GetOption { socket, level: 1, name: 9, len: 4 });
    assert_eq!(keepalive, Answer::Option { value: 1u32.to_ne_bytes().to_vec() });
    let mut peer = _peer;
    drop(fd);
    until(|| is_over(&mut peer));
}

/// What a program asks costs as much with few programs as with many: nobody looks for what others have begun and told nobody of.
#[test]
fn who_asks_about_a_socket_looks_at_his_own_arenas_alone() {
    let world = World::new();
    let (program, listener, address) = offered(&world);
    let (_fd, socket) = program.socket();
    let Offer { block, .. } = program.mapping.take_offer().unwrap();
    let other = Program::new(&world);
    let (_others, others) = other.socket();
    until_offered(&other, &listener);
    program.ask_silently(block, socket, address);
    assert_eq!(other.names(others), [None; 2]);
    other.close(others, None);
    drop(other.listen("10.0.0.1:0"));
    listener.set_nonblocking(true).unwrap();
    std::thread::sleep(Duration::from_millis(50));
    assert!(listener.accept().is_err(), "nobody has begun it");
    listener.set_nonblocking(false).unwrap();
    assert!(program.names(socket)[1].is_some());
    listener.accept().unwrap();
}

/// Who ends with many sockets keeps nobody else from connecting: lanes do, while the hub has yet to close all that has hung up.
#[test]
fn a_connection_waits_for_no_socket_that_has_hung_up_and_is_no_listener() {
    let world = World::new();
    let (program, mut listener, address) = offered(&world);
    let (_fd, socket) = program.socket();
    let other = Program::new(&world);
    let many: Vec<_> = (0..300).map(|_| other.socket()).collect();
    let bound = other.socket();
    let anywhere = "10.0.0.1:0".parse().unwrap();
    assert_eq!(other.ask(Request::Bind { socket: bound.1, address: anywhere }), Answer::Done);
    let connected = other.connect(address);
    drop(listener.accept().unwrap());
    let books = world.hub.lock().unwrap();
    drop((many, bound, connected));
    let block = connect_by_offer(&program, socket, address);
    program.wait(&program.end(block), Readiness::WRITABLE);
    until(|| accepts(&mut listener));
    drop(books);
}

/// Its program has closed it, so that who has seen that is refused, also by lanes that still have it.
#[test]
fn a_connection_waits_for_listeners_that_have_hung_up() {
    let world = World::new();
    let (program, mut listener, address) = offered(&world);
    let sockets = [(); 2].map(|()| program.socket());
    let other = Program::new(&world);
    let (gone, at) = other.listen("10.0.0.1:0");
    let books = world.hub.lock().unwrap();
    drop(gone);
    let refused = connect_by_offer(&program, sockets[0].1, at);
    let connected = connect_by_offer(&program, sockets[1].1, address);
    std::thread::sleep(Duration::from_millis(50));
    assert!(!program.end(refused).readiness().has(Readiness::ERROR | Readiness::WRITABLE));
    drop(books);
    until(|| program.end(refused).readiness().has(Readiness::ERROR));
    assert_eq!(u64::from(program.end(refused).take_error().unsigned_abs()), REFUSED);
    program.wait(&program.end(connected), Readiness::WRITABLE);
    until(|| accepts(&mut listener));
}

fn accepts(listener: &mut TcpListener) -> bool {
    listener.set_nonblocking(true).unwrap();
    listener.accept().is_ok()
}

/// More have hung up than are seen in one look, so that the connection waits for the next one when its program closes it.
#[test]
fn a_connection_that_waits_for_what_has_hung_up_is_closed() {
    let world = World::new();
    let (program, _listener, address) = offered(&world);
    let (_fd, socket) = program.socket();
    let Offer { block, .. } = program.mapping.take_offer().unwrap();
    let place = Some(Place { arena: program.arena, block });
    let many: Vec<_> = (0..600).map(|_| program.listen("10.0.0.1:0")).collect();
    let mut hub = world.hub.lock().unwrap();
    drop(many);
    program.ask_silently(block, socket, address);
    hub.closed(program.session, socket, place);
    (0..3).for_each(|_| hub.look());
    drop(hub);
    assert_eq!(program.names(socket), [None; 2]);
    assert_eq!(program.ask(Request::Bind { socket, address: "0.0.0.0:0".parse().unwrap() }), Answer::Done);
}

#[test]
fn who_misuses_what_is_offered_harms_his_own() {
    let world = World::new();
    let (program, other) = (Program::new(&world), Program::new(&world));
    let listener = TcpListener::bind(&world.peer, "10.0.0.2:0").unwrap();
    let address = listener.local_addr().unwrap();
    until_offered(&program, &listener);
    let (_own, own) = program.socket();
    let (_others, others) = other.socket();
    // Names that nobody has, another's, and none.
    for name in [SocketId(7), others, SocketId(0), SocketId(u64::MAX)] {
        connect_by_offer(&program, name, address);
        let (mut peer, _) = listener.accept().unwrap();
        world.hub.lock().unwrap().tidy();
        until(|| is_over(&mut peer));
    }
    assert_eq!(other.names(others), [None; 2]);
    // One name on many: one of them is the socket.
    let blocks: Vec<u32> = (0..9).map(|_| connect_by_offer(&program, own, address)).collect();
    let mut peers: Vec<_> = blocks.iter().map(|_| listener.accept().unwrap().0).collect();
    world.hub.lock().unwrap().tidy();
    until(|| peers.iter_mut().filter_map(|peer| is_over(peer).then_some(())).count() == 8);
    assert!(world.counts()[1] <= 3);
    // Blocks that were not offered, that are streams already, and what is offered taken and left.
    for block in [blocks[0], 70_000] {
        program.mapping.block(block).unwrap().ask_to_connect(own.0, std::net::Ipv6Addr::LOCALHOST, 9, 0);
        let _ = program.mapping.lane(0).unwrap().tell(block);
    }
    while program.mapping.take_offer().is_some() {}
    let lie = |place| Offer { place, block: 3 * place as u32, lane: place as u32 };
    (0..OFFERS).for_each(|place| program.mapping.offers().put(lie(place)));
    rustix::io::write(&program.bells[0], &1u64.to_ne_bytes()).unwrap();
    world.hub.lock().unwrap().tidy();
    let _answered = (program.names(own), program.connect(address));
    // It dies with something begun that no lane has seen.
    let block = program.mapping.take_offer().map_or(0, |it| it.block);
    program.mapping.block(block).unwrap().ask_to_connect(own.0, std::net::Ipv6Addr::LOCALHOST, 9, 0);
    drop((_own, _others, _answered, program, other));
    world.wait_for(|[sessions, sockets, arenas, _]| [sessions, sockets, arenas] == [0; 3]);
}

#[test]
fn who_uses_up_what_he_is_offered_is_offered_more() {
    let world = World::new();
    let (program, listener, address) = offered(&world);
    for wanted in [64, 128, 128] {
        let mut sockets: Vec<_> = (0..wanted).map(|_| program.socket()).collect();
        // All at once: who keeps the books finds that none is left.
        let books = world.hub.lock().unwrap();
        let blocks: Vec<u32> =
            std::iter::from_fn(|| program.mapping.take_offer()).map(|it| it.block).collect();
        assert_eq!(blocks.len(), wanted);
        for (&block, (_, socket)) in blocks.iter().zip(&sockets) {
            program.begin(block, *socket, address);
        }
        drop(books);
        for &block in &blocks {
            program.wait(&program.end(block), Readiness::WRITABLE);
            let _accepted = listener.accept().unwrap();
        }
        sockets.clear();
        world.hub.lock().unwrap().tidy();
    }
}
