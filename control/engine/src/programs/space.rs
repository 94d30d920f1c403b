//! The daemon's address space, of which each program's arena takes some: nobody is to take all of it, for then nobody has any, the daemon
//! itself included.
//!
//! What is left is never given away as a whole: the next arena may have a small part of it ([`PARTS`]). So the first have all that an
//! arena can use, the four thousandth has storage for thousands of connections, and whoever makes arenas without end gets ever smaller
//! ones, until one would be of no use. What an arena has taken comes back when it is unmapped, which may be a while after its program's
//! end (`pages.rs`). Owned by `mod.rs`; segments, whose number has a limit, have the rest (`segment.rs`).

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// As much is for arenas, of the 128 TiB that a process has: segments take 64, and what an arena keeps in books is a hundredth of it.
const WHOLE: u64 = 60 << 40;
/// The next arena may have one of so many parts of what is left. The first fifty have as much as an arena ever has.
const PARTS: u64 = 900;

/// How much of it is taken.
#[derive(Clone, Debug, Default)]
pub(super) struct Space(Arc<AtomicU64>);

/// What one arena has taken. It goes back when this is dropped.
#[derive(Debug)]
pub(super) struct Taken {
    space: Space,
    bytes: u64,
}

impl Space {
    /// How much the next arena may have.
    pub(super) fn share(&self) -> u64 {
        WHOLE.saturating_sub(self.0.load(Ordering::Relaxed)) / PARTS
    }

    /// An arena has so much.
    pub(super) fn take(&self, bytes: u64) -> Taken {
        self.0.fetch_add(bytes, Ordering::Relaxed);
        Taken { space: self.clone(), bytes }
    }

    #[cfg(test)]
    pub(super) fn taken(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        self.space.0.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use firelane_shm::Layout;

    #[test]
    fn as_many_programs_as_there_may_be_have_arenas_and_nobody_takes_all() {
        let (space, whole) = (Space::default(), Layout::new(64));
        let next = || whole.within(space.share()).map(|it| (it.storage_bytes, space.take(it.len())));
        let all: Vec<_> = std::iter::from_fn(next).collect();
        let storage = |nth: usize| all[nth].0;
        assert!(all.len() > 6 << 10, "{}", all.len());
        assert!((0..50).all(|nth| storage(nth) == whole.storage_bytes));
        assert!(storage(1023) > 16 << 30 && storage(4095) > 512 << 20, "{} {}", storage(1023), storage(4095));
        assert!(space.taken() < WHOLE);
        drop(all);
        assert_eq!((space.taken(), space.share()), (0, WHOLE / PARTS));
    }
}
