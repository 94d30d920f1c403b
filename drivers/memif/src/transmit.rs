//! Frames out: from buffers of ours into a ring of shared memory.
//!
//! Called by `queue.rs`. The client writes into its own buffers in turn; the server into the empty buffers that
//! the client's descriptors name, which are checked each time.

use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

use firelane_frame::Chain;
use firelane_units::{DropCounters, DropReason};

use crate::layout::{BUFFER_BYTES_MIN, Desc, MASK_INTERRUPT, NEXT};
use crate::receive::{Fault, Own};
use crate::sys::{Region, RingMemory};

/// Frames are published in groups of so many: the reader begins while the rest is written.
const PUBLISH_FRAMES: usize = 32;

/// The sending side of a ring.
#[derive(Debug)]
pub(crate) struct Sender {
    pub(crate) regions: Arc<[Arc<Region>]>,
    pub(crate) ring: RingMemory,
    /// The buffers are ours (we are the client).
    pub(crate) own: Option<Own>,
    /// The next descriptor to write.
    pub(crate) next: u16,
}

/// What came of sending.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Sent {
    /// Whether any frame was sent.
    pub(crate) any: bool,
    /// Whether the reader sleeps and wants the doorbell.
    pub(crate) wants_bell: bool,
}

impl Sender {
    /// How many descriptors may be written.
    #[inline]
    fn room(&self) -> Result<u16, Fault> {
        let size = self.ring.size();
        let room = match self.own {
            // What the server has not read yet is in use.
            Some(_) => {
                let used = self.next.wrapping_sub(self.ring.tail().load(Ordering::Acquire));
                size.checked_sub(used)
            }
            None => Some(self.ring.head().load(Ordering::Acquire).wrapping_sub(self.next)),
        };
        room.filter(|&room| room <= size).ok_or(Fault::Cursor)
    }

    /// Sends from the front of `chain`. What finds no room stays there.
    pub(crate) fn transmit(&mut self, chain: &mut Chain, drops: &mut DropCounters) -> Result<Sent, Fault> {
        let mut room = self.room()?;
        let (mut unpublished, mut any) = (0, false);
        while let Some(frame) = chain.front() {
            let Some(descs) = self.needed(frame.len(), room)? else {
                // A frame that an empty ring has no room for would wait for ever.
                if room < self.ring.size() {
                    break;
                }
                drops.count(DropReason::TooLong);
                chain.pop();
                continue;
            };
            self.scatter(frame.as_slice(), descs)?;
            self.next = self.next.wrapping_add(descs);
            room -= descs;
            chain.pop();
            any = true;
            unpublished += 1;
            if unpublished == PUBLISH_FRAMES {
                self.publish();
                unpublished = 0;
            }
        }
        if unpublished > 0 {
            self.publish();
        }
        if any {
            // What was published is seen before we look whether the reader wants to be told.
            fence(Ordering::SeqCst);
        }
        let wants_bell = any && self.ring.flags().load(Ordering::Relaxed) & MASK_INTERRUPT == 0;
        Ok(Sent { any, wants_bell })
    }

    fn publish(&self) {
        let cursor = if self.own.is_some() { self.ring.head() } else { self.ring.tail() };
        cursor.store(self.next, Ordering::Release);
    }

    /// How many descriptors a frame of `len` bytes takes; `None` if there is no room for it.
    #[inline]
    fn needed(&self, len: usize, room: u16) -> Result<Option<u16>, Fault> {
        if let Some(own) = &self.own {
            let descs = len.div_ceil(own.plan.buffer_bytes as usize).max(1);
            return Ok(u16::try_from(descs).ok().filter(|&descs| descs <= room));
        }
        let mut rest = len;
        for nth in 0..room {
            let capacity = self.ring.read(self.next.wrapping_add(nth)).length as usize;
            // Of smaller ones a frame takes so many that counting them costs more than the frame.
            if capacity < usize::from(BUFFER_BYTES_MIN) {
                return Err(Fault::Buffer);
            }
            rest = rest.saturating_sub(capacity);
            if rest == 0 {
                return Ok(Some(nth + 1));
            }
        }
        Ok(None)
    }

    /// Writes a frame into `descs` buffers.
    #[inline]
    fn scatter(&self, frame: &[u8], descs: u16) -> Result<(), Fault> {
        let mut rest = frame;
        for nth in 0..descs {
            let cursor = self.next.wrapping_add(nth);
            let buffer = match &self.own {
                Some(own) => Desc {
                    length: own.plan.buffer_bytes,
                    offset: own.plan.buffer_at(true, own.queue, self.ring.slot(cursor)),
                    ..Desc::default()
                },
                None => self.ring.read(cursor),
            };
            let is_last = nth + 1 == descs;
            // A descriptor that shrank since it was counted is a fault, not a frame cut short.
            if is_last && rest.len() > buffer.length as usize {
                return Err(Fault::Buffer);
            }
            let (piece, behind) = rest.split_at(rest.len().min(buffer.length as usize));
            let region = self.regions.get(usize::from(buffer.region)).ok_or(Fault::Buffer)?;
            if !region.copy_in(buffer.offset, piece) {
                return Err(Fault::Buffer);
            }
            let flags = if is_last { 0 } else { NEXT };
            self.ring.write(cursor, Desc { flags, length: piece.len() as u32, ..buffer });
            rest = behind;
        }
        Ok(())
    }
}
