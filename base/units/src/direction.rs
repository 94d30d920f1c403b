//! Which way a frame goes, as the user of a link sees it.
//!
//! Flows, limits and counters are relative to the host's end of a link: inward, the local address is the
//! packet's destination; outward, its source.

/// In or out.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Direction {
    /// Towards the link's user: local is the destination.
    In,
    /// From the link's user: local is the source.
    Out,
}

impl Direction {
    /// Both, inward first.
    pub const ALL: [Self; 2] = [Self::In, Self::Out];

    /// The other one.
    pub const fn turned(self) -> Self {
        match self {
            Self::In => Self::Out,
            Self::Out => Self::In,
        }
    }

    /// The position in a pair of tables.
    pub const fn index(self) -> usize {
        self as usize
    }
}
