//! Which process this is: the one that was, its forked child, or a child that borrows its memory.
//!
//! The kernel wipes some pages in every forked child (MADV_WIPEONFORK), whoever called `fork`, `clone` or `_Fork`. A
//! child of `vfork` shares the memory of its parent until it executes another program, but has descriptors of its
//! own: what it closes stays open in the parent, so it must not touch the table. It sees its parent's number on the
//! page.

use core::ptr;
use core::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

use rustix::mm::{Advice, MapFlags, ProtFlags};

use crate::confining;
use crate::holds::{PLACES, Place};

/// What a forked child finds wiped.
struct Page {
    /// The number of the process that this is.
    process: AtomicU32,
    /// Whether it has a session of its own.
    has_session: AtomicU32,
    /// How many children may be borrowing its memory.
    borrowers: AtomicU32,
    /// Its calls that sleep on sockets.
    holds: [Place; PLACES],
}

static PAGE: AtomicPtr<Page> = AtomicPtr::new(ptr::null_mut());

/// In whole pages.
const PAGE_BYTES: usize = size_of::<Page>().next_multiple_of(4096);

fn own() -> u32 {
    rustix::process::getpid().as_raw_nonzero().get().unsigned_abs()
}

fn page() -> Option<&'static Page> {
    // SAFETY: the pointer is null, or that of a page that is never unmapped; the words on it are atomic.
    unsafe { PAGE.load(Ordering::Acquire).as_ref() }
}

/// Begins to watch for forks. Before the first socket of ours there is nothing to notice.
pub(crate) fn watch() -> rustix::io::Result<()> {
    if page().is_some() {
        return Ok(());
    }
    // SAFETY: a new private mapping, at an address of the kernel's choice; zeros are a `Page`.
    let new = unsafe {
        let access = ProtFlags::READ | ProtFlags::WRITE;
        let new = rustix::mm::mmap_anonymous(ptr::null_mut(), PAGE_BYTES, access, MapFlags::PRIVATE)?;
        rustix::mm::madvise(new, PAGE_BYTES, Advice::LinuxWipeOnFork)?;
        &*new.cast::<Page>()
    };
    new.process.store(own(), Ordering::Relaxed);
    // Two threads at once: the second's page stays mapped and unused, which happens at most once.
    let new = ptr::from_ref(new).cast_mut();
    let _ = PAGE.compare_exchange(ptr::null_mut(), new, Ordering::AcqRel, Ordering::Relaxed);
    Ok(())
}

/// The number of this process; never zero.
pub(crate) fn number() -> u32 {
    let Some(page) = page() else { return own() };
    match page.process.load(Ordering::Relaxed) {
        0 => {
            page.process.store(own(), Ordering::Relaxed);
            own()
        }
        number => number,
    }
}

/// Whether this process has a session of its own: not before its first socket, and not in a forked child.
#[inline]
pub(crate) fn has_session() -> bool {
    page().is_some_and(|page| page.has_session.load(Ordering::Acquire) != 0)
}

/// The places of calls that sleep, if there was ever a socket.
pub(crate) fn holds() -> Option<&'static [Place; PLACES]> {
    page().map(|page| &page.holds)
}

/// From now on it has.
pub(crate) fn set_session() {
    if let Some(page) = page() {
        page.has_session.store(1, Ordering::Release);
    }
}

/// It has none any more.
pub(crate) fn clear_session() {
    if let Some(page) = page() {
        page.has_session.store(0, Ordering::Release);
    }
}

/// A child is about to borrow this process' memory, and is to know that it is not this process.
pub(crate) fn lend() {
    if let Some(page) = page() {
        page.borrowers.fetch_add(1, Ordering::SeqCst);
    }
}

/// It is another program, or gone.
pub(crate) fn take_back() {
    if let Some(page) = page() {
        // The page may be younger than the child.
        let _ =
            page.borrowers.fetch_update(Ordering::SeqCst, Ordering::Relaxed, |count| count.checked_sub(1));
    }
}

/// Whether this process only borrows the memory of its parent (`vfork`). Which process it is takes a system call, so that is asked only
/// while there may be such a child.
#[inline]
pub(crate) fn is_borrowed() -> bool {
    page().is_some_and(|page| {
        page.borrowers.load(Ordering::Relaxed) != 0 && !confining::is_nobodys_child() && {
            let process = page.process.load(Ordering::Relaxed);
            ![0, own()].contains(&process)
        }
    })
}
