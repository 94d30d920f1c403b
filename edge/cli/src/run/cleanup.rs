//! What is left when a program beside has ended: a process that waits for it, and the removal.
//!
//! `aside.rs` starts it before the program takes the command's place, so that exit code, signals and job control are
//! the program's own. It is detached (no child of the program, a session of its own), waits for the program and
//! for whoever else is still in its namespace, and removes the VNIC, which removes the namespace.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use firelane_api::{Api, ApiError, Change, ChangeRequest, Which};
use firelane_model::{LinkName, Model, NamespaceName, Vnic};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use crate::own::Refused;
use crate::session::{Session, die};

/// Where `ip netns` and the daemon keep namespaces that have a name.
const NAMESPACES: &str = "/run/netns";
/// Between two looks for programs that outlive the one that was started.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// What the waiting process says when it waits.
const WAITS: &[u8] = b"w";

/// Whom to wait for, and what to remove then.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct Options {
    #[arg(long)]
    pid: i32,
    /// The namespace as the kernel calls it.
    #[arg(long)]
    kernel_name: String,
    /// The namespace as the configuration calls it.
    #[arg(long)]
    namespace: NamespaceName,
    #[arg(long)]
    vnic: LinkName,
    /// Set by the process that detaches the one that waits.
    #[arg(long)]
    detached: bool,
}

/// Starts the process that waits for this one; it waits when this returns.
pub(super) fn begin(kernel_name: &str, namespace: &NamespaceName, vnic: &LinkName) -> Result<(), String> {
    let failed = |error: std::io::Error| format!("starting what removes {vnic} afterwards: {error}");
    let own = std::process::id().to_string();
    let mut child = Command::new(std::env::current_exe().map_err(failed)?);
    child.args(["run-cleanup", "--pid", &own, "--kernel-name", kernel_name]);
    child.args(["--namespace", namespace.as_str(), "--vnic", vnic.as_str()]);
    child.stdin(Stdio::null()).stderr(Stdio::null());
    let output = child.output().map_err(failed)?;
    if output.stdout == WAITS { Ok(()) } else { Err(format!("what removes {vnic} afterwards did not start")) }
}

/// The two processes: one that ends at once, so that the other is nobody's child, and that one.
pub(crate) fn run(session: &mut Session<'_>, options: &Options) -> Result<(), Refused> {
    if !options.detached {
        let words: Vec<_> = std::env::args_os().skip(1).collect();
        Command::new(std::env::current_exe()?).args(words).arg("--detached").stdin(Stdio::null()).spawn()?;
        return Ok(());
    }
    // Signals of the terminal are for the program.
    rustix::process::setsid().map_err(std::io::Error::from)?;
    let pid =
        Pid::from_raw(options.pid).ok_or_else(|| Refused(die("--pid: no process"), crate::EXIT_USAGE))?;
    let program = pidfd_open(pid, PidfdFlags::empty()).map_err(std::io::Error::from)?;
    session.out.write_all(WAITS)?;
    session.out.flush()?;
    let nothing = std::fs::File::options().write(true).open("/dev/null")?;
    // Whoever started us reads to the end of this output.
    rustix::stdio::dup2_stdout(&nothing).map_err(std::io::Error::from)?;
    // A signal that interrupts the wait says nothing about the program.
    while let Err(rustix::io::Errno::INTR) = poll(&mut [PollFd::new(&program, PollFlags::IN)], None) {}
    while is_inhabited(&options.kernel_name) {
        std::thread::sleep(LOOK_EVERY);
    }
    Ok(remove(session.api, &options.vnic, &options.namespace)?)
}

/// Removes the VNIC that was made for `namespace`, with its flows; one that is gone, or has become another's, is none.
pub(super) fn remove(api: &dyn Api, vnic: &LinkName, namespace: &NamespaceName) -> Result<(), ApiError> {
    let change = |change| api.change(&ChangeRequest { temporary: true, change });
    let model = api.model(Which::Active)?;
    let is_it = |it: &Vnic| it.tap().and_then(|tap| tap.namespace.as_ref()) == Some(namespace);
    if !model.vnics.get(vnic).is_some_and(is_it) {
        return Ok(());
    }
    for (flow, _) in model.flows_on(vnic.as_str()) {
        change(Change::RemoveFlow(flow.clone()))?;
    }
    change(Change::DeleteVnic(vnic.clone()))
}

/// The file that holds the namespace.
pub(super) fn path_of(namespace: &str) -> PathBuf {
    Path::new(NAMESPACES).join(namespace)
}

/// Whether a process is in the namespace.
fn is_inhabited(namespace: &str) -> bool {
    let Ok(file) = fs::metadata(path_of(namespace)) else { return false };
    let name = format!("net:[{}]", file.ino());
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let mut processes =
        entries.filter(|it| it.file_name().as_encoded_bytes().first().is_some_and(u8::is_ascii_digit));
    processes
        .any(|it| fs::read_link(it.path().join("ns/net")).is_ok_and(|link| link.as_os_str() == name.as_str()))
}

/// The name of the namespace for the program that this process is going to be: it says who that is, so that a later
/// command can tell whether he lives.
pub(super) fn namespace_of_this_process() -> Option<NamespaceName> {
    let pid = std::process::id();
    format!("run-{pid:x}-{:x}-{:x}", started(pid)?, own_pid_namespace()?).parse().ok()
}

/// Whether the namespace was made for a program that has ended, by somebody who could be asked about it.
fn is_left_over(name: &str) -> bool {
    let mut parts = name.strip_prefix("run-").into_iter().flat_map(|rest| rest.split('-'));
    let mut number = || parts.next().and_then(|part| u64::from_str_radix(part, 16).ok());
    let (Some(pid), Some(start), Some(namespace)) = (number(), number(), number()) else { return false };
    let Ok(pid) = u32::try_from(pid) else { return false };
    own_pid_namespace() == Some(namespace) && started(pid) != Some(start)
}

/// Removes what programs have left whose cleaning process was killed.
pub(super) fn sweep(api: &dyn Api, model: &Model, kernel_name: impl Fn(&NamespaceName) -> String) {
    let taps = model.vnics.iter().filter_map(|(name, it)| Some((name, it.tap()?.namespace.as_ref()?)));
    let left: Vec<_> = taps
        .filter(|(_, namespace)| is_left_over(namespace.as_str()) && !is_inhabited(&kernel_name(namespace)))
        .collect();
    for (vnic, namespace) in left {
        // Whoever removes it too is as welcome.
        let _ = remove(api, vnic, namespace);
    }
}

/// When a process started, in ticks since the boot (`/proc/PID/stat`, field 22).
fn started(pid: u32) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, behind_name) = text.rsplit_once(')')?;
    behind_name.split_whitespace().nth(19)?.parse().ok()
}

fn own_pid_namespace() -> Option<u64> {
    fs::metadata("/proc/self/ns/pid").ok().map(|it| it.ino())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_namespace_is_left_over_when_its_program_is_gone() {
        let own = namespace_of_this_process().unwrap();
        assert!(!is_left_over(own.as_str()), "{own}");
        let (pid, start) = (std::process::id(), started(std::process::id()).unwrap());
        let pids = own_pid_namespace().unwrap();
        assert!(is_left_over(&format!("run-{pid:x}-{:x}-{pids:x}", start + 1)), "the number was used again");
        assert!(!is_left_over(&format!("run-{pid:x}-{:x}-{:x}", start + 1, pids + 1)), "another's processes");
        for other in ["alice", "run-", "run-1-2", "run-x-1-1", "run"] {
            assert!(!is_left_over(other), "{other}");
        }
    }
}
