//! What lies where in an arena. Both ends check magic, version and sizes; `docs/shm.md` has the picture.
//!
//! The offsets are the interface: a change of any of them is a new [`VERSION`].

use core::net::Ipv6Addr;

use firelane_frame::RingWords;

use crate::bits::Bits;
use crate::offers::{OFFERS, Offers};
use crate::order::Order;
use crate::sync::{AtomicU32, AtomicU64, Ordering};
use crate::untold::Untold;
use crate::wait::Sleep;

/// The first word of an arena.
pub const MAGIC: u64 = u64::from_le_bytes(*b"firelane");
/// The version of layout and messages. Two ends of different versions do not talk.
pub const VERSION: u32 = 30;
/// The unit in which storage is given out, and the kernel's page.
pub const PAGE: u64 = 4096;
/// The most blocks of an arena: what the three levels of an inbox name.
pub const BLOCKS_MAX: u32 = 64 * 64 * 64;
/// The most lanes.
pub const LANES_MAX: u32 = 64;
/// Waiter slots of an arena: one bit each in [`Block::waiters`].
pub const SLOTS: u32 = 64;
/// The slot that is shared by all waiters who found no other.
pub const SLOT_SHARED: u32 = SLOTS - 1;
/// The least storage of a ring, by its power of two.
pub const STORAGE_MIN_SHIFT: u32 = 12;

/// The first page: written once, by the daemon, before anybody else sees it.
#[repr(C)]
#[derive(Debug, Default)]
pub struct Header {
    /// [`MAGIC`].
    pub magic: AtomicU64,
    /// [`VERSION`].
    pub version: AtomicU32,
    /// How many lanes have an inbox.
    pub lanes: AtomicU32,
    /// How many blocks there are.
    pub blocks: AtomicU32,
    /// The size of a block, for tools.
    pub block_bytes: AtomicU32,
    /// The arena's number, one of its kind while the daemon runs.
    pub arena: AtomicU64,
    /// The bytes of storage behind the blocks.
    pub storage_bytes: AtomicU64,
    /// The whole.
    pub len: AtomicU64,
    /// `CLOCK_MONOTONIC` in nanoseconds when the lanes' clock was at zero. Datagrams say by the lanes' when they arrived.
    pub clock_start: AtomicU64,
}

impl Block {
    /// Program, who has taken the block: it is to be a connection of `socket` to this address. With [`request::UNTOLD`] in `with` options
    /// lie beside the offer; those of them that the lane reads from these words are its other bits. The caller kicks the lane.
    pub fn ask_to_connect(&self, socket: u64, ip: Ipv6Addr, port: u16, with: u64) {
        let bits = ip.to_bits();
        self.told_at.store((bits >> 64) as u64, Ordering::Relaxed);
        self.urgent.store(bits as u64, Ordering::Relaxed);
        self.taken_as.store(socket, Ordering::Relaxed);
        self.file.fetch_or(TAKEN, Ordering::Relaxed);
        let port = u64::from(port) << request::PORT_SHIFT;
        self.requests.fetch_or(request::CONNECT | port | with, Ordering::Release);
    }

    /// Program, who has taken the connection from its listener's queue, or has read the message about it: it is this session's, with which
    /// it ends, until a socket's name is there.
    pub fn is_taken_by(&self, session: u32) {
        self.taken_as.store(TAKER | u64::from(session), Ordering::Release);
    }

    /// Daemon: the socket that the connection is, or the session that is about to say which, as the program says; no socket is
    /// zero.
    pub fn taker(&self) -> Taker {
        match self.taken_as.load(Ordering::Acquire) {
            word if word >> TAKER.trailing_zeros() == 1 => Taker::Session(word as u32),
            name => Taker::Socket(name),
        }
    }

    /// Daemon: whether a program has shut an end down, and whoever waits is to hear of it.
    pub fn asks_to_shut(&self) -> bool {
        self.requests.load(Ordering::Relaxed) & request::SHUTS != 0
    }

    /// Daemon: whether a program writes no more, of which its lane has yet to hear.
    pub fn asks_to_end(&self) -> bool {
        self.requests.load(Ordering::Relaxed) & request::SHUT_WRITE != 0
    }

    /// Whether a program asks for a connection.
    pub fn asks_to_connect(&self) -> bool {
        self.requests.load(Ordering::Acquire) & request::CONNECT != 0
    }

    /// Daemon: where to, and whether options lie beside the offer. The words are the stream's from then on.
    pub fn take_address(&self) -> (Ipv6Addr, u16, bool) {
        let mask = request::CONNECT | request::UNTOLD | 0xffff << request::PORT_SHIFT;
        let asked = self.requests.fetch_and(!mask, Ordering::AcqRel);
        let word = |word: &AtomicU64| u128::from(word.swap(0, Ordering::Relaxed));
        let high = word(&self.told_at) << 64;
        let ip = Ipv6Addr::from_bits(high | word(&self.urgent));
        (ip, (asked >> request::PORT_SHIFT) as u16, asked & request::UNTOLD != 0)
    }
}

/// A set of blocks that have news for somebody, and whether he sleeps. A lane's is filled by programs, a waiter's by the
/// daemon; its owner alone empties it.
#[cfg_attr(not(loom), repr(C, align(4096)))]
#[derive(Debug, Default)]
pub struct Inbox {
    /// Not zero: the owner sleeps, or is about to look a last time, and must be woken by its descriptor. The number of the
    /// nap.
    pub sleeping: AtomicU32,
    /// The owner's: how often it has slept.
    naps: AtomicU32,
    /// A waiter's: how often the slot was given out. Who has its descriptor for an earlier owner asks anew.
    pub owners: AtomicU32,
    /// A lane's: one above the CPU on which its worker last was, and one above that of the program that last told it something;
    /// zero is not known. Hints: who is on the CPU of whom he waits for does not look, for that one needs it.
    cpu: AtomicU32,
    told_on: AtomicU32,
    /// A waiter's: which blocks were told first.
    order: Order,
    /// Which blocks.
    pub news: Bits,
}

impl Inbox {
    /// A lane's block has news. If the owner must be woken, because he sleeps or is about to, in which nap: who tells rings, and then says
    /// so ([`Inbox::was_rung`]), for he may die at any moment.
    pub fn tell(&self, block: u32) -> Option<u32> {
        self.news.set(block);
        // The bits are set in the one order of all such changes, and so is the owner's word before his last look.
        order_for_models();
        self.napping()
    }

    fn napping(&self) -> Option<u32> {
        Some(self.sleeping.load(Ordering::SeqCst)).filter(|&nap| nap != 0)
    }

    /// The same of a waiter's, for who rings for certain if the answer is yes: he is answered once, and the others who have news rely on
    /// him. A program is not such a one.
    pub fn call(&self, block: u32) -> bool {
        self.add(block);
        self.sleeping.load(Ordering::SeqCst) != 0 && self.sleeping.swap(0, Ordering::SeqCst) != 0
    }

    /// The same of a waiter's for who may die, as [`Inbox::tell`].
    pub fn tell_napper(&self, block: u32) -> Option<u32> {
        self.add(block);
        self.napping()
    }

    /// A waiter is told of a block.
    fn add(&self, block: u32) {
        if self.news.set(block) {
            self.order.note(block);
        }
        order_for_models();
    }

    /// A waiter, before it takes its news: in which order they came, as far as that is known. A block may be among them that has none.
    pub fn take_order(&self) -> impl Iterator<Item = u32> {
        self.order.take()
    }

    /// The owner was rung for in this nap, so that others need not. A later nap is another.
    pub fn was_rung(&self, nap: u32) {
        let _ = self.sleeping.compare_exchange(nap, 0, Ordering::SeqCst, Ordering::Relaxed);
    }

    /// Owner, who has taken all there was: from here on he must be woken. Whether he may sleep: `false` if there may be
    /// news already.
    pub fn fall_asleep(&self) -> bool {
        // Nobody else counts. Whatever a program writes there, a nap has a number that is not zero.
        let nap = self.naps.load(Ordering::Relaxed).wrapping_add(1).max(1);
        self.naps.store(nap, Ordering::Relaxed);
        self.sleeping.store(nap, Ordering::SeqCst);
        order_for_models();
        !self.news.any()
    }

    /// Owner: he is awake and will look. Who sees it late rings in vain.
    pub fn wake_up(&self) {
        if cfg!(loom) {
            // Loom has no order between a store and what another thread has exchanged before it.
            self.sleeping.swap(0, Ordering::AcqRel);
        } else {
            self.sleeping.store(0, Ordering::Release);
        }
    }

    /// A lane's worker is on this CPU.
    pub fn is_on(&self, cpu: u16) {
        note(&self.cpu, cpu);
    }

    /// A lane's worker does not say where it is.
    pub fn is_nowhere(&self) {
        self.cpu.store(0, Ordering::Relaxed);
    }

    /// Whether it was on this one when it last said so.
    pub fn was_on(&self, cpu: u16) -> bool {
        self.cpu.load(Ordering::Relaxed) == u32::from(cpu) + 1
    }

    /// Where it is at work.
    pub fn awake_on(&self) -> Option<u32> {
        self.last_on().filter(|_| self.sleeping.load(Ordering::Relaxed) == 0)
    }

    /// Where it last was, as it said.
    pub fn last_on(&self) -> Option<u32> {
        self.cpu.load(Ordering::Relaxed).checked_sub(1)
    }

    /// A program that is on this CPU tells a lane something.
    pub fn is_told_on(&self, cpu: u16) {
        note(&self.told_on, cpu);
    }

    /// Where the program was that told it something last, as that one said.
    pub fn last_told_on(&self) -> Option<u32> {
        self.told_on.load(Ordering::Relaxed).checked_sub(1)
    }
}

/// Writes one more than the CPU's number, unless it is there: the line is in others' caches.
fn note(word: &AtomicU32, cpu: u16) {
    let here = u32::from(cpu) + 1;
    if word.load(Ordering::Relaxed) != here {
        word.store(here, Ordering::Relaxed);
    }
}

/// Loom takes sequentially consistent accesses for acquiring and releasing ones, and only such a fence for what it is.
#[inline]
pub(crate) fn order_for_models() {
    if cfg!(loom) {
        crate::sync::fence(Ordering::SeqCst);
    }
}

/// The words of one stream. The first party is the program, the second the lane.
#[repr(C, align(64))]
#[derive(Debug, Default)]
pub struct Block {
    /// Cursors, state words and storage places of both rings; in the margin the words of [`margin`].
    pub rings: RingWords,
    /// Who is inside [`crate::StreamEnd::write`]; zero is nobody. See `owner.rs`.
    pub send_owner: AtomicU64,
    /// Who is inside [`crate::StreamEnd::read`].
    pub recv_owner: AtomicU64,
    /// The read cursor at which the lane was last told that room was made.
    pub told_at: AtomicU64,
    /// For the program's side: flags of the open file (O_NONBLOCK), and from [`REFUSALS`] on how many writes found no room. The daemon asks for
    /// [`TAKEN`] alone.
    pub file: AtomicU64,
    /// For the program's side alone: how long a read waits, in nanoseconds; zero is for ever (SO_RCVTIMEO).
    pub recv_timeout: AtomicU64,
    /// For the program's side alone: how long a write waits (SO_SNDTIMEO).
    pub send_timeout: AtomicU64,
    /// SO_RCVLOWAT, for the program's side alone, and TCP_NOTSENT_LOWAT, which the daemon sets; zero is none (`unsent.rs`).
    pub low_water: [AtomicU32; 2],
    /// For the program's side alone: the mark of urgent text that its reader has seen, and whether the byte before it was read
    /// (`urgent.rs`).
    pub urgent: AtomicU64,
    /// Which waiter slots are to be told of this block, a bit each.
    pub waiters: AtomicU64,
    /// Where the stream's threads sleep, unless it has a joint.
    pub sleep: Sleep,
    /// What the program asks of the lane: [`request`]. Levels, not edges: who takes a request clears its bit.
    pub requests: AtomicU64,
    /// The most unacknowledged bytes (SO_SNDBUF) and the most unread ones, as the lane has them at present.
    pub capacity: [AtomicU32; 2],
    /// Which use of this block it is; counted up when it is given out again.
    pub generation: AtomicU64,
    /// The segment with the stream's joint (`joint.rs`); zero as long as it has none. The next word is read behind it.
    pub segment: AtomicU64,
    /// Which joint of the segment, times two, and which end of that.
    pub joint: AtomicU64,
    /// The socket under whose name the program has accepted the connection; zero as long as none has. It writes it last. Before that it
    /// says who is about to ([`Block::is_taken_by`]).
    pub taken_as: AtomicU64,
}

/// In the word `taken_as`: it is no socket's name, but the number of a session. Names are numbers of inodes, which are shorter.
const TAKER: u64 = 1 << 62;

/// Who has a connection, as the word `taken_as` says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Taker {
    /// The socket of this name; zero is none.
    Socket(u64),
    /// A session, which has yet to say as which socket.
    Session(u32),
}

/// Which word of the margin is what. They lie where the endpoints of `path/socket` have them.
pub mod margin {
    /// The cursor behind the last urgent byte of the receive ring; zero if there never was one. Written before that byte is
    /// published.
    pub const MARK: usize = 0;
    /// [`super::status`], below the error number.
    pub const STATUS: usize = 1;
    /// Not zero once lane, ports and addresses below it are there. Of a datagram socket bit 1 says that it has a peer.
    pub const BOUND: usize = 2;
    /// Lane, netstack, local port, remote port: 16 bits each.
    pub const PLACE: usize = 3;
    /// The local address, high word first, IPv4 mapped.
    pub const LOCAL: usize = 4;
    /// The remote address.
    pub const REMOTE: usize = 6;
}

/// The status word: what has happened to the stream for good, and its error. Written by the daemon; the program takes
/// the error out.
pub mod status {
    /// Of a datagram socket: there are faults to ask for (`fault.rs`). The daemon sets it and takes it back.
    pub const FAULTS: u64 = 1;
    /// It is a datagram socket: an error makes it neither readable nor writable, as in Linux.
    pub const DATAGRAMS: u64 = 2;
    /// Established.
    pub const CONNECTED: u64 = 1 << 16;
    /// The peer sends no more.
    pub const PEER_CLOSED: u64 = 2 << 16;
    /// Nothing more may be written.
    pub const WRITE_CLOSED: u64 = 4 << 16;
    /// The lane has forgotten the stream.
    pub const CLOSED: u64 = 8 << 16;
    /// A program has accepted it.
    pub const ACCEPTED: u64 = 16 << 16;
    /// The program reads no more of what is to come (SHUT_RD). Its own bit; the daemon does not look at it.
    pub const READ_CLOSED: u64 = 1 << 31;
    /// The error, a number of `errno(3)`, lies above.
    pub const ERROR_SHIFT: u32 = 32;
}

/// What a program asks of the lane by the word `requests`.
pub mod request {
    /// The sending direction ends after what was written.
    pub const SHUT_WRITE: u64 = 1;
    /// The send ring has no storage, and there is something to write.
    pub const WANTS_STORAGE: u64 = 2;
    /// The peer of the joint is to be told by the daemon, because it cannot be told from here, or is gone.
    pub const TELL_PEER: u64 = 8;
    /// The joint's peer has said what cannot be true: the connection is to be reset.
    pub const RESET: u64 = 16;
    /// There is something to write to the joint, and no credit.
    pub const WANTS_CREDIT: u64 = 32;
    /// The program has closed the socket, of which nobody has a copy: the connection ends, and its descriptor makes a new
    /// socket. It stays set for this use of the block.
    pub const CLOSE: u64 = 64;
    /// A block that was offered ([`crate::Offers`]) is to be a connection, to the address that the program has left in it; or one that
    /// was [`super::DEFERRED`], to the address that connect(2) gave.
    pub const CONNECT: u64 = 128;
    /// With [`CONNECT`], where the daemon does not know the address: the port, above.
    pub const PORT_SHIFT: u32 = 48;
    /// The options below have changed.
    pub const OPTIONS: u64 = 4;
    /// TCP_NODELAY is on.
    pub const NODELAY: u64 = 1 << 8;
    /// TCP_CORK is on.
    pub const CORK: u64 = 1 << 9;
    /// TCP_QUICKACK is on.
    pub const QUICKACK: u64 = 1 << 10;
    /// As much is written and unsent as the program wants (TCP_NOTSENT_LOWAT). The daemon takes it back once less is.
    pub const FULL: u64 = 1 << 11;
    /// The program reads no more of what is to come.
    pub const SHUT_READ: u64 = 1 << 12;
    /// A process that has the socket cannot map the segment of its joint, which another has used ([`super::FOLLOWED`]): nothing more is to
    /// go there. The daemon answers by taking `segment` back, or, if text that this process has not got lies there, by [`super::LOST`].
    pub const PART: u64 = 1 << 13;
    /// With [`CONNECT`], of a block that was offered: options lie beside the offer ([`crate::Offers::untold_at`]).
    pub const UNTOLD: u64 = 1 << 14;
    /// Either end.
    pub const SHUTS: u64 = SHUT_READ | SHUT_WRITE;
}

/// In the word `file`: the program has accepted the connection. One that nobody has accepted when its listener closes is
/// reset, as Linux does.
pub const TAKEN: u64 = 1 << 2;

/// In the word `file`: SO_LINGER has a time, for which close(2) waits. Set by the daemon when the program asks.
pub const LINGERS: u64 = 1 << 3;

/// In the word `file`: urgent text is read with the stream (SO_OOBINLINE). Set by the daemon when the program asks.
pub const OOB_INLINE: u64 = 1 << 4;

/// In the word `file`: the connection has yet to begin, with the first text that is written ([`crate::StreamEnd::begin_early`]).
/// Set by the daemon before the program sees the block, cleared by whoever of the program writes first.
pub const DEFERRED: u64 = 1 << 5;

/// In the word `file`: the program has asked for signals about the socket, so that bytes may lie at its descriptor which say nothing
/// and are to be read away. Set by the daemon.
pub const SIGNALLED: u64 = 1 << 6;

/// In the word `file`, where [`SIGNALLED`] is: the program's side has found no room to write. The daemon takes it back when it signals that
/// there is some.
pub const REFUSED: u64 = 1 << 7;

/// In the word `file`: SO_LINGER has no time, so that close(2) is a reset. Set by the daemon when the program asks.
pub const RESETS: u64 = 1 << 8;

/// In the word `file`: with each message it is told how much is left to read (TCP_INQ). Set by the daemon when the program asks.
pub const TELLS_UNREAD: u64 = 1 << 9;

/// In the word `file`: a process that has the socket has mapped the segment of its joint, so that text may be there. For the program's
/// side alone; set before the joint is opened.
pub const FOLLOWED: u64 = 1 << 10;

/// In the word `file`: text lies in the joint that somebody who has the socket cannot reach, and the connection was reset
/// ([`request::PART`]). Set by the daemon.
pub const LOST: u64 = 1 << 11;

/// In the word `file`: what the daemon tells of options that it keeps.
pub const SHOWN: u64 = LINGERS | RESETS | OOB_INLINE | TELLS_UNREAD;

/// In the word `file` of a stream, from this bit on: one more than the lane that [`crate::Offers`] counts the connection in, for the program's side
/// alone.
pub const COUNTED_SHIFT: u32 = 32;
/// Its bits.
pub const COUNTED: u64 = 0xff << COUNTED_SHIFT;

/// In the word `file`, from this bit on: how many writes found no room. Who waits for an edge is told of the next one
/// that there is, though the stream be then as it was when he was told last. For the program's side alone.
pub const REFUSALS: u64 = 1 << 48;

/// In the word `file` of a datagram socket: what its program is told with each datagram, and what it cuts by. Set by the
/// daemon when the program asks.
pub mod file {
    /// Those that the program's side sets itself.
    pub const OWN: u64 = 0xff;
    /// IP_PKTINFO.
    pub const INFO_V4: u64 = 1 << 8;
    /// IP_RECVTOS.
    pub const TOS_V4: u64 = 1 << 9;
    /// IP_RECVTTL.
    pub const HOPS_V4: u64 = 1 << 10;
    /// IPV6_RECVPKTINFO.
    pub const INFO_V6: u64 = 1 << 11;
    /// IPV6_RECVTCLASS.
    pub const TOS_V6: u64 = 1 << 12;
    /// IPV6_RECVHOPLIMIT.
    pub const HOPS_V6: u64 = 1 << 13;
    /// UDP_GRO.
    pub const GRO: u64 = 1 << 14;
    /// UDP_CORK.
    pub const CORK: u64 = 1 << 15;
    /// SO_TIMESTAMP.
    pub const STAMP: u64 = 1 << 16;
    /// SO_TIMESTAMPNS.
    pub const STAMP_NANOS: u64 = 1 << 17;
    /// IP_RECVORIGDSTADDR.
    pub const TARGET_V4: u64 = 1 << 18;
    /// IPV6_RECVORIGDSTADDR.
    pub const TARGET_V6: u64 = 1 << 19;
    /// SO_RXQ_OVFL.
    pub const DROPS: u64 = 1 << 20;
    /// SO_SELECT_ERR_QUEUE: an error is urgent, too.
    pub const ERRORS_URGENT: u64 = 1 << 21;
    /// IP_RECVERR.
    pub const ERRORS_V4: u64 = 1 << 22;
    /// IPV6_RECVERR.
    pub const ERRORS_V6: u64 = 1 << 23;
    /// A call has said that the daemon is gone, or the netstack of the session. Set by the program's side, then, when nobody else writes here.
    pub const OVER: u64 = 1 << 24;
    /// Bytes of a datagram that a larger payload is cut into (UDP_SEGMENT).
    pub const SEGMENT: u64 = 0xffff << SEGMENT_SHIFT;
    /// Where they are.
    pub const SEGMENT_SHIFT: u32 = 32;
}

/// Sizes of an arena, and where its parts begin.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Layout {
    /// How many lanes have an inbox.
    pub lanes: u32,
    /// How many blocks there are.
    pub blocks: u32,
    /// How much storage there is.
    pub storage_bytes: u64,
}

impl Layout {
    /// Where the lanes' inboxes begin.
    pub const LANES_AT: u64 = PAGE + (OFFERS * size_of::<Untold>()) as u64;
    /// An arena or a part of one is of no use with less storage: some ten connections have it.
    pub const STORAGE_MIN: u64 = 4 << 20;

    /// Room for 262,144 streams and 64 GiB in their rings. It is address space: memory is what is touched.
    pub const fn new(lanes: u32) -> Self {
        Self { lanes, blocks: BLOCKS_MAX, storage_bytes: 64 << 30 }
    }

    /// The same within `room` bytes of address space, with fewer blocks and less storage; `None` if that is too little for an arena
    /// to be of use. A sixteenth of the room is for blocks.
    pub const fn within(self, room: u64) -> Option<Self> {
        const BLOCKS_PER_PAGE: u64 = PAGE / size_of::<Block>() as u64;
        if self.len() <= room {
            return Some(self);
        }
        let blocks = room / 16 / PAGE * BLOCKS_PER_PAGE;
        let blocks = if blocks < self.blocks as u64 { blocks as u32 } else { self.blocks };
        let storage_bytes = room.saturating_sub(Self { blocks, ..self }.storage_at()) / PAGE * PAGE;
        if storage_bytes < Self::STORAGE_MIN { None } else { Some(Self { blocks, storage_bytes, ..self }) }
    }

    /// Whether the numbers are allowed: 1 to [`LANES_MAX`] lanes, 1 to [`BLOCKS_MAX`] blocks in whole pages, storage
    /// in whole pages and at most 1 TiB.
    pub const fn is_valid(&self) -> bool {
        self.lanes >= 1
            && self.lanes <= LANES_MAX
            && self.blocks >= 1
            && self.blocks <= BLOCKS_MAX
            && (self.blocks as u64 * size_of::<Block>() as u64).is_multiple_of(PAGE)
            && self.storage_bytes.is_multiple_of(PAGE)
            && self.storage_bytes <= 1 << 40
    }

    /// Where the waiters' inboxes begin.
    pub const fn slots_at(&self) -> u64 {
        Self::LANES_AT + self.lanes as u64 * size_of::<Inbox>() as u64
    }

    /// Where the blocks begin.
    pub const fn blocks_at(&self) -> u64 {
        self.slots_at() + SLOTS as u64 * size_of::<Inbox>() as u64
    }

    /// Where the storage begins.
    pub const fn storage_at(&self) -> u64 {
        self.blocks_at() + self.blocks as u64 * size_of::<Block>() as u64
    }

    /// The whole.
    pub const fn len(&self) -> u64 {
        self.storage_at() + self.storage_bytes
    }

    /// Never: there is a header.
    pub const fn is_empty(&self) -> bool {
        false
    }

    /// Writes the first page.
    pub(crate) fn write(&self, header: &Header, arena: u64) {
        header.version.store(VERSION, Ordering::Relaxed);
        header.lanes.store(self.lanes, Ordering::Relaxed);
        header.blocks.store(self.blocks, Ordering::Relaxed);
        header.block_bytes.store(size_of::<Block>() as u32, Ordering::Relaxed);
        header.arena.store(arena, Ordering::Relaxed);
        header.storage_bytes.store(self.storage_bytes, Ordering::Relaxed);
        header.len.store(self.len(), Ordering::Relaxed);
        header.magic.store(MAGIC, Ordering::Release);
    }
}

#[cfg(not(loom))]
const _: () = {
    use core::mem::offset_of;
    use firelane_frame::{BLOCK_BYTES, GENERATION_WORD};
    assert!(REFUSALS > file::SEGMENT, "what is counted there says nothing else");
    assert!(size_of::<RingWords>() == 128 && size_of::<Block>() == BLOCK_BYTES && align_of::<Block>() == 64);
    assert!(offset_of!(Block, rings) == 0 && offset_of!(RingWords, two) == 96);
    assert!(offset_of!(Block, send_owner) == 128 && offset_of!(Block, recv_owner) == 136);
    assert!(offset_of!(Block, told_at) == 144 && offset_of!(Block, file) == 152);
    assert!(offset_of!(Block, recv_timeout) == 160 && offset_of!(Block, low_water) == 176);
    assert!(offset_of!(Block, urgent) == 184);
    assert!(offset_of!(Block, waiters) == 192 && offset_of!(Block, sleep) == 200);
    assert!(size_of::<Sleep>() == 8 && offset_of!(Block, requests) == 208);
    assert!(
        offset_of!(Block, segment) == 232
            && offset_of!(Block, joint) == 240
            && offset_of!(Block, taken_as) == 248
    );
    assert!(offset_of!(Block, capacity) == 216 && offset_of!(Block, generation) == 8 * GENERATION_WORD);
    assert!(size_of::<Header>() == 56 && offset_of!(Header, clock_start) == 48);
    assert!(size_of::<Header>() as u64 <= Offers::AT && Offers::AT + size_of::<Offers>() as u64 <= PAGE);
    assert!(size_of::<Offers>() == 4 * (OFFERS + LANES_MAX as usize) + 64);
    assert!(size_of::<Untold>() == 128 && Layout::LANES_AT.is_multiple_of(PAGE));
    assert!(size_of::<Inbox>() == 9 * PAGE as usize && offset_of!(Inbox, news) == 64);
    assert!(Layout::new(1).is_valid() && Layout::new(LANES_MAX).is_valid());
};

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn parts_follow_each_other_on_pages() {
        for lanes in [1, 2, 63, 64] {
            let layout = Layout { lanes, blocks: 16, storage_bytes: PAGE };
            assert!(layout.is_valid());
            let parts = [PAGE, Layout::LANES_AT, layout.slots_at(), layout.blocks_at(), layout.storage_at()];
            assert!(parts.is_sorted() && parts.iter().all(|at| at.is_multiple_of(PAGE)));
            assert_eq!(layout.len(), layout.storage_at() + PAGE);
        }
    }

    #[test]
    fn little_room_has_fewer_blocks_and_less_storage() {
        let whole = Layout::new(2);
        assert_eq!([whole.within(u64::MAX), whole.within(whole.len())], [Some(whole); 2]);
        for room in [8 << 20, 50_000_001, 1 << 30, whole.len() - 1] {
            let small = whole.within(room).unwrap();
            assert!(
                small.is_valid() && small.len() <= room && small.len() > room / 16 * 15,
                "{room}: {small:?}"
            );
            assert!(small.blocks >= 2048 && small.storage_bytes >= 4 << 20, "{room}: {small:?}");
        }
        assert_eq!([0, 4096, 6 << 20].map(|room| whole.within(room)), [None; 3]);
    }

    #[test]
    fn an_address_is_taken_as_it_was_left_and_leaves_nothing() {
        let block = Block::default();
        let ip: Ipv6Addr = "fe80::1:ffff:fffe:2".parse().unwrap();
        assert!(!block.asks_to_connect());
        block.requests.store(request::NODELAY, Ordering::Relaxed);
        block.ask_to_connect(77, ip, 65_535, request::UNTOLD | request::CORK);
        assert!(block.asks_to_connect() && block.taken_as.load(Ordering::Relaxed) == 77);
        assert_eq!(block.take_address(), (ip, 65_535, true));
        assert_eq!(block.requests.load(Ordering::Relaxed), request::NODELAY | request::CORK);
        assert_eq!([&block.told_at, &block.urgent].map(|word| word.load(Ordering::Relaxed)), [0; 2]);
        assert!(!block.asks_to_connect());
        block.ask_to_connect(77, ip, 1, 0);
        assert_eq!(block.take_address(), (ip, 1, false));
    }

    #[test]
    fn who_takes_a_connection_is_known_before_its_socket() {
        let block = Block::default();
        assert_eq!(block.taker(), Taker::Socket(0));
        for session in [0, 7, u32::MAX] {
            block.is_taken_by(session);
            assert_eq!(block.taker(), Taker::Session(session));
        }
        for name in [1, u64::from(u32::MAX), u64::MAX] {
            block.taken_as.store(name, Ordering::Relaxed);
            assert_eq!(block.taker(), Taker::Socket(name));
        }
    }

    #[test]
    fn numbers_out_of_range_are_refused() {
        let good = Layout { lanes: 1, blocks: 16, storage_bytes: PAGE };
        for bad in [
            Layout { lanes: 0, ..good },
            Layout { lanes: LANES_MAX + 1, ..good },
            Layout { blocks: 0, ..good },
            Layout { blocks: 17, ..good },
            Layout { blocks: BLOCKS_MAX + 16, ..good },
            Layout { storage_bytes: 1, ..good },
            Layout { storage_bytes: (1 << 40) + PAGE, ..good },
        ] {
            assert!(!bad.is_valid(), "{bad:?}");
        }
    }

    #[test]
    fn an_owner_sleeps_only_without_news_and_is_woken_only_asleep() {
        let inbox = Inbox::default();
        assert_eq!(inbox.tell(7), None, "he is awake");
        assert!(!inbox.fall_asleep(), "there are news");
        assert_eq!((inbox.news.take_word(), inbox.news.take_word()), (Some((0, 1 << 7)), None));
        assert!(inbox.fall_asleep());
        let nap = inbox.tell(9).unwrap();
        assert_eq!(inbox.tell(10), Some(nap), "nobody has rung");
        inbox.was_rung(nap);
        assert_eq!(inbox.tell(11), None, "he was rung");
        inbox.wake_up();
        assert_eq!(inbox.tell(10), None);
        while inbox.news.take_word().is_some() {}
        assert!(inbox.fall_asleep());
        inbox.was_rung(nap);
        assert!(inbox.tell(12).is_some_and(|later| later != nap), "it was another nap");
        while inbox.news.take_word().is_some() {}
        inbox.wake_up();
        assert!(inbox.fall_asleep());
        assert_eq!([1, 2].map(|block| inbox.call(block)), [true, false], "one of them rings");
        assert_eq!(inbox.news.take_word(), Some((0, 0b110)));
    }
}
