//! The command line of `firelaned`, and the folders that follow from it.
//!
//! Called by `main.rs` before anything else. A mistake is one line that names the option; nothing has been
//! touched then.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::Parser;
use firelane_model::{Instance, LANES_MAX};

/// Where root's daemon keeps its socket.
const ROOT_RUNTIME: &str = "/run/firelane";
/// Where root's daemon keeps what it must remember.
const ROOT_STATE: &str = "/var/lib/firelane";

/// Runs Firelane: lanes, VNICs, flows, netstacks and services, as the configuration says.
///
/// The configuration in force is changed with the command `firelane`, which speaks to this program through
/// its socket, and returns at the next start.
#[derive(Parser, Clone, Debug)]
#[command(name = "firelaned", version)]
pub(crate) struct Args {
    /// Configuration to begin with, unless an earlier one is remembered
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Folder of the socket [default: /run/firelane, or firelane in $XDG_RUNTIME_DIR]
    #[arg(long, value_name = "DIR")]
    runtime_dir: Option<PathBuf>,
    /// Folder of what is remembered [default: state in --runtime-dir if that is given, else
    /// /var/lib/firelane, or firelane in $XDG_STATE_HOME]
    #[arg(long, value_name = "DIR")]
    state_dir: Option<PathBuf>,
    /// Name that keeps several daemons' network namespaces apart
    #[arg(long, value_name = "NAME", default_value = "")]
    pub(crate) instance: Instance,
    /// How many lanes [default: what the configuration says, else one per CPU but one, 48 at most]
    #[arg(long, value_name = "N", value_parser = lanes)]
    pub(crate) lanes: Option<u16>,
    /// Draw ports, initial sequence numbers and hashes from this seed: for laboratories, because they can be foreseen
    #[arg(long, value_name = "N")]
    pub(crate) seed: Option<u64>,
    /// Remove what a daemon that died has left behind, and end
    #[arg(long)]
    pub(crate) clean: bool,
}

fn lanes(text: &str) -> Result<u16, String> {
    let number = text.parse().ok().filter(|n| (1..=LANES_MAX).contains(n));
    number.ok_or_else(|| format!("a number from 1 to {LANES_MAX}"))
}

/// Reads the command line. `Err` holds what to print and the exit code.
pub(crate) fn read() -> Result<Args, (String, u8)> {
    Args::try_parse().map_err(|error| match error.use_stderr() {
        false => (error.to_string(), 0),
        true => (one_line(&error.to_string()), 2),
    })
}

/// What is wrong, without the usage text below it.
fn one_line(text: &str) -> String {
    let first = text.lines().next().unwrap_or_default();
    format!("firelaned: {}", first.strip_prefix("error: ").unwrap_or(first))
}

/// The daemon's folders.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Folders {
    /// Socket and lock: gone after a reboot.
    pub(crate) runtime: PathBuf,
    /// Configuration, record of what is owned, and data of services.
    pub(crate) state: PathBuf,
}

/// What the environment says about folders.
#[derive(Clone, Debug, Default)]
pub(crate) struct Environment {
    is_root: bool,
    runtime_dir: Option<OsString>,
    state_home: Option<OsString>,
    home: Option<OsString>,
}

impl Environment {
    /// That of this process.
    pub(crate) fn of_process() -> Self {
        let variable = |name| std::env::var_os(name).filter(|value| !value.is_empty());
        Self {
            is_root: rustix::process::geteuid().is_root(),
            // A relative path would mean another folder to each program.
            runtime_dir: variable("XDG_RUNTIME_DIR").filter(|dir| Path::new(dir).is_absolute()),
            state_home: variable("XDG_STATE_HOME"),
            home: variable("HOME"),
        }
    }
}

impl Args {
    /// The folders, or which option is missing.
    pub(crate) fn folders(&self, environment: &Environment) -> Result<Folders, String> {
        let runtime = match (&self.runtime_dir, &environment.runtime_dir) {
            (Some(given), _) => given.clone(),
            (None, _) if environment.is_root => PathBuf::from(ROOT_RUNTIME),
            (None, Some(dir)) => Path::new(dir).join("firelane"),
            (None, None) => return Err("--runtime-dir: not given, and XDG_RUNTIME_DIR is not set".into()),
        };
        let state = match (&self.state_dir, &environment.state_home, &environment.home) {
            (Some(given), ..) => given.clone(),
            (None, ..) if self.runtime_dir.is_some() => runtime.join("state"),
            (None, ..) if environment.is_root => PathBuf::from(ROOT_STATE),
            (None, Some(dir), _) => Path::new(dir).join("firelane"),
            (None, None, Some(home)) => Path::new(home).join(".local/state/firelane"),
            (None, None, None) => return Err("--state-dir: not given, and HOME is not set".into()),
        };
        Ok(Folders { runtime, state })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(args: &[&str]) -> Result<Args, String> {
        Args::try_parse_from(std::iter::once(&"firelaned").chain(args))
            .map_err(|error| one_line(&error.to_string()))
    }

    #[test]
    fn folders_follow_the_user_and_the_options() {
        let user = Environment {
            is_root: false,
            runtime_dir: Some("/run/user/7".into()),
            state_home: None,
            home: Some("/home/u".into()),
        };
        let root = Environment { is_root: true, ..user.clone() };
        let xdg = Environment { state_home: Some("/s".into()), ..user.clone() };
        let nothing = Environment::default();
        let at = |args: &[&str], environment| {
            parsed(args).unwrap().folders(environment).map(|it| (it.runtime, it.state))
        };
        let are = |runtime: &str, state: &str| Ok((PathBuf::from(runtime), PathBuf::from(state)));
        assert_eq!(at(&[], &root), are("/run/firelane", "/var/lib/firelane"));
        assert_eq!(at(&[], &user), are("/run/user/7/firelane", "/home/u/.local/state/firelane"));
        assert_eq!(at(&[], &xdg), are("/run/user/7/firelane", "/s/firelane"));
        assert_eq!(at(&["--runtime-dir", "/r"], &root), are("/r", "/r/state"));
        assert_eq!(at(&["--runtime-dir", "/r", "--state-dir", "/s"], &nothing), are("/r", "/s"));
        assert!(at(&[], &nothing).unwrap_err().contains("XDG_RUNTIME_DIR"));
    }

    #[test]
    fn a_mistake_is_one_line_that_names_the_option() {
        for (args, words) in [
            (&["--lanes", "0"][..], "'0' for '--lanes <N>': a number from 1 to 256"),
            (&["--lanes", "many"], "a number from 1 to 256"),
            (&["--instance", "../x"], "--instance"),
            (&["--colour"], "--colour"),
            (&["file.toml"], "file.toml"),
            (&["--config"], "--config"),
        ] {
            let line = parsed(args).unwrap_err();
            assert!(line.contains(words) && line.lines().count() == 1, "{line}");
        }
    }
}
