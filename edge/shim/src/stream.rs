//! A stream: bytes in and out of its rings, and waiting for them.
//!
//! Everything here works on words that threads and processes share; a call keeps nothing when it returns. A call that
//! finds nothing to do spins a while and then sleeps on the block, as `drivers/shm` has it, in slices: after each it
//! looks whether the daemon still lives.

use core::cell::Cell;
use core::ffi::c_int;
use core::sync::atomic::{Ordering, fence};
use core::time::Duration;
use std::io::{IoSlice, IoSliceMut};

use firelane_shm::layout::{REFUSED, SIGNALLED, TAKEN, TELLS_UNREAD, file::OVER, request, status};
use firelane_shm::{Busy, ReadError, Readiness, Spin, StreamEnd, UrgentError, Woken, WriteError};
use firelane_units::Instant;
use rustix::io::Errno;

use crate::awaited::{Awaited, lacks_bytes};
use crate::buffers::{Sink, Source};
use crate::handlers::Seen;
use crate::holds::{self, Hold};
use crate::sleeping::Sleeper;
use crate::socket::{self, Beside, Received, broken_pipe};
use crate::wait::Deadline;
use crate::{arenas, fused, session, signals, sys, table, thread};

/// How many pieces go to the ring at once. More go one batch after the other.
const BATCH: usize = 16;

/// How long a call that does not block waits for a ring's storage: many turns of a lane.
const ATTACHING: Duration = Duration::from_millis(5);

/// Bits of the block's `file` word, which belongs to programs.
mod file {
    /// O_NONBLOCK is set.
    pub(super) const NONBLOCK: u64 = 1;
    /// `connect` has told the program that the connection stands.
    pub(super) const TOLD: u64 = 2;
    // The next are `TAKEN` and `LINGERS`.
}

/// A stream, as one call sees it.
pub(crate) struct Stream {
    fd: c_int,
    arena: u16,
    block: u32,
    /// Which use of the block it is.
    generation: u64,
    end: Cell<StreamEnd<'static>>,
}

impl Stream {
    /// The stream of a block; `None` if the arena is not mapped here.
    #[inline]
    pub(crate) fn new(fd: c_int, arena: u16, block: u32) -> Option<Self> {
        let memory = arenas::get(arena)?;
        // In a child this begins its session, which has nothing of its parent's as yet.
        let me = thread::holder();
        if !session::is_attached(arena) {
            session::show(fd, arena);
        }
        let end = StreamEnd::new(memory, block, me)?;
        let generation = end.block().generation.load(Ordering::Relaxed);
        Some(Self { fd, arena, block, generation, end: Cell::new(fused::followed(fd, arena, end)) })
    }

    /// A time of its lane by `CLOCK_MONOTONIC`.
    pub(crate) fn on_our_clock(&self, at: Instant) -> Instant {
        let start = arenas::get(self.arena).map_or(0, |it| it.header().clock_start.load(Ordering::Relaxed));
        Instant::from_nanos(at.nanos().saturating_add(start))
    }

    /// Its words.
    #[inline]
    pub(crate) fn end(&self) -> StreamEnd<'static> {
        self.end.get()
    }

    /// It may have been fused since the last look.
    #[inline]
    fn follow(&self) {
        let end = self.end();
        if end.lacks().is_some() {
            self.end.set(fused::followed(self.fd, self.arena, end));
        }
    }

    /// What `poll` says of it. Who asks and finds no room may wait for some, so the ring is made to have it.
    #[inline]
    pub(crate) fn poll(&self) -> Readiness {
        let ready = self.end().readiness();
        if ready.has(Readiness::WRITABLE) {
            return ready;
        }
        self.ask_to_part();
        self.ask_for_room();
        self.ask_for_a_signal();
        // There may have been some before it was asked for, of which nobody tells.
        self.end().readiness()
    }

    /// Whether text may be where it cannot be reached is the daemon's to say.
    #[inline]
    fn ask_to_part(&self) {
        if self.end().asks_to_part() {
            self.kick();
        }
    }

    /// There is no room, and whoever is signalled about the stream wants to know when there is. Look once more.
    #[inline]
    fn ask_for_a_signal(&self) {
        if self.is_marked(SIGNALLED) {
            self.end().block().file.fetch_or(REFUSED, Ordering::SeqCst);
            fence(Ordering::SeqCst);
        }
    }

    /// Tells the lane that there is work, and wakes it if it sleeps.
    #[inline]
    pub(crate) fn kick(&self) {
        session::kick(&self.end());
    }

    /// What a call says whose daemon is gone. The program of a datagram socket goes on with that, and hears of it by `poll` no more.
    pub(crate) fn is_over(&self) -> Errno {
        self.mark(OVER, true);
        Errno::NETDOWN
    }

    fn is_marked(&self, bit: u64) -> bool {
        self.end().block().file.load(Ordering::Relaxed) & bit != 0
    }

    fn mark(&self, bit: u64, on: bool) {
        use core::sync::atomic::Ordering::Relaxed;
        let word = &self.end().block().file;
        if on {
            word.fetch_or(bit, Relaxed)
        } else {
            word.fetch_and(!bit, Relaxed)
        };
    }

    /// Whether O_NONBLOCK is set.
    pub(crate) fn is_nonblocking(&self) -> bool {
        self.is_marked(file::NONBLOCK)
    }

    /// Remembers O_NONBLOCK.
    pub(crate) fn set_nonblocking(&self, on: bool) {
        self.mark(file::NONBLOCK, on);
    }

    /// The program has accepted it, and knows that it stands.
    pub(crate) fn take(&self) {
        self.mark(TAKEN | file::TOLD, true);
    }

    /// Whether the connection stands, or stood: `Err` is what it failed with, told once.
    pub(crate) fn outcome(&self) -> Option<Result<(), Errno>> {
        let now = self.end().status();
        if now >> status::ERROR_SHIFT != 0 || now & (status::CONNECTED | status::CLOSED) == status::CLOSED {
            return Some(Err(match self.end().take_error() {
                0 => Errno::CONNABORTED,
                error => Errno::from_raw_os_error(error),
            }));
        }
        (now & status::CONNECTED != 0).then_some(Ok(()))
    }

    /// Whether the attempt to connect has failed already, for want of a way to go: Linux says so before it sends anything.
    pub(crate) fn fails_here(&self) -> bool {
        let error = (self.end().status() >> status::ERROR_SHIFT) as c_int;
        [libc::ENETUNREACH, libc::EADDRNOTAVAIL, libc::EACCES, libc::EINVAL].contains(&error)
    }

    /// The first `connect` after the connection stands succeeds, and the next ones say EISCONN: whether it is the first.
    pub(crate) fn tell_connected(&self) -> bool {
        let is_first = !self.is_marked(file::TOLD);
        self.mark(file::TOLD, true);
        is_first
    }

    /// Whether a call has told the program that it is connected.
    pub(crate) fn is_known_connected(&self) -> bool {
        self.is_marked(file::TOLD)
    }

    /// Whether it was ever established and is not yet over.
    pub(crate) fn is_connected(&self) -> bool {
        self.end().status() & (status::CONNECTED | status::CLOSED) == status::CONNECTED
    }

    /// Whether it is neither known to stand nor to have failed.
    pub(crate) fn is_connecting(&self) -> bool {
        self.end().status() == 0
    }

    /// Whether it was given up while it connected, so that its words may be another connection's by now.
    fn is_given_up(&self) -> bool {
        table::get(self.fd).is_some_and(socket::is_given_up)
    }

    /// The same, which is told once.
    fn tells_given_up(&self) -> bool {
        socket::at(self.fd).is_some_and(|it| it.tells_given_up())
    }

    /// Ends one or both directions.
    pub(crate) fn shutdown(&self, how: c_int) -> Result<(), Errno> {
        if !self.is_connected() {
            return Err(Errno::NOTCONN);
        }
        let ends_writing = how != libc::SHUT_RD && self.end().status() & status::WRITE_CLOSED == 0;
        // This first, and the lane is told of both: who waits to read hears of both at once.
        if ends_writing {
            self.end().shut_write();
        }
        if how != libc::SHUT_WR {
            self.end().shut_read();
        }
        if ends_writing {
            self.follow();
            if self.end().end_beside() {
                self.tell_peer();
            }
        }
        self.kick();
        self.tell_connected();
        // Other threads of this program may sleep in a call that ends now.
        self.wake();
        Ok(())
    }

    /// Wakes whoever sleeps on its words.
    pub(crate) fn wake(&self) {
        self.end().block().wake();
        self.end().sleep().wake();
    }

    /// How long a read (SO_RCVTIMEO) or a write (SO_SNDTIMEO) waits; `None` is for ever.
    fn limit(&self, reads: bool) -> Option<Duration> {
        let block = self.end().block();
        let word = if reads { &block.recv_timeout } else { &block.send_timeout };
        let nanos = word.load(Ordering::Relaxed);
        (nanos != 0).then(|| Duration::from_nanos(nanos))
    }

    /// Receives into `sink`.
    pub(crate) fn receive(&self, sink: &mut Sink<'_>, flags: c_int) -> Result<Received, Errno> {
        let received = match flags & libc::MSG_OOB {
            0 => self.receive_text(sink, flags)?,
            _ => self.receive_urgent(sink, flags)?,
        };
        let tells = self.end().block().file.load(Ordering::Relaxed) & TELLS_UNREAD != 0;
        let unread = || c_int::try_from(self.end().unread_with_end()).unwrap_or(c_int::MAX);
        Ok(if tells { Received { beside: Beside::Unread(unread()), ..received } } else { received })
    }

    fn receive_text(&self, sink: &mut Sink<'_>, flags: c_int) -> Result<Received, Errno> {
        let bytes = if sink.len() == 0 {
            self.receive_nothing(flags)?
        } else if sink.is_faulty() && flags & libc::MSG_TRUNC == 0 {
            self.receive_nothing(flags)?;
            if self.end().available() > 0 {
                return Err(Errno::FAULT);
            }
            0
        } else {
            self.receive_some(sink, flags)?
        };
        Ok(Received { bytes, from: None, flags: 0, beside: Beside::Nothing })
    }

    /// Linux answers a read of nothing as it would one of a byte, be that urgent, and leaves the byte.
    fn receive_nothing(&self, flags: c_int) -> Result<usize, Errno> {
        let mut wait = Waiting::new(self, Awaited::Bytes(1), flags);
        loop {
            if self.end().is_before_urgent() {
                return Ok(0);
            }
            match self.end().read(&mut [IoSliceMut::new(&mut [0])], true) {
                Ok(_) => return Ok(0),
                Err(error) => wait.after(self.stop_reading(error), 0)?,
            }
        }
    }

    fn receive_some(&self, sink: &mut Sink<'_>, flags: c_int) -> Result<usize, Errno> {
        let peeks = flags & libc::MSG_PEEK != 0;
        let wanted = self.wanted(sink.len(), flags);
        // Who takes what there is waits for a byte more.
        let mut wait = Waiting::new(self, Awaited::Bytes(if peeks { wanted } else { 1 }), flags);
        let mut done = 0;
        loop {
            let is_short = || lacks_bytes(&self.end(), self.end().readiness(), wanted);
            if peeks && !wait.is_over() && is_short() {
                wait.after(Stop::Wait, 0)
                    .or_else(|errno| if self.end().available() > 0 { Ok(()) } else { Err(errno) })?;
                if !wait.is_over() {
                    continue;
                }
            }
            match self.read_once(sink, done, flags) {
                Ok((0, _)) => return Ok(done),
                Ok((count, tells)) => {
                    self.tell_read(tells);
                    done += count;
                    // Of many pieces a look fills some.
                    let has_more = done < sink.len() && self.end().available() > 0;
                    if peeks || done >= wanted && !has_more || self.end().is_at_mark() {
                        return Ok(done);
                    }
                }
                Err(error) if done > 0 && !matches!(error, Stop::Wait) => {
                    self.tells_later(error);
                    return Ok(done);
                }
                Err(error) => {
                    if let Err(errno) = wait.after(error, done) {
                        return if done > 0 { Ok(done) } else { Err(errno) };
                    }
                }
            }
        }
    }

    /// How many bytes a read of `len` waits for.
    fn wanted(&self, len: usize, flags: c_int) -> usize {
        if flags & libc::MSG_WAITALL != 0 {
            return len;
        }
        let low = self.end().block().low_water[0].load(Ordering::Relaxed) as usize;
        low.clamp(1, len)
    }

    /// One look at the ring, behind the first `done` bytes of `sink`.
    fn read_once(&self, sink: &mut Sink<'_>, done: usize, flags: c_int) -> Result<(usize, bool), Stop> {
        self.follow();
        let read = |pieces: &mut [IoSliceMut<'_>]| {
            self.end().read(pieces, flags & libc::MSG_PEEK != 0).map_err(|error| self.stop_reading(error))
        };
        if flags & libc::MSG_TRUNC != 0 {
            let there = self.end().available().min(sink.len() - done);
            if flags & libc::MSG_PEEK != 0 && there > 0 {
                return Ok((there, false));
            }
            // The bytes are taken and shown to nobody.
            let mut nowhere = [0; 4096];
            let len = (sink.len() - done).min(nowhere.len());
            return read(&mut [IoSliceMut::new(&mut nowhere[..len])]);
        }
        if let Some(piece) = sink.lone(done) {
            return read(&mut [IoSliceMut::new(piece)]);
        }
        let mut batch = [const { None }; BATCH];
        let mut count = 0;
        for (place, piece) in batch.iter_mut().zip(sink.from(done)) {
            *place = Some(IoSliceMut::new(piece));
            count += 1;
        }
        let mut pieces = batch.map(|piece| piece.unwrap_or_else(|| IoSliceMut::new(&mut [])));
        read(&mut pieces[..count])
    }

    /// Sends `source`, all of it unless the socket does not block.
    pub(crate) fn send(&self, source: Source<'_>, flags: c_int) -> Result<usize, Errno> {
        if arenas::is_dead(self.arena) {
            // There may be room in the ring, but nobody takes anything out of it.
            return Err(Errno::NETDOWN);
        }
        let early = if self.is_deferred() { self.send_early(source, flags)? } else { 0 };
        let is_urgent = flags & libc::MSG_OOB != 0;
        let mut wait = Waiting::new(self, Awaited::Room, flags);
        if early > 0 && (!wait.blocks || early >= source.len()) {
            return Ok(early);
        }
        // The lane hears of what was written when there is nothing more to write, or no more room.
        let (mut done, mut told) = (early, early);
        let stopped = loop {
            let written = match is_urgent {
                true => self.write_urgent(source, done),
                false => self.write_once(source, done),
            };
            match written {
                Ok(_) if source.is_faulty() => break Errno::FAULT,
                Ok(count) => done += count,
                Err(Stop::Closed) if done == 0 => break broken_pipe(flags),
                Err(stop @ (Stop::Closed | Stop::Failed(_))) if done > 0 => {
                    self.tell(&mut told, done);
                    self.tells_later(stop);
                    return Ok(done);
                }
                Err(stop) => {
                    self.tell(&mut told, done);
                    if let Err(errno) = wait.after(stop, done) {
                        break errno;
                    }
                }
            }
            if done >= source.len() {
                self.tell(&mut told, done);
                return Ok(done);
            }
        };
        if done > 0 { Ok(done) } else { Err(stopped) }
    }

    /// Whether its connection begins with the first write.
    #[inline]
    pub(crate) fn is_deferred(&self) -> bool {
        self.end().is_deferred()
    }

    /// The first write of a connection that was deferred: it goes with the SYN. A call that blocks waits for the outcome. How much
    /// was written; zero if another thread has begun the connection.
    #[cold]
    fn send_early(&self, source: Source<'_>, flags: c_int) -> Result<usize, Errno> {
        if source.is_faulty() {
            return Err(Errno::FAULT);
        }
        let seen = Seen::now();
        let (pieces, count) = batch(source, 0);
        let Some(early) = self.end().begin_early(&pieces[..count]) else { return Ok(0) };
        self.kick();
        if !Waiting::new(self, Awaited::Room, flags).blocks {
            // Without text the SYN leaves alone, and the call is a connect(2).
            return if early > 0 { Ok(early) } else { Err(Errno::INPROGRESS) };
        }
        match self.wait_connected(seen) {
            Ok(()) => {
                self.tell_connected();
                Ok(early)
            }
            // Its time is over, or a signal has come, and some of it is on its way.
            Err(Errno::INPROGRESS | Errno::INTR) if early > 0 => Ok(early),
            Err(errno) => Err(errno),
        }
    }

    /// Tells the lane, or the peer's program, of what was written since they were `told`.
    fn tell(&self, told: &mut usize, done: usize) {
        if *told < done {
            if self.end().concerns_lane() {
                self.kick();
            }
            self.tell_peer();
            *told = done;
        }
    }

    /// Tells who is fused with this.
    #[inline]
    fn tell_peer(&self) {
        let end = self.end();
        if let Some(beside) = end.beside()
            && fused::tell(&end, beside)
        {
            end.request(request::TELL_PEER);
            self.kick();
        }
    }

    /// After a read: the lane, if it is to be told, and the peer's program, if it waits for room.
    #[inline]
    fn tell_read(&self, tells_lane: bool) {
        if tells_lane {
            self.kick();
        }
        if let Some(beside) = self.end().beside().filter(|beside| beside.makes_room()) {
            self.tell_peer();
            beside.has_told_of_room();
        }
    }

    /// There may be something later.
    #[inline]
    fn stop_waiting(&self) -> Stop {
        self.ask_to_part();
        Stop::Wait
    }

    /// The peer has spoilt what is shared with it.
    #[cold]
    fn give_up(&self) -> Stop {
        self.end().request(request::RESET);
        self.kick();
        Stop::Failed(Errno::CONNRESET)
    }

    /// The call has moved something, and what ended it is the next one's to tell.
    #[cold]
    fn tells_later(&self, stop: Stop) {
        if let Stop::Failed(errno) = stop {
            self.end().put_back(errno.raw_os_error());
        }
    }

    pub(crate) fn stop_reading(&self, error: ReadError) -> Stop {
        match error {
            ReadError::WouldBlock => self.stop_waiting(),
            ReadError::Failed(error) => Stop::Failed(Errno::from_raw_os_error(error)),
            ReadError::Busy(busy) => busy.into(),
            ReadError::Lie => self.give_up(),
        }
    }

    pub(crate) fn stop_writing(&self, error: WriteError) -> Stop {
        match error {
            WriteError::WouldBlock => self.stop_waiting(),
            WriteError::Closed => Stop::Closed,
            WriteError::Failed(libc::EPIPE) => Stop::Closed,
            WriteError::Failed(error) => Stop::Failed(Errno::from_raw_os_error(error)),
            WriteError::Busy(busy) => busy.into(),
            WriteError::Lie => self.give_up(),
        }
    }

    fn write_once(&self, source: Source<'_>, done: usize) -> Result<usize, Stop> {
        self.follow();
        let written = match source.lone(done) {
            Some(piece) => self.end().write(&[IoSlice::new(piece)]),
            None => {
                let (pieces, count) = batch(source, done);
                self.end().write(&pieces[..count])
            }
        };
        written.map_err(|error| self.stop_writing(error))
    }

    /// The same, and it ends with an urgent byte. Room is waited for in the ring that the lane reads.
    #[cold]
    fn write_urgent(&self, source: Source<'_>, done: usize) -> Result<usize, Stop> {
        let end = fused::followed(self.fd, self.arena, self.end().anew());
        self.end.set(end.apart());
        let (pieces, count) = batch(source, done);
        let announce = |mark| session::mark_urgent(self.fd, mark).map_err(Errno::raw_os_error);
        end.write_urgent(&pieces[..count], announce).map_err(|error| self.stop_writing(error))
    }

    /// Receives the urgent byte. Nobody waits for it here.
    #[cold]
    fn receive_urgent(&self, sink: &mut Sink<'_>, flags: c_int) -> Result<Received, Errno> {
        let received = |bytes, flags| Ok(Received { bytes, from: None, flags, beside: Beside::Nothing });
        match self.end().read_urgent(flags & libc::MSG_PEEK != 0) {
            Ok(_) if sink.len() == 0 => received(0, libc::MSG_OOB | libc::MSG_TRUNC),
            Ok(_) if flags & libc::MSG_TRUNC != 0 => received(1, libc::MSG_OOB),
            Ok(_) if sink.is_faulty() => Err(Errno::FAULT),
            Ok(byte) => {
                if let Some(place) = sink.from(0).flatten().next() {
                    *place = byte;
                }
                received(1, libc::MSG_OOB)
            }
            Err(UrgentError::Ended) => received(0, 0),
            Err(UrgentError::NotYet) => Err(Errno::AGAIN),
            Err(UrgentError::Nothing) => Err(Errno::INVAL),
            Err(UrgentError::Read(error)) => match self.stop_reading(error) {
                Stop::Failed(errno) => Err(errno),
                // Another thread reads at this moment.
                Stop::Wait | Stop::Closed => Err(Errno::AGAIN),
            },
        }
    }

    /// Asks the lane for room to write, if the ring has no storage. Whether it did.
    fn ask_for_room(&self) -> bool {
        let asks = self.end().asks_for_storage();
        if asks {
            self.kick();
        }
        asks
    }

    /// Sets an option that the lane reads from the block.
    pub(crate) fn set_option(&self, bit: u64, on: bool) {
        self.end().set_option(bit, on);
        self.kick();
    }

    /// Reads such an option.
    pub(crate) fn option(&self, bit: u64) -> bool {
        debug_assert!([request::NODELAY, request::CORK, request::QUICKACK].contains(&bit));
        self.end().block().requests.load(Ordering::Relaxed) & bit != 0
    }
}

/// The first pieces of what is left of `source`, and how many they are.
fn batch(source: Source<'_>, done: usize) -> ([IoSlice<'_>; BATCH], usize) {
    let mut pieces = [IoSlice::new(&[]); BATCH];
    let mut count = 0;
    for (place, piece) in pieces.iter_mut().zip(source.from(done)) {
        *place = IoSlice::new(piece);
        count += 1;
    }
    (pieces, count)
}

/// Why a look at a ring ended without bytes.
pub(crate) enum Stop {
    /// There may be some later.
    Wait,
    /// Nothing more can be written.
    Closed,
    /// It failed.
    Failed(Errno),
}

impl From<Busy> for Stop {
    fn from(busy: Busy) -> Self {
        match busy {
            // A signal handler cannot wait for the call that it interrupted.
            Busy::Myself => Self::Failed(Errno::AGAIN),
            Busy::Other(_) => Self::Wait,
        }
    }
}

/// The waiting of one call.
pub(crate) struct Waiting<'a> {
    stream: &'a Stream,
    awaited: Awaited,
    blocks: bool,
    limit: Option<Duration>,
    /// Whether there is something to tell already.
    has_done: bool,
    deadline: Option<Deadline>,
    is_over: bool,
    sleeper: Sleeper,
    /// From the first sleep on.
    hold: Option<Hold>,
    /// How often it has said that it found no room.
    refusals: u8,
}

/// Of a message that is received behind another by the same call, which any handler ends. No call takes this flag but the one that knows
/// it by another meaning and keeps it for itself.
pub(crate) const FURTHER: c_int = libc::MSG_WAITFORONE;

/// How often a call that does not block may find no room, and then some after all, before it ends.
const REFUSALS_MAX: u8 = 64;

impl<'a> Waiting<'a> {
    /// Of a call with these flags.
    pub(crate) fn new(stream: &'a Stream, awaited: Awaited, flags: c_int) -> Self {
        if stream.is_marked(SIGNALLED) {
            signals::drain(stream.fd);
        }
        let blocks = flags & libc::MSG_DONTWAIT == 0 && !stream.is_nonblocking();
        let limit = if blocks { stream.limit(awaited != Awaited::Room) } else { None };
        let seen = if blocks { Seen::now() } else { Seen::default() };
        Self {
            stream,
            awaited,
            blocks,
            limit,
            has_done: flags & FURTHER != 0,
            deadline: None,
            is_over: false,
            sleeper: Sleeper::new(seen),
            hold: None,
            refusals: 0,
        }
    }

    /// Whether it has ended, so that nothing more is waited for.
    fn is_over(&self) -> bool {
        self.is_over
    }

    /// Waits for what a look did not find; so many bytes were moved before. An error ends the call.
    pub(crate) fn after(&mut self, stop: Stop, done: usize) -> Result<(), Errno> {
        let result = self.wait_after(stop, done);
        self.is_over = result.is_err();
        result
    }

    /// A write that does not block found no room; whether there is some after all. Who was refused and waits for an edge, or a
    /// signal, is told of none that came before he said so.
    fn finds_room(&mut self) -> bool {
        let end = self.stream.end();
        end.note_refusal();
        self.stream.ask_for_a_signal();
        self.refusals = self.refusals.saturating_add(1);
        self.refusals < REFUSALS_MAX && end.readiness().has(Readiness::WRITABLE)
    }

    fn wait_after(&mut self, stop: Stop, done: usize) -> Result<(), Errno> {
        let is_over = arenas::is_dead(self.stream.arena).then(|| self.stream.is_over());
        match stop {
            Stop::Closed => return Err(Errno::PIPE),
            Stop::Failed(errno) => return Err(errno),
            Stop::Wait => {}
        }
        is_over.map_or(Ok(()), Err)?;
        let writes = self.awaited == Awaited::Room;
        let asked = writes && self.stream.ask_for_room();
        if !self.blocks {
            let has_room = writes && self.finds_room() || asked && self.stream.gets_room();
            return if has_room { Ok(()) } else { Err(Errno::AGAIN) };
        }
        if self.deadline.is_none() {
            self.deadline = Deadline::of(self.limit);
        }
        if self.deadline.is_some_and(Deadline::has_passed) {
            return Err(Errno::AGAIN);
        }
        if self.hold.is_none() {
            self.hold = self.stream.hold()?;
        }
        let (stream, awaited) = (self.stream, self.awaited);
        let hold = self.hold.as_ref();
        let is_ready = || stream.has(awaited) || stream.stands(hold).is_err();
        let shallow = |slice, seen| stream.sleep(awaited, slice, seen);
        let woken = self.sleeper.sleep(stream.own(), self.deadline, is_ready, shallow);
        if woken != Woken::Interrupted {
            stream.stands(hold)?;
        }
        // Who is woken because it was fused must look there.
        stream.follow();
        match woken {
            Woken::Interrupted => {
                let may_go_on = self.limit.is_none() && done == 0 && !self.has_done;
                self.sleeper.interrupted(may_go_on)?;
                stream.begins_again()
            }
            Woken::TimeOut if session::look_for_death() => Err(Errno::NETDOWN),
            Woken::Ready | Woken::TimeOut if self.stream.tells_given_up() => Err(Errno::CONNRESET),
            Woken::Ready | Woken::TimeOut => Ok(()),
        }
    }
}

impl Stream {
    /// A call that sleeps holds the socket, whoever closes it meanwhile.
    pub(crate) fn hold(&self) -> Result<Option<Hold>, Errno> {
        Hold::begin(self.fd, self.arena, self.block)
    }

    /// Its descriptor and the word behind it; `None` once another thread has closed it, and the number may be another socket's.
    fn own(&self) -> Option<(c_int, table::Word)> {
        let word = table::get(self.fd).filter(|&word| holds::is_of(word, self.arena, self.block))?;
        Some((self.fd, word))
    }

    /// Whether it is still what it was when the call began, after a sleep: another thread may have ended the connection (connect(2) with
    /// AF_UNSPEC), which says EPIPE as in Linux, or closed a socket that nothing holds.
    fn stands(&self, hold: Option<&Hold>) -> Result<(), Errno> {
        if self.is_given_up() {
            return Ok(());
        }
        // Behind the number of one that was closed may be another socket.
        let now = table::get(self.fd).filter(|_| !hold.is_some_and(Hold::is_left));
        let is_ended = now.is_some_and(|word| !holds::is_of(word, self.arena, self.block));
        if is_ended || self.end().block().generation.load(Ordering::Acquire) != self.generation {
            return Err(if now.is_some() { Errno::PIPE } else { Errno::BADF });
        }
        Ok(())
    }

    /// A call that goes on after a handler finds its descriptor anew: that may have closed it.
    fn begins_again(&self) -> Result<(), Errno> {
        self.own().map(drop).ok_or(Errno::BADF)
    }

    /// Whether what is waited for is there.
    fn has(&self, awaited: Awaited) -> bool {
        self.follow();
        self.is_given_up() || awaited.is_there(&self.end(), self.end().readiness())
    }

    /// Waits until it is there, or the stream may have been fused; for `left`, or a slice of it. A handler that has run since `seen` interrupts it.
    pub(crate) fn sleep(&self, awaited: Awaited, left: Duration, seen: Seen) -> Woken {
        let end = self.end();
        let is_there = |ready| awaited.is_there(&end, ready);
        let sleep_on = |word: &_, value, limit| seen.sleep_on(word, value, limit);
        let wait = |spin: &mut Spin| end.wait_by(awaited.events(), is_there, left, spin, sleep_on);
        match end.beside() {
            // Who passed the CPU on would be run in vain between the lane and whoever is to speak.
            None if end.has_lane_on(sys::cpu()) => wait(&mut Spin::new(1)),
            None => thread::spinning_for_lane(wait),
            Some(beside) => thread::spinning_beside(|spin| match beside.meet(sys::cpu(), spin) {
                true => wait(spin),
                false => thread::sharing(wait),
            }),
        }
    }

    /// Waits for the storage that was asked for. A connection that rests has room in its program's eyes, so a call that
    /// does not block waits for the lane's next turn, too.
    fn gets_room(&self) -> bool {
        thread::spinning(|spin| self.end().wait(Readiness::WRITABLE, ATTACHING, spin)) == Woken::Ready
    }

    /// Waits until the connection stands or failed, in a call that began when so many handlers had run.
    pub(crate) fn wait_connected(&self, seen: Seen) -> Result<(), Errno> {
        let limit = self.limit(false);
        let deadline = Deadline::of(limit);
        // A peer on this host answers in less time than a wake-up takes, unless the lane needs this very CPU.
        if !self.end().has_lane_on(sys::cpu()) {
            thread::spinning_to_connect(|spin| spin.until(|| self.end().status() != 0));
        }
        let (hold, mut sleeper) = (self.hold()?, Sleeper::new(seen));
        loop {
            if self.is_given_up() {
                return Err(Errno::CONNRESET);
            }
            self.stands(hold.as_ref())?;
            if let Some(outcome) = self.outcome() {
                return outcome;
            }
            // Another thread may have followed the next daemon.
            if session::look_for_death() || arenas::is_dead(self.arena) {
                return Err(Errno::NETDOWN);
            }
            if deadline.is_some_and(Deadline::has_passed) {
                return Err(Errno::INPROGRESS);
            }
            let is_told = || self.end().status() != 0 || self.is_given_up();
            let shallow = |slice, seen: Seen| {
                let sleep_on = |word: &_, value, limit| seen.sleep_on(word, value, limit);
                self.end().block().sleep_by(slice, is_told, sleep_on)
            };
            if sleeper.sleep(self.own(), deadline, is_told, shallow) == Woken::Interrupted {
                sleeper.interrupted(limit.is_none())?;
                self.begins_again()?;
            }
        }
    }
}
