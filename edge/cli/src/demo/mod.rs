//! `firelane demo`: the main job end to end, with real programs at the edges.
//!
//! It starts a real `firelaned` with `examples/two-tenants.toml` in a place of its own, lets `ping`, `curl` and
//! `iperf3` work in the two tenants' namespaces, and prints what was wanted against what was measured. Called
//! by `own.rs`; speaks to the daemon through its interface alone.
//!
//! - `../stage`: the demo's daemon, its folder, and for an ordinary user a user namespace.
//! - `program.rs`: real programs, run inside a namespace. `checks.rs`: what is wanted. `report.rs`: the output.

mod checks;
mod program;
mod report;

use crate::session::{Failure, Session, die};
use crate::stage::host::{self, Host};
use crate::stage::place::Place;
use report::Report;

/// How the demo is run.
#[derive(clap::Args, Clone, Copy, Debug)]
pub(crate) struct Options {
    /// One JSON document of all figures
    #[arg(long)]
    json: bool,
    /// Leave it running and print commands to try
    #[arg(long, conflicts_with_all = ["clean", "json"])]
    keep: bool,
    /// End a demo that was left running, or died, and remove what it left behind
    #[arg(long)]
    clean: bool,
}

/// The configuration that the demo runs.
const CONFIG: &str = include_str!("../../../../examples/two-tenants.toml");

/// Runs the demo, or cleans up after one.
pub(crate) fn run(session: &mut Session<'_>, options: Options) -> Result<(), Failure> {
    let place = Place::of_this_user("demo");
    if options.clean {
        host::clean(&place).map_err(die)?;
        return Ok(writeln!(session.out, "demo: clean")?);
    }
    if !place.is_inside() {
        return Err(place.enter(&options.words()));
    }
    host::clean(&place).map_err(die)?;
    let outcome = perform(session, options, &place);
    // Who wants to keep it wants to look at what failed, too.
    if !options.keep || outcome.is_err() {
        host::clean(&place).map_err(die)?;
    }
    if outcome? { Ok(()) } else { Err(Failure::Said) }
}

/// Runs all checks; whether all is well.
fn perform(session: &mut Session<'_>, options: Options, place: &Place) -> Result<bool, Failure> {
    let mut report = Report::new(options.json);
    report.say(session, &format!("{}\n", picture()))?;
    let host = Host::start(place, CONFIG, &[]).map_err(die)?;
    // What is not there cannot be measured; a daemon that has the same namespaces is in the way of it.
    let problems = host.problems().map_err(die)?;
    if !problems.is_empty() {
        let hint = "is another firelaned with these namespaces running?";
        return Err(die(format!("the demo cannot begin ({hint}): {}", problems.join("; "))));
    }
    checks::run(session, &host, &mut report)?;
    let all_well = report.finish(session, &host)?;
    if options.keep {
        write!(session.out, "{}", commands_to_try(place, host.pid()))?;
    }
    host.let_go(options.keep);
    Ok(all_well)
}

/// The topology as the configuration file draws it.
fn picture() -> String {
    let drawing = CONFIG.lines().skip(2).take_while(|line| line.starts_with('#'));
    let lines: Vec<_> = drawing.map(|line| line.trim_start_matches('#').trim_end()).collect();
    lines.join("\n")
}

/// What a person may type while the demo runs on.
fn commands_to_try(place: &Place, daemon: u32) -> String {
    let (enter, command, socket) = (place.enter_words(daemon), Place::command(), place.socket_line());
    format!(
        "\nIt runs on. Try:\n\
         \x20 {enter}ip netns exec alice curl http://10.0.0.10/\n\
         \x20 {enter}ip netns exec alice ping fd00::10\n\
         \x20 {socket}\n\
         \x20 {command} dladm show-vnic\n\
         \x20 {command} flowadm set-flowprop -l bob0 -p maxbw=10M iperf\n\
         \x20 {command} flowstat -i 1\n\
         \x20 {command} drops\n\
         and at the end\n\
         \x20 {command} demo --clean\n"
    )
}

impl Options {
    /// The words that ask for the same again.
    fn words(self) -> Vec<&'static str> {
        let chosen = [(self.json, "--json"), (self.keep, "--keep"), (self.clean, "--clean")];
        chosen.into_iter().filter(|(is_set, _)| *is_set).map(|(_, word)| word).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_picture_shows_both_tenants_and_the_switch() {
        let picture = picture();
        for word in ["alice0", "bob0", "netstack \"web\"", "vswitch1", "10.0.0.10", "fd00::2"] {
            assert!(picture.contains(word), "{word} in\n{picture}");
        }
        assert!(!picture.contains('#'));
    }
}
