//! The simple TCP/IP services: ordinary users of the crate `firelane`, for laboratories and measurements.
//!
//! Echo (RFC 862), discard (RFC 863) and character generator (RFC 864) as inetd has them, and sink, which takes what
//! comes and at the end says how much that was. Called by the daemon, once for each stream ([`serve`]) and once for
//! each datagram socket ([`answer`]).
//!
//! - `stream.rs`: over any stream, so that the same code runs over Firelane's TCP and over a pipe in a test.
//! - `datagram.rs`: over UDP; what a datagram is answered with is a function of its own.
//! - `pattern.rs`: the lines of the character generator.
#![forbid(unsafe_code)]

mod datagram;
mod pattern;
mod stream;

pub use datagram::answer;
pub use stream::serve;

/// What a service does with what it is sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Simple {
    /// Sends it back (RFC 862).
    Echo,
    /// Throws it away (RFC 863).
    Discard,
    /// Throws it away and sends characters (RFC 864).
    Chargen,
    /// Counts it, and says at the end how much it was.
    Sink,
}
