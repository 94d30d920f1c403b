//! Typed indices, transport ports and priorities.
//!
//! Each index is minted by one table and indexes only that table; none of them converts into another.

use core::fmt;
use core::str::FromStr;

macro_rules! numbers {
    ($($(#[$doc:meta])* $name:ident($int:ty)),* $(,)?) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
        pub struct $name(pub $int);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    )*};
}

macro_rules! ids {
    ($($(#[$doc:meta])* $name:ident($int:ty)),* $(,)?) => {
        numbers! { $($(#[$doc])* $name($int)),* }

        $(impl $name {
            /// The position in the table that minted it.
            pub const fn index(self) -> usize {
                self.0 as usize
            }
        })*
    };
}

numbers! {
    /// A link: something frames can be sent on (NIC queue set, TAP, VNIC, etherstub). Minted by the engine, and nobody else's
    /// afterwards: the table for such numbers is `firelane_table::Minted`.
    LinkId(u32),
    /// An administered class of traffic: match, limit, priority, counters. Minted by the engine as links are.
    FlowId(u32),
}

ids! {
    /// A lane: one CPU's vertical perimeter. Dense from zero, minted by the engine.
    LaneId(u16),
    /// An attachment to a virtual switch. Minted by the switch.
    SwitchPortId(u32),
    /// One IP instance. Minted by the engine.
    NetstackId(u16),
    /// A connection's place in its lane's connection table. Minted by that lane.
    ConnId(u32),
    /// A socket's place in its lane's socket table. Minted by that lane.
    SocketId(u32),
    /// Which list of protocol steps a connection's packets pass. The lists are the lane's.
    StepListId(u16),
}

impl LinkId {
    /// The link of packets that a netstack sends to itself, which no switch knows and nobody mints.
    pub const LOOPBACK: Self = Self(u32::MAX);
}

/// A TCP or UDP port number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Port(pub u16);

impl fmt::Display for Port {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// What is served first when a lane cannot serve everything (Solaris: links default to high, flows to
/// medium).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Priority {
    /// Served last.
    Low,
    /// The default of flows.
    Medium,
    /// The default of links.
    High,
}

impl Priority {
    /// All of them, lowest first.
    pub const ALL: [Self; 3] = [Self::Low, Self::Medium, Self::High];

    /// The word used in commands.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Low => "low",
            Self::Medium => "medium",
            Self::High => "high",
        }
    }
}

impl fmt::Display for Priority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.word())
    }
}

impl FromStr for Priority {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::ALL
            .into_iter()
            .find(|p| p.word().eq_ignore_ascii_case(text))
            .ok_or("a priority is low, medium or high")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn priorities_are_ordered_and_read_back() {
        assert!(Priority::Low < Priority::Medium && Priority::Medium < Priority::High);
        for p in Priority::ALL {
            assert_eq!(p.word().parse(), Ok(p));
        }
        assert!("urgent".parse::<Priority>().is_err());
    }
}
