//! Whether a TCP connection can be read or written, and a look at what there is: tokio's and std's calls beside reading and writing.
//!
//! Part of `tcp_stream.rs`. Each waits as reads and writes do.

use std::io;
use std::task::{Context, Poll};

use firelane_socket::{Flags, Ready};

use super::{Socket, TcpStream, lock};
use crate::error::io_error;
use crate::sleepers::wait_at;

impl TcpStream {
    /// Waits until a read would not block.
    ///
    /// # Errors
    /// Never; the failure of the connection makes it readable.
    pub async fn readable(&self) -> io::Result<()> {
        let check = |socket: &Socket| socket.is_readable().then_some(Ok(()));
        let poll = |context: &mut Context<'_>| self.poll_for(Ready::READABLE, context, check);
        wait_at(&self.socket.seat, Ready::READABLE, poll).await
    }

    /// Waits until a write would not block.
    ///
    /// # Errors
    /// Its lane is out of service; the failure of the connection makes it writable.
    pub async fn writable(&self) -> io::Result<()> {
        let check = |socket: &Socket| socket.is_writable().then_some(Ok(()));
        let poll = |context: &mut Context<'_>| self.poll_for(Ready::WRITABLE, context, check);
        wait_at(&self.socket.seat, Ready::WRITABLE, poll).await
    }

    /// Waits until it is ready for some of `interest`, and says for what; [`Ready::HANGUP`] among it once the connection is over.
    ///
    /// # Errors
    /// As [`TcpStream::writable`]; `InvalidInput` if nothing is asked for.
    pub async fn ready(&self, interest: Ready) -> io::Result<Ready> {
        let (reads, writes) = (interest.contains(Ready::READABLE), interest.contains(Ready::WRITABLE));
        let check = |socket: &Socket| socket.ready(reads, writes).map(Ok);
        let seat = &self.socket.seat;
        let wait = async |side| {
            wait_at(seat, side, |context: &mut Context<'_>| self.poll_for(side, context, check)).await
        };
        match (reads, writes) {
            (true, true) => either(wait(Ready::READABLE), wait(Ready::WRITABLE)).await,
            (true, false) => wait(Ready::READABLE).await,
            (false, true) => wait(Ready::WRITABLE).await,
            (false, false) => {
                Err(super::invalid("ready: READABLE, WRITABLE or both are to be asked for".to_owned()))
            }
        }
    }

    /// As in std: reads what there is, and leaves it there.
    ///
    /// # Errors
    /// As a read.
    pub fn peek(&self, to: &mut [u8]) -> io::Result<usize> {
        self.block_for(Ready::READABLE, self.socket.read_limit.get(), |socket| socket.peek(to))
    }

    /// The same without blocking the thread, as tokio's `peek`.
    ///
    /// # Errors
    /// As a read.
    pub async fn peek_async(&self, to: &mut [u8]) -> io::Result<usize> {
        wait_at(&self.socket.seat, Ready::READABLE, |context| self.poll_peek(context, to)).await
    }

    /// The same, polled.
    ///
    /// # Errors
    /// As a read.
    pub fn poll_peek(&self, context: &mut Context<'_>, to: &mut [u8]) -> Poll<io::Result<usize>> {
        self.poll_for(Ready::READABLE, context, |socket| socket.peek(to))
    }

    /// As in std: why the connection has failed, once (SO_ERROR).
    ///
    /// # Errors
    /// Never; as in std.
    pub fn take_error(&self) -> io::Result<Option<io::Error>> {
        Ok(self.socket.shared.get().words().take_error().map(io_error))
    }
}

impl Socket {
    fn is_readable(&self) -> bool {
        lock(&self.recv).is_readable()
    }

    fn is_writable(&self) -> bool {
        let mut send = lock(&self.send);
        let is_writable = send.is_writable();
        let owes_kick = !is_writable && send.is_cramped();
        drop(send);
        if owes_kick {
            self.kick();
        }
        is_writable
    }

    fn ready(&self, reads: bool, writes: bool) -> Option<Ready> {
        let mut ready = Ready::NONE;
        if reads && self.is_readable() {
            ready |= Ready::READABLE;
        }
        if writes && self.is_writable() {
            ready |= Ready::WRITABLE;
        }
        if ready.is_empty() {
            return None;
        }
        let is_over = self.shared.get().words().flags().contains(Flags::CLOSED);
        Some(if is_over { ready | Ready::HANGUP } else { ready })
    }

    fn peek(&self, to: &mut [u8]) -> Option<io::Result<usize>> {
        let peeked = lock(&self.recv).peek(to);
        Self::told(peeked)
    }
}

/// What comes first of two.
async fn either<T>(one: impl Future<Output = T>, other: impl Future<Output = T>) -> T {
    let (mut one, mut other) = (std::pin::pin!(one), std::pin::pin!(other));
    std::future::poll_fn(|context| match one.as_mut().poll(context) {
        Poll::Pending => other.as_mut().poll(context),
        ready => ready,
    })
    .await
}
