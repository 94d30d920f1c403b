//! `firelane completion`: what a shell completes, of `firelane` itself and of each Solaris command by its own name.
//!
//! The words come from where the commands take them from: their subcommands and the options of each. Values, such as names of links,
//! are not looked up.

use clap::{Arg, ArgAction, Command};

use crate::common::Verb;
use crate::getopt::Opt;

/// What words a Solaris command takes.
#[derive(Clone, Copy)]
pub(crate) enum Grammar {
    /// Subcommands, each with options.
    Verbs(&'static [Verb]),
    /// Options, and subcommands that may stand before them.
    Options(&'static [&'static [Opt]], &'static [&'static str]),
    /// The same, where each subcommand has options of its own.
    Views(&'static [&'static [Opt]], &'static [View]),
}

/// A subcommand with its options.
pub(crate) type View = (&'static str, &'static [&'static [Opt]]);

/// The command `name` with the words of `grammar`, in place of `command`, whose words nobody looks at.
pub(crate) fn command(name: &'static str, command: &Command, grammar: Grammar) -> Command {
    let about = command.get_about().cloned();
    let plain = Command::new(name).disable_help_flag(true);
    let plain = plain.disable_help_subcommand(true);
    let plain = match about {
        Some(about) => plain.about(about),
        None => plain,
    };
    match grammar {
        Grammar::Verbs(verbs) => verbs.iter().fold(plain, |command, verb| {
            verb.names.iter().fold(command, |command, name| {
                command.subcommand(with_options(Command::new(*name), &[verb.options]))
            })
        }),
        Grammar::Options(options, subcommands) => {
            let command = with_options(plain, options);
            let sub = |name: &&'static str| with_options(Command::new(*name), options);
            command.subcommands(subcommands.iter().map(sub))
        }
        Grammar::Views(options, subcommands) => {
            let sub = |(name, options): &View| with_options(Command::new(*name), options);
            with_options(plain, options).subcommands(subcommands.iter().map(sub))
        }
    }
}

fn with_options(command: Command, lists: &[&'static [Opt]]) -> Command {
    let mut known: Vec<Opt> = Vec::new();
    for opt in lists.iter().copied().flatten().filter(|opt| opt.is_offered()) {
        let is_new = |it: &Opt| it.letter() != opt.letter() && it.long() != opt.long();
        if known.iter().all(is_new) {
            known.push(*opt);
        }
    }
    let command = command.disable_help_flag(true);
    known.into_iter().fold(command, |command, opt| command.arg(argument(opt)))
}

fn argument(opt: Opt) -> Arg {
    let action = if opt.takes_value() { ArgAction::Append } else { ArgAction::SetTrue };
    Arg::new(opt.long())
        .short(opt.letter())
        .long(opt.long())
        .action(action)
        .help(opt.long().replace('-', " "))
}
