//! The vertical perimeter that walks the whole path.
//!
//! A lane is everything that one CPU needs to take frames from drivers to sockets and back: queues, timers,
//! its shard of every netstack. At most one thread is inside it at a time, so nothing inside takes a lock.
//! The squeue is the door; the rest of the crate is what stands behind it. Threads, clock and waiting
//! belong to the engine, which calls in.
#![deny(unsafe_code)] // allowed in `perimeter`, the leaf
#![allow(dead_code)]

mod backlog;
mod common;
mod config;
mod control;
mod counters;
mod drive;
mod host;
mod lane;
mod links;
mod message;
mod outbox;
#[allow(unsafe_code)]
mod perimeter;
mod poll;
mod ports;
mod slab;
mod squeue;
mod stacks;
mod steer;
mod steps;
mod sync;
mod turn;
mod wheel;

pub use backlog::Backlogs;
pub use config::{LaneConfig, Secrets};
pub use counters::{LaneCounters, PortCounters, PortTraffic, Snapshot};
pub use host::Host;
pub use lane::Lane;
pub use message::{
    Bind, Connect, Control, FlowSetup, Frames, LaneMessage, Learned, LinkConfig, Listen, NetstackConfig,
    PortConfig, PortKind, PortUser, RouteConfig, SocketCommand, Stage, StreamOption, StreamOptions,
};
pub use outbox::{Notice, Outlet};
pub use perimeter::Poisoned;
pub use poll::{PollPolicy, RESUME_AT, Rest, STOP_ABOVE};
pub use squeue::{DRAIN_LIMIT, Entered, Inside, Mode, Refused, Sleep, Squeue, SqueueStats, Wake};
pub use steer::{connection_lane, datagram_lane};
pub use steps::{Onward, STEPS_MAX, Step, StepList, StepLists, walk};
pub use wheel::Wheel;
