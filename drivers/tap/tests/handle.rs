//! What a TAP's handle says of it, beside what `ip` and `/sys` say.
//!
//! As root; otherwise each test says why it is skipped.

use crate::common::{self, ip};
use std::process::Command;

use firelane_driver_tap::TapQueue;
use firelane_frame::{Driver, Pools, PoolsConfig};
use firelane_units::DropCounters;

/// The speed that ethtool shows.
fn speed(name: &str) -> String {
    let path = "/usr/sbin:/usr/bin:/sbin:/bin";
    let shown = Command::new("ethtool").arg(name).env("PATH", path).output().expect("ethtool is installed");
    let shown = String::from_utf8_lossy(&shown.stdout).into_owned();
    let line = shown.lines().find_map(|line| line.trim().strip_prefix("Speed: ").map(str::to_owned));
    line.unwrap_or(shown)
}

#[test]
fn its_user_sees_the_speed_that_is_set_whatever_it_is_called() {
    let Some(mut queues) = common::taps("speed0", 2, &["10.0.0.1/24"]) else { return };
    let handle = queues[0].handle().unwrap();
    assert_eq!(handle.name().as_deref(), Some("speed0"));
    for mbps in [250, 1, 100_000, 10_000] {
        handle.set_speed(mbps).unwrap();
        assert_eq!(speed("speed0"), format!("{mbps}Mb/s"));
    }
    ip("link set speed0 down");
    ip("link set speed0 name other0");
    ip("link set other0 up");
    assert_eq!(handle.name().as_deref(), Some("other0"));
    handle.set_speed(40).unwrap();
    assert_eq!(speed("other0"), "40Mb/s");
    let mut pools = Pools::new(PoolsConfig { small_slots: 4, large_slots: 2 });
    let mut sees_end = |queue: &mut TapQueue| {
        common::fetch(queue, &mut pools, &mut DropCounters::default(), |_| {});
        queue.is_gone()
    };
    assert!(!sees_end(&mut queues[0]));
    ip("link delete other0");
    assert!(sees_end(&mut queues[0]) && sees_end(&mut queues[1]));
    assert_eq!(handle.name(), None, "it was deleted under its queues");
    assert!(handle.set_speed(1).is_err());
    queues.clear();
}
