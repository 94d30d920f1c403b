//! What a program sends to itself is there when the call returns, as in Linux: a datagram to a socket of its own, and a connection to a
//! listener of its own that is begun without waiting, by the loopback addresses.
//!
//! A lane takes it there, by itself and a moment later, which another program cannot tell from a call that has taken longer; this one
//! could look at once. So the call gives the lane a bounded while: it waits for nothing that the lane may have reason to hold back for
//! longer (a limit, a full queue), and what comes later is found as what others send.
//!
//! `datagram.rs` asks for the one, `connecting.rs` for the other; who hears on which port is said by `datagram.rs` and `socket.rs`.

use core::hint::spin_loop;
use core::net::SocketAddr;
use core::sync::atomic::{AtomicU64, Ordering};

use firelane_shm::StreamEnd;

use crate::ports::Ports;
use crate::stream::Stream;
use crate::{arenas, names, sys, thread};

/// How often a call looks: some hundred microseconds, of which a lane that has a CPU takes a few.
const LOOKS_MAX: u32 = 8192;
/// How often it looks after that, with a nap before: some milliseconds, in which a lane gets a CPU that others use.
const NAPS_MAX: u32 = 40;
/// The lane may wait for this thread's CPU.
const LOOKS_PER_YIELD: u32 = 64;
/// So often after the lane has taken a datagram, if the hearer is in it: it passes it on in the same turn, unless it is for nobody.
/// Another lane has its own turn.
const LOOKS_AFTER: u32 = 1024;
/// How many ports there are.
const PORTS: usize = 1 << 16;

/// The datagram socket that was bound to each port last: [`HEARS`], its arena, and its block.
static HEARERS: [AtomicU64; PORTS] = [const { AtomicU64::new(0) }; PORTS];
const HEARS: u64 = 1 << 63;
const ARENA_SHIFT: u32 = 32;

/// To which ports a listener of this process listens.
static LISTENED: Ports = Ports::none();

/// A datagram socket of this process has its words there, and perhaps a port.
pub(crate) fn hears(arena: u16, block: u32) {
    let Some(words) = arenas::get(arena).and_then(|memory| memory.block(block)) else { return };
    let place = HEARS | u64::from(arena) << ARENA_SHIFT | u64::from(block);
    HEARERS[usize::from(names::port_of(words))].store(place, Ordering::Relaxed);
}

/// A listener of this process begins to listen to a port.
pub(crate) fn listens(port: u16) {
    LISTENED.put(port);
}

/// It ends.
pub(crate) fn listens_no_more(port: u16) {
    LISTENED.take(port);
}

/// A socket of this process to which a datagram is about to be sent.
pub(crate) struct Hearer {
    end: StreamEnd<'static>,
    /// How much had come there before.
    arrived: u64,
}

impl Hearer {
    /// The one that hears what is sent to an address, if there is one.
    #[inline]
    pub(crate) fn of(to: SocketAddr) -> Option<Self> {
        let place = HEARERS[usize::from(to.port())].load(Ordering::Relaxed);
        if place & HEARS == 0 { None } else { Self::at(place, to) }
    }

    fn at(place: u64, to: SocketAddr) -> Option<Self> {
        let ip = to.ip().to_canonical();
        let memory = arenas::get((place >> ARENA_SHIFT) as u16)?;
        let end = StreamEnd::new(memory, place as u32, thread::holder())?;
        // The socket may be closed by now, and its words another's.
        let local = names::local_of(end.block()).filter(|local| local.port() == to.port())?;
        // Whether another address is this host's is not known here, but where the socket has it.
        let hears = local.ip() == ip || local.ip().is_unspecified() && ip.is_loopback();
        // Who has much to read looks in vain at nothing, and what has no room does not come.
        (hears && !end.is_half_full()).then(|| Self { end, arrived: end.arrived() })
    }

    /// Gives the lane time to take what was queued at `from` to the hearer.
    #[cold]
    pub(crate) fn wait(self, from: &Stream) {
        let (from, mut looks_after) = (from.end(), 0);
        let queued = from.queued();
        let [from_lane, own_lane] = [from.block(), self.end.block()].map(names::lane_of);
        look(|| {
            let is_taken = from_lane == own_lane && from.taken().wrapping_sub(queued).cast_signed() >= 0;
            looks_after += u32::from(is_taken);
            self.end.arrived() != self.arrived || looks_after > LOOKS_AFTER
        });
    }
}

/// A connection was begun, and its program does not wait for it: gives the lane time to let it stand, or to refuse it, if it is to a
/// listener of this process.
#[inline]
pub(crate) fn begun(stream: &Stream, to: SocketAddr) {
    if LISTENED.has(to.port()) && to.ip().to_canonical().is_loopback() {
        look(|| !stream.is_connecting());
    }
}

#[cold]
fn look(mut is_there: impl FnMut() -> bool) {
    for nth in 1..=LOOKS_MAX {
        if is_there() {
            return;
        }
        if nth % LOOKS_PER_YIELD == 0 { std::thread::yield_now() } else { spin_loop() }
    }
    for _ in 0..NAPS_MAX {
        sys::nap();
        if is_there() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_is_waited_for_where_nobody_hears() {
        for to in ["127.0.0.1:9", "[::1]:9", "10.0.0.1:9"] {
            assert!(Hearer::of(to.parse().unwrap()).is_none(), "{to}");
        }
        HEARERS[9].store(HEARS | 7 << ARENA_SHIFT | 3, Ordering::Relaxed);
        assert!(Hearer::of("127.0.0.1:9".parse().unwrap()).is_none(), "such an arena is not mapped");
    }

    #[test]
    fn a_look_ends() {
        let mut looks = 0;
        look(|| {
            looks += 1;
            false
        });
        assert_eq!(looks, LOOKS_MAX + NAPS_MAX);
        let mut left = 3;
        look(|| {
            left -= 1;
            left == 0
        });
        assert_eq!(left, 0);
    }
}
