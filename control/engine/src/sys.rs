//! The CPU's cycle counter: the engine's only unsafe code.
//!
//! Given to lanes as a function (`watch.rs`); they read it around each step while somebody wants to know what steps cost.

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

#[cfg(test)]
mod tests {
    #[test]
    fn it_runs_on() {
        let before = super::cycles();
        std::thread::sleep(std::time::Duration::from_millis(2));
        assert!(super::cycles() > before + 1000);
    }
}
