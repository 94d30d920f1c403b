//! The engine's memory in the words of the interface.
//!
//! Called by `host.rs` without its lock, because lanes have to be waited for.

use firelane::EngineMemory;
use firelane_api::{MemoryInfo, PoolInfo, RingStorage, TableInfo};

/// Everything, lane by lane.
pub(crate) fn info(memory: &EngineMemory) -> MemoryInfo {
    let mut info = MemoryInfo::default();
    for lane in &memory.lanes {
        for (pool, it) in ["small", "large"].into_iter().zip(lane.pools) {
            info.pools.push(PoolInfo {
                lane: lane.lane.0,
                pool: pool.to_owned(),
                bytes: it.slot_bytes,
                slots: it.slots as u64,
                used: it.slots.saturating_sub(it.free) as u64,
                free: it.free as u64,
                failures: it.failures,
            });
        }
        let tables = &lane.tables;
        info.tables.push(TableInfo {
            lane: lane.lane.0,
            connections: tables.connections as u64,
            index: tables.index as u64,
            timers: tables.timers as u64,
            time_wait: tables.time_wait as u64,
        });
    }
    let storage = memory.rings.iter().map(|it| RingStorage {
        bytes: it.bytes as u64,
        used: it.taken as u64,
        kept: it.kept as u64,
        failures: it.failures,
    });
    info.rings = storage.collect();
    info
}
