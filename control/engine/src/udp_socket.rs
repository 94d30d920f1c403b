//! A UDP socket for programs, like `std::net::UdpSocket`.
//!
//! The socket lives in the lane that its local port steers to; datagrams wait in bounded rings on both sides. What goes
//! beside their payload, and many at once, is `udp_messages.rs`'s; what does not block `udp_tasks.rs`'s; options are `udp_options.rs`'s.

use std::io::{self, ErrorKind};
use std::net::{SocketAddr, ToSocketAddrs};
use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use firelane_frame::Envelope;
use firelane_lane::{Bind, ConnectDatagrams, DatagramKind, LaneMessage, Sharing, SocketCommand};
use firelane_socket::{
    Datagram, DatagramEnd, DatagramShared, Flags, Ready, RecvDatagramEnd, SendDatagramEnd, SendDatagramError,
    SocketError, SocketToken, datagram,
};
use firelane_units::{LaneId, LinkId, Port, SocketId};
use rustix::io::Errno;

use crate::calls::{self, Held};
use crate::chance::Chance;
use crate::engine::Inner;
use crate::error::{io_error, lane_failed};
use crate::fabric::EnterError;
use crate::poller::sealed::Watched;
use crate::sleepers::{Seat, Seated, Vain, block_on};
use crate::socket_filter::Followed;
use crate::stack::{Stack, each_address};
use crate::tcp_listener::random_port;
use crate::tcp_stream::Limit;
use crate::udp_groups::{Groups, check_link};
use crate::udp_options::Kept;

/// How many random ports are tried before a socket on port zero is refused.
const PORT_TRIES: usize = 64;

/// A UDP socket. Dropping it closes it.
///
/// ```
/// use firelane::{Stack, UdpSocket};
/// # fn main() -> std::io::Result<()> {
/// # let (left, right) = firelane::wire(firelane::WireConfig::default());
/// # let server = Stack::builder().interface(left).address("10.0.0.1/24")?.build()?;
/// # let client = Stack::builder().interface(right).address("10.0.0.2/24")?.build()?;
/// let answering = UdpSocket::bind(&server, "10.0.0.1:53")?;
/// let asking = UdpSocket::bind(&client, "10.0.0.2:0")?;
/// asking.send_to(b"question", "10.0.0.1:53")?;
/// let mut room = [0; 1500];
/// let (len, peer) = answering.recv_from(&mut room)?;
/// assert_eq!((&room[..len], peer), (&b"question"[..], asking.local_addr()?));
/// # Ok(())
/// # }
/// ```
pub struct UdpSocket {
    pub(crate) engine: Arc<Inner>,
    pub(crate) socket: SocketId,
    pub(crate) shared: Arc<DatagramShared>,
    pub(crate) groups: Mutex<Groups>,
    send: Mutex<SendDatagramEnd>,
    recv: Mutex<RecvDatagramEnd>,
    names: Mutex<Ends>,
    /// The only link that it speaks over.
    link: Option<LinkId>,
    token: SocketToken,
    pub(crate) seat: Arc<Seat>,
    nonblocking: AtomicBool,
    pub(crate) followed: Followed,
    pub(crate) read_limit: Limit,
    pub(crate) write_limit: Limit,
    pub(crate) kept: Kept,
}

/// The addresses that a socket has since it was connected.
#[derive(Clone, Copy, Debug, Default)]
struct Ends {
    local: Option<SocketAddr>,
    remote: Option<SocketAddr>,
}

impl UdpSocket {
    /// Binds to the first of `addr`'s addresses that can be had; port zero draws a free one.
    ///
    /// # Errors
    /// The address is in use or not one of the netstack's.
    pub fn bind(stack: &Stack, addr: impl ToSocketAddrs) -> io::Result<Self> {
        each_address(addr, |addr| Self::open(stack, addr, None, None))
    }

    /// Binds to `addr` and speaks over `link` alone (SO_BINDTODEVICE, Solaris' IP_BOUND_IF). Bound to no address it
    /// sends to everybody without a source (IP_UNSPEC_SRC), which is how a station begins that has none.
    ///
    /// # Errors
    /// As [`UdpSocket::bind`]; the netstack does not have the link.
    pub fn bind_on(stack: &Stack, addr: SocketAddr, link: LinkId) -> io::Result<Self> {
        Self::open(stack, addr, None, Some(link))
    }

    /// Binds to `addr` and exchanges datagrams with `remote` alone.
    ///
    /// # Errors
    /// As [`UdpSocket::bind`].
    pub fn connected(stack: &Stack, addr: SocketAddr, remote: SocketAddr) -> io::Result<Self> {
        Self::open(stack, addr, Some(remote), None)
    }

    fn open(
        stack: &Stack,
        addr: SocketAddr,
        remote: Option<SocketAddr>,
        link: Option<LinkId>,
    ) -> io::Result<Self> {
        let mut registry = stack.inner.registry_of_now();
        let netstack = registry.netstack_mut(stack.id)?;
        // A group's address is anybody's: what is sent to the group arrives there.
        if !addr.ip().is_multicast() && !netstack.owns(addr.ip()) {
            return Err(Errno::ADDRNOTAVAIL.into());
        }
        let ports = netstack.config.udp_ports.clone();
        if let Some(link) = link {
            check_link(&registry, stack.id, link)?;
        }
        drop(registry);
        if addr.port() != 0 {
            return Self::open_on(stack, addr, remote, (DatagramKind::Udp, link));
        }
        at_drawn_port(&stack.inner.fabric.chance, &ports, |port| {
            Self::open_on(stack, SocketAddr::new(addr.ip(), port), remote, (DatagramKind::Udp, link))
        })
    }

    pub(crate) fn open_on(
        stack: &Stack,
        local: SocketAddr,
        remote: Option<SocketAddr>,
        (kind, link): (DatagramKind, Option<LinkId>),
    ) -> io::Result<Self> {
        let engine = Arc::clone(&stack.inner);
        let sockets = &stack.config()?.sockets;
        let (lane, _placing) = engine.lane_of_datagrams(stack.id, kind, Port(local.port()))?;
        let (DatagramEnd { send, recv }, slot) =
            datagram(sockets.datagrams_out, sockets.datagrams_in, lane, stack.id);
        let shared = Arc::clone(send.shared());
        let seat = Arc::new(Seat::default());
        let token = engine.fabric.sleepers.sit(Arc::clone(&seat) as Arc<dyn Seated>);
        shared.words().set_token(token);
        let socket = engine.mint_socket();
        let opened = Self {
            engine,
            socket,
            shared,
            groups: Mutex::default(),
            send: Mutex::new(send),
            recv: Mutex::new(recv),
            names: Mutex::new(Ends { local: None, remote }),
            link,
            token,
            seat,
            nonblocking: AtomicBool::new(false),
            followed: Followed::default(),
            read_limit: Limit::default(),
            write_limit: Limit::default(),
            kept: Kept::default(),
        };
        let sharing = Sharing::default();
        let bind = Bind { socket, local, v6_only: false, sharing, remote, kind, link, slot };
        opened.command(SocketCommand::Bind(Box::new(bind)))?;
        loop {
            if let Some(outcome) = opened.bound().or_else(|| opened.end(Self::bound)) {
                return outcome.map(|()| opened);
            }
            opened.engine.fabric.give_way(opened.shared.lane());
        }
    }

    fn bound(&self) -> Option<io::Result<()>> {
        let words = self.shared.words();
        if words.flags().contains(Flags::CONNECTED) {
            return Some(Ok(()));
        }
        words.take_error().map(|error| Err(io_error(error)))
    }

    /// Exchanges datagrams with `addr` alone from here on, which may be called again.
    ///
    /// # Errors
    /// There is no way to `addr`, or another socket has the same two ends.
    pub fn connect(&self, addr: impl ToSocketAddrs) -> io::Result<()> {
        each_address(addr, |addr| self.reconnect(Some(addr)))
    }

    /// Exchanges datagrams with everybody again (connect(2) to `AF_UNSPEC`).
    ///
    /// # Errors
    /// Another socket is bound to the same.
    pub fn disconnect(&self) -> io::Result<()> {
        self.reconnect(None)
    }

    fn reconnect(&self, remote: Option<SocketAddr>) -> io::Result<()> {
        let outcome = Arc::new(OnceLock::new());
        let (socket, link) = (self.socket, self.link);
        let connect = ConnectDatagrams { socket, remote, link, outcome: Arc::clone(&outcome) };
        let mut names = self.names();
        self.command(SocketCommand::ConnectDatagrams(Box::new(connect)))?;
        let local = loop {
            if let Some(outcome) = outcome.get() {
                break outcome.map_err(io_error)?;
            }
            // A lane that has dropped its squeue will say nothing.
            if Arc::strong_count(&outcome) == 1 && outcome.get().is_none() {
                return Err(lane_failed());
            }
            // One that has failed with it inside says nothing, either.
            if let Some(failed) = self.failure() {
                return failed;
            }
            self.engine.fabric.give_way(self.shared.lane());
        };
        *names = Ends { local: Some(local), remote };
        Ok(())
    }

    fn names(&self) -> Held<'_, Ends> {
        calls::hold(&self.names)
    }

    /// The peer of a connected socket.
    ///
    /// # Errors
    /// `NotConnected` without one.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        self.names().remote.ok_or_else(|| Errno::NOTCONN.into())
    }

    /// Sends a datagram to `addr`.
    ///
    /// # Errors
    /// It is too long, there is no way to `addr` or none without SO_BROADCAST, or the queue is full in non-blocking mode. As in Linux a
    /// socket without a peer hears of nothing else; one that has one hears also what came back of an earlier datagram. While others
    /// keep the lane busy a datagram without a way is counted, and nobody told.
    pub fn send_to(&self, payload: &[u8], addr: impl ToSocketAddrs) -> io::Result<usize> {
        let addr = addr.to_socket_addrs()?.next().ok_or(io::ErrorKind::InvalidInput)?;
        self.send_sealed(&Envelope::to(addr), payload)
    }

    pub(crate) fn send_sealed(&self, envelope: &Envelope, payload: &[u8]) -> io::Result<usize> {
        self.block_for(Ready::WRITABLE, self.write_limit.get(), |socket| socket.send_now(envelope, payload))
    }

    /// Sends a datagram to the peer of a connected socket.
    ///
    /// # Errors
    /// As [`UdpSocket::send_to`]; `NotConnected` without a peer.
    pub fn send(&self, payload: &[u8]) -> io::Result<usize> {
        self.send_to(payload, self.peer_addr()?)
    }

    /// Receives a datagram; what does not fit into `to` is lost.
    ///
    /// # Errors
    /// The peer of a connected socket refused an earlier datagram, or nothing came within the time-out.
    pub fn recv_from(&self, to: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        self.recv_sealed(|recv| recv.recv(to)).map(|got| (got.copied, got.envelope.peer))
    }

    /// Receives a datagram of a connected socket's peer.
    ///
    /// # Errors
    /// As [`UdpSocket::recv_from`].
    pub fn recv(&self, to: &mut [u8]) -> io::Result<usize> {
        self.recv_from(to).map(|(count, _)| count)
    }

    /// As [`UdpSocket::recv`], and leaves the datagram where it is.
    ///
    /// # Errors
    /// As [`UdpSocket::recv_from`].
    pub fn peek(&self, to: &mut [u8]) -> io::Result<usize> {
        self.peek_from(to).map(|(count, _)| count)
    }

    /// As [`UdpSocket::recv_from`], and leaves the datagram where it is.
    ///
    /// # Errors
    /// As [`UdpSocket::recv_from`].
    pub fn peek_from(&self, to: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        self.recv_sealed(|recv| Ok(recv.peek(to))).map(|got| (got.copied, got.envelope.peer))
    }

    /// Waits until `take` has found something at the end that receives.
    pub(crate) fn recv_sealed(
        &self,
        mut take: impl FnMut(&mut RecvDatagramEnd) -> Result<Option<Datagram>, SocketError>,
    ) -> io::Result<Datagram> {
        self.block_for(Ready::READABLE, self.read_limit.get(), |socket| socket.recv_now(&mut take))
    }

    pub(crate) fn send_now(&self, envelope: &Envelope, payload: &[u8]) -> Option<io::Result<usize>> {
        self.forget_others_errors();
        let mut is_first = false;
        let queued = self.with_sender(|send| {
            is_first = !send.has_queued();
            sent(send.send_with(envelope, payload), payload.len())
        });
        match queued {
            // Behind others that wait an error may be about those.
            Some(Ok(len)) if is_first => Some(self.own_error().map_or(Ok(len), Err)),
            queued => queued,
        }
    }

    /// An error of an earlier datagram says nothing to a socket that has no peer: it would be taken for one of the next. The end of the
    /// socket stays.
    pub(crate) fn forget_others_errors(&self) {
        let words = self.shared.words();
        if words.error().is_some() && self.is_of_nobody() {
            let _ = words.take_error();
        }
    }

    /// Whether errors are told by the very call or not at all.
    fn is_of_nobody(&self) -> bool {
        self.names().remote.is_none() && !self.shared.words().flags().contains(Flags::CLOSED)
    }

    /// Why the lane could not send what this call gave it, if it has seen that at once, as a rule in this very thread. What a peer says of
    /// it is the next call's, as in Linux.
    fn own_error(&self) -> Option<io::Error> {
        let words = self.shared.words();
        words.error().filter(|_| self.is_of_nobody())?;
        words.take_error().map(io_error)
    }

    /// Does something with the end that sends, and tells the lane of what was queued.
    pub(crate) fn with_sender<T>(&self, act: impl FnOnce(&mut SendDatagramEnd) -> T) -> T {
        let mut send = self.sender();
        let result = act(&mut send);
        let owes_kick = send.has_queued() && send.kick();
        drop(send);
        if owes_kick {
            self.kick();
        }
        result
    }

    pub(crate) fn recv_now(
        &self,
        take: &mut impl FnMut(&mut RecvDatagramEnd) -> Result<Option<Datagram>, SocketError>,
    ) -> Option<io::Result<Datagram>> {
        self.forget_others_errors();
        take(&mut self.receiver()).map_err(io_error).transpose()
    }

    pub(crate) fn sender(&self) -> MutexGuard<'_, SendDatagramEnd> {
        self.send.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn receiver(&self) -> MutexGuard<'_, RecvDatagramEnd> {
        self.recv.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn kick(&self) {
        let message = || LaneMessage::KickDatagrams { netstack: self.shared.netstack(), socket: self.socket };
        let fabric = &self.engine.fabric;
        if fabric.enter(self.shared.lane(), message()) == Err(EnterError::Full) {
            // A lane that has failed needs no kick.
            let _ = fabric.enter_surely(self.shared.lane(), message());
        }
    }

    pub(crate) fn poll_for<T>(
        &self,
        ready: Ready,
        context: &mut Context<'_>,
        mut check: impl FnMut(&Self) -> Option<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if let Some(result) = check(self) {
            return Poll::Ready(result);
        }
        self.seat.leave(ready, context.waker());
        self.shared.words().wait_for(ready);
        check(self).or_else(|| self.end(check)).map_or(Poll::Pending, Poll::Ready)
    }

    /// Why nothing more happens at it, if that is so: its lane is out of service, or its netstack is gone.
    fn failure<T>(&self) -> Option<io::Result<T>> {
        let is_over = || self.shared.words().flags().contains(Flags::CLOSED);
        let aborted = || is_over().then(|| Err(io_error(SocketError::Aborted)));
        self.engine.fabric.failure(self.shared.lane()).or_else(aborted)
    }

    /// The same, behind what the lane said last: it may have done so since `check` found nothing.
    pub(crate) fn end<T>(
        &self,
        mut check: impl FnMut(&Self) -> Option<io::Result<T>>,
    ) -> Option<io::Result<T>> {
        let failure = self.failure()?;
        Some(check(self).unwrap_or(failure))
    }

    pub(crate) fn block_for<T>(
        &self,
        ready: Ready,
        limit: Option<Duration>,
        mut check: impl FnMut(&Self) -> Option<io::Result<T>>,
    ) -> io::Result<T> {
        if let Some(result) = check(self) {
            return result;
        }
        if self.nonblocking.load(Ordering::Relaxed) {
            return self.end(check).unwrap_or_else(|| Err(Errno::AGAIN.into()));
        }
        if self.engine.fabric.look(self.shared.lane())
            && let Some(result) = check(self)
        {
            return result;
        }
        let result = block_on(limit, |context| self.poll_for(ready, context, &mut check));
        result.unwrap_or_else(|vain| {
            self.seat.give_up(ready);
            Err(if vain == Vain::TimedOut { Errno::AGAIN.into() } else { vain.into() })
        })
    }

    pub(crate) fn command(&self, command: SocketCommand) -> io::Result<()> {
        let message = LaneMessage::Socket(self.shared.netstack(), command);
        self.engine.fabric.enter_surely(self.shared.lane(), message).map_err(|_| lane_failed())
    }

    /// A command that is in force for what comes after this has returned.
    pub(crate) fn change(&self, command: SocketCommand) -> io::Result<()> {
        let change = LaneMessage::Socket(self.shared.netstack(), command);
        self.engine.fabric.change(self.shared.lane(), change).map_err(|_| lane_failed())
    }

    /// What it is bound to, also if its lane or its netstack is gone by now.
    ///
    /// # Errors
    /// Never; as in std.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        let local = self.names().local.or_else(|| self.shared.local());
        local.ok_or_else(|| Errno::NOTCONN.into())
    }

    /// Whether calls return `WouldBlock` instead of waiting.
    ///
    /// # Errors
    /// Never; as in std.
    pub fn set_nonblocking(&self, nonblocking: bool) -> io::Result<()> {
        self.nonblocking.store(nonblocking, Ordering::Relaxed);
        Ok(())
    }
}

/// What a call that sends answers; `None` has to wait.
pub(crate) fn sent(result: Result<(), SendDatagramError>, len: usize) -> Option<io::Result<usize>> {
    Some(match result {
        Ok(()) => Ok(len),
        Err(SendDatagramError::WouldBlock) => return None,
        Err(SendDatagramError::TooLong) => Err(Errno::MSGSIZE.into()),
        Err(SendDatagramError::TooMany) => Err(Errno::INVAL.into()),
        Err(SendDatagramError::Failed(error)) => Err(io_error(error)),
    })
}

/// Binds to a port that is drawn, again as long as it is another socket's or in a lane that has failed.
pub(crate) fn at_drawn_port<T>(
    chance: &Chance,
    ports: &RangeInclusive<u16>,
    mut bind: impl FnMut(u16) -> io::Result<T>,
) -> io::Result<T> {
    let mut failed = Errno::ADDRINUSE.into();
    for _ in 0..PORT_TRIES {
        match bind(random_port(chance, ports)?) {
            Err(error) if matches!(error.kind(), ErrorKind::AddrInUse | ErrorKind::NetworkDown) => {
                failed = error
            }
            done => return done,
        }
    }
    Err(failed)
}

impl Drop for UdpSocket {
    fn drop(&mut self) {
        self.leave_all();
        // A lane that has failed has no sockets left to close.
        let _ = self.command(SocketCommand::CloseDatagrams(self.socket));
        self.engine.fabric.sleepers.stand_up(self.token);
    }
}

#[allow(private_interfaces)]
impl Watched for UdpSocket {
    fn seat(&self) -> &Seat {
        &self.seat
    }

    fn home(&self) -> Option<(&Arc<Inner>, LaneId)> {
        Some((&self.engine, self.shared.lane()))
    }

    fn stand(&self, ready: Ready) {
        self.shared.words().watch(ready);
    }
}
