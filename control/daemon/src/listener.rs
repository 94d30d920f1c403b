//! The socket that programs come to: who may reach it, and how many come in at a time.
//!
//! Made by `daemon.rs`; `works.rs` keeps its mode. Who has come is judged in `programs.rs`, by a thread that serves all others,
//! too. So nobody who knocks without end keeps it, and while none can come in, the socket is left alone: the kernel keeps who waits.

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::{Duration, Instant};

use firelane_model::Model;
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::fs::Mode;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

/// Programs that wait for the daemon to take them in.
const BACKLOG: i32 = 128;
/// As many are taken in before the others have their turn.
pub(crate) const AT_A_TIME: usize = 16;
/// How long nobody is taken in when there is no descriptor for one: he waits, and asking again at once would take a CPU.
const REST: Duration = Duration::from_secs(1);

/// Who may knock: with the same rights as at the socket of the interface who may configure, or everybody as soon as a
/// netstack names users, who are then judged one by one.
fn mode_of(model: &Model) -> Mode {
    let names_users = model.netstacks.values().any(|it| it.programs.names_users());
    Mode::from_raw_mode(if names_users { 0o666 } else { 0o660 })
}

/// Opens or shuts the door for others than the daemon's own.
pub(crate) fn set_mode(path: &Path, model: &Model) -> io::Result<()> {
    Ok(rustix::fs::chmod(path, mode_of(model))?)
}

/// Opens the socket.
pub(crate) fn bind(path: &Path, model: &Model) -> io::Result<OwnedFd> {
    // The folder's lock says that whoever had it is dead.
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
    let before = rustix::process::umask(Mode::from_raw_mode(0o117));
    let bound = rustix::net::bind(&socket, &SocketAddrUnix::new(path)?);
    rustix::process::umask(before);
    bound?;
    set_mode(path, model)?;
    rustix::net::listen(&socket, BACKLOG)?;
    Ok(socket)
}

/// The socket in the set of who waits for it.
#[derive(Debug)]
pub(crate) struct Listener {
    socket: OwnedFd,
    key: u64,
    /// Until when nobody is taken in.
    rests_until: Option<Instant>,
}

impl Listener {
    /// The set tells of it by `key`.
    pub(crate) fn within(set: &OwnedFd, socket: OwnedFd, key: u64) -> io::Result<Self> {
        epoll::add(set, &socket, EventData::new_u64(key), EventFlags::IN)?;
        Ok(Self { socket, key, rests_until: None })
    }

    /// Who comes next, if there is somebody who can.
    pub(crate) fn accept(&mut self, set: &OwnedFd) -> Option<OwnedFd> {
        if self.rests_until.is_some() {
            return None;
        }
        match rustix::net::accept_with(&self.socket, SocketFlags::CLOEXEC) {
            Ok(control) => Some(control),
            Err(Errno::WOULDBLOCK | Errno::INTR) => None,
            Err(error) => {
                tracing::warn!("no program can come in: {error}");
                self.rest(set, REST);
                None
            }
        }
    }

    /// Takes nobody in for so long.
    pub(crate) fn rest(&mut self, set: &OwnedFd, time: Duration) {
        self.rests_until = Some(Instant::now() + time);
        self.watch(set, EventFlags::empty());
    }

    /// When there is something to do though nobody has come.
    pub(crate) fn alarm(&self) -> Option<Instant> {
        self.rests_until
    }

    /// Goes on when it has rested.
    pub(crate) fn go_on(&mut self, set: &OwnedFd) {
        if self.rests_until.is_some_and(|until| until <= Instant::now()) {
            self.rests_until = None;
            self.watch(set, EventFlags::IN);
        }
    }

    fn watch(&self, set: &OwnedFd, flags: EventFlags) {
        // To change what the set has needs no memory.
        let _ = epoll::modify(set, &self.socket, EventData::new_u64(self.key), flags);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::event::Timespec;
    use std::net::UdpSocket;

    #[test]
    fn who_cannot_accept_does_not_try_at_once_again() {
        // A datagram waits where `accept` has nothing to take: it fails, and goes on being told of.
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.send_to(b"x", socket.local_addr().unwrap()).unwrap();
        let set = epoll::create(epoll::CreateFlags::CLOEXEC).unwrap();
        let is_told = || {
            let mut events = [const { std::mem::MaybeUninit::uninit() }; 1];
            let now = Timespec { tv_sec: 0, tv_nsec: 0 };
            let (events, _) = epoll::wait(&set, &mut events, Some(&now)).unwrap();
            events.first().is_some_and(|it| it.data.u64() == 7)
        };
        let mut listener = Listener::within(&set, socket.into(), 7).unwrap();
        assert!(is_told());
        assert!(listener.accept(&set).is_none());
        assert!(!is_told() && listener.alarm().is_some(), "it rests");
        // However long the rest is.
        listener.rests_until = listener.rests_until.map(|until| until + Duration::from_secs(3600));
        listener.go_on(&set);
        assert!(!is_told());
        listener.rest(&set, Duration::ZERO);
        listener.go_on(&set);
        assert!(is_told() && listener.alarm().is_none(), "and goes on");
    }
}
