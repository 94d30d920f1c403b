//! `flowstat`: traffic of flows.

use firelane_api::FlowStats;

use super::{Before, DUMP, LINK, Options, asks_history, dump, fused};
use crate::common::Call;
use crate::getopt::Opt;
use crate::ofmt::{Column, Table, col};
use crate::session::{Failure, Session, die};
use crate::usage;

const PROGRAM: &str = "flowstat";
const USAGE: &str = "flowstat [-r | -t] [-T d|u] [-l link] [flow] [interval [count]]\n\
                     \x20      flowstat [-A] [-T d|u] [-i interval] [-p] [-o field[,...]]\n\
                     \x20               [-u R|K|M|G|T|P] [-j] [-l link] [flow] [interval [count]]\n\
                     \x20      flowstat -h [-a] [-d] [-f file] [-F format] [-s time] [-e time] [-j] [flow]";

const FLOW: &[Column] = &[
    col("FLOW", 15),
    col("IPKTS", 8),
    col("RBYTES", 8),
    col("IERRS", 8),
    col("OPKTS", 8),
    col("OBYTES", 8),
    col("OERRS", 8),
    col("RFUSED", 8),
    col("OFUSED", 8),
    col("FUSED", 8),
];

/// What a shell completes, the options of `-h` among them.
pub(crate) const OPTIONS: &[&[Opt]] = &[super::OPTIONS, DUMP, LINK, usage::HISTORY];

/// Runs `flowstat` with the words after its name.
pub(crate) fn run(session: &mut Session<'_>, words: &[String]) -> Result<(), Failure> {
    if asks_history(words) {
        return usage::flows(session, PROGRAM, &Call::of(usage::HISTORY, USAGE, words)?);
    }
    let options = Options::parse(&[super::OPTIONS, DUMP, LINK], USAGE, words)?;
    let fields = options.fields(
        "flow,ipkts,rbytes,ierrs,rfused",
        "flow,opkts,obytes,oerrs,ofused",
        "flow,ipkts,rbytes,ierrs,opkts,obytes,oerrs,fused",
    );
    let mut table = Table::open(session, PROGRAM, FLOW, fields, options.style())?;
    let mut before = Before::default();
    let mut repeat = options.repeat;
    let mut first = true;
    loop {
        options.stamp.print(session)?;
        let mut flows = selected(session, &options, first)?;
        first = false;
        for flow in &mut flows {
            flow.traffic = before.since(flow.name.as_str(), flow.traffic);
        }
        if options.call.args.has('j') {
            session.json("flows", &flows, options.repeat.is_asked())?;
        } else {
            for flow in &flows {
                if options.call.args.has('A') {
                    dump(session, flow.name.as_str(), flow.traffic, &[])?;
                } else {
                    table.row(session, &row(flow, &options))?;
                }
            }
        }
        if !repeat.again(session)? {
            return Ok(());
        }
    }
}

/// The flows that the options and the operand name. They must exist when the command begins.
fn selected(
    session: &mut Session<'_>,
    options: &Options<'_>,
    first: bool,
) -> Result<Vec<FlowStats>, Failure> {
    let mut flows = session.api.flow_stats()?;
    if let Some(link) = options.call.args.value('l') {
        let links = session.api.links(firelane_api::Which::Active)?;
        if first && !links.iter().any(|it| it.name.as_str() == link) {
            return Err(die(format!("invalid link '{link}'")));
        }
        flows.retain(|flow| flow.link.as_str() == link);
    }
    if let Some(name) = &options.name {
        flows.retain(|flow| flow.name.as_str() == *name);
        if first && flows.is_empty() {
            // A flow may be called so.
            if name == "help" {
                return Err(Failure::Help(format!("usage: {USAGE}")));
            }
            return Err(die(format!("invalid flow {name}")));
        }
    }
    Ok(flows)
}

fn row(flow: &FlowStats, options: &Options<'_>) -> Vec<String> {
    let counts = flow.traffic.counts().into_iter().chain([fused(flow.traffic)]);
    std::iter::once(flow.name.to_string()).chain(counts.map(|count| options.scale.show(count))).collect()
}
