//! How an interface asks for an IPv4 address (`ipadm create-addr -T dhcp`): what the operator chooses of it.
//!
//! Part of `address.rs`' words: `dhcp`, `dhcp,reqhost=web`, `dhcp,linklocal=yes`, `dhcp,primary=yes`.

use core::fmt;

/// The word of the file and of `ipadm -T`.
pub(crate) const DHCP: &str = "dhcp";

/// An address that a server gives.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Dhcp {
    /// The host name that is asked for (`-h`).
    pub host_name: Option<HostName>,
    /// Whether the interface has an address of the link alone while no server gives one (RFC 3927).
    pub link_local: bool,
    /// Whether its lease's routes and name servers come before those of other leases (`-1`).
    pub primary: bool,
}

impl Dhcp {
    pub(crate) fn read(text: &str) -> Option<Self> {
        let mut words = text.split(',');
        words.next().filter(|word| *word == DHCP)?;
        words.try_fold(Self::default(), |mut conf, word| {
            match word.split_once('=')? {
                ("reqhost", name) => conf.host_name = Some(HostName::new(name)?),
                ("linklocal", "yes") => conf.link_local = true,
                ("linklocal", "no") => conf.link_local = false,
                ("primary", "yes") => conf.primary = true,
                ("primary", "no") => conf.primary = false,
                _ => return None,
            }
            Some(conf)
        })
    }

    pub(crate) fn write(&self) -> String {
        let host_name = self.host_name.map(|name| format!(",reqhost={name}")).unwrap_or_default();
        let link_local = if self.link_local { ",linklocal=yes" } else { "" };
        let primary = if self.primary { ",primary=yes" } else { "" };
        format!("{DHCP}{host_name}{link_local}{primary}")
    }
}

/// The longest name that is asked for: what one option of DHCP carries of a label, which is also a label's length.
const NAME_MAX: usize = 63;

/// A host's name: letters, digits and `-`, with dots between.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HostName {
    text: [u8; NAME_MAX],
    len: u8,
}

impl HostName {
    /// What is allowed.
    pub const ALLOWED: &'static str =
        "1 to 63 letters, digits, '-' and '.', each part beginning and ending with a letter or digit";

    /// `None` if it is no host's name.
    pub fn new(name: &str) -> Option<Self> {
        let is_part = |part: &str| {
            let is_sane = |c: char| c.is_ascii_alphanumeric() || c == '-';
            !part.is_empty() && !part.starts_with('-') && !part.ends_with('-') && part.chars().all(is_sane)
        };
        if name.len() > NAME_MAX || !name.split('.').all(is_part) {
            return None;
        }
        let mut text = [0; NAME_MAX];
        text[..name.len()].copy_from_slice(name.as_bytes());
        Some(Self { text, len: name.len() as u8 })
    }

    /// The name.
    pub fn as_str(&self) -> &str {
        core::str::from_utf8(&self.text[..usize::from(self.len)])
            .expect("it has only letters, digits, '-' and '.'")
    }
}

impl fmt::Display for HostName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl fmt::Debug for HostName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_and_nothing_else() {
        for text in [
            "dhcp",
            "dhcp,primary=yes",
            "dhcp,reqhost=w",
            "dhcp,reqhost=web-1.lab",
            "dhcp,reqhost=w,linklocal=yes,primary=yes",
        ] {
            assert_eq!(Dhcp::read(text).unwrap().write(), text);
        }
        let long = format!("dhcp,reqhost={}", "a".repeat(64));
        for bad in [
            "dhcpv6",
            "dhcp,",
            "dhcp,primary",
            "dhcp,primary=maybe",
            "dhcp,linklocal",
            "dhcp,linklocal=maybe",
            "dhcp,reqhost=",
            "dhcp,reqhost=-w",
            "dhcp,reqhost=a..b",
            "dhcp,reqhost=a b",
            "dhcp,reqhost=$(x)",
            &long,
        ] {
            assert_eq!(Dhcp::read(bad), None, "{bad}");
        }
    }
}
