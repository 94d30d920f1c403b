//! Numbers by which sockets are told apart (SO_COOKIE): no two sockets that ever were have the same one.
//!
//! Owned by `hub.rs`. A socket gets its number when somebody first asks for it, as in Linux.

use std::collections::BTreeMap;

use firelane_shm::control::SocketId;

/// Who has which.
#[derive(Debug, Default)]
pub(super) struct Cookies {
    given: BTreeMap<SocketId, u64>,
    last: u64,
}

impl Cookies {
    /// That of a socket.
    pub(super) fn of(&mut self, socket: SocketId) -> u64 {
        *self.given.entry(socket).or_insert_with(|| {
            self.last += 1;
            self.last
        })
    }

    /// The socket is no more, or a new one has its name.
    pub(super) fn forget(&mut self, socket: SocketId) {
        self.given.remove(&socket);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cookie_lasts_as_long_as_its_socket_and_comes_never_again() {
        let mut cookies = Cookies::default();
        assert_eq!([5, 6, 5].map(|name| cookies.of(SocketId(name))), [1, 2, 1]);
        cookies.forget(SocketId(5));
        assert_eq!([5, 6].map(|name| cookies.of(SocketId(name))), [3, 2]);
    }
}
