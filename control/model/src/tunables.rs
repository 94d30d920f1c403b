//! A netstack's tunables: the protocol properties that an administrator may set.
//!
//! The names are those of `ipadm set-prop`; each is absent unless set, and the stack's own default holds.

use core::time::Duration;

use serde::{Deserialize, Serialize};

use crate::FieldError;
use crate::value::{self, TextValue, serde_as_text};

/// Which congestion control new connections use.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Congestion {
    /// RFC 9438.
    Cubic,
    /// RFC 6582.
    NewReno,
}

impl TextValue for Congestion {
    const ALLOWED: &'static str = "a congestion control is cubic or newreno";

    fn read(text: &str) -> Option<Self> {
        match text {
            "cubic" => Some(Self::Cubic),
            "newreno" => Some(Self::NewReno),
            _ => None,
        }
    }

    fn write(&self) -> String {
        match self {
            Self::Cubic => "cubic",
            Self::NewReno => "newreno",
        }
        .to_owned()
    }
}

serde_as_text!(Congestion);

/// A whole number with limits, so that a tunable that exists is usable.
macro_rules! bounded {
    ($($(#[$doc:meta])* $name:ident($int:ty) = $min:literal..=$max:literal, $allowed:literal;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub(crate) struct $name(pub(crate) $int);

        impl TextValue for $name {
            const ALLOWED: &'static str = $allowed;
            const NUMBER: bool = true;

            fn read(text: &str) -> Option<Self> {
                text.parse().ok().filter(|n| ($min..=$max).contains(n)).map(Self)
            }

            fn write(&self) -> String {
                self.0.to_string()
            }
        }
    )*};
}

bounded! {
    /// A time to live or hop limit.
    HopLimit(u8) = 1..=255, "a time to live or hop limit is a number from 1 to 255";
    /// A socket buffer: from one page to what a 64-bit host can spare for one connection.
    Buffer(u32) = 4_096..=1_073_741_824, "a socket buffer is a number of bytes from 4096 to 1073741824";
    /// A time in milliseconds, up to the ten minutes that Solaris allows for TIME_WAIT.
    Millis(u32) = 1_000..=600_000, "a time is a number of milliseconds from 1000 to 600000";
    /// A listen backlog (Solaris: 1 to 2^31 - 1; here bounded by what one listener may hold).
    Backlog(u32) = 1..=65_536, "a backlog is a number from 1 to 65536";
}

/// The protocol properties of one netstack.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Tunables {
    #[serde(default, with = "value::option", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<u8>, minimum = 1))]
    ttl: Option<HopLimit>,
    #[serde(default, with = "value::option", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<u8>, minimum = 1))]
    hoplimit: Option<HopLimit>,
    #[serde(default, with = "value::option", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<u32>, minimum = 4096))]
    send_buf: Option<Buffer>,
    #[serde(default, with = "value::option", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<u32>, minimum = 4096))]
    recv_buf: Option<Buffer>,
    #[serde(default, with = "value::option", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<u32>, minimum = 1))]
    conn_req_max: Option<Backlog>,
    #[serde(default, with = "value::option", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<u32>, minimum = 1000))]
    time_wait_interval: Option<Millis>,
    /// Which congestion control new connections use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub congestion_control: Option<Congestion>,
}

impl Tunables {
    /// The time to live of IPv4 packets.
    pub fn ttl(&self) -> Option<u8> {
        self.ttl.map(|n| n.0)
    }

    /// The hop limit of IPv6 packets.
    pub fn hoplimit(&self) -> Option<u8> {
        self.hoplimit.map(|n| n.0)
    }

    /// A new socket's send buffer, in bytes.
    pub fn send_buf(&self) -> Option<u32> {
        self.send_buf.map(|n| n.0)
    }

    /// A new socket's receive buffer, in bytes.
    pub fn recv_buf(&self) -> Option<u32> {
        self.recv_buf.map(|n| n.0)
    }

    /// The most finished connections that wait for one listener.
    pub fn conn_req_max(&self) -> Option<u32> {
        self.conn_req_max.map(|n| n.0)
    }

    /// How long a closed connection's addresses and ports rest.
    pub fn time_wait_interval(&self) -> Option<Duration> {
        self.time_wait_interval.map(|n| Duration::from_millis(n.0.into()))
    }

    /// Sets or, with an empty text, resets the property `name`.
    pub fn set(&mut self, name: &str, text: &str) -> Result<(), FieldError> {
        fn put<T: TextValue>(slot: &mut Option<T>, name: &str, text: &str) -> Result<(), FieldError> {
            *slot = match text {
                "" => None,
                _ => Some(T::read(text).ok_or_else(|| FieldError::new(name, text, T::ALLOWED))?),
            };
            Ok(())
        }
        match name {
            "ttl" => put(&mut self.ttl, name, text),
            "hoplimit" => put(&mut self.hoplimit, name, text),
            "send_buf" => put(&mut self.send_buf, name, text),
            "recv_buf" => put(&mut self.recv_buf, name, text),
            "conn_req_max" => put(&mut self.conn_req_max, name, text),
            "time_wait_interval" => put(&mut self.time_wait_interval, name, text),
            "congestion_control" => put(&mut self.congestion_control, name, text),
            _ => Err(FieldError::new(name, text, format!("a property is {}", Self::NAMES.join(", ")))),
        }
    }

    /// The properties' names.
    pub const NAMES: [&'static str; 7] = [
        "ttl",
        "hoplimit",
        "send_buf",
        "recv_buf",
        "conn_req_max",
        "time_wait_interval",
        "congestion_control",
    ];

    /// Whether nothing is set.
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_can_be_set_and_reset() {
        let mut tunables = Tunables::default();
        for name in Tunables::NAMES {
            let value = if name == "congestion_control" { "newreno" } else { "5000" };
            let value = if matches!(name, "ttl" | "hoplimit") { "64" } else { value };
            tunables.set(name, value).unwrap();
            assert!(!tunables.is_default(), "{name}");
            tunables.set(name, "").unwrap();
            assert!(tunables.is_default(), "{name}");
        }
        assert_eq!(tunables.set("ttl", "0").unwrap_err().field, "ttl");
        assert!(tunables.set("_secret", "1").unwrap_err().allowed.contains("send_buf"));
    }
}
