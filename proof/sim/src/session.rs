//! What the two ends of a connection say to each other, and whether they heard it right.
//!
//! The client's stream begins with a greeting that carries the whole plan, so that the server knows what to
//! answer and what to expect. After it, each direction is a pattern that follows from the plan's seed: every
//! byte is compared with the one that belongs there. A plan says who writes when, who closes first, who reads
//! slowly, who gives up in the middle.

use std::time::Duration;

use firelane_lane::StreamOptions;
use firelane_socket::{ReadError, SocketError, StreamConfig, WriteError};
use firelane_tcp::Keepalive;

use crate::app::{App, Cx, Listener, Next, Stream, later};
use crate::host::StackId;
use crate::random::{Pattern, Random};

/// Which end of a session.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Side {
    /// The one that connected.
    Client,
    /// The one that accepted.
    Server,
}

/// Who closes first.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Closing {
    /// The client, when it has everything.
    Client,
    /// The server, when it has everything; the client when it has seen the end.
    Server,
    /// Each when it has everything.
    Both,
    /// The client shuts its side when it has written everything; the server answers when it has seen the end.
    Half,
}

/// A session.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Plan {
    /// From which both patterns follow.
    pub seed: u64,
    /// How often the client asks and the server answers; both write freely if it is zero.
    pub rounds: u32,
    /// What the client writes, per round if there are any.
    pub up: u64,
    /// What the server writes, per round if there are any.
    pub down: u64,
    /// Who closes first.
    pub closing: Closing,
    /// Who gives up after so many bytes, read and written.
    pub abort: Option<(Side, u64)>,
    /// The most that is written at once.
    pub chunk: u64,
    /// The most that is read at once, and how long the reader waits between reads.
    pub pace: (u64, Duration),
}

const GREETING: usize = 72;

impl Plan {
    /// The client writes `bytes` and closes.
    pub const fn upload(seed: u64, bytes: u64) -> Self {
        Self {
            seed,
            rounds: 0,
            up: bytes,
            down: 0,
            closing: Closing::Client,
            abort: None,
            chunk: 64 * 1024,
            pace: (64 * 1024, Duration::ZERO),
        }
    }

    /// The client asks `rounds` times with `up` bytes and gets `down` bytes each time.
    pub const fn requests(seed: u64, rounds: u32, up: u64, down: u64) -> Self {
        Self { rounds, up, down, ..Self::upload(seed, 0) }
    }

    /// Any plan, of about `bytes` bytes at most.
    pub fn random(random: &mut Random, bytes: u64) -> Self {
        let mut plan = Self::upload(random.bits(), 0);
        match random.below(6) {
            0 | 1 => plan.up = random.size(1..bytes),
            2 => plan.down = random.size(1..bytes),
            3 => (plan.up, plan.down) = (random.size(1..bytes / 2), random.size(1..bytes / 2)),
            4 => {
                plan.rounds = random.size(1..60) as u32;
                (plan.up, plan.down) = (random.size(1..4000), random.size(1..20_000));
            }
            _ => (plan.up, plan.down) = (random.below(3), random.below(3)),
        }
        plan.closing = random.pick(&[Closing::Client, Closing::Server, Closing::Both, Closing::Half]);
        plan.chunk = random.size(1..200_000).max(bytes / 200);
        if random.one_in(4) {
            plan.pace = (random.size(100..50_000).max(bytes / 100), random.micros(1..30_000));
        }
        if random.one_in(6) {
            let side = random.pick(&[Side::Client, Side::Server]);
            plan.abort = Some((side, random.below(plan.total(side) + 1)));
        }
        plan
    }

    /// Everything that one side writes.
    pub fn writes(&self, side: Side) -> u64 {
        let rounds = u64::from(self.rounds.max(1));
        match side {
            Side::Client => GREETING as u64 + rounds * self.up,
            Side::Server => rounds * self.down,
        }
    }

    fn total(&self, side: Side) -> u64 {
        self.writes(side) + self.writes(side.peer())
    }

    /// How much `side` may have written once it has read `read` and seen the peer's end or not.
    fn allowance(&self, side: Side, read: u64, peer_ended: bool) -> u64 {
        let all = self.writes(side);
        if side == Side::Server && self.closing == Closing::Half {
            return if peer_ended { all } else { 0 };
        }
        if self.rounds == 0 || self.closing == Closing::Half {
            return all;
        }
        match side {
            Side::Client => {
                let answered = read.checked_div(self.down).unwrap_or(u64::from(self.rounds));
                (GREETING as u64 + (answered + 1) * self.up).min(all)
            }
            Side::Server => {
                let text = read.saturating_sub(GREETING as u64);
                let asked = text.checked_div(self.up).unwrap_or(u64::from(self.rounds));
                (asked * self.down).min(all)
            }
        }
    }

    fn pattern(&self, side: Side) -> Pattern {
        Pattern(if side == Side::Client { self.seed } else { !self.seed })
    }

    fn greeting(&self) -> [u8; GREETING] {
        let (side, after) = self.abort.map_or((0, 0), |(side, after)| (1 + side as u64, after));
        let words = [
            self.seed,
            self.rounds.into(),
            self.up,
            self.down,
            self.closing as u64 | side << 8,
            after,
            self.chunk,
            self.pace.0,
            self.pace.1.as_nanos() as u64,
        ];
        let mut bytes = [0; GREETING];
        for (place, word) in bytes.chunks_mut(8).zip(words) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    /// The plan in a greeting, which is right or the bytes were not those that were sent.
    fn of(greeting: &[u8; GREETING]) -> Self {
        let word =
            |n: usize| u64::from_le_bytes(greeting[n * 8..][..8].try_into().expect("a word has eight bytes"));
        let closing = [Closing::Client, Closing::Server, Closing::Both, Closing::Half];
        let side = [None, Some(Side::Client), Some(Side::Server)][(word(4) >> 8) as usize];
        let plan = Self {
            seed: word(0),
            rounds: word(1) as u32,
            up: word(2),
            down: word(3),
            closing: closing[(word(4) & 0xff) as usize],
            abort: side.map(|side| (side, word(5))),
            chunk: word(6),
            pace: (word(7), Duration::from_nanos(word(8))),
        };
        assert_eq!(plan.greeting(), *greeting, "the greeting arrives as it was sent");
        plan
    }
}

impl Side {
    /// The other one.
    pub const fn peer(self) -> Self {
        match self {
            Self::Client => Self::Server,
            Self::Server => Self::Client,
        }
    }
}

/// How one side of a session ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ending {
    /// Which session: its plan's seed; zero if the server never learned it.
    pub session: u64,
    /// Which side.
    pub side: Side,
    /// How.
    pub outcome: Outcome,
    /// Bytes that it wrote and read.
    pub bytes: (u64, u64),
}

/// What one side of a session came to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// It wrote everything, read everything, and saw the end if it waited for it.
    Complete,
    /// It gave up, as planned.
    Aborted,
    /// The connection failed.
    Failed(SocketError),
    /// The end came before everything had.
    Truncated,
}

/// The ring sizes of an application's sockets and the options that they start with.
#[derive(Clone, Copy, Debug)]
pub struct SocketConfig {
    /// The rings.
    pub rings: StreamConfig,
    /// The options.
    pub options: StreamOptions,
}

impl SocketConfig {
    /// Rings of `bytes` each; a peer that has vanished is noticed after some 20 s.
    pub fn of(bytes: usize) -> Self {
        let rings = StreamConfig { send_capacity: bytes, recv_capacity: bytes };
        let (idle, interval) = (Duration::from_secs(10), Duration::from_secs(2));
        let keepalive = Some(Keepalive { idle, interval, probes: 8 });
        Self { rings, options: StreamOptions { keepalive, ..StreamOptions::default() } }
    }
}

/// One side of a session.
pub struct Session {
    /// Taken when it is closed.
    stream: Option<Stream>,
    side: Side,
    plan: Plan,
    written: u64,
    read: u64,
    saw_end: bool,
    is_shut: bool,
    /// When the slow reader reads again.
    reads_at: firelane_units::Instant,
    buffer: Vec<u8>,
}

/// Pieces that one turn moves at most, so that others have theirs.
const PIECES_MAX: usize = 16;

impl Session {
    fn new(stream: Stream, side: Side, plan: Plan) -> Self {
        Self {
            stream: Some(stream),
            side,
            plan,
            written: 0,
            read: 0,
            saw_end: false,
            is_shut: false,
            reads_at: firelane_units::Instant::ZERO,
            buffer: vec![0; plan.chunk.max(plan.pace.0).max(GREETING as u64) as usize],
        }
    }

    fn end(&mut self, cx: &mut Cx<'_>, outcome: Outcome) -> Next {
        if let Some(stream) = self.stream.take() {
            match outcome {
                Outcome::Aborted => stream.abort(cx),
                _ => stream.close(cx),
            }
        }
        let (session, side) = (self.plan.seed, self.side);
        cx.sim().note(Ending { session, side, outcome, bytes: (self.written, self.read) });
        Next::Done
    }

    fn abort_at(&self) -> Option<u64> {
        self.plan.abort.filter(|&(side, _)| side == self.side).map(|(_, after)| after)
    }

    /// Writes one piece. `Ok(true)` if something was written.
    fn write_some(&mut self, cx: &mut Cx<'_>) -> Result<bool, Outcome> {
        let allowed = self.plan.allowance(self.side, self.read, self.saw_end);
        let Some(stream) = self.stream.as_mut().filter(|_| self.written < allowed) else { return Ok(false) };
        let mut len = (allowed - self.written).min(cx.random().within(1..self.plan.chunk + 1));
        let greeting = if self.side == Side::Client { GREETING as u64 } else { 0 };
        // What has no room is not made; one byte at least, so that the stream says why.
        len = len.min(stream.room() as u64).max(1);
        if self.written < greeting {
            let rest = &self.plan.greeting()[self.written as usize..];
            len = rest.len() as u64;
            self.buffer[..rest.len()].copy_from_slice(rest);
        } else {
            let left = self.plan.abort.filter(|&(side, _)| side == self.side);
            let moved = self.written + self.read;
            len = len.min(left.map_or(u64::MAX, |(_, at)| at.saturating_sub(moved).max(1)));
            let place = self.written - greeting;
            self.plan.pattern(self.side).fill(place, &mut self.buffer[..len as usize]);
        }
        match stream.write(cx, &self.buffer[..len as usize]) {
            Ok(count) => {
                self.written += count as u64;
                Ok(true)
            }
            Err(WriteError::WouldBlock) => Ok(false),
            Err(WriteError::Failed(error)) => Err(Outcome::Failed(error)),
            // The reader learns why.
            Err(WriteError::Closed) => Ok(false),
        }
    }

    fn moved(&self) -> u64 {
        self.written + self.read
    }

    /// Reads one piece and compares it. `Ok(true)` if something was read.
    fn read_some(&mut self, cx: &mut Cx<'_>) -> Result<bool, Outcome> {
        let (most, pause) = self.plan.pace;
        let Some(stream) = self.stream.as_mut().filter(|_| !self.saw_end && self.reads_at <= cx.sim.now())
        else {
            return Ok(false);
        };
        let count = match stream.read(cx, &mut self.buffer[..most as usize]) {
            Ok(0) => {
                self.saw_end = true;
                let is_all = self.read == self.plan.writes(self.side.peer());
                return if is_all { Ok(true) } else { Err(Outcome::Truncated) };
            }
            Ok(count) => count,
            Err(ReadError::WouldBlock) => return Ok(false),
            Err(ReadError::Failed(error)) => return Err(Outcome::Failed(error)),
        };
        // The greeting was read before the session began.
        let at = self.read - if self.side == Side::Server { GREETING as u64 } else { 0 };
        let wrong = self.plan.pattern(self.side.peer()).first_wrong(at, &self.buffer[..count]);
        assert_eq!(wrong, None, "{:?} reads a wrong byte, of {:?}", self.side, self.plan);
        self.read += count as u64;
        assert!(self.read <= self.plan.writes(self.side.peer()), "more than was written: {:?}", self.plan);
        self.reads_at = cx.sim.now() + pause;
        Ok(true)
    }

    /// What follows when nothing moves at present.
    fn conclude(&mut self, cx: &mut Cx<'_>) -> Option<Next> {
        let has_written = self.written == self.plan.writes(self.side);
        let has_read = self.read == self.plan.writes(self.side.peer());
        let closes_first = match self.plan.closing {
            Closing::Client => self.side == Side::Client,
            Closing::Server => self.side == Side::Server,
            Closing::Both => true,
            Closing::Half => self.side == Side::Server,
        };
        if self.plan.closing == Closing::Half && self.side == Side::Client && has_written && !self.is_shut {
            self.is_shut = true;
            if let Some(stream) = &mut self.stream {
                stream.shutdown(cx);
            }
        }
        (has_written && has_read && (closes_first || self.saw_end)).then(|| self.end(cx, Outcome::Complete))
    }

    fn step(&mut self, cx: &mut Cx<'_>) -> Result<Next, Outcome> {
        for _ in 0..PIECES_MAX {
            if self.abort_at().is_some_and(|at| self.moved() >= at) {
                return Err(Outcome::Aborted);
            }
            let moved = self.write_some(cx)? | self.read_some(cx)?;
            if let Some(next) = self.conclude(cx) {
                return Ok(next);
            }
            if !moved {
                return Ok(match self.reads_at > cx.now() {
                    true => Next::Until(self.reads_at),
                    false => Next::Wait,
                });
            }
        }
        Ok(Next::Again)
    }
}

impl App for Session {
    fn turn(&mut self, cx: &mut Cx<'_>) -> Next {
        self.step(cx).unwrap_or_else(|outcome| self.end(cx, outcome))
    }

    fn describe(&self) -> String {
        format!(
            "{:?} of {:?}: wrote {} read {} end {}",
            self.side, self.plan, self.written, self.read, self.saw_end
        )
    }
}

/// A client: connects when its time has come, again where it is told that nobody is there, then plays its side.
#[derive(Clone, Copy)]
pub struct Client {
    stack: StackId,
    remote: core::net::SocketAddr,
    plan: Plan,
    sockets: SocketConfig,
    wait: Duration,
}

impl Client {
    /// A client on `stack` that connects to `remote` after `wait`.
    pub fn boxed(
        stack: StackId,
        remote: core::net::SocketAddr,
        plan: Plan,
        sockets: SocketConfig,
        wait: Duration,
    ) -> Box<dyn App> {
        Box::new(Self { stack, remote, plan, sockets, wait })
    }
}

impl App for Client {
    fn turn(&mut self, cx: &mut Cx<'_>) -> Next {
        let wait = core::mem::take(&mut self.wait);
        if wait > Duration::ZERO {
            return later(cx, wait);
        }
        let SocketConfig { rings, options } = self.sockets;
        let greeting = self.plan.greeting();
        let early: &[u8] = if options.fast_open { &greeting } else { &[] };
        let (stream, written) = cx.connect_with(self.stack, self.remote, rings, options, early);
        let mut session = Session::new(stream, Side::Client, self.plan);
        session.written = written as u64;
        // The session adopts the stream when it runs for the first time.
        cx.spawn(Box::new(Adopting { session, client: *self, is_connected: false }));
        Next::Done
    }

    fn describe(&self) -> String {
        format!("a client to come: {:?}", self.plan)
    }
}

/// How long a client waits before it connects again.
const CONNECTS_AGAIN: Duration = Duration::from_secs(1);

/// A session whose stream still tells another application.
struct Adopting {
    session: Session,
    client: Client,
    is_connected: bool,
}

impl Adopting {
    /// Whether the connection stands. An error is told once.
    fn connected(&self) -> Result<bool, SocketError> {
        let stands = self.session.stream.as_ref().filter(|_| !self.is_connected);
        stands.map_or(Ok(true), Stream::poll_connected)
    }

    /// Nobody has told the next hop's address: it, or the wires, did not work for some seconds. Programs try again.
    fn begin_again(&mut self, cx: &mut Cx<'_>) -> Next {
        if let Some(stream) = self.session.stream.take() {
            stream.close(cx);
        }
        cx.spawn(Box::new(Client { wait: CONNECTS_AGAIN, ..self.client }));
        Next::Done
    }
}

impl App for Adopting {
    fn turn(&mut self, cx: &mut Cx<'_>) -> Next {
        if let Some(stream) = &self.session.stream {
            stream.adopt(cx);
        }
        match self.connected() {
            Ok(false) => return Next::Wait,
            Ok(true) => self.is_connected = true,
            Err(SocketError::HostUnreachable) => return self.begin_again(cx),
            Err(error) => return self.session.end(cx, Outcome::Failed(error)),
        }
        self.session.turn(cx)
    }

    fn describe(&self) -> String {
        format!("{} connected {}", self.session.describe(), self.is_connected)
    }
}

/// A server: accepts, and plays the other side of whatever is asked for.
pub struct Server {
    stack: StackId,
    local: core::net::SocketAddr,
    sockets: SocketConfig,
    listener: Option<Listener>,
}

impl Server {
    /// A server on `stack` that listens at `local`.
    pub fn boxed(stack: StackId, local: core::net::SocketAddr, sockets: SocketConfig) -> Box<dyn App> {
        Box::new(Self { stack, local, sockets, listener: None })
    }
}

impl App for Server {
    fn turn(&mut self, cx: &mut Cx<'_>) -> Next {
        let (stack, local, sockets) = (self.stack, self.local, self.sockets);
        let listener =
            self.listener.get_or_insert_with(|| cx.listen(stack, local, 128, sockets.rings, sockets.options));
        while let Some(stream) = listener.accept(cx) {
            cx.spawn(Box::new(Greeted { stream: Some(stream), got: Vec::new(), session: None }));
        }
        Next::Wait
    }

    fn describe(&self) -> String {
        format!("a server at {}", self.local)
    }

    fn must_end(&self) -> bool {
        false
    }
}

/// An accepted connection whose greeting is awaited; then the server's session.
struct Greeted {
    stream: Option<Stream>,
    got: Vec<u8>,
    session: Option<Session>,
}

impl Greeted {
    fn end(&mut self, cx: &mut Cx<'_>, outcome: Outcome) -> Next {
        if let Some(stream) = self.stream.take() {
            stream.close(cx);
        }
        let bytes = (0, self.got.len() as u64);
        cx.sim().note(Ending { session: 0, side: Side::Server, outcome, bytes });
        Next::Done
    }
}

impl App for Greeted {
    fn turn(&mut self, cx: &mut Cx<'_>) -> Next {
        if let Some(session) = &mut self.session {
            return session.turn(cx);
        }
        while self.got.len() < GREETING {
            let Some(stream) = &mut self.stream else { return Next::Done };
            stream.adopt(cx);
            let mut buffer = [0; GREETING];
            let most = GREETING - self.got.len();
            match stream.read(cx, &mut buffer[..most]) {
                Ok(0) => return self.end(cx, Outcome::Truncated),
                Ok(count) => self.got.extend_from_slice(&buffer[..count]),
                Err(ReadError::WouldBlock) => return Next::Wait,
                Err(ReadError::Failed(error)) => return self.end(cx, Outcome::Failed(error)),
            }
        }
        let greeting = self.got.as_slice().try_into().expect("the greeting is read whole");
        let Some(stream) = self.stream.take() else { return Next::Done };
        let mut session = Session::new(stream, Side::Server, Plan::of(&greeting));
        session.read = GREETING as u64;
        self.session.insert(session).turn(cx)
    }

    fn describe(&self) -> String {
        match &self.session {
            Some(session) => session.describe(),
            None => format!("a server's connection with {} bytes of its greeting", self.got.len()),
        }
    }
}
