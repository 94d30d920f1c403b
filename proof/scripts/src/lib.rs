//! Packet scripts, one behaviour per file.
//!
//! A script plays one end of a wire against a real lane with one netstack, in virtual time: it injects packets,
//! makes socket calls and says what must come back, and when. Every packet that the netstack sends must be
//! expected by some line; a script that leaves one out fails. The language is in `README.md` beside the scripts.
//!
//! `timed.rs` plays scripts of clients that lease or choose addresses: `dhcp4.rs`, `dhcp6.rs` and `link_local.rs`.
//!
//! `text.rs` reads lines, `packet.rs` and `segment.rs` know the packets of the language, `icmp.rs` what
//! routers say, `station.rs` is the script's end of the wire, `sockets.rs` makes the calls, `run.rs` walks through the events.
#![forbid(unsafe_code)]

mod datagrams;
mod dhcp4;
mod dhcp6;
pub mod duel;
mod icmp;
mod labels;
mod lease;
mod link_local;
mod meeting;
mod options;
mod packet;
mod peer;
mod run;
mod segment;
mod settings;
mod sockets;
mod station;
mod text;
mod timed;

pub use dhcp4::run_dhcp4;
pub use dhcp6::run_dhcp6;
pub use link_local::run_link_local;
pub use run::{Failure, run};
pub use settings::Family;
pub use text::{ParseError, Script};
