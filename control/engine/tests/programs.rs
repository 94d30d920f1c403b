//! Programs in shared memory, spoken for by a driver that knows the control messages and the words of a block: both
//! ways, every end, and every lie.
#![allow(clippy::unwrap_used, reason = "a helper of tests fails as a test does")]

use std::io::{IoSlice, IoSliceMut, Read, Write};
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use firelane::{Hub, Limits, Owner, Stack, TcpListener, TcpStream};
use firelane_frame::ring_state::size_in;
use firelane_shm::control::{Answer, Arrived, Family, Kind, Place, Request, SocketId};
use firelane_shm::layout::{TAKEN, request, status};
use firelane_shm::{Holder, Mapping, ReadError, Readiness, Spin, StreamEnd, WriteError, carry, doorbell};
use proptest::prelude::*;

const HERE: &str = "10.0.0.1";
const REFUSED: u64 = 111;
const RESET: u64 = 104;

/// A netstack with a hub, and a peer on the other end of its wire.
struct World {
    stack: Stack,
    peer: Stack,
    hub: Arc<Mutex<Hub>>,
    stop: Arc<AtomicBool>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl World {
    fn new() -> Self {
        Self::over(firelane::WireConfig::default())
    }

    fn over(wire: firelane::WireConfig) -> Self {
        let (left, right) = firelane::wire(wire);
        let build = |end: firelane::Queue, addr: &str| {
            Stack::builder().interface(end).address(addr).unwrap().build().unwrap()
        };
        let (stack, peer) = (build(left.into(), "10.0.0.1/24"), build(right.into(), "10.0.0.2/24"));
        let hub = Arc::new(Mutex::new(Hub::new(stack.engine(), |_| None).unwrap()));
        let stop = Arc::new(AtomicBool::new(false));
        let (of_thread, stopped) = (Arc::clone(&hub), Arc::clone(&stop));
        let thread = std::thread::spawn(move || {
            while !stopped.load(Ordering::Acquire) {
                of_thread.lock().unwrap().look();
                std::thread::sleep(Duration::from_micros(200));
            }
        });
        Self { stack, peer, hub, stop, thread: Some(thread) }
    }

    fn counts(&self) -> [u64; 4] {
        self.hub.lock().unwrap().counts()
    }

    #[track_caller]
    fn wait_for(&self, what: impl Fn([u64; 4]) -> bool) {
        until(|| {
            self.hub.lock().unwrap().tidy();
            what(self.counts())
        });
    }
}

impl Drop for World {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        self.thread.take().unwrap().join().unwrap();
    }
}

#[track_caller]
fn until(mut is_there: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while !is_there() {
        assert!(Instant::now() < deadline, "it never came");
        std::thread::sleep(Duration::from_micros(100));
    }
}

/// Waits until there is something to be told of a connection.
fn wait_for_one(listener: &OwnedFd) {
    until(|| {
        let mut poll = [rustix::event::PollFd::new(listener, rustix::event::PollFlags::IN)];
        rustix::event::poll(&mut poll, None).unwrap() == 1
    });
}

/// A session.
struct Program<'a> {
    world: &'a World,
    session: u32,
    mapping: Mapping,
    arena: u64,
    bells: Vec<OwnedFd>,
}

impl<'a> Program<'a> {
    fn new(world: &'a World) -> Self {
        Self::within(world, Limits::default())
    }

    fn within(world: &'a World, limits: Limits) -> Self {
        let owner = Owner { pid: std::process::id(), user: 0, command: "driver".to_owned() };
        let (session, reply) =
            world.hub.lock().unwrap().begin(owner, (world.stack.id(), "test"), limits, Vec::new()).unwrap();
        let mut fds = reply.fds.into_iter();
        let (mapping, number) = Mapping::attach(fds.next().unwrap()).unwrap();
        assert!(matches!(reply.answer, Answer::Welcome { arena, lanes: 1, .. } if arena == number));
        Self { world, session, mapping, arena: number, bells: fds.collect() }
    }

    fn ask(&self, request: Request) -> Answer {
        self.world.hub.lock().unwrap().request(self.session, request, Vec::new()).answer
    }

    fn socket(&self) -> (OwnedFd, SocketId) {
        let request = Request::Socket { family: Family::V4, kind: Kind::Stream, count: 1 };
        let reply = self.world.hub.lock().unwrap().request(self.session, request, Vec::new());
        let Answer::Sockets { sockets } = reply.answer else { panic!("{:?}", reply.answer) };
        let fd = reply.fds.into_iter().next().unwrap();
        assert_eq!(sockets[0].0, rustix::fs::fstat(&fd).unwrap().st_ino);
        (fd, sockets[0])
    }

    fn listen(&self, address: &str) -> (OwnedFd, SocketAddr) {
        let (fd, socket) = self.socket();
        assert_eq!(self.ask(Request::Bind { socket, address: address.parse().unwrap() }), Answer::Done);
        assert_eq!(self.ask(Request::Listen { socket, backlog: 16 }), Answer::Done);
        let Answer::Names { local: Some(local), remote: None } = self.ask(Request::Names { socket }) else {
            panic!("a listener has one name");
        };
        (fd, local)
    }

    /// What is told of a connection that waits at a listener.
    fn told(&self, listener: &OwnedFd) -> Place {
        let mut bytes = [0; Arrived::BYTES];
        wait_for_one(listener);
        assert_eq!(carry::receive(listener, &mut bytes, &mut Vec::new(), true).unwrap(), Arrived::BYTES);
        Arrived::decode(&bytes).unwrap().place
    }

    /// Takes it under a name.
    fn take(&self, place: Place, socket: SocketId) {
        let words = self.mapping.block(place.block).unwrap();
        words.file.fetch_or(TAKEN, Ordering::Relaxed);
        words.taken_as.store(socket.0, Ordering::Release);
    }

    fn accept(&self, listener: &OwnedFd) -> (OwnedFd, u32) {
        let place = self.told(listener);
        let (fd, socket) = self.socket();
        self.take(place, socket);
        (fd, place.block)
    }

    /// Closes a socket and keeps its descriptor.
    fn close(&self, socket: SocketId, block: Option<u32>) {
        let place = block.map(|block| Place { arena: self.arena, block });
        self.world.hub.lock().unwrap().closed(self.session, socket, place);
    }

    fn names(&self, socket: SocketId) -> [Option<SocketAddr>; 2] {
        match self.ask(Request::Names { socket }) {
            Answer::Names { local, remote } => [local, remote],
            other => panic!("{other:?}"),
        }
    }

    fn connect(&self, address: SocketAddr) -> (OwnedFd, u32) {
        let (fd, socket) = self.socket();
        let Answer::Stream { place } = self.ask(Request::Connect { socket, address }) else {
            panic!("connecting begins")
        };
        (fd, place.block)
    }

    fn end(&self, block: u32) -> StreamEnd<'_> {
        StreamEnd::new(&self.mapping, block, Holder::new(self.session, 1)).unwrap()
    }

    fn kick(&self, end: &StreamEnd<'_>) {
        if let Some(lane) = end.kick() {
            rustix::io::write(&self.bells[lane as usize], &1u64.to_ne_bytes()).unwrap();
        }
    }

    fn wait(&self, end: &StreamEnd<'_>, events: u32) {
        let deadline = Instant::now() + Duration::from_secs(20);
        while !end.readiness().has(events | Readiness::ERROR | Readiness::HANGUP) {
            assert!(Instant::now() < deadline, "{:?} of {events:#x}", end.readiness());
            if end.asks_for_storage() {
                self.kick(end);
            }
            end.wait(events, Duration::from_millis(100), &mut Spin::new(1));
        }
    }

    fn write(&self, block: u32, mut bytes: &[u8]) {
        let end = self.end(block);
        while !bytes.is_empty() {
            let written = end.write(&[IoSlice::new(bytes)]);
            // Also when there was no storage: the lane has been asked for some.
            self.kick(&end);
            match written {
                Ok(count) => bytes = &bytes[count..],
                Err(WriteError::WouldBlock) => self.wait(&end, Readiness::WRITABLE),
                Err(error) => panic!("{error:?}"),
            }
        }
    }

    fn read(&self, block: u32, to: &mut [u8]) -> Result<usize, ReadError> {
        let end = self.end(block);
        loop {
            match end.read(&mut [IoSliceMut::new(to)], false) {
                Ok((count, kick)) => {
                    if kick {
                        self.kick(&end);
                    }
                    return Ok(count);
                }
                Err(ReadError::WouldBlock) => self.wait(&end, Readiness::READABLE),
                Err(error) => return Err(error),
            }
        }
    }

    fn read_to_end(&self, block: u32) -> Vec<u8> {
        let (mut all, mut piece) = (Vec::new(), vec![0; 10_000]);
        loop {
            match self.read(block, &mut piece).unwrap() {
                0 => return all,
                count => all.extend(&piece[..count]),
            }
        }
    }

    fn shut(&self, block: u32) {
        let end = self.end(block);
        end.shut_write();
        self.kick(&end);
    }
}

impl Drop for Program<'_> {
    fn drop(&mut self) {
        self.world.hub.lock().unwrap().end(self.session);
    }
}

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|n| (n * 31 + n / 251) as u8).collect()
}

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
fn a_socket_that_is_closed_and_kept_is_a_new_one() {
    let world = World::new();
    let (program, other) = (Program::new(&world), Program::new(&world));
    let listener = TcpListener::bind(&world.peer, "10.0.0.2:0").unwrap();
    let (_fd, socket) = program.socket();
    for _ in 0..3 {
        assert_eq!(program.names(socket), [None; 2]);
        let address = listener.local_addr().unwrap();
        let Answer::Stream { place } = program.ask(Request::Connect { socket, address }) else {
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

/// Whether the other side has ended or reset the connection.
fn is_over(client: &mut TcpStream) -> bool {
    client.set_read_timeout(Some(Duration::from_millis(1))).unwrap();
    match client.read(&mut [0]) {
        Ok(count) => count == 0,
        Err(error) => error.kind() == std::io::ErrorKind::ConnectionReset,
    }
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
        let Answer::Stream { place } = program.ask(Request::Connect { socket, address }) else {
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
        (Request::Connect { socket, address: "[::1]:1".parse().unwrap() }, failed(97)),
        (Request::Listen { socket: SocketId(1), backlog: 1 }, failed(9)),
        (Request::GetOption { socket, level: 6, name: 999, len: 4 }, failed(92)),
        (Request::Attach, failed(9)),
        (Request::Waiter { arena: 999 }, failed(22)),
        (Request::Bind { socket, address: "10.0.0.1:0".parse().unwrap() }, Answer::Done),
        (Request::Bind { socket, address: "10.0.0.1:0".parse().unwrap() }, failed(22)),
        (Request::Listen { socket, backlog: 0 }, Answer::Done),
        (Request::Connect { socket, address: "10.0.0.2:1".parse().unwrap() }, failed(106)),
    ] {
        assert_eq!(ask(request.clone()), answer, "{request:?}");
    }
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
    let small = Program::within(&world, Limits { sockets: 2, memory: 4096 });
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
    let greedy = Program::within(&world, Limits { sockets: SOCKETS, memory: 2 << 20 });
    let request = Request::Socket { family: Family::V4, kind: Kind::Stream, count: 1 };
    let make = || world.hub.lock().unwrap().request(greedy.session, request.clone(), Vec::new());
    let replies: Vec<_> = (0..3 * SOCKETS).map(|_| make()).collect();
    let refused = replies.iter().filter(|it| it.answer == Answer::Failed { errno: 24 }).count();
    assert_eq!(refused, 2 * SOCKETS, "EMFILE");
    // All of them connect and write what nobody reads: they get what they may have, and no page more.
    let (mut accepted, mut written) = (Vec::new(), 0);
    for reply in &replies {
        let Answer::Sockets { sockets } = &reply.answer else { continue };
        let connect = Request::Connect { socket: sockets[0], address: listener.local_addr().unwrap() };
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
                5 => program.ask(Request::Connect { socket, address }),
                6 => program.ask(Request::SetOption { socket, level: b % 50, name: (c % 70).into(), value }),
                7 => program.ask(Request::GetOption { socket, level: b % 50, name: (c % 70).into(), len: (c % 200).into() }),
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
