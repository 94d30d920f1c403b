//! The queues of a datagram socket: records in a byte ring, one side each.
//!
//! Used by both ends in `datagram.rs`. A record is written as a whole or not at all, so a queue is bounded in bytes,
//! allocates nothing per datagram, and owns no storage before its first. Whoever fills a queue may keep its last record
//! open for a while: datagrams of one length that follow each other then stand in one record (UDP_GRO).
//!
//! The filling side may be another process: what its records say is read once, and believed as far as it can be true.

use core::fmt;
use core::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;

use firelane_frame::{Envelope, RECORD_BYTES, RingReader, RingWriter, SEGMENTS_MAX};

/// A datagram that was taken from a queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Datagram {
    /// What is written on it: where it came from, or where it goes.
    pub envelope: Envelope,
    /// How long it was.
    pub len: usize,
    /// How much of it was copied; the rest is gone.
    pub copied: usize,
}

/// A queue's bytes are no records: the other side, another process, has written what cannot be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Torn;

/// The bytes of the largest record. A queue has room for so much, however little its program wants to have queued.
pub(crate) const RECORD_MAX: usize = RECORD_BYTES + PAYLOAD_MAX;
/// The most bytes of payload that a packet can carry: over IPv6, which does not count its own header.
const PAYLOAD_MAX: usize = 65_527;

/// The side of a queue that puts datagrams in.
pub struct QueueIn {
    ring: RingWriter,
    open: Option<Open>,
    passed: Passed,
    /// How much may be queued behind the first datagram, where that is less than the ring holds (SO_RCVBUF).
    limit: usize,
}

/// How many bytes of payload have passed the end of a queue that is in this process. Whoever has a copy of it reads what that end has written.
#[derive(Clone, Debug, Default)]
pub(crate) struct Passed(Arc<AtomicU64>);

impl Passed {
    pub(crate) fn bytes(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    fn add(&self, len: usize) {
        self.0.store(self.bytes() + len as u64, Ordering::Relaxed);
    }
}

/// A record that is written and not yet shown.
#[derive(Clone, Copy, Debug)]
struct Open {
    envelope: Envelope,
    len: usize,
    count: usize,
}

impl QueueIn {
    pub(crate) fn new(ring: RingWriter) -> Self {
        Self { ring, open: None, passed: Passed::default(), limit: usize::MAX }
    }

    /// The same with so many bytes that may be queued.
    pub(crate) fn limited(ring: RingWriter, limit: usize) -> Self {
        Self { limit, ..Self::new(ring) }
    }

    /// Puts a record in; `false` if it has no room as a whole.
    pub fn push(&mut self, envelope: &Envelope, payload: &[u8]) -> bool {
        self.close();
        let len = RECORD_BYTES + payload.len();
        self.admits(len) && self.ring.claim_whole() >= len && {
            self.write(0, payload);
            self.show(envelope, payload.len());
            true
        }
    }

    /// Whether the limit lets a record of `len` bytes in. As in Linux who has nothing queued gets what comes, were it more than that.
    fn admits(&self, len: usize) -> bool {
        self.limit >= self.ring.capacity() || {
            let unread = self.ring.unread();
            unread == 0 || unread + len <= self.limit
        }
    }

    /// The same, in one record with those before and behind it if they are alike, until [`QueueIn::close`]: nobody sees
    /// it earlier.
    pub fn join(&mut self, envelope: &Envelope, payload: &[u8]) -> bool {
        if payload.is_empty() {
            return self.push(envelope, payload);
        }
        if let Some(open) = self.open
            && open.takes(envelope, payload.len())
            && self.admits(RECORD_BYTES + open.len + payload.len())
            && self.ring.free() >= RECORD_BYTES + open.len + payload.len()
        {
            self.write(open.len, payload);
            let is_short = payload.len() < usize::from(open.envelope.segment);
            self.open = Some(Open { len: open.len + payload.len(), count: open.count + 1, ..open });
            if is_short || open.count + 1 == SEGMENTS_MAX {
                self.close();
            }
            return true;
        }
        self.close();
        let Ok(segment) = u16::try_from(payload.len()) else { return self.push(envelope, payload) };
        let len = RECORD_BYTES + payload.len();
        if !self.admits(len) || self.ring.claim_whole() < len {
            return false;
        }
        self.write(0, payload);
        let envelope = Envelope { segment, ..*envelope };
        self.open = Some(Open { envelope, len: payload.len(), count: 1 });
        true
    }

    /// Shows the open record, if there is one; whether there was.
    pub fn close(&mut self) -> bool {
        let Some(open) = self.open.take() else { return false };
        // One alone is a datagram like any other.
        let segment = if open.count > 1 { open.envelope.segment } else { 0 };
        self.show(&Envelope { segment, ..open.envelope }, open.len);
        true
    }

    /// Writes payload behind where the envelope will be.
    fn write(&mut self, at: usize, payload: &[u8]) {
        let cursor = self.ring.cursor() + (RECORD_BYTES + at) as u64;
        let written = self.ring.write_at(cursor, payload);
        debug_assert_eq!(written, payload.len(), "there was room for the whole record");
    }

    fn show(&mut self, envelope: &Envelope, len: usize) {
        let written = self.ring.write_at(self.ring.cursor(), &envelope.encode(len));
        debug_assert_eq!(written, RECORD_BYTES, "there was room for the whole record");
        self.ring.advance(RECORD_BYTES + len);
        self.passed.add(len);
    }

    pub(crate) fn passed(&self) -> &Passed {
        &self.passed
    }

    /// Whether all records were taken.
    pub fn is_empty(&self) -> bool {
        self.ring.unread() == 0
    }

    /// How many bytes of records have room.
    pub(crate) fn free(&self) -> usize {
        self.ring.free()
    }

    /// The most bytes of records.
    pub fn capacity(&self) -> usize {
        self.ring.capacity()
    }

    /// Changes how much may be queued; more than there is storage for from the next storage on.
    pub fn set_limit(&mut self, limit: usize) {
        self.limit = limit;
        self.ring.set_capacity(limit.max(RECORD_MAX));
    }
}

impl Open {
    fn takes(&self, envelope: &Envelope, len: usize) -> bool {
        len <= usize::from(self.envelope.segment)
            && self.envelope.joins(envelope)
            && self.len + len <= envelope.payload_max()
    }
}

/// The side of a queue that takes datagrams out.
pub struct QueueOut {
    ring: RingReader,
    /// How much of the first record's payload was taken before the rest.
    taken: usize,
    passed: Passed,
}

impl QueueOut {
    pub(crate) fn new(ring: RingReader) -> Self {
        Self { ring, taken: 0, passed: Passed::default() }
    }

    /// The first record's envelope and length, or that of what is left of it.
    pub fn first(&self) -> Result<Option<(Envelope, usize)>, Torn> {
        let mut record = [0; RECORD_BYTES];
        match self.ring.copy_at(self.ring.cursor(), &mut record) {
            0 => return Ok(None),
            RECORD_BYTES => {}
            _ => return Err(Torn),
        }
        let (envelope, len) = Envelope::decode(&record);
        let is_whole = len <= envelope.payload_max() && RECORD_BYTES + len <= self.ring.available();
        // Whoever takes a part looks again later, and another process may have written a shorter length meanwhile.
        let left = len.checked_sub(self.taken).filter(|_| is_whole);
        left.map(|left| Some((envelope, left))).ok_or(Torn)
    }

    /// Takes the first record and copies what fits into `to`.
    pub(crate) fn pop(&mut self, to: &mut [u8]) -> Option<Datagram> {
        let datagram = self.peek(to)?;
        self.skip(datagram.len);
        Some(datagram)
    }

    /// Copies from the first record and leaves it.
    pub(crate) fn peek(&self, to: &mut [u8]) -> Option<Datagram> {
        let (envelope, len) = self.first().ok()??;
        let fits = len.min(to.len());
        let copied = self.copy_payload(&mut to[..fits]);
        Some(Datagram { envelope, len, copied })
    }

    /// The first record's payload, in at most two pieces; `None` if another process may change it meanwhile.
    pub fn payload(&self, len: usize) -> Option<(&[u8], &[u8])> {
        (!self.ring.is_far()).then(|| self.ring.peek_at(self.payload_at(), len))
    }

    /// Copies from the first record's payload, and says how much.
    pub fn copy_payload(&self, to: &mut [u8]) -> usize {
        self.ring.copy_at(self.payload_at(), to)
    }

    /// Where the first record's payload begins, as far as it was not taken.
    fn payload_at(&self) -> u64 {
        self.ring.cursor() + (RECORD_BYTES + self.taken) as u64
    }

    /// Takes `len` bytes of the first record's payload, fewer than there are: the rest is the first record from here on.
    pub fn take_part(&mut self, len: usize) {
        self.taken += len;
        self.passed.add(len);
    }

    /// Drops the first record, of whose payload `len` bytes are left.
    pub fn skip(&mut self, len: usize) {
        self.ring.release(RECORD_BYTES + core::mem::take(&mut self.taken) + len);
        self.passed.add(len);
    }

    pub(crate) fn passed(&self) -> &Passed {
        &self.passed
    }

    /// Drops everything, as what is torn has no begin.
    pub fn clear(&mut self) {
        self.taken = 0;
        self.ring.release(self.ring.available());
    }

    /// Whether there is a record.
    pub fn is_empty(&self) -> bool {
        self.ring.available() == 0
    }

    /// How many bytes of records there are.
    pub fn queued(&self) -> usize {
        self.ring.available()
    }

    /// Gives another process storage to write to, if it has none. Whether this call did.
    pub fn attach(&mut self) -> bool {
        self.ring.attach_whole()
    }

    /// Whether another process fills it, and has said of its cursors what cannot be true.
    pub fn has_lied(&self) -> bool {
        self.ring.far().is_some_and(|far| far.has_lied())
    }

    /// Gives storage back that holds nothing: not after every datagram, or each would pay for its own.
    pub fn detach_if_empty(&mut self) -> bool {
        self.ring.detach_if_empty()
    }
}

impl fmt::Debug for QueueIn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QueueIn").field("ring", &self.ring).field("open", &self.open).finish()
    }
}

impl fmt::Debug for QueueOut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("QueueOut").field(&self.ring).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::net::SocketAddr;
    use firelane_frame::byte_ring;
    use proptest::prelude::*;
    use std::collections::VecDeque;

    fn queue(capacity: usize) -> (QueueIn, QueueOut) {
        let (writer, reader) = byte_ring(capacity);
        (QueueIn::new(writer), QueueOut::new(reader))
    }

    fn from(port: u16) -> Envelope {
        Envelope::to(SocketAddr::from(([10, 0, 0, 1], port)))
    }

    #[test]
    fn datagrams_of_one_length_are_one_record_and_the_short_one_ends_it() {
        let (mut lane, mut app) = queue(1 << 16);
        for len in [100, 100, 40, 100, 100] {
            assert!(lane.join(&from(7), &vec![len as u8; len]));
        }
        let mut to = [0; 1000];
        let first = app.pop(&mut to).expect("the short one has ended its record");
        assert_eq!((first.len, first.envelope.segment), (240, 100));
        assert_eq!((to[99], to[100], to[200], to[239]), (100, 100, 40, 40));
        assert_eq!(app.pop(&mut to), None, "the rest is open");
        assert!(lane.close() && !lane.close());
        let second = app.pop(&mut to).unwrap();
        assert_eq!((second.len, second.envelope.segment), (200, 100));
    }

    #[test]
    fn who_differs_stands_alone() {
        let (mut lane, mut app) = queue(1 << 16);
        let hops = Envelope { hops: Some(3), ..from(7) };
        for (envelope, len) in
            [(from(7), 10), (from(8), 10), (from(7), 20), (hops, 20), (from(7), 0), (from(7), 9)]
        {
            assert!(lane.join(&envelope, &vec![0; len]));
        }
        lane.close();
        let lens: Vec<_> =
            core::iter::from_fn(|| app.pop(&mut [])).map(|it| (it.len, it.envelope.segment)).collect();
        assert_eq!(lens, [(10, 0), (10, 0), (20, 0), (20, 0), (0, 0), (9, 0)]);
    }

    #[test]
    fn a_record_holds_no_more_datagrams_and_bytes_than_one_call_may_get() {
        let (mut lane, mut app) = queue(1 << 20);
        (0..SEGMENTS_MAX + 1).for_each(|_| assert!(lane.join(&from(7), &[1])));
        (0..47).for_each(|_| assert!(lane.join(&from(9), &[1; 1400])));
        lane.close();
        let lens: Vec<_> = core::iter::from_fn(|| app.pop(&mut [])).map(|it| it.len).collect();
        assert_eq!(lens, [SEGMENTS_MAX, 1, 46 * 1400, 1400]);
    }

    #[test]
    fn a_queue_without_room_keeps_what_it_has() {
        let (mut lane, mut app) = queue(RECORD_BYTES + 100);
        assert!(lane.join(&from(7), &[1; 60]));
        assert!(!lane.join(&from(7), &[2; 60]));
        assert_eq!(app.pop(&mut []).map(|it| it.len), Some(60), "it was shown before the next was tried");
        assert!(lane.push(&from(7), &[3; 100]) && !lane.push(&from(7), &[]));
    }

    /// As Linux counts what is received: a datagram is never too long for a buffer that is empty.
    #[test]
    fn what_comes_into_an_empty_queue_may_be_more_than_its_limit() {
        let (mut lane, mut app) = queue(1 << 16);
        lane.set_limit(2_304);
        for (joins, len) in [(false, 5_000), (true, 5_000), (false, 65_507), (true, 9_000)] {
            let mut put = |len: usize| {
                let payload = vec![7; len];
                let has_room =
                    if joins { lane.join(&from(7), &payload) } else { lane.push(&from(7), &payload) };
                lane.close();
                has_room
            };
            assert!(put(len), "{joins} {len}");
            assert!(!put(len) && !put(0), "{joins} {len}: what is behind it is within the limit");
            assert_eq!(app.pop(&mut []).map(|it| it.len), Some(len));
            assert!(put(1_000) && put(900) && !put(1_000));
            while app.pop(&mut []).is_some() {}
        }
        assert!(lane.is_empty());
    }

    #[test]
    fn what_is_no_record_is_torn_and_can_be_cleared() {
        for (len, bytes) in [(0usize, 10), (70_000, 100), (53, 100)] {
            let (mut writer, reader) = byte_ring(1024);
            let mut record = from(1).encode(len).to_vec();
            record.resize(bytes, 0);
            writer.write(&record);
            let mut queue = QueueOut::new(reader);
            assert_eq!(queue.first(), Err(Torn), "{len} {bytes}");
            queue.clear();
            assert_eq!(queue.first(), Ok(None));
        }
    }

    #[test]
    fn a_record_is_taken_in_parts_and_goes_as_a_whole() {
        let (mut writer, reader) = byte_ring(400);
        let mut app = QueueOut::new(reader);
        // The parts of the later ones lie around the ring's end.
        for round in 0..9_u8 {
            let payload: Vec<u8> = (0..100).map(|n| n + round).collect();
            writer.write(&from(7).encode(payload.len()));
            writer.write(&payload);
            writer.write(&from(8).encode(0));
            let mut came = Vec::new();
            for (part, left) in [(30, 100), (30, 70)] {
                assert_eq!(app.first(), Ok(Some((from(7), left))));
                let mut to = vec![0; part];
                assert_eq!(app.copy_payload(&mut to), part);
                let (first, second) = app.payload(part).unwrap();
                assert_eq!([first, second].concat(), to);
                came.extend(to);
                app.take_part(part);
            }
            let mut to = [0; 100];
            assert_eq!(app.pop(&mut to).map(|it| (it.len, it.copied)), Some((40, 40)));
            came.extend(&to[..40]);
            assert_eq!(came, payload);
            assert_eq!(app.pop(&mut to).map(|it| (it.envelope, it.len)), Some((from(8), 0)));
            assert!(app.is_empty());
        }
        assert_eq!(app.passed().bytes(), 900);
    }

    /// As if another process had written its length anew meanwhile.
    #[test]
    fn a_record_that_becomes_shorter_than_what_was_taken_is_torn() {
        for (says, left) in
            [(100, Ok(40)), (61, Ok(1)), (60, Ok(0)), (59, Err(Torn)), (0, Err(Torn)), (101, Err(Torn))]
        {
            let (mut writer, reader) = byte_ring(400);
            let mut app = QueueOut::new(reader);
            writer.write(&from(7).encode(says));
            writer.write(&[7; 100]);
            app.take_part(60);
            assert_eq!(app.first().map(|it| it.unwrap().1), left, "{says}");
            app.clear();
            writer.write(&from(7).encode(1));
            writer.write(&[7]);
            assert_eq!(app.first(), Ok(Some((from(7), 1))));
        }
    }

    proptest! {
        /// Joined or not, the same datagrams come out in order.
        #[test]
        fn what_goes_in_comes_out_in_order(
            datagrams in prop::collection::vec((1u16..3, 0usize..30, any::<bool>(), any::<bool>()), 1..80),
        ) {
            let (mut lane, mut app) = queue(400);
            let mut waiting = VecDeque::new();
            let take = |app: &mut QueueOut, waiting: &mut VecDeque<(Envelope, Vec<u8>)>| {
                let mut to = [0; 500];
                while let Some(got) = app.pop(&mut to) {
                    let step = if got.envelope.segment == 0 { got.len.max(1) } else { got.envelope.segment.into() };
                    let mut bytes = &to[..got.len];
                    loop {
                        let (piece, rest) = bytes.split_at(step.min(bytes.len()));
                        let (envelope, sent) = waiting.pop_front().expect("it was put in");
                        prop_assert_eq!((envelope.peer, &sent[..]), (got.envelope.peer, piece));
                        bytes = rest;
                        if bytes.is_empty() {
                            break;
                        }
                    }
                }
                Ok(())
            };
            for (number, (port, len, joins, closes)) in datagrams.into_iter().enumerate() {
                let payload = vec![number as u8; len];
                let put = |lane: &mut QueueIn| match joins {
                    true => lane.join(&from(port), &payload),
                    false => lane.push(&from(port), &payload),
                };
                if !put(&mut lane) {
                    take(&mut app, &mut waiting)?;
                    prop_assert!(put(&mut lane), "an empty queue has room");
                }
                waiting.push_back((from(port), payload));
                if closes {
                    lane.close();
                }
            }
            lane.close();
            take(&mut app, &mut waiting)?;
            prop_assert!(waiting.is_empty());
        }
    }
}
