//! `ipadm`: interfaces and addresses of netstacks.
//!
//! The original acts on the zone that it runs in; here a VNIC that has no user goes to the netstack of `-N`,
//! which is `default` unless given.

mod addr;
mod iface;

use crate::common::{Verb, call, run_verb};
use crate::getopt::{Opt, flag, value, values};
use crate::session::{Failure, Session};

const PROGRAM: &str = "ipadm";

const CREATE_IF: &[Opt] = &[flag('t', "temporary"), value('N', "netstack")];
const NONE: &[Opt] = &[];
const SHOW: &[Opt] =
    &[flag('p', "parsable"), value('o', "output"), flag('P', "persistent"), flag('j', "json")];
const CREATE_ADDR: &[Opt] = &[
    flag('t', "temporary"),
    value('T', "type"),
    value('a', "address"),
    flag('d', "down"),
    value('h', "reqhost"),
    value('i', "interface-id"),
    values('p', "prop"),
    value('w', "wait"),
    flag('1', "primary"),
];
const DELETE_ADDR: &[Opt] = &[flag('r', "release")];

const SHOW_ADDR: Verb = Verb {
    names: &["show-addr"],
    usage: "show-addr\t[[-p] -o <field>,...] [-j] [<addrobj> | <interface>/]",
    options: SHOW,
    run: addr::show,
};

const VERBS: &[Verb] = &[
    Verb {
        names: &["create-if", "create-ip"],
        usage: "create-if\t[-t] [-N <netstack>] <interface>",
        options: CREATE_IF,
        run: iface::create,
    },
    Verb {
        names: &["delete-if", "delete-ip"],
        usage: "delete-if\t<interface>",
        options: NONE,
        run: iface::delete,
    },
    Verb {
        names: &["show-if"],
        usage: "show-if\t\t[[-p] -o <field>,...] [-j] [<interface>]",
        options: SHOW,
        run: iface::show,
    },
    Verb {
        names: &["create-addr"],
        usage: "create-addr\t[-t] -T static -a [local=]addr[/prefixlen] <addrobj>\n\
            create-addr\t[-t] -T addrconf [-i interface-id] [-p <prop>={yes|no}]... <addrobj>",
        options: CREATE_ADDR,
        run: addr::create,
    },
    Verb {
        names: &["delete-addr"],
        usage: "delete-addr\t[-r] <addrobj>",
        options: DELETE_ADDR,
        run: addr::delete,
    },
    SHOW_ADDR,
];

/// Runs `ipadm` with the words after its name; without any it shows the addresses.
pub(crate) fn run(session: &mut Session<'_>, words: &[String]) -> Result<(), Failure> {
    if words.is_empty() {
        return call(session, &SHOW_ADDR, words);
    }
    run_verb(session, PROGRAM, VERBS, words)
}
