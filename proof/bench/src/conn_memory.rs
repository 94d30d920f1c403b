//! `conn-memory`: what a million established connections take that say nothing, and what they leave in TIME-WAIT.
//!
//! Two hosts of one lane each in this process, driven by hand in time of their own; both ends of every connection
//! are here, and each end counts as one. Every connection has carried a message in both directions and then been
//! silent for seconds. Counted is what the process has allocated since before the first connection, as it was
//! asked for, without what the program keeps for itself (the handle of an end): the connection's place in the
//! lane's table with room to grow, the index, the timers, and the block of the two rings' heads with the words
//! that lane and program share. The peer is what the kernel's slab caches take for a connection of its own.

use firelane_lane::TableMemory;
use firelane_socket::stream;
use firelane_units::LaneId;

use crate::peer::Result;
use crate::report::{Samples, Table, Verdict};
use crate::two_lanes::{NETSTACK, RINGS, SILENCE, World};
use crate::{alloc, idle};

const CONNECTIONS: usize = 1_000_000;
const TIME_WAIT: usize = 100_000;
const WANTED_BYTES: f64 = 600.0;
const WANTED_TIME_WAIT: f64 = 64.0;

/// Runs the benchmark.
pub(crate) fn run() -> Result<Verdict> {
    let kernel = idle::kernel_bytes()?;
    let socket = idle::allocated_bytes()?;
    let mut world = World::new();
    let (mut clients, mut servers) = (Vec::with_capacity(CONNECTIONS), Vec::with_capacity(CONNECTIONS));
    // The first finds the neighbour, for which no more than a few segments wait.
    world.connect(1, &mut clients, &mut servers)?;
    let (before, resident) = (alloc::live_bytes(), idle::resident_bytes(std::process::id()));
    world.connect(CONNECTIONS - 1, &mut clients, &mut servers)?;
    world.pass(SILENCE);
    let ends = (2 * CONNECTIONS) as f64;
    let allocated = alloc::live_bytes().saturating_sub(before) as f64 / ends;
    let resident = idle::resident_bytes(std::process::id()).saturating_sub(resident) as f64 / ends;
    let tables = [world.client.memory(), world.server.memory()];
    world.end(TIME_WAIT, &mut clients, &mut servers)?;
    let records = world.client.memory().time_wait as f64 / TIME_WAIT as f64;
    drop((clients, servers));

    let table = Table::begin("conn-memory: 1,000,000 idle connections in a process, each end counted");
    let row = |what: &str, value: f64| table.row(what, &[value].into_iter().collect::<Samples>(), "bytes");
    row("an end of an idle connection, allocated", allocated);
    let part = |what: &str, bytes: fn(&TableMemory) -> usize| {
        row(what, tables.iter().map(bytes).sum::<usize>() as f64 / ends);
    };
    part("  its place in the lane's table", |tables| tables.connections);
    part("  its entry in the index", |tables| tables.index);
    part("  its timer", |tables| tables.timers);
    row("  rings' heads and shared words", stream_bytes());
    row("an end, resident", resident);
    row("an end with the crate's socket (of 1,000)", socket);
    row("a record in TIME-WAIT, with its index", records);
    row("an end, kernel's slab (of 400)", kernel);
    table.note("resident: page tables' share, the allocator's own, and what the program keeps (72 bytes)");
    table.at_most("an end of an idle connection", allocated, WANTED_BYTES, "bytes");
    table.at_most("a record in TIME-WAIT", records, WANTED_TIME_WAIT, "bytes");
    Ok(Verdict {
        name: "conn-memory",
        ratio: kernel / allocated,
        firelane: format!("{allocated:.0} bytes an end, {records:.0} in TIME-WAIT"),
        peer: format!("{kernel:.0} bytes an end"),
    })
}

/// What a stream takes beside its halves.
fn stream_bytes() -> f64 {
    let before = alloc::live_bytes();
    let made = stream(RINGS, LaneId(0), NETSTACK);
    let bytes = alloc::live_bytes().saturating_sub(before);
    drop(made);
    bytes as f64
}
