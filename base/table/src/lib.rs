//! Tables of what packets make: states of the packet filter, sessions and mappings of address translation.
//!
//! [`Places`] keeps them, in the order in which half-open ones began, and takes out what has ended; [`Index`] finds their places by
//! the hash of their names. Both are bounded, and need nothing per packet but what they are asked. No clock: `now` is given.
//!
//! Beside them tables of what has numbers that only rise: [`Numbered`] of any, [`Minted`] of those of a [`Mint`].
#![forbid(unsafe_code)]

mod index;
mod minted;
mod numbered;
mod order;
mod places;
mod recent;
mod rooms;

pub use index::Index;
pub use minted::{Mint, Minted};
pub use numbered::Numbered;
pub use places::{Kept, Places};
pub use recent::{RECENT_MAX, Recent};
