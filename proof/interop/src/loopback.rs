//! A daemon without a netstack: it joins the sockets of preloaded programs to each other, byte by byte.
//!
//! It speaks the whole contract of `drivers/shm` and obeys what a program may rely on, so what the preloaded library does
//! can be tested without a lane, a namespace or a clock. Every address is this host's; only ports matter.

use std::collections::{BTreeMap, VecDeque};
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use firelane_shm::control::{
    Answer, Arrived, Family, Interface, Kind, MESSAGE_MAX, Place, Request, SocketId, State,
};
use firelane_shm::layout::{PAGE, SLOT_SHARED, margin, request, status};
use firelane_shm::{Arena, Layout, carry};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, accept_with, bind, listen, socket_with,
    socketpair,
};

/// The storage of each ring.
const RING_SHIFT: u32 = 16;
const RING: u64 = 1 << RING_SHIFT;
/// Where a ring's size is in its state word, and that it has storage.
const SIZE_SHIFT: u32 = 2;
const ATTACHED: u64 = 1;
/// Linux' error numbers.
const CONNECTION_REFUSED: u64 = 111;
const CONNECTION_RESET: u64 = 104;
/// SO_LINGER, and its value "on, for no time".
const LINGER: (i32, i32) = (1, 13);
const LINGER_NONE: [u8; 8] = [1, 0, 0, 0, 0, 0, 0, 0];

/// The daemon, running.
#[derive(Debug)]
pub struct Loopback {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
    count: Arc<Mutex<Count>>,
}

/// What the daemon holds, for tests that look for leaks.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Count {
    /// Sessions that have not ended.
    pub sessions: usize,
    /// Sockets that somebody holds.
    pub sockets: usize,
}

impl Loopback {
    /// Serves programs at `path`.
    ///
    /// # Panics
    /// If the socket cannot be made.
    pub fn start(path: &Path) -> Self {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let door = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).expect("a socket");
        bind(&door, &SocketAddrUnix::new(path).expect("a short path")).expect("the folder is writable");
        listen(&door, 64).expect("it can listen");
        let stop = Arc::new(AtomicBool::new(false));
        let count = Arc::new(Mutex::new(Count::default()));
        let mut serving =
            Serving { door, sessions: Vec::new(), sockets: BTreeMap::new(), last: 0, port: 40_000 };
        let (ends, counted) = (Arc::clone(&stop), Arc::clone(&count));
        let thread = std::thread::spawn(move || {
            while !ends.load(Ordering::Relaxed) {
                serving.turn();
                let now = Count { sessions: serving.sessions.len(), sockets: serving.sockets.len() };
                *counted.lock().expect("nobody panics with it") = now;
            }
        });
        Self { stop, thread: Some(thread), count }
    }

    /// What it holds at present.
    ///
    /// # Panics
    /// If the daemon panicked.
    pub fn count(&self) -> Count {
        *self.count.lock().expect("the daemon lives")
    }

    /// Ends without a word to anybody.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

impl Drop for Loopback {
    fn drop(&mut self) {
        self.stop();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// A program's session. Its arena lives while a socket lies in it.
struct Session {
    control: OwnedFd,
    number: u32,
    bell: OwnedFd,
    arena: Arc<Room>,
}

/// An arena, and what is given out of it.
struct Room {
    arena: Arena,
    blocks: Mutex<u32>,
    bells: Mutex<Vec<OwnedFd>>,
}

struct Socket {
    /// Our end; the program's copies are what counts.
    end: OwnedFd,
    family: Family,
    /// What was set and is only remembered, except SO_LINGER.
    options: BTreeMap<(i32, i32), Vec<u8>>,
    bound: Option<SocketAddr>,
    state: What,
    /// The program holds it no more.
    is_closed: bool,
}

enum What {
    Fresh,
    Listening { backlog: usize, queue: VecDeque<(Arrived, OwnedFd)> },
    Stream(Stream),
}

struct Stream {
    room: Arc<Room>,
    block: u32,
    peer: Option<u64>,
    local: SocketAddr,
    remote: SocketAddr,
    has_finished: bool,
}

struct Serving {
    door: OwnedFd,
    sessions: Vec<Session>,
    sockets: BTreeMap<u64, Socket>,
    last: u32,
    port: u16,
}

fn inode(fd: impl AsFd) -> u64 {
    rustix::fs::fstat(fd).expect("an open descriptor").st_ino
}

fn failed(errno: i32) -> (Answer, Vec<OwnedFd>) {
    (Answer::Failed { errno }, Vec::new())
}

impl Serving {
    fn turn(&mut self) {
        self.wait();
        while let Ok(control) = accept_with(&self.door, SocketFlags::CLOEXEC) {
            self.admit(control);
        }
        self.answer_all();
        self.notice_closed();
        self.hand_over();
        while self.carry_bytes() {}
        let sockets = &mut self.sockets;
        sockets.retain(|_, socket| {
            !socket.is_closed || matches!(&socket.state, What::Stream(s) if s.peer.is_some())
        });
    }

    /// Sleeps until a program asks, rings or closes; bytes are looked for at least a thousand times a second.
    fn wait(&self) {
        let mut list = vec![PollFd::new(&self.door, PollFlags::IN)];
        for session in &self.sessions {
            list.push(PollFd::new(&session.control, PollFlags::IN));
            list.push(PollFd::new(&session.bell, PollFlags::IN));
        }
        let limit = Timespec { tv_sec: 0, tv_nsec: 1_000_000 };
        let _ = poll(&mut list, Some(&limit));
        for session in &self.sessions {
            let _ = rustix::io::read(&session.bell, &mut [0; 8]);
        }
    }

    fn admit(&mut self, control: OwnedFd) {
        self.last += 1;
        let layout = Layout { lanes: 1, blocks: 4096, storage_bytes: 4096 * 2 * RING };
        let arena = Arena::create(layout, u64::from(self.last)).expect("an arena");
        let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).expect("an eventfd");
        let room = Room { arena, blocks: Mutex::new(0), bells: Mutex::new(Vec::new()) };
        self.sessions.push(Session { control, number: self.last, bell, arena: Arc::new(room) });
    }

    fn answer_all(&mut self) {
        let mut sessions = std::mem::take(&mut self.sessions);
        sessions.retain(|session| {
            let (mut bytes, mut beside) = ([0; MESSAGE_MAX], Vec::new());
            loop {
                match carry::receive(&session.control, &mut bytes, &mut beside, false) {
                    Ok(0) => return self.bury(session.number),
                    Ok(len) => {
                        let (number, request) = Request::decode(&bytes[..len]).expect("a request");
                        let (answer, fds) = self.answer(session, request, &mut beside);
                        let fds: Vec<BorrowedFd<'_>> = fds.iter().map(AsFd::as_fd).collect();
                        let _ = carry::send(&session.control, &answer.encode(number), &fds, true);
                        beside.clear();
                    }
                    Err(error) => {
                        return error.kind() == std::io::ErrorKind::WouldBlock || self.bury(session.number);
                    }
                }
            }
        });
        sessions.append(&mut self.sessions);
        self.sessions = sessions;
    }

    /// A session has ended: what its threads held is freed.
    fn bury(&self, session: u32) -> bool {
        for socket in self.sockets.values() {
            if let What::Stream(stream) = &socket.state {
                stream.words().bury(session);
            }
        }
        false
    }

    fn answer(
        &mut self,
        session: &Session,
        request: Request,
        beside: &mut Vec<OwnedFd>,
    ) -> (Answer, Vec<OwnedFd>) {
        let done = |result: Result<(), i32>| match result {
            Ok(()) => (Answer::Done, Vec::new()),
            Err(errno) => failed(errno),
        };
        match request {
            Request::Hello { netstack } => {
                let fds = [session.arena.arena.as_fd(), session.bell.as_fd()];
                let fds = fds.map(|fd| fd.try_clone_to_owned().expect("a descriptor"));
                let arena = session.arena.arena.number();
                let welcome = Answer::Welcome { session: session.number, lanes: 1, arena, netstack };
                (welcome, fds.into())
            }
            Request::Socket { kind: Kind::Datagram, .. } => failed(93),
            Request::Socket { family, count, .. } => {
                let made: Vec<_> = (0..count).map(|_| self.make(family)).collect();
                let (sockets, fds) = made.into_iter().map(|(id, fd)| (SocketId(id), fd)).unzip();
                (Answer::Sockets { sockets }, fds)
            }
            Request::Bind { socket, address } => done(self.bind(socket.0, address)),
            Request::Listen { socket, backlog } => done(self.listen(socket.0, backlog)),
            Request::Connect { socket, address } => match self.connect(session, socket.0, address) {
                Ok(place) => (Answer::Stream { place }, Vec::new()),
                Err(errno) => failed(errno),
            },
            Request::SetOption { name: 999, .. } | Request::GetOption { name: 999, .. } => failed(92),
            Request::SetOption { socket, level, name, value } => {
                let socket = self.sockets.get_mut(&socket.0);
                done(socket.map(|s| drop(s.options.insert((level, name), value))).ok_or(9))
            }
            Request::GetOption { socket, level, name, .. } => {
                let known = self.sockets.get(&socket.0).and_then(|s| s.options.get(&(level, name)));
                (Answer::Option { value: known.cloned().unwrap_or(vec![0; 4]) }, Vec::new())
            }
            Request::Names { socket } => self.names(socket.0),
            Request::Attach => self.attach(beside),
            Request::Waiter { arena } => self.add_waiter(arena, beside),
            Request::NoWaiter { .. } => done(Ok(())),
            Request::Interfaces => {
                let address = Some((Ipv4Addr::new(10, 9, 0, 1).into(), 24));
                let one = Interface { name: "lane0".into(), index: 1, mtu: 1500, mac: [2; 6], address };
                (Answer::Interfaces { addresses: vec![one] }, Vec::new())
            }
        }
    }

    fn make(&mut self, family: Family) -> (u64, OwnedFd) {
        let pair = socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None);
        let (end, given) = pair.expect("a pair");
        let id = inode(&given);
        let (bound, state) = (None, What::Fresh);
        self.sockets
            .insert(id, Socket { end, family, options: BTreeMap::new(), bound, state, is_closed: false });
        (id, given)
    }

    fn free_port(&mut self) -> u16 {
        self.port += 1;
        self.port
    }

    fn bind(&mut self, id: u64, mut address: SocketAddr) -> Result<(), i32> {
        if address.ip() == Ipv4Addr::new(203, 0, 113, 9) {
            return Err(99);
        }
        if address.port() == 0 {
            address.set_port(self.free_port());
        }
        let is_taken = |s: &Socket| {
            matches!(s.state, What::Listening { .. }) && s.bound.is_some_and(|b| b.port() == address.port())
        };
        if self.sockets.values().any(is_taken) {
            return Err(98);
        }
        let socket = self.sockets.get_mut(&id).ok_or(9)?;
        match (&socket.state, socket.bound) {
            (What::Fresh, None) => {
                socket.bound = Some(address);
                Ok(())
            }
            _ => Err(22),
        }
    }

    fn listen(&mut self, id: u64, backlog: u32) -> Result<(), i32> {
        let port = self.free_port();
        let socket = self.sockets.get_mut(&id).ok_or(9)?;
        socket.bound.get_or_insert((Ipv4Addr::UNSPECIFIED, port).into());
        let wanted = backlog.clamp(1, 4096) as usize;
        match &mut socket.state {
            What::Listening { backlog, .. } => *backlog = wanted,
            state => *state = What::Listening { backlog: wanted, queue: VecDeque::new() },
        }
        Ok(())
    }

    fn connect(&mut self, session: &Session, id: u64, to: SocketAddr) -> Result<Place, i32> {
        let port = self.free_port();
        let bound = self.sockets.get(&id).ok_or(9)?.bound;
        let local = bound.unwrap_or_else(|| SocketAddr::new(to.ip(), port));
        let listens = |s: &Socket| {
            matches!(&s.state, What::Listening { backlog, queue } if queue.len() < *backlog)
                && !s.is_closed
                && s.bound.is_some_and(|b| b.port() == to.port())
        };
        let listener = self.sockets.iter().find(|(_, s)| listens(s)).map(|(&id, s)| (id, s.family));
        let room = Arc::clone(&session.arena);
        let mut stream = Stream::new(room, local, to);
        let place = stream.place();
        if let Some((listener, family)) = listener {
            let (accepted, given) = self.make(family);
            let mut other = Stream::new(Arc::clone(&session.arena), to, local);
            (stream.peer, other.peer) = (Some(accepted), Some(id));
            let arrived =
                Arrived { socket: SocketId(accepted), place: other.place(), local: to, remote: local };
            other.tell(status::CONNECTED | status::ACCEPTED);
            stream.tell(status::CONNECTED);
            self.sockets.get_mut(&accepted).ok_or(9)?.state = What::Stream(other);
            if let What::Listening { queue, .. } = &mut self.sockets.get_mut(&listener).ok_or(9)?.state {
                queue.push_back((arrived, given));
            }
        } else {
            stream.tell(status::CLOSED | CONNECTION_REFUSED << status::ERROR_SHIFT);
        }
        self.sockets.get_mut(&id).ok_or(9)?.state = What::Stream(stream);
        Ok(place)
    }

    fn names(&self, id: u64) -> (Answer, Vec<OwnedFd>) {
        let Some(socket) = self.sockets.get(&id) else { return failed(9) };
        let (local, remote) = match &socket.state {
            What::Stream(stream) => (Some(stream.local), Some(stream.remote)),
            _ => (socket.bound, None),
        };
        (Answer::Names { local, remote }, Vec::new())
    }

    fn attach(&self, beside: &[OwnedFd]) -> (Answer, Vec<OwnedFd>) {
        let Some(id) = beside.first().map(inode) else { return failed(22) };
        let Some(socket) = self.sockets.get(&id) else { return failed(9) };
        let (state, place, fds) = match &socket.state {
            What::Fresh => (State::Fresh, None, Vec::new()),
            What::Listening { .. } => (State::Listening, None, Vec::new()),
            What::Stream(stream) => {
                let memfd = stream.room.arena.as_fd().try_clone_to_owned().expect("a descriptor");
                (State::Connected, Some(stream.place()), vec![memfd])
            }
        };
        (
            Answer::Attached {
                socket: SocketId(id),
                family: socket.family,
                kind: Kind::Stream,
                state,
                place,
            },
            fds,
        )
    }

    fn room(&self, arena: u64) -> Option<Arc<Room>> {
        let sessions = self.sessions.iter().map(|session| &session.arena);
        let streams = self.sockets.values().filter_map(|socket| match &socket.state {
            What::Stream(stream) => Some(&stream.room),
            _ => None,
        });
        sessions.chain(streams).find(|room| room.arena.number() == arena).map(Arc::clone)
    }

    fn add_waiter(&self, arena: u64, beside: &mut Vec<OwnedFd>) -> (Answer, Vec<OwnedFd>) {
        let (Some(room), Some(bell)) = (self.room(arena), beside.pop()) else { return failed(22) };
        let mut bells = room.bells.lock().expect("nobody panics with it");
        let slot = (bells.len() as u32).min(SLOT_SHARED);
        bells.push(bell);
        (Answer::Slot { slot }, Vec::new())
    }

    fn notice_closed(&mut self) {
        for socket in self.sockets.values_mut().filter(|socket| !socket.is_closed) {
            let mut list = [PollFd::new(&socket.end, PollFlags::empty())];
            let looked = poll(&mut list, Some(&Timespec::default()));
            if looked.is_ok() && list[0].revents().contains(PollFlags::HUP) {
                socket.is_closed = true;
                if let What::Listening { queue, .. } = &mut socket.state {
                    queue.clear();
                }
            }
        }
    }

    /// Gives listeners their connections, as many as their descriptors take.
    fn hand_over(&mut self) {
        for socket in self.sockets.values_mut() {
            let What::Listening { queue, .. } = &mut socket.state else { continue };
            while let Some((arrived, fd)) = queue.front() {
                if carry::send(&socket.end, &arrived.encode(), &[fd.as_fd()], false).is_err() {
                    break;
                }
                queue.pop_front();
            }
        }
    }

    /// Moves what has been written to where it is read. Whether there was anything.
    fn carry_bytes(&mut self) -> bool {
        let ids: Vec<u64> = self.sockets.keys().copied().collect();
        // Each has its turn, also behind one that had bytes.
        ids.into_iter().map(|id| self.carry_from(id)).filter(|&moved| moved).count() > 0
    }

    fn carry_from(&mut self, id: u64) -> bool {
        let socket = &self.sockets[&id];
        let (What::Stream(from), is_closed) = (&socket.state, socket.is_closed) else { return false };
        let Some(peer_id) = from.peer else { return false };
        let peer = self.sockets.get(&peer_id);
        let to =
            peer.and_then(
                |peer| if let What::Stream(to) = &peer.state { Some((to, peer.is_closed)) } else { None },
            );
        let Some((to, peer_is_closed)) = to else { return false };
        let moved = to.take_from(from);
        let (unsent, unread) = (from.unsent(), from.unread());
        let aborts = is_closed && socket.options.get(&LINGER).is_some_and(|value| *value == LINGER_NONE);
        let wants_end = is_closed || from.words().requests.load(Ordering::Acquire) & request::SHUT_WRITE != 0;
        let mut over = false;
        if peer_is_closed && (moved || unsent > 0 || to.unread() > 0) {
            // Nobody reads it any more.
            from.tell(status::CLOSED | status::PEER_CLOSED | CONNECTION_RESET << status::ERROR_SHIFT);
            over = true;
        } else if is_closed && unread > 0 || aborts {
            to.tell(status::CLOSED | status::PEER_CLOSED | CONNECTION_RESET << status::ERROR_SHIFT);
            over = true;
        } else if wants_end && unsent == 0 && !from.has_finished {
            to.tell(status::PEER_CLOSED);
            over = is_closed && to.words().requests.load(Ordering::Acquire) & request::SHUT_WRITE != 0;
        }
        let finished = wants_end && unsent == 0;
        let mut with = |id: u64, change: &dyn Fn(&mut Stream)| {
            if let Some(Socket { state: What::Stream(stream), .. }) = self.sockets.get_mut(&id) {
                change(stream);
            }
        };
        with(id, &|stream| stream.has_finished |= finished);
        if over || is_closed && peer_is_closed {
            with(id, &|stream| stream.peer = None);
            with(peer_id, &|stream| stream.peer = None);
        }
        moved
    }
}

impl Stream {
    fn new(room: Arc<Room>, local: SocketAddr, remote: SocketAddr) -> Self {
        let block = {
            let mut next = room.blocks.lock().expect("nobody panics with it");
            *next += 1;
            *next - 1
        };
        let new = Self { room, block, peer: None, local, remote, has_finished: false };
        let (words, begin) = (new.words(), new.room.arena.mapping().layout().storage_at());
        let at = begin + 2 * RING * u64::from(block);
        assert!(at.is_multiple_of(PAGE));
        let state = u64::from(RING_SHIFT) << SIZE_SHIFT | ATTACHED;
        for (side, at) in [(&words.rings.one, at), (&words.rings.two, at + RING)] {
            side.storage.store(std::ptr::without_provenance_mut(at as usize), Ordering::Relaxed);
            side.state.store(state, Ordering::Release);
        }
        words.capacity.iter().for_each(|capacity| capacity.store(RING as u32, Ordering::Relaxed));
        let bits = |address: SocketAddr| match address.ip() {
            std::net::IpAddr::V4(v4) => v4.to_ipv6_mapped().to_bits(),
            std::net::IpAddr::V6(v6) => v6.to_bits(),
        };
        for (first, address) in [(margin::LOCAL, local), (margin::REMOTE, remote)] {
            words.rings.margin[first].store((bits(address) >> 64) as u64, Ordering::Relaxed);
            words.rings.margin[first + 1].store(bits(address) as u64, Ordering::Relaxed);
        }
        let place = u64::from(local.port()) << 32 | u64::from(remote.port()) << 48;
        words.rings.margin[margin::PLACE].store(place, Ordering::Relaxed);
        words.rings.margin[margin::BOUND].store(1, Ordering::Release);
        new
    }

    fn words(&self) -> &firelane_shm::Block {
        self.room.arena.mapping().block(self.block).expect("given out before")
    }

    fn place(&self) -> Place {
        Place { arena: self.room.arena.number(), block: self.block }
    }

    /// Tells the program something for good, and who waits for the stream.
    fn tell(&self, news: u64) {
        let words = self.words();
        words.tell(news);
        let bells = self.room.bells.lock().expect("nobody panics with it");
        let waiters = words.waiters.load(Ordering::SeqCst);
        for (slot, bell) in bells.iter().enumerate().filter(|(slot, _)| waiters >> slot & 1 != 0) {
            let inbox = self.room.arena.mapping().slot(slot as u32).expect("a slot");
            if inbox.tell(self.block) {
                let _ = rustix::io::write(bell, &1_u64.to_ne_bytes());
            }
        }
    }

    /// What the program has written and nobody has taken.
    fn unsent(&self) -> u64 {
        let rings = &self.words().rings;
        rings.one.tail.load(Ordering::Acquire) - rings.two.head.load(Ordering::Relaxed)
    }

    /// What the program was given and has not read.
    fn unread(&self) -> u64 {
        let rings = &self.words().rings;
        rings.two.tail.load(Ordering::Relaxed) - rings.one.head.load(Ordering::Acquire)
    }

    /// Takes what the other program has written, as far as there is room. Whether there was anything.
    fn take_from(&self, from: &Self) -> bool {
        let len = from.unsent().min(RING - self.unread());
        let (source, sink) = (&from.words().rings, &self.words().rings);
        let mut bytes = [0; 4096];
        let mut left = len;
        while left > 0 {
            let (read_at, write_at) =
                (source.two.head.load(Ordering::Relaxed), sink.two.tail.load(Ordering::Relaxed));
            let (read_offset, write_offset) = (read_at % RING, write_at % RING);
            let part = left.min(4096).min(RING - read_offset).min(RING - write_offset);
            let piece = &mut bytes[..part as usize];
            let read_from = source.one.storage.load(Ordering::Relaxed).addr() as u64 + read_offset;
            let write_to = sink.two.storage.load(Ordering::Relaxed).addr() as u64 + write_offset;
            let mapped = from.room.arena.mapping().copy_out(read_from, piece)
                && self.room.arena.mapping().copy_in(write_to, piece);
            assert!(mapped, "storage that was given out");
            sink.two.tail.store(write_at + part, Ordering::Release);
            source.two.head.store(read_at + part, Ordering::Release);
            left -= part;
        }
        if len > 0 {
            self.tell(0);
            from.tell(0);
        }
        len > 0
    }
}
