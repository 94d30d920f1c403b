//! A write that begins its connection, or whose connection has begun with an earlier text (RFC 7413 client, MSG_FASTOPEN and
//! TCP_FASTOPEN_CONNECT of tcp(7)).
//!
//! `calls.rs` asks here before it writes. As in Linux (`tcp_sendmsg_fastopen`), who does not wait is told how much of his text the
//! SYN has taken, or EINPROGRESS if that is nothing; who waits gets on with the rest when the handshake is over.

use std::net::SocketAddr;

use firelane_tcp::FastOpenPolicy;

use crate::errno::{Errno, Sys, fail};
use crate::stream::StreamSocket;
use crate::world::World;

/// How far one write is with its connection.
#[derive(Debug, Default)]
pub(crate) struct Beginning {
    has_begun: bool,
    is_over: bool,
    /// How much of the text went with the SYN.
    pub(crate) with_syn: usize,
}

impl Beginning {
    /// Begins the connection if that is this write's to do, or looks how it stands: EINPROGRESS and EALREADY are what a write waits
    /// for, and `Ok` that the rest may be written.
    pub(crate) fn go_on(
        &mut self,
        socket: &mut StreamSocket,
        world: &mut World,
        (flags, to): (i32, Option<SocketAddr>),
        bytes: &[u8],
    ) -> Sys<()> {
        if self.is_over {
            return Ok(());
        }
        let asks = flags & libc::MSG_FASTOPEN != 0;
        let stands = match () {
            // The call that has begun it says the same as long as it waits.
            () if self.has_begun => socket.connect_again().map_err(|error| match error {
                Errno(libc::EALREADY) => Errno(libc::EINPROGRESS),
                error => error,
            }),
            () if !asks && !socket.is_deferred() => Ok(()),
            () if !world.options.tcp.fast_open.allows(FastOpenPolicy::CLIENT) => fail(libc::EOPNOTSUPP),
            () if socket.has_begun() => socket.connect_again(),
            () => {
                self.with_syn = socket.open_fast(world, to, bytes)?;
                self.has_begun = true;
                fail(libc::EINPROGRESS)
            }
        };
        self.is_over = stands.is_ok();
        stands
    }

    /// Whether a write waits for what `go_on` said.
    pub(crate) fn is_under_way(error: Errno) -> bool {
        matches!(error, Errno(libc::EINPROGRESS | libc::EALREADY))
    }
}
