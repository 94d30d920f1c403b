//! Is it for us, or onward: one netstack's IP side in one lane.
//!
//! [`Ip`] owns what a lane needs to know of a netstack's addresses, routes and neighbours. It takes frames
//! that are for the netstack ([`Ip::input`]) and says what to do with them; it takes payloads of transports
//! ([`Ip::send`]) and makes frames of them. It answers ARP, neighbour discovery and ICMP itself.
//!
//! Every lane of a netstack has a replica, told of every change by message. One, the home lane, gets what
//! has no ports (ARP, ICMP, fragments), answers for the interfaces and tests their addresses; what it learns
//! about neighbours leaves as an [`IpEvent`] for the others. A lane that lacks a neighbour asks by itself.
//!
//! ```text
//! input.rs ── arp.rs, ndp.rs ── neighbour.rs ──┐
//!    │   └── icmpv4.rs, icmpv6.rs              ├── output.rs ── poll_output
//!    ├── reassembly.rs                         │      └── fragment.rs
//!    └── Delivered ── (udp, tcp) ── egress.rs ─┘
//! ```
//!
//! Nothing here reads a clock, locks, or allocates per packet of a transport.
#![forbid(unsafe_code)]

mod address;
mod adjacency;
mod arp;
mod autoconf;
mod config;
mod counts;
mod egress;
mod event;
mod flow_label;
mod foresight;
mod forward;
mod fragment;
mod gateways;
mod group_io;
mod group_reports;
mod groups;
mod icmp_error;
mod icmp_limit;
mod icmpv4;
mod icmpv6;
mod ident;
mod iid;
mod input;
mod input_fragment;
mod input_v4;
mod input_v6;
mod interface;
mod lifetime;
mod ndp;
mod neighbour;
mod news_limit;
mod output;
mod own_address;
mod pmtu;
mod policy;
mod prefixes;
mod ra;
mod random;
mod reassembly;
mod recent_ways;
mod redirect;
mod refused;
mod resolve;
mod resolvers;
mod reverse_path;
mod route;
mod router_solicit;
mod routers;
mod select;
mod slaac;
mod sourced;
mod stack;
mod temporary;
mod trie;
mod tunnel;
mod way_back;

pub use address::{Address, AddressError, AddressOrigin, AddressState, broadcast_of};
pub use adjacency::{Adjacency, Usual};
pub use autoconf::AutoconfConfig;
pub use config::{
    DadConfig, Forwarding, HopLimits, IfConfig, IfRouting, IpConfig, LOOPBACK, LOOPBACK_MAC, ReversePath,
};
pub use counts::{FamilyCounts, IcmpCounts, IpCounts};
pub use egress::{Egress, RouteError};
pub use event::{
    Configured, ErrorKind, Hearsay, IpEvent, LinkParameters, QuotedText, RouterFlags, Said, TransportError,
};
pub use foresight::{FORESEEN_MAX, GoingOnward, NewFlow};
pub use group_io::is_everybodys;
pub use groups::{FilterMode, GROUPS_MAX, JoinError, MEMBERS_MAX, Member, Membership, SourceFilter};
pub use iid::IidKind;
pub use input::{Delivered, Input};
pub use neighbour::{Neighbour, NeighbourState, NextHop};
pub use output::{Sent, Upper};
pub use pmtu::NarrowPath;
pub use refused::Refused;
pub use resolvers::Resolvers;
pub use route::{Origin, Primacy, Route, RouteKind, RouteTableError};
pub use stack::{Ip, Made};
pub use tunnel::TunnelError;
pub use way_back::Front;
