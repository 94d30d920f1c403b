//! The host's descriptors behind sockets. One test: numbers that come back are watched, which other threads would take.
#![allow(unsafe_code, missing_docs)]

mod support;

use support::Drill;

#[test]
fn a_descriptor_is_the_hosts_and_may_be_closed_there() {
    let drill = Drill::new("", false);
    let (kept, closed) = (drill.tcp(), drill.tcp());
    // SAFETY: numbers only; this is what packetdrill does with what a script leaves open.
    unsafe {
        assert_eq!(libc::fcntl(kept, libc::F_GETFD) & libc::FD_CLOEXEC, libc::FD_CLOEXEC);
        assert_eq!(libc::close(closed), 0);
        // Somebody else gets the number; the end of the plug-in must leave it alone.
        let other = libc::dup(1);
        assert_eq!(other, closed);
        drill.free();
        assert!(libc::fcntl(other, libc::F_GETFD) >= 0);
        libc::close(other);
    }
}
