//! The nouns of the configuration: what a Firelane host has, as one declarative [`Model`].
//!
//! A model is a value. It says which links, etherstubs, VNICs, netstacks, flows and services there shall be,
//! and nothing about how they come to be: `control/plan` compares two models, `control/daemon` carries the
//! difference out. The file that an administrator writes is a model in TOML ([`Model::from_toml`]); the
//! API carries the same value as JSON.
//!
//! Each noun has a file of its own. A name or quantity that exists is valid, because its constructor
//! checked it. What no single noun can know (does the link exist, is the address taken) is
//! [`Model::validate`]'s, which names every fault by the field's path in the file, `vnic.web0.over`.
//!
//! The crate does no I/O and knows nothing about lanes, frames or sockets.
#![forbid(unsafe_code)]

mod accounting;
mod address;
mod cpus;
mod daemon;
mod dhcp;
mod error;
mod etherstub;
mod factory;
mod filter;
mod flow;
mod fpm;
mod fusing;
mod guard;
mod instance;
mod interface;
mod iptun;
mod limits;
mod link;
mod mac;
mod memif;
mod model;
mod name;
mod nat_limits;
mod netstack;
mod nic;
mod polling;
mod port_set;
mod programs;
mod promise;
mod property;
mod rings;
mod route;
mod service;
mod text;
mod tunables;
mod validate;
mod value;
mod vnic;
mod wire;
mod wiring;

pub use accounting::{Accounting, Tracked};
pub use address::{Addrconf, Address, StaticAddress};
pub use cpus::Cpus;
pub use daemon::{Daemon, Lanes, Slice};
pub use dhcp::{Dhcp, HostName};
pub use error::{FieldError, FileError};
pub use etherstub::Etherstub;
pub use factory::{FactoryError, FactoryMac, FactorySlot, choose_slot};
pub use filter::{
    Filter, IpfFile, IpfRule, IpnatFile, IpnatRule, MapGroup, PlacedRule, Pool, PoolEntry, PoolFile,
    PoolMember, PoolNumber, RuleError, RuleFile, RuleLine, SocketFilter, read_pools,
};
pub use flow::{FLOW_KINDS, FLOW_RANGE_PAIRS, Flow, FlowMatch, NO_WIRE, Transport};
pub use fpm::Fpm;
pub use fusing::Fusing;
pub use guard::{ClientId, Guard};
pub use instance::Instance;
pub use interface::{FixedProp, IfProp, IfProps, Interface, ReversePath, Switch, mtu_least};
pub use iptun::{Iptun, IptunType, Over};
pub use limits::{
    ADDRESSES_MAX, FILTER_RULES_MAX, LANES_AUTO_MAX, LANES_MAX, LINKS_MAX, MODEL_TEXT_MAX, NAT_RULES_MAX,
    NETSTACKS_MAX, OBJECTS_MAX, POOLED_MAX, ROUTE_SOURCES_MAX, SOCKET_FILTER_TEXT_MAX,
};
pub use link::{Link, LinkKind};
pub use mac::{AUTOMATIC_MAC_PREFIX, Mac, automatic_mac, prefixed_mac};
pub use memif::{Memif, MemifRole};
pub use model::{LinkClass, Model};
pub use name::{
    AccountName, AddrObjName, FlowName, IfName, LinkName, NameError, NamespaceName, NetstackName, ServiceName,
};
pub use nat_limits::{NatAnswers, NatLimits};
pub use netstack::Netstack;
pub use nic::{Nic, NicDriver, Sharing};
pub use polling::Polling;
pub use port_set::PortSet;
pub use programs::Programs;
pub use property::{Allowed, Line as PropLine, Prop, PropertyError, Protocol, Setting};
pub use rings::{LinkRings, Rings};
pub use route::{CongestionControl, Route, RouteEnd, Way};
pub use service::{Service, ServiceKind};
pub use tunables::Tunables;
pub use value::spell_rate;
pub use vnic::{Tap, Vnic, VnicUser};
pub use wire::{Conditions, Delay, QueueBytes, Share, Wire, WireSide};
pub use wiring::WiringFault;
