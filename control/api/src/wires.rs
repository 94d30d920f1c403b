//! Wires: what is answered of them, and what changes do to a model.
//!
//! Conditions stand here as commands spell them, each with its name, so that whoever shows them needs no table of them.

use std::collections::BTreeMap;

use firelane_model::{Conditions, LinkName, Model, Wire, WireSide, WiringFault};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{ApiError, PropChange, Status};

/// A wire.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct WireInfo {
    /// Its name.
    pub name: LinkName,
    /// The link at its first end.
    pub from: LinkName,
    /// The link at its second end.
    pub to: LinkName,
    /// What its faults are drawn from, if the configuration says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seed: Option<u32>,
    /// The conditions from the first end to the second, by name.
    pub forth: BTreeMap<String, String>,
    /// The conditions from the second end to the first, by name.
    pub back: BTreeMap<String, String>,
}

impl WireInfo {
    pub(crate) fn of(name: &LinkName, wire: &Wire) -> Self {
        let words = |it: &Conditions| it.words().map(|(name, value)| (name.to_owned(), value)).collect();
        let [from, to] = wire.ends.clone();
        let (forth, back) = (words(&wire.forth), words(&wire.back));
        Self { name: name.clone(), from, to, seed: wire.seed, forth, back }
    }

    /// One direction's conditions.
    pub fn side(&self, side: WireSide) -> &BTreeMap<String, String> {
        match side {
            WireSide::Forth => &self.forth,
            WireSide::Back => &self.back,
        }
    }
}

/// What became of the frames of one direction. `sent + doubled = delivered + lost + full + long + unbuffered + queued`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct WireCounts {
    /// Frames that went in.
    pub sent: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Frames that came out.
    pub delivered: u64,
    /// Frames that were lost by chance.
    pub lost: u64,
    /// Frames that found the queue full.
    pub full: u64,
    /// Frames that were longer than the wire carries.
    pub long: u64,
    /// Frames that found no buffer at the far end.
    pub unbuffered: u64,
    /// Second copies.
    pub doubled: u64,
    /// Frames that were overtaken.
    pub overtaken: u64,
    /// Frames with a wrong bit.
    pub corrupted: u64,
    /// Frames that wait or are on their way.
    pub queued: u64,
}

impl WireCounts {
    /// What came since it was `before`. Counters begin again when a wire is made anew.
    #[must_use]
    pub fn since(self, before: Self) -> Self {
        let less = |now: u64, before: u64| now.checked_sub(before).unwrap_or(now);
        Self {
            sent: less(self.sent, before.sent),
            bytes: less(self.bytes, before.bytes),
            delivered: less(self.delivered, before.delivered),
            lost: less(self.lost, before.lost),
            full: less(self.full, before.full),
            long: less(self.long, before.long),
            unbuffered: less(self.unbuffered, before.unbuffered),
            doubled: less(self.doubled, before.doubled),
            overtaken: less(self.overtaken, before.overtaken),
            corrupted: less(self.corrupted, before.corrupted),
            // A level, not a count.
            queued: self.queued,
        }
    }
}

/// A wire's counters since it was made.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct WireStats {
    /// The wire's name.
    pub name: LinkName,
    /// From the first end to the second.
    pub forth: WireCounts,
    /// From the second end to the first.
    pub back: WireCounts,
}

impl WireStats {
    /// One direction's counters.
    pub fn side(&self, side: WireSide) -> WireCounts {
        match side {
            WireSide::Forth => self.forth,
            WireSide::Back => self.back,
        }
    }
}

/// Body: makes a wire.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateWire {
    /// Its name.
    pub name: LinkName,
    /// Its ends, and what it is like.
    pub wire: Wire,
    /// Whether it is gone after the next start.
    #[serde(default)]
    pub temporary: bool,
}

/// Body: changes what a wire is like.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ModifyWire {
    /// In which direction; both unless said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub side: Option<WireSide>,
    /// The conditions' new values as commands spell them (`"delay": "20ms"`); null resets.
    pub props: BTreeMap<String, Option<String>>,
    /// Whether the values are gone after the next start.
    #[serde(default)]
    pub temporary: bool,
}

/// Sets or resets one condition of one direction, or of both.
///
/// # Errors
/// There is no such condition, or it cannot have that value.
pub fn set_wire_prop(wire: &mut Wire, side: Option<WireSide>, change: &PropChange) -> Result<(), ApiError> {
    let sides = WireSide::ALL.into_iter().filter(|it| side.is_none_or(|side| side == *it));
    for side in sides {
        let usual = || {
            let words = Conditions::default();
            let found = words.words().find(|(name, _)| *name == change.name);
            found.map(|(_, value)| value).unwrap_or_default()
        };
        let value = change.value.clone().unwrap_or_else(usual);
        wire.side_mut(side).set(&change.name, &value).map_err(|allowed| match allowed {
            Some(allowed) => ApiError::new(Status::BadValue, &change.name, &value, allowed),
            None => {
                let names: Vec<_> = Conditions::names().collect();
                ApiError::new(Status::BadProperty, &change.name, "", names.join(", "))
            }
        })?;
    }
    Ok(())
}

fn refusal(fault: WiringFault) -> ApiError {
    let (end, why) = (fault.end().clone(), fault.to_string());
    match fault {
        WiringFault::Unknown(_) => ApiError::new(Status::LinkInvalid, "ends", end, why),
        WiringFault::Tunnel(_) | WiringFault::Shared(_) => {
            ApiError::new(Status::NotSupported, "ends", end, why)
        }
        WiringFault::Used(_) => ApiError::new(Status::LinkBusy, "ends", end, why),
        WiringFault::Taken(_, wire) => ApiError::new(Status::LinkBusy, "wire", wire, ""),
        WiringFault::Loop(_) => ApiError::new(Status::BadArg, "ends", end, why),
    }
}

pub(crate) fn create(model: &mut Model, name: &LinkName, wire: &Wire) -> Result<(), ApiError> {
    if model.wires.contains_key(name) {
        return Err(Status::Exists.into());
    }
    model.check_wiring(wire).map_err(refusal)?;
    model.wires.insert(name.clone(), wire.clone());
    Ok(())
}

pub(crate) fn delete(model: &mut Model, name: &LinkName) -> Result<(), ApiError> {
    model.wires.remove(name).map(drop).ok_or_else(|| Status::NotFound.into())
}

pub(crate) fn modify(
    model: &mut Model,
    name: &LinkName,
    side: Option<WireSide>,
    changes: &[PropChange],
) -> Result<(), ApiError> {
    let wire = model.wires.get_mut(name).ok_or(Status::NotFound)?;
    changes.iter().try_for_each(|change| set_wire_prop(wire, side, change))
}

/// A link that is called otherwise from here on keeps its wire.
pub(crate) fn rename_end(model: &mut Model, from: &LinkName, to: &LinkName) {
    let ends = model.wires.values_mut().flat_map(|wire| &mut wire.ends);
    ends.filter(|end| *end == from).for_each(|end| *end = to.clone());
}
