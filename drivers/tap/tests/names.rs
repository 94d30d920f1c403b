//! Whose a name is: a TAP that somebody has is not ours, however many queues it could have beside his.
//!
//! As root; otherwise each test says why it is skipped.

use crate::common::{self, ip};
use firelane_driver_tap::{OpenError, TapConfig, open};
use firelane_units::{MacAddr, Mtu};

fn config(mac: u8) -> TapConfig {
    let mac = MacAddr([2, 8, 0x20, 0, 0, mac]);
    TapConfig { queues: 2, mtu: Mtu::ETHERNET, mac, addresses: Vec::new(), namespace: None }
}

/// Whether the name was refused as taken.
fn is_taken(name: &str) -> bool {
    match open(name, &config(9)) {
        Err(OpenError::Create(_, error)) => error.raw_os_error() == Some(libc::EBUSY),
        Err(error) => panic!("{error}"),
        Ok(_) => false,
    }
}

/// The kernel would take the second one's queues for queues of the first one's TAP, whose frames then came by all of them.
#[test]
fn a_tap_that_somebody_has_is_not_shared() {
    let Some(queues) = common::taps("own0", 2, &[]) else { return };
    assert!(is_taken("own0"), "another process has it");
    let own = std::fs::read_to_string("/proc/thread-self/net/dev").unwrap();
    assert!(own.contains("own0:"), "{own}");
    // Its own next queue is.
    let more = queues[0].one_more(2).unwrap();
    drop(more);
    drop(queues);
    ip("tuntap add kept0 mode tap multi_queue vnet_hdr");
    assert!(is_taken("kept0"), "it is there without anybody");
    ip("tuntap delete kept0 mode tap multi_queue");
    drop(open("kept0", &config(9)).unwrap());
}
