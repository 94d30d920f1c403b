//! Where a verb's own daemon lives: one folder per verb and user, and for an ordinary user namespaces of his own.
//!
//! The folder lies below `/var/tmp`, so that a 256 MiB file needs no memory, and belongs to its user alone. An
//! ordinary user's verb runs itself again inside a user, mount and network namespace, where it may make
//! interfaces; everything in there ends with its last process.

use std::ffi::OsStr;
use std::fs::{self, DirBuilder};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::session::{Failure, die};

/// The bits of a folder's mode that let others than its owner change what is in it.
const WRITTEN_BY_OTHERS: u32 = 0o022;

/// The verb's folder and whose it is.
#[derive(Debug)]
pub(crate) struct Place {
    verb: &'static str,
    owner: u32,
    is_inside: bool,
    folder: PathBuf,
}

impl Place {
    /// The place of `verb` for the user that runs this process.
    pub(crate) fn of_this_user(verb: &'static str) -> Self {
        let uid = rustix::process::geteuid().as_raw();
        let inherited = std::env::var(owner_variable(verb)).ok().and_then(|text| text.parse().ok());
        let owner = inherited.unwrap_or(uid);
        let folder = PathBuf::from(format!("/var/tmp/firelane-{verb}-{owner}"));
        Self { verb, owner, is_inside: uid == 0, folder }
    }

    /// Whether interfaces can be made from here.
    pub(crate) fn is_inside(&self) -> bool {
        self.is_inside
    }

    /// The folder; it may not exist.
    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Makes the folder, which must not exist.
    pub(crate) fn make(&self) -> Result<(), String> {
        let failed = |e| format!("{}: {e}", self.folder.display());
        DirBuilder::new().mode(0o700).create(&self.folder).map_err(failed)
    }

    /// Whether the folder is there. It must be ours then: anybody may make one of that name below `/var/tmp`, and what
    /// lies in it says which processes are ended and what is removed.
    pub(crate) fn is_ours(&self) -> Result<bool, String> {
        let metadata = match fs::symlink_metadata(&self.folder) {
            Ok(metadata) => metadata,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(false),
            Err(error) => return Err(format!("{}: {error}", self.folder.display())),
        };
        let own = rustix::process::geteuid().as_raw();
        if !metadata.is_dir() || metadata.uid() != own || metadata.mode() & WRITTEN_BY_OTHERS != 0 {
            return Err(format!("{}: belongs to somebody else", self.folder.display()));
        }
        Ok(true)
    }

    /// Removes the folder, if it is ours.
    pub(crate) fn remove(&self) -> Result<(), String> {
        if !self.is_ours()? {
            return Ok(());
        }
        fs::remove_dir_all(&self.folder).map_err(|e| format!("{}: {e}", self.folder.display()))
    }

    /// Runs the verb again inside namespaces of its own. Comes back only if that fails.
    pub(crate) fn enter<S: AsRef<OsStr>>(&self, words: &[S]) -> Failure {
        let program = match std::env::current_exe() {
            Ok(program) => program,
            Err(error) => return die(format!("this program's own path: {error}")),
        };
        let inside =
            "mount -t tmpfs tmpfs /run && mkdir -p /run/netns && ip link set lo up && exec \"$0\" \"$@\"";
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
            .arg(self.verb)
            .args(words)
            .env(owner_variable(self.verb), self.owner.to_string())
            .env("PATH", search_path())
            .exec();
        die(format!("unshare (Debian package util-linux): {error}"))
    }

    /// The words that come before a command which shall run where the daemon with that process id does.
    pub(crate) fn enter_words(&self, daemon: u32) -> String {
        if self.owner == 0 {
            return String::new();
        }
        format!("nsenter --target {daemon} --user --mount --net --preserve-credentials ")
    }

    /// This command as a person types it.
    pub(crate) fn command() -> String {
        std::env::current_exe().map_or("firelane".into(), |p| p.display().to_string())
    }

    /// The line that points a shell's commands at this daemon.
    pub(crate) fn socket_line(&self) -> String {
        format!("export FIRELANE_SOCKET={}", self.folder.join("api.sock").display())
    }
}

/// Set inside: the user that the verb belongs to.
fn owner_variable(verb: &str) -> String {
    format!("FIRELANE_{}_OWNER", verb.to_uppercase())
}

/// Administration programs are found even where the user's own PATH lacks `/usr/sbin`.
pub(crate) fn search_path() -> String {
    format!("{}:/usr/sbin:/sbin", std::env::var("PATH").unwrap_or_default())
}
