//! Which netstack the program gets: the VNIC's or zone's that was asked for, else the obvious one.
//!
//! Called by `run/mod.rs`. A zone owns VNICs through its netstack, so its name is the netstack's.

use std::path::Path;

use firelane_api::{Api, NetstackInfo, VnicInfo, Which, paths};
use firelane_model::{LinkName, NetstackName};

use crate::EXIT_USAGE;
use crate::own::Refused;
use crate::session::die;

/// The netstack that is meant when there are several, as for `ipadm`.
const DEFAULT_NETSTACK: &str = "default";

/// Where a program belongs.
#[derive(Clone, Debug)]
pub(super) struct Target {
    /// The netstack.
    pub(super) netstack: NetstackName,
    /// The VNIC that was asked for, or all of the netstack's.
    pub(super) vnics: Vec<LinkName>,
    /// Whether it was a VNIC that was asked for.
    pub(super) by_vnic: bool,
    /// Whether the host is not seen from here.
    pub(super) is_unseen: bool,
    addresses: Vec<String>,
}

impl Target {
    /// Finds it on the host.
    pub(super) fn choose(
        api: &dyn Api,
        vnic: Option<&LinkName>,
        zone: Option<&NetstackName>,
    ) -> Result<Self, Refused> {
        let bad = |text: String| Refused(die(text), EXIT_USAGE);
        if is_shut_out() {
            let unnamed = "this user may not see which netstacks there are: name one (-z ZONE, or -v VNIC)";
            return Self::unseen(vnic, zone).ok_or_else(|| bad(unnamed.to_owned()));
        }
        let netstacks = api.netstacks(Which::Active)?;
        let name = match (vnic, zone) {
            (Some(vnic), _) => netstack_of(vnic, &api.vnics(Which::Active)?).map_err(bad)?,
            (None, Some(zone)) => zone.clone(),
            (None, None) => obvious(&netstacks).map_err(bad)?,
        };
        let found = netstacks.into_iter().find(|it| it.name == name);
        let found = found.ok_or_else(|| bad(format!("zone {name}: there is no such netstack")))?;
        let vnics = vnic.map_or(found.interfaces, |vnic| vec![vnic.clone()]);
        let by_vnic = vnic.is_some();
        Ok(Self { netstack: name, vnics, by_vnic, is_unseen: false, addresses: found.addresses })
    }

    /// Who may not see the host may still be one of those who may run programs there, which the daemon judges. A VNIC's
    /// name is enough for it.
    fn unseen(vnic: Option<&LinkName>, zone: Option<&NetstackName>) -> Option<Self> {
        let netstack = zone.cloned().or_else(|| vnic?.as_str().parse().ok())?;
        let vnics = vnic.cloned().into_iter().collect();
        Some(Self {
            netstack,
            vnics,
            by_vnic: vnic.is_some(),
            is_unseen: true,
            addresses: vec!["addresses not shown".to_owned()],
        })
    }

    /// Whether and how a preloaded program is on it, and what it must know, in one line.
    pub(super) fn description(&self) -> String {
        let netstack = &self.netstack;
        if self.is_unseen && is_refused() {
            return format!("not accelerated: this user gets no socket on netstack {netstack}");
        }
        let addresses = match self.addresses.as_slice() {
            [] => "no address".to_owned(),
            some => some.join(", "),
        };
        format!(
            "accelerated on netstack {netstack} ({addresses}); the host's own loopback is out of its reach, names \
             are looked up through the host"
        )
    }
}

/// Whether this user may not come to where the daemon takes programs: the library says why when it refuses the first socket.
fn is_refused() -> bool {
    crate::client::socket_of_environment().is_some_and(|it| may_not_open(&paths::programs_socket(&it)))
}

/// Whether this user may not open the daemon's interface.
fn is_shut_out() -> bool {
    crate::client::socket_of_environment().is_some_and(|path| may_not_open(&path))
}

fn may_not_open(socket: &Path) -> bool {
    use rustix::fs::{Access, access};
    access(socket, Access::WRITE_OK) == Err(rustix::io::Errno::ACCESS)
}

fn netstack_of(name: &LinkName, vnics: &[VnicInfo]) -> Result<NetstackName, String> {
    let vnic =
        vnics.iter().find(|it| it.name == *name).ok_or_else(|| format!("{name}: there is no such VNIC"))?;
    match (&vnic.netstack, &vnic.ifname, &vnic.namespace) {
        (Some(netstack), ..) => Ok(netstack.clone()),
        (None, Some(ifname), Some(namespace)) => Err(format!(
            "{name}: the kernel uses it, as {ifname} in the network namespace {namespace}: run the program there"
        )),
        (None, Some(ifname), None) => {
            Err(format!("{name}: the kernel uses it, as {ifname}: run the program without firelane run"))
        }
        (None, None, _) => {
            Err(format!("{name}: it has no netstack (ipadm create-if or create-addr gives it one)"))
        }
    }
}

fn obvious(netstacks: &[NetstackInfo]) -> Result<NetstackName, String> {
    let default = netstacks.iter().find(|it| it.name.as_str() == DEFAULT_NETSTACK);
    match (default, netstacks) {
        (Some(found), _) | (None, [found]) => Ok(found.name.clone()),
        (None, []) => Err("there is no netstack (ipadm create-addr makes one)".to_owned()),
        (None, several) => {
            let names: Vec<_> = several.iter().map(|it| it.name.as_str()).collect();
            Err(format!("which netstack? -v VNIC or -z ZONE says it; zones: {}", names.join(", ")))
        }
    }
}
