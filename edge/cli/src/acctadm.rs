//! `acctadm`: accounting of links and flows to a file.
//!
//! Of the original's types of accounting there is `net`; its resources are two groups of items, and the items. The daemon keeps a
//! history of all links and flows in any case (`show-usage`): this is for records that somebody else reads, in a place that the
//! operator chooses.

use std::collections::BTreeMap;
use std::path::absolute;

use firelane_api::{AccountingChange, AccountingInfo, Change, ChangeRequest, Status};
use firelane_model::Tracked;

use crate::common::Call;
use crate::getopt::{Opt, flag, value};
use crate::session::{Failure, Session, die, die_status};

const USAGE: &str = "acctadm [-DEjrstx] [-d resource_list] [-e resource_list] [-f filename] [net]";

pub(crate) const OPTIONS: &[Opt] = &[
    flag('D', "disable-keeping-file"),
    flag('E', "enable-without-file"),
    flag('r', "resources"),
    flag('s', "start"),
    flag('x', "deactivate"),
    value('d', "disable"),
    value('e', "enable"),
    value('f', "file"),
    flag('j', "json"),
    flag('t', "temporary"),
];

/// Runs `acctadm` with the words after its name.
pub(crate) fn run(session: &mut Session<'_>, words: &[String]) -> Result<(), Failure> {
    let call = Call::of(OPTIONS, USAGE, words).map_err(|failure| match failure {
        Failure::Die(message) => Failure::Text(format!("acctadm: {message}")),
        other => other,
    })?;
    let has = |letter| call.args.has(letter);
    let changes = ['D', 'E', 'x', 'd', 'e', 'f'].into_iter().any(has);
    match call.optional_operand()? {
        None if changes => {
            return Err(Failure::Text("acctadm: specify accounting type: net".to_owned()));
        }
        None | Some("net") => {}
        Some(kind @ ("task" | "process" | "flow")) => {
            let why = "links and flows are accounted of: net";
            return Err(die(format!("{kind}: {} ({why})", Status::NotSupported.text())));
        }
        Some(kind) => return Err(die(format!("unknown accounting type {kind} (net)"))),
    }
    if has('s') {
        let why = "the daemon keeps accounting over a restart";
        return Err(die(format!("-s: {} ({why})", Status::NotSupported.text())));
    }
    if has('r') {
        return resources(session, &call, changes);
    }
    if !changes {
        return if has('t') { Err(call.misused()) } else { show(session, &call) };
    }
    if has('j') {
        return Err(call.misused());
    }
    change(session, &call)
}

fn get(session: &Session<'_>) -> Result<AccountingInfo, Failure> {
    session.api.accounting().map_err(|error| die_status("cannot get accounting", &error))
}

/// -r: what may be tracked.
fn resources(session: &mut Session<'_>, call: &Call<'_>, changes: bool) -> Result<(), Failure> {
    if changes || call.args.has('t') {
        return Err(call.misused());
    }
    let groups = [("extended", Tracked::EXTENDED), ("basic", Tracked::BASIC)];
    if call.args.has('j') {
        let listed = |items: String| items.split(',').map(str::to_owned).collect::<Vec<_>>();
        let groups: BTreeMap<_, _> = groups.map(|(name, group)| (name, listed(group.items()))).into();
        return session.json("resources", &groups, false);
    }
    if call.args.operands.is_empty() {
        writeln!(session.out, "net:")?;
    }
    for (name, group) in groups {
        writeln!(session.out, "{name:<8} {}", group.items())?;
    }
    Ok(())
}

/// What a list of resources names: a group, if there is one, and single items.
fn resource_list(list: &str) -> Result<(Option<Tracked>, Tracked), Failure> {
    let (mut group, mut items) = (None, Tracked::NONE);
    for word in list.split(',') {
        match (word, Tracked::item(word)) {
            ("basic", _) => group = group.or(Some(Tracked::BASIC)),
            ("extended", _) => group = Some(Tracked::EXTENDED),
            (_, Some(item)) => items = items.with(item),
            _ => {
                let all = Tracked::ITEMS.join(", ");
                return Err(die(format!("unknown net resource '{word}' (basic, extended, {all})")));
            }
        }
    }
    Ok((group, items))
}

/// What `-d` takes away: a group has the links, without which nothing is left.
fn disabled(list: &str) -> Result<Tracked, Failure> {
    let (group, items) = resource_list(list)?;
    if group.is_some() {
        return Ok(Tracked::EXTENDED);
    }
    let is_kept = |word: &&str| Tracked::item(word).is_some_and(|item| Tracked::ALWAYS.has(item));
    match list.split(',').find(is_kept) {
        None => Ok(items),
        Some(word) => {
            let why = "a record says whose it is and of when: name, curtime, seconds";
            Err(die(format!("{word}: {} ({why})", Status::NotSupported.text())))
        }
    }
}

fn change(session: &mut Session<'_>, call: &Call<'_>) -> Result<(), Failure> {
    let has = |letter| call.args.has(letter);
    if ['D', 'E', 'x'].into_iter().filter(|letter| has(*letter)).count() > 1
        || has('f') && (has('D') || has('E') || has('x'))
    {
        return Err(call.misused());
    }
    let mut change = AccountingChange::default();
    if let Some(list) = call.args.value('e') {
        let (group, items) = resource_list(list)?;
        change.net = group;
        change.enable = Some(items).filter(|items| *items != Tracked::NONE);
    }
    if let Some(list) = call.args.value('d') {
        change.disable = Some(disabled(list)?);
    }
    if let Some(file) = call.args.value('f') {
        // The daemon has another folder.
        let path = absolute(file).map_err(|_| die(format!("-f {file}: the name of a file")))?;
        let path = path.to_str().map(str::to_owned);
        change.file = Some(path.ok_or_else(|| die(format!("-f {file}: not UTF-8")))?);
        change.active = Some(true);
    }
    if has('x') {
        (change.active, change.file) = (Some(false), Some(String::new()));
    }
    if has('D') {
        change.active = Some(false);
    }
    if has('E') {
        (change.active, change.file) = (Some(true), Some(String::new()));
    }
    let request = ChangeRequest { temporary: has('t'), change: Change::SetAccounting(change) };
    session.api.change(&request).map_err(|error| die_status("cannot change net accounting", &error))
}

fn show(session: &mut Session<'_>, call: &Call<'_>) -> Result<(), Failure> {
    let info = get(session)?;
    if call.args.has('j') {
        return session.json("accounting", &info, false);
    }
    let it = &info.accounting;
    let (tracked, untracked) = match it.net {
        Tracked::NONE | Tracked::BASIC => (it.net.words(), "extended".to_owned()),
        Tracked::EXTENDED => (it.net.words(), "none".to_owned()),
        some => (some.items(), some.rest().items()),
    };
    let active = if it.active { "active" } else { "inactive" };
    let rows = [
        ("Net accounting", active),
        ("Net accounting file", it.file.as_deref().unwrap_or("none")),
        ("Tracked net resources", &tracked),
        ("Untracked net resources", &untracked),
    ];
    for (name, value) in rows {
        writeln!(session.out, "{name:>27}: {value}")?;
    }
    if let Some(fault) = &info.fault {
        session.warn("acctadm", fault);
    }
    Ok(())
}
