//! What commands share: verbs and their usage, property lists, intervals, names, netstacks, files.

use std::fmt;
use std::fs::File;
use std::io::Read;
use std::ops::RangeInclusive;
use std::path::Path;
use std::str::FromStr;
use std::time::Duration;

use firelane_api::{ApiError, PropChange, Status, Which};
use firelane_model::NetstackName;
use firelane_units::IpPrefix;

use crate::getopt::{self, Args, Opt, OptError};
use crate::session::{Failure, Session, die};

/// A subcommand: its names, its usage, its options and what it does.
pub(crate) struct Verb {
    pub(crate) names: &'static [&'static str],
    pub(crate) usage: &'static str,
    pub(crate) options: &'static [Opt],
    pub(crate) run: fn(&mut Session<'_>, &Call<'_>) -> Result<(), Failure>,
}

/// A subcommand's call.
pub(crate) struct Call<'a> {
    pub(crate) args: Args,
    pub(crate) usage: &'a str,
}

impl<'a> Call<'a> {
    /// Takes `words` apart by `options`.
    pub(crate) fn of(options: &[Opt], usage: &'a str, words: &[String]) -> Result<Self, Failure> {
        let args = getopt::parse(options, words).map_err(|error| match &error {
            OptError::Unknown(option) if is_help(option) => Failure::Help(format!("usage: {usage}")),
            OptError::Twice(_) => die(error.to_string()),
            _ => die(format!("{error}\nusage: {usage}")),
        })?;
        // A document has all there is, under names of its own, and a line with the time is none.
        let given = |long: &str| options.iter().find(|it| it.long() == long && args.has(it.letter()));
        let of_tables = ["output", "parsable", "unit", "timestamp"].into_iter().find_map(given);
        if let Some((json, other)) = given("json").zip(of_tables) {
            let (json, other) = (json.letter(), other.letter());
            return Err(die(format!("the option -{json} is not compatible with -{other}\nusage: {usage}")));
        }
        Ok(Self { args, usage })
    }

    /// The failure that shows how the subcommand is used.
    pub(crate) fn misused(&self) -> Failure {
        Failure::Text(format!("usage: {}", self.usage))
    }

    /// The only operand.
    pub(crate) fn operand(&self) -> Result<&str, Failure> {
        match self.args.operands.as_slice() {
            [only] => Ok(only),
            _ => Err(self.misused()),
        }
    }

    /// The only operand, if there is one.
    pub(crate) fn optional_operand(&self) -> Result<Option<&str>, Failure> {
        match self.args.operands.as_slice() {
            [] => Ok(None),
            [only] => Ok(Some(only)),
            _ => Err(self.misused()),
        }
    }

    /// The interval of `-i`.
    pub(crate) fn interval(&self) -> Result<Option<Duration>, Failure> {
        let Some(text) = self.args.value('i') else { return Ok(None) };
        let plain = text.bytes().all(|b| b.is_ascii_digit());
        let seconds = text.parse::<u32>().ok().filter(|&seconds| plain && seconds > 0);
        let seconds = seconds.ok_or_else(|| die(format!("invalid interval value '{text}'")))?;
        Ok(Some(Duration::from_secs(seconds.into())))
    }

    /// An alternate root belongs to a file tree that Firelane does not have.
    pub(crate) fn no_root(&self) -> Result<(), Failure> {
        match self.args.value('R') {
            None => Ok(()),
            Some(root) => {
                let instead = "firelane dump writes the configuration and apply reads it";
                Err(die(format!("-R {root}: {} ({instead})", Status::NotSupported.text())))
            }
        }
    }
}

/// Finds the subcommand `words[0]` and runs it.
pub(crate) fn run_verb(
    session: &mut Session<'_>,
    program: &str,
    verbs: &[Verb],
    words: &[String],
) -> Result<(), Failure> {
    let Some((name, rest)) = words.split_first() else { return Err(Failure::Text(usage(program, verbs))) };
    let find = |name: &str| {
        let unknown = || die(format!("unknown subcommand '{name}'\n{}", usage(program, verbs)));
        verbs.iter().find(|verb| verb.names.contains(&name)).ok_or_else(unknown)
    };
    match rest.first() {
        Some(of) if name == "help" => Err(Failure::Help(format!("usage: {}", find(of)?.usage))),
        _ if name == "help" || is_help(name) => Err(Failure::Help(usage(program, verbs))),
        _ => call(session, find(name)?, rest),
    }
}

/// Runs `verb` with the words after its name.
pub(crate) fn call(session: &mut Session<'_>, verb: &Verb, words: &[String]) -> Result<(), Failure> {
    (verb.run)(session, &Call::of(verb.options, verb.usage, words)?)
}

/// Whether the word asks how a command is used. No command has an option of that name, while `-h` is one of some.
fn is_help(word: &str) -> bool {
    matches!(word, "--help" | "-?")
}

fn usage(program: &str, verbs: &[Verb]) -> String {
    let lines: String = verbs.iter().map(|verb| format!("\n    {}", verb.usage)).collect();
    format!("usage: {program} <subcommand> <args>...{lines}")
}

/// Reads the number that an option of clap's has for a value.
pub(crate) fn number<T: FromStr + PartialOrd + fmt::Display>(
    text: &str,
    range: RangeInclusive<T>,
) -> Result<T, String> {
    let read = text.parse().ok().filter(|number| range.contains(number));
    read.ok_or_else(|| format!("a number from {} to {}", range.start(), range.end()))
}

/// Reads the address of an interface that an option of clap's has for a value.
pub(crate) fn prefix(text: &str) -> Result<IpPrefix, String> {
    let read = IpPrefix::of_interface(text);
    read.ok_or_else(|| "an address with its prefix length, such as 10.7.0.1/24".to_owned())
}

/// What `-p` says of properties; nothing without it. `what` is invalid if it is malformed.
pub(crate) fn said_props(call: &Call<'_>, what: &str) -> Result<Vec<PropChange>, Failure> {
    let texts: Vec<_> = call.args.values('p').collect();
    if texts.is_empty() {
        return Ok(Vec::new());
    }
    let wrong = || die(format!("invalid {what} ({}: property=value[,...], each once)", texts.join(",")));
    prop_list(&texts).ok_or_else(wrong)
}

/// Splits `name=value,...`; a value goes on over a comma if what follows has no equals sign. None if a
/// part has no name, if values are needed and one is missing, or if a property is named twice. Names may be in any case, as in the
/// library of the original.
fn prop_list(texts: &[&str]) -> Option<Vec<PropChange>> {
    let mut list: Vec<PropChange> = Vec::new();
    for text in texts {
        let mut open = false;
        for part in text.split(',') {
            match (part.split_once('='), list.last_mut()) {
                (Some((name, value)), _) if !name.is_empty() && !value.is_empty() => {
                    let name = name.to_ascii_lowercase();
                    if list.iter().any(|it| it.name == name) {
                        return None;
                    }
                    list.push(PropChange { name, value: Some(value.to_owned()) });
                    open = true;
                }
                (None, Some(last)) if open && !part.is_empty() => {
                    if let Some(value) = &mut last.value {
                        value.push(',');
                        value.push_str(part);
                    }
                }
                _ => return None,
            }
        }
    }
    (!list.is_empty()).then_some(list)
}

/// The names of properties of links or flows that `-p` says, in any case.
pub(crate) fn prop_names(texts: &[&str]) -> Option<Vec<String>> {
    name_list(&texts.iter().map(|text| text.to_ascii_lowercase()).collect::<Vec<_>>())
}

/// Splits `name,...`. None if a part is empty or has a value.
pub(crate) fn name_list<T: AsRef<str>>(texts: &[T]) -> Option<Vec<String>> {
    let parts: Vec<_> = texts.iter().flat_map(|text| text.as_ref().split(',')).map(str::to_owned).collect();
    parts.iter().all(|part| !part.is_empty() && !part.contains('=')).then_some(parts)
}

/// Says what is wrong with a property in the words that `dladm` and `flowadm` share.
pub(crate) fn prop_failure(
    session: &mut Session<'_>,
    program: &str,
    kind: &str,
    object: &str,
    reset: bool,
    error: &ApiError,
) -> Failure {
    let (name, value) = (error.field.as_str(), error.value.as_str());
    let message = match error.status {
        Status::NoDaemon => return error.clone().into(),
        Status::BadProperty => format!("invalid {kind} property '{name}'{}", allowed(error)),
        // What is allowed is a list of words, or else a sentence.
        Status::BadValue if !error.allowed.contains(' ') => {
            format!("{kind} property '{name}' must be one of: {}", error.allowed)
        }
        Status::BadValue => {
            format!("{value} is an invalid value for {kind} property {name}{}", allowed(error))
        }
        _ => {
            let verb = if reset { "reset" } else { "set" };
            // What is refused may be the object and not one of its properties.
            let is_object = name.is_empty() || error.status == Status::Io;
            let which = if is_object { String::new() } else { format!(" '{name}'") };
            format!("cannot {verb} {kind} property{which} on '{object}': {error}")
        }
    };
    session.warn(program, &message);
    Failure::Said
}

/// The netstack that the option `letter` names; without it `default`, or the only one.
pub(crate) fn netstack(
    session: &mut Session<'_>,
    letter: char,
    given: Option<&str>,
) -> Result<NetstackName, Failure> {
    let failed = "Could not get netstack";
    if let Some(text) = given {
        let bad = Status::BadName.text();
        return text.parse().map_err(|error| die(format!("{failed}: {bad} (-{letter} {text}: {error})")));
    }
    let all = session.api.netstacks(Which::Active)?;
    let names: Vec<_> = all.into_iter().map(|it| it.name).collect();
    if let Some(name) = names.iter().find(|name| name.as_str() == "default") {
        return Ok(name.clone());
    }
    match names.as_slice() {
        [only] => Ok(only.clone()),
        [] => Err(die(format!("{failed}: there is none; ipadm create-if makes one"))),
        many => {
            let list: Vec<_> = many.iter().map(ToString::to_string).collect();
            Err(die(format!("{failed}: -{letter} must name one of {}", list.join(", "))))
        }
    }
}

/// The text of `file`, - being the standard input, or why there is none. A text longer than `most` is cut behind that, so
/// that whoever takes it apart refuses it.
pub(crate) fn read_text(file: &Path, most: usize) -> Result<String, String> {
    let name = file.display();
    let mut bytes = Vec::new();
    // One byte more than allowed shows that there are too many.
    let limit = most as u64 + 1;
    let read = match file.as_os_str() == "-" {
        true => std::io::stdin().lock().take(limit).read_to_end(&mut bytes),
        false => File::open(file).and_then(|opened| opened.take(limit).read_to_end(&mut bytes)),
    };
    read.map_err(|error| format!("{name}: {}", system_message(&error)))?;
    String::from_utf8(bytes).map_err(|error| {
        let before = &error.as_bytes()[..error.utf8_error().valid_up_to()];
        format!("{name}:{}: not UTF-8", 1 + before.iter().filter(|&&byte| byte == b'\n').count())
    })
}

/// The system's message without its ` (os error 2)`.
pub(crate) fn system_message(error: &std::io::Error) -> String {
    plain(&error.to_string())
}

/// A message without any ` (os error 2)`, which says the same again to nobody.
pub(crate) fn plain(message: &str) -> String {
    let mut parts = message.split(" (os error ");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |text, part| text + part.split_once(')').map_or("", |(_, after)| after))
}

fn allowed(error: &ApiError) -> String {
    if error.allowed.is_empty() { String::new() } else { format!(" ({})", error.allowed) }
}

#[cfg(test)]
pub(crate) mod testing {
    //! A session whose outputs are strings.

    use super::*;
    use firelane_api::Stub;
    use firelane_model::Model;

    /// Runs `command` and gives both outputs.
    pub(crate) fn capture(
        rows: Option<usize>,
        command: impl FnOnce(&mut Session<'_>) -> Result<(), Failure>,
    ) -> (String, String) {
        let stub = Stub::new(Model::default(), |_, _| Vec::new());
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let mut session = Session { api: &stub, out: &mut out, err: &mut err, rows, sleep: &mut |_| false };
        let result = command(&mut session);
        session.report("prog", result, 1);
        (String::from_utf8(out).unwrap(), String::from_utf8(err).unwrap())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_systems_numbers_are_left_out_wherever_they_stand() {
        let not_found = std::io::Error::from_raw_os_error(2);
        let said = plain(&format!("/a: {not_found}; /b: {not_found}: no (plot)"));
        assert_eq!(said, "/a: No such file or directory; /b: No such file or directory: no (plot)");
        assert_eq!(plain(&format!("{not_found}")), system_message(&not_found));
        assert_eq!(plain("a rule (1)"), "a rule (1)");
    }

    #[test]
    fn property_lists() {
        let list = |text: &str| {
            prop_list(&[text]).map(|list| {
                list.into_iter()
                    .map(|p| format!("{}:{}", p.name, p.value.unwrap()))
                    .collect::<Vec<_>>()
                    .join(" ")
            })
        };
        assert_eq!(list("maxbw=50M,priority=low").as_deref(), Some("maxbw:50M priority:low"));
        assert_eq!(list("cpus=0,1,priority=low").as_deref(), Some("cpus:0,1 priority:low"));
        assert_eq!(
            list("MaxBW=50M,allowed-dhcp-cids=Host").as_deref(),
            Some("maxbw:50M allowed-dhcp-cids:Host")
        );
        assert_eq!(prop_names(&["MAXBW,Mtu"]), Some(["maxbw", "mtu"].map(str::to_owned).to_vec()));
        for bad in
            ["", "maxbw", "=5", "maxbw=", "maxbw=5,,x=1", "5,maxbw=1", "maxbw=5,maxbw=6", "maxbw=5,MAXBW=6"]
        {
            assert_eq!(list(bad), None, "{bad:?}");
        }
        assert_eq!(name_list(&["a,b", "c"]), Some(["a", "b", "c"].map(str::to_owned).to_vec()));
        assert_eq!(name_list(&["a=1"]), None);
    }
}
