//! A stream endpoint: two byte rings between an application and a connection.
//!
//! The application's side is two halves ([`SendEnd`], [`RecvEnd`]) that may live in different threads; the
//! lane's side ([`StreamSlot`]) belongs to the connection. The send ring *is* TCP's retransmission buffer:
//! the lane releases bytes when they are acknowledged. Neither side waits.
//!
//! A stream is one allocation: what both sides see beside the rings ([`StreamShared`]) lies in the margin between
//! the rings' sides.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use core::sync::atomic::Ordering;

use std::sync::Arc;

use firelane_frame::{
    FarView, Margin, MarginRef, Packed, RingArena, RingReader, RingWriter, WeakMarginRef, byte_rings,
    byte_rings_in, move_home,
};
use firelane_units::{ConnId, LaneId, NetstackId};

use crate::fused::{Inlet, Nudge, Outlet};
use crate::urgent::Heed;
use crate::{Flags, Ready, SocketError, SocketToken, Words};

/// The sizes of a stream's rings. Who asks for just the default leaves the size to TCP, which makes it larger where that helps.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StreamConfig {
    /// The most bytes that wait to be acknowledged (SO_SNDBUF).
    pub send_capacity: usize,
    /// The most bytes that wait to be read (SO_RCVBUF): the largest window.
    pub recv_capacity: usize,
}

impl Default for StreamConfig {
    /// A window of 10 Gb/s and 0.8 ms may come in. What goes out begins with a quarter of that, which carries 50 Gb/s over 40 us,
    /// and grows when the path is longer (`path/tcp/src/send_tuning.rs`). A busy sender walks over all of its ring again and again;
    /// one that stays in its CPU's cache, beside the frames made from it, is half as fast again as one that does not. Storage is
    /// attached at first use.
    fn default() -> Self {
        Self { send_capacity: 1 << 18, recv_capacity: 1 << 20 }
    }
}

/// Which connection of which lane a stream belongs to. The generation tells a slot's users apart.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ConnRef {
    /// The slot in the shard's table.
    pub conn: ConnId,
    /// Which user of that slot; never zero.
    pub generation: u32,
}

/// The two ends' addresses.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Names {
    /// Ours.
    pub local: SocketAddr,
    /// The peer's.
    pub remote: SocketAddr,
}

/// What each word of the margin is for.
mod word {
    pub(super) const TOKEN: usize = 0;
    /// What an application in another process sees there instead: where urgent text ends.
    pub(super) const MARK: usize = TOKEN;
    /// Interest, kicks, flags, error.
    pub(super) const STATE: usize = 1;
    /// A [`super::ConnRef`]; zero until the lane has made the connection. The words after it are read when it is
    /// there.
    pub(super) const CONN: usize = 2;
    /// Lane, netstack and the two ports, 16 bits each.
    pub(super) const PLACE: usize = 3;
    /// The local address and the remote one, two words each, IPv4 mapped. (Streams have no scopes.)
    pub(super) const ADDRESSES: [usize; 2] = [4, 6];
}

/// What both sides of a stream see beside the rings.
#[derive(Clone, Copy, Debug)]
pub struct StreamShared<'a>(pub(crate) &'a Margin);

impl<'a> StreamShared<'a> {
    /// Interest, flags, error, kicks.
    pub fn words(self) -> Words<'a> {
        Words { token: &self.0[word::TOKEN], state: &self.0[word::STATE] }
    }

    fn place(self) -> [u16; 4] {
        let place = self.0[word::PLACE].load(Ordering::Relaxed);
        [0, 16, 32, 48].map(|shift| (place >> shift) as u16)
    }

    fn set_place(self, place: [u16; 4]) {
        let word = place.iter().rev().fold(0, |word, &part| word << 16 | u64::from(part));
        self.0[word::PLACE].store(word, Ordering::Relaxed);
    }

    /// The lane that owns the connection.
    pub fn lane(self) -> LaneId {
        LaneId(self.place()[0])
    }

    /// Another lane is to make the connection: said by whoever has the lane's side, before it is made.
    pub fn set_lane(self, lane: LaneId) {
        let [_, netstack, local, remote] = self.place();
        self.set_place([lane.0, netstack, local, remote]);
    }

    /// The netstack that the connection belongs to.
    pub fn netstack(self) -> NetstackId {
        NetstackId(self.place()[1])
    }

    /// The connection; `None` while the lane has not made it.
    pub fn conn(self) -> Option<ConnRef> {
        let word = self.0[word::CONN].load(Ordering::Acquire);
        let (generation, conn) = ((word >> 32) as u32, ConnId(word as u32));
        (generation != 0).then_some(ConnRef { conn, generation })
    }

    /// Lane: the connection is made.
    ///
    /// # Panics
    /// If it was made before.
    pub fn bind(self, conn: ConnRef, names: Names) {
        assert!(self.conn().is_none(), "a stream is bound once");
        let [lane, netstack, ..] = self.place();
        self.set_place([lane, netstack, names.local.port(), names.remote.port()]);
        for (end, at) in [names.local, names.remote].into_iter().zip(word::ADDRESSES) {
            let bits = match end.ip() {
                IpAddr::V4(address) => address.to_ipv6_mapped().to_bits(),
                IpAddr::V6(address) => address.to_bits(),
            };
            self.0[at].store((bits >> 64) as u64, Ordering::Relaxed);
            self.0[at + 1].store(bits as u64, Ordering::Relaxed);
        }
        let word = u64::from(conn.generation) << 32 | u64::from(conn.conn.0);
        self.0[word::CONN].store(word, Ordering::Release);
    }

    /// The two ports, ours first; zeros while the lane has not made the connection.
    #[inline]
    pub fn ports(self) -> [u16; 2] {
        let [.., local, remote] = self.place();
        [local, remote]
    }

    /// Whether these are the two ends: addresses as high and low half, IPv4 mapped, ours first.
    #[inline]
    pub fn is_between(self, addresses: [[u64; 2]; 2], ports: [u16; 2]) -> bool {
        let word = |n: usize| self.0[n].load(Ordering::Relaxed);
        let mut ends = addresses.into_iter().zip(word::ADDRESSES);
        self.ports() == ports && ends.all(|([high, low], at)| word(at + 1) == low && word(at) == high)
    }

    /// The two ends as [`StreamShared::is_between`] has them; `None` while the lane has not made the connection.
    pub fn ends(self) -> Option<([[u64; 2]; 2], [u16; 2])> {
        self.conn()?;
        let halves = |at: usize| [at, at + 1].map(|n| self.0[n].load(Ordering::Relaxed));
        Some((word::ADDRESSES.map(halves), self.ports()))
    }

    /// The two ends' addresses; `None` while the lane has not made the connection.
    pub fn names(self) -> Option<Names> {
        self.conn()?;
        let [.., local_port, remote_port] = self.place();
        let [local, remote] =
            word::ADDRESSES.map(|at| address([at, at + 1].map(|n| self.0[n].load(Ordering::Relaxed))));
        let (local, remote) = (SocketAddr::new(local, local_port), SocketAddr::new(remote, remote_port));
        Some(Names { local, remote })
    }
}

/// The address with this high and low half; IPv4 is mapped (RFC 4291 §2.5.5.2).
#[inline]
fn address([high, low]: [u64; 2]) -> IpAddr {
    if high == 0 && low >> 32 == 0xffff {
        return Ipv4Addr::from_bits(low as u32).into();
    }
    Ipv6Addr::from_bits(u128::from(high) << 64 | u128::from(low)).into()
}

/// What both sides see, for who keeps it beside the halves.
#[derive(Clone, Debug)]
pub struct StreamRef(MarginRef);

impl StreamRef {
    /// What both sides see.
    pub fn get(&self) -> StreamShared<'_> {
        StreamShared(&self.0)
    }

    /// Copies what an application in another process, which is gone, has left to be sent ([`StreamSlot::move_home`]). `None` if there is
    /// no such application, or what it says cannot be true, or something else is to be sent by now.
    pub fn pack(&self) -> Option<Packed> {
        self.0.pack()
    }
}

/// A stream that nobody holds any more, but perhaps its lane.
#[derive(Clone, Debug)]
pub struct LeftStream(WeakMarginRef);

impl LeftStream {
    /// Whether its lane has let go of it, too.
    pub fn is_over(&self) -> bool {
        self.0.is_gone()
    }

    /// Holds it, if its lane has it.
    pub fn hold(&self) -> Option<StreamRef> {
        self.0.upgrade().map(StreamRef)
    }
}

/// Makes a stream's two sides, for a connection of `netstack` in `lane`.
pub fn stream(config: StreamConfig, lane: LaneId, netstack: NetstackId) -> (StreamEnd, StreamSlot) {
    let ((writer, reader), (recv, send)) = byte_rings(config.send_capacity, config.recv_capacity);
    StreamShared(writer.margin()).set_place([lane.0, netstack.0, 0, 0]);
    let kick_step = u32::try_from(recv.capacity() / 4).map_or(u32::MAX, |step| step.max(1));
    let end = StreamEnd {
        send: SendEnd { ring: writer, fused: None },
        recv: RecvEnd { ring: reader, kicked_at: 0, kick_step, heed: Heed::default(), fused: None },
    };
    (end, StreamSlot { send, recv })
}

/// Makes a stream whose application is another process, with words and storage in `arena`. `None` if the arena has
/// no block left.
pub fn stream_in(
    arena: &Arc<RingArena>,
    config: StreamConfig,
    lane: LaneId,
    netstack: NetstackId,
) -> Option<(ArenaEnd, StreamSlot)> {
    let (held, (recv, send)) = byte_rings_in(arena, config.send_capacity, config.recv_capacity)?;
    let end = ArenaEnd(held);
    let place = [lane.0, netstack.0, 0, 0];
    end.shared().set_place(place);
    StreamShared(end.far().margin()).set_place(place);
    Some((end, StreamSlot { send, recv }))
}

/// The hold on a stream whose application is another process: kept by whoever answers for that process, until nobody
/// there has the socket any more. Block and storage are given to others when this and the lane's side are gone.
#[derive(Debug)]
pub struct ArenaEnd(MarginRef);

impl ArenaEnd {
    /// What this process and the lane see. The other process sees a copy of what it needs.
    pub fn shared(&self) -> StreamShared<'_> {
        StreamShared(&self.0)
    }

    fn far(&self) -> FarView<'_> {
        self.0.far().expect("the rings were made in an arena")
    }

    /// It, for who wants to know what becomes of it when this hold is gone.
    pub fn left(&self) -> LeftStream {
        LeftStream(self.0.downgrade())
    }

    /// The stream's block in the arena.
    pub fn block(&self) -> u32 {
        self.far().block()
    }

    /// Changes how much the application may have unacknowledged (SO_SNDBUF), from its next storage on.
    pub fn set_send_capacity(&self, capacity: usize) {
        self.far().set_capacity(capacity);
    }

    /// How many bytes the peer has acknowledged, and how many have arrived.
    pub fn passed(&self) -> [u64; 2] {
        [self.0.released(), self.0.published()]
    }

    /// How many bytes the application has written behind `cursor` of its send ring, as it says, and how many may stand
    /// there.
    pub fn written_behind(&self, cursor: u64) -> [u64; 2] {
        self.far().written_behind(&self.0, cursor)
    }

    /// The application found that its stream's memory cannot be true: as if it had said so itself.
    pub fn note_lie(&self) {
        self.far().note_lie();
    }

    /// Whether the application has said what cannot be true.
    pub fn has_lied(&self) -> bool {
        self.far().has_lied()
    }

    /// Shows the application what names the connection has. Whether it has any as yet.
    pub fn publish_names(&self) -> bool {
        let (own, shown) = (self.shared(), StreamShared(self.far().margin()));
        let Some(conn) = own.conn() else { return false };
        for at in [word::PLACE].into_iter().chain(word::ADDRESSES[0]..word::ADDRESSES[1] + 2) {
            shown.0[at].store(own.0[at].load(Ordering::Relaxed), Ordering::Relaxed);
        }
        shown.0[word::CONN].store(u64::from(conn.generation), Ordering::Release);
        true
    }
}

/// The application's side of a stream: in this process, or in an arena.
#[derive(Debug)]
pub enum AnyEnd {
    /// Here.
    Here(StreamEnd),
    /// In another process.
    There(ArenaEnd),
}

impl AnyEnd {
    /// What both sides see.
    pub fn shared(&self) -> StreamShared<'_> {
        match self {
            Self::Here(end) => end.shared(),
            Self::There(end) => end.shared(),
        }
    }
}

/// The application's side.
#[derive(Debug)]
pub struct StreamEnd {
    /// What it writes.
    pub send: SendEnd,
    /// What it reads.
    pub recv: RecvEnd,
}

impl StreamEnd {
    /// What both sides see.
    pub fn shared(&self) -> StreamShared<'_> {
        self.send.shared()
    }

    /// The same, to be kept beside the halves.
    pub fn share(&self) -> StreamRef {
        StreamRef(self.send.ring.margin_ref())
    }

    /// Where connecting stands: `Ok(true)` when it is established, `Ok(false)` while it is under way.
    pub fn poll_connected(&self) -> Result<bool, SocketError> {
        let words = self.shared().words();
        if let Some(error) = words.take_error() {
            return Err(error);
        }
        let flags = words.flags();
        if flags.contains(Flags::CLOSED) && !flags.contains(Flags::CONNECTED) {
            return Err(SocketError::Aborted);
        }
        Ok(flags.contains(Flags::CONNECTED))
    }
}

/// Why nothing was written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WriteError {
    /// The ring is full, or the connection not yet established.
    WouldBlock,
    /// The write side was shut, or the connection is gone (EPIPE).
    Closed,
    /// The connection failed.
    Failed(SocketError),
}

/// Why nothing was read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReadError {
    /// The ring is empty, and more may come.
    WouldBlock,
    /// The connection failed.
    Failed(SocketError),
}

/// The half that writes.
#[derive(Debug)]
pub struct SendEnd {
    pub(crate) ring: RingWriter,
    /// Who reads the ring, once the connection was fused (`fused.rs`).
    pub(crate) fused: Option<Box<Outlet>>,
}

impl SendEnd {
    /// Copies as much of `bytes` as has room. The caller tells whom [`SendEnd::nudge`] names.
    pub fn write(&mut self, bytes: &[u8]) -> Result<usize, WriteError> {
        let words = self.shared().words();
        if let Some(error) = words.take_error() {
            return Err(WriteError::Failed(error));
        }
        let flags = words.flags();
        if flags.intersects(Flags::WRITE_CLOSED | Flags::CLOSED) {
            return Err(WriteError::Closed);
        }
        if !flags.contains(Flags::CONNECTED) {
            return Err(WriteError::WouldBlock);
        }
        if flags.contains(Flags::FUSED) || self.fused.is_some() {
            return self.write_fused(flags, bytes);
        }
        self.write_plain(bytes)
    }

    #[inline]
    pub(crate) fn write_plain(&mut self, bytes: &[u8]) -> Result<usize, WriteError> {
        if let Some(limit) = self.shared().words().unsent_limit() {
            return self.write_within(bytes, limit);
        }
        match self.ring.write(bytes) {
            0 if !bytes.is_empty() => Err(WriteError::WouldBlock),
            count => Ok(count),
        }
    }

    /// Whether the next write does not block. If it would, [`SendEnd::is_cramped`] says whether the lane is to be told, as of a write.
    pub fn is_writable(&mut self) -> bool {
        let words = self.shared().words();
        let flags = words.flags();
        if words.error().is_some() || flags.intersects(Flags::WRITE_CLOSED | Flags::CLOSED) {
            return true;
        }
        flags.contains(Flags::CONNECTED) && self.has_room(flags)
    }

    /// Copies as much of `bytes` as has room before the lane knows of the stream: a SYN may carry it (RFC 7413).
    pub fn preload(&mut self, bytes: &[u8]) -> usize {
        self.ring.write(bytes)
    }

    /// Whom to tell that something was written.
    #[inline]
    pub fn nudge(&mut self) -> Nudge {
        match &self.fused {
            None => Nudge { kick: self.shared().words().kick(), wake: None },
            Some(_) => self.nudge_fused(),
        }
    }

    /// The cursor behind what was written.
    pub fn cursor(&self) -> u64 {
        self.ring.cursor()
    }

    /// How much storage the ring has at present.
    pub fn storage_bytes(&self) -> usize {
        self.ring.attached_bytes()
    }

    /// Bytes that could be written now.
    pub fn room(&self) -> usize {
        self.ring.free()
    }

    /// Bytes that the peer has not acknowledged.
    pub fn unacknowledged(&self) -> usize {
        self.ring.unread().saturating_sub(self.fused.as_ref().map_or(0, |fused| fused.room()))
    }

    /// Refuses further writes; the caller sends the lane the command that makes the FIN.
    pub fn shut(&self) {
        self.shared().words().set_flags(Flags::WRITE_CLOSED);
    }

    /// What both sides see.
    pub fn shared(&self) -> StreamShared<'_> {
        StreamShared(self.ring.margin())
    }
}

/// The half that reads.
#[derive(Debug)]
pub struct RecvEnd {
    pub(crate) ring: RingReader,
    /// The cursor at the last kick, and how far from it the next is due: a window update is worth a message
    /// only when it opens the window by a good part.
    kicked_at: u64,
    kick_step: u32,
    /// What the program wants to know of urgent text (`urgent.rs`).
    pub(crate) heed: Heed,
    /// What the peer writes, once the connection was fused (`fused.rs`).
    pub(crate) fused: Option<Box<Inlet>>,
}

impl RecvEnd {
    /// Copies what there is into `to`; `Ok(0)` is the end of the stream.
    pub fn read(&mut self, to: &mut [u8]) -> Result<usize, ReadError> {
        if self.heed.is_idle() { self.read_any(to) } else { self.read_heeding(to) }
    }

    #[inline]
    pub(crate) fn read_any(&mut self, to: &mut [u8]) -> Result<usize, ReadError> {
        let count = self.take(to);
        if count > 0 || to.is_empty() {
            return Ok(count);
        }
        // The flag may have come with the last bytes, after the look at the ring: look again.
        self.why_empty().map(|()| self.take(to))
    }

    /// Shows what there is without taking it.
    pub fn peek(&mut self, to: &mut [u8]) -> Result<usize, ReadError> {
        if self.heed.is_idle() { self.peek_from(self.ring.cursor(), to) } else { self.peek_heeding(to) }
    }

    pub(crate) fn peek_from(&mut self, cursor: u64, to: &mut [u8]) -> Result<usize, ReadError> {
        let count = self.copy_at(cursor, to);
        if count > 0 || to.is_empty() {
            return Ok(count);
        }
        self.why_empty().map(|()| self.copy_at(cursor, to))
    }

    /// The cursor of the next byte.
    pub fn cursor(&self) -> u64 {
        self.ring.cursor()
    }

    /// `Ok` if no more bytes come.
    fn why_empty(&self) -> Result<(), ReadError> {
        let words = self.shared().words();
        let flags = words.flags();
        if self.available() > 0 || flags.contains(Flags::PEER_CLOSED) {
            // What failed after the peer's end is told by the next write, as in Linux.
            return Ok(());
        }
        match words.take_error() {
            Some(error) => Err(ReadError::Failed(error)),
            None if flags.intersects(Flags::CLOSED | Flags::READ_CLOSED) => Ok(()),
            None => Err(ReadError::WouldBlock),
        }
    }

    /// Bytes that can be read now.
    pub fn available(&self) -> usize {
        if self.heed.is_idle() { self.left() } else { self.available_heeding() }
    }

    /// Whether the next read does not block.
    pub fn is_readable(&self) -> bool {
        let words = self.shared().words();
        words.flags().intersects(Flags::PEER_CLOSED | Flags::CLOSED | Flags::READ_CLOSED)
            || words.error().is_some()
            || self.available() > 0
    }

    /// Whom to tell that something was read: the lane, so that it can open the window, once a quarter of the ring was
    /// read since the last time; or whoever writes.
    #[inline]
    pub fn nudge(&mut self) -> Nudge {
        if self.fused.is_some() {
            return self.nudge_fused();
        }
        Nudge { kick: self.kick(), wake: None }
    }

    pub(crate) fn kick(&mut self) -> bool {
        let cursor = self.ring.cursor();
        if cursor - self.kicked_at < u64::from(self.kick_step) {
            return false;
        }
        self.kicked_at = cursor;
        self.shared().words().kick()
    }

    /// What both sides see.
    pub fn shared(&self) -> StreamShared<'_> {
        StreamShared(self.ring.margin())
    }
}

/// The lane's side.
#[derive(Debug)]
pub struct StreamSlot {
    /// What the application wrote.
    pub send: RingReader,
    /// Where received bytes go.
    pub recv: RingWriter,
}

impl StreamSlot {
    /// What both sides see.
    pub fn shared(&self) -> StreamShared<'_> {
        StreamShared(self.send.margin())
    }

    /// Begins to fetch the rings' words and what both sides see beside them.
    #[inline]
    pub fn words_ahead(&self) {
        self.recv.words_ahead();
    }

    /// Begins to fetch the storage that the next text goes to, and that from which it is sent. The words should be near.
    #[inline]
    pub fn storage_ahead(&self) {
        self.recv.storage_ahead();
        self.send.storage_ahead();
    }

    /// Something has become ready; answers whom to tell.
    pub fn tell(&self, ready: Ready) -> Option<SocketToken> {
        self.shared().words().tell(ready)
    }

    /// Whether the application is in another process.
    #[inline]
    pub fn is_far(&self) -> bool {
        self.send.is_far()
    }

    /// The application was in another process and is gone: from here on the rings are in this one, with what it has left to be sent.
    ///
    /// # Errors
    /// That has changed since it was packed ([`StreamRef::pack`]).
    pub fn move_home(&mut self, left: Packed) -> Result<LeftStream, Packed> {
        move_home(&mut self.send, &mut self.recv, left)?;
        Ok(LeftStream(self.send.margin_ref().downgrade()))
    }

    /// Gives an application in another process storage to write to, if it has none. Whether this call did: then there is
    /// room that it may wait for.
    #[inline]
    pub fn attach(&mut self) -> bool {
        self.send.is_far() && self.send.attach_far()
    }

    /// Whether an application in another process has no storage to write to.
    #[inline]
    pub fn is_bare(&self) -> bool {
        self.send.is_bare()
    }

    /// Whether an application in another process has said what cannot be true. Looks at its words anew.
    #[inline]
    pub fn has_lied(&self) -> bool {
        self.send.is_far() && {
            let _ = (self.send.available(), self.recv.unread());
            self.send.far().is_some_and(FarView::has_lied)
        }
    }

    /// Urgent text ends before `cursor` of what is received. Said before that text is there, it is never read unmarked.
    #[cold]
    pub fn set_mark(&self, cursor: u64) {
        self.shared().words().set_mark(cursor);
        if let Some(far) = self.send.far() {
            far.margin()[word::MARK].store(cursor, Ordering::Release);
        }
    }

    /// The furthest cursor that the application's next text can end at. One in another process says what is urgent before it
    /// writes that.
    pub fn writable_to(&self) -> u64 {
        let most = if self.is_far() { self.send.attached_bytes() } else { self.send.available() };
        self.send.cursor() + most as u64
    }

    /// The connection failed: whoever waits is to be told.
    pub fn fail(&self, error: SocketError) {
        self.shared().words().fail(error);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair() -> (StreamEnd, StreamSlot) {
        stream(StreamConfig { send_capacity: 8, recv_capacity: 8 }, LaneId(1), NetstackId(2))
    }

    #[test]
    fn bytes_pass_both_ways_once_it_is_connected() {
        let (mut app, mut lane) = pair();
        assert_eq!(app.send.write(b"hello"), Err(WriteError::WouldBlock));
        lane.shared().words().set_flags(Flags::CONNECTED);
        assert_eq!(app.send.write(b"hello world"), Ok(8));
        assert_eq!(app.send.write(b"!"), Err(WriteError::WouldBlock));
        lane.send.release(8);
        assert_eq!(app.send.write(b"!"), Ok(1));
        let mut bytes = [0; 4];
        assert_eq!(app.recv.read(&mut bytes), Err(ReadError::WouldBlock));
        lane.recv.write(b"abcdef");
        assert_eq!((app.recv.read(&mut bytes), &bytes), (Ok(4), b"abcd"));
        assert_eq!(app.recv.peek(&mut bytes), Ok(2));
        lane.shared().words().set_flags(Flags::PEER_CLOSED);
        assert_eq!(app.recv.read(&mut bytes), Ok(2));
        assert_eq!(app.recv.read(&mut bytes), Ok(0), "the end");
    }

    #[test]
    fn an_error_comes_after_the_bytes_before_it_and_once() {
        let (mut app, mut lane) = pair();
        lane.shared().words().set_flags(Flags::CONNECTED);
        lane.recv.write(b"ab");
        lane.fail(SocketError::Reset);
        lane.shared().words().set_flags(Flags::CLOSED);
        let mut bytes = [0; 4];
        assert_eq!(app.recv.read(&mut bytes), Ok(2));
        assert_eq!(app.recv.read(&mut bytes), Err(ReadError::Failed(SocketError::Reset)));
        assert_eq!(app.recv.read(&mut bytes), Ok(0));
        assert_eq!(app.send.write(b"x"), Err(WriteError::Closed));
    }

    #[test]
    fn a_failed_connect_is_told() {
        let (app, lane) = pair();
        assert_eq!(app.poll_connected(), Ok(false));
        lane.fail(SocketError::Refused);
        lane.shared().words().set_flags(Flags::CLOSED);
        assert_eq!(app.poll_connected(), Err(SocketError::Refused));
    }

    #[test]
    fn the_window_is_worth_a_message_every_quarter() {
        let (mut app, mut lane) = pair();
        lane.recv.write(b"abcdefgh");
        let mut byte = [0; 1];
        app.recv.read(&mut byte).unwrap();
        assert!(!app.recv.kick());
        app.recv.read(&mut byte).unwrap();
        assert!(app.recv.kick());
        assert!(!app.recv.kick(), "nothing was read since");
    }

    #[test]
    fn names_and_place_are_known_when_the_lane_has_bound_it() {
        let (app, lane) = pair();
        assert_eq!((app.shared().conn(), app.shared().names()), (None, None));
        let names = Names { local: "10.0.0.1:80".parse().unwrap(), remote: "[fd00::1]:9".parse().unwrap() };
        let conn = ConnRef { conn: ConnId(0), generation: 1 };
        lane.shared().bind(conn, names);
        assert_eq!((app.shared().conn(), app.shared().names()), (Some(conn), Some(names)));
        assert_eq!((app.shared().lane(), app.shared().netstack()), (LaneId(1), NetstackId(2)));
        let (local, remote) = ([0, 0xffff_0a00_0001], [0xfd00 << 48, 1]);
        assert_eq!(app.shared().ports(), [80, 9]);
        assert!(lane.shared().is_between([local, remote], [80, 9]));
        assert!(!lane.shared().is_between([local, remote], [80, 8]));
        assert!(!lane.shared().is_between([local, [1, 1]], [80, 9]));
    }
}
