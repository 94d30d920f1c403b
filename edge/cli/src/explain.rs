//! `firelane explain PID`: a process' sockets, which of them are Firelane's, which are the kernel's, and why.
//!
//! Called by `own.rs`; the daemon looks and knows, here it is shown.

use firelane_api::{ProgramReport, SocketReport};

use crate::common::number;
use crate::ofmt::{Column, Form, col};
use crate::own::{Refused, table};
use crate::session::Session;

const FIELDS: &[Column] = &[
    col("FD", 5),
    col("PATH", 9),
    col("PROTO", 6),
    col("STATE", 12),
    col("LOCAL", 22),
    col("REMOTE", 22),
    col("LANE", 5),
    col("FLOW", 10),
    col("FUSED", 6),
    col("SENT", 12),
    col("RECEIVED", 12),
    col("SEGSIN", 11),
    col("SEGSOUT", 11),
    col("RETRANS", 8),
    col("OPTIONS", 24),
    col("WHY", 40),
];
const DEFAULT_FIELDS: &str = "fd,path,proto,state,local,remote,lane,flow,fused,sent,received";

/// What is shown, and how.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct Options {
    /// The process, by its number
    #[arg(value_parser = |text: &str| number(text, 1..=i32::MAX.cast_unsigned()))]
    pid: u32,
    #[command(flatten)]
    form: Form,
}

/// Shows it.
pub(crate) fn run(session: &mut Session<'_>, options: &Options) -> Result<(), Refused> {
    let report = session.api.program(options.pid)?;
    if options.form.json {
        return Ok(session.json("program", &report, false)?);
    }
    let mut table = table(session, &options.form, FIELDS, DEFAULT_FIELDS)?;
    if !options.form.parsable {
        writeln!(session.out, "{}", headline(&report))?;
    }
    for socket in &report.sockets {
        table.row(session, &row(socket))?;
    }
    if !options.form.parsable && options.form.output.is_none() {
        details(session, &report)?;
    }
    Ok(())
}

fn headline(report: &ProgramReport) -> String {
    let ProgramReport { pid, command, path, why, .. } = report;
    let path = if path == "kernel" { "not accelerated" } else { path };
    format!("{command} ({pid}): {path}: {why}")
}

/// Below the table, what has no width: why, the options, and filters with what each rule has met.
fn details(session: &mut Session<'_>, report: &ProgramReport) -> Result<(), Refused> {
    for it in report.sockets.iter().filter(|it| !it.why.is_empty()) {
        writeln!(session.out, "{}: {}", it.fd, it.why)?;
    }
    for it in report.sockets.iter().filter(|it| !it.options.is_empty()) {
        writeln!(session.out, "{}: options {}", it.fd, it.options.join(" "))?;
    }
    for it in &report.sockets {
        let Some(filter) = &it.filter else { continue };
        writeln!(session.out, "{}: filter: {} passed, {} blocked", it.fd, filter.passed, filter.blocked)?;
        for rule in &filter.rules {
            writeln!(session.out, "{}: filter: {} {}", it.fd, rule.packets, rule.rule)?;
        }
    }
    match report.others {
        0 => {}
        1 => writeln!(session.out, "1 socket of another family is the kernel's")?,
        n => writeln!(session.out, "{n} sockets of other families are the kernel's")?,
    }
    Ok(())
}

fn row(it: &SocketReport) -> [String; FIELDS.len()] {
    let text = |value: Option<String>| value.unwrap_or_default();
    let segments = |at: usize| text(it.segments.map(|counts| counts[at].to_string()));
    [
        it.fd.to_string(),
        it.path.clone(),
        it.protocol.clone(),
        it.state.clone(),
        text(it.local.map(|it| it.to_string())),
        text(it.remote.map(|it| it.to_string())),
        text(it.lane.map(|it| it.to_string())),
        text(it.flow.clone()),
        text(it.fused.map(|on| if on { "yes" } else { "no" }.to_owned())),
        text(it.sent.map(|it| it.to_string())),
        text(it.received.map(|it| it.to_string())),
        segments(0),
        segments(1),
        segments(2),
        it.options.join(","),
        it.why.clone(),
    ]
}
