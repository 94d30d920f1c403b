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
