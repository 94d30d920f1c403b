//! A UDP socket's calls that block no thread, under tokio's names: what is tried, polled or waited for in a task. Where std's blocking
//! call has the name, the one that waits in a task ends with `_async`.
//!
//! Part of `udp_socket.rs`. Batches and envelopes are `udp_messages.rs`'s.

use std::io;
use std::net::SocketAddr;
use std::task::{Context, Poll, ready};

use firelane_socket::{Ready, RecvDatagramEnd};
use rustix::io::Errno;
use tokio::io::ReadBuf;

use crate::Envelope;
use crate::sleepers::wait_at;
use crate::udp_socket::UdpSocket;

impl UdpSocket {
    /// Sends without blocking the thread.
    ///
    /// # Errors
    /// As [`UdpSocket::send_to`].
    pub async fn send_to_async(&self, payload: &[u8], addr: SocketAddr) -> io::Result<usize> {
        let envelope = Envelope::to(addr);
        self.wait(Ready::WRITABLE, |socket| socket.send_now(&envelope, payload)).await
    }

    /// Sends to the peer of a connected socket without blocking the thread.
    ///
    /// # Errors
    /// As [`UdpSocket::send`].
    pub async fn send_async(&self, payload: &[u8]) -> io::Result<usize> {
        self.send_to_async(payload, self.peer_addr()?).await
    }

    /// Receives without blocking the thread.
    ///
    /// # Errors
    /// As [`UdpSocket::recv_from`].
    pub async fn recv_from_async(&self, to: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        self.wait(Ready::READABLE, |socket| socket.recv_from_now(to)).await
    }

    /// Receives from the peer of a connected socket without blocking the thread.
    ///
    /// # Errors
    /// As [`UdpSocket::recv_from`].
    pub async fn recv_async(&self, to: &mut [u8]) -> io::Result<usize> {
        self.recv_from_async(to).await.map(|(count, _)| count)
    }

    /// As [`UdpSocket::recv_from_async`], and leaves the datagram where it is.
    ///
    /// # Errors
    /// As [`UdpSocket::recv_from`].
    pub async fn peek_from_async(&self, to: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        self.wait(Ready::READABLE, |socket| socket.peek_from_now(to)).await
    }

    /// Sends if there is room at once; `WouldBlock` if not.
    ///
    /// # Errors
    /// As [`UdpSocket::send_to`].
    pub fn try_send_to(&self, payload: &[u8], target: SocketAddr) -> io::Result<usize> {
        self.at_once(|socket| socket.send_now(&Envelope::to(target), payload))
    }

    /// The same to the peer of a connected socket.
    ///
    /// # Errors
    /// As [`UdpSocket::send`].
    pub fn try_send(&self, payload: &[u8]) -> io::Result<usize> {
        self.try_send_to(payload, self.peer_addr()?)
    }

    /// Receives if something is there; `WouldBlock` if not.
    ///
    /// # Errors
    /// As [`UdpSocket::recv_from`].
    pub fn try_recv_from(&self, to: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        self.at_once(|socket| socket.recv_from_now(to))
    }

    /// The same from the peer of a connected socket.
    ///
    /// # Errors
    /// As [`UdpSocket::recv_from`].
    pub fn try_recv(&self, to: &mut [u8]) -> io::Result<usize> {
        self.try_recv_from(to).map(|(count, _)| count)
    }

    /// As in tokio.
    ///
    /// # Errors
    /// As [`UdpSocket::send_to`].
    pub fn poll_send_to(
        &self,
        context: &mut Context<'_>,
        payload: &[u8],
        target: SocketAddr,
    ) -> Poll<io::Result<usize>> {
        let envelope = Envelope::to(target);
        self.poll_for(Ready::WRITABLE, context, |socket| socket.send_now(&envelope, payload))
    }

    /// As in tokio.
    ///
    /// # Errors
    /// As [`UdpSocket::send`].
    pub fn poll_send(&self, context: &mut Context<'_>, payload: &[u8]) -> Poll<io::Result<usize>> {
        match self.peer_addr() {
            Ok(peer) => self.poll_send_to(context, payload, peer),
            Err(error) => Poll::Ready(Err(error)),
        }
    }

    /// As in tokio.
    ///
    /// # Errors
    /// As [`UdpSocket::recv_from`].
    pub fn poll_recv_from(
        &self,
        context: &mut Context<'_>,
        to: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<SocketAddr>> {
        let room = to.initialize_unfilled();
        let receive = |socket: &Self| socket.recv_from_now(room);
        let (count, peer) = ready!(self.poll_for(Ready::READABLE, context, receive))?;
        to.advance(count);
        Poll::Ready(Ok(peer))
    }

    /// As in tokio.
    ///
    /// # Errors
    /// As [`UdpSocket::recv_from`].
    pub fn poll_recv(&self, context: &mut Context<'_>, to: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        self.poll_recv_from(context, to).map_ok(drop)
    }

    /// As in tokio.
    ///
    /// # Errors
    /// Its lane is out of service, or its netstack gone.
    pub fn poll_recv_ready(&self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_for(Ready::READABLE, context, Self::is_readable)
    }

    /// As in tokio: there is room for a datagram of any usual length.
    ///
    /// # Errors
    /// Its lane is out of service, or its netstack gone.
    pub fn poll_send_ready(&self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_for(Ready::WRITABLE, context, Self::is_writable)
    }

    /// Waits until a receive would not block.
    ///
    /// # Errors
    /// Its lane is out of service, or its netstack gone.
    pub async fn readable(&self) -> io::Result<()> {
        self.wait(Ready::READABLE, Self::is_readable).await
    }

    /// Waits until a send would not block.
    ///
    /// # Errors
    /// Its lane is out of service, or its netstack gone.
    pub async fn writable(&self) -> io::Result<()> {
        self.wait(Ready::WRITABLE, Self::is_writable).await
    }

    /// What `check` has found; `WouldBlock` if that is nothing.
    pub(crate) fn at_once<T>(&self, mut check: impl FnMut(&Self) -> Option<io::Result<T>>) -> io::Result<T> {
        let found = check(self).or_else(|| self.end(check));
        found.unwrap_or_else(|| Err(Errno::AGAIN.into()))
    }

    /// Waits in a task until `check` has found something.
    pub(crate) async fn wait<T>(
        &self,
        side: Ready,
        mut check: impl FnMut(&Self) -> Option<io::Result<T>>,
    ) -> io::Result<T> {
        wait_at(&self.seat, side, |context| self.poll_for(side, context, &mut check)).await
    }

    fn recv_from_now(&self, to: &mut [u8]) -> Option<io::Result<(usize, SocketAddr)>> {
        let mut take = |end: &mut RecvDatagramEnd| end.recv(to);
        let got = self.recv_now(&mut take)?;
        Some(got.map(|got| (got.copied, got.envelope.peer)))
    }

    fn peek_from_now(&self, to: &mut [u8]) -> Option<io::Result<(usize, SocketAddr)>> {
        let mut take = |end: &mut RecvDatagramEnd| Ok(end.peek(to));
        let got = self.recv_now(&mut take)?;
        Some(got.map(|got| (got.copied, got.envelope.peer)))
    }

    fn is_readable(&self) -> Option<io::Result<()>> {
        self.forget_others_errors();
        self.receiver().is_readable().then_some(Ok(()))
    }

    fn is_writable(&self) -> Option<io::Result<()>> {
        self.forget_others_errors();
        self.sender().is_writable().then_some(Ok(()))
    }
}
