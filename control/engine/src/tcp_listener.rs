//! A listening socket for programs, like `std::net::TcpListener`.
//!
//! Every lane of the netstack has its own end of the listener, so connections are accepted from whichever
//! lane finished one; what is shared is the accept queue.

use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use firelane_filter::{FilterCounts, FilterSetup};
use firelane_frame::RingArena;
use firelane_lane::{LaneMessage, Listen, Relisten, SocketCommand, StreamOptions};
use firelane_socket::{
    Accepted, AnyEnd, ListenerEnd, ListenerSlot, Ready, SocketError, SocketToken, StreamConfig, listener,
    listener_in,
};
use firelane_units::{FilterRule, IpPrefix, LaneId, LinkId, SocketId};
use rustix::io::Errno;

use crate::calls::Held;
use crate::chance::Chance;
use crate::engine::Inner;
use crate::error::{io_error, lane_failed};
use crate::poller::sealed::Watched;
use crate::registry::{Claim, Registry};
use crate::sleepers::{Seat, Seated, block_on, wait_at};
use crate::socket_filter::{self, Followed};
use crate::stack::{Stack, each_address};
use crate::tcp_stream::TcpStream;

/// The backlog of [`TcpListener::bind`], as in std.
const BACKLOG: usize = 128;
/// How many random ports are tried before a listener on port zero is refused.
const PORT_TRIES: usize = 64;

/// A listening socket. Dropping it closes the listener and what nobody accepted.
///
/// ```
/// use firelane::{Stack, TcpListener, TcpStream};
/// # fn main() -> std::io::Result<()> {
/// # let (left, right) = firelane::wire(firelane::WireConfig::default());
/// # let server = Stack::builder().interface(left).address("10.0.0.1/24")?.build()?;
/// # let client = Stack::builder().interface(right).address("10.0.0.2/24")?.build()?;
/// let listener = TcpListener::bind(&server, "10.0.0.1:0")?;
/// let _streams = [TcpStream::connect(&client, listener.local_addr()?)?, TcpStream::connect(&client, listener.local_addr()?)?];
/// for stream in listener.incoming().take(2) {
///     assert_eq!(stream?.peer_addr()?.ip().to_string(), "10.0.0.2");
/// }
/// # Ok(())
/// # }
/// ```
pub struct TcpListener {
    engine: Arc<Inner>,
    reserved: Reserved,
    socket: SocketId,
    end: ListenerEnd,
    token: SocketToken,
    seat: Arc<Seat>,
    nonblocking: AtomicBool,
    followed: Followed,
}

/// How a listener is set up.
#[derive(Clone, Copy, Debug)]
pub struct ListenConfig {
    /// The most finished connections that wait to be accepted.
    pub backlog: usize,
    /// The ring sizes of its connections.
    pub rings: StreamConfig,
    /// Whether `[::]` leaves IPv4 to others.
    pub v6_only: bool,
    /// Whether its connections' peers are asked whether they live, as often as the netstack says (SO_KEEPALIVE).
    pub keepalive: bool,
    /// How many connections may wait in each lane that began with the text of their SYNs and whose handshakes are not over
    /// (TCP_FASTOPEN); zero takes no such text. The netstack must serve Fast Open, too
    /// ([`firelane_tcp::FastOpenPolicy`]), and the program must bear that the same text comes twice (RFC 7413 §2.1).
    pub fast_open: u32,
}

impl Default for ListenConfig {
    fn default() -> Self {
        Self {
            backlog: BACKLOG,
            rings: StreamConfig::default(),
            v6_only: false,
            keepalive: false,
            fast_open: 0,
        }
    }
}

impl TcpListener {
    /// Listens on the first of `addr`'s addresses that can be had, with the netstack's buffers; port zero draws a free one.
    ///
    /// # Errors
    /// As `std::net::TcpListener::bind`: the address is in use or not one of the netstack's.
    pub fn bind(stack: &Stack, addr: impl ToSocketAddrs) -> io::Result<Self> {
        let rings = stack.config()?.sockets.stream;
        each_address(addr, |addr| {
            Self::bind_with(stack, addr, ListenConfig { rings, ..ListenConfig::default() })
        })
    }

    /// Listens with a configuration of the caller's; the netstack bounds the backlog.
    ///
    /// # Errors
    /// As [`TcpListener::bind`].
    pub fn bind_with(stack: &Stack, addr: SocketAddr, config: ListenConfig) -> io::Result<Self> {
        Self::listen(
            Reserved::take(stack, Claim::alone(addr, config.v6_only))?,
            config,
            StreamOptions::default(),
        )
    }

    /// Listens on an address that was reserved before; its connections begin with `options`.
    pub(crate) fn listen(
        reserved: Reserved,
        config: ListenConfig,
        options: StreamOptions,
    ) -> io::Result<Self> {
        let defaults = reserved.stack.sockets()?;
        let options = StreamOptions {
            tuning: defaults.tuning(config.rings),
            unsent_limit: defaults.unsent_limit(),
            keepalive_default: config.keepalive,
            fast_open_queue: config.fast_open,
            ..options
        };
        Self::listen_by(reserved, config, options, None, listener)
    }

    /// The same for a program in another process: its connections have their rings in `arena`, and
    /// [`TcpListener::take_any`] gives them. A filter is there before the first of them.
    pub(crate) fn listen_in(
        arena: &Arc<RingArena>,
        reserved: Reserved,
        config: ListenConfig,
        options: StreamOptions,
        filter: Option<&Arc<FilterSetup>>,
    ) -> io::Result<Self> {
        let make = |backlog| listener_in(Arc::clone(arena), backlog);
        Self::listen_by(reserved, config, options, filter, make)
    }

    fn listen_by(
        reserved: Reserved,
        config: ListenConfig,
        options: StreamOptions,
        filter: Option<&Arc<FilterSetup>>,
        make: impl FnOnce(usize) -> (ListenerEnd, ListenerSlot),
    ) -> io::Result<Self> {
        let Reserved { stack, claim, .. } = &reserved;
        let engine = Arc::clone(&stack.inner);
        let socket = engine.mint_socket();
        let (end, slot) = make(stack.config()?.sockets.backlog(config.backlog));
        let seat = Arc::new(Seat::default());
        let token = engine.fabric.sleepers.sit(Arc::clone(&seat) as Arc<dyn Seated>);
        end.words().set_token(token);
        let Claim { addr: local, v6_only, sharer, .. } = *claim;
        let listen =
            Listen { socket, local, v6_only, shares: sharer.is_some(), slot, rings: config.rings, options };
        let nonblocking = AtomicBool::new(false);
        let followed = Followed::default();
        let listener = Self { engine, reserved, socket, end, token, seat, nonblocking, followed };
        // Lanes that join the netstack meanwhile are told of all or nothing.
        let lanes = listener.lanes()?;
        if let Some(filter) = filter {
            let place = (listener.reserved.stack.id, socket);
            socket_filter::tell(&listener.engine, place, &lanes.0, filter)?;
        }
        let listens = || SocketCommand::Listen(Box::new(listen.clone()));
        listener.engine.fabric.tell_lanes(listener.reserved.stack.id, &lanes.0, listens)?;
        drop(lanes);
        Ok(listener)
    }

    /// The connection that has waited longest; waits for one.
    ///
    /// # Errors
    /// `WouldBlock` in non-blocking mode if there is none, `ConnectionAborted` if the netstack is gone, `NetworkDown` if all its
    /// lanes are out of service, `Deadlock` in a waker if there is none.
    pub fn accept(&self) -> io::Result<(TcpStream, SocketAddr)> {
        if let Some(accepted) = self.take() {
            return accepted;
        }
        if self.nonblocking.load(Ordering::Relaxed) {
            return self.failure().unwrap_or_else(|| Err(Errno::AGAIN.into()));
        }
        block_on(None, |context| self.poll_accept(context)).unwrap_or_else(|vain| {
            self.seat.give_up(Ready::READABLE);
            Err(vain.into())
        })
    }

    /// As in std: one connection after another, without end.
    pub fn incoming(&self) -> impl Iterator<Item = io::Result<TcpStream>> + '_ {
        std::iter::repeat_with(|| self.accept().map(|(stream, _)| stream))
    }

    /// As in std: what is wrong with the listener, once. What becomes of a connection is told by that, so there is nothing.
    ///
    /// # Errors
    /// Never; as in std.
    pub fn take_error(&self) -> io::Result<Option<io::Error>> {
        Ok(None)
    }

    /// As in std: that with which its connections begin, which is the netstack's.
    ///
    /// # Errors
    /// The netstack is gone.
    pub fn ttl(&self) -> io::Result<u32> {
        let its = self.reserved.stack.config()?.hops;
        Ok(if self.reserved.local().is_ipv4() { its.v4 } else { its.v6 }.into())
    }

    /// The connection that has waited longest, without blocking the thread.
    ///
    /// # Errors
    /// `ConnectionAborted` if the netstack is gone, `NetworkDown` if all its lanes are out of service.
    pub async fn accept_async(&self) -> io::Result<(TcpStream, SocketAddr)> {
        wait_at(&self.seat, Ready::READABLE, |context| self.poll_accept(context)).await
    }

    /// The connection that has waited longest, if there is one.
    ///
    /// # Errors
    /// As [`TcpListener::accept_async`].
    pub fn poll_accept(&self, context: &mut Context<'_>) -> Poll<io::Result<(TcpStream, SocketAddr)>> {
        if let Some(accepted) = self.take() {
            return Poll::Ready(accepted);
        }
        self.seat.leave(Ready::READABLE, context.waker());
        self.end.words().wait_for(Ready::READABLE);
        self.take().or_else(|| self.failure()).map_or(Poll::Pending, Poll::Ready)
    }

    fn failure<T>(&self) -> Option<io::Result<T>> {
        self.has_no_lane().then(|| Err(lane_failed()))
    }

    /// Whether all lanes of its netstack are out of service, so that no connection comes any more. Not for who is inside a lane.
    pub(crate) fn has_no_lane(&self) -> bool {
        let fabric = &self.engine.fabric;
        let has_failed = |lane| fabric.has_failed(lane);
        // As a rule none has, and nobody is held up.
        fabric.lane_ids().any(has_failed)
            && self.lanes().is_ok_and(|(lanes, _held)| lanes.into_iter().all(has_failed))
    }

    /// The connection that has waited longest, if there is one; or that none comes any more.
    fn take(&self) -> Option<io::Result<(TcpStream, SocketAddr)>> {
        let Some(accepted) = self.end.accept() else {
            return self.is_over().then(|| Err(io_error(SocketError::Aborted)));
        };
        Some(Ok((TcpStream::new(Arc::clone(&self.engine), accepted.stream), accepted.names.remote)))
    }

    /// The connection that has waited longest, wherever its rings are.
    pub(crate) fn take_any(&self) -> Option<Accepted<AnyEnd>> {
        self.end.accept_any()
    }

    /// Whether its netstack is gone, so that no connection comes any more.
    pub(crate) fn is_over(&self) -> bool {
        self.end.is_over()
    }

    /// How many connections wait, and how many may.
    pub(crate) fn waiting(&self) -> (usize, usize) {
        (self.end.waiting(), self.end.backlog())
    }

    /// Another backlog than it was made with, which the netstack bounds as it did that. One caller at a time.
    pub(crate) fn set_backlog(&self, wanted: usize) -> io::Result<()> {
        self.end.set_backlog(self.reserved.stack.config()?.sockets.backlog(wanted));
        Ok(())
    }

    /// Whether [`TcpListener::accept`] returns `WouldBlock` instead of waiting.
    ///
    /// # Errors
    /// Never; as in std.
    pub fn set_nonblocking(&self, nonblocking: bool) -> io::Result<()> {
        self.nonblocking.store(nonblocking, Ordering::Relaxed);
        Ok(())
    }

    /// Gives it a filter of its own, or other rules, or none: whoever begins a connection with it is asked about from the next one
    /// on. Connections that there are, and those that wait to be accepted, stay.
    ///
    /// # Errors
    /// A rule is about what goes out, keeps or logs something; all lanes have failed.
    pub fn set_filter(
        &self,
        rules: Vec<FilterRule<LinkId>>,
        pools: Vec<(u32, Vec<IpPrefix>)>,
    ) -> io::Result<()> {
        self.followed.change(socket_filter::checked(rules, pools)?, |filter| self.follow(filter))
    }

    /// The same with rules that were looked at before.
    pub(crate) fn follow(&self, filter: &Arc<FilterSetup>) -> io::Result<()> {
        let lanes = self.lanes()?;
        socket_filter::tell(&self.engine, (self.reserved.stack.id, self.socket), &lanes.0, filter)
    }

    /// With what its next connections are to begin.
    pub(crate) fn start_next_with(&self, started: &Relisten) -> io::Result<()> {
        self.tell_lanes(|| SocketCommand::Relisten(self.socket, Box::new(*started)))
    }

    fn tell_lanes(&self, command: impl Fn() -> SocketCommand) -> io::Result<()> {
        let lanes = self.lanes()?;
        self.engine.fabric.tell_lanes(self.reserved.stack.id, &lanes.0, command)
    }

    /// The lanes of its netstack, which stay the same as long as they are held.
    fn lanes(&self) -> io::Result<(Vec<LaneId>, Held<'_, Registry>)> {
        let mut registry = self.engine.registry();
        Ok((registry.netstack_mut(self.reserved.stack.id)?.all_lanes(), registry))
    }

    /// What its filter has counted, summed over its lanes; of rules since they were given.
    pub fn filter_counts(&self) -> FilterCounts {
        let Ok(lanes) = self.lanes().map(|(lanes, _held)| lanes) else { return FilterCounts::default() };
        socket_filter::counts(&self.engine, (self.reserved.stack.id, self.socket), &lanes)
    }

    /// What it listens on.
    ///
    /// # Errors
    /// Never; as in std.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        Ok(self.reserved.local())
    }
}

impl Drop for TcpListener {
    fn drop(&mut self) {
        // A netstack that is gone has no listeners.
        if let Ok((lanes, _registry)) = self.lanes() {
            for lane in lanes {
                let message =
                    LaneMessage::Socket(self.reserved.stack.id, SocketCommand::Unlisten(self.socket));
                // A lane that has failed listens to nobody.
                let _ = self.engine.fabric.enter_surely(lane, message);
            }
        }
        self.engine.fabric.sleepers.stand_up(self.token);
    }
}

impl Stack {
    /// Whether a listener could begin at `addr` now.
    ///
    /// # Errors
    /// EADDRINUSE: another one has it; EADDRNOTAVAIL: the netstack has not.
    pub fn check_listener(&self, addr: SocketAddr) -> io::Result<()> {
        let wanted = Claim::alone(addr, false);
        let mut registry = self.inner.registry_of_now();
        let netstack = registry.netstack_mut(self.id)?;
        match (netstack.allows(&wanted), netstack.is_taken(&wanted)) {
            (false, _) => Err(Errno::ADDRNOTAVAIL.into()),
            (true, true) => Err(Errno::ADDRINUSE.into()),
            (true, false) => Ok(()),
        }
    }
}

/// An address of a netstack that a socket has, until this is dropped.
#[derive(Debug)]
pub(crate) struct Reserved {
    stack: Stack,
    claim: Claim,
}

impl Reserved {
    /// Reserves an address; port zero draws a free one.
    pub(crate) fn take(stack: &Stack, wanted: Claim) -> io::Result<Self> {
        let addr = wanted.addr;
        let mut registry = stack.inner.registry_of_now();
        let netstack = registry.netstack_mut(stack.id)?;
        if !netstack.allows(&wanted) {
            return Err(Errno::ADDRNOTAVAIL.into());
        }
        let claim = if addr.port() == 0 {
            let (chance, ports) = (&stack.inner.fabric.chance, &netstack.config.tcp_ports);
            let draw = || -> io::Result<Claim> {
                // Nobody shares a port that he has not asked for.
                Ok(Claim::alone(SocketAddr::new(addr.ip(), random_port(chance, ports)?), wanted.v6_only))
            };
            let mut tries = (0..PORT_TRIES).map(|_| draw());
            let free = tries.find(|it| !matches!(it, Ok(it) if netstack.is_taken(it)));
            let Claim { sharer, reuses, link, .. } = wanted;
            Claim { sharer, reuses, link, ..free.ok_or(Errno::ADDRINUSE)?? }
        } else {
            wanted
        };
        if netstack.is_taken(&claim) {
            return Err(Errno::ADDRINUSE.into());
        }
        netstack.listeners.push(claim);
        Ok(Self { stack: stack.clone(), claim })
    }

    /// An address without a port, which is nobody's alone: whoever connects from it draws one.
    pub(crate) fn address(stack: &Stack, claim: Claim) -> io::Result<Self> {
        let mut registry = stack.inner.registry_of_now();
        let netstack = registry.netstack_mut(stack.id)?;
        if !netstack.allows(&claim) {
            return Err(Errno::ADDRNOTAVAIL.into());
        }
        Ok(Self { stack: stack.clone(), claim })
    }

    /// Connections are to come to it from now on, by this link alone if there is one.
    ///
    /// # Errors
    /// EADDRINUSE: they come to somebody else who has the address, too.
    pub(crate) fn listens(&mut self, link: Option<LinkId>) -> io::Result<()> {
        let mut registry = self.stack.inner.registry_of_now();
        let netstack = registry.netstack_mut(self.stack.id)?;
        let wanted = Claim { listens: true, link, ..self.claim };
        let own = netstack.listeners.iter().position(|claim| *claim == self.claim);
        own.map(|place| netstack.listeners.swap_remove(place));
        let is_taken = netstack.is_taken(&wanted);
        self.claim = if is_taken { self.claim } else { wanted };
        netstack.listeners.push(self.claim);
        if is_taken { Err(Errno::ADDRINUSE.into()) } else { Ok(()) }
    }

    /// What was asked for.
    pub(crate) fn claim(&self) -> Claim {
        self.claim
    }

    /// The address, its port included.
    pub(crate) fn local(&self) -> SocketAddr {
        self.claim.addr
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        // A netstack that is gone has no addresses left.
        if let Ok(netstack) = self.stack.inner.registry().netstack_mut(self.stack.id) {
            let place = netstack.listeners.iter().position(|claim| *claim == self.claim);
            place.map(|place| netstack.listeners.swap_remove(place));
        }
    }
}

/// A port of the range that the netstack draws local ports from.
pub(crate) fn random_port(chance: &Chance, ports: &RangeInclusive<u16>) -> io::Result<u16> {
    let mut bytes = [0; 4];
    chance.fill(&mut bytes)?;
    let count = u32::from(ports.end().saturating_sub(*ports.start())) + 1;
    Ok(ports.start() + (u32::from_le_bytes(bytes) % count) as u16)
}

#[allow(private_interfaces)]
impl Watched for TcpListener {
    fn seat(&self) -> &Seat {
        &self.seat
    }

    fn stand(&self, ready: Ready) {
        self.end.words().watch(ready);
    }
}
