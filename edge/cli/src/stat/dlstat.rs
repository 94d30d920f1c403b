//! `dlstat`: traffic of links.
//!
//! Firelane classifies in software: what devices brought is received in lanes of kind `sw`, what this host made in
//! `local` ones. `-F` shows each of Firelane's lanes in a row of its own, by its number.

use firelane_api::{LaneReceived, LinkStats, Status, Stopped, Which};
use firelane_model::LinkClass;

use super::{LinksBefore, Options, asks_history, dump, fused, history_call};
use crate::ofmt::{Column, Table, UNKNOWN, col};
use crate::session::{Failure, Session, die};
use crate::usage;

const PROGRAM: &str = "dlstat";
const USAGE: &str = "dlstat [-r | -t] [-i interval] [link]\n\
                     \x20      dlstat [-a | -A] [-i interval] [-p] [-o field[,...]]\n\
                     \x20             [-u R|K|M|G|T|P] [-j] [link]\n\
                     \x20      dlstat show-phys [-r | -t] [-i interval] [-p] [-o field[,...]]\n\
                     \x20             [-u R|K|M|G|T|P] [-j] [link]\n\
                     \x20      dlstat show-link [-r [-F] | -t] [-i interval] [-p] [-o field[,...]]\n\
                     \x20             [-u R|K|M|G|T|P] [-j] [link]\n\
                     \x20      dlstat show-aggr [-r | -t] [-i interval] [-p] [-o field[,...]]\n\
                     \x20             [-u R|K|M|G|T|P] [-j] [link]\n\
                     \x20      dlstat show-link -h [-a] [-d] [-f file] [-F format] [-s time] [-e time] [-j]\n\
                     \x20             [link]";

const TOTAL: &[Column] = &[
    col("LINK", 15),
    col("IPKTS", 8),
    col("RBYTES", 8),
    col("OPKTS", 8),
    col("OBYTES", 8),
    col("RFUSED", 8),
    col("OFUSED", 8),
    col("FUSED", 8),
];
const LANES: &[Column] =
    &[col("LINK", 15), col("TYPE", 5), col("ID", 7), col("INDEX", 6), col("PKTS", 8), col("BYTES", 8)];
const RECEIVE: &[Column] = &[
    col("LINK", 15),
    col("TYPE", 5),
    col("ID", 7),
    col("INDEX", 6),
    col("FOUT", 6),
    col("IPKTS", 8),
    col("RBYTES", 8),
    col("INTRS", 8),
    col("POLLS", 8),
    col("SDROPS", 8),
    col("CH<10", 8),
    col("CH10-50", 8),
    col("CH>50", 8),
];
const TRANSMIT: &[Column] = &[
    col("LINK", 15),
    col("TYPE", 5),
    col("ID", 7),
    col("INDEX", 6),
    col("OPKTS", 8),
    col("OBYTES", 8),
    col("BLKCNT", 8),
    col("UBLKCNT", 8),
    col("SDROPS", 8),
];

const AGGR: &[Column] =
    &[col("LINK", 15), col("PORT", 15), col("IPKTS", 8), col("RBYTES", 8), col("OPKTS", 8), col("OBYTES", 8)];

/// What is counted.
#[derive(Clone, Copy, PartialEq, Eq)]
enum View {
    Total,
    Lanes,
    Phys,
    /// There are none: links are not aggregated here.
    Aggr,
}

/// Runs `dlstat` with the words after its name.
pub(crate) fn run(session: &mut Session<'_>, words: &[String]) -> Result<(), Failure> {
    let (view, words) = match words.first().map(String::as_str) {
        Some("show-link") => (View::Lanes, &words[1..]),
        Some("show-phys") => (View::Phys, &words[1..]),
        Some("show-aggr") => (View::Aggr, &words[1..]),
        Some(verb) if verb.starts_with("show-") => {
            return Err(die(format!("unknown subcommand '{verb}'\nusage: {USAGE}")));
        }
        _ => (View::Total, words),
    };
    if view == View::Lanes && asks_history(words) {
        return usage::links(session, PROGRAM, &history_call(words, USAGE)?);
    }
    let options = Options::parse(words, USAGE)?;
    if options.call.args.has('l') {
        return Err(die(format!("unrecognized option '-l'\nusage: {USAGE}")));
    }
    let receive = options.call.args.has('r');
    let fans_out = options.call.args.has('F');
    if fans_out && !(view == View::Lanes && receive) {
        return Err(die("the option -F is only compatible with show-link -r"));
    }
    let (template, fields) = match view {
        View::Total => (
            TOTAL,
            options
                .fields(
                    "link,ipkts,rbytes,rfused",
                    "link,opkts,obytes,ofused",
                    "link,ipkts,rbytes,opkts,obytes,fused",
                )
                .to_owned(),
        ),
        View::Aggr => (AGGR, "link,port,ipkts,rbytes,opkts,obytes".to_owned()),
        View::Lanes | View::Phys => {
            let template = if receive {
                RECEIVE
            } else if options.call.args.has('t') {
                TRANSMIT
            } else {
                LANES
            };
            let shown = template.iter().map(|column| column.name).filter(|name| *name != "FOUT" || fans_out);
            (template, shown.collect::<Vec<_>>().join(","))
        }
    };
    let mut table = Table::open(session, PROGRAM, template, &fields, options.style())?;
    let mut before = LinksBefore::default();
    let mut first = true;
    loop {
        let mut links = selected(session, &options, view, first)?;
        first = false;
        before.subtract(&mut links);
        report(session, &options, view, &links, &mut table)?;
        if !options.again(session)? {
            return Ok(());
        }
    }
}

fn report(
    session: &mut Session<'_>,
    options: &Options<'_>,
    view: View,
    links: &[LinkStats],
    table: &mut Table<'_>,
) -> Result<(), Failure> {
    if options.call.args.has('j') {
        return session.json("links", &links, options.call.args.has('i'));
    }
    for link in links {
        if options.call.args.has('A') || (view == View::Total && options.call.args.has('a')) {
            let Stopped { macspoofed, restricted, ipspoofed, dhcpspoofed } = link.stopped;
            let stopped = [
                ("macspoofed", macspoofed),
                ("restricted", restricted),
                ("ipspoofed", ipspoofed),
                ("dhcpspoofed", dhcpspoofed),
            ];
            dump(session, link.name.as_str(), link.traffic, &stopped)?;
            continue;
        }
        for row in rows(link, options, view) {
            table.row(session, &row)?;
        }
    }
    Ok(())
}

/// The links that the view and the operand name. They must exist when the command begins.
fn selected(
    session: &mut Session<'_>,
    options: &Options<'_>,
    view: View,
    first: bool,
) -> Result<Vec<LinkStats>, Failure> {
    let mut stats = session.api.link_stats()?;
    if view == View::Aggr {
        stats.clear();
    } else if view == View::Phys {
        let mut phys = session.api.links(Which::Active)?;
        phys.retain(|link| link.class == LinkClass::Phys);
        stats.retain(|link| phys.iter().any(|it| it.name == link.name));
    }
    if let Some(name) = options.call.optional_operand()? {
        stats.retain(|link| link.name.as_str() == name);
        if first && stats.is_empty() {
            return Err(die(format!("link {name} is not valid: {}", Status::NotFound.text())));
        }
    }
    Ok(stats)
}

fn rows(link: &LinkStats, options: &Options<'_>, view: View) -> Vec<Vec<String>> {
    let (t, scale) = (link.traffic, options.scale);
    let lane = |kind: &str, rest: Vec<String>| {
        let names = [link.name.to_string(), kind.to_owned(), "sw".to_owned(), String::new()];
        names.into_iter().chain(rest).collect::<Vec<_>>()
    };
    let unknown = || UNKNOWN.to_owned();
    if view == View::Total {
        let counters = [t.ipackets, t.rbytes, t.opackets, t.obytes, t.rfused, t.ofused, fused(t)];
        let counters = counters.map(|count| scale.show(count));
        return vec![std::iter::once(link.name.to_string()).chain(counters).collect()];
    }
    let received = || vec![scale.show(t.ipackets), scale.show(t.rbytes)];
    let sent = || vec![scale.show(t.opackets), scale.show(t.obytes)];
    if options.call.args.has('r') {
        return received_rows(link, options);
    }
    if options.call.args.has('t') {
        let rest = [unknown(), unknown(), scale.show(t.oerrors)];
        return vec![lane("tx", sent().into_iter().chain(rest).collect())];
    }
    vec![lane("rx", received()), lane("tx", sent())]
}

/// `-r`: what this host sent, and what devices brought; with `-F` in each lane.
fn received_rows(link: &LinkStats, options: &Options<'_>) -> Vec<Vec<String>> {
    let show = |count| options.scale.show(count);
    let rows = |fout: String, it: LaneReceived| {
        let row = |id: &str, counts: [String; 8]| {
            let names = [link.name.to_string(), "rx".to_owned(), id.to_owned(), String::new(), fout.clone()];
            names.into_iter().chain(counts).collect::<Vec<_>>()
        };
        // Chains are what devices bring.
        let none = || if options.call.args.has('p') { String::new() } else { format!("{:>8}", "--") };
        let (packets, bytes) = (it.ipackets - it.fetched(), it.rbytes - it.fetched_bytes);
        let local = [show(packets), show(bytes), show(0), show(0), show(0), none(), none(), none()];
        let [few, some, many] = it.chains.map(show);
        let (packets, bytes) = (show(it.fetched()), show(it.fetched_bytes));
        let fetched = [packets, bytes, show(it.intrs), show(it.polls), show(it.sdrops), few, some, many];
        [row("local", local), row("sw", fetched)]
    };
    if options.call.args.has('F') {
        return link.lanes.iter().flat_map(|lane| rows(lane.lane.to_string(), *lane)).collect();
    }
    let sum = link.lanes.iter().copied().reduce(LaneReceived::and).unwrap_or_default();
    rows(String::new(), sum).into()
}
