//! The tests of IP, each file of this folder a part: one program to build and to link in place of as many.

mod anything;
mod attack;
mod attacks_arp_nd;
mod attacks_icmp;
mod attacks_ipv4;
mod attacks_ipv6;
mod bound;
mod common;
mod craft;
mod details;
mod discovery;
mod echo;
mod errors;
mod forwarding;
mod fragments;
mod groups;
mod input;
mod link_local;
mod neighbours;
mod own_addresses;
mod rejoined;
mod router_attacks;
mod router_discovery;
mod selection;
mod way_back;
mod ways;
