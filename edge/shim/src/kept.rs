//! Sockets whose descriptors outlive `close`: under the program's number lies a copy of a hidden descriptor (`pool.rs`), and
//! when the program closes its own the hidden one makes the next socket.
//!
//! A connection is closed by its words, which its lane reads, and the daemon finds out when it has to do with the socket again.
//! Another socket that was in use is given back with a message to the daemon, which ends what it was, as it would at the last
//! copy's end. So the program's descriptor must be the only one but for ours, here and everywhere. Whatever makes copies of
//! descriptors that this library does not count (`fork` and its kin, a message to another process) passes the [`GATE`]: what was
//! given out before, or is closed meanwhile, ends the old way, with both copies, and the daemon sees whether others have it.
//!
//! Nothing here locks or allocates: `close` may come in a signal handler.

use core::ffi::c_int;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::os::fd::{AsRawFd, IntoRawFd};

use firelane_shm::StreamEnd;
use firelane_shm::control::{Place, SocketId};
use firelane_shm::layout::{LINGERS, RESETS, request};
use rustix::fs::OFlags;
use rustix::io::{Errno, fcntl_dupfd_cloexec};
use rustix::process::{Resource, getrlimit};

use crate::pool::{self, Mode, Spare};
use crate::socket::{self, Kind};
use crate::table::{self, DESCRIPTORS, Word};
use crate::{arenas, confining, fused, options, process, session, sys, thread, untold};

/// How many there may be: a small part of the program's range.
const MOST: u64 = 512;
const PART: u64 = 32;

/// For each descriptor of the program's: above, the gate's count when it was given out; below, [`USED`], the [`Mode`] and one more than
/// the hidden descriptor. Zero is none.
static HIDDEN: [AtomicU64; DESCRIPTORS] = [const { AtomicU64::new(0) }; DESCRIPTORS];
/// What the daemon calls those.
static NAMES: [AtomicU64; DESCRIPTORS] = [const { AtomicU64::new(0) }; DESCRIPTORS];
/// One above the highest number that ever had one.
static BOUND: AtomicU64 = AtomicU64::new(0);
static COUNT: AtomicU32 = AtomicU32::new(0);

/// The daemon was asked about it, so that it is no new socket any more.
const USED: u64 = 1 << 31;
const MODE_SHIFT: u32 = 29;
const MODE: u64 = 3 << MODE_SHIFT;
/// In place of a [`Mode`]: a call changes it.
const CHANGING: u64 = 3 << MODE_SHIFT;
const HIDDEN_MASK: u64 = (1 << MODE_SHIFT) - 1;
const _: () = assert!(DESCRIPTORS < HIDDEN_MASK as usize);
const COUNT_SHIFT: u32 = 32;

/// How often copies were about to be made that nobody counts; below, how many are being made.
static GATE: AtomicU64 = AtomicU64::new(0);
const PASSING: u64 = (1 << COUNT_SHIFT) - 1;

/// Who makes copies is inside until this is dropped.
pub(crate) struct Passing(());

impl Passing {
    /// Copies are about to be made.
    pub(crate) fn begin() -> Self {
        GATE.fetch_add((1 << COUNT_SHIFT) + 1, Ordering::SeqCst);
        // Behind that no more options wait.
        untold::tell_all();
        Self(())
    }

    /// It is not seen when they have been made: from here on every socket is closed the old way.
    pub(crate) fn for_ever() {
        core::mem::forget(Self::begin());
    }

    /// For who cannot keep it meanwhile.
    pub(crate) fn end() {
        drop(Self(()));
    }
}

/// A number that is another whenever somebody has passed since.
#[inline]
pub(crate) fn passed() -> u64 {
    GATE.load(Ordering::Relaxed)
}

impl Drop for Passing {
    fn drop(&mut self) {
        GATE.fetch_sub(1, Ordering::SeqCst);
    }
}

/// How many descriptors of the program's range the hidden ones take at the most, by the limit that it began with.
pub(crate) fn range() -> u64 {
    static RANGE: AtomicU64 = AtomicU64::new(0);
    match RANGE.load(Ordering::Relaxed) {
        0 => {
            let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
            let range = (limit / PART).clamp(1, MOST);
            RANGE.store(range, Ordering::Relaxed);
            range
        }
        range => range,
    }
}

/// Gives the program a socket at the lowest number that is free, as it would get it from the kernel.
pub(crate) fn give(is_v6: bool, spare: Spare, flags: c_int) -> Result<c_int, Errno> {
    let gate = GATE.load(Ordering::SeqCst);
    let hidden = sys::borrow(spare.hidden);
    let made = match flags & libc::SOCK_CLOEXEC {
        0 => rustix::io::dup(hidden),
        _ => fcntl_dupfd_cloexec(hidden, 0),
    };
    let made = made
        .and_then(|fd| if table::has_room_for(fd.as_raw_fd()) { Ok(fd) } else { Err(Errno::MFILE) })
        .and_then(|fd| set_blocking(&spare, flags & libc::SOCK_NONBLOCK == 0).map(|()| fd))
        .and_then(|fd| if spare.is_used { options::clear_times(spare.hidden) } else { Ok(()) }.map(|()| fd));
    let fd = match made {
        Ok(fd) => fd,
        Err(errno) => {
            let hidden = spare.hidden;
            // What has failed may have changed it.
            if !pool::put(is_v6, Spare { mode: Mode::Unknown, ..spare }) {
                session::close_hidden(hidden);
            }
            return Err(errno);
        }
    };
    let fd = fd.into_raw_fd();
    let mode = if flags & libc::SOCK_NONBLOCK == 0 { Mode::Blocks } else { Mode::NeverBlocks };
    if !keep(fd, &Spare { mode, ..spare }, gate) {
        session::close_hidden(spare.hidden);
    }
    Ok(fd)
}

/// O_NONBLOCK is the open file's, so an earlier socket may have left it.
fn set_blocking(spare: &Spare, blocks: bool) -> Result<(), Errno> {
    let fd = sys::borrow(spare.hidden);
    let is_blocking = match spare.mode {
        Mode::Blocks => true,
        Mode::NeverBlocks => false,
        Mode::Unknown => !rustix::fs::fcntl_getfl(fd).is_ok_and(|flags| flags.contains(OFlags::NONBLOCK)),
    };
    if is_blocking == blocks { Ok(()) } else { rustix::io::ioctl_fionbio(fd, !blocks) }
}

/// The program is about to change the flags of the open file behind `fd`: until it says what they are
/// ([`has_changed_flags`]) the kernel is asked for them, and for good if two threads change them at once.
pub(crate) fn changes_flags(fd: c_int) {
    let during = |word: u64| if mode_in(word) == Mode::Unknown { 0 } else { CHANGING };
    change_mode(fd, |word| (word != 0).then(|| word & !MODE | during(word)));
}

/// It has changed them, and nobody else meanwhile, as far as is known.
pub(crate) fn has_changed_flags(fd: c_int, blocks: bool) {
    let mode = if blocks { Mode::Blocks } else { Mode::NeverBlocks };
    change_mode(fd, |word| (word & MODE == CHANGING).then_some(word & !MODE | (mode as u64) << MODE_SHIFT));
}

fn change_mode(fd: c_int, change: impl FnMut(u64) -> Option<u64>) {
    if let Some(place) = HIDDEN.get(fd as u32 as usize).filter(|place| place.load(Ordering::Relaxed) != 0) {
        let _ = place.fetch_update(Ordering::SeqCst, Ordering::Relaxed, change);
    }
}

/// What is known of the flags of the open file behind `fd`: nobody but this program can have changed them.
pub(crate) fn mode(fd: c_int) -> Mode {
    let gate = GATE.load(Ordering::SeqCst);
    let word = HIDDEN.get(fd as u32 as usize).map_or(0, |place| place.load(Ordering::Relaxed));
    if is_alone(gate, word) { mode_in(word) } else { Mode::Unknown }
}

const fn mode_in(word: u64) -> Mode {
    Mode::of(((word & MODE) >> MODE_SHIFT) as u8)
}

/// Whether nobody can have a copy of what lies behind a descriptor, by the gate as it is and the word.
const fn is_alone(gate: u64, word: u64) -> bool {
    gate & PASSING == 0 && gate >> COUNT_SHIFT == word >> COUNT_SHIFT
}

/// Remembers what is behind `fd`, as the gate was before it was made. Whether it may.
fn keep(fd: c_int, spare: &Spare, gate: u64) -> bool {
    let Some(place) = HIDDEN.get(fd as u32 as usize) else { return false };
    // The program may have closed that number past every hook.
    untold::forget(fd);
    if gate & PASSING != 0 {
        return false;
    }
    if u64::from(COUNT.fetch_add(1, Ordering::Relaxed)) >= range() {
        COUNT.fetch_sub(1, Ordering::Relaxed);
        return false;
    }
    BOUND.fetch_max(fd as u64 + 1, Ordering::Relaxed);
    NAMES[fd as usize].store(spare.name.0, Ordering::Relaxed);
    let used = if spare.is_told { USED } else { 0 };
    let below = used | (spare.mode as u64) << MODE_SHIFT | u64::from(spare.hidden.unsigned_abs() + 1);
    let word = gate >> COUNT_SHIFT << COUNT_SHIFT | below;
    let old = place.swap(word, Ordering::SeqCst);
    if let Some(old) = Kept::new(fd, old) {
        // The program has closed that number past every hook.
        old.drop_copy();
    }
    // Whoever follows another daemon now finds it, or is seen here.
    if spare.era != session::era() {
        take(fd).into_iter().for_each(Kept::drop_copy);
    }
    true
}

/// What lies behind a descriptor that was taken out.
pub(crate) struct Kept {
    fd: c_int,
    word: u64,
    name: SocketId,
}

/// Says that the daemon is asked of the socket behind `fd` now. Whether nobody had: what waits of it (`untold.rs`) is the caller's then, to take
/// it out, and nothing more waits.
pub(crate) fn claim(fd: c_int) -> bool {
    let Some(place) = HIDDEN.get(fd as u32 as usize) else { return false };
    let claimed = |word| (word != 0 && word & USED == 0).then_some(word | USED);
    place.fetch_update(Ordering::SeqCst, Ordering::SeqCst, claimed).is_ok()
}

/// What the daemon calls the socket behind `fd`, of which it is asked now.
pub(crate) fn name(fd: c_int) -> Option<SocketId> {
    claim(fd);
    known_name(fd)
}

fn known_name(fd: c_int) -> Option<SocketId> {
    let is_there = HIDDEN.get(fd as u32 as usize)?.load(Ordering::Relaxed) != 0;
    is_there.then(|| SocketId(NAMES[fd as usize].load(Ordering::Relaxed)))
}

/// The same of a socket that is the program's alone, and of which the daemon was asked nothing: what it knows of it is that it is new. One
/// thread finds it: it has claimed it.
pub(crate) fn unasked(fd: c_int) -> Option<SocketId> {
    if is_unasked(fd) && claim(fd) { known_name(fd) } else { None }
}

/// Whether [`unasked`] would find it, which asks nothing as yet.
pub(crate) fn is_unasked(fd: c_int) -> bool {
    let gate = GATE.load(Ordering::SeqCst);
    let word = HIDDEN.get(fd as u32 as usize).map_or(0, |place| place.load(Ordering::Relaxed));
    word != 0 && word & USED == 0 && is_alone(gate, word)
}

/// The same of one that is the program's alone, whether the daemon was asked of it or not.
pub(crate) fn own_name(fd: c_int) -> Option<SocketId> {
    let gate = GATE.load(Ordering::SeqCst);
    let word = HIDDEN.get(fd as u32 as usize)?.load(Ordering::Relaxed);
    if is_alone(gate, word) { name(fd) } else { None }
}

/// What lies behind `fd` now, for [`leave_closed`].
pub(crate) struct Glance(u64);

/// The socket behind `fd` is about to be made a stream.
pub(crate) fn glance(fd: c_int) -> Glance {
    Glance(HIDDEN.get(fd as u32 as usize).map_or(0, |place| place.load(Ordering::Relaxed)))
}

/// Another thread has closed the socket before it had the word of the stream that it was made, so its hidden descriptor may make the next
/// socket: that is to be without this one's connection. Of what has no hidden one there is the hang-up.
pub(crate) fn leave_closed(before: &Glance, word: Word) {
    if before.0 != 0 && is_alone(GATE.load(Ordering::SeqCst), before.0) {
        leave(word);
    }
}

/// Takes out what lies behind `fd`, which is about to be closed.
#[inline]
pub(crate) fn take(fd: c_int) -> Option<Kept> {
    let place = HIDDEN.get(fd as u32 as usize)?;
    // Most have none, and a load leaves their page untouched.
    if place.load(Ordering::Relaxed) == 0 {
        return None;
    }
    let name = SocketId(NAMES[fd as usize].load(Ordering::Relaxed));
    Kept::new(fd, place.swap(0, Ordering::SeqCst)).map(|kept| Kept { name, ..kept })
}

/// From now on `fd` is closed as any other: it has copies, or is no socket that could be given out again.
pub(crate) fn forget(fd: c_int) {
    untold::tell_and_wait(fd);
    if let Some(kept) = take(fd) {
        kept.drop_copy();
    }
}

/// None is kept: a forked child closes the hidden descriptors of its parent's, and what is a daemon's that is gone makes no new socket.
pub(crate) fn forget_all() {
    untold::forget_all();
    for place in HIDDEN.iter().take(BOUND.load(Ordering::Relaxed) as usize) {
        if let Some(kept) = Kept::new(0, place.swap(0, Ordering::SeqCst)) {
            kept.drop_copy();
        }
    }
}

/// A hidden descriptor has another number.
pub(crate) fn moved(from: c_int, to: c_int) {
    let of = |fd: c_int| u64::from(fd.unsigned_abs() + 1);
    // Others may change the rest of the word meanwhile.
    let renamed = |word| (word & HIDDEN_MASK == of(from)).then(|| word - of(from) + of(to));
    for place in HIDDEN.iter().take(BOUND.load(Ordering::Relaxed) as usize) {
        let _ = place.fetch_update(Ordering::SeqCst, Ordering::Relaxed, renamed);
    }
}

/// Where the words of a stream are.
fn place_of(word: Word) -> Option<Place> {
    let arena = arenas::number(socket::arena(word)).filter(|_| socket::kind(word) == Kind::Stream)?;
    Some(Place { arena, block: socket::number(word) })
}

/// Ends a connection by its own words: the lane is told and nobody asked. Whether that is possible.
fn leave(word: Word) -> bool {
    let is_there = socket::kind(word) == Kind::Stream && !socket::is_dead(word);
    let memory = arenas::get(socket::arena(word)).filter(|_| is_there);
    let end = memory.and_then(|memory| StreamEnd::new(memory, socket::number(word), thread::holder()));
    let Some(end) = end else { return false };
    end_beside(&end);
    if !end.leave() {
        return false;
    }
    session::kick(&end);
    true
}

/// Lets who is fused with it have the end of the stream, unless it ends with a reset: SO_LINGER says so, or text that nobody has read.
fn end_beside(end: &StreamEnd<'static>) {
    let Some((_, beside)) = fused::of(end) else { return };
    let end = end.with(beside);
    let is_plain = end.block().file.load(Ordering::Relaxed) & (LINGERS | RESETS) == 0 && end.available() == 0;
    if is_plain && end.end_beside() && fused::tell(&end, beside) {
        end.request(request::TELL_PEER);
    }
}

impl Kept {
    fn new(fd: c_int, word: u64) -> Option<Self> {
        (word != 0).then_some(Self { fd, word, name: SocketId(0) })
    }

    fn hidden(&self) -> c_int {
        (self.word & HIDDEN_MASK) as c_int - 1
    }

    /// Closes the hidden copy: the program's, if it is still there, is the last of this process.
    pub(crate) fn drop_copy(self) {
        COUNT.fetch_sub(1, Ordering::Relaxed);
        session::close_hidden(self.hidden());
    }

    /// Closes the program's descriptor, which the table does not know any more, and makes a new socket of the hidden one, if
    /// nobody else can have it; otherwise closes both.
    pub(crate) fn close(self, word: Word) {
        let era = session::era();
        let gate = GATE.load(Ordering::SeqCst);
        let may_return = is_alone(gate, self.word)
            && process::has_session()
            && !socket::is_dead(word)
            && !confining::is_confined()
            && matches!(socket::kind(word), Kind::Fresh | Kind::Stream)
            && !socket::is_datagram(word)
            && !socket::is_shared(word);
        if !may_return {
            let fd = self.fd;
            self.drop_copy();
            return sys::close(fd);
        }
        sys::close(self.fd);
        let is_new = self.word & USED == 0 && socket::kind(word) == Kind::Fresh;
        let is_alone = GATE.load(Ordering::SeqCst) == gate;
        let is_found = is_alone && (is_new || leave(word));
        // Whether a message is on its way, behind which the next request about it must go.
        let is_told = is_alone && !is_found && session::post_closed(self.name, place_of(word));
        if is_found || is_told {
            let mode = mode_in(self.word);
            let (hidden, name) = (self.hidden(), self.name);
            let spare = Spare { hidden, name, is_used: true, mode, is_told, era };
            if pool::put(socket::is_v6(word), spare) {
                COUNT.fetch_sub(1, Ordering::Relaxed);
                return;
            }
        }
        self.drop_copy();
    }
}

/// A new socket lies behind `fd`, for tests, until what is answered is dropped. Nobody passes the gate meanwhile.
#[cfg(test)]
pub(crate) fn pretend_new(fd: c_int) -> impl Drop {
    struct Pretended(c_int, std::sync::MutexGuard<'static, ()>);
    impl Drop for Pretended {
        fn drop(&mut self) {
            // There is no descriptor that could be closed.
            if take(self.0).is_some() {
                COUNT.fetch_sub(1, Ordering::Relaxed);
            }
        }
    }
    let alone = ALONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let (name, mode, era) = (SocketId(77), Mode::Blocks, session::era());
    let spare = Spare { hidden: 1, name, is_used: false, mode, is_told: false, era };
    assert!(keep(fd, &spare, GATE.load(Ordering::SeqCst)));
    Pretended(fd, alone)
}

// The gate is one for all tests.
#[cfg(test)]
static ALONE: std::sync::Mutex<()> = std::sync::Mutex::new(());

#[cfg(test)]
mod tests {
    use super::*;

    // The arrays are one for the process, so each test has numbers of its own.

    fn spare(hidden: c_int) -> Spare {
        let (name, mode, era) = (SocketId(77), Mode::Blocks, session::era());
        Spare { hidden, name, is_used: false, mode, is_told: false, era }
    }

    fn hidden_file() -> c_int {
        let file = std::fs::File::open("/dev/null").map(std::os::fd::OwnedFd::from);
        file.unwrap().into_raw_fd()
    }

    #[test]
    fn what_is_kept_is_taken_once_and_has_its_name() {
        assert!(keep(900_101, &spare(5), GATE.load(Ordering::SeqCst)));
        assert_eq!(name(900_101), Some(SocketId(77)));
        let kept = take(900_101).unwrap();
        assert_eq!((kept.hidden(), kept.name, kept.word & USED), (5, SocketId(77), USED));
        assert!(take(900_101).is_none() && name(900_101).is_none());
        assert!(take(-1).is_none() && take(c_int::MAX).is_none());
    }

    #[test]
    fn of_one_that_the_daemon_was_told_of_it_is_asked() {
        let _alone = ALONE.lock();
        let gate = GATE.load(Ordering::SeqCst);
        assert!(keep(900_104, &Spare { is_told: true, ..spare(7) }, gate));
        assert_eq!((unasked(900_104), name(900_104)), (None, Some(SocketId(77))));
        assert!(keep(900_105, &spare(8), gate));
        assert_eq!(
            [(); 2].map(|()| unasked(900_105)),
            [Some(SocketId(77)), None],
            "it is asked from then on"
        );
        assert!(keep(900_106, &spare(9), gate));
        drop(Passing::begin());
        assert_eq!(unasked(900_106), None, "others may have it");
        assert_eq!([900_104, 900_105, 900_106].map(own_name), [None; 3]);
        assert!(keep(900_110, &spare(10), GATE.load(Ordering::SeqCst)));
        assert_eq!(
            (own_name(900_110), unasked(900_110)),
            (Some(SocketId(77)), None),
            "it is asked from then on"
        );
        assert!([900_104, 900_105, 900_106, 900_110].into_iter().all(|fd| take(fd).is_some()));
    }

    #[test]
    fn the_flags_of_an_open_file_are_known_until_somebody_may_have_changed_them() {
        let _alone = ALONE.lock();
        let (gate, kinds) = (GATE.load(Ordering::SeqCst), [Mode::Blocks, Mode::NeverBlocks, Mode::Unknown]);
        for (fd, is) in (900_107..).zip(kinds) {
            assert!(keep(fd, &Spare { mode: is, ..spare(c_int::from(is as u8)) }, gate));
            assert_eq!((mode(fd), mode(fd + 100)), (is, Mode::Unknown));
            assert_eq!(name(fd), Some(SocketId(77)));
            assert_eq!(mode(fd), is, "the daemon was asked, and nobody has changed anything");
        }
        changes_flags(900_107);
        assert_eq!((mode(900_107), mode(900_108)), (Mode::Unknown, Mode::NeverBlocks));
        has_changed_flags(900_107, false);
        assert_eq!(mode(900_107), Mode::NeverBlocks);
        for _two_at_once in 0..2 {
            changes_flags(900_107);
        }
        has_changed_flags(900_107, true);
        changes_flags(900_107);
        has_changed_flags(900_107, true);
        assert_eq!(mode(900_107), Mode::Unknown, "whose change came last nobody knows");
        drop(Passing::begin());
        assert_eq!(mode(900_108), Mode::Unknown, "others may have it");
        assert_eq!([7, 8, 9].map(|n| take(900_100 + n).unwrap().hidden()), [1, 2, 0]);
        changes_flags(900_107);
        assert_eq!(HIDDEN[900_107].load(Ordering::Relaxed), 0, "what is none stays none");
    }

    #[test]
    fn who_passes_the_gate_leaves_nothing_to_be_given_out_again() {
        let _alone = ALONE.lock();
        let before = GATE.load(Ordering::SeqCst);
        let passing = Passing::begin();
        let meanwhile = GATE.load(Ordering::SeqCst);
        assert!(!keep(900_102, &spare(6), meanwhile), "copies are being made");
        drop(passing);
        let after = GATE.load(Ordering::SeqCst);
        assert!(before >> COUNT_SHIFT < after >> COUNT_SHIFT);
    }

    #[test]
    fn a_copy_that_nobody_needs_is_closed() {
        let hidden = hidden_file();
        assert!(keep(900_103, &spare(hidden), GATE.load(Ordering::SeqCst)));
        assert!(rustix::io::fcntl_getfd(sys::borrow(hidden)).is_ok());
        // Another number's end comes first, as when a program closes one past every hook.
        let next = hidden_file();
        assert!(keep(900_103, &spare(next), GATE.load(Ordering::SeqCst)));
        assert_eq!(take(900_103).map(|kept| kept.hidden()), Some(next));
        sys::close(next);
    }
}
