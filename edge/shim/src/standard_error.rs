//! Where the program says its errors, and this library its messages: descriptor 2 as the program has found it at its start, or has
//! put it there by `dup2`. A program that has closed it may get the number for a file of its own, whose text is not to have ours in it.
//! Who has something to say says it here; `lib.rs` and `descriptors.rs` tell where.

use core::ffi::c_int;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::{confining, process, session, sys, table};

static KNOWN: Known = Known::nothing();

/// A file, by its device and its inode there.
struct Known {
    device: AtomicU64,
    inode: AtomicU64,
}

impl Known {
    const fn nothing() -> Self {
        Self { device: AtomicU64::new(0), inode: AtomicU64::new(0) }
    }

    /// From now on it is what lies behind `fd`, if anything does.
    fn becomes(&self, fd: c_int) {
        // Of two threads at once halves may stay, which are no file: then nothing is said.
        if let Ok(file) = rustix::fs::fstat(sys::borrow(fd)) {
            self.device.store(file.st_dev, Ordering::Relaxed);
            self.inode.store(file.st_ino, Ordering::Relaxed);
        }
    }

    fn is(&self, fd: c_int) -> bool {
        let known = (self.device.load(Ordering::Relaxed), self.inode.load(Ordering::Relaxed));
        rustix::fs::fstat(sys::borrow(fd)).is_ok_and(|file| (file.st_dev, file.st_ino) == known)
    }
}

/// The program begins.
pub(crate) fn begins() {
    KNOWN.becomes(libc::STDERR_FILENO);
}

/// The program is about to make `to` a copy of `fd`: by its number it has chosen what it is for. A child of `vfork` has
/// its own, and the memory of its parent; to one that is confined asking may be forbidden.
pub(crate) fn copies(fd: c_int, to: c_int) {
    if to == libc::STDERR_FILENO && !process::is_borrowed() && !confining::is_confined() {
        KNOWN.becomes(fd);
    }
}

/// Whether descriptor 2 is where errors are said.
pub(crate) fn is_there() -> bool {
    KNOWN.is(libc::STDERR_FILENO)
}

/// Says why the program has no netstack, where it says its own errors: a number alone would not tell.
pub(crate) fn say_once(text: &str) {
    static IS_SAID: AtomicBool = AtomicBool::new(false);
    say(&IS_SAID, text);
}

/// Says something there, unless it was said.
pub(crate) fn say(is_said: &AtomicBool, text: &str) {
    // A server's child may have a connection there, and one that it may not use.
    let is_ours =
        || table::get(libc::STDERR_FILENO).is_some() || session::is_of_a_daemon(libc::STDERR_FILENO);
    let may_speak = || is_there() && !is_ours();
    if !is_said.load(Ordering::Relaxed) && may_speak() && !is_said.swap(true, Ordering::Relaxed) {
        let _ = rustix::io::write(sys::borrow(libc::STDERR_FILENO), format!("firelane: {text}\n").as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::fd::AsRawFd;

    use super::*;

    #[test]
    fn a_file_is_known_by_what_it_is_and_not_by_its_number() {
        let known = Known::nothing();
        let null = File::open("/dev/null").unwrap();
        assert!(!known.is(null.as_raw_fd()), "nothing is known");
        known.becomes(null.as_raw_fd());
        let copy = null.try_clone().unwrap();
        assert!(known.is(copy.as_raw_fd()), "a copy is the same file");
        let (number, other) = (null.as_raw_fd(), File::open("/dev/zero").unwrap());
        assert!(!known.is(other.as_raw_fd()), "another file of the same device");
        sys::replace(&other.into(), number, true);
        assert!(!known.is(number), "another file by the same number");
        known.becomes(c_int::MAX);
        assert!(known.is(copy.as_raw_fd()), "what is not there changes nothing");
        assert!(!known.is(c_int::MAX), "nor is it known");
    }
}
