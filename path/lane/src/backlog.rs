//! How many frames each lane has fetched that nobody has consumed yet.
//!
//! Shared by all lanes: the lane that fetched counts up when it hands frames over, the lane that consumes counts
//! down. This is the number that the polling policy (`poll.rs`) decides on.

use core::sync::atomic::{AtomicUsize, Ordering};

use firelane_units::LaneId;

use crate::poll::PollPolicy;

/// One count per lane.
#[derive(Debug)]
pub struct Backlogs(Box<[Count]>);

/// A count on a cache line of its own: neighbours belong to other CPUs.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Count(AtomicUsize);

impl Backlogs {
    /// Counts for `lanes` lanes.
    pub fn new(lanes: usize) -> Self {
        Self((0..lanes).map(|_| Count::default()).collect())
    }

    /// How many frames of `lane` wait elsewhere.
    pub fn of(&self, lane: LaneId) -> usize {
        self.0.get(lane.index()).map_or(0, |count| count.0.load(Ordering::Acquire))
    }

    /// `lane` handed `frames` frames over.
    pub fn add(&self, lane: LaneId, frames: usize) {
        if let Some(count) = self.0.get(lane.index()) {
            count.0.fetch_add(frames, Ordering::AcqRel);
        }
    }

    /// `frames` frames of `lane` were consumed. Whether it must be called to fetch more.
    pub fn consumed(&self, lane: LaneId, frames: usize) -> bool {
        let Some(count) = self.0.get(lane.index()) else { return false };
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
        assert!(!backlogs.consumed(LaneId(1), 2));
        assert!(backlogs.consumed(LaneId(1), 2), "sixteen are left");
        assert!(!backlogs.consumed(LaneId(1), 15));
        assert!(backlogs.consumed(LaneId(1), 1), "none is left");
    }
}
