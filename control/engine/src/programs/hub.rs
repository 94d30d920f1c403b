//! Sessions of programs and their requests; descriptors that hang up, and connections that wait to be handed on.
//!
//! The daemon calls it from one thread, after it has decided who may use which netstack, and waits on its descriptor.
//! Whatever a program sends ends in an answer; what it names must be a socket that its session made or attached.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

use firelane_filter::FilterConfig;
use firelane_lane::DatagramKind;
use firelane_shm::control::{Answer, Family, Kind, OWN_FILTER, OWN_LEVEL, Request, SocketId};
use firelane_shm::{carry, doorbell};
use firelane_units::{FilterRule, LaneId, LinkId, NetstackId};
use rustix::event::{EventfdFlags, Timespec, epoll, eventfd};
use rustix::io::Errno;

use super::arena::ProgramArena;
use super::closer::{Closer, Foreign, close_end};
use super::datagrams::Datagrams;
use super::hub_bell::HubBell;
use super::lingering::Lingering;
use super::options::Options;
use super::pairs::{Pair, Pairs};
use super::segment::Segment;
use super::shown::{ExplainedSocket, ProgramSocket};
use super::socket::{Role, Socket};
use super::stream::Stream;
use crate::engine::Engine;
use crate::poller::{Event, Poller};
use crate::socket_filter;
use crate::stack::Stack;
use firelane_socket::Ready;

/// Sockets are made ahead where there is room for so many times as many.
const AHEAD_ROOM: usize = 8;
/// Events of one look.
const EVENTS: usize = 256;
/// The epoll key of the listeners' bell; inodes are not that large.
const BELL_KEY: u64 = u64::MAX;

/// Who a program is.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Owner {
    /// Its process.
    pub pid: u32,
    /// Its user.
    pub user: u32,
    /// Its command.
    pub command: String,
}

/// How much a program may have.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// With so many sockets, those that it has accepted among them, it makes no more.
    pub sockets: usize,
    /// Bytes that the buffers of its sockets have at a time.
    pub memory: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self { sockets: 1 << 17, memory: u64::MAX }
    }
}

/// Rules of a socket's filter, from lines of ipf.conf(5); `None` if a socket cannot have them, or they are none.
pub type ReadFilter = fn(&str) -> Option<Vec<FilterRule<LinkId>>>;

/// An answer with the descriptors that go beside it.
#[derive(Debug)]
pub struct Reply {
    /// What is answered.
    pub answer: Answer,
    /// What goes beside it.
    pub fds: Vec<OwnedFd>,
}

impl From<Answer> for Reply {
    fn from(answer: Answer) -> Self {
        Self { answer, fds: Vec::new() }
    }
}

impl From<Errno> for Reply {
    fn from(errno: Errno) -> Self {
        Answer::Failed { errno: errno.raw_os_error() }.into()
    }
}

/// A program's process.
#[derive(Debug)]
struct Session {
    owner: Arc<Owner>,
    stack: Stack,
    arena: Arc<ProgramArena>,
    /// Which filter its sockets begin with.
    filter: Option<Arc<FilterConfig>>,
    sockets_max: usize,
    sockets: BTreeSet<SocketId>,
    /// Arenas of others whose sockets it has.
    attached: BTreeMap<u64, Arc<ProgramArena>>,
    /// Programs that inherit a socket ring these too, so the lanes wait on them as long as the session lasts.
    bells: Vec<(LaneId, OwnedFd)>,
}

/// All sessions.
#[derive(Debug)]
pub struct Hub {
    engine: Engine,
    read_filter: ReadFilter,
    set: OwnedFd,
    bell: Arc<HubBell>,
    listeners: Poller,
    events: Vec<Event>,
    sessions: BTreeMap<u32, Session>,
    next_session: u32,
    sockets: BTreeMap<SocketId, Box<Socket>>,
    pairs: Pairs,
    /// Arenas that have been given out and may still be in use.
    arenas: Vec<Arc<ProgramArena>>,
    /// Streams whose sockets are gone and whose blocks cannot be given to others yet.
    ending: Vec<Ending>,
    lingering: Lingering,
    closer: Closer,
}

/// A stream that nobody has any more.
#[derive(Debug)]
struct Ending {
    arena: Arc<ProgramArena>,
    ended: Ended,
    resets: bool,
}

/// What it was.
#[derive(Debug)]
enum Ended {
    Stream(Arc<Stream>),
    Datagrams(Arc<Datagrams>),
}

impl AsFd for Hub {
    /// Readable when [`Hub::look`] has something to do, for who has said that he sleeps ([`Hub::fall_asleep`]).
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.set.as_fd()
    }
}

impl Hub {
    /// No session yet. Programs give their sockets filters as text, which `read_filter` knows how to read.
    ///
    /// # Errors
    /// Descriptors ran out.
    pub fn new(engine: Engine, read_filter: ReadFilter) -> io::Result<Self> {
        let set = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let eventfd = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let bell = Arc::new(HubBell::new(eventfd));
        epoll::add(&set, bell.as_fd(), epoll::EventData::new_u64(BELL_KEY), epoll::EventFlags::IN)?;
        let listeners = Poller::waking(Waker::from(Arc::clone(&bell)));
        engine.0.fabric.programs.set_idler(Waker::from(Arc::clone(&bell)));
        Ok(Self {
            engine,
            read_filter,
            set,
            bell,
            listeners,
            events: Vec::new(),
            sessions: BTreeMap::new(),
            next_session: 0,
            sockets: BTreeMap::new(),
            pairs: Pairs::default(),
            arenas: Vec::new(),
            ending: Vec::new(),
            lingering: Lingering::default(),
            closer: Closer::default(),
        })
    }

    /// Begins a session on a netstack, whose name the program is told. Each of its listeners and datagram sockets begins with
    /// the rules of `filter`. The session's number, and the answer.
    ///
    /// # Errors
    /// The netstack does not exist; no socket can have one of the rules; descriptors or memory ran out.
    pub fn begin(
        &mut self,
        owner: Owner,
        netstack: (NetstackId, &str),
        limits: Limits,
        filter: Vec<FilterRule<LinkId>>,
    ) -> io::Result<(u32, Reply)> {
        let (netstack, name) = netstack;
        let filter = Some(socket_filter::checked(filter, Vec::new())?).filter(|it| !it.rules.is_empty());
        let stack = self.engine.stack(netstack).ok_or(Errno::NETDOWN)?;
        let fabric = Arc::clone(&self.engine.0.fabric);
        let mut bells = Vec::new();
        for lane in fabric.lane_ids() {
            let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
            fabric.bell(lane).watch_program(bell.as_fd())?;
            bells.push((lane, bell));
        }
        let arena = fabric.programs.add_arena(limits.memory)?;
        let memfd = arena.arena().as_fd().try_clone_to_owned()?;
        let copies = bells.iter().map(|(_, bell)| bell.try_clone());
        let fds: Vec<OwnedFd> = std::iter::once(Ok(memfd)).chain(copies).collect::<io::Result<_>>()?;
        self.next_session = self.next_session.wrapping_add(1).max(1);
        let session = self.next_session;
        let answer = Answer::Welcome {
            session,
            lanes: bells.len() as u32,
            arena: arena.arena().number(),
            netstack: name.to_owned(),
        };
        self.arenas.push(Arc::clone(&arena));
        let begun = Session {
            owner: Arc::new(owner),
            stack,
            arena,
            filter,
            sockets_max: limits.sockets,
            sockets: BTreeSet::new(),
            attached: BTreeMap::new(),
            bells,
        };
        self.sessions.insert(session, begun);
        Ok((session, Reply { answer, fds }))
    }

    /// Answers a request of a session. Interfaces are the daemon's matter, because it has their names.
    pub fn request(&mut self, session: u32, request: Request, fds: Vec<OwnedFd>) -> Reply {
        let user = self.sessions.get(&session).map_or(0, |it| it.owner.user);
        let fds = self.closer.foreign(user, fds);
        self.answer(session, request, fds).unwrap_or_else(Reply::from)
    }

    /// What closes descriptors of programs.
    pub fn closer(&self) -> &Closer {
        &self.closer
    }

    fn answer(&mut self, number: u32, request: Request, fds: Foreign) -> Result<Reply, Errno> {
        self.sessions.get(&number).ok_or(Errno::NETDOWN)?;
        match request {
            Request::Hello { .. } | Request::Child | Request::Interfaces => Err(Errno::INVAL),
            Request::Socket { family, kind, count } => self.make_sockets(number, (family, kind), count),
            Request::Attach => self.attach(number, fds),
            Request::Waiter { .. }
            | Request::NoWaiter { .. }
            | Request::Segment { .. }
            | Request::Bell { .. } => self.answer_waiter(number, request, fds),
            Request::Bind { socket, address } => {
                // A server that closes its listener and binds the port anew at once must find it free.
                self.look();
                Ok(self.socket(number, socket)?.bind(address)?.into())
            }
            Request::Listen { socket, backlog } => {
                let answer = self.socket(number, socket)?.listen(backlog)?;
                if let Some(Role::Listening(it)) = self.sockets.get(&socket).map(|socket| &socket.role) {
                    // It is watched already if it listened before.
                    let _ = self.listeners.watch(&it.listener, socket.0, Ready::READABLE);
                }
                Ok(answer.into())
            }
            Request::Connect { socket, address } => {
                let answer = self.socket(number, socket)?.connect(address);
                // Where its peer is here, too, the connection is mostly there by now.
                self.hand_on_all();
                Ok(answer?.into())
            }
            Request::SetOption { socket, level: OWN_LEVEL, name: OWN_FILTER, value } => {
                let text = std::str::from_utf8(&value).map_err(|_| Errno::INVAL)?;
                let rules = (self.read_filter)(text.trim_end_matches('\0')).ok_or(Errno::INVAL)?;
                let filter = socket_filter::checked(rules, Vec::new()).map_err(|_| Errno::INVAL)?;
                Ok(self.socket(number, socket)?.set_filter(filter)?.into())
            }
            Request::SetOption { socket, level, name, value } => {
                Ok(self.socket(number, socket)?.set_option(level, name, &value)?.into())
            }
            Request::GetOption { socket, level, name, len } => {
                Ok(self.socket(number, socket)?.get_option(level, name, len)?.into())
            }
            Request::Linger { socket } => {
                // The program has closed it a moment ago.
                self.look();
                let fabric = &self.engine.0.fabric;
                let is_closing =
                    !self.sockets.contains_key(&socket) && self.lingering.is_closing(socket, number, fabric);
                if is_closing { Err(Errno::INPROGRESS) } else { Ok(Answer::Done.into()) }
            }
            Request::Urgent { socket, end } => Ok(self.socket(number, socket)?.mark_urgent(end)?.into()),
            Request::Fault { socket } => Ok(self.socket(number, socket)?.fault()?.into()),
            Request::Names { socket } => {
                let [local, remote] = self.socket(number, socket)?.names();
                Ok(Answer::Names { local, remote }.into())
            }
        }
    }

    /// Requests about who waits where, and who wakes him.
    fn answer_waiter(&mut self, number: u32, request: Request, mut fds: Foreign) -> Result<Reply, Errno> {
        let session = self.sessions.get(&number).ok_or(Errno::NETDOWN)?;
        match request {
            Request::Waiter { arena } => {
                let own = session.arena_of(arena).cloned();
                let segment = if own.is_none() { Some(self.segment(number, arena)?) } else { None };
                let wakes = fds.take(|it| doorbell::is_one(it)).ok_or(Errno::BADF)?;
                let of_own = own.as_ref().map(|it| (&it.waiters, it.mapping()));
                let of_segment = segment.as_ref().map(|it| (&it.waiters, it.arena().mapping()));
                let (waiters, memory) = of_own.or(of_segment).ok_or(Errno::INVAL)?;
                let slot = waiters.add(memory, number, wakes).ok_or(Errno::NOSPC)?;
                Ok(Answer::Slot { slot }.into())
            }
            Request::NoWaiter { arena, slot } => {
                let arena = session.arena_of(arena).ok_or(Errno::INVAL)?;
                let was = arena.waiters.remove(number, Some(slot));
                if was { Ok(Answer::Done.into()) } else { Err(Errno::INVAL) }
            }
            Request::Segment { segment } => {
                let segment = self.segment(number, segment)?;
                let memfd = segment.arena().as_fd().try_clone_to_owned().map_err(super::socket::errno)?;
                Ok(Reply { answer: Answer::Segment { arenas: segment.numbers }, fds: vec![memfd] })
            }
            Request::Bell { segment, slot } => {
                let bell = self.segment(number, segment)?.waiters.bell(slot).map_err(|_| Errno::NOENT)?;
                Ok(Reply { answer: Answer::Done, fds: vec![bell] })
            }
            _ => Err(Errno::INVAL),
        }
    }

    fn socket(&mut self, session: u32, socket: SocketId) -> Result<&mut Socket, Errno> {
        let holds = self.sessions.get(&session).is_some_and(|it| it.sockets.contains(&socket));
        let socket = self.sockets.get_mut(&socket).filter(|_| holds).ok_or(Errno::BADF)?;
        // Its program has it by now.
        socket.is_ahead = false;
        Ok(socket)
    }

    /// Does what will be wanted, for who has nothing else to do.
    pub fn prepare(&mut self) {
        self.pairs.prepare(&self.set);
    }

    /// A segment that the session may have: one of its sides is an arena of the session's.
    fn segment(&self, session: u32, number: u64) -> Result<Arc<Segment>, Errno> {
        let session = self.sessions.get(&session).ok_or(Errno::NETDOWN)?;
        let segment = self.engine.0.fabric.programs.segments.numbered(number);
        let has_side = |it: &Arc<Segment>| it.numbers.iter().any(|&side| session.arena_of(side).is_some());
        segment.filter(has_side).ok_or(Errno::INVAL)
    }

    fn make_sockets(
        &mut self,
        number: u32,
        (family, kind): (Family, Kind),
        count: u32,
    ) -> Result<Reply, Errno> {
        let session = self.sessions.get_mut(&number).ok_or(Errno::NETDOWN)?;
        // What is made ahead is not to take the last ones.
        let room = session.sockets_max.saturating_sub(session.sockets.len());
        let wants = if count > 1 { AHEAD_ROOM * count as usize } else { count as usize };
        if wants > room {
            return Err(Errno::MFILE);
        }
        let (mut sockets, mut fds) = (Vec::new(), Vec::new());
        let filter = session.filter.clone();
        let options = Arc::new(Options::with_filter(filter.clone()));
        for _ in 0..count {
            let Pair { ours, theirs, name } = Pair::new(&self.set).map_err(super::socket::errno)?;
            let socket = Socket {
                ours,
                family,
                stack: session.stack.clone(),
                arena: Arc::clone(&session.arena),
                owner: Arc::clone(&session.owner),
                options: Arc::clone(&options),
                is_arrival: false,
                is_ahead: count > 1,
                role: match kind {
                    Kind::Stream => Role::Fresh(None),
                    Kind::Datagram => Socket::datagrams(family, DatagramKind::Udp, filter.clone()),
                    Kind::Echo => Socket::datagrams(family, DatagramKind::Echo, filter.clone()),
                },
            };
            session.sockets.insert(name);
            self.sockets.insert(name, Box::new(socket));
            sockets.push(name);
            fds.push(theirs);
        }
        Ok(Reply { answer: Answer::Sockets { sockets }, fds })
    }

    /// Who can show the descriptor holds the socket.
    fn attach(&mut self, number: u32, mut fds: Foreign) -> Result<Reply, Errno> {
        if fds.count() == 0 {
            return Err(Errno::BADF);
        }
        // One that we have made takes nothing along when it is closed.
        let fd = fds.take(|it| name_of(it).is_some_and(|name| self.sockets.contains_key(&name)));
        let name = fd.as_ref().and_then(name_of).ok_or(Errno::NOTSOCK)?;
        let socket = self.sockets.get(&name).ok_or(Errno::NOTSOCK)?;
        let session = self.sessions.get_mut(&number).ok_or(Errno::NETDOWN)?;
        session.sockets.insert(name);
        // A listener's connections have their words in its arena.
        let arena = Arc::clone(&socket.arena);
        let memfd = arena.arena().as_fd().try_clone_to_owned().map_err(super::socket::errno)?;
        session.attached.insert(arena.arena().number(), arena);
        Ok(Reply { answer: socket.attached(name), fds: vec![memfd] })
    }

    /// The process is gone, or has become another program: what its threads held is free. Its sockets live as long as
    /// somebody has their descriptors.
    pub fn end(&mut self, session: u32) {
        let Some(gone) = self.sessions.remove(&session) else { return };
        self.lingering.forget(session);
        for arena in gone.attached.values().chain([&gone.arena]) {
            arena.waiters.remove(session, None);
            arena.bury(session);
        }
        self.engine.0.fabric.programs.segments.forget_waiters(session);
        for (lane, bell) in &gone.bells {
            self.engine.0.fabric.bell(*lane).forget(bell.as_fd());
        }
        if self.sessions.is_empty() {
            // Nobody will want any for a while.
            self.pairs = Pairs::default();
        }
    }

    /// Whether lanes have called since they were answered last ([`Hub::answer_calls`]).
    pub fn is_called(&self) -> bool {
        self.bell.is_rung()
    }

    /// From here on the descriptor wakes who sleeps. Whether he may: nobody has called since they were answered.
    pub fn fall_asleep(&self) -> bool {
        self.bell.fall_asleep()
    }

    /// Does what lanes have called for since the last time: hands on what listeners have accepted, and what takes long.
    pub fn answer_calls(&mut self) {
        if self.bell.clear() {
            self.arenas.iter().for_each(|arena| arena.give_pages_back());
            let programs = &self.engine.0.fabric.programs;
            programs.segments.give_pages_back();
            programs.make_segments(self.engine.0.fabric.now());
            self.hand_on_all();
        }
    }

    /// Closes what has hung up, goes on with what a listener's descriptor had no room for, and answers calls.
    pub fn look(&mut self) {
        let mut events = [const { std::mem::MaybeUninit::uninit() }; EVENTS];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        let found: Vec<_> = match epoll::wait(&self.set, &mut events, Some(&now)) {
            Ok((events, _)) => events.iter().map(|event| (event.data.u64(), event.flags)).collect(),
            // A signal; whoever waits comes again.
            Err(_) => return,
        };
        for (key, flags) in found {
            if key == BELL_KEY {
                let _ = rustix::io::read(self.bell.as_fd(), &mut [0; 8]);
                continue;
            }
            let name = SocketId(key);
            if flags.intersects(epoll::EventFlags::HUP | epoll::EventFlags::ERR) {
                self.close(name);
            } else if flags.contains(epoll::EventFlags::OUT) {
                self.watch(name, epoll::EventFlags::empty());
                self.hand_on(name);
            }
        }
        self.answer_calls();
    }

    /// Hands on what listeners have accepted.
    fn hand_on_all(&mut self) {
        let mut events = std::mem::take(&mut self.events);
        self.listeners.wait(&mut events, Some(Duration::ZERO));
        events.drain(..).for_each(|event| self.hand_on(SocketId(event.key)));
        self.events = events;
    }

    /// Hands on what a listener has accepted, as far as its descriptor has room.
    fn hand_on(&mut self, name: SocketId) {
        loop {
            let Some(listening) = self.sockets.get_mut(&name) else { return };
            let Role::Listening(it) = &mut listening.role else { return };
            let (theirs, arrived) = match it.waiting.take() {
                Some(waiting) => waiting,
                None => match listening.accept(&self.engine.0.fabric, || self.pairs.take(&self.set)) {
                    None => return,
                    // Descriptors or blocks ran out: the connection is closed, which its peer sees.
                    Some(Err(_)) => continue,
                    Some(Ok((socket, theirs, arrived))) => {
                        self.enter(name, arrived.socket, socket);
                        (theirs, arrived)
                    }
                },
            };
            let Some(listening) = self.sockets.get_mut(&name) else { return };
            match listening.send(&theirs, &arrived) {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    if let Role::Listening(it) = &mut listening.role {
                        it.waiting = Some((theirs, arrived));
                    }
                    return self.watch(name, epoll::EventFlags::OUT);
                }
                // The listener hangs up, and the connection with its descriptor.
                Err(_) => return,
            }
        }
    }

    /// A connection belongs to whoever holds its listener.
    fn enter(&mut self, listener: SocketId, name: SocketId, socket: Socket) {
        self.sockets.insert(name, Box::new(socket));
        for session in self.sessions.values_mut().filter(|it| it.sockets.contains(&listener)) {
            session.sockets.insert(name);
        }
    }

    fn watch(&self, name: SocketId, flags: epoll::EventFlags) {
        if let Some(socket) = self.sockets.get(&name) {
            let _ = epoll::modify(&self.set, &socket.ours, epoll::EventData::new_u64(name.0), flags);
        }
    }

    /// The last descriptor of a socket is gone.
    fn close(&mut self, name: SocketId) {
        let Some(socket) = self.sockets.remove(&name) else { return };
        let (limit, mut sessions) = (socket.options.lingers(), BTreeSet::new());
        for (&number, session) in &mut self.sessions {
            if session.sockets.remove(&name) && limit.is_some() {
                sessions.insert(number);
            }
        }
        if let (Some(stream), Some(limit)) = (socket.stream(), limit) {
            self.lingering.add(name, sessions, stream, limit);
        }
        let resets = socket.resets();
        close_end(&self.closer, socket.owner.user, socket.ours);
        let ended = match socket.role {
            Role::Stream(stream, _) => Some(Ended::Stream(stream)),
            Role::Datagrams(Some(made), _) => Some(Ended::Datagrams(made)),
            _ => None,
        };
        if let Some(ended) = ended {
            let ending = Ending { arena: socket.arena, ended, resets };
            if !self.end_stream(&ending) {
                self.ending.push(ending);
            }
        }
    }

    /// Closes a stream. Whether it has ended: the lane knows, and nobody is inside.
    fn end_stream(&self, ending: &Ending) -> bool {
        let Ending { arena, ended, resets } = ending;
        let stream = match ended {
            Ended::Stream(stream) => stream,
            Ended::Datagrams(made) => {
                made.close(&self.engine.0.fabric);
                let is_entered = made.is_entered(arena, |session| self.sessions.contains_key(&session));
                if !is_entered {
                    arena.datagrams.remove(made.number());
                }
                return !is_entered;
            }
        };
        let has_ended = stream.close(&self.engine.0.fabric, *resets)
            && !stream.is_entered(arena, |session| self.sessions.contains_key(&session));
        if has_ended {
            arena.remove(stream);
        }
        has_ended
    }

    /// Whether something could not end at once, so that it is for [`Hub::tidy`].
    pub fn has_endings(&self) -> bool {
        !self.ending.is_empty()
    }

    /// Ends what could not end at once, and gives arenas back that nobody uses any more. To be called every now and then
    /// while it answers `true`.
    pub fn tidy(&mut self) -> bool {
        let mut ending = std::mem::take(&mut self.ending);
        ending.retain(|it| !self.end_stream(it));
        self.ending = ending;
        let live: BTreeSet<u32> = self.sessions.values().map(|it| it.arena.place).collect();
        let held = self.sockets.values().map(|it| it.arena.place);
        let used: BTreeSet<u32> = held.chain(self.ending.iter().map(|it| it.arena.place)).collect();
        let programs = &self.engine.0.fabric.programs;
        self.arenas.retain(|arena| {
            let is_used = live.contains(&arena.place) || used.contains(&arena.place);
            if !is_used {
                programs.remove_arena(arena.place);
            }
            is_used
        });
        let lingers = self.lingering.tidy();
        lingers || !self.ending.is_empty() || self.arenas.iter().any(|arena| !live.contains(&arena.place))
    }

    /// Every socket of every program.
    pub fn sockets(&self) -> Vec<ProgramSocket> {
        self.sockets.values().filter(|it| !it.is_ahead).map(|it| it.summary()).collect()
    }

    /// The netstack of a process' session.
    pub fn netstack_of(&self, pid: u32) -> Option<NetstackId> {
        self.sessions.values().find(|it| it.owner.pid == pid).map(|it| it.stack.id())
    }

    /// What is known of the sockets behind descriptors with these inodes, as far as they are programs' of ours. It asks
    /// lanes, one connection at a time.
    pub fn explain(&self, inodes: &BTreeSet<u64>) -> Vec<ExplainedSocket> {
        let found = inodes.iter().filter_map(|&inode| Some((inode, self.sockets.get(&SocketId(inode))?)));
        let given = found.filter(|(_, socket)| !socket.is_ahead);
        given.map(|(inode, socket)| ExplainedSocket::new(inode, socket)).collect()
    }

    /// How many sockets a session may have, if it has so many.
    pub fn limit_reached(&self, session: u32) -> Option<usize> {
        let session = self.sessions.get(&session)?;
        (session.sockets.len() >= session.sockets_max).then_some(session.sockets_max)
    }

    /// How many programs, sockets and arenas there are, and how often a program's words could not be.
    pub fn counts(&self) -> [u64; 4] {
        let lies = self.engine.snapshot().counters.shm_lies;
        [self.sessions.len() as u64, self.sockets.len() as u64, self.arenas.len() as u64, lies]
    }
}

impl Session {
    fn arena_of(&self, number: u64) -> Option<&Arc<ProgramArena>> {
        if self.arena.arena().number() == number { Some(&self.arena) } else { self.attached.get(&number) }
    }
}

impl Drop for Hub {
    /// Closes everything.
    fn drop(&mut self) {
        for session in self.sessions.keys().copied().collect::<Vec<_>>() {
            self.end(session);
        }
        for name in self.sockets.keys().copied().collect::<Vec<_>>() {
            self.close(name);
        }
        for arena in self.arenas.drain(..) {
            self.engine.0.fabric.programs.remove_arena(arena.place);
        }
    }
}

/// The name of a socket's descriptor. Only sockets are asked for their inode: that of a file can be any number, and its file
/// system may take its time.
fn name_of(fd: &OwnedFd) -> Option<SocketId> {
    rustix::net::sockopt::socket_type(fd).ok()?;
    Some(SocketId(rustix::fs::fstat(fd).ok()?.st_ino))
}

/// Sends an answer.
///
/// # Errors
/// The program is gone, or does not take answers.
pub fn send(socket: impl AsFd, number: u32, reply: &Reply) -> io::Result<()> {
    let fds: Vec<BorrowedFd<'_>> = reply.fds.iter().map(AsFd::as_fd).collect();
    carry::send(socket, &reply.answer.encode(number), &fds, false)
}
