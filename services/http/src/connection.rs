//! One connection: request after request, until either side has had enough.
//!
//! Called by the daemon for every accepted stream. Files go out in pieces; uploads are written beside their
//! place and moved there when whole, so a broken upload leaves the old file.

use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::fs::File;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncSeekExt, AsyncWrite, AsyncWriteExt};

use crate::body::{Body, BodyError, Buffered};
use crate::files::{self, Files};
use crate::request::{self, Method, Request};
use crate::response::{CONTINUE, Head, Status};

/// How much of a file is read at once.
const PIECE_BYTES: usize = 256 * 1024;

/// Serves one connection to its end.
///
/// # Errors
/// The stream failed. Mistakes of the client are answered, not returned.
pub async fn serve<S: AsyncRead + AsyncWrite + Unpin>(stream: S, files: &Files) -> io::Result<()> {
    let mut connection = Buffered::new(stream);
    loop {
        let request = match read_request(&mut connection).await? {
            Ok(Some(request)) => request,
            Ok(None) => break,
            Err(status) => {
                refuse(&mut connection, status, false).await?;
                break;
            }
        };
        if !answer(&mut connection, &request, files).await? {
            break;
        }
    }
    connection.stream.shutdown().await
}

/// Reads a head; `Ok(None)` if the client closed between requests.
async fn read_request<S: AsyncRead + AsyncWrite + Unpin>(
    connection: &mut Buffered<S>,
) -> io::Result<Result<Option<Request>, Status>> {
    loop {
        match request::parse(connection.unused()) {
            Ok(Some((request, length))) => {
                connection.consume(length);
                return Ok(Ok(Some(request)));
            }
            Err(status) => return Ok(Err(status)),
            Ok(None) => {}
        }
        let had_some = !connection.unused().is_empty();
        if connection.fill().await? == 0 {
            return Ok(if had_some { Err(Status::BadRequest) } else { Ok(None) });
        }
    }
}

/// Answers one request and says whether another may follow.
async fn answer<S: AsyncRead + AsyncWrite + Unpin>(
    connection: &mut Buffered<S>,
    request: &Request,
    files: &Files,
) -> io::Result<bool> {
    match request.method {
        Method::Store => store(connection, request, files).await,
        Method::Get | Method::Head => {
            let mut body = Body::new(request.body);
            let end = loop {
                match body.next(connection).await {
                    Ok(Some(_)) => {}
                    end => break end,
                }
            };
            if end.is_err() {
                // Nobody knows where the next request begins (RFC 9112 §6.3).
                refuse(connection, Status::BadRequest, false).await?;
                return Ok(false);
            }
            match files.existing(&request.target) {
                Ok(path) => send_file(connection, request, &path).await?,
                Err(status) => refuse(connection, status, request.keep_alive).await?,
            }
            Ok(request.keep_alive)
        }
    }
}

async fn refuse<S: AsyncRead + AsyncWrite + Unpin>(
    connection: &mut Buffered<S>,
    status: Status,
    keep_alive: bool,
) -> io::Result<()> {
    let text = format!("{}\n", status.line());
    let mut head = Head::new(status, text.len() as u64, keep_alive);
    head.field("Content-Type", "text/plain; charset=utf-8");
    let mut response = head.finish();
    response.extend_from_slice(text.as_bytes());
    connection.stream.write_all(&response).await
}

async fn send_file<S: AsyncRead + AsyncWrite + Unpin>(
    connection: &mut Buffered<S>,
    request: &Request,
    path: &Path,
) -> io::Result<()> {
    let Ok(mut file) = File::open(path).await else {
        return refuse(connection, Status::NotFound, request.keep_alive).await;
    };
    let length = file.metadata().await?.len();
    let part = request.range.map(|range| files::part(range, length)).transpose();
    let (status, first, count) = match part {
        Ok(None) => (Status::Ok, 0, length),
        Ok(Some((first, count))) => (Status::PartialContent, first, count),
        Err(status) => return refuse(connection, status, request.keep_alive).await,
    };
    let mut head = Head::new(status, count, request.keep_alive);
    head.field("Content-Type", files::media_type(path));
    if status == Status::PartialContent {
        head.field("Content-Range", format_args!("bytes {first}-{}/{length}", first + count - 1));
    }
    connection.stream.write_all(&head.finish()).await?;
    if request.method == Method::Head {
        return Ok(());
    }
    file.seek(io::SeekFrom::Start(first)).await?;
    file.set_max_buf_size(PIECE_BYTES);
    send_piecewise(connection, file.take(count), count).await
}

async fn send_piecewise<S: AsyncRead + AsyncWrite + Unpin>(
    connection: &mut Buffered<S>,
    mut file: tokio::io::Take<File>,
    count: u64,
) -> io::Result<()> {
    let mut piece = vec![0; PIECE_BYTES.min(usize::try_from(count).unwrap_or(PIECE_BYTES)).max(1)];
    let mut sent = 0;
    while sent < count {
        let read = file.read(&mut piece).await?;
        if read == 0 {
            // The file shrank under us: the length is already promised, so only a broken connection is honest.
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        connection.stream.write_all(&piece[..read]).await?;
        sent += read as u64;
    }
    Ok(())
}

async fn store<S: AsyncRead + AsyncWrite + Unpin>(
    connection: &mut Buffered<S>,
    request: &Request,
    files: &Files,
) -> io::Result<bool> {
    let path = match files.storable(&request.target) {
        Ok(path) => path,
        Err(status) => {
            // The body is not read, so the connection cannot be used again.
            refuse(connection, status, false).await?;
            return Ok(false);
        }
    };
    if request.expects_continue {
        connection.stream.write_all(CONTINUE).await?;
    }
    let existed = path.exists();
    match receive(connection, request, &path).await {
        Ok(()) => {
            let status = if existed { Status::Ok } else { Status::Created };
            connection.stream.write_all(&Head::new(status, 0, request.keep_alive).finish()).await?;
            Ok(request.keep_alive)
        }
        Err(status) => {
            refuse(connection, status, false).await?;
            Ok(false)
        }
    }
}

/// Writes the body beside `path` and moves it there.
async fn receive<S: AsyncRead + AsyncWrite + Unpin>(
    connection: &mut Buffered<S>,
    request: &Request,
    path: &Path,
) -> Result<(), Status> {
    // Two may store the same file at a time.
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let (process, nth) = (std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let part = path.with_file_name(format!(".{name}.{process}.{nth}.part"));
    let received = receive_into(connection, request, &part).await;
    match received {
        Ok(()) => tokio::fs::rename(&part, path).await.map_err(|e| storage_status(&e)),
        Err(status) => {
            let _ = tokio::fs::remove_file(&part).await;
            Err(status)
        }
    }
}

async fn receive_into<S: AsyncRead + AsyncWrite + Unpin>(
    connection: &mut Buffered<S>,
    request: &Request,
    part: &Path,
) -> Result<(), Status> {
    let mut file = File::create(part).await.map_err(|e| storage_status(&e))?;
    let mut body = Body::new(request.body);
    loop {
        match body.next(connection).await {
            Ok(Some(piece)) => file.write_all(&piece).await.map_err(|e| storage_status(&e))?,
            Ok(None) => break,
            Err(BodyError::Stream | BodyError::Malformed) => return Err(Status::BadRequest),
        }
    }
    file.flush().await.map_err(|e| storage_status(&e))
}

fn storage_status(error: &io::Error) -> Status {
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Status::InsufficientStorage,
        io::ErrorKind::PermissionDenied => Status::Forbidden,
        _ => Status::InternalError,
    }
}
