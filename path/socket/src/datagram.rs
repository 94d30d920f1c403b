//! A datagram endpoint: records in two byte rings between an application and a UDP socket.
//!
//! A record is a header of [`RECORD_BYTES`] (length and the other side's address) and the payload, written
//! as a whole or not at all. So a queue is bounded in bytes, allocates nothing per datagram, and owns no
//! storage before its first.

use core::fmt;
use core::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::{Arc, OnceLock};

use firelane_frame::{RingReader, RingWriter, byte_ring};
use firelane_units::{LaneId, NetstackId};

use crate::{Flags, Ready, Shared, SocketError, SocketToken, Words};

/// The bytes of a queue that a datagram takes beside its payload.
pub const RECORD_BYTES: usize = 24;

/// What both sides of a datagram socket see beside the queues.
#[derive(Debug)]
pub struct DatagramShared {
    words: Shared,
    lane: LaneId,
    netstack: NetstackId,
    local: OnceLock<SocketAddr>,
}

impl DatagramShared {
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
    let words = Shared::default();
    let shared = Arc::new(DatagramShared { words, lane, netstack, local: OnceLock::new() });
    let end = DatagramEnd {
        send: SendDatagramEnd { queue: QueueIn(send_in), shared: Arc::clone(&shared) },
        recv: RecvDatagramEnd { queue: QueueOut(recv_out), shared: Arc::clone(&shared) },
    };
    (end, DatagramSlot { send: QueueOut(send_out), recv: QueueIn(recv_in), shared })
}

/// A datagram that was taken from a queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Datagram {
    /// The other side's address: where it came from, or where it goes.
    pub peer: SocketAddr,
    /// How long it was.
    pub len: usize,
    /// How much of it was copied; the rest is gone.
    pub copied: usize,
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
        if let Some(error) = self.shared.words().take_error() {
            return Err(SendDatagramError::Failed(error));
        }
        // RFC 768: the length field counts the header's eight bytes.
        if payload.len() > 65_535 - 8 || RECORD_BYTES + payload.len() > self.queue.0.capacity() {
            return Err(SendDatagramError::TooLong);
        }
        if self.queue.push(peer, payload) { Ok(()) } else { Err(SendDatagramError::WouldBlock) }
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

    /// Copies from the first datagram without taking it.
    pub fn peek(&mut self, to: &mut [u8]) -> Option<Datagram> {
        self.queue.peek(to)
    }

    /// Whether the next receive does not block.
    pub fn is_readable(&self) -> bool {
        self.queue.0.available() > 0 || self.shared.words().error().is_some()
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

/// The side of a queue that puts datagrams in.
pub struct QueueIn(RingWriter);

impl QueueIn {
    /// Puts a datagram in; `false` if it has no room as a whole.
    pub fn push(&mut self, peer: SocketAddr, payload: &[u8]) -> bool {
        let total = RECORD_BYTES + payload.len();
        if self.0.free() < total {
            return false;
        }
        let at = self.0.cursor();
        let header = encode(peer, payload.len());
        let written = self.0.write_at(at, &header) + self.0.write_at(at + RECORD_BYTES as u64, payload);
        debug_assert_eq!(written, total, "there was room for the whole record");
        self.0.advance(total);
        true
    }
}

/// The side of a queue that takes datagrams out.
pub struct QueueOut(RingReader);

impl QueueOut {
    /// The first datagram's peer and length.
    pub fn first(&self) -> Option<(SocketAddr, usize)> {
        let mut header = [0; RECORD_BYTES];
        let count = self.0.copy_at(self.0.cursor(), &mut header);
        (count == RECORD_BYTES).then(|| decode(&header))
    }

    /// Takes the first datagram and copies what fits into `to`.
    pub fn pop(&mut self, to: &mut [u8]) -> Option<Datagram> {
        let datagram = self.peek(to)?;
        self.skip(datagram.len);
        Some(datagram)
    }

    /// Copies from the first datagram and leaves it.
    pub fn peek(&self, to: &mut [u8]) -> Option<Datagram> {
        let (peer, len) = self.first()?;
        let fits = len.min(to.len());
        let copied = self.0.copy_at(self.0.cursor() + RECORD_BYTES as u64, &mut to[..fits]);
        Some(Datagram { peer, len, copied })
    }

    /// The first datagram's payload, in at most two pieces.
    pub fn payload(&self, len: usize) -> (&[u8], &[u8]) {
        self.0.peek_at(self.0.cursor() + RECORD_BYTES as u64, len)
    }

    /// Drops the first datagram, whose payload is `len` bytes long.
    pub fn skip(&mut self, len: usize) {
        self.0.release(RECORD_BYTES + len);
    }

    /// Gives storage back that holds nothing: not after every datagram, or each would pay for its own.
    pub fn detach_if_empty(&mut self) -> bool {
        self.0.detach_if_empty()
    }
}

impl fmt::Debug for QueueIn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("QueueIn").field(&self.0).finish()
    }
}

impl fmt::Debug for QueueOut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("QueueOut").field(&self.0).finish()
    }
}

/// Length (4 bytes), port (2), family (1), a byte unused, address (16, IPv4 in the first four).
fn encode(peer: SocketAddr, len: usize) -> [u8; RECORD_BYTES] {
    let mut record = [0; RECORD_BYTES];
    record[..4].copy_from_slice(&(len as u32).to_ne_bytes());
    record[4..6].copy_from_slice(&peer.port().to_ne_bytes());
    match peer.ip() {
        IpAddr::V4(address) => {
            record[6] = 4;
            record[8..12].copy_from_slice(&address.octets());
        }
        IpAddr::V6(address) => {
            record[6] = 6;
            record[8..24].copy_from_slice(&address.octets());
        }
    }
    record
}

fn decode(record: &[u8; RECORD_BYTES]) -> (SocketAddr, usize) {
    let [l0, l1, l2, l3, p0, p1, family, _, address @ ..] = *record;
    let ip = if family == 4 {
        let [a, b, c, d, ..] = address;
        IpAddr::from([a, b, c, d])
    } else {
        IpAddr::V6(Ipv6Addr::from(address))
    };
    let len = u32::from_ne_bytes([l0, l1, l2, l3]) as usize;
    (SocketAddr::new(ip, u16::from_ne_bytes([p0, p1])), len)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn pair(capacity: usize) -> (DatagramEnd, DatagramSlot) {
        datagram(capacity, capacity, LaneId(0), NetstackId(0))
    }

    #[test]
    fn a_datagram_is_queued_whole_or_not_at_all() {
        let (mut app, mut lane) = pair(64);
        let peer = SocketAddr::from(([10, 0, 0, 1], 53));
        assert_eq!(app.send.send(peer, &[1; 30]), Ok(()));
        assert_eq!(app.send.send(peer, &[2; 30]), Err(SendDatagramError::WouldBlock));
        assert_eq!(app.send.send(peer, &[2; 41]), Err(SendDatagramError::TooLong));
        assert_eq!(lane.send.first(), Some((peer, 30)));
        assert_eq!(lane.send.payload(30).0, [1; 30]);
        lane.send.skip(30);
        assert_eq!(lane.send.first(), None);
        assert_eq!(app.send.send(peer, &[2; 30]), Ok(()));
    }

    #[test]
    fn a_short_buffer_cuts_and_the_length_tells() {
        let (mut app, mut lane) = pair(256);
        let peer = SocketAddr::from(([0xfd00, 0, 0, 0, 0, 0, 0, 1], 9));
        assert!(lane.recv.push(peer, b"abcdef"));
        assert!(lane.recv.push(peer, b""));
        let mut to = [0; 4];
        assert_eq!(app.recv.peek(&mut to), Some(Datagram { peer, len: 6, copied: 4 }));
        assert_eq!(app.recv.recv(&mut to), Ok(Some(Datagram { peer, len: 6, copied: 4 })));
        assert_eq!(app.recv.recv(&mut to), Ok(Some(Datagram { peer, len: 0, copied: 0 })));
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

    proptest! {
        #[test]
        fn what_goes_in_comes_out_in_order(
            datagrams in proptest::collection::vec((any::<[u8; 16]>(), any::<u16>(), 0usize..90), 1..60),
        ) {
            let (mut app, mut lane) = pair(200);
            let mut waiting = std::collections::VecDeque::new();
            for (address, port, len) in datagrams {
                let ip = if port % 2 == 0 {
                    IpAddr::V6(address.into())
                } else {
                    IpAddr::from([address[0], address[1], address[2], address[3]])
                };
                let peer = SocketAddr::new(ip, port);
                let payload = vec![port as u8; len];
                while !lane.recv.push(peer, &payload) {
                    let (peer, sent): (SocketAddr, Vec<u8>) = waiting.pop_front().unwrap();
                    let mut to = [0; 100];
                    let got = app.recv.recv(&mut to).unwrap().unwrap();
                    prop_assert_eq!((got.peer, &to[..got.copied]), (peer, &sent[..]));
                }
                waiting.push_back((peer, payload));
            }
        }
    }
}
