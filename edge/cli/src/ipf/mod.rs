//! `ipf`: rules of a netstack's packet filter, from files in the language of ipf(5); `ipfstat` shows them; `ipnat` is of
//! address translation, `ippool` of pools.
//!
//! The original makes one system call per rule; here all that one command says happens at once, first what goes (`-F`,
//! `-r`), then what comes. What is wrong with a line is told as `FILE:LINE: "token": what is allowed`, and nothing happens.

pub(crate) mod nat;
pub(crate) mod pool;
pub(crate) mod stat;

use std::path::Path;
use std::time::SystemTime;

use firelane_api::{ApiError, Change, ChangeRequest, FilterChange, RuleDirection, Status, Store, Which};
use firelane_model::{FileError, IpfFile, MODEL_TEXT_MAX};

use crate::common::{Call, netstack, read_text};
use crate::getopt::{Opt, flag, value, values};
use crate::session::{Failure, Session, die, die_status};

const USAGE: &str = "ipf [-nrtv] [-z netstack] [-F i|o|a] [-f file]...";

pub(crate) const OPTIONS: &[Opt] = &[
    values('f', "file"),
    value('F', "flush"),
    flag('n', "no-change"),
    flag('r', "remove"),
    flag('t', "temporary"),
    flag('v', "verbose"),
    value('z', "netstack"),
    value('N', "netstack"),
];

/// The options' words taken apart.
fn call_of(options: &[Opt], usage: &'static str, words: &[String]) -> Result<Call<'static>, Failure> {
    let call = Call::of(options, usage, words)?;
    if call.args.operands.is_empty() { Ok(call) } else { Err(call.misused()) }
}

/// Runs `ipf` with the words after its name.
pub(crate) fn run(session: &mut Session<'_>, words: &[String]) -> Result<(), Failure> {
    let call = call_of(OPTIONS, USAGE, words)?;
    let (removes, has_files) = (call.args.has('r'), call.args.has('f'));
    if !has_files && (removes || !call.args.has('F')) {
        return Err(call.misused());
    }
    let flush = flushed(call.args.value('F'))?;
    let files = call.args.values('f').map(|name| read(session, name)).collect::<Result<Vec<_>, _>>()?;
    let rules = || files.iter().flat_map(|file| file.lines.iter().map(|it| it.rule.clone()));
    let mut change = FilterChange { flush, ..FilterChange::default() };
    match removes {
        true => change.remove = rules().map(|it| it.rule).collect(),
        false => change.add = rules().collect(),
    }
    let netstack = netstack(session, 'z', call.args.value('z'))?;
    if call.args.has('v') {
        for rule in rules() {
            writeln!(session.out, "{rule}")?;
        }
    }
    let what = format!("cannot change the filter of netstack {netstack}");
    let temporary = call.args.has('t');
    let request = ChangeRequest { temporary, change: Change::ChangeFilter(netstack, change) };
    let done = match call.args.has('n') {
        true => would_change(session, &request),
        false => session.api.change(&request),
    };
    done.map_err(|error| {
        let place =
            files.iter().rev().find_map(|file| Some((file.name.clone(), file.line_of(&error.value)?)));
        told(session, ("filter", place), &what, &error)
    })
}

/// The directions of `-F`'s letter.
fn flushed(letter: Option<&str>) -> Result<Vec<RuleDirection>, Failure> {
    match letter {
        None => Ok(Vec::new()),
        Some("a") => Ok(RuleDirection::ALL.to_vec()),
        Some("i") => Ok(vec![RuleDirection::In]),
        Some("o") => Ok(vec![RuleDirection::Out]),
        Some(other) => Err(die(format!("-F {other}: i (rules of packets in), o (out) or a (all)"))),
    }
}

/// Reads a file; every fault is one line.
fn read(session: &mut Session<'_>, name: &str) -> Result<IpfFile, Failure> {
    let text = read_text(Path::new(name), MODEL_TEXT_MAX).map_err(die)?;
    IpfFile::read(name, &text).map_err(|faults| say(session, &faults))
}

fn say(session: &mut Session<'_>, faults: &[FileError]) -> Failure {
    // Nobody is left to be told when the error output itself is gone.
    let _ = faults.iter().try_for_each(|fault| writeln!(session.err, "{fault}"));
    Failure::Said
}

/// Whether the change could be made, which is not made.
fn would_change(session: &mut Session<'_>, request: &ChangeRequest) -> Result<(), ApiError> {
    let active = session.api.model(Which::Active)?;
    let persistent = session.api.model(Which::Persistent)?;
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs();
    Store { active, persistent }.changed(&request.clone().at(now)).map(drop)
}

/// A refusal that is about a rule, as the field `of` says, is told of the rule's file and line, if it stands in one.
fn told(
    session: &mut Session<'_>,
    (of, place): (&str, Option<(String, usize)>),
    what: &str,
    error: &ApiError,
) -> Failure {
    let is_of_rules = error.field.rsplit('.').next() == Some(of);
    match place.filter(|_| is_of_rules) {
        Some((file, line)) => {
            let before = match error.status {
                Status::TemporaryBelow => format!("{}: ", error.status.text()),
                _ => String::new(),
            };
            let message = format!("{:?}: {before}{}", error.value, error.allowed);
            say(session, &[FileError { file, line, message }])
        }
        None => die_status(what, error),
    }
}
