//! What changes do to tunnels, and the properties that only tunnels have. Called by `edit.rs` and `props.rs`.

use firelane_model::{FieldError, Iptun, IptunType, LinkClass, LinkName, Model, Over, Vnic};

use crate::edit::{free_name, unused};
use crate::props::property;
use crate::{ApiError, IptunChange, Property, Status};

/// What can be set of a tunnel.
const OF_TUNNELS: &str = "maxbw, priority, fusion, mtu, hoplimit, encaplimit, key, checksum, sequence";

pub(crate) fn create(model: &mut Model, name: &LinkName, vnic: &Vnic) -> Result<(), ApiError> {
    free_name(model, name)?;
    if vnic.over.tunnel().is_none() {
        return Err(Status::IptunTypeRequired.into());
    }
    model.vnics.insert(name.clone(), vnic.clone());
    check(model, name)
}

pub(crate) fn modify(model: &mut Model, name: &LinkName, change: &IptunChange) -> Result<(), ApiError> {
    let tunnel = tunnel_mut(model, name)?;
    tunnel.local = change.local.or(tunnel.local);
    tunnel.remote = change.remote.or(tunnel.remote);
    check(model, name)
}

pub(crate) fn delete(model: &mut Model, name: &LinkName) -> Result<(), ApiError> {
    tunnel_mut(model, name)?;
    if let Some(netstack) = model.vnics.get(name).and_then(Vnic::netstack) {
        return Err(ApiError::new(Status::LinkBusy, "netstack", netstack, ""));
    }
    unused(model, name)?;
    model.vnics.remove(name);
    Ok(())
}

/// A tunnel gets an interface when it leads somewhere.
pub(crate) fn check_ends(vnic: &Vnic) -> Result<(), ApiError> {
    match vnic.over.tunnel() {
        Some(tunnel) if tunnel.local.is_none() => {
            Err(ApiError::new(Status::BadIptunLocal, "local", "", "missing"))
        }
        Some(tunnel) if tunnel.ends().is_none() => {
            Err(ApiError::new(Status::BadIptunRemote, "remote", "", "missing"))
        }
        _ => Ok(()),
    }
}

fn tunnel_mut<'a>(model: &'a mut Model, name: &LinkName) -> Result<&'a mut Iptun, ApiError> {
    match model.class_of(name.as_str()) {
        None => return Err(Status::NotFound.into()),
        Some(LinkClass::Iptun) => {}
        Some(_) => return Err(Status::LinkInvalid.into()),
    }
    match model.vnics.get_mut(name).map(|vnic| &mut vnic.over) {
        Some(Over::Tunnel(tunnel)) => Ok(tunnel),
        _ => Err(Status::LinkInvalid.into()),
    }
}

/// What is wrong with a tunnel now, in the words of the original.
pub(crate) fn check(model: &Model, name: &LinkName) -> Result<(), ApiError> {
    let path = format!("vnic.{name}.iptun");
    let its = |fault: &FieldError| fault.field == path || fault.field.starts_with(&format!("{path}."));
    let Some(fault) = model.validate().into_iter().find(its) else { return Ok(()) };
    let field = fault.field.strip_prefix(&format!("{path}.")).unwrap_or_default().to_owned();
    let status = match field.as_str() {
        "local" => Status::BadIptunLocal,
        "remote" => Status::BadIptunRemote,
        "" => Status::IptunInUse,
        _ => Status::BadValue,
    };
    Err(ApiError::new(status, &field, fault.value, fault.allowed))
}

/// Sets or resets one property.
pub(crate) fn set(tunnel: &mut Iptun, name: &str, value: Option<&str>) -> Result<(), ApiError> {
    let wrong = |text: &str, allowed: &str| ApiError::new(Status::BadValue, name, text, allowed);
    let number = |text: &str, least: u8, allowed| {
        text.parse().ok().filter(|&it: &u8| it >= least).ok_or_else(|| wrong(text, allowed))
    };
    let switch = |text: &str| match text {
        "on" => Ok(true),
        "off" => Ok(false),
        _ => Err(wrong(text, "on,off")),
    };
    match name {
        "hoplimit" => {
            tunnel.hoplimit = value.map_or(Ok(Iptun::HOPLIMIT), |text| number(text, 1, "1-255"))?;
        }
        "encaplimit" => {
            tunnel.encaplimit = value.map_or(Ok(Iptun::ENCAPLIMIT), |text| number(text, 0, "0-255"))?;
        }
        "key" | "checksum" | "sequence" if tunnel.kind != IptunType::Gre => {
            return Err(ApiError::new(Status::NotSupported, name, "", "only tunnels of type gre have it"));
        }
        "key" => {
            let read = |text: &str| text.parse().map_err(|_| wrong(text, "0-4294967295"));
            tunnel.key = value.map(read).transpose()?;
        }
        "checksum" => tunnel.checksum = value.map_or(Ok(false), switch)?,
        "sequence" => tunnel.sequence = value.map_or(Ok(false), switch)?,
        _ => return Err(ApiError::new(Status::BadProperty, name, "", OF_TUNNELS)),
    }
    Ok(())
}

/// What `show-linkprop` lists of a tunnel alone.
pub(crate) fn shown(tunnel: &Iptun) -> Vec<Property> {
    let (hoplimit, encaplimit) = (tunnel.hoplimit.to_string(), tunnel.encaplimit.to_string());
    let mut properties = vec![
        property("hoplimit", "rw", hoplimit, &Iptun::HOPLIMIT.to_string(), "1-255"),
        property("encaplimit", "rw", encaplimit, &Iptun::ENCAPLIMIT.to_string(), "0-255"),
    ];
    if tunnel.kind == IptunType::Gre {
        let key = tunnel.key.map(|key| key.to_string()).unwrap_or_default();
        let switch = |is_on: bool| if is_on { "on" } else { "off" }.to_owned();
        properties.extend([
            property("key", "rw", key, "", "0-4294967295"),
            property("checksum", "rw", switch(tunnel.checksum), "off", "on,off"),
            property("sequence", "rw", switch(tunnel.sequence), "off", "on,off"),
        ]);
    }
    properties
}
