//! The services over a stream (RFC 862, 863, 864: "TCP based").
//!
//! A peer that reads slowly holds up only its own stream, and what is kept of it meanwhile is what an echo has still to say.
//! Who says nothing holds no memory.

use std::cell::RefCell;
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::task::consume_budget;

use crate::{Simple, pattern};

/// How much is read at once.
const PIECE_BYTES: usize = 64 * 1024;
/// How much an echo reads at once, because it may have to keep it.
const ECHO_BYTES: usize = 16 * 1024;

/// Serves one stream to its end.
///
/// # Errors
/// The stream failed, which for a character generator is the usual end.
pub async fn serve<S: AsyncRead + AsyncWrite + Unpin>(kind: Simple, mut stream: S) -> io::Result<()> {
    match kind {
        Simple::Echo => echo(&mut stream).await?,
        Simple::Discard => drop(swallow(&mut stream).await?),
        Simple::Chargen => return generate(stream).await,
        Simple::Sink => {
            let begin = Instant::now();
            let bytes = swallow(&mut stream).await?;
            stream.write_all(receipt(bytes, begin.elapsed()).as_bytes()).await?;
        }
    }
    stream.shutdown().await
}

async fn echo<S: AsyncRead + AsyncWrite + Unpin>(stream: &mut S) -> io::Result<()> {
    loop {
        // A peer that is faster than this never makes the task wait, and others have to have their turn.
        consume_budget().await;
        let piece = poll_fn(|cx| poll_read(stream, cx, ECHO_BYTES, <[u8]>::to_vec)).await?;
        if piece.is_empty() {
            return Ok(());
        }
        stream.write_all(&piece).await?;
    }
}

/// Reads to the end and says how much it was.
async fn swallow<S: AsyncRead + Unpin>(stream: &mut S) -> io::Result<u64> {
    let mut bytes = 0;
    loop {
        consume_budget().await;
        match poll_fn(|cx| poll_read(stream, cx, PIECE_BYTES, <[u8]>::len)).await? {
            0 => return Ok(bytes),
            count => bytes += count as u64,
        }
    }
}

/// What `read` makes of at most `limit` bytes; of none at the end of the stream. What is read into is the thread's, so that
/// who waits holds nothing.
fn poll_read<S: AsyncRead + Unpin, T>(
    stream: &mut S,
    cx: &mut Context<'_>,
    limit: usize,
    read: impl FnOnce(&[u8]) -> T,
) -> Poll<io::Result<T>> {
    thread_local! {
        static PIECE: RefCell<Vec<u8>> = RefCell::new(vec![0; PIECE_BYTES]);
    }
    PIECE.with_borrow_mut(|piece| {
        let mut filled = ReadBuf::new(&mut piece[..limit.min(PIECE_BYTES)]);
        ready!(Pin::new(stream).poll_read(cx, &mut filled))?;
        Poll::Ready(Ok(read(filled.filled())))
    })
}

/// Sends until the peer takes no more. One that has said all it has to say may still listen.
async fn generate<S: AsyncRead + AsyncWrite + Unpin>(stream: S) -> io::Result<()> {
    let (mut from, mut to) = tokio::io::split(stream);
    let text = pattern::whole();
    let send = async {
        loop {
            consume_budget().await;
            if let Err(error) = to.write_all(&text).await {
                return error;
            }
        }
    };
    tokio::pin!(send);
    tokio::select! {
        error = &mut send => return Err(error),
        read = swallow(&mut from) => drop(read?),
    }
    Err(send.await)
}

/// What a sink says at the end.
fn receipt(bytes: u64, time: Duration) -> String {
    let seconds = time.as_secs_f64().max(1e-6);
    let megabits = bytes as f64 * 8.0 / seconds / 1e6;
    format!("{bytes} bytes in {seconds:.6} s, {megabits:.1} Mb/s\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, DuplexStream, duplex};

    /// Lets `client` talk to a service whose side of the pipe holds `room` bytes.
    fn talk<T>(
        kind: Simple,
        room: usize,
        client: impl AsyncFnOnce(DuplexStream) -> T,
    ) -> (io::Result<()>, T) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let (near, far) = duplex(room);
        runtime.block_on(async { tokio::join!(serve(kind, far), client(near)) })
    }

    async fn say(mut near: DuplexStream, text: &[u8]) -> Vec<u8> {
        let mut said = Vec::new();
        let (mut from, mut to) = tokio::io::split(&mut near);
        let send = async {
            to.write_all(text).await.unwrap();
            to.shutdown().await.unwrap();
        };
        tokio::join!(send, async { from.read_to_end(&mut said).await.unwrap() });
        said
    }

    #[test]
    fn an_echo_gives_back_all_of_it_through_a_narrow_pipe() {
        let text: Vec<u8> = (0..300_000u32).map(|n| (n % 251) as u8).collect();
        let (served, said) = talk(Simple::Echo, 100, async |near| say(near, &text).await);
        served.unwrap();
        assert!(said == text);
    }

    #[test]
    fn a_discard_says_nothing_and_a_sink_says_how_much() {
        let (served, said) = talk(Simple::Discard, 100, async |near| say(near, &[7; 5000]).await);
        served.unwrap();
        assert_eq!(said, b"");
        let (served, said) = talk(Simple::Sink, 100, async |near| say(near, &[7; 5000]).await);
        served.unwrap();
        let said = String::from_utf8(said).unwrap();
        assert!(said.starts_with("5000 bytes in 0.") && said.ends_with(" Mb/s\n"), "{said}");
    }

    #[test]
    fn a_generator_sends_until_the_peer_goes_whatever_it_is_sent() {
        let whole = pattern::whole();
        let (served, first) = talk(Simple::Chargen, 1000, async |mut near| {
            near.write_all(&[1; 5000]).await.unwrap();
            let mut first = vec![0; whole.len() + 74];
            near.read_exact(&mut first).await.unwrap();
            first
        });
        assert_eq!(served.unwrap_err().kind(), io::ErrorKind::BrokenPipe);
        assert_eq!((&first[..whole.len()], &first[whole.len()..]), (&whole[..], &whole[..74]));
    }

    #[test]
    fn a_generators_peer_that_only_listens_is_served_too() {
        let (served, first) = talk(Simple::Chargen, 1000, async |mut near| {
            near.shutdown().await.unwrap();
            let mut first = [0; 74];
            near.read_exact(&mut first).await.unwrap();
            first
        });
        assert!(served.is_err());
        assert_eq!(first, pattern::whole()[..74]);
    }

    /// Always has something to read, and takes all that is written.
    struct Endless;

    impl AsyncRead for Endless {
        fn poll_read(
            self: Pin<&mut Self>,
            _: &mut Context<'_>,
            to: &mut ReadBuf<'_>,
        ) -> Poll<io::Result<()>> {
            to.put_slice(&[7; 100]);
            Poll::Ready(Ok(()))
        }
    }

    impl AsyncWrite for Endless {
        fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, text: &[u8]) -> Poll<io::Result<usize>> {
            Poll::Ready(Ok(text.len()))
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    /// A peer, however fast, has one task of the daemon's and not a thread.
    #[test]
    fn who_keeps_a_service_busy_keeps_no_other_from_its_turn() {
        for kind in [Simple::Echo, Simple::Discard, Simple::Chargen, Simple::Sink] {
            let (tell, told) = std::sync::mpsc::channel();
            std::thread::spawn(move || {
                let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
                runtime.block_on(async {
                    let served = tokio::spawn(serve(kind, Endless));
                    for _ in 0..10 {
                        tokio::task::yield_now().await;
                    }
                    served.abort();
                    assert!(served.await.unwrap_err().is_cancelled());
                });
                tell.send(()).unwrap();
            });
            assert_eq!(told.recv_timeout(Duration::from_secs(10)), Ok(()), "{kind:?}");
        }
    }
}
