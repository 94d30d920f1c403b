//! A NIC that shows every frame of its wire: VNICs have addresses of their own, which the NIC does not know.
//!
//! Held by whoever opened the interface, by whatever driver.

use std::io;
use std::os::fd::OwnedFd;

use crate::{socket, sys};

/// While it lives, an interface takes frames for any address.
#[derive(Debug)]
pub struct Promiscuity {
    _socket: OwnedFd,
}

impl Promiscuity {
    /// For the interface `name` of the calling thread's network namespace.
    ///
    /// # Errors
    /// The interface does not exist, or the process has no `CAP_NET_RAW` there.
    pub fn of(name: &str) -> io::Result<Self> {
        let socket = sys::deaf_socket()?;
        sys::add_promiscuity(&socket, socket::index_of(name)?)?;
        Ok(Self { _socket: socket })
    }
}
