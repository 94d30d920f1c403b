//! Properties of links and flows: the one table of names, values, defaults and what is possible.

use firelane_model::{Flow, LinkClass, LinkName, MAXBW_MIN, Model, Vnic};
use firelane_units::{BitRate, Mtu, Priority};

use crate::{ApiError, LinkState, PropChange, Property, Status};

fn property(name: &str, perm: &str, value: String, default: &str, possible: &str) -> Property {
    let [property, perm, default, possible] = [name, perm, default, possible].map(str::to_owned);
    Property { property, perm, value, default, possible }
}

const PRIORITIES: &str = "low,medium,high";

fn shown_rate(rate: Option<BitRate>) -> String {
    rate.map(|rate| rate.to_string()).unwrap_or_default()
}

/// The limit, priority and MTU of any link.
pub(crate) struct LinkProps<'a> {
    maxbw: &'a mut Option<BitRate>,
    priority: &'a mut Priority,
    mtu: MtuSlot<'a>,
}

enum MtuSlot<'a> {
    Own(&'a mut Mtu, Mtu),
    Inherited(&'a mut Option<Mtu>),
}

/// The settable properties of the link `name`, whatever its class.
pub(crate) fn slots<'a>(model: &'a mut Model, name: &str) -> Option<LinkProps<'a>> {
    if let Some(it) = model.links.get_mut(name) {
        let mtu = MtuSlot::Own(&mut it.mtu, Mtu::ETHERNET);
        return Some(LinkProps { maxbw: &mut it.maxbw, priority: &mut it.priority, mtu });
    }
    if let Some(it) = model.etherstubs.get_mut(name) {
        let mtu = MtuSlot::Own(&mut it.mtu, Mtu::ETHERSTUB);
        return Some(LinkProps { maxbw: &mut it.maxbw, priority: &mut it.priority, mtu });
    }
    model.vnics.get_mut(name).map(vnic_slots)
}

fn vnic_slots(vnic: &mut Vnic) -> LinkProps<'_> {
    let mtu = MtuSlot::Inherited(&mut vnic.mtu);
    LinkProps { maxbw: &mut vnic.maxbw, priority: &mut vnic.priority, mtu }
}

/// Sets or resets one property of a VNIC that is about to be made.
pub fn set_vnic_prop(vnic: &mut Vnic, change: &PropChange) -> Result<(), ApiError> {
    vnic_slots(vnic).set(change)
}

/// The names of the properties that a link has and that cannot be set.
const READ_ONLY: [&str; 3] = ["state", "over", "class"];

impl LinkProps<'_> {
    /// Sets or resets one property.
    pub(crate) fn set(&mut self, change: &PropChange) -> Result<(), ApiError> {
        let name = change.name.as_str();
        match (name, change.value.as_deref()) {
            ("maxbw", None) => *self.maxbw = None,
            ("maxbw", Some(text)) => *self.maxbw = Some(read_maxbw(text)?),
            ("priority", None) => *self.priority = Priority::High,
            ("priority", Some(text)) => *self.priority = read_priority(text)?,
            ("mtu", None) => match &mut self.mtu {
                MtuSlot::Own(mtu, default) => **mtu = *default,
                MtuSlot::Inherited(mtu) => **mtu = None,
            },
            ("mtu", Some(text)) => {
                let read = text.parse().ok().and_then(Mtu::new);
                let new = read.ok_or_else(|| ApiError::new(Status::BadMtu, name, text, "576 to 65535"))?;
                match &mut self.mtu {
                    MtuSlot::Own(mtu, _) => **mtu = new,
                    MtuSlot::Inherited(mtu) => **mtu = Some(new),
                }
            }
            _ if READ_ONLY.contains(&name) => return Err(ApiError::new(Status::ReadOnly, name, "", "")),
            _ => return Err(ApiError::new(Status::BadProperty, name, "", "maxbw, priority, mtu")),
        }
        Ok(())
    }
}

/// Sets or resets one property of a flow.
pub fn set_flow_prop(flow: &mut Flow, change: &PropChange) -> Result<(), ApiError> {
    match (change.name.as_str(), change.value.as_deref()) {
        ("maxbw", None) => flow.maxbw = None,
        ("maxbw", Some(text)) => flow.maxbw = Some(read_maxbw(text)?),
        ("priority", None) => flow.priority = Priority::Medium,
        ("priority", Some(text)) => flow.priority = read_priority(text)?,
        (name, _) => return Err(ApiError::new(Status::BadProperty, name, "", "maxbw, priority")),
    }
    Ok(())
}

fn read_maxbw(text: &str) -> Result<BitRate, ApiError> {
    let allowed = "a number with an optional K, M or G; without one it means Mb/s";
    let rate: BitRate = text.parse().map_err(|_| ApiError::new(Status::BadValue, "maxbw", text, allowed))?;
    if !firelane_model::check_maxbw(rate) {
        let allowed = format!("0, or at least {}", firelane_model::spell_rate(MAXBW_MIN));
        return Err(ApiError::new(Status::MinMaxbw, "maxbw", text, allowed));
    }
    Ok(rate)
}

fn read_priority(text: &str) -> Result<Priority, ApiError> {
    text.parse().map_err(|_| ApiError::new(Status::BadValue, "priority", text, PRIORITIES))
}

/// What `show-linkprop` lists.
pub(crate) fn of_link(model: &Model, name: &LinkName, state: LinkState) -> Vec<Property> {
    let (maxbw, priority, default_mtu, most) = match model.class_of(name.as_str()) {
        Some(LinkClass::Phys) => {
            let link = &model.links[name];
            (link.maxbw, link.priority, Mtu::ETHERNET, u16::MAX)
        }
        Some(LinkClass::Etherstub) => {
            let stub = &model.etherstubs[name];
            (stub.maxbw, stub.priority, Mtu::ETHERSTUB, Mtu::ETHERSTUB.bytes())
        }
        _ => {
            let vnic = &model.vnics[name];
            let lower = model.mtu_of(vnic.over.as_str()).unwrap_or(Mtu::ETHERNET);
            (vnic.maxbw, vnic.priority, lower, lower.bytes())
        }
    };
    let mtu = model.mtu_of(name.as_str()).unwrap_or(default_mtu);
    vec![
        property("maxbw", "rw", shown_rate(maxbw), "", ""),
        property("mtu", "rw", mtu.to_string(), &default_mtu.to_string(), &format!("{}-{most}", Mtu::MIN)),
        property("priority", "rw", priority.to_string(), Priority::High.word(), PRIORITIES),
        property("state", "r-", state.word().to_owned(), "up", "up,down"),
    ]
}

/// What `show-flowprop` lists.
pub(crate) fn of_flow(flow: &Flow) -> Vec<Property> {
    vec![
        property("maxbw", "rw", shown_rate(flow.maxbw), "", ""),
        property("priority", "rw", flow.priority.to_string(), Priority::Medium.word(), PRIORITIES),
    ]
}
