//! This process and its daemon: one connection, made at the first socket, with one request at a time.
//!
//! Whatever is rare goes over it; reading, writing and waiting do not. A forked child makes its own at its first call
//! that needs one, through its parent's, because it may be nobody who could ask for one by now, and closes what it has
//! of its parent's. The descriptors of this library lie at the upper end of the
//! program's range and are hidden from `close` and its kin.

use core::ffi::c_int;
use core::net::SocketAddr;
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64, Ordering};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, IntoRawFd, OwnedFd};

use firelane_shm::control::{
    Answer, FILTER_MAX, Family, Interface, Kind, MESSAGE_MAX, OPTION_MAX, Place, Request, SAME_BACKLOG,
    SocketId, UNANSWERED, closed,
};
use firelane_shm::layout::{LANES_MAX, VERSION};
use firelane_shm::{Fault, Spin, StreamEnd, carry};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::{Errno, fcntl_dupfd_cloexec};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, socketpair};
use rustix::process::{Resource, getrlimit};

use crate::arenas::What;
use crate::lock::{Guard, Lock};
use crate::pool::{Mode, Spare};
use crate::socket::Held;
use crate::standard_error::say_once;
use crate::table::Word;
use crate::wanted::{Wanted, wanted};
use crate::{
    arenas, confining, epoll, holds, kept, pool, process, room, socket, sys, table, thread, untold, wait,
};

mod arrivals;
mod forks;
mod successors;
mod whose;

pub(crate) use arrivals::{begin_to_take, descriptor_ahead, has_number, has_taken, take_arrival};
use forks::watches_forks;
pub(crate) use successors::{begin_again, era};
pub(crate) use whose::{is_forbidden, is_of_a_daemon, is_of_daemon, is_of_sessions_daemon, sees_daemon};

/// How far below the upper end of the range of descriptors ours begin: one per lane, sockets made ahead, and some more.
const OWN_RANGE: u64 = LANES_MAX as u64 + pool::RANGE + 72;
/// A program with a smaller range has no sockets made ahead: it may need every number.
const ROOMY_RANGE: u64 = 1024;

/// How often to look for an answer before sleeping: each look is a system call.
const LOOKS: u32 = 256;

/// The connection to the daemon.
struct Session {
    control: c_int,
    number: u32,
    requests: u32,
    spin: Spin,
    /// Sockets were asked for ahead: by which request, and whether of IPv6.
    ahead: Option<(u32, bool)>,
}

/// Whether sockets made ahead are on their way.
static AHEAD: AtomicBool = AtomicBool::new(false);

static SESSION: Lock<Option<Session>> = Lock::new(None);

/// The session's number, for owner words.
static NUMBER: AtomicU32 = AtomicU32::new(0);
/// The control descriptor, for who watches whether the daemon lives.
static CONTROL: AtomicI32 = AtomicI32::new(-1);
/// Bells by which sleeping lanes are woken. A child has its parent's, which ring the same lanes.
static BELLS: [AtomicI32; LANES_MAX as usize] = [const { AtomicI32::new(-1) }; LANES_MAX as usize];
/// The arenas, by their places here, whose sockets the daemon knows this session to hold, a bit each.
static ATTACHED: AtomicU64 = AtomicU64::new(0);
/// The arena of this session, by its place here.
static OWN: AtomicU32 = AtomicU32::new(0);
/// In which second this process was last refused a session. What it has of its parent it uses without one, and does not ask for each call.
static REFUSED_AT: AtomicU64 = AtomicU64::new(0);

/// Whether this program is to be on a netstack.
#[inline]
pub(crate) fn is_wanted() -> bool {
    wanted().is_some()
}

/// Whether the daemon is known to be gone, and with it every socket of this process.
#[inline]
pub(crate) fn is_dead() -> bool {
    arenas::are_dead()
}

/// Looks whether the daemon is gone.
pub(crate) fn look_for_death() -> bool {
    let known = arenas::known();
    let control = CONTROL.load(Ordering::Relaxed);
    if control >= 0 && process::has_session() && !confining::is_strict() {
        let fd = sys::borrow(control);
        let mut entry = [PollFd::new(&fd, PollFlags::empty())];
        let looked = poll(&mut entry, Some(&rustix::event::Timespec::default()));
        if looked.is_ok() && entry[0].revents().contains(PollFlags::HUP) {
            arenas::die(known);
        }
    }
    is_dead()
}

/// The control descriptor, whose end is the daemon's.
pub(crate) fn control() -> Option<c_int> {
    let control = CONTROL.load(Ordering::Relaxed);
    (control >= 0 && process::has_session()).then_some(control)
}

/// The number of this process' session. A forked child begins its own here; without a daemon it has none.
#[inline]
pub(crate) fn number() -> u32 {
    if !process::has_session() && REFUSED_AT.load(Ordering::Relaxed) != second() {
        drop(begun());
    }
    NUMBER.load(Ordering::Relaxed)
}

/// The number of this process, which has its session from here on, as above.
pub(crate) fn own_process() -> u32 {
    number();
    process::number()
}

/// Which second of the clock it is; none is zero.
fn second() -> u64 {
    wait::coarsely().as_secs() + 1
}

/// The same of the session that it has; zero is none.
pub(crate) fn number_by_now() -> u32 {
    if process::has_session() { NUMBER.load(Ordering::Relaxed) } else { 0 }
}

/// This process is about to see other files, and would not find the daemon then: it comes in now. A child whose parent has come in need not.
/// Nor does one that borrows its parent's memory: it will be another program.
pub(crate) fn come_in() {
    if is_wanted() && CONTROL.load(Ordering::Relaxed) < 0 && !process::is_borrowed() {
        drop(begun());
    }
}

/// The same of one that is about to be somebody else, or to have less rights. Who is not root comes to the daemon later as well as now.
pub(crate) fn come_in_before_rights_change() {
    if CONTROL.load(Ordering::Relaxed) < 0 && rustix::process::geteuid().is_root() {
        come_in();
    }
}

/// Tells a stream's lane that there is work, and wakes it if it sleeps.
#[inline]
pub(crate) fn kick(end: &StreamEnd<'_>) {
    end.kick(sys::cpu(), ring);
}

/// The arena of this process' session, by its place here, if there is a session.
pub(crate) fn own_arena() -> Option<u16> {
    (process::has_session() && !is_dead()).then(|| OWN.load(Ordering::Relaxed) as u16)
}

/// Wakes a lane. Whether it has a bell that can be rung.
fn ring(lane: u32) -> bool {
    let bell = BELLS.get(lane as usize).map_or(-1, |bell| bell.load(Ordering::Relaxed));
    if bell < 0 {
        return false;
    }
    // An eventfd takes it unless its count is at its end, when the lane has been rung often enough.
    let rung = rustix::io::write(sys::borrow(bell), &1_u64.to_ne_bytes());
    thread::has_woken();
    !matches!(rung, Err(Errno::BADF))
}

/// Where the range of this library's own descriptors begins at present.
fn own_begin() -> c_int {
    let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX).min(table::DESCRIPTORS as u64);
    limit.saturating_sub(OWN_RANGE + kept::range()) as c_int
}

/// Moves a descriptor of ours to the upper end of the range, where the program does not look for any.
pub(crate) fn hide(fd: OwnedFd) -> Result<c_int, Errno> {
    hide_above(fd, own_begin(), socket::private())
}

/// The same for a copy that a call is left, which its children are not to have.
pub(crate) fn hide_left(fd: OwnedFd) -> Result<c_int, Errno> {
    hide_above(fd, own_begin(), socket::left())
}

fn hide_above(fd: OwnedFd, begin: c_int, word: Word) -> Result<c_int, Errno> {
    // A program that uses all of its range leaves us where we are.
    let high = fcntl_dupfd_cloexec(&fd, begin).unwrap_or(fd).into_raw_fd();
    table::put(high, word);
    Ok(high)
}

/// Closes a descriptor of ours.
pub(crate) fn close_hidden(fd: c_int) {
    table::take(fd);
    sys::close(fd);
}

/// The session of this process, held; made if there is none.
fn begun() -> Result<Guard<'static, Option<Session>>, Errno> {
    let wanted = wanted().ok_or(Errno::NETDOWN)?;
    process::watch()?;
    watches_forks();
    let mut session = SESSION.take();
    if !process::has_session() {
        let parents = session.take();
        let control = parents.as_ref().map(child_of);
        leave_parents(parents);
        if control.as_ref().is_some_and(|brought| brought.as_ref().is_err_and(is_end)) {
            // What this process has of its parent is that daemon's.
            successors::follow()?;
        }
        *session = Some(taken_up(begin(wanted, control.and_then(Result::ok)))?);
    }
    Ok(session)
}

/// From here on this process has that session, if it has begun.
fn taken_up(begun: Result<Session, Errno>) -> Result<Session, Errno> {
    match &begun {
        Ok(new) => {
            NUMBER.store(new.number, Ordering::Relaxed);
            CONTROL.store(new.control, Ordering::Relaxed);
            process::set_session();
            epoll::make_ready();
        }
        Err(_) => {
            NUMBER.store(0, Ordering::Relaxed);
            REFUSED_AT.store(second(), Ordering::Relaxed);
        }
    }
    begun
}

/// Brings a connection of its own in through the parent's.
fn child_of(parents: &Session) -> std::io::Result<OwnedFd> {
    let (control, theirs) =
        socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
    let message = Request::Child.encode(0);
    carry::send(sys::borrow(parents.control), &message, &[theirs.as_fd()], true)?;
    Ok(control)
}

/// Whether that failed because the daemon of the parent is gone, or the parent's session.
fn is_end(error: &std::io::Error) -> bool {
    matches!(error.kind(), std::io::ErrorKind::BrokenPipe | std::io::ErrorKind::ConnectionReset)
}

/// The daemon knows that this session has something in an arena.
fn note_arena(place: u16) {
    ATTACHED.fetch_or(1 << place, Ordering::Relaxed);
}

/// Whether it does.
#[inline]
pub(crate) fn is_attached(place: u16) -> bool {
    ATTACHED.load(Ordering::Relaxed) >> place & 1 != 0
}

/// This process is about to use a socket in an arena that it has of its parent: the daemon is shown it, for it buries who dies inside where
/// it knows his session to be. A confined process has done that before.
#[cold]
pub(crate) fn show(fd: c_int, place: u16) {
    let may_ask = process::has_session() && !is_dead() && !confining::is_confined();
    if may_ask && attach(fd).is_ok() {
        note_arena(place);
    }
}

/// A forked child must not answer for its parent.
fn leave_parents(parents: Option<Session>) {
    if let Some(parents) = parents {
        CONTROL.store(-1, Ordering::Relaxed);
        ATTACHED.store(0, Ordering::Relaxed);
        AHEAD.store(false, Ordering::Relaxed);
        close_hidden(parents.control);
        pool::forget();
        kept::forget_all();
        forks::close_own(socket::left());
        crate::waiter::forget_parents();
        crate::cancelling::forget_parents();
    }
}

/// A connection of its own, for a program that has no parent here.
fn connected(wanted: &Wanted) -> Result<OwnedFd, Errno> {
    let flags = SocketFlags::CLOEXEC;
    let control = rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
    let address = SocketAddrUnix::new(wanted.socket())?;
    rustix::net::connect(&control, &address).map_err(|error| match error {
        Errno::ACCESS => {
            say_once("this user may not come to the daemon: no netstack's programs.users or programs.groups names any");
            error
        }
        _ => Errno::NETDOWN,
    })?;
    whose::is_behind(control.as_fd())?;
    Ok(control)
}

fn begin(wanted: &Wanted, control: Option<OwnedFd>) -> Result<Session, Errno> {
    let Some(filter) = wanted.filter() else {
        say_once(&format!(
            "FIRELANE_FILTER is longer than {FILTER_MAX} bytes, or no text: its rules could not be kept"
        ));
        return Err(Errno::INVAL);
    };
    let control = control.map_or_else(|| connected(wanted), Ok)?;
    let mut session = Session {
        control: hide(control)?,
        number: 0,
        requests: 0,
        spin: thread::passing(Spin::in_bursts(LOOKS, thread::online_cpus())),
        ahead: None,
    };
    let (netstack, filter) = (wanted.name().to_owned(), filter.to_owned());
    let hello = Request::Hello { netstack, filter, room: room::for_own() };
    let told = session.ask(&hello, None).or_else(|errno| session.refused().ok_or(errno));
    let answered = told.inspect_err(|_| {
        say_once(&format!(
            "the daemon ended the session at its first message. This library speaks version {VERSION} of the protocol; the \
             daemon's log tells its own, if that is another: both must come from one installation"
        ));
    });
    let begun = answered.and_then(|(answer, fds)| session.welcome(answer, fds));
    begun.inspect_err(|_| close_hidden(session.control))?;
    Ok(session)
}

impl Session {
    /// Takes what the daemon gives to a new session.
    fn welcome(&mut self, answer: Answer, fds: Vec<OwnedFd>) -> Result<(), Errno> {
        if let Answer::Refused { text, .. } = &answer {
            say_once(text);
        }
        let Answer::Welcome { session, lanes, .. } = answer else { return Err(refusal(&answer)) };
        // A process that has no number left for some of them gets the others.
        if fds.len() != 1 + lanes as usize {
            return Err(Errno::MFILE);
        }
        let mut fds = fds.into_iter();
        let memfd = fds.next().ok_or(Errno::PROTO)?;
        let own = arenas::add(&memfd, What::Arena)?;
        note_arena(own);
        OWN.store(u32::from(own), Ordering::Relaxed);
        self.number = session;
        for (place, bell) in BELLS.iter().take(lanes as usize).zip(fds) {
            let old = place.swap(hide(bell)?, Ordering::Relaxed);
            if old >= 0 {
                close_hidden(old);
            }
        }
        Ok(())
    }

    /// What the daemon has said before it hung up, though it may not have heard anything: why it does not take this program in.
    fn refused(&self) -> Option<(Answer, Vec<OwnedFd>)> {
        let mut bytes = [0; MESSAGE_MAX];
        let mut next = || carry::receive(sys::borrow(self.control), &mut bytes, &mut Vec::new(), false);
        // What it has not read comes first, as an error.
        let len = next().or_else(|_| next()).ok()?;
        let (_, answer) = Answer::decode(&bytes[..len]).ok()?;
        matches!(answer, Answer::Refused { .. }).then(|| {
            arenas::live();
            (answer, Vec::new())
        })
    }

    /// Sends a request and waits for its answer.
    fn ask(&mut self, request: &Request, beside: Option<c_int>) -> Result<(Answer, Vec<OwnedFd>), Errno> {
        let asked = self.send(request, beside)?;
        loop {
            let (number, answer, fds) = self.next_answer()?;
            if number == asked {
                return Ok((answer, fds));
            }
            self.take_ahead(number, &answer, fds);
        }
    }

    /// Sends a request; its number.
    fn send(&mut self, request: &Request, beside: Option<c_int>) -> Result<u32, Errno> {
        self.requests = self.requests.wrapping_add(1).max(UNANSWERED + 1);
        self.send_as(self.requests, request, beside)?;
        Ok(self.requests)
    }

    /// Sends a request to which no answer comes. What is asked next is asked behind it.
    fn post(&self, request: &Request) -> Result<(), Errno> {
        self.send_as(UNANSWERED, request, None)
    }

    fn send_as(&self, number: u32, request: &Request, beside: Option<c_int>) -> Result<(), Errno> {
        let beside = beside.map(sys::borrow);
        let message = request.encode(number);
        let control = sys::borrow(self.control);
        let sent = carry::send(control, &message, beside.as_slice(), true);
        sent.map_err(|error| not_daemons(&error, control, beside.is_some()).unwrap_or_else(gone))
    }

    /// Waits for the next answer.
    fn next_answer(&mut self) -> Result<(u32, Answer, Vec<OwnedFd>), Errno> {
        let control = sys::borrow(self.control);
        let mut bytes = [0; MESSAGE_MAX];
        let mut fds = Vec::new();
        loop {
            let mut received = carry::receive(control, &mut bytes, &mut fds, false);
            let is_there = self.spin.until(|| {
                if is_early(&received) {
                    received = carry::receive(control, &mut bytes, &mut fds, false);
                }
                !is_early(&received)
            });
            if !is_there {
                received = carry::receive(control, &mut bytes, &mut fds, true);
            }
            let len = match received {
                Ok(0) => return Err(gone()),
                Ok(len) => len,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
                Err(_) => return Err(gone()),
            };
            let (number, answer) = Answer::decode(&bytes[..len]).map_err(|_| Errno::PROTO)?;
            return Ok((number, answer, fds));
        }
    }

    /// Asks for sockets that will be wanted, and does not wait for them.
    fn ask_ahead(&mut self, is_v6: bool) -> Result<(), Errno> {
        if self.ahead.is_none() {
            let number = self.send(&sockets(is_v6, Kind::Stream, pool::BATCH as u32), None)?;
            self.ahead = Some((number, is_v6));
            AHEAD.store(true, Ordering::Relaxed);
        }
        Ok(())
    }

    /// An answer that nobody waits for: sockets made ahead, or what nobody wants any more.
    fn take_ahead(&mut self, number: u32, answer: &Answer, fds: Vec<OwnedFd>) {
        let Some((_, is_v6)) = self.ahead.filter(|&(asked, _)| asked == number) else { return };
        self.ahead = None;
        AHEAD.store(false, Ordering::Relaxed);
        let Answer::Sockets { sockets } = answer else { return pool::refused(is_v6) };
        let begin = own_begin();
        if fds.len() < sockets.len() {
            pool::refused(is_v6);
        }
        for (fd, &name) in fds.into_iter().zip(sockets) {
            // A program that has used up its range keeps a number back, which it has given free for this call alone.
            let Ok(hidden) = fcntl_dupfd_cloexec(&fd, begin).map(IntoRawFd::into_raw_fd) else {
                pool::refused(is_v6);
                continue;
            };
            table::put(hidden, socket::spare());
            let era = era();
            let spare = Spare { hidden, name, is_used: false, mode: Mode::Blocks, is_told: false, era };
            if !pool::put(is_v6, spare) {
                close_hidden(hidden);
            }
        }
    }
}

/// The daemon of the session that is held is gone.
fn gone() -> Errno {
    arenas::die(arenas::known());
    Errno::NETDOWN
}

/// Why a message was not sent, if the daemon may live all the same: what went beside it is closed by now, or the kernel has no room.
fn not_daemons(error: &std::io::Error, control: BorrowedFd<'_>, is_beside: bool) -> Option<Errno> {
    let errno = Errno::from_io_error(error)?;
    let is_its = match errno {
        Errno::BADF => is_beside && rustix::io::fcntl_getfd(control).is_ok(),
        // The first: too many descriptors of this user are on their way.
        Errno::TOOMANYREFS | Errno::NOBUFS | Errno::NOMEM => true,
        _ => false,
    };
    is_its.then_some(errno)
}

/// Whether nothing has come as yet.
fn is_early(received: &std::io::Result<usize>) -> bool {
    received.as_ref().is_err_and(|error| error.kind() == std::io::ErrorKind::WouldBlock)
}

/// The error number of an answer that is not the one hoped for.
fn refusal(answer: &Answer) -> Errno {
    match answer {
        Answer::Failed { errno } | Answer::Refused { errno, .. } => Errno::from_raw_os_error(*errno),
        _ => Errno::PROTO,
    }
}

/// Sends a request and waits for its answer.
fn ask(request: &Request, beside: Option<c_int>) -> Result<(Answer, Vec<OwnedFd>), Errno> {
    ask_then(request, beside, |answer, fds| Ok((answer, fds)))
}

/// The same, and what is done with it is done before this process can follow another daemon, whose numbers mean other things.
fn ask_then<T>(
    request: &Request,
    beside: Option<c_int>,
    then: impl FnOnce(Answer, Vec<OwnedFd>) -> Result<T, Errno>,
) -> Result<T, Errno> {
    if is_dead() {
        return Err(Errno::NETDOWN);
    }
    let mut session = begun()?;
    let (answer, fds) = session.as_mut().ok_or(Errno::NETDOWN)?.ask(request, beside)?;
    then(answer, fds)
}

/// Asks about a socket, which the daemon calls by the inode of its descriptor. A child that has it of its parent shows it
/// first.
fn ask_about(socket: &Held, request: impl FnOnce(SocketId) -> Request) -> Result<Answer, Errno> {
    if socket::is_dead(socket.word) {
        return Err(Errno::NETDOWN);
    }
    let request = request(name_of(socket.fd)?);
    match ask(&request, None)?.0 {
        Answer::Failed { errno } if errno == libc::EBADF => {
            attach(socket.fd)?;
            Ok(ask(&request, None)?.0)
        }
        answer => Ok(answer),
    }
}

/// What the daemon calls the socket behind a descriptor, of which it is about to hear.
fn name_of(fd: c_int) -> Result<SocketId, Errno> {
    untold::tell(fd);
    kept::name(fd).map_or_else(|| Ok(SocketId(rustix::fs::fstat(sys::borrow(fd))?.st_ino)), Ok)
}

/// Tells the daemon that a socket is closed, of which this library keeps the descriptor. Whether it will hear of it. There is no
/// lock, and no memory: messages of several threads do not mix.
pub(crate) fn post_closed(socket: SocketId, place: Option<Place>) -> bool {
    let message = closed(socket, place);
    control().is_some_and(|control| carry::send(sys::borrow(control), &message, &[], false).is_ok())
}

fn done(answer: &Answer) -> Result<(), Errno> {
    if matches!(answer, Answer::Done) { Ok(()) } else { Err(refusal(answer)) }
}

/// A new stream socket's descriptor, with SOCK_NONBLOCK and SOCK_CLOEXEC of `flags`.
pub(crate) fn open_socket(is_v6: bool, flags: c_int) -> Result<c_int, Errno> {
    let fd = match spare(is_v6)? {
        Some(spare) => kept::give(is_v6, spare, flags)?,
        None => open_kind(is_v6, Kind::Stream, flags)?,
    };
    order_ahead(is_v6);
    Ok(fd)
}

/// A socket made ahead, if there is any or some are on their way.
fn spare(is_v6: bool) -> Result<Option<Spare>, Errno> {
    if confining::is_confined() {
        // To copy its descriptor may be forbidden.
        return Ok(None);
    }
    if let Some(spare) = pool::take(is_v6) {
        return Ok(Some(spare));
    }
    if !AHEAD.load(Ordering::Relaxed) || !process::has_session() {
        return Ok(None);
    }
    await_ahead()?;
    Ok(pool::take(is_v6))
}

/// The program has made a socket: asks for more if there are few.
fn order_ahead(is_v6: bool) {
    let is_wanted = pool::is_low(is_v6) && !AHEAD.load(Ordering::Relaxed) && !confining::is_confined();
    if is_wanted && is_roomy() && watches_forks() {
        // Those that cannot be asked for ahead are asked for when they are wanted.
        let _ = begun().and_then(|mut session| session.as_mut().ok_or(Errno::NETDOWN)?.ask_ahead(is_v6));
    }
}

/// Waits for the sockets that were asked for ahead, if there is a session.
pub(crate) fn receive_ahead() {
    if AHEAD.load(Ordering::Relaxed) && process::has_session() {
        // Without them they are made one by one.
        let _ = await_ahead();
    }
}

/// Waits for the sockets that were asked for ahead.
fn await_ahead() -> Result<(), Errno> {
    let mut session = begun()?;
    let session = session.as_mut().ok_or(Errno::NETDOWN)?;
    while session.ahead.is_some() {
        let (number, answer, fds) = session.next_answer()?;
        session.take_ahead(number, &answer, fds);
    }
    Ok(())
}

/// Whether the program can spare the numbers of sockets made ahead.
fn is_roomy() -> bool {
    getrlimit(Resource::Nofile).current.is_none_or(|limit| limit >= ROOMY_RANGE)
}

/// The same for a datagram socket, or one for echoes.
pub(crate) fn open_datagrams(is_v6: bool, is_echo: bool, flags: c_int) -> Result<c_int, Errno> {
    open_kind(is_v6, if is_echo { Kind::Echo } else { Kind::Datagram }, flags)
}

fn sockets(is_v6: bool, kind: Kind, count: u32) -> Request {
    Request::Socket { family: if is_v6 { Family::V6 } else { Family::V4 }, kind, count }
}

fn open_kind(is_v6: bool, kind: Kind, flags: c_int) -> Result<c_int, Errno> {
    match ask(&sockets(is_v6, kind, 1), None)? {
        (Answer::Sockets { .. }, fds) => given(fds.into_iter().next().ok_or(Errno::MFILE)?, flags),
        (other, _) => Err(refusal(&other)),
    }
}

/// A descriptor from the daemon as the program wants it.
pub(crate) fn given(fd: OwnedFd, flags: c_int) -> Result<c_int, Errno> {
    if !table::has_room_for(fd.as_raw_fd()) {
        return Err(Errno::MFILE);
    }
    if flags & libc::SOCK_CLOEXEC == 0 {
        rustix::io::fcntl_setfd(&fd, rustix::io::FdFlags::empty())?;
    }
    if flags & libc::SOCK_NONBLOCK != 0 {
        // It has no other flags as yet. Filters of calls (seccomp) seldom let FIONBIO pass.
        rustix::fs::fcntl_setfl(&fd, rustix::fs::OFlags::NONBLOCK)?;
    }
    Ok(fd.into_raw_fd())
}

/// Gives a socket an address.
pub(crate) fn bind(socket: &Held, address: SocketAddr) -> Result<(), Errno> {
    done(&ask_about(socket, |socket| Request::Bind { socket, address })?)
}

/// Makes a socket a listener: where its accept queue is, if it has one here.
pub(crate) fn listen(socket: &Held, backlog: c_int) -> Result<Option<(u16, u32)>, Errno> {
    // Linux takes a negative number as a large one.
    let backlog = backlog.cast_unsigned().min(c_int::MAX.cast_unsigned());
    let era = era();
    match ask_about(socket, |socket| Request::Listen { socket, backlog })? {
        Answer::Stream { place } => {
            let queue = arenas::find(place.arena).map(|arena| (arena, place.block));
            if era == self::era() { Ok(queue) } else { Err(Errno::NETDOWN) }
        }
        other => done(&other).map(|()| None),
    }
}

/// Somebody watches a listener's descriptor: what waits elsewhere goes there.
pub(crate) fn is_watched(socket: &Held) -> Result<(), Errno> {
    ask_about(socket, |socket| Request::Listen { socket, backlog: SAME_BACKLOG }).map(drop)
}

/// Begins to connect, with text in the SYN if there is some to be `fast` with: where the stream's words are, as a place of this
/// process.
pub(crate) fn connect(socket: &Held, address: SocketAddr, fast: bool) -> Result<(u16, u32), Errno> {
    placed(socket, |socket| Request::Connect { socket, address, fast })
}

/// Gives a datagram socket an address: where its words are.
pub(crate) fn bind_datagrams(socket: &Held, address: SocketAddr) -> Result<(u16, u32), Errno> {
    placed(socket, |socket| Request::Bind { socket, address })
}

/// Asks for what makes words of a socket: where they are.
fn placed(socket: &Held, request: impl FnOnce(SocketId) -> Request) -> Result<(u16, u32), Errno> {
    let era = era();
    match ask_about(socket, request)? {
        Answer::Stream { place } => {
            let arena = arenas::find(place.arena).ok_or(Errno::PROTO)?;
            // Another daemon's arena may have that number.
            if era == self::era() { Ok((arena, place.block)) } else { Err(Errno::NETDOWN) }
        }
        other => Err(refusal(&other)),
    }
}

/// Ends what a socket was: it is without a connection again.
pub(crate) fn disconnect(socket: &Held) -> Result<(), Errno> {
    done(&ask_about(socket, |socket| Request::Disconnect { socket })?)
}

/// A socket's own address and its peer's.
pub(crate) fn names(socket: &Held) -> Result<(Option<SocketAddr>, Option<SocketAddr>), Errno> {
    match ask_about(socket, |socket| Request::Names { socket })? {
        Answer::Names { local, remote } => Ok((local, remote)),
        other => Err(refusal(&other)),
    }
}

/// The netstack's interfaces, once for each address.
pub(crate) fn interfaces() -> Result<Vec<Interface>, Errno> {
    begin_again()?;
    match ask(&Request::Interfaces, None)?.0 {
        Answer::Interfaces { addresses } => Ok(addresses),
        other => Err(refusal(&other)),
    }
}

/// Sets an option that the stream's words do not have.
pub(crate) fn set_option(socket: &Held, level: c_int, name: c_int, value: &[u8]) -> Result<(), Errno> {
    // What is cut off might be the half of a filter.
    if value.len() > OPTION_MAX {
        return Err(Errno::INVAL);
    }
    done(&ask_about(socket, |socket| Request::SetOption { socket, level, name, value: value.to_vec() })?)
}

/// Sets such an option, and has no answer, of a socket that has nobody to refuse it: it is this process' alone, so the daemon
/// knows it, and what is asked of it next is asked behind this.
pub(crate) fn post_option(socket: &Held, level: c_int, name: c_int, value: &[u8]) -> Result<(), Errno> {
    if socket::is_dead(socket.word) {
        return Err(Errno::NETDOWN);
    }
    untold::tell(socket.fd);
    let Some(socket_name) = kept::own_name(socket.fd) else { return set_option(socket, level, name, value) };
    let request = Request::SetOption { socket: socket_name, level, name, value: value.to_vec() };
    begun()?.as_ref().ok_or(Errno::NETDOWN)?.post(&request)
}

/// Reads such an option.
pub(crate) fn get_option(socket: &Held, level: c_int, name: c_int, len: usize) -> Result<Vec<u8>, Errno> {
    let len = len.min(OPTION_MAX) as u32;
    match ask_about(socket, |socket| Request::GetOption { socket, level, name, len })? {
        Answer::Option { value } => Ok(value),
        other => Err(refusal(&other)),
    }
}

/// The datagram that did not arrive longest ago.
pub(crate) fn fault(socket: &Held) -> Result<Fault, Errno> {
    match ask_about(socket, |socket| Request::Fault { socket })? {
        Answer::Option { value } => Fault::decode(&value).map_err(|_| Errno::PROTO),
        other => Err(refusal(&other)),
    }
}

/// What a stream is about to write up to a cursor of its send ring is urgent.
pub(crate) fn mark_urgent(fd: c_int, end: u64) -> Result<(), Errno> {
    let request = |socket| Request::Urgent { socket, end };
    let socket = Held { fd, word: table::get(fd).ok_or(Errno::BADF)? };
    done(&ask_about(&socket, request)?)
}

/// Whether a socket that was closed waits for its peer.
pub(crate) fn is_closing(socket: SocketId) -> bool {
    let answer = ask(&Request::Linger { socket }, None);
    matches!(answer, Ok((Answer::Failed { errno: libc::EINPROGRESS }, _)))
}

/// What the daemon says of a descriptor that came by `exec` or from another program.
pub(crate) struct Attached {
    pub(crate) is_v6: bool,
    pub(crate) is_datagram: bool,
    pub(crate) is_echo: bool,
    pub(crate) state: firelane_shm::control::State,
    /// Its arena's place in this process, and its block.
    pub(crate) place: Option<(u16, u32)>,
}

/// Asks what is behind a descriptor.
pub(crate) fn attach(fd: c_int) -> Result<Attached, Errno> {
    if table::get(fd).is_some_and(socket::is_dead) {
        return Err(Errno::NETDOWN);
    }
    ask_then(&Request::Attach, Some(fd), attached)
}

fn attached(answer: Answer, fds: Vec<OwnedFd>) -> Result<Attached, Errno> {
    let Answer::Attached { family, kind, state, place, .. } = answer else { return Err(refusal(&answer)) };
    // One that is not connected yet will have its words in the same arena.
    let arena = fds.first().map(|memfd| arenas::add(memfd, What::Arena)).transpose()?;
    arena.into_iter().for_each(note_arena);
    let place = match place {
        Some(place) => {
            let arena = arena.or_else(|| arenas::find(place.arena)).ok_or(Errno::PROTO)?;
            Some((arena, place.block))
        }
        None => None,
    };
    let is_datagram = matches!(kind, Kind::Datagram | Kind::Echo);
    let (is_v6, is_echo) = (family == Family::V6, kind == Kind::Echo);
    Ok(Attached { is_v6, is_datagram, is_echo, state, place })
}

/// Moves a descriptor of ours away from a number that the program has chosen.
pub(crate) fn make_way(fd: c_int) {
    let Ok(new) = fcntl_dupfd_cloexec(sys::borrow(fd), fd + 1) else { return };
    let new = new.into_raw_fd();
    let word = table::get(fd).unwrap_or_else(socket::private);
    table::put(new, word);
    let mut session = SESSION.take();
    if let Some(session) = session.as_mut().filter(|session| session.control == fd) {
        session.control = new;
        CONTROL.store(new, Ordering::Relaxed);
    }
    for bell in &BELLS {
        let _ = bell.compare_exchange(fd, new, Ordering::Relaxed, Ordering::Relaxed);
    }
    crate::waiter::moved(fd, new);
    crate::fused::moved(fd, new);
    pool::moved(fd, new);
    kept::moved(fd, new);
    if word == socket::left() && !holds::moved(fd, new) {
        // The call has returned meanwhile.
        close_hidden(new);
    }
    table::take(fd);
}

/// Asks for a slot in an arena that `bell` wakes. Who has the arena of his parent shows a socket in it, `fd`, first.
pub(crate) fn waiter_slot(place: u16, bell: c_int, fd: c_int) -> Result<u32, Errno> {
    let bell = Some(bell).filter(|&bell| bell >= 0).ok_or(Errno::BADF)?;
    if !is_attached(place) {
        attach(fd)?;
    }
    let arena = arenas::number(place).ok_or(Errno::PROTO)?;
    match ask(&Request::Waiter { arena }, Some(bell))?.0 {
        Answer::Slot { slot } => {
            note_arena(place);
            Ok(slot)
        }
        other => Err(refusal(&other)),
    }
}

/// A waiter that has an arena's shared slot is to be rung for news of a stream there.
/// What it has named there before it waits for no more if that `is_anew`.
pub(crate) fn share_slot(
    arena: u16,
    block: u32,
    (waiter, is_anew): (u32, bool),
    bell: c_int,
) -> Result<(), Errno> {
    let arena = arenas::number(arena).ok_or(Errno::PROTO)?;
    let place = Place { arena, block };
    done(&ask(&Request::Share { place, waiter, is_anew }, Some(bell))?.0)
}

/// Maps the segment with this number: where it is. `fd` has its joint.
pub(crate) fn segment(number: u64, fd: c_int) -> Result<u16, Errno> {
    if !arenas::has_room_for_segment() {
        return Err(Errno::NFILE);
    }
    let asks = || {
        ask_then(&Request::Segment { segment: number }, None, |answer, fds| match answer {
            // Another daemon's segment may have that number.
            Answer::Done if table::get(fd).is_some_and(socket::is_dead) => Err(Errno::NETDOWN),
            Answer::Done => mapped(fd, &fds).map(Ok),
            other => Ok(Err(other)),
        })
    };
    let answer = match asks()? {
        Err(Answer::Failed { .. }) => {
            // A child that has the socket of its parent shows it first.
            attach(fd)?;
            asks()?
        }
        answer => answer,
    };
    answer.map_err(|answer| refusal(&answer))
}

/// Maps the segment that the daemon has sent for the socket behind `fd`.
fn mapped(fd: c_int, fds: &[OwnedFd]) -> Result<u16, Errno> {
    let arena = table::get(fd).map(socket::arena);
    let what = if arena == own_arena() { What::Segment } else { What::OthersSegment };
    // The daemon has sent one, for which there was no number left.
    let place = arenas::add(fds.first().ok_or(Errno::MFILE)?, what)?;
    note_arena(place);
    Ok(place)
}

/// The doorbell of a waiter of a segment.
pub(crate) fn bell(segment: u64, slot: u32) -> Result<OwnedFd, Errno> {
    match ask(&Request::Bell { segment, slot }, None)? {
        (Answer::Done, fds) => fds.into_iter().next().ok_or(Errno::PROTO),
        (other, _) => Err(refusal(&other)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_closed_descriptor_beside_a_message_is_not_the_daemons_end() {
        let pair = || socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None);
        let (control, daemon) = pair().unwrap();
        let mut session = Session {
            control: control.as_raw_fd(),
            number: 0,
            requests: 0,
            spin: Spin::in_bursts(LOOKS, 1),
            ahead: None,
        };
        // No descriptor has this number.
        assert_eq!(session.send(&Request::Attach, Some(c_int::MAX)), Err(Errno::BADF));
        assert_eq!(session.send(&Request::Attach, Some(session.control)), Ok(2));
        let failed = |errno: Errno, control, is_beside| not_daemons(&errno.into(), control, is_beside);
        for (errno, is_beside, told) in [
            (Errno::TOOMANYREFS, true, Some(Errno::TOOMANYREFS)),
            (Errno::NOMEM, false, Some(Errno::NOMEM)),
            (Errno::BADF, false, None),
            (Errno::PIPE, true, None),
        ] {
            assert_eq!(failed(errno, control.as_fd(), is_beside), told, "{errno}");
        }
        assert_eq!(failed(Errno::BADF, sys::borrow(c_int::MAX), true), None);
        assert!(!is_dead());
        drop(daemon);
    }
}
