//! A process that may have no thread more, which the way into another network namespace takes.
//!
//! Alone in its process, whose limit it lowers.

use std::path::PathBuf;

use firelane_driver_tap::{OpenError, TapConfig, open};
use firelane_units::{MacAddr, Mtu};
use rustix::process::{Resource, getrlimit, setrlimit};

#[test]
fn who_gets_no_thread_is_told_and_lives() {
    let config = TapConfig {
        queues: 1,
        mtu: Mtu::ETHERNET,
        mac: MacAddr([2, 8, 0x20, 0, 0, 1]),
        addresses: Vec::new(),
        namespace: Some(PathBuf::from("/proc/thread-self/ns/net")),
    };
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: u64 = statm.split(' ').next().unwrap().parse().unwrap();
    let whole = getrlimit(Resource::As);
    // No room for a stack.
    let mut lowered = whole;
    lowered.current = Some(pages * rustix::param::page_size() as u64);
    setrlimit(Resource::As, lowered).unwrap();
    let opened = open("none0", &config).map(drop);
    setrlimit(Resource::As, whole).unwrap();
    match opened {
        Err(OpenError::Namespace(_, error)) => assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock),
        other => panic!("{other:?}"),
    }
}
