//! DHCP for IPv4 (RFC 2131): messages, leases, the client's state machine, and the question of who needs no lease.

mod client;
mod inform;
mod lease;
mod message;

pub use client::{Action, Client, ClientConfig, Held, Phase};
pub use inform::{Inform, InformConfig, InformPhase, Network};
pub use lease::{Lease, Route, Unusable};
pub use message::{Malformed, Message, MessageType};
