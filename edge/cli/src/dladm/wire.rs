//! `dladm` verbs for wires: what they are like, and what became of their frames.
//!
//! The original joins two simulated links with `modify-simnet -p`; a wire here is an object of its own, because it has
//! properties of its own, in each direction others.

use firelane_api::{Change, ChangeRequest, PropChange, Status, Which, WireInfo, WireStats, set_wire_prop};
use firelane_model::{LinkName, Wire, WireSide};

use super::{PROGRAM, temporary};
use crate::common::{Call, prop_failure, said_props};
use crate::ofmt::{Column, Style, Table, col};
use crate::session::{Failure, Session, die, die_status};

const WIRE: &[Column] = &[
    col("WIRE", 9),
    col("FROM", 11),
    col("TO", 11),
    col("RATE", 7),
    col("QUEUE", 8),
    col("DELAY", 7),
    col("JITTER", 7),
    col("LOSS", 7),
    col("REORDER", 8),
    col("DUPLICATE", 10),
    col("CORRUPT", 8),
    col("SEED", 10),
];
/// What stands in the columns behind the ends.
const CONDITIONS: [&str; 8] = ["rate", "queue", "delay", "jitter", "loss", "reorder", "duplicate", "corrupt"];
const STATS: &[Column] = &[
    col("WIRE", 9),
    col("FROM", 11),
    col("TO", 11),
    col("SENT", 9),
    col("BYTES", 12),
    col("DELIVERED", 10),
    col("LOST", 7),
    col("FULL", 7),
    col("LONG", 6),
    col("UNBUFFERED", 11),
    col("DOUBLED", 8),
    col("OVERTAKEN", 10),
    col("CORRUPTED", 10),
    col("QUEUED", 7),
];

fn wire_name(call: &Call<'_>) -> Result<LinkName, Failure> {
    let text = call.operand()?;
    text.parse().map_err(|error| die(format!("invalid wire name '{text}' ({error})")))
}

fn changes(call: &Call<'_>) -> Result<Vec<PropChange>, Failure> {
    said_props(call, "wire property specified")
}

/// create-wire
pub(super) fn create(session: &mut Session<'_>, call: &Call<'_>) -> Result<(), Failure> {
    call.no_root()?;
    let name = wire_name(call)?;
    let end = |text: &str| text.parse().map_err(|error| die(format!("invalid link name '{text}' ({error})")));
    let ends: Vec<LinkName> = call.args.values('l').map(end).collect::<Result<_, _>>()?;
    let ends: [LinkName; 2] = ends.try_into().map_err(|_| call.misused())?;
    let seed = |text: &str| {
        text.parse().map_err(|_| die(format!("invalid seed '{text}' (a number from 0 to {})", u32::MAX)))
    };
    let mut wire = Wire { seed: call.args.value('s').map(seed).transpose()?, ..Wire::new(ends) };
    for change in changes(call)? {
        set_wire_prop(&mut wire, None, &change)
            .map_err(|error| prop_failure(session, PROGRAM, "wire", name.as_str(), false, &error))?;
    }
    let request = ChangeRequest { temporary: temporary(call), change: Change::CreateWire(name, wire) };
    session.api.change(&request).map_err(|error| die_status("wire creation failed", &error))
}

/// modify-wire
pub(super) fn modify(session: &mut Session<'_>, call: &Call<'_>) -> Result<(), Failure> {
    call.no_root()?;
    let name = wire_name(call)?;
    let side = call.args.value('d').map(|word| {
        let side = WireSide::ALL.into_iter().find(|side| side.word() == word);
        side.ok_or_else(|| die(format!("invalid direction '{word}' (forth or back)")))
    });
    let (side, changes) = (side.transpose()?, changes(call)?);
    if changes.is_empty() {
        return Err(die("wire property must be specified"));
    }
    let change = Change::ModifyWire(name.clone(), side, changes);
    let result = session.api.change(&ChangeRequest { temporary: temporary(call), change });
    result.map_err(|error| match error.status {
        Status::NotFound => die_status("modify operation failed", &error),
        _ => prop_failure(session, PROGRAM, "wire", name.as_str(), false, &error),
    })
}

/// delete-wire
pub(super) fn delete(session: &mut Session<'_>, call: &Call<'_>) -> Result<(), Failure> {
    call.no_root()?;
    let change = Change::DeleteWire(wire_name(call)?);
    let result = session.api.change(&ChangeRequest { temporary: temporary(call), change });
    result.map_err(|error| die_status("wire deletion failed", &error))
}

/// show-wire
pub(super) fn show(session: &mut Session<'_>, call: &Call<'_>) -> Result<(), Failure> {
    super::show::check(call)?;
    let mut wires = session.api.wires(super::show::which(call))?;
    super::show::only(
        &mut wires,
        call.optional_operand()?,
        |wire| wire.name.as_str(),
        "invalid wire name '{}'",
    )?;
    if call.args.has('s') {
        return statistics(session, call);
    }
    if call.args.has('j') {
        return session.json("wires", &wires, false);
    }
    let fields = "wire,from,to,rate,delay,jitter,loss,reorder,duplicate";
    let mut table = Table::open(session, PROGRAM, WIRE, fields, super::show::style(call))?;
    for wire in &wires {
        for side in WireSide::ALL {
            let said = wire.side(side);
            let conditions = CONDITIONS.map(|name| said.get(name).cloned().unwrap_or_default());
            let seed = wire.seed.map(|it| it.to_string()).unwrap_or_default();
            let row: Vec<_> = named(wire, side).into_iter().chain(conditions).chain([seed]).collect();
            table.row(session, &row)?;
        }
    }
    Ok(())
}

/// A wire's name, and its ends as one direction goes.
fn named(wire: &WireInfo, side: WireSide) -> [String; 3] {
    let (from, to) = match side {
        WireSide::Forth => (&wire.from, &wire.to),
        WireSide::Back => (&wire.to, &wire.from),
    };
    [wire.name.to_string(), from.to_string(), to.to_string()]
}

/// Counters of the wire of the operand, or else of all, once or at each interval, with those that were made since.
fn statistics(session: &mut Session<'_>, call: &Call<'_>) -> Result<(), Failure> {
    let (interval, only) = (call.interval()?, call.optional_operand()?);
    let mut before: Vec<WireStats> = Vec::new();
    let fields = "wire,from,to,sent,delivered,lost,full,doubled,overtaken";
    let style = Style { ..super::show::style(call) };
    let mut table = Table::open(session, PROGRAM, STATS, fields, style)?;
    loop {
        let mut wires = session.api.wires(Which::Active)?;
        wires.retain(|wire| only.is_none_or(|name| name == wire.name.as_str()));
        let now = session.api.wire_stats()?;
        let mut shown: Vec<_> = now.clone();
        shown.retain(|it| wires.iter().any(|wire| wire.name == it.name));
        for it in &mut shown {
            if let Some(was) = before.iter().find(|was| was.name == it.name) {
                (it.forth, it.back) = (it.forth.since(was.forth), it.back.since(was.back));
            }
        }
        before = now;
        if call.args.has('j') {
            session.json("wires", &shown, interval.is_some())?;
        } else {
            for it in &shown {
                for wire in wires.iter().filter(|wire| wire.name == it.name) {
                    for side in WireSide::ALL {
                        let c = it.side(side);
                        let counts = [
                            c.sent,
                            c.bytes,
                            c.delivered,
                            c.lost,
                            c.full,
                            c.long,
                            c.unbuffered,
                            c.doubled,
                            c.overtaken,
                            c.corrupted,
                            c.queued,
                        ];
                        let counts = counts.map(|n| n.to_string());
                        let row: Vec<_> = named(wire, side).into_iter().chain(counts).collect();
                        table.row(session, &row)?;
                    }
                }
            }
            session.out.flush()?;
        }
        match interval {
            Some(interval) if (session.sleep)(interval) => {}
            _ => return Ok(()),
        }
    }
}
