//! A kernel interface for a VNIC where no TAP can be opened: a veth pair with a packet socket on its near end.
//!
//! Called by `kernel.rs`. The far end becomes the VNIC's interface in its namespace; the near end stays in the
//! daemon's, where the kernel must not use it: it has no address and no IPv6.

use std::fs;
use std::io;
use std::path::Path;

use firelane::PacketSocket;
use firelane_units::{IpPrefix, MacAddr, Mtu};

use crate::{netlink, netns};

/// The pair to make.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pair<'a> {
    /// The near end's name.
    pub(crate) near: &'a str,
    /// The far end's.
    pub(crate) ifname: &'a str,
    /// Where the far end goes; the daemon's own namespace if nowhere.
    pub(crate) namespace: Option<&'a Path>,
    /// The far end's Ethernet address.
    pub(crate) mac: MacAddr,
    /// The largest packet.
    pub(crate) mtu: Mtu,
    /// The far end's addresses.
    pub(crate) addresses: &'a [IpPrefix],
}

/// Makes the pair and opens its near end. Nothing is left behind on an error.
pub(crate) fn create(pair: &Pair<'_>) -> io::Result<PacketSocket> {
    let transit = format!("{}p", pair.near);
    netns::inside(None, || netlink::add_veth(pair.near, &transit))?;
    let made = set_up_near(pair)
        .and_then(|()| move_far(&transit, pair.namespace))
        .and_then(|()| netns::inside(pair.namespace, || set_up_far(&transit, pair)))
        .and_then(|()| PacketSocket::open(pair.near, pair.mtu));
    if made.is_err() {
        let _ = delete(pair.near);
    }
    made
}

/// Deletes the pair whose near end is `near`.
pub(crate) fn delete(near: &str) -> io::Result<()> {
    netns::inside(None, || netlink::delete(near))
}

fn set_up_near(pair: &Pair<'_>) -> io::Result<()> {
    netns::inside(None, || {
        set_ipv6(pair.near, "disable_ipv6", "1");
        netlink::set_mtu(pair.near, pair.mtu)?;
        netlink::set_up(pair.near)
    })
}

fn move_far(transit: &str, namespace: Option<&Path>) -> io::Result<()> {
    let Some(path) = namespace else { return Ok(()) };
    let file = fs::File::open(path)?;
    netns::inside(None, || netlink::move_to(transit, std::os::fd::AsFd::as_fd(&file)))
}

fn set_up_far(transit: &str, pair: &Pair<'_>) -> io::Result<()> {
    netlink::shape(transit, pair.ifname, pair.mac, pair.mtu)?;
    // Addresses are given out by us, so nobody else can have them: duplicate detection would only delay them.
    set_ipv6(pair.ifname, "accept_dad", "0");
    netlink::set_up(pair.ifname)?;
    pair.addresses.iter().try_for_each(|address| netlink::add_address(pair.ifname, *address))
}

/// Sets an IPv6 setting of an interface. Where settings cannot be written, the pair works without.
fn set_ipv6(ifname: &str, setting: &str, value: &str) {
    let path = format!("/proc/sys/net/ipv6/conf/{ifname}/{setting}");
    if let Err(error) = fs::write(&path, value) {
        tracing::debug!("{path}: {error}");
    }
}
