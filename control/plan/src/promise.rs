//! The order in which guarantees (`minbw`) change, so that none of the steps promises what a limit above does not have: first all
//! are lowered that shall be less, then limits change, and then the others are raised.
//!
//! Between the first and the last of these, every promise is the lesser of what it was and what it shall be, so any limit that
//! was enough or will be is enough.

use firelane_model::{Flow, Model, Vnic};
use firelane_units::BitRate;

use crate::diff::Plan;
use crate::{Action, Effect};

/// The lesser promise; nothing is less than any.
fn lesser(one: Option<BitRate>, other: Option<BitRate>) -> Option<BitRate> {
    one.zip(other).map(|(one, other)| one.min(other))
}

/// The VNIC after [`Plan::lower_promises`].
pub(crate) fn lowered_vnic(is: &Vnic, shall: &Vnic) -> Vnic {
    Vnic { minbw: lesser(is.minbw, shall.minbw), ..is.clone() }
}

/// The flow after it.
pub(crate) fn lowered_flow(is: &Flow, shall: &Flow) -> Flow {
    Flow { minbw: lesser(is.minbw, shall.minbw), ..is.clone() }
}

/// The VNIC before [`Plan::raise_promises`]: as it shall be, unless a limit below it has to grow first.
pub(crate) fn before_raise(plan: &Plan<'_>, shall: &Vnic, is: &Vnic) -> Vnic {
    let limit = |model: &Model| {
        let over = shall.over.link()?;
        let link = model.links.get(over).map(|link| link.maxbw);
        link.or_else(|| model.etherstubs.get(over).map(|stub| stub.maxbw))
    };
    let is_final = limit(plan.wanted) == limit(plan.present);
    let minbw = if is_final { shall.minbw } else { lesser(is.minbw, shall.minbw) };
    Vnic { minbw, ..shall.clone() }
}

impl Plan<'_> {
    /// Lowers what shall be less.
    pub(crate) fn lower_promises(&mut self) {
        for (name, is) in &self.present.flows {
            let Some(shall) = self.wanted.flows.get(name).filter(|_| !self.torn.flow(name, is)) else {
                continue;
            };
            let lowered = lowered_flow(is, shall);
            if lowered != *is {
                self.push(Effect::Live, Action::SetFlow(name.clone(), is.clone(), lowered));
            }
        }
        for (name, is, shall) in self.kept_vnics() {
            let lowered = lowered_vnic(is, shall);
            if lowered != *is {
                self.push(Effect::Live, Action::SetVnic(name.clone(), is.clone(), lowered));
            }
        }
    }

    /// Raises what has waited for limits to change.
    pub(crate) fn raise_promises(&mut self) {
        for (name, is, shall) in self.kept_vnics() {
            let before = before_raise(self, shall, is);
            if before != *shall {
                self.push(Effect::Live, Action::SetVnic(name.clone(), before, shall.clone()));
            }
        }
    }
}
