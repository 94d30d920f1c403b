//! Packet sockets: a link to a veth pair, where a TAP may not be opened.
//!
//! [`PacketSocket`] speaks to one interface with the virtio-net header, like the TAP driver, and is slower:
//! the kernel shows each frame to its own stack as well. [`Promiscuity`] has a NIC show frames that are not for it.

mod promiscuity;
mod socket;
mod sys;

pub use promiscuity::Promiscuity;
pub use socket::PacketSocket;
