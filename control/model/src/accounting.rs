//! Accounting of what links and flows carry, to a file (`acctadm`).
//!
//! In the file: `[daemon.accounting]` with `file = "/var/log/net.log"`, `net = "extended"` and `active = true`.

use serde::{Deserialize, Serialize};

use crate::FieldError;
use crate::value::{TextValue, serde_as_text};

/// What is accounted of, and where records go.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Accounting {
    /// Whether records are written.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub active: bool,
    /// The file to which they are added; without one nobody writes any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// Of what.
    #[serde(default, skip_serializing_if = "Tracked::is_none")]
    pub net: Tracked,
}

/// Of what records are written: the items that they have. Of flows, if these include whose link a flow is on.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Tracked(u16);

impl Tracked {
    /// The items of records, in their order.
    pub const ITEMS: [&'static str; 12] = [
        "name", "devname", "curtime", "seconds", "ibytes", "obytes", "ipkts", "opkts", "ierrpkts",
        "oerrpkts", "rfused", "ofused",
    ];
    /// What every record has: whose it is, and of when.
    pub const ALWAYS: Self = Self(0b1101);
    /// The link of a flow.
    const LINK: Self = Self(0b10);
    /// Nothing.
    pub const NONE: Self = Self(0);
    /// All that links have.
    pub const BASIC: Self = Self(Self::EXTENDED.0 & !Self::LINK.0);
    /// All that links and flows have.
    pub const EXTENDED: Self = Self((1 << Self::ITEMS.len()) - 1);

    /// A single item.
    pub fn item(word: &str) -> Option<Self> {
        Self::ITEMS.iter().position(|item| *item == word).map(|at| Self(1 << at))
    }

    /// Whether all of these are tracked.
    pub const fn has(self, items: Self) -> bool {
        self.0 & items.0 == items.0
    }

    /// Whether records are written of flows, and not of links alone.
    pub const fn is_of_flows(self) -> bool {
        self.has(Self::LINK)
    }

    /// With these as well, and with what every record has.
    #[must_use]
    pub const fn with(self, items: Self) -> Self {
        Self(self.0 | items.0 | if items.0 == 0 { 0 } else { Self::ALWAYS.0 })
    }

    /// Without these; without counters nothing is tracked.
    #[must_use]
    pub const fn without(self, items: Self) -> Self {
        let left = self.0 & !items.0;
        if Self(left).counts() { Self(left | Self::ALWAYS.0) } else { Self::NONE }
    }

    /// Whether there is a counter among them.
    const fn counts(self) -> bool {
        self.0 & !Self::ALWAYS.0 & !Self::LINK.0 != 0
    }

    /// Those that are not tracked.
    #[must_use]
    pub const fn rest(self) -> Self {
        Self(Self::EXTENDED.0 & !self.0)
    }

    /// As commands name them: a group, or item by item.
    pub fn words(self) -> String {
        match self {
            Self::NONE => "none".to_owned(),
            Self::BASIC => "basic".to_owned(),
            Self::EXTENDED => "extended".to_owned(),
            _ => self.items(),
        }
    }

    /// Item by item.
    pub fn items(self) -> String {
        let its = Self::ITEMS.iter().enumerate().filter(|(at, _)| self.0 >> at & 1 == 1);
        its.map(|(_, item)| *item).collect::<Vec<_>>().join(",")
    }

    fn is_none(&self) -> bool {
        *self == Self::NONE
    }
}

impl TextValue for Tracked {
    const ALLOWED: &'static str =
        "none, basic, extended, or a list of items of records, such as ibytes,obytes";

    fn read(text: &str) -> Option<Self> {
        match text {
            "none" => Some(Self::NONE),
            "basic" => Some(Self::BASIC),
            "extended" => Some(Self::EXTENDED),
            _ => text.split(',').try_fold(Self::NONE, |all, word| Some(all.with(Self::item(word)?))),
        }
    }

    fn write(&self) -> String {
        self.words()
    }
}

serde_as_text!(Tracked);

impl Accounting {
    pub(crate) fn is_default(&self) -> bool {
        *self == Self::default()
    }

    /// The file to which records are written now, if any are.
    pub fn writes_to(&self) -> Option<&str> {
        self.file.as_deref().filter(|_| self.active && self.net != Tracked::NONE)
    }

    /// The file that is to take records, though nothing may be tracked yet.
    pub fn begins_with(&self) -> Option<&str> {
        self.file.as_deref().filter(|_| self.active)
    }

    /// What is wrong with it.
    pub(crate) fn fault(&self) -> Option<FieldError> {
        if self.net != Tracked::NONE && !self.net.counts() {
            let allowed = "at least one counter, such as ibytes";
            return Some(FieldError::new("daemon.accounting.net", self.net.words(), allowed));
        }
        let file = self.file.as_deref()?;
        let is_place = file.starts_with('/') && !file.ends_with('/') && !file.contains('\0');
        let allowed = "an absolute path of a file";
        (!is_place).then(|| FieldError::new("daemon.accounting.file", file, allowed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_come_and_go_and_read_as_they_are_written() {
        let items = |text: &str| Tracked::read(text).unwrap_or_else(|| panic!("{text}"));
        for text in ["none", "basic", "extended"] {
            assert_eq!(items(text).write(), text);
        }
        let bytes = items("ibytes,obytes");
        assert_eq!(bytes.write(), "name,curtime,seconds,ibytes,obytes");
        assert_eq!(items(&bytes.write()), bytes);
        assert!(!bytes.is_of_flows() && bytes.with(items("devname,ibytes")).is_of_flows());
        assert_eq!(bytes.without(Tracked::item("ibytes").unwrap()).write(), "name,curtime,seconds,obytes");
        assert_eq!(bytes.without(bytes), Tracked::NONE, "without a counter there is nothing to record");
        assert_eq!(Tracked::EXTENDED.without(Tracked::item("devname").unwrap()), Tracked::BASIC);
        assert_eq!(Tracked::BASIC.rest().items(), "devname");
        assert_eq!(Tracked::NONE.with(Tracked::NONE), Tracked::NONE);
        for wrong in ["", "ibytes,", "bytes", "basic,ibytes", "IBYTES"] {
            assert_eq!(Tracked::read(wrong), None, "{wrong:?}");
        }
    }
}
