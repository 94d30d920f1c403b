//! The tests of the engine, each file of this folder a part: one program to build and to link in place of as many. Apart are
//! `returning_lanes.rs`, which knows this process' lanes by the names of their threads, `remains.rs`, which looks at its address space, and
//! `few_descriptors.rs`, which changes how many descriptors it may have.

mod accept_queue;
mod addresses;
mod autoconf;
mod capture;
mod datagrams;
mod echoed;
mod ending;
mod failed_lanes;
mod flow_lanes;
mod fusion;
mod groups;
mod in_wakers;
mod kept_sockets;
mod last_handle;
mod like_std;
mod local_ports;
mod moving_lanes;
mod names;
mod nat;
mod netstack_lanes;
mod numbers;
mod offers;
mod own_lanes;
mod poller;
mod priorities;
mod privileged_ports;
mod probes;
mod programs;
mod seed;
mod shares;
mod shown_handles;
mod socket_filters;
mod sockets;
mod support;
mod tokio;
mod usual_calls;
mod watch;
mod wired;
mod wires;
