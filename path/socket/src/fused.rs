//! TCP Fusion at the socket: two streams of one process whose ends are each other's peers.
//!
//! While they are fused, an application's read takes bytes from the ring that the other application writes, and each
//! tells the other what it did, as the lane does otherwise. The lane fuses and parts ([`fuse_streams`],
//! [`part_streams`]); the ends notice by a flag in the words that they look at anyway. Which bytes are read where is the
//! rings' affair (`base/frame/src/byte_ring/fused.rs`): the stream is its cursor, in either mode.
//!
//! A fused direction holds as much as both buffers would, so that no program which works over TCP waits for ever. What the
//! receiver's buffer would hold counts as acknowledged.

use firelane_frame::{FusedReader, FusedWriter, Halves, Terms, Visit};

use crate::stream::StreamShared;
use crate::{Flags, Ready, RecvEnd, SendEnd, SocketToken, StreamSlot, WriteError};

/// Whom an application must tell that it wrote or read.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[must_use = "somebody may wait for it"]
pub struct Nudge {
    /// The lane, with a kick message.
    pub kick: bool,
    /// The peer's application, which waits for this.
    pub wake: Option<(SocketToken, Ready)>,
}

/// What the writing half knows of who reads.
#[derive(Debug)]
pub(crate) struct Outlet {
    writer: FusedWriter,
    /// The capacity that the ring has when it is not fused.
    own_capacity: usize,
    /// The last write found the ring without storage: the lane is to look after it.
    is_new: bool,
    /// The last write would have been longer with more credit: the lane is to see to it.
    is_short: bool,
}

impl Outlet {
    /// How much of what is unread the receiver's buffer would hold.
    pub(crate) fn room(&self) -> usize {
        self.writer.room()
    }
}

/// What the reading half knows of who writes.
#[derive(Debug)]
pub(crate) struct Inlet {
    reader: FusedReader,
    /// Something was released since the writer was told.
    has_read: bool,
    /// The lane waits for the rings.
    is_awaited: bool,
}

impl Inlet {
    fn note(&mut self, visit: Visit, releases: bool) -> usize {
        self.is_awaited |= visit.is_awaited;
        self.has_read |= releases && visit.count > 0;
        visit.count
    }
}

impl SendEnd {
    /// Takes over what the lane has decided since the last look.
    #[cold]
    fn follow(&mut self, flags: Flags) {
        match (&self.fused, flags.contains(Flags::FUSED)) {
            (Some(outlet), false) => {
                self.ring.set_capacity(outlet.own_capacity);
                self.fused = None;
            }
            (None, true) => {
                // Without it the peer is gone, and so is the connection.
                let Some(writer) = self.ring.fused() else { return };
                let own_capacity = self.ring.capacity();
                self.ring.set_capacity(own_capacity + writer.room());
                self.fused = Some(Box::new(Outlet { writer, own_capacity, is_new: false, is_short: false }));
            }
            _ => {}
        }
    }

    /// As [`SendEnd::write`], where the connection is fused or was.
    pub(crate) fn write_fused(&mut self, flags: Flags, bytes: &[u8]) -> Result<usize, WriteError> {
        if flags.contains(Flags::FUSED) != self.fused.is_some() {
            self.follow(flags);
        }
        let Some(outlet) = &mut self.fused else { return self.write_plain(bytes) };
        if !outlet.writer.may_write() && self.ring.unread() > 0 {
            return Err(WriteError::WouldBlock);
        }
        outlet.is_new |= self.ring.attached_bytes() == 0;
        let (cursor, credit) = (self.ring.cursor(), outlet.writer.credit(self.ring.cursor()));
        let count = self.ring.write(&bytes[..bytes.len().min(credit)]);
        outlet.is_short = count == credit && count < bytes.len();
        if outlet.is_short {
            outlet.writer.ask(cursor + bytes.len() as u64);
        }
        match count {
            0 if !bytes.is_empty() => Err(WriteError::WouldBlock),
            count => {
                outlet.writer.count_write();
                Ok(count)
            }
        }
    }

    /// Whether a write finds room, as [`SendEnd::write`] looks for it. Who has no credit asks for some.
    pub(crate) fn has_room(&mut self, flags: Flags) -> bool {
        if flags.contains(Flags::FUSED) != self.fused.is_some() {
            self.follow(flags);
        }
        let Some(outlet) = &mut self.fused else {
            let words = StreamShared(self.ring.margin()).words();
            return self.ring.free() > 0 && !(words.unsent_limit().is_some() && words.is_full());
        };
        let cursor = self.ring.cursor();
        if outlet.writer.credit(cursor) == 0 {
            outlet.is_short = true;
            outlet.writer.ask(cursor + 1);
            return false;
        }
        self.ring.free() > 0 && (outlet.writer.may_write() || self.ring.unread() == 0)
    }

    /// Whether a write that found no room must be told to the lane: the storage is smaller than it should be, because it
    /// was in use when the connection was fused, or a limit has to give credit.
    pub fn is_cramped(&mut self) -> bool {
        if self.fused.as_deref_mut().is_some_and(|outlet| core::mem::take(&mut outlet.is_short)) {
            return self.shared().words().kick();
        }
        let is_cramped = self.fused.is_some() && self.ring.attached_bytes() < self.ring.capacity();
        if is_cramped && let Some(outlet) = &self.fused {
            outlet.writer.complain();
        }
        is_cramped && self.shared().words().kick()
    }

    /// Whom to tell that something was written, if the connection is fused.
    pub(crate) fn nudge_fused(&mut self) -> Nudge {
        let words = StreamShared(self.ring.margin()).words();
        let Some(outlet) = &mut self.fused else { return Nudge::default() };
        // The lane takes the flag back before it looks at the ring (R5).
        if !words.flags_after().contains(Flags::FUSED) {
            return Nudge { kick: words.kick(), wake: None };
        }
        let peer = StreamShared(outlet.writer.margin()).words();
        let wake = peer.tell_after(Ready::READABLE).map(|token| (token, Ready::READABLE));
        let concerns_lane = core::mem::take(&mut outlet.is_new) | core::mem::take(&mut outlet.is_short);
        Nudge { kick: concerns_lane && words.kick(), wake }
    }
}

impl RecvEnd {
    /// Copies what there is and releases it: first of the own ring, then of the peer's.
    #[inline]
    pub(crate) fn take(&mut self, to: &mut [u8]) -> usize {
        match self.ring.read(to) {
            0 if self.is_fused() => self.take_fused(to),
            count => count,
        }
    }

    /// Whether the stream goes on in the ring that the peer writes.
    #[inline]
    fn is_fused(&self) -> bool {
        self.shared().words().flags().contains(Flags::FUSED)
    }

    /// The way to the peer's ring, if there is something to read in it.
    fn inlet(&mut self) -> Option<&mut Inlet> {
        if self.fused.is_none() {
            let reader = self.ring.fused()?;
            self.fused = Some(Box::new(Inlet { reader, has_read: false, is_awaited: false }));
        }
        self.fused.as_deref_mut().filter(|inlet| inlet.reader.available() > 0)
    }

    fn take_fused(&mut self, to: &mut [u8]) -> usize {
        self.inlet();
        let Some(inlet) = self.fused.as_deref_mut().filter(|inlet| inlet.reader.available() > 0) else {
            return 0;
        };
        let visit = inlet.reader.read(&mut self.ring, to);
        inlet.note(visit, true)
    }

    /// Copies what there is from `cursor` on without releasing it.
    pub(crate) fn copy_at(&mut self, cursor: u64, to: &mut [u8]) -> usize {
        let count = self.ring.copy_at(cursor, to);
        if count > 0 || !self.is_fused() || self.inlet().is_none() {
            return count;
        }
        let Some(inlet) = self.fused.as_deref_mut() else { return 0 };
        let visit = inlet.reader.copy_at(&mut self.ring, cursor, to);
        inlet.note(visit, false)
    }

    /// Leaves out the next `count` bytes, of what there is.
    pub(crate) fn skip(&mut self, count: usize) {
        let own = self.ring.available().min(count);
        self.ring.release(own);
        if count > own
            && self.is_fused()
            && self.inlet().is_some()
            && let Some(inlet) = self.fused.as_deref_mut()
        {
            let visit = inlet.reader.skip(&mut self.ring, count - own);
            inlet.note(visit, true);
        }
    }

    /// Bytes of the stream that can be read now.
    #[inline]
    pub(crate) fn left(&self) -> usize {
        let own = self.ring.available();
        if self.is_fused() { own + self.left_fused() } else { own }
    }

    fn left_fused(&self) -> usize {
        match &self.fused {
            Some(inlet) => inlet.reader.available(),
            None => self.ring.fused().map_or(0, |reader| reader.available()),
        }
    }

    /// Whom to tell that something was read, where the connection is fused or was.
    pub(crate) fn nudge_fused(&mut self) -> Nudge {
        let is_fused = self.is_fused();
        let Some(inlet) = self.fused.as_deref_mut() else { return Nudge::default() };
        let mut nudge = Nudge::default();
        if core::mem::take(&mut inlet.has_read) && inlet.reader.has_room() {
            let peer = StreamShared(inlet.reader.margin()).words();
            nudge.wake = peer.tell(Ready::WRITABLE).map(|token| (token, Ready::WRITABLE));
        }
        let is_awaited = core::mem::take(&mut inlet.is_awaited);
        if !is_fused {
            self.fused = None;
        }
        nudge.kick = if is_awaited { self.shared().words().kick() } else { !is_fused && self.kick() };
        nudge
    }
}

/// What a lane makes of two streams.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fusion {
    /// Both ends read what the other writes.
    Fused,
    /// Not yet: the rings do not meet at one cursor.
    NotYet,
}

fn halves(slot: &mut StreamSlot) -> Halves<'_> {
    Halves { send: &mut slot.send, recv: &mut slot.recv }
}

/// Fuses two streams, each of which is what the other's peer has, and between which nothing is under way. Whoever waits
/// must be told, because there may be something to read in the other's ring.
pub fn fuse_streams(one: &mut StreamSlot, two: &mut StreamSlot, terms: Terms) -> Fusion {
    if !firelane_frame::fuse(halves(one), halves(two), terms) {
        return Fusion::NotYet;
    }
    for slot in [one, two] {
        slot.shared().words().relieve();
        slot.shared().words().set_flags(Flags::FUSED);
    }
    Fusion::Fused
}

/// Ends the fusion of two streams. Whether the lane has its rings again: if not, an application is inside them and will
/// send a kick; then this is called again.
pub fn part_streams(one: &mut StreamSlot, two: &mut StreamSlot) -> bool {
    for slot in [&*one, &*two] {
        slot.shared().words().clear_flags(Flags::FUSED);
    }
    firelane_frame::part(halves(one), halves(two))
}

/// Leaves two streams fused whose connection is over, so that what was written can be read to its end.
pub fn sever_streams(one: &mut StreamSlot, two: &mut StreamSlot) {
    firelane_frame::reopen(&halves(one), &halves(two));
    for slot in [one, two] {
        slot.shared().words().set_flags(Flags::FUSED);
    }
}

impl StreamSlot {
    /// Whether an application wants the fusion ended because its storage is too small for it.
    pub fn is_cramped(&mut self, peer: &mut StreamSlot) -> bool {
        firelane_frame::is_cramped(&halves(self), &halves(peer))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ReadError, StreamConfig, StreamEnd, stream};
    use firelane_units::{LaneId, NetstackId};

    const RINGS: StreamConfig = StreamConfig { send_capacity: 64, recv_capacity: 64 };

    /// Two streams that are each other's peers, fused.
    fn fused(most_writes: u32) -> ([StreamEnd; 2], [StreamSlot; 2]) {
        let [one, two] = [7, 8].map(|token| {
            let (end, slot) = stream(RINGS, LaneId(0), NetstackId(0));
            end.shared().words().set_token(SocketToken(token));
            end.shared().words().set_flags(Flags::CONNECTED);
            (end, slot)
        });
        let mut slots = [one.1, two.1];
        let [first, second] = &mut slots;
        assert_eq!(fuse_streams(first, second, Terms { most_writes, ..Terms::default() }), Fusion::Fused);
        ([one.0, two.0], slots)
    }

    #[test]
    fn each_tells_the_other_and_nobody_else() {
        let ([mut one, mut two], _slots) = fused(0);
        assert_eq!(one.send.write(b"abc"), Ok(3));
        // The ring had no storage: whoever takes it back when it is silent must know.
        assert_eq!(one.send.nudge(), Nudge { kick: true, wake: None });
        two.shared().words().wait_for(Ready::READABLE);
        assert_eq!(one.send.write(b"d"), Ok(1));
        let wake = Some((SocketToken(8), Ready::READABLE));
        assert_eq!(one.send.nudge(), Nudge { kick: false, wake });
        let mut bytes = [0; 8];
        assert_eq!((two.recv.peek(&mut bytes), two.recv.available()), (Ok(4), 4));
        one.shared().words().wait_for(Ready::WRITABLE);
        assert_eq!((two.recv.read(&mut bytes), &bytes[..4]), (Ok(4), &b"abcd"[..]));
        let wake = Some((SocketToken(7), Ready::WRITABLE));
        assert_eq!(two.recv.nudge(), Nudge { kick: false, wake });
        assert_eq!(two.recv.read(&mut bytes), Err(ReadError::WouldBlock));
    }

    #[test]
    fn after_parting_the_lane_is_told_again() {
        let ([mut one, mut two], mut slots) = fused(0);
        assert_eq!(one.send.write(&[1; 100]), Ok(100), "as much as both buffers hold");
        assert_eq!(one.send.unacknowledged(), 36);
        let _ = one.send.nudge();
        let mut bytes = [0; 10];
        assert_eq!(two.recv.read(&mut bytes), Ok(10));
        let [first, second] = &mut slots;
        assert!(part_streams(first, second));
        assert_eq!(two.recv.read(&mut bytes), Err(ReadError::WouldBlock), "the rest comes in segments");
        assert_eq!((first.send.cursor(), first.send.available(), second.recv.cursor()), (10, 90, 10));
        assert_eq!(one.send.write(b"x"), Err(WriteError::WouldBlock), "its own buffer is more than full");
        first.shared().words().unkick();
        first.send.release(90);
        assert_eq!(one.send.write(&[2; 100]), Ok(64));
        assert!(one.send.nudge().kick);
    }

    /// Whatever happens between two instructions of the others: what was written is told to who waits, or seen by who
    /// looks, or the lane has it and knows (R1, R5).
    #[test]
    fn nothing_that_was_written_is_forgotten() {
        for _ in 0..2000 {
            let ([mut one, mut two], mut slots) = fused(0);
            let _ = (one.send.write(b"a"), one.send.nudge(), two.recv.read(&mut [0]), two.recv.nudge());
            slots[0].shared().words().unkick();
            let [first, second] = &mut slots;
            let (told, saw, lane) = std::thread::scope(|scope| {
                let writer = scope.spawn(|| {
                    assert_eq!(one.send.write(b"b"), Ok(1));
                    let nudge = one.send.nudge();
                    nudge.kick || nudge.wake.is_some()
                });
                let reader = scope.spawn(|| {
                    two.shared().words().wait_for(Ready::READABLE);
                    let count = two.recv.read(&mut [0]);
                    count == Ok(1) || two.recv.nudge().kick
                });
                let is_parted = part_streams(first, second);
                let lane = is_parted && first.send.available() > 0;
                (writer.join().unwrap(), reader.join().unwrap(), lane)
            });
            assert!(told || saw || lane);
        }
    }
}
