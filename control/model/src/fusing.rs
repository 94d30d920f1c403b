//! Whether connections of a netstack with itself may be fused that belong to a link or a flow (`fusion`).

use crate::value::{TextValue, serde_as_text};

/// What a link or flow says of fusing its connections.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Fusing {
    /// Those whose two ends are of one netstack may be.
    #[default]
    SameZone,
    /// None may be: segments carry their text.
    Off,
}

impl Fusing {
    /// What is possible, as it is shown. Connections between netstacks are never fused, so there is no `on`.
    pub const POSSIBLE: &'static str = "same-zone,off";

    /// What that word says.
    pub fn from_word(word: &str) -> Option<Self> {
        [Self::SameZone, Self::Off].into_iter().find(|it| it.word() == word)
    }

    /// The word used in commands and in the file.
    pub const fn word(self) -> &'static str {
        match self {
            Self::SameZone => "same-zone",
            Self::Off => "off",
        }
    }
}

impl TextValue for Fusing {
    const ALLOWED: &'static str =
        "fusion is same-zone or off (connections between netstacks are never fused)";

    fn read(text: &str) -> Option<Self> {
        Self::from_word(text)
    }

    fn write(&self) -> String {
        self.word().to_owned()
    }
}

serde_as_text!(Fusing);

pub(crate) fn is_same_zone(it: &Fusing) -> bool {
    *it == Fusing::SameZone
}
