//! The memory of an engine's lanes: frames, the storage of rings, tables.
//!
//! Read as `snapshot.rs` reads counters: by whoever is let in between two items of a lane.

use firelane_frame::{ExtentUsage, PoolUsage, extent_usage};
use firelane_lane::TableMemory;
use firelane_units::LaneId;

use crate::engine::Engine;

/// What one lane has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LaneMemory {
    /// Which lane.
    pub lane: LaneId,
    /// Its pools of frames: of one Ethernet frame each, and of one large one.
    pub pools: [PoolUsage; 2],
    /// Its tables.
    pub tables: TableMemory,
}

/// What all lanes have.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct EngineMemory {
    /// Each lane's own.
    pub lanes: Vec<LaneMemory>,
    /// The storage of large rings by size; of all engines of the process.
    pub rings: Vec<ExtentUsage>,
}

impl Engine {
    /// What memory the lanes have, and how much of it is in use. A lane that is out of service has none to tell of.
    pub fn memory(&self) -> EngineMemory {
        let fabric = &self.0.fabric;
        let of_lane = |lane| {
            fabric.visit(lane, |_, it| LaneMemory { lane, pools: it.pool_usage(), tables: it.table_memory() })
        };
        EngineMemory { lanes: fabric.lane_ids().filter_map(of_lane).collect(), rings: extent_usage() }
    }
}
