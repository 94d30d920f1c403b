//! Sessions of programs and their requests; descriptors that hang up, and connections that wait to be handed on.
//!
//! The daemon calls it from one thread, after it has decided who may use which netstack, and waits on its descriptor.
//! Whatever a program sends ends in an answer; what it names must be a socket that its session made or attached.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::task::{Wake, Waker};

use firelane_lane::DatagramKind;
use firelane_shm::carry;
use firelane_shm::control::{Answer, Family, Kind, Place, Request, SocketId};
use firelane_units::{FilterRule, LinkId, NetstackId};
use rustix::event::{EventfdFlags, epoll, eventfd};
use rustix::io::Errno;

use super::arena::ProgramArena;
use super::arrivals::{Arrival, Arrivals, Near};
use super::closer::{Closer, Foreign, close_end};
use super::cookies::Cookies;
use super::ending::{Dissolved, Ending};
use super::handing::Handing;
use super::hangups::told;
use super::hub_bell::HubBell;
use super::lingering::Lingering;
use super::numbers::socket as level;
use super::offers::Offers;
use super::options::Options;
use super::pairs::{Pair, Room, name_of};
use super::remains::Remains;
use super::session::{Limits, Owner, Reply, Session};
use super::shares::Who;
use super::shown::{ExplainedSocket, ProgramSocket};
use super::socket::{Role, Socket};
use crate::engine::Engine;
use crate::socket_filter;
use crate::stack::Stack;

/// Sockets are made ahead where there is room for so many times as many.
const AHEAD_ROOM: usize = 8;
/// The epoll key of the listeners' bell; inodes are not that large.
const BELL_KEY: u64 = u64::MAX;

/// All sessions.
pub struct Hub {
    pub(super) engine: Engine,
    set: OwnedFd,
    /// What has hung up is being ended.
    is_ending: bool,
    pub(super) bell: Arc<HubBell>,
    handing: Arc<Handing>,
    pub(super) sessions: BTreeMap<u32, Session>,
    /// Which sessions have each socket.
    holders: BTreeSet<(SocketId, u32)>,
    /// Whose own each arena is.
    owners: BTreeMap<u64, u32>,
    next_session: u32,
    pub(super) sockets: BTreeMap<SocketId, Box<Socket>>,
    /// Connections that programs have been told of.
    arrivals: Arrivals,
    /// Arenas that have been given out and may still be in use.
    pub(super) arenas: Vec<Arc<ProgramArena>>,
    /// Room for the names of streams that programs have closed by their words.
    left: Vec<u32>,
    /// Streams whose sockets are gone and whose blocks cannot be given to others yet.
    pub(super) ending: Vec<Ending>,
    pub(super) dissolved: Dissolved,
    remains: Remains,
    lingering: Lingering,
    cookies: Cookies,
    closer: Closer,
    room: Room,
}

impl AsFd for Hub {
    /// Readable when [`Hub::look`] has something to do, for who has said that he sleeps ([`Hub::fall_asleep`]).
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.set.as_fd()
    }
}

impl Hub {
    /// No session yet.
    ///
    /// # Errors
    /// Descriptors or threads ran out.
    pub fn new(engine: Engine) -> io::Result<Self> {
        let set = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let eventfd = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let bell = Arc::new(HubBell::new(eventfd));
        epoll::add(&set, bell.as_fd(), epoll::EventData::new_u64(BELL_KEY), epoll::EventFlags::IN)?;
        let handing = Handing::new(Waker::from(Arc::clone(&bell)));
        engine.0.fabric.programs.set_idler(Waker::from(Arc::clone(&bell)));
        engine.0.fabric.programs.hangups.begin()?;
        engine.0.fabric.programs.segments.pages.begin()?;
        Ok(Self {
            engine,
            set,
            is_ending: false,
            bell,
            handing,
            sessions: BTreeMap::new(),
            holders: BTreeSet::new(),
            owners: BTreeMap::new(),
            next_session: 0,
            sockets: BTreeMap::new(),
            arrivals: Arrivals::default(),
            arenas: Vec::new(),
            left: Vec::new(),
            ending: Vec::new(),
            dissolved: Dissolved::default(),
            remains: Remains::default(),
            lingering: Lingering::default(),
            cookies: Cookies::default(),
            closer: Closer::default(),
            room: Room::of_process(),
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
        let filter =
            Some(socket_filter::checked(filter, Vec::new())?).filter(|it| !it.is_empty()).map(Arc::new);
        let stack = self.engine.stack(netstack).ok_or(Errno::NETDOWN)?;
        let fabric = Arc::clone(&self.engine.0.fabric);
        let has_room = |fd: OwnedFd| if self.has_room_for(&fd) { Ok(fd) } else { Err(Errno::NFILE.into()) };
        let (mut bells, mut fds) = (Vec::new(), Vec::new());
        for lane in fabric.program_lanes() {
            let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
            fds.push(bell.try_clone().and_then(has_room)?);
            fabric.bell(lane).watch_program(bell.as_fd())?;
            bells.push((lane, bell));
        }
        // Lanes have an arena from here on, and nobody takes it from them for a session that does not begin.
        let arena = fabric.programs.add_arena(limits, owner.kin, fabric.clock.start())?;
        let memfd = arena.arena().as_fd().try_clone_to_owned().and_then(has_room);
        fds.insert(0, memfd.inspect_err(|_| fabric.programs.remove_arena(arena.place))?);
        let session = self.number_session();
        let answer = Answer::Welcome {
            session,
            lanes: bells.len() as u32,
            arena: arena.arena().number(),
            netstack: name.to_owned(),
        };
        self.arenas.push(Arc::clone(&arena));
        self.remains.belongs(arena.arena().number(), owner.user);
        let begun = Session {
            owner: Arc::new(owner),
            stack,
            arena,
            usual: Arc::new(Options::with_filter(filter)),
            sockets_max: limits.sockets,
            offers: Offers::default(),
            sockets: BTreeSet::new(),
            attached: BTreeMap::new(),
            bells,
        };
        self.owners.insert(begun.arena.arena().number(), session);
        self.sessions.insert(session, begun);
        Ok((session, Reply { answer, fds }))
    }

    /// Whether a program may have this descriptor here: some are kept for others.
    pub fn has_room_for(&self, fd: impl AsFd) -> bool {
        self.room.is_behind(fd.as_fd().as_raw_fd())
    }

    /// A number for a session that no other has: owner words name sessions.
    fn number_session(&mut self) -> u32 {
        loop {
            self.next_session = self.next_session.wrapping_add(1).max(1);
            if !self.sessions.contains_key(&self.next_session) {
                return self.next_session;
            }
        }
    }

    /// Answers a request of a session. Interfaces are the daemon's matter, because it has their names.
    pub fn request(&mut self, session: u32, request: Request, fds: Vec<OwnedFd>) -> Reply {
        let user = self.sessions.get(&session).map_or(0, |it| it.owner.user);
        let has_room = fds.iter().all(|fd| self.has_room_for(fd));
        let fds = self.closer.foreign(user, fds);
        let answer = if has_room { self.answer(session, request, fds) } else { Err(Errno::NFILE) };
        answer.unwrap_or_else(Reply::from)
    }

    /// Gives a socket of a session other rules, in place of those of its session; there are none where the text could not be read. Who
    /// calls it knows how rules are written, and the interfaces that they name. Their pools are the netstack's.
    pub fn set_filter(
        &mut self,
        session: u32,
        socket: SocketId,
        rules: Option<Vec<FilterRule<LinkId>>>,
        fds: Vec<OwnedFd>,
    ) -> Reply {
        let user = self.sessions.get(&session).map_or(0, |it| it.owner.user);
        // The request is none that brings descriptors.
        drop(self.closer.foreign(user, fds));
        let checked = |rules| socket_filter::checked(rules, Vec::new()).ok();
        let filter = rules.and_then(checked).ok_or(Errno::INVAL);
        let set = filter.and_then(|filter| Ok(self.socket(session, socket)?.set_filter(filter)?.into()));
        set.unwrap_or_else(Reply::from)
    }

    /// What closes descriptors of programs.
    pub fn closer(&self) -> &Closer {
        &self.closer
    }

    fn answer(&mut self, number: u32, request: Request, fds: Foreign) -> Result<Reply, Errno> {
        self.sessions.get(&number).ok_or(Errno::NETDOWN)?;
        let asks_of_ports = matches!(request, Request::Bind { .. } | Request::Connect { .. });
        if asks_of_ports || self.engine.0.fabric.programs.hangups.are_held() {
            // Who has closed a listener finds its port free, and nobody there.
            self.look();
            self.end_left();
        }
        match request {
            Request::Hello { .. } | Request::Child | Request::Closed { .. } | Request::Interfaces => {
                Err(Errno::INVAL)
            }
            Request::Socket { family, kind, count } => self.make_sockets(number, (family, kind), count),
            Request::Attach => self.attach(number, fds),
            Request::Take { place } => self.take(number, place),
            Request::Waiter { .. }
            | Request::NoWaiter { .. }
            | Request::Share { .. }
            | Request::Segment { .. }
            | Request::Bell { .. } => self.answer_waiter(number, request, fds),
            Request::Bind { socket, address } => Ok(self.socket(number, socket)?.bind(address)?.into()),
            Request::Listen { socket, backlog } => self.listen(number, socket, backlog),
            Request::Connect { socket, address, fast } => self.connect(number, socket, address, fast),
            Request::SetOption { socket, level, name, value } => {
                Ok(self.socket(number, socket)?.set_option(level, name, &value)?.into())
            }
            Request::GetOption { socket, level, name, len } => {
                self.get_option(number, socket, (level, name), len)
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
            Request::Disconnect { socket } => {
                self.socket(number, socket)?;
                let session = self.sessions.get(&number).ok_or(Errno::NETDOWN)?;
                let ended = self.sockets.get_mut(&socket).and_then(|it| it.disconnect(session));
                let ended = ended.and_then(|(role, arena)| Ending::dissolved(role, arena, socket));
                ended.into_iter().for_each(|it| self.finish(it));
                Ok(Answer::Done.into())
            }
            Request::Names { socket } => {
                let [local, remote] = self.socket(number, socket)?.names();
                Ok(Answer::Names { local, remote }.into())
            }
        }
    }

    fn get_option(
        &mut self,
        number: u32,
        name: SocketId,
        option: (i32, i32),
        len: u32,
    ) -> Result<Reply, Errno> {
        let socket = self.socket(number, name)?;
        if option != (level::LEVEL, level::COOKIE) {
            return Ok(socket.get_option(option.0, option.1, len)?.into());
        }
        let value = self.cookies.of(name).to_ne_bytes().to_vec();
        // As Linux has it, half a number is none.
        if value.len() > len as usize { Err(Errno::INVAL) } else { Ok(Answer::Option { value }.into()) }
    }

    fn listen(&mut self, number: u32, name: SocketId, backlog: u32) -> Result<Reply, Errno> {
        let socket = self.socket(number, name)?;
        let queue = socket.listen(name, backlog)?;
        let place = socket.listens_at();
        match queue {
            Some(queue) => self.handing.add(name, queue),
            None => self.handing.go_on(name),
        }
        Ok(place.map_or(Answer::Done, |place| Answer::Stream { place }).into())
    }

    fn connect(
        &mut self,
        number: u32,
        name: SocketId,
        address: SocketAddr,
        fast: bool,
    ) -> Result<Reply, Errno> {
        let socket = self.socket(number, name)?;
        let answer = socket.connect(address, fast);
        socket.stream().inspect(|stream| stream.is_of(name));
        if let Some(session) = self.sessions.get_mut(&number)
            && session.offers.note_question()
        {
            session.offer();
        }
        Ok(answer?.into())
    }

    fn socket(&mut self, session: u32, socket: SocketId) -> Result<&mut Socket, Errno> {
        self.settle_for(socket);
        let holds = self.sessions.get(&session).is_some_and(|it| it.sockets.contains(&socket));
        let socket = self.sockets.get_mut(&socket).filter(|_| holds).ok_or(Errno::BADF)?;
        // Its program has it by now.
        socket.is_ahead = false;
        Ok(socket)
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
        let filter = session.usual.filter.clone();
        for _ in 0..count {
            let is_free = |name| !self.sockets.contains_key(&name);
            let pair = Pair::within(self.room, &self.set, is_free);
            let Pair { ours, theirs, name } = pair.map_err(super::socket::errno)?;
            let role = match kind {
                Kind::Stream => Role::Fresh(None),
                Kind::Datagram => Socket::datagrams(family, DatagramKind::Udp, filter.clone()),
                Kind::Echo => Socket::datagrams(family, DatagramKind::Echo, filter.clone()),
            };
            let mut socket = session.fresh(ours, family);
            (socket.is_ahead, socket.role) = (count > 1, role);
            self.holders.insert((name, number));
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
        self.settle_for(name);
        let session = self.sessions.get_mut(&number).ok_or(Errno::NETDOWN)?;
        let socket = self.sockets.get(&name).ok_or(Errno::NOTSOCK)?;
        session.sockets.insert(name);
        self.holders.insert((name, number));
        // A listener's connections have their words in its arena.
        let arena = Arc::clone(&socket.arena);
        let memfd = arena.arena().as_fd().try_clone_to_owned().map_err(super::socket::errno)?;
        arena.show_to(session.owner.kin);
        session.attached.insert(arena.arena().number(), arena);
        Ok(Reply { answer: socket.attached(name), fds: vec![memfd] })
    }

    /// The process is gone, or has become another program: what its threads held is free. Its sockets live as long as
    /// somebody has their descriptors.
    pub fn end(&mut self, session: u32) {
        self.sessions.get_mut(&session).into_iter().for_each(|it| it.offers.suspect());
        self.end_left();
        self.settle();
        let Some(mut gone) = self.sessions.remove(&session) else { return };
        self.owners.remove(&gone.arena.arena().number());
        for &name in &gone.sockets {
            self.holders.remove(&(name, session));
        }
        gone.offers.withdraw(&gone.arena);
        self.lingering.forget(session);
        for arena in gone.attached.values().chain([&gone.arena]) {
            arena.waiters.remove(arena.mapping(), session, None);
            arena.bury(session);
            self.arrivals.suspect(arena.arena().number());
        }
        self.engine.0.fabric.programs.segments.forget_waiters(session);
        for (lane, bell) in &gone.bells {
            self.engine.0.fabric.bell(*lane).forget(bell.as_fd());
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

    /// Does what lanes have called for since the last time: what takes long, and what is for the books.
    pub fn answer_calls(&mut self) {
        if self.bell.clear() {
            self.ring_crowds();
            let programs = &self.engine.0.fabric.programs;
            programs.make_segments(self.engine.0.fabric.now());
            if programs.take_lost_lanes() {
                self.handing.end_without_lanes();
                self.sessions.values_mut().for_each(|it| it.offer_anew(&self.engine.0.fabric));
            }
            self.handing.take_full().into_iter().for_each(|it| self.watch(it, epoll::EventFlags::OUT));
            self.end_left();
            self.begin_held();
        }
    }

    /// Begins what lanes have left, once what has hung up has ended.
    fn begin_held(&mut self) {
        if self.engine.0.fabric.programs.hangups.take_held() {
            self.end_listeners();
            self.settle();
        }
    }

    /// Closes what has hung up, lets go on what a listener's descriptor had no room for, and answers calls.
    pub fn look(&mut self) {
        self.end_hung_up();
        self.answer_calls();
    }

    fn end_hung_up(&mut self) {
        self.end_listeners();
        let is_ending = std::mem::replace(&mut self.is_ending, true);
        for (key, flags) in told(&self.set) {
            if key == BELL_KEY {
                let _ = rustix::io::read(self.bell.as_fd(), &mut [0; 8]);
                continue;
            }
            let name = SocketId(key);
            if flags.intersects(epoll::EventFlags::HUP | epoll::EventFlags::ERR) {
                // A listener has hung up since. It ends with what the next look finds, before which nobody connects to it.
                if !self.sockets.get(&name).is_some_and(|it| it.listens()) {
                    self.close(name);
                }
            } else if flags.contains(epoll::EventFlags::OUT) {
                self.watch(name, epoll::EventFlags::empty());
                self.handing.go_on(name);
            }
        }
        self.is_ending = is_ending;
    }

    /// The same of listeners alone, for which connections are held up.
    fn end_listeners(&mut self) {
        let fabric = Arc::clone(&self.engine.0.fabric);
        let is_ending = std::mem::replace(&mut self.is_ending, true);
        fabric.programs.hangups.end_all(|name| self.close(name));
        self.is_ending = is_ending;
    }

    /// What lanes have handed on is known from here on.
    fn gather(&mut self) {
        self.handing.take_handed().into_iter().for_each(|it| self.arrivals.add(it));
    }

    /// Connections become those of the sockets under whose names programs say that they have taken them. A name is a program's
    /// word: it must be that of a new socket of a session that has the arena.
    fn settle(&mut self) {
        self.settle_in(None);
    }

    /// The same of connections in some arenas. A request looks at those that its program may use, however many others there are.
    fn settle_in(&mut self, near: Near<'_>) {
        // Who asks about a socket is not to find that it has no connection as yet; who is ending what has hung up goes on with that first.
        if !self.settle_what_may_begin(near) && !self.is_ending {
            self.end_listeners();
            self.settle_what_may_begin(near);
        }
    }

    /// The arenas where a connection may lie that is to be this socket's: those of who has it.
    fn near(&self, name: SocketId) -> Vec<u64> {
        self.holders(name).filter_map(|it| self.sessions.get(&it)).flat_map(Session::arenas).collect()
    }

    /// The sessions that have a socket.
    fn holders(&self, name: SocketId) -> impl Iterator<Item = u32> {
        self.holders.range((name, 0)..=(name, u32::MAX)).map(|&(_, session)| session)
    }

    /// The same, but for connections that wait for what has hung up. Whether there are none.
    fn settle_what_may_begin(&mut self, near: Near<'_>) -> bool {
        self.gather();
        let (fabric, bell, waits) = (&self.engine.0.fabric, &self.bell, Cell::new(false));
        // A listener that is closed is to be gone before somebody is connected who has asked after that.
        let may_begin = |_| {
            let holds = fabric.programs.hangups.holds();
            if holds {
                waits.set(true);
                bell.wake_by_ref();
            }
            !holds
        };
        let (sessions, arrivals) = (&mut self.sessions, &mut self.arrivals);
        let mut take_begun = |session: &mut Session| {
            session.take_begun(fabric, &may_begin).into_iter().for_each(|it| arrivals.add(it));
        };
        match near {
            None => sessions.values_mut().for_each(take_begun),
            Some(arenas) => arenas.iter().filter_map(|arena| self.owners.get(arena)).for_each(|owner| {
                sessions.get_mut(owner).into_iter().for_each(&mut take_begun);
            }),
        }
        self.arrivals.take_nameless(near).into_iter().for_each(|it| self.end_arrival(it));
        for arrival in self.arrivals.take_left(near) {
            self.end_arrival(arrival);
        }
        for (name, arrival) in self.arrivals.take_named(near) {
            self.renew(name);
            let arena = arrival.home.arena.arena().number();
            let has_arena = |it| self.sessions.get(&it).is_some_and(|it| it.arena_of(arena).is_some());
            let is_had = self.holders(name).any(has_arena);
            match self.sockets.get_mut(&name) {
                Some(socket) if is_had && socket.is_fresh() => socket.take(name, arrival),
                // It is heard in a moment that what it was before is closed. Who begins a connection has said so before.
                Some(_) if is_had && arrival.from.is_some() => self.arrivals.add(arrival),
                _ => self.end_arrival(arrival),
            }
        }
        !waits.get()
    }

    /// The same before something is done with a socket that may be one of those.
    fn settle_for(&mut self, name: SocketId) {
        self.renew(name);
        self.gather();
        if !self.sockets.get(&name).is_some_and(|it| it.is_fresh()) {
            return;
        }
        let near = self.near(name);
        let owners = near.iter().filter_map(|arena| self.sessions.get(self.owners.get(arena)?));
        if self.arrivals.are_in(&near) || owners.into_iter().any(|it| it.offers.are_there()) {
            self.settle_in(Some(&near));
        }
    }

    /// Nobody has the connection, or who took it is gone.
    fn end_arrival(&mut self, arrival: Arrival) {
        let resets = arrival.options.resets() || !arrival.is_taken();
        self.end_role(Role::Stream(arrival.stream, None), Arc::clone(&arrival.home.arena), resets);
    }

    /// A socket for a connection that has arrived.
    fn take(&mut self, number: u32, place: Place) -> Result<Reply, Errno> {
        let session = self.sessions.get(&number).ok_or(Errno::NETDOWN)?;
        session.arena_of(place.arena).ok_or(Errno::INVAL)?;
        self.gather();
        let arrival = self.arrivals.take_at(place).ok_or(Errno::INVAL)?;
        let is_free = |name| !self.sockets.contains_key(&name);
        let Pair { ours, theirs, name } = match Pair::within(self.room, &self.set, is_free) {
            Ok(pair) => pair,
            Err(error) => {
                self.end_arrival(arrival);
                return Err(super::socket::errno(error));
            }
        };
        let session = self.sessions.get_mut(&number).ok_or(Errno::NETDOWN)?;
        let family = arrival.from.map_or(Family::V4, |(_, family)| family);
        let mut socket = session.fresh(ours, family);
        self.holders.insert((name, number));
        socket.take(name, arrival);
        session.sockets.insert(name);
        self.sockets.insert(name, Box::new(socket));
        Ok(Reply { answer: Answer::Sockets { sockets: vec![name] }, fds: vec![theirs] })
    }

    fn watch(&self, name: SocketId, flags: epoll::EventFlags) {
        if let Some(socket) = self.sockets.get(&name) {
            let _ = epoll::modify(&self.set, &socket.ours, epoll::EventData::new_u64(name.0), flags);
        }
    }

    /// The last descriptor of a socket is gone.
    fn close(&mut self, name: SocketId) {
        self.settle_for(name);
        let near = self.near(name);
        let Some(mut socket) = self.sockets.remove(&name) else { return };
        self.cookies.forget(name);
        socket.end_signals();
        let listens = socket.listens();
        if listens {
            self.handing.remove(name);
            self.engine.0.fabric.programs.hangups.remove(&socket.ours);
        }
        let (limit, mut sessions) = (socket.options.lingers(), BTreeSet::new());
        for (_, number) in self.holders.extract_if((name, 0)..=(name, u32::MAX), |_| true) {
            let session = self.sessions.get_mut(&number);
            if session.is_some_and(|it| it.sockets.remove(&name)) && limit.is_some() {
                sessions.insert(number);
            }
        }
        if let (Some(stream), Some(limit)) = (socket.stream(), limit) {
            self.lingering.add(Who::of(&socket.owner), name, sessions, stream, limit);
        }
        let resets = socket.resets();
        close_end(&self.closer, socket.owner.user, socket.ours, &self.set);
        if listens {
            let arena = socket.arena.arena().number();
            self.settle_in(Some(&[arena]));
            self.arrivals.take_of(name, arena).into_iter().for_each(|it| self.end_arrival(it));
        }
        self.dissolved.forget(name);
        self.end_role(socket.role, socket.arena, resets);
        if self.arrivals.are_in(&near) {
            // It may have had the name of more than one.
            self.settle_in(Some(&near));
        }
    }

    /// A session has closed a socket, and keeps its descriptor: what the socket was (the connection in this place, if it was one)
    /// ends, and it is a new one. Only who has it alone may say so of it, and not of a listener, whose connections come by the
    /// descriptor: else it ends as a whole.
    pub fn closed(&mut self, number: u32, name: SocketId, place: Option<Place>) {
        // Who has taken a connection and had no socket for it says so of one that is not there.
        self.renew(name);
        if self.sockets.get(&name).is_none_or(|it| it.is_fresh()) {
            let near: Vec<u64> = self.sessions.get(&number).into_iter().flat_map(Session::arenas).collect();
            self.settle_in(Some(&near));
            self.begin_closed(number, place);
        }
        let has_it = |it: &&Session| it.sockets.contains(&name);
        let Some(session) = self.sessions.get(&number).filter(has_it) else { return };
        let is_shared = self.holders(name).nth(1).is_some();
        let Some(socket) = self.sockets.get_mut(&name) else { return };
        let may_stay = matches!(socket.role, Role::Fresh(_) | Role::Stream(..));
        if !may_stay || is_shared {
            return self.close(name);
        }
        if socket.stream_place() == place {
            let resets = socket.resets();
            let (role, arena) = socket.begin_anew(session);
            self.cookies.forget(name);
            self.dissolved.forget(name);
            self.end_role(role, arena, resets);
        } else if let Some(place) = place
            && session.arena_of(place.arena).is_some()
            && let Some(arrival) = self.arrivals.take_as(name, place)
        {
            // The socket is another connection's by now, of which was heard first.
            self.end_arrival(arrival);
        }
    }

    /// Begins what a session has closed in this place, should it still wait for what has hung up: nobody will have it, and once it is
    /// begun it ends as any.
    fn begin_closed(&mut self, number: u32, place: Option<Place>) {
        let fabric = &self.engine.0.fabric;
        if let (Some(session), Some(place)) = (self.sessions.get_mut(&number), place)
            && session.arena.arena().number() == place.arena
        {
            let begun = session.take_begun(fabric, &|block| block == place.block);
            begun.into_iter().for_each(|it| self.arrivals.add(it));
        }
    }

    /// Ends streams of which programs have said by their words that they have closed them, as far as lanes have found that.
    fn end_left(&mut self) {
        let programs = &self.engine.0.fabric.programs;
        if !programs.leaving.take() {
            return;
        }
        let arenas = programs.take_leaving();
        let near: Vec<u64> = arenas.iter().map(|it| it.arena().number()).collect();
        self.settle_in(Some(&near));
        for arena in arenas {
            let mut left = std::mem::take(&mut self.left);
            arena.take_left(&mut left);
            let sockets = left.drain(..).filter_map(|block| arena.stream(block)?.socket());
            sockets.for_each(|name| self.renew(name));
            self.left = left;
        }
    }

    /// Makes a new socket of one that is a closed stream by its program's words, as [`Hub::closed`] does for who says so himself. If
    /// others have the socket, it stays the closed stream that they see.
    fn renew(&mut self, name: SocketId) {
        let Some(socket) = self.sockets.get_mut(&name).filter(|it| it.is_left()) else { return };
        let mut holders = self.holders.range((name, 0)..=(name, u32::MAX)).map(|(_, holder)| holder);
        if let (Some(holder), None) = (holders.next(), holders.next())
            && let Some(session) = self.sessions.get(holder)
        {
            let resets = socket.resets();
            let (role, arena) = socket.begin_anew(session);
            self.cookies.forget(name);
            self.dissolved.forget(name);
            self.end_role(role, arena, resets);
        }
    }

    /// Whether a session lives that has the arena. A program may write any number into its owner words, and die.
    pub(super) fn may_be_inside(&self, session: u32, arena: &ProgramArena) -> bool {
        is_inside(&self.sessions, session, arena)
    }

    /// Whether something could not end at once, so that it is for [`Hub::tidy`].
    pub fn has_endings(&self) -> bool {
        !self.ending.is_empty()
    }

    /// Ends what could not end at once, and gives arenas back that nobody uses any more. To be called every now and then
    /// while it answers `true`.
    pub fn tidy(&mut self) -> bool {
        self.end_left();
        self.settle();
        std::mem::take(&mut self.ending).into_iter().for_each(|it| self.finish(it));
        let (handing, sessions) = (&self.handing, &self.sessions);
        let taken_out = |listener| handing.taken_out(listener);
        let lives = |session, arena: &ProgramArena| is_inside(sessions, session, arena);
        let nobodys = self.arrivals.take_nobodys(self.engine.0.fabric.now(), taken_out, lives);
        nobodys.into_iter().for_each(|it| self.end_arrival(it));
        let live: BTreeSet<u32> = self.sessions.values().map(|it| it.arena.place).collect();
        let held = self.sockets.values().map(|it| it.arena.place);
        let ending = self.ending.iter().map(|it| it.arena.place);
        let kept = ending.chain(self.dissolved.arenas());
        let used: BTreeSet<u32> = held.chain(kept).chain(self.arrivals.arenas()).collect();
        self.remains.tidy();
        let (fabric, remains) = (&self.engine.0.fabric, &mut self.remains);
        let sessions = &mut self.sessions;
        self.arenas.retain(|arena| {
            let is_used = live.contains(&arena.place) || used.contains(&arena.place);
            let stays = is_used || !remains.empty(fabric, arena);
            if !stays {
                fabric.programs.remove_arena(arena.place);
                // Who was shown a socket there has none left, and does not keep its memory.
                let number = arena.arena().number();
                remains.forget(number);
                sessions.values_mut().for_each(|it| drop(it.attached.remove(&number)));
            }
            stays
        });
        let lingers = self.lingering.tidy();
        lingers
            || self.arrivals.has_suspects()
            || !self.ending.is_empty()
            || self.arenas.iter().any(|arena| !live.contains(&arena.place))
    }

    /// Whether [`Hub::tidy`] is to be called again soon: it does a bounded part of what takes long.
    pub fn has_more_to_tidy(&self) -> bool {
        self.remains.is_behind()
    }

    /// How many connections of programs that have ended were reset, because there is no room for what those have left to be sent.
    pub fn resets_of_ended(&self) -> u64 {
        self.remains.reset()
    }

    /// How many arenas a user's programs have: those, too, of programs that have ended and whose sockets others have, or whose last text is
    /// still to be sent.
    pub fn arenas_of(&self, user: u32) -> usize {
        self.remains.arenas_of(user)
    }

    /// The netstack of a socket.
    pub(super) fn stack_of(&self, name: SocketId) -> Option<&Stack> {
        Some(&self.sockets.get(&name)?.stack)
    }

    /// Every socket of every program.
    pub fn sockets(&mut self) -> Vec<ProgramSocket> {
        self.end_left();
        self.settle();
        self.sockets.values().filter(|it| !it.is_ahead).map(|it| it.summary()).collect()
    }

    /// What is known of the sockets behind descriptors with these inodes, as far as they are programs' of ours. It asks
    /// lanes, one connection at a time.
    pub fn explain(&mut self, inodes: &BTreeSet<u64>) -> Vec<ExplainedSocket> {
        inodes.iter().for_each(|&inode| self.renew(SocketId(inode)));
        self.settle();
        let found = inodes.iter().filter_map(|&inode| Some((inode, self.sockets.get(&SocketId(inode))?)));
        found.map(|(inode, socket)| ExplainedSocket::new(inode, socket)).collect()
    }

    /// How many programs, sockets and arenas there are, and how often a program's words could not be.
    pub fn counts(&self) -> [u64; 4] {
        let lies = self.engine.snapshot().counters.shm_lies;
        let sockets = self.sockets.len() + self.arrivals.len() + self.handing.handed();
        [self.sessions.len() as u64, sockets as u64, self.arenas.len() as u64, lies]
    }
}

impl Drop for Hub {
    /// Closes everything.
    fn drop(&mut self) {
        self.engine.0.fabric.programs.hangups.end();
        for session in self.sessions.keys().copied().collect::<Vec<_>>() {
            self.end(session);
        }
        for name in self.sockets.keys().copied().collect::<Vec<_>>() {
            self.close(name);
        }
        self.settle();
        for arena in self.arenas.drain(..) {
            self.engine.0.fabric.programs.remove_arena(arena.place);
        }
        self.engine.0.fabric.programs.segments.pages.end();
    }
}

fn is_inside(sessions: &BTreeMap<u32, Session>, session: u32, arena: &ProgramArena) -> bool {
    sessions.get(&session).is_some_and(|it| it.arena_of(arena.arena().number()).is_some())
}

/// Sends an answer.
///
/// # Errors
/// The program is gone, or does not take answers.
pub fn send(socket: impl AsFd, number: u32, reply: &Reply) -> io::Result<()> {
    let fds: Vec<BorrowedFd<'_>> = reply.fds.iter().map(AsFd::as_fd).collect();
    carry::send(socket, &reply.answer.encode(number), &fds, false)
}
