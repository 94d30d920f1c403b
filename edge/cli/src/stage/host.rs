//! A verb's own daemon: started, asked, ended, and cleaned up after.
//!
//! The daemon's process id is kept in the verb's folder, so that a later `--clean` finds it, also after the verb or
//! the daemon was killed.

use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use firelane_api::{Api, DropInfo, FlowStats};
use rustix::process::{Pid, Signal};

use super::place::{Place, search_path};
use crate::client::Client;

/// How long the daemon may take to answer, and to end when asked.
const PATIENCE: Duration = Duration::from_secs(10);
/// Where the daemon keeps its services' data, below its state folder.
const SERVED: &str = "state/www";

/// A running daemon.
#[derive(Debug)]
pub(crate) struct Host {
    child: Option<Child>,
    client: Client,
    command: PathBuf,
    socket: PathBuf,
    served: PathBuf,
}

impl Host {
    /// Starts the daemon with the text of a configuration and further options, and waits until it answers.
    pub(crate) fn start(place: &Place, config: &str, options: &[String]) -> Result<Self, String> {
        place.make()?;
        let folder = place.folder();
        let file = folder.join("config.toml");
        fs::write(&file, config).map_err(|e| format!("{}: {e}", file.display()))?;
        let command = std::env::current_exe().map_err(|e| format!("this program's own path: {e}"))?;
        let daemon = command.with_file_name("firelaned");
        let log = fs::File::create(folder.join("daemon.log")).map_err(|e| format!("daemon.log: {e}"))?;
        let child = Command::new(&daemon)
            .arg("--config")
            .arg(&file)
            .arg("--runtime-dir")
            .arg(folder)
            .args(options)
            .env("PATH", search_path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .map_err(|e| format!("{}: {e}", daemon.display()))?;
        let socket = folder.join("api.sock");
        let client = Client::new(socket.clone());
        let served = folder.join(SERVED);
        // From here on the daemon ends with this value.
        let mut host = Self { child: Some(child), client, command, socket, served };
        // Without the number a later cleaning could not find the daemon.
        fs::write(folder.join("daemon.pid"), host.pid().to_string())
            .map_err(|e| format!("daemon.pid: {e}"))?;
        host.wait_for_answer(place)?;
        Ok(host)
    }

    fn wait_for_answer(&mut self, place: &Place) -> Result<(), String> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if self.client.status().is_ok() {
                return Ok(());
            }
            let ended = self.child.as_mut().and_then(|c| c.try_wait().ok().flatten());
            if ended.is_some() || Instant::now() > deadline {
                let log = fs::read_to_string(place.folder().join("daemon.log")).unwrap_or_default();
                return Err(format!("firelaned does not answer:\n{}", log.trim_end()));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// The daemon's process id.
    pub(crate) fn pid(&self) -> u32 {
        self.child.as_ref().map_or(0, Child::id)
    }

    /// The folder that the HTTP service serves.
    pub(crate) fn served(&self) -> &PathBuf {
        &self.served
    }

    /// What does not work although the configuration has it.
    pub(crate) fn problems(&self) -> Result<Vec<String>, String> {
        self.client.status().map(|status| status.problems).map_err(|e| e.to_string())
    }

    /// What the daemon says about this host: a slower way to a namespace, and what does not work.
    pub(crate) fn notes(&self) -> Vec<String> {
        let status = self.client.status().unwrap_or_default();
        status.notes.into_iter().chain(status.problems).collect()
    }

    /// The counters of a flow.
    pub(crate) fn flow(&self, name: &str) -> Result<FlowStats, String> {
        let flows = self.client.flow_stats().map_err(|e| e.to_string())?;
        flows.into_iter().find(|flow| flow.name.to_string() == name).ok_or_else(|| format!("no flow {name}"))
    }

    /// Every drop with its reason.
    pub(crate) fn drops(&self) -> Result<Vec<DropInfo>, String> {
        self.client.drops().map_err(|e| e.to_string())
    }

    /// Runs the `firelane` command as a person would and answers what it printed.
    pub(crate) fn firelane(&self, words: &[&str]) -> Result<String, String> {
        let output = Command::new(&self.command)
            .args(words)
            .env("FIRELANE_SOCKET", &self.socket)
            .stdin(Stdio::null())
            .output()
            .map_err(|e| format!("{}: {e}", self.command.display()))?;
        if output.status.success() {
            return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
        }
        Err(String::from_utf8_lossy(&output.stderr).trim_end().to_owned())
    }

    /// Leaves the daemon to itself (`keep`), or to the cleaning that follows.
    pub(crate) fn let_go(mut self, keep: bool) {
        if keep {
            self.child = None;
        }
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            end(child.id());
            // It has ended, or was killed just now.
            let _ = child.wait();
        }
    }
}

/// Asks a process to end, and makes it.
fn end(pid: u32) {
    let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) else { return };
    if rustix::process::kill_process(pid, Signal::TERM).is_err() {
        return;
    }
    let deadline = Instant::now() + PATIENCE;
    while Instant::now() < deadline {
        if is_gone(pid) {
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    // It had its time.
    let _ = rustix::process::kill_process(pid, Signal::KILL);
}

/// Whether a process has ended; one that only waits for its parent to look has.
fn is_gone(pid: Pid) -> bool {
    let status = fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero()));
    status.map_or(true, |text| text.rsplit(')').next().is_some_and(|rest| rest.trim_start().starts_with('Z')))
}

/// Ends a daemon that an earlier run left running and removes everything it made.
pub(crate) fn clean(place: &Place) -> Result<(), String> {
    if !place.is_ours()? {
        return Ok(());
    }
    let folder = place.folder();
    let pid =
        fs::read_to_string(folder.join("daemon.pid")).ok().and_then(|text| text.trim().parse::<u32>().ok());
    if let Some(pid) = pid.filter(|&pid| is_ours(pid, place)) {
        end(pid);
    }
    // An ordinary user's namespaces ended with their last process; root's have names and are removed by name.
    if rustix::process::geteuid().is_root() {
        remove_namespaces(place)?;
    }
    place.remove()
}

/// Lets the daemon's own program remove what a dead daemon owned. One that was killed a moment ago may still hold
/// its lock, so this is tried for a while.
fn remove_namespaces(place: &Place) -> Result<(), String> {
    let command = std::env::current_exe().map_err(|e| format!("this program's own path: {e}"))?;
    let daemon = command.with_file_name("firelaned");
    let deadline = Instant::now() + PATIENCE;
    loop {
        let mut cleaning = Command::new(&daemon);
        cleaning.arg("--clean").arg("--runtime-dir").arg(place.folder()).stdin(Stdio::null());
        let output = cleaning.output().map_err(|e| format!("{}: {e}", daemon.display()))?;
        if output.status.success() {
            return Ok(());
        }
        if Instant::now() > deadline {
            return Err(String::from_utf8_lossy(&output.stderr).trim_end().to_owned());
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Whether the process is a daemon of this place: its number may have been used again.
fn is_ours(pid: u32, place: &Place) -> bool {
    let words = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let folder = place.folder().as_os_str().as_encoded_bytes();
    words.split(|&b| b == 0).any(|word| word == folder)
}
