//! A NIC that shows every frame of its wire: VNICs have addresses of their own, which the NIC does not know.
//!
//! Held by whoever opened the interface, by whatever driver.

use std::io;
use std::os::fd::OwnedFd;

use crate::{socket, sys};

/// While it lives, an interface takes frames for any address, as long as that is where it was.
#[derive(Debug)]
pub struct Promiscuity {
    socket: OwnedFd,
    index: u32,
}

impl Promiscuity {
    /// For the interface `name` of the calling thread's network namespace.
    ///
    /// # Errors
    /// The interface does not exist, or the process has no `CAP_NET_RAW` there.
    pub fn of(name: &str) -> io::Result<Self> {
        let (socket, index) = (sys::deaf_socket()?, socket::index_of(name)?);
        sys::add_promiscuity(&socket, index)?;
        sys::bind_deaf(&socket, index)?;
        Ok(Self { socket, index })
    }

    /// Whether the interface has not left its network namespace since. One that comes back may have the number that it had,
    /// and still nothing that was opened on it before is of any use.
    pub fn holds(&self) -> bool {
        // A socket of our own can be asked.
        sys::interface_of(&self.socket).map_or(true, |index| index == self.index.cast_signed())
    }
}
