//! The pairs of descriptors behind programs' sockets. Used by `hub.rs`.

use std::io;
use std::os::fd::OwnedFd;

use firelane_shm::control::SocketId;
use rustix::event::epoll;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

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
}
