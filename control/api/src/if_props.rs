//! Properties of IP interfaces: set by family and name, shown with what holds, what stays and what is possible.

use firelane_model::{
    FixedProp, IfProp, IfProps, LinkName, Model, Netstack, Prop, Protocol, ReversePath, Switch, Tunables,
    mtu_least,
};
use firelane_units::Mtu;

use crate::{ApiError, PropChange, ProtocolProperty, Status};

/// What `usesrc` says of an interface that uses its own addresses.
const NO_SOURCE: &str = "none";

/// Sets or resets one property of the interface `name`, called as `ipv4.mtu`.
pub(crate) fn set(model: &mut Model, name: &LinkName, change: &PropChange) -> Result<(), ApiError> {
    let link_mtu = model.mtu_of(name.as_str()).unwrap_or(Mtu::ETHERNET);
    let netstack = model.vnics.get(name).and_then(|vnic| vnic.netstack()).cloned().ok_or(Status::NoIf)?;
    let is_its =
        |it: &LinkName| it != name && model.vnics.get(it).and_then(|vnic| vnic.netstack()) == Some(&netstack);
    let (protocol, prop) = find(&change.name)?;
    let value = change.value.as_deref();
    let wrong =
        |status, allowed: String| ApiError::new(status, prop.name(), value.unwrap_or_default(), allowed);
    let mut said = IfProps::default();
    match (prop, value) {
        (IfProp::Fixed(fixed), Some(text)) if text != fixed.value => return Err(fixed_to(fixed, text)),
        (IfProp::Fixed(_), _) => return Ok(()),
        (_, None) => {}
        (IfProp::Forwarding, Some(text)) => {
            let switch = Switch::from_word(text);
            said.forwarding =
                Some(switch.ok_or_else(|| wrong(Status::InvalidArgument, Switch::POSSIBLE.into()))?);
        }
        (IfProp::Mtu, Some(text)) => {
            let range = mtu_range(protocol, link_mtu);
            let number: u32 = text.parse().map_err(|_| wrong(Status::InvalidArgument, range.clone()))?;
            let is_allowed = |mtu: &Mtu| mtu.bytes() >= mtu_least(protocol) && *mtu <= link_mtu;
            let mtu = u16::try_from(number).ok().and_then(Mtu::new).filter(is_allowed);
            said.mtu = Some(mtu.ok_or_else(|| wrong(Status::OutOfRange, range))?);
        }
        (IfProp::Rpfilter, Some(text)) => {
            let mode = ReversePath::from_word(text);
            let allowed = || wrong(Status::InvalidArgument, ReversePath::POSSIBLE.into());
            said.rpfilter = Some(mode.ok_or_else(allowed)?);
        }
        (IfProp::Usesrc, Some(NO_SOURCE)) => {}
        (IfProp::Usesrc, Some(text)) => {
            let source = text.parse().ok().filter(is_its);
            let allowed = "another interface of the netstack, or none";
            said.usesrc = Some(source.ok_or_else(|| wrong(Status::InvalidArgument, allowed.into()))?);
        }
    }
    let interfaces = &mut model.netstacks.entry(netstack).or_default().interfaces;
    let interface = interfaces.entry(name.clone()).or_default();
    if let Some(props) = interface.family_mut(protocol) {
        match prop {
            IfProp::Forwarding => props.forwarding = said.forwarding,
            IfProp::Mtu => props.mtu = said.mtu,
            IfProp::Usesrc => props.usesrc = said.usesrc,
            IfProp::Rpfilter => props.rpfilter = said.rpfilter,
            IfProp::Fixed(_) => {}
        }
    }
    interfaces.retain(|_, it| !it.is_default());
    Ok(())
}

fn find(name: &str) -> Result<(Protocol, IfProp), ApiError> {
    let (protocol, prop) = name.split_once('.').unwrap_or_default();
    let unknown = || {
        let allowed = "a protocol and a property, such as ipv4.forwarding";
        ApiError::new(Status::PropUnknown, "property", name, allowed)
    };
    let protocol = Protocol::from_word(protocol).ok_or_else(unknown)?;
    Ok((protocol, IfProp::find(protocol, prop)?))
}

fn fixed_to(fixed: &FixedProp, text: &str) -> ApiError {
    ApiError::new(Status::IpNotSupported, fixed.name, text, format!("only {}; {}", fixed.value, fixed.why))
}

fn mtu_range(protocol: Protocol, link_mtu: Mtu) -> String {
    format!("{}-{link_mtu}", mtu_least(protocol))
}

/// Every property of the interface `name`; `persistent` is the configuration as the next start makes it.
pub(crate) fn of_interface(
    model: &Model,
    persistent: &Model,
    name: &str,
) -> Result<Vec<ProtocolProperty>, ApiError> {
    let (name, vnic) = model.vnics.get_key_value(name).ok_or(Status::NoIf)?;
    let netstack = vnic.netstack().and_then(|it| model.netstacks.get(it)).ok_or(Status::NoIf)?;
    let kept = vnic.netstack().and_then(|it| persistent.netstacks.get(it));
    let link_mtu = model.mtu_of(name.as_str()).unwrap_or(Mtu::ETHERNET);
    let said = |netstack: &Netstack, protocol| {
        let mut interface = netstack.interfaces.get(name).cloned().unwrap_or_default();
        interface.family_mut(protocol).map(|it| it.clone()).unwrap_or_default()
    };
    let mut all = Vec::new();
    for protocol in [Protocol::Ipv4, Protocol::Ipv6, Protocol::Ip] {
        let then = kept.map(|it| said(it, protocol)).unwrap_or_default();
        let mut now = said(netstack, protocol);
        // The link may have become smaller since.
        now.mtu = now.mtu.filter(|mtu| *mtu <= link_mtu);
        for prop in IfProp::of(protocol) {
            let default = default_of(*prop, protocol, &netstack.tunables, link_mtu);
            all.push(ProtocolProperty {
                protocol: protocol.word().to_owned(),
                property: prop.name().to_owned(),
                perm: if matches!(prop, IfProp::Fixed(_)) { "r-" } else { "rw" }.to_owned(),
                current: spelled(*prop, &now).unwrap_or_else(|| default.clone()),
                persistent: spelled(*prop, &then).unwrap_or_default(),
                possible: match prop {
                    IfProp::Forwarding => Switch::POSSIBLE.to_owned(),
                    IfProp::Mtu => mtu_range(protocol, link_mtu),
                    IfProp::Usesrc => String::new(),
                    IfProp::Rpfilter => ReversePath::POSSIBLE.to_owned(),
                    IfProp::Fixed(fixed) => fixed.value.to_owned(),
                },
                default,
            });
        }
    }
    Ok(all)
}

fn spelled(prop: IfProp, said: &IfProps) -> Option<String> {
    match prop {
        IfProp::Forwarding => said.forwarding.map(|it| it.word().to_owned()),
        IfProp::Mtu => said.mtu.map(|it| it.to_string()),
        IfProp::Usesrc => said.usesrc.as_ref().map(ToString::to_string),
        IfProp::Rpfilter => said.rpfilter.map(|it| it.word().to_owned()),
        IfProp::Fixed(_) => None,
    }
}

/// What holds of a property of which nothing is said: the netstack's word, or the link's.
fn default_of(prop: IfProp, protocol: Protocol, tunables: &Tunables, link_mtu: Mtu) -> String {
    match (prop, protocol) {
        (IfProp::Forwarding, Protocol::Ipv6) => tunables.word(Prop::Forwarding6).to_owned(),
        (IfProp::Forwarding, _) => tunables.word(Prop::Forwarding4).to_owned(),
        (IfProp::Mtu, _) => link_mtu.to_string(),
        (IfProp::Usesrc, _) => NO_SOURCE.to_owned(),
        (IfProp::Rpfilter, _) => ReversePath::Off.word().to_owned(),
        (IfProp::Fixed(fixed), _) => fixed.value.to_owned(),
    }
}
