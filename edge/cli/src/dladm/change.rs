//! `dladm` verbs that make and remove links.

use firelane_api::{ApiError, Change, ChangeRequest, Status, set_vnic_prop};
use firelane_model::{Etherstub, LinkName, Mac, Vnic};
use firelane_units::VlanId;

use super::temporary;
use crate::common::{Call, prop_list};
use crate::session::{Failure, Session, die, die_status};

fn link_name(text: &str, what: &str) -> Result<LinkName, Failure> {
    text.parse().map_err(|error| die(format!("invalid {what} name '{text}' ({error})")))
}

fn change(session: &mut Session<'_>, call: &Call<'_>, change: Change, what: &str) -> Result<(), Failure> {
    let request = ChangeRequest { temporary: temporary(call), change };
    session.api.change(&request).map_err(|error| die_status(&format!("{what} failed"), &error))
}

/// create-etherstub
pub(super) fn create_etherstub(session: &mut Session<'_>, call: &Call<'_>) -> Result<(), Failure> {
    call.no_root()?;
    let name = link_name(call.operand()?, "etherstub")?;
    change(session, call, Change::CreateEtherstub(name, Etherstub::default()), "etherstub creation")
}

/// delete-etherstub
pub(super) fn delete_etherstub(session: &mut Session<'_>, call: &Call<'_>) -> Result<(), Failure> {
    call.no_root()?;
    let name = link_name(call.operand()?, "etherstub")?;
    change(session, call, Change::DeleteEtherstub(name), "etherstub deletion")
}

/// delete-vnic
pub(super) fn delete_vnic(session: &mut Session<'_>, call: &Call<'_>) -> Result<(), Failure> {
    call.no_root()?;
    let name = link_name(call.operand()?, "link")?;
    change(session, call, Change::DeleteVnic(name), "vnic deletion")
}

/// create-vnic
pub(super) fn create_vnic(session: &mut Session<'_>, call: &Call<'_>) -> Result<(), Failure> {
    call.no_root()?;
    let over = call.args.value('l').ok_or_else(|| call.misused())?;
    let name = link_name(call.operand()?, "link")?;
    let what = format!("vnic creation over {over} failed");
    let mut vnic = Vnic::new(link_name(over, "link")?);
    vnic.mac = mac(call).map_err(|error| die_status(&what, &error))?;
    if let Some(text) = call.args.value('v') {
        let vid = text.parse().ok().and_then(VlanId::new);
        vnic.vlan = Some(vid.ok_or_else(|| die(format!("invalid VLAN identifier '{text}' (1 to 4094)")))?);
    }
    let texts: Vec<_> = call.args.values('p').collect();
    if !texts.is_empty() {
        let changes = prop_list(&texts).ok_or_else(|| {
            die(format!("invalid vnic property ({}: property=value[,...])", texts.join(",")))
        })?;
        for change in &changes {
            set_vnic_prop(&mut vnic, change).map_err(|error| die_status(&what, &error))?;
        }
    }
    let request = ChangeRequest { temporary: temporary(call), change: Change::CreateVnic(name, vnic) };
    session.api.change(&request).map_err(|error| match (error.status, error.field.as_str()) {
        (Status::LinkInvalid, "over") => die(format!("invalid link name '{over}' (a link or an etherstub)")),
        _ => die_status(&what, &error),
    })
}

/// The address that `-m` asks for.
fn mac(call: &Call<'_>) -> Result<Mac, ApiError> {
    if call.args.value('m') == Some("factory") {
        return Err(Status::NoFactoryMac.into());
    }
    for (letter, option) in [('n', "-n"), ('r', "-r"), ('V', "-V"), ('A', "-A")] {
        if let Some(value) = call.args.value(letter) {
            return Err(ApiError::new(Status::NotSupported, option, value, ""));
        }
    }
    match call.args.value('m') {
        None => Ok(Mac::Auto),
        Some("vrrp") => Err(ApiError::new(Status::NotSupported, "-m", "vrrp", "auto, random or an address")),
        Some(text) => {
            text.parse().map_err(|allowed: &str| ApiError::new(Status::MacInvalid, "-m", text, allowed))
        }
    }
}
