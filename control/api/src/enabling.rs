//! Interfaces and addresses that are in force, or only kept for the next start; addresses that are up, or down.
//!
//! Disabling is always temporary: it takes away what is in force and leaves what is kept, and enabling takes it from there again. An
//! address that is down is there and not used; what has begun with it waits.

use firelane_model::{AddrObjName, Address, LinkName, Model};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::edit::{create_if, delete_if};
use crate::{ApiError, Change, Status};

/// Body: takes an interface out of what is in force, or takes it from what is kept.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct EnableIf {
    /// Whether it shall be in force.
    pub enabled: bool,
}

/// Body: the same of an address, or marks it up or down.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, rename_all = "lowercase")]
pub enum ModifyAddr {
    /// Whether it shall be in force; always until the next start.
    Enabled(bool),
    /// Whether it is used; after the next start, too.
    Up(bool),
    /// Whether it is used until the next start.
    #[serde(rename = "up_temporarily")]
    UpTemporarily(bool),
}

/// What is in force after `change`, which takes it from what is kept or leaves that alone; nothing if it is another change.
pub(crate) fn enabled(
    active: &Model,
    persistent: &Model,
    change: &Change,
) -> Option<Result<Model, ApiError>> {
    let mut next = active.clone();
    let done = match change {
        Change::EnableIf(name) => enable_if(&mut next, persistent, name),
        Change::DisableIf(name) => delete_if(&mut next, name).map_err(|error| {
            let kept = persistent.vnics.get(name).and_then(|vnic| vnic.netstack());
            kept.map_or(error, |_| Status::DisabledObject.into())
        }),
        Change::EnableAddr(name) => enable_addr(&mut next, persistent, name),
        Change::DisableAddr(name) => disable_addr(&mut next, persistent, name),
        _ => return None,
    };
    let valid =
        done.and_then(|()| next.validate().into_iter().next().map_or(Ok(()), |fault| Err(fault.into())));
    Some(valid.map(|()| next))
}

fn no_addr(name: &AddrObjName) -> ApiError {
    ApiError::new(Status::NoAddrObj, "addrobj", name, "")
}

/// An interface with its addresses and what is said of it.
fn enable_if(active: &mut Model, persistent: &Model, name: &LinkName) -> Result<(), ApiError> {
    let kept = persistent.vnics.get(name).and_then(|vnic| vnic.netstack()).ok_or(Status::NoIf)?;
    create_if(active, name, kept)?;
    let (Some(from), Some(to)) = (persistent.netstacks.get(kept), active.netstacks.get_mut(kept)) else {
        return Ok(());
    };
    let own = from.addresses.iter().filter(|(addrobj, _)| addrobj.interface() == name.as_str());
    for (addrobj, address) in own {
        to.addresses.entry(addrobj.clone()).or_insert(*address);
    }
    // Who uses its addresses as sources does so again, unless he uses another's until the next start.
    let users =
        from.interfaces.iter().filter(|(other, said)| *other != name && said.sources().any(|it| it == name));
    for (other, said) in users {
        if active.vnics.get(other).and_then(|vnic| vnic.netstack()) == Some(kept) {
            to.interfaces.entry(other.clone()).or_default().use_again(said, name);
        }
    }
    if let Some(said) = from.interfaces.get(name) {
        let mut said = said.clone();
        let is_its =
            |other: &LinkName| active.vnics.get(other).and_then(|vnic| vnic.netstack()) == Some(kept);
        said.forget_sources(|source| !is_its(source));
        to.interfaces.insert(name.clone(), said);
        to.interfaces.retain(|_, it| !it.is_default());
    }
    Ok(())
}

fn enable_addr(active: &mut Model, persistent: &Model, name: &AddrObjName) -> Result<(), ApiError> {
    let kept = persistent.addresses().find(|(_, it, _)| *it == name);
    let (netstack, _, address) = kept.ok_or_else(|| no_addr(name))?;
    if active.addresses().any(|(_, it, _)| it == name) {
        return Err(ApiError::new(Status::AddrObjExists, "addrobj", name, "it is enabled"));
    }
    let is_there = active.vnics.get(name.interface()).and_then(|vnic| vnic.netstack()) == Some(netstack);
    let interface = || ApiError::new(Status::NoIf, "interface", name.interface(), "enable-if comes before");
    let netstack = active.netstacks.get_mut(netstack).filter(|_| is_there).ok_or_else(interface)?;
    netstack.addresses.insert(name.clone(), address);
    Ok(())
}

fn disable_addr(active: &mut Model, persistent: &Model, name: &AddrObjName) -> Result<(), ApiError> {
    let removed = active.netstacks.values_mut().find_map(|it| it.addresses.remove(name));
    removed.map(drop).ok_or_else(|| absence(name, persistent))
}

/// Why an address is not among those in force.
pub(crate) fn absence(name: &AddrObjName, persistent: &Model) -> ApiError {
    match persistent.addresses().any(|(_, it, _)| it == name) {
        true => ApiError::new(Status::DisabledObject, "addrobj", name, ""),
        false => no_addr(name),
    }
}

/// Marks an address up or down; one that is so already stays.
pub(crate) fn mark(model: &mut Model, name: &AddrObjName, up: bool) -> Result<(), ApiError> {
    let address = model.netstacks.values_mut().find_map(|it| it.addresses.get_mut(name));
    match address.ok_or_else(|| no_addr(name))? {
        Address::Static(it) => {
            it.down = !up;
            Ok(())
        }
        other => {
            let allowed = "its addresses are those that the network gives; disable-addr takes them away";
            Err(ApiError::new(Status::IpNotSupported, "type", other.kind(), allowed))
        }
    }
}
