//! `netstat`: sockets by protocol and family, in the columns of the original; `tables.rs` has the other tables.
//!
//! Without an option it shows connections; `-a` listeners and unconnected sockets, too. Names are not looked up: every
//! address is a number, as with `-n`.

use std::net::{IpAddr, SocketAddr};

use firelane_api::{ProgramInfo, SocketInfo};
use firelane_model::NetstackName;

use super::counters::{Shown, Watched};
use super::{JsonList, counters, dhcp, each_page, memory, tables};
use crate::common::Call;
use crate::getopt::{Opt, flag, value};
use crate::repeat::{self, Repeat};
use crate::session::{Failure, Session, die};
use crate::stamp::Stamp;

const USAGE: &str = "netstat [-anuv] [-f inet|inet6] [-P tcp|udp] [-N netstack] [-T d|u] [-j] [interval [count]]\n\
                     \x20      netstat -r|-p|-g|-i [-n] [-f inet|inet6] [-N netstack] [-T d|u] [-j] [interval [count]]\n\
                     \x20      netstat -s [-f inet|inet6] [-P protocol] [-N netstack] [-T d|u] [-j] [interval [count]]\n\
                     \x20      netstat -d|-M [-f inet|inet6] [-N netstack] [-T d|u] [-j] [interval [count]]\n\
                     \x20      netstat -D [-I interface] [-f inet|inet6] [-N netstack] [-T d|u] [-j] [interval [count]]\n\
                     \x20      netstat -i -I interface [-n] [-f inet|inet6] [-N netstack] [-T d|u] [-j]\n\
                     \x20      netstat [-i] -I link [-T d|u] [-j] [interval [count]]\n\
                     \x20      netstat -m [-T d|u] [-j] [interval [count]]";

pub(crate) const OPTIONS: &[Opt] = &[
    flag('a', "all"),
    flag('n', "numeric"),
    flag('u', "user"),
    flag('v', "verbose"),
    flag('r', "route"),
    flag('p', "arp"),
    flag('g', "groups"),
    flag('s', "statistics"),
    flag('i', "interfaces"),
    flag('d', "destinations"),
    flag('m', "memory"),
    flag('D', "dhcp"),
    flag('M', "multicast"),
    flag('R', "labels"),
    value('I', "link"),
    value('f', "family"),
    value('P', "protocol"),
    value('N', "netstack"),
    value('z', "netstack"),
    value('T', "timestamp"),
    flag('j', "json"),
];

/// Runs `netstat` with the words after its name.
pub(crate) fn run(session: &mut Session<'_>, words: &[String]) -> Result<(), Failure> {
    let call = Call::of(OPTIONS, USAGE, words)?;
    let mut report = Report::of(&call)?;
    let (mut repeat, others) = Repeat::of(&call)?;
    if let Some(other) = others.iter().find(|it| it.parse::<u32>().is_err()) {
        return Err(repeat::invalid(other));
    }
    if !others.is_empty() {
        return Err(call.misused());
    }
    // Without the sign that connstat has: the original's netstat writes the bare time.
    let stamp = Stamp::of(&call, "")?;
    loop {
        stamp.print(session)?;
        report.make(session, &call)?;
        if !repeat.again(session)? {
            return Ok(());
        }
    }
}

/// What is shown.
enum Report {
    Sockets(Filter),
    Table(Other),
    Counters(Shown),
    Link(Watched),
    /// One of the interfaces of `-i`, in these families.
    Interface(String, &'static [bool]),
    /// Of one interface, or of all.
    Dhcp(Option<String>),
    Memory,
}

impl Report {
    fn of(call: &Call<'_>) -> Result<Self, Failure> {
        if call.args.has('R') {
            return Err(die(
                "-R: there are no labels here (Trusted Extensions): who may use a netstack is said of its programs",
            ));
        }
        let others = ['r', 'p', 'g', 'i', 's', 'd', 'm', 'D', 'M'];
        // -I names the interface of -D and of -i, and is a report of its own without them.
        let is_link = call.args.has('I') && !call.args.has('D') && !call.args.has('i');
        let reports = others.into_iter().filter(|letter| call.args.has(*letter)).count();
        if reports + usize::from(is_link) > 1 {
            return Err(call.misused());
        }
        if call.args.has('m') {
            return Ok(Self::Memory);
        }
        if call.args.has('D') {
            families(call)?;
            return Ok(Self::Dhcp(call.args.value('I').map(str::to_owned)));
        }
        if let Some(link) = call.args.value('I') {
            // As in the original: its line of the table, or what passes at each interval.
            if call.args.has('i') && call.args.operands.is_empty() {
                return Ok(Self::Interface(link.to_owned(), families(call)?));
            }
            return Ok(Self::Link(Watched::new(link)));
        }
        if call.args.has('s') {
            return Ok(Self::Counters(Shown::of(call.args.value('P'), families(call)?)?));
        }
        let filter = Filter::of(call)?;
        Ok(other_table(call).map_or(Self::Sockets(filter), Self::Table))
    }

    fn make(&mut self, session: &mut Session<'_>, call: &Call<'_>) -> Result<(), Failure> {
        let is_json = call.args.has('j');
        match self {
            Self::Sockets(filter) if is_json => json(session, filter),
            Self::Sockets(filter) => sockets(session, filter),
            Self::Link(watched) => watched.show(session, is_json),
            Self::Memory => memory::show(session, is_json),
            Self::Interface(name, families) => {
                let names = tables::netstacks(session, call.args.value('N'))?;
                tables::interface(session, &names, families, name, is_json)
            }
            Self::Dhcp(interface) => {
                let names = tables::netstacks(session, call.args.value('N'))?;
                dhcp::show(session, &names, families(call)?, interface.as_deref(), is_json)
            }
            Self::Table(table) => {
                let names = tables::netstacks(session, call.args.value('N'))?;
                table(session, &names, families(call)?, is_json)
            }
            Self::Counters(shown) => {
                let names = tables::netstacks(session, call.args.value('N'))?;
                counters::protocols(session, &names, shown, is_json)
            }
        }
    }
}

/// Whether each family that is shown is IPv6.
fn families(call: &Call<'_>) -> Result<&'static [bool], Failure> {
    match call.args.value('f') {
        None => Ok(&[false, true]),
        Some("inet") => Ok(&[false]),
        Some("inet6") => Ok(&[true]),
        Some(other) => Err(die(format!("{other}: unknown address family (inet, inet6)"))),
    }
}

/// A table that is not of sockets.
type Other = fn(&mut Session<'_>, &[NetstackName], &[bool], bool) -> Result<(), Failure>;

fn other_table(call: &Call<'_>) -> Option<Other> {
    let all: [(char, Other); 6] = [
        ('r', tables::routes),
        ('p', tables::neighbours),
        ('g', tables::groups),
        ('i', tables::interfaces),
        ('d', tables::destinations),
        ('M', tables::multicast),
    ];
    all.into_iter().find(|(letter, _)| call.args.has(*letter)).map(|(_, table)| table)
}

/// Which sockets are shown.
struct Filter {
    all: bool,
    columns: Columns,
    netstack: Option<String>,
    sections: Vec<Section>,
}

/// What stands in a row beside the usual.
#[derive(Clone, Copy)]
struct Columns {
    verbose: bool,
    users: bool,
}

impl Columns {
    /// Whose a socket is: the names of the columns, or the line below them, or what stands there for a program.
    fn of_user(self, [user, pid, command]: [&str; 3]) -> String {
        if self.users { format!("{user:<8} {pid:>6} {command:<14} ") } else { String::new() }
    }

    /// Nobody's are sockets of the daemon itself and connections that their programs have closed.
    fn of_program(self, program: Option<&ProgramInfo>) -> String {
        let Some(ProgramInfo { user, pid, command, .. }) = program else { return self.of_user(["-"; 3]) };
        self.of_user([user, &pid.to_string(), command])
    }
}

/// A table of the report.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Section {
    is_tcp: bool,
    is_v6: bool,
}

impl Filter {
    fn of(call: &Call<'_>) -> Result<Self, Failure> {
        let families = families(call)?;
        let protocols: &[bool] = match call.args.value('P') {
            None => &[false, true],
            Some("tcp") => &[true],
            Some("udp") => &[false],
            Some(other) => return Err(die(format!("{other}: unknown protocol (tcp, udp)"))),
        };
        let sections = protocols
            .iter()
            .flat_map(|&is_tcp| families.iter().map(move |&is_v6| Section { is_tcp, is_v6 }))
            .collect();
        let netstack = call.args.value('N').map(str::to_owned);
        let columns = Columns { verbose: call.args.has('v'), users: call.args.has('u') };
        Ok(Self { all: call.args.has('a'), columns, netstack, sections })
    }

    fn shows(&self, socket: &SocketInfo) -> bool {
        (self.all || socket.remote.is_some()) && self.sections.contains(&Section::of(socket))
    }
}

impl Section {
    fn of(socket: &SocketInfo) -> Self {
        Self { is_tcp: socket.protocol == "tcp", is_v6: socket.local.is_ipv6() }
    }

    fn title(self) -> &'static str {
        match (self.is_tcp, self.is_v6) {
            (true, false) => "TCP: IPv4",
            (true, true) => "TCP: IPv6",
            (false, false) => "UDP: IPv4",
            (false, true) => "UDP: IPv6",
        }
    }

    /// The width of an address with its port.
    const fn address_width(self) -> usize {
        if self.is_v6 { 33 } else { 20 }
    }

    /// The lines above the rows.
    fn heading(self, columns: Columns) -> String {
        let width = self.address_width();
        // Names stand three places to the right of what they name.
        let short = width - 3;
        let rule = |width: usize| "-".repeat(width);
        let (local, remote, title) = ("Local Address", "Remote Address", self.title());
        let whose = columns.of_user(["User", "Pid", "Command"]);
        let whose_rule = columns.of_user([8, 6, 14].map(rule).each_ref().map(String::as_str));
        let places = format!("   {local:<short$}    {remote:<short$} {whose}");
        let place_rules = format!("{} {} {whose_rule}", rule(width), rule(width));
        if !self.is_tcp {
            return format!("{title}\n{places}   State\n{place_rules}{}", rule(10));
        }
        let names = ["Swind", "Send-Q", "Rwind", "Recv-Q"];
        let counts = names.map(|name| format!("{name:>6}")).join(" ");
        let rules = names.map(|_| rule(6)).join(" ");
        if columns.verbose {
            let numbers = ["Snext", "Suna", "Rnext", "Rack", "Rto", "Mss"];
            let widths = [8, 8, 8, 8, 5, 5];
            let column = |(name, width): (&&str, usize)| format!("{name:<width$}");
            let more = numbers.iter().zip(widths).map(column).collect::<Vec<_>>().join(" ");
            let more_rules = widths.map(rule).join(" ");
            return format!(
                "{title}\n{local}/{remote}\n{whose}{counts} {more} State\n{whose_rule}{rules} {more_rules} {}",
                rule(11)
            );
        }
        format!("{title}\n{places}{counts}    State\n{place_rules}{rules} {}", rule(11))
    }

    fn row(self, socket: &SocketInfo, columns: Columns) -> String {
        let width = self.address_width();
        let remote = socket.remote.map_or_else(|| self.nobody(), address);
        let local = address(socket.local);
        let whose = columns.of_program(socket.program.as_ref());
        if !self.is_tcp {
            return format!("{local:<width$} {remote:<width$} {whose}{}", socket.state);
        }
        let it = socket.tcp.clone().unwrap_or_default();
        let state = format!("{}{}", socket.state, if it.fused { " (fused)" } else { "" });
        let counts = [it.swnd, it.sendq, it.rwnd, it.recvq].map(|count| format!("{count:>6}")).join(" ");
        if columns.verbose {
            let numbers =
                [it.snxt, it.suna_seq, it.rnxt, it.rack].map(|number| format!("{number:08x}")).join(" ");
            let rto = it.rto_us / 1000;
            return format!("{local}\n{remote}\n{whose}{counts} {numbers} {rto:>5} {:>5} {state}", it.mss);
        }
        format!("{local:<width$} {remote:<width$} {whose}{counts} {state}")
    }

    /// What stands for the peer that a socket does not have.
    fn nobody(self) -> String {
        if self.is_tcp { "*.*".to_owned() } else { String::new() }
    }
}

/// An address with its port as the original writes them: `10.0.0.10.80`, `*.80`.
fn address(of: SocketAddr) -> String {
    match of.ip() {
        ip if ip.is_unspecified() => format!("*.{}", of.port()),
        IpAddr::V4(ip) => format!("{ip}.{}", of.port()),
        IpAddr::V6(ip) => format!("{ip}.{}", of.port()),
    }
}

/// One table after the other. Each walks all sockets: whoever has a million of them need not hold them.
fn sockets(session: &mut Session<'_>, filter: &Filter) -> Result<(), Failure> {
    for section in &filter.sections {
        let mut is_open = false;
        each_page(session, filter.netstack.as_deref(), |session, sockets| {
            for socket in sockets.iter().filter(|it| Section::of(it) == *section && filter.shows(it)) {
                if !core::mem::replace(&mut is_open, true) {
                    writeln!(session.out, "\n{}", section.heading(filter.columns))?;
                }
                writeln!(session.out, "{}", section.row(socket, filter.columns))?;
            }
            Ok(())
        })?;
    }
    Ok(())
}

fn json(session: &mut Session<'_>, filter: &Filter) -> Result<(), Failure> {
    let mut list = JsonList::new("sockets");
    each_page(session, filter.netstack.as_deref(), |session, sockets| {
        sockets.iter().filter(|it| filter.shows(it)).try_for_each(|socket| list.push(session, socket))
    })?;
    list.close(session)
}
