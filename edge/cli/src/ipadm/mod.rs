//! `ipadm`: interfaces, addresses, their properties, and protocol properties of netstacks.
//!
//! The original acts on the zone that it runs in; here a VNIC that has no user goes to the netstack of `-N`,
//! which is `default` unless given.

mod addr;
mod addrprop;
mod iface;
mod ifprop;
mod protocol;

use crate::common::{Verb, call, run_verb};
use crate::getopt::{Opt, flag, value, values};
use crate::session::{Failure, Session};

const PROGRAM: &str = "ipadm";

const CREATE_IF: &[Opt] = &[flag('t', "temporary"), value('N', "netstack"), value('z', "netstack")];
const NONE: &[Opt] = &[];
const TEMPORARY: &[Opt] = &[flag('t', "temporary")];
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
const SET_PROP: &[Opt] =
    &[flag('t', "temporary"), value('N', "netstack"), value('z', "netstack"), value('p', "prop")];
const SHOW_PROP: &[Opt] = &[
    flag('c', "parsable"),
    value('o', "output"),
    flag('j', "json"),
    value('N', "netstack"),
    value('z', "netstack"),
    value('p', "prop"),
];
const SET_IFPROP: &[Opt] = &[flag('t', "temporary"), value('p', "prop"), value('m', "module")];
const SHOW_IFPROP: &[Opt] = &[
    flag('c', "parsable"),
    value('o', "output"),
    flag('j', "json"),
    value('p', "prop"),
    value('m', "module"),
];
const SET_ADDRPROP: &[Opt] = &[flag('t', "temporary"), value('p', "prop")];
const SHOW_ADDRPROP: &[Opt] =
    &[flag('c', "parsable"), value('o', "output"), flag('j', "json"), value('p', "prop")];
const REFRESH_ADDR: &[Opt] = &[flag('i', "inform")];
const DELETE_ADDR: &[Opt] = &[flag('r', "release")];

const SHOW_ADDR: Verb = Verb {
    names: &["show-addr"],
    usage: "show-addr      [-P] [[-p] -o <field>,...] [-j] [<addrobj> | <interface>[/]]",
    options: SHOW,
    run: addr::show,
};

pub(crate) const VERBS: &[Verb] = &[
    Verb {
        names: &["create-if", "create-ip"],
        usage: "create-if      [-t] [-N <netstack>] <interface>",
        options: CREATE_IF,
        run: iface::create,
    },
    Verb {
        names: &["delete-if", "delete-ip"],
        usage: "delete-if      <interface>",
        options: NONE,
        run: iface::delete,
    },
    Verb {
        names: &["enable-if"],
        usage: "enable-if      -t <interface>",
        options: TEMPORARY,
        run: iface::enable,
    },
    Verb {
        names: &["disable-if"],
        usage: "disable-if     -t <interface>",
        options: TEMPORARY,
        run: iface::disable,
    },
    Verb {
        names: &["show-if"],
        usage: "show-if        [-P] [[-p] -o <field>,...] [-j] [<interface>]",
        options: SHOW,
        run: iface::show,
    },
    Verb {
        names: &["create-addr"],
        usage: "create-addr    [-t] [-T static] [-d] -a [local=]addr[/prefixlen] <addrobj> | <interface>\n    \
            create-addr    [-t] -T addrconf [-i interface-id] [-p <prop>={yes|no}]... <addrobj> | <interface>\n    \
            create-addr    [-t] -T dhcp [-1] [-h <hostname>] [-p linklocal={yes|no}] [-w <seconds> | forever] <addrobj> | <interface>",
        options: CREATE_ADDR,
        run: addr::create,
    },
    Verb {
        names: &["delete-addr"],
        usage: "delete-addr    [-r] <addrobj>",
        options: DELETE_ADDR,
        run: addr::delete,
    },
    Verb {
        names: &["refresh-addr"],
        usage: "refresh-addr   [-i] <addrobj>",
        options: REFRESH_ADDR,
        run: addr::refresh,
    },
    Verb { names: &["up-addr"], usage: "up-addr        [-t] <addrobj>", options: TEMPORARY, run: addr::up },
    Verb {
        names: &["down-addr"],
        usage: "down-addr      [-t] <addrobj>",
        options: TEMPORARY,
        run: addr::down,
    },
    Verb {
        names: &["enable-addr"],
        usage: "enable-addr    -t <addrobj>",
        options: TEMPORARY,
        run: addr::enable,
    },
    Verb {
        names: &["disable-addr"],
        usage: "disable-addr   -t <addrobj>",
        options: TEMPORARY,
        run: addr::disable,
    },
    SHOW_ADDR,
    Verb {
        names: &["set-ifprop"],
        usage: "set-ifprop     [-t] -p <prop>=<value> -m <protocol> <interface>",
        options: SET_IFPROP,
        run: ifprop::set,
    },
    Verb {
        names: &["reset-ifprop"],
        usage: "reset-ifprop   [-t] -p <prop> -m <protocol> <interface>",
        options: SET_IFPROP,
        run: ifprop::reset,
    },
    Verb {
        names: &["show-ifprop"],
        usage: "show-ifprop    [[-c] -o <field>,...] [-j] [-p <prop>,...] [-m <protocol>] [<interface>]",
        options: SHOW_IFPROP,
        run: ifprop::show,
    },
    Verb {
        names: &["set-addrprop"],
        usage: "set-addrprop   [-t] -p <prop>=<value> <addrobj>",
        options: SET_ADDRPROP,
        run: addrprop::set,
    },
    Verb {
        names: &["reset-addrprop"],
        usage: "reset-addrprop [-t] -p <prop> <addrobj>",
        options: SET_ADDRPROP,
        run: addrprop::reset,
    },
    Verb {
        names: &["show-addrprop"],
        usage: "show-addrprop  [[-c] -o <field>,...] [-j] [-p <prop>,...] [<addrobj> | <interface>[/]]",
        options: SHOW_ADDRPROP,
        run: addrprop::show,
    },
    Verb {
        names: &["set-prop"],
        usage: "set-prop       [-t] [-N <netstack>] -p <prop>[+|-]=<value>,... <protocol>",
        options: SET_PROP,
        run: protocol::set,
    },
    Verb {
        names: &["reset-prop"],
        usage: "reset-prop     [-t] [-N <netstack>] -p <prop> <protocol>",
        options: SET_PROP,
        run: protocol::reset,
    },
    Verb {
        names: &["show-prop"],
        usage: "show-prop      [[-c] -o <field>,...] [-j] [-N <netstack>] [-p <prop>,...] [<protocol>]",
        options: SHOW_PROP,
        run: protocol::show,
    },
];

/// Runs `ipadm` with the words after its name; without any it shows the addresses.
pub(crate) fn run(session: &mut Session<'_>, words: &[String]) -> Result<(), Failure> {
    if words.is_empty() {
        return call(session, &SHOW_ADDR, words);
    }
    run_verb(session, PROGRAM, VERBS, words)
}
