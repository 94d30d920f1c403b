//! Units and names that cannot be mixed up.
//!
//! Every quantity that crosses a crate boundary has a type here: instants, rates, sizes, addresses and
//! the indices of lanes, links, flows and sockets. A value that exists is valid: constructors check, and
//! nothing later has to. The crate reads no clock and knows nothing about Firelane's stations except the
//! words in which they give up a frame ([`DropReason`]).
#![forbid(unsafe_code)]

mod direction;
mod drop_reason;
mod ds_field;
mod family;
mod filter_rule;
mod ids;
mod mac;
mod nat_rule;
mod port_range;
mod prefix;
mod protection;
mod rate;
mod seq;
mod size;
mod time;
mod vlan;

pub use direction::Direction;
pub use drop_reason::{DropCounters, DropReason, Station};
pub use ds_field::DsField;
pub use family::Family;
pub use filter_rule::{
    BlockAnswer, FilterAction, FilterAddresses, FilterEnd, FilterLog, FilterMatch, FilterPorts,
    FilterProtocol, FilterRule, GroupCall, KeepState, MapKey, PacketTrait, TcpFlagsMatch,
};
pub use ids::{
    ConnId, FlowId, LaneId, LinkId, NetstackId, Port, Priority, SocketId, StepListId, SwitchPortId,
};
pub use mac::{MacAddr, ParseMacError};
pub use nat_rule::{
    NAT_BLOCKS_FROM, NatAction, NatEnd, NatFiltering, NatLimits, NatPorts, NatRedirect, NatRule, NatTarget,
    nat_block_ports,
};
pub use port_range::{ParsePortRangeError, PortRange};
pub use prefix::{IpPrefix, ParsePrefixError};
pub use protection::{Protection, Protections};
pub use rate::{BitRate, ParseRateError};
pub use seq::SeqNum;
pub use size::{Bytes, Mss, Mtu};
pub use time::Instant;
pub use vlan::VlanId;
