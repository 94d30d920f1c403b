//! What the tests of TAPs begin with: a network namespace of the test's own with a TAP in it.

use std::process::Command;

use firelane_driver_tap::{TapConfig, TapQueue, open};
use firelane_frame::{Chain, Driver, Pools};
use firelane_skipped::skipped;
use firelane_units::{DropCounters, MacAddr, Mtu};

/// The queues of a TAP with these addresses in a namespace of the calling thread's; none, and why is said, without the right to one.
pub(crate) fn taps(name: &str, queues: u16, addresses: &[&str]) -> Option<Vec<TapQueue>> {
    // SAFETY: the test's thread has opened nothing yet that depends on its old namespace.
    if let Err(error) = unsafe { rustix::thread::unshare_unsafe(rustix::thread::UnshareFlags::NEWNET) } {
        skipped(format_args!("no network namespace of one's own: {error}"));
        return None;
    }
    let config = TapConfig {
        queues,
        mtu: Mtu::ETHERNET,
        mac: MacAddr([2, 8, 0x20, 0, 0, 1]),
        addresses: addresses.iter().map(|it| it.parse().unwrap()).collect(),
        namespace: None,
    };
    open(name, &config).inspect_err(|error| skipped(error)).ok()
}

/// Fetches every frame that has come by a queue, without waiting.
pub(crate) fn fetch(
    queue: &mut TapQueue,
    pools: &mut Pools,
    drops: &mut DropCounters,
    mut tell: impl FnMut(&[u8]),
) {
    let mut chain = Chain::new();
    while queue.receive(pools, 64, &mut chain, drops) > 0 {}
    while let Some(frame) = chain.pop() {
        tell(frame.as_slice());
        pools.put(frame);
    }
}

/// The ports of a datagram, if it has them where they usually are.
pub(crate) fn ports(frame: &[u8]) -> Option<[u16; 2]> {
    let at = if frame.get(12) == Some(&8) { 34 } else { 54 };
    let ports: &[u8; 4] = frame.get(at..)?.first_chunk()?;
    Some([[ports[0], ports[1]], [ports[2], ports[3]]].map(u16::from_be_bytes))
}

/// A line of ip(8).
pub(crate) fn ip(line: &str) {
    let path = "/usr/sbin:/usr/bin:/sbin:/bin";
    let status = Command::new("ip").args(line.split_whitespace()).env("PATH", path).status();
    assert!(status.is_ok_and(|it| it.success()), "{line}");
}

/// Lets a TAP's user have a station with this address.
pub(crate) fn neighbour(name: &str, address: &str) {
    ip(&format!("neighbour add {address} lladdr 02:08:20:00:00:02 dev {name} nud permanent"));
}
