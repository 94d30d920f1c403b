//! How much a program has written and the lane not sent (TCP_NOTSENT_LOWAT of tcp(7)).
//!
//! Only the lane knows what was sent, but the program knows what is unacknowledged, which is no less. So who has written as
//! much as the limit beyond the last acknowledgement says that it is *full*, and kicks the lane, which knows better: it takes
//! the word back as soon as less than the limit is unsent, and tells whoever waits to write.
//!
//! - N1. The program says so before it kicks, and writes nothing to the lane's ring as long as it stands.
//! - N2. Text that goes to a joint is with its reader at once: the limit is about the lane's ring alone.
//! - N3. Whoever lifts the limit wakes all who wait; the word means nothing then.

use crate::layout::request;
use crate::stream::{Storage, StreamEnd};
use crate::sync::Ordering;

/// How much a write may bring at least where it may bring anything: as much as goes to a device at once. Linux, too, fills what
/// it has begun, so that a small limit does not make crumbs that wait for each other.
const PIECE: usize = 64 << 10;

#[allow(private_bounds)]
impl<M: Storage> StreamEnd<'_, M> {
    /// How much one write to the lane's ring may bring.
    #[inline]
    pub(crate) fn unsent_room(&self) -> usize {
        match self.unsent_limit() {
            None => usize::MAX,
            Some(_) if self.writes_beside() => usize::MAX,
            Some(_) if self.block.requests.load(Ordering::Acquire) & request::FULL != 0 => 0,
            Some(limit) => limit.max(PIECE),
        }
    }

    /// Something was written to the lane's ring, of which the lane is to hear (N1).
    #[inline]
    pub(crate) fn note_unsent(&self) {
        if self.unsent_limit().is_some_and(|limit| self.undelivered() >= limit) {
            self.request(request::FULL);
        }
    }

    fn unsent_limit(&self) -> Option<usize> {
        let limit = self.block.low_water[1].load(Ordering::Relaxed);
        (limit != 0).then_some(limit as usize)
    }

    /// Whether what is written goes to the joint (N2).
    fn writes_beside(&self) -> bool {
        self.beside.as_ref().is_some_and(|beside| beside.room().is_some())
    }
}
