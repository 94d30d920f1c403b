//! What is known of a TAP apart from its frames: what it is called now, whether it is there at all, and the speed that its user sees.
//!
//! Held by the daemon beside the queues, which lanes have. A TAP is a tenant's to rename and to delete; its descriptors stay what
//! they are, so that one of them is asked, wherever the interface is now.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use crate::open;
use crate::sys;

/// A hold on a TAP that reads and sends nothing. The interface lives as long as it, and as the queues.
#[derive(Debug)]
pub struct TapHandle(OwnedFd);

impl TapHandle {
    pub(crate) const fn new(queue: OwnedFd) -> Self {
        Self(queue)
    }

    /// What the interface is called now; none if somebody has deleted it.
    pub fn name(&self) -> Option<String> {
        Some(sys::name_of(self.0.as_fd()).ok()?.text())
    }

    /// The network namespace where the interface is now.
    ///
    /// # Errors
    /// The interface is gone, or the process may not go where it is.
    pub fn namespace(&self) -> io::Result<OwnedFd> {
        sys::namespace_of(self.0.as_fd())
    }

    /// Does some work in the network namespace where the interface is now.
    ///
    /// # Errors
    /// The interface is gone, the process may not go where it is, or the work's own.
    pub fn inside<T: Send>(&self, work: impl FnOnce() -> io::Result<T> + Send) -> io::Result<T> {
        open::beside(self.0.as_fd(), work)
    }

    /// Lets `ethtool` and `/sys/class/net` show this speed. It changes nothing of how frames pass.
    ///
    /// # Errors
    /// The interface is gone, the process may not go where it is, or may not change it.
    pub fn set_speed(&self, mbps: u32) -> io::Result<()> {
        self.inside(|| {
            let socket = sys::control_socket()?;
            sys::set_speed(socket.as_fd(), sys::name_of(self.0.as_fd())?, mbps)
        })
    }
}
