//! FRR's daemons in a network namespace of a sandbox, with zebra's FPM module.
//!
//! Each daemon is a process of its own, as on a Debian router, and may be killed alone. They end with their owner.

use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use firelane_skipped::skipped;

use crate::sandbox::Sandbox;

/// Where Debian's package has them.
const DAEMONS: &str = "/usr/lib/frr";
/// How long a daemon may take to answer.
const PATIENCE: Duration = Duration::from_secs(20);

/// FRR in one namespace.
#[derive(Debug)]
pub struct Frr<'a> {
    sandbox: &'a Sandbox,
    namespace: String,
    folder: PathBuf,
    running: Vec<(String, Child)>,
}

impl<'a> Frr<'a> {
    /// Nothing runs yet. None if FRR is not installed, which is said.
    pub fn new(sandbox: &'a Sandbox, namespace: &str) -> Option<Self> {
        if !Path::new(DAEMONS).join("zebra").exists() {
            skipped("FRR (package frr) is not installed: cargo xtask setup test");
            return None;
        }
        if !rustix::process::geteuid().is_root() {
            skipped("FRR's daemons change to a user of their own, which takes root");
            return None;
        }
        let folder = sandbox.folder().join(format!("frr-{namespace}"));
        std::fs::create_dir_all(&folder).expect("the sandbox's folder is writable");
        // For that user.
        let everybody = std::os::unix::fs::PermissionsExt::from_mode(0o777);
        std::fs::set_permissions(&folder, everybody).expect("our own folder");
        Some(Self { sandbox, namespace: namespace.to_owned(), folder, running: Vec::new() })
    }

    /// Starts a daemon with a configuration, and waits until it answers.
    ///
    /// # Panics
    /// If it does not.
    pub fn start(&mut self, daemon: &str, config: &str) {
        let path = |end: &str| self.folder.join(format!("{daemon}.{end}"));
        std::fs::write(path("conf"), config).expect("the sandbox's folder is writable");
        let mut command = self.sandbox.command("ip");
        command.args(["netns", "exec", &self.namespace]).arg(Path::new(DAEMONS).join(daemon));
        command.args(["--log", "stdout", "--log-level", "errors"]);
        command.arg("-f").arg(path("conf")).arg("-i").arg(path("pid"));
        command.arg("-z").arg(self.folder.join("zserv.api")).arg("--vty_socket").arg(&self.folder);
        if daemon == "zebra" {
            command.args(["-M", "dplane_fpm_nl"]);
        }
        let log = std::fs::File::create(path("log")).expect("the sandbox's folder is writable");
        let errors = log.try_clone().expect("a file");
        let child = command.stdin(Stdio::null()).stdout(log).stderr(errors).spawn().expect("nsenter runs");
        self.running.push((daemon.to_owned(), child));
        let begin = Instant::now();
        while !self.answers(daemon) {
            let said = std::fs::read_to_string(path("log")).unwrap_or_default();
            assert!(begin.elapsed() < PATIENCE, "{daemon} does not answer:\n{said}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    fn answers(&self, daemon: &str) -> bool {
        self.vtysh(&["-d", daemon], &["show version"]).is_some_and(|it| it.contains("FRRouting"))
    }

    fn vtysh(&self, more: &[&str], lines: &[&str]) -> Option<String> {
        let folder = self.folder.to_string_lossy();
        let mut args = vec!["--vty_socket", &folder];
        args.extend(more);
        lines.iter().for_each(|line| args.extend(["-c", line]));
        let output = self.sandbox.run(Some(&self.namespace), "vtysh", &args);
        output.status.success().then_some(output.stdout)
    }

    /// What FRR answers to these lines.
    ///
    /// # Panics
    /// If it refuses one.
    pub fn says(&self, lines: &[&str]) -> String {
        self.vtysh(&[], lines).unwrap_or_else(|| panic!("vtysh: {lines:?}"))
    }

    /// Ends a daemon without warning (SIGKILL).
    ///
    /// # Panics
    /// If it does not run.
    pub fn kill(&mut self, daemon: &str) {
        let nth = self.running.iter().position(|(name, _)| name == daemon).expect("it runs");
        let (_, mut child) = self.running.remove(nth);
        let _ = child.kill();
        let _ = child.wait();
    }
}

impl Drop for Frr<'_> {
    fn drop(&mut self) {
        for (_, child) in &mut self.running {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
