//! Larger storage for a ring that is in use: the reader moves what is unread, and the stream goes on (R6).
//!
//! A sender's buffer grows while it is full, so that nobody can wait until it is empty (`path/tcp/src/send_tuning.rs` says
//! when). Part of the byte rings. The reader does it, because it alone reads the old storage while the writer is not
//! inside; the writer finds no room for as long as a copy takes, and is told of room as it is told of an acknowledgment.

use core::ptr::NonNull;

use crate::sync::Ordering;

use super::{
    ATTACHED, EPOCH, GROWN, HELD, Party, Place, RingReader, SIZE, SIZE_SHIFT, clamped, memory, size_in,
    storage_for, turned,
};

impl RingReader {
    /// Moves what is unread to storage for `capacity` bytes. Whether it did: not while the writer is inside, if there is
    /// no storage or as much already, or if an arena has none to spare.
    #[cold]
    pub fn grow(&mut self, capacity: usize) -> bool {
        let wanted = storage_for(clamped(capacity));
        match self.by {
            Party::Lent => false,
            Party::Far => self.grow_far(wanted),
            Party::One | Party::Two => self.grow_own(wanted),
        }
    }

    /// Changes how much the writer, another process, may have unread: at once, unless an arena has no larger storage to spare or
    /// the writer is inside, when it is so from the next storage on. Less than what is unread leaves no room until it is read.
    #[cold]
    pub fn resize(&mut self, capacity: usize) {
        let Some(far) = self.far() else { return };
        far.set_capacity(capacity);
        self.grow(capacity);
        // What has grown by itself counts as a whole; this is to be as large as was said.
        for side in [&self.block.one, &self.block.other().words().one] {
            side.state.fetch_and(!GROWN, Ordering::AcqRel);
        }
    }

    fn grow_own(&mut self, wanted: usize) -> bool {
        let word = &self.ring().writer.state;
        let state = word.load(Ordering::Acquire);
        if state & (ATTACHED | HELD) != ATTACHED || size_in(state) >= wanted {
            return false;
        }
        if word.compare_exchange(state, state | HELD, Ordering::AcqRel, Ordering::Relaxed).is_err() {
            return false;
        }
        // From here on the writer enters nothing, so its cursor stands still.
        let (cursor, unread) = (self.cursor(), self.available());
        let old = self.ring().storage();
        let storage = memory::take(wanted);
        let size = u64::from(wanted.trailing_zeros()) << SIZE_SHIFT;
        let grown = turned(state & !SIZE | size | GROWN, cursor, storage).wrapping_add(EPOCH);
        memory::touch(old.storage);
        // SAFETY: (R2, R6) the unread bytes are the reader's, and the storage is held; the new one is nobody else's as yet.
        unsafe { copy(old, Place::new(storage, grown), cursor, unread) };
        self.ring().writer.storage.store(storage, Ordering::Relaxed);
        self.ring().writer.state.store(grown, Ordering::Release);
        // SAFETY: `old` was attached until now, and the writer, who was not inside, finds the new one when he enters.
        unsafe { memory::free(old.storage, old.len) };
        true
    }

    /// The other process' words only show what the lane's own say. While they show no storage it finds no room; if it
    /// writes all the same, it writes to its own arena.
    fn grow_far(&mut self, wanted: usize) -> bool {
        let far = self.block.other();
        let (own, shown) = (&self.block.one, &far.words().one);
        let (state, seen) = (own.state.load(Ordering::Relaxed), shown.state.load(Ordering::Acquire));
        if state & ATTACHED == 0 || size_in(state) >= wanted || seen & (ATTACHED | HELD) != ATTACHED {
            return false;
        }
        let Some(storage) = far.arena.take_spare(wanted) else { return false };
        let hidden =
            shown.state.compare_exchange(seen, seen & !ATTACHED, Ordering::AcqRel, Ordering::Relaxed);
        if hidden.is_err() {
            far.arena.give(storage, wanted, 0, 0);
            return false;
        }
        let (cursor, unread) = (self.cursor(), self.available());
        let old = self.ring().storage();
        let size = u64::from(wanted.trailing_zeros()) << SIZE_SHIFT;
        // SAFETY: both are storage of the arena that was taken for this ring. The other process may write there at any
        // time, and no reference is made; what it may have published is believed only as far as the old storage goes (F2).
        unsafe { copy(old, Place::new(storage.as_ptr(), size), cursor, unread) };
        own.storage.store(storage.as_ptr(), Ordering::Relaxed);
        own.state.store(state & !SIZE | size | GROWN, Ordering::Release);
        far.note_grown(cursor);
        far.show_grown(shown, storage, size | GROWN);
        if let Some(old_storage) = NonNull::new(old.storage) {
            // It was full.
            far.arena.give(old_storage, old.len, 0, u64::MAX);
        }
        true
    }
}

/// Copies `len` bytes of the stream at `cursor` from one storage to another.
///
/// # Safety
/// Both are attached or taken storage of their lengths, do not overlap, and hold at least `len` bytes; whoever else writes
/// there makes no reference.
pub(super) unsafe fn copy(from: Place, to: Place, cursor: u64, len: usize) {
    let mut done = 0;
    while done < len {
        let at = cursor + done as u64;
        let (source, there, _) = from.pieces(at, len - done);
        let (target, here, _) = to.pieces(at, len - done);
        let count = there.min(here);
        // SAFETY: `pieces` keeps each within its storage.
        unsafe { from.storage.add(source).copy_to_nonoverlapping(to.storage.add(target), count) };
        done += count;
    }
}
