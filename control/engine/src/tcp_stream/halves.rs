//! The halves of a TCP connection that two tasks own, as tokio's `into_split` gives them.
//!
//! Part of `tcp_stream.rs`: each half is a clone that lets only one direction be used.

use std::fmt;
use std::io::{self, IoSlice};
use std::net::{Shutdown, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::TcpStream;

/// The half that reads. [`AsRef`] gives the connection for what is asked of both.
#[derive(Debug)]
pub struct OwnedReadHalf {
    stream: TcpStream,
}

/// The half that writes. Dropped, it shuts down the writing side, unless [`OwnedWriteHalf::forget`] was called.
#[derive(Debug)]
pub struct OwnedWriteHalf {
    stream: TcpStream,
    shuts: bool,
}

/// Two halves are none of the same connection; here they are back.
#[derive(Debug)]
pub struct ReuniteError(pub OwnedReadHalf, pub OwnedWriteHalf);

impl fmt::Display for ReuniteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the halves are of two connections")
    }
}

impl std::error::Error for ReuniteError {}

impl TcpStream {
    /// Halves for two tasks. The writing side is shut down when its half is dropped, as in tokio.
    pub fn into_split(self) -> (OwnedReadHalf, OwnedWriteHalf) {
        (OwnedReadHalf { stream: self.clone() }, OwnedWriteHalf { stream: self, shuts: true })
    }

    fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.socket, &other.socket)
    }
}

impl OwnedReadHalf {
    /// The connection again.
    ///
    /// # Errors
    /// The halves are of two connections.
    pub fn reunite(self, other: OwnedWriteHalf) -> Result<TcpStream, ReuniteError> {
        if !self.stream.is_same(&other.stream) {
            return Err(ReuniteError(self, other));
        }
        other.forget();
        Ok(self.stream)
    }

    /// As [`TcpStream::peek_async`].
    ///
    /// # Errors
    /// As a read.
    pub async fn peek(&self, to: &mut [u8]) -> io::Result<usize> {
        self.stream.peek_async(to).await
    }

    /// As [`TcpStream::readable`].
    ///
    /// # Errors
    /// As [`TcpStream::readable`].
    pub async fn readable(&self) -> io::Result<()> {
        self.stream.readable().await
    }

    /// As [`TcpStream::try_read`].
    ///
    /// # Errors
    /// As [`TcpStream::try_read`].
    pub fn try_read(&self, to: &mut [u8]) -> io::Result<usize> {
        self.stream.try_read(to)
    }

    /// As [`TcpStream::peer_addr`].
    ///
    /// # Errors
    /// As [`TcpStream::peer_addr`].
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        self.stream.peer_addr()
    }

    /// As [`TcpStream::local_addr`].
    ///
    /// # Errors
    /// As [`TcpStream::local_addr`].
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.stream.local_addr()
    }
}

impl OwnedWriteHalf {
    /// The connection again.
    ///
    /// # Errors
    /// The halves are of two connections.
    pub fn reunite(self, other: OwnedReadHalf) -> Result<TcpStream, ReuniteError> {
        other.reunite(self)
    }

    /// Drops it and leaves the writing side open.
    pub fn forget(mut self) {
        self.shuts = false;
    }

    /// As [`TcpStream::writable`].
    ///
    /// # Errors
    /// As [`TcpStream::writable`].
    pub async fn writable(&self) -> io::Result<()> {
        self.stream.writable().await
    }

    /// As [`TcpStream::try_write`].
    ///
    /// # Errors
    /// As [`TcpStream::try_write`].
    pub fn try_write(&self, from: &[u8]) -> io::Result<usize> {
        self.stream.try_write(from)
    }

    /// As [`TcpStream::peer_addr`].
    ///
    /// # Errors
    /// As [`TcpStream::peer_addr`].
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        self.stream.peer_addr()
    }

    /// As [`TcpStream::local_addr`].
    ///
    /// # Errors
    /// As [`TcpStream::local_addr`].
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.stream.local_addr()
    }
}

impl Drop for OwnedWriteHalf {
    fn drop(&mut self) {
        if self.shuts {
            // One that has ended is shut down.
            let _ = self.stream.shutdown(Shutdown::Write);
        }
    }
}

impl AsRef<TcpStream> for OwnedReadHalf {
    fn as_ref(&self) -> &TcpStream {
        &self.stream
    }
}

impl AsRef<TcpStream> for OwnedWriteHalf {
    fn as_ref(&self) -> &TcpStream {
        &self.stream
    }
}

impl AsyncRead for OwnedReadHalf {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        to: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, to)
    }
}

impl AsyncWrite for OwnedWriteHalf {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        from: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, from)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        from: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, from)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    /// Once it is shut down, the drop of the half has nothing to do.
    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let result = Pin::new(&mut self.stream).poll_shutdown(context);
        self.shuts &= !matches!(result, Poll::Ready(Ok(())));
        result
    }
}
