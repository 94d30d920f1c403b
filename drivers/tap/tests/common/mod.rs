//! What the tests of TAPs begin with: a network namespace of the test's own with a TAP in it.

use firelane_driver_tap::{TapConfig, TapQueue, open};
use firelane_units::{MacAddr, Mtu};

/// The queues of a TAP with these addresses in a namespace of the calling thread's; none, and why is said, without the right to one.
pub(crate) fn taps(name: &str, queues: u16, addresses: &[&str]) -> Option<Vec<TapQueue>> {
    // SAFETY: the test's thread has opened nothing yet that depends on its old namespace.
    if let Err(error) = unsafe { rustix::thread::unshare_unsafe(rustix::thread::UnshareFlags::NEWNET) } {
        eprintln!("skipped: no network namespace of one's own: {error}");
        return None;
    }
    let config = TapConfig {
        queues,
        mtu: Mtu::ETHERNET,
        mac: MacAddr([2, 8, 0x20, 0, 0, 1]),
        addresses: addresses.iter().map(|it| it.parse().unwrap()).collect(),
        namespace: None,
    };
    open(name, &config).inspect_err(|error| eprintln!("skipped: {error}")).ok()
}
