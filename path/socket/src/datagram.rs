//! A datagram endpoint: two queues of records between an application and a UDP socket.
//!
//! The application may be another process: then the queues lie in its arena, and only they do ([`datagram_in`]).

use core::net::SocketAddr;
use std::sync::{Arc, OnceLock};

use firelane_frame::{
    Envelope, FarView, MarginRef, RECORD_BYTES, RingArena, SEGMENTS_MAX, byte_ring, byte_rings_in,
};
use firelane_units::{LaneId, NetstackId};

use crate::records::{Datagram, Passed, QueueIn, QueueOut, RECORD_MAX};
use crate::{Flags, Ready, Shared, SocketError, SocketToken, Words};

/// What both sides of a datagram socket see beside the queues.
#[derive(Debug)]
pub struct DatagramShared {
    words: Shared,
    lane: LaneId,
    netstack: NetstackId,
    local: OnceLock<SocketAddr>,
}

impl DatagramShared {
    fn new(lane: LaneId, netstack: NetstackId) -> Arc<Self> {
        Arc::new(Self { words: Shared::default(), lane, netstack, local: OnceLock::new() })
    }

    /// Interest, flags, error, kicks.
    pub fn words(&self) -> Words<'_> {
        self.words.words()
    }

    /// The lane that owns the socket.
    pub fn lane(&self) -> LaneId {
        self.lane
    }

    /// The netstack that the socket belongs to.
    pub fn netstack(&self) -> NetstackId {
        self.netstack
    }

    /// Lane: the socket is bound to `local`.
    ///
    /// # Panics
    /// If it was bound before.
    pub fn bind(&self, local: SocketAddr) {
        assert!(self.local.set(local).is_ok(), "a socket is bound once");
        self.words().set_flags(Flags::CONNECTED);
    }

    /// The local address; `None` while the lane has not bound it.
    pub fn local(&self) -> Option<SocketAddr> {
        self.local.get().copied()
    }
}

/// Makes the two sides, with queues of `send_capacity` and `recv_capacity` bytes.
pub fn datagram(
    send_capacity: usize,
    recv_capacity: usize,
    lane: LaneId,
    netstack: NetstackId,
) -> (DatagramEnd, DatagramSlot) {
    let (send_in, send_out) = byte_ring(send_capacity);
    let (recv_in, recv_out) = byte_ring(recv_capacity);
    let shared = DatagramShared::new(lane, netstack);
    let end = DatagramEnd {
        send: SendDatagramEnd { queue: QueueIn::new(send_in), shared: Arc::clone(&shared) },
        recv: RecvDatagramEnd { queue: QueueOut::new(recv_out), shared: Arc::clone(&shared) },
    };
    (end, DatagramSlot { send: QueueOut::new(send_out), recv: QueueIn::new(recv_in), shared })
}

/// Makes a socket whose application is another process, with the queues in `arena`. `None` if the arena has no block left. Each has
/// room for one datagram of any length; what was received is within `recv_capacity` beyond the first.
pub fn datagram_in(
    arena: &Arc<RingArena>,
    (send_capacity, recv_capacity): (usize, usize),
    lane: LaneId,
    netstack: NetstackId,
) -> Option<(ArenaDatagrams, DatagramSlot)> {
    let [send, recv] = [send_capacity, recv_capacity].map(|it| it.max(RECORD_MAX));
    let (held, (recv, send)) = byte_rings_in(arena, send, recv)?;
    let shared = DatagramShared::new(lane, netstack);
    let (send, recv) = (QueueOut::new(send), QueueIn::limited(recv, recv_capacity));
    let carried = [send.passed().clone(), recv.passed().clone()];
    let hold = ArenaDatagrams { held, carried, shared: Arc::clone(&shared) };
    Some((hold, DatagramSlot { send, recv, shared }))
}

/// The hold on a socket whose application is another process: kept by whoever answers for that process. Block and storage
/// are given to others when this and the lane's side are gone.
#[derive(Debug)]
pub struct ArenaDatagrams {
    held: MarginRef,
    carried: [Passed; 2],
    shared: Arc<DatagramShared>,
}

impl ArenaDatagrams {
    /// What this process and the lane see. The other process sees a copy of what it needs.
    pub fn shared(&self) -> &Arc<DatagramShared> {
        &self.shared
    }

    fn far(&self) -> FarView<'_> {
        self.held.far().expect("the queues were made in an arena")
    }

    /// The socket's block in the arena.
    pub fn block(&self) -> u32 {
        self.far().block()
    }

    /// Changes how much the application may have queued (SO_SNDBUF), from its next storage on. It holds itself to less than a datagram.
    pub fn set_send_capacity(&self, capacity: usize) {
        self.far().set_capacity(capacity.max(RECORD_MAX));
    }

    /// How many bytes of records have been sent, and how many have arrived.
    pub fn passed(&self) -> [u64; 2] {
        [self.held.released(), self.held.published()]
    }

    /// The same without the records' envelopes: bytes of payload.
    pub fn carried(&self) -> [u64; 2] {
        self.carried.each_ref().map(Passed::bytes)
    }

    /// How many bytes the application has queued behind `cursor`, as it says, and how many may stand there.
    pub fn queued_behind(&self, cursor: u64) -> [u64; 2] {
        self.far().written_behind(&self.held, cursor)
    }

    /// Whether the application has said what cannot be true.
    pub fn has_lied(&self) -> bool {
        self.far().has_lied()
    }
}

/// The application's side.
#[derive(Debug)]
pub struct DatagramEnd {
    /// What it sends.
    pub send: SendDatagramEnd,
    /// What it receives.
    pub recv: RecvDatagramEnd,
}

/// Why a datagram was not sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SendDatagramError {
    /// The queue is full.
    WouldBlock,
    /// It is longer than the queue, or than any datagram.
    TooLong,
    /// It is more datagrams than one call may send.
    TooMany,
    /// The socket failed, or an earlier datagram was refused.
    Failed(SocketError),
}

/// The half that sends.
#[derive(Debug)]
pub struct SendDatagramEnd {
    queue: QueueIn,
    shared: Arc<DatagramShared>,
}

impl SendDatagramEnd {
    /// Queues `payload` for `peer`. The caller kicks the lane if [`SendDatagramEnd::kick`] says so.
    pub fn send(&mut self, peer: SocketAddr, payload: &[u8]) -> Result<(), SendDatagramError> {
        self.send_with(&Envelope::to(peer), payload)
    }

    /// The same with what else is written on it; `segment` makes several datagrams of the payload.
    pub fn send_with(&mut self, envelope: &Envelope, payload: &[u8]) -> Result<(), SendDatagramError> {
        if let Some(error) = self.shared.words().take_error() {
            return Err(SendDatagramError::Failed(error));
        }
        if payload.len() > envelope.payload_max() || RECORD_BYTES + payload.len() > self.queue.capacity() {
            return Err(SendDatagramError::TooLong);
        }
        if envelope.segments(payload.len()) > SEGMENTS_MAX {
            return Err(SendDatagramError::TooMany);
        }
        if self.queue.push(envelope, payload) { Ok(()) } else { Err(SendDatagramError::WouldBlock) }
    }

    /// Whether there is room for as much as may be queued already, so that a datagram of any usual length has some; or something to be
    /// told. As Linux has it.
    pub fn is_writable(&self) -> bool {
        self.shared.words().error().is_some() || self.queue.free() >= self.queue.capacity() / 2
    }

    /// Whether there is something queued that the lane has not taken.
    pub fn has_queued(&self) -> bool {
        !self.queue.is_empty()
    }

    /// Whether a kick message must be sent to the lane for what was queued.
    pub fn kick(&self) -> bool {
        self.shared.words().kick()
    }

    /// What both sides see.
    pub fn shared(&self) -> &Arc<DatagramShared> {
        &self.shared
    }
}

/// The half that receives.
#[derive(Debug)]
pub struct RecvDatagramEnd {
    queue: QueueOut,
    shared: Arc<DatagramShared>,
}

impl RecvDatagramEnd {
    /// Takes the first datagram and copies what fits into `to`; `None` if there is none.
    pub fn recv(&mut self, to: &mut [u8]) -> Result<Option<Datagram>, SocketError> {
        let taken = self.queue.pop(to);
        if taken.is_none()
            && let Some(error) = self.shared.words().take_error()
        {
            return Err(error);
        }
        Ok(taken)
    }

    /// The same, and leaves an error for the next call.
    pub fn recv_without_error(&mut self, to: &mut [u8]) -> Option<Datagram> {
        self.queue.pop(to)
    }

    /// Copies from the first datagram without taking it.
    pub fn peek(&mut self, to: &mut [u8]) -> Option<Datagram> {
        self.queue.peek(to)
    }

    /// Whether the next receive does not block.
    pub fn is_readable(&self) -> bool {
        !self.queue.is_empty() || self.shared.words().error().is_some()
    }

    /// What both sides see.
    pub fn shared(&self) -> &Arc<DatagramShared> {
        &self.shared
    }
}

/// The lane's side.
#[derive(Debug)]
pub struct DatagramSlot {
    /// What the application sends.
    pub send: QueueOut,
    /// Where received datagrams go.
    pub recv: QueueIn,
    shared: Arc<DatagramShared>,
}

impl DatagramSlot {
    /// What both sides see.
    pub fn shared(&self) -> &DatagramShared {
        &self.shared
    }

    /// Something has become ready; answers whom to tell.
    pub fn tell(&self, ready: Ready) -> Option<SocketToken> {
        self.shared.words().tell(ready)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair(capacity: usize) -> (DatagramEnd, DatagramSlot) {
        datagram(capacity, capacity, LaneId(0), NetstackId(0))
    }

    #[test]
    fn a_datagram_is_queued_whole_or_not_at_all() {
        let (mut app, mut lane) = pair(RECORD_BYTES + 40);
        let peer = SocketAddr::from(([10, 0, 0, 1], 53));
        assert_eq!(app.send.send(peer, &[1; 30]), Ok(()));
        assert_eq!(app.send.send(peer, &[2; 30]), Err(SendDatagramError::WouldBlock));
        assert_eq!(app.send.send(peer, &[2; 41]), Err(SendDatagramError::TooLong));
        assert_eq!(lane.send.first(), Ok(Some((Envelope::to(peer), 30))));
        // It may lie around the ring's end.
        let (first, rest) = lane.send.payload(30).unwrap();
        assert_eq!([first, rest].concat(), [1; 30]);
        lane.send.skip(30);
        assert_eq!(lane.send.first(), Ok(None));
        assert_eq!(app.send.send(peer, &[2; 30]), Ok(()));
    }

    #[test]
    fn the_largest_of_each_family_and_the_most_of_one_call() {
        let (mut app, _lane) = pair(1 << 20);
        for (peer, most) in [("10.0.0.1:9", 65_507), ("[fd00::1]:9", 65_527)] {
            let peer = peer.parse().unwrap();
            let payload = vec![0; most + 1];
            assert_eq!(app.send.send(peer, &payload), Err(SendDatagramError::TooLong));
            assert_eq!(app.send.send(peer, &payload[..most]), Ok(()));
            let of = |segment| Envelope { segment, ..Envelope::to(peer) };
            assert_eq!(app.send.send_with(&of(2), &payload[..257]), Err(SendDatagramError::TooMany));
            assert_eq!(app.send.send_with(&of(2), &payload[..256]), Ok(()));
        }
    }

    #[test]
    fn a_short_buffer_cuts_and_the_length_tells() {
        let (mut app, mut lane) = pair(256);
        let envelope = Envelope::to(SocketAddr::from(([0xfd00, 0, 0, 0, 0, 0, 0, 1], 9)));
        assert!(lane.recv.push(&envelope, b"abcdef"));
        assert!(lane.recv.push(&envelope, b""));
        let mut to = [0; 4];
        assert_eq!(app.recv.peek(&mut to), Some(Datagram { envelope, len: 6, copied: 4 }));
        assert_eq!(app.recv.recv(&mut to), Ok(Some(Datagram { envelope, len: 6, copied: 4 })));
        assert_eq!(app.recv.recv(&mut to), Ok(Some(Datagram { envelope, len: 0, copied: 0 })));
        assert_eq!(app.recv.recv(&mut to), Ok(None));
    }

    #[test]
    fn an_icmp_error_is_told_once() {
        let (mut app, lane) = pair(64);
        lane.shared().words().fail(SocketError::Refused);
        assert!(app.recv.is_readable());
        assert_eq!(app.recv.recv(&mut []), Err(SocketError::Refused));
        assert_eq!(app.recv.recv(&mut []), Ok(None));
    }
}
