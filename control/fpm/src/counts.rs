//! What is counted of a daemon's messages, and why one of them is refused.
//!
//! Written by `feed.rs`; read through [`Feed::counts`](crate::Feed::counts).

/// Why a message, or a frame with messages, was not followed.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Refusal {
    /// A frame that is not of FPM's version 1: the connection ends, because nothing behind it can be found.
    Version,
    /// A frame that is shorter than its own header: the connection ends.
    FrameLength,
    /// A frame with something else than netlink, such as protobuf.
    NotNetlink,
    /// A netlink message that is longer than its frame, or shorter than its own header.
    Length,
    /// A netlink message about something else than routes and next hops.
    MessageType,
    /// An attribute that is cut off or has the wrong length, or one that is missing.
    Attribute,
    /// A family that is neither IPv4 nor IPv6.
    Family,
    /// A destination that nothing is forwarded to: a group, the loopback, or longer than an address.
    Destination,
    /// A route of the kernel in zebra's own namespace, which is none of a routing protocol.
    Kernel,
    /// A route of another table than the main one.
    Table,
    /// A route for some sources only.
    Source,
    /// A kind of route that there is none of here.
    RouteType,
    /// A gateway that is no station's address.
    Gateway,
    /// A label or another encapsulation.
    Encapsulation,
    /// A group of next hops that is empty or too large.
    Group,
    /// As many routes or next hops as there may be.
    Full,
}

impl Refusal {
    /// How many there are.
    const COUNT: usize = 16;

    /// All, in the order in which they are shown.
    pub const ALL: [Self; Self::COUNT] = [
        Self::Version,
        Self::FrameLength,
        Self::NotNetlink,
        Self::Length,
        Self::MessageType,
        Self::Attribute,
        Self::Family,
        Self::Destination,
        Self::Kernel,
        Self::Table,
        Self::Source,
        Self::RouteType,
        Self::Gateway,
        Self::Encapsulation,
        Self::Group,
        Self::Full,
    ];

    /// The word that counters and commands show.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Version => "version",
            Self::FrameLength => "frame_length",
            Self::NotNetlink => "not_netlink",
            Self::Length => "length",
            Self::MessageType => "message_type",
            Self::Attribute => "attribute",
            Self::Family => "family",
            Self::Destination => "destination",
            Self::Kernel => "kernel_route",
            Self::Table => "table",
            Self::Source => "source",
            Self::RouteType => "route_type",
            Self::Gateway => "gateway",
            Self::Encapsulation => "encapsulation",
            Self::Group => "group",
            Self::Full => "full",
        }
    }
}

/// What was counted, and what is there.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counts {
    /// Connections of a daemon.
    pub sessions: u64,
    /// Bytes that were read.
    pub bytes: u64,
    /// Messages that were read, the refused among them.
    pub messages: u64,
    /// Routes that are known.
    pub routes: usize,
    /// Those of them that no connection has confirmed since the one that told them ended.
    pub stale: usize,
    /// Those of them that have no way out at present.
    pub unresolved: usize,
    /// Ways that the netstack has been given for them.
    pub installed: usize,
    /// Next hops that are known.
    pub next_hops: usize,
    /// Routes that were removed because nobody confirmed them.
    pub swept: u64,
    refused: [u64; Refusal::COUNT],
}

impl Counts {
    /// How often there was `why`.
    pub const fn refused(&self, why: Refusal) -> u64 {
        self.refused[why as usize]
    }

    pub(crate) const fn refuse(&mut self, why: Refusal) {
        self.refused[why as usize] += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reason_has_a_place_and_a_word_of_its_own() {
        let mut counts = Counts::default();
        Refusal::ALL.iter().for_each(|&why| counts.refuse(why));
        assert!(Refusal::ALL.iter().all(|&why| counts.refused(why) == 1));
        let words: std::collections::BTreeSet<_> = Refusal::ALL.iter().map(|why| why.word()).collect();
        assert_eq!(words.len(), Refusal::COUNT);
    }
}
