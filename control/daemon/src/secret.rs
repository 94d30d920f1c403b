//! What automatic addresses are made from (RFC 7217 §5): drawn once and kept, so that a host comes back under the
//! same addresses.
//!
//! Called by `daemon.rs` at the start. A folder that cannot be written to costs the return, not the start.

use std::fs;
use std::io;
use std::path::Path;

use crate::folder;

/// The file's name, in the state folder; only the daemon's user may read it.
const FILE: &str = "address-secret";

/// The secret in the folder `state`, which is made if it is not there; a fault in words if it will not return.
pub(crate) fn read_or_draw(state: &Path) -> (Option<[u8; 16]>, Option<String>) {
    let path = state.join(FILE);
    let told = |error: &dyn std::fmt::Display| {
        format!("{}: {error}; automatic addresses change at the next start", path.display())
    };
    match fs::read(&path) {
        Ok(bytes) => match <[u8; 16]>::try_from(bytes.as_slice()) {
            Ok(secret) => (Some(secret), None),
            Err(_) => (None, Some(told(&format!("{} bytes, not 16", bytes.len())))),
        },
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let mut secret = [0; 16];
            if let Err(error) = getrandom::fill(&mut secret) {
                return (None, Some(told(&error)));
            }
            let fault = folder::replace_secret(&path, &secret).err();
            (Some(secret), fault.map(|error| told(&error)))
        }
        Err(error) => (None, Some(told(&error))),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use crate::folder::tests::Scratch;

    #[test]
    fn who_was_killed_while_he_wrote_it_leaves_nothing_in_its_way() {
        let folder = Scratch::new();
        let half = folder.path().join(FILE).with_extension("new");
        fs::write(&half, b"half").unwrap();
        fs::set_permissions(&half, fs::Permissions::from_mode(0o644)).unwrap();
        let (first, fault) = read_or_draw(folder.path());
        assert!(first.is_some() && fault.is_none(), "{fault:?}");
        assert_eq!(read_or_draw(folder.path()), (first, None));
        let mode = fs::metadata(folder.path().join(FILE)).unwrap().permissions().mode();
        assert_eq!((mode & 0o777, half.exists()), (0o600, false));
    }

    #[test]
    fn it_is_drawn_once_and_returns() {
        let folder = Scratch::new();
        let (first, fault) = read_or_draw(folder.path());
        assert!(first.is_some() && fault.is_none());
        assert_eq!(read_or_draw(folder.path()), (first, None));
        fs::write(folder.path().join(FILE), b"short").unwrap();
        let (none, fault) = read_or_draw(folder.path());
        assert!(none.is_none() && fault.unwrap().contains("5 bytes, not 16"));
        let (some, fault) = read_or_draw(&folder.path().join("missing"));
        assert!(some.is_some() && fault.is_some());
    }
}
