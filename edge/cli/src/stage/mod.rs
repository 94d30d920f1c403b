//! A daemon of a verb's own: `firelane demo` and `firelane lab` start a real `firelaned` beside whatever else runs.
//!
//! - `place.rs`: folders, and for an ordinary user a user namespace. `host.rs`: the daemon and its end.

pub(crate) mod host;
pub(crate) mod place;
