//! Names of what lies below, for those who depend on this crate alone: whatever a public signature or field names can be said by
//! `firelane::`. What is used every day stands at the root (`lib.rs`); here is the rest, by subject.
//!
//! `tests/names.rs` says them all, as a program outside of this repository would.

pub use firelane_units as units;

/// Frames, the buffers that they lie in, and what a driver does with them: for programs that hold the end of a wire themselves.
pub mod frame {
    pub use firelane_frame::{
        Arrival, Capabilities, Chain, Checksum, Driver, ExtentUsage, FlowTag, Frame, FrameMeta, Pool,
        PoolConfig, PoolUsage, Pools, PoolsConfig, SegmentKind, Segmentation, Weight,
    };
}

/// What headers say, in rules and in what was seen.
pub mod headers {
    pub use firelane_classify::{Fragment, Rank, SteeringKey, Tuple};
    pub use firelane_filter::Piece;
    pub use firelane_wire::{
        EtherType, FastOpen, OptionLayout, QuoteError, Quoted, RouterPreference, SackBlocks, TcpError,
        TcpFlags, TcpOptions, TcpView,
    };
}

/// What lanes count.
pub mod counters {
    pub use firelane_ip::IpCounts;
    pub use firelane_lane::{Arrivals, LaneCounters, SqueueStats, TableMemory, TcpCounters, UdpCounters};
    pub use firelane_switch::GuardCounters;
    pub use firelane_tcp::{BusyTimes, Counts as ConnectionCounts, SynCounters, Troubles};
}

/// What is known of a connection.
pub mod tcp {
    pub use firelane_tcp::flight::{FlightConfig, Phase};
    pub use firelane_tcp::{Event, Info, State, Surroundings};
}

/// What is known of a netstack's addresses and neighbours.
pub mod ip {
    pub use firelane_ip::{AddressState, LinkParameters, NeighbourState, Refused};
}

/// What a driver's queues are chosen by.
pub mod device {
    pub use firelane_driver_afxdp::{Probe as AfXdpProbe, Spreader as AfXdpSpreader};
    pub use firelane_driver_memif::ConfigError as MemifConfigError;
    pub use firelane_driver_tap::{Selector, Spread, Spreader};
}

/// What a [`crate::Hub`] is asked and answers.
pub mod session {
    pub use firelane_shm::control::{Answer, Place, Request, SocketId};
}
