//! The command: `firelane` with its own verbs, and the Solaris commands as subcommands or by name.
//!
//! A command is a function of a [`Session`] (the interface to the daemon, two outputs, the terminal's height
//! and a way to sleep) and its arguments. It speaks to nothing else, so the tests run every command against a
//! stub and compare its whole output. The Solaris commands keep the option grammar (`getopt.rs`), the
//! columns (`ofmt.rs`) and the messages of the original to the letter, because scripts read them; where one
//! field is at fault the detail follows the original's text in parentheses. `firelane`'s own verbs are
//! clap's and exit 2 on bad input.
#![forbid(unsafe_code)]

mod acctadm;
mod capture;
mod chunks;
mod client;
mod common;
mod completion;
mod demo;
mod dladm;
mod explain;
mod flowadm;
mod fpm;
mod getopt;
mod ipadm;
mod ipf;
mod lab;
mod ofmt;
mod own;
mod patient;
mod repeat;
mod replace;
mod route;
mod run;
mod session;
mod stage;
mod stamp;
mod stat;
mod trace;
mod usage;
mod view;

use std::ffi::OsString;
use std::io::IsTerminal;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

pub use client::Client;
pub use session::Session;

use completion::Grammar;
use session::Failure;

/// A command that takes the words after its name.
type Command = fn(&mut Session<'_>, &[String]) -> Result<(), Failure>;

/// The Solaris commands by name, with the words that a shell completes.
const COMMANDS: [(&str, Command, Grammar); 13] = [
    ("acctadm", acctadm::run, Grammar::Options(&[acctadm::OPTIONS], &[])),
    ("dladm", dladm::run, Grammar::Verbs(dladm::VERBS)),
    ("flowadm", flowadm::run, Grammar::Verbs(flowadm::VERBS)),
    ("ipadm", ipadm::run, Grammar::Verbs(ipadm::VERBS)),
    ("ipf", ipf::run, Grammar::Options(&[ipf::OPTIONS], &[])),
    ("ipfstat", ipf::stat::run, Grammar::Options(&[ipf::stat::OPTIONS], &[])),
    ("ipnat", ipf::nat::run, Grammar::Options(&[ipf::nat::OPTIONS], &[])),
    ("ippool", ipf::pool::run, Grammar::Options(&[ipf::pool::OPTIONS], &[])),
    ("route", route::run, Grammar::Options(&[route::OPTIONS], route::VERBS)),
    ("dlstat", stat::dlstat::run, Grammar::Views(stat::dlstat::OPTIONS, stat::dlstat::VIEWS)),
    ("flowstat", stat::flowstat::run, Grammar::Options(stat::flowstat::OPTIONS, &[])),
    ("netstat", view::netstat::run, Grammar::Options(&[view::netstat::OPTIONS], &[])),
    ("connstat", view::connstat::run, Grammar::Options(&[view::connstat::OPTIONS], &[])),
];

/// Exit code of a usage error or malformed input of `firelane`'s own verbs.
pub const EXIT_USAGE: u8 = 2;
/// Exit code of `firelane`'s own verbs when the daemon does not answer.
pub const EXIT_NO_DAEMON: u8 = 75;

/// Runs the process's command line against the daemon.
pub fn main(args: impl Iterator<Item = OsString>) -> ExitCode {
    let args: Vec<OsString> = args.collect();
    let client = Client::of_environment();
    let stdout = std::io::stdout();
    let height = || rustix::termios::tcgetwinsize(&stdout).map_or(0, |size| usize::from(size.ws_row));
    let rows = stdout.is_terminal().then(|| rows_of(height()));
    let mut session = Session {
        api: &client,
        out: &mut stdout.lock(),
        // A line at a time, so that those of commands beside each other do not mix.
        err: &mut std::io::LineWriter::new(std::io::stderr().lock()),
        rows,
        sleep: &mut |span: Duration| {
            std::thread::sleep(span);
            true
        },
    };
    // What a program is started with is the program's matter; all other words are ours.
    if args.get(1).is_some_and(|verb| verb == "run") {
        return ExitCode::from(own::run(&mut session, args.into_iter().skip(1)));
    }
    let words: Result<Vec<_>, _> = args.into_iter().map(OsString::into_string).collect();
    match words {
        Ok(words) => ExitCode::from(run(&mut session, &words)),
        Err(raw) => {
            // Nobody is left to be told when the error output itself is gone.
            let _ = writeln!(session.err, "firelane: argument {raw:?} is not UTF-8");
            ExitCode::from(EXIT_USAGE)
        }
    }
}

/// How many rows a screen has. A terminal that does not know, as serial ones do not, has one screen without end.
const fn rows_of(height: usize) -> usize {
    if height == 0 { usize::MAX } else { height }
}

/// Runs the command line `words`, the program's name first, and gives its exit code.
pub fn run(session: &mut Session<'_>, words: &[String]) -> u8 {
    let program = words.first().map_or("firelane", String::as_str);
    let program = Path::new(program).file_name().and_then(|name| name.to_str()).unwrap_or("firelane");
    let rest = words.get(1..).unwrap_or_default();
    if let (None, Some((_, of))) = (find(program), rest.split_first().filter(|(first, _)| *first == "help")) {
        // As `dladm help show-link` is `dladm show-link --help`.
        return run(session, &[&words[..1], of, &["--help".to_owned()]].concat());
    }
    let (name, rest, command) = match find(program) {
        Some((name, command)) => (name, rest, command),
        None => match rest.split_first().and_then(|(first, rest)| Some((find(first)?, rest))) {
            Some(((name, command), rest)) => (name, rest, command),
            None => return own::run(session, rest.iter().map(OsString::from)),
        },
    };
    let result = command(session, rest);
    // The original tells misuse apart.
    let failed = if name == "acctadm" && matches!(result, Err(Failure::Text(_))) { EXIT_USAGE } else { 1 };
    let code = session.report(name, result, failed);
    // A reader that went away (`| head`) is no failure of the command.
    let _ = session.out.flush();
    code
}

fn find(name: &str) -> Option<(&'static str, Command)> {
    COMMANDS.into_iter().find(|(command, ..)| *command == name).map(|(name, command, _)| (name, command))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::common::testing::capture;
    use crate::ofmt::{Style, Table, col};

    #[test]
    fn a_terminal_without_a_height_has_one_header_and_gets_no_pcapng() {
        let rows = Some(rows_of(0));
        let table = |session: &mut Session<'_>| {
            let mut table = Table::open(session, "prog", &[col("LINK", 6)], "link", Style::default())?;
            (0..100).try_for_each(|_| table.row(session, &["a0".to_owned()]))
        };
        assert_eq!(capture(rows, table).0.matches("LINK").count(), 1);
        assert_eq!(rows_of(24), 24);
        let words = ["capture", "-l", "a0"].map(OsString::from);
        let (out, err) = capture(rows, |session| {
            assert_eq!(own::run(session, words.into_iter()), EXIT_USAGE);
            Ok(())
        });
        assert!(out.is_empty() && err.contains("a terminal cannot show pcapng"), "{out}{err}");
    }
}
