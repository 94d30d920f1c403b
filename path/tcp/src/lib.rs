//! The Transmission Control Protocol, without I/O.

pub mod congestion;
pub mod delayed_ack;
pub mod flight;
pub mod isn;
pub mod nagle;
pub mod reassembly;
pub mod rtt;
