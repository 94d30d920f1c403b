//! What of a model a step is about, and whether it would change anything there.
//!
//! Asked by the daemon of steps that failed, as often as it tells of them: the rest of a large model is not looked at for that.

use std::collections::BTreeMap;

use firelane_model::{FlowName, LinkName, Model, Netstack, NetstackName, Route, ServiceName};

use crate::{Action, Step, apply_to_model};

/// The object of a step. Links of every class have their names together.
enum Object<'a> {
    Daemon,
    Netstack(&'a NetstackName),
    /// One of many.
    Route(&'a NetstackName, Route),
    Link(&'a LinkName),
    Flow(&'a FlowName),
    Service(&'a ServiceName),
}

impl Step {
    /// Whether `model` would be another one after it.
    pub fn would_change(&self, model: &Model) -> bool {
        let before = part(model, &object(&self.action));
        let mut after = before.clone();
        apply_to_model(&mut after, self);
        after != before
    }
}

fn object(action: &Action) -> Object<'_> {
    match action {
        Action::SetDaemon(..) => Object::Daemon,
        Action::StopService(name) | Action::StartService(name, _) | Action::SetService(name, ..) => {
            Object::Service(name)
        }
        Action::RemoveFlow(name) | Action::AddFlow(name, _) | Action::SetFlow(name, ..) => Object::Flow(name),
        Action::DeleteVnic(name)
        | Action::DeleteWire(name)
        | Action::DeleteEtherstub(name)
        | Action::DeleteLink(name)
        | Action::CreateLink(name, _)
        | Action::CreateEtherstub(name, _)
        | Action::CreateWire(name, _)
        | Action::CreateVnic(name, _)
        | Action::SetLink(name, ..)
        | Action::SetEtherstub(name, ..)
        | Action::SetWire(name, ..)
        | Action::SetVnic(name, ..) => Object::Link(name),
        Action::RemoveRoute(name, route) | Action::AddRoute(name, route) => Object::Route(name, *route),
        Action::RemoveAddress(name, _)
        | Action::DeleteNetstack(name)
        | Action::CreateNetstack(name, ..)
        | Action::SetCpus(name, ..)
        | Action::SetTunables(name, ..)
        | Action::SetPrograms(name, ..)
        | Action::SetFpm(name, ..)
        | Action::SetFilter(name, ..)
        | Action::SetInterface(name, ..)
        | Action::SetAddress(name, ..)
        | Action::AddAddress(name, ..) => Object::Netstack(name),
    }
}

/// The object alone.
fn part(model: &Model, object: &Object<'_>) -> Model {
    let mut part = Model::default();
    match object {
        Object::Daemon => part.daemon = model.daemon.clone(),
        Object::Netstack(name) => part.netstacks = one(&model.netstacks, name),
        Object::Route(name, route) => {
            let with = |it: &Netstack| Netstack {
                routes: it.same_way(*route).into_iter().collect(),
                ..Netstack::default()
            };
            let its = model.netstacks.get(*name).map(|it| ((*name).clone(), with(it)));
            part.netstacks = its.into_iter().collect();
        }
        Object::Flow(name) => part.flows = one(&model.flows, name),
        Object::Service(name) => part.services = one(&model.services, name),
        Object::Link(name) => {
            part.links = one(&model.links, name);
            part.etherstubs = one(&model.etherstubs, name);
            part.vnics = one(&model.vnics, name);
            part.wires = one(&model.wires, name);
        }
    }
    part
}

fn one<K: Ord + Clone, V: Clone>(all: &BTreeMap<K, V>, name: &K) -> BTreeMap<K, V> {
    all.get(name).map(|it| (name.clone(), it.clone())).into_iter().collect()
}
