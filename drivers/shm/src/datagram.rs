//! A datagram socket as its program has it: records in the rings of a block.
//!
//! The words are a stream's, and so are the rules of its rings and of who is inside (`stream.rs`); a record is as
//! `base/frame` has it ([`Envelope`]). The lane reads a record once and believes of it what can be true.

use firelane_frame::{Envelope, RECORD_BYTES};
use rustix::io::Errno;

use crate::layout::{Block, margin, status};
use crate::owner::Inside;
use crate::stream::{Held, ReadError, Storage, StreamEnd, WriteError, parts, place};
use crate::sync::Ordering;

/// A datagram that was received.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Record {
    /// What is written on it.
    pub envelope: Envelope,
    /// How long it was.
    pub len: usize,
    /// How much of it was copied.
    pub copied: usize,
}

/// In the margin's word that says whether names are there: the peer's is one of them.
const HAS_PEER: u64 = 2;

impl Block {
    /// Whether the datagram socket has a peer.
    pub fn has_peer(&self) -> bool {
        self.rings.margin[margin::BOUND].load(Ordering::Acquire) & HAS_PEER != 0
    }
}

#[allow(private_bounds)]
impl<M: Storage> StreamEnd<'_, M> {
    /// Whether a datagram may be sent as far as the socket's state goes. An error that it has is told once.
    ///
    /// # Errors
    /// The error, or that nothing more is sent: its program has said so, or the daemon has ended it (ENETDOWN).
    pub fn may_send(&self) -> Result<(), WriteError> {
        let now = self.status();
        if now >> status::ERROR_SHIFT != 0 {
            match self.take_error() {
                0 => {}
                error => return Err(WriteError::Failed(error)),
            }
        }
        match now & (status::WRITE_CLOSED | status::CLOSED) {
            0 => Ok(()),
            status::CLOSED => Err(WriteError::Failed(Errno::NETDOWN.raw_os_error())),
            _ => Err(WriteError::Closed),
        }
    }

    /// Queues a datagram, whose pieces are `len` bytes together, whole or not at all. The caller kicks the lane.
    ///
    /// # Errors
    /// Why it was not queued.
    pub fn send_record<'p>(
        &self,
        envelope: &Envelope,
        len: usize,
        pieces: impl Iterator<Item = &'p [u8]>,
    ) -> Result<(), WriteError> {
        // As in Linux, what can be no datagram is refused before an error is told.
        let total = RECORD_BYTES + len;
        if len > envelope.payload_max() {
            return Err(WriteError::Failed(Errno::MSGSIZE.raw_os_error()));
        }
        self.may_send()?;
        let _inside = Inside::enter(&self.block.send_owner, self.me).map_err(WriteError::Busy)?;
        let held = Held::take(&self.rings().one.state).ok_or(WriteError::WouldBlock)?;
        let (ours, theirs, size) = (&self.rings().one, &self.rings().two, held.size());
        let storage = ours.storage.load(Ordering::Relaxed).addr() as u64;
        let (tail, head) = (ours.tail.load(Ordering::Relaxed), theirs.head.load(Ordering::Acquire));
        let queued = tail.wrapping_sub(head) as usize;
        // As in Linux who has any of SO_SNDBUF left sends a whole datagram, were it longer than that.
        if queued >= self.capacity(0) || total > size.saturating_sub(queued) {
            return Err(WriteError::WouldBlock);
        }
        let (mut cursor, mut left) = (tail, total);
        let mut put = |piece: &[u8]| {
            let piece = &piece[..piece.len().min(left)];
            let mut places = parts(storage, size, cursor, piece.len());
            let is_in = places.all(|(at, (from, to))| self.memory.copy_in(at, &piece[from..to]));
            cursor = cursor.wrapping_add(piece.len() as u64);
            left -= piece.len();
            is_in
        };
        if !put(&envelope.encode(len)) || !pieces.into_iter().all(put) {
            return Err(WriteError::WouldBlock);
        }
        ours.tail.store(tail.wrapping_add(total as u64), Ordering::Release);
        Ok(())
    }

    /// Takes the first datagram, or with `peek` leaves it. What has no room in the pieces is gone.
    ///
    /// # Errors
    /// Why none was received. Errors of datagrams that were sent come first, as in Linux.
    pub fn receive_record<'p>(
        &self,
        pieces: impl Iterator<Item = &'p mut [u8]>,
        peek: bool,
    ) -> Result<Option<Record>, ReadError> {
        let now = self.status();
        if now >> status::ERROR_SHIFT != 0 {
            match self.take_error() {
                0 => {}
                error => return Err(ReadError::Failed(error)),
            }
        }
        let _inside = Inside::enter(&self.block.recv_owner, self.me).map_err(ReadError::Busy)?;
        let Some((envelope, len)) = self.first_record() else {
            return match now & (status::READ_CLOSED | status::CLOSED) {
                0 => Err(ReadError::WouldBlock),
                // Nobody whom it speaks with can end it, so programs know no end of it that is none of their own.
                status::CLOSED => Err(ReadError::Failed(Errno::NETDOWN.raw_os_error())),
                _ => Ok(None),
            };
        };
        let (ours, theirs) = (&self.rings().one, &self.rings().two);
        let (storage, size) = place(theirs);
        let head = ours.head.load(Ordering::Relaxed);
        let mut copied = 0;
        for piece in pieces {
            let count = piece.len().min(len - copied);
            let cursor = head.wrapping_add((RECORD_BYTES + copied) as u64);
            for (at, (from, to)) in parts(storage, size, cursor, count) {
                if !self.memory.copy_out(at, &mut piece[from..to]) {
                    return Err(ReadError::WouldBlock);
                }
            }
            copied += count;
        }
        if !peek {
            ours.head.store(head.wrapping_add((RECORD_BYTES + len) as u64), Ordering::Release);
        }
        Ok(Some(Record { envelope, len, copied }))
    }

    /// How far the lane has come in what was queued, and how far that goes, which both only grow (and wrap).
    pub fn taken(&self) -> u64 {
        self.rings().two.head.load(Ordering::Acquire)
    }

    /// How far what was queued goes.
    pub fn queued(&self) -> u64 {
        self.rings().one.tail.load(Ordering::Relaxed)
    }

    /// How far what has come goes.
    pub fn arrived(&self) -> u64 {
        self.rings().two.tail.load(Ordering::Acquire)
    }

    /// Whether so much waits to be received that what comes may soon find no room.
    pub fn is_half_full(&self) -> bool {
        let unread = self.arrived().wrapping_sub(self.rings().one.head.load(Ordering::Relaxed));
        unread as usize > self.capacity(1) / 2
    }

    /// The first datagram's envelope and length (FIONREAD).
    pub fn first_record(&self) -> Option<(Envelope, usize)> {
        let (ours, theirs) = (&self.rings().one, &self.rings().two);
        let head = ours.head.load(Ordering::Relaxed);
        let there = theirs.tail.load(Ordering::Acquire).wrapping_sub(head) as usize;
        let (storage, size) = place(theirs);
        if there < RECORD_BYTES || there > size {
            return None;
        }
        let mut record = [0; RECORD_BYTES];
        for (at, (from, to)) in parts(storage, size, head, RECORD_BYTES) {
            if !self.memory.copy_out(at, &mut record[from..to]) {
                return None;
            }
        }
        let (envelope, len) = Envelope::decode(&record);
        (RECORD_BYTES + len <= there).then_some((envelope, len))
    }
}
