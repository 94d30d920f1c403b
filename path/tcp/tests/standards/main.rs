//! The clauses of the RFCs, one behaviour per test: the test plays the peer and the clock.

#[path = "../common/mod.rs"]
mod common;

mod closing;
mod handshake;
mod info;
mod keepalive;
mod path;
mod receiving;
mod sending;
mod window;
