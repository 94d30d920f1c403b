//! The calls that say what a signal does, and tell it: a step of ours stands before each handler (`handlers.rs`).
//!
//! `sigignore`, `sigpause` and their kin name no handler. What libc does for itself it does past all of these.

// The names are libc's.
#![allow(non_snake_case)]

use core::ffi::{c_int, c_long};
use core::sync::atomic::{AtomicU64, Ordering};

use libc::{sigaction as Action, sighandler_t};

use crate::real::hooks;
use crate::{buffers, handlers, session, sys};

/// Signals whose handlers `signal` installs without SA_RESTART: a bit each, as libc remembers them, too (siginterrupt(3)).
static INTERRUPTING: AtomicU64 = AtomicU64::new(0);

type Next = unsafe fn(c_int, *const Action, *mut Action) -> c_int;
type NextSignal = unsafe fn(c_int, sighandler_t) -> sighandler_t;

hooks! {
    fn sigaction(signal: c_int, new: *const Action, old: *mut Action) -> c_int =
        // SAFETY: the caller's arguments.
        unsafe { act(signal, new, old, next::sigaction) }.map(Ok);

    fn __sigaction(signal: c_int, new: *const Action, old: *mut Action) -> c_int =
        // SAFETY: the caller's arguments.
        unsafe { act(signal, new, old, next::__sigaction) }.map(Ok);

    fn signal(signal: c_int, handler: sighandler_t) -> sighandler_t =
        // SAFETY: the caller's arguments.
        unsafe { set(signal, handler, !interrupts(signal), next::signal) }.map(Ok);

    fn bsd_signal(signal: c_int, handler: sighandler_t) -> sighandler_t =
        // SAFETY: the caller's arguments.
        unsafe { set(signal, handler, !interrupts(signal), next::bsd_signal) }.map(Ok);

    fn ssignal(signal: c_int, handler: sighandler_t) -> sighandler_t =
        // SAFETY: the caller's arguments.
        unsafe { set(signal, handler, !interrupts(signal), next::ssignal) }.map(Ok);

    fn sysv_signal(signal: c_int, handler: sighandler_t) -> sighandler_t =
        // SAFETY: the caller's arguments.
        unsafe { set(signal, handler, false, next::sysv_signal) }.map(Ok);

    fn __sysv_signal(signal: c_int, handler: sighandler_t) -> sighandler_t =
        // SAFETY: the caller's arguments.
        unsafe { set(signal, handler, false, next::__sysv_signal) }.map(Ok);

    fn sigset(signal: c_int, handler: sighandler_t) -> sighandler_t =
        // SAFETY: the caller's arguments.
        unsafe { set(signal, handler, false, next::sigset) }.map(Ok);

    fn siginterrupt(signal: c_int, interrupts: c_int) -> c_int =
        session::is_wanted().then(|| Ok(change(signal, interrupts != 0)));
}

/// `sigaction` by libc's.
///
/// # Safety
/// As for the function of this name.
unsafe fn act(signal: c_int, new: *const Action, old: *mut Action, next: Next) -> Option<c_int> {
    if !session::is_wanted() {
        return None;
    }
    // SAFETY: the caller's promise, as for libc's, which reads and writes both here. They may be one.
    unsafe {
        let mut own = None;
        if !new.is_null() {
            let own = own.insert(new.read());
            let restarts = own.sa_flags & libc::SA_RESTART != 0;
            own.sa_sigaction = handlers::step_before(signal, own.sa_sigaction, restarts);
        }
        let answer = next(signal, own.as_ref().map_or(core::ptr::null(), core::ptr::from_ref), old);
        if answer == 0 && !old.is_null() {
            (*old).sa_sigaction = handlers::behind((*old).sa_sigaction);
        }
        Some(answer)
    }
}

/// `signal` and its kin by libc's.
///
/// # Safety
/// As for the functions of these names.
unsafe fn set(
    signal: c_int,
    handler: sighandler_t,
    restarts: bool,
    next: NextSignal,
) -> Option<sighandler_t> {
    let own = || handlers::step_before(signal, handler, restarts);
    // SAFETY: the caller's promise; a step is a handler.
    session::is_wanted().then(|| handlers::behind(unsafe { next(signal, own()) }))
}

fn interrupts(signal: c_int) -> bool {
    INTERRUPTING.load(Ordering::Relaxed) & bit(signal) != 0
}

fn bit(signal: c_int) -> u64 {
    u32::try_from(signal - 1).ok().and_then(|nth| 1_u64.checked_shl(nth)).unwrap_or(0)
}

/// `siginterrupt`: the handler that there is gets a step of the other kind.
fn change(signal: c_int, interrupts: bool) -> c_int {
    // SAFETY: no memory is involved.
    let answer = unsafe { next::siginterrupt(signal, c_int::from(interrupts)) };
    if answer == 0 {
        match interrupts {
            true => INTERRUPTING.fetch_or(bit(signal), Ordering::Relaxed),
            false => INTERRUPTING.fetch_and(!bit(signal), Ordering::Relaxed),
        };
        // SAFETY: zeros are an action, which lives through both calls; the handler is the program's.
        unsafe {
            let mut action: Action = core::mem::zeroed();
            if next::sigaction(signal, core::ptr::null(), &raw mut action) == 0 {
                action.sa_sigaction = handlers::behind(action.sa_sigaction);
                let _ = act(signal, &raw const action, core::ptr::null_mut(), next::sigaction);
            }
        }
    }
    answer
}

/// The system call (`syscall`), of whose structures the kernel is to see copies, with a step in the first: its answer, if it is one of whose
/// memory something can be said.
///
/// # Safety
/// As the system call's.
pub(super) unsafe fn by_number(signal: c_int, new: usize, old: usize, bytes: usize) -> Option<c_long> {
    let is_there = |address: usize| address == 0 || buffers::check(address as _, sys::ACTION_BYTES).is_ok();
    if !is_there(new) || !is_there(old) {
        return None;
    }
    // SAFETY: the caller's promise.
    let answer = unsafe { sys::act(signal, new, old, bytes) };
    Some(crate::answer::answer(answer.map(|()| 0)))
}
