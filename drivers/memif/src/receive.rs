//! Frames in: from a ring of shared memory into buffers of ours.
//!
//! Called by `queue.rs`. Descriptors are read once and checked; bytes are copied and looked at only afterwards.
//! A descriptor that leads nowhere costs its frame, a cursor that cannot be costs the session ([`Fault`]).

use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

use firelane_frame::{Chain, Pools};
use firelane_units::{DropCounters, DropReason};

use crate::layout::{Desc, MASK_INTERRUPT, Plan};
use crate::sys::{Region, RingMemory};

/// What the other end did that no honest one does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fault {
    /// More frames, or more empty buffers, than the ring has places.
    Cursor,
    /// A frame that goes on through the whole ring.
    Endless,
    /// An empty buffer that is outside its region, or holds less than the shortest frame.
    Buffer,
}

impl std::fmt::Display for Fault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Cursor => "a ring's cursor ran ahead of the ring",
            Self::Endless => "a frame filled a whole ring and still went on",
            Self::Buffer => "an empty buffer lies outside its region, or is too small",
        })
    }
}

/// A client's own buffers: where they lie is not asked of the ring.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Own {
    pub(crate) plan: Plan,
    pub(crate) queue: u16,
}

/// The receiving side of a ring.
#[derive(Debug)]
pub(crate) struct Receiver {
    pub(crate) regions: Arc<[Arc<Region>]>,
    pub(crate) ring: RingMemory,
    /// The buffers are ours (we are the client).
    pub(crate) own: Option<Own>,
    /// The next descriptor to read.
    pub(crate) next: u16,
    /// A client: how far the server may fill.
    pub(crate) given: u16,
    /// So many descriptors of an unfinished frame wait, of so many bytes: no reason to stay awake, nor to walk them again.
    pub(crate) unfinished: (u16, usize),
}

impl Receiver {
    /// How many descriptors wait.
    #[inline]
    fn available(&self) -> Result<u16, Fault> {
        let (cursor, most) = match self.own {
            Some(_) => (self.ring.tail(), self.given.wrapping_sub(self.next)),
            None => (self.ring.head(), self.ring.size()),
        };
        let available = cursor.load(Ordering::Acquire).wrapping_sub(self.next);
        if available <= most { Ok(available) } else { Err(Fault::Cursor) }
    }

    /// Gives the server every buffer of ours, once it has agreed to begin: DPDK's sets all cursors to zero before it
    /// does.
    pub(crate) fn begin(&mut self) {
        if self.own.is_some() {
            self.given = self.ring.size();
            self.ring.head().store(self.given, Ordering::Release);
        }
    }

    /// Copies up to `budget` frames to the end of `out`. What no buffer was free for stays in the ring.
    pub(crate) fn receive(
        &mut self,
        pools: &mut Pools,
        budget: usize,
        longest: usize,
        out: &mut Chain,
        drops: &mut DropCounters,
    ) -> Result<usize, Fault> {
        let mut left = self.available()?;
        let (mut frames, begin) = (0, self.next);
        for _ in 0..budget {
            if left == 0 {
                break;
            }
            let desc = self.ring.read(self.next);
            let (descs, taken) = if desc.continues() {
                let Some((descs, bytes)) = self.measure(left)? else { break };
                (descs, self.gather(descs, bytes, pools, longest))
            } else {
                (1, self.copy(desc, pools, longest))
            };
            match taken {
                Ok(frame) => {
                    out.push(frame);
                    frames += 1;
                }
                Err(DropReason::NoBuffer) => break,
                Err(reason) => drops.count(reason),
            }
            self.next = self.next.wrapping_add(descs);
            self.unfinished = (0, 0);
            left -= descs;
        }
        if self.next != begin {
            self.give_back(begin);
        }
        Ok(frames)
    }

    /// One frame in one buffer.
    #[inline]
    fn copy(
        &self,
        desc: Desc,
        pools: &mut Pools,
        longest: usize,
    ) -> Result<firelane_frame::Frame, DropReason> {
        let len = desc.length as usize;
        if len > longest {
            return Err(DropReason::TooLong);
        }
        let (region, at) = self.place(self.next, desc).ok_or(DropReason::BadDescriptor)?;
        let mut frame = pools.take(len).ok_or(DropReason::NoBuffer)?;
        if region.copy_out(at, frame.append(len)) {
            return Ok(frame);
        }
        pools.put(frame);
        Err(DropReason::BadDescriptor)
    }

    /// Where the bytes of a descriptor are.
    #[inline]
    fn place(&self, cursor: u16, desc: Desc) -> Option<(&Region, u32)> {
        match &self.own {
            Some(own) => {
                let at = own.plan.buffer_at(false, own.queue, self.ring.slot(cursor));
                (desc.length <= own.plan.buffer_bytes).then(|| (&*self.regions[0], at))
            }
            None => Some((self.regions.get(usize::from(desc.region))?, desc.offset)),
        }
    }

    /// How many descriptors a frame has and how many bytes; `None` if its end has not come yet.
    fn measure(&mut self, left: u16) -> Result<Option<(u16, usize)>, Fault> {
        let (known, mut bytes) = self.unfinished;
        if left <= known {
            return Ok(None);
        }
        for nth in known..left {
            let desc = self.ring.read(self.next.wrapping_add(nth));
            bytes = bytes.saturating_add(desc.length as usize);
            if !desc.continues() {
                return Ok(Some((nth + 1, bytes)));
            }
        }
        let all = if self.own.is_some() { self.given.wrapping_sub(self.next) } else { self.ring.size() };
        self.unfinished = (left, bytes);
        if left == all { Err(Fault::Endless) } else { Ok(None) }
    }

    /// A frame in several buffers. Descriptors may have changed since they were measured.
    fn gather(
        &self,
        descs: u16,
        bytes: usize,
        pools: &mut Pools,
        longest: usize,
    ) -> Result<firelane_frame::Frame, DropReason> {
        if bytes > longest {
            return Err(DropReason::TooLong);
        }
        let mut frame = pools.take(bytes).ok_or(DropReason::NoBuffer)?;
        for cursor in (0..descs).map(|nth| self.next.wrapping_add(nth)) {
            let desc = self.ring.read(cursor);
            let len = desc.length as usize;
            let copied = len <= bytes - frame.len()
                && self
                    .place(cursor, desc)
                    .is_some_and(|(region, at)| region.copy_out(at, frame.append(len)));
            if !copied {
                pools.put(frame);
                return Err(DropReason::BadDescriptor);
            }
        }
        Ok(frame)
    }

    /// Lets the other end have the descriptors from `begin` to `next` again.
    fn give_back(&mut self, begin: u16) {
        let Some(own) = self.own else {
            self.ring.tail().store(self.next, Ordering::Release);
            return;
        };
        let mut cursor = begin;
        while cursor != self.next {
            let offset = own.plan.buffer_at(false, own.queue, self.ring.slot(cursor));
            self.ring.write(cursor, Desc { flags: 0, region: 0, length: own.plan.buffer_bytes, offset });
            cursor = cursor.wrapping_add(1);
        }
        self.given = self.given.wrapping_add(self.next.wrapping_sub(begin));
        self.ring.head().store(self.given, Ordering::Release);
    }

    /// Asks for doorbells or forbids them; whether frames wait already.
    pub(crate) fn notify(&mut self, on: bool) -> Result<bool, Fault> {
        self.ring.flags().store(if on { 0 } else { MASK_INTERRUPT }, Ordering::Relaxed);
        // The wish is seen before we look: whoever writes after that look rings.
        fence(Ordering::SeqCst);
        Ok(self.available()? > self.unfinished.0)
    }
}
