//! Programs that tests play: a driver that knows the control messages and the words of a block, in a netstack with a peer.
#![allow(dead_code, reason = "each test file needs some of it")]

use std::io::{IoSlice, IoSliceMut, Read};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use firelane::{Hub, Limits, Owner, Stack, TcpStream};
use firelane_shm::control::{Answer, Arrived, Family, Kind, Place, Request, SocketId};
use firelane_shm::layout::TAKEN;
use firelane_shm::{Holder, Mapping, ReadError, Readiness, Spin, StreamEnd, WriteError, carry};

pub(crate) const HERE: &str = "10.0.0.1";
pub(crate) const REFUSED: u64 = 111;
pub(crate) const RESET: u64 = 104;

/// A netstack with a hub, and a peer on the other end of its wire.
pub(crate) struct World {
    pub(crate) stack: Stack,
    pub(crate) peer: Stack,
    pub(crate) hub: Arc<Mutex<Hub>>,
    pub(crate) stop: Arc<AtomicBool>,
    pub(crate) thread: Option<std::thread::JoinHandle<()>>,
}

impl World {
    pub(crate) fn new() -> Self {
        Self::over(firelane::WireConfig::default())
    }

    pub(crate) fn over(wire: firelane::WireConfig) -> Self {
        Self::of(1, wire)
    }

    /// With so many lanes.
    pub(crate) fn of(lanes: usize, wire: firelane::WireConfig) -> Self {
        let (left, right) = firelane::wire(wire);
        let build = |end: firelane::Queue, addr: &str| {
            Stack::builder().lanes(lanes).interface(end).address(addr).unwrap().build().unwrap()
        };
        let (stack, peer) = (build(left.into(), "10.0.0.1/24"), build(right.into(), "10.0.0.2/24"));
        let hub = Arc::new(Mutex::new(Hub::new(stack.engine()).unwrap()));
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

    pub(crate) fn counts(&self) -> [u64; 4] {
        self.hub.lock().unwrap().counts()
    }

    #[track_caller]
    pub(crate) fn wait_for(&self, what: impl Fn([u64; 4]) -> bool) {
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
pub(crate) fn until(mut is_there: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while !is_there() {
        assert!(Instant::now() < deadline, "it never came");
        std::thread::sleep(Duration::from_micros(100));
    }
}

/// Waits until there is something to be told of a connection.
pub(crate) fn wait_for_one(listener: &OwnedFd) {
    until(|| {
        let mut poll = [rustix::event::PollFd::new(listener, rustix::event::PollFlags::IN)];
        let while_it_may_come = rustix::event::Timespec { tv_sec: 1, tv_nsec: 0 };
        rustix::event::poll(&mut poll, Some(&while_it_may_come)).unwrap() == 1
    });
}

/// A session.
pub(crate) struct Program<'a> {
    pub(crate) world: &'a World,
    pub(crate) session: u32,
    pub(crate) mapping: Mapping,
    pub(crate) arena: u64,
    pub(crate) bells: Vec<OwnedFd>,
}

impl<'a> Program<'a> {
    pub(crate) fn new(world: &'a World) -> Self {
        Self::within(world, Limits::default())
    }

    pub(crate) fn within(world: &'a World, limits: Limits) -> Self {
        Self::of_user(world, 0, limits)
    }

    pub(crate) fn of_user(world: &'a World, user: u32, limits: Limits) -> Self {
        let owner = Owner { pid: std::process::id(), user, command: "driver".to_owned(), kin: None };
        let (session, reply) =
            world.hub.lock().unwrap().begin(owner, (world.stack.id(), "test"), limits, Vec::new()).unwrap();
        let mut fds = reply.fds.into_iter();
        let (mapping, number) = Mapping::attach(fds.next().unwrap()).unwrap();
        let all = world.stack.engine().lanes();
        let is_its = |arena, lanes: u32| arena == number && lanes as usize == all;
        assert!(matches!(reply.answer, Answer::Welcome { arena, lanes, .. } if is_its(arena, lanes)));
        Self { world, session, mapping, arena: number, bells: fds.collect() }
    }

    pub(crate) fn ask(&self, request: Request) -> Answer {
        self.world.hub.lock().unwrap().request(self.session, request, Vec::new()).answer
    }

    pub(crate) fn socket(&self) -> (OwnedFd, SocketId) {
        let request = Request::Socket { family: Family::V4, kind: Kind::Stream, count: 1 };
        let reply = self.world.hub.lock().unwrap().request(self.session, request, Vec::new());
        let Answer::Sockets { sockets } = reply.answer else { panic!("{:?}", reply.answer) };
        let fd = reply.fds.into_iter().next().unwrap();
        assert_eq!(sockets[0].0, rustix::fs::fstat(&fd).unwrap().st_ino);
        (fd, sockets[0])
    }

    pub(crate) fn listen(&self, address: &str) -> (OwnedFd, SocketAddr) {
        let (fd, socket) = self.socket();
        assert_eq!(self.ask(Request::Bind { socket, address: address.parse().unwrap() }), Answer::Done);
        assert!(matches!(self.ask(Request::Listen { socket, backlog: 16 }), Answer::Stream { .. }));
        let Answer::Names { local: Some(local), remote: None } = self.ask(Request::Names { socket }) else {
            panic!("a listener has one name");
        };
        (fd, local)
    }

    /// What is told of a connection that waits at a listener.
    pub(crate) fn told(&self, listener: &OwnedFd) -> Place {
        let mut bytes = [0; Arrived::BYTES];
        wait_for_one(listener);
        assert_eq!(carry::receive(listener, &mut bytes, &mut Vec::new(), true).unwrap(), Arrived::BYTES);
        Arrived::decode(&bytes).unwrap().place
    }

    /// Takes it under a name.
    pub(crate) fn take(&self, place: Place, socket: SocketId) {
        let words = self.mapping.block(place.block).unwrap();
        words.file.fetch_or(TAKEN, Ordering::Relaxed);
        words.taken_as.store(socket.0, Ordering::Release);
    }

    pub(crate) fn accept(&self, listener: &OwnedFd) -> (OwnedFd, u32) {
        let place = self.told(listener);
        let (fd, socket) = self.socket();
        self.take(place, socket);
        (fd, place.block)
    }

    /// Closes a socket and keeps its descriptor.
    pub(crate) fn close(&self, socket: SocketId, block: Option<u32>) {
        let place = block.map(|block| Place { arena: self.arena, block });
        self.world.hub.lock().unwrap().closed(self.session, socket, place);
    }

    pub(crate) fn names(&self, socket: SocketId) -> [Option<SocketAddr>; 2] {
        match self.ask(Request::Names { socket }) {
            Answer::Names { local, remote } => [local, remote],
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn connect(&self, address: SocketAddr) -> (OwnedFd, u32) {
        let (fd, socket) = self.socket();
        let Answer::Stream { place } = self.ask(Request::Connect { socket, address, fast: false }) else {
            panic!("connecting begins")
        };
        (fd, place.block)
    }

    /// Connects by a block that was offered, as a socket of this name.
    pub(crate) fn begin(&self, block: u32, socket: SocketId, to: SocketAddr) {
        self.ask_silently(block, socket, to);
        self.kick(&self.end(block));
    }

    /// Asks for a connection by a block that was offered, and kicks no lane for it.
    pub(crate) fn ask_silently(&self, block: u32, socket: SocketId, to: SocketAddr) {
        self.ask_with(block, socket, to, 0);
    }

    /// The same with bits of its words ([`firelane_shm::layout::request`]).
    pub(crate) fn ask_with(&self, block: u32, socket: SocketId, to: SocketAddr, bits: u64) {
        let IpAddr::V4(ip) = to.ip() else { panic!("an address of IPv4") };
        self.mapping.block(block).unwrap().ask_to_connect(socket.0, ip.to_ipv6_mapped(), to.port(), bits);
    }

    pub(crate) fn end(&self, block: u32) -> StreamEnd<'_> {
        StreamEnd::new(&self.mapping, block, Holder::new(self.session, 1)).unwrap()
    }

    pub(crate) fn kick(&self, end: &StreamEnd<'_>) {
        end.kick(0, |lane| {
            rustix::io::write(&self.bells[lane as usize], &1u64.to_ne_bytes()).unwrap();
            true
        });
    }

    pub(crate) fn wait(&self, end: &StreamEnd<'_>, events: u32) {
        let deadline = Instant::now() + Duration::from_secs(20);
        while !end.readiness().has(events | Readiness::ERROR | Readiness::HANGUP) {
            assert!(Instant::now() < deadline, "{:?} of {events:#x}", end.readiness());
            if end.asks_for_storage() {
                self.kick(end);
            }
            end.wait(events, Duration::from_millis(100), &mut Spin::new(1));
        }
    }

    pub(crate) fn write(&self, block: u32, mut bytes: &[u8]) {
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

    pub(crate) fn read(&self, block: u32, to: &mut [u8]) -> Result<usize, ReadError> {
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

    pub(crate) fn read_to_end(&self, block: u32) -> Vec<u8> {
        let (mut all, mut piece) = (Vec::new(), vec![0; 10_000]);
        loop {
            match self.read(block, &mut piece).unwrap() {
                0 => return all,
                count => all.extend(&piece[..count]),
            }
        }
    }

    pub(crate) fn shut(&self, block: u32) {
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

/// Whether the other side has ended or reset the connection.
pub(crate) fn is_over(client: &mut TcpStream) -> bool {
    client.set_read_timeout(Some(Duration::from_millis(1))).unwrap();
    let read = client.read(&mut [0]);
    // What is read next may take longer.
    client.set_read_timeout(None).unwrap();
    match read {
        Ok(count) => count == 0,
        Err(error) => error.kind() == std::io::ErrorKind::ConnectionReset,
    }
}

pub(crate) fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|n| (n * 31 + n / 251) as u8).collect()
}
