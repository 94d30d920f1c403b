//! Where benchmarks of unmodified programs play: a real `firelaned` with the netstacks `web` (10.0.0.10) and `load`
//! (10.0.0.20) and a tenant's namespace `alice` (10.0.0.1) on one etherstub, and beside them two namespaces of the
//! kernel's, `client` (10.1.0.1) and `server` (10.1.0.2), with a veth pair between. Their TCP has cubic, the best that the
//! kernel has for such paths.

use std::ffi::OsStr;
use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use firelane_interop::Sandbox;
use rustix::process::{Pid, Signal, kill_process};

use crate::peer::{self, Place, Result};
use crate::two_servers::TOPOLOGY;

const CONFIG: &str = r#"
[etherstub.s1]
[vnic.web0]
over = "s1"
netstack = "web"
[vnic.load0]
over = "s1"
netstack = "load"
[vnic.alice0]
over = "s1"
tap = { namespace = "alice", addresses = ["10.0.0.1/24"] }
[netstack.web.addresses]
"web0/v4" = "10.0.0.10/24"
[netstack.load.addresses]
"load0/v4" = "10.0.0.20/24"
"#;
/// What `two_servers::TOPOLOGY` lacks.
const ALICE_AND_LOOPBACKS: &[&str] =
    &["netns add alice", "-n client link set lo up", "-n server link set lo up"];
/// The default of many machines, bbr without fq, would halve the kernel's figures. A route may name what a namespace may not
/// have for its default.
const CUBIC: &[&str] = &[
    "-n client route replace 10.1.0.0/24 dev near src 10.1.0.1 congctl cubic",
    "-n server route replace 10.1.0.0/24 dev far src 10.1.0.2 congctl cubic",
    "-n server route replace local 127.0.0.1 dev lo table local src 127.0.0.1 scope host congctl cubic",
];

/// The netstacks: where servers are, and who loads them from the other side of the etherstub.
pub(crate) const WEB: &str = "web";
pub(crate) const LOAD: &str = "load";
/// The namespace whose programs reach Firelane over a TAP.
pub(crate) const TENANT: &str = "alice";
/// The kernel's two namespaces.
pub(crate) const CLIENT: &str = "client";
pub(crate) const SERVER: &str = "server";
/// The netstack's address, and that of the kernel's server.
pub(crate) const FIRELANE_HOST: &str = "10.0.0.10";
pub(crate) const KERNEL_HOST: &str = "10.1.0.2";

/// A command of the sandbox that ends with this process, however that ends.
pub(crate) fn mortal(sandbox: &Sandbox, program: impl AsRef<OsStr>) -> Command {
    let mut command = sandbox.command("setpriv");
    command.args(["--pdeathsig", "KILL"]).arg(program);
    command
}

/// The scene, with its daemon.
#[derive(Debug)]
pub(crate) struct Scene {
    pub(crate) sandbox: Sandbox,
    daemon: Option<Child>,
}

impl Scene {
    /// Sets it up, with a daemon of so many lanes.
    pub(crate) fn start(lanes: usize) -> Result<Self> {
        Self::of(&[TOPOLOGY, ALICE_AND_LOOPBACKS, CUBIC], CONFIG, lanes)
    }

    /// Another scene: arguments of ip(8), and a configuration in which `web0` has an address.
    pub(crate) fn of(topology: &[&[&str]], config: &str, lanes: usize) -> Result<Self> {
        let sandbox = Sandbox::new();
        for lines in topology {
            peer::ip(&sandbox, lines)?;
        }
        fs::write(sandbox.folder().join("host.toml"), config)?;
        let mut scene = Self { sandbox, daemon: None };
        let mut command = mortal(&scene.sandbox, beside("firelaned")?);
        command.arg("--config").arg(scene.sandbox.folder().join("host.toml"));
        command.arg("--runtime-dir").arg(scene.runtime()).arg("--lanes").arg(lanes.to_string());
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(fs::File::create(scene.sandbox.folder().join("daemon.log"))?);
        scene.daemon = Some(command.spawn()?);
        peer::retry(|| match scene.is_ready()? {
            true => Ok(()),
            false => Err(peer::not_started(&scene.sandbox.folder().join("daemon.log"))),
        })?;
        Ok(scene)
    }

    /// Whether the daemon answers, and has done what its configuration says.
    fn is_ready(&self) -> Result<bool> {
        let mut command = self.firelane()?;
        command
            .args(["ipadm", "show-addr", "-p", "-o", "addrobj,state"])
            .stdin(Stdio::null())
            .stderr(Stdio::null());
        let told = command.output()?.stdout;
        let told = String::from_utf8_lossy(&told);
        Ok(told.lines().any(|line| line == "web0/v4:ok") && told.lines().all(|line| line.ends_with(":ok")))
    }

    fn runtime(&self) -> PathBuf {
        self.sandbox.folder().join("run")
    }

    /// The daemon's process.
    pub(crate) fn daemon(&self) -> u32 {
        self.daemon.as_ref().map_or(0, Child::id)
    }

    /// In a namespace of the scene's.
    pub(crate) fn netns(&self, name: &'static str) -> Place<'_> {
        Place::Netns(&self.sandbox, name)
    }

    /// A program on a netstack: the environment is that of `firelane run`, whose process would stand between.
    pub(crate) fn preloaded(&self, netstack: &str, program: &OsStr) -> Result<Command> {
        let mut command = mortal(&self.sandbox, "env");
        let library = beside("libfirelane_preload.so")?;
        for (name, value) in [
            ("LD_PRELOAD", library),
            ("FIRELANE_APP_SOCKET", self.runtime().join("app.sock")),
            ("FIRELANE_NETSTACK", netstack.into()),
        ] {
            command.arg(format!("{name}={}", value.display()));
        }
        command.arg(program);
        Ok(command)
    }

    /// Sets a link's limit.
    pub(crate) fn set_maxbw(&self, link: &str, maxbw: &str) -> Result<()> {
        self.tell(&["dladm", "set-linkprop", "-t", "-p", &format!("maxbw={maxbw}"), link])
    }

    /// Takes a link's limit away.
    pub(crate) fn reset_maxbw(&self, link: &str) -> Result<()> {
        self.tell(&["dladm", "reset-linkprop", "-t", "-p", "maxbw", link])
    }

    /// Gives the usual scene's daemon these settings in place of others.
    pub(crate) fn set_daemon(&self, settings: &str) -> Result<()> {
        let path = self.sandbox.folder().join("set.toml");
        fs::write(&path, format!("[daemon]\n{settings}\n{CONFIG}"))?;
        self.tell(&["apply", &path.to_string_lossy()])
    }

    /// A command of `firelane` to this daemon.
    pub(crate) fn firelane(&self) -> Result<Command> {
        let mut command = self.sandbox.command(beside("firelane")?);
        command.env("FIRELANE_SOCKET", self.runtime().join("api.sock"));
        Ok(command)
    }

    /// Has the daemon do what such a command says.
    pub(crate) fn tell(&self, words: &[&str]) -> Result<()> {
        let output = self.firelane()?.args(words).stdin(Stdio::null()).output()?;
        if output.status.success() {
            return Ok(());
        }
        Err(format!("firelane {}: {}", words.join(" "), String::from_utf8_lossy(&output.stderr).trim())
            .into())
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        if let Some(mut daemon) = self.daemon.take() {
            let _ = daemon.kill();
            let _ = daemon.wait();
        }
    }
}

/// A file that was built beside this program.
fn beside(name: &str) -> Result<PathBuf> {
    Ok(std::env::current_exe()?.with_file_name(name))
}

/// Starts a server that is no peer of ours; it ends with its owner.
#[derive(Debug)]
pub(crate) struct Server(Child);

impl Server {
    pub(crate) fn start(command: &mut Command) -> Result<Self> {
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        Ok(Self(command.spawn()?))
    }

    pub(crate) fn pid(&self) -> u32 {
        self.0.id()
    }
}

impl Drop for Server {
    /// It is asked to end before it is killed: who has workers ends them.
    fn drop(&mut self) {
        let _ = kill_process(Pid::from_child(&self.0), Signal::TERM);
        let asked = Instant::now();
        while matches!(self.0.try_wait(), Ok(None)) && asked.elapsed() < Duration::from_secs(2) {
            thread::sleep(Duration::from_millis(5));
        }
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;

    use super::*;

    #[test]
    fn a_server_ends_its_workers_before_it_is_ended() {
        let sandbox = Sandbox::new();
        let told = sandbox.folder().join("worker");
        let script = format!(
            "sleep 60 & trap 'kill $!; exit' TERM; echo $! > {0}.new; mv {0}.new {0}; wait",
            told.display()
        );
        let server = Server::start(Command::new("sh").args(["-c", &script])).unwrap();
        let worker: u32 =
            peer::retry(|| Ok(fs::read_to_string(&told)?.trim().parse()?)).expect("it has a worker");
        drop(server);
        let comm = format!("/proc/{worker}/stat");
        peer::retry(|| match fs::read_to_string(&comm) {
            Ok(stat) if !stat.contains(") Z ") => Err("it is still there".into()),
            _ => Ok(()),
        })
        .unwrap();
    }

    #[test]
    fn a_mortal_command_ends_with_who_started_it() {
        let sandbox = Sandbox::new();
        // The kernel's parent is a thread, and it must live until the command has asked to end with it.
        let start = || {
            let child = mortal(&sandbox, "sleep").arg("60").spawn().unwrap();
            let comm = format!("/proc/{}/comm", child.id());
            peer::retry(|| match fs::read_to_string(&comm)?.trim() {
                "sleep" => Ok(()),
                other => Err(format!("still {other}").into()),
            })
            .unwrap();
            child
        };
        let mut child = std::thread::scope(|scope| scope.spawn(start).join()).unwrap();
        assert_eq!(child.wait().unwrap().signal(), Some(libc::SIGKILL));
    }
}
