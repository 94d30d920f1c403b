//! The vertical perimeter that walks the whole path.
//!
//! # What a lane is
//!
//! A lane is everything that one CPU needs to take frames from drivers to sockets and back: queues of drivers, a
//! replica of every switch and flow table, timers, buffers, and a shard of every netstack. At most one thread is
//! inside it at a time, normally its own worker, bound to the CPU. So nothing inside is shared, nothing inside takes
//! a lock, and nothing inside waits: what cannot go on now is held with a deadline, or left where it came from.
//!
//! ```text
//!   application threads        other lanes           the lane's worker
//!   (process, no drain)          (fill)             (work: drain, turn)
//!            \                     |                      /
//!             v                    v                     v
//!          +------------------- Squeue ---------------------+   squeue.rs   FIFO, one owner, three ways in
//!          |  perimeter.rs: the one word that says who      |
//!          |  +------------------- Host ------------------+ |   host.rs     empties the outbox on leaving
//!          |  |  +---------------- Lane ----------------+ | |   lane.rs, turn.rs
//!          |  |  | Links: drivers, ports, switches, flows| | |   links.rs, drive.rs, ports.rs, control.rs
//!          |  |  | Stacks: shards, connections, sockets  | | |   stacks/
//!          |  |  | Common: clock, pools, counters, outbox| | |   common.rs, outbox.rs, counters.rs
//!          |  |  +--------------------------------------+ | |
//!          |  +-------------------------------------------+ |
//!          +------------------------------------------------+
//! ```
//!
//! # Who may enter, and what they do there
//!
//! Anybody may enter who finds nobody inside; who finds somebody leaves an item ([`LaneMessage`]) in the FIFO. An
//! application that writes to a socket of an idle lane therefore runs TCP, IP, switch and driver on its own thread,
//! without a hand-off: that is what makes a squeue cheaper than a lock and a thread. Whoever leaves settles first:
//! what its items made ready to send is sent, and what the lane has for others (the [`Outlet`]: items for other
//! lanes, sockets that became ready) is passed on. Only the worker fetches from drivers and lets time work.
//!
//! # Where things live
//!
//! Many lanes serve one netstack. A connection belongs to one lane for its life: a symmetric hash of its addresses
//! and ports chooses an entry of the netstack's steering table ([`connection_lane`]), so both directions meet there,
//! and an active opener picks its local port to suit. What has no ports (ARP, ICMP, fragments) belongs to the
//! netstack's home lane, which tells the others what it learned. A flow with a limit has a home, too: its limiter
//! exists once, so it is exact. A frame that arrives elsewhere is handed over with *fill* at the [`Stage`] at which
//! it goes on. Changes of configuration ([`Control`]) are messages to every lane; none of them stops.
//!
//! # When it polls and when it sleeps
//!
//! `poll.rs` decides by backlog alone: frames that were fetched and that nobody has consumed. In one lane everything
//! runs to completion, so backlog is what waits in other lanes' FIFOs. The worker fetches while it finds something,
//! leaves frames in the ring above 256 of backlog until it is down to 16, and asks for notifications only after an
//! empty fetch with nothing queued. Then it sleeps to the next deadline, and an idle lane uses no CPU.
//!
//! Threads, CPU binding, clock and waiting are the engine's. `path/README.md` follows a frame with function names.
#![deny(unsafe_code)] // allowed in the leaves `perimeter` and `probes`

mod arrivals;
mod backlog;
mod capture;
mod common;
mod config;
mod control;
mod copies;
mod counters;
mod datagram_info;
mod drive;
mod far;
mod fusion;
mod guards;
mod host;
mod lane;
mod lending;
mod likeness;
mod links;
mod look;
mod loops;
mod marked;
mod message;
mod moving;
mod netstack_counters;
mod onlookers;
mod open_sum;
mod outbox;
mod pauses;
#[allow(unsafe_code)]
mod perimeter;
mod poll;
mod ports;
#[allow(unsafe_code)]
mod probes;
mod queues;
mod sent;
mod shut;
mod slab;
mod snoop;
mod squeue;
mod stacks;
mod steer;
mod steps;
mod stream_info;
mod sync;
mod turn;
mod view;
mod watch;
mod ways;
mod wheel;

pub use backlog::Backlogs;
pub use capture::{CaptureTap, Captured};
pub use config::{LaneConfig, Secrets};
pub use counters::{
    Arrivals, LaneCounters, PortCounters, PortTraffic, RingCounters, RingTraffic, Snapshot, TableMemory,
};
pub use datagram_info::{DatagramInfo, WaitsFor};
pub use firelane_udp::Sharing;
pub use host::Host;
pub use lane::Lane;
pub use look::Look;
pub use message::{
    Bind, Connect, ConnectDatagrams, Control, DatagramKind, DatagramOption, Fault, FilteredPacket, FlowSetup,
    Frames, FuseWith, FusionTuning, Join, LaneMessage, Learned, LinkConfig, Listen, NetstackConfig,
    PacketOption, PortConfig, PortKind, PortUser, Relisten, RouteChange, RouteConfig, SocketCommand, Stage,
    StreamOption, StreamOptions, TunnelSetup,
};
pub use moving::{Fence, MovingQueue};
pub use netstack_counters::{NetstackCounters, TcpCounters, UdpCounters};
pub use outbox::{Notice, Outlet};
pub use pauses::{PAUSE, PAUSE_ALONE, PAUSE_MAX};
pub use perimeter::Poisoned;
pub use poll::{
    Calls, GRACE, LOADED_AT, Load, Looked, PollPolicy, Polling, RESUME_AT, Rest, STAYS_LOADED_AT, STOP_ABOVE,
};
pub use squeue::{DRAIN_LIMIT, Entered, Idle, Inside, Mode, Refused, Sleep, Squeue, SqueueStats, Wake};
pub use stacks::{Band, Heard, Strangers, SynText, Unsaid};
pub use steer::{connection_lane, datagram_lane};
pub use steps::{Onward, STEPS_MAX, Step, StepList, StepLists, walk};
pub use stream_info::{LimitedBy, StreamInfo, Unfused};
pub use view::{ConnectionRow, Cursor, PLACES_PER_ANSWER, Question, SocketKind, SocketRow, Table};
pub use watch::{Cycles, Followed, Numbers, Owner, Seen, Sight, StepCount, StepCounts, Tracing};
pub use wheel::Wheel;
