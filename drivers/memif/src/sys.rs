//! Memory shared with another process: the only unsafe code of this driver.
//!
//! Called by `session.rs`, `receive.rs` and `transmit.rs`. Words are atomics, which any value fits; frames are
//! copied in and out and never lent, because the other process may change them at any time. Who maps a region
//! has checked that it cannot become shorter, so no access can fault.

use std::io;
use std::os::fd::AsFd;
use std::ptr::{self, NonNull};
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, AtomicU32, AtomicU64, Ordering};

use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

use crate::layout::{DESC_BYTES, Desc, RING_HEADER_BYTES, ring_bytes};

/// A region in this process' memory.
#[derive(Debug)]
pub(crate) struct Region {
    base: NonNull<u8>,
    len: usize,
}

// SAFETY: shared words are atomics and the rest is only copied, by raw pointers; the address belongs to the process.
unsafe impl Send for Region {}
// SAFETY: as above.
unsafe impl Sync for Region {}

impl Region {
    /// Maps `len` bytes of a memfd that has them and is sealed against losing them.
    pub(crate) fn map(memfd: impl AsFd, len: u64) -> io::Result<Self> {
        let len = usize::try_from(len).map_err(|_| io::ErrorKind::OutOfMemory)?;
        let (prot, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED | MapFlags::NORESERVE);
        // SAFETY: a new mapping at an address of the kernel's choice touches no memory of ours.
        let base = unsafe { mmap(ptr::null_mut(), len, prot, flags, memfd, 0) }?;
        let base = NonNull::new(base.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { base, len })
    }

    /// The address of `len` bytes from `at`, if all of them are here.
    #[inline]
    fn part(&self, at: u32, len: usize) -> Option<NonNull<u8>> {
        let at = at as usize;
        let is_inside = at <= self.len && len <= self.len - at;
        // SAFETY: the range was just checked to be inside the mapping.
        is_inside.then(|| unsafe { self.base.add(at) })
    }

    /// Copies bytes out. Whether all of the range is here; nothing is copied otherwise.
    #[inline]
    #[must_use]
    pub(crate) fn copy_out(&self, at: u32, to: &mut [u8]) -> bool {
        let Some(from) = self.part(at, to.len()) else { return false };
        // SAFETY: `from` is good for that many bytes and no Rust reference to them exists; `to` is the caller's own
        // memory. Who else writes there at the same time spoils bytes, and bytes have no invalid values.
        unsafe { ptr::copy_nonoverlapping(from.as_ptr(), to.as_mut_ptr(), to.len()) };
        true
    }

    /// Copies bytes in. Whether all of the range is here; nothing is copied otherwise.
    #[inline]
    #[must_use]
    pub(crate) fn copy_in(&self, at: u32, from: &[u8]) -> bool {
        let Some(to) = self.part(at, from.len()) else { return false };
        // SAFETY: as in `copy_out`, the other way.
        unsafe { ptr::copy_nonoverlapping(from.as_ptr(), to.as_ptr(), from.len()) };
        true
    }

    /// The ring that begins at `at`, if all of it is here and its words are aligned.
    pub(crate) fn ring(self: &Arc<Self>, at: u32, log2_size: u8) -> Option<RingMemory> {
        let base = self.part(at, usize::try_from(ring_bytes(log2_size)).ok()?)?;
        let is_aligned = at.is_multiple_of(align_of::<AtomicU64>() as u32);
        is_aligned.then(|| RingMemory {
            base,
            mask: ((1u32 << log2_size) - 1) as u16,
            _region: Arc::clone(self),
        })
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: the mapping was made by `map` with this length; every ring in it holds an `Arc` of it.
        let _ = unsafe { munmap(self.base.as_ptr().cast(), self.len) };
    }
}

/// A ring's words. Only `Region::ring` makes one.
#[derive(Debug)]
pub(crate) struct RingMemory {
    base: NonNull<u8>,
    mask: u16,
    _region: Arc<Region>,
}

// SAFETY: it holds the region, and reaches atomics in it only.
unsafe impl Send for RingMemory {}

impl RingMemory {
    #[inline]
    fn half(&self, at: usize) -> &AtomicU16 {
        // SAFETY: callers name an even offset in the ring's header, which `Region::ring` has checked to be mapped and
        // aligned; any bytes are an `AtomicU16`.
        unsafe { self.base.add(at).cast().as_ref() }
    }

    /// The first word.
    pub(crate) fn cookie(&self) -> &AtomicU32 {
        // SAFETY: as in `half`.
        unsafe { self.base.cast().as_ref() }
    }

    /// What the reader of the ring wants.
    #[inline]
    pub(crate) fn flags(&self) -> &AtomicU16 {
        self.half(4)
    }

    /// What the client moves.
    #[inline]
    pub(crate) fn head(&self) -> &AtomicU16 {
        self.half(6)
    }

    /// What the server moves.
    #[inline]
    pub(crate) fn tail(&self) -> &AtomicU16 {
        self.half(64)
    }

    /// How many descriptors there are.
    #[inline]
    pub(crate) fn size(&self) -> u16 {
        // Rings have 2^14 descriptors at the most.
        self.mask + 1
    }

    /// The descriptor's place of a cursor.
    #[inline]
    pub(crate) fn slot(&self, cursor: u16) -> u16 {
        cursor & self.mask
    }

    #[inline]
    fn desc(&self, cursor: u16) -> &[AtomicU64; 2] {
        let at = RING_HEADER_BYTES + u32::from(self.slot(cursor)) * DESC_BYTES;
        // SAFETY: the masked index is below the size that `Region::ring` has checked; the address is aligned to eight
        // bytes, and any bytes are two `AtomicU64`.
        unsafe { self.base.add(at as usize).cast().as_ref() }
    }

    /// Copies a descriptor out.
    #[inline]
    pub(crate) fn read(&self, cursor: u16) -> Desc {
        let [first, second] = self.desc(cursor);
        Desc::from_words([first.load(Ordering::Relaxed), second.load(Ordering::Relaxed)])
    }

    /// Writes a descriptor.
    #[inline]
    pub(crate) fn write(&self, cursor: u16, desc: Desc) {
        let ([first, second], words) = (self.desc(cursor), desc.to_words());
        first.store(words[0], Ordering::Relaxed);
        second.store(words[1], Ordering::Relaxed);
    }
}
