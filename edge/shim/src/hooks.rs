//! The exported functions, by family. Each turns C's arguments into ours, asks safe code, and answers as C does;
//! what is not about one of our sockets goes on to libc untouched.

use crate::real::Next;

pub(crate) mod becoming;
pub(crate) mod cancelling;
pub(crate) mod confining;
pub(crate) mod control;
pub(crate) mod descriptors;
pub(crate) mod handlers;
pub(crate) mod libraries;
pub(crate) mod locking;
pub(crate) mod messages;
pub(crate) mod names;
pub(crate) mod readiness;
pub(crate) mod sockets;
pub(crate) mod spawning;
pub(crate) mod stdio;
pub(crate) mod syscall;
pub(crate) mod transfer;

/// The functions behind all of ours but those that load libraries.
fn behind() -> impl Iterator<Item = &'static Next> {
    [
        becoming::behind(),
        cancelling::behind(),
        confining::behind(),
        descriptors::behind(),
        handlers::behind(),
        locking::behind(),
        messages::behind(),
        names::behind(),
        readiness::behind(),
        sockets::behind(),
        spawning::behind(),
        stdio::behind(),
        syscall::behind(),
        transfer::behind(),
    ]
    .into_iter()
    .flatten()
    .copied()
}

/// Looks up the functions behind all of ours.
pub(crate) fn resolve() {
    for next in behind() {
        next.address();
    }
    libraries::resolve();
}
