//! The mapping of an arena, and a ring of a doorbell: the only unsafe code of this crate.
//!
//! Called by `doorbell.rs`, and by `arena.rs`, which has checked that the memfd is as long as its layout says and sealed against becoming
//! shorter, so no access can fault. Words are atomics, which any value fits; bytes of storage are copied in and out
//! and never lent, because another process may change them at any time.

use core::any::Any;
use core::ops::Range;
use core::ptr::{self, NonNull};
use core::sync::atomic::{AtomicU64, Ordering};
use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;

use firelane_frame::{ArenaParts, RingArena};
use rustix::io::Errno;
use rustix::ioctl::{Getter, Opcode, Setter, ioctl, opcode};
use rustix::mm::{
    Advice, MapFlags, MprotectFlags, MsyncFlags, ProtFlags, madvise, mmap, mmap_anonymous, mprotect, msync,
    munlock, munmap,
};

use crate::accept_queue::AcceptQueue;
use crate::joint::Joint;
use crate::layout::{Block, Header, Inbox, Layout, PAGE, SLOTS};
use crate::offers::{Offer, Offers};
use crate::untold::Untold;

/// An arena in this process' memory. A child of fork(2) has it too.
#[derive(Debug)]
pub struct Mapping {
    base: NonNull<u8>,
    layout: Layout,
    /// How much of it is mapped, from its begin: all blocks, and perhaps not all storage.
    len: AtomicU64,
}

// SAFETY: shared words are atomics, and storage is only copied, by raw pointers; the address belongs to the process.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

/// Whether this process locks what it maps, which only a look at a mapping tells: of one that is locked nobody may let go of the content.
fn locks_what_it_maps() -> bool {
    let (prot, len) = (ProtFlags::READ, PAGE as usize);
    // SAFETY: a new mapping at an address of the kernel's choice touches no memory of ours.
    let Ok(page) = (unsafe { mmap_anonymous(ptr::null_mut(), len, prot, MapFlags::PRIVATE) }) else {
        return true;
    };
    // SAFETY: the page was just mapped, has no content that could be let go of, and nobody has its address.
    let looked = unsafe {
        let looked = msync(page, len, MsyncFlags::ASYNC | MsyncFlags::INVALIDATE);
        let _ = munmap(page, len);
        looked
    };
    looked == Err(Errno::BUSY)
}

impl Mapping {
    /// Maps an arena whose length and seals the caller has checked, or its begin, of which `len` bytes reach into its storage.
    pub(crate) fn map(memfd: impl AsFd, layout: Layout, len: u64) -> io::Result<Self> {
        debug_assert!(layout.storage_at() <= len && len <= layout.len());
        let bytes = usize::try_from(len).map_err(|_| io::ErrorKind::OutOfMemory)?;
        let flags = MapFlags::SHARED | MapFlags::NORESERVE;
        // A program that locks all that it maps (mlockall(2)) would have all of this in its memory at once; what cannot be accessed
        // comes when it is touched, and not before. Others map it at once: valgrind takes minutes to open gigabytes that it has seen closed.
        let is_locked = locks_what_it_maps();
        let first = if is_locked { ProtFlags::empty() } else { ProtFlags::READ | ProtFlags::WRITE };
        // SAFETY: a new mapping at an address of the kernel's choice touches no memory of ours.
        let base = unsafe { mmap(ptr::null_mut(), bytes, first, flags, memfd, 0) }?;
        // SAFETY: the mapping was just made, and nobody has its address.
        let open = || unsafe {
            let _ = munlock(base, bytes);
            mprotect(base, bytes, MprotectFlags::READ | MprotectFlags::WRITE)
        };
        if is_locked && let Err(error) = open() {
            // SAFETY: as above.
            let _ = unsafe { munmap(base, bytes) };
            return Err(error.into());
        }
        // SAFETY: the mapping was just made. A core dump would take it for gigabytes; where the kernel refuses, it does.
        let _ = unsafe { madvise(base, bytes, Advice::LinuxDontDump) };
        let base = NonNull::new(base.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { base, layout, len: AtomicU64::new(len) })
    }

    /// Maps the first page of a memfd and reads the layout that it names; `None` if it is no arena of this version.
    pub(crate) fn read_header<T>(memfd: impl AsFd, read: impl FnOnce(&Header) -> T) -> io::Result<T> {
        let len = size_of::<Header>();
        // SAFETY: as in `map`.
        let page = unsafe { mmap(ptr::null_mut(), len, ProtFlags::READ, MapFlags::SHARED, memfd, 0) }?;
        // SAFETY: the caller has checked that the memfd has a first page; it is mapped until below, aligned to a
        // page, and any bytes are a `Header`, whose words are only read.
        let answer = read(unsafe { &*page.cast::<Header>() });
        // SAFETY: the mapping was made above, and no reference into it is left.
        unsafe { munmap(page, len) }?;
        Ok(answer)
    }

    /// Blocks and storage, for lanes to give out; at most `quota` bytes of storage at a time.
    pub(crate) fn rings(mapping: &Arc<Self>, quota: u64) -> Arc<RingArena> {
        let layout = &mapping.layout;
        let parts = ArenaParts {
            blocks_at: layout.blocks_at() as usize,
            blocks: layout.blocks,
            storage_at: layout.storage_at() as usize,
            storage_bytes: layout.storage_bytes as usize,
            quota: usize::try_from(quota).unwrap_or(usize::MAX),
        };
        // SAFETY: the layout's parts begin on pages, follow each other and are mapped while the keeper lives; in this
        // process storage is copied only, blocks are atomics, and the maker of an arena calls this once.
        unsafe { RingArena::new(mapping.base, parts, Arc::clone(mapping) as Arc<dyn Any + Send + Sync>) }
    }

    /// Where it is mapped.
    pub fn range(&self) -> Range<usize> {
        let start = self.base.addr().get();
        start..start + self.mapped() as usize
    }

    /// How much of it is mapped.
    #[inline]
    pub fn mapped(&self) -> u64 {
        self.len.load(Ordering::Relaxed)
    }

    /// Gives address space back: what lies behind `room` bytes, but for all words and the least storage, is mapped no more.
    ///
    /// # Safety
    /// No other thread of this process copies into storage or out of it meanwhile.
    pub unsafe fn shrink(&self, room: u64) {
        let (old, least) = (self.mapped(), self.layout.storage_at() + Layout::STORAGE_MIN);
        let len = (room / PAGE * PAGE).max(least);
        if len < old {
            self.len.store(len, Ordering::Relaxed);
            // SAFETY: the range is the mapping's end, which nobody is in, and `storage` lends no address of it from here on.
            let _ = unsafe { munmap(self.base.as_ptr().add(len as usize).cast(), (old - len) as usize) };
        }
    }

    /// Its sizes.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Where it begins.
    pub fn base(&self) -> NonNull<u8> {
        self.base
    }

    fn at<T>(&self, offset: u64) -> &T {
        debug_assert!(offset + size_of::<T>() as u64 <= self.layout.storage_at());
        // SAFETY: callers stay before the layout's storage, and all of that is mapped; every part begins on a page and has parts
        // that are multiples of their alignment; `T` is one of the structures of `layout.rs`, `accept_queue.rs`, `joint.rs` and `untold.rs`, atomics and padding,
        // which any bytes are; nobody makes a unique reference.
        unsafe { self.base.add(offset as usize).cast::<T>().as_ref() }
    }

    /// The first page.
    pub fn header(&self) -> &Header {
        self.at(0)
    }

    /// What is offered to the sockets of the arena's session.
    #[cfg(not(loom))]
    pub fn offers(&self) -> &Offers {
        self.at(Offers::AT)
    }

    /// Takes one of them, for the program alone.
    #[cfg(not(loom))]
    pub fn take_offer(&self) -> Option<Offer> {
        self.offers().take(self.layout.lanes)
    }

    /// The options that go with the offer in this place.
    #[cfg(not(loom))]
    pub fn untold(&self, place: usize) -> Option<&Untold> {
        Offers::untold_at(place).map(|at| self.at(at))
    }

    /// A lane's inbox.
    pub fn lane(&self, lane: u32) -> Option<&Inbox> {
        let at = Layout::LANES_AT + u64::from(lane) * size_of::<Inbox>() as u64;
        (lane < self.layout.lanes).then(|| self.at(at))
    }

    /// A waiter's inbox.
    pub fn slot(&self, slot: u32) -> Option<&Inbox> {
        let at = self.layout.slots_at() + u64::from(slot) * size_of::<Inbox>() as u64;
        (slot < SLOTS).then(|| self.at(at))
    }

    /// A stream's words.
    #[inline]
    pub fn block(&self, block: u32) -> Option<&Block> {
        let at = self.layout.blocks_at() + u64::from(block) * size_of::<Block>() as u64;
        (block < self.layout.blocks).then(|| self.at(at))
    }

    /// A listener's words.
    #[cfg(not(loom))]
    pub fn accept_queue(&self, block: u32) -> Option<&AcceptQueue> {
        let at = self.layout.blocks_at() + u64::from(block) * size_of::<AcceptQueue>() as u64;
        (block < self.layout.blocks).then(|| self.at(at))
    }

    /// The words of a fused connection, in a segment.
    #[inline]
    pub fn joint(&self, joint: u32) -> Option<&Joint> {
        let at = self.layout.blocks_at() + u64::from(joint) * size_of::<Joint>() as u64;
        (joint < self.layout.blocks).then(|| self.at(at))
    }

    /// The address of storage that begins `at` bytes behind the arena's begin, if all of it is storage.
    #[inline]
    fn storage(&self, at: u64, len: usize) -> Option<*mut u8> {
        let end = at.checked_add(len as u64)?;
        let is_inside = at >= self.layout.storage_at() && end <= self.mapped();
        // SAFETY: the range was just checked to be inside the mapping.
        is_inside.then(|| unsafe { self.base.as_ptr().add(at as usize) })
    }

    /// Copies bytes into storage. Whether all of the range is storage; nothing is copied otherwise.
    #[inline]
    #[must_use]
    pub fn copy_in(&self, at: u64, bytes: &[u8]) -> bool {
        let Some(to) = self.storage(at, bytes.len()) else { return false };
        // SAFETY: `to` is good for that many bytes and no Rust reference to them exists; `bytes` is the caller's, who
        // could not lend it if it were in the mapping's storage, to which no references are made. Who else writes
        // there at the same time spoils bytes, and bytes have no invalid values.
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len()) };
        true
    }

    /// Copies bytes out of storage. Whether all of the range is storage; nothing is copied otherwise.
    #[inline]
    #[must_use]
    pub fn copy_out(&self, at: u64, to: &mut [u8]) -> bool {
        let Some(from) = self.storage(at, to.len()) else { return false };
        // SAFETY: as in `copy_in`, the other way.
        unsafe { ptr::copy_nonoverlapping(from, to.as_mut_ptr(), to.len()) };
        true
    }
}

/// Says how often a timer (timerfd) has run out. Kernels without checkpoints cannot.
pub(crate) fn set_ticks(timer: impl AsFd, ticks: u64) -> io::Result<()> {
    /// TFD_IOC_SET_TICKS.
    const SET_TICKS: Opcode = opcode::write::<u64>(b'T', 0);
    // SAFETY: the request reads eight bytes, and a descriptor of another kind does not know it.
    Ok(unsafe { ioctl(timer, Setter::<SET_TICKS, u64>::new(ticks)) }?)
}

/// How much of what was sent over a socket its other end has yet to read (SIOCOUTQ); of a UNIX socket the memory that it takes.
pub(crate) fn unread(socket: impl AsFd) -> io::Result<i32> {
    // SIOCOUTQ has the number of TIOCOUTQ, which is of the time before numbers had parts.
    const OUTQ: Opcode = 0x5411;
    // SAFETY: the request writes one number, and a descriptor of another kind does not know it.
    Ok(unsafe { ioctl(socket, Getter::<OUTQ, i32>::new()) }?)
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping was made by `map` with this length; references into it borrow from `self`.
        let _ = unsafe { munmap(self.base.as_ptr().cast(), self.mapped() as usize) };
    }
}
