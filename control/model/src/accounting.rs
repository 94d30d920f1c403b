//! Accounting of what links and flows carry, to a file (`acctadm`).
//!
//! In the file: `[daemon.accounting]` with `file = "/var/log/net.log"`, `net = "extended"` and `active = true`.

use serde::{Deserialize, Serialize};

use crate::FieldError;

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

/// Of what records are written.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum Tracked {
    /// Of nothing.
    #[default]
    None,
    /// Of links.
    Basic,
    /// Of links and flows.
    Extended,
}

impl Tracked {
    /// The word in commands.
    pub const fn word(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Basic => "basic",
            Self::Extended => "extended",
        }
    }

    fn is_none(&self) -> bool {
        *self == Self::None
    }
}

impl Accounting {
    pub(crate) fn is_default(&self) -> bool {
        *self == Self::default()
    }

    /// The file to which records are written now, if any are.
    pub fn writes_to(&self) -> Option<&str> {
        self.file.as_deref().filter(|_| self.active && self.net != Tracked::None)
    }

    /// What is wrong with it.
    pub(crate) fn fault(&self) -> Option<FieldError> {
        let file = self.file.as_deref()?;
        let is_place = file.starts_with('/') && !file.ends_with('/') && !file.contains('\0');
        let allowed = "an absolute path of a file";
        (!is_place).then(|| FieldError::new("daemon.accounting.file", file, allowed))
    }
}
