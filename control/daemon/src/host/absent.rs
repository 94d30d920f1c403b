//! Interfaces that were not there at the start: a link whose NIC comes later gets it, with all that rests on it.
//!
//! Part of the host (`host.rs`), which looks once a second. Drivers load late, cards are plugged in, and udev renames them when the
//! daemon has started already; a link that has had its interface gets the next one of that name, too (`interfaces.rs`).

use std::mem;
use std::time::Instant;

use firelane_model::{LinkKind, Model};
use firelane_plan::{Action, Step};

use super::Inner;
use crate::interfaces::AGAIN;
use crate::netlink;

/// Whether the step makes a link on an interface that is there.
fn has_come(step: &Step) -> bool {
    match &step.action {
        Action::CreateLink(_, link) => match &link.kind {
            LinkKind::Nic(nic) => netlink::index_of(nic.ifname.as_str()).is_ok(),
            _ => false,
        },
        _ => false,
    }
}

/// The same step from what there is now: of a filter a part may hold.
fn from_now(step: Step, present: &Model) -> Step {
    match step.action {
        Action::SetFilter(name, from, to) => {
            let from = present.netstacks.get(&name).map_or(from, |it| it.packet_filter());
            Step { action: Action::SetFilter(name, from, to), ..step }
        }
        _ => step,
    }
}

impl Inner {
    /// Makes links whose interfaces have come, and then what could not be made without them.
    pub(super) fn look_at_absent(&mut self) {
        let is_due = |it: &(Step, String)| has_come(&it.0) && self.is_missing(&it.0);
        let waits = self.refused_at.is_some_and(|at| at.elapsed() < AGAIN);
        if waits || !self.failed.iter().any(is_due) {
            return;
        }
        self.refused_at = None;
        let (mut made, mut left) = (Vec::new(), Vec::new());
        for (step, why) in mem::take(&mut self.failed) {
            let rests = |on: &Step| step.rests_on(on);
            if !(has_come(&step) || made.iter().any(rests)) || !self.is_missing(&step) {
                left.push((step, why));
                continue;
            }
            let step = from_now(step, &self.store.active);
            match self.carry_out(&step) {
                Ok(()) => made.push(step),
                Err(error) => {
                    tracing::warn!("{step}: {error}");
                    self.refused_at = Some(Instant::now());
                    left.push((step, error.to_string()));
                }
            }
        }
        self.failed = left;
    }
}
