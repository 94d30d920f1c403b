//! Properties of address objects: set by name, shown with what holds, what stays and what is possible.

use std::net::IpAddr;

use firelane_model::{AddrObjName, Address, Dhcp, HostName, Model, StaticAddress, Switch};
use firelane_units::IpPrefix;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{ApiError, PropChange, Status};

/// A property of an address object.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct AddrProperty {
    /// Its name.
    pub property: String,
    /// `rw` or `r-`.
    pub perm: String,
    /// The value that holds; empty if there is none.
    pub current: String,
    /// The value that the next start sets; empty if it sets none.
    pub persistent: String,
    /// The value of a property that is not set; empty if there is none.
    pub default: String,
    /// Its possible values.
    pub possible: String,
}

/// Properties of the original that have one value here, and why.
const FIXED: [(&str, &str, &str); 3] = [
    ("private", "off", "no routing daemon runs here that could tell others of an address"),
    (
        "transmit",
        "on",
        "what shall not be sent from is not listed, or protected by protection=ip-nospoof of the VNIC",
    ),
    ("zone", "global", "a zone has a netstack of its own; create-if -N gives it the VNIC"),
];

/// What there is.
const NAMES: [&str; 8] =
    ["broadcast", "deprecated", "prefixlen", "primary", "private", "reqhost", "transmit", "zone"];

/// Sets or resets one property.
pub(crate) fn set(address: &mut Address, change: &PropChange) -> Result<(), ApiError> {
    let (name, value) = (change.name.as_str(), change.value.as_deref());
    let wrong = |status, allowed: String| ApiError::new(status, name, value.unwrap_or_default(), allowed);
    if let Some((_, only, why)) = FIXED.iter().find(|(fixed, ..)| *fixed == name) {
        let is_it = value.is_none_or(|value| value == *only);
        return is_it
            .then_some(())
            .ok_or_else(|| wrong(Status::IpNotSupported, format!("only {only}; {why}")));
    }
    match (name, &mut *address) {
        ("broadcast" | "primary", _) => Err(ApiError::new(Status::PropReadOnly, name, "", "")),
        ("deprecated", Address::Static(it)) => {
            let switch = value.map_or(Some(Switch::Off), Switch::from_word);
            let switch = switch.ok_or_else(|| wrong(Status::InvalidArgument, Switch::POSSIBLE.into()))?;
            it.deprecated = switch.is_on();
            Ok(())
        }
        ("prefixlen", Address::Static(it)) => {
            let own = it.prefix().addr();
            let len = match value {
                None => Address::default_prefix_len(own),
                Some(text) => {
                    text.parse().map_err(|_| wrong(Status::InvalidArgument, lengths(own).into()))?
                }
            };
            let changed = it.with_prefix_len(len);
            let allowed = format!("{}, with an address of a station", lengths(own));
            *it = changed.ok_or_else(|| wrong(Status::OutOfRange, allowed))?;
            Ok(())
        }
        ("reqhost", Address::Dhcp(it)) => {
            let read = |text| {
                HostName::new(text).ok_or_else(|| wrong(Status::InvalidArgument, HostName::ALLOWED.into()))
            };
            it.host_name = value.map(read).transpose()?;
            Ok(())
        }
        ("deprecated" | "prefixlen" | "reqhost", other) => {
            let owner = if name == "reqhost" { "dhcp" } else { "static" };
            let allowed = format!("this one is {}, and {owner} addresses have it", other.kind());
            Err(ApiError::new(Status::IpNotSupported, name, "", allowed))
        }
        _ => Err(ApiError::new(Status::PropUnknown, name, "", NAMES.join(", "))),
    }
}

const fn lengths(addr: IpAddr) -> &'static str {
    if addr.is_ipv4() { "1-32" } else { "1-128" }
}

/// What is shown of an address object; `persistent` is the configuration as the next start makes it, `leased` the
/// address that a server has given.
pub(crate) fn of_address(
    name: &AddrObjName,
    address: Address,
    persistent: &Model,
    leased: Option<IpPrefix>,
) -> Vec<AddrProperty> {
    let kept = persistent.addresses().find(|(_, it, _)| *it == name).map(|(.., kept)| kept);
    let prefix = address.prefix().or(leased);
    let row = |name: &str| {
        let (current, default, possible) = values(name, address, prefix);
        let is_writable = match address {
            Address::Static(_) => matches!(name, "deprecated" | "prefixlen"),
            Address::Dhcp(_) => name == "reqhost",
            Address::Addrconf(_) => false,
        };
        // What `create-addr` alone says is kept, too.
        let is_kept = is_writable || name == "primary";
        let then = kept.filter(|_| is_kept).map(|kept| values(name, kept, kept.prefix()));
        // A length is part of the address; of the rest only what differs from the default is kept.
        let then = then.filter(|(value, default, _)| name == "prefixlen" || value != default);
        AddrProperty {
            property: name.to_owned(),
            perm: if is_writable { "rw" } else { "r-" }.to_owned(),
            persistent: then.map(|it| it.0).unwrap_or_default(),
            current,
            default,
            possible,
        }
    };
    NAMES.into_iter().map(row).collect()
}

/// A property's value, its default and what is possible.
fn values(name: &str, address: Address, prefix: Option<IpPrefix>) -> (String, String, String) {
    if let Some((_, only, _)) = FIXED.iter().find(|(fixed, ..)| *fixed == name) {
        return ((*only).to_owned(), (*only).to_owned(), (*only).to_owned());
    }
    let only = |text: String| (text.clone(), text, String::new());
    let nothing = || only(String::new());
    match (name, address) {
        ("broadcast", _) => only(prefix.and_then(broadcast).unwrap_or_default()),
        ("primary", Address::Dhcp(it)) => {
            let is = if it.primary { "yes" } else { "no" };
            (is.to_owned(), "no".to_owned(), String::new())
        }
        ("deprecated", Address::Static(StaticAddress { deprecated, .. })) => {
            (Switch::from(deprecated).word().into(), Switch::Off.word().into(), Switch::POSSIBLE.into())
        }
        ("prefixlen", _) => match prefix {
            Some(it) => (
                it.prefix_len().to_string(),
                Address::default_prefix_len(it.addr()).to_string(),
                lengths(it.addr()).to_owned(),
            ),
            None => nothing(),
        },
        ("reqhost", Address::Dhcp(Dhcp { host_name, .. })) => {
            (host_name.map(|it| it.to_string()).unwrap_or_default(), String::new(), String::new())
        }
        _ => nothing(),
    }
}

/// The broadcast address of an IPv4 address' subnet, if it has one.
fn broadcast(prefix: IpPrefix) -> Option<String> {
    let IpAddr::V4(addr) = prefix.addr() else { return None };
    let host = u32::MAX.checked_shr(prefix.prefix_len().into()).unwrap_or(0);
    (prefix.prefix_len() < 31).then(|| std::net::Ipv4Addr::from_bits(addr.to_bits() | host).to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn changed(address: &str, name: &str, value: Option<&str>) -> Result<String, Status> {
        let model = format!(
            "[etherstub.s0]\n[vnic.web0]\nover = \"s0\"\nnetstack = \"n\"\n[netstack.n.addresses]\n\"web0/a\" = \"{address}\"\n"
        );
        let model = Model::from_toml("f", &model).unwrap();
        let (.., mut address) = model.addresses().next().unwrap();
        let change = PropChange { name: name.to_owned(), value: value.map(str::to_owned) };
        set(&mut address, &change).map_err(|error| error.status).map(|()| address.to_string())
    }

    #[test]
    fn what_can_be_set_and_what_cannot() {
        use Status as S;
        for (address, name, value, wanted) in [
            ("10.0.0.1/24", "deprecated", Some("on"), Ok("10.0.0.1/24,deprecated=on")),
            ("10.0.0.1/24,deprecated=on", "deprecated", None, Ok("10.0.0.1/24")),
            ("10.0.0.1/24", "deprecated", Some("yes"), Err(S::InvalidArgument)),
            ("dhcp", "deprecated", Some("on"), Err(S::IpNotSupported)),
            ("10.0.0.1/24,deprecated=on", "prefixlen", Some("16"), Ok("10.0.0.1/16,deprecated=on")),
            ("10.0.0.1/24", "prefixlen", None, Ok("10.0.0.1/8")),
            ("fd00::1/48", "prefixlen", None, Ok("fd00::1/64")),
            ("10.0.0.1/24", "prefixlen", Some("31"), Ok("10.0.0.1/31")),
            ("10.0.0.1/24", "prefixlen", Some("33"), Err(S::OutOfRange)),
            ("10.0.0.1/24", "prefixlen", Some("33"), Err(S::OutOfRange)),
            ("10.0.0.1/24", "prefixlen", Some("0"), Err(S::OutOfRange)),
            ("10.0.0.1/24", "prefixlen", Some("long"), Err(S::InvalidArgument)),
            ("10.0.1.0/16", "prefixlen", Some("24"), Err(S::OutOfRange)),
            ("addrconf", "prefixlen", Some("64"), Err(S::IpNotSupported)),
            ("dhcp", "reqhost", Some("web"), Ok("dhcp,reqhost=web")),
            ("dhcp,reqhost=web", "reqhost", None, Ok("dhcp")),
            ("dhcp", "reqhost", Some("a b"), Err(S::InvalidArgument)),
            ("10.0.0.1/24", "reqhost", Some("web"), Err(S::IpNotSupported)),
            ("10.0.0.1/24", "broadcast", Some("10.0.0.255"), Err(S::PropReadOnly)),
            ("dhcp", "primary", Some("yes"), Err(S::PropReadOnly)),
            ("10.0.0.1/24", "transmit", Some("off"), Err(S::IpNotSupported)),
            ("10.0.0.1/24", "transmit", Some("on"), Ok("10.0.0.1/24")),
            ("10.0.0.1/24", "zone", None, Ok("10.0.0.1/24")),
            ("10.0.0.1/24", "colour", Some("red"), Err(S::PropUnknown)),
        ] {
            let is = changed(address, name, value);
            assert_eq!(is.as_deref(), wanted.as_ref().map(|it| *it), "{address} {name}={value:?}");
        }
    }
}
