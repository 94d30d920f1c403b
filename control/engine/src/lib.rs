//! Firelane for Rust programs: lanes running on threads, and sockets like those of std and tokio.
//!
//! [`Stack::builder`] makes an engine with one netstack, without a daemon, a NIC or root;
//! [`TcpListener`], [`TcpStream`] and [`UdpSocket`] open on it. [`Engine`] is the whole: links, VNICs, flows,
//! netstacks, all changeable while traffic runs. The daemon is one user of it, any program another.
//!
//! # Wakers
//! Lanes call wakers in their own threads, and so does a thread of the program's whose call does a lane's work. A waker may do whatever
//! waits for nobody: read and write, poll, open and close sockets, change the engine, drop the last handle of it. A call that would
//! sleep there (a blocking read, accept, connect or receive) is refused with [`std::io::ErrorKind::Deadlock`], and [`Poller::wait`] returns
//! at once: whom it waits for may be in need of the very thread. No waker is called while its thread is inside a lane or holds a lock of
//! this crate; what it brings about calls others behind it, not from within it; and one that panics harms nobody else.
//!
//! What lives here is what lanes must not have: threads, CPU binding, the clock and waiting.
//! - `engine.rs`, `registry.rs`, `snapshot.rs`, `memory.rs`: changes, checked and sent to every lane; counters and memory read.
//! - `fabric.rs`, `worker.rs`, `bell.rs`: the lanes' squeues, their threads, how they sleep and are woken.
//! - `unsaid.rs`: what is to be sent before an engine ends. `debug.rs`: what `{:?}` shows of handles.
//! - `sleepers.rs`: who waits for which socket; `calls.rs`: when they are called; `poller.rs`: one who waits for many. `tcp_*.rs`, `udp_socket.rs`:
//!   the sockets.
//! - `programs/`: the sockets of unmodified programs, in memory shared with them.
//! - `exports.rs`: names of what lies below.
//! - `queue.rs`: every kind of driver as one type. `shared_nic.rs`: a NIC that the kernel keeps as well.
#![deny(unsafe_code)] // allowed in the leaf `sys`

mod aside;
mod awaited;
mod bell;
mod calls;
mod capture;
mod chance;
mod clock;
mod configured;
mod counted;
mod cpus;
mod debug;
mod desk;
mod echo_socket;
mod engine;
mod error;
mod exports;
mod fabric;
mod filter;
mod flow_lanes;
mod interfaces;
mod invented;
mod lent;
mod lists;
mod memory;
mod nat;
mod netstack_config;
mod netstacks;
mod news;
mod notices;
mod own_lanes;
mod placing;
mod poller;
mod programs;
mod queue;
mod registry;
mod rings;
mod shared_nic;
mod sleepers;
mod snapshot;
mod socket_filter;
mod stack;
#[allow(unsafe_code)]
mod sys;
mod tcp_listener;
mod tcp_stream;
mod tunnel;
mod udp_groups;
mod udp_messages;
mod udp_options;
mod udp_socket;
mod udp_tasks;
mod unsaid;
mod watch;
mod watched;
mod wires;
mod worker;

pub use capture::{Capture, CaptureOf};
pub use cpus::CpuNews;
pub use desk::{IpTables, KnownPath, SocketCursor, SocketPage};
pub use echo_socket::{Echo, EchoSocket};
pub use engine::{Engine, EngineConfig, VnicConfig, VnicUser};
pub use error::ChangeError;
pub use exports::{counters, device, frame, headers, ip, session, tcp, units};
pub use firelane_lane::{PortCounters, PortTraffic, Snapshot as LaneSnapshot};
pub use invented::{BadPacket, InventedPacket};
pub use memory::{EngineMemory, LaneMemory};
pub use netstack_config::{NetstackConfig, PrivilegedPorts, SocketDefaults};
pub use poller::{Event, Poller, Source};
pub use programs::{
    Closer, ExplainedSocket, Foreign, Hub, Kin, Limits, Owner, ProgramSocket, Reply, send as send_reply,
};
pub use queue::Queue;
pub use rings::{Ring, Rings};
pub use shared_nic::{SharedQueue, open_shared};
pub use snapshot::EngineSnapshot;
pub use stack::{Stack, StackBuilder};
pub use sys::PeerOf;
pub use tcp_listener::{ListenConfig, TcpListener};
pub use tcp_stream::{OwnedReadHalf, OwnedWriteHalf, ReuniteError, TcpStream};
pub use tunnel::TunnelConfig;
pub use udp_messages::{Incoming, Outgoing};
pub use udp_socket::UdpSocket;
pub use watch::{StepMeter, Trace, TraceOf};
pub use wires::Wire;
pub use worker::{Ran, Worker};

pub use firelane_classify::{FlowMatch, Headers, L3, RuleError};
pub use firelane_driver_afxdp::{
    AfXdpConfig, AfXdpError, AfXdpQueue, Attached, CLAIMS_MAX, Claim, Claims, LinkModes, LinkSettings,
    LinkSpeed, Mode as AfXdpMode, PauseFrames, Refused as AfXdpRefused, Wish as AfXdpWish, link_settings,
    open as open_afxdp, probe as probe_afxdp, receive_queues,
};
pub use firelane_driver_memif::{
    Failures as MemifFailures, MemifConfig, MemifQueue, MemifStatus, OpenError as MemifError,
    Role as MemifRole, Secret as MemifSecret, Standing, check_path as check_memif_path, open as open_memif,
};
pub use firelane_driver_memory::{
    Chance, Conditions, Control as WireControl, Corruption, End as WireEnd, EndCounters as WireEndCounters,
    GilbertElliott, Loss, Mark, Reorder, WireConfig, WireCounters, wire,
};
pub use firelane_driver_packet::{PacketSocket, Promiscuity};
pub use firelane_driver_tap::{OpenError, TapConfig, TapHandle, TapQueue, open as open_tap, probe_door};
pub use firelane_filter::{FOREVER, FilterCounts, Packet, PoolChange, RuleCount, StateCounts, Verdict};
pub use firelane_flow::Counters as Traffic;
pub use firelane_frame::{Driver, Envelope};
pub use firelane_ip::{Address, LOOPBACK, Neighbour, Origin, Primacy, Route};
pub use firelane_ip::{
    AddressOrigin, AutoconfConfig, Configured, DadConfig, FamilyCounts, FilterMode, Forwarding, HopLimits,
    IcmpCounts, IfRouting, IidKind, Membership, Resolvers, ReversePath, RouteKind, RouterFlags, SourceFilter,
};
pub use firelane_lane::{
    ConnectionRow, Cursor, DatagramInfo, FilteredPacket, FuseWith, FusionTuning, LimitedBy, NetstackCounters,
    Notice, Owner as PacketOwner, Polling, RingCounters, RingTraffic, RouteChange, RouteConfig, Seen, Sight,
    SocketKind, SocketRow, Step, StepCount, StepCounts, StreamInfo, Table, Unfused, WaitsFor,
};
pub use firelane_nat::{
    NatConfig, NatCounts, NatRow, Phase as NatPhase, RuleCount as NatRuleCount, Tuple as NatTuple,
};
pub use firelane_socket::{Ready, StreamConfig, UrgentMode};
pub use firelane_switch::Rules as ProtectionRules;
pub use firelane_tcp::congestion::Algorithm;
pub use firelane_tcp::rtt::RtoLimits;
pub use firelane_tcp::{
    FastOpenCounters, FastOpenPolicy, Keepalive, MtuProbing, Profile, SynCookies, TcpConfig, Willing,
};
pub use firelane_tunnel::{Gre, Kind as TunnelKind};
pub use firelane_wire::IpProtocol;
