//! AF_XDP: frames of a NIC's queues, or of a veth, without the kernel's stack.
//!
//! [`open()`] loads a redirect program of our own (no compiler, no ELF), attaches it as a link that ends with this
//! process, and returns queues that share one memory. What the program does not claim stays with the kernel.
//! [`probe()`] says what an interface would get, and why.
//!
//! - `program.rs`: instructions as values, and the program. `bpf.rs`: maps, loading, attaching.
//!   `claims.rs`: whose frames are ours, where not all are.
//! - `socket.rs`: one socket with its four rings. `queue.rs`: sockets as a [`firelane_frame::Driver`].
//! - `spread.rs`: by how many of its rings a NIC sends.
//! - `partial.rs`: checksums that a sender on this host left open. `interface.rs`: what is known of an interface.
//!   `settings.rs`: what it and the other end of its cable could do.
//! - `sys.rs`: system calls and shared rings, the only unsafe code.

mod bpf;
mod claims;
mod error;
mod interface;
mod open;
mod partial;
mod program;
mod queue;
mod settings;
mod socket;
mod spread;
mod sys;

pub use bpf::CLAIMS_MAX;
pub use claims::Claims;
pub use error::{AfXdpError, Refused};
pub use interface::{Probe, probe, receive_queues};
pub use open::{AfXdpConfig, Attached, Claim, Mode, Wish, open};
pub use queue::AfXdpQueue;
pub use settings::{LinkModes, LinkSettings, LinkSpeed, PauseFrames, link_settings};
pub use spread::Spreader;
