//! What automatic addresses are made from (RFC 7217 §5): drawn once and kept, so that a host comes back under the
//! same addresses.
//!
//! Called by `daemon.rs` at the start. A folder that cannot be written to costs the return, not the start.

use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// The file's name, in the state folder; only the daemon's user may read it.
const FILE: &str = "address-secret";

/// The secret in `folder`, which is made if it is not there; a fault in words if it will not return.
pub(crate) fn read_or_draw(folder: &Path) -> (Option<[u8; 16]>, Option<String>) {
    let path = folder.join(FILE);
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
            let fault = write(&path, &secret).err();
            (Some(secret), fault.map(|error| told(&error)))
        }
        Err(error) => (None, Some(told(&error))),
    }
}

fn write(path: &Path, secret: &[u8; 16]) -> io::Result<()> {
    let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(secret)?;
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::folder::tests::Scratch;

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
