//! Streams that are fused with a stream of another program, or of this one: the joint that both have in a segment.
//!
//! A stream's words say that it has a joint, and where; who looks at the stream maps the segment then, shows the joint
//! where to wake whoever waits here, and only then opens it, so that the peer writes there (`joint.rs` of `drivers/shm`).
//! The peer's waiters are woken by their doorbells (`bells.rs`).
//!
//! A process that cannot map the segment (no address space is left, or it may not ask) goes by the lane: nobody writes where no reader
//! has mapped it. But another that has the socket may have mapped it, and be gone: then text may lie where this one does not reach it, in
//! front of what the lane brings. Such a stream ([`StreamEnd::is_cut_off`]) reads and writes nothing until the daemon, which is asked by the lane,
//! has parted the two ends for good and said that nothing is there, or that text is lost, which is ECONNABORTED.

use core::ffi::c_int;
use core::sync::atomic::{AtomicU64, Ordering};

use firelane_shm::layout::{FOLLOWED, LOST};
use firelane_shm::{Beside, StreamEnd};
use rustix::io::Errno;

use crate::table::Word;
use crate::{arenas, confining, session, socket, thread, wait, waiter};

mod bells;

pub(crate) use bells::moved;

/// Segments that could not be mapped, each in a place of several: above, its number; below, until when it is not asked for again, in
/// tenths of a second.
static REFUSED: [AtomicU64; 64] = [const { AtomicU64::new(0) }; 64];

/// Whoever is refused for want of what he may have in a moment asks again after so many tenths.
const A_WHILE: u32 = 1;

/// The stream's end with the joint that it may have got. `arena` is where the stream's words are.
#[inline]
pub(crate) fn followed(fd: c_int, arena: u16, end: StreamEnd<'static>) -> StreamEnd<'static> {
    let Some((number, joint, side)) = end.lacks() else { return end };
    if arenas::is_buried(arena) {
        // The number may be another segment's.
        return end.alone();
    }
    let Some(beside) = place_of(fd, &end, number).and_then(|place| beside_in(place, joint, side)) else {
        return end.alone();
    };
    if !beside.is_open() {
        open(fd, arena, &end, number, beside);
    }
    end.with(beside)
}

/// The joint of a stream, and the place of its segment, which is mapped for that.
pub(crate) fn reached(fd: c_int, end: &StreamEnd<'static>) -> Option<(u16, Beside<'static>)> {
    let (number, joint, side) = end.lacks()?;
    let place = place_of(fd, end, number)?;
    Some((place, beside_in(place, joint, side)?))
}

/// The joint of a stream, and the place of its segment, if it has one and the segment is mapped.
pub(crate) fn of(end: &StreamEnd<'static>) -> Option<(u16, Beside<'static>)> {
    let (number, joint, side) = end.lacks()?;
    let place = arenas::find(number)?;
    Some((place, beside_in(place, joint, side)?))
}

fn beside_in(place: u16, joint: u32, side: usize) -> Option<Beside<'static>> {
    Beside::new(arenas::get(place)?, joint, side)
}

/// Where the segment with this number is; asks for it the first time.
fn place_of(fd: c_int, end: &StreamEnd<'static>, number: u64) -> Option<u16> {
    if let Some(place) = arenas::find(number) {
        return Some(place);
    }
    let refused = &REFUSED[number as usize % REFUSED.len()];
    if confining::is_confined() || is_refused(refused.load(Ordering::Relaxed), number, end, tenths) {
        return None;
    }
    bells::tidy_all();
    let place = session::segment(number, fd);
    if let Err(errno) = place {
        let until = if may_pass(errno) { tenths().saturating_add(A_WHILE) } else { u32::MAX };
        refused.store(number << 32 | u64::from(until), Ordering::Relaxed);
    }
    place.ok()
}

/// Whether a refused segment is not to be asked for as yet. It is, whenever it was refused, for a stream whose text may lie there: such a
/// one is given up else.
fn is_refused(word: u64, number: u64, end: &StreamEnd<'static>, now: impl FnOnce() -> u32) -> bool {
    let (refused, until) = ((word >> 32) as u32, word as u32);
    let may_have_text = || end.block().file.load(Ordering::SeqCst) & (FOLLOWED | LOST) == FOLLOWED;
    refused == number as u32 && (until == u32::MAX || now() < until && !may_have_text())
}

/// Whether who could not map a segment may in a moment: descriptors have run out, or a signal handler has come into the middle of another
/// question.
fn may_pass(errno: Errno) -> bool {
    errno == Errno::MFILE || errno == Errno::NETDOWN && !session::is_dead()
}

fn tenths() -> u32 {
    (wait::coarsely().as_millis() / 100) as u32
}

/// Whoever waits for the stream here is found by the peer from now on.
#[cold]
fn open(fd: c_int, arena: u16, end: &StreamEnd<'static>, number: u64, beside: Beside<'static>) {
    let Some(segment) = arenas::find(number) else { return };
    // Whoever has the socket and cannot map the segment knows from here on that text may be there.
    end.block().file.fetch_or(FOLLOWED, Ordering::SeqCst);
    let marked = end.block().waiters.load(Ordering::SeqCst);
    let moved = waiter::mark_in(fd, arena, marked, segment, beside);
    beside.open(moved == marked);
}

/// Tells the peer's program that something was written to the joint, or read. Whether the daemon is to tell it.
pub(crate) fn tell(end: &StreamEnd<'static>, beside: Beside<'static>) -> bool {
    let number = end.block().segment.load(Ordering::Relaxed);
    let segment = arenas::find(number);
    let told = beside.tell(|slot| {
        let owner = beside.inbox(slot).map_or(0, |inbox| inbox.owners.load(Ordering::Acquire));
        segment.is_some_and(|segment| bells::ring(segment, number, slot, owner))
    });
    if told.has_woken {
        thread::has_woken();
    }
    told.asks_daemon
}

/// A stream is closed: its peer's program may be gone, whose waiters' bells nobody rings any more.
pub(crate) fn closed(word: Word) {
    if !socket::is_dead(word)
        && let Some((segment, _)) = waiter::end_of(word).and_then(|end| of(&end))
    {
        bells::tidy(segment);
    }
}
