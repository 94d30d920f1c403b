//! The tests of the lane, each file of this folder a part: one program to build and to link in place of as many.

mod admission;
mod arena;
mod bound;
mod changing_limits;
mod counters;
mod datagram_messages;
mod datagrams;
mod filter_laws;
mod filtering;
mod floods;
mod forwarding;
mod fused_limits;
mod fusion;
mod fusion_across;
mod groups;
mod guarantees;
mod hosts;
mod link_flows;
mod local_ports;
mod loop_limits;
mod many;
mod moving_queues;
mod onlookers;
mod polling;
mod shut_out;
mod starving;
mod stations;
mod streams;
mod switching;
mod translating;
mod tunnels;
#[path = "unpredictable/main.rs"]
mod unpredictable;
mod urgency;
mod views;
mod watching;
