//! When the device of a link is read (`polling`).

use crate::value::{TextValue, serde_as_text};

/// What a link says of reading its device.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Polling {
    /// When it has called, and under load without waiting for a call.
    #[default]
    Auto,
    /// Once for each time that it has called.
    Off,
}

impl Polling {
    /// All of them, in the order in which they are shown.
    pub const ALL: [Self; 2] = [Self::Auto, Self::Off];

    /// What is possible, as it is shown.
    pub const POSSIBLE: &'static str = "auto,off";

    /// What that word says.
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|it| it.word() == word)
    }

    /// The word used in commands and in the file.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Off => "off",
        }
    }
}

impl TextValue for Polling {
    const ALLOWED: &'static str = "polling is auto or off";

    fn read(text: &str) -> Option<Self> {
        Self::from_word(text)
    }

    fn write(&self) -> String {
        self.word().to_owned()
    }
}

serde_as_text!(Polling);

pub(crate) fn is_auto(it: &Polling) -> bool {
    *it == Polling::Auto
}
