//! `ipnat`: rules of a netstack's address translation, from a file in the language of ipnat(5), and what they have made.
//!
//! All that one command says happens at once, as with `ipf`: first what goes (`-C`, `-r`), then what comes; sessions are ended
//! (`-F`) before the rules change, if these may. Lists are those of the original, line by line.
//!
//! Limits are tuned with `-T`, as the original's are with that option of its `ipf`; here each netstack has its own.

use std::path::Path;

use firelane_api::{
    ApiError, Change, ChangeRequest, NatChange, NatInfo, NatLimitInfo, NatSession, NatTotals, PropChange,
};
use firelane_model::{IpnatFile, MODEL_TEXT_MAX, NetstackName};
use serde::Serialize;

use super::{call_of, say, told, would_change};
use crate::common::{Call, netstack, read_text};
use crate::getopt::{Opt, flag, value};
use crate::session::{Failure, Session, die, die_status};

const USAGE: &str = "ipnat [-CFhlnrstv] [-z netstack] [-f file] [-j]\n\
                     \x20      ipnat -T list|limit[=value],... [-nt] [-z netstack] [-j]";

pub(crate) const OPTIONS: &[Opt] = &[
    flag('C', "clear"),
    flag('F', "flush"),
    value('f', "file"),
    flag('h', "hits"),
    flag('j', "json"),
    flag('l', "list"),
    flag('n', "no-change"),
    flag('r', "remove"),
    flag('s', "statistics"),
    flag('t', "temporary"),
    value('T', "tune"),
    flag('v', "verbose"),
    value('z', "netstack"),
    value('N', "netstack"),
];

/// Runs `ipnat` with the words after its name.
pub(crate) fn run(session: &mut Session<'_>, words: &[String]) -> Result<(), Failure> {
    let call = call_of(OPTIONS, USAGE, words)?;
    let has = |letter| call.args.has(letter);
    if let Some(list) = call.args.value('T') {
        if [shows_or_acts(&call), has('h'), has('r'), has('v')].contains(&true) {
            return Err(call.misused());
        }
        return tune(session, &call, list);
    }
    let (shows, acts) = (has('l') || has('s'), has('C') || has('F') || has('f'));
    let alone = (has('r') || has('t')) && !has('f') && !has('C');
    if !shows && !acts || alone || has('r') && !has('f') || (has('h') || has('j')) && !shows {
        return Err(call.misused());
    }
    let file = call.args.value('f').map(|name| read(session, name)).transpose()?;
    let netstack = netstack(session, 'z', call.args.value('z'))?;
    if has('v') {
        for line in file.iter().flat_map(|file| &file.lines) {
            writeln!(session.out, "{}", line.rule)?;
        }
    }
    if acts {
        change(session, &call, &netstack, file.as_ref())?;
    }
    if shows { show(session, &call, &netstack) } else { Ok(()) }
}

fn shows_or_acts(call: &Call<'_>) -> bool {
    ['l', 's', 'C', 'F', 'f'].iter().any(|letter| call.args.has(*letter))
}

/// `-T`: shows the limits that are named, or all for `list`, and sets those that have a value; `usual` takes it back.
fn tune(session: &mut Session<'_>, call: &Call<'_>, list: &str) -> Result<(), Failure> {
    let netstack = netstack(session, 'z', call.args.value('z'))?;
    let (set, shown): (Vec<&str>, Vec<&str>) = list.split(',').partition(|part| part.contains('='));
    if !set.is_empty() && call.args.has('j') || set.is_empty() && (call.args.has('n') || call.args.has('t')) {
        return Err(call.misused());
    }
    let before = get(session, &netstack)?.limits;
    let is_known = |name: &str| name == "list" || before.iter().any(|it| it.limit == name);
    if let Some(name) = shown.iter().find(|name| !is_known(name)) {
        let names: Vec<&str> = before.iter().map(|it| it.limit.as_str()).collect();
        return Err(die(format!("-T {name}: list, {}", names.join(", "))));
    }
    if !set.is_empty() {
        let of = |part: &&str| {
            let (name, value) = part.split_once('=').unwrap_or_default();
            PropChange {
                name: name.to_owned(),
                value: Some(value).filter(|it| *it != "usual").map(str::to_owned),
            }
        };
        let change = Change::SetNatLimits(netstack.clone(), set.iter().map(of).collect());
        let request = ChangeRequest { temporary: call.args.has('t'), change };
        let only_asks = call.args.has('n');
        let done = if only_asks { would_change(session, &request) } else { session.api.change(&request) };
        done.map_err(|error| {
            die_status(&format!("cannot tune the translation of netstack {netstack}"), &error)
        })?;
    }
    let mut limits = get(session, &netstack)?.limits;
    limits.retain(|it| shown.iter().any(|name| *name == "list" || *name == it.limit));
    if call.args.has('j') {
        return session.json("nat", &Limits { netstack: &netstack, limits }, false);
    }
    for NatLimitInfo { limit, current, default, possible } in limits {
        writeln!(session.out, "{limit}\tcurrent {current}\tdefault {default}\tpossible {possible}")?;
    }
    Ok(())
}

/// What a program gets of `-T`.
#[derive(Serialize)]
struct Limits<'a> {
    netstack: &'a NetstackName,
    limits: Vec<NatLimitInfo>,
}

/// Reads a file; every fault is one line.
fn read(session: &mut Session<'_>, name: &str) -> Result<IpnatFile, Failure> {
    let text = read_text(Path::new(name), MODEL_TEXT_MAX).map_err(die)?;
    IpnatFile::read(name, &text).map_err(|faults| say(session, &faults))
}

fn get(session: &Session<'_>, netstack: &NetstackName) -> Result<NatInfo, Failure> {
    let info = session.api.nat(netstack.as_str());
    info.map_err(|error| die_status("could not get the translation", &error))
}

/// Ends sessions and changes rules, as far as the options say.
fn change(
    session: &mut Session<'_>,
    call: &Call<'_>,
    netstack: &NetstackName,
    file: Option<&IpnatFile>,
) -> Result<(), Failure> {
    let (clears, only_asks) = (call.args.has('C'), call.args.has('n'));
    let before = get(session, netstack)?;
    let rules: Vec<_> = file.iter().flat_map(|file| file.lines.iter().map(|it| it.rule.clone())).collect();
    let (remove, add) = if call.args.has('r') { (rules, Vec::new()) } else { (Vec::new(), rules) };
    let change = Change::ChangeNat(netstack.clone(), NatChange { clear: clears, remove, add });
    let request = ChangeRequest { temporary: call.args.has('t'), change };
    let changes = file.is_some() || clears;
    let refused = |session: &mut Session<'_>, error: &ApiError| {
        let place = file.and_then(|file| Some((file.name.clone(), file.line_of(&error.value)?)));
        let what = format!("cannot change the translation of netstack {netstack}");
        told(session, ("nat", place), &what, error)
    };
    // No session ends for rules that are refused.
    if changes && (only_asks || call.args.has('F')) {
        would_change(session, &request).map_err(|error| refused(session, &error))?;
    }
    if call.args.has('F') {
        let flushed = match only_asks {
            true => before.totals.sessions,
            false => session.api.flush_nat(netstack.as_str())?,
        };
        writeln!(session.out, "{flushed} entries flushed from NAT table")?;
    }
    if changes && !only_asks {
        session.api.change(&request).map_err(|error| refused(session, &error))?;
    }
    if clears {
        writeln!(session.out, "{} entries cleared from NAT list", before.rules.len())?;
    }
    Ok(())
}

/// What a program gets.
#[derive(Serialize)]
struct Document<'a> {
    netstack: &'a NetstackName,
    #[serde(flatten)]
    info: NatInfo,
    #[serde(skip_serializing_if = "Option::is_none")]
    sessions: Option<Vec<NatSession>>,
}

fn show(session: &mut Session<'_>, call: &Call<'_>, netstack: &NetstackName) -> Result<(), Failure> {
    let info = get(session, netstack)?;
    let sessions = match call.args.has('l') {
        true => Some(session.api.nat_sessions(netstack.as_str())?),
        false => None,
    };
    if call.args.has('j') {
        return session.json("nat", &Document { netstack, info, sessions }, false);
    }
    if call.args.has('s') {
        totals(session, &info)?;
    }
    let Some(sessions) = sessions else { return Ok(()) };
    writeln!(session.out, "List of active MAP/Redirect filters:")?;
    for it in &info.rules {
        if call.args.has('h') {
            write!(session.out, "{} ", it.made)?;
        }
        writeln!(session.out, "{}", it.rule)?;
    }
    writeln!(session.out, "\nList of active sessions:")?;
    for it in &sessions {
        let NatSession { kind, inside, outside, peer, .. } = it;
        let port = |port: u16| if port == 0 { String::new() } else { port.to_string() };
        let (from, to) = (port(it.inside_port), port(it.outside_port));
        let space = if it.peer_port == 0 { "" } else { " " };
        let inside = inside.to_string();
        let outside = outside.to_string();
        let at = port(it.peer_port);
        writeln!(
            session.out,
            "{kind} {inside:<15} {from:<5} <- -> {outside:<15} {to:<5} [{peer}{space}{at}]"
        )?;
        if call.args.has('v') {
            writeln!(session.out, "\tttl {} pr {} {}", it.ttl, it.protocol, it.phase)?;
        }
    }
    Ok(())
}

fn totals(session: &mut Session<'_>, info: &NatInfo) -> Result<(), Failure> {
    let NatTotals { inward, outward, errors, ended, sessions, half_open, mappings, added, .. } = info.totals;
    let NatTotals { expired, evicted, flushed, waiting, early, given_up, .. } = info.totals;
    let rules = info.rules.len();
    let lines = [
        format!("mapped\tin\t{inward}\tout\t{outward}"),
        format!("added\t{added}\texpired\t{expired}"),
        format!("evicted\t{evicted}\tflushed\t{flushed}"),
        format!("errors\t{errors}\tbad nat\t{ended}"),
        format!("inuse\t{sessions}\thalf open\t{half_open}"),
        format!("mappings\t{mappings}"),
        format!("early fragments\t{early}\twaiting\t{waiting}\tgiven up\t{given_up}"),
        format!("rules\t{rules}"),
    ];
    for line in lines {
        writeln!(session.out, "{line}")?;
    }
    Ok(())
}
