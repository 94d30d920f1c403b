//! Whole conversations over a pipe: what a client sends, what it gets.

use std::path::PathBuf;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use firelane_http::{Files, Patience, serve, serve_with};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("firelane-http-test-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Sends `text`, closes the sending side, and returns everything that comes back.
fn converse(folder: &Folder, text: &[u8]) -> String {
    let files = Files::new(&folder.0).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    runtime.block_on(async {
        let (mut client, server) = tokio::io::duplex(4096);
        let serving = async { serve(server, &files).await.unwrap() };
        let asking = async {
            let (mut from, mut to) = tokio::io::split(&mut client);
            let mut answer = Vec::new();
            let send = async {
                to.write_all(text).await.unwrap();
                to.shutdown().await.unwrap();
            };
            let (_, read) = tokio::join!(send, from.read_to_end(&mut answer));
            read.unwrap();
            String::from_utf8_lossy(&answer).into_owned()
        };
        tokio::join!(serving, asking).1
    })
}

#[test]
fn a_file_twice_over_one_connection() {
    let folder = Folder::new("twice");
    std::fs::write(folder.0.join("a.txt"), "hello").unwrap();
    let get = b"GET /a.txt HTTP/1.1\r\nHost: x\r\n\r\n";
    let answer = converse(&folder, &[&get[..], get].concat());
    assert_eq!(answer.matches("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n").count(), 2, "{answer}");
    assert!(answer.ends_with("\r\n\r\nhello"));
}

#[test]
fn a_large_file_arrives_whole() {
    let folder = Folder::new("large");
    let content: Vec<u8> = (0..1_000_003u32).map(|i| b'a' + (i % 23) as u8).collect();
    std::fs::write(folder.0.join("big"), &content).unwrap();
    let answer = converse(&folder, b"GET /big HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    let (_, body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(body.as_bytes() == content, "{} of {} bytes", body.len(), content.len());
}

#[test]
fn head_range_and_missing() {
    let folder = Folder::new("range");
    std::fs::write(folder.0.join("a"), "0123456789").unwrap();
    let head = converse(&folder, b"HEAD /a HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    assert!(head.contains("Content-Length: 10\r\n") && head.ends_with("\r\n\r\n"), "{head}");
    let range = b"HEAD /a HTTP/1.1\r\nHost: x\r\nRange: bytes=-3\r\nConnection: close\r\n\r\n";
    let whole = converse(&folder, range);
    assert!(whole.starts_with("HTTP/1.1 200 ") && whole.contains("Content-Length: 10\r\n"), "{whole}");
    let part =
        converse(&folder, b"GET /a HTTP/1.1\r\nHost: x\r\nRange: bytes=-3\r\nConnection: close\r\n\r\n");
    assert!(part.starts_with("HTTP/1.1 206 ") && part.ends_with("bytes 7-9/10\r\n\r\n789"), "{part}");
    let beyond = converse(&folder, b"GET /a HTTP/1.1\r\nHost: x\r\nRange: bytes=10-\r\n\r\n");
    assert!(beyond.starts_with("HTTP/1.1 416 "), "{beyond}");
    let none = converse(&folder, b"GET /none HTTP/1.1\r\nHost: x\r\n\r\n");
    assert!(none.starts_with("HTTP/1.1 404 Not Found\r\n"), "{none}");
}

/// RFC 9110 §9.3.2: what followed the head would be the begin of the next answer to whoever asked.
#[test]
fn an_answer_to_head_has_no_content_whatever_it_is() {
    let folder = Folder::new("head");
    std::fs::write(folder.0.join("a"), "hello").unwrap();
    let get = "GET /a HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
    let head = "HEAD /none HTTP/1.1\r\nHost: x\r\n\r\n";
    let answer = converse(&folder, format!("{head}{get}").as_bytes());
    let (first, second) = answer.split_once("\r\n\r\n").unwrap();
    assert!(first.starts_with("HTTP/1.1 404 ") && first.contains("Content-Length: 14"), "{answer}");
    assert!(second.starts_with("HTTP/1.1 200 ") && second.ends_with("hello"), "{answer}");
    let broken = "HEAD /a HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nno size\r\n";
    let answer = converse(&folder, broken.as_bytes());
    assert!(answer.starts_with("HTTP/1.1 400 ") && answer.ends_with("\r\n\r\n"), "{answer}");
}

#[test]
fn uploads_are_stored_whole_or_not_at_all() {
    let folder = Folder::new("upload");
    let stored = || std::fs::read_to_string(folder.0.join("up")).ok();
    let first = converse(&folder, b"POST /up HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhello");
    assert!(first.starts_with("HTTP/1.1 201 Created\r\n"), "{first}");
    let chunked =
        b"PUT /up HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nExpect: 100-continue\r\n\r\n3\r\nnew\r\n0\r\n\r\n";
    let second = converse(&folder, chunked);
    assert!(second.starts_with("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\n"), "{second}");
    assert_eq!(stored().as_deref(), Some("new"));
    let get = b"GET /up HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\nxx";
    let answer = converse(&folder, get);
    assert!(answer.starts_with("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\n"), "{answer}");
    let broken = converse(&folder, b"POST /up HTTP/1.1\r\nHost: x\r\nContent-Length: 50\r\n\r\nhalf");
    assert!(broken.starts_with("HTTP/1.1 400 "), "{broken}");
    assert_eq!(stored().as_deref(), Some("new"));
    assert_eq!(std::fs::read_dir(&folder.0).unwrap().count(), 1, "no part file is left");
}

/// What has `Content-Range` is a part of a file (`curl -C - -T`), and whoever stored it as all of it would lose the rest (RFC 9110 §14.5).
#[test]
fn a_part_of_an_upload_does_not_take_the_place_of_the_whole() {
    let folder = Folder::new("partial");
    std::fs::write(folder.0.join("up"), "hello").unwrap();
    for method in ["PUT", "POST"] {
        let head = format!("{method} /up HTTP/1.1\r\nHost: x\r\nContent-Range: bytes 5-9/10\r\n");
        let answer = converse(&folder, format!("{head}Content-Length: 5\r\n\r\nworld").as_bytes());
        assert!(answer.starts_with("HTTP/1.1 400 "), "{answer}");
        assert_eq!(std::fs::read_to_string(folder.0.join("up")).unwrap(), "hello");
    }
}

/// RFC 9110 §13: a client who says what he believes to be there does so to lose nothing of somebody else's.
#[test]
fn what_is_stored_on_a_condition_is_stored_if_that_holds() {
    let folder = Folder::new("condition");
    let stored = |name: &str| std::fs::read_to_string(folder.0.join(name)).ok();
    std::fs::write(folder.0.join("there"), "old").unwrap();
    for (name, condition, status) in [
        ("there", "If-None-Match: *", 412),
        ("new", "If-None-Match: *", 201),
        ("there", "If-Match: *", 200),
        ("none", "If-Match: *", 412),
        // Files have no tags here: none is that of the file.
        ("there", "If-Match: \"a\", \"b\"", 412),
        ("there", "If-None-Match: W/\"a\"", 200),
    ] {
        let before = stored(name);
        let head = format!("PUT /{name} HTTP/1.1\r\nHost: x\r\n{condition}\r\nContent-Length: 3\r\n\r\n");
        let answer = converse(&folder, format!("{head}{status}").as_bytes());
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{name} {condition}: {answer}");
        let after = if status == 412 { before } else { Some(status.to_string()) };
        assert_eq!(stored(name), after, "{name} {condition}");
    }
}

/// RFC 9110 §13.1.5: a part of another content than the client has the rest of is worth nothing to him.
#[test]
fn a_range_of_what_may_be_another_file_is_the_whole() {
    let folder = Folder::new("if-range");
    std::fs::write(folder.0.join("a"), "0123456789").unwrap();
    for condition in ["\"tag\"", "Sun, 06 Nov 1994 08:49:37 GMT"] {
        let get = "GET /a HTTP/1.1\r\nHost: x\r\nConnection: close\r\nRange: bytes=7-\r\n";
        let answer = converse(&folder, format!("{get}If-Range: {condition}\r\n\r\n").as_bytes());
        assert!(answer.starts_with("HTTP/1.1 200 ") && answer.ends_with("\r\n\r\n0123456789"), "{answer}");
    }
}

/// Who writes until he is done, and reads then, is not reset meanwhile.
#[test]
fn an_upload_that_is_refused_is_heard_out() {
    let folder = Folder::new("refused");
    let head = b"PUT /none/up HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\n";
    let answer = converse(&folder, &[&head[..], &vec![b'x'; 1_000_000]].concat());
    assert!(answer.starts_with("HTTP/1.1 404 "), "{answer}");
    assert_eq!(answer.matches("HTTP/1.1 ").count(), 1);
}

#[test]
fn a_bad_request_is_answered_and_ends_the_connection() {
    let folder = Folder::new("bad");
    let answer = converse(&folder, b"nonsense\r\n\r\nGET / HTTP/1.1\r\nHost: x\r\n\r\n");
    assert!(answer.starts_with("HTTP/1.1 400 Bad Request\r\n"), "{answer}");
    assert_eq!(answer.matches("HTTP/1.1 ").count(), 1);
}

#[test]
fn a_body_that_cannot_be_read_is_no_begin_of_another_request() {
    let folder = Folder::new("body");
    std::fs::write(folder.0.join("a"), "x").unwrap();
    let bad = b"GET /a HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nno size\r\n";
    let answer = converse(&folder, &[&bad[..], b"GET /a HTTP/1.1\r\nHost: x\r\n\r\n"].concat());
    assert!(answer.starts_with("HTTP/1.1 400 Bad Request\r\n"), "{answer}");
    assert_eq!(answer.matches("HTTP/1.1 ").count(), 1);
}

#[test]
fn of_two_uploads_at_a_time_the_last_is_stored_whole() {
    let folder = Folder::new("two");
    let files = Files::new(&folder.0).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    runtime.block_on(async {
        let ((mut one, its), (mut other, others)) = (tokio::io::duplex(4096), tokio::io::duplex(4096));
        let head = b"PUT /up HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\nConnection: close\r\n\r\n";
        let script = async {
            one.write_all(&[&head[..], b"aaaaa"].concat()).await.unwrap();
            while std::fs::read_dir(&folder.0).unwrap().count() == 0 {
                tokio::task::yield_now().await;
            }
            let (mut first, mut second) = (String::new(), String::new());
            other.write_all(&[&head[..], b"bbbbbbbbbb"].concat()).await.unwrap();
            other.read_to_string(&mut second).await.unwrap();
            one.write_all(b"aaaaa").await.unwrap();
            one.read_to_string(&mut first).await.unwrap();
            (first, second)
        };
        let (served, both, (first, second)) = tokio::join!(serve(its, &files), serve(others, &files), script);
        served.and(both).unwrap();
        assert!([&first, &second].iter().all(|it| it.starts_with("HTTP/1.1 201 ")), "{second}{first}");
    });
    assert_eq!(std::fs::read_to_string(folder.0.join("up")).unwrap(), "aaaaaaaaaa");
    assert_eq!(std::fs::read_dir(&folder.0).unwrap().count(), 1, "no part file is left");
}

#[test]
fn an_upload_whose_service_ends_leaves_nothing() {
    let folder = Folder::new("ended");
    let files = Files::new(&folder.0).unwrap();
    let held = || std::fs::read_dir(&folder.0).unwrap().count();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    runtime.block_on(async {
        let (mut client, server) = tokio::io::duplex(4096);
        let begin = async {
            client
                .write_all(b"PUT /up HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\nhello")
                .await
                .unwrap();
            while held() == 0 {
                tokio::task::yield_now().await;
            }
        };
        tokio::select! {
            ended = serve(server, &files) => panic!("{ended:?}"),
            () = begin => {}
        }
    });
    drop(runtime);
    assert_eq!(held(), 0);
}

#[test]
fn a_name_may_be_as_long_as_the_file_system_has_them() {
    let folder = Folder::new("long");
    let name = "n".repeat(255);
    let put = format!("PUT /{name} HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nConnection: close\r\n\r\nx");
    let answer = converse(&folder, put.as_bytes());
    assert!(answer.starts_with("HTTP/1.1 201 "), "{answer}");
    assert!(folder.0.join(name).is_file());
}

/// Serves a client who says `text`, a piece now and then, and keeps the connection. How it ended, what he has heard, if he
/// listens, and how many pieces were taken.
fn keep(text: &[&[u8]], listens: bool) -> (std::io::Result<()>, String, usize) {
    let folder = Folder::new(&format!("keep-{}-{listens}", text.len()));
    std::fs::write(folder.0.join("big"), vec![b'x'; 1 << 20]).unwrap();
    let files = Files::new(&folder.0).unwrap();
    let patience = Patience { idle: Duration::from_millis(500), head: Duration::from_millis(700) };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    runtime.block_on(async {
        let (client, server) = tokio::io::duplex(4096);
        let (mut from, mut to) = tokio::io::split(client);
        let saying = async {
            for (nth, piece) in text.iter().enumerate() {
                if to.write_all(piece).await.is_err() {
                    return nth;
                }
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
            text.len()
        };
        let hearing = async {
            let mut heard = Vec::new();
            while listens && from.read_buf(&mut heard).await.unwrap() > 0 {}
            String::from_utf8_lossy(&heard).into_owned()
        };
        let serving = serve_with(server, &files, patience);
        let all = async { tokio::join!(serving, saying, hearing) };
        let (ended, said, heard) =
            tokio::time::timeout(Duration::from_secs(20), all).await.expect("it is let go");
        (ended, heard, said)
    })
}

#[test]
fn who_says_nothing_or_next_to_nothing_is_let_go() {
    let (ended, heard, _) = keep(&[], true);
    assert!(ended.is_ok() && heard.is_empty(), "{ended:?}, {heard}");
    let (ended, heard, _) = keep(&[b"GET /big"], true);
    assert!(ended.is_ok() && heard.starts_with("HTTP/1.1 408 "), "{ended:?}, {heard}");
    // Each byte comes in time, and the head does not.
    let bytes: Vec<&[u8]> = b"GET /a-name-that-takes-seconds-to-say".chunks(1).collect();
    let (ended, heard, said) = keep(&bytes, true);
    assert!(ended.is_ok() && heard.starts_with("HTTP/1.1 408 "), "{ended:?}, {heard}");
    assert!(said < bytes.len(), "it has not waited for the rest");
    let (ended, heard, _) =
        keep(&[b"PUT /up HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n", b"half"], true);
    assert!(ended.is_ok() && heard.starts_with("HTTP/1.1 400 "), "{ended:?}, {heard}");
}

#[test]
fn who_takes_nothing_of_an_answer_is_let_go() {
    let (ended, ..) = keep(&[b"GET /big HTTP/1.1\r\nHost: x\r\n\r\n"], false);
    assert_eq!(ended.unwrap_err().kind(), std::io::ErrorKind::TimedOut);
}

#[test]
fn who_is_slow_and_not_silent_is_served() {
    let pieces: [&[u8]; 4] =
        [b"GET /big HTTP/1.1\r\n", b"Host: x\r\nRange: bytes=0-3\r\n", b"Connection: close\r\n", b"\r\n"];
    let (ended, heard, _) = keep(&pieces, true);
    assert!(ended.is_ok() && heard.ends_with("\r\n\r\nxxxx"), "{ended:?}, {heard}");
}

/// Says something, and then has always something more to read; takes all that is written.
struct Endless(&'static [u8]);

impl tokio::io::AsyncRead for Endless {
    fn poll_read(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        to: &mut tokio::io::ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        let (first, rest) = self.0.split_at(self.0.len().min(to.remaining()));
        to.put_slice(if first.is_empty() { b"7" } else { first });
        self.0 = rest;
        Poll::Ready(Ok(()))
    }
}

impl tokio::io::AsyncWrite for Endless {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, text: &[u8]) -> Poll<std::io::Result<usize>> {
        Poll::Ready(Ok(text.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

/// A peer, however fast, has one task of the daemon's and not a thread: who is refused and writes on, and who sends what nobody wants.
#[test]
fn who_writes_without_end_keeps_no_other_from_its_turn() {
    for (nth, text) in [
        "PUT /../no HTTP/1.1\r\nHost: x\r\nContent-Length: 9999999999999\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: x\r\nContent-Length: 9999999999999\r\n\r\n",
        "PUT /yes HTTP/1.1\r\nHost: x\r\nContent-Length: 9999999999999\r\n\r\n",
    ]
    .into_iter()
    .enumerate()
    {
        let (tell, told) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let folder = Folder::new(&format!("endless{nth}"));
            let files = Files::new(&folder.0).unwrap();
            let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
            runtime.block_on(async {
                let served = tokio::spawn(async move { serve(Endless(text.as_bytes()), &files).await });
                for _ in 0..10 {
                    tokio::task::yield_now().await;
                }
                served.abort();
                assert!(served.await.unwrap_err().is_cancelled());
            });
            tell.send(()).unwrap();
        });
        assert_eq!(told.recv_timeout(Duration::from_secs(20)), Ok(()), "{text}");
    }
}
