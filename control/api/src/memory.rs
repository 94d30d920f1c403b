//! The memory of lanes: pools of frames, the storage of rings, tables.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The memory that frames and connections are in.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct MemoryInfo {
    /// The pools of frames, lane by lane.
    pub pools: Vec<PoolInfo>,
    /// The storage of rings from 32 KiB on, by size.
    pub rings: Vec<RingStorage>,
    /// What each lane's tables take.
    pub tables: Vec<TableInfo>,
}

/// A lane's pool of frames of one size.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct PoolInfo {
    /// Whose.
    pub lane: u16,
    /// `small` for an Ethernet frame each, `large` for one that stands for many segments.
    pub pool: String,
    /// Bytes of a frame's slot.
    pub bytes: u32,
    /// Slots.
    pub slots: u64,
    /// Slots that hold a frame.
    pub used: u64,
    /// Slots that hold none.
    pub free: u64,
    /// How often a frame was asked for and there was no free slot.
    pub failures: u64,
}

/// The storage of rings of one size.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct RingStorage {
    /// Bytes of each piece.
    pub bytes: u64,
    /// Pieces in which a ring's bytes are.
    pub used: u64,
    /// Pieces that no ring has, and whose memory is kept for the next one.
    pub kept: u64,
    /// How often one was asked for and there was no memory.
    pub failures: u64,
}

/// Bytes that a lane's tables take.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct TableInfo {
    /// Whose.
    pub lane: u16,
    /// The connections' places.
    pub connections: u64,
    /// The index of tuples.
    pub index: u64,
    /// The timers.
    pub timers: u64,
    /// Records in TIME-WAIT.
    pub time_wait: u64,
}
