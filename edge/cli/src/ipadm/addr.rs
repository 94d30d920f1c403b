//! `ipadm` verbs for addresses.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use firelane_api::{AddrInfo, AddressState, ApiError, Change, ChangeRequest, LeaseAction, Status, Which};
use firelane_model::{AddrObjName, Addrconf, Address, Dhcp, HostName, LinkName, NameError};
use firelane_units::IpPrefix;

use super::PROGRAM;
use super::iface::only_temporary;
use crate::common::Call;
use crate::ofmt::{Column, Style, Table, col};
use crate::session::{Failure, Session, die, die_status};

const ADDRESS: &[Column] = &[
    col("ADDROBJ", 18),
    col("TYPE", 9),
    col("STATE", 13),
    col("CURRENT", 8),
    col("PERSISTENT", 11),
    col("ADDR", 46),
];

/// How long a command waits for a lease unless `-w` says otherwise, and how often it looks.
const LEASE_TIME: Duration = Duration::from_secs(120);
const LEASE_POLL: Duration = Duration::from_millis(50);

/// create-addr
pub(super) fn create(session: &mut Session<'_>, call: &Call<'_>) -> Result<(), Failure> {
    let with_usage = |message: String| die(format!("{message}\nusage: {}", call.usage));
    let [text] = call.args.operands.as_slice() else {
        return Err(with_usage(
            "Invalid arguments (an address object, such as web0/v4, or an interface)".into(),
        ));
    };
    // An address says by itself that it is a static one.
    let kind = call.args.value('T').or(call.args.has('a').then_some("static"));
    let kind =
        kind.ok_or_else(|| with_usage("Invalid arguments (-T: static with -a, addrconf or dhcp)".into()))?;
    if text.split_once('/').is_some_and(|(_, string)| string.is_empty()) {
        return Err(with_usage(format!("invalid address object name: {text} (such as {text}v4)")));
    }
    let own: &[char] = match kind {
        "static" => &['a', 'd'],
        "addrconf" => &['i', 'p'],
        "dhcp" => &['h', 'p', 'w', '1'],
        _ => return Err(die(format!("Invalid address type {kind} (static, addrconf, dhcp)"))),
    };
    let is_foreign = |letter: &char| call.args.has(*letter) && !own.contains(letter);
    if ['a', 'd', 'h', 'i', 'p', 'w', '1'].iter().any(is_foreign) {
        return Err(with_usage(format!("Invalid arguments for type {kind}")));
    }
    let wait = read_wait(call).map_err(with_usage)?;
    let address = if kind == "addrconf" {
        Address::Addrconf(read_addrconf(call).map_err(with_usage)?)
    } else if kind == "dhcp" {
        Address::Dhcp(read_dhcp(call).map_err(with_usage)?)
    } else {
        let Some(address) = call.args.value('a') else {
            return Err(with_usage(format!("Invalid arguments for type {kind}")));
        };
        let local = local_address(address).map_err(with_usage)?;
        match static_address(local)? {
            Address::Static(it) => Address::Static(it.with_down(call.args.has('d'))),
            other => other,
        }
    };
    let name = object_name(session, text, &address)?;
    let change = Change::CreateAddr(name.clone(), address);
    let request = ChangeRequest { temporary: call.args.has('t'), change };
    session.api.change(&request).map_err(|error| die_status("Could not create address", &error))?;
    if !text.contains('/') {
        // Who waits for a lease has the name meanwhile.
        writeln!(session.out, "{name}")?;
        session.out.flush()?;
    }
    match address {
        Address::Dhcp(_) => await_lease(session, &name, wait),
        _ => Ok(()),
    }
}

/// The name of the address object that is made. An interface alone gets the first free one of its family, as in Solaris 11: `v4`, `v4a`
/// to `v4z`; whoever takes it at the same moment is told by the change that it is there.
fn object_name(session: &Session<'_>, text: &str, address: &Address) -> Result<AddrObjName, Failure> {
    let bad =
        |why: String| die(format!("Error in creating address object: {} ({why})", Status::BadName.text()));
    if text.contains('/') {
        return read_name(text).map_err(bad);
    }
    let family = match address {
        Address::Static(it) if it.prefix().addr().is_ipv6() => "v6",
        Address::Addrconf(_) => "v6",
        Address::Static(_) | Address::Dhcp(_) => "v4",
    };
    let mut taken = BTreeSet::new();
    for which in [Which::Active, Which::Persistent] {
        let addrs = session.api.addrs(which);
        let addrs = addrs.map_err(|error| die_status("Could not create address", &error))?;
        taken.extend(addrs.into_iter().map(|it| it.name.to_string()));
    }
    let letters = std::iter::once(String::new()).chain(('a'..='z').map(String::from));
    let mut names = letters.map(|letter| format!("{text}/{family}{letter}"));
    let free = names.find(|name| !taken.contains(name));
    let free =
        free.ok_or_else(|| bad(format!("{text}/{family} to {text}/{family}z are taken: name another")))?;
    read_name(&free).map_err(bad)
}

/// Reads the name of an address object, or says what is wrong with it: with its interface's name, if it is that.
fn read_name(text: &str) -> Result<AddrObjName, String> {
    text.parse().map_err(|error: NameError| {
        let interface = text.split_once('/').map(|(interface, _)| interface);
        match interface.and_then(|it| Some((it, it.parse::<LinkName>().err()?))) {
            Some((interface, why)) => format!("the interface {interface:?} of {text}: {why}"),
            None => format!("{text}: {error}"),
        }
    })
}

/// How long `-w` lets the command wait for a lease; `None` is for ever.
fn read_wait(call: &Call<'_>) -> Result<Option<Duration>, String> {
    match call.args.value('w') {
        None => Ok(Some(LEASE_TIME)),
        Some("forever") => Ok(None),
        Some(text) => {
            let seconds = text.parse::<u32>().map(|seconds| Some(Duration::from_secs(seconds.into())));
            seconds.map_err(|_| format!("Invalid wait time provided ({text}: seconds or forever)"))
        }
    }
}

/// What `-1`, `-h` and `-p` say about an address that a server gives.
fn read_dhcp(call: &Call<'_>) -> Result<Dhcp, String> {
    let refused = |name: &str| format!("Invalid host name provided ({name}: {})", HostName::ALLOWED);
    let host_name =
        call.args.value('h').map(|name| HostName::new(name).ok_or_else(|| refused(name))).transpose()?;
    let mut conf = Dhcp { host_name, primary: call.args.has('1'), ..Dhcp::default() };
    for word in call.args.values('p').flat_map(|words| words.split(',')) {
        conf.link_local = match word {
            "linklocal=yes" => true,
            "linklocal=no" => false,
            _ => return Err(format!("Invalid property provided ({word}: linklocal = yes or no)")),
        };
    }
    Ok(conf)
}

/// Waits until a lease is in force. The client goes on looking for one when the command has given up.
fn await_lease(session: &mut Session<'_>, name: &AddrObjName, wait: Option<Duration>) -> Result<(), Failure> {
    let begun = Instant::now();
    loop {
        let addrs = session.api.addrs(Which::Active);
        let addrs = addrs.map_err(|error| die_status("Could not get address", &error))?;
        match addrs.iter().find(|it| it.name == *name).map(|it| it.state) {
            // Somebody else has deleted it meanwhile.
            None => return Err(die_status("Could not create address", &Status::NoAddrObj.into())),
            Some(AddressState::Ok) => return Ok(()),
            Some(_) => {}
        }
        let is_over = wait.is_some_and(|wait| begun.elapsed() >= wait);
        if is_over || !(session.sleep)(LEASE_POLL) {
            let allowed = "no lease yet; the client goes on";
            let error = ApiError::new(Status::DhcpTimedOut, "", name, allowed);
            return Err(die_status("Could not create address", &error));
        }
    }
}

fn static_address(local: &str) -> Result<Address, Failure> {
    read_address(local).ok_or_else(|| {
        let allowed = "a unicast address of a host, with an optional prefix length";
        die(format!("Error in setting local address: {} ({local}: {allowed})", Status::BadAddr.text()))
    })
}

/// What `-i` and `-p` say about automatic addresses.
fn read_addrconf(call: &Call<'_>) -> Result<Addrconf, String> {
    let mut conf = Addrconf::default();
    if let Some(id) = call.args.value('i') {
        let given = conf.with("interface-id", id);
        let allowed = "the lower 64 bits of an IPv6 address, such as ::1a:2b:3c:4d";
        conf = given.ok_or_else(|| format!("Invalid interface ID provided ({id}: {allowed})"))?;
    }
    for word in call.args.values('p').flat_map(|words| words.split(',')) {
        let given = word.split_once('=').filter(|(name, _)| *name != "interface-id");
        let allowed = "stateful, stateless or temporary = yes or no";
        conf = given
            .and_then(|(name, value)| conf.with(name, value))
            .ok_or_else(|| format!("Invalid property provided ({word}: {allowed})"))?;
    }
    Ok(conf)
}

/// The address in `[local=]address`; a point-to-point `remote=` is not supported.
fn local_address(text: &str) -> Result<&str, String> {
    let mut local = None;
    for part in text.split(',') {
        let address = match part.split_once('=') {
            Some(("local", address)) => address,
            Some(("remote", _)) => return Err(format!("Invalid address provided ({part}: only local=)")),
            Some(_) => return Err("Invalid address provided".into()),
            None => part,
        };
        if local.replace(address).is_some() {
            return Err("Multiple local addresses provided".into());
        }
    }
    local.filter(|address| !address.is_empty()).ok_or_else(|| "Missing local address".into())
}

/// Reads an address, with its usual prefix length if it names none.
fn read_address(text: &str) -> Option<Address> {
    let prefix = match text.parse::<IpAddr>() {
        Err(_) => text.parse().ok()?,
        Ok(addr) => IpPrefix::new(addr, Address::default_prefix_len(addr))?,
    };
    Address::new(prefix)
}

/// delete-addr
pub(super) fn delete(session: &mut Session<'_>, call: &Call<'_>) -> Result<(), Failure> {
    let text = call.operand()?;
    let name = read_name(text)
        .map_err(|why| die(format!("could not delete address: {} ({why})", Status::NoAddrObj.text())))?;
    if call.args.has('r') {
        let told = session.api.tell_client(text, LeaseAction::Release);
        told.map_err(|error| die_status("could not delete address", &error))?;
    }
    let request = ChangeRequest { temporary: false, change: Change::DeleteAddr(name) };
    session.api.change(&request).map_err(|error| die_status("could not delete address", &error))
}

/// up-addr
pub(super) fn up(session: &mut Session<'_>, call: &Call<'_>) -> Result<(), Failure> {
    let what = "Could not mark the address up";
    change(session, call, what, |name| Change::MarkAddr(name, true))
}

/// down-addr
pub(super) fn down(session: &mut Session<'_>, call: &Call<'_>) -> Result<(), Failure> {
    let what = "Could not mark the address down";
    change(session, call, what, |name| Change::MarkAddr(name, false))
}

/// enable-addr
pub(super) fn enable(session: &mut Session<'_>, call: &Call<'_>) -> Result<(), Failure> {
    call.operand()?;
    only_temporary(call, "enable-addr")?;
    change(session, call, "could not enable address", Change::EnableAddr)
}

/// disable-addr
pub(super) fn disable(session: &mut Session<'_>, call: &Call<'_>) -> Result<(), Failure> {
    call.operand()?;
    only_temporary(call, "disable-addr")?;
    change(session, call, "could not disable address", Change::DisableAddr)
}

fn change(
    session: &mut Session<'_>,
    call: &Call<'_>,
    what: &str,
    change: impl Fn(AddrObjName) -> Change,
) -> Result<(), Failure> {
    let text = call.operand()?;
    let name = read_name(text).map_err(|why| die(format!("{what}: {} ({why})", Status::NoAddrObj.text())))?;
    let request = ChangeRequest { temporary: call.args.has('t'), change: change(name) };
    session.api.change(&request).map_err(|error| die_status(what, &error))
}

/// refresh-addr
pub(super) fn refresh(session: &mut Session<'_>, call: &Call<'_>) -> Result<(), Failure> {
    let text = call.operand()?;
    let refused = |error: ApiError| die_status("could not refresh address", &error);
    // What is no name would mean something else to the daemon's address of it.
    let absent = |_| refused(ApiError::new(Status::NoAddrObj, "addrobj", text, ""));
    read_name(text).map_err(absent)?;
    if !call.args.has('i') {
        return session.api.tell_client(text, LeaseAction::Refresh).map_err(refused);
    }
    session.api.tell_client(text, LeaseAction::Inform).map_err(refused)?;
    await_answer(session, text)
}

/// Waits until a server has said what the network is like, or the question is given up, after a minute (RFC 2131 §4.4.3).
fn await_answer(session: &mut Session<'_>, name: &str) -> Result<(), Failure> {
    let refused = |error: ApiError| die_status("could not refresh address", &error);
    loop {
        let addrs = session.api.addrs(Which::Active).map_err(refused)?;
        let found = addrs.iter().find(|it| it.name.as_str() == name);
        let lease = found.ok_or_else(|| refused(Status::NoAddrObj.into()))?.lease.as_ref();
        let over = || refused(ApiError::new(Status::DhcpTimedOut, "", name, "no server answers"));
        match lease.map(|it| it.state.as_str()) {
            Some("INFORMED") => return Ok(()),
            Some("INFORMING") if (session.sleep)(LEASE_POLL) => {}
            _ => return Err(over()),
        }
    }
}

/// show-addr
pub(super) fn show(session: &mut Session<'_>, call: &Call<'_>) -> Result<(), Failure> {
    let fields = call.args.value('o');
    if call.args.has('p') && fields.is_none() {
        return Err(die("-p requires -o"));
    }
    let which = if call.args.has('P') { Which::Persistent } else { Which::Active };
    let name = call.optional_operand()?;
    let mut addrs = session.api.addrs(which).map_err(|error| die_status("Could not get address", &error))?;
    if which == Which::Active {
        // What is kept and not in force is shown as disabled.
        let known: BTreeSet<_> = addrs.iter().map(|it| it.name.clone()).collect();
        let kept = session.api.addrs(Which::Persistent);
        let kept = kept.map_err(|error| die_status("Could not get address", &error))?;
        addrs.extend(kept.into_iter().filter(|it| !known.contains(&it.name)));
    }
    // An interface alone means all of its addresses, as with a slash behind.
    match name.map(|name| name.split_once('/').unwrap_or((name, ""))) {
        None => {}
        Some((interface, "")) => {
            addrs.retain(|addr| addr.name.interface() == interface);
            if addrs.is_empty() {
                is_interface(session, which, interface)?;
            }
        }
        Some(_) => {
            addrs.retain(|addr| Some(addr.name.as_str()) == name);
            if addrs.is_empty() {
                return Err(die("Address object not found"));
            }
        }
    }
    if call.args.has('j') {
        return session.json("addresses", &addrs, false);
    }
    let style = Style { fields, parsable: call.args.has('p'), ..Style::default() };
    let mut table = Table::open(session, PROGRAM, ADDRESS, "addrobj,type,state,addr", style)?;
    for addr in &addrs {
        let [name, kind, state, current, persistent, text] = row(addr);
        // What the next start begins with is in no state.
        let [state, current] =
            if which == Which::Persistent { [String::new(), String::new()] } else { [state, current] };
        table.row(session, &[name, kind, state, current, persistent, text])?;
    }
    Ok(())
}

/// An interface may be without addresses; one that is not there is told.
pub(super) fn is_interface(session: &Session<'_>, which: Which, name: &str) -> Result<(), Failure> {
    let ifs = session.api.ifs(which).map_err(|error| die_status("Could not get address", &error))?;
    match ifs.iter().any(|it| it.name.as_str() == name) {
        true => Ok(()),
        false => Err(die(format!("Could not get address: {}", Status::NoIf.text()))),
    }
}

/// Flags: U up, u unnumbered, p private, t temporary, d deprecated.
fn row(addr: &AddrInfo) -> [String; 6] {
    let is_temporary = !addr.persistent || addr.temporary;
    let flag = |letter, is_set: bool| if is_set { letter } else { '-' };
    let is_off = addr.state == AddressState::Disabled;
    // Of a server's address it says that there is none yet.
    let is_up = addr.state != AddressState::Down || addr.kind == "dhcp";
    let up = flag('U', is_up && !is_off);
    let current =
        format!("{up}--{}{}", flag('t', is_temporary && !is_off), flag('d', addr.deprecated && !is_off));
    let persistent = format!("{}--", flag('U', addr.persistent && !addr.persistent_down));
    let state = addr.state.word().to_owned();
    // As in the original: there will be an address, and nobody knows which.
    let is_unknown = addr.addr.is_empty() && addr.lease.is_some();
    let text = if is_unknown { "?".to_owned() } else { addr.addr.clone() };
    [addr.name.to_string(), addr.kind.clone(), state, current, persistent, text]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_without_a_length_has_that_of_its_class() {
        for (text, want) in [
            ("10.0.0.5", Some("10.0.0.5/8")),
            ("172.16.0.5", Some("172.16.0.5/16")),
            ("192.168.0.5", Some("192.168.0.5/24")),
            ("192.168.0.5/30", Some("192.168.0.5/30")),
            ("fd00::5", Some("fd00::5/64")),
            ("127.0.0.1", None),
            ("host", None),
        ] {
            assert_eq!(read_address(text).map(|a| a.to_string()).as_deref(), want, "{text}");
        }
    }
}
