//! DHCP clients: an address for an interface, for as long as a server says (RFC 2131, RFC 8415).
//!
//! An ordinary user of the crate `firelane`. The protocol is a state machine per interface that is given messages and
//! `now` and gives messages and leases back; it knows no socket, and its tests run in no time:
//!
//! - [`v4`]: messages, leases, and [`v4::Client`], the states of RFC 2131 figure 5.
//! - [`v6`]: the same for IPv6, with its task: the state machine of RFC 8415, begun by what routers say.
//! - `awaiting.rs`: what the netstack's filter and translation let through for a client.
//! - `clock.rs`: the tasks' time.
//! - `task.rs`: [`Running`], a client with its socket and its interface, which gives the lease to the netstack.
//! - `informer.rs`: [`Informer`], a question of who has an address already ([`v4::Inform`]), with its socket.
//! - `identity.rs`: who a client says it is.
//! - `link_local.rs`: an IPv4 address of the link alone while there is no server (RFC 3927).
//! - `names.rs`: domain names, of which only what is harmless passes.
//! - `outcome.rs`: what becomes of an address, and what was seen.
//! - `random.rs`: chance, seeded.
#![forbid(unsafe_code)]

mod awaiting;
mod clock;
mod identity;
mod informer;
mod link_local;
mod names;
mod outcome;
mod random;
mod task;
pub mod v4;
pub mod v6;

pub use identity::{Duid, iaid};
pub use informer::{Informed, Informer};
pub use link_local::{LinkLocal, Step};
pub use outcome::{Counters, Loss, Times};
pub use task::{Keep, Remembered, Report, Running};
