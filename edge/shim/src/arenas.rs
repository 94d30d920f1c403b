//! The arenas that are mapped in this process: its session's own, and those of sockets that came from elsewhere.
//!
//! A forked child has its parent's mappings, so its words of the table stay good. Nothing is ever unmapped: a call in
//! another thread may be inside.

use std::os::fd::AsFd;
use std::sync::OnceLock;

use firelane_shm::Mapping;
use rustix::io::Errno;

/// How many arenas a process may see: its own, and those of the programs that hand it sockets.
const ARENAS_MAX: usize = 64;

static ARENAS: [OnceLock<(Mapping, u64)>; ARENAS_MAX] = [const { OnceLock::new() }; ARENAS_MAX];

/// The arena in a place.
#[inline]
pub(crate) fn get(place: u16) -> Option<&'static Mapping> {
    Some(&ARENAS.get(usize::from(place))?.get()?.0)
}

/// The number that the daemon knows it by.
pub(crate) fn number(place: u16) -> Option<u64> {
    Some(ARENAS.get(usize::from(place))?.get()?.1)
}

/// The place of the arena with this number.
pub(crate) fn find(number: u64) -> Option<u16> {
    ARENAS.iter().map_while(OnceLock::get).position(|arena| arena.1 == number).map(|place| place as u16)
}

/// Maps an arena that the daemon has sent, unless it is mapped already.
pub(crate) fn add(memfd: impl AsFd) -> Result<u16, Errno> {
    let (mapping, number) = Mapping::attach(memfd).map_err(|_| Errno::NOMEM)?;
    if let Some(place) = find(number) {
        return Ok(place);
    }
    let mut new = Some((mapping, number));
    for (place, arena) in ARENAS.iter().enumerate() {
        let there = arena.get_or_init(|| new.take().unwrap_or_else(|| unreachable!("it is put in once")));
        if there.1 == number {
            return Ok(place as u16);
        }
    }
    Err(Errno::NFILE)
}
