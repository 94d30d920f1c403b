//! `firelane lab`: a netstack to try things on, with echo, discard, chargen and sink over TCP and UDP.
//!
//! It starts a real `firelaned` of its own with the configuration that `topology.rs` makes of the options, and leaves
//! it running until `firelane lab --clean`. Called by `own.rs`; speaks to the daemon through its interface alone.

mod topology;

use firelane_model::{Model, Tunables};
use firelane_units::{IpPrefix, Mtu};

use crate::EXIT_USAGE;
use crate::common::prefix;
use crate::own::Refused;
use crate::session::{Failure, Session, die};
use crate::stage::host::{self, Host};
use crate::stage::place::Place;
use topology::{NAMESPACE, Wishes};

/// The netstack's addresses unless said otherwise: of those that no network on the Internet has.
const ADDRESSES: [&str; 2] = ["10.7.0.1/24", "fd07::1/64"];

/// The seed of a deterministic laboratory.
const SEED: u64 = 1;

/// What the laboratory is like.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct Options {
    /// An address of the netstack; may be repeated [default: 10.7.0.1/24 and fd07::1/64]
    #[arg(short, long, value_name = "ADDRESS/LENGTH", value_parser = prefix)]
    address: Vec<IpPrefix>,
    /// An address of the kernel's interface lab0; may be repeated [default: the one beside each --address]
    #[arg(long, value_name = "ADDRESS/LENGTH", value_parser = prefix)]
    peer: Vec<IpPrefix>,
    /// The largest packet between the two, 576 to 9000
    #[arg(short, long, default_value = "1500", value_parser = mtu)]
    mtu: Mtu,
    /// A tunable of the netstack, as ipadm set-prop knows it; may be repeated
    #[arg(short, long, value_name = "PROTOCOL.NAME=VALUE")]
    prop: Vec<String>,
    /// Choose ports and initial sequence numbers from the same seed every time
    #[arg(short, long)]
    deterministic: bool,
    /// Only write the configuration that would run
    #[arg(long, conflicts_with = "clean")]
    print: bool,
    /// End the laboratory and remove what it left behind
    #[arg(long)]
    clean: bool,
}

fn mtu(text: &str) -> Result<Mtu, String> {
    let read = text.parse().ok().and_then(Mtu::new).filter(|mtu| *mtu <= Mtu::ETHERSTUB);
    read.ok_or_else(|| "a number from 576 to 9000".to_owned())
}

/// Starts the laboratory, or ends it.
pub(crate) fn run(session: &mut Session<'_>, options: &Options) -> Result<(), Refused> {
    let model = options.model().map_err(|why| Refused(die(why), EXIT_USAGE))?;
    if options.print {
        return Ok(session.out.write_all(model.to_toml().as_bytes())?);
    }
    Ok(start(session, options, &model)?)
}

fn start(session: &mut Session<'_>, options: &Options, model: &Model) -> Result<(), Failure> {
    let place = Place::of_this_user("lab");
    if options.clean {
        host::clean(&place).map_err(die)?;
        return Ok(writeln!(session.out, "lab: clean")?);
    }
    if !place.is_inside() {
        return Err(place.enter(&options.words()));
    }
    host::clean(&place).map_err(die)?;
    let seed = if options.deterministic { vec!["--seed".to_owned(), SEED.to_string()] } else { Vec::new() };
    let host = Host::start(&place, &model.to_toml(), &seed).map_err(die)?;
    let problems = host.problems().map_err(die)?;
    if !problems.is_empty() {
        drop(host);
        host::clean(&place).map_err(die)?;
        return Err(die(problems.join("; ")));
    }
    for note in host.notes() {
        writeln!(session.out, "note: {note}")?;
    }
    write!(session.out, "{}", commands_to_try(&place, host.pid(), model))?;
    host.let_go(true);
    Ok(())
}

/// What a person may type while the laboratory runs.
fn commands_to_try(place: &Place, daemon: u32, model: &Model) -> String {
    let addresses: Vec<_> = model.addresses().filter_map(|(_, _, it)| it.addr()).collect();
    let spelled: Vec<_> = addresses.iter().map(ToString::to_string).collect();
    let first = spelled.first().cloned().unwrap_or_default();
    let (enter, command, socket) = (place.enter_words(daemon), Place::command(), place.socket_line());
    let inside = format!("{enter}ip netns exec {NAMESPACE}");
    format!(
        "The netstack has {}; TCP and UDP: echo 7, discard 9, chargen 19, sink 5001. Try:\n\
         \x20 {inside} ping -c 3 {first}\n\
         \x20 {inside} bash -c 'exec 3<>/dev/tcp/{first}/7; echo hello >&3; head -n 1 <&3'\n\
         \x20 {inside} bash -c 'head -n 20 </dev/tcp/{first}/19'\n\
         \x20 {inside} bash -c 'head -c 100M /dev/zero >/dev/tcp/{first}/5001'\n\
         \x20 {socket}\n\
         \x20 {command} netstat -an\n\
         \x20 {command} connstat\n\
         \x20 {command} ipadm show-prop tcp\n\
         \x20 {command} capture -l stack0 | tcpdump -nr -\n\
         \x20 {command} drops\n\
         and at the end\n\
         \x20 {command} lab --clean\n",
        spelled.join(" and ")
    )
}

impl Options {
    fn model(&self) -> Result<Model, String> {
        let mut tunables = Tunables::default();
        self.prop.iter().try_for_each(|text| topology::set(&mut tunables, text))?;
        let addresses = if self.address.is_empty() {
            ADDRESSES.into_iter().filter_map(|text| text.parse().ok()).collect()
        } else {
            self.address.clone()
        };
        Wishes { addresses, peers: self.peer.clone(), mtu: self.mtu, tunables }.model()
    }

    /// The words that ask for the same again.
    fn words(&self) -> Vec<String> {
        let mut words = vec![format!("--mtu={}", self.mtu)];
        words.extend(self.address.iter().map(|it| format!("--address={it}")));
        words.extend(self.peer.iter().map(|it| format!("--peer={it}")));
        words.extend(self.prop.iter().map(|it| format!("--prop={it}")));
        words.extend(self.deterministic.then(|| "--deterministic".to_owned()));
        words
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        options: Options,
    }

    #[test]
    fn an_ordinary_users_laboratory_is_asked_for_in_the_same_words() {
        let words = [
            "lab",
            "-a",
            "192.0.2.1/24",
            "-a",
            "2001:db8::1/64",
            "--peer",
            "192.0.2.9/24",
            "-m",
            "1280",
            "-p",
            "tcp.profile=freebsd",
            "-d",
        ];
        let one = Line::parse_from(words).options;
        let again = Line::parse_from(std::iter::once("lab".to_owned()).chain(one.words())).options;
        assert_eq!(format!("{one:?}"), format!("{again:?}"));
    }
}
