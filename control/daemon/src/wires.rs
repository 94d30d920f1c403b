//! The model's wires in the engine: conditions in the driver's words, and what each direction has counted.
//!
//! Called by `works.rs` for steps, and by `host.rs` for counters.

use std::collections::BTreeSet;

use firelane::{Chance, Conditions as Said, Loss, Reorder, WireCounters};
use firelane_api::{ApiError, Status, WireCounts, WireStats};
use firelane_model::{Conditions, LinkName, Model, Share, Wire};
use firelane_plan::Action;
use firelane_units::Bytes;

use crate::refusal::refused;
use crate::works::Works;

/// What is under way in one direction, waiting or flying, takes no more memory of the daemon.
const FLIGHT_MAX: Bytes = Bytes(256 << 20);
/// How many frames pass one that is overtaken.
const LATER: u32 = 3;
/// It goes on after this time though fewer have passed: on a quiet wire nobody else may come.
const OVERTAKEN_AT_MOST: core::time::Duration = core::time::Duration::from_millis(50);

/// A direction's conditions in the driver's words.
fn said(it: &Conditions) -> Said {
    let chance = |share: Share| Chance::of(share.probability());
    let reorder = match it.reorder == Share::default() {
        true => Reorder::None,
        false => Reorder::Positions { chance: chance(it.reorder), later: LATER, at_most: OVERTAKEN_AT_MOST },
    };
    let loss = match it.loss == Share::default() {
        true => Loss::None,
        false => Loss::Random(chance(it.loss)),
    };
    Said {
        rate: it.rate,
        queue: Bytes(it.queue.0.into()),
        flight: FLIGHT_MAX,
        delay: it.delay.duration(),
        jitter: it.jitter.duration(),
        loss,
        reorder,
        duplicate: chance(it.duplicate),
        corrupt: chance(it.corrupt),
        ..Said::default()
    }
}

fn both(wire: &Wire) -> [Said; 2] {
    [said(&wire.forth), said(&wire.back)]
}

fn counts(it: WireCounters) -> WireCounts {
    WireCounts {
        sent: it.sent,
        bytes: it.sent_bytes,
        delivered: it.delivered,
        lost: it.dropped_loss,
        full: it.dropped_full,
        long: it.dropped_long,
        unbuffered: it.dropped_buffer,
        doubled: it.duplicated,
        overtaken: it.reordered,
        corrupted: it.corrupted,
        queued: it.queued,
    }
}

impl Works {
    /// Carries out a step of a wire; `present` is the model before it.
    pub(crate) fn step_of_wire(&mut self, action: &Action, present: &Model) -> Result<(), ApiError> {
        let absent = |name: &LinkName| ApiError::new(Status::NotFound, "wire", name, "");
        match action {
            Action::CreateWire(name, wire) => self.create_wire(name, wire, present),
            Action::SetWire(name, _, to) => {
                self.wires.get(name).ok_or_else(|| absent(name))?.set(both(to));
                Ok(())
            }
            Action::DeleteWire(name) => {
                let wire = self.wires.get(name).ok_or_else(|| absent(name))?;
                self.engine.remove_wire(wire).map_err(refused)?;
                self.wires.remove(name);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn create_wire(&mut self, name: &LinkName, wire: &Wire, present: &Model) -> Result<(), ApiError> {
        let absent = |end: &LinkName| ApiError::new(Status::LinkInvalid, "ends", end, "");
        self.may_be_wired(wire, present, &BTreeSet::new())?;
        let known = |end: &LinkName| {
            let vnic = || self.vnics.get(end).map(|it| it.id);
            self.links.get(end).map(|it| it.id).or_else(vnic).ok_or_else(|| absent(end))
        };
        let ends = [known(&wire.ends[0])?, known(&wire.ends[1])?];
        let mtu = present.wire_mtu(wire).ok_or_else(|| absent(&wire.ends[0]))?;
        let made = self.engine.add_wire(ends, mtu, wire.seed.map(u64::from), both(wire));
        self.wires.insert(name.clone(), made.map_err(refused)?);
        Ok(())
    }

    /// What became of the frames of every wire.
    pub(crate) fn wire_stats(&self) -> Vec<WireStats> {
        let stats = self.wires.iter().map(|(name, wire)| {
            let [forth, back] = wire.counters().map(counts);
            WireStats { name: name.clone(), forth, back }
        });
        stats.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conditions_become_the_drivers() {
        let mut it = Conditions::default();
        assert_eq!(said(&it), Said { flight: FLIGHT_MAX, ..Said::default() });
        for (name, value) in
            [("rate", "10M"), ("delay", "20ms"), ("loss", "50%"), ("reorder", "25%"), ("queue", "9000")]
        {
            it.set(name, value).unwrap();
        }
        let said = said(&it);
        assert_eq!(said.rate.map(|it| it.bps()), Some(10_000_000));
        assert_eq!((said.delay.as_millis(), said.queue), (20, Bytes(9000)));
        assert_eq!(said.loss, Loss::Random(Chance::of(0.5)));
        assert!(
            matches!(said.reorder, Reorder::Positions { chance, later: 3, .. } if chance == Chance::of(0.25))
        );
    }
}
