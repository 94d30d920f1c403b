//! Whose frame is it.
//!
//! The first station after a driver. [`Headers::parse`] reads each header of a frame once; everything later
//! asks the result and never the bytes again. From the headers follow
//!
//! - the VNIC: destination address and VLAN, answered by `path/switch`;
//! - the flow: [`FlowRules`] of that VNIC, or of the link's own, the most specific rule first;
//! - the lane: [`Tuple::symmetric_hash`] and the 128 entries of [`Steering`], or the flow's own ([`FlowLanes`]);
//! - the connection: [`ConnTable`], exact match;
//! - else the listener: [`Listeners`], a specific address before a wildcard;
//! - what a router decided about a flow: [`FlowCache`].
//!
//! Every table is a lane's own replica, changed by message, so nothing here is shared or locked. Tables that a
//! remote peer fills are keyed with a secret; tables that only the operator fills are not. No answer for this host is
//! cached by header values: the cost of a lookup depends on the rules, not on what an attacker sends. What is
//! forwarded is, in places of which there is a fixed number, and what is not found there costs a look at the routes.
#![forbid(unsafe_code)]

mod conn_table;
mod flow_cache;
mod flow_lanes;
mod headers;
mod listeners;
mod mix;
mod pins;
mod ranges;
mod rules;
mod steering;
#[cfg(test)]
mod test_frames;
mod tuple;
mod word_table;

pub use conn_table::{ConnTable, Sought, TableKey, TupleTaken};
pub use flow_cache::{FlowCache, Foreseen};
pub use flow_lanes::FlowLanes;
pub use headers::{Fragment, Headers, L3};
pub use listeners::{ListenTaken, Listeners, LocalAddr};
pub use pins::{FlowMatch, Rank};
pub use ranges::RANGE_PAIRS_MAX;
pub use rules::{FlowRules, MASK_SETS_MAX, RuleError};
pub use steering::{STEERING_ENTRIES, Steering};
pub use tuple::{SteeringKey, Tuple};
