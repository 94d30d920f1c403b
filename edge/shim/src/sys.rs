//! System calls for this library's own use. They go past libc, so they neither meet our hooks again nor touch
//! `errno`. What rustix has is taken from there; here is what it has not.

use core::arch::asm;
use core::ffi::{CStr, c_int, c_uint};
use core::ptr;
use core::sync::atomic::AtomicU32;
use core::time::Duration;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

use libc::{epoll_event, pollfd, sigset_t, timespec};
use rustix::io::Errno;

use crate::confining;
use crate::handlers::{self, Seen};

/// The kernel's signal sets have 64 bits, wherever libc's have more.
pub(crate) const SIGSET_BYTES: usize = 8;

/// # Safety
/// As the system call's.
unsafe fn syscall6(number: i64, args: [usize; 6]) -> Result<usize, Errno> {
    let result: isize;
    // SAFETY: the kernel's convention; the call's own rules are the caller's promise.
    #[cfg(target_arch = "x86_64")]
    unsafe {
        asm!(
            "syscall",
            inlateout("rax") number as isize => result,
            in("rdi") args[0], in("rsi") args[1], in("rdx") args[2],
            in("r10") args[3], in("r8") args[4], in("r9") args[5],
            lateout("rcx") _, lateout("r11") _,
            options(nostack)
        );
    }
    // SAFETY: the kernel's convention; the call's own rules are the caller's promise.
    #[cfg(target_arch = "aarch64")]
    unsafe {
        asm!(
            "svc 0",
            in("x8") number,
            inlateout("x0") args[0] as isize => result,
            in("x1") args[1], in("x2") args[2], in("x3") args[3], in("x4") args[4], in("x5") args[5],
            options(nostack)
        );
    }
    answer(result)
}

/// What the kernel has answered.
pub(crate) fn answer(result: isize) -> Result<usize, Errno> {
    if (-4095..0).contains(&result) {
        Err(Errno::from_raw_os_error(-result as i32))
    } else {
        Ok(result as usize)
    }
}

/// A system call that is to end with the handlers that have run since `seen`, if it may sleep.
///
/// # Safety
/// As the system call's.
unsafe fn call(seen: Option<Seen>, number: i64, args: [usize; 6]) -> Result<usize, Errno> {
    // SAFETY: the caller's promise.
    unsafe { seen.map_or_else(|| syscall6(number, args), |seen| seen.call(number, args)) }
}

/// What libc calls around a `fork`.
pub(crate) type Handler = unsafe extern "C" fn();

/// How long a call may still wait; `None` is for ever.
pub(crate) type Limit = Option<Duration>;

pub(crate) fn timespec_of(limit: Duration) -> timespec {
    timespec {
        tv_sec: i64::try_from(limit.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: i64::from(limit.subsec_nanos()),
    }
}

/// By which call a program waits, as libc makes it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Call {
    /// poll(2) or epoll_wait(2), without a set of signals.
    Plain,
    /// ppoll(2) or epoll_pwait(2).
    Masked,
    /// epoll_pwait2(2), for less than a millisecond, too.
    Exact,
}

/// How a program waits: by which call, and with which signals held back meanwhile. What it waits for is asked of the kernel by the newest call,
/// but of who is confined by his own: his filter may know no other.
#[derive(Clone, Copy)]
pub(crate) struct Manner<'a> {
    pub(crate) call: Call,
    pub(crate) mask: Option<&'a sigset_t>,
}

impl Manner<'static> {
    /// By this library itself.
    pub(crate) const OWN: Self = Self { call: Call::Masked, mask: None };
}

/// As poll(2) and its kin have it, which wait no shorter than asked for.
fn milliseconds_of(limit: Limit) -> c_int {
    limit.map_or(-1, |limit| c_int::try_from(limit.as_nanos().div_ceil(1_000_000)).unwrap_or(c_int::MAX))
}

/// Polls the kernel's descriptors in this manner.
pub(crate) fn ppoll(
    fds: &mut [pollfd],
    limit: Limit,
    manner: Manner<'_>,
    seen: Option<Seen>,
) -> Result<usize, Errno> {
    #[cfg(target_arch = "x86_64")]
    if manner.call == Call::Plain && confining::is_confined() {
        let args = [fds.as_mut_ptr() as usize, fds.len(), milliseconds_of(limit) as usize, 0, 0, 0];
        // SAFETY: the array lives through the call.
        return unsafe { call(seen, libc::SYS_poll, args) };
    }
    let mask = manner.mask;
    // SAFETY: the set lives through the call.
    unsafe { ppoll_by(fds, limit, mask.map_or(0, |mask| ptr::from_ref(mask) as usize), seen) }
}

/// # Safety
/// `mask` is the address of a set of signals, or zero.
unsafe fn ppoll_by(
    fds: &mut [pollfd],
    limit: Limit,
    mask: usize,
    seen: Option<Seen>,
) -> Result<usize, Errno> {
    let mut limit = limit.map(timespec_of);
    let limit = limit.as_mut().map_or(0, |limit| ptr::from_mut(limit) as usize);
    let args = [fds.as_mut_ptr() as usize, fds.len(), limit, mask, SIGSET_BYTES, 0];
    // SAFETY: the array and the time live through the call; the caller's promise about the set.
    unsafe { call(seen, libc::SYS_ppoll, args) }
}

/// Waits for the kernel's events of an epoll descriptor.
pub(crate) fn epoll_pwait(
    epoll: c_int,
    events: &mut [epoll_event],
    limit: Limit,
    manner: Manner<'_>,
    seen: Option<Seen>,
) -> Result<usize, Errno> {
    let mask = manner.mask.map_or(0, |mask| ptr::from_ref(mask) as usize);
    let (events, len) = (events.as_mut_ptr() as usize, events.len());
    if manner.call != Call::Exact && confining::is_confined() {
        let number = match manner.call {
            #[cfg(target_arch = "x86_64")]
            Call::Plain => libc::SYS_epoll_wait,
            _ => libc::SYS_epoll_pwait,
        };
        let args = [epoll as usize, events, len, milliseconds_of(limit) as usize, mask, SIGSET_BYTES];
        // SAFETY: the array and the set live through the call.
        return unsafe { call(seen, number, args) };
    }
    let mut limit = limit.map(timespec_of);
    let limit = limit.as_mut().map_or(0, |limit| ptr::from_mut(limit) as usize);
    let args = [epoll as usize, events, len, limit, mask, SIGSET_BYTES];
    // SAFETY: the array, the time and the set live through the call.
    unsafe { call(seen, libc::SYS_epoll_pwait2, args) }
}

/// Receives a message, and waits for one unless its socket, or a flag, is not to block. What is beside it the kernel drops.
pub(crate) fn receive(fd: c_int, to: &mut [u8], flags: c_int, seen: Seen) -> Result<usize, Errno> {
    let mut piece = libc::iovec { iov_base: to.as_mut_ptr().cast(), iov_len: to.len() };
    // SAFETY: zeros are a message without pieces.
    let mut message: libc::msghdr = unsafe { core::mem::zeroed() };
    (message.msg_iov, message.msg_iovlen) = (&raw mut piece, 1);
    let args = [fd as usize, (&raw mut message) as usize, flags as usize, 0, 0, 0];
    // SAFETY: the message, its piece and the bytes live through the call.
    unsafe { call(Some(seen), libc::SYS_recvmsg, args) }
}

/// Changes what an epoll descriptor watches.
pub(crate) fn epoll_ctl(epoll: c_int, what: c_int, fd: c_int, event: epoll_event) -> Result<(), Errno> {
    let args = [epoll as usize, what as usize, fd as usize, ptr::from_ref(&event) as usize, 0, 0];
    // SAFETY: the event lives through the call.
    unsafe { syscall6(libc::SYS_epoll_ctl, args) }.map(|_| ())
}

/// Closes the descriptors `first..=last`, or marks them.
pub(crate) fn close_range(first: c_uint, last: c_uint, flags: c_int) -> Result<(), Errno> {
    let args = [first as usize, last as usize, flags as usize, 0, 0, 0];
    // SAFETY: no memory is involved; whose descriptors they are is the program's business.
    unsafe { syscall6(libc::SYS_close_range, args) }.map(|_| ())
}

/// fcntl(2)'s requests about who is signalled, which libc names for glibc alone.
pub(crate) const F_SETOWN_EX: c_int = 15;
const F_GETOWN_EX: c_int = 16;

/// Whether anybody is signalled for a descriptor.
pub(crate) fn has_owner(fd: c_int) -> bool {
    // `struct f_owner_ex`: what kind of one, and its number.
    let mut owner = [0 as c_int; 2];
    let args = [fd as usize, F_GETOWN_EX as usize, owner.as_mut_ptr() as usize, 0, 0, 0];
    // SAFETY: the kernel writes the two numbers, which live through the call.
    let asked = unsafe { syscall6(libc::SYS_fcntl, args) };
    asked.is_ok() && owner[1] != 0
}

/// The process and the user at the other end of a socket of the UNIX family, from when it was made (SO_PEERCRED). The process is zero where it
/// is in a PID namespace that this one does not see, which rustix' `Pid` cannot say.
pub(crate) fn peer(fd: BorrowedFd<'_>) -> Result<(libc::pid_t, libc::uid_t), Errno> {
    let mut who = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let mut len = size_of::<libc::ucred>() as libc::socklen_t;
    let (value, room) = (ptr::from_mut(&mut who) as usize, ptr::from_mut(&mut len) as usize);
    let fd = fd.as_raw_fd() as usize;
    let args = [fd, libc::SOL_SOCKET as usize, libc::SO_PEERCRED as usize, value, room, 0];
    // SAFETY: the kernel writes at most as many bytes as the value has, and how many; both live through the call.
    unsafe { syscall6(libc::SYS_getsockopt, args) }.map(|_| (who.pid, who.uid))
}

/// Sends a signal to the calling thread, as the kernel does with SIGPIPE.
pub(crate) fn raise(signal: c_int) {
    // SAFETY: no memory is involved; the signal goes to the caller alone.
    let _ = unsafe {
        syscall6(libc::SYS_gettid, [0; 6]).and_then(|thread| signal_thread(thread, signal as usize))
    };
}

/// Signals a thread of this process.
///
/// # Safety
/// As the system call's.
unsafe fn signal_thread(thread: usize, signal: usize) -> Result<usize, Errno> {
    let process = rustix::process::getpid().as_raw_nonzero().get() as usize;
    // SAFETY: no memory is involved; whose signal it is is the caller's promise.
    unsafe { syscall6(libc::SYS_tgkill, [process, thread, signal, 0, 0, 0]) }
}

/// What the kernel knows of a signal's handler.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Action {
    handler: usize,
    flags: usize,
    restorer: usize,
    mask: u64,
}

impl Action {
    fn is_handler(&self) -> bool {
        ![libc::SIG_DFL, libc::SIG_IGN].contains(&self.handler)
    }

    fn restarts(&self) -> bool {
        self.flags & libc::SA_RESTART as usize != 0
    }
}

/// What the kernel knows of a signal.
fn action_of(signal: usize) -> Result<Action, Errno> {
    let mut action = Action::default();
    let args = [signal, 0, ptr::from_mut(&mut action) as usize, SIGSET_BYTES, 0, 0];
    // SAFETY: the kernel writes its own structure, which `Action` is.
    unsafe { syscall6(libc::SYS_rt_sigaction, args) }.map(|_| action)
}

/// How much the kernel reads and writes of that.
pub(crate) const ACTION_BYTES: usize = size_of::<Action>();

/// The system call by which a program sets an action and asks for it: the kernel knows the step before a handler, and the program the handler.
///
/// # Safety
/// As the system call's; what lies at the two addresses that are not zero can be read and written.
pub(crate) unsafe fn act(signal: c_int, new: usize, old: usize, bytes: usize) -> Result<(), Errno> {
    // SAFETY: the caller's promise.
    let mut set = if new == 0 { None } else { Some(unsafe { (new as *const Action).read_unaligned() }) };
    if let Some(action) = &mut set {
        action.handler = handlers::step_before(signal, action.handler, action.restarts());
    }
    let mut told = Action::default();
    let address = |action: Option<*mut Action>| action.map_or(0, |action| action as usize);
    let told_at = (old != 0).then_some(&raw mut told);
    let args = [signal as usize, address(set.as_mut().map(ptr::from_mut)), address(told_at), bytes, 0, 0];
    // SAFETY: the caller's promise, and both live through the call.
    unsafe { syscall6(libc::SYS_rt_sigaction, args) }?;
    if old != 0 {
        told.handler = handlers::behind(told.handler);
        // SAFETY: the caller's promise.
        unsafe { (old as *mut Action).write_unaligned(told) };
    }
    Ok(())
}

/// Libc's own signals: by the first it cancels threads.
const SIGCANCEL: usize = 32;
const SIGSETXID: usize = 33;

/// Whether every signal of the program that has a handler has one with SA_RESTART.
pub(crate) fn all_handlers_restart() -> bool {
    let programs = (1..=64).filter(|signal| ![SIGCANCEL, SIGSETXID].contains(signal));
    let mut handlers = programs.filter_map(|signal| action_of(signal).ok()).filter(Action::is_handler);
    handlers.all(|action| action.restarts())
}

/// All signals of the thread, held back until this is dropped.
pub(crate) struct Signals {
    before: u64,
}

impl Signals {
    /// Holds them back.
    pub(crate) fn hold_back() -> Self {
        Self { before: set_mask(u64::MAX) }
    }

    /// Lets SIGCHLD through that was before, if the program has no handler of it: it is ignored then. Who holds it back while a child ends has
    /// the kernel give it to another thread, and calls that nothing makes go on (epoll_wait(2)) end with EINTR there.
    pub(crate) fn ignore_children(&self) {
        let child = 1 << (libc::SIGCHLD - 1);
        let is_ignored = || action_of(libc::SIGCHLD as usize).is_ok_and(|action| !action.is_handler());
        if self.before & child == 0 && !confining::is_confined() && is_ignored() {
            set_mask(!child);
        }
    }

    /// Polls the kernel's descriptors with those let through that were before; one that came while they were held back ends it.
    pub(crate) fn poll(&self, fds: &mut [pollfd], limit: Limit, seen: Option<Seen>) -> Result<usize, Errno> {
        // SAFETY: the set lives through the call.
        unsafe { ppoll_by(fds, limit, ptr::from_ref(&self.before) as usize, seen) }
    }

    /// Sleeps with those let through that were before. Whether none came, also while they were held back.
    pub(crate) fn pause(&self, span: Duration) -> bool {
        self.poll(&mut [], Some(span), None).is_ok()
    }
}

impl Drop for Signals {
    fn drop(&mut self) {
        set_mask(self.before);
    }
}

/// Sets the thread's mask of signals; what it was. It cannot fail with these arguments.
fn set_mask(mask: u64) -> u64 {
    let mut before = 0_u64;
    let set = libc::SIG_SETMASK as usize;
    let args = [set, ptr::from_ref(&mask) as usize, ptr::from_mut(&mut before) as usize, SIGSET_BYTES, 0, 0];
    // SAFETY: both sets live through the call.
    let _ = unsafe { syscall6(libc::SYS_rt_sigprocmask, args) };
    before
}

// What libc has for cancelling threads, and the crate of that name has not.
unsafe extern "C" {
    fn pthread_setcancelstate(state: c_int, old: *mut c_int) -> c_int;
    fn pthread_setcanceltype(kind: c_int, old: *mut c_int) -> c_int;
    fn pthread_getcpuclockid(thread: libc::pthread_t, clock: *mut libc::clockid_t) -> c_int;
}

unsafe extern "C-unwind" {
    fn pthread_testcancel();
}

const CANCEL_ENABLE: c_int = 0;
const CANCEL_DISABLE: c_int = 1;
const CANCEL_DEFERRED: c_int = 0;
const CANCEL_ASYNCHRONOUS: c_int = 1;

/// Ends the calling thread if it was cancelled and lets that be: the frames of its calls are taken down without a return, so nothing may be
/// left to be done in those of ours.
pub(crate) fn test_cancel() {
    // SAFETY: callers have nothing to drop.
    unsafe { pthread_testcancel() }
}

/// Whether the calling thread lets itself be cancelled.
pub(crate) fn may_be_cancelled() -> bool {
    let mut state = CANCEL_DISABLE;
    // SAFETY: the word lives through the call; what it was is put back.
    unsafe {
        pthread_setcancelstate(CANCEL_DISABLE, &raw mut state);
        if state == CANCEL_ENABLE {
            pthread_setcancelstate(CANCEL_ENABLE, ptr::null_mut());
        }
    }
    state == CANCEL_ENABLE
}

/// Whether the calling thread is cancelled at once, or at such a point; what it was.
pub(crate) fn set_cancelled_at_once(at_once: bool) -> bool {
    let mut before = CANCEL_DEFERRED;
    let kind = if at_once { CANCEL_ASYNCHRONOUS } else { CANCEL_DEFERRED };
    // SAFETY: the word lives through the call.
    unsafe { pthread_setcanceltype(kind, &raw mut before) };
    before == CANCEL_ASYNCHRONOUS
}

/// The kernel's number of a thread, if it has not ended: its clock is named by that (clock_getcpuclockid(3)).
pub(crate) fn number_of(thread: libc::pthread_t) -> Option<u32> {
    let mut clock = 0;
    // SAFETY: the word lives through the call; the caller's promise about the thread.
    let answer = unsafe { pthread_getcpuclockid(thread, &raw mut clock) };
    (answer == 0).then(|| (!(clock >> 3)).cast_unsigned())
}

/// The calling thread's, as libc has noted it, without a system call.
pub(crate) fn own_number() -> Option<u32> {
    // SAFETY: no memory is involved, and the caller has not ended.
    number_of(unsafe { libc::pthread_self() })
}

/// Whether this process has a thread of that number.
pub(crate) fn is_thread(number: u32) -> bool {
    // SAFETY: no signal is sent.
    unsafe { signal_thread(number as usize, 0) }.is_ok()
}

/// Whether the caller is a signal handler that runs on another stack than its thread, or what that calls.
pub(crate) fn is_on_alternate_stack() -> bool {
    let mut stack = libc::stack_t { ss_sp: ptr::null_mut(), ss_flags: 0, ss_size: 0 };
    let args = [0, (&raw mut stack) as usize, 0, 0, 0, 0];
    // SAFETY: the kernel writes what it knows into the structure, which lives through the call, and changes nothing.
    let asked = unsafe { syscall6(libc::SYS_sigaltstack, args) };
    asked.is_err() || stack.ss_flags & libc::SS_ONSTACK != 0
}

/// Ends a system call of a thread of this process that sleeps, by the signal by which libc cancels.
pub(crate) fn interrupt(thread: u32) {
    // SAFETY: the kernel reads its own structure; libc's handler stays. It restarts calls, for libc's own need no interruption.
    let _ = unsafe {
        if let Some(mut action) = action_of(SIGCANCEL).ok().filter(Action::restarts) {
            action.flags &= !(libc::SA_RESTART as usize);
            let sets = [SIGCANCEL, ptr::from_ref(&action) as usize, 0, SIGSET_BYTES, 0, 0];
            let _ = syscall6(libc::SYS_rt_sigaction, sets);
        }
        signal_thread(thread as usize, SIGCANCEL)
    };
}

/// How many CPUs the machine has at work.
pub(crate) fn online_cpus() -> usize {
    // SAFETY: no memory is involved.
    usize::try_from(unsafe { libc::sysconf(libc::_SC_NPROCESSORS_ONLN) }).unwrap_or(1)
}

/// How long a page is.
pub(crate) fn page_bytes() -> u64 {
    // SAFETY: no memory is involved.
    u64::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096)
}

/// What a clock says: libc's way, which knows whether the kernel's page for that is there. Under valgrind it is not.
pub(crate) fn clock(id: libc::clockid_t) -> Duration {
    let mut now = timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: it writes the time alone. A clock that is not there leaves zero.
    unsafe { libc::clock_gettime(id, &raw mut now) };
    Duration::new(now.tv_sec.unsigned_abs(), now.tv_nsec as u32)
}

/// The CPU on which the caller is.
#[inline]
pub(crate) fn cpu() -> u16 {
    // SAFETY: no memory is involved. libc reads it where the kernel has written it for the thread.
    u16::try_from(unsafe { libc::sched_getcpu() }).unwrap_or(0)
}

/// What libc is to call around each `fork`: before it, and after it in parent and child.
pub(crate) fn at_fork(before: Handler, parent: Handler, child: Handler) -> Result<(), Errno> {
    // SAFETY: functions without arguments, which stay where they are.
    let answer = unsafe { libc::pthread_atfork(Some(before), Some(parent), Some(child)) };
    if answer == 0 { Ok(()) } else { Err(Errno::from_raw_os_error(answer)) }
}

/// Whether there is memory at `address`, to be read, or also to be written. The kernel looks, as a futex's word: it compares one with a
/// number, or adds nothing to it, and nobody sleeps.
pub(crate) fn is_there(address: usize, writes: bool) -> bool {
    static NOBODYS: AtomicU32 = AtomicU32::new(0);
    // Adds 0, and wakes somebody if the word was less than any number that the operation can name.
    const ADD_NOTHING: usize = 1 << 28 | 2 << 24 | 0x800;
    let word = address & !3;
    let at_once = timespec_of(Duration::ZERO);
    let (at_once, nobodys) = (ptr::from_ref(&at_once) as usize, NOBODYS.as_ptr() as usize);
    let private = libc::FUTEX_PRIVATE_FLAG;
    let args = if writes {
        [nobodys, (libc::FUTEX_WAKE_OP | private) as usize, 0, 0, word, ADD_NOTHING]
    } else {
        [word, (libc::FUTEX_WAIT | private) as usize, 0x5eed_f00d, at_once, 0, 0]
    };
    // SAFETY: whatever lies there, the kernel reads it, or adds nothing to it in one step, or says that it cannot.
    unsafe { syscall6(libc::SYS_futex, args) != Err(Errno::FAULT) }
}

/// Lets others have the CPU. Who is confined has no call for that, and looks on.
pub(crate) fn pass() {
    if confining::is_confined() { core::hint::spin_loop() } else { std::thread::yield_now() }
}

/// The same, and how long they had it.
pub(crate) fn pass_for() -> Duration {
    let begin = clock(libc::CLOCK_MONOTONIC);
    pass();
    clock(libc::CLOCK_MONOTONIC).saturating_sub(begin)
}

/// How often who is confined looks on in the place of a nap, which takes some ten microseconds.
const LOOKS_PER_NAP: u32 = 1024;

/// Sleeps for a moment.
pub(crate) fn nap() {
    if confining::is_confined() {
        return (0..LOOKS_PER_NAP).for_each(|_| core::hint::spin_loop());
    }
    let moment = timespec_of(Duration::from_micros(20));
    // SAFETY: the time lives through the call.
    let _ = unsafe { syscall6(libc::SYS_nanosleep, [ptr::from_ref(&moment) as usize, 0, 0, 0, 0, 0]) };
}

/// Closes a descriptor of this library's own. After it nobody may use the number.
pub(crate) fn close(fd: c_int) {
    // SAFETY: no memory is involved.
    let _ = unsafe { syscall6(libc::SYS_close, [fd as usize, 0, 0, 0, 0, 0]) };
}

/// The kernel's descriptor with a number that a program gave. Whether it is open is the program's business: the calls
/// made with it say so.
pub(crate) fn borrow(fd: c_int) -> BorrowedFd<'static> {
    // SAFETY: a negative number is the only one that a `BorrowedFd` may not be; descriptors of ours are not. That it
    // stays open while it is borrowed is what the program promises by using it.
    unsafe { BorrowedFd::borrow_raw(fd.max(0)) }
}

/// Puts a descriptor under a number that a program gave, in place of what is there.
pub(crate) fn replace(with: &OwnedFd, fd: c_int, closes_on_exec: bool) {
    let flags = if closes_on_exec { libc::O_CLOEXEC } else { 0 };
    // SAFETY: no memory is involved; what was there is the program's, of which nothing else here is kept.
    let _ = unsafe {
        syscall6(libc::SYS_dup3, [with.as_raw_fd() as usize, fd as usize, flags as usize, 0, 0, 0])
    };
}

/// Whether a variable is in the environment and not empty.
pub(crate) fn has_variable(name: &CStr) -> bool {
    // SAFETY: as in `variable`.
    unsafe {
        let value = libc::getenv(name.as_ptr());
        !value.is_null() && *value != 0
    }
}

/// Copies a variable of the environment, if there is one that fits; how long it is.
pub(crate) fn variable(name: &CStr, into: &mut [u8]) -> Option<usize> {
    // SAFETY: both are strings that end with zero. The program has no other thread as yet, or does not change its
    // environment while it uses it.
    let value = unsafe {
        let value = libc::getenv(name.as_ptr());
        if value.is_null() { None } else { Some(CStr::from_ptr(value)) }
    };
    let bytes = value?.to_bytes();
    into.get_mut(..bytes.len())?.copy_from_slice(bytes);
    Some(bytes.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_wait_in_milliseconds_is_shorter_than_asked_for() {
        let told =
            [0, 1, 1_000_000, 1_000_001, u64::MAX].map(|it| milliseconds_of(Some(Duration::from_nanos(it))));
        assert_eq!(told, [0, 1, 1, 2, c_int::MAX]);
        assert_eq!(milliseconds_of(None), -1);
    }
}
