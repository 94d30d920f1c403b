//! packetdrill's plug-in interface over a real lane, in virtual time.
//!
//! `libfirelane_packetdrill.so` is what `packetdrill --so_filename` loads: scripts then drive this stack without root,
//! without a device and without waiting, because the clock is the plug-in's as well. `docs/packetdrill.md` says how.
//! The lane is the one that the daemon runs, with one netstack behind a device that carries bare IP packets.
//!
//! ```text
//!   packetdrill ── 32 functions ──> abi.rs      raw pointers and errno; memory.rs, host.rs
//!                                   plugin.rs   one lock, blocking calls, who lets time pass
//!                                   files.rs    descriptors; calls.rs, stream.rs, fast_open.rs, dgram.rs, sockopt.rs, readiness.rs
//!                                   world.rs    the lane and its clock; link.rs: its device; options.rs: --so_flags
//! ```
//!
//! Unsafe code is in `abi.rs`, `memory.rs` and `host.rs` only.
#![deny(unsafe_code)] // allowed in the three leaves

#[allow(unsafe_code)]
pub mod abi;
mod calls;
mod chosen;
mod dgram;
mod errno;
mod fast_open;
mod files;
#[allow(unsafe_code)]
mod host;
mod link;
#[allow(unsafe_code)]
mod memory;
mod options;
mod plugin;
mod readiness;
mod sockopt;
mod stream;
mod world;

pub use options::{Options, ParseError};
