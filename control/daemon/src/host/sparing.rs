//! What would end connections by the way is refused: a command that changes a property says nothing of a netstack, or a VNIC, that is
//! made anew for it, nor one that takes an interface away of the netstack that goes with its last one.
//!
//! Part of the host (`host.rs`), asked before it carries out such a command. `firelane apply` does the same all the same: its plan
//! says so.

use std::net::IpAddr;

use firelane::{SocketCursor, SocketKind, SocketRow};
use firelane_api::{ApiError, Snapshot, Status, Store};
use firelane_model::{LinkName, NetstackName, Vnic};
use firelane_plan::{Action, plan};
use firelane_units::IpPrefix;

use super::Inner;
use crate::facts::Running;
use crate::refusal::refused;

/// How many sockets are asked for at a time.
const PAGE: usize = 1000;

impl Inner {
    /// Refuses what would end a netstack, or the address of a VNIC, with its connections.
    pub(super) fn spare_sockets(&self, next: &Store) -> Result<(), ApiError> {
        let present = self.as_said_by(&next.active);
        for step in plan(&next.active, &present) {
            match &step.action {
                Action::DeleteNetstack(name) if self.has_sockets(name, |_| true)? => {
                    let (field, does) = match next.active.netstacks.contains_key(name) {
                        true => ("cpus", "makes it anew"),
                        false => ("interface", "deletes it"),
                    };
                    return Err(busy(field, &format!("netstack {name} has sockets"), does));
                }
                Action::DeleteVnic(name) => {
                    let pair = present.vnics.get(name).zip(next.active.vnics.get(name));
                    let Some((is, shall, netstack)) =
                        pair.and_then(|(is, shall)| Some((is, shall, is.netstack()?)))
                    else {
                        continue;
                    };
                    // An interface that is taken away of a netstack that stays has its addresses with it, as was asked for.
                    if shall.netstack() != Some(netstack) {
                        continue;
                    }
                    let own = self.addresses_of(name);
                    if self.has_sockets(netstack, |local| own.contains(&local))? {
                        let why = format!("netstack {netstack} has sockets with addresses of {name}");
                        return Err(busy(differing(is, shall), &why, "makes the VNIC anew"));
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Whether a netstack has sockets with such an address. Ports that rest after a connection are nobody's, and what the daemon asks
    /// servers for addresses with ends with these: each of its sockets is passed over once, whoever else has such a port.
    fn has_sockets(&self, name: &NetstackName, counts: impl Fn(IpAddr) -> bool) -> Result<bool, ApiError> {
        let netstack = self.works.netstack(name)?;
        let uses =
            |vnic: &LinkName| self.store.active.vnics.get(vnic).is_some_and(|it| it.netstack() == Some(name));
        let links = self.works.vnics.iter().filter(|(vnic, _)| uses(vnic)).map(|(_, it)| it.id);
        let mut own = self.works.clients.sockets(&links.collect::<Vec<_>>());
        let mut is_own = |row: &SocketRow| {
            let known =
                own.iter().position(|it| matches!(row.what, SocketKind::Datagram) && *it == row.local);
            known.map(|at| own.swap_remove(at)).is_some()
        };
        let mut next = Some(SocketCursor::default());
        while let Some(from) = next {
            let page = self.works.engine.sockets(Some(netstack), from, PAGE).map_err(refused)?;
            let rests = |what: &SocketKind| matches!(what, SocketKind::TimeWait { .. });
            if page.rows.iter().any(|row| !rests(&row.what) && !is_own(row) && counts(row.local.ip())) {
                return Ok(true);
            }
            next = page.next;
        }
        Ok(false)
    }

    /// The addresses that a VNIC has now, however it got them.
    fn addresses_of(&self, vnic: &LinkName) -> Vec<IpAddr> {
        let Self { store, works, addresses, .. } = self;
        let facts = &Running { works, model: &store.active, addresses };
        let known = Snapshot { model: &store.active, persistent: &store.persistent, facts }.addrs();
        let own = known.iter().filter(|it| it.name.interface() == vnic.as_str());
        own.filter_map(|it| it.addr.parse::<IpPrefix>().ok()).map(|it| it.addr()).collect()
    }
}

/// What of a VNIC that is made anew is another, by the name that commands have for it.
fn differing(is: &Vnic, shall: &Vnic) -> &'static str {
    if is.mac != shall.mac {
        return "mac-address";
    }
    if is.vlan != shall.vlan || is.is_vlan != shall.is_vlan {
        return "vlan-id";
    }
    if is.over != shall.over { "link" } else { "cpus" }
}

fn busy(field: &str, why: &str, does: &str) -> ApiError {
    let allowed = format!("{why}, which would end; `firelane apply` {does} all the same");
    ApiError::new(Status::LinkBusy, field, "", allowed)
}
