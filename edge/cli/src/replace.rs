//! A file that a command writes for its user: it is there whole, or as it was before.
//!
//! Called by `own.rs` for `firelane dump FILE`. Half a configuration may be one as well, and who applies it loses the other half.

use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};

/// Whose it is: a configuration has the secrets of memifs, and the daemon keeps its own like that.
const MODE: u32 = 0o640;

/// Puts `text` into the file `path`.
pub(crate) fn replace(path: &Path, text: &str) -> io::Result<()> {
    let found = fs::metadata(path).ok();
    // A pipe or a device is no file that could be replaced.
    if found.as_ref().is_some_and(|it| !it.is_file()) {
        return fs::write(path, text);
    }
    // A link that leads nowhere makes what it names.
    if found.is_none() && fs::symlink_metadata(path).is_ok() {
        return fs::write(path, text);
    }
    // Who keeps a link there keeps it.
    let place = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    match put(&place, found.as_ref(), text) {
        // In a folder of others, or where it is mounted by itself, it can only be written as it is.
        Err(error)
            if found.is_some()
                && matches!(
                    error.kind(),
                    ErrorKind::PermissionDenied | ErrorKind::ResourceBusy | ErrorKind::ReadOnlyFilesystem
                ) =>
        {
            fs::write(path, text)
        }
        done => done,
    }
}

/// A file that is removed again if it does not get its place.
struct Beside(PathBuf);

impl Drop for Beside {
    fn drop(&mut self) {
        // Gone already if it has its place.
        let _ = fs::remove_file(&self.0);
    }
}

fn put(place: &Path, before: Option<&Metadata>, text: &str) -> io::Result<()> {
    let name = place.file_name().ok_or(ErrorKind::InvalidInput)?.to_string_lossy();
    let path = place.with_file_name(format!(".{name}.{}.new", std::process::id()));
    let mut file = OpenOptions::new().write(true).create_new(true).mode(MODE).open(&path)?;
    let beside = Beside(path);
    if let Some(before) = before {
        // It stays its owner's as far as we may say so, who may have kept it from more than others.
        let _ = fchown(&file, None, Some(before.gid()));
        let _ = fchown(&file, Some(before.uid()), None);
        file.set_permissions(fs::Permissions::from_mode(before.mode() & MODE))?;
    }
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    fs::rename(&beside.0, place)?;
    let folder = place.parent().filter(|it| !it.as_os_str().is_empty()).unwrap_or(Path::new("."));
    // It has its place, also where a folder cannot be read.
    if let Ok(folder) = File::open(folder) {
        let _ = folder.sync_all();
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_replaced_whole_and_is_not_for_everybody() {
        let folder = std::env::temp_dir().join(format!("firelane-replace-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("writable");
        let (path, link) = (folder.join("host.toml"), folder.join("link.toml"));
        let mode = || fs::metadata(&path).expect("it is there").mode() & 0o777;
        replace(&path, "first").expect("writable");
        assert_eq!(mode() & !MODE, 0);
        std::os::unix::fs::symlink("host.toml", &link).expect("writable");
        for (before, after) in [(0o644, 0o640), (0o600, 0o600)] {
            fs::set_permissions(&path, fs::Permissions::from_mode(before)).expect("it is ours");
            let first = File::open(&path).expect("it is there").metadata().expect("it is open").ino();
            replace(&link, "second").expect("writable");
            assert_eq!(mode(), after);
            assert_ne!(fs::metadata(&path).expect("it is there").ino(), first, "it is another file");
        }
        // What a link names that leads nowhere is made.
        let (nowhere, made) = (folder.join("nowhere.toml"), folder.join("made.toml"));
        std::os::unix::fs::symlink("made.toml", &nowhere).expect("writable");
        replace(&nowhere, "made").expect("writable");
        assert_eq!(fs::read_to_string(&made).expect("readable"), "made");
        [nowhere, made].iter().for_each(|path| fs::remove_file(path).expect("it is ours"));
        assert!(fs::symlink_metadata(&link).expect("it is there").is_symlink());
        assert_eq!(fs::read_to_string(&path).expect("readable"), "second");
        assert_eq!(fs::read_dir(&folder).expect("readable").count(), 2, "nothing is left beside it");
        replace(Path::new("/dev/null"), "nothing").expect("a device is written to");
        assert!(!fs::metadata("/dev/null").expect("it is there").is_file());
        assert!(replace(&folder.join("no/host.toml"), "").is_err());
        fs::remove_dir_all(&folder).expect("it is ours");
    }
}
