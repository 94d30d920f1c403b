//! What becomes of a client's address, and what it has seen: of either family.
//!
//! Told by the clients of `v4` and `v6` to their tasks.

/// Why an address is given up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Loss {
    /// Its time is over and no server has given more.
    Expired,
    /// A server says that it is not ours.
    Refused,
    /// Another station has it.
    Conflict,
    /// The operator gave it back.
    Released,
    /// The server has given another one.
    Replaced,
}

/// When a lease began and when more time is asked for, in seconds since 1970.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Times {
    /// When it was asked for last.
    pub began: u64,
    /// `None` if it does not end.
    pub renews: Option<u64>,
}

/// What a client has seen, by name.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counters {
    /// Messages sent.
    pub sent: u64,
    /// Messages that were for us and were used.
    pub used: u64,
    /// Bytes that were no message.
    pub malformed: u64,
    /// Messages of somebody else's exchange, of a server that was not asked, or at the wrong time.
    pub unasked: u64,
    /// Answers of what no station can use.
    pub unusable: u64,
    /// Refusals that were believed.
    pub refused: u64,
    /// Addresses that another station had.
    pub declined: u64,
}

impl Counters {
    /// Messages that were for the client, whatever it made of them.
    pub const fn received(&self) -> u64 {
        self.used + self.unusable + self.refused
    }

    /// What both have seen.
    #[must_use]
    pub const fn plus(self, other: Self) -> Self {
        Self {
            sent: self.sent + other.sent,
            used: self.used + other.used,
            malformed: self.malformed + other.malformed,
            unasked: self.unasked + other.unasked,
            unusable: self.unusable + other.unusable,
            refused: self.refused + other.refused,
            declined: self.declined + other.declined,
        }
    }
}
