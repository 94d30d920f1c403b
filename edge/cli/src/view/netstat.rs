//! `netstat`: sockets by protocol and family, in the columns of the original; `tables.rs` has the other tables.
//!
//! Without an option it shows connections; `-a` listeners and unconnected sockets, too. Names are not looked up: every
//! address is a number, as with `-n`.

use std::net::{IpAddr, SocketAddr};

use firelane_api::SocketInfo;
use firelane_model::NetstackName;

use super::counters::{Shown, Watched};
use super::{JsonList, counters, each_page, tables};
use crate::common::Call;
use crate::getopt::{self, Opt, OptError, flag, value};
use crate::session::{Failure, Session, die};

const USAGE: &str = "netstat [-anv] [-f inet|inet6] [-P tcp|udp] [-N netstack] [-j] [interval [count]]\n\
                     \x20      netstat -r|-p|-g|-i [-n] [-f inet|inet6] [-N netstack] [-j] [interval [count]]\n\
                     \x20      netstat -s [-f inet|inet6] [-P protocol] [-N netstack] [-j] [interval [count]]\n\
                     \x20      netstat -I link [-j] [interval [count]]";

const OPTIONS: &[Opt] = &[
    flag('a', "all"),
    flag('n', "numeric"),
    flag('v', "verbose"),
    flag('r', "route"),
    flag('p', "arp"),
    flag('g', "groups"),
    flag('s', "statistics"),
    flag('i', "interfaces"),
    value('I', "link"),
    value('f', "family"),
    value('P', "protocol"),
    value('N', "netstack"),
    flag('j', "json"),
];

/// Runs `netstat` with the words after its name.
pub(crate) fn run(session: &mut Session<'_>, words: &[String]) -> Result<(), Failure> {
    let args = getopt::parse(OPTIONS, words).map_err(|error| match error {
        OptError::Twice(_) => die(error.to_string()),
        _ => die(format!("{error}\nusage: {USAGE}")),
    })?;
    let call = Call { args, usage: USAGE };
    let mut report = Report::of(&call)?;
    let mut repeat = Repeat::of(&call)?;
    loop {
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
}

impl Report {
    fn of(call: &Call<'_>) -> Result<Self, Failure> {
        let others = ['r', 'p', 'g', 'i', 's', 'I'];
        if others.into_iter().filter(|letter| call.args.has(*letter)).count() > 1 {
            return Err(call.misused());
        }
        if let Some(link) = call.args.value('I') {
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
    let all: [(char, Other); 4] =
        [('r', tables::routes), ('p', tables::neighbours), ('g', tables::groups), ('i', tables::interfaces)];
    all.into_iter().find(|(letter, _)| call.args.has(*letter)).map(|(_, table)| table)
}

/// How often the report is made.
struct Repeat {
    interval: Option<std::time::Duration>,
    left: Option<u32>,
}

impl Repeat {
    fn of(call: &Call<'_>) -> Result<Self, Failure> {
        let number = |text: &String| {
            let number = text.parse::<u32>().ok().filter(|&number| number > 0);
            number.ok_or_else(|| die(format!("invalid interval or count '{text}': a number above zero")))
        };
        let numbers = call.args.operands.iter().map(number).collect::<Result<Vec<_>, _>>()?;
        match numbers[..] {
            [] => Ok(Self { interval: None, left: None }),
            [interval] => {
                Ok(Self { interval: Some(std::time::Duration::from_secs(interval.into())), left: None })
            }
            [interval, count] => {
                let interval = Some(std::time::Duration::from_secs(interval.into()));
                Ok(Self { interval, left: Some(count - 1) })
            }
            _ => Err(call.misused()),
        }
    }

    /// Sleeps until the next report; false if there is none.
    fn again(&mut self, session: &mut Session<'_>) -> Result<bool, Failure> {
        session.out.flush()?;
        let Some(interval) = self.interval else { return Ok(false) };
        if self.left == Some(0) {
            return Ok(false);
        }
        self.left = self.left.map(|left| left - 1);
        Ok((session.sleep)(interval))
    }
}

/// Which sockets are shown.
struct Filter {
    all: bool,
    verbose: bool,
    netstack: Option<String>,
    sections: Vec<Section>,
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
        Ok(Self { all: call.args.has('a'), verbose: call.args.has('v'), netstack, sections })
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
    fn heading(self, verbose: bool) -> String {
        let width = self.address_width();
        // Names stand three places to the right of what they name.
        let short = width - 3;
        let rule = |width: usize| "-".repeat(width);
        let (local, remote) = ("Local Address", "Remote Address");
        if !self.is_tcp {
            let names = format!("   {local:<short$}    {remote:<short$}    State");
            return format!("{}\n{names}\n{} {} {}", self.title(), rule(width), rule(width), rule(10));
        }
        let names = ["Swind", "Send-Q", "Rwind", "Recv-Q"];
        let counts = names.map(|name| format!("{name:>6}")).join(" ");
        let rules = names.map(|_| rule(6)).join(" ");
        if verbose {
            let numbers = ["Snext", "Suna", "Rnext", "Rack", "Rto", "Mss"];
            let widths = [8, 8, 8, 8, 5, 5];
            let column = |(name, width): (&&str, usize)| format!("{name:<width$}");
            let more = numbers.iter().zip(widths).map(column).collect::<Vec<_>>().join(" ");
            let more_rules = widths.map(rule).join(" ");
            return format!(
                "{}\n{local}/{remote}\n{counts} {more} State\n{rules} {more_rules} {}",
                self.title(),
                rule(11)
            );
        }
        format!(
            "{}\n   {local:<short$}    {remote:<short$} {counts}    State\n{} {} {rules} {}",
            self.title(),
            rule(width),
            rule(width),
            rule(11)
        )
    }

    fn row(self, socket: &SocketInfo, verbose: bool) -> String {
        let width = self.address_width();
        let remote = socket.remote.map_or_else(|| self.nobody(), address);
        let local = address(socket.local);
        if !self.is_tcp {
            return format!("{local:<width$} {remote:<width$} {}", socket.state);
        }
        let it = socket.tcp.clone().unwrap_or_default();
        let state = format!("{}{}", socket.state, if it.fused { " (fused)" } else { "" });
        let counts = [it.swnd, it.sendq, it.rwnd, it.recvq].map(|count| format!("{count:>6}")).join(" ");
        if verbose {
            let numbers =
                [it.snxt, it.suna_seq, it.rnxt, it.rack].map(|number| format!("{number:08x}")).join(" ");
            let rto = it.rto_us / 1000;
            return format!("{local}\n{remote}\n{counts} {numbers} {rto:>5} {:>5} {state}", it.mss);
        }
        format!("{local:<width$} {remote:<width$} {counts} {state}")
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
                    writeln!(session.out, "\n{}", section.heading(filter.verbose))?;
                }
                writeln!(session.out, "{}", section.row(socket, filter.verbose))?;
            }
            Ok(())
        })?;
    }
    Ok(())
}

fn json(session: &mut Session<'_>, filter: &Filter) -> Result<(), Failure> {
    let mut list = JsonList::open(session, "sockets")?;
    each_page(session, filter.netstack.as_deref(), |session, sockets| {
        sockets.iter().filter(|it| filter.shows(it)).try_for_each(|socket| list.push(session, socket))
    })?;
    list.close(session)
}
