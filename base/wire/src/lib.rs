//! Checked views and plain representations of headers.
//!
//! One file per header. Each has an `XxxView`, borrowed and checked once by `parse`, whose accessors
//! cannot fail and cost one load, and a plain `XxxRepr` that says the same as values and is written with
//! `emit`. Parse errors name the field and the [`DropReason`](firelane_units::DropReason) under which the
//! frame is counted. Nothing here keeps state, allocates, reads a clock, or panics on bytes from a wire;
//! `emit` panics only if its caller did not reserve `emitted_len()` bytes.
//!
//! A length is believed once: every view hands out a payload that is cut to its own header's length field
//! and lies inside the bytes that are there, and the next layer sees only that (RFC 1122 §1.2.2; the
//! inconsistent lengths of Ripple20 cannot be expressed).
#![forbid(unsafe_code)]

#[macro_use]
mod error;
mod bytes;

pub mod arp;
pub mod checksum;
pub mod ethernet;
pub mod ext;
pub mod fragment;
pub mod group;
mod group_report;
pub mod icmp;
pub mod icmpv4;
pub mod icmpv6;
pub mod ip;
pub mod ipv4;
pub mod ipv6;
pub mod ndp;
pub mod ndp_options;
pub mod tcp;
pub mod tcp_options;
pub mod udp;
pub mod vlan;

pub use arp::{ArpError, ArpOperation, ArpRepr, ArpView};
pub use checksum::{Sum, copy_and_sum, sum, update16, update32};
pub use ethernet::{EtherType, EthernetError, EthernetRepr, EthernetView};
pub use ext::{ExtChain, ExtError, ExtFault, Fragment, HeaderProblem};
pub use fragment::{FragmentError, FragmentRepr, FragmentView};
pub use group::{
    GroupError, GroupMessage, GroupProtocol, GroupQuery, GroupRecord, GroupVersion, OldKind, RecordKind,
};
pub use group_report::GroupSaying;
pub use icmp::{QuoteError, Quoted, TimeExceeded};
pub use icmpv4::{Icmpv4Error, Icmpv4Repr, Icmpv4Unreachable, Icmpv4View};
pub use icmpv6::{Icmpv6Error, Icmpv6Repr, Icmpv6Unreachable, Icmpv6View};
pub use ip::{Ecn, IpProtocol};
pub use ipv4::{Ipv4Error, Ipv4Option, Ipv4OptionFault, Ipv4Options, Ipv4Repr, Ipv4View};
pub use ipv6::{Ipv6Error, Ipv6Repr, Ipv6View};
pub use ndp::{NdpEnvelope, NdpError, NdpMessage, NdpRepr, NdpView, RouterPreference};
pub use ndp_options::{NdpOption, NdpOptions, PrefixInformation, RouteInformation};
pub use tcp::{TcpError, TcpFlags, TcpRepr, TcpView};
pub use tcp_options::{FastOpen, OptionLayout, SackBlocks, TcpOptions};
pub use udp::{UdpError, UdpRepr, UdpView};
pub use vlan::{VlanError, VlanRepr, VlanView};
