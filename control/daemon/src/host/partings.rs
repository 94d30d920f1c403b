//! What links and flows had carried when they were deleted, or got another name.
//!
//! The history and accounting read counters once a second (`history/mod.rs`), and these end with their object; a new name has
//! them from its beginning on. `host.rs` notes here what they were at last.

use std::collections::BTreeMap;

use firelane_api::{LaneReceived, Traffic, UsageOf};
use firelane_model::{LinkName, Model};
use firelane_plan::{Action, Step};

use super::Inner;
use crate::history::{Parting, Subject};
use crate::stats;
use crate::works::Parted;

/// How many wait for the next reading; where nothing is recorded nobody takes them.
const PARTINGS_MAX: usize = 100_000;

/// What has ended since the last reading.
#[derive(Debug, Default)]
pub(super) struct Partings {
    /// All counters before the first that ended by the change that is being made: one reading does for all of its steps.
    counted: Option<Counted>,
    list: Vec<Parting>,
}

/// What everybody had carried, and how VNICs' part of it came in where they are joined.
#[derive(Debug)]
struct Counted {
    totals: BTreeMap<Subject, Traffic>,
    sent: BTreeMap<LinkName, Vec<LaneReceived>>,
}

impl Partings {
    /// Another change begins.
    pub(super) fn begin(&mut self) {
        self.counted = None;
    }

    pub(super) fn take(&mut self) -> Vec<Parting> {
        std::mem::take(&mut self.list)
    }

    fn note(&mut self, parting: Parting) {
        if self.list.len() < PARTINGS_MAX {
            self.list.push(parting);
        }
    }
}

impl Inner {
    /// Who ends by `step`; what he has carried is read.
    pub(super) fn before_parting(&mut self, step: &Step) -> Option<Subject> {
        let subject = subject_of(&step.action, &self.store.active)?;
        if self.partings.counted.is_none() {
            let (totals, sent) = (self.all_counted(), stats::sent_by_vnics(&self.works));
            self.partings.counted = Some(Counted { totals, sent });
        }
        Some(subject)
    }

    /// He has ended, and the model has him still. What he carried over an etherstub is the etherstub's as long as that is there.
    pub(super) fn part(&mut self, subject: Subject) {
        let counted = self.partings.counted.as_mut();
        let Some(Counted { totals, sent }) = counted else { return };
        let Some(total) = totals.remove(&subject) else { return };
        let vnic =
            self.store.active.vnics.get(subject.name.as_str()).filter(|_| subject.of == UsageOf::Links);
        let over = vnic.and_then(|it| it.over.link());
        if let Some(lower) = over.and_then(|over| self.works.links.get_mut(over)) {
            let lanes = sent.remove(subject.name.as_str()).unwrap_or_default();
            lower.parted = Parted {
                traffic: lower.parted.traffic.and(stats::turned(total)),
                lanes: stats::joined(lanes, &lower.parted.lanes),
            };
        }
        self.partings.note(Parting { subject, total, heir: None });
    }

    /// The link `from`, which had carried what `counted` says, is called `to` now, and its flows are that one's.
    pub(super) fn rename_counted(
        &mut self,
        counted: BTreeMap<Subject, Traffic>,
        from: &LinkName,
        to: &LinkName,
    ) {
        for (subject, total) in counted {
            let heir = match subject.of {
                UsageOf::Links if subject.name == from.as_str() => {
                    Subject { name: to.to_string(), ..subject.clone() }
                }
                UsageOf::Flows if subject.link == from.as_str() => {
                    Subject { link: to.to_string(), ..subject.clone() }
                }
                _ => continue,
            };
            self.partings.note(Parting { subject, total, heir: Some(heir) });
        }
    }

    pub(super) fn all_counted(&self) -> BTreeMap<Subject, Traffic> {
        stats::totals(&self.works, &self.store.active).into_iter().collect()
    }
}

/// Who ends.
fn subject_of(action: &Action, present: &Model) -> Option<Subject> {
    match action {
        Action::RemoveFlow(name) => {
            let link = present.flows.get(name)?.link.to_string();
            Some(Subject { of: UsageOf::Flows, name: name.to_string(), link })
        }
        Action::DeleteVnic(name) | Action::DeleteLink(name) | Action::DeleteEtherstub(name) => {
            Some(Subject { of: UsageOf::Links, name: name.to_string(), link: String::new() })
        }
        _ => None,
    }
}
