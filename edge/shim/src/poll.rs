//! `poll` over sockets of ours and the kernel's descriptors in one list.
//!
//! Ours are looked at; the rest is asked of the kernel. When nothing is ready, the thread marks its sockets with a waiter
//! and sleeps in the kernel's `ppoll`, with the waiter's doorbells behind the list instead of ours; in short slices if it has no waiter,
//! or is not told of everything. A call for a single
//! stream, as a thread of its own makes it that wants to wait for a limited time, sleeps on the stream's words as a read does.

use core::ffi::{c_int, c_short};
use core::time::Duration;

use firelane_shm::{SLICE, Woken};
use libc::pollfd;
use rustix::io::Errno;

use crate::accept_queue::Watching;
use crate::awaited::Awaited;
use crate::handlers::Seen;
use crate::holds::Hold;
use crate::memory::Pages;
use crate::socket::{self, Kind};
use crate::stream::Stream;
use crate::sys::{self, Limit, Manner};
use crate::table::{self, Word};
use crate::wait::Deadline;
use crate::waiter::{self, BELLS_MAX, Slices, Waiter};
use crate::{cancelling, confining, elsewhere, epoll, ready, session};

const WRITABLE: c_short = libc::POLLOUT | libc::POLLWRNORM | libc::POLLWRBAND;
/// Lists up to this length are copied to the stack.
const SHORT: usize = 64 + BELLS_MAX;

/// The word of a descriptor that the kernel alone cannot answer for.
fn ours(entry: &pollfd) -> Option<Word> {
    table::get(entry.fd).filter(|&word| socket::kind(word) != Kind::Private)
}

/// Whether one of the descriptors is ours.
pub(crate) fn concerns(fds: &[pollfd]) -> bool {
    fds.iter().any(|entry| ours(entry).is_some())
}

/// Waits for the first of them.
pub(crate) fn wait(fds: &mut [pollfd], limit: Limit, manner: Manner<'_>) -> Result<c_int, Errno> {
    wait_since(Seen::now(), fds, limit, manner)
}

/// The same in a call that began when so many handlers had run.
pub(crate) fn wait_since(
    seen: Seen,
    fds: &mut [pollfd],
    limit: Limit,
    manner: Manner<'_>,
) -> Result<c_int, Errno> {
    let blank = pollfd { fd: -1, events: 0, revents: 0 };
    // The program's, and as many as there may be bells.
    let len = fds.len() + BELLS_MAX;
    if len <= SHORT {
        wait_with(fds, &mut [blank; SHORT][..len], (limit, seen), manner)
    } else {
        let mut pages = Pages::new(len)?;
        wait_with(fds, &mut pages, (limit, seen), manner)
    }
}

/// `list` is the kernel's copy of `fds`, with room for the bells.
fn wait_with(
    fds: &mut [pollfd],
    list: &mut [pollfd],
    (limit, seen): (Limit, Seen),
    manner: Manner<'_>,
) -> Result<c_int, Errno> {
    for (copy, entry) in list.iter_mut().zip(fds.iter()) {
        elsewhere::look(entry.fd);
        *copy = for_kernel(entry);
    }
    let now = Some(Duration::ZERO);
    if look(fds) > 0 || limit == now {
        sys::ppoll(&mut list[..fds.len()], now, manner, None)?;
        return Ok(merge(fds, list));
    }
    let deadline = Deadline::of(limit);
    if manner.mask.is_none() && !confining::is_confined() {
        // (Who is confined sleeps by the call that he has made.)
        if let Some(answer) = wait_alone(fds, deadline, seen) {
            return answer;
        }
        // Another thread may have put something else under its number.
        list.iter_mut().zip(fds.iter()).for_each(|(copy, entry)| *copy = for_kernel(entry));
    }
    let mut waiter = told(Waiter::for_call())?;
    let mut watching = Watching::none();
    fds.iter()
        .filter_map(|entry| Some((entry.fd, ours(entry)?)))
        .for_each(|(fd, word)| watching.add(fd, word, waiter.as_ref()));
    let answer = watch(fds, waiter.as_mut()).and_then(|is_told| {
        let slices = Slices::new(!is_told);
        sleep(fds, list, (deadline, seen), manner, (waiter.as_ref(), slices))
    });
    if let Some(waiter) = &waiter {
        fds.iter().filter_map(ours).for_each(|word| waiter.unwatch(word));
    }
    answer
}

/// Waits for the only descriptor of the list, if it is a stream; `None` if it is not, or becomes something else.
fn wait_alone(fds: &mut [pollfd], deadline: Option<Deadline>, seen: Seen) -> Option<Result<c_int, Errno>> {
    let mut asked = fds.iter_mut().filter(|entry| entry.fd >= 0);
    let (Some(_), None) = (asked.next(), asked.next()) else { return None };
    // Those that are left out say nothing, as in Linux.
    fds.iter_mut().filter(|entry| entry.fd < 0).for_each(|entry| entry.revents = 0);
    let entry = fds.iter_mut().find(|entry| entry.fd >= 0)?;
    // Words of a daemon that is gone wake nobody, or at once.
    let is_same = |word: &Word| socket::kind(*word) == Kind::Stream && !socket::is_dead(*word);
    let mut held: Option<(Word, Option<Hold>)> = None;
    loop {
        let word = ours(entry).filter(is_same)?;
        let awaited = Awaited::Events(ready::wanted(word, wanted(entry.events)));
        entry.revents = (ready::of(entry.fd, word) & wanted(entry.events)) as c_short;
        let left = deadline.map_or(SLICE, Deadline::left);
        if entry.revents != 0 || left.is_zero() {
            return Some(Ok(c_int::from(entry.revents != 0)));
        }
        let stream = Stream::new(entry.fd, socket::arena(word), socket::number(word))?;
        if held.as_ref().is_none_or(|(of, _)| *of != word) {
            // Of the words in which it is counted it lets go first.
            drop(held.take());
            held = Some((word, stream.hold().ok()?));
        }
        match cancelling::sleeping(Woken::Interrupted, || stream.sleep(awaited, left, seen)) {
            Woken::Interrupted => return Some(Err(Errno::INTR)),
            Woken::TimeOut => _ = session::look_for_death(),
            Woken::Ready => {}
        }
    }
}

/// `None` instead of what there was no room for.
fn told<T>(answer: Result<T, Errno>) -> Result<Option<T>, Errno> {
    match answer {
        Ok(it) => Ok(Some(it)),
        Err(errno) if waiter::is_lack(errno) => Ok(None),
        Err(errno) => Err(errno),
    }
}

/// News of each stream come to `waiter`; an epoll set is told that somebody waits for it. Whether he will be told of all.
fn watch(fds: &[pollfd], mut waiter: Option<&mut Waiter>) -> Result<bool, Errno> {
    let mut all = fds.iter().filter_map(|entry| Some((entry.fd, ours(entry)?)));
    all.try_fold(true, |is_told, (fd, word)| {
        if socket::kind(word) == Kind::Epoll {
            epoll::arm(word);
        }
        let Some(waiter) = waiter.as_mut() else { return Ok(false) };
        Ok(told(waiter.watch(fd, word))?.is_some() && is_told)
    })
}

/// Sleeps until something is ready, or a handler has run since the call began. The bells are behind the others in `list`.
fn sleep(
    fds: &mut [pollfd],
    list: &mut [pollfd],
    (deadline, seen): (Option<Deadline>, Seen),
    manner: Manner<'_>,
    (waiter, mut slices): (Option<&Waiter>, Slices),
) -> Result<c_int, Errno> {
    loop {
        waiter.iter().for_each(|waiter| {
            waiter.forget_news();
            waiter.fall_asleep();
        });
        let left = if look(fds) > 0 { Some(Duration::ZERO) } else { deadline.map(Deadline::left) };
        // A look may have brought another segment, with a bell of its own.
        let behind = &mut list[fds.len()..];
        for (entry, fd) in
            behind.iter_mut().zip(waiter.iter().flat_map(|it| it.bells()).chain(core::iter::repeat(-1)))
        {
            *entry = pollfd { fd, events: libc::POLLIN, revents: 0 };
        }
        let bells = behind.iter().take_while(|bell| bell.fd >= 0).count();
        // What was found is told, whatever has run.
        let seen = (left != Some(Duration::ZERO)).then_some(seen);
        let all = &mut list[..fds.len() + bells];
        let slice = slices.limit(left);
        cancelling::sleeping(Err(Errno::INTR), || match sys::ppoll(all, slice, manner, seen) {
            Err(Errno::INVAL) => ask_shortened(fds, all, slice, manner, seen),
            told => told,
        })?;
        waiter::silence_rung(&list[fds.len()..][..bells]);
        // Behind ours only the daemon's death is seen there.
        if list.iter().zip(fds.iter()).any(|(copy, entry)| copy.revents != 0 && ours(entry).is_some()) {
            session::look_for_death();
        }
        if renew(list, fds) {
            sys::ppoll(&mut list[..fds.len()], Some(Duration::ZERO), manner, None)?;
        }
        look(fds);
        let count = merge(fds, list);
        if count > 0 || left.is_some_and(|left| left.is_zero()) {
            return Ok(count);
        }
    }
}

/// The same for a list that is as long as there may be descriptors, which the bells make too long for the kernel: entries that say nothing
/// there are left out, and the daemon's death shows at the control connection. What has no place all the same is looked at in slices: of a
/// program that allows itself a single descriptor, as sshd's child does that speaks with strangers, one bell is asked.
#[cold]
fn ask_shortened(
    fds: &[pollfd],
    list: &mut [pollfd],
    limit: Limit,
    manner: Manner<'_>,
    seen: Option<Seen>,
) -> Result<usize, Errno> {
    let blank = pollfd { fd: -1, events: 0, revents: 0 };
    let (mut few, mut many);
    let short = if fds.len() <= SHORT {
        few = [blank; SHORT];
        &mut few[..fds.len()]
    } else {
        many = Pages::new(fds.len())?;
        many.fill(blank);
        &mut many[..]
    };
    // The program's own list may be too long as well. (Who is confined may not ask for the limit.)
    sys::ppoll(short, Some(Duration::ZERO), manner, None)?;
    for (copy, entry) in list.iter_mut().zip(fds) {
        if copy.events == 0 && ours(entry).is_some() {
            (copy.fd, copy.revents) = (-1, 0);
        }
    }
    let asked = list.iter().filter(|copy| copy.fd >= 0).count();
    short.iter_mut().zip(list.iter().filter(|copy| copy.fd >= 0)).for_each(|(place, copy)| *place = *copy);
    let control = pollfd { fd: session::control().unwrap_or(-1), events: libc::POLLRDHUP, revents: 0 };
    let told = match short.get_mut(asked) {
        Some(place) => {
            *place = control;
            sys::ppoll(short, limit, manner, seen)?
        }
        None => {
            let most = if asked > short.len() { Slices::LONGEST } else { SLICE };
            let told = sys::ppoll(short, Some(limit.map_or(most, |limit| limit.min(most))), manner, seen)?;
            if told == 0 {
                short[0] = control;
                sys::ppoll(&mut short[..1], Some(Duration::ZERO), manner, None)?;
                hear_of_death(&mut short[0]);
            }
            told
        }
    };
    if let Some(control) = short.get_mut(asked) {
        hear_of_death(control);
    }
    let silent = core::iter::repeat(&blank);
    let asked = list.iter_mut().filter(|copy| copy.fd >= 0);
    asked.zip(short.iter().chain(silent)).for_each(|(copy, told)| copy.revents = told.revents);
    Ok(told)
}

/// The control connection may say that the daemon is gone, and says nothing to the program.
fn hear_of_death(control: &mut pollfd) {
    if core::mem::take(&mut control.revents) != 0 {
        session::look_for_death();
    }
}

/// What the kernel is asked of a descriptor. Of ours it is told by a hang-up alone, when the daemon dies.
fn for_kernel(entry: &pollfd) -> pollfd {
    let (fd, events) = match ours(entry).map(socket::kind) {
        // It is never writable, whatever is behind it.
        Some(Kind::Listener) => (entry.fd, entry.events & !WRITABLE),
        // It hangs up for good, and what there is to tell of that is found by looking.
        Some(Kind::Fresh | Kind::Stream) if ours(entry).is_some_and(socket::is_dead) => (-1, 0),
        Some(Kind::Fresh | Kind::Stream) => (entry.fd, 0),
        // Its hang-up has been told.
        Some(Kind::Ended) => (-1, 0),
        _ => (entry.fd, entry.events),
    };
    pollfd { fd, events, revents: 0 }
}

/// Another thread may have put something else under a number, of which the kernel was not asked what it is asked now. Whether one has.
fn renew(list: &mut [pollfd], fds: &[pollfd]) -> bool {
    let mut has_new = false;
    for (copy, entry) in list.iter_mut().zip(fds) {
        let asked = for_kernel(entry);
        // What is left out because it would say nothing stays so, and what says nothing any more goes.
        if copy.events != asked.events || (asked.events != 0 || asked.fd < 0) && copy.fd != asked.fd {
            (*copy, has_new) = (asked, true);
        }
    }
    has_new
}

/// Looks at ours; how many are ready.
fn look(fds: &mut [pollfd]) -> usize {
    let mut count = 0;
    for entry in fds {
        let Some(word) = ours(entry) else { continue };
        entry.revents = (ready::of(entry.fd, word) & wanted(entry.events)) as c_short;
        count += usize::from(entry.revents != 0);
    }
    count
}

/// Errors and hang-ups come unasked.
fn wanted(events: c_short) -> u32 {
    events as u16 as u32 | (libc::POLLERR | libc::POLLHUP) as u32
}

/// What the kernel says of an epoll set's descriptor, unless its bell has rung in vain.
fn worth_telling(fd: c_int, revents: c_short) -> c_short {
    let has_something = || table::get(fd).is_none_or(epoll::has_something);
    if revents != 0 && has_something() { revents } else { 0 }
}

/// Puts what the kernel found beside what was found by looking.
fn merge(fds: &mut [pollfd], list: &[pollfd]) -> c_int {
    let mut count = 0;
    for (entry, copy) in fds.iter_mut().zip(list) {
        match ours(entry).map(socket::kind) {
            // The descriptor behind it says that it is not open, and nothing else.
            Some(Kind::Fresh | Kind::Stream) => entry.revents |= copy.revents & libc::POLLNVAL,
            // What is in its accept queue was found by looking.
            Some(Kind::Listener) => entry.revents |= copy.revents,
            Some(Kind::Epoll) => entry.revents |= worth_telling(entry.fd, copy.revents),
            _ => entry.revents = copy.revents,
        }
        count += c_int::from(entry.revents != 0);
    }
    count
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_another_thread_has_put_under_a_number_is_asked_of_the_kernel() {
        // The table is one for the process, so each test has numbers of its own.
        let (fd, other) = (900_301, 900_302);
        let stream = socket::stream_word(false, 1, 7);
        let fds = [fd, other].map(|fd| pollfd { fd, events: libc::POLLIN, revents: 0 });
        [fd, other].into_iter().for_each(|fd| table::put(fd, stream));
        let mut list = fds.map(|entry| for_kernel(&entry));
        assert!(!renew(&mut list, &fds), "nothing has changed");
        // As it is where the list would be too long.
        (list[0].fd, list[1].fd) = (-1, -1);
        assert!(!renew(&mut list, &fds), "there is nothing to ask");
        table::take(fd);
        assert!(renew(&mut list, &fds) && !renew(&mut list, &fds));
        assert_eq!(list.map(|copy| (copy.fd, copy.events)), [(fd, libc::POLLIN), (-1, 0)]);
        table::put(fd, stream);
        assert!(renew(&mut list, &fds), "of a socket the kernel would say what is behind it");
        assert_eq!(list.map(|copy| copy.events), [0, 0]);
        let _ = [fd, other].map(table::take);
    }
}
