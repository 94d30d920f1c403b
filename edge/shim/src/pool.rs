//! Sockets made ahead: `socket` takes one of them, and the daemon makes more meanwhile.
//!
//! They are fresh sockets like any other, kept among this library's own descriptors until the program is given a copy of one
//! (`kept.rs`). Who makes few sockets has none here. A copy of a descriptor in another process is a reference to its socket, which would
//! outlive its program's `close`: so a forked child closes what it has of its parent's before it does anything else, and
//! nobody forks while some are on their way from the daemon to their places (`session.rs`).

use core::ffi::c_int;
use core::sync::atomic::{
    AtomicBool, AtomicI32, AtomicU8, AtomicU16, AtomicU32, AtomicU64, AtomicUsize, Ordering,
};

use firelane_shm::control::SocketId;

use crate::{kept, process, session};

/// How many are asked for at a time.
pub(crate) const BATCH: usize = 16;
/// How many there may be of a family: those that were closed (`kept.rs`) come back here, as many as that may keep. More are asked
/// for when there are fewer than a batch.
const MOST: usize = 512;
/// So many sockets are made one by one before any is made ahead.
const FEW: u32 = 4;

/// How many descriptors of the program's range all of them take at the most.
pub(crate) const RANGE: u64 = 4 * BATCH as u64;

/// Whether an open file has O_NONBLOCK, as far as this library knows without asking the kernel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(crate) enum Mode {
    Unknown,
    Blocks,
    NeverBlocks,
}

impl Mode {
    pub(crate) const fn of(bits: u8) -> Self {
        match bits {
            1 => Self::Blocks,
            2 => Self::NeverBlocks,
            _ => Self::Unknown,
        }
    }
}

/// A socket that is nobody's as yet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Spare {
    /// Its hidden descriptor.
    pub(crate) hidden: c_int,
    /// What the daemon calls it.
    pub(crate) name: SocketId,
    /// The program has had it.
    pub(crate) is_used: bool,
    /// Whether its open file has O_NONBLOCK, if that is known.
    pub(crate) mode: Mode,
    /// The daemon was sent a message that it is closed, and may not have read it.
    pub(crate) is_told: bool,
    /// Of which daemon it is.
    pub(crate) era: u16,
}

struct Place {
    /// The descriptor; or [`NONE`], or [`BUSY`] while somebody reads or writes the rest.
    hidden: AtomicI32,
    name: AtomicU64,
    is_used: AtomicBool,
    mode: AtomicU8,
    is_told: AtomicBool,
    era: AtomicU16,
}

const NONE: c_int = -1;
const BUSY: c_int = -2;

/// A family's.
struct Pool {
    places: [Place; MOST],
    /// How many sockets the program has made, up to [`FEW`].
    made: AtomicU32,
    /// How many places are taken.
    count: AtomicUsize,
}

impl Pool {
    /// The place that is taken last, mostly: those before it are, and those behind it are not. Who finds it otherwise looks further.
    fn last_first(&self) -> impl Iterator<Item = &Place> {
        let count = self.count.load(Ordering::Relaxed).min(MOST);
        self.places[..count].iter().rev().chain(&self.places[count..])
    }

    /// The place that is free first, mostly, if so many are taken.
    fn free_first(&self, count: usize) -> impl Iterator<Item = &Place> {
        self.places[count..].iter().chain(self.places[..count].iter().rev())
    }
}

static POOLS: [Pool; 2] = [const {
    Pool {
        places: [const {
            Place {
                hidden: AtomicI32::new(NONE),
                name: AtomicU64::new(0),
                is_used: AtomicBool::new(false),
                mode: AtomicU8::new(0),
                is_told: AtomicBool::new(false),
                era: AtomicU16::new(0),
            }
        }; MOST],
        made: AtomicU32::new(0),
        count: AtomicUsize::new(0),
    }
}; 2];

fn pool(is_v6: bool) -> &'static Pool {
    &POOLS[usize::from(is_v6)]
}

fn places() -> impl Iterator<Item = &'static Place> {
    POOLS.iter().flat_map(|pool| &pool.places)
}

/// A socket for the program, if there is one. Those of a daemon that another one has followed are closed.
pub(crate) fn take(is_v6: bool) -> Option<Spare> {
    if !process::has_session() {
        return None;
    }
    loop {
        let spare = take_any(is_v6)?;
        if spare.era == session::era() {
            return Some(spare);
        }
        session::close_hidden(spare.hidden);
    }
}

fn take_any(is_v6: bool) -> Option<Spare> {
    let pool = pool(is_v6);
    pool.last_first().find_map(|place| {
        let hidden = place.hidden.load(Ordering::Relaxed);
        let taken = hidden >= 0
            && place.hidden.compare_exchange(hidden, BUSY, Ordering::Acquire, Ordering::Relaxed).is_ok();
        taken.then(|| {
            let name = SocketId(place.name.load(Ordering::Relaxed));
            let [is_used, is_told] = [&place.is_used, &place.is_told].map(|it| it.load(Ordering::Relaxed));
            let mode = Mode::of(place.mode.load(Ordering::Relaxed));
            let era = place.era.load(Ordering::Relaxed);
            place.hidden.store(NONE, Ordering::Release);
            pool.count.fetch_sub(1, Ordering::Relaxed);
            Spare { hidden, name, is_used, mode, is_told, era }
        })
    })
}

/// Whether more are to be asked for. The program has just made one.
pub(crate) fn is_low(is_v6: bool) -> bool {
    let pool = pool(is_v6);
    let made = pool.made.load(Ordering::Relaxed);
    if made < FEW {
        pool.made.store(made + 1, Ordering::Relaxed);
        return false;
    }
    pool.count.load(Ordering::Relaxed) < BATCH
}

/// There are none to be had: for a while sockets are made one by one again.
pub(crate) fn refused(is_v6: bool) {
    pool(is_v6).made.store(0, Ordering::Relaxed);
}

/// Keeps a socket. Whether there was a place.
pub(crate) fn put(is_v6: bool, spare: Spare) -> bool {
    let pool = pool(is_v6);
    // Those on their way from the daemon always find one.
    let most = kept::range().max(2 * BATCH as u64);
    let count = pool.count.fetch_add(1, Ordering::Relaxed);
    if count as u64 >= most {
        pool.count.fetch_sub(1, Ordering::Relaxed);
        return false;
    }
    let mut places = pool.free_first(count);
    let place = places
        .find(|it| it.hidden.compare_exchange(NONE, BUSY, Ordering::Acquire, Ordering::Relaxed).is_ok());
    let Some(place) = place else {
        pool.count.fetch_sub(1, Ordering::Relaxed);
        return false;
    };
    place.name.store(spare.name.0, Ordering::Relaxed);
    place.is_used.store(spare.is_used, Ordering::Relaxed);
    place.mode.store(spare.mode as u8, Ordering::Relaxed);
    place.is_told.store(spare.is_told, Ordering::Relaxed);
    place.era.store(spare.era, Ordering::Relaxed);
    place.hidden.store(spare.hidden, Ordering::SeqCst);
    // Whoever follows another daemon now finds it, or is seen here.
    if spare.era != session::era() {
        let taken = place.hidden.compare_exchange(spare.hidden, NONE, Ordering::AcqRel, Ordering::Relaxed);
        if taken.is_ok() {
            pool.count.fetch_sub(1, Ordering::Relaxed);
            session::close_hidden(spare.hidden);
        }
    }
    true
}

/// A descriptor has another number.
pub(crate) fn moved(from: c_int, to: c_int) {
    for place in places() {
        let _ = place.hidden.compare_exchange(from, to, Ordering::AcqRel, Ordering::Relaxed);
    }
}

/// A forked child has no use for its parent's.
pub(crate) fn forget() {
    POOLS.iter().for_each(|pool| pool.count.store(0, Ordering::Relaxed));
    for place in places() {
        let hidden = place.hidden.swap(NONE, Ordering::AcqRel);
        if hidden >= 0 {
            session::close_hidden(hidden);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_put_is_taken_with_its_name() {
        crate::process::watch().unwrap();
        crate::process::set_session();
        let spare = |n: c_int| {
            let (is_used, is_told) = (n % 2 == 0, n % 3 == 0);
            let mode = Mode::of(n as u8 % 3);
            let era = session::era();
            Spare { hidden: 900_200 + n, name: SocketId(n as u64), is_used, mode, is_told, era }
        };
        let most = kept::range().max(2 * BATCH as u64) as c_int;
        assert!((0..most).all(|n| put(true, spare(n))) && !put(true, spare(most)));
        moved(900_200, 990_300);
        for n in (0..most).rev() {
            let taken = take(true).unwrap();
            assert_eq!(taken.hidden, if n == 0 { 990_300 } else { 900_200 + n });
            assert_eq!(
                (taken.name, taken.is_used, taken.is_told),
                (SocketId(n as u64), n % 2 == 0, n % 3 == 0)
            );
        }
        assert!(take(true).is_none());
    }
}
