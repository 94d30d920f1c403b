//! The vertical perimeter that walks the whole path.
//!
//! A lane is everything that one CPU needs to take frames from drivers to sockets and back: queues, timers,
//! its shard of every netstack. At most one thread is inside it at a time, so nothing inside takes a lock.
//! The squeue is the door; the rest of the crate is what stands behind it. Threads, clock and waiting
//! belong to the engine, which calls in.
#![deny(unsafe_code)] // allowed in `perimeter`, the leaf

#[allow(unsafe_code)]
mod perimeter;
mod poll;
mod squeue;
mod steps;
mod sync;
mod wheel;

pub use perimeter::Poisoned;
pub use poll::{PollPolicy, RESUME_AT, Rest, STOP_ABOVE};
pub use squeue::{DRAIN_LIMIT, Entered, Inside, Mode, Refused, Sleep, Squeue, SqueueStats, Wake};
pub use steps::{Onward, STEPS_MAX, Step, StepList, StepLists, walk};
pub use wheel::Wheel;
