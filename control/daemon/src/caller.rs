//! A client's connection to the interface, which ends if nothing of an answer is taken for a while.
//!
//! Made by `server.rs`. What is read ends in time by itself there, and an answer is there at once: a client that does not take it has
//! forgotten it, or is stopped. A capture alone goes as slowly as its client likes.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::UnixStream;
use tokio::time::Sleep;

/// Whether the client may take its answer as slowly as it likes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pace(Arc<AtomicBool>);

impl Pace {
    /// It may from here on.
    pub(crate) fn is_the_callers(&self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// The connection.
#[derive(Debug)]
pub(crate) struct Caller {
    stream: UnixStream,
    /// How long nothing may be taken.
    patience: Duration,
    pace: Pace,
    /// When that is over, while nothing is.
    over: Option<Pin<Box<Sleep>>>,
}

impl Caller {
    pub(crate) fn new(stream: UnixStream, patience: Duration, pace: Pace) -> Self {
        Self { stream, patience, pace, over: None }
    }
}

impl AsyncRead for Caller {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for Caller {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        if written.is_ready() || self.pace.0.load(Ordering::Relaxed) {
            self.over = None;
            return written;
        }
        let patience = self.patience;
        let over = self.over.get_or_insert_with(|| Box::pin(tokio::time::sleep(patience)));
        over.as_mut().poll(context).map(|()| Err(io::ErrorKind::TimedOut.into()))
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
