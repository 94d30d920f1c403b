//! What is left when a program beside has ended: a process that waits for it, and the removal.
//!
//! `aside.rs` starts it before the program takes the command's place, so that exit code, signals and job control are
//! the program's own. It is detached (no child of the program, a session of its own), waits for the program and
//! for whoever else is still in its namespace, and removes the VNIC, which removes the namespace.

use std::fs;
use std::io::ErrorKind;
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
        // Who ends a service ends all its processes at once; this one ends by itself when the others have.
        let mut child = Command::new("sh");
        child.args(["-c", "trap '' TERM INT HUP; exec \"$0\" \"$@\""]).arg(std::env::current_exe()?);
        child.args(words).arg("--detached").stdin(Stdio::null()).spawn()?;
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
    while is_inhabited(&options.kernel_name, None) {
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

/// Whether a process is in the namespace. One that may not be looked at counts if it started at `unseen` or later: with the
/// program whose namespace it is, or as a descendant of it.
fn is_inhabited(namespace: &str, unseen: Option<u64>) -> bool {
    let Ok(file) = fs::metadata(path_of(namespace)) else { return false };
    let name = format!("net:[{}]", file.ino());
    let counts = |pid: u32| unseen.is_some_and(|first| started(pid).is_none_or(|start| start >= first));
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let mut processes = entries.filter_map(|it| it.file_name().to_str()?.parse().ok());
    processes.any(|pid: u32| match fs::read_link(format!("/proc/{pid}/ns/net")) {
        Ok(link) => link.as_os_str() == name.as_str(),
        Err(error) => error.kind() == ErrorKind::PermissionDenied && counts(pid),
    })
}

/// The name of the namespace for the program that this process is going to be: it says who that is, so that a later
/// command can tell whether he lives.
pub(super) fn namespace_of_this_process() -> Option<NamespaceName> {
    let pid = std::process::id();
    format!("run-{pid:x}-{:x}-{:x}", started(pid)?, own_pid_namespace()?).parse().ok()
}

/// When the program started for which the namespace was made, if it has ended and was somebody's who could be asked about it.
fn left_over(name: &str) -> Option<u64> {
    let mut parts = name.strip_prefix("run-")?.split('-');
    let mut number = || u64::from_str_radix(parts.next()?, 16).ok();
    let (pid, start, namespace) = (u32::try_from(number()?).ok()?, number()?, number()?);
    (own_pid_namespace() == Some(namespace) && started(pid) != Some(start)).then_some(start)
}

/// Removes what programs have left whose cleaning process was killed. Whoever may be in there and is not to be looked at
/// keeps it.
pub(super) fn sweep(api: &dyn Api, model: &Model, kernel_name: impl Fn(&NamespaceName) -> String) {
    // Where processes are hidden (`hidepid` of `proc(5)`), the first is, too.
    if !Path::new("/proc/1").exists() {
        return;
    }
    let taps = model.vnics.iter().filter_map(|(name, it)| Some((name, it.tap()?.namespace.as_ref()?)));
    let is_left = |name: &NamespaceName| {
        left_over(name.as_str()).is_some_and(|start| !is_inhabited(&kernel_name(name), Some(start)))
    };
    for (vnic, namespace) in taps.filter(|(_, namespace)| is_left(namespace)) {
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
        assert_eq!(left_over(own.as_str()), None, "{own}");
        let (pid, start) = (std::process::id(), started(std::process::id()).unwrap());
        let pids = own_pid_namespace().unwrap();
        let name = |start: u64, pids: u64| format!("run-{pid:x}-{start:x}-{pids:x}");
        assert_eq!(left_over(&name(start + 1, pids)), Some(start + 1), "the number was used again");
        assert_eq!(left_over(&name(start + 1, pids + 1)), None, "another's processes");
        for other in ["alice", "run-", "run-1-2", "run-x-1-1", "run"] {
            assert_eq!(left_over(other), None, "{other}");
        }
    }
}
