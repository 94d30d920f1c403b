//! Where the demo lives: one folder per user, and for an ordinary user namespaces of his own.
//!
//! The folder lies below `/var/tmp`, so that a 256 MiB file needs no memory, and belongs to its user alone. An
//! ordinary user's demo runs itself again inside a user, mount and network namespace, where it may make
//! interfaces; everything in there ends with its last process.

use std::fs::{self, DirBuilder};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::session::{Failure, die};

/// Set inside: the user that the demo belongs to.
const OWNER_VARIABLE: &str = "FIRELANE_DEMO_OWNER";

/// The demo's folder and whose it is.
#[derive(Debug)]
pub(super) struct Place {
    owner: u32,
    is_inside: bool,
    folder: PathBuf,
}

impl Place {
    /// The place of the user that runs this process.
    pub(super) fn of_this_user() -> Self {
        let uid = rustix::process::geteuid().as_raw();
        let inherited = std::env::var(OWNER_VARIABLE).ok().and_then(|text| text.parse().ok());
        let owner = inherited.unwrap_or(uid);
        let folder = PathBuf::from(format!("/var/tmp/firelane-demo-{owner}"));
        Self { owner, is_inside: uid == 0, folder }
    }

    /// Whether interfaces can be made from here.
    pub(super) fn is_inside(&self) -> bool {
        self.is_inside
    }

    /// The folder; it may not exist.
    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Makes the folder, which must not exist.
    pub(super) fn make(&self) -> Result<(), String> {
        let failed = |e| format!("{}: {e}", self.folder.display());
        DirBuilder::new().mode(0o700).create(&self.folder).map_err(failed)
    }

    /// Removes the folder, if it is ours.
    pub(super) fn remove(&self) -> Result<(), String> {
        let Ok(metadata) = fs::symlink_metadata(&self.folder) else { return Ok(()) };
        let own = rustix::process::geteuid().as_raw();
        if !metadata.is_dir() || metadata.uid() != own {
            return Err(format!("{}: belongs to somebody else", self.folder.display()));
        }
        fs::remove_dir_all(&self.folder).map_err(|e| format!("{}: {e}", self.folder.display()))
    }

    /// Runs the demo again inside namespaces of its own. Comes back only if that fails.
    pub(super) fn enter(&self, words: &[&str]) -> Failure {
        let program = match std::env::current_exe() {
            Ok(program) => program,
            Err(error) => return die(format!("this program's own path: {error}")),
        };
        let inside = "mount -t tmpfs tmpfs /run && mkdir -p /run/netns && ip link set lo up && exec \"$0\" demo \"$@\"";
        let error = Command::new("unshare")
            .args([
                "--user",
                "--map-root-user",
                "--mount",
                "--net",
                "--propagation",
                "private",
                "sh",
                "-c",
                inside,
            ])
            .arg(program)
            .args(words)
            .env(OWNER_VARIABLE, self.owner.to_string())
            .env("PATH", search_path())
            .exec();
        die(format!("unshare (Debian package util-linux): {error}"))
    }

    /// What a person may type while the demo runs on.
    pub(super) fn commands_to_try(&self, daemon: u32) -> String {
        let enter = if self.owner == 0 {
            String::new()
        } else {
            format!("nsenter --target {daemon} --user --mount --net --preserve-credentials ")
        };
        let command = std::env::current_exe().map_or("firelane".into(), |p| p.display().to_string());
        let socket = self.folder.join("api.sock");
        format!(
            "\nIt runs on. Try:\n\
             \x20 {enter}ip netns exec alice curl http://10.0.0.10/\n\
             \x20 {enter}ip netns exec alice ping fd00::10\n\
             \x20 export FIRELANE_SOCKET={}\n\
             \x20 {command} dladm show-vnic\n\
             \x20 {command} flowadm set-flowprop -l bob0 -p maxbw=10M iperf\n\
             \x20 {command} flowstat -i 1\n\
             \x20 {command} drops\n\
             and at the end\n\
             \x20 {command} demo --clean\n",
            socket.display()
        )
    }
}

/// Administration programs are found even where the user's own PATH lacks `/usr/sbin`.
pub(super) fn search_path() -> String {
    format!("{}:/usr/sbin:/sbin", std::env::var("PATH").unwrap_or_default())
}
