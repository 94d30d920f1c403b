//! `dladm` verbs that make and remove links.

use std::collections::BTreeSet;

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
    modify(session, call, LinkClass::Vnic)
}

/// modify-vlan
pub(super) fn modify_vlan(session: &mut Session<'_>, call: &Call<'_>) -> Result<(), Failure> {
    modify(session, call, LinkClass::Vlan)
}

/// Each of those that are named is a change of its own: who is told that one is refused is told which have been made.
fn modify(session: &mut Session<'_>, call: &Call<'_>, class: LinkClass) -> Result<(), Failure> {
    call.no_root()?;
    let what = "modify operation";
    let names = modified(session, call, class)?;
    let over = call.args.value('l').map(|over| link_name(over, "link")).transpose()?;
    let mac = match ['m', 'r', 'n'].into_iter().any(|letter| call.args.has(letter)) {
        true => Some(mac(call).map_err(|error| die_status(&format!("{what} failed"), &error))?),
        false => None,
    };
    if names.len() > 1 && matches!(mac, Some(Mac::Fixed(_) | Mac::Factory(Some(_)))) {
        let text = call.args.value('m').unwrap_or_default();
        let error = ApiError::new(Status::BadArg, "-m", text, "an address is that of one VNIC");
        return Err(die_status(&format!("{what} failed"), &error));
    }
    let vid = |text: &str| match class {
        LinkClass::Vlan => vlan_id(text).map(|vlan| vlan.id()),
        _ => {
            let vid = text.parse().ok().filter(|&vid| vid == 0 || VlanId::new(vid).is_some());
            vid.ok_or_else(|| die(format!("invalid VLAN identifier '{text}' (0 (none) to 4094)")))
        }
    };
    let vlan = call.args.value('v').map(vid).transpose()?;
    let asked = VnicChange { over, mac, vlan };
    if asked == VnicChange::default() {
        return Err(call.misused());
    }
    for (at, name) in names.iter().enumerate() {
        let change = Change::ModifyVnic(name.clone(), asked.clone());
        let request = ChangeRequest { temporary: temporary(call), change };
        session.api.change(&request).map_err(|error| match names.len() {
            1 => die_status(&format!("{what} failed"), &error),
            _ => {
                let made: Vec<_> = names[..at].iter().map(ToString::to_string).collect();
                let made = if made.is_empty() { "none".to_owned() } else { made.join(",") };
                die_status(&format!("{what} of {name} failed (modified before it: {made})"), &error)
            }
        })?;
    }
    Ok(())
}

/// Which VNICs or VLANs are modified: those of the operand, or all over the link of `-L`.
fn modified(session: &Session<'_>, call: &Call<'_>, class: LinkClass) -> Result<Vec<LinkName>, Failure> {
    let mut known = session.api.links(Which::Active)?;
    if !temporary(call) {
        known.extend(session.api.links(Which::Persistent)?);
    }
    if let Some(old) = call.args.value('L') {
        if !call.args.operands.is_empty() {
            return Err(call.misused());
        }
        let old = link_name(old, "link")?;
        known.retain(|it| {
            it.class == class && it.over.as_ref().is_some_and(|over| over.as_str() == old.as_str())
        });
        let names: BTreeSet<_> = known.into_iter().map(|it| it.name).collect();
        return match names.is_empty() {
            true => Err(die(format!("invalid link name '{old}' (a link with a {} over it)", class.word()))),
            false => Ok(names.into_iter().collect()),
        };
    }
    let names = call.operand()?.split(',').map(|name| link_name(name, "link"));
    let names = names.collect::<Result<Vec<_>, _>>()?;
    // What is wrong with a name is known before anything has been changed. A VLAN is a VNIC, and no other VNIC is a VLAN.
    for name in &names {
        let found = known.iter().find(|it| it.name == *name).map(|it| it.class);
        let wrong = match found {
            Some(found) if class == LinkClass::Vlan && found != class => Status::LinkInvalid,
            None if names.len() > 1 => Status::NotFound,
            _ => continue,
        };
        return Err(die_status(&format!("modify operation of {name} failed"), &wrong.into()));
    }
    Ok(names)
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
            let allowed = "there are no virtual routers (VRRP) here";
            return Err(ApiError::new(Status::NotSupported, option, value, allowed));
        }
    }
    match (asked, call.args.value('r')) {
        (Some("random"), Some(prefix)) => {
            let allowed = "three bytes of a station's address, such as 2:8:20";
            let status = match bytes_of(prefix) {
                None | Some(3) => Status::MacPrefixInvalid,
                Some(_) => Status::MacPrefixLengthInvalid,
            };
            let wrong = |_| ApiError::new(status, "-r", prefix, allowed);
            format!("random/{prefix}").parse().map_err(wrong)
        }
        (_, Some(prefix)) => Err(ApiError::new(Status::BadArg, "-r", prefix, "only with -m random")),
        (Some("factory"), None) => Ok(Mac::Factory(slot)),
        (None, None) => Ok(Mac::Auto),
        (Some("vrrp"), None) => {
            Err(ApiError::new(Status::NotSupported, "-m", "vrrp", "auto, random, factory or an address"))
        }
        (Some(text), None) => {
            let status = match bytes_of(text) {
                None | Some(6) => Status::MacInvalid,
                Some(_) => Status::MacLengthInvalid,
            };
            text.parse().map_err(|allowed: &str| ApiError::new(status, "-m", text, allowed))
        }
    }
}

/// How many bytes an address has that is well-formed otherwise.
fn bytes_of(text: &str) -> Option<usize> {
    let is_byte =
        |part: &str| (1..=2).contains(&part.len()) && part.bytes().all(|digit| digit.is_ascii_hexdigit());
    text.split(':').all(is_byte).then(|| text.split(':').count())
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
