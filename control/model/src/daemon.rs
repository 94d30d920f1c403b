//! Settings of the daemon itself.

use serde::{Deserialize, Serialize};

use crate::limits::LANES_MAX;
use crate::value::{TextValue, serde_as_text};
use crate::{Accounting, Cpus};

/// How many lanes run.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Lanes {
    /// One per CPU that the daemon may use.
    #[default]
    Auto,
    /// This many.
    Count(u16),
}

impl TextValue for Lanes {
    const ALLOWED: &'static str = "lanes is auto or a number from 1 to 256";
    const NUMBER: bool = true;

    fn read(text: &str) -> Option<Self> {
        match text {
            "auto" => Some(Self::Auto),
            _ => text.parse().ok().filter(|n| (1..=LANES_MAX).contains(n)).map(Self::Count),
        }
    }

    fn write(&self) -> String {
        match self {
            Self::Auto => "auto".to_owned(),
            Self::Count(n) => n.to_string(),
        }
    }
}

serde_as_text!(Lanes);

impl core::fmt::Display for Lanes {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.pad(&self.write())
    }
}

/// Settings of the daemon itself.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Daemon {
    /// How many lanes run.
    #[serde(default, skip_serializing_if = "is_auto")]
    pub lanes: Lanes,
    /// The CPUs on which they run: the first lane on the first, and round again; without any, where the kernel likes.
    #[serde(default, skip_serializing_if = "Cpus::is_empty")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<String>, example = "0,2-3"))]
    pub cpus: Cpus,
    /// Of what records are written to a file.
    #[serde(default, skip_serializing_if = "Accounting::is_default")]
    pub accounting: Accounting,
}

fn is_auto(lanes: &Lanes) -> bool {
    *lanes == Lanes::Auto
}

impl Daemon {
    pub(crate) fn is_default(&self) -> bool {
        *self == Self::default()
    }
}
