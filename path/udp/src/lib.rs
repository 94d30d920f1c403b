//! UDP (RFC 768, RFC 1122 §4.1, RFC 8085): what a datagram means, and whose it is.
//!
//! [`receive()`] checks a datagram that `ip` delivered; [`UdpTable`] says which socket gets it; [`encode()`]
//! puts a header before a payload that a socket sends; [`Fault`] says what an ICMP error means to a
//! socket. `path/lane` calls all of them and moves the payload between frames and the sockets' queues.
//! Nothing here does I/O, keeps a payload, reads a clock or draws a random number.
//!
//! A socket lives in the lane that its local port steers to, so a table knows all sockets of its ports
//! and no lane asks another.
#![forbid(unsafe_code)]

mod binding;
mod encode;
mod ephemeral;
mod fault;
mod receive;
mod table;

pub use binding::{Binding, LocalAddr, RemoteError, Sharing};
pub use encode::{
    ChecksumWork, MAX_PAYLOAD_V4, MAX_PAYLOAD_V6, TooLong, append_payload, encode, max_payload,
};
pub use ephemeral::free_port;
pub use fault::Fault;
pub use receive::{Datagram, receive};
pub use table::{BindError, Blamed, SOCKETS_MAX, UdpTable};
