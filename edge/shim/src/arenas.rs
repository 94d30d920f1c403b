//! The arenas that are mapped in this process: its session's own, those of sockets that came from elsewhere, and the
//! segments that it shares with the programs with which its connections are fused.
//!
//! A forked child has its parent's mappings, so its words of the table stay good. Nothing is ever unmapped: a call in
//! another thread may be inside. So what was a daemon's that is gone stays, and is dead.

use core::sync::atomic::{AtomicU64, Ordering};
use std::os::fd::AsFd;
use std::sync::OnceLock;

use firelane_shm::layout::Inbox;
use firelane_shm::{AttachError, Layout, Mapping, set_bits};
use rustix::io::Errno;

use crate::{room, standard_error};

/// How many arenas a process may see: its own, those of the programs that hand it sockets, and its segments.
pub(crate) const ARENAS_MAX: usize = u64::BITS as usize;

/// How many of them may be segments: sockets that come from elsewhere always find a place.
pub(crate) const SEGMENTS_MAX: usize = 48;
/// So many of the last places are no segments', also where daemons that are gone have left many.
const KEPT_FOR_ARENAS: usize = 8;

/// An arena that is mapped.
struct Known {
    mapping: Mapping,
    /// The number that the daemon knows it by.
    number: u64,
    is_segment: bool,
}

impl Known {
    /// Whether it is the one that the daemon of this time calls so: each counts from one.
    fn is_called(&self, place: usize, number: u64) -> bool {
        self.number == number && !is_buried(place as u16)
    }
}

static ARENAS: [OnceLock<Known>; ARENAS_MAX] = [const { OnceLock::new() }; ARENAS_MAX];
/// A bit for each that is no segment.
static PROGRAMS: AtomicU64 = AtomicU64::new(0);
/// For some numbers, where each is: the number above, one more than the place below.
static HINTS: [AtomicU64; 256] = [const { AtomicU64::new(0) }; 256];
const HINT_SHIFT: u32 = 8;
/// Those of daemons that another one has followed, a bit each.
static BURIED: AtomicU64 = AtomicU64::new(0);
/// The same, or all bits: the daemon is gone that there was last, and with it whatever is here.
static DEAD: AtomicU64 = AtomicU64::new(0);

fn at(place: u16) -> Option<&'static Known> {
    ARENAS.get(usize::from(place))?.get()
}

/// The arena in a place.
#[inline]
pub(crate) fn get(place: u16) -> Option<&'static Mapping> {
    Some(&at(place)?.mapping)
}

/// Whether the daemon of what is in a place is gone.
#[inline]
pub(crate) fn is_dead(place: u16) -> bool {
    DEAD.load(Ordering::Relaxed) >> place & 1 != 0
}

/// Whether another has followed that one.
pub(crate) fn is_buried(place: u16) -> bool {
    BURIED.load(Ordering::Relaxed) >> place & 1 != 0
}

/// Whether the last daemon is gone.
#[inline]
pub(crate) fn are_dead() -> bool {
    DEAD.load(Ordering::Relaxed) == u64::MAX
}

/// What is known of daemons, which is something else whenever one has followed another.
pub(crate) fn known() -> u64 {
    DEAD.load(Ordering::Relaxed)
}

/// The last daemon is gone, unless another has followed it since so much was known.
pub(crate) fn die(known: u64) {
    let _ = DEAD.compare_exchange(known, u64::MAX, Ordering::Relaxed, Ordering::Relaxed);
}

/// It is not.
pub(crate) fn live() {
    DEAD.store(BURIED.load(Ordering::Relaxed), Ordering::Relaxed);
}

/// Another daemon has followed: what is mapped by now is dead for good. Nobody maps anything meanwhile. `false` if there is no place for anything
/// of that daemon's.
pub(crate) fn bury() -> bool {
    let count = ARENAS.iter().map_while(OnceLock::get).count();
    if count >= ARENAS_MAX {
        return false;
    }
    let all = (1 << count) - 1;
    BURIED.store(all, Ordering::Relaxed);
    PROGRAMS.fetch_and(!all, Ordering::AcqRel);
    live();
    true
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

/// Whether all lanes that are awake for this process were last on this CPU, of one at least.
pub(crate) fn has_lanes_on(cpu: u16) -> bool {
    let lanes = |arena| (0..).map_while(move |lane| Mapping::lane(arena, lane));
    let mut awake = programs().filter_map(get).flat_map(lanes).filter_map(Inbox::awake_on).peekable();
    awake.peek().is_some() && awake.all(|lane| lane == u32::from(cpu))
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
    if seen >> HINT_SHIFT == number
        && let Some(place) = (seen as u8).checked_sub(1).map(u16::from)
        && !is_buried(place)
    {
        return Some(place);
    }
    let mut all = ARENAS.iter().map_while(OnceLock::get).enumerate();
    let (place, _) = all.find(|(place, arena)| arena.is_called(*place, number))?;
    hint.store(number << HINT_SHIFT | (place as u64 + 1), Ordering::Relaxed);
    Some(place as u16)
}

/// Whether another segment may be mapped.
pub(crate) fn has_room_for_segment() -> bool {
    let all = || ARENAS.iter().map_while(OnceLock::get).enumerate();
    let living = all().filter(|(place, arena)| arena.is_segment && !is_buried(*place as u16));
    living.count() < SEGMENTS_MAX && all().count() < ARENAS_MAX - KEPT_FOR_ARENAS
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
        standard_error::say_once("no room for the memory that sockets share with the daemon: is the address space limited (RLIMIT_AS)?");
        Errno::NOMEM
    })?;
    if let Some(place) = find(number) {
        return Ok(place);
    }
    let mut new = Some(Known { mapping, number, is_segment });
    for (place, arena) in ARENAS.iter().enumerate() {
        let there = arena.get_or_init(|| new.take().unwrap_or_else(|| unreachable!("it is put in once")));
        if there.is_called(place, number) {
            PROGRAMS.fetch_or(u64::from(!is_segment) << place, Ordering::AcqRel);
            return Ok(place as u16);
        }
    }
    standard_error::say_once(
        "there is no place for more memory of sockets: this process, and those that it was forked of one after the other, have mapped that of 64 programs, daemons and peers",
    );
    Err(Errno::NFILE)
}
