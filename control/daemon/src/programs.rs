//! The socket for programs (`app.sock`): who may come in, sessions, and their end.
//!
//! Started by `daemon.rs`. One thread has all of it: it waits for programs, their requests, the end of their processes and
//! the hub's own events. A program that sends what is no request, or does not take its answers, loses its
//! session; what it holds otherwise ends with its descriptors.
//!
//! A forked child comes in by its parent's connection, so that one which has given up its rights since (the workers of
//! most servers) keeps the netstack that it was born on, and no other.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use firelane::{
    Closer, Engine, ExplainedSocket, Foreign, Hub, Limits, Owner, PeerOf, ProgramSocket, Reply, send_reply,
};
use firelane_model::{NetstackName, Programs as Rules, SOCKET_FILTER_TEXT_MAX, SocketFilter};
use firelane_shm::control::{Answer, FILTER_MAX, MESSAGE_MAX, OWN_FILTER, OWN_LEVEL, Request, UNANSWERED};
use firelane_shm::{Spin, carry};
use firelane_units::{FilterRule, LinkId, NetstackId};
use rustix::event::{EventfdFlags, Timespec, epoll, eventfd};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrAny, SocketType, getpeername, getsockname};
use rustix::process::{PidfdFlags, pidfd_open};
use tracing::Level;

use crate::accounts::{Accounts, Peer};
use crate::devices;
use crate::held::{Held, HeldRequest, asks_host};
use crate::host::Host;
use crate::listener::{AT_A_TIME, Listener};
use crate::log_limit::LogLimit;

/// The most programs at a time.
const PROGRAMS_MAX: usize = 4096;
/// Of these, the most of a user other than the daemon's: whoever has been let in brings as many children as he likes.
const PROGRAMS_OF_USER: usize = PROGRAMS_MAX / 4;
/// The most programs of a user other than the daemon's that have not been admitted yet.
const KNOCKING_MAX: usize = 64;
/// How long who has come in may take to say who he is; the library says so at once.
const KNOCK_MAX: Duration = Duration::from_secs(10);
/// Requests that a program which has ended may have left behind.
const REQUESTS_LEFT: usize = 64;
/// How often to look for the next request before sleeping: each look is a system call.
const LOOKS: u32 = 256;
/// How often memory is looked at that may go back, while there is any.
const TIDY_EVERY: Duration = Duration::from_millis(500);
/// What could not end at once mostly can a moment later.
const TIDY_SOON: Duration = Duration::from_millis(5);
/// The longest command that is remembered.
const COMMAND_MAX: usize = 64;

/// What `firelane run` lets through must fit a program's first message.
const _: () = assert!(SOCKET_FILTER_TEXT_MAX == FILTER_MAX);

/// What an event is about: the first three, then two for each program.
const LISTENER: u64 = 0;
const STOP: u64 = 1;
const HUB: u64 = 2;
const FIRST: u64 = 4;

/// The thread that serves programs, and what it knows.
#[derive(Debug)]
pub(crate) struct Programs {
    stop: Arc<OwnedFd>,
    thread: Option<JoinHandle<()>>,
    hub: Arc<Mutex<Hub>>,
}

impl Programs {
    /// Begins to serve programs that come to `listener`.
    pub(crate) fn start(listener: OwnedFd, engine: Engine, host: Arc<Host>) -> io::Result<Self> {
        let hub = Arc::new(Mutex::new(Hub::new(engine)?));
        let stop = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        let mut door = Door::new(listener, Arc::clone(&stop), Arc::clone(&hub), host)?;
        let thread = std::thread::Builder::new().name("programs".to_owned()).spawn(move || door.run())?;
        Ok(Self { stop, thread: Some(thread), hub })
    }

    /// The netstack of a process' session, and what is known of sockets by their inodes.
    pub(crate) fn explain(
        &self,
        pid: u32,
        inodes: &BTreeSet<u64>,
    ) -> (Option<NetstackId>, Vec<ExplainedSocket>) {
        let mut hub = lock(&self.hub);
        (hub.netstack_of(pid), hub.explain(inodes))
    }

    /// Every socket of every program.
    pub(crate) fn sockets(&self) -> Vec<ProgramSocket> {
        lock(&self.hub).sockets()
    }
}

impl Drop for Programs {
    /// Ends every session: programs see their control connection end.
    fn drop(&mut self) {
        let _ = rustix::io::write(&self.stop, &1u64.to_ne_bytes());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn lock(hub: &Mutex<Hub>) -> MutexGuard<'_, Hub> {
    hub.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A program that has come in.
#[derive(Debug)]
struct Guest {
    control: OwnedFd,
    /// Readable when the process has ended, though others may have its control connection still.
    process: OwnedFd,
    owner: Owner,
    peer: Peer,
    /// It has been told why it gets no more sockets.
    is_warned: bool,
    /// The netstack of the parent that has brought it.
    inherits: Option<Home>,
    stage: Stage,
}

/// Who is about to come in.
#[derive(Debug)]
struct Newcomer {
    process: OwnedFd,
    owner: Owner,
    peer: Peer,
}

/// How far a guest is.
#[derive(Debug)]
enum Stage {
    /// It has not said what it wants.
    New,
    There(Session),
    /// Its process has ended; its children may still come in by its connection.
    Gone(Home),
}

/// A netstack. One that is made anew under its name is another.
#[derive(Clone, Debug)]
struct Home {
    name: NetstackName,
    id: NetstackId,
}

#[derive(Debug)]
struct Session {
    number: u32,
    home: Home,
}

#[derive(Debug)]
struct Door {
    listener: Listener,
    stop: Arc<OwnedFd>,
    set: OwnedFd,
    hub: Arc<Mutex<Hub>>,
    host: Arc<Host>,
    /// Closes what programs can have made slow to close.
    closer: Closer,
    guests: BTreeMap<u64, Guest>,
    next: u64,
    /// Who has said nothing, and until when he is waited for: by keys, which rise, so that the first is the next.
    knocking: BTreeMap<u64, Instant>,
    /// Who waits for the end of a change.
    held: Held,
    tidy_at: Option<Instant>,
    log: LogLimit,
    /// Connections of programs that have ended, which were reset and told of.
    resets: u64,
}

impl Door {
    fn new(listener: OwnedFd, stop: Arc<OwnedFd>, hub: Arc<Mutex<Hub>>, host: Arc<Host>) -> io::Result<Self> {
        let set = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let add =
            |fd: &dyn AsFd, key| epoll::add(&set, fd, epoll::EventData::new_u64(key), epoll::EventFlags::IN);
        let listener = Listener::within(&set, listener, LISTENER)?;
        add(&*stop, STOP)?;
        add(&*lock(&hub), HUB)?;
        let closer = lock(&hub).closer().clone();
        let (guests, knocking, held, log) = Default::default();
        let (next, tidy_at, resets) = (FIRST, None, 0);
        Ok(Self {
            listener,
            stop,
            set,
            hub,
            host,
            closer,
            guests,
            next,
            knocking,
            held,
            tidy_at,
            log,
            resets,
        })
    }

    fn run(&mut self) {
        let cpus = std::thread::available_parallelism().map_or(1, usize::from);
        let mut spin = Spin::in_bursts(LOOKS, cpus);
        let mut keys = Vec::new();
        let mut was_asked = false;
        loop {
            // Who asks once mostly asks again at once, and a thread that sleeps is slow to wake. Lanes that call leave work, and nobody
            // waits for an answer: a program may need the CPU.
            if was_asked {
                spin.until(|| self.has_news(&mut keys));
            }
            if keys.is_empty() {
                // Lanes that call without end keep nobody else from an answer.
                let may_sleep = lock(&self.hub).fall_asleep();
                let alarm = || self.alarm().map(|at| at.saturating_duration_since(Instant::now()));
                let limit = if may_sleep { alarm() } else { Some(Duration::ZERO) };
                if let Err(error) = self.wait(&mut keys, limit) {
                    return tracing::error!("programs: {error}");
                }
            }
            was_asked = keys.iter().any(|&key| key != HUB);
            for key in keys.drain(..) {
                match key {
                    LISTENER => self.take_in(),
                    STOP => return,
                    HUB => lock(&self.hub).look(),
                    key if key.is_multiple_of(2) => self.serve(key, 1),
                    key => self.bury(key - 1),
                }
            }
            lock(&self.hub).answer_calls();
            self.see_off_homeless();
            self.tidy();
            self.turn_away();
            self.go_on();
            self.listener.go_on(&self.set);
            self.log.tell();
        }
    }

    /// When there is something to do though nobody says anything.
    fn alarm(&self) -> Option<Instant> {
        let knocking = self.knocking.values().next().copied();
        let others = self
            .tidy_at
            .into_iter()
            .chain(self.listener.alarm())
            .chain(self.log.alarm())
            .chain(self.held.alarm());
        others.chain(knocking).min()
    }

    /// Sees off who has said nothing for long.
    fn turn_away(&mut self) {
        while let Some((&key, &until)) = self.knocking.first_key_value()
            && until <= Instant::now()
        {
            if let Some(guest) = self.guests.get(&key)
                && self.log.has_room(guest.peer.user, Level::WARN)
            {
                let Owner { pid, command, .. } = &guest.owner;
                tracing::warn!(
                    "program {pid} ({command}) has said nothing for {KNOCK_MAX:?}: it is seen off"
                );
            }
            self.see_off(key);
        }
    }

    /// Ends the sessions whose netstack was removed: their programs begin others when they want new sockets, on what has its name by then.
    fn see_off_homeless(&mut self) {
        let homeless = lock(&self.hub).homeless();
        if homeless.is_empty() {
            return;
        }
        let is_homeless = |it: &Guest| matches!(&it.stage, Stage::There(it) if homeless.contains(&it.number));
        let keys: Vec<_> = self.guests.iter().filter(|it| is_homeless(it.1)).map(|it| *it.0).collect();
        for key in keys {
            // Children that it has brought come in.
            self.serve(key, REQUESTS_LEFT);
            self.see_off(key);
        }
    }

    /// Whether anybody has something to say, and who.
    fn has_news(&self, keys: &mut Vec<u64>) -> bool {
        lock(&self.hub).is_called() || self.wait(keys, Some(Duration::ZERO)).is_err() || !keys.is_empty()
    }

    /// Waits for who has something to say; his key, and those of others.
    fn wait(&self, keys: &mut Vec<u64>, limit: Option<Duration>) -> Result<(), Errno> {
        let mut events = [const { std::mem::MaybeUninit::uninit() }; 64];
        let limit = limit.map(|left| Timespec {
            tv_sec: left.as_secs().cast_signed(),
            tv_nsec: left.subsec_nanos().into(),
        });
        match epoll::wait(&self.set, &mut events, limit.as_ref()) {
            Ok((events, _)) => keys.extend(events.iter().map(|event| event.data.u64())),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// Looks after what has ended, when there is such a thing and it is time.
    fn tidy(&mut self) {
        if self.tidy_at.is_none() && lock(&self.hub).has_endings() {
            self.tidy_at = Some(Instant::now() + TIDY_SOON);
        }
        let Some(at) = self.tidy_at else { return };
        let now = Instant::now();
        if at <= now {
            let mut hub = lock(&self.hub);
            let goes_on = hub.tidy();
            // What is left to be done has a fifth of the time: programs wait meanwhile.
            let pause = if hub.has_more_to_tidy() { TIDY_SOON.max(4 * now.elapsed()) } else { TIDY_EVERY };
            let resets = hub.resets_of_ended();
            drop(hub);
            self.tidy_at = goes_on.then(|| now + pause);
            if resets > self.resets {
                let more = resets - self.resets;
                tracing::warn!(
                    "{more} connections of programs that have ended are reset: they had left too much to be sent"
                );
                self.resets = resets;
            }
        }
    }

    fn take_in(&mut self) {
        for _ in 0..AT_A_TIME {
            let Some(control) = self.listener.accept(&self.set) else { return };
            let user = PeerOf::ask(&control).map_or(own().user, |peer| peer.user);
            if self.admit(control, user, None) {
                continue;
            }
            // Whoever comes is known when he has been accepted, and has a descriptor by then. So where one of them has much too many,
            // all come the slower, the more there are.
            let behind = self.closer.times_behind(user);
            if behind > 1 {
                self.listener.rest(&self.set, Duration::from_secs(behind.into()));
            }
        }
    }

    /// Takes a program in, at the cost of `user`, who has brought the connection. If it cannot be, whether nothing is left of it.
    fn admit(&mut self, control: OwnedFd, user: u32, inherits: Option<Home>) -> bool {
        let is_child = inherits.is_some();
        match self.try_admit(&control, is_child) {
            Ok((key, newcomer)) => {
                let Newcomer { process, owner, peer } = newcomer;
                let stage = Stage::New;
                self.knocking.insert(key, Instant::now() + KNOCK_MAX);
                self.guests
                    .insert(key, Guest { control, process, owner, peer, is_warned: false, inherits, stage });
                true
            }
            Err(error) => {
                if self.log.has_room(user, Level::WARN) {
                    tracing::warn!("a program was not taken in: {error}");
                }
                refuse(&control, &error);
                end_control(control, user, is_child, &self.closer)
            }
        }
    }

    fn try_admit(&mut self, control: &OwnedFd, is_child: bool) -> io::Result<(u64, Newcomer)> {
        if self.guests.len() >= PROGRAMS_MAX {
            return Err(io::Error::other(format!("{PROGRAMS_MAX} programs are there already")));
        }
        if !lock(&self.hub).has_room_for(control) {
            return Err(Errno::NFILE.into());
        }
        let who = PeerOf::ask(control)?;
        let unseen = "its process is in a PID namespace that the daemon's does not see";
        let process = who.process.ok_or_else(|| io::Error::other(unseen))?;
        let peer = Peer { user: who.user, group: who.group };
        let of_user = self.guests.values().filter(|it| it.peer.user == peer.user).count();
        if of_user >= most_of(peer.user, own().user) {
            return Err(io::Error::other(format!("user {} has {of_user} programs already", peer.user)));
        }
        if self.closer.is_behind(peer.user) {
            return Err(io::Error::other(format!(
                "user {} sends descriptors that are slow to close",
                peer.user
            )));
        }
        let knocks = |it: &&Guest| matches!(it.stage, Stage::New) && it.peer.user == peer.user;
        let is_stranger = !is_child && peer.user != own().user;
        if is_stranger && self.guests.values().filter(knocks).count() >= KNOCKING_MAX {
            return Err(io::Error::other(format!("user {} has {KNOCKING_MAX} at the door", peer.user)));
        }
        let pid = process.as_raw_nonzero().get().unsigned_abs();
        let process = pidfd_open(process, PidfdFlags::empty())?;
        let key = self.next;
        self.next += 2;
        self.listen(control, key)?;
        self.listen(&process, key + 1)?;
        let owner = Owner { pid, user: peer.user, command: command_of(pid), kin: peer.kin(pid) };
        tracing::debug!("program {} ({}), user {}", owner.pid, owner.command, peer.user);
        Ok((key, Newcomer { process, owner, peer }))
    }

    /// What a descriptor has to say is known by `key` from now on.
    fn listen(&self, fd: &OwnedFd, key: u64) -> Result<(), Errno> {
        epoll::add(&self.set, fd, epoll::EventData::new_u64(key), epoll::EventFlags::IN)
    }

    /// Answers so many requests. A program waits for each answer, so that there is seldom a second one to look for.
    fn serve(&mut self, key: u64, most: usize) {
        for _ in 0..most {
            let served = self.serve_one(key);
            if !self.is_served(key, served) {
                return;
            }
        }
    }

    /// Whether that went well, so that the next request may be looked for; a program that does what it must not loses its session.
    fn is_served(&mut self, key: u64, served: io::Result<()>) -> bool {
        let Err(error) = served else { return true };
        if error.kind() != io::ErrorKind::WouldBlock {
            if !is_its_end(error.kind())
                && let Some(Guest { owner, peer, .. }) = self.guests.get(&key)
                && self.log.has_room(peer.user, Level::WARN)
            {
                tracing::warn!("program {}: {error}: its session ends", owner.pid);
            }
            self.see_off(key);
        }
        false
    }

    /// Answers those who have waited for the end of a change.
    fn go_on(&mut self) {
        let host = &self.host;
        for (key, HeldRequest { number, request, fds }) in self.held.take(|| !host.is_busy()) {
            let Some(guest) = self.guests.get(&key) else { continue };
            let listened = self.listen(&guest.control, key);
            let served =
                listened.map_err(io::Error::from).and_then(|()| self.carry_out(key, number, request, fds));
            self.is_served(key, served);
        }
    }

    fn serve_one(&mut self, key: u64) -> io::Result<()> {
        let guest = self.guests.get_mut(&key).ok_or(io::ErrorKind::WouldBlock)?;
        // What it has sent may have more beside it: it stays where it is.
        if self.closer.is_behind(guest.peer.user) {
            return Err(io::Error::other("its user sends descriptors that are slow to close"));
        }
        let (mut bytes, mut fds) = ([0; MESSAGE_MAX], Vec::new());
        let received = carry::receive(&guest.control, &mut bytes, &mut fds, false);
        let fds = self.closer.foreign(guest.peer.user, fds);
        let len = received?;
        if len == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let (number, request) = Request::decode(&bytes[..len]).map_err(io::Error::other)?;
        if asks_host(&request) && self.host.is_busy() {
            // Whatever it sends next waits where it is.
            epoll::delete(&self.set, &guest.control)?;
            // Who has said who he is waits as long as the change takes.
            if matches!(request, Request::Hello { .. }) {
                self.knocking.remove(&key);
            }
            self.held.put(key, HeldRequest { number, request, fds });
            return Err(io::ErrorKind::WouldBlock.into());
        }
        self.carry_out(key, number, request, fds)
    }

    fn carry_out(&mut self, key: u64, number: u32, request: Request, mut fds: Foreign) -> io::Result<()> {
        let guest = self.guests.get(&key).ok_or(io::ErrorKind::WouldBlock)?;
        let reply = match (&guest.stage, request) {
            (Stage::There(Session { home, .. }) | Stage::Gone(home), Request::Child) => {
                let (home, user) = (home.clone(), guest.peer.user);
                if let Some(control) = fds.take(is_control) {
                    self.admit(control, user, Some(home));
                }
                return Ok(());
            }
            (stage, Request::Closed { socket, place }) => {
                // What one that has ended had is closed with its descriptors.
                if let Stage::There(session) = stage {
                    lock(&self.hub).closed(session.number, socket, place);
                }
                return Ok(());
            }
            (Stage::New, Request::Hello { netstack, filter, room }) => {
                self.begin(key, &netstack, &filter, room).unwrap_or_else(Reply::from)
            }
            (Stage::New | Stage::Gone(_), _) | (_, Request::Hello { .. }) => Reply::from(Errno::PROTO),
            (Stage::There(session), Request::Interfaces) => {
                let addresses = devices::that_fit(self.host.interfaces(&session.home.name));
                Answer::Interfaces { addresses }.into()
            }
            (Stage::There(_), request) => self.answer(key, request, fds.into_inner()),
        };
        let guest = self.guests.get(&key).ok_or(io::ErrorKind::WouldBlock)?;
        if number != UNANSWERED {
            send_reply(&guest.control, number, &reply)?;
        }
        // Who was refused has nothing to wait for.
        if matches!(reply.answer, Answer::Refused { .. }) {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(())
    }

    /// What the hub answers to a session's request; a program that has as many sockets as it may is told of.
    fn answer(&mut self, key: u64, request: Request, fds: Vec<OwnedFd>) -> Reply {
        let guest = self.guests.get_mut(&key);
        let Some(Guest { owner, peer, is_warned, stage: Stage::There(session), .. }) = guest else {
            return Errno::NETDOWN.into();
        };
        let may_say = || self.log.has_room(peer.user, Level::INFO);
        let reply = answer(&self.hub, &self.host, session, request, fds, may_say);
        if !*is_warned
            && reply.answer == Reply::from(Errno::MFILE).answer
            && let Some(most) = lock(&self.hub).limit_reached(session.number)
            && self.log.has_room(peer.user, Level::WARN)
        {
            *is_warned = true;
            let (Owner { pid, command, .. }, name) = (owner, &session.home.name);
            tracing::warn!(
                "program {pid} ({command}) has {most} sockets, as many as netstack.{name}.programs.sockets allows"
            );
        }
        reply
    }

    fn begin(&mut self, key: u64, wanted: &str, filter: &str, room: u64) -> Result<Reply, Answer> {
        let refused = |errno: Errno, text: String| Answer::Refused { errno: errno.raw_os_error(), text };
        let filter = SocketFilter::read("filter", filter).map_err(|faults| {
            refused(Errno::INVAL, faults.first().map_or_else(String::new, ToString::to_string))
        })?;
        let guest = self.guests.get_mut(&key).ok_or_else(|| refused(Errno::NETDOWN, String::new()))?;
        let wanted = guest.inherits.as_ref().map_or(wanted, |home| home.name.as_str());
        let (netstack, id, rules) =
            self.host.netstack_of(wanted).map_err(|text| refused(Errno::NODEV, text))?;
        // Who was born on the netstack stays there, whoever it has become.
        if guest.inherits.as_ref().is_none_or(|home| home.id != id) {
            admitted(guest.peer, netstack.as_str(), &rules).map_err(|text| {
                if self.log.has_room(guest.peer.user, Level::WARN) {
                    tracing::warn!("program {} ({}): {text}", guest.owner.pid, guest.owner.command);
                }
                refused(Errno::ACCESS, text)
            })?;
        }
        let (user, most) = (guest.peer.user, most_of(guest.peer.user, own().user));
        if lock(&self.hub).arenas_of(user) >= most {
            let text = format!(
                "programs of user {user}, and what those that have ended have left, take {most} arenas"
            );
            if self.log.has_room(user, Level::WARN) {
                tracing::warn!("program {} ({}): {text}", guest.owner.pid, guest.owner.command);
            }
            return Err(refused(Errno::NOMEM, text));
        }
        let usual = Limits::default();
        let limits = Limits {
            sockets: rules.sockets.map_or(usual.sockets, |most| most as usize),
            memory: rules.memory.unwrap_or(usual.memory),
            room,
        };
        let (owner, place) = (guest.owner.clone(), (id, netstack.as_str()));
        let filter =
            self.host.socket_rules(&netstack, &filter).map_err(|text| refused(Errno::INVAL, text))?;
        let begun = lock(&self.hub).begin(owner, place, limits, filter);
        let (number, reply) = begun.map_err(|error| {
            refused(Errno::from_io_error(&error).unwrap_or(Errno::NOMEM), format!("no session: {error}"))
        })?;
        if self.log.has_room(user, Level::INFO) {
            tracing::info!("program {} ({}) uses netstack {netstack}", guest.owner.pid, guest.owner.command);
        }
        guest.stage = Stage::There(Session { number, home: Home { name: netstack, id } });
        self.knocking.remove(&key);
        Ok(reply)
    }

    /// The process has ended. Its children may have its connection, so what they send comes first.
    fn bury(&mut self, key: u64) {
        if self.held.forget(key)
            && let Some(guest) = self.guests.get(&key)
        {
            // If it cannot be, its children are told by the end of their own.
            let _ = self.listen(&guest.control, key);
        }
        self.serve(key, REQUESTS_LEFT);
        let Some(guest) = self.guests.get_mut(&key) else { return };
        let _ = epoll::delete(&self.set, &guest.process);
        let Stage::There(session) = &guest.stage else { return self.see_off(key) };
        let number = session.number;
        guest.stage = Stage::Gone(session.home.clone());
        lock(&self.hub).end(number);
        self.tidy_at = Some(Instant::now());
    }

    /// Nobody has its connection any more, or it is not welcome.
    fn see_off(&mut self, key: u64) {
        self.knocking.remove(&key);
        self.held.forget(key);
        let Some(guest) = self.guests.remove(&key) else { return };
        // Others may have both descriptors, so closing ours does not take them out.
        let _ = epoll::delete(&self.set, &guest.control);
        let _ = epoll::delete(&self.set, &guest.process);
        if let Stage::There(session) = &guest.stage {
            lock(&self.hub).end(session.number);
        }
        end_control(guest.control, guest.peer.user, guest.inherits.is_some(), &self.closer);
        self.tidy_at = Some(Instant::now());
    }
}

impl Drop for Door {
    fn drop(&mut self) {
        let _ = epoll::delete(&self.set, &*self.stop);
        for guest in std::mem::take(&mut self.guests).into_values() {
            end_control(guest.control, guest.peer.user, guest.inherits.is_some(), &self.closer);
        }
    }
}

/// What the hub answers to a session's request. Devices have names for programs, and numbers for the hub.
fn answer(
    hub: &Mutex<Hub>,
    host: &Host,
    session: &Session,
    request: Request,
    fds: Vec<OwnedFd>,
    may_say: impl FnOnce() -> bool,
) -> Reply {
    if let Request::SetOption { socket, level: OWN_LEVEL, name: OWN_FILTER, value } = &request {
        // The host is asked before the hub is held.
        let rules = rules_of(host, session, value, may_say);
        return lock(hub).set_filter(session.number, *socket, rules, fds);
    }
    let interfaces = || host.interfaces(&session.home.name);
    let room = if let Request::GetOption { len, .. } = request { len } else { 0 };
    let (request, wants_name) = match devices::by_number(request, interfaces) {
        Ok(known) => known,
        Err(errno) => return errno.into(),
    };
    let reply = lock(hub).request(session.number, request, fds);
    match wants_name {
        true => devices::by_name(reply.answer, room, interfaces).map_or_else(Reply::from, Reply::from),
        false => reply,
    }
}

/// The rules that a program gives to one of its sockets.
fn rules_of(
    host: &Host,
    session: &Session,
    text: &[u8],
    may_say: impl FnOnce() -> bool,
) -> Option<Vec<FilterRule<LinkId>>> {
    let text = std::str::from_utf8(text).ok()?.trim_end_matches('\0');
    let filter = SocketFilter::read("filter", text).ok()?;
    let rules = host.socket_rules(&session.home.name, &filter);
    if let Err(why) = &rules
        && may_say()
    {
        tracing::info!("session {}: no filter: {why}", session.number);
    }
    rules.ok()
}

/// Tells a program why it is not taken in, in answer to its first request, which may not have come. Who does not listen is not waited for.
fn refuse(control: &OwnedFd, error: &io::Error) {
    let errno = Errno::from_io_error(error).unwrap_or(Errno::NFILE).raw_os_error();
    let text = format!("the daemon does not take this program in: {error}");
    let _ = carry::send(control, &Answer::Refused { errno, text }.encode(1), &[], false);
}

/// Ends a program's connection. Whether nothing of it is left to be closed. The end that a child was brought by its parent is for others to
/// have as well: who reads there as slowly as he likes keeps whoever looks into its queue.
fn end_control(control: OwnedFd, user: u32, is_child: bool, closer: &Closer) -> bool {
    if !is_child {
        return closer.hang_up(user, control);
    }
    let _ = rustix::net::shutdown(&control, rustix::net::Shutdown::Both);
    closer.close(user, control);
    false
}

/// Whether a descriptor can be a child's connection: one end of a pair, whose maker SO_PEERCRED names. A connection to a listener has a name
/// at one of its ends, and is said to be of who listens, or of who has come: a child by that would be one of theirs. It is asked for
/// nothing that could take long.
fn is_control(fd: &OwnedFd) -> bool {
    use rustix::net::sockopt::{socket_domain, socket_type};
    // Nothing stands behind the family. What stands there may be anything, and is not read.
    let is_nameless = |end: SocketAddrAny| end.addr_len() as usize == size_of::<u16>();
    socket_domain(fd) == Ok(AddressFamily::UNIX)
        && socket_type(fd) == Ok(SocketType::SEQPACKET)
        && getsockname(fd).is_ok_and(is_nameless)
        && getpeername(fd).is_ok_and(|peer| peer.is_some_and(is_nameless))
}

/// The daemon's own user and group.
fn own() -> Peer {
    Peer { user: rustix::process::geteuid().as_raw(), group: rustix::process::getegid().as_raw() }
}

/// How many programs a user may have.
fn most_of(user: u32, own: u32) -> usize {
    if user == own || user == 0 { PROGRAMS_MAX } else { PROGRAMS_OF_USER }
}

/// Whether a process may use a netstack; else why not.
fn admitted(peer: Peer, netstack: &str, rules: &Rules) -> Result<(), String> {
    let accounts = Accounts::read();
    if accounts.admit(peer, own(), rules) { Ok(()) } else { Err(accounts.refusal(peer, netstack, rules)) }
}

/// The command of a process, or nothing if it has ended.
fn command_of(pid: u32) -> String {
    command_in(&Path::new("/proc").join(pid.to_string()))
}

/// The same of the process with that folder in `/proc`. A process may give itself any name, and the kernel cuts a long one off within a
/// character: what would move a terminal's cursor, begin a line or turn one round is left out.
pub(crate) fn command_in(folder: &Path) -> String {
    let name = std::fs::read(folder.join("comm")).unwrap_or_default();
    let turns =
        |it: char| matches!(it, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    let name = String::from_utf8_lossy(&name);
    name.trim_end().chars().filter(|&it| !it.is_control() && !turns(it)).take(COMMAND_MAX).collect()
}

/// Whether a program's control socket says so that the program has ended: with an answer that it has not read, or while it was
/// being answered, it says more than that there is no more to come.
const fn is_its_end(kind: io::ErrorKind) -> bool {
    matches!(kind, io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe)
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};
    use std::os::unix::net::UnixStream;

    use firelane::EngineConfig;
    use firelane_model::{Instance, Model};
    use rustix::net::{SocketAddrUnix, SocketFlags};

    use super::*;
    use crate::dhcp::Clients;
    use crate::folder::tests::Scratch;
    use crate::host::Parts;
    use crate::kernel::Kernel;
    use crate::listener::bind;
    use crate::state::State;
    use crate::works::Works;

    fn seqpacket() -> OwnedFd {
        let flags = SocketFlags::CLOEXEC;
        rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).unwrap()
    }

    /// A door in a folder, of a host that has nothing, and what both live on.
    struct World {
        door: Door,
        path: std::path::PathBuf,
        _runtime: tokio::runtime::Runtime,
        _folder: Scratch,
    }

    impl World {
        fn new() -> Self {
            let folder = Scratch::new();
            let path = folder.path().join("app.sock");
            let listener = bind(&path, &Model::default()).unwrap();
            let engine = Engine::start(&EngineConfig::default()).unwrap();
            let runtime = tokio::runtime::Runtime::new().unwrap();
            let instance: Instance = "test".parse().unwrap();
            let clients = Clients::new(runtime.handle().clone(), folder.path(), None);
            let kernel = Kernel::new(instance.clone(), folder.path(), 1);
            let places = (folder.path().to_owned(), path.clone());
            let works =
                Works::new(engine.clone(), kernel, &instance, places, runtime.handle().clone(), clients);
            let (state, instance) = (State::new(folder.path()), instance.to_string());
            let parts = Parts { instance, lanes_given: false, works, state, early: Vec::new(), unkept: None };
            let host = Arc::new(Host::start(parts, &Model::default()));
            let stop = Arc::new(eventfd(0, EventfdFlags::CLOEXEC).unwrap());
            let hub = Arc::new(Mutex::new(Hub::new(engine).unwrap()));
            let door = Door::new(listener, stop, hub, host).unwrap();
            Self { door, path, _runtime: runtime, _folder: folder }
        }

        fn knock(&self) -> OwnedFd {
            let socket = seqpacket();
            rustix::net::connect(&socket, &SocketAddrUnix::new(&self.path).unwrap()).unwrap();
            socket
        }

        /// Somebody who has come as the first, and has a session.
        fn session(&mut self) -> OwnedFd {
            let control = self.knock();
            self.open();
            let name = "test".parse().unwrap();
            self.door.guests.get_mut(&FIRST).unwrap().stage =
                Stage::There(Session { number: 9, home: Home { name, id: NetstackId(0) } });
            control
        }

        /// Somebody who is gone before he is looked at, and has said this.
        fn knock_in_vain(&self, said: Option<&[u8]>) {
            let socket = self.knock();
            said.into_iter().for_each(|it| carry::send(&socket, it, &[], true).unwrap());
        }

        fn open(&mut self) {
            while self.is_knocked() {
                self.door.take_in();
            }
        }

        /// Has so much closed for the tests' user that is behind something slow, as long as the connection is kept.
        fn keep_closing(&self, count: usize) -> TcpStream {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let slow = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let (peer, _) = listener.accept().unwrap();
            rustix::net::sockopt::set_socket_linger(&slow, Some(Duration::from_secs(600))).unwrap();
            slow.set_nonblocking(true).unwrap();
            while std::io::Write::write(&mut &slow, &[0; 1 << 16]).is_ok() {}
            let others = (0..count).map(|_| peer.try_clone().unwrap().into());
            let fds = std::iter::once(slow.into()).chain(others).collect();
            drop(self.door.closer.foreign(own().user, fds));
            while count >= 256 && !self.door.closer.is_behind(own().user) {
                std::thread::sleep(Duration::from_millis(5));
            }
            peer
        }

        /// Whether there is something to do at the listener.
        fn is_knocked(&self) -> bool {
            let mut keys = Vec::new();
            self.door.wait(&mut keys, Some(Duration::ZERO)).unwrap();
            keys.contains(&LISTENER)
        }
    }

    #[test]
    fn who_knocks_without_end_leaves_the_others_their_turn() {
        let mut world = World::new();
        let knocks: Vec<_> = (0..100).map(|_| world.knock()).collect();
        world.door.take_in();
        assert_eq!(world.door.guests.len(), AT_A_TIME);
        while world.is_knocked() {
            world.door.take_in();
        }
        assert_eq!(world.door.guests.len(), knocks.len());
    }

    #[test]
    fn of_whoever_is_refused_and_has_sent_nothing_nothing_waits() {
        let mut world = World::new();
        let _peer = world.keep_closing(300);
        for _ in 0..20 {
            (0..50).for_each(|_| world.knock_in_vain(None));
            world.open();
        }
        assert_eq!((world.door.guests.len(), world.door.closer.times_behind(own().user)), (0, 1));
    }

    #[test]
    fn whoever_is_refused_at_the_door_is_told_why_whether_he_has_said_something_or_not() {
        let mut world = World::new();
        let _peer = world.keep_closing(300);
        let hello = Request::Hello { netstack: String::new(), filter: String::new(), room: 0 }.encode(1);
        for said in [None, Some(&hello)] {
            let program = world.knock();
            said.into_iter().for_each(|it| carry::send(&program, it, &[], true).unwrap());
            world.open();
            let mut bytes = [0; MESSAGE_MAX];
            let mut hears = || carry::receive(&program, &mut bytes, &mut Vec::new(), false);
            // What was sent and not read comes first, as an error.
            let len = hears().or_else(|_| hears()).unwrap();
            let (number, answer) = Answer::decode(&bytes[..len]).unwrap();
            let Answer::Refused { errno, text } = answer else { panic!("{answer:?}") };
            assert_eq!((number, errno), (1, Errno::NFILE.raw_os_error()));
            assert!(text.contains("slow to close"), "{text}");
        }
    }

    #[test]
    fn those_wait_of_whom_much_is_to_be_closed() {
        let mut world = World::new();
        let _peer = world.keep_closing(300);
        for round in 0..20 {
            (0..50).for_each(|_| world.knock_in_vain(Some(b"x")));
            world.open();
            if world.door.closer.times_behind(own().user) > 1 {
                world.knock();
                assert!(!world.is_knocked() && world.door.alarm().is_some());
                return assert!(round > 0, "not before it is much");
            }
        }
        panic!("it never rested");
    }

    #[test]
    fn who_is_behind_gets_no_answer() {
        let mut world = World::new();
        let program = world.knock();
        world.open();
        let _peer = world.keep_closing(300);
        let hello = Request::Hello { netstack: String::new(), filter: String::new(), room: 0 };
        carry::send(&program, &hello.encode(1), &[], true).unwrap();
        world.door.serve(FIRST, 1);
        assert_eq!(carry::receive(&program, &mut [0; MESSAGE_MAX], &mut Vec::new(), false).unwrap(), 0);
        assert!(world.door.guests.is_empty());
    }

    #[test]
    fn who_asks_the_host_while_it_is_changed_waits_and_nobody_else() {
        let mut world = World::new();
        let programs = [world.knock(), world.knock()];
        world.open();
        let said = |nth: usize, request: &Request| {
            carry::send(&programs[nth], &request.encode(1), &[], true).unwrap();
        };
        let heard =
            |nth: usize| carry::receive(&programs[nth], &mut [0; MESSAGE_MAX], &mut Vec::new(), false);
        let host = Arc::clone(&world.door.host);
        host.with_model(|_| {
            said(0, &Request::Hello { netstack: String::new(), filter: String::new(), room: 0 });
            said(1, &Request::Attach);
            world.door.serve(FIRST, 1);
            world.door.serve(FIRST + 2, 1);
            world.door.go_on();
            assert_eq!(heard(0).unwrap_err().kind(), io::ErrorKind::WouldBlock);
            assert!(heard(1).unwrap() > 0);
            assert!(world.door.alarm().is_some_and(|at| at < Instant::now() + Duration::from_millis(100)));
        });
        world.door.go_on();
        assert!(heard(0).unwrap() > 0, "it is told that there is no netstack");
        assert_eq!(world.door.guests.len(), 1);
    }

    #[test]
    fn who_says_something_else_while_the_host_is_changed_is_waited_for_no_longer() {
        let mut world = World::new();
        let program = world.knock();
        world.open();
        carry::send(&program, &Request::Interfaces.encode(1), &[], true).unwrap();
        let host = Arc::clone(&world.door.host);
        host.with_model(|_| world.door.serve(FIRST, 1));
        world.door.go_on();
        assert!(carry::receive(&program, &mut [0; MESSAGE_MAX], &mut Vec::new(), false).unwrap() > 0);
        assert!(world.door.knocking.contains_key(&FIRST), "it has not said who it is");
    }

    #[test]
    fn a_child_comes_by_a_pair_of_its_own_and_by_nobody_elses_connection() {
        let mut world = World::new();
        let parent = world.session();
        let (listener, came, flags) = (seqpacket(), seqpacket(), SocketFlags::CLOEXEC);
        let path = world.path.with_file_name("elsewhere");
        rustix::net::bind(&listener, &SocketAddrUnix::new(&path).unwrap()).unwrap();
        rustix::net::listen(&listener, 1).unwrap();
        rustix::net::connect(&came, &SocketAddrUnix::new(&path).unwrap()).unwrap();
        let accepted = rustix::net::accept_with(&listener, flags).unwrap();
        let pair = rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).unwrap();
        let ours = world.knock();
        let brings = |child: &OwnedFd| {
            let before = world.door.guests.len();
            carry::send(&parent, &Request::Child.encode(1), &[child.as_fd()], true).unwrap();
            world.door.serve(FIRST, 1);
            world.door.guests.len() > before
        };
        // By SO_PEERCRED each of them is whoever listens, the daemon for one, or whoever has come.
        assert_eq!([&ours, &came, &accepted, &pair.0].map(brings), [false, false, false, true]);
    }

    /// A parent's children come in by its connection, also if it has ended while it waited.
    #[test]
    fn who_ends_while_he_waits_is_listened_to_for_his_children() {
        let mut world = World::new();
        let parent = world.session();
        carry::send(&parent, &Request::Interfaces.encode(1), &[], true).unwrap();
        let host = Arc::clone(&world.door.host);
        host.with_model(|_| world.door.serve(FIRST, 1));
        world.door.bury(FIRST);
        assert!(matches!(world.door.guests[&FIRST].stage, Stage::Gone(_)));
        let is_told = |world: &World| {
            let mut keys = Vec::new();
            world.door.wait(&mut keys, Some(Duration::ZERO)).unwrap();
            keys.contains(&FIRST)
        };
        assert!(!is_told(&world));
        drop(parent);
        assert!(is_told(&world), "the last of his children has ended");
    }

    /// What is logged meanwhile.
    fn log_of(what: impl FnOnce()) -> String {
        #[derive(Clone, Default)]
        struct Lines(Arc<Mutex<Vec<u8>>>);
        impl io::Write for Lines {
            fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
                self.0.lock().unwrap().extend(bytes);
                Ok(bytes.len())
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let lines = Lines::default();
        let of_log = lines.clone();
        let log = tracing_subscriber::fmt().with_writer(move || of_log.clone()).finish();
        tracing::subscriber::with_default(log, what);
        let bytes = std::mem::take(&mut *lines.0.lock().unwrap());
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn whoever_knocks_without_end_fills_no_log() {
        let (mut world, begun) = (World::new(), Instant::now());
        let log = log_of(|| {
            for nth in 0..1000 {
                let program = world.knock();
                world.open();
                carry::send(&program, b"no request", &[], true).unwrap();
                world.door.serve(FIRST + 2 * nth, 1);
            }
        });
        // Each second of a busy machine has its own.
        let most = 100 * (2 + begun.elapsed().as_secs() as usize);
        assert!((1..most).contains(&log.lines().count()), "{} lines: {log:.1000}", log.lines().count());
    }

    #[test]
    fn no_user_but_the_daemons_takes_the_last_places() {
        assert_eq!([most_of(7, 7), most_of(0, 7)], [PROGRAMS_MAX; 2]);
        assert!(most_of(8, 7) <= PROGRAMS_MAX / 2);
    }

    #[test]
    fn whoever_leaves_answers_unread_has_ended_and_done_nothing_wrong() {
        use std::io::{Read, Write};
        let (mut daemon, program) = UnixStream::pair().unwrap();
        daemon.write_all(b"an answer").unwrap();
        drop(program);
        let (read, written) = (daemon.read(&mut [0; 9]).unwrap_err(), daemon.write(b"another").unwrap_err());
        assert!(is_its_end(read.kind()) && is_its_end(written.kind()), "{read}, {written}");
        assert!(!is_its_end(io::ErrorKind::InvalidData) && !is_its_end(io::ErrorKind::Other));
    }
}
