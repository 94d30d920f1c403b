//! Programs in shared memory, spoken for by a driver that knows the control messages and the words of a block: both
//! ways, every end, and every lie.
#![allow(clippy::unwrap_used, reason = "a helper of tests fails as a test does")]

use std::io::{IoSlice, Read, Write};
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use firelane::{Limits, TcpListener, TcpStream, VnicConfig, VnicUser};
use firelane_frame::ring_state::size_in;
use firelane_shm::control::{Answer, Family, Kind, Request, SAME_BACKLOG, SocketId};
use firelane_shm::layout::status;
use firelane_shm::{Mapping, Readiness, Spin, StreamEnd, WriteError, carry, doorbell};
use firelane_units::Mtu;
use proptest::prelude::*;

use crate::support::*;

#[test]
fn a_program_serves_and_its_bytes_go_both_ways_to_the_end() {
    let world = World::new();
    let program = Program::new(&world);
    let (listener, local) = program.listen("10.0.0.1:0");
    assert_ne!(local.port(), 0);
    let sent = pattern(3_000_000);
    std::thread::scope(|scope| {
        let client = scope.spawn(|| {
            let mut stream = TcpStream::connect(&world.peer, local).unwrap();
            stream.write_all(&sent).unwrap();
            stream.shutdown(std::net::Shutdown::Write).unwrap();
            let mut back = Vec::new();
            stream.read_to_end(&mut back).unwrap();
            back
        });
        let (fd, block) = program.accept(&listener);
        let got = program.read_to_end(block);
        assert_eq!(got, sent);
        program.write(block, &got);
        program.shut(block);
        assert!(client.join().unwrap() == sent, "the echo differs");
        drop(fd);
    });
    let sockets = world.hub.lock().unwrap().sockets();
    assert!(
        sockets.iter().any(|it| it.is_listening && it.local == Some(local) && it.owner.command == "driver")
    );
}

#[test]
fn a_program_connects_and_storage_is_there_only_while_it_is_needed() {
    let world = World::new();
    let program = Program::new(&world);
    let listener = TcpListener::bind(&world.peer, "10.0.0.2:0").unwrap();
    let (_fd, block) = program.connect(listener.local_addr().unwrap());
    let end = program.end(block);
    program.wait(&end, Readiness::WRITABLE);
    let (mut peer, from) = listener.accept().unwrap();
    assert_eq!(from.ip().to_string(), HERE);
    let bound = end.block().rings.margin[firelane_shm::layout::margin::BOUND].load(Ordering::Acquire);
    assert_ne!(bound, 0, "it has names");
    let has_storage = || end.block().rings.one.state.load(Ordering::Acquire) & 1 != 0;
    assert!(has_storage());
    until(|| {
        world.hub.lock().unwrap().tidy();
        !has_storage()
    });
    program.write(block, b"after a rest");
    let mut bytes = [0; 12];
    peer.read_exact(&mut bytes).unwrap();
    assert_eq!(&bytes, b"after a rest");
    peer.write_all(b"and back").unwrap();
    assert_eq!(program.read(block, &mut bytes).unwrap(), 8);
}

/// The program waits as long as it takes to be told: it would be seen if it were not told that its buffer has grown.
#[test]
fn a_programs_send_buffer_grows_unless_it_chose_its_size() {
    const SO_SNDBUF: i32 = 7;
    let wire = firelane::Conditions { delay: Duration::from_millis(5), ..Default::default() };
    for is_chosen in [false, true] {
        let world = World::over(firelane::WireConfig::simulated(1, wire.clone()));
        let mut config = firelane::NetstackConfig::default();
        config.sockets.stream.send_capacity = 32 << 10;
        world.stack.engine().tune(world.stack.id(), &config).unwrap();
        let program = Program::new(&world);
        let listener = TcpListener::bind(&world.peer, "10.0.0.2:0").unwrap();
        let (fd, block) = program.connect(listener.local_addr().unwrap());
        let end = program.end(block);
        program.wait(&end, Readiness::WRITABLE);
        if is_chosen {
            let socket = SocketId(rustix::fs::fstat(&fd).unwrap().st_ino);
            let value = (16i32 << 10).to_ne_bytes().to_vec();
            let set = Request::SetOption { socket, level: 1, name: SO_SNDBUF, value };
            assert_eq!(program.ask(set), Answer::Done);
        }
        let (mut peer, _) = listener.accept().unwrap();
        let sent = pattern(1_000_000);
        let most = std::thread::scope(|scope| {
            let reader = scope.spawn(move || {
                let mut all = Vec::new();
                peer.read_to_end(&mut all).unwrap();
                all
            });
            let (mut left, mut most) = (&sent[..], 0);
            while !left.is_empty() {
                let written = end.write(&[IoSlice::new(left)]);
                program.kick(&end);
                match written {
                    Ok(count) => left = &left[count..],
                    Err(WriteError::WouldBlock) => {
                        let began = Instant::now();
                        if end.asks_for_storage() {
                            program.kick(&end);
                        }
                        end.wait(Readiness::WRITABLE, Duration::from_secs(10), &mut Spin::new(1));
                        assert!(began.elapsed() < Duration::from_secs(9), "nobody told");
                    }
                    Err(error) => panic!("{error:?}"),
                }
                most = most.max(size_in(end.block().rings.one.state.load(Ordering::Acquire)));
            }
            program.shut(block);
            assert!(reader.join().unwrap() == sent);
            most
        });
        assert_eq!(most > 32 << 10, !is_chosen, "{most}");
    }
}

#[test]
fn two_programs_talk_over_the_netstacks_own_loopback() {
    let world = World::new();
    let (one, two) = (Program::new(&world), Program::new(&world));
    for address in ["127.0.0.1:7000", "10.0.0.1:7001"] {
        let (listener, local) = one.listen(address);
        let (from, there) = two.connect(local);
        let (to, here) = one.accept(&listener);
        let sent = pattern(500_000);
        std::thread::scope(|scope| {
            let reader = scope.spawn(|| one.read_to_end(here));
            two.write(there, &sent);
            two.shut(there);
            assert!(reader.join().unwrap() == sent);
        });
        drop((from, to));
    }
}

#[test]
fn a_failure_is_told_with_its_number() {
    let world = World::new();
    let program = Program::new(&world);
    let (_fd, block) = program.connect("10.0.0.2:9".parse().unwrap());
    let end = program.end(block);
    program.wait(&end, Readiness::ERROR);
    assert_eq!(end.status() >> status::ERROR_SHIFT, REFUSED);
    assert_eq!(end.take_error() as u64, REFUSED);
    let (_fd, socket) = program.socket();
    let ask = |request| program.ask(request);
    let failed = |errno: i32| Answer::Failed { errno };
    let taken = program.listen("10.0.0.1:80");
    for (request, answer) in [
        (Request::Bind { socket, address: "10.0.0.7:1".parse().unwrap() }, failed(99)),
        (Request::Bind { socket, address: taken.1 }, failed(98)),
        (Request::Bind { socket, address: "[::1]:1".parse().unwrap() }, failed(97)),
        (Request::Connect { socket, address: "[::1]:1".parse().unwrap(), fast: false }, failed(97)),
        (Request::Listen { socket: SocketId(1), backlog: 1 }, failed(9)),
        (Request::GetOption { socket, level: 6, name: 999, len: 4 }, failed(92)),
        (Request::Attach, failed(9)),
        (Request::Waiter { arena: 999 }, failed(22)),
        (Request::Bind { socket, address: "10.0.0.1:0".parse().unwrap() }, Answer::Done),
        (Request::Bind { socket, address: "10.0.0.1:0".parse().unwrap() }, failed(22)),
    ] {
        assert_eq!(ask(request.clone()), answer, "{request:?}");
    }
    let waiting = ask(Request::Listen { socket, backlog: 0 });
    assert!(matches!(waiting, Answer::Stream { .. }), "{waiting:?}");
    // The second number of a listener's that TCP_INFO tells.
    let backlog = || match ask(Request::GetOption { socket, level: 6, name: 11, len: 32 }) {
        Answer::Option { value } => u32::from_ne_bytes(value[28..32].try_into().unwrap()),
        other => panic!("{other:?}"),
    };
    assert_eq!(backlog(), 1);
    for (wanted, got) in [(7, 7), (SAME_BACKLOG, 7), (300, 300), (2, 2), (i32::MAX as u32, 4096)] {
        assert_eq!(ask(Request::Listen { socket, backlog: wanted }), waiting, "it listens already");
        assert_eq!(backlog(), got);
    }
    let address = "10.0.0.2:1".parse().unwrap();
    assert_eq!(ask(Request::Connect { socket, address, fast: false }), failed(106));
    let stranger = Program::new(&world);
    assert_eq!(stranger.ask(Request::Names { socket }), failed(9), "another session's socket");
    let fd = taken.0.as_fd().try_clone_to_owned().unwrap();
    let reply = world.hub.lock().unwrap().request(stranger.session, Request::Attach, vec![fd]);
    assert!(matches!(reply.answer, Answer::Attached { .. }), "who shows the descriptor holds it");
    assert_eq!(reply.fds.len(), 1);
}

/// A connection of the kernel's whose last close waits for its peer.
fn slow_to_close() -> (OwnedFd, std::net::TcpStream) {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let slow = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (peer, _) = listener.accept().unwrap();
    rustix::net::sockopt::set_socket_linger(&slow, Some(Duration::from_secs(600))).unwrap();
    slow.set_nonblocking(true).unwrap();
    while (&slow).write(&[0; 1 << 16]).is_ok() {}
    (slow.into(), peer)
}

#[test]
fn what_a_program_shows_and_what_it_leaves_in_a_queue_may_be_slow_to_close() {
    let world = World::new();
    let program = Program::new(&world);
    let begun = Instant::now();
    let failed = |errno| Answer::Failed { errno };
    let mut peers = Vec::new();
    for (request, answer) in [
        (Request::Attach, failed(88)),
        (Request::Waiter { arena: program.arena }, failed(9)),
        (Request::Interfaces, failed(22)),
    ] {
        let (slow, peer) = slow_to_close();
        peers.push(peer);
        let reply = world.hub.lock().unwrap().request(program.session, request.clone(), vec![slow]);
        assert_eq!(reply.answer, answer, "{request:?}");
    }
    let file = std::fs::File::open("/dev/null").unwrap().into();
    let reply = world.hub.lock().unwrap().request(program.session, Request::Attach, vec![file]);
    assert_eq!(reply.answer, failed(88), "a file is no socket, whatever its inode");
    let (slow, peer) = slow_to_close();
    let (fd, _) = program.socket();
    carry::send(&fd, b"x", &[slow.as_fd()], true).unwrap();
    drop((slow, fd));
    until(|| world.counts()[1] == 0);
    assert!(begun.elapsed() < Duration::from_secs(300), "somebody has waited");
    drop((peers, peer));
}

#[test]
fn a_program_has_as_much_as_it_may() {
    let world = World::new();
    let small = Program::within(&world, Limits { sockets: 2, memory: 4096, ..Limits::default() });
    let make = |program: &Program<'_>| {
        let request = Request::Socket { family: Family::V4, kind: Kind::Stream, count: 1 };
        world.hub.lock().unwrap().request(program.session, request, Vec::new())
    };
    let kept = [make(&small), make(&small)];
    assert!(kept.iter().all(|it| matches!(it.answer, Answer::Sockets { .. })));
    assert_eq!(make(&small).answer, Answer::Failed { errno: 24 }, "EMFILE");
    drop(kept);
    // One page is less than a connection's two buffers, so the program waits for room; its neighbour does not.
    let listener = TcpListener::bind(&world.peer, "10.0.0.2:0").unwrap();
    until(|| world.counts()[1] == 0);
    let (_kept, block) = small.connect(listener.local_addr().unwrap());
    let (_peer, _) = listener.accept().unwrap();
    let end = small.end(block);
    until(|| end.status() & status::CONNECTED != 0);
    let written = end.write(&[IoSlice::new(b"x")]);
    assert!(matches!(written, Err(WriteError::WouldBlock)), "{written:?}");
    let generous = Program::new(&world);
    let (_fd, block) = generous.connect(listener.local_addr().unwrap());
    generous.wait(&generous.end(block), Readiness::WRITABLE);
    generous.write(block, b"another program has its own");
}

/// A program that takes all the sockets and all the buffers that it can get is refused by name, and what is another's is as
/// it was; when it ends, everything is there again.
#[test]
fn r11_what_one_program_takes_no_other_lacks() {
    const SOCKETS: usize = 40;
    let world = World::new();
    let victim = Program::new(&world);
    let listener = TcpListener::bind(&world.peer, "10.0.0.2:0").unwrap();
    let (_fd, block) = victim.connect(listener.local_addr().unwrap());
    let (mut peer, _) = listener.accept().unwrap();
    let before = world.counts();
    let greedy = Program::within(&world, Limits { sockets: SOCKETS, memory: 2 << 20, ..Limits::default() });
    let request = Request::Socket { family: Family::V4, kind: Kind::Stream, count: 1 };
    let make = || world.hub.lock().unwrap().request(greedy.session, request.clone(), Vec::new());
    let replies: Vec<_> = (0..3 * SOCKETS).map(|_| make()).collect();
    let refused = replies.iter().filter(|it| it.answer == Answer::Failed { errno: 24 }).count();
    assert_eq!(refused, 2 * SOCKETS, "EMFILE");
    // All of them connect and write what nobody reads: they get what they may have, and no page more.
    let (mut accepted, mut written) = (Vec::new(), 0);
    for reply in &replies {
        let Answer::Sockets { sockets } = &reply.answer else { continue };
        let connect =
            Request::Connect { socket: sockets[0], address: listener.local_addr().unwrap(), fast: false };
        let Answer::Stream { place } = greedy.ask(connect) else { panic!("connecting begins") };
        accepted.push(listener.accept().unwrap());
        let end = greedy.end(place.block);
        until(|| end.status() & status::CONNECTED != 0);
        written += end.write(&[IoSlice::new(&[7; 4 << 20])]).unwrap_or(0);
    }
    assert!((1..=2 << 20).contains(&written), "{written}");
    let sent = pattern(3_000_000);
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let mut got = vec![0; sent.len()];
            peer.read_exact(&mut got).unwrap();
            got
        });
        victim.write(block, &sent);
        assert!(reader.join().unwrap() == sent, "the neighbour's bytes");
    });
    drop((replies, accepted, greedy));
    world.wait_for(|now| now == before);
}

#[test]
fn the_last_descriptor_closes_what_was_written_first_and_unread_bytes_reset() {
    let world = World::new();
    let listener = TcpListener::bind(&world.peer, "10.0.0.2:0").unwrap();
    let address = listener.local_addr().unwrap();
    let program = Program::new(&world);
    // All at once, as a killed process: bytes in the ring, the session and the descriptor.
    let (fd, block) = program.connect(address);
    let sent = pattern(100_000);
    program.write(block, &sent);
    drop((fd, program));
    let (mut peer, _) = listener.accept().unwrap();
    let mut got = Vec::new();
    peer.read_to_end(&mut got).unwrap();
    assert!(got == sent, "{} bytes arrived", got.len());
    // Bytes that nobody read.
    let program = Program::new(&world);
    let (fd, block) = program.connect(address);
    let end = program.end(block);
    let (mut peer, _) = listener.accept().unwrap();
    peer.write_all(b"nobody reads this").unwrap();
    program.wait(&end, Readiness::READABLE);
    drop(fd);
    let failed = peer.read(&mut [0; 1]).unwrap_err();
    assert_eq!(failed.raw_os_error(), Some(RESET as i32), "{failed}");
    drop(program);
    world.wait_for(|[sessions, sockets, arenas, lies]| [sessions, sockets, arenas, lies] == [0; 4]);
}

#[test]
fn a_program_that_lies_loses_its_connection_and_nobody_else_does() {
    let world = World::new();
    let listener = TcpListener::bind(&world.peer, "10.0.0.2:0").unwrap();
    let (liar, honest) = (Program::new(&world), Program::new(&world));
    let (_kept, other) = honest.connect(listener.local_addr().unwrap());
    let (mut other_peer, _) = listener.accept().unwrap();
    honest.wait(&honest.end(other), Readiness::WRITABLE);
    for (count, spoil) in [
        (
            1,
            (|end: &StreamEnd<'_>| end.block().rings.one.tail.store(1 << 40, Ordering::Release))
                as fn(&StreamEnd<'_>),
        ),
        (2, |end| end.block().rings.one.head.store(7, Ordering::Release)),
    ] {
        let (fd, block) = liar.connect(listener.local_addr().unwrap());
        let (mut peer, _) = listener.accept().unwrap();
        let end = liar.end(block);
        liar.wait(&end, Readiness::WRITABLE);
        spoil(&end);
        peer.write_all(b"x").unwrap();
        liar.kick(&end);
        until(|| end.readiness().has(Readiness::ERROR));
        assert_eq!(end.status() >> status::ERROR_SHIFT, RESET);
        assert!(peer.read(&mut [0; 1]).is_err(), "the peer is told");
        drop(fd);
        world.wait_for(|[.., lies]| lies == count);
    }
    honest.write(other, b"unharmed");
    let mut bytes = [0; 8];
    other_peer.read_exact(&mut bytes).unwrap();
    assert_eq!(&bytes, b"unharmed");
}

#[test]
fn a_program_that_spoils_its_doorbell_stops_no_lane() {
    let world = World::new();
    let listener = TcpListener::bind(&world.peer, "10.0.0.2:0").unwrap();
    let (hostile, honest) = (Program::new(&world), Program::new(&world));
    let [(_one, block), (_two, other)] =
        [&hostile, &honest].map(|it| it.connect(listener.local_addr().unwrap()));
    let [mut peer, mut other_peer] = [(); 2].map(|()| listener.accept().unwrap().0);
    hostile.wait(&hostile.end(block), Readiness::WRITABLE);
    honest.wait(&honest.end(other), Readiness::WRITABLE);
    let arena = hostile.arena;
    let register = |wakes: OwnedFd| {
        let mut hub = world.hub.lock().unwrap();
        hub.request(hostile.session, Request::Waiter { arena }, vec![wakes]).answer
    };
    let full = rustix::event::eventfd(u32::MAX, rustix::event::EventfdFlags::empty()).unwrap();
    assert_eq!(register(full), Answer::Failed { errno: 9 }, "who writes to an eventfd may have to wait");
    let bell = doorbell::make().unwrap();
    let Answer::Slot { slot } = register(bell.try_clone().unwrap()) else { panic!("it is a doorbell") };
    let inbox = hostile.mapping.slot(slot).unwrap();
    hostile.end(block).block().waiters.fetch_or(1 << slot, Ordering::SeqCst);
    for _ in 0..50 {
        // Reading waits, and it is never read.
        rustix::fs::fcntl_setfl(&bell, rustix::fs::OFlags::empty()).unwrap();
        inbox.fall_asleep();
        peer.write_all(b"ring").unwrap();
        let is_rung = || {
            let mut poll = [rustix::event::PollFd::new(&bell, rustix::event::PollFlags::IN)];
            let now = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
            rustix::event::poll(&mut poll, Some(&now)).unwrap() == 1
        };
        until(is_rung);
        // The one lane is alive.
        other_peer.write_all(b"neighbour").unwrap();
        let mut bytes = [0; 9];
        assert_eq!(honest.read(other, &mut bytes).unwrap(), 9);
        honest.write(other, &bytes);
        other_peer.read_exact(&mut bytes).unwrap();
        inbox.wake_up();
        while inbox.news.take_word().is_some() {}
    }
}

#[test]
fn owner_words_of_the_dead_are_free() {
    let world = World::new();
    let listener = TcpListener::bind(&world.peer, "10.0.0.2:0").unwrap();
    let (first, second) = (Program::new(&world), Program::new(&world));
    let (fd, block) = first.connect(listener.local_addr().unwrap());
    let reply = world.hub.lock().unwrap().request(
        second.session,
        Request::Attach,
        vec![fd.as_fd().try_clone_to_owned().unwrap()],
    );
    let (shared, _) = Mapping::attach(&reply.fds[0]).unwrap();
    let words = shared.block(block).unwrap();
    words.send_owner.store(u64::from(second.session) << 32 | 5, Ordering::Release);
    words.recv_owner.store(u64::from(first.session) << 32 | 6, Ordering::Release);
    drop(second);
    assert_eq!(words.send_owner.load(Ordering::Acquire), 0, "its session is gone");
    assert_ne!(words.recv_owner.load(Ordering::Acquire), 0, "its session lives");
}

/// Without descriptors nobody could ask what is wrong: programs get none of the last ones.
#[test]
fn the_last_descriptors_are_kept_for_others_than_programs() {
    let world = World::new();
    let program = Program::new(&world);
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current.unwrap_or(1 << 20);
    let bell = doorbell::make().unwrap();
    let one_of_the_last = rustix::io::fcntl_dupfd_cloexec(&bell, limit as i32 - 8).unwrap();
    let ask = |bell| {
        let request = Request::Waiter { arena: program.arena };
        world.hub.lock().unwrap().request(program.session, request, vec![bell]).answer
    };
    assert_eq!(ask(one_of_the_last), Answer::Failed { errno: 23 }, "ENFILE");
    assert!(matches!(ask(bell), Answer::Slot { .. }));
}

/// Whatever a program leaves in its owner words, its memory is given back when it has ended: a session that has nothing to do with it
/// does not keep it.
#[test]
fn owner_words_that_name_strangers_keep_nothing() {
    let world = World::new();
    let listener = TcpListener::bind(&world.peer, "10.0.0.2:0").unwrap();
    let (stranger, program) = (Program::new(&world), Program::new(&world));
    let (fd, block) = program.connect(listener.local_addr().unwrap());
    program.wait(&program.end(block), Readiness::WRITABLE);
    let datagrams = Request::Socket { family: Family::V4, kind: Kind::Datagram, count: 1 };
    let made = world.hub.lock().unwrap().request(program.session, datagrams, Vec::new());
    let Answer::Sockets { ref sockets } = made.answer else { panic!("{:?}", made.answer) };
    let bind = Request::Bind { socket: sockets[0], address: "10.0.0.1:0".parse().unwrap() };
    let Answer::Stream { place } = program.ask(bind) else { panic!("it is bound") };
    for block in [block, place.block] {
        let words = program.mapping.block(block).unwrap();
        words.recv_owner.store(u64::from(stranger.session) << 32 | 5, Ordering::Release);
    }
    drop((fd, made, program));
    world.wait_for(|[sessions, sockets, arenas, _]| [sessions, sockets, arenas] == [1, 0, 1]);
}

/// Who was shown sockets of programs that are gone keeps none of their memory.
#[test]
fn memory_of_the_dead_goes_with_the_last_socket_there() {
    let world = World::new();
    let keeper = Program::new(&world);
    // Other tests of this process have arenas of their own.
    let mut inodes = Vec::new();
    for _ in 0..40 {
        let program = Program::new(&world);
        inodes.push(inode_behind(program.mapping.block(0).unwrap()));
        let (fd, _) = program.socket();
        let shown = vec![fd.as_fd().try_clone_to_owned().unwrap()];
        let reply = world.hub.lock().unwrap().request(keeper.session, Request::Attach, shown);
        assert!(matches!(reply.answer, Answer::Attached { .. }), "{:?}", reply.answer);
    }
    world.wait_for(|[sessions, sockets, arenas, _]| [sessions, sockets, arenas] == [1, 0, 1]);
    let is_gone = |inode: &String| !maps().lines().any(|line| line.split_whitespace().nth(4) == Some(inode));
    let begin = Instant::now();
    while !inodes.iter().all(is_gone) {
        // Workers that sleep are woken to let go of them.
        assert!(begin.elapsed() < Duration::from_secs(10), "of {inodes:?} some are mapped");
        std::thread::sleep(Duration::from_millis(5));
    }
    let (_fd, _) = keeper.socket();
}

fn maps() -> String {
    std::fs::read_to_string("/proc/self/maps").unwrap()
}

/// Which file is mapped where this lies.
fn inode_behind<T>(place: &T) -> String {
    let at = std::ptr::from_ref(place).addr();
    let has_it = |line: &&str| {
        let (begin, end) = line.split_whitespace().next().unwrap().split_once('-').unwrap();
        let [begin, end] = [begin, end].map(|it| usize::from_str_radix(it, 16).unwrap());
        (begin..end).contains(&at)
    };
    maps().lines().find(has_it).unwrap().split_whitespace().nth(4).unwrap().to_owned()
}

#[test]
fn connecting_and_closing_leaks_nothing() {
    const CYCLES: u32 = 10_000;
    let world = World::new();
    let program = Program::new(&world);
    let (listener, local) = program.listen("10.0.0.1:0");
    let descriptors = || std::fs::read_dir("/proc/self/fd").unwrap().count();
    let (before, mut highest) = (descriptors(), 0);
    for _ in 0..CYCLES {
        let (there, block) = program.connect(local);
        let (here, other) = program.accept(&listener);
        highest = highest.max(block).max(other);
        drop((there, here));
    }
    world.wait_for(|[_, sockets, ..]| sockets == 1);
    // Other tests of this process have descriptors of their own.
    assert!(descriptors() < before + 200, "{} descriptors before, {} after", before, descriptors());
    assert!(highest < 2000, "blocks are used again: {highest}");
    drop((listener, program));
    world.wait_for(|counts| counts == [0; 4]);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn whatever_a_program_asks_is_answered(
        asked in proptest::collection::vec((0u8..12, any::<u64>(), any::<i32>(), any::<u16>()), 1..60),
    ) {
        let world = World::new();
        let program = Program::new(&world);
        let mut own = Vec::new();
        for (what, a, b, c) in asked {
            let socket = match own.get(a as usize % (own.len() + 1)) {
                Some((_, socket)) => *socket,
                None => SocketId(a),
            };
            let address = SocketAddr::new([10, 0, 0, (c % 4) as u8].into(), c);
            let value = b.to_ne_bytes()[..(c % 5) as usize].to_vec();
            let _answered = match what {
                0..=2 => { own.push(program.socket()); Answer::Done }
                3 => program.ask(Request::Bind { socket, address }),
                4 => program.ask(Request::Listen { socket, backlog: b.unsigned_abs() }),
                5 => program.ask(Request::Connect { socket, address, fast: false }),
                6 => program.ask(Request::SetOption { socket, level: b % 50, name: (c % 70).into(), value }),
                7 => program.ask(Request::GetOption { socket, level: b % 50, name: (c % 70).into(), len: (c % 200).into() }),
                8 if b < 0 => program.ask(Request::Disconnect { socket }),
                8 => program.ask(Request::Names { socket }),
                9 => program.ask(Request::NoWaiter { arena: a, slot: (c % 64).into() }),
                10 => { if !own.is_empty() { own.swap_remove(a as usize % own.len()); } Answer::Done }
                _ => {
                    let block = program.mapping.block(u32::from(c)).unwrap();
                    block.rings.one.tail.store(a, Ordering::Release);
                    block.requests.store(a, Ordering::Release);
                    block.waiters.store(a, Ordering::Release);
                    block.rings.one.state.store(a, Ordering::Release);
                    let _ = program.mapping.lane(0).unwrap().tell(u32::from(c));
                    rustix::io::write(&program.bells[0], &1u64.to_ne_bytes()).unwrap();
                    Answer::Done
                }
            };
        }
        drop((own, program));
        world.wait_for(|[sessions, sockets, ..]| [sessions, sockets] == [0, 0]);
        // The daemon's side serves the next one.
        let next = Program::new(&world);
        let (_fd, _) = next.listen("10.0.0.1:0");
    }
}

/// As in Linux: each keeps to a device of its own (SO_BINDTODEVICE).
#[test]
fn listeners_of_different_devices_have_one_port() {
    let world = World::new();
    let (program, engine) = (Program::new(&world), world.stack.engine());
    let link = engine.add_link(Mtu::ETHERNET).unwrap();
    let config = VnicConfig::new("02:08:20:00:00:09".parse().unwrap());
    let vnic = engine.add_vnic(link, &config, VnicUser::Netstack(world.stack.id())).unwrap();
    engine.add_address(vnic, "10.0.9.1/24".parse().unwrap()).unwrap();
    let listen = |device: Option<u32>| {
        let (fd, socket) = program.socket();
        if let Some(device) = device {
            let value = device.to_ne_bytes().to_vec();
            assert_eq!(program.ask(Request::SetOption { socket, level: 1, name: 62, value }), Answer::Done);
        }
        let bound = program.ask(Request::Bind { socket, address: "0.0.0.0:80".parse().unwrap() });
        if bound != Answer::Done {
            return Err(bound);
        }
        assert!(matches!(program.ask(Request::Listen { socket, backlog: 16 }), Answer::Stream { .. }));
        Ok(fd)
    };
    // The loopback device's number is 1.
    let [loopback, beside] = [1, vnic.0 + 1].map(|device| listen(Some(device)).unwrap());
    for taken in [Some(1), Some(vnic.0 + 1), None] {
        assert_eq!(listen(taken).map(drop), Err(Answer::Failed { errno: 98 }), "{taken:?}");
    }
    for (listener, remote) in [(&loopback, "127.0.0.1:80"), (&beside, "10.0.9.1:80")] {
        let client = TcpStream::connect(&world.stack, remote).unwrap();
        let (_fd, _) = program.accept(listener);
        drop(client);
    }
    assert!(TcpStream::connect(&world.stack, "10.0.0.1:80").is_err(), "nobody keeps to that one");
}

/// As in Linux: one of IPv6 alone shares (SO_REUSEPORT) with one that has IPv4 as well, which alone gets what comes over IPv4.
#[test]
fn a_listener_of_ipv6_alone_shares_with_one_of_both() {
    for v6_only_first in [true, false] {
        let world = World::new();
        let program = Program::new(&world);
        let listen = |is_v6_only: bool| {
            let request = Request::Socket { family: Family::V6, kind: Kind::Stream, count: 1 };
            let reply = world.hub.lock().unwrap().request(program.session, request, Vec::new());
            let Answer::Sockets { sockets } = reply.answer else { panic!("{:?}", reply.answer) };
            let socket = sockets[0];
            for (level, name, on) in [(1, 15, true), (41, 26, is_v6_only)] {
                let value = i32::from(on).to_ne_bytes().to_vec();
                assert_eq!(program.ask(Request::SetOption { socket, level, name, value }), Answer::Done);
            }
            let address = "[::]:80".parse().unwrap();
            assert_eq!(program.ask(Request::Bind { socket, address }), Answer::Done);
            assert!(matches!(program.ask(Request::Listen { socket, backlog: 16 }), Answer::Stream { .. }));
            reply.fds.into_iter().next().unwrap()
        };
        let listeners = [v6_only_first, !v6_only_first].map(listen);
        let dual = &listeners[usize::from(v6_only_first)];
        for _ in 0..8 {
            let client = TcpStream::connect(&world.peer, "10.0.0.1:80").unwrap();
            let (_fd, _) = program.accept(dual);
            drop(client);
        }
    }
}

/// The port is to be drawn by listen(2) (IP_BIND_ADDRESS_NO_PORT).
#[test]
fn who_cannot_listen_for_want_of_a_port_keeps_the_address_that_he_has_bound() {
    let world = World::new();
    let mut config = firelane::NetstackConfig { tcp_ports: 50_000..=50_000, ..Default::default() };
    world.stack.engine().tune(world.stack.id(), &config).unwrap();
    let program = Program::new(&world);
    let _taken = program.listen("10.0.0.1:50000");
    let (_fd, socket) = program.socket();
    let value = 1_i32.to_ne_bytes().to_vec();
    assert_eq!(program.ask(Request::SetOption { socket, level: 0, name: 24, value }), Answer::Done);
    let address: SocketAddr = "10.0.0.1:0".parse().unwrap();
    assert_eq!(program.ask(Request::Bind { socket, address }), Answer::Done);
    assert_eq!(program.names(socket)[0], Some(address));
    let listen = Request::Listen { socket, backlog: 1 };
    assert_eq!(program.ask(listen.clone()), Answer::Failed { errno: 98 });
    assert_eq!(program.names(socket)[0], Some(address), "it is still there");
    config.tcp_ports = 50_000..=50_001;
    world.stack.engine().tune(world.stack.id(), &config).unwrap();
    assert!(matches!(program.ask(listen), Answer::Stream { .. }));
    assert_eq!(program.names(socket)[0], Some("10.0.0.1:50001".parse().unwrap()));
}
