//! `netstat -m`: the memory that stands in the place of the original's STREAMS buffers: pools of frames, the storage of
//! rings, tables.

use firelane_api::{MemoryInfo, PoolInfo, RingStorage, TableInfo};

use crate::session::{Failure, Session};

/// `-m`
pub(super) fn show(session: &mut Session<'_>, json: bool) -> Result<(), Failure> {
    let memory = session.api.memory()?;
    if json {
        return session.json("memory", &memory, false);
    }
    let MemoryInfo { pools, rings, tables } = &memory;
    writeln!(session.out, "\nFrames\nLane  Pool      Bytes    Slots     Used     Free   Failures")?;
    writeln!(session.out, "----- ----- --------- -------- -------- -------- ----------")?;
    for PoolInfo { lane, pool, bytes, slots, used, free, failures } in pools {
        writeln!(
            session.out,
            "{lane:<5} {pool:<5} {bytes:>9} {slots:>8} {used:>8} {free:>8} {failures:>10}"
        )?;
    }
    writeln!(session.out, "\nStorage of rings\n    Bytes     Used     Kept   Failures")?;
    writeln!(session.out, "--------- -------- -------- ----------")?;
    for RingStorage { bytes, used, kept, failures } in rings {
        writeln!(session.out, "{bytes:>9} {used:>8} {kept:>8} {failures:>10}")?;
    }
    writeln!(session.out, "\nTables, in bytes\nLane  Connections        Index       Timers    Time-wait")?;
    writeln!(session.out, "----- ----------- ------------ ------------ ------------")?;
    for TableInfo { lane, connections, index, timers, time_wait } in tables {
        writeln!(session.out, "{lane:<5} {connections:>11} {index:>12} {timers:>12} {time_wait:>12}")?;
    }
    writeln!(session.out, "\n{} Kbytes in use", in_use(&memory) / 1024)?;
    Ok(())
}

/// The bytes that frames, rings and tables hold.
fn in_use(memory: &MemoryInfo) -> u64 {
    let frames = memory.pools.iter().map(|it| u64::from(it.bytes) * it.used);
    let rings = memory.rings.iter().map(|it| it.bytes * it.used);
    let tables = memory.tables.iter().map(|it| it.connections + it.index + it.timers + it.time_wait);
    frames.chain(rings).chain(tables).sum()
}
