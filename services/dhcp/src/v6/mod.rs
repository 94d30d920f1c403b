//! DHCP for IPv6 (RFC 8415, which RFC 9915 restates): messages, leases, the client's state machine and its task.

mod client;
mod lease;
mod message;
mod pace;
mod task;

pub use client::{Action, Client, ClientConfig, Held, Phase, Wanted};
pub use lease::{Lease, Network, Unusable};
pub use message::{Malformed, Message, MessageType, Options};
pub use task::{Keep, Remembered, Report, Running};
