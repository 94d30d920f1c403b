//! `dladm`: links, VNICs, etherstubs and their properties.

mod change;
mod iptun;
mod phys;
mod prop;
mod show;
mod wire;

pub(crate) use prop::print as print_props;

use crate::common::{Call, Verb, call, run_verb};
use crate::getopt::{Opt, flag, foreign, value, values};
use crate::session::{Failure, Session};
use crate::usage;

const PROGRAM: &str = "dladm";

const CREATE: &[Opt] = &[flag('t', "temporary"), foreign(value('R', "root-dir"))];
const CREATE_VNIC: &[Opt] = &[
    flag('t', "temporary"),
    foreign(value('R', "root-dir")),
    value('l', "link"),
    value('m', "mac-address"),
    value('n', "slot"),
    value('r', "mac-prefix"),
    value('v', "vlan-id"),
    foreign(value('V', "vrid")),
    foreign(value('A', "address-family")),
    foreign(flag('f', "force")),
    values('p', "prop"),
];
const CREATE_VLAN: &[Opt] = &[
    flag('t', "temporary"),
    foreign(value('R', "root-dir")),
    foreign(flag('f', "force")),
    value('l', "link"),
    value('v', "vlan-id"),
];
const MODIFY_VNIC: &[Opt] = &[
    flag('t', "temporary"),
    foreign(value('R', "root-dir")),
    value('l', "link"),
    value('m', "mac-address"),
    value('n', "slot"),
    value('r', "mac-prefix"),
    value('v', "vlan-id"),
    value('L', "old-link"),
];
const MODIFY_VLAN: &[Opt] = &[
    flag('t', "temporary"),
    foreign(value('R', "root-dir")),
    value('l', "link"),
    value('v', "vlan-id"),
    value('L', "old-link"),
];
const CREATE_WIRE: &[Opt] = &[
    flag('t', "temporary"),
    foreign(value('R', "root-dir")),
    values('l', "link"),
    values('p', "prop"),
    value('s', "seed"),
];
const MODIFY_WIRE: &[Opt] =
    &[flag('t', "temporary"), foreign(value('R', "root-dir")), value('d', "direction"), values('p', "prop")];
const CREATE_IPTUN: &[Opt] = &[
    flag('t', "temporary"),
    foreign(value('R', "root-dir")),
    value('T', "tunnel-type"),
    values('a', "address"),
    values('p', "prop"),
];
const MODIFY_IPTUN: &[Opt] =
    &[flag('t', "temporary"), foreign(value('R', "root-dir")), values('a', "address")];
const RENAME: &[Opt] = &[foreign(value('R', "root-dir"))];
const SHOW: &[Opt] = &[
    flag('p', "parsable"),
    flag('P', "persistent"),
    value('o', "output"),
    flag('s', "statistics"),
    value('i', "interval"),
    flag('j', "json"),
];
/// Of what has no counters of its own.
const SHOW_PLAIN: &[Opt] =
    &[flag('p', "parsable"), flag('P', "persistent"), value('o', "output"), flag('j', "json")];
const SHOW_PHYS: &[Opt] = &[
    flag('p', "parsable"),
    flag('P', "persistent"),
    flag('m', "mac"),
    flag('H', "hwgroup"),
    value('o', "output"),
    flag('j', "json"),
];
const SHOW_ETHER: &[Opt] =
    &[flag('p', "parsable"), flag('x', "extended"), value('o', "output"), flag('j', "json")];
const SHOW_AGGR: &[Opt] = &[
    flag('p', "parsable"),
    flag('P', "persistent"),
    flag('L', "lacp"),
    flag('x', "extended"),
    value('o', "output"),
    flag('s', "statistics"),
    value('i', "interval"),
    flag('j', "json"),
];
const SHOW_VNIC: &[Opt] = &[
    flag('p', "parsable"),
    flag('P', "persistent"),
    value('o', "output"),
    value('l', "link"),
    flag('s', "statistics"),
    value('i', "interval"),
    flag('j', "json"),
];
const SET_PROP: &[Opt] = &[flag('t', "temporary"), foreign(value('R', "root-dir")), values('p', "prop")];
const SHOW_PROP: &[Opt] = &[
    flag('c', "parsable"),
    flag('P', "persistent"),
    value('o', "output"),
    values('p', "prop"),
    flag('j', "json"),
];

const SHOW_LINK: Verb = Verb {
    names: &["show-link"],
    usage: "show-link        [-P] [-s [-i <interval>]] [[-p] -o <field>,..] [-j] [<link>]",
    options: SHOW,
    run: show::links,
};

pub(crate) const VERBS: &[Verb] = &[
    SHOW_LINK,
    Verb {
        names: &["rename-link"],
        usage: "rename-link      <link> <new-link>",
        options: RENAME,
        run: change::rename,
    },
    Verb {
        names: &["delete-phys"],
        usage: "delete-phys      <phys-link>",
        options: RENAME,
        run: change::delete_phys,
    },
    Verb {
        names: &["show-phys"],
        usage: "show-phys        [-m | -H | -P] [[-p] -o <field>,..] [-j] [<link>]",
        options: SHOW_PHYS,
        run: phys::show,
    },
    Verb {
        names: &["show-ether"],
        usage: "show-ether       [-x] [[-p] -o <field>,..] [-j] [<link>]",
        options: SHOW_ETHER,
        run: phys::ether,
    },
    Verb {
        names: &["show-aggr"],
        usage: "show-aggr        [-PLx] [-s [-i <interval>]] [[-p] -o <field>,..] [-j] [<aggr-link>]",
        options: SHOW_AGGR,
        run: phys::aggr,
    },
    Verb {
        names: &["set-linkprop"],
        usage: "set-linkprop     [-t] -p <prop>=<value>[,...] <link>",
        options: SET_PROP,
        run: prop::set,
    },
    Verb {
        names: &["reset-linkprop"],
        usage: "reset-linkprop   [-t] [-p <prop>,..] <link>",
        options: SET_PROP,
        run: prop::reset,
    },
    Verb {
        names: &["show-linkprop"],
        usage: "show-linkprop    [-P] [[-c] -o <field>,..] [-p <prop>,..] [-j] [<link>]",
        options: SHOW_PROP,
        run: prop::show,
    },
    Verb {
        names: &["create-vnic"],
        usage: "create-vnic      [-t] -l <link> [-m <value> | auto | {factory [-n <slot>]} | {random [-r <prefix>]}]\n\
                \x20                    [-v <vid>] [-p <prop>=<value>[,...]] <vnic-link>",
        options: CREATE_VNIC,
        run: change::create_vnic,
    },
    Verb {
        names: &["modify-vnic"],
        usage: "modify-vnic      [-t] [-l <link>] [-m <value> | auto | {factory [-n <slot>]} | {random [-r <prefix>]}]\n\
                \x20                    [-v <vid>] <vnic-link>[,...] | -L <old-link>",
        options: MODIFY_VNIC,
        run: change::modify_vnic,
    },
    Verb {
        names: &["delete-vnic"],
        usage: "delete-vnic      [-t] <vnic-link>",
        options: CREATE,
        run: change::delete_vnic,
    },
    Verb {
        names: &["show-vnic"],
        usage: "show-vnic        [-P] [-l <link>] [-s [-i <interval>]] [[-p] -o <field>,..] [-j] [<vnic-link>]",
        options: SHOW_VNIC,
        run: show::vnics,
    },
    Verb {
        names: &["create-vlan"],
        usage: "create-vlan      [-t] -l <link> -v <vid> [<vlan-link>]",
        options: CREATE_VLAN,
        run: change::create_vlan,
    },
    Verb {
        names: &["modify-vlan"],
        usage: "modify-vlan      [-t] [-l <link>] [-v <vid>] <vlan-link>[,...] | -L <old-link>",
        options: MODIFY_VLAN,
        run: change::modify_vlan,
    },
    Verb {
        names: &["delete-vlan"],
        usage: "delete-vlan      [-t] <vlan-link>",
        options: CREATE,
        run: change::delete_vlan,
    },
    Verb {
        names: &["show-vlan"],
        usage: "show-vlan        [-P] [[-p] -o <field>,..] [-j] [<vlan-link>]",
        options: SHOW_PLAIN,
        run: show::vlans,
    },
    Verb {
        names: &["create-etherstub"],
        usage: "create-etherstub [-t] <etherstub-link>",
        options: CREATE,
        run: change::create_etherstub,
    },
    Verb {
        names: &["delete-etherstub"],
        usage: "delete-etherstub [-t] <etherstub-link>",
        options: CREATE,
        run: change::delete_etherstub,
    },
    Verb {
        names: &["show-etherstub"],
        usage: "show-etherstub   [-P] [[-p] -o <field>,..] [-j] [<etherstub-link>]",
        options: SHOW_PLAIN,
        run: show::etherstubs,
    },
    Verb {
        names: &["create-wire"],
        usage: "create-wire      [-t] -l <link> -l <link> [-s <seed>] [-p <prop>=<value>[,...]] <wire>",
        options: CREATE_WIRE,
        run: wire::create,
    },
    Verb {
        names: &["modify-wire"],
        usage: "modify-wire      [-t] [-d forth | back] -p <prop>=<value>[,...] <wire>",
        options: MODIFY_WIRE,
        run: wire::modify,
    },
    Verb {
        names: &["delete-wire"],
        usage: "delete-wire      [-t] <wire>",
        options: CREATE,
        run: wire::delete,
    },
    Verb {
        names: &["show-wire"],
        usage: "show-wire        [-P] [-s [-i <interval>]] [[-p] -o <field>,..] [-j] [<wire>]",
        options: SHOW,
        run: wire::show,
    },
    Verb {
        names: &["create-iptun"],
        usage: "create-iptun     [-t] -T <type> [-a {local|remote}=<addr>,...] [-p <prop>=<value>[,...]] <link>",
        options: CREATE_IPTUN,
        run: iptun::create,
    },
    Verb {
        names: &["modify-iptun"],
        usage: "modify-iptun     [-t] -a {local|remote}=<addr>,... <link>",
        options: MODIFY_IPTUN,
        run: iptun::modify,
    },
    Verb {
        names: &["delete-iptun"],
        usage: "delete-iptun     [-t] <link>",
        options: CREATE,
        run: iptun::delete,
    },
    Verb {
        names: &["show-iptun"],
        usage: "show-iptun       [-P] [[-p] -o <field>,..] [-j] [<link>]",
        options: SHOW_PLAIN,
        run: iptun::show,
    },
    Verb {
        names: &["show-usage"],
        usage: "show-usage       [-a] [-f <file>] [-d | -F <format> [-p <plotfile>]] [-s <time>] [-e <time>] [-j] [<link>]",
        options: usage::SHOW_USAGE,
        run: |session, call| usage::links(session, PROGRAM, call),
    },
];

/// Runs `dladm` with the words after its name; without any it shows the links.
pub(crate) fn run(session: &mut Session<'_>, words: &[String]) -> Result<(), Failure> {
    if words.is_empty() {
        return call(session, &SHOW_LINK, words);
    }
    run_verb(session, PROGRAM, VERBS, words)
}

/// Whether the change is temporary.
fn temporary(call: &Call<'_>) -> bool {
    call.args.has('t')
}
