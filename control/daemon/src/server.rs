//! The interface on its unix socket: HTTP in front of `dispatch`, and nothing else.
//!
//! Called by `daemon.rs`. Every request is answered on a thread that may block, and a fault of ours ends that
//! request alone. Who comes and says nothing, or does not take its answer, is seen off (`caller.rs`): each is a descriptor, which
//! programs and interfaces need.

use std::convert::Infallible;
use std::io;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, to_bytes};
use axum::extract::Request;
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderValue, StatusCode};
use axum::response::Response;
use firelane_api::{Api, ApiError, CaptureRequest, Method, Status, dispatch_while, paths};
use firelane_model::MODEL_TEXT_MAX;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use rustix::fs::Mode;
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::Semaphore;

use crate::caller::{Caller, Pace};
use crate::capture::Stream;
use crate::host::Host;

/// How long a request's body may take: it comes from a program on the same host.
const BODY_TIME: Duration = Duration::from_secs(30);

/// How long nobody is taken in when there is no descriptor for one: he waits, and asking again at once would take a CPU.
const REST: Duration = Duration::from_secs(1);

/// How much clients of the interface may have of the daemon.
#[derive(Clone, Copy, Debug)]
struct Limits {
    /// So many are served at a time, and the others wait in the kernel's queue.
    clients: usize,
    /// How long the head of a request may take, or a connection be kept without one.
    head: Duration,
    /// How long nothing of an answer may be taken.
    answer: Duration,
}

impl Limits {
    /// Commands come and go within milliseconds, and a page or an agent keeps a few. Where others have all places, a command waits for as
    /// long as a head may take.
    const USUAL: Self = Self { clients: 256, head: Duration::from_secs(10), answer: Duration::from_secs(30) };
}

/// What a request is told whose answer has panicked.
const FAULT: &str = "a fault in firelaned; its log says more";
/// Pieces of a capture that wait for a client.
const CAPTURE_CHUNKS: usize = 4;

/// Opens the socket for the owner and the group. One that a daemon before us has left is replaced; the lock of
/// its folder says that it is dead.
pub(crate) fn bind(path: &Path) -> io::Result<std::os::unix::net::UnixListener> {
    match std::fs::symlink_metadata(path) {
        Ok(found) if found.file_type().is_socket() => std::fs::remove_file(path)?,
        Ok(_) => {
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, "there is a file that is no socket"));
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    // The socket never has more rights than it shall have, not even for a moment.
    let before = rustix::process::umask(Mode::from_raw_mode(0o117));
    let listener = std::os::unix::net::UnixListener::bind(path);
    rustix::process::umask(before);
    let listener = listener?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// Answers requests until the task is cancelled.
pub(crate) async fn serve(listener: std::os::unix::net::UnixListener, host: Arc<Host>) -> io::Result<()> {
    serve_within(listener, host, Limits::USUAL).await
}

async fn serve_within(
    listener: std::os::unix::net::UnixListener,
    host: Arc<Host>,
    limits: Limits,
) -> io::Result<()> {
    let listener = UnixListener::from_std(listener)?;
    let places = Arc::new(Semaphore::new(limits.clients));
    loop {
        let place = Arc::clone(&places).acquire_owned().await.map_err(io::Error::other)?;
        match listener.accept().await {
            Ok((stream, _)) => {
                let host = Arc::clone(&host);
                tokio::spawn(async move {
                    serve_one(stream, &host, limits).await;
                    drop(place);
                });
            }
            Err(error) => {
                tracing::warn!("no client of the interface can come in: {error}");
                tokio::time::sleep(REST).await;
            }
        }
    }
}

async fn serve_one(stream: UnixStream, host: &Arc<Host>, limits: Limits) {
    let pace = Pace::default();
    let caller = Caller::new(stream, limits.answer, pace.clone());
    let service = service_fn(|request: Request<Incoming>| {
        let (host, pace) = (Arc::clone(host), pace.clone());
        async move { Ok::<_, Infallible>(answer(host, request.map(Body::new), &pace).await) }
    });
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(limits.head);
    if let Err(error) = builder.serve_connection(TokioIo::new(caller), service).await {
        tracing::debug!("a client of the interface: {error}");
    }
}

async fn answer(host: Arc<Host>, request: Request, pace: &Pace) -> Response {
    let (head, body) = request.into_parts();
    let Some(method) = Method::from_word(head.method.as_str()) else {
        return refusal(&ApiError::new(Status::NotSupported, "method", head.method, ""));
    };
    let body = match tokio::time::timeout(BODY_TIME, to_bytes(body, MODEL_TEXT_MAX)).await {
        Ok(Ok(body)) => body,
        Ok(Err(_)) => {
            let allowed = format!("at most {MODEL_TEXT_MAX} bytes");
            return refusal(&ApiError::new(Status::TooMany, "body", "", allowed));
        }
        Err(_) => return refusal(&ApiError::new(Status::TimedOut, "body", "", "a whole request")),
    };
    if method == Method::Get && head.uri.path() == paths::CAPTURE {
        return capture(host, head.uri.query().unwrap_or_default(), pace).await;
    }
    // This future ends with its client's connection, and the work cannot be ended: it asks whether there is one to wait for it.
    let client = Arc::new(());
    let awaited = Arc::downgrade(&client);
    let work = tokio::task::spawn_blocking(move || {
        let (path, query) = (head.uri.path(), head.uri.query().unwrap_or_default());
        let request = firelane_api::Request { method, path, query, body: &body };
        dispatch_while(&*host as &dyn Api, &request, &|| awaited.strong_count() > 0)
    });
    let answer = work.await;
    drop(client);
    match answer {
        Ok(answer) => response(answer.status, answer.body),
        Err(_) => refusal(&ApiError::new(Status::Failed, "", "", FAULT)),
    }
}

/// A capture's stream, on a thread of its own that ends when the client goes away.
async fn capture(host: Arc<Host>, query: &str, pace: &Pace) -> Response {
    let wanted = match CaptureRequest::from_query(query) {
        Ok(wanted) => wanted,
        Err(error) => return refusal(&error),
    };
    let (sender, mut rest) = tokio::sync::mpsc::channel::<Vec<u8>>(CAPTURE_CHUNKS);
    let work = tokio::task::spawn_blocking(move || {
        host.capture(&wanted, &mut |bytes| match bytes {
            [] => !sender.is_closed(),
            bytes => sender.blocking_send(bytes.to_vec()).is_ok(),
        })
    });
    // The header of the stream comes at once; without it there is a reason.
    let Some(first) = rest.recv().await else {
        return match work.await {
            Ok(Err(error)) => refusal(&error),
            _ => refusal(&ApiError::new(Status::Failed, "", "", FAULT)),
        };
    };
    pace.is_the_callers();
    let mut response = Response::new(Body::new(Stream { first: Some(first), rest }));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/x-pcapng"));
    response
}

fn refusal(error: &ApiError) -> Response {
    response(error.status.http(), serde_json::to_vec(error).unwrap_or_default())
}

fn response(status: u16, body: Vec<u8>) -> Response {
    let mut response = Response::new(Body::from(body));
    *response.status_mut() = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::folder::tests::Scratch;
    use crate::host::tests::two_netstacks;
    use rustix::event::{PollFd, PollFlags};
    use std::io::{Read, Write};
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::net::UnixStream;
    use std::time::Instant;

    /// How long a test waits for what comes at once.
    const AT_ONCE: Duration = Duration::from_secs(20);
    const WHOLE: &[u8] = b"GET /v1/openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n";

    /// Says `says` on a connection that has just been made. Who has no CPU meanwhile may be seen off before he has said it.
    fn come(path: &Path, says: &[u8]) -> UnixStream {
        let mut stream = UnixStream::connect(path).unwrap();
        stream.set_read_timeout(Some(AT_ONCE)).unwrap();
        if let Err(error) = stream.write_all(says) {
            assert_eq!(error.kind(), io::ErrorKind::BrokenPipe);
        }
        stream
    }

    /// Waits until the other end has ended the connection, and takes nothing that it has sent.
    fn wait_for_the_end(stream: &UnixStream) {
        let mut polled = [PollFd::new(stream, PollFlags::empty())];
        let limit = AT_ONCE.try_into().unwrap();
        assert_eq!(rustix::event::poll(&mut polled, Some(&limit)), Ok(1), "it is seen off");
        assert!(polled[0].revents().contains(PollFlags::HUP));
    }

    /// Who keeps a connection and does nothing with it has not the place of others for ever.
    #[test]
    fn who_says_nothing_or_takes_no_answer_is_seen_off() {
        let (folder, runtime) = (Scratch::new(), tokio::runtime::Runtime::new().unwrap());
        let host = Arc::new(two_netstacks(&folder, &runtime));
        let path = folder.path().join("api.sock");
        let short = Duration::from_millis(100);
        let limits = Limits { clients: 2, head: short, answer: short };
        runtime.spawn(serve_within(bind(&path).unwrap(), Arc::clone(&host), limits));
        // What is in the kernel's buffers was taken.
        let unread = WHOLE.repeat(20);
        for says in [&b""[..], b"GET /v1/sta", b"GET /v1/status HTTP/1.1\r\nHost: loc", &unread] {
            let idle = [come(&path, says), come(&path, says)];
            // Who asks waits for one of the two places, and has so little time himself that he may have to come again.
            let begin = Instant::now();
            let mut first = [0; 12];
            while let Err(error) = come(&path, WHOLE).read_exact(&mut first) {
                assert!(begin.elapsed() < AT_ONCE, "the others have been seen off: {error}");
            }
            assert_eq!(&first, b"HTTP/1.1 200");
            // Both end though nothing is read: who began to read would take his answers, and had his place for as long.
            idle.iter().for_each(wait_for_the_end);
            for mut stream in idle {
                let mut rest = Vec::new();
                let ended = stream.read_to_end(&mut rest);
                assert!(ended.is_ok() || ended.is_err_and(|it| it.kind() == io::ErrorKind::ConnectionReset));
                assert!(rest.len() < 20 * 100_000, "{says:?}");
            }
        }
        host.shut_down();
    }

    #[test]
    fn a_dead_socket_is_replaced_and_a_file_is_not() {
        let folder = Scratch::new();
        let path = folder.path().join("api.sock");
        drop(bind(&path).unwrap());
        let _listener = bind(&path).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o660);
        let path = folder.path().join("file");
        std::fs::write(&path, "precious").unwrap();
        assert!(bind(&path).is_err());
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "precious");
    }
}
