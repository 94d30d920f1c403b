//! With whom connections of a link or a flow may be fused (`fusion`).

use crate::value::{TextValue, serde_as_text};

/// What a link or flow says of fusing its connections.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Fusing {
    /// Those whose two ends are of one netstack may be.
    #[default]
    SameZone,
    /// Those with another netstack on the same switch may be as well, if its end says so, too.
    On,
    /// None may be: segments carry their text.
    Off,
}

impl Fusing {
    /// All of them, in the order in which they are shown.
    pub const ALL: [Self; 3] = [Self::On, Self::Off, Self::SameZone];

    /// What is possible, as it is shown.
    pub const POSSIBLE: &'static str = "on,off,same-zone";

    /// What that word says.
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|it| it.word() == word)
    }

    /// The word used in commands and in the file.
    pub const fn word(self) -> &'static str {
        match self {
            Self::SameZone => "same-zone",
            Self::On => "on",
            Self::Off => "off",
        }
    }
}

impl TextValue for Fusing {
    const ALLOWED: &'static str = "fusion is on, off or same-zone";

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
