//! Names of things, each a type of its own, checked when it is made.
//!
//! The rules are those of the Solaris commands: a link's name ends in a number, an address object is called
//! `interface/string`. Names reach paths, kernel calls and log lines, so nothing but plain ASCII passes.

use core::borrow::Borrow;
use core::fmt;
use core::str::FromStr;

use crate::value::TextValue;

/// Why a name is refused: what would have been allowed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NameError(pub &'static str);

impl fmt::Display for NameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl core::error::Error for NameError {}

macro_rules! names {
    ($($(#[$doc:meta])* $name:ident: $check:ident, $allowed:literal;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(String);

        impl $name {
            /// What is allowed, as one line.
            pub const ALLOWED: &'static str = $allowed;

            /// The name as text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl FromStr for $name {
            type Err = NameError;

            fn from_str(text: &str) -> Result<Self, NameError> {
                if $check(text) { Ok(Self(text.to_owned())) } else { Err(NameError(Self::ALLOWED)) }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Debug::fmt(&self.0, f)
            }
        }

        impl Borrow<str> for $name {
            fn borrow(&self) -> &str {
                &self.0
            }
        }

        impl TextValue for $name {
            const ALLOWED: &'static str = $allowed;

            fn read(text: &str) -> Option<Self> {
                text.parse().ok()
            }

            fn write(&self) -> String {
                self.0.clone()
            }
        }

        crate::value::serde_as_text!($name);
    )*};
}

names! {
    /// The name of a link, VNIC or etherstub; they share one name space (`net0`, `web0`, `vswitch1`).
    LinkName: is_link_name,
        "a link name has at most 31 letters, digits, _ or ., starts with a letter and ends with a number \
         without leading zero";
    /// The name of a flow (`http-1`).
    FlowName: is_flow_name,
        "a flow name has at most 127 letters, digits, _, - or . and starts with a letter";
    /// The name of an address object: `interface/string` (`web0/v4`).
    AddrObjName: is_addrobj_name,
        "an address object is interface/string, such as net0/v4; the string has at most 32 letters, digits \
         or _ and starts with a letter";
    /// The name of a netstack.
    NetstackName: is_short_name,
        "a netstack name has at most 31 letters, digits, _, - or . and starts with a letter";
    /// The name of a service.
    ServiceName: is_short_name,
        "a service name has at most 31 letters, digits, _, - or . and starts with a letter";
    /// The name of a network namespace, as the model says it; see [`crate::Instance`] for the kernel's.
    NamespaceName: is_short_name,
        "a namespace name has at most 31 letters, digits, _, - or . and starts with a letter";
    /// The name of a user or group of the host, or its number.
    AccountName: is_account_name,
        "a user or group is a number, or a name of at most 32 letters, digits, _, - or . that starts with a letter or _";
    /// The name of a kernel network interface.
    IfName: is_if_name,
        "an interface name has at most 15 letters, digits, _, - or . and starts with a letter";
}

impl AddrObjName {
    /// The interface's part of the name.
    pub fn interface(&self) -> &str {
        self.0.split_once('/').map_or(self.as_str(), |(interface, _)| interface)
    }
}

/// Linux gives an interface name 16 bytes with its terminator.
const IF_NAME_MAX: usize = 15;
/// Solaris: `MAXLINKNAMELEN` is 32 with its terminator.
const LINK_NAME_MAX: usize = 31;
/// Solaris: `MAXFLOWNAMELEN` is 128 with its terminator.
const FLOW_NAME_MAX: usize = 127;
/// The string of an address object.
const ADDROBJ_STRING_MAX: usize = 32;
/// Linux' `LOGIN_NAME_MAX` is larger, but no tool makes such a name.
const ACCOUNT_NAME_MAX: usize = 32;
/// The highest instance number of a link: one less than 2^32 - 1.
const LINK_NUMBER_MAX: u64 = 4_294_967_294;

fn is_word(text: &str, max: usize, more: &[u8]) -> bool {
    let plain = |b: u8| b.is_ascii_alphanumeric() || more.contains(&b);
    text.len() <= max && text.starts_with(|c: char| c.is_ascii_alphabetic()) && text.bytes().all(plain)
}

fn is_link_name(text: &str) -> bool {
    let number = &text[text.trim_end_matches(|c: char| c.is_ascii_digit()).len()..];
    let leading_zero = number.len() > 1 && number.starts_with('0');
    is_word(text, LINK_NAME_MAX, b"_.")
        && !leading_zero
        && number.parse::<u64>().is_ok_and(|n| n <= LINK_NUMBER_MAX)
}

fn is_flow_name(text: &str) -> bool {
    is_word(text, FLOW_NAME_MAX, b"_-.")
}

fn is_short_name(text: &str) -> bool {
    is_word(text, LINK_NAME_MAX, b"_-.")
}

fn is_account_name(text: &str) -> bool {
    let number = text.bytes().all(|it| it.is_ascii_digit()) && text.parse::<u32>().is_ok();
    number || is_word(text.strip_prefix('_').unwrap_or(text), ACCOUNT_NAME_MAX, b"_-.")
}

fn is_if_name(text: &str) -> bool {
    is_word(text, IF_NAME_MAX, b"_-.")
}

fn is_addrobj_name(text: &str) -> bool {
    text.split_once('/').is_some_and(|(interface, string)| {
        is_link_name(interface) && is_word(string, ADDROBJ_STRING_MAX, b"_")
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn accounts_are_names_or_numbers() {
        for good in ["alice", "www-data", "_apt", "0", "4294967295"] {
            assert!(good.parse::<AccountName>().is_ok(), "{good}");
        }
        for bad in ["", "4294967296", "1a", "a:b", "a b", "-x", "alice,bob", "\n"] {
            assert!(bad.parse::<AccountName>().is_err(), "{bad:?}");
        }
    }

    #[test]
    fn link_names() {
        for good in ["net0", "vswitch1", "a0", "bge123000", "web.v_0", "x4294967294", "a1b2"] {
            assert!(good.parse::<LinkName>().is_ok(), "{good}");
        }
        let long = format!("{}0", "a".repeat(31));
        let bad =
            ["", "net", "0net0", "net01", "net00", "net-0", "../x0", "a\0b0", "nét0", "x4294967295", " net0"];
        for bad in bad.into_iter().chain([long.as_str()]) {
            assert_eq!(bad.parse::<LinkName>(), Err(NameError(LinkName::ALLOWED)), "{bad:?}");
        }
    }

    #[test]
    fn address_objects_name_their_interface() {
        let name: AddrObjName = "web0/v4".parse().unwrap();
        assert_eq!(name.interface(), "web0");
        for bad in ["web0", "web/v4", "web0/", "web0/4", "web0/v4/x", "/v4", "web0/v-4"] {
            assert!(bad.parse::<AddrObjName>().is_err(), "{bad:?}");
        }
    }

    #[test]
    fn other_names() {
        assert!("http-1".parse::<FlowName>().is_ok());
        assert!("a".repeat(127).parse::<FlowName>().is_ok());
        assert!("a".repeat(128).parse::<FlowName>().is_err());
        assert!("abcdefghijklmno".parse::<IfName>().is_ok());
        assert!("abcdefghijklmnop".parse::<IfName>().is_err());
        for bad in ["", ".", "..", "a/b", "a b", "-a", "a\n"] {
            assert!(bad.parse::<NamespaceName>().is_err(), "{bad:?}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_refused_or_kept_as_it_is(text in ".{0,40}") {
            if let Ok(name) = text.parse::<LinkName>() {
                prop_assert!(name.as_str() == text && text.is_ascii());
            }
        }
    }
}
