//! `ipfstat`: the rules of a packet filter, in the form of `ipf.conf`, and what has been counted.
//!
//! Out comes before in, and a group's rules stand behind those of the main one, as the original has it. What `-i` and `-o`
//! print reads back with `ipf -f`.

use std::collections::{BTreeSet, VecDeque};
use std::num::NonZeroU32;

use firelane_api::{FilterInfo, RuleDirection, RuleInfo, StateInfo};
use firelane_model::NetstackName;
use serde::Serialize;

use super::call_of;
use crate::common::netstack;
use crate::getopt::{Opt, flag, value};
use crate::session::{Failure, Session, die_status};

const USAGE: &str = "ipfstat [-io [-hn]] [-z netstack] [-j]\n\
                     \x20      ipfstat -s [-z netstack] [-j]";

pub(crate) const OPTIONS: &[Opt] = &[
    flag('h', "hits"),
    flag('i', "in"),
    flag('j', "json"),
    flag('n', "numbers"),
    flag('o', "out"),
    flag('s', "states"),
    value('z', "netstack"),
    value('N', "netstack"),
];

/// What the original calls the lists, in the order in which they are shown.
const LISTS: [(char, RuleDirection, &str); 2] =
    [('o', RuleDirection::Out, "ipfilter(out)"), ('i', RuleDirection::In, "ipfilter(in)")];

/// What a program gets.
#[derive(Serialize)]
struct Document<'a> {
    netstack: &'a NetstackName,
    #[serde(flatten)]
    info: FilterInfo,
}

/// Runs `ipfstat` with the words after its name.
pub(crate) fn run(session: &mut Session<'_>, words: &[String]) -> Result<(), Failure> {
    let call = call_of(OPTIONS, USAGE, words)?;
    let lists: Vec<_> = LISTS.into_iter().filter(|(letter, ..)| call.args.has(*letter)).collect();
    let totals = call.args.has('s');
    let has_style = call.args.has('h') || call.args.has('n');
    if totals && !lists.is_empty() || lists.is_empty() && has_style {
        return Err(call.misused());
    }
    let netstack = netstack(session, 'z', call.args.value('z'))?;
    let info = session.api.filter(netstack.as_str());
    let mut info = info.map_err(|error| die_status("could not get the filter", &error))?;
    if call.args.has('j') {
        info.rules.retain(|it| lists.is_empty() || lists.iter().any(|(_, list, _)| list.is_of(&it.rule)));
        return session.json("filter", &Document { netstack: &netstack, info }, false);
    }
    if totals {
        return states(session, &info.states);
    }
    if lists.is_empty() {
        return packets(session, &info);
    }
    let style = Style { hits: call.args.has('h'), numbers: call.args.has('n') };
    for (_, direction, name) in lists {
        let rules: Vec<_> = info.rules.iter().filter(|it| direction.is_of(&it.rule)).collect();
        if rules.is_empty() {
            // Nobody is left to be told when the error output itself is gone.
            let _ = writeln!(session.err, "empty list for {name}");
        }
        list(session, &rules, style)?;
    }
    Ok(())
}

/// What stands before each rule.
#[derive(Clone, Copy)]
struct Style {
    hits: bool,
    numbers: bool,
}

/// The rules of one direction: the main ones, and then group by group; those without a head, to which maps lead, at the end.
fn list(session: &mut Session<'_>, rules: &[&RuleInfo], style: Style) -> Result<(), Failure> {
    let mut groups: VecDeque<Option<NonZeroU32>> = VecDeque::from([None]);
    let heads: BTreeSet<_> = rules.iter().filter_map(|it| it.rule.rule().head).collect();
    let called = rules.iter().filter_map(|it| it.rule.rule().group).filter(|group| !heads.contains(group));
    let mut called: BTreeSet<_> = called.collect();
    while let Some(group) = groups.pop_front().or_else(|| called.pop_first().map(Some)) {
        if let Some(number) = group {
            writeln!(session.out, "# Group {number}")?;
        }
        let members = rules.iter().filter(|it| it.rule.rule().group == group);
        for (number, it) in (1..).zip(members) {
            if style.hits {
                write!(session.out, "{} ", it.packets)?;
            }
            if style.numbers {
                write!(session.out, "@{number} ")?;
            }
            writeln!(session.out, "{}", it.rule)?;
            groups.extend(it.rule.rule().head.map(Some));
        }
    }
    Ok(())
}

fn packets(session: &mut Session<'_>, info: &FilterInfo) -> Result<(), Failure> {
    for (what, it) in [(" input packets:", info.inward), ("output packets:", info.outward)] {
        writeln!(session.out, "{what}\t\tblocked {} passed {}", it.blocked, it.passed)?;
    }
    Ok(())
}

fn states(session: &mut Session<'_>, it: &StateInfo) -> Result<(), Failure> {
    writeln!(session.out, "IP states:")?;
    let lines = [
        (it.added, "added"),
        (it.hits, "hits"),
        (it.out_of_window, "out of window"),
        (it.full, "found no place"),
        (it.rule_full, "over the limit of their rule"),
        (it.active, "active"),
        (it.expired, "expired"),
        (it.evicted, "gave way to others"),
    ];
    for (count, what) in lines {
        writeln!(session.out, "\t{count} {what}")?;
    }
    Ok(())
}
