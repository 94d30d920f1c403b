//! `show-usage` of `dladm` and `flowadm`, `-h` of `dlstat` and `flowstat`: what links and flows have carried over time.
//!
//! Called by those four, which differ in their names only. The daemon keeps the history itself; with `-f` records are read that
//! `acctadm` let it write into a file, and the daemon is not asked. Times are UTC and written MM/DD/YYYY,hh:mm:ss, as `dladm` of the
//! original documents them.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use firelane_api::{NetRecords, Status, Traffic, Usage, UsageOf, UsageRequest, UsageSample};
use firelane_model::{FlowName, LinkName};

use crate::common::{Call, read_text};
use crate::getopt::{Opt, flag, value};
use crate::ofmt::{Column, Style, Table, col};
use crate::session::{Failure, Session, die};
use crate::stat::fused;

/// The options of `show-usage`.
pub(crate) const SHOW_USAGE: &[Opt] = &[
    flag('a', "all"),
    flag('d', "dates"),
    value('f', "file"),
    value('p', "plotfile"),
    value('F', "format"),
    value('s', "start"),
    value('e', "stop"),
    flag('j', "json"),
];

/// The options of `-h`.
pub(crate) const HISTORY: &[Opt] = &[
    flag('h', "history"),
    flag('a', "all"),
    flag('d', "dates"),
    value('f', "file"),
    value('F', "format"),
    value('s', "start"),
    value('e', "stop"),
    flag('j', "json"),
];

/// The columns of the sums, with those of packets in the words of who prints them: `dlstat` has shorter ones than the others.
const fn columns(ipackets: &'static str, opackets: &'static str) -> [Column; 7] {
    [
        col("DURATION", 11),
        col(ipackets, 10),
        col("RBYTES", 11),
        col(opackets, 10),
        col("OBYTES", 11),
        col("BANDWIDTH", 16),
        col("FUSED", 11),
    ]
}
const SUMS: [Column; 7] = columns("IPACKETS", "OPACKETS");
const DLSTAT_SUMS: [Column; 7] = columns("IPKTS", "OPKTS");
const PIECES: [Column; 6] = [
    col("START", 14),
    col("END", 14),
    col("RBYTES", 9),
    col("OBYTES", 9),
    col("BANDWIDTH", 16),
    col("FUSED", 11),
];

/// Another link may have had a flow of that name before. Those who read the original's columns by their places find them there.
const OF_LINK: Column = col("LINK", 13);

/// By this problems of the history are known: they begin with its file.
const OF_HISTORY: &str = "history.db: ";
const DAY: u64 = 24 * 3600;
/// The longest file of records that is read: a busy link's of some years.
const RECORDS_MAX: usize = 1 << 30;

/// What is asked for, as options and operand say.
struct Asked<'a> {
    program: &'static str,
    /// What `acctadm` has written, in place of the daemon's history.
    records: Option<NetRecords>,
    request: UsageRequest,
    name: Option<&'a str>,
    call: &'a Call<'a>,
}

/// `show-usage` of links, or `dlstat -h`.
pub(crate) fn links(
    session: &mut Session<'_>,
    program: &'static str,
    call: &Call<'_>,
) -> Result<(), Failure> {
    show(session, program, UsageOf::Links, call)
}

/// The same of flows.
pub(crate) fn flows(
    session: &mut Session<'_>,
    program: &'static str,
    call: &Call<'_>,
) -> Result<(), Failure> {
    show(session, program, UsageOf::Flows, call)
}

fn show(
    session: &mut Session<'_>,
    program: &'static str,
    of: UsageOf,
    call: &Call<'_>,
) -> Result<(), Failure> {
    let (args, name) = (&call.args, call.optional_operand()?);
    if args.has('p') && !args.has('F') {
        return Err(die("-p requires -F"));
    }
    if let Some(other) = ['d', 'j'].into_iter().find(|&it| args.has(it) && args.has('F')) {
        return Err(die(format!("the option -{other} is not compatible with -F")));
    }
    if let Some(format) = args.value('F').filter(|format| *format != "gnuplot") {
        return Err(die(format!("plotfile format '{format}' is not supported (gnuplot)")));
    }
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let time = |letter| args.value(letter).map(|text| instant(text, now)).transpose();
    let (from, until) = (time('s')?.unwrap_or(0), time('e')?);
    if until.is_some_and(|until| until <= from) {
        return Err(die("invalid time range (-e: a time after that of -s)"));
    }
    let request = UsageRequest { from, until, all: args.has('a'), days: args.has('d'), of };
    let records = args.value('f').map(read).transpose()?;
    if records.is_none() {
        complain(session, program);
    }
    let asked = Asked { program, records, request, name, call };
    match (args.has('d'), args.has('F'), name) {
        (true, _, _) => dates(session, &asked),
        (_, true, _) => plot(session, &asked),
        (_, _, Some(name)) => pieces(session, &asked, name),
        (_, _, None) => sums(session, &asked),
    }
}

/// Says what keeps the history from being whole: what waits to be written is in no answer, and who is not in the file yet is unknown.
fn complain(session: &mut Session<'_>, program: &str) {
    // A daemon that does not answer is told of by what is asked next.
    let problems = session.api.status().map(|status| status.problems).unwrap_or_default();
    for problem in problems.iter().filter(|it| it.contains(OF_HISTORY)) {
        session.warn(program, problem);
    }
}

/// The records of a file, of which what is written just now may be cut off.
fn read(file: &str) -> Result<NetRecords, Failure> {
    let text = read_text(Path::new(file), RECORDS_MAX).map_err(die)?;
    if text.len() > RECORDS_MAX {
        return Err(die(format!("{file}: more than {RECORDS_MAX} bytes")));
    }
    NetRecords::read(&text).map_err(|line| die(format!("{file}:{line}: no record of acctadm's")))
}

/// What the request is about, those of the operand's name only if there is one.
fn usages(session: &Session<'_>, asked: &Asked<'_>) -> Result<Vec<Usage>, Failure> {
    let mut usages = match &asked.records {
        Some(records) => records.usage(&asked.request),
        None => session.api.usage(&asked.request)?,
    };
    if let Some(name) = asked.name {
        usages.retain(|usage| usage.name == name);
    }
    Ok(usages)
}

fn samples(session: &Session<'_>, asked: &Asked<'_>, name: &str) -> Result<Vec<UsageSample>, Failure> {
    // What is no name would mean something else to the daemon's address of it.
    let is_name = match asked.request.of {
        UsageOf::Links => name.parse::<LinkName>().is_ok(),
        UsageOf::Flows => name.parse::<FlowName>().is_ok(),
    };
    let samples = match &asked.records {
        _ if !is_name => Err(Status::NotFound.into()),
        Some(records) => records.samples(name, &asked.request).ok_or_else(|| Status::NotFound.into()),
        None => session.api.usage_samples(name, &asked.request),
    };
    samples.map_err(|error| match (error.status, asked.request.of) {
        (Status::NotFound, UsageOf::Links) => die(format!("invalid link: '{name}'")),
        (Status::NotFound, UsageOf::Flows) => die(format!("invalid flow: '{name}'")),
        _ => error.into(),
    })
}

/// A row for each link or flow.
fn sums(session: &mut Session<'_>, asked: &Asked<'_>) -> Result<(), Failure> {
    let usages = usages(session, asked)?;
    if asked.call.args.has('j') {
        return session.json("usage", &usages, false);
    }
    let columns = if asked.program == "dlstat" { &DLSTAT_SUMS } else { &SUMS };
    let is_of_flows = asked.request.of == UsageOf::Flows;
    let columns: Vec<_> = columns.iter().copied().chain(is_of_flows.then_some(OF_LINK)).collect();
    let mut table = table(session, asked, &columns)?;
    for Usage { name, link, seconds, traffic: it, .. } in usages {
        let counts = [seconds, it.ipackets, it.rbytes, it.opackets, it.obytes].map(|it| it.to_string());
        let rest = [bandwidth(&it, seconds), fused(it).to_string()];
        let link = is_of_flows.then_some(link);
        let row: Vec<_> = [name].into_iter().chain(counts).chain(rest).chain(link).collect();
        table.row(session, &row)?;
    }
    Ok(())
}

/// A row for each second, minute or hour of one link or flow.
fn pieces(session: &mut Session<'_>, asked: &Asked<'_>, name: &str) -> Result<(), Failure> {
    let samples = samples(session, asked, name)?;
    if asked.call.args.has('j') {
        return session.json("samples", &samples, false);
    }
    let mut table = table(session, asked, &PIECES)?;
    let days: BTreeSet<_> = samples.iter().map(|it| it.start / DAY).collect();
    for UsageSample { start, seconds, traffic: it } in samples {
        let clock = |time| match (seconds < 3600, days.len() > 1) {
            (true, false) => hour(time),
            (true, true) => day_and_second(time),
            (false, _) => day_and_hour(time),
        };
        let counts = [it.rbytes, it.obytes].map(|it| it.to_string());
        let [rbytes, obytes] = counts;
        let rest = [rbytes, obytes, bandwidth(&it, seconds), fused(it).to_string()];
        let row: Vec<_> =
            [name.to_owned(), clock(start), clock(start + seconds)].into_iter().chain(rest).collect();
        table.row(session, &row)?;
    }
    Ok(())
}

fn table<'a>(session: &mut Session<'_>, asked: &Asked<'a>, columns: &[Column]) -> Result<Table<'a>, Failure> {
    let first = match asked.request.of {
        UsageOf::Links => col("LINK", 13),
        UsageOf::Flows => col("FLOW", 13),
    };
    let template: Vec<_> = [first].into_iter().chain(columns.iter().copied()).collect();
    let fields = template.iter().map(|column| column.name).collect::<Vec<_>>().join(",");
    Table::open(session, asked.program, &template, &fields, Style::default())
}

/// The days of which something is known.
fn dates(session: &mut Session<'_>, asked: &Asked<'_>) -> Result<(), Failure> {
    let usages = usages(session, asked)?;
    if let Some(name) = asked.name.filter(|_| usages.is_empty()) {
        // It carried nothing then, or was never there.
        samples(session, asked, name)?;
    }
    let mut days: Vec<_> = usages.into_iter().flat_map(|usage| usage.days).collect();
    days.sort_unstable();
    days.dedup();
    if asked.call.args.has('j') {
        return session.json(
            "dates",
            &days.into_iter().map(|day| date(day * DAY)).collect::<Vec<_>>(),
            false,
        );
    }
    for day in days {
        writeln!(session.out, "{}", date(day * DAY))?;
    }
    Ok(())
}

/// Data for gnuplot: a block for each link or flow, told apart by its index.
fn plot(session: &mut Session<'_>, asked: &Asked<'_>) -> Result<(), Failure> {
    let names = match asked.name {
        Some(name) => vec![name.to_owned()],
        None => {
            let mut names: Vec<_> = usages(session, asked)?.into_iter().map(|usage| usage.name).collect();
            names.dedup();
            names
        }
    };
    let mut text = String::new();
    for name in names {
        if !text.is_empty() {
            text.push_str("\n\n");
        }
        let _ = writeln!(text, "# {name}: time rbytes obytes kbps");
        for UsageSample { start, seconds, traffic: it } in samples(session, asked, &name)? {
            let kbps = kilobits(&it, seconds);
            let _ = writeln!(text, "{},{} {} {} {kbps:.2}", date(start), hour(start), it.rbytes, it.obytes);
        }
    }
    match asked.call.args.value('p') {
        Some(path) => std::fs::write(path, text).map_err(|error| die(format!("{path}: {error}"))),
        None => Ok(write!(session.out, "{text}")?),
    }
}

/// Both directions together, in kilobits per second.
fn kilobits(traffic: &Traffic, seconds: u64) -> f64 {
    traffic.rbytes.saturating_add(traffic.obytes) as f64 * 8.0 / 1000.0 / seconds.max(1) as f64
}

fn bandwidth(traffic: &Traffic, seconds: u64) -> String {
    match kilobits(traffic, seconds) {
        kilo if kilo < 1000.0 => format!("{kilo:.2} Kbps"),
        kilo if kilo < 1_000_000.0 => format!("{:.2} Mbps", kilo / 1000.0),
        kilo => format!("{:.2} Gbps", kilo / 1_000_000.0),
    }
}

/// Seconds since 1970 of `MM/DD/YYYY[,hh:mm[:ss]]`, or of `hh:mm[:ss]` of the day on which `now` is.
fn instant(text: &str, now: u64) -> Result<u64, Failure> {
    let allowed = "MM/DD/YYYY[,hh:mm[:ss]], or hh:mm[:ss] of today, in UTC";
    let wrong = || die(format!("invalid time '{text}' ({allowed})"));
    let today = date(now);
    let (day, time) = match text.split_once(',') {
        Some(both) => both,
        None if text.contains(':') => (today.as_str(), text),
        None => (text, "0:0:0"),
    };
    let numbers = |text: &str, mark: char| -> Option<Vec<u64>> {
        let is_number = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
        text.split(mark).map(|part| part.parse().ok().filter(|_| is_number(part))).collect()
    };
    let Some([month, day, year]) = numbers(day, '/').as_deref().and_then(|it| <[u64; 3]>::try_from(it).ok())
    else {
        return Err(wrong());
    };
    let time = numbers(time, ':').ok_or_else(wrong)?;
    let (hour, minute, second) = match *time.as_slice() {
        [hour, minute] => (hour, minute, 0),
        [hour, minute, second] => (hour, minute, second),
        _ => return Err(wrong()),
    };
    let is_time = hour < 24 && minute < 60 && second < 60;
    let first = days_before(year, month).filter(|_| is_time && day > 0).ok_or_else(wrong)?;
    let next = if month == 12 { days_before(year + 1, 1) } else { days_before(year, month + 1) };
    let days = first + day - 1;
    if next.is_none_or(|next| days >= next) {
        return Err(wrong());
    }
    Ok(days * DAY + hour * 3600 + minute * 60 + second)
}

/// The days from 1970 to the first of a month of the Gregorian calendar.
fn days_before(year: u64, month: u64) -> Option<u64> {
    const BEFORE: [u64; 12] = [0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334];
    let in_year = BEFORE.get(usize::try_from(month).ok()?.checked_sub(1)?)?;
    if !(1970..10_000).contains(&year) {
        return None;
    }
    let leaps = |year: u64| year / 4 - year / 100 + year / 400;
    let is_leap = leaps(year) > leaps(year - 1);
    let leap_day = u64::from(is_leap && month > 2);
    Some((year - 1970) * 365 + leaps(year - 1) - leaps(1969) + in_year + leap_day)
}

/// Year, month and day.
fn calendar(time: u64) -> (u64, u64, u64) {
    let days = time / DAY;
    let begins = |year, month| days_before(year, month).unwrap_or(u64::MAX);
    let guess = 1970 + days / 366;
    let year = (guess..).take_while(|&year| begins(year, 1) <= days).last().unwrap_or(guess);
    let month = (1..=12).take_while(|&month| begins(year, month) <= days).last().unwrap_or(1);
    (year, month, days - begins(year, month) + 1)
}

fn date(time: u64) -> String {
    let (year, month, day) = calendar(time);
    format!("{month:02}/{day:02}/{year:04}")
}

fn hour(time: u64) -> String {
    let within = time % DAY;
    format!("{:02}:{:02}:{:02}", within / 3600, within / 60 % 60, within % 60)
}

fn day_and_hour(time: u64) -> String {
    let (_, month, day) = calendar(time);
    format!("{month:02}/{day:02},{:02}:{:02}", time % DAY / 3600, time / 60 % 60)
}

fn day_and_second(time: u64) -> String {
    let (_, month, day) = calendar(time);
    format!("{month:02}/{day:02},{}", hour(time))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn times_are_read() {
        for (text, seconds) in [
            ("01/01/1970", 0),
            ("01/01/1970,00:01", 60),
            ("02/29/2024,12:00:01", 1_709_208_001),
            ("12/31/2026,23:59:59", 1_798_761_599),
            ("05:00", 18_000),
            ("5:00:01", 18_001),
        ] {
            assert_eq!(instant(text, 0).ok(), Some(seconds), "{text}");
        }
        // Of the day that it is.
        assert_eq!(instant("05:00:00", 1_709_208_001).ok(), Some(1_709_182_800));
        for text in [
            "",
            "1",
            "24:00",
            "1:60",
            ":",
            "13/01/2026",
            "02/29/2026",
            "00/01/2026",
            "01/00/2026",
            "01/01/1969",
            "01/01/2026,24:00",
            "01/01/2026,",
            "01/01/2026,1",
            "01/01/2026,1:60",
            "1/1/26",
            "+1/1/2026",
            "01/01/2026,1:1:1:1",
        ] {
            assert!(instant(text, 0).is_err(), "{text}");
        }
    }

    #[test]
    fn rates_have_the_unit_that_suits_them() {
        let carried = |rbytes| Traffic { rbytes, ..Traffic::default() };
        for (bytes, seconds, text) in [
            (0, 0, "0.00 Kbps"),
            (305, 1, "2.44 Kbps"),
            (6_250_000, 1, "50.00 Mbps"),
            (250_000_000, 1, "2.00 Gbps"),
        ] {
            assert_eq!(bandwidth(&carried(bytes), seconds), text);
        }
    }

    proptest! {
        #[test]
        fn a_time_is_read_as_it_is_written(time in 0..200_000_000_000u64) {
            let text = format!("{},{}", date(time), hour(time));
            prop_assert_eq!(instant(&text, 0).ok(), Some(time), "{}", text);
        }
    }
}
