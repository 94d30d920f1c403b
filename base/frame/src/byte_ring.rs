//! A stream of bytes between one writer and one reader, addressed by 64-bit cursors.
//!
//! A stream socket is two of these. A cursor counts the bytes since the stream began, so TCP's sequence
//! numbers are cursors plus a constant, and the send ring is the retransmission buffer. The storage is not
//! the stream: it is attached at the first write, may be detached whenever no byte is in it, and may differ
//! in size each time. A ring without storage costs less than 200 bytes, both halves included.
//!
//! ```text
//!   released by the reader        published by the writer       end of what was written ahead
//!            head  <=  readable  <=  tail  <=  out of order, with holes  <=  ahead  <=  head + capacity
//! ```
//!
//! R1. Only the writer moves `tail` and attaches storage; only the reader moves `head`.
//! R2. The reader touches `head..tail`, the writer `tail..head + capacity`. A side gives bytes up by a release
//!     store of its cursor and gains them by an acquire load of the other's.
//! R3. While the writer is inside a write, or has bytes ahead of `tail`, it holds HELD in the state word, and
//!     nobody detaches. Leaving counts the epoch up, so an earlier reading of the word is recognised.
//! R4. Storage is detached by compare-and-swap of the whole state word from a value that was read before the
//!     ring was seen empty. It fails if the writer entered meanwhile (R3). The winner frees.
//! R5. With no byte in `head..tail` the reader touches no storage, so the writer may replace it.

use core::cell::Cell;
use core::fmt;
use core::slice;

use crate::sync::{Arc, AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering};

/// Storage is attached.
const ATTACHED: u64 = 1;
/// The writer is inside, or has bytes ahead (R3).
const HELD: u64 = 2;
/// One completed stay of the writer.
const EPOCH: u64 = 4;

/// The largest capacity: 1 GiB, the largest TCP window (RFC 7323 §2.3).
const CAPACITY_MAX: usize = 1 << 30;
/// The smallest storage.
const STORAGE_MIN: usize = 64;

/// The writer's words are at the beginning and the reader's at the end, so far apart that they never share a
/// cache line, wherever the allocation begins.
#[repr(C)]
struct Shared {
    tail: AtomicU64,
    state: AtomicU64,
    storage: AtomicPtr<u8>,
    storage_len: AtomicU32,
    writer_gone: AtomicBool,
    reader_gone: AtomicBool,
    apart: [u8; 32],
    head: AtomicU64,
}

#[cfg(not(loom))]
const _: () = {
    assert!(core::mem::offset_of!(Shared, head) >= 64);
    // `Arc` adds two counters.
    assert!(size_of::<Shared>() + 16 + size_of::<RingWriter>() + size_of::<RingReader>() < 200);
};

/// A stream of at most `capacity` unread bytes (up to 1 GiB), without storage as yet.
pub fn byte_ring(capacity: usize) -> (RingWriter, RingReader) {
    let shared = Arc::new(Shared {
        tail: AtomicU64::new(0),
        state: AtomicU64::new(0),
        storage: AtomicPtr::new(core::ptr::null_mut()),
        storage_len: AtomicU32::new(0),
        writer_gone: AtomicBool::new(false),
        reader_gone: AtomicBool::new(false),
        apart: [0; 32],
        head: AtomicU64::new(0),
    });
    let writer = RingWriter {
        shared: Arc::clone(&shared),
        tail: 0,
        ahead: 0,
        head_seen: Cell::new(0),
        capacity: clamped(capacity),
    };
    (writer, RingReader { shared, head: 0, tail_seen: Cell::new(0) })
}

fn clamped(capacity: usize) -> u32 {
    capacity.clamp(1, CAPACITY_MAX) as u32
}

fn storage_for(capacity: u32) -> usize {
    (capacity as usize).next_power_of_two().max(STORAGE_MIN)
}

impl Shared {
    /// Where the storage is and how long.
    fn storage(&self) -> (*mut u8, usize) {
        let len = self.storage_len.load(Ordering::Relaxed) as usize;
        (self.storage.load(Ordering::Relaxed), len)
    }

    /// The two pieces of storage for `len` bytes at `cursor`: offset and length of the first, length of the
    /// second, which begins at offset zero.
    fn pieces(cursor: u64, len: usize, storage_len: usize) -> (usize, usize, usize) {
        let offset = cursor as usize & (storage_len - 1);
        let first = len.min(storage_len - offset);
        (offset, first, len - first)
    }

    /// Detaches storage that `state` shows attached and not held, if the word is unchanged (R4).
    fn detach_from(&self, state: u64) -> bool {
        // Read first: after the swap the writer may attach other storage.
        let (storage, len) = self.storage();
        let swapped =
            self.state.compare_exchange(state, state & !ATTACHED, Ordering::AcqRel, Ordering::Relaxed);
        if swapped.is_ok() {
            // SAFETY: (R4) this side won the swap, so the storage is this side's to free; (R5) nobody
            // touches it.
            unsafe { memory::free(storage, len) };
        }
        swapped.is_ok()
    }

    fn attached_bytes(&self) -> usize {
        let attached = self.state.load(Ordering::Acquire) & ATTACHED != 0;
        if attached { self.storage_len.load(Ordering::Relaxed) as usize } else { 0 }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        if self.attached_bytes() > 0 {
            let (storage, len) = self.storage();
            // SAFETY: both halves are gone.
            unsafe { memory::free(storage, len) };
        }
    }
}

/// The side that writes the stream.
pub struct RingWriter {
    shared: Arc<Shared>,
    tail: u64,
    /// The end of the furthest byte written; `tail` or behind it unless data are out of order.
    ahead: u64,
    head_seen: Cell<u64>,
    capacity: u32,
}

impl RingWriter {
    /// The most unread bytes.
    pub fn capacity(&self) -> usize {
        self.capacity as usize
    }

    /// Changes the capacity. Returns whether it holds at once; more than the attached storage holds takes
    /// effect when the ring is next empty. Less than what is unread leaves no room until it is read.
    pub fn set_capacity(&mut self, capacity: usize) -> bool {
        self.capacity = clamped(capacity);
        self.room_limit() == self.capacity()
    }

    /// Bytes published so far.
    #[inline]
    pub fn cursor(&self) -> u64 {
        self.tail
    }

    /// Published bytes that the reader has not released.
    pub fn unread(&self) -> usize {
        self.head_seen.set(self.shared.head.load(Ordering::Acquire));
        (self.tail - self.head_seen.get()) as usize
    }

    /// How many bytes can be written after the cursor.
    pub fn free(&self) -> usize {
        let unread = self.unread();
        self.room_limit().saturating_sub(unread)
    }

    /// The capacity that holds at present: what was asked for, unless the storage is smaller and in use.
    fn room_limit(&self) -> usize {
        let attached = self.shared.attached_bytes();
        let replaceable = attached == 0 || (self.ahead <= self.tail && self.unread() == 0);
        if replaceable { self.capacity() } else { self.capacity().min(attached) }
    }

    /// Writes as much of `bytes` as there is room for, publishes it and returns how much.
    pub fn write(&mut self, bytes: &[u8]) -> usize {
        let count = self.write_at(self.tail, bytes);
        self.advance(count);
        count
    }

    /// Writes `bytes` at `cursor`, at or after the published cursor, without publishing; returns how many
    /// had room. Out-of-order data wait in place for [`RingWriter::advance`].
    ///
    /// # Panics
    /// If `cursor` is before the published cursor.
    pub fn write_at(&mut self, cursor: u64, bytes: &[u8]) -> usize {
        let (first, second) = self.space_at(cursor, bytes.len());
        let count = first.len() + second.len();
        let (head, rest) = bytes[..count].split_at(first.len());
        first.copy_from_slice(head);
        second.copy_from_slice(rest);
        count
    }

    /// Room for up to `len` bytes at `cursor`, at or after the published cursor, for the caller to fill (a
    /// copy that also sums, or a read from a descriptor). The room counts as written.
    ///
    /// # Panics
    /// If `cursor` is before the published cursor.
    pub fn space_at(&mut self, cursor: u64, len: usize) -> (&mut [u8], &mut [u8]) {
        assert!(cursor >= self.tail, "written bytes are the reader's");
        let len = self.room_at(cursor, len);
        if len == 0 {
            return (&mut [], &mut []);
        }
        let (storage, storage_len) = self.enter();
        memory::touch(storage);
        self.ahead = self.ahead.max(cursor + len as u64);
        let (offset, first, second) = Shared::pieces(cursor, len, storage_len);
        // SAFETY: (R2) `room_at` kept the range within `tail..head + capacity`, and the capacity within the
        // storage, so the pieces are in bounds, do not overlap and are the writer's; (R3) `enter` holds the
        // storage until `advance`. It was zeroed when attached.
        unsafe {
            (
                slice::from_raw_parts_mut(storage.add(offset), first),
                slice::from_raw_parts_mut(storage, second),
            )
        }
    }

    /// How many of `len` bytes at `cursor` have room.
    fn room_at(&self, cursor: u64, len: usize) -> usize {
        let limit = self.room_limit();
        let room = |head: u64| (head + limit as u64).saturating_sub(cursor);
        let mut free = room(self.head_seen.get());
        if free < len as u64 {
            self.unread();
            free = room(self.head_seen.get());
        }
        len.min(free as usize)
    }

    /// Holds the storage (R3), attaching it if there is none, or if it is empty and of another size.
    fn enter(&mut self) -> (*mut u8, usize) {
        let shared = &*self.shared;
        let state = shared.state.load(Ordering::Relaxed);
        if state & HELD != 0 {
            return shared.storage();
        }
        let wanted = storage_for(self.capacity);
        if state & ATTACHED != 0 {
            let outgrown = shared.storage().1 < wanted && self.unread() == 0;
            if outgrown {
                shared.detach_from(state);
            } else {
                let held =
                    shared.state.compare_exchange(state, state | HELD, Ordering::Acquire, Ordering::Relaxed);
                if held.is_ok() {
                    return shared.storage();
                }
            }
        }
        // The storage is detached: by this side, by the reader, or it never was attached. Nobody but the
        // writer changes the word while it says so.
        let state = shared.state.load(Ordering::Acquire);
        debug_assert_eq!(state & (ATTACHED | HELD), 0, "only the writer attaches");
        let storage = memory::zeroed(wanted);
        shared.storage.store(storage, Ordering::Relaxed);
        shared.storage_len.store(wanted as u32, Ordering::Relaxed);
        shared.state.store(state | ATTACHED | HELD, Ordering::Release);
        (storage, wanted)
    }

    /// Publishes the next `count` bytes, which were written before.
    ///
    /// # Panics
    /// If that is more than was written.
    #[inline]
    pub fn advance(&mut self, count: usize) {
        if count == 0 {
            return;
        }
        let tail = self.tail + count as u64;
        assert!(tail <= self.ahead, "advance past what was written");
        self.tail = tail;
        self.shared.tail.store(tail, Ordering::Release);
        if self.ahead == tail {
            self.leave();
        }
    }

    /// Forgets bytes that were written ahead and not published, so that they do not hold the storage.
    pub fn discard_ahead(&mut self) {
        if self.ahead > self.tail {
            self.ahead = self.tail;
            self.leave();
        }
    }

    /// The end of the furthest byte written: equal to the cursor unless data are out of order.
    pub fn ahead(&self) -> u64 {
        self.ahead.max(self.tail)
    }

    /// Lets go of the storage (R3). While it is held, nobody else changes the state word.
    fn leave(&self) {
        let state = self.shared.state.load(Ordering::Relaxed);
        debug_assert_eq!(state & (ATTACHED | HELD), ATTACHED | HELD, "the writer was inside");
        self.shared.state.store((state & !HELD).wrapping_add(EPOCH), Ordering::Release);
    }

    /// Detaches the storage if no byte is in it. Returns whether this call did.
    pub fn detach_if_empty(&mut self) -> bool {
        let state = self.shared.state.load(Ordering::Acquire);
        state & (ATTACHED | HELD) == ATTACHED && self.unread() == 0 && self.shared.detach_from(state)
    }

    /// How many bytes of storage are attached.
    pub fn attached_bytes(&self) -> usize {
        self.shared.attached_bytes()
    }

    /// Whether the reader was dropped.
    pub fn is_reader_gone(&self) -> bool {
        self.shared.reader_gone.load(Ordering::Acquire)
    }
}

impl Drop for RingWriter {
    fn drop(&mut self) {
        self.discard_ahead();
        self.shared.writer_gone.store(true, Ordering::Release);
    }
}

/// The side that reads the stream.
pub struct RingReader {
    shared: Arc<Shared>,
    head: u64,
    tail_seen: Cell<u64>,
}

impl RingReader {
    /// Bytes released so far.
    #[inline]
    pub fn cursor(&self) -> u64 {
        self.head
    }

    /// How many bytes can be read. If the writer is gone, asking again after [`RingReader::is_writer_gone`]
    /// tells the last word.
    #[inline]
    pub fn available(&self) -> usize {
        self.tail_seen.set(self.shared.tail.load(Ordering::Acquire));
        (self.tail_seen.get() - self.head) as usize
    }

    /// Up to `len` published bytes from `cursor` on, in at most two pieces.
    ///
    /// # Panics
    /// If `cursor` is before the released cursor.
    pub fn peek_at(&self, cursor: u64, len: usize) -> (&[u8], &[u8]) {
        assert!(cursor >= self.head, "released bytes are the writer's");
        if self.tail_seen.get() < cursor.saturating_add(len as u64) {
            self.available();
        }
        let len = (len as u64).min(self.tail_seen.get().saturating_sub(cursor)) as usize;
        if len == 0 {
            return (&[], &[]);
        }
        let (storage, storage_len) = self.shared.storage();
        memory::touch(storage);
        let (offset, first, second) = Shared::pieces(cursor, len, storage_len);
        // SAFETY: (R2) the range is within `head..tail`, so it is the reader's until `release`, which needs
        // `&mut self`; while it is not empty the storage stays (R4, R5), and the acquire load of `tail` made
        // the storage that the writer attached before visible.
        unsafe { (slice::from_raw_parts(storage.add(offset), first), slice::from_raw_parts(storage, second)) }
    }

    /// Copies as much as there is into `to`, releases it and returns how much.
    pub fn read(&mut self, to: &mut [u8]) -> usize {
        let count = self.copy_at(self.head, to);
        self.release(count);
        count
    }

    /// Copies published bytes from `cursor` on into `to` without releasing them, and returns how many.
    pub fn copy_at(&self, cursor: u64, to: &mut [u8]) -> usize {
        let (first, second) = self.peek_at(cursor, to.len());
        to[..first.len()].copy_from_slice(first);
        to[first.len()..first.len() + second.len()].copy_from_slice(second);
        first.len() + second.len()
    }

    /// Gives the next `count` bytes up to the writer.
    ///
    /// # Panics
    /// If that is more than was published.
    pub fn release(&mut self, count: usize) {
        let head = self.head + count as u64;
        if head > self.tail_seen.get() {
            self.available();
            assert!(head <= self.tail_seen.get(), "release past what was published");
        }
        self.head = head;
        self.shared.head.store(head, Ordering::Release);
    }

    /// Detaches the storage if no byte is in it and the writer is not at work. Returns whether this call
    /// did.
    pub fn detach_if_empty(&mut self) -> bool {
        let state = self.shared.state.load(Ordering::Acquire);
        state & (ATTACHED | HELD) == ATTACHED && self.available() == 0 && self.shared.detach_from(state)
    }

    /// How many bytes of storage are attached.
    pub fn attached_bytes(&self) -> usize {
        self.shared.attached_bytes()
    }

    /// Whether the writer was dropped. What it published before can still be read.
    pub fn is_writer_gone(&self) -> bool {
        self.shared.writer_gone.load(Ordering::Acquire)
    }
}

impl Drop for RingReader {
    fn drop(&mut self) {
        self.shared.reader_gone.store(true, Ordering::Release);
    }
}

impl fmt::Debug for RingWriter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RingWriter")
            .field("cursor", &self.tail)
            .field("ahead", &self.ahead())
            .field("capacity", &self.capacity)
            .finish()
    }
}

impl fmt::Debug for RingReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RingReader").field("cursor", &self.head).finish_non_exhaustive()
    }
}

/// Storage: zeroed bytes that the kernel faults in at first touch.
#[cfg(not(loom))]
mod memory {
    pub(super) fn zeroed(len: usize) -> *mut u8 {
        Box::into_raw(vec![0u8; len].into_boxed_slice()).cast()
    }

    /// # Safety
    /// `storage` and `len` are of one `zeroed` call, freed once and touched by nobody.
    pub(super) unsafe fn free(storage: *mut u8, len: usize) {
        // SAFETY: the caller's promise.
        drop(unsafe { Box::from_raw(core::ptr::slice_from_raw_parts_mut(storage, len)) });
    }

    #[inline]
    pub(super) fn touch(_storage: *mut u8) {}
}

/// Storage for the models: never returned to the allocator, and behind the bytes a cell by which loom
/// finds a use that is not ordered before the end of the storage.
#[cfg(loom)]
mod memory {
    use loom::cell::UnsafeCell;

    #[repr(C)]
    struct Block {
        bytes: [u8; super::STORAGE_MIN],
        alive: UnsafeCell<bool>,
    }

    pub(super) fn zeroed(len: usize) -> *mut u8 {
        assert_eq!(len, super::STORAGE_MIN, "models use the smallest storage");
        let block = Block { bytes: [0; super::STORAGE_MIN], alive: UnsafeCell::new(true) };
        Box::into_raw(Box::new(block)).cast()
    }

    pub(super) unsafe fn free(storage: *mut u8, _len: usize) {
        let block = storage.cast::<Block>();
        // SAFETY: blocks are leaked, so the pointer is valid; loom checks that the access is exclusive.
        unsafe {
            (*block).alive.with_mut(|alive| assert!(core::mem::replace(&mut *alive, false), "freed twice"));
            (*block).bytes.fill(0xdd);
        }
    }

    pub(super) fn touch(storage: *mut u8) {
        let block = storage.cast::<Block>();
        // SAFETY: as above; loom checks that no exclusive access is concurrent.
        unsafe { (*block).alive.with(|alive| assert!(*alive, "used after it was freed")) };
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests;

#[cfg(test)]
#[cfg(loom)]
mod models {
    use super::*;
    use loom::thread;

    fn read_all(reader: &mut RingReader, got: &mut Vec<u8>) {
        let mut bytes = [0; 8];
        let count = reader.read(&mut bytes);
        got.extend_from_slice(&bytes[..count]);
    }

    #[test]
    fn a_detaching_reader_never_takes_bytes_along() {
        loom::model(|| {
            let (mut writer, mut reader) = byte_ring(8);
            let sender = thread::spawn(move || {
                assert_eq!(writer.write(&[1]), 1);
                assert_eq!(writer.write(&[2]), 1);
                writer
            });
            let mut got = Vec::new();
            reader.detach_if_empty();
            read_all(&mut reader, &mut got);
            reader.detach_if_empty();
            let writer = sender.join().unwrap();
            read_all(&mut reader, &mut got);
            assert_eq!(got, [1, 2]);
            drop(writer);
            reader.detach_if_empty();
            assert_eq!(reader.attached_bytes(), 0);
        });
    }

    #[test]
    fn both_sides_may_detach_at_once() {
        loom::model(|| {
            let (mut writer, mut reader) = byte_ring(8);
            writer.write(&[1]);
            let sender = thread::spawn(move || {
                let detached = writer.detach_if_empty();
                writer.write(&[2]);
                detached
            });
            let mut got = Vec::new();
            read_all(&mut reader, &mut got);
            let detached = reader.detach_if_empty();
            let other = sender.join().unwrap();
            read_all(&mut reader, &mut got);
            assert_eq!(got, [1, 2]);
            // Loom's blocks say so if both freed the same storage.
            let _ = (detached, other);
        });
    }

    #[test]
    fn bytes_ahead_hold_the_storage() {
        loom::model(|| {
            let (mut writer, mut reader) = byte_ring(8);
            let sender = thread::spawn(move || {
                writer.write_at(1, &[2]);
                writer.write_at(0, &[1]);
                writer.advance(2);
            });
            reader.detach_if_empty();
            sender.join().unwrap();
            let mut got = Vec::new();
            read_all(&mut reader, &mut got);
            assert_eq!(got, [1, 2]);
        });
    }
}
