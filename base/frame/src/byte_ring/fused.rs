//! Two pairs of rings joined: each first party reads what the other pair's first party writes (TCP Fusion).
//!
//! A stream between two sockets of one host lies in two rings: the sender's send ring, and the receiver's receive ring,
//! between which TCP carries the bytes from one to the other. Both count by the same cursor. *Fusing* lends the reader of
//! the send ring and the writer of the receive ring to the receiver's first party: it reads its own ring to the end and
//! goes on in the sender's at the same cursor. *Parting* takes them back, and TCP goes on from the cursor that was
//! reached. Nothing is converted and no byte moves.
//!
//! F1. What the second parties lend lies behind a [`Gate`] per direction. Only who is inside touches it; a second party
//!     whose halves are lent ([`super::Party::Lent`]) copies, writes and releases nothing.
//! F2. Inside, the reader releases what it has read, and moves both cursors of its own ring along, first the tail: the
//!     ring is empty before and after, and its cursor is the stream's.
//! F3. The writer keeps the rules of its ring (R1 to R5) and does not know who reads it.
//! F4. Where a limit has a say, the writer writes up to the cursor that the second party has granted, and says how far it would
//!     like to. What it finds changed while it writes counts the next time.

use std::sync::{Arc, OnceLock, Weak};

use super::gate::Gate;
use super::{Block, Margin, MarginRef, Party, RingReader, RingWriter};
use crate::sync::{AtomicBool, AtomicU32, AtomicU64, Ordering};

/// Two pairs that are joined, or were.
#[derive(Debug)]
struct Joint {
    /// Weak, because each pair keeps the joint.
    pairs: [Weak<Block>; 2],
    /// The ways, by who writes.
    ways: [Way; 2],
}

/// One direction.
#[derive(Debug, Default)]
struct Way {
    gate: Gate,
    /// How much the receiver's own ring would hold beside the sender's.
    room: AtomicU32,
    /// How many writes may be unread; zero is any number.
    most_writes: AtomicU32,
    /// How many are, since the reader last found the end.
    writes: AtomicU32,
    /// The writer's storage is full and holds less than both rings would.
    is_cramped: AtomicBool,
    /// Up to where in the stream what was read here has been counted.
    counted: AtomicU64,
    credit: Credit,
}

/// What a limit lets a writer write (F4).
#[derive(Debug, Default)]
struct Credit {
    is_limited: AtomicBool,
    /// Up to which cursor it may write.
    granted: AtomicU64,
    /// Up to which it would like to.
    asked: AtomicU64,
}

/// A pair's place in its joint.
#[derive(Debug)]
pub(super) struct Seat {
    joint: Arc<Joint>,
    /// Which of the two it is.
    at: usize,
}

/// The second party's halves of a pair.
#[derive(Debug)]
pub struct Halves<'a> {
    /// What its first party writes.
    pub send: &'a mut RingReader,
    /// What its first party reads.
    pub recv: &'a mut RingWriter,
}

impl Halves<'_> {
    fn block(&self) -> &Arc<Block> {
        &self.send.block
    }

    /// Whether both halves are the second party's and are of the same pair.
    fn are(&self, party: Party) -> bool {
        Arc::ptr_eq(&self.send.block, &self.recv.block) && self.send.by == party && self.recv.by == party
    }

    fn set(&mut self, party: Party) {
        (self.send.by, self.recv.by) = (party, party);
    }

    /// The joint with `other`, if they were ever joined.
    fn joint(&self, other: &Self) -> Option<&Joint> {
        let Seat { joint, at } = self.block().beside.get()?.joint.get()?;
        let is_ours = core::ptr::eq(joint.pairs[1 - at].as_ptr(), Arc::as_ptr(other.block()));
        is_ours.then_some(&**joint)
    }
}

/// What holds between two pairs from the beginning.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Terms {
    /// How many writes may be unread; zero is any number.
    pub most_writes: u32,
    /// Whether the first party of each needs credit to write.
    pub limited: [bool; 2],
}

/// Joins two pairs of this process at the cursors that both have reached. `false`, with nothing changed, if the second
/// parties have not yet carried everything over that they began to, or the pairs are not of the kind that can be joined.
pub fn fuse(mut one: Halves<'_>, mut two: Halves<'_>, terms: Terms) -> bool {
    let meet = |from: &Halves<'_>, to: &Halves<'_>| {
        let cursor = from.send.cursor();
        to.recv.cursor() == cursor && to.recv.ahead() == cursor
    };
    let is_whole = one.are(Party::Two) && two.are(Party::Two) && meet(&one, &two) && meet(&two, &one);
    if !is_whole || Arc::ptr_eq(one.block(), two.block()) {
        return false;
    }
    if one.joint(&two).is_none() {
        let pairs = [Arc::downgrade(one.block()), Arc::downgrade(two.block())];
        let joint = Arc::new(Joint { pairs, ways: Default::default() });
        for (at, pair) in [&one, &two].into_iter().enumerate() {
            let place: &OnceLock<Seat> = &pair.block().beside.get_or_make().joint;
            if place.set(Seat { joint: Arc::clone(&joint), at }).is_err() {
                return false;
            }
        }
    }
    one.set(Party::Lent);
    two.set(Party::Lent);
    let Some(joint) = one.joint(&two) else { return false };
    for ((pair, other), is_limited) in [(&one, &two), (&two, &one)].into_iter().zip(terms.limited) {
        let way = &joint.ways[pair.seat()];
        way.room.store(other.recv.capacity() as u32, Ordering::Relaxed);
        way.most_writes.store(terms.most_writes, Ordering::Relaxed);
        way.writes.store(0, Ordering::Relaxed);
        way.is_cramped.store(false, Ordering::Relaxed);
        way.counted.store(pair.send.cursor(), Ordering::Relaxed);
        way.credit.is_limited.store(false, Ordering::Relaxed);
        pair.send.limit(is_limited);
        way.gate.open();
    }
    true
}

impl Halves<'_> {
    /// Which of the two of its joint it is.
    fn seat(&self) -> usize {
        self.block().beside.get().and_then(|beside| beside.joint.get()).map_or(0, |seat| seat.at)
    }
}

/// Shuts the gates between two pairs that are joined. Whether the halves are back: if not, a reader is inside, who will
/// say so when he leaves; then this is called again.
pub fn part(mut one: Halves<'_>, mut two: Halves<'_>) -> bool {
    if !(one.are(Party::Lent) && two.are(Party::Lent)) {
        return false;
    }
    let Some(joint) = one.joint(&two) else { return false };
    let [first, second] = &joint.ways;
    let (first, second) = (first.gate.shut(), second.gate.shut());
    let are_back = first && second;
    if are_back {
        one.set(Party::Two);
        two.set(Party::Two);
    }
    are_back
}

/// Whether a writer of the two has less storage than both of the rings would have, and it is full.
pub fn is_cramped(one: &Halves<'_>, two: &Halves<'_>) -> bool {
    let is_cramped = |way: &Way| way.is_cramped.load(Ordering::Relaxed);
    one.joint(two).is_some_and(|joint| joint.ways.iter().any(is_cramped))
}

/// Opens the gates again that [`part`] has shut, unless the halves are back.
pub fn reopen(one: &Halves<'_>, two: &Halves<'_>) {
    if one.are(Party::Lent)
        && two.are(Party::Lent)
        && let Some(joint) = one.joint(two)
    {
        joint.ways.iter().for_each(|way| way.gate.open());
    }
}

impl RingReader {
    /// How much of what is unread the peer's own ring would hold, if the pairs are joined.
    pub fn room_beyond(&self) -> usize {
        self.way().map_or(0, |way| way.room.load(Ordering::Relaxed) as usize)
    }

    /// Owner: from now on the first party needs credit to write, or needs none any more.
    pub fn limit(&self, is_limited: bool) {
        let Some(way) = self.way() else { return };
        if is_limited && !way.credit.is_limited.load(Ordering::Relaxed) {
            // What was written before is not asked about.
            way.credit.granted.store(self.ring().writer.tail.load(Ordering::Acquire), Ordering::Relaxed);
        }
        way.credit.is_limited.store(is_limited, Ordering::SeqCst);
    }

    /// Owner: the first party may write so much more.
    pub fn grant(&self, bytes: u64) {
        if let Some(way) = self.way() {
            way.credit.granted.fetch_add(bytes, Ordering::SeqCst);
        }
    }

    /// Owner: how much credit the first party lacks for what it would like to write, and how much it has not used.
    pub fn lacks(&self) -> (u64, u64) {
        let Some(Way { credit, .. }) = self.way() else { return (0, 0) };
        let granted = credit.granted.load(Ordering::Relaxed);
        let asked = credit.asked.load(Ordering::SeqCst);
        let tail = self.ring().writer.tail.load(Ordering::Acquire);
        (asked.saturating_sub(granted), granted.saturating_sub(tail))
    }

    fn way(&self) -> Option<&Way> {
        let seat = self.block.beside.get()?.joint.get()?;
        (self.by == Party::Lent).then(|| &seat.joint.ways[seat.at])
    }

    /// How much of the stream up to `cursor` was read past the second party since the pairs were joined, or since this was
    /// last asked. What that releases itself is no different, so it is asked before that begins.
    pub fn take_passed(&self, cursor: u64) -> u64 {
        let Some(seat) = self.block.beside.get().and_then(|beside| beside.joint.get()) else { return 0 };
        let before = seat.joint.ways[seat.at].counted.swap(cursor, Ordering::Relaxed);
        cursor.saturating_sub(before)
    }
}

impl RingWriter {
    /// What the first party has yet to read: in its own ring, and in the peer's if the pairs are joined.
    pub fn unread_in_all(&self) -> usize {
        let seat = self.block.beside.get().and_then(|beside| beside.joint.get());
        let other =
            seat.filter(|_| self.by == Party::Lent).and_then(|seat| seat.joint.pairs[1 - seat.at].upgrade());
        let beyond = other.map_or(0, |other| {
            let ring = other.written_by(Party::One);
            let head = ring.reader.head.load(Ordering::Acquire);
            ring.writer.tail.load(Ordering::Acquire).saturating_sub(head) as usize
        });
        self.unread() + beyond
    }
}

/// What a first party reads of the other pair.
#[derive(Debug)]
pub struct FusedReader {
    joint: Arc<Joint>,
    /// Who writes.
    from: usize,
    source: RingReader,
}

/// What a first party knows of who reads its ring.
#[derive(Debug)]
pub struct FusedWriter {
    joint: Arc<Joint>,
    /// Who writes.
    from: usize,
    other: MarginRef,
}

/// The joint of a first party's pair, which end of it that is, and the other pair.
fn seat_of(block: &Block, by: Party) -> Option<(Arc<Joint>, usize, Arc<Block>)> {
    let Seat { joint, at } = block.beside.get()?.joint.get()?;
    let other = joint.pairs[1 - at].upgrade()?;
    (by == Party::One).then(|| (Arc::clone(joint), *at, other))
}

impl RingReader {
    /// The way to what the other pair's first party writes, if the pairs were ever joined.
    pub fn fused(&self) -> Option<FusedReader> {
        let (joint, at, other) = seat_of(&self.block, self.by)?;
        let source = RingReader { block: other, tail_seen: Default::default(), by: Party::Two };
        Some(FusedReader { joint, from: 1 - at, source })
    }
}

impl RingWriter {
    /// Who reads the ring instead of the second party, if the pairs were ever joined.
    pub fn fused(&self) -> Option<FusedWriter> {
        let (joint, from, other) = seat_of(&self.block, self.by)?;
        Some(FusedWriter { joint, from, other: MarginRef(other) })
    }
}

/// What was done behind the gate.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Visit {
    /// How many bytes were copied.
    pub count: usize,
    /// The second party waits for its halves: it is to be told that they are back.
    pub is_awaited: bool,
}

impl FusedReader {
    fn way(&self) -> &Way {
        &self.joint.ways[self.from]
    }

    /// The margin of the pair that is read.
    pub fn margin(&self) -> &Margin {
        self.source.margin()
    }

    /// How many bytes can be read there, while the gate is open.
    #[inline]
    pub fn available(&self) -> usize {
        if !self.way().gate.is_open() {
            return 0;
        }
        let ring = self.source.ring();
        // The head first: it never passes a tail that is read later.
        let head = ring.reader.head.load(Ordering::Acquire);
        ring.writer.tail.load(Ordering::Acquire).saturating_sub(head) as usize
    }

    /// Whether little enough is unread that the writer should go on.
    pub fn has_room(&self) -> bool {
        self.available() <= self.way().room.load(Ordering::Relaxed) as usize
    }

    /// Whether `own` is the reader that this goes on from, with nothing left in it.
    fn continues(&self, own: &RingReader) -> bool {
        let is_ours = core::ptr::eq(Arc::as_ptr(&own.block), self.joint.pairs[1 - self.from].as_ptr());
        assert!(is_ours && own.by == Party::One, "the stream goes on from the pair's own ring");
        own.available() == 0
    }

    /// Copies what there is into `to` and releases it; nothing while `own`, the pair's own ring, is not empty, or the gate
    /// is shut.
    #[inline]
    pub fn read(&mut self, own: &mut RingReader, to: &mut [u8]) -> Visit {
        self.visit(own, |source| {
            let count = source.copy_at(source.cursor(), to);
            (count, count)
        })
    }

    /// Copies bytes from `cursor` on without releasing them.
    pub fn copy_at(&mut self, own: &mut RingReader, cursor: u64, to: &mut [u8]) -> Visit {
        self.visit(own, |source| (source.copy_at(cursor.max(source.cursor()), to), 0))
    }

    /// Releases up to `count` bytes unread.
    pub fn skip(&mut self, own: &mut RingReader, count: usize) -> Visit {
        self.visit(own, |source| {
            let count = count.min(source.available());
            (count, count)
        })
    }

    /// Goes inside, lets `work` say how much it copied and how much of that is to be released, and comes out.
    #[inline]
    fn visit(&mut self, own: &mut RingReader, work: impl FnOnce(&RingReader) -> (usize, usize)) -> Visit {
        if !self.way().gate.enter() {
            return Visit::default();
        }
        // Inside, nobody else writes the own ring: what it holds is the last of it.
        let (count, released) = if self.continues(own) { work(&self.source) } else { (0, 0) };
        if released > 0 {
            self.source.release(released);
            let (ring, cursor) = (own.ring(), own.cursor() + released as u64);
            debug_assert_eq!(cursor, self.source.cursor(), "both rings count by one cursor");
            ring.writer.tail.store(cursor, Ordering::Release);
            ring.reader.head.store(cursor, Ordering::Release);
        }
        let way = self.way();
        if way.most_writes.load(Ordering::Relaxed) > 0 && self.source.available() == 0 {
            way.writes.store(0, Ordering::Relaxed);
        }
        Visit { count, is_awaited: way.gate.leave() }
    }
}

impl FusedWriter {
    fn way(&self) -> &Way {
        &self.joint.ways[self.from]
    }

    /// The margin of the pair whose first party reads.
    pub fn margin(&self) -> &Margin {
        &self.other
    }

    /// How much the receiver's own ring would hold.
    pub fn room(&self) -> usize {
        self.way().room.load(Ordering::Relaxed) as usize
    }

    /// How much may be written at `cursor`, as far as limits go.
    #[inline]
    pub fn credit(&self, cursor: u64) -> usize {
        let Credit { is_limited, granted, .. } = &self.way().credit;
        if !is_limited.load(Ordering::Relaxed) {
            return usize::MAX;
        }
        granted.load(Ordering::SeqCst).saturating_sub(cursor) as usize
    }

    /// Would like to write up to `cursor`. The owner is to be told.
    pub fn ask(&self, cursor: u64) {
        self.way().credit.asked.store(cursor, Ordering::SeqCst);
    }

    /// Counts a write; `false` if as many as may be are unread.
    pub fn may_write(&self) -> bool {
        let way = self.way();
        let most = way.most_writes.load(Ordering::Relaxed);
        most == 0 || way.writes.load(Ordering::Relaxed) < most
    }

    /// Says that the storage is full and smaller than it should be: it was attached before the pairs were joined.
    pub fn complain(&self) {
        self.way().is_cramped.store(true, Ordering::Relaxed);
    }

    /// A write was made.
    pub fn count_write(&self) {
        let way = self.way();
        if way.most_writes.load(Ordering::Relaxed) > 0 {
            way.writes.fetch_add(1, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;
    use crate::byte_ring::byte_rings;
    use proptest::prelude::*;
    use std::sync::atomic::AtomicBool;
    use std::thread;

    type Pair = ((RingWriter, RingReader), (RingWriter, RingReader));

    fn byte_at(cursor: u64) -> u8 {
        (cursor as u8).wrapping_mul(31) ^ (cursor >> 8) as u8
    }

    fn bytes_at(cursor: u64, len: usize) -> Vec<u8> {
        (cursor..cursor + len as u64).map(byte_at).collect()
    }

    /// What TCP does without loss: all that fits moves from the send ring to the peer's receive ring.
    fn carry(from: &mut RingReader, to: &mut RingWriter) {
        let mut bytes = vec![0; to.free()];
        let count = from.copy_at(from.cursor(), &mut bytes);
        assert_eq!(to.write(&bytes[..count]), count);
        from.release(count);
    }

    fn halves<'a>((recv, send): &'a mut (RingWriter, RingReader)) -> Halves<'a> {
        Halves { send, recv }
    }

    /// The reader's end of a stream: its own ring, and the way beyond.
    fn read(own: &mut RingReader, way: &mut Option<FusedReader>, to: &mut [u8]) -> Visit {
        let count = own.read(to);
        if count > 0 {
            return Visit { count, is_awaited: false };
        }
        if way.is_none() {
            *way = own.fused();
        }
        way.as_mut().map_or(Visit::default(), |way| way.read(own, to))
    }

    proptest! {
        /// In whatever order streams are written, read, carried, fused and parted, each is whole and holds what it says.
        #[test]
        fn the_stream_goes_on_at_its_cursor(
            steps in proptest::collection::vec((0u8..8, 1usize..200, any::<bool>()), 1..300),
        ) {
            let (mut one, mut two): (Pair, Pair) = (byte_rings(100, 80), byte_rings(60, 90));
            let mut ways = [None, None];
            let mut is_fused = false;
            for (what, len, first) in steps {
                let (from, to, way) =
                    if first { (&mut one, &mut two, 1) } else { (&mut two, &mut one, 0) };
                match what {
                    0..=2 => {
                        let writer = &mut from.0.0;
                        writer.write(&bytes_at(writer.cursor(), len));
                    }
                    3 | 4 => {
                        let cursor = to.0.1.cursor();
                        let mut bytes = vec![0; len];
                        let visit = read(&mut to.0.1, &mut ways[way], &mut bytes);
                        prop_assert!(!visit.is_awaited, "nobody else is here");
                        prop_assert_eq!(&bytes[..visit.count], &bytes_at(cursor, visit.count)[..]);
                    }
                    5 if !is_fused => carry(&mut from.1.1, &mut to.1.0),
                    6 if !is_fused => is_fused = fuse(halves(&mut one.1), halves(&mut two.1), Terms::default()),
                    7 if is_fused => {
                        let unread = two.1.0.unread_in_all() as u64;
                        prop_assert_eq!(unread, one.0.0.cursor() - two.0.1.cursor());
                        prop_assert!(part(halves(&mut one.1), halves(&mut two.1)));
                        is_fused = false;
                    }
                    _ => {
                        one.1.1.detach_if_empty();
                        two.1.0.detach_if_empty();
                    }
                }
            }
            prop_assert!(is_fused || fuse(halves(&mut one.1), halves(&mut two.1), Terms::default()));
            let mut bytes = [0; 200];
            while read(&mut two.0.1, &mut ways[1], &mut bytes).count > 0 {}
            prop_assert_eq!(two.0.1.cursor(), one.0.0.cursor());
        }
    }

    /// Three threads: one writes, one reads, one changes its mind, and waits for the reader where it must.
    #[test]
    fn a_reader_inside_gives_the_rings_back_when_it_leaves() {
        const BYTES: u64 = 300_000;
        let (mut one, mut two): (Pair, Pair) = (byte_rings(256, 256), byte_rings(256, 256));
        let (is_over, is_awaited) = (AtomicBool::new(false), AtomicBool::new(false));
        let ((mut writer, _), (mut reader, _)) = {
            let ((writer, unread), (unwritten, reader)) = (one.0, two.0);
            ((writer, unread), (reader, unwritten))
        };
        thread::scope(|scope| {
            scope.spawn(|| {
                while writer.cursor() < BYTES {
                    let len = (BYTES - writer.cursor()).min(100) as usize;
                    let bytes = bytes_at(writer.cursor(), len);
                    if writer.write(&bytes) == 0 {
                        thread::yield_now();
                    }
                }
            });
            scope.spawn(|| {
                let (mut way, mut bytes) = (None, [0; 77]);
                while reader.cursor() < BYTES {
                    let cursor = reader.cursor();
                    let visit = read(&mut reader, &mut way, &mut bytes);
                    assert_eq!(bytes[..visit.count], bytes_at(cursor, visit.count));
                    if visit.is_awaited {
                        assert!(!is_awaited.swap(true, Ordering::SeqCst), "once");
                    }
                    if visit.count == 0 {
                        thread::yield_now();
                    }
                }
                is_over.store(true, Ordering::SeqCst);
            });
            while !is_over.load(Ordering::SeqCst) {
                carry(&mut one.1.1, &mut two.1.0);
                if !fuse(halves(&mut one.1), halves(&mut two.1), Terms::default()) {
                    continue;
                }
                thread::yield_now();
                if !part(halves(&mut one.1), halves(&mut two.1)) {
                    while !is_awaited.swap(false, Ordering::SeqCst) {
                        thread::yield_now();
                    }
                    assert!(part(halves(&mut one.1), halves(&mut two.1)));
                }
            }
        });
    }
}
