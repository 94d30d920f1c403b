//! Signals about sockets (SIGIO and SIGURG), as programs ask for them with O_ASYNC and F_SETOWN (fcntl(2), socket(7)).
//!
//! Who is signalled, and with what, is known to the kernel alone: a program's descriptor is one end of a pair of the kernel's, and
//! that is where it sets owner, signal and O_ASYNC. A byte that is written to the other end makes the kernel send SIGIO, and one that
//! is urgent SIGURG, so nobody is signalled whom the kernel would not let the program signal. The program's side reads the bytes away
//! when it next receives or sends; where they fill the queue, signals enough wait for it. A listener's connections are told by
//! messages there, which signal of themselves.
//!
//! A table for each arena (`arena.rs`); `stream.rs` and `datagrams.rs` say what is news. RFC 9293 §3.8.5 asks for a way to tell of
//! urgent text.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicUsize, Ordering, fence};
use std::sync::{Mutex, MutexGuard, PoisonError};

use firelane_lane::StreamOption;
use firelane_shm::Block;
use firelane_shm::control::{Answer, SIGNAL_IO, SIGNAL_URGENT};
use firelane_shm::layout::{REFUSED, SIGNALLED};
use rustix::io::Errno;
use rustix::net::{SendFlags, send};

use super::socket::{Role, Socket, errno};

/// The sockets of an arena whose programs want signals, by their blocks.
#[derive(Debug, Default)]
pub(super) struct Signals {
    /// How many: most programs want none, and then nothing is locked.
    count: AtomicUsize,
    wanted: Mutex<BTreeMap<u32, Wanted>>,
}

#[derive(Debug)]
struct Wanted {
    /// [`SIGNAL_IO`] and [`SIGNAL_URGENT`].
    kinds: u8,
    /// A copy of our end of the socket's pair. It goes before the other does, for closing that one may take long.
    ours: OwnedFd,
    told: Seen,
}

/// How far a socket has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Seen {
    /// Bytes that have arrived.
    pub(super) received: u64,
    /// The mark of urgent text.
    pub(super) mark: u64,
}

impl Signals {
    /// From now on the program of a block wants these, beginning behind what it has `seen`; zero is none.
    pub(super) fn want(&self, block: u32, kinds: u8, ours: &OwnedFd, seen: Seen) -> io::Result<()> {
        if kinds == 0 {
            self.forget(block);
            return Ok(());
        }
        let mut wanted = self.lock();
        if let Some(known) = wanted.get_mut(&block) {
            known.kinds = kinds;
            return Ok(());
        }
        wanted.insert(block, Wanted { kinds, ours: ours.try_clone()?, told: seen });
        self.count.store(wanted.len(), Ordering::Release);
        Ok(())
    }

    /// The socket ends.
    pub(super) fn forget(&self, block: u32) {
        if self.count.load(Ordering::Acquire) == 0 {
            return;
        }
        let mut wanted = self.lock();
        let gone = wanted.remove(&block);
        self.count.store(wanted.len(), Ordering::Release);
        drop((wanted, gone));
    }

    /// The lane may have news of a socket; `is_ready` if it has failed, ended, or is connected. A `look` tells how far it has come, and
    /// whether there is room where there was none.
    pub(super) fn tell(&self, block: u32, is_ready: bool, look: impl FnOnce() -> (Seen, bool)) {
        if self.count.load(Ordering::Acquire) == 0 {
            return;
        }
        // Who finds no room says so and looks once more; one of the two finds the other.
        fence(Ordering::SeqCst);
        let mut all = self.lock();
        let Some(wanted) = all.get_mut(&block) else { return };
        let (seen, has_room) = look();
        let before = std::mem::replace(&mut wanted.told, seen);
        let is_urgent = wanted.told.mark != before.mark && wanted.kinds & SIGNAL_URGENT != 0;
        let is_news = is_ready || has_room || wanted.told.received != before.received || is_urgent;
        let flags = match is_urgent {
            true => SendFlags::OOB,
            false if is_news && wanted.kinds & SIGNAL_IO != 0 => SendFlags::empty(),
            false => return,
        };
        // Where the queue is full the program has yet to look at what it was signalled for.
        let _ = send(wanted.ours.as_fd(), &[0], flags | SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<u32, Wanted>> {
        self.wanted.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// There is room. Whether the program of a block has found none before.
pub(super) fn ends_refusal(block: &Block) -> bool {
    block.file.load(Ordering::SeqCst) & REFUSED != 0
        && block.file.fetch_and(!REFUSED, Ordering::SeqCst) & REFUSED != 0
}

impl Socket {
    /// Which signals its program wants from now on: [`SIGNAL_IO`] and [`SIGNAL_URGENT`], or zero.
    pub(super) fn set_signals(&mut self, value: &[u8]) -> Result<Answer, Errno> {
        let kinds = value.first_chunk().map(|bytes| i32::from_ne_bytes(*bytes)).ok_or(Errno::INVAL)?;
        let kinds = u8::try_from(kinds).ok().filter(|it| it & !(SIGNAL_IO | SIGNAL_URGENT) == 0);
        self.signals = kinds.ok_or(Errno::INVAL)?;
        self.show_signals(false).map_err(errno)?;
        Ok(Answer::Done)
    }

    /// It has become a stream or a datagram socket, or wants other signals. One that `is_new` may have news already.
    pub(super) fn show_signals(&self, is_new: bool) -> io::Result<()> {
        if is_new && self.signals == 0 {
            return Ok(());
        }
        let (number, seen) = match &self.role {
            Role::Stream(stream, _) => (stream.number(), stream.seen(&self.arena)),
            Role::Datagrams(Some(made), _) => (made.number(), made.seen()),
            _ => return Ok(()),
        };
        if let Some(block) = self.arena.mapping().block(number) {
            block.file.fetch_or(SIGNALLED, Ordering::AcqRel);
        }
        let before = if is_new { Seen::default() } else { seen };
        self.arena.signals.want(number, self.signals, &self.ours, before)?;
        if let Role::Stream(stream, _) = &self.role {
            // Who writes past the lane signals nobody.
            let is_signalled = self.signals & SIGNAL_IO != 0;
            stream.keep_apart(is_signalled);
            stream.set_option(&self.stack.inner.fabric, StreamOption::Signalled(is_signalled));
            if is_new {
                self.arena.signals.tell(number, stream.has_outcome(), || (seen, false));
            }
        }
        Ok(())
    }

    /// It ends, or is a new one.
    pub(super) fn end_signals(&mut self) {
        if self.signals == 0 {
            return;
        }
        self.signals = 0;
        match &self.role {
            Role::Stream(stream, _) => self.arena.signals.forget(stream.number()),
            Role::Datagrams(Some(made), _) => self.arena.signals.forget(made.number()),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType, recv, socketpair};

    const NEWS: [Seen; 3] =
        [Seen { received: 1, mark: 0 }, Seen { received: 1, mark: 1 }, Seen { received: 2, mark: 1 }];

    /// What a program finds at its end: how many bytes, and whether one is urgent.
    fn found(theirs: &OwnedFd) -> (usize, bool) {
        let urgent = recv(theirs, &mut [0; 1][..], RecvFlags::OOB | RecvFlags::DONTWAIT).is_ok();
        let (count, _) = recv(theirs, &mut [0; 9][..], RecvFlags::DONTWAIT).unwrap_or_default();
        (count, urgent)
    }

    #[test]
    fn who_wants_signals_gets_a_byte_for_what_is_new_and_no_other() {
        let (ours, theirs) =
            socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None).unwrap();
        let signals = Signals::default();
        let tell = |is_ready, seen| {
            signals.tell(7, is_ready, || (seen, false));
            found(&theirs)
        };
        assert_eq!(tell(true, NEWS[0]), (0, false), "nobody wants any");
        signals.want(7, SIGNAL_IO | SIGNAL_URGENT, &ours, Seen::default()).unwrap();
        signals.tell(8, true, || (NEWS[0], false));
        assert_eq!(found(&theirs), (0, false), "another socket's");
        assert_eq!(tell(false, NEWS[0]), (1, false));
        assert_eq!(tell(false, NEWS[0]), (0, false), "it is known");
        assert_eq!(tell(true, NEWS[0]), (1, false), "there is room, or it has ended");
        assert_eq!(tell(false, NEWS[1]), (0, true));
        signals.want(7, SIGNAL_URGENT, &ours, NEWS[0]).unwrap();
        assert_eq!(tell(true, NEWS[2]), (0, false), "only urgent text");
        assert_eq!(tell(false, Seen { mark: 9, ..NEWS[2] }), (0, true));
        signals.want(7, 0, &ours, NEWS[0]).unwrap();
        assert_eq!(tell(true, NEWS[0]), (0, false));
        signals.want(7, SIGNAL_IO, &ours, Seen::default()).unwrap();
        signals.forget(7);
        assert_eq!((tell(true, NEWS[0]), signals.count.load(Ordering::Relaxed)), ((0, false), 0));
    }

    #[test]
    fn who_has_found_no_room_is_signalled_once() {
        let block = Block::default();
        assert!(!ends_refusal(&block));
        block.file.store(REFUSED | SIGNALLED, Ordering::Relaxed);
        assert!(ends_refusal(&block) && !ends_refusal(&block));
        assert_eq!(block.file.load(Ordering::Relaxed), SIGNALLED);
    }

    #[test]
    fn a_program_that_reads_nothing_keeps_nobody() {
        let (ours, theirs) =
            socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None).unwrap();
        let signals = Signals::default();
        signals.want(7, SIGNAL_IO | SIGNAL_URGENT, &ours, Seen::default()).unwrap();
        for mark in 0..100_000 {
            signals.tell(7, true, || (Seen { received: mark, mark: mark / 2 }, false));
        }
        while found(&theirs) != (0, false) {}
        signals.tell(7, true, || (NEWS[0], false));
        assert_ne!(found(&theirs), (0, false), "there is room again");
    }
}
