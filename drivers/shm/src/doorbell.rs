//! What wakes a waiter of many sockets: a timer's descriptor (timerfd) that never runs, and that others make ready by hand.
//!
//! Its owner makes it and waits until it is readable; the daemon's lanes and programs with which a connection is fused ring it.
//! Whoever rings must never wait. An eventfd cannot promise that: a write to a full one waits unless O_NONBLOCK is set, and that
//! flag is of the open file, which its owner can change at any time. To ring a timer is no write, and no flag makes it wait.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::fs::{OFlags, fcntl_setfl};
use rustix::io::Errno;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};

use crate::sys;

/// What the kernel calls such a descriptor.
const KIND: &str = "anon_inode:[timerfd]";

/// A new one. [`silence`] takes back what was rung.
///
/// # Errors
/// Descriptors ran out.
pub fn make() -> Result<OwnedFd, Errno> {
    let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
    timerfd_create(TimerfdClockId::Monotonic, flags)
}

/// From now on it also rings by itself, ten times a second, and who reads it waits for it.
pub fn ring_now_and_then(fd: BorrowedFd<'_>) {
    let span = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };
    let rings = Itimerspec { it_interval: span, it_value: span };
    // Neither fails for anything but a descriptor of another kind.
    let _ = timerfd_settime(fd, TimerfdTimerFlags::empty(), &rings);
    let _ = fcntl_setfl(fd, OFlags::empty());
}

/// Whether a stranger's descriptor is one that may be rung.
pub fn is_one(fd: impl AsFd) -> bool {
    let link = std::fs::read_link(format!("/proc/self/fd/{}", fd.as_fd().as_raw_fd()));
    link.is_ok_and(|link| link.as_os_str() == KIND)
}

/// Makes it readable, without ever waiting. What its owner has done to it is the owner's loss.
pub fn ring(fd: BorrowedFd<'_>) {
    if sys::set_ticks(fd, 1).is_err() {
        ring_by_time(fd);
    }
}

/// Takes back what was rung, without ever waiting: a read would, of a bell whose O_NONBLOCK somebody else has cleared.
pub fn silence(fd: BorrowedFd<'_>) {
    let never = Timespec { tv_sec: 0, tv_nsec: 0 };
    let disarmed = Itimerspec { it_interval: never, it_value: never };
    // Setting a timer forgets how often it has run out. It fails for nothing but a descriptor of another kind.
    let _ = timerfd_settime(fd, TimerfdTimerFlags::empty(), &disarmed);
}

/// A kernel without checkpoints cannot count ticks by hand: the first moment since it started is over at once.
fn ring_by_time(fd: BorrowedFd<'_>) {
    let never = Timespec { tv_sec: 0, tv_nsec: 0 };
    let first = Itimerspec { it_interval: never, it_value: Timespec { tv_sec: 0, tv_nsec: 1 } };
    // It fails for nothing but a descriptor of another kind.
    let _ = timerfd_settime(fd, TimerfdTimerFlags::ABSTIME, &first);
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
    use std::time::{Duration, Instant};

    fn is_ready(bell: &OwnedFd, milliseconds: i64) -> bool {
        let limit = Timespec { tv_sec: 0, tv_nsec: milliseconds * 1_000_000 };
        poll(&mut [PollFd::new(bell, PollFlags::IN)], Some(&limit)).unwrap() == 1
    }

    #[test]
    fn a_ring_is_there_until_it_is_read() {
        for ring in [ring, ring_by_time] as [fn(BorrowedFd<'_>); 2] {
            let bell = make().unwrap();
            assert!(is_one(&bell) && !is_ready(&bell, 0));
            for _ in 0..3 {
                ring(bell.as_fd());
                assert!(is_ready(&bell, 900) && is_ready(&bell, 0));
                silence(bell.as_fd());
                assert!(!is_ready(&bell, 0));
            }
        }
    }

    #[test]
    fn nothing_that_its_owner_does_makes_who_rings_wait() {
        for ring in [ring, ring_by_time] as [fn(BorrowedFd<'_>); 2] {
            let bell = make().unwrap();
            fcntl_setfl(&bell, OFlags::empty()).unwrap();
            // The most that can be counted; then a time that is far away.
            sys::set_ticks(&bell, u64::MAX).unwrap();
            let far = Timespec { tv_sec: i64::MAX / 2_000_000_000, tv_nsec: 0 };
            let far = Itimerspec { it_interval: far, it_value: far };
            for _ in 0..1000 {
                let begun = Instant::now();
                ring(bell.as_fd());
                assert!(begun.elapsed() < Duration::from_secs(1));
            }
            assert!(is_ready(&bell, 900));
            for _ in 0..2 {
                silence(bell.as_fd());
                assert!(!is_ready(&bell, 0), "nor who takes it back, whether there was a ring or not");
            }
            timerfd_settime(&bell, TimerfdTimerFlags::ABSTIME, &far).unwrap();
            assert!(!is_ready(&bell, 0));
            ring(bell.as_fd());
            assert!(is_ready(&bell, 900));
        }
    }

    #[test]
    fn one_that_rings_now_and_then_is_read_until_it_rings() {
        let bell = make().unwrap();
        ring_now_and_then(bell.as_fd());
        for _ in 0..3 {
            assert_eq!(rustix::io::read(&bell, &mut [0_u8; 8]), Ok(8), "by itself");
        }
        ring(bell.as_fd());
        assert!(is_ready(&bell, 0));
    }

    #[test]
    fn an_eventfd_is_none() {
        assert!(!is_one(eventfd(0, EventfdFlags::NONBLOCK).unwrap()));
        assert!(!is_one(std::fs::File::open("/dev/null").unwrap()));
    }
}
