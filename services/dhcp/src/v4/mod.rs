//! DHCP for IPv4 (RFC 2131): messages, leases and the client's state machine.

mod client;
mod lease;
mod message;

pub use client::{Action, Client, ClientConfig, Held, Phase};
pub use lease::{Lease, Route, Unusable};
pub use message::{Malformed, Message, MessageType};
