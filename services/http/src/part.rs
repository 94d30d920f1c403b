//! A file that is being received: beside its place until it is whole.
//!
//! Used by `connection.rs`. One that is given up is removed, whatever ends the connection; one whose process was killed is
//! removed by the next who serves the folder (`files.rs`). Whether there is still somebody who writes it says its lock, which
//! ends with its process, and not a number that another process may have by then.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The names' beginning and end. They are short, whatever the name of the file that it becomes.
const FIRST: &str = ".firelane-";
const LAST: &str = ".part";
/// A folder with more files than this is not looked through to its end.
const LOOKED_MAX: usize = 100_000;

/// A file that is being received. Without [`store`](Self::store) it leaves nothing.
#[derive(Debug)]
pub(crate) struct Part {
    file: Arc<File>,
    path: PathBuf,
    is_stored: bool,
}

impl Part {
    /// Begins a file that may be stored in `folder`.
    pub(crate) fn create(folder: &Path) -> io::Result<Self> {
        // Two may store the same file at a time.
        static NEXT: AtomicU64 = AtomicU64::new(0);
        loop {
            let nth = NEXT.fetch_add(1, Ordering::Relaxed);
            let path = folder.join(format!("{FIRST}{}-{nth}{LAST}", std::process::id()));
            match File::create_new(&path) {
                Ok(file) => {
                    let part = Self { file: Arc::new(file), path, is_stored: false };
                    // A file system without locks keeps what is left of a process that was killed, or loses what it receives.
                    let _ = part.file.try_lock();
                    return Ok(part);
                }
                // A process of before had the same number.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// What writes at its end.
    pub(crate) fn writer(&self) -> impl FnOnce(&[u8]) -> io::Result<()> + Send + use<> {
        let file = Arc::clone(&self.file);
        move |piece: &[u8]| (&*file).write_all(piece)
    }

    /// Moves it to its place.
    pub(crate) fn store(mut self, path: &Path) -> io::Result<()> {
        fs::rename(&self.path, path)?;
        self.is_stored = true;
        Ok(())
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        if !self.is_stored {
            // Who has removed it already has done what was wanted.
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Whether it is the name of a file that is being received, which is nobody's to ask for.
pub(crate) fn is_part(name: &OsStr) -> bool {
    let bytes = name.as_encoded_bytes();
    bytes.starts_with(FIRST.as_bytes()) && bytes.ends_with(LAST.as_bytes())
}

/// Removes what processes have left in `root` and its folders that were killed. Where that is not to be had it stays.
pub(crate) fn remove_abandoned(root: &Path) {
    let (mut folders, mut looked) = (vec![root.to_owned()], 0);
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            looked += 1;
            if looked > LOOKED_MAX {
                return;
            }
            match entry.file_type() {
                Ok(kind) if kind.is_dir() => folders.push(entry.path()),
                Ok(kind) if kind.is_file() && is_part(&entry.file_name()) => {
                    remove_unless_written(&entry.path())
                }
                _ => {}
            }
        }
    }
}

fn remove_unless_written(path: &Path) {
    if File::open(path).is_ok_and(|file| file.try_lock().is_ok()) {
        let _ = fs::remove_file(path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_killed_process_has_left_is_removed_and_nothing_else() {
        let root = std::env::temp_dir().join(format!("firelane-http-{}-part", std::process::id()));
        fs::create_dir_all(root.join("sub")).unwrap();
        let left = root.join("sub/.firelane-1-5.part");
        let others = ["x.part", ".firelane-1-5.txt", "sub/index.html"].map(|name| root.join(name));
        others.iter().chain([&left]).for_each(|path| fs::write(path, "x").unwrap());
        let link = root.join(".firelane-1-6.part");
        std::os::unix::fs::symlink(root.join("x.part"), &link).unwrap();
        let written = Part::create(&root).unwrap();
        remove_abandoned(&root);
        assert!(!left.exists());
        assert!(others.iter().chain([&link, &written.path]).all(|path| path.is_symlink() || path.is_file()));
        let path = written.path.clone();
        drop(written);
        assert!(!path.exists());
        fs::remove_dir_all(root).unwrap();
    }
}
