//! Real programs against Firelane, in network namespaces that each test makes for itself.
//!
//! [`Sandbox`] is a world of its own (user, mount and network namespace) that ends with its owner, whatever
//! happens to it; [`Daemon`] is a real `firelaned` inside one. Tests run beside each other, as root and as
//! an ordinary user, and leave nothing behind.

mod cpuset;
mod daemon;
mod dump;
mod echoes;
mod frr;
mod sandbox;
mod scripts;
mod stage;
mod testpmd;
mod throughput;
mod until;

pub use cpuset::{Cpuset, cpu_ends};
pub use daemon::{Daemon, binary};
pub use dump::Dump;
pub use echoes::{COMPARES, Comparing, ECHOES, serve_echoes};
pub use firelane_skipped::skipped;
pub use frr::Frr;
pub use sandbox::{Background, Output, Sandbox, search_path};
pub use scripts::{as_the_kernels, as_the_kernels_with, script, soak_seed};
pub use stage::{BOTH, On, Server, Stage};
pub use testpmd::Testpmd;
pub use throughput::Iperf;
pub use until::until;
