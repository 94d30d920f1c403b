//! The targets, one file per part of the house.
//!
//! Each function takes any bytes and panics if a law is broken; `lib.rs` lists them.

pub mod api;
pub mod classify;
pub mod cli;
pub mod dhcp;
pub mod dhcp6;
mod frames;
pub mod ip;
pub mod ipf_conf;
pub mod lane;
mod lane_world;
pub mod model;
pub mod netstack;
pub mod offload;
mod tcp_host;
pub mod tcp_hostile;
pub mod tcp_pair;
pub mod tcp_tables;
pub mod wire;
