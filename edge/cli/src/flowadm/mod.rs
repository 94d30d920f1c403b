//! `flowadm`: flows and their properties, in the old spelling (`add-flow -a ...`) and the later one
//! (`create-flow ...`).

mod flow;
mod prop;

use crate::common::{Verb, run_verb};
use crate::getopt::{Opt, flag, foreign, value, values};
use crate::session::{Failure, Session};
use crate::usage;

const PROGRAM: &str = "flowadm";

const ADD: &[Opt] = &[
    flag('t', "temporary"),
    foreign(value('R', "root-dir")),
    value('l', "link"),
    values('a', "attr"),
    values('p', "prop"),
];
const REMOVE: &[Opt] = &[flag('t', "temporary"), foreign(value('R', "root-dir")), value('l', "link")];
const SHOW: &[Opt] = &[
    flag('p', "parsable"),
    flag('P', "persistent"),
    value('l', "link"),
    value('o', "output"),
    flag('j', "json"),
];
const SET_PROP: &[Opt] =
    &[flag('t', "temporary"), foreign(value('R', "root-dir")), value('l', "link"), values('p', "prop")];
const SHOW_PROP: &[Opt] = &[
    flag('c', "parsable"),
    flag('P', "persistent"),
    value('l', "link"),
    value('o', "output"),
    values('p', "prop"),
    flag('j', "json"),
];

pub(crate) const VERBS: &[Verb] = &[
    Verb {
        names: &["add-flow", "create-flow"],
        usage: "add-flow       [-t] -l <link> [-a] <attr>=<value>[,...]\n\
                \x20                  [-p <prop>=<value>,...] <flow>",
        options: ADD,
        run: flow::add,
    },
    Verb {
        names: &["remove-flow", "delete-flow"],
        usage: "remove-flow    [-t] {-l <link> | <flow>}",
        options: REMOVE,
        run: flow::remove,
    },
    Verb {
        names: &["show-flow"],
        usage: "show-flow      [-pP] [-l <link>] [-o <field>,...] [-j] [<flow>]",
        options: SHOW,
        run: flow::show,
    },
    Verb {
        names: &["set-flowprop"],
        usage: "set-flowprop   [-t] [-l <link>] -p <prop>=<value>[,...] <flow>",
        options: SET_PROP,
        run: prop::set,
    },
    Verb {
        names: &["reset-flowprop"],
        usage: "reset-flowprop [-t] [-l <link>] [-p <prop>,...] <flow>",
        options: SET_PROP,
        run: prop::reset,
    },
    Verb {
        names: &["show-flowprop"],
        usage: "show-flowprop  [-cP] [-l <link>] [-o <field>,...] [-p <prop>,...] [-j] [<flow>]",
        options: SHOW_PROP,
        run: prop::show,
    },
    Verb {
        names: &["show-usage"],
        usage: "show-usage     [-a] [-f <file>] [-d | -F <format> [-p <plotfile>]] [-s <time>] [-e <time>] [-j] [<flow>]",
        options: usage::SHOW_USAGE,
        run: |session, call| usage::flows(session, PROGRAM, call),
    },
];

/// Runs `flowadm` with the words after its name.
pub(crate) fn run(session: &mut Session<'_>, words: &[String]) -> Result<(), Failure> {
    run_verb(session, PROGRAM, VERBS, words)
}
