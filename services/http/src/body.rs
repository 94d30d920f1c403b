//! Reading a request's body: a known number of bytes, or chunks (RFC 9112 §6, §7.1).
//!
//! Called by `connection.rs`, which keeps what was read beyond the head in a buffer. A body is handed on in
//! pieces; it is never held whole.

use std::cell::RefCell;
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::time::timeout;

use crate::request::{BodyLength, HEAD_BYTES_MAX};

/// How much of a body is read at once.
const PIECE_BYTES: usize = 64 * 1024;
/// The longest chunk-size line, extensions included, and the longest trailer.
const LINE_BYTES_MAX: usize = 4096;

/// A stream with what was read from it but not yet used.
pub(crate) struct Buffered<S> {
    pub(crate) stream: S,
    bytes: Vec<u8>,
    used: usize,
}

impl<S: AsyncRead + Unpin> Buffered<S> {
    pub(crate) fn new(stream: S) -> Self {
        Self { stream, bytes: Vec::new(), used: 0 }
    }

    /// What was read but not used, at most as much as a head may have.
    pub(crate) fn unused(&self) -> &[u8] {
        &self.bytes[self.used..]
    }

    /// Uses up `count` bytes. An empty buffer is given back, so that an idle connection holds none.
    pub(crate) fn consume(&mut self, count: usize) {
        self.used += count;
        if self.used == self.bytes.len() {
            self.bytes = Vec::new();
            self.used = 0;
        }
    }

    /// Reads more, if less than a head's length is unused. Returns how many bytes came; zero at the end of the stream.
    pub(crate) async fn fill(&mut self) -> io::Result<usize> {
        if self.used > 0 {
            self.bytes.drain(..self.used);
            self.used = 0;
        }
        let Self { stream, bytes, .. } = self;
        let room = HEAD_BYTES_MAX.saturating_sub(bytes.len());
        poll_fn(|cx| poll_read(stream, cx, room, bytes)).await
    }

    /// Takes at least one and at most `limit` bytes; nothing at the end of the stream.
    pub(crate) async fn take(&mut self, limit: u64) -> io::Result<Vec<u8>> {
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        let mut piece = Vec::new();
        if self.unused().is_empty() {
            let stream = &mut self.stream;
            poll_fn(|cx| poll_read(stream, cx, limit, &mut piece)).await?;
        } else {
            let count = self.unused().len().min(limit);
            piece.extend_from_slice(&self.unused()[..count]);
            self.consume(count);
        }
        Ok(piece)
    }
}

/// Reads at most `limit` bytes behind `bytes`. Most of a connection's life is spent waiting here, so what is read into is the
/// thread's, and `bytes` grow by what has come alone.
fn poll_read<S: AsyncRead + Unpin>(
    stream: &mut S,
    cx: &mut Context<'_>,
    limit: usize,
    bytes: &mut Vec<u8>,
) -> Poll<io::Result<usize>> {
    thread_local! {
        static PIECE: RefCell<Vec<u8>> = RefCell::new(vec![0; PIECE_BYTES]);
    }
    PIECE.with_borrow_mut(|piece| {
        let mut read = ReadBuf::new(&mut piece[..limit.min(PIECE_BYTES)]);
        ready!(Pin::new(stream).poll_read(cx, &mut read))?;
        bytes.extend_from_slice(read.filled());
        Poll::Ready(Ok(read.filled().len()))
    })
}

impl<S: AsyncWrite + Unpin> Buffered<S> {
    /// Writes all of it to a client who takes some at least as often as that.
    pub(crate) async fn send(&mut self, mut bytes: &[u8], idle: Duration) -> io::Result<()> {
        while !bytes.is_empty() {
            let count = timeout(idle, self.stream.write(bytes)).await??;
            if count == 0 {
                return Err(io::ErrorKind::WriteZero.into());
            }
            bytes = &bytes[count..];
        }
        Ok(())
    }

    /// Writes what the client takes without being waited for, and says how much that was.
    pub(crate) async fn send_now(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut sent = 0;
        while sent < bytes.len() {
            let count = tokio::select! {
                biased;
                count = self.stream.write(&bytes[sent..]) => count?,
                () = std::future::ready(()) => break,
            };
            if count == 0 {
                return Err(io::ErrorKind::WriteZero.into());
            }
            sent += count;
        }
        Ok(sent)
    }
}

/// Why a body ended early.
#[derive(Debug)]
pub(crate) enum BodyError {
    /// The stream failed or ended inside the body.
    Stream,
    /// The chunks are malformed.
    Malformed,
}

/// A body that is being read.
pub(crate) struct Body {
    state: State,
}

enum State {
    /// So many bytes are left.
    Known(u64),
    /// A chunk-size line follows.
    Size,
    /// So many bytes of a chunk are left, then its line end.
    Chunk(u64),
    /// Trailer lines follow, up to an empty one.
    Trailer,
}

impl Body {
    pub(crate) fn new(length: BodyLength) -> Self {
        let state = match length {
            BodyLength::Known(count) => State::Known(count),
            BodyLength::Chunked => State::Size,
        };
        Self { state }
    }

    /// The next piece, at least one byte; `None` at the end of the body.
    pub(crate) async fn next<S: AsyncRead + Unpin>(
        &mut self,
        from: &mut Buffered<S>,
    ) -> Result<Option<Vec<u8>>, BodyError> {
        loop {
            match self.state {
                State::Known(0) => return Ok(None),
                State::Known(left) => {
                    let piece = take(from, left).await?;
                    self.state = State::Known(left - piece.len() as u64);
                    return Ok(Some(piece));
                }
                State::Size => {
                    let size = chunk_size(&line(from).await?).ok_or(BodyError::Malformed)?;
                    self.state = if size == 0 { State::Trailer } else { State::Chunk(size) };
                }
                State::Chunk(0) => {
                    if !line(from).await?.is_empty() {
                        return Err(BodyError::Malformed);
                    }
                    self.state = State::Size;
                }
                State::Chunk(left) => {
                    let piece = take(from, left).await?;
                    self.state = State::Chunk(left - piece.len() as u64);
                    return Ok(Some(piece));
                }
                State::Trailer => {
                    if line(from).await?.is_empty() {
                        self.state = State::Known(0);
                    }
                }
            }
        }
    }
}

/// Takes at least one and at most `limit` bytes.
async fn take<S: AsyncRead + Unpin>(from: &mut Buffered<S>, limit: u64) -> Result<Vec<u8>, BodyError> {
    let piece = from.take(limit).await.map_err(|_| BodyError::Stream)?;
    if piece.is_empty() { Err(BodyError::Stream) } else { Ok(piece) }
}

/// Takes a line without its end. Control characters are in none: others may see an end in a bare LF or CR, and so another
/// body.
async fn line<S: AsyncRead + Unpin>(from: &mut Buffered<S>) -> Result<Vec<u8>, BodyError> {
    loop {
        if let Some(end) = from.unused().windows(2).position(|w| w == b"\r\n") {
            let line = from.unused()[..end].to_vec();
            from.consume(end + 2);
            let is_plain = line.iter().all(|&byte| byte >= b' ' || byte == b'\t');
            return if is_plain { Ok(line) } else { Err(BodyError::Malformed) };
        }
        if from.unused().len() > LINE_BYTES_MAX {
            return Err(BodyError::Malformed);
        }
        if from.fill().await.map_err(|_| BodyError::Stream)? == 0 {
            return Err(BodyError::Stream);
        }
    }
}

/// The size in a chunk-size line; extensions are ignored (RFC 9112 §7.1.1).
fn chunk_size(line: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(line).ok()?.split(';').next()?.trim_end_matches([' ', '\t']);
    let hexadecimal = !text.is_empty() && text.bytes().all(|b| b.is_ascii_hexdigit());
    hexadecimal.then(|| u64::from_str_radix(text, 16).ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_all(length: BodyLength, wire: &[u8]) -> Result<(Vec<u8>, Vec<u8>), BodyError> {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let mut from = Buffered::new(wire);
            let (mut body, mut all) = (Body::new(length), Vec::new());
            while let Some(piece) = body.next(&mut from).await? {
                assert!(!piece.is_empty());
                all.extend(piece);
            }
            Ok((all, [from.unused(), from.stream].concat()))
        })
    }

    #[test]
    fn bodies_end_where_they_say() {
        let (body, rest) = read_all(BodyLength::Known(5), b"helloGET /").unwrap();
        assert_eq!((body.as_slice(), rest.as_slice()), (b"hello".as_slice(), b"GET /".as_slice()));
        let (body, rest) =
            read_all(BodyLength::Chunked, b"5;x=1\r\nhello\r\n1\r\n!\r\n0\r\nTrailer: t\r\n\r\nnext")
                .unwrap();
        assert_eq!((body.as_slice(), rest.as_slice()), (b"hello!".as_slice(), b"next".as_slice()));
        assert_eq!(read_all(BodyLength::Known(0), b"").unwrap().0, b"");
    }

    #[test]
    fn malformed_and_short_bodies_are_refused() {
        for wire in [
            &b"x\r\n"[..],
            b"5\r\nhelloX\r\n",
            b"-1\r\n",
            b"fffffffffffffffff\r\n",
            b"\r\n",
            b"5;\nxx\r\nhello\r\n0\r\n\r\n",
            b"5\x0b\r\nhello\r\n0\r\n\r\n",
            b"5;a\rb\r\nhello\r\n0\r\n\r\n",
            b"0\r\nTrailer: t\n\r\nGET / HTTP/1.1\r\n\r\n",
            b"5\xc2\xa0\r\nhello\r\n0\r\n\r\n",
        ] {
            assert!(matches!(read_all(BodyLength::Chunked, wire), Err(BodyError::Malformed)), "{wire:?}");
        }
        for wire in [&b"5\r\nhel"[..], b"", b"5"] {
            assert!(matches!(read_all(BodyLength::Chunked, wire), Err(BodyError::Stream)), "{wire:?}");
        }
        assert!(matches!(read_all(BodyLength::Known(5), b"hel"), Err(BodyError::Stream)));
    }
}
