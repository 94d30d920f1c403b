//! Many hosts, virtual time, one seed.
//!
//! A [`Sim`] holds hosts with their lanes, the wires between them, the applications on them, and one clock. All
//! that happens follows from its seed: a failure prints it, and the same seed fails again in the same way.
//! The hosts are the real ones (lanes behind squeues, with wires as their drivers); what is simulated is time,
//! threads and the physical world.
//!
//! `host.rs` is a host as an engine runs it, `app.rs` how programs use it, `session.rs` what the programs say to
//! each other, `faults.rs` what goes wrong, `scenario.rs` a whole world from one number, `checks.rs` what must
//! hold in all of them, `attack.rs` what a hostile neighbour sends.
#![forbid(unsafe_code)]

mod app;
pub mod attack;
mod checks;
mod faults;
mod host;
mod random;
mod scenario;
mod session;
mod sim;
mod trace;

pub use app::{App, AppId, Cx, Listener, Next, Stream};
pub use faults::{Weather, random_conditions};
pub use host::{Host, HostConfig, StackConfig, StackId, station_mac};
pub use random::{Pattern, Random};
pub use scenario::{Scale, for_seeds, fresh_seeds, play};
pub use session::{Client, Closing, Ending, Outcome, Plan, Server, Session, Side, SocketConfig};
pub use sim::{Plug, Sim, Wire};
pub use trace::{Port, line};
