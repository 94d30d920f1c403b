//! The doorbells of a session, and who frees the keeper when it waits for one of them.
//!
//! Called by `keeper.rs`. A doorbell's counter and whether writing to it may wait are the other process' to change at any time, also
//! between our look and our write. Who changes them just then makes the keeper wait: as long as he is there it is his own interface that
//! stands still, and when he has gone or the interface is removed, a thread that sleeps until then takes the counter away, on which the
//! write ends.

use std::io::{self, IoSliceMut};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, ReadWriteFlags, ioctl_fionbio, preadv2};

use crate::seat::Shared;
use crate::session::Bells;

/// No doorbell.
const NONE: usize = usize::MAX;
/// Between two looks at a keeper that does not end its session.
const AGAIN: Duration = Duration::from_millis(1);

/// The doorbells of a session, by their queues.
#[derive(Debug)]
pub(crate) struct Doorbells {
    bells: Vec<Bells>,
    /// The queue whose doorbell is being written to.
    ringing: AtomicUsize,
}

impl Doorbells {
    pub(crate) fn new(bells: Vec<Bells>) -> Arc<Self> {
        Arc::new(Self { bells, ringing: AtomicUsize::new(NONE) })
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Bells> {
        self.bells.iter()
    }

    /// Wakes the readers of these queues, a bit for each.
    pub(crate) fn ring(&self, wanted: u64) {
        for queue in (0..self.bells.len()).filter(|queue| wanted >> queue & 1 != 0) {
            let bell = &self.bells[queue].send;
            // A counter that is full has told its reader already.
            if !has_room(bell) {
                continue;
            }
            // Each time, because whoever has it can undo it.
            let _ = ioctl_fionbio(bell, true);
            self.write(queue);
        }
    }

    fn write(&self, queue: usize) {
        self.ringing.store(queue, Ordering::Release);
        let _ = rustix::io::write(&self.bells[queue].send, &1u64.to_ne_bytes());
        self.ringing.store(NONE, Ordering::Release);
    }

    /// Ends a write that waits. A reading that may not wait is refused by no eventfd since Linux 5.8.
    fn free(&self) {
        let Some(bells) = self.bells.get(self.ringing.load(Ordering::Acquire)) else { return };
        // Minus one is where a descriptor without places is read.
        let (mut count, nowhere) = ([0; 8], u64::MAX);
        let _ = preadv2(&bells.send, &mut [IoSliceMut::new(&mut count)], nowhere, ReadWriteFlags::NOWAIT);
    }

    /// Starts the thread that frees the keeper once `socket` is at its end or the interface is removed. It ends with the session.
    pub(crate) fn watch(self: &Arc<Self>, socket: &OwnedFd, shared: &Arc<Shared>) -> io::Result<()> {
        let (doorbells, shared, socket) = (Arc::downgrade(self), Arc::clone(shared), socket.try_clone()?);
        let thread = std::thread::Builder::new().name("memif-watchdog".into());
        thread.spawn(move || free_at_the_end(&doorbells, &socket, &shared))?;
        Ok(())
    }
}

/// Whether writing to an eventfd would not wait.
fn has_room(bell: &OwnedFd) -> bool {
    let mut fds = [PollFd::new(bell, PollFlags::OUT)];
    let polled = poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 }));
    polled.is_ok() && fds[0].revents().contains(PollFlags::OUT)
}

fn free_at_the_end(doorbells: &Weak<Doorbells>, socket: &OwnedFd, shared: &Shared) {
    let (socket, removed) = (socket.as_fd(), shared.removed());
    let mut fds = [
        PollFd::from_borrowed_fd(socket, PollFlags::RDHUP),
        PollFd::from_borrowed_fd(removed, PollFlags::IN),
    ];
    while let Err(error) = poll(&mut fds, None) {
        if error != Errno::INTR {
            std::thread::sleep(AGAIN);
        }
    }
    // The keeper ends the session once it sees the same. Who still has the doorbell may fill it again, so once may not do.
    while let Some(doorbells) = doorbells.upgrade() {
        doorbells.free();
        drop(doorbells);
        std::thread::sleep(AGAIN);
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;
    use std::time::Instant;

    use rustix::event::{EventfdFlags, eventfd};

    use super::*;

    const LIMIT: Duration = Duration::from_secs(20);

    fn wait_until(what: &str, is_true: impl Fn() -> bool) {
        let begin = Instant::now();
        while !is_true() {
            assert!(begin.elapsed() < LIMIT, "waited in vain: {what}");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// A doorbell whose writers wait, and its counter: as full as it gets.
    fn full() -> (Arc<Doorbells>, OwnedFd) {
        let bell = || eventfd(0, EventfdFlags::CLOEXEC).unwrap();
        let (receive, send) = (bell(), bell());
        rustix::io::write(&send, &(u64::MAX - 1).to_ne_bytes()).unwrap();
        let other = send.try_clone().unwrap();
        (Doorbells::new(vec![Bells { receive, send }]), other)
    }

    fn count(bell: &OwnedFd) -> u64 {
        let mut count = [0; 8];
        rustix::io::read(bell, &mut count).unwrap();
        u64::from_ne_bytes(count)
    }

    #[test]
    fn a_full_doorbell_is_not_rung_and_another_one_cannot_make_us_wait() {
        let (doorbells, bell) = full();
        doorbells.ring(1);
        assert_eq!(count(&bell), u64::MAX - 1);
        doorbells.ring(0b10);
        doorbells.ring(0b11);
        assert_eq!(count(&bell), 1);
        let refused = rustix::io::read(&bell, &mut [0; 8]);
        assert_eq!(refused, Err(Errno::AGAIN), "nobody waits for it");
    }

    /// What is left to somebody who fills the counter after the look at it.
    #[test]
    fn a_write_that_waits_ends_with_the_control_socket_and_with_the_interface() {
        for is_removed in [false, true] {
            let ((doorbells, _bell), shared) = (full(), Arc::new(Shared::new(1).unwrap()));
            let (ours, theirs) = UnixStream::pair().unwrap();
            doorbells.watch(&ours.into(), &shared).unwrap();
            let keeper = {
                let doorbells = Arc::clone(&doorbells);
                std::thread::spawn(move || doorbells.write(0))
            };
            wait_until("it rings", || doorbells.ringing.load(Ordering::Acquire) == 0);
            assert!(!keeper.is_finished(), "it waits");
            if is_removed {
                shared.stop()
            } else {
                drop(theirs)
            }
            wait_until("it is free", || keeper.is_finished());
            drop(doorbells);
            wait_until("nobody watches", || Arc::strong_count(&shared) == 1);
        }
    }
}
