//! Extents: storage of large rings, whose pages are there while bytes are in them.
//!
//! Called by `byte_ring.rs` for 32 KiB to 4 MiB. A general allocator serves such storage badly when it comes and goes
//! between small pieces: the pages that a ring has touched stay resident in holes that nobody fills, and storage that
//! is used again is cleared first. Here storage has address space of its own. A region is 64 MiB of it, aligned to its
//! size and cut into extents of one size; the first of them is the region's head, so that an extent leads to it.
//! Lowest free extents are taken first. Some free ones keep their pages, a bounded number or a share of what is taken, so that
//! storage that comes and goes does not ask the kernel each time; the others give them back.
//!
//! E1. Whoever clears an extent's bit in `free` has it for himself, until he sets the bit. Clearing acquires what
//!     setting releases.
//! E2. A region is never unmapped, so its head may be read at any time.

use core::ptr::{self, NonNull};
use core::sync::atomic::{AtomicPtr, AtomicU64, AtomicUsize, Ordering};

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

const REGION: usize = 64 << 20;
const SHIFT_MIN: u32 = 15;
const SHIFT_MAX: u32 = 22;
const CLASSES: usize = (SHIFT_MAX - SHIFT_MIN + 1) as usize;
/// Words of bits for the smallest extents of a region.
const WORDS: usize = REGION >> SHIFT_MIN >> 6;
/// Regions of one size: 256 GiB of storage.
const REGIONS_MAX: usize = 4096;
/// What free extents of one size may keep of the memory that they have touched, at least.
const KEPT_BYTES: usize = 16 << 20;
/// One for so many that are taken may keep its pages in any case: among many connections of which each says something now and then,
/// as much storage is given back as is taken.
const TAKEN_PER_KEPT: usize = 8;
/// Regions that one look for an extent with pages goes through.
const COOLED_AT_ONCE: usize = 8;

/// Whether storage of `len` bytes, a power of two, comes from here.
pub(crate) const fn serves(len: usize) -> bool {
    len >= 1 << SHIFT_MIN && len <= 1 << SHIFT_MAX
}

/// The head of a region, in its first extent.
struct Region {
    /// Which of its class it is.
    index: usize,
    /// A bit for each extent that nobody has.
    free: [AtomicU64; WORDS],
    /// A bit for each of those whose pages were kept.
    warm: [AtomicU64; WORDS],
}

const _: () = assert!(size_of::<Region>() <= 1 << SHIFT_MIN);

/// The extents of one size.
struct Class {
    regions: [AtomicPtr<Region>; REGIONS_MAX],
    count: AtomicUsize,
    /// Regions before this one are full, as far as anybody knows.
    first: AtomicUsize,
    /// Extents that somebody has.
    taken: AtomicUsize,
    /// Free extents whose pages were kept.
    kept: AtomicUsize,
    /// Where the next one is looked for that has to give its pages back.
    cooled: AtomicUsize,
    /// How often none could be had.
    failures: AtomicU64,
}

/// How the extents of one size stand, in the whole process.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ExtentUsage {
    /// Bytes of each.
    pub bytes: usize,
    /// How many somebody has.
    pub taken: usize,
    /// How many nobody has, and keep the memory that they have touched.
    pub kept: usize,
    /// How often one was asked for and there was no memory.
    pub failures: u64,
}

/// How the storage of large rings stands, by size.
pub fn extent_usage() -> Vec<ExtentUsage> {
    let usage = |(nth, class): (usize, &Class)| ExtentUsage {
        bytes: 1 << (SHIFT_MIN as usize + nth),
        taken: class.taken.load(Ordering::Relaxed),
        kept: class.kept.load(Ordering::Relaxed),
        failures: class.failures.load(Ordering::Relaxed),
    };
    CLASS.iter().enumerate().map(usage).collect()
}

static CLASS: [Class; CLASSES] = [const { Class::new() }; CLASSES];

const fn class_of(len: usize) -> &'static Class {
    &CLASS[(len.trailing_zeros() - SHIFT_MIN) as usize]
}

/// An extent of `len` bytes, which hold zeros or what was there before; `None` without memory.
///
/// # Panics
/// If [`serves`] says no.
pub(crate) fn take(len: usize) -> Option<NonNull<u8>> {
    let class = class_of(len);
    let first = class.first.load(Ordering::Relaxed);
    // What a region gave back while another was searched is found before the class grows.
    class
        .take_from(first)
        .or_else(|| class.take_from(0))
        .or_else(|| class.take_grown(len))
        .or_else(|| {
            class.failures.fetch_add(1, Ordering::Relaxed);
            None
        })
        .map(|(region, at)| {
            class.taken.fetch_add(1, Ordering::Relaxed);
            region.map_addr(|addr| addr.checked_add(at * len).unwrap_or(addr)).cast()
        })
}

/// Gives an extent back.
///
/// # Safety
/// `extent` and `len` are of one [`take`], given back once and touched by nobody.
pub(crate) unsafe fn give(extent: NonNull<u8>, len: usize) {
    let class = class_of(len);
    let offset = extent.as_ptr().addr() % REGION;
    // SAFETY: the extent lies in a region, whose head is its first extent (E2).
    let region = unsafe { extent.sub(offset).cast::<Region>().as_ref() };
    let (word, bit) = place(offset / len);
    let taken = class.taken.fetch_sub(1, Ordering::Relaxed) - 1;
    let most = (KEPT_BYTES / len).max(taken / TAKEN_PER_KEPT);
    let kept = class.kept.fetch_add(1, Ordering::Relaxed);
    if kept < most {
        region.warm[word].fetch_or(bit, Ordering::Relaxed);
    } else {
        class.kept.fetch_sub(1, Ordering::Relaxed);
        // SAFETY: the caller has the extent for himself (E1).
        unsafe { give_pages(extent, len) };
    }
    region.free[word].fetch_or(bit, Ordering::Release);
    class.first.fetch_min(region.index, Ordering::Relaxed);
    if kept > most {
        class.cool(len);
    }
}

/// Lets the kernel have an extent's pages.
///
/// # Safety
/// The extent is the caller's (E1).
unsafe fn give_pages(extent: NonNull<u8>, len: usize) {
    // SAFETY: the range is the extent, mapped by `grow`, and the caller's. If the kernel refuses, the pages stay, which harms nobody.
    let _ = unsafe { madvise(extent.as_ptr().cast(), len, Advice::LinuxDontNeed) };
}

const fn place(at: usize) -> (usize, u64) {
    (at / 64, 1 << (at % 64))
}

impl Class {
    const fn new() -> Self {
        Self {
            regions: [const { AtomicPtr::new(ptr::null_mut()) }; REGIONS_MAX],
            count: AtomicUsize::new(0),
            first: AtomicUsize::new(0),
            taken: AtomicUsize::new(0),
            kept: AtomicUsize::new(0),
            cooled: AtomicUsize::new(0),
            failures: AtomicU64::new(0),
        }
    }

    /// Takes an extent of the regions from `first` on: the region, and the extent's number there.
    fn take_from(&self, first: usize) -> Option<(NonNull<Region>, usize)> {
        for index in first..self.count.load(Ordering::Acquire) {
            let region = NonNull::new(self.regions[index].load(Ordering::Acquire))?;
            // SAFETY: (E2) a published head is initialised and stays.
            if let Some(at) = unsafe { region.as_ref() }.claim(&self.kept) {
                if index != first {
                    // Unless somebody gave back, or looked, meanwhile.
                    let _ = self.first.compare_exchange(first, index, Ordering::Relaxed, Ordering::Relaxed);
                }
                return Some((region, at));
            }
        }
        None
    }

    /// Takes one of a region that is added, by this call or by others; `None` without memory.
    fn take_grown(&self, len: usize) -> Option<(NonNull<Region>, usize)> {
        loop {
            self.grow(len)?;
            // Others may have taken all that was added meanwhile.
            if let Some(taken) = self.take_from(0) {
                return Some(taken);
            }
        }
    }

    /// Fewer are taken than before: one more of the free extents gives its pages back.
    fn cool(&self, len: usize) {
        let count = self.count.load(Ordering::Acquire);
        for _ in 0..COOLED_AT_ONCE.min(count) {
            let index = self.cooled.load(Ordering::Relaxed) % count;
            let Some(region) = NonNull::new(self.regions[index].load(Ordering::Acquire)) else { return };
            // SAFETY: (E2) a published head is initialised and stays.
            if let Some((word, bit)) = unsafe { region.as_ref() }.claim_warm(&self.kept) {
                let at = word * 64 + bit.trailing_zeros() as usize;
                // SAFETY: the extent lies in its region, and its bit was cleared just above (E1).
                unsafe {
                    give_pages(region.cast::<u8>().add(at * len), len);
                    region.as_ref().free[word].fetch_or(bit, Ordering::Release);
                }
                self.first.fetch_min(index, Ordering::Relaxed);
                return;
            }
            self.cooled.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Adds a region of extents of `len` bytes. Somebody else's, added meanwhile, will do.
    fn grow(&self, len: usize) -> Option<()> {
        let index = self.count.load(Ordering::Acquire);
        let place = self.regions.get(index)?;
        let region = map()?.cast::<Region>();
        let extents = REGION / len;
        let bits = |word: usize| match extents.saturating_sub(word * 64) {
            0 => 0,
            left @ 1..64 => (1 << left) - 1,
            _ => u64::MAX,
        };
        // The head's own extent is nobody's to take.
        let free = core::array::from_fn(|word| AtomicU64::new(bits(word) & !u64::from(word == 0)));
        let warm = [const { AtomicU64::new(0) }; WORDS];
        // SAFETY: the mapping is this call's, writable, large enough and aligned to much more than a head.
        unsafe { region.write(Region { index, free, warm }) };
        let (null, new) = (ptr::null_mut(), region.as_ptr());
        if place.compare_exchange(null, new, Ordering::Release, Ordering::Relaxed).is_err() {
            // SAFETY: nobody else has seen this mapping.
            let _ = unsafe { munmap(new.cast(), REGION) };
        }
        self.count.fetch_max(index + 1, Ordering::Release);
        Some(())
    }
}

impl Region {
    /// Takes the lowest free extent.
    fn claim(&self, kept: &AtomicUsize) -> Option<usize> {
        for (word, bits) in self.free.iter().enumerate() {
            let mut seen = bits.load(Ordering::Relaxed);
            while seen != 0 {
                let bit = seen & seen.wrapping_neg();
                let before = bits.fetch_and(!bit, Ordering::Acquire);
                if before & bit != 0 {
                    if self.warm[word].fetch_and(!bit, Ordering::Relaxed) & bit != 0 {
                        kept.fetch_sub(1, Ordering::Relaxed);
                    }
                    return Some(word * 64 + bit.trailing_zeros() as usize);
                }
                seen = before & !bit;
            }
        }
        None
    }
}

impl Region {
    /// Takes a free extent whose pages were kept: its place among the bits.
    fn claim_warm(&self, kept: &AtomicUsize) -> Option<(usize, u64)> {
        for (word, bits) in self.warm.iter().enumerate() {
            let mut seen = bits.load(Ordering::Relaxed);
            while seen != 0 {
                let bit = seen & seen.wrapping_neg();
                seen &= !bit;
                // Whoever takes the extent at this moment sees to its other bit.
                if self.free[word].fetch_and(!bit, Ordering::Acquire) & bit != 0 {
                    if bits.fetch_and(!bit, Ordering::Relaxed) & bit != 0 {
                        kept.fetch_sub(1, Ordering::Relaxed);
                    }
                    return Some((word, bit));
                }
            }
        }
        None
    }
}

/// Address space for a region, aligned to its size.
fn map() -> Option<NonNull<u8>> {
    let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
    // SAFETY: a new mapping at an address of the kernel's choice is nobody else's; what is cut off at both sides was
    // never handed out.
    unsafe {
        let all = mmap_anonymous(ptr::null_mut(), 2 * REGION, ProtFlags::READ | ProtFlags::WRITE, flags);
        let all = all.ok()?.cast::<u8>();
        let before = all.align_offset(REGION);
        let region = all.add(before);
        // What cannot be cut off stays as address space without memory.
        let _ = munmap(all.cast(), before);
        let _ = munmap(region.add(REGION).cast(), REGION - before);
        // A ring that holds a message takes a page for it, no huge one.
        let _ = madvise(region.cast(), REGION, Advice::LinuxNoHugepage);
        NonNull::new(region)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    /// A size that no other test of this process uses.
    const LEN: usize = 1 << 21;

    #[test]
    fn extents_do_not_overlap_and_the_lowest_come_back_first() {
        let count = 2 * REGION / LEN + 3;
        let mut taken: Vec<_> = (0..count).map(|_| take(LEN).unwrap()).collect();
        let apart: HashSet<_> = taken.iter().map(|extent| extent.as_ptr().addr()).collect();
        assert_eq!(apart.len(), count);
        for (n, extent) in taken.iter().enumerate() {
            assert_eq!(extent.as_ptr().addr() % LEN, 0);
            // SAFETY: the extent is this test's.
            unsafe { extent.as_ptr().add(LEN - 1).write(n as u8) };
        }
        for (n, extent) in taken.iter().enumerate() {
            // SAFETY: as above.
            assert_eq!(unsafe { extent.as_ptr().add(LEN - 1).read() }, n as u8);
        }
        let lowest = taken[0];
        for extent in taken.drain(..) {
            // SAFETY: each is given back once.
            unsafe { give(extent, LEN) };
        }
        assert!(class_of(LEN).kept.load(Ordering::Relaxed) <= KEPT_BYTES / LEN);
        let again = take(LEN).unwrap();
        assert_eq!(again, lowest);
        // SAFETY: as above.
        unsafe { give(again, LEN) };
    }

    #[test]
    fn what_is_not_kept_comes_back_as_zeros() {
        const LEN: usize = 1 << 20;
        let taken: Vec<_> = (0..KEPT_BYTES / LEN + 4).map(|_| take(LEN).unwrap()).collect();
        for extent in &taken {
            // SAFETY: the extent is this test's.
            unsafe { extent.as_ptr().write(7) };
        }
        let last = *taken.last().unwrap();
        for extent in taken.iter().copied() {
            // SAFETY: each is given back once.
            unsafe { give(extent, LEN) };
        }
        // SAFETY: mapped for ever (E2), and no other test uses this size.
        assert_eq!(unsafe { last.as_ptr().read() }, 0, "its pages went back to the kernel");
    }

    #[test]
    fn what_is_kept_follows_what_is_taken() {
        const LEN: usize = 1 << 19;
        let (class, least) = (class_of(LEN), KEPT_BYTES / LEN);
        let kept = || class.kept.load(Ordering::Relaxed);
        let mut taken: Vec<_> = (0..2 * TAKEN_PER_KEPT * least).map(|_| take(LEN).unwrap()).collect();
        // As much comes as goes: nobody asks the kernel for pages that he has given back just before.
        let given = taken.split_off(taken.len() - taken.len() / 10);
        for extent in &given {
            // SAFETY: the extent is this test's.
            unsafe { extent.as_ptr().write(7) };
            // SAFETY: as above; it is not touched again.
            unsafe { give(*extent, LEN) };
        }
        assert_eq!(kept(), given.len(), "all of them, and more than the least");
        assert!(given.len() > least);
        taken.extend(given.iter().map(|_| take(LEN).unwrap()));
        assert_eq!(kept(), 0);
        for extent in taken.drain(..) {
            // SAFETY: each is given back once.
            unsafe { give(extent, LEN) };
        }
        assert!(kept() <= least, "{} of {least}", kept());
    }

    #[test]
    fn nobody_is_refused_while_there_is_memory_whoever_else_takes() {
        const LEN: usize = 1 << 22;
        let take_many = || (0..1500).map(|_| take(LEN).map(NonNull::expose_provenance)).collect::<Vec<_>>();
        let taken: Vec<_> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..8).map(|_| scope.spawn(take_many)).collect();
            threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
        });
        let refused = taken.iter().filter(|extent| extent.is_none()).count();
        for extent in taken.into_iter().flatten() {
            // SAFETY: each is given back once.
            unsafe { give(NonNull::with_exposed_provenance(extent), LEN) };
        }
        assert_eq!(refused, 0);
    }

    #[test]
    fn threads_never_hold_the_same_extent() {
        const LEN: usize = 1 << 22;
        std::thread::scope(|scope| {
            for thread in 0..4u8 {
                scope.spawn(move || {
                    for _ in 0..2000 {
                        let extents = [take(LEN).unwrap(), take(LEN).unwrap()];
                        for (n, extent) in extents.iter().enumerate() {
                            // SAFETY: the extent is this thread's.
                            unsafe { extent.as_ptr().write(2 * thread + n as u8) };
                        }
                        for (n, extent) in extents.into_iter().enumerate() {
                            // SAFETY: as above; given back once.
                            unsafe {
                                assert_eq!(extent.as_ptr().read(), 2 * thread + n as u8);
                                give(extent, LEN);
                            }
                        }
                    }
                });
            }
        });
    }
}
