//! What a program sends to itself is there when the call returns, as in Linux: a datagram to a socket of its own, and a connection to a
//! listener of its own that is begun without waiting, by the loopback addresses. So is what a socket with a peer, or with IP_RECVERR, is
//! told where nobody hears a datagram on this host: ECONNREFUSED is the next call's, and the error is in its queue.
//!
//! A lane takes it there, by itself and a moment later, which another program cannot tell from a call that has taken longer; this one
//! could look at once. So the call gives the lane a bounded while: it waits for nothing that the lane may have reason to hold back for
//! longer (a limit, a full queue), and what comes later is found as what others send. Where it has waited in vain it soon waits no
//! more: what is sent there goes to another program, which nobody tells, to another socket with the same port, or to nobody. Whoever
//! was refused there after all is waited for again.
//!
//! `datagram.rs` asks for the one, `connecting.rs` for the other; who hears on which port is said by `datagram.rs` and `socket.rs`.

use core::hint::spin_loop;
use core::net::SocketAddr;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use core::time::Duration;
use std::time::Instant;

use firelane_shm::StreamEnd;
use firelane_shm::layout::{file, status};

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
/// How long a refusal is waited for: a lane gets a CPU that others use within some milliseconds.
const REFUSED_WITHIN: Duration = Duration::from_millis(10);
/// How long after the lane has taken the datagram, which another may have to deliver: who talks with another process loses no more.
const REFUSED_AFTER: Duration = Duration::from_millis(1);
/// How many ports there are.
const PORTS: usize = 1 << 16;

/// The datagram socket that was bound to each port last: [`HEARS`], how often it was waited for in vain, its arena, and its block. Where
/// none of this process was, how often a refusal was.
static HEARERS: [AtomicU64; PORTS] = [const { AtomicU64::new(0) }; PORTS];
const HEARS: u64 = 1 << 63;
const VAIN_SHIFT: u32 = 48;
const VAIN_ONE: u64 = 1 << VAIN_SHIFT;
const VAIN: u64 = HEARS - VAIN_ONE;
const ARENA_SHIFT: u32 = 32;

/// How often a refusal was waited for in vain by sockets without a peer, which may send to one port after the other: a server with
/// IP_RECVERR that answers clients of other processes waits for none of them.
static WITHOUT_PEER: AtomicU64 = AtomicU64::new(0);

/// So often in a row a hearer is waited for in vain. Then what is sent to its port is counted, and it is waited for again when
/// that count is full.
const VAIN_MAX: u64 = 3;

/// To which ports a listener of this process listens.
static LISTENED: Ports = Ports::none();

/// Of the connections that are still to be taken.
static BEGUN: Begun = Begun(AtomicU32::new(0));

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

/// One that was waited for in vain is waited for again: its program takes connections.
#[inline]
pub(crate) fn accepts(port: u16) {
    if !LISTENED.has(port) {
        LISTENED.put(port);
    }
}

/// It ends.
pub(crate) fn listens_no_more(port: u16) {
    LISTENED.take(port);
}

/// What a datagram that is about to be sent leaves behind on this host.
pub(crate) enum Outcome {
    /// It comes to a socket of this process.
    Arrival(Hearer),
    /// No socket of this process hears it: its sender is told, if nobody else does.
    Refusal(Refusal),
}

impl Outcome {
    /// That of one that `from` sends to an address, if it is to be waited for.
    #[inline]
    pub(crate) fn of(from: &Stream, to: SocketAddr) -> Option<Self> {
        let word = &HEARERS[usize::from(to.port())];
        let place = word.load(Ordering::Relaxed);
        let of_this_process = || Hearer::at(place, to, || names::port_of(from.end().block()));
        match (place & HEARS != 0).then(of_this_process).flatten() {
            None => Refusal::of(from, to).map(Self::Refusal),
            // Who has much to read looks in vain at nothing, and what has no room does not come.
            Some(hearer) => {
                let is_waited_for = is_waited_for(word, place, |_| false) && !hearer.end.is_half_full();
                is_waited_for.then_some(Self::Arrival(hearer))
            }
        }
    }

    /// Gives the lane time for what was queued at `from`.
    #[cold]
    pub(crate) fn wait(self, from: &Stream) {
        match self {
            Self::Arrival(hearer) => hearer.wait(from),
            Self::Refusal(refusal) => refusal.wait(from),
        }
    }
}

/// Whether `from` is told of a datagram to an address that nobody hears there, by this host itself: the address is its peer's, or it is told
/// of all that does not arrive (IP_RECVERR, IPV6_RECVERR), and a loopback one or its own. Where it is counted how often that was waited
/// for in vain.
#[inline]
fn told_by(from: &Stream, to: SocketAddr) -> Option<&'static AtomicU64> {
    let end = from.end();
    let (words, ip) = (end.block(), to.ip().to_canonical());
    let is_here = || ip.is_loopback() || names::local_of(words).is_some_and(|own| own.ip() == ip);
    let is_peer = || names::remote(words).is_some_and(|it| it.ip() == ip && it.port() == to.port());
    let wanted = if ip.is_ipv4() { file::ERRORS_V4 } else { file::ERRORS_V6 };
    if words.has_peer() && is_peer() {
        is_here().then(|| &HEARERS[usize::from(to.port())])
    } else {
        (words.file.load(Ordering::Relaxed) & wanted != 0 && is_here()).then_some(&WITHOUT_PEER)
    }
}

/// A refusal that a datagram may bring.
pub(crate) struct Refusal {
    /// Where it is counted.
    word: &'static AtomicU64,
    /// What was known of it.
    place: u64,
    /// How much had come to the sender before.
    arrived: u64,
}

impl Refusal {
    /// That of a datagram that `from` sends to an address, if it is to be waited for.
    #[inline]
    fn of(from: &Stream, to: SocketAddr) -> Option<Self> {
        let word = told_by(from, to)?;
        let place = word.load(Ordering::Relaxed);
        let is_waited_for = is_waited_for(word, place, is_tried_again);
        is_waited_for.then(|| Self { word, place, arrived: from.end().arrived() })
    }

    fn wait(self, from: &Stream) {
        let end = from.end();
        let (begin, queued, mut taken_at) = (Instant::now(), end.queued(), None);
        let is_refused = || end.status() >> status::ERROR_SHIFT != 0;
        // Who gets something there is heard there.
        for nth in 1.. {
            if is_refused() || end.arrived() != self.arrived {
                break;
            }
            if nth % LOOKS_PER_YIELD != 0 {
                spin_loop();
                continue;
            }
            if nth < LOOKS_MAX {
                sys::pass()
            } else {
                sys::nap()
            }
            let now = begin.elapsed();
            if taken_at.is_none() && end.taken().wrapping_sub(queued).cast_signed() >= 0 {
                taken_at = Some(now);
            }
            if now > REFUSED_WITHIN || taken_at.is_some_and(|at| now - at > REFUSED_AFTER) {
                break;
            }
        }
        note(self.word, self.place, is_refused());
    }
}

/// A datagram that `from` has sent to its peer was refused: the next refusal is waited for again.
#[cold]
pub(crate) fn refused(from: &Stream) {
    if let Some(peer) = names::remote(from.end().block()) {
        forget_vain(&HEARERS[usize::from(peer.port())]);
    }
}

/// A socket without a peer has been told of a datagram that did not arrive: the next refusal is waited for again.
#[cold]
pub(crate) fn faulted() {
    forget_vain(&WITHOUT_PEER);
}

/// A socket of this process to which a datagram is about to be sent.
pub(crate) struct Hearer {
    end: StreamEnd<'static>,
    /// What was known of it.
    place: u64,
    /// How much had come there before.
    arrived: u64,
}

impl Hearer {
    /// The one at a place, if it hears what is sent from a port to an address.
    fn at(place: u64, to: SocketAddr, from_port: impl Fn() -> u16) -> Option<Self> {
        let ip = to.ip().to_canonical();
        let memory = arenas::get((place >> ARENA_SHIFT) as u16)?;
        let end = StreamEnd::new(memory, place as u32, thread::holder())?;
        // The socket may be closed by now, and its words another's.
        let local = names::local_of(end.block()).filter(|local| local.port() == to.port())?;
        // Whether another address is this host's is not known here, but where the socket has it.
        let is_there = local.ip() == ip || local.ip().is_unspecified() && ip.is_loopback();
        let is_anothers = || names::remote(end.block()).is_some_and(|peer| peer.port() != from_port());
        let hears = is_there && !(end.block().has_peer() && is_anothers());
        hears.then(|| Self { end, place, arrived: end.arrived() })
    }

    fn wait(self, from: &Stream) {
        let (from, mut looks_after) = (from.end(), 0);
        let queued = from.queued();
        let [from_lane, own_lane] = [from.block(), self.end.block()].map(names::lane_of);
        look(|| {
            let is_taken = from_lane == own_lane && from.taken().wrapping_sub(queued).cast_signed() >= 0;
            looks_after += u32::from(is_taken);
            self.end.arrived() != self.arrived || looks_after > LOOKS_AFTER
        });
        let word = &HEARERS[usize::from(names::port_of(self.end.block()))];
        note(word, self.place, self.end.arrived() != self.arrived);
    }
}

/// Whether a refusal that was not there in time for so long is waited for once more: lanes may have had no CPU then, and nobody has told who
/// hears there. It is at each power of four.
fn is_tried_again(vain: u64) -> bool {
    vain.is_power_of_two() && vain.trailing_zeros().is_multiple_of(2)
}

/// Whether what was waited for so often in vain is waited for once more. Where it is not, that is counted.
#[inline]
fn is_waited_for(word: &AtomicU64, place: u64, is_tried_again: impl Fn(u64) -> bool) -> bool {
    let is_waited_for = vain(place) < VAIN_MAX || is_tried_again(vain(place));
    if !is_waited_for {
        in_vain(word, place);
    }
    is_waited_for
}

/// Whether what was waited for has come.
fn note(word: &AtomicU64, place: u64, has_come: bool) {
    if !has_come {
        in_vain(word, place);
    } else if vain(place) > 0 {
        exchange(word, place, place & !VAIN);
    }
}

/// Nothing was waited for in vain.
fn forget_vain(word: &AtomicU64) {
    if vain(word.load(Ordering::Relaxed)) > 0 {
        word.fetch_and(!VAIN, Ordering::Relaxed);
    }
}

/// How often a hearer was waited for in vain.
fn vain(place: u64) -> u64 {
    (place & VAIN) >> VAIN_SHIFT
}

/// It was once more. A full count begins anew.
fn in_vain(word: &AtomicU64, place: u64) {
    exchange(word, place, place & !VAIN | place.wrapping_add(VAIN_ONE) & VAIN);
}

/// Who was bound meanwhile is known as he is.
fn exchange(word: &AtomicU64, known: u64, new: u64) {
    let _ = word.compare_exchange(known, new, Ordering::Relaxed, Ordering::Relaxed);
}

/// A connection was begun, and its program does not wait for it: gives the lane time to let it stand, or to refuse it, if it is to a
/// listener of this process. Who does not answer (his accept queue is full) is not waited for again until he accepts.
#[inline]
pub(crate) fn begun(stream: &Stream, to: SocketAddr) {
    if !LISTENED.has(to.port()) {
        return;
    }
    BEGUN.one_more();
    if to.ip().to_canonical().is_loopback() && !look(|| !stream.is_connecting()) {
        LISTENED.take(to.port());
    }
}

/// Whether a connection that is taken just now may be one that this process has begun to itself, without waiting.
#[inline]
pub(crate) fn may_be_own() -> bool {
    BEGUN.take_one()
}

/// How many connections to its own listeners a process has begun, less those that were taken since. A server that also connects to itself
/// takes others' for them, once for each that it has begun.
struct Begun(AtomicU32);

impl Begun {
    fn one_more(&self) {
        let _ = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |begun| begun.checked_add(1));
    }

    /// Whether there was one.
    fn take_one(&self) -> bool {
        let one_less = |begun: u32| begun.checked_sub(1);
        self.0.load(Ordering::Relaxed) > 0
            && self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_less).is_ok()
    }
}

/// Looks until something is there, or in vain. Whether it was there.
#[cold]
fn look(mut is_there: impl FnMut() -> bool) -> bool {
    for nth in 1..=LOOKS_MAX {
        if is_there() {
            return true;
        }
        if nth % LOOKS_PER_YIELD == 0 { sys::pass() } else { spin_loop() }
    }
    (0..NAPS_MAX).any(|_| {
        sys::nap();
        is_there()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_socket_whose_arena_is_not_mapped_hears_nothing() {
        let place = HEARS | 7 << ARENA_SHIFT | 3;
        assert!(Hearer::at(place, "127.0.0.1:9".parse().unwrap(), || 4000).is_none());
    }

    /// Two processes that talk by sockets with peers: nobody refuses anything, and nobody tells who hears.
    #[test]
    fn who_talks_with_another_process_soon_waits_no_more() {
        let word = AtomicU64::new(0);
        let send = |is_refused| {
            let place = word.load(Ordering::Relaxed);
            let is_waited_for = is_waited_for(&word, place, is_tried_again);
            if is_waited_for {
                note(&word, place, is_refused);
            }
            is_waited_for
        };
        for _ in 0..2 {
            let waits: Vec<u32> = (0..1 << 15).filter(|_| send(false)).collect();
            assert_eq!(waits, [0, 1, 2, 4, 16, 64, 256, 1024, 4096, 16384]);
        }
        // Whoever heard has ended, which is found by one of those, or by what a call has told.
        let waits = || (0..9).filter(|_| send(false)).count();
        assert_eq!((waits(), (9..99).find(|_| send(true))), (4, Some(16)));
        assert!((0..100).all(|_| send(true)), "who is refused is waited for each time");
        assert_eq!((waits(), send(false)), (4, false));
        forget_vain(&word);
        assert!(send(true));
    }

    #[test]
    fn who_has_connected_to_itself_gives_way_once_for_each() {
        let begun = Begun(AtomicU32::new(0));
        assert!(!begun.take_one());
        begun.one_more();
        begun.one_more();
        assert!(begun.take_one() && begun.take_one());
        assert!((0..3).all(|_| !begun.take_one()));
        begun.0.store(u32::MAX, Ordering::Relaxed);
        begun.one_more();
        assert!(begun.take_one(), "a full count does not begin anew");
    }

    #[test]
    fn a_look_ends() {
        let mut looks = 0;
        let found = look(|| {
            looks += 1;
            false
        });
        assert!(!found && looks == LOOKS_MAX + NAPS_MAX);
        let mut left = 3;
        let found = look(|| {
            left -= 1;
            left == 0
        });
        assert!(found && left == 0);
    }

    #[test]
    fn who_was_waited_for_in_vain_is_waited_for_again_when_the_count_is_full() {
        let socket = HEARS | 5 << ARENA_SHIFT | 7;
        let word = AtomicU64::new(socket);
        let place = || word.load(Ordering::Relaxed);
        for nth in 1..1 << 15 {
            in_vain(&word, place());
            assert_eq!((vain(place()), place() & !VAIN), (nth, socket));
        }
        in_vain(&word, place());
        assert_eq!(place(), socket);
        in_vain(&word, socket ^ 1);
        assert_eq!(place(), socket, "another is bound meanwhile");
    }
}
