//! Which factory address each VNIC gets that asks for one.
//!
//! Called by the daemon and by [`crate::Stub`] with every configuration that is about to come into force: what was left open is
//! settled before a plan is made, so that the plan tells the slot, and the next start has the same.

use firelane_model::{
    FactoryError, FactoryMac, FactorySlot, Link, LinkKind, LinkName, Mac, Model, Over, Vnic, choose_slot,
};
use firelane_units::MacAddr;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{ApiError, Status, Store};

/// An address that a device has from its factory.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct FactorySlotInfo {
    /// Its slot, from 1.
    pub slot: u16,
    /// The address.
    pub macaddress: String,
    /// The number of the device's virtual function that has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub function: Option<u32>,
}

impl From<FactoryMac> for FactorySlotInfo {
    fn from(it: FactoryMac) -> Self {
        let FactoryMac { slot, mac, function } = it;
        Self { slot: slot.number(), macaddress: mac.to_string(), function }
    }
}

impl FactorySlotInfo {
    /// What it says, if it says it well.
    pub fn mac(&self) -> Option<FactoryMac> {
        let mac: MacAddr = self.macaddress.parse().ok()?;
        Some(FactoryMac { slot: FactorySlot::new(self.slot)?, mac, function: self.function })
    }
}

impl From<FactoryError> for ApiError {
    fn from(error: FactoryError) -> Self {
        match error {
            FactoryError::NotSupported => Status::NoFactoryMac.into(),
            FactoryError::AllUsed => Status::AllFactoryMacsUsed.into(),
            FactoryError::Used => Status::FactoryMacUsed.into(),
            FactoryError::NoSuchSlot(known) => {
                let known: Vec<_> = known.iter().map(ToString::to_string).collect();
                ApiError::new(Status::FactorySlotInvalid, "slot", "", known.join(", "))
            }
        }
    }
}

/// The slot that the VNIC `name` of `model` gets, whose link's device has `slots`.
///
/// # Errors
/// It gets none.
pub fn slot_of(
    model: &Model,
    name: &LinkName,
    vnic: &Vnic,
    wanted: Option<FactorySlot>,
    slots: &[FactoryMac],
) -> Result<FactorySlot, ApiError> {
    let beside: Vec<_> =
        model.vnics.iter().filter(|(other, it)| *other != name && it.over == vnic.over).collect();
    let is_used = |slot: &FactoryMac| {
        beside.iter().any(|(_, it)| match it.mac {
            Mac::Factory(its) => its == Some(slot.slot),
            // In another VLAN it is another station.
            Mac::Fixed(mac) => mac == slot.mac && it.vlan == vnic.vlan,
            Mac::Auto | Mac::Random | Mac::Prefixed(_) => false,
        })
    };
    choose_slot(slots, wanted, is_used).map_err(|error| {
        let error = ApiError::from(error);
        let value = wanted.map(|it| it.to_string()).unwrap_or_default();
        if error.field.is_empty() { error } else { ApiError { value, ..error } }
    })
}

impl Store {
    /// Gives a slot to each VNIC of the active configuration that asks for any, and refuses those that get none. `before` is
    /// what is in force now, whose slots stay; `slots` are those of a link's device.
    ///
    /// # Errors
    /// A VNIC that is not in force already gets no slot; the others are settled all the same.
    pub fn settle(
        &mut self,
        before: &Model,
        slots: &dyn Fn(&LinkName, &Link) -> Vec<FactoryMac>,
    ) -> Result<(), ApiError> {
        let of = |model: &Model, vnic: &Vnic| {
            let Over::Link(over) = &vnic.over else { return Vec::new() };
            let link = model.links.get_key_value(over);
            let nic = link.filter(|(_, link)| matches!(link.kind, LinkKind::Nic(_)));
            nic.map(|(name, link)| slots(name, link)).unwrap_or_default()
        };
        let had = |name: &LinkName, vnic: &Vnic| {
            let is = before.vnics.get(name).filter(|is| is.over == vnic.over)?;
            let Mac::Factory(slot) = is.mac else { return None };
            slot
        };
        let asking = self.active.vnics.iter().filter_map(|(name, vnic)| match vnic.mac {
            Mac::Factory(wanted) => Some((name.clone(), wanted)),
            _ => None,
        });
        let mut asking: Vec<_> = asking.collect();
        // Who has a slot keeps it; who names one is served before those to whom any will do.
        asking.retain(|(name, wanted)| {
            let vnic = self.active.vnics.get_mut(name);
            let kept = vnic.and_then(|vnic| {
                let slot = had(name, vnic).filter(|slot| wanted.is_none_or(|wanted| wanted == *slot))?;
                vnic.mac = Mac::Factory(Some(slot));
                Some(())
            });
            kept.is_none()
        });
        asking.sort_by_key(|(_, wanted)| wanted.is_none());
        let mut refused = self.reserved(before, &of);
        for (name, wanted) in asking {
            let Some(vnic) = self.active.vnics.get(&name) else { continue };
            match slot_of(&self.active, &name, vnic, wanted, &of(&self.active, vnic)) {
                Ok(slot) => {
                    if let Some(vnic) = self.active.vnics.get_mut(&name) {
                        vnic.mac = Mac::Factory(Some(slot));
                    }
                }
                Err(error) => refused = refused.or(Some(error)),
            }
        }
        self.keep_slots();
        refused.map_or(Ok(()), Err)
    }

    /// Why one of the VNICs that are not in force yet cannot have the address that it names: somebody has it in a slot.
    fn reserved(&self, before: &Model, slots: &dyn Fn(&Model, &Vnic) -> Vec<FactoryMac>) -> Option<ApiError> {
        let is_new = |name: &LinkName, vnic: &Vnic| {
            before
                .vnics
                .get(name)
                .is_none_or(|is| (&is.over, is.mac, is.vlan) != (&vnic.over, vnic.mac, vnic.vlan))
        };
        let named = self.active.vnics.iter().filter_map(|(name, vnic)| match vnic.mac {
            Mac::Fixed(mac) if is_new(name, vnic) => Some((vnic, mac)),
            _ => None,
        });
        named.into_iter().find_map(|(vnic, mac)| {
            let slot = slots(&self.active, vnic).into_iter().find(|slot| slot.mac == mac)?;
            if slot.function.is_some() {
                return Some(ApiError::new(Status::MacReserved, "mac", mac, ""));
            }
            let has_it = |it: &Vnic| {
                (&it.over, it.vlan, it.mac) == (&vnic.over, vnic.vlan, Mac::Factory(Some(slot.slot)))
            };
            let is_had = self.active.vnics.values().any(has_it);
            is_had.then(|| ApiError::new(Status::MacInUse, "mac", mac, ""))
        })
    }

    /// What is settled returns at the next start, unless one has the slot then that is not in force now.
    fn keep_slots(&mut self) {
        let asks = |(name, it): (&LinkName, &Vnic)| (it.mac == Mac::Factory(None)).then(|| name.clone());
        let asking: Vec<_> = self.persistent.vnics.iter().filter_map(asks).collect();
        for name in asking {
            let is_settled = |it: &&Vnic| matches!(it.mac, Mac::Factory(Some(_)));
            let Some(settled) = self.active.vnics.get(&name).filter(is_settled) else { continue };
            let all = &mut self.persistent.vnics;
            let is_had = all.values().any(|it| (&it.over, it.mac) == (&settled.over, settled.mac));
            if let Some(own) = all.get_mut(&name).filter(|it| it.over == settled.over && !is_had) {
                own.mac = settled.mac;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn store(vnics: &str) -> Store {
        let text = format!(
            "[etherstub.stub0]\n[link.net0]\nkind = 'nic'\nifname = 'eth7'\n[link.net1]\nkind = 'tap'\nifname = 'tap7'\n{vnics}"
        );
        Store::new(Model::from_toml("f.toml", &text).unwrap())
    }

    fn vnic(name: &str, mac: &str) -> String {
        format!("[vnic.{name}]\nover = 'net0'\nmac = '{mac}'\n")
    }

    fn slots(count: u8, functions: u8) -> impl Fn(&LinkName, &Link) -> Vec<FactoryMac> {
        move |name: &LinkName, _: &Link| {
            assert_eq!(name.as_str(), "net0", "who has no NIC is not asked");
            let slot = |n: u8| FactoryMac {
                slot: FactorySlot::new(n.into()).unwrap(),
                mac: MacAddr([0, 1, 2, 3, 4, n]),
                function: (n > count).then(|| u32::from(n - count - 1)),
            };
            (1..=count + functions).map(slot).collect()
        }
    }

    /// Who has which address afterwards, or why not.
    fn settled(before: &Store, mut after: Store, count: u8) -> Result<Vec<String>, String> {
        after
            .settle(&before.active, &slots(count, 1))
            .map_err(|error| format!("{}{}", error.status.text(), error.detail()))?;
        assert_eq!(after.active, after.persistent);
        let shown = |(name, vnic): (&LinkName, &Vnic)| match vnic.mac {
            Mac::Factory(Some(slot)) => format!("{name}:{slot}"),
            other => format!("{name}:{other:?}"),
        };
        Ok(after.active.vnics.iter().map(shown).collect())
    }

    #[test]
    fn who_names_a_slot_comes_before_who_takes_any_and_who_has_one_keeps_it() {
        let none = store("");
        let two = [vnic("a0", "factory"), vnic("b0", "factory/1")].concat();
        assert_eq!(settled(&none, store(&two), 2), Ok(vec!["a0:2".to_owned(), "b0:1".to_owned()]));
        let mut first = store(&vnic("b0", "factory"));
        first.settle(&none.active, &slots(2, 0)).unwrap();
        // The same file again changes nothing, though another name comes before.
        let both = [vnic("a0", "factory"), vnic("b0", "factory")].concat();
        assert_eq!(settled(&first, store(&both), 2), Ok(vec!["a0:2".to_owned(), "b0:1".to_owned()]));
        // What was had is free once its VNIC is gone.
        assert_eq!(settled(&first, store(&vnic("a0", "factory")), 1), Ok(vec!["a0:1".to_owned()]));
    }

    #[test]
    fn a_slot_is_not_kept_for_the_next_start_that_another_has_then() {
        let none = store("");
        let mut next = store(&vnic("a0", "factory/1"));
        // One that was deleted until the next start returns with its slot.
        next.active.vnics.clear();
        let b0 = store(&vnic("b0", "factory")).active.vnics.remove("b0").unwrap();
        for model in [&mut next.active, &mut next.persistent] {
            model.vnics.insert("b0".parse().unwrap(), b0.clone());
        }
        next.settle(&none.active, &slots(1, 0)).unwrap();
        assert_eq!(next.active.vnics["b0"].mac, Mac::Factory(FactorySlot::new(1)));
        assert_eq!(next.persistent.vnics["b0"].mac, Mac::Factory(None));
        assert_eq!(next.persistent.validate(), []);
    }

    #[test]
    fn every_refusal_has_the_originals_words() {
        let none = store("");
        let taken = [vnic("a0", "0:1:2:3:4:1"), vnic("b0", "factory")].concat();
        for (vnics, count, want) in [
            (vnic("a0", "factory/9"), 1, "invalid factory MAC address slot (slot=9: 1, 2)"),
            (vnic("a0", "factory/2"), 1, "factory MAC address slot already used"),
            (taken, 1, "all factory MAC address slots are in use"),
            (
                [vnic("a0", "factory"), vnic("b0", "factory")].concat(),
                1,
                "all factory MAC address slots are in use",
            ),
        ] {
            assert_eq!(settled(&none, store(&vnics), count), Err(want.to_owned()), "{vnics}");
        }
        let taken = |mac: &str| [vnic("a0", "factory/1"), vnic("b0", mac)].concat();
        let refused = settled(&none, store(&taken("0:1:2:3:4:1")), 1);
        assert_eq!(refused, Err("MAC address is already in use (mac=00:01:02:03:04:01)".to_owned()));
        let refused = settled(&none, store(&taken("0:1:2:3:4:2")), 1);
        let reserved = "MAC address reserved for use by underlying data-link (mac=00:01:02:03:04:02)";
        assert_eq!(refused, Err(reserved.to_owned()));
        let elsewhere = taken("0:1:2:3:4:1").replace("mac = '0:1", "vlan = 7\nmac = '0:1");
        assert!(settled(&none, store(&elsewhere), 1).is_ok(), "in a VLAN of its own it is another station");
        let mut alone = store(&vnic("a0", "factory"));
        let refused = alone.settle(&none.active, &|_, _| Vec::new()).unwrap_err();
        assert_eq!(refused.status, Status::NoFactoryMac);
        // What is in force is not asked again: its device may be gone.
        let mut kept = store(&vnic("a0", "factory/1"));
        let before = kept.active.clone();
        assert_eq!(kept.settle(&before, &|_, _| Vec::new()), Ok(()));
    }
}
