//! What is sent by a TAP of several queues waits in no queueing discipline, of which the kernel would make 256.
//!
//! As root; otherwise the test says why it is skipped.

use crate::common;
use std::process::Command;

#[test]
fn a_tap_has_one_discipline_and_nothing_waits_in_it() {
    let Some(queues) = common::taps("bare0", 2, &["10.0.0.1/24"]) else { return };
    let told =
        Command::new("tc").args(["qdisc", "show", "dev", "bare0"]).output().expect("iproute2 is installed");
    let told = String::from_utf8_lossy(&told.stdout);
    assert!(told.starts_with("qdisc noqueue") && told.lines().count() == 1, "{told}");
    drop(queues);
}
