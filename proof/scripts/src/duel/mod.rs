//! The same exchange with our netstack and with Linux's, and what differs between the answers.
//!
//! An exchange is a script without expectations: packets of the peer's and calls of a program. Our side plays it in
//! virtual time as every script; the kernel's plays it in real time over a TAP, in a network namespace that the caller
//! has made. What either answers is written down field by field and compared.
//!
//! - `exchange.rs` reads exchanges; `player.rs` walks through one over either `World`.
//! - `virtual_side.rs` is our netstack; `kernel_side.rs` and `kernel_sockets.rs` are Linux.
//! - `transcript.rs` is what was answered, and the comparison; `page.rs` the page of known differences.

mod exchange;
mod kernel_side;
mod kernel_sockets;
mod page;
mod player;
mod transcript;
mod virtual_side;

pub use exchange::Exchange;
pub use kernel_side::{KernelError, kernels};
pub use page::Page;
pub use transcript::{Transcript, differences};
pub use virtual_side::{besieged, ours};
