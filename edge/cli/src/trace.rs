//! `firelane trace` and `firelane show steps`: what becomes of a frame, station by station, and what steps cost.
//!
//! Called by `own.rs`; the daemon follows the frames, here it is shown.

use std::net::IpAddr;

use firelane_api::{InventedFrame, SeenInfo, StepInfo, TraceRequest};

use crate::EXIT_USAGE;
use crate::common::number;
use crate::ofmt::{Column, Form, col};
use crate::own::{Refused, table};
use crate::session::{Session, die};

const PROGRAM: &str = "firelane";
/// A command that is ended has no answer to wait for: its connection tells the daemon.
const ALWAYS: fn() -> bool = || true;
const SEEN: &[Column] =
    &[col("FRAME", 6), col("LANE", 5), col("STATION", 10), col("DECISION", 60), col("REASON", 26)];
const STEPS: &[Column] =
    &[col("STEP", 9), col("DIRECTION", 10), col("FRAMES", 12), col("CYCLES", 16), col("PERFRAME", 10)];

/// What is followed, and how it is shown.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct Options {
    /// An address or a flow, whose next frames are followed; with -l a frame to make up: in hexadecimal digits, or
    /// `tcp SRC:PORT DST:PORT [FLAGS]`, `udp SRC:PORT DST:PORT`, `icmp SRC DST`
    #[arg(required = true, value_name = "FLOW|ADDR|FRAME")]
    what: Vec<String>,
    /// The VNIC whose user seems to send the frame, or the link whose device seems to bring it
    #[arg(short, long)]
    link: Option<String>,
    /// The VNIC that it is sent to; the one that has its destination address if not said
    #[arg(short, long, requires = "link")]
    to: Option<String>,
    /// How many frames are followed
    #[arg(short = 'n', long, default_value_t = 1, value_parser = |text: &str| number::<u32>(text, 1..=64), conflicts_with = "link")]
    frames: u32,
    /// For how many seconds, if fewer come
    #[arg(short, long, default_value_t = 5, value_parser = |text: &str| number::<u32>(text, 1..=60))]
    wait: u32,
    #[command(flatten)]
    form: Form,
}

/// What `show steps` is asked.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct StepOptions {
    /// For how many seconds they are counted
    #[arg(short, long, default_value_t = 1, value_parser = |text: &str| number::<u32>(text, 1..=60))]
    interval: u32,
    #[command(flatten)]
    form: Form,
}

/// Follows frames and shows where they went.
pub(crate) fn trace(session: &mut Session<'_>, options: &Options) -> Result<(), Refused> {
    let wanted = request(options)?;
    if options.form.json {
        let report = session.api.trace(&wanted, &ALWAYS)?;
        return Ok(session.json("trace", &report, false)?);
    }
    // A frame is not made up for fields that there are not.
    let mut table = table(session, &options.form, SEEN, "frame,lane,station,decision")?;
    let report = session.api.trace(&wanted, &ALWAYS)?;
    if report.seen.is_empty() {
        return Err(die(format!("no such frame came within {} s", options.wait)).into());
    }
    for SeenInfo { frame, lane, station, decision, reason } in report.seen {
        let reason = reason.unwrap_or_default();
        table.row(session, &[frame.to_string(), lane.to_string(), station, decision, reason])?;
    }
    if report.lost > 0 {
        session.warn(PROGRAM, &format!("{} more decisions found no room", report.lost));
    }
    Ok(())
}

fn request(options: &Options) -> Result<TraceRequest, Refused> {
    let bad = |what: &str, name: &str, error: &dyn std::fmt::Display| {
        Refused(die(format!("{what} {name:?}: {error}")), EXIT_USAGE)
    };
    let text = options.what.join(" ");
    let mut wanted =
        TraceRequest { frames: options.frames, seconds: options.wait, ..TraceRequest::default() };
    if let Some(name) = &options.link {
        let link = name.parse().map_err(|error| bad("link", name, &error))?;
        let to = options.to.as_ref().map(|name| name.parse().map_err(|error| bad("vnic", name, &error)));
        wanted.frame = Some(InventedFrame { link, text, to: to.transpose()? });
    } else if let Ok(address) = text.parse::<IpAddr>() {
        wanted.address = Some(address);
    } else {
        wanted.flow =
            Some(text.parse().map_err(|error| bad("neither an address nor a flow:", &text, &error))?);
    }
    Ok(wanted)
}

/// Shows what steps cost.
pub(crate) fn steps(session: &mut Session<'_>, options: &StepOptions) -> Result<(), Refused> {
    let StepOptions { interval, form } = options;
    if form.json {
        let steps = session.api.steps(*interval, &ALWAYS)?;
        return Ok(session.json("steps", &steps, false)?);
    }
    let mut table = table(session, form, STEPS, "step,direction,frames,cycles,perframe")?;
    let steps = session.api.steps(*interval, &ALWAYS)?;
    for StepInfo { step, direction, frames, cycles } in steps {
        let per_frame = cycles.checked_div(frames).map(|each| each.to_string()).unwrap_or_default();
        table.row(session, &[step, direction, frames.to_string(), cycles.to_string(), per_frame])?;
    }
    Ok(())
}
