//! Signal handlers of the program: that one has run is noted, so that a call of ours ends as a system call would.
//!
//! A system call that waits ends with a handler that runs meanwhile (signal(7)). A call of ours works in the program for a while before it sleeps
//! in the kernel, and of a handler that runs then the kernel says nothing. So the hooks (`hooks/handlers.rs`) put a step of ours
//! before each handler: it counts, in a word of its thread, and jumps on to the program's. Registers and stack are then as the kernel has made them for
//! that, and nothing of ours is left to be done: it may return, jump out, unwind.
//!
//! - R1. A call notes the word when it begins ([`Seen::now`]), and sleeps by [`Seen::call`]. That compares the word and enters the kernel; a step that
//!   finds its thread between the two makes it go back as if the kernel had been interrupted. So no handler is missed, however late it comes.
//! - R2. Each handler has a step of its own for each kind, made once and for ever, whose address is all that the kernel knows. So what a program
//!   asks for is translated without looking at anything that changes: in threads, in handlers, in children that share memory (vfork).
//! - R3. Handlers of what a thread does itself (SIGSEGV and its like) are left alone, as are those for which there is no step any more and those that no hook sees:
//!   they end a sleep in the kernel alone (`wait.rs`).

use core::ffi::c_int;
use core::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use core::time::Duration;

use rustix::io::Errno;

use crate::sys;

/// How many handlers of a kind have a step, and how far steps are apart.
const STEPS: usize = 128;
const STRIDE: usize = 16;

/// Whom each step jumps to. What is given out stays: a signal may be on its way to it.
type Steps = [AtomicUsize; STEPS];

/// Of handlers with SA_RESTART, and of those without.
static RESTARTING: Steps = [const { AtomicUsize::new(0) }; STEPS];
static ENDING: Steps = [const { AtomicUsize::new(0) }; STEPS];

/// Signals by which the kernel tells a thread what it has just done.
const SYNCHRONOUS: [c_int; 6] =
    [libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL, libc::SIGTRAP, libc::SIGSYS];

/// What the kernel is to know instead of `handler`, which may also be one of those numbers that are none.
pub(crate) fn step_before(signal: c_int, handler: usize, restarts: bool) -> usize {
    const SIG_HOLD: usize = 2;
    const NONE: [usize; 4] = [libc::SIG_DFL, libc::SIG_IGN, libc::SIG_ERR, SIG_HOLD];
    if NONE.contains(&handler) || SYNCHRONOUS.contains(&signal) || behind(handler) != handler {
        return handler;
    }
    let (steps, first) = if restarts { (&RESTARTING, firsts().0) } else { (&ENDING, firsts().1) };
    let place = steps.iter().position(|step| {
        let taken = step.compare_exchange(0, handler, Ordering::Relaxed, Ordering::Relaxed);
        taken.map_or_else(|known| known == handler, |_| true)
    });
    place.map_or(handler, |place| first + STRIDE * place)
}

/// Whom the program knows where the kernel knows `address`.
pub(crate) fn behind(address: usize) -> usize {
    let handler = |steps: &Steps, first: usize| {
        let place = address.checked_sub(first)? / STRIDE;
        steps.get(place).map(|step| step.load(Ordering::Relaxed))
    };
    let (restarting, ending) = firsts();
    handler(&RESTARTING, restarting).or_else(|| handler(&ENDING, ending)).unwrap_or(address)
}

/// Handlers that ran in the calling thread, by kind; counts begin again at zero.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Seen {
    word: u64,
}

/// What has run since.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Ran {
    /// No handler that has a step.
    Nothing,
    /// Handlers with SA_RESTART.
    Restarting,
    /// One without it, at least.
    Ending,
}

impl Seen {
    /// Those that have run until now.
    #[inline]
    pub(crate) fn now() -> Self {
        Self { word: counted() }
    }

    /// Whether one has run since this was noted.
    pub(crate) fn is_old(self) -> bool {
        self != Self::now()
    }

    /// What has run since this was noted; it is noted anew.
    pub(crate) fn renew(&mut self) -> Ran {
        let before = core::mem::replace(self, Self::now());
        match (self.word ^ before.word, self.word >> 32 == before.word >> 32) {
            (0, _) => Ran::Nothing,
            (_, true) => Ran::Restarting,
            (_, false) => Ran::Ending,
        }
    }

    /// Makes a system call that sleeps.
    ///
    /// # Errors
    /// The call's; INTR at once if a handler has run since this was noted.
    ///
    /// # Safety
    /// As the system call's.
    pub(crate) unsafe fn call(self, number: i64, args: [usize; 6]) -> Result<usize, Errno> {
        // SAFETY: the arguments live through the call, whose rules are the caller's promise.
        sys::answer(unsafe { firelane_sleep(number, &args, self.word) })
    }

    /// Sleeps on a word of a block ([`firelane_shm::Sleep::until_by`]).
    pub(crate) fn sleep_on(self, word: &AtomicU32, value: u32, limit: Duration) -> Result<(), Errno> {
        let limit = sys::timespec_of(limit);
        // Not private: the other end is another process.
        let args = [
            word.as_ptr() as usize,
            libc::FUTEX_WAIT as usize,
            value as usize,
            (&raw const limit) as usize,
            0,
            0,
        ];
        // SAFETY: the word and the time live through the call.
        unsafe { self.call(libc::SYS_futex, args) }.map(|_| ())
    }
}

/// The first steps of both kinds.
fn firsts() -> (usize, usize) {
    ((&raw const firelane_restarting).addr(), (&raw const firelane_ending).addr())
}

unsafe extern "C-unwind" {
    static firelane_restarting: [u8; STEPS * STRIDE];
    static firelane_ending: [u8; STEPS * STRIDE];

    /// Makes a system call, unless the thread's word is not `seen` any more: then it is interrupted.
    fn firelane_sleep(number: i64, args: &[usize; 6], seen: u64) -> isize;
}

/// The calling thread's word: below the handlers with SA_RESTART, above the others.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn counted() -> u64 {
    let word;
    // SAFETY: the word is the calling thread's own.
    unsafe {
        core::arch::asm!(
            "mov {word}, qword ptr [rip + firelane_handlers@GOTTPOFF]",
            "mov {word}, qword ptr fs:[{word}]",
            word = out(reg) word,
            options(nostack, readonly, preserves_flags),
        );
    }
    word
}

/// The calling thread's word: below the handlers with SA_RESTART, above the others.
#[cfg(target_arch = "aarch64")]
#[inline(always)]
fn counted() -> u64 {
    let word;
    // SAFETY: the word is the calling thread's own.
    unsafe {
        core::arch::asm!(
            "mrs {at}, tpidr_el0",
            "adrp {word}, :gottprel:firelane_handlers",
            "ldr {word}, [{word}, :gottprel_lo12:firelane_handlers]",
            "ldr {word}, [{at}, {word}]",
            at = out(reg) _,
            word = out(reg) word,
            options(nostack, readonly, preserves_flags),
        );
    }
    word
}

// The word of each thread, and what the two below have in common.
core::arch::global_asm!(
    ".pushsection .tbss.firelane_handlers, \"awT\", @nobits",
    ".hidden firelane_handlers",
    ".globl firelane_handlers",
    ".type firelane_handlers, @object",
    ".size firelane_handlers, 8",
    ".balign 8",
    "firelane_handlers:",
    ".zero 8",
    ".popsection",
    ".hidden firelane_restarting",
    ".hidden firelane_ending",
    ".hidden firelane_sleep",
    ".globl firelane_restarting",
    ".globl firelane_ending",
    ".globl firelane_sleep",
    ".type firelane_restarting, @function",
    ".type firelane_ending, @function",
    ".type firelane_sleep, @function",
);

// A step has the registers of its arguments and the stack as the kernel has left them for the handler, and changes others that a function may. Where
// the thread was interrupted lies in the frame above it, whatever the kernel says of it by registers: those of a handler without SA_SIGINFO say nothing.

/// Where the kernel's frame has the thread's program counter, from the stack pointer on: behind the address to return to.
#[cfg(target_arch = "x86_64")]
const INTERRUPTED_AT: usize = size_of::<usize>()
    + core::mem::offset_of!(libc::ucontext_t, uc_mcontext)
    + core::mem::offset_of!(libc::mcontext_t, gregs)
    + libc::REG_RIP as usize * size_of::<libc::greg_t>();

#[cfg(target_arch = "x86_64")]
core::arch::global_asm!(
    ".pushsection .text.firelane_handlers, \"ax\", @progbits",
    ".cfi_startproc",
    ".balign {stride}",
    "firelane_restarting:",
    ".rept {steps}",
    ".balign {stride}",
    "lea rax, [rip]",
    "jmp 20f",
    ".endr",
    ".balign {stride}",
    "firelane_ending:",
    ".rept {steps}",
    ".balign {stride}",
    "lea rax, [rip]",
    "jmp 21f",
    ".endr",
    "20:",
    "lea rcx, [rip + firelane_restarting]",
    "lea r8, [rip + {restarting}]",
    "xor r9d, r9d",
    "jmp 22f",
    "21:",
    "lea rcx, [rip + firelane_ending]",
    "lea r8, [rip + {ending}]",
    "mov r9d, 4",
    "22:",
    "sub rax, rcx",
    "shr rax, 4",
    "mov rax, qword ptr [r8 + 8 * rax]",
    "add r9, qword ptr [rip + firelane_handlers@GOTTPOFF]",
    "add dword ptr fs:[r9], 1",
    "mov rcx, qword ptr [rsp + {at}]",
    "lea r8, [rip + 30f]",
    "cmp rcx, r8",
    "jb 23f",
    "lea r8, [rip + 31f]",
    "cmp rcx, r8",
    "jae 23f",
    "lea r8, [rip + 32f]",
    "mov qword ptr [rsp + {at}], r8",
    "23:",
    "jmp rax",
    ".cfi_endproc",
    ".balign 16",
    ".cfi_startproc",
    "firelane_sleep:",
    "mov rax, rdi",
    "mov rcx, rsi",
    "mov r11, rdx",
    "mov rdi, qword ptr [rcx]",
    "mov rsi, qword ptr [rcx + 8]",
    "mov rdx, qword ptr [rcx + 16]",
    "mov r10, qword ptr [rcx + 24]",
    "mov r8, qword ptr [rcx + 32]",
    "mov r9, qword ptr [rcx + 40]",
    // From here on, until the kernel has been entered, a step goes back.
    "30:",
    "mov rcx, qword ptr [rip + firelane_handlers@GOTTPOFF]",
    "cmp r11, qword ptr fs:[rcx]",
    "jne 32f",
    "syscall",
    "31:",
    "ret",
    "32:",
    "mov rax, {interrupted}",
    "ret",
    ".cfi_endproc",
    ".popsection",
    steps = const STEPS,
    stride = const STRIDE,
    restarting = sym RESTARTING,
    ending = sym ENDING,
    at = const INTERRUPTED_AT,
    interrupted = const -libc::EINTR,
);

/// The same here: before the context lies what the kernel says of the signal.
#[cfg(target_arch = "aarch64")]
const INTERRUPTED_AT: usize = size_of::<libc::siginfo_t>()
    + core::mem::offset_of!(libc::ucontext_t, uc_mcontext)
    + core::mem::offset_of!(libc::mcontext_t, pc);

#[cfg(target_arch = "aarch64")]
core::arch::global_asm!(
    ".pushsection .text.firelane_handlers, \"ax\", @progbits",
    ".cfi_startproc",
    ".balign {stride}",
    "firelane_restarting:",
    ".rept {steps}",
    ".balign {stride}",
    "adr x9, .",
    "b 20f",
    ".endr",
    ".balign {stride}",
    "firelane_ending:",
    ".rept {steps}",
    ".balign {stride}",
    "adr x9, .",
    "b 21f",
    ".endr",
    "20:",
    "adrp x10, firelane_restarting",
    "add x10, x10, :lo12:firelane_restarting",
    "adrp x11, {restarting}",
    "add x11, x11, :lo12:{restarting}",
    "mov x12, #0",
    "b 22f",
    "21:",
    "adrp x10, firelane_ending",
    "add x10, x10, :lo12:firelane_ending",
    "adrp x11, {ending}",
    "add x11, x11, :lo12:{ending}",
    "mov x12, #4",
    "22:",
    "sub x9, x9, x10",
    "lsr x9, x9, #4",
    "ldr x16, [x11, x9, lsl #3]",
    "adrp x10, :gottprel:firelane_handlers",
    "ldr x10, [x10, :gottprel_lo12:firelane_handlers]",
    "mrs x11, tpidr_el0",
    "add x10, x10, x11",
    "add x10, x10, x12",
    // A step that comes between reading and writing counts, too.
    "24:",
    "ldxr w11, [x10]",
    "add w11, w11, #1",
    "stxr w12, w11, [x10]",
    "cbnz w12, 24b",
    "ldr x9, [sp, #{at}]",
    "adr x10, 30f",
    "sub x9, x9, x10",
    "cmp x9, #(31f - 30f)",
    "b.hs 23f",
    "adr x10, 32f",
    "str x10, [sp, #{at}]",
    "23:",
    "br x16",
    ".cfi_endproc",
    ".balign 16",
    ".cfi_startproc",
    "firelane_sleep:",
    "mov x8, x0",
    "mov x9, x1",
    "mov x10, x2",
    "ldp x0, x1, [x9]",
    "ldp x2, x3, [x9, #16]",
    "ldp x4, x5, [x9, #32]",
    // From here on, until the kernel has been entered, a step goes back.
    "30:",
    "mrs x11, tpidr_el0",
    "adrp x12, :gottprel:firelane_handlers",
    "ldr x12, [x12, :gottprel_lo12:firelane_handlers]",
    "ldr x12, [x11, x12]",
    "cmp x12, x10",
    "b.ne 32f",
    "svc #0",
    "31:",
    "ret",
    "32:",
    "mov x0, #{interrupted}",
    "ret",
    ".cfi_endproc",
    ".popsection",
    steps = const STEPS,
    stride = const STRIDE,
    restarting = sym RESTARTING,
    ending = sym ENDING,
    at = const INTERRUPTED_AT,
    interrupted = const -libc::EINTR,
);

#[cfg(test)]
mod tests {
    use super::*;
    use core::ptr;
    use core::sync::atomic::{AtomicBool, AtomicI32};

    static TOLD: AtomicI32 = AtomicI32::new(0);

    extern "C" fn note(signal: c_int, info: &libc::siginfo_t, context: &libc::ucontext_t) {
        let is_whole = info.si_signo == signal && context.uc_link.is_null();
        TOLD.fetch_add(if is_whole { signal } else { -1000 }, Ordering::Relaxed);
    }

    extern "C" fn other(_: c_int) {}

    /// The signals of these tests; each has its own, for they share the process.
    fn nth(n: c_int) -> c_int {
        libc::SIGRTMIN() + n
    }

    fn install(signal: c_int, handler: usize, flags: c_int) {
        // SAFETY: zeros are an action, and the handler is one of this file's.
        unsafe {
            let mut action: libc::sigaction = core::mem::zeroed();
            action.sa_sigaction = step_before(signal, handler, flags & libc::SA_RESTART != 0);
            action.sa_flags = flags;
            assert_eq!(libc::sigaction(signal, &action, ptr::null_mut()), 0);
        }
    }

    #[test]
    fn each_handler_has_a_step_of_each_kind() {
        let (one, two) = (note as *const () as usize, other as *const () as usize);
        let steps = [(one, true), (one, false), (two, true), (two, false)]
            .map(|(handler, restarts)| step_before(libc::SIGHUP, handler, restarts));
        assert!(steps.iter().enumerate().all(|(nth, step)| !steps[..nth].contains(step)));
        assert_eq!(steps.map(behind), [one, one, two, two]);
        assert_eq!(step_before(libc::SIGTERM, one, true), steps[0], "made once");
        assert_eq!(step_before(libc::SIGHUP, steps[0], false), steps[0], "nor one before another");
        for none in [libc::SIG_DFL, libc::SIG_IGN, libc::SIG_ERR] {
            assert_eq!(step_before(libc::SIGHUP, none, true), none);
        }
        assert_eq!(step_before(libc::SIGSEGV, one, false), one);
        let (first, _) = firsts();
        assert_eq!([first - 1, one].map(behind), [first - 1, one]);
    }

    #[test]
    fn handlers_run_as_without_a_step_and_are_noted_by_kind() {
        let signal = nth(1);
        for (flags, ran) in [(libc::SA_RESTART, Ran::Restarting), (0, Ran::Ending)] {
            install(signal, note as *const () as usize, flags | libc::SA_SIGINFO);
            let (mut seen, before) = (Seen::now(), TOLD.load(Ordering::Relaxed));
            assert_eq!(seen.sleep_on(&AtomicU32::new(0), 1, Duration::ZERO), Err(Errno::AGAIN));
            sys::raise(signal);
            assert_eq!(TOLD.load(Ordering::Relaxed) - before, signal);
            assert_eq!(seen.sleep_on(&AtomicU32::new(0), 0, Duration::MAX), Err(Errno::INTR));
            assert_eq!((seen.renew(), seen.renew()), (ran, Ran::Nothing));
            assert!(std::thread::spawn(|| Seen::now() == Seen::default()).join().unwrap(), "by thread");
        }
        let mut seen = Seen::now();
        install(signal, other as *const () as usize, libc::SA_RESTART);
        sys::raise(signal);
        install(signal, other as *const () as usize, 0);
        sys::raise(signal);
        assert_eq!(seen.renew(), Ran::Ending, "of both kinds");
    }

    /// It comes before the sleep, on the way there, and in it.
    #[test]
    fn a_handler_ends_a_sleep_whenever_it_runs() {
        const ROUNDS: u32 = 3000;
        static ROUND: AtomicU32 = AtomicU32::new(0);
        static IS_OVER: AtomicBool = AtomicBool::new(false);
        let (signal, word) = (nth(2), AtomicU32::new(0));
        install(signal, other as *const () as usize, libc::SA_RESTART);
        // SAFETY: no memory is involved.
        let sleeper = unsafe { libc::pthread_self() };
        let waker = std::thread::spawn(move || {
            for round in 1..=ROUNDS {
                while ROUND.load(Ordering::Acquire) != round && !IS_OVER.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
                (0..round % 400).for_each(|_| std::hint::spin_loop());
                // SAFETY: the thread waits for this one.
                unsafe { libc::pthread_kill(sleeper, signal) };
            }
        });
        let missed = (1..=ROUNDS).find(|&round| {
            let seen = Seen::now();
            ROUND.store(round, Ordering::Release);
            seen.sleep_on(&word, 0, Duration::from_secs(5)) != Err(Errno::INTR)
        });
        IS_OVER.store(true, Ordering::Relaxed);
        waker.join().unwrap();
        assert_eq!(missed, None);
    }
}
