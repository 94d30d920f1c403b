//! What wakes the hub: an eventfd that is written to only while somebody sleeps on it.
//!
//! Used by `hub.rs`.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::Wake;

/// Listeners of all lanes ring it, and lanes that leave something to who has time. Only for a sleeper that costs a system call.
#[derive(Debug)]
pub(super) struct HubBell {
    state: AtomicU32,
    eventfd: OwnedFd,
}

const AWAKE: u32 = 0;
const ASLEEP: u32 = 1;
const RUNG: u32 = 2;

impl HubBell {
    /// One that writes to an eventfd of its own.
    pub(super) fn new(eventfd: OwnedFd) -> Self {
        Self { state: AtomicU32::new(AWAKE), eventfd }
    }

    /// Whether somebody has rung since the last look.
    pub(super) fn is_rung(&self) -> bool {
        self.state.load(Ordering::Relaxed) == RUNG
    }

    /// Whether it may sleep: nobody has rung since the last look.
    pub(super) fn fall_asleep(&self) -> bool {
        self.state.compare_exchange(AWAKE, ASLEEP, Ordering::SeqCst, Ordering::SeqCst).is_ok()
    }

    /// The owner is about to look. Whether somebody has rung.
    pub(super) fn clear(&self) -> bool {
        self.state.swap(AWAKE, Ordering::SeqCst) == RUNG
    }
}

impl Wake for HubBell {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if self.state.swap(RUNG, Ordering::SeqCst) == ASLEEP {
            // One that is full rings already.
            let _ = rustix::io::write(&self.eventfd, &1u64.to_ne_bytes());
        }
    }
}

impl AsFd for HubBell {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.eventfd.as_fd()
    }
}
