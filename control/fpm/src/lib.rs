//! The routes of a routing daemon: what FRR's zebra says through its module `dplane_fpm_nl`, read, kept and compared.
//!
//! Sans-I/O: `control/daemon` owns the connection and the clock. Bytes go into a [`Feed`], and changes of routes come out, in an
//! order in which a destination that has a way before and after a change has one all the time. What cannot be read or
//! kept is counted with a [`Refusal`], and the rest goes on. The stream is FPM version 1 with netlink inside (FRR's
//! `fpm/fpm.h`): `RTM_NEWROUTE`, `RTM_DELROUTE` and the next hops that they name (`RTM_NEWNEXTHOP`, `RTM_DELNEXTHOP`).
#![forbid(unsafe_code)]

mod counts;
mod feed;
mod frames;
mod hops;
mod message;
mod table;

pub use counts::{Counts, Refusal};
pub use feed::{Config, Feed};
pub use frames::Broken;
pub use table::{Change, End, Hop, Sink, Whence};
