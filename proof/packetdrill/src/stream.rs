//! TCP sockets: what each call does in each state, with Linux' error numbers.
//!
//! Nothing here waits: a call that would is answered with `None`, and `plugin.rs` decides whether to try again.
//! The states of connecting are those of `inet_stream_connect`: in progress, already, once zero, then connected.

use std::net::{IpAddr, SocketAddr};

use firelane_lane::{Connect, Listen, SocketCommand, StreamInfo, StreamOption, StreamOptions};
use firelane_socket::{
    Accepted, ConnRef, Flags, ListenerEnd, ReadError, SocketError, StreamConfig, StreamEnd, UrgentError,
    UrgentMode, WriteError, listener, stream,
};
use firelane_units::SocketId;

use crate::errno::{Errno, Sys, fail};
use crate::readiness::Mask;
use crate::sockopt::Stored;
use crate::world::{LANE, NETSTACK, World};

/// Linux' limit for backlogs (`net.core.somaxconn`).
const BACKLOG_MAX: i32 = 4096;

/// A TCP socket.
pub(crate) struct StreamSocket {
    pub(crate) stored: Stored,
    pub(crate) bound: Option<SocketAddr>,
    state: State,
}

enum State {
    /// Neither connected nor listening; what connecting failed with, until somebody asks.
    Fresh {
        error: Option<SocketError>,
    },
    /// The first text that is written begins the connection (TCP_FASTOPEN_CONNECT).
    Deferred {
        remote: SocketAddr,
    },
    Listening {
        end: ListenerEnd,
        id: SocketId,
    },
    Connected(Box<Conn>),
}

struct Conn {
    end: StreamEnd,
    /// The program has not been told of the end of its connect.
    is_connecting: bool,
    is_read_shut: bool,
    is_write_shut: bool,
    /// The last write promised more (MSG_MORE).
    is_held: bool,
    consumed: u64,
    /// A write found no room; the next room is an edge.
    wants_room: bool,
    /// Edges of room.
    rooms: u64,
}

impl Conn {
    fn new(end: StreamEnd, is_connecting: bool) -> Self {
        Self {
            end,
            is_connecting,
            is_read_shut: false,
            is_write_shut: false,
            is_held: false,
            consumed: 0,
            wants_room: false,
            rooms: 0,
        }
    }

    fn flags(&self) -> Flags {
        self.end.shared().words().flags()
    }

    fn reference(&self) -> Option<ConnRef> {
        self.end.shared().conn()
    }

    fn is_up(&self) -> bool {
        self.flags().contains(Flags::CONNECTED)
    }

    fn is_closed(&self) -> bool {
        self.flags().contains(Flags::CLOSED)
    }
}

/// What a read brought.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Received {
    pub(crate) bytes: Vec<u8>,
    /// What the call returns: more than the bytes if they were cut or thrown away.
    pub(crate) len: usize,
    pub(crate) from: Option<SocketAddr>,
    /// A datagram that did not fit (MSG_TRUNC).
    pub(crate) is_cut: bool,
}

impl StreamSocket {
    pub(crate) fn new(stored: Stored) -> Self {
        Self { stored, bound: None, state: State::Fresh { error: None } }
    }

    pub(crate) fn is_listening(&self) -> bool {
        matches!(self.state, State::Listening { .. })
    }

    /// Neither connected nor listening, nor has it asked to be.
    pub(crate) fn is_fresh(&self) -> bool {
        matches!(self.state, State::Fresh { .. })
    }

    /// Whether its SYN waits for text.
    pub(crate) fn is_deferred(&self) -> bool {
        matches!(self.state, State::Deferred { .. })
    }

    /// Whether it has a connection, or what is left of one.
    pub(crate) fn has_begun(&self) -> bool {
        matches!(self.state, State::Connected(_))
    }

    fn rings(&self) -> StreamConfig {
        StreamConfig { send_capacity: self.stored.send_ring, recv_capacity: self.stored.recv_ring }
    }

    pub(crate) fn connect(&mut self, world: &mut World, remote: SocketAddr) -> Sys<()> {
        match &mut self.state {
            State::Listening { .. } | State::Deferred { .. } => return fail(libc::EISCONN),
            State::Connected(_) => return self.connect_again(),
            State::Fresh { .. } => {}
        }
        world.adopt_default(remote.ip());
        let is_fast = self.stored.chosen.fast_connect;
        if is_fast && self.syn_room(world, remote).is_some() {
            self.state = State::Deferred { remote };
            return Ok(());
        }
        self.open(world, remote, is_fast, &[])?;
        fail(libc::EINPROGRESS)
    }

    /// A connection begins with the text of a write (`tcp_sendmsg_fastopen`): how much of that goes with the SYN, which is none
    /// where the peer must give a cookie first.
    pub(crate) fn open_fast(
        &mut self,
        world: &mut World,
        remote: Option<SocketAddr>,
        bytes: &[u8],
    ) -> Sys<usize> {
        let remote = match (&self.state, remote) {
            (&State::Deferred { remote }, _) | (State::Fresh { .. }, Some(remote)) => remote,
            (State::Fresh { .. }, None) => return fail(libc::EINVAL),
            (State::Listening { .. } | State::Connected(_), _) => return fail(libc::EISCONN),
        };
        self.state = State::Fresh { error: None };
        world.adopt_default(remote.ip());
        let room = self.syn_room(world, remote).unwrap_or(0);
        let text = &bytes[..bytes.len().min(room)];
        self.open(world, remote, true, text)?;
        Ok(text.len())
    }

    /// How much text the SYN of a connection that opens fast would carry; `None` if that is not for a SYN to do.
    fn syn_room(&self, world: &mut World, remote: SocketAddr) -> Option<usize> {
        let options = StreamOptions { fast_open: true, ..self.stored.stream_options() };
        world.syn_text((self.named(), remote), &options).map(|text| text.room)
    }

    /// Where it connects from, as far as the script says.
    fn named(&self) -> Option<SocketAddr> {
        self.bound.filter(|b| b.port() != 0 || !b.ip().is_unspecified())
    }

    /// Begins a connection, whose SYN may carry `text`.
    fn open(&mut self, world: &mut World, remote: SocketAddr, fast_open: bool, text: &[u8]) -> Sys<()> {
        let (mut end, slot) = stream(self.rings(), LANE, NETSTACK);
        let is_whole = end.send.preload(text) == text.len();
        debug_assert!(is_whole, "a new ring has room for a segment");
        let options = StreamOptions { fast_open, ..self.stored.stream_options() };
        let connect = Connect { remote, local: self.named(), stream: slot, options };
        world.command(SocketCommand::Connect(Box::new(connect)));
        let conn = Conn::new(end, true);
        if conn.reference().is_none() {
            let error = conn.end.shared().words().take_error().unwrap_or(SocketError::Aborted);
            return Err(error.into());
        }
        self.state = State::Connected(Box::new(conn));
        self.begin(world);
        Ok(())
    }

    /// A further connect on a socket that has begun one.
    pub(crate) fn connect_again(&mut self) -> Sys<()> {
        let State::Connected(conn) = &mut self.state else { return fail(libc::EINVAL) };
        if !conn.is_connecting {
            return fail(libc::EISCONN);
        }
        match conn.end.poll_connected() {
            Ok(false) => fail(libc::EALREADY),
            Ok(true) => {
                conn.is_connecting = false;
                Ok(())
            }
            Err(error) => {
                self.state = State::Fresh { error: None };
                Err(error.into())
            }
        }
    }

    /// AF_UNSPEC: the socket forgets its peer (`tcp_disconnect`).
    pub(crate) fn disconnect(&mut self, world: &mut World) {
        self.abort(world);
        self.state = State::Fresh { error: None };
    }

    pub(crate) fn listen(&mut self, world: &mut World, local: SocketAddr, backlog: i32) -> Sys<()> {
        match self.state {
            State::Listening { .. } => return Ok(()),
            State::Connected(_) | State::Deferred { .. } => return fail(libc::EINVAL),
            State::Fresh { .. } => {}
        }
        // Linux takes one connection more than the backlog says (`sk_acceptq_is_full`).
        let room = if backlog < 0 { BACKLOG_MAX } else { backlog.min(BACKLOG_MAX) };
        let (end, slot) = listener(room as usize + 1);
        let id = world.next_socket();
        let v6_only = self.stored.v6_only;
        let (rings, options) = (self.rings(), self.stored.stream_options());
        let listen = Listen { socket: id, local, v6_only, shares: false, slot, rings, options };
        if !world.command(SocketCommand::Listen(Box::new(listen))) {
            return fail(libc::EADDRINUSE);
        }
        self.bound = Some(local);
        self.state = State::Listening { end, id };
        Ok(())
    }

    /// The connection that has waited longest.
    pub(crate) fn accept(&mut self, world: &mut World) -> Sys<Option<(Self, SocketAddr)>> {
        let State::Listening { end, .. } = &self.state else { return fail(libc::EINVAL) };
        let Some(Accepted { stream: end, names }) = end.accept() else { return Ok(None) };
        let conn = Conn::new(end, false);
        let state = State::Connected(Box::new(conn));
        let mut socket = Self { stored: self.stored.clone(), bound: Some(names.local), state };
        socket.begin(world);
        Ok(Some((socket, names.remote)))
    }

    /// What a connection is told as soon as it is there.
    fn begin(&mut self, world: &mut World) {
        if self.stored.cork {
            self.set_option(world, StreamOption::Cork(true));
        }
        self.tell_header(world);
        self.heed_urgent();
    }

    /// What its packets' headers are like from here on.
    pub(crate) fn tell_header(&self, world: &mut World) {
        for option in self.stored.chosen.stream_header() {
            self.set_option(world, option);
        }
    }

    /// Urgent text is apart, as in Linux, or stays in its place (SO_OOBINLINE).
    pub(crate) fn heed_urgent(&mut self) {
        let is_inline = self.stored.chosen.oob_inline;
        if let State::Connected(conn) = &mut self.state {
            conn.end.recv.heed_urgent(if is_inline { UrgentMode::Inline } else { UrgentMode::OutOfBand });
        }
    }

    pub(crate) fn read(&mut self, world: &mut World, len: usize, flags: i32) -> Sys<Option<Received>> {
        let State::Connected(conn) = &mut self.state else {
            return match &mut self.state {
                State::Fresh { error } => Err(error.take().map_or(Errno(libc::ENOTCONN), Errno::from)),
                State::Deferred { .. } if flags & libc::MSG_OOB == 0 => Ok(None),
                _ => fail(libc::ENOTCONN),
            };
        };
        if flags & libc::MSG_OOB != 0 {
            return match conn.end.recv.read_urgent(flags & libc::MSG_PEEK != 0) {
                Ok(octet) => Ok(Some(Received { bytes: vec![octet], len: 1, ..Received::default() })),
                Err(UrgentError::NotYet) => fail(libc::EAGAIN),
                Err(UrgentError::Nothing) => fail(libc::EINVAL),
            };
        }
        if flags & libc::MSG_ERRQUEUE != 0 {
            return fail(libc::EAGAIN);
        }
        let mut bytes = vec![0; len];
        let peeks = flags & libc::MSG_PEEK != 0;
        let result = if peeks { conn.end.recv.peek(&mut bytes) } else { conn.end.recv.read(&mut bytes) };
        match result {
            Ok(count) => {
                let kick = conn.end.recv.nudge().kick;
                if !peeks {
                    conn.consumed += count as u64;
                }
                if kick && let Some(reference) = conn.reference() {
                    world.kick(reference);
                }
                bytes.truncate(if flags & libc::MSG_TRUNC != 0 { 0 } else { count });
                Ok(Some(Received { bytes, len: count, ..Received::default() }))
            }
            Err(ReadError::WouldBlock) if conn.is_read_shut => Ok(Some(Received::default())),
            Err(ReadError::WouldBlock) => Ok(None),
            Err(ReadError::Failed(error)) => Err(error.into()),
        }
    }

    /// Writes what has room. `more`: further bytes follow at once, so a small segment waits for them.
    pub(crate) fn write(&mut self, world: &mut World, bytes: &[u8], flags: i32) -> Sys<Option<usize>> {
        let State::Connected(conn) = &mut self.state else {
            return match &mut self.state {
                State::Fresh { error } => Err(error.take().map_or(Errno(libc::EPIPE), Errno::from)),
                _ => fail(libc::EPIPE),
            };
        };
        let holds = flags & libc::MSG_MORE != 0;
        if holds != conn.is_held && !self.stored.cork && conn.is_up() {
            conn.is_held = holds;
            if holds {
                self.set_option(world, StreamOption::Cork(true));
            }
        }
        let State::Connected(conn) = &mut self.state else { return fail(libc::EPIPE) };
        let result = conn.end.send.write(bytes);
        let kick = result.is_ok() && conn.end.send.nudge().kick;
        if let Some(reference) = conn.reference() {
            // The last byte is the urgent one, and the lane hears of it before it sends.
            if flags & libc::MSG_OOB != 0 && result == Ok(bytes.len()) {
                world.command(SocketCommand::Urgent(reference, conn.end.send.cursor()));
            }
            if kick {
                world.kick(reference);
            }
        }
        let answer = match result {
            Ok(count) => Ok(Some(count)),
            Err(WriteError::WouldBlock) => {
                conn.wants_room = true;
                Ok(None)
            }
            Err(WriteError::Closed) => fail(libc::EPIPE),
            Err(WriteError::Failed(error)) => Err(error.into()),
        };
        if !holds && !self.stored.cork {
            self.set_option(world, StreamOption::Cork(false));
        }
        answer
    }

    pub(crate) fn shutdown(&mut self, world: &mut World, how: i32) -> Sys<()> {
        if !(libc::SHUT_RD..=libc::SHUT_RDWR).contains(&how) {
            return fail(libc::EINVAL);
        }
        let ends_writing = how != libc::SHUT_RD;
        match &mut self.state {
            State::Fresh { .. } => fail(libc::ENOTCONN),
            State::Deferred { .. } => {
                self.disconnect(world);
                Ok(())
            }
            State::Listening { .. } if how == libc::SHUT_WR => Ok(()),
            State::Listening { .. } => {
                self.close(world);
                self.state = State::Fresh { error: None };
                Ok(())
            }
            State::Connected(conn) if !conn.is_up() && ends_writing => {
                // Linux gives up the attempt (`inet_shutdown`).
                self.disconnect(world);
                Ok(())
            }
            State::Connected(conn) if conn.is_closed() => fail(libc::ENOTCONN),
            State::Connected(conn) => {
                if how != libc::SHUT_WR && !conn.is_read_shut {
                    conn.is_read_shut = true;
                    if let Some(reference) = conn.reference() {
                        world.command(SocketCommand::ShutdownRead(reference));
                    }
                }
                if ends_writing && !conn.is_write_shut {
                    conn.is_write_shut = true;
                    conn.end.send.shut();
                    if let Some(reference) = conn.reference() {
                        world.command(SocketCommand::Shutdown(reference));
                    }
                }
                Ok(())
            }
        }
    }

    /// close(2): the lane finishes the rest. With SO_LINGER and no time, the peer gets a reset.
    pub(crate) fn close(&mut self, world: &mut World) {
        if self.stored.linger == Some(0) && matches!(self.state, State::Connected(_)) {
            return self.abort(world);
        }
        match core::mem::replace(&mut self.state, State::Fresh { error: None }) {
            State::Fresh { .. } | State::Deferred { .. } => {}
            State::Listening { end, id } => {
                drop(end);
                world.command(SocketCommand::Unlisten(id));
            }
            State::Connected(conn) => {
                if let Some(reference) = conn.reference() {
                    world.command(SocketCommand::Close(reference));
                }
            }
        }
    }

    fn abort(&mut self, world: &mut World) {
        if let State::Connected(conn) = &self.state
            && let Some(reference) = conn.reference()
        {
            world.command(SocketCommand::Abort(reference));
        }
        self.state = State::Fresh { error: None };
    }

    /// Gives a connection an option; one that is not yet connected has it from its beginning.
    pub(crate) fn set_option(&self, world: &mut World, option: StreamOption) {
        if let State::Connected(conn) = &self.state
            && let Some(reference) = conn.reference()
        {
            world.command(SocketCommand::SetOption(reference, option));
        }
    }

    /// SO_ERROR: told once.
    pub(crate) fn take_error(&mut self) -> Option<Errno> {
        match &mut self.state {
            State::Fresh { error } => error.take().map(Errno::from),
            State::Listening { .. } | State::Deferred { .. } => None,
            State::Connected(conn) => {
                let error = conn.end.shared().words().take_error();
                error.map(Errno::from)
            }
        }
    }

    pub(crate) fn info(&self, world: &World) -> Option<StreamInfo> {
        let State::Connected(conn) = &self.state else { return None };
        world.info(conn.reference()?)
    }

    /// Bytes to read, bytes that are not acknowledged; `None` if there is no connection.
    pub(crate) fn queued(&self) -> Option<(usize, usize)> {
        let State::Connected(conn) = &self.state else { return None };
        Some((conn.end.recv.available(), conn.end.send.unacknowledged()))
    }

    /// The local end, as far as it is known.
    pub(crate) fn local(&self) -> Option<SocketAddr> {
        match &self.state {
            State::Connected(conn) => conn.end.shared().names().map(|names| names.local).or(self.bound),
            _ => self.bound,
        }
    }

    /// What poll(2) reports (`tcp_poll`).
    pub(crate) fn mask(&self) -> Mask {
        match &self.state {
            State::Fresh { .. } => Mask::OUT | Mask::HUP,
            State::Deferred { .. } => Mask::OUT,
            State::Listening { end, .. } if end.waiting() > 0 => Mask::IN,
            State::Listening { .. } => Mask::NONE,
            State::Connected(conn) => conn_mask(conn, self.stored.chosen.low_water()),
        }
    }

    /// Counts that rise with every edge: of what came, and of room.
    pub(crate) fn edges(&mut self) -> (u64, u64) {
        match &mut self.state {
            State::Fresh { .. } | State::Deferred { .. } => (0, 0),
            State::Listening { end, .. } => (end.waiting() as u64, 0),
            State::Connected(conn) => {
                let mask = conn_mask(conn, self.stored.chosen.low_water());
                if conn.wants_room && mask.contains(Mask::OUT) {
                    conn.wants_room = false;
                    conn.rooms += 1;
                }
                let ends = u64::from(mask.contains(Mask::RDHUP)) + u64::from(mask.contains(Mask::HUP));
                (conn.consumed + conn.end.recv.available() as u64 + ends, conn.rooms)
            }
        }
    }
}

fn conn_mask(conn: &Conn, low_water: usize) -> Mask {
    let flags = conn.flags();
    let mut mask = Mask::NONE;
    let peer_closed = flags.contains(Flags::PEER_CLOSED) || conn.is_read_shut || conn.is_closed();
    if conn.is_closed() || peer_closed && conn.is_write_shut {
        mask |= Mask::HUP;
    }
    if peer_closed {
        mask |= Mask::IN | Mask::RDHUP;
    }
    if conn.is_up() || conn.is_closed() {
        if conn.end.recv.available() >= low_water {
            mask |= Mask::IN;
        }
        if conn.end.recv.has_urgent() {
            mask |= Mask::PRI;
        }
        let (room, used) = (conn.end.send.room(), conn.end.send.unacknowledged());
        // `sk_stream_is_writeable`: at least half as much room as is in use, and less unsent than TCP_NOTSENT_LOWAT.
        let takes = room >= (used / 2).max(1) && !conn.end.shared().words().is_full();
        if conn.is_write_shut || conn.is_closed() || takes {
            mask |= Mask::OUT;
        }
    }
    if conn.end.shared().words().error().is_some() {
        mask |= Mask::ERR;
    }
    mask
}

/// Whether two local ends exclude each other.
pub(crate) fn overlap(a: SocketAddr, b: SocketAddr) -> bool {
    let any = |ip: IpAddr| ip.is_unspecified();
    a.port() == b.port() && (a.ip() == b.ip() || any(a.ip()) || any(b.ip()))
}
