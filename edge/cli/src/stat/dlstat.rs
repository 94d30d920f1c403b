//! `dlstat`: traffic of links.
//!
//! What a link receives and sends by a ring of its device is in a row of kind `hw`, with the ring's number; what this host made is
//! received in `local` ones, and the rest, all of it where there is no device, in `sw` ones. `-F` shows lanes by their numbers.

use firelane_api::{LaneReceived, LinkStats, RingStats, Status, Stopped, Which};
use firelane_model::LinkClass;

use super::{ALL, DUMP, FANOUT, LinksBefore, Options, asks_history, dump, fused};
use crate::common::Call;
use crate::completion;
use crate::getopt::Opt;
use crate::ofmt::{Column, Table, col};
use crate::session::{Failure, Session, die};
use crate::usage;

const PROGRAM: &str = "dlstat";
const USAGE: &str = "dlstat [-r | -t] [-T d|u] [link] [interval [count]]\n\
                     \x20      dlstat [-a | -A] [-T d|u] [-i interval] [-p] [-o field[,...]]\n\
                     \x20             [-u R|K|M|G|T|P] [-j] [link] [interval [count]]\n\
                     \x20      dlstat show-phys [-r | -t] [-T d|u] [-i interval] [-a] [-p] [-o field[,...]]\n\
                     \x20             [-u R|K|M|G|T|P] [-j] [link] [interval [count]]\n\
                     \x20      dlstat show-link [-r [-F] | -t] [-T d|u] [-i interval] [-a] [-p]\n\
                     \x20             [-o field[,...]] [-u R|K|M|G|T|P] [-j] [link] [interval [count]]\n\
                     \x20      dlstat show-aggr [-r | -t] [-T d|u] [-i interval] [-p] [-o field[,...]]\n\
                     \x20             [-u R|K|M|G|T|P] [-j] [link] [interval [count]]\n\
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
    col("INTRS", 8),
    col("POLLS", 8),
    col("CH<10", 8),
    col("CH10-50", 8),
    col("CH>50", 8),
    col("BLKCNT", 8),
    col("UBLKCNT", 8),
    col("SDROPS", 8),
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

/// What a shell completes.
pub(crate) const OPTIONS: &[&[Opt]] = &[super::OPTIONS, ALL, DUMP];
/// The same behind each subcommand.
pub(crate) const VIEWS: &[completion::View] = &[
    ("show-link", &[super::OPTIONS, ALL, FANOUT, usage::HISTORY]),
    ("show-phys", &[super::OPTIONS, ALL]),
    ("show-aggr", &[super::OPTIONS]),
];

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
        Some("help") => return Err(Failure::Help(format!("usage: {USAGE}"))),
        // What no link can be called was meant for a subcommand.
        Some(verb) if verb.starts_with("show-") || is_verb(verb) => {
            return Err(die(format!("unknown subcommand '{verb}'\nusage: {USAGE}")));
        }
        _ => (View::Total, words),
    };
    if view == View::Lanes && asks_history(words) {
        return usage::links(session, PROGRAM, &Call::of(usage::HISTORY, USAGE, words)?);
    }
    let options = Options::parse(&[super::OPTIONS, ALL, DUMP, FANOUT], USAGE, words)?;
    let is_unknown = |letter: char| match letter {
        'A' => view != View::Total,
        _ => view == View::Aggr,
    };
    let mut unknown = ['A', 'a'].into_iter().filter(|&it| is_unknown(it));
    if let Some(letter) = unknown.find(|&it| options.call.args.has(it)) {
        return Err(die(format!("unrecognized option '-{letter}'\nusage: {USAGE}")));
    }
    if options.call.args.has('F') && !(view == View::Lanes && options.call.args.has('r')) {
        return Err(die("the option -F is only compatible with show-link -r"));
    }
    let (template, fields) = columns(view, &options);
    let mut table = Table::open(session, PROGRAM, template, &fields, options.style())?;
    let mut before = LinksBefore::default();
    let mut repeat = options.repeat;
    let mut first = true;
    loop {
        options.stamp.print(session)?;
        let mut links = selected(session, &options, view, first)?;
        first = false;
        before.subtract(&mut links);
        report(session, &options, view, &links, &mut table)?;
        if !repeat.again(session)? {
            return Ok(());
        }
    }
}

/// Whether a word is written as a subcommand is, and no link's name: those end with a number.
fn is_verb(word: &str) -> bool {
    !word.starts_with('-') && word.ends_with(|c: char| c.is_ascii_alphabetic())
}

/// The columns of a view, and those of them that are shown unless others are asked for.
fn columns(view: View, options: &Options<'_>) -> (&'static [Column], String) {
    match view {
        View::Total => (
            TOTAL,
            options
                .fields(
                    "link,ipkts,rbytes,intrs,polls,ch<10,ch10-50,ch>50,rfused",
                    "link,opkts,obytes,blkcnt,ublkcnt,ofused",
                    "link,ipkts,rbytes,opkts,obytes,fused",
                )
                .to_owned(),
        ),
        View::Aggr => (AGGR, "link,port,ipkts,rbytes,opkts,obytes".to_owned()),
        View::Lanes | View::Phys => {
            let template = if options.call.args.has('r') {
                RECEIVE
            } else if options.call.args.has('t') {
                TRANSMIT
            } else {
                LANES
            };
            // Of a device there are packets and bytes of each ring, and nothing of lanes.
            let of_device =
                ["LINK", "TYPE", "ID", "INDEX", "IPKTS", "RBYTES", "OPKTS", "OBYTES", "PKTS", "BYTES"];
            let is_shown = |name: &&str| match view {
                View::Phys => of_device.contains(name),
                _ => *name != "FOUT" || options.call.args.has('F'),
            };
            let shown = template.iter().map(|column| column.name).filter(is_shown);
            (template, shown.collect::<Vec<_>>().join(","))
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
        return session.json("links", &links, options.repeat.is_asked());
    }
    for link in links {
        if options.call.args.has('a') && view != View::Total {
            dump_rows(session, link, options, view)?;
            continue;
        }
        if options.call.args.has('A') || options.call.args.has('a') {
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

/// Every counter of each row, one per line.
fn dump_rows(
    session: &mut Session<'_>,
    link: &LinkStats,
    options: &Options<'_>,
    view: View,
) -> Result<(), Failure> {
    let (template, shown) = columns(view, options);
    let is_shown = |column: &&Column| shown.split(',').any(|name| name == column.name);
    writeln!(session.out, "{}", link.name)?;
    for row in rows(link, options, view) {
        let (mut names, mut counters) = (String::new(), String::new());
        for (column, value) in template.iter().zip(&row).skip(1).filter(|(column, _)| is_shown(column)) {
            match column.name {
                "TYPE" | "ID" | "INDEX" | "FOUT" if value.is_empty() => {}
                "TYPE" | "ID" | "INDEX" | "FOUT" => names.push_str(&format!("  {value}")),
                name => counters.push_str(&format!("\t{:>15}\t{:>15}\n", name.to_lowercase(), value.trim())),
            }
        }
        write!(session.out, "{names}\n{counters}")?;
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
    if let Some(name) = &options.name {
        stats.retain(|link| link.name.as_str() == *name);
        if first && stats.is_empty() {
            return Err(die(format!("link {name} is not valid: {}", Status::NotFound.text())));
        }
    }
    Ok(stats)
}

fn rows(link: &LinkStats, options: &Options<'_>, view: View) -> Vec<Vec<String>> {
    let (t, scale) = (link.traffic, options.scale);
    if view == View::Total {
        return vec![total_row(link, options)];
    }
    let row = |kind: &str, ring: Option<u16>, rest: Vec<String>| {
        let id = if ring.is_some() { "hw" } else { "sw" };
        let index = ring.map(|ring| ring.to_string()).unwrap_or_default();
        let names = [link.name.to_string(), kind.to_owned(), id.to_owned(), index];
        names.into_iter().chain(rest).collect::<Vec<_>>()
    };
    // What goes by no ring comes last.
    let by_ring = |kind: &str,
                   all: [u64; 2],
                   of_ring: fn(&RingStats) -> [u64; 2],
                   more: &dyn Fn(bool) -> Vec<String>| {
        let counted = |counts: [u64; 2], is_rest| {
            counts.map(|it| scale.show(it)).into_iter().chain(more(is_rest)).collect()
        };
        let mut rows: Vec<_> =
            link.rings.iter().map(|it| row(kind, Some(it.ring), counted(of_ring(it), false))).collect();
        rows.push(row(kind, None, counted(rest(all, link.rings.iter().map(of_ring)), true)));
        rows
    };
    let sent = |more: &dyn Fn(bool) -> Vec<String>| {
        by_ring("tx", [t.opackets, t.obytes], |it| [it.opackets, it.obytes], more)
    };
    if options.call.args.has('r') {
        return received_rows(link, options);
    }
    if options.call.args.has('t') {
        let dropped = |is_rest: bool| scale.show(if is_rest { t.oerrors } else { 0 });
        return sent(&|is_rest| vec![none(options), none(options), dropped(is_rest)]);
    }
    let mut rows = by_ring("rx", [t.ipackets, t.rbytes], |it| [it.ipackets, it.rbytes], &|_| Vec::new());
    rows.append(&mut sent(&|_| Vec::new()));
    rows
}

/// A link as a whole: what it carried, how that came in, and what ended of the direction that is asked about, or of both.
fn total_row(link: &LinkStats, options: &Options<'_>) -> Vec<String> {
    let (t, show) = (link.traffic, |count| options.scale.show(count));
    let sum = link.lanes.iter().copied().reduce(LaneReceived::and).unwrap_or_default();
    let dropped = match (options.call.args.has('r'), options.call.args.has('t')) {
        (true, _) => t.ierrors,
        (_, true) => t.oerrors,
        _ => t.ierrors.saturating_add(t.oerrors),
    };
    let carried = [t.ipackets, t.rbytes, t.opackets, t.obytes, t.rfused, t.ofused, fused(t)];
    let came_in = [sum.intrs, sum.polls].into_iter().chain(sum.chains);
    std::iter::once(link.name.to_string())
        .chain(carried.into_iter().chain(came_in).map(show))
        .chain([none(options), none(options), show(dropped)])
        .collect()
}

/// What is in a column that says nothing of this row.
fn none(options: &Options<'_>) -> String {
    if options.call.args.has('p') { String::new() } else { format!("{:>8}", "--") }
}

/// What of a link's packets and bytes went by none of its rings.
fn rest(all: [u64; 2], rings: impl Iterator<Item = [u64; 2]>) -> [u64; 2] {
    rings.fold(all, |[packets, bytes], [p, b]| [packets.saturating_sub(p), bytes.saturating_sub(b)])
}

/// `-r`: what this host sent, what came by each ring, and what devices brought otherwise; with `-F` in which lane.
fn received_rows(link: &LinkStats, options: &Options<'_>) -> Vec<Vec<String>> {
    let show = |count| options.scale.show(count);
    // Chains are what devices bring.
    let none = || none(options);
    let row = |[id, index, fout]: [String; 3], counts: [String; 8]| {
        let names = [link.name.to_string(), "rx".to_owned(), id, index, fout];
        names.into_iter().chain(counts).collect::<Vec<_>>()
    };
    let local = |fout: String, it: &LaneReceived| {
        let [packets, bytes] = it.made_here().map(show);
        let counts = [packets, bytes, show(0), show(0), show(0), none(), none(), none()];
        row(["local".to_owned(), String::new(), fout], counts)
    };
    let fetched = |[id, index, fout]: [String; 3], it: LaneReceived| {
        let [few, some, many] = it.chains.map(show);
        let (packets, bytes) = (show(it.ipackets), show(it.rbytes));
        let counts = [packets, bytes, show(it.intrs), show(it.polls), show(it.sdrops), few, some, many];
        row([id, index, fout], counts)
    };
    let fans_out = options.call.args.has('F');
    let lane_of = |lane: u16| if fans_out { lane.to_string() } else { String::new() };
    let sum = link.lanes.iter().copied().reduce(LaneReceived::and).unwrap_or_default();
    let mut rows: Vec<_> = match fans_out {
        true if !link.lanes.is_empty() => {
            link.lanes.iter().map(|lane| local(lane_of(lane.lane), lane)).collect()
        }
        // Nothing has come as yet, in any lane.
        true | false => vec![local(String::new(), &sum)],
    };
    let of_ring = |it: &RingStats| LaneReceived {
        lane: it.lane,
        ipackets: it.ipackets,
        rbytes: it.rbytes,
        intrs: it.intrs,
        polls: it.polls,
        chains: it.chains,
        ..LaneReceived::default()
    };
    for ring in &link.rings {
        let names = ["hw".to_owned(), ring.ring.to_string(), lane_of(ring.lane)];
        rows.push(fetched(names, of_ring(ring)));
    }
    let sw = |fout: String, it: LaneReceived| {
        let it = LaneReceived { ipackets: it.fetched(), rbytes: it.fetched_bytes, ..it };
        fetched(["sw".to_owned(), String::new(), fout], it)
    };
    if link.rings.is_empty() && fans_out && !link.lanes.is_empty() {
        rows.extend(link.lanes.iter().map(|lane| sw(lane_of(lane.lane), *lane)));
    } else if link.rings.is_empty() {
        rows.push(sw(String::new(), sum));
    } else {
        let by_rings = link.rings.iter().map(of_ring).reduce(LaneReceived::and).unwrap_or_default();
        rows.push(sw(String::new(), sum.without(by_rings)));
    }
    rows
}
