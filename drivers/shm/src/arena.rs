//! Making an arena, and checking one that was received.
//!
//! The daemon makes the memfd, gives it its whole length (memory comes with the first touch) and seals it: nobody may
//! make it shorter under a mapping (a fault in the other process), or longer, or take the seals off. Who receives one
//! checks all of that before he maps it.

use core::fmt;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use firelane_frame::RingArena;
use rustix::fs::{
    FallocateFlags, MemfdFlags, SealFlags, fallocate, fcntl_add_seals, fcntl_get_seals, fstat, ftruncate,
    memfd_create,
};

use crate::layout::{Block, Header, Layout, MAGIC, PAGE, VERSION};
use crate::sync::Ordering;
use crate::sys::Mapping;

const SEALS: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW).union(SealFlags::SEAL);

/// How much memory is given back in one system call, about: some milliseconds.
const PIECE: u64 = 16 << 20;
/// In what `stat` counts memory.
const STAT_BLOCK: u64 = 512;

/// An arena that this process has made.
#[derive(Debug)]
pub struct Arena {
    memfd: OwnedFd,
    mapping: Arc<Mapping>,
    rings: Arc<RingArena>,
    number: u64,
}

/// Why an arena could not be made.
#[derive(Debug)]
pub enum ArenaError {
    /// The layout has a number that is not allowed ([`Layout::is_valid`]).
    Layout(Layout),
    /// The kernel said no.
    System(io::Error),
}

/// Why a received descriptor is no arena.
#[derive(Debug)]
pub enum AttachError {
    /// It may still change its size.
    NotSealed,
    /// The first word.
    Magic(u64),
    /// Another version than [`VERSION`].
    Version(u32),
    /// Its numbers are not allowed, or do not fit its length.
    Layout(Layout),
    /// The kernel said no.
    System(io::Error),
}

impl Arena {
    /// Makes an arena with this number.
    ///
    /// # Errors
    /// The layout is not allowed, or the kernel has no memory or descriptor.
    pub fn create(layout: Layout, number: u64) -> Result<Self, ArenaError> {
        Self::create_within(layout, number, layout.storage_bytes)
    }

    /// The same, of whose storage at most `quota` bytes are in use at a time.
    ///
    /// # Errors
    /// As [`Arena::create`].
    pub fn create_within(layout: Layout, number: u64, quota: u64) -> Result<Self, ArenaError> {
        if !layout.is_valid() {
            return Err(ArenaError::Layout(layout));
        }
        let make = || -> io::Result<(OwnedFd, Mapping)> {
            let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
            let memfd = memfd_create("firelane", flags)?;
            ftruncate(&memfd, layout.len())?;
            let mapping = Mapping::map(&memfd, layout, layout.len())?;
            layout.write(mapping.header(), number);
            fcntl_add_seals(&memfd, SEALS)?;
            Ok((memfd, mapping))
        };
        let (memfd, mapping) = make().map_err(ArenaError::System)?;
        let mapping = Arc::new(mapping);
        let rings = Mapping::rings(&mapping, quota);
        Ok(Self { memfd, mapping, rings, number })
    }

    /// Its blocks and storage, for streams: `stream_in` and `listener_in` of `path/socket`. They keep the memory mapped.
    pub fn rings(&self) -> &Arc<RingArena> {
        &self.rings
    }

    /// Its number.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// It, mapped.
    pub fn mapping(&self) -> &Mapping {
        &self.mapping
    }

    /// Whether nobody but its owner has its blocks and storage.
    pub fn is_alone(&self) -> bool {
        Arc::strong_count(&self.rings) == 1
    }

    /// Whether there is little memory beside its words, whoever has touched it: [`Arena::empty`] takes some milliseconds then.
    pub fn is_small(&self) -> bool {
        self.memory().is_ok_and(|memory| memory <= self.mapping.layout().storage_at() + PIECE)
    }

    /// How many bytes of memory it takes, whoever has touched it.
    ///
    /// # Errors
    /// The kernel does not say.
    pub fn memory(&self) -> io::Result<u64> {
        Ok(fstat(&self.memfd)?.st_blocks as u64 * STAT_BLOCK)
    }

    /// Gives the memory of all storage back, whoever has touched it, whatever the books say: it reads as zeros from here on. Nobody may use
    /// storage that was given out. It takes long, a bounded piece at a time: half a microsecond for each page that is there.
    ///
    /// # Errors
    /// The kernel said no, and something may be left.
    pub fn empty(&self) -> io::Result<()> {
        let (mut at, end) = (self.mapping.layout().storage_at(), self.mapping.layout().len());
        while at < end {
            // A program can have reserved memory (fallocate) that no search for data finds, so all of the range is asked for.
            let len = if self.is_small() { end - at } else { PIECE.min(end - at) };
            fallocate(&self.memfd, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, at, len)?;
            at += len;
        }
        self.rings.forget_pages();
        Ok(())
    }
}

impl AsFd for Arena {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.memfd.as_fd()
    }
}

impl Mapping {
    /// Maps an arena that somebody else has made. The descriptor is not needed afterwards.
    ///
    /// # Errors
    /// It is no arena of this version, or not sealed.
    pub fn attach(memfd: impl AsFd) -> Result<(Self, u64), AttachError> {
        Self::attach_within(memfd, u64::MAX)
    }

    /// The same in a process that has `room` bytes of address space for it: its storage may be mapped in part. What is used is used from its
    /// begin, and who finds that a stream's is not mapped takes that for a lie.
    ///
    /// # Errors
    /// As [`Mapping::attach`]; or less than [`Layout::STORAGE_MIN`] has room behind its words.
    pub fn attach_within(memfd: impl AsFd, room: u64) -> Result<(Self, u64), AttachError> {
        let system = |error: io::Error| AttachError::System(error);
        let (layout, number) = Self::look(&memfd)?;
        let len = within(layout, room).ok_or_else(|| system(io::ErrorKind::OutOfMemory.into()))?;
        Ok((Self::map(&memfd, layout, len).map_err(system)?, number))
    }

    /// The number of an arena that somebody else has made, which may be mapped here already.
    ///
    /// # Errors
    /// As [`Mapping::attach`].
    pub fn number_of(memfd: impl AsFd) -> Result<u64, AttachError> {
        Ok(Self::look(&memfd)?.1)
    }

    fn look(memfd: impl AsFd) -> Result<(Layout, u64), AttachError> {
        let system = |error: io::Error| AttachError::System(error);
        let seals = fcntl_get_seals(&memfd).map_err(|e| system(e.into()))?;
        if !seals.contains(SEALS) {
            return Err(AttachError::NotSealed);
        }
        let len = fstat(&memfd).map_err(|e| system(e.into()))?.st_size.cast_unsigned();
        if len < PAGE {
            return Err(AttachError::Magic(0));
        }
        Self::read_header(&memfd, |header| check(header, len)).map_err(system)?
    }
}

/// How much of such an arena fits `room`, if it is of use.
fn within(layout: Layout, room: u64) -> Option<u64> {
    if layout.len() <= room {
        return Some(layout.len());
    }
    let len = room / PAGE * PAGE;
    (layout.storage_at() + Layout::STORAGE_MIN <= len).then_some(len)
}

/// What the first page of a memfd of `len` bytes says, if that is allowed and fits.
fn check(header: &Header, len: u64) -> Result<(Layout, u64), AttachError> {
    let magic = header.magic.load(Ordering::Acquire);
    if magic != MAGIC {
        return Err(AttachError::Magic(magic));
    }
    let version = header.version.load(Ordering::Relaxed);
    if version != VERSION {
        return Err(AttachError::Version(version));
    }
    let layout = Layout {
        lanes: header.lanes.load(Ordering::Relaxed),
        blocks: header.blocks.load(Ordering::Relaxed),
        storage_bytes: header.storage_bytes.load(Ordering::Relaxed),
    };
    let fits = layout.is_valid()
        && layout.len() == len
        && header.len.load(Ordering::Relaxed) == len
        && header.block_bytes.load(Ordering::Relaxed) as usize == size_of::<Block>();
    if fits { Ok((layout, header.arena.load(Ordering::Relaxed))) } else { Err(AttachError::Layout(layout)) }
}

impl fmt::Display for ArenaError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Layout(layout) => write!(f, "an arena cannot have {layout:?}"),
            Self::System(error) => write!(f, "no arena: {error}"),
        }
    }
}

impl fmt::Display for AttachError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotSealed => write!(f, "not an arena: it is not sealed"),
            Self::Magic(word) => write!(f, "not an arena: it begins with {word:#x}, not {MAGIC:#x}"),
            Self::Version(version) => write!(f, "an arena of version {version}; this is version {VERSION}"),
            Self::Layout(layout) => write!(f, "an arena whose length does not fit {layout:?}"),
            Self::System(error) => write!(f, "no arena: {error}"),
        }
    }
}

impl core::error::Error for ArenaError {}
impl core::error::Error for AttachError {}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    const SMALL: Layout = Layout { lanes: 2, blocks: 32, storage_bytes: 16 * PAGE };

    #[test]
    fn what_one_end_makes_the_other_maps() {
        let arena = Arena::create(SMALL, 42).unwrap();
        let (there, number) = Mapping::attach(&arena).unwrap();
        assert_eq!((there.layout(), number), (&SMALL, 42));
        assert_eq!(Mapping::number_of(&arena).unwrap(), 42);
        let here = arena.mapping();
        here.block(31).unwrap().waiters.store(5, Ordering::Relaxed);
        assert_eq!(there.block(31).unwrap().waiters.load(Ordering::Relaxed), 5);
        assert!(here.block(32).is_none() && here.lane(2).is_none() && here.slot(64).is_none());
        let at = SMALL.storage_at();
        assert!(here.copy_in(at + 4, b"bytes"));
        let mut bytes = [0; 6];
        assert!(there.copy_out(at + 3, &mut bytes));
        assert_eq!(&bytes, b"\0bytes");
    }

    #[test]
    fn nothing_is_copied_from_or_to_elsewhere() {
        let arena = Arena::create(SMALL, 1).unwrap();
        let (map, mut bytes) = (arena.mapping(), [1; 2]);
        for at in [0, SMALL.storage_at() - 1, SMALL.len() - 1, SMALL.len(), u64::MAX] {
            assert!(!map.copy_in(at, &bytes) && !map.copy_out(at, &mut bytes), "{at}");
        }
        assert_eq!(bytes, [1; 2]);
    }

    #[test]
    fn who_has_little_room_maps_the_begin() {
        let wide = Layout { storage_bytes: 2 * Layout::STORAGE_MIN, ..SMALL };
        let arena = Arena::create(wide, 3).unwrap();
        let here = arena.mapping();
        for room in [u64::MAX, wide.len()] {
            let (whole, _) = Mapping::attach_within(&arena, room).unwrap();
            assert!(whole.copy_in(wide.len() - 1, b"x"), "{room}");
        }
        let least = wide.storage_at() + Layout::STORAGE_MIN;
        let (begin, number) = Mapping::attach_within(&arena, least + PAGE - 1).unwrap();
        assert_eq!((begin.layout(), number), (&wide, 3));
        assert!(begin.block(31).is_some());
        assert!(begin.copy_in(least - 1, b"y") && !begin.copy_in(least, b"y"));
        let mut byte = [0; 1];
        assert!(here.copy_out(least - 1, &mut byte) && !begin.copy_out(wide.len() - 1, &mut [0; 1]));
        assert_eq!(&byte, b"y");
        // A part of what is mapped is given back.
        let (whole, _) = Mapping::attach(&arena).unwrap();
        for (room, mapped) in [(u64::MAX, wide.len()), (least + 1, least), (0, least)] {
            // SAFETY: nobody copies.
            unsafe { whole.shrink(room) };
            assert_eq!(whole.mapped(), mapped);
        }
        assert!(whole.copy_in(least - 1, b"z") && !whole.copy_in(least, b"z") && here.copy_in(least, b"z"));
        let refused = Mapping::attach_within(&arena, least - 1).unwrap_err();
        assert!(matches!(refused, AttachError::System(error) if error.kind() == io::ErrorKind::OutOfMemory));
    }

    #[test]
    fn what_is_emptied_is_zeros_whoever_has_touched_it_and_words_stay() {
        let wide = Layout { storage_bytes: 64 * Layout::STORAGE_MIN, ..SMALL };
        let arena = Arena::create(wide, 1).unwrap();
        let (there, _) = Mapping::attach(&arena).unwrap();
        there.block(7).unwrap().waiters.store(5, Ordering::Relaxed);
        let words = arena.memory().unwrap();
        for piece in [0, PAGE, wide.storage_bytes - PAGE] {
            assert!(there.copy_in(wide.storage_at() + piece, b"beyond the books"));
        }
        // Nobody has written to it, so there is no data to be found.
        fallocate(&arena, FallocateFlags::empty(), wide.storage_at() + 8 * PAGE, 2 * PIECE).unwrap();
        assert!(arena.memory().unwrap() >= words + 3 * PAGE + 2 * PIECE && !arena.is_small());
        arena.empty().unwrap();
        assert!(arena.memory().unwrap() <= words && arena.is_small(), "nothing is left but words");
        let mut bytes = [1; 8];
        assert!(there.copy_out(wide.storage_at(), &mut bytes));
        assert_eq!(bytes, [0; 8]);
        assert_eq!(arena.mapping().block(7).unwrap().waiters.load(Ordering::Relaxed), 5);
    }

    #[test]
    fn the_size_is_for_ever() {
        let arena = Arena::create(SMALL, 1).unwrap();
        assert!(ftruncate(&arena, 0).is_err() && ftruncate(&arena, SMALL.len() + PAGE).is_err());
        assert!(fcntl_add_seals(&arena, SealFlags::WRITE).is_err());
    }

    #[test]
    fn what_is_no_arena_is_refused() {
        let memfd = |len: u64, seals| {
            let fd = memfd_create("x", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
            ftruncate(&fd, len).unwrap();
            fcntl_add_seals(&fd, seals).unwrap();
            fd
        };
        let refused = |fd: &OwnedFd| Mapping::attach(fd).unwrap_err();
        assert!(matches!(refused(&memfd(PAGE, SealFlags::SHRINK)), AttachError::NotSealed));
        assert!(matches!(refused(&memfd(0, SEALS)), AttachError::Magic(0)));
        assert!(matches!(refused(&memfd(PAGE, SEALS)), AttachError::Magic(0)));
        let spoilt = |spoil: fn(&Header)| {
            let arena = Arena::create(SMALL, 1).unwrap();
            spoil(arena.mapping().header());
            Mapping::attach(&arena).unwrap_err()
        };
        assert!(matches!(spoilt(|h| h.version.store(99, Ordering::Relaxed)), AttachError::Version(99)));
        for spoil in [
            (|h| h.blocks.store(0, Ordering::Relaxed)) as fn(&Header),
            |h| h.lanes.store(3, Ordering::Relaxed),
            |h| h.storage_bytes.store(32 * PAGE, Ordering::Relaxed),
            |h| h.len.store(1, Ordering::Relaxed),
            |h| h.block_bytes.store(128, Ordering::Relaxed),
        ] {
            assert!(matches!(spoilt(spoil), AttachError::Layout(_)));
        }
        assert!(Arena::create(Layout { lanes: 0, ..SMALL }, 1).is_err());
    }
}
