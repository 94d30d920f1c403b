//! Applications: state machines that run when something of theirs is ready, or when their time has come.
//!
//! An application never waits. It tries, and what would block leaves an interest, as a program's reactor does; it
//! runs again only when that interest is told. An edge that a lane forgets is a hang here.

use std::time::Duration;

use firelane_lane::{Connect, Listen, Mode, SocketCommand, StreamInfo, StreamOptions};
use firelane_socket::{
    Accepted, Flags, ListenerEnd, Nudge, ReadError, Ready, SocketError, SocketToken, StreamConfig, StreamEnd,
    WriteError, listener, stream,
};
use firelane_units::{Instant, LaneId, SocketId};

use crate::host::StackId;
use crate::random::Random;
use crate::sim::Sim;

/// Which application.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct AppId(pub(crate) usize);

impl AppId {
    fn token(self) -> SocketToken {
        SocketToken(self.0 as u64 + 1)
    }

    pub(crate) fn of(token: SocketToken) -> Self {
        Self(token.0 as usize - 1)
    }
}

/// What an application does next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Next {
    /// It has more to do at once, after the others.
    Again,
    /// It waits for its sockets.
    Wait,
    /// It waits for its sockets, but not longer than this.
    Until(Instant),
    /// It has ended.
    Done,
}

/// A state machine.
pub trait App {
    /// Something is ready, or the time has come.
    fn turn(&mut self, cx: &mut Cx<'_>) -> Next;

    /// Where it stands, for a person.
    fn describe(&self) -> String;

    /// Whether the simulation waits for its end.
    fn must_end(&self) -> bool {
        true
    }
}

/// What an application sees of the world.
pub struct Cx<'a> {
    pub(crate) sim: &'a mut Sim,
    pub(crate) app: AppId,
}

impl Cx<'_> {
    /// The time.
    pub fn now(&self) -> Instant {
        self.sim.now()
    }

    /// The seed's generator.
    pub fn random(&mut self) -> &mut Random {
        self.sim.random()
    }

    /// Begins another application.
    pub fn spawn(&mut self, app: Box<dyn App>) -> AppId {
        self.sim.spawn(app)
    }

    /// The world.
    pub fn sim(&mut self) -> &mut Sim {
        self.sim
    }

    /// Opens a connection; it may be used at once, and is established later.
    pub fn connect(
        &mut self,
        stack: StackId,
        remote: core::net::SocketAddr,
        rings: StreamConfig,
        options: StreamOptions,
    ) -> Stream {
        self.connect_with(stack, remote, rings, options, &[]).0
    }

    /// Opens a connection whose SYN may carry `early`, if the options say so; and how much of it the ring has taken.
    pub fn connect_with(
        &mut self,
        stack: StackId,
        remote: core::net::SocketAddr,
        rings: StreamConfig,
        options: StreamOptions,
        early: &[u8],
    ) -> (Stream, usize) {
        let lanes = self.sim.lanes(stack.host) as u64;
        let lane = LaneId(self.sim.random().below(lanes) as u16);
        let (mut end, slot) = stream(rings, lane, stack.netstack);
        let count = end.send.preload(early);
        end.shared().words().set_token(self.app.token());
        let connect = Connect { remote, local: None, stream: slot, options };
        let command = SocketCommand::Connect(Box::new(connect));
        self.sim.command(stack.host, lane, stack.netstack, command);
        (Stream { end, host: stack.host }, count)
    }

    /// Listens on every address of the family.
    pub fn listen(
        &mut self,
        stack: StackId,
        local: core::net::SocketAddr,
        backlog: usize,
        rings: StreamConfig,
        options: StreamOptions,
    ) -> Listener {
        let (end, slot) = listener(backlog);
        end.words().set_token(self.app.token());
        let socket = self.sim.next_socket(stack.host);
        let listen = Listen { socket, local, v6_only: true, shares: false, slot, rings, options };
        for n in 0..self.sim.lanes(stack.host) {
            let command = SocketCommand::Listen(Box::new(listen.clone()));
            self.sim.command(stack.host, LaneId(n as u16), stack.netstack, command);
        }
        Listener { end, socket, stack }
    }
}

/// A listening socket.
#[derive(Debug)]
pub struct Listener {
    end: ListenerEnd,
    socket: SocketId,
    stack: StackId,
}

impl Listener {
    /// The next connection. With `None` the application is told when there is one.
    pub fn accept(&self, cx: &mut Cx<'_>) -> Option<Stream> {
        let accepted = self.end.accept().or_else(|| {
            self.end.words().wait_for(Ready::READABLE);
            self.end.accept()
        })?;
        let Accepted { stream: end, .. } = accepted;
        end.shared().words().set_token(cx.app.token());
        Some(Stream { end, host: self.stack.host })
    }

    /// Ends it.
    pub fn close(self, cx: &mut Cx<'_>) {
        drop(self.end);
        for n in 0..cx.sim.lanes(self.stack.host) {
            let command = SocketCommand::Unlisten(self.socket);
            cx.sim.command(self.stack.host, LaneId(n as u16), self.stack.netstack, command);
        }
    }
}

/// A connection's application side.
#[derive(Debug)]
pub struct Stream {
    end: StreamEnd,
    host: usize,
}

impl Stream {
    /// Gives the stream to the application that runs.
    pub fn adopt(&self, cx: &Cx<'_>) {
        self.end.shared().words().set_token(cx.app.token());
    }

    /// Where connecting stands. With `Ok(false)` the application is told when it has ended.
    pub fn poll_connected(&self) -> Result<bool, SocketError> {
        if self.end.poll_connected()? {
            return Ok(true);
        }
        self.end.shared().words().wait_for(Ready::WRITABLE);
        self.end.poll_connected()
    }

    /// Writes what has room; when nothing has, the application is told when something does.
    pub fn write(&mut self, cx: &mut Cx<'_>, bytes: &[u8]) -> Result<usize, WriteError> {
        let mut written = self.end.send.write(bytes);
        if written == Err(WriteError::WouldBlock) {
            self.end.shared().words().wait_for(Ready::WRITABLE);
            written = self.end.send.write(bytes);
        }
        if written.is_ok() {
            let nudge = self.end.send.nudge();
            self.pass_on(cx, nudge);
        } else if self.end.send.is_cramped() {
            self.kick(cx);
        }
        written
    }

    /// Reads what there is; when there is nothing, the application is told when something comes.
    pub fn read(&mut self, cx: &mut Cx<'_>, to: &mut [u8]) -> Result<usize, ReadError> {
        let mut read = self.end.recv.read(to);
        if read == Err(ReadError::WouldBlock) {
            self.end.shared().words().wait_for(Ready::READABLE);
            read = self.end.recv.read(to);
        }
        let nudge = self.end.recv.nudge();
        self.pass_on(cx, nudge);
        read
    }

    /// Bytes that could be written now.
    pub fn room(&self) -> usize {
        self.end.send.room()
    }

    /// Whether the lane has forgotten it.
    pub fn is_closed(&self) -> bool {
        self.end.shared().words().flags().contains(Flags::CLOSED)
    }

    /// What its lane knows of it, while it lives there.
    pub fn info(&self, sim: &Sim) -> Option<StreamInfo> {
        let shared = self.end.shared();
        sim.stream_info(self.host, shared.lane(), shared.conn()?)
    }

    fn pass_on(&self, cx: &mut Cx<'_>, Nudge { kick, wake }: Nudge) {
        if kick {
            self.kick(cx);
        }
        if let Some((token, ready)) = wake {
            cx.sim.wake(token, ready);
        }
    }

    fn kick(&self, cx: &mut Cx<'_>) {
        let shared = self.end.shared();
        let conn = shared.conn().expect("bytes pass only once the connection is made");
        cx.sim.kick(self.host, shared.lane(), shared.netstack(), conn);
    }

    /// Writes no more.
    pub fn shutdown(&mut self, cx: &mut Cx<'_>) {
        self.end.send.shut();
        self.command(cx, SocketCommand::Shutdown);
    }

    /// Closes it: what was written is still delivered.
    pub fn close(self, cx: &mut Cx<'_>) {
        self.command(cx, SocketCommand::Close);
    }

    /// Resets it.
    pub fn abort(self, cx: &mut Cx<'_>) {
        self.command(cx, SocketCommand::Abort);
    }

    fn command(&self, cx: &mut Cx<'_>, command: impl FnOnce(firelane_socket::ConnRef) -> SocketCommand) {
        let shared = self.end.shared();
        // A connection that could not be made has nothing to be told.
        if let Some(conn) = shared.conn() {
            cx.sim.command(self.host, shared.lane(), shared.netstack(), command(conn));
        }
    }
}

/// The mode by which an application enters a lane: any of the three is right.
pub(crate) fn any_mode(random: &mut Random) -> Mode {
    random.pick(&[Mode::Process, Mode::Process, Mode::NoDrain, Mode::Fill])
}

/// A span from now.
pub(crate) fn later(cx: &Cx<'_>, span: Duration) -> Next {
    Next::Until(cx.now() + span)
}
