//! Protocol properties of a netstack: set by name, shown with what holds, what stays and what is possible.

use firelane_model::{Netstack, Prop, PropertyError, Protocol, Tunables};

use crate::{ApiError, PropChange, ProtocolProperty, Status};

impl From<PropertyError> for ApiError {
    fn from(error: PropertyError) -> Self {
        let status = match error {
            PropertyError::Unknown(_) => Status::PropUnknown,
            PropertyError::Absent(_) => Status::IpNotSupported,
            PropertyError::Malformed(_) => Status::InvalidArgument,
            PropertyError::OutOfRange(_) => Status::OutOfRange,
        };
        Self { status, ..error.into_field().into() }
    }
}

/// Sets or resets one property, named as `tcp.send_buf`; `tcp.extra_priv_ports+` adds to several values, `-` takes from them.
pub(crate) fn set(tunables: &mut Tunables, change: &PropChange) -> Result<(), ApiError> {
    let (protocol, name) = change.name.split_once('.').unwrap_or_default();
    let unknown = || {
        let allowed = "a protocol and a property, such as tcp.send_buf";
        ApiError::new(Status::PropUnknown, "property", &change.name, allowed)
    };
    let (name, sign) = match name.strip_suffix(['+', '-']) {
        Some(rest) => (rest, name.chars().next_back()),
        None => (name, None),
    };
    let prop = Prop::find(Protocol::from_word(protocol).ok_or_else(unknown)?, name)?;
    match &change.value {
        Some(text) if sign == Some('+') => tunables.add(prop, text)?,
        Some(text) if sign == Some('-') => tunables.take(prop, text)?,
        Some(text) => tunables.set(prop, text)?,
        None => tunables.reset(prop),
    }
    Ok(())
}

/// Every property of a netstack; `persistent` is the netstack as the next start makes it.
pub(crate) fn of_netstack(netstack: &Netstack, persistent: Option<&Netstack>) -> Vec<ProtocolProperty> {
    let property = |prop: &Prop| {
        let line = prop.line();
        let kept = persistent.and_then(|it| it.tunables.get(*prop));
        ProtocolProperty {
            protocol: line.protocol.word().to_owned(),
            property: line.name.to_owned(),
            perm: "rw".to_owned(),
            current: netstack.tunables.effective(*prop).to_string(),
            persistent: kept.map(|it| it.to_string()).unwrap_or_default(),
            default: line.default.to_string(),
            possible: line.allowed.to_string(),
        }
    };
    Prop::ALL.iter().map(property).collect()
}
