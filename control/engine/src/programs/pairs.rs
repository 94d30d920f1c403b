//! The pairs of descriptors behind programs' sockets, some of them made while there is nothing else to do.
//!
//! Owned by `hub.rs`. A connection that a listener has accepted takes one that is ready: between its handshake and its
//! program's `accept` stands one system call then, and not four.

use std::io;
use std::os::fd::OwnedFd;

use firelane_shm::control::SocketId;
use rustix::event::epoll;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

/// The most that are kept.
const MOST: usize = 16;

/// A pair: our end, which is in the hub's set, and the program's, whose inode is the socket's name.
#[derive(Debug)]
pub(super) struct Pair {
    pub(super) ours: OwnedFd,
    pub(super) theirs: OwnedFd,
    pub(super) name: SocketId,
}

impl Pair {
    /// Makes one, in this set.
    pub(super) fn new(set: &OwnedFd) -> io::Result<Self> {
        let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
        let name = SocketId(rustix::fs::fstat(&theirs)?.st_ino);
        // No events: a hang-up is always told.
        epoll::add(set, &ours, epoll::EventData::new_u64(name.0), epoll::EventFlags::empty())?;
        Ok(Self { ours, theirs, name })
    }
}

/// Those that are ready.
#[derive(Debug, Default)]
pub(super) struct Pairs {
    ready: Vec<Pair>,
    /// How many there should be: as many as were ever wanted, up to [`MOST`].
    wanted: usize,
}

impl Pairs {
    /// One that is ready, or a new one.
    pub(super) fn take(&mut self, set: &OwnedFd) -> io::Result<Pair> {
        self.wanted = (self.wanted + 1).min(MOST);
        self.ready.pop().map_or_else(|| Pair::new(set), Ok)
    }

    /// Makes one more, if there should be more.
    pub(super) fn prepare(&mut self, set: &OwnedFd) {
        if self.ready.len() < self.wanted {
            // Where descriptors have run out, whoever wants one hears of it.
            self.ready.extend(Pair::new(set));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_are_ready_as_far_as_they_were_wanted() {
        let set = epoll::create(epoll::CreateFlags::CLOEXEC).unwrap();
        let mut pairs = Pairs::default();
        pairs.prepare(&set);
        assert!(pairs.ready.is_empty(), "nobody has wanted any");
        let taken: Vec<_> = (0..MOST + 2).map(|_| pairs.take(&set).unwrap()).collect();
        (0..MOST + 2).for_each(|_| pairs.prepare(&set));
        assert_eq!(pairs.ready.len(), MOST);
        let ready = pairs.take(&set).unwrap();
        assert_eq!(ready.name.0, rustix::fs::fstat(&ready.theirs).unwrap().st_ino);
        assert!(taken.iter().all(|pair| pair.name != ready.name));
    }

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
}
