//! A stream of a program: bytes carried between its rings in shared memory and its connection's own.
//!
//! The lane's worker does it, when the program has kicked or the connection has told; the hub does it when it opens
//! or closes. TCP works on bytes that have been copied out of the arena, so what a program changes afterwards it has
//! changed for itself alone. A closed stream lives until what was written is in the connection's ring, without
//! storage in the arena.

use std::io;
use std::net::{IpAddr, Shutdown, SocketAddr};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use firelane_lane::StreamOption;
use firelane_shm::Block;
use firelane_shm::layout::{margin, request, status};
use firelane_socket::{Flags, Ready};
use firelane_units::LaneId;

use super::Programs;
use super::arena::{EXTENT, ProgramArena};
use super::rings::{Giving, Lie, Taking};
use crate::error::io_error;
use crate::tcp_stream::TcpStream;

/// How much is carried at a time.
pub(super) const SCRATCH: usize = 64 << 10;

/// A program's stream.
#[derive(Debug)]
pub(crate) struct Ferry {
    arena: Arc<ProgramArena>,
    number: u32,
    lane: LaneId,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// `None` once the stream has ended.
    stream: Option<TcpStream>,
    taking: Taking,
    giving: Giving,
    /// What the program has been told for good ([`status`]).
    told: u64,
    shut: Shut,
    /// What was written before the program closed and is still to be carried.
    rest: Option<Vec<u8>>,
    /// It told what could not be; its connection is reset.
    lied: bool,
    /// Options that the connection takes once it is there.
    options: Vec<StreamOption>,
    /// Bytes carried since the last look for streams that rest.
    is_busy: bool,
    carried: [u64; 2],
}

/// How far the sending direction has ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Shut {
    Open,
    Asked,
    Done,
}

/// What a program is to be told.
#[derive(Clone, Copy, Debug, Default)]
struct News {
    /// Flags, and an error above.
    status: u64,
    /// Bytes to read, or room to write.
    moved: bool,
}

impl Ferry {
    /// The stream of `number`, a block of `arena`, over `stream`.
    pub(super) fn begin(
        programs: &Programs,
        arena: &Arc<ProgramArena>,
        number: u32,
        stream: TcpStream,
        options: Vec<StreamOption>,
    ) -> io::Result<Arc<Self>> {
        let lane = stream.lane();
        let block = arena.mapping().block(number).ok_or(io::ErrorKind::InvalidInput)?;
        // Where to kick must be known before there are names.
        block.rings.margin[margin::PLACE].store(u64::from(lane.0), Ordering::Relaxed);
        block.capacity.iter().for_each(|it| it.store(EXTENT as u32, Ordering::Relaxed));
        let side = programs.lanes.get(lane.index()).ok_or(io::ErrorKind::InvalidInput)?;
        let state = State {
            stream: Some(stream.clone()),
            taking: Taking::default(),
            giving: Giving::default(),
            told: 0,
            shut: Shut::Open,
            rest: None,
            lied: false,
            options,
            is_busy: true,
            carried: [0; 2],
        };
        let ferry = Arc::new(Self { arena: Arc::clone(arena), number, lane, state: Mutex::new(state) });
        // An event finds the stream in its place.
        arena.insert(number, Arc::clone(&ferry));
        side.poller.watch(&stream, u64::from(arena.place) << 32 | u64::from(number), Ready::ALL)?;
        Ok(ferry)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn block(&self) -> &Block {
        self.arena.mapping().block(self.number).expect("a stream has a block of its arena")
    }

    /// Its arena's number, and its block.
    pub(super) fn place(&self) -> (u64, u32) {
        (self.arena.arena().number(), self.number)
    }

    pub(super) fn lane(&self) -> LaneId {
        self.lane
    }

    /// The connection, for questions and options.
    pub(super) fn stream(&self) -> Option<TcpStream> {
        self.state().stream.clone()
    }

    /// Bytes that the program has sent and received.
    pub(super) fn carried(&self) -> [u64; 2] {
        self.state().carried
    }

    /// Carries what can be carried.
    pub(super) fn serve(&self, programs: &Programs, scratch: &mut [u8]) {
        let mut state = self.state();
        let outcome = match &state.rest {
            Some(_) => state.carry_rest(),
            None if state.lied => return,
            None => state.work(self, scratch),
        };
        let news = outcome.unwrap_or_else(|Lie| {
            programs.lies.fetch_add(1, Ordering::Relaxed);
            state.forsake(self)
        });
        let has_ended = state.stream.is_none();
        drop(state);
        if has_ended {
            self.arena.remove(self.number, self);
            return;
        }
        let block = self.block();
        match news.status {
            0 if !news.moved => return,
            0 => block.wake(),
            status => block.tell(status),
        }
        self.arena.tell_waiters(self.number, block);
    }

    /// The last descriptor is gone: as close(2). Storage is free afterwards; the block when all is carried.
    pub(super) fn close(&self, programs: &Programs, scratch: &mut [u8], abort: bool) {
        let mut state = self.state();
        if state.rest.is_none() && state.stream.is_some() {
            let abort = abort || state.lied;
            let unread = state.giving.unread(self.block()) != Ok(0);
            let written = if abort || unread { Ok(Vec::new()) } else { state.take_all(self, scratch) };
            if (abort || unread || written.is_err())
                && let Some(stream) = &state.stream
            {
                stream.abort();
            }
            state.rest = Some(written.unwrap_or_default());
            state.taking.end(&self.arena);
            state.giving.end(&self.arena);
        }
        drop(state);
        self.serve(programs, scratch);
    }

    /// Takes storage that has held nothing since the last call. Whether some is left.
    pub(super) fn rest(&self) -> bool {
        let mut state = self.state();
        if std::mem::take(&mut state.is_busy) || state.rest.is_some() {
            return true;
        }
        let block = self.block();
        let taken = state.taking.detach(block, &self.arena);
        let given = state.giving.detach(block, &self.arena);
        !(taken && given)
    }

    /// A session has died: what its threads held is free.
    pub(super) fn bury(&self, session: u32) {
        self.block().bury(session);
    }
}

impl State {
    fn work(&mut self, ferry: &Ferry, scratch: &mut [u8]) -> Result<News, Lie> {
        let Some(stream) = self.stream.clone() else { return Ok(News::default()) };
        let block = ferry.block();
        let mut news = News::default();
        // What was there before the rings are looked at was there before their last bytes.
        let flags = stream.flags();
        if self.told & status::CONNECTED == 0 {
            if let Some(error) = stream.take_error() {
                news.status = self.note(status::CLOSED, io_error(error).raw_os_error());
                return Ok(news);
            }
            if !flags.contains(Flags::CONNECTED) {
                let is_over = flags.contains(Flags::CLOSED) && self.told & status::CLOSED == 0;
                let aborted = rustix::io::Errno::CONNABORTED.raw_os_error();
                news.status = if is_over { self.note(status::CLOSED, Some(aborted)) } else { 0 };
                return Ok(news);
            }
            publish_names(block, &stream);
            // Options of a connection that is gone already change nothing.
            self.options.drain(..).for_each(|option| drop(stream.set_option(option)));
            self.taking.attach(block, &ferry.arena);
            news.status |= self.note(status::CONNECTED, None);
        }
        self.obey(ferry, block, &stream, &mut news);
        self.carry_out(ferry, &stream, scratch, &mut news)?;
        if self.shut == Shut::Asked && self.taking.available(block)? == 0 {
            self.shut = Shut::Done;
            // A connection that is gone needs no end.
            let _ = stream.shutdown(Shutdown::Write);
        }
        self.carry_in(ferry, &stream, scratch, flags, &mut news)?;
        Ok(news)
    }

    /// Remembers what the program is told; answers what is new.
    fn note(&mut self, flags: u64, errno: Option<i32>) -> u64 {
        let new = flags & !self.told;
        self.told |= flags;
        new | errno.map_or(0, |errno| u64::from(errno.unsigned_abs()) << status::ERROR_SHIFT)
    }

    /// What the program asks for beside the rings.
    fn obey(&mut self, ferry: &Ferry, block: &Block, stream: &TcpStream, news: &mut News) {
        let asked = block.requests.load(Ordering::Acquire);
        let once = asked & (request::WANTS_STORAGE | request::OPTIONS | request::SHUT_WRITE);
        if once == 0 {
            return;
        }
        // Options are read again once the bit is cleared, so a change after this look brings it back.
        let asked = block.requests.fetch_and(!once, Ordering::AcqRel);
        if asked & request::WANTS_STORAGE != 0 && self.taking.attach(block, &ferry.arena) {
            (self.is_busy, news.moved) = (true, true);
        }
        if asked & request::OPTIONS != 0 {
            let is_on = |bit| asked & bit != 0;
            // Options of a connection that is gone change nothing.
            let _ = stream.set_nodelay(is_on(request::NODELAY));
            let _ = stream.set_cork(is_on(request::CORK));
            let _ = stream.set_quickack(is_on(request::QUICKACK));
        }
        if asked & request::SHUT_WRITE != 0 && self.shut == Shut::Open {
            self.shut = Shut::Asked;
        }
    }

    /// From the program to the connection.
    fn carry_out(
        &mut self,
        ferry: &Ferry,
        stream: &TcpStream,
        scratch: &mut [u8],
        news: &mut News,
    ) -> Result<(), Lie> {
        let block = ferry.block();
        loop {
            let count = self.taking.available(block)?.min(scratch.len());
            if count == 0 {
                return Ok(());
            }
            let bytes = &mut scratch[..count];
            self.taking.copy(ferry.arena.mapping(), bytes);
            match stream.try_write(bytes) {
                Ok(written) => {
                    (self.is_busy, self.carried[0]) = (true, self.carried[0] + written as u64);
                    news.moved |= self.taking.release(block, written);
                    if written < count {
                        return Ok(());
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) => {
                    // Nobody will ever take these bytes.
                    self.taking.release(block, count);
                    news.status |= self.note(status::WRITE_CLOSED, error.raw_os_error());
                }
            }
        }
    }

    /// From the connection to the program.
    fn carry_in(
        &mut self,
        ferry: &Ferry,
        stream: &TcpStream,
        scratch: &mut [u8],
        flags: Flags,
        news: &mut News,
    ) -> Result<(), Lie> {
        let block = ferry.block();
        if self.told & status::PEER_CLOSED == 0 {
            loop {
                let room = (EXTENT as usize - self.giving.unread(block)?).min(scratch.len());
                if room == 0 || !stream.is_readable() {
                    break;
                }
                if !self.giving.attach(block, &ferry.arena) {
                    break;
                }
                match stream.try_read(&mut scratch[..room]) {
                    Ok(0) => {
                        news.status |= self.note(status::PEER_CLOSED, None);
                        break;
                    }
                    Ok(count) => {
                        self.giving.write(block, ferry.arena.mapping(), &scratch[..count]);
                        (self.is_busy, self.carried[1]) = (true, self.carried[1] + count as u64);
                        news.moved = true;
                    }
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                    Err(error) => {
                        news.status |= self.note(status::PEER_CLOSED, error.raw_os_error());
                        break;
                    }
                }
            }
        }
        if self.told & status::PEER_CLOSED != 0 && flags.contains(Flags::CLOSED) {
            news.status |= self.note(status::CLOSED, None);
        }
        Ok(())
    }

    /// All that the program has written and that is not yet in the connection's ring.
    fn take_all(&mut self, ferry: &Ferry, scratch: &mut [u8]) -> Result<Vec<u8>, Lie> {
        if let Some(stream) = self.stream.clone()
            && stream.flags().contains(Flags::CONNECTED)
        {
            self.carry_out(ferry, &stream, scratch, &mut News::default())?;
        }
        let mut rest = vec![0; self.taking.available(ferry.block())?];
        self.taking.copy(ferry.arena.mapping(), &mut rest);
        Ok(rest)
    }

    /// After close(2): what is left goes into the connection's ring, and then the connection is the lane's alone.
    fn carry_rest(&mut self) -> Result<News, Lie> {
        let (Some(stream), Some(rest)) = (&self.stream, &mut self.rest) else { return Ok(News::default()) };
        while !rest.is_empty() {
            match stream.try_write(rest) {
                Ok(written) => drop(rest.drain(..written)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(News::default()),
                Err(_) => rest.clear(),
            }
        }
        // What its lane has not made yet cannot be closed there; it tells when it is made.
        if stream.is_made() || stream.flags().contains(Flags::CLOSED) {
            self.stream = None;
        }
        Ok(News::default())
    }

    /// The program lies: its connection is reset and carries no more.
    fn forsake(&mut self, ferry: &Ferry) -> News {
        if let Some(stream) = &self.stream {
            stream.abort();
        }
        self.taking.end(&ferry.arena);
        self.giving.end(&ferry.arena);
        self.lied = true;
        let reset = rustix::io::Errno::CONNRESET.raw_os_error().unsigned_abs();
        let status = status::CLOSED | status::PEER_CLOSED | u64::from(reset) << status::ERROR_SHIFT;
        News { status, moved: true }
    }
}

/// The two ends' addresses, where the program looks for them.
fn publish_names(block: &Block, stream: &TcpStream) {
    let (Ok(local), Ok(remote)) = (stream.local_addr(), stream.peer_addr()) else { return };
    let words = &block.rings.margin;
    let put = |at: usize, end: SocketAddr| {
        let bits = match end.ip() {
            IpAddr::V4(address) => address.to_ipv6_mapped().to_bits(),
            IpAddr::V6(address) => address.to_bits(),
        };
        words[at].store((bits >> 64) as u64, Ordering::Relaxed);
        words[at + 1].store(bits as u64, Ordering::Relaxed);
    };
    put(margin::LOCAL, local);
    put(margin::REMOTE, remote);
    let ports = u64::from(local.port()) << 32 | u64::from(remote.port()) << 48;
    words[margin::PLACE].store(u64::from(stream.lane().0) | ports, Ordering::Relaxed);
    words[margin::BOUND].store(1, Ordering::Release);
}
