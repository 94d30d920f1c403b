//! By how many of a TAP's queues its frames come: all of them, dealt out by the kernel, or the first ones, dealt out by a
//! program of ours.
//!
//! Made by `queue.rs` for the engine, which asks for fewer rings while frames pass. The kernel swaps programs whole, so no frame is
//! lost; one that is in a queue already stays there.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use crate::program;
use crate::sys;

/// What tells a TAP by which of its queues frames are to come.
#[derive(Debug)]
pub struct Spreader(OwnedFd);

impl Spreader {
    pub(crate) const fn new(queue: OwnedFd) -> Self {
        Self(queue)
    }

    /// Frames come by the first `rings` queues from now on, each conversation by one of them; without a number by all, as the
    /// kernel likes.
    ///
    /// # Errors
    /// The kernel knows no such programs, or this process may not load them.
    pub fn spread(&self, rings: Option<u16>) -> io::Result<()> {
        let Some(rings) = rings else { return sys::set_steering(self.0.as_fd(), None) };
        let program = sys::load_program(&program::spread(rings.max(1)))?;
        sys::set_steering(self.0.as_fd(), Some(program.as_fd()))
    }
}
