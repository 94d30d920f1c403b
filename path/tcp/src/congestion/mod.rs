//! Congestion control: how many bytes may be on the way.
//!
//! Owns the congestion window. [`Control`] is an enum so that the packet path dispatches statically; each
//! algorithm has a file. Called by `flight` only.

/// Which algorithm a connection uses.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Algorithm {
    /// RFC 9438 with HyStart++ (RFC 9406).
    #[default]
    Cubic,
    /// RFC 5681 with appropriate byte counting (RFC 3465).
    NewReno,
}

impl Algorithm {
    /// The word used by properties and `tcp_info`.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Cubic => "cubic",
            Self::NewReno => "newreno",
        }
    }
}
