//! The exported functions, by family. Each turns C's arguments into ours, asks safe code, and answers as C does;
//! what is not about one of our sockets goes on to libc untouched.

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

/// Looks up the functions behind all of ours.
pub(crate) fn resolve() {
    becoming::resolve();
    cancelling::resolve();
    confining::resolve();
    descriptors::resolve();
    handlers::resolve();
    libraries::resolve();
    locking::resolve();
    messages::resolve();
    names::resolve();
    readiness::resolve();
    sockets::resolve();
    spawning::resolve();
    stdio::resolve();
    syscall::resolve();
    transfer::resolve();
}
