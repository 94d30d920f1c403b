//! Waiting for what a daemon or a kernel does by itself.

use std::thread;
use std::time::{Duration, Instant};

/// Waits until something is so.
///
/// # Panics
/// If it is not within `limit`; `what` it was is said.
#[track_caller]
pub fn until(what: &str, limit: Duration, is_so: impl Fn() -> bool) {
    let deadline = Instant::now() + limit;
    while !is_so() {
        assert!(Instant::now() < deadline, "{what}: not within {limit:?}");
        thread::sleep(Duration::from_millis(20));
    }
}
