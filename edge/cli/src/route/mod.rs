//! `route`: the operator's routes of a netstack, and which of all its routes a destination takes.
//!
//! As in the original what it changes is there until the next start, and with `-p` after it, too; `ipadm` and `dladm` have it the other
//! way round, as theirs have. What it did, or could not do with a route, is told line by line in the words of the original. Routes of
//! others (leases, routers, a routing daemon) are never changed, and a refusal says whose they are.

mod get;
mod words;

use std::net::IpAddr;

use firelane_api::{ApiError, Change, ChangeRequest, RouteInfo, RouteOrigin, RoutesChange, Status, Which};
use firelane_model::{Netstack, NetstackName, Route, RouteEnd, Way};
use firelane_units::IpPrefix;

use crate::common::netstack;
use crate::getopt::{Opt, flag, value};
use crate::session::{Failure, Session, die, die_status};
use words::{Words, everywhere};

const PROGRAM: &str = "route";

const USAGE: &str = "route [-fnpqv] [-N <netstack>] add|change [-inet|-inet6] [-net|-host] <destination> [-netmask <mask>]\n\
                     \x20          {<gateway> [-congestion <algorithm>] | -blackhole | -reject | -prohibit} [-from <network>]\n\
                     \x20      route [-fnpqv] [-N <netstack>] delete [-inet|-inet6] [-net|-host] <destination> [-netmask <mask>]\n\
                     \x20          [<gateway>] [-from <network>]\n\
                     \x20      route [-n] [-N <netstack>] get [-inet|-inet6] [-net|-host] <destination> [-from <address>]\n\
                     \x20      route [-npq] [-N <netstack>] flush [-inet|-inet6]\n\
                     \x20      route [-np] [-N <netstack>] show [-inet|-inet6]";

pub(crate) const OPTIONS: &[Opt] = &[
    flag('f', "flush"),
    flag('n', "numeric"),
    flag('p', "persistent"),
    flag('q', "quiet"),
    flag('v', "verbose"),
    value('N', "netstack"),
    value('z', "netstack"),
];

/// The commands.
pub(crate) const VERBS: &[&str] = &["add", "delete", "change", "get", "flush", "show", "monitor"];

/// Runs `route` with the words after its name.
pub(crate) fn run(session: &mut Session<'_>, words: &[String]) -> Result<(), Failure> {
    let words = Words::of(words)?;
    let operands = words.call.args.operands.clone();
    let verb = operands.first().map(String::as_str);
    let rest = operands.get(1..).unwrap_or_default();
    match verb {
        Some("monitor") => {
            return Err(die("monitor: routes are not watched: netstat -r 1 shows them every second"));
        }
        Some(verb) if !VERBS.contains(&verb) => return Err(words.call.misused()),
        None if !words.call.args.has('f') => return Err(words.call.misused()),
        _ => {}
    }
    // Nothing is flushed for a command that is refused.
    let command = Command::of(&words, verb, rest)?;
    let netstack = netstack(session, 'N', words.call.args.value('N'))?;
    let mut table = Table::of(session, netstack)?;
    let is_flushed = words.call.args.has('f');
    if is_flushed && !matches!(command, Command::Add(_)) {
        flush(session, &words, &table)?;
        table = Table::of(session, table.netstack)?;
    }
    match &command {
        Command::None => Ok(()),
        Command::Flush => flush(session, &words, &table),
        Command::Show => show(session, &words, &table),
        Command::Get(destination) => get::run(session, &words, &table.netstack, *destination),
        Command::Add(asked) => {
            let flushed = if is_flushed { table.flushed(&words) } else { Vec::new() };
            add(session, &words, &table, asked, flushed)
        }
        Command::Delete(asked) => delete(session, &words, &table, asked),
        Command::Change(asked) => change(session, &words, &table, asked),
    }
}

/// A command with its operands read.
enum Command {
    /// `-f` alone.
    None,
    Flush,
    Show,
    Get(IpPrefix),
    Add(Asked),
    Delete(Asked),
    Change(Asked),
}

impl Command {
    fn of(words: &Words, verb: Option<&str>, operands: &[String]) -> Result<Self, Failure> {
        Ok(match (verb, operands) {
            (None, _) => Self::None,
            (Some("flush"), []) => Self::Flush,
            (Some("show"), []) => Self::Show,
            (Some("get"), [destination]) => Self::Get(words.destination(destination, None)?),
            (Some("add"), operands) => Self::Add(Asked::of(words, operands, true)?),
            (Some("delete"), operands) => Self::Delete(Asked::of(words, operands, false)?),
            (Some("change"), operands) => Self::Change(Asked::of(words, operands, true)?),
            _ => return Err(words.call.misused()),
        })
    }
}

/// The operator's routes of a netstack: in force, and as they are kept.
struct Table {
    netstack: NetstackName,
    lists: [Netstack; 2],
}

impl Table {
    fn of(session: &Session<'_>, netstack: NetstackName) -> Result<Self, Failure> {
        let list = |which| -> Result<Option<Netstack>, Failure> {
            Ok(session.api.model(which)?.netstacks.remove(&netstack))
        };
        let active = list(Which::Active)?;
        let active = active.ok_or_else(|| die(format!("no netstack is called {netstack}")))?;
        let kept = list(Which::Persistent)?.unwrap_or_default();
        Ok(Self { netstack, lists: [active, kept] })
    }

    /// Those of the first list, and with `-p` of both: what a change is about.
    fn touched(&self, words: &Words) -> &[Netstack] {
        if words.call.args.has('p') { &self.lists } else { &self.lists[..1] }
    }

    /// The routes that are asked for among those that a change is about, each once.
    fn found(&self, words: &Words, is_asked: impl Fn(Route) -> bool) -> Vec<Route> {
        let mut found: Vec<Route> = Vec::new();
        for route in self.touched(words).iter().flat_map(|it| &it.routes).filter(|it| is_asked(**it)) {
            if !found.iter().any(|it| it.is_same_way(*route)) {
                found.push(*route);
            }
        }
        found
    }

    /// All of them, or those of a family.
    fn flushed(&self, words: &Words) -> Vec<Route> {
        self.found(words, |it| is_of_family(words, it))
    }

    /// Changes both, or what is in force alone.
    fn change(&self, session: &Session<'_>, words: &Words, change: RoutesChange) -> Result<(), ApiError> {
        let change = Change::ChangeRoutes(self.netstack.clone(), change);
        session.api.change(&ChangeRequest { temporary: !words.call.args.has('p'), change })
    }
}

/// Whether it is of the family that is asked for, if one is.
fn is_of_family(words: &Words, route: Route) -> bool {
    words.is_v6.is_none_or(|is_v6| route.destination().addr().is_ipv6() == is_v6)
}

/// What a command is about.
struct Asked {
    prefix: IpPrefix,
    gateway: Option<IpAddr>,
    /// As it is told.
    text: String,
    /// The route to make.
    route: Option<Route>,
}

impl Asked {
    fn of(words: &Words, operands: &[String], is_made: bool) -> Result<Self, Failure> {
        let (destination, gateway) = match operands {
            [destination] => (destination, None),
            [destination, gateway] => (destination, Some(gateway)),
            // The metric of old scripts says whether the gateway is a router, which it is here.
            [destination, gateway, metric] if is_metric(metric) => (destination, Some(gateway)),
            _ => return Err(words.call.misused()),
        };
        let allowed = "the address of a router; an interface is none";
        let read = |text: &String| text.parse::<IpAddr>().map_err(|_| die(format!("{text}: {allowed}")));
        let gateway = gateway.map(read).transpose()?;
        let prefix = words.destination(destination, gateway.filter(|_| words.end.is_none()))?;
        let mut asked = Self { prefix, gateway, text: String::new(), route: None };
        if is_made {
            asked.route = Some(asked.made(words)?);
        } else if words.end.is_some() || words.congestion.is_some() {
            return Err(words.call.misused());
        }
        let source = words.source.map(|source| format!(" from {}", source.network())).unwrap_or_default();
        let way = match (gateway, words.end) {
            (Some(gateway), _) => format!(": gateway {gateway}"),
            (None, Some(end)) => format!(": {}", end_word(end)),
            (None, None) => String::new(),
        };
        asked.text = format!("{}{source}{way}", named(prefix));
        Ok(asked)
    }

    fn made(&self, words: &Words) -> Result<Route, Failure> {
        let route = match (self.gateway, words.end) {
            // The original wants a gateway here, too, usually 127.0.0.1; no packet goes there.
            (_, Some(_)) if words.congestion.is_some() => {
                return Err(die("-congestion: no connection goes where packets end"));
            }
            (_, Some(end)) => Route::ending(self.prefix, end),
            (Some(gateway), None) => {
                let allowed = "a gateway is a unicast address of the destination's family";
                let route = Route::new(self.prefix, gateway);
                route.ok_or_else(|| die(format!("{gateway}: {allowed}")))?
            }
            (None, None) => return Err(words.call.misused()),
        };
        let allowed = "-from: a network of the destination's family";
        let route = route.with_congestion_control(words.congestion);
        route.with_source(words.source).ok_or_else(|| die(allowed))
    }

    /// Whether the route leads where is asked for, from where is asked for.
    fn is_about(&self, words: &Words, route: Route) -> bool {
        (route.destination(), route.source()) == (self.prefix, words.source.map(IpPrefix::network))
    }
}

/// Whether a word is the metric of a route by a router: 0 is that of a route by an interface.
fn is_metric(word: &str) -> bool {
    word.parse::<u32>().is_ok_and(|metric| metric > 0)
}

/// `net default`, `net 10.1.0.0/16`, `host 10.1.0.7`.
fn named(prefix: IpPrefix) -> String {
    let kind = if prefix == IpPrefix::host(prefix.addr()) { "host" } else { "net" };
    format!("{kind} {}", short(prefix))
}

/// `default`, `10.1.0.0/16`, `10.1.0.7`.
fn short(prefix: IpPrefix) -> String {
    match prefix {
        _ if prefix.prefix_len() == 0 => "default".to_owned(),
        _ if prefix == IpPrefix::host(prefix.addr()) => prefix.addr().to_string(),
        _ => prefix.to_string(),
    }
}

/// The original's modifier for it; it has none for `prohibit`.
const fn end_word(end: RouteEnd) -> &'static str {
    match end {
        RouteEnd::Unreachable => "reject",
        RouteEnd::Blackhole | RouteEnd::Prohibit => end.word(),
    }
}

/// Tells what became of a change in each of the lists that it was about: `missed` is why not, where it did nothing. It has failed
/// where it did nothing anywhere.
fn tell(
    session: &mut Session<'_>,
    words: &Words,
    what: &str,
    asked: &Asked,
    missed: &[Option<&str>],
) -> Result<(), Failure> {
    let lines = missed.iter().zip(["", "persistent "]).map(|(missed, list)| {
        let why = missed.map(|why| format!(": {why}")).unwrap_or_default();
        format!("{what} {list}{}{why}", asked.text)
    });
    let text = lines.collect::<Vec<_>>().join("\n");
    if missed.iter().all(Option::is_some) {
        return Err(Failure::Text(text));
    }
    if words.call.args.has('q') { Ok(()) } else { Ok(writeln!(session.out, "{text}")?) }
}

fn failed(what: &str, error: &ApiError) -> Failure {
    die_status(&format!("cannot {what} the route"), error)
}

/// The route takes the place of those that are `flushed`, all at once: if it is refused, they stay.
fn add(
    session: &mut Session<'_>,
    words: &Words,
    table: &Table,
    asked: &Asked,
    flushed: Vec<Route>,
) -> Result<(), Failure> {
    let Some(route) = asked.route else { return Err(words.call.misused()) };
    let stays = |it: &Route| !flushed.iter().any(|gone| gone.is_same_way(*it));
    let exists = |it: &Netstack| it.same_way(route).filter(stays).map(|_| "entry exists");
    let mut missed: Vec<_> = table.touched(words).iter().map(exists).collect();
    if missed.iter().any(Option::is_none) {
        match table.change(session, words, RoutesChange { remove: flushed.clone(), add: vec![route] }) {
            Ok(()) => tell_flushed(session, words, &flushed)?,
            // Somebody else was faster.
            Err(error) if error.status == Status::Exists => missed.fill(Some("entry exists")),
            Err(error) => return Err(failed("add", &error)),
        }
    }
    tell(session, words, "add", asked, &missed)?;
    warn_of_unused(session, table, route)
}

/// A gateway that is on no subnet of the netstack leads nowhere until there is one.
fn warn_of_unused(session: &mut Session<'_>, table: &Table, route: Route) -> Result<(), Failure> {
    let Way::Via(gateway) = route.way() else { return Ok(()) };
    let is_it = |it: &RouteInfo| {
        it.origin == RouteOrigin::Operator
            && it.destination == route.destination().to_string()
            && it.gateway.as_deref() == Some(gateway.to_string().as_str())
    };
    let routes = session.api.routes(table.netstack.as_str())?;
    if routes.iter().filter(|it| is_it(it)).any(|it| !it.flags.contains('U')) {
        let netstack = &table.netstack;
        let message = format!("{gateway} is on no subnet of netstack {netstack}: the route is not in use");
        session.warn(PROGRAM, &message);
    }
    Ok(())
}

fn delete(session: &mut Session<'_>, words: &Words, table: &Table, asked: &Asked) -> Result<(), Failure> {
    let is_asked = |route: Route| {
        let ends = |gateway: IpAddr| gateway.is_loopback() && route.gateway().is_none();
        asked.is_about(words, route) && asked.gateway.is_none_or(|it| route.gateway() == Some(it) || ends(it))
    };
    let route = match table.found(words, is_asked).as_slice() {
        [] => return not_in_table(session, words, table, "delete", asked),
        [only] => *only,
        many => return Err(several(asked, many)),
    };
    let absent = |it: &Netstack| it.same_way(route).is_none().then_some("not in table");
    let mut missed: Vec<_> = table.touched(words).iter().map(absent).collect();
    let done = table.change(session, words, RoutesChange { remove: vec![route], ..RoutesChange::default() });
    match done {
        Ok(()) => {}
        Err(error) if error.status == Status::NotFound => missed.fill(Some("not in table")),
        Err(error) => return Err(failed("delete", &error)),
    }
    tell(session, words, "delete", asked, &missed)
}

fn several(asked: &Asked, routes: &[Route]) -> Failure {
    let gateways: Vec<_> = routes.iter().filter_map(|it| it.gateway()).map(|it| it.to_string()).collect();
    die(format!(
        "{}: it has several gateways, and which is meant has to be said: {}",
        asked.text,
        gateways.join(", ")
    ))
}

/// The route takes the place of the only one to its destination, or of the same with another congestion control.
fn change(session: &mut Session<'_>, words: &Words, table: &Table, asked: &Asked) -> Result<(), Failure> {
    let Some(route) = asked.route else { return Err(words.call.misused()) };
    let same = table.found(words, |it| it.is_same_way(route));
    let remove = match same.as_slice() {
        [] => table.found(words, |it| asked.is_about(words, it)),
        _ => same,
    };
    match remove.as_slice() {
        [] => return not_in_table(session, words, table, "change", asked),
        [_] => {}
        many => {
            let in_one = |it: &Netstack| many.iter().filter(|route| it.same_way(**route).is_some()).count();
            if table.touched(words).iter().any(|it| in_one(it) > 1) {
                return Err(several(asked, many));
            }
        }
    }
    let lists = table.touched(words).len();
    match table.change(session, words, RoutesChange { remove, add: vec![route] }) {
        Ok(()) => tell(session, words, "change", asked, &vec![None; lists])?,
        Err(error) if error.status == Status::NotFound => {
            return tell(session, words, "change", asked, &vec![Some("not in table"); lists]);
        }
        Err(error) => return Err(failed("change", &error)),
    }
    warn_of_unused(session, table, route)
}

/// Nothing of the operator's is what is asked for; if something of others is, it is said whose.
fn not_in_table(
    session: &mut Session<'_>,
    words: &Words,
    table: &Table,
    what: &str,
    asked: &Asked,
) -> Result<(), Failure> {
    let source = words.source.map(|it| it.network().to_string());
    let is_asked = |it: &&RouteInfo| {
        // `change` names the gateway that is to be.
        let is_by = |gateway: IpAddr| what == "change" || it.gateway == Some(gateway.to_string());
        it.origin != RouteOrigin::Operator
            && it.destination == asked.prefix.to_string()
            && it.source == source
            && asked.gateway.is_none_or(is_by)
    };
    let routes = session.api.routes(table.netstack.as_str())?;
    let why = routes.iter().find(is_asked).map_or_else(|| "not in table".to_owned(), whose);
    let missed = [Some(why.as_str()), Some("not in table")];
    tell(session, words, what, asked, &missed[..table.touched(words).len()])
}

/// Whose a route is that is not the operator's, and how he is rid of it.
fn whose(route: &RouteInfo) -> String {
    let on = route.interface.as_ref().map(|it| format!(" on {it}")).unwrap_or_default();
    match route.origin {
        RouteOrigin::Address => format!("it belongs to an address{on}, and goes with it (ipadm delete-addr)"),
        RouteOrigin::OnLink | RouteOrigin::Router => {
            format!("a router advertises it{on}; it goes with ipadm delete-addr of the addrconf address")
        }
        RouteOrigin::Lease => {
            format!("a DHCP server gave it{on}; it goes with its lease (ipadm delete-addr)")
        }
        RouteOrigin::Daemon => {
            let protocol = route.protocol.as_ref().map(|it| format!(" ({it})")).unwrap_or_default();
            format!("the routing daemon gave it{protocol}, and takes it back")
        }
        RouteOrigin::Operator => "not in table".to_owned(),
    }
}

/// All of the operator's routes go, or those of a family.
fn flush(session: &mut Session<'_>, words: &Words, table: &Table) -> Result<(), Failure> {
    let remove = table.flushed(words);
    if remove.is_empty() {
        return Ok(());
    }
    table
        .change(session, words, RoutesChange { remove: remove.clone(), ..RoutesChange::default() })
        .map_err(|error| die_status("cannot flush the routes", &error))?;
    tell_flushed(session, words, &remove)
}

/// A line for each that is gone.
fn tell_flushed(session: &mut Session<'_>, words: &Words, flushed: &[Route]) -> Result<(), Failure> {
    if words.call.args.has('q') {
        return Ok(());
    }
    for route in flushed {
        let way = match route.way() {
            Way::Via(gateway) => gateway.to_string(),
            Way::Ends(end) => end_word(end).to_owned(),
        };
        writeln!(session.out, "{:<20} {way:<20} done", short(route.destination()))?;
    }
    Ok(())
}

/// The routes as commands that make them.
fn show(session: &mut Session<'_>, words: &Words, table: &Table) -> Result<(), Failure> {
    let is_kept = words.call.args.has('p');
    let [active, kept] = &table.lists;
    let (list, word) = if is_kept { (kept, "persistent") } else { (active, "active") };
    let mut routes = list.routes.iter().filter(|it| is_of_family(words, **it)).peekable();
    if routes.peek().is_none() {
        let which = if is_kept { "persistent " } else { "" };
        return Ok(writeln!(session.out, "No {which}routes are defined")?);
    }
    for route in routes {
        writeln!(session.out, "{word}: route add {}", said(*route))?;
    }
    Ok(())
}

/// The words that make a route.
fn said(route: Route) -> String {
    let destination = match (route.destination(), route.way()) {
        (it, Way::Via(_)) => short(it),
        // Without a gateway `default` has no family.
        (it, Way::Ends(_)) if it == everywhere(it.addr().is_ipv6()) => it.to_string(),
        (it, Way::Ends(_)) => short(it),
    };
    let way = match route.way() {
        Way::Via(gateway) => gateway.to_string(),
        Way::Ends(end) => format!("-{}", end_word(end)),
    };
    let source = route.source().map(|it| format!(" -from {it}")).unwrap_or_default();
    let congestion = route.congestion_control().map(|it| format!(" -congestion {}", it.word()));
    format!("{destination} {way}{source}{}", congestion.unwrap_or_default())
}
