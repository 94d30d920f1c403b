//! `dlstat` and `flowstat`: traffic of links and flows, once or at each interval.
//!
//! At the first interval the totals are shown, afterwards what came since the one before.

pub(crate) mod dlstat;
pub(crate) mod flowstat;
mod scale;

use std::collections::BTreeMap;

use firelane_api::{LaneReceived, LinkStats, RingStats, Stopped, Traffic};
use firelane_model::LinkName;

use crate::common::Call;
use crate::getopt::{Opt, flag, value};
use crate::ofmt::Style;
use crate::repeat::Repeat;
use crate::session::{Failure, Session, die};
use crate::stamp::Stamp;
use scale::Scale;

/// The readings before, by name.
#[derive(Default)]
struct Before(BTreeMap<String, Traffic>);

impl Before {
    /// What came since the last reading of `name`.
    fn since(&mut self, name: &str, now: Traffic) -> Traffic {
        now.since(self.0.insert(name.to_owned(), now).unwrap_or_default())
    }
}

/// The readings before of links, with their lanes.
#[derive(Default)]
pub(crate) struct LinksBefore(BTreeMap<LinkName, (Traffic, Stopped, Vec<LaneReceived>, Vec<RingStats>)>);

impl LinksBefore {
    /// Leaves of each link's counters what came since its last reading.
    pub(crate) fn subtract(&mut self, links: &mut [LinkStats]) {
        for link in links {
            let now = (link.traffic, link.stopped, link.lanes.clone(), link.rings.clone());
            let (traffic, stopped, lanes, rings) = self.0.insert(link.name.clone(), now).unwrap_or_default();
            link.traffic = link.traffic.since(traffic);
            link.stopped = link.stopped.since(stopped);
            for lane in &mut link.lanes {
                let before = lanes.iter().find(|before| before.lane == lane.lane);
                *lane = lane.since(before.copied().unwrap_or_default());
            }
            for ring in &mut link.rings {
                let before = rings.iter().find(|before| before.ring == ring.ring);
                *ring = ring.since(before.copied().unwrap_or_default());
            }
            link.lanes.retain(|lane| !lane.is_silent());
        }
    }
}

/// Bytes that went from ring to ring, in no frame: both directions together.
pub(crate) fn fused(it: Traffic) -> u64 {
    it.rfused.saturating_add(it.ofused)
}

/// The options that both commands have.
const OPTIONS: &[Opt] = &[
    flag('r', "receive"),
    flag('t', "transmit"),
    value('i', "interval"),
    flag('p', "parsable"),
    value('o', "output"),
    value('u', "unit"),
    value('T', "timestamp"),
    flag('j', "json"),
];

const ALL: &[Opt] = &[flag('a', "all")];
const DUMP: &[Opt] = &[flag('A', "dump")];
const FANOUT: &[Opt] = &[flag('F', "fanout")];
const LINK: &[Opt] = &[value('l', "link")];

/// Whether the words ask for history (`-h`), which has options of its own.
fn asks_history(words: &[String]) -> bool {
    // What stands behind an option with a value is that value.
    let has_value = |letter: &char| "ioulTsef".contains(*letter);
    let is_asked = |word: &String| {
        let cluster = word.strip_prefix('-').filter(|it| !it.starts_with('-'));
        let mut letters = cluster.into_iter().flat_map(str::chars).take_while(|it| !has_value(it));
        word == "--history" || letters.any(|it| it == 'h')
    };
    words.iter().take_while(|word| *word != "--").any(is_asked)
}

/// The options' meaning, checked as the original checks them.
struct Options<'a> {
    call: Call<'a>,
    scale: Scale,
    /// The link or flow that is named.
    name: Option<String>,
    repeat: Repeat,
    stamp: Stamp,
}

impl<'a> Options<'a> {
    fn parse(options: &[&[Opt]], usage: &'a str, words: &[String]) -> Result<Self, Failure> {
        let call = Call::of(&options.concat(), usage, words)?;
        let (mut repeat, names) = Repeat::of(&call)?;
        let name = match names {
            [] => None,
            [only] => Some(only.clone()),
            _ => return Err(call.misused()),
        };
        if let Some(interval) = call.interval()? {
            if repeat.is_asked() {
                return Err(die("the option -i is not compatible with an interval operand"));
            }
            repeat = Repeat::new(Some(interval), None);
        }
        // `-i` and an interval behind the name are the same.
        let has = |letter| call.args.has(letter) || (letter == 'i' && repeat.is_asked());
        if has('r') && has('t') {
            return Err(die("the option -t and -r are not compatible"));
        }
        if has('u') && has('p') {
            return Err(die("the option -u and -p are not compatible"));
        }
        if has('p') && !has('o') {
            return Err(die("-p requires -o"));
        }
        if has('p') && call.args.value('o').is_some_and(|fields| fields.eq_ignore_ascii_case("all")) {
            return Err(die("\"-o all\" is invalid with -p"));
        }
        if has('A') && has('a') {
            return Err(die("the option -a and -A are not compatible"));
        }
        if has('a') && ['p', 'o', 'u', 'i'].into_iter().any(has) {
            return Err(die("the option -a is not compatible with -p, -o, -u, -i"));
        }
        if has('A') && ['r', 't', 'p', 'o', 'u', 'i'].into_iter().any(has) {
            return Err(die("the option -A is not compatible with -r, -t, -p, -o, -u, -i"));
        }
        let scale = match call.args.value('u') {
            Some(unit) => Scale::of_unit(unit)
                .ok_or_else(|| die(format!("invalid unit value '{unit}', unit must be R|K|M|G|T|P")))?,
            None if call.args.has('p') || call.args.has('a') => Scale::Plain,
            None => Scale::Auto,
        };
        let stamp = Stamp::of(&call, "")?;
        Ok(Self { call, scale, name, repeat, stamp })
    }

    /// The fields to show: those of `-o`, or by direction.
    fn fields(&self, receive: &'static str, transmit: &'static str, both: &'static str) -> &'static str {
        match (self.call.args.has('r'), self.call.args.has('t')) {
            (true, _) => receive,
            (_, true) => transmit,
            _ => both,
        }
    }

    fn style(&self) -> Style<'_> {
        // `all` means every field of the chosen direction, which is the default.
        let fields = self.call.args.value('o').filter(|fields| !fields.eq_ignore_ascii_case("all"));
        Style { fields, parsable: self.call.args.has('p'), right: true, ..Style::default() }
    }
}

/// Every counter of one object, one per line; `more` are those that only links have.
fn dump(
    session: &mut Session<'_>,
    name: &str,
    traffic: Traffic,
    more: &[(&str, u64)],
) -> Result<(), Failure> {
    writeln!(session.out, "{name}")?;
    let names = ["ipackets", "rbytes", "ierrors", "opackets", "obytes", "oerrors", "rfused", "ofused"];
    for (name, count) in names.into_iter().zip(traffic.counts()).chain(more.iter().copied()) {
        writeln!(session.out, "\t{name:>15}\t{count:>15}")?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_has_what_protection_stopped_in_it() {
        let read = |macspoofed| {
            let stopped = Stopped { macspoofed, ..Stopped::default() };
            vec![LinkStats {
                name: "web0".parse().expect("a name"),
                traffic: Traffic::default(),
                stopped,
                lanes: Vec::new(),
                rings: Vec::new(),
            }]
        };
        let mut before = LinksBefore::default();
        for (now, since) in [(5, 5), (7, 2), (7, 0)] {
            let mut links = read(now);
            before.subtract(&mut links);
            assert_eq!(links[0].stopped.macspoofed, since);
        }
    }
}
