//! The arenas that are mapped in this process: its session's own, those of sockets that came from elsewhere, and the
//! segments that it shares with the programs with which its connections are fused.
//!
//! A forked child has its parent's mappings, so its words of the table stay good. Nothing is ever unmapped: a call in
//! another thread may be inside.

use core::sync::atomic::{AtomicU64, Ordering};
use std::os::fd::AsFd;
use std::sync::OnceLock;

use firelane_shm::{AttachError, Layout, Mapping, set_bits};
use rustix::io::Errno;

use crate::{room, session};

/// How many arenas a process may see: its own, those of the programs that hand it sockets, and its segments.
pub(crate) const ARENAS_MAX: usize = u64::BITS as usize;

/// How many of them may be segments: sockets that come from elsewhere always find a place.
pub(crate) const SEGMENTS_MAX: usize = 48;

/// An arena that is mapped.
struct Known {
    mapping: Mapping,
    /// The number that the daemon knows it by.
    number: u64,
    is_segment: bool,
}

static ARENAS: [OnceLock<Known>; ARENAS_MAX] = [const { OnceLock::new() }; ARENAS_MAX];
/// A bit for each that is no segment.
static PROGRAMS: AtomicU64 = AtomicU64::new(0);
/// For some numbers, where each is: the number above, one more than the place below.
static HINTS: [AtomicU64; 256] = [const { AtomicU64::new(0) }; 256];
const HINT_SHIFT: u32 = 8;

fn at(place: u16) -> Option<&'static Known> {
    ARENAS.get(usize::from(place))?.get()
}

/// The arena in a place.
#[inline]
pub(crate) fn get(place: u16) -> Option<&'static Mapping> {
    Some(&at(place)?.mapping)
}

/// All that are mapped.
pub(crate) fn all() -> impl Iterator<Item = &'static Mapping> {
    ARENAS.iter().map_while(OnceLock::get).map(|arena| &arena.mapping)
}

/// The number that the daemon knows it by.
pub(crate) fn number(place: u16) -> Option<u64> {
    Some(at(place)?.number)
}

/// Whether it is a segment, whose other side is the daemon's to know: it may change.
pub(crate) fn is_segment(place: u16) -> bool {
    at(place).is_some_and(|arena| arena.is_segment)
}

/// The places of those that are none.
pub(crate) fn programs() -> impl Iterator<Item = u16> {
    places(PROGRAMS.load(Ordering::Acquire))
}

/// The places of which a word has the bits.
pub(crate) fn places(bits: u64) -> impl Iterator<Item = u16> {
    set_bits(bits).map(|place| place as u16)
}

/// The place of the arena with this number.
#[inline]
pub(crate) fn find(number: u64) -> Option<u16> {
    let hint = &HINTS[number as usize % HINTS.len()];
    let seen = hint.load(Ordering::Relaxed);
    if seen >> HINT_SHIFT == number && seen != 0 {
        return (seen as u8).checked_sub(1).map(u16::from);
    }
    let place = ARENAS.iter().map_while(OnceLock::get).position(|arena| arena.number == number)?;
    hint.store(number << HINT_SHIFT | (place as u64 + 1), Ordering::Relaxed);
    Some(place as u16)
}

/// Whether another segment may be mapped.
pub(crate) fn has_room_for_segment() -> bool {
    ARENAS.iter().map_while(OnceLock::get).filter(|arena| arena.is_segment).count() < SEGMENTS_MAX
}

/// Maps as much of an arena as there is room for.
fn attached(memfd: impl AsFd) -> Option<(Mapping, u64)> {
    const MOST: u64 = 1 << 40;
    let mut room = room::for_others().min(MOST);
    loop {
        match Mapping::attach_within(&memfd, room) {
            Ok(attached) => return Some(attached),
            // Others have taken what there was.
            Err(AttachError::System(_)) if room > Layout::STORAGE_MIN => room /= 2,
            Err(_) => return None,
        }
    }
}

/// What is to be mapped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum What {
    Arena,
    /// A segment, that only this process opens if it can.
    Segment,
    /// The segment of a connection that others have as well.
    OthersSegment,
}

/// Maps an arena that the daemon has sent, unless it is mapped already.
pub(crate) fn add(memfd: impl AsFd, what: What) -> Result<u16, Errno> {
    let is_segment = what != What::Arena;
    if let Some(place) = Mapping::number_of(&memfd).ok().and_then(find) {
        return Ok(place);
    }
    let last =
        || (what == What::OthersSegment).then(|| Mapping::attach_within(&memfd, room::for_fused()).ok())?;
    let (mapping, number) = attached(&memfd).or_else(last).ok_or_else(|| {
        session::say_once("no room for the memory that sockets share with the daemon: is the address space limited (RLIMIT_AS)?");
        Errno::NOMEM
    })?;
    if let Some(place) = find(number) {
        return Ok(place);
    }
    let mut new = Some(Known { mapping, number, is_segment });
    for (place, arena) in ARENAS.iter().enumerate() {
        let there = arena.get_or_init(|| new.take().unwrap_or_else(|| unreachable!("it is put in once")));
        if there.number == number {
            PROGRAMS.fetch_or(u64::from(!is_segment) << place, Ordering::AcqRel);
            return Ok(place as u16);
        }
    }
    Err(Errno::NFILE)
}
