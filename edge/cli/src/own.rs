//! `firelane`'s own verbs: a configuration file checked, planned, applied and dumped; what runs; what was
//! dropped. Bad input exits 2, failure 1, no daemon 75.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::error::ErrorKind;
use clap::{CommandFactory, Parser, Subcommand};
use firelane_api::{ApiError, EMPTY_FIELD, Finding, FindingState, Mark, PlanReply, Replacing, Status, Which};
use firelane_model::{MODEL_TEXT_MAX, Model};

use crate::common::{read_text, system_message};
use crate::ofmt::{Column, Form, Table, col};
use crate::session::{Failure, Session, die};
use crate::{EXIT_NO_DAEMON, EXIT_USAGE};

const PROGRAM: &str = "firelane";

/// Network lanes for every service on a host.
#[derive(Parser, Debug)]
#[command(name = "firelane", version, disable_help_subcommand = true)]
struct Cli {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand, Debug)]
enum Verb {
    /// Check a configuration file without touching anything
    Check {
        /// The file; - is the standard input
        file: PathBuf,
    },
    /// Show what applying a configuration file would do
    Plan {
        /// The file; - is the standard input
        file: PathBuf,
        /// Answer in JSON
        #[arg(short, long)]
        json: bool,
    },
    /// Make the host what a configuration file says
    Apply {
        /// The file; - is the standard input
        file: PathBuf,
        /// Until the next start only
        #[arg(short, long)]
        temporary: bool,
        /// The file may be empty, which deletes everything
        #[arg(long)]
        empty: bool,
        /// Only as long as the host's status has this configuration
        #[arg(long = "if", value_name = "CONFIGURATION")]
        of: Option<Mark>,
        /// Answer in JSON
        #[arg(short, long)]
        json: bool,
    },
    /// Write the configuration as a file that can be applied
    Dump {
        /// The file; the standard output if not given or -
        file: Option<PathBuf>,
        /// What the next start begins with instead of what is in force
        #[arg(short = 'P', long)]
        persistent: bool,
        /// JSON instead of TOML
        #[arg(short, long)]
        json: bool,
    },
    /// Show what runs, and whether all is well
    Status {
        /// Answer in JSON
        #[arg(short, long)]
        json: bool,
    },
    /// Examine what this host offers, and what links and VNICs got of it
    Doctor {
        /// Answer in JSON
        #[arg(short, long)]
        json: bool,
    },
    /// Show the frames that were dropped, by station and reason
    Drops(Form),
    /// Run a program on a netstack of Firelane
    Run(crate::run::Options),
    /// Waits for a program of `run` and removes what it needed
    #[command(hide = true)]
    RunCleanup(crate::run::cleanup::Options),
    /// Show a process' sockets: which are Firelane's, which are the kernel's, and why
    Explain(crate::explain::Options),
    /// Write what passes a link or belongs to a flow as pcapng
    Capture(crate::capture::Options),
    /// Show the stations and steps that a frame passes, each decision, and why it was dropped
    Trace(crate::trace::Options),
    /// Show what no other command is about
    #[command(subcommand)]
    Show(Shown),
    /// Write a shell's completion of this command, or of a Solaris command by its own name
    Completion {
        /// The shell
        shell: clap_complete::Shell,
        /// The Solaris command
        command: Option<String>,
    },
    /// Show the whole of it with two tenants and real programs
    Demo(crate::demo::Options),
    /// Start a netstack with echo, discard, chargen and sink to try things on
    Lab(crate::lab::Options),
    /// Write records of what links and flows carry to a file
    Acctadm(Words),
    /// Administer links, VNICs, etherstubs and wires
    Dladm(Words),
    /// Administer flows
    Flowadm(Words),
    /// Administer interfaces and addresses
    Ipadm(Words),
    /// Change and show the routes of a netstack
    Route(Words),
    /// Show the traffic of links
    Dlstat(Words),
    /// Show the traffic of flows
    Flowstat(Words),
    /// Change the rules of a packet filter
    Ipf(Words),
    /// Show the rules of a packet filter and what they have met
    Ipfstat(Words),
    /// Change and show the rules of address translation, and what they have made
    Ipnat(Words),
    /// Change and show the pools of networks that a packet filter's rules name
    Ippool(Words),
    /// Show sockets
    Netstat(Words),
    /// Show what TCP knows of connections
    Connstat(Words),
}

/// What `show` shows.
#[derive(Subcommand, Debug)]
enum Shown {
    /// The steps, with the frames that pass them and the cycles that they take
    Steps(crate::trace::StepOptions),
    /// The routing daemons of netstacks, and what was counted of what they say
    Fpm(crate::fpm::Options),
}

/// The words of a Solaris command, which has a grammar of its own.
#[derive(clap::Args, Debug)]
#[command(disable_help_flag = true)]
struct Words {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    words: Vec<String>,
}

/// Bad input, as opposed to a failure.
pub(crate) struct Refused(pub(crate) Failure, pub(crate) u8);

impl From<Failure> for Refused {
    fn from(failure: Failure) -> Self {
        Self(failure, 1)
    }
}

impl From<std::io::Error> for Refused {
    fn from(error: std::io::Error) -> Self {
        Self(error.into(), 1)
    }
}

impl From<ApiError> for Refused {
    fn from(error: ApiError) -> Self {
        let code = match error.status {
            Status::NoDaemon => EXIT_NO_DAEMON,
            _ if error.status.http() == 400 => EXIT_USAGE,
            _ => 1,
        };
        Self(error.into(), code)
    }
}

/// Runs `firelane` with the words after its name and gives the exit code.
pub(crate) fn run(session: &mut Session<'_>, words: impl Iterator<Item = OsString>) -> u8 {
    let words: Vec<_> = std::iter::once(OsString::from(PROGRAM)).chain(words).collect();
    let cli = match Cli::try_parse_from(&words) {
        Ok(cli) => cli,
        Err(error) => return usage(session, &words, &error),
    };
    let result = match cli.verb {
        Verb::Check { file } => check(session, &file),
        Verb::Plan { file, json } => plan(session, &file, json),
        Verb::Apply { file, temporary, empty, of, json } => {
            apply(session, &file, Replacing { temporary, empty, of }, json)
        }
        Verb::Dump { file, persistent, json } => dump(session, file.as_deref(), persistent, json),
        Verb::Status { json } => status(session, json),
        Verb::Doctor { json } => doctor(session, json),
        Verb::Drops(form) => drops(session, &form),
        Verb::Run(options) => crate::run::run(session, &options),
        Verb::RunCleanup(options) => crate::run::cleanup::run(session, &options),
        Verb::Explain(options) => crate::explain::run(session, &options),
        Verb::Capture(options) => crate::capture::run(session, &options),
        Verb::Trace(options) => crate::trace::trace(session, &options),
        Verb::Show(Shown::Steps(options)) => crate::trace::steps(session, &options),
        Verb::Show(Shown::Fpm(options)) => crate::fpm::run(session, &options),
        Verb::Completion { shell, command } => completion(session, shell, command.as_deref()),
        Verb::Demo(options) => crate::demo::run(session, options).map_err(Refused::from),
        Verb::Lab(options) => crate::lab::run(session, &options),
        Verb::Dladm(it) => crate::dladm::run(session, &it.words).map_err(Refused::from),
        Verb::Flowadm(it) => crate::flowadm::run(session, &it.words).map_err(Refused::from),
        Verb::Ipadm(it) => crate::ipadm::run(session, &it.words).map_err(Refused::from),
        Verb::Dlstat(it) => crate::stat::dlstat::run(session, &it.words).map_err(Refused::from),
        Verb::Flowstat(it) => crate::stat::flowstat::run(session, &it.words).map_err(Refused::from),
        Verb::Ipf(it) => crate::ipf::run(session, &it.words).map_err(Refused::from),
        Verb::Ipfstat(it) => crate::ipf::stat::run(session, &it.words).map_err(Refused::from),
        Verb::Acctadm(it) => crate::acctadm::run(session, &it.words).map_err(Refused::from),
        Verb::Ipnat(it) => crate::ipf::nat::run(session, &it.words).map_err(Refused::from),
        Verb::Ippool(it) => crate::ipf::pool::run(session, &it.words).map_err(Refused::from),
        Verb::Route(it) => crate::route::run(session, &it.words).map_err(Refused::from),
        Verb::Netstat(it) => crate::view::netstat::run(session, &it.words).map_err(Refused::from),
        Verb::Connstat(it) => crate::view::connstat::run(session, &it.words).map_err(Refused::from),
    };
    match result {
        Ok(()) => 0,
        Err(Refused(failure, code)) => session.report(PROGRAM, Err(failure), code),
    }
}

/// Help and the version are asked for; everything else is bad input and takes one line.
fn usage(session: &mut Session<'_>, words: &[OsString], error: &clap::Error) -> u8 {
    let text = error.render().to_string();
    let (output, text, code): (&mut dyn std::io::Write, _, _) = match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => (session.out, text, 0),
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => (session.err, text, EXIT_USAGE),
        _ => {
            let what =
                text.lines().map(str::trim).take_while(|line| !line.is_empty()).collect::<Vec<_>>().join(" ");
            let mut lines = text.lines().map(str::trim);
            let tips = lines.clone().filter_map(|line| line.strip_prefix("tip: "));
            let close = tips.filter(|tip| tip.contains(" similar ")).map(|tip| format!("; {tip}"));
            let close: String = close.collect();
            let usage = lines.find_map(|line| line.strip_prefix("Usage: "));
            // A value that is refused comes without the usage.
            let usage = usage.map_or_else(|| usage_of(words), str::to_owned);
            let what = what.strip_prefix("error: ").unwrap_or(&what).to_owned();
            (session.err, format!("{PROGRAM}: {what}{close} (usage: {usage})\n"), EXIT_USAGE)
        }
    };
    // An output that is gone is no bad input.
    let _ = output.write_all(text.as_bytes());
    code
}

/// How the verb that `words` name is used.
fn usage_of(words: &[OsString]) -> String {
    let mut command = Cli::command();
    command.build();
    let mut verb = &mut command;
    for word in words.iter().skip(1).filter_map(|word| word.to_str()) {
        if verb.find_subcommand(word).is_none() {
            break;
        }
        verb = verb.find_subcommand_mut(word).expect("it was found just now");
    }
    let text = verb.render_usage().to_string();
    text.strip_prefix("Usage: ").unwrap_or(&text).to_owned()
}

/// A table of the `default` fields of `template`, or of those that `form` names: others are bad input.
pub(crate) fn table<'a>(
    session: &mut Session<'_>,
    form: &'a Form,
    template: &[Column],
    default: &str,
) -> Result<Table<'a>, Refused> {
    Table::open(session, PROGRAM, template, default, form.style()).map_err(|it| Refused(it, EXIT_USAGE))
}

fn completion(
    session: &mut Session<'_>,
    shell: clap_complete::Shell,
    name: Option<&str>,
) -> Result<(), Refused> {
    let mut whole = Cli::command();
    for (name, _, grammar) in crate::COMMANDS {
        whole = whole.mut_subcommand(name, |it| crate::completion::command(name, &it, grammar));
    }
    let mut command = match name {
        None => whole,
        Some(name) => {
            let known = crate::COMMANDS.iter().map(|(name, ..)| *name);
            let names = known.clone().collect::<Vec<_>>().join(", ");
            let no_such =
                || Refused(die(format!("completion: there is no command {name} ({names})")), EXIT_USAGE);
            let its = known.into_iter().find(|it| *it == name).and_then(|it| whole.find_subcommand(it));
            its.cloned().ok_or_else(no_such)?
        }
    };
    // The generator takes a failed write for a fault of its own; into memory none fails.
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut command, name.unwrap_or(PROGRAM), &mut script);
    Ok(session.out.write_all(&script)?)
}

/// Reads a configuration file; every fault is one line.
fn read(session: &mut Session<'_>, file: &Path) -> Result<Model, Refused> {
    let bad = |message: String| Refused(die(message), EXIT_USAGE);
    let text = read_text(file, MODEL_TEXT_MAX).map_err(bad)?;
    Model::from_toml(&file.display().to_string(), &text).map_err(|faults| {
        // As in `report`.
        let _ = faults.iter().try_for_each(|fault| writeln!(session.err, "{fault}"));
        Refused(Failure::Said, EXIT_USAGE)
    })
}

fn check(session: &mut Session<'_>, file: &Path) -> Result<(), Refused> {
    let model = read(session, file)?;
    let count = |n: usize, what: &str| match n {
        0 => None,
        1 => Some(format!("1 {what}")),
        _ => Some(format!("{n} {what}s")),
    };
    let parts: Vec<_> = [
        count(model.links.len(), "link"),
        count(model.etherstubs.len(), "etherstub"),
        count(model.wires.len(), "wire"),
        count(model.vnics.len(), "vnic"),
        count(model.netstacks.len(), "netstack"),
        count(model.addresses().count(), "address").map(|text| text.replace("addresss", "addresses")),
        count(model.flows.len(), "flow"),
        count(model.services.len(), "service"),
    ]
    .into_iter()
    .flatten()
    .collect();
    let what = if parts.is_empty() { "nothing configured".to_owned() } else { parts.join(", ") };
    Ok(writeln!(session.out, "{}: ok: {what}", file.display())?)
}

fn show_plan(session: &mut Session<'_>, reply: &PlanReply, json: bool) -> Result<(), Refused> {
    if json {
        return Ok(session.json("steps", &reply.steps, false)?);
    }
    if reply.steps.is_empty() {
        return Ok(writeln!(session.out, "no changes")?);
    }
    for step in &reply.steps {
        writeln!(session.out, "{:<8}  {}", step.effect, step.step)?;
        for line in &step.lines {
            writeln!(session.out, "          {line}")?;
        }
    }
    Ok(())
}

fn plan(session: &mut Session<'_>, file: &Path, json: bool) -> Result<(), Refused> {
    let model = read(session, file)?;
    let reply = session.api.plan(&model).map_err(of_its_step)?;
    show_plan(session, &reply, json)
}

fn apply(session: &mut Session<'_>, file: &Path, how: Replacing, json: bool) -> Result<(), Refused> {
    let model = read(session, file)?;
    let refused = |error: ApiError| match error.field.as_str() {
        EMPTY_FIELD => {
            let said =
                "nothing is in it, and all that this host has would be deleted (--empty, if it shall be)";
            Refused(die(format!("{}: {said}", file.display())), EXIT_USAGE)
        }
        _ => of_its_step(error),
    };
    let reply = session.api.apply(&model, how).map_err(refused)?;
    show_plan(session, &reply, json)
}

/// A file names many objects: an error says which of them it is about.
fn of_its_step(error: ApiError) -> Refused {
    if error.step.is_empty() { error.into() } else { Refused(die(error.with_step()), 1) }
}

fn dump(session: &mut Session<'_>, file: Option<&Path>, persistent: bool, json: bool) -> Result<(), Refused> {
    let which = if persistent { Which::Persistent } else { Which::Active };
    let model = session.api.model(which)?;
    let text = if json {
        let text =
            serde_json::to_string_pretty(&model).map_err(|error| Refused(die(error.to_string()), 1))?;
        text + "\n"
    } else {
        model.to_toml()
    };
    match file.filter(|file| file.as_os_str() != "-") {
        None => Ok(session.out.write_all(text.as_bytes())?),
        Some(file) => crate::replace::replace(file, &text)
            .map_err(|error| Refused(die(format!("{}: {}", file.display(), system_message(&error))), 1)),
    }
}

fn status(session: &mut Session<'_>, json: bool) -> Result<(), Refused> {
    let status = session.api.status()?;
    if json {
        return Ok(session.json("status", &status, false)?);
    }
    let instance =
        if status.instance.is_empty() { String::new() } else { format!(" instance {}", status.instance) };
    writeln!(
        session.out,
        "firelaned {}{instance} pid {} up {} s",
        status.version, status.pid, status.uptime_seconds
    )?;
    writeln!(
        session.out,
        "lanes {}  links {}  flows {}  netstacks {}  connections {}  configuration {}",
        status.lanes, status.links, status.flows, status.netstacks, status.connections, status.configuration
    )?;
    for note in &status.notes {
        writeln!(session.out, "note: {note}")?;
    }
    for problem in &status.problems {
        writeln!(session.out, "problem: {problem}")?;
    }
    Ok(())
}

/// What does not work makes the command fail, so that scripts can ask.
fn doctor(session: &mut Session<'_>, json: bool) -> Result<(), Refused> {
    let findings = session.api.doctor()?;
    if json {
        session.json("findings", &findings, false)?;
    } else {
        writeln!(session.out, "{:<14} {:<5} DETAIL", "CHECK", "STATE")?;
        for Finding { check, state, detail } in &findings {
            writeln!(session.out, "{check:<14} {:<5} {detail}", state.word())?;
        }
    }
    let failed = findings.iter().filter(|it| it.state == FindingState::Fail).count();
    if failed > 0 {
        return Err(die(format!("{failed} of {} checks failed", findings.len())).into());
    }
    Ok(())
}

const DROPS: &[Column] = &[col("STATION", 11), col("REASON", 26), col("FRAMES", 12)];

fn drops(session: &mut Session<'_>, form: &Form) -> Result<(), Refused> {
    let drops = session.api.drops()?;
    if form.json {
        return Ok(session.json("drops", &drops, false)?);
    }
    let mut table = table(session, form, DROPS, "station,reason,frames")?;
    for drop in &drops {
        table.row(session, &[drop.station.clone(), drop.reason.clone(), drop.frames.to_string()])?;
    }
    Ok(())
}
