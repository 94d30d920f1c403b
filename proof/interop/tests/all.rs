//! The tests that mostly wait for a far end, each file a part: as one program they wait at the same time. Apart are those of
//! unmodified programs and of lanes' CPUs, which keep both busy.

mod accounting;
mod addresses;
mod aside;
mod capture;
mod datagrams;
mod demo;
mod dhcp;
mod dynamic;
mod filter;
mod forwarding;
mod history;
mod interfaces;
mod lab;
mod memif;
mod nat;
mod neighbours;
mod promiscuous;
mod protection;
mod pythons;
mod rings;
mod roaming;
mod route;
mod routing;
mod snooping;
mod socket_filters;
mod translated_pieces;
mod tunnels;
mod tunnels_judged;
mod views;
mod wired_links;
mod wires;
