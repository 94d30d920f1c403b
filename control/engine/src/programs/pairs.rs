//! The pairs of descriptors behind programs' sockets. Used by `hub.rs`.
//!
//! A socket's name is an inode, of which the kernel has 2³²: who makes sockets for an hour or two has one with the number of
//! another. So a pair gets no name that is in use, and who shows a descriptor with a name must show one of ours ([`name_of`]).

use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

use firelane_shm::control::SocketId;
use rustix::event::epoll;
use rustix::io::Errno;
use rustix::net::sockopt::{socket_domain, socket_type};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use rustix::process::{Pid, Resource, getpid, getrlimit};

use crate::sys::PeerOf;

/// So many pairs are made until one has a name that is free.
const TRIES: usize = 8;
/// Descriptors that programs leave to the rest of the process: without any nobody could even ask what is wrong.
const KEPT: u64 = 64;

/// How many descriptors there may be before programs get no more.
#[derive(Clone, Copy, Debug)]
pub(super) struct Room(u64);

impl Room {
    /// That of this process.
    pub(super) fn of_process() -> Self {
        Self(getrlimit(Resource::Nofile).current.map_or(u64::MAX, |most| most.saturating_sub(KEPT)))
    }

    /// Whether there is some behind this descriptor: numbers are given out from below.
    pub(super) fn is_behind(self, fd: RawFd) -> bool {
        u64::try_from(fd).is_ok_and(|fd| fd < self.0)
    }
}

/// A pair: our end, which is in the hub's set, and the program's, whose inode is the socket's name.
#[derive(Debug)]
pub(super) struct Pair {
    pub(super) ours: OwnedFd,
    pub(super) theirs: OwnedFd,
    pub(super) name: SocketId,
}

impl Pair {
    /// Makes one with a name that is free, in this set, if there is room.
    pub(super) fn within(room: Room, set: &OwnedFd, is_free: impl Fn(SocketId) -> bool) -> io::Result<Self> {
        // Those whose names are not free are kept until there is one, so that the next is another.
        let mut others = Vec::new();
        for _ in 0..TRIES {
            let pair = Self::new(set)?;
            if !room.is_behind(pair.theirs.as_raw_fd()) {
                break;
            }
            if is_free(pair.name) {
                return Ok(pair);
            }
            others.push(pair);
        }
        Err(Errno::NFILE.into())
    }

    pub(super) fn new(set: &OwnedFd) -> io::Result<Self> {
        let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
        let name = SocketId(rustix::fs::fstat(&theirs)?.st_ino);
        // No events: a hang-up is always told.
        epoll::add(set, &ours, epoll::EventData::new_u64(name.0), epoll::EventFlags::empty())?;
        Ok(Self { ours, theirs, name })
    }
}

/// The name of a socket's descriptor that was made here. Only sockets are asked for their inode: that of a file can be any number, and
/// its file system may take its time.
pub(super) fn name_of(fd: &OwnedFd) -> Option<SocketId> {
    name_of_made(fd, getpid())
}

/// The same of one that `maker` has made.
fn name_of_made(fd: &OwnedFd, maker: Pid) -> Option<SocketId> {
    let is_pair = socket_domain(fd) == Ok(AddressFamily::UNIX) && socket_type(fd) == Ok(SocketType::STREAM);
    let is_ours = is_pair && PeerOf::ask(fd).is_ok_and(|who| who.process == Some(maker));
    is_ours.then(|| rustix::fs::fstat(fd).ok().map(|it| SocketId(it.st_ino))).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hang_up_is_told_by_the_name() {
        let set = epoll::create(epoll::CreateFlags::CLOEXEC).unwrap();
        let Pair { ours, theirs, name } = Pair::new(&set).unwrap();
        let heard = || {
            let mut events = [const { std::mem::MaybeUninit::uninit() }; 2];
            let now = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
            let (events, _) = epoll::wait(&set, &mut events, Some(&now)).unwrap();
            events.iter().map(|event| event.data.u64()).collect::<Vec<_>>()
        };
        assert_eq!(heard(), []);
        drop(theirs);
        assert_eq!(heard(), [name.0]);
        drop(ours);
        assert_eq!(heard(), []);
    }

    #[test]
    fn no_two_sockets_have_one_name_though_inodes_come_again() {
        use std::cell::Cell;
        let set = epoll::create(epoll::CreateFlags::CLOEXEC).unwrap();
        let (room, taken) = (Room(u64::MAX), Cell::new(None));
        let is_free = |name| taken.get().is_some_and(|it| it != name) || taken.replace(Some(name)).is_some();
        let pair = Pair::within(room, &set, is_free).unwrap();
        assert!(taken.get().is_some_and(|it| it != pair.name));
        let none = Pair::within(room, &set, |_| false).unwrap_err();
        assert_eq!(Errno::from_io_error(&none), Some(Errno::NFILE));
        let full = Pair::within(Room(0), &set, |_| true).unwrap_err();
        assert_eq!(Errno::from_io_error(&full), Some(Errno::NFILE), "the rest is the daemon's");
        let mut events = [const { std::mem::MaybeUninit::uninit() }; 2];
        let now = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
        let (events, _) = epoll::wait(&set, &mut events, Some(&now)).unwrap();
        assert!(events.is_empty(), "who had another's name has not hung up under it");
    }

    #[test]
    fn only_what_was_made_here_has_a_name() {
        let set = epoll::create(epoll::CreateFlags::CLOEXEC).unwrap();
        let Pair { theirs, name, .. } = Pair::new(&set).unwrap();
        assert_eq!(name_of(&theirs), Some(name));
        assert_eq!(name_of_made(&theirs, Pid::INIT), None, "it has the number, and was made elsewhere");
        let packets =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap();
        assert_eq!(name_of(&packets.0), None);
        assert_eq!(name_of(&std::net::UdpSocket::bind("127.0.0.1:0").unwrap().into()), None);
    }
}
