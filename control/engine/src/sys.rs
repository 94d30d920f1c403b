//! The CPU's cycle counter, how long a thread may run at a time, a wait that ends in time, and who is at a socket's other end: the
//! engine's only unsafe code.
//!
//! The counter is given to lanes as a function (`watch.rs`); they read it around each step while somebody wants to know what steps
//! cost. The slice is changed by `cpus.rs`; `bell.rs` waits; programs are asked for by the daemon, and sockets by `programs/pairs.rs`.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::ptr;
use std::time::Duration;

use rustix::event::{Timespec, epoll};
use rustix::io::Errno;
use rustix::thread::Pid;

/// Cycles of the time-stamp counter, which runs on at one pace in every CPU of a machine of this kind.
#[cfg(target_arch = "x86_64")]
pub(crate) fn cycles() -> u64 {
    // SAFETY: the instruction exists on every x86-64 CPU, touches no memory, and Linux lets programs use it.
    unsafe { core::arch::x86_64::_rdtsc() }
}

/// Nanoseconds, where there is no counter that programs may read.
#[cfg(not(target_arch = "x86_64"))]
pub(crate) fn cycles() -> u64 {
    use std::sync::LazyLock;
    use std::time::Instant;

    static START: LazyLock<Instant> = LazyLock::new(Instant::now);
    START.elapsed().as_nanos() as u64
}

/// What the scheduler knows of a thread (`struct sched_attr` of Linux 3.14, sched_setattr(2)).
#[repr(C)]
#[derive(Default)]
struct Schedule {
    size: u32,
    policy: u32,
    flags: u64,
    nice: i32,
    priority: u32,
    /// Of a thread of the usual policy its slice in nanoseconds, since Linux 6.12.
    runtime: u64,
    deadline: u64,
    period: u64,
}

const SCHEDULE_BYTES: u32 = size_of::<Schedule>() as u32;

/// Who is at the other end of a socket of the UNIX family, from when it was made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PeerOf {
    /// Its process; `None` where it is in a PID namespace that this one does not see.
    pub process: Option<Pid>,
    /// Its user.
    pub user: u32,
    /// Its group.
    pub group: u32,
}

impl PeerOf {
    /// The same as rustix', whose `Pid` is not to be made of the zero that the kernel tells of who is not seen.
    ///
    /// # Errors
    /// It is no such socket.
    pub fn ask(fd: impl AsFd) -> Result<Self, Errno> {
        let mut who = libc::ucred { pid: 0, uid: 0, gid: 0 };
        let mut len = size_of::<libc::ucred>() as libc::socklen_t;
        let fd = fd.as_fd().as_raw_fd();
        let value = (&raw mut who).cast();
        // SAFETY: the kernel writes at most as many bytes as the value has, and how many; both live through the call.
        let asked = unsafe { libc::getsockopt(fd, libc::SOL_SOCKET, libc::SO_PEERCRED, value, &raw mut len) };
        done(asked.into())?;
        Ok(Self { process: Pid::from_raw(who.pid), user: who.uid, group: who.gid })
    }
}

fn schedule(thread: Pid) -> Result<Schedule, Errno> {
    let mut schedule = Schedule::default();
    // SAFETY: the kernel writes at most as many bytes as it is told, to a live value that any bytes are.
    done(unsafe {
        libc::syscall(
            libc::SYS_sched_getattr,
            thread.as_raw_nonzero().get(),
            &raw mut schedule,
            SCHEDULE_BYTES,
            0,
        )
    })?;
    Ok(schedule)
}

fn done(answer: libc::c_long) -> Result<(), Errno> {
    match answer {
        0 => Ok(()),
        _ => Err(last_error()),
    }
}

fn last_error() -> Errno {
    Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::INVAL)
}

/// How long a thread of this process may run before others come to their turn; zero where the kernel has one slice for all.
pub(crate) fn slice(thread: Pid) -> Result<Duration, Errno> {
    schedule(thread).map(|schedule| Duration::from_nanos(schedule.runtime))
}

/// Changes that; zero is as long as the kernel likes. What else is known of the thread stays.
pub(crate) fn set_slice(thread: Pid, slice: Duration) -> Result<(), Errno> {
    let known = schedule(thread)?;
    let runtime = u64::try_from(slice.as_nanos()).unwrap_or(u64::MAX);
    let wanted = Schedule { size: SCHEDULE_BYTES, runtime, ..known };
    // SAFETY: the kernel reads as many bytes of a live value as that says.
    done(unsafe {
        libc::syscall(libc::SYS_sched_setattr, thread.as_raw_nonzero().get(), &raw const wanted, 0)
    })
}

/// epoll_pwait2(2), of Linux 5.11, whose limit counts in nanoseconds. How many of `events` it has filled.
pub(crate) fn epoll_wait(
    set: BorrowedFd<'_>,
    events: &mut [epoll::Event],
    limit: &Timespec,
) -> Result<usize, Errno> {
    let room = libc::c_int::try_from(events.len()).unwrap_or(libc::c_int::MAX);
    let limit = libc::timespec { tv_sec: limit.tv_sec, tv_nsec: limit.tv_nsec };
    let no_signals = ptr::null::<libc::sigset_t>();
    // SAFETY: the kernel writes at most as many events as there is room for, each as `Event` has it, and reads a live limit.
    let count = unsafe {
        libc::syscall(
            libc::SYS_epoll_pwait2,
            set.as_raw_fd(),
            events.as_mut_ptr(),
            room,
            &raw const limit,
            no_signals,
            0,
        )
    };
    usize::try_from(count).map_err(|_| last_error())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_runs_on() {
        let before = cycles();
        std::thread::sleep(Duration::from_millis(2));
        assert!(cycles() > before + 1000);
    }

    #[test]
    fn a_slice_is_changed_and_the_rest_stays() {
        let this = rustix::thread::gettid();
        let before = schedule(this).unwrap();
        set_slice(this, Duration::from_micros(300)).unwrap();
        let now = schedule(this).unwrap();
        assert_eq!((now.policy, now.nice, now.priority), (before.policy, before.nice, before.priority));
        // A kernel that has one slice for all says nothing of it.
        assert!(before.runtime == 0 || now.runtime == 300_000, "{} -> {}", before.runtime, now.runtime);
        set_slice(this, Duration::ZERO).unwrap();
        assert_eq!(schedule(this).unwrap().runtime, before.runtime);
    }
}
