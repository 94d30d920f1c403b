//! A program's socket as the daemon has it: fresh, listening, or a stream.
//!
//! Owned by `hub.rs`. The program's descriptor is one end of a pair, ours the other: when it hangs up, the last
//! reference anywhere is gone.

use std::collections::VecDeque;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use firelane_filter::{FilterCounts, FilterSetup};
use firelane_ip::{Egress, HopLimits};
use firelane_lane::{DatagramKind, DatagramOption, Relisten, StreamOption};
use firelane_shm::AcceptQueue;
use firelane_shm::control::{
    Answer, Family, Kind, OWN_LEVEL, OWN_SIGNALS, Place, SAME_BACKLOG, SocketId, State,
};
use firelane_shm::layout::TAKEN;
use firelane_socket::StreamConfig;
use firelane_tcp::{FastOpenPolicy, Unconnected};
use firelane_units::{LaneId, LinkId};
use rustix::io::Errno;

use super::Owner;
use super::addresses::{any, canonical, fits, is_one_of_v6, link_at, link_towards, reachable, shown};
use super::alike::{Alike, link_of};
use super::arena::ProgramArena;
use super::arrivals::{Arrival, Home};
use super::asked::Asked;
use super::datagram_options::{DatagramOptions, Setting};
use super::datagrams::{Datagrams, Wanted};
use super::handing::Queue;
use super::joining::Unbound;
use super::numbers::{cut, ip, ipv6, said, socket, tcp};
use super::options::{About, Options};
use super::session::Session;
use super::shares::Who;
use super::stream::Stream;
use super::waiting::Waiting;
use super::{absent, fixed, joining, rights};
use crate::registry::Claim;
use crate::stack::Stack;
use crate::tcp_listener::{ListenConfig, Reserved, TcpListener};

/// A socket.
#[derive(Debug)]
pub(super) struct Socket {
    pub(super) ours: OwnedFd,
    pub(super) family: Family,
    pub(super) stack: Stack,
    pub(super) arena: Arc<ProgramArena>,
    pub(super) owner: Arc<Owner>,
    /// A listener's connections have its options as long as they set none of their own.
    pub(super) options: Arc<Options>,
    /// A listener's connection, which its program must take.
    pub(super) is_arrival: bool,
    /// Made ahead, for a program that may yet want it: it is nothing to show.
    pub(super) is_ahead: bool,
    /// Of what its program is signalled (`signals.rs`).
    pub(super) signals: u8,
    pub(super) role: Role,
}

/// What has become of it. A connection, of which there may be many, is small; the rest lies elsewhere.
#[derive(Debug)]
pub(super) enum Role {
    /// Nothing yet; perhaps it has an address.
    Fresh(Option<Box<Reserved>>),
    /// It listens.
    Listening(Arc<Listening>),
    /// A datagram socket, with the word of its program once it has one.
    Datagrams(Option<Arc<Datagrams>>, Box<DatagramOptions>),
    /// A connection, with the address that it was bound to.
    Stream(Arc<Stream>, Option<Box<Reserved>>),
}

/// A listener.
#[derive(Debug)]
pub(super) struct Listening {
    pub(super) listener: TcpListener,
    /// Where its connections wait, if there is such a place.
    pub(super) waiting: Option<Waiting>,
    next: Mutex<Next>,
}

/// What a listener's next connection begins with.
#[derive(Clone, Debug)]
pub(super) struct Next {
    /// What it has as long as it sets nothing else.
    pub(super) options: Arc<Options>,
    /// The sizes of its rings.
    pub(super) rings: StreamConfig,
}

impl Listening {
    /// Looks at what its next connection begins with.
    pub(super) fn next<T>(&self, look: impl FnOnce(&Next) -> T) -> T {
        look(&self.lock())
    }

    /// Where its connections wait.
    pub(super) fn place(&self) -> Option<Place> {
        self.waiting.as_ref()?.place()
    }

    /// How many connections of it nobody has accepted yet, and how many may be.
    fn shown(&self) -> Unconnected {
        let there = self.waiting.as_ref().and_then(Waiting::words).map_or(0, AcceptQueue::waiting);
        let (waiting, backlog) = self.listener.waiting();
        let [waiting, backlog] = [waiting, backlog].map(|count| u32::try_from(count).unwrap_or(u32::MAX));
        Unconnected::Listening { waiting: waiting.saturating_add(there), backlog }
    }

    fn start_next_with(&self, options: &Arc<Options>, rings: StreamConfig) {
        *self.lock() = Next { options: Arc::clone(options), rings };
    }

    fn lock(&self) -> MutexGuard<'_, Next> {
        self.next.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

const _: () = assert!(size_of::<Socket>() <= 88);

/// Datagram sockets.
impl Socket {
    /// What a new one begins as.
    pub(super) fn datagrams(family: Family, kind: DatagramKind, filter: Option<Arc<FilterSetup>>) -> Role {
        let mut options = DatagramOptions::new(family == Family::V6, kind);
        options.filter = filter;
        Role::Datagrams(None, Box::new(options))
    }

    /// recvmsg(2) with MSG_ERRQUEUE.
    pub(super) fn fault(&self) -> Result<Answer, Errno> {
        let Role::Datagrams(Some(made), _) = &self.role else { return Err(Errno::AGAIN) };
        let fault = made.take_fault(&self.arena).ok_or(Errno::AGAIN)?;
        Ok(Answer::Option { value: fault.encode() })
    }

    fn datagram_place(&self, socket: &Datagrams) -> Place {
        Place { arena: self.arena.arena().number(), block: socket.number() }
    }

    fn datagram_queues(&self) -> Result<[usize; 2], Errno> {
        let usual = self.stack.sockets().map_err(errno)?;
        Ok([usual.datagrams_out, usual.datagrams_in])
    }

    fn bind_datagrams(&mut self, address: SocketAddr) -> Result<Answer, Errno> {
        let usual = self.datagram_queues()?;
        let Role::Datagrams(made, options) = &self.role else { return Err(Errno::INVAL) };
        let (local, v6_only) = (canonical(address), options.v6_only);
        if made.is_some() {
            return Err(self.refuses_again(local.ip())?);
        }
        let sharing = options.sharing(self.owner.user);
        let (kind, queues, filter) = (options.kind, options.queues(usual), options.filter.as_ref());
        let (is_free, link) = (options.alike.binds_freely, link_at(&self.stack, address, &options.alike)?);
        let wanted = Wanted { local, v6_only, is_free, link, kind, sharing, queues, filter };
        let made = Datagrams::bind(&self.stack, &self.arena, wanted).map_err(errno)?;
        let done = options.all().iter().try_for_each(|it| made.set(&self.stack, &self.arena, it));
        if let Err(error) = done {
            made.close(&self.stack.inner.fabric);
            self.arena.datagrams.remove(made.number());
            return Err(errno(error));
        }
        let place = self.datagram_place(&made);
        if let Role::Datagrams(socket, options) = &mut self.role {
            // It has joined its groups itself by now.
            (*socket, options.unbound, options.alike.link) = (Some(made), None, link);
            // As Linux has it: who is bound to an address of IPv6 has nothing to do with IPv4.
            options.v6_only |= is_one_of_v6(local);
        }
        self.show_signals(true).map_err(errno)?;
        Ok(Answer::Stream { place })
    }

    /// connect(2); the unspecified address with port zero dissolves the association, as `AF_UNSPEC` does.
    fn connect_datagrams(&mut self, address: SocketAddr) -> Result<Answer, Errno> {
        let Role::Datagrams(made, options) = &self.role else { return Err(Errno::INVAL) };
        let mut remote = Some(canonical(address)).filter(|it| !it.ip().is_unspecified() || it.port() != 0);
        remote = remote.map(reachable);
        // As in Linux the link goes with the association, whoever has named it.
        let link = match remote {
            Some(_) => link_towards(&self.stack, address, options.alike.link, options.link_of_groups())?,
            None => None,
        };
        if made.is_none() {
            self.bind_datagrams(SocketAddr::new(any(self.family), 0))?;
        }
        let Role::Datagrams(Some(made), options) = &mut self.role else { return Err(Errno::INVAL) };
        made.connect(&self.stack.inner.fabric, &self.arena, remote, link).map_err(errno)?;
        options.alike.link = link;
        let place = Place { arena: self.arena.arena().number(), block: made.number() };
        Ok(Answer::Stream { place })
    }

    fn set_datagram_option(&mut self, level: i32, name: i32, value: &[u8]) -> Result<Answer, Errno> {
        let stack = self.stack.clone();
        let Role::Datagrams(made, options) = &mut self.role else { return Err(Errno::INVAL) };
        let setting = options.set(level, name, value, |named| joining::link_of(&stack, named))?;
        if let Setting::Member(member) = &setting {
            let shares = &stack.inner.fabric.programs.groups;
            options.seat(member, |group| shares.take(stack.id(), Who::of(&self.owner), group))?;
        }
        if let Some(made) = made {
            if level == socket::LEVEL && [socket::REUSEADDR, socket::REUSEPORT].contains(&name) {
                let sharing = Setting::Lane(DatagramOption::Sharing(options.sharing(self.owner.user)));
                made.set(&stack, &self.arena, &sharing).map_err(errno)?;
            }
            made.set(&stack, &self.arena, &setting).map_err(errno)?;
            made.set(&stack, &self.arena, &Setting::Program(options.bits())).map_err(errno)?;
            // A TOS has a priority of its own.
            made.set(&stack, &self.arena, &options.band()).map_err(errno)?;
        } else if let Setting::Member(member) = &setting {
            options.unbound.get_or_insert_with(|| Unbound::new(&stack)).set(member).map_err(errno)?;
        }
        Ok(Answer::Done)
    }
}

impl Socket {
    /// bind(2).
    pub(super) fn bind(&mut self, address: SocketAddr) -> Result<Answer, Errno> {
        if !fits(self.family, address) {
            return Err(Errno::AFNOSUPPORT);
        }
        // An address of IPv4 is none of a socket that has nothing to do with it.
        if self.is_v6_only() && address.is_ipv6() && canonical(address).is_ipv4() {
            return Err(Errno::INVAL);
        }
        self.may_have(address.port())?;
        if matches!(self.role, Role::Datagrams(..)) {
            return self.bind_datagrams(address);
        }
        if !self.may_bind() {
            return Err(self.refuses_again(canonical(address).ip())?);
        }
        // As in Linux a stream is bound to no group, whatever stands beside that.
        let is_group = address.ip().is_multicast();
        let link = if is_group { self.alike().link } else { link_at(&self.stack, address, self.alike())? };
        let sharer = self.options.reuse_port.then_some(self.owner.user);
        let is_free = self.options.alike.binds_freely;
        let (reuses, v6_only) = (self.options.reuse_address, self.options.v6_only);
        let claim = Claim { sharer, is_free, reuses, link, ..Claim::alone(canonical(address), v6_only) };
        let leaves_port = self.options.port_later && address.port() == 0;
        let take = if leaves_port { Reserved::address } else { Reserved::take };
        self.role = Role::Fresh(Some(Box::new(take(&self.stack, claim).map_err(errno)?)));
        self.keeps_to(link);
        if is_one_of_v6(canonical(address)) && !self.options.v6_only {
            Arc::make_mut(&mut self.options).v6_only = true;
        }
        Ok(Answer::Done)
    }

    /// A stream speaks over this link alone, or over any.
    fn keeps_to(&mut self, link: Option<LinkId>) {
        if self.options.alike.link != link {
            Arc::make_mut(&mut self.options).alike.link = link;
        }
    }

    fn is_v6_only(&self) -> bool {
        if let Role::Datagrams(_, options) = &self.role { options.v6_only } else { self.options.v6_only }
    }

    /// What who has a name is told: EINVAL. Linux judges an address for a socket of IPv4 before that.
    fn refuses_again(&self, local: IpAddr) -> Result<Errno, Errno> {
        let is_judged = self.family == Family::V4 && !self.alike().binds_freely;
        let is_good = !is_judged || self.stack.may_bind(local).map_err(errno)?;
        Ok(if is_good { Errno::INVAL } else { Errno::ADDRNOTAVAIL })
    }

    /// EACCES, as Linux has it of low ports, if the netstack keeps the port for programs of other users.
    fn may_have(&self, port: u16) -> Result<(), Errno> {
        let config = self.stack.config().map_err(errno)?;
        let kept = if matches!(self.role, Role::Datagrams(..)) {
            &config.privileged.udp
        } else {
            &config.privileged.tcp
        };
        let user = self.owner.user;
        let is_privileged = || user == 0 || user == rustix::process::geteuid().as_raw();
        if kept.contains(&port) && !is_privileged() { Err(Errno::ACCESS) } else { Ok(()) }
    }

    /// Whether it has no port as yet, and is nothing else.
    fn may_bind(&self) -> bool {
        matches!(self.role, Role::Fresh(_)) && !self.has_port()
    }

    fn has_port(&self) -> bool {
        match &self.role {
            Role::Fresh(bound) => bound.as_ref().is_some_and(|bound| bound.local().port() != 0),
            Role::Datagrams(made, _) => made.is_some(),
            Role::Listening(_) | Role::Stream(..) => true,
        }
    }

    /// Where it is to listen, and what bind(2) has left, if it was called. Who cannot have a port stays as he was.
    fn reserved(&mut self) -> Result<(Reserved, Option<Claim>), Errno> {
        let Role::Fresh(bound) = &mut self.role else { return Err(Errno::INVAL) };
        let left = bound.as_ref().map(|it| it.claim());
        if let Some(reserved) = bound.take_if(|it| it.local().port() != 0) {
            return Ok((*reserved, left));
        }
        let anywhere = || Claim::alone(SocketAddr::new(any(self.family), 0), self.options.v6_only);
        let reserved = Reserved::take(&self.stack, left.unwrap_or_else(anywhere)).map_err(errno)?;
        *bound = None;
        Ok((reserved, left))
    }

    /// listen(2) of a socket with this name, also to change the backlog, or with [`SAME_BACKLOG`] to change nothing. One that is new is to be
    /// handed on.
    pub(super) fn listen(&mut self, name: SocketId, backlog: u32) -> Result<Option<Queue>, Errno> {
        let wanted = usize::try_from(backlog).unwrap_or(usize::MAX);
        match &mut self.role {
            Role::Listening(_) if backlog == SAME_BACKLOG => return Ok(None),
            Role::Listening(listening) => {
                return listening.listener.set_backlog(wanted).map(|()| None).map_err(errno);
            }
            Role::Stream(..) => return Err(Errno::INVAL),
            Role::Datagrams(..) => return Err(Errno::OPNOTSUPP),
            Role::Fresh(_) => {}
        }
        let fabric = Arc::clone(&self.stack.inner.fabric);
        let hangups = &fabric.programs.hangups;
        // Before anybody can connect to it.
        hangups.add(&self.ours, name).map_err(errno)?;
        self.begin_to_listen(wanted).map(Some).inspect_err(|_| hangups.remove(&self.ours))
    }

    fn begin_to_listen(&mut self, backlog: usize) -> Result<Queue, Errno> {
        let ours = self.ours.try_clone().map_err(errno)?;
        let own = self.stack.config().map_err(errno)?;
        let (mut reserved, bound) = self.reserved()?;
        if let Err(error) = reserved.listens(self.options.alike.link) {
            self.role = Role::Fresh(Some(Box::new(reserved)));
            return Err(errno(error));
        }
        let local = reserved.local();
        Options::follow(&mut self.options, &own);
        let usual = &own.sockets;
        let config = ListenConfig {
            backlog,
            rings: self.options.rings(usual.stream),
            v6_only: self.options.v6_only,
            keepalive: false,
            fast_open: 0,
        };
        let (first, filter) = (self.options.first(), self.options.filter.as_ref());
        let listener = TcpListener::listen_in(self.arena.rings(), reserved, config, first, filter);
        let listener = listener.map_err(|error| {
            let again = |claim: Claim| match claim.addr.port() {
                0 => Reserved::address(&self.stack, claim).ok(),
                _ => Reserved::take(&self.stack, claim).ok(),
            };
            self.role = Role::Fresh(bound.and_then(again).map(Box::new));
            errno(error)
        })?;
        let next = Mutex::new(Next { options: Arc::clone(&self.options), rings: config.rings });
        let waiting = Waiting::new(&self.arena);
        let feeder = waiting.as_ref().and_then(|waiting| waiting.feeder(local));
        let listening = Arc::new(Listening { listener, waiting, next });
        self.role = Role::Listening(Arc::clone(&listening));
        Ok(Queue {
            listening,
            family: self.family,
            home: Arc::new(Home {
                stack: self.stack.clone(),
                arena: Arc::clone(&self.arena),
                owner: Arc::clone(&self.owner),
            }),
            ours,
            feeder,
            unsent: VecDeque::new(),
            has_ended: false,
            is_behind: true,
            accepted: 0,
        })
    }

    /// connect(2): begins it; `fast` if text is there that may go with the SYN (MSG_FASTOPEN).
    pub(super) fn connect(&mut self, address: SocketAddr, fast: bool) -> Result<Answer, Errno> {
        if matches!(self.role, Role::Datagrams(..)) {
            return self.connect_datagrams(address);
        }
        if fast {
            self.may_open_fast()?;
        }
        let Role::Fresh(bound) = &self.role else { return Err(Errno::ISCONN) };
        if !fits(self.family, address) {
            return Err(Errno::AFNOSUPPORT);
        }
        let remote = reachable(canonical(address));
        let mut local = bound.as_ref().map(|bound| bound.local());
        if !address.ip().is_multicast() {
            let link = link_towards(&self.stack, address, self.options.alike.link, None)?;
            // As in Linux also where no connection comes of it.
            self.keeps_to(link);
        }
        let own = self.stack.config().map_err(errno)?;
        Options::follow(&mut self.options, &own);
        let usual = &own.sockets;
        let rings = self.options.rings(usual.stream);
        let (mut first, beginning) = (self.options.first(), self.options.beginning());
        first.fast_open |= fast;
        let source = Stream::source_of_text(&self.stack, (local, remote), &first).map_err(errno)?;
        // Who waits for text has a name, as one whose SYN has left.
        let mut named = None;
        if let Some(source) = source.filter(|_| local.is_none_or(|it| it.port() == 0)) {
            let claim = Claim::alone(SocketAddr::new(source, 0), true);
            let reserved = Reserved::take(&self.stack, claim).map_err(errno)?;
            local = Some(reserved.local());
            named = Some(Box::new(reserved));
        }
        let (ends, defers) = ((local, remote), source.is_some());
        let begun = Stream::connect(&self.stack, &self.arena, ends, rings, first, beginning, defers);
        let stream = begun.map_err(errno)?;
        let place = self.place(&stream);
        let Role::Fresh(bound) = &mut self.role else { return Err(Errno::ISCONN) };
        self.role = Role::Stream(stream, named.or(bound.take()));
        self.show_signals(true).map_err(errno)?;
        Ok(Answer::Stream { place })
    }

    fn place(&self, stream: &Stream) -> Place {
        Place { arena: self.arena.arena().number(), block: stream.number() }
    }

    /// It, whose name is given, is the socket of a connection that has arrived.
    pub(super) fn take(&mut self, name: SocketId, arrival: Arrival) {
        let Arrival { from, home, options, stream, .. } = arrival;
        if let Some((_, family)) = from {
            self.family = family;
        }
        let Home { stack, arena, owner } = &*home;
        (self.stack, self.arena, self.owner) = (stack.clone(), Arc::clone(arena), Arc::clone(owner));
        self.options = options;
        stream.is_of(name);
        (self.is_arrival, self.is_ahead, self.role) = (from.is_some(), false, Role::Stream(stream, None));
    }

    /// Where the words of its stream are, if it is one.
    pub(super) fn stream_place(&self) -> Option<Place> {
        self.stream().map(|stream| self.place(stream))
    }

    /// Where its connections wait, if it is a listener.
    pub(super) fn listens_at(&self) -> Option<Place> {
        if let Role::Listening(listening) = &self.role { listening.place() } else { None }
    }

    /// Whether it is a listener.
    pub(super) fn listens(&self) -> bool {
        matches!(self.role, Role::Listening(_))
    }

    /// Whether it is a stream of which its program's words say that it is closed, so that it is a new socket.
    pub(super) fn is_left(&self) -> bool {
        self.stream().is_some_and(|stream| stream.is_left(&self.arena))
    }

    /// Whether nothing was made of it as yet, as far as is known.
    pub(super) fn is_fresh(&self) -> bool {
        matches!(self.role, Role::Fresh(None))
    }

    /// Whether close(2) is to reset the connection: SO_LINGER says so, or its listener was closed before it was accepted.
    pub(super) fn resets(&self) -> bool {
        let block = self.stream().and_then(|stream| self.arena.mapping().block(stream.number()));
        let is_taken = || block.is_none_or(|block| block.file.load(Ordering::Relaxed) & TAKEN != 0);
        self.options.resets() || self.is_arrival && !is_taken()
    }

    /// It becomes a new one of a session's; what it was, and where its words are.
    pub(super) fn begin_anew(&mut self, session: &Session) -> (Role, Arc<ProgramArena>) {
        self.end_signals();
        (self.stack, self.owner) = (session.stack.clone(), Arc::clone(&session.owner));
        (self.options, self.is_arrival, self.is_ahead) = (Arc::clone(&session.usual), false, true);
        let role = std::mem::replace(&mut self.role, Role::Fresh(None));
        (role, std::mem::replace(&mut self.arena, Arc::clone(&session.arena)))
    }

    /// It is without a connection again, a session's, with its options and the address that it was bound to; what it was, and where its
    /// words are. `None` if it is no connection.
    pub(super) fn disconnect(&mut self, session: &Session) -> Option<(Role, Arc<ProgramArena>)> {
        let Role::Stream(stream, bound) = &mut self.role else { return None };
        self.arena.signals.forget(stream.number());
        let bound = bound.take();
        if let Some(block) = self.arena.mapping().block(stream.number()) {
            Options::take_words(&mut self.options, block);
        }
        (self.stack, self.is_arrival) = (session.stack.clone(), false);
        let role = std::mem::replace(&mut self.role, Role::Fresh(bound));
        Some((role, std::mem::replace(&mut self.arena, Arc::clone(&session.arena))))
    }

    /// setsockopt(2).
    pub(super) fn set_option(&mut self, level: i32, name: i32, value: &[u8]) -> Result<Answer, Errno> {
        if self.is_of_other_family(level) {
            return Err(Errno::NOPROTOOPT);
        }
        let value = said((level, name), value)?;
        rights::check(self.alike(), self.owner.user, (level, name), value)?;
        let name = match (level, name) {
            (OWN_LEVEL, OWN_SIGNALS) => return self.set_signals(value),
            (socket::LEVEL, socket::SNDBUFFORCE) => socket::SNDBUF,
            (socket::LEVEL, socket::RCVBUFFORCE) => socket::RCVBUF,
            // There are none, and that may be said again.
            (ip::LEVEL, ip::OPTIONS) if value.is_empty() => return Ok(Answer::Done),
            _ => name,
        };
        let absent = || absent::set((level, name), self.is_datagram(), value);
        if let Some(done) = fixed::set(level, name, value).or_else(absent) {
            return done.map(|()| Answer::Done);
        }
        if (level, name) == (socket::LEVEL, socket::BINDTOIFINDEX) {
            self.check_link(value)?;
        }
        // Who has a port has it for both families, or for one.
        if (level, name) == (ipv6::LEVEL, ipv6::V6ONLY) && self.has_port() {
            return Err(Errno::INVAL);
        }
        if [(ip::LEVEL, ip::UNICAST_IF), (ipv6::LEVEL, ipv6::UNICAST_IF)].contains(&(level, name)) {
            self.check_way(value)?;
        }
        if matches!(self.role, Role::Datagrams(..)) {
            if (level, name) == (ipv6::LEVEL, ipv6::MULTICAST_IF) {
                self.check_way_of_groups(value)?;
            }
            return self.set_datagram_option(level, name, value);
        }
        if level == tcp::LEVEL {
            self.check_time(name, value)?;
        }
        let told = Arc::make_mut(&mut self.options).set(level, name, value)?;
        match &self.role {
            Role::Stream(stream, _) => {
                stream.show(&self.arena, self.options.shown());
                stream.set_resets(self.options.resets());
                stream.limit_unsent(&self.arena, self.options.unsent_limit());
            }
            Role::Listening(listening) => {
                let rings = self.options.rings(self.stack.sockets().map_err(errno)?.stream);
                listening.start_next_with(&self.options, rings);
                let started = Relisten { rings, options: self.options.first() };
                listening.listener.start_next_with(&started).map_err(errno)?;
            }
            _ => {}
        }
        if let (Role::Stream(stream, _), Some(option)) = (&self.role, told) {
            self.tell_connection(stream, (level, name), option);
        }
        Ok(Answer::Done)
    }

    /// The connection does as the option says from now on, and as goes with it.
    fn tell_connection(&self, stream: &Stream, name: (i32, i32), option: StreamOption) {
        let fabric = &self.stack.inner.fabric;
        stream.set_option(fabric, option);
        match name {
            (ip::LEVEL, ip::TOS) => stream.set_option(fabric, StreamOption::Band(self.options.band())),
            (socket::LEVEL, socket::SNDBUF | socket::RCVBUF) => {
                let receives = name.1 == socket::RCVBUF;
                if let Some(bytes) = self.options.buffer(receives) {
                    stream.resize(fabric, &self.arena, receives, bytes);
                }
            }
            _ => {}
        }
    }

    /// Which options of TCP it takes by now. As in Linux, that it is not allowed to connect fast comes before that it is too late.
    fn check_time(&self, name: i32, value: &[u8]) -> Result<(), Errno> {
        let is_late = match name {
            // A clamp is taken away only from what is closed.
            tcp::WINDOW_CLAMP => {
                value.first_chunk() == Some(&0i32.to_ne_bytes()) && !matches!(self.role, Role::Fresh(_))
            }
            tcp::FASTOPEN | tcp::FASTOPEN_NO_COOKIE => self.stream().is_some(),
            tcp::FASTOPEN_CONNECT => {
                let value = value.first_chunk().map(|bytes| i32::from_ne_bytes(*bytes));
                if value.is_some_and(|it| (0..=1).contains(&it)) {
                    self.may_open_fast()?;
                }
                !matches!(self.role, Role::Fresh(_))
            }
            _ => false,
        };
        if is_late { Err(Errno::INVAL) } else { Ok(()) }
    }

    /// Whether it may speak over a link alone from now on (SO_BINDTODEVICE): only root leaves one, and what has a peer, or a name among
    /// datagram sockets, stays as it is.
    fn check_link(&self, value: &[u8]) -> Result<(), Errno> {
        let index = value.first_chunk().map(|bytes| i32::from_ne_bytes(*bytes)).ok_or(Errno::INVAL)?;
        let alike = self.alike();
        let is_late = matches!(self.role, Role::Datagrams(Some(_), _) | Role::Stream(..));
        match link_of(index) {
            _ if index < 0 => Err(Errno::INVAL),
            _ if alike.link.is_some() && self.owner.user != 0 => Err(Errno::PERM),
            link if link == alike.link => Ok(()),
            Some(link) if !self.stack.has_link(link) => Err(Errno::NODEV),
            _ if is_late => Err(Errno::INVAL),
            _ => Ok(()),
        }
    }

    /// Whether its packets may leave by a link that it names, in the order of the net (IP_UNICAST_IF).
    fn check_way(&self, value: &[u8]) -> Result<(), Errno> {
        let index = i32::from_be_bytes(value.try_into().map_err(|_| Errno::INVAL)?);
        let Some(link) = link_of(index) else { return Ok(()) };
        match self.alike().link {
            _ if !self.stack.has_link(link) => Err(Errno::ADDRNOTAVAIL),
            // What is bound to one has no choice, not even that one.
            Some(_) => Err(Errno::INVAL),
            None => Ok(()),
        }
    }

    /// Whether there is the link by which packets to groups are to leave (IPV6_MULTICAST_IF).
    fn check_way_of_groups(&self, value: &[u8]) -> Result<(), Errno> {
        let index = value.first_chunk().map(|bytes| i32::from_ne_bytes(*bytes)).ok_or(Errno::INVAL)?;
        let is_there = link_of(index).is_none_or(|link| self.stack.has_link(link));
        if is_there { Ok(()) } else { Err(Errno::NODEV) }
    }

    fn is_datagram(&self) -> bool {
        matches!(self.role, Role::Datagrams(..))
    }

    fn alike(&self) -> &Alike {
        if let Role::Datagrams(_, options) = &self.role { &options.alike } else { &self.options.alike }
    }

    /// Whether programs of the netstack may send text in their SYNs.
    fn may_open_fast(&self) -> Result<(), Errno> {
        let policy = self.stack.config().map_err(errno)?.tcp.fast_open;
        if policy.allows(FastOpenPolicy::CLIENT) { Ok(()) } else { Err(Errno::OPNOTSUPP) }
    }

    /// Gives it a filter in place of the one that it has; without rules it has none. A connection has no use for one.
    pub(super) fn set_filter(&mut self, mut filter: FilterSetup) -> Result<Answer, Errno> {
        let before = match &self.role {
            Role::Datagrams(_, options) => &options.filter,
            _ => &self.options.filter,
        };
        before.iter().for_each(|before| filter.compare(before));
        let filter = Arc::new(filter);
        let kept = Some(Arc::clone(&filter)).filter(|it| !it.is_empty());
        match &mut self.role {
            Role::Stream(..) => return Err(Errno::ISCONN),
            Role::Fresh(_) => {}
            Role::Listening(it) => it.listener.follow(&filter).map_err(errno)?,
            Role::Datagrams(made, options) => {
                if let Some(made) = made {
                    made.follow(&self.stack.inner.fabric, &filter).map_err(errno)?;
                }
                options.filter = kept;
                return Ok(Answer::Done);
            }
        }
        Arc::make_mut(&mut self.options).filter = kept;
        if let Role::Listening(listening) = &self.role {
            listening.start_next_with(&self.options, listening.next(|next| next.rings));
        }
        Ok(Answer::Done)
    }

    /// Its filter, and what that has counted since there is somebody to ask.
    pub(super) fn filter(&self) -> Option<(Arc<FilterSetup>, FilterCounts)> {
        let (filter, counts) = match &self.role {
            Role::Stream(..) => return None,
            Role::Fresh(_) => (&self.options.filter, None),
            Role::Listening(it) => (&self.options.filter, Some(it.listener.filter_counts())),
            Role::Datagrams(made, options) => {
                (&options.filter, made.as_ref().map(|made| made.filter_counts(&self.stack)))
            }
        };
        Some((filter.clone()?, counts.unwrap_or_default()))
    }

    /// send(2) with MSG_OOB, before it writes.
    pub(super) fn mark_urgent(&self, end: u64) -> Result<Answer, Errno> {
        let stream = self.stream().ok_or(Errno::NOTCONN)?;
        stream.mark_urgent(&self.stack.inner.fabric, end).map_err(errno)?;
        Ok(Answer::Done)
    }

    /// getsockopt(2), at most `len` bytes.
    pub(super) fn get_option(&self, level: i32, name: i32, len: u32) -> Result<Answer, Errno> {
        let len = len as usize;
        let value = self.option(level, name, len.max(size_of::<i32>()))?;
        Ok(Answer::Option { value: cut((level, name), value, len) })
    }

    fn option(&self, level: i32, name: i32, len: usize) -> Result<Vec<u8>, Errno> {
        if self.is_of_other_family(level) {
            return Err(Errno::OPNOTSUPP);
        }
        if [(ip::LEVEL, ip::MTU), (ipv6::LEVEL, ipv6::MTU)].contains(&(level, name)) {
            return Ok(self.mtu()?.to_ne_bytes().to_vec());
        }
        let absent = || absent::get((level, name), self.is_datagram()).map(Ok);
        if let Some(said) = fixed::get(level, name).or_else(absent) {
            return said;
        }
        if (level, name) == (ip::LEVEL, ip::OPTIONS) {
            return Ok(Vec::new());
        }
        if (level, name) == (socket::LEVEL, socket::INCOMING_CPU)
            && let Some(cpu) = self.cpu()
        {
            return Ok(cpu.to_ne_bytes().to_vec());
        }
        let config = self.stack.config().map_err(errno)?;
        let hops = self.usual_hops((level, name), config.hops);
        if let Role::Datagrams(_, options) = &self.role {
            return options.get(level, name, len, self.datagram_queues()?, hops);
        }
        let about = About {
            is_v6: self.family == Family::V6,
            otherwise: match &self.role {
                Role::Listening(listening) => listening.shown(),
                _ => Unconnected::Closed,
            },
            stream: self.stream().map(|stream| Asked::about(&self.stack.inner.fabric, stream, &self.arena)),
            usual: &config.sockets,
            tcp: &config.tcp,
            hops,
        };
        self.options.get(level, name, len, &about)
    }

    /// Whether these options are IPv6's alone: a socket of IPv4 has none of them, while one of IPv6 has those of both.
    fn is_of_other_family(&self, level: i32) -> bool {
        level == ipv6::LEVEL && self.family == Family::V4
    }

    /// What the way to its peer carries (IP_MTU, IPV6_MTU).
    fn mtu(&self) -> Result<i32, Errno> {
        self.way().map(|way| way.mtu.bytes().into()).ok_or(Errno::NOTCONN)
    }

    /// The way to its peer, if it has one.
    fn way(&self) -> Option<Egress> {
        let [local, remote] = match &self.role {
            Role::Datagrams(Some(made), _) => made.names(),
            Role::Stream(stream, _) => {
                let names = stream.names();
                [names.map(|it| it.local), names.map(|it| it.remote)]
            }
            _ => [None; 2],
        };
        let ((local, remote), lane) = (local.zip(remote)?, self.lane()?);
        let ends = (local.ip().to_canonical(), remote.ip().to_canonical());
        let (id, fabric) = (self.stack.id(), &self.stack.inner.fabric);
        fabric.visit(lane, |now, lane| lane.way(now, id, ends)).flatten()
    }

    /// The hops that its packets have where the program says nothing: a connected one is told those of its way, which a router may
    /// have advertised (RFC 4861 §4.2).
    fn usual_hops(&self, name: (i32, i32), of_netstack: HopLimits) -> HopLimits {
        let way = if name == (ipv6::LEVEL, ipv6::UNICAST_HOPS) { self.way() } else { None };
        let advertised = way.filter(|way| way.dst.is_ipv6()).map(|way| way.hops);
        HopLimits { v6: advertised.unwrap_or(of_netstack.v6), ..of_netstack }
    }

    fn lane(&self) -> Option<LaneId> {
        match &self.role {
            Role::Datagrams(Some(made), _) => Some(made.lane()),
            Role::Stream(stream, _) => Some(stream.lane()),
            _ => None,
        }
    }

    /// On which CPU what arrives for it is handled, as far as that is known (SO_INCOMING_CPU).
    fn cpu(&self) -> Option<u32> {
        self.arena.inbox(self.lane()?)?.last_on()
    }

    /// The options that the program keeps in its stream's words; before there is one, those that it begins with.
    pub(super) fn bits(&self) -> u64 {
        let block = self.stream().and_then(|stream| self.arena.mapping().block(stream.number()));
        block.map_or_else(|| self.options.bits(), |block| block.requests.load(Ordering::Relaxed))
    }

    pub(super) fn stream(&self) -> Option<&Stream> {
        match &self.role {
            Role::Stream(stream, _) => Some(stream),
            _ => None,
        }
    }

    /// getsockname(2) and getpeername(2).
    pub(super) fn names(&self) -> [Option<SocketAddr>; 2] {
        let (local, remote) = match &self.role {
            Role::Fresh(bound) => (bound.as_ref().map(|bound| bound.local()), None),
            Role::Listening(listening) => (listening.listener.local_addr().ok(), None),
            Role::Datagrams(socket, _) => socket.as_ref().map_or((None, None), |it| it.names().into()),
            Role::Stream(stream, bound) => {
                let names = stream.names();
                let bound = || bound.as_ref().map(|bound| bound.local());
                (names.map(|names| names.local).or_else(bound), names.map(|names| names.remote))
            }
        };
        [local, remote].map(|name| name.map(|name| shown(self.family, name)))
    }

    /// What a program that has only the descriptor must know.
    pub(super) fn attached(&self, socket: SocketId) -> Answer {
        let (state, place) = match &self.role {
            Role::Fresh(_) => (State::Fresh, None),
            Role::Listening(listening) => (State::Listening, listening.place()),
            Role::Stream(stream, _) => (State::Connected, Some(self.place(stream))),
            Role::Datagrams(made, options) => {
                let kind = if options.kind == DatagramKind::Echo { Kind::Echo } else { Kind::Datagram };
                let place = made.as_ref().map(|it| self.datagram_place(it));
                let state = if place.is_some() { State::Connected } else { State::Fresh };
                return Answer::Attached { socket, family: self.family, kind, state, place };
            }
        };
        Answer::Attached { socket, family: self.family, kind: Kind::Stream, state, place }
    }
}

/// The number of errno(3) for a failure.
pub(super) fn errno(error: io::Error) -> Errno {
    if let Some(number) = Errno::from_io_error(&error) {
        return number;
    }
    match error.kind() {
        io::ErrorKind::NotFound => Errno::NETDOWN,
        io::ErrorKind::NotConnected => Errno::NOTCONN,
        _ => Errno::INVAL,
    }
}
