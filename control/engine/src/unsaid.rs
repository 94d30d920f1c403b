//! What programs have written and peers have yet to acknowledge when the sockets are gone already: waited for before an engine ends.
//!
//! A kernel outlives its programs and sends on; the lanes end with the engine's last handle. [`Stack::drain`] waits as long as its
//! caller likes. Whoever did not ask waits as long as peers take it, but for what takes none for a second, or ten seconds in all: then each
//! worker has the peers of its lane told (`worker.rs`).

use std::thread;
use std::time::{Duration, Instant};

use firelane_lane::Unsaid;
use firelane_units::{LaneId, NetstackId};

use crate::calls::Stay;
use crate::engine::Engine;
use crate::fabric::Fabric;
use crate::sleepers::deadline_after;
use crate::stack::Stack;

/// How long workers go on for what was written before the last handle went when no peer of theirs acknowledges more of it: time for two
/// repetitions on a path as long as any.
pub(crate) const LAST_WORDS: Duration = Duration::from_secs(1);
/// How long they go on where peers do. Whoever drops that handle waits so long: a peer that takes a byte at a time does not hold it for ever.
pub(crate) const LAST_WORDS_MAX: Duration = Duration::from_secs(10);
/// How often it is looked whether everything has arrived.
pub(crate) const LOOK: Duration = Duration::from_millis(1);

impl Stack {
    /// Waits until the peers of connections whose sockets are closed have acknowledged all that was written, and the end; for at most
    /// `limit`. Whether they have. Connections that are open are not waited for.
    ///
    /// It blocks its thread. Where the program drives the lanes itself, it gives turns to that of the calling thread; other lanes need
    /// others that drive them.
    pub fn drain(&self, limit: Duration) -> bool {
        self.inner.fabric.drain(Some(self.id), limit)
    }
}

impl Engine {
    /// The same for all netstacks.
    pub fn drain(&self, limit: Duration) -> bool {
        self.0.fabric.drain(None, limit)
    }

    /// The drop of the last handle waits for nobody: there is no way left by which anything could leave.
    pub fn leave_unsaid(&self) {
        self.0.fabric.lane_ids().for_each(|lane| self.0.fabric.fall_silent(lane));
    }
}

impl Fabric {
    fn drain(&self, netstack: Option<NetstackId>, limit: Duration) -> bool {
        let deadline = deadline_after(limit);
        loop {
            self.lane_ids().filter(|&lane| self.is_worker_of(lane)).for_each(|lane| self.give_way(lane));
            if !self.has_unsaid(netstack) {
                return true;
            }
            let left = deadline.map_or(LOOK, |at| at.saturating_duration_since(Instant::now()));
            if left.is_zero() {
                return false;
            }
            thread::sleep(left.min(LOOK));
        }
    }

    /// Whether a connection has something to say whose socket is closed, asked a few places at a time so that no lane is held up.
    fn has_unsaid(&self, netstack: Option<NetstackId>) -> bool {
        self.lane_ids().any(|lane| {
            let mut from = 0;
            loop {
                match self.visit(lane, |_, lane| lane.find_unsaid(netstack, from)) {
                    Some(Unsaid::Some) => return true,
                    Some(Unsaid::NoneBefore(next)) => from = next,
                    // A lane that is out of service sends nothing.
                    Some(Unsaid::Nothing) | None => return false,
                }
            }
        })
    }

    /// The same of one lane for its worker, which waits for nobody: if somebody is inside, or something waits, there may be something.
    pub(crate) fn may_have_unsaid(&self, lane: LaneId) -> bool {
        let _stay = Stay::begin();
        let mut from = 0;
        loop {
            match self.squeue(lane).visit(self.now(), |host| host.lane.find_unsaid(None, from)) {
                Some(Unsaid::NoneBefore(next)) => from = next,
                Some(Unsaid::Nothing) => return false,
                Some(Unsaid::Some) => return true,
                None => return !self.has_failed(lane),
            }
        }
    }

    /// How far the peers of a lane's connections have acknowledged what was left unsaid, added up; `None` while somebody is inside.
    pub(crate) fn heard_of_unsaid(&self, lane: LaneId) -> Option<u64> {
        let _stay = Stay::begin();
        let (mut sum, mut next) = (0, Some(0));
        while let Some(from) = next {
            let heard;
            (heard, next) = self.squeue(lane).visit(self.now(), |host| host.lane.heard_of_unsaid(from))?;
            sum += heard;
        }
        Some(sum)
    }
}
