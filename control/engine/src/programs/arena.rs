//! One program's arena, as the engine keeps it: whose stream each block is, and who is to be told.
//!
//! What is free of blocks and storage is the affair of `base/frame` ([`Arena::rings`]).

use std::cell::OnceCell;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard};

use firelane_frame::{ArenaPair, RingArena};
use firelane_lane::{LaneMessage, SocketCommand};
use firelane_shm::layout::Inbox;
use firelane_shm::{AcceptQueue, Arena, Block, Layout, Mapping, set_bits};
use firelane_units::LaneId;

use super::WORDS_PER_TURN;
use super::datagrams::DatagramTable;
use super::remains::Closed;
use super::segment::Joined;
use super::session::{Kin, Limits};
use super::signals::Signals;
use super::space::{Space, Taken};
use super::stream::Stream;
use super::waiters::Waiters;
use crate::fabric::{Fabric, Message};

/// So many streams are gone through at a time.
const AT_ONCE: usize = 256;
/// With so many blocks that are nobody's, or another lane's, a program has no more looks in a turn of a lane: it may set bits by the thousand
/// at no cost, also in the inboxes of lanes where it has nothing.
const VAIN_MAX: u32 = 64;

/// Whose stream each block is.
pub(super) type StreamTable = Vec<Option<Arc<Stream>>>;

/// An arena.
#[derive(Debug)]
pub(crate) struct ProgramArena {
    arena: Arena,
    /// What it takes of the daemon's address space.
    taken: Taken,
    /// How much of its program's address space it may take.
    pub(super) room: u64,
    /// How much memory its program's buffers may take at a time.
    pub(super) memory: u64,
    /// Who sees it, if they are all of one kin.
    kin: Mutex<Option<Kin>>,
    /// Its place among the engine's arenas.
    pub(super) place: u32,
    streams: RwLock<StreamTable>,
    pub(super) datagrams: DatagramTable,
    pub(super) waiters: Waiters,
    /// Which programs are signalled.
    pub(super) signals: Signals,
    /// Streams that programs have closed by their words, for who keeps the books of sockets.
    left: Mutex<Vec<u32>>,
    /// The hub has been told that there are some.
    is_leaving: AtomicBool,
    /// Those that lanes may still have.
    closed: Mutex<Closed>,
    /// Blocks of listeners that are closed. Only another listener gets one: a program's thread may still be on its way out of
    /// `accept`, and the words that it changes are no stream's.
    queues: Mutex<Vec<ArenaPair>>,
}

/// Whether a program shuts an end of a stream down.
const fn is_shutdown(message: &Message) -> bool {
    matches!(message, LaneMessage::Socket(_, SocketCommand::Shutdown(_) | SocketCommand::ShutdownRead(_)))
}

impl ProgramArena {
    /// Makes one in the daemon's space for so many lanes, within the limits of its program, which is of this kin.
    pub(super) fn new(
        space: &Space,
        lanes: usize,
        place: u32,
        number: u64,
        limits: Limits,
        kin: Option<Kin>,
    ) -> io::Result<Self> {
        let lanes = u32::try_from(lanes).unwrap_or(u32::MAX);
        let layout = Layout::new(lanes).within(limits.room).ok_or_else(|| too_little(limits.room))?;
        let layout = layout.within(space.share()).ok_or_else(too_many)?;
        let quota = limits.memory.min(layout.storage_bytes);
        let arena = Arena::create_within(layout, number, quota).map_err(io::Error::other)?;
        Ok(Self {
            arena,
            taken: space.take(layout.len()),
            room: limits.room,
            memory: limits.memory,
            kin: Mutex::new(kin),
            place,
            streams: RwLock::default(),
            datagrams: DatagramTable::default(),
            waiters: Waiters::default(),
            signals: Signals::default(),
            left: Mutex::default(),
            is_leaving: AtomicBool::new(false),
            closed: Mutex::default(),
            queues: Mutex::default(),
        })
    }

    /// The memfd, and its number.
    pub(super) fn arena(&self) -> &Arena {
        &self.arena
    }

    /// What is left of it when it is nobody's, and what that takes of the daemon's address space.
    pub(super) fn into_arena(self) -> (Arena, Taken) {
        (self.arena, self.taken)
    }

    /// Who sees it, if they are all of one kin.
    pub(super) fn kin(&self) -> Option<Kin> {
        *self.kin.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A program of this kin sees it, too.
    pub(super) fn show_to(&self, kin: Option<Kin>) {
        let mut own = self.kin.lock().unwrap_or_else(PoisonError::into_inner);
        *own = own.filter(|_| *own == kin);
    }

    pub(super) fn mapping(&self) -> &Mapping {
        self.arena.mapping()
    }

    /// What programs tell `lane`.
    pub(super) fn inbox(&self, lane: LaneId) -> Option<&Inbox> {
        self.mapping().lane(u32::from(lane.0))
    }

    /// Whether programs have told `lane` something that it has not taken.
    #[inline]
    pub(super) fn has_news(&self, lane: LaneId) -> bool {
        self.inbox(lane).is_some_and(|inbox| inbox.news.any())
    }

    /// Its blocks and storage.
    pub(super) fn rings(&self) -> &Arc<RingArena> {
        self.arena.rings()
    }

    pub(super) fn streams(&self) -> RwLockReadGuard<'_, StreamTable> {
        self.streams.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does something with each stream that is there all the while. There may be very many, and a lane that takes a connection waits for a
    /// few of them at most.
    fn each_stream(&self, act: impl FnMut(&Arc<Stream>)) {
        let (mut act, mut from) = (act, 0);
        loop {
            let streams = self.streams();
            let Some(some) = streams.get(from..).filter(|left| !left.is_empty()) else { return };
            some.iter().take(AT_ONCE).flatten().for_each(&mut act);
            from += AT_ONCE;
        }
    }

    /// Does something with the stream of a block, if it is anybody's. Whether it is.
    pub(super) fn with_stream(&self, block: u32, act: impl FnOnce(&Stream)) -> bool {
        self.streams().get(block as usize).and_then(Option::as_deref).map(act).is_some()
    }

    /// Those of them that are wanted.
    fn streams_that(&self, are_wanted: impl Fn(&Stream) -> bool) -> Vec<Arc<Stream>> {
        let mut wanted = Vec::new();
        self.each_stream(|stream| {
            if are_wanted(stream) {
                wanted.push(Arc::clone(stream));
            }
        });
        wanted
    }

    /// Those whose programs have carried text past the lane that is not counted.
    pub(super) fn uncounted(&self) -> Vec<Arc<Stream>> {
        self.streams_that(|stream| stream.joined().is_some_and(Joined::is_uncounted))
    }

    /// A lane is out of service: who waits for a socket of it is told.
    pub(super) fn lane_failed(&self, fabric: &Fabric, lane: LaneId) {
        let there = self.streams_that(|stream| stream.lane() == lane);
        there.iter().for_each(|stream| stream.lane_failed(fabric, self));
        self.datagrams.each(|socket| {
            if socket.lane() == lane {
                socket.lane_failed(self);
            }
        });
    }

    /// A session has died: what its threads held of streams is free.
    pub(super) fn bury(&self, session: u32) {
        self.each_stream(|stream| {
            if let Some(block) = self.mapping().block(stream.number()) {
                stream.bury(block, session);
            }
        });
        self.datagrams.each(|socket| {
            if let Some(block) = self.mapping().block(socket.number()) {
                block.bury(session);
            }
        });
    }

    /// The stream of a block.
    pub(super) fn stream(&self, block: u32) -> Option<Arc<Stream>> {
        self.streams().get(block as usize)?.clone()
    }

    pub(super) fn insert(&self, block: u32, stream: Arc<Stream>) {
        let mut streams = self.streams.write().unwrap_or_else(PoisonError::into_inner);
        let place = block as usize;
        if streams.len() <= place {
            streams.resize(place + 1, None);
        }
        streams[place] = Some(stream);
    }

    /// A stream has ended. The block is free when its hold is dropped, so nobody else's can be there.
    pub(super) fn remove(&self, stream: &Stream) {
        self.waiters.forget(stream.number());
        let mut streams = self.streams.write().unwrap_or_else(PoisonError::into_inner);
        let gone = streams.get_mut(stream.number() as usize).and_then(Option::take);
        drop((streams, gone));
    }

    /// Streams that nobody has any more, and lanes may have.
    pub(super) fn closed(&self) -> MutexGuard<'_, Closed> {
        self.closed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What programs have kicked `lane` for is given to it, but for closings that can wait: those are for `later`. How many streams
    /// were closed, if anybody had kicked. Connections that it may not begin are left to the hub.
    pub(super) fn take_kicks(
        &self,
        lane: LaneId,
        fabric: &Fabric,
        may_begin: impl Fn() -> bool,
        mut later: impl FnMut(u32),
        mut give: impl FnMut(Message),
    ) -> Option<usize> {
        let (mut closed, mut vain) = (None, 0);
        let inbox = self.inbox(lane)?;
        for _ in 0..WORDS_PER_TURN {
            if vain >= VAIN_MAX {
                return closed;
            }
            let Some((first, bits)) = inbox.news.take_near() else { return closed };
            let closed = closed.get_or_insert(0);
            // What is asked behind this look at the bits is good for all of them, for who sets one has said before what he wants.
            let said = OnceCell::new();
            let may_begin = || *said.get_or_init(&may_begin);
            let streams = self.streams();
            for number in set_bits(bits).map(|bit| first + bit) {
                // Programs may name blocks that nobody has.
                let stream = streams.get(number as usize).and_then(Option::as_ref);
                if let Some(moved) = stream.filter(|stream| stream.lane() != lane) {
                    // Another lane makes, or has made, its connection: its program is shown that with the outcome.
                    moved.kick_for(fabric, self);
                    vain += 1;
                    continue;
                }
                if let Some(stream) = stream
                    && let Some(block) = self.mapping().block(number)
                {
                    let mut has_news = Stream::is_asked_to_part(block);
                    let note = |message: Message| {
                        has_news |= is_shutdown(&message);
                        give(message);
                    };
                    if stream.can_close_later(block) {
                        later(number);
                    } else if stream.obey(fabric, (block, self.mapping()), may_begin, note) {
                        self.left().push(number);
                        *closed += 1;
                    }
                    if has_news {
                        // Whoever waits for it hears of that, as in Linux (`inet_shutdown`); the lane has no news of its own.
                        stream.call(self);
                    }
                    continue;
                }
                vain += u32::from(!self.kick_datagrams(lane, number, &mut give));
            }
        }
        closed
    }

    /// The same of one datagram socket. Whether it is one of the lane's.
    fn kick_datagrams(&self, lane: LaneId, number: u32, give: impl FnMut(Message)) -> bool {
        let mut is_one = false;
        self.datagrams.with(number, |socket| {
            if let Some(block) = self.mapping().block(number).filter(|_| socket.lane() == lane) {
                is_one = true;
                socket.obey(self, block, give);
            }
        });
        is_one
    }

    /// What was left for later is given to `lane`. Whether the stream was closed so: somebody else may have done it.
    pub(super) fn close(
        &self,
        lane: LaneId,
        fabric: &Fabric,
        number: u32,
        give: impl FnMut(Message),
    ) -> bool {
        let stream = self.stream(number).filter(|stream| stream.lane() == lane);
        let closed = stream
            .zip(self.mapping().block(number))
            .is_some_and(|(stream, block)| stream.obey(fabric, (block, self.mapping()), || true, give));
        if closed {
            self.left().push(number);
        }
        closed
    }

    /// A block for a listener's words ([`firelane_shm::AcceptQueue`]), if there is any.
    pub(super) fn take_queue(&self) -> Option<ArenaPair> {
        let mut earlier = self.queues.lock().unwrap_or_else(PoisonError::into_inner);
        let is_unwatched = |block: &ArenaPair| {
            self.mapping().accept_queue(block.block()).is_some_and(AcceptQueue::is_unwatched)
        };
        // Where somebody has died who watched, all connections would be told by messages.
        let best = earlier.iter().rposition(is_unwatched).map(|at| earlier.swap_remove(at));
        best.or_else(|| self.rings().take_alone()).or_else(|| earlier.pop())
    }

    /// The listener is closed.
    pub(super) fn give_queue(&self, block: ArenaPair) {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner).push(block);
    }

    fn left(&self) -> MutexGuard<'_, Vec<u32>> {
        self.left.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives out which streams programs have closed by their words since it was last asked, for what `room` has room for.
    pub(super) fn take_left(&self, room: &mut Vec<u32>) {
        // The lane finds room for as many again.
        std::mem::swap(&mut *self.left(), room);
    }

    /// Whether there are some that the hub has yet to be told of: the caller does it.
    pub(super) fn has_new_left(&self) -> bool {
        !self.is_leaving.swap(true, Ordering::AcqRel)
    }

    /// The hub knows, and is about to take them.
    pub(super) fn left_are_known(&self) {
        self.is_leaving.store(false, Ordering::Release);
    }

    /// Tells whoever waits for one of many sockets that `block` has news.
    pub(super) fn tell_waiters(&self, number: u32, block: &Block) -> bool {
        self.tell_marked(block.waiters.load(Ordering::SeqCst), number)
    }

    /// Tells those with these slots that `block` has news. Whether one of them slept.
    pub(super) fn tell_marked(&self, slots: u64, block: u32) -> bool {
        self.waiters.tell(self.mapping(), slots, block)
    }
}

fn too_many() -> io::Error {
    io::Error::other("programs share all of the daemon's address space that is for that with it")
}

fn too_little(room: u64) -> io::Error {
    let text = format!(
        "its address space has {room} bytes for what sockets share with the daemon, which is too little"
    );
    io::Error::other(text)
}
