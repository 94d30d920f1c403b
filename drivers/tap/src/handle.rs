//! What is known of a TAP apart from its frames: what it is called now, whether it is there at all, and the speed that its user sees.
//!
//! Held by the daemon beside the queues, which lanes have. A TAP is a tenant's to rename and to delete; its descriptors stay what
//! they are, so that one of them is asked, wherever the interface is now.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use crate::door;
use crate::open;
use crate::sys::{self, Table};

/// A hold on a TAP that reads and sends nothing. The interface lives as long as it, and as the queues.
#[derive(Debug)]
pub struct TapHandle {
    queue: OwnedFd,
    /// The table of its door, if it has one.
    door: Option<Arc<Table>>,
}

impl TapHandle {
    pub(crate) const fn new(queue: OwnedFd, door: Option<Arc<Table>>) -> Self {
        Self { queue, door }
    }

    /// How many frames have ended at its door ever since it was made. The kernel counts them among those that it could not send
    /// (`tx_dropped`), a moment later.
    pub fn turned_away(&self) -> u64 {
        self.door.as_ref().map_or(0, |table| door::counted_in_all(table))
    }

    /// What the interface is called now; none if somebody has deleted it.
    pub fn name(&self) -> Option<String> {
        Some(sys::name_of(self.queue.as_fd()).ok()?.text())
    }

    /// The network namespace where the interface is now.
    ///
    /// # Errors
    /// The interface is gone, or the process may not go where it is.
    pub fn namespace(&self) -> io::Result<OwnedFd> {
        sys::namespace_of(self.queue.as_fd())
    }

    /// Does some work in the network namespace where the interface is now.
    ///
    /// # Errors
    /// The interface is gone, the process may not go where it is, or the work's own.
    pub fn inside<T: Send>(&self, work: impl FnOnce() -> io::Result<T> + Send) -> io::Result<T> {
        open::beside(self.queue.as_fd(), work)
    }

    /// Lets `ethtool` and `/sys/class/net` show this speed. It changes nothing of how frames pass.
    ///
    /// # Errors
    /// The interface is gone, the process may not go where it is, or may not change it.
    pub fn set_speed(&self, mbps: u32) -> io::Result<()> {
        self.inside(|| {
            let socket = sys::control_socket()?;
            sys::set_speed(socket.as_fd(), sys::name_of(self.queue.as_fd())?, mbps)
        })
    }
}
