//! A step's effect on the record of what is present.

use firelane_model::{Model, Netstack, NetstackName};

use crate::{Action, Step};

/// Replays `step` on `present`. A step of a plan made for another model may name what is not there; it
/// then changes nothing.
pub fn apply_to_model(present: &mut Model, step: &Step) {
    match step.action.clone() {
        Action::RemoveRoute(netstack, route) => {
            change(present, &netstack, |it| it.routes.remove(&route));
        }
        Action::RemoveAddress(netstack, name) => {
            change(present, &netstack, |it| it.addresses.remove(&name));
        }
        Action::DeleteVnic(name) => drop(present.vnics.remove(&name)),
        Action::DeleteEtherstub(name) => drop(present.etherstubs.remove(&name)),
        Action::DeleteLink(name) => drop(present.links.remove(&name)),
        Action::DeleteNetstack(name) => drop(present.netstacks.remove(&name)),
        Action::SetDaemon(from, to) => present.daemon.change(&from, &to),
        Action::CreateNetstack(name, cpus, tunables) => {
            present.netstacks.insert(name, Netstack { cpus, tunables, ..Netstack::default() });
        }
        Action::SetCpus(name, _, cpus) => change(present, &name, |it| it.cpus = cpus),
        Action::SetTunables(name, _, tunables) => {
            change(present, &name, |it| it.tunables = tunables);
        }
        Action::SetPrograms(name, _, programs) => {
            change(present, &name, |it| it.programs = programs);
        }
        Action::SetFpm(name, _, fpm) => change(present, &name, |it| it.fpm = fpm),
        Action::CreateLink(name, link) | Action::SetLink(name, _, link) => {
            drop(present.links.insert(name, link))
        }
        Action::CreateEtherstub(name, stub) | Action::SetEtherstub(name, _, stub) => {
            present.etherstubs.insert(name, stub);
        }
        Action::CreateVnic(name, vnic) | Action::SetVnic(name, _, vnic) => {
            drop(present.vnics.insert(name, vnic))
        }
        Action::SetFilter(name, _, filter) => {
            change(present, &name, |it| it.set_packet_filter(filter));
        }
        Action::SetInterface(netstack, name, _, interface) => {
            change(present, &netstack, |it| match interface.is_default() {
                true => it.interfaces.remove(&name),
                false => it.interfaces.insert(name, interface),
            });
        }
        Action::AddAddress(netstack, name, address) | Action::SetAddress(netstack, name, _, address) => {
            change(present, &netstack, |it| it.addresses.insert(name, address));
        }
        Action::AddRoute(netstack, route) => {
            change(present, &netstack, |it| {
                it.same_way(route).map(|before| it.routes.remove(&before));
                it.routes.insert(route)
            });
        }
        other => apply_to_uppers(present, other),
    }
}

/// Replays what is done to objects that rest on others.
fn apply_to_uppers(present: &mut Model, action: Action) {
    match action {
        Action::StopService(name) => drop(present.services.remove(&name)),
        Action::StartService(name, service) | Action::SetService(name, _, service) => {
            present.services.insert(name, service);
        }
        Action::RemoveFlow(name) => drop(present.flows.remove(&name)),
        Action::AddFlow(name, flow) | Action::SetFlow(name, _, flow) => {
            drop(present.flows.insert(name, flow))
        }
        Action::DeleteWire(name) => drop(present.wires.remove(&name)),
        Action::CreateWire(name, wire) | Action::SetWire(name, _, wire) => {
            drop(present.wires.insert(name, wire))
        }
        _ => {}
    }
}

fn change<R>(model: &mut Model, netstack: &NetstackName, with: impl FnOnce(&mut Netstack) -> R) {
    if let Some(netstack) = model.netstacks.get_mut(netstack) {
        with(netstack);
    }
}
