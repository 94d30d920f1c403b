//! `ippool`: the pools of networks that the rules of a packet filter name, and the group maps that they call.
//!
//! All that one command says happens at once and while traffic runs: first what goes (`-F`), then what comes. Trees and hash tables
//! are the same here, so the original's types are taken and mean nothing. A time to live (`-T`) is IPFilter 5's.

use std::collections::BTreeMap;
use std::path::Path;

use firelane_api::{ApiError, Change, ChangeRequest, PoolChange, PoolsInfo};
use firelane_model::{MODEL_TEXT_MAX, NetstackName, PoolFile, PoolMember, PoolNumber, read_pools};
use serde::Serialize;

use super::{call_of, say, would_change};
use crate::common::{Call, netstack, read_text};
use crate::getopt::{Opt, flag, value};
use crate::session::{Failure, Session, die, die_status};

const USAGE: &str = "ippool -a [-dnvx] -m pool [-o role] [-t type] [-T ttl] -i [!]address[/netmask] [-z netstack]\n\
                     \x20      ippool -A [-dnvx] -m pool [-o role] [-S seed] [-t type] [-z netstack]\n\
                     \x20      ippool [-F] -f file [-dnuvx] [-z netstack]\n\
                     \x20      ippool -F [-dnvx] [-o role] [-t type] [-z netstack]\n\
                     \x20      ippool -l [-djv] [-m pool] [-o role] [-t type] [-z netstack]\n\
                     \x20      ippool -r [-dnvx] -m pool [-o role] [-t type] -i address[/netmask] [-z netstack]\n\
                     \x20      ippool -R [-dnvx] -m pool [-o role] [-t type] [-z netstack]\n\
                     \x20      ippool -s [-djv] [-o role] [-t type] [-z netstack]";

pub(crate) const OPTIONS: &[Opt] = &[
    flag('a', "add-node"),
    flag('A', "add-pool"),
    flag('d', "debug"),
    value('f', "file"),
    flag('F', "flush"),
    value('i', "address"),
    flag('j', "json"),
    flag('l', "list"),
    value('m', "pool"),
    flag('n', "no-change"),
    value('o', "role"),
    flag('r', "remove-node"),
    flag('R', "remove-pool"),
    flag('s', "statistics"),
    value('S', "seed"),
    value('t', "type"),
    value('T', "ttl"),
    flag('u', "unload"),
    flag('v', "verbose"),
    flag('x', "temporary"),
    value('z', "netstack"),
    value('N', "netstack"),
];

/// What each act needs or may have beside what all may have.
const ACTS: [(char, &str, &str); 8] = [
    ('a', "mi", "nvxT"),
    ('A', "m", "nvxS"),
    ('f', "f", "nvxuF"),
    ('F', "", "nvx"),
    ('l', "", "jvm"),
    ('r', "mi", "nvx"),
    ('R', "m", "nvx"),
    ('s', "", "jv"),
];
/// What all may have.
const COMMON: &str = "dotz";

/// Runs `ippool` with the words after its name.
pub(crate) fn run(session: &mut Session<'_>, words: &[String]) -> Result<(), Failure> {
    let call = call_of(OPTIONS, USAGE, words)?;
    let act = act_of(&call)?;
    check_words(&call)?;
    let change = change_of(session, &call, act)?;
    let netstack = netstack(session, 'z', call.args.value('z'))?;
    match change {
        Some(change) => make(session, &call, netstack, change),
        None => show(session, &call, &netstack, act == 's'),
    }
}

/// The one act that the options say, with what belongs to it.
fn act_of(call: &Call<'_>) -> Result<char, Failure> {
    let has = |letter: char| call.args.has(letter);
    // Beside a file, -F is a word about what goes before.
    let mut acts = ACTS.iter().filter(|(act, ..)| has(*act) && !(*act == 'F' && has('f')));
    let (Some(&(act, needed, more)), None) = (acts.next(), acts.next()) else { return Err(call.misused()) };
    let is_its = |letter: char| [needed, more, COMMON].iter().any(|it| it.contains(letter)) || letter == act;
    let letters = "aAdfFijlmnorRsStTuvxz";
    if letters.chars().any(|letter| has(letter) && !is_its(letter)) || !needed.chars().all(has) {
        return Err(call.misused());
    }
    if act == 'f' && has('u') && has('F') { Err(call.misused()) } else { Ok(act) }
}

/// Words of the original that mean nothing here are checked all the same.
fn check_words(call: &Call<'_>) -> Result<(), Failure> {
    match call.args.value('o') {
        None | Some("ipf" | "all") => {}
        Some(role) => return Err(die(format!("-o {role}: ipf or all (pools are the filter's)"))),
    }
    match call.args.value('t') {
        None | Some("tree" | "pool" | "hash" | "all") => {}
        Some(kind) => {
            return Err(die(format!("-t {kind}: tree, pool, hash or all (which are the same here)")));
        }
    }
    match call.args.value('S').map(str::parse::<u32>) {
        Some(Err(_)) => Err(die("-S: a number (which has no effect)")),
        _ => Ok(()),
    }
}

fn number(call: &Call<'_>) -> Result<Option<PoolNumber>, Failure> {
    let Some(text) = call.args.value('m') else { return Ok(None) };
    let number = text.parse().ok().filter(|_| text.bytes().all(|byte| byte.is_ascii_digit())).map(PoolNumber);
    number.map(Some).ok_or_else(|| die(format!("-m {text}: a pool is a number from 0 to 4294967295")))
}

/// What the act changes; nothing if it only shows.
fn change_of(session: &mut Session<'_>, call: &Call<'_>, act: char) -> Result<Option<PoolChange>, Failure> {
    let numbers = || number(call).map(|it| it.into_iter().collect::<Vec<_>>());
    let change = match act {
        'A' => PoolChange { make: numbers()?, ..PoolChange::default() },
        'R' => PoolChange { unmake: numbers()?, ..PoolChange::default() },
        'a' => PoolChange { add: node(call)?, ..PoolChange::default() },
        'r' => PoolChange { remove: node(call)?, ..PoolChange::default() },
        'F' => PoolChange { flush: true, ..PoolChange::default() },
        'f' => {
            let pools = read(session, call.args.value('f').unwrap_or_default())?;
            if call.args.has('v') {
                pools.iter().try_for_each(|(number, members)| table(session, *number, members, true))?;
            }
            match call.args.has('u') {
                true => PoolChange { unmake: pools.into_keys().collect(), ..PoolChange::default() },
                false => PoolChange { flush: call.args.has('F'), load: pools, ..PoolChange::default() },
            }
        }
        _ => return Ok(None),
    };
    Ok(Some(change))
}

/// The network of `-i`, in the pool of `-m`.
fn node(call: &Call<'_>) -> Result<BTreeMap<PoolNumber, Vec<PoolMember>>, Failure> {
    let said = call.args.value('i').unwrap_or_default();
    let (is_exception, text) = said.strip_prefix('!').map_or((false, said), |rest| (true, rest));
    let wrong = || die(format!("-i {said}: an address, with the length of its prefix or a mask"));
    let network = PoolMember::network(text).ok_or_else(wrong)?;
    let ttl = call.args.value('T').map(|text| {
        PoolMember::ttl(text).ok_or_else(|| die(format!("-T {text}: seconds, from 1 to 4294967295")))
    });
    let member = PoolMember { network, ttl: ttl.transpose()?, is_exception, group: None };
    Ok(number(call)?.into_iter().map(|number| (number, vec![member])).collect())
}

/// Reads a file; every fault is one line.
fn read(session: &mut Session<'_>, name: &str) -> Result<PoolFile, Failure> {
    let text = read_text(Path::new(name), MODEL_TEXT_MAX).map_err(die)?;
    read_pools(name, &text).map_err(|faults| say(session, &faults))
}

fn get(session: &Session<'_>, netstack: &NetstackName) -> Result<PoolsInfo, Failure> {
    session.api.pools(netstack.as_str()).map_err(|error| die_status("could not get the pools", &error))
}

fn make(
    session: &mut Session<'_>,
    call: &Call<'_>,
    netstack: NetstackName,
    change: PoolChange,
) -> Result<(), Failure> {
    let flushed = if change.flush { Some(get(session, &netstack)?.pools.len()) } else { None };
    let what = format!("cannot change the pools of netstack {netstack}");
    let change = Change::ChangePools(netstack, change);
    let request = ChangeRequest { temporary: call.args.has('x'), change };
    let done: Result<(), ApiError> = match call.args.has('n') {
        true => would_change(session, &request),
        false => session.api.change(&request),
    };
    done.map_err(|error| die_status(&what, &error))?;
    if let Some(count) = flushed {
        writeln!(session.out, "{count} object{} flushed", if count == 1 { "" } else { "s" })?;
    }
    Ok(())
}

/// What a program gets.
#[derive(Serialize)]
struct Document<'a> {
    netstack: &'a NetstackName,
    #[serde(flatten)]
    info: PoolsInfo,
}

fn show(
    session: &mut Session<'_>,
    call: &Call<'_>,
    netstack: &NetstackName,
    is_totals: bool,
) -> Result<(), Failure> {
    let mut info = get(session, netstack)?;
    if let Some(wanted) = number(call)? {
        info.pools.retain(|number, _| *number == wanted);
        if info.pools.is_empty() {
            return Err(die(format!("there is no pool {wanted} on netstack {netstack}")));
        }
    }
    if call.args.has('j') {
        return session.json("pools", &Document { netstack, info }, false);
    }
    if is_totals {
        // What lanes hold counts; they are told one after the other.
        let nodes = info.held.iter().min().copied().unwrap_or(0);
        writeln!(session.out, "Pools:\t{}", info.pools.len())?;
        return Ok(writeln!(session.out, "Nodes:\t{nodes}")?);
    }
    let is_long = call.args.has('v') || call.args.has('d');
    info.pools.iter().try_for_each(|(number, members)| table(session, *number, members, is_long))
}

/// A pool as `ippool.conf` has it.
fn table(
    session: &mut Session<'_>,
    number: PoolNumber,
    members: &[PoolMember],
    is_long: bool,
) -> Result<(), Failure> {
    let between = if is_long { "\n\t  " } else { " " };
    match members.first().and_then(|it| it.group) {
        Some(group) => writeln!(session.out, "group-map {} role = ipf number = {number}", group.word())?,
        None => writeln!(session.out, "table role = ipf type = tree number = {number}")?,
    }
    write!(session.out, "\t{{")?;
    for member in members {
        let alone = PoolMember { group: None, ..*member };
        write!(session.out, "{between}{alone}")?;
        match member.group {
            Some(group) => write!(session.out, ", group = {};", group.group)?,
            None => write!(session.out, ";")?,
        }
    }
    Ok(writeln!(session.out, "{}}};", if is_long && !members.is_empty() { "\n\t" } else { " " })?)
}
