//! Properties of links and flows: the one table of names, values, defaults and what is possible.

use firelane_model::{
    Cpus, Etherstub, Flow, Fusing, Guard, Iptun, Link, LinkKind, LinkName, LinkRings, Mac, Model, Over,
    Polling, Rings, Switch, Vnic,
};
use firelane_units::{BitRate, MacAddr, Mtu, Priority, Protection, Protections, VlanId};

use crate::absent_props::absent_link_prop;
use crate::{ApiError, DeviceRings, LinkState, PropChange, Property, Status, iptun};

pub(crate) fn property(name: &str, perm: &str, value: String, default: &str, possible: &str) -> Property {
    let [property, perm, default, possible] = [name, perm, default, possible].map(str::to_owned);
    Property { property, perm, value, default, possible }
}

const PRIORITIES: &str = "low,medium,high";

fn shown_rate(rate: Option<BitRate>) -> String {
    rate.map(|rate| rate.to_string()).unwrap_or_default()
}

/// A link whose properties are set, whatever its class.
pub(crate) enum LinkProps<'a> {
    Phys(&'a mut Link),
    Etherstub(&'a mut Etherstub),
    Vnic(&'a mut Vnic),
}

/// The settable properties of the link `name`.
pub(crate) fn slots<'a>(model: &'a mut Model, name: &str) -> Option<LinkProps<'a>> {
    if let Some(link) = model.links.get_mut(name) {
        return Some(LinkProps::Phys(link));
    }
    if let Some(stub) = model.etherstubs.get_mut(name) {
        return Some(LinkProps::Etherstub(stub));
    }
    model.vnics.get_mut(name).map(LinkProps::Vnic)
}

/// Sets or resets one property of a VNIC that is about to be made.
pub fn set_vnic_prop(vnic: &mut Vnic, change: &PropChange) -> Result<(), ApiError> {
    LinkProps::Vnic(vnic).set(change)
}

/// The names of the properties that a link has and that cannot be set.
const READ_ONLY: [&str; 11] = [
    "state",
    "speed",
    "over",
    "class",
    "cpus-effective",
    "rxrings-effective",
    "rxrings-available",
    "rxhwclnt-available",
    "txrings-effective",
    "txrings-available",
    "txhwclnt-available",
];
/// What can be set of every link.
const OF_ALL: &str = "maxbw, priority, fusion, mtu";
/// What can be set of a link with a way out.
const OF_LINKS: &str = "maxbw, priority, fusion, polling, cpus, rxrings, txrings, mtu";
/// What can be set of a VNIC.
const OF_VNICS: &str = "maxbw, minbw, priority, fusion, polling, cpus, rxrings, txrings, mtu, mac-address, vlan-id, \
                        promisc-filtered, protection, allowed-ips, allowed-dhcp-cids";

/// What can be set of a flow.
const OF_FLOWS: &str = "maxbw, minbw, priority, fusion, cpus";

/// The properties that have a list for a value.
const LISTS: [&str; 4] = ["cpus", "protection", "allowed-ips", "allowed-dhcp-cids"];

/// What is wrong with several values of a property that has one is that they are several.
fn counted(error: ApiError, change: &PropChange) -> ApiError {
    let (name, value) = (change.name.as_str(), change.value.as_deref().unwrap_or_default());
    let is_of_value =
        matches!(error.status, Status::BadValue | Status::BadMtu | Status::VidInvalid | Status::MacInvalid);
    match is_of_value && value.contains(',') && !LISTS.contains(&name) {
        true => ApiError::new(Status::BadCount, name, value, "one value"),
        false => error,
    }
}

impl LinkProps<'_> {
    /// Sets or resets one property.
    pub(crate) fn set(&mut self, change: &PropChange) -> Result<(), ApiError> {
        self.put(change).map_err(|error| counted(error, change))
    }

    fn put(&mut self, change: &PropChange) -> Result<(), ApiError> {
        let (name, value) = (change.name.as_str(), change.value.as_deref());
        let (maxbw, priority, fusion) = match self {
            Self::Phys(it) => (&mut it.maxbw, &mut it.priority, &mut it.fusion),
            Self::Etherstub(it) => (&mut it.maxbw, &mut it.priority, &mut it.fusion),
            Self::Vnic(it) => (&mut it.maxbw, &mut it.priority, &mut it.fusion),
        };
        if let Some(error) = absent_link_prop(name) {
            return Err(error);
        }
        match name {
            "maxbw" => *maxbw = value.map(|text| read_rate(name, text)).transpose()?,
            "priority" => *priority = value.map_or(Ok(Priority::High), read_priority)?,
            "fusion" => *fusion = value.map_or(Ok(Fusing::default()), read_fusing)?,
            "mtu" => self.set_mtu(value)?,
            _ if READ_ONLY.contains(&name) => return Err(ApiError::new(Status::ReadOnly, name, "", "")),
            _ => match self {
                Self::Vnic(vnic) => set_of_vnic(vnic, name, value)?,
                Self::Phys(link) if name == "polling" => link.polling = read_polling(value)?,
                Self::Phys(link) if name == "cpus" => link.cpus = read_cpus(value)?,
                Self::Phys(link) if name == "rxrings" => link.rings.rx = read_rings(name, value)?,
                Self::Phys(link) if name == "txrings" => link.rings.tx = read_rings(name, value)?,
                Self::Phys(_) => return Err(ApiError::new(Status::BadProperty, name, "", OF_LINKS)),
                Self::Etherstub(_) => return Err(ApiError::new(Status::BadProperty, name, "", OF_ALL)),
            },
        }
        Ok(())
    }

    fn set_mtu(&mut self, value: Option<&str>) -> Result<(), ApiError> {
        let is_tunnel = matches!(self, Self::Vnic(it) if it.over.tunnel().is_some());
        let most = if is_tunnel { Iptun::MTU_MAX } else { u16::MAX };
        let read = |text: &str| {
            let mtu = text.parse().ok().and_then(Mtu::new).filter(|mtu| mtu.bytes() <= most);
            mtu.ok_or_else(|| ApiError::new(Status::BadMtu, "mtu", text, format!("576 to {most}")))
        };
        let mtu = value.map(read).transpose()?;
        match self {
            Self::Phys(it) => it.mtu = mtu.unwrap_or(Mtu::ETHERNET),
            Self::Etherstub(it) => it.mtu = mtu.unwrap_or(Mtu::ETHERSTUB),
            Self::Vnic(it) => it.mtu = mtu,
        }
        Ok(())
    }
}

/// Which VLAN identifiers a VNIC may have. One that is called a VLAN is in one.
pub(crate) fn vlan_ids(vnic: &Vnic) -> &'static str {
    if vnic.is_vlan { "1 to 4094" } else { "0 (none) to 4094" }
}

/// Sets or resets what only VNICs have.
fn set_of_vnic(vnic: &mut Vnic, name: &str, value: Option<&str>) -> Result<(), ApiError> {
    if let Over::Tunnel(tunnel) = &mut vnic.over {
        return iptun::set(tunnel, name, value);
    }
    match name {
        "minbw" => vnic.minbw = value.map(|text| read_rate(name, text)).transpose()?,
        "polling" => vnic.polling = read_polling(value)?,
        "cpus" => vnic.cpus = read_cpus(value)?,
        "rxrings" => vnic.rings.rx = read_rings(name, value)?,
        "txrings" => vnic.rings.tx = read_rings(name, value)?,
        "mac-address" => vnic.mac = value.map_or(Ok(Mac::Auto), read_mac)?,
        "vlan-id" => {
            let wrong = |text: &str| ApiError::new(Status::VidInvalid, name, text, vlan_ids(vnic));
            let read = |text: &str| text.parse::<u16>().map_err(|_| wrong(text));
            let id = value.map_or(Ok(0), read)?;
            let vlan = VlanId::new(id);
            if vlan.is_none() && (id != 0 || vnic.is_vlan) {
                return Err(wrong(&id.to_string()));
            }
            vnic.vlan = vlan;
        }
        "promisc-filtered" => {
            let wrong = |text: &str| ApiError::new(Status::BadValue, name, text, Switch::POSSIBLE);
            let read = |text: &str| Switch::from_word(text).ok_or_else(|| wrong(text));
            vnic.promisc_filtered = value.map_or(Ok(Switch::On), read)?;
        }
        "protection" => {
            let read = |all: Protections, word: &str| {
                let kind = Protection::from_word(word);
                kind.map(|kind| all.with(kind))
                    .ok_or_else(|| ApiError::new(Status::BadValue, name, word, KINDS))
            };
            vnic.guard.kinds =
                value.into_iter().flat_map(|it| it.split(',')).try_fold(Protections::NONE, read)?;
        }
        "allowed-ips" => {
            let allowed = "an IP address or prefix, such as 10.0.0.1 or fd00::/64";
            vnic.guard.allowed_ips = read_list(name, value, Status::BadIp, allowed)?;
        }
        "allowed-dhcp-cids" => {
            let allowed = "0x and pairs of hexadecimal digits, or up to 255 letters, digits and -_.:@";
            vnic.guard.allowed_cids = read_list(name, value, Status::BadValue, allowed)?;
        }
        _ => return Err(ApiError::new(Status::BadProperty, name, "", OF_VNICS)),
    }
    Ok(())
}

const KINDS: &str = "mac-nospoof,restricted,ip-nospoof,dhcp-nospoof";

fn read_mac(text: &str) -> Result<Mac, ApiError> {
    text.parse().map_err(|allowed: &str| ApiError::new(Status::MacInvalid, "mac-address", text, allowed))
}

fn read_list<T: std::str::FromStr>(
    name: &str,
    value: Option<&str>,
    status: Status,
    allowed: &str,
) -> Result<Vec<T>, ApiError> {
    let parts = value.into_iter().flat_map(|it| it.split(','));
    let read = |text: &str| text.parse().map_err(|_| ApiError::new(status, name, text, allowed));
    let list = parts.map(read).collect::<Result<Vec<T>, _>>()?;
    if list.len() > Guard::LISTED_MAX {
        return Err(ApiError::new(
            Status::TooMany,
            name,
            list.len(),
            format!("at most {}", Guard::LISTED_MAX),
        ));
    }
    Ok(list)
}

/// Sets or resets one property of a flow.
pub fn set_flow_prop(flow: &mut Flow, change: &PropChange) -> Result<(), ApiError> {
    put_of_flow(flow, change).map_err(|error| counted(error, change))
}

fn put_of_flow(flow: &mut Flow, change: &PropChange) -> Result<(), ApiError> {
    match (change.name.as_str(), change.value.as_deref()) {
        (name @ "maxbw", value) => flow.maxbw = value.map(|text| read_rate(name, text)).transpose()?,
        (name @ "minbw", value) => flow.minbw = value.map(|text| read_rate(name, text)).transpose()?,
        ("priority", None) => flow.priority = Priority::Medium,
        ("priority", Some(text)) => flow.priority = read_priority(text)?,
        ("fusion", value) => flow.fusion = value.map_or(Ok(Fusing::default()), read_fusing)?,
        ("cpus", value) => flow.cpus = read_cpus(value)?,
        (name @ "cpus-effective", _) => return Err(ApiError::new(Status::ReadOnly, name, "", "")),
        (name, _) => return Err(ApiError::new(Status::BadProperty, name, "", OF_FLOWS)),
    }
    Ok(())
}

fn read_rate(name: &str, text: &str) -> Result<BitRate, ApiError> {
    let allowed = "a number with an optional K, M or G; without one it means Mb/s";
    text.parse().map_err(|_| ApiError::new(Status::BadValue, name, text, allowed))
}

fn read_fusing(text: &str) -> Result<Fusing, ApiError> {
    Fusing::from_word(text).ok_or_else(|| ApiError::new(Status::BadValue, "fusion", text, Fusing::POSSIBLE))
}

fn shown_fusing(it: Fusing) -> Property {
    property("fusion", "rw", it.word().to_owned(), Fusing::default().word(), Fusing::POSSIBLE)
}

fn read_polling(value: Option<&str>) -> Result<Polling, ApiError> {
    let read = |text: &str| {
        let wrong = || ApiError::new(Status::BadValue, "polling", text, Polling::POSSIBLE);
        Polling::from_word(text).ok_or_else(wrong)
    };
    value.map_or(Ok(Polling::default()), read)
}

pub(crate) fn read_cpus(value: Option<&str>) -> Result<Cpus, ApiError> {
    let read = |text: &str| text.parse().map_err(|it| ApiError::new(Status::BadValue, "cpus", text, it));
    value.map_or(Ok(Cpus::NONE), read)
}

/// What links and VNICs say of their device.
fn of_device(polling: Polling, cpus: &Cpus, effective: &[usize]) -> [Property; 3] {
    [
        property("polling", "rw", polling.word().to_owned(), Polling::default().word(), Polling::POSSIBLE),
        property("cpus", "rw", cpus.to_string(), "", ""),
        property("cpus-effective", "r-", list_of(effective), "", ""),
    ]
}

/// What links and VNICs say of its rings. Frames are classified in software, so no other link has any of them.
fn of_rings(said: LinkRings, is: &DeviceRings, has_device: bool) -> Vec<Property> {
    let possible = match is.all {
        _ if !has_device => "sw".to_owned(),
        0 => format!("sw,hw,<1-{}>", Rings::MAX),
        all => format!("sw,hw,<1-{all}>"),
    };
    let directions = [("rx", said.rx, is.rx.len()), ("tx", said.tx, is.tx.len())];
    let of_direction = |(direction, said, used): (&str, Option<Rings>, usize)| {
        let said = said.map(|it| it.to_string()).unwrap_or_default();
        let effective = if used == 0 { String::new() } else { used.to_string() };
        let spare = usize::from(is.all).saturating_sub(used).to_string();
        [
            property(&format!("{direction}rings"), "rw", said, "", &possible),
            property(&format!("{direction}rings-effective"), "r-", effective, "", ""),
            property(&format!("{direction}rings-available"), "r-", spare, "", ""),
            property(&format!("{direction}hwclnt-available"), "r-", "0".to_owned(), "", ""),
        ]
    };
    directions.into_iter().flat_map(of_direction).collect()
}

fn read_rings(name: &str, value: Option<&str>) -> Result<Option<Rings>, ApiError> {
    let read = |text: &str| text.parse().map_err(|it| ApiError::new(Status::BadValue, name, text, it));
    value.map(read).transpose()
}

fn read_priority(text: &str) -> Result<Priority, ApiError> {
    text.parse().map_err(|_| ApiError::new(Status::BadValue, "priority", text, PRIORITIES))
}

/// What `show-linkprop` lists. `mac` and `speed` are what the running link has.
pub(crate) fn of_link(
    model: &Model,
    name: &LinkName,
    state: LinkState,
    mac: Option<MacAddr>,
    speed: u64,
    device: (&[usize], &DeviceRings),
) -> Vec<Property> {
    let vnic = model.vnics.get(name);
    let (links, stubs) = (model.links.get(name), model.etherstubs.get(name));
    let fusion = match (links, stubs) {
        (Some(link), _) => link.fusion,
        (_, Some(stub)) => stub.fusion,
        _ => vnic.map(|it| it.fusion).unwrap_or_default(),
    };
    let (maxbw, priority, default_mtu, most) = match (links, stubs, vnic) {
        (Some(link), ..) => (link.maxbw, link.priority, Mtu::ETHERNET, u16::MAX),
        (_, Some(stub), _) => (stub.maxbw, stub.priority, Mtu::ETHERSTUB, Mtu::ETHERSTUB.bytes()),
        (.., vnic) => {
            let lower = vnic.and_then(|it| model.mtu_below(it)).unwrap_or(Mtu::ETHERNET);
            let priority = vnic.map_or(Priority::High, |it| it.priority);
            let is_tunnel = vnic.is_some_and(|it| it.over.tunnel().is_some());
            let most = if is_tunnel { Iptun::MTU_MAX } else { lower.bytes() };
            (vnic.and_then(|it| it.maxbw), priority, lower, most)
        }
    };
    let mtu = model.mtu_of(name.as_str()).unwrap_or(default_mtu);
    let mut properties = vec![
        property("maxbw", "rw", shown_rate(maxbw), "", ""),
        property("mtu", "rw", mtu.to_string(), &default_mtu.to_string(), &format!("{}-{most}", Mtu::MIN)),
        property("priority", "rw", priority.to_string(), Priority::High.word(), PRIORITIES),
        shown_fusing(fusion),
    ];
    if let Some(tunnel) = vnic.and_then(|it| it.over.tunnel()) {
        properties.extend(iptun::shown(tunnel));
    } else if let Some(vnic) = vnic {
        let netstack = vnic.netstack().and_then(|netstack| model.netstacks.get(netstack));
        let cpus = netstack.map_or(&vnic.cpus, |netstack| &netstack.cpus);
        properties.extend(of_vnic(vnic, mac, cpus, device));
    } else if let Some(link) = links {
        properties.extend(of_device(link.polling, &link.cpus, device.0));
        properties.extend(of_rings(link.rings, device.1, link.kind != LinkKind::Memory));
    }
    properties.extend([
        property("speed", "r-", speed.to_string(), "", ""),
        property("state", "r-", state.word().to_owned(), "up", "up,down"),
    ]);
    properties
}

/// What only VNICs say. Those of a netstack have lanes as it has.
fn of_vnic(
    vnic: &Vnic,
    mac: Option<MacAddr>,
    cpus: &Cpus,
    (effective, rings): (&[usize], &DeviceRings),
) -> Vec<Property> {
    let Guard { kinds, allowed_ips, allowed_cids } = &vnic.guard;
    let mac = match vnic.mac {
        Mac::Fixed(mac) => Some(mac),
        Mac::Auto | Mac::Random | Mac::Prefixed(_) | Mac::Factory(_) => mac,
    };
    let vid = vnic.vlan.map_or(0, VlanId::id).to_string();
    let has_device = vnic.tap().is_some() || vnic.memif().is_some();
    let mut properties = vec![property("minbw", "rw", shown_rate(vnic.minbw), "", "")];
    properties.extend(of_device(vnic.polling, cpus, effective));
    properties.extend(of_rings(vnic.rings, rings, has_device));
    properties.extend([
        property("mac-address", "rw", mac.map(|it| it.to_string()).unwrap_or_default(), "", ""),
        match vnic.is_vlan {
            true => property("vlan-id", "rw", vid, "", "1-4094"),
            false => property("vlan-id", "rw", vid, "0", "0-4094"),
        },
        property("promisc-filtered", "rw", vnic.promisc_filtered.word().to_owned(), "on", Switch::POSSIBLE),
        property("protection", "rw", kinds.to_string(), "", KINDS),
        property("allowed-ips", "rw", list_of(allowed_ips), "", ""),
        property("allowed-dhcp-cids", "rw", list_of(allowed_cids), "", ""),
    ]);
    properties
}

fn list_of(values: &[impl ToString]) -> String {
    values.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
}

/// What `show-flowprop` lists.
pub(crate) fn of_flow(flow: &Flow, effective: &[usize]) -> Vec<Property> {
    vec![
        property("maxbw", "rw", shown_rate(flow.maxbw), "", ""),
        property("minbw", "rw", shown_rate(flow.minbw), "", ""),
        property("priority", "rw", flow.priority.to_string(), Priority::Medium.word(), PRIORITIES),
        shown_fusing(flow.fusion),
        property("cpus", "rw", flow.cpus.to_string(), "", ""),
        property("cpus-effective", "r-", list_of(effective), "", ""),
    ]
}
