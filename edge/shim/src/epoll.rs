//! Epoll sets with sockets of ours in them.
//!
//! The kernel's descriptor keeps what is the kernel's, listeners too (`listeners.rs`), and the bells of the set's waiter.
//! Streams are in a list of the set's own (`interests.rs`). The lane leaves word of which have news in the waiter's
//! inbox; those are put in line and looked at, and what is ready of them is told. So a set inside a set, or polled,
//! works by the kernel: a bell makes its descriptor readable. News that nobody in the set has asked for ring the bell,
//! too, so who was woken by a set's descriptor looks whether it has anything to tell (`has_something`).
//!
//! Who stands in line is looked at before he is told, so a place in line may be in vain, but no news are lost: a stream
//! is put in line whenever it has any, when it is added, and when it is changed.
//!
//! No call holds signals back: a handler that comes into the middle of one and asks for the same set is told EINTR
//! (waiting) or EAGAIN (changing it).

use core::ffi::c_int;
use core::sync::atomic::{AtomicU64, Ordering};
use core::time::Duration;
use std::sync::OnceLock;

use firelane_shm::set_bits;
use libc::{epoll_event, pollfd};
use rustix::io::Errno;

use crate::handlers::Seen;
use crate::lock::Lock;
use crate::socket::{self, Kind};
use crate::sys::{self, Limit, Manner};
use crate::table::{self, Word};
use crate::wait::Deadline;
use crate::waiter::{self, BELLS_MAX, Slices, Waiter};
use crate::{accept_queue, arenas, cancelling, elsewhere, process, session, thread};

mod interests;
mod listeners;
mod nested;

pub(crate) use interests::Interest;
use interests::Interests;
use listeners::Listeners;
use nested::Nested;

/// The kernel's own limit for one call.
pub(crate) const EVENTS_MAX: usize = c_int::MAX as usize / size_of::<epoll_event>();
/// How many sets a process may have while it has sockets of ours: more than it has descriptors for.
const SETS_MAX: usize = 65_536;
/// After so many calls that found sockets of ours, the kernel's descriptors are looked at, too.
const TURNS: u32 = 8;

/// So many rings in vain, one behind the other, are looked into; who still hears it says that there is something.
const RINGS: u32 = 16;

/// What the kernel says of a bell, and of the daemon's death: numbers that no program is likely to use.
pub(crate) const BELL: u64 = 0x6669_7265_6c61_6e65;
const DEATH: u64 = BELL ^ 1;

/// To a signal handler that changes the set whose call it has interrupted.
const INSIDE: Errno = Errno::AGAIN;

static SETS: [OnceLock<Box<[Place]>>; SETS_MAX / GROUP] = [const { OnceLock::new() }; SETS_MAX / GROUP];
type Place = Lock<Option<Set>>;
/// So many are made at a time.
const GROUP: usize = 64;
/// Which of them are in use, a bit each.
static USED: [AtomicU64; SETS_MAX / GROUP] = [const { AtomicU64::new(0) }; SETS_MAX / GROUP];
/// In which groups there ever was one, a bit each: each new connection asks all sets.
static BEGUN: [AtomicU64; SETS_MAX / GROUP / 64] = [const { AtomicU64::new(0) }; SETS_MAX / GROUP / 64];

/// What a set keeps beside the kernel's descriptor.
struct Set {
    /// The kernel's descriptor: the one with which the set was made, or a copy when that is closed.
    fd: c_int,
    interests: Interests,
    nested: Nested,
    listeners: Listeners,
    waiter: Option<Waiter>,
    /// Somebody waits for the set's own descriptor, so the bell must ring also while nobody waits inside.
    is_watched: bool,
    /// It is not told of everything, because there was no room for that: who waits looks now and then.
    lacks: bool,
    turns: u32,
    /// Of which daemon it was told last.
    era: u16,
    /// Whether that one's death is heard of.
    hears: bool,
}

/// A new epoll descriptor of the program's. If there is no place for its set, it stays the kernel's alone.
pub(crate) fn created(fd: c_int) -> c_int {
    if fd >= 0 && session::is_wanted() && table::has_room_for(fd) && !process::is_borrowed() {
        let with_room =
            (0..SETS_MAX / GROUP).filter(|&group| USED[group].load(Ordering::Relaxed) != u64::MAX);
        for number in with_room.flat_map(|group| GROUP * group..GROUP * (group + 1)) {
            let (word, bit) = (&USED[number / GROUP], 1 << (number % GROUP));
            if word.load(Ordering::Relaxed) & bit == 0 && word.fetch_or(bit, Ordering::AcqRel) & bit == 0 {
                let group = number / GROUP;
                BEGUN[group / 64].fetch_or(1 << (group % 64), Ordering::AcqRel);
                let new = Set::new(fd);
                let group =
                    SETS[number / GROUP].get_or_init(|| (0..GROUP).map(|_| Lock::new(None)).collect());
                // A handler that has come into the making of the very same set cannot be.
                if let Some(mut set) = group[number % GROUP].enter() {
                    *set = Some(new);
                    table::put(fd, socket::epoll(number as u32));
                }
                make_ready();
                break;
            }
        }
    }
    fd
}

/// Makes what the sets need, while there are descriptors: as in Linux they take sockets where those have run out. Before it has a session
/// nobody sees a process fork, and its child would ring and silence the same bells.
pub(crate) fn make_ready() {
    if process::has_session() {
        let sets = USED.iter().map(|word| word.load(Ordering::Relaxed).count_ones() as usize).sum();
        Waiter::make_ready(sets);
    }
}

/// This process is about to forbid itself what its sets may need: they have it from now on.
pub(crate) fn get_ready() {
    each(|set| {
        // Who has none then looks now and then.
        let _ = set.waiter().map(|waiter| waiter.get_ready());
        let of_streams =
            table::programs().filter_map(table::get).filter(|&word| socket::kind(word) == Kind::Stream);
        session::own_arena()
            .into_iter()
            .chain(of_streams.map(socket::arena))
            .for_each(|arena| set.interests.make_room(arena));
    });
}

/// A descriptor was closed. A set goes with its last one, as far as this process knows; until then it is found by another.
pub(crate) fn closed(fd: c_int, word: Word) {
    let number = socket::number(word) as usize;
    if socket::kind(word) != Kind::Epoll || number >= SETS_MAX {
        return;
    }
    let is_its = |&other: &c_int| table::get(other) == Some(word);
    if let Some(copy) = socket::is_shared(word).then(|| table::programs().find(is_its)).flatten() {
        let mut set = place(number).and_then(Lock::enter);
        return set.iter_mut().filter_map(|set| set.as_mut()).for_each(|set| set.is_renamed(fd, copy));
    }
    // Closed by a handler in the middle of a call at it, a set keeps its place: nobody can look at it any more.
    let Some(set) = place(number).and_then(Lock::enter).map(|mut set| set.take()) else { return };
    if let Some(Set { interests, listeners, waiter, .. }) = set {
        listeners.close();
        // A parent's waiter waits on, whatever its child closes.
        waiter.iter().for_each(|waiter| interests.each(|_, word| waiter.unwatch(word)));
    }
    USED[number / GROUP].fetch_and(!(1 << (number % GROUP)), Ordering::AcqRel);
}

/// Where the set of this number is, if there ever was one.
fn place(number: usize) -> Option<&'static Place> {
    SETS.get(number / GROUP)?.get()?.get(number % GROUP)
}

/// Does something with every set.
fn each(mut with: impl FnMut(&mut Set)) {
    let begun = BEGUN.iter().enumerate();
    let begun = begun.flat_map(|(at, word)| {
        set_bits(word.load(Ordering::Relaxed)).map(move |group| 64 * at + group as usize)
    });
    for group in begun {
        for nth in set_bits(USED[group].load(Ordering::Relaxed)) {
            let mut set = place(GROUP * group + nth as usize).and_then(Lock::enter);
            set.iter_mut().filter_map(|set| set.as_mut()).for_each(&mut with);
        }
    }
}

/// A descriptor, and with it its copies, have become another kind of socket: `connect` and `listen` do that.
pub(crate) fn changed(fd: c_int, from: Word, to: Word) {
    if !socket::is_shared(from) {
        return each(|set| set.changes(fd, from, to));
    }
    let is_copy = |fd: &c_int| table::get(*fd) == Some(to);
    each(|set| table::programs().filter(is_copy).for_each(|fd| set.changes(fd, from, to)));
}

/// There may be news of a stream that no lane and no peer tells of.
pub(crate) fn has_news(word: Word) {
    each(|set| {
        set.interests.line_up_block(socket::arena(word), socket::number(word));
        set.tell_sleepers();
    });
}

/// Nobody is told of this listener any more.
pub(crate) fn silence(fd: c_int) {
    each(|set| {
        set.listeners.remove(fd);
        // In most sets it is not.
        let _ = sys::epoll_ctl(set.fd, libc::EPOLL_CTL_DEL, fd, epoll_event { events: 0, u64: 0 });
    });
}

/// A listener's descriptor is closed. As long as there is a copy, the kernel's sets have it still.
pub(crate) fn listener_closed(fd: c_int, word: Word) {
    let mut was_in = false;
    each(|set| was_in |= set.listeners.remove(fd));
    if was_in
        && socket::is_shared(word)
        && let Some(copy) = table::programs().find(|&fd| table::get(fd) == Some(word))
    {
        accept_queue::give_up(copy, word);
    }
}

/// What a look has found.
struct Looked {
    /// The kernel's descriptor.
    fd: c_int,
    /// So much is ready of ours.
    found: usize,
    asks_kernel: bool,
    /// Not everything will be told.
    lacks: bool,
}

/// The set behind a descriptor.
#[derive(Clone, Copy)]
pub(crate) struct SetRef(&'static Place);

fn of_word(word: Word) -> Option<SetRef> {
    let is_set = socket::kind(word) == Kind::Epoll;
    is_set.then(|| place(socket::number(word) as usize).map(SetRef)).flatten()
}

/// The set behind `fd`, if there is one.
pub(crate) fn at(fd: c_int) -> Option<SetRef> {
    of_word(table::get(fd)?)
}

/// Whether a set has something to tell of sockets of ours.
pub(crate) fn is_ready(word: Word) -> bool {
    // Who cannot look says yes, and is asked what.
    of_word(word)
        .is_some_and(|set| set.0.enter().is_none_or(|mut set| set.as_mut().is_some_and(Set::is_ready)))
}

/// Whether somebody who was woken by a set's descriptor was not woken in vain. A ring that was is taken back.
pub(crate) fn has_something(word: Word) -> bool {
    let Some(place) = of_word(word) else { return true };
    let Some((told, fd, nested)) = place.0.enter().and_then(|mut set| {
        let set = set.as_mut()?;
        Some((set.tells(), set.fd, set.nested))
    }) else {
        return true;
    };
    match told {
        Told::Nothing => false,
        Told::Ours => true,
        // One inside may have rung in vain, and that is taken back by looking, while this one is free.
        Told::Kernels => nested.has_something(has_something) || is_readable(fd),
    }
}

/// Whether the kernel has something to tell of a set, or cannot be asked.
fn is_readable(fd: c_int) -> bool {
    let mut entry = [pollfd { fd, events: libc::POLLIN, revents: 0 }];
    sys::ppoll(&mut entry, Some(Duration::ZERO), Manner::OWN, None).is_err() || entry[0].revents != 0
}

/// What a set has to tell.
enum Told {
    Nothing,
    /// Of sockets of ours.
    Ours,
    /// What the kernel says, of its own or of sets inside; or nobody knows.
    Kernels,
}

/// Somebody is about to wait for the set's own descriptor.
pub(crate) fn arm(word: Word) {
    if let Some(set) = of_word(word)
        && let Some(mut set) = set.0.enter()
        && let Some(set) = set.as_mut()
    {
        set.is_watched = true;
        set.listeners.is_watched();
        set.arm();
    }
}

/// `epoll_ctl` for sockets of ours; `None` is for the kernel.
pub(crate) fn change(
    epoll: c_int,
    what: c_int,
    fd: c_int,
    event: impl FnOnce() -> Result<epoll_event, Errno>,
) -> Option<Result<(), Errno>> {
    let set = at(epoll)?;
    elsewhere::look(fd);
    let word = table::get(fd)?;
    match socket::kind(word) {
        Kind::Private => Some(Err(Errno::BADF)),
        Kind::Epoll => Some(event_or_none(what, event).and_then(|event| {
            arm(word);
            let mut set = set.0.enter().ok_or(INSIDE)?;
            set.as_mut().ok_or(Errno::BADF)?.change_nested(epoll, what, fd, word, event)
        })),
        Kind::Listener => Some(event_or_none(what, event).and_then(|event| {
            let mut set = set.0.enter().ok_or(INSIDE)?;
            set.as_mut().ok_or(Errno::BADF)?.change_listener(epoll, what, fd, word, event)
        })),
        // To the program it is in the set; in the kernel's it would be ready for ever.
        Kind::Ended => Some(event_or_none(what, event).map(|_| ())),
        Kind::Fresh | Kind::Stream => Some(event_or_none(what, event).and_then(|event| {
            check_exclusive(what, event.events)?;
            let mut set = set.0.enter().ok_or(INSIDE)?;
            set.as_mut().ok_or(Errno::BADF)?.change(what, fd, word, event)
        })),
    }
}

/// Linux takes EPOLLEXCLUSIVE when a descriptor is added, beside what it means something for.
fn check_exclusive(what: c_int, events: u32) -> Result<(), Errno> {
    const BESIDE: c_int = libc::EPOLLIN
        | libc::EPOLLOUT
        | libc::EPOLLERR
        | libc::EPOLLHUP
        | libc::EPOLLWAKEUP
        | libc::EPOLLET
        | libc::EPOLLEXCLUSIVE;
    let is_wrong = events & libc::EPOLLEXCLUSIVE as u32 != 0
        && (what == libc::EPOLL_CTL_MOD || events & !(BESIDE as u32) != 0);
    if is_wrong { Err(Errno::INVAL) } else { Ok(()) }
}

/// The event of a call that has one.
fn event_or_none(
    what: c_int,
    event: impl FnOnce() -> Result<epoll_event, Errno>,
) -> Result<epoll_event, Errno> {
    if what == libc::EPOLL_CTL_DEL { Ok(epoll_event { events: 0, u64: 0 }) } else { event() }
}

impl SetRef {
    /// Waits for events.
    pub(crate) fn wait(
        self,
        events: &mut [epoll_event],
        limit: Limit,
        manner: Manner<'_>,
    ) -> Result<c_int, Errno> {
        let seen = Seen::now();
        let deadline = Deadline::of(limit.filter(|limit| !limit.is_zero()));
        let sleeps = limit != Some(Duration::ZERO);
        let mut slices = Slices::new(false);
        loop {
            let Looked { fd, found, asks_kernel, lacks } = self.look(events, sleeps)?;
            if lacks {
                slices.begin();
            }
            if found > 0 && !asks_kernel {
                return Ok(found as c_int);
            }
            let left = if found > 0 || !sleeps { Some(Duration::ZERO) } else { deadline.map(Deadline::left) };
            let told = if found < events.len() {
                // What was found is told, whatever has run.
                let seen = (left != Some(Duration::ZERO)).then_some(seen);
                let slice = slices.limit(left);
                let ask = || sys::epoll_pwait(fd, &mut events[found..], slice, manner, seen);
                cancelling::sleeping(Err(Errno::INTR), ask)
            } else {
                Ok(0)
            };
            let told = match told {
                Ok(told) => {
                    let told = without_ours(&mut events[found..found + told]);
                    let told = self.without_vain(fd, &mut events[found..found + told]);
                    self.without_told(&mut events[..found + told], found)
                }
                // What was found is told, whatever became of the rest.
                Err(_) if found > 0 => 0,
                Err(errno) => {
                    self.wake_up(sleeps);
                    return Err(errno);
                }
            };
            let count = found + told;
            let more = if found == 0 {
                self.woken(&mut events[count..], sleeps)
            } else {
                self.return_bell();
                0
            };
            if count + more > 0 || left.is_some_and(|left| left.is_zero()) {
                return Ok((count + more) as c_int);
            }
        }
    }

    /// What is ready of ours, and whether the kernel is to be asked. If nothing is, and the call `sleeps`, the bell rings
    /// from here on.
    fn look(self, events: &mut [epoll_event], sleeps: bool) -> Result<Looked, Errno> {
        let mut guard = self.0.enter().ok_or(Errno::INTR)?;
        let is_inherited = guard.is_inherited;
        let set = guard.as_mut().ok_or(Errno::BADF)?;
        if is_inherited {
            set.begin_anew()?;
        } else {
            set.become_own()?;
        }
        let mut found = set.collect(events);
        if found == events.len() && set.listeners.is_any_asleep() {
            // He has taken the news of what he has no room for.
            set.arm();
        }
        if found == 0 && sleeps && set.spin() {
            found = set.collect(events);
        }
        if found == 0 && sleeps {
            set.listeners.fall_asleep();
            if !set.fall_asleep() || set.is_sharing() || set.listeners.has_some() {
                found = set.collect(events);
            }
            if found > 0 {
                set.listeners.wake_up();
                set.rest();
            }
        }
        set.turns += 1;
        if set.turns.is_multiple_of(TURNS) {
            set.look_around();
        }
        let asks_kernel = found == 0 || set.turns.is_multiple_of(TURNS);
        Ok(Looked { fd: set.fd, found, asks_kernel, lacks: set.lacks })
    }

    /// After a call of the kernel, and a sleep if `slept`: what has become ready of ours.
    fn woken(self, events: &mut [epoll_event], slept: bool) -> usize {
        let Some(mut guard) = self.0.enter() else { return 0 };
        guard.as_mut().map_or(0, |set| {
            if slept {
                set.listeners.wake_up();
            }
            if set.become_own().is_err() {
                return 0;
            }
            set.look_around();
            let found = set.collect(events);
            set.rest();
            found
        })
    }

    /// A call that had found something has asked the kernel, too, and may have taken the ring that was for another that sleeps.
    fn return_bell(self) {
        if let Some(mut guard) = self.0.enter() {
            guard.iter_mut().for_each(Set::tell_sleepers);
        }
    }

    /// Takes the sets inside this one that have nothing to tell out of the kernel's events; how many are left.
    fn without_vain(self, epoll: c_int, events: &mut [epoll_event]) -> usize {
        // The other sets are looked into while this one is free: two threads may be at it from both ends.
        let nested = self.0.enter().and_then(|set| set.as_ref().map(|set| set.nested));
        nested.map_or(events.len(), |nested| {
            keep(events, |event| nested.is_worth_telling(epoll, event, has_something))
        })
    }

    /// Takes the listeners out of the kernel's events that stand among those that were `found` before; how many events are left behind
    /// those.
    fn without_told(self, events: &mut [epoll_event], found: usize) -> usize {
        let (told, events) = events.split_at_mut(found);
        if told.is_empty() || events.is_empty() {
            return events.len();
        }
        let guard = self.0.enter();
        match guard.as_ref().and_then(|set| set.as_ref()) {
            Some(set) => keep(events, |event| !set.listeners.is_told(event, told)),
            None => events.len(),
        }
    }

    fn wake_up(self, slept: bool) {
        if let Some(set) = self.0.enter().as_mut().and_then(|set| set.as_mut()) {
            if slept {
                set.listeners.wake_up();
            }
            set.rest();
        }
    }
}

impl Set {
    fn new(fd: c_int) -> Self {
        let (interests, nested, listeners) = (Interests::new(), Nested::new(), Listeners::new());
        let era = session::era();
        Self {
            fd,
            interests,
            nested,
            listeners,
            waiter: None,
            is_watched: false,
            lacks: false,
            turns: 0,
            era,
            hears: false,
        }
    }

    /// One of its descriptors is closed, and `copy` is another: by that it is found from here on.
    fn is_renamed(&mut self, closed: c_int, copy: c_int) {
        if self.fd == closed {
            self.fd = copy;
            self.waiter.iter().for_each(|waiter| waiter.is_renamed(closed, copy));
        }
    }

    /// The kernel watches a set inside this one; here is kept what for.
    fn change_nested(
        &mut self,
        epoll: c_int,
        what: c_int,
        fd: c_int,
        word: Word,
        event: epoll_event,
    ) -> Result<(), Errno> {
        sys::epoll_ctl(epoll, what, fd, event)?;
        self.nested.changed(what, fd, word, event);
        Ok(())
    }

    /// The kernel watches a listener, and here is kept what for. It is never writable, whatever is behind it.
    fn change_listener(
        &mut self,
        epoll: c_int,
        what: c_int,
        fd: c_int,
        word: Word,
        event: epoll_event,
    ) -> Result<(), Errno> {
        const WRITABLE: c_int = libc::EPOLLOUT | libc::EPOLLWRNORM | libc::EPOLLWRBAND;
        let event = epoll_event { events: event.events & !(WRITABLE as u32), ..event };
        sys::epoll_ctl(epoll, what, fd, event)?;
        if what == libc::EPOLL_CTL_DEL {
            self.listeners.remove(fd);
            return Ok(());
        }
        // Without a waiter everything is told by messages while somebody waits.
        let _ = self.waiter();
        self.listeners.put(fd, word, event, self.waiter.as_ref());
        if self.listeners.wants_a_bell() {
            // Another thread waits inside, whom nobody tells of what is there already.
            self.waiter()?;
        }
        self.tell_sleepers();
        Ok(())
    }

    fn change(&mut self, what: c_int, fd: c_int, word: Word, event: epoll_event) -> Result<(), Errno> {
        let is_there = self.interests.has(fd, word);
        match what {
            libc::EPOLL_CTL_ADD if is_there => Err(Errno::EXIST),
            libc::EPOLL_CTL_ADD => self.add(fd, word, interests::asked(event)),
            libc::EPOLL_CTL_MOD | libc::EPOLL_CTL_DEL if !is_there => Err(Errno::NOENT),
            // Nor is what was added so ever modified.
            libc::EPOLL_CTL_MOD if self.interests.is_exclusive(fd) => Err(Errno::INVAL),
            libc::EPOLL_CTL_MOD => {
                self.interests.modify(fd, event);
                self.tell_sleepers();
                Ok(())
            }
            libc::EPOLL_CTL_DEL => {
                self.interests.remove(fd, word);
                if let Some(waiter) = &self.waiter
                    && !self.interests.has_block_of(word)
                {
                    waiter.unwatch(word);
                }
                Ok(())
            }
            _ => Err(Errno::INVAL),
        }
    }

    fn changes(&mut self, fd: c_int, from: Word, to: Word) {
        if let Some(event) = self.interests.remove(fd, from) {
            // A failure here would be one of memory; the socket is then not told of any more.
            let _ = self.add(fd, to, event);
        }
    }

    fn add(&mut self, fd: c_int, word: Word, event: epoll_event) -> Result<(), Errno> {
        if socket::kind(word) == Kind::Listener {
            return self.change_listener(self.fd, libc::EPOLL_CTL_ADD, fd, word, event);
        }
        match self.waiter()?.watch(fd, word) {
            Err(errno) if waiter::is_lack(errno) => self.lacks = true,
            watched => watched?,
        }
        self.interests.add(fd, word, event)?;
        self.tell_sleepers();
        Ok(())
    }

    /// The set's waiter, whose bells are among the kernel's descriptors.
    fn waiter(&mut self) -> Result<&mut Waiter, Errno> {
        self.become_own()?;
        if self.waiter.is_none() {
            let waiter = Waiter::take()?;
            waiter.forget_news();
            waiter.silence();
            waiter.enter(self.fd)?;
            self.hear_of_death();
            self.waiter = Some(waiter);
        }
        self.waiter.as_mut().ok_or(Errno::NFILE)
    }

    /// Begins anew where the waiter is that of this process' parent, whose news are not to be taken.
    fn become_own(&mut self) -> Result<(), Errno> {
        if self.waiter.as_ref().is_none_or(Waiter::is_own) { Ok(()) } else { self.begin_anew() }
    }

    /// In a forked child: the interests are its own, the waiter was its parent's.
    fn begin_anew(&mut self) -> Result<(), Errno> {
        (self.waiter, self.lacks, self.hears) = (None, false, false);
        self.listeners.begin_anew();
        let mut watched = Ok(());
        if !self.interests.is_empty() {
            self.waiter()?;
            // A closed one is found out when it is looked at, and no error of the wait.
            let is_open = |fd| table::get(fd).is_some_and(|word| self.interests.has(fd, word));
            if let Some(waiter) = &mut self.waiter {
                self.interests.each(|fd, word| {
                    if is_open(fd) {
                        let told = waiter.watch(fd, word).or_else(|errno| {
                            self.lacks |= waiter::is_lack(errno);
                            if waiter::is_lack(errno) { Ok(()) } else { Err(errno) }
                        });
                        // Another thread may have closed it meanwhile.
                        watched = watched.and(if is_open(fd) { told } else { Ok(()) });
                    }
                });
            }
            self.interests.line_up_all();
        }
        watched
    }

    /// All sockets have something to tell whose daemon is gone, also when another has followed it meanwhile, whose death is told from then on.
    fn follow_daemon(&mut self) {
        let is_new = core::mem::replace(&mut self.era, session::era()) != self.era;
        self.hears &= !is_new;
        if !self.hears && self.waiter.is_some() {
            self.hear_of_death();
        }
        if is_new || session::is_dead() {
            self.interests.line_up_all();
        }
    }

    /// Whoever waits inside hears of the daemon's death, from when on there is a session.
    fn hear_of_death(&mut self) {
        if let Some(control) = session::control() {
            let death = epoll_event { events: (libc::EPOLLRDHUP | libc::EPOLLET) as u32, u64: DEATH };
            // A set that a child has of its parent may have it already.
            let _ = sys::epoll_ctl(self.fd, libc::EPOLL_CTL_ADD, control, death);
            self.hears = true;
        }
    }

    /// Puts those with news in line.
    fn take_news(&mut self) {
        self.follow_daemon();
        let Some(waiter) = &self.waiter else { return };
        for (arena, inbox) in waiter.inboxes() {
            // A segment's news name blocks of its sides' arenas; who is meant in vain is looked at.
            let is_segment = arenas::is_segment(arena);
            let mut line_up = |block| {
                if is_segment {
                    arenas::programs().for_each(|place| self.interests.line_up_block(place, block));
                } else {
                    self.interests.line_up_block(arena, block);
                }
            };
            inbox.take_order().for_each(&mut line_up);
            for (first, bits) in inbox.news.take_words() {
                set_bits(bits).for_each(|bit| line_up(first + bit));
            }
        }
    }

    fn collect(&mut self, events: &mut [epoll_event]) -> usize {
        self.take_news();
        // Who takes one event at a time gets to all of them.
        if self.turns.is_multiple_of(2) {
            let found = self.listeners.tell(events);
            return found + self.interests.tell(&mut events[found..]);
        }
        let found = self.interests.tell(events);
        found + self.listeners.tell(&mut events[found..])
    }

    fn is_ready(&mut self) -> bool {
        if self.become_own().is_err() {
            // Who cannot look says yes, and is asked what.
            return true;
        }
        self.take_news();
        self.interests.is_any_ready() || self.listeners.has_some()
    }

    /// Looks for a while whether news come. Whether some came.
    fn spin(&self) -> bool {
        let has_news = |waiter: &Waiter| waiter.has_news() || self.listeners.has_some();
        self.waiter.as_ref().is_some_and(|waiter| thread::spinning(|spin| spin.until(|| has_news(waiter))))
    }

    /// From here on the bell rings. Whether there are no news as yet.
    fn fall_asleep(&mut self) -> bool {
        let is_quiet = self.waiter.as_ref().is_none_or(Waiter::fall_asleep);
        self.look_around();
        is_quiet
    }

    fn is_sharing(&self) -> bool {
        self.waiter.as_ref().is_some_and(Waiter::is_sharing)
    }

    /// Others may have taken the news that were left in a slot that they share.
    fn look_around(&mut self) {
        if self.lacks || self.is_sharing() {
            self.interests.line_up_changed();
        }
    }

    /// One who waited inside does not any more; the bell need not ring, unless others still do, or watch the descriptor. For them it
    /// rings at once if he leaves anything.
    fn rest(&mut self) {
        if self.is_watched || self.listeners.is_any_asleep() {
            self.arm();
        } else if let Some(waiter) = &self.waiter {
            waiter.wake_up();
        }
    }

    /// The bell rings from here on, and at once if there is something to tell. Whether there is: that is said, too, where news come
    /// without an end and nothing is ready.
    fn arm(&mut self) -> bool {
        if self.become_own().is_err() {
            return true;
        }
        for _ in 0..RINGS {
            let is_quiet = self.fall_asleep();
            if self.is_ready() {
                break;
            }
            if is_quiet {
                return false;
            }
        }
        self.ring();
        true
    }

    /// What there is to tell: of ours, or else, with the bell still, of the kernel's.
    fn tells(&mut self) -> Told {
        if self.become_own().is_err() {
            return Told::Kernels;
        }
        for _ in 0..RINGS {
            if let Some(waiter) = &self.waiter {
                waiter.silence();
            }
            if self.arm() {
                return Told::Ours;
            }
            let mut all = [pollfd { fd: -1, events: libc::POLLIN, revents: 0 }; 1 + BELLS_MAX];
            let bells = self.waiter.iter().flat_map(Waiter::bells);
            for (entry, fd) in all.iter_mut().zip(core::iter::once(self.fd).chain(bells)) {
                entry.fd = fd;
            }
            let looked = sys::ppoll(&mut all, Some(Duration::ZERO), Manner::OWN, None);
            match looked {
                Ok(_) if all[0].revents == 0 => return Told::Nothing,
                // One has rung meanwhile, perhaps in vain again.
                Ok(_) if all[1..].iter().any(|bell| bell.revents != 0) => {}
                // Who cannot look says yes.
                _ => return Told::Kernels,
            }
        }
        Told::Kernels
    }

    /// What is wanted has changed: who sleeps at the set hears of what is ready by now, and of news from an arena that is new to it.
    fn tell_sleepers(&mut self) {
        if self.is_watched || self.listeners.is_any_asleep() {
            self.arm();
        }
    }

    fn ring(&self) {
        if let Some(waiter) = &self.waiter {
            waiter.ring();
        }
    }
}

/// Takes what the kernel says of the bell, and of the daemon, out of its events; how many are left.
fn without_ours(events: &mut [epoll_event]) -> usize {
    keep(events, |event| match event.u64 {
        BELL => false,
        DEATH => {
            session::look_for_death();
            false
        }
        _ => true,
    })
}

/// Moves the events that are to stay to the front; how many they are.
fn keep(events: &mut [epoll_event], mut stays: impl FnMut(&epoll_event) -> bool) -> usize {
    let mut kept = 0;
    for at in 0..events.len() {
        let event = events[at];
        if stays(&event) {
            events[kept] = event;
            kept += 1;
        }
    }
    kept
}
