//! Settings of the daemon itself.

use core::time::Duration;

use serde::{Deserialize, Serialize};

use crate::limits::LANES_MAX;
use crate::value::{TextValue, serde_as_text};
use crate::{Accounting, Cpus, Delay};

/// How many lanes run.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Lanes {
    /// One per CPU that the daemon may use, but for one, which is left to programs; up to [`LANES_AUTO_MAX`](crate::LANES_AUTO_MAX).
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

/// How long a lane may run before others that want its CPU come to their turn (`sched_setattr(2)`). Of two threads the one with the
/// shorter slice gets the CPU earlier when it wakes up, and as much of it in the long run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Slice {
    /// As long as the kernel gives to everybody.
    Kernel,
    /// This long.
    Of(Duration),
}

impl Slice {
    /// Linux allows no less, and no more.
    const SHORTEST: Duration = Duration::from_micros(100);
    const LONGEST: Duration = Duration::from_millis(100);

    /// The time, if it is not the kernel's.
    pub const fn duration(self) -> Option<Duration> {
        match self {
            Self::Kernel => None,
            Self::Of(time) => Some(time),
        }
    }

    fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

impl Default for Slice {
    fn default() -> Self {
        Self::Of(Self::SHORTEST)
    }
}

impl TextValue for Slice {
    const ALLOWED: &'static str = "slice is kernel, or a time from 100us to 100ms";

    fn read(text: &str) -> Option<Self> {
        match text {
            "kernel" => Some(Self::Kernel),
            _ => Some(Delay::read(text)?.duration())
                .filter(|time| (Self::SHORTEST..=Self::LONGEST).contains(time))
                .map(Self::Of),
        }
    }

    fn write(&self) -> String {
        match self {
            Self::Kernel => "kernel".to_owned(),
            Self::Of(time) => Delay::of(*time).write(),
        }
    }
}

serde_as_text!(Slice);

impl core::fmt::Display for Slice {
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
    #[cfg_attr(feature = "schema", schema(value_type = String, example = "0,2-3"))]
    pub cpus: Cpus,
    /// How long they run at a time where others want their CPUs.
    #[serde(default, skip_serializing_if = "Slice::is_default")]
    #[cfg_attr(feature = "schema", schema(value_type = String, example = "100us"))]
    pub slice: Slice,
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

    /// Takes from `to` what is other there than in `from`.
    pub fn change(&mut self, from: &Self, to: &Self) {
        // Whoever adds a field finds this place.
        let Self { lanes, cpus, slice, accounting } = to;
        if from.lanes != *lanes {
            self.lanes = *lanes;
        }
        if from.cpus != *cpus {
            self.cpus.clone_from(cpus);
        }
        if from.slice != *slice {
            self.slice = *slice;
        }
        if from.accounting != *accounting {
            self.accounting.clone_from(accounting);
        }
    }

    /// What changes on the way to `to`, setting by setting, so that each stands or fails alone.
    pub fn changes<'a>(&'a self, to: &Self) -> impl Iterator<Item = Self> + use<'a> {
        let alone = [
            Self { lanes: to.lanes, ..self.clone() },
            Self { cpus: to.cpus.clone(), ..self.clone() },
            Self { slice: to.slice, ..self.clone() },
            Self { accounting: to.accounting.clone(), ..self.clone() },
        ];
        alone.into_iter().filter(move |it| it != self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slice_is_the_kernels_or_within_what_linux_allows() {
        for (text, written) in [
            ("kernel", Some("kernel")),
            ("100us", Some("100us")),
            ("0.1ms", Some("100us")),
            ("3ms", Some("3ms")),
            ("100ms", Some("100ms")),
            ("99us", None),
            ("101ms", None),
            ("0", None),
            ("-1ms", None),
            ("auto", None),
            ("", None),
        ] {
            assert_eq!(Slice::read(text).map(|slice| slice.write()).as_deref(), written, "{text}");
        }
        assert_eq!(Slice::default().to_string(), "100us");
    }
}
