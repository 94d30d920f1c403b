//! A TCP connection for programs: blocking like `std::net::TcpStream`, and asynchronous for tokio.
//!
//! Reads and writes touch the connection's rings at once. A write enters the lane inline when nobody is
//! inside, so its segments leave in the caller's thread; otherwise the lane finds them. Options are `options.rs`'s, readiness and what
//! is looked at `readiness.rs`', the halves that two tasks own `halves.rs`'.

use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::mem;
use std::net::{Shutdown, SocketAddr, ToSocketAddrs};
use std::pin::Pin;
use std::sync::atomic::{AtomicU8, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use firelane_lane::{Connect, LaneMessage, SocketCommand, StreamInfo, StreamOption, StreamOptions};
use firelane_socket::{
    ConnRef, Flags, Nudge, ReadError, Ready, RecvEnd, SendEnd, SocketError, StreamConfig, StreamEnd,
    StreamRef, UrgentError, UrgentMode, WriteError, stream,
};
use firelane_units::LaneId;
use rustix::io::Errno;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::task::coop::poll_proceed;

use crate::calls::Stay;
use crate::engine::Inner;
use crate::error::{io_error, lane_failed};
use crate::fabric::EnterError;
use crate::netstack_config::NetstackConfig;
use crate::poller::sealed::Watched;
use crate::sleepers::{Seat, Seated, Vain, block_on, look_on, wait_at};
use crate::stack::{Stack, each_address};

mod halves;
mod options;
mod readiness;

pub use halves::{OwnedReadHalf, OwnedWriteHalf, ReuniteError};
pub(crate) use options::Limit;
use options::{Linger, Modes};

/// A connection between two sockets. Clones are the same connection, which closes with the last of them: what was written before is
/// sent, then its end, as in std. If it is the last handle of its engine as well, see [`Stack`].
///
/// ```
/// use std::io::{Read, Write};
/// use firelane::{Stack, TcpListener, TcpStream};
/// # fn main() -> std::io::Result<()> {
/// # let (left, right) = firelane::wire(firelane::WireConfig::default());
/// # let server = Stack::builder().interface(left).address("10.0.0.1/24")?.build()?;
/// # let client = Stack::builder().interface(right).address("10.0.0.2/24")?.build()?;
/// let listener = TcpListener::bind(&server, "10.0.0.1:7")?;
/// let mut stream = TcpStream::connect(&client, "10.0.0.1:7")?;
/// let (mut accepted, _peer) = listener.accept()?;
/// stream.write_all(b"hello")?;
/// drop(stream);
/// let mut text = String::new();
/// accepted.read_to_string(&mut text)?;
/// assert_eq!(text, "hello");
/// # Ok(())
/// # }
/// ```
pub struct TcpStream {
    socket: Arc<Socket>,
    /// Who has polled this clone in vain last, to read and to write. Others may poll others.
    polled: [Option<Waker>; 2],
}

/// What the clones share. The table of sleepers has a reference too, so the clones are counted apart.
struct Socket {
    engine: Arc<Inner>,
    shared: StreamRef,
    send: Mutex<SendEnd>,
    recv: Mutex<RecvEnd>,
    seat: Seat,
    read_limit: Limit,
    write_limit: Limit,
    clones: AtomicU32,
    modes: Modes,
    /// What was set; zero is as the netstack has it.
    hops: AtomicU8,
    linger: Linger,
}

// What an idle connection costs here, beside `Arc`'s counters and a place among the sleepers.
const _: () = assert!(size_of::<Socket>() <= 208);

impl Seated for Socket {
    fn seat(&self) -> &Seat {
        &self.seat
    }
}

impl Clone for TcpStream {
    fn clone(&self) -> Self {
        self.socket.clones.fetch_add(1, Ordering::Relaxed);
        Self { socket: Arc::clone(&self.socket), polled: Default::default() }
    }
}

impl Drop for TcpStream {
    fn drop(&mut self) {
        for (side, polled) in [Ready::READABLE, Ready::WRITABLE].into_iter().zip(mem::take(&mut self.polled))
        {
            polled.into_iter().for_each(|waker| self.socket.seat.end_wait(side, waker));
        }
        if self.socket.clones.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.socket.close();
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl TcpStream {
    /// Connects to the first of `addr`'s addresses that answers.
    ///
    /// # Errors
    /// As `std::net::TcpStream::connect`; `Deadlock` in a waker, where no call can wait.
    pub fn connect(stack: &Stack, addr: impl ToSocketAddrs) -> io::Result<Self> {
        each_address(addr, |remote| {
            let stream = Self::begin(stack, remote, stack.config()?.sockets.stream)?;
            stream.await_connected(None)?;
            Ok(stream)
        })
    }

    /// Connects to one address, for at most `limit`; as in std.
    ///
    /// # Errors
    /// As [`TcpStream::connect`]; `TimedOut` after `limit`, `InvalidInput` if that is zero.
    pub fn connect_timeout(stack: &Stack, remote: &SocketAddr, limit: Duration) -> io::Result<Self> {
        Self::connect_with(stack, *remote, stack.config()?.sockets.stream, limit)
    }

    /// Connects with ring sizes of the caller's choice, for at most `limit`.
    ///
    /// # Errors
    /// As [`TcpStream::connect_timeout`].
    pub fn connect_with(
        stack: &Stack,
        remote: SocketAddr,
        rings: StreamConfig,
        limit: Duration,
    ) -> io::Result<Self> {
        if limit.is_zero() {
            return Err(invalid("limit 0: more is allowed".to_owned()));
        }
        let stream = Self::begin(stack, remote, rings)?;
        stream.await_connected(Some(limit))?;
        Ok(stream)
    }

    /// Connects with Fast Open (RFC 7413; MSG_FASTOPEN): text goes with the SYN if the peer has given us a cookie before,
    /// and behind the handshake if not. Answers how much of `text` the send buffer has taken. The peer's program may see
    /// that text twice, so it should be a request that may be repeated.
    ///
    /// # Errors
    /// As [`TcpStream::connect`].
    pub fn connect_fast(stack: &Stack, remote: SocketAddr, text: &[u8]) -> io::Result<(Self, usize)> {
        let (stream, count) = Self::begin_fast(stack, None, remote, stack.config()?.sockets.stream, text)?;
        stream.await_connected(None)?;
        Ok((stream, count))
    }

    /// Begins to connect; [`TcpStream::poll_connected`] tells the outcome.
    ///
    /// # Errors
    /// The netstack is gone, or its lane out of service.
    pub fn begin(stack: &Stack, remote: SocketAddr, rings: StreamConfig) -> io::Result<Self> {
        Self::begin_from(stack, None, remote, rings)
    }

    /// Begins to connect from an address of the netstack's, and from a port unless that is zero.
    ///
    /// # Errors
    /// As [`TcpStream::begin`]; an address that the netstack does not have is told with the outcome.
    pub fn begin_from(
        stack: &Stack,
        local: Option<SocketAddr>,
        remote: SocketAddr,
        rings: StreamConfig,
    ) -> io::Result<Self> {
        Self::begin_with(stack, local, remote, rings, StreamOptions::default())
    }

    /// Begins to connect with options that hold from the first segment on.
    pub(crate) fn begin_with(
        stack: &Stack,
        local: Option<SocketAddr>,
        remote: SocketAddr,
        rings: StreamConfig,
        options: StreamOptions,
    ) -> io::Result<Self> {
        Self::begin_opening(stack, local, remote, rings, options, None).map(|(stream, _)| stream)
    }

    /// Begins to connect with Fast Open, as [`TcpStream::connect_fast`] (TCP_FASTOPEN_CONNECT, with the first write).
    ///
    /// # Errors
    /// As [`TcpStream::begin_from`].
    pub fn begin_fast(
        stack: &Stack,
        local: Option<SocketAddr>,
        remote: SocketAddr,
        rings: StreamConfig,
        text: &[u8],
    ) -> io::Result<(Self, usize)> {
        Self::begin_opening(stack, local, remote, rings, StreamOptions::default(), Some(text))
    }

    fn begin_opening(
        stack: &Stack,
        local: Option<SocketAddr>,
        remote: SocketAddr,
        rings: StreamConfig,
        options: StreamOptions,
        early: Option<&[u8]>,
    ) -> io::Result<(Self, usize)> {
        let engine = &stack.inner;
        let read = |its: &NetstackConfig| (its.sockets.tuning(rings), its.sockets.unsent_limit());
        let (lane, _placing, (tuning, unsent_limit)) =
            engine.lane_to_connect(stack.id, local, remote, read)?;
        let (mut end, slot) = stream(rings, lane, stack.id);
        let count = early.map_or(0, |text| end.send.preload(text));
        let socket = Self::new(Arc::clone(engine), end);
        let options = StreamOptions { tuning, fast_open: early.is_some(), unsent_limit, ..options };
        let connect = Connect { remote, local, stream: slot, options };
        let command = SocketCommand::Connect(Box::new(connect));
        let message = LaneMessage::Socket(stack.id, command);
        engine.fabric.enter_soon(lane, message).map_err(|_| lane_failed())?;
        Ok((socket, count))
    }

    /// Connects without blocking the thread.
    ///
    /// # Errors
    /// As [`TcpStream::connect`].
    pub async fn connect_async(stack: &Stack, remote: SocketAddr) -> io::Result<Self> {
        let stream = Self::begin(stack, remote, stack.config()?.sockets.stream)?;
        wait_at(&stream.socket.seat, Ready::WRITABLE, |context| stream.poll_connected(context)).await?;
        Ok(stream)
    }

    pub(crate) fn new(engine: Arc<Inner>, end: StreamEnd) -> Self {
        let shared = end.share();
        let StreamEnd { send, recv } = end;
        let socket = Arc::new(Socket {
            engine,
            shared,
            send: Mutex::new(send),
            recv: Mutex::new(recv),
            seat: Seat::default(),
            read_limit: Limit::default(),
            write_limit: Limit::default(),
            clones: AtomicU32::new(1),
            modes: Modes::default(),
            hops: AtomicU8::new(0),
            linger: Linger::default(),
        });
        let token = socket.engine.fabric.sleepers.sit(Arc::clone(&socket) as Arc<dyn Seated>);
        socket.shared.get().words().set_token(token);
        Self { socket, polled: Default::default() }
    }

    fn await_connected(&self, limit: Option<Duration>) -> io::Result<()> {
        block_on(limit, |context| self.poll_connected(context))?
    }

    /// Whether the connection is established; pending while it is under way.
    ///
    /// # Errors
    /// Why it could not be.
    pub fn poll_connected(&self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_for(Ready::WRITABLE, context, |socket| {
            let words = socket.shared.get().words();
            let flags = words.flags();
            if flags.contains(Flags::CONNECTED) {
                return Some(Ok(()));
            }
            if let Some(error) = words.take_error() {
                return Some(Err(io_error(error)));
            }
            flags.contains(Flags::CLOSED).then(|| Err(io::ErrorKind::ConnectionAborted.into()))
        })
    }

    /// Reads what there is; `WouldBlock` if there is nothing.
    ///
    /// # Errors
    /// As `std::net::TcpStream::read` in non-blocking mode.
    pub fn try_read(&self, to: &mut [u8]) -> io::Result<usize> {
        self.socket.read(to).unwrap_or_else(|| self.socket.would_block())
    }

    /// Writes what there is room for; `WouldBlock` if there is none.
    ///
    /// # Errors
    /// As `std::net::TcpStream::write` in non-blocking mode.
    pub fn try_write(&self, from: &[u8]) -> io::Result<usize> {
        self.socket.write(from).unwrap_or_else(|| self.socket.would_block())
    }

    /// Polls `check`; leaves the waker and the interest if it has nothing, and looks again.
    fn poll_for<T>(
        &self,
        ready: Ready,
        context: &mut Context<'_>,
        mut check: impl FnMut(&Socket) -> Option<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        let socket = &*self.socket;
        if let Some(result) = check(socket) {
            return Poll::Ready(result);
        }
        socket.wait_for(ready, context.waker());
        check(socket).or_else(|| socket.failure()).map_or(Poll::Pending, Poll::Ready)
    }

    /// As [`TcpStream::poll_for`] for a task that has this clone for itself: one that is always ready lets others have their turn, and one
    /// that waits does so in place of whoever polled the clone before.
    fn poll_mine<T>(
        &mut self,
        ready: Ready,
        context: &mut Context<'_>,
        check: impl FnMut(&Socket) -> Option<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        let budget = ready!(poll_proceed(context));
        if let Poll::Ready(result) = self.poll_for(ready, context, check) {
            budget.made_progress();
            return Poll::Ready(result);
        }
        let last = &mut self.polled[usize::from(ready == Ready::WRITABLE)];
        if !last.as_ref().is_some_and(|last| last.will_wake(context.waker()))
            && let Some(last) = last.replace(context.waker().clone())
        {
            self.socket.seat.end_wait(ready, last);
        }
        Poll::Pending
    }

    /// As [`TcpStream::poll_for`], blocking the thread, for at most `limit`.
    fn block_for<T>(
        &self,
        ready: Ready,
        limit: Option<Duration>,
        mut check: impl FnMut(&Socket) -> Option<io::Result<T>>,
    ) -> io::Result<T> {
        if let Some(result) = check(&self.socket) {
            return result;
        }
        if self.socket.modes.has(Modes::NONBLOCKING) {
            return self.socket.would_block();
        }
        if self.socket.shared.get().words().flags().contains(Flags::FUSED)
            && let Some(result) = look_on(|| check(&self.socket))
        {
            return result;
        }
        let result = block_on(limit, |context| self.poll_for(ready, context, &mut check));
        result.unwrap_or_else(|vain| {
            self.socket.seat.give_up(ready);
            // As with SO_RCVTIMEO, a time-out is reported as EAGAIN.
            Err(if vain == Vain::TimedOut { Errno::AGAIN.into() } else { vain.into() })
        })
    }

    /// The peer's address.
    ///
    /// # Errors
    /// `NotConnected` while connecting, and if that came to nothing.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        let shared = self.socket.shared.get();
        let names = shared.names().filter(|_| shared.words().flags().contains(Flags::CONNECTED));
        names.map(|names| names.remote).ok_or_else(|| Errno::NOTCONN.into())
    }

    /// Our address.
    ///
    /// # Errors
    /// `NotConnected` as long as there is no way to the peer.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.socket.shared.get().names().map(|n| n.local).ok_or_else(|| Errno::NOTCONN.into())
    }

    /// Ends one direction or both. Reading ends here only: the peer is not told, and what comes all the same is read. Once both
    /// have ended, text that comes resets the connection (RFC 1122 section 4.2.2.13).
    ///
    /// # Errors
    /// `NotConnected` before connecting has begun in its lane, and once the connection has ended.
    pub fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        if self.socket.shared.get().words().flags().contains(Flags::CLOSED) {
            return Err(Errno::NOTCONN.into());
        }
        if matches!(how, Shutdown::Read | Shutdown::Both) {
            let conn = self.socket.conn()?;
            let words = self.socket.shared.get().words();
            words.set_flags(Flags::READ_CLOSED);
            // Other clones may wait in a read, which ends now.
            let wake = words.tell(Ready::READABLE).map(|token| (token, Ready::READABLE));
            self.socket.pass_on(Nudge { kick: false, wake });
            self.socket.command(SocketCommand::ShutdownRead(conn))?;
        }
        if matches!(how, Shutdown::Write | Shutdown::Both) {
            let conn = self.socket.conn()?;
            let words = self.socket.shared.get().words();
            let send = lock(&self.socket.send);
            send.shut();
            // A stream that is full would keep it to itself. No write fills it after this.
            words.relieve();
            drop(send);
            // Other clones may wait in a write, which ends now.
            let wake = words.tell(Ready::WRITABLE).map(|token| (token, Ready::WRITABLE));
            self.socket.pass_on(Nudge { kick: false, wake });
            self.socket.command(SocketCommand::Shutdown(conn))?;
        }
        Ok(())
    }

    /// Whether calls return `WouldBlock` instead of waiting.
    ///
    /// # Errors
    /// Never; as in std.
    pub fn set_nonblocking(&self, nonblocking: bool) -> io::Result<()> {
        self.socket.modes.set(Modes::NONBLOCKING, nonblocking);
        Ok(())
    }

    /// What the program wants to know of urgent text: nothing, where it ends (SO_OOBINLINE), or its last octet apart from
    /// the stream. A [`crate::Poller`] tells of [`Ready::URGENT`] when some is announced.
    pub fn set_urgent_mode(&self, mode: UrgentMode) {
        lock(&self.socket.recv).heed_urgent(mode);
    }

    /// How much text is left to read up to the last urgent octet, that included; `None` if none is urgent.
    pub fn urgent_left(&self) -> Option<u64> {
        lock(&self.socket.recv).urgent_left()
    }

    /// Whether the last urgent octet is the next one (SIOCATMARK).
    pub fn is_at_mark(&self) -> bool {
        lock(&self.socket.recv).is_at_mark()
    }

    /// Reads the urgent octet apart from the stream (MSG_OOB), in [`UrgentMode::OutOfBand`].
    ///
    /// # Errors
    /// `WouldBlock` if it was announced and has not arrived; `InvalidInput` if there is none, as recv(2) says.
    pub fn read_urgent(&self) -> io::Result<u8> {
        let mut recv = lock(&self.socket.recv);
        let (result, nudge) = (recv.read_urgent(false), recv.nudge());
        drop(recv);
        self.socket.pass_on(nudge);
        result.map_err(|error| match error {
            UrgentError::NotYet => Errno::AGAIN.into(),
            UrgentError::Nothing => invalid("no urgent octet waits to be read apart".to_owned()),
        })
    }

    /// Writes what there is room for, and says that it is urgent (MSG_OOB): the peer learns where it ends.
    ///
    /// # Errors
    /// As [`TcpStream::try_write`].
    pub fn try_write_urgent(&self, from: &[u8]) -> io::Result<usize> {
        let conn = self.socket.conn()?;
        let _stay = Stay::begin();
        let mut send = lock(&self.socket.send);
        let shared = self.socket.shared.get();
        // A lane that looked at the ring in between would send what is urgent without a word.
        let result = self.socket.engine.fabric.visit(shared.lane(), |now, lane| {
            let count = send.write(from)?;
            // The command makes the lane look at the ring as a kick does.
            let command = SocketCommand::Urgent(conn, send.cursor());
            lane.on_message(now, LaneMessage::Socket(shared.netstack(), command));
            Ok(count)
        });
        match result.ok_or_else(lane_failed)? {
            Ok(count) => Ok(count),
            Err(WriteError::WouldBlock) => Err(Errno::AGAIN.into()),
            Err(WriteError::Closed) => Err(Errno::PIPE.into()),
            Err(WriteError::Failed(error)) => Err(io_error(error)),
        }
    }

    /// What is known of the connection: windows, round trips, losses, counts. [`StreamInfo::tcp_info`] gives it as
    /// Linux' `TCP_INFO` does. Of a connection that has ended it is what was known at its end.
    ///
    /// # Errors
    /// `NotConnected` while connecting, and if that came to nothing.
    pub fn info(&self) -> io::Result<StreamInfo> {
        let conn = self.socket.conn()?;
        self.socket.engine.fabric.stream_info(self.socket.shared.get().lane(), conn)
    }

    /// Whether the peer has left several repetitions of a SYN, of text or of a keepalive unanswered, and the connection waits
    /// on (RFC 9293 SHLD-9): it ends with an answer, or with an error once the wait is over.
    pub fn is_doubtful(&self) -> bool {
        self.socket.shared.get().words().flags().contains(Flags::DOUBTFUL)
    }

    /// Resets the connection: what was not delivered is discarded (SO_LINGER with zero, then close).
    pub fn abort(&self) {
        if let Ok(conn) = self.socket.conn() {
            let _ = self.socket.command(SocketCommand::Abort(conn));
        }
    }
}

impl Socket {
    /// `None` if nothing can be read now.
    fn read(&self, to: &mut [u8]) -> Option<io::Result<usize>> {
        self.read_by(|recv| recv.read(to))
    }

    /// The same into several places, one after the other.
    fn read_vectored(&self, to: &mut [IoSliceMut<'_>]) -> Option<io::Result<usize>> {
        if to.iter().all(|place| place.is_empty()) {
            return self.read(&mut []);
        }
        let places = to.iter_mut().map(|place| (place.len(), place));
        self.read_by(|recv| {
            one_by_one(places, |to| recv.read(to), |error| self.leave_error(read_failure(error)))
        })
    }

    /// A call that has done something says so; what failed behind that is the next one's.
    #[cold]
    fn leave_error(&self, error: Option<SocketError>) {
        error.into_iter().for_each(|error| self.shared.get().words().fail(error));
    }

    fn read_by(
        &self,
        read: impl FnOnce(&mut RecvEnd) -> Result<usize, ReadError>,
    ) -> Option<io::Result<usize>> {
        let mut recv = lock(&self.recv);
        let result = read(&mut recv);
        if let Ok(1..) = result {
            let nudge = recv.nudge();
            drop(recv);
            self.pass_on(nudge);
        }
        Self::told(result)
    }

    /// What a call that reads answers; `None` has to wait.
    fn told(result: Result<usize, ReadError>) -> Option<io::Result<usize>> {
        match result {
            Ok(count) => Some(Ok(count)),
            Err(ReadError::WouldBlock) => None,
            Err(ReadError::Failed(error)) => Some(Err(io_error(error))),
        }
    }

    /// `None` if nothing can be written now.
    fn write(&self, from: &[u8]) -> Option<io::Result<usize>> {
        self.write_by(|send| send.write(from))
    }

    /// The same of several pieces. The lane hears of them together, so that they make one segment if they fit.
    fn write_vectored(&self, from: &[IoSlice<'_>]) -> Option<io::Result<usize>> {
        if from.iter().all(|piece| piece.is_empty()) {
            return self.write(&[]);
        }
        let pieces = from.iter().map(|piece| (piece.len(), piece));
        self.write_by(|send| {
            one_by_one(pieces, |from| send.write(from), |error| self.leave_error(write_failure(error)))
        })
    }

    fn write_by(
        &self,
        write: impl FnOnce(&mut SendEnd) -> Result<usize, WriteError>,
    ) -> Option<io::Result<usize>> {
        let mut send = lock(&self.send);
        match write(&mut send) {
            Ok(count) => {
                let nudge = if count > 0 { send.nudge() } else { Nudge::default() };
                drop(send);
                self.pass_on(nudge);
                Some(Ok(count))
            }
            Err(WriteError::WouldBlock) => {
                if send.is_cramped() {
                    drop(send);
                    self.kick();
                }
                None
            }
            Err(WriteError::Closed) => Some(Err(Errno::PIPE.into())),
            Err(WriteError::Failed(error)) => Some(Err(io_error(error))),
        }
    }

    /// Tells whoever is to know what was written or read.
    #[inline]
    fn pass_on(&self, Nudge { kick, wake }: Nudge) {
        if kick {
            self.kick();
        }
        if let Some((token, ready)) = wake {
            self.engine.fabric.sleepers.wake(token, ready);
        }
    }

    /// Tells the lane that there is work in the rings. The bit that `kick()` set promises a message, so it is
    /// sent even if the squeue is full for a while.
    fn kick(&self) {
        let Some(conn) = self.shared.get().conn() else { return };
        let message = || LaneMessage::Kick { netstack: self.shared.get().netstack(), conn };
        let fabric = &self.engine.fabric;
        if fabric.enter(self.shared.get().lane(), message()) == Err(EnterError::Full) {
            // A lane that has failed needs no kick.
            let _ = fabric.enter_surely(self.shared.get().lane(), message());
        }
    }

    fn wait_for(&self, ready: Ready, waker: &Waker) {
        self.seat.leave(ready, waker);
        self.shared.get().words().wait_for(ready);
    }

    /// That its lane is out of service, if it is: nothing more happens then.
    fn failure<T>(&self) -> Option<io::Result<T>> {
        self.engine.fabric.failure(self.shared.get().lane())
    }

    fn would_block<T>(&self) -> io::Result<T> {
        self.failure().unwrap_or_else(|| Err(Errno::AGAIN.into()))
    }

    fn conn(&self) -> io::Result<ConnRef> {
        self.shared.get().conn().ok_or_else(|| Errno::NOTCONN.into())
    }

    fn command(&self, command: SocketCommand) -> io::Result<()> {
        let message = LaneMessage::Socket(self.shared.get().netstack(), command);
        self.engine.fabric.enter_surely(self.shared.get().lane(), message).map_err(|_| lane_failed())
    }

    fn set_option(&self, option: StreamOption) -> io::Result<()> {
        self.command(SocketCommand::SetOption(self.conn()?, option))
    }

    /// The last clone is gone.
    fn close(&self) {
        let shared = self.shared.get();
        let (conn, linger) = (shared.conn(), self.linger.get());
        if let Some(conn) = conn.filter(|_| linger == Some(Duration::ZERO)) {
            let _ = self.command(SocketCommand::Abort(conn));
        }
        let command = match conn {
            Some(conn) => SocketCommand::Close(conn),
            None => SocketCommand::CloseUnmade(self.shared.clone()),
        };
        // Nobody looks for what the lane would tell of it from here on.
        shared.words().ignore();
        let message = LaneMessage::Socket(shared.netstack(), command);
        // A lane that has failed has no connections left to close.
        let _ = self.engine.fabric.enter_soon(shared.lane(), message);
        if let Some((conn, limit)) = conn.zip(linger.filter(|limit| !limit.is_zero()))
            && Self::may_linger()
        {
            self.await_end(conn, limit);
        }
        self.engine.fabric.sleepers.stand_up(self.shared.get().words().token());
    }
}

impl Read for &TcpStream {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        let limit = self.socket.read_limit.get();
        self.block_for(Ready::READABLE, limit, |socket| socket.read(to))
    }

    fn read_vectored(&mut self, to: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        let limit = self.socket.read_limit.get();
        self.block_for(Ready::READABLE, limit, |socket| socket.read_vectored(to))
    }
}

impl Write for &TcpStream {
    fn write(&mut self, from: &[u8]) -> io::Result<usize> {
        let limit = self.socket.write_limit.get();
        self.block_for(Ready::WRITABLE, limit, |socket| socket.write(from))
    }

    fn write_vectored(&mut self, from: &[IoSlice<'_>]) -> io::Result<usize> {
        let limit = self.socket.write_limit.get();
        self.block_for(Ready::WRITABLE, limit, |socket| socket.write_vectored(from))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Read for TcpStream {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        (&*self).read(to)
    }

    fn read_vectored(&mut self, to: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        (&*self).read_vectored(to)
    }
}

impl Write for TcpStream {
    fn write(&mut self, from: &[u8]) -> io::Result<usize> {
        (&*self).write(from)
    }

    fn write_vectored(&mut self, from: &[IoSlice<'_>]) -> io::Result<usize> {
        (&*self).write_vectored(from)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl AsyncRead for TcpStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        to: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let space = to.initialize_unfilled();
        let count = ready!(self.poll_mine(Ready::READABLE, context, |socket| socket.read(space)))?;
        to.advance(count);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for TcpStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        from: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.poll_mine(Ready::WRITABLE, context, |socket| socket.write(from))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        from: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.poll_mine(Ready::WRITABLE, context, |socket| socket.write_vectored(from))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        // As in tokio, what has ended needs no end.
        Poll::Ready(match self.shutdown(Shutdown::Write) {
            Err(error) if error.kind() == io::ErrorKind::NotConnected => Ok(()),
            result => result,
        })
    }
}

#[allow(private_interfaces)]
impl Watched for TcpStream {
    fn seat(&self) -> &Seat {
        &self.socket.seat
    }

    fn home(&self) -> Option<(&Arc<Inner>, LaneId)> {
        Some((&self.socket.engine, self.socket.shared.get().lane()))
    }

    fn stand(&self, ready: Ready) {
        self.socket.shared.get().words().watch(ready);
    }
}

/// Moves pieces of such lengths, one after the other, as long as each goes whole. A failure is the call's only if nothing has gone before
/// it; another one is `left`.
fn one_by_one<P, E>(
    pieces: impl Iterator<Item = (usize, P)>,
    mut go: impl FnMut(P) -> Result<usize, E>,
    left: impl FnOnce(E),
) -> Result<usize, E> {
    let mut count = 0;
    for (len, piece) in pieces.filter(|(len, _)| *len > 0) {
        match go(piece) {
            Ok(gone) => {
                count += gone;
                if gone < len {
                    break;
                }
            }
            Err(error) if count == 0 => return Err(error),
            Err(error) => {
                left(error);
                break;
            }
        }
    }
    Ok(count)
}

const fn read_failure(error: ReadError) -> Option<SocketError> {
    match error {
        ReadError::Failed(error) => Some(error),
        ReadError::WouldBlock => None,
    }
}

const fn write_failure(error: WriteError) -> Option<SocketError> {
    match error {
        WriteError::Failed(error) => Some(error),
        WriteError::WouldBlock | WriteError::Closed => None,
    }
}

fn invalid(what: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, what)
}
