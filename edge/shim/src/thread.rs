//! What a thread has of its own: a name for owner words, its waiters, and how long it looks before it sleeps.

use core::cell::{Cell, RefCell};
use core::sync::atomic::{AtomicU32, Ordering};
use std::sync::OnceLock;
use std::thread::LocalKey;

use firelane_shm::{Holder, Spin};

use crate::{arenas, confining, process, session, sys};

/// How often who connects looks: somewhat longer than it takes to wake his lane. A fourth of it, which is the least, is longer than
/// an interrupt on the lane's CPU.
const LOOKS_TO_CONNECT: u32 = 4096;

/// So many waits of a thread, and it asks again which CPUs it may use.
const WAITS_PER_QUESTION: u32 = 4096;

/// The last name that was given. Names are the process' own: a forked child has another session.
static LAST: AtomicU32 = AtomicU32::new(0);

thread_local! {
    static NUMBER: Cell<(u32, u32)> = const { Cell::new((0, 0)) };
    static WAITERS: Cell<Waiters> = const { Cell::new(Waiters { home: 0, held: 0 }) };
    static NAME: Cell<u32> = const { Cell::new(0) };
    /// Whether the thread has woken a lane, or another program, since it last waited for one.
    static HAS_WOKEN: Cell<bool> = const { Cell::new(false) };
    /// How many CPUs it may use, and how many waits from here it asks again.
    static CPUS: Cell<(u32, u32)> = const { Cell::new((0, 0)) };
    static SPIN: RefCell<Option<Spin>> = const { RefCell::new(None) };
    static SHARING: RefCell<Option<Spin>> = const { RefCell::new(None) };
    static LANE: RefCell<Option<Spin>> = const { RefCell::new(None) };
    static BESIDE: RefCell<Option<Spin>> = const { RefCell::new(None) };
    static CONNECTING: RefCell<Option<Spin>> = const { RefCell::new(None) };
}

/// Which waiters (`waiter.rs`) a thread has.
#[derive(Clone, Copy, Default)]
pub(crate) struct Waiters {
    /// One above the place that is its own, if that is not another's by now; zero is none.
    pub(crate) home: u32,
    /// How many its calls have at present: one, or more where a handler has come between or jumped out.
    pub(crate) held: u32,
}

/// The calling thread's waiters.
pub(crate) fn waiters() -> Waiters {
    WAITERS.get()
}

/// They are these from here on.
pub(crate) fn set_waiters(waiters: Waiters) {
    WAITERS.set(waiters);
}

/// The calling thread's name among the threads of its process; not zero.
#[inline]
pub(crate) fn name() -> u32 {
    NAME.with(|name| {
        if name.get() == 0 {
            name.set(LAST.fetch_add(1, Ordering::Relaxed) + 1);
        }
        name.get()
    })
}

/// The calling thread, as owner words name it.
#[inline]
pub(crate) fn holder() -> Holder {
    Holder::new(session::number(), name())
}

/// The calling thread, as the kernel numbers it.
pub(crate) fn kernel_number() -> u32 {
    NUMBER.with(|known| {
        let (process, number) = known.get();
        if process == process::number() {
            return number;
        }
        // A forked child has another. Who is confined believes libc, which has none noted for a child that it has not made.
        let noted = if confining::is_confined() { sys::own_number() } else { None };
        let asked = || rustix::thread::gettid().as_raw_nonzero().get().unsigned_abs();
        let number = noted.unwrap_or_else(asked);
        known.set((process::number(), number));
        number
    })
}

/// How many CPUs there are, for this process or others: the daemon may have one of those.
pub(crate) fn online_cpus() -> usize {
    static CPUS: OnceLock<usize> = OnceLock::new();
    *CPUS.get_or_init(sys::online_cpus)
}

/// How many CPUs there are for the calling thread, as it has lately been told: it may be bound while it runs. Who is confined asks no more.
fn cpus() -> u32 {
    /// What some thread was told last.
    static TOLD: AtomicU32 = AtomicU32::new(1);
    let (known, waits) = CPUS.get();
    if waits > 0 {
        CPUS.set((known, waits - 1));
        return known;
    }
    if !confining::is_confined() {
        let told = rustix::thread::sched_getaffinity(None).map_or(1, |set| set.count());
        TOLD.store(told, Ordering::Relaxed);
    }
    CPUS.set((TOLD.load(Ordering::Relaxed), WAITS_PER_QUESTION));
    CPUS.get().0
}

/// The looks before the CPU is given to others: more than an answer from another CPU takes. From then on it is with every few, for a call that
/// gives it to nobody takes as long as those.
const LOOKS_ALONE: u32 = 64;
const LOOKS_PER_PASS: u32 = 16;

/// The same, for threads of a program, which may share their CPU with whoever is to answer.
pub(crate) fn passing(spin: Spin) -> Spin {
    spin.passing(LOOKS_ALONE, LOOKS_PER_PASS, sys::pass_for)
}

/// The calling thread has woken a lane, or another program, whose answer takes that longer.
pub(crate) fn has_woken() {
    HAS_WOKEN.set(true);
}

/// Lets `wait` look and learn how long that pays, where it is not known on which CPU who is waited for is.
pub(crate) fn spinning<T>(wait: impl FnOnce(&mut Spin) -> T) -> T {
    if cpus() == 1 || arenas::has_lanes_on(sys::cpu()) {
        return sharing(wait);
    }
    with(&SPIN, || passing(Spin::new(cpus() as usize)), wait)
}

/// The same where whoever is waited for needs the very CPU of the caller, who gives it to him.
pub(crate) fn sharing<T>(wait: impl FnOnce(&mut Spin) -> T) -> T {
    with(&SHARING, || Spin::on_one_cpu(sys::pass_for), wait)
}

/// The same where it is known that the lane was last on another CPU, though this process may have a single one.
pub(crate) fn spinning_for_lane<T>(wait: impl FnOnce(&mut Spin) -> T) -> T {
    with(&LANE, || passing(Spin::new(online_cpus())), wait)
}

/// The same where another program is waited for, which may have another CPU though this one has a single one.
pub(crate) fn spinning_beside<T>(wait: impl FnOnce(&mut Spin) -> T) -> T {
    with(&BESIDE, || passing(Spin::beside(online_cpus())), wait)
}

/// The same for who connects. His lane sleeps at first, which is no reason to stop looking; and what is learned of peers that are far
/// away says nothing of other waits.
pub(crate) fn spinning_to_connect<T>(wait: impl FnOnce(&mut Spin) -> T) -> T {
    with(&CONNECTING, || Spin::in_bursts(LOOKS_TO_CONNECT, online_cpus()), wait)
}

/// In a signal handler that came while it looked, it does not look.
fn with<T>(
    spin: &'static LocalKey<RefCell<Option<Spin>>>,
    make: impl FnOnce() -> Spin,
    wait: impl FnOnce(&mut Spin) -> T,
) -> T {
    spin.with(|spin| match spin.try_borrow_mut() {
        Ok(mut spin) => {
            let spin = spin.get_or_insert_with(make);
            if HAS_WOKEN.take() {
                spin.has_woken();
            }
            wait(spin)
        }
        Err(_) => wait(&mut Spin::new(1)),
    })
}
