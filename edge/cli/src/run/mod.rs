//! `firelane run`: starts a program on a netstack, and says before it starts which path it gets and why.
//!
//! Called by `own.rs`. A dynamically linked program is started with the library `libfirelane_preload.so` in front
//! of its own, in this process's place: nothing of the command stays. What cannot be preloaded gets a network
//! namespace with a VNIC on the same switch instead, never in silence; `--require` refuses it.
//!
//! - `target.rs`: which netstack. `program.rs`, `elf.rs`: which file, and what stands in the way of preloading.
//! - `preload.rs`: the library and the program's environment. `aside.rs`, `address.rs`: the namespace, its VNIC and
//!   what it is called. `cleanup.rs`: removing them when the last program in it has ended.

mod address;
mod aside;
mod bare_calls;
pub(crate) mod cleanup;
mod elf;
mod preload;
mod program;
mod target;

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use firelane_api::Which;
use firelane_model::{FileError, LinkName, MODEL_TEXT_MAX, NetstackName, SocketFilter};
use firelane_units::IpPrefix;

use crate::EXIT_USAGE;
use crate::common::{prefix, read_text, system_message};
use crate::own::Refused;
use crate::session::{Failure, Session, die};
use program::{Obstacle, Program};
use target::Target;

/// Exit code when the program is there but cannot be run, as `env` and shells have it.
const EXIT_NOT_RUN: u8 = 126;
/// Exit code when there is no such program.
const EXIT_NOT_FOUND: u8 = 127;

/// What runs, and where.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct Options {
    /// The VNIC whose netstack the program uses
    #[arg(short, long, conflicts_with = "zone")]
    vnic: Option<LinkName>,
    /// The zone, which is the netstack, that the program uses [default: the netstack called default, or the only one]
    #[arg(short, long, visible_short_alias = 'N', visible_alias = "netstack")]
    zone: Option<NetstackName>,
    /// Refuse a program that cannot be accelerated instead of giving it a network namespace
    #[arg(long, conflicts_with = "address")]
    require: bool,
    /// Addresses of the network namespace's interface, if the program needs one, in place of free ones
    #[arg(short, long, value_name = "ADDR/LEN", value_delimiter = ',', value_parser = prefix)]
    address: Vec<IpPrefix>,
    /// Rules of ipf.conf about who may begin a connection with the program's listeners, and whose datagrams its sockets get
    #[arg(short, long, value_name = "FILE", conflicts_with = "address")]
    filter: Option<PathBuf>,
    /// Say nothing about the path that the program gets
    #[arg(short, long)]
    quiet: bool,
    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, value_names = ["PROGRAM", "ARG"])]
    command: Vec<OsString>,
}

/// Runs the program in this process's place; comes back only if it cannot.
pub(crate) fn run(session: &mut Session<'_>, options: &Options) -> Result<(), Refused> {
    let (name, args) = options.command.split_first().ok_or_else(|| Refused(die("no program"), EXIT_USAGE))?;
    let shown = name.to_string_lossy().into_owned();
    let cannot = |text: String, code| {
        let shown = if shown.is_empty() { "''" } else { &shown };
        Refused(die(format!("{shown}: {text}")), code)
    };
    let path = program::find(name).map_err(|it| cannot(it.text, it.code))?;
    let filter = match &options.filter {
        Some(file) => Some(read_filter(session, file)?),
        None => None,
    };
    let target = Target::choose(session.api, options.vnic.as_ref(), options.zone.as_ref())?;
    if let (Some(filter), Some(file)) = (&filter, &options.filter) {
        check_filter(session, filter, file, &target)?;
    }
    let (obstacle, library) = match Program::look(&path).obstacle {
        Some(obstacle) => (Some(obstacle), None),
        None => match preload::library() {
            Ok(library) => (None, Some(library)),
            Err(why) => (Some(Obstacle::Library(why)), None),
        },
    };
    let mut command = Command::new(&path);
    command.arg0(name).args(args);
    match (obstacle, library) {
        (Some(why), _) if options.require => {
            return Err(cannot(format!("cannot be accelerated: {why} (--require)"), EXIT_USAGE));
        }
        (Some(why), _) if filter.is_some() => {
            return Err(cannot(format!("its sockets cannot have a filter: {why} (--filter)"), EXIT_USAGE));
        }
        (Some(why), _) => {
            let place = aside::Aside::make(session, &target, &options.address).inspect_err(|_| {
                // What follows says why it cannot have one, not why it needs it.
                let need = "it needs a network namespace of its own, which it cannot have";
                announce(session, options, &format!("{shown}: cannot be accelerated: {why}; {need}"));
            })?;
            announce(session, options, &format!("{shown}: not accelerated: {why}; {}", place.description()));
            preload::take_off(&mut command);
            place.enter().map_err(|text| cannot(text, 1))?;
        }
        (None, library) => {
            if let Some(library) = library {
                let prepared = preload::prepare(&mut command, &library, &target, filter.as_ref());
                prepared.map_err(|text| cannot(text, 1))?;
            }
            announce(session, options, &format!("{shown}: {}", target.description()));
        }
    }
    session.out.flush()?;
    let error = command.exec();
    Err(cannot(system_message(&error), program::code_of(&error)))
}

/// The rules of a file; each that a socket cannot have is told with its line.
fn read_filter(session: &mut Session<'_>, file: &Path) -> Result<SocketFilter, Refused> {
    let refused = |failure| Refused(failure, EXIT_USAGE);
    let text = read_text(file, MODEL_TEXT_MAX).map_err(|text| refused(die(text)))?;
    SocketFilter::read(&file.display().to_string(), &text).map_err(|faults| said(session, &faults))
}

/// Refuses rules that name what the netstack has not. Who may not see the host hears it from the daemon.
fn check_filter(
    session: &mut Session<'_>,
    filter: &SocketFilter,
    file: &Path,
    target: &Target,
) -> Result<(), Refused> {
    if target.is_unseen {
        return Ok(());
    }
    let model = session.api.model(Which::Active)?;
    let faults = filter.faults_on(&file.display().to_string(), &model, &target.netstack);
    if faults.is_empty() { Ok(()) } else { Err(said(session, &faults)) }
}

/// Tells each fault on a line of its own.
fn said(session: &mut Session<'_>, faults: &[FileError]) -> Refused {
    // Nobody is left to be told when the error output itself is gone.
    let _ = faults.iter().try_for_each(|fault| writeln!(session.err, "{fault}"));
    Refused(Failure::Said, EXIT_USAGE)
}

/// One line before the program's own first one.
fn announce(session: &mut Session<'_>, options: &Options, text: &str) {
    if !options.quiet {
        // A program whose error output is gone runs all the same.
        let _ = writeln!(session.err, "firelane: {text}");
    }
}
