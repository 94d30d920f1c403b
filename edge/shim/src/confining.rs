//! A process that is about to forbid itself system calls or descriptors (seccomp, RLIMIT_NOFILE), as sshd's children do that speak
//! with strangers.
//!
//! What it goes on with is reading, writing, waiting and closing, for which the kernel's sockets would need nothing else. Ours ask
//! the daemon some questions when they are first used in a process, so those are asked now. From then on nothing is called
//! that could be done without: other processes are woken by the daemon, a closed socket is not kept for the next, nobody is left the CPU,
//! and who waits does so by the call that the program has made (`sys.rs`). What is called all the same stands in docs/calls.md.

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use core::time::Duration;

use crate::socket::{self, Kind};
use crate::wait::Deadline;
use crate::waiter::Waiter;
use crate::{epoll, kept, process, ready, room, session, table, thread, untold};

/// For so many threads that wait for several sockets at a time the daemon is asked at once: for those that there are, and one that comes later.
/// Each takes a slot in each arena, of which there are few.
const WAITERS_MAX: usize = 4;

static IS_CONFINED: AtomicBool = AtomicBool::new(false);
/// Some thread may do nothing but read, write and end.
static IS_STRICT: AtomicBool = AtomicBool::new(false);
/// How often others had been given copies of this process by then.
static PASSED: AtomicU64 = AtomicU64::new(0);

/// Whether calls may be forbidden. A forked child's are, too.
#[inline]
pub(crate) fn is_confined() -> bool {
    IS_CONFINED.load(Ordering::Relaxed)
}

/// Whether all but read(2), write(2) and the end are forbidden to a thread.
#[inline]
pub(crate) fn is_strict() -> bool {
    IS_STRICT.load(Ordering::Relaxed)
}

/// Whether this is the process that has confined itself, and no child of its: none was made since.
pub(crate) fn is_nobodys_child() -> bool {
    is_confined() && PASSED.load(Ordering::Relaxed) == kept::passed()
}

/// Calls are about to be forbidden. To a child that borrows memory they are, and not to its parent.
pub(crate) fn begin(is_strict: bool) {
    if !session::is_wanted() || process::is_borrowed() {
        return;
    }
    // A filter that is there already may forbid to ask.
    let threads = if is_confined() { None } else { room::threads() };
    let waiters = prepare_for(1 + threads.unwrap_or(0) as usize);
    session::receive_ahead();
    if is_strict {
        IS_STRICT.store(true, Ordering::Relaxed);
        waiters.iter().flatten().for_each(Waiter::rings_by_itself);
    }
    drop(waiters);
    firelane_shm::spare_the_kernel();
    PASSED.store(kept::passed(), Ordering::Relaxed);
    IS_CONFINED.store(true, Ordering::SeqCst);
    untold::tell_all();
}

/// Asks for all that this process' sockets may need. Whatever cannot be had is missed where it is needed.
pub(crate) fn prepare() {
    drop(prepare_for(1));
}

/// The same for so many threads; the waiters that they will find.
fn prepare_for(threads: usize) -> [Option<Waiter>; WAITERS_MAX] {
    let mut waiters = [const { None }; WAITERS_MAX];
    if !session::is_wanted() || process::is_borrowed() {
        return waiters;
    }
    // What is looked up once: the thread's number, the CPUs, and where the clock is.
    thread::kernel_number();
    thread::spinning(|_| ());
    thread::sharing(|_| ());
    thread::spinning_for_lane(|_| ());
    thread::spinning_beside(|_| ());
    let _ = Deadline::after(Duration::ZERO);
    if table::programs().next().is_none() && !process::has_session() {
        return waiters;
    }
    session::number();
    epoll::get_ready();
    waiters.iter_mut().take(threads).for_each(|waiter| *waiter = Waiter::take().ok());
    for waiter in waiters.iter_mut().flatten() {
        waiter.get_ready();
        for fd in table::programs() {
            let Some(word) = table::get(fd).filter(|&word| socket::kind(word) == Kind::Stream) else {
                continue;
            };
            // Who looks at a fused one maps its segment.
            let _ = ready::of(fd, word);
            let _ = waiter.watch(fd, word);
            waiter.unwatch(word);
        }
    }
    waiters
}
