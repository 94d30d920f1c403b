//! What a program has done to sockets of which the daemon was asked nothing yet: the options that it has set, and whether it has bound
//! them to any address and any port. Options wait here, and go with the offer by which the socket connects (`connecting.rs`), so that
//! setting them asks nobody. Who is bound to no address and no port gets both when he connects, as who is not bound.
//!
//! Which options may wait is agreed with the daemon ([`firelane_shm::UntoldOption`]): nothing refuses those. They wait only as long as
//! nobody else can see the socket, and nobody asks for the port. Whoever asks the daemon about it tells what waits before (`session.rs`), and so does who makes copies
//! that this library does not count, or becomes another program (`kept.rs`, `hooks/spawning.rs`), or forbids himself calls
//! (`confining.rs`). Called by `options.rs`, `socket.rs` and `names.rs` beside those.
//!
//! Of several threads that want what waits of a socket one gets it: who takes out is who has claimed the socket (`kept.rs`), and behind a
//! claim nothing is kept. Who keeps something counts it before he looks for a claim, and who has claimed looks at the count then, so that one
//! sees the other.
//!
//! Signals are held back while anything here is looked at, for calls that use it may come in a handler.

use core::ffi::c_int;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use core::sync::atomic::{AtomicU8, AtomicU32, Ordering, fence};

use firelane_shm::layout::request;
use firelane_shm::{UNTOLD_MAX, UntoldOption};
use libc::{IPPROTO_IP, IPPROTO_TCP, SOL_SOCKET};

use rustix::io::Errno;

use crate::lock::Lock;
use crate::socket::{self, Held, Kind};
use crate::table::DESCRIPTORS;
use crate::{confining, kept, process, session};

/// Of so many sockets at a time options wait: between the first of them and `connect` there is little time. Those of others are told.
const MOST: usize = 64;

/// What waits of one socket, in the order in which it was set.
#[derive(Clone, Copy)]
pub(crate) struct Untold {
    /// The program's descriptor; none has this place if it is less than zero.
    fd: c_int,
    /// It was bound to any address and any port.
    is_bound: bool,
    options: [Option<UntoldOption>; UNTOLD_MAX],
}

static PLACES: Lock<[Untold; MOST]> = Lock::new([Untold::NONE; MOST]);
/// For each descriptor one more than its place. Zero is none.
static AT: [AtomicU8; DESCRIPTORS] = [const { AtomicU8::new(0) }; DESCRIPTORS];
const _: () = assert!(MOST < u8::MAX as usize);
/// How many places are taken, or about to be.
static COUNT: AtomicU32 = AtomicU32::new(0);

impl Untold {
    const NONE: Self = Self { fd: -1, is_bound: false, options: [None; UNTOLD_MAX] };

    /// All of them.
    pub(crate) fn options(&self) -> impl Iterator<Item = UntoldOption> {
        self.options.into_iter().map_while(|option| option)
    }

    /// Those that a stream has in its own words, as its words have them.
    pub(crate) fn bits(&self) -> u64 {
        let bit = |option: UntoldOption| match (option.level(), option.name()) {
            _ if option.value() == 0 => 0,
            (IPPROTO_TCP, libc::TCP_NODELAY) => request::NODELAY,
            (IPPROTO_TCP, libc::TCP_CORK) => request::CORK,
            (IPPROTO_TCP, libc::TCP_QUICKACK) => request::QUICKACK,
            _ => 0,
        };
        self.options().fold(0, |bits, option| bits | bit(option))
    }

    /// One more, or another value of one that is there. Whether there was room, and it says the same behind `bind`.
    fn put(&mut self, option: UntoldOption) -> bool {
        let is_about_ports = matches!(
            (option.level(), option.name()),
            (SOL_SOCKET, libc::SO_REUSEADDR | libc::SO_REUSEPORT)
                | (IPPROTO_IP, libc::IP_BIND_ADDRESS_NO_PORT)
        );
        if self.is_bound && is_about_ports {
            return false;
        }
        let is_its = |place: &&mut Option<UntoldOption>| place.is_none_or(|it| it.is_named_as(option));
        self.options.iter_mut().find(is_its).map(|place| *place = Some(option)).is_some()
    }
}

fn at(fd: c_int) -> Option<&'static AtomicU8> {
    AT.get(fd as u32 as usize)
}

/// Whether anything of `fd` waits, for who looks without waiting for others. Who finds nothing, because it was taken out, finds the claim
/// behind that.
#[inline]
fn is_there(fd: c_int) -> bool {
    COUNT.load(Ordering::Acquire) != 0 && at(fd).is_some_and(|place| place.load(Ordering::Acquire) != 0)
}

/// Keeps an option that was set. Whether it may wait: if not, the daemon is to be asked.
pub(crate) fn keep(socket: &Held, option: UntoldOption) -> bool {
    keep_by(socket, |untold| untold.put(option))
}

/// The same of `bind` to any address and any port. Who is bound already is told that he is.
pub(crate) fn keep_bound(socket: &Held) -> bool {
    keep_by(socket, |untold| !core::mem::replace(&mut untold.is_bound, true))
}

/// Whether it is bound so, and the daemon does not know.
pub(crate) fn is_bound(fd: c_int) -> bool {
    is_there(fd) && PLACES.take().iter().any(|it| it.fd == fd && it.is_bound)
}

/// Changes what waits of a socket, if anything may.
fn keep_by(socket: &Held, change: impl FnOnce(&mut Untold) -> bool) -> bool {
    let may_wait = socket.kind() == Kind::Fresh
        && !socket.is_datagram()
        && !socket::is_shared(socket.word)
        && !process::is_borrowed()
        && !socket::is_dead(socket.word)
        && kept::is_unasked(socket.fd);
    let Some(place) = at(socket.fd).filter(|_| may_wait) else { return false };
    let mut places = PLACES.take();
    // Before the looks: who claims, or tells all, has said so before he looks at the count, so he is seen here, or waits for what is kept.
    COUNT.fetch_add(1, Ordering::SeqCst);
    fence(Ordering::SeqCst);
    let known = usize::from(place.load(Ordering::Relaxed)).checked_sub(1);
    let there = known
        .or_else(|| places.iter().position(|it| it.fd < 0))
        .filter(|_| !confining::is_confined() && kept::is_unasked(socket.fd));
    if known.is_some() || there.is_none() {
        COUNT.fetch_sub(1, Ordering::SeqCst);
    }
    let Some(there) = there else { return false };
    places[there].fd = socket.fd;
    place.store(there as u8 + 1, Ordering::SeqCst);
    change(&mut places[there])
}

/// Whether an option is on that is on or off and nothing else, of a socket of which the daemon was asked nothing: a new one has all of them
/// off.
pub(crate) fn flag(socket: &Held, level: c_int, name: c_int) -> Option<bool> {
    let is_flag = matches!(
        (level, name),
        (
            SOL_SOCKET,
            libc::SO_REUSEADDR
                | libc::SO_REUSEPORT
                | libc::SO_BROADCAST
                | libc::SO_KEEPALIVE
                | libc::SO_OOBINLINE
        ) | (IPPROTO_TCP, libc::TCP_NODELAY | libc::TCP_CORK)
            | (IPPROTO_IP, libc::IP_BIND_ADDRESS_NO_PORT)
    );
    let is_new = is_flag && socket.kind() == Kind::Fresh && !socket.is_datagram();
    // In this order: what is not there because it was taken out is asked for.
    let is_there = is_there(socket.fd);
    if !is_new || process::is_borrowed() || !kept::is_unasked(socket.fd) {
        return None;
    }
    if !is_there {
        return Some(false);
    }
    let places = PLACES.take();
    let untold = places.iter().find(|it| it.fd == socket.fd)?;
    let option = untold.options().find(|it| (it.level(), it.name()) == (level, name));
    Some(option.is_some_and(|option| option.value() != 0))
}

/// Takes out what waits, for who has claimed the socket.
pub(crate) fn take(fd: c_int) -> Option<Untold> {
    if COUNT.load(Ordering::SeqCst) == 0 {
        return None;
    }
    let mut places = PLACES.take();
    let there = usize::from(at(fd)?.swap(0, Ordering::SeqCst)).checked_sub(1)?;
    let untold = core::mem::replace(&mut places[there], Untold::NONE);
    // Last: a child that is forked meanwhile finds that something is to be cleared.
    COUNT.fetch_sub(1, Ordering::SeqCst);
    Some(untold)
}

/// The socket is about to be closed, and is no kept one any more.
pub(crate) fn forget(fd: c_int) {
    let _ = take(fd);
}

/// A forked child has none of its parent's: those were told before.
pub(crate) fn forget_all() {
    if COUNT.load(Ordering::Relaxed) != 0 {
        let mut places = PLACES.take();
        *places = [Untold::NONE; MOST];
        AT.iter().for_each(|place| place.store(0, Ordering::Relaxed));
        COUNT.store(0, Ordering::Relaxed);
    }
}

/// The daemon is about to be asked about the socket: it is told before what waits. Nothing refuses that, and whether the daemon is gone the
/// question shows.
pub(crate) fn tell(fd: c_int) {
    tell_by(fd, session::post_option);
}

/// The same before others ask about it, who are answered by and by: the daemon has heard of it when this returns.
pub(crate) fn tell_and_wait(fd: c_int) {
    tell_by(fd, session::set_option);
}

fn tell_by(fd: c_int, set: impl Fn(&Held, c_int, c_int, &[u8]) -> Result<(), Errno>) {
    // Where another has claimed it, what waits is his to tell.
    if !kept::claim(fd) {
        return;
    }
    if let Some(untold) = take(fd)
        && let Some(socket) = socket::at(fd)
    {
        tell_it(&socket, &untold, set);
    }
}

/// What was taken out for an offer, of which there was none, is told after all.
pub(crate) fn tell_taken(socket: &Held, untold: &Untold) {
    tell_it(socket, untold, session::post_option);
}

fn tell_it(socket: &Held, untold: &Untold, set: impl Fn(&Held, c_int, c_int, &[u8]) -> Result<(), Errno>) {
    for option in untold.options() {
        let _ = set(socket, option.level(), option.name(), &option.value().to_ne_bytes());
    }
    if untold.is_bound {
        // As `bind` does that asks.
        kept::forget(socket.fd);
        let any =
            if socket.is_v6() { Ipv6Addr::UNSPECIFIED.into() } else { IpAddr::from(Ipv4Addr::UNSPECIFIED) };
        // Where all ports are taken it has none, as who has not bound it.
        let _ = session::bind(socket, SocketAddr::new(any, 0));
    }
}

/// Others are about to see this process' sockets, or it cannot tell later.
pub(crate) fn tell_all() {
    if COUNT.load(Ordering::SeqCst) != 0 && !process::is_borrowed() {
        tell_each();
    }
}

/// Apart, for programs become others in handlers, too, and on stacks that have no room for what this needs.
#[cold]
#[inline(never)]
fn tell_each() {
    let places = PLACES.take();
    let all: [c_int; MOST] = core::array::from_fn(|nth| places[nth].fd);
    drop(places);
    all.into_iter().filter(|&fd| fd >= 0).for_each(tell_and_wait);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::socket::{datagram_word, fresh_word, shared, stream_word};

    fn option(level: c_int, name: c_int, value: c_int) -> UntoldOption {
        UntoldOption::new(level, name, value).unwrap()
    }

    // The arrays are one for the process, so each test has numbers of its own.

    #[test]
    fn the_last_value_of_each_waits_in_the_order_in_which_they_were_set() {
        let mut untold = Untold { fd: 7, ..Untold::NONE };
        let [nodelay, cork, keepalive] = [(6, 1), (6, 3), (1, 9)].map(|(level, name)| option(level, name, 1));
        assert!([nodelay, keepalive, cork, option(6, 3, 0)].into_iter().all(|it| untold.put(it)));
        assert!(untold.options().eq([nodelay, keepalive, option(6, 3, 0)]));
        assert_eq!(untold.bits(), request::NODELAY);
        let names = [(1, 2), (1, 6), (1, 7), (1, 8), (1, 10), (1, 15), (6, 4), (6, 5), (6, 6), (6, 7)];
        assert!(names.into_iter().all(|(level, name)| untold.put(option(level, name, 1))));
        assert!(
            [(6, 8), (6, 12), (6, 18)].into_iter().all(|(level, name)| untold.put(option(level, name, 1)))
        );
        assert!(!untold.put(option(0, 1, 1)), "there is no room");
        assert!(untold.put(option(6, 1, 0)), "but for what is there");
        assert_eq!(untold.bits(), request::QUICKACK);
        untold.is_bound = true;
        assert!(
            untold.put(keepalive)
                && ![(1, 2), (1, 15), (0, 24)].iter().any(|it| untold.put(option(it.0, it.1, 1)))
        );
    }

    #[test]
    fn nothing_waits_of_what_the_daemon_was_asked_about_or_others_may_have() {
        let nodelay = option(6, 1, 1);
        let fresh = fresh_word(false);
        for (nth, word) in [fresh, shared(fresh), datagram_word(false, false), stream_word(false, 1, 2)]
            .into_iter()
            .enumerate()
        {
            let socket = Held { fd: 900_301 + nth as c_int, word };
            assert!(!keep(&socket, nodelay), "{word:?}: nobody knows that it is new");
            assert_eq!(flag(&socket, 6, 1), None);
            assert!(take(socket.fd).is_none());
        }
        let none = Held { fd: -1, word: fresh };
        assert!(!keep(&none, nodelay) && !keep_bound(&none));
    }

    #[test]
    fn what_waits_is_taken_once_and_shown_until_then() {
        let socket = Held { fd: 900_310, word: fresh_word(true) };
        let known = kept::pretend_new(socket.fd);
        assert_eq!([flag(&socket, 6, 1), flag(&socket, 6, 13)], [Some(false), None]);
        assert!(keep(&socket, option(6, 1, 5)) && keep(&socket, option(1, 7, 9)));
        assert_eq!([flag(&socket, 6, 1), flag(&socket, 1, 9)], [Some(true), Some(false)]);
        assert!(keep(&socket, option(6, 1, 0)));
        assert_eq!(flag(&socket, 6, 1), Some(false));
        let untold = take(socket.fd).unwrap();
        assert!(untold.options().eq([option(6, 1, 0), option(1, 7, 9)]));
        assert!(take(socket.fd).is_none());
        assert!(!is_bound(socket.fd) && keep_bound(&socket) && is_bound(socket.fd));
        assert!(!keep_bound(&socket), "it is bound");
        assert!(keep(&socket, option(1, 9, 1)) && !keep(&socket, option(1, 2, 1)));
        forget(socket.fd);
        assert!(take(socket.fd).is_none());
        assert_eq!(COUNT.load(Ordering::SeqCst), 0);
        drop(known);
        assert!(!keep(&socket, option(1, 9, 1)) && flag(&socket, 1, 9).is_none());
    }

    #[test]
    fn what_waits_is_left_to_who_has_claimed_the_socket() {
        let socket = Held { fd: 900_311, word: fresh_word(false) };
        let _known = kept::pretend_new(socket.fd);
        assert!(keep(&socket, option(6, 1, 1)));
        assert!(kept::unasked(socket.fd).is_some() && !keep(&socket, option(1, 9, 1)));
        tell(socket.fd);
        tell_and_wait(socket.fd);
        assert!(take(socket.fd).is_some_and(|untold| untold.options().eq([option(6, 1, 1)])));
    }

    /// One thread keeps an option while two would connect.
    #[test]
    fn one_thread_gets_what_waits_and_nothing_is_kept_behind_that() {
        const ROUNDS: usize = 10_000;
        let socket = Held { fd: 900_312, word: fresh_word(false) };
        let barrier = std::sync::Barrier::new(3);
        let connects = || {
            let mut won = Vec::new();
            for _ in 0..ROUNDS {
                barrier.wait();
                won.push(kept::unasked(socket.fd).map(|_| take(socket.fd).is_some()));
                barrier.wait();
            }
            won
        };
        std::thread::scope(|scope| {
            let threads = [(); 2].map(|()| scope.spawn(connects));
            let mut kept = Vec::new();
            for _ in 0..ROUNDS {
                let _known = kept::pretend_new(socket.fd);
                barrier.wait();
                kept.push(keep(&socket, option(6, 1, 1)));
                barrier.wait();
                forget(socket.fd);
            }
            let [one, other] = threads.map(|it| it.join().unwrap());
            for (nth, kept) in kept.into_iter().enumerate() {
                let won = [one[nth], other[nth]];
                assert!(won == [Some(kept), None] || won == [None, Some(kept)], "{nth}: {kept}, {won:?}");
            }
        });
    }
}
