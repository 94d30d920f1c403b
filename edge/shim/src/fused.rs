//! Streams that are fused with a stream of another program, or of this one: the joint that both have in a segment.
//!
//! A stream's words say that it has a joint, and where; who looks at the stream maps the segment then, shows the joint
//! where to wake whoever waits here, and only then opens it, so that the peer writes there (`joint.rs` of `drivers/shm`).
//! The peer's waiters are woken by their doorbells, for which the daemon is asked once each.
//!
//! A process that cannot map the segment (no address space is left, or it may not ask) goes by the lane: nobody writes where no reader
//! has mapped it. But another that has the socket may have mapped it, and be gone: then text may lie where this one does not reach it, in
//! front of what the lane brings. Such a stream ([`StreamEnd::is_cut_off`]) reads and writes nothing until the daemon, which is asked by the lane,
//! has parted the two ends for good and said that nothing is there, or that text is lost, which is ECONNABORTED.

use core::ffi::c_int;
use core::sync::atomic::{AtomicU64, Ordering};

use firelane_shm::layout::{FOLLOWED, SLOT_SHARED, SLOTS};
use firelane_shm::{Beside, StreamEnd, doorbell};
use rustix::io::Errno;

use crate::{arenas, confining, session, sys, waiter};

/// One that is not there, for segments that could not be mapped: they are not asked for again.
static REFUSED: [AtomicU64; 64] = [const { AtomicU64::new(0) }; 64];

/// Doorbells of peers' waiters, by segment and slot: above, which owner of the slot it is; below, one more than the number.
static BELLS: [[AtomicU64; SLOTS as usize]; arenas::ARENAS_MAX] =
    [const { [const { AtomicU64::new(0) }; SLOTS as usize] }; arenas::ARENAS_MAX];

/// The stream's end with the joint that it may have got. `arena` is where the stream's words are.
#[inline]
pub(crate) fn followed(fd: c_int, arena: u16, end: StreamEnd<'static>) -> StreamEnd<'static> {
    let Some((number, joint, side)) = end.lacks() else { return end };
    let Some(beside) = place_of(fd, number).and_then(|place| beside_in(place, joint, side)) else {
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
    let place = place_of(fd, number)?;
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
fn place_of(fd: c_int, number: u64) -> Option<u16> {
    if let Some(place) = arenas::find(number) {
        return Some(place);
    }
    let refused = &REFUSED[number as usize % REFUSED.len()];
    if refused.load(Ordering::Relaxed) == number || confining::is_confined() {
        return None;
    }
    let place = session::segment(number, fd).ok();
    if place.is_none() {
        refused.store(number, Ordering::Relaxed);
    }
    place
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
    beside.tell(|slot| {
        let owner = beside.inbox(slot).map_or(0, |inbox| inbox.owners.load(Ordering::Acquire));
        segment.is_some_and(|segment| ring(segment, number, slot, owner))
    })
}

/// Rings a waiter of the peer's. Whether that could be done from here: those who share a slot are known to the daemon alone,
/// and a confined process rings nobody but lanes.
fn ring(segment: u16, number: u64, slot: u32, owner: u32) -> bool {
    if slot == SLOT_SHARED || confining::is_confined() {
        return false;
    }
    let Some(place) = BELLS.get(usize::from(segment)).and_then(|bells| bells.get(slot as usize)) else {
        return false;
    };
    let known = place.load(Ordering::Acquire);
    let fd = match (known as u32).checked_sub(1) {
        Some(fd) if (known >> 32) as u32 == owner => fd.cast_signed(),
        _ => match fetch(place, known, number, slot, owner) {
            Ok(fd) => fd,
            Err(_) => return false,
        },
    };
    doorbell::ring(sys::borrow(fd));
    true
}

/// Asks for the doorbell of a slot.
#[cold]
fn fetch(place: &AtomicU64, known: u64, number: u64, slot: u32, owner: u32) -> Result<c_int, Errno> {
    let fd = session::hide(session::bell(number, slot)?)?;
    let word = u64::from(owner) << 32 | u64::from(fd.unsigned_abs() + 1);
    let is_first = place.compare_exchange(known, word, Ordering::AcqRel, Ordering::Acquire);
    match is_first {
        Ok(_) => {
            if let Some(old) = (known as u32).checked_sub(1) {
                session::close_hidden(old.cast_signed());
            }
            Ok(fd)
        }
        // Another thread was faster, whose answer is as good.
        Err(theirs) => {
            session::close_hidden(fd);
            (theirs as u32).checked_sub(1).map(u32::cast_signed).ok_or(Errno::NOENT)
        }
    }
}

/// A bell has another number.
pub(crate) fn moved(from: c_int, to: c_int) {
    for place in BELLS.iter().flatten() {
        let known = place.load(Ordering::Acquire);
        if known as u32 == from.unsigned_abs() + 1 {
            let word = known >> 32 << 32 | u64::from(to.unsigned_abs() + 1);
            let _ = place.compare_exchange(known, word, Ordering::AcqRel, Ordering::Relaxed);
        }
    }
}
