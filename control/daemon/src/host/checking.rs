//! Whether a change can be carried out, as far as that is known before anything of it is: a step that is refused half-way has ended by
//! then the connections of all that was taken down before it, and putting that back does not bring them back.
//!
//! Part of the host (`host.rs`): `firelane plan` shows what comes out of here, and each change goes through here first, so that the two
//! refuse the same.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

use firelane_api::ApiError;
use firelane_model::{Link, LinkKind, LinkName, Model};
use firelane_plan::{Action, Step, plan};

use super::Inner;
use crate::works::Done;
use crate::{fpm, memif, resources};

/// What the steps before one have done that it may count on.
#[derive(Default)]
struct Before<'a> {
    /// Interfaces that have ended, by name and namespace.
    ended: BTreeSet<(String, Option<PathBuf>)>,
    /// Links that are made, or made anew.
    made: BTreeSet<&'a LinkName>,
    /// How long the name of an interface that may be just ending is waited for.
    wait: Duration,
}

impl Inner {
    /// The steps from `present` to `next`.
    ///
    /// # Errors
    /// The first step that would be refused.
    /// Waits for so long for the name of an interface that may be just ending.
    pub(super) fn checked(
        &self,
        next: &Model,
        present: &Model,
        wait: Duration,
    ) -> Result<Vec<Step>, ApiError> {
        let steps = plan(next, present);
        let mut before = Before { wait, ..Before::default() };
        for step in &steps {
            self.check(step, next, present, &before).map_err(|error| error.of_step(step))?;
            self.note_done(step, &mut before);
        }
        Ok(steps)
    }

    fn check(&self, step: &Step, next: &Model, present: &Model, before: &Before<'_>) -> Done {
        resources::check(&self.works, step, present)?;
        let (ifname, namespace) = match &step.action {
            Action::CreateWire(_, wire) => return self.works.may_be_wired(wire, next, &before.made),
            Action::StartService(_, service) | Action::SetService(_, _, service) => {
                return self.works.check_service(service);
            }
            Action::SetFpm(_, _, Some(fpm)) => return fpm::check(fpm),
            Action::CreateLink(_, Link { kind: LinkKind::Memif(memif), .. }) => return memif::check(memif),
            Action::CreateVnic(name, vnic) => {
                if let Some(memif) = vnic.memif() {
                    return memif::check(memif);
                }
                let Some(tap) = vnic.tap() else { return Ok(()) };
                (tap.ifname(name), tap.namespace.as_ref())
            }
            Action::CreateLink(_, Link { kind: LinkKind::Tap(ifname), .. }) => (ifname.as_str(), None),
            _ => return Ok(()),
        };
        self.works.kernel.may_open(ifname, namespace, &before.ended, before.wait)
    }

    fn note_done<'a>(&self, step: &'a Step, before: &mut Before<'a>) {
        let works = &self.works;
        let device = match &step.action {
            Action::DeleteVnic(name) => works.vnics.get(name).and_then(|it| it.device.as_ref()),
            Action::DeleteLink(name) => works.links.get(name).and_then(|it| it.device.as_ref()),
            Action::CreateLink(name, _) => {
                before.made.insert(name);
                None
            }
            _ => None,
        };
        before.ended.extend(device.map(|it| (it.name(), it.place().1.cloned())));
    }
}

#[cfg(test)]
mod tests {
    use firelane_api::{Api, Status, Which};
    use firelane_model::{FLOW_KINDS, FLOW_RANGE_PAIRS, Flow, FlowName, Model};

    use super::super::partings::tests::{TEMPORARY, host};
    use crate::folder::tests::Scratch;

    /// The flow that a text says.
    fn flow(matching: &str) -> Flow {
        let matching = matching.parse().expect("a match");
        let link = "near0".parse().expect("a name");
        let mut model = Model::from_toml(
            "f.toml",
            "[etherstub.s0]\n[vnic.v0]\nover = 's0'\n\
            [flow.f0]\nlink = 'v0'\nmatch = { transport = 'tcp' }\n",
        )
        .expect("a model");
        Flow { link, matching, ..model.flows.remove("f0").expect("it is there") }
    }

    /// What lanes would refuse in the middle of a change is refused before anything has ended.
    #[test]
    fn flows_that_a_lane_has_no_room_for_are_no_configuration() {
        let (folder, runtime) = (Scratch::new(), tokio::runtime::Runtime::new().unwrap());
        let host = host(&folder, &runtime);
        let bare = host.model(Which::Active).unwrap();
        // Beside the one flow that there is already, as many kinds as there may be, in all of their ways.
        let kinds = (1..=32).flat_map(|length| {
            [format!("remote_ip=10.0.0.0/{length}"), format!("local_ip=10.0.0.0/{length},transport=tcp")]
        });
        let pairs =
            (1..=65).map(|port| format!("transport=tcp,local_port={port}-900,remote_port=1-{}", port + 900));
        for (all, allowed) in
            [(kinds.collect::<Vec<_>>(), FLOW_KINDS), (pairs.collect::<Vec<_>>(), FLOW_RANGE_PAIRS)]
        {
            let mut model = bare.clone();
            let mut last = None;
            for (nth, text) in all.iter().enumerate() {
                let name: FlowName = format!("g{nth:02}").parse().unwrap();
                last = model.flows.insert(name.clone(), flow(text)).or(Some(flow(text))).map(|it| (name, it));
            }
            let faults = model.validate();
            assert_eq!(faults.iter().map(|it| it.allowed.as_str()).collect::<Vec<_>>(), [allowed]);
            let told = host.plan(&model).unwrap_err();
            assert_eq!(told.allowed, allowed);
            // One less is taken by lanes, and what is one more to the model is one more to them.
            let (name, beyond) = last.unwrap();
            model.flows.remove(&name);
            host.apply(&model, TEMPORARY).unwrap();
            let told = host.lock().works.add_flow(&name, &beyond).unwrap_err();
            assert_eq!(told.status, Status::TooMany, "{told}");
            host.apply(&bare, TEMPORARY).unwrap();
        }
        // A prefix without a length is the same on either side.
        let mut model = bare.clone();
        for (name, text) in [("g1", "local_ip=::/0,transport=tcp"), ("g2", "remote_ip=::/0,transport=tcp")] {
            model.flows.insert(name.parse().unwrap(), flow(text));
        }
        let told = host.plan(&model).unwrap_err();
        assert!(told.allowed.contains("flow.g1.match has it already"), "{told}");
        host.shut_down();
    }
}
