//! Folders and files of the daemon: locked against a second daemon, written whole or not at all.
//!
//! Called by `daemon.rs` at the start, and by `state.rs` and `owned.rs` for every write.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::{Access, AtFlags, FlockOperation, OFlags};

/// The file that a daemon holds locked in each of its folders.
const LOCK: &str = "lock";

/// Makes a folder for the daemon and whoever may read its files.
pub(crate) fn make(folder: &Path) -> io::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(0o755).create(folder)
}

/// Whether this daemon may make something in a folder that is there. Nothing is made.
pub(crate) fn may_have_more(folder: &Path) -> io::Result<()> {
    if !fs::metadata(folder)?.is_dir() {
        return Err(io::ErrorKind::NotADirectory.into());
    }
    let wanted = Access::WRITE_OK | Access::EXEC_OK;
    Ok(rustix::fs::accessat(rustix::fs::CWD, folder, wanted, AtFlags::EACCESS)?)
}

/// A folder that is this daemon's as long as the value lives, whatever ends the process.
#[derive(Debug)]
pub(crate) struct Lock(#[expect(dead_code, reason = "the lock is the open file")] File);

/// Why a folder is not ours.
#[derive(Debug)]
pub(crate) enum LockError {
    /// Another daemon uses it: its process, if it has said so.
    Taken(String),
    /// The system refused.
    Io(io::Error),
}

impl Lock {
    /// Takes `folder`, which exists.
    pub(crate) fn take(folder: &Path) -> Result<Self, LockError> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).mode(0o644);
        // Its content is replaced, so a link to somebody else's file is not followed.
        options.custom_flags(OFlags::NOFOLLOW.bits().cast_signed());
        let mut file = options.open(folder.join(LOCK)).map_err(LockError::Io)?;
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(rustix::io::Errno::WOULDBLOCK) => {
                let mut pid = String::new();
                let _ = file.read_to_string(&mut pid);
                return Err(LockError::Taken(pid.trim().to_owned()));
            }
            Err(error) => return Err(LockError::Io(error.into())),
        }
        // The number is for people; a lock without it is a lock.
        let _ = file.set_len(0).and_then(|()| writeln!(file, "{}", std::process::id()));
        Ok(Self(file))
    }
}

/// A new content of a file that is on the disk but not yet in its place.
#[derive(Debug)]
pub(crate) struct Prepared<'a> {
    path: &'a Path,
    temporary: std::path::PathBuf,
}

/// Writes `content` beside `path`. A full disk shows here, while nothing is changed.
pub(crate) fn prepare<'a>(path: &'a Path, content: &str) -> io::Result<Prepared<'a>> {
    prepare_for(0o644, path, content.as_bytes())
}

/// The same for what only those may read who may ask the daemon for it: its user and group.
pub(crate) fn prepare_private<'a>(path: &'a Path, content: &str) -> io::Result<Prepared<'a>> {
    prepare_for(0o640, path, content.as_bytes())
}

/// The same, for those whom `mode` names.
fn prepare_for<'a>(mode: u32, path: &'a Path, content: &[u8]) -> io::Result<Prepared<'a>> {
    let prepared = Prepared { path, temporary: path.with_extension("new") };
    // One that a killed daemon has left may be somebody else's to read.
    match fs::remove_file(&prepared.temporary) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(&prepared.temporary)?;
    file.write_all(content)?;
    file.sync_all()?;
    Ok(prepared)
}

impl Prepared<'_> {
    /// Puts the content in its place.
    pub(crate) fn commit(self) -> io::Result<()> {
        fs::rename(&self.temporary, self.path)?;
        let folder = self.path.parent().unwrap_or(Path::new("/"));
        File::open(folder)?.sync_all()
    }
}

impl Drop for Prepared<'_> {
    fn drop(&mut self) {
        // Gone already if it was committed.
        let _ = fs::remove_file(&self.temporary);
    }
}

/// Replaces the content of `path` whole.
pub(crate) fn replace(path: &Path, content: &str) -> io::Result<()> {
    prepare(path, content)?.commit()
}

/// The same for what only the daemon's user may read.
pub(crate) fn replace_secret(path: &Path, content: &[u8]) -> io::Result<()> {
    prepare_for(0o600, path, content)?.commit()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use std::path::PathBuf;
    use std::sync::atomic::{AtomicU32, Ordering};

    /// A folder that is removed with its test.
    pub(crate) struct Scratch(PathBuf);

    impl Scratch {
        pub(crate) fn new() -> Self {
            static COUNT: AtomicU32 = AtomicU32::new(0);
            let number = COUNT.fetch_add(1, Ordering::Relaxed);
            let path = std::env::temp_dir().join(format!("firelaned-{}-{number}", std::process::id()));
            fs::create_dir_all(&path).unwrap();
            Self(path)
        }

        pub(crate) fn path(&self) -> &Path {
            &self.0
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn a_folder_has_one_owner_at_a_time() {
        let folder = Scratch::new();
        let lock = Lock::take(folder.path()).unwrap();
        match Lock::take(folder.path()) {
            Err(LockError::Taken(pid)) => assert_eq!(pid, std::process::id().to_string()),
            other => panic!("{other:?}"),
        }
        drop(lock);
        Lock::take(folder.path()).unwrap();
        assert!(matches!(Lock::take(&folder.path().join("absent")), Err(LockError::Io(_))));
    }

    #[test]
    fn a_lock_that_is_a_link_is_not_taken() {
        let folder = Scratch::new();
        let other = folder.path().join("other");
        fs::write(&other, "stays").unwrap();
        std::os::unix::fs::symlink(&other, folder.path().join(LOCK)).unwrap();
        assert!(matches!(Lock::take(folder.path()), Err(LockError::Io(_))));
        assert_eq!(fs::read_to_string(&other).unwrap(), "stays");
    }

    #[test]
    fn a_write_that_is_not_committed_changes_nothing() {
        let folder = Scratch::new();
        let path = folder.path().join("file");
        replace(&path, "one").unwrap();
        drop(prepare(&path, "two").unwrap());
        assert_eq!(fs::read_to_string(&path).unwrap(), "one");
        prepare(&path, "three").unwrap().commit().unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "three");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn who_may_make_nothing_in_a_folder_knows_it_before() {
        use rustix::thread::{CapabilitySet, capabilities, set_capabilities};
        use std::os::unix::fs::PermissionsExt;
        let folder = Scratch::new();
        may_have_more(folder.path()).unwrap();
        let file = folder.path().join("file");
        fs::write(&file, "").unwrap();
        assert_eq!(may_have_more(&file).unwrap_err().kind(), io::ErrorKind::NotADirectory);
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o555)).unwrap();
        // In a thread of its own, whom permissions bind although it is root's.
        let refused = std::thread::scope(|scope| {
            let asks = || {
                let mut has = capabilities(None).unwrap();
                let passes = CapabilitySet::DAC_OVERRIDE | CapabilitySet::DAC_READ_SEARCH;
                (has.effective, has.permitted) = (has.effective - passes, has.permitted - passes);
                has.inheritable -= passes;
                set_capabilities(None, has).unwrap();
                may_have_more(folder.path()).unwrap_err()
            };
            scope.spawn(asks).join().unwrap()
        });
        assert_eq!(refused.kind(), io::ErrorKind::PermissionDenied);
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "nothing is made");
    }
}
