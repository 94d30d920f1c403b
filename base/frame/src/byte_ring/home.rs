//! Rings of another process that is gone: what it has left to be read moves to this process' own memory, and the arena is nobody's.
//!
//! Part of the byte rings; `programs/remains.rs` of the engine says when. It takes two steps, because a ring may hold much and the reader
//! is to lose no time: whoever answers for the dead copies what is unread ([`MarginRef::pack`]), and whoever has the halves takes it in
//! with a few stores ([`move_home`]).
//!
//! H1. The other process writes nothing more that counts, so the reader alone changes the ring meanwhile. Of what he has released the copy
//!     is of no use, which does no harm; if there is other storage now, or another end, the copy is of no use at all, and another is made.
//! H2. While the copy is made its source may be given to others of the same arena. So it is looked at as bytes that anybody may
//!     change, inside the arena in any case, and counts only if H1 says so afterwards.

use core::cell::Cell;
use core::fmt;
use std::sync::Arc;

use crate::sync::Ordering;

use super::grow::copy;
use super::{
    ATTACHED, Block, MarginRef, Party, Place, RingReader, RingWriter, SIZE_SHIFT, memory, size_in,
    storage_for,
};

/// What is unread in the ring of another process, copied.
pub struct Packed {
    /// Of this length; none if nothing is unread.
    storage: *mut u8,
    len: usize,
    /// Where it was, and which bytes of the stream.
    from: *mut u8,
    cursor: u64,
    end: u64,
}

// SAFETY: the storage is this value's alone, and where it was is only compared.
unsafe impl Send for Packed {}

impl Packed {
    /// How much memory it takes.
    pub fn bytes(&self) -> usize {
        self.len
    }

    /// Lets go of the storage, if there is any.
    fn into_storage(mut self) -> Option<(*mut u8, usize)> {
        let len = core::mem::take(&mut self.len);
        (len > 0).then_some((self.storage, len))
    }
}

impl Drop for Packed {
    fn drop(&mut self) {
        if self.len > 0 {
            // SAFETY: `pack` has taken it with this length, and nobody else has it.
            unsafe { memory::free(self.storage, self.len) };
        }
    }
}

impl fmt::Debug for Packed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Packed").field("from", &self.cursor).field("to", &self.end).finish_non_exhaustive()
    }
}

impl MarginRef {
    /// Copies what is unread in the ring that the other process has written, and writes no more. `None` if it is none, or what its words
    /// say cannot be true, or the reader has moved it just now.
    #[cold]
    pub fn pack(&self) -> Option<Packed> {
        let (own, far) = (&self.0.one, self.0.far()?);
        let cursor = self.0.two.head.load(Ordering::Acquire);
        let state = own.state.load(Ordering::Acquire);
        let from = own.storage.load(Ordering::Acquire);
        let end = far.words().one.tail.load(Ordering::Acquire);
        let unread = usize::try_from(end.checked_sub(cursor)?).ok()?;
        if unread == 0 {
            return Some(Packed { storage: core::ptr::null_mut(), len: 0, from, cursor, end });
        }
        let size = size_in(state);
        if state & ATTACHED == 0 || unread > size || !far.arena.holds(from, size) {
            return None;
        }
        let len = storage_for(u32::try_from(unread).ok()?);
        let storage = memory::take(len);
        // SAFETY: the one is inside the arena, which `far` keeps mapped, and no reference is made (H2); the other was just taken. Neither
        // is shorter than what is copied.
        unsafe { copy(Place::new(from, state), Place::new(storage, sized(len)), cursor, unread) };
        Some(Packed { storage, len, from, cursor, end })
    }
}

/// The second party's halves of two rings leave the arena of the other process, for good: what was packed is what is unread from here on.
/// What has come and was not read is nobody's, but what lies ahead of it stays.
///
/// # Errors
/// The ring has changed since (H1).
#[cold]
pub fn move_home(send: &mut RingReader, recv: &mut RingWriter, packed: Packed) -> Result<(), Packed> {
    let (head, tail) = (send.cursor(), send.cursor() + send.available() as u64);
    let is_there = send.by == Party::Far && recv.by == Party::Far;
    let is_same = packed.len == 0 || send.ring().storage().storage == packed.from;
    if !is_there || tail != packed.end || head < packed.cursor || (head < tail && !is_same) {
        return Err(packed);
    }
    let block = Arc::new(Block::default());
    for (to, from) in block.margin.iter().zip(send.margin()) {
        to.store(from.load(Ordering::Acquire), Ordering::Relaxed);
    }
    block.one.tail.store(tail, Ordering::Relaxed);
    block.two.head.store(head, Ordering::Relaxed);
    if let Some((storage, len)) = packed.into_storage() {
        block.one.storage.store(storage, Ordering::Relaxed);
        block.one.state.store(sized(len) | ATTACHED, Ordering::Relaxed);
    }
    *recv = writer_at_home(&block, recv);
    *send = RingReader { block, tail_seen: Cell::new(tail), by: Party::Two };
    Ok(())
}

/// A writer that stands where `recv` stands.
fn writer_at_home(block: &Arc<Block>, recv: &RingWriter) -> RingWriter {
    let (tail, ahead) = (recv.cursor(), recv.ahead());
    let head = tail - recv.unread() as u64;
    block.two.tail.store(tail, Ordering::Relaxed);
    block.one.head.store(head, Ordering::Relaxed);
    // It may have been made smaller than what it held then.
    let capacity = recv.capacity.max(u32::try_from(ahead - head).unwrap_or(u32::MAX));
    let block = Arc::clone(block);
    let mut home = RingWriter { block, ahead: 0, head_seen: Cell::new(head), capacity, by: Party::Two };
    if ahead > tail {
        let mut bytes = vec![0; (ahead - tail) as usize];
        let place = recv.ring().storage();
        let (offset, first, second) = place.pieces(tail, bytes.len());
        let (one, two) = bytes.split_at_mut(first);
        // SAFETY: (R3) what lies ahead holds the storage, and what it has room for was written there; no reference to it is made.
        unsafe {
            place.storage.add(offset).copy_to_nonoverlapping(one.as_mut_ptr(), first);
            place.storage.copy_to_nonoverlapping(two.as_mut_ptr(), second);
        }
        home.write_at(tail, &bytes);
    }
    home
}

/// The size of storage, as the state word has it.
const fn sized(len: usize) -> u64 {
    (len.trailing_zeros() as u64) << SIZE_SHIFT
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::super::byte_rings_in;
    use super::*;
    use crate::arena::tests::arena;

    const PAGE: usize = 4096;

    fn bytes(from: usize, len: usize) -> Vec<u8> {
        (from..from + len).map(|at| (at * 7 + at / 251) as u8).collect()
    }

    /// What the other process does: it writes into the storage that it is shown, and says so.
    fn write(reader: &RingReader, from: usize, len: usize) {
        let (place, all) = (reader.ring().storage(), bytes(from, len));
        let (offset, first, second) = place.pieces(from as u64, len);
        // SAFETY: the pieces are the storage's, and no reference to it is made.
        unsafe {
            place.storage.add(offset).copy_from_nonoverlapping(all.as_ptr(), first);
            place.storage.copy_from_nonoverlapping(all[first..].as_ptr(), second);
        }
        reader.block.other().words().one.tail.store((from + len) as u64, Ordering::Release);
    }

    #[test]
    fn what_the_dead_have_written_is_read_at_home_and_the_arena_is_free() {
        let arena = arena(8, 8 * PAGE);
        let (held, (mut writer, mut reader)) = byte_rings_in(&arena, PAGE, PAGE).unwrap();
        held[1].store(77, Ordering::Relaxed);
        assert!(reader.attach_far());
        write(&reader, 0, 4000);
        let mut got = vec![0; 3000];
        assert_eq!(reader.read(&mut got), 3000);
        write(&reader, 4000, 2500);
        // Around the end of the storage. Then the reader goes on while somebody packs.
        let packed = held.pack().unwrap();
        assert_eq!(packed.bytes(), PAGE);
        let mut more = vec![0; 700];
        assert_eq!(reader.read(&mut more), 700);
        writer.write_at(5, &[1, 2, 3]);
        writer.write(&[9]);
        move_home(&mut reader, &mut writer, packed).unwrap();
        drop(held);
        assert_eq!((arena.in_use().blocks, arena.in_use().storage), (0, 0));
        assert_eq!(Arc::strong_count(&arena), 1, "nothing keeps it");
        assert_eq!(reader.margin()[1].load(Ordering::Relaxed), 77);
        let mut rest = vec![0; PAGE];
        let count = reader.read(&mut rest);
        assert_eq!([&got[..], &more, &rest[..count]].concat(), bytes(0, 6500));
        assert_eq!((reader.cursor(), reader.available()), (6500, 0));
        assert_eq!((writer.cursor(), writer.ahead(), writer.unread()), (1, 8, 1));
        writer.advance(7);
        assert!(reader.detach_if_empty() && !reader.is_far());
    }

    /// Text goes on in little storage; a record that is larger than that would never go.
    #[test]
    fn of_what_little_is_left_records_get_all_that_they_need() {
        let arena = arena(256, 64 * PAGE);
        let _others = arena.take_pair([32 * PAGE, PAGE]).unwrap();
        let rings = || byte_rings_in(&arena, 8 * PAGE, 8 * PAGE).unwrap();
        let sizes = |whole: bool| {
            let (_held, (mut writer, mut reader)) = rings();
            let room = if whole { writer.claim_whole() } else { writer.claim() };
            assert!(if whole { reader.attach_whole() } else { reader.attach_far() });
            [room, writer.attached_bytes(), reader.attached_bytes()]
        };
        assert_eq!(sizes(false), [4 * PAGE; 3]);
        assert_eq!(sizes(true), [8 * PAGE; 3]);
        // One that got little takes all when there is more.
        let more = arena.take_pair([16 * PAGE, 8 * PAGE]).unwrap();
        let (_held, (mut writer, _)) = rings();
        assert_eq!(writer.claim_whole(), 4 * PAGE);
        drop(more);
        assert_eq!(writer.claim_whole(), 8 * PAGE);
    }

    #[test]
    fn a_copy_of_what_has_changed_is_no_use() {
        let arena = arena(8, 8 * PAGE);
        let (held, (mut writer, mut reader)) = byte_rings_in(&arena, PAGE, PAGE).unwrap();
        assert_eq!(held.pack().unwrap().bytes(), 0);
        assert!(reader.attach_far());
        write(&reader, 0, 10);
        let early = held.pack().unwrap();
        write(&reader, 10, 10);
        assert_eq!(move_home(&mut reader, &mut writer, early).unwrap_err().bytes(), 64);
        let moved = held.pack().unwrap();
        assert!(reader.grow(2 * PAGE));
        assert!(move_home(&mut reader, &mut writer, moved).is_err());
        move_home(&mut reader, &mut writer, held.pack().unwrap()).unwrap();
        let mut got = [0; 32];
        assert_eq!((reader.read(&mut got), &got[..20]), (20, &bytes(0, 20)[..]));
    }

    #[test]
    fn who_has_lied_leaves_nothing() {
        let arena = arena(8, 8 * PAGE);
        let (held, (_writer, mut reader)) = byte_rings_in(&arena, PAGE, PAGE).unwrap();
        assert!(reader.attach_far());
        for tail in [u64::MAX, 1 << 40, PAGE as u64 + 1] {
            held.0.far().unwrap().words().one.tail.store(tail, Ordering::Relaxed);
            assert!(held.pack().is_none(), "{tail}");
        }
    }
}
