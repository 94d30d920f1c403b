//! May it pass now.
//!
//! A *flow* is an administered class of traffic: a limit, a priority, counters. Flows nest: a flow in its VNIC's
//! flow, that one in its link's. Every frame is asked once in each direction, and the answer is a [`Verdict`]:
//! it passes, it is held, or it is dropped as `flow_limit`.
//!
//! ```text
//!            admit                     release
//!   frame ---------> pass ------------------------> on to path/switch or path/ip
//!             |                           ^
//!             +----> hold (fair queues)  --+   when every limit on the way up has room again
//!             |
//!             +----> drop: the hold is full
//! ```
//!
//! - [`Limiter`]: when the bytes passed so far are paid for. Exact from the first second; no burst.
//! - [`FlowTable`]: the nest. A frame passes only if every limit above it has room, and is charged to all of
//!   them at once.
//! - guarantee: a flow that has not had its guaranteed rate comes before all others that wait for the same limit.
//! - release: flows that wait for the same limit are served by priority, then by deficit round robin, so
//!   that one flow cannot starve its neighbours.
//! - hold: inside a flow each conversation has a queue of its own, and these are served in turn, too.
//! - [`Lender`]: who wants to carry text without frames waits for credit here, in turn.
//! - [`Credit`]: what a socket of this host may send now. A sender that asks first is never dropped; one in another lane than the
//!   limit's asks the [`Board`] of its hold.
//!
//! One table per lane; a limited flow lives in one lane only, so its limit is exact. The caller passes the time.
#![forbid(unsafe_code)]

mod board;
mod conversation;
mod counters;
mod gate;
mod guarantee;
mod hold;
mod lender;
mod limiter;
mod nest;
mod schedule;
mod table;

pub use board::{Board, Origin, UnderWay, Whose};
pub use conversation::Conversation;
pub use counters::Counters;
pub use lender::{Lender, Limits, Loan};
pub use limiter::Limiter;
pub use nest::NEST_MAX;
pub use table::{Credit, FlowConfig, FlowError, FlowTable, HELD_FRAMES_MAX, Verdict};
