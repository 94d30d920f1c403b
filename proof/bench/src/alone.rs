//! A lane of a benchmark that is turned by hand: no other lane writes to it, and nobody sleeps who would have to be
//! woken. `switch`, `forward`, `conn-memory` and `growth` measure such lanes.

use firelane_driver_memory::End;
use firelane_lane::{LaneMessage, Notice, Outlet, Wake};
use firelane_socket::{Ready, SocketToken};
use firelane_units::LaneId;

/// Nobody has to be woken.
pub(crate) struct NoBell;

impl Wake for NoBell {
    fn wake(&self) {}
}

/// There is nobody to write to; what the lane has to say is a fault of the benchmark, except for what is `expected`.
pub(crate) struct NoMail {
    expected: fn(&Notice) -> bool,
}

impl NoMail {
    /// Where a lane has nothing to say.
    pub(crate) fn silent() -> Self {
        Self { expected: |_| false }
    }

    /// Where it may say all but that it refuses.
    pub(crate) fn unrefused() -> Self {
        Self { expected: |notice| !matches!(notice, Notice::Refused { .. }) }
    }
}

impl Outlet<End> for NoMail {
    fn fill(&mut self, _: LaneId, message: LaneMessage<End>) -> Result<(), LaneMessage<End>> {
        Err(message)
    }

    fn wake(&mut self, _: LaneId) {}

    fn ready(&mut self, _: SocketToken, _: Ready) {}

    fn notice(&mut self, _: LaneId, notice: Notice) {
        assert!((self.expected)(&notice), "the lane says {notice:?}");
    }
}
