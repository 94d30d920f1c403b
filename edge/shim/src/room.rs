//! How much of its address space this process has for what it shares with the daemon. As a rule it is not limited, and arenas are mapped
//! whole; under RLIMIT_AS (vsftpd and dovecot set it themselves) they are smaller, or mapped in part. Called by `session.rs`, `arenas.rs`, and before the
//! limit is set.

use firelane_shm::Mapping;
use rustix::fs::{Mode, OFlags, open};
use rustix::io::read;
use rustix::process::{Resource, getrlimit};

use crate::table::DESCRIPTORS;
use crate::{arenas, memory, process, session, socket, sys};

/// So exactly the room is found that nobody tells: enough to leave somebody else his part.
const ROOM_STEP: u64 = 1 << 20;

/// How much storage of each arena a program keeps that limits itself, and may set a wider limit.
const STORAGE_KEPT: u64 = 256 << 20;

/// What there is for an arena of its own: a part of what is left, since the program wants memory, too.
pub(crate) fn for_own() -> u64 {
    left().map_or(u64::MAX, |left| left / 4)
}

/// What there is for an arena that comes from elsewhere, which may be needed whole.
pub(crate) fn for_others() -> u64 {
    left().map_or(u64::MAX, |left| left / 2)
}

/// What there is for a segment that a connection is fused by already: another process may have let the peer write there. This thread, if
/// it is the only one, gives storage of its own arena back for it, as far as that goes, while nothing of its own needs that.
pub(crate) fn for_fused() -> u64 {
    let is_idle = |place: u16| !process::is_borrowed() && threads() == Some(1) && !socket::are_in(place);
    if let Some(own) = session::own_arena().filter(|&place| is_idle(place)).and_then(arenas::get) {
        memory::give_back(own, own.mapped() / 4);
    }
    left().unwrap_or(u64::MAX)
}

/// The program is about to limit its own address space. What is mapped already leaves it half of what it has not taken: storage is given back
/// for that, if this thread is the only one, but for some, by which and by all words `widen` makes the limit wider. Where that fails there is
/// less storage, and connections whose buffers lie behind it are reset. Whether the limit was set by `widen`.
pub(crate) fn is_limited(limit: u64, widen: impl FnOnce(u64) -> bool) -> bool {
    if limit == u64::MAX || process::is_borrowed() {
        return false;
    }
    let Some(others) = others() else { return false };
    let (count, left) = (arenas::all().count() as u64, limit.saturating_sub(others));
    // Who has taken more than he allows himself is to find that out.
    if count == 0 || left == 0 || shared() <= left / 2 {
        return false;
    }
    let is_alone = threads() == Some(1);
    let part = left / 2 / count;
    if is_alone {
        let kept = |arena: &Mapping| arena.layout().storage_at() + STORAGE_KEPT;
        arenas::all().for_each(|arena| memory::give_back(arena, part.max(kept(arena))));
    }
    let is_wider = match shared().saturating_sub(left / 2) {
        0 => return false,
        more => widen(more),
    };
    if is_alone && !is_wider {
        arenas::all().for_each(|arena| memory::give_back(arena, part));
    }
    is_wider
}

/// How many threads the process has.
pub(crate) fn threads() -> Option<u32> {
    let mut text = [0; 512];
    let stat = open("/proc/self/stat", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok()?;
    let len = read(&stat, &mut text).ok()?;
    // The name, in parentheses, may have any bytes; proc(5) counts from one, and the name is the second.
    let behind_name = text[..len].rsplit(|&byte| byte == b')').next()?;
    core::str::from_utf8(behind_name).ok()?.split_ascii_whitespace().nth(20 - 3)?.parse().ok()
}

/// For how many descriptors an array has places, each of which costs address space and no more: for all that there could ever be, or
/// for those of now.
pub(crate) fn descriptors() -> usize {
    let limited = getrlimit(Resource::As).current.and(getrlimit(Resource::Nofile).current);
    limited.map_or(DESCRIPTORS, |limit| DESCRIPTORS.min(usize::try_from(limit).unwrap_or(usize::MAX)))
}

/// What is left of a limit.
fn left() -> Option<u64> {
    let limit = getrlimit(Resource::As).current?;
    // Without /proc nobody tells how much is used.
    Some(size().map_or_else(|| found(limit), |size| limit.saturating_sub(size)))
}

/// How much of a limit the kernel gives.
fn found(limit: u64) -> u64 {
    let (mut there, mut beyond) = (0, limit);
    while beyond - there > ROOM_STEP {
        let tried = there.midpoint(beyond);
        if memory::has_room(tried) { there = tried } else { beyond = tried }
    }
    there
}

/// How much of it arenas take.
fn shared() -> u64 {
    arenas::all().map(|arena| arena.mapped()).sum()
}

/// How much of it is taken by what is the program's own, if that can be known.
pub(crate) fn others() -> Option<u64> {
    Some(size()?.saturating_sub(shared()))
}

/// How much of the address space is taken.
fn size() -> Option<u64> {
    let statm = open("/proc/self/statm", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok()?;
    let mut text = [0; 32];
    let len = read(&statm, &mut text).ok()?;
    let pages = core::str::from_utf8(&text[..len]).ok()?.split(' ').next()?;
    Some(pages.parse::<u64>().ok()? * sys::page_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_size_is_more_than_a_megabyte_and_nothing_is_limited_here() {
        assert!(size().unwrap() > 1 << 20);
        std::thread::scope(|scope| scope.spawn(|| assert!(threads() >= Some(2))).join().unwrap());
        assert_eq!((for_own(), for_others()), (u64::MAX, u64::MAX));
    }
}
