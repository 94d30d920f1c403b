//! A stream endpoint: two byte rings between an application and a connection.
//!
//! The application's side is two halves ([`SendEnd`], [`RecvEnd`]) that may live in different threads; the
//! lane's side ([`StreamSlot`]) belongs to the connection. The send ring *is* TCP's retransmission buffer:
//! the lane releases bytes when they are acknowledged. Neither side waits.

use core::net::{IpAddr, SocketAddr};
use core::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use firelane_frame::{RingReader, RingWriter, byte_ring};
use firelane_units::{ConnId, LaneId, NetstackId};

use crate::{Flags, Ready, Shared, SocketError, SocketToken};

/// The sizes of a stream's rings.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StreamConfig {
    /// The most bytes that wait to be acknowledged (SO_SNDBUF).
    pub send_capacity: usize,
    /// The most bytes that wait to be read (SO_RCVBUF): the largest window.
    pub recv_capacity: usize,
}

impl Default for StreamConfig {
    /// A bandwidth-delay product of 10 Gb/s and 0.8 ms in each direction; storage is attached at first use.
    fn default() -> Self {
        Self { send_capacity: 1 << 20, recv_capacity: 1 << 20 }
    }
}

/// Which connection of which lane a stream belongs to. The generation tells a slot's users apart.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
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

/// [`Names`] in a form for many: IPv4 addresses mapped, no scopes.
#[derive(Debug)]
struct CompactNames {
    addresses: [[u8; 16]; 2],
    ports: [u16; 2],
}

impl CompactNames {
    fn new(names: Names) -> Self {
        let octets = |end: SocketAddr| match end.ip() {
            IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
            IpAddr::V6(address) => address.octets(),
        };
        let Names { local, remote } = names;
        Self { addresses: [octets(local), octets(remote)], ports: [local.port(), remote.port()] }
    }

    fn expand(&self) -> Names {
        let end = |n: usize| SocketAddr::new(IpAddr::from(self.addresses[n]).to_canonical(), self.ports[n]);
        Names { local: end(0), remote: end(1) }
    }
}

/// What both sides of a stream see beside the rings.
#[derive(Debug)]
pub struct StreamShared {
    words: Shared,
    lane: LaneId,
    netstack: NetstackId,
    /// A [`ConnRef`] in one word; zero until the lane has made the connection.
    conn: AtomicU64,
    names: OnceLock<CompactNames>,
}

impl StreamShared {
    /// Interest, flags, error, kicks.
    pub fn words(&self) -> &Shared {
        &self.words
    }

    /// The lane that owns the connection.
    pub fn lane(&self) -> LaneId {
        self.lane
    }

    /// The netstack that the connection belongs to.
    pub fn netstack(&self) -> NetstackId {
        self.netstack
    }

    /// The connection; `None` while the lane has not made it.
    pub fn conn(&self) -> Option<ConnRef> {
        let word = self.conn.load(Ordering::Acquire);
        let (generation, conn) = ((word >> 32) as u32, ConnId(word as u32));
        (generation != 0).then_some(ConnRef { conn, generation })
    }

    /// Lane: the connection is made.
    ///
    /// # Panics
    /// If it was made before.
    pub fn bind(&self, conn: ConnRef, names: Names) {
        assert!(self.names.set(CompactNames::new(names)).is_ok(), "a stream is bound once");
        self.conn.store(u64::from(conn.generation) << 32 | u64::from(conn.conn.0), Ordering::Release);
    }

    /// The two ends' addresses; `None` while the lane has not made the connection.
    pub fn names(&self) -> Option<Names> {
        self.names.get().map(CompactNames::expand)
    }
}

/// Makes a stream's two sides, for a connection of `netstack` in `lane`.
pub fn stream(config: StreamConfig, lane: LaneId, netstack: NetstackId) -> (StreamEnd, StreamSlot) {
    let (send_writer, send_reader) = byte_ring(config.send_capacity);
    let (recv_writer, recv_reader) = byte_ring(config.recv_capacity);
    let shared = Arc::new(StreamShared {
        words: Shared::default(),
        lane,
        netstack,
        conn: AtomicU64::new(0),
        names: OnceLock::new(),
    });
    let send = SendEnd { ring: send_writer, shared: Arc::clone(&shared) };
    let recv = RecvEnd {
        ring: recv_reader,
        kicked_at: 0,
        kick_step: (config.recv_capacity / 4).max(1) as u64,
        shared: Arc::clone(&shared),
    };
    (StreamEnd { send, recv }, StreamSlot { send: send_reader, recv: recv_writer, shared })
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
    pub fn shared(&self) -> &Arc<StreamShared> {
        &self.send.shared
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
    ring: RingWriter,
    shared: Arc<StreamShared>,
}

impl SendEnd {
    /// Copies as much of `bytes` as has room. The caller kicks the lane if [`SendEnd::kick`] says so.
    pub fn write(&mut self, bytes: &[u8]) -> Result<usize, WriteError> {
        let words = &self.shared.words;
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
        match self.ring.write(bytes) {
            0 if !bytes.is_empty() => Err(WriteError::WouldBlock),
            count => Ok(count),
        }
    }

    /// Whether a kick message must be sent to the lane for what was written.
    pub fn kick(&self) -> bool {
        self.shared.words.kick()
    }

    /// Bytes that could be written now.
    pub fn room(&self) -> usize {
        self.ring.free()
    }

    /// Bytes that the peer has not acknowledged.
    pub fn unacknowledged(&self) -> usize {
        self.ring.unread()
    }

    /// Refuses further writes; the caller sends the lane the command that makes the FIN.
    pub fn shut(&self) {
        self.shared.words.set_flags(Flags::WRITE_CLOSED);
    }

    /// What both sides see.
    pub fn shared(&self) -> &Arc<StreamShared> {
        &self.shared
    }
}

/// The half that reads.
#[derive(Debug)]
pub struct RecvEnd {
    ring: RingReader,
    /// The cursor at the last kick, and how far from it the next is due: a window update is worth a message
    /// only when it opens the window by a good part.
    kicked_at: u64,
    kick_step: u64,
    shared: Arc<StreamShared>,
}

impl RecvEnd {
    /// Copies what there is into `to`; `Ok(0)` is the end of the stream.
    pub fn read(&mut self, to: &mut [u8]) -> Result<usize, ReadError> {
        let count = self.ring.read(to);
        if count > 0 || to.is_empty() {
            return Ok(count);
        }
        // The flag may have come with the last bytes, after the look at the ring: look again.
        self.why_empty().map(|()| self.ring.read(to))
    }

    /// Shows what there is without taking it.
    pub fn peek(&mut self, to: &mut [u8]) -> Result<usize, ReadError> {
        let count = self.ring.copy_at(self.ring.cursor(), to);
        if count > 0 || to.is_empty() {
            return Ok(count);
        }
        self.why_empty().map(|()| self.ring.copy_at(self.ring.cursor(), to))
    }

    /// `Ok` if no more bytes come.
    fn why_empty(&self) -> Result<(), ReadError> {
        let words = &self.shared.words;
        let flags = words.flags();
        if self.ring.available() == 0
            && let Some(error) = words.take_error()
        {
            return Err(ReadError::Failed(error));
        }
        if flags.intersects(Flags::PEER_CLOSED | Flags::CLOSED) {
            return Ok(());
        }
        Err(ReadError::WouldBlock)
    }

    /// Bytes that can be read now.
    pub fn available(&self) -> usize {
        self.ring.available()
    }

    /// Whether the next read does not block.
    pub fn is_readable(&self) -> bool {
        let words = &self.shared.words;
        words.flags().intersects(Flags::PEER_CLOSED | Flags::CLOSED)
            || words.error().is_some()
            || self.ring.available() > 0
    }

    /// Whether a kick message must be sent so that the lane can open the window: a quarter of the ring was
    /// read since the last.
    pub fn kick(&mut self) -> bool {
        let cursor = self.ring.cursor();
        if cursor - self.kicked_at < self.kick_step {
            return false;
        }
        self.kicked_at = cursor;
        self.shared.words.kick()
    }

    /// What both sides see.
    pub fn shared(&self) -> &Arc<StreamShared> {
        &self.shared
    }
}

/// The lane's side.
#[derive(Debug)]
pub struct StreamSlot {
    /// What the application wrote.
    pub send: RingReader,
    /// Where received bytes go.
    pub recv: RingWriter,
    shared: Arc<StreamShared>,
}

impl StreamSlot {
    /// What both sides see.
    pub fn shared(&self) -> &StreamShared {
        &self.shared
    }

    /// The other side's address of what both see, to put into an accepted stream's tables.
    pub fn share(&self) -> Arc<StreamShared> {
        Arc::clone(&self.shared)
    }

    /// Something has become ready; answers whom to tell.
    pub fn tell(&self, ready: Ready) -> Option<SocketToken> {
        self.shared.words.tell(ready)
    }

    /// The connection failed: whoever waits is to be told.
    pub fn fail(&self, error: SocketError) {
        self.shared.words.fail(error);
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
    }
}
