//! Text that goes with a SYN (RFC 7413, TCP_FASTOPEN_CONNECT and MSG_FASTOPEN of tcp(7)).
//!
//! Where the peer takes text with a SYN, connect(2) begins nothing: the daemon makes a block with storage for the send ring, says
//! that it is *deferred*, and keeps the address. Who writes first of all who have the socket takes that word back, writes,
//! and then asks for the connection, so the lane that hears of it finds the text. The library (`edge/shim`) calls it.

use std::io::IoSlice;

use crate::layout::{DEFERRED, request};
use crate::owner::Inside;
use crate::stream::{Held, Storage, StreamEnd};
use crate::sync::Ordering;

#[allow(private_bounds)]
impl<M: Storage> StreamEnd<'_, M> {
    /// Whether its connection begins with the first text that is written.
    #[inline]
    pub fn is_deferred(&self) -> bool {
        self.block.file.load(Ordering::Acquire) & DEFERRED != 0
    }

    /// Begins the connection with as much of this as there is room for; the caller kicks the lane. How much that is; `None` if
    /// somebody else has begun it.
    pub fn begin_early(&self, pieces: &[IoSlice<'_>]) -> Option<usize> {
        if self.block.file.fetch_and(!DEFERRED, Ordering::AcqRel) & DEFERRED == 0 {
            return None;
        }
        let count = self.write_early(pieces).unwrap_or(0);
        self.block.requests.fetch_or(request::CONNECT, Ordering::Release);
        Some(count)
    }

    /// Nobody else is inside: who writes without a connection does not enter.
    fn write_early(&self, pieces: &[IoSlice<'_>]) -> Option<usize> {
        let _inside = Inside::enter(&self.block.send_owner, self.me).ok()?;
        let held = Held::take(&self.rings().one.state)?;
        let count = self.write_held(&held, pieces).ok()?;
        let tail = &self.rings().one.tail;
        tail.store(tail.load(Ordering::Relaxed).wrapping_add(count as u64), Ordering::Release);
        Some(count)
    }
}
