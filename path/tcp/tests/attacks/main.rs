//! Attacks on one connection, its books and its keyed draws, by the names of the conformance list. What a whole netstack
//! must show stands in `proof/scripts/tests/attacks`.

#[path = "../common/mod.rs"]
mod common;

mod parsing;
mod resources;
mod state;
