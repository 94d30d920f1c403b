//! What protects a link from its own user: the words that the model, the switch and the commands share.

use core::fmt;

/// One kind of link protection.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Protection {
    /// Frames are sent from the link's own Ethernet address.
    MacNospoof,
    /// Only IPv4, IPv6 and ARP are sent.
    Restricted,
    /// Packets are sent from allowed IP addresses.
    IpNospoof,
    /// DHCP is asked in the link's own name.
    DhcpNospoof,
}

impl Protection {
    /// All of them, in the order in which a frame is judged and in which they are shown.
    pub const ALL: [Self; 4] = [Self::MacNospoof, Self::Restricted, Self::IpNospoof, Self::DhcpNospoof];

    /// The word used in commands.
    pub const fn word(self) -> &'static str {
        match self {
            Self::MacNospoof => "mac-nospoof",
            Self::Restricted => "restricted",
            Self::IpNospoof => "ip-nospoof",
            Self::DhcpNospoof => "dhcp-nospoof",
        }
    }

    /// The kind of that word.
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.word() == word)
    }
}

/// Which kinds protect a link.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Protections(u8);

impl Protections {
    /// None.
    pub const NONE: Self = Self(0);

    /// Whether no kind is chosen.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Whether `kind` is chosen.
    pub const fn has(self, kind: Protection) -> bool {
        self.0 & 1 << kind as u8 != 0
    }

    /// These and `kind`.
    #[must_use]
    pub const fn with(self, kind: Protection) -> Self {
        Self(self.0 | 1 << kind as u8)
    }
}

impl fmt::Display for Protections {
    /// The words with commas between them; nothing if there is none.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut comma = "";
        for kind in Protection::ALL.into_iter().filter(|&kind| self.has(kind)) {
            write!(f, "{comma}{}", kind.word())?;
            comma = ",";
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_kept_apart_and_shown_in_order() {
        let two = Protections::NONE.with(Protection::IpNospoof).with(Protection::MacNospoof);
        assert_eq!(two.to_string(), "mac-nospoof,ip-nospoof");
        assert!(two.has(Protection::IpNospoof) && !two.has(Protection::Restricted) && !two.is_empty());
        assert_eq!(Protections::NONE.to_string(), "");
        assert!(Protection::ALL.into_iter().all(|kind| Protection::from_word(kind.word()) == Some(kind)));
    }
}
