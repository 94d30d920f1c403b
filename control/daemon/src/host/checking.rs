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
use crate::resources;
use crate::works::Done;

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
            Action::CreateVnic(name, vnic) => {
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
