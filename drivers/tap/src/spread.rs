//! By which of a TAP's queues its frames come: by all of them, as the kernel deals them out, or as a program of ours does.
//!
//! Made by `queue.rs` for the engine, which asks for fewer rings or sets queues aside while frames pass. The kernel swaps programs
//! whole, so no frame is lost; one that is in a queue already stays there.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use crate::choosing::{self, Selector};
use crate::sys;

/// What tells a TAP by which of its queues frames are to come.
#[derive(Debug)]
pub struct Spreader(OwnedFd);

/// By which queues the frames of a TAP come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Spread<'a> {
    /// By so many of the first ones, each conversation by one of them.
    pub rings: u16,
    /// Frames with a queue set aside for them: the first that matches decides, and one without a queue leaves them to the first ones.
    pub aside: &'a [(Selector, Option<u16>)],
}

impl Spreader {
    pub(crate) const fn new(queue: OwnedFd) -> Self {
        Self(queue)
    }

    /// Frames come like this from now on; by all queues, as the kernel likes, if nothing is said.
    ///
    /// # Errors
    /// The kernel knows no such programs, or this process may not load them.
    pub fn spread(&self, how: Option<Spread<'_>>) -> io::Result<()> {
        let Some(Spread { rings, aside }) = how else { return sys::set_steering(self.0.as_fd(), None) };
        let program = sys::load_program(&choosing::choose(rings, aside))?;
        sys::set_steering(self.0.as_fd(), Some(program.as_fd()))
    }
}
