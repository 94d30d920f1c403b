//! How many frames each lane has fetched that nobody has consumed yet, and the emptied chains they came in.
//!
//! Shared by all lanes: the lane that fetched counts up when it hands frames over, the lane that consumes counts
//! down. This is the number that the polling policy (`poll.rs`) decides on. The consumer also gives the emptied
//! chains up here, so that traffic in one direction does not allocate at one end and free at the other.
//!
//! How many frames each lane has taken of each other is counted beside it: who has handed some over knows by that which are there.

use core::sync::atomic::{AtomicUsize, Ordering};

use firelane_frame::{Chain, MpscRing};
use firelane_units::LaneId;

use crate::poll::PollPolicy;

/// One count per lane, and spare chains for all.
#[derive(Debug)]
pub struct Backlogs {
    counts: Box<[Count]>,
    /// By the lane that takes, and by the one that has handed over.
    taken: Box<[Box<[AtomicUsize]>]>,
    spare: MpscRing<Chain>,
}

/// How many emptied chains wait to be used again.
const SPARE_CHAINS: usize = 256;

/// A count on a cache line of its own: neighbours belong to other CPUs.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Count(AtomicUsize);

impl Backlogs {
    /// Counts for `lanes` lanes.
    pub fn new(lanes: usize) -> Self {
        let counts = (0..lanes).map(|_| Count::default()).collect();
        let row = || (0..lanes).map(|_| AtomicUsize::new(0)).collect();
        let taken = (0..lanes).map(|_| row()).collect();
        Self { counts, taken, spare: MpscRing::new(SPARE_CHAINS) }
    }

    /// How many lanes there are.
    pub(crate) fn lanes(&self) -> usize {
        self.counts.len()
    }

    /// How many frames of `lane` wait elsewhere.
    pub fn of(&self, lane: LaneId) -> usize {
        self.counts.get(lane.index()).map_or(0, |count| count.0.load(Ordering::Acquire))
    }

    /// An empty chain, with storage if one is spare.
    pub(crate) fn chain(&self) -> Chain {
        self.spare.pop().unwrap_or_else(|| Chain::with_capacity(crate::drive::FETCH_FRAMES))
    }

    /// Keeps an emptied chain's storage.
    pub(crate) fn recycle(&self, mut chain: Chain) {
        chain.clear();
        // With enough of them spare, this one's storage is given back.
        let _ = self.spare.push(chain);
    }

    /// `lane` handed `frames` frames over.
    pub fn add(&self, lane: LaneId, frames: usize) {
        if let Some(count) = self.counts.get(lane.index()) {
            count.0.fetch_add(frames, Ordering::AcqRel);
        }
    }

    /// How many frames the lane `to` has taken so far that `from` has handed over, or that found no room there.
    pub fn taken(&self, from: LaneId, to: LaneId) -> usize {
        self.taken_of(from, to).map_or(0, |count| count.load(Ordering::Relaxed))
    }

    fn take(&self, from: LaneId, to: LaneId, frames: usize) {
        if let Some(count) = self.taken_of(from, to) {
            count.fetch_add(frames, Ordering::Relaxed);
        }
    }

    /// What `from` had handed over to `to` waits in `next` instead: who has it is not the one that it was counted for.
    pub fn pass_on(&self, from: LaneId, to: LaneId, next: LaneId, frames: usize) {
        self.take(from, to, frames);
        if let Some(count) = self.taken_of(from, next) {
            count.fetch_sub(frames, Ordering::Relaxed);
        }
    }

    fn taken_of(&self, from: LaneId, to: LaneId) -> Option<&AtomicUsize> {
        self.taken.get(to.index())?.get(from.index())
    }

    /// `to` has consumed `frames` frames of `lane`, or had no room for them. Whether that one must be called to fetch more.
    pub fn consumed(&self, lane: LaneId, to: LaneId, frames: usize) -> bool {
        self.take(lane, to, frames);
        let Some(count) = self.counts.get(lane.index()) else { return false };
        let before = count.0.fetch_sub(frames, Ordering::AcqRel);
        debug_assert!(before >= frames, "only what was handed over is consumed");
        PollPolicy::consumers_call(before, before - frames)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lane_is_called_when_its_frames_are_gone() {
        let backlogs = Backlogs::new(2);
        backlogs.add(LaneId(1), 20);
        assert_eq!((backlogs.of(LaneId(0)), backlogs.of(LaneId(1))), (0, 20));
        assert!(!backlogs.consumed(LaneId(1), LaneId(0), 2));
        assert!(backlogs.consumed(LaneId(1), LaneId(0), 2), "sixteen are left");
        assert!(!backlogs.consumed(LaneId(1), LaneId(0), 15));
        assert!(backlogs.consumed(LaneId(1), LaneId(0), 1), "none is left");
    }

    #[test]
    fn what_another_takes_instead_is_not_counted_for_it() {
        let backlogs = Backlogs::new(3);
        let taken = || [1, 2].map(|to| backlogs.taken(LaneId(0), LaneId(to)));
        backlogs.take(LaneId(0), LaneId(2), 7);
        backlogs.pass_on(LaneId(0), LaneId(1), LaneId(2), 5);
        assert_eq!(taken(), [5, 2]);
        backlogs.take(LaneId(0), LaneId(2), 5);
        assert_eq!(taken(), [5, 7]);
    }
}
