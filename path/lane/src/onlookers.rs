//! Ports that look on (`promisc-filtered=off`): who of their users is shown what is not for him.
//!
//! Called by `links.rs` for switches with such ports, and for no others; which frames that are is `path/switch`'s. A
//! device gets a copy, which passes the flows and limits of its VNIC as all that it gets: who looks on takes no more than
//! his share. A netstack would drop it, so only captures at its VNIC see it.

use core::mem;

use firelane_frame::Frame;
use firelane_switch::{Destination, L2};
use firelane_units::{LinkId, SwitchPortId};

use crate::common::Common;
use crate::control::Refusal;
use crate::links::Links;
use crate::message::{PortUser, Stage};

impl<D> Links<D> {
    /// Lets a VNIC's port look on, or no more.
    pub(crate) fn set_onlooker(&mut self, id: LinkId, looks_on: bool) -> Result<(), Refusal> {
        self.changed();
        let port = self.ports.get(id.0).ok_or("no such port")?;
        let link = self.switches.get_mut(port.over.0).ok_or("no such link")?;
        let is_station = link.switch.set_onlooker(port.at_switch, looks_on);
        is_station.then_some(()).ok_or("the port is no station's")
    }

    /// Whether any port of the switch that a VNIC is attached to looks on.
    pub(crate) fn has_onlookers(&self, vnic: LinkId) -> bool {
        let port = self.ports.get(vnic.0);
        let link = port.and_then(|port| self.switches.get(port.over.0));
        link.is_some_and(|link| link.switch.has_onlookers())
    }

    /// Shows a frame, whose way is decided, to those that look on.
    pub(crate) fn show(
        &mut self,
        common: &mut Common<D>,
        over: LinkId,
        sent: (SwitchPortId, &L2, Destination),
        frame: &Frame,
    ) {
        let Self { switches, ports, copies, .. } = self;
        let Some(link) = switches.get_mut(over.0) else { return };
        let mut copies = mem::take(copies);
        let Common { pools, counters, taps, .. } = common;
        let places = &link.ports;
        let wants = |at: SwitchPortId| {
            let port = places.get(at.index()).copied().flatten().and_then(|port| ports.get(port.0));
            port.is_some_and(|port| match port.user {
                PortUser::Driver { .. } => true,
                _ => taps.want_port(port.id),
            })
        };
        let drops = &mut counters.drops;
        let shown = link.switch.show(sent, frame, pools, drops, wants, |at, copy| copies.push((at, copy)));
        counters.copied += shown.missed as u64;
        for (at, copy) in copies.drain(..) {
            let to = self.switches.get(over.0).and_then(|link| link.port(at));
            let user = to.and_then(|to| self.ports.get(to.0)).map(|port| port.user);
            match (to, user) {
                (Some(to), Some(PortUser::Driver { .. })) => {
                    common.counters.copied += 1;
                    self.resume(common, Stage::In, to, copy);
                }
                (Some(to), _) => {
                    common.taps.see_beside(common.now, to, &copy);
                    common.pools.put(copy);
                }
                (None, _) => common.pools.put(copy),
            }
        }
        self.copies = copies;
    }
}
