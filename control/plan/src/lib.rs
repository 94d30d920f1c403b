//! From what is wanted and what is present to the steps between them.
//!
//! [`plan`] is a pure function of two models. The daemon calls it before every change, carries the steps out
//! one by one, and replays each on its record of what is present with [`apply_to_model`], so that a step
//! that fails leaves a record that is true. Four laws hold, each tested over generated models:
//!
//! - `plan(x, x)` is empty: a no-op apply changes nothing and says so.
//! - The steps applied to `present` give `wanted`.
//! - After every step the model is valid: nothing refers to what is gone or not there yet.
//! - What does not differ, and rests on nothing that does, is not touched.
//!
//! Order: what goes or must be made anew is taken down from the top (services, flows, routes, addresses,
//! VNICs, links, netstacks); then changes in place, where an MTU grows from the bottom and shrinks from the
//! top; then what is new is built from the bottom.
#![forbid(unsafe_code)]

mod apply;
mod diff;
mod filter_lines;
mod promise;
mod rests;
mod step;
mod torn;
mod touched;

pub use apply::apply_to_model;
pub use diff::plan;
pub use step::{Action, Effect, NO_CHANGES, Step, render};
