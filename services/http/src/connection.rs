//! One connection: request after request, until either side has had enough.
//!
//! Called by the daemon for every accepted stream. Files go out in pieces; uploads are written beside their
//! place and moved there when whole, so a broken upload leaves the old file.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::sync::Semaphore;
use tokio::task::consume_budget;
use tokio::time::{Instant, timeout, timeout_at};

use crate::body::{Body, BodyError, Buffered};
use crate::files::{self, Files};
use crate::part::Part;
use crate::request::{self, Method, Request};
use crate::response::{CONTINUE, Head, Status};

/// How much of a file is read at once, at the most.
const PIECE_BYTES: usize = 256 * 1024;
/// How much of it is kept while its client takes nothing. The rest of a piece is read again.
const KEPT_BYTES: usize = 16 * 1024;
/// How many pieces there are at a time, of all connections: none waits for its client, so that they are soon free again.
static PIECES: Semaphore = Semaphore::const_new(64);

/// How long a client who was refused may say nothing before he is left.
const SILENCE: Duration = Duration::from_secs(2);

/// How long a client is waited for. Each connection is memory and a task, which who says nothing, or next to nothing, does not keep.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Patience {
    /// Between two requests, for the next piece of one's body, and for room for the next piece of an answer.
    pub idle: Duration,
    /// For a whole head, once it has begun: it is short, so a client who sends a byte now and then is none that wants an answer.
    pub head: Duration,
}

impl Default for Patience {
    /// A minute, as other servers have it, and half of one.
    fn default() -> Self {
        Self { idle: Duration::from_secs(60), head: Duration::from_secs(30) }
    }
}

/// Serves one connection to its end, with the usual patience.
///
/// # Errors
/// As [`serve_with`].
pub async fn serve<S: AsyncRead + AsyncWrite + Unpin>(stream: S, files: &Files) -> io::Result<()> {
    serve_with(stream, files, Patience::default()).await
}

/// Serves one connection to its end.
///
/// # Errors
/// The stream failed, or the client takes no more of an answer. Mistakes of the client are answered, not returned.
pub async fn serve_with<S: AsyncRead + AsyncWrite + Unpin>(
    stream: S,
    files: &Files,
    patience: Patience,
) -> io::Result<()> {
    let mut connection = Client { wire: Buffered::new(stream), patience };
    let then = loop {
        let request = match read_request(&mut connection).await? {
            Ok(Some(request)) => request,
            Ok(None) => break Then::Close,
            Err(status) => {
                refuse(&mut connection, None, status, false).await?;
                break Then::HearOut;
            }
        };
        match answer(&mut connection, &request, files).await? {
            Then::Next => {}
            then => break then,
        }
    };
    connection.wire.stream.shutdown().await?;
    if then == Then::HearOut {
        connection.hear_out().await;
    }
    Ok(())
}

/// What comes after an answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Then {
    /// Another request may follow.
    Next,
    /// The end.
    Close,
    /// The end, as soon as the client has said what nobody will read.
    HearOut,
}

impl Then {
    const fn after(request: &Request) -> Self {
        if request.keep_alive { Self::Next } else { Self::Close }
    }
}

/// Who is served.
struct Client<S> {
    wire: Buffered<S>,
    patience: Patience,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Client<S> {
    async fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.wire.send(bytes, self.patience.idle).await
    }

    /// Reads on behind a refusal. A close while something is unread is a reset, which may overtake the answer, and keeps it from who
    /// still writes (RFC 9112 §9.6).
    async fn hear_out(&mut self) {
        let end = Instant::now() + self.patience.head;
        loop {
            let now = Instant::now();
            // A read that need not wait is not asked how late it is.
            if now >= end {
                return;
            }
            let until = end.min(now + SILENCE);
            consume_budget().await;
            match timeout_at(until, self.wire.take(u64::MAX)).await {
                Ok(Ok(piece)) if !piece.is_empty() => {}
                _ => return,
            }
        }
    }

    async fn next_of(&mut self, body: &mut Body) -> Result<Option<Vec<u8>>, BodyError> {
        // Who is faster than this never makes the task wait, and others have to have their turn.
        consume_budget().await;
        let next = timeout(self.patience.idle, body.next(&mut self.wire)).await;
        next.unwrap_or(Err(BodyError::Stream))
    }
}

/// Reads a head; `Ok(None)` if the client closed between requests, or made none for long.
async fn read_request<S: AsyncRead + AsyncWrite + Unpin>(
    connection: &mut Client<S>,
) -> io::Result<Result<Option<Request>, Status>> {
    let Client { wire, patience } = connection;
    let mut head_until = None;
    loop {
        match request::parse(wire.unused()) {
            Ok(Some((request, length))) => {
                wire.consume(length);
                return Ok(Ok(Some(request)));
            }
            Err(status) => return Ok(Err(status)),
            Ok(None) => {}
        }
        let had_some = !wire.unused().is_empty();
        let until = match had_some {
            true => *head_until.get_or_insert_with(|| Instant::now() + patience.head),
            false => Instant::now() + patience.idle,
        };
        let ended = match timeout_at(until, wire.fill()).await {
            Ok(Ok(0)) => Status::BadRequest,
            Ok(read) => {
                read?;
                continue;
            }
            Err(_) => Status::RequestTimeout,
        };
        return Ok(if had_some { Err(ended) } else { Ok(None) });
    }
}

/// Answers one request and says what comes then.
async fn answer<S: AsyncRead + AsyncWrite + Unpin>(
    connection: &mut Client<S>,
    request: &Request,
    files: &Files,
) -> io::Result<Then> {
    match request.method {
        Method::Store => store(connection, request, files).await,
        Method::Get | Method::Head => {
            if request.expects_continue {
                connection.send(CONTINUE).await?;
            }
            let mut body = Body::new(request.body);
            let end = loop {
                match connection.next_of(&mut body).await {
                    Ok(Some(_)) => {}
                    end => break end,
                }
            };
            if end.is_err() {
                // Nobody knows where the next request begins (RFC 9112 §6.3).
                refuse(connection, Some(request), Status::BadRequest, false).await?;
                return Ok(Then::HearOut);
            }
            match files.existing(&request.target) {
                Ok(path) => send_file(connection, request, &path).await?,
                Err(status) => refuse(connection, Some(request), status, request.keep_alive).await?,
            }
            Ok(Then::after(request))
        }
    }
}

/// Answers with an error. To HEAD its text is not said: it would be taken for the begin of the next answer (RFC 9110 §9.3.2).
async fn refuse<S: AsyncRead + AsyncWrite + Unpin>(
    connection: &mut Client<S>,
    request: Option<&Request>,
    status: Status,
    keep_alive: bool,
) -> io::Result<()> {
    let text = format!("{}\n", status.line());
    let mut head = Head::new(status, text.len() as u64, keep_alive);
    head.field("Content-Type", "text/plain; charset=utf-8");
    let mut response = head.finish();
    if request.is_none_or(|it| it.method != Method::Head) {
        response.extend_from_slice(text.as_bytes());
    }
    connection.send(&response).await
}

async fn send_file<S: AsyncRead + AsyncWrite + Unpin>(
    connection: &mut Client<S>,
    request: &Request,
    path: &Path,
) -> io::Result<()> {
    let (path, media_type) = (path.to_owned(), files::media_type(path));
    let opened = aside(move || {
        let file = File::open(path)?;
        let length = file.metadata()?.len();
        Ok((file, length))
    });
    let Ok((file, length)) = opened.await else {
        return refuse(connection, Some(request), Status::NotFound, request.keep_alive).await;
    };
    let part = request.range.map(|range| files::part(range, length)).transpose();
    let (status, first, count) = match part {
        Ok(None) => (Status::Ok, 0, length),
        Ok(Some((first, count))) => (Status::PartialContent, first, count),
        Err(status) => return refuse(connection, Some(request), status, request.keep_alive).await,
    };
    let mut head = Head::new(status, count, request.keep_alive);
    head.field("Content-Type", media_type);
    if status == Status::PartialContent {
        head.field("Content-Range", format_args!("bytes {first}-{}/{length}", first + count - 1));
    }
    connection.send(&head.finish()).await?;
    if request.method == Method::Head {
        return Ok(());
    }
    send_piecewise(connection, file, first, count).await
}

/// Sends a part of a file in pieces as large as the client takes at once.
async fn send_piecewise<S: AsyncRead + AsyncWrite + Unpin>(
    connection: &mut Client<S>,
    file: File,
    first: u64,
    count: u64,
) -> io::Result<()> {
    let file = Arc::new(file);
    let (mut at, end, mut size) = (first, first + count, PIECE_BYTES);
    while at < end {
        let mut rest = Vec::new();
        {
            let _turn = PIECES.acquire().await.map_err(io::Error::other)?;
            let file = Arc::clone(&file);
            let wanted = size.min(usize::try_from(end - at).unwrap_or(size));
            let piece = aside(move || read_piece(&file, at, wanted)).await?;
            let taken = connection.wire.send_now(&piece).await?;
            at += taken as u64;
            size = if taken == piece.len() { size * 2 } else { taken }.clamp(KEPT_BYTES, PIECE_BYTES);
            rest.extend_from_slice(&piece[taken..piece.len().min(taken + KEPT_BYTES)]);
        }
        connection.send(&rest).await?;
        at += rest.len() as u64;
    }
    Ok(())
}

/// At least one byte of a file.
fn read_piece(file: &File, at: u64, wanted: usize) -> io::Result<Vec<u8>> {
    let mut piece = vec![0; wanted];
    let read = loop {
        match file.read_at(&mut piece, at) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            read => break read?,
        }
    };
    if read == 0 {
        // The file shrank under us: the length is already promised, so only a broken connection is honest.
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    piece.truncate(read);
    Ok(piece)
}

/// Does what may wait for a disk on a thread that may wait.
async fn aside<T: Send + 'static>(work: impl FnOnce() -> io::Result<T> + Send + 'static) -> io::Result<T> {
    tokio::task::spawn_blocking(work).await?
}

async fn store<S: AsyncRead + AsyncWrite + Unpin>(
    connection: &mut Client<S>,
    request: &Request,
    files: &Files,
) -> io::Result<Then> {
    let path = match files.storable(&request.target) {
        Ok(path) => path,
        Err(status) => {
            // The body is not read, so the connection cannot be used again.
            refuse(connection, Some(request), status, false).await?;
            return Ok(Then::HearOut);
        }
    };
    let existed = path.exists();
    if request.condition.is_some_and(|condition| !condition.holds(existed)) {
        refuse(connection, Some(request), Status::PreconditionFailed, false).await?;
        return Ok(Then::HearOut);
    }
    if request.expects_continue {
        connection.send(CONTINUE).await?;
    }
    match receive(connection, request, &path).await {
        Ok(()) => {
            let status = if existed { Status::Ok } else { Status::Created };
            connection.send(&Head::new(status, 0, request.keep_alive).finish()).await?;
            Ok(Then::after(request))
        }
        Err(status) => {
            refuse(connection, Some(request), status, false).await?;
            Ok(Then::HearOut)
        }
    }
}

/// Writes the body beside `path` and moves it there.
async fn receive<S: AsyncRead + AsyncWrite + Unpin>(
    connection: &mut Client<S>,
    request: &Request,
    path: &Path,
) -> Result<(), Status> {
    let (folder, path) = (path.parent().unwrap_or(path).to_owned(), path.to_owned());
    let part = aside(move || Part::create(&folder)).await.map_err(|e| storage_status(&e))?;
    let received = receive_into(connection, request, &part).await;
    // A long file may take long to be removed, too.
    let ended =
        aside(move || if received.is_ok() { part.store(&path).map(|()| received) } else { Ok(received) });
    ended.await.map_err(|e| storage_status(&e))?
}

async fn receive_into<S: AsyncRead + AsyncWrite + Unpin>(
    connection: &mut Client<S>,
    request: &Request,
    part: &Part,
) -> Result<(), Status> {
    let mut body = Body::new(request.body);
    loop {
        let piece = match connection.next_of(&mut body).await {
            Ok(Some(piece)) => piece,
            Ok(None) => return Ok(()),
            Err(BodyError::Stream | BodyError::Malformed) => return Err(Status::BadRequest),
        };
        let write = part.writer();
        aside(move || write(&piece)).await.map_err(|e| storage_status(&e))?;
    }
}

fn storage_status(error: &io::Error) -> Status {
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Status::InsufficientStorage,
        io::ErrorKind::PermissionDenied => Status::Forbidden,
        _ => Status::InternalError,
    }
}
