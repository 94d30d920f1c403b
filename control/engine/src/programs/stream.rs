//! A stream of a program: its connection's rings lie in the program's arena, and the lane works on them there.
//!
//! Made by `socket.rs`. What the lane says of the connection stands in words of our own; here it is copied to where the
//! program looks, and who sleeps is woken ([`Stream::tell`], in whichever thread is inside the lane). What the program
//! asks for reaches the lane by its worker ([`Stream::obey`]). Nothing that the program can write is acted on but as a
//! request about its own stream.

mod beside;
mod offered;

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use firelane_lane::{Connect, Lane, LaneMessage, SocketCommand, StreamOption, StreamOptions};
use firelane_shm::control::SocketId;
use firelane_shm::joint::Lie;
use firelane_shm::layout::{DEFERRED, LOST, SHOWN, margin, request, status};
use firelane_shm::{Block, Holder, Mapping, is_roomy};
use firelane_socket::{
    ArenaEnd, ConnRef, Flags, LeftStream, Names, Ready, SocketError, StreamConfig, stream_in,
};
use firelane_units::{Bytes, LaneId};
#[cfg(test)]
use firelane_units::{ConnId, NetstackId};
use rustix::io::Errno;

use offered::Offered;

use super::Place;
use super::arena::ProgramArena;
use super::later::Later;
use super::segment::Joined;
use super::signals::{self, Seen};
use crate::error::{io_error, lane_failed, number_of};
use crate::fabric::{EnterError, Fabric, Message};
use crate::queue::Queue;
use crate::stack::Stack;

/// Requests that are taken with their bits; options stay to be read again.
const ONCE: u64 = request::WANTS_STORAGE
    | request::WANTS_CREDIT
    | request::OPTIONS
    | request::SHUT_WRITE
    | request::SHUT_READ
    | request::TELL_PEER
    | request::RESET
    | request::PART;
/// Where the flags of a stream's words lie in [`status`].
const FLAGS_SHIFT: u32 = 16;
const _: () = assert!((Flags::CONNECTED.bits() as u64) << FLAGS_SHIFT == status::CONNECTED);
const _: () = assert!((Flags::CLOSED.bits() as u64) << FLAGS_SHIFT == status::CLOSED);
const _: () = assert!((Flags::READ_CLOSED.bits() as u64) << FLAGS_SHIFT == status::READ_CLOSED);

/// The program knows the connection's names, and its options are set.
const SETTLED: u32 = 1;
/// The program found no storage to write to.
const WANTS_STORAGE: u32 = 2;
/// The lane has been told that nobody has the socket any more.
const CLOSED: u32 = 4;
/// A limit has a say on what its program carries past the lane.
const LIMITED: u32 = 8;
/// Closing it is to reset the connection (SO_LINGER without time).
const RESETS: u32 = 16;
/// The lane knows that as much is written and unsent as the program wants.
const FULL: u32 = 32;
/// All that it carries goes by the lane, which tells of it.
const APART: u32 = 64;
/// The lane lets nothing go past it.
const PARTED: u32 = 128;
/// From where and to whom it connects is known: that was deferred until there is text for its SYN.
const DEFERS: u32 = 256;
/// Options wait, or have waited, for the connection.
const HAS_LATER: u32 = 512;
/// What a program is signalled for, beside what arrives.
const SIGNALS: u64 = (Flags::CONNECTED.bits() as u64 | Flags::PEER_CLOSED.bits() as u64) << FLAGS_SHIFT;

/// A program's stream.
#[derive(Debug)]
pub(crate) struct Stream {
    hold: ArenaEnd,
    state: AtomicU32,
    /// What the program has been told for good ([`status`]).
    told: AtomicU64,
    /// What the peer had acknowledged when the program was last told of room, and how much the ring held then.
    told_room: [AtomicU64; 2],
    /// The name of the socket that it is, which the hub gives; zero if it has none as yet.
    socket: AtomicU64,
    /// How it connects, as the lane will be told, as long as its program was only offered it: it says where to, unless that is known
    /// ([`DEFERS`]).
    offered: Mutex<Option<Box<Offered>>>,
    /// What it shares with its peer, once they could be fused.
    joined: OnceLock<Joined>,
    /// SO_SNDBUF and SO_RCVBUF.
    capacities: [AtomicU32; 2],
    /// Options that the connection takes once it is there.
    later: Mutex<Later>,
}

/// What a stream begins with beside its rings.
#[derive(Debug)]
pub(super) struct Beginning {
    /// The options that have bits of their own ([`request`]).
    pub(super) bits: u64,
    /// What its program's side is told of options that the daemon keeps ([`SHOWN`]).
    pub(super) shown: u64,
    /// How much may be written and unsent.
    pub(super) unsent: Option<u32>,
    /// How much is worth telling the program of (SO_RCVLOWAT).
    pub(super) low_water: u32,
    /// Those that only a connection takes.
    pub(super) later: Vec<StreamOption>,
    /// Whether closing it is to reset the connection.
    pub(super) resets: bool,
}

impl Stream {
    /// Begins to connect from `local`, if the program has bound that. One that `defers` waits for text for its SYN ([`DEFERRED`]).
    pub(super) fn connect(
        stack: &Stack,
        arena: &ProgramArena,
        ends: (Option<SocketAddr>, SocketAddr),
        rings: StreamConfig,
        options: StreamOptions,
        beginning: Beginning,
        defers: bool,
    ) -> io::Result<Arc<Self>> {
        let (local, remote) = ends;
        let engine = &stack.inner;
        let (lane, _placing, ()) = engine.lane_to_connect(stack.id, local, remote, |_| ())?;
        let made = stream_in(arena.rings(), rings, lane, stack.id);
        let (hold, mut slot) = made.ok_or(Errno::NOBUFS)?;
        // Without room for the text it goes behind the handshake.
        if defers && slot.attach() {
            let stream = Self::begin(arena, hold, rings, beginning);
            stream.state.fetch_or(DEFERS, Ordering::AcqRel);
            let connect = Connect { remote, local, stream: slot, options };
            *stream.offered() = Some(Box::new(Offered::deferred(connect)));
            if let Some(block) = arena.mapping().block(stream.number()) {
                block.file.fetch_or(DEFERRED, Ordering::Release);
            }
            return Ok(stream);
        }
        let stream = Self::begin(arena, hold, rings, beginning);
        let command = SocketCommand::Connect(Box::new(Connect { remote, local, stream: slot, options }));
        let entered = engine.fabric.enter_surely(lane, LaneMessage::Socket(stack.id, command));
        if entered.is_err() {
            arena.remove(&stream);
            return Err(lane_failed());
        }
        Ok(stream)
    }

    /// From which address it would connect with text in its SYN, if that is so.
    pub(super) fn source_of_text(
        stack: &Stack,
        (local, remote): (Option<SocketAddr>, SocketAddr),
        options: &StreamOptions,
    ) -> io::Result<Option<IpAddr>> {
        if !options.fast_open {
            return Ok(None);
        }
        let lane = stack.inner.lane_to_begin(stack.id)?;
        let ask = |now, lane: &mut Lane<Queue>| lane.opens_with_text(now, stack.id, local, remote, options);
        Ok(stack.inner.fabric.visit(lane, ask).flatten().map(|text| text.source))
    }

    /// Takes over a connection of a listener of the arena.
    pub(super) fn accept(
        fabric: &Fabric,
        arena: &ProgramArena,
        hold: ArenaEnd,
        rings: StreamConfig,
        beginning: Beginning,
    ) -> Arc<Self> {
        let stream = Self::begin(arena, hold, rings, beginning);
        if fabric.has_failed(stream.lane()) {
            // That was told before there was somebody to tell.
            stream.lane_failed(fabric, arena);
        }
        // What came before there was somebody to tell.
        stream.tell(fabric, arena, Ready::ALL);
        stream
    }

    /// Lets the lane look at it. If that is full, a later kick does as well.
    pub(super) fn kick(&self, fabric: &Fabric) {
        if let Some(conn) = self.conn() {
            let kick = LaneMessage::Kick { netstack: self.hold.shared().netstack(), conn };
            let _ = fabric.enter(self.lane(), kick);
        }
    }

    fn begin(arena: &ProgramArena, hold: ArenaEnd, rings: StreamConfig, beginning: Beginning) -> Arc<Self> {
        let number = hold.block();
        let capacities = [rings.send_capacity, rings.recv_capacity];
        let capacities = capacities.map(|capacity| u32::try_from(capacity).unwrap_or(u32::MAX));
        let has_later = if beginning.later.is_empty() { 0 } else { HAS_LATER };
        let stream = Arc::new(Self {
            hold,
            offered: Mutex::default(),
            joined: OnceLock::new(),
            capacities: capacities.map(AtomicU32::new),
            state: AtomicU32::new(has_later | if beginning.resets { RESETS } else { 0 }),
            told: AtomicU64::new(0),
            told_room: Default::default(),
            socket: AtomicU64::new(0),
            later: Mutex::new(Later::of(beginning.later)),
        });
        if let Some(block) = arena.mapping().block(number) {
            block.requests.store(beginning.bits, Ordering::Relaxed);
            block.file.fetch_or(beginning.shown, Ordering::Relaxed);
            block.low_water[0].store(beginning.low_water, Ordering::Relaxed);
            block.low_water[1].store(beginning.unsent.unwrap_or(0), Ordering::Relaxed);
            for (word, capacity) in block.capacity.iter().zip(capacities) {
                word.store(capacity, Ordering::Relaxed);
            }
        }
        // What is told finds the stream in its place.
        arena.insert(number, Arc::clone(&stream));
        let words = stream.hold.shared().words();
        words.set_token(Place { arena: arena.place, block: number }.token());
        words.watch(Ready::ALL);
        stream
    }

    /// Its block.
    pub(super) fn number(&self) -> u32 {
        self.hold.block()
    }

    /// Which socket it is.
    pub(super) fn socket(&self) -> Option<SocketId> {
        Some(SocketId(self.socket.load(Ordering::Relaxed))).filter(|name| name.0 != 0)
    }

    /// It is the stream of this socket.
    pub(super) fn is_of(&self, socket: SocketId) {
        self.socket.store(socket.0, Ordering::Relaxed);
    }

    pub(super) fn lane(&self) -> LaneId {
        self.hold.shared().lane()
    }

    /// The two ends' addresses, once there is a connection.
    pub(super) fn names(&self) -> Option<Names> {
        self.hold.shared().names()
    }

    /// Bytes of the program's that the peer has, and bytes that have come for it.
    pub(super) fn carried(&self) -> [u64; 2] {
        let [sent, received] = self.hold.passed();
        let [more_sent, more_received] = self.joined().map_or([0; 2], Joined::carried);
        [sent + more_sent, received + more_received]
    }

    /// The connection, once the lane has made it.
    pub(super) fn conn(&self) -> Option<ConnRef> {
        self.hold.shared().conn()
    }

    /// SO_SNDBUF and SO_RCVBUF.
    pub(super) fn capacities(&self) -> [u32; 2] {
        self.capacities.each_ref().map(|capacity| capacity.load(Ordering::Relaxed))
    }

    /// Another SO_SNDBUF, or with `receives` another SO_RCVBUF.
    pub(super) fn resize(&self, fabric: &Fabric, arena: &ProgramArena, receives: bool, bytes: usize) {
        let (at, capacity) = (usize::from(receives), u32::try_from(bytes).unwrap_or(u32::MAX));
        self.capacities[at].store(capacity, Ordering::Relaxed);
        if let Some(block) = arena.mapping().block(self.number()) {
            block.capacity[at].store(capacity, Ordering::Relaxed);
        }
        if let Some(joined) = self.joined() {
            joined.resize(receives, capacity);
            // Who waits there for room may have some.
            joined.tell_peer();
        }
        self.set_option(
            fabric,
            if receives { StreamOption::ReceiveBuffer(bytes) } else { StreamOption::SendBuffer(bytes) },
        );
        self.call(arena);
    }

    /// How far it has come, of what its program may be signalled for.
    pub(super) fn seen(&self, arena: &ProgramArena) -> Seen {
        let [_, received] = self.hold.passed();
        let block = arena.mapping().block(self.number());
        let mark = block.map_or(0, |block| block.rings.margin[margin::MARK].load(Ordering::Acquire));
        Seen { received, mark }
    }

    /// Whether there is room which its program has not found; it is signalled once.
    fn has_room_again(&self, block: &Block) -> bool {
        let [acknowledged, _] = self.hold.passed();
        let [written, limit] = self.hold.written_behind(acknowledged);
        let is_full = self.hold.shared().words().is_full();
        !is_full && is_roomy(limit.saturating_sub(written), written) && signals::ends_refusal(block)
    }

    /// Whether its program has been told that it is connected, or could not be.
    pub(super) fn has_outcome(&self) -> bool {
        self.told.load(Ordering::SeqCst) != 0
    }

    /// From now on its program needs credit for what it carries past the lane, or needs none any more.
    pub(super) fn limit(&self, arena: &ProgramArena, is_limited: bool) {
        if !is_limited && !self.has(LIMITED) && self.joined().is_none() {
            return;
        }
        match is_limited {
            true => self.state.fetch_or(LIMITED, Ordering::AcqRel),
            false => self.state.fetch_and(!LIMITED, Ordering::AcqRel),
        };
        fence(Ordering::SeqCst);
        if self.joined().is_some_and(|joined| joined.limit(is_limited)) {
            self.call(arena);
        }
    }

    /// Its program has credit for so much more.
    pub(super) fn lend(&self, fabric: &Fabric, arena: &ProgramArena, bytes: Bytes) {
        let Some(joined) = self.joined() else { return };
        let asks_again = joined.lend(bytes);
        self.call(arena);
        if asks_again && let Some(block) = arena.mapping().block(self.number()) {
            block.requests.fetch_or(request::WANTS_CREDIT, Ordering::AcqRel);
            self.kick_for(fabric, arena);
        }
    }

    /// As if the program had kicked now. This may run inside the lane, which cannot be entered again.
    pub(super) fn kick_for(&self, fabric: &Fabric, arena: &ProgramArena) {
        if arena.inbox(self.lane()).is_some_and(|inbox| inbox.tell(self.number()).is_some()) {
            fabric.bell(self.lane()).ring();
        }
    }

    /// Its socket is without a connection from here on. Processes that know it by these words, and are not told of that, see a connection that
    /// was reset, unless it has ended by itself: one that waits to be connected ends by that, too.
    pub(super) fn dissolve(&self, arena: &ProgramArena) {
        let has_ended = self.hold.shared().words().flags().contains(Flags::CLOSED);
        if let Some(block) = arena.mapping().block(self.number()).filter(|_| !has_ended) {
            let flags = u64::from(Flags::CLOSED.bits()) << FLAGS_SHIFT;
            block.note(flags | number_of(&Errno::CONNRESET.into()) << status::ERROR_SHIFT);
        }
        self.call(arena);
    }

    /// Wakes whoever of its program waits for it.
    pub(super) fn call(&self, arena: &ProgramArena) {
        let Some(block) = arena.mapping().block(self.number()) else { return };
        self.wake(block);
        arena.tell_waiters(self.number(), block);
    }

    /// Whether any of them was asleep.
    fn wake(&self, block: &Block) -> bool {
        let was_asleep = block.wake();
        self.joined().is_some_and(|joined| joined.wake()) || was_asleep
    }

    /// A session has died: frees what its threads held. What they had written and not told is told.
    pub(super) fn bury(&self, block: &Block, session: u32) {
        let has_held = block.bury(session);
        if let Some(joined) = self.joined()
            && (has_held || joined.may_be_untold())
        {
            joined.tell_peer();
        }
    }

    fn has(&self, bit: u32) -> bool {
        self.state.load(Ordering::Acquire) & bit != 0
    }

    fn message(&self, command: SocketCommand) -> Message {
        LaneMessage::Socket(self.hold.shared().netstack(), command)
    }

    /// The lane has news of the stream, or may have had some: what the program sees is brought up to date, and who sleeps
    /// for it is woken. Whether somebody was.
    pub(super) fn tell(&self, fabric: &Fabric, arena: &ProgramArena, ready: Ready) -> bool {
        self.tell_or(fabric, arena, ready, 0)
    }

    /// The same, with the number of an error that counts if the lane has told none.
    fn tell_or(&self, fabric: &Fabric, arena: &ProgramArena, ready: Ready, failure: u64) -> bool {
        let Some(block) = arena.mapping().block(self.number()) else { return false };
        let words = self.hold.shared().words();
        // Before the names: who sees that it is connected finds them.
        let flags = u64::from(words.flags().bits()) << FLAGS_SHIFT;
        if !self.has(SETTLED) {
            self.settle(fabric, arena, block);
        }
        let error = match words.take_error() {
            // Of the reset that lost text brings the program was told when that text was ([`Self::give_joint_up`]).
            Some(_) if block.file.load(Ordering::SeqCst) & LOST != 0 => 0,
            Some(error) => self.number_of(error),
            None => failure,
        };
        let new = flags & !self.told.load(Ordering::Relaxed);
        let is_relieved = self.is_relieved(block);
        let is_new = new != 0 || error != 0;
        if is_new {
            // Before it looks at the segment, in one order with [`Self::join`].
            self.told.fetch_or(flags, Ordering::SeqCst);
            block.note(flags | error << status::ERROR_SHIFT);
        }
        let mut has_woken = false;
        if is_new || self.has_moved(ready) || is_relieved {
            has_woken = self.wake(block);
            has_woken |= arena.tell_waiters(self.number(), block);
        }
        let is_ready = error != 0 || new & SIGNALS != 0;
        arena.signals.tell(self.number(), is_ready, || (self.seen(arena), self.has_room_again(block)));
        has_woken
    }

    /// Its lane is out of service: who waits for it is told, and nothing more happens.
    pub(super) fn lane_failed(&self, fabric: &Fabric, arena: &ProgramArena) {
        let words = self.hold.shared().words();
        if !self.has(CLOSED) && !words.flags().contains(Flags::CLOSED) {
            words.set_flags(Flags::CLOSED);
            self.tell_or(fabric, arena, Ready::ALL, number_of(&lane_failed()));
            // Nobody takes what its program asks of the lane.
            if let Some(block) = arena.mapping().block(self.number()) {
                let _ = self.give_joint_up(block);
            }
        }
    }

    fn number_of(&self, error: SocketError) -> u64 {
        number_of(&if self.hold.has_lied() { Errno::CONNRESET.into() } else { io_error(error) })
    }

    /// Whether there may be somebody to wake: text came, or so much was acknowledged, or the ring has grown so, that there
    /// is room where there was none. Whoever found room before does not wait for more.
    fn has_moved(&self, ready: Ready) -> bool {
        let [acknowledged, _] = self.hold.passed();
        let [written, limit] = self.hold.written_behind(acknowledged);
        let [told, told_limit] = &self.told_room;
        // If two tell it at once, the next one takes more for new than is: at worst somebody is woken for nothing.
        let more = acknowledged.wrapping_sub(told.load(Ordering::Relaxed));
        told.store(acknowledged, Ordering::Relaxed);
        let old_limit = told_limit.load(Ordering::Relaxed);
        told_limit.store(limit, Ordering::Relaxed);
        if ready != Ready::WRITABLE {
            return true;
        }
        let had_no_storage = self.has(WANTS_STORAGE)
            && self.state.fetch_and(!WANTS_STORAGE, Ordering::AcqRel) & WANTS_STORAGE != 0;
        let roomy = |written: u64, limit: u64| is_roomy(limit.saturating_sub(written), written);
        had_no_storage || (!roomy(written.wrapping_add(more), old_limit) && roomy(written, limit))
    }

    /// Whether so much was sent that the program, which wanted no more to be unsent, may write on. It sees so.
    fn is_relieved(&self, block: &Block) -> bool {
        let is_relieved = self.has(FULL) && !self.hold.shared().words().is_full();
        if is_relieved {
            self.state.fetch_and(!FULL, Ordering::AcqRel);
            block.requests.fetch_and(!request::FULL, Ordering::AcqRel);
        }
        is_relieved
    }

    /// The connection may have been made: shows its names, sets its options, and does what was asked for before.
    fn settle(&self, fabric: &Fabric, arena: &ProgramArena, block: &Block) {
        if !self.hold.publish_names() {
            return;
        }
        // Who sets one meanwhile says so and then looks for the connection: he finds it, or is found.
        self.state.fetch_or(SETTLED, Ordering::SeqCst);
        if self.has(HAS_LATER) {
            self.tell_later(fabric);
        }
        if block.requests.load(Ordering::Acquire) & (ONCE | request::CLOSE) != 0 {
            self.kick_for(fabric, arena);
        }
    }

    /// Tells the connection, if it is there, of the options that have waited for it.
    fn tell_later(&self, fabric: &Fabric) {
        // This may run inside the lane, so a full squeue is not waited for: the next news tries again.
        self.tell_later_by(|message| fabric.enter(self.lane(), message) != Err(EnterError::Full));
    }

    fn tell_later_by(&self, tell: impl Fn(Message) -> bool) {
        let Some(conn) = self.conn() else { return };
        // Who enters the lane here may have news of this stream there, so nothing is locked meanwhile.
        let next = || self.later().take_first();
        while let Some(option) = next() {
            if !tell(self.message(SocketCommand::SetOption(conn, option))) {
                self.later().put_back(option);
                self.state.fetch_and(!SETTLED, Ordering::AcqRel);
                return;
            }
        }
    }

    fn later(&self) -> MutexGuard<'_, Later> {
        self.later.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the program has kicked for nothing but that it has closed the socket, which is fused: the joint tells the other end of that,
    /// or it is reset a moment later.
    pub(super) fn can_close_later(&self, block: &Block) -> bool {
        let asked = block.requests.load(Ordering::Acquire);
        asked & (request::CLOSE | ONCE) == request::CLOSE && self.joined().is_some()
    }

    /// The program has kicked: what it asks for goes to the lane. Whether it has begun the connection so, or closed the socket, and that
    /// was not known.
    pub(super) fn obey(
        &self,
        fabric: &Fabric,
        (block, mapping): (&Block, &Mapping),
        may_begin: impl Fn() -> bool,
        mut give: impl FnMut(Message),
    ) -> bool {
        let begun = match self.hold.shared().conn() {
            Some(_) => None,
            None if self.says_where(block) && !may_begin() => return false,
            None => self.take_offer(block, mapping).map(&mut give),
        };
        // Requests stay where they are until there is a connection.
        let Some(conn) = self.hold.shared().conn() else {
            let is_closed = block.requests.load(Ordering::Acquire) & request::CLOSE != 0;
            return begun.is_some() || is_closed && self.drops_deferred();
        };
        let mut asked = block.requests.load(Ordering::Acquire);
        if asked & ONCE != 0 {
            // Options are read again once the bit is cleared, so a change after this look brings it back.
            asked = block.requests.fetch_and(!ONCE, Ordering::AcqRel);
        }
        if asked & request::WANTS_STORAGE != 0 {
            self.state.fetch_or(WANTS_STORAGE, Ordering::AcqRel);
        }
        if asked & request::OPTIONS != 0 {
            let is_on = |bit| asked & bit != 0;
            for option in [
                StreamOption::Nodelay(is_on(request::NODELAY)),
                StreamOption::Cork(is_on(request::CORK)),
                StreamOption::QuickAck(is_on(request::QUICKACK)),
            ] {
                if self.has(HAS_LATER) {
                    self.later().overrule(option);
                }
                give(self.message(SocketCommand::SetOption(conn, option)));
            }
        }
        self.obey_beside((conn, block), asked, &mut give);
        if asked & request::RESET != 0 {
            // The lane resets a connection of whose memory was lied, and counts it.
            self.hold.note_lie();
        }
        if asked & request::FULL != 0 && !self.has(FULL) {
            // In this order: who tells the program something meanwhile takes back only what the lane has seen.
            self.hold.shared().words().fill();
            self.state.fetch_or(FULL, Ordering::AcqRel);
        }
        give(LaneMessage::Kick { netstack: self.hold.shared().netstack(), conn });
        if asked & request::SHUT_READ != 0 {
            give(self.message(SocketCommand::ShutdownRead(conn)));
        }
        if asked & request::SHUT_WRITE != 0 {
            self.hold.shared().words().set_flags(Flags::WRITE_CLOSED);
            give(self.message(SocketCommand::Shutdown(conn)));
        }
        (asked & request::CLOSE != 0 && self.leave(fabric, conn, give)) || begun.is_some()
    }

    /// The same as [`Stream::close`] for the lane's worker, inside its lane. Whether nobody had done it.
    fn leave(&self, fabric: &Fabric, conn: ConnRef, mut give: impl FnMut(Message)) -> bool {
        let Some(leaves_text) = self.begin_close() else { return false };
        match self.joined().map_or(Ok([0; 2]), |joined| joined.take_carried(|| fabric.now())) {
            Ok([0, 0]) => {}
            Ok(carried) => give(LaneMessage::Carried(conn, carried)),
            Err(Lie) => {
                self.hold.note_lie();
                give(LaneMessage::Kick { netstack: self.hold.shared().netstack(), conn });
            }
        }
        let resets = leaves_text || self.has(RESETS);
        self.closing(conn, resets).for_each(|command| give(self.message(command)));
        true
    }

    /// Whether the program says by its words that it has closed the socket, whose descriptor makes another one.
    pub(super) fn is_left(&self, arena: &ProgramArena) -> bool {
        let block = arena.mapping().block(self.number());
        block.is_some_and(|block| block.requests.load(Ordering::Acquire) & request::CLOSE != 0)
    }

    /// Changes one option, for what is written from here on: the lane may be sending, and would see new text before what waits for it. One
    /// that says nothing of text is left to the lane: servers set them on each connection, and to wait for the lane is what that costs.
    /// A connection that is not there yet takes what it can when it is; one that is gone changes nothing.
    pub(super) fn set_option(&self, fabric: &Fabric, option: StreamOption) {
        match self.hold.shared().conn() {
            Some(conn) => {
                if self.has(HAS_LATER) {
                    self.later().overrule(option);
                }
                if let StreamOption::Dscp(..) = option {
                    // What was carried up to now was marked as before, and is of the flows that it was in.
                    self.count_fused(fabric);
                }
                let is_of_silence = option.is_of_silence();
                let message = self.message(SocketCommand::SetOption(conn, option));
                // A lane that has failed has no connections left.
                let _ = match is_of_silence {
                    true => fabric.enter_surely(self.lane(), message),
                    false => fabric.change(self.lane(), message),
                };
            }
            None => {
                self.later().put(option);
                self.state.fetch_or(HAS_LATER, Ordering::SeqCst);
                // A lane that has failed has no connections left.
                let change = |message| {
                    let _ = fabric.change(self.lane(), message);
                    true
                };
                self.tell_later_by(change);
            }
        }
    }

    /// Tells the program's side of options that the daemon keeps ([`Beginning::shown`]).
    pub(super) fn show(&self, arena: &ProgramArena, shown: u64) {
        let Some(block) = arena.mapping().block(self.number()) else { return };
        block.file.fetch_or(shown, Ordering::Relaxed);
        block.file.fetch_and(shown | !SHOWN, Ordering::Relaxed);
    }

    /// So much may be written and unsent from now on; the lane is told beside this.
    pub(super) fn limit_unsent(&self, arena: &ProgramArena, limit: Option<u32>) {
        let Some(block) = arena.mapping().block(self.number()) else { return };
        let limit = limit.unwrap_or(0);
        if block.low_water[1].swap(limit, Ordering::SeqCst) != limit {
            self.call(arena);
        }
    }

    /// Whether closing it is to reset the connection.
    pub(super) fn set_resets(&self, resets: bool) {
        match resets {
            true => self.state.fetch_or(RESETS, Ordering::AcqRel),
            false => self.state.fetch_and(!RESETS, Ordering::AcqRel),
        };
    }

    /// What the program is about to write up to `end` is urgent: the lane knows it before it can see the text.
    pub(super) fn mark_urgent(&self, fabric: &Fabric, end: u64) -> io::Result<()> {
        let conn = self.conn().ok_or(io::ErrorKind::NotConnected)?;
        let tell = |now, lane: &mut Lane<Queue>| {
            lane.on_message(now, self.message(SocketCommand::Urgent(conn, end)));
        };
        fabric.visit(self.lane(), tell).ok_or_else(lane_failed)
    }

    /// The last descriptor is gone: as close(2), or a reset. Whether the lane knows; if not, it is still making the
    /// connection, and this is to be called again.
    pub(super) fn close(&self, fabric: &Fabric, resets: bool) -> bool {
        let shared = self.hold.shared();
        if self.has(CLOSED) {
            return true;
        }
        if self.drops_deferred() {
            return true;
        }
        let Some(conn) = shared.conn() else { return shared.words().flags().contains(Flags::CLOSED) };
        let Some(leaves_text) = self.begin_close() else { return true };
        self.count_fused(fabric);
        for command in self.closing(conn, resets || leaves_text) {
            // A lane that has failed has no connections left to close.
            let _ = fabric.enter_surely(self.lane(), self.message(command));
        }
        true
    }

    /// From here on nobody has the socket any more, and whoever is answered closes the connection: whether text is left that
    /// nobody will read.
    fn begin_close(&self) -> Option<bool> {
        let is_first = self.state.fetch_or(CLOSED, Ordering::AcqRel) & CLOSED == 0;
        is_first.then(|| {
            self.hold.shared().words().watch(Ready::NONE);
            self.joined().is_some_and(Joined::close)
        })
    }

    /// What a lane is told of a connection that nobody has any more.
    fn closing(&self, conn: ConnRef, resets: bool) -> impl Iterator<Item = SocketCommand> {
        // Who has seen the end before he wrote, finds what TCP says behind an end.
        let has_ended = self.joined().is_some_and(Joined::has_ended);
        let shutdown = has_ended.then_some(SocketCommand::Shutdown(conn));
        let abort = resets.then_some(SocketCommand::Abort(conn));
        shutdown.into_iter().chain(abort).chain([SocketCommand::Close(conn)])
    }

    /// Its connection, if that may outlive it.
    pub(super) fn left(&self) -> Option<LeftStream> {
        let shared = self.hold.shared();
        let goes_on = shared.conn().is_some() && !shared.words().flags().contains(Flags::CLOSED);
        goes_on.then(|| self.hold.left())
    }

    /// Whether a thread of a living session may be inside, so that the block must not be anybody else's yet.
    pub(super) fn is_entered(&self, arena: &ProgramArena, lives: impl Fn(u32) -> bool) -> bool {
        let Some(block) = arena.mapping().block(self.number()) else { return false };
        [&block.send_owner, &block.recv_owner].into_iter().any(|word| {
            Holder::of_word(word.load(Ordering::Acquire)).is_some_and(|holder| lives(holder.session()))
        })
    }
}

#[cfg(test)]
impl Stream {
    /// The stream of a program whose lane has made connection `nth` for it.
    pub(super) fn connected(arena: &Arc<ProgramArena>, nth: u32) -> Arc<Self> {
        let rings = StreamConfig::default();
        let (hold, slot) = stream_in(arena.rings(), rings, LaneId(0), NetstackId(0)).expect("there is room");
        let end = SocketAddr::from(([127, 0, 0, 1], 80));
        let conn = ConnRef { conn: ConnId(nth), generation: 1 };
        slot.shared().bind(conn, Names { local: end, remote: end });
        let beginning =
            Beginning { bits: 0, shown: 0, unsent: None, low_water: 1, later: Vec::new(), resets: false };
        Self::begin(arena, hold, rings, beginning)
    }
}
