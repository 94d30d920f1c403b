//! The thread of an interface: its control socket, its doorbells, its sessions.
//!
//! Started by `open.rs`; ends when the last queue is dropped. It sleeps in poll(2) unless something happens. It is
//! the only one that writes to descriptors which the other process has: if that makes it wait, it is this interface
//! alone that stands still, until that process has gone (`doorbell.rs`).

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::Shutdown;

use crate::config::{MemifConfig, Role};
use crate::doorbell::Doorbells;
use crate::handshake::{Beside, ClientHandshake, ClientStep, Peer, Refusal, ServerHandshake, ServerStep};
use crate::message::{Message, Name, UnknownType};
use crate::seat::{Shared, Standing};
use crate::session::{Bells, ClientMemory, Pair, accept};
use crate::wire::{self, Arrival};

/// A handshake that takes longer is given up: the next client waits.
const HANDSHAKE: Duration = Duration::from_secs(2);
/// A client's first and longest pause between two attempts.
const RETRY: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(2));
/// Messages that are taken from a connection before the others have their turn.
const MESSAGES_PER_ROUND: usize = 64;
/// Clients that are taken or sent away before the one that is there has its turn.
const CLIENTS_PER_ROUND: usize = 16;
/// How long no client is taken when there is no descriptor for one: he waits, and asking again at once would take a CPU.
const REST: Duration = Duration::from_secs(1);

/// What is said of messages that cannot be taken; the other end is told the first 95 bytes.
const MALFORMED: &str = "a message is not 128 bytes long, or has more descriptors than any has";
const NO_ROOM: &str = "no descriptor left in this process for what came with a message (RLIMIT_NOFILE)";

/// How far a connection is.
#[derive(Debug)]
enum Stage {
    Server(ServerHandshake),
    Client(ClientHandshake, Option<ClientMemory>),
    Running,
}

#[derive(Debug)]
struct Connection {
    socket: OwnedFd,
    stage: Stage,
    began: Instant,
    doorbells: Arc<Doorbells>,
}

impl Connection {
    fn new(socket: OwnedFd, stage: Stage, began: Instant) -> Self {
        Self { socket, stage, began, doorbells: Doorbells::new(Vec::new()) }
    }
}

/// Runs an interface.
#[derive(Debug)]
pub(crate) struct Keeper {
    config: MemifConfig,
    shared: Arc<Shared>,
    listener: Option<OwnedFd>,
    connection: Option<Connection>,
    epoch: u64,
    retry_at: Instant,
    pause: Duration,
    /// Until when no client is taken.
    rests_until: Option<Instant>,
}

/// How a connection ended.
enum End {
    /// The other end is gone or has said goodbye.
    Theirs(String),
    /// One end refuses the other.
    Refused(Refusal),
    /// We end it for what the other end has done, and say what.
    Ours(String),
    /// We go ourselves.
    Removed,
}

impl From<Refusal> for End {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

impl End {
    /// What the other end is told: nothing if it knows.
    fn told(&self) -> Option<String> {
        match self {
            Self::Theirs(_) | Self::Refused(Refusal::Told(_)) => None,
            Self::Refused(refusal) => Some(refusal.to_string()),
            Self::Ours(why) => Some(why.clone()),
            Self::Removed => Some("the interface was removed".to_owned()),
        }
    }

    /// What is known here.
    fn standing(self, config: &MemifConfig) -> Standing {
        match self {
            Self::Theirs(why) => Standing::Waiting(Some(why)),
            Self::Removed => Standing::Waiting(None),
            Self::Ours(why) => Standing::Failed(why),
            Self::Refused(refusal) => match refusal.remedy(config) {
                Some(remedy) => Standing::Failed(format!("{refusal}; {remedy}")),
                None => Standing::Failed(refusal.to_string()),
            },
        }
    }
}

/// Why a client has reached no server.
fn unreached(error: &io::Error) -> Standing {
    match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => {
            Standing::Waiting(Some("nobody listens there".to_owned()))
        }
        io::ErrorKind::WouldBlock => Standing::Waiting(Some("too many clients wait there".to_owned())),
        io::ErrorKind::PermissionDenied => Standing::Failed(format!(
            "{error}; this process needs the right to write to `socket` and to go through its folders"
        )),
        _ => Standing::Failed(format!(
            "{error}; `socket` has to be the path of the server's socket (SOCK_SEQPACKET)"
        )),
    }
}

impl Keeper {
    pub(crate) fn new(config: MemifConfig, shared: Arc<Shared>, listener: Option<OwnedFd>) -> Self {
        let (epoch, connection, rests_until) = (0, None, None);
        let (retry_at, pause) = (Instant::now(), RETRY.0);
        Self { config, shared, listener, connection, epoch, retry_at, pause, rests_until }
    }

    pub(crate) fn run(mut self) {
        loop {
            // First, because the bell that tells of the end is rung once.
            self.shared.clear_bell();
            let has_stopped = self.shared.has_stopped();
            // What queues have handed back before they ended is there once they have.
            drop(self.shared.take_left());
            if has_stopped {
                break;
            }
            self.ring_doorbells();
            let now = Instant::now();
            if let Err(end) = self.look_after_connection(now) {
                self.end(end, now);
            }
            match self.config.role {
                Role::Server => self.look_for_clients(now),
                Role::Client => self.look_for_server(now),
            }
            self.sleep(now);
        }
        if self.connection.is_some() {
            self.end(End::Removed, Instant::now());
        }
    }

    fn ring_doorbells(&self) {
        let wanted = self.shared.take_doorbells();
        if let Some(connection) = &self.connection {
            connection.doorbells.ring(wanted);
        }
    }

    fn look_after_connection(&mut self, now: Instant) -> Result<(), End> {
        if let Some(fault) = self.shared.take_fault(self.epoch) {
            return Err(End::Ours(fault.to_string()));
        }
        for _ in 0..MESSAGES_PER_ROUND {
            let Some(connection) = &mut self.connection else { return Ok(()) };
            match wire::receive(&connection.socket) {
                Arrival::Message(bytes, fds) => {
                    let message = Message::decode(&bytes);
                    let message = message.map_err(|UnknownType(kind)| Refusal::UnknownType(kind))?;
                    self.take(message, fds)?;
                }
                Arrival::Malformed => return Err(End::Ours(MALFORMED.into())),
                Arrival::NoRoom => return Err(End::Ours(NO_ROOM.into())),
                Arrival::End => return Err(End::Theirs("the other end has gone".into())),
                Arrival::Nothing => break,
            }
        }
        match &self.connection {
            Some(Connection { stage: Stage::Running, .. }) | None => Ok(()),
            Some(it) if now.duration_since(it.began) < HANDSHAKE => Ok(()),
            Some(_) => Err(End::Ours("the handshake took too long".into())),
        }
    }

    fn take(&mut self, message: Message, fds: Vec<OwnedFd>) -> Result<(), End> {
        let Some(connection) = &mut self.connection else { return Ok(()) };
        match &mut connection.stage {
            Stage::Running => match message {
                Message::Disconnect { reason, .. } => {
                    let told = Refusal::Told(crate::message::reason_text(&reason));
                    Err(End::Theirs(told.to_string()))
                }
                _ => Err(Refusal::Unexpected(message.number()).into()),
            },
            Stage::Server(handshake) => match handshake.take(message, fds)? {
                ServerStep::Send(answer) => say(&connection.socket, &answer),
                ServerStep::Connect(offer, peer) => {
                    let (pairs, bells) = accept(offer)?;
                    say(&connection.socket, &Message::Connected(Name::new(&self.config.name)))?;
                    self.begin(pairs, bells, peer)
                }
            },
            Stage::Client(handshake, memory) => match handshake.take(message, &fds)? {
                ClientStep::Make(plan) => {
                    let made = ClientMemory::make(plan);
                    *memory = Some(
                        made.map_err(|error| Refusal::Memory(error.raw_os_error().unwrap_or_default()))?,
                    );
                    say(&connection.socket, &handshake.first())
                }
                ClientStep::Send(message, beside) => say_with(connection, &message, beside),
                ClientStep::Connected(peer) => {
                    let memory = memory.take().ok_or(Refusal::Unexpected(message.number()))?;
                    self.begin(memory.pairs, memory.bells, peer)
                }
            },
        }
    }

    /// Hands a session to the queues.
    fn begin(&mut self, pairs: Vec<Pair>, bells: Vec<Bells>, peer: Peer) -> Result<(), End> {
        let Some(connection) = &mut self.connection else { return Ok(()) };
        connection.stage = Stage::Running;
        connection.doorbells = Doorbells::new(bells);
        let watched = connection.doorbells.watch(&connection.socket, &self.shared);
        watched.map_err(|error| Refusal::Memory(error.raw_os_error().unwrap_or_default()))?;
        self.epoch += 1;
        self.pause = RETRY.0;
        self.shared.set_connected(peer);
        for ((seat, mut pair), bells) in self.shared.seats.iter().zip(pairs).zip(connection.doorbells.iter())
        {
            let watched = seat.watch(&bells.receive);
            watched.map_err(|error| Refusal::Memory(error.raw_os_error().unwrap_or_default()))?;
            pair.receiver.begin();
            seat.put(self.epoch, Some(pair));
        }
        Ok(())
    }

    /// Takes the session back from the queues and says goodbye.
    fn end(&mut self, end: End, now: Instant) {
        let Some(connection) = self.connection.take() else { return };
        self.epoch += 1;
        for (seat, bells) in self.shared.seats.iter().zip(connection.doorbells.iter()) {
            seat.forget(&bells.receive);
        }
        for seat in &self.shared.seats {
            seat.put(self.epoch, None);
        }
        if let Some(why) = end.told() {
            // Who does not read it has gone anyway.
            let _ = wire::send(&connection.socket, &Message::disconnect(&why), None);
        }
        // Who watches the socket has it, too: letting it go would end nothing.
        let _ = rustix::net::shutdown(&connection.socket, Shutdown::Both);
        self.shared.set_standing(end.standing(&self.config));
        self.put_off(now);
    }

    fn put_off(&mut self, now: Instant) {
        self.retry_at = now + self.pause;
        self.pause = (self.pause * 2).min(RETRY.1);
    }

    /// A server: takes the next client, or tells it that there is one.
    fn look_for_clients(&mut self, now: Instant) {
        self.rests_until = self.rests_until.filter(|&until| now < until);
        for _ in 0..CLIENTS_PER_ROUND {
            let Some(listener) = self.ready_listener() else { return };
            let socket = match wire::accept(listener) {
                Ok(Some(socket)) => socket,
                Ok(None) => return,
                Err(error) => return self.rest(&error, now),
            };
            if self.connection.is_some() {
                let _ = wire::send(&socket, &Message::disconnect("already connected"), None);
                continue;
            }
            let handshake = ServerHandshake::new(&self.config);
            if wire::send(&socket, &handshake.hello(), None).is_ok() {
                let stage = Stage::Server(handshake);
                self.connection = Some(Connection::new(socket, stage, now));
            }
        }
    }

    /// A client: tries to connect.
    fn look_for_server(&mut self, now: Instant) {
        if self.connection.is_some() || now < self.retry_at {
            return;
        }
        match wire::connect(&self.config.socket) {
            Ok(socket) => {
                let stage = Stage::Client(ClientHandshake::new(&self.config), None);
                self.connection = Some(Connection::new(socket, stage, now));
            }
            Err(error) => {
                self.shared.set_standing(unreached(&error));
                self.put_off(now);
            }
        }
    }

    /// The socket, if a client that comes there is taken.
    fn ready_listener(&self) -> Option<&OwnedFd> {
        self.listener.as_ref().filter(|_| self.rests_until.is_none() && !self.is_shaking_hands())
    }

    fn rest(&mut self, why: &io::Error, now: Instant) {
        if self.connection.is_none() {
            self.shared.set_standing(Standing::Failed(format!("no client is taken: {why}")));
        }
        self.rests_until = Some(now + REST);
    }

    fn is_shaking_hands(&self) -> bool {
        self.connection.as_ref().is_some_and(|it| !matches!(it.stage, Stage::Running))
    }

    fn sleep(&self, now: Instant) {
        let mut fds = vec![PollFd::from_borrowed_fd(self.shared.bell(), PollFlags::IN)];
        if let Some(connection) = &self.connection {
            fds.push(PollFd::new(&connection.socket, PollFlags::IN));
        }
        if let Some(listener) = self.ready_listener() {
            fds.push(PollFd::new(listener, PollFlags::IN));
        }
        let until = match &self.connection {
            Some(it) if self.is_shaking_hands() => Some(it.began + HANDSHAKE),
            None if self.config.role == Role::Client => Some(self.retry_at),
            _ => None,
        };
        let until = until.into_iter().chain(self.rests_until).min();
        let limit = until.map(|until| until.saturating_duration_since(now) + Duration::from_millis(1));
        let limit = limit
            .map(|it| Timespec { tv_sec: it.as_secs().cast_signed(), tv_nsec: it.subsec_nanos().into() });
        // An interrupted or failed wait is a round too many; the next one waits again.
        let _ = poll(&mut fds, limit.as_ref());
    }
}

fn say(socket: &OwnedFd, message: &Message) -> Result<(), End> {
    wire::send(socket, message, None).map_err(|error| End::Theirs(format!("control socket: {error}")))
}

fn say_with(connection: &Connection, message: &Message, beside: Beside) -> Result<(), End> {
    use std::os::fd::AsFd;
    let Stage::Client(_, Some(memory)) = &connection.stage else { return Ok(()) };
    let fd = match beside {
        Beside::Nothing => None,
        Beside::Region => Some(memory.memfd.as_fd()),
        Beside::Bell { to_server: true, queue } => Some(memory.bells[usize::from(queue)].send.as_fd()),
        Beside::Bell { to_server: false, queue } => Some(memory.bells[usize::from(queue)].receive.as_fd()),
    };
    wire::send(&connection.socket, message, fd)
        .map_err(|error| End::Theirs(format!("control socket: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::UdpSocket;

    #[test]
    fn who_cannot_accept_does_not_try_at_once_again() {
        // A datagram waits where `accept` has nothing to take: it fails, and goes on being told of.
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.send_to(b"x", socket.local_addr().unwrap()).unwrap();
        let shared = Arc::new(Shared::new(1).unwrap());
        let config = MemifConfig::new(Role::Server, "none");
        let mut keeper = Keeper::new(config, shared, Some(socket.into()));
        let now = Instant::now();
        keeper.look_for_clients(now);
        keeper.sleep(now);
        assert!(now.elapsed() >= REST, "{:?}", now.elapsed());
        keeper.look_for_clients(now + REST - Duration::from_millis(1));
        assert_eq!(keeper.rests_until, Some(now + REST), "nobody was asked for");
        keeper.look_for_clients(now + REST);
        assert_eq!(keeper.rests_until, Some(now + 2 * REST), "it has tried again");
    }

    #[test]
    fn who_has_to_set_it_right_that_a_client_reaches_no_server_is_told_how() {
        let standing = |errno: rustix::io::Errno| unreached(&errno.into());
        for errno in [rustix::io::Errno::NOENT, rustix::io::Errno::CONNREFUSED] {
            assert_eq!(standing(errno), Standing::Waiting(Some("nobody listens there".to_owned())));
        }
        assert!(matches!(standing(rustix::io::Errno::AGAIN), Standing::Waiting(Some(_))));
        for (errno, advice) in [
            (rustix::io::Errno::ACCESS, "the right to write to `socket`"),
            (rustix::io::Errno::PROTOTYPE, "has to be the path"),
        ] {
            let told = standing(errno);
            assert!(matches!(&told, Standing::Failed(why) if why.contains(advice)), "{told:?}");
        }
    }

    /// The end may come at any moment of the thread's first round.
    #[test]
    fn a_server_that_is_removed_at_once_leaves_no_thread() {
        let folder = std::env::temp_dir().join(format!("firelane-keeper-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let config = MemifConfig::new(Role::Server, folder.join("s"));
        for _ in 0..30 {
            let ended = (0..100u64).map(|micros| {
                let (queues, status) = crate::open(&config).unwrap();
                let begin = Instant::now();
                while begin.elapsed() < Duration::from_micros(micros) {
                    std::hint::spin_loop();
                }
                drop(queues);
                status.0
            });
            let ended: Vec<Arc<Shared>> = ended.collect();
            let begin = Instant::now();
            while ended.iter().any(|shared| Arc::strong_count(shared) > 1) {
                assert!(begin.elapsed() < Duration::from_secs(20), "a keeper waits for ever");
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        std::fs::remove_dir_all(folder).unwrap();
    }
}
