//! The daemon's end of a block's rings: where it is, where the storage is, and how much of what the program says holds.
//!
//! Used by `ferry.rs`. The rules of the rings are those of `byte_ring.rs` in `base/frame` (R1 to R5). Cursors, places
//! and sizes that the daemon works by are its own; of the program's words it reads the other cursor, once, and checks
//! that it is not further than a ring reaches. The words that the program reads are copies.

use std::ptr::without_provenance_mut;
use std::sync::atomic::Ordering;

use firelane_frame::RingSide;
use firelane_frame::ring_state::{ATTACHED, EPOCH, HELD, SIZE_SHIFT};
use firelane_shm::{Block, Mapping};

use super::arena::{EXTENT, EXTENT_SHIFT, ProgramArena};

/// The program's cursor cannot be: further than the ring reaches, or behind what it was.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Lie;

/// Where a ring's storage is, and the daemon's cursor in it.
#[derive(Debug, Default)]
struct Own {
    cursor: u64,
    storage: Option<u64>,
}

impl Own {
    /// Gives the ring storage, if there is any. Whether it has some.
    fn attach(&mut self, side: &RingSide, arena: &ProgramArena) -> bool {
        if self.storage.is_none()
            && let Some(at) = arena.take_extent()
        {
            self.storage = Some(at);
            side.storage.store(without_provenance_mut(at as usize), Ordering::Relaxed);
            // While nothing is attached nobody else changes the word.
            let epoch = side.state.load(Ordering::Relaxed) & !(EPOCH - 1);
            side.state.store(epoch | u64::from(EXTENT_SHIFT) << SIZE_SHIFT | ATTACHED, Ordering::Release);
        }
        self.storage.is_some()
    }

    /// Takes the storage away, if the program is not inside. Whether there is none.
    fn detach(&mut self, side: &RingSide, arena: &ProgramArena, is_empty: impl FnOnce() -> bool) -> bool {
        let Some(at) = self.storage else { return true };
        let state = side.state.load(Ordering::Acquire);
        if state & HELD != 0 || !is_empty() {
            return false;
        }
        let without = (state & !ATTACHED).wrapping_add(EPOCH);
        let taken = side.state.compare_exchange(state, without, Ordering::AcqRel, Ordering::Relaxed).is_ok();
        if taken {
            self.storage = None;
            arena.give_extent_back(at);
        }
        taken
    }

    /// The at most two pieces of storage for `len` bytes at the cursor, and which of the bytes belong there.
    fn parts(&self, len: usize) -> impl Iterator<Item = (u64, usize, usize)> + use<> {
        let storage = self.storage.unwrap_or_default();
        let offset = self.cursor & (EXTENT - 1);
        let first = len.min((EXTENT - offset) as usize);
        let parts = [(storage + offset, 0, first), (storage, first, len)];
        parts.into_iter().filter(|(_, from, end)| from < end)
    }
}

/// The ring that the program writes.
#[derive(Debug, Default)]
pub(super) struct Taking(Own);

impl Taking {
    pub(super) fn attach(&mut self, block: &Block, arena: &ProgramArena) -> bool {
        self.0.attach(&block.rings.one, arena)
    }

    pub(super) fn detach(&mut self, block: &Block, arena: &ProgramArena) -> bool {
        let cursor = self.0.cursor;
        self.0.detach(&block.rings.one, arena, || block.rings.one.tail.load(Ordering::Acquire) == cursor)
    }

    /// Frees the storage whatever is in it: nobody writes any more.
    pub(super) fn end(&mut self, arena: &ProgramArena) {
        self.0.storage.take().into_iter().for_each(|at| arena.give_extent_back(at));
    }

    /// How many bytes the program has written that were not taken.
    pub(super) fn available(&self, block: &Block) -> Result<usize, Lie> {
        let count = block.rings.one.tail.load(Ordering::Acquire).wrapping_sub(self.0.cursor);
        let most = if self.0.storage.is_some() { EXTENT } else { 0 };
        if count <= most { Ok(count as usize) } else { Err(Lie) }
    }

    /// Copies the next bytes, which are there.
    pub(super) fn copy(&self, mapping: &Mapping, to: &mut [u8]) {
        for (at, from, end) in self.0.parts(to.len()) {
            let is_storage = mapping.copy_out(at, &mut to[from..end]);
            debug_assert!(is_storage, "the place is the daemon's own");
        }
    }

    /// Gives the next `count` bytes up. Whether somebody who found no room to write may find some now.
    pub(super) fn release(&mut self, block: &Block, count: usize) -> bool {
        let before = self.0.cursor;
        self.0.cursor = before.wrapping_add(count as u64);
        block.rings.two.head.store(self.0.cursor, Ordering::SeqCst);
        // The program publishes, looks at our cursor and sleeps; we publish ours and look at its.
        let tail = block.rings.one.tail.load(Ordering::SeqCst);
        let unread = tail.wrapping_sub(before);
        unread >= EXTENT || 2 * (EXTENT - unread) < unread
    }
}

/// The ring that the program reads.
#[derive(Debug, Default)]
pub(super) struct Giving(Own);

impl Giving {
    pub(super) fn attach(&mut self, block: &Block, arena: &ProgramArena) -> bool {
        self.0.attach(&block.rings.two, arena)
    }

    pub(super) fn detach(&mut self, block: &Block, arena: &ProgramArena) -> bool {
        let cursor = self.0.cursor;
        self.0.detach(&block.rings.two, arena, || block.rings.one.head.load(Ordering::Acquire) == cursor)
    }

    pub(super) fn end(&mut self, arena: &ProgramArena) {
        self.0.storage.take().into_iter().for_each(|at| arena.give_extent_back(at));
    }

    /// How many bytes the program has not read.
    pub(super) fn unread(&self, block: &Block) -> Result<usize, Lie> {
        let count = self.0.cursor.wrapping_sub(block.rings.one.head.load(Ordering::Acquire));
        if count <= EXTENT { Ok(count as usize) } else { Err(Lie) }
    }

    /// Copies bytes in and publishes them; they have room.
    pub(super) fn write(&mut self, block: &Block, mapping: &Mapping, bytes: &[u8]) {
        for (at, from, end) in self.0.parts(bytes.len()) {
            let is_storage = mapping.copy_in(at, &bytes[from..end]);
            debug_assert!(is_storage, "the place is the daemon's own");
        }
        self.0.cursor = self.0.cursor.wrapping_add(bytes.len() as u64);
        block.rings.two.tail.store(self.0.cursor, Ordering::Release);
    }
}
