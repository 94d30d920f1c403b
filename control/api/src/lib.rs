//! The management interface: what can be asked of a Firelane host and what it answers.
//!
//! [`Api`] is the one trait. The daemon implements it over an engine, [`Stub`] over nothing but models, the
//! command's client over a unix socket; commands, tests and the page are written against the trait and
//! cannot tell them apart. The wire form is REST with JSON bodies: [`dispatch()`] turns a request into a call
//! of the trait, so a server is any HTTP library in front of that one function.
//!
//! ```text
//! command -> Api (client) -> HTTP over a unix socket -> dispatch -> Api (daemon) -> plan -> engine
//!                                                                     |
//!                                                    Store: models, active and persistent
//! ```
//!
//! A change is a value, [`Change`], and its effect on the configuration is pure: [`Store::changed`] gives the
//! next pair of models or the reason why not, in the words of Solaris. The daemon plans from the present
//! model to that one, carries the steps out, and keeps the new store. [`Snapshot`] builds every answer
//! from a model and the few [`Facts`] that only a running engine knows.
//!
//! `openapi.json` beside this crate's manifest is the interface as OpenAPI 3.1, compared in a test.
#![forbid(unsafe_code)]

mod absent_props;
mod accounting;
mod addr_props;
mod api;
mod capture;
mod change;
mod counters;
mod dispatch;
mod edit;
mod enabling;
mod error;
mod factory;
mod filter;
mod fpm;
mod handlers;
mod history_handlers;
mod if_props;
mod ip_handlers;
mod iptun;
mod lease;
mod memory;
mod nat;
mod once;
mod openapi;
pub mod paths;
mod permanent;
mod pools;
mod programs;
mod props;
mod protocol_props;
mod received;
mod rule_handlers;
mod sockets;
mod status;
mod store;
mod stub;
mod trace;
mod usage;
mod view;
mod ways;
mod wires;

pub use absent_props::absent_link_prop;
pub use accounting::{
    AccountingChange, AccountingInfo, ChangeAccounting, NetRecord, NetRecords, RECORD_SECONDS,
};
pub use addr_props::AddrProperty;
pub use api::{Api, Which};
pub use capture::{CaptureOf, CaptureRequest};
pub use change::{
    AddFlow, Change, ChangeRequest, CreateAddr, CreateEtherstub, CreateIf, CreateIptun, CreateVnic,
    IptunChange, ModifyIptun, ModifyVnic, PropChange, RenameLink, SetProps, VnicChange,
};
pub use counters::{Counter, GroupInfo, ProtocolCounters};
pub use dispatch::{Method, Request, Response, dispatch, dispatch_while};
pub use edit::device_is_there;
pub use enabling::{EnableIf, ModifyAddr};
pub use error::ApiError;
pub use factory::{FactorySlotInfo, slot_of};
pub use filter::{ChangeFilter, FilterChange, FilterInfo, Judged, RuleDirection, RuleInfo, StateInfo};
pub use fpm::{FpmInfo, RefusedInfo};
pub use lease::{
    Informed, LeaseAction, LeaseInfo, Leased, ResolverInfo, TellClient, informed_object, leased_object,
};
pub use memory::{MemoryInfo, PoolInfo, RingStorage, TableInfo};
pub use nat::{ChangeNat, Flushed, NatChange, NatInfo, NatLimitInfo, NatRuleInfo, NatSession, NatTotals};
pub use openapi::openapi_text;
pub use permanent::made_permanent;
pub use pools::{ChangePools, PoolChange, PoolsInfo, forget_ended};
pub use programs::{ProgramReport, SocketFilterInfo, SocketReport};
pub use props::{set_flow_prop, set_vnic_prop};
pub use received::{LaneReceived, RingStats};
pub use sockets::{ConnectionInfo, ProgramInfo, SocketInfo, SocketPage};
pub use status::Status;
pub use store::{EMPTY_FIELD, Mark, Replacing, Store};
pub use stub::{Planner, Stub};
pub use trace::{
    InventedFrame, SeenInfo, StepInfo, TRACED_FRAMES_MAX, TraceReport, TraceRequest, WATCH_SECONDS_MAX,
};
pub use usage::{Usage, UsageOf, UsageRequest, UsageSample};
pub use view::{
    AddrInfo, AddressState, ConfiguredAddress, DeviceInfo, DeviceModes, DeviceRings, DropInfo, EtherstubInfo,
    Facts, Finding, FindingState, FlowInfo, FlowStats, IfInfo, IptunInfo, LinkInfo, LinkState, LinkStats,
    NetstackInfo, ObjectProps, PlanReply, PlanStep, Property, ProtocolProperty, Snapshot, StatusInfo,
    Stopped, Traffic, VnicInfo, device_speed,
};
pub use ways::{ChangeRoutes, DestinationInfo, NeighbourInfo, RouteInfo, RouteOrigin, RoutesChange};
pub use wires::{CreateWire, ModifyWire, WireCounts, WireInfo, WireStats, set_wire_prop};
