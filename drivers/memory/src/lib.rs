//! A wire inside the process: two ends, each a [`Driver`](firelane_frame::Driver).
//!
//! Without conditions ([`WireConfig::default`]) a wire is two rings that frames cross by handle: no lock, no
//! clock, no copy; its ends may be in different lanes. With conditions (a rate, a delay, a fault) each
//! direction is a seeded model in the time that [`Driver::advance`](firelane_frame::Driver::advance) tells:
//!
//! ```text
//!   transmit -> too long? -> queue (tail drop, mark) -> rate, FIFO -> loss, corruption -> delay, jitter -> receive
//!                                                               duplicate, reorder
//! ```
//!
//! The same seed and the same calls give the same run, to the nanosecond. A simulated wire reads no clock and
//! has a lock, so that a [`Control`] can change its conditions while two lanes use it.
#![forbid(unsafe_code)]

mod bell;
mod chance;
mod conditions;
mod direction;
mod end;
mod mark;

pub use chance::Chance;
pub use conditions::{Conditions, Corruption, GilbertElliott, Loss, Mark, Reorder, WireConfig};
pub use direction::WireCounters;
pub use end::{Control, End, EndCounters, wire};
