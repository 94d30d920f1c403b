//! `dladm` verbs that make and remove links.

use firelane_api::{ApiError, Change, ChangeRequest, LinkInfo, Status, VnicChange, Which, set_vnic_prop};
use firelane_model::{Etherstub, FactorySlot, LinkClass, LinkName, Mac, Vnic};
use firelane_units::VlanId;

use super::temporary;
use crate::common::{Call, said_props};
use crate::session::{Failure, Session, die, die_status};

pub(super) fn link_name(text: &str, what: &str) -> Result<LinkName, Failure> {
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

/// delete-phys
pub(super) fn delete_phys(session: &mut Session<'_>, call: &Call<'_>) -> Result<(), Failure> {
    call.no_root()?;
    let name = link_name(call.operand()?, "link")?;
    change(session, call, Change::DeletePhys(name), "delete operation")
}

/// delete-etherstub
pub(super) fn delete_etherstub(session: &mut Session<'_>, call: &Call<'_>) -> Result<(), Failure> {
    call.no_root()?;
    let name = link_name(call.operand()?, "etherstub")?;
    change(session, call, Change::DeleteEtherstub(name), "etherstub deletion")
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
        vnic.vlan = Some(vlan_id(text)?);
    }
    let changes = said_props(call, "vnic property")?;
    // An option and a property say the same.
    for (letter, name) in [('v', "vlan-id"), ('m', "mac-address")] {
        if call.args.has(letter) && changes.iter().any(|change| change.name == name) {
            return Err(die(format!("invalid vnic property '{name}' (-{letter} says it already)")));
        }
    }
    for change in &changes {
        set_vnic_prop(&mut vnic, change).map_err(|error| die_status(&what, &error))?;
    }
    let request = ChangeRequest { temporary: temporary(call), change: Change::CreateVnic(name, vnic) };
    session.api.change(&request).map_err(|error| match (error.status, error.field.as_str()) {
        (Status::LinkInvalid, "over") => no_link(over),
        _ => die_status(&what, &error),
    })
}

/// The links of both configurations.
fn known(session: &Session<'_>) -> Result<Vec<LinkInfo>, ApiError> {
    let mut known = session.api.links(Which::Active)?;
    known.extend(session.api.links(Which::Persistent)?);
    Ok(known)
}

fn no_link(over: &str) -> Failure {
    die(format!("invalid link name '{over}' (a link or an etherstub)"))
}

/// create-vlan: a VNIC that is called a VLAN.
pub(super) fn create_vlan(session: &mut Session<'_>, call: &Call<'_>) -> Result<(), Failure> {
    call.no_root()?;
    let over = call.args.value('l').ok_or_else(|| call.misused())?;
    let vid = call.args.value('v').ok_or_else(|| call.misused())?;
    let lower = link_name(over, "link")?;
    let vlan = vlan_id(vid)?;
    let name = match call.optional_operand()? {
        Some(name) => link_name(name, "link")?,
        None => link_name(&default_vlan_name(over, vlan), "link")?,
    };
    let vnic = Vnic { vlan: Some(vlan), is_vlan: true, ..Vnic::new(lower) };
    let request = ChangeRequest { temporary: temporary(call), change: Change::CreateVnic(name, vnic) };
    session.api.change(&request).map_err(|error| match (error.status, error.field.as_str()) {
        (Status::LinkInvalid, "over") => no_link(over),
        _ => die_status(&format!("vlan creation over {over} failed"), &error),
    })
}

/// The link's letters, and its number with a thousand times the VLAN: `net0` in VLAN 7 is `net7000`.
fn default_vlan_name(over: &str, vlan: VlanId) -> String {
    let letters = over.trim_end_matches(|c: char| c.is_ascii_digit());
    let number: u64 = over[letters.len()..].parse().unwrap_or_default();
    format!("{letters}{}", u64::from(vlan.id()) * 1000 + number)
}

fn vlan_id(text: &str) -> Result<VlanId, Failure> {
    let vid = text.parse().ok().and_then(VlanId::new);
    vid.ok_or_else(|| die(format!("invalid VLAN identifier '{text}' (1 to 4094)")))
}

/// delete-vlan
pub(super) fn delete_vlan(session: &mut Session<'_>, call: &Call<'_>) -> Result<(), Failure> {
    delete_of_class(session, call, LinkClass::Vlan, "vlan deletion")
}

/// delete-vnic
pub(super) fn delete_vnic(session: &mut Session<'_>, call: &Call<'_>) -> Result<(), Failure> {
    delete_of_class(session, call, LinkClass::Vnic, "vnic deletion")
}

fn delete_of_class(
    session: &mut Session<'_>,
    call: &Call<'_>,
    class: LinkClass,
    what: &str,
) -> Result<(), Failure> {
    call.no_root()?;
    let name = link_name(call.operand()?, "link")?;
    // What is only in one of the configurations is deleted there.
    if known(session)?.iter().any(|link| link.name == name && link.class != class) {
        return Err(die_status(&format!("{what} failed"), &Status::LinkInvalid.into()));
    }
    change(session, call, Change::DeleteVnic(name), what)
}

/// modify-vnic
pub(super) fn modify_vnic(session: &mut Session<'_>, call: &Call<'_>) -> Result<(), Failure> {
    call.no_root()?;
    let what = "modify operation";
    let name = link_name(call.operand()?, "link")?;
    let over = call.args.value('l').map(|over| link_name(over, "link")).transpose()?;
    let mac = match ['m', 'r', 'n'].into_iter().any(|letter| call.args.has(letter)) {
        true => Some(mac(call).map_err(|error| die_status(&format!("{what} failed"), &error))?),
        false => None,
    };
    let vid = |text: &str| {
        let vid = text.parse().ok().filter(|&vid| vid == 0 || VlanId::new(vid).is_some());
        vid.ok_or_else(|| die(format!("invalid VLAN identifier '{text}' (0 (none) to 4094)")))
    };
    let vlan = call.args.value('v').map(vid).transpose()?;
    let asked = VnicChange { over, mac, vlan };
    if asked == VnicChange::default() {
        return Err(call.misused());
    }
    change(session, call, Change::ModifyVnic(name, asked), what)
}

/// rename-link
pub(super) fn rename(session: &mut Session<'_>, call: &Call<'_>) -> Result<(), Failure> {
    call.no_root()?;
    let [from, to] = call.args.operands.as_slice() else { return Err(call.misused()) };
    let (from, to) = (link_name(from, "link")?, link_name(to, "link")?);
    change(session, call, Change::RenameLink(from, to), "rename operation")
}

/// The address that `-m`, `-n` and `-r` ask for.
fn mac(call: &Call<'_>) -> Result<Mac, ApiError> {
    let asked = call.args.value('m');
    let slot = call.args.value('n').map(|slot| {
        let wrong = |allowed: &str| ApiError::new(Status::BadArg, "-n", slot, allowed);
        if asked != Some("factory") {
            return Err(wrong("only with -m factory"));
        }
        slot.parse::<FactorySlot>().map_err(wrong)
    });
    let slot = slot.transpose()?;
    for (letter, option) in [('V', "-V"), ('A', "-A")] {
        if let Some(value) = call.args.value(letter) {
            return Err(ApiError::new(Status::NotSupported, option, value, ""));
        }
    }
    match (asked, call.args.value('r')) {
        (Some("random"), Some(prefix)) => {
            let allowed = "three bytes of a station's address, such as 2:8:20";
            let wrong = |_| ApiError::new(Status::MacPrefixInvalid, "-r", prefix, allowed);
            format!("random/{prefix}").parse().map_err(wrong)
        }
        (_, Some(prefix)) => Err(ApiError::new(Status::BadArg, "-r", prefix, "only with -m random")),
        (Some("factory"), None) => Ok(Mac::Factory(slot)),
        (None, None) => Ok(Mac::Auto),
        (Some("vrrp"), None) => {
            Err(ApiError::new(Status::NotSupported, "-m", "vrrp", "auto, random, factory or an address"))
        }
        (Some(text), None) => {
            text.parse().map_err(|allowed: &str| ApiError::new(Status::MacInvalid, "-m", text, allowed))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_vlan_without_a_name_is_called_after_its_link() {
        let vlan = |id| VlanId::new(id).unwrap();
        assert_eq!(default_vlan_name("bge0", vlan(123)), "bge123000");
        assert_eq!(default_vlan_name("net12", vlan(7)), "net7012");
    }
}
